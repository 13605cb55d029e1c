"""Any loss, from samples that are at hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from array_api_compat import device

from tracelearn.losses import Loss
from tracelearn.moments import Moments
from tracelearn.smooth.rows import least_value, repeated, summed
from tracelearn.smooth.squares import Squares
from tracelearn.systems import (
    CentredSystem,
    CoupledSystem,
    GramSystem,
    KernelSystem,
    OperatorSystem,
    StackedSystem,
    System,
)
from tracelearn.tensors import Array, array_namespace

__all__ = ["DataLoss"]

# Rows and columns of the largest Hessian that couples targets: factored in about a second.
_LARGEST_HESSIAN = 4096


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
        return least_value(self.value, self.gradient, 2.0 * self.ridge)

    def dual_value(self, scale: Array) -> Array:
        """Evaluate minus the mean conjugate at the scaled forces, less the ridge term."""
        n_problems = scale.shape[0]
        conjugate = self.share @ self.loss.conjugate(self.target, repeated(scale, self.force.shape[1]) * self.force)
        return -summed(conjugate, n_problems) - scale**2 * self.ridge_value

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
        ridge_value = self.ridge * summed(xp.sum(W**2, axis=1), self.n_problems)
        value = summed(self.share @ self.loss.value(self.target, z), self.n_problems) + ridge_value
        gradient = (force * self.share[:, None]).T @ self.X + 2.0 * repeated(self.ridge, W.shape[0])[:, None] * W
        return DataEvaluation(value, gradient, self.loss, self.target, z, force, self.share, ridge_value, self.ridge)

    def update(self, W: Array, pull: Array, shift: Array) -> Array:
        """Minimise the quadratic bound of the loss around W; one pass over the samples, one solve."""
        ridge = repeated(self.ridge, W.shape[0])
        free = self.evaluate(W).gradient - 2.0 * ridge[:, None] * W
        return self.system.solve(self.system.apply(W) - free + pull, 2.0 * ridge + repeated(shift, W.shape[0]))

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
        free = at.gradient - 2.0 * repeated(self.ridge, W.shape[0])[:, None] * W
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
