"""Samples in memory as rows: their shape, their names of columns, and whether they are like those of ``fit``."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from tracelearn.arrays.array_api import Array, array_namespace, detached, is_non_numpy, is_sparse
from tracelearn.errors import InputError, brief, warn
from tracelearn.samples.checks import as_numpy, check_finite, check_gaps, check_real, read_numbers, real_numbers
from tracelearn.samples.scikit_learn import check_feature_names, check_n_features, stand_in

__all__ = ["Rows", "other_shape", "read_rows", "sample_shape", "warn_of_grid"]

_MANY_COLUMNS = 12  # of a frame: fewer are hardly a grid


def sample_shape(X: Any, tensor_shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """Find the shape of one sample: that of X without its first axis, or ``tensor_shape`` for flat input."""
    shape = tuple(np.shape(X))
    if len(shape) < 2:
        hint = "X.reshape(1, *X.shape) if it is a single sample, X.reshape(-1, 1) if it is a single feature"
        raise InputError(
            f"Expected a 2D array of flat samples or an array of shape (n_samples, I1, ..., IN), got a {len(shape)}D array "
            f"instead. Reshape your data: {hint}."
        )
    if tensor_shape is None:
        return shape[1:]
    sizes = read_numbers(tensor_shape, "tensor_shape", "mode sizes")
    wanted = tuple(int(size) for size in sizes)
    if not wanted or any(size < 1 for size in wanted) or wanted != sizes:
        raise InputError(f"Expected tensor_shape to be whole mode sizes of at least 1, got {brief(tensor_shape)}.")
    if shape[1:] != wanted and (len(shape) != 2 or shape[1] != math.prod(wanted)):
        raise InputError(
            f"Expected samples of tensor_shape {wanted}, or flat with {math.prod(wanted)} features, got samples of shape "
            f"{shape[1:]}: change tensor_shape or reshape X."
        )
    return wanted


@dataclass(frozen=True, eq=False)
class Rows:
    """Checked samples as rows (n, p), and what they say of themselves: the shape of a sample, and the names of columns."""

    rows: Array
    sample_shape: tuple[int, ...]
    is_flat: bool  # whether samples of more than one mode came as rows
    feature_names: Array | None = None


def read_rows(
    X: Any,
    *,
    name: str,
    tensor_shape: Any = None,
    known_shape: tuple[int, ...] | None = None,
    known_names: Array | None = None,
    any_library: bool = False,
    finite: bool = True,
    takes_gaps: bool = False,
    time: int | None = None,
) -> Rows:
    """Check X and return it as rows (n, p), float32 or float64.

    The rows are a view of X wherever its memory allows it.

    Parameters
    ----------
    name : of the estimator, as errors call it
    known_shape, known_names : of the samples of ``fit``, which these must match; None where these are the first
    any_library : whether arrays of other libraries stay what and where they are, those of narrow numbers as narrow, and sparse
        rows stay sparse, in CSR format; else all becomes an array of NumPy
    finite : whether to look for NaN and infinity; if not, the caller does
    takes_gaps : whether entries may be NaN
    time : the mode along which samples may have another length than those of ``fit``; None where there is none
    """
    is_of_other_library = any_library and is_non_numpy(X)
    if is_of_other_library:
        X = detached(X)
    elif not hasattr(X, "columns") and not is_sparse(X):
        X = as_numpy(X, "X")
    shape = sample_shape(X, tensor_shape)
    n_axes = len(np.shape(X))
    if (is_of_other_library or n_axes > 2) and 0 in X.shape:
        raise InputError(
            f"Expected at least one sample with at least one entry, got an array of shape {tuple(X.shape)}."
        )
    if known_shape is not None:
        is_flat = n_axes == 2 and math.prod(shape) == math.prod(known_shape)
        differs_in = [mode for mode, sizes in enumerate(zip(shape, known_shape, strict=False)) if len(set(sizes)) > 1]
        is_other_length = len(shape) == len(known_shape) and differs_in == [time]
        if shape != known_shape and not is_flat and not is_other_length:
            raise other_shape(name, known_shape, shape)
        shape = shape if is_other_length else known_shape
    holder = stand_in(name, None if known_shape is None else math.prod(shape), known_names)
    check_feature_names(holder, X, reset=known_shape is None)
    if is_of_other_library:
        check_real(X, "X")
        rows = array_namespace(X).reshape(X, (X.shape[0], -1))
    else:
        rows = _rows_of_numpy(holder, X, accept_sparse="csr" if any_library else False)
    check_n_features(holder, rows, reset=known_shape is None)
    if is_sparse(rows):
        rows = _without_duplicates(rows)
    if finite and takes_gaps and not is_sparse(rows):
        check_gaps(rows, shape)
    elif finite:
        check_finite(rows, "X", shape)
    return Rows(rows, shape, n_axes == 2 and len(shape) > 1, getattr(holder, "feature_names_in_", None))


def _rows_of_numpy(holder: Any, X: Any, *, accept_sparse: Any) -> Array:
    """Check an array of NumPy, a data frame or a sparse matrix by scikit-learn, and return it as rows (n, p)."""
    check = functools.partial(
        check_array,
        dtype=[np.float64, np.float32],
        accept_sparse=accept_sparse,
        ensure_all_finite=False,
        estimator=holder,
        input_name="X",
    )
    if isinstance(X, np.ndarray):
        X = real_numbers(X, "X")
        return check(X.reshape(X.shape[0], -1) if X.ndim > 2 else X)
    try:
        return check(X)
    except (TypeError, ValueError):
        if is_sparse(X):
            raise
        return check(real_numbers(X, "X"))  # columns of objects, or a refusal in our words


def warn_of_grid(columns: Any) -> None:
    """Warn where names of columns, such as ch1_t20, say that samples are tensors: read as flat, their weights have no rank."""
    if len(columns) < _MANY_COLUMNS:
        return
    from tracelearn.samples.names import grid  # noqa: PLC0415 - needed for frames alone

    names = list(columns)
    if not all(isinstance(name, str) for name in names):
        return
    ordered, modes = grid(names)
    if len(modes) < 2 or list(ordered) != names or all(mode.has_names for mode in modes):
        return
    shape = tuple(len(mode.values) for mode in modes)
    warn(
        f"Expected tensor_shape={shape}, as the names of columns from {names[0]!r} to {names[-1]!r} say, got None: samples are "
        "taken as flat, and their weights have no rank, so pass tensor_shape."
    )


def other_shape(name: str, known_shape: tuple[int, ...], shape: tuple[int, ...]) -> InputError:
    """Say that samples are neither of the shape of those of fit, nor flat and of their size."""
    count = math.prod(shape)
    expected = math.prod(known_shape)
    hint = f"X has {count} features, but {name} is expecting {expected} features as input."
    if shape == known_shape[1:]:
        hint = f"of a single sample pass X[None], whose first axis counts samples; {hint}"
    elif count == expected:
        hint = "bring the axes into the order of fit, or pass flat samples."
    return InputError(f"Expected samples of shape {known_shape} as in fit, got samples of shape {shape}: {hint}")


def _without_duplicates(rows: Any) -> Any:
    """Add up values that sparse rows store for one entry, as SciPy allows: then squared values are squared entries."""
    rows = sparse.csr_array(rows)
    if not rows.has_canonical_format:
        rows = rows.copy()  # the array of the user is not written to
        rows.sum_duplicates()
    return rows
