"""What inference takes from the search: folds, errors of means, estimators with given scores, and what a search is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tracelearn.arrays.array_api import Array
from tracelearn.losses import Loss
from tracelearn.samples.reading import Spec
from tracelearn.search import TensorClassifier, TensorRegressor
from tracelearn.search import scorers
from tracelearn.search.folds import Folds, corrected_error, folds_of
from tracelearn.search.folds import found_classes as predicted_class

__all__ = ["Folds", "corrected_error", "is_search", "make_folds", "predicted_class", "with_scores"]


def is_search(model: Any) -> bool:
    """Tell whether a model chooses its parameters by cross-validation of our own."""
    return isinstance(model, TensorClassifier | TensorRegressor)


def make_folds(
    cv: Any, y: Array, groups: Any = None, *, random_state: Any = 0, classifier: bool, repeats: int = 1
) -> Folds:
    """Split samples into folds."""
    return folds_of(cv, y, None, {} if groups is None else {"groups": groups}, classifier=classifier, repeats=repeats)


def with_scores(spec: Spec, loss: Loss, scores: Array) -> Any:
    """Make an estimator that has given scores (n, K) of some samples, for a scorer to look at."""
    known = SimpleNamespace(_learns_classes=spec.classes is not None, classes_=spec.classes, _single=spec.is_single)
    return scorers.with_scores(known, loss, scores)
