"""SecondOrder: signals become the covariance of their channels, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, move_to, to_numpy, widest
from tracelearn.errors import refuse
from tracelearn.features.base import (
    Summary,
    TensorTransformer,
    Total,
    read_modes,
    read_time_axis,
    squares,
    summarise,
    symmetric_power,
)
from tracelearn.samples.checks import check_range
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["SecondOrder", "SpatialFilters"]

_SMALLEST = 1e-10  # of the reference: less is rounding, and its logarithm would outweigh all else


class SpatialFilters(NamedTuple):
    """A symmetric weight, read: its eigenvalues (..., c), largest size first, with filters and patterns (..., c, c) as rows."""

    values: Array
    filters: Array
    patterns: Array


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
        to sample is at most this share of the variance over time. That factor is learned as the scales of ``standardize`` are.
    windows : int, default=1
        Number of windows of equal length that time is cut into: one covariance, and one reference, for each.
    standardize : bool, default=False
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
    channel_scale_ : array of shape (kept..., channels, 1)
        With ``standardize``: what every channel, with its copies, is divided by.
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
    >>> found = view.filters(Z[y == 1].mean(axis=0) - Z[y == 0].mean(axis=0))
    >>> found.values.round(1) + 0.0
    array([1.4, 0. , 0. ])
    """

    reference_: Array
    whitener_: Array

    _keeps_layout = False

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "time_axis": [Integral, StrOptions({"auto"})],
        "keep": [Integral, "array-like"],
        "lags": [Interval(Integral, 0, None, closed="left")],
        "lag_step": [Interval(Integral, 1, None, closed="left")],
        "difference": ["boolean"],
        "mean": ["boolean", Interval(Real, 0, 1, closed="right")],
        "windows": [Interval(Integral, 1, None, closed="left")],
        "standardize": ["boolean"],
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
        standardize: bool = False,
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
        self.standardize = standardize
        self.shrinkage = shrinkage
        self.reference = reference
        self.tensor_shape = tensor_shape

    # --- signals -----------------------------------------------------------------------------------------------------

    def _axes(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Find the modes that are kept, those that are channels, and time."""
        shape = self.sample_shape_
        time, kept = read_time_axis(self.time_axis, shape), read_modes(self.keep, shape, "keep")
        refuse(
            time in kept, f"Expected keep to name other modes than time_axis, got {self.keep!r} and {self.time_axis}."
        )
        lost = self.difference + self.lags * self.lag_step + self.windows - 1
        refuse(
            shape[time] <= lost,
            f"Expected at least {lost + 1} times for these lags, got {shape[time]} along mode {time} of samples of shape "
            f"{shape}: use fewer lags, or name another time_axis.",
        )
        return kept, tuple(mode for mode in range(len(shape)) if mode not in (*kept, time)), time

    @property
    def _copies(self) -> int:
        return (1 + self.difference) * (1 + self.lags)

    def sizes(self, channels: int) -> tuple[int, int]:
        """Count the entries of a transformed sample of so many channels, and those that differ: matrices are symmetric."""
        c = self._copies * channels + bool(self.mean)
        return self.windows * c * c, self.windows * c * (c + 1) // 2

    def _shape_out(self) -> tuple[int, ...]:
        kept, channels, _ = self._axes()
        c = self._copies * math.prod(self.sample_shape_[mode] for mode in channels) + bool(self.mean)
        windows = (self.windows,) if self.windows > 1 else ()
        return (*(self.sample_shape_[mode] for mode in kept), *windows, c, c)

    def _row_size(self) -> int:
        return self._copies * math.prod(self.sample_shape_) + math.prod(self._shape_out())

    def _signals(self, T: Array) -> Array:
        """Arrange samples as signals (n, kept..., channels, times), with their copies."""
        xp = array_namespace(T)
        kept, channels, time = self._axes()
        T = xp.permute_dims(T, (0, *(mode + 1 for mode in (*kept, *channels, time))))
        T = xp.reshape(T, (*T.shape[: 1 + len(kept)], -1, T.shape[-1]))
        T = xp.concat([T[..., 1:], T[..., 1:] - T[..., :-1]], axis=-2) if self.difference else T
        n_times, delays = T.shape[-1], [self.lag_step * copy for copy in range(self.lags + 1)]
        T = xp.concat([T[..., delays[-1] - delay : n_times - delay] for delay in delays], axis=-2)
        if self.windows > 1:
            size = T.shape[-1] // self.windows
            cuts = [T[..., window * size : (window + 1) * size] for window in range(self.windows)]
            T = xp.stack(cuts, axis=-3)
        return T / move_to(self.channel_scale_, T, T.dtype) if hasattr(self, "channel_scale_") else T

    def _learn(self, total: Total) -> None:
        if (self.standardize or self._damps) and not hasattr(self, "n_samples_seen_"):
            levels = total(self._levels)
            power = levels.mean[..., 0]
            scale = np.sqrt(np.where(power > 0, power, 1.0)) if self.standardize else np.ones_like(power)
            if self._damps:
                apart = float(np.mean(levels.sums[0][..., 1] / levels.weight / scale**2))
                within = float(self.mean) * float(np.mean(power / scale**2))
                self.mean_scale_ = math.sqrt(within / apart) if apart > within else 1.0
            if self.standardize:
                self.channel_scale_ = scale[..., None]
        super()._learn(total)

    @property
    def _damps(self) -> bool:
        return not isinstance(self.mean, bool | np.bool_)

    def _levels(self, T: Array, weight: Array) -> Summary:
        """Find variance and mean of every channel over the times of each sample, for their means and squares over samples."""
        xp, signals = array_namespace(T), self._signals(as_dtype(T, widest(T)["dtype"]))
        levels = xp.stack([xp.var(signals, axis=-1), xp.mean(signals, axis=-1)], axis=-1)
        return summarise(levels, weight, squares)

    def _covariances(self, T: Array) -> Array:
        """Find S of every sample, in double precision."""
        T = as_dtype(T, widest(T)["dtype"])
        xp, signals = array_namespace(T), self._signals(T)
        means = xp.mean(signals, axis=-1, keepdims=True)
        signals = signals - means
        C = _shrunk(signals @ xp.matrix_transpose(signals) / signals.shape[-1], self.shrinkage, signals.shape[-1])
        if not np.finfo(np.float64).tiny < float(xp.max(C)) < np.inf:
            check_range(T, "X")
        if not self.mean:
            return C
        means = means * getattr(self, "mean_scale_", 1.0)
        ones = xp.ones((*C.shape[:-2], 1, 1), dtype=C.dtype, device=device(C))
        upper = xp.concat([C + means @ xp.matrix_transpose(means), means], axis=-1)
        return xp.concat([upper, xp.concat([xp.matrix_transpose(means), ones], axis=-1)], axis=-2)

    # --- learning and applying ---------------------------------------------------------------------------------------

    def _measure(self, T: Array, weight: Array) -> Summary:
        return summarise(self._covariances(T), weight)

    def _known(self) -> tuple[Array, list[Array]]:
        return self.reference_, []

    def _keep(self, summary: Summary) -> None:
        self.reference_ = M = summary.mean
        self.time_axis_ = self._axes()[2]
        c = M.shape[-1] - bool(self.mean)
        power = float(np.mean(np.diagonal(M, axis1=-2, axis2=-1)[..., :c]))
        self.unit_ = math.sqrt(power) if self.mean and power > 0 else 1.0
        units = np.concatenate([np.full(c, 1.0 / self.unit_), np.ones(int(bool(self.mean)))])
        eye, relative = np.eye(len(units)), units[:, None] * M * units
        # Directions in which no training sample varies stay at zero, the logarithm of one.
        self._unseen = eye - symmetric_power(relative, 0.0, rest=0.0) if self.reference else 0.0 * eye
        self.whitener_ = (symmetric_power(relative, -0.5, rest=0.0) if self.reference else eye) * units
        self._smallest = _SMALLEST * (1.0 if self.reference else float(np.mean(np.linalg.eigvalsh(relative))) or 1.0)

    def _map(self, T: Array) -> Array:
        S = self._covariances(T)
        xp, R = array_namespace(S), move_to(self.whitener_, S, S.dtype)
        S = R @ S @ xp.matrix_transpose(R) + move_to(self._unseen, S, S.dtype)
        values, vectors = xp.linalg.eigh((S + xp.matrix_transpose(S)) / 2)
        logs = xp.log(xp.clip(values, min=self._smallest))
        found = (vectors * logs[..., None, :]) @ xp.matrix_transpose(vectors)
        return (found + xp.matrix_transpose(found)) / 2  # exactly symmetric, so that half of the entries tell all

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
        places = np.ndindex(*(self.sample_shape_[mode] for mode in self._axes()[1]))
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
            pattern is positive. With ``standardize`` both are those of channels divided by ``channel_scale_``; the mean is
            that of the signals times ``mean_scale_``, where there is one.
        """
        check_is_fitted(self)
        W, shape = to_numpy(W), self._shape_out()
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


def _shrunk(C: Array, shrinkage: Any, n_times: int) -> Array:
    """Shrink covariances (..., c, c) of so many times towards the identity times their mean variance."""
    xp, c = array_namespace(C), C.shape[-1]
    level = xp.linalg.trace(C)[..., None, None] / c
    if shrinkage == "oas":
        square = xp.mean(C**2, axis=(-2, -1), keepdims=True)
        among = (n_times + 1.0) * (square - level**2 / c)
        share = (square + level**2) / xp.where(among > 0, among, xp.ones_like(among))
        shrinkage = xp.where(among > 0, xp.clip(share, max=1.0), xp.ones_like(among))
    eye = xp.eye(c, dtype=C.dtype, device=device(C))
    return (1.0 - shrinkage) * C + shrinkage * level * eye
