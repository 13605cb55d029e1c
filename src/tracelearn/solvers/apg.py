"""The paper's accelerated proximal gradient, with the tight step."""

from __future__ import annotations

import math

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Penalty
from tracelearn.problems.smooth import Smooth
from tracelearn.solvers.guard import guarded
from tracelearn.solvers.problems import CHECK_EVERY, Finish, Problems
from tracelearn.solvers.prox import PROXES, Prox
from tracelearn.solvers.solution import Solution, Watcher

__all__ = ["apg_adm", "apg_dr"]


def _apg(
    prox: Prox,
    smooth: Smooth,
    penalty: Penalty,
    alpha: Array,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    exact_ranks: bool = True,
    on_iteration: Watcher | None = None,
) -> Solution:
    """Run the outer loop of the paper's Algorithm 1 with the tight step and adaptive restart.

    The inner proximal point starts from the split of the last one and is found to a tenth of the last outer step: more
    would be wasted while the outer iterate still moves, less would stall it.
    """
    xp = array_namespace(alpha)
    problems = Problems.of(smooth, penalty, alpha)
    found = problems.zero() if start is None else problems.certified(start.W, start.split, 0)
    if bool(xp.all(found.gap <= tol)):
        return found
    W, split = found.W, None if start is None else found.split
    finish = Finish(problems, tol, exact_ranks)
    curvature = smooth.lipschitz()
    curvature = curvature if curvature > 0 else 1.0
    strength = problems.each(alpha)
    Z, momentum, accuracy = W, 1.0, 1e-3
    for iteration in range(1, max_iter + 1):
        gradient = problems.tensors(smooth.evaluate(problems.rows(Z)).gradient)
        before = W
        W, split = prox(penalty, Z - gradient / curvature, strength, curvature, split, tol=accuracy)
        if float(xp.sum((Z - W) * (W - before))) > 0.0:  # momentum points uphill (O'Donoghue and Candes, 2015)
            momentum = 1.0
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        Z = W + ((momentum - 1.0) / following) * (W - before)
        momentum = following
        step = float(xp.sqrt(xp.sum((W - before) ** 2))) / (1e-300 + float(xp.sqrt(xp.sum(W**2))))
        accuracy = min(accuracy, max(0.1 * step, 1e-14))
        if iteration % CHECK_EVERY == 0 or iteration == max_iter:
            found, done = finish.judge(problems, problems.certified(W, split, iteration))
            if on_iteration is not None:
                on_iteration(found)
            if bool(xp.all(done)):
                break
    return found


@guarded
def apg_adm(*args: object, **options: object) -> Solution:
    """Accelerated proximal gradient with the alternating direction method inside; arguments as in ``admm``."""
    return _apg(PROXES["adm"], *args, **options)  # type: ignore[arg-type]


@guarded
def apg_dr(*args: object, **options: object) -> Solution:
    """Accelerated proximal gradient with Douglas-Rachford splitting inside; arguments as in ``admm``."""
    return _apg(PROXES["dr"], *args, **options)  # type: ignore[arg-type]
