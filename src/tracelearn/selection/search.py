"""The search: candidates, classes and folds as one batch of problems, solved along a path of alphas.

Nothing here knows estimators: it is given designs and candidates, and returns what was found on held-out samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import device
from joblib import Parallel, delayed

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, is_on_gpu, move_to, to_numpy
from tracelearn.penalties import Nuclear, Overlap, as_penalty, is_overlapped
from tracelearn.problems.batch import Problems, Solution, alpha_max
from tracelearn.problems.datafits import Squares
from tracelearn.selection.calibration import (
    ClassScores,
    class_scores,
    log_losses,
    softmax_regression,
)
from tracelearn.selection.folds import Design, Held, Together, corrected_error
from tracelearn.solvers import SOLVERS

__all__ = [
    "LARGEST_BATCH",
    "Candidate",
    "Group",
    "Table",
    "calibrated",
    "cv_results",
    "first_with_weights",
    "path",
    "read_alphas",
    "ridge_path",
    "ridges_for",
    "rising_end",
    "walk_alphas",
    "walk_logistic",
    "walk_ridges",
]

# Numbers in the weights of one batch: more would leave the cache without fewer calls. Of folds that could be solved for one by
# one, too, so many are solved for together on a processor, where calls cost little.
LARGEST_BATCH, _LARGEST_TOGETHER = 2_000_000, 250_000

# Held-out scores differ by far more than this between neighbouring alphas: paths need no tighter gap to choose one.
_TOL = 2e-3
_ITERATIONS = 4, 60  # for an alpha of our own grid, at least and at most
_GIVEN = 120  # iterations for an alpha that was given, and may be far from the one before

# Ridges that are tried alone, as shares of the total variance of the features.
_RIDGES = np.geomspace(1.0, 1e-6, 13)

# The same of logistic regression.
_SOFT_RIDGES = np.geomspace(1e-2, 1e-6, 5)


def read_alphas(alphas: Any, eps: float) -> tuple[Array, bool]:
    """Return decreasing alphas, and whether they were given; a number of them is a grid from 1 down to ``eps``.

    Examples
    --------
    >>> from tracelearn.selection.search import read_alphas
    >>> read_alphas(3, 0.01)
    (array([1.  , 0.1 , 0.01]), False)
    """
    if not isinstance(alphas, int | np.integer):
        return np.sort(read_strengths(alphas, "alphas, or a number of them,"))[::-1], True
    if alphas < 1 or not 0.0 < eps < 1.0:
        raise ValueError(f"Expected at least one alpha, and eps between 0 and 1, got alphas={alphas} and eps={eps}.")
    return np.geomspace(1.0, eps, int(alphas)), False


def read_strengths(given: Any, name: str) -> Array:
    """Return strengths of a penalty (m,), at least one, or refuse what is none.

    Examples
    --------
    >>> from tracelearn.selection.search import read_strengths
    >>> read_strengths([0.5, -1.0], "ridges")
    Traceback (most recent call last):
    ...
    ValueError: Expected ridges that are finite and not negative, at least one, got [0.5, -1.0].
    """
    try:
        found = np.atleast_1d(np.asarray(given, dtype=float))
    except (TypeError, ValueError):  # text, or lists of several lengths
        found = np.zeros(0)
    if found.ndim != 1 or not found.size or not np.all(np.isfinite(found) & (found >= 0)):
        raise ValueError(f"Expected {name} that are finite and not negative, at least one, got {given!r}.")
    return found


def rising_end(values: Array, at: int) -> str:
    """Name the end of a path, largest or smallest alpha, that was chosen while the score still rises to it; "" elsewhere.

    Where the score is level, a wider path would change nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.selection.search import rising_end
    >>> rising_end(np.array([0.0, 0.5, 0.9]), 2), rising_end(np.array([0.0, 0.899, 0.9]), 2)
    ('smallest', '')
    """
    ends = {0: ("largest", 1), len(values) - 1: ("smallest", -2)}
    if at not in ends or len(values) < 3:
        return ""
    end, neighbour = ends[at]
    return end if values[at] - values[neighbour] > 0.01 * (np.max(values) - np.min(values)) else ""


@dataclass(frozen=True)
class Candidate:
    """What is tried besides alpha: how samples are shown, which modes are penalised, some ridge."""

    view: str = "raw"
    mode_weights: tuple[float, ...] | None = None
    ridge: float = 0.0
    target_mode: bool = False
    logistic: bool = False  # ridge regression by the logistic loss


def calibrated(statistics: Array, weights: Array, *, numbers: bool = False) -> Array:
    """Find the share of the targets' variance that held-out predictions explain after calibration, averaged over targets.

    An affine map of all held-out predictions together, one scale and one offset for each target, changes neither which
    classes are told apart nor how well; a model that ranks held-out samples well but is off in size, as where persons differ,
    is not taken for a bad one. That is the squared correlation, or zero where it is negative. Predicted numbers are handed out
    as they are, so of them the size counts too: only an offset is free.

    Parameters
    ----------
    statistics : array of shape (..., F, K, 5), as ``Design.statistics`` gives them for each fold
    weights : array of shape (F,)
    numbers : whether targets are numbers
    """
    share = weights[:, None]
    mean, target, ss, yy, sy = np.moveaxis(statistics, -1, 0)
    m, t = (share * mean).sum(axis=-2, keepdims=True), (share * target).sum(axis=-2, keepdims=True)
    ss = (share * (ss + (mean - m) ** 2)).sum(axis=-2)
    yy = (share * (yy + (target - t) ** 2)).sum(axis=-2)
    sy = (share * (sy + (mean - m) * (target - t))).sum(axis=-2)
    if numbers:
        return _explained(ss, yy, sy)
    found = (sy > 0) & (ss > 1e-12 * yy) & (yy > 0)
    return np.asarray(np.where(found, sy**2 / np.where(found, ss * yy, 1.0), 0.0).mean(axis=-1))


def _explained(ss: Array, yy: Array, sy: Array) -> Array:
    """Average over targets the R² of predictions from variances and covariances (..., K)."""
    return np.asarray(np.where(yy > 0, (2.0 * sy - ss) / np.where(yy > 0, yy, 1.0), 0.0).mean(axis=-1))


@dataclass(frozen=True, eq=False)
class Table:
    """What came of a candidate: for each alpha and fold the score that is shown; for each alpha the one that selects."""

    candidate: Candidate
    design: Design
    alphas: Array  # (A,)
    ridges: Array  # (A,)
    scores: Array  # (A, F), higher is better; NaN where a fold has none
    selecting: Array  # (A,), higher is better
    held: list[list[Any]]  # for each alpha and fold the scores of what is held out, (n_f, K); a model if not in memory
    few: list[Held] | None = None  # where only some held-out samples have scores: these
    first: int = 0  # the first alpha that can be chosen, see ``first_with_weights``

    @cached_property
    def smoothed(self) -> Array:
        """What selects, averaged with its neighbours: 1, 2, 1."""
        return np.convolve(np.pad(self.selecting, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")

    @property
    def best(self) -> int:
        """The alpha that selects itself; of equal ones the largest."""
        return max(self.first, int(np.argmax(np.round(self.smoothed, 9))))

    @property
    def value(self) -> float:
        """What selects at the best alpha."""
        return float(self.smoothed[self.best])

    @cached_property
    def means(self) -> Array:
        """The mean score, for each alpha."""
        return mean_scores(self.scores, self.design.weights)

    def class_scores(self, at: int) -> list[ClassScores]:
        """Gather the held-out scores of classes at one alpha."""
        return class_scores(self.held[at], self.design.held if self.few is None else self.few, self.design.weights)

    @cached_property
    def errors(self) -> Array:
        """The standard error of the mean score, for each alpha, corrected for training sets that overlap."""
        known = self.scores[:, ~np.any(np.isnan(self.scores), axis=0)]
        return corrected_error(known, self.design.folds.ratio) if known.shape[1] else np.zeros(len(self.scores))


def first_with_weights(selecting: Array, design: Design) -> Array:
    """Find the first alpha that can be chosen, 0 or 1, of paths that begin where all samples have no weights.

    Training parts may have weights there, and however small, these tell classes apart: the second alpha is taken instead,
    where it does so by more than chance. Of numbers the size counts too: such weights are worth nothing.

    Parameters
    ----------
    selecting : array (n_alphas, ...) of what selects along each path
    """
    if design.numbers or len(selecting) < 2:
        return np.zeros(selecting.shape[1:], dtype=int)
    chance = -np.inf if design.by_score else 4.0 / design.folds.n  # two standard errors of a correlation, squared
    return np.asarray(selecting[1] > chance, dtype=int)


def mean_scores(scores: Array, weights: Array) -> Array:
    """Average scores (A, F) over folds, (A,); a fold that has none for some alpha is left out for all."""
    known = ~np.any(np.isnan(scores), axis=0)
    if not np.any(known):
        return np.full(len(scores), -np.inf)
    return np.asarray(scores[:, known] @ (weights[known] / weights[known].sum()))


# --- the trace norm, one alpha after the other ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Group:
    """Problems that are solved together: some folds of some candidates."""

    fit: Any
    exact: Any  # the same in double precision
    penalty: Any
    top: Array  # alpha_max of each problem's candidate, (B,)
    folds: tuple[int, ...]
    candidates: tuple[int, ...]


def walk_alphas(
    design: Design,
    candidates: Sequence[Candidate],
    alphas: Array,
    *,
    given: bool = False,
    penalty: Any = "overlapped",
    max_iter: int = 1000,
    n_jobs: int | None = None,
    progress: Callable[[float], bool] = lambda share: False,
) -> list[Table]:
    """Walk the path of every candidate in every fold; return a table for each.

    Parameters
    ----------
    alphas : decreasing, as shares of each candidate's ``alpha_max`` unless they were ``given``
    penalty : name or object, as estimators take it; candidates of the overlapped trace norm may have mode weights
    progress : is given the share of the walk that is done; returns whether to end it with the alphas that it has
    """
    C, F, solved = len(candidates), len(design.folds), itertools.count(1)
    found, tops = _Found.empty(design, len(alphas), C), np.ones(C)

    def run(group: Group) -> None:
        own = list(group.candidates)
        each = group.fit.n_problems // len(group.folds) // len(own)
        tops[own] = to_numpy(group.top)[: each * len(own) : each]

        def is_over() -> bool:  # no sooner: where groups of samples differ, the held-out error has several minima
            return progress(next(solved) * len(group.folds) * len(own) / (len(alphas) * C * F))

        points = path(design, group, alphas, given=given, max_iter=max_iter, is_over=is_over)
        found.judge(group.folds, own, points)

    # Threads share the samples; most of the time is spent in BLAS and LAPACK, which let go of the interpreter.
    Parallel(n_jobs=n_jobs, prefer="threads")(map(delayed(run), _groups(design, candidates, penalty)))
    tables = []
    for c, candidate in enumerate(candidates):
        own = np.asarray(alphas) * (1.0 if given else tops[c])
        table = found.table(c, candidate, own, np.full(len(own), candidate.ridge))
        tables.append(table if given else replace(table, first=int(first_with_weights(table.selecting, design))))
    return tables


def _groups(design: Design, candidates: Sequence[Candidate], penalty: Any) -> Iterator[Group]:
    """Put folds and candidates together as far as their operators allow it, and as batches are not too large."""
    stacked, most = len(design.fits) == 1, 1
    if stacked and is_overlapped(penalty):
        most = max(1, LARGEST_BATCH // (len(design.folds) * design.samples.n_targets * design.fits[0].n_features))
    for begin in range(0, len(candidates), most):
        own = candidates[begin : begin + most]
        xp, order = array_namespace(design.whole.ridge), len(design.shape)
        ridges, tops, weights = [], [], list[Any]()
        for candidate in own:
            norm = as_penalty(penalty, design.shape, candidate.mode_weights)
            tops.append(float(xp.max(alpha_max(design.whole, norm, design.shape))))
            ridges.append(candidate.ridge)
            weights.append(candidate.mode_weights or (1.0 / order,) * order)
        for f, fit in enumerate(design.fits):
            folds = tuple(range(len(design.folds))) if stacked else (f,)
            F, each = len(folds), fit.n_problems // len(folds)  # problems of one fold and candidate
            exact: Any = fit
            if len(own) > 1:
                index = np.tile(np.arange(F * each).reshape(F, 1, each), (1, len(own), 1)).ravel()
                exact = exact.take(xp.asarray(index, device=device(exact.ridge)))
            kind = {"dtype": exact.ridge.dtype, "device": device(exact.ridge)}
            exact = replace(exact, ridge=xp.asarray(np.tile(np.repeat(ridges, each), F), **kind))
            rough = exact.single() if exact.path_solver == "admm" and isinstance(exact, Squares) else exact
            kind = {"dtype": rough.ridge.dtype, "device": device(rough.ridge)}
            if order > 2 and len(set(weights)) > 1:  # each problem weighs the modes as its candidate does
                columns = xp.asarray(np.tile(np.repeat(weights, each, axis=0), (F, 1)).T, **kind)  # (N, B)
                norm = Overlap(tuple((columns[n, ...], Nuclear(n)) for n in range(order)))
            top = xp.asarray(np.tile(np.repeat(tops, each), F), **kind)
            yield Group(rough, exact, norm, top, folds, tuple(range(begin, begin + len(own))))


def path(
    design: Design,
    group: Group,
    alphas: Array,
    *,
    given: bool,
    max_iter: int,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Array, Array]]:
    """Solve for each alpha in turn, from the one before; yield rows of coordinates (B K, r) and intercepts (B K,)."""
    fit, span = group.fit, design.span
    # On our own grid: the more features, the fewer iterations, since each costs their square.
    most = int(np.clip(4e6 / fit.n_features**2, *_ITERATIONS)) if fit.path_solver == "admm" else 12
    limit = min(max_iter, _GIVEN if given else most)
    # Few iterations from the alpha before are enough to choose by, and a certificate would end none of them.
    options = {"check_every": 10 if limit > 10 else None} if fit.path_solver == "admm" else {}
    found: Solution | None = None
    before, xp = 1.0, array_namespace(group.top)
    top = xp.where(group.top > 0, group.top, xp.ones_like(group.top))
    for alpha in alphas:
        if found is not None and found.rho is not None and before > 0 and alpha > 0:
            found = replace(found, rho=found.rho * float(alpha / before))  # forces, and so the step, scale with alpha
        strength = xp.full_like(top, float(alpha)) if given else top * float(alpha)
        problems = Problems(fit, group.penalty, strength, design.shape, fit.at_zero.value, penalised=bool(alpha > 0))
        most = limit if found is not None else 2 * limit
        solver = SOLVERS[fit.path_solver]
        found = solver(problems, tol=_TOL, max_iter=most, start=found, exact_ranks=False, **options)
        before = float(alpha)
        W = as_dtype(xp.reshape(found.W, (-1, fit.n_features)), group.exact.ridge.dtype)
        b = group.exact.intercept(W)
        yield (W, b) if span is None else (W @ span.basis, b + W @ span.origin)
        if is_over():
            return


# --- ridge and logistic regression ---------------------------------------------------------------------------------------


def walk_ridges(design: Design, view: str) -> Table:
    """Try ridge regression alone, squared loss only."""
    ridges = ridges_for(design)
    found = _Found.empty(design, len(ridges), 1)
    found.judge(range(len(design.folds)), [0], ridge_path(design, ridges))
    return found.table(0, Candidate(view), np.zeros(len(ridges)), ridges)


def ridges_for(design: Design) -> Array:
    """Return the ridges that are tried: shares of the total variance of the features, the largest of the training parts."""
    whole = design.principal
    if whole is None:
        variances = design.coordinates.variances
        xp = array_namespace(variances)
        return np.asarray(_RIDGES * (float(xp.max(xp.sum(variances, axis=-1))) or 1.0))
    xp = array_namespace(whole.rows)
    train = move_to(design.folds.masks[0], whole.rows, whole.rows.dtype)
    n = xp.sum(train, axis=1)
    variance = train @ xp.sum(whole.rows**2, axis=1) / n
    if design.fit_intercept:
        variance = variance - xp.sum((train @ whole.rows / n[:, None]) ** 2, axis=1)
    largest = max(0.0, float(xp.max(variance)))  # below zero by rounding where samples are constant
    return np.asarray(_RIDGES * (largest or 1.0))


def ridge_path(design: Design, ridges: Array) -> Iterator[tuple[Array, Array]]:
    """Solve ridge regression in every fold; yield rows of coordinates (F K, r) and intercepts (F K,) for each ridge.

    From one decomposition of all samples, where a fold changes few rows of it, else from those of the folds.
    """
    whole, folds, r, K = design.principal, design.folds, design.reduced.n_features, design.samples.n_targets
    like = design.coordinates.cross if whole is None else whole.rows
    xp, each = array_namespace(like), r * K * len(folds) if whole is None else r * (K + int(folds.sizes.max()))
    most = max(1, LARGEST_BATCH // each)
    for begin in range(0, len(ridges), most):
        own = move_to(ridges[begin : begin + most], like, like.dtype)
        if whole is None:
            W, b = design.coordinates.with_ridges(own)
        else:
            parts, together = [], LARGEST_BATCH if is_on_gpu(like) else _LARGEST_TOGETHER
            for index, inside in folds.tables(max(1, together // (each * own.shape[0]))):
                table = move_to(index, like), move_to(inside, like, like.dtype)
                parts.append(whole.without(*table, own, fit_intercept=design.fit_intercept))
            rows, offsets = zip(*parts, strict=True)
            W, b = xp.concat(rows, axis=1), xp.concat(offsets, axis=1)
        for a in range(own.shape[0]):
            yield xp.reshape(W[a, ...], (-1, W.shape[-1])), xp.reshape(b[a, ...], (-1,))


def walk_logistic(design: Design, view: str) -> Table | None:
    """Try logistic regression with a squared norm, one ridge after the other; None where it would take long.

    None too where a fold leaves no sample of some class to learn from: intercepts would go to infinity.
    What selects among ridges is the held-out log-loss.
    """
    if not design.is_small or design.judge is None:
        return None
    (block,) = design.reduced.blocks
    X, codes, xp = block.X, block.Y, array_namespace(block.X)
    share, two = block.weight / xp.sum(block.weight), codes.shape[1] == 1
    Y = xp.concat([-codes, codes], axis=1) if two else codes
    centred = X - share @ X if design.fit_intercept else X
    ridges = _SOFT_RIDGES * (float(share @ xp.sum(centred**2, axis=1)) or 1.0)
    train = share * move_to(design.folds.masks[0], share, share.dtype)
    shares, Y = train / xp.sum(train, axis=1, keepdims=True), xp.astype(Y > 0, X.dtype)
    if not bool(xp.all(shares @ Y > 0)):
        return None
    paths = softmax_regression(centred, Y, shares, ridges.tolist(), fit_intercept=design.fit_intercept)
    held, scores = np.full((len(ridges), len(design.folds)), None), np.empty((len(ridges), len(design.folds)))
    for f, (_, test) in enumerate(design.folds.splits):
        rows = xp.take(centred, move_to(test, X), axis=0)
        for a, A in enumerate(paths):
            z = rows @ A[f, :-1, :] + A[f, -1, :]
            held[a, f] = z[:, 1:] - z[:, :1] if two else z
        scores[:, f] = design.judge(design.held[f], xp.stack(held[:, f].tolist(), axis=1))
    losses = np.empty(len(ridges))
    for a, row in enumerate(held.tolist()):
        losses[a] = design.weights @ log_losses(class_scores(row, design.held, design.weights))
    if two:  # they have one row of weights, twice as long as each of two
        ridges = 0.5 * ridges
    return Table(Candidate(view, logistic=True), design, 0.0 * ridges, ridges, scores, -losses, held.tolist())


# --- what is held out ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Found:
    """What was found on held-out samples, filled as paths are walked."""

    design: Design
    scores: Array  # (A, C, F)
    statistics: Array  # (A, C, F, K, 5)
    held: Array  # (A, C, F), of arrays (n_f, K), or of models: weights (K, r) and intercepts (K,)

    @classmethod
    def empty(cls, design: Design, n_alphas: int, n_candidates: int) -> _Found:
        """Begin with nothing."""
        shape = (n_alphas, n_candidates, len(design.folds))
        statistics = np.full((*shape, design.samples.n_targets, 5), np.nan)
        return cls(design, np.full(shape, np.nan), statistics, np.full(shape, None))

    def judge(self, folds: Sequence[int], own: list[int], points: Iterable[tuple[Array, Array]]) -> None:
        """Judge the models along a path, some folds of some candidates: rows of coordinates (folds x candidates x K, r).

        As many points at once as are no large batch: few large products instead of many small ones.
        """
        design, first, points = self.design, 0, iter(points)
        longest = len(folds) * design.centre.shape[0]
        if design.samples.in_memory:
            longest = max(longest, int(design.folds.sizes.max()))
        most = max(1, LARGEST_BATCH // (len(own) * design.samples.n_targets * longest))
        while some := list(itertools.islice(points, most)):
            rows, offsets = zip(*some, strict=True)
            xp, shape = array_namespace(rows[0]), (len(some), len(folds), len(own) * design.samples.n_targets)
            W, b = xp.reshape(xp.stack(rows), (*shape, -1)), xp.reshape(xp.stack(offsets), shape)
            for own_folds, held in design.held_by(folds):
                # Folds first: (G, points x candidates x K, r).
                part, offset = xp.moveaxis(W[:, own_folds, ...], 1, 0), xp.moveaxis(b[:, own_folds, :], 1, 0)
                part = xp.reshape(part, (part.shape[0], -1, part.shape[-1]))
                offset = xp.reshape(offset, (offset.shape[0], -1))
                at = slice(first, first + len(some)), own, folds[own_folds]
                self._judge_held(held, at, part, offset)
            first += len(some)

    def _judge_held(self, held: Any, at: tuple[slice, list[int], Sequence[int]], rows: Array, offset: Array) -> None:
        """Judge models of some folds, rows of coordinates (G, points x candidates x K, r) with their intercepts."""
        design, xp, (points, own, folds) = self.design, array_namespace(rows), at
        C, K, together = len(own), design.samples.n_targets, isinstance(held, Together)
        filled = points, own, slice(folds[0], folds[-1] + 1)
        rows, offset = (rows, offset) if together else (rows[0, ...], offset[0, :])
        scores = held.scores(rows, offset) if together or isinstance(held, Held) else None
        # Predictions of all folds are compared about one common mean: what folds differ in by their intercepts alone
        # says nothing about how well samples are told apart. With a link the intercept belongs to the prediction.
        linked = design.loss.curvature is None
        shift = offset if linked else -(rows @ design.centre)
        moved = scores if scores is None or linked else scores + (shift - offset)[..., None, :]
        known = to_numpy(design.statistics(held, rows, shift, moved)).reshape(len(folds), -1, C, K, 5)
        known = self.statistics[filled] = np.moveaxis(known, 0, 2)
        if scores is None:  # classes are found in one pass when all models are known
            if design.numbers:
                mean, target, ss, yy, sy = np.moveaxis(known, -1, 0)
                bias = mean - target - to_numpy(shift - offset).reshape(-1, C, 1, K)
                self.scores[filled] = _explained(ss + bias**2, yy, sy)
            W, b = xp.reshape(rows, (-1, K, rows.shape[1])), xp.reshape(offset, (-1, K))
            for m in range(W.shape[0]):
                self.held[points.start + m // C, own[m % C], folds[0]] = (W[m, ...], b[m, ...])
            return
        models = xp.reshape(scores, (*scores.shape[:-1], -1, K))
        if design.judge is not None:
            self.scores[filled] = np.moveaxis(design.judge(held, models).reshape(len(folds), -1, C), 0, 2)
        for g, f in enumerate(folds):
            one = models[g, : len(held.parts[g].index), ...] if together else models
            for m in range(one.shape[1]):
                self.held[points.start + m // C, own[m % C], f] = one[:, m, :]

    def table(self, c: int, candidate: Candidate, alphas: Array, ridges: Array) -> Table:
        """Gather what was found of a candidate."""
        design = self.design
        upto = int(np.sum(~np.any(np.isnan(self.statistics[:, c]), axis=(1, 2, 3))))
        scores, statistics = self.scores[:upto, c], self.statistics[:upto, c]
        if design.by_score:
            selecting = mean_scores(scores, design.weights)
        else:
            selecting = calibrated(statistics, design.weights, numbers=design.numbers)
        return Table(candidate, design, alphas[:upto], ridges[:upto], scores, selecting, self.held[:upto, c].tolist())


_CHOICES = ("view", "mode_weights", "ridge", "target_mode", "loss")


def cv_results(tables: Sequence[Table], best: Table, at: int, loss: Any) -> tuple[dict[str, Any], int]:
    """Write all tables in scikit-learn's form, a row for each candidate and alpha; find the row of the alpha that was chosen."""
    parameters: list[dict[str, Any]] = []
    scores, means, chosen = [], [], -1
    for table in tables:
        chosen = len(parameters) + at if table is best else chosen
        own = asdict(table.candidate)
        own["loss"] = "logistic" if own.pop("logistic") else loss
        for alpha, ridge in zip(table.alphas.tolist(), table.ridges.tolist(), strict=True):
            parameters.append(own | {"alpha": alpha, "ridge": ridge})
        scores.append(table.scores)
        means.append(table.means)
    split, mean = np.concatenate(scores), np.concatenate(means)
    masked: Any = np.ma
    found: dict[str, Any] = {}
    for name in ("alpha", *_CHOICES):  # columns of any values, tuples included, as scikit-learn's searches have them
        found[f"param_{name}"] = masked.MaskedArray(np.empty(len(parameters), dtype=object))
        for i, row in enumerate(parameters):
            found[f"param_{name}"][i] = row[name]
    found["params"] = parameters
    for f in range(split.shape[1]):
        found[f"split{f}_test_score"] = split[:, f]
    found["mean_test_score"] = mean
    found["std_test_score"] = np.nanstd(split, axis=1)
    found["rank_test_score"] = 1 + np.sum(mean[None, :] > mean[:, None], axis=1).astype(np.int32)
    return found, chosen
