"""Samples in arrays and files: how columns of equal length are read side by side in blocks.

Blocks end at multiples of one number of rows, wherever reading starts, so that a block which is a multiple of a chunk stays
one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelearn.arrays.array_api import available_memory
from tracelearn.errors import InputError
from tracelearn.samples.places import Place

__all__ = ["Batch", "Column", "Source", "array_column", "opened_column", "read_ahead"]

Batch = tuple[NDArray[Any], Any, Any | None]
T = TypeVar("T")

_LARGEST_BLOCK = 16 * 2**20  # still in cache when it is summed up; four times as much is slower by a tenth
_LONGEST_LABEL = 1000  # characters
# No compression of samples comes near: where a file is smaller than that, nearly nothing of what it claims was written.
_LARGEST_RATIO, _LARGE = 100_000, 1 << 36
_IMAGES = frozenset(".png .jpg .jpeg .tif .tiff .bmp .webp .gif .pgm .ppm".split())
_END = object()


@dataclass(frozen=True, eq=False)
class Source:
    """Samples with their targets and weights, read in blocks.

    Attributes
    ----------
    sample_shape : tuple of int or None
        Shape of one sample; None where only reading tells.
    n_samples : int or None
    dtype : numpy.dtype or None
        Type of the samples.
    repeatable : bool
        Whether every pass gives the same blocks; otherwise there is one pass.
    blocks : function from a number of samples to an iterator
        Reads blocks from that sample on.
    targets : function to an iterator
        Reads (y, weight) of the blocks, without their samples where the format allows it.
    ahead : bool
        Whether a thread reads the next block while the last one is worked on.
    modes : tuple of Mode or None
        Names, coordinates and units of the modes of a sample, where they are known.
    """

    sample_shape: tuple[int, ...] | None
    n_samples: int | None
    dtype: np.dtype[Any] | None
    repeatable: bool
    blocks: Callable[[int], Iterator[Batch]]
    targets: Callable[[], Iterator[tuple[Any, Any | None]]]
    ahead: bool = True
    modes: Any = None

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Read blocks (X, y, weight) from sample ``start`` on.

        X has the shape ``(m, *sample_shape)``; y is None if there is no target, weight is None if all weigh the same.
        """
        if start < 0:
            raise InputError(f"Expected start to be a number of samples of at least 0, got {start}.")
        return read_ahead(self.blocks(start)) if self.ahead else self.blocks(start)


# --- columns ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Column:
    """One value for each sample, readable in order from any row on.

    Attributes
    ----------
    n_rows : int
        Number of values.
    shape : tuple of int
        Shape of one value.
    dtype : numpy.dtype
        Type of the values; text whose length varies is read as objects.
    chunk : int
        Rows that are stored, and so must be read, together.
    read : function from a row and a number of rows to an iterator
        Reads from that row on, in arrays of about so many rows, cut wherever the format likes it best.
    files : tuple of paths
        What is watched while it is read; none is the path that was opened.
    stored : int or None
        Bytes on disk, where they are not those of the files.
    modes : tuple of Mode or None
        Names and coordinates of the modes of a value, where the file has them.
    """

    n_rows: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: int
    read: Callable[[int, int], Iterator[NDArray[Any]]]
    files: tuple[Place, ...] = ()
    stored: int | None = None
    modes: Any = None


def is_lazy(values: Any) -> bool:
    """Say whether values are an array that is read when it is sliced: a memory map, of Zarr, or of h5py."""
    return isinstance(values, np.memmap) or type(values).__module__.partition(".")[0] in ("zarr", "h5py")


def array_column(values: Any, name: str) -> Column:
    """Make a column of an array, or of what NumPy makes one of."""
    if not is_lazy(values):
        values = np.asarray(values)
    elif not hasattr(values, "shape"):
        kind = f"{type(values).__module__.partition('.')[0]} {type(values).__name__}"
        raise InputError(f"Expected {name} to be an array, got a {kind}: pass one of its arrays, or its path.")
    return opened_column(partial(nullcontext, values), name)


def opened_column(opened: Callable[[], AbstractContextManager[Any]], name: str, axis: int = 0, **known: Any) -> Column:
    """Make a column of an array that is opened for every pass, with the samples along an axis.

    The array has a shape, a type, perhaps ``chunks``, and is read when it is sliced by a tuple. ``known`` are other fields of
    the column.
    """
    with opened() as values:
        shape, dtype = tuple(int(size) for size in values.shape), np.dtype(values.dtype)
        if not shape:
            raise InputError(
                f"Expected {name} to be an array with one row for each sample, got a single value: pass an array, or a path "
                "for X to name what is in that file."
            )
        if not -len(shape) <= axis < len(shape):
            raise InputError(
                f"Expected sample_axis to be one of the {len(shape)} axes of {name}, got {axis}: correct it."
            )
        axis %= len(shape)
        chunk = max(1, int((getattr(values, "chunks", None) or (1,) * len(shape))[axis]))
    return Column(
        shape[axis], shape[:axis] + shape[axis + 1 :], dtype, chunk, partial(_slices, opened, chunk, axis), **known
    )


def _slices(
    opened: Callable[[], AbstractContextManager[Any]], chunk: int, axis: int, start: int, rows: int
) -> Iterator[NDArray[Any]]:
    """Slice an array along an axis from row ``start`` on, touching every chunk once."""
    step = -(-rows // chunk) * chunk
    with opened() as values:
        n = values.shape[axis]
        # Strings of HDF5 come as bytes unless asked for otherwise.
        readable = values.asstr() if hasattr(values, "asstr") and values.dtype.kind in "OS" else values
        while start < n:
            stop = min(n, start - start % step + step)
            yield np.moveaxis(_plain(readable[(*[slice(None)] * axis, slice(start, stop))]), axis, 0)
            start = stop


def _plain(values: Any) -> NDArray[Any]:
    if isinstance(values, np.memmap):
        return np.array(values)  # a slice of a map reads nothing yet, and would do so in the thread that computes
    array = np.asarray(values)
    if array.dtype.kind == "T":
        array = array.astype(object)
    if array.dtype.kind == "O":  # left as objects: text of one length would make all labels as long as the longest
        check_length(max((len(value) for value in array.flat if isinstance(value, str)), default=0))
    return array


def check_length(longest: int) -> None:
    """Refuse a label of so many characters: whoever makes an array of labels makes all as long as the longest."""
    if longest > _LONGEST_LABEL:
        raise InputError(
            f"Expected labels of at most {_LONGEST_LABEL} characters, got one of {longest}: shorten them, or number the classes."
        )


# --- files that are damaged, or no longer those that were opened ------------------------------------------------------


def watched(open_column: Callable[[], Column], path: Place) -> Column:
    """Open a column of a file; whenever an array of it is read, its files must still be the same."""
    with one_sentence(path):
        before = _stamp((path,))
        column = open_column()
        files = column.files or (path,)
        stamp = _stamp(files) if column.files else before
        stored = column.stored if column.stored is not None else sum(stored_bytes(file.stat()) for file in files)
        claimed = column.n_rows * prod(column.shape) * max(1, column.dtype.itemsize)
        if claimed > _LARGE and claimed > _LARGEST_RATIO * stored:
            raise InputError(
                f"Expected samples that were written to '{path}', got {column.n_rows} of which nearly all are missing, "
                f"{claimed / 2**30:.3g} GiB in {stored} bytes: write them, or make the array as long as what was written."
            )
    return replace(column, read=partial(_read, column.read, path, partial(_check_same, path, files, stamp)))


def _read(read: Any, path: Place, check_same: Callable[[], None], start: int, rows: int) -> Iterator[NDArray[Any]]:
    check_same()
    with one_sentence(path, check_same):
        for array in read(start, rows):
            check_same()
            yield array


def _check_same(path: Place, files: tuple[Place, ...], stamp: tuple[Any, ...]) -> None:
    try:
        same = _stamp(files) == stamp
    except OSError:
        same = False
    if not same:
        raise other_than_opened(path)


def other_than_opened(path: Place) -> InputError:
    """Say that a file changed."""
    return InputError(
        f"Expected '{path}' as it was when it was opened, got another: it changed since, so open it again."
    )


def stored_bytes(state: os.stat_result) -> int:
    """Find what a file takes on disk, which is less than its length where it has holes."""
    return min(state.st_size, 512 * max(1, getattr(state, "st_blocks", state.st_size)))


def check_is_file(path: Path) -> None:
    """Refuse a pipe or a device: reading it could wait for ever, or never end."""
    if path.exists() and not path.is_file():
        raise InputError(f"Expected a file, got '{path}', which is a folder, a pipe or a device: name a file.")


def look_through(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Go through all files and folders in a folder; links and devices, which would have us read something else, are refused."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            found = Path(place, name)
            state = found.lstat()
            if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
                raise InputError(
                    f"Expected only files and folders in '{folder}', got a link, a pipe or a device, '{found}': put what it "
                    "stands for in its place."
                )
            yield found, state


def parquet_files(path: Place) -> tuple[Place, ...]:
    """List the file, or the files of the folder; hidden ones and those that begin with ``_`` are bookkeeping."""
    if path.is_file() or not isinstance(path, Path):
        return (path,)
    found = (file for file, _ in look_through(path) if file.suffix in (".parquet", ".pq") and file.is_file())
    return tuple(sorted(file for file in found if not any(part[0] in "._" for part in file.relative_to(path).parts)))


def image_files(folder: Path) -> dict[str, os.stat_result]:
    """List the images in a folder by their paths in it, in the order of these; hidden ones are bookkeeping."""
    found = {file.relative_to(folder): state for file, state in look_through(folder) if file.suffix.lower() in _IMAGES}
    kept = {path.as_posix(): state for path, state in found.items() if not any(part[0] in "._" for part in path.parts)}
    return dict(sorted(kept.items()))


def _stamp(files: tuple[Place, ...]) -> tuple[Any, ...]:
    """Note what tells several files from later ones."""
    return tuple(stamp(file.stat()) for file in files)


def stamp(state: Any) -> tuple[Any, ...]:
    """Note what tells a file from a later one in its place."""
    return state.st_ino, state.st_size, state.st_mtime_ns


@contextmanager
def one_sentence(path: Place, check_same: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Say in one sentence what a library makes of a damaged file, whatever it raises."""
    try:
        yield
    except (ImportError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except MemoryError as error:  # of a file that is whole, or of one that claims to be larger than it is
        check_same()
        raise InputError(
            f"Expected enough memory to read '{path}', got none left: allow more, compress the samples with ModePCA, or, if it "
            "should be small, write it again."
        ) from error
    except Exception as error:
        check_same()  # where it changed, that is what to say, whatever came of it
        if isinstance(error, InputError):  # a sentence of ours
            raise
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        is_text = "utf-8" in said or "UTF8" in said
        advice = 'save it as text in UTF-8, which Excel calls "CSV UTF-8"' if is_text else "write or copy it again"
        raise InputError(
            f"Expected a whole file of numbers or strings, got '{path}', of which the reader says \"{said}\": {advice}."
        ) from error


# --- blocks -----------------------------------------------------------------------------------------------------------


def from_columns(
    X: Column, y: Column | None, weight: Column | None, *, block_bytes: int | None = None, name: str = "X"
) -> Source:
    """Put columns side by side, after the checks that need no reading."""
    _check_columns(X, y, weight, name)
    rows = _block_rows(X, block_bytes)
    for column, what in ((X, name), (y, "targets"), (weight, "weights")):
        if column is not None:
            _check_fits(column, rows, what)
    # Functions with names, so that a source of files can be sent to another process.
    blocks = partial(_side_by_side, (X, y, weight), X.n_rows, rows)
    targets = partial(_side_by_side, (y, weight), X.n_rows, rows, 0)
    return Source(X.shape, X.n_rows, X.dtype, True, blocks, targets, modes=X.modes)


def _check_columns(X: Column, y: Column | None, weight: Column | None, name: str) -> None:
    if not X.shape or 0 in X.shape or X.n_rows == 0:
        raise InputError(
            f"Expected {name} of shape (n_samples, I1, ..., IN) with at least one sample and one entry, got shape "
            f"{(X.n_rows, *X.shape)}: reshape it."
        )
    if X.dtype.kind not in "fiub":
        raise InputError(f"Expected numbers in {name}, got {X.dtype} values: encode them as numbers first.")
    for column, what in ((y, "target"), (weight, "weight")):
        if column is None:
            continue
        check_length(column.dtype.itemsize // {"U": 4, "S": 1}.get(column.dtype.kind, column.dtype.itemsize + 1))
        if column.n_rows != X.n_rows:
            raise InputError(
                f"Expected one {what} for each sample, got {X.n_rows} samples and {column.n_rows} {what}s: samples and {what}s "
                "have inconsistent numbers of samples."
            )


def _side_by_side(columns: Sequence[Column | None], n: int, rows: int, start: int) -> Iterator[Any]:
    with ExitStack() as stack:
        readers = [
            None if column is None else stack.enter_context(closing(regroup(column.read(start, rows), start, rows)))
            for column in columns
        ]
        while start < n:
            stop = min(n, start - start % rows + rows)
            block = tuple(None if reader is None else next(reader, np.empty(0)) for reader in readers)
            if any(part is not None and len(part) != stop - start for part in block):
                raise InputError(
                    f"Expected samples {start} to {stop - 1} as when the source was opened, got fewer: it changed since, so "
                    "open it again."
                )
            yield block
            start = stop


def _row_bytes(column: Column) -> int:
    return max(1, prod(column.shape) * column.dtype.itemsize)


def _block_rows(column: Column, block_bytes: int | None) -> int:
    if block_bytes is None:
        block_bytes = min(_LARGEST_BLOCK, available_memory() // 8)
    elif block_bytes < 1:
        raise InputError(f"Expected block_bytes to be a number of bytes of at least 1, got {block_bytes}.")
    rows = max(1, block_bytes // _row_bytes(column))
    # Whole chunks, so that none is read and decompressed twice.
    return max(column.chunk, rows - rows % column.chunk)


def _check_fits(column: Column, rows: int, name: str) -> None:
    """Refuse a block that memory cannot hold before anything is allocated: shapes and chunks are but claims of a file."""
    needed = min(max(rows, column.chunk), column.n_rows) * _row_bytes(column)
    free = available_memory()
    if needed > free:
        raise InputError(
            f"Expected {name} in blocks that fit in the {free / 2**30:.3g} GiB of free memory, got rows or chunks that need "
            f"{needed / 2**30:.3g} GiB at once: write the file again with smaller chunks, or compress the samples with ModePCA."
        )


def regroup(arrays: Iterable[NDArray[Any]], start: int, rows: int) -> Generator[NDArray[Any]]:
    """Cut arrays that follow each other from row ``start`` on anew, at the multiples of ``rows``.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.samples.source import regroup
    >>> [block.tolist() for block in regroup([np.arange(2, 5), np.arange(5, 11)], start=2, rows=4)]
    [[2, 3], [4, 5, 6, 7], [8, 9, 10]]
    """
    held: list[NDArray[Any]] = []
    missing = rows - start % rows
    for array in arrays:
        rest = array
        while len(rest) >= missing:
            held.append(rest[:missing])
            rest = rest[missing:]
            yield held[0] if len(held) == 1 else np.concatenate(held)
            held, missing = [], rows
        if len(rest):
            held.append(rest)
            missing -= len(rest)
    if held:
        yield held[0] if len(held) == 1 else np.concatenate(held)


def read_ahead(iterator: Iterable[T]) -> Iterator[T]:
    """Let a thread fetch the next item while the last one is worked on.

    What the iterator raises is raised here. Closing the generator waits for the item being read, ends the
    thread and closes the iterator if it is a generator too.

    Examples
    --------
    >>> from tracelearn.samples import read_ahead
    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    iterator = iter(iterator)
    try:
        # Asked for one at a time, so that never more than one item waits: items may be as large as memory allows.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tracelearn-read-ahead") as pool:
            try:
                future = pool.submit(next, iterator, _END)
            except RuntimeError as error:  # its stack is what memory may be short of
                raise MemoryError(f"no thread could be started to read: {error}") from error
            while (item := future.result()) is not _END:
                future = pool.submit(next, iterator, _END)
                yield item  # type: ignore[misc]
    finally:
        if isinstance(iterator, Generator):
            iterator.close()
