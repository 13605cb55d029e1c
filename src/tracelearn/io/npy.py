"""Arrays in ``.npy`` files, by a memory map."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as _format

from tracelearn.errors import expect

__all__ = ["names", "open_array", "read_npy_header"]

npy_format: Any = _format  # some versions of NumPy ship no types for it
_HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}


def names(path: Path) -> None:
    """Say that the file is one array without a name."""


@contextmanager
def open_array(path: Path, name: None) -> Iterator[Any]:
    """Map the array into memory; NumPy refuses Python objects and files that are shorter than their header says."""
    yield npy_format.open_memmap(path, mode="r")


def read_npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order (True for Fortran's) and type of an array in the format of NumPy; no object is built from it."""
    version = npy_format.read_magic(file)
    expect(version in _HEADERS, f"version {version} of the format")
    shape, is_fortran, dtype = _HEADERS[version](file)
    expect(all(type(size) is int for size in shape), f"a shape of other things than numbers, {shape}")
    return shape, is_fortran, dtype
