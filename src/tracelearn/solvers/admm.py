"""Consensus ADMM on the whole problem, accelerated by Anderson's mixing of its iterations."""

from __future__ import annotations

from collections.abc import Callable

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Split
from tracelearn.problems.data_fit import repeated
from tracelearn.problems.operators import Rows
from tracelearn.problems.problem import Problems, Solution
from tracelearn.problems.squares import Squares
from tracelearn.solvers.mixing import Mixing, take_tensors
from tracelearn.solvers.stopping import CHECK_EVERY, Finish, Watcher, guarded

__all__ = ["admm"]

Update = Callable[[Array, Array], Array]  # from W and the pull of the penalty to the next W

_RELAX = 1.6  # over-relaxation
_REVIEW_EVERY = 10  # iterations before the step is looked at
_LEAST_STEP = 1e-12  # times the mean eigenvalue: a smaller shift is lost in the rounding of the system


@guarded
def admm(  # noqa: C901, PLR0915 - the algorithm, from top to bottom
    problems: Problems,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    exact_ranks: bool = True,
    on_iteration: Watcher | None = None,
    check_every: int | None = CHECK_EVERY,
) -> Solution:
    """Solve a batch of problems by ADMM: one linear solve, and one proximal point for each term, an iteration.

    Between certificates it goes on from a mixture of where the last blocks of iterations ended.

    Parameters
    ----------
    problems : data fits, penalty and strengths
    tol : stop when every gap, relative to the objective at W = 0, is at most this
    start : solution of a neighbouring batch to start from
    exact_ranks : whether to go on, some iterations at most, until the weights have the exact ranks of their split
    on_iteration : called with the solution so far whenever a certificate was computed
    check_every : iterations between certificates, which cost about one iteration; None is max_iter of them, and no certificate
    """
    xp = array_namespace(problems.alpha)
    operator = problems.fit.operator
    is_proven = check_every is not None
    check_every = check_every or max_iter
    solution = _first_solution(problems, start, is_proven=is_proven)
    # Not asked for where nothing was proven: to ask a device costs more than an iteration.
    if (is_proven or start is None) and bool(xp.all(solution.gap <= tol)):
        return solution
    W, split = solution.W, solution.split
    rho = _first_rho(problems, solution.rho)
    solve: Rows | None = problems.fit.shifted_solver(rho)  # factored anew only where the step changes
    update: Update | None = None
    finish = Finish(tol, exact_ranks)
    mixing = Mixing()
    iteration = 0
    next_check = check_every
    next_review = _REVIEW_EVERY
    while True:
        block_start = W, split
        rho_of_tensors = repeated(rho, W.shape[0])
        alpha_of_tensors = repeated(problems.alpha, W.shape[0])
        if update is None:
            solve = problems.fit.shifted_solver(rho) if solve is None else solve
            update = problems.fit.updater(rho, solve)
        for _ in range(min(next_review, next_check, max_iter) - iteration):
            before = split
            W = update(W, problems.penalty.pull(split, rho_of_tensors))
            split = problems.penalty.push(split, W, alpha_of_tensors, rho_of_tensors, _RELAX)
            iteration += 1
        if iteration == next_review:
            balanced = xp.clip(
                _balanced(problems, rho, before, W, split, shares_shift=operator.shares_shift),
                min=_LEAST_STEP * operator.mean_eigenvalue,
            )
            # A new step costs a factorisation, about a hundred iterations' worth, unless the operator is spectral.
            next_review = 2 * next_review if operator.shares_shift else next_review + _REVIEW_EVERY
            if bool(xp.any(balanced != rho)):
                rho = balanced
                solve = update = None
        if iteration in (next_check, max_iter):
            next_check += check_every
            as_solution = problems.certified if is_proven else problems.uncertified
            solution, done = finish.judge(problems, as_solution(W, split, iteration, rho))
            if on_iteration is not None:
                on_iteration(solution)
            if iteration == max_iter or bool(xp.all(done)):
                return finish.all(solution)
            if operator.n_groups == 1 and bool(xp.any(done)):  # the problems of several groups stay together
                remaining = finish.keep(solution, done)
                tensors = solution.tensors_of(remaining)
                rho_of_all = rho
                block_start = take_tensors(block_start, tensors)
                W, split = take_tensors((W, split), tensors)
                problems = problems.take(remaining)
                rho = rho[remaining]
                mixing = mixing.take(remaining, tensors, rho_of_all, rho)
                solve = solve if operator.shares_shift else None
                update = None
        mixing, (W, split) = mixing.onward(block_start, (W, split), rho)


def _first_solution(problems: Problems, start: Solution | None, *, is_proven: bool) -> Solution:
    """Return where to start from, with a certificate unless nobody asks for one."""
    if start is None:
        return problems.zero()
    as_solution = problems.certified if is_proven else problems.uncertified
    return as_solution(start.W, start.split, 0, start.rho)


def _first_rho(problems: Problems, earlier: Array | None) -> Array:
    """Return the steps (B,) to begin with: those of an earlier batch, or a guess.

    Steps of an earlier batch that are below the least useful one are ignored: its operator was of another size.
    """
    xp = array_namespace(problems.alpha)
    operator = problems.fit.operator
    least = _LEAST_STEP * operator.mean_eigenvalue
    if earlier is not None and bool(xp.all(earlier >= least)):
        rho = earlier
    else:
        rho = _guessed_rho(problems, xp.full_like(problems.alpha, operator.mean_eigenvalue))
    return xp.ones_like(rho) * xp.exp(xp.mean(xp.log(rho))) if operator.shares_shift else rho


def _guessed_rho(problems: Problems, mean: Array) -> Array:
    """Guess the steps (B,), as the ratio of the lengths of duals and weights at the solution, given the mean eigenvalue (B,).

    The duals are about ``alpha`` times the estimate of the penalty; the weights are estimated by a few steps of conjugate
    gradients on the unpenalised problem, damped by the mean eigenvalue.
    """
    xp = array_namespace(mean)
    fit = problems.fit
    if isinstance(fit, Squares):
        fit = fit.in_coordinates
    gradient = fit.at_zero.gradient
    ones = xp.ones_like(mean)
    # In units of the largest entry and of the mean eigenvalue all numbers are about one, and no square overflows.
    longest = xp.max(xp.abs(gradient))
    longest = xp.where(longest > 0, longest, ones)
    # The operator may couple the rows of a problem, so that conjugate gradients have one step size for all of them: (B, K, p).
    damping = mean[:, None, None]
    unit = xp.where(damping > 0, damping, xp.ones_like(damping))
    residual = xp.reshape(gradient / longest[0], (ones.shape[0], -1, gradient.shape[1]))
    W = xp.zeros_like(residual)
    direction = residual
    square = xp.sum(residual**2, axis=(1, 2), keepdims=True)
    for _ in range(8):
        image = xp.reshape(fit.operator.apply(xp.reshape(direction, gradient.shape)), direction.shape)
        image = image / unit + (damping / unit) * direction
        curvature = xp.sum(direction * image, axis=(1, 2), keepdims=True)
        size = square / xp.where(curvature > 0, curvature, xp.ones_like(curvature))
        W = W + size * direction
        residual = residual - size * image
        before = square
        square = xp.sum(residual**2, axis=(1, 2), keepdims=True)
        direction = residual + square / xp.where(before > 0, before, xp.ones_like(before)) * direction
    norm = xp.sqrt(xp.sum(W**2, axis=(1, 2)))
    floor = xp.where(mean > 0, 1e-8 * mean, ones)
    size = (problems.alpha / longest) * (unit[:, 0, 0] / xp.where(norm > 0, norm, ones))
    rho = xp.where(norm > 0, 0.9 * problems.penalty.dual_length(problems.shape) * size, floor)
    return xp.where(rho > floor, rho, floor)


def _balanced(problems: Problems, rho: Array, before: Split, W: Array, split: Split, *, shares_shift: bool) -> Array:
    """Change the steps so that primal and dual residual become equal; not those that are right within a factor of 2.5.

    Where the problems must share one step, it changes by the geometric mean of their factors.
    """
    xp = array_namespace(rho)
    tiny = float(array_namespace(rho).finfo(rho.dtype).smallest_normal)
    residuals = problems.penalty.residuals(before, split, W, repeated(rho, W.shape[0]))
    largest = xp.max(xp.reshape(xp.stack(residuals), (2, rho.shape[0], -1)), axis=2)
    roots = xp.sqrt(xp.clip(largest, min=tiny))
    factor = xp.clip(roots[0, :] / roots[1, :], min=0.1, max=10.0)
    factor = xp.ones_like(factor) * xp.exp(xp.mean(xp.log(factor))) if shares_shift else factor
    is_right = (factor < 2.5) & (factor > 0.4)
    return xp.where(is_right, rho, rho * factor)
