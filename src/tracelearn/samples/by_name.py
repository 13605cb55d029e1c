"""Targets, weights and groups by the names that they have in the file, the table or the epochs that samples come from."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import available_memory
from tracelearn.errors import refuse
from tracelearn.samples.modes import column_of_epochs
from tracelearn.samples.samples import is_named, unnamed
from tracelearn.samples.source import Source, as_source

__all__ = ["in_memory", "size_of", "with_groups", "with_targets"]


def with_groups(X: Any, y: Any, sample_weight: Any, groups: Any, modes: Any = None) -> tuple[Any, Any, Any, Any]:
    """Look up groups that are given by a name; return X, y, sample weights and groups as ``fit`` takes them.

    A file or a table becomes a source, which brings its y and weights, and a column that names groups is no entry of samples.
    ``modes`` are those of the samples that a model was fitted to, and say which columns are entries.
    """
    if not isinstance(groups, str):
        return X, y, sample_weight, groups
    if is_named(X):
        return X, y, sample_weight, column_of_epochs(X, groups)
    source = as_source(X, y, sample_weight, ignore=(groups,), modes=modes)
    refuse(
        source is None,
        f"Expected groups by a name only with a file, a table or epochs, in which it can be looked up, got {groups!r} with "
        f"{type(X).__name__}: pass one group for each sample.",
    )
    assert source is not None
    return source, None, None, source.column(groups)


def with_targets(X: Any, y: Any, sample_weight: Any, modes: Any = None) -> tuple[Any, Any, Any]:
    """Read the targets and weights of samples in blocks, as ``score`` takes them; those of samples in memory stay as they are.

    Samples with names become arrays: their modes must be ``modes``, those of the model, and their targets come in their order.
    """
    if is_named(X):
        values, targets, _ = unnamed(X, y, modes)
        return values, targets, sample_weight
    source = as_source(X, y, sample_weight, modes=modes)
    if source is None:
        return X, y, sample_weight
    X = source if source.repeatable else list(source.batches())
    targets, weights = zip(*(source.targets() if source.repeatable else ((y, w) for _, y, w in X)), strict=True)
    return X, _concatenated(targets), _concatenated(weights)


def in_memory(X: Any, y: Any = None, groups: Any = None, known: Any = None) -> tuple[Any, Any, Any, Any]:
    """Read samples, targets and groups into memory, for what needs all at once; return X, y, modes and groups.

    ``known`` are the modes of the samples that a model was fitted to.
    """
    X, y, _, groups = with_groups(X, y, None, groups, known)
    source = None if is_named(X) else as_source(X, y, modes=known)
    if source is None:
        return *unnamed(X, y), groups
    _check_memory(source)
    samples, targets, _ = zip(*source.batches(), strict=True)
    return np.concatenate(samples), _concatenated(targets), source.modes, groups


def _concatenated(parts: Iterable[Any]) -> Any:
    """Put the targets, or the weights, of all blocks together; None where there are none."""
    arrays = list(parts)
    return None if any(part is None for part in arrays) else np.concatenate(arrays)


def size_of(source: Source) -> int | None:
    """Count the bytes of all samples, where the source knows it without reading them."""
    if source.n_samples is None or source.sample_shape is None or source.dtype is None:
        return None
    return source.n_samples * prod(source.sample_shape) * source.dtype.itemsize


def _check_memory(source: Source) -> None:
    """Refuse samples that are larger than the free memory, where their size is known."""
    size = size_of(source) or 0
    refuse(
        size > available_memory(),
        f"Expected samples that fit in the {available_memory() / 2**30:.3g} GiB of free memory, got {size / 2**30:.3g} GiB: "
        "take some of them.",
    )
