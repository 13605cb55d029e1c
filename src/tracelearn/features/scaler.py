"""TensorStandardScaler: means to zero, spreads to one."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import (
    OneToOneFeatureMixin,
    _fit_context,
)
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array
from tracelearn.features.base import (
    TensorTransformer,
    blocks,
    centred,
    first_entries,
    kept_sum,
    n_axes,
    read_batch,
    read_weight_tensors,
    samples_seen,
)
from tracelearn.samples.checks import check_overflow, check_range, read_samples
from tracelearn.samples.undo import undone_on_failure

__all__ = ["TensorStandardScaler"]


class TensorStandardScaler(OneToOneFeatureMixin, TensorTransformer):
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
        The shape of a sample when X comes flat, as (n_samples, n_features).
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

    var_: Array
    scale_: Array

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "per": [StrOptions({"feature", "global"}), Integral, "array-like"],
        "with_mean": ["boolean"],
        "with_std": ["boolean"],
        "tensor_shape": ["array-like", None],
        "copy": ["boolean"],
    }

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

    @undone_on_failure
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn means and scales from all samples.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
        y : ignored
        sample_weight : array of shape (n_samples,), default=None
        """
        self._forget()
        self.partial_fit(X, y, sample_weight)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    @undone_on_failure
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more samples; afterwards means and scales are those of all samples so far."""
        first = not hasattr(self, "n_samples_seen_")
        T, weight = read_batch(self, X, sample_weight, first=first)
        kept = self._kept_shape()
        if self.with_mean or self.with_std:
            spread = math.prod(self.sample_shape_) // math.prod(kept)
            seen, mean, squares = 0.0, first_entries(T, kept), np.zeros(kept)
            if not first:
                seen, mean = float(self.n_samples_seen_), self.mean_
                squares = self.var_ * (seen * spread) if self.with_std else squares
            with np.errstate(over="ignore", invalid="ignore"):  # judged below
                seen, mean, squares = self._fold(T, weight, seen, mean, squares)
            self._keep(T, mean, squares / (seen * spread))
        else:
            self.mean_ = self.var_ = self.scale_ = None
        self.n_samples_seen_ = samples_seen(self, T.shape[0], weight)
        return self

    def _kept_shape(self) -> tuple[int, ...]:
        shape = self.sample_shape_
        if isinstance(self.per, str):
            return shape if self.per == "feature" else (1,) * len(shape)
        modes: list[Any] = [self.per] if isinstance(self.per, Integral) else list(self.per)
        order = len(shape)
        if not all(isinstance(mode, Integral) and -order <= int(mode) < order for mode in modes):
            raise ValueError(
                f"Expected per to be 'feature', 'global' or modes from 0 to {order - 1} of samples of shape {shape}, got "
                f"{self.per!r}: modes are the axes of X without the first."
            )
        own = {int(mode) % order for mode in modes}
        return tuple(size if mode in own else 1 for mode, size in enumerate(shape))

    def _fold(
        self, T: Array, weight: Array | None, seen: float, mean: Array, squares: Array
    ) -> tuple[float, Array, Array]:
        kept = mean.shape
        spread = math.prod(T.shape[1:]) // math.prod(kept)
        for block in blocks(T):
            rows, step, total = centred(T[block], None if weight is None else weight[block], mean)
            flat = rows.reshape(rows.shape[0], -1)
            own = kept_sum(np.einsum("ij,ij->j", flat, flat).reshape(T.shape[1:]), kept)
            # Chan, Golub and LeVeque (1979): what two parts with means a step apart add to the sum of squares.
            squares = squares + own + (spread * seen / (seen + total) * total) * step**2
            seen += total
            mean = mean + (total / seen) * step
        return seen, mean, squares

    def _keep(self, T: Array, mean: Array, var: Array) -> None:
        largest = float(np.max(var))
        if not np.finfo(np.float64).tiny < largest < np.inf:
            check_range(T, "X")
        self.mean_ = mean
        self.var_ = self.scale_ = None
        if self.with_std:
            # A spread below the rounding of the entries themselves is no spread.
            constant = var <= (np.finfo(T.dtype).eps * mean) ** 2
            self.var_ = var
            self.scale_ = np.where(constant, 1.0, np.sqrt(var))

    def transform(self, X: Any) -> Array:
        """Scale samples; tensors come back as tensors, flat samples flat, float32 as float32."""
        check_is_fitted(self)
        steps = [(np.subtract, self.mean_)] * self.with_mean + [(np.divide, self.scale_)] * self.with_std
        return self._apply(X, steps)

    def inverse_transform(self, X: Any) -> Array:
        """Bring scaled samples back to where they were."""
        check_is_fitted(self)
        steps = [(np.multiply, self.scale_)] * self.with_std + [(np.add, self.mean_)] * self.with_mean
        return self._apply(X, steps)

    def _apply(self, X: Any, steps: list[tuple[Any, Array]]) -> Array:
        self._makes_tables(X)
        rows, shape = read_samples(self, X, reset=False)
        shaped = n_axes(X) > 2
        source = rows.reshape(-1, *shape)
        own = self.copy or not source.flags.writeable
        target = np.empty(source.shape, source.dtype) if own else source
        if own and not steps:
            target[...] = source
        for operation, values in steps:
            # In double precision and rounded once, through NumPy's buffers: no wide copy of narrow data.
            with np.errstate(over="ignore"):  # judged below
                operation(source, values, out=target, casting="same_kind")
            source = target
        check_overflow(target, "scaled entries")
        return target if shaped else target.reshape(rows.shape)

    def inverse_transform_weights(self, W: Array) -> Array:
        """Express weights that were learned on scaled samples as weights of the samples themselves.

        ``<W, transform(X)>`` and ``<inverse_transform_weights(W), X>`` differ by a constant.

        Parameters
        ----------
        W : array of shape (I1, ..., IN) or (K, I1, ..., IN), such as ``coef_`` of a model
        """
        check_is_fitted(self)
        W = read_weight_tensors(W, self.sample_shape_)
        return W / self.scale_ if self.with_std else W.copy()
