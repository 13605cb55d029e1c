"""Held-out predictions scored by a user's scorer, which is given a stand-in estimator that returns these predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer
from sklearn.utils.metaestimators import available_if

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.losses import Loss
from tracelearn.search.splits import predicted_class

__all__ = ["scored", "scorer_of", "with_scores"]


class _Fixed(BaseEstimator):
    """A stand-in estimator for a scorer: it returns the scores (n, K) that it was made with, whatever X is."""

    def __init__(self, scores: Array, loss: Any, classes: Array | None, single: bool) -> None:
        self.scores = scores
        self.loss = loss
        self.classes_ = classes
        self.single = single

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Any) -> Array:
        if self.classes_ is None:
            predictions = self.loss.inverse_link(self.scores)
            return predictions[:, 0] if self.single else predictions
        return self.classes_[np.asarray(predicted_class(self.scores), dtype=int)]


class _FixedRegressor(RegressorMixin, _Fixed):
    """A regressor whose predictions are known."""


class _FixedClassifier(ClassifierMixin, _Fixed):
    """A classifier whose scores are known, with probabilities where the loss has some."""

    def decision_function(self, X: Any) -> Array:
        return self.scores[:, 0] if self.scores.shape[1] == 1 else self.scores

    @available_if(lambda self: self.loss.has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        return np.exp(self.loss.log_probabilities(self.scores))


def with_scores(scores: Array, loss: Loss, classes: Array | None = None, *, is_single: bool = True) -> Any:
    """Make a stand-in estimator that returns given scores (n, K) of samples, for a scorer to look at.

    Parameters
    ----------
    scores : array of shape (n, K)
    loss : Loss
    classes : labels, or None for numbers
    is_single : whether numbers are predicted without an axis of targets
    """
    if classes is not None:
        return _FixedClassifier(scores, loss, to_numpy(classes), True)
    return _FixedRegressor(scores, loss, None, is_single)


def scorer_of(
    scoring: Any, loss: Loss, classes: Array | None, y: Array, weight: Array | None, *, is_single: bool = True
) -> Callable[[Array, Array], Array]:
    """Make a function of an index (m,) and scores (m, M, K) of these samples: what each of M models is worth to a user, (M,)."""

    def score(index: Array, scores: Array) -> Array:
        labels = y[index]
        weight_of_index = None if weight is None else weight[index]
        values = np.empty(scores.shape[1])
        for model in range(scores.shape[1]):
            fixed = with_scores(to_numpy(scores[:, model, :]), loss, classes, is_single=is_single)
            values[model] = scored(scoring, fixed, labels, weight_of_index)
        return values

    return score


def scored(scoring: Any, fixed: Any, labels: Array, weight: Array | None) -> float:
    """Return what the user's scorer says of a stand-in from ``with_scores``; NaN where the score is not defined."""
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    rows = np.zeros((len(labels), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)  # a fold without a score is left out
        if weight is not None:
            with suppress(TypeError):  # scorers that take no weights
                return float(scorer(fixed, rows, labels, sample_weight=weight))
        try:
            return float(scorer(fixed, rows, labels))
        except AttributeError:
            if hasattr(fixed, "predict_proba") or not hasattr(fixed, "decision_function"):
                raise
            raise ValueError(
                f"Expected a scoring that needs no probabilities, which this loss has only after the search, got {scoring!r}: "
                "choose another, or loss='log_loss'."
            ) from None
