"""Accelerated proximal gradient, as in the paper's Algorithm 1 but with the tight step, and its inner method."""

from __future__ import annotations

import math

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Penalty, Split
from tracelearn.problems.data_fit import lipschitz, repeated
from tracelearn.problems.problem import Problems, Solution
from tracelearn.solvers.stopping import CHECK_EVERY, Finish, Watcher, guarded

__all__ = ["apg", "prox_adm"]

_UNIT = 0.01  # of the length of P: added to the length of a point, so that moves of a point near zero have a scale


@guarded
def apg(
    problems: Problems,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    exact_ranks: bool = True,
    on_iteration: Watcher | None = None,
) -> Solution:
    """Solve by accelerated proximal gradient: the outer loop of the paper's Algorithm 1, with the tight step and restarts.

    The inner proximal point starts from the split of the last one and is solved to a tenth of the last outer step: a
    higher accuracy would be wasted while the outer iterate still moves, a lower one would stall it. Arguments as in ``admm``.
    """
    xp = array_namespace(problems.alpha)
    solution = problems.begin(start)
    if bool(xp.all(solution.gap <= tol)):
        return solution
    W = solution.W
    split = None if start is None else solution.split
    finish = Finish(tol, exact_ranks)
    curvature = lipschitz(problems.fit)
    curvature = curvature if curvature > 0 else 1.0
    strength = repeated(problems.alpha, W.shape[0])
    Z = W
    momentum = 1.0
    accuracy = 1e-3
    for iteration in range(1, max_iter + 1):
        gradient = problems.tensors(problems.fit.evaluate(Z).gradient)
        before = W
        W, split = prox_adm(problems.penalty, Z - gradient / curvature, strength, curvature, split, tol=accuracy)
        if float(xp.sum((Z - W) * (W - before))) > 0.0:  # momentum points uphill (O'Donoghue and Candes, 2015)
            momentum = 1.0
        next_momentum = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        Z = W + ((momentum - 1.0) / next_momentum) * (W - before)
        momentum = next_momentum
        step = _length(W - before) / (1e-300 + _length(W))
        accuracy = min(accuracy, max(0.1 * step, 1e-14))
        if iteration % CHECK_EVERY == 0 or iteration == max_iter:
            solution, done = finish.judge(problems, problems.certified(W, split, iteration))
            if on_iteration is not None:
                on_iteration(solution)
            if bool(xp.all(done)):
                break
    return solution


def prox_adm(
    penalty: Penalty,
    P: Array,
    alpha: Array,
    curvature: float,
    split: Split | None = None,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
) -> tuple[Array, Split]:
    """Minimise ``curvature/2 |W - P|^2 + alpha norm(W)``; return the point with its split over the terms.

    By the alternating direction method of multipliers (the paper's Eq. 26), until an iteration moves the point by at most
    ``tol`` times the sum of the length of the point and a hundredth of the length of P.

    Parameters
    ----------
    P : array of shape (B, I1, ..., IN)
    alpha : array of shape (B,)
    curvature : the paper's L; the step ``rho``, its beta, is chosen in proportion to it
    split : where an earlier call ended, to start from

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.penalties import Nuclear
    >>> from tracelearn.solvers.apg import prox_adm
    >>> W, split = prox_adm(1.0 * Nuclear(0), np.diag([3.0, 1.0])[None], np.array([2.0]), 1.0)
    >>> np.round(W[0], 9)
    array([[1., 0.],
           [0., 0.]])
    """
    xp = array_namespace(P)
    stiffness = penalty.stiffness
    unit = _UNIT * _length(P)
    rho = xp.full_like(alpha, stiffness * curvature)
    split = penalty.start(P) if split is None else split
    W = None
    for _ in range(max_iter):
        before = W
        W = (curvature * P + penalty.pull(split, rho)) / ((1.0 + stiffness) * curvature)
        split = penalty.push(split, W, alpha, rho, 1.0)
        if before is not None and _length(W - before) <= tol * (unit + _length(before)):
            break
    return W, split


def _length(T: Array) -> float:
    """Find the Euclidean length of all entries."""
    xp = array_namespace(T)
    return float(xp.sqrt(xp.sum(T**2)))
