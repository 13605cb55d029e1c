"""Regularisation paths: decreasing alphas, each solve started from the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Penalty
from tracelearn.problems.certificate import alpha_max
from tracelearn.problems.smooth import Smooth
from tracelearn.solvers import Solution, Solver

__all__ = ["PathPoint", "alpha_grid", "walk_path"]


@dataclass(frozen=True, eq=False)
class PathPoint:
    """The model at one alpha: weights (K, p), intercepts (K,), the largest relative duality gap, the iterations."""

    alpha: float
    W: Array
    intercept: Array
    gap: float
    n_iter: int


def alpha_grid(smooth: Smooth, penalty: Penalty, alphas: int | Array, eps: float) -> Array:
    """Return decreasing alphas: those given, or that many from the smallest with W = 0 down to ``eps`` times it.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import Moments
    >>> from tracelearn.selection.path import alpha_grid
    >>> from tracelearn.penalties import OverlappedTraceNorm
    >>> from tracelearn.problems.smooth import Squares
    >>> X, y = np.array([[-1.0], [1.0]]), np.array([-1.0, 1.0])
    >>> alpha_grid(Squares.of(Moments.of(X, y)), OverlappedTraceNorm((1,)), 3, 0.01).round(6)
    array([2.  , 0.2 , 0.02])
    """
    if not isinstance(alphas, int | np.integer):
        return np.sort(np.asarray(alphas, dtype=float))[::-1]
    tops = alpha_max(smooth, penalty)
    top = float(array_namespace(tops).max(tops))
    # Where no feature says anything about the target every alpha gives zero, and any grid will do.
    return np.geomspace(top, eps * top, int(alphas)) if top > 0 else np.geomspace(1.0, eps, int(alphas))


def walk_path(
    smooth: Smooth,
    penalty: Penalty,
    alphas: Array,
    solver: Solver,
    *,
    tol: float,
    max_iter: int,
    exact_ranks: bool = True,
) -> Iterator[PathPoint]:
    """Solve for each alpha in turn."""
    found: Solution | None = None
    before = 1.0
    for alpha in alphas:
        if found is not None and found.rho is not None and before > 0 and alpha > 0:
            found = replace(found, rho=found.rho * float(alpha / before))  # forces, and so the step, scale with alpha
        reference = smooth.at_zero.value
        xp = array_namespace(reference)
        strength = xp.full_like(reference, float(alpha))
        found = solver(smooth, penalty, strength, tol=tol, max_iter=max_iter, start=found, exact_ranks=exact_ranks)
        before = float(alpha)
        W = xp.reshape(found.W, (-1, smooth.n_features))
        yield PathPoint(float(alpha), W, smooth.intercept(W), float(xp.max(found.gap)), found.n_iter)
