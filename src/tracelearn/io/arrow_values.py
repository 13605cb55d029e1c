"""Values of Arrow columns as arrays: numbers, text, and tensors or lists of numbers, nested or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from pyarrow import types

from tracelearn.errors import InputError
from tracelearn.io.columns import TEXT

__all__ = ["is_number", "is_text", "layout", "to_array"]

Name = str | tuple[str, ...]  # of one column, or of several whose values are the entries of one sample


def is_number(kind: Any) -> bool:
    """Tell whether values of an Arrow type are numbers or truth values."""
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def is_text(kind: Any) -> bool:
    """Tell whether values of an Arrow type are text, written out or as a dictionary."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def layout(schema: Any, name: Name, first: Any = None) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Find the shape and the type of a value; ``first`` is a record batch that tells how long lists are."""
    if isinstance(name, str):
        return _layout_of_column(schema.field(name).type, name, None if first is None else first.column(name))
    return (len(name),), np.result_type(*(_layout_of_column(schema.field(entry).type, entry)[1] for entry in name))


def _layout_of_column(kind: Any, name: str, first: Any = None) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Find the shape and the type of one value; ``first`` are values that tell how long lists are."""
    shape: tuple[int, ...] = ()
    kind_of_column = kind
    if getattr(kind, "extension_name", "") == "arrow.fixed_shape_tensor":
        shape = tuple(kind.shape[axis] for axis in kind.permutation or range(len(kind.shape)))
        kind = kind.value_type
    while types.is_fixed_size_list(kind) or _is_list(kind):
        size = kind.list_size if types.is_fixed_size_list(kind) else 0
        if first is not None:
            lengths = pyarrow.compute.list_value_length(first).drop_null()
            size = lengths[0].as_py() if len(lengths) else size
            first = first.flatten()
        shape = (*shape, size)
        kind = kind.value_type
    if not shape and types.is_dictionary(kind):
        kind = kind.value_type
    if is_number(kind):
        return shape, np.dtype(float if types.is_decimal(kind) else kind.to_pandas_dtype())
    if not shape and is_text(kind):
        return shape, TEXT
    raise InputError(
        f"Expected column {name!r} to hold numbers, labels, or tensors or lists of numbers, got {kind_of_column}: cast it to one "
        "of these."
    )


def _is_list(kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def to_array(batch: Any, name: Name, shape: tuple[int, ...], dtype: np.dtype[Any], row: int) -> NDArray[Any]:
    """Make an array of a column of a record batch, or of several; ``row`` is where the batch begins in the table."""
    if isinstance(name, str):
        return _column_to_array(batch.column(name), shape, dtype, name, row)
    try:
        return np.asarray(batch.select(list(name)).to_tensor().to_numpy(), dtype)
    except pyarrow.ArrowException:  # for nulls, decimals and truth values
        entries = [_column_to_array(batch.column(entry), (), dtype, entry, row, is_entry=True) for entry in name]
        return np.stack(entries, axis=1)


def _column_to_array(
    column: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str, row: int, *, is_entry: bool = False
) -> NDArray[Any]:
    """Make an array of a column, after a check that no value is missing; a missing float that ``is_entry`` of a sample is NaN."""
    n = len(column)
    axes = tuple(range(len(shape)))
    stored_shape = shape
    if not (is_entry and dtype.kind == "f"):
        _refuse_nulls(column, name, row, 1)
    if getattr(column.type, "extension_name", "") == "arrow.fixed_shape_tensor":
        axes = tuple(column.type.permutation or axes)
        stored_shape = tuple(column.type.shape)
        flat = column.storage.flatten()
        _refuse_nulls(flat, name, row, len(flat) // max(n, 1))
    else:
        flat = _flattened(column, shape, name, row)
    values = _numbers(flat, dtype) if dtype != TEXT else _labels(flat)
    # By Arrow's specification axis i of the sample is axis permutation[i] of what is stored. pyarrow's to_numpy_ndarray
    # agrees only where the permutation is its own inverse; with others it mixes up the entries (pyarrow 26.0).
    return np.transpose(values.reshape(n, *stored_shape), (0, *(axis + 1 for axis in axes)))


def _flattened(lists: Any, shape: tuple[int, ...], name: str, row: int) -> Any:
    """Flatten nested lists to one array of entries, after a check that all have the shape."""
    width = 1  # entries of each sample so far
    for size in shape:
        if _is_list(lists.type):
            _refuse_lengths(lists, size, name, row, width)
        width *= size
        lists = lists.flatten()
        _refuse_nulls(lists, name, row, width)
    return lists


def _numbers(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert a flat array of pyarrow to numbers of NumPy."""
    if types.is_decimal(values.type):
        values = values.cast(pyarrow.float64())
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    return array


def _labels(values: Any) -> NDArray[Any]:
    """Make an array of labels in which equal labels are one object: copies of long ones would fill the memory."""
    coded = values if types.is_dictionary(values.type) else values.dictionary_encode()
    labels = coded.dictionary.to_numpy(zero_copy_only=False).astype(object)
    array: NDArray[Any] = labels[coded.indices.to_numpy(zero_copy_only=False)]
    return array


def _refuse_lengths(lists: Any, size: int, name: str, row: int, width: int) -> None:
    """Refuse lists of another length than the first, by their row."""
    lengths = pyarrow.compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    differing = np.flatnonzero(lengths != size)
    if differing.size:
        raise InputError(
            f"Expected lists of {size} entries in column {name!r}, as in the first row, got {lengths[differing[0]]} in row "
            f"{row + int(differing[0]) // width}: cut or fill such rows."
        )


def _refuse_nulls(values: Any, name: str, row: int, width: int) -> None:
    """Refuse missing values; ``width`` of them belong to each row."""
    if values.null_count:
        first = row + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // max(width, 1)
        raise InputError(
            f"Expected a value in every row of column {name!r}, got none in row {first}, where the first row is 0: fill it in, "
            "or drop the row."
        )
