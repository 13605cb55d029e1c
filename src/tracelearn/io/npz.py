"""Arrays in ``.npz`` archives, each of which is read whole."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracelearn.io.columns import WholeArray
from tracelearn.io.npy import read_npy_header

__all__ = ["names", "open_array"]


def names(path: Path) -> list[str]:
    """List the arrays of the archive."""
    with zipfile.ZipFile(path) as archive:
        return [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]


@contextmanager
def open_array(path: Path, name: str) -> Iterator[WholeArray]:
    """Read the header of an array; its values follow when it is sliced."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
        shape, _, dtype = read_npy_header(member)
    yield WholeArray(f"'{name}' of '{path}'", shape, dtype, partial(_load, path, name))


def _load(path: Path, name: str) -> NDArray[np.generic]:
    with np.load(path, allow_pickle=False) as archive:
        array: NDArray[np.generic] = archive[name]
    return array
