"""Folders of images of one size; labels are the names of sub-folders, or columns of a table.

The table is ``metadata.csv`` in the folder, with a column ``file_name``: the images are read in its order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tracelearn.errors import refuse
from tracelearn.io.places import IMAGE_SUFFIXES, visible_files
from tracelearn.optional import require

__all__ = ["names", "open_array"]

_FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "WEBP", "GIF", "PPM")  # formats that Pillow reads without another program
_GREY = {"1": "L", "L": "L", "I;16": "I;16", "I": "I", "F": "F"}  # all others become red, green and blue


def names(path: Path) -> list[str]:
    """List images and labels."""
    if _table_of_labels(path).exists():
        columns = require("tracelearn.io.csv", "csv").open_table(_table_of_labels(path)).schema.names
        refuse(
            "file_name" not in columns,
            f"Expected a column file_name in '{_table_of_labels(path)}', got none: name the images in it, or remove it.",
        )
        return ["X", *(name for name in columns if name != "file_name")]
    has_folders = all(image.parent != path for image in visible_files(path, IMAGE_SUFFIXES))
    return ["X", "y"] if has_folders else ["X"]


@contextmanager
def open_array(path: Path, name: str) -> Iterator[Any]:
    """Open the images, or read their labels."""
    if name == "X":
        yield _open_images(path)
    elif _table_of_labels(path).exists():
        yield _column(path, name)
    else:
        yield np.array([image.relative_to(path).parts[0] for image in visible_files(path, IMAGE_SUFFIXES)])


def _table_of_labels(folder: Path) -> Path:
    """Name the table of labels, which need not exist."""
    return folder / "metadata.csv"


def _column(folder: Path, name: str) -> NDArray[Any]:
    """Read a column of the table of labels."""
    table = require("tracelearn.io.csv", "csv").open_table(_table_of_labels(folder), (name,))
    column = require("tracelearn.io.tables", "csv").column_of_table(table, name)
    values: NDArray[Any] = column.values(f"'{name}' of '{_table_of_labels(folder)}'")
    return values.astype(str) if values.dtype.kind == "O" else values


def _open_images(path: Path) -> _Images:
    """Find the images, in the order of the table if there is one, and their size and mode, which are those of the first."""
    files = visible_files(path, IMAGE_SUFFIXES)
    if _table_of_labels(path).exists():
        present = set(files)
        names = [str(name) for name in _column(path, "file_name")]
        missing = [name for name in names if path / name not in present]
        refuse(
            missing,
            f"Expected images in '{path}' that its metadata.csv names, got no '{''.join(missing[:1])}': correct the table.",
        )
        files = tuple(path / name for name in names)
    with Image.open(files[0], formats=_FORMATS) as first:
        return _Images(files, _GREY.get(first.mode, "RGB"), (first.height, first.width))


@dataclass(frozen=True)
class _Images:
    """Images as one array; an image is read when it is sliced."""

    files: tuple[Path, ...]
    mode: str
    size: tuple[int, int]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.files), *self.size, 3) if self.mode == "RGB" else (len(self.files), *self.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.asarray(Image.new(self.mode, (1, 1))).dtype

    def __getitem__(self, index: tuple[slice]) -> NDArray[Any]:
        return np.stack([self._draw(file) for file in self.files[index[0]]])

    def _draw(self, file: Path) -> NDArray[Any]:
        with Image.open(file, formats=_FORMATS) as image:
            refuse(
                (image.height, image.width) != self.size or _GREY.get(image.mode, "RGB") != self.mode,
                f"Expected images of {self.size[1]} × {self.size[0]} pixels of mode {self.mode}, as the first, got "
                f"{image.width} × {image.height} of mode {image.mode} in '{file}': give all one size and mode.",
            )
            return np.asarray(image.convert(self.mode))
