"""Targets, weights and groups by the names that they have in the file, the table or the epochs that samples come from."""

from __future__ import annotations

from math import prod
from typing import Any

from tracelearn.arrays.array_api import available_memory
from tracelearn.errors import InputError, refuse
from tracelearn.samples.modes import Modes, column_of_epochs, is_named, read_named, targets_of_named
from tracelearn.samples.source import Source, as_source, is_dask

__all__ = ["in_memory", "size_of", "with_groups", "with_targets"]


def with_groups(
    X: Any, y: Any, sample_weight: Any, groups: Any, modes_of_fit: Modes | None = None
) -> tuple[Any, Any, Any, Any]:
    """Look up groups that are given by a name; return X, y, sample weights and groups as ``fit`` takes them.

    A file or a table becomes a source, which brings its y and weights, and a column that names groups is no entry of samples.
    ``modes_of_fit`` are those of the samples that a model was fitted to, and say which columns are entries.
    """
    if not isinstance(groups, str):
        return X, y, sample_weight, groups
    if is_named(X):
        return X, y, sample_weight, column_of_epochs(X, groups)
    source = None if is_dask(X) else as_source(X, y, sample_weight, ignore=(groups,), modes_of_fit=modes_of_fit)
    if source is None or source.in_memory:
        raise InputError(
            f"Expected groups by a name only with a file, a table or epochs, in which it can be looked up, got {groups!r} with "
            f"{type(X).__name__}: pass one group for each sample."
        )
    return source, None, None, source.column(groups)


def with_targets(X: Any, y: Any, sample_weight: Any, modes_of_fit: Modes | None = None) -> tuple[Any, Any, Any]:
    """Read the targets and weights of samples in blocks, as ``score`` takes them; those of samples in memory stay as they are.

    Samples with names become arrays: their modes must be those of the model, and their targets come in their order.
    """
    if is_named(X):
        values, _ = read_named(X, modes_of_fit)
        return values, targets_of_named(X, y), sample_weight
    if is_dask(X):
        return X, y, sample_weight
    source = as_source(X, y, sample_weight, modes_of_fit=modes_of_fit)
    if source.in_memory:
        return source.arrays
    if not source.repeatable:
        source = as_source(list(source.batches()))
    return source, *source.all_targets()


def in_memory(
    X: Any, y: Any = None, groups: Any = None, modes_of_fit: Modes | None = None
) -> tuple[Any, Any, Any, Any]:
    """Read samples, targets and groups into memory, for what needs all at once; return X, y, modes and groups.

    ``modes_of_fit`` are those of the samples that a model was fitted to.
    """
    X, y, _, groups = with_groups(X, y, None, groups, modes_of_fit)
    if is_dask(X):
        return X, y, None, groups
    source = as_source(X, y, modes_of_fit=modes_of_fit)
    _check_memory(source)
    X, y, _ = source.loaded().arrays
    return X, y, source.modes, groups


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
