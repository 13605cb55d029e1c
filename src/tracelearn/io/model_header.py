"""What a model file says of itself, before anything else of it is read: nothing heavy is imported for it."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from tracelearn import __version__

__all__ = ["FORMAT", "MAGIC", "DamagedFileError", "Header", "open_regular", "read_header", "read_open_header"]

FORMAT = 1
MAGIC = b"tracelearn file\n"
_HEADER_BYTES = 1024  # headers have about 200 bytes; a longer line is not read
_KINDS = ("model", "moments", "checkpoint")


class DamagedFileError(ValueError):
    """A file is damaged, or was not written by this package."""


@dataclass(frozen=True)
class Header:
    """The second line of a file: its format, its kind, who wrote it, and the length and the checksum of what follows.

    ``sha256`` is of the other fields and the payload, so that no bit of a file can change unnoticed.
    """

    format: int
    kind: str
    tracelearn: str
    length: int
    sha256: str

    @classmethod
    def of(cls, kind: str, payload: bytes) -> Header:
        """Describe a payload."""
        unsigned = cls(FORMAT, kind, __version__, len(payload), sha256="")
        return replace(unsigned, sha256=unsigned.digest(payload))

    def digest(self, payload: bytes) -> str:
        """Compute the checksum of a payload under this header."""
        checksum = hashlib.sha256(replace(self, sha256="").line())
        checksum.update(payload)
        return checksum.hexdigest()

    def line(self) -> bytes:
        """Write the header as one line, in the only form that is read."""
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read the header of a file, not its content."""
    with open_regular(path) as file:
        return read_open_header(file, path)


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file, and refuse a pipe, which could block for ever, or a device."""
    place = Path(path)
    if place.exists() and not place.is_file() and not place.is_dir():
        raise DamagedFileError(f"Expected a file, got {path}, which is a pipe or a device: copy its content to a file.")
    return open(path, "rb")


def read_open_header(file: IO[bytes], path: Any) -> Header:
    """Read the header of an open file, and leave the file at the payload."""
    magic = file.read(len(MAGIC))
    line = file.readline(_HEADER_BYTES)
    foreign = DamagedFileError(
        f"Expected a file that tracelearn wrote, got {path}, which is none or was damaged: pass one written by save."
    )
    if magic != MAGIC:
        raise foreign
    try:
        fields = json.loads(line)
        version = fields["format"]
        if type(version) is int and version > FORMAT:
            raise ValueError(
                f"Expected a file of format {FORMAT}, got format {version} in {path}: install a newer tracelearn."
            )
        header = Header(**fields)
    except (KeyError, TypeError, RecursionError, UnicodeDecodeError, json.JSONDecodeError):
        raise foreign from None
    has_numbers = type(header.format) is int and type(header.length) is int
    # A header has one form only, so that no bit of it is free to change.
    if not has_numbers or header.format != FORMAT or str(header.kind) not in _KINDS or header.line() != line:
        raise foreign
    return header
