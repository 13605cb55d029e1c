"""Columns in ``.npy`` files, and in ``.npz`` files, which are zip archives of them, compressed or not.

Nothing is unpickled, and no size that a header claims is believed before it is compared with the file. Files are read and not
mapped: a map of a file that somebody cuts off takes the whole process down.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as _format
from numpy.typing import NDArray

from tracelearn.errors import InputError, expect, refuse
from tracelearn.samples.source import Column, opened_column

__all__ = ["column", "names", "read_npy_header"]

npy_format: Any = _format  # some versions of NumPy ship no types for it
_HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
# How much a byte can expand to. Deflated: 258 bytes are the longest copy, two bits its shortest code.
_EXPANDS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
_PIECE = 2**20


def names(path: Path) -> list[str] | None:
    """List the arrays of an archive; None for a file that is one array."""
    if path.suffix.lower() == ".npy":
        return None
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def column(path: Path, name: str | None, sample_axis: int = 0) -> Column:
    """Read the header of an array and compare what it claims with what is there."""
    return opened_column(partial(_opened, path, name), _place(path, name), sample_axis)


def _place(path: Path, name: str | None) -> str:
    return f"'{path}'" if name is None else f"'{name}' of '{path}'"


@contextmanager
def _opened(path: Path, name: str | None) -> Iterator[_Array]:
    """Open a file, or an array of an archive."""
    with ExitStack() as stack:
        if name is None:
            file: Any = stack.enter_context(open(path, "rb", buffering=0))
            there = path.stat().st_size
        else:
            archive = stack.enter_context(zipfile.ZipFile(path))
            file, info = stack.enter_context(archive.open(f"{name}.npy")), archive.getinfo(f"{name}.npy")
            # The directory of an archive can lie, the length of the file cannot.
            packed = min(info.compress_size, path.stat().st_size)
            there = min(info.file_size, packed * _EXPANDS.get(info.compress_type, info.file_size))
        shape, is_fortran, dtype = read_npy_header(file)
        _check_header(_place(path, name), shape, dtype, there - file.tell())
        yield _Array(path, file, shape, dtype, file.tell(), is_fortran)


def _check_header(place: str, shape: tuple[int, ...], dtype: np.dtype[Any], there: int) -> None:
    refuse(
        dtype.hasobject,
        f"Expected numbers or strings in {place}, got Python objects: reading them could run any code, so store an array of "
        "a plain dtype.",
    )
    refuse(
        not shape or min(shape) < 0,
        f"Expected an array with one row for each sample in {place}, got shape {shape}: store one.",
    )
    claimed = prod(shape) * dtype.itemsize
    refuse(
        claimed > there,
        f"Expected {place} to hold the {claimed} bytes of its shape {shape}, got at most {max(there, 0)}: the file is "
        "damaged, write it again.",
    )


@dataclass(frozen=True)
class _Array:
    """An array in a file that is open, or in an archive, which is read from front to end; read when it is sliced."""

    path: Path
    file: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    is_fortran: bool

    @property
    def chunks(self) -> tuple[int, ...]:
        """What is read at once: a row, or all of the array where samples are along another axis than the first."""
        return 1, *self.shape[1:]

    @property
    def _is_packed(self) -> bool:
        return isinstance(self.file, zipfile.ZipExtFile)

    @cached_property
    def _turned(self) -> NDArray[Any]:
        """All of an archive in Fortran order, in which no row is whole before the end."""
        return self._values(0, self.shape[::-1]).T

    def __getitem__(self, index: tuple[slice, ...]) -> NDArray[Any]:
        """Read rows that lie together, or in Fortran order the part of them that each column holds."""
        n, sizes = self.shape[0], self.shape[1:]
        start, stop, _ = index[0].indices(n)
        if not self.is_fortran:
            found = self._values(start * prod(sizes), (stop - start, *sizes))
        elif self._is_packed:
            found = self._turned[start:stop]
        else:
            parts = [self._values(column * n + start, (stop - start,)) for column in range(prod(sizes))]
            found = np.stack(parts).reshape(*sizes[::-1], stop - start).T
        return found[(slice(None), *index[1:])]

    def _values(self, first: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """Read values that lie together, from one of them on."""
        place = self.offset + first * self.dtype.itemsize
        if not self._is_packed:
            self.file.seek(place)
        while self.file.tell() < place and self.file.read(min(_PIECE, place - self.file.tell())):
            pass  # an archive is read on, so that its checksum is found
        block = np.empty(shape, self.dtype)
        rest = block.reshape(-1).view(np.uint8)
        while rest.size:
            # In pieces: an archive copies what it reads, and a second block would double the memory.
            count = self.file.readinto(rest[:_PIECE])
            if not count:
                raise InputError(
                    f"Expected '{self.path}' to hold {self.shape[0]} samples, got fewer: it was cut off, so write it again."
                )
            rest = rest[count:]
        return block


def read_npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and type of an array in the format of NumPy; no object is built from it."""
    version = npy_format.read_magic(file)
    expect(version in _HEADERS, f"version {version} of the format")
    shape, is_fortran, dtype = _HEADERS[version](file)
    expect(all(type(size) is int for size in shape), f"a shape of other things than numbers, {shape}")
    return shape, is_fortran, dtype
