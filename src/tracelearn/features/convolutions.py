"""Convolutions: for how much of the time signals, and pairs of them, follow short waveforms, slow and fast ones."""

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
from tracelearn.features.base import Summary, TensorTransformer, read_time_axis, sample_numbers, sized
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

_APART = 9  # channels, of which a pair is at most one less apart

_CACHED = 1 << 20  # numbers of convolutions at a time, which stay in cache

_DRAWN = 64  # samples, of which each threshold is taken from one

_ROUNDING = 8.0 * float(np.finfo(np.float64).eps)  # of its level: a signal that varies by no more is at rest
_CANCELLED = 1e-6  # of their size: two signals that leave no more of each other leave nothing

# Of the peak of a signal, by which its convolution is lowered, more than by rounding: a signal that rests is at the threshold of
# another that rests, and must not be above it by chance.
_LOWERED = 4e-6

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0  # multiples of it, less their integers, fill the unit interval evenly


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

    Channels are convolved with 84 fixed waveforms of nine points, which are stretched by several dilations. An entry is the
    share of times at which the result is above a threshold. A sample of channels × times becomes a matrix: a row for each
    channel and dilation, a column for each waveform and threshold. With several channels half of the waveforms or more look at
    two of them: a channel plus or minus the one that comes so many places later, which is made as large as the first. So
    entries say how channels move together.

    Waveforms, shares and thresholds are those of MiniRocket (Dempster, Schmidt and Webb, 2021): a threshold is a quantile of
    the convolution of one sample, so that samples of all sizes and kinds have thresholds of their own. Which sample that is
    follows from the samples themselves: each has a number, computed from the shape of its signals, and the lowest one is drawn.
    So nothing depends on chance, on the order of samples, on batches or on units, and thresholds of several blocks or sites can
    be joined.

    Parameters
    ----------
    time_axis : int or "auto", default=-1
        The mode of a sample that is time; "auto" lets ``find_time_axis`` choose. All other modes are channels.
    dilations : int or "auto", default="auto"
        Number of dilations at most: steps between the points of a waveform, from 1 to an eighth of the times, in equal ratios.
        "auto" is 12 for one channel and 8 for several.
    thresholds : int or "auto", default="auto"
        Number of thresholds of each waveform and dilation. "auto" is 8 for one channel and 4 for several.
    n_entries : int, default=None
        Where samples are many: at most so many entries of a transformed sample, by fewer thresholds and then fewer dilations of
        those that are "auto". None: up to 8,064 with one channel, 2,688 for each of several.
    pairs : bool, default=True
        Whether waveforms look at two channels as well: one and another, up to eight places later and counted in a circle, which
        is added or subtracted by turns. False: each at one.
    average : bool, default=False
        Whether the mean of all channels is looked at instead of each: where channels are many and much alike, as pixels of a
        patch, whose spectra are then one.
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
        "n_entries": [Interval(Integral, 1, None, closed="left"), None],
        "pairs": ["boolean"],
        "average": ["boolean"],
        "tensor_shape": ["array-like", None],
    }

    def __init__(
        self,
        time_axis: Any = -1,
        *,
        dilations: Any = "auto",
        thresholds: Any = "auto",
        n_entries: int | None = None,
        pairs: bool = True,
        average: bool = False,
        tensor_shape: Any = None,
    ) -> None:
        self.time_axis = time_axis
        self.dilations = dilations
        self.thresholds = thresholds
        self.n_entries = n_entries
        self.pairs = pairs
        self.average = average
        self.tensor_shape = tensor_shape

    def _time(self) -> int:
        return read_time_axis(self.time_axis, self.sample_shape_)

    @property
    def _channels(self) -> int:
        """Count the signals that are looked at."""
        return 1 if self.average else math.prod(self.sample_shape_) // self.sample_shape_[self._time()]

    @property
    def _auto(self) -> tuple[int, int]:
        """Count dilations and thresholds of each waveform where nothing else is asked for."""
        dilations, thresholds = _ONE if self._channels == 1 else _SEVERAL
        most = math.inf if self.n_entries is None else self.n_entries // (len(WAVEFORMS) * self._channels)
        thresholds = int(max(1, min(thresholds, most // _SEVERAL[0])))
        return int(max(1, min(dilations, most // thresholds))), thresholds

    def _steps(self) -> list[int]:
        """List the dilations: a waveform is at most as long as the signal."""
        longest = max(1, (self.sample_shape_[self._time()] - 1) // (_LENGTH - 1))
        steps = np.geomspace(1, longest, self._auto[0] if isinstance(self.dilations, str) else self.dilations)
        return sorted({round(float(step)) for step in steps})

    @property
    def _n_thresholds(self) -> int:
        return self._auto[1] if isinstance(self.thresholds, str) else int(self.thresholds)

    def _shape_out(self) -> tuple[int, ...]:
        return (self._channels * len(self._steps()), len(WAVEFORMS) * self._n_thresholds)

    def _pairs(self) -> Array:
        """List for each waveform how many channels later its second one is, and what that is multiplied by, 0, 1 or -1."""
        turns, later = np.divmod(np.arange(len(WAVEFORMS)), min(self._channels, _APART) if self.pairs else 1)
        return np.stack([later, np.sign(later) * (1 - 2 * (turns % 2))], axis=1)

    def _quantile_places(self) -> Array:
        """List which quantile each threshold is, (dilations, waveforms, thresholds)."""
        count = (len(self._steps()), len(WAVEFORMS), self._n_thresholds)
        return _GOLDEN * (np.arange(math.prod(count)).reshape(count) + 0.5) % 1.0

    def _row_size(self) -> int:
        return max(math.prod(self.sample_shape_), math.prod(self._shape_out()))

    def _signals(self, T: Array) -> Array:
        """Arrange samples as signals (channels, n, times), less their means over time; constant ones are exactly zero.

        Their average, if that is asked for, is one signal; what cancels but for rounding is exactly zero, too.
        """
        xp, time = array_namespace(T), self._time() + 1
        others = [axis for axis in range(1, T.ndim) if axis != time]
        T = xp.permute_dims(as_dtype(T, widest(T)["dtype"]), (*others, 0, time))
        T = xp.reshape(T, (-1, *T.shape[-2:]))
        first, T = T[..., :1], T - T[..., :1]
        # Rounding of a level is no signal: in a pair it would be made as large as the other.
        rests = xp.max(xp.abs(T), axis=-1, keepdims=True) <= _ROUNDING * xp.abs(first)
        T = xp.where(rests, xp.zeros_like(T), T)
        T = T - xp.mean(T, axis=-1, keepdims=True)
        if not self.average:
            return T
        common = xp.mean(T, axis=0, keepdims=True)
        size = xp.mean(T**2, axis=(0, 2), keepdims=True)
        stays = xp.mean(common**2, axis=-1, keepdims=True) > _CANCELLED**2 * size
        return xp.where(stays, common, xp.zeros_like(common))

    def _measure(self, T: Array, weight: Array) -> Summary:
        """Draw thresholds from a block of samples."""
        xp, (units, sizes) = array_namespace(T), sized(self._signals(T))
        if not np.finfo(np.float64).tiny < float(xp.max(sizes)) ** 2 < np.inf:
            check_range(T, "X")
        sizes = to_numpy(sizes)[..., 0]
        numbers = np.where(sizes == 0, 1.0, sample_numbers(units, _DRAWN)[:, None, :])  # (drawn, channels, samples)
        least = np.min(numbers, axis=-1)
        # Samples of one shape have one number: their sizes may differ, and the lowest threshold stays.
        tied = numbers == least[..., None]
        smallest, largest = np.min(np.where(tied, sizes, np.inf), axis=-1), np.max(np.where(tied, sizes, 0.0), axis=-1)
        rows, drawn = np.unique(np.argmin(numbers, axis=-1), return_inverse=True)
        drawn, channels = drawn.reshape(_DRAWN, -1), np.arange(len(sizes))
        kept = to_numpy(xp.take(units, xp.asarray(rows, device=device(T)), axis=1))
        places, pairs = self._quantile_places(), self._pairs()[..., None, None]
        draws = np.arange(places.size).reshape(places.shape) % _DRAWN
        found, some = np.empty((*places.shape, len(sizes))), max(1, _CACHED // (kept[:, 0].size * places.shape[-1]))
        for d, start in itertools.product(range(len(places)), range(0, len(WAVEFORMS), some)):
            few = slice(start, start + some)  # waveforms at a time, whose signals stay in cache
            own, later, sign = draws[d, few], pairs[few, 0], pairs[few, 1, ..., None]
            at = drawn[own]  # (waveforms, thresholds, channels), which sample
            seen = _joined(kept[channels, at], kept[(channels + later) % len(channels), at], sign)
            level = _quantiles(seen, WAVEFORMS[few], self._steps()[d], places[d, few])
            found[d, few] = level * np.where(level > 0, smallest[own], largest[own])
        mean = np.moveaxis(np.stack([found, least[draws]], axis=-1), 3, 2)
        return Drawn(float(array_namespace(weight).sum(weight)), mean, [])

    def _known(self) -> tuple[Array, list[Array]]:
        return np.stack([self.thresholds_, self.draws_], axis=-1), []

    def _keep(self, summary: Summary) -> None:
        self.time_axis_, self.dilations_ = self._time(), self._steps()
        shape = (len(self.dilations_), len(WAVEFORMS), self._channels, self._n_thresholds)
        self.thresholds_, self.draws_ = np.moveaxis(summary.mean.reshape(*shape, 2), -1, 0)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read what was saved, also before there were pairs, and before samples were drawn."""
        super().__setstate__({"pairs": False, "n_entries": None, "average": False} | state)
        if "thresholds_" in state and "draws_" not in state:
            self.draws_ = np.ones_like(self.thresholds_)

    def _map(self, T: Array) -> Array:
        largest = max(_LENGTH + 1, int(np.max(np.unique(self._pairs(), axis=0, return_counts=True)[1])))
        n, rows = T.shape[0], max(1, _CACHED // (largest * math.prod(self.sample_shape_)))
        parts = [self._shares(T[start : min(n, start + rows), ...]) for start in range(0, n, rows)]
        return array_namespace(T).concat(parts)

    def _shares(self, T: Array) -> Array:
        """Find the shares of some samples, few enough for their convolutions to stay in cache."""
        xp, signals = array_namespace(T), self._signals(T)
        units, sizes = sized(signals)
        unit = np.max(np.abs(self.thresholds_), axis=(0, 1, 3))[:, None]
        unit, found = np.where(unit > 0, unit, 1.0), []
        pairs, which = np.unique(self._pairs(), axis=0, return_inverse=True)
        which = which.ravel()  # of the pairs each waveform looks at
        for pair, (later, sign) in enumerate(pairs.tolist()):
            seen = sizes * _joined(units, xp.roll(units, -later, axis=0), sign) if sign else signals
            # Signals of about one are compared in single precision, which takes half the time.
            seen = to_single(seen / move_to(unit[..., None], seen, seen.dtype))
            found.append(self._above(seen, WAVEFORMS[which == pair], self.thresholds_[:, which == pair] / unit))
        back = np.argsort(np.argsort(which, kind="stable"))
        shares = xp.take(xp.concat(found, axis=1), xp.asarray(back, device=device(T)), axis=1)
        return xp.reshape(xp.permute_dims(shares, (3, 2, 0, 1, 4)), (T.shape[0], *self._shape_out()))

    def _above(self, signals: Array, waveforms: Array, thresholds: Array) -> Array:
        """Find the shares of times above thresholds: (dilations, waveforms, channels, n, thresholds)."""
        xp, found = array_namespace(signals), []
        lowered = np.concatenate([waveforms, np.full((len(waveforms), 1), -_LOWERED)], axis=1)
        waveforms = move_to(lowered, signals, signals.dtype)
        peaks = xp.max(xp.abs(signals), axis=-1, keepdims=True)
        levels = move_to(thresholds, signals, signals.dtype)
        for d, step in enumerate(self.dilations_):
            seen = _points(signals, step)
            points = xp.stack([*seen, xp.broadcast_to(peaks, seen[0].shape)])
            response = xp.reshape(waveforms @ xp.reshape(points, (_LENGTH + 1, -1)), (-1, *seen[0].shape))
            above = [xp.astype(response > levels[d, :, :, None, None, q], xp.uint8) for q in range(levels.shape[-1])]
            counts = xp.stack([xp.sum(one, axis=-1, dtype=xp.uint8) for one in above], axis=-1)  # of at most 255
            found.append(xp.astype(counts, widest(signals)["dtype"]) / response.shape[-1])
        return xp.stack(found)

    def entry_names(self, names: Sequence[Any] | None = None) -> tuple[list[str], list[str]]:
        """Name the rows and the columns of a transformed sample; a waveform is up at each ``+``.

        A column with "-2" looks at the channel of its row less the second channel after it, counted in a circle; channels of
        several modes are in C order.

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
        >>> columns[4], columns[12]
        ('++-+----- +1 above 1', '++---+--- -1 above 1')
        """
        check_is_fitted(self)
        channels = range(self._channels) if names is None else names
        channels = ["mean"] if self.average else channels
        rows = [f"{channel}, step {step}" for channel in channels for step in self.dilations_]
        columns = []
        for waveform, (later, sign) in zip(WAVEFORMS, self._pairs().tolist(), strict=True):
            name = "".join("+" if point > 0 else "-" for point in waveform)
            name += f" {'+' if sign > 0 else '-'}{later}" if sign else ""
            columns += [f"{name} above {q + 1}" for q in range(self._n_thresholds)]
        return rows, columns


def _points(signals: Array, step: int) -> list[Array]:
    """List what the nine points of a waveform see of signals (..., times), at every time or in equal steps of time."""
    xp, times, reach = array_namespace(signals), signals.shape[-1], step * (_LENGTH // 2)
    ends = [xp.broadcast_to(end, (*signals.shape[:-1], reach)) for end in (signals[..., :1], signals[..., -1:])]
    padded = xp.concat([ends[0], signals, ends[1]], axis=-1)
    return [padded[..., i * step : i * step + times : -(-times // _MOST_TIMES)] for i in range(_LENGTH)]


def _joined(first: Array, second: Array, sign: Any) -> Array:
    """Add or subtract signals of root mean square one; what cancels but for rounding is exactly zero."""
    xp, both = array_namespace(first), first + sign * second
    return xp.where(xp.mean(both**2, axis=-1, keepdims=True) > _CANCELLED**2, both, xp.zeros_like(both))


def _quantiles(signals: Array, waveforms: Array, step: int, shares: Array) -> Array:
    """Find a quantile of the convolution of each of some signals (waveforms, thresholds, channels, times).

    Parameters
    ----------
    step : the dilation
    shares : array (waveforms, thresholds), which quantile each is
    """
    response: Any = 0.0
    for point, seen in zip(waveforms.T, _points(signals, step), strict=True):
        response = response + point[:, None, None, None] * seen
    response = np.sort(response, axis=-1)
    at = shares * (response.shape[-1] - 1)
    first = np.floor(at).astype(int)[:, :, None, None]
    last = np.minimum(first + 1, response.shape[-1] - 1)
    low, high = (np.take_along_axis(response, i, axis=-1)[..., 0] for i in (first, last))
    return low + (at % 1.0)[:, :, None] * (high - low)
