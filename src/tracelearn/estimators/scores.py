"""What ``score`` returns: shares of right labels and of explained variance, by the definitions of scikit-learn.

``r_squared`` and ``accuracy`` compare checked arrays of any library, ``score_numbers`` and ``score_labels`` what a user passes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, r2_score

from tracelearn.arrays.array_api import Array, array_namespace, is_non_numpy, move_to
from tracelearn.errors import InputError
from tracelearn.samples.per_sample import read_labels, read_targets, read_weights

__all__ = ["accuracy", "r_squared", "score_labels", "score_numbers"]


def score_numbers(y: Any, predictions: Array, sample_weight: Any) -> float:
    """Check targets and weights, and return R², averaged over targets."""
    if not is_non_numpy(predictions):
        predictions = np.asarray(predictions)  # those of a Dask array are computed here
    y = read_targets(y, predictions)
    if math.prod(y.shape) != math.prod(predictions.shape):
        raise InputError(
            f"Expected y of shape {tuple(predictions.shape)}, as predictions are, got shape {tuple(y.shape)}: pass the targets "
            "of fit."
        )
    y = array_namespace(y).reshape(y, predictions.shape)
    weight = read_weights(sample_weight, predictions)
    if is_non_numpy(predictions):
        return r_squared(y, predictions, weight)
    return float(r2_score(y, predictions, sample_weight=weight))


def score_labels(y: Any, labels: Array, sample_weight: Any) -> float:
    """Check labels and weights, and return the share of predicted labels that are right."""
    if y is None:
        raise InputError("Expected a label for each sample, got y=None: score requires y to be passed.")
    if not is_non_numpy(labels):
        labels = np.asarray(labels)
    y, _ = read_labels(y, labels, least=1)
    weight = read_weights(sample_weight, labels)
    if is_non_numpy(labels):
        return accuracy(move_to(y, labels), labels, weight)
    return float(accuracy_score(y, labels, sample_weight=weight))


def _mean(values: Array, weight: Array | None) -> Array:
    """Average over samples, the first axis."""
    xp = array_namespace(values)
    if weight is None:
        return xp.mean(values, axis=0)
    return (weight @ values) / xp.sum(weight)


def r_squared(y: Array, predicted: Array, weight: Array | None = None) -> float:
    """Average over targets the share of the variance of y that is explained.

    For a constant y it is 1 if every prediction is exact, else 0.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.estimators.scores import r_squared
    >>> r_squared(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 2.0]))
    0.5
    """
    xp = array_namespace(y)
    predicted = xp.astype(predicted, y.dtype, copy=False)
    error = _mean((y - predicted) ** 2, weight)
    spread = _mean((y - _mean(y, weight)) ** 2, weight)
    ones = xp.ones_like(spread)
    zeros = xp.zeros_like(spread)
    share = xp.where(spread > 0, 1.0 - error / xp.where(spread > 0, spread, ones), xp.where(error > 0, zeros, ones))
    return float(xp.mean(share))


def accuracy(y: Array, predicted: Array, weight: Array | None = None) -> float:
    """Find the share of labels that are right.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.estimators.scores import accuracy
    >>> accuracy(np.array([0, 1, 2, 3]), np.array([0, 1, 2, 2]))
    0.75
    """
    xp = array_namespace(y)
    is_right = y == predicted
    if weight is None:  # counted: a mean in single precision would not go beyond 2^24
        return int(xp.sum(xp.astype(is_right, xp.int64))) / int(y.shape[0])
    return float(_mean(xp.astype(is_right, weight.dtype), weight))
