"""copt: accelerated proximal gradient for one term; three-operator splitting on one copy for each mode otherwise."""

import copt
import copt.penalty
import numpy as np

from benchmarks.harness import Race
from benchmarks.problems import Problem
from benchmarks.statements import Differentiable, Unfolding, differentiable, unfoldings

FAMILY = "copt"
NAMES = ("copt",)


def cannot(problem: Problem, name: str) -> str:
    return ""


def run(problem: Problem, name: str, watch: Race) -> None:
    loss, terms = differentiable(problem), unfoldings(problem)
    norms = [copt.penalty.TraceNorm(term.strength, term.shape) for term in terms]
    if len(terms) > 1:
        _split(loss, terms, norms, watch)
        return
    copt.minimize_proximal_gradient(
        loss.value,
        np.zeros(terms[0].index.size),
        lambda w, step: terms[0].apply(lambda matrix: norms[0].prox(matrix, step), w),
        jac=loss.gradient,
        tol=0.0,
        max_iter=1_000_000,
        accelerated=True,
        step=lambda _: 1.0 / loss.lipschitz,
        callback=lambda state: watch(state["x"]),
    )


def _split(loss: Differentiable, terms: list[Unfolding], norms: list[copt.penalty.TraceNorm], watch: Race) -> None:
    """Three-operator splitting: the loss at the mean of the copies, a trace norm of each, and that they are equal."""
    order, size = len(terms), terms[0].index.size

    def value(copies: np.ndarray, return_gradient: bool = True) -> object:
        mean = copies.reshape(order, size).mean(axis=0)
        return (loss.value(mean), np.tile(loss.gradient(mean) / order, order)) if return_gradient else loss.value(mean)

    def shrink(copies: np.ndarray, step: float) -> np.ndarray:
        rows = zip(copies.reshape(order, size), terms, norms, strict=True)
        # Each shrinkage is bound to its norm at once, within the turn of the loop.
        return np.concatenate([term.apply(lambda m, n=norm: n.prox(m, step), copy) for copy, term, norm in rows])

    def agree(copies: np.ndarray, step: float) -> np.ndarray:
        return np.tile(copies.reshape(order, size).mean(axis=0), order)

    copt.minimize_three_split(
        value,
        np.zeros(order * size),
        shrink,
        agree,
        tol=0.0,
        max_iter=1_000_000,
        line_search=False,
        step_size=order / loss.lipschitz,
        callback=lambda state: watch(state["z"][:size]),
    )
