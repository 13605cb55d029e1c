"""Held-out scores of many models at once, and of one by a scorer of scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer

from tracelearn.arrays.array_api import Array
from tracelearn.errors import refuse, warn
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.inference.reading import Reading, name_of_score
from tracelearn.search.scorers import with_scores
from tracelearn.search.splits import predicted_class

__all__ = ["check_scores", "score_model", "score_sets", "warn_of_zero_weights"]


def score_model(scorer: Any, model: Any, X: Any, y: Array) -> float:
    """Score one fitted model; NaN where the score is not defined, such as an area under a curve of one class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        try:
            return float(scorer(model, X, y))
        except AttributeError as error:
            raise ValueError(
                f"Expected a score that fits the model, got another ({error}): choose another one."
            ) from error


def warn_of_zero_weights(alpha: Any) -> None:
    """Say that no fit had weights: its scores are those of a prediction that ignores the samples."""
    warn(
        f"Expected some weights that are not zero, got none in any fit with alpha={alpha}: it is too large for samples in "
        "these units, so decrease it, scale the samples, or leave alpha out.",
        ZeroWeightsWarning,
    )


def check_scores(scores: Array) -> Array:
    """Refuse scores (..., folds) of which some are not defined."""
    refuse(
        not np.all(np.isfinite(scores)),
        "Expected a score on every fold, got NaN or infinity: a fold may lack a class or have one sample, so use fewer folds.",
    )
    return scores


def score_sets(reading: Reading, scoring: Any, order: Array, scores: Array) -> Array:
    """Score what S linear models predict for the same samples, (S,); higher is better.

    Parameters
    ----------
    scoring : as in scikit-learn; None is accuracy for classes and R² for numbers
    order : array of shape (S, m) or (1, m)
        Whose target each sample has.
    scores : array of shape (S, m, K)
        Before any link.
    """
    name = name_of_score(None, classifier=reading.are_classes) if scoring is None else scoring
    measures = _measures(reading.are_classes, scores.shape[2])
    if isinstance(name, str) and name in measures:
        predictions = scores if reading.are_classes else reading.loss.inverse_link(scores)
        return measures[name](reading.codes[order], predictions)
    scorer = get_scorer(name) if isinstance(name, str) else name
    rows = np.zeros((scores.shape[1], 1))
    values = np.empty(len(scores))
    for s, samples in enumerate(np.broadcast_to(order, scores.shape[:2])):
        model = with_scores(scores[s], reading.loss, reading.spec.classes, is_single=reading.spec.is_single)
        values[s] = score_model(scorer, model, rows, reading.labels[samples])
    return values


# --- scores of many models at once; all others are asked for one by one -------------------------------------------------

Measure = Callable[[Array, Array], Array]  # of targets (S, m) or (S, m, K) and predictions (S, m, K)


def _measures(are_classes: bool, n_columns: int) -> dict[str, Measure]:
    """List the scores that are computed here, by their names."""
    if not are_classes:
        return {"r2": _r_squared, "neg_mean_squared_error": _negative_squares}
    measures: dict[str, Measure] = {"accuracy": _accuracy, "balanced_accuracy": _balanced_accuracy}
    return measures | {"roc_auc": _area_under_curve} if n_columns == 1 else measures


def _accuracy(codes: Array, scores: Array) -> Array:
    return np.asarray(np.mean(predicted_class(scores) == codes, axis=1))


def _balanced_accuracy(codes: Array, scores: Array) -> Array:
    """Average the accuracy of each class over the classes that occur."""
    is_right = predicted_class(scores) == codes
    total = np.zeros(len(is_right))
    n_classes = np.zeros(len(is_right))
    for code in np.unique(codes):
        is_member = codes == code
        total += np.sum(is_right & is_member, axis=1) / np.maximum(np.sum(is_member, axis=1), 1)
        n_classes += np.any(is_member, axis=1)
    return total / n_classes


def _r_squared(y: Array, predictions: Array) -> Array:
    """Average over targets the share of the variance that is explained, (S,), as scikit-learn does: NaN of one sample."""
    if y.shape[1] < 2:
        return np.full(len(predictions), np.nan)
    unexplained = np.sum((y - predictions) ** 2, axis=1)
    total = np.sum((y - y.mean(axis=1, keepdims=True)) ** 2, axis=1) + 0.0 * unexplained
    share = 1.0 - unexplained / np.where(total > 0, total, 1.0)
    share = np.where(total > 0, share, np.where(unexplained > 0, 0.0, 1.0))
    return np.asarray(share.mean(axis=1))


def _negative_squares(y: Array, predictions: Array) -> Array:
    return -np.asarray(np.mean((y - predictions) ** 2, axis=(1, 2)))


def _area_under_curve(codes: Array, scores: Array) -> Array:
    """Find how often a sample of the second class is above one of the first, (S,), ties by half: the area under the ROC curve."""
    is_positive = codes > 0
    n_positive = is_positive.sum(axis=1)
    n_negative = scores.shape[1] - n_positive
    rank_sum = np.sum(rankdata(scores[..., 0], axis=1) * is_positive, axis=1)
    n_pairs = n_positive * n_negative
    area = (rank_sum - 0.5 * n_positive * (n_positive + 1)) / np.maximum(n_pairs, 1)
    return np.asarray(np.where(n_pairs > 0, area, np.nan))
