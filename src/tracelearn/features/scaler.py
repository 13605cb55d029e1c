"""TensorStandardScaler: means to zero, spreads to one."""

from __future__ import annotations

import functools
import math
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin

from tracelearn.arrays.array_api import Array, move_to
from tracelearn.features.axes import read_modes
from tracelearn.features.base import LinearTransformer
from tracelearn.features.summaries import Summary, squares, summarise
from tracelearn.samples.scikit_learn import StrOptions

__all__ = ["TensorStandardScaler"]


class TensorStandardScaler(OneToOneFeatureMixin, LinearTransformer):
    """Remove means and scale to unit variance: each entry, each index of some modes, or all entries alike.

    ``(X - mean_) / scale_``, as scikit-learn's ``StandardScaler``, which refuses tensors. Scaling each entry on its own
    destroys a low-rank signal where entries differ in size for a reason; one scale for each channel, or one for all,
    keeps the rank of a sample in the modes along which the scale does not vary.

    Parameters
    ----------
    per : {"feature", "global"}, int or sequence of ints, default="feature"
        Along which modes means and scales differ. "feature": every entry has its own. "global": one for all. A mode, or
        several, counted from 0: ``per=0`` for samples of (channels, times) is one mean and one scale for each channel,
        over all samples and all times.
    with_mean, with_std : bool, default=True
        Whether to subtract the mean, and to divide by the standard deviation.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).
    copy : bool, default=True
        With False, ``transform`` and ``inverse_transform`` work in the memory of X where they can.

    Attributes
    ----------
    mean_, var_, scale_ : arrays that broadcast against a sample, or None
        Of the shape of a sample, with size 1 for the modes along which they do not vary. Entries without variance have
        scale 1. The variance divides by the number of entries, not by one less.
    n_samples_seen_ : int, or float with sample weights
        Number of samples, or sum of their weights.
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    Features centred one by one but scaled together are two steps:
    ``make_pipeline(TensorStandardScaler(with_std=False), TensorStandardScaler("global", with_mean=False))``.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import TensorStandardScaler
    >>> X = np.random.default_rng(0).normal(5.0, [[1.0], [100.0]], size=(50, 2, 30))  # two channels, 30 times
    >>> scaler = TensorStandardScaler(per=0).fit(X)
    >>> scaler.scale_.round(-1)
    array([[  0.],
           [100.]])
    >>> scaler.transform(X).std(axis=(0, 2)).round(6)
    array([1., 1.])
    >>> bool(np.allclose(scaler.inverse_transform(scaler.transform(X)), X))
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "per": [StrOptions({"feature", "global"}), Integral, "array-like"],
        "with_mean": ["boolean"],
        "with_std": ["boolean"],
        "tensor_shape": ["array-like", None],
        "copy": ["boolean"],
    }

    mean_: Array | None
    var_: Array | None
    scale_: Array | None

    def __init__(
        self,
        per: Any = "feature",
        *,
        with_mean: bool = True,
        with_std: bool = True,
        tensor_shape: Any = None,
        copy: bool = True,
    ) -> None:
        self.per = per
        self.with_mean = with_mean
        self.with_std = with_std
        self.tensor_shape = tensor_shape
        self.copy = copy

    def shared_axes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """List the axes of tensors (n, I1, ..., IN) along which there is one mean and scale for all entries."""
        if isinstance(self.per, str):
            modes = tuple(range(len(shape) if self.per == "feature" else 0))
        else:
            modes = read_modes(self.per, shape, "per, if neither 'feature' nor 'global',")
        return tuple(mode + 1 for mode in range(len(shape)) if mode not in modes)

    def summarise_tensors(self, T: Array, weight: Array) -> Summary:
        """Sum entries and their squares over all that share a mean."""
        shape = tuple(T.shape[1:])
        shared = self.shared_axes(shape)
        return summarise(T, weight, functools.partial(squares, shared=shared, shape=shape), shared)

    def attributes_from(self, summary: Summary, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return the means and scales that ``with_mean`` and ``with_std`` ask for."""
        mean = summary.mean if self.with_mean or self.with_std else None
        if not self.with_std:
            return {"mean_": mean, "var_": None, "scale_": None}
        var = summary.sums[0] / (summary.weight * (math.prod(shape) // summary.mean.size))
        # A variance below the rounding of the entries counts as zero.
        is_constant = var <= (summary.eps * summary.mean) ** 2
        return {"mean_": mean, "var_": var, "scale_": np.where(is_constant, 1.0, np.sqrt(var))}

    def past_summary(self) -> Summary:
        """Return means and sums of squares, zeros for those that were not wanted."""
        weight = float(self.n_samples_seen_)
        shape = self.sample_shape_
        shared = self.shared_axes(shape)
        size = tuple(1 if axis in shared else shape[axis - 1] for axis in range(1, len(shape) + 1))
        # Without with_std the variances are never used: zeros keep the summary complete.
        mean = np.zeros(size) if self.mean_ is None else self.mean_
        var = np.zeros(size) if self.var_ is None else self.var_
        entries_of_each = math.prod(shape) // math.prod(size)
        products = functools.partial(squares, shared=shared, shape=shape)
        return Summary(weight, mean, [weight * entries_of_each * var], products)

    def transform_tensors(self, T: Array) -> Array:
        """Subtract means and divide by scales."""
        T = T - move_to(self.mean_, T, T.dtype) if self.with_mean else T
        return T / move_to(self.scale_, T, T.dtype) if self.with_std else T

    def invert_tensors(self, Z: Array) -> Array:
        """Multiply by scales and add means."""
        Z = Z * move_to(self.scale_, Z, Z.dtype) if self.with_std else Z
        return Z + move_to(self.mean_, Z, Z.dtype) if self.with_mean else Z

    def adjoint(self, W: Array) -> Array:
        """Divide by scales."""
        return W / move_to(self.scale_ if self.with_std else np.ones(()), W, W.dtype)
