"""The search: candidates, classes and folds as one batch of problems, solved along a path of alphas.

Nothing here knows estimators: it is given designs and candidates, and returns what was found on held-out samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import device
from joblib import Parallel, delayed

from tracelearn.arrays.array_api import Array, array_namespace, move_to, to_numpy
from tracelearn.penalties import Atom, Nuclear, Overlap
from tracelearn.problems.batch import Problems, Solution, alpha_max
from tracelearn.selection.folds import Design, with_ridge
from tracelearn.solvers import SOLVERS

__all__ = ["Candidate", "Judge", "Table", "walk"]

# Numbers in the weights of one batch: more would leave the cache without fewer calls.
_LARGEST_BATCH = 2_000_000


@dataclass(frozen=True)
class Candidate:
    """What is tried besides alpha: how samples are shown, which modes are penalised, some ridge."""

    view: str = "raw"
    mode_weights: tuple[float, ...] | None = None
    ridge: float = 0.0
    target_mode: bool = False


# What held-out scores (n_f, K) of a fold are worth, for one model: the score that selects, higher is better, and the loss.
Judge = Callable[[int, Array], tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Table:
    """What came of a candidate: for each alpha and fold the score, higher is better, and the loss."""

    candidate: Candidate
    alphas: Array
    scores: Array
    losses: Array
    weights: Array

    @cached_property
    def means(self) -> Array:
        """The mean score for each alpha; a fold that has none for some alpha is left out for all."""
        return _mean(self.scores, self.weights)

    @cached_property
    def errors(self) -> Array:
        """The standard error of the mean score, for each alpha."""
        known = self.scores[:, ~np.any(np.isnan(self.scores), axis=0)]
        n = known.shape[1]
        return np.std(known, axis=1, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(len(self.scores))

    @cached_property
    def best(self) -> int:
        """The alpha with the best score among its neighbours; of equal ones the one with the lowest loss."""
        means = self.means
        smooth = np.convolve(np.pad(means, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")
        losses = _mean(self.losses, self.weights)
        order = np.lexsort((losses, -np.round(smooth, 9)))
        return int(order[0])

    @property
    def value(self) -> float:
        """The score at the best alpha, averaged with its neighbours."""
        return float(np.convolve(np.pad(self.means, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")[self.best])


def _mean(values: Array, weights: Array) -> Array:
    known = ~np.any(np.isnan(values), axis=0)
    return np.asarray(values[:, known] @ (weights[known] / weights[known].sum()))


@dataclass(frozen=True, eq=False)
class _Group:
    """Problems that are solved together: some folds of some candidates."""

    fit: Any
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
) -> Iterator[_Group]:
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
) -> _Group:
    each = fit.n_problems // len(folds)  # problems of one fold and candidate
    xp = array_namespace(fit.ridge)
    if len(own) > 1:
        index = [f * each + k for f in range(len(folds)) for _ in own for k in range(each)]
        fit = fit.take(xp.asarray(index, device=device(fit.ridge)))
    ridges = np.tile(np.repeat([c.ridge for c in own], each), len(folds))
    fit = with_ridge(fit, xp.asarray(ridges, dtype=fit.ridge.dtype, device=device(fit.ridge)))
    norm = _terms(own, shape, fit.ridge, each) if penalty is None else penalty(own[0])
    single = [_terms([c], shape, whole.ridge, each) if penalty is None else norm for c in own]
    tops = [float(xp.max(alpha_max(whole, one, shape))) for one in single]
    top = np.tile(np.repeat(tops, each), len(folds))
    return _Group(fit, norm, xp.asarray(top, dtype=fit.ridge.dtype, device=device(fit.ridge)), folds, numbers)


def _path(
    group: _Group, shape: tuple[int, ...], alphas: Array, *, absolute: bool, tol: float, max_iter: int
) -> Iterator[tuple[Array, Array]]:
    """Solve for each alpha in turn, from the one before; yield rows (B K, p) and intercepts (B K,)."""
    fit = group.fit
    found: Solution | None = None
    before, xp = 1.0, array_namespace(group.top)
    top = xp.where(group.top > 0, group.top, xp.ones_like(group.top))
    for alpha in alphas:
        if found is not None and found.rho is not None and before > 0 and alpha > 0:
            found = replace(found, rho=found.rho * float(alpha / before))  # forces, and so the step, scale with alpha
        strength = xp.full_like(top, float(alpha)) if absolute else top * float(alpha)
        problems = Problems(fit, group.penalty, strength, shape)
        solver = SOLVERS[fit.path_solver]
        found = solver(problems, tol=tol, max_iter=max_iter, start=found, exact_ranks=False)
        before = float(alpha)
        W = problems.rows(found.W)
        yield W, fit.intercept(W)


def walk(
    design: Design,
    candidates: Sequence[Candidate],
    alphas: Array,
    judge: Judge,
    *,
    shape: tuple[int, ...],
    penalty: Callable[[Candidate], Any] | None = None,
    absolute: bool = False,
    tol: float = 1e-3,
    max_iter: int = 100,
    n_jobs: int | None = None,
    deadline: float = np.inf,
) -> list[Table]:
    """Walk the path of every candidate in every fold; return a table for each.

    Parameters
    ----------
    alphas : decreasing, as shares of each candidate's ``alpha_max`` unless ``absolute``
    judge : judges the held-out scores of a fold
    shape : of one weight tensor
    penalty : the penalty of a candidate; None is the overlapped trace norm with the candidate's mode weights
    deadline : when, on the monotonic clock, the walk ends with the alphas it has
    """
    shape_of = (len(alphas), len(candidates), design.n_folds)
    scores, losses = np.full(shape_of, np.nan), np.full(shape_of, np.nan)
    tops = np.ones(len(candidates))
    groups = list(_groups(design, candidates, shape, penalty))
    K = design.n_targets

    def run(group: _Group) -> None:
        points = _path(group, shape, alphas, absolute=absolute, tol=tol, max_iter=max_iter)
        rows = len(group.candidates) * K
        tops[list(group.candidates)] = to_numpy(group.top)[: group.fit.n_problems // len(group.folds)][
            :: group.fit.n_problems // len(group.folds) // len(group.candidates)
        ]
        for a, (W, b) in enumerate(points):
            for i, f in enumerate(group.folds):
                own, shift = W[i * rows : (i + 1) * rows, :], b[i * rows : (i + 1) * rows]
                found = design.scores(f, own, shift)
                if found is None:
                    losses[a, list(group.candidates), f] = to_numpy(design.losses(f, own, shift))
                    scores[a, list(group.candidates), f] = -losses[a, list(group.candidates), f]
                    continue
                for j, c in enumerate(group.candidates):
                    scores[a, c, f], losses[a, c, f] = judge(f, found[:, j * K : (j + 1) * K])
            if time.monotonic() > deadline:
                break

    # Threads share the samples; most of the time is spent in BLAS and LAPACK, which let go of the interpreter.
    Parallel(n_jobs=n_jobs, prefer="threads")(delayed(run)(group) for group in groups)
    done = ~np.any(np.all(np.isnan(losses), axis=2), axis=1)
    tables = []
    for c, candidate in enumerate(candidates):
        own = np.asarray(alphas)[done] * (1.0 if absolute else tops[c])
        tables.append(Table(candidate, own, scores[done, c, :], losses[done, c, :], design.weights))
    return tables
