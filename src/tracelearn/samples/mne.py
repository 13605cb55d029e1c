"""Columns in files of MNE's epochs: the recordings ``X``, the names of the events ``y``, and what metadata there are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mne
import numpy as np
from numpy.typing import NDArray

from tracelearn.errors import InputError
from tracelearn.samples.modes import modes_of_mne
from tracelearn.samples.source import Column, array_column

__all__ = ["column", "names"]

_LAST = -1  # where the next tag of a file is, if there is none


def _open(path: Path) -> Any:
    _check_tags(path)
    epochs = mne.read_epochs(path, preload=False, verbose="error")
    parts = [Path(part.fid.name) for part in epochs._raw]
    if any(part.resolve().parent != path.resolve().parent for part in parts):
        raise InputError(
            f"Expected all parts of the epochs in the folder of '{path}', got '{parts[-1]}': put them side by side."
        )
    return epochs


def _check_tags(path: Path) -> None:
    """Refuse tags that do not follow each other to the end of the file: MNE (1.13) would go in a circle for ever."""
    place, size = 0, path.stat().st_size
    with open(path, "rb") as file:
        while place < size:
            file.seek(place)
            head = file.read(16)
            length, following = (int.from_bytes(head[at : at + 4], "big", signed=True) for at in (8, 12))
            end = place + 16 + length
            if length < 0 or end > size or (following not in (_LAST, 0) and following < end):
                raise ValueError(
                    f"a tag at byte {place} that says it has {length} bytes and is followed by byte {following}"
                )
            if following == _LAST:
                return
            place = following or end


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
    modes = modes_of_mne(epochs)
    shape = tuple(len(mode.values) for mode in modes)
    return Column(len(epochs), shape, np.dtype(float), 1, partial(_read, path, modes[0].values.tolist()), modes=modes)


def _read(path: Path, picks: list[str], start: int, rows: int) -> Iterator[NDArray[Any]]:
    epochs = _open(path)
    while start < len(epochs):
        yield epochs.get_data(picks=picks, item=slice(start, start + rows), copy=False, verbose="error")
        start += rows
