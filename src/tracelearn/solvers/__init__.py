"""Algorithms: functions from a smooth half, a penalty and a strength to a ``Solution``.

They know neither the loss nor the norm nor the array library. Every one stops on the duality gap.
"""

from tracelearn.solvers.admm import admm
from tracelearn.solvers.apg import apg_adm, apg_dr
from tracelearn.solvers.newton import newton
from tracelearn.solvers.solution import Solution, Solver

__all__ = ["SOLVERS", "Solution", "Solver", "admm", "apg_adm", "apg_dr", "newton"]

SOLVERS: dict[str, Solver] = {"admm": admm, "apg-adm": apg_adm, "apg-dr": apg_dr, "newton": newton}
