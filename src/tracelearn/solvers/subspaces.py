"""Weights in subspaces of the modes: few passes over samples that are too many and too large for a square matrix.

Trace norms of a tensor in Tucker form are those of its core. So the problem of all weights in given subspaces is a small
problem of the same kind, for projected samples, which one pass makes and ADMM or Newton's method solve. Another pass gives
the gradient of all p weights there. One proximal step along it needs no samples: it proves how good the weights are, by its
split of the gradient over the modes, and says in which directions the subspaces are too narrow.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.subspaces import Subspaces
from tracelearn.problems.data_fit import Evaluation
from tracelearn.problems.operators import Diagonal
from tracelearn.problems.problem import Problems, Solution, certify
from tracelearn.problems.squares import quadratic_model
from tracelearn.solvers.admm import admm
from tracelearn.solvers.apg import apg
from tracelearn.solvers.newton import newton
from tracelearn.solvers.stopping import Watcher, continued, guarded

__all__ = ["subspaces"]

_CORE = 1000  # entries of a core up to which subspaces are widened: products of cores then cost less than a pass
_LARGEST_CORE = 4096  # entries of a core beyond which the problem in subspaces is not small any more
_LEAST_NEW = 2  # directions that each mode gets at least, however large the core is
_ACCURACY = 0.003  # the gap of the small problems, as a share of the gap so far: they are cheap next to a pass
_ROUGH = 30.0  # times that is the gap of a proximal step, which costs more since it has all p weights
_STEP = 60  # iterations for one proximal step, which reads no samples; the next one goes on from there
_PATIENCE = 8  # rounds without a smaller gap


@guarded
def subspaces(
    problems: Problems,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    exact_ranks: bool = True,
    on_iteration: Watcher | None = None,
) -> Solution:
    """Solve problems whose weights have low rank in subspaces of the modes, two passes over the samples a round.

    For penalties that are sums of trace norms; others, and weights that need subspaces too large for a small problem, are
    left to ADMM or, where a gradient is a pass, to accelerated proximal gradient. Iterations are those of the small problems.
    Arguments as in ``admm``.
    """
    xp = array_namespace(problems.alpha)
    fit = problems.fit
    options: dict[str, Any] = {"tol": tol, "exact_ranks": exact_ranks, "on_iteration": on_iteration}
    if fit.n_groups > 1 or not problems.penalty.is_invariant:
        return _solved_for_all_weights(problems, start, 0, max_iter, options)
    if fit.n_problems > 1:  # every problem has subspaces of its own
        return problems.one_by_one(
            lambda problem, its_start: subspaces(problem, start=its_start, max_iter=max_iter, **options), start
        )
    evaluation = fit.at_zero if start is None else fit.evaluate(start.W)
    solution = best = problems.begin(start, evaluation)
    if bool(xp.all(solution.gap <= tol)):
        return solution
    rows = xp.reshape(solution.W, (-1, fit.n_features))
    occupied = _whole_modes(problems).narrowed(rows)  # the smallest subspaces that hold W
    step = None
    spent = 0
    accuracy = _ACCURACY
    rounds_waited = 0
    while True:
        goal = accuracy * float(best.gap[0])
        step = _proximal_step(problems, rows, evaluation, _ROUGH * goal, step)
        solution = _certified(problems, evaluation, solution, step)
        rounds_waited = 0 if float(solution.gap[0]) < 0.5 * float(best.gap[0]) else rounds_waited + 1
        if rounds_waited:  # the accuracy of the two small problems may be what limits the gap
            accuracy *= 0.1
        best = solution if float(solution.gap[0]) <= float(best.gap[0]) else best
        if on_iteration is not None:
            on_iteration(best)
        if bool(xp.all(best.gap <= tol)) or spent >= max_iter:
            return replace(best, n_iter=spent) if spent >= max_iter else best
        wider = occupied.widened(xp.reshape(step.W, rows.shape), size=_CORE, least=_LEAST_NEW)
        if math.prod(wider.core_shape) > _LARGEST_CORE or rounds_waited > _PATIENCE:
            return _solved_for_all_weights(problems, best, spent, max_iter, options)
        if 0 in wider.core_shape:  # the step gave only zeros: take another one, more accurate
            spent += 1
            continue
        inner = _solved_within(problems, wider, solution, goal, max_iter - spent, exact_ranks)
        spent += max(inner.n_iter, 1)
        cores = xp.reshape(inner.W, (-1, math.prod(wider.core_shape)))
        rows, occupied = wider.lift(cores), wider.narrowed(cores)
        evaluation = fit.evaluate(rows)
        split = inner.split.map(partial(_lifted, wider))
        solution = Solution(problems.tensors(rows), split, inner.objective, inner.gap, spent, inner.rho)


def _sample_shape(problems: Problems) -> tuple[int, ...]:
    """Return the shape of a sample: that of the weights, without their first mode where this is the targets."""
    has_target_mode = math.prod(problems.shape) != problems.fit.n_features
    return problems.shape[1:] if has_target_mode else problems.shape


def _whole_modes(problems: Problems) -> Subspaces:
    """Return subspaces that hold all tensors: an identity for each mode."""
    xp = array_namespace(problems.alpha)
    like = problems.alpha
    sizes = _sample_shape(problems)
    return Subspaces(tuple(xp.eye(size, dtype=like.dtype, device=device(like)) for size in sizes))


def _lifted(within: Subspaces, T: Array) -> Array:
    """Replace every core by the tensor that it stands for: the last axes of T are those of a core, any others stay."""
    xp = array_namespace(T)
    order = len(within.shape)
    rows = within.lift(xp.reshape(T, (-1, math.prod(within.core_shape))))
    return xp.reshape(rows, (*T.shape[:-order], *within.shape))


def _projected(within: Subspaces, T: Array) -> Array:
    """Replace every tensor by the core of its projection: the last axes of T are those of a sample, any others stay."""
    xp = array_namespace(T)
    order = len(within.shape)
    rows = within.project(xp.reshape(T, (-1, math.prod(within.shape))))
    return xp.reshape(rows, (*T.shape[:-order], *within.core_shape))


def _proximal_step(
    problems: Problems, rows: Array, evaluation: Evaluation, goal: float, last: Solution | None
) -> Solution:
    """Minimise the objective with the data fit replaced by its gradient at W and one curvature for all directions.

    Where W is the optimum so is the answer, and its split proves it.
    """
    xp = array_namespace(rows)
    curvature = problems.fit.mean_curvature
    curvature = curvature if curvature > 0 else 1.0
    operator = Diagonal(xp.full_like(rows[0, :], curvature))
    no_ridge = xp.zeros_like(problems.alpha)
    model = quadratic_model(operator, rows, evaluation.value, evaluation.gradient, no_ridge, problems.scale)
    return admm(replace(problems, fit=model), tol=goal, max_iter=_STEP, start=last, exact_ranks=False)


def _certified(problems: Problems, evaluation: Evaluation, solution: Solution, step: Solution) -> Solution:
    """Certify W with the duals of the small problem or those of the proximal step, whichever give the smaller gap."""
    with_step = replace(solution.split, duals=step.split.duals)
    certificates = []
    for split in (solution.split, with_step):
        objective, gap = certify(problems, solution.W, split, evaluation)
        certificates.append(replace(solution, split=split, objective=objective, gap=gap))
    return min(certificates, key=lambda certificate: float(certificate.gap[0]))


def _solved_within(
    problems: Problems, wider: Subspaces, solution: Solution, goal: float, max_iter: int, exact_ranks: bool
) -> Solution:
    """Solve the problem restricted to weights in the subspaces, starting from the projection of ``solution``."""
    small = problems.fit.within(wider)
    target_modes = problems.shape[: len(problems.shape) - len(wider.shape)]
    inner = replace(problems, fit=small, shape=(*target_modes, *wider.core_shape))
    core = partial(_projected, wider)
    start = replace(solution, W=core(solution.W), split=solution.split.map(core))
    solve = admm if small.is_quadratic else newton
    return solve(inner, tol=goal, max_iter=max_iter, start=start, exact_ranks=exact_ranks)


def _solved_for_all_weights(
    problems: Problems, start: Solution | None, spent: int, max_iter: int, options: dict[str, Any]
) -> Solution:
    """Go on without subspaces, from ``start``."""
    solve = admm if problems.fit.operator.has_factor else apg
    return continued(solve, problems, start, spent, max_iter=max_iter, **options)
