"""Folders of images of one size; labels are the names of sub-folders, or columns of a table.

The table is ``metadata.csv`` in the folder, with a column ``file_name``: the images are read in its order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tracelearn.errors import refuse
from tracelearn.optional import require
from tracelearn.samples.source import Column, array_column, image_files, other_than_opened, stamp

__all__ = ["column", "names"]

_KINDS = ("PNG", "JPEG", "TIFF", "BMP", "WEBP", "GIF", "PPM")  # none that needs another program to be drawn
_GREY = {"1": "L", "L": "L", "I;16": "I;16", "I": "I", "F": "F"}  # all others become red, green and blue


def _table(folder: Path) -> Any:
    """Open the table of labels, if there is one: its names, and a function to its columns."""
    place = folder / "metadata.csv"
    if not os.path.lexists(place):
        return None
    csv = require("tracelearn.samples.csv", "csv")
    found = csv.table(place).schema.names
    refuse(
        "file_name" not in found,
        f"Expected a column file_name in '{place}', got none: name the images in it, or remove it.",
    )
    return found, lambda name: replace(csv.column(place, name), files=(place,))


def names(path: Path) -> list[str]:
    """List images and labels."""
    table = _table(path)
    if table is not None:
        return ["X", *(name for name in table[0] if name != "file_name")]
    return ["X", "y"] if all("/" in name for name in image_files(path)) else ["X"]


def column(path: Path, name: str) -> Column:
    """Find the size of the images, or their labels."""
    table, found = _table(path), image_files(path)
    if name != "X" and table is not None:
        labels: Column = table[1](name)
        return labels
    if name != "X":
        return array_column([image.partition("/")[0] for image in found], f"names of folders in '{path}'")
    order = list(found)
    if table is not None:
        column = table[1]("file_name")
        order = [str(image) for part in column.read(0, column.n_rows) for image in part]
    missing = next((image for image in order if image not in found), None)
    refuse(
        missing is not None or not order,
        f"Expected images in '{path}' that its metadata.csv names, got no '{missing or 'image'}': correct the table.",
    )
    with open(path / order[0], "rb") as file, Image.open(file, formats=_KINDS) as first:
        mode = _GREY.get(first.mode, "RGB")
        shape = (first.height, first.width, 3)[: 3 if mode == "RGB" else 2]
    images = tuple((path / image, stamp(found[image])) for image in order)
    dtype, stored = np.asarray(Image.new(mode, (1, 1))).dtype, sum(found[image].st_size for image in order)
    return Column(len(order), shape, dtype, 1, partial(_read, images, mode, shape, dtype), (path,), stored)


def _read(images: Any, mode: str, shape: tuple[int, ...], dtype: Any, start: int, rows: int) -> Iterator[NDArray[Any]]:
    for first in range(start, len(images), rows):
        part = images[first : first + rows]
        block = np.empty((len(part), *shape), dtype)
        for place, (file, opened) in enumerate(part):
            if stamp(file.lstat()) != opened:
                raise other_than_opened(file)
            # Opened here: by a name, Pillow maps some formats, and a map of a file that is cut off ends the process.
            with open(file, "rb") as data, Image.open(data, formats=_KINDS) as image:
                refuse(
                    (image.height, image.width) != shape[:2] or _GREY.get(image.mode, "RGB") != mode,
                    f"Expected images of {shape[1]} × {shape[0]} pixels of mode {mode}, as the first, got {image.width} × "
                    f"{image.height} of mode {image.mode} in '{file}': give all one size and mode.",
                )
                block[place] = np.asarray(image.convert(mode))
        yield block
