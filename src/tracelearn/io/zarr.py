"""Arrays in Zarr stores, of this machine or at an address, read in slices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zarr
from zarr.storage import FsspecStore, LocalStore

from tracelearn.errors import InputError, refuse
from tracelearn.io.places import Place

__all__ = ["names", "open_array"]

_DECODERS = ("codecs", "filters", "compressor")  # where the metadata of formats 2 and 3 name what decodes the values


def names(place: Place) -> list[str] | None:
    """List the arrays of a group; None for a store that is one array."""
    store = _open(place)
    if isinstance(store, zarr.Array):
        return None
    return sorted(name for name, member in store.members(max_depth=None) if isinstance(member, zarr.Array))


@contextmanager
def open_array(place: Place, name: str | None) -> Iterator[Any]:
    """Open one array of a group, or the store that is one."""
    store = _open(place)
    array = store if name is None else store[name]
    metadata = array.metadata.to_dict()
    decoders = [metadata.get(key) for key in _DECODERS]
    refuse(
        "pickle" in repr(decoders).lower(),
        f"Expected '{name or place}' to be coded by plain compression, got the codec 'pickle', which could run code: store it "
        "with another one.",
    )
    yield array


def _open(place: Place) -> Any:
    """Open a store as its array or group."""
    store = (
        LocalStore(place, read_only=True)
        if isinstance(place, Path)
        else FsspecStore.from_url(place.address, read_only=True)
    )
    try:
        return zarr.open(store, mode="r")
    except (FileNotFoundError, KeyError) as error:
        raise InputError(
            f"Expected a Zarr array or group in '{place}', got a folder without one: check the path."
        ) from error
