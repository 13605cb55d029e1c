"""Columns of a file, refused in one sentence once the file is damaged or no longer the one that was opened."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tracelearn.samples.source import Column

__all__ = ["Watched", "look_through", "one_sentence", "other_than_opened", "stored_bytes", "watched"]

# No compression of samples comes near: where a file is smaller than that, nearly nothing of what it claims was written.
_LARGEST_RATIO, _LARGE = 100_000, 1 << 36


@dataclass(frozen=True, eq=False)
class Watched(Column):
    """A column that looks at its files again with every array it reads."""

    column: Column
    path: Path
    files: tuple[Path, ...]
    stamp: tuple[Any, ...]

    def arrays(self, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Read as the format does; before an array is handed on, its files must still be the same."""
        self._check_same()
        with one_sentence(self.path, self._check_same):
            for array in self.column.arrays(start, rows):
                self._check_same()
                yield array

    def _check_same(self) -> None:
        try:
            same = _stamp(self.files) == self.stamp
        except OSError:
            same = False
        if not same:
            raise other_than_opened(self.path)


def other_than_opened(path: Path) -> ValueError:
    """Say that a file changed."""
    return ValueError(
        f"Expected '{path}' as it was when it was opened, got another: it changed since, so open it again."
    )


def watched(read: Callable[[Path, Any], Column], path: Path, name: str | None) -> Watched:
    """Open a column of a file, and watch it from now on: a column of several files names them."""
    with one_sentence(path):
        before = _stamp((path,))
        column = read(path, name)
        files = getattr(column, "files", (path,))
        found = Watched(
            column.n_rows, column.shape, column.dtype, column.chunk, column, path, files,
            before if files == (path,) else _stamp(files),
        )  # fmt: skip
        stored = getattr(column, "stored", sum(stored_bytes(file.stat()) for file in files))
        claimed = column.n_rows * prod(column.shape) * max(1, column.dtype.itemsize)
        if claimed > _LARGE and claimed > _LARGEST_RATIO * stored:
            raise ValueError(
                f"Expected samples that were written to '{path}', got {column.n_rows} of which nearly all are missing, "
                f"{claimed / 2**30:.3g} GiB in {stored} bytes: write them, or make the array as long as what was written."
            )
    return found


def stored_bytes(state: os.stat_result) -> int:
    """Find what a file takes on disk, which is less than its length where it has holes."""
    return min(state.st_size, 512 * max(1, getattr(state, "st_blocks", state.st_size)))


def look_through(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Go through all files and folders in a folder; links and devices, which would have us read something else, are refused."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            found = Path(place, name)
            state = found.lstat()
            if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
                raise ValueError(
                    f"Expected only files and folders in '{folder}', got a link, a pipe or a device, '{found}': put what it "
                    "stands for in its place."
                )
            yield found, state


def _stamp(files: tuple[Path, ...]) -> tuple[Any, ...]:
    """Note what tells files from later ones in their place."""
    states = [file.stat() for file in files]
    return tuple((state.st_ino, state.st_size, state.st_mtime_ns) for state in states)


@contextmanager
def one_sentence(path: Path, check_same: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Say in one sentence what a library makes of a damaged file, whatever it raises."""
    try:
        yield
    except (ImportError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except MemoryError as error:  # of a file that is whole, or of one that claims to be larger than it is
        check_same()
        raise ValueError(
            f"Expected enough memory to read '{path}', got none left: allow more, compress the samples with ModePCA, or, if it "
            "should be small, write it again."
        ) from error
    except Exception as error:
        check_same()  # where it changed, that is what to say, whatever came of it
        if isinstance(error, ValueError) and re.match("Expected .*, got ", str(error)):  # a sentence of ours
            raise
        raise ValueError(
            f"Expected a whole file of numbers or strings, got '{path}', of which the reader says \"{type(error).__name__}: "
            f'{" ".join(str(error).split())[:300]}": write or copy it again.'
        ) from error
