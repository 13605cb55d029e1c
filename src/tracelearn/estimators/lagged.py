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
from tracelearn.errors import brief
from tracelearn.estimators.base import TraceNormModel, settings_of
from tracelearn.estimators.regressor import TraceNormRegressor
from tracelearn.estimators.scores import r_squared
from tracelearn.estimators.weights import WeightsInModes
from tracelearn.fitting import Fitted, WarmStart, fit_linear, warn_of_fit
from tracelearn.moments import Moments
from tracelearn.samples.checks import check_range, learning
from tracelearn.samples.reading import Spec
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["LaggedRegressor", "lagged_moments"]

# Parameters of the model of lagged features.
_OF_MODEL = (
    "alpha",
    "ridge",
    "penalty",
    "mode_weights",
    "target_mode",
    "fit_intercept",
    "solver",
    "tol",
    "max_iter",
)

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
    row = np.zeros((L, f, f))
    cross = np.zeros((L, f, y.shape[1]))
    for start in range(0, m, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, m)
        now = x[begin - first + start : begin - first + stop].T
        for j in range(L):
            later = x[begin - first - j + start : begin - first - j + stop]
            row[j] += now @ later
            cross[j] += later.T @ Y[start:stop]
    # Lag l + 1 sees what lag l sees, and one time more at the beginning, one less at the end.
    before = -first - 1 - np.arange(L - 1)
    enters, leaves = x[begin + before], x[end + before]
    gram = np.empty((L, f, L, f))
    sums = np.empty((L, f))
    gram[0] = np.moveaxis(row, 0, 1)
    sums[0] = x[begin - first : end - first].sum(axis=0)
    for j in range(L - 1):
        step = enters[j][:, None, None] * enters - leaves[j][:, None, None] * leaves
        gram[j + 1, :, 1:] = gram[j, :, :-1] + step
        gram[j + 1, :, 0] = row[j + 1].T
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
    mode_ranks_, mode_factors_, dual_gap_ : as in ``TraceNormRegressor``, of lags and features
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
    moments_: Moments
    _spec: Spec
    _warm_start: WarmStart | None = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{name: TraceNormModel._parameter_constraints[name] for name in (*_OF_MODEL, "forgetting")},
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
        spec, moments = self._summarised(X, y, segments)
        self._publish(spec, moments, self._fitted(spec, moments, None))
        return self

    @learning
    def partial_fit(self, X: Any, y: Any = None, segments: Any = None) -> Self:
        """Learn from more recordings, which begin where none was before; parameters are those of ``fit``."""
        spec, moments = self._summarised(X, y, segments)
        past = getattr(self, "moments_", None)
        start = None
        if past is not None:
            self._check_like_before(moments)
            moments = past.scaled(float(self.forgetting)) + moments
            start = self._warm_start
        self._publish(spec, moments, self._fitted(spec, moments, start))
        return self

    def _summarised(self, X: Any, y: Any, segments: Any) -> tuple[Spec, Moments]:
        """Check recordings; return the ``Spec`` of their lagged features, and the moments of these over all segments."""
        first, last = self._range()
        if y is None:
            raise ValueError(
                "Expected one target for each time: fit requires y to be passed, but the target y is None."
            )
        x = _read_table(X, "X")
        targets = _targets(y, len(x))
        check_range(x, "X")
        check_range(targets, "y")
        shape = (last - first + 1, x.shape[1])
        moments = Moments.zero(shape[0] * shape[1], targets.shape[1])
        for recording in _recordings(segments, len(x)):
            padded = self._padded(x[recording], targets[recording], (first, last))
            moments = moments + lagged_moments(*padded, first, last)
        if moments.weight == 0.0:
            raise ValueError(
                f"Expected a segment longer than lags {first} to {last} reach, got none: use longer segments, fewer lags, or "
                "edges='zero'."
            )
        return Spec(shape, np.dtype(np.float64), targets.shape[1], is_single=np.ndim(y) == 1), moments

    def _check_like_before(self, moments: Moments) -> None:
        """Refuse recordings of other lags, features or outputs than those before."""
        first, last = self._range()
        if not np.array_equal(self.lags_, np.arange(first, last + 1)):
            raise ValueError(
                f"Expected lags {self.lags_[0]} to {self.lags_[-1]} as before, got {first} to {last}: use fit to learn others."
            )
        past = self.moments_
        if (past.n_features, past.n_targets) != (moments.n_features, moments.n_targets):
            raise ValueError(
                f"Expected {past.n_features} lagged features and {past.n_targets} outputs as before, got {moments.n_features} "
                f"and {moments.n_targets}: only recordings of one kind can be learned from together."
            )

    def _fitted(self, spec: Spec, moments: Moments, start: WarmStart | None) -> Fitted:
        """Solve for moments."""
        settings = settings_of(TraceNormRegressor(**{name: getattr(self, name) for name in _OF_MODEL}))
        fitted = fit_linear(moments, spec, settings, start=start)
        warn_of_fit(fitted, settings, "TraceNormRegressor")
        return fitted

    def _publish(self, spec: Spec, moments: Moments, fitted: Fitted) -> None:
        """Write all fitted attributes: nothing else does."""
        first, last = self._range()
        targets = () if spec.is_single else (spec.n_targets,)
        self._spec = spec
        self.lags_ = np.arange(first, last + 1)
        self.sample_shape_ = spec.sample_shape  # of the weights: lags, features
        self.n_features_in_ = spec.sample_shape[1]
        self.moments_ = moments
        self.alpha_ = float(np.max(fitted.alpha))
        self.coef_ = np.reshape(fitted.coef, (*targets, *spec.sample_shape))
        self.intercept_ = float(fitted.intercept[0]) if spec.is_single else fitted.intercept
        self.patterns_ = np.reshape(fitted.patterns, self.coef_.shape)
        self.objective_ = fitted.objective
        self.dual_gap_ = fitted.gap
        self.n_iter_ = fitted.n_iter
        self._warm_start = fitted.warm_start

    def _range(self) -> tuple[int, int]:
        """Check ``lags``; return the first and the last lag."""
        limits = (0, self.lags - 1) if isinstance(self.lags, Integral) else tuple(self.lags)
        if len(limits) != 2 or not all(isinstance(lag, Integral) for lag in limits) or limits[0] > limits[1]:
            raise ValueError(
                f"Expected lags to be a number of them, or the first and the last one, got {brief(self.lags)}."
            )
        return int(limits[0]), int(limits[1])

    def _padded(self, x: Array, y: Array | None, lags: tuple[int, int]) -> tuple[Array, Any]:
        """Add zeros beyond the ends of a segment, unless edges are dropped; targets there are never used."""
        if self.edges == "drop":
            return x, y
        first, last = lags
        around = ((max(last, 0), max(-first, 0)), (0, 0))
        return np.pad(x, around), None if y is None else np.pad(y, around)

    def predict(self, X: Any, segments: Any = None) -> Array:
        """Predict every time; NaN where a lag is beyond the end of a segment and ``edges="drop"``, and in gaps."""
        check_is_fitted(self)
        x = _read_table(X, "X")
        if x.shape[1] != self.n_features_in_:
            raise ValueError(f"Expected {self.n_features_in_} features, got {x.shape[1]}.")
        W = np.reshape(self.coef_, (-1, len(self.lags_), self.n_features_in_))
        predictions = np.full((len(x), len(W)), np.nan)
        first = int(self.lags_[0])
        last = int(self.lags_[-1])  # those of the weights
        for recording in _recordings(segments, len(x)):
            padded, _ = self._padded(x[recording], None, (first, last))
            begin = max(last, 0)
            end = len(padded) + min(first, 0)
            if end > begin:
                total = sum(padded[begin - lag : end - lag] @ W[:, j].T for j, lag in enumerate(self.lags_))
                start = recording.start + (0 if self.edges == "zero" else begin)
                predictions[start : start + end - begin] = total + self.intercept_
        return predictions[:, 0] if self._spec.is_single else predictions

    def score(self, X: Any, y: Any, segments: Any = None) -> float:
        """Return R² over the times that can be predicted, averaged over outputs."""
        predictions = self.predict(X, segments)
        predictions = predictions[:, None] if self._spec.is_single else predictions
        targets = _targets(y, len(predictions))
        if targets.shape != predictions.shape:
            raise ValueError(f"Expected {predictions.shape[1]} outputs, got {targets.shape[1]}.")
        is_predicted = np.isfinite(predictions[:, 0])
        if np.sum(is_predicted) < 2:
            raise ValueError("Expected at least two times that can be predicted, got fewer: use longer segments.")
        return r_squared(targets[is_predicted], predictions[is_predicted])


def _read_table(values: Any, name: str) -> Array:
    """Check a recording: numbers, one row for each time and one column for each feature or output."""
    table = np.asarray(values)
    if table.dtype.kind not in "biufO":
        raise ValueError(f"Expected real numbers in {name}, got {table.dtype}.")
    table = table.astype(float)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"Expected {name} of shape (n_times, n_columns), none of them zero, got {table.shape}.")
    if not np.all(np.isfinite(table)):
        raise ValueError(f"Expected finite numbers in {name}, got others: mark gaps by negative numbers in segments.")
    return table


def _targets(y: Any, n: int) -> Array:
    """Read one target, or a row of them, for each of n times."""
    targets = _read_table(np.asarray(y)[:, None] if np.ndim(y) == 1 else y, "y")
    if len(targets) != n:
        raise ValueError(f"Expected as many targets as times, {n}, got {len(targets)}.")
    return targets


def _recordings(segments: Any, n: int) -> Iterator[slice]:
    """Find where segments begin and end; those of negative numbers are gaps."""
    if segments is None:
        yield slice(0, n)
        return
    numbers = np.asarray(segments)
    if numbers.shape != (n,) or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"Expected segments to be one whole number for each of {n} times, got {numbers.dtype} values of shape "
            f"{numbers.shape}."
        )
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1), n]
    for start, stop in pairwise(cuts):
        if numbers[start] >= 0:
            yield slice(int(start), int(stop))
