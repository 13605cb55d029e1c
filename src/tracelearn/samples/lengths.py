"""Samples of unequal length: read from lists and other containers as one array, padded with NaN.

Containers are recognised by what they have, so that none of their libraries is imported: nested data frames and frames with an
index of two levels, as sktime has them, arrays of awkward, and lists of pyarrow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array
from tracelearn.errors import InputError

__all__ = ["Padded", "padded"]


@dataclass(frozen=True, eq=False)
class Padded:
    """Samples as one array, and the mode along which they were padded with NaN; None where they came in one length."""

    values: Any
    time: int | None = None


def padded(X: Any, known_shape: tuple[int, ...] | None = None, n_targets: int | None = None) -> Padded:
    """Read samples of unequal length from a list of arrays, or another container, as one array (n, I1, ..., IN).

    The one mode whose size differs is time. Series of one channel, of shape (times,), become samples of shape (1, times). Any
    other X is returned as it is, also a list of tuples, which holds batches and not samples.

    Parameters
    ----------
    X : samples of any kind
    known_shape : that of the samples of ``fit``, which tells series of one channel from flat samples
    n_targets : how many targets there are, which tells a frame with a row for each time from one with a row for each sample

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.samples.lengths import padded
    >>> series = padded([np.ones((2, 3)), np.ones((2, 5))])
    >>> series.values.shape, series.time, series.values[0, 0]
    ((2, 2, 5), 1, array([ 1.,  1.,  1., nan, nan]))
    """
    if getattr(getattr(X, "index", None), "nlevels", 1) == 2 and _is_long(X, known_shape, n_targets):
        X = _of_long_frame(X)
    elif _is_nested_frame(X):
        X = [_stacked([np.asarray(cell, dtype=float) for cell in row]) for row in X.itertuples(index=False)]
    elif _is_nested_list(X):
        X = X.tolist() if hasattr(X, "tolist") else X.to_pylist()
        X = [np.asarray(sample, dtype=float) for sample in X] if np.ndim(X[0]) else X
    samples = _arrays(X)
    if samples is None:
        return Padded(X)
    are_series = all(sample.ndim == 1 for sample in samples)
    if len({sample.shape for sample in samples}) > 1:
        return _padded_to_longest([sample[None] for sample in samples] if are_series else samples)
    if are_series and known_shape is not None and len(known_shape) == 2 and known_shape[0] == 1:
        return Padded(np.stack(samples)[:, None])
    return Padded(X)


def _is_long(frame: Any, known_shape: tuple[int, ...] | None, n_targets: int | None) -> bool:
    """Tell whether a data frame has a row for each sample and time, and a column for each channel."""
    if getattr(frame.columns, "nlevels", 1) > 1:
        return False
    if n_targets is not None:
        return n_targets == len(frame.index.unique(0)) != len(frame)
    is_flat = known_shape is None or len(frame.columns) == math.prod(known_shape)
    return not is_flat and len(frame.columns) == known_shape[0]  # type: ignore[index] # it is flat without a shape


def _of_long_frame(frame: Any) -> list[Array]:
    """Cut a data frame into samples (channels, times), in the order of their first rows."""
    codes, _ = frame.index.droplevel(1).factorize()
    order = np.argsort(codes, kind="stable")
    values = frame.to_numpy(dtype=float)[order]
    return [rows.T for rows in np.split(values, np.cumsum(np.bincount(codes))[:-1])]


def _is_nested_frame(X: Any) -> bool:
    """Tell whether the cells of a data frame are series."""
    if not hasattr(X, "itertuples") or not len(X):
        return False
    return all(np.ndim(cell) == 1 and not isinstance(cell, str) for cell in next(X.itertuples(index=False)))


def _is_nested_list(X: Any) -> bool:
    """Tell whether samples are lists of awkward or pyarrow; tables and streams of pyarrow hold columns."""
    library = type(X).__module__.partition(".")[0]
    return (library == "awkward" and hasattr(X, "tolist")) or (
        library == "pyarrow" and hasattr(X, "to_pylist") and not hasattr(X, "columns")
    )


def _stacked(signals: list[Array]) -> Array:
    """Put signals of one sample side by side, those that end early padded with NaN."""
    sample = np.full((len(signals), max(map(len, signals))), np.nan)
    for row, signal in zip(sample, signals, strict=True):
        row[: len(signal)] = signal
    return sample


def _arrays(X: Any) -> list[Array] | None:
    """Return the arrays of a list, or of an object array, each of which is a sample; None for all else.

    A sample may be a list of channels, but not one of numbers: rows of unequal length are rather a mistake.
    """
    if not (isinstance(X, list) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1)) or not len(X):
        return None
    samples = []
    for sample in X:
        is_list = isinstance(sample, list) and bool(sample) and isinstance(sample[0], list | np.ndarray)
        if not (is_list or isinstance(sample, np.ndarray)):
            return None
        try:
            samples.append(np.asarray(sample))
        except ValueError:  # channels of unequal length
            return None
    return samples if all(sample.dtype.kind in "fiub" and sample.ndim > 0 for sample in samples) else None


def _padded_to_longest(samples: list[Array]) -> Padded:
    """Pad arrays that differ in the size of one mode; name the first that differs in another."""
    first = samples[0].shape
    orders = [sample.ndim for sample in samples]
    if len(set(orders)) > 1:
        other = next(i for i, order in enumerate(orders) if order != orders[0])
        raise InputError(
            f"Expected samples of as many modes, got shape {first} of sample 0 and {samples[other].shape} of sample {other}: "
            "bring all into the form channels × times."
        )
    sizes = np.array([sample.shape for sample in samples])
    differing = np.flatnonzero(np.any(sizes != sizes[0], axis=0))
    time = int(differing[0]) if len(differing) == 1 else len(first) - 1
    fixed = np.delete(sizes, time, axis=1)
    odd = np.flatnonzero(np.any(fixed != fixed[0], axis=1))
    if len(odd):
        raise InputError(
            f"Expected samples that differ in the size of one mode, time, got shape {first} of sample 0 and "
            f"{samples[odd[0]].shape} of sample {odd[0]}: select the same channels of all."
        )
    shape = tuple(int(size) for size in sizes.max(axis=0))
    dtype = np.result_type(np.float32, *{sample.dtype for sample in samples})
    values = np.full((len(samples), *shape), np.nan, dtype=dtype)
    for row, sample in zip(values, samples, strict=True):
        row[tuple(slice(size) for size in sample.shape)] = sample
    return Padded(values, time)
