"""Columns in ``.npz`` files, read row by row out of the zip archive, compressed or not.

Nothing is unpickled, and no size that a header claims is believed before it is compared with the archive.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.samples.arrays import read_npy_header
from tracelearn.samples.source import in_one_line

__all__ = ["NpzColumn", "npz_column", "npz_names"]

_DEFLATE_LIMIT = 1032  # no deflated byte expands to more: 258 bytes are the longest copy, two bits its shortest code
_PIECE = 2**20


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise ValueError(
            f"Expected an intact .npz file, got '{path}', of which the reader says \"{in_one_line(error)}\": write it again with "
            "numpy.savez."
        ) from error


def npz_names(path: Path) -> list[str]:
    """List the arrays of the file."""
    with _archive(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def npz_column(path: Path, name: str) -> NpzColumn:
    """Read the header of one array and compare what it claims with what is there."""
    with _archive(path) as archive, archive.open(f"{name}.npy") as stream:
        info = archive.getinfo(f"{name}.npy")
        shape, is_fortran, dtype = _header(stream, path, name)
        offset = stream.tell()
    if dtype.hasobject:
        raise ValueError(
            f"Expected numbers or strings in '{name}' of '{path}', got Python objects: reading them could run any code, so "
            "store an array of a plain dtype."
        )
    if not shape or min(shape) < 0:
        raise ValueError(f"Expected an array with one row for each sample in '{name}' of '{path}', got shape {shape}.")
    claimed, there = prod(shape) * dtype.itemsize, info.file_size - offset
    # The directory of the archive can lie as well; the bytes of the file itself cannot.
    packed = min(info.compress_size, path.stat().st_size)
    if info.compress_type == zipfile.ZIP_STORED:
        there = min(there, packed - offset)
    elif info.compress_type == zipfile.ZIP_DEFLATED:
        there = min(there, packed * _DEFLATE_LIMIT)
    if claimed > there:
        raise ValueError(
            f"Expected '{name}' of '{path}' to hold the {claimed} bytes of its shape {shape}, got at most {max(there, 0)}: the "
            "file is damaged, write it again."
        )
    return NpzColumn(path, name, offset, is_fortran, shape[0], shape[1:], dtype)


def _header(stream: IO[bytes], path: Path, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        return read_npy_header(stream)
    except ValueError as error:
        raise ValueError(
            f"Expected '{name}' of '{path}' to begin as a .npy file of version 1 or 2, got another beginning "
            f"({in_one_line(error)}): write it again with numpy.savez."
        ) from error


@dataclass(frozen=True, eq=False)
class NpzColumn:
    """An array in a ``.npz`` file, read as a stream."""

    path: Path
    name: str
    offset: int
    is_fortran: bool
    n_rows: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: int = 1

    def arrays(self, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Read the stream; rows before ``start`` are decompressed and dropped."""
        with _archive(self.path) as archive, archive.open(f"{self.name}.npy") as stream:
            _drop(stream, self.offset)
            if self.is_fortran:
                # The rows of Fortran order lie scattered over all of the stream: none is whole before its end.
                columns = self._read(stream, (*self.shape[::-1], self.n_rows))
                yield columns.T[start:]
                return
            _drop(stream, start * prod(self.shape) * self.dtype.itemsize)
            while start < self.n_rows:
                stop = min(self.n_rows, start - start % rows + rows)
                yield self._read(stream, (stop - start, *self.shape))
                start = stop

    def _read(self, stream: IO[bytes], shape: tuple[int, ...]) -> NDArray[Any]:
        raw = np.empty(prod(shape) * self.dtype.itemsize, dtype=np.uint8)
        filled = 0
        while filled < len(raw):
            # In pieces: what the stream returns is copied, and a second block would double the memory.
            piece = stream.read(min(_PIECE, len(raw) - filled))
            if not piece:
                raise ValueError(
                    f"Expected '{self.name}' of '{self.path}' to hold {self.n_rows} samples, got fewer: the file is damaged, "
                    "write it again."
                )
            raw[filled : filled + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
            filled += len(piece)
        return np.ndarray(shape, self.dtype, raw)


def _drop(stream: IO[bytes], count: int) -> None:
    while count > 0:
        piece = stream.read(min(_PIECE, count))
        if not piece:
            return  # the read that follows finds nothing and says so
        count -= len(piece)
