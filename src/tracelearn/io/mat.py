"""Arrays in MATLAB files: numbers, truth values and rows of characters.

Shapes are those of MATLAB. Matrices with one row or column are vectors, and vectors of whole numbers come as such: MATLAB stores
labels as it stores all numbers. SciPy reads files up to version 7, whole; h5py those of version 7.3, in slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import io

from tracelearn.errors import refuse
from tracelearn.io.columns import WholeArray
from tracelearn.io.safety import check_memory
from tracelearn.optional import require

__all__ = ["names", "open_array"]

_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_NUMBERS = {"double": "float64", "single": "float32", "logical": "uint8", **{name: name for name in _INTEGERS}}


def names(path: Path) -> list[str]:
    """List the arrays of the file."""
    if not _is_hdf5(path):
        return [name for name, _, _ in io.whosmat(path)]
    h5py = require("h5py", "hdf5")
    with h5py.File(path, "r") as file:
        return [name for name in file if file.get(name, getclass=True) is h5py.Dataset]


@contextmanager
def open_array(path: Path, name: str) -> Iterator[Any]:
    """Open an array of numbers; vectors and rows of characters are read at once."""
    place = f"'{name}' of '{path}'"
    if not _is_hdf5(path):
        shape, kind = next((shape, kind) for member, shape, kind in io.whosmat(path) if member == name)
        _check_kind(kind, place)
        matrix: Any = WholeArray(place, shape, np.dtype(_NUMBERS.get(kind, "U1")), partial(_load, path, name, kind))
        yield _simplified(matrix, kind, place)
        return
    with require("h5py", "hdf5").File(path, "r") as file:
        kind = bytes(file[name].attrs.get("MATLAB_class", b"nothing")).decode(errors="replace")
        _check_kind(kind, place)
        yield _simplified(_Reversed(file[name], np.dtype(_NUMBERS.get(kind, "u2"))), kind, place)


def _is_hdf5(path: Path) -> bool:
    """Tell files of version 7.3 from older ones."""
    with open(path, "rb") as file:
        return file.read(19) == b"MATLAB 7.3 MAT-file"


def _check_kind(kind: str, place: str) -> None:
    """Refuse what is neither numbers nor text."""
    refuse(
        kind not in _NUMBERS and kind != "char",
        f"Expected numbers, or rows of characters, in {place}, got {kind}: convert it in MATLAB, cells of text by char(...), "
        "tables by table2array(...), sparse matrices by full(...).",
    )


def _load(path: Path, name: str, kind: str) -> NDArray[Any]:
    """Read an array with SciPy, in the type that it has in MATLAB; text as an array of single characters."""
    values: NDArray[Any] = io.loadmat(path, variable_names=[name], chars_as_strings=False)[name]
    refuse(
        values.dtype.kind == "c",
        f"Expected real numbers in '{name}' of '{path}', got complex ones: split them into parts, as by real(...).",
    )
    return values if kind == "char" else values.astype(_NUMBERS[kind], copy=False)


@dataclass(frozen=True)
class _Reversed:
    """A dataset of HDF5 with its axes in MATLAB's order, which is the reverse."""

    dataset: Any
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.dataset.shape[::-1])

    @property
    def chunks(self) -> tuple[int, ...]:
        return tuple((self.dataset.chunks or (1,) * self.dataset.ndim)[::-1])

    def __getitem__(self, index: tuple[slice, ...]) -> NDArray[Any]:
        slices = (*index, *[slice(None)] * (self.dataset.ndim - len(index)))
        values = np.asarray(self.dataset[slices[::-1]]).T
        refuse(
            values.dtype.kind == "V", "Expected real numbers, got complex ones: split them into parts, as by real(...)."
        )
        return values.astype(self.dtype, copy=False)


def _simplified(matrix: Any, kind: str, place: str) -> Any:
    """Read rows of characters as text, and matrices of one row or column as vectors; any other matrix stays in the file."""
    if kind != "char" and (len(matrix.shape) != 2 or 1 not in matrix.shape):
        return matrix
    check_memory(place, matrix.shape, matrix.dtype)
    if kind == "char":
        letters = matrix[(slice(None),)]
        if letters.dtype.kind == "u":  # HDF5 has codes of UTF-16, SciPy gives characters
            letters = letters.view("<u2")
            return np.array([row.tobytes().decode("utf-16-le", "replace").rstrip() for row in letters])
        return np.array(["".join(row).rstrip() for row in letters])
    values = matrix[(slice(None),)].reshape(-1)
    is_whole = values.dtype.kind == "f" and bool(np.all((np.abs(values) < 2**53) & (np.floor(values) == values)))
    return values.astype(np.int64) if is_whole else values
