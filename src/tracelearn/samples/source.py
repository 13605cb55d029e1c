"""What becomes of X: whatever a user passes as samples is a ``Source``, whose blocks are read here, from a file or on a cluster.

``as_source`` tells arrays and frames, samples with names of modes, Dask arrays, files, tables and iterables of blocks from one
another; ``reading.read`` checks the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.arrays.array_api import Array
from tracelearn.errors import InputError
from tracelearn.samples.execution import HERE, Again, PerBlock
from tracelearn.samples.modes import Mode, Modes, check_file_modes, is_named, read_named, targets_of_named

__all__ = ["Batch", "NumberedBatch", "Source", "as_source", "is_dask", "missing_targets"]

Batch = tuple[NDArray[Any], Any, Any | None]  # X, y, weight
NumberedBatch = tuple[int, NDArray[Any], Any, Any | None]  # the number of samples before, X, y, weight


def _no_columns(name: str) -> NDArray[Any]:
    """Refuse to read a column: ``Source.column`` of samples in memory."""
    raise InputError(
        f"Expected a file or a table, in which {name!r} can be looked up, got samples without names: pass an array instead."
    )


@dataclass(frozen=True, eq=False)
class Source:
    """Samples with their targets and weights, as they were passed and wherever they are; not checked yet.

    Attributes
    ----------
    sample_shape : tuple of int or None
        Shape of one sample; None where only reading tells.
    n_samples : int or None
    dtype : numpy.dtype or None
        Type of the samples.
    repeatable : bool
        Whether every pass gives the same blocks; otherwise there is one pass.
    read : function from a number of samples to an iterable
        Reads blocks ``(first, X, y, weight)`` from that sample on; ``first`` is the number of samples before the block.
    targets : function to an iterable
        Reads (y, weight) of the blocks, without their samples where the format allows it.
    modes : tuple of Mode or None
        Names, coordinates and units of the modes of a sample, where they have some.
    column : function from a name to an array
        Reads one value for each sample into memory, such as the groups of a cross-validation: a column of a table, an array
        of a file, or a column of the metadata of epochs.
    confounds : array of shape (n_samples, n_confounds) or None
        In memory wherever the samples are.
    execution : Local or Dask
        Where blocks are worked on. Those of Dask are promises.
    in_memory : bool
        Whether there is one block, which is X, y and weight as they were passed.
    """

    sample_shape: tuple[int, ...] | None
    n_samples: int | None
    dtype: np.dtype[Any] | None
    repeatable: bool
    read: Callable[[int], Iterable[NumberedBatch]]
    targets: Callable[[], Iterable[tuple[Any, Any | None]]]
    modes: tuple[Mode, ...] | None = None
    column: Callable[[str], NDArray[Any]] = _no_columns
    confounds: Array | None = None
    execution: Any = HERE
    in_memory: bool = False

    @classmethod
    def of_arrays(cls, X: Any, y: Any = None, weight: Any = None) -> Source:
        """Take what is in memory as one block."""
        return cls(None, None, None, True, lambda start: [(0, X, y, weight)], lambda: [(y, weight)], in_memory=True)

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Read blocks (X, y, weight) from sample ``start`` on.

        X has the shape ``(m, *sample_shape)``; y is None if there is no target, weight is None if all weigh the same.
        """
        if start < 0:
            raise InputError(f"Expected start to be a number of samples of at least 0, got {start}.")
        blocks = self.read(start)
        return ((X, y, weight) for _, X, y, weight in blocks)

    @property
    def blocks(self) -> PerBlock:
        """All blocks ``(first, X, y, weight)``, or Dask's promises of them, read anew in every pass."""
        return Again(lambda: iter(self.read(0)))

    @property
    def block_targets(self) -> PerBlock:
        """The targets and weights of all blocks, read anew in every pass; samples without targets are refused."""
        return self.execution.view(_refuse_missing, Again(lambda: iter(self.targets())))  # type: ignore[no-any-return]

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """X, y and weight of samples in memory."""
        ((_, X, y, weight),) = self.blocks
        return X, y, weight

    def first_samples(self) -> Any:
        """Read the samples of the first block."""
        return self.execution.first(self.blocks)[1]

    def all_targets(self) -> tuple[Any, Any]:
        """Read all targets and weights into memory; None where there are none."""
        if self.in_memory:
            _, y, weight = self.arrays
            return y, weight
        y, weight = zip(*self.execution.gather(self.targets()), strict=True)
        return _concatenated(y), _concatenated(weight)

    def loaded(self) -> Source:
        """Read all samples into memory, from wherever they are: whoever asks knows that they fit there."""
        if self.in_memory:
            return self
        _, X, y, weight = zip(*self.execution.gather(self.blocks), strict=True)
        source = Source.of_arrays(np.concatenate(X), _concatenated(y), _concatenated(weight))
        return replace(source, confounds=self.confounds, modes=self.modes)


def _concatenated(parts: Iterable[Any]) -> Any:
    """Put the targets, or the weights, of all blocks together; None where there are none."""
    arrays = list(parts)
    return None if any(part is None for part in arrays) else np.concatenate(arrays)


def _refuse_missing(targets: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the targets and weights of a block; refuse one without targets."""
    if targets[0] is None:
        raise missing_targets()
    return targets


def missing_targets() -> InputError:
    """Say that samples to be learned from came without targets."""
    return InputError(
        "Expected targets with the samples, got none: pass y, or name them with open_source(path, target=...)."
    )


# --- recognising what was passed --------------------------------------------------------------------------------------


def is_dask(X: Any) -> bool:
    """Tell whether X is a Dask array, without importing Dask."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed") and hasattr(X, "chunks")


def as_source(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    confounds: Any = None,
    *,
    modes_of_fit: Modes | None = None,
    ignore: tuple[str, ...] = (),
) -> Source:
    """Take samples of any kind as a source, as ``fit`` does.

    Parameters
    ----------
    X, y, sample_weight, confounds : as for ``fit``
    modes_of_fit : those of the samples that a model was fitted to, which these must match; of a table, their columns are read
    ignore : names of columns of a table that are no entries of samples, such as groups
    """
    source = _source_of(X, y, sample_weight, modes_of_fit, ignore)
    if confounds is None:
        return source
    from tracelearn.samples.per_sample import read_confounds  # noqa: PLC0415 - readers of files wait for no scikit-learn

    n = np.shape(source.first_samples())[0] if source.in_memory else source.n_samples
    return replace(source, confounds=read_confounds(confounds, n))


def _source_of(X: Any, y: Any, sample_weight: Any, modes_of_fit: Modes | None, ignore: tuple[str, ...]) -> Source:
    """Take samples of any kind as a source, without confounds."""
    if type(X) is np.ndarray and X.dtype != object:
        return Source.of_arrays(X, y, sample_weight)
    if is_named(X):
        values, modes = read_named(X, modes_of_fit)
        source = _source_of(values, targets_of_named(X, y), sample_weight, None, ())
        return replace(source, modes=modes)
    if is_dask(X):
        from tracelearn.samples.cluster import dask_source  # noqa: PLC0415 - Dask is imported where it is used

        return dask_source(X, y, sample_weight)
    from tracelearn.io.opening import source_in_blocks  # noqa: PLC0415 - the core takes paths and knows no format

    in_blocks = source_in_blocks(X, y, sample_weight, ignore, modes_of_fit)
    if in_blocks is None:
        return Source.of_arrays(X, y, sample_weight)
    if modes_of_fit and in_blocks.modes:
        check_file_modes(in_blocks.modes, modes_of_fit)
    return in_blocks
