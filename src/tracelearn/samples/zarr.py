"""Columns in Zarr stores."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from tracelearn.arrays.memory import available_memory
from tracelearn.samples.arrays import ArrayColumn, array_column
from tracelearn.samples.source import require

__all__ = ["zarr_column", "zarr_names"]

# A store names the codecs that its bytes go through, and some of those that are installed unpickle, which can run any code.
_CODECS = frozenset(
    "adler32 astype bitround blosc bytes bz2 crc32 crc32c delta endian fixedscaleoffset fletcher32 gzip jenkins_lookup3 "
    "lz4 lzma packbits quantize sharding_indexed shuffle transpose vlen-utf8 zlib zstd".split()
)
_LARGE_CHUNK = 64 << 20  # bytes from which on the free memory is looked at


def _open(path: Path) -> Any:
    zarr = require("zarr", "zarr", "Zarr stores")
    _guard_blosc()
    try:
        return zarr.open(str(path), mode="r")
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise ValueError(
            f"Expected a Zarr array or group in '{path}', got a folder without one: check the path."
        ) from error


def _guard_blosc() -> None:
    """Have Blosc refuse a chunk that claims to be longer than it is, or that needs more memory than there is.

    It would read what lies behind the chunk, or end the process (issue 228 of numcodecs, up to version 0.16 at least).
    Zarr decodes through this one method, whatever the format and inside of shards.
    """
    blosc: Any = require("numcodecs.blosc", "zarr", "Zarr stores").Blosc
    as_bytes: Any = require("numcodecs.compat", "zarr", "Zarr stores").ensure_contiguous_ndarray
    unguarded = blosc.decode
    if hasattr(unguarded, "__wrapped__"):
        return

    @wraps(unguarded)
    def decode(self: Any, buf: Any, out: Any = None) -> Any:
        data = as_bytes(buf).view(np.uint8)
        content, block, claimed = (int.from_bytes(data[at : at + 4].tobytes(), "little") for at in (4, 8, 12))
        if not 16 <= claimed <= len(data):
            raise ValueError(f"a chunk of {len(data)} bytes says that it has {claimed}")
        needed = content + 4 * block
        if needed > _LARGE_CHUNK and 2 * needed > available_memory():
            raise MemoryError(f"a chunk of {len(data)} bytes says that it holds {content}")
        return unguarded(self, buf, out)

    blosc.decode = decode


def zarr_names(path: Path) -> list[str] | None:
    """List the arrays of a group; None for a bare array."""
    opened = _open(path)
    if hasattr(opened, "shape"):
        return None
    return sorted(name for name, member in opened.members(max_depth=None) if hasattr(member, "shape"))


def zarr_column(path: Path, name: str | None) -> ArrayColumn:
    """Open one array of a group, or the bare array."""
    opened = _open(path)
    array = opened if name is None else opened[name]
    unknown = sorted(_codecs(array.metadata.to_dict()) - _CODECS)
    if unknown:
        raise ValueError(
            f"Expected '{name or path}' to be coded by plain compression, got the codec {unknown[0]!r}, which could run code: "
            "store it with another one."
        )
    return array_column(array, f"'{name or path}'")


def _codecs(metadata: Any) -> set[str]:
    """Find the names of all codecs in metadata of either format, those inside of others included."""
    found, todo = set(), [metadata.get(key) for key in ("codecs", "filters", "compressor")]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            name = part.get("name", part.get("id"))
            if name is not None:
                found.add(str(name).removeprefix("numcodecs."))
            todo.extend(part.values())
        elif isinstance(part, list | tuple):
            todo.extend(part)
        elif hasattr(part, "get_config"):  # codecs of numcodecs, as metadata of format 2 hold them
            todo.append(part.get_config())
        elif hasattr(part, "to_dict"):
            todo.append(part.to_dict())
    return found
