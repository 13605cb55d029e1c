"""SavitzkyGolay: samples smoothed along one mode, or their derivatives."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from array_api_compat import device
from scipy.signal import savgol_filter
from sklearn.base import OneToOneFeatureMixin

from tracelearn.arrays.array_api import Array, array_namespace, move_to
from tracelearn.errors import refuse
from tracelearn.features.axes import read_long_mode
from tracelearn.features.base import LinearTransformer
from tracelearn.features.summaries import Summary, squares, summarise
from tracelearn.samples.scikit_learn import Interval

__all__ = ["SavitzkyGolay"]

# Singular values below this share of the largest one belong to what the filter drops, such as constants and fast oscillations.
_DROPPED = 1e-10


class SavitzkyGolay(OneToOneFeatureMixin, LinearTransformer):
    """Smooth samples along one mode, or take a derivative along it: polynomials are fitted to a window around every point.

    The derivative of a spectrum is free of its offset, the second derivative of its slope as well, and both set narrow peaks
    off from a broad background. At each end of the mode the polynomial of the outermost window is read off, as in
    ``scipy.signal.savgol_filter``.

    Parameters
    ----------
    derivative : int, default=0
        0 smooths, 1 is the slope of the polynomial per point, 2 its second derivative.
    window : odd int, default=15
        How many points each polynomial is fitted to.
    degree : int, default=2
        That of the polynomials, at least ``derivative``.
    mode : int or None, default=None
        The mode along which samples are smooth, counted from 0; None is the longest one.
    scaling : bool, default=False
        Whether every entry is divided by its standard deviation afterwards: small peaks then count as much as large ones.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    mean_ : array of the shape of a sample
    var_ : array of the shape of a sample
        The variance of every filtered entry.
    scale_ : array of the shape of a sample
        What filtered entries are divided by: the root of ``var_``, or one.
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    The filter is a matrix, so weights of transformed samples are weights of the samples, see ``coef_to_input``. It drops some
    fast oscillations, and a derivative drops constants as well: ``inverse_transform`` returns samples without these.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import SavitzkyGolay
    >>> x = np.linspace(0, 1, 101)
    >>> X = np.stack([x**2, x**2 + 5.0])  # the second is the first on another level
    >>> Z = SavitzkyGolay(derivative=1).fit_transform(X)
    >>> bool(np.allclose(Z, 2 * x * 0.01))
    True
    """

    mean_: Array
    var_: Array
    scale_: Array

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "derivative": [Interval(Integral, 0, None, closed="left")],
        "window": [Interval(Integral, 1, None, closed="left")],
        "degree": [Interval(Integral, 0, None, closed="left")],
        "mode": [Integral, None],
        "scaling": ["boolean"],
        "tensor_shape": ["array-like", None],
    }

    def __init__(
        self,
        derivative: int = 0,
        *,
        window: int = 15,
        degree: int = 2,
        mode: int | None = None,
        scaling: bool = False,
        tensor_shape: Any = None,
    ) -> None:
        self.derivative = derivative
        self.window = window
        self.degree = degree
        self.mode = mode
        self.scaling = scaling
        self.tensor_shape = tensor_shape

    def why_not(self, shape: tuple[int, ...], n_samples: int, positive: bool = False) -> str:
        """See ``TensorTransformer``: the window must fit into the mode."""
        length = shape[read_long_mode(self.mode, shape)]
        return f"the mode has {length} points, fewer than the window" if length < self.window else ""

    # --- learning ----------------------------------------------------------------------------------------------------

    def summarise_tensors(self, T: Array, weight: Array) -> Summary:
        """Sum entries, and the squares of filtered ones about their mean."""
        return summarise(T, weight, self.filtered_squares)

    def filtered_squares(self, rows: Array) -> list[Array]:
        """Sum squares of filtered rows."""
        return squares(self.filtered(rows))

    def attributes_from(self, summary: Summary, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return the mean of every entry, and variance and scale of every filtered one."""
        var = summary.sums[0] / summary.weight
        # A spread below the rounding of the entries is none; the filter rounds all of them as it does the largest.
        varies = var > (summary.eps * np.max(np.abs(summary.mean))) ** 2
        scale = np.where(varies, np.sqrt(var), 1.0) if self.scaling else np.ones_like(var)
        return {"mean_": summary.mean, "var_": var, "scale_": scale}

    def past_summary(self) -> Summary:
        """Return means, and sums of squares of filtered entries."""
        weight = float(self.n_samples_seen_)
        return Summary(weight, self.mean_, [weight * self.var_], self.filtered_squares)

    # --- applying ----------------------------------------------------------------------------------------------------

    def transform_tensors(self, T: Array) -> Array:
        """Filter, then divide by the scale."""
        return self.filtered(T) / move_to(self.scale_, T, T.dtype)

    def invert_tensors(self, Z: Array) -> Array:
        """Multiply by the scale and by the pseudoinverse of the filter."""
        axis = 1 + read_long_mode(self.mode, self.sample_shape_)
        matrix = self._along(np.eye(self.sample_shape_[axis - 1]), axis=1).T  # filtered = matrix @ points
        inverse = move_to(np.linalg.pinv(matrix, rcond=_DROPPED), Z, Z.dtype)
        xp = array_namespace(Z)
        Z = xp.moveaxis(Z * move_to(self.scale_, Z, Z.dtype), axis, -1)
        return xp.moveaxis(Z @ xp.matrix_transpose(inverse), -1, axis)

    def adjoint(self, W: Array) -> Array:
        """Divide by the scale, then multiply by the transpose of the filter."""
        xp = array_namespace(W)
        axis = 1 + read_long_mode(self.mode, self.sample_shape_)
        V = xp.moveaxis(W / move_to(self.scale_, W, W.dtype), axis, -1)
        responses = self.responses()
        n_points, half = V.shape[-1], self.window // 2
        inner = V[..., half : n_points - half]
        first = V[..., :half] @ move_to(responses[:half], V, V.dtype)
        last = V[..., n_points - half :] @ move_to(responses[half + 1 :], V, V.dtype)
        n_inner = inner.shape[-1]
        weights = _between_zeros(first, 0, n_points) + _between_zeros(last, n_points - self.window, n_points)
        for k, factor in enumerate(responses[half].tolist()):
            weights = weights + _between_zeros(factor * inner, k, n_inner + self.window - 1)
        return xp.moveaxis(weights, -1, axis)

    def filtered(self, T: Array) -> Array:
        """Filter tensors (n, I1, ..., IN), without the scale."""
        return self._along(T, axis=1 + read_long_mode(self.mode, tuple(T.shape[1:])))

    def _along(self, T: Array, axis: int) -> Array:
        """Filter along one axis: inner points as a weighted sum of shifted arrays, each end by a matrix; see ``responses``."""
        xp = array_namespace(T)
        T = xp.moveaxis(T, axis, -1)
        responses = self.responses()
        n_points, half = T.shape[-1], self.window // 2
        refuse(
            n_points < self.window,
            f"Expected a mode of at least window={self.window} points, got {n_points}: choose a smaller window.",
        )
        first = T[..., : self.window] @ move_to(responses[:half].T, T, T.dtype)
        last = T[..., n_points - self.window :] @ move_to(responses[half + 1 :].T, T, T.dtype)
        n_inner = n_points - self.window + 1
        inner = 0.0 * T[..., :n_inner]
        for k, factor in enumerate(responses[half].tolist()):
            inner = inner + factor * T[..., k : k + n_inner]
        return xp.moveaxis(xp.concat([first, inner, last], axis=-1), -1, axis)

    def responses(self) -> Array:
        """Find how the filtered points of one window depend on its points, a matrix (window, window).

        The middle row serves every inner point of a mode, the others those at its ends.
        """
        refuse(
            self.window % 2 == 0 or not self.derivative <= self.degree < self.window,
            "Expected an odd window with more points than the degree, and a degree of at least the derivative, got "
            f"window={self.window}, degree={self.degree} and derivative={self.derivative}.",
        )
        matrix = savgol_filter(np.eye(self.window), self.window, self.degree, deriv=self.derivative, axis=0)
        return np.asarray(matrix)


def _between_zeros(values: Array, start: int, length: int) -> Array:
    """Pad values (..., m) with zeros to (..., length), so that they begin at ``start``."""
    xp = array_namespace(values)
    like_values = {"dtype": values.dtype, "device": device(values)}
    before = xp.zeros((*values.shape[:-1], start), **like_values)
    after = xp.zeros((*values.shape[:-1], length - start - values.shape[-1]), **like_values)
    return xp.concat([before, values, after], axis=-1)
