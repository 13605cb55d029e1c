"""Any loss, from samples wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse, multiplies_singles_faster
from tracelearn.arrays.linalg import coupled_gram, positive_part, replayed, squared, with_ones
from tracelearn.arrays.subspaces import Subspaces
from tracelearn.losses import Loss
from tracelearn.moments import Accumulator, Moments
from tracelearn.problems.datafits import (
    Gram,
    InBasis,
    Solvers,
    SpectralGram,
    Squares,
    least_value,
    repeated,
    short_basis,
    span,
    stacked,
    summed,
)
from tracelearn.problems.operators import Centred, Coupled, Operator, Passes
from tracelearn.problems.sparse import FEW, SparseGram
from tracelearn.samples.samples import Block, Samples

__all__ = ["SampleLoss"]

# Rows and columns of the largest Hessian that couples targets: factored in about a second.
_LARGEST_HESSIAN = 4096
# Up to this size the bound of a Hessian that couples targets is diagonalised: ADMM then changes its step for nothing.
_SPECTRAL = 1000
# How often a step may be made longer, and what share of the bound of the curvature is believed at least.
_LOWERINGS, _LEAST_SHARE = 30, 1e-6
# Where every sample is told apart beyond doubt curvatures vanish, and a step divided by them would overflow.
_LEAST_CURVATURE = 1e-100
# Up to this size a Hessian that couples targets is factored in milliseconds. Measured on paths of real data, to a gap of
# 1e-3: at 264 Newton took a quarter of the time of ADMM, at 640 as long, at 2,160 seventeen times as long.
_SMALL_HESSIAN = 800
# Features from which a Hessian is found in single precision, if their mean squares are so far from the ends of its range.
_MANY, _SMALLEST = 200, 1e-12

# Weights (m, K) of the samples of a block, from their targets, shares and scores.
Weigh = Callable[[Array, Array, Array], Array]


def _is_far(mean: Array, squares: Array) -> bool:
    """Tell whether some feature's mean is so far from zero that sums of products lose the digits of its spread.

    A constant feature is the extreme: subtracted, it is exactly zero. Then samples about their mean are worth their price.
    """
    xp = array_namespace(mean)
    return bool(xp.any(mean**2 > 1e6 * (squares - mean**2)))


def _moved(samples: Samples, x: Array | None, y: Array | None) -> Samples:
    """Subtract a row from all samples and from all targets."""

    def moved(block: Block) -> Block:
        return replace(block, X=block.X if x is None else block.X - x, Y=block.Y if y is None else block.Y - y)

    return samples.mapped(moved)


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


# What is summed over targets and scores: functions of their arguments alone, which a GPU can record.


def _forces(loss: Loss, shift: Array, Y: Array, share: Array, z: Array) -> tuple[Array, ...]:
    """Return the mean loss, the forces of the samples, their sum, and their mean square."""
    derivative = loss.derivative(Y, z + shift)
    forces = derivative * share[:, None]
    balance = array_namespace(forces).sum(forces, axis=0)
    return share @ loss.value(Y, z + shift), forces, balance, share @ derivative**2


def _conjugates(loss: Loss, shift: Array, scale: Array, Y: Array, share: Array, z: Array) -> Array:
    """Average the conjugate at the scaled forces."""
    return share @ loss.conjugate(Y, scale * loss.derivative(Y, z + shift))


@dataclass(frozen=True, eq=False)
class LossEvaluation:
    """What is known at one W: ``scores`` stay with the samples, ``shift`` (K,) is the best intercept.

    ``imbalance`` (K,) is the mean derivative there, zero unless the search for the intercept ended early; ``force`` (B,) is
    the root mean square of the derivatives.
    """

    value: Array
    gradient: Array
    fit: SampleLoss
    scores: Any
    shift: Array
    imbalance: Array
    force: Array
    ridge_value: Array
    W: Array

    def errors(self, unit: float) -> tuple[Array, Array]:
        """Estimate rounding from the mean squares of the products ``w_i x_i``, which cancel where features are collinear.

        Where forces do not balance, all are moved by their mean: the dual value changes by it times scores, the gradient by it
        times samples.
        """
        xp, fit, n = array_namespace(self.W), self.fit, self.value.shape[0]
        # The root mean squares of the scores with their intercept, and of the samples.
        sizes = xp.sqrt(summed(self.W**2 @ fit.squares, n)) + xp.sqrt(summed(self.shift**2, n))
        length = xp.sqrt(xp.sum(fit.squares))
        curvature = self.force if fit.loss.curvature is None else fit.loss.curvature
        value = unit * (self.value + self.force * sizes)
        gradient = unit * ((self.force + curvature * sizes) * length + 2.0 * xp.sqrt(fit.ridge * self.ridge_value))
        if not fit.fit_intercept:
            return value, gradient
        rest = summed(xp.abs(self.imbalance), n)
        return value + rest * sizes, gradient + rest * length

    def least_value(self, error: Array) -> Array:
        """Bound the least loss from below, where there is a ridge and the length of the gradient may be off by an error."""
        return least_value(self.value, self.gradient, 2.0 * self.fit.ridge, error)

    def dual_value(self, most: Array) -> Array:
        """Evaluate minus the mean conjugate at the scaled forces, less the ridge term.

        A scale of one is best: at the optimum the forces are the dual answer. It is zero where they do not sum to zero as the
        free intercept asks: then they prove nothing, but that no loss is negative.
        """
        xp, scale = array_namespace(self.value), most
        if self.fit.fit_intercept:
            allowed = float(xp.finfo(self.value.dtype).eps) ** 0.5 * self.force
            scale = scale * xp.astype(summed(xp.abs(self.imbalance), scale.shape[0]) <= allowed, scale.dtype)
        loss, shift, wide = self.fit.loss, self.shift, repeated(scale, self.shift.shape[0])

        def conjugate(X: Array, Y: Array, share: Array, z: Array) -> Array:
            return replayed(z, _conjugates, loss, shift, wide, Y, share, z)

        mean = self.fit._targets.total(conjugate, self.scores)
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
    matrix_free: bool = False
    single: bool = False  # whether models of second order are found in single precision, which leads to the same answer
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
        matrix_free: bool = False,
    ) -> SampleLoss:
        """Read samples: one problem for each target where the loss is separable, unless ``joint``."""
        cut = samples.in_small_blocks()
        mean, squares, y_mean = cut.total(lambda X, Y, share, z: (share @ X, share @ squared(X), share @ Y))
        loss.check_mean(y_mean)
        xp, rows = array_namespace(mean), samples.rows
        if rows is not None:
            first = rows[0, :]
            mean = first + cut.total(lambda X, Y, share, z: share @ (X - first))
        mean = mean if fit_intercept else 0.0 * mean
        origin, y_origin = 0.0 * mean, y_mean if fit_intercept and loss.is_shift_invariant else None
        far = fit_intercept and _is_far(mean, squares) and not is_sparse(samples.like)
        if far or y_origin is not None:
            samples = _moved(samples, mean if far else None, y_origin)
        if far:
            origin, mean = mean, samples.total(lambda X, Y, share, z: share @ X)
            squares = samples.total(lambda X, Y, share, z: share @ squared(X))
        together = joint or not loss.is_separable
        ridges = xp.full((1 if together else samples.n_targets,), ridge, dtype=mean.dtype, device=device(mean))
        in_range = _SMALLEST < float(xp.min(squares)) and float(xp.max(squares)) < 1.0 / _SMALLEST
        many = loss.is_separable and mean.shape[0] >= _MANY
        single = many and in_range and multiplies_singles_faster(mean)
        return cls(loss, samples, ridges, mean, squares, origin, y_origin, fit_intercept, matrix_free, single)

    @property
    def model_error(self) -> float:
        """Models are about right: the loss is no square."""
        return 1.0

    @property
    def is_exact(self) -> bool:
        """Whether models are in double precision."""
        return not self.single

    def exact(self) -> SampleLoss:
        """State the same problems with models in double precision."""
        return replace(self, single=False) if self.single else self

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
        """Numbers that the samples determine for each target."""
        rows = self.samples.rows
        return self.n_features if rows is None else min(rows.shape)

    @property
    def solvers(self) -> Solvers:
        """Newton's method, where a Hessian can be factored; else that of weights in subspaces, and for a path gradients.

        Where targets that are coupled make the Hessian expensive, ADMM comes close enough for a path sooner.
        """
        if self.matrix_free:
            return Solvers("subspaces", "apg-adm")
        few = self.loss.is_separable or self.samples.n_targets * self._n_unknowns <= _SMALL_HESSIAN
        return Solvers("newton", "newton" if few else "admm")

    @cached_property
    def operator(self) -> Operator:
        """The covariance of the features times the curvature of the loss: a bound of the Hessian, intercept eliminated."""
        curvature = self.loss.curvature
        if curvature is None:
            raise ValueError(
                f"Expected a loss of bounded curvature for this solver, got {self.loss!r}: use solver='newton', and fewer "
                "features or samples if they do not fit."
            )
        if self.matrix_free:
            found: Operator = Passes(self.samples.total, self.x_mean, curvature)
        else:
            (found,) = self._covariances(lambda Y, share, z: curvature * share[:, None])
        return found if self.loss.is_separable else Centred(_spectral(found))

    @cached_property
    def at_zero(self) -> LossEvaluation:
        """The evaluation at W = 0 with the best intercept."""
        return self.evaluate(self._zeros((self.samples.n_targets, self.n_features)))

    def _zeros(self, shape: tuple[int, ...]) -> Array:
        return array_namespace(self.x_mean).zeros(shape, dtype=self.x_mean.dtype, device=device(self.x_mean))

    def _shift(self, scores: Any, start: Array | None = None) -> Array:
        start = self._zeros((self.samples.n_targets,)) if start is None else start
        if not self.fit_intercept:
            return start
        return self.loss.intercept(
            lambda term: self._targets.total(lambda X, Y, share, z: term(Y, z, share), scores), start
        )

    def evaluate(self, W: Array, near: LossEvaluation | None = None) -> LossEvaluation:
        """Evaluate value and gradient: a pass for the scores, some over the scores alone, a pass for the gradient.

        The search for the intercept begins at that of weights ``near``, which saves most of it.
        """
        xp = array_namespace(W)
        W = xp.reshape(W, (-1, self.n_features))
        loss, scores = self.loss, self.samples.scores(W)
        shift = self._shift(scores, None if near is None else near.shift)

        def sums(X: Array, Y: Array, share: Array, z: Array) -> tuple[Array, ...]:
            value, forces, *rest = replayed(z, _forces, loss, shift, Y, share, z)
            return value, forces.T @ X, *rest

        value, gradient, imbalance, squares = self.samples.total(sums, scores)
        ridge_value = self.ridge * summed(xp.sum(W**2, axis=1), self.n_problems)
        gradient = gradient + 2.0 * repeated(self.ridge, W.shape[0])[:, None] * W
        value, force = summed(value, self.n_problems) + ridge_value, xp.sqrt(summed(squares, self.n_problems))
        return LossEvaluation(value, gradient, self, scores, shift, imbalance, force, ridge_value, W)

    def updater(self, shift: Array) -> Callable[[Array, Array], Array]:
        """Return the minimiser of a quadratic model of the loss around W: one pass over the samples, one solve.

        The model is the bound ``operator``. Where targets are coupled, and models of second order expensive, it is times a share
        that follows what was seen of the curvature: where classes are told apart it is a small part of its bound, and steps
        by the bound would be as much too short.
        """
        ridge = repeated(self.ridge, self.samples.n_targets)
        shift = 2.0 * ridge + repeated(shift, self.samples.n_targets)
        share, follows = _Share(), not self.loss.is_separable
        solve = self.operator.solver(shift)
        before: tuple[LossEvaluation, Array] | None = None

        def update(W: Array, pull: Array) -> Array:
            nonlocal solve, before
            xp, at = array_namespace(W), self.evaluate(W, None if before is None else before[0])
            image = self.operator.apply(at.W)
            if before is not None and follows and share.follow(self._seen(before, (at, image))):
                solve = self.operator.solver(shift / share.value)
            before = at, image
            free = at.gradient - 2.0 * ridge[:, None] * at.W
            return xp.reshape(solve(image + (xp.reshape(pull, free.shape) - free) / share.value), W.shape)

        return update

    def _seen(self, one: tuple[LossEvaluation, Array], other: tuple[LossEvaluation, Array]) -> float:
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

    def model(self, W: Array, at: LossEvaluation) -> Squares | None:
        """Expand the loss to second order around W, the intercept eliminated, as one problem of squares.

        Up to a constant it is a weighted least-squares problem whose weights are the curvatures of the samples. None
        where the targets are coupled and too many for a Hessian of all of them.
        """
        xp, W = array_namespace(W), at.W
        operator: Operator
        if not self.loss.is_separable:
            if W.shape[0] * self._n_unknowns > _LARGEST_HESSIAN:
                return None
            operator = self._coupled(at)
        else:
            operators = self._curved(at)
            operator = operators[0] if len(operators) == 1 else stacked(operators)
        image = operator.apply(W)
        free = at.gradient - 2.0 * repeated(self.ridge, W.shape[0])[:, None] * W
        # A constant changes neither answer nor gap; this one keeps the model positive, as the dual of squares needs.
        constant = at.value - xp.sum(free * W) + 0.5 * xp.sum(image * W) + 10.0 * self.at_zero.value
        nothing = xp.zeros_like(W[:, 0])
        target = (nothing + 1.0) * constant / W.shape[0]
        return Squares(operator, 0.5 * (image - free), target, self.ridge, nothing, nothing)

    @cached_property
    def _basis(self) -> tuple[Array, Array] | None:
        """An orthonormal basis (p, r) of samples in memory that span less than all p dimensions, and their coordinates.

        Fewer samples than features do; so do linear views of the same samples side by side, as those of a search. That is
        looked for where targets are coupled, since a Hessian of all of them costs the cube of their number.
        """
        rows = self.samples.rows
        if rows is None:
            return None
        n, p = rows.shape
        if n < p:
            return span(rows - self.x_mean)
        if self.loss.is_separable or self.samples.n_targets * p > _LARGEST_HESSIAN:
            return None
        centred = rows - self.x_mean
        basis = short_basis(centred)
        return None if basis is None else (basis, centred @ basis)

    def _curvatures(self, Y: Array, z: Array) -> Array:
        return array_namespace(z).clip(self.loss.curvatures(Y, z), min=_LEAST_CURVATURE)

    def _coupled(self, at: LossEvaluation) -> Coupled:
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
        return Coupled(Gram(0.5 * (inside + inside.T)), None if basis is None else basis[0])

    def _curved(self, at: LossEvaluation) -> list[Any]:
        """Build for each target the weighted covariance of the features, about their weighted mean with an intercept."""

        def weigh(Y: Array, share: Array, z: Array) -> Array:
            return self._curvatures(Y, z + at.shift) * share[:, None]

        return self._covariances(weigh, at.scores, single=self.single)

    def _covariances(self, weigh: Weigh, scores: Any = None, *, single: bool = False) -> list[Any]:
        """Sum ``w (x - m)(x - m)'`` for each column of weights w, m the weighted mean, or with no intercept zero."""
        samples, centre = self.samples, self.fit_intercept
        like, basis = samples.like, self._basis
        if like is not None and is_sparse(like) and like.shape[1] > min(FEW, like.shape[0]):
            weights = samples.total(lambda X, Y, share, z: weigh(Y, share, z), scores)
            return [SparseGram.of(like, weights[:, k], centre=centre) for k in range(weights.shape[1])]

        def moments(X: Array, Y: Array, share: Array, z: Array) -> tuple[Moments, ...]:
            weights, x = weigh(Y, share, z), X if basis is None else basis[1]
            folds = [replace(Accumulator.empty(x.shape[1], 1, x), single=single) for _ in range(weights.shape[1])]
            own = [weights[:, k : k + 1] for k in range(weights.shape[1])]
            return tuple(fold.add(x, w, w[:, 0]).freeze() for fold, w in zip(folds, own, strict=True))

        grams = [Gram(one.gram if centre else one.second_moment) for one in samples.total(moments, scores)]
        return grams if basis is None else [InBasis(gram, basis[0]) for gram in grams]

    @property
    def mean_curvature(self) -> float:
        """The mean variance of the features times the mean curvature of the loss at W = 0, plus the ridge."""
        xp, at = array_namespace(self.x_mean), self.at_zero
        bends = self._targets.total(lambda X, Y, share, z: share @ self._curvatures(Y, z + at.shift), at.scores)
        variance = float(xp.mean(positive_part(self.squares - self.x_mean**2)))
        return float(xp.mean(bends)) * variance + 2.0 * float(xp.mean(self.ridge))

    def within(self, subspaces: Subspaces) -> SampleLoss:
        """State the problems for cores: the samples are projected once and kept."""
        samples = self.samples.mapped_rows(subspaces.project, subspaces.core_shape).kept()
        squares = samples.total(lambda X, Y, share, z: share @ X**2)
        x_mean, origin = (subspaces.project(row[None, :])[0, :] for row in (self.x_mean, self.origin))
        return replace(self, samples=samples, x_mean=x_mean, squares=squares, origin=origin, matrix_free=False)

    @cached_property
    def _targets(self) -> Samples:
        """The samples without their rows: sums over targets and scores alone need not read the rows again."""
        return self.samples.mapped_rows(lambda X: X[:, :0], (0,)).kept()

    def intercept(self, W: Array) -> Array:
        """Find the best intercept for W."""
        shift = self._shift(self.samples.scores(W))
        if not self.fit_intercept:
            return shift
        shift = shift - W @ self.origin
        if not self.loss.is_separable:
            return shift - array_namespace(shift).mean(shift)  # they sum to zero
        return shift if self.y_origin is None else shift + self.y_origin

    def take(self, problems: Array) -> SampleLoss:
        """Keep some of the problems of a separable loss."""
        if self.n_problems == 1:
            return self
        y_origin = None if self.y_origin is None else self.y_origin[problems]
        return replace(self, samples=self.samples.take_targets(problems), ridge=self.ridge[problems], y_origin=y_origin)


def _spectral(operator: Any) -> Any:
    """Let one decomposition serve all shifts, where that is soon done."""
    if isinstance(operator, Gram):
        return SpectralGram(operator.matrix) if operator.matrix.shape[0] <= _SPECTRAL else operator
    return replace(operator, inner=_spectral(operator.inner)) if isinstance(operator, InBasis) else operator
