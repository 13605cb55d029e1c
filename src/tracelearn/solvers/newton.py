"""Proximal Newton: losses that are no squares by a sequence of squares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.linalg import replayed
from tracelearn.penalties import Penalty, Split
from tracelearn.problems.batch import Finish, Problems, Solution, Watcher, certify
from tracelearn.problems.datafits import Evaluation, Squares
from tracelearn.solvers.admm import admm, guarded

__all__ = ["newton"]

_LONGEST = 64.0  # steps of the first model


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
    count = problems.fit.n_problems
    options: dict[str, Any] = {
        "tol": tol,
        "max_iter": max_iter,
        "exact_ranks": exact_ranks,
        "on_iteration": on_iteration,
    }
    if problems.fit.n_groups > 1:  # squares alone come in groups that stay together, and are their own model
        return admm(problems, start=start, **options)
    if count > 1:  # separable: every problem has a curvature of its own
        one = [xp.asarray([k], device=device(problems.alpha)) for k in range(count)]
        starts = [None if start is None else start.take(k) for k in one]
        pairs = zip(one, starts, strict=True)
        return Solution.joined([newton(problems.take(k), start=s, **options) for k, s in pairs])
    found = problems.begin(start)
    if bool(xp.all(found.gap <= tol)):
        return found
    W, inner, at = found.W, found, None
    finish, spent, accuracy = Finish(tol, exact_ranks), 0, 0.1
    while True:
        found, done = finish.judge(problems, replace(found, n_iter=spent))
        if on_iteration is not None:
            on_iteration(found)
        if bool(xp.all(done)) or spent >= max_iter:
            return found
        at = problems.fit.evaluate(problems.rows(W)) if at is None else at
        model = problems.fit.model(problems.rows(W), at)
        step = None
        if model is not None:
            first = None if spent == 0 and start is None else inner
            goal = accuracy * min(float(found.gap[0]), 1.0)
            inner = _answer(replace(problems, fit=model, reference=problems.scale), first, goal, max_iter - spent)
            if inner.n_iter == 0:  # good enough for the model, which is more lenient than the loss
                accuracy *= 0.1
            spent += max(inner.n_iter, 1)
            step = _searched(problems, W, inner, at, longer=first is None)
        if (
            step is None
        ):  # there is no model, or it is no guide here; the bound of the curvature is, one pass an iteration
            return _bounded(problems, found, spent, tol, max_iter, exact_ranks, on_iteration)
        found, at = step
        W = found.W


def _answer(problems: Problems, start: Solution | None, goal: float, limit: int) -> Solution:
    """Solve the problem of a model: by ADMM, or where a squared norm is all there is to penalise by one solve."""
    xp, fit = array_namespace(problems.alpha), problems.fit
    if bool(xp.any(problems.alpha > 0)) or not bool(xp.all(fit.ridge > 0)):  # type: ignore[attr-defined]
        return admm(problems, tol=goal, max_iter=limit, start=start, exact_ranks=False)
    zero = xp.zeros_like(fit.at_zero.gradient)
    W = problems.tensors(fit.updater(xp.zeros_like(problems.alpha))(zero, zero))
    return problems.certified(W, problems.penalty.start(W), 1, proven=False)


def _bounded(
    problems: Problems,
    found: Solution,
    spent: int,
    tol: float,
    max_iter: int,
    exact_ranks: bool,
    on_iteration: Watcher | None,
) -> Solution:
    """Go on by ADMM with the bound of the curvature; count and show its iterations after those that were spent."""

    def counted(so_far: Solution) -> Solution:
        return replace(so_far, n_iter=spent + so_far.n_iter)

    def watch(so_far: Solution) -> None:
        if on_iteration is not None:
            on_iteration(counted(so_far))

    if isinstance(problems.fit, Squares) or problems.fit.loss.curvature is None:  # type: ignore[attr-defined]
        return found
    begun = found if spent else None
    limit = max(max_iter - spent, 1)
    return counted(admm(problems, tol=tol, max_iter=limit, start=begun, exact_ranks=exact_ranks, on_iteration=watch))


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
        there = problems.fit.evaluate(problems.rows(V), at)
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
    proof = certify(there, penalty, V, inner.split, alpha, problems.scale, penalised=problems.penalised)
    return Solution(V, inner.split, *proof, 0, inner.rho), there
