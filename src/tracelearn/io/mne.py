"""Epochs of MNE: the recordings ``X``, the names of the events ``y``, and the columns of the metadata."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mne
import numpy as np
from numpy.typing import NDArray

from tracelearn.samples.modes import Mode, events_of, modes_of_mne

__all__ = ["names", "open_array"]


def _read_epochs(path: Path) -> Any:
    return mne.read_epochs(path, preload=False, verbose="error")


def names(path: Path) -> list[str]:
    """List recordings, events, and the columns of the metadata."""
    metadata = _read_epochs(path).metadata
    columns = [] if metadata is None else [name for name in metadata.columns if name not in ("X", "y")]
    return ["X", "y", *columns]


@contextmanager
def open_array(path: Path, name: str) -> Iterator[Any]:
    """Open the recordings, or read a value for each epoch."""
    epochs = _read_epochs(path)
    if name == "X":
        yield _Recordings(epochs, modes_of_mne(epochs))
    elif name == "y":
        yield events_of(epochs)
    else:
        values = epochs.metadata[name].to_numpy()
        yield values.astype(str) if values.dtype.kind == "O" else values


@dataclass(frozen=True)
class _Recordings:
    """Epochs as one array, without sensors that are bad or not of the brain."""

    epochs: Any
    modes: tuple[Mode, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(float)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.epochs), *(len(mode.values) for mode in self.modes)

    def __getitem__(self, index: tuple[slice]) -> NDArray[Any]:
        sensors = self.modes[0].values.tolist()
        return np.asarray(self.epochs.get_data(picks=sensors, item=index[0], copy=False, verbose="error"))
