"""Permutation tests of a search: its choice repeated for many sets of targets at once, or kept as a model that is fixed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, move_to, to_numpy
from tracelearn.estimators import TraceNormClassifier, TraceNormRegressor
from tracelearn.inference.reading import Reading
from tracelearn.inference.scoring import score_sets
from tracelearn.inference.solving import batches
from tracelearn.penalties import as_penalty
from tracelearn.problems.problem import Problems, alpha_max
from tracelearn.search.estimators import TensorSearch
from tracelearn.search.folds import Folds
from tracelearn.search.paths import (
    RIDGES,
    SMALLER_RIDGES,
    explained_variance,
    first_with_weights,
    read_alphas,
    smoothed,
)
from tracelearn.search.splits import Models, SplitSamples, Targets, split_samples
from tracelearn.solvers import admm

__all__ = ["best_scores", "can_repeat_as_batch", "chosen_model", "score_of_choice"]

# Held-out scores differ by far more than this between neighbouring alphas: paths need no tighter gap to choose one.
_TOL = 2e-3
_ITERATIONS = 60  # for each alpha, at most


# --- the choice kept --------------------------------------------------------------------------------------------------


def chosen_model(search: Any, X: Any, groups: Array | None = None) -> tuple[Any, Any]:
    """Make a model, not fitted, with what a fitted search has chosen; return it, and samples as it sees them."""
    if isinstance(search, TensorSearch):
        return search.linear_estimator(), search.joined_views(X, groups)
    options = {"class_weight": search.class_weight} if is_classifier(search) else {}
    model = _linear_class(search)(
        search.alpha_,
        ridge=search.ridge_,
        mode_weights=search.mode_weights_,
        loss=search.loss,
        penalty=search.penalty,
        target_mode=search.target_mode,
        scaling=search.scaling,
        fit_intercept=search.fit_intercept,
        tensor_shape=search.tensor_shape,
        tol=search.tol,
        max_iter=search.max_iter,
        **options,
    )
    return model, X


def score_of_choice(search: Any) -> float:
    """Find the mean held-out score of what a fitted search has chosen, without a correction for the choice."""
    return float(search.raw_score_ if isinstance(search, TensorSearch) else search.best_score_)


def _linear_class(search: Any) -> Any:
    """Return the class of the linear models that a search chooses between."""
    return TraceNormClassifier if is_classifier(search) else TraceNormRegressor


# --- the choice repeated ----------------------------------------------------------------------------------------------


def can_repeat_as_batch(search: Any, groups: Array | None = None) -> bool:
    """Tell whether a search chooses alpha and ridge alone: other choices, and weights of classes, change the system."""
    if (
        not isinstance(search, TensorSearch)
        or (groups is not None and search.align is not None)
        or search.views is not None
        or search.one_standard_error
        or search.max_time is not None
    ):
        return False
    if is_classifier(search):
        asks_losses = search.loss == "auto" and search.scoring is None
        return search.loss in ("auto", "squared_error") and not asks_losses and search.class_weight is None
    return bool(search.loss == "squared_error")


def best_scores(
    search: Any, X: Any, y: Any, confounds: Array | None, folds: Folds, scoring: Any, order: Array
) -> Array:
    """Find the held-out score of what a search chooses, for each order (S, n) of the targets: (S,)."""
    model = _linear_class(search)(
        loss="squared_error", fit_intercept=search.fit_intercept, tensor_shape=search.tensor_shape
    )
    reading = Reading.of(model, X, y, confounds)
    size = len(folds) * reading.samples.n_targets * reading.samples.n_features
    scores = np.empty(len(order))
    for batch in batches(len(order), size):
        scores[batch] = _scores_of_choices(search, reading, folds, scoring, order[batch])
    return scores


def _scores_of_choices(search: Any, reading: Reading, folds: Folds, scoring: Any, order: Array) -> Array:
    """Choose for each set between the best ridge and the best alpha; return their held-out scores, (S,)."""
    (block,) = reading.with_targets_of(np.arange(reading.n_samples), order).checked().blocks
    targets = Targets(
        codes=block.Y,
        weight=block.weight,
        loss=reading.loss,
        are_classes=reading.are_classes,
        fit_intercept=search.fit_intercept,
        confounds=reading.block.confounds,
    )
    split = split_samples(block.X, reading.samples.shape, targets, folds)
    sets = _Sets(reading, split, scoring, order)
    ridge_value, ridge_score = _best_ridge(sets)
    alphas, are_given = read_alphas(search.alphas, search.eps)
    trace_value, trace_score = _best_alpha(sets, search.penalty, alphas, are_given=are_given, max_iter=search.max_iter)
    return np.where(ridge_value >= trace_value, ridge_score, trace_score)


@dataclass(frozen=True, eq=False)
class _Sets:
    """Samples that are split into folds, with S sets of targets side by side, those of the samples ``order`` (S, n)."""

    reading: Reading
    split: SplitSamples
    scoring: Any
    order: Array

    def judge(self, models: Models) -> tuple[Array, Array]:
        """Find for each of A points what selects, and the held-out score, of each set: both (A, S)."""
        split, (A, F, _, _) = self.split, models.weights.shape
        S = len(self.order)
        K = self.reading.samples.n_targets
        scores = np.empty((A, F, S))
        for point in range(A):
            for fold, z in enumerate(split.held_out_scores(models, point)):
                predictions = to_numpy(split.in_target_units(z)).reshape(-1, S, K)
                test = split.folds.splits[fold][1]
                scores[point, fold] = score_sets(
                    self.reading, self.scoring, self.order[:, test], np.moveaxis(predictions, 0, 1)
                )
        means = np.einsum("afs,f->as", scores, split.fold_weights)
        if self.scoring is not None:
            return means, means
        statistics = np.moveaxis(split.judge(models).statistics.reshape(A, F, S, K, 5), 1, 2)
        return explained_variance(statistics, split.fold_weights, numbers=not self.reading.are_classes), means


def _best_ridge(sets: _Sets) -> tuple[Array, Array]:
    """Choose a ridge for each set; return what selects there, and the held-out score, both (S,).

    Smaller ridges are for sets for which what selects still rises at the end of the others.
    """
    split = sets.split

    def judged(ridges: Array) -> tuple[Array, Array]:
        """Find what selects, and the held-out score, for each ridge and set: both (A, S)."""
        weights, intercepts = split.squares.with_ridges(move_to(ridges, split.rows, split.rows.dtype))
        shape = len(ridges), len(split.folds), split.n_targets
        return sets.judge(Models(weights.reshape(*shape, -1), intercepts.reshape(shape)))

    selecting, scores = judged(RIDGES)
    values, best = _largest(selecting, 0)
    chosen = _at(scores, best)
    for smaller in SMALLER_RIDGES:
        rises = best >= len(selecting) - 2
        if not np.any(rises):
            break
        smaller_selecting, smaller_scores = judged(smaller)
        selecting = np.concatenate([selecting, smaller_selecting])
        scores = np.concatenate([scores, smaller_scores])
        more_values, more_best = _largest(selecting, 0)
        values = np.where(rises, more_values, values)
        best = np.where(rises, more_best, best)
        chosen = np.where(rises, _at(scores, best), chosen)
    return values, chosen


def _best_alpha(sets: _Sets, penalty: Any, alphas: Array, *, are_given: bool, max_iter: int) -> tuple[Array, Array]:
    """Choose an alpha for each set along its own path; return what selects there, and the held-out score, both (S,).

    Alphas are shares of the smallest alpha for which all weights of a set are zero, unless they ``are_given``.
    """
    split = sets.split
    reading = sets.reading
    (training,), whole = split.data_fits
    norm = as_penalty(penalty, split.weights_shape)
    rough = training.single()
    unit = np.full(len(sets.order), 1.0 / split.alpha_unit)
    if not are_given:
        tops = to_numpy(alpha_max(whole, norm, split.weights_shape))
        unit = np.max(tops.reshape(len(sets.order), -1), axis=1)
    unit = np.tile(np.repeat(unit, reading.samples.n_targets), len(split.folds))  # of every fold, set and target
    shape = 1, len(split.folds), split.n_targets
    judgements = []
    start = None
    limit = min(max_iter, _ITERATIONS)
    for k, alpha in enumerate(alphas):
        if start is not None and start.rho is not None and alpha > 0:
            start = replace(
                start, rho=start.rho * float(alpha / alphas[k - 1])
            )  # forces, and so the step, scale with alpha
        strength = move_to(alpha * unit, rough.ridge, rough.ridge.dtype)
        problems = Problems(rough, norm, strength, split.weights_shape, rough.at_zero.value, penalised=bool(alpha > 0))
        n_iter = limit if start is not None else 2 * limit
        start = admm(problems, tol=_TOL, max_iter=n_iter, start=start, exact_ranks=False, check_every=10)
        W = as_dtype(array_namespace(start.W).reshape(start.W, (-1, rough.n_features)), training.ridge.dtype)
        intercepts = training.intercept(W)
        judgements.append(sets.judge(Models(split.to_rows(W).reshape(*shape, -1), intercepts.reshape(shape))))
    selecting = np.concatenate([values for values, _ in judgements])
    scores = np.concatenate([means for _, means in judgements])
    first = 0
    if not are_given:
        options = {"numbers": not reading.are_classes, "by_scorer": sets.scoring is not None}
        first = first_with_weights(selecting, n_samples=reading.n_samples, **options)
    values, best = _largest(selecting, first)
    return values, _at(scores, best)


def _largest(selecting: Array, first: Any) -> tuple[Array, Array]:
    """Find the largest smoothed value of what selects (A, S), from a first point on: values and points, both (S,)."""
    values = smoothed(selecting)
    best = np.maximum(np.argmax(values, axis=0), first)
    return _at(values, best), best


def _at(table: Array, points: Array) -> Array:
    """Take from each column of a table (A, S) the row of its own: (S,)."""
    return np.take_along_axis(table, points[None], axis=0)[0]
