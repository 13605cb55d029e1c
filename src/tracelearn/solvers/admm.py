"""Consensus ADMM on the whole problem, its iterations mixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from operator import attrgetter
from typing import Any

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.linalg import replayed
from tracelearn.penalties import Split
from tracelearn.problems.batch import CHECK_EVERY, Finish, Problems, Solution, Watcher
from tracelearn.problems.datafits import InBasis, Squares, repeated

__all__ = ["BreakdownError", "Mixing", "State", "admm", "guarded", "taken"]

_RELAX = 1.6  # over-relaxation
_REVIEW_EVERY = 10  # iterations before the step is looked at
_SHARE = 0.8  # of ridge regression, to begin from where the step is known: measured on many sets of targets
_LEAST_STEP = 1e-12  # times the mean eigenvalue: a smaller shift is lost in the rounding of the system


# Of mixing.
_MOST = 6  # blocks that are remembered
_LAST = 60  # blocks after which there is no more mixing: what it cannot solve is left to iterations that are known to converge
_LARGEST = 100.0  # sum of the sizes of shares
_GROWTH = 2.0  # times the shortest move so far: who moves further goes on without mixing

State = tuple[Array, Split]  # what an iteration of ADMM goes on from: W and its split


class BreakdownError(ValueError):
    """A solver met numbers that it cannot represent, or a system that is not positive."""


def guarded(solver: Callable[..., Solution]) -> Callable[..., Solution]:
    """Let a solver refuse in a sentence what it cannot represent, instead of going on with infinity and NaN."""

    @wraps(solver)
    def run(*args: Any, **options: Any) -> Solution:
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                return solver(*args, **options)
        except (FloatingPointError, np.linalg.LinAlgError) as error:
            raise BreakdownError(
                f"Expected numbers that stay in the range of floating point while solving, got {str(error).lower()!r}: scale "
                "the features to about one, or ask for a larger alpha or ridge."
            ) from error

    return run


@guarded
def admm(
    problems: Problems,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    exact_ranks: bool = True,
    on_iteration: Watcher | None = None,
    check_every: int | None = CHECK_EVERY,
    first_check: int | None = None,
    step: float | None = None,
    merge: bool = False,
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
    first_check : iterations before the first certificate, where it is known how many problems like these take
    step : rho to begin with, where problems like these have ended with it; else it is guessed. Without a ``start`` it then begins
        near ridge regression with this step, which saves about two iterations
    merge : whether to certify what the parts agree on instead of W, and not W = 0: better in the first iterations, where W still
        has all ranks
    """
    xp = array_namespace(problems.alpha)
    every, proven = check_every or max_iter, check_every is not None
    found = problems.begin(start, proven=proven, zero=not merge)
    if (proven or start is None) and bool(xp.all(found.gap <= tol)):  # to ask a device costs more than an iteration
        return found
    W, split, operator = found.W, found.split, problems.fit.operator
    shares, review = operator.shares_shift, _REVIEW_EVERY
    least = _LEAST_STEP * operator.mean_eigenvalue
    if step is not None:
        rho = xp.full_like(problems.alpha, max(step, least))
        split = split if start is not None else _forces(problems, rho, found)
    else:  # that of an earlier batch, unless it was for an operator of another size, or a guess
        known = found.rho is not None and bool(xp.all(found.rho >= least))
        unit = xp.full_like(problems.alpha, operator.mean_eigenvalue)
        rho = found.rho if known else replayed(problems.alpha, _first_rho, problems, unit)
        rho = xp.ones_like(rho) * xp.exp(xp.mean(xp.log(rho))) if shares else rho
    finish = Finish(tol, exact_ranks)
    iteration, check, update, mixing = 0, first_check or every, None, Mixing()
    while True:
        if update is None:  # the step is new
            update = problems.fit.updater(rho)
        ahead = min(review, check, max_iter) - iteration
        begun = W, split
        before, W, split = replayed(W, _iterated, problems, update, rho, split, W, split, carried=3, count=ahead)
        iteration += ahead
        if iteration == review:
            better = xp.clip(replayed(W, _balanced, shares, problems, rho, before, W, split), min=least)
            rho, update = (better, None) if bool(xp.any(better != rho)) else (rho, update)
            # A new step costs a factorisation, about a hundred iterations' worth, unless the operator is spectral.
            review = 2 * review if shares else review + _REVIEW_EVERY
        if iteration in (check, max_iter):
            check += every
            point = _merged(problems, W, split) if merge else W
            found, done = finish.judge(problems, problems.certified(point, split, iteration, rho, proven=proven))
            if on_iteration is not None:
                on_iteration(found)
            if iteration == max_iter or bool(xp.all(done)):
                return finish.all(found)
            if operator.n_groups == 1 and bool(xp.any(done)):  # the problems of several groups stay together
                left = finish.keep(found, done)
                tensors = found.tensors_of(left)
                begun, (W, split), before_rho = taken(begun, tensors), taken((W, split), tensors), rho
                problems, rho, update = problems.take(left), rho[left], None
                mixing = mixing.take(left, tensors, before_rho, rho)
        mixing, (W, split) = mixing.onward(begun, (W, split), rho)


def continued(
    solve: Callable[..., Solution],
    problems: Problems,
    start: Solution | None,
    spent: int,
    *,
    max_iter: int,
    on_iteration: Watcher | None,
    **options: Any,
) -> Solution:
    """Go on with another solver; count and show its iterations after those that were spent."""

    def counted(so_far: Solution) -> Solution:
        return replace(so_far, n_iter=spent + so_far.n_iter)

    shown = None if on_iteration is None else lambda so_far: on_iteration(counted(so_far))
    limit = max(max_iter - spent, 1)
    return counted(solve(problems, start=start, max_iter=limit, on_iteration=shown, **options))


def _iterated(
    problems: Problems, update: Any, rho: Array, before: Split, W: Array, split: Split
) -> tuple[Split, Array, Split]:
    """Make one iteration; return the split before it, the weights and the split."""
    penalty, level = problems.penalty, repeated(rho, W.shape[0])
    W = update(W, penalty.pull(split, level))
    return split, W, penalty.push(split, W, repeated(problems.alpha, W.shape[0]), level, _RELAX)


def _merged(problems: Problems, W: Array, split: Split) -> Array:
    """Find the weights that the parts of W pull it to where there are no forces."""
    still = Split(split.parts, split.map(array_namespace(W).zeros_like).duals, split.parts)
    ones = array_namespace(W).ones_like(problems.alpha)
    return problems.tensors(problems.penalty.pull(still, repeated(ones, W.shape[0])))


def _forces(problems: Problems, rho: Array, found: Solution) -> Split:
    """Start from a share of ridge regression, ``(A + rho) W = -g``, with the forces of the gradient there.

    At ``share W`` they are ``-(1 - share) g + share rho W``.
    """
    level, strength = (repeated(values, found.W.shape[0]) for values in (rho, problems.alpha))
    gradient = problems.fit.at_zero.gradient
    zero = array_namespace(gradient).zeros_like(gradient)
    ridge = problems.fit.updater(rho)(zero, zero)
    down = 2.0 * _SHARE * ridge - (1.0 - _SHARE) / repeated(rho, gradient.shape[0])[:, None] * gradient
    return problems.penalty.push(found.split, problems.tensors(down), strength, level, 1.0)


def _first_rho(problems: Problems, mean: Array) -> Array:
    """Guess the steps (B,) at which forces and weights weigh the same, ``|V| / |W|``, given the mean eigenvalue (B,).

    At the answer the forces are about ``alpha`` times what the penalty estimates; the size of the weights comes from a few steps
    of conjugate gradients on the unpenalised problem, damped by the mean eigenvalue.
    """
    xp, fit = array_namespace(mean), problems.fit
    if isinstance(fit, Squares) and isinstance(fit.operator, InBasis):
        fit = fit.in_coordinates
    gradient, ones = fit.at_zero.gradient, xp.ones_like(mean)
    # In units of the largest entry and of the mean eigenvalue all numbers are about one, and no square overflows.
    longest = xp.max(xp.abs(gradient))
    longest = xp.where(longest > 0, longest, ones)
    # A system may couple the rows of a problem, so a step is one for all of them: (B, K, p).
    damping = mean[:, None, None]
    unit = xp.where(damping > 0, damping, xp.ones_like(damping))
    residual = xp.reshape(gradient / longest[0], (ones.shape[0], -1, gradient.shape[1]))
    W, direction, square = xp.zeros_like(residual), residual, xp.sum(residual**2, axis=(1, 2), keepdims=True)
    for _ in range(8):
        image = xp.reshape(fit.operator.apply(xp.reshape(direction, gradient.shape)), direction.shape)
        image = image / unit + (damping / unit) * direction
        curvature = xp.sum(direction * image, axis=(1, 2), keepdims=True)
        size = square / xp.where(curvature > 0, curvature, xp.ones_like(curvature))
        W, residual = W + size * direction, residual - size * image
        before, square = square, xp.sum(residual**2, axis=(1, 2), keepdims=True)
        direction = residual + square / xp.where(before > 0, before, xp.ones_like(before)) * direction
    norm, floor = xp.sqrt(xp.sum(W**2, axis=(1, 2))), xp.where(mean > 0, 1e-8 * mean, ones)
    size = (problems.alpha / longest) * (unit[:, 0, 0] / xp.where(norm > 0, norm, ones))
    rho = xp.where(norm > 0, 0.9 * problems.penalty.force(problems.shape) * size, floor)
    return xp.where(rho > floor, rho, floor)


def _balanced(shares: bool, problems: Problems, rho: Array, before: Split, W: Array, split: Split) -> Array:
    """Bring primal and dual residual together; leave a step alone that is right within a factor of two and a half.

    Where the problems must share one step, it changes by the geometric mean of their factors.
    """
    xp, tiny = array_namespace(rho), float(array_namespace(rho).finfo(rho.dtype).smallest_normal)
    residuals = problems.penalty.residuals(before, split, W, repeated(rho, W.shape[0]))
    largest = xp.max(xp.reshape(xp.stack(residuals), (2, rho.shape[0], -1)), axis=2)
    roots = xp.sqrt(xp.clip(largest, min=tiny))
    factor = xp.clip(roots[0, :] / roots[1, :], min=0.1, max=10.0)
    factor = xp.ones_like(factor) * xp.exp(xp.mean(xp.log(factor))) if shares else factor
    right = (factor < 2.5) & (factor > 0.4)
    return xp.where(right, rho, rho * factor)


# --- Anderson's mixing -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mixing:
    """The last blocks of iterations of B problems, all made with the same steps.

    If iterations were affine, the combination of ends, by shares that sum to one, whose moves add up to the least would be the
    best guess of the fixed point. Every problem has its own shares. A mixture is only where a block starts: what is handed out,
    and certified, are the ends of blocks.
    """

    ends: tuple[State, ...] = ()
    moves: tuple[Array, ...] = ()  # from the start to the end of each block, (B, N)
    rho: Array | None = None  # the steps, (B,)
    left: int = _LAST

    def take(self, problems: Array, tensors: Array, before: Array, rho: Array) -> Mixing:
        """Keep some of the problems, given their index (B',), that of their tensors (T',), and the steps of all and of them.

        Where those of all are new, nothing is remembered.
        """
        if self.rho is not before:
            return Mixing(left=self.left)
        ends = tuple(taken(end, tensors) for end in self.ends)
        return Mixing(
            ends, tuple(array_namespace(rho).take(move, problems, axis=0) for move in self.moves), rho, self.left
        )

    def onward(self, start: State, end: State, rho: Array) -> tuple[Mixing, State]:
        """Remember a block; find the state to go on from: its end, or where there are several blocks a mixture of their ends.

        New steps rho (B,) begin a new memory. The first block of all is not remembered: its start may come from another solver.
        """
        xp, apart, units = array_namespace(rho), (rho.shape[0], -1), rho[:, None]
        if rho is not self.rho or self.left == 0:
            return Mixing(rho=rho, left=self.left), end
        ends, own = (*self.ends, end)[-_MOST:], []
        # What the next iteration depends on, forces in units of weights.
        for name, unit in (("anchors", 1.0), ("duals", units)):
            after, before = getattr(end[1], name), getattr(start[1], name)
            for new, old in zip(after, before, strict=True) if isinstance(after, tuple) else ((after, before),):
                rows = xp.reshape(xp.moveaxis(new, 1, 0), apart), xp.reshape(xp.moveaxis(old, 1, 0), apart)
                own.append(rows[0] / unit - rows[1] / unit)
        found = Mixing(ends, (*self.moves, xp.concat(own, axis=1))[-_MOST:], rho, self.left - 1)
        if len(ends) < 2:
            return found, end
        moves = xp.stack(found.moves, axis=1)
        gram = moves @ xp.matrix_transpose(moves)
        squares = xp.linalg.diagonal(gram)
        total = xp.sum(squares, axis=1)[:, None, None]
        eye = xp.eye(len(ends), dtype=gram.dtype, device=device(gram))
        # Moves may be nearly the same: the last places do not decide.
        system = gram / xp.where(total > 0, total, xp.ones_like(total)) + 100.0 * float(xp.finfo(gram.dtype).eps) * eye
        shares = xp.linalg.solve(system, xp.ones_like(gram[:, :, :1]))[:, :, 0]
        shares = shares / xp.sum(shares, axis=1, keepdims=True)
        steady = squares[:, -1:] <= _GROWTH**2 * xp.min(squares, axis=1, keepdims=True)
        near = xp.sum(xp.abs(shares), axis=1, keepdims=True) <= _LARGEST  # far from all ends nothing is known
        shares = xp.where(steady & near, shares, eye[-1:, :])
        weights, splits = zip(*ends, strict=True)
        each = xp.repeat(shares, weights[0].shape[0] // shares.shape[0], axis=0)
        parts = map(attrgetter("parts", "duals", "anchors"), splits)
        return found, (_mixed(each, 0, *weights), Split(*map(partial(_mixed, each, 1), *parts)))


def _mixed(shares: Array, axis: int, *arrays: Any) -> Any:
    """Add up arrays, or tuples of arrays, by shares (T, M), with the tensors along an axis of each."""
    if isinstance(arrays[0], tuple):  # of blocks
        return tuple(map(partial(_mixed, shares, axis), *arrays))
    xp, found, like = array_namespace(shares), 0.0, [1] * arrays[0].ndim
    like[axis] = -1
    for k, array in enumerate(arrays):
        found = found + xp.reshape(shares[:, k], tuple(like)) * array
    return found


def taken(state: State, tensors: Array) -> State:
    """Keep some tensors of a state."""
    W, split = state
    return array_namespace(W).take(W, tensors, axis=0), split.take(tensors)
