"""Columns in HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from tracelearn.errors import InputError
from tracelearn.samples.source import Column, array_column, slices

__all__ = ["OPTIONS", "column", "names"]

OPTIONS = ("sample_axis",)


def names(path: Path) -> list[str]:
    """List the datasets of the file, those in groups by their path."""
    found: list[str] = []
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.append(name) if hasattr(item, "shape") else None)
    return found


def column(path: Path, name: str, sample_axis: int = 0) -> Column:
    """Read the shape and the type of a dataset; the file is open only during a pass."""
    with h5py.File(path, "r") as file:
        dataset = file[name]
        # Either would have us read files that the path does not name.
        if dataset.is_virtual or dataset.external:
            raise InputError(
                f"Expected the values of '{name}' to be in '{path}' itself, got references to other files: open it with h5py and "
                "pass the dataset if you trust them."
            )
        found = array_column(dataset, f"'{name}' of '{path}'", sample_axis)
        axis = sample_axis % len(dataset.shape)
    return replace(found, read=partial(_read, path, name, found.chunk, axis))


def _read(path: Path, name: str, chunk: int, axis: int, start: int, rows: int) -> Iterator[NDArray[Any]]:
    with h5py.File(path, "r") as file:
        yield from slices(file[name], chunk, start, rows, axis)
