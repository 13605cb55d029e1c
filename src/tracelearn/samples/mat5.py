"""Arrays in files of MATLAB of version 5 to 7: what they claim is compared with what is there before memory is taken for it."""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.arrays.array_api import available_memory
from tracelearn.errors import InputError

__all__ = ["Array", "arrays"]

_MATRIX, _DEFLATED = 14, 15  # types of elements
_STORED = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
    16: "u1",
    17: "u2",
}
_KINDS = "- cell struct object char sparse double single int8 uint8 int16 uint16 int32 uint32 int64 uint64".split()
_LARGEST_RATIO = 1032  # no deflated byte expands to more
_PIECE = 2**20


@dataclass(frozen=True, eq=False)
class Array:
    """An array: its name, its shape, its class in MATLAB, and where its numbers follow."""

    name: str
    shape: tuple[int, ...]
    kind: str
    stream: _Stream

    def read(self) -> NDArray[Any]:
        """Read the numbers, in the type in which they are stored."""
        code, size, small = self.stream.tag()
        if code not in _STORED:
            raise ValueError(f"numbers of the unknown type {code}")
        dtype = np.dtype(self.stream.order + _STORED[code])
        if size != prod(self.shape) * dtype.itemsize or size > self.stream.most:
            raise ValueError(f"{size} bytes for an array of shape {self.shape} and type {dtype}")
        if size > available_memory():
            raise MemoryError(f"{size} bytes")
        values = np.empty(size // dtype.itemsize, dtype)
        rest = values.view(np.uint8)
        while rest.size:
            piece = small[: rest.size] or self.stream.read(min(_PIECE, rest.size))
            rest[: len(piece)] = np.frombuffer(piece, np.uint8)
            rest = rest[len(piece) :]
        return values.reshape(self.shape, order="F")


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
            if not part and not piece:
                raise ValueError("an array that is cut off")
            found += part
        return found

    def tag(self) -> tuple[int, int, bytes]:
        """Read the type and the size of a part, and its bytes where they are so few that they are in the tag."""
        head = self.read(8)
        first, second = (int(word) for word in np.frombuffer(head, f"{self.order}u4"))
        if first >> 16 > 4:
            raise ValueError(f"a tag with {first >> 16} bytes in it")
        return (first & 0xFFFF, first >> 16, head[4:]) if first >> 16 else (first, second, b"")

    def part(self, most: int) -> tuple[int, bytes]:
        """Read a part of a header, of so many bytes at most."""
        code, size, small = self.tag()
        if size > most:
            raise ValueError(f"a header with a part of {size} bytes")
        return code, small[:size] if small else self.read(size + -size % 8)[:size]


def arrays(path: Path) -> Generator[Array]:
    """Go through the arrays of a file; one is read before the next is asked for."""
    with open(path, "rb") as file:
        head = file.read(128)
        order = {b"IM": "<", b"MI": ">"}.get(head[126:])
        if order is None:
            raise InputError(
                f"Expected a file of MATLAB 5 or later, got '{path}', which is none: save it with -v7, or name HDF5 .h5."
            )
        place, end = 128, os.fstat(file.fileno()).st_size
        while place + 8 <= end:
            file.seek(place)
            code, size = (int(word) for word in np.frombuffer(file.read(8), f"{order}u4"))
            place += 8 + size
            if code not in (_MATRIX, _DEFLATED) or place > end:
                raise ValueError(f"an element of type {code} and {size} bytes")
            stream = _Stream(file, order, size, deflated=code == _DEFLATED)
            if code == _DEFLATED and stream.tag()[0] != _MATRIX:
                raise ValueError("a deflated element that is no array")
            yield _header(stream)


def _header(stream: _Stream) -> Array:
    flags, sizes, name = stream.part(8)[1], stream.part(128)[1], stream.part(1000)[1]
    word = int(np.frombuffer(flags, f"{stream.order}u4")[0])
    kind = dict(enumerate(_KINDS)).get(word & 0xFF, "an object")
    kind = "complex" if word & 0x0800 else "logical" if word & 0x0200 else kind
    shape = tuple(int(size) for size in np.frombuffer(sizes, f"{stream.order}i4"))
    if min(shape, default=-1) < 0:
        raise ValueError(f"an array of shape {shape}")
    return Array(name.decode("latin-1"), shape, kind, stream)
