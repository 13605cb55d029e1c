"""What a user's scorer makes of held-out scores: it is shown an estimator that has them."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer
from sklearn.utils.metaestimators import available_if

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.losses import Loss
from tracelearn.search.folds import found_classes

__all__ = ["scored", "with_scores"]


class _Fixed(BaseEstimator):
    """An estimator whose scores of some samples are known: what a scorer looks at."""

    def __init__(self, scores: Array, loss: Any, classes: Array | None, single: bool) -> None:
        self.scores, self.loss, self.classes_, self.single = scores, loss, classes, single

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Any) -> Array:
        if self.classes_ is None:
            found = self.loss.inverse_link(self.scores)
            return found[:, 0] if self.single else found
        return self.classes_[np.asarray(found_classes(self.scores), dtype=int)]


class _FixedRegressor(RegressorMixin, _Fixed):
    pass


class _FixedClassifier(ClassifierMixin, _Fixed):
    def decision_function(self, X: Any) -> Array:
        return self.scores[:, 0] if self.scores.shape[1] == 1 else self.scores

    @available_if(lambda self: self.loss.has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        return np.exp(self.loss.log_probabilities(self.scores))


def with_scores(model: Any, loss: Loss, scores: Array) -> Any:
    """Make an estimator that has given scores (n, K) of some samples, for a scorer to look at."""
    if model._learns_classes:
        return _FixedClassifier(scores, loss, to_numpy(model.classes_), True)
    return _FixedRegressor(scores, loss, None, model._single)


def scored(scoring: Any, known: Any, labels: Array, weight: Array | None) -> float:
    """Ask the user's scorer of an estimator whose scores of these samples are known; NaN where there is none."""
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    rows = np.zeros((len(labels), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)  # a fold without a score is left out
        if weight is not None:
            with suppress(TypeError):  # scorers that take no weights
                return float(scorer(known, rows, labels, sample_weight=weight))
        try:
            return float(scorer(known, rows, labels))
        except AttributeError:
            if hasattr(known, "predict_proba") or not hasattr(known, "decision_function"):
                raise
            raise ValueError(
                f"Expected a scoring that needs no probabilities, which this loss has only after the search, got {scoring!r}: "
                "choose another, or loss='log_loss'."
            ) from None
