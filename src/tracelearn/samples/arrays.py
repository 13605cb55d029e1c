"""Columns that are arrays: whatever has a shape, a dtype and slices, in memory or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.samples.source import Column, check_length

__all__ = ["ArrayColumn", "array_column", "chunk_rows", "is_lazy", "slices"]


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
