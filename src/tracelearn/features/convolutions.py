"""Convolutions: for how much of the time signals follow short waveforms, slow and fast ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from array_api_compat import device
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, move_to, to_single, widest
from tracelearn.features.base import Summary, TensorTransformer, read_time_axis, summarise
from tracelearn.samples.checks import check_range
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["Convolutions"]

# All waveforms of nine points of which three are up and six down; each sums to zero, so that a level changes nothing.
_LENGTH, _UP = 9, 3
WAVEFORMS = np.array(
    [[2.0 if i in up else -1.0 for i in range(_LENGTH)] for up in itertools.combinations(range(_LENGTH), _UP)]
)

# The power of a convolution is a sum over lags of these and the autocovariance of the signal.
_LAGGED = np.array([[(1 + (lag > 0)) * w[lag:] @ w[: _LENGTH - lag] for lag in range(_LENGTH)] for w in WAVEFORMS])

_MOST_TIMES = 255  # at which a convolution is looked at, in equal steps: a share needs no more, and counts are bytes

# Dilations and thresholds of one channel, and of several, which have more entries anyway.
_ONE, _SEVERAL = (12, 8), (8, 4)

# Sizes are spread by at most this standard deviation of their logarithm: one that is rounding error does not count as a size.
_WIDEST = 3.0

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0  # multiples of it, less their integers, fill the unit interval evenly


class Convolutions(TensorTransformer):
    """Measure how much of the time signals follow each of many short waveforms, wherever they occur in the signal.

    Every channel is convolved with 84 fixed waveforms of nine points, which are stretched by several dilations. An entry is the
    share of times at which the result is above a threshold. A sample of channels × times becomes a matrix: a row for each
    channel and dilation, a column for each waveform and threshold. Waveforms and shares are those of MiniRocket (Dempster,
    Schmidt and Webb, 2021). Thresholds are multiples of the typical size of each convolution instead of values drawn from
    some samples: nothing is drawn, units do not matter, and what is learned, autocovariances and sizes of channels, adds up.
    If samples differ in size, so do the thresholds, so that small samples can be distinguished too. For signals of one
    channel every second waveform has smaller multiples, for signals that rest most of the time and then jump.

    Parameters
    ----------
    time_axis : int or "auto", default=-1
        The mode of a sample that is time; "auto" lets ``find_time_axis`` choose. All other modes are channels.
    dilations : int or "auto", default="auto"
        Number of dilations at most: steps between the points of a waveform, from 1 to an eighth of the times, in equal ratios.
        "auto" is 12 for one channel and 8 for several.
    thresholds : int or "auto", default="auto"
        Number of thresholds: quantiles of a normal distribution, times the root of the mean power of the convolution, times
        a quantile of the sizes of samples relative to the root of their mean power, another one for each. For one channel
        those of every second waveform are times their own size as well, relative to the largest.
        "auto" is 8 for one channel and 4 for several.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    autocovariances_ : array of shape (channels, dilations, 9)
        Of every channel about its mean over time, at lags from 0 to 8 times each dilation, averaged over samples.
    log_sizes_ : array of shape (channels, 3)
        The share of samples in which a channel varies; the logarithm of its standard deviation over time, and its square, zero
        where it does not vary, averaged over samples.
    dilations_ : list of ints
    thresholds_ : array of shape (dilations, waveforms, channels, thresholds)
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

    autocovariances_: Array
    log_sizes_: Array
    thresholds_: Array

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
        return 2 * len(WAVEFORMS) * math.prod(self.sample_shape_)  # an eighth of what fits: convolutions stay in cache

    def _signals(self, T: Array) -> Array:
        """Arrange samples as signals (channels, n, times), less their means over time; constant ones are exactly zero."""
        xp, time = array_namespace(T), self._time() + 1
        others = [axis for axis in range(1, T.ndim) if axis != time]
        T = xp.permute_dims(as_dtype(T, widest(T)["dtype"]), (*others, 0, time))
        T = xp.reshape(T, (-1, *T.shape[-2:]))
        T = T - T[..., :1]
        return T - xp.mean(T, axis=-1, keepdims=True)

    def _measure(self, T: Array, weight: Array) -> Summary:
        """Summarise the autocovariances and the sizes of every sample, (n, channels, 9 dilations + 3)."""
        xp, signals = array_namespace(T), self._signals(T)
        times = signals.shape[-1]
        lags = [[lag * step for lag in range(_LENGTH)] for step in self._steps()]
        found = {
            lag: xp.sum(signals[..., lag:] * signals[..., : times - lag], axis=-1) / times
            for lag in {0}.union(*lags)
            if lag < times
        }
        if not np.finfo(np.float64).tiny < float(xp.max(found[0])) < np.inf:
            check_range(T, "X")
        none = xp.zeros_like(found[0])
        rows = xp.stack([xp.stack([found.get(lag, none) for lag in own], axis=-1) for own in lags], axis=-2)
        varies = found[0] > 0
        log = 0.5 * xp.log(xp.where(varies, found[0], xp.ones_like(none)))
        sizes = xp.stack([xp.astype(varies, log.dtype), log, log**2], axis=-1)
        rows = xp.concat([xp.reshape(rows, (*none.shape, -1)), sizes], axis=-1)
        return summarise(xp.permute_dims(rows, (1, 0, 2)), weight)

    def _known(self) -> tuple[Array, list[Array]]:
        if not hasattr(self, "log_sizes_"):  # of a file from before sizes were learned: all samples had one
            power = self.autocovariances_[:, 0, 0]
            log = 0.5 * np.log(np.where(power > 0, power, 1.0))
            self.log_sizes_ = np.stack([power > 0, log, log**2], axis=-1)
        channels = len(self.log_sizes_)
        return np.concatenate([self.autocovariances_.reshape(channels, -1), self.log_sizes_], axis=1), []

    def _keep(self, summary: Summary) -> None:
        self.time_axis_, self.dilations_ = self._time(), self._steps()
        self.autocovariances_ = summary.mean[:, :-3].reshape(-1, len(self.dilations_), _LENGTH)
        self.log_sizes_ = summary.mean[:, -3:]
        power = np.clip(self.autocovariances_ @ _LAGGED.T, 0.0, None)  # (channels, dilations, waveforms)
        normal = ndtri((np.arange(self._n_thresholds) + 0.5) / self._n_thresholds)
        small = normal * np.abs(normal) / max(normal[-1], np.finfo(np.float64).tiny)
        second = (np.arange(len(WAVEFORMS)) % 2 == 1) & (self._channels == 1)
        places = np.where(second[:, None, None], small, normal)
        self.thresholds_ = np.moveaxis(np.sqrt(power), 0, -1)[..., None] * places * self._spread()

    def _spread(self) -> Array:
        """Spread thresholds as a log-normal distribution of the sizes of samples, relative to the root of their mean power.

        An array (dilations, waveforms, channels, thresholds), all 1 where samples have one size.
        """
        share, mean, square = np.where(self.log_sizes_[:, :1] > 0, self.log_sizes_, [1.0, 0.0, 0.0]).T
        middle = mean / share
        deviation = np.clip(np.sqrt(np.clip(square / share - middle**2, 0.0, None)), None, _WIDEST)
        largest = self.autocovariances_[:, 0, 0] / share
        middle = np.where(largest > 0, middle - 0.5 * np.log(np.where(largest > 0, largest, 1.0)), 0.0)
        count = len(self.dilations_), len(WAVEFORMS), 1, self._n_thresholds
        place = ndtri((_GOLDEN * (np.arange(math.prod(count)) + 0.5) % 1.0).reshape(count))
        return np.exp(middle[:, None] + deviation[:, None] * place)

    def _map(self, T: Array) -> Array:
        xp, signals = array_namespace(T), self._signals(T)
        channels, n, times = signals.shape
        wide, size = signals.dtype, np.sqrt(self.autocovariances_[:, 0, 0])
        size = np.where(size > 0, size, 1.0)
        # Signals of about one are compared in single precision, which takes half the time.
        signals = to_single(signals / move_to(size[:, None, None], signals, wide))
        waveforms = xp.asarray(WAVEFORMS, dtype=signals.dtype, device=device(signals))
        stride = -(-times // _MOST_TIMES)
        found = []
        for step, thresholds in zip(self.dilations_, self.thresholds_, strict=True):
            reach = step * (_LENGTH // 2)
            ends = [xp.broadcast_to(end, (channels, n, reach)) for end in (signals[..., :1], signals[..., -1:])]
            padded = xp.concat([ends[0], signals, ends[1]], axis=-1)
            points = xp.stack([padded[..., i * step : i * step + times : stride] for i in range(_LENGTH)])
            response = xp.reshape(waveforms @ xp.reshape(points, (_LENGTH, -1)), (-1, channels, n, points.shape[-1]))
            levels = move_to((thresholds / size[:, None])[:, :, None, None, :], signals, signals.dtype)
            above = [xp.astype(response > levels[..., q], xp.uint8) for q in range(self._n_thresholds)]
            counts = xp.stack([xp.sum(one, axis=-1, dtype=xp.uint8) for one in above], axis=-1)  # of at most 255
            found.append(xp.astype(counts, wide) / response.shape[-1])  # (waveforms, channels, n, thresholds)
        return xp.reshape(xp.permute_dims(xp.stack(found), (3, 2, 0, 1, 4)), (n, *self._shape_out()))

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
        channels = range(len(self.autocovariances_)) if names is None else names
        waveforms = ["".join("+" if point > 0 else "-" for point in waveform) for waveform in WAVEFORMS]
        rows = [f"{channel}, step {step}" for channel in channels for step in self.dilations_]
        return rows, [f"{waveform} above {q + 1}" for waveform in waveforms for q in range(self._n_thresholds)]
