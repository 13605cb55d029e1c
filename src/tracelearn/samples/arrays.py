"""Columns that are arrays: whatever has a shape, a dtype and slices, in memory or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as _format
from numpy.typing import NDArray

from tracelearn.samples.source import Column, check_length

__all__ = [
    "ArrayColumn",
    "NpyColumn",
    "array_column",
    "check_header",
    "chunk_rows",
    "is_lazy",
    "npy_column",
    "read_npy_header",
    "slices",
]

npy_format: Any = _format  # some versions of NumPy ship no types for it
_HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}


def is_lazy(values: Any) -> bool:
    """Say whether values are an array that is read when it is sliced: a memory map, of Zarr, or of h5py."""
    return isinstance(values, np.memmap) or type(values).__module__.partition(".")[0] in ("zarr", "h5py")


def chunk_rows(values: Any) -> int:
    """Find how many rows an array stores together."""
    chunks = getattr(values, "chunks", None)
    return max(1, int(chunks[0])) if chunks else 1


def slices(values: Any, start: int, rows: int) -> Iterator[NDArray[Any]]:
    """Slice an array from row ``start`` on, touching every chunk once."""
    chunk, n = chunk_rows(values), values.shape[0]
    step = -(-rows // chunk) * chunk
    # Strings of HDF5 come as bytes unless asked for otherwise.
    readable = values.asstr() if hasattr(values, "asstr") and values.dtype.kind in "OS" else values
    while start < n:
        stop = min(n, start - start % step + step)
        yield _plain(readable[start:stop])
        start = stop


def _plain(values: Any) -> NDArray[Any]:
    if isinstance(values, np.memmap):
        return np.array(values)  # a slice of a map reads nothing yet, and would do so in the thread that computes
    array = np.asarray(values)
    if array.dtype.kind == "T":
        array = array.astype(object)
    if array.dtype.kind == "O":  # left as objects: text of one length would make all labels as long as the longest
        check_length(max((len(value) for value in array.flat if isinstance(value, str)), default=0))
    return array


@dataclass(frozen=True, eq=False)
class ArrayColumn(Column):
    """An array that is at hand, though perhaps not in memory."""

    values: Any

    def arrays(self, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Slice the array."""
        return slices(self.values, start, rows)


def array_column(values: Any, name: str) -> ArrayColumn:
    """Make a column of an array, or of what NumPy makes one of."""
    if not is_lazy(values):
        values = np.asarray(values)
    elif not hasattr(values, "shape"):
        kind = f"{type(values).__module__.partition('.')[0]} {type(values).__name__}"
        raise ValueError(f"Expected {name} to be an array, got a {kind}: pass one of its arrays, or its path.")
    if not values.shape:
        raise ValueError(
            f"Expected {name} to be an array with one row for each sample, got a single value: pass an array, or a path for "
            "X to name what is in that file."
        )
    shape = tuple(int(size) for size in values.shape)
    return ArrayColumn(shape[0], shape[1:], np.dtype(values.dtype), chunk_rows(values), values)


@dataclass(frozen=True, eq=False)
class NpyColumn(Column):
    """An array in a ``.npy`` file.

    It is read and not mapped: a map of a file that somebody cuts off takes the whole process down.
    """

    path: Path
    offset: int
    is_fortran: bool

    def arrays(self, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Read rows that lie together, or in Fortran order the part of them that each column holds."""
        width = prod(self.shape)
        with open(self.path, "rb", buffering=0) as file:
            while start < self.n_rows:
                stop = min(self.n_rows, start - start % rows + rows)
                if self.is_fortran:
                    block = np.empty((width, stop - start), self.dtype)
                    for column in range(width):
                        self._read(file, column * self.n_rows + start, block[column])
                    yield block.reshape(*self.shape[::-1], stop - start).T
                else:
                    block = np.empty((stop - start, *self.shape), self.dtype)
                    self._read(file, start * width, block)
                    yield block
                start = stop

    def _read(self, file: Any, first: int, into: NDArray[Any]) -> None:
        """Fill an array with the values from number ``first`` on."""
        file.seek(self.offset + first * self.dtype.itemsize)
        rest = into.reshape(-1).view(np.uint8)
        while rest.size:
            count = file.readinto(rest)
            if not count:
                raise ValueError(
                    f"Expected '{self.path}' to hold {self.n_rows} samples, got fewer: it was cut off, so write it again."
                )
            rest = rest[count:]


def npy_column(path: Path) -> NpyColumn:
    """Read the header of a ``.npy`` file and compare what it claims with what is there."""
    with open(path, "rb") as file:
        shape, is_fortran, dtype = read_npy_header(file)
        offset = file.tell()
    check_header(shape, dtype, path.stat().st_size - offset, f"'{path}'")
    return NpyColumn(shape[0], shape[1:], dtype, 1, path, offset, is_fortran)


def check_header(shape: tuple[int, ...], dtype: np.dtype[Any], there: int, name: str) -> None:
    """Refuse an array of Python objects, and one that claims more bytes than there are."""
    if dtype.hasobject:
        raise ValueError(
            f"Expected numbers or strings in {name}, got Python objects: reading them could run any code, so store an array of a "
            "plain dtype."
        )
    if not shape or min(shape) < 0:
        raise ValueError(f"Expected an array with one row for each sample in {name}, got shape {shape}: store one.")
    claimed = prod(shape) * dtype.itemsize
    if claimed > there:
        raise ValueError(
            f"Expected {name} to hold the {claimed} bytes of its shape {shape}, got at most {max(there, 0)}: the file is "
            "damaged, write it again."
        )


def read_npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and type of an array in the format of NumPy; no object is built from it."""
    version = npy_format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of the format")
    shape, is_fortran, dtype = _HEADERS[version](file)
    if not all(type(size) is int for size in shape):
        raise ValueError(f"a shape of other things than numbers, {shape}")
    return shape, is_fortran, dtype
