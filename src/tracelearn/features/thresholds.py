"""Thresholds: whether means over parts of a sample are above some values, so that a linear model learns steps."""

from __future__ import annotations

import math
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from scipy.stats import norm

from tracelearn.arrays.array_api import Array, array_namespace, move_to
from tracelearn.features.axes import read_long_mode
from tracelearn.features.base import TAKES_LONG, TensorTransformer
from tracelearn.samples.scikit_learn import Interval

__all__ = ["Thresholds"]

_MOST_ENTRIES = 25_000  # of a transformed sample, in a search
_MOST_NUMBERS = 50_000_000  # of all transformed samples: 400 MB


class Thresholds(TensorTransformer):
    """Tell for the means over intervals of a mode whether they are above thresholds, as trees do.

    A linear model of such steps is a sum of functions of one mean each, which may bend, saturate or fall again. The thresholds of
    a mean are its quantiles if it is distributed normally: they follow from its mean and variance over the training samples, so
    that batches add up.

    Parameters
    ----------
    n_thresholds : int, default=7
        How many each mean is compared with.
    n_intervals : int, default=6
        Into how many intervals of equal length the mode is cut, at most as many as it has entries.
    mode : int or None, default=None
        The mode that is cut, counted from 0; None is the longest one.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    mean_, var_ : arrays of shape (I1, ..., n_intervals, ..., IN)
        Of the mean over each interval.
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import Thresholds
    >>> X = np.linspace(-1, 1, 9)[:, None]
    >>> Thresholds(1).fit_transform(X).ravel()
    array([0., 0., 0., 0., 0., 1., 1., 1., 1.])
    """

    mean_: Array
    var_: Array

    keeps_entries = False
    is_flexible = True

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "n_thresholds": [Interval(Integral, 1, None, closed="left")],
        "n_intervals": [Interval(Integral, 1, None, closed="left")],
        "mode": [Integral, None],
        "tensor_shape": ["array-like", None],
    }

    def __init__(
        self, n_thresholds: int = 7, *, n_intervals: int = 6, mode: int | None = None, tensor_shape: Any = None
    ) -> None:
        self.n_thresholds = n_thresholds
        self.n_intervals = n_intervals
        self.mode = mode
        self.tensor_shape = tensor_shape

    def why_not(self, shape: tuple[int, ...], n_samples: int, positive: bool = False) -> str:
        """See ``TensorTransformer``: not too many means."""
        n_entries = self.n_thresholds * math.prod(self._shape_of_means(shape))
        return TAKES_LONG if n_entries > _MOST_ENTRIES or n_samples * n_entries > _MOST_NUMBERS else ""

    @property
    def output_shape_(self) -> tuple[int, ...]:
        """All means for every threshold."""
        return (self.n_thresholds, *self._shape_of_means(self.sample_shape_))

    def numbers_per_sample(self, shape: tuple[int, ...]) -> int:
        """Count the entries of a sample and the steps."""
        return math.prod(shape) + self.n_thresholds * math.prod(self._shape_of_means(shape))

    def transform_tensors(self, T: Array) -> Array:
        """Compare means with thresholds."""
        xp = array_namespace(T)
        means = self.quantities(T)[:, None, ...]
        return xp.astype(means > move_to(self.thresholds(), T, T.dtype)[None, ...], T.dtype)

    def quantities(self, T: Array) -> Array:
        """Average tensors (n, I1, ..., IN) over intervals of the mode."""
        xp = array_namespace(T)
        mode = read_long_mode(self.mode, tuple(T.shape[1:]))
        T = xp.moveaxis(T, mode + 1, -1)
        parts = [xp.mean(T[..., first:last], axis=-1) for first, last in pairwise(self.edges(T.shape[-1]))]
        return xp.moveaxis(xp.stack(parts, axis=-1), -1, mode + 1)

    def edges(self, n_points: int) -> list[int]:
        """Cut so many points into intervals: where each begins, and the end of the last."""
        return [int(edge) for edge in np.linspace(0, n_points, min(self.n_intervals, n_points) + 1)]

    def thresholds(self) -> Array:
        """Find what means are compared with (n_thresholds, I1, ..., n_intervals, ..., IN): quantiles of normal distributions."""
        places = norm.ppf(np.arange(1, self.n_thresholds + 1) / (self.n_thresholds + 1))
        return self.mean_ + np.sqrt(self.var_) * places.reshape(-1, *(1,) * self.mean_.ndim)

    def _shape_of_means(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        mode = read_long_mode(self.mode, shape)
        return (*shape[:mode], min(self.n_intervals, shape[mode]), *shape[mode + 1 :])
