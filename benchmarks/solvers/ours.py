"""Ours: every solver of ``tracelearn.solvers``, whatever is registered there."""

from benchmarks.harness import Race
from benchmarks.problems import Problem
from tracelearn.solvers import SOLVERS, Solution

FAMILY = "tracelearn"
NAMES = tuple(f"tracelearn {name}" for name in SOLVERS)


def cannot(problem: Problem, name: str) -> str:
    return ""


def run(problem: Problem, name: str, watch: Race) -> None:
    def show(solution: Solution) -> None:
        watch(solution.W, solution.split)

    # Its own certificates stay on the clock; it is asked for more than is measured, so that the watch ends it.
    solution = SOLVERS[name.removeprefix("tracelearn ")](
        problem.stated(),
        tol=1e-12,
        max_iter=1_000_000,
        exact_ranks=False,
        on_iteration=show,
    )
    show(solution)
