"""Datasets in HDF5 files, read in slices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tracelearn.io.columns import TEXT

__all__ = ["names", "open_array", "with_text"]


def names(path: Path) -> list[str]:
    """List the datasets of the file, those in groups by their path."""
    datasets: list[str] = []
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, member: datasets.append(name) if isinstance(member, h5py.Dataset) else None)
    return datasets


@contextmanager
def open_array(path: Path, name: str) -> Iterator[Any]:
    """Open the file for a pass over one dataset."""
    with h5py.File(path, "r") as file:
        yield with_text(file[name])


def with_text(dataset: h5py.Dataset) -> Any:
    """Return a dataset of strings, which h5py reads as bytes, as one of text; any other dataset as it is."""
    return dataset if h5py.check_string_dtype(dataset.dtype) is None else _Text(dataset)


@dataclass(frozen=True)
class _Text:
    """A dataset of strings that gives text when it is sliced, where h5py itself gives bytes."""

    dataset: h5py.Dataset
    dtype: np.dtype[Any] = TEXT

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.dataset.shape)

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return None if self.dataset.chunks is None else tuple(self.dataset.chunks)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset.asstr()[index]
