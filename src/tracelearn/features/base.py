"""What the transformers share: reading samples wherever they are, adding up what is learned, and applying it in blocks.

A transformer says how a block of samples is summarised (``_measure``), what follows from the sum of all summaries (``_keep``, and
``_known`` back, for ``partial_fit``), and what becomes of a block (``_map``). What is learned is small and is held as arrays of
NumPy in double precision; ``transform`` returns arrays of the library, device and precision of its samples.
"""

from __future__ import annotations

import copy
import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from operator import attrgetter
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    as_dtype,
    is_non_numpy,
    move_to,
    to_numpy,
    widest,
)
from tracelearn.samples import as_source
from tracelearn.samples.checks import (
    check_finite,
    check_range,
    float_dtype,
    learning,
    read_rows,
    read_weights,
)
from tracelearn.samples.execution import lazily
from tracelearn.samples.modes import like_input
from tracelearn.samples.samples import Local, as_raw, is_dask, is_named, naming, unnamed
from tracelearn.samples.scikit_learn import check_feature_names_in, get_output_config

__all__ = [
    "Composite",
    "LinearTransformer",
    "ModeTransformer",
    "Second",
    "Summary",
    "TensorTransformer",
    "Total",
    "find_time_axis",
    "mode_scatters",
    "multiply_modes",
    "no_sums",
    "read_modes",
    "read_time_axis",
    "sample_numbers",
    "scrambled",
    "sized",
    "squares",
    "summarise",
    "symmetric_power",
]

_BLOCK_BYTES = 16 << 20  # blocks stay in cache, and no second copy of the data is ever made
_FEWEST_TIMES, _MOST_CHANNELS = 16, 128
# Of a standard deviation, in which shapes are compared: rounding hardly ever changes the coarse ones, and the fine ones tell
# apart what is alike in these.
_COARSE, _FINE = 100.073, 10007.3
_MIX = 0x9E3779B97F4A7C15  # 64 bits of the golden ratio, an odd number: products with it change every bit

Second = Callable[[Array], list[Array]]
Measure = Callable[[Array, Array], "Summary"]
Total = Callable[[Measure], "Summary"]


def no_sums(rows: Array) -> list[Array]:
    """Want nothing but the mean."""
    return []


@dataclass(frozen=True, eq=False)
class Summary:
    """Total weight and mean of some samples, and sums of squares or products about that mean; parts add up.

    ``second`` makes those sums of rows that are centred and multiplied by the roots of their weights; ``eps`` is the
    rounding unit of the samples.
    """

    weight: float
    mean: Array
    sums: list[Array]
    second: Second = no_sums
    eps: float = float(np.finfo(np.float64).eps)

    def __add__(self, other: Summary) -> Summary:
        weight = self.weight + other.weight
        step = other.mean - self.mean
        # Chan, Golub and LeVeque (1979): two parts whose means are a step apart add what one sample at that step would.
        between = self.second((math.sqrt(self.weight / weight * other.weight) * step)[None])
        sums = [a + b + c for a, b, c in zip(self.sums, other.sums, between, strict=True)]
        mean = self.mean + (other.weight / weight) * step
        return Summary(weight, mean, sums, self.second, max(self.eps, other.eps))


def summarise(T: Array, weight: Array, second: Second = no_sums, shared: Sequence[int] = ()) -> Summary:
    """Summarise tensors (n, ...) of any array library; the mean is one number along the axes ``shared``."""
    xp, rows = array_namespace(T), as_dtype(T, widest(T)["dtype"])
    # The first row is as close to the mean as any: a shift by it, then by the small step that is left, keeps the digits
    # that one subtraction of a large mean would lose.
    index = [slice(None)] * rows.ndim
    for axis in (0, *shared):
        index[axis] = slice(1)
    first = rows[tuple(index)]
    rows, total, weight = rows - first, xp.sum(weight), as_dtype(weight, rows.dtype)
    sum_ = xp.reshape(xp.reshape(weight, (1, -1)) @ xp.reshape(rows, (rows.shape[0], -1)), (1, *rows.shape[1:]))
    step = xp.mean(sum_ / total, axis=(0, *shared), keepdims=True)
    sums = []
    if second is not no_sums:
        roots = xp.reshape(xp.sqrt(weight), (-1, *(1,) * (rows.ndim - 1)))
        sums = list(map(to_numpy, second((rows - step) * roots)))
    return Summary(float(total), to_numpy(first + step)[0], sums, second, float(xp.finfo(T.dtype).eps))


def squares(rows: Array, shared: Sequence[int] = (), shape: Sequence[int] | None = None) -> list[Array]:
    """Sum squares over rows, and over the axes along which means do not vary: these stay, with size one.

    A step between two means has size one there: it is that of every entry of a sample of this shape.
    """
    xp = array_namespace(rows)
    rows = rows if shape is None else xp.broadcast_to(rows, (rows.shape[0], *shape))
    return [xp.sum(rows**2, axis=(0, *shared), keepdims=True)[0, ...]]


def mode_scatters(modes: Sequence[int], rows: Array) -> list[Array]:
    """Sum ``T_(mode) T_(mode)'`` over tensors (n, I1, ..., IN), for some modes."""
    found = []
    for mode in modes:
        others = (*range(mode + 1), *range(mode + 2, rows.ndim))
        found.append(array_namespace(rows).tensordot(rows, rows, axes=(others, others)))
    return found


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


def find_time_axis(
    shape: tuple[int, ...], time_axis: Any = "auto", modes: Sequence[Any] | None = None
) -> tuple[int | None, str]:
    """Find the mode of a sample that can be time, and say why; None where there is none.

    Time is long enough, at least 16 and half as long as there are channels, and has at most 128 channels, which are
    the product of all other sizes. With "auto" the last mode is looked at first, or that one of ``modes`` which is called
    time; a number or a name asks about that mode alone.

    Examples
    --------
    >>> from tracelearn.features import find_time_axis
    >>> find_time_axis((64, 256))
    (1, 'mode 1 can be time: 256 times of 64 channels')
    >>> find_time_axis((6, 11))
    (None, 'no mode of (6, 11) can be time, which needs at least 16 times, at most 128 channels and twice as many')
    """
    if time_axis is None:
        return None, "time_axis=None"
    size, order, names = math.prod(shape), len(shape), list(map(attrgetter("name"), modes or ()))
    if isinstance(time_axis, str):
        wanted = "time" if time_axis == "auto" else time_axis
        if wanted not in names and time_axis != "auto":
            raise ValueError(
                "Expected time_axis to be a number, 'auto', None or the name of a mode "
                f"({', '.join(names) or 'they have none'}), got {time_axis!r}: choose one of these."
            )
        time_axis = names.index(wanted) if wanted in names else time_axis
    looked_at = reversed(range(order)) if time_axis == "auto" else read_modes(time_axis, shape, "time_axis")
    for axis in looked_at:
        times, channels = shape[axis], size // shape[axis]
        if times >= max(_FEWEST_TIMES, channels / 2) and channels <= _MOST_CHANNELS:
            return axis, f"mode {axis} can be time: {times} times of {channels} channels"
    subject = f"no mode of {shape}" if time_axis == "auto" else f"mode {time_axis} of {shape} hardly"
    needs = f"at least {_FEWEST_TIMES} times, at most {_MOST_CHANNELS} channels and twice as many"
    return None, f"{subject} can be time, which needs {needs}"


def read_time_axis(time_axis: Any, shape: tuple[int, ...]) -> int:
    """Find the mode of samples of a shape that is time, by its number or by "auto"; refuse samples without one."""
    time, reason = find_time_axis(shape) if time_axis == "auto" else (time_axis, "")
    if time is None:
        raise ValueError(f"Expected samples with a time axis, got none ({reason}): name it with time_axis.")
    return read_modes(time, shape, "time_axis")[0]


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


def sized(signals: Array) -> tuple[Array, Array]:
    """Divide centred signals (channels, n, times) by their root mean squares, and return these too; zeros stay zeros."""
    xp = array_namespace(signals)
    sizes = xp.sqrt(xp.mean(signals**2, axis=-1, keepdims=True))
    return signals / xp.where(sizes > 0, sizes, xp.ones_like(sizes)), sizes


def sample_numbers(units: Array, draws: int) -> Array:
    """Give samples (channels, n, times) of size one a number in [0, 1) for each draw, (D, n), that their shapes determine."""
    xp, mix, half, found = array_namespace(units), np.uint64(_MIX), np.uint64(32), []
    for steps in (_COARSE, _FINE):
        shapes = to_numpy(xp.astype(xp.round(units * steps), xp.int32))
        words = np.moveaxis(shapes, 1, 0).reshape(shapes.shape[1], -1).astype("<i4")
        words = np.ascontiguousarray(np.pad(words, ((0, 0), (0, words.shape[-1] % 2)))).view("<u8")
        one = scrambled(np.sum(words * np.cumprod(np.full(words.shape[-1], mix)), axis=-1))
        found.append(scrambled(one ^ (np.arange(draws, dtype=np.uint64) * mix)[:, None]))
    coarse, fine = found
    return ((coarse >> half) + (fine >> np.uint64(43)) * 2.0**-21) * 2.0**-32


def scrambled(words: Array) -> Array:
    """Change every bit of words of 64 bits, so that their order says nothing about what they were."""
    return (words ^ (words >> np.uint64(32))) * np.uint64(_MIX)


class TensorTransformer(TransformerMixin, BaseEstimator):
    """Learns from samples that are tensors, in memory, in blocks or on a cluster, and makes tensors of them."""

    sample_shape_: tuple[int, ...]
    _keeps_layout = True  # whether flat samples stay flat, as where every entry stays what it is

    # --- what each transformer says for itself -----------------------------------------------------------------------

    @abstractmethod
    def _measure(self, T: Array, weight: Array) -> Summary:
        """Summarise a block of tensors."""

    @abstractmethod
    def _keep(self, summary: Summary) -> None:
        """Set what follows from the summary of all samples."""

    @abstractmethod
    def _known(self) -> tuple[Array, list[Array]]:
        """Find the mean of that summary, and its sums for each unit of weight, in what was kept."""

    @abstractmethod
    def _map(self, T: Array) -> Array:
        """Transform a block of tensors, in double precision."""

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
        for name in list(vars(self)):  # what was learned before
            if name.endswith("_") and not name.startswith("_"):
                delattr(self, name)
        self._learn_from(X, sample_weight)
        return self

    @learning
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more samples; afterwards what is learned is that of all samples so far."""
        self._learn_from(X, sample_weight)
        return self

    def _fit_checked(self, T: Array, weight: Array) -> Array:
        """Learn from tensors that are checked and in memory, and transform them: what a search does for every view."""
        self.sample_shape_, self.n_features_in_ = tuple(T.shape[1:]), math.prod(T.shape[1:])
        self._learn(functools.partial(self._summed, T, weight))
        return self._mapped(self._map, T, flat=False)

    def _learn_from(self, X: Any, sample_weight: Any) -> None:
        """Learn from samples wherever they are, and keep names of modes where they bring them."""
        if is_named(X):
            X, _, self.modes_ = unnamed(X, 0, getattr(self, "modes_", None))
        self._learn(functools.partial(self._total, X, sample_weight))

    def _learn(self, total: Total) -> None:
        """Learn from samples of which ``total`` adds up a measure, in one pass."""
        whole = total(self._measure)
        if hasattr(self, "n_samples_seen_"):
            seen, (mean, sums) = float(self.n_samples_seen_), self._known()
            whole = replace(whole, weight=seen, mean=mean, sums=[seen * part for part in sums]) + whole
        self.n_samples_seen_: Any = int(whole.weight) if whole.weight.is_integer() else whole.weight
        self._keep(whole)

    def _total(self, X: Any, sample_weight: Any, measure: Measure) -> Summary:
        """Add up a measure of samples wherever they are."""
        # Blocks of Dask want targets: one entry of each sample is there and costs nothing.
        y = X[(slice(None), *(0,) * (X.ndim - 1))] if is_dask(X) and X.ndim > 1 else None
        found = as_raw(X, y, sample_weight)
        if not isinstance(found.execution, Local):  # the workers must know the shape
            self._read(np.zeros((1, *X.shape[1:])))

        def part(block: tuple[int, Any, Any, Any]) -> Summary:
            first, samples, _, given = block
            with naming(first):
                T = self._read(samples)
                return self._summed(T, read_weights(1.0 if given is None else given, T), measure)

        whole: Summary = found.execution.total(part, found.batches)
        return whole

    def _summed(self, T: Array, weight: Array, measure: Measure) -> Summary:
        """Add up a measure of tensors in memory, block by block."""
        xp = array_namespace(T)
        kept = xp.nonzero(weight)[0]
        if kept.shape[0] < T.shape[0]:  # no sample of weight zero is to be the first
            T, weight = xp.take(T, kept, axis=0), xp.take(weight, kept, axis=0)
        summary: Any = None
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            step = max(1, _BLOCK_BYTES // (8 * self._row_size()))
            for start in range(0, T.shape[0], step):
                rows = slice(start, min(T.shape[0], start + step))
                more = measure(T[rows, ...], weight[rows])
                summary = more if summary is None else summary + more
        largest = max(map(np.max, map(np.abs, summary.sums)), default=1.0)
        if not np.finfo(np.float64).tiny < largest < np.inf:
            check_range(T, "X")
        return summary  # type: ignore[no-any-return]

    def _read(self, X: Any) -> Array:
        """Check samples; return tensors (n, I1, ..., IN) of floats, in the library of X."""
        samples = read_rows(
            X,
            name=type(self).__name__,
            tensor_shape=self.tensor_shape,
            known_shape=getattr(self, "sample_shape_", None),
            known_names=getattr(self, "feature_names_in_", None),
            any_library=is_non_numpy(X),
        )
        rows = samples.rows
        if not hasattr(self, "sample_shape_"):
            self.sample_shape_, self.n_features_in_ = samples.sample_shape, math.prod(samples.sample_shape)
            if samples.feature_names is not None:
                self.feature_names_in_ = samples.feature_names
        return array_namespace(rows).reshape(as_dtype(rows, float_dtype(rows)), (-1, *self.sample_shape_))

    # --- applying ----------------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Transform samples; arrays stay in their library, on their device and in their precision.

        A Dask array is transformed when it is computed, and samples in blocks become one array in memory. A DataArray of
        xarray stays one where samples keep their modes. Where ``set_output`` asks for data frames, flat samples become tables
        with the columns of ``get_feature_names_out``.
        """
        check_is_fitted(self)
        if is_named(X):
            known = getattr(self, "modes_", None)
            found = self.transform(unnamed(X, 0, known)[0])
            return like_input(found, X, known) if self._keeps_layout else found
        if is_dask(X):
            return lazily(self._transformed, X, self._transformed(np.zeros((1, *X.shape[1:]), X.dtype))[:0])
        raw = as_raw(X)
        if raw.in_memory:
            return self._transformed(X)
        return np.concatenate([self._transformed(block) for _, block, *_ in raw.batches])

    def _transformed(self, X: Any) -> Array:
        X = X if hasattr(X, "shape") else np.asarray(X)
        wanted, flat = get_output_config("transform", self)["dense"], self._keeps_layout and len(X.shape) == 2
        # Tables have rows and columns: flat samples can become some, tensors cannot.
        if wanted != "default" and len(X.shape) > 2 and len(self._shape_out()) > 1:
            raise ValueError(
                f"Expected flat samples for the output that set_output asks for, {wanted}, got tensors: pass flat samples and "
                "tensor_shape, or call set_output(transform='default')."
            )
        return self._mapped(self._map, self._read(X), flat=flat or wanted != "default")

    def _mapped(self, function: Callable[[Array], Array], T: Array, *, flat: bool) -> Array:
        """Apply a function of tensors block by block, in double precision and rounded once."""
        xp, wide, n = array_namespace(T), widest(T)["dtype"], T.shape[0]
        here, parts = not is_non_numpy(T), []
        found: Any = T if here and not getattr(self, "copy", True) and T.flags.writeable else None
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            step = max(1, _BLOCK_BYTES // (8 * self._row_size()))
            for start in range(0, n, step):
                rows = slice(start, min(n, start + step))
                part = as_dtype(function(as_dtype(T[rows, ...], wide)), T.dtype)
                if here:
                    found = np.empty((n, *part.shape[1:]), T.dtype) if found is None else found
                    found[rows] = part
                else:
                    parts.append(part)
        found = found if here else xp.concat(parts)
        check_finite(found, "transformed entries", overflows=True)
        return xp.reshape(found, (found.shape[0], -1)) if flat else found

    # --- what scikit-learn asks --------------------------------------------------------------------------------------

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Name the entries of a transformed sample in C order, by the class and their places: "modepca0_2"."""
        check_is_fitted(self)
        check_feature_names_in(self, input_features, generate_names=False)
        places = [(name, at) for name, shape in self._named_shapes() for at in np.ndindex(*shape)]
        return np.asarray([f"{name}{'_'.join(map(str, at))}" for name, at in places], dtype=object)

    def _named_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(type(self).__name__.lower(), self._shape_out())]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Composite(TensorTransformer):
    """Learns by transformers of its own, each in a pass over the samples, before it learns itself."""

    transformers_: list[Any]

    @abstractmethod
    def _unfitted(self) -> list[Any]:
        """Check and copy the transformers."""

    def _learn_from(self, X: Any, sample_weight: Any) -> None:
        plain, _, _ = unnamed(X, 0, getattr(self, "modes_", None))
        source = as_source(plain, None, sample_weight)
        if source is not None and not source.repeatable:  # several transformers, one pass
            for block, _, weight in source.batches():
                self._learn_from(block, weight)
            return
        given = plain if is_dask(plain) or source is not None else self._read(plain)  # checked once, as tensors
        # Copies, which replace what they hold and never write to it: a failure leaves the old ones as they were.
        known = [copy.copy(view) for view in getattr(self, "transformers_", [])]
        self.transformers_ = known or self._unfitted()
        for view in self.transformers_:
            (view.partial_fit if known else view.fit)(given, sample_weight=sample_weight)
        super()._learn_from(X, sample_weight)


class LinearTransformer(TensorTransformer):
    """Multiplies samples by a matrix, perhaps after a shift: what is transformed comes back, and so do weights."""

    @abstractmethod
    def _back(self, Z: Array) -> Array:
        """Undo ``_map``, as far as the entries that are left allow."""

    @abstractmethod
    def _adjoint(self, W: Array) -> Array:
        """Multiply weights (K, ...) of transformed samples by the transposed matrix."""

    def inverse_transform(self, X: Any) -> Array:
        """Bring transformed samples, tensors or flat, back to where they were, or as close to it as their entries allow."""
        check_is_fitted(self)
        Z, shape = X if is_non_numpy(X) else np.asarray(X), self._shape_out()
        if tuple(Z.shape[1:]) not in (shape, (math.prod(shape),)):
            raise ValueError(
                f"Expected transformed samples of shape {shape}, or flat, got an array of shape {tuple(Z.shape)}: pass what "
                "transform returns."
            )
        rows = array_namespace(Z).reshape(as_dtype(Z, float_dtype(Z)), (Z.shape[0], -1))
        check_finite(rows, "X", shape)
        T = array_namespace(Z).reshape(rows, (-1, *shape))
        return self._mapped(self._back, T, flat=self._keeps_layout and Z.ndim == 2)

    def coef_to_input(self, W: Array) -> Array:
        """Express weights that were learned on transformed samples as weights of the samples themselves.

        ``<W, transform(X)>`` and ``<coef_to_input(W), X>`` differ by a constant, which is zero where nothing is subtracted.

        Parameters
        ----------
        W : array of the shape of a transformed sample, or of several, (K, ...), such as ``coef_`` of a model
        """
        check_is_fitted(self)
        W, shape = W if is_non_numpy(W) else np.asarray(W), self._shape_out()
        if shape not in (tuple(W.shape), tuple(W.shape[1:])):
            raise ValueError(
                f"Expected weights of shape {shape}, or (K, {', '.join(map(str, shape))}), got shape {tuple(W.shape)}: pass "
                "coef_ of a model that was fitted on what transform returns."
            )
        found = self._adjoint(array_namespace(W).reshape(W, (-1, *shape)))
        return array_namespace(W).reshape(found, (*W.shape[: W.ndim - len(shape)], *self.sample_shape_))


class ModeTransformer(LinearTransformer):
    """Learns the mean and the covariance of every mode, and multiplies every mode by a matrix that follows from these."""

    center = True
    mean_: Array
    mode_covariances_: list[Array]
    _matrices: str  # the attribute that holds what modes are multiplied by, (r_n, I_n) each

    def _measure(self, T: Array, weight: Array) -> Summary:
        return summarise(T, weight, functools.partial(mode_scatters, range(len(self.sample_shape_))))

    def _known(self) -> tuple[Array, list[Array]]:
        return self.mean_, self.mode_covariances_

    def _map(self, T: Array) -> Array:
        T = T - move_to(self.mean_, T, T.dtype) if self.center else T
        return multiply_modes(T, getattr(self, self._matrices))

    def _back(self, Z: Array) -> Array:
        T = multiply_modes(Z, [np.linalg.pinv(matrix) for matrix in getattr(self, self._matrices)])
        return T + move_to(self.mean_, T, T.dtype) if self.center else T

    def _adjoint(self, W: Array) -> Array:
        return multiply_modes(W, [matrix.T for matrix in getattr(self, self._matrices)])
