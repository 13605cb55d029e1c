"""What the transformers share: reading, blocks, centring."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    TransformerMixin,
)
from sklearn.utils import Tags
from sklearn.utils._set_output import _get_output_config

from tracelearn.arrays.array_api import Array
from tracelearn.samples.checks import read_samples, read_weights

_BLOCK_BYTES = 16 << 20  # blocks stay in cache, and no second copy of the data is ever made


def blocks(X: Array) -> Iterator[slice]:
    """Cut samples into blocks that stay in cache."""
    rows = max(1, _BLOCK_BYTES // (8 * math.prod(X.shape[1:])))
    return (slice(start, start + rows) for start in range(0, X.shape[0], rows))


def kept_sum(values: Array, kept: tuple[int, ...]) -> Array:
    """Sum a tensor over the axes whose kept size is one, which stay as axes of size one."""
    axes = tuple(axis for axis, size in enumerate(kept) if size != values.shape[axis])
    return values.sum(axis=axes, keepdims=True)


def centred(X: Array, weight: Array | None, mean: Array) -> tuple[Array, Array, float]:
    """Centre a block (n, I1, ..., IN) around its own means, which vary along the modes along which ``mean`` does.

    Returns the centred samples times the roots of their weights, the step from ``mean`` to the means of the block, and
    the sum of the weights. ``mean`` is what earlier blocks had, or something close: a shift by it first, then by the small
    step, keeps the digits that one subtraction of a large mean would lose.
    """
    rows = np.subtract(X, mean, dtype=np.float64)
    total = float(X.shape[0]) if weight is None else float(weight.sum())
    sums = rows.sum(axis=0) if weight is None else np.tensordot(weight, rows, (0, 0))
    step = kept_sum(sums, mean.shape) * (mean.size / (total * sums.size))
    rows -= step
    if weight is not None:
        rows *= np.sqrt(weight).reshape(-1, *(1,) * (X.ndim - 1))
    return rows, step, total


def first_entries(X: Array, kept: tuple[int, ...]) -> Array:
    """Take the first entry of each group as a mean to begin with: it is as close as any before samples are read."""
    return X[0][tuple(slice(None if size > 1 else 1) for size in kept)].astype(np.float64)


def read_batch(estimator: Any, X: Any, sample_weight: Any, *, first: bool) -> tuple[Array, Array | None]:
    """Check samples and weights; return tensors (n, I1, ..., IN) and weights (n,) or None."""
    rows, shape = read_samples(estimator, X, reset=first)
    weight = read_weights(sample_weight, rows)
    if weight is not None and not np.all(weight):
        rows, weight = rows[weight > 0], weight[weight > 0]  # so that no sample of weight zero is the first one
    estimator.sample_shape_ = shape
    return rows.reshape(-1, *shape), weight


def n_axes(X: Any) -> int:
    """Count the axes of what a user passed."""
    return int(X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim)


def samples_seen(estimator: Any, n_samples: int, weight: Array | None) -> Any:
    """Count samples, or add up their weights where there are any."""
    return getattr(estimator, "n_samples_seen_", 0) + (n_samples if weight is None else float(weight.sum()))


class TensorTransformer(TransformerMixin, BaseEstimator):
    """What both transformers tell scikit-learn."""

    n_samples_seen_: Any
    mean_: Array

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _makes_tables(self, X: Any) -> bool:
        """Whether set_output asks for tables, which have rows and columns: flat samples have them, tensors do not."""
        wanted = _get_output_config("transform", self)["dense"]
        if wanted != "default" and n_axes(X) > 2:
            raise ValueError(
                f"Expected flat samples for the output that set_output asks for, {wanted}, got tensors: pass flat samples and "
                "tensor_shape, or call set_output(transform='default')."
            )
        return bool(wanted != "default")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def read_weight_tensors(W: Any, shape: tuple[int, ...]) -> Array:
    """Check that weights have the shape of a sample, or of several."""
    W = np.asarray(W)
    if W.shape != shape and W.shape[1:] != shape:
        raise ValueError(
            f"Expected weights of shape {shape}, or (K, {', '.join(map(str, shape))}), got shape {W.shape}: pass coef_ of a "
            "model that was fitted on what transform returns."
        )
    return W
