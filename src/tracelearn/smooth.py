"""The smooth half of a problem, as solvers see it: value, gradient, dual value, and the update of W in ADMM.

Conventions
-----------
Solvers see ``B`` independent problems at once (classes, or the alphas of a path), each with ``K`` targets. Weights are
rows: ``W`` has shape ``(B K, p)``, problem by problem. The division by the total weight happens here and nowhere else,
so that alpha means the same for any number of samples. The intercept is eliminated here, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from array_api_compat import array_namespace

from tracelearn.linalg import GramSystem, System
from tracelearn.moments import Moments
from tracelearn.tensors import Array

__all__ = ["Evaluation", "Smooth", "Squares"]


class Evaluation(Protocol):
    """What is known of the smooth half at one W: enough for a step and for a certificate."""

    value: Array
    gradient: Array

    def dual_value(self, scale: Array) -> Array:
        """Evaluate the dual objective (B,) at the dual point of this W, scaled by ``scale`` (B,) in [0, 1]."""

    def best_scale(self) -> Array:
        """Find the scale (B,) that maximises the dual value, were every scale feasible."""


class Smooth(Protocol):
    """What a solver asks of the smooth half."""

    system: System
    n_problems: int
    n_features: int

    @property
    def at_zero(self) -> Evaluation:
        """The evaluation at W = 0."""

    def evaluate(self, W: Array) -> Evaluation:
        """Evaluate at W (B K, p)."""

    def update(self, W: Array, pull: Array, shift: Array) -> Array:
        """Minimise ``f(V) - <pull, V> + shift/2 |V|^2`` over V, or a quadratic bound of it around W."""

    def lipschitz(self) -> float:
        """Bound the Lipschitz constant of the gradient."""

    def intercept(self, W: Array) -> Array:
        """Find the best intercept (B K,) for W."""

    def take(self, problems: Array) -> Smooth:
        """Keep some of the problems, sharing all that was computed."""


@dataclass(frozen=True, eq=False)
class SquaresEvaluation:
    """With ``r`` the residual and ``y`` the target, centred: ``value = |r|^2`` and ``slope = <r, y>``, as means."""

    value: Array
    gradient: Array
    slope: Array

    def dual_value(self, scale: Array) -> Array:
        """Evaluate ``2 t <r, y> - t^2 |r|^2``."""
        return 2.0 * scale * self.slope - scale**2 * self.value

    def best_scale(self) -> Array:
        """Find ``<r, y> / |r|^2``."""
        xp = array_namespace(self.value)
        return xp.clip(self.slope / xp.where(self.value > 0, self.value, xp.ones_like(self.value)), min=0.0)


@dataclass(frozen=True, eq=False)
class Squares:
    """The mean of ``(y - <W, x> - b)^2`` plus ``ridge |W|^2``, from centred products alone.

    ``system`` is twice the covariance C of the features, ``cross`` (B K, p) their covariance h with the targets and
    ``target`` (B K,) the variance v of the targets. With the ridge, a row w has value ``w'Cw - 2h'w + v + ridge w'w``.
    """

    system: System
    cross: Array
    target: Array
    ridge: Array
    x_mean: Array
    y_mean: Array

    @classmethod
    def of(cls, moments: Moments, *, ridge: float = 0.0, joint: bool = False, spectral: bool = False) -> Squares:
        """Read moments: one problem for each target, or with ``joint`` one problem of all targets."""
        xp = array_namespace(moments.gram)
        covariance = GramSystem(moments.gram * (2.0 / moments.weight), spectral)
        ridges = xp.full_like(moments.y_mean[:1] if joint else moments.y_mean, ridge)
        target = moments.target_sq / moments.weight
        return cls(covariance, moments.cross.T / moments.weight, target, ridges, moments.x_mean, moments.y_mean)

    @property
    def n_problems(self) -> int:
        """The number B of problems."""
        return int(self.ridge.shape[0])

    @property
    def n_features(self) -> int:
        """The number p of features."""
        return int(self.cross.shape[1])

    def _rows(self, per_problem: Array) -> Array:
        """Repeat a (B,) array for each target of its problem."""
        xp = array_namespace(per_problem)
        return xp.repeat(per_problem, self.target.shape[0] // self.n_problems)

    def _problems(self, per_row: Array) -> Array:
        """Sum a (B K,) array over the targets of each problem."""
        xp = array_namespace(per_row)
        return xp.sum(xp.reshape(per_row, (self.n_problems, -1)), axis=1)

    @cached_property
    def at_zero(self) -> SquaresEvaluation:
        """The evaluation at W = 0: the variance of the targets."""
        value = self._problems(self.target)
        return SquaresEvaluation(value, -2.0 * self.cross, value)

    def evaluate(self, W: Array) -> SquaresEvaluation:
        """Evaluate value and gradient with one product."""
        xp = array_namespace(W)
        ridge = self._rows(self.ridge)
        half = 0.5 * self.system.apply(W) + ridge[:, None] * W - self.cross
        fit = xp.sum(self.cross * W, axis=1)
        slope = self.target - fit
        # |r|^2 = <w, Cw - h> - <h, w> + v, and never below zero but for rounding.
        value = xp.clip(xp.sum(W * half, axis=1) + slope, min=0.0)
        return SquaresEvaluation(self._problems(value), 2.0 * half, self._problems(slope))

    def update(self, W: Array, pull: Array, shift: Array) -> Array:
        """Solve the normal equations, shifted."""
        return self.system.solve(2.0 * self.cross + pull, self._rows(2.0 * self.ridge + shift))

    def lipschitz(self) -> float:
        """Return twice the largest eigenvalue of C, plus the ridge: the tight constant."""
        return self.system.largest() + 2.0 * float(array_namespace(self.ridge).max(self.ridge))

    def intercept(self, W: Array) -> Array:
        """Let the model pass through the means."""
        return self.y_mean - W @ self.x_mean

    def take(self, problems: Array) -> Squares:
        """Keep some of the problems."""
        xp = array_namespace(self.cross)

        def pick(a: Array) -> Array:
            return xp.reshape(xp.reshape(a, (self.n_problems, -1, *a.shape[1:]))[problems, ...], (-1, *a.shape[1:]))

        return replace(
            self, cross=pick(self.cross), target=pick(self.target), ridge=self.ridge[problems], y_mean=pick(self.y_mean)
        )
