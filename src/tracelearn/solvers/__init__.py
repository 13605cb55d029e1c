"""Solvers: functions from a batch of problems to a ``Solution``.

They know neither the norm nor the array library, and of a loss at most whether its curvature is bounded. Every one stops on the
duality gap.
"""

from collections.abc import Callable
from typing import Any

from tracelearn.problems.batch import Solution
from tracelearn.solvers.admm import admm
from tracelearn.solvers.apg import apg_adm, apg_dr
from tracelearn.solvers.newton import newton
from tracelearn.solvers.nystrom import nystrom
from tracelearn.solvers.subspaces import subspaces

__all__ = ["SOLVERS", "Solution", "Solver", "admm", "apg_adm", "apg_dr", "newton", "nystrom", "subspaces"]

Solver = Callable[..., Any]

SOLVERS: dict[str, Solver] = {
    "admm": admm,
    "apg-adm": apg_adm,
    "apg-dr": apg_dr,
    "newton": newton,
    "nystrom": nystrom,
    "subspaces": subspaces,
}
