"""Tables in text files: values separated by commas, semicolons or tabs, with the names of columns in the first line.

The number of rows is found by reading the file once. Entries of samples are numbers; the type of a column that is read alone,
such as a target, is found in all of its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow
import pyarrow.csv

from tracelearn.errors import InputError, refuse
from tracelearn.io.places import Place, readable_by_pyarrow
from tracelearn.io.tables import Table, from_row

__all__ = ["open_table"]

_LONGEST_LINE = 64 << 20  # bytes
_LINES_READ = 10  # in which names of columns are looked for


@dataclass(frozen=True)
class _Dialect:
    """How a text file is written, and how many bytes of it are parsed at once."""

    place: Place
    delimiter: str
    decimal_point: str
    block_size: int

    def open(self, read: Any, types: Mapping[str, Any], columns: Sequence[str] | None = None) -> Any:
        """Read columns with ``pyarrow.csv.read_csv`` or ``open_csv``."""
        return read(
            readable_by_pyarrow(self.place),
            pyarrow.csv.ReadOptions(block_size=self.block_size),
            pyarrow.csv.ParseOptions(delimiter=self.delimiter),
            pyarrow.csv.ConvertOptions(
                column_types=dict(types),
                decimal_point=self.decimal_point,
                include_columns=None if columns is None else list(columns),
                strings_can_be_null=True,
            ),
        )


def open_table(place: Place, columns: Sequence[str] = ()) -> Table:
    """Read names and types, and with ``columns`` the number of rows."""
    dialect = _read_dialect(place)
    with dialect.open(pyarrow.csv.open_csv, {}) as reader:
        schema = reader.schema
    _refuse_no_names(place, schema.names)
    types = {name: pyarrow.float64() for name in columns}
    n_rows = 0
    if len(columns) == 1:  # a target: whether it is text shows only in all of its rows
        values = dialect.open(pyarrow.csv.read_csv, {}, columns)
        types = {columns[0]: values.schema.field(0).type}
        n_rows = len(values)
    elif columns:  # entries of samples: rows are counted by one of them, as text, which needs no parsing
        with dialect.open(pyarrow.csv.open_csv, {columns[0]: pyarrow.string()}, columns[:1]) as reader:
            n_rows = sum(len(batch) for batch in reader)
    refuse(columns and not n_rows, f"Expected rows below the names of columns in '{place}', got none: write them.")
    fields = [pyarrow.field(name, types.get(name, schema.field(i).type)) for i, name in enumerate(schema.names)]
    return Table(pyarrow.schema(fields), n_rows, partial(_batches, dialect, types))


def _batches(
    dialect: _Dialect, types: Mapping[str, Any], columns: Sequence[str], start: int, rows: int
) -> Iterator[Any]:
    """Read record batches from a row on."""
    with dialect.open(pyarrow.csv.open_csv, types, columns) as reader:
        yield from from_row(reader, start)


def _read_dialect(place: Place) -> _Dialect:
    """Find the separator of values and the decimal point or comma, from the first two lines."""
    with place.open("rb") as file:
        lines = [file.readline(_LONGEST_LINE) for _ in range(_LINES_READ)]
    names, values = lines[:2]
    refuse(
        len(names) == _LONGEST_LINE,
        f"Expected names of columns in the first line of '{place}', got a line without an end: correct it.",
    )
    refuse(
        b"\0" in names,
        f"Expected text in UTF-8 in '{place}', got another encoding, such as UTF-16: save it in Excel as \"CSV UTF-8\".",
    )
    _refuse_lines_above(place, lines)
    delimiter = max(",;\t", key=lambda mark: names.count(mark.encode()))
    has_commas = delimiter == ";" and b"," in values and b"." not in values
    block_size = max(8 << 20, 16 * max(len(names), len(values)))
    return _Dialect(place, delimiter, "," if has_commas else ".", block_size)


def _refuse_lines_above(place: Place, lines: Sequence[bytes]) -> None:
    """Refuse a title or the like above the names of columns: one value, where a line below has several."""
    # Excel ends a title with as many commas as the table below it has.
    counts = [max(line.rstrip(b"\r\n" + mark).count(mark) for mark in (b",", b";", b"\t")) for line in lines]
    below = next((i for i, count in enumerate(counts) if count > 1), 0)
    if below and not counts[0]:
        title = lines[0].decode(errors="replace").strip()[:60]
        raise InputError(
            f"Expected names of columns in the first line of '{place}', got {title!r}, one value, where line {below + 1} has "
            f"{counts[below] + 1}: delete the lines above the names."
        )


def _refuse_no_names(place: Place, names: Sequence[str]) -> None:
    """Refuse a first line of numbers: it is data, not names.

    Numbers may be names if they increase or decrease throughout, as wavelengths do, and some other column has a name that is no
    number. Whole numbers are allowed, since pandas names columns so that have no name.
    """
    numbers = [name for name in names if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)", name)]
    directions = {(b > a) - (b < a) for a, b in pairwise(map(float, numbers))}
    is_axis = 2 < len(numbers) < len(names) and len(directions) == 1 and directions != {0}
    unnamed = [] if is_axis else [number for number in numbers if not number.isdecimal()]
    if unnamed:
        raise InputError(
            f"Expected names of columns in the first line of '{place}', got the number {unnamed[0]}: write one line of names."
        )
