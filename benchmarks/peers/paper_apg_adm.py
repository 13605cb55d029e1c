"""The paper's APG_ADM, Algorithm 1 with its own step and constants."""

from collections.abc import Callable

import numpy as np

from benchmarks.problems import Problem
from tracelearn import Moments
from tracelearn.paper import Constants, algorithm1

NAME = "APG_ADM, the paper's step"


def solve(problem: Problem, watch: Callable[[np.ndarray], None]) -> None:
    moments = Moments.of(problem.X, problem.y)
    constants = Constants(inner="adm", lam=problem.alpha * moments.weight)
    for iterate in algorithm1(moments, problem.shape, constants):
        watch(iterate.W)
