"""Detrend: samples without a polynomial along one mode."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin

from tracelearn.arrays.array_api import Array, array_namespace, move_to
from tracelearn.features.axes import read_long_mode
from tracelearn.features.base import LinearTransformer
from tracelearn.samples.scikit_learn import Interval

__all__ = ["Detrend"]


class Detrend(OneToOneFeatureMixin, LinearTransformer):
    """Subtract the polynomial that fits a sample best along one mode: offset and slope, a drift, a curved background.

    Parameters
    ----------
    degree : int, default=1
        That of the polynomial: 0 subtracts the mean along the mode, 1 a straight line.
    mode : int or None, default=None
        The mode along which samples have trends, counted from 0; None is the longest one.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    mean_, var_ : arrays of the shape of a sample
        Mean and variance of every entry without trends.
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    Trends are those of each sample: nothing that is learned changes what ``transform`` returns. ``inverse_transform`` does not
    bring them back.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import Detrend
    >>> x = np.linspace(0, 1, 50)
    >>> Z = Detrend().fit_transform(np.stack([np.sin(9 * x), np.sin(9 * x) + 3 * x - 1]))
    >>> bool(np.allclose(Z[0], Z[1]))
    True
    """

    mean_: Array
    var_: Array

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "degree": [Interval(Integral, 0, None, closed="left")],
        "mode": [Integral, None],
        "tensor_shape": ["array-like", None],
    }

    def __init__(self, degree: int = 1, *, mode: int | None = None, tensor_shape: Any = None) -> None:
        self.degree = degree
        self.mode = mode
        self.tensor_shape = tensor_shape

    def why_not(self, shape: tuple[int, ...], n_samples: int, positive: bool = False) -> str:
        """See ``TensorTransformer``: where a polynomial fits all points of the mode."""
        return "" if shape[read_long_mode(self.mode, shape)] > self.degree + 1 else "nothing but a trend is there"

    def quantities(self, T: Array) -> Array:
        """Return the entries without trends."""
        return self.transform_tensors(T)

    def transform_tensors(self, T: Array) -> Array:
        """Subtract the projection on polynomials."""
        xp = array_namespace(T)
        axis = 1 + read_long_mode(self.mode, tuple(T.shape[1:]))
        T = xp.moveaxis(T, axis, -1)
        # About the first point, so that a large offset leaves no rounding errors.
        T = T - T[..., :1]
        basis = move_to(self.polynomials(T.shape[-1]), T, T.dtype)
        return xp.moveaxis(T - (T @ basis) @ xp.matrix_transpose(basis), -1, axis)

    def invert_tensors(self, Z: Array) -> Array:
        """Project once more, for samples that have a trend nevertheless."""
        return self.transform_tensors(Z)

    def adjoint(self, W: Array) -> Array:
        """Project weights: the projection is symmetric."""
        return self.transform_tensors(W)

    def polynomials(self, n_points: int) -> Array:
        """Find an orthonormal basis (n_points, degree + 1) of the polynomials, fewer where there are fewer points."""
        places = np.linspace(-1.0, 1.0, n_points)
        powers = np.polynomial.legendre.legvander(places, min(self.degree, n_points - 1))
        return np.linalg.qr(powers)[0]
