"""Proximal Newton: other losses than the squared one, by a sequence of quadratic models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.problems.data_fit import CurvedFit, Evaluation
from tracelearn.problems.problem import Problems, Solution
from tracelearn.solvers.admm import admm
from tracelearn.solvers.stopping import BreakdownError, Finish, Watcher, continued, guarded

__all__ = ["newton"]

_LONGEST = 64.0  # the longest step towards the minimum of the first model, as a multiple of the way
_SHORTEST = 1e-6  # the shortest step, as a share of the way
_NEAR = 1e-2  # a gap below this should at least be halved by each model


@guarded
def newton(  # noqa: C901 - the algorithm, from top to bottom
    problems: Problems,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    exact_ranks: bool = True,
    on_iteration: Watcher | None = None,
) -> Solution:
    """Solve problems of any loss by a sequence of quadratic models: proximal Newton, with ADMM for each model.

    A model costs one weighted gram, and then iterations that do not read the samples. A handful of models is enough where a
    fixed bound of the curvature takes thousands of passes. Arguments as in ``admm``.
    """
    options: dict[str, Any] = {
        "tol": tol,
        "max_iter": max_iter,
        "exact_ranks": exact_ranks,
        "on_iteration": on_iteration,
    }
    if problems.fit.is_quadratic:  # it is its own model
        return admm(problems, start=start, **options)
    if problems.fit.n_problems > 1:  # separable: every problem has a curvature of its own
        return problems.one_by_one(lambda problem, its_start: newton(problem, start=its_start, **options), start)
    fit = cast(CurvedFit, problems.fit)
    evaluation = fit.at_zero if start is None else fit.evaluate(start.W)
    solution = problems.begin(start, evaluation)
    if float(solution.gap[0]) <= tol:
        return solution
    inner = solution if start is not None else None  # the answer of the last model, from which the next is solved
    finish = Finish(tol, exact_ranks)
    spent = 0
    accuracy = 0.1  # the gap to which models are solved, as a share of the gap of the problem
    while True:
        solution, done = finish.judge(problems, replace(solution, n_iter=spent))
        if on_iteration is not None:
            on_iteration(solution)
        if bool(done[0]) or spent >= max_iter:
            return solution
        gap = float(solution.gap[0])
        is_first = inner is None
        goal = accuracy * max(min(gap, 1.0), 3.0 * tol)
        answer = _minimised_model(problems, fit, solution.W, evaluation, inner, goal, max_iter - spent)
        step = None
        if answer is not None:
            inner = answer
            step = _searched(problems, solution.W, inner, evaluation, longer=is_first)
            if inner.n_iter == 0 and step is not None:
                accuracy *= 0.1  # W already solves the model to this accuracy, but not yet the problem
            spent += max(inner.n_iter, int(step is not None))
        if step is None and not fit.has_rough_models:
            # No model, or no step along it that lowers the objective: ADMM on the bound of the curvature goes on.
            if not fit.has_bounded_curvature:
                return solution
            return continued(admm, problems, solution if spent else None, spent, **options)
        if step is not None:
            solution, evaluation = step
        expected = 0.5 * gap if gap < _NEAR else gap
        if step is None or float(solution.gap[0]) > max(expected, tol):
            # Single precision may be what spoils the models.
            fit = fit.with_exact_models()
            problems = replace(problems, fit=fit)


def _minimised_model(
    problems: Problems,
    fit: CurvedFit,
    W: Array,
    evaluation: Evaluation,
    start: Solution | None,
    goal: float,
    max_iter: int,
) -> Solution | None:
    """Minimise the quadratic model at W: by ADMM, or with a ridge alone by one solve.

    None where there is no model, or where single precision has made it indefinite, as with collinear features.
    """
    xp = array_namespace(problems.alpha)
    model = fit.model(W, evaluation)
    if model is None:
        return None
    stated = replace(problems, fit=model)
    if not bool(xp.any(problems.alpha > 0)) and bool(xp.all(model.ridge > 0)):
        zero = xp.zeros_like(model.at_zero.gradient)
        ridge = problems.tensors(model.updater(xp.zeros_like(problems.alpha))(zero, zero))
        return stated.uncertified(ridge, problems.penalty.start(ridge), 1)
    try:
        return admm(stated, tol=goal, max_iter=max_iter, start=start, exact_ranks=False)
    except BreakdownError:
        if fit.has_rough_models:
            return None
        raise


def _searched(
    problems: Problems, W: Array, inner: Solution, evaluation: Evaluation, *, longer: bool
) -> tuple[Solution, Evaluation] | None:
    """Search the line from W to the minimum of the model: halve the step until the true objective falls.

    With ``longer`` the step is also doubled while that helps: for well separated classes curvatures at zero are much too large.
    Returns the solution and the evaluation there; None where no step is short enough.
    """
    xp = array_namespace(W)

    def objective(V: Array, at_V: Evaluation) -> float:
        norms = problems.penalty.value(V, inner.split)
        return float((at_V.value + problems.alpha * xp.sum(norms))[0])

    def evaluated(length: float) -> tuple[float, Array, Evaluation]:
        V = W + length * (inner.W - W)
        at_V = problems.fit.evaluate(V, evaluation)
        return objective(V, at_V), V, at_V

    # The rounding of two sums is allowed: without it the last step, which is tiny, would be refused.
    before = objective(W, evaluation)
    limit = before + 1e-14 * abs(before)
    length = 1.0
    trial = evaluated(1.0)
    while trial[0] > limit:
        length *= 0.5
        if length < _SHORTEST:
            return None
        trial = evaluated(length)
    while longer and 1.0 <= length < _LONGEST:
        length *= 2.0
        longer_trial = evaluated(length)
        longer = longer_trial[0] < trial[0]
        trial = longer_trial if longer else trial
    _, V, at_V = trial
    return problems.certified(V, inner.split, 0, inner.rho, evaluation=at_V), at_V
