"""What solvers and the certificate ask of the smooth half."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self

from tracelearn.arrays.array_api import Array
from tracelearn.problems.operators import System

if TYPE_CHECKING:  # a model of second order is a problem of squares, which is itself a smooth half
    from tracelearn.problems.smooth.squares import Squares

__all__ = ["Evaluation", "Smooth"]


class Evaluation(Protocol):
    """What is known of the smooth half at one W: enough for a step and for a certificate."""

    @property
    def value(self) -> Array:
        """The smooth half of the objective, (B,)."""

    @property
    def gradient(self) -> Array:
        """Its gradient, (B K, p)."""

    def dual_value(self, scale: Array) -> Array:
        """Evaluate the dual objective (B,) at the dual point of this W, scaled by ``scale`` (B,) in [0, 1]."""

    def best_scale(self) -> Array:
        """Find the scale (B,) that maximises the dual value, were every scale feasible."""

    def rounding(self) -> tuple[Array, Array]:
        """Estimate what rounding did to the value (B,) and to the length of the gradient (B,), in units of its last place.

        From the sizes of what was summed: where large terms cancel, it is more than the result shows.
        """

    def least_value(self, error: Array) -> Array:
        """Bound the minimum (B,) of the smooth half alone from below: the certificate where nothing is penalised.

        The length of the gradient may be off by ``error`` (B,).
        """


class Smooth(Protocol):
    """What a solver asks of the smooth half."""

    @property
    def system(self) -> System:
        """The Hessian, or a bound of it, without the ridge."""

    @property
    def n_problems(self) -> int:
        """The number B of problems."""

    @property
    def n_features(self) -> int:
        """The number p of features."""

    @property
    def best_solver(self) -> str:
        """The solver that suits this form: by factorisation, by models of second order, or by gradients alone."""

    @property
    def path_solver(self) -> str:
        """The solver that suits a path for choosing alpha, which needs no small gap."""

    @property
    def at_zero(self) -> Evaluation:
        """The evaluation at W = 0."""

    def evaluate(self, W: Array) -> Evaluation:
        """Evaluate at W (B K, p)."""

    def updater(self, shift: Array) -> Callable[[Array, Array], Array]:
        """Return the function of W and pull that minimises ``f(V) - <pull, V> + shift/2 |V|^2`` over V.

        Or a quadratic bound of it around W.
        """

    def lipschitz(self) -> float:
        """Bound the Lipschitz constant of the gradient."""

    def intercept(self, W: Array) -> Array:
        """Find the best intercept (B K,) for W."""

    def model(self, W: Array, at: Any) -> Squares | None:
        """Expand to second order around W, where ``at`` is the evaluation; None where that is too large."""

    def take(self, problems: Array) -> Self:
        """Keep some of the problems, sharing all that was computed."""
