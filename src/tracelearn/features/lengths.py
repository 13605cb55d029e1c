"""Lengths: how long each sample is, as the only entry."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, move_to
from tracelearn.features.axes import read_modes
from tracelearn.features.base import TensorTransformer
from tracelearn.features.gaps import lengths_of

__all__ = ["Lengths"]


class Lengths(TensorTransformer):
    """Count the times of each sample, up to the last at which any of its channels has a value.

    Parameters
    ----------
    time_axis : int, default=-1
        The mode of a sample that is time.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    mean_, var_ : arrays of shape (1,)
        Mean and variance of the lengths of the training samples.
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import Lengths
    >>> Lengths().fit_transform([np.ones((2, 3)), np.ones((2, 5))])
    array([[3.],
           [5.]])
    """

    mean_: Array

    keeps_entries = False
    takes_gaps = True

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "time_axis": [Integral],
        "tensor_shape": ["array-like", None],
    }

    def __init__(self, time_axis: int = -1, *, tensor_shape: Any = None) -> None:
        self.time_axis = time_axis
        self.tensor_shape = tensor_shape

    @property
    def output_shape_(self) -> tuple[int, ...]:
        """One number."""
        return (1,)

    def time_mode(self, shape: tuple[int, ...]) -> int | None:
        """Find the mode that is time, along which samples may be of any length."""
        return read_modes(self.time_axis, shape, "time_axis")[0]

    def quantities(self, T: Array) -> Array:
        """Return the lengths."""
        return self.transform_tensors(T)

    def transform_tensors(self, T: Array) -> Array:
        """Count the times of each sample."""
        lengths = lengths_of(T, self.time_mode(tuple(T.shape[1:])) or 0)
        return move_to(lengths[:, None].astype(np.float64), T, T.dtype)
