"""Columns in ``.npz`` files, read row by row out of the zip archive, compressed or not.

Nothing is unpickled, and no size that a header claims is believed before it is compared with the archive.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.samples.arrays import check_header, read_npy_header
from tracelearn.samples.source import Column

__all__ = ["NpzColumn", "npz_column", "npz_names"]

_DEFLATE_LIMIT = 1032  # no deflated byte expands to more: 258 bytes are the longest copy, two bits its shortest code
_PIECE = 2**20


def npz_names(path: Path) -> list[str]:
    """List the arrays of the file."""
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def npz_column(path: Path, name: str) -> NpzColumn:
    """Read the header of one array and compare what it claims with what is there."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
        info = archive.getinfo(f"{name}.npy")
        shape, is_fortran, dtype = read_npy_header(stream)
        offset = stream.tell()
    # The directory of the archive can lie as well; the bytes of the file itself cannot.
    there, packed = info.file_size - offset, min(info.compress_size, path.stat().st_size)
    if info.compress_type == zipfile.ZIP_STORED:
        there = min(there, packed - offset)
    elif info.compress_type == zipfile.ZIP_DEFLATED:
        there = min(there, packed * _DEFLATE_LIMIT)
    check_header(shape, dtype, there, f"'{name}' of '{path}'")
    return NpzColumn(shape[0], shape[1:], dtype, 1, path, name, offset, is_fortran)


@dataclass(frozen=True, eq=False)
class NpzColumn(Column):
    """An array in a ``.npz`` file, read as a stream."""

    path: Path
    name: str
    offset: int
    is_fortran: bool

    def arrays(self, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Read the stream; rows before ``start`` are decompressed and dropped."""
        with zipfile.ZipFile(self.path) as archive, archive.open(f"{self.name}.npy") as stream:
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
