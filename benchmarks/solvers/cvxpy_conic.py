"""cvxpy with a conic solver, stated twice: as anyone would, and in as few squares as there are samples or features.

Conic solvers show no iterates: they are run to several tolerances, each time from the start.
"""

import time
import warnings
from collections.abc import Callable

import cvxpy as cp
import numpy as np

from benchmarks.harness import Arrival, Race
from benchmarks.problems import Problem
from benchmarks.statements import least_squares, unfoldings

FAMILY = "cvxpy"
NAMES = ("cvxpy, SCS", "cvxpy, Clarabel")

# What a tolerance and a time limit are called.
SETTINGS: dict[str, Callable[[float, float], dict]] = {
    "SCS": lambda eps, limit: {"eps_abs": eps, "eps_rel": eps, "max_iters": 1_000_000, "time_limit_secs": limit},
    "CLARABEL": lambda eps, limit: {"tol_gap_abs": eps, "tol_gap_rel": eps, "tol_feas": eps, "time_limit": limit},
}
# From loose to tight: the first with which a solver meets a wanted error is the one that a question compares.
LADDER = {"SCS": (1e-4, 1e-5, 1e-6), "CLARABEL": (1e-6, 1e-8)}
LONG_LADDER = {"SCS": (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8), "CLARABEL": (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)}
LARGEST_GB = 0.5


def state(problem: Problem, plain: bool) -> tuple[cp.Problem, cp.Variable]:
    """State the problem, from the samples."""
    p, K = problem.rows.shape[1], problem.n_targets
    w = cp.Variable(K * p)
    W = cp.reshape(w, (K, p), order="C")
    if problem.loss == "log_loss":
        loss = cp.sum(cp.logistic(-(problem.rows * problem.targets) @ w)) / len(problem.X)
    elif plain:
        intercept = cp.reshape(cp.Variable(K), (1, K), order="C")
        loss = cp.sum_squares(problem.rows @ W.T + np.ones((len(problem.X), 1)) @ intercept - problem.targets)
        loss = loss / len(problem.X)
    else:
        A, B = least_squares(problem)
        loss = cp.sum_squares(A @ W.T - B)
    norms = [
        term.strength * cp.normNuc(cp.reshape(w[at], term.shape, order="C"))
        for term in unfoldings(problem)
        for at in term.index
    ]
    return cp.Problem(cp.Minimize(loss + cp.sum(cp.hstack(norms)))), w


def solve(problem: Problem, solver: str, eps: float, limit: float, *, plain: bool) -> tuple[np.ndarray | None, float]:
    """State and solve; return the weights, where there are any, and the seconds that the solver itself took."""
    began = time.perf_counter()
    stated, w = state(problem, plain)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stated.solve(solver=solver, warm_start=False, **SETTINGS[solver](eps, limit))
    except cp.error.SolverError:
        pass
    if w.value is None:
        return None, time.perf_counter() - began
    stats = stated.solver_stats
    return w.value, (stats.solve_time or 0.0) + (stats.setup_time or 0.0)


def arrive(problem: Problem, solver: str, target: float, limit: float, *, plain: bool) -> Arrival:
    """Time the loosest setting that meets the wanted error."""
    arrival = Arrival(limit, np.inf, False)
    for eps in LADDER[solver]:
        began = time.perf_counter()
        W, seconds_of_solver = solve(problem, solver, eps, limit, plain=plain)
        taken = time.perf_counter() - began
        error = np.inf if W is None else problem.error(W)
        arrival = Arrival(taken, error, error <= target, f"of which the solver itself {seconds_of_solver:.2g} s")
        if arrival.arrived or taken >= limit:
            break
    return arrival


def cannot(problem: Problem, name: str) -> str:
    if "Clarabel" not in name:
        return ""
    sizes = [(sum(term.shape), len(term.index)) for term in unfoldings(problem)]
    # A cone of side m has m (m + 1) / 2 unknowns; half of a dense square of those is kept, with indices.
    needs = sum(count * (side * (side + 1) / 2) ** 2 * 8 for side, count in sizes) / 1e9
    if needs <= LARGEST_GB:
        return ""
    return f"Clarabel would keep {needs:.1f} GB for its cones, more than the {LARGEST_GB:g} GB it is given."


def run(problem: Problem, name: str, watch: Race) -> None:
    solver = name.rsplit(" ", 1)[1].upper()
    for eps in LONG_LADDER[solver]:
        watch.restart()
        W, _ = solve(problem, solver, eps, watch.limit, plain=False)
        if W is None:
            return
        watch(W)
