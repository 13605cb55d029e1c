"""What regressor and classifier share: solving, certifying, describing the weights."""

from __future__ import annotations

import copy
import logging
import warnings
from collections import deque
from dataclasses import dataclass, replace
from itertools import islice
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from tracelearn import paper
from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    as_dtype,
    free_memory,
    is_narrow,
    is_sparse,
    move_to,
    place,
    take_rows,
)
from tracelearn.arrays.linalg import mode_scales
from tracelearn.estimators.blocks import fit_blocks, gathered_or_blocks
from tracelearn.estimators.convergence import Record
from tracelearn.losses import Loss
from tracelearn.moments import Fold, Moments
from tracelearn.penalties import PENALTIES, Penalty, Split
from tracelearn.problems.certificate import certify
from tracelearn.problems.smooth import ArraySamples, DataLoss, Samples, Smooth, SparseSamples, Squares
from tracelearn.samples.checks import check_finite, check_overflow, check_place, check_range, read_numbers, read_samples
from tracelearn.samples.execution import Blocks, as_blocks, is_dask, lazily
from tracelearn.solvers import SOLVERS, Solution
from tracelearn.solvers.choose import Form, choose_form

logger = logging.getLogger("tracelearn")


@dataclass(frozen=True, eq=False)
class Batch:
    """Checked samples: rows (n, p), coded targets (n, K), weights (n,) or None, and the shape of one sample."""

    X: Array
    Y: Array
    weight: Array | None
    shape: tuple[int, ...]

    @property
    def share(self) -> Array:
        """The weights as shares of one."""
        xp = array_namespace(self.Y)
        weight = xp.ones_like(self.Y[:, 0]) if self.weight is None else self.weight
        return weight / xp.sum(weight)

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return float(self.X.shape[0] if self.weight is None else array_namespace(self.weight).sum(self.weight))

    def take(self, samples: Array) -> Batch:
        """Keep some of the samples."""
        samples = move_to(samples, self.X)
        weight = None if self.weight is None else take_rows(self.weight, samples)
        return Batch(take_rows(self.X, samples), take_rows(self.Y, samples), weight, self.shape)

    def samples(self, *, blockwise: bool = False) -> Samples:
        """See the batch as a loss does."""
        if is_sparse(self.X):
            return SparseSamples(self.X, self.Y, self.share)
        return ArraySamples(self.X, self.Y, self.share, blockwise=blockwise)

    def form(self, *, has_moments: bool) -> Form:
        """Choose how to learn from the batch."""
        sizes = self.X.shape
        return choose_form(*sizes, has_moments=has_moments, memory=free_memory(self.X), sparse=is_sparse(self.X))

    def scales(self) -> Array:
        """Find the scale (p,) of every entry, as a product of one scale for each mode."""
        share = self.share
        mean = share @ self.X
        return mode_scales(share @ (self.X - mean) ** 2, self.shape)

    def rescaled(self, scales: Array) -> Batch:
        """Divide every entry by its scale."""
        return replace(self, X=self.X / scales)

    def widened(self) -> Batch:
        """Cast the rows to the precision that solvers work in, that of the targets."""
        return replace(self, X=as_dtype(self.X, self.Y.dtype))

    def check_numbers(self) -> None:
        """Refuse NaN, infinity, and numbers whose products leave the range of floating point."""
        check_finite(self.X, "X", self.shape)
        check_range(self.X, "X")
        check_range(self.Y, "y")

    def moments(self, past: Moments | None = None) -> Moments:
        """Summarise the samples, added to what was summarised before."""
        n_features, n_targets = self.X.shape[1], self.Y.shape[1]
        fold = Fold.empty(n_features, n_targets, self.X) if past is None else Fold.thaw(past)
        return self.add_to(fold).freeze()

    def add_to(self, fold: Fold) -> Fold:
        """Add the samples to moments in the making."""
        xp = array_namespace(fold.gram)
        with np.errstate(over="ignore", invalid="ignore"):  # judged below, by a look at p numbers instead of n p
            fold.add(self.X, self.Y, self.weight)
            sizes = float(xp.sum(xp.linalg.diagonal(fold.gram))), float(xp.sum(fold.target_sq))
        # NaN and infinity are found here as well: the products that contain them are neither small nor large.
        if not all(1e-30 < size < 1e30 for size in sizes):
            self.check_numbers()
        return fold


class TraceNormModel(BaseEstimator):
    """What regressor and classifier share: reading, solving, certifying, describing the weights."""

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "alpha": [Interval(Real, 0, None, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "penalty": [StrOptions(set(PENALTIES))],
        "scaling": [StrOptions({"modes"}), None],
        "mode_weights": ["array-like", None],
        "class_mode": ["boolean"],
        "fit_intercept": ["boolean"],
        "tensor_shape": ["array-like", None],
        "solver": [StrOptions({"auto", *SOLVERS})],
        "step": [StrOptions({"tight", "paper"})],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "forgetting": [Interval(Real, 0, 1, closed="right")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    _dtype: Any  # of the samples, and so of the weights

    # What the two say for themselves.

    def _loss(self, n_targets: int) -> Loss:
        raise NotImplementedError

    def _shaped(self, W: Array, shape: tuple[int, ...]) -> Array:
        raise NotImplementedError

    def _scalar(self, intercept: Array) -> Any:
        raise NotImplementedError

    # --- the problem -------------------------------------------------------------------------------------------------

    def _penalty(self, shape: tuple[int, ...], n_targets: int) -> Penalty:
        weights = None if self.mode_weights is None else read_numbers(self.mode_weights, "mode_weights", "numbers")
        whole = (n_targets, *shape) if self.class_mode and n_targets > 1 else shape
        if weights is not None and len(weights) != len(whole):
            raise ValueError(
                f"Expected {len(whole)} mode weights for {'classes and ' if whole != shape else ''}samples of shape "
                f"{shape}, got {len(weights)}: give one weight for each mode."
            )
        penalty: Penalty = PENALTIES[self.penalty](whole, weights)
        return penalty

    def _joint(self, n_targets: int) -> bool:
        """Whether all targets are one problem, because the penalty couples them."""
        return bool(self.class_mode) and n_targets > 1

    def _fit_batch(self, batch: Batch) -> None:
        if self.scaling:
            check_dense(batch)
        form = batch.form(has_moments=self.loss == "squared")
        self.__dict__.pop("moments_", None)
        if form.name == "moments" or self.step == "paper":
            self._say(f"moments: {form.reason}")
            self._fit_moments(batch.moments(), batch.shape, self.warm_start)
            return
        self._say(f"{form.name}: {form.reason}")
        batch.check_numbers()  # before they are widened, since single precision has a smaller range
        batch = batch.widened()
        scales = batch.scales() if self.scaling else None
        smooth = self._smooth(
            batch if scales is None else batch.rescaled(scales), form.name, joint=self._joint(batch.Y.shape[1])
        )
        W = self._solve(smooth, batch.shape, batch.Y.shape[1], self.warm_start, scales)
        self._keep_patterns(batch.samples(), W, batch.shape)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """Fit from arrays, or from samples that come in blocks."""
        found = gathered_or_blocks(self, X, y, sample_weight)
        if isinstance(found, Blocks):
            fit_blocks(self, found)
        else:
            self._fit_batch(self._read(*found, reset=True))
        return self

    def _keep_patterns(self, samples: Samples, W: Array, shape: tuple[int, ...]) -> None:
        """Multiply the weights with the covariance of the samples, in one pass."""

        def products(X: Array, Y: Array, share: Array, z: Array) -> tuple[Array, Array, Array]:
            scores = W @ X.T * share
            return scores @ X, array_namespace(scores).sum(scores, axis=1), share @ X

        together, mean_score, mean = samples.total(products)
        self.patterns_ = self._shaped(together - mean_score[:, None] * mean, shape)

    def _smooth(self, batch: Batch, form: str, *, joint: bool, spectral: bool = False) -> Squares | DataLoss:
        """Build the smooth half of the problem in the form that was chosen."""
        if form == "moments":
            moments = batch.moments() if self.fit_intercept else batch.moments().uncentred()
            return Squares.of(moments, ridge=self.ridge, joint=joint, spectral=spectral)
        batch.check_numbers()
        batch, free = batch.widened(), form == "matrix-free"
        samples = batch.samples(blockwise=free)
        if self.loss != "squared":
            options = {"ridge": self.ridge, "joint": joint, "fit_intercept": self.fit_intercept, "matrix_free": free}
            return DataLoss.of(self._loss(batch.Y.shape[1]), samples, **options)
        options = {"ridge": self.ridge, "joint": joint, "centre": self.fit_intercept}
        if form == "kernel":
            return Squares.of_few(batch.X, batch.Y, batch.share, spectral=spectral, **options)
        return Squares.of_many(samples, matrix_free=free, **options)

    def _fit_moments(self, moments: Moments, shape: tuple[int, ...], warm: bool) -> None:
        if self.loss != "squared":
            raise ValueError(f"Expected loss='squared' with step='paper', got {self.loss!r}: the paper has no other.")
        scales = moments_scales(moments, shape) if self.scaling else None
        past = moments if scales is None else moments.rescaled(scales)
        past = past if self.fit_intercept else past.uncentred()
        smooth = Squares.of(past, ridge=self.ridge, joint=self._joint(moments.n_targets))
        if self.step == "paper":
            W = self._follow_paper(past, smooth, shape, warm)
        else:
            W = self._solve(smooth, shape, moments.n_targets, warm, scales)
        self.moments_ = moments
        self.patterns_ = self._shaped(W @ moments.gram / moments.weight, shape)

    # --- the solution ------------------------------------------------------------------------------------------------

    def _solve(
        self, smooth: Smooth, shape: tuple[int, ...], n_targets: int, warm: bool, scales: Array | None = None
    ) -> Array:
        """Solve; where samples were divided by scales, so are the weights, which brings them back to the samples' units."""
        penalty = self._penalty(shape, n_targets)
        reference = smooth.at_zero.value
        start = self._last_solution(penalty, n_targets, reference) if warm else None
        alpha = array_namespace(reference).full_like(reference, float(self.alpha))
        solver = SOLVERS[smooth.best_solver if self.solver == "auto" else self.solver]
        record = Record(self._watch if self.verbose > 1 else None)
        found = solver(smooth, penalty, alpha, tol=self.tol, max_iter=self.max_iter, start=start, on_iteration=record)
        converged = float(array_namespace(found.gap).max(found.gap)) <= self.tol
        return self._keep(smooth, found, shape, converged, record, scales)

    def _last_solution(self, penalty: Penalty, n_targets: int, like: Array) -> Solution | None:
        """Return the last solution if it is one of this problem: a split of another penalty would mislead."""
        same = getattr(self, "_solved", None) == (penalty, n_targets, place(like))
        return self._solution if same else None

    def _follow_paper(self, past: Moments, smooth: Squares, shape: tuple[int, ...], warm: bool) -> Array:
        """Run the paper's own algorithm, target by target, to its own stopping rule."""
        plain = self.penalty == "overlapped" and self.mode_weights is None and self.scaling is None
        plain = plain and not self.ridge and not self.class_mode
        if self.solver not in ("apg-adm", "apg-dr") or not plain:
            raise ValueError(
                "Expected solver='apg-adm' or 'apg-dr', penalty='overlapped', no mode_weights or scaling, ridge=0 and "
                "class_mode=False with step='paper', which is the algorithm as printed: use step='tight' for anything else."
            )
        constants = paper.Constants(inner=self.solver.removeprefix("apg-"), lam=self.alpha * past.weight)
        before = self._last_solution(self._penalty(shape, past.n_targets), past.n_targets, past.gram) if warm else None
        ends = []
        for k in range(past.n_targets):
            one = replace(
                past, y_mean=past.y_mean[k : k + 1], cross=past.cross[:, k : k + 1], target_sq=past.target_sq[k : k + 1]
            )
            start = None if before is None else paper.Iterate(before.W[k, ...], self._intercept_of(k))
            run = paper.algorithm1(one, shape, constants, start, fit_intercept=self.fit_intercept)
            ends.append(deque(islice(run, self.max_iter), maxlen=1)[0])
        xp = array_namespace(past.gram)
        W = xp.stack([end.W for end in ends])
        splits = [end.split for end in ends if end.split is not None]
        split = Split(
            *(xp.concat([getattr(s, name) for s in splits], axis=1) for name in ("parts", "duals", "anchors"))
        )
        split = replace(split, duals=split.duals / past.weight)  # the paper sums where we take means
        alpha = xp.full_like(past.y_mean, float(self.alpha))
        proof = certify(
            smooth.evaluate(xp.reshape(W, (len(ends), -1))),
            self._penalty(shape, len(ends)),
            W,
            split,
            alpha,
            smooth.at_zero.value,
        )
        n_iter = max(end.n_iter for end in ends)
        found = Solution(W, split, proof.objective, proof.gap, n_iter)
        return self._keep(smooth, found, shape, all(end.converged for end in ends), Record())

    def _intercept_of(self, target: int) -> float:
        return float(self.intercept_ if isinstance(self.intercept_, float) else self.intercept_[target])

    def _keep(
        self,
        smooth: Smooth,
        found: Solution,
        shape: tuple[int, ...],
        converged: bool,
        record: Record,
        scales: Array | None = None,
    ) -> Array:
        xp = array_namespace(found.W)
        self._solution = found
        self.n_iter_ = found.n_iter
        self.objective_ = float(xp.sum(found.objective))
        self.dual_gap_ = float(xp.max(found.gap))
        self._convergence = record.until(self.n_iter_, self.dual_gap_)
        self.sample_shape_ = shape
        W = xp.reshape(found.W, (-1, smooth.n_features))
        self._solved = self._penalty(shape, W.shape[0]), W.shape[0], place(W)
        self.intercept_ = self._scalar(smooth.intercept(W) if self.fit_intercept else xp.zeros_like(W[:, 0]))
        W = W if scales is None else W / scales
        self.coef_ = self._shaped(W, shape)
        self._say(f"relative duality gap {self.dual_gap_:.1e} after {self.n_iter_} iterations")
        if not converged:
            # The paper has a rule of its own (Eq. 27), which the gap says nothing about.
            goal = (
                "the paper's stopping rule to hold"
                if self.step == "paper"
                else f"a relative duality gap of {self.tol:g}"
            )
            advice = "use step='tight'" if self.step == "paper" else "scale the features, or accept a larger tol"
            warnings.warn(
                f"Expected {goal}, got a relative duality gap of {self.dual_gap_:.1e} after {self.n_iter_} iterations: "
                f"increase max_iter, {'or ' if self.step == 'paper' else ''}{advice}.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return W

    def _say(self, message: str, **extra: Any) -> None:
        if self.verbose:
            if not logger.hasHandlers():  # somebody who asks for words should see them without setting up logging
                logger.addHandler(logging.StreamHandler())
            logger.setLevel(min(logger.level or logging.INFO, logging.INFO))
            logger.info("%s: %s", type(self).__name__, message, extra=extra)

    def _watch(self, so_far: Solution) -> None:
        gap = float(array_namespace(so_far.gap).max(so_far.gap))
        self._say(f"iteration {so_far.n_iter}, relative duality gap {gap:.1e}")

    # --- the model ---------------------------------------------------------------------------------------------------

    def _apply(self, method: str, X: Any) -> Any:
        """Call the method of this name that takes arrays: at once, block by block, or for a Dask array when it is computed."""
        check_is_fitted(self)
        function = f"_{method}"
        if is_dask(X):
            light = copy.copy(self)  # the workers need neither the moments nor the warm start
            for name in ("moments_", "_solution"):
                light.__dict__.pop(name, None)
            call = getattr(light, function)
            return lazily(call, X, call(np.zeros((1, *self.sample_shape_)))[:0])
        blocks = as_blocks(X)
        if blocks is None:
            check_place(self, X, method)
            return getattr(self, function)(X)
        return np.concatenate([getattr(self, function)(block[1]) for block in blocks.batches])

    def _scores(self, X: Any) -> Array:
        rows, _ = read_samples(self, X, reset=False, any_library=True)
        xp = array_namespace(rows)
        coef = xp.reshape(self.coef_, (-1, rows.shape[1]))
        dtype = coef.dtype if is_narrow(rows) else xp.result_type(rows.dtype, coef.dtype)
        shift = self.intercept_ if isinstance(self.intercept_, float) else as_dtype(self.intercept_, dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            scores = as_dtype(rows, dtype) @ as_dtype(coef, dtype).T + shift
        check_overflow(scores, "scores")
        return scores

    @property
    def mode_factors_(self) -> list[tuple[Array, Array]]:
        """For each mode, orthonormal factors (I_n, R) and singular values (R,) of the weights' unfolding.

        From the higher-order singular value decomposition of ``coef_``; several targets are unfolded side by side.

        Scale: factors have length 1, and the singular values, in the units of ``coef_``, carry the size. Sign: a factor and
        its negative describe the same weights, so the one is given whose entry of largest size is positive; signs that
        mean something are in the core, ``coef_`` multiplied with the transposed factors along every mode. The k-th factors
        of two modes belong together only where the core says so.
        """
        check_is_fitted(self)
        xp = array_namespace(self.coef_)
        factors = []
        for axis in self._mode_axes():
            U, s, _ = xp.linalg.svd(_fibres(self.coef_, axis), full_matrices=False)
            ones = xp.ones_like(s)
            factors.append((U * xp.where(xp.max(U, axis=0) >= -xp.min(U, axis=0), ones, -ones), s))
        return factors

    @property
    def mode_ranks_(self) -> Array:
        """The rank of the weights in each mode; with several targets, one row for each, unless they share modes."""
        check_is_fitted(self)
        if self.coef_.ndim == len(self.sample_shape_) or self._shares_modes():
            tensors = [self.coef_]
        else:
            tensors = [self.coef_[k, ...] for k in range(self.coef_.shape[0])]
        ranks = [[_rank(W, mode) for mode in range(W.ndim)] for W in tensors]
        return move_to(np.array(ranks[0] if len(tensors) == 1 else ranks), self.coef_)

    @property
    def convergence_(self) -> Array:
        """Iteration and relative duality gap, the largest over targets, at every check of the last solve."""
        check_is_fitted(self)
        return np.stack(self._convergence, axis=1)

    def _mode_axes(self) -> range:
        first = 0 if self.coef_.ndim == len(self.sample_shape_) or self._shares_modes() else 1
        return range(first, self.coef_.ndim)

    def _shares_modes(self) -> bool:
        return bool(self.class_mode) and self.coef_.ndim > len(self.sample_shape_) and self.coef_.shape[0] > 1

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.sparse = True
        tags.array_api_support = True
        return tags


def check_dense(batch: Batch) -> None:
    """Refuse to scale sparse samples."""
    if is_sparse(batch.X):
        raise ValueError(
            "Expected dense samples with scaling='modes', got a sparse matrix, whose zeros would say nothing of scale: use "
            "scaling=None, and scale the columns before."
        )


def moments_scales(moments: Moments, shape: tuple[int, ...]) -> Array:
    """Find the scale (p,) of every entry, as a product of one scale for each mode."""
    return mode_scales(array_namespace(moments.gram).linalg.diagonal(moments.gram) / moments.weight, shape)


def _fibres(W: Array, axis: int) -> Array:
    xp = array_namespace(W)
    return xp.reshape(xp.moveaxis(W, axis, 0), (W.shape[axis], -1))


def _rank(W: Array, mode: int) -> int:
    xp = array_namespace(W)
    values = xp.linalg.svdvals(_fibres(W, mode))
    # Rounding of float32 coefficients, the coarsest that are stored.
    level = max(W.shape) * 10 * float(xp.finfo(W.dtype).eps) * values[0]
    return int(xp.sum(xp.astype((values > level) & (values > 0), xp.int64)))
