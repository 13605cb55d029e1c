"""Samples for a search, which is always in memory: all of them where they fit, else a part that is drawn from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, available_memory, is_sparse, to_numpy
from tracelearn.errors import warn
from tracelearn.losses import Loss
from tracelearn.samples.reading import Reader, Spec, read
from tracelearn.samples.samples import Raw, Samples, as_raw
from tracelearn.samples.targets import loss_for
from tracelearn.search.folds import Folds, canonical_order, draw_samples, make_folds
from tracelearn.search.scorers import scorer_of
from tracelearn.search.splits import Targets
from tracelearn.search.views import SamplesInMemory

__all__ = ["SearchData", "read_for_search"]

# Bytes that a search takes for each number of the samples: the samples, some views of them, and coordinates.
_BYTES = 40


@dataclass(frozen=True, eq=False)
class SearchData:
    """What ``fit`` was given, checked: all samples, wherever they are, and those of some weight that are in memory to choose by.

    ``index`` numbers the latter among all; ``is_all`` says that no other sample has any weight.
    """

    spec: Spec
    samples: Samples
    searched: SamplesInMemory
    codes: Array  # (m, K), the coded targets of those that choose
    confounds: Array | None  # (m, q)
    index: Array  # (m,)
    labels: Array  # (n,), the targets of all samples as they came
    weight: Array  # (n,), what they weigh
    is_all: bool

    @property
    def are_classes(self) -> bool:
        """Whether targets are classes."""
        return self.spec.classes is not None

    @cached_property
    def order(self) -> Array:
        """The order in which the samples in memory are drawn, so that the order of the rows decides nothing."""
        rows = self.searched.rows
        return canonical_order(rows if is_sparse(rows) else to_numpy(rows), self.searched.y)

    def folds(
        self, cv: Any, groups: Any, random_state: Any, *, repeats: int = 1, split_params: dict[str, Any] | None = None
    ) -> Folds:
        """Split the samples in memory, see ``make_folds``; ``groups`` (n,), checked, and ``split_params`` are of all samples."""
        folds = make_folds(
            cv,
            np.ravel(self.labels) if self.are_classes else self.labels,
            groups,
            self.weight,
            random_state,
            classifier=self.are_classes,
            repeats=repeats,
            order=self.index[self.order],
            split_params=split_params,
        )
        return folds.restricted_to(self.index)

    def targets(self, loss: Loss, scoring: Any, *, fit_intercept: bool) -> Targets:
        """State what is learned about the samples in memory, and how ``scoring``, the user's or None, judges it."""
        loss = loss_for(loss, self.spec.n_targets)
        scorer = None
        if scoring is not None:
            y = np.ravel(self.searched.y) if self.are_classes else self.searched.y
            weight = to_numpy(self.searched.weight)
            user_weight = None if np.all(weight == weight[0]) else weight
            scorer = scorer_of(scoring, loss, self.spec.classes, y, user_weight, is_single=self.spec.is_single)
        return Targets(
            codes=self.codes,
            weight=self.searched.weight,
            loss=loss,
            are_classes=self.are_classes,
            fit_intercept=fit_intercept,
            confounds=self.confounds,
            scorer=scorer,
        )


def read_for_search(raw: Raw, reader: Reader, random_state: Any = 0) -> SearchData:
    """Read samples into memory, or as many as fit, drawn by class and weight."""
    if not raw.repeatable:
        raise ValueError(
            "Expected samples that can be read more than once to choose by cross-validation, got an iterator: pass arrays, "
            "files or a list of batches."
        )
    labels, weight = raw.all_targets()
    labels = np.asarray(to_numpy(labels))
    if not raw.in_memory:
        n = len(labels)
        bytes_of_sample = _BYTES * math.prod(raw.sample_shape or np.shape(raw.first_samples())[1:])
        n_in_memory = int(available_memory() / bytes_of_sample)
        if n > n_in_memory:
            return _drawn(raw, reader, n_in_memory, labels, weight, random_state)
        raw = _in_memory(raw)
    spec, samples = read(raw, reader)
    samples = samples.checked()
    (block,) = samples.blocks
    index = np.flatnonzero(to_numpy(block.weight) > 0)
    if len(index) < len(labels):
        block = replace(block.take(index), first=0)
        samples = Samples.of(block, spec.sample_shape)
    searched = SamplesInMemory(block.X, spec.sample_shape, block.weight, labels[index])
    weight_of_all = np.zeros(len(labels))
    weight_of_all[index] = to_numpy(block.weight)
    return SearchData(spec, samples, searched, block.Y, block.confounds, index, labels, weight_of_all, is_all=True)


def _in_memory(raw: Raw) -> Raw:
    """Read all blocks, wherever they are."""
    _, X, y, weight = zip(*raw.execution.gather(raw.batches), strict=True)
    whole = as_raw(
        np.concatenate(X), np.concatenate(y), None if weight[0] is None else np.concatenate(weight), raw.confounds
    )
    return replace(whole, modes=raw.modes)


def _drawn(raw: Raw, reader: Reader, count: int, labels: Array, weight: Array | None, random_state: Any) -> SearchData:
    """Read a random draw of the samples into memory, to choose by; the last fit reads all of them, block by block."""
    spec, samples = read(raw, reader)
    n = len(labels)
    weight = np.ones(n) if weight is None else np.asarray(weight, dtype=float)
    index, weight_of_drawn = draw_samples(count, weight, None if spec.classes is None else labels, random_state)
    warn(
        f"Expected samples that fit in memory, got {n}: {len(index)} of them, drawn at random, choose, and what they choose is "
        "fitted to all, so the model may differ from that of samples in memory.",
    )
    chosen = np.zeros(n, dtype=bool)
    chosen[index] = True
    blocks = list(samples.execution.gather(samples.take(chosen).checked().blocks))
    rows = np.concatenate([block.X for block in blocks])
    codes = np.concatenate([block.Y for block in blocks])
    confounds = None if blocks[0].confounds is None else np.concatenate([block.confounds for block in blocks])
    class_weight = np.concatenate([to_numpy(block.weight) for block in blocks]) / weight[index]
    searched = SamplesInMemory(rows, spec.sample_shape, weight_of_drawn * class_weight, labels[index])
    return SearchData(spec, samples, searched, codes, confounds, index, labels, weight, is_all=False)
