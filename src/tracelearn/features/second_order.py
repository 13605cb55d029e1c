"""SecondOrder: signals become the covariance of their channels, on a logarithmic scale."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, move_to, to_numpy, widest
from tracelearn.errors import brief, refuse
from tracelearn.features.axes import read_modes, read_time_axis, times_and_channels
from tracelearn.features.base import TAKES_LONG, TensorTransformer
from tracelearn.features.covariances import (
    completed_covariances,
    positive_part,
    shrunk_covariances,
)
from tracelearn.features.gaps import by_length, has_gaps, interpolated
from tracelearn.features.matrices import symmetric_power
from tracelearn.features.summaries import Summary, squares, summarise, summarise_known
from tracelearn.features.training import TrainingSamples
from tracelearn.samples.checks import check_range
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["SecondOrder", "SpatialFilters"]

_SMALLEST = (
    1e-10  # eigenvalues below this share of the reference are rounding, whose logarithms would outweigh all others
)

# A search does not try it where one search would take more multiplications than this, about a minute.
_MOST_MULTIPLICATIONS = 3e11


class SpatialFilters(NamedTuple):
    """A symmetric weight as filters: eigenvalues (..., c), largest size first, with filters and patterns (..., c, c) as rows."""

    values: Array
    filters: Array
    patterns: Array


@dataclass(frozen=True, eq=False)
class Levels:
    """The scales that channels (kept..., channels, 1) are divided by, if any, and the factor of their means."""

    channel_scale: Array | None = None
    mean_scale: float = 1.0


class SecondOrder(TensorTransformer):
    """Turn signals into covariances of channels over time, as symmetric matrices: logarithms relative to the training mean.

    A sample of channels × times becomes ``log(M^(-1/2) S M^(-1/2))``: S is the shrunk covariance C of its channels over time,
    with their means m, ``[[C + m m', m], [m', 1]]``, and M the mean of S over the training samples. This is the
    tangent space of Riemannian geometry, as in pyriemann, at the arithmetic mean. A trace norm learns a weight of few
    eigenvectors from it, which are spatial filters (Tomioka and Aihara, 2007). M adds up over samples, so one pass is enough.

    Parameters
    ----------
    time_axis : int or "auto", default=-1
        The mode of a sample that is time; "auto" lets ``find_time_axis`` choose. All other modes are channels.
    keep : int or sequence of ints, default=()
        Modes, such as windows or frequency bands, that are kept: one covariance, and one reference, for each of their indices.
    lags : int, default=0
        Number of delayed copies that every channel gets, so that covariances see how signals move. Channels come in the order
        of their delays, as in pyriemann, and only times at which all copies are known count.
    lag_step : int, default=1
        Times from one copy to the next.
    difference : bool, default=False
        Whether every channel gets its difference from one time to the next as a further channel, before any lags.
    mean : bool or float between 0 and 1, default=True
        Whether the means of channels over time are kept with their covariance. Signals are then measured in ``unit_``, so
        that the result does not depend on the units of X. A number keeps means from hiding the covariance, as they do where
        the level of a signal drifts: all are multiplied by one factor, ``mean_scale_``, so that their variance from sample
        to sample is at most this share of the variance over time. That factor is learned as the scales of ``scaling`` are.
    windows : int, default=1
        Number of windows of equal length that time is cut into: one covariance, and one reference, for each.
    scaling : bool, default=False
        Whether every channel, and its differences, are divided by the root of their mean power before covariances are shrunk,
        so that no channel is lost for being small. That power is learned by a pass of its own, from the samples of ``fit`` or
        of the first ``partial_fit``, and then fixed.
    shrinkage : "oas" or float between 0 and 1, default="oas"
        Each covariance becomes ``(1 - shrinkage) C + shrinkage trace(C) / c I``; "oas" is the oracle approximating shrinkage
        of scikit-learn, for each covariance its own.
    reference : "mean" or None, default="mean"
        None: the logarithm of S itself.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    reference_ : array of shape (kept..., windows, c, c)
        Without windows the axis is missing.
        M, with c the number of channels, times the number of copies, plus one for the mean.
    whitener_ : array of shape (kept..., c, c)
        R with ``R M R' = I`` but for directions without variance, which are left out; symmetric where ``unit_`` is 1.
    still_ : array of shape (kept..., c, c)
        Projector onto directions in which no training sample varies: transformed samples are zero there.
    floor_ : float
        The smallest eigenvalue whose logarithm is taken; smaller ones count as it.
    channel_scale_ : array of shape (kept..., channels, 1) or None
        With ``scaling``: what every channel, with its copies, is divided by.
    mean_scale_ : float
        With a number as ``mean``: what the means are multiplied by, at most 1.
    unit_ : float
        Root of the mean power of the training signals; 1 without ``mean``.
    time_axis_ : int
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    Eigenvalues below 1e-10 of the reference count as that, so that signals that do not vary have finite logarithms.

    Samples may be of unequal length and have gaps. Each is seen at its own length, of which windows are shares, and gaps are
    interpolated over time. Where a channel is missing in a whole sample, S is completed as the reference expects it from the
    channels that are there, so that it is as usual as it can be.

    Examples
    --------
    Two classes that differ in the power of a source, not in its mean:

    >>> import numpy as np
    >>> from tracelearn import SecondOrder
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 50)
    >>> sources = rng.normal(size=(100, 3, 200))
    >>> sources[:, 0] *= np.where(y, 2.0, 1.0)[:, None]
    >>> X = np.linalg.qr(rng.normal(size=(3, 3)))[0] @ sources
    >>> view = SecondOrder(mean=False).fit(X)
    >>> Z = view.transform(X)
    >>> sources = view.filters(Z[y == 1].mean(axis=0) - Z[y == 0].mean(axis=0))
    >>> sources.values.round(1) + 0.0
    array([1.4, 0. , 0. ])
    """

    reference_: Array
    whitener_: Array
    still_: Array
    floor_: float
    unit_: float
    time_axis_: int
    channel_scale_: Array | None
    mean_scale_: float

    keeps_entries = False
    takes_gaps = True
    has_small_products = True

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "time_axis": [Integral, StrOptions({"auto"})],
        "keep": [Integral, "array-like"],
        "lags": [Interval(Integral, 0, None, closed="left")],
        "lag_step": [Interval(Integral, 1, None, closed="left")],
        "difference": ["boolean"],
        "mean": ["boolean", Interval(Real, 0, 1, closed="right")],
        "windows": [Interval(Integral, 1, None, closed="left")],
        "scaling": ["boolean"],
        "shrinkage": [StrOptions({"oas"}), Interval(Real, 0, 1, closed="both")],
        "reference": [StrOptions({"mean"}), None],
        "tensor_shape": ["array-like", None],
    }

    def __init__(
        self,
        time_axis: Any = -1,
        *,
        keep: Any = (),
        lags: int = 0,
        lag_step: int = 1,
        difference: bool = False,
        mean: bool | float = True,
        windows: int = 1,
        scaling: bool = False,
        shrinkage: Any = "oas",
        reference: str | None = "mean",
        tensor_shape: Any = None,
    ) -> None:
        self.time_axis = time_axis
        self.keep = keep
        self.lags = lags
        self.lag_step = lag_step
        self.difference = difference
        self.mean = mean
        self.windows = windows
        self.scaling = scaling
        self.shrinkage = shrinkage
        self.reference = reference
        self.tensor_shape = tensor_shape

    # --- which samples it suits --------------------------------------------------------------------------------------

    def why_not(self, shape: tuple[int, ...], n_samples: int, positive: bool = False) -> str:
        """See ``TensorTransformer``: signals of few channels, long enough for the lags."""
        times, channels = times_and_channels(shape, self.time_axis)
        if not times:
            return "no mode can be time"
        # Copies of channels make matrices larger by their square.
        if self.lags or self.windows > 2:
            most_channels: float = 16
        elif self.difference or self.windows > 1:
            most_channels = 48
        else:
            most_channels = math.inf
        if channels > most_channels:
            return f"there are more than {most_channels} channels"
        if times < 4 * (1 + self.lags * self.lag_step):
            return "signals are too short for such lags"
        c = self.n_copies * channels + bool(self.mean)
        rank = min(n_samples, self.windows * c * (c + 1) // 2)  # matrices are symmetric
        # Sums of squares, and eigenvectors in each of five folds.
        multiplications = n_samples * self.windows * c * c * rank + 10 * 5 * rank**3
        return TAKES_LONG if multiplications > _MOST_MULTIPLICATIONS else ""

    @property
    def learns_in_one_pass(self) -> bool:  # type: ignore[override]
        """Whether covariances are learned directly, without a pass for scales and levels before."""
        return not (self.scaling or self.limits_mean)

    @property
    def limits_mean(self) -> bool:
        """Whether ``mean`` is a number, the largest share of the variance that means may have."""
        return not isinstance(self.mean, bool | np.bool_)

    # --- shapes ------------------------------------------------------------------------------------------------------

    def axes(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Find the modes of samples of a shape that are kept, those that are channels, and time."""
        time = read_time_axis(self.time_axis, shape)
        kept_modes = read_modes(self.keep, shape, "keep")
        refuse(
            time in kept_modes,
            f"Expected keep to name other modes than time_axis, got {brief(self.keep)} and {self.time_axis}.",
        )
        return kept_modes, tuple(mode for mode in range(len(shape)) if mode not in (*kept_modes, time)), time

    def time_mode(self, shape: tuple[int, ...]) -> int | None:
        """Find the mode that is time, along which samples may be of any length."""
        return read_time_axis(self.time_axis, shape)

    @property
    def fewest_times(self) -> int:
        """How many times a sample must have for its differences, lags and windows."""
        return self.difference + self.lags * self.lag_step + self.windows

    @property
    def n_copies(self) -> int:
        """How many signals each channel becomes: itself, its difference, and both with all lags."""
        return (1 + self.difference) * (1 + self.lags)

    def shape_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape (kept..., windows, c, c) of what samples of a shape become; without windows that axis is missing."""
        kept_modes, channels, _ = self.axes(shape)
        c = self.n_copies * math.prod(shape[mode] for mode in channels) + bool(self.mean)
        windows = (self.windows,) if self.windows > 1 else ()
        return (*(shape[mode] for mode in kept_modes), *windows, c, c)

    @property
    def output_shape_(self) -> tuple[int, ...]:
        """The shape of the matrices."""
        return self.shape_of(self.sample_shape_)

    def numbers_per_sample(self, shape: tuple[int, ...]) -> int:
        """Count the entries of signals with their copies, and of matrices."""
        return self.n_copies * math.prod(shape) + math.prod(self.shape_of(shape))

    # --- signals and covariances -------------------------------------------------------------------------------------

    def signals(self, T: Array) -> Array:
        """Arrange samples as signals (n, kept..., windows, channels, times), with their copies."""
        xp = array_namespace(T)
        shape = tuple(T.shape[1:])
        kept_modes, channels, time = self.axes(shape)
        refuse(
            shape[time] < self.fewest_times,
            f"Expected at least {self.fewest_times} times for these lags, got {shape[time]} along mode {time} of samples of "
            f"shape {shape}: use fewer lags, or name another time_axis.",
        )
        T = xp.permute_dims(T, (0, *(mode + 1 for mode in (*kept_modes, *channels, time))))
        T = xp.reshape(T, (*T.shape[: 1 + len(kept_modes)], -1, T.shape[-1]))
        T = xp.concat([T[..., 1:], T[..., 1:] - T[..., :-1]], axis=-2) if self.difference else T
        n_times = T.shape[-1]
        delays = [self.lag_step * copy for copy in range(self.lags + 1)]
        T = xp.concat([T[..., delays[-1] - delay : n_times - delay] for delay in delays], axis=-2)
        if self.windows > 1:
            size = T.shape[-1] // self.windows
            T = xp.stack([T[..., w * size : (w + 1) * size] for w in range(self.windows)], axis=-3)
        return T

    def covariances(self, T: Array, levels: Levels, reference: Array | None = None) -> Array:
        """Find S of every sample, in double precision, those with gaps with the help of a ``reference``, if there is one."""
        T = as_dtype(T, widest(T)["dtype"])
        is_short = T.shape[1 + self.axes(tuple(T.shape[1:]))[2]] < self.fewest_times
        if reference is not None and (is_short or has_gaps(T)):
            S = self.known_covariances(to_numpy(T), levels)
            return move_to(completed_covariances(S, np.broadcast_to(reference, S.shape[1:])), T, T.dtype)
        signals = self.signals(T)
        if levels.channel_scale is not None:
            signals = signals / move_to(levels.channel_scale, T, T.dtype)
        return self.covariances_of_signals(signals, levels.mean_scale)

    def covariances_of_signals(self, signals: Array, mean_scale: float) -> Array:
        """Find S of signals (n, kept..., windows, channels, times) that are complete."""
        xp = array_namespace(signals)
        means = xp.mean(signals, axis=-1, keepdims=True)
        signals = signals - means
        C = shrunk_covariances(
            signals @ xp.matrix_transpose(signals) / signals.shape[-1], self.shrinkage, signals.shape[-1]
        )
        if not np.finfo(np.float64).tiny < float(xp.max(C)) < np.inf:
            check_range(signals, "X")
        if not self.mean:
            return C
        means = means * mean_scale
        ones = xp.ones((*C.shape[:-2], 1, 1), dtype=C.dtype, device=device(C))
        upper = xp.concat([C + means @ xp.matrix_transpose(means), means], axis=-1)
        return xp.concat([upper, xp.concat([xp.matrix_transpose(means), ones], axis=-1)], axis=-2)

    def known_covariances(self, T: Array, levels: Levels) -> Array:
        """Find S of samples of any length, gaps interpolated; NaN for missing channels and for samples that are too short."""
        S = np.full((len(T), *self.shape_of(tuple(T.shape[1:]))), np.nan)
        for index, signals in self.signals_of_each_length(T):
            scaled = signals if levels.channel_scale is None else signals / levels.channel_scale
            S[index] = self.covariances_of_known(scaled, levels.mean_scale)
        return S

    def signals_of_each_length(self, T: Array) -> Iterator[tuple[Array, Array]]:
        """For each length that is enough, yield the index of its samples, and their signals with gaps interpolated."""
        time = read_time_axis(self.time_axis, tuple(T.shape[1:]))
        for index, tensors in by_length(T, time):
            if tensors.shape[time + 1] >= self.fewest_times:
                yield index, self.signals(interpolated(tensors, time))

    def covariances_of_known(self, signals: Array, mean_scale: float) -> Array:
        """Find S of signals (n, kept..., windows, channels, times), with NaN in rows and columns of missing channels."""
        is_known = ~np.isnan(signals).any(axis=-1)
        if is_known.all():
            return self.covariances_of_signals(signals, mean_scale)
        c = signals.shape[-2]
        size = c + bool(self.mean)
        S = np.full((*signals.shape[:-2], size, size), np.nan)
        for pattern in np.unique(is_known.reshape(-1, c), axis=0):
            matrices = np.all(is_known == pattern, axis=-1)
            # With ``mean`` the last row of S belongs to the constant 1, which is never missing.
            known_rows = np.flatnonzero(np.append(pattern, [True] * (size - c)))
            S_of_known = np.ones((1, 1))
            if pattern.any():
                S_of_known = self.covariances_of_signals(signals[matrices][:, pattern], mean_scale)
            S_of_pattern = S[matrices]
            S_of_pattern[:, known_rows[:, None], known_rows] = S_of_known if len(known_rows) else np.nan
            S[matrices] = S_of_pattern
        return S

    # --- learning and applying ---------------------------------------------------------------------------------------

    def learn(self, samples: TrainingSamples, earlier: Any) -> dict[str, Any]:
        """Learn levels in a pass of its own, where they are asked for, then the mean of covariances."""
        if earlier is not None:
            levels = Levels(earlier.channel_scale_, earlier.mean_scale_)
        elif self.learns_in_one_pass:
            levels = Levels()
        else:
            levels = self.learn_levels(samples)
        reference = None if earlier is None else earlier.reference_
        if samples.have_gaps and earlier is None:
            # Two passes: the mean over known entries completes the matrices, and the mean of these is the reference.
            total = samples.total(functools.partial(self.summarise_tensors, levels=levels), self.numbers_per_sample)
            reference = positive_part(total.mean)
        summarise_block = functools.partial(self.summarise_tensors, levels=levels, reference=reference)
        summary = samples.total(summarise_block, self.numbers_per_sample)
        learned = self.attributes_after(summary, samples.shape, earlier)
        return {**learned, "channel_scale_": levels.channel_scale, "mean_scale_": levels.mean_scale}

    def learn_levels(self, samples: TrainingSamples) -> Levels:
        """Learn the scales of channels, and the factor of their means, in one pass."""
        summary = samples.total(self.summarise_levels, self.numbers_per_sample)
        power = summary.mean[..., 0]
        scale = np.sqrt(np.where(power > 0, power, 1.0)) if self.scaling else np.ones_like(power)
        mean_scale = 1.0
        if self.limits_mean:
            weight = np.broadcast_to(summary.weight, summary.mean.shape)[..., 1]
            variance_of_means = float(np.mean(summary.sums[0][..., 1] / (weight + (weight == 0)) / scale**2))
            limit = float(self.mean) * float(np.mean(power / scale**2))
            mean_scale = math.sqrt(limit / variance_of_means) if variance_of_means > limit else 1.0
        return Levels(scale[..., None] if self.scaling else None, mean_scale)

    def summarise_levels(self, T: Array, weight: Array) -> Summary:
        """Average over samples the variance and the mean over time of every channel, and the squares of both."""
        xp = array_namespace(T)
        T = as_dtype(T, widest(T)["dtype"])
        if has_gaps(T):
            return summarise_known(self.levels_with_gaps(to_numpy(T)), to_numpy(weight), squares)
        signals = self.signals(T)
        levels = xp.stack([xp.var(signals, axis=-1), xp.mean(signals, axis=-1)], axis=-1)
        return summarise(levels, weight, squares)

    def levels_with_gaps(self, T: Array) -> Array:
        """Find variance and mean over time of every signal of every sample, NaN where it is missing."""
        levels = np.full((*self.signals(T).shape[:-1], 2), np.nan)
        for index, signals in self.signals_of_each_length(T):
            levels[index] = np.stack([np.var(signals, axis=-1), np.mean(signals, axis=-1)], axis=-1)
        return levels

    def summarise_tensors(
        self, T: Array, weight: Array, levels: Levels = Levels(), reference: Array | None = None
    ) -> Summary:
        """Average the matrices S, those with gaps completed by a ``reference``; without one, average their known entries."""
        if reference is None and has_gaps(T):
            return summarise_known(self.known_covariances(to_numpy(T), levels), to_numpy(weight))
        return summarise(self.covariances(T, levels, reference), weight)

    def past_summary(self) -> Summary:
        """Return the summary of the matrices S of all samples so far: their weight and their mean M."""
        return Summary(float(self.n_samples_seen_), self.reference_, [])

    def attributes_from(self, summary: Summary, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return the mean M of the matrices S, the whitener ``M^(-1/2)``, and the unit and the floor of logarithms."""
        M = summary.mean
        n_signals = M.shape[-1] - bool(self.mean)
        power = float(np.mean(np.diagonal(M, axis1=-2, axis2=-1)[..., :n_signals]))
        unit = math.sqrt(power) if self.mean and power > 0 else 1.0
        units = np.concatenate([np.full(n_signals, 1.0 / unit), np.ones(int(bool(self.mean)))])
        eye = np.eye(len(units))
        relative = units[:, None] * M * units
        if self.reference:
            whitener = symmetric_power(relative, -0.5, without_variance=0.0)
            # In directions in which no training sample varies the identity is added, whose logarithm is zero.
            still = eye - symmetric_power(relative, 0.0, without_variance=0.0)
            floor = _SMALLEST
        else:
            whitener = eye
            still = 0.0 * eye
            floor = _SMALLEST * (float(np.mean(np.linalg.eigvalsh(relative))) or 1.0)
        return {
            "reference_": M,
            "whitener_": whitener * units,
            "still_": still,
            "floor_": floor,
            "unit_": unit,
            "time_axis_": self.axes(shape)[2],
        }

    def transform_tensors(self, T: Array) -> Array:
        """Take matrix logarithms of whitened matrices S."""
        S = self.covariances(T, Levels(self.channel_scale_, self.mean_scale_), self.reference_)
        xp = array_namespace(S)
        R = move_to(self.whitener_, S, S.dtype)
        S = R @ S @ xp.matrix_transpose(R) + move_to(self.still_, S, S.dtype)
        values, vectors = xp.linalg.eigh((S + xp.matrix_transpose(S)) / 2)
        logs = xp.log(xp.clip(values, min=self.floor_))
        log_S = (vectors * logs[..., None, :]) @ xp.matrix_transpose(vectors)
        return (log_S + xp.matrix_transpose(log_S)) / 2  # exactly symmetric, so that half of the entries tell all

    # --- reading a weight --------------------------------------------------------------------------------------------

    def channel_names(self, names: Sequence[Any] | None = None) -> list[str]:
        """Name the rows of the matrices: channels, their differences and delayed copies, and the mean.

        Parameters
        ----------
        names : one for each channel, default=None
            None: their places, such as "3", or "3,1" where several modes are channels.

        Examples
        --------
        >>> import numpy as np
        >>> from tracelearn import SecondOrder
        >>> view = SecondOrder(difference=True, lags=1).fit(np.random.default_rng(0).normal(size=(9, 2, 30)))
        >>> view.channel_names(["C3", "C4"])[:5]
        ['C3', 'C4', 'C3 difference', 'C4 difference', 'C3 lag 1']
        """
        check_is_fitted(self)
        places = np.ndindex(*(self.sample_shape_[mode] for mode in self.axes(self.sample_shape_)[1]))
        channels = [",".join(map(str, place)) for place in places] if names is None else [str(name) for name in names]
        kinds = ["", " difference"] if self.difference else [""]
        copies = [
            f"{kind} lag {lag * self.lag_step}" if lag else kind for lag in range(self.lags + 1) for kind in kinds
        ]
        return [channel + copy for copy in copies for channel in channels] + ["mean"] * bool(self.mean)

    def filters(self, W: Array) -> SpatialFilters:
        """Read a weight that was learned on transformed samples as spatial filters.

        To first order about the reference, ``<W, transform(X)>`` sums ``value * f' S f`` over the eigenvectors of W, each
        mapped through the whitener to a filter f of the signals. The pattern of a filter is ``M f``: how the source that it
        picks up appears in the signals (Haufe et al., 2014).

        Parameters
        ----------
        W : array of shape (..., kept..., c, c), such as ``coef_`` of a model

        Returns
        -------
        SpatialFilters
            ``values`` (..., c) by decreasing size, ``filters`` and ``patterns`` (..., c, c), one row for each value, over the
            channels with their copies and, last, the mean, as ``channel_names`` names them. The entry of largest size of every
            pattern is positive. With ``scaling`` both are those of channels divided by ``channel_scale_``; the mean is
            that of the signals times ``mean_scale_``, where there is one.
        """
        check_is_fitted(self)
        W = to_numpy(W)
        shape = self.output_shape_
        refuse(
            tuple(W.shape[-len(shape) :]) != shape,
            f"Expected weights whose last axes are {shape}, got shape {tuple(W.shape)}: pass coef_ of a model that was "
            "fitted on what transform returns.",
        )
        values, vectors = np.linalg.eigh((W + np.swapaxes(W, -1, -2)) / 2)
        order = np.argsort(-np.abs(values), axis=-1)
        rows = np.take_along_axis(np.swapaxes(vectors, -1, -2), order[..., None], axis=-2)
        filters = rows @ self.whitener_
        patterns = filters @ self.reference_
        largest = np.argmax(np.abs(patterns), axis=-1)[..., None]
        signs = np.where(np.take_along_axis(patterns, largest, axis=-1) < 0, -1.0, 1.0)
        return SpatialFilters(np.take_along_axis(values, order, axis=-1), signs * filters, signs * patterns)
