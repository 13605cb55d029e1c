"""Columns in files of MATLAB: numbers, truth values and rows of characters, of version 5 to 7 and of 7.3, which is HDF5.

Shapes are those of MATLAB. Matrices with one row or column are vectors, and vectors of whole numbers come as such: MATLAB stores
labels as it stores all numbers. Version 5 is read by ``mat5``, since damaged files crash the reader of SciPy (1.17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.errors import refuse
from tracelearn.optional import require
from tracelearn.samples import mat5
from tracelearn.samples.source import Column, array_column, opened_column

__all__ = ["column", "names"]

_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_TYPES = {"double": "float64", "single": "float32", "logical": "uint8"} | {kind: kind for kind in _INTEGERS}


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(19) == b"MATLAB 7.3 MAT-file"


def _open_hdf5(path: Path) -> Any:
    return require("h5py", "hdf5").File(path, "r")


def names(path: Path) -> list[str]:
    """List the arrays."""
    if not _is_hdf5(path):
        return [array.name for array in mat5.arrays(path)]
    h5py = require("h5py", "hdf5")
    with _open_hdf5(path) as file:
        # A link could have us open another file, or wait at a pipe.
        return [
            name
            for name in file
            if isinstance(file.get(name, getlink=True), h5py.HardLink) and hasattr(file[name], "shape")
        ]


def column(path: Path, name: str, sample_axis: int = 0) -> Column:
    """Find shape and type of an array; vectors are read at once."""
    opened, place = partial(_opened, path, name), f"'{name}' of '{path}'"
    with opened() as array:
        kind, shape = array.kind, array.shape
        refuse(
            (kind not in _TYPES and kind != "char") or len(shape) < 2,
            f"Expected numbers, or rows of characters, in {place}, got {kind}: convert it in MATLAB, cells of text by "
            "char(...), tables by table2array(...), sparse matrices by full(...), complex numbers by real(...).",
        )
        if kind == "char" or (len(shape) == 2 and 1 in shape):
            return array_column(_vector(array.read(()), kind), place)
    return opened_column(opened, place, sample_axis)


@dataclass(frozen=True, eq=False)
class _Matrix:
    """An array of a file that is open, in the axes of MATLAB."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    kind: str
    read: Callable[[tuple[slice, ...]], NDArray[Any]]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its values, in which they need not be stored."""
        return np.dtype(_TYPES[self.kind])

    def __getitem__(self, index: tuple[slice, ...]) -> NDArray[Any]:
        return _real(self.read(index), self.dtype)


@contextmanager
def _opened(path: Path, name: str) -> Iterator[_Matrix]:
    if not _is_hdf5(path):
        with closing(mat5.arrays(path)) as arrays:
            array = next(array for array in arrays if array.name == name)
            # All of it is in memory when any of it is.
            yield _Matrix(array.shape, array.shape, array.kind, lambda index: array.read()[index])
        return
    with _open_hdf5(path) as file:
        dataset = file[name]
        kind = bytes(dataset.attrs.get("MATLAB_class", b"nothing")).decode(errors="replace")
        kind = "references to other files" if dataset.is_virtual or dataset.external else kind
        chunks = dataset.chunks or (1,) * dataset.ndim
        yield _Matrix(dataset.shape[::-1], chunks[::-1], kind, partial(_backwards, dataset))


def _backwards(dataset: Any, index: tuple[slice, ...]) -> NDArray[Any]:
    """Slice a dataset: the axes of HDF5 are those of MATLAB backwards."""
    whole = (*index, *[slice(None)] * (dataset.ndim - len(index)))
    return np.asarray(dataset[whole[::-1]]).T


def _real(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    refuse(
        values.dtype.kind not in "fiub",
        f"Expected real numbers, got {values.dtype} values: split them into parts, as by real(...).",
    )
    return values.astype(dtype, copy=False)


def _vector(values: NDArray[Any], kind: str) -> NDArray[Any]:
    """Read labels from the rows of a matrix of characters, or numbers from a matrix that is one row or column."""
    if kind == "char":
        rows = (row.astype("<u2").tobytes().decode("utf-16-le", "replace") for row in np.atleast_2d(values))
        return np.array([row.rstrip() for row in rows])
    values = _real(values.reshape(-1), np.dtype(_TYPES[kind]))
    is_whole = values.dtype.kind == "f" and bool(np.all((np.abs(values) < 2**53) & (np.floor(values) == values)))
    return values.astype(np.int64) if is_whole else values
