"""Which source is meant: by the type of an object, or by the suffix of a path."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tracelearn.samples.arrays import array_column, is_lazy
from tracelearn.samples.hdf5 import hdf5_column, hdf5_names
from tracelearn.samples.iterables import stream
from tracelearn.samples.npy import npy_column, npz_names
from tracelearn.samples.parquet import parquet_column, parquet_files, parquet_names
from tracelearn.samples.source import Column, Source, beside
from tracelearn.samples.watched import one_sentence, watched
from tracelearn.samples.zarr import zarr_column, zarr_names

__all__ = ["as_source", "open_source"]


@dataclass(frozen=True)
class _Format:
    names: Callable[[Path], list[str] | None]  # None: the file is one array without a name
    column: Callable[[Path, Any], Column]


_ZARR = _Format(zarr_names, zarr_column)
_HDF5 = _Format(hdf5_names, hdf5_column)
_PARQUET = _Format(parquet_names, parquet_column)
_FORMATS = {
    ".npy": _Format(lambda path: None, npy_column),
    ".npz": _Format(npz_names, npy_column),
    ".zarr": _ZARR,
    ".h5": _HDF5,
    ".hdf5": _HDF5,
    ".he5": _HDF5,
    ".parquet": _PARQUET,
    ".pq": _PARQUET,
}


def _format_of(path: Path) -> _Format:
    if not path.exists():
        raise FileNotFoundError(f"Expected the path of a file or folder, got '{path}', which does not exist: check it.")
    if path.is_dir():
        if path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
            return _ZARR
        if path.suffix.lower() in (".parquet", ".pq") or parquet_files(path):
            return _PARQUET
    elif path.is_file() and path.suffix.lower() in _FORMATS:
        return _FORMATS[path.suffix.lower()]
    raise ValueError(
        f"Expected a path that ends in {', '.join(_FORMATS)}, or a folder of Parquet files, got '{path}': convert it to one "
        "of these."
    )


def _names(file: _Format, path: Path) -> list[str] | None:
    with one_sentence(path):
        return file.names(path)


def open_source(
    path: str | os.PathLike[str],
    samples: str = "X",
    target: str | os.PathLike[str] | None = "y",
    weight: str | os.PathLike[str] | None = None,
    *,
    block_bytes: int | None = None,
) -> Source:
    """Open a file of samples to learn from it block by block.

    Parameters
    ----------
    path : str or path
        ``.npy``, ``.npz``, a ``.zarr`` folder, ``.h5``, ``.hdf5`` or ``.he5``, a ``.parquet`` file or a folder of such files,
        which are read in the order of their names.
    samples : str
        Name of the samples: an array or dataset of shape (n_samples, I1, ..., IN), or a Parquet column of fixed-shape
        tensors or fixed-size lists. Not used where the file is one array without a name.
    target : str, path or None
        Name of the targets, or the path of another file that is one array. None if there are none; a file that is one
        array has none unless a path is given.
    weight : str, path or None
        Name of the sample weights, or the path of another file that is one array.
    block_bytes : int, optional
        Size of a block of samples; the smaller of 16 MiB and an eighth of the free memory by default. Blocks are whole
        samples and whole chunks, and so can be larger.

    Returns
    -------
    Source
        To be passed to ``fit`` in the place of X, without y. Nothing but names and shapes has been read so far.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from tracelearn import open_source
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "epochs.npz")
    ...     np.savez(path, X=np.ones((5, 3, 2)), label=np.arange(5))
    ...     source = open_source(path, target="label", block_bytes=100)
    ...     blocks = [(X.shape, y.tolist()) for X, y, weight in source.batches()]
    >>> source.n_samples, source.sample_shape
    (5, (3, 2))
    >>> blocks
    [((2, 3, 2), [0, 1]), ((2, 3, 2), [2, 3]), ((1, 3, 2), [4])]
    """
    path = Path(path)
    file = _format_of(path)
    names = _names(file, path)
    if names is None and target == "y":
        target = None
    return _open(path, file, names, samples, target, weight, block_bytes)


def as_source(X: Any, y: Any = None, sample_weight: Any = None) -> Source | None:
    """Recognise samples that are to be read block by block; None means that X is to be read whole.

    Parameters
    ----------
    X : object
        A source is a path, a ``Source``, a memory map, an array of Zarr or h5py, or an iterable of (X, y) or (X, y, weight).
        In-memory arrays of any library, sparse ones, data frames, lists of numbers and Dask arrays are not.
    y : array-like, lazy array, str or path, optional
        For a path, the name of the targets in the file; "y" if there is such a name and none is given.
    sample_weight : array-like, lazy array, number, str or path, optional
    """
    if isinstance(X, Source):
        _refuse_beside("a source", y, sample_weight)
        return X
    if isinstance(X, str | os.PathLike):
        path = Path(X)
        file = _format_of(path)
        names = _names(file, path)
        if y is None and names is not None and "y" in names:
            y = "y"
        return _open(path, file, names, "X", y, sample_weight, None)
    if is_lazy(X):
        return _with_targets(array_column(X, "X"), y, sample_weight)
    if _is_iterable_of_blocks(X):
        _refuse_beside("an iterable of blocks", y, sample_weight)
        return stream(X)
    return None


def _is_iterable_of_blocks(X: Any) -> bool:
    if isinstance(X, Sequence):
        first = X[0] if len(X) else None
        return isinstance(first, tuple) and len(first) in (2, 3) and getattr(first[0], "ndim", 0) >= 2
    # Whatever can become an array or a table is one.
    tables = ("shape", "__array__", "__array_interface__", "__dlpack__", "__dataframe__", "__arrow_c_stream__")
    if isinstance(X, Mapping | Set | bytes) or any(hasattr(X, name) for name in tables):
        return False
    return hasattr(X, "__iter__")


def _refuse_beside(what: str, y: Any, sample_weight: Any) -> None:
    for value, name in ((y, "y"), (sample_weight, "sample_weight")):
        if value is not None:
            raise ValueError(
                f"Expected {name}=None beside {what}, which brings its own targets and weights, got "
                f"{type(value).__name__}: put them into the blocks, or name them in open_source."
            )


def _with_targets(X: Column, y: Any, sample_weight: Any) -> Source:
    targets = None if y is None else array_column(y, "y")
    return beside(X, targets, _weights(sample_weight, X.n_rows))


def _weights(values: Any, n: int) -> Column | None:
    if values is None:
        return None
    # One number for all samples, as in scikit-learn.
    return array_column(np.broadcast_to(values, n) if np.isscalar(values) else values, "sample_weight")


def _open(
    path: Path, file: _Format, names: list[str] | None, samples: str, y: Any, weight: Any, block_bytes: int | None
) -> Source:
    X = watched(file.column, path, None if names is None else _known(samples, names, path, "samples"))
    targets = _column(y, path, file, names, "target")
    if weight is None or isinstance(weight, str | os.PathLike):
        weights = _column(weight, path, file, names, "weight")
    else:
        weights = _weights(weight, X.n_rows)
    return beside(X, targets, weights, block_bytes=block_bytes, name=f"'{path}'" if names is None else f"'{samples}'")


def _column(value: Any, path: Path, file: _Format, names: list[str] | None, role: str) -> Column | None:
    """Find targets or weights: a name in the file, the path of another file, or an array."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        return array_column(value, role)
    name, other = os.fspath(value), Path(value)
    if names is not None and (name in names or not other.exists()):
        return watched(file.column, path, _known(name, names, path, role))
    if other.exists():
        beside_file = _format_of(other)
        if _names(beside_file, other) is None:
            return watched(beside_file.column, other, None)
    raise ValueError(
        f"Expected {role} to be the path of a file that is one array, got '{name}': '{path}' holds no names to choose from."
        if names is None
        else f"Expected {role} to be a file that is one array, got '{name}', which holds several: save it alone."
    )


def _known(name: str, names: list[str], path: Path, role: str) -> str:
    if name not in names:
        shown = ", ".join(repr(other) for other in names[:20]) + (", ..." if len(names) > 20 else "")
        raise ValueError(
            f"Expected {role} to be one of the names in '{path}', which are {shown or 'none'}, got '{name}': choose one with "
            f"open_source(path, {role}=...)."
        )
    return name
