"""The search: candidates, classes and folds as one batch of problems, solved along a path of alphas.

It is given designs and candidates, and returns what was found on held-out samples: a table for each candidate, and of classes
also what makes probabilities of scores.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device
from joblib import Parallel, delayed

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, is_on_gpu, move_to, to_numpy
from tracelearn.arrays.linalg import conjugate_gradients
from tracelearn.estimators.scores import r_squared
from tracelearn.losses import Loss, softmax
from tracelearn.penalties import Nuclear, Overlap, as_penalty, is_overlapped
from tracelearn.problems.problem import Problems, Solution, alpha_max
from tracelearn.problems.squares import Squares
from tracelearn.search.folds import Design, Held, corrected_error, found_classes
from tracelearn.search.scorers import scored, with_scores
from tracelearn.solvers import SOLVERS

__all__ = [
    "LARGEST_BATCH",
    "MOST_HELD",
    "RIDGES",
    "Candidate",
    "ClassScores",
    "Group",
    "Judge",
    "Table",
    "calibrated",
    "class_map",
    "class_scores",
    "cv_results",
    "factors",
    "first_with_weights",
    "log_losses",
    "path",
    "read_alphas",
    "ridge_path",
    "rising_end",
    "softmax_regression",
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
RIDGES = np.geomspace(1.0, 1e-6, 13)

# The same of logistic regression.
_SOFT_RIDGES = np.geomspace(1e-2, 1e-6, 5)

# How strongly a map between classes is drawn to the identity; it is learned from few numbers, as many as held-out samples.
_PULL = 1e-2

# Held-out samples that a factor and a map are learned from: more make no difference to K^2 numbers.
MOST_HELD = 4000

# Steps of Newton's method at most, and the share of the log-loss that a step lowers it by when that is enough.
_STEPS, _ENOUGH = 50, 1e-6
_FEW = 4  # steps after which a GPU is asked whether they are enough: a look waits for all of them
_NOTHING = 1e-12  # of a log-loss: where there is but one class, every step lowers what is left by as much


def read_alphas(alphas: Any, eps: float) -> tuple[Array, bool]:
    """Return decreasing alphas, and whether they were given; a number of them is a grid from 1 down to ``eps``.

    Examples
    --------
    >>> from tracelearn.search.search import read_alphas
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
    >>> from tracelearn.search.search import read_strengths
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
    >>> from tracelearn.search.search import rising_end
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


class Table:
    """What came of a candidate: for each alpha and fold the score that is shown; for each alpha the one that selects.

    Parameters
    ----------
    alphas, ridges : arrays (A,)
    scores : array (A, F), higher is better; NaN where a fold has none, which is then left out for all alphas
    parts : array (A, H) of the scores (G, m, K) of each part of what is held out; of a model if that is not in memory
    statistics : array (A, F, K, 5), see ``calibrated``; NaN from the alpha on where a walk has ended
    selecting : array (A,), higher is better; None: from the statistics, or the mean score where that selects
    few : where only some held-out samples have scores: these
    first : the first alpha that can be chosen; None: see ``first_with_weights``
    """

    def __init__(
        self,
        candidate: Candidate,
        design: Design,
        alphas: Array,
        ridges: Array,
        scores: Array,
        parts: Array,
        statistics: Array,
        selecting: Array | None = None,
        few: list[Held] | None = None,
        first: int | None = 0,
    ) -> None:
        upto = int(np.sum(~np.any(np.isnan(statistics), axis=(1, 2, 3))))
        self.candidate, self.design, self.few, self.statistics = candidate, design, few, statistics[:upto]
        self.alphas, self.ridges, self.scores, self.parts = alphas[:upto], ridges[:upto], scores[:upto], parts[:upto]
        known = ~np.any(np.isnan(self.scores), axis=0)
        self.means, self.errors = np.full(upto, -np.inf), np.zeros(upto)
        if np.any(known):
            self.means = self.scores[:, known] @ (design.weights[known] / design.weights[known].sum())
            self.errors = corrected_error(self.scores[:, known], design.folds.ratio)
        if selecting is None:
            selecting = self.means
            if not design.by_score:
                selecting = calibrated(self.statistics, design.weights, numbers=design.numbers)
        self.selecting = selecting
        self.first = int(first_with_weights(selecting, design)) if first is None else first
        # Averaged with its neighbours; of equal alphas the largest.
        smoothed = np.convolve(np.pad(selecting, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")
        self.best = max(self.first, int(np.argmax(np.round(smoothed, 9))))
        self.value = float(smoothed[self.best])


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


# --- the trace norm, one alpha after the other ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Group:
    """Problems that are solved together: some folds of some candidates."""

    fit: Any
    exact: Any  # the same in double precision
    penalty: Any
    top: Array  # alpha_max of each problem's candidate, (B,)
    share: float = 1.0  # of all problems of a walk


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
    progress : is given the share of the walk that an alpha was; returns whether to end it with the alphas that it has
    """
    found, tops = _Found(design, len(alphas), len(candidates)), np.ones(len(candidates))
    walk = partial(path, design, alphas=alphas, given=given, max_iter=max_iter, progress=progress)
    # Threads share the samples; most of the time is spent in BLAS and LAPACK, which let go of the interpreter.
    Parallel(n_jobs=n_jobs, prefer="threads")(_jobs(found, candidates, penalty, walk, tops))
    tables = []
    for c, candidate in enumerate(candidates):
        own = np.asarray(alphas) * (1.0 if given else tops[c])
        kept = found.scores[:, c], found.parts[:, c], found.statistics[:, c]
        # A path of our own begins where all samples have no weights.
        tables.append(
            Table(candidate, design, own, np.full(len(own), candidate.ridge), *kept, first=0 if given else None)
        )
    return tables


def _jobs(
    found: _Found, candidates: Sequence[Candidate], penalty: Any, walk: Callable[..., Any], tops: Array
) -> Iterator[Any]:
    """Put folds and candidates together as far as their operators allow it, and as batches are not too large.

    Yields calls that walk the path of some of them and judge it; fills in the ``alpha_max`` of each candidate.
    """
    design = found.design
    (fits, whole), most = design.fits, 1
    stacked = len(fits) == 1
    if stacked and len(candidates) > 1 and is_overlapped(penalty):
        most = max(1, LARGEST_BATCH // (design.folds.count * design.samples.n_targets * design.samples.n_features))
    for begin in range(0, len(candidates), most):
        own = candidates[begin : begin + most]
        xp, order = array_namespace(whole.ridge), len(design.shape)
        ridges, largest, weights = [], [], list[Any]()
        for candidate in own:
            norm = as_penalty(penalty, design.shape, candidate.mode_weights)
            largest.append(float(xp.max(alpha_max(whole, norm, design.shape))))
            ridges.append(candidate.ridge)
            weights.append(candidate.mode_weights or (1.0 / order,) * order)
        for f, fit in enumerate(fits):
            folds = tuple(range(design.folds.count)) if stacked else (f,)
            F, each = len(folds), fit.ridge.shape[0] // len(folds)  # problems of one fold and candidate
            exact: Any = fit
            if len(own) > 1:
                index = np.tile(np.arange(F * each).reshape(F, 1, each), (1, len(own), 1)).ravel()
                exact = exact.take(xp.asarray(index, device=device(exact.ridge)))
            kind = {"dtype": exact.ridge.dtype, "device": device(exact.ridge)}
            exact = replace(exact, ridge=xp.asarray(np.tile(np.repeat(ridges, each), F), **kind))
            rough = exact.single() if exact.solvers.path == "admm" and isinstance(exact, Squares) else exact
            kind = {"dtype": rough.ridge.dtype, "device": device(rough.ridge)}
            if order > 2 and len(set(weights)) > 1:  # each problem weighs the modes as its candidate does
                columns = xp.asarray(np.tile(np.repeat(weights, each, axis=0), (F, 1)).T, **kind)  # (N, B)
                norm = Overlap(tuple((columns[n, ...], Nuclear(n)) for n in range(order)))
            top = xp.asarray(np.tile(np.repeat(largest, each), F), **kind)
            tops[begin : begin + len(own)] = to_numpy(top)[: each * len(own) : each]
            points = walk(Group(rough, exact, norm, top, F * len(own) / (len(candidates) * design.folds.count)))
            yield delayed(found.fill)(folds, list(range(begin, begin + len(own))), points)


def path(
    design: Design,
    group: Group,
    alphas: Array,
    *,
    given: bool,
    max_iter: int,
    progress: Callable[[float], bool] = lambda share: False,
) -> Iterator[tuple[Array, Array]]:
    """Solve for each alpha in turn, from the one before; yield rows of coordinates (B K, r) and intercepts (B K,)."""
    fit, span, name = group.fit, design.span, group.fit.solvers.path
    # On our own grid: the more features, the fewer iterations, since each costs their square.
    most = int(np.clip(4e6 / design.samples.n_features**2, *_ITERATIONS)) if name == "admm" else 12
    limit = min(max_iter, _GIVEN if given else most)
    # Few iterations from the alpha before are enough to choose by, and a certificate would end none of them.
    options = {"check_every": 10 if limit > 10 else None} if name == "admm" else {}
    found: Solution | None = None
    before, xp = 1.0, array_namespace(group.top)
    top = xp.where(group.top > 0, group.top, xp.ones_like(group.top))
    for alpha in alphas:
        if found is not None and found.rho is not None and before > 0 and alpha > 0:
            found = replace(found, rho=found.rho * float(alpha / before))  # forces, and so the step, scale with alpha
        strength = xp.full_like(top, float(alpha)) if given else top * float(alpha)
        problems = Problems(fit, group.penalty, strength, design.shape, fit.at_zero.value, penalised=bool(alpha > 0))
        most = limit if found is not None else 2 * limit
        found = SOLVERS[name](problems, tol=_TOL, max_iter=most, start=found, exact_ranks=False, **options)
        before = float(alpha)
        W = as_dtype(xp.reshape(found.W, (-1, design.samples.n_features)), group.exact.ridge.dtype)
        b = group.exact.intercept(W)
        yield (W, b) if span is None else (W @ span.basis, b + W @ span.origin)
        # No sooner than asked to: where groups of samples differ, the held-out error has several minima.
        if progress(group.share / len(alphas)):
            return


# --- ridge and logistic regression ---------------------------------------------------------------------------------------


def walk_ridges(design: Design, view: str) -> Table:
    """Try ridge regression alone, squared loss only; ridges are shares of the total variance of the features."""
    ridges = RIDGES * (design.source.variance or 1.0)
    found = _Found(design, len(ridges), 1)
    found.fill(range(design.folds.count), [0], ridge_path(design, ridges))
    kept = found.scores[:, 0], found.parts[:, 0], found.statistics[:, 0]
    return Table(Candidate(view), design, np.zeros(len(ridges)), ridges, *kept)


def ridge_path(design: Design, ridges: Array) -> Iterator[tuple[Array, Array]]:
    """Solve ridge regression in every fold; yield rows of coordinates (F K, r) and intercepts (F K,) for each ridge.

    From one decomposition of all samples, where a fold changes few rows of it, else from those of the folds.
    """
    whole, folds, r, K = design.principal, design.folds, design.reduced.n_features, design.samples.n_targets
    like = design.moments.training.cross if whole is None else whole.rows
    xp, each = array_namespace(like), r * K * folds.count if whole is None else r * (K + int(folds.sizes.max()))
    most = max(1, LARGEST_BATCH // each)
    for begin in range(0, len(ridges), most):
        own = move_to(ridges[begin : begin + most], like, like.dtype)
        if whole is None:
            W, b = design.moments.training.with_ridges(own)
        else:
            parts, together = [], LARGEST_BATCH if is_on_gpu(like) else _LARGEST_TOGETHER
            step = max(1, together // (each * own.shape[0])) if folds.are_alike else 1
            for first in range(0, folds.count, step):
                some = slice(first, first + step), slice(int(folds.sizes[first : first + step].max()))
                table = move_to(folds.index[some], like), move_to(folds.inside[some], like, like.dtype)
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
    if not design.is_small:
        return None
    (block,) = design.reduced.blocks
    X, codes, xp = block.X, block.Y, array_namespace(block.X)
    share, two = block.weight / xp.sum(block.weight), codes.shape[1] == 1
    Y = xp.concat([-codes, codes], axis=1) if two else codes
    spread = xp.sum((X - share @ X if design.fit_intercept else X) ** 2, axis=1)
    ridges = _SOFT_RIDGES * (float(share @ spread) or 1.0)
    train = share * move_to(design.folds.masks[0], share, share.dtype)
    shares, Y = train / xp.sum(train, axis=1, keepdims=True), xp.astype(Y > 0, X.dtype)
    if not bool(xp.all(shares @ Y > 0)):
        return None
    found, points = _Found(design, len(ridges), 1), []
    for both in softmax_regression(X, Y, shares, ridges.tolist(), fit_intercept=design.fit_intercept):
        A = both[..., 1:] - both[..., :1] if two else both
        points.append((xp.reshape(xp.matrix_transpose(A[:, :-1, :]), (-1, X.shape[1])), xp.reshape(A[:, -1, :], (-1,))))
    found.fill(range(design.folds.count), [0], points)
    losses = np.empty(len(ridges))
    for a, parts in enumerate(found.parts[:, 0]):
        losses[a] = design.weights @ log_losses(class_scores(parts, design.held, design.weights))
    if two:  # they have one row of weights, twice as long as each of two
        ridges = 0.5 * ridges
    kept = found.scores[:, 0], found.parts[:, 0], found.statistics[:, 0]
    return Table(Candidate(view, logistic=True), design, 0.0 * ridges, ridges, *kept, selecting=-losses)


# --- what is held out ----------------------------------------------------------------------------------------------------


class _Found:
    """What was found on held-out samples, filled as paths are walked."""

    def __init__(self, design: Design, n_alphas: int, n_candidates: int) -> None:
        shape = n_alphas, n_candidates, design.folds.count
        self.design, self.scores = design, np.full(shape, np.nan)  # (A, C, F)
        self.statistics = np.full((*shape, design.samples.n_targets, 5), np.nan)
        # Of arrays (G, m, K), or of models: weights (K, r) and intercepts (K,).
        self.parts = np.full((n_alphas, n_candidates, len(design.held)), None)
        whole = design.source if design.is_square else design.fits[1]
        # The mean of all samples.
        self.centre = whole.centre if design.is_square else whole.x_mean + getattr(whole, "origin", 0.0)

    def fill(self, folds: Sequence[int], own: list[int], points: Iterable[tuple[Array, Array]]) -> None:
        """Judge the models along a path, some folds of some candidates: rows of coordinates (folds x candidates x K, r).

        As many points at once as are no large batch: few large products instead of many small ones.
        """
        design, first, points = self.design, 0, iter(points)
        longest, together = len(folds) * self.centre.shape[0], design.folds.count // len(design.held)
        if design.samples.in_memory:
            longest = max(longest, int(design.folds.sizes.max()))
        most = max(1, LARGEST_BATCH // (len(own) * design.samples.n_targets * longest))
        while some := list(itertools.islice(points, most)):
            rows, offsets = zip(*some, strict=True)
            xp, shape = array_namespace(rows[0]), (len(some), len(folds), len(own) * design.samples.n_targets)
            W, b = xp.reshape(xp.stack(rows), (*shape, -1)), xp.reshape(xp.stack(offsets), shape)
            at = slice(first, first + len(some)), own
            for k in range(0, len(folds), together):
                # Folds first: (G, points x candidates x K, r).
                some_folds = slice(k, k + together)
                part, offset = xp.moveaxis(W[:, some_folds, ...], 1, 0), xp.moveaxis(b[:, some_folds, :], 1, 0)
                part = xp.reshape(part, (together, -1, part.shape[-1]))
                self._fill_part(folds[k] // together, at, part, xp.reshape(offset, (together, -1)))
            first += len(some)

    def _fill_part(self, h: int, at: tuple[slice, list[int]], rows: Array, offset: Array) -> None:
        """Judge models on one part of what is held out: rows of coordinates (G, points x candidates x K, r), intercepts."""
        design, held, xp, (points, own) = self.design, self.design.held[h], array_namespace(rows), at
        G, C, K = rows.shape[0], len(own), design.samples.n_targets
        filled = points, own, slice(h * G, (h + 1) * G)
        scores, shift, statistics = design.statistics(held, rows, offset, self.centre)
        known = to_numpy(statistics).reshape(G, -1, C, K, 5)
        mean, target, ss, yy, sy = np.moveaxis(known, -1, 0)
        self.statistics[filled] = np.moveaxis(known, 0, 2)
        if scores is None:  # a model is kept; classes are found in one pass when all are known
            models: Any = list(zip(xp.reshape(rows, (-1, K, rows.shape[2])), xp.reshape(offset, (-1, K)), strict=True))
            if design.numbers:
                bias = mean - target - to_numpy(shift - offset).reshape(mean.shape)
                self.scores[filled] = np.moveaxis(_explained(ss + bias**2, yy, sy), 0, 2)
        else:
            models = xp.reshape(scores, (*scores.shape[:2], -1, K))
            if design.judge is not None:
                self.scores[filled] = np.moveaxis(design.judge(held, models).reshape(G, -1, C), 0, 2)
        for m in range(known.shape[1] * C):
            found = models[m] if scores is None else models[:, :, m, :]
            self.parts[points.start + m // C, own[m % C], h] = found


@dataclass(frozen=True, eq=False)
class Judge:
    """What held-out scores are worth, as it is shown: by the user's scorer, by the classes found, or for numbers by R²."""

    scoring: Any
    model: Any
    loss: Loss
    labels: Array  # (n,)
    weight: Array | None  # (n,), as given

    def among(self, chosen: Array) -> Judge:
        """Keep the samples for which an array (n,) is true."""
        return replace(self, labels=self.labels[chosen], weight=None if self.weight is None else self.weight[chosen])

    def __call__(self, held: Held, scores: Array) -> Array:
        """Judge the scores (G, m, M, K) that M models give to what G folds hold out: (G, M), higher is better."""
        if self.scoring is None and self.model._learns_classes:
            right = found_classes(scores) == found_classes(held.Y)[..., None]
            share = held.share[:, None, :]
            return to_numpy((share @ array_namespace(scores).astype(right, share.dtype))[:, 0, :])
        found = np.empty((scores.shape[0], scores.shape[2]))
        for g, index in enumerate(held.index):
            labels, weight = self.labels[index], None if self.weight is None else self.weight[index]
            for m in range(scores.shape[2]):
                own = scores[g, : len(index), m, :]
                if self.scoring is not None:
                    known = with_scores(self.model, self.loss, to_numpy(own))
                    found[g, m] = scored(self.scoring, known, labels, weight)
                else:
                    Y, share = held.Y[g, : len(index), :], held.share[g, : len(index)]
                    found[g, m] = r_squared(Y, self.loss.inverse_link(own), share)
        return found


_CHOICES = ("view", "mode_weights", "ridge", "target_mode", "loss")


def cv_results(tables: Sequence[Table], best: Table, at: int, loss: Any) -> tuple[dict[str, Any], int]:
    """Write all tables in scikit-learn's form, a row for each candidate and alpha; find the row of the alpha that was chosen."""
    parameters: list[dict[str, Any]] = []
    scores, means, chosen = [], [], -1
    for table in tables:
        chosen = len(parameters) + at if table is best else chosen
        own = asdict(table.candidate)
        own["loss"] = "log_loss" if own.pop("logistic") else loss
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


# --- held-out scores of classes: their size as log-odds, what they say about each other, and logistic regression ---------------


class ClassScores(NamedTuple):
    """Held-out scores (n, K) of all classes, which class is true (n, K), and what each sample counts in each fold, (F, n)."""

    scores: Array
    members: Array
    shares: Array  # zero where another fold holds the sample out; those of a fold sum to its weight, all of them to one


def class_scores(parts: Sequence[Array], known: Sequence[Held], weights: Array) -> ClassScores:
    """Gather held-out scores (G, m, K) of all folds, of many every second or third; two classes get a column each."""
    xp, found, first, count = array_namespace(known[0].Y), [], 0, 0
    for own in parts:
        count += own.shape[0] * own.shape[1]
    every = -(-count // MOST_HELD)
    for own, held in zip(parts, known, strict=True):
        fold, place = xp.nonzero(held.share)
        rows = (fold * own.shape[1] + place)[::every]
        table = xp.concat([own, held.Y, held.share[..., None]], axis=2)
        table = xp.take(xp.reshape(table, (-1, table.shape[2])), rows, axis=0)
        found.append((table, fold[::every] + first))
        first += own.shape[0]
    tables, folds = map(xp.concat, zip(*found, strict=True))
    K = parts[0].shape[2]
    z, codes, share = tables[:, :K], tables[:, K : 2 * K], tables[:, 2 * K]
    if K == 1:
        z, codes = xp.concat([-0.5 * z, 0.5 * z], axis=1), xp.concat([-codes, codes], axis=1)
    shares = share * xp.astype(folds == xp.arange(first, device=device(folds))[:, None], share.dtype)
    shares = shares * (move_to(weights, share, share.dtype) / xp.sum(shares, axis=1))[:, None]
    return ClassScores(z, xp.astype(codes > 0, z.dtype), shares)


# Classes come before samples in what follows: sums over a few classes are then sums of long rows, which take less time.


def factors(held: ClassScores, shares: Array | None = None) -> Array:
    """Find the factor of held-out scores whose softmax predicts the classes best, for each row of shares (B, n), or for all.

    It changes no predicted class. By Newton's method for its logarithm; as much as a thousandth of its square speaks for a
    factor of one, so that it does not run away where all classes are found.
    """
    xp = array_namespace(held.scores)
    shares = xp.sum(held.shares, axis=0, keepdims=True) if shares is None else shares
    z, true = xp.matrix_transpose(held.scores)[None, ...], xp.sum(held.members * held.scores, axis=1)
    log = step = xp.zeros_like(shares[:, 0])
    every = _FEW if is_on_gpu(log) else 1
    for _ in range(0, _STEPS, every):
        for _ in range(every):
            step, log = _factor_step(z, true, shares, step, log)
        if bool(xp.all(xp.abs(step) < 1e-6)):
            break
    return xp.exp(log)


def _factor_step(z: Array, true: Array, shares: Array, before: Array, log: Array) -> tuple[Array, Array]:
    """Return a step of Newton's method, and where it leads."""
    xp, size = array_namespace(log), array_namespace(log).exp(log)
    P = softmax(size[:, None, None] * z)[1]
    mean = xp.sum(P * z, axis=1)
    slope = size * xp.sum(shares * (mean - true), axis=1)
    spread = size**2 * xp.sum(shares * (xp.sum(P * z**2, axis=1) - mean**2), axis=1)
    # The second derivative but for the sign of the slope: a step goes down where that derivative is negative, too.
    step = -(slope + 2e-3 * log) / (spread + xp.abs(slope) + 2e-3)
    return step, log + xp.clip(step, min=-1.0, max=1.0)


@dataclass(frozen=True, eq=False)
class _Softmax:
    """The mean log-loss of B problems: a function of the weights D (B, K, r) of rows (n, r), which add to given scores."""

    rows: Array
    given: Array  # (B, K, n)
    true: Array  # (K, n)
    shares: Array  # (B, 1, n)
    pull: Array  # twice the ridge of each column of the weights, (B, 1, r)


def _evaluated(fit: _Softmax, D: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Return the objectives (B,) and the probabilities (B, K, n), and what Newton's method needs.

    That is what pulls at D, as rows (B, K r), the diagonal of the curvature, and what samples weigh in it, (B, K, n).
    """
    xp, flat = array_namespace(D), (D.shape[0], -1)
    z = fit.given + D @ xp.matrix_transpose(fit.rows)
    logs, P = softmax(z)
    loss = xp.sum(fit.shares[:, 0, :] * (logs[:, 0, :] - xp.sum(fit.true * z, axis=1)), axis=1)
    value, weights = loss + 0.5 * xp.sum(fit.pull * D**2, axis=(1, 2)), P * fit.shares
    gradient = ((P - fit.true) * fit.shares) @ fit.rows + fit.pull * D
    # The rows are along their principal axes, where the curvature of a class is nearly diagonal.
    diagonal = xp.clip((weights * (1.0 - P)) @ fit.rows**2 + fit.pull, min=1e-12)
    return value, P, xp.reshape(-gradient, flat), xp.reshape(diagonal, flat), weights


def _curved(fit: _Softmax, P: Array, weights: Array, V: Array) -> Array:
    """Multiply rows (B, K r) by the curvature."""
    xp, rows = array_namespace(V), fit.rows
    V = xp.reshape(V, (V.shape[0], -1, rows.shape[1]))
    z = V @ xp.matrix_transpose(rows)
    found = (weights * (z - xp.sum(P * z, axis=1, keepdims=True))) @ rows + fit.pull * V
    return xp.reshape(found, (V.shape[0], -1))


def softmax_regression(
    X: Array, Y: Array, shares: Array, ridges: Sequence[Any], *, centre: Any = 0.0, fit_intercept: bool = True
) -> list[Array]:
    """Minimise the mean log-loss plus ``ridge |A - centre|^2``, for several weightings of the samples at once.

    Parameters
    ----------
    X : array of shape (n, r)
    Y : array of shape (n, K), of zeros and ones
    shares : array of shape (B, n) whose rows sum to one
    ridges : strengths of the squared norm, numbers or arrays (B,); each starts from the answer of the one before
    centre : array of shape (B, r, K), or a number
    fit_intercept : whether intercepts are learned; else they are zero

    Returns
    -------
    list of arrays of shape (B, r + 1, K)
        For each ridge weights A, and intercepts in the last row.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.search.search import softmax_regression
    >>> X, Y = np.array([[-1.0], [1.0]]), np.eye(2)
    >>> ((found,),) = softmax_regression(X, Y, np.array([[0.5, 0.5]]), [0.01])
    >>> bool(found[0, 0] < 0 < found[0, 1]), bool(abs(found[1, 0]) < 1e-6)
    (True, True)
    """
    xp, B, K = array_namespace(X), shares.shape[0], Y.shape[1]
    share = xp.mean(shares, axis=0)
    middle = share @ X if fit_intercept else xp.zeros_like(X[0, :])
    X = X - middle
    values, axes = xp.linalg.eigh(X.T @ (X * share[:, None]))
    kept = values > 10.0 * X.shape[1] * float(xp.finfo(X.dtype).eps) * values[-1]
    size = int(xp.sum(xp.astype(kept, xp.int64)))  # eigenvalues ascend
    axes = axes[:, X.shape[1] - size :]
    rows = X @ axes
    rows = xp.concat([rows, xp.ones_like(X[:, :1])], axis=1) if fit_intercept else rows
    inside = xp.astype(xp.arange(rows.shape[1], device=device(X)) < size, X.dtype)
    kind = {"dtype": X.dtype, "device": device(X)}
    centre, D = centre + xp.zeros((B, X.shape[1], K), **kind), xp.zeros((B, K, rows.shape[1]), **kind)
    given, none, found = xp.matrix_transpose(X @ centre), xp.zeros((B,), **kind), []
    look_every = _FEW if is_on_gpu(D) else 1
    for ridge in ridges:
        pull = xp.reshape(2.0 * ridge + none, (B, 1, 1)) * inside
        fit = _Softmax(rows, given, xp.matrix_transpose(Y), shares[:, None, :], pull)
        value, P, force, diagonal, weights = _evaluated(fit, D)
        for _ in range(_STEPS):  # of Newton's method; a step is halved until the objective falls
            apply = partial(_curved, fit, P, weights)
            turn = conjugate_gradients(apply, force, none, diagonal, tol=0.25, look_every=look_every)
            step, fall = xp.reshape(turn, D.shape), 0.5 * xp.sum(force * turn, axis=1)
            for _ in range(_STEPS):
                after, P, force, diagonal, weights = _evaluated(fit, D + step)
                rises = after > value + 1e-14
                if not bool(xp.any(rises)):
                    break
                step = xp.where(rises[:, None, None], 0.5 * step, step)
            D, value = D + step, after
            if bool(xp.all(fall <= _ENOUGH * value + _NOTHING)):
                break
        A = centre + axes @ xp.matrix_transpose(D[:, :, :size])
        offset = xp.sum(D[:, :, size:], axis=2) - middle @ A
        found.append(xp.concat([A, offset[:, None, :]], axis=1))
    return found


def log_losses(held: ClassScores, size: float | None = None) -> Array:
    """Find the mean log-loss of each fold, of scores times a size: by default the best factor."""
    xp, size = array_namespace(held.scores), float(factors(held)[0]) if size is None else size
    z = size * held.scores
    losses = softmax(z)[0][:, 0] - xp.sum(held.members * z, axis=1)
    return to_numpy(held.shares @ losses / xp.sum(held.shares, axis=1))


def class_map(held: ClassScores) -> tuple[Array, Array]:
    """Learn from held-out scores how those of all classes say which one it is: (K + 1, K), offsets in the last row.

    Scores of squares, one class against the rest, hide a class that lies between others; a map between all of them finds it
    again. It is drawn to one factor for all classes, which changes no predicted class. Also returns the log-loss of each
    fold, through a map learned from the other folds.
    """
    xp, (F, _) = array_namespace(held.scores), held.shares.shape
    whole = xp.sum(held.shares, axis=0, keepdims=True)
    shares = xp.concat([whole - held.shares, whole])
    total = xp.sum(shares, axis=1, keepdims=True)  # zero where there is one fold
    shares = shares / xp.where(total > 0, total, xp.ones_like(total))
    size, eye = factors(held, shares), xp.eye(held.scores.shape[1], dtype=shares.dtype, device=device(shares))
    centre = size[:, None, None] * eye
    (maps,) = softmax_regression(held.scores, held.members, shares, [_PULL / size**2], centre=centre)
    losses = np.empty(F)
    for f in range(F):
        losses[f] = log_losses(held._replace(scores=held.scores @ maps[f, :-1, :] + maps[f, -1, :]), 1.0)[f]
    return maps[-1, ...], losses
