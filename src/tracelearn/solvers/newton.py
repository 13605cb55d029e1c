"""Proximal Newton: losses that are no squares by a sequence of squares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.linalg import replayed
from tracelearn.penalties import Penalty, Split
from tracelearn.problems.batch import Finish, Problems, Solution, Watcher, certify
from tracelearn.problems.datafits import Evaluation, Squares
from tracelearn.solvers.admm import BreakdownError, admm, continued, guarded

__all__ = ["newton"]

_LONGEST = 64.0  # steps of the first model
_NEAR = 1e-2  # gap below which a model of second order should leave half of it at most


@guarded
def newton(
    problems: Problems,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    exact_ranks: bool = True,
    on_iteration: Watcher | None = None,
) -> Solution:
    """Solve problems whose loss is no square by a sequence of squares: proximal Newton, ADMM inside.

    Every model of second order costs one weighted gram and then some iterations that do not look at the samples; a
    handful of models is enough where a fixed bound of the curvature takes thousands of passes. Arguments as in ``admm``.
    """
    xp = array_namespace(problems.alpha)
    options: dict[str, Any] = {
        "tol": tol,
        "max_iter": max_iter,
        "exact_ranks": exact_ranks,
        "on_iteration": on_iteration,
    }
    if problems.fit.n_groups > 1:  # squares alone come in groups that stay together, and are their own model
        return admm(problems, start=start, **options)
    if problems.fit.n_problems > 1:  # separable: every problem has a curvature of its own
        return problems.one_by_one(newton, start, **options)
    found = problems.begin(start)
    if bool(xp.all(found.gap <= tol)):
        return found
    inner, at = found, problems.fit.at_zero if start is None else problems.fit.evaluate(found.W)
    # What has the exact ranks of a model that is nearly exact is looked at once, and a look may be a pass.
    ranks = exact_ranks and problems.fit.model_error < 1.0
    finish, spent, accuracy = Finish(tol, exact_ranks and not ranks), 0, 0.1
    while True:
        found, done = finish.judge(problems, replace(found, n_iter=spent))
        if on_iteration is not None:
            on_iteration(found)
        if bool(xp.all(done)) or spent >= max_iter:
            return found
        first, error = None if spent == 0 and start is None else inner, problems.fit.model_error
        goal = accuracy * max(error * min(float(found.gap[0]), 1.0), 3.0 * tol)
        # Where a nearly exact model cannot be solved, half of the iterations are left for the exact problem.
        limit = max_iter - spent if problems.fit.is_exact or error >= 1.0 else (max_iter - spent + 1) // 2
        inner, step = _stepped(problems, found.W, at, first, goal, limit, ranks)
        if inner.n_iter == 0 and step is not None:  # good enough for the model, which is more lenient than the loss
            accuracy *= 0.1
        spent += max(inner.n_iter, int(step is not None))
        if step is None and problems.fit.is_exact:
            # There is no model, or it is no guide here; the bound of the curvature is, one pass an iteration.
            return _bounded(problems, found, spent, options)
        fit = problems.fit.exact() if step is None or _is_slow(found, step[0], error, tol) else problems.fit
        problems = replace(problems, fit=fit)
        found, at = (found, at) if step is None else step


def _is_slow(before: Solution, after: Solution, error: float, tol: float) -> bool:
    """Tell whether a model led less far than it should: near the answer much closer, and if it is nearly exact from anywhere."""
    gap = float(before.gap[0])
    expected = 0.1 * gap if error < 1.0 else 0.5 * gap if gap < _NEAR else gap
    return float(after.gap[0]) > max(expected, tol)


def _stepped(
    problems: Problems,
    W: Array,
    at: Evaluation,
    start: Solution | None,
    goal: float,
    limit: int,
    exact_ranks: bool,
) -> tuple[Solution, tuple[Solution, Evaluation] | None]:
    """Solve the model at W; return its answer, and the step towards it, or None where there is no model or none that helps."""
    model = problems.fit.model(W, at)
    nothing = problems.certified(W, problems.penalty.start(W), 0, proven=False)
    if model is None:
        return nothing, None
    stated = replace(problems, fit=model)
    try:
        inner = _answer(stated, start, goal, limit, exact_ranks)
    except BreakdownError:
        if problems.fit.is_exact:
            raise
        return nothing, None  # collinear features: what single precision left of a model is not positive
    longer = start is None and problems.fit.model_error >= 1.0
    return inner, _searched(problems, W, inner, at, longer=longer)


def _answer(problems: Problems, start: Solution | None, goal: float, limit: int, exact_ranks: bool) -> Solution:
    """Solve the problem of a model: by ADMM, or where a squared norm is all there is to penalise by one solve."""
    xp, fit = array_namespace(problems.alpha), problems.fit
    if bool(xp.any(problems.alpha > 0)) or not bool(xp.all(fit.ridge > 0)):
        return admm(problems, tol=goal, max_iter=limit, start=start, exact_ranks=exact_ranks)
    zero = xp.zeros_like(fit.at_zero.gradient)
    W = problems.tensors(fit.updater(xp.zeros_like(problems.alpha))(zero, zero))
    return problems.certified(W, problems.penalty.start(W), 1, proven=False)


def _bounded(problems: Problems, found: Solution, spent: int, options: dict[str, Any]) -> Solution:
    """Go on by ADMM with the bound of the curvature, where there is one."""
    fit = problems.fit
    has_bound = fit.operator.has_factor if isinstance(fit, Squares) else fit.loss.curvature is not None  # type: ignore[attr-defined]
    return continued(admm, problems, found if spent else None, spent, **options) if has_bound else found


def _objective(penalty: Penalty, split: Split, alpha: Array, W: Array, value: Array) -> Array:
    """Add the penalty of W to the value of its data fit."""
    return value + alpha * array_namespace(W).sum(penalty.value(W, split))


def _searched(
    problems: Problems, W: Array, inner: Solution, at: Evaluation, *, longer: bool
) -> tuple[Solution, Evaluation] | None:
    """Go from W towards the answer of the model, halving the step until the true objective falls; also evaluate it there.

    A step from zero is also doubled while that helps: where classes are told apart curvatures at zero are much too large.
    """
    penalty, alpha = problems.penalty, problems.alpha

    def look(length: float) -> tuple[float, Array, Evaluation]:
        V = W + length * (inner.W - W)
        there = problems.fit.evaluate(V, at)
        return objective(V, there), V, there

    def objective(V: Array, there: Evaluation) -> float:
        return float(replayed(V, _objective, penalty, inner.split, alpha, V, there.value)[0])

    # The rounding of two sums: without it the last step, which changes nothing any more, would be refused.
    before = objective(W, at)
    limit, length, found = before + 1e-14 * abs(before), 1.0, look(1.0)
    while found[0] > limit:
        length *= 0.5
        if length < 1e-6:
            return None
        found = look(length)
    while longer and 1.0 <= length < _LONGEST:
        length *= 2.0
        further = look(length)
        longer = further[0] < found[0]
        found = further if longer else found
    _, V, there = found
    proof = certify(problems, V, inner.split, there)
    return Solution(V, inner.split, *proof, 0, inner.rho), there
