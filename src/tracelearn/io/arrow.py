"""Tables in Arrow files, ``.arrow`` and ``.feather``, with a directory of their batches at the end or without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.ipc

from tracelearn.io.places import Place
from tracelearn.io.tables import Table, from_row

__all__ = ["open_table"]


def open_table(place: Place, columns: Sequence[str] = ()) -> Table:
    """Read the names and types of all columns; with ``columns``, read the first of these to count the rows."""
    with _open(place, None) as reader:
        schema = reader.schema
    batches = partial(_batches, place, schema)
    n_rows = sum(len(batch) for batch in batches(columns[:1], 0, 1)) if columns else 0
    return Table(schema, n_rows, batches)


@contextmanager
def _open(place: Place, options: Any) -> Iterator[Any]:
    """Open either form of such a file."""
    local = isinstance(place, Path)
    with pyarrow.OSFile(str(place)) if local else pyarrow.PythonFile(place.open(), mode="r") as file:
        has_directory = file.read(6) == b"ARROW1"
        file.seek(0)
        open_reader = pyarrow.ipc.open_file if has_directory else pyarrow.ipc.open_stream
        with open_reader(file, options=options) as reader:
            yield reader


def _batches(place: Place, schema: Any, columns: Sequence[str], start: int, rows: int) -> Iterator[Any]:
    """Yield record batches of some columns, from a row on."""
    fields = sorted(schema.get_field_index(name) for name in columns)
    with _open(place, pyarrow.ipc.IpcReadOptions(included_fields=fields)) as reader:
        is_file = hasattr(reader, "get_batch")
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader
        yield from from_row(batches, start)
