"""Columns in Zarr stores.

A store is a folder in which anything may lie. Links, pipes and devices in it are refused; every file that is read must be as
old as the newest file at the opening; and chunks of Blosc, which trusts the lengths that they claim, are looked at first.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import zarr
from numcodecs.blosc import Blosc
from zarr.codecs import BloscCodec
from zarr.storage import FsspecStore, LocalStore

from tracelearn.arrays.array_api import available_memory
from tracelearn.errors import InputError
from tracelearn.samples.places import Place, Remote
from tracelearn.samples.source import Column, look_through, opened_column, other_than_opened, stored_bytes

__all__ = ["column", "names"]

# A store names the codecs that its bytes go through, and some of those that are installed unpickle, which can run any code.
_CODECS = frozenset(
    "adler32 astype bitround blosc bytes bz2 crc32 crc32c delta endian fixedscaleoffset fletcher32 gzip jenkins_lookup3 "
    "lz4 lzma packbits quantize sharding_indexed shuffle transpose vlen-utf8 zlib zstd".split()
)
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
_LARGE = 64 << 20  # bytes from which on the free memory is looked at


def names(path: Place) -> list[str] | None:
    """List the arrays of a group; None for a bare array."""
    newest = 0
    if isinstance(path, Path):
        newest = max(_changed_at(path.stat()), *(_changed_at(state) for _, state in look_through(path)), 0)
    opened = _open(path, newest)
    if hasattr(opened, "shape"):
        return None
    return sorted(name for name, member in opened.members(max_depth=None) if hasattr(member, "shape"))


def column(path: Place, name: str | None, sample_axis: int = 0) -> Column:
    """Read the shape and the type of one array of a group, or of the bare array; it is opened anew for every pass."""
    if isinstance(path, Path):
        files, newest, stored = _on_disk(path, path / (name or ""))
    else:  # what the store says about the array is watched; its chunks are too many to be watched, and to be counted
        base = f"{path.address.rstrip('/')}/{name or ''}".rstrip("/")
        said = (Remote(f"{base}/{end}") for end in _METADATA)
        files, newest, stored = tuple(file for file in said if file.exists()), 0, sys.maxsize
    opened = partial(_array, path, name, newest)
    return opened_column(opened, f"'{name or path}'", sample_axis, files=files, stored=stored)


def _on_disk(path: Path, folder: Path) -> tuple[tuple[Place, ...], int, int]:
    """Find what a store says about an array, when anything of it was last changed, and the bytes that it takes."""
    places = [place for place in (folder, *folder.parents) if place.is_relative_to(path)]
    files = tuple(file for place in places for file in map(place.joinpath, _METADATA) if os.path.lexists(file))
    states = [state for _, state in look_through(folder)]
    newest = max(_changed_at(state) for state in (*states, *(place.lstat() for place in (*places, *files))))
    return files, newest, sum(map(stored_bytes, states))


def _changed_at(state: os.stat_result) -> int:
    return max(state.st_mtime_ns, state.st_ctime_ns)


def _check_size(size: int, what: str) -> None:
    if size > _LARGE and 2 * size > available_memory():
        raise MemoryError(what)


class _Store(LocalStore):
    """A store through which only files are read that were there, as they are, at a time."""

    newest = 0

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        self._check(key, whole=byte_range is None)
        found = await super().get(key, prototype, byte_range)
        self._check(key, whole=False)
        return found

    def _check(self, key: str, *, whole: bool) -> None:
        file = self.root / key
        while not os.path.lexists(file) and file.name not in _METADATA:
            file = file.parent  # a missing chunk stands for the fill value, unless it was removed since
        if not os.path.lexists(file):
            return
        state = file.lstat()
        if _changed_at(state) > self.newest:
            raise other_than_opened(self.root)
        if whole and stat.S_ISREG(state.st_mode):
            _check_size(state.st_size, f"{key} has {state.st_size} bytes")


def _open(path: Place, newest: int) -> Any:
    if isinstance(path, Path):
        store: Any = _Store(path, read_only=True)
        store.newest = newest
    else:
        store = FsspecStore.from_url(path.address, read_only=True)
    try:
        return zarr.open(store, mode="r")
    except (FileNotFoundError, KeyError) as error:
        raise InputError(
            f"Expected a Zarr array or group in '{path}', got a folder without one: check the path."
        ) from error


@contextmanager
def _array(path: Place, name: str | None, newest: int) -> Iterator[Any]:
    """Open an array, once its codecs were found good, with Blosc that looks before it decodes."""
    opened = _open(path, newest)
    array = opened if name is None else opened[name]
    unknown = sorted(_codecs(array.metadata.to_dict()) - _CODECS)
    if unknown:
        raise InputError(
            f"Expected '{name or path}' to be coded by plain compression, got the codec {unknown[0]!r}, which could run code: "
            "store it with another one."
        )
    kinds = ("codecs",) if array.metadata.zarr_format == 3 else ("compressor", "filters")
    codecs = {kind: _looking(getattr(array.metadata, kind)) for kind in kinds}
    yield zarr.Array(zarr.AsyncArray(replace(array.metadata, **codecs), array.store_path))


class _LookingBlosc(Blosc):  # type: ignore[misc]
    """Blosc of format 2 that looks at a chunk before it decodes it."""

    def decode(self, buf: Any, out: Any = None) -> Any:
        _check_blosc(bytes(memoryview(buf).cast("B")[:16]), memoryview(buf).nbytes)
        return super().decode(buf, out)


class _LookingCodec(BloscCodec):
    """The same of format 3."""

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        _check_blosc(chunk_bytes[:16].to_bytes(), len(chunk_bytes))
        return await super()._decode_single(chunk_bytes, chunk_spec)


def _looking(codec: Any) -> Any:
    """Have codecs of Blosc, alone, in a sequence or in shards, look at a chunk before they decode it."""
    if isinstance(codec, tuple):
        return tuple(map(_looking, codec))
    if isinstance(codec, Blosc):
        return _LookingBlosc(**{key: value for key, value in codec.get_config().items() if key != "id"})
    if isinstance(codec, BloscCodec):
        return _LookingCodec.from_dict(codec.to_dict())
    return replace(codec, codecs=_looking(codec.codecs)) if hasattr(codec, "codecs") else codec


def _check_blosc(head: bytes, present: int) -> None:
    """Refuse a chunk that claims to be longer than it is, or that needs more memory than there is.

    Blosc would read what lies behind the chunk, or end the process (issue 228 of numcodecs, up to version 0.16 at least).
    """
    content, block, claimed = (int.from_bytes(head[at : at + 4], "little") for at in (4, 8, 12))
    if not 16 <= claimed <= present:
        raise ValueError(f"a chunk of {present} bytes says that it has {claimed}")
    _check_size(content + 4 * block, f"a chunk of {present} bytes says that it holds {content}")


def _codecs(metadata: Any) -> set[str]:
    """Find the names of all codecs in metadata of either format, those inside of others included."""
    found, todo = set(), [metadata.get(key) for key in ("codecs", "filters", "compressor")]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            name = str(part.get("name", part.get("id", "bytes")))
            # Blosc under that name is not the codec that looks before it decodes.
            found.add(name if name == "numcodecs.blosc" else name.removeprefix("numcodecs."))
            todo.extend(part.values())
        elif isinstance(part, list | tuple):
            todo.extend(part)
        elif hasattr(part, "get_config"):  # codecs of numcodecs, as metadata of format 2 hold them
            todo.append(part.get_config())
        elif hasattr(part, "to_dict"):
            todo.append(part.to_dict())
    return found
