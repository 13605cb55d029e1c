"""Where a file is: a path of this machine, or an address of fsspec such as ``s3://bucket/epochs.parquet``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracelearn.optional import require

__all__ = ["IMAGE_SUFFIXES", "Place", "Remote", "place_of", "readable_by_pyarrow", "visible_files"]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".pgm", ".ppm")


@dataclass(frozen=True)
class Remote:
    """An address of fsspec, with the members of a path that readers use."""

    address: str

    def _call_store(self, method: str, *arguments: Any) -> Any:
        store, path = require("fsspec", "remote").core.url_to_fs(self.address)
        return getattr(store, method)(path, *arguments)

    @property
    def name(self) -> str:
        """The last component of the address."""
        return self.address.rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The file extension, with its dot."""
        return Path(self.name).suffix

    def exists(self) -> bool:
        """Ask the store whether there is anything."""
        return bool(self._call_store("exists"))

    def is_file(self) -> bool:
        """Ask the store whether it is a file."""
        return bool(self._call_store("isfile"))

    def open(self, mode: str = "rb") -> Any:
        """Open it for reading."""
        return self._call_store("open", mode)

    def __str__(self) -> str:
        return self.address


Place = Path | Remote


def place_of(path: str | os.PathLike[str] | Remote) -> Place:
    """Tell addresses from paths.

    Examples
    --------
    >>> from tracelearn.io.places import place_of
    >>> place_of("memory://epochs.csv")
    Remote(address='memory://epochs.csv')
    >>> str(place_of("epochs.csv")), str(place_of("file:///data/epochs.csv"))
    ('epochs.csv', '/data/epochs.csv')
    """
    if isinstance(path, Remote):
        return path
    text = os.fspath(path)
    scheme, mark, local_path = text.partition("://")
    if scheme in ("file", "local"):  # a folder of this machine is checked for links like any path
        return Path(local_path)
    return Remote(text) if mark else Path(text)


def readable_by_pyarrow(place: Place) -> Any:
    """Return what pyarrow opens best: the name of a local file, or an open remote file."""
    return str(place) if isinstance(place, Path) else place.open()


def visible_files(folder: Path, suffixes: tuple[str, ...]) -> tuple[Path, ...]:
    """List the files of a folder that end in some suffix, sorted; hidden ones and those that begin with ``_`` are bookkeeping."""
    files = [path for path in folder.rglob("*") if path.suffix.lower() in suffixes and path.is_file()]
    return tuple(sorted(path for path in files if not any(name[0] in "._" for name in path.relative_to(folder).parts)))
