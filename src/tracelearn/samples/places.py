"""Where a file is: a path of this machine, or an address of fsspec such as ``s3://bucket/epochs.parquet``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tracelearn.optional import require

__all__ = ["Place", "Remote", "opened"]


@dataclass(frozen=True)
class Remote:
    """What an address leads to, with those members of a path that readers ask for."""

    address: str

    def _ask(self, question: str, *details: Any) -> Any:
        store, path = require("fsspec", "remote").core.url_to_fs(self.address)
        return getattr(store, question)(path, *details)

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot on."""
        return Path(self.name).suffix

    def exists(self) -> bool:
        """Ask the store whether there is anything."""
        return bool(self._ask("exists"))

    def is_file(self) -> bool:
        """Ask the store whether it is a file."""
        return bool(self._ask("isfile"))

    def stat(self) -> Any:
        """Say how large it is, and what tells it from a later one in its place, as far as the store knows."""
        return SimpleNamespace(st_ino=self._ask("ukey"), st_size=int(self._ask("size") or 0), st_mtime_ns=0)

    def open(self, mode: str = "rb") -> Any:
        """Open it for reading."""
        return self._ask("open", mode)

    def __str__(self) -> str:
        return self.address


Place = Path | Remote


def opened(place: Place) -> Any:
    """Give a library of Arrow what it opens best: a path of this machine by its name, anything else as an open file."""
    return str(place) if isinstance(place, Path) else place.open()
