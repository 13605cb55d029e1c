"""A lock between processes that ends with the process that took it, however that ends."""

from __future__ import annotations

import errno
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["FileLock"]

logger = logging.getLogger("tracelearn")

_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_taken: set[FileLock] = set()  # by this process


class FileLock:
    """A lock of the operating system on a file that is there while it is held.

    It is ``flock``, which belongs to an open file rather than to a process: two locks in one process exclude each other,
    and opening the file elsewhere gives nothing away, as it would with ``fcntl``. A forked child shares the open file, and
    closes its copy at once, so that the lock ends with its parent.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from tracelearn.streaming.locks import FileLock
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     one, other = (FileLock(pathlib.Path(folder) / "lock") for _ in range(2))
    ...     got = one.acquire(), other.acquire()
    ...     one.release()
    ...     print(got, other.acquire())
    ...     other.release()
    (True, False) True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def acquire(self) -> bool:
        """Take the lock if nobody has it; return whether it was taken."""
        while self._handle is None:
            # No link is followed: in a folder from elsewhere it could make a file anywhere.
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
            if not self._lock(handle):
                os.close(handle)
                return False
            if self._is_there(handle):
                self._handle = handle
                _taken.add(self)
            else:  # its holder removed it after we had opened it: what we locked is nobody's lock any more
                os.close(handle)
        return True

    def release(self) -> None:
        """Give the lock back, if it is held."""
        if self._handle is not None:
            with suppress(OSError):  # where files in use cannot be removed it stays, which does no harm
                self.path.unlink()
            self.close()

    def close(self) -> None:
        """Close the file without removing it; the lock ends once no process has it open."""
        if self._handle is not None:
            _taken.discard(self)
            os.close(self._handle)
            self._handle = None

    def _lock(self, handle: int) -> bool:
        try:
            _lock(handle)
        except OSError as error:
            if error.errno in _HELD:
                return False
            # Some network file systems have no locks: that is no reason to keep somebody from working there.
            logger.warning("%s cannot be locked (%s): let one run at a time use this folder", self.path, error)
        return True

    def _is_there(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        except FileNotFoundError:
            return False


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _close_all() -> None:
        for lock in list(_taken):
            lock.close()

    os.register_at_fork(after_in_child=_close_all)
