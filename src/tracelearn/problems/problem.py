"""A batch of problems: a data fit, a penalty and strengths; its answers, and the proof of how good they are.

For ``P(W) = f(W) + alpha norm(W)`` with the gradient g of f at W, the dual point of f scaled by t is feasible when
``t |g|_dual <= alpha``. The penalty bounds the dual norm with the split that the solver found; the data fit knows its dual
value. Then ``P(W) - P* <= P(W) - D(t)``, whatever algorithm found W.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.linalg import positive_part
from tracelearn.penalties import Penalty, Split
from tracelearn.problems.data_fit import DataFit, Evaluation, repeated

__all__ = ["Problems", "Solution", "alpha_max", "certify", "share_of_alpha_max"]

_ROUNDING = 8.0  # the rounding error of sums of many terms, in units of the last place of the largest


@dataclass(frozen=True, eq=False)
class Solution:
    """The answer to B problems: weights (T, *shape), their split, and the certificate.

    ``objective`` and ``gap`` have shape (B,); the gap is relative to the objective at W = 0. ``rho`` (B,) is where
    ADMM's own step ended, so that the solve of a neighbouring problem starts there.
    """

    W: Array
    split: Split
    objective: Array
    gap: Array
    n_iter: int
    rho: Array | None = None

    def tensors_of(self, problems: Array) -> Array:
        """Index the tensors (T',) of some problems, given their index (B',)."""
        xp = array_namespace(problems)
        n_tensors = self.W.shape[0] // self.gap.shape[0]
        places = xp.arange(n_tensors, device=device(problems))
        return xp.reshape(problems[:, None] * n_tensors + places[None, :], (-1,))

    def take(self, problems: Array) -> Solution:
        """Keep the problems of this index (B',)."""
        tensors = self.tensors_of(problems)
        return Solution(
            W=array_namespace(self.W).take(self.W, tensors, axis=0),
            split=self.split.take(tensors),
            objective=self.objective[problems],
            gap=self.gap[problems],
            n_iter=self.n_iter,
            rho=None if self.rho is None else self.rho[problems],
        )

    def where(self, chosen: Array, other: Solution) -> Solution:
        """Take the weights and the certificate of another solution for the chosen problems (B,)."""
        xp = array_namespace(chosen)
        tensors = xp.reshape(xp.repeat(chosen, self.W.shape[0] // chosen.shape[0]), (-1, *(1,) * (self.W.ndim - 1)))
        return replace(
            self,
            W=xp.where(tensors, other.W, self.W),
            objective=xp.where(chosen, other.objective, self.objective),
            gap=xp.where(chosen, other.gap, self.gap),
        )

    @classmethod
    def joined(cls, parts: Sequence[Solution]) -> Solution:
        """Put batches of problems together."""
        xp = array_namespace(parts[0].W)
        rhos = [part.rho for part in parts]
        first, *others = (part.split for part in parts)
        return cls(
            W=xp.concat([part.W for part in parts]),
            split=first.joined(*others),
            objective=xp.concat([part.objective for part in parts]),
            gap=xp.concat([part.gap for part in parts]),
            n_iter=max(part.n_iter for part in parts),
            rho=None if any(rho is None for rho in rhos) else xp.concat(rhos),  # W = 0 has no step of ADMM
        )


@dataclass(frozen=True, eq=False)
class Problems:
    """A batch of B problems, and the shape of the tensors (T, *shape) of their weights."""

    fit: DataFit
    penalty: Penalty
    alpha: Array
    shape: tuple[int, ...]
    scale: Array  # gaps are relative to these (B,), the objectives at W = 0
    penalised: bool = True  # whether no alpha is zero; where one is, certificates need the least curvature

    def tensors(self, rows: Array) -> Array:
        """View rows as the tensors that the penalty knows."""
        return array_namespace(rows).reshape(rows, (-1, *self.shape))

    def certified(
        self, W: Array, split: Split, n_iter: int, rho: Array | None = None, *, evaluation: Evaluation | None = None
    ) -> Solution:
        """Make a solution of W, with its certificate; the ``evaluation`` at W is used where it is known."""
        objective, gap = certify(self, W, split, evaluation)
        return Solution(W, split, objective, gap, n_iter, rho)

    def uncertified(self, W: Array, split: Split, n_iter: int, rho: Array | None = None) -> Solution:
        """Make a solution of W without a certificate, its gap infinite: for choosing between models, never as a result."""
        unknown = array_namespace(self.alpha).full_like(self.alpha, math.inf)
        return Solution(W, split, unknown, unknown, n_iter, rho)

    def zero(self) -> Solution:
        """Return W = 0 with its certificate: the answer for any alpha from alpha_max up."""
        xp = array_namespace(self.alpha)
        at_zero = self.fit.at_zero
        W = xp.reshape(xp.zeros_like(at_zero.gradient), (-1, *self.shape))
        objective, gap = certify(self, W, None, at_zero)
        return Solution(W, self.penalty.start(W), objective, gap, 0)

    def begin(self, start: Solution | None, evaluation: Evaluation | None = None) -> Solution:
        """Certify the solution to start from: that of a neighbouring problem, or W = 0."""
        if start is None:
            return self.zero()
        return self.certified(start.W, start.split, 0, start.rho, evaluation=evaluation)

    def take(self, problems: Array) -> Problems:
        """Keep the problems of this index (B',)."""
        return replace(
            self,
            fit=self.fit.take(problems),
            penalty=self.penalty.take(problems),
            alpha=self.alpha[problems],
            scale=self.scale[problems],
        )

    def one_by_one(self, solve: Callable[[Problems, Solution | None], Solution], start: Solution | None) -> Solution:
        """Solve each problem apart from the others."""
        xp = array_namespace(self.alpha)
        solutions = []
        for k in range(self.fit.n_problems):
            index = xp.asarray([k], device=device(self.alpha))
            solutions.append(solve(self.take(index), None if start is None else start.take(index)))
        return Solution.joined(solutions)


def certify(
    problems: Problems, W: Array, split: Split | None, evaluation: Evaluation | None = None
) -> tuple[Array, Array]:
    """Evaluate the objective (B,) at W and the duality gap (B,), relative to the scale of the problems.

    Parameters
    ----------
    W : array of shape (T, I1, ..., IN)
        The T tensors of all B problems, problem by problem.
    split : how the solver has shared W out over the terms of the penalty, or None
    evaluation : the data fit, evaluated at W; None evaluates it
    """
    xp = array_namespace(W)
    alpha = problems.alpha
    scale = problems.scale
    penalty = problems.penalty
    evaluation = problems.fit.evaluate(W) if evaluation is None else evaluation
    by_problem = (alpha.shape[0], -1)
    last_places = _ROUNDING * float(xp.finfo(W.dtype).eps)
    value_error, gradient_error = evaluation.errors(last_places)
    norms = penalty.value(W, split)
    objective = evaluation.value + alpha * xp.sum(xp.reshape(norms, by_problem), axis=1)
    # The dual point is -g, as are the duals of a split. No dual norm of an error exceeds its Euclidean length.
    dual_point = -xp.reshape(evaluation.gradient, W.shape)
    dual_norms = penalty.dual_norm(dual_point, split, repeated(gradient_error, W.shape[0]))
    dual_norm = xp.max(xp.reshape(dual_norms, by_problem), axis=1)
    ones = xp.ones_like(alpha)
    is_outside = dual_norm > alpha
    # Divided only where it is needed: a large alpha by a small norm would overflow.
    dual = evaluation.dual_value(xp.where(is_outside, alpha / xp.where(is_outside, dual_norm, ones), ones))
    if not problems.penalised:
        # Without a penalty only a dual point of zero is feasible, however small the gradient: its length gives a bound instead.
        dual = xp.where(alpha == 0, xp.maximum(dual, evaluation.least_value(gradient_error)), dual)
    # Objective and dual value are sums of many rounded terms: a difference below their rounding proves nothing.
    gap = positive_part(objective - dual) + last_places * scale + value_error
    return objective, gap / xp.where(scale > 0, scale, xp.ones_like(scale))


def alpha_max(fit: DataFit, penalty: Penalty, shape: tuple[int, ...]) -> Array:
    """Bound the smallest alpha (B,) for which W = 0 is the answer, from above.

    Exact for single terms and latent norms; for an overlap of terms the harmonic mean of the dual norms of the gradient at
    zero, measured at 1.00 to 1.26 times the true value.
    """
    gradient = fit.at_zero.gradient
    xp = array_namespace(gradient)
    norms = penalty.dual_norm(xp.reshape(gradient, (-1, *shape)))
    return xp.max(xp.reshape(norms, (fit.ridge.shape[0], -1)), axis=1)


def share_of_alpha_max(fit: DataFit, penalty: Penalty, shape: tuple[int, ...], share: float) -> Array:
    """Take a share of ``alpha_max``; all of it where it is nothing but rounding, as with samples that are all equal."""
    largest = alpha_max(fit, penalty, shape)
    at_zero = fit.at_zero
    xp = array_namespace(largest)
    tensors = xp.reshape(xp.zeros_like(at_zero.gradient), (-1, *shape))
    _, error = at_zero.errors(_ROUNDING * float(xp.finfo(largest.dtype).eps))
    noise = penalty.dual_norm(tensors, None, repeated(error, tensors.shape[0]))
    noise = xp.max(xp.reshape(noise, (fit.n_problems, -1)), axis=1)
    return xp.where(largest <= noise, largest + noise, share * largest)
