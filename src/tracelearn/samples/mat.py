"""Columns in files of MATLAB: numbers, truth values and rows of characters, of version 5 to 7 and of 7.3, which is HDF5.

Shapes are those of MATLAB. Matrices with one row or column are vectors, and vectors of whole numbers come as such: MATLAB stores
labels as it stores all numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import io

from tracelearn.arrays.memory import available_memory
from tracelearn.optional import require
from tracelearn.samples.source import Column, array_column, checked_axis, slices

__all__ = ["OPTIONS", "column", "names"]

OPTIONS = ("sample_axis",)
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_TYPES = {"double": "float64", "single": "float32", "logical": "uint8"} | {kind: kind for kind in _INTEGERS}
_DEFLATED = 15  # type of an element of version 5 that is compressed
_PIECE = 2**20


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(19) == b"MATLAB 7.3 MAT-file"


def _open_hdf5(path: Path) -> Any:
    return require("h5py", "hdf5").File(path, "r")


def names(path: Path) -> list[str]:
    """List the arrays."""
    if _is_hdf5(path):
        with _open_hdf5(path) as file:
            return [name for name in file if hasattr(file[name], "shape")]
    if io.matlab.matfile_version(path, appendmat=False)[0] != 1:
        raise ValueError(f"Expected a file of MATLAB 5 or later, got '{path}', which is older: save it with -v7.")
    return [name for name, _, _ in io.whosmat(path, appendmat=False)]


def column(path: Path, name: str, sample_axis: int = 0) -> Column:
    """Find shape and type of an array; vectors are read at once."""
    if _is_hdf5(path):
        with _open_hdf5(path) as file:
            dataset, read = file[name], partial(_read_hdf5, path, name)
            shape, chunks = dataset.shape[::-1], (dataset.chunks or (1,) * dataset.ndim)[::-1]
            kind = bytes(dataset.attrs.get("MATLAB_class", b"nothing")).decode(errors="replace")
            if dataset.is_virtual or dataset.external:
                kind = "references to other files"
    else:
        kinds = {found: (shape, kind) for found, shape, kind in io.whosmat(path, appendmat=False)}
        (shape, kind), read = kinds[name], partial(_read_5, path, name)
        chunks = shape  # all of it is in memory when any of it is
        _check_size(path, prod(shape) * 8)
    if kind != "char" and (kind not in _TYPES or len(shape) < 2):
        raise ValueError(
            f"Expected numbers, or rows of characters, in '{name}' of '{path}', got {kind}: convert it in MATLAB, cells of text "
            "by char(...), tables by table2array(...), sparse matrices by full(...)."
        )
    if kind == "char" or (len(shape) == 2 and 1 in shape):
        return array_column(_vector(next(read(0, 0, max(shape))), kind), f"'{name}' of '{path}'")
    axis = checked_axis(sample_axis, len(shape), f"'{name}' of '{path}'")
    others, dtype = shape[:axis] + shape[axis + 1 :], np.dtype(_TYPES[kind])
    return Column(shape[axis], others, dtype, max(1, int(chunks[axis])), partial(_read, read, axis, dtype))


def _read(read: Any, axis: int, dtype: np.dtype[Any], start: int, rows: int) -> Iterator[NDArray[Any]]:
    for part in read(axis, start, rows):
        yield _real(np.moveaxis(part, axis, 0), dtype)


def _real(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if values.dtype.kind not in "fiub":
        raise ValueError(f"Expected real numbers, got {values.dtype} values: split them into parts, as by real(...).")
    return values.astype(dtype, copy=False)


def _read_5(path: Path, name: str, axis: int, start: int, rows: int) -> Iterator[NDArray[Any]]:
    whole = io.loadmat(path, variable_names=[name], appendmat=False)[name]
    if not isinstance(whole, np.ndarray):
        raise ValueError("an array that cannot be read")
    yield whole[(slice(None),) * axis + (slice(start, None),)]


def _read_hdf5(path: Path, name: str, axis: int, start: int, rows: int) -> Iterator[NDArray[Any]]:
    with _open_hdf5(path) as file:
        dataset = file[name]
        stored = dataset.ndim - 1 - axis  # the axes of HDF5 are those of MATLAB backwards
        for part in slices(dataset, (dataset.chunks or (1,) * dataset.ndim)[stored], start, rows, stored):
            yield np.moveaxis(part, 0, stored).T


def _vector(values: NDArray[Any], kind: str) -> NDArray[Any]:
    """Read labels from the rows of a matrix of characters, or numbers from a matrix that is one row or column."""
    if kind == "char":
        is_text = values.dtype.kind == "U"
        rows = values if is_text else [row.astype("<u2").tobytes().decode("utf-16-le", "replace") for row in values]
        return np.array([str(row).rstrip() for row in rows])
    values = _real(values.reshape(-1), np.dtype(_TYPES[kind]))
    is_whole = values.dtype.kind == "f" and bool(np.all((np.abs(values) < 2**53) & (np.floor(values) == values)))
    return values.astype(np.int64) if is_whole else values


def _check_size(path: Path, claimed: int) -> None:
    """Refuse what expands to more than memory holds: scipy takes the memory for what is there, whatever shapes say."""
    free = available_memory() // 2
    with open(path, "rb") as file:
        file.seek(126)
        order = "<" if file.read(2) == b"IM" else ">"
        while len(tag := file.read(8)) == 8:
            kind, size = (int(part) for part in np.frombuffer(tag, f"{order}u4"))
            stop, found = file.tell() + size, 0
            if kind == _DEFLATED:
                inflate, piece = zlib.decompressobj(), file.read(min(_PIECE, size))
                while piece and max(found, claimed) <= free:
                    found += len(inflate.decompress(piece, _PIECE))
                    piece = inflate.unconsumed_tail or file.read(min(_PIECE, stop - file.tell()))
            if max(found, claimed) > free:
                raise MemoryError(f"{max(found, claimed)} bytes")
            file.seek(stop)
