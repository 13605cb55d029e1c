"""Tables in text files: values separated by commas, semicolons or tabs, with the names of columns in the first line.

The number of rows is found by reading the file once. Entries of samples are numbers; the type of a column that is read alone,
such as a target, is found in all of its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow
import pyarrow.csv

from tracelearn.errors import InputError, refuse
from tracelearn.samples.places import Place, opened
from tracelearn.samples.tables import Table, column_of, from_row

__all__ = ["column", "table"]

_LONGEST_LINE = 64 << 20  # bytes
_MOST_ABOVE = 8  # lines that are looked at for names, after the first two


def _parsed(
    place: Place,
    delimiter: str,
    decimal_point: str,
    block: int,
    function: Any,
    types: Mapping[str, Any],
    columns: Sequence[str] | None = None,
) -> Any:
    """Read some columns with a function of pyarrow, of which so many bytes are parsed at once."""
    return function(
        opened(place),
        pyarrow.csv.ReadOptions(block_size=block),
        pyarrow.csv.ParseOptions(delimiter=delimiter),
        pyarrow.csv.ConvertOptions(
            column_types=dict(types),
            decimal_point=decimal_point,
            include_columns=None if columns is None else list(columns),
            strings_can_be_null=True,
        ),
    )


def table(place: Place, columns: Sequence[str] = ()) -> Table:
    """Find names and types; of columns that are wanted also the number of rows."""
    read = _look_at(place)
    with read(pyarrow.csv.open_csv, {}) as reader:
        schema, n_rows = reader.schema, 0
    _refuse_no_names(place, schema.names)
    types = {name: pyarrow.float64() for name in columns}
    if len(columns) == 1:
        found = read(pyarrow.csv.read_csv, {}, columns)
        types, n_rows = {columns[0]: found.schema.field(0).type}, len(found)
    elif columns:
        with read(pyarrow.csv.open_csv, {columns[0]: pyarrow.string()}, columns[:1]) as reader:
            n_rows = sum(len(batch) for batch in reader)
    refuse(columns and not n_rows, f"Expected rows below the names of columns in '{place}', got none: write them.")
    fields = [pyarrow.field(name, types.get(name, schema.field(i).type)) for i, name in enumerate(schema.names)]
    return Table(pyarrow.schema(fields), n_rows, partial(_batches, read, types))


column = partial(column_of, table)


def _batches(read: Any, types: Mapping[str, Any], columns: Sequence[str], start: int, rows: int) -> Iterator[Any]:
    with read(pyarrow.csv.open_csv, types, columns) as reader:
        yield from from_row(reader, start)


def _look_at(place: Place) -> Any:
    """Find in the first two lines what separates values, and whether decimals have a comma; return what reads the file."""
    with place.open("rb") as file:
        lines: list[bytes] = [file.readline(_LONGEST_LINE) for _ in range(2)]
        more = [file.readline(_LONGEST_LINE) for _ in range(_MOST_ABOVE)]
    refuse(
        len(lines[0]) == _LONGEST_LINE,
        f"Expected names of columns in the first line of '{place}', got a line without an end: correct it.",
    )
    refuse(
        b"\0" in lines[0],
        f"Expected text in UTF-8 in '{place}', got another encoding, such as UTF-16: save it in Excel as \"CSV UTF-8\".",
    )
    _refuse_lines_above(place, [*lines, *more])
    delimiter = max(",;\t", key=lambda mark: lines[0].count(mark.encode()))
    decimal_point = "," if delimiter == ";" and b"," in lines[1] and b"." not in lines[1] else "."
    return partial(_parsed, place, delimiter, decimal_point, max(8 << 20, 16 * max(map(len, lines))))


def _refuse_lines_above(place: Place, lines: Sequence[bytes]) -> None:
    """Refuse a title or the like above the names of columns: one value, where a line below has several."""
    # Excel ends a title with as many commas as the table below it has.
    counts = [max(line.rstrip(b"\r\n" + mark).count(mark) for mark in (b",", b";", b"\t")) for line in lines]
    below = next((i for i, count in enumerate(counts) if count > 1), 0)
    if below and not counts[0]:
        first = lines[0].decode(errors="replace").strip()[:60]
        raise InputError(
            f"Expected names of columns in the first line of '{place}', got {first!r}, one value, where line {below + 1} has "
            f"{counts[below] + 1}: delete the lines above the names."
        )


def _refuse_no_names(place: Place, names: Sequence[str]) -> None:
    """Refuse numbers in the place of names, but for an axis such as wavelengths, which has an order, after some name.

    Whole numbers are what pandas calls columns that have no name.
    """
    numbers = [name for name in names if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)", name)]
    signs = {(b > a) - (b < a) for a, b in pairwise(map(float, numbers))}
    is_axis = 2 < len(numbers) < len(names) and len(signs) == 1 and signs != {0}
    unnamed = [] if is_axis else [number for number in numbers if not number.isdecimal()]
    if unnamed:
        raise InputError(
            f"Expected names of columns in the first line of '{place}', got the number {unnamed[0]}: write one line of names."
        )
