"""Columns in files of MATLAB: numbers, truth values and rows of characters, of version 5 to 7 and of 7.3, which is HDF5.

Shapes are those of MATLAB. Matrices with one row or column are vectors, and vectors of whole numbers come as such: MATLAB stores
labels as it stores all numbers. Version 5 is read here, since damaged files crash the reader of SciPy (1.17): what they claim
is compared with what is there before memory is taken for it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.arrays.array_api import available_memory
from tracelearn.errors import expect, refuse
from tracelearn.optional import require
from tracelearn.samples.source import Column, array_column, opened_column

__all__ = ["column", "names"]

_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_TYPES = {"double": "float64", "single": "float32", "logical": "uint8"} | {kind: kind for kind in _INTEGERS}


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(19) == b"MATLAB 7.3 MAT-file"


def names(path: Path) -> list[str]:
    """List the arrays."""
    if not _is_hdf5(path):
        return [name for name, _ in arrays(path)]
    h5py = require("h5py", "hdf5")
    with h5py.File(path, "r") as file:
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
            return array_column(_vector(array), place)
    return opened_column(opened, place, sample_axis)


@dataclass(frozen=True, eq=False)
class Matrix:
    """An array of a file that is open: shape and chunks in the axes of MATLAB, its class there, and how it is read."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    kind: str
    read: Callable[[tuple[slice, ...]], NDArray[Any]]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its values, in which they need not be stored."""
        return np.dtype(_TYPES[self.kind])

    def __getitem__(self, index: tuple[slice, ...]) -> NDArray[Any]:
        values = self.read(index)
        refuse(
            values.dtype.kind not in "fiub",
            f"Expected real numbers, got {values.dtype} values: split them into parts, as by real(...).",
        )
        return values.astype(self.dtype, copy=False)


@contextmanager
def _opened(path: Path, name: str) -> Iterator[Matrix]:
    if not _is_hdf5(path):
        with closing(arrays(path)) as found:
            yield next(array for own, array in found if own == name)
        return
    with require("h5py", "hdf5").File(path, "r") as file:
        dataset = file[name]
        kind = bytes(dataset.attrs.get("MATLAB_class", b"nothing")).decode(errors="replace")
        kind = "references to other files" if dataset.is_virtual or dataset.external else kind
        chunks = dataset.chunks or (1,) * dataset.ndim
        yield Matrix(dataset.shape[::-1], chunks[::-1], kind, partial(_backwards, dataset))


def _backwards(dataset: Any, index: tuple[slice, ...]) -> NDArray[Any]:
    """Slice a dataset: the axes of HDF5 are those of MATLAB backwards."""
    whole = (*index, *[slice(None)] * (dataset.ndim - len(index)))
    return np.asarray(dataset[whole[::-1]]).T


def _vector(array: Matrix) -> NDArray[Any]:
    """Read labels from the rows of a matrix of characters, or numbers from a matrix that is one row or column."""
    if array.kind == "char":
        rows = (row.astype("<u2").tobytes().decode("utf-16-le", "replace") for row in np.atleast_2d(array.read(())))
        return np.array([row.rstrip() for row in rows])
    values = array[()].reshape(-1)
    is_whole = values.dtype.kind == "f" and bool(np.all((np.abs(values) < 2**53) & (np.floor(values) == values)))
    return values.astype(np.int64) if is_whole else values


# --- version 5 to 7 ---------------------------------------------------------------------------------------------------

_MATRIX, _DEFLATED = 14, 15  # types of elements
_STORED = dict(
    zip((1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17), "i1 u1 i2 u2 i4 u4 f4 f8 i8 u8 u1 u2".split(), strict=True)
)
_KINDS = "- cell struct object char sparse double single int8 uint8 int16 uint16 int32 uint32 int64 uint64".split()
_LARGEST_RATIO = 1032  # no deflated byte expands to more
_PIECE = 2**20


class _Stream:
    """Bytes of one element, which may be deflated."""

    def __init__(self, file: Any, order: str, size: int, *, deflated: bool) -> None:
        self.file, self.order, self.left = file, order, size
        self.inflate = zlib.decompressobj() if deflated else None
        self.most = size * (_LARGEST_RATIO if deflated else 1)

    def read(self, count: int) -> bytes:
        """Read so many bytes."""
        found = b""
        while len(found) < count:
            wanted = count - len(found)
            piece = self.inflate.unconsumed_tail if self.inflate is not None else b""
            if not piece:
                piece = self.file.read(min(_PIECE if self.inflate is not None else wanted, self.left))
                self.left -= len(piece)
            part = piece if self.inflate is None else self.inflate.decompress(piece, wanted)
            expect(part or piece, "an array that is cut off")
            found += part
        return found

    def tag(self) -> tuple[int, int, bytes]:
        """Read the type and the size of a part, and its bytes where they are so few that they are in the tag."""
        head = self.read(8)
        first, second = (int(word) for word in np.frombuffer(head, f"{self.order}u4"))
        expect(first >> 16 <= 4, f"a tag with {first >> 16} bytes in it")
        return (first & 0xFFFF, first >> 16, head[4:]) if first >> 16 else (first, second, b"")

    def part(self, most: int) -> bytes:
        """Read a part of a header, of so many bytes at most."""
        _, size, small = self.tag()
        expect(size <= most, f"a header with a part of {size} bytes")
        return small[:size] if small else self.read(size + -size % 8)[:size]

    def numbers(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Read the numbers of an array, in the type in which they are stored."""
        code, size, small = self.tag()
        expect(code in _STORED, f"numbers of the unknown type {code}")
        dtype = np.dtype(self.order + _STORED[code])
        fits = size == prod(shape) * dtype.itemsize and size <= self.most
        expect(fits, f"{size} bytes for an array of shape {shape} and type {dtype}")
        if size > available_memory():
            raise MemoryError(f"{size} bytes")
        values = np.empty(size // dtype.itemsize, dtype)
        rest = values.view(np.uint8)
        while rest.size:
            piece = small[: rest.size] or self.read(min(_PIECE, rest.size))
            rest[: len(piece)] = np.frombuffer(piece, np.uint8)
            rest = rest[len(piece) :]
        return values.reshape(shape, order="F")


def arrays(path: Path) -> Generator[tuple[str, Matrix]]:
    """Go through the arrays of a file, with their names; one is read before the next is asked for."""
    with open(path, "rb") as file:
        order = {b"IM": "<", b"MI": ">"}.get(file.read(128)[126:], "")
        refuse(
            not order,
            f"Expected a file of MATLAB 5 or later, got '{path}', which is none: save it with -v7, or name HDF5 .h5.",
        )
        place, end = 128, os.fstat(file.fileno()).st_size
        while place + 8 <= end:
            file.seek(place)
            code, size = (int(word) for word in np.frombuffer(file.read(8), f"{order}u4"))
            place += 8 + size
            is_element = code in (_MATRIX, _DEFLATED) and place <= end
            expect(is_element, f"an element of type {code} and {size} bytes")
            stream = _Stream(file, order, size, deflated=code == _DEFLATED)
            expect(code == _MATRIX or stream.tag()[0] == _MATRIX, "a deflated element that is no array")
            yield _header(stream)


def _header(stream: _Stream) -> tuple[str, Matrix]:
    flags, sizes, name = (stream.part(most) for most in (8, 128, 1000))
    word = int(np.frombuffer(flags, f"{stream.order}u4")[0])
    kind = dict(enumerate(_KINDS)).get(word & 0xFF, "an object")
    kind = "complex" if word & 0x0800 else "logical" if word & 0x0200 else kind
    shape = tuple(int(size) for size in np.frombuffer(sizes, f"{stream.order}i4"))
    expect(min(shape, default=-1) >= 0, f"an array of shape {shape}")
    # All of it is in memory when any of it is.
    return name.decode("latin-1"), Matrix(shape, shape, kind, lambda index: stream.numbers(shape)[index])
