"""What solvers share: both halves of a batch of problems, certificates, and when to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Penalty, Split
from tracelearn.problems.certificate import certify
from tracelearn.problems.smooth import Smooth
from tracelearn.solvers.solution import Solution

__all__ = ["CHECK_EVERY", "Finish", "Finished", "Problems"]

CHECK_EVERY = 5  # iterations between certificates, which cost about one iteration


@dataclass(frozen=True, eq=False)
class Problems:
    """Both halves, and the shapes between rows (B K, p) and tensors (T, *shape)."""

    smooth: Smooth
    penalty: Penalty
    alpha: Array
    reference: Array

    @classmethod
    def of(cls, smooth: Smooth, penalty: Penalty, alpha: Array, reference: Array | None = None) -> Problems:
        """Take the objectives at W = 0 as the reference, unless there is another."""
        return cls(smooth, penalty, alpha, smooth.at_zero.value if reference is None else reference)

    def rows(self, W: Array) -> Array:
        """View tensors as the rows that the smooth half knows."""
        return array_namespace(W).reshape(W, (-1, self.smooth.n_features))

    def tensors(self, rows: Array) -> Array:
        """View rows as the tensors that the penalty knows."""
        return array_namespace(rows).reshape(rows, (-1, *self.penalty.shape))

    @cached_property
    def per_problem(self) -> int:
        """The number of tensors of one problem."""
        rows = self.smooth.at_zero.gradient.shape[0]
        return int(rows * self.smooth.n_features // math.prod(self.penalty.shape) // self.alpha.shape[0])

    def each(self, per_problem: Array) -> Array:
        """Repeat a (B,) array for each tensor of its problem."""
        if self.per_problem == 1:
            return per_problem
        return array_namespace(per_problem).repeat(per_problem, self.per_problem)

    def gathered(self, per_tensor: Array) -> Array:
        """Take the largest of a (T,) array over the tensors of each problem."""
        if self.per_problem == 1:
            return per_tensor
        xp = array_namespace(per_tensor)
        return xp.max(xp.reshape(per_tensor, (self.alpha.shape[0], -1)), axis=1)

    def zero(self) -> Solution:
        """Certify W = 0, which is the answer for any alpha from ``alpha_max`` up."""
        xp = array_namespace(self.alpha)
        at = self.smooth.at_zero
        W = self.tensors(xp.zeros_like(at.gradient))
        proof = certify(at, self.penalty, W, None, self.alpha, self.reference)
        return Solution(W, self.penalty.start(W), proof.objective, proof.gap, 0)

    def certified(self, W: Array, split: Split, n_iter: int, rho: Array | None = None) -> Solution:
        """Make a solution of W, with its certificate."""
        at = self.smooth.evaluate(self.rows(W))
        proof = certify(at, self.penalty, W, split, self.alpha, self.reference)
        return Solution(W, split, proof.objective, proof.gap, n_iter, rho)

    def tidied(self, found: Solution) -> Solution:
        """Give the answer the exact ranks of its split, and certify it again."""
        return self.certified(self.penalty.tidy(found.W, found.split), found.split, found.n_iter, found.rho)

    def take(self, problems: Array) -> Problems:
        """Keep some of the problems."""
        return Problems(self.smooth.take(problems), self.penalty, self.alpha[problems], self.reference[problems])


class Finish:
    """Decides which problems are done: those with a certified answer that has the exact ranks of its split.

    Just below ``tol`` the weights still carry dust outside the subspaces that shrinkage found; removing it may cost the
    certificate, and some more iterations bring it back. They are bounded, and then the answer stands as it is.
    """

    def __init__(self, problems: Problems, tol: float, exact_ranks: bool) -> None:
        self._tol, self._exact_ranks = tol, exact_ranks
        self._deadline = array_namespace(problems.alpha).full_like(problems.alpha, math.inf)
        self._good: Solution | None = None

    def judge(self, problems: Problems, found: Solution) -> tuple[Solution, Array]:
        """Return the answers so far, tidied where that holds, and which of them (B,) are done."""
        xp = array_namespace(found.gap)
        good = found.gap <= self._tol
        if self._good is not None:  # a gap need not fall steadily: what was proven before stays proven
            found = found.where(~good & (self._good.gap <= self._tol), self._good)
        if not self._exact_ranks or not bool(xp.any(found.gap <= self._tol)):
            return found, good
        self._good = found
        tidy = problems.tidied(found)
        exact = tidy.gap <= self._tol
        last_call = xp.full_like(found.gap, 1.25 * found.n_iter + 20.0)
        self._deadline = xp.where(good, xp.minimum(self._deadline, last_call), self._deadline)
        return found.where(exact, tidy), exact | (self._deadline <= found.n_iter)

    def take(self, problems: Array, tensors: Array) -> None:
        """Keep some of the problems, given their index and that of their tensors."""
        self._deadline = self._deadline[problems]
        self._good = None if self._good is None else self._good.take(problems, tensors)


class Finished:
    """Collects the answers of a batch as they come, and puts them back into order."""

    def __init__(self, problems: Problems) -> None:
        self._xp = array_namespace(problems.alpha)
        self._open = self._xp.arange(problems.alpha.shape[0], device=device(problems.alpha))
        self._per_problem = problems.per_problem
        self._parts: list[tuple[Array, Solution]] = []

    def tensors(self, problems: Array) -> Array:
        """Index the tensors (T,) of some problems."""
        xp, each = self._xp, self._per_problem
        return xp.reshape(problems[:, None] * each + xp.arange(each, device=device(problems))[None, :], (-1,))

    def add(self, found: Solution, done: Array) -> Array:
        """Keep what is done; return the index of the rest among the open ones."""
        xp = self._xp
        ready, left = xp.nonzero(done)[0], xp.nonzero(~done)[0]
        self._parts.append((self._open[ready], found.take(ready, self.tensors(ready))))
        self._open = self._open[left]
        return left

    def with_rest(self, found: Solution) -> Solution:
        """Return all answers in order."""
        if not self._parts:
            return found
        xp = self._xp
        parts = [*self._parts, (self._open, found)]
        order = xp.argsort(xp.concat([index for index, _ in parts]))
        return Solution.joined([part for _, part in parts]).take(order, self.tensors(order))
