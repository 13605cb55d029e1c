"""What transformers learn from: weights, means and sums of squares of samples, which add up over blocks.

Invariant: summaries are centred and merged by the formula of Chan, Golub and LeVeque, so the sum over any blocks is the summary
of all samples, to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, to_numpy, widest

__all__ = ["Summary", "mean_only", "mode_scatters", "squares", "summarise", "summarise_known"]

Products = Callable[[Array], list[Array]]


def mean_only(rows: Array) -> list[Array]:
    """Return no sums: for summaries of weight and mean alone."""
    return []


@dataclass(frozen=True, eq=False)
class Summary:
    """Total weight and mean of samples, and sums of squares or products about that mean.

    Parameters
    ----------
    weight : sum of the weights; where entries are missing in some samples an array, for every entry of those that have it
    mean : array of NumPy, in double precision
    sums : arrays that ``products`` makes of all samples, centred and multiplied by the roots of their weights
    products : function of rows (n, ...) that returns sums over them
    eps : rounding unit of the samples
    """

    weight: Any
    mean: Array
    sums: list[Array]
    products: Products = mean_only
    eps: float = float(np.finfo(np.float64).eps)

    def __add__(self, other: Summary) -> Summary:
        weight = self.weight + other.weight
        divisor = weight + (weight == 0)  # one for entries that no sample has so far
        step = other.mean - self.mean
        # Chan, Golub and LeVeque (1979): to the sums of both come those of the difference of the means, as if it were one sample.
        products_of_step = self.products((np.sqrt(self.weight / divisor * other.weight) * step)[None])
        sums = [a + b + c for a, b, c in zip(self.sums, other.sums, products_of_step, strict=True)]
        mean = self.mean + (other.weight / divisor) * step
        return Summary(weight, mean, sums, self.products, max(self.eps, other.eps))

    @property
    def n_samples(self) -> float:
        """The number of samples, an int; a float where weights are no whole numbers."""
        return int(self.weight) if float(self.weight).is_integer() else self.weight


def summarise(T: Array, weight: Array, products: Products = mean_only, shared: Sequence[int] = ()) -> Summary:
    """Summarise tensors (n, ...) of any array library; along the axes ``shared`` there is one mean for all entries."""
    xp = array_namespace(T)
    rows = as_dtype(T, widest(T)["dtype"])
    # The first row is as close to the mean as any: subtracting it, then the small rest of the mean, keeps the digits that
    # subtracting a large mean at once would lose.
    index = [slice(None)] * rows.ndim
    for axis in (0, *shared):
        index[axis] = slice(1)
    first = rows[tuple(index)]
    rows = rows - first
    total = xp.sum(weight)
    weight = as_dtype(weight, rows.dtype)
    weighted_sum = xp.reshape(weight, (1, -1)) @ xp.reshape(rows, (rows.shape[0], -1))
    weighted_sum = xp.reshape(weighted_sum, (1, *rows.shape[1:]))
    step = xp.mean(weighted_sum / total, axis=(0, *shared), keepdims=True)
    sums = []
    if products is not mean_only:
        roots = xp.reshape(xp.sqrt(weight), (-1, *(1,) * (rows.ndim - 1)))
        sums = [to_numpy(values) for values in products((rows - step) * roots)]
    return Summary(float(total), to_numpy(first + step)[0], sums, products, float(xp.finfo(T.dtype).eps))


def summarise_known(values: Array, weight: Array, products: Products = mean_only) -> Summary:
    """Summarise arrays (n, ...) of NumPy with NaN: every entry over the samples that have it; its mean is zero if none has."""
    is_known = ~np.isnan(values)
    weights = np.where(is_known, weight.reshape(-1, *(1,) * (values.ndim - 1)), 0.0)
    total = np.sum(weights, axis=0)
    mean = np.sum(weights * values, axis=0, where=is_known) / (total + (total == 0))
    deviations = np.where(is_known, values - mean, 0.0)
    return Summary(total, mean, products(deviations * np.sqrt(weights)), products)


def squares(rows: Array, shared: Sequence[int] = (), shape: Sequence[int] | None = None) -> list[Array]:
    """Sum squares over rows (n, ...), and over the axes ``shared``, which keep size one.

    ``shape``, that of a sample, is for rows that have size one along ``shared``: each then stands for as many equal entries.
    ``Summary`` asks for squares of differences of means, which are of that form.
    """
    xp = array_namespace(rows)
    rows = rows if shape is None else xp.broadcast_to(rows, (rows.shape[0], *shape))
    return [xp.sum(rows**2, axis=(0, *shared), keepdims=True)[0, ...]]


def mode_scatters(rows: Array, modes: Sequence[int]) -> list[Array]:
    """Sum ``T_(mode) T_(mode)'`` over tensors (n, I1, ..., IN), for each of some modes."""
    scatters = []
    for mode in modes:
        summed = (*range(mode + 1), *range(mode + 2, rows.ndim))
        scatters.append(array_namespace(rows).tensordot(rows, rows, axes=(summed, summed)))
    return scatters
