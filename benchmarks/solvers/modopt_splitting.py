"""modopt's generalised forward-backward: one gradient step, and one of its low-rank operators for each mode."""

from contextlib import redirect_stderr
from io import StringIO

import numpy as np
from modopt.opt.algorithms import GenForwardBackward
from modopt.opt.gradient import GradBasic
from modopt.opt.proximity import LowRankMatrix, ProximityParent

from benchmarks.harness import Race
from benchmarks.problems import Problem
from benchmarks.statements import Unfolding, differentiable, unfoldings

FAMILY = "modopt"
NAMES = ("modopt",)


class Unfolded(ProximityParent):
    """The trace norms of one unfolding, from modopt's operator for matrices."""

    def __init__(self, term: Unfolding) -> None:
        norm = LowRankMatrix(term.strength)

        def shrink(w: np.ndarray, extra_factor: float = 1.0) -> np.ndarray:
            return term.apply(lambda m: norm.op(m.reshape(term.shape), extra_factor=extra_factor).ravel(), w)

        super().__init__(shrink, lambda *_, **__: 0.0)


class Shown:
    """Takes the place of modopt's cost, the one thing that it asks at every iteration: shows the iterate."""

    def __init__(self, watch: Race) -> None:
        self.watch = watch

    def get_cost(self, w: np.ndarray) -> bool:
        self.watch(w)
        return False


def cannot(problem: Problem, name: str) -> str:
    return ""


def run(problem: Problem, name: str, watch: Race) -> None:
    loss, terms = differentiable(problem), unfoldings(problem)
    zero = np.zeros(terms[0].index.size)
    # Weights that sum to one without rounding, which modopt insists on.
    weights = np.full(len(terms), 1.0 / len(terms))
    weights[-1] = 1.0 - weights[:-1].sum()
    with redirect_stderr(StringIO()):  # it remarks on the cost being no cost
        algorithm = GenForwardBackward(
            zero,
            GradBasic(zero, loss.gradient, lambda g: g),
            [Unfolded(term) for term in terms],
            cost=Shown(watch),
            # It may be anything below 2 / lipschitz; close to that it is fastest.
            step_size=1.8 / loss.lipschitz,
            weights=weights,
            auto_iterate=False,
            progress=False,
        )
    algorithm.iterate(max_iter=1_000_000)
