"""Columns, one value for each sample, and how columns of equal length are read side by side in blocks.

Blocks end at multiples of a number of rows, wherever reading starts, so that no chunk of a file is decompressed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelearn.arrays.array_api import available_memory
from tracelearn.errors import InputError, refuse
from tracelearn.io.ahead import read_ahead
from tracelearn.io.safety import check_memory
from tracelearn.samples.modes import Mode
from tracelearn.samples.source import Source

__all__ = [
    "TEXT",
    "Column",
    "WholeArray",
    "column_of_array",
    "regroup",
    "reshaped",
    "side_by_side",
    "until_rows",
]

T = TypeVar("T", bound=Sized)
TEXT = np.dtypes.StringDType()  # readers announce text of variable length as this type, and return it as objects
# Bytes: blocks of this size are still in cache when they are summed up; four times as much is slower by a tenth.
_LARGEST_BLOCK = 16 * 2**20


@dataclass(frozen=True, eq=False)
class Column:
    """One value for each sample, readable in order from any row on.

    Attributes
    ----------
    n_rows : int
        Number of values.
    shape : tuple of int
        Shape of one value.
    dtype : numpy.dtype
        Type of the values; `TEXT` for text of variable length, which is read as objects.
    chunk : int
        Rows that are stored, and so must be read, together.
    read : function from a row and a number of rows to an iterator
        Yields arrays of about so many rows from that row on; the format decides where they are cut.
    modes : tuple of Mode or None
        Names and coordinates of the modes of a value, where the file has them.
    """

    n_rows: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: int
    read: Callable[[int, int], Iterator[NDArray[Any]]]
    modes: tuple[Mode, ...] | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes of one value."""
        return max(1, prod(self.shape) * self.dtype.itemsize)

    def values(self, name: str) -> NDArray[Any]:
        """Read all values into memory."""
        check_memory(name, (self.n_rows, *self.shape), self.dtype)
        return np.concatenate(list(self.read(0, self.n_rows)))

    def head(self, rows: int) -> NDArray[Any]:
        """Read the first values, so many at most."""
        arrays = list(until_rows(self.read(0, rows), rows))
        values: NDArray[Any] = np.concatenate(arrays)
        return values[:rows]


def until_rows(arrays: Iterable[T], rows: int) -> Iterator[T]:
    """Yield arrays or record batches until they have ``rows`` rows together."""
    n_yielded = 0
    for array in arrays:
        yield array
        n_yielded += len(array)
        if n_yielded >= rows:
            return


@dataclass(frozen=True, eq=False)
class WholeArray:
    """An array that its library can only read whole: its size is checked first, and it is read when it is first sliced."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    load: Callable[[], NDArray[Any]]

    def __post_init__(self) -> None:
        check_memory(self.name, self.shape, self.dtype)

    @cached_property
    def _values(self) -> NDArray[Any]:
        return self.load()

    def __getitem__(self, index: Any) -> NDArray[Any]:
        values: NDArray[Any] = self._values[index]
        return values


# --- from arrays ------------------------------------------------------------------------------------------------------


def column_of_array(open_array: Callable[[], AbstractContextManager[Any]], name: str, axis: int = 0) -> Column:
    """Make a column of an array that is opened again for every pass, with the samples along an axis.

    The array has a shape, a dtype, and perhaps chunks and modes; it is read when it is sliced by a tuple.
    """
    with open_array() as array:
        shape = tuple(int(size) for size in array.shape)
        dtype = np.dtype(array.dtype)
        refuse(
            not shape,
            f"Expected {name} to be an array with one row for each sample, got a single value: pass an array, or a path for X "
            "to name what is in that file.",
        )
        refuse(
            not -len(shape) <= axis < len(shape),
            f"Expected sample_axis to be one of the {len(shape)} axes of {name}, got {axis}: correct it.",
        )
        axis %= len(shape)
        chunks = getattr(array, "chunks", None) or (1,) * len(shape)
        modes = getattr(array, "modes", None)
    chunk = max(1, int(chunks[axis]))
    read = partial(_slices, open_array, chunk, axis)
    return Column(shape[axis], shape[:axis] + shape[axis + 1 :], dtype, chunk, read, modes)


def _slices(
    open_array: Callable[[], AbstractContextManager[Any]], chunk: int, axis: int, start: int, rows: int
) -> Iterator[NDArray[Any]]:
    """Slice an array along an axis from row ``start`` on, at the borders of its chunks, so that none is read twice."""
    step = -(-rows // chunk) * chunk
    with open_array() as array:
        n = array.shape[axis]
        while start < n:
            stop = min(n, start - start % step + step)
            values = array[(*[slice(None)] * axis, slice(start, stop))]
            # Copied, since a slice of a memory map has read nothing yet.
            values = np.array(values) if isinstance(values, np.memmap) else np.asarray(values)
            yield np.moveaxis(values.astype(object) if values.dtype.kind == "T" else values, axis, 0)
            start = stop


def reshaped(column: Column, shape: Sequence[int], name: str) -> Column:
    """Give the values of a column another shape."""
    sizes = tuple(int(size) for size in shape)
    refuse(
        not sizes or min(sizes) < 1 or prod(sizes) != prod(column.shape),
        f"Expected tensor_shape to be sizes whose product is {prod(column.shape)}, the entries of a sample of {name}, got "
        f"{sizes}: correct it.",
    )
    return replace(column, shape=sizes, read=partial(_read_reshaped, column.read, sizes), modes=None)


def _read_reshaped(read: Any, shape: tuple[int, ...], start: int, rows: int) -> Iterator[NDArray[Any]]:
    """Read a column and give its values another shape."""
    return (array.reshape(len(array), *shape) for array in read(start, rows))


# --- side by side -----------------------------------------------------------------------------------------------------


def side_by_side(
    X: Column, y: Column | None, weight: Column | None, *, block_bytes: int | None = None, name: str = "X"
) -> Source:
    """Make a source of columns, after the checks that need no reading."""
    _check_columns(X, y, weight, name)
    rows = _block_rows(X, block_bytes)
    advice = "write the file again with smaller chunks, or compress the samples with ModePCA"
    for column, role in ((X, name), (y, "targets"), (weight, "weights")):
        if column is not None:
            rows_at_once = min(max(rows, column.chunk), column.n_rows)
            check_memory(f"blocks of {role}", (rows_at_once, *column.shape), column.dtype, advice)
    # Partial functions of module level, so that a source of files can be sent to another process.
    blocks = partial(_numbered_ahead, (X, y, weight), X.n_rows, rows)
    targets = partial(_blocks, (y, weight), X.n_rows, rows, 0)
    return Source(X.shape, X.n_rows, X.dtype, True, blocks, targets, X.modes)


def _check_columns(X: Column, y: Column | None, weight: Column | None, name: str) -> None:
    """Refuse samples that are no numbers or have no entries, and columns of unequal lengths."""
    refuse(
        not X.shape or 0 in X.shape or X.n_rows == 0,
        f"Expected {name} of shape (n_samples, I1, ..., IN) with at least one sample and one entry, got shape "
        f"{(X.n_rows, *X.shape)}: reshape it.",
    )
    refuse(
        X.dtype.kind not in "fiub",
        f"Expected numbers in {name}, got {X.dtype} values: encode them as numbers first.",
    )
    for column, role in ((y, "target"), (weight, "weight")):
        refuse(
            column is not None and column.n_rows != X.n_rows,
            f"Expected one {role} for each sample, got {X.n_rows} samples and {column and column.n_rows} {role}s: samples and "
            f"{role}s have inconsistent numbers of samples.",
        )


def _block_rows(column: Column, block_bytes: int | None) -> int:
    """Count the rows of a block: whole chunks, so that none is read and decompressed twice."""
    if block_bytes is None:
        block_bytes = min(_LARGEST_BLOCK, available_memory() // 8)
    refuse(block_bytes < 1, f"Expected block_bytes to be a number of bytes of at least 1, got {block_bytes}.")
    rows = max(1, block_bytes // column.row_bytes)
    return max(column.chunk, rows - rows % column.chunk)


def _numbered_ahead(columns: Sequence[Column | None], n: int, rows: int, start: int) -> Iterator[Any]:
    """Read blocks, and the number of samples before each, one block ahead."""
    with closing(read_ahead(_blocks(columns, n, rows, start))) as blocks:
        for block in blocks:
            yield start, *block
            start += len(block[0])


def _blocks(columns: Sequence[Column | None], n: int, rows: int, start: int) -> Iterator[Any]:
    """Read one block of every column at a time."""
    with ExitStack() as stack:
        readers = [
            None if column is None else stack.enter_context(closing(regroup(column.read(start, rows), start, rows)))
            for column in columns
        ]
        while start < n:
            stop = min(n, start - start % rows + rows)
            block = tuple(None if reader is None else next(reader, np.empty(0)) for reader in readers)
            if any(values is not None and len(values) != stop - start for values in block):
                raise InputError(
                    f"Expected samples {start} to {stop - 1} as when the source was opened, got fewer: the file changed, so open "
                    "it again."
                )
            yield block
            start = stop


def regroup(arrays: Iterable[NDArray[Any]], start: int, rows: int) -> Generator[NDArray[Any]]:
    """Cut consecutive arrays from row ``start`` on anew, at the multiples of ``rows``.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.io.columns import regroup
    >>> [block.tolist() for block in regroup([np.arange(2, 5), np.arange(5, 11)], start=2, rows=4)]
    [[2, 3], [4, 5, 6, 7], [8, 9, 10]]
    """
    pending: list[NDArray[Any]] = []
    missing = rows - start % rows
    for array in arrays:
        tail = array
        while len(tail) >= missing:
            pending.append(tail[:missing])
            tail = tail[missing:]
            yield pending[0] if len(pending) == 1 else np.concatenate(pending)
            pending = []
            missing = rows
        if len(tail):
            pending.append(tail)
            missing -= len(tail)
    if pending:
        yield pending[0] if len(pending) == 1 else np.concatenate(pending)
