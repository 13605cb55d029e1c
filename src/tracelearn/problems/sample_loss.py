"""Any loss, from samples wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse, multiplies_singles_faster
from tracelearn.arrays.linalg import pairwise_grams, positive_part, squared
from tracelearn.arrays.span import short_basis, span
from tracelearn.arrays.subspaces import Subspaces
from tracelearn.errors import brief
from tracelearn.losses import Loss
from tracelearn.moments import Accumulator, Moments
from tracelearn.problems.data_fit import Solvers, least_value, repeated, summed
from tracelearn.problems.operators import (
    Centred,
    Coupled,
    Gram,
    InBasis,
    Operator,
    Passes,
    Rows,
    SpectralGram,
    stacked,
)
from tracelearn.problems.sparse_operators import LARGEST_DENSE, SparseGram
from tracelearn.problems.squares import Squares, quadratic_model
from tracelearn.samples.samples import Block, Samples

__all__ = ["SampleLoss"]

# Rows and columns of the largest Hessian that couples targets: factored in about a second.
_LARGEST_HESSIAN = 4096
# Up to this size the bound of a Hessian that couples targets is diagonalised, so that new steps of ADMM cost no factorisation.
_SPECTRAL = 1000
_LOWERINGS = 30  # how often the estimate of the curvature may be lowered
_LEAST_SHARE = 1e-6  # the least estimate of the curvature, as a share of its bound
# Where all samples are classified with certainty curvatures vanish, and a step divided by them would overflow.
_LEAST_CURVATURE = 1e-100
# Up to this size a Hessian that couples targets is factored in milliseconds. Measured on paths of real data, to a gap of
# 1e-3: at 264 Newton took a quarter of the time of ADMM, at 640 as long, at 2,160 seventeen times as long.
_SMALL_HESSIAN = 800
# A Hessian of at least so many features is found in single precision, if their mean squares are well within its range.
_MANY = 200
_SMALLEST = 1e-12

# Weights (m, K) of the samples of a block, from their targets, shares and scores.
Weigh = Callable[[Array, Array, Array], Array]


def _mean_hides_spread(mean: Array, squares: Array) -> bool:
    """Tell whether some feature's mean is so far from zero that sums of products lose the digits of its spread.

    Then the mean is subtracted from all samples, at the cost of a copy: a constant feature becomes exactly zero.
    """
    xp = array_namespace(mean)
    return bool(xp.any(mean**2 > 1e6 * (squares - mean**2)))


def _moved(samples: Samples, x: Array | None, y: Array | None) -> Samples:
    """Subtract a row x from all samples and a row y from all targets; None subtracts nothing."""

    def moved(block: Block) -> Block:
        return replace(block, X=block.X if x is None else block.X - x, Y=block.Y if y is None else block.Y - y)

    return samples.mapped_blocks(moved)


class _Share:
    """An estimate of the curvature, as a share of its upper bound: a smaller one makes longer steps.

    It is raised whenever a larger curvature was measured, and lowered at most ``_LOWERINGS`` times. So it becomes constant,
    and from then on the quadratic model bounds the loss at every step, as convergence needs.
    """

    def __init__(self) -> None:
        self.value = 1.0
        self._lowered = 0

    def follow(self, measured: float) -> bool:
        """Adjust the share to a measured one; return whether it has changed."""
        before = self.value
        target = min(1.0, max(1.5 * measured, _LEAST_SHARE))
        if measured > before:
            self.value = target
        elif measured < 0.5 * before and self._lowered < _LOWERINGS:
            self.value = target
            self._lowered += 1
        return self.value != before


@dataclass(frozen=True, eq=False)
class LossEvaluation:
    """What is known at one W: ``scores`` stay with the samples, ``shift`` (K,) is the best intercept.

    ``mean_derivative`` (K,) of the loss is zero there unless the search for the intercept ended early; ``rms_derivative`` (B,)
    is the root of the mean square of the derivatives.
    """

    value: Array
    gradient: Array
    fit: SampleLoss
    scores: Any
    shift: Array
    mean_derivative: Array
    rms_derivative: Array
    ridge_value: Array
    W: Array

    def errors(self, unit: float) -> tuple[Array, Array]:
        """Estimate rounding from the mean squares of the products ``w_i x_i``, which cancel where features are collinear.

        A free intercept asks that the derivatives sum to zero. Where they do not, subtracting their mean makes a feasible dual
        point: the dual value changes by at most the mean times scores, the gradient by the mean times samples.
        """
        xp = array_namespace(self.W)
        fit = self.fit
        n = self.value.shape[0]
        # The root mean squares of the scores with their intercept, and of the samples.
        sizes = xp.sqrt(summed(self.W**2 @ fit.squares, n)) + xp.sqrt(summed(self.shift**2, n))
        length = xp.sqrt(xp.sum(fit.squares))
        curvature = self.rms_derivative if fit.loss.curvature is None else fit.loss.curvature
        value = unit * (self.value + self.rms_derivative * sizes)
        gradient = unit * (
            (self.rms_derivative + curvature * sizes) * length + 2.0 * xp.sqrt(fit.ridge * self.ridge_value)
        )
        if not fit.fit_intercept:
            return value, gradient
        excess = summed(xp.abs(self.mean_derivative), n)
        return value + excess * sizes, gradient + excess * length

    def least_value(self, error: Array) -> Array:
        """Bound the least loss from below, where there is a ridge and the length of the gradient may be off by an error."""
        return least_value(self.value, self.gradient, 2.0 * self.fit.ridge, error)

    def dual_value(self, largest_scale: Array) -> Array:
        """Evaluate minus the mean conjugate at the scaled derivatives, less the ridge term.

        A scale of one is best, since at the optimum the derivatives are the dual solution. Where they do not sum to zero, as a
        free intercept asks, the scale is zero: the dual value is then zero too, the bound that no loss is negative.
        """
        xp = array_namespace(self.value)
        scale = largest_scale
        if self.fit.fit_intercept:
            allowed = float(xp.finfo(self.value.dtype).eps) ** 0.5 * self.rms_derivative
            scale = scale * xp.astype(summed(xp.abs(self.mean_derivative), scale.shape[0]) <= allowed, scale.dtype)
        loss = self.fit.loss
        shift = self.shift
        scale_of_target = repeated(scale, self.shift.shape[0])

        def conjugate(X: Array, Y: Array, share: Array, z: Array) -> Array:
            return share @ loss.conjugate(Y, scale_of_target * loss.derivative(Y, z + shift))

        mean = self.fit.without_rows.total(conjugate, self.scores)
        return -summed(mean, scale.shape[0]) - scale**2 * self.ridge_value


@dataclass(frozen=True, eq=False)
class SampleLoss:
    """The weighted mean of any loss over samples, plus ``ridge |W|^2``."""

    loss: Loss
    samples: Samples
    ridge: Array
    x_mean: Array
    squares: Array  # the mean squares of the features (p,)
    origin: Array  # what was subtracted from the samples (p,)
    y_origin: Array | None = None  # and from the targets (K,)
    fit_intercept: bool = True
    in_passes: bool = False
    # Whether Hessians are found in single precision, which takes half the time: Newton's steps lead to the same answer.
    single_hessians: bool = False
    n_groups: int = 1

    @classmethod
    def of(
        cls,
        loss: Loss,
        samples: Samples,
        *,
        ridge: float = 0.0,
        joint: bool = False,
        fit_intercept: bool = True,
        in_passes: bool = False,
    ) -> SampleLoss:
        """Read samples: one problem for each target where the loss is separable, unless ``joint``."""
        cut = samples.in_small_blocks()
        mean, squares, y_mean = cut.total(lambda X, Y, share, z: (share @ X, share @ squared(X), share @ Y))
        loss.check_mean(y_mean)
        xp = array_namespace(mean)
        rows = samples.rows
        if rows is not None:  # the mean again, from differences to the first sample: exact for constant features
            first = rows[0, :]
            mean = first + cut.total(lambda X, Y, share, z: share @ (X - first))
        mean = mean if fit_intercept else 0.0 * mean
        origin = 0.0 * mean
        y_origin = y_mean if fit_intercept and loss.is_shift_invariant else None
        is_far = fit_intercept and _mean_hides_spread(mean, squares) and not is_sparse(samples.like)
        if is_far or y_origin is not None:
            samples = _moved(samples, mean if is_far else None, y_origin)
        if is_far:
            origin = mean
            mean = samples.total(lambda X, Y, share, z: share @ X)
            squares = samples.total(lambda X, Y, share, z: share @ squared(X))
        n_problems = 1 if joint or not loss.is_separable else samples.n_targets
        is_in_range = _SMALLEST < float(xp.min(squares)) and float(xp.max(squares)) < 1.0 / _SMALLEST
        return cls(
            loss=loss,
            samples=samples,
            ridge=xp.full((n_problems,), ridge, dtype=mean.dtype, device=device(mean)),
            x_mean=mean,
            squares=squares,
            origin=origin,
            y_origin=y_origin,
            fit_intercept=fit_intercept,
            in_passes=in_passes,
            single_hessians=mean.shape[0] >= _MANY and is_in_range and multiplies_singles_faster(mean),
        )

    @property
    def is_quadratic(self) -> bool:
        """False: the squared loss has moments."""
        return False

    @property
    def has_bounded_curvature(self) -> bool:
        """Whether there is a bound of the second derivative, and so an ``operator``."""
        return self.loss.curvature is not None

    @property
    def has_rough_models(self) -> bool:
        """Whether models are found in single precision."""
        return self.single_hessians

    def with_exact_models(self) -> SampleLoss:
        """State the same problems with models in double precision."""
        return replace(self, single_hessians=False) if self.single_hessians else self

    @property
    def n_problems(self) -> int:
        """The number B of problems."""
        return int(self.ridge.shape[0])

    @property
    def n_features(self) -> int:
        """The number p of features."""
        return int(self.x_mean.shape[0])

    @property
    def _n_unknowns(self) -> int:
        """The number of weights of each target that the samples determine: at most features, and at most samples."""
        rows = self.samples.rows
        return self.n_features if rows is None else min(rows.shape)

    @property
    def solvers(self) -> Solvers:
        """Newton's method where a Hessian can be factored; else "subspaces", and for a path "apg".

        Where coupled targets make the Hessian expensive, ADMM reaches the small accuracy of a path sooner.
        """
        if self.in_passes:
            return Solvers("subspaces", "apg")
        few = self.loss.is_separable or self.samples.n_targets * self._n_unknowns <= _SMALL_HESSIAN
        return Solvers("newton", "newton" if few else "admm")

    @cached_property
    def operator(self) -> Operator:
        """The covariance of the features times the curvature of the loss: a bound of the Hessian, intercept eliminated."""
        curvature = self.loss.curvature
        if curvature is None:
            raise ValueError(
                f"Expected a loss of bounded curvature for this solver, got {brief(self.loss)}: use solver='newton', and fewer "
                "features or samples if they do not fit."
            )
        bound: Operator
        if self.in_passes:
            bound = Passes(self.samples.total, self.x_mean, curvature)
        else:
            (bound,) = self._covariances(lambda Y, share, z: curvature * share[:, None])
        return bound if self.loss.is_separable else Centred(_spectral(bound))

    @cached_property
    def at_zero(self) -> LossEvaluation:
        """The evaluation at W = 0 with the best intercept."""
        return self.evaluate(self._zeros((self.samples.n_targets, self.n_features)))

    def _zeros(self, shape: tuple[int, ...]) -> Array:
        return array_namespace(self.x_mean).zeros(shape, dtype=self.x_mean.dtype, device=device(self.x_mean))

    def _shift(self, scores: Any, start: Array | None = None) -> Array:
        """Find the best intercept (K,) for scores, searching from ``start``; zero for models without."""
        start = self._zeros((self.samples.n_targets,)) if start is None else start
        if not self.fit_intercept:
            return start
        return self.loss.intercept(
            lambda term: self.without_rows.total(lambda X, Y, share, z: term(Y, z, share), scores), start
        )

    def evaluate(self, W: Array, near: LossEvaluation | None = None) -> LossEvaluation:
        """Evaluate value and gradient: a pass for the scores, some over the scores alone, a pass for the gradient.

        The search for the intercept begins at that of weights ``near``, which saves most of it.
        """
        xp = array_namespace(W)
        W = xp.reshape(W, (-1, self.n_features))
        loss = self.loss
        scores = self.samples.scores(W)
        shift = self._shift(scores, None if near is None else near.shift)

        def sums(X: Array, Y: Array, share: Array, z: Array) -> tuple[Array, ...]:
            derivative = loss.derivative(Y, z + shift)
            weighted = derivative * share[:, None]
            return share @ loss.value(Y, z + shift), weighted.T @ X, xp.sum(weighted, axis=0), share @ derivative**2

        value, gradient, mean_derivative, squares = self.samples.total(sums, scores)
        ridge_value = self.ridge * summed(xp.sum(W**2, axis=1), self.n_problems)
        gradient = gradient + 2.0 * repeated(self.ridge, W.shape[0])[:, None] * W
        value = summed(value, self.n_problems) + ridge_value
        rms_derivative = xp.sqrt(summed(squares, self.n_problems))
        return LossEvaluation(value, gradient, self, scores, shift, mean_derivative, rms_derivative, ridge_value, W)

    def shifted_solver(self, shift: Array) -> Rows:
        """Factor the bound of the Hessian, with twice the ridge and a shift on its diagonal."""
        return self.operator.solver(repeated(2.0 * self.ridge + shift, self.samples.n_targets))

    def updater(self, shift: Array, solve: Rows | None = None) -> Callable[[Array, Array], Array]:
        """Return the minimiser of a quadratic model of the loss around W: one pass over the samples, one solve.

        Its Hessian is the bound ``operator``. Where targets are coupled, and true Hessians expensive, the bound is multiplied by
        a share that follows the measured curvature: for well separated classes this is a small part of the bound, whose steps
        would be as much too short.
        """
        ridge = repeated(self.ridge, self.samples.n_targets)
        diagonal = 2.0 * ridge + repeated(shift, self.samples.n_targets)
        solve = self.shifted_solver(shift) if solve is None else solve
        share = _Share()
        adapts = not self.loss.is_separable
        before: tuple[LossEvaluation, Array] | None = None

        def update(W: Array, pull: Array) -> Array:
            nonlocal solve, before
            xp = array_namespace(W)
            evaluation = self.evaluate(W, None if before is None else before[0])
            image = self.operator.apply(evaluation.W)
            if before is not None and adapts and share.follow(self._curvature_share(*before, evaluation, image)):
                solve = self.operator.solver(diagonal / share.value)
            before = evaluation, image
            free = evaluation.gradient - 2.0 * ridge[:, None] * evaluation.W
            target = image + (xp.reshape(pull, free.shape) - free) / share.value
            return xp.reshape(solve(target), W.shape)  # type: ignore[misc]

        return update

    def _curvature_share(
        self, before: LossEvaluation, image_before: Array, after: LossEvaluation, image_after: Array
    ) -> float:
        """Measure the curvature between two weights, as a share of its bound: the largest over the problems.

        The rounding error is added, so that for steps too small to measure the share is one.
        """
        xp = array_namespace(image_after)
        n = self.n_problems
        step = after.W - before.W
        change = after.gradient - before.gradient - 2.0 * repeated(self.ridge, step.shape[0])[:, None] * step
        rounding = 100.0 * float(xp.finfo(step.dtype).eps) * xp.max(xp.abs(before.gradient)) * xp.abs(step)
        measured = summed(xp.sum(change * step + rounding, axis=1), n)
        bound = summed(xp.sum((image_after - image_before) * step, axis=1), n)
        is_less = bound > measured
        ones = xp.ones_like(bound)
        return float(xp.max(xp.where(is_less, measured / xp.where(is_less, bound, ones), ones)))

    def model(self, W: Array, evaluation: LossEvaluation) -> Squares | None:
        """Expand the loss to second order around W, the intercept eliminated, as one problem of squares.

        Up to a constant it is a weighted least-squares problem whose weights are the curvatures of the samples. None
        where the targets are coupled and too many for a Hessian of all of them.
        """
        W = evaluation.W
        operator: Operator
        if not self.loss.is_separable:
            if W.shape[0] * self._n_unknowns > _LARGEST_HESSIAN:
                return None
            operator = self._coupled_hessian(evaluation)
        else:
            hessians = self._hessians(evaluation)
            operator = hessians[0] if len(hessians) == 1 else stacked(hessians)
        free = evaluation.gradient - 2.0 * repeated(self.ridge, W.shape[0])[:, None] * W
        return quadratic_model(operator, W, evaluation.value, free, self.ridge, self.at_zero.value)

    @cached_property
    def _basis(self) -> tuple[Array, Array] | None:
        """An orthonormal basis (p, r) of samples in memory that span less than p dimensions, and their coordinates (n, r).

        Fewer samples than features do; so do linear views of the same samples side by side, as in a search. The second case is
        tested only where targets are coupled, whose Hessian costs the cube of their number.
        """
        rows = self.samples.rows
        if rows is None:
            return None
        n, p = rows.shape
        if n < p:
            return span(rows, self.x_mean)
        if self.loss.is_separable or self.samples.n_targets * p > _LARGEST_HESSIAN:
            return None
        centred = rows - self.x_mean
        basis = short_basis(centred)
        return None if basis is None else (basis, centred @ basis)

    def _curvatures(self, Y: Array, z: Array) -> Array:
        """Evaluate the second derivatives of the loss, bounded away from zero."""
        return array_namespace(z).clip(self.loss.curvatures(Y, z), min=_LEAST_CURVATURE)

    def _coupled_hessian(self, evaluation: LossEvaluation) -> Coupled:
        """Build the Hessian of all targets together, the intercepts eliminated.

        It is kept for the K - 1 contrasts between targets, since it is zero for weights that are equal for all targets.
        """
        loss = self.loss
        shift = evaluation.shift
        basis = self._basis
        xp = array_namespace(shift)
        K = shift.shape[0]
        contrasts = target_contrasts(shift)

        def hessian(X: Array, Y: Array, share: Array, z: Array) -> tuple[Array, Array, Array]:
            coupling = loss.coupling(Y, z + shift)
            assert coupling is not None
            rows = X if basis is None else basis[1]
            # The part of the intercepts is subtracted below; with a large mean that would lose all digits.
            origin = self.x_mean if basis is None else None
            return pairwise_grams(rows, coupling, share, contrasts, origin=origin, single=self.single_hessians)

        inside, cross, corner = self.samples.total(hessian, evaluation.scores)
        size = (K - 1) * inside.shape[1]
        inside = xp.reshape(inside, (size, size))
        if self.fit_intercept:
            cross = xp.reshape(cross, (size, K - 1))
            eye = xp.eye(K - 1, dtype=shift.dtype, device=device(shift))
            inside = inside - cross @ xp.linalg.solve(corner + 1e-14 * eye, xp.matrix_transpose(cross))
        inside = 0.5 * (inside + xp.matrix_transpose(inside))
        return Coupled(Gram(inside), contrasts, None if basis is None else basis[0])

    def _hessians(self, evaluation: LossEvaluation) -> list[Any]:
        """Build for each target the weighted covariance of the features, about their weighted mean with an intercept."""

        def weigh(Y: Array, share: Array, z: Array) -> Array:
            return self._curvatures(Y, z + evaluation.shift) * share[:, None]

        return self._covariances(weigh, evaluation.scores, single=self.single_hessians)

    def _covariances(self, weigh: Weigh, scores: Any = None, *, single: bool = False) -> list[Any]:
        """Sum ``w (x - m)(x - m)'`` for each column of weights w, m the weighted mean, or with no intercept zero."""
        samples = self.samples
        centre = self.fit_intercept
        like = samples.like
        basis = self._basis
        if like is not None and is_sparse(like) and like.shape[1] > min(LARGEST_DENSE, like.shape[0]):
            weights = samples.total(lambda X, Y, share, z: weigh(Y, share, z), scores)
            return [SparseGram.of(like, weights[:, k], centre=centre) for k in range(weights.shape[1])]

        def moments(X: Array, Y: Array, share: Array, z: Array) -> tuple[Moments, ...]:
            weights = weigh(Y, share, z)
            rows = X if basis is None else basis[1]
            moments_of_target = []
            for k in range(weights.shape[1]):
                accumulator = Accumulator.empty(rows.shape[1], 1, rows, single=single)
                moments_of_target.append(accumulator.add(rows, weights[:, k : k + 1], weights[:, k]).freeze())
            return tuple(moments_of_target)

        grams = [Gram(total.gram if centre else total.second_moment) for total in samples.total(moments, scores)]
        return grams if basis is None else [InBasis(gram, basis[0]) for gram in grams]

    @property
    def mean_curvature(self) -> float:
        """The mean variance of the features times the mean curvature of the loss at W = 0, plus the ridge."""
        xp = array_namespace(self.x_mean)
        zero = self.at_zero

        def curvatures(X: Array, Y: Array, share: Array, z: Array) -> Array:
            return share @ self._curvatures(Y, z + zero.shift)

        curvature = float(xp.mean(self.without_rows.total(curvatures, zero.scores)))
        variance = float(xp.mean(positive_part(self.squares - self.x_mean**2)))
        return curvature * variance + 2.0 * float(xp.mean(self.ridge))

    def within(self, subspaces: Subspaces) -> SampleLoss:
        """State the problems for cores: the samples are projected once, and their projections kept in memory."""
        samples = self.samples.mapped_rows(subspaces.project, subspaces.core_shape).kept()
        squares = samples.total(lambda X, Y, share, z: share @ X**2)
        x_mean = subspaces.project(self.x_mean[None, :])[0, :]
        origin = subspaces.project(self.origin[None, :])[0, :]
        return replace(self, samples=samples, x_mean=x_mean, squares=squares, origin=origin, in_passes=False)

    @cached_property
    def without_rows(self) -> Samples:
        """The samples without their rows: sums over targets and scores alone need not read the rows again."""
        return self.samples.mapped_rows(lambda X: X[:, :0], (0,)).kept()

    def intercept(self, W: Array) -> Array:
        """Find the best intercept for W."""
        shift = self._shift(self.samples.scores(W))
        if not self.fit_intercept:
            return shift
        if not self.loss.is_separable:
            # Equal scores for all targets change nothing, but large ones would lose digits in single precision. So intercepts sum
            # to zero where samples are near zero; else the scores of the mean sample do.
            shift = shift - array_namespace(shift).mean(shift)
        shift = shift - W @ self.origin
        return shift if self.y_origin is None else shift + self.y_origin

    def take(self, problems: Array) -> SampleLoss:
        """Keep some of the problems of a separable loss."""
        if self.n_problems == 1:
            return self
        y_origin = None if self.y_origin is None else self.y_origin[problems]
        return replace(self, samples=self.samples.take_targets(problems), ridge=self.ridge[problems], y_origin=y_origin)


def _spectral(operator: Any) -> Any:
    """Diagonalise the matrix of an operator once for all shifts, if it is small enough."""
    if isinstance(operator, Gram):
        return SpectralGram(operator.matrix) if operator.matrix.shape[0] <= _SPECTRAL else operator
    return replace(operator, inner=_spectral(operator.inner)) if isinstance(operator, InBasis) else operator


def target_contrasts(like: Array) -> Array:
    """Return an orthonormal basis (K, K - 1) of the vectors of sum zero, in the library and on the device of an array (K,)."""
    xp = array_namespace(like)
    K = like.shape[0]
    contrasts = np.linalg.qr(np.column_stack([np.ones(K), np.eye(K)[:, 1:]]))[0][:, 1:]
    return xp.asarray(contrasts, dtype=like.dtype, device=device(like))
