"""Tables in Parquet files, or in a folder of them, in the order of their paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet
from pyarrow import types

from tracelearn.errors import refuse
from tracelearn.io.places import Place, readable_by_pyarrow, visible_files
from tracelearn.io.tables import Table, from_row

__all__ = ["open_table"]


def open_table(place: Place, columns: Sequence[str] = ()) -> Table:
    """Read types and the number of rows from the ends of the files; ``columns`` must be of one type in all of them."""
    files: tuple[Place, ...] = (place,)
    if isinstance(place, Path) and place.is_dir():
        files = visible_files(place, (".parquet", ".pq"))
    refuse(not files, f"Expected Parquet files in the folder '{place}', got none: check the path.")
    schema: Any = None
    n_rows = 0
    for file in files:
        with _open(file) as table:
            schema = schema or table.schema_arrow
            n_rows += table.metadata.num_rows
            _check_types(columns, schema, table.schema_arrow, file)
    # Text comes as numbers and a list of what they mean: written out, a long label that is repeated would fill memory.
    coded = [name for name in columns if types.is_string(schema.field(name).type)]
    return Table(schema, n_rows, partial(_batches, files, coded))


def _open(place: Place, **options: Any) -> Any:
    """Open a file so that no more of it is in memory than is asked for."""
    # By default a whole row group is in memory before its first row comes, and files often have but one.
    return pyarrow.parquet.ParquetFile(readable_by_pyarrow(place), buffer_size=2**20, pre_buffer=False, **options)


def _check_types(columns: Sequence[str], first: Any, schema: Any, file: Place) -> None:
    """Refuse columns whose type is another in this file than in the first."""
    for name in columns:
        kind = schema.field(name).type if name in schema.names else None
        refuse(
            kind != first.field(name).type,
            f"Expected column '{name}' to be of one type in all files, {first.field(name).type} as in the first, got {kind} in "
            f"'{file}': cast it.",
        )


def _batches(
    files: tuple[Place, ...], coded: list[str], columns: Sequence[str], start: int, rows: int
) -> Iterator[Any]:
    """Read record batches; row groups before ``start`` are skipped."""
    row = 0
    for file in files:
        with _open(file, read_dictionary=coded) as table:
            for group in range(table.num_row_groups):
                size = table.metadata.row_group(group).num_rows
                if row + size > start:
                    yield from from_row(table.iter_batches(rows, [group], list(columns)), start, row)
                row += size
