"""How a solver ends: with certified answers (``Finish``), with an error that says why (``guarded``), or in another solver."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.problems.problem import Problems, Solution

__all__ = ["CHECK_EVERY", "BreakdownError", "Finish", "Watcher", "guarded"]

CHECK_EVERY = 5  # iterations between certificates, which cost about one iteration

Watcher = Callable[[Solution], None]


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
    """Go on with another solver; its iterations are counted, and reported, after those that were spent."""

    def counted(solution: Solution) -> Solution:
        return replace(solution, n_iter=spent + solution.n_iter)

    def watch(solution: Solution) -> None:
        if on_iteration is not None:
            on_iteration(counted(solution))

    limit = max(max_iter - spent, 1)
    return counted(solve(problems, start=start, max_iter=limit, on_iteration=watch, **options))


@dataclass(eq=False)
class Finish:
    """Decides which problems are done, collects their answers as they come, and puts them back into order.

    Done is a certified answer that has the exact ranks of its split. Just below ``tol`` the weights still carry dust outside
    the subspaces that shrinkage found; removing it may cost the certificate, and some more iterations bring it back. They are
    bounded, and then the answer stands as it is.
    """

    tol: float
    exact_ranks: bool
    _deadline: Array | None = None  # iterations (B,) after which answers of the open problems stand as they are
    _proven: Solution | None = None  # the last solution of the open problems of which some were within the tolerance
    _open: Array | None = None  # index (B,) of the open problems; None for all
    _answers: list[tuple[Array, Solution]] = field(default_factory=list)

    def judge(self, problems: Problems, solution: Solution) -> tuple[Solution, Array]:
        """Return the answers so far, with exact ranks where these are certified, and which of them (B,) are done."""
        xp = array_namespace(solution.gap)
        is_proven = solution.gap <= self.tol
        if self._proven is not None:  # a gap need not fall steadily: what was proven before stays proven
            solution = solution.where(~is_proven & (self._proven.gap <= self.tol), self._proven)
        if not self.exact_ranks or not bool(xp.any(solution.gap <= self.tol)):
            return solution, is_proven
        self._proven = solution
        W = problems.penalty.tidy(solution.W, solution.split)
        tidy = problems.certified(W, solution.split, solution.n_iter, solution.rho)
        has_exact_ranks = tidy.gap <= self.tol
        last_call = xp.full_like(solution.gap, 1.25 * solution.n_iter + 20.0)
        deadline = xp.full_like(solution.gap, math.inf) if self._deadline is None else self._deadline
        self._deadline = xp.where(is_proven, xp.minimum(deadline, last_call), deadline)
        return solution.where(has_exact_ranks, tidy), has_exact_ranks | (self._deadline <= solution.n_iter)

    def keep(self, solution: Solution, done: Array) -> Array:
        """Keep the answers that are done; return the index of the others, with which the solver goes on."""
        xp = array_namespace(done)
        ready = xp.nonzero(done)[0]
        remaining = xp.nonzero(~done)[0]
        index = xp.arange(done.shape[0], device=device(done)) if self._open is None else self._open
        self._answers.append((index[ready], solution.take(ready)))
        self._open = index[remaining]
        self._deadline = None if self._deadline is None else self._deadline[remaining]
        self._proven = None if self._proven is None else self._proven.take(remaining)
        return remaining

    def all(self, solution: Solution) -> Solution:
        """Return all answers in order, given that of the problems that were open to the end."""
        if self._open is None:
            return solution
        xp = array_namespace(self._open)
        answers = [*self._answers, (self._open, solution)]
        order = xp.argsort(xp.concat([index for index, _ in answers]))
        return Solution.joined([answer for _, answer in answers]).take(order)
