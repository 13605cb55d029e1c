"""What a search is about: samples in memory, targets, folds, the views to try, and the rules of the choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, move_to, to_numpy
from tracelearn.search.alignment import align_samples
from tracelearn.search.folds import Folds, draw_samples
from tracelearn.search.splits import SplitSamples, Targets, predicted_class, split_samples
from tracelearn.search.views import Blend, BlendedSamples, Candidate, SamplesInMemory

__all__ = ["Rules", "Task"]


@dataclass(frozen=True, eq=False)
class Rules:
    """How a search chooses: the parameters of an estimator that say so."""

    alphas: Any = 12
    eps: float = 1e-3
    penalty: Any = "overlapped"
    max_iter: int = 1000
    one_standard_error: bool = False
    asks_losses: bool = False  # whether logistic regression and maps between classes are tried, too
    n_threads: int = 1
    random_state: Any = 0


@dataclass(frozen=True, eq=False)
class Task:
    """Samples, their targets, how they are split, what is tried, and how the choice is made."""

    samples: SamplesInMemory
    targets: Targets
    folds: Folds  # all repeats; views are screened with all of them, and the rest is chosen with the first
    candidates: tuple[Candidate, ...]
    rules: Rules
    order: Array | None = None  # in which samples are drawn, so that the order of the rows decides nothing
    groups: Array | None = None  # (n,)
    alignments: tuple[Candidate, ...] = ()  # what the samples of each group may be aligned by
    why_not_aligned: str = ""  # if nothing is tried though there are groups
    alignment: str = ""  # what these samples are aligned by, if by anything
    classes: Array | None = None  # the labels, of classes

    @property
    def n_samples(self) -> int:
        """The number of samples of some weight."""
        return int(np.count_nonzero(to_numpy(self.targets.weight)))

    def drawn(self, count: int) -> tuple[Task, Array]:
        """Draw about so many samples, by weight and class, or take all; return the task of these alone, and their index."""
        weight = to_numpy(self.targets.weight)
        labels = None
        if self.targets.are_classes:
            codes = to_numpy(self.targets.codes)
            labels = predicted_class(codes).astype(int)
        index, weight_of_drawn = draw_samples(count, weight, labels, self.rules.random_state, self.order)
        if len(index) == len(weight):
            return self, index  # not a copy
        return self.take(index, weight_of_drawn), index

    def take(self, index: Array, weight: Array) -> Task:
        """Keep the samples of an index, with other weights."""
        weight = move_to(weight, self.targets.codes, self.targets.codes.dtype)
        new_number = np.full(self.folds.n_samples, -1)
        new_number[index] = np.arange(len(index))
        order = None
        if self.order is not None:
            order = new_number[self.order]
            order = order[order >= 0]
        return replace(
            self,
            samples=self.samples.take(index, weight),
            targets=self.targets.take(index, weight),
            folds=self.folds.restricted_to(index),
            order=order,
            groups=None if self.groups is None else self.groups[index],
        )

    def aligned_samples(self, blend: Blend) -> SamplesInMemory:
        """Return all samples as the views of a blend see them: each group aligned, or as they are."""
        alignment = self.alignment_of(blend)
        return self.samples if alignment is None else align_samples(self.samples, alignment, self.groups)

    def alignment_of(self, blend: Blend) -> Any:
        """Find the transformer, not fitted, that samples are aligned by before the views of a blend; None where they are not."""
        transformers = {candidate.name: candidate.transformer for candidate in self.alignments}
        return transformers.get(blend.alignment)

    def first_repeat(self) -> Task:
        """Keep the first repeat of the folds."""
        return replace(self, folds=self.folds.first_repeat())

    def split(self, blended: BlendedSamples) -> SplitSamples:
        """Split samples as a blend of views shows them, into the folds of this task.

        Where views learn from targets, ``blended`` has rows for every fold of all repeats; those of the first repeat come first,
        so that a task of the first repeat alone takes as many as it has folds.
        """
        rows_of_fold = blended.rows_of_fold
        if rows_of_fold is not None:
            rows_of_fold = rows_of_fold[: len(self.folds)]
        return split_samples(blended.rows, blended.shape, self.targets, self.folds, rows_of_fold=rows_of_fold)
