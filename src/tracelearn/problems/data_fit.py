"""Data fits: the smooth half of a batch of problems, as solvers and the certificate see it.

Conventions
-----------
Solvers see ``B`` independent problems at once (targets, folds, alphas of a path), each with ``K`` targets. Weights are rows,
``(B K, p)``, problem by problem; those that a data fit is given may also be tensors, of which it sees the rows. The division
by the total weight happens here and nowhere else, so that alpha means the same for any number of samples. The intercept is
eliminated here, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.subspaces import Subspaces
from tracelearn.problems.operators import Operator, Rows

if TYPE_CHECKING:
    from tracelearn.problems.squares import Squares

__all__ = ["CurvedFit", "DataFit", "Evaluation", "Solvers", "least_value", "lipschitz", "repeated", "summed"]


class Evaluation(Protocol):
    """What is known of the data fit at one W: enough for a step and for a certificate."""

    @property
    def value(self) -> Array:
        """The data fit of the objective, (B,)."""

    @property
    def gradient(self) -> Array:
        """Its gradient, (B K, p)."""

    def dual_value(self, largest_scale: Array) -> Array:
        """Evaluate the dual objective (B,) at the dual point of this W, scaled by a factor.

        The factor is the one with the largest value among those from 0 to ``largest_scale`` (B,), which is at most 1.
        """

    def errors(self, unit: float) -> tuple[Array, Array]:
        """Bound what the dual value (B,) and the length of the gradient (B,) are off by.

        By rounding, which is ``unit`` of what was summed: where large terms cancel, it is more than the result shows. And where
        the intercept is free, by a mean derivative of the loss that is not quite zero.
        """

    def least_value(self, error: Array) -> Array:
        """Bound the minimum (B,) of the data fit alone from below: the certificate where nothing is penalised.

        The length of the gradient may be off by ``error`` (B,).
        """


class Solvers(NamedTuple):
    """The names of solvers: for an answer, and for a path to choose alpha by, which needs no small gap."""

    best: str
    path: str


class DataFit(Protocol):
    """What a solver asks of the data fit."""

    @property
    def operator(self) -> Operator:
        """The Hessian, or a bound of it, without the ridge."""

    @property
    def ridge(self) -> Array:
        """The strengths (B,) of the squared norm."""

    @property
    def n_groups(self) -> int:
        """The number of groups of problems whose operators differ: they must stay together."""

    @property
    def n_problems(self) -> int:
        """The number B of problems."""

    @property
    def n_features(self) -> int:
        """The number p of features."""

    @property
    def is_quadratic(self) -> bool:
        """Whether it is a polynomial of degree two, of which ``operator`` is the Hessian."""

    @property
    def solvers(self) -> Solvers:
        """The solvers that suit: by factorisation, by models of second order, or by gradients alone."""

    @property
    def at_zero(self) -> Evaluation:
        """The evaluation at W = 0."""

    def evaluate(self, W: Array, near: Any = None) -> Evaluation:
        """Evaluate at W; an evaluation ``near`` it may save time."""

    def shifted_solver(self, shift: Array) -> Rows:
        """Factor ``operator`` with twice the ridge and a shift (B,) on its diagonal; return the function that solves for rows."""

    def updater(self, shift: Array, solve: Rows | None = None) -> Callable[[Array, Array], Array]:
        """Return the function of W and pull that minimises ``f(V) - <pull, V> + shift/2 |V|^2`` over V, of the shape of W.

        Or a quadratic bound of it around W. ``solve`` is what ``shifted_solver`` has returned for this shift, if it is at hand.
        """

    def intercept(self, W: Array) -> Array:
        """Find the best intercept (B K,) for W."""

    @property
    def mean_curvature(self) -> float:
        """The second derivative at W = 0, averaged over the features: the scale of a step."""

    def within(self, subspaces: Subspaces) -> Self:
        """State the problems for the cores of weights in subspaces, in one pass over the samples."""

    def take(self, problems: Array) -> Self:
        """Keep the problems of this index, sharing all that was computed."""


class CurvedFit(DataFit, Protocol):
    """A data fit that is not quadratic, as Newton's method sees it."""

    def model(self, W: Array, evaluation: Any) -> Squares | None:
        """Expand to second order around W, given the evaluation there; None where that is too large."""

    @property
    def has_rough_models(self) -> bool:
        """Whether models are found in single precision."""

    def with_exact_models(self) -> Self:
        """State the same problems with models in double precision."""

    @property
    def has_bounded_curvature(self) -> bool:
        """Whether ``operator`` exists: no number bounds the curvature of some losses."""


def lipschitz(fit: DataFit) -> float:
    """Bound the Lipschitz constant of the gradient: the largest eigenvalue of the Hessian, or of its bound, and the ridge."""
    return fit.operator.largest() + 2.0 * float(array_namespace(fit.ridge).max(fit.ridge))


def repeated(per_problem: Array, n_rows: int) -> Array:
    """Repeat a (B,) array for each of the rows of its problem."""
    count = n_rows // per_problem.shape[0]
    return per_problem if count == 1 else array_namespace(per_problem).repeat(per_problem, count)


def summed(per_row: Array, n_problems: int) -> Array:
    """Sum an array over the rows of each problem."""
    xp = array_namespace(per_row)
    return per_row if per_row.shape == (n_problems,) else xp.sum(xp.reshape(per_row, (n_problems, -1)), axis=1)


def least_value(value: Array, gradient: Array, curvature: Array, error: Array) -> Array:
    """Bound the minimum of a function from its value, its gradient and a lower bound (B,) of its curvature.

    ``f >= f(w) - |g|^2 / (2 m)`` where ``f - m/2 |.|^2`` is convex; no loss is below zero. The length of the gradient may be
    off by ``error`` (B,): where features are collinear and the ridge is tiny, that is what the bound is made of.
    """
    xp = array_namespace(value)
    square = (xp.sqrt(summed(xp.sum(gradient**2, axis=1), value.shape[0])) + error) ** 2
    # Divided only where the bound is above zero: a gradient divided by the curvature of a tiny ridge would overflow.
    is_positive = square < 2.0 * curvature * value
    divisor = xp.where(is_positive, curvature, xp.ones_like(curvature))
    return xp.where(is_positive, value - square / (2.0 * divisor), xp.zeros_like(value))
