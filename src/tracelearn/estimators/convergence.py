"""The way to a solution: the duality gap at every iteration where a solver looked at it."""

from __future__ import annotations

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.solvers import Solution
from tracelearn.solvers.solution import Watcher

__all__ = ["Record"]


class Record:
    """Keep iterations and largest gaps, as ``on_iteration`` of a solver; pass each solution on to ``then``."""

    def __init__(self, then: Watcher | None = None) -> None:
        self._then = then
        self._runs: list[list[tuple[int, float]]] = []

    def __call__(self, so_far: Solution) -> None:
        """Note where a solver stands."""
        gap = float(array_namespace(so_far.gap).max(so_far.gap))
        # Newton solves separable targets one after the other: a count that falls back is the next target's.
        if not self._runs or so_far.n_iter <= self._runs[-1][-1][0]:
            self._runs.append([])
        self._runs[-1].append((so_far.n_iter, gap))
        if self._then is not None:
            self._then(so_far)

    def until(self, n_iter: int, gap: float) -> tuple[Array, Array]:
        """Return iterations and gaps, the largest over targets, ending with what the solver returned."""
        runs = [np.array(run, dtype=np.float64).T for run in self._runs]
        iterations = np.unique(np.concatenate([np.zeros(0), *(run[0] for run in runs)]))
        iterations = iterations[iterations < n_iter]
        if not iterations.size:
            return np.array([float(n_iter)]), np.array([gap])
        gaps = []
        for steps, values in runs:  # between two looks, and after the last, the gap is what was proven before
            last = np.searchsorted(steps, iterations, side="right") - 1
            gaps.append(values[np.maximum(last, 0)])
        return np.append(iterations, float(n_iter)), np.append(np.max(gaps, axis=0), gap)
