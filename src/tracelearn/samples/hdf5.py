"""Columns in HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tracelearn.optional import require
from tracelearn.samples.arrays import chunk_rows, slices
from tracelearn.samples.source import Column

__all__ = ["Hdf5Column", "hdf5_column", "hdf5_names"]


def _file(path: Path) -> Any:
    return require("h5py", "hdf5").File(path, "r")


def hdf5_names(path: Path) -> list[str]:
    """List the datasets of the file, those in groups by their path."""
    names: list[str] = []
    with _file(path) as file:
        file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return names


def hdf5_column(path: Path, name: str) -> Hdf5Column:
    """Read the shape and the type of a dataset."""
    with _file(path) as file:
        dataset = file[name]
        # Either would have us read files that the path does not name.
        if dataset.is_virtual or dataset.external:
            raise ValueError(
                f"Expected the values of '{name}' to be in '{path}' itself, got references to other files: open it with h5py and "
                "pass the dataset if you trust them."
            )
        if not dataset.shape:
            raise ValueError(
                f"Expected an array with one row for each sample in '{name}' of '{path}', got a single value."
            )
        return Hdf5Column(dataset.shape[0], dataset.shape[1:], dataset.dtype, chunk_rows(dataset), path, name)


@dataclass(frozen=True, eq=False)
class Hdf5Column(Column):
    """A dataset of an HDF5 file, which is open only during a pass."""

    path: Path
    name: str

    def arrays(self, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Slice the dataset."""
        with _file(self.path) as file:
            yield from slices(file[self.name], start, rows)
