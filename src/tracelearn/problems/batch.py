"""A batch of problems: data fits, a penalty and strengths; its answers, and the proof of how good they are.

For ``P(W) = f(W) + alpha norm(W)`` with the gradient g of f at W, the dual point of f scaled by t is feasible when
``t |g|_dual <= alpha``. The penalty bounds the dual norm with the split that the solver found; the data fit knows its dual
value. Then ``P(W) - P* <= P(W) - D(t)``, whatever algorithm found W.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    free_memory,
    is_on_gpu,
    is_sparse,
    multiplies_singles_faster,
)
from tracelearn.arrays.linalg import positive_part, replayed, squared
from tracelearn.losses import Loss
from tracelearn.penalties import Penalty, Split
from tracelearn.problems.datafits import DataFit, Evaluation, Modelled, Squares, repeated, span
from tracelearn.problems.operators import Operator, Passes
from tracelearn.problems.sample_loss import SampleLoss
from tracelearn.problems.sparse import FEW, SparseGram
from tracelearn.problems.tiles import has_room, n_passes, tiled_squares
from tracelearn.samples.samples import Samples

__all__ = [
    "Finish",
    "Form",
    "Problems",
    "Solution",
    "Watcher",
    "alpha_max",
    "certify",
    "choose_form",
    "datafit",
    "share_of_alpha_max",
]

CHECK_EVERY = 5  # iterations between certificates, which cost about one iteration
_ROUNDING = 8.0  # what sums of many rounded terms are off by, in units of the last place of their largest
_PER_FEATURE, _MOST_ON_DISK = 8, 32_768  # samples for each feature, and features, of moments in a file
_MOST_PASSES = 10  # over samples on a cluster for these moments: weights in subspaces take about as many
_LEAST_FEATURES, _LEAST_ON_GPU = 700, 8000  # of samples whose moments are found in single precision
_SINGLE_ERROR, _TF32_ERROR = 1e-6, 1e-3  # of these moments, about
_SMALL_MATRIX = 64 << 20  # bytes of a square matrix that fits anywhere; for larger ones the free memory is asked for


# --- the data fit -----------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """How a problem is kept, and why: "moments", "single", "basis", "samples", "sparse", "tiles" of a file, or "matrix-free"."""

    name: str
    reason: str


def choose_form(  # noqa: PLR0911 - a form a line
    samples: Samples, loss: Loss, memory: int | None = None, *, disk: bool = False, single: bool = False
) -> Form:
    """Choose how to learn from samples, once for all: from their number n, their p entries and the memory.

    Moments need p by p numbers and no further look at the samples; a basis of the span of fewer samples than entries needs
    n by p. A loss without moments needs the samples anyway. A pass over sparse samples costs less than a product with a large
    square matrix, so for them moments are only for few features. With ``disk``, moments too large for memory may be in a file;
    with ``single``, those of samples in single precision may be a model, which takes half the time.
    """
    n, p = 1 << 62 if samples.n_samples is None else samples.n_samples, math.prod(samples.shape)
    if not (loss.has_moments and p <= min(2 * n, FEW)) and is_sparse(samples.like):
        return Form("sparse", "products with the sparse samples take the place of square matrices")
    gram, basis = 8 * p * p, 8 * n * max(n, p) if samples.in_memory else 1 << 62
    if memory is None and min(gram, basis) > _SMALL_MATRIX:
        memory = None if samples.like is None else free_memory(samples.like)
        memory = samples.execution.memory() if memory is None else memory
    memory = 1 << 62 if memory is None else memory
    if 4 * min(gram, basis) > memory:  # the matrix, its factor, and what a factorisation needs in addition
        size = min(gram, basis) / 2**30
        # A solve reads the file twice, a fit takes some twenty: as much as ten passes over so many samples.
        numpy = samples.like is None or type(samples.like) is np.ndarray
        if disk and loss.has_moments and numpy and _PER_FEATURE * p <= n and p <= _MOST_ON_DISK and has_room(p):
            passes = n_passes(samples)
            if passes <= _MOST_PASSES:
                times = "once" if passes == 1 else f"{passes} times"
                why = f"moments of {gram / 2**30:.1f} GiB are kept in a file, and the samples are read {times}"
                return Form("tiles", why)
        return Form("matrix-free", f"a matrix of {size:.1f} GiB does not fit, so the samples are read in passes")
    if not loss.has_moments:
        return Form("samples", "the loss has no moments, so every iteration reads the samples")
    # Below about half as many samples as features their span is smaller and its products are cheaper.
    if 2 * n < p or (n < p and 4 * gram > memory):
        return Form("basis", f"{n} samples span at most {n} of {p} dimensions, so all products are taken there")
    if single and p >= _LEAST_FEATURES and _gains_by_single(samples):
        return Form(
            "single", f"{p} by {p} moments in single precision are a model, corrected by passes in double precision"
        )
    return Form("moments", f"{p} by {p} moments hold all that the samples say about a linear model")


def _gains_by_single(samples: Samples) -> bool:
    """Tell whether products in single precision save more than the passes cost that correct them."""
    rows = samples.rows
    if rows is None or rows.dtype != array_namespace(rows).float32 or samples.n_targets > 1 or samples.n_confounds:
        return False
    return multiplies_singles_faster(rows) and (samples.n_features >= _LEAST_ON_GPU or not is_on_gpu(rows))


def datafit(
    samples: Samples, loss: Loss, form: Form, *, ridge: float, joint: bool, fit_intercept: bool, spectral: bool = False
) -> Squares | SampleLoss:
    """Build the data fit of samples in the form that was chosen."""
    options: dict[str, Any] = {"ridge": ridge, "joint": joint}
    if form.name == "moments":
        moments = samples.moments()
        return Squares.of(moments if fit_intercept else moments.uncentred(), spectral=spectral, **options)
    if form.name == "single":
        return _modelled(samples, **options)
    if form.name == "tiles":
        return tiled_squares(samples, fit_intercept=fit_intercept, **options)
    free = form.name == "matrix-free"
    samples = (samples.in_passes() if free else samples).checked()
    if not loss.has_moments:
        return SampleLoss.of(loss, samples, fit_intercept=fit_intercept, matrix_free=free, **options)
    if form.name != "basis":
        return _squares(samples.in_small_blocks(), matrix_free=free, fit_intercept=fit_intercept, **options)
    basis, origin, coordinates = in_basis(samples, fit_intercept=fit_intercept)
    moments = coordinates.moments()
    found = Squares.of(moments if fit_intercept else moments.uncentred(), spectral=spectral, **options)
    return found.lifted(basis, origin, variances_about(samples, origin))


def _modelled(samples: Samples, **options: Any) -> Modelled:
    """Read samples whose moments are found in single precision: a model, while a product in double precision is a pass."""
    moments = samples.moments(single=True)
    rough, mean = Squares.of(moments, **options), moments.x_mean
    centred = samples.in_passes().mapped_rows(lambda X: X - mean, samples.shape)
    known = {"operator": Passes(centred.total, 0.0 * mean, 2.0), "known": rough.operator}
    error = _TF32_ERROR if is_on_gpu(mean) else _SINGLE_ERROR
    return Modelled.around(rough, **known, error=error, build=lambda: Squares.of(samples.moments(), **options))


def in_basis(samples: Samples, *, fit_intercept: bool) -> tuple[Array, Array, Samples]:
    """Find an orthonormal basis (p, r) of the samples about an origin (p,), and the samples as their coordinates."""
    origin = origin_of(samples, fit_intercept=fit_intercept)
    basis, coordinates = span(samples.rows - origin)  # type: ignore[operator]
    return basis, origin, samples.with_rows(coordinates, (coordinates.shape[1],))


def origin_of(samples: Samples, *, fit_intercept: bool) -> Array:
    """Find what samples in memory are seen about, (p,): their mean, or zero without an intercept.

    A feature that is constant up to the rounding of its mean would look like one that tells samples apart. The mean is found
    about the first sample, so that what all have in common is found exactly.
    """
    (block,) = samples.blocks
    first = block.X[0, :]
    return first + (block.weight / samples.weight) @ (block.X - first) if fit_intercept else 0.0 * first


def variances_about(samples: Samples, origin: Array) -> Array:
    """Average the squares of the features (p,) about an origin."""
    found: Array = samples.total(lambda X, Y, share, z: share @ (X - origin) ** 2)
    return found


def _squares(samples: Samples, *, ridge: float, joint: bool, fit_intercept: bool, matrix_free: bool) -> Squares:
    """Read samples that are sparse, or too many and too large for any square matrix: then a product is a pass."""
    x_mean, y_mean = samples.total(lambda X, Y, share, z: (share @ X, share @ Y))
    if not fit_intercept:
        x_mean, y_mean = 0.0 * x_mean, 0.0 * y_mean

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
    # What a constant feature is apart from its mean is the rounding of the mean.
    still = variances <= (4.0 * float(xp.finfo(x_mean.dtype).eps) * x_mean) ** 2
    cross, variances = (xp.where(still, xp.zeros_like(a), a) for a in (cross, positive_part(variances)))
    ridges = xp.full_like(y_mean[:1] if joint else y_mean, ridge)
    operator: Operator = Passes(samples.total, x_mean, 2.0)
    if not matrix_free:
        weight = samples.total(lambda X, Y, share, z: 2.0 * share)
        operator = SparseGram.of(samples.like, weight, centre=fit_intercept)
    return Squares(operator, cross, target, ridges, x_mean, y_mean, variances)


# --- the answer -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Solution:
    """The answer to B problems: weights (T, *shape), their split, and the certificate.

    ``objective`` and ``gap`` have shape (B,); the gap is relative to the objective at W = 0. ``rho`` (B,) is where
    ADMM's own step ended, so that the solve of a neighbouring problem starts there.
    """

    W: Array
    split: Split
    objective: Array
    gap: Array
    n_iter: int
    rho: Array | None = None

    def tensors_of(self, problems: Array) -> Array:
        """Index the tensors (T',) of some problems, given their index (B',)."""
        xp, each = array_namespace(problems), self.W.shape[0] // self.gap.shape[0]
        return xp.reshape(problems[:, None] * each + xp.arange(each, device=device(problems))[None, :], (-1,))

    def take(self, problems: Array) -> Solution:
        """Keep some problems, given their index (B',)."""
        rho, tensors = None if self.rho is None else self.rho[problems], self.tensors_of(problems)
        W = array_namespace(self.W).take(self.W, tensors, axis=0)
        return Solution(W, self.split.take(tensors), self.objective[problems], self.gap[problems], self.n_iter, rho)

    def where(self, chosen: Array, other: Solution) -> Solution:
        """Take the weights and the certificate of another solution for the chosen problems (B,)."""
        xp = array_namespace(chosen)
        tensors = xp.reshape(xp.repeat(chosen, self.W.shape[0] // chosen.shape[0]), (-1, *(1,) * (self.W.ndim - 1)))
        W = xp.where(tensors, other.W, self.W)
        objective = xp.where(chosen, other.objective, self.objective)
        return replace(self, W=W, objective=objective, gap=xp.where(chosen, other.gap, self.gap))

    @classmethod
    def joined(cls, parts: list[Solution]) -> Solution:
        """Put batches of problems together."""
        xp = array_namespace(parts[0].W)

        def stack(name: str) -> Array:
            return xp.concat([getattr(part, name) for part in parts])

        rho = None if any(part.rho is None for part in parts) else stack("rho")  # zero is found without a step
        n_iter = max(part.n_iter for part in parts)
        first, *others = (part.split for part in parts)
        return cls(stack("W"), first.joined(*others), stack("objective"), stack("gap"), n_iter, rho)


Watcher = Callable[[Solution], None]


def alpha_max(fit: DataFit, penalty: Penalty, shape: tuple[int, ...]) -> Array:
    """Bound the smallest alpha (B,) for which W = 0 is the answer, from above.

    Exact for single terms and latent norms; for an overlap of terms the harmonic mean of the dual norms of the gradient at
    zero, measured at 1.00 to 1.26 times the true value.
    """
    gradient = fit.at_zero.gradient
    xp = array_namespace(gradient)
    norms = penalty.dual_norm(xp.reshape(gradient, (-1, *shape)))
    return xp.max(xp.reshape(norms, (fit.ridge.shape[0], -1)), axis=1)


def share_of_alpha_max(fit: DataFit, penalty: Penalty, shape: tuple[int, ...], share: float) -> Array:
    """Take a share of ``alpha_max``; where that is nothing but rounding, as of samples that are all the same, all of it."""
    top, at = alpha_max(fit, penalty, shape), fit.at_zero
    xp, nothing = array_namespace(top), array_namespace(top).zeros_like(at.gradient)
    tensors = xp.reshape(nothing, (-1, *shape))
    _, error = at.errors(_ROUNDING * float(xp.finfo(top.dtype).eps))
    noise = penalty.dual_norm(tensors, None, repeated(error, tensors.shape[0]))
    noise = xp.max(xp.reshape(noise, (fit.n_problems, -1)), axis=1)
    return xp.where(top <= noise, top + noise, share * top)


@dataclass(frozen=True, eq=False)
class Problems:
    """A batch of B problems, and the shape of the tensors (T, *shape) of their weights."""

    fit: DataFit
    penalty: Penalty
    alpha: Array
    shape: tuple[int, ...]
    scale: Array  # what gaps are relative to (B,): the objectives at W = 0 of the problems that were asked
    penalised: bool = True  # whether no alpha is zero; where one is, certificates need the least curvature

    def tensors(self, rows: Array) -> Array:
        """View rows as the tensors that the penalty knows."""
        return array_namespace(rows).reshape(rows, (-1, *self.shape))

    def certified(
        self, W: Array, split: Split, n_iter: int, rho: Array | None = None, *, proven: bool = True
    ) -> Solution:
        """Make a solution of W, with its certificate; without one it is for choosing between models, not for handing out."""
        if proven:
            objective, gap = replayed(W, certify, self, W, split)
        else:
            objective = gap = array_namespace(self.alpha).full_like(self.alpha, math.inf)
        return Solution(W, split, objective, gap, n_iter, rho)

    def begin(self, start: Solution | None, *, proven: bool = True, zero: bool = True) -> Solution:
        """Say where to start from: a neighbouring solution, or W = 0, the answer for any alpha from alpha_max up.

        There is no certificate of a neighbour that is not ``proven``, and none of W = 0 without ``zero``.
        """
        if start is not None:
            return self.certified(start.W, start.split, 0, start.rho, proven=proven)
        xp, at = array_namespace(self.alpha), self.fit.at_zero
        W = xp.reshape(xp.zeros_like(at.gradient), (-1, *self.shape))
        split = self.penalty.start(W)
        if not zero:
            return self.certified(W, split, 0, proven=False)
        return Solution(W, split, *certify(self, W, None, at), 0)

    def take(self, problems: Array) -> Problems:
        """Keep some of the problems."""
        fit, penalty, scale = self.fit.take(problems), self.penalty.take(problems), self.scale[problems]
        return replace(self, fit=fit, penalty=penalty, alpha=self.alpha[problems], scale=scale)

    def one_by_one(self, solve: Callable[..., Solution], start: Solution | None, **options: Any) -> Solution:
        """Solve each problem apart from the others."""
        parts = []
        for k in range(self.fit.n_problems):
            own = array_namespace(self.alpha).asarray([k], device=device(self.alpha))
            parts.append(solve(self.take(own), start=None if start is None else start.take(own), **options))
        return Solution.joined(parts)


def certify(problems: Problems, W: Array, split: Split | None, at: Evaluation | None = None) -> tuple[Array, Array]:
    """Evaluate the objective (B,) at W and the duality gap (B,), relative to the scale of the problems.

    Parameters
    ----------
    W : array of shape (T, I1, ..., IN)
        The T tensors of all B problems, problem by problem.
    split : what the solver knows of W, or None
    at : the data fit, evaluated at W; None evaluates it
    """
    xp, alpha, scale, penalty = array_namespace(W), problems.alpha, problems.scale, problems.penalty
    at, apart = problems.fit.evaluate(W) if at is None else at, (alpha.shape[0], -1)
    last_places = _ROUNDING * float(xp.finfo(W.dtype).eps)
    value_error, gradient_error = at.errors(last_places)
    norms = replayed(W, type(penalty).value, penalty, W, split)
    objective = at.value + alpha * xp.sum(xp.reshape(norms, apart), axis=1)
    # Duals are forces on W, of the sign of -g. A gradient that is off by some length is off by no more in any norm.
    forces, errors = -xp.reshape(at.gradient, W.shape), repeated(gradient_error, W.shape[0])
    levels = replayed(W, type(penalty).dual_norm, penalty, forces, split, errors)
    level, ones = xp.max(xp.reshape(levels, apart), axis=1), xp.ones_like(alpha)
    # Divided only where it is needed: a large alpha by a small level would overflow.
    dual = at.dual_value(xp.where(level > alpha, alpha / xp.where(level > alpha, level, ones), ones))
    if not problems.penalised:
        # Nothing penalised: no scale but zero is feasible, however small the gradient. Its size is the evidence then.
        dual = xp.where(alpha == 0, xp.maximum(dual, at.least_value(gradient_error)), dual)
    # Objective and dual value are sums of many rounded terms: a difference below their rounding proves nothing.
    gap = positive_part(objective - dual) + last_places * scale + value_error
    return objective, gap / xp.where(scale > 0, scale, xp.ones_like(scale))


@dataclass(eq=False)
class Finish:
    """Decides which problems are done, collects their answers as they come, and puts them back into order.

    Done is a certified answer that has the exact ranks of its split. Just below ``tol`` the weights still carry dust outside
    the subspaces that shrinkage found; removing it may cost the certificate, and some more iterations bring it back. They are
    bounded, and then the answer stands as it is.
    """

    tol: float
    exact_ranks: bool
    _deadline: Array | None = None  # iterations (B,) after which answers of the open problems stand as they are
    _good: Solution | None = None
    _open: Array | None = None  # index (B,) of the open problems; None for all
    _parts: list[tuple[Array, Solution]] = field(default_factory=list)

    def judge(self, problems: Problems, found: Solution) -> tuple[Solution, Array]:
        """Return the answers so far, tidied where that holds, and which of them (B,) are done."""
        xp = array_namespace(found.gap)
        good = found.gap <= self.tol
        if self._good is not None:  # a gap need not fall steadily: what was proven before stays proven
            found = found.where(~good & (self._good.gap <= self.tol), self._good)
        if not self.exact_ranks or not bool(xp.any(found.gap <= self.tol)):
            return found, good
        self._good = found
        penalty, split = problems.penalty, found.split
        W = replayed(found.W, type(penalty).tidy, penalty, found.W, split)
        tidy = problems.certified(W, split, found.n_iter, found.rho)
        exact = tidy.gap <= self.tol
        last_call = xp.full_like(found.gap, 1.25 * found.n_iter + 20.0)
        before = xp.full_like(found.gap, math.inf) if self._deadline is None else self._deadline
        self._deadline = xp.where(good, xp.minimum(before, last_call), before)
        return found.where(exact, tidy), exact | (self._deadline <= found.n_iter)

    def keep(self, found: Solution, done: Array) -> Array:
        """Keep the answers that are done; return the index of the others, with which the solver goes on."""
        xp = array_namespace(done)
        ready, left = xp.nonzero(done)[0], xp.nonzero(~done)[0]
        index = xp.arange(done.shape[0], device=device(done)) if self._open is None else self._open
        self._parts.append((index[ready], found.take(ready)))
        self._open, self._deadline = index[left], None if self._deadline is None else self._deadline[left]
        self._good = None if self._good is None else self._good.take(left)
        return left

    def all(self, found: Solution) -> Solution:
        """Return all answers in order, given the last of them."""
        if self._open is None:
            return found
        xp, parts = array_namespace(self._open), [*self._parts, (self._open, found)]
        order = xp.argsort(xp.concat([index for index, _ in parts]))
        return Solution.joined([part for _, part in parts]).take(order)
