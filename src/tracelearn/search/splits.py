"""Samples of one view, split into folds: the problems of the training parts, and models judged by what folds hold out.

Conventions
-----------
A model of F folds is a pair of weights (F, K, r) and intercepts (F, K) for the rows (n, r) of a split. Models along a path
have one more first axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    as_dtype,
    is_non_numpy,
    is_sparse,
    move_to,
    to_numpy,
    widest,
)
from tracelearn.confounds import Regression
from tracelearn.losses import Loss
from tracelearn.moments import Moments
from tracelearn.problems.forms import choose_form
from tracelearn.problems.squares import Squares
from tracelearn.samples.samples import Block, Samples
from tracelearn.search.folds import Folds

__all__ = [
    "Coordinates",
    "Judgement",
    "Models",
    "SplitSamples",
    "Targets",
    "blocks_of_columns",
    "predicted_class",
    "split_samples",
]

# Components of less than this share of the largest variance are left out: they are rounding, and no ridge is as small.
_LEAST_VARIANCE = 1e-12
_LEAST_OF_SPAN = 1e-10  # of samples fewer than features, whose products are decomposed

# Most scores that are judged together: more would not fit in cache.
_SCORES_TOGETHER = 2_000_000

# Columns of samples that are centred together: a copy of all would double what samples of very many entries take.
_COLUMNS_TOGETHER = 1 << 15

Score = Callable[[Array, Array], Array]  # of an index (m,) and scores (m, M, K) of M models: what each is worth, (M,)


@dataclass(frozen=True, eq=False)
class Targets:
    """The targets of samples, with all that does not depend on the view: weights, loss, confounds and the score."""

    codes: Array  # (n, K): numbers, or classes as the loss codes them
    weight: Array  # (n,), not negative
    loss: Loss
    are_classes: bool
    fit_intercept: bool = True
    confounds: Array | None = None  # (n, q)
    scorer: Score | None = None  # the user's; None: accuracy for classes, R² for numbers

    def take(self, index: Array, weight: Array) -> Targets:
        """Keep the samples of an index (m,), with the weights (m,) in place of theirs."""
        place = move_to(index, self.codes)
        xp = array_namespace(self.codes)
        scorer = None if self.scorer is None else _ScorerOfSubset(self.scorer, index)
        confounds = None if self.confounds is None else xp.take(self.confounds, place, axis=0)
        codes = xp.take(self.codes, place, axis=0)
        return replace(self, codes=codes, weight=weight, confounds=confounds, scorer=scorer)


@dataclass(frozen=True, eq=False)
class _ScorerOfSubset:
    """A scorer of all samples, for a subset: indices into the subset are turned into indices into all samples."""

    scorer: Score
    index: Array

    def __call__(self, index: Array, scores: Array) -> Array:
        return self.scorer(self.index[index], scores)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Samples (n, p) along their principal axes: ``(X - origin) / unit`` is ``rows @ axes.T``, of total variance one."""

    rows: Array  # (n, r)
    origin: Array  # (p,)
    unit: float
    samples: Array  # (n, p)
    directions: Array  # eigenvectors of the products of features (p, r), or of samples (n, r)

    @classmethod
    def of(cls, X: Array, weight: Array, *, centre: bool) -> Coordinates:
        """Find principal axes by the products of features, or by those of samples where these are fewer."""
        xp = array_namespace(X)
        n, p = X.shape
        if n < p:
            origin, unit = _mean_and_unit(X, weight, centre=centre)
            products: Any = 0.0
            for columns in blocks_of_columns(X):
                block = (X[:, columns] - origin[columns]) / unit
                products = products + block @ block.T
            values, vectors = xp.linalg.eigh(products)
            leading = _leading_eigenvalues(values, _LEAST_OF_SPAN)
            return cls(vectors[:, leading] * xp.sqrt(values[leading]), origin, unit, X, vectors[:, leading])
        rows, origin, unit = _of_variance_one(X, weight, centre=centre)
        values, vectors = xp.linalg.eigh(rows.T @ rows)
        leading = _leading_eigenvalues(values, _LEAST_VARIANCE)
        return cls(rows @ vectors[:, leading], origin, unit, X, vectors[:, leading])

    @cached_property
    def axes(self) -> Array:
        """The principal axes (p, r), which are orthonormal."""
        xp = array_namespace(self.rows)
        if self.samples.shape[0] >= self.samples.shape[1]:
            return self.directions
        lengths = xp.sqrt(xp.sum(self.rows**2, axis=0))
        lengths = xp.where(lengths > 0, lengths, xp.ones_like(lengths))
        directions = self.directions / lengths
        if is_non_numpy(self.samples):
            return xp.concat([block.T @ directions for block in self.blocks_of_variance_one()])
        axes = np.empty((self.samples.shape[1], directions.shape[1]))
        for columns, block in zip(blocks_of_columns(self.samples), self.blocks_of_variance_one(), strict=True):
            axes[columns] = block.T @ directions
        return axes

    def blocks_of_variance_one(self) -> Iterator[Array]:
        """Yield ``(X - origin) / unit`` (n, p), some columns after the others: samples may take much of the memory."""
        for columns in blocks_of_columns(self.samples):
            yield (self.samples[:, columns] - self.origin[columns]) / self.unit


def blocks_of_columns(rows: Array) -> Iterator[slice]:
    """Yield slices of the columns of rows (n, p), so that what is computed from some takes little memory beside all."""
    p = rows.shape[1]
    for start in range(0, p, _COLUMNS_TOGETHER):
        yield slice(start, min(start + _COLUMNS_TOGETHER, p))


def _mean_and_unit(X: Array, weight: Array, *, centre: bool) -> tuple[Array, float]:
    """Find the mean (p,) of samples, zero unless they are centred, and the root of their total variance about it."""
    xp = array_namespace(X)
    share = weight / xp.sum(weight)
    means = []
    variance: Any = 0.0
    for columns in blocks_of_columns(X):
        block = X[:, columns]
        first = block[0, :]
        # About the first sample, so that what all have in common is found exactly.
        mean = first + share @ (block - first) if centre else xp.zeros_like(first)
        means.append(mean)
        variance = variance + share @ xp.sum((block - mean) ** 2, axis=1)
    return xp.concat(means), float(xp.sqrt(variance)) or 1.0


def _of_variance_one(X: Array, weight: Array, *, centre: bool) -> tuple[Array, Array, float]:
    """Subtract the mean (p,) of samples, and divide by the root of their total variance; return both, too."""
    origin, unit = _mean_and_unit(X, weight, centre=centre)
    rows = X - origin
    rows /= unit
    return rows, origin, unit


def _leading_eigenvalues(values: Array, share: float) -> slice:
    """Select those of some ascending eigenvalues that are more than a share of the largest; at least one."""
    xp = array_namespace(values)
    n_small = int(xp.sum(xp.astype(values <= share * values[-1], xp.int64)))
    return slice(min(n_small, values.shape[0] - 1), values.shape[0])


class Models(NamedTuple):
    """Models of all folds, at A points of a path: weights (A, F, K, r) and intercepts (A, F, K)."""

    weights: Array
    intercepts: Array


class Judgement(NamedTuple):
    """What models are worth on what folds hold out, at A points of a path."""

    scores: Array  # (A, F), higher is better; NaN where a fold has none
    statistics: Array  # (A, F, K, 5), see ``SplitSamples.judge``
    outcomes: Array  # (A, n): what each sample adds to the score, over the repeats; NaN where no fold holds it out


@dataclass(frozen=True, eq=False)
class SplitSamples:
    """Samples of one view, split into folds. See ``split_samples``."""

    rows: Array  # (n, r), sparse ones too
    shape: tuple[int, ...]  # of a sample
    targets: Targets  # centred, and of variance one, where the loss allows
    folds: Folds
    coordinates: Coordinates | None = None  # what the rows are along principal axes; None: they are the samples
    unit: float = 1.0  # what samples were divided by
    centre: Array | None = None  # the mean (r,) of rows that are not centred
    target_unit: float = 1.0
    target_mean: Any = 0.0  # (K,), what was subtracted from targets
    rows_of_fold: tuple[Array, ...] | None = None  # (F times (n, r)), where a fold sees all samples in its own way
    joint: bool = False  # whether targets are one more mode of one weight tensor

    @property
    def n_targets(self) -> int:
        """The number K of columns that code the targets."""
        return int(self.targets.codes.shape[1])

    @property
    def has_moments(self) -> bool:
        """Whether moments of the training parts hold all that the loss needs."""
        return self.targets.loss.has_moments and not is_sparse(self.rows)

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """The shape of one weight tensor."""
        return (self.n_targets, *self.shape) if self.joint else self.shape

    @property
    def alpha_unit(self) -> float:
        """The factor that turns an alpha of the split into one for samples and targets in their own units."""
        return self.target_unit * self.unit

    @property
    def ridge_unit(self) -> float:
        """The factor that turns a ridge of the split into one for samples in their own units."""
        return self.unit**2

    def rows_for_fold(self, fold: int) -> Array:
        """Return all samples as one fold sees them; these differ where a view or the confounds are learned in each."""
        return self.rows if self.rows_of_fold is None else self.rows_of_fold[fold]

    def without_cache(self) -> SplitSamples:
        """Return the same in a new object: axes and data fits that are cached in it are released with it."""
        return replace(self, coordinates=None if self.coordinates is None else replace(self.coordinates))

    @cached_property
    def fold_weights(self) -> Array:
        """The weights (F,) of folds in means over them: the total weight of the samples that each holds out."""
        return self.folds.weights(to_numpy(self.targets.weight))

    @cached_property
    def target_variances(self) -> Array:
        """The variance of each target over all samples (K,), in the units of the split."""
        codes = to_numpy(self.targets.codes)
        weight = to_numpy(self.targets.weight)
        mean = np.average(codes, axis=0, weights=weight)
        return np.asarray(np.average((codes - mean) ** 2, axis=0, weights=weight))

    # --- the problems of the training parts ------------------------------------------------------------------------------

    def _moments(self, rows: Array, index: Array) -> Moments:
        """Sum up the moments of the samples of an index."""
        place = move_to(index, self.targets.codes)
        xp = array_namespace(self.targets.codes)
        codes = xp.take(self.targets.codes, place, axis=0)
        moments = Moments.of(xp.take(rows, place, axis=0), codes, xp.take(self.targets.weight, place, axis=0))
        return moments if self.targets.fit_intercept else moments.uncentred()

    @cached_property
    def squares(self) -> Squares:
        """The problems of the squared loss of all folds, for weights of rows: one group for each fold."""
        training_moments: list[Moments] = []
        folds_of_repeat = len(self.folds) // self.folds.n_repeats
        for start in range(0, len(self.folds), folds_of_repeat):
            splits = self.folds.splits[start : start + folds_of_repeat]
            if self.rows_of_fold is None and replace(self.folds, splits=splits, n_repeats=1).is_partition:
                held_out = [self._moments(self.rows, test) for _, test in splits]
                # A sum of the other folds: a difference from the total would leave their rounding errors in.
                training_moments += [
                    Moments.total(held_out[:fold] + held_out[fold + 1 :]) for fold in range(len(splits))
                ]
            else:
                for fold, (train, _) in enumerate(splits, start):
                    training_moments.append(self._moments(self.rows_for_fold(fold), train))
        return Squares.stacked([Squares.of(moments, joint=self.joint) for moments in training_moments])

    @cached_property
    def data_fits(self) -> tuple[list[Any], Any]:
        """The data fits of the training parts, for weights of samples, and that of all samples.

        If moments hold all that is needed, the list has one data fit with the problems of all folds, else one for each fold.
        """
        if self.has_moments:
            everything = np.flatnonzero(to_numpy(self.targets.weight) > 0)
            whole = Squares.of(self._moments(self.rows_for_fold(0), everything), joint=self.joint)
            training = self.squares
            coordinates = self.coordinates
            if coordinates is None:
                return [training], whole
            xp = array_namespace(self.rows)
            variances = xp.concat([xp.mean(block**2, axis=0) for block in coordinates.blocks_of_variance_one()])
            axes, zero = coordinates.axes, 0.0 * variances
            stacked = xp.stack([variances] * len(self.folds))
            return [training.lifted(axes, zero, stacked)], whole.lifted(axes, zero, variances)
        fits = [self._data_fit(self.rows_for_fold(fold), train) for fold, (train, _) in enumerate(self.folds.splits)]
        return fits, self._data_fit(self.rows, np.flatnonzero(to_numpy(self.targets.weight) > 0))

    def _data_fit(self, rows: Array, index: Array) -> Any:
        """Make the data fit of the samples of an index, in the form that suits their number and the loss."""
        block = Block(rows, self.targets.codes, self.targets.weight).take(index)
        samples = Samples.of(block, self.shape).checked()
        form = choose_form(samples, self.targets.loss)
        options: dict[str, Any] = {"joint": self.joint, "fit_intercept": self.targets.fit_intercept}
        return form.data_fit(samples, self.targets.loss, ridge=0.0, **options)

    def to_rows(self, W: Array) -> Array:
        """Turn weights (F K, p) of samples into weights of rows (F K, r)."""
        return W if self.coordinates is None else W @ self.coordinates.axes

    def in_sample_units(self, models: Models, point: int = 0) -> tuple[Array, Array]:
        """Return weights (F, K, p) and intercepts (F, K), at a point of a path, for samples and targets in their own units."""
        W, b = models.weights[point, ...], models.intercepts[point, ...]
        if self.coordinates is not None:
            xp = array_namespace(W)
            W = (W @ xp.matrix_transpose(self.coordinates.axes)) / self.unit
            b = b - W @ self.coordinates.origin
        return self.target_unit * W, self.target_unit * b + self.target_mean

    # --- what folds hold out ---------------------------------------------------------------------------------------------

    def held_out_scores(self, models: Models, point: int = 0) -> list[Array]:
        """Score what each fold holds out by its model at a point of a path: F times (m, K), in the units of the split."""
        scores = []
        for fold, (_, test) in enumerate(self.folds.splits):
            W, b = models.weights[point, fold, ...], models.intercepts[point, fold, :]
            scores.append(_rows_at(self.rows_for_fold(fold), test) @ array_namespace(W).matrix_transpose(W) + b)
        return scores

    def in_target_units(self, scores: Array) -> Array:
        """Turn scores (..., K) of these targets into scores of the targets as they came."""
        return self.target_unit * scores + self.target_mean

    def judge(self, models: Models) -> Judgement:
        """Judge models by what each fold holds out.

        The statistics are, for each target, the weighted means of predictions and targets, their variances and covariance.
        They leave intercepts out, so that folds are compared about one common mean: differences between their intercepts say
        nothing about how well samples are told apart. With a link function the intercept is part of the prediction and stays.
        """
        A, F, K, _ = models.weights.shape
        scores = np.full((A, F), np.nan)
        statistics = np.full((A, F, K, 5), np.nan)
        outcomes = np.zeros((A, self.folds.n_samples))
        for fold, (_, test) in enumerate(self.folds.splits):
            step = max(1, _SCORES_TOGETHER // max(1, len(test) * K))
            for start in range(0, A, step):
                points = slice(start, min(A, start + step))
                models_of_fold = Models(models.weights[points, fold, ...], models.intercepts[points, fold, :])
                scores[points, fold], statistics[points, fold], gains = self._judge_fold(fold, test, models_of_fold)
                outcomes[points, test] += gains
        times = np.sum(self.folds.held_out, axis=0)
        with np.errstate(invalid="ignore"):
            outcomes = np.where(times > 0, outcomes / times, np.nan)
        return Judgement(scores, statistics, outcomes)

    def _judge_fold(self, fold: int, test: Array, models: Models) -> tuple[Array, Array, Array]:
        """Judge models (A, K, r) of one fold: scores (A,), statistics (A, K, 5), and what each sample adds (A, m)."""
        rows = _rows_at(self.rows_for_fold(fold), test)
        targets = self.targets
        loss = targets.loss
        xp = array_namespace(models.weights)
        A, K, r = models.weights.shape
        without_intercept = xp.reshape(rows @ xp.reshape(models.weights, (A * K, r)).T, (-1, A, K))
        z = without_intercept + models.intercepts[None, ...]
        place = move_to(test, targets.codes)
        Y = xp.take(targets.codes, place, axis=0)[:, None, :]
        weight = xp.take(targets.weight, place, axis=0)
        share = weight / xp.sum(weight)

        def weighted_mean(values: Array) -> Array:
            return xp.reshape(share @ xp.reshape(values, (values.shape[0], -1)), values.shape[1:])

        linked = type(loss).inverse_link is not Loss.inverse_link
        if self.centre is not None:
            without_intercept = without_intercept - models.weights @ self.centre
        predicted = loss.inverse_link(z) if linked else without_intercept
        mean = weighted_mean(predicted)
        target_mean = weighted_mean(Y)
        deviation = predicted - mean
        target_deviation = Y - target_mean
        moments = [
            mean,
            xp.broadcast_to(target_mean, mean.shape),
            weighted_mean(deviation * deviation),
            xp.broadcast_to(weighted_mean(target_deviation * target_deviation), mean.shape),
            weighted_mean(deviation * target_deviation),
        ]
        statistics = to_numpy(xp.stack(moments, axis=-1))
        if targets.are_classes:
            gains = to_numpy(xp.astype(predicted_class(z) == predicted_class(Y), share.dtype)).T
            scores = gains @ to_numpy(share)
        else:
            residual = to_numpy(Y - (predicted if linked else z))
            gains = np.mean(_explained(residual**2, self.target_variances), axis=2).T
            scores = _r_squared(residual, to_numpy(Y), to_numpy(share))
        if targets.scorer is not None:
            scores = targets.scorer(test, self.in_target_units(z))
        return scores, statistics, gains


def _r_squared(residual: Array, Y: Array, share: Array) -> Array:
    """Find the share of the variance of targets (m, 1, K) that is explained, averaged over targets: (A,)."""
    mean = np.tensordot(share, Y, axes=1)
    variance = np.tensordot(share, (Y - mean) ** 2, axes=1)
    unexplained = np.tensordot(share, residual**2, axes=1)
    return np.asarray(np.mean(_explained(unexplained, variance), axis=-1))


def _explained(unexplained: Array, variance: Array) -> Array:
    """Turn squared residuals (..., K) into shares of the variance of each target that are explained; none where it is zero."""
    varies = variance > 0
    return np.where(varies, 1.0 - unexplained / np.where(varies, variance, 1.0), 0.0)


def _rows_at(rows: Array, index: Array) -> Array:
    """Take the rows of an index, of sparse matrices as well."""
    if is_sparse(rows):
        return rows[index]
    return array_namespace(rows).take(rows, move_to(index, rows), axis=0)


def predicted_class(scores: Array) -> Array:
    """Say which class has the largest score (..., K); of two classes, which share a column, whether it is the second."""
    return scores[..., 0] > 0 if scores.shape[-1] == 1 else array_namespace(scores).argmax(scores, axis=-1)


def split_samples(
    rows: Array,
    shape: tuple[int, ...],
    targets: Targets,
    folds: Folds,
    *,
    joint: bool = False,
    along_axes: bool = True,
    rows_of_fold: Sequence[Array] | None = None,
) -> SplitSamples:
    """Split samples of one view into folds, in the coordinates and units that suit a search.

    With the squared loss samples are divided by the root of their total variance, and targets are centred and of variance one:
    nothing depends on units, and ridges are shares of the total variance.

    Parameters
    ----------
    rows : array of shape (n_samples, n_features), sparse ones too
    shape : tuple of ints
        The shape of a sample, whose entries the features are.
    targets : Targets
        Their confounds are regressed out of the samples by what each fold learns from its training part.
    folds : Folds
    joint : bool, default=False
        Whether targets are one more mode of one weight tensor.
    along_axes : bool, default=True
        Whether samples are shown along their principal axes, from which ridge regression in every fold is soon found. Samples
        fewer than features always are.
    rows_of_fold : sequence of arrays of shape (n_samples, n_features), default=None
        All samples as each fold sees them, where views learn from targets.
    """
    if not targets.loss.has_moments or is_sparse(rows):
        share = targets.weight / array_namespace(targets.codes).sum(targets.weight)
        plain = SplitSamples(rows, shape, targets, folds, centre=share @ rows, joint=joint)
        return plain if targets.confounds is None else replace(plain, rows_of_fold=_residuals(rows, targets, folds))
    xp = array_namespace(rows)
    rows = as_dtype(rows, widest(rows)["dtype"])
    target_mean, target_unit = 0.0, 1.0
    if not targets.are_classes:  # of many classes a copy of the codes is larger than the samples
        target_mean, target_unit = _mean_and_deviation(targets)
        targets = replace(targets, codes=(targets.codes - target_mean) / target_unit)
    if rows_of_fold is not None:
        share = targets.weight / xp.sum(targets.weight)
        centred = [view - share @ view if targets.fit_intercept else view for view in rows_of_fold]
        unit = math.sqrt(float(share @ xp.sum(centred[0] ** 2, axis=1))) or 1.0
        scaled = tuple(as_dtype(view, rows.dtype) / unit for view in centred)
        split = SplitSamples(scaled[0], shape, targets, folds, unit=unit, rows_of_fold=scaled)
    else:
        if along_axes or rows.shape[0] < rows.shape[1]:
            coordinates = Coordinates.of(rows, targets.weight, centre=targets.fit_intercept)
            split = SplitSamples(coordinates.rows, shape, targets, folds, coordinates, coordinates.unit)
        else:
            rows, _, unit = _of_variance_one(rows, targets.weight, centre=targets.fit_intercept)
            split = SplitSamples(rows, shape, targets, folds, unit=unit)
        if targets.confounds is not None:
            split = replace(split, rows_of_fold=_residuals(split.rows, targets, folds))
    return replace(split, target_unit=target_unit, target_mean=target_mean, joint=joint)


def _mean_and_deviation(targets: Targets) -> tuple[Any, float]:
    """Find the mean (K,) of numbers, and one deviation for all K: the root of their mean variance."""
    xp = array_namespace(targets.codes)
    codes = targets.codes
    share = targets.weight / xp.sum(targets.weight)
    first = codes[0, :]
    mean = first + share @ (codes - first) if targets.fit_intercept else 0.0 * first
    return mean, math.sqrt(float(xp.mean(share @ (codes - mean) ** 2))) or 1.0


def _residuals(rows: Array, targets: Targets, folds: Folds) -> tuple[Array, ...]:
    """Regress confounds out of all rows, as the training samples of each fold say."""
    return tuple(_residual(rows, targets, train) for train, _ in folds.splits)


def _residual(rows: Array, targets: Targets, train: Array) -> Array:
    """Regress confounds out of all rows, as the training samples of one fold say."""
    xp = array_namespace(rows)
    place = move_to(train, rows)
    confounds: Any = targets.confounds
    learned = Moments.of(
        xp.take(confounds, place, axis=0), xp.take(rows, place, axis=0), xp.take(targets.weight, place, axis=0)
    )
    regression = Regression.of(learned if targets.fit_intercept else learned.uncentred())
    return regression.residual(rows, confounds)
