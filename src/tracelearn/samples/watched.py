"""Columns of a file, refused in one sentence once the file is damaged or no longer the one that was opened."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.samples.source import Column, in_one_line

__all__ = ["Watched", "one_sentence", "watched"]

_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")


@dataclass(frozen=True, eq=False)
class Watched:
    """A column that looks at its files again with every array it reads."""

    column: Column
    path: Path
    files: tuple[Path, ...]
    stamp: tuple[Any, ...]

    @property
    def n_rows(self) -> int:
        """Number of values."""
        return self.column.n_rows

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one value."""
        return self.column.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.column.dtype

    @property
    def chunk(self) -> int:
        """Rows that are stored together."""
        return self.column.chunk

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
            raise ValueError(
                f"Expected '{self.path}' as it was when it was opened, got another: it changed since, so open it again."
            )


def watched(read: Callable[[Path, Any], Column], path: Path, name: str | None) -> Watched:
    """Open a column of a file, and watch it from now on."""
    with one_sentence(path):
        before = _stamp(_files(path))
        column = read(path, name)
        files = getattr(column, "files", _files(path))
        found = Watched(column, path, files, _stamp(files) if path.is_dir() else before)
    return found


def _files(path: Path) -> tuple[Path, ...]:
    """List what holds shapes: the file itself, or in a Zarr folder the metadata, beside which chunks come and go."""
    if not path.is_dir():
        return (path,)
    places = (path, *sorted(folder for folder in path.iterdir() if folder.is_dir()))
    return tuple(folder / name for folder in places for name in _METADATA if (folder / name).is_file())


def _stamp(files: tuple[Path, ...]) -> tuple[Any, ...]:
    """Note what tells files from later ones in their place."""
    states = [file.stat() for file in files]
    return tuple((state.st_ino, state.st_size, state.st_mtime_ns) for state in states)


@contextmanager
def one_sentence(path: Path, check_same: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Tell in one sentence what a library makes of a damaged file, whatever it raises."""
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
        check_same()  # where it changed, that is what to tell, whatever came of it
        if isinstance(error, ValueError) and re.match("Expected .*, got ", str(error)):  # a sentence of ours
            raise
        raise ValueError(
            f"Expected a whole file of numbers or strings, got '{path}', of which the reader says \"{type(error).__name__}: "
            f'{in_one_line(error)}": write or copy it again.'
        ) from error
