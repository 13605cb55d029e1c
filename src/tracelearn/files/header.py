"""What a file says of itself, before anything else of it is read: nothing heavy is imported for it."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import IO, Any

__all__ = ["FORMAT", "MAGIC", "DamagedFileError", "Header", "header_of", "opened", "read_header"]

FORMAT = 2
MAGIC = b"tracelearn file\n"
_HEADER_BYTES = 1024  # ours are some 200; nobody makes us read a longer line
_KINDS = ("model", "moments", "checkpoint")


class DamagedFileError(ValueError):
    """A file is not, or no longer, what was written."""


@dataclass(frozen=True)
class Header:
    """What a file says of itself, in its second line.

    ``sha256`` is of the other fields and the payload, so that no bit of a file can change unnoticed.
    """

    format: int
    kind: str
    tracelearn: str
    length: int
    sha256: str

    @classmethod
    def of(cls, kind: str, payload: bytes, version: int = FORMAT) -> Header:
        """Describe a payload."""
        blank = cls(version, kind, metadata.version("tracelearn"), len(payload), "")
        return replace(blank, sha256=blank.digest(payload))

    def digest(self, payload: bytes) -> str:
        """Find the checksum of a payload under this header."""
        checksum = hashlib.sha256(replace(self, sha256="").line())
        checksum.update(payload)
        return checksum.hexdigest()

    def line(self) -> bytes:
        """Write the header as one line, in the only form that is read."""
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read what a file says of itself; its content is not looked at."""
    with opened(path) as file:
        return header_of(file, path)


def opened(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file; a pipe in its place, as in a folder of checkpoints from elsewhere, could be waited at for ever."""
    place = Path(path)
    if place.exists() and not place.is_file() and not place.is_dir():
        raise DamagedFileError(
            f"Expected a file, got {path}, which is a pipe or a device: copy what it gives to a file."
        )
    return open(path, "rb")


def header_of(file: IO[bytes], path: Any) -> Header:
    """Read the header of a file that is open, and leave it at the payload."""
    magic, line = file.read(len(MAGIC)), file.readline(_HEADER_BYTES)
    other = DamagedFileError(
        f"Expected a file that tracelearn wrote, got {path}, which is none or was damaged: pass one written by save."
    )
    try:
        fields = json.loads(line) if magic == MAGIC else {}
        version = fields["format"]
        if type(version) is int and version > FORMAT:
            raise ValueError(
                f"Expected a file of format {FORMAT} or before, got format {version} in {path}: install a newer tracelearn."
            )
        header = Header(**fields)
    except (KeyError, TypeError, RecursionError, UnicodeDecodeError, json.JSONDecodeError):
        raise other from None
    # One form of a header, so that no bit of it is free to change; and numbers that are numbers.
    numbers = type(header.format) is int and type(header.length) is int
    if not numbers or header.format < 1 or str(header.kind) not in _KINDS or header.line() != line:
        raise other
    return header
