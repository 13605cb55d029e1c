"""What comes with samples, one value or row for each: targets, labels, weights, groups and confounds, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    detached,
    is_non_numpy,
    move_to,
    to_numpy,
    unique_values,
    widest,
)
from tracelearn.errors import InputError, brief
from tracelearn.samples.checks import as_numpy, check_finite, check_range, check_real, is_missing, real_numbers

__all__ = [
    "check_classes",
    "check_total_weight",
    "read_confounds",
    "read_groups",
    "read_labels",
    "read_targets",
    "read_weights",
]

_WEIGHT_RANGE = 1e-100, 1e100  # products of a weight with two numbers must neither overflow nor vanish


def read_targets(y: Any, X: Array) -> Array:
    """Check numeric targets and move them to X, as float64 where its device has that, (n,) or (n, K)."""
    if y is None:
        raise InputError("Expected one target for each sample: fit requires y to be passed, but the target y is None.")
    n_samples = X.shape[0]
    y = y if is_non_numpy(y) else as_numpy(y, "y")
    if y.ndim not in (1, 2) or y.shape[0] != n_samples or y.shape[-1] == 0:
        raise InputError(
            f"Expected y of shape ({n_samples},) or ({n_samples}, n_targets), one row for each sample, got shape "
            f"{tuple(y.shape)}: samples and targets have inconsistent numbers of samples."
        )
    if is_non_numpy(y):
        check_real(y, "y")
    else:
        y = real_numbers(y, "y", "encode it, or use a classifier, such as TensorClassifier.")
    y = move_to(y, X, widest(X)["dtype"] if is_non_numpy(X) else np.float64)
    check_finite(y, "y")
    return y


def read_confounds(confounds: Any, n_samples: int | None) -> Array:
    """Check confounds, one row for each sample, and return them in memory as numbers of NumPy, (n, q)."""
    values = to_numpy(confounds) if is_non_numpy(confounds) else as_numpy(confounds, "confounds")
    values = values[:, None] if values.ndim == 1 else values
    if n_samples is None:
        raise InputError(
            "Expected samples whose number is known where confounds are given, got an iterable: pass arrays or a file, or call "
            "partial_fit with the confounds of each batch."
        )
    if values.ndim != 2 or values.shape[0] != n_samples or values.shape[1] == 0:
        raise InputError(
            f"Expected confounds of shape ({n_samples}, n_confounds), got shape {values.shape}: give one row for each sample."
        )
    values = real_numbers(values, "confounds", "code categories as columns of zeros and ones.").astype(np.float64)
    check_finite(values, "confounds")
    check_range(values, "confounds")
    return values


def read_labels(y: Any, X: Array, classes: Any = None, *, least: int = 2) -> tuple[Array, Array]:
    """Check labels; return them and all classes, which are ``classes`` or the labels that occur, ``least`` of them or more.

    Labels of NumPy stay what and where they are: they may be strings, which other libraries do not have. All others go
    where X is.
    """
    if y is None:
        raise InputError("Expected one label for each sample: fit requires y to be passed, but the target y is None.")
    if is_non_numpy(y):
        y = move_to(detached(y), X)
    if is_non_numpy(y):
        return _non_numpy_labels(y, X, classes, least)
    classes = classes if classes is None else to_numpy(classes)
    check_real(np.asarray(y), "y")
    y = column_or_1d(y if hasattr(y, "columns") or hasattr(y, "iloc") else as_numpy(y, "y"), warn=True)
    check_consistent_length(X, y)
    check_finite(y, "y")
    if y.dtype.kind == "O":
        _check_objects(y)
    check_classification_targets(y)
    all_classes = unique_labels(y) if classes is None else np.asarray(classes)
    check_classes(all_classes, np.setdiff1d(y, all_classes), least)
    return y, all_classes


def _first_missing(values: Array) -> int | None:
    """Return the index of the first object that stands for a missing value: None, NaN, NaT or pandas' NA."""
    return next((i for i, value in enumerate(values) if is_missing(value)), None)


def _check_objects(y: Array) -> None:
    """Refuse labels that are missing, or that have no common order."""
    missing = _first_missing(y)
    if missing is not None:
        raise InputError(
            f"Expected a label for each sample, got none at sample {missing}: fill it in, or drop the sample."
        )
    kinds = {isinstance(label, str): label for label in y}
    if len(kinds) == 2:
        raise InputError(
            f"Expected labels of one kind, got text, {kinds[True]!r}, and {kinds[False]!r}. Unknown label type: write all as one."
        )


def check_classes(classes: Array, stray: Any = (), least: int = 2) -> None:
    """Refuse less than ``least`` classes, and labels ``stray`` that are none of them."""
    if classes.shape[0] < least:
        (only,) = to_numpy(classes).tolist()
        raise InputError(f"Expected at least two classes in y, got one class, {only!r}: add samples of another.")
    if len(stray):
        raise InputError(
            f"Expected labels among the classes {brief(to_numpy(classes).tolist())}, got {brief(to_numpy(stray).tolist())}: "
            "name all classes in the first call."
        )


def _non_numpy_labels(y: Array, X: Array, classes: Any, least: int) -> tuple[Array, Array]:
    """Read labels of another library: whole numbers or booleans, also as floats."""
    xp = array_namespace(y)
    n = X.shape[0]
    if tuple(y.shape) not in ((n,), (n, 1)):
        raise InputError(
            f"Expected y of shape ({n},), one label for each sample, got shape {tuple(y.shape)}: samples and labels have "
            "inconsistent numbers of samples."
        )
    y = xp.reshape(y, (n,))
    check_finite(y, "y")
    if not xp.isdtype(y.dtype, ("bool", "integral")) and not bool(xp.all(y == xp.round(y))):
        raise InputError(
            "Expected labels in y, got numbers that are not whole. Unknown label type: continuous, so use "
            "TraceNormRegressor, or encode the classes as whole numbers."
        )
    all_classes = unique_values(y) if classes is None else unique_values(move_to(classes, y, y.dtype))
    stray = y[:0] if classes is None else y[~xp.any(y[:, None] == all_classes[None, :], axis=1)]
    check_classes(all_classes, to_numpy(unique_values(stray)) if stray.shape[0] else (), least)
    return y, all_classes


def read_weights(sample_weight: Any, X: Array, *, is_part: bool = False) -> Array | None:
    """Check sample weights, finite, not negative, one for each sample, and move them to X.

    They must not all be zero, unless they are those of a part of the samples.
    """
    if sample_weight is None:
        return None
    n = X.shape[0]
    if is_non_numpy(sample_weight):
        weight = detached(sample_weight)
        check_real(weight, "sample_weight")
    else:
        weight = real_numbers(sample_weight, "sample_weight", "give one weight for each sample.")
    weight = np.full(n, weight) if weight.ndim == 0 else weight  # one number for all samples, as in scikit-learn
    if tuple(weight.shape) != (n,):
        raise InputError(
            f"Expected sample_weight of shape ({n},), got shape {tuple(weight.shape)}: give one weight for each sample."
        )
    weight = move_to(weight, X, widest(X)["dtype"] if is_non_numpy(X) else np.float64)
    check_finite(weight, "sample_weight")
    xp = array_namespace(weight)
    if bool(xp.any(weight < 0)):
        raise InputError("Expected no sample_weight below zero, got some: Negative values in data passed to fit.")
    largest = float(xp.max(weight))
    if not is_part:
        check_total_weight(largest)
    low, high = _WEIGHT_RANGE
    if not low <= largest <= high and not (is_part and largest == 0.0):
        raise InputError(
            f"Expected the largest sample weight to be between {low:g} and {high:g}, got {largest:.1e}: only shares matter, so "
            "multiply all weights by a constant first."
        )
    return weight


def read_groups(groups: Any, n_samples: int) -> Array | None:
    """Check the groups of samples, one for each, and return them as an array of NumPy of shape (n_samples,)."""
    if groups is None:
        return None
    if is_non_numpy(groups):
        groups = to_numpy(groups)
    else:  # a list may mix kinds, which an array of text would hide
        groups = np.asarray(groups, dtype=object if isinstance(groups, list | tuple) else None)
    if groups.shape != (n_samples,):
        raise InputError(
            f"Expected groups of shape ({n_samples},), one for each sample, got shape {groups.shape}: pass one column of them."
        )
    if groups.dtype.kind in "fc":
        check_finite(groups, "groups")
    if groups.dtype.kind == "O":
        missing = _first_missing(groups)
        if missing is not None:
            raise InputError(
                f"Expected a group for each sample, got none at sample {missing}: fill it in, or drop the sample."
            )
        if len({isinstance(group, str) for group in groups}) == 2:
            raise InputError("Expected groups of one kind, got text among others: write all of them as text.")
        groups = np.array(groups.tolist())
    return groups


def check_total_weight(total: float) -> None:
    """Refuse samples that weigh nothing together."""
    if total == 0.0:
        raise InputError("Expected some sample weight above zero, got only zeros: there is nothing to learn from.")
