"""Columns in ``.npy`` files, and in ``.npz`` files, which are zip archives of them, compressed or not.

Nothing is unpickled, and no size that a header claims is believed before it is compared with the file. Files are read and not
mapped: a map of a file that somebody cuts off takes the whole process down.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as _format
from numpy.typing import NDArray

from tracelearn.errors import InputError
from tracelearn.samples.source import Column, checked_axis

__all__ = ["OPTIONS", "column", "names", "read_npy_header"]

OPTIONS = ("sample_axis",)

npy_format: Any = _format  # some versions of NumPy ship no types for it
_HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
_DEFLATE_LIMIT = 1032  # no deflated byte expands to more: 258 bytes are the longest copy, two bits its shortest code
_PIECE = 2**20


@contextmanager
def _stream(path: Path, name: str | None) -> Iterator[Any]:
    """Open a file, or an array of an archive."""
    if name is None:
        with open(path, "rb", buffering=0) as file:
            yield file
    else:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            yield file


def names(path: Path) -> list[str] | None:
    """List the arrays of an archive; None for a file that is one array."""
    if path.suffix.lower() == ".npy":
        return None
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def column(path: Path, name: str | None, sample_axis: int = 0) -> Column:
    """Read the header of an array and compare what it claims with what is there."""
    with _stream(path, name) as file:
        shape, is_fortran, dtype = read_npy_header(file)
        offset = file.tell()
    there = path.stat().st_size - offset if name is None else _most_bytes(path, name) - offset
    place = f"'{path}'" if name is None else f"'{name}' of '{path}'"
    claimed = prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise InputError(
            f"Expected numbers or strings in {place}, got Python objects: reading them could run any code, so store an array of "
            "a plain dtype."
        )
    if not shape or min(shape) < 0:
        raise InputError(f"Expected an array with one row for each sample in {place}, got shape {shape}: store one.")
    if claimed > there:
        raise InputError(
            f"Expected {place} to hold the {claimed} bytes of its shape {shape}, got at most {max(there, 0)}: the file is "
            "damaged, write it again."
        )
    array, axis = _Array(path, name, shape, dtype, offset, is_fortran), checked_axis(sample_axis, len(shape), place)
    if axis:  # no sample lies together: all are read at once
        return Column(
            shape[axis], shape[:axis] + shape[axis + 1 :], dtype, shape[axis], partial(array.read_along, axis)
        )
    return Column(shape[0], shape[1:], dtype, 1, array.read)


@dataclass(frozen=True)
class _Array:
    """An array in a ``.npy`` file, or by its name in a ``.npz`` file."""

    path: Path
    name: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    is_fortran: bool

    def read(self, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Read rows that lie together, or in Fortran order the part of them that each column holds."""
        n, size = self.shape[0], prod(self.shape[1:])
        with _stream(self.path, self.name) as file:
            if self.is_fortran and self.name is not None:
                # An archive is read from front to end, and no row of Fortran order is whole before its end.
                yield self._values(file, 0, self.shape[::-1]).T[start:]
                return
            while start < n:
                stop = min(n, start - start % rows + rows)
                if self.is_fortran:
                    parts = [self._values(file, column * n + start, (stop - start,)) for column in range(size)]
                    yield np.stack(parts).reshape(*self.shape[:0:-1], stop - start).T
                else:
                    yield self._values(file, start * size, (stop - start, *self.shape[1:]))
                start = stop

    def read_along(self, axis: int, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Read all samples, which are along another axis than the first."""
        for whole in self.read(0, self.shape[0]):
            yield np.moveaxis(whole, axis, 0)[start:]

    def _values(self, file: Any, first: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """Read values that lie together, from one of them on."""
        _go_to(file, self.offset + first * self.dtype.itemsize)
        block = np.empty(shape, self.dtype)
        rest = block.reshape(-1).view(np.uint8)
        while rest.size:
            # In pieces: an archive copies what it reads, and a second block would double the memory.
            count = file.readinto(rest[:_PIECE])
            if not count:
                raise InputError(
                    f"Expected '{self.path}' to hold {self.shape[0]} samples, got fewer: it was cut off, so write it again."
                )
            rest = rest[count:]
        return block


def _go_to(file: Any, place: int) -> None:
    """Go to a byte; in an archive by reading, so that its checksum is found."""
    if not isinstance(file, zipfile.ZipExtFile):
        file.seek(place)
    while file.tell() < place and file.read(min(_PIECE, place - file.tell())):
        pass


def _most_bytes(path: Path, name: str) -> int:
    """Find how many bytes an array of an archive can have: its directory can lie, the length of the file cannot."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"{name}.npy")
    limits = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _DEFLATE_LIMIT}
    packed = min(info.compress_size, path.stat().st_size)
    return min(info.file_size, packed * limits[info.compress_type] if info.compress_type in limits else info.file_size)


def read_npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and type of an array in the format of NumPy; no object is built from it."""
    version = npy_format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of the format")
    shape, is_fortran, dtype = _HEADERS[version](file)
    if not all(type(size) is int for size in shape):
        raise ValueError(f"a shape of other things than numbers, {shape}")
    return shape, is_fortran, dtype
