"""The squared loss, from moments or from passes over samples; and the quadratic models of other losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse, to_single
from tracelearn.arrays.linalg import positive_part, squared
from tracelearn.arrays.subspaces import Subspaces
from tracelearn.moments import Moments
from tracelearn.problems.data_fit import Solvers, least_value, repeated, summed
from tracelearn.problems.operators import Gram, InBasis, Operator, Passes, Rows, SpectralGram, compressed, stacked
from tracelearn.problems.sparse_operators import SparseGram
from tracelearn.samples.samples import Samples

__all__ = ["Squares", "SquaresEvaluation", "quadratic_model", "squares_of_samples"]


@dataclass(frozen=True, eq=False)
class SquaresEvaluation:
    """With ``r`` the residual and ``y`` the target, centred: ``value = |r|^2`` and ``slope = <r, y>``, as means."""

    value: Array
    gradient: Array
    slope: Array
    squares: Squares
    W: Array | None = None  # None for zero

    def errors(self, unit: float) -> tuple[Array, Array]:
        """Estimate rounding from the variances of the products ``w_i x_i``, which cancel where features are collinear.

        Where moments are a difference, the variances before the subtraction count (``rounding_sizes``).
        """
        fit = self.squares
        xp = array_namespace(self.value)
        B = self.value.shape[0]
        x_size, y_size = fit.rounding_sizes
        y_variance = summed(y_size, B)
        if x_size is None:
            return unit * y_variance, xp.zeros_like(y_variance)
        product_variance = ridge_value = xp.zeros_like(y_variance)
        if self.W is not None:
            product_variance = summed(_row_products(self.W**2, x_size), B)
            ridge_value = fit.ridge * summed(xp.sum(self.W**2, axis=1), B)
        # The gradient is made of covariances of features with targets and with products.
        covariance_size = xp.sqrt(xp.max(xp.sum(x_size, axis=-1))) * (xp.sqrt(y_variance) + xp.sqrt(product_variance))
        value_error = unit * (y_variance + product_variance + ridge_value)
        gradient_error = unit * 2.0 * (covariance_size + xp.sqrt(fit.ridge * ridge_value))
        return value_error, gradient_error

    def least_value(self, error: Array) -> Array:
        """Bound the least squares from below, where the length of the gradient may be off by an error."""
        return least_value(self.value, self.gradient, self.squares.least_curvature, error)

    def dual_value(self, largest_scale: Array) -> Array:
        """Evaluate ``2 t <r, y> - t^2 |r|^2``, which is largest at ``t = <r, y> / |r|^2``."""
        xp = array_namespace(self.value)
        best = positive_part(self.slope / xp.where(self.value > 0, self.value, xp.ones_like(self.value)))
        scale = xp.minimum(largest_scale, best)
        return 2.0 * scale * self.slope - scale**2 * self.value


@dataclass(frozen=True, eq=False)
class Squares:
    """The mean of ``(y - <W, x> - b)^2`` plus ``ridge |W|^2``, from centred products alone.

    ``operator`` is twice the covariance C of the features, ``cross`` (B K, p) their covariance h with the targets and
    ``target`` (B K,) the variance v of the targets. With the ridge, a row w has value ``w'Cw - 2h'w + v + ridge w'w``.
    """

    operator: Operator
    cross: Array
    target: Array
    ridge: Array
    x_mean: Array
    y_mean: Array
    variances: Array | None = None  # of the features (p,); None in a quadratic model, which needs no certificate
    # Where samples were subtracted: the variances of features (p,) and targets (B K,) before, to which the rounding of products
    # is proportional. None where nothing was: then it is proportional to the variances themselves.
    x_rounding: Array | None = None
    y_rounding: Array | None = None

    @property
    def n_groups(self) -> int:
        """The number of groups of problems whose operators differ."""
        return self.operator.n_groups

    @property
    def n_problems(self) -> int:
        """The number B of problems."""
        return int(self.ridge.shape[0])

    @property
    def n_features(self) -> int:
        """The number p of features."""
        return int(self.cross.shape[1])

    @property
    def is_quadratic(self) -> bool:
        """True."""
        return True

    @property
    def solvers(self) -> Solvers:
        """ADMM, where the system can be factored; else for a path gradients, of which each costs one pass."""
        return Solvers("admm", "admm") if self.operator.has_factor else Solvers("subspaces", "apg")

    @classmethod
    def of(cls, moments: Moments, *, ridge: float = 0.0, joint: bool = False, spectral: bool = False) -> Squares:
        """State the problems of moments: one for each target, or with ``joint`` one of all targets."""
        xp = array_namespace(moments.gram)
        weight = moments.weight
        matrix = moments.gram * (2.0 / weight)
        cancelled = moments.cancelled
        return cls(
            operator=SpectralGram(matrix) if spectral else Gram(matrix),
            cross=moments.cross.T / weight,
            target=moments.target_sq / weight,
            ridge=xp.full_like(moments.y_mean[:1] if joint else moments.y_mean, ridge),
            x_mean=moments.x_mean,
            y_mean=moments.y_mean,
            variances=0.5 * xp.linalg.diagonal(matrix),
            x_rounding=None if cancelled is None else cancelled.x_squares / weight,
            y_rounding=None if cancelled is None else cancelled.y_squares / weight,
        )

    def lifted(self, basis: Array, origin: Any, variances: Array) -> Squares:
        """Restate problems of coordinates in a basis (p, r) about an origin (p,) as problems of all p features.

        ``variances`` (p,) bound the rounding error; those of all samples may be given for a subset.
        """
        back = array_namespace(basis).matrix_transpose(basis)
        operator = InBasis(self.operator, basis)  # type: ignore[arg-type]
        x_mean = origin + self.x_mean @ back
        cross = self.cross @ back
        return replace(self, operator=operator, cross=cross, x_mean=x_mean, variances=variances, x_rounding=None)

    @property
    def in_coordinates(self) -> Squares:
        """The problems of the coordinates in a basis where ``lifted`` has restated them for all features; else the same."""
        operator = self.operator
        if not isinstance(operator, InBasis):
            return self
        return replace(self, operator=operator.inner, cross=self.cross @ operator.basis)

    @classmethod
    def stacked(cls, parts: Sequence[Squares]) -> Squares:
        """Join problems that differ in their samples, the folds of a search: one group of rows for each."""
        xp = array_namespace(parts[0].cross)
        return cls(
            operator=stacked([part.operator for part in parts]),
            cross=xp.concat([part.cross for part in parts]),
            target=xp.concat([part.target for part in parts]),
            ridge=xp.concat([part.ridge for part in parts]),
            x_mean=xp.stack([part.x_mean for part in parts]),
            y_mean=xp.concat([part.y_mean for part in parts]),
            variances=xp.stack([part.variances for part in parts]),
            x_rounding=xp.stack([part.rounding_sizes[0] for part in parts]),
            y_rounding=xp.concat([part.rounding_sizes[1] for part in parts]),
        )

    @property
    def rounding_sizes(self) -> tuple[Array | None, Array]:
        """The variances of features, None in a quadratic model, and of targets that rounding is proportional to."""
        x_size = self.variances if self.x_rounding is None else self.x_rounding
        return x_size, self.target if self.y_rounding is None else self.y_rounding

    @property  # not cached: it refers to the squares, and a reference cycle would delay the release of its memory
    def at_zero(self) -> SquaresEvaluation:
        """The evaluation at W = 0: the variance of the targets."""
        value = summed(self.target, self.ridge.shape[0])
        return SquaresEvaluation(value, -2.0 * self.cross, value, self)

    @cached_property
    def least_curvature(self) -> Array:
        """A lower bound (B,) of the curvature: the ridge and the smallest eigenvalue of the system."""
        return self.operator.smallest() + 2.0 * self.ridge

    def evaluate(self, W: Array, near: Any = None) -> SquaresEvaluation:
        """Evaluate value and gradient with one product."""
        xp = array_namespace(W)
        B = self.ridge.shape[0]
        W = xp.reshape(W, self.cross.shape)
        ridge = repeated(self.ridge, W.shape[0])
        half_gradient = 0.5 * self.operator.apply(W) + ridge[:, None] * W - self.cross
        slope = self.target - xp.sum(self.cross * W, axis=1)
        # |r|^2 = <w, Cw - h> - <h, w> + v, and never below zero but for rounding.
        value = positive_part(xp.sum(W * half_gradient, axis=1) + slope)
        return SquaresEvaluation(summed(value, B), 2.0 * half_gradient, summed(slope, B), self, W)

    def shifted_solver(self, shift: Array) -> Rows:
        """Factor the shifted normal equations."""
        return self.operator.solver(repeated(2.0 * self.ridge + shift, self.cross.shape[0]))

    def updater(self, shift: Array, solve: Rows | None = None) -> Callable[[Array, Array], Array]:
        """Return the solve of the shifted normal equations; its result does not depend on W."""
        xp = array_namespace(shift)
        constant = 2.0 * self.cross
        solve = self.shifted_solver(shift) if solve is None else solve

        def update(W: Array, pull: Array) -> Array:
            return xp.reshape(solve(constant + xp.reshape(pull, constant.shape)), W.shape)

        return update

    def with_ridges(self, ridges: Array) -> tuple[Array, Array]:
        """Solve ridge regression for A ridges: weights (A, B K, p) and intercepts (A, B K); the operator must be spectral."""
        xp = array_namespace(ridges)
        count, p = self.cross.shape
        G = self.n_groups
        each = (G, ridges.shape[0], count // G)
        shift = xp.broadcast_to(2.0 * ridges[:, None], each)
        right_side = xp.broadcast_to(xp.reshape(2.0 * self.cross, (G, 1, -1, p)), (*each, p))
        W = self.operator.solver(xp.reshape(shift, (-1,)))(xp.reshape(right_side, (-1, p)))
        b = xp.reshape(self.y_mean, (G, 1, -1)) - xp.reshape(_row_products(W, self.x_mean), each)
        W = xp.moveaxis(xp.reshape(W, (*each, p)), 1, 0)
        return xp.reshape(W, (-1, count, p)), xp.reshape(xp.moveaxis(b, 1, 0), (-1, count))

    def intercept(self, W: Array) -> Array:
        """Find the intercepts with which the model predicts the mean target at the mean sample."""
        return self.y_mean - _row_products(W, self.x_mean)

    @property
    def mean_curvature(self) -> float:
        """Twice the mean variance of the features, which is the mean eigenvalue of the system, plus the ridge."""
        xp = array_namespace(self.ridge)
        variance = self.operator.mean_eigenvalue if self.variances is None else 2.0 * float(xp.mean(self.variances))
        return variance + 2.0 * float(xp.mean(self.ridge))

    def within(self, subspaces: Subspaces) -> Squares:
        """State the problems for cores: their moments are those of the projected samples."""
        gram = Gram(compressed(self.operator, subspaces))
        variances = 0.5 * array_namespace(gram.matrix).linalg.diagonal(gram.matrix)
        x_mean = subspaces.project(self.x_mean[None, :])[0, :]
        cross = subspaces.project(self.cross)
        return replace(self, operator=gram, cross=cross, x_mean=x_mean, variances=variances, x_rounding=None)

    def single(self) -> Squares:
        """Return the same problems in single precision, if its range allows: for choosing alpha, not for solutions."""
        xp = array_namespace(self.cross)
        sizes = [float(xp.sum(self.variances)), float(xp.max(self.target)), 1.0]  # type: ignore[arg-type]
        if not 1e-12 < min(sizes) <= max(sizes) < 1e12 or not isinstance(self.operator, Gram | InBasis):
            return self
        return Squares(
            operator=self.operator.single(),
            cross=to_single(self.cross),
            target=to_single(self.target),
            ridge=to_single(self.ridge),
            x_mean=to_single(self.x_mean),
            y_mean=to_single(self.y_mean),
            variances=to_single(self.variances),
            x_rounding=None if self.x_rounding is None else to_single(self.x_rounding),
            y_rounding=None if self.y_rounding is None else to_single(self.y_rounding),
        )

    def take(self, problems: Array) -> Squares:
        """Keep the problems of this index, which may contain one several times; the operator stays.

        Where it has several groups, the index must keep the problems of each group together, and equally many of each.
        """
        xp = array_namespace(self.cross)

        def pick(a: Array) -> Array:
            """Keep the rows of these problems in an array that has one row, or number, for each target."""
            of_problems = xp.reshape(a, (self.n_problems, -1, *a.shape[1:]))
            return xp.reshape(xp.take(of_problems, problems, axis=0), (-1, *a.shape[1:]))

        return replace(
            self,
            cross=pick(self.cross),
            target=pick(self.target),
            ridge=self.ridge[problems],
            y_mean=pick(self.y_mean),
            y_rounding=None if self.y_rounding is None else pick(self.y_rounding),
        )


def quadratic_model(operator: Operator, W: Array, value: Array, gradient: Array, ridge: Array, scale: Array) -> Squares:
    """State ``value + <gradient, V - W> + 1/2 <V - W, operator (V - W)>`` plus the ridge term as squares of V.

    ``value`` (B,) and ``gradient`` (R, p) at the rows W are without the ridge. A constant is added, which changes neither
    answer nor gap: with it and ten times ``scale`` the model stays positive, as the dual of squares needs.
    """
    xp = array_namespace(W)
    image = operator.apply(W)
    constant = value - xp.sum(gradient * W) + 0.5 * xp.sum(image * W) + 10.0 * scale
    zeros = xp.zeros_like(W[:, 0])
    target = (zeros + 1.0) * constant / W.shape[0]
    return Squares(operator, 0.5 * (image - gradient), target, ridge, zeros, zeros)


def squares_of_samples(samples: Samples, *, ridge: float, joint: bool, fit_intercept: bool, in_passes: bool) -> Squares:
    """State the problems of samples that are sparse, or with ``in_passes`` too many and too large for any square matrix."""
    x_mean, y_mean = samples.total(lambda X, Y, share, z: (share @ X, share @ Y))
    if not fit_intercept:
        x_mean = 0.0 * x_mean
        y_mean = 0.0 * y_mean

    def products(X: Array, Y: Array, share: Array, z: Array) -> tuple[Array, ...]:
        residual = Y - y_mean
        targets = residual * share[:, None]
        if is_sparse(X):  # stays so: its means are near zero, or it would not be sparse
            offset = array_namespace(targets).sum(targets, axis=0)
            return targets.T @ X - offset[:, None] * x_mean, share @ residual**2, share @ squared(X) - x_mean**2
        centred = X - x_mean
        return targets.T @ centred, share @ residual**2, share @ centred**2

    cross, target, variances = samples.total(products)
    xp = array_namespace(x_mean)
    # Deviations of a constant feature from its mean are nothing but the rounding of the mean.
    is_constant = variances <= (4.0 * float(xp.finfo(x_mean.dtype).eps) * x_mean) ** 2
    cross = xp.where(is_constant, xp.zeros_like(cross), cross)
    variances = xp.where(is_constant, xp.zeros_like(variances), positive_part(variances))
    ridges = xp.full_like(y_mean[:1] if joint else y_mean, ridge)
    operator: Operator
    if in_passes:
        operator = Passes(samples.total, x_mean, 2.0)
    else:
        weight = samples.total(lambda X, Y, share, z: 2.0 * share)
        operator = SparseGram.of(samples.like, weight, centre=fit_intercept)
    return Squares(operator, cross, target, ridges, x_mean, y_mean, variances)


def _row_products(rows: Array, table: Array) -> Array:
    """Multiply rows (R, p) with a vector (p,), or the rows of each group with its own of a table (G, p): (R,)."""
    if table.ndim == 1:
        return rows @ table
    xp = array_namespace(rows)
    groups = xp.reshape(rows, (table.shape[0], -1, table.shape[1]))
    return xp.reshape(xp.sum(groups * table[:, None, :], axis=2), (-1,))
