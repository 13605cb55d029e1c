"""Tables, whatever holds them: which columns are the entries of samples, and how columns are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyarrow import types

from tracelearn.errors import InputError, refuse, warn
from tracelearn.io.arrow_values import Name, is_number, is_text, layout, to_array
from tracelearn.io.columns import Column, until_rows
from tracelearn.samples.modes import Mode
from tracelearn.samples.names import grid, in_order_of_axis, most_of_one_kind

__all__ = [
    "Entries",
    "Table",
    "choose_columns",
    "column_of_table",
    "columns_of_identifiers",
    "first_values",
    "from_row",
    "refuse_text",
    "sample_entries",
    "table_of_rows",
    "warn_of_columns",
    "warn_of_long_table",
]

_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # what pandas calls the index
_FEWEST_ROWS = 10  # with fewer rows columns may look suspicious by chance
_FEWEST_READINGS = 3  # the least readings of a recording, on average
_ADVICE = (
    "choose columns with open_source(path, samples=...), such as 'ch*', leave some out with open_source(path, ignore=...), pass "
    "the name of a column of groups as groups, or, if rows are readings, name their recording with open_source(path, sample=...)."
)


@dataclass(frozen=True, eq=False)
class Table:
    """Names and types of columns, the number of rows, and the function that reads columns.

    ``batches(columns, start, rows)`` yields record batches of about ``rows`` rows, from the row ``start`` on.
    """

    schema: Any
    n_rows: int
    batches: Callable[[Sequence[str], int, int], Iterator[Any]]


def table_of_rows(rows: Any, columns: Sequence[str] = ()) -> Table:
    """Make a `Table` of a table of pyarrow; ``columns`` is not used: functions that open files have it too."""
    return Table(
        rows.schema, len(rows), lambda names, start, size: from_row(rows.select(names).to_batches(size), start)
    )


def column_of_table(table: Table, name: Name) -> Column:
    """Make a column of a table that is open already."""
    names = (name,) if isinstance(name, str) else name
    shape, dtype = layout(table.schema, name)
    if 0 in shape:  # lists of any length: that of the first row is taken
        shape, dtype = layout(table.schema, name, next(table.batches(names, 0, 1), None))
    return Column(table.n_rows, shape, dtype, 1, partial(_read_column, table, name, shape, dtype))


def _read_column(
    table: Table, name: Name, shape: tuple[int, ...], dtype: np.dtype[Any], start: int, rows: int
) -> Iterator[NDArray[Any]]:
    """Yield a column, or several as one array, in blocks from the row ``start`` on."""
    names = (name,) if isinstance(name, str) else name
    for batch in table.batches(names, start, rows):
        yield to_array(batch, name, shape, dtype, start)
        start += len(batch)


def columns_of_identifiers(schema: Any) -> list[str]:
    """List the columns that could name recordings or persons: those of whole numbers or text."""
    kinds = {name: schema.field(name).type for name in schema.names}
    return [name for name, kind in kinds.items() if types.is_integer(kind) or is_text(kind)]


def first_values(table: Table, names: Sequence[str], rows: int) -> list[NDArray[Any]]:
    """Read the first rows of some columns."""
    batches = list(until_rows(table.batches(names, 0, rows), rows))
    layouts = {name: layout(table.schema, name) for name in names}
    return [
        np.concatenate([to_array(batch, name, shape, dtype, 0) for batch in batches])[:rows]
        for name, (shape, dtype) in layouts.items()
    ]


def from_row(batches: Iterable[Any], start: int, row: int = 0) -> Iterator[Any]:
    """Leave out the rows before ``start``; the first batch begins at ``row``."""
    for batch in batches:
        skip = min(len(batch), max(0, start - row))
        row += len(batch)
        if skip < len(batch):
            yield batch[skip:]


# --- which columns are samples ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Entries:
    """The columns of samples: one that holds whole samples, or one for each entry, in the order of their modes.

    ``shape`` and ``modes`` are what the names of the columns say; they are None where one column holds whole samples.
    """

    names: Name
    shape: tuple[int, ...] | None = None
    modes: tuple[Mode, ...] | None = None


def sample_entries(
    schema: Any,
    samples: str | Sequence[str],
    reserved: Iterable[str | None],
    tensor_shape: Sequence[int] | None,
    place: str,
    ignore: Sequence[str],
    modes: Sequence[Mode] | None,
    example_of: Callable[[str], str],
) -> Entries:
    """Choose the columns of the samples.

    ``reserved`` are the names of targets and weights, ``place`` is what errors call the table, ``modes`` are those of a model
    that is to predict the samples, and ``example_of`` quotes some text of a column that should hold numbers.
    """
    if len(set(schema.names)) < len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise InputError(f"Expected columns of different names in {place}, got {twice!r} twice: rename one.")
    if isinstance(samples, str) and schema.get_field_index(samples) >= 0:
        return Entries(samples)
    names = choose_columns(schema, samples, reserved, ignore, place, modes)
    refuse_text(schema, names, place, example_of)
    ordered, modes = grid(names)
    shape = tuple(len(mode.values) for mode in modes)
    if tensor_shape is None and samples == "X":
        inside, description = most_of_one_kind(names, modes)
        _refuse_outsiders(names, inside, description, place)
    if tensor_shape is None or tuple(tensor_shape) == shape:
        return Entries(ordered, shape, modes)
    refuse(
        len(shape) > 1,
        f"Expected tensor_shape to be {shape}, as the names of the columns of {place} say, got {tuple(tensor_shape)}: leave "
        "it out.",
    )
    refuse(
        prod(tensor_shape) != len(names),
        f"Expected {prod(tensor_shape)} columns in {place} for samples of shape {tuple(tensor_shape)}, got {len(names)}, "
        f"from {names[0]!r} to {names[-1]!r}: {_ADVICE}",
    )
    return Entries(tuple(names), tuple(tensor_shape))


def choose_columns(
    schema: Any,
    samples: str | Sequence[str],
    reserved: Iterable[str | None],
    ignore: Sequence[str],
    place: str,
    modes: Sequence[Mode] | None,
) -> list[str]:
    """Find the columns that a name, a pattern or a list means.

    "X" means all that have no other role; with the ``modes`` of a model, those that it was fitted to.
    """
    present = set(schema.names)
    unknown = [name for name in ignore if name not in present]
    if unknown:
        raise InputError(f"Expected names of columns of {place}, got {unknown[0]!r}, which is none: correct it.")
    roles = {*reserved, *ignore}
    candidates = [name for name in schema.names if name not in roles and not _INDEX.fullmatch(name)]
    if samples == "X":
        names = candidates if modes is None else _columns_of_model(candidates, modes)
    elif isinstance(samples, str):
        names = [name for name in candidates if fnmatchcase(name, samples)]
    else:
        names = list(samples)
    missing = [name for name in names if name not in present]
    refuse(
        missing or not names,
        f"Expected samples to be one of the names in {place}, such as {', '.join(map(repr, candidates[:5])) or 'none'}, or a "
        f"pattern such as 'ch*', got {missing[0] if missing else samples!r}: choose some with open_source(path, samples=...).",
    )
    return names


def _columns_of_model(names: list[str], modes: Sequence[Mode]) -> list[str]:
    """Choose the columns that belong to the modes of a model, in its order; the model says itself whether any is missing."""
    if len(modes) > 1:
        return list(most_of_one_kind(names, grid(names)[1])[0])
    places = {value: place for place, value in enumerate(modes[0].values.tolist())}
    if modes[0].has_names:
        return sorted(places.keys() & set(names), key=lambda name: places[name]) or names
    columns_along: dict[Any, dict[int, str]] = {}  # by letters and unit, then by place
    for name in names:
        _, mode = in_order_of_axis((name,))
        if mode.values[0] in places:
            columns_along.setdefault((mode.name, mode.unit), {})[places[mode.values[0]]] = name
    columns = max(columns_along.values(), key=len, default={})
    return [columns[place] for place in sorted(columns)] or names


def refuse_text(schema: Any, names: Sequence[str], place: str, example_of: Callable[[str], str]) -> None:
    """Refuse columns of samples that hold no numbers."""
    for name in names:
        kind = schema.field(name).type
        if not is_number(kind):
            raise InputError(
                f"Expected numbers in the columns of {place} that are entries of a sample, got "
                f"{'text' if is_text(kind) else kind} in {name!r}{example_of(name)}: leave the column out with "
                "open_source(path, ignore=...), choose others with open_source(path, samples=...), correct the cell, or, if "
                "rows are readings, name their recording with open_source(path, sample=...)."
            )


def _refuse_outsiders(names: Sequence[str], inside: Sequence[str], description: str, place: str) -> None:
    """Refuse a few columns, such as an identifier, that keep the others from being of one kind."""
    of_one_kind = set(inside)
    outside = [name for name in names if name not in of_one_kind]
    refuse(
        len(inside) > len(outside) > 0,
        f"Expected columns of one kind in {place}, got {len(inside)} whose names {description}, and "
        f"{', '.join(map(repr, outside[:5]))}{', ...' if len(outside) > 5 else ''}: {_ADVICE}",
    )


# --- columns that are no measurements ---------------------------------------------------------------------------------


def warn_of_columns(names: Sequence[str], X: NDArray[Any], y: NDArray[Any] | None) -> None:
    """Warn of columns that are no measurements: one that counts the rows, or one that is the target in other units."""
    if len(X) < _FEWEST_ROWS:
        return
    X = X.reshape(len(X), -1).astype(float)
    with np.errstate(all="ignore"):  # values that are not finite are refused later, and are none of these
        _warn_of(names, np.all(np.diff(X, axis=0) == 1.0, axis=0), "counts rows", len(X))
        if y is not None and y.dtype.kind in "iufb" and y.shape == (len(X),):
            X = X - X.mean(axis=0)
            y = y - y.mean(dtype=float)
            norms = np.sqrt(np.sum(X**2, axis=0)) * np.sqrt(np.sum(y**2))
            is_target = (norms > 0.0) & (np.abs(y @ X) >= (1.0 - 1e-9) * norms)
            _warn_of(names, is_target, "is the target in the same or other units", len(X))


def _warn_of(names: Sequence[str], suspicious: NDArray[np.bool_], description: str, n_rows: int) -> None:
    """Warn of the first of the columns that look suspicious."""
    if suspicious.any():
        warn(
            f"Expected measurements in the columns of samples, got {names[int(np.argmax(suspicious))]!r}, which {description}, "
            f"as the first {n_rows} rows say: leave it out with open_source(path, ignore=...) if it is no measurement."
        )


def warn_of_long_table(names: Sequence[str], columns: Sequence[NDArray[Any]], y: NDArray[Any]) -> None:
    """Warn where rows look like readings of recordings: a column is constant over runs of rows that have one label.

    Each reading would count as a sample, and readings of one recording would be in training and in test.
    """
    for name, column in zip(names, columns, strict=True):
        starts = np.flatnonzero(np.r_[True, column[1:] != column[:-1]])
        runs = len(starts)
        is_repeated = len(np.unique(column[starts])) < runs
        label_changes = np.flatnonzero(y[1:] != y[:-1]) + 1
        if 2 <= runs <= len(column) // _FEWEST_READINGS and not is_repeated and np.isin(label_changes, starts).all():
            warn(
                f"Expected one sample in each row, got a column {name!r} that is constant over runs of rows with one label, as "
                "if rows were readings of recordings: to read series, name it with open_source(path, sample=...) and the "
                "column of times with open_source(path, time=...); if each row is a sample, leave it out with "
                "open_source(path, ignore=...)."
            )
            return
