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
from tracelearn.problems.batch import Problems, Solution, Watcher, certify
from tracelearn.problems.datafits import Evaluation, Squares
from tracelearn.problems.operators import Diagonal
from tracelearn.solvers.admm import admm, continued, guarded
from tracelearn.solvers.apg import apg_adm
from tracelearn.solvers.newton import newton

__all__ = ["subspaces"]

_CORE = 1000  # numbers of a core up to which subspaces are widened: products of cores then cost less than a pass
_LARGEST_CORE = 4096  # beyond it the small problem is none
_LEAST_NEW = 2  # directions for each mode, whatever the core has already
_ACCURACY = 0.003  # of the gap: how well small problems are solved, since a pass costs more
_ROUGH = 30.0  # times that: how well a proximal step is, which has all p weights
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
    xp, fit = array_namespace(problems.alpha), problems.fit
    options: dict[str, Any] = {"tol": tol, "exact_ranks": exact_ranks, "on_iteration": on_iteration}
    if fit.n_groups > 1 or not problems.penalty.is_invariant:
        return _whole(problems, start, 0, max_iter, options)
    if fit.n_problems > 1:  # every problem has subspaces of its own
        return problems.one_by_one(subspaces, start, max_iter=max_iter, **options)
    found = best = problems.begin(start)
    if bool(xp.all(found.gap <= tol)):
        return found
    rows = xp.reshape(found.W, (-1, fit.n_features))
    at = fit.at_zero if start is None else fit.evaluate(rows)
    known, step = _everything(problems).narrowed(rows), None
    spent, accuracy, waited = 0, _ACCURACY, 0
    while True:
        goal = accuracy * float(best.gap[0])
        step = _proximal_step(problems, rows, at, _ROUGH * goal, step)
        found = _certified(problems, at, found, step)
        waited = 0 if float(found.gap[0]) < 0.5 * float(best.gap[0]) else waited + 1
        if waited:  # what limits the gap may be how well the two small problems are solved
            accuracy *= 0.1
        best = found if float(found.gap[0]) <= float(best.gap[0]) else best
        if on_iteration is not None:
            on_iteration(best)
        if bool(xp.all(best.gap <= tol)) or spent >= max_iter:
            return replace(best, n_iter=spent) if spent >= max_iter else best
        wider = known.widened(xp.reshape(step.W, rows.shape), size=_CORE, least=_LEAST_NEW)
        if math.prod(wider.core_shape) > _LARGEST_CORE or waited > _PATIENCE:
            return _whole(problems, best, spent, max_iter, options)
        if 0 in wider.core_shape:  # nothing but zero is in sight: look closer
            spent += 1
            continue
        inner = _solved(problems, wider, found, goal, max_iter - spent, exact_ranks)
        spent += max(inner.n_iter, 1)
        cores = xp.reshape(inner.W, (-1, math.prod(wider.core_shape)))
        rows, known = wider.lift(cores), wider.narrowed(cores)
        at = fit.evaluate(rows)
        split = inner.split.map(partial(_lifted, wider))
        found = Solution(problems.tensors(rows), split, inner.objective, inner.gap, spent, inner.rho)


def _features(problems: Problems) -> tuple[int, ...]:
    """Return the shape of a sample: with targets as the first mode of the weights, what comes after them."""
    whole = math.prod(problems.shape) == problems.fit.n_features
    return problems.shape if whole else problems.shape[1:]


def _everything(problems: Problems) -> Subspaces:
    """Return the subspaces that are whole modes."""
    xp, like = array_namespace(problems.alpha), problems.alpha
    sizes = _features(problems)
    return Subspaces(tuple(xp.eye(size, dtype=like.dtype, device=device(like)) for size in sizes))


def _lifted(known: Subspaces, T: Array) -> Array:
    """Lift all tensors of an array whose last axes are those of a core."""
    xp, order = array_namespace(T), len(known.shape)
    rows = known.lift(xp.reshape(T, (-1, math.prod(known.core_shape))))
    return xp.reshape(rows, (*T.shape[:-order], *known.shape))


def _projected(known: Subspaces, T: Array) -> Array:
    """Project all tensors of an array whose last axes are those of a sample."""
    xp, order = array_namespace(T), len(known.shape)
    rows = known.project(xp.reshape(T, (-1, math.prod(known.shape))))
    return xp.reshape(rows, (*T.shape[:-order], *known.core_shape))


def _proximal_step(problems: Problems, rows: Array, at: Evaluation, goal: float, last: Solution | None) -> Solution:
    """Minimise the objective with the data fit replaced by its gradient at W and one curvature for all directions.

    Where W is the optimum so is the answer, and its split proves it.
    """
    xp, curvature = array_namespace(rows), problems.fit.mean_curvature
    curvature = curvature if curvature > 0 else 1.0
    force, nothing = curvature * rows - at.gradient, xp.zeros_like(rows[:, 0])
    # A constant changes neither answer nor gap; this one keeps the model positive, as the dual of squares needs.
    constant = at.value + xp.sum(rows * (0.5 * curvature * rows - at.gradient)) + 10.0 * problems.scale
    target = (nothing + 1.0) * constant / rows.shape[0]
    diagonal = Diagonal(xp.full_like(rows[0, :], curvature))
    model = Squares(diagonal, 0.5 * force, target, xp.zeros_like(problems.alpha), nothing, nothing)
    stated = replace(problems, fit=model)
    return admm(stated, tol=goal, max_iter=_STEP, start=last, exact_ranks=False)


def _certified(problems: Problems, at: Evaluation, found: Solution, step: Solution) -> Solution:
    """Certify W with the split of the small problem or with that of the proximal step, whichever proves more."""
    splits = [found.split, replace(found.split, duals=step.split.duals)]
    proofs = [certify(problems, found.W, split, at) for split in splits]
    split, (objective, gap) = min(zip(splits, proofs, strict=True), key=lambda pair: float(pair[1][1][0]))
    return replace(found, split=split, objective=objective, gap=gap)


def _solved(
    problems: Problems, wider: Subspaces, found: Solution, goal: float, max_iter: int, exact_ranks: bool
) -> Solution:
    """Solve the problem of the weights in subspaces, starting from where it stands."""
    small = problems.fit.within(wider)
    lead = problems.shape[: len(problems.shape) - len(wider.shape)]
    inner = replace(problems, fit=small, shape=(*lead, *wider.core_shape))
    core = partial(_projected, wider)
    start = replace(found, W=core(found.W), split=found.split.map(core))
    solve = newton if small.solvers.best == "newton" else admm
    return solve(inner, tol=goal, max_iter=max_iter, start=start, exact_ranks=exact_ranks)


def _whole(problems: Problems, start: Solution | None, spent: int, max_iter: int, options: dict[str, Any]) -> Solution:
    """Solve for all weights at once."""
    solve = admm if problems.fit.operator.has_factor else apg_adm
    return continued(solve, problems, start, spent, max_iter=max_iter, **options)
