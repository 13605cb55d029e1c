"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import stat
import uuid
from contextlib import suppress
from pathlib import Path

__all__ = ["write_atomically"]


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that at every moment, power cuts included, it is the old one or the new one.

    A file that is replaced keeps its permissions; a new one gets those that the process gives to new files.
    """
    target = Path(os.path.realpath(path))  # a link stays, and what it leads to is replaced
    if target.exists() and not target.is_file():
        raise OSError(f"Expected a file to write to, got {path}, which is a folder or a device: choose another place.")
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        _write_beside(temporary, target, data)
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        failure = OSError(
            f"Expected to write {path}, got {error.strerror or error}: free some space or choose another place."
        )
        failure.errno = error.errno
        raise failure from error
    finally:
        with suppress(OSError):  # it has its new name, or was never made
            temporary.unlink()


def _write_beside(temporary: Path, target: Path, data: bytes) -> None:
    """Write a new file to the disk, with the permissions of the one that it is to replace."""
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    # Nobody may open it meanwhile who could not open the old one.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else 0o600))
    if mode is not None:
        os.chmod(temporary, mode | stat.S_IWUSR)
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if mode is not None:
        os.chmod(temporary, mode)


def _sync_folder(folder: Path) -> None:
    """Flush a folder to the disk: until then a power cut could bring back the file that was replaced."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
