"""Tables in memory or from a database: whatever hands out its rows as an Arrow stream, or record batches one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import pyarrow
from numpy.typing import NDArray

from tracelearn.errors import InputError, refuse
from tracelearn.io.arrow_values import Name, layout, to_array
from tracelearn.io.series import series_source
from tracelearn.io.tables import Table, choose_columns, column_of_table, from_row, refuse_text, sample_entries
from tracelearn.samples import iterables
from tracelearn.samples.source import Batch, Source

__all__ = ["source_of_rows"]

_LARGEST_BLOCK = 16 * 2**20  # bytes


def source_of_rows(
    rows: Any,
    samples: str | Sequence[str],
    target: str | None,
    weight: str | None,
    *,
    tensor_shape: Sequence[int] | None = None,
    ignore: Sequence[str] = (),
    sample: str | None = None,
    time: str | None = None,
) -> Source:
    """Make a source of a table, a query, or an iterator of record batches.

    Rows are asked for in the thread that reads: a query belongs to the connection that made it.
    """
    _check_names(target, weight)
    is_table = hasattr(type(rows), "shape")  # a table can be read again, a query or an iterator cannot
    reader = _open_reader(rows)
    schema = reader.schema
    target = "y" if target is None and "y" in schema.names else target
    for name in (target, weight, sample, time):
        refuse(
            name is not None and name not in schema.names,
            f"Expected a column of the table, which are {', '.join(map(repr, schema.names[:20]))}, got '{name}': choose one.",
        )
    if sample is not None and time is not None:
        channels = choose_columns(schema, samples, (target, weight, sample, time), ignore, "the table")
        refuse_text(schema, channels, "the table", lambda name: "")
        open_column = partial(column_of_table, _in_memory(reader.read_all()))
        return series_source(open_column, channels, sample, time, target, weight)
    if is_table:
        reader.close()  # a connection has one open result at a time
    entries = sample_entries(
        schema, samples, ("y" if target is None else target, weight), tensor_shape, "the table", ignore
    )
    blocks = _Rows(rows, entries.names, tensor_shape or entries.shape, target, weight)
    source = iterables.stream(blocks if is_table else blocks.read(reader))
    return replace(source, modes=entries.modes, column=partial(_read_column, rows) if is_table else source.column)


def _check_names(target: Any, weight: Any) -> None:
    """Refuse targets or weights that are no names of columns."""
    for value, role in ((target, "y"), (weight, "sample_weight")):
        refuse(
            value is not None and not isinstance(value, str),
            f"Expected {role} to be the name of a column of a stream of rows, got {type(value).__name__}: put it into the table.",
        )


def _in_memory(rows: Any) -> Table:
    """Make a `Table` of a table of pyarrow."""
    return Table(rows.schema, len(rows), lambda names, start, size: from_row(rows.select(names).to_batches(), start))


def _read_column(rows: Any, name: str) -> NDArray[Any]:
    """Read one column of a table that can be read again."""
    table = _in_memory(_open_reader(rows).read_all())
    refuse(
        name not in table.schema.names,
        f"Expected a column of the table, which are {', '.join(map(repr, table.schema.names[:20]))}, got '{name}': choose one.",
    )
    return column_of_table(table, name).values(name)


@dataclass(frozen=True, eq=False)
class _Rows:
    """A table with the names of its columns of samples, targets and weights: iterates over blocks."""

    rows: Any
    samples: Name
    sample_shape: Sequence[int] | None
    target: str | None
    weight: str | None

    def __iter__(self) -> Iterator[Batch]:
        return self.read(_open_reader(self.rows))

    def read(self, reader: Any) -> Iterator[Batch]:
        """Turn record batches into blocks of samples, several for a large batch."""
        row = 0
        names = [name for name in (self.samples, self.target, self.weight) if name is not None]
        layouts: dict[Name, Any] = {}
        with reader:
            for batch in reader:
                if not len(batch):
                    continue
                layouts = layouts or {name: layout(batch.schema, name, batch) for name in names}
                step = max(1, _LARGEST_BLOCK * len(batch) // max(1, batch.nbytes))
                for start in range(0, len(batch), step):
                    block = batch[start : start + step]
                    arrays = {
                        name: to_array(block, name, shape, dtype, row) for name, (shape, dtype) in layouts.items()
                    }
                    X = arrays[self.samples]
                    X = X if self.sample_shape is None else X.reshape(len(block), *self.sample_shape)
                    yield (
                        X,
                        None if self.target is None else arrays[self.target],
                        None if self.weight is None else arrays[self.weight],
                    )
                    row += len(block)


def _open_reader(rows: Any) -> Any:
    """Open a stream of record batches over rows of any kind."""
    if hasattr(rows, "__arrow_c_stream__"):
        return pyarrow.RecordBatchReader.from_stream(rows)
    try:
        first = next(rows)
    except StopIteration:
        raise InputError(
            "Expected an iterator of record batches, got none: check that it has not been read before."
        ) from None
    refuse(
        not hasattr(first, "schema"),
        f"Expected record batches with the name of a target, got {type(first).__name__}: pass arrays with their targets.",
    )
    tables = chain([first], rows)
    batches = (batch for table in tables for batch in (table.to_batches() if hasattr(table, "to_batches") else [table]))
    return pyarrow.RecordBatchReader.from_batches(first.schema, batches)
