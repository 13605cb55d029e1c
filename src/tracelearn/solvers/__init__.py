"""Solvers: functions from a batch of problems to a ``Solution``.

They know neither the norm nor the array library, and of a loss at most whether its curvature is bounded. Every one stops on the
duality gap.
"""

from collections.abc import Callable

from tracelearn.problems.problem import Solution
from tracelearn.solvers.admm import admm
from tracelearn.solvers.apg import apg
from tracelearn.solvers.newton import newton
from tracelearn.solvers.subspaces import subspaces

__all__ = ["SOLVERS", "Solution", "Solver", "admm", "apg", "newton", "subspaces"]

Solver = Callable[..., Solution]

SOLVERS: dict[str, Solver] = {
    "admm": admm,
    "apg": apg,
    "newton": newton,
    "subspaces": subspaces,
}
