"""Samples from whatever is given: a file by its path, a lazy array, a table, or an iterable of blocks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from typing import Any

from tracelearn.errors import refuse
from tracelearn.io.columns import side_by_side
from tracelearn.io.formats import open_file, table_in_memory
from tracelearn.io.lazy import column_of_values, column_of_weights, is_lazy
from tracelearn.io.sources import Choice, source_of_file
from tracelearn.samples import iterables
from tracelearn.samples.modes import Mode
from tracelearn.samples.source import Source

__all__ = ["open_source", "source_in_blocks"]


def open_source(
    path: Any,
    samples: str | Sequence[str] = "X",
    target: str | os.PathLike[str] | None = "y",
    weight: str | os.PathLike[str] | None = None,
    *,
    tensor_shape: Sequence[int] | None = None,
    sample_axis: int | None = None,
    ignore: Sequence[str] = (),
    sample: str | None = None,
    time: str | None = None,
    mask: str | os.PathLike[str] | None = None,
    model: Any = None,
    block_bytes: int | None = None,
) -> Source:
    """Open a file of samples to learn from it block by block.

    Parameters
    ----------
    path : str, path or table
        A file or a folder of one of :doc:`these formats </files>`, or an address of fsspec, such as ``s3://bucket/data.parquet``.
        Or a table in memory or the result of a query: anything that provides an Arrow stream, as DuckDB, polars and pyarrow do.
        A query is read whole.
    samples : str or sequence of str
        Name of the samples: an array or dataset of shape (n_samples, I1, ..., IN), or a column of tensors or lists of
        numbers. Where a table has no such column, every other column is one entry of a sample: names such as ``ch1_t20``
        that form a full grid give shape and order. A pattern such as ``"ch*"``, or a list of names, chooses columns.
        Not used where the file is one array without a name.
    target : str, path or None
        Name of the targets, or another file: one that is one array, or ``"labels.csv:diagnosis"`` for a name in it.
        None if there are none; a file that is one array has none unless a path is given.
    weight : str, path or None
        Name of the sample weights, or another file, as for targets.
    tensor_shape : sequence of ints, optional
        Shape of a sample where the file has it flat; the last index changes fastest.
    sample_axis : int, optional
        Axis of the array that counts samples, such as -1 for channels × time × trials; 0 by default. Arrays of NumPy, Zarr,
        HDF5 and MATLAB.
    ignore : sequence of str
        Columns of a table that are no entries of samples, such as an identifier.
    sample, time : str, optional
        For a table with one reading in each row: the column that names the sample of a reading, and the one that counts time.
        Samples then have the shape (channels, times); those of fewer readings than others are padded with NaN, which
        TensorClassifier and TensorRegressor take. Targets and weights must be constant within each sample. Such a table is
        read whole.
    mask : str or path, optional
        NIfTI image of the voxels to use. Samples are the box around them, and zero outside of the mask.
    model : fitted estimator, optional
        One that is to predict these samples: of a table, the columns that it was fitted to are read, and others left out.
    block_bytes : int, optional
        Size of a block of samples; the smaller of 16 MiB and an eighth of the free memory by default. Blocks are whole
        samples and whole chunks, and so can be larger.

    Returns
    -------
    Source
        Pass it to ``fit`` as X, without y. Only names and shapes have been read so far, and the number of rows of text files.
        Its ``column(name)`` reads any column of the file, such as groups for a cross-validation.

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
    refuse(
        (sample is None) != (time is None),
        "Expected sample and time together, the columns that name the sample of a reading and count time, got one of them: "
        "pass both.",
    )
    refuse(
        sample is not None and tensor_shape is not None,
        "Expected tensor_shape=None with sample and time, which give the shape, got a shape: leave it out.",
    )
    options = {"sample_axis": sample_axis, "mask": mask}
    options = {name: value for name, value in options.items() if value is not None}
    file = open_file(path) if isinstance(path, str | os.PathLike) else table_in_memory(path)
    for option in options:
        refuse(
            option not in file.format.options,
            f"Expected {option} only with files that have one, got it with '{file.place}': leave it out.",
        )
    if file.names is None and target == "y":
        target = None
    choice = Choice(
        samples, target, weight, tensor_shape, tuple(ignore), sample, time, getattr(model, "modes_", None), options
    )
    return source_of_file(file, choice, block_bytes)


def source_in_blocks(
    X: Any,
    y: Any,
    sample_weight: Any,
    ignore: tuple[str, ...],
    modes_of_fit: tuple[Mode, ...] | None,
) -> Source | None:
    """Recognise samples that are to be read block by block; None means that X is to be read whole.

    Parameters
    ----------
    X : object
        A source is a path, a ``Source``, a memory map, an array of Zarr or h5py, an iterable of (X, y) or (X, y, weight), a
        dataset of PyTorch, an Arrow stream, and a table with the name of its targets. In-memory arrays of any
        library, sparse ones, data frames, lists of numbers and Dask arrays are not.
    y : array-like, lazy array, str or path, optional
        For a path or a table, the name of the targets in it; "y" if there is such a name and none is given.
    sample_weight : array-like, lazy array, number, str or path, optional
    ignore : names of columns of a table that are no entries of samples, such as groups
    modes_of_fit : those that a model was fitted to, whose columns of a table are read
    """
    if isinstance(X, Source):
        _refuse_targets("a source", y, sample_weight)
        return X
    if isinstance(X, str | os.PathLike) or _is_table(X, y):
        file = open_file(X) if isinstance(X, str | os.PathLike) else table_in_memory(X)
        if y is None and file.names is not None and "y" in file.names:
            y = "y"
        names = tuple(name for name in ignore if file.format.is_table and name in (file.names or ()))
        return source_of_file(file, Choice("X", y, sample_weight, ignore=names, modes=modes_of_fit))
    if is_lazy(X):
        samples = column_of_values(X, "X")
        targets = None if y is None else column_of_values(y, "y")
        return side_by_side(samples, targets, column_of_weights(sample_weight, samples.n_rows))
    is_dataset = _is_dataset(X)
    if is_dataset or _is_iterable_of_blocks(X):
        _refuse_targets("an iterable of blocks", y, sample_weight)
        return iterables.dataset(X) if is_dataset else iterables.stream(X)
    return None


# --- what is not a file -----------------------------------------------------------------------------------------------


def _is_dataset(X: Any) -> bool:
    """Tell datasets of PyTorch, which give one sample at a time, without importing it."""
    return any(f"{kind.__module__}.{kind.__name__}" == "torch.utils.data.dataset.Dataset" for kind in type(X).__mro__)


def _is_table(X: Any, y: Any) -> bool:
    """Tell whether X is a table; what NumPy can convert is taken as an array, unless the targets are given by name."""
    return hasattr(X, "__arrow_c_stream__") and (isinstance(y, str) or not hasattr(X, "__array__"))


def _is_iterable_of_blocks(X: Any) -> bool:
    """Tell whether X is an iterable of blocks, such as a generator, a loader or a list, not an array or a list of numbers."""
    if isinstance(X, Sequence):
        first = X[0] if len(X) else None
        return isinstance(first, tuple) and len(first) in (2, 3) and getattr(first[0], "ndim", 0) >= 2
    # Whatever can become an array or a table is one.
    protocols = ("shape", "__array__", "__array_interface__", "__dlpack__", "__dataframe__", "__arrow_c_stream__")
    if isinstance(X, Mapping | Set | bytes) or any(hasattr(X, name) for name in protocols):
        return False
    return hasattr(X, "__iter__")


def _refuse_targets(kind: str, y: Any, sample_weight: Any) -> None:
    """Refuse targets or weights beside samples that bring their own."""
    for value, name in ((y, "y"), (sample_weight, "sample_weight")):
        refuse(
            value is not None,
            f"Expected {name}=None with {kind}, which brings its own targets and weights, got "
            f"{type(value).__name__}: put them into the blocks, or name them in open_source.",
        )
