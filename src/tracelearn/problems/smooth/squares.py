"""The squared loss, from products alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse
from tracelearn.arrays.linalg import positive_part, squared
from tracelearn.moments import Moments
from tracelearn.problems.operators import GramSystem, KernelSystem, OperatorSystem, System
from tracelearn.problems.smooth.protocols import Evaluation
from tracelearn.problems.smooth.rows import least_value, mean_row, repeated, summed
from tracelearn.problems.smooth.samples import Samples

__all__ = ["Squares"]


@dataclass(frozen=True, eq=False)
class SquaresEvaluation:
    """With ``r`` the residual and ``y`` the target, centred: ``value = |r|^2`` and ``slope = <r, y>``, as means."""

    value: Array
    gradient: Array
    slope: Array
    squares: Squares
    W: Array | None = None  # None for zero

    def rounding(self) -> tuple[Array, Array]:
        """Estimate it from the variances of the products ``w_i x_i``, which cancel where features are collinear."""
        return self.squares.rounding(self.W)

    def least_value(self, error: Array) -> Array:
        """Bound the least squares from below, where the length of the gradient may be off by an error."""
        return least_value(self.value, self.gradient, self.squares.least_curvature, error)

    def dual_value(self, scale: Array) -> Array:
        """Evaluate ``2 t <r, y> - t^2 |r|^2``."""
        return 2.0 * scale * self.slope - scale**2 * self.value

    def best_scale(self) -> Array:
        """Find ``<r, y> / |r|^2``."""
        xp = array_namespace(self.value)
        return positive_part(self.slope / xp.where(self.value > 0, self.value, xp.ones_like(self.value)))


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
    variances: Array | None = None  # of the features (p,); not known of a model of second order, which proves nothing

    @classmethod
    def of(cls, moments: Moments, *, ridge: float = 0.0, joint: bool = False, spectral: bool = False) -> Squares:
        """Read moments: one problem for each target, or with ``joint`` one problem of all targets."""
        xp = array_namespace(moments.gram)
        covariance = GramSystem(moments.gram * (2.0 / moments.weight), spectral)
        ridges = xp.full_like(moments.y_mean[:1] if joint else moments.y_mean, ridge)
        target = moments.target_sq / moments.weight
        cross, variances = moments.cross.T / moments.weight, 0.5 * xp.linalg.diagonal(covariance.matrix)
        return cls(covariance, cross, target, ridges, moments.x_mean, moments.y_mean, variances)

    @classmethod
    def of_few(
        cls,
        X: Array,
        Y: Array,
        share: Array,
        *,
        ridge: float = 0.0,
        joint: bool = False,
        centre: bool = True,
        spectral: bool = False,
    ) -> Squares:
        """Read fewer samples than features, through their kernel; ``share`` are the weights, which sum to one."""
        xp = array_namespace(X)
        x_mean, y_mean = (mean_row(a, share) if centre else xp.zeros_like(a[0, :]) for a in (X, Y))
        rows, targets = (X - x_mean) * xp.sqrt(share)[:, None], (Y - y_mean) * xp.sqrt(share)[:, None]
        ridges = xp.full_like(y_mean[:1] if joint else y_mean, ridge)
        system = KernelSystem(math.sqrt(2.0) * rows, spectral)
        cross, target, variances = targets.T @ rows, xp.sum(targets**2, axis=0), xp.sum(rows**2, axis=0)
        return cls(system, cross, target, ridges, x_mean, y_mean, variances)

    @classmethod
    def of_many(
        cls,
        samples: Samples,
        *,
        ridge: float = 0.0,
        joint: bool = False,
        centre: bool = True,
        matrix_free: bool = True,
    ) -> Squares:
        """Read samples, or with ``matrix_free`` those too many and too large for any square matrix: a product is a pass."""
        x_mean, y_mean = samples.total(lambda X, Y, share, z: (share @ X, share @ Y))
        if not centre:
            x_mean, y_mean = 0.0 * x_mean, 0.0 * y_mean

        def products(X: Array, Y: Array, share: Array, z: Array) -> tuple[Array, ...]:
            targets = (Y - y_mean) * share[:, None]
            # Sparse samples stay so: their means are near zero, or they would not be sparse.
            squares = share @ squared(X) - x_mean**2 if is_sparse(X) else share @ (X - x_mean) ** 2
            return targets.T @ X, array_namespace(targets).sum(targets, axis=0), share @ (Y - y_mean) ** 2, squares

        cross, offset, target, variances = samples.total(products)
        ridges = array_namespace(x_mean).full_like(y_mean[:1] if joint else y_mean, ridge)
        system: System = OperatorSystem(samples.total, x_mean, 2.0)
        if not matrix_free:
            (system,) = samples.covariances(lambda Y, share, z: 2.0 * share[:, None], centre=centre)
        variances = positive_part(variances)
        return cls(system, cross - offset[:, None] * x_mean, target, ridges, x_mean, y_mean, variances)

    @property
    def n_problems(self) -> int:
        """The number B of problems."""
        return int(self.ridge.shape[0])

    @property
    def n_features(self) -> int:
        """The number p of features."""
        return int(self.cross.shape[1])

    def _rows(self, per_problem: Array) -> Array:
        return repeated(per_problem, self.target.shape[0])

    def _problems(self, per_row: Array) -> Array:
        return summed(per_row, self.n_problems)

    @property
    def best_solver(self) -> str:
        """ADMM, where the system can be factored."""
        return "admm" if self.system.has_factor else "apg-adm"

    @property
    def path_solver(self) -> str:
        """The best solver: along a path as well."""
        return self.best_solver

    @cached_property
    def at_zero(self) -> SquaresEvaluation:
        """The evaluation at W = 0: the variance of the targets."""
        value = self._problems(self.target)
        return SquaresEvaluation(value, -2.0 * self.cross, value, self)

    @cached_property
    def least_curvature(self) -> Array:
        """A lower bound (B,) of the curvature: the ridge and the smallest eigenvalue of the system."""
        return self.system.smallest() + 2.0 * self.ridge

    def evaluate(self, W: Array) -> SquaresEvaluation:
        """Evaluate value and gradient with one product."""
        xp = array_namespace(W)
        ridge = self._rows(self.ridge)
        half = 0.5 * self.system.apply(W) + ridge[:, None] * W - self.cross
        fit = xp.sum(self.cross * W, axis=1)
        slope = self.target - fit
        # |r|^2 = <w, Cw - h> - <h, w> + v, and never below zero but for rounding.
        value = positive_part(xp.sum(W * half, axis=1) + slope)
        return SquaresEvaluation(self._problems(value), 2.0 * half, self._problems(slope), self, W)

    def rounding(self, W: Array | None) -> tuple[Array, Array]:
        """Estimate the rounding of value (B,) and gradient (B,) at W, or at zero, in units of the last place."""
        xp = array_namespace(self.target)
        target = self.at_zero.value
        if self.variances is None:
            return target, xp.zeros_like(target)
        scatter = xp.zeros_like(target) if W is None else self._problems(W**2 @ self.variances)
        ridge = xp.zeros_like(target) if W is None else self.ridge * self._problems(xp.sum(W**2, axis=1))
        spread = xp.sqrt(xp.sum(self.variances)) * (xp.sqrt(target) + xp.sqrt(scatter))
        return target + scatter + ridge, 2.0 * (spread + xp.sqrt(self.ridge * ridge))

    def updater(self, shift: Array) -> Callable[[Array, Array], Array]:
        """Return the solve of the normal equations, shifted."""
        solve, constant = self.system.solver(self._rows(2.0 * self.ridge + shift)), 2.0 * self.cross
        return lambda W, pull: solve(constant + pull)

    def lipschitz(self) -> float:
        """Return twice the largest eigenvalue of C, plus the ridge: the tight constant."""
        return self.system.largest() + 2.0 * float(array_namespace(self.ridge).max(self.ridge))

    def intercept(self, W: Array) -> Array:
        """Let the model pass through the means."""
        return self.y_mean - W @ self.x_mean

    def model(self, W: Array, at: Evaluation) -> Squares:
        """Return this: it is its own expansion to second order."""
        return self

    def take(self, problems: Array) -> Squares:
        """Keep some of the problems, or repeat them."""
        xp = array_namespace(self.cross)

        def pick(a: Array) -> Array:
            apart = xp.reshape(a, (self.n_problems, -1, *a.shape[1:]))
            return xp.reshape(xp.take(apart, problems, axis=0), (-1, *a.shape[1:]))

        return replace(
            self, cross=pick(self.cross), target=pick(self.target), ridge=self.ridge[problems], y_mean=pick(self.y_mean)
        )
