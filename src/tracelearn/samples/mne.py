"""Columns in files of MNE's epochs: the recordings ``X``, the names of the events ``y``, and what metadata there are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mne
import numpy as np
from mne._fiff.open import _get_next_fname, fiff_open
from numpy.typing import NDArray

from tracelearn.errors import InputError
from tracelearn.samples.modes import events_of, modes_of_mne
from tracelearn.samples.source import Column, array_column

__all__ = ["column", "names"]

_LAST = -1  # where the next tag of a file is, if there is none


def _open(path: Path) -> Any:
    _parts(path)
    return mne.read_epochs(path, preload=False, verbose="error")


def _parts(path: Path) -> tuple[Path, ...]:
    """Find the files of epochs, each of which names the next: one after the other, before MNE reads any of them.

    A name may be anything: a file elsewhere, a link, a pipe, or a file that was there before, for ever.
    """
    found: list[Path] = []
    following: Path | None = path
    while following is not None:
        is_file = following.is_file() and not following.is_symlink()
        if found and not (is_file and following.parent == path.parent and following not in found):
            raise InputError(
                f"Expected the parts of the epochs to be files in the folder of '{path}', each once, got '{following}': put "
                "them side by side."
            )
        found.append(following)
        _check_tags(following)
        file, tree, _ = fiff_open(following, verbose="error")
        with file:
            following = _get_next_fname(file, following, tree)
    return tuple(found)


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
        return array_column(events_of(epochs), f"events of '{path}'")
    if name != "X":
        return array_column(epochs.metadata[name].to_numpy(), f"'{name}' of '{path}'")
    modes = modes_of_mne(epochs)
    shape = tuple(len(mode.values) for mode in modes)
    read = partial(_read, path, modes[0].values.tolist())
    return Column(len(epochs), shape, np.dtype(float), 1, read, _parts(path), modes=modes)


def _read(path: Path, picks: list[str], start: int, rows: int) -> Iterator[NDArray[Any]]:
    epochs = _open(path)
    while start < len(epochs):
        yield epochs.get_data(picks=picks, item=slice(start, start + rows), copy=False, verbose="error")
        start += rows
