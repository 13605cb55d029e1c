"""What the transformers share: reading samples wherever they are, adding up what is learned, and applying it in blocks.

A transformer says how samples are summarised (``_measure``), what follows from a summary (``_keep``), which summary stands
behind what it has learned (``_past``), and what becomes of a block of samples (``_map``). What is learned is small and is held
as arrays of NumPy in double precision; ``transform`` returns arrays of the library, device and precision of its samples.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import as_dtype, detached, is_foreign, move_to, to_numpy, widest
from tracelearn.arrays.tensors import Array, array_namespace
from tracelearn.samples import as_source
from tracelearn.samples.checks import (
    check_finite,
    check_overflow,
    check_range,
    float_dtype,
    learning,
    read_samples,
    read_weights,
)
from tracelearn.samples.execution import lazily
from tracelearn.samples.samples import Local, Raw, as_raw, is_dask
from tracelearn.samples.scikit_learn import check_feature_names_in, get_output_config

__all__ = [
    "ModeStatistics",
    "Second",
    "Summary",
    "TensorTransformer",
    "mode_scatters",
    "multiply_modes",
    "n_axes",
    "read_coef",
    "read_modes",
    "summarise",
    "symmetric_power",
]

_BLOCK_BYTES = 16 << 20  # blocks stay in cache, and no second copy of the data is ever made
Second = Callable[[Array], list[Array]]


@dataclass(frozen=True, eq=False)
class Summary:
    """Number, total weight and mean of some samples, and sums of squares or products about that mean; parts add up.

    ``second`` makes those sums of rows that are centred and multiplied by the roots of their weights; ``eps`` is the
    rounding unit of the samples.
    """

    count: int
    weight: float
    mean: Array
    sums: list[Array]
    second: Second
    eps: float = float(np.finfo(np.float64).eps)

    def __add__(self, other: Summary) -> Summary:
        weight = self.weight + other.weight
        step = other.mean - self.mean
        # Chan, Golub and LeVeque (1979): two parts whose means are a step apart add what one sample at that step would.
        between = self.second((math.sqrt(self.weight / weight * other.weight) * step)[None])
        sums = [a + b + c for a, b, c in zip(self.sums, other.sums, between, strict=True)]
        mean = self.mean + (other.weight / weight) * step
        return Summary(self.count + other.count, weight, mean, sums, self.second, max(self.eps, other.eps))


def no_sums(rows: Array) -> list[Array]:
    """Ask for nothing but the mean."""
    return []


def summarise(T: Array, weight: Array | None, second: Second = no_sums, shared: Sequence[int] = ()) -> Summary:
    """Summarise tensors (n, ...) of any array library; the mean is one number along the axes ``shared``."""
    xp, rows = array_namespace(T), as_dtype(T, widest(T)["dtype"])
    # The first row is as close to the mean as any: a shift by it, then by the small step that is left, keeps the digits
    # that one subtraction of a large mean would lose.
    first = rows[tuple(slice(1) if axis == 0 or axis in shared else slice(None) for axis in range(rows.ndim))]
    rows = rows - first
    total = float(rows.shape[0]) if weight is None else float(xp.sum(weight))
    across = (-1, *(1,) * (rows.ndim - 1))
    weighted = rows if weight is None else rows * xp.reshape(weight, across)
    step = xp.mean(xp.sum(weighted, axis=0, keepdims=True) / total, axis=(0, *shared), keepdims=True)
    rows = rows - step
    rows = rows if weight is None else rows * xp.reshape(xp.sqrt(weight), across)
    sums = [to_numpy(part) for part in second(rows)]
    eps = float(xp.finfo(T.dtype).eps)
    return Summary(rows.shape[0], total, to_numpy(first + step)[0], sums, second, eps)


def mode_scatters(modes: Sequence[int], rows: Array) -> list[Array]:
    """Sum ``T_(mode) T_(mode)'`` over tensors (n, I1, ..., IN), for some modes."""
    others = [tuple(axis for axis in range(rows.ndim) if axis != mode + 1) for mode in modes]
    return [array_namespace(rows).tensordot(rows, rows, axes=(axes, axes)) for axes in others]


def multiply_modes(T: Array, matrices: Sequence[Array]) -> Array:
    """Multiply axis n + 1 of tensors by ``matrices[n]`` of shape (r_n, I_n), for every mode n."""
    for matrix in matrices:  # takes the first mode away and puts it last: a full turn restores the order
        T = array_namespace(T).tensordot(T, move_to(matrix, T, T.dtype), axes=((1,), (1,)))
    return T


def symmetric_power(C: Array, power: float, rest: float) -> Array:
    """Raise positive matrices (..., c, c) to a power; directions without variance are multiplied by ``rest`` instead."""
    values, vectors = np.linalg.eigh(C)
    varies = values > C.shape[-1] * np.finfo(np.float64).eps * values[..., -1:]
    powers = np.where(varies, np.where(varies, values, 1.0) ** power, rest)
    return (vectors * powers[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def read_modes(modes: Any, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Read a mode or several, counted from either end, as numbers from 0 on in increasing order."""
    order = len(shape)
    listed = [modes] if isinstance(modes, Integral) else list(modes)
    if not all(isinstance(mode, Integral) and -order <= int(mode) < order for mode in listed):
        raise ValueError(
            f"Expected {name} to be modes from 0 to {order - 1} of samples of shape {shape}, got {modes!r}: modes are the axes "
            "of X without the first."
        )
    return tuple(sorted({int(mode) % order for mode in listed}))


def read_coef(W: Any, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Check that weights have the shape of a sample, or of several; return them, and as a batch."""
    W = W if is_foreign(W) else np.asarray(W)
    if tuple(W.shape) != shape and tuple(W.shape[1:]) != shape:
        raise ValueError(
            f"Expected weights of shape {shape}, or (K, {', '.join(map(str, shape))}), got shape {tuple(W.shape)}: pass coef_ "
            "of a model that was fitted on what transform returns."
        )
    return W, array_namespace(W).reshape(W, (-1, *shape))


def n_axes(X: Any) -> int:
    """Count the axes of what a user passed."""
    return int(X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim)


def _in_blocks(X: Any, sample_weight: Any) -> Raw | None:
    """See samples without targets as blocks; None where X is in memory."""
    # Blocks of Dask want targets: one entry of each sample is there and costs nothing.
    y = X[(slice(None), *(0,) * (X.ndim - 1))] if is_dask(X) and X.ndim > 1 else None
    found = as_raw(X, y, sample_weight)
    return None if found.in_memory else found


class TensorTransformer(TransformerMixin, BaseEstimator):
    """Learns from samples that are tensors, in memory, in blocks or on a cluster, and makes tensors of them."""

    n_samples_seen_: Any
    sample_shape_: tuple[int, ...]

    _keeps_layout = True  # whether flat samples stay flat, as where every entry stays what it is

    # --- what each transformer says for itself -----------------------------------------------------------------------

    def _measure(self, T: Array, weight: Array | None) -> Summary:
        """Summarise a block of tensors."""
        raise NotImplementedError

    def _past(self) -> Summary:
        """Find the summary of the samples so far from what was learned."""
        raise NotImplementedError

    def _keep(self, summary: Summary) -> None:
        """Set what follows from a summary."""
        raise NotImplementedError

    def _map(self, T: Array) -> Array:
        """Transform a block of tensors, in double precision."""
        raise NotImplementedError

    def _shape_out(self) -> tuple[int, ...]:
        """Find the shape of a transformed sample."""
        return self.sample_shape_

    def _row_size(self) -> int:
        """Count the numbers that one sample needs while it is worked on."""
        return math.prod(self.sample_shape_)

    # --- learning ----------------------------------------------------------------------------------------------------

    @learning
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from all samples.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
            Of NumPy or another array library, of Dask, or samples in blocks: the path of a file, what ``open_source``
            returns, or an iterable of (X, y) or (X, y, weight).
        y : ignored
        sample_weight : array of shape (n_samples,), default=None
        """
        self._forget()
        self._learn(X, sample_weight)
        return self

    @learning
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more samples; afterwards what is learned is that of all samples so far."""
        self._learn(X, sample_weight)
        return self

    def _learn(self, X: Any, sample_weight: Any) -> None:
        past = self._past() if hasattr(self, "n_samples_seen_") else None
        found = self._total(self._measure, X, sample_weight)
        whole = found if past is None else past + found
        counted = whole.count == whole.weight  # without weights the number of samples stays a whole number
        self.n_samples_seen_ = whole.count if counted else whole.weight
        self._keep(whole)

    def _total(self, measure: Callable[[Array, Array | None], Any], X: Any, sample_weight: Any) -> Any:
        """Sum a measure over all samples, in one pass."""
        found = _in_blocks(X, sample_weight)
        if found is None:
            return self._measured(measure, X, sample_weight)
        if not isinstance(found.execution, Local):  # the workers must know the shape
            self._read(np.zeros((1, *X.shape[1:])))

        def part(block: tuple[int, Any, Any, Any]) -> Any:
            first, samples, _, weight = block
            try:
                return self._measured(measure, samples, weight)
            except ValueError as error:
                raise ValueError(f"{error} (in the block that begins at sample {first})") from error

        return found.execution.total(part, found.batches)

    def _measured(self, measure: Callable[[Array, Array | None], Any], X: Any, sample_weight: Any) -> Any:
        T = self._read(X)
        xp = array_namespace(T)
        weight = read_weights(sample_weight, T)
        if weight is not None and not bool(xp.all(weight > 0)):  # no sample of weight zero is to be the first
            kept = xp.nonzero(weight)[0]
            T, weight = xp.take(T, kept, axis=0), xp.take(weight, kept, axis=0)
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            blocks = ((T[block, ...], None if weight is None else weight[block]) for block in self._blocks(T))
            found = functools.reduce(operator.add, (measure(*block) for block in blocks))
        sums = found.sums if isinstance(found, Summary) else [found]
        largest = max((float(np.max(np.abs(part))) for part in sums), default=1.0)
        if not np.finfo(np.float64).tiny < largest < np.inf:
            check_range(T, "X")
        return found

    def _blocks(self, T: Array) -> Iterator[slice]:
        rows = max(1, _BLOCK_BYTES // (8 * self._row_size()))
        return (slice(start, start + rows) for start in range(0, T.shape[0], rows))

    def _read(self, X: Any) -> Array:
        """Check samples; return tensors (n, I1, ..., IN) of floats, in the library of X."""
        first = not hasattr(self, "sample_shape_")
        if is_foreign(X):
            X, xp = detached(X), array_namespace(X)
            kind = np.complex128 if xp.isdtype(X.dtype, "complex floating") else np.float64
            stand_in = np.broadcast_to(np.zeros((), kind), tuple(X.shape))  # for the checks of shapes and names
            shape = read_samples(self, stand_in, reset=first, finite=False)[1]
            rows = as_dtype(xp.reshape(X, (X.shape[0], -1)), float_dtype(X))
            check_finite(rows, "X", shape)
        else:
            rows, shape = read_samples(self, X, reset=first)
        self.sample_shape_ = shape
        return array_namespace(rows).reshape(rows, (-1, *shape))

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    # --- applying ----------------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Transform samples; arrays stay in their library, on their device and in their precision.

        A Dask array is transformed when it is computed, and samples in blocks become one array in memory. Where ``set_output``
        asks for data frames, flat samples become tables with the columns of ``get_feature_names_out``.
        """
        check_is_fitted(self)
        return self._apply(self._transformed, X)

    def _apply(self, function: Callable[[Any], Array], X: Any) -> Any:
        if is_dask(X):
            return lazily(function, X, function(np.zeros((1, *X.shape[1:]), X.dtype))[:0])
        source = as_source(X)
        return function(X) if source is None else np.concatenate([function(block[0]) for block in source.batches()])

    def _transformed(self, X: Any) -> Array:
        flat = self._makes_tables(X) or (self._keeps_layout and n_axes(X) == 2)
        found = self._mapped(self._map, self._read(X), self._shape_out())
        return array_namespace(found).reshape(found, (found.shape[0], -1)) if flat else found

    def _mapped(self, function: Callable[[Array], Array], T: Array, shape: tuple[int, ...]) -> Array:
        """Apply a function of tensors block by block, in double precision and rounded once."""
        xp, wide = array_namespace(T), widest(T)["dtype"]
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            parts = (as_dtype(function(as_dtype(T[block, ...], wide)), T.dtype) for block in self._blocks(T))
            if is_foreign(T):
                found = xp.concat(list(parts))
            else:
                found = self._target(T, shape)
                for block, part in zip(self._blocks(T), parts, strict=True):
                    found[block] = part
        check_overflow(found, "transformed entries")
        return found

    def _target(self, T: Array, shape: tuple[int, ...]) -> Array:
        return np.empty((T.shape[0], *shape), T.dtype)

    def _restored(self, X: Any, function: Callable[[Array], Array]) -> Array:
        """Apply a function to what ``transform`` returned, tensors or flat."""
        check_is_fitted(self)
        Z, shape = X if is_foreign(X) else np.asarray(X), self._shape_out()
        if tuple(Z.shape[1:]) not in (shape, (math.prod(shape),)):
            raise ValueError(
                f"Expected transformed samples of shape {shape}, or flat, got an array of shape {tuple(Z.shape)}: pass what "
                "transform returns."
            )
        rows = array_namespace(Z).reshape(as_dtype(Z, float_dtype(Z)), (Z.shape[0], -1))
        check_finite(rows, "X", shape)
        found = self._mapped(function, array_namespace(Z).reshape(rows, (-1, *shape)), self.sample_shape_)
        flat = self._keeps_layout and Z.ndim == 2
        return array_namespace(found).reshape(found, (found.shape[0], -1)) if flat else found

    # --- what scikit-learn asks --------------------------------------------------------------------------------------

    def _makes_tables(self, X: Any) -> bool:
        """Whether set_output asks for tables, which have rows and columns: flat samples have them, tensors do not."""
        wanted = get_output_config("transform", self)["dense"]
        if wanted != "default" and n_axes(X) > 2:
            raise ValueError(
                f"Expected flat samples for the output that set_output asks for, {wanted}, got tensors: pass flat samples and "
                "tensor_shape, or call set_output(transform='default')."
            )
        return bool(wanted != "default")

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Name the entries of a transformed sample in C order, by the class and their places: "modepca0_2"."""
        check_is_fitted(self)
        check_feature_names_in(self, input_features, generate_names=False)
        prefix = type(self).__name__.lower()
        return np.asarray([f"{prefix}{'_'.join(map(str, at))}" for at in np.ndindex(*self._shape_out())], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class ModeStatistics:
    """Learns the mean and the covariance of every mode, from which all else follows (``_follow``)."""

    n_samples_seen_: Any
    sample_shape_: tuple[int, ...]

    def _follow(self) -> None:
        raise NotImplementedError

    def _second(self) -> Second:
        return functools.partial(mode_scatters, range(len(self.sample_shape_)))

    def _measure(self, T: Array, weight: Array | None) -> Summary:
        return summarise(T, weight, self._second())

    def _past(self) -> Summary:
        seen = float(self.n_samples_seen_)
        scatters = [seen * covariance for covariance in self.mode_covariances_]
        return Summary(self.n_samples_seen_, seen, self.mean_, scatters, self._second())

    def _keep(self, summary: Summary) -> None:
        self.mean_ = summary.mean
        self.mode_covariances_ = [scatter / summary.weight for scatter in summary.sums]
        self._follow()
