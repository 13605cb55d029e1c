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

# Ridges that are tried, as shares of the total variance of the features; smaller ones only where the path still rises, down to
# where rounding decides.
RIDGES = np.geomspace(1.0, 1e-6, 13)
SMALLER_RIDGES = (np.geomspace(1e-6, 1e-9, 7)[1:], np.geomspace(1e-9, 1e-12, 7)[1:])
_RISE = 1e-3  # a path still rises if the last step of its selection criterion is larger than this share of the range
_LOGISTIC_RIDGES = np.geomspace(1e-2, 1e-6, 5)

# Most numbers in the weights of one batch of ridges: larger batches would not fit in cache, and calls are few enough.
_LARGEST_BATCH = 2_000_000

# The same for one batch of folds in ``_LeaveOut``, which gains less from batches.
_LARGEST_TOGETHER = 250_000

# Folds of one batch are padded to the largest, so they are batched only if that is at most so many times their mean size.
_PADDED = 1.25

# Held-out scores differ by far more than this between neighbouring alphas: paths need no tighter gap to choose one.
_TOL = 2e-3
_FEWEST_ITERATIONS, _MOST_ITERATIONS = 4, 60  # for an alpha of our own grid
_ITERATIONS_OF_USER = 120  # for an alpha of the user, which may be far from the one before

# Logistic regression is tried up to so many weights, and so many products of weights and samples in a step.
_MOST_WEIGHTS = 2048
_MOST_PRODUCTS = 5_000_000


@dataclass(frozen=True, eq=False)
class Path:
    """Models along decreasing strengths, of A points, judged by what F folds hold out."""

    kind: str  # "ridge", "trace norm" or "logistic"
    alphas: Array  # (A,)
    ridges: Array  # (A,)
    scores: Array  # (A, F), higher is better; NaN where a fold has none
    means: Array  # (A,), the mean score over folds
    errors: Array  # (A,), its standard error
    selecting: Array  # (A,), the selection criterion; higher is better
    outcomes: Array  # (A, n), what each held-out sample adds to the score; NaN where no fold holds a sample out
    first: int  # the first point that may be chosen
    best: int  # the point where the smoothed selection criterion is best
    value: float  # the smoothed criterion there
    models: Models  # of the best point
    held_out: tuple[Array, ...]  # its scores, F times (m, K), in the units of the split

    @cached_property
    def end(self) -> str:
        """The end of the path, "largest" or "smallest", if it is best and the criterion still rises towards it; else ""."""
        return rising_end(self.selecting, self.best)

    def simplest_within_error(self) -> int:
        """Find the first point whose mean score is within one standard error of that of the best point."""
        within = self.means >= self.means[self.best] - self.errors[self.best]
        return max(self.first, int(np.argmax(within)))


def read_alphas(alphas: Any, eps: float) -> tuple[Array, bool]:
    """Return decreasing alphas, and whether they were given as such; a number of them is a grid from 1 down to ``eps``.

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


# --- the selection criterion ---------------------------------------------------------------------------------------------


def explained_variance(statistics: Array, weights: Array, *, numbers: bool = False) -> Array:
    """Find the share of the targets' variance that held-out predictions explain after calibration, averaged over targets.

    For classes the calibration is an affine map of all held-out predictions together, one scale and one offset for each target:
    it changes no ranking, so a model that ranks well but is off in size is not taken for a bad one. What is explained then is
    the squared correlation, or zero where the correlation is negative. For numbers the size of predictions counts, and the
    calibration is an offset alone.

    Parameters
    ----------
    statistics : array of shape (..., F, K, 5), as ``SplitSamples.judge`` gives them for each fold
    weights : array of shape (F,)
    numbers : whether targets are numbers
    """
    share = weights[:, None]
    mean, target, ss, yy, sy = np.moveaxis(statistics, -1, 0)  # s: predictions, y: targets
    m = (share * mean).sum(axis=-2, keepdims=True)
    t = (share * target).sum(axis=-2, keepdims=True)
    ss = (share * (ss + (mean - m) ** 2)).sum(axis=-2)
    yy = (share * (yy + (target - t) ** 2)).sum(axis=-2)
    sy = (share * (sy + (mean - m) * (target - t))).sum(axis=-2)
    varies = yy > 0
    if numbers:
        explained = np.where(varies, (2.0 * sy - ss) / np.where(varies, yy, 1.0), 0.0)
        return np.asarray(explained.mean(axis=-1))
    ranks = (sy > 0) & (ss > 1e-12 * yy) & varies
    squared_correlation = np.where(ranks, sy**2 / np.where(ranks, ss * yy, 1.0), 0.0)
    return np.asarray(squared_correlation.mean(axis=-1))


def smoothed(selecting: Array) -> Array:
    """Average the criterion (A, ...) over neighbouring points; round it, so that of equals the largest strength is chosen."""
    padded = np.concatenate([selecting[:1], selecting, selecting[-1:]])
    return np.round(0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:], 9)


def first_with_weights(selecting: Array, *, numbers: bool, by_scorer: bool, n_samples: int) -> Array:
    """Find the first alpha that can be chosen, 0 or 1, of paths (A, ...) that begin at the ``alpha_max`` of all samples.

    With the first alpha the fit to all samples has no weights, but training parts may have some: however small, these can tell
    classes apart and make it the best one. So for classes the path begins at the second alpha, where that explains more than
    chance. For numbers such small weights predict nothing.
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
    targets = split.targets
    scores = judgement.scores
    has_score = ~np.any(np.isnan(scores), axis=0)
    means, errors = np.full(len(alphas), -np.inf), np.zeros(len(alphas))
    if np.any(has_score):
        means = scores[:, has_score] @ (split.fold_weights[has_score] / split.fold_weights[has_score].sum())
        errors = corrected_error(scores[:, has_score], split.folds.ratio)
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
        Decreasing shares of the total variance of the features. None is a grid down to 1e-6, which is extended to 1e-9 and
        1e-12 as long as the selection criterion still rises at its end.
    """
    leave_out = _LeaveOut.of(split)
    grid = RIDGES if ridges is None else ridges
    judgement = _judged_ridges(split, grid, leave_out)

    def solve(point: int) -> Models:
        return _ridge_models(split, grid[point : point + 1], leave_out)

    path = _path(split, "ridge", 0.0 * grid, grid, judgement, solve)
    for smaller in SMALLER_RIDGES if ridges is None else ():
        if not still_rises(path.selecting):
            break
        judgement = _joined([judgement, _judged_ridges(split, smaller, leave_out)])
        grid = np.concatenate([grid, smaller])
        path = _path(split, "ridge", 0.0 * grid, grid, judgement, solve)
    return path


def still_rises(selecting: Array) -> bool:
    """Tell whether the selection criterion along a path (A,) still rises at its end, by a share of its range.

    Models that are far worse than none say nothing about how much there is to gain: a range above one, the share of the variance
    that a perfect model explains, counts as one.
    """
    return bool(selecting[-1] - selecting[-2] > _RISE * min(1.0, float(np.ptp(selecting))))


def _judged_ridges(split: SplitSamples, ridges: Array, leave_out: _LeaveOut | None) -> Judgement:
    """Judge ridge regressions, in batches that stay in the cache."""
    size = split.rows.shape[1] * split.n_targets * len(split.folds)
    step = max(1, _LARGEST_BATCH // size)
    judgements = []
    for start in range(0, len(ridges), step):
        judgements.append(split.judge(_ridge_models(split, ridges[start : start + step], leave_out)))
    return _joined(judgements)


def _joined(judgements: Sequence[Judgement]) -> Judgement:
    """Join the judgements of consecutive points of a path."""
    return Judgement(
        scores=np.concatenate([judgement.scores for judgement in judgements]),
        statistics=np.concatenate([judgement.statistics for judgement in judgements]),
        outcomes=np.concatenate([judgement.outcomes for judgement in judgements]),
    )


def _ridge_models(split: SplitSamples, ridges: Array, leave_out: _LeaveOut | None) -> Models:
    """Solve ridge regression in every fold: from one decomposition of all samples, else from those of the folds."""
    xp = array_namespace(split.rows)
    strengths = move_to(ridges, split.rows, split.rows.dtype)
    if leave_out is not None:
        return leave_out.models(split, strengths)
    W, b = split.squares.with_ridges(strengths)
    shape = len(ridges), len(split.folds), split.n_targets
    return Models(xp.reshape(W, (*shape, -1)), xp.reshape(b, shape))


@dataclass(frozen=True, eq=False)
class _LeaveOut:
    """Ridge regression for all folds from the principal axes of all samples, where the matrix of products is diagonal.

    The samples that a fold holds out are eliminated from the solution for all samples, see ``_without``.
    """

    squares: Array  # the diagonal (r,) of the matrix of products
    cross: Array  # the products (r, K) of coordinates and targets, which all folds share

    @classmethod
    def of(cls, split: SplitSamples) -> _LeaveOut | None:
        """Sum up the products that all folds share, or return None where this way is not open.

        It is not if samples differ in weight, or if folds see samples in different ways. Nor is it worthwhile if folds hold out
        many samples for each feature: a decomposition for each fold takes less time then.
        """
        folds = split.folds
        weight = to_numpy(split.targets.weight)
        hold_out_many = 5 * folds.sizes.max() > 3 * split.rows.shape[1]
        if split.coordinates is None or split.rows_of_fold is not None or hold_out_many or not folds.uses_all:
            return None
        if np.any(weight != weight[0]):
            return None
        xp = array_namespace(split.rows)
        rows = split.rows
        return cls(xp.sum(rows**2, axis=0), xp.matrix_transpose(rows) @ split.targets.codes)

    def models(self, split: SplitSamples, ridges: Array) -> Models:
        """Minimise the mean squared error of each fold's training samples plus ``ridge |W|^2``."""
        folds = split.folds
        K = split.n_targets
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
        """Solve without the test samples of each fold: weights (A, F, K, r) and intercepts (A, F, K).

        The problem of a fold is written as that of all samples with one more unknown for each of its m test samples, an offset
        that makes it fit exactly, so that it has no influence. Eliminating the weights, whose matrix is diagonal, leaves a system
        for the m offsets and the intercept (a Schur complement). Test sets of different sizes are padded by samples of zeros.
        """
        xp = array_namespace(split.rows)
        X = split.rows
        Y = split.targets.codes
        F = len(tests)
        m = max(len(test) for test in tests)
        index = np.zeros((F, m), dtype=int)
        is_sample = np.zeros((F, m))
        for fold, test in enumerate(tests):
            index[fold, : len(test)] = test
            is_sample[fold, : len(test)] = 1.0
        ones = move_to(is_sample, X, X.dtype)[:, :, None]
        flat = move_to(index.ravel(), X)
        borders = xp.reshape(xp.take(X, flat, axis=0), (F, m, -1)) * ones
        right_side = xp.reshape(xp.take(Y, flat, axis=0), (F, m, -1)) * ones
        corner = xp.broadcast_to(xp.eye(m, dtype=X.dtype, device=device(X)), (F, m, m))
        if split.targets.fit_intercept:
            count = xp.full_like(ones[:, :1, :], float(X.shape[0]))
            last_row = xp.concat([xp.matrix_transpose(ones), count], axis=2)
            corner = xp.concat([xp.concat([corner, ones], axis=2), last_row], axis=1)
            # The intercept is one more unknown, whose column is the sum of all samples.
            borders = xp.concat([borders, xp.broadcast_to(xp.sum(X, axis=0), (F, 1, X.shape[1]))], axis=1)
            right_side = xp.concat([right_side, xp.broadcast_to(xp.sum(Y, axis=0), (F, 1, Y.shape[1]))], axis=1)
        n = X.shape[0] - xp.sum(ones[:, :, 0], axis=1)
        inverse = 1.0 / (self.squares + ridges[:, None, None] * n[:, None])  # (A, F, r)
        system = corner - (borders * inverse[:, :, None, :]) @ xp.matrix_transpose(borders)
        offsets = xp.linalg.solve(system, right_side - borders @ (inverse[..., None] * self.cross))
        W = xp.matrix_transpose(inverse[..., None] * (self.cross - xp.matrix_transpose(borders) @ offsets))
        b = offsets[..., -1, :] if split.targets.fit_intercept else xp.zeros_like(W[..., 0])
        return W, b


# --- the trace norm ------------------------------------------------------------------------------------------------------


def trace_path(
    split: SplitSamples,
    penalty: Any,
    alphas: Array,
    *,
    ridge: float = 0.0,
    are_given: bool = False,
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
        Decreasing; shares of the smallest alpha for which all weights are zero, unless ``are_given``.
    ridge : float, default=0.0
        Strength of the squared norm besides.
    are_given : bool, default=False
        Whether alphas are the user's, in the units of the samples and targets.
    max_iter : int, default=1000
    n_jobs : int, default=None
        How many folds are solved for at the same time, in threads, where they have no problems in common.
    report : function, default=None
        Takes the share of the path that was walked after each alpha; returns whether to end it there.
    """
    norm = as_penalty(penalty, split.weights_shape)
    fits, whole = split.data_fits
    xp = array_namespace(whole.ridge)
    strength = ridge / split.ridge_unit
    whole = replace(whole, ridge=0.0 * whole.ridge + strength)
    top = float(xp.max(alpha_max(whole, norm, split.weights_shape)))
    points = alphas / split.alpha_unit if are_given else top * alphas
    limit = _ITERATIONS_OF_USER if are_given else _iterations(split)
    walks = [_FoldWalk(fit, norm, split, strength, min(max_iter, limit)) for fit in fits]
    weights = []
    intercepts = []
    judgements = []
    with Parallel(n_jobs=n_jobs if len(walks) > 1 else 1, prefer="threads") as parallel:
        solutions: list[Solution | None] = [None] * len(walks)
        alpha_before = None
        for n_walked, alpha in enumerate(points, start=1):
            calls = (
                delayed(walk.solve)(alpha, alpha_before, start) for walk, start in zip(walks, solutions, strict=True)
            )
            solved: list[Solution] = list(parallel(calls))
            models_of_walks = [walk.models(solution) for walk, solution in zip(walks, solved, strict=True)]
            solutions = [*solved]
            W = xp.concat([W_of_walk for W_of_walk, _ in models_of_walks])
            b = xp.concat([b_of_walk for _, b_of_walk in models_of_walks])
            shape = 1, len(split.folds), split.n_targets
            models = Models(xp.reshape(W, (*shape, -1)), xp.reshape(b, shape))
            weights.append(models.weights)
            intercepts.append(models.intercepts)
            judgements.append(split.judge(models))
            alpha_before = alpha
            if report is not None and report(n_walked / len(points)):
                break

    def solve(point: int) -> Models:
        return Models(weights[point], intercepts[point])

    walked = points[: len(judgements)]
    ridges = np.full(len(walked), strength)
    return _path(split, "trace norm", walked, ridges, _joined(judgements), solve, begins_at_zero=not are_given)


def _iterations(split: SplitSamples) -> int:
    """Bound the iterations of an alpha of our own grid: the more features, the fewer, since each costs their square."""
    features = int(np.prod(split.shape))
    return int(np.clip(4e6 / features**2, _FEWEST_ITERATIONS, _MOST_ITERATIONS)) if split.has_moments else 12


@dataclass(frozen=True, eq=False)
class _FoldWalk:
    """The problems of one fold, or of all of them together, along a path."""

    fit: Any  # the data fit, without its ridge
    norm: Any
    split: SplitSamples
    ridge: float
    max_iter: int  # for each alpha, and twice as many for the first

    @cached_property
    def exact(self) -> Any:
        """The data fit with its ridge."""
        return replace(self.fit, ridge=0.0 * self.fit.ridge + self.ridge)

    @cached_property
    def rough(self) -> Any:
        """The data fit in single precision where ADMM factors a matrix: accurate enough to choose by; else ``exact``."""
        is_factored = isinstance(self.exact, Squares) and self.exact.solvers.path == "admm"
        return self.exact.single() if is_factored else self.exact

    def solve(self, alpha: float, alpha_before: float | None, start: Solution | None) -> Solution:
        """Solve for one alpha, from the solution of the one before, if there is one."""
        fit = self.rough
        solver = self.exact.solvers.path
        if start is not None and start.rho is not None and alpha_before and alpha > 0:
            # The dual variables, and so the step size, scale with alpha.
            start = replace(start, rho=start.rho * float(alpha / alpha_before))
        strength = array_namespace(fit.ridge).full_like(fit.ridge, float(alpha))
        shape = self.split.weights_shape
        problems = Problems(fit, self.norm, strength, shape, fit.at_zero.value, penalised=bool(alpha > 0))
        # From the solution for the alpha before so few iterations are made that checking the gap would hardly end them earlier.
        options = {"check_every": 10 if self.max_iter > 10 else None} if solver == "admm" else {}
        max_iter = self.max_iter if start is not None else 2 * self.max_iter
        solution: Solution = SOLVERS[solver](
            problems, tol=_TOL, max_iter=max_iter, start=start, exact_ranks=False, **options
        )
        return solution

    def models(self, solution: Solution) -> tuple[Array, Array]:
        """Return the weights (F K, r) of rows, and the intercepts, of a solution in the precision of the samples."""
        W = array_namespace(solution.W).reshape(solution.W, (-1, self.fit.n_features))
        W = as_dtype(W, self.exact.ridge.dtype)
        return self.split.to_rows(W), self.exact.intercept(W)


# --- logistic regression -------------------------------------------------------------------------------------------------


def logistic_is_quick(split: SplitSamples) -> bool:
    """Tell whether logistic regression takes little time: few weights, and few products of weights and samples."""
    unknowns = split.rows.shape[1] * max(2, split.n_targets)
    return bool(unknowns <= _MOST_WEIGHTS) and unknowns * split.folds.n_samples <= _MOST_PRODUCTS


def logistic_path(split: SplitSamples) -> Path | None:
    """Try logistic regression with a squared norm; ridges are selected by the held-out log-loss.

    None where it would take long, or where a fold has no training sample of some class: intercepts would go to infinity.
    """
    if not logistic_is_quick(split) or split.rows_of_fold is not None or not split.targets.are_classes:
        return None
    xp = array_namespace(split.rows)
    X = split.rows
    codes = split.targets.codes
    has_two_classes = codes.shape[1] == 1
    if has_two_classes:
        codes = xp.concat([-codes, codes], axis=1)
    members = xp.astype(codes > 0, X.dtype)
    training = split.targets.weight * move_to(split.folds.training, X, X.dtype)
    shares = training / xp.sum(training, axis=1, keepdims=True)
    if not bool(xp.all(shares @ members > 0)):
        return None
    weights, intercepts = [], []
    options = {"fit_intercept": split.targets.fit_intercept}
    for A in softmax_regression(X, members, shares, _LOGISTIC_RIDGES.tolist(), **options):
        if has_two_classes:
            A = A[..., 1:] - A[..., :1]  # noqa: PLW2901
        weights.append(xp.matrix_transpose(A[:, :-1, :]))
        intercepts.append(A[:, -1, :])
    models = Models(xp.stack(weights), xp.stack(intercepts))
    judgement = split.judge(models)
    losses = np.empty(len(weights))
    for point in range(len(weights)):
        held_out = split.held_out_scores(models, point)
        losses[point] = split.fold_weights @ log_losses(stacked_scores(held_out, split.targets, split.folds))

    def solve(point: int) -> Models:
        return Models(models.weights[point : point + 1, ...], models.intercepts[point : point + 1, ...])

    # For two classes one row of weights takes the place of two opposite ones: twice as long, so |W|^2 is twice that of both.
    ridges = (0.5 if has_two_classes else 1.0) * _LOGISTIC_RIDGES
    return _path(split, "logistic", 0.0 * ridges, ridges, judgement, solve, selecting=-losses)
