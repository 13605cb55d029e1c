"""Columns in HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import h5py

from tracelearn.errors import InputError
from tracelearn.samples.source import Column, opened_column

__all__ = ["column", "names"]


def names(path: Path) -> list[str]:
    """List the datasets of the file, those in groups by their path."""
    found: list[str] = []
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.append(name) if hasattr(item, "shape") else None)
    return found


def column(path: Path, name: str, sample_axis: int = 0) -> Column:
    """Read the shape and the type of a dataset; the file is open only during a pass."""
    return opened_column(partial(_dataset, path, name), f"'{name}' of '{path}'", sample_axis)


@contextmanager
def _dataset(path: Path, name: str) -> Iterator[Any]:
    with h5py.File(path, "r") as file:
        # Either would have us read files that the path does not name.
        if file[name].is_virtual or file[name].external:
            raise InputError(
                f"Expected the values of '{name}' to be in '{path}' itself, got references to other files: open it with h5py and "
                "pass the dataset if you trust them."
            )
        yield file[name]
