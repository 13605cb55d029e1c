"""Columns that are arrays: whatever has a shape, a dtype and slices, in memory or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ArrayColumn", "NpyColumn", "array_column", "chunk_rows", "is_lazy", "npy_column", "slices"]


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
    texts = array.dtype.kind == "T" or (array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat))
    return np.array(array.tolist(), dtype=str) if texts else array


@dataclass(frozen=True, eq=False)
class ArrayColumn:
    """An array that is at hand, though perhaps not in memory."""

    values: Any
    n_rows: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: int

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
    return ArrayColumn(values, shape[0], shape[1:], np.dtype(values.dtype), chunk_rows(values))


@dataclass(frozen=True, eq=False)
class NpyColumn:
    """An array in a ``.npy`` file, mapped into memory for the time of a pass."""

    path: Path
    n_rows: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: int = 1

    def arrays(self, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Slice the map."""
        return slices(_map(self.path), start, rows)


def npy_column(path: Path) -> NpyColumn:
    """Read the header of a ``.npy`` file."""
    values = _map(path)
    if not values.shape:
        raise ValueError(f"Expected an array with one row for each sample in '{path}', got a single value.")
    return NpyColumn(path, values.shape[0], values.shape[1:], values.dtype)


def _map(path: Path) -> NDArray[Any]:
    try:
        # Never unpickles: a map of Python objects is refused by NumPy itself.
        return np.lib.format.open_memmap(os.fspath(path), mode="r")
    except (ValueError, EOFError) as error:
        raise ValueError(
            f"Expected a whole .npy file of numbers or strings, got '{path}', of which NumPy says \"{error}\": write it "
            "again with numpy.save."
        ) from error
