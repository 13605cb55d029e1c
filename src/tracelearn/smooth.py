"""The smooth half of a problem, as solvers see it: value, gradient, dual value, and the update of W in ADMM.

Conventions
-----------
Solvers see ``B`` independent problems at once (classes, or the alphas of a path), each with ``K`` targets. Weights are
rows: ``W`` has shape ``(B K, p)``, problem by problem. The division by the total weight happens here and nowhere else,
so that alpha means the same for any number of samples. The intercept is eliminated here, exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

from array_api_compat import device

from tracelearn.linalg import (
    CentredSystem,
    CoupledSystem,
    GramSystem,
    KernelSystem,
    OperatorSystem,
    StackedSystem,
    System,
    positive_part,
)
from tracelearn.losses import Loss
from tracelearn.moments import Moments
from tracelearn.tensors import Array, array_namespace

# Rows and columns of the largest Hessian that couples targets: factored in about a second.
_LARGEST_HESSIAN = 4096

__all__ = ["DataEvaluation", "DataLoss", "Evaluation", "Smooth", "Squares"]


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

    def least_value(self) -> Array:
        """Bound the minimum (B,) of the smooth half alone from below: the certificate where nothing is penalised."""


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

    def model(self, W: Array, at: Any) -> Squares | None:
        """Expand to second order around W, where ``at`` is the evaluation; None where that is too large."""

    def take(self, problems: Array) -> Self:
        """Keep some of the problems, sharing all that was computed."""


def _repeated(per_problem: Array, n_rows: int) -> Array:
    """Repeat a (B,) array for each of the rows of its problem."""
    return array_namespace(per_problem).repeat(per_problem, n_rows // per_problem.shape[0])


def _summed(per_row: Array, n_problems: int) -> Array:
    """Sum an array over the rows of each problem."""
    xp = array_namespace(per_row)
    return xp.sum(xp.reshape(per_row, (n_problems, -1)), axis=1)


def _least_value(value: Array, gradient: Array, curvature: Array) -> Array:
    """Bound the minimum of a function from its value, its gradient and a lower bound (B,) of its curvature.

    ``f >= f(w) - |g|^2 / (2 m)`` where ``f - m/2 |.|^2`` is convex; no loss is below zero.
    """
    xp = array_namespace(value)
    square = _summed(xp.sum(gradient**2, axis=1), value.shape[0])
    known = xp.where(curvature > 0, curvature, xp.ones_like(curvature))
    return xp.where(curvature > 0, xp.clip(value - square / (2.0 * known), min=0.0), xp.zeros_like(value))


@dataclass(frozen=True, eq=False)
class SquaresEvaluation:
    """With ``r`` the residual and ``y`` the target, centred: ``value = |r|^2`` and ``slope = <r, y>``, as means."""

    value: Array
    gradient: Array
    slope: Array
    squares: Squares

    def least_value(self) -> Array:
        """Bound the least squares from below."""
        return _least_value(self.value, self.gradient, self.squares.least_curvature)

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

    @classmethod
    def of(cls, moments: Moments, *, ridge: float = 0.0, joint: bool = False, spectral: bool = False) -> Squares:
        """Read moments: one problem for each target, or with ``joint`` one problem of all targets."""
        xp = array_namespace(moments.gram)
        covariance = GramSystem(moments.gram * (2.0 / moments.weight), spectral)
        ridges = xp.full_like(moments.y_mean[:1] if joint else moments.y_mean, ridge)
        target = moments.target_sq / moments.weight
        return cls(covariance, moments.cross.T / moments.weight, target, ridges, moments.x_mean, moments.y_mean)

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
        x_mean, y_mean = (share @ X, share @ Y) if centre else (xp.zeros_like(X[0, :]), xp.zeros_like(Y[0, :]))
        rows, targets = (X - x_mean) * xp.sqrt(share)[:, None], (Y - y_mean) * xp.sqrt(share)[:, None]
        ridges = xp.full_like(y_mean[:1] if joint else y_mean, ridge)
        system = KernelSystem(math.sqrt(2.0) * rows, spectral)
        return cls(system, targets.T @ rows, xp.sum(targets**2, axis=0), ridges, x_mean, y_mean)

    @classmethod
    def of_many(
        cls, X: Array, Y: Array, share: Array, *, ridge: float = 0.0, joint: bool = False, centre: bool = True
    ) -> Squares:
        """Read samples that are too many and too large for any square matrix: every product is a pass over them."""
        xp = array_namespace(X)
        x_mean, y_mean = (share @ X, share @ Y) if centre else (xp.zeros_like(X[0, :]), xp.zeros_like(Y[0, :]))
        targets = (Y - y_mean) * share[:, None]
        cross = targets.T @ X - xp.sum(targets, axis=0)[:, None] * x_mean
        ridges = xp.full_like(y_mean[:1] if joint else y_mean, ridge)
        system = OperatorSystem(X, share, x_mean, 2.0)
        return cls(system, cross, share @ (Y - y_mean) ** 2, ridges, x_mean, y_mean)

    @property
    def n_problems(self) -> int:
        """The number B of problems."""
        return int(self.ridge.shape[0])

    @property
    def n_features(self) -> int:
        """The number p of features."""
        return int(self.cross.shape[1])

    def _rows(self, per_problem: Array) -> Array:
        return _repeated(per_problem, self.target.shape[0])

    def _problems(self, per_row: Array) -> Array:
        return _summed(per_row, self.n_problems)

    @property
    def best_solver(self) -> str:
        """ADMM, where the system can be factored."""
        return "admm" if self.system.has_factor else "apg-adm"

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
        return SquaresEvaluation(self._problems(value), 2.0 * half, self._problems(slope), self)

    def update(self, W: Array, pull: Array, shift: Array) -> Array:
        """Solve the normal equations, shifted."""
        return self.system.solve(2.0 * self.cross + pull, self._rows(2.0 * self.ridge + shift))

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
            return xp.reshape(xp.reshape(a, (self.n_problems, -1, *a.shape[1:]))[problems, ...], (-1, *a.shape[1:]))

        return replace(
            self, cross=pick(self.cross), target=pick(self.target), ridge=self.ridge[problems], y_mean=pick(self.y_mean)
        )


@dataclass(frozen=True, eq=False)
class DataEvaluation:
    """With ``force`` (n, B K) the derivatives of the loss at the ``scores`` and ``share`` (n,) the weights."""

    value: Array
    gradient: Array
    loss: Loss
    target: Array
    scores: Array
    force: Array
    share: Array
    ridge_value: Array
    ridge: Array

    def least_value(self) -> Array:
        """Bound the least loss from below, where there is a ridge."""
        return _least_value(self.value, self.gradient, 2.0 * self.ridge)

    def dual_value(self, scale: Array) -> Array:
        """Evaluate minus the mean conjugate at the scaled forces, less the ridge term."""
        n_problems = scale.shape[0]
        conjugate = self.share @ self.loss.conjugate(self.target, _repeated(scale, self.force.shape[1]) * self.force)
        return -_summed(conjugate, n_problems) - scale**2 * self.ridge_value

    def best_scale(self) -> Array:
        """Return one: at the optimum the forces are the dual answer."""
        return array_namespace(self.value).ones_like(self.value)


@dataclass(frozen=True, eq=False)
class DataLoss:
    """The weighted mean of any loss over samples that are at hand, plus ``ridge |W|^2``.

    ``X`` is (n, p), ``target`` (n, B K), ``share`` (n,) the weights, which sum to one. ``system`` is the covariance of
    the features times the curvature of the loss: it bounds the Hessian once the intercept is eliminated.
    """

    system: System
    loss: Loss
    X: Array
    target: Array
    share: Array
    ridge: Array
    fit_intercept: bool = True

    @classmethod
    def of(
        cls,
        loss: Loss,
        X: Array,
        Y: Array,
        share: Array,
        *,
        ridge: float = 0.0,
        joint: bool = False,
        fit_intercept: bool = True,
        matrix_free: bool = False,
    ) -> DataLoss:
        """Read samples: one problem for each target where the loss is separable, unless ``joint``."""
        xp = array_namespace(X)
        mean = share @ X if fit_intercept else xp.zeros_like(X[0, :])
        system: System
        if matrix_free:
            system = OperatorSystem(X, share, mean, loss.curvature)
        elif X.shape[0] < X.shape[1]:
            system = KernelSystem((X - mean) * xp.sqrt(loss.curvature * share)[:, None])
        else:
            moments = Moments.of(X, Y[:, :1], share)
            system = GramSystem(loss.curvature * (moments.gram if fit_intercept else moments.second_moment))
        system = system if loss.is_separable else CentredSystem(system)
        single = joint or not loss.is_separable
        ridges = xp.full_like(xp.astype(Y[0, :], X.dtype)[: 1 if single else None], ridge)
        return cls(system, loss, X, Y, share, ridges, fit_intercept)

    @property
    def n_problems(self) -> int:
        """The number B of problems."""
        return int(self.ridge.shape[0])

    @property
    def n_features(self) -> int:
        """The number p of features."""
        return int(self.X.shape[1])

    @property
    def best_solver(self) -> str:
        """Newton's method, where the system can be factored."""
        return "newton" if self.system.has_factor else "apg-adm"

    @cached_property
    def at_zero(self) -> DataEvaluation:
        """The evaluation at W = 0 with the best intercept."""
        xp = array_namespace(self.X)
        return self.evaluate(
            xp.zeros((self.target.shape[1], self.n_features), dtype=self.X.dtype, device=device(self.X))
        )

    def evaluate(self, W: Array) -> DataEvaluation:
        """Evaluate value and gradient in one pass over the samples."""
        xp = array_namespace(W)
        z = self.X @ W.T
        if self.fit_intercept:
            z = z + self.loss.intercept(self.target, z, self.share)
        force = self.loss.derivative(self.target, z)
        ridge_value = self.ridge * _summed(xp.sum(W**2, axis=1), self.n_problems)
        value = _summed(self.share @ self.loss.value(self.target, z), self.n_problems) + ridge_value
        gradient = (force * self.share[:, None]).T @ self.X + 2.0 * _repeated(self.ridge, W.shape[0])[:, None] * W
        return DataEvaluation(value, gradient, self.loss, self.target, z, force, self.share, ridge_value, self.ridge)

    def update(self, W: Array, pull: Array, shift: Array) -> Array:
        """Minimise the quadratic bound of the loss around W; one pass over the samples, one solve."""
        ridge = _repeated(self.ridge, W.shape[0])
        free = self.evaluate(W).gradient - 2.0 * ridge[:, None] * W
        return self.system.solve(self.system.apply(W) - free + pull, 2.0 * ridge + _repeated(shift, W.shape[0]))

    def model(self, W: Array, at: DataEvaluation) -> Squares | None:
        """Expand the loss to second order around W, the intercept eliminated, as one problem of squares.

        Up to a constant it is a weighted least-squares problem whose weights are the curvatures of the samples. None
        where the targets are coupled and too many for a Hessian of all of them.
        """
        xp = array_namespace(W)
        weights = self.loss.curvatures(self.target, at.scores)
        coupling = self.loss.coupling(self.target, at.scores)
        system: System
        if coupling is not None:
            if W.shape[0] * min(self.X.shape) > _LARGEST_HESSIAN:
                return None
            system = self._coupled(weights, coupling)
        else:
            systems = tuple(self._curved(weights[:, k] * self.share) for k in range(W.shape[0]))
            system = systems[0] if len(systems) == 1 else StackedSystem(systems)
        image = system.apply(W)
        free = at.gradient - 2.0 * _repeated(self.ridge, W.shape[0])[:, None] * W
        # A constant changes neither answer nor gap; this one keeps the model positive, as the dual of squares needs.
        constant = at.value - xp.sum(free * W) + 0.5 * xp.sum(image * W) + 10.0 * self.at_zero.value
        nothing = xp.zeros_like(W[:, 0])
        target = (nothing + 1.0) * constant / W.shape[0]
        return Squares(system, 0.5 * (image - free), target, self.ridge, nothing, nothing)

    @cached_property
    def _basis(self) -> tuple[Array | None, Array]:
        """An orthonormal basis (p, r) of the samples where they are fewer than the features, and their coordinates."""
        xp = array_namespace(self.X)
        if self.X.shape[0] >= self.X.shape[1]:
            return None, self.X
        U, s, Vt = xp.linalg.svd(self.X, full_matrices=False)
        return xp.matrix_transpose(Vt), U * s

    def _coupled(self, weights: Array, coupling: Array) -> CoupledSystem:
        """Build the Hessian of all targets together, the intercepts eliminated."""
        xp = array_namespace(weights)
        basis, X = self._basis
        n, size = X.shape
        K = weights.shape[1]
        X = xp.concat([X, xp.ones((n, 1), dtype=X.dtype, device=device(X))], axis=1)
        both = xp.sqrt(self.share)[:, None, None] * coupling[:, :, None] * X[:, None, :]
        both = xp.reshape(both, (n, K * (size + 1)))
        hessian = xp.reshape(-(both.T @ both), (K, size + 1, K, size + 1))
        blocks = xp.stack([(X * (weights[:, k] * self.share)[:, None]).T @ X for k in range(K)])
        eye = xp.eye(K, dtype=X.dtype, device=device(X))
        hessian = hessian + blocks[:, :, None, :] * eye[:, None, :, None]
        inside = xp.reshape(hessian[:, :size, :, :size], (K * size, K * size))
        if self.fit_intercept:
            cross = xp.reshape(hessian[:, :size, :, size:], (K * size, K))
            # The intercepts' own Hessian is singular along equal shifts; a constant in all entries mends that.
            corner = xp.reshape(hessian[:, size:, :, size:], (K, K)) + 1.0 / K + 1e-14 * eye
            inside = inside - cross @ xp.linalg.solve(corner, cross.T)
        return CoupledSystem(GramSystem(0.5 * (inside + inside.T)), basis)

    def _curved(self, weight: Array) -> System:
        """Build the weighted covariance of the features, about their weighted mean where there is an intercept."""
        xp = array_namespace(weight)
        total = float(xp.sum(weight))
        if self.X.shape[0] >= self.X.shape[1]:
            moments = Moments.of(self.X, weight[:, None], weight)
            return GramSystem(moments.gram if self.fit_intercept else moments.second_moment)
        mean = (weight / total) @ self.X if self.fit_intercept and total > 0 else xp.zeros_like(self.X[0, :])
        return KernelSystem((self.X - mean) * xp.sqrt(weight)[:, None])

    def lipschitz(self) -> float:
        """Return the largest eigenvalue of the bound of the Hessian, plus the ridge."""
        return self.system.largest() + 2.0 * float(array_namespace(self.ridge).max(self.ridge))

    def intercept(self, W: Array) -> Array:
        """Find the best intercept for W."""
        xp = array_namespace(W)
        if not self.fit_intercept:
            return xp.zeros_like(W[:, 0])
        return self.loss.intercept(self.target, self.X @ W.T, self.share)

    def take(self, problems: Array) -> DataLoss:
        """Keep some of the problems of a separable loss."""
        xp = array_namespace(self.target)
        if self.n_problems == 1:
            return self
        return replace(self, target=xp.take(self.target, problems, axis=1), ridge=self.ridge[problems])
