"""The search: candidates, classes and folds as one batch of problems, solved along a path of alphas.

Nothing here knows estimators: it is given designs and candidates, and returns what was found on held-out samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import device
from joblib import Parallel, delayed

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, move_to, to_numpy
from tracelearn.estimators.scores import corrected_error
from tracelearn.penalties import Atom, Nuclear, Overlap
from tracelearn.problems.batch import Problems, Solution, alpha_max
from tracelearn.problems.datafits import Squares
from tracelearn.selection.calibration import held_out, log_losses, softmax_regression
from tracelearn.selection.folds import Design
from tracelearn.solvers import SOLVERS

__all__ = [
    "RIDGES",
    "Candidate",
    "Group",
    "Judge",
    "Table",
    "cv_results",
    "path",
    "read_alphas",
    "walk",
    "walk_logistic",
    "walk_ridges",
]

# Numbers in the weights of one batch: more would leave the cache without fewer calls.
_LARGEST_BATCH = 2_000_000

# Held-out scores differ by far more than this between neighbouring alphas: paths need no tighter gap to choose one.
_TOL = 2e-3
_GIVEN = 120  # iterations for an alpha that was given, and may be far from the one before

# Ridges that are tried alone, as shares of the total variance of the features.
RIDGES = np.geomspace(1.0, 1e-6, 13)

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
    if isinstance(alphas, int | np.integer):
        return np.geomspace(1.0, eps, int(alphas)), False
    found = np.sort(np.atleast_1d(np.asarray(alphas, dtype=float)))[::-1]
    if found.ndim != 1 or not found.size or not np.all(np.isfinite(found)) or np.any(found < 0):
        raise ValueError(
            f"Expected alphas to be a number of them, or at least one strength that is finite and not negative, got {alphas}."
        )
    return found, True


@dataclass(frozen=True)
class Candidate:
    """What is tried besides alpha: how samples are shown, which modes are penalised, some ridge."""

    view: str = "raw"
    mode_weights: tuple[float, ...] | None = None
    ridge: float = 0.0
    target_mode: bool = False
    logistic: bool = False  # ridge regression by the logistic loss


# What the held-out scores (n_f, M, K) of a fold are worth, for each of M models: higher is better.
Judge = Callable[[int, Array], Array]


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
    m, t = ((share * a).sum(axis=-2, keepdims=True) for a in (mean, target))
    ss, yy = ((share * (v + (a - c) ** 2)).sum(axis=-2) for v, a, c in ((ss, mean, m), (yy, target, t)))
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
    alphas: Array  # (A,)
    ridges: Array  # (A,)
    scores: Array  # (A, F), higher is better; NaN where a fold has none
    weights: Array  # of the folds
    selecting: Array  # (A,), higher is better
    held: list[list[Any]]  # for each alpha and fold the scores of what is held out, (n_f, K); None if not in memory
    ratio: float  # held-out over training samples

    @cached_property
    def means(self) -> Array:
        """The mean score for each alpha; a fold that has none for some alpha is left out for all."""
        return _mean(self.scores, self.weights)

    @cached_property
    def errors(self) -> Array:
        """The standard error of the mean score, for each alpha, corrected for training sets that overlap."""
        known = self.scores[:, ~np.any(np.isnan(self.scores), axis=0)]
        return corrected_error(known, self.ratio) if known.shape[1] else np.zeros(len(self.scores))

    @cached_property
    def smoothed(self) -> Array:
        """What selects, averaged with its neighbours: 1, 2, 1."""
        return np.convolve(np.pad(self.selecting, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")

    @property
    def best(self) -> int:
        """The alpha that selects itself; of equal ones the largest."""
        return int(np.argmax(np.round(self.smoothed, 9)))

    @property
    def value(self) -> float:
        """What selects, at the best alpha."""
        return float(self.smoothed[self.best])


def _mean(values: Array, weights: Array) -> Array:
    known = ~np.any(np.isnan(values), axis=0)
    if not np.any(known):
        return np.full(len(values), -np.inf)
    return np.asarray(values[:, known] @ (weights[known] / weights[known].sum()))


@dataclass(frozen=True, eq=False)
class Group:
    """Problems that are solved together: some folds of some candidates."""

    fit: Any
    exact: Any  # the same in double precision
    penalty: Any
    top: Array  # alpha_max of each problem's candidate, (B,)
    folds: tuple[int, ...]
    candidates: tuple[int, ...]


def _terms(candidates: Sequence[Candidate], shape: tuple[int, ...], like: Array, each: int) -> Any:
    """Weigh the modes of each problem as its candidate does."""
    xp, order = array_namespace(like), len(shape)
    if order <= 2 or len({c.mode_weights for c in candidates}) == 1:
        given = candidates[0].mode_weights
        weights = [1.0 / order] * order if given is None else list(given)
        return Overlap(tuple((w, Nuclear(n)) for n, w in enumerate(weights))).bound_to(shape)
    rows = [[1.0 / order] * order if c.mode_weights is None else list(c.mode_weights) for c in candidates]
    table = np.repeat(np.array(rows), each, axis=0)  # (C K, N)
    terms: list[tuple[Any, Atom]] = []
    for n in range(order):
        column = np.tile(table[:, n], like.shape[0] // len(table))
        terms.append((xp.asarray(column, dtype=like.dtype, device=device(like)), Nuclear(n)))
    return Overlap(tuple(terms))


def _groups(
    design: Design, candidates: Sequence[Candidate], shape: tuple[int, ...], penalty: Callable[[Candidate], Any] | None
) -> Iterator[Group]:
    """Put folds and candidates together as far as their operators allow it, and as batches are not too large."""
    first = design.fits[0]
    together = len(design.fits) == 1 and penalty is None
    size = design.n_folds * design.n_targets * first.n_features
    most = max(1, _LARGEST_BATCH // size) if together else 1
    for begin in range(0, len(candidates), most):
        own = list(candidates[begin : begin + most])
        numbers = tuple(range(begin, begin + len(own)))
        stacked = len(design.fits) == 1
        for f, fit in enumerate(design.fits):
            folds = tuple(range(design.n_folds)) if stacked else (f,)
            yield _group(fit, design.whole, own, folds, numbers, shape, penalty)


def _group(
    fit: Any,
    whole: Any,
    own: list[Candidate],
    folds: tuple[int, ...],
    numbers: tuple[int, ...],
    shape: tuple[int, ...],
    penalty: Callable[[Candidate], Any] | None,
) -> Group:
    each = fit.n_problems // len(folds)  # problems of one fold and candidate
    xp = array_namespace(fit.ridge)
    if len(own) > 1:
        index = [f * each + k for f in range(len(folds)) for _ in own for k in range(each)]
        fit = fit.take(xp.asarray(index, device=device(fit.ridge)))
    ridges = np.tile(np.repeat([c.ridge for c in own], each), len(folds))
    fit = replace(fit, ridge=xp.asarray(ridges, dtype=fit.ridge.dtype, device=device(fit.ridge)))
    rough = fit.single() if fit.path_solver == "admm" and isinstance(fit, Squares) else fit
    norm = _terms(own, shape, rough.ridge, each) if penalty is None else penalty(own[0])
    alone = [_terms([c], shape, whole.ridge, each) if penalty is None else norm for c in own]
    tops = [float(xp.max(alpha_max(whole, one, shape))) for one in alone]
    top = np.tile(np.repeat(tops, each), len(folds))
    return Group(rough, fit, norm, xp.asarray(top, dtype=rough.ridge.dtype, device=device(rough.ridge)), folds, numbers)


def path(
    group: Group, shape: tuple[int, ...], alphas: Array, *, absolute: bool, max_iter: int
) -> Iterator[tuple[Array, Array]]:
    """Solve for each alpha in turn, from the one before; yield rows (B K, p) and intercepts (B K,)."""
    fit = group.fit
    limit = min(max_iter, _GIVEN if absolute else _iterations(fit))
    # Few iterations from the alpha before are enough to choose by, and a certificate would end none of them.
    options = {"check_every": 10 if limit > 10 else None} if fit.path_solver == "admm" else {}
    found: Solution | None = None
    before, xp = 1.0, array_namespace(group.top)
    top = xp.where(group.top > 0, group.top, xp.ones_like(group.top))
    for alpha in alphas:
        if found is not None and found.rho is not None and before > 0 and alpha > 0:
            found = replace(found, rho=found.rho * float(alpha / before))  # forces, and so the step, scale with alpha
        strength = xp.full_like(top, float(alpha)) if absolute else top * float(alpha)
        problems = Problems(fit, group.penalty, strength, shape)
        most = limit if found is not None else 2 * limit
        solver = SOLVERS[fit.path_solver]
        found = solver(problems, tol=_TOL, max_iter=most, start=found, exact_ranks=False, **options)
        before = float(alpha)
        W = as_dtype(problems.rows(found.W), group.exact.ridge.dtype)
        yield W, group.exact.intercept(W)


def _iterations(fit: Any) -> int:
    """Bound the iterations for each alpha on our own grid: the more features, the fewer, since each costs their square."""
    return int(np.clip(4e6 / fit.n_features**2, 4, 60)) if fit.path_solver == "admm" else 12


def walk(
    design: Design,
    candidates: Sequence[Candidate],
    alphas: Array,
    judge: Judge | None,
    *,
    by_score: bool = False,
    shape: tuple[int, ...],
    penalty: Callable[[Candidate], Any] | None = None,
    absolute: bool = False,
    max_iter: int = 1000,
    n_jobs: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
    is_over: Callable[[], bool] = lambda: False,
) -> list[Table]:
    """Walk the path of every candidate in every fold; return a table for each.

    Parameters
    ----------
    alphas : decreasing, as shares of each candidate's ``alpha_max`` unless ``absolute``
    judge : gives the held-out scores of a fold the score that is shown; None is the share of variance explained
    by_score : whether that score selects, or the variance explained after calibration
    shape : of one weight tensor
    penalty : the penalty of a candidate; None is the overlapped trace norm with the candidate's mode weights
    progress : is given the share of the walk that is done
    is_over : tells whether the walk is to end with the alphas it has
    """
    C, work = len(candidates), itertools.count(1)
    found = _Found.empty(len(alphas), C, design)
    tops = np.ones(C)

    def run(group: Group) -> None:
        own = list(group.candidates)
        each = group.fit.n_problems // len(group.folds) // len(own)
        tops[own] = to_numpy(group.top)[: each * len(own) : each]

        def points() -> Iterator[tuple[Array, Array]]:
            for W, b in path(group, shape, alphas, absolute=absolute, max_iter=max_iter):
                yield design.reduced(W, b)
                done = next(work) * len(group.folds) * len(own)
                progress(done / (len(alphas) * C * design.n_folds))
                # No sooner: where groups of samples differ, the held-out error has several minima.
                if is_over():
                    return

        found.judge(group.folds, own, points(), judge)

    # Threads share the samples; most of the time is spent in BLAS and LAPACK, which let go of the interpreter.
    Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(run)(group) for group in _groups(design, candidates, shape, penalty)
    )
    tables = []
    for c, candidate in enumerate(candidates):
        own = np.asarray(alphas) * (1.0 if absolute else tops[c])
        tables.append(found.table(c, candidate, own, np.full(len(own), candidate.ridge), by_score=by_score))
    return tables


def walk_ridges(design: Design, view: str, judge: Judge | None, *, by_score: bool = False) -> Table:
    """Try ridge regression alone, squared loss only: for every ridge a product with the operator's eigenvectors."""
    fit = design.coordinates
    xp = array_namespace(fit.cross)
    variance = float(xp.max(xp.sum(fit.variances, axis=-1)))
    ridges = RIDGES * (variance or 1.0)
    found = _Found.empty(len(ridges), 1, design)
    found.judge(range(design.n_folds), [0], (_ridge(design, float(ridge)) for ridge in ridges), judge)
    return found.table(0, Candidate(view), np.zeros(len(ridges)), ridges, by_score=by_score)


def walk_logistic(design: Design, view: str, judge: Judge) -> Table | None:
    """Try logistic regression with a squared norm, one ridge after the other; None where it would take long.

    What selects among ridges is the held-out log-loss.
    """
    if not design.is_small:
        return None
    X, codes, share = design.coordinate_rows()
    xp = array_namespace(X)
    Y = xp.concat([-codes, codes], axis=1) if codes.shape[1] == 1 else codes
    centred = X - share @ X if design.fit_intercept else X
    ridges = _SOFT_RIDGES * (float(share @ xp.sum(centred**2, axis=1)) or 1.0)
    train = xp.stack([share * move_to(mask, share, share.dtype) for mask in design.folds.masks(held=False)])
    shares, Y = train / xp.sum(train, axis=1, keepdims=True), xp.astype(Y > 0, X.dtype)
    paths = softmax_regression(centred, Y, shares, ridges.tolist(), fit_intercept=design.fit_intercept)
    held, scores = np.full((len(ridges), design.n_folds), None), np.empty((len(ridges), design.n_folds))
    for f, (_, test) in enumerate(design.folds.splits):
        rows = xp.take(centred, move_to(test, X), axis=0)
        z = xp.stack([rows @ A[f, :-1, :] + A[f, -1, :] for A in paths], axis=1)
        z = z[:, :, 1:] - z[:, :, :1] if codes.shape[1] == 1 else z
        scores[:, f] = judge(f, z)
        for a in range(len(ridges)):
            held[a, f] = z[:, a, :]
    losses = np.array([design.weights @ log_losses(held_out(list(row), design)) for row in held])
    if codes.shape[1] == 1:  # two classes have one row of weights, twice as long as each of two
        ridges = 0.5 * ridges
    found = Candidate(view, logistic=True)
    kept = [list(row) for row in held]
    return Table(found, np.zeros(len(ridges)), ridges, scores, design.weights, -losses, kept, design.folds.ratio)


def _ridge(design: Design, ridge: float) -> tuple[Array, Array]:
    """Solve ridge regression in every fold; return rows of coordinates and intercepts."""
    fit = design.coordinates
    W = fit.operator.solver(array_namespace(fit.target).full_like(fit.target, 2.0 * ridge))(2.0 * fit.cross)
    return W, fit.intercept(W)


@dataclass(frozen=True, eq=False)
class _Found:
    """What was found on held-out samples, filled as paths are walked."""

    design: Design
    scores: Array  # (A, C, F)
    statistics: Array  # (A, C, F, K, 5)
    held: Array  # (A, C, F), of arrays (n_f, K)

    @classmethod
    def empty(cls, n_alphas: int, n_candidates: int, design: Design) -> _Found:
        """Begin with nothing."""
        shape = (n_alphas, n_candidates, design.n_folds)
        statistics = np.full((*shape, design.n_targets, 5), np.nan)
        return cls(design, np.full(shape, np.nan), statistics, np.full(shape, None))

    def judge(self, folds: Sequence[int], own: list[int], points: Iterator[Any], judge: Judge | None) -> None:
        """Judge the models along a path, some folds of some candidates: rows of coordinates (folds x candidates x K, r).

        As many points at once as are no large batch: few large products instead of many small ones.
        """
        design, first = self.design, 0
        longest = max([len(folds) * design.centre.shape[0], *(design.n_held(f) for f in folds)])
        most = max(1, _LARGEST_BATCH // (len(own) * design.n_targets * longest))
        while some := list(itertools.islice(points, most)):
            self._judge(slice(first, first + len(some)), folds, own, some, judge)
            first += len(some)

    def _judge(self, at: slice, folds: Sequence[int], own: list[int], points: list[Any], judge: Judge | None) -> None:
        design, K, C = self.design, self.design.n_targets, len(own)
        xp = array_namespace(points[0][0])
        W, b = (xp.stack([xp.reshape(point[i], (len(folds), C * K, -1)) for point in points]) for i in range(2))
        for i, f in enumerate(folds):
            rows, offset = xp.reshape(W[:, i, ...], (-1, W.shape[-1])), xp.reshape(b[:, i, ...], (-1,))
            scores = design.scores(f, rows, offset)
            # Predictions of all folds are compared about one common mean: what folds differ in by their intercepts alone
            # says nothing about how well samples are told apart. With a link the intercept belongs to the prediction.
            linked = design.loss.curvature is None
            shift = offset if linked else -(rows @ design.centre)
            moved = scores if scores is None or linked else scores + (shift - offset)
            statistics = to_numpy(design.statistics(f, rows, shift, moved))
            self.statistics[at, own, f] = statistics.reshape(len(points), C, K, 5)
            if scores is None:
                continue
            models = xp.reshape(scores, (-1, len(points) * C, K))
            values = np.full(len(points) * C, np.nan) if judge is None else judge(f, models)
            self.scores[at, own, f] = values.reshape(len(points), C)
            for m in range(len(points) * C):
                self.held[at.start + m // C, own[m % C], f] = models[:, m, :]

    def _selecting(self, c: int, upto: int, *, by_score: bool) -> Array:
        if by_score:
            return _mean(self.scores[:upto, c], self.design.weights)
        return calibrated(self.statistics[:upto, c], self.design.weights, numbers=self.design.numbers)

    def table(self, c: int, candidate: Candidate, alphas: Array, ridges: Array, *, by_score: bool) -> Table:
        """Gather what was found of a candidate."""
        done = ~np.any(np.isnan(self.statistics[:, c]), axis=(1, 2, 3))
        upto = int(done.sum())
        scores, weights = self.scores[:upto, c], self.design.weights
        _, _, ss, yy, sy = np.moveaxis(self.statistics[:upto, c], -1, 0)
        if np.all(np.isnan(scores)) and not by_score:  # samples that are not in memory
            ranked = np.where(yy > 0, sy**2 / np.where(ss * yy > 0, ss * yy, 1.0), 0.0).mean(axis=-1)
            scores = _explained(ss, yy, sy) if self.design.numbers else ranked
        selecting = self._selecting(c, upto, by_score=by_score)
        held = [list(folds) for folds in self.held[:upto, c]]
        ratio = self.design.folds.ratio
        return Table(candidate, alphas[:upto], ridges[:upto], scores, weights, selecting, held, ratio)


_CHOICES = ("view", "mode_weights", "ridge", "target_mode", "loss")


def cv_results(tables: Sequence[Table], best: Table, at: int, loss: Any) -> tuple[dict[str, Any], int]:
    """Write all tables in scikit-learn's form, a row for each candidate and alpha; find the row of the alpha that was chosen."""
    rows = [(table, a) for table in tables for a in range(len(table.alphas))]
    parameters = [
        {name: getattr(table.candidate, name) for name in _CHOICES[:-1]}
        | {"loss": "logistic" if table.candidate.logistic else loss}
        | {"alpha": float(table.alphas[a]), "ridge": float(table.ridges[a])}
        for table, a in rows
    ]
    means = np.array([table.means[a] for table, a in rows])
    scores = np.array([table.scores[a] for table, a in rows])
    found: dict[str, Any] = {f"param_{name}": _masked([p[name] for p in parameters]) for name in ("alpha", *_CHOICES)}
    found["params"] = parameters
    found |= {f"split{f}_test_score": column for f, column in enumerate(scores.T)}
    found["mean_test_score"] = means
    found["std_test_score"] = np.nanstd(scores, axis=1)
    found["rank_test_score"] = 1 + np.sum(means[None, :] > means[:, None], axis=1).astype(np.int32)
    return found, next(i for i, (table, a) in enumerate(rows) if table is best and a == at)


def _masked(values: list[Any]) -> Any:
    """Make a column of any values, tuples included, as scikit-learn's searches do."""
    masked: Any = np.ma
    found = masked.MaskedArray(np.empty(len(values), dtype=object))
    for i, value in enumerate(values):
        found[i] = value
    return found
