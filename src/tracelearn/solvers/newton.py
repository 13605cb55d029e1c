"""Proximal Newton: losses that are no squares by a sequence of squares."""

from __future__ import annotations

from dataclasses import replace

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Penalty
from tracelearn.problems.smooth import Evaluation, Smooth
from tracelearn.solvers.admm import admm
from tracelearn.solvers.guard import guarded
from tracelearn.solvers.problems import Finish, Problems
from tracelearn.solvers.solution import Solution, Watcher

__all__ = ["newton"]


@guarded
def newton(
    smooth: Smooth,
    penalty: Penalty,
    alpha: Array,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    exact_ranks: bool = True,
    on_iteration: Watcher | None = None,
) -> Solution:
    """Solve a problem whose loss is no square by a sequence of squares: proximal Newton, ADMM inside.

    Every model of second order costs one weighted gram and then some iterations that do not look at the samples; a
    handful of models is enough where a fixed bound of the curvature takes thousands of passes. Arguments as in ``admm``.
    """
    xp = array_namespace(alpha)
    count = smooth.n_problems
    if count > 1:  # separable: every problem has a curvature of its own
        options = {"tol": tol, "max_iter": max_iter, "exact_ranks": exact_ranks, "on_iteration": on_iteration}
        one = [xp.asarray([k], device=device(alpha)) for k in range(count)]
        starts = [None if start is None else start.take(k, k) for k in one]
        pairs = zip(one, starts, strict=True)
        return Solution.joined([newton(smooth.take(k), penalty, alpha[k], start=s, **options) for k, s in pairs])  # type: ignore[arg-type]
    problems = Problems.of(smooth, penalty, alpha)
    found = problems.zero() if start is None else problems.certified(start.W, start.split, 0, start.rho)
    if bool(xp.all(found.gap <= tol)):
        return found
    W, inner = found.W, found
    finish, spent, accuracy = Finish(problems, tol, exact_ranks), 0, 0.1
    while True:
        found, done = finish.judge(problems, replace(found, n_iter=spent))
        if on_iteration is not None:
            on_iteration(found)
        if bool(xp.all(done)) or spent >= max_iter:
            return found
        at = smooth.evaluate(problems.rows(W))
        model = smooth.model(problems.rows(W), at)
        if model is None:
            return admm(
                smooth,
                penalty,
                alpha,
                tol=tol,
                max_iter=max_iter,
                start=start,
                exact_ranks=exact_ranks,
                on_iteration=on_iteration,
            )
        first = None if spent == 0 and start is None else inner
        goal = accuracy * min(float(found.gap[0]), 1.0)
        inner = admm(
            model,
            penalty,
            alpha,
            tol=goal,
            max_iter=max_iter,
            start=first,
            exact_ranks=False,
            reference=problems.reference,
        )
        if inner.n_iter == 0:  # good enough for the model, which is more lenient than the loss
            accuracy *= 0.1
        spent += max(inner.n_iter, 1)
        step = _searched(problems, W, inner, at)
        if step is None:  # the model is no guide here; its bound is, one pass an iteration
            return admm(
                smooth, penalty, alpha, tol=tol, max_iter=max(max_iter - spent, 1), start=found, exact_ranks=exact_ranks
            )
        found, W = step, step.W


def _searched(problems: Problems, W: Array, inner: Solution, at: Evaluation) -> Solution | None:
    """Go from W towards the answer of the model, halving the step until the true objective falls."""
    xp = array_namespace(W)
    before = float(at.value[0]) + float(problems.alpha[0]) * float(xp.sum(problems.penalty.value(W, inner.split)))
    length = 1.0
    for _ in range(20):
        trial = problems.certified(W + length * (inner.W - W), inner.split, 0, inner.rho)
        # The rounding of two sums: without it the last step, which changes nothing any more, would be refused.
        if float(trial.objective[0]) <= before + 1e-14 * abs(before):
            return trial
        length *= 0.5
    return None
