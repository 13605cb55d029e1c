"""What is refused in data files of every format before anything of them is read.

Data files are the user's own. Beyond these checks the protection of the library that reads a format counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import available_memory
from tracelearn.errors import InputError, refuse
from tracelearn.io.places import Place

__all__ = ["check_dtype", "check_folder", "check_memory", "one_sentence"]

_ADVICE = "store it as .npy, HDF5 or Zarr, which are read in blocks, or compress the samples with ModePCA"


def check_folder(folder: Path) -> None:
    """Refuse a folder with links that lead out of it, or with pipes and devices, which are not data of the folder."""
    root = folder.resolve()
    for parent, subfolders, files in os.walk(folder):
        for name in (*subfolders, *files):
            path = Path(parent, name)
            leads_out = path.is_symlink() and not path.resolve().is_relative_to(root)
            refuse(
                leads_out or not (path.is_file() or path.is_dir()),
                f"Expected only files and folders in '{folder}', got '{path}', which is a link to a place outside, a pipe or a "
                "device: put what it stands for in its place.",
            )


def check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    """Refuse Python objects, which are stored as pickles; text of variable length is allowed."""
    refuse(
        dtype.hasobject and dtype.kind != "T",
        f"Expected numbers or strings in {name}, got Python objects: reading them could run any code, so store an array of "
        "a plain dtype.",
    )


def check_memory(name: str, shape: Sequence[int], dtype: np.dtype[Any], advice: str = _ADVICE) -> None:
    """Refuse an array that is to be read at once and is larger than the free memory."""
    size = prod(shape) * max(1, dtype.itemsize)
    free = available_memory()
    refuse(
        size > free,
        f"Expected {name} to fit in the {free / 2**30:.3g} GiB of free memory, got {size / 2**30:.3g} GiB that must be read at "
        f"once: {advice}.",
    )


@contextmanager
def one_sentence(path: Place | str) -> Iterator[None]:
    """Turn whatever a library raises for a damaged file into one sentence."""
    try:
        yield
    except (ImportError, FileNotFoundError, PermissionError, IsADirectoryError, InputError):
        raise
    except MemoryError as error:
        raise InputError(
            f"Expected enough memory to read '{path}', got none left: free some, or compress the samples with ModePCA."
        ) from error
    except Exception as error:
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        is_encoding = "utf-8" in message or "UTF8" in message
        advice = 'save it as text in UTF-8, which Excel calls "CSV UTF-8"' if is_encoding else "write or copy it again"
        raise InputError(
            f"Expected a whole file of numbers or strings, got '{path}', of which the reader says \"{message}\": {advice}."
        ) from error
