"""The duality gap: a bound on how far an answer is from the optimum, whatever algorithm found it.

For ``P(W) = f(W) + alpha norm(W)`` with the gradient g of f at W, the dual point of f scaled by t is feasible when
``t |g|_dual <= alpha``. The penalty bounds the dual norm with the split that the solver found; the smooth half knows
its dual value. Then ``P(W) - P* <= P(W) - D(t)``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.linalg import positive_part
from tracelearn.penalties import Penalty, Split
from tracelearn.problems.smooth import Evaluation, Smooth

__all__ = ["Certificate", "alpha_max", "certify"]

_ROUNDING = 8.0  # what sums of many rounded terms are off by, in units of the last place of their largest


@dataclass(frozen=True, eq=False)
class Certificate:
    """The objective (B,) at an answer and the duality gap (B,), relative to the objective at W = 0."""

    objective: Array
    gap: Array


def _per_problem(values: Array, n_problems: int) -> Array:
    """Gather what a penalty says of each tensor by the problem that the tensor belongs to."""
    return array_namespace(values).reshape(values, (n_problems, -1))


def certify(
    at: Evaluation, penalty: Penalty, W: Array, split: Split | None, alpha: Array, reference: Array
) -> Certificate:
    """Bound how far W is from the optimum.

    Parameters
    ----------
    at : the smooth half, evaluated at W
    W : array of shape (T, *penalty.shape)
        The T tensors of all B problems, problem by problem.
    split : what the solver knows of W, or None
    alpha, reference : arrays of shape (B,)
        Penalty strengths, and objectives at W = 0.
    """
    xp = array_namespace(W)
    n_problems = alpha.shape[0]
    objective = at.value + alpha * xp.sum(_per_problem(penalty.value(W, split), n_problems), axis=1)
    G = xp.reshape(at.gradient, W.shape)
    last_places = _ROUNDING * float(xp.finfo(W.dtype).eps)
    value_error, gradient_error = (last_places * error for error in at.rounding())
    # Duals are forces on W, of the sign of -g. A gradient that is off by some length is off by that much in any norm.
    level = xp.max(_per_problem(penalty.dual_norm(-G, split), n_problems), axis=1)
    level = level + gradient_error / min(penalty.terms.values())
    ones = xp.ones_like(level)
    # Divided only where it is needed: a large alpha by a small level would overflow.
    feasible = xp.where(level > alpha, alpha / xp.where(level > alpha, level, ones), ones)
    dual = at.dual_value(xp.minimum(feasible, at.best_scale()))
    if bool(xp.any(alpha == 0)):
        # Nothing penalised: no scale but zero is feasible, however small the gradient. Its size is the evidence then.
        dual = xp.where(alpha == 0, xp.maximum(dual, at.least_value(gradient_error)), dual)
    # Objective and dual value are sums of many rounded terms: a difference below their rounding proves nothing.
    gap = positive_part(objective - dual) + last_places * reference + value_error
    return Certificate(objective, gap / xp.where(reference > 0, reference, ones))


def alpha_max(smooth: Smooth, penalty: Penalty) -> Array:
    """Bound the smallest alpha (B,) for which W = 0 is the answer, from above.

    Exact for the latent norms; for the overlapped norm the harmonic mean of the spectral norms of the unfoldings of
    the gradient at zero, measured at 1.00 to 1.26 times the true value.
    """
    gradient = smooth.at_zero.gradient
    xp = array_namespace(gradient)
    G = xp.reshape(gradient, (-1, *penalty.shape))
    return xp.max(_per_problem(penalty.dual_norm(G), smooth.n_problems), axis=1)
