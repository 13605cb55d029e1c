"""Regularisation paths of all folds: ridge regression, the trace norm, logistic regression, each judged by held-out samples.

Every path is one frozen ``Path``. Alphas and ridges are in the units of the samples and targets that were split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import device
from joblib import Parallel, delayed

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, move_to, to_numpy
from tracelearn.penalties import as_penalty
from tracelearn.problems.problem import Problems, Solution, alpha_max
from tracelearn.problems.squares import Squares
from tracelearn.search.folds import corrected_error
from tracelearn.search.softmax import log_losses, softmax_regression, stacked_scores
from tracelearn.search.splits import Judgement, Models, SplitSamples
from tracelearn.solvers import SOLVERS

__all__ = [
    "RIDGES",
    "Path",
    "explained_variance",
    "first_with_weights",
    "logistic_path",
    "read_alphas",
    "read_strengths",
    "ridge_path",
    "rising_end",
    "smoothed",
    "trace_path",
]

# Ridges that are tried, as shares of the total variance of the features; the smaller ones only where the path still rises.
RIDGES = np.geomspace(1.0, 1e-6, 13)
SMALLER_RIDGES = np.geomspace(1e-6, 1e-9, 7)[1:]
_RISE = 1e-3  # of the range of what selects: such a last step is a path that rises
_LOGISTIC_RIDGES = np.geomspace(1e-2, 1e-6, 5)

# Numbers in the weights of one batch: more would leave the cache without fewer calls. Of folds that could be solved for one by
# one, too, so many are solved for together.
_LARGEST_BATCH, _LARGEST_TOGETHER = 2_000_000, 250_000

# Folds are solved for together where the longest one is at most so many times as long as the mean.
_PADDED = 1.25

# Held-out scores differ by far more than this between neighbouring alphas: paths need no tighter gap to choose one.
_TOL = 2e-3
_ITERATIONS = 4, 60  # for an alpha of our own grid, at least and at most
_ITERATIONS_OF_GIVEN = 120  # for an alpha that was given, and may be far from the one before

# Logistic regression is tried up to so many weights, and so many numbers read for each of them.
_MOST_WEIGHTS, _MOST_PRODUCTS = 2048, 5_000_000


@dataclass(frozen=True, eq=False)
class Path:
    """Models along decreasing strengths, of A points, judged by what F folds hold out."""

    kind: str  # "ridge", "trace norm" or "logistic"
    alphas: Array  # (A,)
    ridges: Array  # (A,)
    scores: Array  # (A, F), higher is better; NaN where a fold has none
    means: Array  # (A,), the mean score over folds
    errors: Array  # (A,), its standard error
    selecting: Array  # (A,), what selects; higher is better
    outcomes: Array  # (A, n), what each held-out sample adds to the score; NaN where no fold holds a sample out
    first: int  # the first point that may be chosen
    best: int  # the point of the best smoothed value of what selects, and that value
    value: float
    models: Models  # of the best point
    held_out: tuple[Array, ...]  # its scores, F times (m, K), in the units of the split

    @cached_property
    def end(self) -> str:
        """The end of the path that is best while what selects still rises to it: "largest", "smallest" or ""."""
        return rising_end(self.selecting, self.best)

    def simplest_within_error(self) -> int:
        """Find the first point whose mean score is within one standard error of that of the best point."""
        within = self.means >= self.means[self.best] - self.errors[self.best]
        return max(self.first, int(np.argmax(within)))


def read_alphas(alphas: Any, eps: float) -> tuple[Array, bool]:
    """Return decreasing alphas, and whether they were given; a number of them is a grid from 1 down to ``eps``.

    Examples
    --------
    >>> from tracelearn.search.paths import read_alphas
    >>> read_alphas(3, 0.01)
    (array([1.  , 0.1 , 0.01]), False)
    """
    if not isinstance(alphas, int | np.integer):
        return np.sort(read_strengths(alphas, "alphas, or a number of them,"))[::-1], True
    if alphas < 1 or not 0.0 < eps < 1.0:
        raise ValueError(f"Expected at least one alpha, and eps between 0 and 1, got alphas={alphas} and eps={eps}.")
    return np.geomspace(1.0, eps, int(alphas)), False


def read_strengths(strengths: Any, name: str) -> Array:
    """Return strengths of a penalty (m,), at least one, or refuse what is none.

    Examples
    --------
    >>> from tracelearn.search.paths import read_strengths
    >>> read_strengths([0.5, -1.0], "ridges")
    Traceback (most recent call last):
    ...
    ValueError: Expected ridges that are finite and not negative, at least one, got [0.5, -1.0].
    """
    try:
        values = np.atleast_1d(np.asarray(strengths, dtype=float))
    except (TypeError, ValueError):  # text, or lists of several lengths
        values = np.zeros(0)
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values) & (values >= 0)):
        raise ValueError(f"Expected {name} that are finite and not negative, at least one, got {strengths!r}.")
    return values


# --- what selects --------------------------------------------------------------------------------------------------------


def explained_variance(statistics: Array, weights: Array, *, numbers: bool = False) -> Array:
    """Find the share of the targets' variance that held-out predictions explain after calibration, averaged over targets.

    An affine map of all held-out predictions together, one scale and one offset for each target, changes neither which
    classes are told apart nor how well; a model that ranks held-out samples well but is off in size, as where persons differ,
    is not taken for a bad one. That is the squared correlation, or zero where it is negative. Predicted numbers are handed out
    as they are, so of them the size counts too: only an offset is free.

    Parameters
    ----------
    statistics : array of shape (..., F, K, 5), as ``SplitSamples.judge`` gives them for each fold
    weights : array of shape (F,)
    numbers : whether targets are numbers
    """
    share = weights[:, None]
    mean, target, ss, yy, sy = np.moveaxis(statistics, -1, 0)
    m, t = (share * mean).sum(axis=-2, keepdims=True), (share * target).sum(axis=-2, keepdims=True)
    ss = (share * (ss + (mean - m) ** 2)).sum(axis=-2)
    yy = (share * (yy + (target - t) ** 2)).sum(axis=-2)
    sy = (share * (sy + (mean - m) * (target - t))).sum(axis=-2)
    varies = yy > 0
    if numbers:
        return np.asarray(np.where(varies, (2.0 * sy - ss) / np.where(varies, yy, 1.0), 0.0).mean(axis=-1))
    ranks = (sy > 0) & (ss > 1e-12 * yy) & varies
    return np.asarray(np.where(ranks, sy**2 / np.where(ranks, ss * yy, 1.0), 0.0).mean(axis=-1))


def smoothed(selecting: Array) -> Array:
    """Average what selects (A, ...) with its neighbours, and round it, so that of equal strengths the largest is chosen."""
    padded = np.concatenate([selecting[:1], selecting, selecting[-1:]])
    return np.round(0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:], 9)


def first_with_weights(selecting: Array, *, numbers: bool, by_scorer: bool, n_samples: int) -> Array:
    """Find the first alpha that can be chosen, 0 or 1, of paths (A, ...) that begin where all samples have no weights.

    Training parts may have weights there, and however small, these tell classes apart: the second alpha is taken instead,
    where it does so by more than chance. Of numbers the size counts too: such weights are worth nothing.
    """
    if numbers or len(selecting) < 2:
        return np.zeros(selecting.shape[1:], dtype=int)
    chance = -np.inf if by_scorer else 4.0 / n_samples  # two standard errors of a correlation, squared
    return np.asarray(selecting[1] > chance, dtype=int)


def rising_end(values: Array, point: int) -> str:
    """Name the end of a path, largest or smallest strength, that was chosen while the values still rise to it; "" elsewhere.

    Where they are level, a wider path would change nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.search.paths import rising_end
    >>> rising_end(np.array([0.0, 0.5, 0.9]), 2), rising_end(np.array([0.0, 0.899, 0.9]), 2)
    ('smallest', '')
    """
    ends = {0: ("largest", 1), len(values) - 1: ("smallest", -2)}
    if point not in ends or len(values) < 3:
        return ""
    end, neighbour = ends[point]
    return end if values[point] - values[neighbour] > 0.01 * (np.max(values) - np.min(values)) else ""


def _path(
    split: SplitSamples,
    kind: str,
    alphas: Array,
    ridges: Array,
    judgement: Judgement,
    solve: Callable[[int], Models],
    *,
    selecting: Array | None = None,
    begins_at_zero: bool = False,
) -> Path:
    """Find the best point of a path; ``solve`` makes the models of one point."""
    targets, scores = split.targets, judgement.scores
    known = ~np.any(np.isnan(scores), axis=0)
    means, errors = np.full(len(alphas), -np.inf), np.zeros(len(alphas))
    if np.any(known):
        means = scores[:, known] @ (split.fold_weights[known] / split.fold_weights[known].sum())
        errors = corrected_error(scores[:, known], split.folds.ratio)
    by_scorer = targets.scorer is not None
    if selecting is None:
        selecting = means
        if not by_scorer:
            numbers = not targets.are_classes
            selecting = explained_variance(judgement.statistics, split.fold_weights, numbers=numbers)
    first = 0
    if begins_at_zero:
        n_samples = split.folds.n_samples
        numbers = not targets.are_classes
        first = int(first_with_weights(selecting, numbers=numbers, by_scorer=by_scorer, n_samples=n_samples))
    values = smoothed(selecting)
    best = max(first, int(np.argmax(values)))
    models = solve(best)
    return Path(
        kind=kind,
        alphas=split.alpha_unit * alphas,
        ridges=split.ridge_unit * ridges,
        scores=scores,
        means=means,
        errors=errors,
        selecting=selecting,
        outcomes=judgement.outcomes,
        first=first,
        best=best,
        value=float(values[best]),
        models=models,
        held_out=tuple(split.held_out_scores(models)),
    )


# --- ridge regression ----------------------------------------------------------------------------------------------------


def ridge_path(split: SplitSamples, ridges: Array | None = None) -> Path:
    """Try ridge regression with the squared loss.

    Parameters
    ----------
    split : SplitSamples
        Of a loss that has moments.
    ridges : array of shape (A,), default=None
        Decreasing shares of the total variance of the features. None is a grid down to 1e-6, or to 1e-9 where what selects
        still rises there.
    """
    leave_out = _LeaveOut.of(split)
    grid = RIDGES if ridges is None else ridges
    judgement = _judged_ridges(split, grid, leave_out)

    def solve(point: int) -> Models:
        return _ridge_models(split, grid[point : point + 1], leave_out)

    path = _path(split, "ridge", 0.0 * grid, grid, judgement, solve)
    if ridges is not None or np.diff(path.selecting)[-1] <= _RISE * np.ptp(path.selecting):
        return path
    smaller = _judged_ridges(split, SMALLER_RIDGES, leave_out)
    grid = np.concatenate([grid, SMALLER_RIDGES])
    return _path(split, "ridge", 0.0 * grid, grid, _joined([judgement, smaller]), solve)


def _judged_ridges(split: SplitSamples, ridges: Array, leave_out: _LeaveOut | None) -> Judgement:
    """Judge ridge regressions, as many at once as are no large batch."""
    size = split.rows.shape[1] * split.n_targets * len(split.folds)
    step = max(1, _LARGEST_BATCH // size)
    parts = []
    for start in range(0, len(ridges), step):
        parts.append(split.judge(_ridge_models(split, ridges[start : start + step], leave_out)))
    return _joined(parts)


def _joined(parts: Sequence[Judgement]) -> Judgement:
    scores, statistics, outcomes = zip(*parts, strict=True)
    return Judgement(np.concatenate(scores), np.concatenate(statistics), np.concatenate(outcomes))


def _ridge_models(split: SplitSamples, ridges: Array, leave_out: _LeaveOut | None) -> Models:
    """Solve ridge regression in every fold: from one decomposition of all samples, else from those of the folds."""
    xp, K, r = array_namespace(split.rows), split.n_targets, split.rows.shape[1]
    strengths = move_to(ridges, split.rows, split.rows.dtype)
    if leave_out is not None:
        return leave_out.models(split, strengths)
    W, b = split.squares.with_ridges(strengths)
    shape = len(ridges), len(split.folds), K
    return Models(xp.reshape(W, (*shape, r)), xp.reshape(b, shape))


@dataclass(frozen=True, eq=False)
class _LeaveOut:
    """All samples in coordinates whose matrix of products is diagonal: ridge regression without some of them is soon done."""

    squares: Array  # the diagonal (r,) of the matrix of products
    cross: Array  # the products (r, K) of coordinates and targets, which all folds share

    @classmethod
    def of(cls, split: SplitSamples) -> _LeaveOut | None:
        """Prepare what the ridge regressions of all folds share.

        Not where samples differ in weight or are seen by folds in several ways, or where folds hold out many samples for each
        feature: their own decompositions take less time then.
        """
        folds, weight = split.folds, to_numpy(split.targets.weight)
        many = 5 * folds.sizes.max() > 3 * split.rows.shape[1]
        if split.coordinates is None or split.rows_of_fold is not None or many or not folds.uses_all:
            return None
        if np.any(weight != weight[0]):
            return None
        xp, rows = array_namespace(split.rows), split.rows
        return cls(xp.sum(rows**2, axis=0), xp.matrix_transpose(rows) @ split.targets.codes)

    def models(self, split: SplitSamples, ridges: Array) -> Models:
        """Minimise the mean squared error of each fold's training samples plus ``ridge |W|^2``."""
        folds, K = split.folds, split.n_targets
        alike = folds.sizes.max() <= _PADDED * folds.sizes.mean()
        size = split.rows.shape[1] * (K + int(folds.sizes.max())) * ridges.shape[0]
        together = max(1, _LARGEST_TOGETHER // size) if alike else 1
        weights, intercepts = [], []
        for start in range(0, len(folds), together):
            W, b = self._without(split, [test for _, test in folds.splits[start : start + together]], ridges)
            weights.append(W)
            intercepts.append(b)
        xp = array_namespace(split.rows)
        return Models(xp.concat(weights, axis=1), xp.concat(intercepts, axis=1))

    def _without(self, split: SplitSamples, tests: Sequence[Array], ridges: Array) -> tuple[Array, Array]:
        """Solve without the samples of each fold: weights (A, F, K, r) and intercepts (A, F, K).

        Samples that are left out get an unknown in their target each, so that they fit themselves and pull at nothing. With the
        intercept that is one system of so many unknowns, besides the diagonal one of the coordinates. Shorter folds are padded
        by samples of zeros.
        """
        xp, X, Y = array_namespace(split.rows), split.rows, split.targets.codes
        m, F = max(map(len, tests)), len(tests)
        index, inside = np.zeros((F, m), dtype=int), np.zeros((F, m))
        for fold, test in enumerate(tests):
            index[fold, : len(test)] = test
            inside[fold, : len(test)] = 1.0
        ones = move_to(inside, X, X.dtype)[:, :, None]
        flat = move_to(index.ravel(), X)
        left = xp.reshape(xp.take(X, flat, axis=0), (F, m, -1)) * ones
        target = xp.reshape(xp.take(Y, flat, axis=0), (F, m, -1)) * ones
        known = xp.broadcast_to(xp.eye(m, dtype=X.dtype, device=device(X)), (F, m, m))
        if split.targets.fit_intercept:
            count = xp.full_like(ones[:, :1, :], float(X.shape[0]))
            last = xp.concat([xp.matrix_transpose(ones), count], axis=2)
            known = xp.concat([xp.concat([known, ones], axis=2), last], axis=1)
            # And the sum of all samples.
            left = xp.concat([left, xp.broadcast_to(xp.sum(X, axis=0), (F, 1, X.shape[1]))], axis=1)
            target = xp.concat([target, xp.broadcast_to(xp.sum(Y, axis=0), (F, 1, Y.shape[1]))], axis=1)
        n = X.shape[0] - xp.sum(ones[:, :, 0], axis=1)
        inverse = 1.0 / (self.squares + ridges[:, None, None] * n[:, None])  # (A, F, r)
        system = known - (left * inverse[:, :, None, :]) @ xp.matrix_transpose(left)
        unknown = xp.linalg.solve(system, target - left @ (inverse[..., None] * self.cross))
        W = xp.matrix_transpose(inverse[..., None] * (self.cross - xp.matrix_transpose(left) @ unknown))
        b = unknown[..., -1, :] if split.targets.fit_intercept else xp.zeros_like(W[..., 0])
        return W, b


# --- the trace norm ------------------------------------------------------------------------------------------------------


def trace_path(
    split: SplitSamples,
    penalty: Any,
    alphas: Array,
    *,
    ridge: float = 0.0,
    given: bool = False,
    max_iter: int = 1000,
    n_jobs: int | None = None,
    report: Callable[[float], bool] | None = None,
) -> Path:
    """Walk down the path of a trace norm, or of any penalty, in every fold, each alpha from the one before.

    Parameters
    ----------
    split : SplitSamples
    penalty : name or object
    alphas : array of shape (A,)
        Decreasing; shares of the smallest alpha for which all weights are zero, unless they were ``given``.
    ridge : float, default=0.0
        Strength of the squared norm besides.
    given : bool, default=False
        Whether alphas are in the units of the samples.
    max_iter : int, default=1000
    n_jobs : int, default=None
        How many folds are solved for at the same time, in threads, where they have no problems in common.
    report : function, default=None
        Is given the share of the path that was walked after each alpha; returns whether to end it there.
    """
    norm = as_penalty(penalty, split.weights_shape)
    fits, whole = split.data_fits
    xp = array_namespace(whole.ridge)
    strength = ridge / split.ridge_unit
    whole = replace(whole, ridge=0.0 * whole.ridge + strength)
    top = float(xp.max(alpha_max(whole, norm, split.weights_shape)))
    points = alphas / split.alpha_unit if given else top * alphas
    limit = _ITERATIONS_OF_GIVEN if given else _iterations(split)
    walks = [_FoldWalk(fit, norm, split, strength, min(max_iter, limit)) for fit in fits]
    weights, intercepts, judgements = [], [], []
    with Parallel(n_jobs=n_jobs if len(walks) > 1 else 1, prefer="threads") as parallel:
        solutions: list[Solution | None] = [None] * len(walks)
        before = None
        for k, alpha in enumerate(points):
            calls = (delayed(walk.step)(alpha, before, start) for walk, start in zip(walks, solutions, strict=True))
            results = list(parallel(calls))
            solutions = [solution for solution, _ in results]
            parts = [models for _, models in results]
            W = xp.concat([part[0] for part in parts])
            b = xp.concat([part[1] for part in parts])
            shape = 1, len(split.folds), split.n_targets
            models = Models(xp.reshape(W, (*shape, -1)), xp.reshape(b, shape))
            weights.append(models.weights)
            intercepts.append(models.intercepts)
            judgements.append(split.judge(models))
            before = alpha
            if report is not None and report((k + 1) / len(points)):
                break

    def solve(point: int) -> Models:
        return Models(weights[point], intercepts[point])

    walked = points[: len(judgements)]
    ridges = np.full(len(walked), strength)
    return _path(split, "trace norm", walked, ridges, _joined(judgements), solve, begins_at_zero=not given)


def _iterations(split: SplitSamples) -> int:
    """Bound the iterations of an alpha of our own grid: the more features, the fewer, since each costs their square."""
    features = int(np.prod(split.shape))
    return int(np.clip(4e6 / features**2, *_ITERATIONS)) if split.has_moments else 12


@dataclass(frozen=True, eq=False)
class _FoldWalk:
    """The problems of one fold, or of all of them together, along a path."""

    fit: Any
    norm: Any
    split: SplitSamples
    ridge: float
    limit: int

    @cached_property
    def exact(self) -> Any:
        """The data fit with its ridge."""
        return replace(self.fit, ridge=0.0 * self.fit.ridge + self.ridge)

    @cached_property
    def rough(self) -> Any:
        """The same in single precision, for squares that are factored: enough to choose by."""
        is_factored = isinstance(self.exact, Squares) and self.exact.solvers.path == "admm"
        return self.exact.single() if is_factored else self.exact

    def step(self, alpha: float, before: float | None, start: Solution | None) -> tuple[Solution, tuple[Array, Array]]:
        """Solve for one alpha from the solution of the one before; return it, and weights of rows with intercepts."""
        fit, name = self.rough, self.exact.solvers.path
        if start is not None and start.rho is not None and before and alpha > 0:
            start = replace(start, rho=start.rho * float(alpha / before))  # forces, and so the step, scale with alpha
        strength = array_namespace(fit.ridge).full_like(fit.ridge, float(alpha))
        shape = self.split.weights_shape
        problems = Problems(fit, self.norm, strength, shape, fit.at_zero.value, penalised=bool(alpha > 0))
        # Few iterations from the alpha before are enough to choose by, and a certificate would end none of them.
        options = {"check_every": 10 if self.limit > 10 else None} if name == "admm" else {}
        most = self.limit if start is not None else 2 * self.limit
        solution = SOLVERS[name](problems, tol=_TOL, max_iter=most, start=start, exact_ranks=False, **options)
        xp = array_namespace(solution.W)
        W = as_dtype(xp.reshape(solution.W, (-1, fit.n_features)), self.exact.ridge.dtype)
        return solution, (self.split.to_rows(W), self.exact.intercept(W))


# --- logistic regression -------------------------------------------------------------------------------------------------


def is_small(split: SplitSamples) -> bool:
    """Tell whether logistic regression is soon done: with few weights, and few numbers read for each of them."""
    unknowns = split.rows.shape[1] * max(2, split.n_targets)
    return bool(unknowns <= _MOST_WEIGHTS) and unknowns * split.folds.n_samples <= _MOST_PRODUCTS


def logistic_path(split: SplitSamples) -> Path | None:
    """Try logistic regression with a squared norm; what selects among ridges is the held-out log-loss.

    None where it would take long, or where a fold has no training sample of some class: intercepts would go to infinity.
    """
    if not is_small(split) or split.rows_of_fold is not None or not split.targets.are_classes:
        return None
    X, codes, xp = split.rows, split.targets.codes, array_namespace(split.rows)
    two = codes.shape[1] == 1
    members = xp.astype((xp.concat([-codes, codes], axis=1) if two else codes) > 0, X.dtype)
    training = split.targets.weight * move_to(split.folds.training, X, X.dtype)
    shares = training / xp.sum(training, axis=1, keepdims=True)
    if not bool(xp.all(shares @ members > 0)):
        return None
    weights, intercepts = [], []
    options = {"fit_intercept": split.targets.fit_intercept}
    for both in softmax_regression(X, members, shares, _LOGISTIC_RIDGES.tolist(), **options):
        A = both[..., 1:] - both[..., :1] if two else both
        weights.append(xp.matrix_transpose(A[:, :-1, :]))
        intercepts.append(A[:, -1, :])
    models = Models(xp.stack(weights), xp.stack(intercepts))
    judgement = split.judge(models)
    losses = np.empty(len(weights))
    for point in range(len(weights)):
        held_out = split.held_out_scores(models, point)
        losses[point] = split.fold_weights @ log_losses(stacked_scores(held_out, split))

    def solve(point: int) -> Models:
        return Models(models.weights[point : point + 1, ...], models.intercepts[point : point + 1, ...])

    # Two classes have one row of weights, twice as long as each of two.
    ridges = (0.5 if two else 1.0) * _LOGISTIC_RIDGES
    return _path(split, "logistic", 0.0 * ridges, ridges, judgement, solve, selecting=-losses)
