"""Training samples of a transformer, wherever they are: tensors over which summaries are added up, in one or more passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, is_non_numpy
from tracelearn.features.gaps import has_gaps, lengths_of
from tracelearn.features.summaries import Summary
from tracelearn.samples.checks import check_range, float_dtype, read_rows, read_weights
from tracelearn.samples.samples import Local, Raw, as_raw, errors_name_block, is_dask

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

    With ``any_length`` they may be of another length than those of ``fit``.
    """

    def __init__(self, transformer: Any, *, is_fitted: bool, any_length: bool = False) -> None:
        self._name = type(transformer).__name__
        self._tensor_shape = transformer.tensor_shape
        self._shape: tuple[int, ...] | None = transformer.sample_shape_ if is_fitted else None
        self._common_shape = transformer.common_shape
        self._time: int | None = None  # the mode along which samples may be of any length
        if self._shape is not None and any_length and transformer.takes_gaps:
            self._time = transformer.time_mode(self._shape)
        self.feature_names: Array | None = getattr(transformer, "feature_names_in_", None) if is_fitted else None

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
            self._shape = self._common_shape(T)
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

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample, known after the first pass."""

    @property
    def feature_names(self) -> Array | None:
        """The names of the columns, where samples came as a data frame."""
        return None

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
    """Checked tensors (n, I1, ..., IN) in memory with their weights (n,), as a search has them.

    ``shape_of_sample`` is given where samples have several lengths and are padded to that of the longest.
    """

    T: Array
    weight: Array
    reader: TensorReader | None = None
    shape_of_sample: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample."""
        return tuple(self.T.shape[1:]) if self.shape_of_sample is None else self.shape_of_sample

    @property
    def feature_names(self) -> Array | None:
        """The names of the columns, where samples came as a data frame."""
        return None if self.reader is None else self.reader.feature_names

    @property
    def have_gaps(self) -> bool:
        """Whether some entries are NaN."""
        return has_gaps(self.T)

    def are_unequal(self, time: int) -> bool:
        """Tell whether samples end at several times along a mode."""
        return self.have_gaps and len(np.unique(lengths_of(self.T, time))) > 1

    def total(self, summarise: Summarise, numbers_per_sample: Size) -> Summary:
        """Add up the summaries of blocks; samples of weight zero are left out."""
        T, weight = self.T, self.weight
        xp = array_namespace(T)
        weighted = xp.nonzero(weight)[0]
        if weighted.shape[0] < T.shape[0]:  # the first sample is the origin of sums, so it must count
            T = xp.take(T, weighted, axis=0)
            weight = xp.take(weight, weighted, axis=0)
        summary: Any = None
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            for rows in blocks_of(T.shape[0], numbers_per_sample(self.shape)):
                block = summarise(T[rows, ...], weight[rows])
                summary = block if summary is None else summary + block
        largest = max((np.max(np.abs(values)) for values in summary.sums), default=1.0)
        if not np.finfo(np.float64).tiny < largest < np.inf:
            check_range(T, "X")
        return summary  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class BlockSamples(TrainingSamples):
    """Samples in blocks, of a file, an iterable or a cluster, that are read and checked in every pass."""

    raw: Raw
    reader: TensorReader = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample, that of the first block."""
        return self.reader.shape

    @property
    def feature_names(self) -> Array | None:
        """The names of the columns, where samples came as a data frame."""
        return self.reader.feature_names

    def total(self, summarise: Summarise, numbers_per_sample: Size) -> Summary:
        """Read, check and summarise every block."""

        def summary_of_block(block: tuple[int, Any, Any, Any]) -> Summary:
            first, X, _, weight = block
            with errors_name_block(first):
                return _tensor_samples(self.reader, X, weight).total(summarise, numbers_per_sample)

        total: Summary = self.raw.execution.total(summary_of_block, self.raw.batches)
        return total


def training_samples(
    transformer: Any, X: Any, sample_weight: Any, *, is_fitted: bool, any_length: bool = False
) -> TrainingSamples:
    """Prepare samples, wherever they are, for a transformer to learn from."""
    # Blocks of Dask must have targets: the first entry of each sample stands for them, and costs nothing.
    y = X[(slice(None), *(0,) * (X.ndim - 1))] if is_dask(X) and X.ndim > 1 else None
    raw = as_raw(X, y, sample_weight)
    reader = TensorReader(transformer, is_fitted=is_fitted, any_length=any_length)
    if raw.in_memory:
        return _tensor_samples(reader, X, sample_weight, takes_gaps=transformer.takes_gaps)
    if not isinstance(raw.execution, Local):  # workers get copies of the reader, which must know the shape before
        reader.tensors(np.zeros((1, *X.shape[1:])))
    return BlockSamples(raw, reader)


def _tensor_samples(reader: TensorReader, X: Any, weight: Any, *, takes_gaps: bool = False) -> TensorSamples:
    """Check samples in memory and their weights."""
    T = reader.tensors(X, takes_gaps=takes_gaps)
    weights = read_weights(1.0 if weight is None else weight, T)
    return TensorSamples(T, weights, reader, reader.shape)  # type: ignore[arg-type] # weights are there
