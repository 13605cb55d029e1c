"""What a source is, and how columns of equal length are read side by side in blocks.

A format only says how one of its columns is read in order. Blocks end at multiples of one number of rows, wherever
reading starts, so that a block which is a multiple of a chunk stays one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelearn.arrays.memory import available_memory

__all__ = ["Block", "Column", "Columns", "Source", "beside", "check_length", "read_ahead", "regroup"]

Block = tuple[NDArray[Any], Any, Any | None]
T = TypeVar("T")

_LARGEST_BLOCK = 16 * 2**20  # still in cache when it is summed up; four times as much is slower by a tenth
_LONGEST_LABEL = 1000  # characters
_END = object()


def read_ahead(iterator: Iterable[T]) -> Iterator[T]:
    """Let a thread fetch the next item while the last one is worked on.

    What the iterator raises is raised here. Closing the generator waits for the item being read, ends the
    thread and closes the iterator if it is a generator too.

    Examples
    --------
    >>> from tracelearn.samples import read_ahead
    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    iterator = iter(iterator)
    try:
        # Asked for one at a time, so that never more than one item waits: items may be as large as memory allows.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tracelearn-read-ahead") as pool:
            future = _first(pool, iterator)
            while (item := future.result()) is not _END:
                future = pool.submit(next, iterator, _END)
                yield item  # type: ignore[misc]
    finally:
        if isinstance(iterator, Generator):
            iterator.close()


def _first(pool: ThreadPoolExecutor, iterator: Iterator[Any]) -> Any:
    """Start the thread, whose stack is what memory may be short of."""
    try:
        return pool.submit(next, iterator, _END)
    except RuntimeError as error:
        raise MemoryError(f"no thread could be started to read: {error}") from error


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """Samples with their targets and weights, read in blocks.

    Attributes
    ----------
    sample_shape : tuple of int or None
        Shape of one sample; None where only reading tells.
    n_samples : int or None
    dtype : numpy.dtype or None
        Type of the samples.
    repeatable : bool
        Whether every pass gives the same blocks; otherwise there is one pass.
    """

    sample_shape: tuple[int, ...] | None
    n_samples: int | None
    dtype: np.dtype[Any] | None
    repeatable: bool

    def batches(self, start: int = 0) -> Iterator[Block]:
        """Read blocks (X, y, weight) from sample ``start`` on, one block ahead.

        X has the shape ``(m, *sample_shape)``; y is None if there is no target, weight is None if all weigh the same.
        """
        if start < 0:
            raise ValueError(f"Expected start to be a number of samples of at least 0, got {start}.")
        return read_ahead(self._blocks(start))

    @abstractmethod
    def targets(self) -> Iterator[tuple[Any, Any | None]]:
        """Read (y, weight) of the blocks, without their samples where the format allows it."""

    @abstractmethod
    def _blocks(self, start: int) -> Iterator[Block]: ...


@dataclass(frozen=True, eq=False)
class Column(ABC):
    """One value for each sample, readable in order from any row on.

    Attributes
    ----------
    n_rows : int
        Number of values.
    shape : tuple of int
        Shape of one value.
    dtype : numpy.dtype
        Type of the values; text whose length varies is read as objects.
    chunk : int
        Rows that are stored, and so must be read, together.
    """

    n_rows: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: int

    @abstractmethod
    def arrays(self, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Read from row ``start`` on, in arrays of about ``rows`` rows, cut wherever the format likes it best."""


def regroup(arrays: Iterable[NDArray[Any]], start: int, rows: int) -> Generator[NDArray[Any]]:
    """Cut arrays that follow each other from row ``start`` on anew, at the multiples of ``rows``.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.samples.source import regroup
    >>> [block.tolist() for block in regroup([np.arange(2, 5), np.arange(5, 11)], start=2, rows=4)]
    [[2, 3], [4, 5, 6, 7], [8, 9, 10]]
    """
    held: list[NDArray[Any]] = []
    missing = rows - start % rows
    for array in arrays:
        rest = array
        while len(rest) >= missing:
            held.append(rest[:missing])
            rest = rest[missing:]
            yield held[0] if len(held) == 1 else np.concatenate(held)
            held, missing = [], rows
        if len(rest):
            held.append(rest)
            missing -= len(rest)
    if held:
        yield held[0] if len(held) == 1 else np.concatenate(held)


@dataclass(frozen=True, eq=False)
class Columns(Source):
    """Columns of one length, read side by side."""

    columns: tuple[Column, Column | None, Column | None]
    rows: int

    def targets(self) -> Iterator[tuple[Any, Any | None]]:
        """Read (y, weight) of the blocks; the samples are not touched."""
        return self._side_by_side(self.columns[1:], 0)  # type: ignore[return-value]

    def _blocks(self, start: int) -> Iterator[Block]:
        return self._side_by_side(self.columns, start)  # type: ignore[return-value]

    def _side_by_side(self, columns: Sequence[Column | None], start: int) -> Iterator[tuple[Any, ...]]:
        n, rows = self.columns[0].n_rows, self.rows
        with ExitStack() as stack:
            readers = [
                column and stack.enter_context(closing(regroup(column.arrays(start, rows), start, rows)))
                for column in columns
            ]
            while start < n:
                stop = min(n, start - start % rows + rows)
                yield tuple(reader and _take(reader, start, stop) for reader in readers)
                start = stop


def _take(reader: Iterator[NDArray[Any]], start: int, stop: int) -> NDArray[Any]:
    block = next(reader, None)
    if block is None or len(block) != stop - start:
        raise ValueError(
            f"Expected samples {start} to {stop - 1} as when the source was opened, got fewer: it changed since, so open "
            "it again."
        )
    return block


def beside(
    X: Column, y: Column | None, weight: Column | None, *, block_bytes: int | None = None, name: str = "X"
) -> Columns:
    """Put columns side by side, after the checks that need no reading."""
    if not X.shape or 0 in X.shape or X.n_rows == 0:
        raise ValueError(
            f"Expected {name} of shape (n_samples, I1, ..., IN) with at least one sample and one entry, got shape "
            f"{(X.n_rows, *X.shape)}: reshape it."
        )
    if X.dtype.kind not in "fiub":
        raise ValueError(f"Expected numbers in {name}, got {X.dtype} values: encode them as numbers first.")
    for column, what in ((y, "target"), (weight, "weight")):
        check_length(_characters(column.dtype) if column else 0)
        if column is not None and column.n_rows != X.n_rows:
            raise ValueError(
                f"Expected one {what} for each sample, got {X.n_rows} samples and {column.n_rows} {what}s: samples and {what}s "
                "have inconsistent numbers of samples."
            )
    rows = _block_rows(X, block_bytes)
    for column, what in ((X, name), (y, "targets"), (weight, "weights")):
        if column is not None:
            _check_fits(column, rows, what)
    return Columns(X.shape, X.n_rows, X.dtype, True, (X, y, weight), rows)


def _characters(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize // {"U": 4, "S": 1}.get(dtype.kind, dtype.itemsize + 1)


def check_length(longest: int) -> None:
    """Refuse a label of so many characters: whoever makes an array of labels makes all as long as the longest."""
    if longest > _LONGEST_LABEL:
        raise ValueError(
            f"Expected labels of at most {_LONGEST_LABEL} characters, got one of {longest}: shorten them, or number the classes."
        )


def _block_rows(column: Column, block_bytes: int | None) -> int:
    if block_bytes is None:
        block_bytes = min(_LARGEST_BLOCK, available_memory() // 8)
    elif block_bytes < 1:
        raise ValueError(f"Expected block_bytes to be a number of bytes of at least 1, got {block_bytes}.")
    rows = max(1, block_bytes // _row_bytes(column))
    # Whole chunks, so that none is read and decompressed twice.
    return max(column.chunk, rows - rows % column.chunk)


def _row_bytes(column: Column) -> int:
    return max(1, prod(column.shape) * column.dtype.itemsize)


def _check_fits(column: Column, rows: int, name: str) -> None:
    """Refuse a block that memory cannot hold before anything is allocated: shapes and chunks are but claims of a file."""
    needed = min(max(rows, column.chunk), column.n_rows) * _row_bytes(column)
    free = available_memory()
    if needed > free:
        raise ValueError(
            f"Expected {name} in blocks that fit in the {free / 2**30:.3g} GiB of free memory, got rows or chunks that need "
            f"{needed / 2**30:.3g} GiB at once: write the file again with smaller chunks, or compress the samples with ModePCA."
        )
