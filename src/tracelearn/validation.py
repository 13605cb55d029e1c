"""Reading what users pass: every refusal is one sentence that says what was expected, what came and what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import _check_sample_weight, validate_data

from tracelearn.tensors import Array

__all__ = [
    "check_range",
    "flat_samples",
    "read_labels",
    "read_numbers",
    "read_samples",
    "read_targets",
    "read_weights",
    "sample_shape",
]

# Products of two numbers, and in double precision products of those, must neither overflow nor vanish.
_RANGES = {4: (1e-15, 1e15), 8: (1e-50, 1e50)}


def check_finite(values: Array, name: str, shape: tuple[int, ...] = ()) -> None:
    """Refuse NaN and infinity, naming the place of the first."""
    # One pass and no mask in the good case: a sum is finite unless a term is not, or it overflows.
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.kind != "f" or math.isfinite(float(np.sum(values))):
            return
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    first = np.unravel_index(int(np.argmax(bad)), values.shape)
    place = f"sample {int(first[0])}"
    if values.ndim > 1 and len(shape) > 0:
        place += f", entry {tuple(int(i) for i in np.unravel_index(int(first[1]), shape))}"
    kind = "NaN" if np.isnan(values[first]) else "infinity"
    raise ValueError(
        f"Expected finite numbers in {name}, got {kind} at {place}: impute or drop such samples before fitting."
    )


def check_range(values: Array, name: str) -> None:
    """Refuse numbers so large or so small that their products overflow or vanish; all zeros are fine."""
    largest = max(float(np.max(values, initial=0.0)), -float(np.min(values, initial=0.0)))
    low, high = _RANGES[values.dtype.itemsize]
    if largest > 0.0 and not low <= largest <= high:
        raise ValueError(
            f"Expected the largest number in {name} to be between {low:g} and {high:g}, got {largest:.1e}: products of such "
            f"numbers leave the range of {values.dtype}, so multiply {name} by a constant first."
        )


def read_numbers(values: Any, name: str, meaning: str) -> tuple[float, ...]:
    """Read a short sequence of numbers, a parameter such as mode weights."""
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise ValueError(f"Expected {name} to be a sequence of {meaning}, got {values!r}.") from None


def sample_shape(X: Any, tensor_shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """Find the shape of one sample: that of X without its first axis, or ``tensor_shape`` for flat input."""
    shape = tuple(int(size) for size in np.shape(X))
    if len(shape) < 2:
        hint = "X.reshape(1, *X.shape) if it is a single sample, X.reshape(-1, 1) if it is a single feature"
        raise ValueError(
            f"Expected a 2D array of flat samples or an array of shape (n_samples, I1, ..., IN), got a {len(shape)}D array "
            f"instead. Reshape your data: {hint}."
        )
    if tensor_shape is None:
        return shape[1:]
    sizes = read_numbers(tensor_shape, "tensor_shape", "mode sizes")
    wanted = tuple(int(size) for size in sizes)
    if not wanted or any(size < 1 for size in wanted) or wanted != sizes:
        raise ValueError(f"Expected tensor_shape to be whole mode sizes of at least 1, got {tensor_shape}.")
    if shape[1:] != wanted and (len(shape) != 2 or shape[1] != math.prod(wanted)):
        raise ValueError(
            f"Expected samples of tensor_shape {wanted}, or flat with {math.prod(wanted)} features, got samples of shape "
            f"{shape[1:]}: change tensor_shape or reshape X."
        )
    return wanted


def flat_samples(X: Any) -> Any:
    """View samples as rows; data frames and sparse matrices pass as they are, for scikit-learn to judge."""
    if hasattr(X, "iloc") or sparse.issparse(X):
        return X
    X = np.asarray(X)
    return X.reshape(X.shape[0], -1) if X.ndim > 2 and X.shape[0] > 0 else X


def read_samples(estimator: Any, X: Any, *, reset: bool) -> tuple[Array, tuple[int, ...]]:
    """Check X and return it as rows (n, p), float32 or float64, with the shape of a sample.

    The rows are a view of X wherever its memory allows it.
    """
    if not hasattr(X, "iloc") and not sparse.issparse(X):
        X = np.asarray(X)
        if X.ndim > 2 and 0 in X.shape:
            raise ValueError(f"Expected at least one sample with at least one entry, got an array of shape {X.shape}.")
    shape = sample_shape(X, estimator.tensor_shape)
    if not reset and shape != estimator.sample_shape_:
        known = estimator.sample_shape_
        if math.prod(shape) != math.prod(known) or len(np.shape(X)) > 2:
            count, expected = math.prod(shape), math.prod(known)
            hint = f"X has {count} features, but {type(estimator).__name__} is expecting {expected} features as input."
            if count == expected:
                hint = "bring the axes into the order of fit, or pass flat samples."
            raise ValueError(f"Expected samples of shape {known} as in fit, got samples of shape {shape}: {hint}")
        shape = known
    kind = getattr(getattr(X, "dtype", None), "kind", "f")
    if kind in "SUVmM":
        raise ValueError(f"Expected numbers in X, got {X.dtype} values: encode them as numbers first.")
    rows = validate_data(
        estimator,
        flat_samples(X),
        reset=reset,
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
    )
    check_finite(rows, "X", shape)
    return rows, shape


def read_targets(y: Any, n_samples: int) -> Array:
    """Check numeric targets and return them as float64, (n,) or (n, K)."""
    if y is None:
        raise ValueError("Expected a target for each sample, got y=None: this estimator requires y to be passed.")
    y = np.asarray(y)
    if y.ndim not in (1, 2) or y.shape[0] != n_samples:
        raise ValueError(
            f"Expected y of shape ({n_samples},) or ({n_samples}, n_targets), one row for each sample, got shape {y.shape}: "
            "samples and targets have inconsistent numbers of samples."
        )
    if y.dtype.kind not in "fiub":
        try:
            y = y.astype(np.float64, casting="unsafe" if y.dtype.kind in "OSU" else "same_kind")
        except (TypeError, ValueError):
            first = y.ravel().tolist()[0]
            raise ValueError(
                f"Expected numbers in y, got {y.dtype} values such as {first!r}: encode them, or use TraceNormClassifier."
            ) from None
    y = y.astype(np.float64, copy=False)
    check_finite(y, "y")
    return y


def read_labels(y: Any, X: Array, classes: Array | None = None, *, least: int = 2) -> tuple[Array, Array]:
    """Check labels and return them with all classes: those given, or those that occur, at least so many."""
    if y is None:
        raise ValueError("Expected one label for each sample: fit requires y to be passed, but the target y is None.")
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    check_finite(y, "y")
    check_classification_targets(y)
    known = unique_labels(y) if classes is None else np.asarray(classes)
    if len(known) < least:
        raise ValueError(
            f"Expected at least two classes in y, got one class, {known.tolist()[0]!r}: there is nothing to tell apart."
        )
    unknown = np.setdiff1d(y, known)
    if unknown.size:
        raise ValueError(
            f"Expected labels among the classes {known.tolist()}, got {unknown.tolist()}: name all classes in the first call."
        )
    return y, known


def read_weights(sample_weight: Any, X: Array) -> Array | None:
    """Check sample weights: finite, not negative, one for each sample, not all zero."""
    if sample_weight is None:
        return None
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not np.any(weight):
        raise ValueError("Expected some sample weight above zero, got only zeros: there is nothing to learn from.")
    return weight
