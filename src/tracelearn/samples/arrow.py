"""Tables of Arrow: ``.arrow`` and ``.feather`` files, and whatever hands out its rows as an Arrow stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import pyarrow
import pyarrow.ipc

from tracelearn.errors import InputError, refuse
from tracelearn.samples import iterables
from tracelearn.samples.places import Place, opened
from tracelearn.samples.source import Batch, Source
from tracelearn.samples.tables import Table, column_of, entries, form, from_row, unpack

__all__ = ["column", "stream", "table"]

_LARGEST_BLOCK = 16 * 2**20  # bytes

# --- files ------------------------------------------------------------------------------------------------------------


def table(place: Place, columns: Sequence[str] = ()) -> Table:
    """Read names and types; where columns are wanted, also the number of rows, by a look at one of them."""
    with ExitStack() as stack:
        schema = _open(place, None, stack).schema
    batches = partial(_batches, place, schema)
    return Table(schema, sum(map(len, batches(columns[:1], 0, 1))) if columns else 0, batches)


column = partial(column_of, table)


def _open(place: Place, options: Any, stack: ExitStack) -> Any:
    """Open either form of such a file: with a directory of its batches at the end, or without."""
    name = opened(place)
    file = stack.enter_context(pyarrow.OSFile(name) if isinstance(name, str) else pyarrow.PythonFile(name, mode="r"))
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    reader = (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(file, options=options)
    return stack.enter_context(reader)


def _batches(place: Place, schema: Any, columns: Sequence[str], start: int, rows: int) -> Iterator[Any]:
    fields = sorted(schema.get_field_index(name) for name in columns)
    with ExitStack() as stack:
        reader = _open(place, pyarrow.ipc.IpcReadOptions(included_fields=fields), stack)
        whole = map(reader.get_batch, range(reader.num_record_batches)) if hasattr(reader, "get_batch") else reader
        yield from from_row(map(_sound, whole), start)


def _sound(batch: Any) -> Any:
    """Refuse a batch whose parts do not fit together: reading it would read what lies behind them."""
    batch.validate(full=True)
    return batch


# --- streams ----------------------------------------------------------------------------------------------------------


def stream(
    rows: Any,
    samples: str | Sequence[str],
    target: str | None,
    weight: str | None,
    *,
    tensor_shape: Sequence[int] | None = None,
    ignore: Sequence[str] = (),
) -> Source:
    """Make a source of a table, a query, or an iterator of record batches.

    Rows are asked for in the thread that reads: a query belongs to the connection that made it.
    """
    for value, what in ((target, "y"), (weight, "sample_weight")):
        refuse(
            value is not None and not isinstance(value, str),
            f"Expected {what} to be the name of a column of a stream of rows, got {type(value).__name__}: put it into "
            "the table.",
        )
    # Tables know their size, and give their rows again; what is read from elsewhere does not.
    repeatable, reader = hasattr(type(rows), "shape"), _reader(rows)
    schema = reader.schema
    if repeatable:
        reader.close()  # a connection has one open result at a time
    target = "y" if target is None and "y" in schema.names else target
    for name in (target, weight):
        refuse(
            name is not None and name not in schema.names,
            f"Expected a column of the table, which are {', '.join(map(repr, schema.names[:20]))}, got '{name}': choose one.",
        )
    names, shape, modes = entries(schema, samples, (target, weight), tensor_shape, "the table", ignore)
    found = _Rows(rows, names if shape else names[0], tuple(tensor_shape or shape), target, weight)
    return replace(iterables.stream(found if repeatable else found.blocks(reader)), modes=modes)


@dataclass(frozen=True, eq=False)
class _Rows:
    """A table, and which of its columns are samples, targets and weights."""

    rows: Any
    samples: str | tuple[str, ...]
    shape: tuple[int, ...]
    target: str | None
    weight: str | None

    def __iter__(self) -> Iterator[Batch]:
        return self.blocks(_reader(self.rows))

    def blocks(self, reader: Any) -> Iterator[Batch]:
        """Unpack batches, in parts where they are large."""
        row = 0
        forms: dict[Any, Any] = {}
        with reader:
            for batch in filter(len, reader):
                known = [name for name in (self.samples, self.target, self.weight) if name is not None]
                forms = forms or {name: form(batch.schema, name, batch) for name in known}
                m = max(1, _LARGEST_BLOCK * len(batch) // max(1, batch.nbytes))
                for first in range(0, len(batch), m):
                    part = batch[first : first + m]
                    found = {name: unpack(part, name, shape, dtype, row) for name, (shape, dtype) in forms.items()}
                    X = found[self.samples].reshape(len(part), *self.shape) if self.shape else found[self.samples]
                    yield X, found.get(self.target), found.get(self.weight)
                    row += len(part)


def _reader(rows: Any) -> Any:
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
    batches = (
        batch
        for part in chain([first], rows)
        for batch in (part.to_batches() if hasattr(part, "to_batches") else [part])
    )
    return pyarrow.RecordBatchReader.from_batches(first.schema, batches)
