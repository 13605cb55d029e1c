"""Alignment: samples of each group, a person or a device, transformed by what is learned from these alone, before any view.

No targets are used, and a held-out group is aligned by its own samples, as a new one will be. So each group is aligned once,
whatever fold it lies in; whether that helps is a question that held-out groups answer, see ``choice``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.features import PerGroup, TensorTransformer, chained, default_alignments, find_time_axis
from tracelearn.search.folds import Folds
from tracelearn.search.views import Candidate, SamplesInMemory, named_transformers

__all__ = ["align_samples", "aligned_view", "read_alignments", "why_not_aligned"]

FEWEST_GROUPS = 3  # of fewer no folds can tell whether alignment helps the next one


def read_alignments(
    align: Any, shape: tuple[int, ...], n_samples: int, *, time_axis: Any = "auto", modes: Any = None
) -> tuple[tuple[Candidate, ...], int]:
    """Read the parameter ``align`` of a search; return what is tried, and how many channels samples have.

    Parameters
    ----------
    align : "auto", None, transformer, or list of transformers or of (name, transformer) pairs
    """
    axis = find_time_axis(shape, time_axis, modes)[0] if len(shape) > 1 else None
    n_channels = math.prod(shape) // (1 if axis is None else shape[axis])
    if align is None:
        return (), n_channels
    if isinstance(align, str) and align == "auto":
        pairs = [(name, view) for name, view in default_alignments(shape, axis) if view.suits(shape, n_samples)]
    else:
        pairs = named_transformers(align, "align")
        for _, transformer in pairs:
            if not isinstance(transformer, TensorTransformer):
                raise ValueError(
                    f"Expected align to be 'auto', None or transformers of tracelearn, got {transformer!r}: put others into "
                    "PerGroup, in a Pipeline before the search."
                )
    return tuple(Candidate(name, transformer) for name, transformer in pairs), n_channels


def why_not_aligned(groups: Array, folds: Folds, n_channels: int) -> str:
    """Say why samples of these groups (n,) are not aligned; "" where folds can tell whether it helps."""
    _, number_of_group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    if len(counts) < FEWEST_GROUPS:
        return f"there are fewer than {FEWEST_GROUPS} groups"
    if counts.min() < n_channels:
        return f"a group of {counts.min()} samples has fewer than channels, {n_channels}"
    for train, test in folds.splits:
        if np.isin(number_of_group[test], number_of_group[train]).any():
            return "folds do not hold groups out whole"
    return ""


def align_samples(samples: SamplesInMemory, transformer: TensorTransformer, groups: Array) -> SamplesInMemory:
    """Transform the samples of each group (n,) by a clone of the transformer that is fitted to these samples alone.

    Sample weights are ignored, since ``predict``, which aligns new samples in the same way, is given none.
    """
    Z = PerGroup(transformer).fit_transform(samples.tensors, groups=groups)
    if tuple(Z.shape[1:]) != samples.shape:
        raise ValueError(
            f"Expected align to keep the shape of samples, {samples.shape}, got {tuple(Z.shape[1:])} by {transformer!r}: put "
            "PerGroup into a Pipeline before the search."
        )
    rows = array_namespace(Z).reshape(Z, (Z.shape[0], -1))
    return SamplesInMemory(rows, samples.shape, samples.weight, samples.y)


def aligned_view(alignment: TensorTransformer, view: Any) -> Any:
    """Join the fitted alignment of one group and a fitted view of aligned samples: a view of the samples of this group."""
    if view is None:
        return alignment
    if isinstance(view, TensorTransformer):
        return chained([alignment, view])
    return make_pipeline(alignment, view)  # other views see rows, which alignment keeps flat
