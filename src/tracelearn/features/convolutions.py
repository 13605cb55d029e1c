"""Convolutions: for how much of the time signals follow short waveforms, slow and fast ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from array_api_compat import device
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    as_dtype,
    move_to,
    to_numpy,
    to_single,
    widest,
)
from tracelearn.features.base import Summary, TensorTransformer, read_time_axis
from tracelearn.samples.checks import check_range
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["Convolutions"]

# All waveforms of nine points of which three are up and six down; each sums to zero, so that a level changes nothing.
_LENGTH, _UP = 9, 3
WAVEFORMS = np.array(
    [[2.0 if i in up else -1.0 for i in range(_LENGTH)] for up in itertools.combinations(range(_LENGTH), _UP)]
)

_MOST_TIMES = 255  # at which a convolution is looked at, in equal steps: a share needs no more, and counts are bytes

# Dilations and thresholds of one channel, and of several, which have more entries anyway.
_ONE, _SEVERAL = (12, 8), (8, 4)

_CACHED = 1 << 20  # numbers of convolutions at a time, which stay in cache

_DRAWN = 64  # samples, of which each threshold is taken from one
_STEPS = (
    10007.3  # of a standard deviation, in which shapes are compared: coarser than rounding, finer than samples differ
)

# Of the peak of a signal, by which its convolution is lowered, more than by rounding: a signal that rests is at the threshold of
# another that rests, and must not be above it by chance.
_LOWERED = 4e-6

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0  # multiples of it, less their integers, fill the unit interval evenly
_MIX = 0x9E3779B97F4A7C15  # 64 bits of it, an odd number: products with it change every bit


@dataclass(frozen=True, eq=False)
class Drawn(Summary):
    """Thresholds and the numbers that drew them, stacked along the last axis of ``mean``; of two the lower number stays."""

    def __add__(self, other: Summary) -> Drawn:
        (own, number), (theirs, other_number) = (np.moveaxis(part.mean, -1, 0) for part in (self, other))
        # Two signals of one number are alike: the lower threshold stays, whichever came first.
        stays = (number < other_number) | ((number == other_number) & (own <= theirs))
        mean = np.where(stays[..., None], self.mean, other.mean)
        return replace(self, weight=self.weight + other.weight, mean=mean)


class Convolutions(TensorTransformer):
    """Measure how much of the time signals follow each of many short waveforms, wherever they occur in the signal.

    Every channel is convolved with 84 fixed waveforms of nine points, which are stretched by several dilations. An entry is the
    share of times at which the result is above a threshold. A sample of channels × times becomes a matrix: a row for each
    channel and dilation, a column for each waveform and threshold. Waveforms, shares and thresholds are those of MiniRocket
    (Dempster, Schmidt and Webb, 2021): a threshold is a quantile of the convolution of one sample, so that samples of all sizes
    and kinds have thresholds of their own. Which sample that is follows from the samples themselves: each has a number,
    computed from the shape of its signals, and the lowest one is drawn. So nothing depends on chance, on the order of samples,
    on batches or on units, and thresholds of several blocks or sites can be joined.

    Parameters
    ----------
    time_axis : int or "auto", default=-1
        The mode of a sample that is time; "auto" lets ``find_time_axis`` choose. All other modes are channels.
    dilations : int or "auto", default="auto"
        Number of dilations at most: steps between the points of a waveform, from 1 to an eighth of the times, in equal ratios.
        "auto" is 12 for one channel and 8 for several.
    thresholds : int or "auto", default="auto"
        Number of thresholds of each waveform and dilation. "auto" is 8 for one channel and 4 for several.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    dilations_ : list of ints
    thresholds_ : array of shape (dilations, waveforms, channels, thresholds)
    draws_ : array of the shape of ``thresholds_``
        The numbers between 0 and 1 that drew them, 1 where no signal varies.
    time_axis_ : int
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    Beyond its ends a signal stays at its first and its last value.

    Examples
    --------
    Two classes with a short wave somewhere in the signal, which goes up and down in one and down and up in the other:

    >>> import numpy as np
    >>> from tracelearn import Convolutions, TraceNormClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(100, 1, 60)), np.repeat([0, 1], 50)
    >>> wave = np.sin(np.linspace(0, 2 * np.pi, 9))
    >>> for sample, label in zip(X, y):
    ...     at = rng.integers(50)
    ...     sample[0, at : at + 9] += 4 * wave * (1 if label else -1)
    >>> Z = Convolutions().fit_transform(X)
    >>> Z.shape
    (100, 7, 672)
    >>> accuracy = [TraceNormClassifier().fit(S[::2], y[::2]).score(S[1::2], y[1::2]) for S in (X, Z)]
    >>> accuracy[0] < 0.7, accuracy[1] > 0.9
    (True, True)
    """

    thresholds_: Array
    draws_: Array

    _keeps_layout = False

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "time_axis": [Integral, StrOptions({"auto"})],
        "dilations": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "thresholds": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "tensor_shape": ["array-like", None],
    }

    def __init__(
        self, time_axis: Any = -1, *, dilations: Any = "auto", thresholds: Any = "auto", tensor_shape: Any = None
    ) -> None:
        self.time_axis = time_axis
        self.dilations = dilations
        self.thresholds = thresholds
        self.tensor_shape = tensor_shape

    def _time(self) -> int:
        return read_time_axis(self.time_axis, self.sample_shape_)

    @property
    def _channels(self) -> int:
        return math.prod(self.sample_shape_) // self.sample_shape_[self._time()]

    def _steps(self) -> list[int]:
        """List the dilations: a waveform is at most as long as the signal."""
        auto = (_ONE if self._channels == 1 else _SEVERAL)[0]
        longest = max(1, (self.sample_shape_[self._time()] - 1) // (_LENGTH - 1))
        steps = np.geomspace(1, longest, auto if isinstance(self.dilations, str) else self.dilations)
        return sorted({round(float(step)) for step in steps})

    @property
    def _n_thresholds(self) -> int:
        auto = (_ONE if self._channels == 1 else _SEVERAL)[1]
        return auto if isinstance(self.thresholds, str) else int(self.thresholds)

    def _shape_out(self) -> tuple[int, ...]:
        return (self._channels * len(self._steps()), len(WAVEFORMS) * self._n_thresholds)

    def _row_size(self) -> int:
        return max(math.prod(self.sample_shape_), math.prod(self._shape_out()))

    def _signals(self, T: Array) -> Array:
        """Arrange samples as signals (channels, n, times), less their means over time; constant ones are exactly zero."""
        xp, time = array_namespace(T), self._time() + 1
        others = [axis for axis in range(1, T.ndim) if axis != time]
        T = xp.permute_dims(as_dtype(T, widest(T)["dtype"]), (*others, 0, time))
        T = xp.reshape(T, (-1, *T.shape[-2:]))
        T = T - T[..., :1]
        return T - xp.mean(T, axis=-1, keepdims=True)

    def _measure(self, T: Array, weight: Array) -> Summary:
        """Draw thresholds from a block of samples."""
        xp, signals = array_namespace(T), self._signals(T)
        power = xp.mean(signals**2, axis=-1)
        if not np.finfo(np.float64).tiny < float(xp.max(power)) < np.inf:
            check_range(T, "X")
        unit = xp.sqrt(xp.where(power > 0, power, xp.ones_like(power)))[..., None] / _STEPS
        shapes = xp.astype(xp.round(signals / unit), xp.int32)
        power, numbers = to_numpy(power), _numbers(to_numpy(shapes))
        numbers[:, power == 0] = 1.0  # (drawn, channels, samples)
        drawn = np.argmin(numbers, axis=-1) + power.shape[1] * np.arange(power.shape[0])  # among all signals
        rows = xp.asarray(drawn.ravel(), device=device(T))
        kept = to_numpy(xp.take(xp.reshape(signals, (-1, signals.shape[-1])), rows, axis=0))
        kept = kept.reshape(*drawn.shape, -1)
        count = (len(self._steps()), len(WAVEFORMS), self._n_thresholds)
        place = np.arange(math.prod(count)).reshape(count)
        found = []
        for step, own in zip(self._steps(), place, strict=True):
            found.append(_quantiles(kept, step, own % _DRAWN, _GOLDEN * (own + 0.5) % 1.0))
        least = np.min(numbers, axis=-1)[place % _DRAWN]
        mean = np.moveaxis(np.stack([np.stack(found), least], axis=-1), 3, 2)
        return Drawn(float(array_namespace(weight).sum(weight)), mean, [])

    def _known(self) -> tuple[Array, list[Array]]:
        return np.stack([self.thresholds_, self.draws_], axis=-1), []

    def _keep(self, summary: Summary) -> None:
        self.time_axis_, self.dilations_ = self._time(), self._steps()
        shape = (len(self.dilations_), len(WAVEFORMS), self._channels, self._n_thresholds)
        self.thresholds_, self.draws_ = np.moveaxis(summary.mean.reshape(*shape, 2), -1, 0)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read what was saved; thresholds of before samples were drawn give way to any that are."""
        super().__setstate__(state)
        if "thresholds_" in state and "draws_" not in state:
            self.draws_ = np.ones_like(self.thresholds_)

    def _map(self, T: Array) -> Array:
        n, rows = T.shape[0], max(1, _CACHED // (len(WAVEFORMS) * math.prod(self.sample_shape_)))
        parts = [self._shares(T[start : min(n, start + rows), ...]) for start in range(0, n, rows)]
        return array_namespace(T).concat(parts)

    def _shares(self, T: Array) -> Array:
        """Find the shares of some samples, few enough for their convolutions to stay in cache."""
        xp, signals = array_namespace(T), self._signals(T)
        wide, size = signals.dtype, np.max(np.abs(self.thresholds_), axis=(0, 1, 3))
        size = np.where(size > 0, size, 1.0)
        # Signals of about one are compared in single precision, which takes half the time.
        signals = to_single(signals / move_to(size[:, None, None], signals, wide))
        lowered = np.concatenate([WAVEFORMS, np.full((len(WAVEFORMS), 1), -_LOWERED)], axis=1)
        waveforms = xp.asarray(lowered, dtype=signals.dtype, device=device(signals))
        peaks, found = xp.max(xp.abs(signals), axis=-1, keepdims=True), []
        for step, thresholds in zip(self.dilations_, self.thresholds_, strict=True):
            seen = _points(signals, step)
            points = xp.stack([*seen, xp.broadcast_to(peaks, seen[0].shape)])
            response = xp.reshape(waveforms @ xp.reshape(points, (_LENGTH + 1, -1)), (-1, *seen[0].shape))
            levels = move_to((thresholds / size[:, None])[:, :, None, None, :], signals, signals.dtype)
            above = [xp.astype(response > levels[..., q], xp.uint8) for q in range(self._n_thresholds)]
            counts = xp.stack([xp.sum(one, axis=-1, dtype=xp.uint8) for one in above], axis=-1)  # of at most 255
            found.append(xp.astype(counts, wide) / response.shape[-1])  # (waveforms, channels, n, thresholds)
        return xp.reshape(xp.permute_dims(xp.stack(found), (3, 2, 0, 1, 4)), (T.shape[0], *self._shape_out()))

    def entry_names(self, names: Sequence[Any] | None = None) -> tuple[list[str], list[str]]:
        """Name the rows and the columns of a transformed sample; a waveform is up at each ``+``.

        Parameters
        ----------
        names : one for each channel, default=None
            None: their places.

        Examples
        --------
        >>> import numpy as np
        >>> from tracelearn import Convolutions
        >>> view = Convolutions().fit(np.random.default_rng(0).normal(size=(9, 2, 30)))
        >>> rows, columns = view.entry_names(["C3", "C4"])
        >>> rows[2:4], columns[:2]
        (['C3, step 3', 'C4, step 1'], ['+++------ above 1', '+++------ above 2'])
        """
        check_is_fitted(self)
        channels = range(self._channels) if names is None else names
        waveforms = ["".join("+" if point > 0 else "-" for point in waveform) for waveform in WAVEFORMS]
        rows = [f"{channel}, step {step}" for channel in channels for step in self.dilations_]
        return rows, [f"{waveform} above {q + 1}" for waveform in waveforms for q in range(self._n_thresholds)]


def _points(signals: Array, step: int) -> list[Array]:
    """List what the nine points of a waveform see of signals (..., times), at every time or in equal steps of time."""
    xp, times, reach = array_namespace(signals), signals.shape[-1], step * (_LENGTH // 2)
    ends = [xp.broadcast_to(end, (*signals.shape[:-1], reach)) for end in (signals[..., :1], signals[..., -1:])]
    padded = xp.concat([ends[0], signals, ends[1]], axis=-1)
    return [padded[..., i * step : i * step + times : -(-times // _MOST_TIMES)] for i in range(_LENGTH)]


def _quantiles(kept: Array, step: int, drawn: Array, shares: Array) -> Array:
    """Find quantiles (waveforms, thresholds, channels) of convolutions of signals (D, channels, times).

    Parameters
    ----------
    step : the dilation
    drawn : array (waveforms, thresholds), whose convolution each is of
    shares : array (waveforms, thresholds), which quantile each is
    """
    response: Any = 0.0
    for point, seen in zip(WAVEFORMS.T, _points(kept, step), strict=True):
        response = response + point[:, None, None, None] * seen[drawn]
    response = np.sort(response, axis=-1)
    at = shares * (response.shape[-1] - 1)
    first = np.floor(at).astype(int)[:, :, None, None]
    last = np.minimum(first + 1, response.shape[-1] - 1)
    low, high = (np.take_along_axis(response, i, axis=-1)[..., 0] for i in (first, last))
    return low + (at % 1.0)[:, :, None] * (high - low)


def _numbers(shapes: Array) -> Array:
    """Give signals (channels, n, times) of integers a number in [0, 1) for each draw, (D, channels, n), that they determine."""
    words = np.ascontiguousarray(np.pad(shapes.astype("<i4"), ((0, 0), (0, 0), (0, -shapes.shape[-1] % 2)))).view("<u8")
    mix, half = np.uint64(_MIX), np.uint64(32)
    found = np.sum(words * np.cumprod(np.full(words.shape[-1], mix)), axis=-1)
    found = (found ^ (found >> half)) * mix
    found = found ^ (np.arange(_DRAWN, dtype=np.uint64) * mix)[:, None, None]
    found = (found ^ (found >> half)) * mix
    return (found >> np.uint64(11)) * 2.0**-53
