"""Which samples are meant: a file by its suffix, a folder by what is in it, a table, an iterable; and what is named in it.

A format is a module with two functions. ``names(path)`` lists the arrays of a file, None for one array without a name;
``column(path, name)`` says how one of them is read in order; options that only some formats have are its other parameters. A
format of tables has ``table(path, columns)`` instead of names, from which its ``column`` follows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from inspect import signature
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tracelearn.errors import InputError, refuse
from tracelearn.optional import require
from tracelearn.samples.places import Place, Remote
from tracelearn.samples.source import (
    Column,
    Source,
    array_column,
    from_columns,
    image_files,
    is_lazy,
    one_sentence,
    parquet_files,
    watched,
)

__all__ = ["as_source", "open_source"]

_SHEETS = (".xlsx", ".xls", ".ods")
_FORMATS = {
    ".npy": "npy",
    ".npz": "npy",
    ".zarr": "zarr",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".he5": "hdf5",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".mat": "mat",
    ".fif": "mne",
    ".nii": "nifti",
    ".nii.gz": "nifti",
}


def open_source(
    path: Any,
    samples: str | Sequence[str] = "X",
    target: str | os.PathLike[str] | None = "y",
    weight: str | os.PathLike[str] | None = None,
    *,
    tensor_shape: Sequence[int] | None = None,
    sample_axis: int | None = None,
    ignore: Sequence[str] = (),
    mask: str | os.PathLike[str] | None = None,
    flat: bool = False,
    block_bytes: int | None = None,
) -> Source:
    """Open a file of samples to learn from it block by block.

    Parameters
    ----------
    path : str, path or table
        A file or a folder of one of :doc:`these formats </files>`, or an address of fsspec, such as ``s3://bucket/data.parquet``.
        Or a table in memory or from a database: anything that provides an Arrow stream, as DuckDB, polars and pyarrow do.
    samples : str or sequence of str
        Name of the samples: an array or dataset of shape (n_samples, I1, ..., IN), or a column of tensors or lists of
        numbers. Where a table has no such column, every other column is one entry of a sample: names such as ``ch1_t20``
        that form a full grid give shape and order. A pattern such as ``"ch*"``, or a list of names, chooses columns.
        Not used where the file is one array without a name.
    target : str, path or None
        Name of the targets, or another file: one that is one array, or ``"labels.csv:diagnosis"`` for a name in it.
        None if there are none; a file that is one array has none unless a path is given.
    weight : str, path or None
        Name of the sample weights, or another file, as for targets.
    tensor_shape : sequence of ints, optional
        Shape of a sample where the file has it flat; the last index changes fastest.
    sample_axis : int, optional
        Axis of the array that counts samples, such as -1 for channels × time × trials; 0 by default. Arrays of NumPy, Zarr,
        HDF5 and MATLAB.
    ignore : sequence of str
        Columns of a table that are no entries of samples, such as an identifier.
    mask : str or path, optional
        NIfTI image of the voxels to use. Samples are the box around them, and zero outside of the mask.
    flat : bool
        Whether samples are the voxels of the mask in a row, instead of the box.
    block_bytes : int, optional
        Size of a block of samples; the smaller of 16 MiB and an eighth of the free memory by default. Blocks are whole
        samples and whole chunks, and so can be larger.

    Returns
    -------
    Source
        Pass it to ``fit`` as X, without y. Only names and shapes have been read so far, and the number of rows of text files.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from tracelearn import open_source
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "epochs.npz")
    ...     np.savez(path, X=np.ones((5, 3, 2)), label=np.arange(5))
    ...     source = open_source(path, target="label", block_bytes=100)
    ...     blocks = [(X.shape, y.tolist()) for X, y, weight in source.batches()]
    >>> source.n_samples, source.sample_shape
    (5, (3, 2))
    >>> blocks
    [((2, 3, 2), [0, 1]), ((2, 3, 2), [2, 3]), ((1, 3, 2), [4])]
    """
    options = {"sample_axis": sample_axis, "mask": mask, "flat": flat or None}
    given = {name: value for name, value in options.items() if value is not None}
    if not isinstance(path, str | os.PathLike):
        return _stream_of_rows(path, samples, target, weight, tensor_shape=tensor_shape, ignore=ignore, **given)
    file = _File.at(path)
    if file.names is None and target == "y":
        target = None
    return file.source(
        samples, target, weight, tensor_shape=tensor_shape, ignore=ignore, block_bytes=block_bytes, **given
    )


def as_source(X: Any, y: Any = None, sample_weight: Any = None) -> Source | None:
    """Recognise samples that are to be read block by block; None means that X is to be read whole.

    Parameters
    ----------
    X : object
        A source is a path, a ``Source``, a memory map, an array of Zarr or h5py, an iterable of (X, y) or (X, y, weight), a
        dataset of PyTorch, an Arrow stream, and a table with the name of its targets. In-memory arrays of any
        library, sparse ones, data frames, lists of numbers and Dask arrays are not.
    y : array-like, lazy array, str or path, optional
        For a path or a table, the name of the targets in it; "y" if there is such a name and none is given.
    sample_weight : array-like, lazy array, number, str or path, optional
    """
    if isinstance(X, Source):
        _refuse_targets("a source", y, sample_weight)
        return X
    if isinstance(X, str | os.PathLike):
        file = _File.at(X)
        if y is None and file.names is not None and "y" in file.names:
            y = "y"
        return file.source("X", y, sample_weight)
    if is_lazy(X):
        samples = array_column(X, "X")
        return from_columns(
            samples, None if y is None else array_column(y, "y"), _weights(sample_weight, samples.n_rows)
        )
    if _is_stream_of_rows(X, y):
        return _stream_of_rows(X, "X", y, sample_weight)
    if _is_dataset(X) or _is_iterable_of_blocks(X):
        from tracelearn.samples import iterables  # noqa: PLC0415 - it makes sources, and knows what they are

        _refuse_targets("an iterable of blocks", y, sample_weight)
        return iterables.dataset(X) if _is_dataset(X) else iterables.stream(X)
    return None


def _is_iterable_of_blocks(X: Any) -> bool:
    if isinstance(X, Sequence):
        first = X[0] if len(X) else None
        return isinstance(first, tuple) and len(first) in (2, 3) and getattr(first[0], "ndim", 0) >= 2
    # Whatever can become an array or a table is one.
    tables = ("shape", "__array__", "__array_interface__", "__dlpack__", "__dataframe__", "__arrow_c_stream__")
    if isinstance(X, Mapping | Set | bytes) or any(hasattr(X, name) for name in tables):
        return False
    return hasattr(X, "__iter__")


def _is_dataset(X: Any) -> bool:
    """Tell datasets of PyTorch, which give one sample at a time, without importing it."""
    return any(f"{kind.__module__}.{kind.__name__}" == "torch.utils.data.dataset.Dataset" for kind in type(X).__mro__)


def _is_stream_of_rows(X: Any, y: Any) -> bool:
    """Tell tables from arrays: what NumPy can read is one, unless the targets are named."""
    if hasattr(X, "__arrow_c_stream__"):
        return isinstance(y, str) or not hasattr(X, "__array__")
    return isinstance(y, str) and hasattr(X, "__next__")  # record batches one by one, as Spark hands them out


def _stream_of_rows(X: Any, samples: Any, y: Any, weight: Any, **options: Any) -> Source:
    source: Source = require("tracelearn.samples.arrow", "arrow").stream(X, samples, y, weight, **options)
    return source


def _refuse_targets(what: str, y: Any, sample_weight: Any) -> None:
    for value, name in ((y, "y"), (sample_weight, "sample_weight")):
        refuse(
            value is not None,
            f"Expected {name}=None with {what}, which brings its own targets and weights, got "
            f"{type(value).__name__}: put them into the blocks, or name them in open_source.",
        )


def _weights(values: Any, n: int) -> Column | None:
    if values is None:
        return None
    # One number for all samples, as in scikit-learn.
    return array_column(np.broadcast_to(values, n) if np.isscalar(values) else values, "sample_weight")


# --- files ------------------------------------------------------------------------------------------------------------


def place_of(path: str | os.PathLike[str] | Remote) -> Place:
    """Tell addresses from paths.

    Examples
    --------
    >>> from tracelearn.samples.opening import place_of
    >>> place_of("memory://epochs.csv")
    Remote(address='memory://epochs.csv')
    >>> str(place_of("epochs.csv")), str(place_of("file:///data/epochs.csv"))
    ('epochs.csv', '/data/epochs.csv')
    """
    if isinstance(path, Remote):
        return path
    text = os.fspath(path)
    scheme, mark, rest = text.partition("://")
    if scheme in ("file", "local"):  # of this machine: links, changes and what is missing are looked for as in any path
        return Path(rest)
    return Remote(text) if mark else Path(text)


@dataclass(frozen=True)
class _File:
    """A file or folder, the module of its format, and the names in it."""

    path: Place
    format: Any
    names: list[str] | None
    schema: Any = None

    @classmethod
    def at(cls, place: str | os.PathLike[str] | Place) -> _File:
        """Recognise the format by the suffix of a path, or by what is in a folder."""
        path = place_of(place)
        with one_sentence(path):
            if not path.exists():
                raise FileNotFoundError(
                    f"Expected the path of a file or folder, got '{path}', which does not exist: check it."
                )
            name = _format_of(path)
        if name is None:
            advice = {
                **dict.fromkeys(_SHEETS, "save the sheet as CSV"),
                ".txt": "if it is a table, call it .csv or .tsv",
            }
            raise InputError(
                f"Expected a path that ends in {', '.join(_FORMATS)}, or a folder of Parquet files or images, got '{path}': "
                f"{advice.get(path.suffix.lower(), 'convert it to one of these')}."
            )
        if not isinstance(path, Path) and name not in _REMOTE:
            raise InputError(
                f"Expected an address of Zarr, Parquet, CSV or Arrow, got '{path}': copy it to this machine first."
            )
        module = require(f"tracelearn.samples.{name}", name)
        with one_sentence(path):
            if not hasattr(module, "table"):
                return cls(path, module, module.names(path))
            schema = module.table(path).schema
            return cls(path, module, list(schema.names), schema)

    @property
    def _options(self) -> list[str]:
        """What can be said of a file of this format: what its ``column`` takes beside a path and a name."""
        return list(signature(self.format.column).parameters)[2:]

    def source(
        self,
        samples: Any,
        y: Any,
        weight: Any,
        *,
        tensor_shape: Sequence[int] | None = None,
        ignore: Sequence[str] = (),
        block_bytes: int | None = None,
        **options: Any,
    ) -> Source:
        """Read the samples of this file with targets and weights."""
        targets = self._column_for(y, "target") if self.schema is not None else None  # else it is taken for an entry
        X = self._samples(samples, (y, weight), ignore, tensor_shape, options, targets)
        targets = self._column_for(y, "target") if self.schema is None else targets
        if targets is not None and targets.n_rows != X.n_rows:
            self._look_for_axis(X, targets.n_rows, options)
        if weight is None or isinstance(weight, str | os.PathLike):
            weights = self._column_for(weight, "weight")
        else:
            weights = _weights(weight, X.n_rows)
        name = f"'{self.path if self.names is None else samples}'"
        return from_columns(X, targets, weights, block_bytes=block_bytes, name=name)

    def _samples(
        self,
        samples: Any,
        others: tuple[Any, Any],
        ignore: Sequence[str],
        shape: Sequence[int] | None,
        options: Any,
        targets: Column | None,
    ) -> Column:
        for option in options:
            refuse(
                option not in self._options,
                f"Expected {option} only with files that have one, got it with '{self.path}': leave it out.",
            )
        if self.schema is None:
            column = (
                self._named(samples, "samples", **options) if self.names is not None else self._open(None, **options)
            )
            return column if shape is None else shaped(column, shape, f"'{self.path}'")
        from tracelearn.samples import tables  # noqa: PLC0415 - only formats of pyarrow need it

        names, found, modes = tables.entries(
            self.schema, samples, others, shape, f"'{self.path}'", ignore, self._text_in
        )
        column = self._open(names if len(found) else names[0])
        if len(found) == 1 and samples == "X":  # names that form a grid, or that were chosen, are those of measurements
            tables.warn_of_columns(names, *_first_rows(column, targets))
        wanted = shape if shape is not None else found
        return replace(shaped(column, wanted, f"'{self.path}'"), modes=modes) if len(wanted) else column

    def _text_in(self, name: str) -> str:
        """Show the first value of a column that is no number, and its row; nothing where it cannot be read."""
        row = 0
        with suppress(ValueError):
            for value in chain.from_iterable(self._open(name).read(0, _LOOKED_AT)):
                if not re.fullmatch(r"\s*[-+\d.,eE]*\s*", str(value)):
                    return f" ({str(value)[:40]!r} in row {row}, where the first row is 0)"
                row += 1
        return ""

    def _look_for_axis(self, X: Column, n: int, options: Any) -> None:
        """Where another axis is as long as the targets, it is the one that was meant."""
        if n not in X.shape or "sample_axis" not in self._options:
            return
        sizes = list(X.shape)
        sizes.insert(options.get("sample_axis", 0) % (len(sizes) + 1), X.n_rows)
        raise InputError(
            f"Expected one target for each sample, got {X.n_rows} samples and {n} targets: axis {sizes.index(n)} of the samples "
            f"has {n} entries, so choose it with open_source(path, sample_axis=...)."
        )

    def _open(self, name: Any, **options: Any) -> Column:
        return watched(partial(self.format.column, self.path, name, **options), self.path)

    def _named(self, name: Any, role: str, **options: Any) -> Column:
        names = self.names or []
        if name not in names:
            shown = [*map(repr, names)] if len(names) <= 20 else [*map(repr, names[:10]), "...", *map(repr, names[-5:])]
            near = [other for other in names if other.lower() == str(name).lower()] or get_close_matches(
                str(name), names, 1
            )
            meant = f" (is {near[0]!r} meant?)" if near else ""
            raise InputError(
                f"Expected {role} to be one of the names in '{self.path}', which are {', '.join(shown) or 'none'}, got "
                f"'{name}'{meant}: choose one with open_source(path, {role}=...)."
            )
        return self._open(name, **options)

    def _column_for(self, value: Any, role: str) -> Column | None:
        """Find targets or weights: a name in the file, another file, a name in that, or an array."""
        if value is None:
            return None
        if not isinstance(value, str | os.PathLike):
            return array_column(value, role)
        name = os.fspath(value)
        if self.names is not None and name in self.names:
            return self._named(name, role)
        file, _, inner = (name, "", "") if place_of(name).exists() else name.rpartition(":")
        if file and place_of(file).exists():
            other = _File.at(file)
            if inner:
                return other._named(inner, role)
            if other.names is None or len(other.names) == 1:
                return other._open(None if other.names is None else other.names[0])
            raise InputError(
                f"Expected {role} to be a file that is one array, got '{name}', which holds several: name one of them, as in "
                f"'{name}:...'."
            )
        if self.names is not None:
            return self._named(name, role)
        raise InputError(
            f"Expected {role} to be the path of a file that is one array, got '{name}': '{self.path}' holds no names to choose "
            "from."
        )


def _first_rows(X: Column, y: Column | None) -> tuple[Any, Any]:
    """Read some rows of samples and targets; none where they cannot be read, which reading all of them will say."""
    try:
        rows = next(iter(X.read(0, _LOOKED_AT)))[:_LOOKED_AT]
        targets = None if y is None else next(iter(y.read(0, len(rows))))[: len(rows)]
    except (ValueError, OSError, StopIteration):
        return np.zeros((0, *X.shape)), None
    return rows if targets is None else rows[: len(targets)], targets


_LOOKED_AT = 100  # rows
_REMOTE = ("zarr", "parquet", "csv", "arrow")  # formats whose library reads from a store


def _format_of(path: Place) -> str | None:
    if path.is_file():
        return next((name for suffix, name in _FORMATS.items() if path.name.lower().endswith(suffix)), None)
    if path.suffix == ".zarr":
        return "zarr"
    if not isinstance(path, Path):
        return None
    if any((path / mark).exists() for mark in ("zarr.json", ".zgroup", ".zarray")):
        return "zarr"
    if path.suffix.lower() in (".parquet", ".pq") or parquet_files(path):
        return "parquet"
    return "images" if image_files(path) else None


def shaped(column: Column, shape: Sequence[int], name: str) -> Column:
    """Give the values of a column another shape."""
    sizes = tuple(int(size) for size in shape)
    refuse(
        not sizes or min(sizes) < 1 or prod(sizes) != prod(column.shape),
        f"Expected tensor_shape to be sizes whose product is {prod(column.shape)}, the entries of a sample of {name}, got "
        f"{sizes}: correct it.",
    )
    return replace(column, shape=sizes, read=partial(_read_shaped, column.read, sizes), modes=None)


def _read_shaped(read: Any, shape: tuple[int, ...], start: int, rows: int) -> Any:
    return (array.reshape(len(array), *shape) for array in read(start, rows))
