"""Training samples of a transformer, wherever they are: tensors over which summaries are added up, in one or more passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, is_non_numpy, to_numpy
from tracelearn.features.gaps import has_gaps, lengths_of, median_length
from tracelearn.features.summaries import Summary
from tracelearn.samples.checks import check_range, float_dtype
from tracelearn.samples.execution import Local
from tracelearn.samples.per_sample import check_total_weight, read_weights
from tracelearn.samples.rows import read_rows
from tracelearn.samples.samples import errors_name_block
from tracelearn.samples.source import NumberedBatch, Source, as_source, is_dask

__all__ = ["TensorReader", "TensorSamples", "TrainingSamples", "blocks_of", "training_samples"]

_BLOCK_BYTES = 16 << 20  # blocks stay in cache, and no second copy of the data is ever made

Summarise = Callable[[Array, Array], Summary]
Size = Callable[[tuple[int, ...]], int]


def blocks_of(n_samples: int, numbers_per_sample: int) -> Iterator[slice]:
    """Yield slices of samples, small enough that what is computed from a block stays in cache."""
    step = max(1, _BLOCK_BYTES // (8 * numbers_per_sample))
    for start in range(0, n_samples, step):
        yield slice(start, min(n_samples, start + step))


class TensorReader:
    """Checks samples for one transformer and returns tensors; later samples must be like the first, or like those of ``fit``.

    Parameters
    ----------
    transformer : whose samples they are
    fitted : a fitted transformer of this kind, whose samples these must be like; None where the first ones decide
    any_length : whether they may be of another length than those of ``fitted``
    """

    def __init__(self, transformer: Any, *, fitted: Any = None, any_length: bool = False) -> None:
        self._name = type(transformer).__name__
        self._tensor_shape = transformer.tensor_shape
        self._shape: tuple[int, ...] | None = None if fitted is None else fitted.sample_shape_
        self._time: int | None = None  # the mode along which samples may be of any length
        if self._shape is not None and any_length and transformer.takes_gaps:
            self._time = transformer.time_mode(self._shape)
        self.feature_names: Array | None = getattr(fitted, "feature_names_in_", None)

    def tensors(self, X: Any, *, takes_gaps: bool = False) -> Array:
        """Check samples; return tensors (n, I1, ..., IN) of floats, in the library of X.

        With ``takes_gaps`` entries may be NaN.
        """
        samples = read_rows(
            X,
            name=self._name,
            tensor_shape=self._tensor_shape,
            known_shape=self._shape,
            known_names=self.feature_names,
            any_library=is_non_numpy(X),
            takes_gaps=takes_gaps,
            time=self._time,
        )
        rows = as_dtype(samples.rows, float_dtype(samples.rows))
        T = array_namespace(rows).reshape(rows, (-1, *samples.sample_shape))
        if self._shape is None:
            self._shape = samples.sample_shape
            self.feature_names = samples.feature_names
        return T

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample, known after the first ones."""
        if self._shape is None:
            raise ValueError("Expected samples to be read before their shape is asked for, got none.")
        return self._shape


class TrainingSamples(ABC):
    """Samples that a transformer learns from."""

    feature_names: Array | None = None  # of the columns, where samples came as a data frame

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample, known after the first pass."""

    @property
    def have_gaps(self) -> bool:
        """Whether some entries are NaN: only samples in memory may have them."""
        return False

    def are_unequal(self, time: int) -> bool:
        """Tell whether samples end at several times along a mode."""
        return False

    @abstractmethod
    def total(self, summarise: Summarise, numbers_per_sample: Size) -> Summary:
        """Add up the summaries of all blocks, in one pass.

        Parameters
        ----------
        summarise : function of tensors (n, I1, ..., IN) and their weights (n,)
        numbers_per_sample : function of the shape of a sample: how many numbers ``summarise`` holds for each. Blocks are small
            enough for these to stay in cache
        """


@dataclass(frozen=True, eq=False)
class TensorSamples(TrainingSamples):
    """Checked tensors (n, I1, ..., IN) in memory with their weights (n,), all above zero; see ``of``.

    ``sample_shape`` differs from that of the tensors where samples have several lengths: they are padded to the longest.
    """

    T: Array
    weight: Array
    sample_shape: tuple[int, ...]
    feature_names: Array | None = None

    @classmethod
    def of(cls, T: Array, weight: Array, transformer: Any, known_shape: tuple[int, ...] | None = None) -> TensorSamples:
        """Leave out samples of weight zero, and find the shape of a sample for a transformer, unless it is known."""
        xp = array_namespace(T)
        weighted = xp.nonzero(weight)[0]
        if weighted.shape[0] < T.shape[0]:
            T = xp.take(T, weighted, axis=0)
            weight = xp.take(weight, weighted, axis=0)
        if known_shape is not None:
            return cls(T, weight, known_shape)
        shape = tuple(T.shape[1:])
        time = transformer.time_mode(shape)
        n_times = None
        if time is not None and has_gaps(T):
            n_times = max(1, round(median_length(lengths_of(T, time), to_numpy(weight))))
        return cls(T, weight, transformer.learned_shape(shape, n_times))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample."""
        return self.sample_shape

    @property
    def have_gaps(self) -> bool:
        """Whether some entries are NaN."""
        return has_gaps(self.T)

    def are_unequal(self, time: int) -> bool:
        """Tell whether samples end at several times along a mode."""
        return self.have_gaps and len(np.unique(lengths_of(self.T, time))) > 1

    def total(self, summarise: Summarise, numbers_per_sample: Size) -> Summary:
        """Add up the summaries of blocks."""
        T = self.T
        summary: Any = None
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            for rows in blocks_of(T.shape[0], numbers_per_sample(self.shape)):
                block = summarise(T[rows, ...], self.weight[rows])
                summary = block if summary is None else summary + block
        largest = max((np.max(np.abs(values)) for values in summary.sums), default=1.0)
        if not np.finfo(np.float64).tiny < largest < np.inf:
            check_range(T, "X")
        return summary  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class BlockSamples(TrainingSamples):
    """Samples in blocks, of a file, an iterable or a cluster, that are read and checked in every pass."""

    source: Source
    reader: TensorReader = field(repr=False)
    transformer: Any  # whose samples they are

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample, that of the first block."""
        return self.transformer.learned_shape(self.reader.shape)  # type: ignore[no-any-return]

    @property
    def feature_names(self) -> Array | None:  # type: ignore[override]
        """The names of the columns, where samples came as a data frame."""
        return self.reader.feature_names

    def total(self, summarise: Summarise, numbers_per_sample: Size) -> Summary:
        """Read, check and summarise every block."""
        reader = self.reader  # workers are sent what the function below names
        transformer = self.transformer

        def total_of_block(block: NumberedBatch) -> _Total:
            first, X, _, weight = block
            with errors_name_block(first):
                T = reader.tensors(X)
                weights = _read_weights(weight, T, is_part=True)
                if not array_namespace(weights).any(weights > 0):
                    return _Total(None)
                samples = TensorSamples.of(T, weights, transformer)
                return _Total(samples.total(summarise, numbers_per_sample))

        total: _Total = self.source.execution.total(total_of_block, self.source.blocks)
        if total.summary is None:
            check_total_weight(0.0)
        return total.summary  # type: ignore[return-value] # there are weights


@dataclass(frozen=True, eq=False)
class _Total:
    """The sum of the summaries of some blocks; None where no sample in them has any weight."""

    summary: Summary | None

    def __add__(self, other: _Total) -> _Total:
        if self.summary is None or other.summary is None:
            return other if self.summary is None else self
        return _Total(self.summary + other.summary)


def training_samples(
    transformer: Any, X: Any, sample_weight: Any, earlier: Any = None, *, any_length: bool = False
) -> TrainingSamples:
    """Prepare samples, wherever they are, for a transformer to learn from, in addition to those of an ``earlier`` one, if any."""
    # Blocks of Dask must have targets: the first entry of each sample stands for them, and costs nothing.
    y = X[(slice(None), *(0,) * (X.ndim - 1))] if is_dask(X) and X.ndim > 1 else None
    source = as_source(X, y, sample_weight)
    reader = TensorReader(transformer, fitted=earlier, any_length=any_length)
    if source.in_memory:
        T = reader.tensors(X, takes_gaps=transformer.takes_gaps)
        known_shape = None if earlier is None else reader.shape
        samples = TensorSamples.of(T, _read_weights(sample_weight, T), transformer, known_shape)
        return replace(samples, feature_names=reader.feature_names)
    if not isinstance(source.execution, Local):  # workers get copies of the reader, which must know the shape before
        reader.tensors(np.zeros((1, *X.shape[1:])))
    return BlockSamples(source, reader, transformer)


def _read_weights(weight: Any, T: Array, *, is_part: bool = False) -> Array:
    """Check the weights of samples, one each where there are none; those of a part of the samples may all be zero."""
    return read_weights(1.0 if weight is None else weight, T, is_part=is_part)  # type: ignore[return-value] # there are some
