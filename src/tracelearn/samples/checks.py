"""Reading what users pass: every refusal is one sentence that says what was expected, what came and what to do."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    detached,
    dtype_name,
    is_non_numpy,
    is_sparse,
    move_to,
    place,
    same_place,
    to_numpy,
    unique_values,
    widest,
)
from tracelearn.arrays.linalg import few_threads
from tracelearn.errors import InputError, brief, warn
from tracelearn.samples.scikit_learn import check_feature_names, check_n_features, checks_parameters, stand_in

__all__ = [
    "Rows",
    "check_classes",
    "check_finite",
    "check_gaps",
    "check_place",
    "check_range",
    "float_dtype",
    "learning",
    "other_shape",
    "out_of_memory",
    "read_groups",
    "read_labels",
    "read_numbers",
    "read_rows",
    "read_targets",
    "read_weights",
    "real_numbers",
    "sample_shape",
    "small_on_one_thread",
    "warn_of_grid",
]

# Products of two numbers, and in double precision products of those, must neither overflow nor vanish. What has 16 bits is
# widened to double precision first.
_RANGES = {16: (1e-50, 1e50), 32: (1e-15, 1e15), 64: (1e-50, 1e50)}
_WEIGHT_RANGE = 1e-100, 1e100  # products of a weight with two numbers must not either
_MANY_COLUMNS = 12  # of a frame: fewer are hardly a grid


def check_finite(
    values: Array, name: str, shape: tuple[int, ...] = (), *, overflows: bool = False, takes_gaps: bool = False
) -> None:
    """Refuse NaN and infinity, naming the place of the first; of sparse rows only the entries are looked at.

    With ``overflows`` the values are what finite samples were made into, and such a number has left the range of their dtype.
    With ``takes_gaps`` infinity alone is refused.
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
    _check_real(array, name)
    if array.dtype.kind not in "OSU":
        raise InputError(f"Expected numbers in {name}, got {array.dtype} values: {todo}")
    entries = [math.nan if _is_missing(entry) else entry for entry in array.ravel().tolist()]
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


def _is_missing(value: Any) -> bool:
    """Tell whether an object stands for a missing value: None, NaN, NaT or pandas' NA, known by what they are written as."""
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
        _check_real(X, "X")
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
    """Warn where columns of a frame are in the order of a grid such as ch1_t20: flat samples have no rank."""
    if len(columns) < _MANY_COLUMNS:
        return
    from tracelearn.samples.names import grid  # noqa: PLC0415 - needed for frames alone

    names = [name for name in columns if isinstance(name, str)]
    ordered, modes = grid(names) if len(names) == len(columns) else ((), ())
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
    """Give every entry of sparse rows one place, so that squares of entries are squares of what is stored."""
    rows = sparse.csr_array(rows)
    if not rows.has_canonical_format:
        rows = rows.copy()  # the array of the user is not written to
        rows.sum_duplicates()
    return rows


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


def _check_real(values: Array, name: str) -> None:
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
        _check_real(y, "y")
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
    _check_real(np.asarray(y), "y")
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
    return next((i for i, value in enumerate(values) if _is_missing(value)), None)


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


def read_weights(sample_weight: Any, X: Array, *, part: bool = False) -> Array | None:
    """Check sample weights, finite, not negative, one for each sample, and move them to X.

    They must not all be zero, unless they are those of a part of the samples.
    """
    if sample_weight is None:
        return None
    n = X.shape[0]
    if is_non_numpy(sample_weight):
        weight = detached(sample_weight)
        _check_real(weight, "sample_weight")
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
    if not part:
        check_total_weight(largest)
    low, high = _WEIGHT_RANGE
    if not low <= largest <= high and not (part and largest == 0.0):
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


Method = TypeVar("Method", bound=Callable[..., Any])


def learning(learn: Method) -> Method:
    """Mark a method that learns: its parameters are checked, small samples are worked on by one thread, and errors are ours.

    Such a method writes attributes only at its end, so that a model whose fit fails is as it was.
    """

    @functools.wraps(learn)
    def attempt(self: Any, *args: Any, **options: Any) -> Any:
        try:
            with few_threads(args[0] if args else options.get("X")):
                return learn(self, *args, **options)
        except MemoryError as error:
            raise out_of_memory(error) from error

    return cast(Method, checks_parameters(attempt))


def small_on_one_thread(function: Method) -> Method:
    """Let a function of a model and of samples, its first two arguments, use one thread where the samples are small."""

    @functools.wraps(function)
    def limited(*args: Any, **options: Any) -> Any:
        with few_threads(args[1] if len(args) > 1 else options.get("X")):
            return function(*args, **options)

    return cast(Method, limited)


class NotEnoughMemoryError(MemoryError):
    """A problem does not fit in memory; the message is a sentence that says what to do."""


def out_of_memory(error: MemoryError) -> MemoryError:
    """Say what to do instead; a library says at best what it could not have."""
    if isinstance(error, NotEnoughMemoryError):
        return error
    said = " ".join(str(error).split())
    return NotEnoughMemoryError(
        f"Expected enough memory for this problem, got none left{f' ({said})' if said else ''}: compress the samples with "
        "ModePCA, read them in blocks from Zarr, HDF5, Parquet or .npz files, or allow more memory."
    )
