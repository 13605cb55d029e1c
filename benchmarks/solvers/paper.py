"""The paper's six algorithms, with its own step and constants; the online ones read the samples once."""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Race
from benchmarks.problems import Problem
from tracelearn import Moments
from tracelearn.paper.algorithms import Constants, Iterate, algorithm1, algorithm2

FAMILY = "the paper"
NAMES = ("APG_DR", "APG_ADM", "OL_APG_DR", "OL_APG_ADM", "OL_APG_DR_miniBatch", "OL_APG_ADM_miniBatch")
BATCH = 100


def cannot(problem: Problem, name: str) -> str:
    if problem.loss != "squared_error":
        return "The paper's algorithms are for the squared loss."
    return "" if problem.n_targets == 1 else "The paper's algorithms have one target."


def run(problem: Problem, name: str, watch: Race) -> None:
    for iterate in iterates(problem, name):
        watch(iterate.W)


def iterates(problem: Problem, name: str) -> Iterator[Iterate]:
    """Run one of the six by its name; the lambda of the paper multiplies the norm while the loss is a sum."""
    constants = Constants(inner="dr" if "_DR" in name else "adm", lam=problem.alpha * len(problem.X))
    if not name.startswith("OL_"):
        return algorithm1(Moments.of(problem.X, problem.y), problem.shape, constants)
    return algorithm2(batches(problem, BATCH if "miniBatch" in name else 1), problem.shape, constants)


def batches(problem: Problem, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return ((problem.X[k : k + size], problem.y[k : k + size]) for k in range(0, len(problem.X), size))
