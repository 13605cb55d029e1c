"""LaggedRegressor: continuous recordings from other ones, through weights of low rank over lags and features.

The moments of lagged features are autocovariances: those of two lags differ from those of the two lags before by what enters
at one end of a recording and leaves at the other. So no lagged copy is made, and recordings add up like samples do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array
from tracelearn.errors import InputError, brief
from tracelearn.estimators.base import TraceNormModel, settings_of
from tracelearn.estimators.scores import r_squared
from tracelearn.estimators.weights import WeightsInModes
from tracelearn.fitting import Fitted, fit_linear, warn_of_fit
from tracelearn.moments import Moments
from tracelearn.samples.checks import check_range, real_numbers
from tracelearn.samples.learning import learning
from tracelearn.samples.per_sample import read_targets
from tracelearn.samples.reading import Spec
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["LaggedRegressor", "lagged_moments"]

_BLOCK_ROWS = 4096  # times of a block that stays in cache with all its lags


def lagged_moments(x: Array, y: Array, first: int, last: int) -> Moments:
    """Summarise one recording: the moments of ``x(t - l)``, l from first to last, with ``y(t)``, where all lags exist.

    Parameters
    ----------
    x : array of shape (n, f)
    y : array of shape (n, K)

    Returns
    -------
    Moments
        Of the features (lags, f), flattened; of weight zero where the recording is shorter than the lags.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.estimators.lagged import lagged_moments
    >>> from tracelearn.moments import Moments
    >>> x, y = np.random.default_rng(0).normal(size=(2, 9, 2))
    >>> lagged = np.stack([x[1:], x[:-1]], axis=1)  # now, and one time before
    >>> bool(np.allclose(lagged_moments(x, y, 0, 1).gram, Moments.of(lagged, y[1:]).gram))
    True
    """
    n, f = x.shape
    L = last - first + 1
    begin = max(last, 0)
    end = n + min(first, 0)
    m = end - begin
    if m < 1:
        return Moments.zero(L * f, y.shape[1])
    shift = x.mean(axis=0)
    x = x - shift
    y_mean = y[begin:end].mean(axis=0)
    Y = y[begin:end] - y_mean
    first_block_row = np.zeros((L, f, f))  # of the gram matrix: products of x at the first lag with x at every lag
    cross = np.zeros((L, f, y.shape[1]))
    for start in range(0, m, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, m)
        x_at_first_lag = x[begin - first + start : begin - first + stop]
        for j in range(L):
            x_at_lag = x[begin - first - j + start : begin - first - j + stop]
            first_block_row[j] += x_at_first_lag.T @ x_at_lag
            cross[j] += x_at_lag.T @ Y[start:stop]
    # The times that lag l + 1 sees are those of lag l, one earlier: one time enters at the beginning, and one leaves at the end.
    # So the block of two lags follows from that of the two lags before, down every diagonal of blocks.
    offsets = -first - 1 - np.arange(L - 1)
    enters, leaves = x[begin + offsets], x[end + offsets]
    gram = np.empty((L, f, L, f))
    sums = np.empty((L, f))
    gram[0] = np.moveaxis(first_block_row, 0, 1)
    sums[0] = x[begin - first : end - first].sum(axis=0)
    for j in range(L - 1):
        difference = enters[j][:, None, None] * enters - leaves[j][:, None, None] * leaves
        gram[j + 1, :, 1:] = gram[j, :, :-1] + difference
        gram[j + 1, :, 0] = first_block_row[j + 1].T
        sums[j + 1] = sums[j] + enters[j] - leaves[j]
    gram = gram.reshape(L * f, L * f)
    mean = sums.ravel() / m
    gram = 0.5 * (gram + gram.T) - m * np.outer(mean, mean)
    return Moments(float(m), np.tile(shift, L) + mean, y_mean, gram, cross.reshape(L * f, -1), np.sum(Y**2, axis=0))


class LaggedRegressor(RegressorMixin, WeightsInModes, BaseEstimator):
    """Linear models of continuous recordings over lags, with weights of low rank: receptive fields, speech, stimuli.

    Predicts ``y(t) = sum_l <w_l, x(t - l)> + b`` and minimises the mean squared error plus ``alpha`` times a norm of the weights
    (lags, features), by default the trace norm: few temporal profiles, each with its pattern over features. With ``alpha=0`` it
    is the ridge regression of MNE's ``TimeDelayingRidge``, whose alpha is ``ridge`` times the number of times.

    A forward model has a stimulus as X and a recording as y; a backward model has them the other way round, lags that are not
    positive, and ``patterns_`` to look at.

    Parameters
    ----------
    lags : int or pair of ints, default=10
        A number L means lags 0 to L - 1, a pair the first and the last one. Positive lags look back in X.
    alpha : float or "auto", default="auto"
        As in ``TraceNormRegressor``: "auto" does not depend on units.
    ridge : float, default=0.0
    penalty, mode_weights, fit_intercept, solver, tol, max_iter
        As in ``TraceNormRegressor``; the modes are lags and features.
    target_mode : bool, default=False
        Whether the outputs form one more mode of one weight tensor, so that they share temporal profiles and patterns.
    edges : {"drop", "zero"}, default="drop"
        What is beyond the ends of a segment: times that would need it are left out, or it is zero, as in MNE.
    forgetting : float in (0, 1], default=1.0
        The factor by which each call of ``partial_fit`` multiplies the weight of all earlier times.

    Attributes
    ----------
    coef_ : array of shape (lags, features), or (outputs, lags, features) for y of two axes
    intercept_ : float, or array of shape (outputs,)
    lags_ : array of shape (lags,)
    patterns_ : array of the shape of ``coef_``
        Where the signal is: ``Cov(X) W`` (Haufe et al., 2014).
    mode_ranks_, mode_factors_ : as in ``TraceNormRegressor``, of lags and features
    alpha_, n_iter_, objective_, dual_gap_, convergence_ : as in ``TraceNormRegressor``
    moments_ : Moments
        All that was learned.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import LaggedRegressor
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(2000, 3))
    >>> y = x[:, 0] + 0.5 * np.roll(x[:, 0], 2) + 0.1 * rng.normal(size=2000)
    >>> model = LaggedRegressor(lags=4).fit(x, y)
    >>> np.round(np.abs(model.coef_[:, 0]), 1), model.score(x, y) > 0.9
    (array([1. , 0. , 0.5, 0. ]), True)
    """

    lags_: Array
    n_features_in_: int
    loss = "squared_error"  # the one that has moments
    scaling = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{
            name: TraceNormModel._parameter_constraints[name]
            for name in (
                "alpha",
                "ridge",
                "penalty",
                "mode_weights",
                "target_mode",
                "fit_intercept",
                "solver",
                "tol",
                "max_iter",
                "forgetting",
            )
        },
        "lags": [Interval(Integral, 1, None, closed="left"), tuple, list],
        "edges": [StrOptions({"drop", "zero"})],
    }

    def __init__(
        self,
        lags: Any = 10,
        alpha: Any = "auto",
        *,
        ridge: float = 0.0,
        penalty: Any = "overlapped",
        mode_weights: Any = None,
        target_mode: bool = False,
        fit_intercept: bool = True,
        edges: str = "drop",
        solver: Any = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        forgetting: float = 1.0,
    ) -> None:
        self.lags = lags
        self.alpha = alpha
        self.ridge = ridge
        self.penalty = penalty
        self.mode_weights = mode_weights
        self.target_mode = target_mode
        self.fit_intercept = fit_intercept
        self.edges = edges
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.forgetting = forgetting

    @learning
    def fit(self, X: Any, y: Any = None, segments: Any = None) -> Self:
        """Learn from recordings.

        Parameters
        ----------
        X : array of shape (n_times, n_features)
        y : array of shape (n_times,) or (n_times, n_outputs)
        segments : array of ints of shape (n_times,), default=None
            Where it changes another recording begins, and no lag reaches across; times of a negative number are a gap.
        """
        return self._learn(X, y, segments, None)

    @learning
    def partial_fit(self, X: Any, y: Any = None, segments: Any = None) -> Self:
        """Learn from more recordings, which begin where none was before; parameters are those of ``fit``."""
        return self._learn(X, y, segments, getattr(self, "moments_", None))

    def _learn(self, X: Any, y: Any, segments: Any, past: Moments | None) -> Self:
        """Add recordings to what was learned from earlier ones, and solve."""
        spec, moments = self._summarised(X, y, segments)
        if past is not None:
            self._check_like_before(spec)
            moments = past.scaled(float(self.forgetting)) + moments
        settings = settings_of(self)
        fitted = fit_linear(moments, spec, settings, start=None if past is None else self._warm_start)
        warn_of_fit(fitted, settings, "TraceNormRegressor")  # whose CV can choose alpha
        self._publish(spec, moments, fitted)
        return self

    def _summarised(self, X: Any, y: Any, segments: Any) -> tuple[Spec, Moments]:
        """Check recordings; return the ``Spec`` of their lagged features, and the moments of these over all segments."""
        first, last = _first_and_last(self.lags)
        x = _read_recording(X)
        targets = read_targets(y, x)
        check_range(x, "X")
        check_range(targets, "y")
        is_single = targets.ndim == 1
        targets = targets[:, None] if is_single else targets
        shape = (last - first + 1, x.shape[1])
        moments = Moments.zero(shape[0] * shape[1], targets.shape[1])
        for recording in _slices_of_segments(segments, len(x)):
            segment_x = self._with_edges(x[recording], first, last)
            segment_y = self._with_edges(targets[recording], first, last)
            moments = moments + lagged_moments(segment_x, segment_y, first, last)
        if moments.weight == 0.0:
            raise InputError(
                f"Expected a segment longer than lags {first} to {last} reach, got none: use longer segments, fewer lags, or "
                "edges='zero'."
            )
        return Spec(shape, np.dtype(np.float64), targets.shape[1], is_single=is_single), moments

    def _check_like_before(self, spec: Spec) -> None:
        """Refuse recordings of other lags, features or outputs than those before."""
        first, last = _first_and_last(self.lags)
        if (first, last) != (self.lags_[0], self.lags_[-1]):
            raise InputError(
                f"Expected lags {self.lags_[0]} to {self.lags_[-1]} as before, got {first} to {last}: use fit to learn others."
            )
        before = self._spec
        if (spec.sample_shape, spec.n_targets) != (before.sample_shape, before.n_targets):
            raise InputError(
                f"Expected {self.n_features_in_} features and {before.n_targets} outputs as before, got "
                f"{spec.sample_shape[1]} and {spec.n_targets}: only recordings of one kind can be learned from together."
            )

    def _publish(self, spec: Spec, moments: Moments | None, fitted: Fitted | None) -> None:
        """Write all fitted attributes; ``n_features_in_`` counts the columns of X, of which samples are lagged copies."""
        super()._publish(spec, moments, fitted)
        first, last = _first_and_last(self.lags)
        self.lags_ = np.arange(first, last + 1)
        self.n_features_in_ = spec.sample_shape[1]

    def _with_edges(self, table: Array, first: int, last: int) -> Array:
        """Add zeros beyond the ends of a segment, unless edges are dropped; targets there are never used."""
        return table if self.edges == "drop" else np.pad(table, ((max(last, 0), max(-first, 0)), (0, 0)))

    def predict(self, X: Any, segments: Any = None) -> Array:
        """Predict every time; NaN where a lag is beyond the end of a segment and ``edges="drop"``, and in gaps."""
        check_is_fitted(self)
        x = _read_recording(X)
        if x.shape[1] != self.n_features_in_:
            raise InputError(
                f"Expected {self.n_features_in_} features as in fit, got {x.shape[1]}: select those of fit."
            )
        W = np.reshape(self.coef_, (-1, len(self.lags_), self.n_features_in_))
        predictions = np.full((len(x), len(W)), np.nan)
        first = int(self.lags_[0])
        last = int(self.lags_[-1])
        for recording in _slices_of_segments(segments, len(x)):
            segment = self._with_edges(x[recording], first, last)
            begin = max(last, 0)
            end = len(segment) + min(first, 0)
            if end > begin:
                scores = sum(segment[begin - lag : end - lag] @ W[:, j].T for j, lag in enumerate(self.lags_))
                start = recording.start + (0 if self.edges == "zero" else begin)
                predictions[start : start + end - begin] = scores + self.intercept_
        return predictions[:, 0] if self._spec.is_single else predictions

    def score(self, X: Any, y: Any, segments: Any = None) -> float:
        """Return R² over the times that can be predicted, averaged over outputs."""
        predictions = self.predict(X, segments)
        predictions = predictions.reshape(len(predictions), -1)
        targets = read_targets(y, predictions).reshape(len(predictions), -1)
        if targets.shape != predictions.shape:
            raise InputError(
                f"Expected {predictions.shape[1]} outputs as in fit, got {targets.shape[1]}: pass those of fit."
            )
        is_predicted = np.isfinite(predictions[:, 0])
        if np.sum(is_predicted) < 2:
            raise InputError("Expected at least two times that can be predicted, got fewer: use longer segments.")
        return r_squared(targets[is_predicted], predictions[is_predicted])


def _first_and_last(lags: Any) -> tuple[int, int]:
    """Read the parameter ``lags``, a number of lags or a pair; return the first and the last lag."""
    limits = (0, lags - 1) if isinstance(lags, Integral) else tuple(lags)
    if len(limits) != 2 or not all(isinstance(lag, Integral) for lag in limits) or limits[0] > limits[1]:
        raise InputError(f"Expected lags to be a number of them, or the first and the last one, got {brief(lags)}.")
    return int(limits[0]), int(limits[1])


def _read_recording(X: Any) -> Array:
    """Check a recording: finite numbers, one row for each time and one column for each feature."""
    x = real_numbers(X, "X").astype(np.float64)
    if x.ndim != 2 or 0 in x.shape:
        raise InputError(f"Expected X of shape (n_times, n_features), none of them zero, got {x.shape}.")
    if not np.all(np.isfinite(x)):
        raise InputError("Expected finite numbers in X, got others: mark gaps by negative numbers in segments.")
    return x


def _slices_of_segments(segments: Any, n: int) -> Iterator[slice]:
    """Find where segments begin and end; those of negative numbers are gaps."""
    if segments is None:
        yield slice(0, n)
        return
    numbers = np.asarray(segments)
    if numbers.shape != (n,) or numbers.dtype.kind not in "iu":
        raise InputError(
            f"Expected segments to be one whole number for each of {n} times, got {numbers.dtype} values of shape "
            f"{numbers.shape}."
        )
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1), n]
    for start, stop in pairwise(cuts):
        if numbers[start] >= 0:
            yield slice(int(start), int(stop))
