"""Columns of arrays that are open already: in memory, or lazy ones of NumPy, Zarr and h5py."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from tracelearn.errors import refuse
from tracelearn.io.columns import Column, column_of_array
from tracelearn.optional import require

__all__ = ["column_of_values", "column_of_weights", "is_lazy"]


def is_lazy(values: Any) -> bool:
    """Tell whether values are an array that is read when it is sliced: a memory map, of Zarr, or of h5py."""
    return isinstance(values, np.memmap) or type(values).__module__.partition(".")[0] in ("zarr", "h5py")


def column_of_values(values: Any, name: str) -> Column:
    """Make a column of a lazy array, or of anything that NumPy converts to an array."""
    if not is_lazy(values):
        return column_of_array(partial(nullcontext, np.asarray(values)), name)
    library = type(values).__module__.partition(".")[0]
    refuse(
        not hasattr(values, "shape"),
        f"Expected {name} to be an array, got a {library} {type(values).__name__}: pass one of its arrays, or its path.",
    )
    if library == "h5py":
        values = require("tracelearn.io.hdf5", "hdf5").with_text(values)
    return column_of_array(partial(nullcontext, values), name)


def column_of_weights(values: Any, n: int) -> Column | None:
    """Make a column of weights, which may be one number for all of n samples."""
    if values is None:
        return None
    return column_of_values(np.broadcast_to(values, n) if np.isscalar(values) else values, "sample_weight")
