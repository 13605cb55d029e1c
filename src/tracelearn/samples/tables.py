"""Columns of tables, whatever holds them: one column of tensors or lists for the samples, or one column for each entry."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from pyarrow import types

from tracelearn.errors import InputError, refuse, warn
from tracelearn.samples.modes import Mode
from tracelearn.samples.names import ALONG, DECIMALS, PARTS, axis, grid
from tracelearn.samples.places import Place
from tracelearn.samples.source import Column, check_length

__all__ = ["Table", "column_of", "entries", "form", "from_row", "unpack", "warn_of_columns"]

_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # what pandas calls the names of rows
_FEWEST_ALONG = 10  # numbers that are the names of columns: no other column is one of the same axis
_FEWEST_ROWS = 10  # that tell what a column is
_ADVICE = (
    "choose columns with open_source(path, samples=...), such as 'ch*', or leave some out with open_source(path, "
    "ignore=...)."
)


@dataclass(frozen=True, eq=False)
class Table:
    """Names and types of columns, the number of rows, and how some columns are read.

    ``batches(columns, start, rows)`` reads record batches of about so many rows from a row on.
    """

    schema: Any
    n_rows: int
    batches: Callable[[Sequence[str], int, int], Iterator[Any]]
    files: tuple[Place, ...] = ()


def column_of(open_table: Callable[..., Table], place: Place, name: str | tuple[str, ...]) -> Column:
    """Find the shape and the type of a column, or of several that are the entries of one value."""
    names = (name,) if isinstance(name, str) else name
    table = open_table(place, names)
    shape, dtype = form(table.schema, name)
    if 0 in shape:
        shape, dtype = form(table.schema, name, next(table.batches(names, 0, 1), None))
    return Column(table.n_rows, shape, dtype, 1, partial(_read, table, name, shape, dtype), table.files)


def _read(
    table: Table, name: str | tuple[str, ...], shape: tuple[int, ...], dtype: Any, start: int, rows: int
) -> Iterator[NDArray[Any]]:
    for batch in table.batches((name,) if isinstance(name, str) else name, start, rows):
        yield unpack(batch, name, shape, dtype, start)
        start += len(batch)


def from_row(batches: Iterable[Any], start: int, row: int = 0) -> Iterator[Any]:
    """Leave out the rows before ``start``; the first batch begins at ``row``."""
    for batch in batches:
        skip = min(len(batch), max(0, start - row))
        row += len(batch)
        if skip < len(batch):
            yield batch[skip:]


# --- which columns ----------------------------------------------------------------------------------------------------


def entries(
    schema: Any,
    samples: str | Sequence[str],
    others: tuple[Any, Any],
    tensor_shape: Sequence[int] | None,
    place: str,
    ignore: Sequence[str] = (),
    text_in: Callable[[str], str] = lambda name: "",
) -> tuple[tuple[str, ...], tuple[int, ...], tuple[Mode, ...] | None]:
    """Find the columns of the samples, their shape, () for one column that holds whole samples, and what names say of modes.

    There are no modes for one column, nor for a ``tensor_shape`` that the names do not give. ``text_in`` shows some text of a
    column that should be numbers.
    """
    if len(set(schema.names)) < len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise InputError(f"Expected columns of different names in {place}, got {twice!r} twice: rename one.")
    if isinstance(samples, str) and schema.get_field_index(samples) >= 0:
        return (samples,), (), None
    target, weight = others
    names = _chosen(schema, samples, {"y" if target is None else target, weight}, ignore, place)
    for name in names:
        if not _is_number(schema.field(name).type):
            kind = "text" if _is_text(schema.field(name).type) else schema.field(name).type
            raise InputError(
                f"Expected numbers in the columns of {place} that are entries of a sample, got {kind} in {name!r}"
                f"{text_in(name)}: leave the column out with open_source(path, ignore=...), choose others with "
                "open_source(path, samples=...), or correct the cell."
            )
    ordered, modes = grid(names)
    shape = tuple(len(mode.values) for mode in modes)
    if tensor_shape is None and samples == "X":
        _refuse_outsiders(names, modes, place)
    if tensor_shape is None or tuple(tensor_shape) == shape:
        return ordered, shape, modes
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
    return tuple(names), shape, None


def _chosen(schema: Any, samples: str | Sequence[str], apart: set[Any], ignore: Sequence[str], place: str) -> list[str]:
    """Find the columns that are entries of samples."""
    known = set(schema.names)
    unknown = [name for name in ignore if name not in known]
    if unknown:
        raise InputError(f"Expected names of columns of {place}, got {unknown[0]!r}, which is none: correct it.")
    apart = {*apart, *ignore}
    left = [name for name in schema.names if name not in apart and not _INDEX.fullmatch(name)]
    if isinstance(samples, str):
        names = left if samples == "X" else [name for name in left if fnmatchcase(name, samples)]
    else:
        names = list(samples)
    missing = [name for name in names if name not in known]
    refuse(
        missing or not names,
        f"Expected samples to be one of the names in {place}, such as {', '.join(map(repr, left[:5])) or 'none'}, or a "
        f"pattern such as 'ch*', got {missing[0] if missing else samples!r}: choose some with open_source(path, samples=...).",
    )
    return names


def _refuse_outsiders(names: Sequence[str], modes: Sequence[Mode], place: str) -> None:
    """Refuse a few columns, such as an identifier, without which the names of the others form a grid or are numbers."""
    if len(modes) > 1 or not modes[0].has_names:
        return
    numbers = [name for name in names if (match := ALONG.fullmatch(name)) and match[1] is None]
    if len(numbers) >= _FEWEST_ALONG and not axis(numbers)[1].has_names:
        _refuse_others(names, numbers, "are numbers", place)
    pattern = DECIMALS if sum(bool(re.search(r"[^\w.]|_", name)) for name in names) > len(names) / 2 else PARTS
    parts = {name: pattern.findall(name) for name in names}
    usual, _ = Counter(map(len, parts.values())).most_common(1)[0]
    alike = {name: found for name, found in parts.items() if len(found) == usual}
    counts = [Counter(labels) for labels in zip(*alike.values(), strict=True)]
    # In a grid of two modes or more, each label is in several names.
    inside = [
        name
        for name, found in alike.items()
        if all(count[label] > 1 for count, label in zip(counts, found, strict=True))
    ]
    found = grid(inside)[1] if inside else ()
    if len(found) > 1:
        shape = " × ".join(str(len(mode.values)) for mode in found)
        _refuse_others(names, inside, f"form a grid of {shape}", place)


def _refuse_others(names: Sequence[str], inside: Sequence[str], what: str, place: str) -> None:
    known = set(inside)
    outside = [name for name in names if name not in known]
    refuse(
        len(inside) > len(outside),
        f"Expected columns of one kind in {place}, got {len(inside)} whose names {what}, and "
        f"{', '.join(map(repr, outside[:5]))}{', ...' if len(outside) > 5 else ''}: {_ADVICE}",
    )


def warn_of_columns(names: Sequence[str], X: NDArray[Any], y: NDArray[Any] | None) -> None:
    """Warn of columns that are no measurements: one that counts the rows, or one that is the target in other units."""
    if len(X) < _FEWEST_ROWS:
        return
    X, copies = X.reshape(len(X), -1).astype(float), np.zeros(0, int)
    with np.errstate(all="ignore"):  # values that are not finite are refused later, and are none of these
        counts = np.flatnonzero(np.all(np.diff(X, axis=0) == 1.0, axis=0))
        if y is not None and y.dtype.kind in "iufb" and y.shape == (len(X),):
            X, y = X - X.mean(axis=0), y - y.mean(dtype=float)
            sizes = np.sqrt(np.sum(X**2, axis=0)) * np.sqrt(np.sum(y**2))
            copies = np.flatnonzero((sizes > 0.0) & (np.abs(y @ X) >= (1.0 - 1e-9) * sizes))
    for found, what in ((counts, "counts rows"), (copies, "is the target in the same or other units")):
        if found.size:
            warn(
                f"Expected measurements in the columns of samples, got {names[found[0]]!r}, which {what}, as the first "
                f"{len(X)} rows say: leave it out with open_source(path, ignore=...) if it is no measurement."
            )


# --- values -----------------------------------------------------------------------------------------------------------


def _is_list(kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _is_number(kind: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _is_text(kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def form(schema: Any, name: str | tuple[str, ...], first: Any = None) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Find the shape and the type of a value that is one column, or several; ``first`` are rows that tell how long lists are."""
    if isinstance(name, str):
        return _layout(schema.field(name).type, name, None if first is None else first.column(name))
    return (len(name),), np.result_type(*(_layout(schema.field(each).type, each)[1] for each in name))


def _layout(kind: Any, name: str, first: Any = None) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Find the shape and the type of one value of a column; ``first`` are values that tell how long lists are."""
    shape: tuple[int, ...] = ()
    whole = kind
    if getattr(kind, "extension_name", "") == "arrow.fixed_shape_tensor":
        shape = tuple(kind.shape[axis] for axis in kind.permutation or range(len(kind.shape)))
        kind = kind.value_type
    while types.is_fixed_size_list(kind) or _is_list(kind):
        size = kind.list_size if types.is_fixed_size_list(kind) else 0
        if first is not None:
            lengths = pyarrow.compute.list_value_length(first).drop_null()
            size, first = lengths[0].as_py() if len(lengths) else size, first.flatten()
        shape = (*shape, size)
        kind = kind.value_type
    if not shape and types.is_dictionary(kind):
        kind = kind.value_type
    if _is_number(kind):
        return shape, np.dtype(float if types.is_decimal(kind) else kind.to_pandas_dtype())
    if not shape and _is_text(kind):
        return shape, np.dtype(object)
    raise InputError(
        f"Expected column {name!r} to hold numbers, labels, or tensors or lists of numbers, got {whole}: cast it to one of these."
    )


def unpack(
    batch: Any, name: str | tuple[str, ...], shape: tuple[int, ...], dtype: np.dtype[Any], row: int
) -> NDArray[Any]:
    """Make an array of a column in memory, or of several; ``row`` is where they begin."""
    if isinstance(name, str):
        return _values(batch.column(name), shape, dtype, name, row)
    try:
        return np.asarray(batch.select(list(name)).to_tensor().to_numpy(), dtype)
    except pyarrow.ArrowException:  # for nulls, whose place is found below, and for decimals and truth values
        array = np.empty((len(batch), len(name)), dtype)
    for place, each in enumerate(name):
        array[:, place] = _values(batch.column(each), (), dtype, each, row)
    return array


def _values(column: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str, row: int) -> NDArray[Any]:
    """Unpack a column."""
    _refuse_nulls(column, name, row, 1)
    kind, n = column.type, len(column)
    order, stored = range(len(shape)), shape
    if hasattr(kind, "permutation"):
        order, stored = kind.permutation or order, kind.shape
        column = column.storage
    width = 1
    for size in shape if _is_list(kind) or types.is_fixed_size_list(column.type) else ():
        if not hasattr(column.type, "value_type"):
            break  # a tensor is one list of all its entries
        if _is_list(column.type):
            _refuse_lengths(column, size, name, row, width)
        width *= column.type.list_size if hasattr(column.type, "list_size") else size
        column = column.flatten()
        _refuse_nulls(column, name, row, width)
    if hasattr(column, "dictionary"):
        meaning = column.dictionary.to_numpy(zero_copy_only=False)
        if dtype.kind == "O":
            check_length(max(map(len, meaning), default=0))
        values = meaning.astype(dtype, copy=False)[column.indices.to_numpy(zero_copy_only=False)]
    else:
        if types.is_decimal(column.type):
            column = column.cast(pyarrow.float64())
        values = column.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
        if dtype.kind == "O":
            check_length(max(map(len, values), default=0))
    # By Arrow's specification axis i of the sample is axis permutation[i] of what is stored. pyarrow's to_numpy_ndarray
    # agrees only where the permutation is its own inverse; with others it mixes up the entries (seen in 26.0).
    return np.transpose(values.reshape(n, *stored), (0, *(axis + 1 for axis in order)))


def _refuse_lengths(lists: Any, size: int, name: str, row: int, width: int) -> None:
    lengths = pyarrow.compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    other = np.flatnonzero(lengths != size)
    if other.size:
        raise InputError(
            f"Expected lists of {size} entries in column {name!r}, as in the first row, got {lengths[other[0]]} in row "
            f"{row + int(other[0]) // width}: cut or fill such rows."
        )


def _refuse_nulls(values: Any, name: str, row: int, width: int) -> None:
    if values.null_count:
        place = row + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // width
        raise InputError(
            f"Expected a value in every row of column {name!r}, got none in row {place}, where the first row is 0: fill it "
            "in, or drop the row."
        )
