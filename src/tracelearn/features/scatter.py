"""ScatterCorrection: samples of one offset and one size each."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sklearn.base import OneToOneFeatureMixin

from tracelearn.arrays.array_api import Array, array_namespace, move_to
from tracelearn.features.axes import read_long_mode
from tracelearn.features.base import TensorTransformer
from tracelearn.samples.scikit_learn import StrOptions

__all__ = ["NEGLIGIBLE", "ScatterCorrection"]

NEGLIGIBLE = 1e-12  # of the size of points: a standard deviation that is no larger is none


class ScatterCorrection(OneToOneFeatureMixin, TensorTransformer):
    """Give every sample one offset and one size along a mode, as spectra have that were scattered alike.

    Grains of different size and different lengths of the path of light multiply a spectrum and add to it, whatever it is made
    of. "snv", the standard normal variate, subtracts the mean of each sample along the mode and divides by its standard
    deviation. "msc", multiplicative scatter correction, fits each sample by an offset and a multiple of the mean training
    sample, and undoes both. Samples of several modes are corrected in every fibre along the mode.

    Parameters
    ----------
    method : "snv" or "msc", default="snv"
    mode : int or None, default=None
        The mode along which samples are corrected, counted from 0; None is the longest one.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    mean_, var_ : arrays of the shape of a sample
        Mean, with which "msc" compares, and variance of every entry.
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import ScatterCorrection
    >>> spectrum = np.sin(np.linspace(0, 3, 100))
    >>> X = np.stack([spectrum, 2 * spectrum + 1, 0.5 * spectrum - 1])
    >>> Z = ScatterCorrection().fit_transform(X)
    >>> bool(np.allclose(Z[0], Z[1]) and np.allclose(Z[0], Z[2]))
    True
    """

    mean_: Array
    var_: Array

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "method": [StrOptions({"snv", "msc"})],
        "mode": [Integral, None],
        "tensor_shape": ["array-like", None],
    }

    def __init__(self, method: str = "snv", *, mode: int | None = None, tensor_shape: Any = None) -> None:
        self.method = method
        self.mode = mode
        self.tensor_shape = tensor_shape

    def why_not(self, shape: tuple[int, ...], n_samples: int, positive: bool = False) -> str:
        """See ``TensorTransformer``: some points to find a size by."""
        n_points = shape[read_long_mode(self.mode, shape)]
        return "samples have too few points to find their size" if n_points < 3 else ""

    def transform_tensors(self, T: Array) -> Array:
        """Subtract the offset of every fibre, and divide by its size."""
        xp = array_namespace(T)
        axis = 1 + read_long_mode(self.mode, tuple(T.shape[1:]))
        _, size, variate = _normal_variate(T, axis)
        if self.method == "snv":
            return variate
        level, size_of_reference, profile = _normal_variate(move_to(self.mean_, T, T.dtype)[None, ...], axis)
        correlation = xp.mean(variate * profile, axis=axis, keepdims=True)
        # Fibres that have nothing in common with the mean sample cannot be compared with it: they keep their size.
        is_comparable = xp.abs(correlation) > NEGLIGIBLE
        safe = xp.where(is_comparable, correlation, xp.ones_like(correlation))
        return level + variate * xp.where(is_comparable, size_of_reference / safe, size)


def _normal_variate(T: Array, axis: int) -> tuple[Array, Array, Array]:
    """Standardise tensors along an axis; return means, standard deviations and standardised tensors.

    Fibres that are constant up to rounding are given a standard deviation of one.
    """
    xp = array_namespace(T)
    mean = xp.mean(T, axis=axis, keepdims=True)
    deviation = T - mean
    largest = xp.max(xp.abs(deviation), axis=axis, keepdims=True)
    varies = largest > NEGLIGIBLE * xp.abs(mean)
    largest = xp.where(varies, largest, xp.ones_like(largest))
    # Scaled first: squares of large numbers would overflow.
    spread = xp.sqrt(xp.mean((deviation / largest) ** 2, axis=axis, keepdims=True))
    size = xp.where(varies, largest * spread, xp.ones_like(spread))
    return mean, size, deviation / size
