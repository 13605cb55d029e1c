"""cvxpy with a conic solver, stated twice: as anyone would, and as a sum of p squares through our moments."""

import time
import warnings
from collections.abc import Callable

import cvxpy as cp
import numpy as np

from benchmarks.harness import Arrival
from benchmarks.problems import Problem
from tracelearn import Moments

# From loose to tight: the first with which a solver meets the wanted error is the one that is compared.
SETTINGS: dict[str, Callable[[float], list[dict]]] = {
    "SCS": lambda limit: [
        {"eps_abs": eps, "eps_rel": eps, "max_iters": 1_000_000, "time_limit_secs": limit} for eps in (1e-4, 1e-5, 1e-6)
    ],
    "CLARABEL": lambda limit: [
        {"tol_gap_abs": eps, "tol_gap_rel": eps, "tol_feas": eps, "time_limit": limit} for eps in (1e-6, 1e-8)
    ],
}


def state(problem: Problem, plain: bool) -> tuple[cp.Problem, cp.Variable]:
    """State the problem, from the samples."""
    rows = problem.X.reshape(len(problem.X), -1)
    w = cp.Variable(rows.shape[1])
    if plain:
        loss = cp.sum_squares(rows @ w + cp.Variable() - problem.y) / len(rows)
    else:
        moments = Moments.of(problem.X, problem.y)
        factor = np.linalg.cholesky(moments.gram / moments.weight)
        loss = cp.sum_squares(factor.T @ w - np.linalg.solve(factor, moments.cross[:, 0] / moments.weight))
    entries = np.arange(rows.shape[1]).reshape(problem.shape)
    norms = []
    for mode, size in enumerate(problem.shape):
        order = np.moveaxis(entries, mode, 0).ravel()
        norms.append(cp.normNuc(cp.reshape(w[order], (size, order.size // size), order="C")))
    return cp.Problem(cp.Minimize(loss + problem.alpha / len(norms) * cp.sum(cp.hstack(norms)))), w


def arrive(problem: Problem, solver: str, target: float, limit: float, *, plain: bool) -> Arrival:
    """Time the loosest setting that meets the wanted error."""
    arrival = Arrival(limit, np.inf, False)
    for settings in SETTINGS[solver](limit):
        began = time.perf_counter()
        stated, w = state(problem, plain)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stated.solve(solver=solver, warm_start=False, **settings)
        except cp.error.SolverError:
            pass
        taken = time.perf_counter() - began
        error = np.inf if w.value is None else problem.error(w.value)
        own = (
            (stated.solver_stats.solve_time or 0.0) + (stated.solver_stats.setup_time or 0.0)
            if w.value is not None
            else taken
        )
        arrival = Arrival(taken, error, error <= target, f"of which the solver itself {own:.2g} s")
        if arrival.arrived or taken >= limit:
            break
    return arrival
