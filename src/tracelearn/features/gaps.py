"""Samples with gaps: tensors in which NaN stands for what was not measured, inside of a sample or beyond its end.

A sample ends after the last time at which any of its channels has a value, so samples of unequal length are one tensor, padded
with NaN. Nothing here changes a value that is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace, to_numpy

__all__ = ["by_length", "has_gaps", "interpolated", "lengths_of", "median_length", "resampled", "resampled_tensors"]


def has_gaps(T: Array) -> bool:
    """Tell whether any entry is NaN, in one pass without a mask where none is."""
    xp = array_namespace(T)
    with np.errstate(over="ignore", invalid="ignore"):
        if not math.isnan(float(xp.sum(T))):
            return False
    return bool(xp.any(xp.isnan(T)))  # the sum of two infinities is NaN, too


def lengths_of(T: Array, time: int) -> Array:
    """Find the length (n,) of each sample (n, I1, ..., IN): how many times, along mode ``time``, up to the last with a value."""
    channel_axes = tuple(axis for axis in range(1, T.ndim) if axis != time + 1)
    has_value = np.any(~np.isnan(to_numpy(T)), axis=channel_axes)
    from_end = np.argmax(has_value[:, ::-1], axis=1)
    return np.where(has_value.any(axis=1), has_value.shape[1] - from_end, 0)


def median_length(lengths: Array, weight: Array) -> float:
    """Find the median of lengths (n,) with weights (n,): samples of weight two count as two."""
    order = np.argsort(lengths)
    weight_so_far = np.cumsum(weight[order])
    half = weight_so_far[-1] / 2
    middle = [np.searchsorted(weight_so_far, half, side=side) for side in ("left", "right")]
    return float(np.mean(lengths[order][np.minimum(middle, len(order) - 1)]))


def by_length(T: Array, time: int) -> Iterator[tuple[Array, Array]]:
    """Yield the samples of each length that occurs: their index, and themselves as tensors of that many times."""
    lengths = lengths_of(T, time)
    for length in np.unique(lengths).tolist():
        index = np.flatnonzero(lengths == length)
        yield index, T[index][(slice(None),) * (time + 1) + (slice(length),)]


def resampled(signal: Array, length: int, n_times: int) -> Array:
    """Interpolate the first ``length`` times of a signal (times,) at ``n_times`` equal steps, from its first to its last time.

    Values that are missing are taken from the line between their neighbours, and at either end from the only one. With as many
    times as there were, values that are there stay exactly what they are. A signal without values stays so.
    """
    there = np.flatnonzero(~np.isnan(signal[:length]))
    if not len(there):
        return np.full(n_times, np.nan)
    steps = np.arange(n_times) if n_times == length else np.linspace(0.0, length - 1.0, n_times)
    return np.interp(steps, there, signal[there])


def interpolated(T: Array, time: int) -> Array:
    """Fill the gaps of tensors (n, I1, ..., IN) that all end at their last time along one mode; see ``resampled``."""
    signals = np.moveaxis(T, time + 1, -1)
    n_times = signals.shape[-1]
    filled = signals.copy()
    for place in np.argwhere(np.isnan(signals).any(axis=-1)):
        filled[tuple(place)] = resampled(signals[tuple(place)], n_times, n_times)
    return np.moveaxis(filled, -1, time + 1)


def resampled_tensors(values: Array, time: int, n_times: int) -> Array:
    """Bring tensors (n, I1, ..., IN) to one length; channels without any value stay NaN, and complete samples what they are."""
    lengths = lengths_of(values, time)
    signals = np.moveaxis(values, time + 1, -1)
    result = np.full((*signals.shape[:-1], n_times), np.nan)
    for i, length in enumerate(lengths.tolist()):
        if length == n_times and not np.isnan(signals[i, ..., :length]).any():
            result[i] = signals[i, ..., :length]
            continue
        for channel in np.ndindex(*signals.shape[1:-1]):
            result[(i, *channel)] = resampled(signals[(i, *channel)], length, n_times)
    return np.moveaxis(result, -1, time + 1)
