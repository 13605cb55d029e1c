"""Any loss, from samples wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse
from tracelearn.arrays.linalg import coupled_gram, squared, with_ones
from tracelearn.losses import Loss
from tracelearn.problems.operators import (
    CentredSystem,
    CoupledSystem,
    GramSystem,
    KernelSystem,
    OperatorSystem,
    StackedSystem,
    System,
)
from tracelearn.problems.smooth.rows import least_value, mean_row, repeated, summed
from tracelearn.problems.smooth.samples import ArraySamples, Samples
from tracelearn.problems.smooth.squares import Squares

__all__ = ["DataLoss"]

# Rows and columns of the largest Hessian that couples targets: factored in about a second.
_LARGEST_HESSIAN = 4096
# Up to this size the bound of a Hessian that couples targets is diagonalised: ADMM then changes its step for nothing.
_SPECTRAL = 1000
# How often a step may be made longer, and what share of the bound of the curvature is believed at least.
_LOWERINGS, _LEAST_SHARE = 30, 1e-6
# Where every sample is told apart beyond doubt curvatures vanish, and a step divided by them would overflow.
_LEAST_CURVATURE = 1e-100


def _is_far(mean: Array, squares: Array) -> bool:
    """Whether the mean of some feature is so far from zero that sums of products lose the digits of its spread.

    Then a copy of the samples about their mean is worth its memory.
    """
    xp = array_namespace(mean)
    spread = squares - mean**2
    return bool(xp.any((spread > 0) & (mean**2 > 1e6 * spread)))


# Up to this size a Hessian that couples targets is factored in milliseconds. Measured on paths of real data, to a gap of
# 1e-3: at 264 Newton took a quarter of the time of ADMM, at 640 as long, at 2,160 seventeen times as long.
_SMALL_HESSIAN = 800


def _spectral(system: System) -> System:
    """Let one decomposition serve all shifts, where that is soon done."""
    if isinstance(system, GramSystem):
        return replace(system, spectral=system.matrix.shape[0] <= _SPECTRAL)
    if isinstance(system, KernelSystem):
        return replace(system, spectral=system.factor.shape[0] <= _SPECTRAL)
    return system


class _Share:
    """The part of the bound of the curvature that is believed.

    It is raised at once where more was seen. It is lowered some times only, so that in the end it rests, and then every
    step has met what its model promised.
    """

    def __init__(self) -> None:
        self.value, self._lowered = 1.0, 0

    def follow(self, seen: float) -> bool:
        """Take note of what was seen; tell whether the value has changed."""
        before, wanted = self.value, min(1.0, max(1.5 * seen, _LEAST_SHARE))
        if seen > before:
            self.value = wanted
        elif seen < 0.5 * before and self._lowered < _LOWERINGS:
            self.value, self._lowered = wanted, self._lowered + 1
        return self.value != before


@dataclass(frozen=True, eq=False)
class DataEvaluation:
    """What is known at one W: ``scores`` stay with the samples, ``shift`` (K,) is the best intercept.

    ``imbalance`` (K,) is the mean derivative there, zero unless the search for the intercept ended early.
    """

    value: Array
    gradient: Array
    smooth: DataLoss
    scores: Any
    shift: Array
    imbalance: Array
    ridge_value: Array
    W: Array

    def rounding(self) -> tuple[Array, Array]:
        """Estimate it from the mean squares of the products ``w_i x_i``, which cancel where features are collinear."""
        xp, smooth = array_namespace(self.W), self.smooth
        scores = xp.sqrt(summed(self.W**2 @ smooth.squares, smooth.n_problems))
        force = self._force()
        shift = xp.sqrt(summed(self.shift**2, smooth.n_problems))
        forces = force + smooth.loss.curvature * scores
        length = forces * xp.sqrt(xp.sum(smooth.squares)) + 2.0 * xp.sqrt(smooth.ridge * self.ridge_value)
        return self.value + force * (scores + shift), length

    def _force(self) -> Array:
        """Bound the mean derivative: a loss that is not negative has one of at most sqrt(2 curvature loss)."""
        return array_namespace(self.value).sqrt(2.0 * self.smooth.loss.curvature * self.value)

    def least_value(self, error: Array) -> Array:
        """Bound the least loss from below, where there is a ridge and the length of the gradient may be off by an error."""
        return least_value(self.value, self.gradient, 2.0 * self.smooth.ridge, error)

    def dual_value(self, scale: Array) -> Array:
        """Evaluate minus the mean conjugate at the scaled forces, less the ridge term."""
        loss, shift, wide = self.smooth.loss, self.shift, repeated(scale, self.shift.shape[0])

        def conjugate(y: Array, z: Array) -> Array:
            return loss.conjugate(y, wide * loss.derivative(y, z + shift))

        mean = self.smooth.average(conjugate, self.scores)
        return -summed(mean, scale.shape[0]) - scale**2 * self.ridge_value

    def best_scale(self) -> Array:
        """Return one: at the optimum the forces are the dual answer.

        Zero where they do not sum to zero as the free intercept asks: then they prove nothing, but that no loss is negative.
        """
        xp = array_namespace(self.value)
        if not self.smooth.fit_intercept:
            return xp.ones_like(self.value)
        allowed = float(xp.finfo(self.value.dtype).eps) ** 0.5 * self._force()
        return xp.astype(summed(xp.abs(self.imbalance), self.value.shape[0]) <= allowed, self.value.dtype)


@dataclass(frozen=True, eq=False)
class DataLoss:
    """The weighted mean of any loss over samples, plus ``ridge |W|^2``.

    ``system`` is the covariance of the features times the curvature of the loss: it bounds the Hessian once the intercept
    is eliminated.
    """

    system: System
    loss: Loss
    samples: Samples
    ridge: Array
    x_mean: Array
    squares: Array  # the mean squares of the features (p,)
    origin: Array  # what was subtracted from the samples (p,)
    fit_intercept: bool = True

    @classmethod
    def of(
        cls,
        loss: Loss,
        samples: Samples,
        *,
        ridge: float = 0.0,
        joint: bool = False,
        fit_intercept: bool = True,
        matrix_free: bool = False,
    ) -> DataLoss:
        """Read samples: one problem for each target where the loss is separable, unless ``joint``."""
        mean, squares = samples.total(lambda X, Y, share, z: (share @ X, share @ squared(X)))
        xp = array_namespace(mean)
        if isinstance(samples, ArraySamples) and not samples.blockwise:
            mean = mean_row(samples.X, samples.share)
        mean = mean if fit_intercept else 0.0 * mean
        origin = 0.0 * mean
        if isinstance(samples, ArraySamples) and not matrix_free and _is_far(mean, squares):
            samples, origin, mean, squares = samples.shifted(mean), mean, origin, squares - mean**2
        system: System
        if matrix_free:
            system = OperatorSystem(samples.total, mean, loss.curvature)
        else:
            curvature = loss.curvature
            (system,) = samples.covariances(lambda Y, share, z: curvature * share[:, None], centre=fit_intercept)
        system = system if loss.is_separable else CentredSystem(_spectral(system))
        single = joint or not loss.is_separable
        ridges = xp.full((1 if single else samples.n_targets,), ridge, dtype=mean.dtype, device=device(mean))
        return cls(system, loss, samples, ridges, mean, squares, origin, fit_intercept)

    @property
    def n_problems(self) -> int:
        """The number B of problems."""
        return int(self.ridge.shape[0])

    @property
    def n_features(self) -> int:
        """The number p of features."""
        return int(self.x_mean.shape[0])

    @property
    def best_solver(self) -> str:
        """Newton's method, where the system can be factored."""
        return "newton" if self.system.has_factor else "apg-adm"

    @property
    def path_solver(self) -> str:
        """Newton's method, unless targets that are coupled make its Hessian dear: ADMM comes close enough sooner."""
        if not self.system.has_factor:
            return "apg-adm"
        rows = self.samples.rows
        size = self.samples.n_targets * (self.n_features if rows is None else min(rows.shape))
        return "newton" if self.loss.is_separable or size <= _SMALL_HESSIAN else "admm"

    @cached_property
    def at_zero(self) -> DataEvaluation:
        """The evaluation at W = 0 with the best intercept."""
        return self.evaluate(self._zeros((self.samples.n_targets, self.n_features)))

    def _zeros(self, shape: tuple[int, ...]) -> Array:
        return array_namespace(self.x_mean).zeros(shape, dtype=self.x_mean.dtype, device=device(self.x_mean))

    def average(self, function: Callable[[Array, Array], Array], scores: Any) -> Array:
        """Take the weighted mean over the samples of a function of targets and scores."""
        return self.samples.total(lambda X, Y, share, z: share @ function(Y, z), scores)

    def _shift(self, scores: Any, start: Array | None = None) -> Array:
        start = self._zeros((self.samples.n_targets,)) if start is None else start
        if not self.fit_intercept:
            return start
        return self.loss.intercept(
            lambda term: self.samples.total(lambda X, Y, share, z: term(Y, z, share), scores), start
        )

    def evaluate(self, W: Array, near: Array | None = None) -> DataEvaluation:
        """Evaluate value and gradient: a pass for the scores, some over the scores alone, a pass for the gradient.

        The search for the intercept begins at ``near``: the one of weights close by saves most of it.
        """
        xp = array_namespace(W)
        loss, scores = self.loss, self.samples.scores(W)
        shift = self._shift(scores, near)

        def sums(X: Array, Y: Array, share: Array, z: Array) -> tuple[Array, Array, Array]:
            forces = loss.derivative(Y, z + shift) * share[:, None]
            return share @ loss.value(Y, z + shift), forces.T @ X, array_namespace(forces).sum(forces, axis=0)

        value, gradient, imbalance = self.samples.total(sums, scores)
        ridge_value = self.ridge * summed(xp.sum(W**2, axis=1), self.n_problems)
        gradient = gradient + 2.0 * repeated(self.ridge, W.shape[0])[:, None] * W
        value = summed(value, self.n_problems) + ridge_value
        return DataEvaluation(value, gradient, self, scores, shift, imbalance, ridge_value, W)

    def updater(self, shift: Array) -> Callable[[Array, Array], Array]:
        """Return the minimiser of a quadratic model of the loss around W: one pass over the samples, one solve.

        The model is the bound ``system``. Where targets are coupled, and models of second order dear, it is times a share
        that follows what was seen of the curvature: where classes are told apart it is a small part of its bound, and steps
        by the bound would be as much too short.
        """
        ridge = repeated(self.ridge, self.samples.n_targets)
        shift = 2.0 * ridge + repeated(shift, self.samples.n_targets)
        share, follows = _Share(), not self.loss.is_separable
        solve = self.system.solver(shift)
        before: tuple[DataEvaluation, Array] | None = None

        def update(W: Array, pull: Array) -> Array:
            nonlocal solve, before
            at = self.evaluate(W, None if before is None else before[0].shift)
            image = self.system.apply(W)
            if before is not None and follows and share.follow(self._seen(before, (at, image))):
                solve = self.system.solver(shift / share.value)
            before = at, image
            free = at.gradient - 2.0 * ridge[:, None] * W
            return solve(image + (pull - free) / share.value)

        return update

    def _seen(self, one: tuple[DataEvaluation, Array], other: tuple[DataEvaluation, Array]) -> float:
        """Measure the curvature between two weights, as a share of its bound: the largest over the problems.

        What rounding may hide is added, so that steps too small to show anything are taken by the bound.
        """
        (at, image), (then, image_then) = one, other
        xp, n = array_namespace(image), self.n_problems
        step = then.W - at.W
        change = then.gradient - at.gradient - 2.0 * repeated(self.ridge, step.shape[0])[:, None] * step
        hidden = 100.0 * float(xp.finfo(step.dtype).eps) * xp.max(xp.abs(at.gradient)) * xp.abs(step)
        found = summed(xp.sum(change * step + hidden, axis=1), n)
        bound = summed(xp.sum((image_then - image) * step, axis=1), n)
        is_less, whole = bound > found, xp.ones_like(bound)
        return float(xp.max(xp.where(is_less, found / xp.where(is_less, bound, whole), whole)))

    def model(self, W: Array, at: DataEvaluation) -> Squares | None:
        """Expand the loss to second order around W, the intercept eliminated, as one problem of squares.

        Up to a constant it is a weighted least-squares problem whose weights are the curvatures of the samples. None
        where the targets are coupled and too many for a Hessian of all of them.
        """
        xp = array_namespace(W)
        system: System
        if not self.loss.is_separable:
            rows = self.samples.rows
            if W.shape[0] * (self.n_features if rows is None else min(rows.shape)) > _LARGEST_HESSIAN:
                return None
            system = self._coupled(at)
        else:
            systems = self._curved(at)
            system = systems[0] if len(systems) == 1 else StackedSystem(systems)
        image = system.apply(W)
        free = at.gradient - 2.0 * repeated(self.ridge, W.shape[0])[:, None] * W
        # A constant changes neither answer nor gap; this one keeps the model positive, as the dual of squares needs.
        constant = at.value - xp.sum(free * W) + 0.5 * xp.sum(image * W) + 10.0 * self.at_zero.value
        nothing = xp.zeros_like(W[:, 0])
        target = (nothing + 1.0) * constant / W.shape[0]
        return Squares(system, 0.5 * (image - free), target, self.ridge, nothing, nothing)

    @cached_property
    def _basis(self) -> tuple[Array, Array] | None:
        """An orthonormal basis (p, r) of centred samples at hand, fewer than the features, and their coordinates."""
        rows = self.samples.rows
        if rows is None or rows.shape[0] >= rows.shape[1]:
            return None
        xp = array_namespace(rows)
        U, s, Vt = xp.linalg.svd(rows - self.x_mean, full_matrices=False)
        return xp.matrix_transpose(Vt), U * s

    def _curvatures(self, Y: Array, z: Array) -> Array:
        return array_namespace(z).clip(self.loss.curvatures(Y, z), min=_LEAST_CURVATURE)

    def _coupled(self, at: DataEvaluation) -> CoupledSystem:
        """Build the Hessian of all targets together, the intercepts eliminated."""
        loss, shift, basis = self.loss, at.shift, self._basis
        xp, K = array_namespace(shift), shift.shape[0]

        def hessian(X: Array, Y: Array, share: Array, z: Array) -> Array:
            weights, coupling = self._curvatures(Y, z + shift), loss.coupling(Y, z + shift)
            assert coupling is not None
            if basis is not None:
                X = basis[1]
            elif not is_sparse(X):
                # What the intercepts explain is subtracted below, and a large mean would take all digits with it.
                X = X - self.x_mean
            return coupled_gram(with_ones(X), weights, coupling, share)

        whole = self.samples.total(hessian, at.scores)
        size = whole.shape[1] - 1
        inside = xp.reshape(whole[:, :size, :, :size], (K * size, K * size))
        if self.fit_intercept:
            cross = xp.reshape(whole[:, :size, :, size:], (K * size, K))
            # The intercepts' own Hessian is singular along equal shifts; a constant in all entries mends that.
            eye = xp.eye(K, dtype=shift.dtype, device=device(shift))
            corner = xp.reshape(whole[:, size:, :, size:], (K, K)) + 1.0 / K + 1e-14 * eye
            inside = inside - cross @ xp.linalg.solve(corner, cross.T)
        return CoupledSystem(GramSystem(0.5 * (inside + inside.T)), None if basis is None else basis[0])

    def _curved(self, at: DataEvaluation) -> tuple[System, ...]:
        """Build for each target the weighted covariance of the features, about their weighted mean with an intercept."""
        shift = at.shift

        def weigh(Y: Array, share: Array, z: Array) -> Array:
            return self._curvatures(Y, z + shift) * share[:, None]

        return self.samples.covariances(weigh, at.scores, centre=self.fit_intercept)

    def lipschitz(self) -> float:
        """Return the largest eigenvalue of the bound of the Hessian, plus the ridge."""
        return self.system.largest() + 2.0 * float(array_namespace(self.ridge).max(self.ridge))

    def intercept(self, W: Array) -> Array:
        """Find the best intercept for W."""
        shift = self._shift(self.samples.scores(W))
        if not self.fit_intercept:
            return shift
        shift = shift - W @ self.origin
        return shift if self.loss.is_separable else shift - array_namespace(shift).mean(shift)  # they sum to zero

    def take(self, problems: Array) -> DataLoss:
        """Keep some of the problems of a separable loss."""
        if self.n_problems == 1:
            return self
        return replace(self, samples=self.samples.take(problems), ridge=self.ridge[problems])
