"""copt: accelerated proximal gradient at order 2; three-operator splitting on one copy for each mode above."""

from collections.abc import Callable

import copt
import copt.penalty
import numpy as np

from benchmarks.problems import Problem
from tracelearn import Moments

NAME = "copt"


def solve(problem: Problem, watch: Callable[[np.ndarray], None]) -> None:
    moments = Moments.of(problem.X, problem.y)
    gram, cross = moments.gram / moments.weight, moments.cross[:, 0] / moments.weight
    constant = float(moments.target_sq[0] / moments.weight)
    lipschitz = 2.0 * float(np.linalg.eigvalsh(gram)[-1])

    def value(w: np.ndarray) -> float:
        return float(w @ (gram @ w) - 2.0 * cross @ w) + constant

    def gradient(w: np.ndarray) -> np.ndarray:
        return 2.0 * (gram @ w - cross)

    if len(problem.shape) == 2:
        norm = copt.penalty.TraceNorm(problem.alpha, problem.shape)
        copt.minimize_proximal_gradient(
            value,
            np.zeros(len(gram)),
            norm.prox,
            jac=gradient,
            tol=0.0,
            max_iter=1_000_000,
            accelerated=True,
            step=lambda _: 1.0 / lipschitz,
            callback=lambda state: watch(state["x"]),
        )
        return
    _split(problem, value, gradient, lipschitz, watch)


def _split(
    problem: Problem,
    value: Callable[[np.ndarray], float],
    gradient: Callable[[np.ndarray], np.ndarray],
    lipschitz: float,
    watch: Callable[[np.ndarray], None],
) -> None:
    """Three-operator splitting: the loss at the mean of the copies, a trace norm of each, and that they are equal."""
    shape, order = problem.shape, len(problem.shape)
    entries = np.arange(np.prod(shape)).reshape(shape)
    orders = [np.moveaxis(entries, mode, 0).ravel() for mode in range(order)]
    norms = [copt.penalty.TraceNorm(problem.alpha / order, (size, len(orders[0]) // size)) for size in shape]

    def loss(copies: np.ndarray, return_gradient: bool = True) -> object:
        mean = copies.reshape(order, -1).mean(axis=0)
        return (value(mean), np.tile(gradient(mean) / order, order)) if return_gradient else value(mean)

    def shrink(copies: np.ndarray, step: float) -> np.ndarray:
        out = np.empty((order, len(orders[0])))
        for copy, row, at, norm in zip(copies.reshape(order, -1), out, orders, norms, strict=True):
            row[at] = norm.prox(copy[at], step)
        return out.ravel()

    def agree(copies: np.ndarray, step: float) -> np.ndarray:
        return np.tile(copies.reshape(order, -1).mean(axis=0), order)

    copt.minimize_three_split(
        loss,
        np.zeros(order * len(orders[0])),
        shrink,
        agree,
        tol=0.0,
        max_iter=1_000_000,
        line_search=False,
        step_size=order / lipschitz,
        callback=lambda state: watch(state["z"].reshape(order, -1)[0]),
    )
