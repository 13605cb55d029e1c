"""Columns in Parquet files, or in a folder of them, in the order of their paths."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray
from pyarrow import types

from tracelearn.samples.source import Column, check_length, parquet_files

__all__ = ["column", "names"]


def _open(path: Path, **options: Any) -> Any:
    # Without this, a whole row group is in memory before its first row comes, and files often have but one.
    return pyarrow.parquet.ParquetFile(path, buffer_size=2**20, pre_buffer=False, **options)


def names(path: Path) -> list[str]:
    """List the columns."""
    files = parquet_files(path)
    if not files:
        raise ValueError(f"Expected Parquet files in the folder '{path}', got none: check the path.")
    with _open(files[0]) as file:
        return list(file.schema_arrow.names)


def column(path: Path, name: str) -> Column:
    """Read the type of a column and the number of rows from the ends of the files."""
    files, kinds, n_rows = parquet_files(path), [], 0
    for part in files:
        with _open(part) as file:
            schema = file.schema_arrow
            kinds.append(schema.field(name).type if name in schema.names else None)
            n_rows += file.metadata.num_rows
        if kinds[-1] != kinds[0]:
            raise ValueError(
                f"Expected column '{name}' to be of one type in all files, {kinds[0]} as in '{files[0]}', got {kinds[-1]} in "
                f"'{part}': cast it."
            )
    shape, dtype = _layout(kinds[0], name)
    return Column(n_rows, shape, dtype, 1, partial(_read, files, name, shape, dtype), files)


def _read(
    files: tuple[Path, ...], name: str, shape: tuple[int, ...], dtype: np.dtype[Any], start: int, rows: int
) -> Iterator[NDArray[Any]]:
    """Read record batches; row groups before ``start`` are skipped."""
    # Text comes as numbers and a list of what they mean: written out, a long label that is repeated would fill memory.
    coded = [name] if dtype.kind == "O" else []
    row = 0
    for part in files:
        with _open(part, read_dictionary=coded) as file:
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if row + size <= start:
                    row += size
                    continue
                for batch in file.iter_batches(rows, [group], [name]):
                    skip = min(len(batch), max(0, start - row))
                    if skip < len(batch):
                        yield _values(batch.column(0)[skip:], shape, dtype, name, row + skip)
                    row += len(batch)


def _layout(kind: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Find the shape and the type of one value of a column."""
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


def _values(column: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str, row: int) -> NDArray[Any]:
    """Unpack a column in memory; ``row`` is where it begins."""
    _refuse_nulls(column, name, row, 1)
    kind, n = column.type, len(column)
    order, stored = range(len(shape)), shape
    if hasattr(kind, "permutation"):
        order, stored = kind.permutation or order, kind.shape
        column = column.storage
    width = 1
    while hasattr(column.type, "list_size"):
        width *= column.type.list_size
        column = column.flatten()
        _refuse_nulls(column, name, row, width)
    if hasattr(column, "dictionary"):
        meaning = column.dictionary.to_numpy(zero_copy_only=False)
        if dtype.kind == "O":
            check_length(max(map(len, meaning), default=0))
        values = meaning.astype(dtype, copy=False)[column.indices.to_numpy(zero_copy_only=False)]
    else:
        values = column.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    # By Arrow's specification axis i of the sample is axis permutation[i] of what is stored. pyarrow's to_numpy_ndarray
    # agrees only where the permutation is its own inverse; with others it mixes up the entries (seen in 26.0).
    return np.transpose(values.reshape(n, *stored), (0, *(axis + 1 for axis in order)))


def _refuse_nulls(values: Any, name: str, row: int, width: int) -> None:
    if values.null_count:
        place = row + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // width
        raise ValueError(
            f"Expected a value in every row of column '{name}', got a null in row {place}: drop or fill such rows."
        )
