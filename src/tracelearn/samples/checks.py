"""Checks of arrays: every refusal is one sentence that says what was expected, what came and what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    dtype_name,
    is_non_numpy,
    is_sparse,
    place,
    same_place,
    widest,
)
from tracelearn.errors import InputError, brief

__all__ = [
    "as_numpy",
    "check_finite",
    "check_gaps",
    "check_place",
    "check_range",
    "check_real",
    "float_dtype",
    "is_missing",
    "read_numbers",
    "real_numbers",
]

# Products of two numbers, and in double precision products of those, must neither overflow nor vanish. What has 16 bits is
# widened to double precision first.
_RANGES = {16: (1e-50, 1e50), 32: (1e-15, 1e15), 64: (1e-50, 1e50)}


def check_finite(
    values: Array, name: str, shape: tuple[int, ...] = (), *, overflows: bool = False, takes_gaps: bool = False
) -> None:
    """Refuse NaN and infinity, naming the place of the first; of sparse rows only the entries are looked at.

    With ``overflows`` the values were computed from finite samples, so that the error tells of an overflow of their dtype. With
    ``takes_gaps`` NaN is allowed, and infinity alone is refused.
    """
    xp = array_namespace(values)
    entries = values.data if is_sparse(values) else values
    if not xp.isdtype(entries.dtype, "real floating"):
        return
    # One pass and no mask in the good case: a sum is finite unless a term is not, or it overflows.
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(float(xp.sum(entries))):
            return
    entries = xp.reshape(entries, (-1,))
    bad = xp.isinf(entries) if takes_gaps else ~xp.isfinite(entries)
    if not bool(xp.any(bad)):
        return
    index = int(xp.argmax(xp.astype(bad, xp.uint8)))
    if is_sparse(values):
        row = int(np.searchsorted(values.indptr, index, side="right")) - 1
        column = int(values.indices[index])
    else:
        row, column = divmod(index, math.prod(values.shape[1:]))
    if overflows:
        wider = "" if dtype_name(values.dtype) == "float64" else "as float64, or "
        raise InputError(
            f"Expected samples whose {name} {dtype_name(values.dtype)} can hold, got an overflow at sample {row}: pass X "
            f"{wider}in the units of the samples of fit."
        )
    where = f", entry {tuple(int(i) for i in np.unravel_index(column, shape))}" if shape else ""
    kind = "NaN" if math.isnan(float(entries[index])) else "infinity"
    todo = "impute or drop such samples before fitting."
    if kind == "NaN" and name == "X":
        todo = (
            "use TensorClassifier or TensorRegressor, which fill gaps of samples in memory, or fill them in before by an "
            "imputer, such as scikit-learn's SimpleImputer, or drop such samples."
        )
    raise InputError(f"Expected finite numbers in {name}, got {kind} at sample {row}{where}: {todo}")


def check_gaps(rows: Array, shape: tuple[int, ...]) -> None:
    """Refuse infinity in rows (n, p) in which NaN stands for what is missing, and samples without any value."""
    check_finite(rows, "X", shape, takes_gaps=True)
    xp = array_namespace(rows)
    if not xp.isdtype(rows.dtype, "real floating"):
        return
    is_empty = xp.all(xp.isnan(rows), axis=1)
    if bool(xp.any(is_empty)):
        index = int(xp.argmax(xp.astype(is_empty, xp.uint8)))
        raise InputError(f"Expected some value in each sample, got only NaN in sample {index}: drop it.")


def as_numpy(values: Any, name: str) -> Array:
    """Make an array of NumPy; refuse rows of several shapes, and masked entries, whose values are undefined."""
    try:
        array = np.asarray(values)
        if array.dtype == object and array.ndim == 1 and len(array) and np.ndim(array[0]):
            array = np.asarray(list(array))  # an array of arrays
    except ValueError:
        shapes = sorted({np.shape(row) for row in values})[:2]
        raise InputError(
            f"Expected {name} to be one array, got rows of several shapes, such as {' and '.join(map(str, shapes))}: use "
            "TensorClassifier or TensorRegressor, which take samples of unequal length, or bring them to one by ResampleTime."
        ) from None
    if isinstance(values, np.ma.MaskedArray) and np.any(values.mask):
        raise InputError(
            f"Expected values everywhere in {name}, got masked entries: fill them in, or drop these samples."
        )
    return array


def check_range(values: Array, name: str) -> None:
    """Refuse numbers so large or so small that their products overflow or vanish; all zeros are fine."""
    values = values.data if is_sparse(values) else values
    xp = array_namespace(values)
    if 0 in values.shape or not xp.isdtype(values.dtype, "real floating"):
        return  # whole numbers have products within the range of float64
    largest = max(float(xp.max(values)), -float(xp.min(values)))
    low, high = _RANGES[xp.finfo(values.dtype).bits]
    if largest > 0.0 and not low <= largest <= high:
        raise InputError(
            f"Expected the largest number in {name} to be between {low:g} and {high:g}, got {largest:.1e}: products of such "
            f"numbers leave the range of {dtype_name(values.dtype)}, so multiply {name} by a constant first."
        )


def real_numbers(values: Any, name: str, todo: str = "encode it as numbers first.") -> Array:
    """Make an array of real numbers of NumPy, in which what is missing is NaN; refuse all else, naming its first sample.

    ``todo`` is what to do with text.
    """
    array = as_numpy(values, name)
    if array.dtype.kind in "fiub":
        return array
    check_real(array, name)
    if array.dtype.kind not in "OSU":
        raise InputError(f"Expected numbers in {name}, got {array.dtype} values: {todo}")
    entries = [math.nan if is_missing(entry) else entry for entry in array.ravel().tolist()]
    try:
        return np.array(entries, dtype=object).astype(np.float64).reshape(array.shape)
    except (TypeError, ValueError):
        for index, entry in enumerate(entries):
            sample = index // math.prod(array.shape[1:])
            if isinstance(entry, str | bytes) and not _is_number(entry):
                raise InputError(
                    f"Expected numbers in {name}, got text such as {brief(entry)} at sample {sample}: {todo}"
                ) from None
            if isinstance(entry, complex):
                raise InputError(
                    f"Expected real numbers in {name}, got {entry!r} at sample {sample}: {_instead_of_complex(name)}"
                ) from None
        raise


def is_missing(value: Any) -> bool:
    """Tell whether an object stands for a missing value: None, NaN, NaT or pandas' NA, which are recognised by their text."""
    return value is None or (not isinstance(value, str) and str(value) in ("nan", "<NA>", "NaN", "NaT"))


def _is_number(text: str | bytes) -> bool:
    """Tell whether text is a number, which NumPy then reads."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_numbers(values: Any, name: str, meaning: str) -> tuple[float, ...]:
    """Read a short sequence of numbers, a parameter such as ``tensor_shape``."""
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise InputError(f"Expected {name} to be a sequence of {meaning}, got {brief(values)}.") from None


def check_place(X: Any, like: Array, caller: str) -> None:
    """Refuse an array of another library or device than the model's: moving it is for the user to decide.

    Parameters
    ----------
    like : an array that the model has learned
    caller : what the samples are for, such as "TraceNormRegressor.predict()"
    """
    X = X if is_non_numpy(X) else np.zeros(0)  # all else is read as blocks of NumPy
    if not same_place(X, like):
        raise InputError(
            f"Expected X of {place(like)} as in fit, got X of {place(X)}: samples for {caller} must use the same namespace and "
            "device, so move X there, or fit on samples like these."
        )


def check_real(values: Array, name: str) -> None:
    """Refuse an array of complex numbers."""
    if array_namespace(values).isdtype(values.dtype, "complex floating"):
        raise InputError(
            f"Expected real numbers in {name}, got {dtype_name(values.dtype)} values: Complex data not supported, so "
            f"{_instead_of_complex(name)}"
        )


def _instead_of_complex(name: str) -> str:
    """Say what to pass instead of complex numbers."""
    return "pass real and imaginary part as two entries." if name == "X" else "pass one real number for each."


def float_dtype(X: Array) -> Any:
    """Find the dtype of weights learned from X: that of X, or for whole numbers and 16 bits the widest of its device."""
    xp = array_namespace(X)
    # With fewer bits sums lose all accuracy.
    is_float = xp.isdtype(X.dtype, "real floating") and xp.finfo(X.dtype).bits >= 32
    return X.dtype if is_float else widest(X)["dtype"]
