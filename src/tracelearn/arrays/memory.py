"""How much memory can be had: what is free, within what this process may use."""

from __future__ import annotations

import os
from pathlib import Path

try:
    import resource
except ImportError:  # systems without limits of this kind
    resource = None  # type: ignore[assignment]

__all__ = ["available_memory"]

_UNTOLD = 4 << 30  # what a system that does not tell is taken to have
_GROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Find the bytes that can be allocated without swapping and without being refused or killed."""
    return max(0, min(_free(), _within_limit(), _within_group()))


def _free() -> int:
    """Ask Linux for what is free or can be freed, other systems for what is free."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _UNTOLD


def _within_limit() -> int:
    """Find what the limit on addresses, ``ulimit -v``, leaves to this process."""
    if resource is None:
        return 1 << 62
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return 1 << 62
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return limit
    return limit - pages * resource.getpagesize()


def _within_group() -> int:
    """Find what the limit of a container leaves to this process."""
    try:
        limit, used = ((_GROUP / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return 1 << 62
    return 1 << 62 if limit == "max" else int(limit) - int(used)
