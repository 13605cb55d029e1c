"""Tables in Parquet files, or in a folder of them, in the order of their paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow.parquet
from pyarrow import types

from tracelearn.errors import refuse
from tracelearn.samples.places import Place, opened
from tracelearn.samples.source import parquet_files
from tracelearn.samples.tables import Table, column_of, from_row

__all__ = ["column", "table"]


def _open(place: Place, **options: Any) -> Any:
    # Without this, a whole row group is in memory before its first row comes, and files often have but one.
    return pyarrow.parquet.ParquetFile(opened(place), buffer_size=2**20, pre_buffer=False, **options)


def table(place: Place, columns: Sequence[str] = ()) -> Table:
    """Read types and the number of rows from the ends of the files; columns that are wanted are of one type in all."""
    files, n_rows = parquet_files(place), 0
    schema: Any = None
    for part in files:
        with _open(part) as file:
            own = file.schema_arrow
            schema = schema or own
            n_rows += file.metadata.num_rows
            for name in columns:
                wanted, found = (
                    one.field(name).type if one.get_field_index(name) >= 0 else None for one in (schema, own)
                )
                refuse(
                    wanted != found,
                    f"Expected column '{name}' to be of one type in all files, {wanted} as in '{files[0]}', got {found} in "
                    f"'{part}': cast it.",
                )
    refuse(schema is None, f"Expected Parquet files in the folder '{place}', got none: check the path.")
    # Text comes as numbers and a list of what they mean: written out, a long label that is repeated would fill memory.
    coded = [name for name in columns if types.is_string(schema.field(name).type)]
    return Table(schema, n_rows, partial(_batches, files, coded), files)


column = partial(column_of, table)


def _batches(
    files: tuple[Place, ...], coded: list[str], columns: Sequence[str], start: int, rows: int
) -> Iterator[Any]:
    """Read record batches; row groups before ``start`` are skipped."""
    row = 0
    for part in files:
        with _open(part, read_dictionary=coded) as file:
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if row + size > start:
                    yield from from_row(file.iter_batches(rows, [group], list(columns)), start, row)
                row += size
