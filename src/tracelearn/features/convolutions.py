"""Convolutions: for how much of the time signals, and pairs of them, follow short waveforms, slow and fast ones."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
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
from tracelearn.features.axes import read_time_axis, times_and_channels
from tracelearn.features.base import TensorTransformer
from tracelearn.features.draws import sample_numbers, unit_signals
from tracelearn.features.gaps import by_length, has_gaps, interpolated
from tracelearn.features.summaries import Summary
from tracelearn.features.training import TrainingSamples
from tracelearn.samples.checks import check_range
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["CANCELLED", "LENGTH", "LOWERED", "MOST_TIMES", "ROUNDING", "WAVEFORMS", "Convolutions"]

# All waveforms of nine points of which three are 2 and six are -1; each sums to zero, so that a constant changes nothing.
LENGTH = 9
_UP = 3
WAVEFORMS = np.array(
    [[2.0 if i in up else -1.0 for i in range(LENGTH)] for up in itertools.combinations(range(LENGTH), _UP)]
)

MOST_TIMES = 255  # a convolution is sampled at so many times at most, in equal steps, so that counts fit in bytes

# Numbers of dilations and of thresholds for one channel and for several, which have more entries anyway.
_OF_ONE_CHANNEL = (12, 8)
_OF_SEVERAL_CHANNELS = (8, 4)

_MOST_APART = 9  # the channels of a pair are less than so many apart

_CACHED = 1 << 20  # so many numbers of convolutions are computed at a time: they stay in cache

_N_DRAWS = 64  # thresholds are quantiles of so many samples at most, each of one of them

ROUNDING = 8.0 * float(np.finfo(np.float64).eps)  # a signal that varies by a smaller share of its level is constant
CANCELLED = 1e-6  # a sum of signals that is a smaller share of their size counts as zero

# Convolutions are lowered by this share of the peak of the signal, which is more than rounding: a constant signal has exactly
# the threshold of another constant one, and must not be above it by chance.
LOWERED = 4e-6

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0  # multiples of it, less their integers, fill the unit interval evenly

# What a search tries: there are thousands of entries for each channel.
_MOST_CHANNELS = 9
_MOST_SAMPLES = 1500
_MOST_SAMPLES_OF_FEW_ENTRIES = 20_000
_FEWEST_DILATIONS = 4


@dataclass(frozen=True, eq=False)
class DrawnThresholds(Summary):
    """Thresholds, and the hash of the sample that each is from; see ``draws.py``. A sum keeps the threshold of the lower hash.

    ``mean`` has both along its last axis: thresholds, then hashes in [0, 1].
    """

    def __add__(self, other: Summary) -> DrawnThresholds:
        thresholds, hashes = np.moveaxis(self.mean, -1, 0)
        other_thresholds, other_hashes = np.moveaxis(other.mean, -1, 0)
        # Samples of equal hash differ in size alone: the lower threshold is taken, so that the order of the sum does not matter.
        is_lower = (hashes < other_hashes) | ((hashes == other_hashes) & (thresholds <= other_thresholds))
        mean = np.where(is_lower[..., None], self.mean, other.mean)
        return replace(self, weight=self.weight + other.weight, mean=mean)


@dataclass(frozen=True, eq=False)
class Layout:
    """Channels, dilations, thresholds and pairs of the convolutions of samples of one shape.

    Parameters
    ----------
    time_axis : the mode that is time
    n_channels : number of signals
    dilations : steps between the points of a waveform
    n_thresholds : of each waveform and dilation
    pairs : array (84, 2), for each waveform how many channels later its second one is, and what that is multiplied by: 0, 1, -1
    """

    time_axis: int
    n_channels: int
    dilations: list[int]
    n_thresholds: int
    pairs: Array

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a transformed sample."""
        return self.n_channels * len(self.dilations), len(WAVEFORMS) * self.n_thresholds

    @property
    def quantiles(self) -> Array:
        """Which quantile of a convolution each threshold is, (dilations, waveforms, thresholds)."""
        count = (len(self.dilations), len(WAVEFORMS), self.n_thresholds)
        return _GOLDEN * (np.arange(math.prod(count)).reshape(count) + 0.5) % 1.0


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

    Samples may be of unequal length and have gaps: shares are those of the times that each sample has, and gaps are interpolated
    over time. Where a channel is missing in a whole sample, it is left out of pairs, and its own shares are the means of those of
    the other channels: thresholds are quantiles, so that shares of all channels are alike.

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
    dilations_: list[int]
    time_axis_: int

    keeps_entries = False
    takes_gaps = True
    has_small_products = True
    takes_long = True

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

    # --- shapes, and which samples it suits --------------------------------------------------------------------------

    def why_not(self, shape: tuple[int, ...], n_samples: int, positive: bool = False) -> str:
        """See ``TensorTransformer``: few channels or their average, and so many samples that entries are affordable."""
        times, channels = times_and_channels(shape, self.time_axis)
        if not times:
            return "no mode can be time"
        if self.average:
            if channels <= _MOST_CHANNELS:
                return "each of so few channels can be looked at"
        else:
            most_channels = _MOST_CHANNELS
            if self.n_entries is not None:
                most_channels = self.n_entries // (_FEWEST_DILATIONS * len(WAVEFORMS))
            if channels > most_channels:
                return f"there are more than {most_channels} channels"
        if self.n_entries is not None and n_samples <= _MOST_SAMPLES:
            return "of so few samples all entries can be used"
        most_samples = _MOST_SAMPLES if self.n_entries is None else _MOST_SAMPLES_OF_FEW_ENTRIES
        return f"there are more than {most_samples} samples" if n_samples > most_samples else ""

    def time_mode(self, shape: tuple[int, ...]) -> int | None:
        """Find the mode that is time, along which samples may be of any length."""
        return read_time_axis(self.time_axis, shape)

    def layout(self, shape: tuple[int, ...]) -> Layout:
        """Plan the convolutions of samples of a shape."""
        time_axis = read_time_axis(self.time_axis, shape)
        times = shape[time_axis]
        n_channels = 1 if self.average else math.prod(shape) // times
        n_dilations, n_thresholds = _OF_ONE_CHANNEL if n_channels == 1 else _OF_SEVERAL_CHANNELS
        # Thresholds are reduced before dilations.
        per_waveform = math.inf if self.n_entries is None else self.n_entries // (len(WAVEFORMS) * n_channels)
        n_thresholds = int(max(1, min(n_thresholds, per_waveform // _OF_SEVERAL_CHANNELS[0])))
        n_dilations = int(max(1, min(n_dilations, per_waveform // n_thresholds)))
        if not isinstance(self.dilations, str):
            n_dilations = self.dilations
        if not isinstance(self.thresholds, str):
            n_thresholds = int(self.thresholds)
        longest = max(1, (times - 1) // (LENGTH - 1))  # a waveform is at most as long as the signal
        dilations = sorted({round(float(step)) for step in np.geomspace(1, longest, n_dilations)})
        # Waveform after waveform looks at the channel itself, then also at the next one, the one after, and so on in turns: in
        # every other turn the second channel is subtracted, else added.
        turns, later = np.divmod(np.arange(len(WAVEFORMS)), min(n_channels, _MOST_APART) if self.pairs else 1)
        pairs = np.stack([later, np.sign(later) * (1 - 2 * (turns % 2))], axis=1)
        return Layout(time_axis, n_channels, dilations, n_thresholds, pairs)

    @property
    def output_shape_(self) -> tuple[int, ...]:
        """A row for each channel and dilation, a column for each waveform and threshold."""
        return self.layout(self.sample_shape_).shape

    def numbers_per_sample(self, shape: tuple[int, ...]) -> int:
        """Count the entries of a sample or of the transformed sample, whichever are more."""
        return max(math.prod(shape), math.prod(self.layout(shape).shape))

    # --- learning ----------------------------------------------------------------------------------------------------

    def signals(self, T: Array, layout: Layout) -> Array:
        """Arrange samples as signals (channels, n, times), less their means over time; constant ones are exactly zero.

        With ``average`` there is one signal, their mean, which is exactly zero where signals cancel.
        """
        xp = array_namespace(T)
        time = layout.time_axis + 1
        channel_axes = [axis for axis in range(1, T.ndim) if axis != time]
        T = xp.permute_dims(as_dtype(T, widest(T)["dtype"]), (*channel_axes, 0, time))
        T = xp.reshape(T, (-1, *T.shape[-2:]))
        first = T[..., :1]
        T = T - first
        # What rounding leaves of a constant signal is set to zero: in a pair it would be scaled to the size of the other signal.
        is_constant = xp.max(xp.abs(T), axis=-1, keepdims=True) <= ROUNDING * xp.abs(first)
        T = xp.where(is_constant, xp.zeros_like(T), T)
        T = T - xp.mean(T, axis=-1, keepdims=True)
        if not self.average:
            return T
        average = xp.mean(T, axis=0, keepdims=True)
        size = xp.mean(T**2, axis=(0, 2), keepdims=True)
        is_signal = xp.mean(average**2, axis=-1, keepdims=True) > CANCELLED**2 * size
        return xp.where(is_signal, average, xp.zeros_like(average))

    def learn(self, samples: TrainingSamples, earlier: Any) -> dict[str, Any]:
        """Learn thresholds; where samples differ in length, for the dilations of their median length."""
        layout = self.layout(samples.shape) if samples.have_gaps else None
        summarise_block = functools.partial(self.summarise_tensors, layout=layout)
        return self.attributes_after(samples.total(summarise_block, self.numbers_per_sample), samples.shape, earlier)

    def summarise_tensors(self, T: Array, weight: Array, layout: Layout | None = None) -> Summary:
        """Draw samples from a block (see ``draws.py``) and find the quantiles of their filtered signals: the thresholds."""
        layout = self.layout(tuple(T.shape[1:])) if layout is None else layout
        if has_gaps(T):
            values, weights = to_numpy(T), to_numpy(weight)
            summaries = [
                self.summarise_tensors(tensors, weights[index], layout)
                for index, tensors in self.complete_samples(values, layout)
            ]
            return functools.reduce(operator.add, summaries)
        xp = array_namespace(T)
        units, sizes = unit_signals(self.signals(T, layout))
        if not np.finfo(np.float64).tiny < float(xp.max(sizes)) ** 2 < np.inf:
            check_range(T, "X")
        sizes = to_numpy(sizes)[..., 0]
        # Each draw takes, for every channel, the sample of the lowest hash; constant signals only where all are constant.
        hashes = np.where(sizes == 0, 1.0, sample_numbers(units, _N_DRAWS)[:, None, :])  # (draws, channels, samples)
        lowest = np.min(hashes, axis=-1)
        # Samples that differ only in size have equal hashes: of their thresholds the lowest is taken.
        is_drawn = hashes == lowest[..., None]
        smallest = np.min(np.where(is_drawn, sizes, np.inf), axis=-1)
        largest = np.max(np.where(is_drawn, sizes, 0.0), axis=-1)
        samples, sample_of_draw = np.unique(np.argmin(hashes, axis=-1), return_inverse=True)
        sample_of_draw = sample_of_draw.reshape(_N_DRAWS, -1)  # (draws, channels)
        drawn = to_numpy(xp.take(units, xp.asarray(samples, device=device(T)), axis=1))
        channels = np.arange(len(sizes))
        quantiles = layout.quantiles
        pairs = layout.pairs[..., None, None]
        draw_of_threshold = np.arange(quantiles.size).reshape(quantiles.shape) % _N_DRAWS
        levels = np.empty((*quantiles.shape, len(sizes)))
        # Waveforms are taken in groups whose signals fit in cache.
        step = max(1, _CACHED // (drawn[:, 0].size * quantiles.shape[-1]))
        for d, start in itertools.product(range(len(quantiles)), range(0, len(WAVEFORMS), step)):
            waveforms = slice(start, start + step)
            draws = draw_of_threshold[d, waveforms]
            offset = pairs[waveforms, 0]
            sign = pairs[waveforms, 1, ..., None]
            chosen = sample_of_draw[draws]  # (waveforms, thresholds, channels)
            second_channels = (channels + offset) % len(channels)
            signals = _pair(drawn[channels, chosen], drawn[second_channels, chosen], sign)
            level = _quantiles(signals, WAVEFORMS[waveforms], layout.dilations[d], quantiles[d, waveforms])
            levels[d, waveforms] = level * np.where(level > 0, smallest[draws], largest[draws])
        mean = np.moveaxis(np.stack([levels, lowest[draw_of_threshold]], axis=-1), 3, 2)
        return DrawnThresholds(float(array_namespace(weight).sum(weight)), mean, [])

    def past_summary(self) -> Summary:
        """Return the summary of all samples so far: thresholds, and the hashes of the samples that they are from."""
        return DrawnThresholds(float(self.n_samples_seen_), np.stack([self.thresholds_, self.draws_], axis=-1), [])

    def attributes_from(self, summary: Summary, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return the thresholds, and the time axis and dilations that they belong to."""
        layout = self.layout(shape)
        size = (len(layout.dilations), len(WAVEFORMS), layout.n_channels, layout.n_thresholds)
        thresholds, draws = np.moveaxis(summary.mean.reshape(*size, 2), -1, 0)
        return {
            "time_axis_": layout.time_axis,
            "dilations_": layout.dilations,
            "thresholds_": thresholds,
            "draws_": draws,
        }

    # --- applying ----------------------------------------------------------------------------------------------------

    def complete_samples(self, T: Array, layout: Layout) -> Iterator[tuple[Array, Array]]:
        """For each length that occurs, yield the index of its samples, and these with gaps interpolated over time.

        Channels without any value become zero; with ``average`` the mean of the other channels, so that it stays their mean.
        """
        for index, tensors in by_length(T, layout.time_axis):
            filled = interpolated(tensors, layout.time_axis)
            if self.average:
                channels = tuple(axis for axis in range(1, T.ndim) if axis != layout.time_axis + 1)
                is_known = ~np.isnan(filled)
                count = np.maximum(is_known.sum(axis=channels, keepdims=True), 1)
                filled = np.where(
                    is_known, filled, np.sum(filled, axis=channels, keepdims=True, where=is_known) / count
                )
            yield index, np.nan_to_num(filled, nan=0.0)

    def transform_with_gaps(self, T: Array) -> Array:
        """Find the shares of samples of unequal length and with gaps, each as if it were alone."""
        layout = self.layout(self.sample_shape_)
        result = np.empty((len(T), *layout.shape))
        for index, tensors in self.complete_samples(T, layout):
            result[index] = self.transform_tensors(tensors)
        if self.average:
            return result
        is_missing = np.isnan(T).all(axis=layout.time_axis + 1).reshape(len(T), -1)
        if not is_missing.any():
            return result
        shares = result.reshape(len(T), layout.n_channels, -1)
        is_known = ~is_missing[:, :, None]
        means = np.sum(shares, axis=1, keepdims=True, where=is_known) / np.maximum(
            is_known.sum(axis=1, keepdims=True), 1
        )
        return np.where(is_known, shares, means).reshape(result.shape)

    def transform_tensors(self, T: Array) -> Array:
        """Find the shares of times above thresholds, by blocks that stay in cache."""
        if has_gaps(T):
            return move_to(self.transform_with_gaps(to_numpy(T)), T, T.dtype)
        layout = self.layout(self.sample_shape_)
        # The waveforms that look at one pair are convolved at once.
        most_waveforms = int(np.max(np.unique(layout.pairs, axis=0, return_counts=True)[1]))
        n = T.shape[0]
        step = max(1, _CACHED // (max(LENGTH + 1, most_waveforms) * math.prod(T.shape[1:])))
        blocks = [self.shares(T[start : min(n, start + step), ...], layout) for start in range(0, n, step)]
        return array_namespace(T).concat(blocks)

    def shares(self, T: Array, layout: Layout) -> Array:
        """Find the shares of times above thresholds, for a block of samples whose convolutions fit in cache."""
        xp = array_namespace(T)
        signals = self.signals(T, layout)
        units, sizes = unit_signals(signals)
        largest = np.max(np.abs(self.thresholds_), axis=(0, 1, 3))[:, None]
        scale = np.where(largest > 0, largest, 1.0)
        pairs, pair_of_waveform = np.unique(layout.pairs, axis=0, return_inverse=True)
        pair_of_waveform = pair_of_waveform.ravel()
        shares = []
        for pair, (offset, sign) in enumerate(pairs.tolist()):
            paired = sizes * _pair(units, xp.roll(units, -offset, axis=0), sign) if sign else signals
            # Signals of about one are compared in single precision, which takes half the time.
            paired = to_single(paired / move_to(scale[..., None], paired, paired.dtype))
            chosen = pair_of_waveform == pair
            thresholds = self.thresholds_[:, chosen] / scale
            shares.append(_shares_above(paired, WAVEFORMS[chosen], layout.dilations, thresholds))
        # The shares are sorted by pairs: the inverse permutation brings them back into the order of WAVEFORMS.
        place_of_waveform = np.argsort(np.argsort(pair_of_waveform, kind="stable"))
        in_order = xp.take(xp.concat(shares, axis=1), xp.asarray(place_of_waveform, device=device(T)), axis=1)
        return xp.reshape(xp.permute_dims(in_order, (3, 2, 0, 1, 4)), (T.shape[0], *layout.shape))

    # --- reading a weight --------------------------------------------------------------------------------------------

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
        layout = self.layout(self.sample_shape_)
        channels = range(layout.n_channels) if names is None else names
        channels = ["mean"] if self.average else channels
        rows = [f"{channel}, step {step}" for channel in channels for step in self.dilations_]
        columns = []
        for waveform, (later, sign) in zip(WAVEFORMS, layout.pairs.tolist(), strict=True):
            name = "".join("+" if point > 0 else "-" for point in waveform)
            name += f" {'+' if sign > 0 else '-'}{later}" if sign else ""
            columns += [f"{name} above {q + 1}" for q in range(layout.n_thresholds)]
        return rows, columns


def _points(signals: Array, dilation: int) -> list[Array]:
    """List what the nine points of a waveform see of signals (..., times), at every time or in equal steps of time.

    Beyond its ends a signal stays at its first and its last value.
    """
    xp = array_namespace(signals)
    times = signals.shape[-1]
    reach = dilation * (LENGTH // 2)
    before, after = (
        xp.broadcast_to(end, (*signals.shape[:-1], reach)) for end in (signals[..., :1], signals[..., -1:])
    )
    padded = xp.concat([before, signals, after], axis=-1)
    step = -(-times // MOST_TIMES)
    return [padded[..., i * dilation : i * dilation + times : step] for i in range(LENGTH)]


def _pair(first: Array, second: Array, sign: Any) -> Array:
    """Return ``first + sign * second`` of signals of root mean square one; where they cancel up to rounding, exactly zero."""
    xp = array_namespace(first)
    combined = first + sign * second
    has_signal = xp.mean(combined**2, axis=-1, keepdims=True) > CANCELLED**2
    return xp.where(has_signal, combined, xp.zeros_like(combined))


def _shares_above(signals: Array, waveforms: Array, dilations: list[int], thresholds: Array) -> Array:
    """Find the shares of times at which convolutions are above thresholds.

    Parameters
    ----------
    signals : array (channels, n, times)
    waveforms : array (waveforms, 9)
    thresholds : array (dilations, waveforms, channels, thresholds)

    Returns
    -------
    array (dilations, waveforms, channels, n, thresholds), in double precision
    """
    xp = array_namespace(signals)
    lowered = np.concatenate([waveforms, np.full((len(waveforms), 1), -LOWERED)], axis=1)
    lowered = move_to(lowered, signals, signals.dtype)
    peaks = xp.max(xp.abs(signals), axis=-1, keepdims=True)
    levels = move_to(thresholds, signals, signals.dtype)
    shares = []
    for d, dilation in enumerate(dilations):
        points = _points(signals, dilation)
        shape = points[0].shape
        stacked = xp.stack([*points, xp.broadcast_to(peaks, shape)])
        response = xp.reshape(lowered @ xp.reshape(stacked, (LENGTH + 1, -1)), (-1, *shape))
        above = [xp.astype(response > levels[d, :, :, None, None, q], xp.uint8) for q in range(levels.shape[-1])]
        counts = xp.stack([xp.sum(times, axis=-1, dtype=xp.uint8) for times in above], axis=-1)  # of at most 255
        shares.append(xp.astype(counts, widest(signals)["dtype"]) / response.shape[-1])
    return xp.stack(shares)


def _quantiles(signals: Array, waveforms: Array, dilation: int, quantiles: Array) -> Array:
    """Find a quantile of the convolution of each of some signals (waveforms, thresholds, channels, times).

    Parameters
    ----------
    quantiles : array (waveforms, thresholds), which one is taken, between 0 and 1
    """
    response: Any = 0.0
    for weights, points in zip(waveforms.T, _points(signals, dilation), strict=True):
        response = response + weights[:, None, None, None] * points
    response = np.sort(response, axis=-1)
    position = quantiles * (response.shape[-1] - 1)
    below = np.floor(position).astype(int)[:, :, None, None]
    above = np.minimum(below + 1, response.shape[-1] - 1)
    low = np.take_along_axis(response, below, axis=-1)[..., 0]
    high = np.take_along_axis(response, above, axis=-1)[..., 0]
    return low + (position % 1.0)[:, :, None] * (high - low)
