"""Columns in files of MNE's epochs: the recordings ``X``, the names of the events ``y``, and what metadata there are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mne
import numpy as np
from numpy.typing import NDArray

from tracelearn.samples.source import Column, array_column

__all__ = ["column", "names"]

_AUXILIARY = frozenset(
    "bio chpi dipole ecg emg eog exci eyegaze gof gsr ias misc pupil ref_meg resp stim syst temperature".split()
)


def _open(path: Path) -> Any:
    epochs = mne.read_epochs(path, preload=False, verbose="error")
    parts = [Path(part.fid.name) for part in epochs._raw]
    if any(part.resolve().parent != path.resolve().parent for part in parts):
        raise ValueError(
            f"Expected all parts of the epochs in the folder of '{path}', got '{parts[-1]}': put them side by side."
        )
    return epochs


def names(path: Path) -> list[str]:
    """List recordings, events, and the columns of the metadata."""
    metadata = _open(path).metadata
    return ["X", "y", *(() if metadata is None else (name for name in metadata.columns if name not in ("X", "y")))]


def column(path: Path, name: str) -> Column:
    """Find the shape of recordings of good sensors, without those of eyes and muscles; or read a value for each epoch."""
    epochs = _open(path)
    if name == "y":
        events = {code: event for event, code in epochs.event_id.items()}
        return array_column([events[code] for code in epochs.events[:, 2]], f"events of '{path}'")
    if name != "X":
        return array_column(epochs.metadata[name].to_numpy(), f"'{name}' of '{path}'")
    shape = (len(_sensors(epochs)), len(epochs.times))
    return Column(len(epochs), shape, np.dtype(float), 1, partial(_read, path))


def _sensors(epochs: Any) -> list[str]:
    bad, kinds = set(epochs.info["bads"]), zip(epochs.ch_names, epochs.get_channel_types(), strict=True)
    return [name for name, kind in kinds if kind not in _AUXILIARY and name not in bad] or list(epochs.ch_names)


def _read(path: Path, start: int, rows: int) -> Iterator[NDArray[Any]]:
    epochs = _open(path)
    picks, n = _sensors(epochs), len(epochs)
    while start < n:
        yield epochs.get_data(picks=picks, item=slice(start, start + rows), copy=False, verbose="error")
        start += rows
