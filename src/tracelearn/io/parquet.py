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
    """Open a file or a folder of them, reading no rows yet; ``columns`` must be of one type in all files."""
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
    # Text is read dictionary-encoded: written out, a long label that is repeated in every row would fill the memory.
    text_columns = [name for name in columns if types.is_string(schema.field(name).type)]
    return Table(schema, n_rows, partial(_batches, files, text_columns))


def _open(place: Place, **options: Any) -> Any:
    """Open a file so that only the rows asked for are in memory."""
    # By default a whole row group is read before its first row is returned, and many files are one row group.
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
    files: tuple[Place, ...], text_columns: list[str], columns: Sequence[str], start: int, rows: int
) -> Iterator[Any]:
    """Read record batches; row groups before ``start`` are skipped."""
    row = 0
    for file in files:
        with _open(file, read_dictionary=text_columns) as table:
            for group in range(table.num_row_groups):
                size = table.metadata.row_group(group).num_rows
                if row + size > start:
                    yield from from_row(table.iter_batches(rows, [group], list(columns)), start, row)
                row += size
