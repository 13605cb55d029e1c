"""The search for alpha, and for what goes with it: pure functions of folds and candidates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Penalty
from tracelearn.problems.smooth import Smooth
from tracelearn.selection.path import PathPoint, walk_path
from tracelearn.solvers import SOLVERS

__all__ = ["Candidate", "Fold", "Table", "View", "Way", "best_ridge", "walk"]

# A path is looked at, whether to go on, whenever a tenth of its alphas are done, and at least three.
_LOOKS, _LEAST_STRETCH = 10, 3

# Ridges that are tried alone, as shares of the total variance of the features: flat directions lie far below it.
_RIDGES = np.geomspace(1e-6, 3.0, 14)


@dataclass(frozen=True)
class Candidate:
    """What is tried beside alpha."""

    mode_weights: tuple[float, ...] | None = None
    ridge: float = 0.0
    class_mode: bool = False
    loss: str = "squared"
    scaling: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what a model needs to be told."""
        return {name: getattr(self, name) for name in ("mode_weights", "ridge", "class_mode", "loss", "scaling")}


@dataclass(frozen=True, eq=False)
class Fold:
    """One split: the smooth half of the training samples, and how to judge weights on the held-out ones.

    ``hits`` is the share of held-out samples whose class is found, where that can be told.
    """

    smooth: Callable[[Candidate], Smooth]
    judge: Callable[[PathPoint], float]
    weight: float
    hits: Callable[[PathPoint], float] | None = None


@dataclass(frozen=True, eq=False)
class View:
    """The samples as one loss sees them, scaled or not: all of them, and split into folds."""

    whole: Callable[[Candidate], Smooth]
    folds: list[Fold]

    @property
    def weights(self) -> Array:
        """The folds' shares of the weight."""
        weights = np.array([fold.weight for fold in self.folds])
        return weights / weights.sum()


@dataclass(frozen=True, eq=False)
class Way:
    """A path to be walked: a candidate, its penalty, its alphas, the gap to reach at each and the most iterations."""

    candidate: Candidate
    view: View
    penalty: Penalty
    alphas: Array
    tol: float
    max_iter: int

    @property
    def stretch(self) -> int:
        """How many alphas are tried between two looks."""
        return max(_LEAST_STRETCH, len(self.alphas) // _LOOKS)


@dataclass(frozen=True, eq=False)
class Table:
    """What came of a candidate: for each alpha and fold the error, and the share of hits where it is known."""

    candidate: Candidate
    alphas: Array
    errors: Array
    hits: Array
    weights: Array

    @cached_property
    def means(self) -> Array:
        """The mean error for each alpha."""
        return np.asarray(self.errors @ self.weights)

    @cached_property
    def spread(self) -> Array:
        """The standard error of the mean, for each alpha."""
        n = self.errors.shape[1]
        return np.std(self.errors, axis=1, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(len(self.errors))

    @property
    def best(self) -> int:
        """Where the mean error is lowest."""
        return int(np.argmin(self.means))

    @property
    def accuracy(self) -> float:
        """The share of hits where the mean error is lowest."""
        return float(self.hits[self.best] @ self.weights)

    @property
    def ends_at_its_best(self) -> bool:
        """Whether the smallest of the alphas is the best one."""
        return self.best == len(self.alphas) - 1

    def is_clearly_below(self, other: Table) -> bool:
        """Whether the lowest mean error is below that of another table of the same folds by more than its standard error."""
        return bool(self.means[self.best] < other.means[other.best] - other.spread[other.best])

    def is_past_its_best(self, patience: int) -> bool:
        """Whether the errors have been rising for a while: smaller alphas only cost more and do worse."""
        since = len(self.means) - 1 - self.best
        return since >= patience and bool(self.means[-1] > self.means[self.best] + self.spread[self.best])


def walk(ways: list[Way], *, n_jobs: int | None, stop: bool, say: Callable[..., None]) -> list[Table]:
    """Walk down all paths, the folds of each side by side; with ``stop``, a path ends where it is past its best."""
    began = time.perf_counter()
    paths = [[_judged(way, fold) for fold in way.view.folds] for way in ways]
    found: list[list[list[tuple[float, float]]]] = [[[] for _ in way.view.folds] for way in ways]
    left = list(range(len(ways)))
    total = sum(len(way.alphas) for way in ways)
    while left:
        legs = [(w, f) for w in left for f in range(len(paths[w]))]
        more = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(_next)(paths[w][f], ways[w].stretch) for w, f in legs)
        for (w, f), judged in zip(legs, more, strict=True):
            found[w][f] += judged
        left = [w for w in left if _goes_on(ways[w], found[w], stop=stop)]
        done = total - sum(len(ways[w].alphas) - len(found[w][0]) for w in left)
        rest = (time.perf_counter() - began) / done * (total - done)
        say(f"{done} of {total} alphas, {len(left)} paths left: about {rest:.0f} s left", paths_done=(done, total))
    return [_table(way, rows) for way, rows in zip(ways, found, strict=True)]


def _judged(way: Way, fold: Fold) -> Iterator[tuple[float, float]]:
    smooth = fold.smooth(way.candidate)
    solver = SOLVERS[smooth.path_solver]
    for point in walk_path(
        smooth, way.penalty, way.alphas, solver, tol=way.tol, max_iter=way.max_iter, exact_ranks=False
    ):
        yield fold.judge(point), np.nan if fold.hits is None else fold.hits(point)


def _next(path: Iterator[tuple[float, float]], count: int) -> list[tuple[float, float]]:
    return list(islice(path, count))


def _goes_on(way: Way, rows: list[list[tuple[float, float]]], *, stop: bool) -> bool:
    if len(rows[0]) == len(way.alphas):
        return False
    return not (stop and _table(way, rows).is_past_its_best(way.stretch))


def _table(way: Way, rows: list[list[tuple[float, float]]]) -> Table:
    both = np.array(rows).transpose(2, 1, 0)
    return Table(way.candidate, way.alphas[: both.shape[1]], both[0], both[1], way.view.weights)


def best_ridge(view: View, candidate: Candidate) -> tuple[float, float] | None:
    """Find the ridge that is best without any trace norm, and its mean error, in closed form; None where there is none.

    Only for the squared loss.
    """
    whole = view.whole(candidate)
    if not whole.system.has_factor:
        return None
    # The system is twice the covariance.
    ridges = _RIDGES * 0.5 * whole.system.mean_eigenvalue() * whole.n_features
    if not np.all(ridges > 0):
        return None
    errors = np.zeros(len(ridges))
    for fold, share in zip(view.folds, view.weights, strict=True):
        for i, ridge in enumerate(ridges):
            errors[i] += share * fold.judge(_ridge_point(fold.smooth(replace(candidate, ridge=float(ridge)))))
    return float(ridges[np.argmin(errors)]), float(np.min(errors))


def _ridge_point(smooth: Smooth) -> PathPoint:
    zero = smooth.at_zero.gradient
    xp = array_namespace(zero)
    W = smooth.updater(xp.zeros_like(smooth.at_zero.value))(xp.zeros_like(zero), xp.zeros_like(zero))
    return PathPoint(0.0, W, smooth.intercept(W), 0.0, 0)
