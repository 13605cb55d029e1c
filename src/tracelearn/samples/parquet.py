"""Columns in Parquet files, or in a folder of them, in the order of their paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.optional import require
from tracelearn.samples.source import Column, check_length
from tracelearn.samples.watched import look_through

__all__ = ["ParquetColumn", "parquet_column", "parquet_files", "parquet_names"]

# Without this, a whole row group is in memory before its first row comes, and files often have but one.
_STREAMED = {"buffer_size": 2**20, "pre_buffer": False}


def _open(path: Path, **options: Any) -> Any:
    return require("pyarrow.parquet", "parquet").ParquetFile(path, **_STREAMED, **options)


def parquet_files(path: Path) -> tuple[Path, ...]:
    """List the file, or the files of the folder; hidden ones and those that begin with ``_`` are bookkeeping."""
    if path.is_file():
        return (path,)
    found = (file for file, _ in look_through(path) if file.suffix in (".parquet", ".pq") and file.is_file())
    return tuple(sorted(file for file in found if not any(part[0] in "._" for part in file.relative_to(path).parts)))


def parquet_names(path: Path) -> list[str]:
    """List the columns."""
    with _open(_first(path)) as file:
        return list(file.schema_arrow.names)


def _first(path: Path) -> Path:
    files = parquet_files(path)
    if not files:
        raise ValueError(f"Expected Parquet files in the folder '{path}', got none: check the path.")
    return files[0]


def parquet_column(path: Path, name: str) -> ParquetColumn:
    """Read the type of a column and the number of rows from the ends of the files."""
    with _open(_first(path)) as file:
        kind = file.schema_arrow.field(name).type
    shape, dtype = _layout(kind, name)
    files, n_rows = parquet_files(path), 0
    for part in files:
        with _open(part) as file:
            schema = file.schema_arrow
            found = schema.field(name).type if name in schema.names else None
            n_rows += file.metadata.num_rows
        if found != kind:
            raise ValueError(
                f"Expected column '{name}' to be of one type in all files, {kind} as in '{files[0]}', got {found} in '{part}': "
                "cast it."
            )
    return ParquetColumn(n_rows, shape, dtype, 1, files, name)


def _layout(kind: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Find the shape and the type of one value of a column."""
    types = require("pyarrow.types", "parquet")
    shape: tuple[int, ...] = ()
    if getattr(kind, "extension_name", "") == "arrow.fixed_shape_tensor":
        shape = tuple(kind.shape[axis] for axis in kind.permutation or range(len(kind.shape)))
        kind = kind.value_type
    while types.is_fixed_size_list(kind):
        shape = (*shape, kind.list_size)
        kind = kind.value_type
    if not shape and types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return shape, np.dtype(kind.to_pandas_dtype())
    if not shape and (types.is_string(kind) or types.is_large_string(kind)):
        return shape, np.dtype(object)
    raise ValueError(
        f"Expected column '{name}' to hold numbers, labels, fixed-shape tensors or fixed-size lists of numbers, got "
        f"{kind}: cast it to one of these."
    )


@dataclass(frozen=True, eq=False)
class ParquetColumn(Column):
    """A column of Parquet files, read in record batches."""

    files: tuple[Path, ...]
    name: str

    def arrays(self, start: int, rows: int) -> Iterator[NDArray[Any]]:
        """Read record batches; row groups before ``start`` are skipped."""
        row = 0
        for path in self.files:
            # Text comes as numbers and a list of what they mean: written out, a long label that is repeated would fill memory.
            with _open(path, read_dictionary=[self.name] if self.dtype.kind == "O" else []) as file:
                groups: list[int] = []
                for group in range(file.num_row_groups):
                    size = file.metadata.row_group(group).num_rows
                    if not groups and row + size <= start:
                        row += size
                    else:
                        groups.append(group)
                # Some versions of pyarrow fail on a list of no groups.
                for batch in file.iter_batches(rows, groups, [self.name]) if groups else ():
                    skip = min(len(batch), max(0, start - row))
                    if skip < len(batch):
                        yield self._values(batch.column(0)[skip:], row + skip)
                    row += len(batch)

    def _values(self, column: Any, row: int) -> NDArray[Any]:
        """Unpack a column in memory; ``row`` is where it begins."""
        self._refuse_nulls(column, row, 1)
        kind, n = column.type, len(column)
        order, stored = range(len(self.shape)), self.shape
        if hasattr(kind, "permutation"):
            order, stored = kind.permutation or order, kind.shape
            column = column.storage
        width = 1
        while hasattr(column.type, "list_size"):
            width *= column.type.list_size
            column = column.flatten()
            self._refuse_nulls(column, row, width)
        if hasattr(column, "dictionary"):
            meaning = column.dictionary.to_numpy(zero_copy_only=False)
            if self.dtype.kind == "O":
                check_length(max(map(len, meaning), default=0))
            values = meaning.astype(self.dtype, copy=False)[column.indices.to_numpy(zero_copy_only=False)]
        else:
            values = column.to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)
        # By Arrow's specification axis i of the sample is axis permutation[i] of what is stored. pyarrow's to_numpy_ndarray
        # agrees only where the permutation is its own inverse; with others it mixes up the entries (seen in 26.0).
        return np.transpose(values.reshape(n, *stored), (0, *(axis + 1 for axis in order)))

    def _refuse_nulls(self, values: Any, row: int, width: int) -> None:
        if values.null_count:
            place = row + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // width
            raise ValueError(
                f"Expected a value in every row of column '{self.name}', got a null in row {place}: drop or fill such rows."
            )
