"""Logarithm: positive entries on the scale of their ratios."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin

from tracelearn.arrays.array_api import Array, array_namespace, move_to
from tracelearn.features.base import TensorTransformer

__all__ = ["Logarithm"]

# Logarithms are clipped so many standard deviations below their mean: one entry near zero must not outweigh all others.
_FARTHEST = 6.0


class Logarithm(OneToOneFeatureMixin, TensorTransformer):
    """Take the natural logarithm of samples whose entries are all positive: power, intensities, concentrations.

    Gains and noise that multiply such entries are added to their logarithms, and a few large entries no longer dominate.

    Parameters
    ----------
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    mean_, var_ : arrays of the shape of a sample
        Mean and variance of the logarithm of every entry.
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    Logarithms more than six standard deviations below the mean of their entry count as that, and so do entries of new samples
    that are not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import Logarithm
    >>> X = np.exp(np.random.default_rng(0).normal(size=(100, 3, 2)))
    >>> Z = Logarithm().fit_transform(X)
    >>> bool(np.allclose(np.exp(Z), X))
    True
    """

    mean_: Array
    var_: Array

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "tensor_shape": ["array-like", None],
    }

    def __init__(self, *, tensor_shape: Any = None) -> None:
        self.tensor_shape = tensor_shape

    def why_not(self, shape: tuple[int, ...], n_samples: int, positive: bool = False) -> str:
        """See ``TensorTransformer``: where not all entries are positive."""
        return "" if positive else "entries are not all positive"

    def quantities(self, T: Array) -> Array:
        """Take logarithms; refuse entries that have none."""
        xp = array_namespace(T)
        smallest = float(xp.min(T))
        if smallest <= 0:
            raise ValueError(
                f"Expected samples of positive entries for their logarithm, got {smallest:g}: leave it out."
            )
        return xp.log(T)

    @property
    def floor_(self) -> Array:
        """The smallest logarithm of every entry, which replaces smaller ones and those of entries that are not positive."""
        return self.mean_ - _FARTHEST * np.sqrt(self.var_)

    def transform_tensors(self, T: Array) -> Array:
        """Take logarithms, none below ``floor_``."""
        xp = array_namespace(T)
        floor = move_to(self.floor_, T, T.dtype)
        positive = T > 0
        logs = xp.log(xp.where(positive, T, xp.ones_like(T)))
        return xp.where(positive, xp.maximum(logs, floor), floor)
