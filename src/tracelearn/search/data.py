"""Samples for a search, which is always in memory: all of them where they fit, else a part that is drawn from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    as_dtype,
    available_memory,
    is_non_numpy,
    is_sparse,
    move_to,
    to_numpy,
)
from tracelearn.errors import refuse, warn
from tracelearn.features import ResampleTime
from tracelearn.features.axes import find_time_axis, read_modes
from tracelearn.features.gaps import has_gaps
from tracelearn.losses import Loss
from tracelearn.samples.checks import check_gaps, float_dtype
from tracelearn.samples.modes import resized_modes
from tracelearn.samples.reading import Reader, Spec, read
from tracelearn.samples.samples import Samples
from tracelearn.samples.source import Source, missing_targets
from tracelearn.samples.targets import loss_for
from tracelearn.search.folds import Folds, canonical_order, draw_samples, make_folds
from tracelearn.search.scorers import scorer_of
from tracelearn.search.splits import Targets
from tracelearn.search.views import SamplesInMemory

__all__ = ["SearchData", "find_time", "is_incomplete", "read_for_search"]

# Bytes that a search takes for each number of the samples: the samples, some views of them, and coordinates.
_BYTES = 40


@dataclass(frozen=True, eq=False)
class SearchData:
    """Checked samples of a search: n in all, wherever they are, of which m are in memory to choose by.

    The m samples are all whose weight is not zero, or a random draw of them where these do not fit in memory.
    """

    spec: Spec
    samples: Samples  # all n, for the last fit
    searched: SamplesInMemory  # the m to choose by
    codes: Array  # (m, K), their coded targets
    confounds: Array | None  # (m, q)
    index: Array  # (m,), their indices among all n
    labels: Array  # (n,), the targets of all samples as they came
    weight: Array  # (n,), the weights of all samples
    is_all: bool  # whether the m are all samples whose weight is not zero
    resampler: ResampleTime | None = (
        None  # fills gaps, and brings new samples to the common length; fitted to those in memory
    )

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
        """Gather the coded targets, weights and confounds of the samples in memory, and the scorer that ``scoring`` asks for."""
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


def read_for_search(
    source: Source,
    reader: Reader,
    random_state: Any = 0,
    *,
    resampler_of: Callable[[Spec], ResampleTime] | None = None,
) -> SearchData:
    """Read samples into memory, or as many as fit, drawn by class and weight.

    ``resampler_of`` makes what completes samples in memory with gaps or of unequal length; where it is None, these are refused.
    """
    if not source.repeatable:
        raise ValueError(
            "Expected samples that can be read more than once to choose by cross-validation, got an iterator: pass arrays, "
            "files or a list of batches."
        )
    labels, weight = source.all_targets()
    if labels is None and not source.in_memory:
        raise missing_targets()
    labels = np.asarray(to_numpy(labels))
    if not source.in_memory:
        n = len(labels)
        bytes_of_sample = _BYTES * math.prod(source.sample_shape or np.shape(source.first_samples())[1:])
        n_in_memory = int(available_memory() / bytes_of_sample)
        if n > n_in_memory:
            return _drawn(source, reader, n_in_memory, labels, weight, random_state)
        source = source.loaded()
    spec, samples = read(source, reader)
    resampler = as_given = None
    if resampler_of is not None and not is_sparse(samples.like):
        resampler = resampler_of(spec)
        spec, samples, as_given = completed(spec, samples, resampler)
    samples = samples.checked()
    (block,) = samples.blocks
    index = np.flatnonzero(to_numpy(block.weight) > 0)
    if len(index) < len(labels):
        block = replace(block.take(index), first=0)
        samples = Samples.of(block, spec.sample_shape)
    searched = SamplesInMemory(block.X, spec.sample_shape, block.weight, labels[index])
    if as_given is not None:
        xp = array_namespace(as_given)
        searched = replace(searched, as_given=xp.take(as_given, move_to(index, as_given), axis=0))
    weight_of_all = np.zeros(len(labels))
    weight_of_all[index] = to_numpy(block.weight)
    return SearchData(
        spec,
        samples,
        searched,
        block.Y,
        block.confounds,
        index,
        labels,
        weight_of_all,
        is_all=True,
        resampler=resampler,
    )


def find_time(spec: Spec, time_axis: Any, padded_along: int | None) -> int | None:
    """Find the mode of samples along which gaps are interpolated: the one that differs in length, or that ``time_axis`` means."""
    shape = spec.sample_shape
    names = [mode.name for mode in spec.modes or ()]
    name = "time" if time_axis == "auto" else time_axis
    if padded_along is None and time_axis is not None and len(shape) > 1:
        if isinstance(time_axis, Integral):
            return read_modes(time_axis, shape, "time_axis")[0]
        return names.index(name) if name in names else find_time_axis(shape, time_axis, spec.modes)[0]
    is_other = isinstance(time_axis, Integral) and padded_along not in (
        None,
        read_modes(time_axis, shape, "time_axis")[0],
    )
    refuse(
        is_other,
        f"Expected samples of unequal length along time_axis={time_axis}, got mode {padded_along} that differs: leave "
        "time_axis out.",
    )
    return padded_along


def is_incomplete(X: Any, shape: tuple[int, ...]) -> bool:
    """Tell whether samples in memory have gaps, or another shape than ``shape``: they must then be resampled."""
    if is_sparse(X):
        return False
    values = X if is_non_numpy(X) else np.asarray(X)
    is_float = array_namespace(values).isdtype(values.dtype, "real floating")
    return (values.ndim > 2 and tuple(values.shape[1:]) != shape) or (is_float and has_gaps(values))


def completed(spec: Spec, samples: Samples, resampler: ResampleTime) -> tuple[Spec, Samples, Array | None]:
    """Fill gaps, and bring samples in memory to one length; return also tensors as they were given, None if all were complete.

    The resampler learns from samples of some weight.
    """
    (block,) = samples.blocks
    check_gaps(block.X, spec.sample_shape)
    xp = array_namespace(block.X)
    tensors = xp.reshape(block.X, (-1, *spec.sample_shape))
    weight = xp.ones_like(block.Y[:, 0]) if block.weight is None else block.weight
    tensors = as_dtype(tensors, float_dtype(tensors))
    weighted = xp.nonzero(weight)[0]
    is_whole = weighted.shape[0] == tensors.shape[0]
    resampler.fit_tensors(
        tensors if is_whole else xp.take(tensors, weighted, axis=0), weight if is_whole else xp.take(weight, weighted)
    )
    complete = resampler.transform_tensors(tensors)
    if complete.shape == tensors.shape and not has_gaps(tensors):
        return spec, samples, None
    shape = resampler.sample_shape_
    modes = spec.modes
    if modes is not None:
        modes = resized_modes(modes, shape)
    block = replace(block, X=xp.reshape(complete, (complete.shape[0], -1)))
    return replace(spec, sample_shape=shape, modes=modes), Samples.of(block, shape), tensors


def _drawn(
    source: Source, reader: Reader, count: int, labels: Array, weight: Array | None, random_state: Any
) -> SearchData:
    """Read a random draw of the samples into memory, to choose by; the last fit reads all of them, block by block."""
    spec, samples = read(source, reader)
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
