"""A lock between processes that ends with the process that took it, however that ends."""

from __future__ import annotations

import errno
import logging
import os
import sys
from pathlib import Path

__all__ = ["FileLock"]

logger = logging.getLogger("tracelearn")

_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_taken: set[FileLock] = set()  # by this process


class FileLock:
    """A lock of the operating system on a file, which stays: whoever removed it could remove that of the next holder.

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
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(handle)
        except OSError as error:
            if error.errno in _HELD:
                os.close(handle)
                return False
            # Some network file systems have no locks: that is no reason to keep somebody from working there.
            logger.warning("%s cannot be locked (%s): let one run at a time use this folder", self.path, error)
        self._handle = handle
        _taken.add(self)
        return True

    def release(self) -> None:
        """Give the lock back, if it is held; it ends once no process has the file open."""
        if self._handle is not None:
            _taken.discard(self)
            os.close(self._handle)
            self._handle = None


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
            lock.release()

    os.register_at_fork(after_in_child=_close_all)
