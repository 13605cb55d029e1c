"""Sources of data files: which of the names in a file are samples, targets and weights."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.errors import InputError, refuse
from tracelearn.io.columns import Column, reshaped, side_by_side
from tracelearn.io.formats import DataFile, open_file
from tracelearn.io.lazy import column_of_values, column_of_weights
from tracelearn.io.places import place_of
from tracelearn.io.series import series_source
from tracelearn.optional import require
from tracelearn.samples.modes import Mode
from tracelearn.samples.source import Source

__all__ = ["Choice", "source_of_file"]

_ROWS_EXAMINED = 100  # for columns that are no measurements
_ROWS_OF_RUNS = 10_000  # for recordings
_COLUMNS_OF_RUNS = 50  # for recordings; a column that names them is one of the first


@dataclass(frozen=True)
class Choice:
    """Which names of a file, or arrays, are samples, targets and weights; parameters as in `open_source`."""

    samples: str | Sequence[str]
    target: Any
    weight: Any
    tensor_shape: Sequence[int] | None = None
    ignore: tuple[str, ...] = ()
    sample: str | None = None
    time: str | None = None
    modes: tuple[Mode, ...] | None = None  # of a model that is to predict the samples
    options: Mapping[str, Any] = field(default_factory=dict)


def source_of_file(file: DataFile, choice: Choice, block_bytes: int | None = None) -> Source:
    """Make a source of what was chosen in a file."""
    if choice.sample is not None and choice.time is not None:
        return _source_of_series(file, choice, choice.sample, choice.time, block_bytes)
    if file.schema is not None:
        targets = _column_for(file, choice.target, "target")  # first: a misspelt name is refused
        X = _samples_of_table(file, choice, targets)
    else:
        X = _samples_of_arrays(file, choice)
        targets = _column_for(file, choice.target, "target")
        _propose_axis(file, X, targets, choice)
    if choice.weight is None or isinstance(choice.weight, str | os.PathLike):
        weights = _column_for(file, choice.weight, "weight")
    else:
        weights = column_of_weights(choice.weight, X.n_rows)
    name = f"'{file.place if file.names is None else choice.samples}'"
    source = side_by_side(X, targets, weights, block_bytes=block_bytes, name=name)
    return replace(source, column=partial(_read_column, file, X.n_rows))


def _source_of_series(file: DataFile, choice: Choice, sample: str, time: str, block_bytes: int | None) -> Source:
    """Make a source of series from a table with one reading in each row."""
    refuse(
        file.schema is None,
        f"Expected sample and time with a table of one reading in each row, got '{file.place}', which is none: leave them out.",
    )
    tables = require("tracelearn.io.tables", file.format.reader)
    roles = {"sample": sample, "time": time, "target": choice.target, "weight": choice.weight}
    for role, name in roles.items():
        if name is not None:
            _check_name(file, name, role)
    title = f"'{file.place}'"
    modes = None if choice.modes is None else choice.modes[:1]  # a series is known by its channels, not by its times
    channels = tables.choose_columns(file.schema, choice.samples, roles.values(), choice.ignore, title, modes)
    tables.refuse_text(file.schema, channels, title, partial(_example_of_text, file))
    return series_source(file.column, channels, sample, time, choice.target, choice.weight, block_bytes)


def _samples_of_arrays(file: DataFile, choice: Choice) -> Column:
    """Open the samples of a file that is no table."""
    if file.names is not None:
        _check_name(file, choice.samples, "samples")
    column = file.column(None if file.names is None else choice.samples, **choice.options)
    return column if choice.tensor_shape is None else reshaped(column, choice.tensor_shape, f"'{file.place}'")


def _samples_of_table(file: DataFile, choice: Choice, targets: Column | None) -> Column:
    """Open the columns of a table that are samples, and warn of those that look like something else."""
    tables = require("tracelearn.io.tables", file.format.reader)
    title = f"'{file.place}'"
    roles = ["y" if choice.target is None else choice.target, choice.weight]
    roles = [name for name in roles if isinstance(name, str)]
    entries = tables.sample_entries(
        file.schema,
        choice.samples,
        roles,
        choice.tensor_shape,
        title,
        choice.ignore,
        choice.modes,
        partial(_example_of_text, file),
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
    names = names[:_COLUMNS_OF_RUNS]
    if not names or file.open_table is None:
        return
    with suppress(ValueError, OSError):  # what cannot be read is reported when it is
        columns = tables.first_values(file.open_table(), names, _ROWS_OF_RUNS)
        y = targets.head(_ROWS_OF_RUNS)
        n = min(len(y), len(columns[0]))
        tables.warn_of_long_table(names, [values[:n] for values in columns], y[:n])


def _first_rows(X: Column, y: Column | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Read some rows of samples and targets; none where they cannot be read, since reading all of them will raise the error."""
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


def _propose_axis(file: DataFile, X: Column, targets: Column | None, choice: Choice) -> None:
    """Raise an error that names the right sample_axis, where the targets are as many as the entries of another axis."""
    has_axis = "sample_axis" in file.format.options
    if not has_axis or targets is None or targets.n_rows == X.n_rows or targets.n_rows not in X.shape:
        return
    axis = choice.options.get("sample_axis", 0) % (len(X.shape) + 1)
    sizes = [*X.shape[:axis], X.n_rows, *X.shape[axis:]]
    raise InputError(
        f"Expected one target for each sample, got {X.n_rows} samples and {targets.n_rows} targets: axis "
        f"{sizes.index(targets.n_rows)} of the samples has {targets.n_rows} entries, so choose it with "
        "open_source(path, sample_axis=...)."
    )


# --- names ------------------------------------------------------------------------------------------------------------


def _check_name(file: DataFile, name: Any, role: str) -> None:
    """Refuse a name that is not in a file, with the names that are and the nearest of them."""
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
    """Find targets or weights: by name as in `_named_column`, or an array."""
    if value is None:
        return None
    if isinstance(value, str | os.PathLike):
        return _named_column(file, os.fspath(value), role)
    return column_of_values(value, role)


def _named_column(file: DataFile, name: str, role: str) -> Column:
    """Open the array or column of a name: in the file, as another file, or in another file, as in ``labels.csv:age``."""
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
    """Open targets or weights in a file of their own; ``value`` is what was passed."""
    if name:
        _check_name(file, name, role)
        return file.column(name)
    refuse(
        file.names is not None and len(file.names) != 1,
        f"Expected {role} to be a file that is one array, got '{value}', which holds several: name one of them, as in "
        f"'{value}:...'.",
    )
    return file.column(None if file.names is None else file.names[0])


def _read_column(file: DataFile, n_samples: int, name: str) -> NDArray[Any]:
    """Read one value for each sample of a file into memory."""
    column = _named_column(file, name, "column")
    refuse(
        column.n_rows != n_samples,
        f"Expected one value of '{name}' for each sample, got {n_samples} samples and {column.n_rows} values: choose another.",
    )
    return column.values(f"'{name}'")
