"""Samples from whatever is given: a file by its path, a lazy array, a table, or an iterable of blocks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.errors import InputError, refuse
from tracelearn.io.columns import Column, column_of_values, reshaped, side_by_side
from tracelearn.io.formats import DataFile, open_file
from tracelearn.io.places import Place, place_of
from tracelearn.io.series import series_source
from tracelearn.optional import require
from tracelearn.samples import iterables
from tracelearn.samples.source import Source

__all__ = ["as_source", "open_source"]

_ROWS_EXAMINED = 100  # for columns that are no measurements
_ROWS_OF_RUNS = 10_000  # for recordings


def open_source(
    path: Any,
    samples: str | Sequence[str] = "X",
    target: str | os.PathLike[str] | None = "y",
    weight: str | os.PathLike[str] | None = None,
    *,
    tensor_shape: Sequence[int] | None = None,
    sample_axis: int | None = None,
    ignore: Sequence[str] = (),
    sample: str | None = None,
    time: str | None = None,
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
    sample, time : str, optional
        For a table with one reading in each row: the column that names the sample of a reading, and the one that counts time.
        Samples then have the shape (channels, times); all must have as many readings. Targets and weights must be constant
        within each sample. Such a table is read whole.
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
        Its ``column(name)`` reads any column of the file, such as groups for a cross-validation.

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
    refuse(
        (sample is None) != (time is None),
        "Expected sample and time together, the columns that name the sample of a reading and count time, got one of them: "
        "pass both.",
    )
    options = {"sample_axis": sample_axis, "mask": mask, "flat": flat or None}
    options = {name: value for name, value in options.items() if value is not None}
    if not isinstance(path, str | os.PathLike):
        refuse(options, f"Expected {next(iter(options), '')} only with files that have one, got a table: leave it out.")
        return _source_of_rows(
            path, samples, target, weight, tensor_shape=tensor_shape, ignore=ignore, sample=sample, time=time
        )
    file = open_file(path)
    for option in options:
        refuse(
            option not in file.format.options,
            f"Expected {option} only with files that have one, got it with '{file.place}': leave it out.",
        )
    if file.names is None and target == "y":
        target = None
    if sample is not None and time is not None:
        return _source_of_series(file, samples, target, weight, sample, time, ignore=ignore, block_bytes=block_bytes)
    choice = _Choice(samples, target, weight, tensor_shape, tuple(ignore), options)
    return _source_of_file(file, choice, block_bytes)


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
        file = open_file(X)
        if y is None and file.names is not None and "y" in file.names:
            y = "y"
        return _source_of_file(file, _Choice("X", y, sample_weight))
    if _is_lazy(X):
        samples = _column_of_array(X, "X")
        targets = None if y is None else _column_of_array(y, "y")
        return side_by_side(samples, targets, _column_of_weights(sample_weight, samples.n_rows))
    if _is_stream_of_rows(X, y):
        return _source_of_rows(X, "X", y, sample_weight)
    is_dataset = _is_dataset(X)
    if is_dataset or _is_iterable_of_blocks(X):
        _refuse_targets("an iterable of blocks", y, sample_weight)
        return iterables.dataset(X) if is_dataset else iterables.stream(X)
    return None


# --- what is not a file -----------------------------------------------------------------------------------------------


def _is_lazy(values: Any) -> bool:
    """Tell whether values are an array that is read when it is sliced: a memory map, of Zarr, or of h5py."""
    return isinstance(values, np.memmap) or type(values).__module__.partition(".")[0] in ("zarr", "h5py")


def _is_dataset(X: Any) -> bool:
    """Tell datasets of PyTorch, which give one sample at a time, without importing it."""
    return any(f"{kind.__module__}.{kind.__name__}" == "torch.utils.data.dataset.Dataset" for kind in type(X).__mro__)


def _is_stream_of_rows(X: Any, y: Any) -> bool:
    """Tell tables from arrays: what NumPy can read is an array, unless the targets are named."""
    if hasattr(X, "__arrow_c_stream__"):
        return isinstance(y, str) or not hasattr(X, "__array__")
    return isinstance(y, str) and hasattr(X, "__next__")  # record batches one by one, as Spark hands them out


def _is_iterable_of_blocks(X: Any) -> bool:
    if isinstance(X, Sequence):
        first = X[0] if len(X) else None
        return isinstance(first, tuple) and len(first) in (2, 3) and getattr(first[0], "ndim", 0) >= 2
    # Whatever can become an array or a table is one.
    protocols = ("shape", "__array__", "__array_interface__", "__dlpack__", "__dataframe__", "__arrow_c_stream__")
    if isinstance(X, Mapping | Set | bytes) or any(hasattr(X, name) for name in protocols):
        return False
    return hasattr(X, "__iter__")


def _refuse_targets(kind: str, y: Any, sample_weight: Any) -> None:
    for value, name in ((y, "y"), (sample_weight, "sample_weight")):
        refuse(
            value is not None,
            f"Expected {name}=None with {kind}, which brings its own targets and weights, got "
            f"{type(value).__name__}: put them into the blocks, or name them in open_source.",
        )


def _source_of_rows(X: Any, samples: Any, y: Any, weight: Any, **options: Any) -> Source:
    source: Source = require("tracelearn.io.rows", "arrow").source_of_rows(X, samples, y, weight, **options)
    return source


def _column_of_array(values: Any, name: str) -> Column:
    """Make a column of a lazy array, or of what NumPy makes one of."""
    if not _is_lazy(values):
        return column_of_values(np.asarray(values), name)
    library = type(values).__module__.partition(".")[0]
    refuse(
        not hasattr(values, "shape"),
        f"Expected {name} to be an array, got a {library} {type(values).__name__}: pass one of its arrays, or its path.",
    )
    if library == "h5py":
        values = require("tracelearn.io.hdf5", "hdf5").with_text(values)
    return column_of_values(values, name)


def _column_of_weights(values: Any, n: int) -> Column | None:
    if values is None:
        return None
    # One number for all samples, as in scikit-learn.
    return _column_of_array(np.broadcast_to(values, n) if np.isscalar(values) else values, "sample_weight")


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    """What of a file are samples, targets and weights, by name or as arrays; parameters as in `open_source`."""

    samples: str | Sequence[str]
    target: Any
    weight: Any
    tensor_shape: Sequence[int] | None = None
    ignore: tuple[str, ...] = ()
    options: Mapping[str, Any] | None = None


def _source_of_file(file: DataFile, choice: _Choice, block_bytes: int | None = None) -> Source:
    if file.schema is not None:
        targets = _column_for(file, choice.target, "target")  # first: a name that is misspelt is not taken for an entry
        X = _samples_of_table(file, choice, targets)
    else:
        X = _samples_of_arrays(file, choice)
        targets = _column_for(file, choice.target, "target")
        _propose_axis(file, X, targets, choice)
    if choice.weight is None or isinstance(choice.weight, str | os.PathLike):
        weights = _column_for(file, choice.weight, "weight")
    else:
        weights = _column_of_weights(choice.weight, X.n_rows)
    name = f"'{file.place if file.names is None else choice.samples}'"
    source = side_by_side(X, targets, weights, block_bytes=block_bytes, name=name)
    return replace(source, column=partial(_read_column, file.place, X.n_rows))


def _source_of_series(
    file: DataFile,
    samples: str | Sequence[str],
    target: Any,
    weight: Any,
    sample: str,
    time: str,
    *,
    ignore: Sequence[str],
    block_bytes: int | None,
) -> Source:
    refuse(
        file.schema is None,
        f"Expected sample and time with a table of one reading in each row, got '{file.place}', which is none: leave them out.",
    )
    tables = require("tracelearn.io.tables", file.format.reader)
    for name, role in ((sample, "sample"), (time, "time"), (target, "target"), (weight, "weight")):
        if name is not None:
            _check_name(file, name, role)
    title = f"'{file.place}'"
    channels = tables.choose_columns(file.schema, samples, (sample, time, target, weight), ignore, title)
    tables.refuse_text(file.schema, channels, title, partial(_example_of_text, file))
    return series_source(file.column, channels, sample, time, target, weight, block_bytes)


def _samples_of_arrays(file: DataFile, choice: _Choice) -> Column:
    if file.names is not None:
        _check_name(file, choice.samples, "samples")
    column = file.column(None if file.names is None else choice.samples, **(choice.options or {}))
    return column if choice.tensor_shape is None else reshaped(column, choice.tensor_shape, f"'{file.place}'")


def _samples_of_table(file: DataFile, choice: _Choice, targets: Column | None) -> Column:
    tables = require("tracelearn.io.tables", file.format.reader)
    title = f"'{file.place}'"
    roles = ["y" if choice.target is None else choice.target, choice.weight]
    roles = [name for name in roles if isinstance(name, str)]
    entries = tables.sample_entries(
        file.schema, choice.samples, roles, choice.tensor_shape, title, choice.ignore, partial(_example_of_text, file)
    )
    column = file.column(entries.names)
    if entries.shape is None:
        return column if choice.tensor_shape is None else reshaped(column, choice.tensor_shape, title)
    if len(entries.shape) == 1:  # names that form a grid are those of measurements
        if choice.samples == "X":
            tables.warn_of_columns(entries.names, *_first_rows(column, targets))
        if targets is not None and entries.modes is not None and entries.modes[0].has_names:
            _warn_of_recordings(file, targets, {*roles, *choice.ignore})
    return replace(reshaped(column, entries.shape, title), modes=entries.modes)


def _warn_of_recordings(file: DataFile, targets: Column, other_roles: set[str]) -> None:
    """Warn where rows of a table look like readings of recordings."""
    tables = require("tracelearn.io.tables", file.format.reader)
    names = [name for name in tables.columns_of_identifiers(file.schema) if name not in other_roles]
    if not names:
        return
    with suppress(ValueError, OSError):  # what cannot be read is reported when it is
        columns = tables.first_values(file.format.reader, file.place, names, _ROWS_OF_RUNS)
        y = targets.head(_ROWS_OF_RUNS)
        n = min(len(y), len(columns[0]))
        tables.warn_of_long_table(names, [values[:n] for values in columns], y[:n])


def _first_rows(X: Column, y: Column | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Read some rows of samples and targets; none where they cannot be read, which reading all of them will say."""
    try:
        rows = X.head(_ROWS_EXAMINED)
        targets = None if y is None else y.head(_ROWS_EXAMINED)
    except (ValueError, OSError):
        return np.zeros((0, *X.shape)), None
    return rows if targets is None else rows[: len(targets)], targets


def _example_of_text(file: DataFile, name: str) -> str:
    """Quote the first value of a column that is no number, and its row; nothing where it cannot be read."""
    with suppress(ValueError):
        for row, value in enumerate(chain.from_iterable(file.column(name).read(0, _ROWS_EXAMINED))):
            if not re.fullmatch(r"\s*[-+\d.,eE]*\s*", str(value)):
                return f" ({str(value)[:40]!r} in row {row}, where the first row is 0)"
    return ""


def _propose_axis(file: DataFile, X: Column, targets: Column | None, choice: _Choice) -> None:
    """Where another axis of the samples is as long as the targets, say that it is the one that was meant."""
    if targets is None or targets.n_rows == X.n_rows:
        return
    if targets.n_rows not in X.shape or "sample_axis" not in file.format.options:
        return
    axis = (choice.options or {}).get("sample_axis", 0) % (len(X.shape) + 1)
    sizes = [*X.shape[:axis], X.n_rows, *X.shape[axis:]]
    raise InputError(
        f"Expected one target for each sample, got {X.n_rows} samples and {targets.n_rows} targets: axis "
        f"{sizes.index(targets.n_rows)} of the samples has {targets.n_rows} entries, so choose it with "
        "open_source(path, sample_axis=...)."
    )


# --- names ------------------------------------------------------------------------------------------------------------


def _check_name(file: DataFile, name: Any, role: str) -> None:
    names = file.names or ()
    if name in names:
        return
    quoted = [repr(candidate) for candidate in names]
    listed = quoted if len(names) <= 20 else [*quoted[:10], "...", *quoted[-5:]]
    same_letters = [candidate for candidate in names if candidate.lower() == str(name).lower()]
    near = same_letters or get_close_matches(str(name), names, 1)
    suggestion = f" (is {near[0]!r} meant?)" if near else ""
    advice = "choose one of them" if role == "column" else f"choose one with open_source(path, {role}=...)"
    raise InputError(
        f"Expected {role} to be one of the names in '{file.place}', which are {', '.join(listed) or 'none'}, got "
        f"'{name}'{suggestion}: {advice}."
    )


def _column_for(file: DataFile, value: Any, role: str) -> Column | None:
    """Find targets, weights or groups: a name in the file, another file, a name in that, or an array."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        return _column_of_array(value, role)
    name = os.fspath(value)
    if file.names is not None and name in file.names:
        return file.column(name)
    path, _, name_inside = (name, "", "") if place_of(name).exists() else name.rpartition(":")
    if path and place_of(path).exists():
        return _column_of_other_file(open_file(path), name_inside, name, role)
    if file.names is not None:
        _check_name(file, name, role)
    raise InputError(
        f"Expected {role} to be the path of a file that is one array, got '{name}': '{file.place}' holds no names to choose "
        "from."
    )


def _column_of_other_file(file: DataFile, name: str, value: str, role: str) -> Column:
    if name:
        _check_name(file, name, role)
        return file.column(name)
    refuse(
        file.names is not None and len(file.names) != 1,
        f"Expected {role} to be a file that is one array, got '{value}', which holds several: name one of them, as in "
        f"'{value}:...'.",
    )
    return file.column(None if file.names is None else file.names[0])


def _read_column(path: Place, n_samples: int, name: str) -> NDArray[Any]:
    """Read one value for each sample of a file into memory."""
    column = _column_for(open_file(path), name, "column")
    assert column is not None
    refuse(
        column.n_rows != n_samples,
        f"Expected one value of '{name}' for each sample, got {n_samples} samples and {column.n_rows} values: choose another.",
    )
    return column.values(f"'{name}'")
