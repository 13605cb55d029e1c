"""What ``score`` returns for arrays of other libraries, by the definitions of scikit-learn."""

from __future__ import annotations

from tracelearn.arrays.array_api import Array, array_namespace

__all__ = ["accuracy", "r_squared"]


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
