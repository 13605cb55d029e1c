"""Sources: every format gives the rows that were written, each once, in little memory, and leaves nothing behind."""

import io
import itertools
import os
import pickle
import sys
import threading
import tracemalloc
import zipfile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tracelearn import TensorClassifier, TensorRegressor, TraceNormClassifier, TraceNormRegressor
from tracelearn.io.ahead import read_ahead
from tracelearn.io.columns import regroup, side_by_side
from tracelearn.io.lazy import column_of_values
from tracelearn.io.opening import open_source
from tracelearn.samples import Source, as_source
from tracelearn.samples.cluster import Dask

N, SHAPE = 23, (3, 2)
ROW = 8 * 6  # bytes of a sample


def written(labels=False):
    rng = np.random.default_rng(7)
    X, y, weight = rng.standard_normal((N, *SHAPE)), rng.standard_normal(N), rng.random(N)
    return X, np.array([f"class {'abc'[i % 3] * (1 + i % 3)}" for i in range(N)]) if labels else y, weight


def tensors(X, permutation=None):
    kind = pa.fixed_shape_tensor(pa.from_numpy_dtype(X.dtype), X.shape[1:], permutation=permutation)
    size = int(np.prod(X.shape[1:]))
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), size))


def write_npy(path, X, y, weight):
    for name, values in (("X", X), ("y", y), ("w", weight)):
        np.save(path / f"{name}.npy", values)
    return path / "X.npy", path / "y.npy", path / "w.npy"


def write_npy_fortran(path, X, y, weight):
    return write_npy(path, np.asfortranarray(X), y, weight)


def write_npz(path, X, y, weight, save=np.savez):
    save(path / "d.npz", X=X, y=y, w=weight)
    return path / "d.npz", "y", "w"


def write_npz_compressed(path, X, y, weight):
    return write_npz(path, X, y, weight, np.savez_compressed)


def write_npz_fortran(path, X, y, weight):
    return write_npz(path, np.asfortranarray(X), y, weight)


def write_zarr(path, X, y, weight):
    group = zarr.open_group(str(path / "d.zarr"), mode="w")
    group.create_array("X", data=X, chunks=(3, 2, 2))
    # Chunks unlike those of X; strings come from NumPy 2's own type.
    group.create_array("y", data=y.astype(np.dtypes.StringDType()) if y.dtype.kind == "U" else y, chunks=(5,))
    group.create_array("w", data=weight, chunks=(N,))
    return path / "d.zarr", "y", "w"


def write_zarr_bare(path, X, y, weight):
    for name, values in (("X", X), ("w", weight)):
        zarr.create_array(str(path / f"{name}.zarr"), data=values, chunks=(4, *values.shape[1:]))
    np.save(path / "y.npy", y)
    return path / "X.zarr", path / "y.npy", path / "w.zarr"


def write_hdf5(path, X, y, weight):
    with h5py.File(path / "d.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=tuple(map(min, X.shape, (4, 3, 1))))
        file.create_dataset("group/y", data=y.tolist() if y.dtype.kind == "U" else y)
        file.create_dataset("w", data=weight, chunks=(6,))
    return path / "d.h5", "group/y", "w"


def write_parquet(path, X, y, weight):
    pq.write_table(pa.table({"X": tensors(X), "y": y, "w": weight}), path / "d.parquet", row_group_size=5)
    return path / "d.parquet", "y", "w"


def write_parquet_folder(path, X, y, weight):
    (path / "parts").mkdir()
    for part, (a, b) in enumerate([(0, 1), (1, 9), (9, N)]):
        columns = {"w": weight[a:b], "X": tensors(X[a:b]), "y": pa.array(y[a:b]).dictionary_encode()}
        pq.write_table(pa.table(columns), path / "parts" / f"{part}.parquet", row_group_size=3)
    (path / "parts" / "_metadata.parquet").write_bytes(b"not a table")
    return path / "parts", "y", "w"


def write_feather(path, X, y, weight):
    feather.write_feather(pa.table({"X": tensors(X), "y": y, "w": weight}), path / "d.feather", chunksize=5)
    return path / "d.feather", "y", "w"


def write_csv(path, X, y, weight):
    columns = {f"X_{i}_{j}": X[:, i, j] for i, j in np.ndindex(SHAPE)}
    csv.write_csv(pa.table({**columns, "y": y, "w": weight}), path / "d.csv")
    return path / "d.csv", "y", "w"


WRITERS = [
    write_npy,
    write_npy_fortran,
    write_npz,
    write_npz_compressed,
    write_npz_fortran,
    write_zarr,
    write_zarr_bare,
    write_hdf5,
    write_parquet,
    write_parquet_folder,
    write_feather,
    write_csv,
]
formats = pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__.removeprefix("write_"))


def gathered(blocks):
    parts = list(zip(*blocks, strict=True))
    return [None if part[0] is None else np.concatenate(part) for part in parts]


def assert_same(blocks, *arrays):
    found = gathered(blocks)
    assert len(found) == len(arrays)
    for got, wanted in zip(found, arrays, strict=True):
        assert got is None if wanted is None else np.array_equal(got, wanted)
        # Text of any length comes as objects, so that one long label does not make all of them long.
        assert (
            wanted is None or got.dtype.kind == wanted.dtype.kind or (got.dtype.kind, wanted.dtype.kind) == ("O", "U")
        )


def no_thread_is_left():
    return not any(thread.name.startswith("tracelearn") for thread in threading.enumerate())


# What was written is what is read


@formats
@pytest.mark.parametrize("rows", [1, 7, N, 1000])
@pytest.mark.parametrize("labels", [False, True], ids=["numbers", "labels"])
def test_every_format_gives_what_was_written(tmp_path, write, rows, labels):
    X, y, weight = written(labels)
    path, target, weights = write(tmp_path, X, y, weight)
    source = open_source(path, "X", target, weights, block_bytes=rows * ROW)
    assert isinstance(source, Source)
    assert (source.n_samples, source.sample_shape, source.dtype) == (N, SHAPE, X.dtype)
    assert source.repeatable
    for start in (0, 1, 6, 7, N - 1):
        assert_same(source.batches(start), X[start:], y[start:], weight[start:])
    assert list(source.batches(N)) == list(source.batches(N + 5)) == []
    assert_same(source.targets(), y, weight)


@formats
def test_blocks_are_as_large_as_asked_up_to_chunks(tmp_path, write):
    path, target, weight = write(tmp_path, *written())
    chunk = {write_zarr: 3, write_zarr_bare: 4, write_hdf5: 4}.get(write, 1)
    source = open_source(path, target=target, weight=weight, block_bytes=7 * ROW + 5)
    rows = 7 - 7 % chunk
    sizes = [len(X) for X, _, _ in source.batches()]
    assert sizes == [rows] * (N // rows) + ([N % rows] if N % rows else [])
    assert [len(y) for y, _ in source.targets()] == sizes
    # From the middle of a block, its rest comes first, and the blocks after it are the same.
    assert [len(X) for X, _, _ in source.batches(rows + 1)] == [rows - 1, *sizes[2:]]


@formats
def test_a_pass_gives_arrays_of_numpy(tmp_path, write):
    path, target, weights = write(tmp_path, *written())
    for block in open_source(path, "X", target, weights).batches():
        assert [type(part) for part in block] == [np.ndarray] * 3


@formats
def test_a_source_from_a_path_can_be_pickled(tmp_path, write):
    X, y, weight = written()
    path, target, weights = write(tmp_path, X, y, weight)
    source = pickle.loads(pickle.dumps(open_source(path, "X", target, weights)))
    assert_same(source.batches(), X, y, weight)


@given(sizes=st.lists(st.integers(0, 9)), start=st.integers(0, 20), rows=st.integers(1, 12))
def test_regrouping_keeps_the_order_and_cuts_at_multiples(sizes, start, rows):
    stops = start + np.cumsum([0, *sizes])
    arrays = [np.arange(a, b) for a, b in itertools.pairwise(stops)]
    blocks = list(regroup(arrays, start, rows))
    assert [row for block in blocks for row in block] == list(range(start, stops[-1]))
    assert all(len(block) for block in blocks)
    assert all(block[0] % rows == 0 for block in blocks[1:])
    assert all(block[-1] % rows == rows - 1 for block in blocks[:-1])


@pytest.mark.parametrize("write", [write_npy, write_npy_fortran, write_npz, write_npz_fortran, write_zarr, write_hdf5])
@pytest.mark.parametrize("axis", [1, -1])
def test_samples_may_be_along_any_axis_of_an_array(tmp_path, write, axis):
    X, y, weight = written()
    path, target, _ = write(tmp_path, np.moveaxis(X, 0, axis), y, weight)
    source = open_source(path, target=target, sample_axis=axis, block_bytes=4 * ROW)
    assert (source.n_samples, source.sample_shape) == (N, SHAPE)
    for start in (0, 9):
        np.testing.assert_array_equal(np.concatenate([block[0] for block in source.batches(start)]), X[start:])
    with pytest.raises(ValueError, match=rf"axis {axis % 3} of the samples has {N} entries, so choose it with"):
        open_source(path, target=target)


def test_several_targets_and_nested_lists_come_in_their_shape(tmp_path):
    X, Y = np.arange(24.0, dtype=np.float32).reshape(4, 6), np.arange(8).reshape(4, 2)
    nested = pa.array(X.reshape(4, 2, 3).tolist(), pa.list_(pa.list_(pa.float32(), 3), 2))
    pq.write_table(
        pa.table({"X": pa.FixedSizeListArray.from_arrays(X.ravel(), 6), "Y": list(Y), "Z": nested}).cast(
            pa.schema([("X", pa.list_(pa.float32(), 6)), ("Y", pa.list_(pa.int64(), 2)), ("Z", nested.type)])
        ),
        tmp_path / "d.parquet",
    )
    flat = open_source(tmp_path / "d.parquet", target="Y", block_bytes=50)
    assert flat.dtype == np.float32
    assert_same(flat.batches(1), X[1:], Y[1:], None)
    assert_same(open_source(tmp_path / "d.parquet", "Z", "Y").batches(), X.reshape(4, 2, 3), Y, None)


@pytest.mark.parametrize("permutation", [(0, 1, 2), (1, 2, 0), (2, 1, 0), (2, 0, 1)])
def test_permuted_tensors_come_in_their_logical_order(tmp_path, permutation):
    stored = np.arange(5 * 24).reshape(5, 2, 3, 4)
    pq.write_table(pa.table({"X": tensors(stored, permutation), "y": range(5)}), tmp_path / "d.parquet")
    logical = np.transpose(stored, (0, *(axis + 1 for axis in permutation)))
    source = open_source(tmp_path / "d.parquet", block_bytes=2 * 24 * 8)
    assert source.sample_shape == logical.shape[1:]
    assert_same(source.batches(1), logical[1:], np.arange(1, 5), None)
    if permutation in [(0, 1, 2), (2, 1, 0)]:  # pyarrow's own reading of other permutations mixes up the entries
        column = pq.read_table(tmp_path / "d.parquet")["X"].combine_chunks()
        assert np.array_equal(gathered(source.batches())[0], column.to_numpy_ndarray())


# What is read, is read once


class Counting:
    """An array in chunks that counts how often each is read; Zarr's by its module."""

    def __init__(self, values, chunks):
        self.values, self.chunks = values, chunks
        self.shape, self.dtype = values.shape, values.dtype
        self.reads = np.zeros(-(-len(values) // chunks[0]), dtype=int)

    def __getitem__(self, index):
        (rows,) = index
        first, last, _ = rows.indices(len(self.values))
        self.reads[first // self.chunks[0] : -(-last // self.chunks[0])] += 1
        return self.values[rows]


Counting.__module__ = "zarr.counting"


@given(chunk=st.integers(1, 30), y_chunk=st.integers(1, 30), rows=st.integers(1, 30), start=st.integers(0, N - 1))
def test_every_chunk_is_read_exactly_once(chunk, y_chunk, rows, start):
    X, y, _ = written()
    lazy_X, lazy_y = Counting(X, (chunk, 1, 2)), Counting(y, (y_chunk,))
    source = side_by_side(column_of_values(lazy_X, "X"), column_of_values(lazy_y, "y"), None, block_bytes=rows * ROW)
    assert_same(source.batches(start), X[start:], y[start:], None)
    for lazy in (lazy_X, lazy_y):
        skipped = start // lazy.chunks[0]
        assert lazy.reads[:skipped].tolist() == [0] * skipped
        assert set(lazy.reads[skipped:]) == {1}


def test_targets_are_read_without_samples():
    X, y, _ = written()
    lazy = Counting(X, (4, 3, 2))
    assert_same(as_source(lazy, y).targets(), y, None)
    assert not lazy.reads.any()


def test_only_one_block_is_read_ahead():
    begun = []
    blocks = read_ahead(begun.append(i) or i for i in range(100))
    for i in range(3):
        assert next(blocks) == i
        # The thread has had time for more, had it been asked for more.
        threading.Event().wait(0.02)
        assert begun == list(range(i + 2))
    blocks.close()


def test_the_next_block_is_read_while_this_one_is_worked_on():
    second = threading.Event()

    def blocks():
        yield 0
        second.set()
        yield 1

    reader = read_ahead(blocks())
    assert next(reader) == 0
    assert second.wait(10)
    assert list(reader) == [1]


def test_memory_does_not_grow_with_the_samples(tmp_path):
    path = tmp_path / "zeros.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=np.zeros((5000, 1000)), chunks=(100, 1000), compression="gzip")
        file["y"] = np.zeros(5000)
    source = open_source(path, block_bytes=2**20)
    total = 0
    for start in (0, 2500):
        tracemalloc.start()
        for X, _, _ in source.batches(start):
            total += X.nbytes
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 10e6
    assert total == 60_000_000


def test_memory_does_not_grow_with_a_row_group(tmp_path):
    X = np.random.default_rng(0).standard_normal((5000, 1000))
    pq.write_table(pa.table({"X": tensors(X), "y": X[:, 0]}), tmp_path / "d.parquet")
    source = open_source(tmp_path / "d.parquet", block_bytes=2**20)
    before, peak = pa.total_allocated_bytes(), 0
    for _ in source.batches():
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert peak < 10e6


# What is recognised


def lazy_arrays(tmp_path, X):
    np.save(tmp_path / "X.npy", X)
    yield np.load(tmp_path / "X.npy", mmap_mode="r")
    yield zarr.create_array(str(tmp_path / "X.zarr"), data=X, chunks=(5, *X.shape[1:]))
    yield h5py.File(tmp_path / "X.h5", "w").create_dataset("X", data=X, chunks=(6, *X.shape[1:]))


def test_lazy_arrays_are_sources_and_so_may_be_their_targets(tmp_path):
    X, y, weight = written()
    (tmp_path / "targets").mkdir()
    targets = [y, y.tolist(), *lazy_arrays(tmp_path / "targets", y)]
    for lazy in lazy_arrays(tmp_path, X):
        for target in targets:
            assert_same(as_source(lazy, target, weight.tolist()).batches(4), X[4:], y[4:], weight[4:])
        assert_same(as_source(lazy).batches(), X, None, None)


def test_one_weight_is_the_weight_of_all(tmp_path):
    X, y, _ = written()
    assert_same(as_source(next(lazy_arrays(tmp_path, X)), y, 2.0).batches(), X, y, np.full(N, 2.0))


def test_paths_are_sources_with_the_name_of_a_target(tmp_path):
    X, y, weight = written()
    np.savez(tmp_path / "d.npz", X=X, label=y, w=weight)
    np.savez(tmp_path / "e.npz", X=X, y=y)
    write_npy(tmp_path, X, y, weight)
    for path, target, weights, wanted in [
        (tmp_path / "d.npz", "label", "w", (X, y, weight)),
        (str(tmp_path / "d.npz"), "label", None, (X, y, None)),
        (tmp_path / "d.npz", None, None, (X, None, None)),  # to predict, no target is needed
        (tmp_path / "d.npz", weight, y, (X, weight, y)),
        (tmp_path / "d.npz", tmp_path / "y.npy", 1.0, (X, y, np.ones(N))),
        (tmp_path / "e.npz", None, None, (X, y, None)),
        (tmp_path / "X.npy", str(tmp_path / "y.npy"), tmp_path / "w.npy", (X, y, weight)),
        (tmp_path / "X.npy", None, None, (X, None, None)),
    ]:
        assert_same(as_source(path, target, weights).batches(), *wanted)


def test_what_is_in_memory_is_one_block_as_it_was_passed():
    import dask.array as da
    import pandas as pd

    X, y, _ = written()
    frame = pd.DataFrame(X.reshape(N, -1))
    lists = [X.tolist(), tuple(X), [(1.0, 2.0), (3.0, 4.0)], [((1, 2), (3, 4))], [], range(3), {"a": 1}]
    for value in [X, frame, pa.table({"a": y}), np.ma.masked_array(X), *lists, None, 3.0]:
        source = as_source(value, y)
        assert source.in_memory
        assert source.arrays[0] is value
        assert source.arrays[1] is y
    assert isinstance(as_source(da.from_array(X), y).execution, Dask)


def test_a_source_is_itself(tmp_path):
    write_npz(tmp_path, *written())
    source = open_source(tmp_path / "d.npz")
    assert as_source(source) is source
    with pytest.raises(ValueError, match=r"^Expected y=None with a source.*: .*open_source\.$"):
        as_source(source, "y")


# Iterables of blocks


class Loader:
    def __init__(self, blocks):
        self.blocks = blocks

    def __iter__(self):
        yield from self.blocks


def blocks_of(X, y, weight=None, rows=5):
    for a in range(0, len(X), rows):
        yield (X[a : a + rows], y[a : a + rows], *([] if weight is None else [weight[a : a + rows]]))


@pytest.mark.parametrize("kind", [list, tuple, Loader, iter])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("start", [0, 3, 5, 12, N])
def test_iterables_of_blocks_are_sources(kind, weighted, start):
    X, y, weight = written()
    weight = weight if weighted else None
    source = as_source(kind(list(blocks_of(X, y, weight))))
    assert source.sample_shape is source.n_samples is source.dtype is None
    assert source.repeatable == (kind is not iter)
    for _ in range(1 + source.repeatable):
        if start == N:
            assert list(source.batches(start)) == []
        else:
            assert_same(source.batches(start), X[start:], y[start:], None if weight is None else weight[start:])
    if source.repeatable:
        assert_same(source.targets(), y, weight)


@pytest.mark.parametrize("first", ["batches", "targets"])
@pytest.mark.parametrize("second", ["batches", "targets"])
def test_a_generator_gives_one_pass(first, second):
    X, y, _ = written()
    source = as_source(blocks_of(X, y))
    assert len(list(getattr(source, first)())) == 5
    with pytest.raises(ValueError, match=r"^Expected one pass .* got a second one: "):
        getattr(source, second)()


def test_blocks_without_samples_or_targets_or_order_in_memory_are_read():
    X, y, _ = written()
    blocks = [(X[:0], y[:0]), [sparse.csr_array(X[:, 0]), None], (X[:, 0].tolist(), None)]
    assert_same(as_source(iter(blocks[1:])).batches(), np.concatenate([X[:, 0]] * 2), None, None)
    assert list(as_source(iter(blocks[:1])).batches()) == []


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([np.ones((2, 3))], r"Expected blocks \(X, y\) or \(X, y, weight\), got ndarray as block 0"),
        ([(np.ones((2, 3)),)], r"got tuple as block 0"),
        ([(np.ones(3), np.ones(3))], r"Expected X of shape \(m, I1, ..., IN\) in block 0, got shape \(3,\)"),
        ([(np.ones((2, 3)), [1])], r"got 2 samples and targets of shape \(1,\) in block 0"),
        ([(np.ones((2, 3)), [1, 2], [1])], r"got 2 samples and weights of shape \(1,\) in block 0"),
        ([(np.ones((2, 3)), [1, 2]), (np.ones((2, 4)), [1, 2])], r"got shape \(4,\) in block 1"),
        ([], r"got no block"),
    ],
)
def test_wrong_blocks_are_refused(blocks, message):
    with pytest.raises(ValueError, match=message):
        list(as_source(iter(blocks)).batches())
    assert no_thread_is_left()


def test_targets_beside_an_iterable_are_refused():
    for given_ in ({"y": [1]}, {"sample_weight": [1]}):
        with pytest.raises(ValueError, match=r"Expected .*=None with an iterable of blocks"):
            as_source(iter([]), **given_)


# The thread


def test_an_error_in_the_source_reaches_the_reader_and_leaves_no_thread():
    def broken():
        yield 1
        raise OSError("the disk is gone")

    blocks = read_ahead(broken())
    assert next(blocks) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(blocks)
    assert no_thread_is_left()


def test_closing_early_leaves_no_thread_and_no_open_generator():
    closed = []

    def endless():
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    inner = endless()  # held here, so that only closing it closes it
    blocks = read_ahead(inner)
    next(blocks)
    assert not no_thread_is_left()
    blocks.close()
    assert no_thread_is_left()
    assert closed == [True]


@formats
def test_a_pass_given_up_leaves_nothing_behind(tmp_path, write):
    path, target, weights = write(tmp_path, *written())
    blocks = open_source(path, "X", target, weights, block_bytes=ROW).batches()
    next(blocks)
    blocks.close()
    assert no_thread_is_left()
    if path.suffix == ".h5":
        h5py.File(path, "r+").close()  # refused while it is open for reading


# Columns in memory


@formats
def test_any_column_can_be_read_into_memory(tmp_path, write):
    X, y, weight = written(labels=True)
    path, target, weights = write(tmp_path, X, y, weight)
    source = open_source(path, target=target, weight=weights)
    assert source.column(str(target)).tolist() == y.tolist()
    assert source.column(str(weights)).tolist() == weight.tolist()
    assert pickle.loads(pickle.dumps(source)).column(str(target)).tolist() == y.tolist()
    with pytest.raises(ValueError, match=r"^Expected column to be .*, got 'session'"):
        source.column("session")


def test_a_column_has_one_value_for_each_sample_and_blocks_have_no_columns(tmp_path):
    X, y, weight = written()
    np.savez(tmp_path / "d.npz", X=X, y=y, subject=weight[1:])
    with pytest.raises(
        ValueError, match=rf"^Expected one value of 'subject' for each sample, got {N} samples and {N - 1}"
    ):
        open_source(tmp_path / "d.npz").column("subject")
    with pytest.raises(
        ValueError, match=r"^Expected a file or a table, in which 'subject' can be looked up, got samples without names"
    ):
        as_source([(X, y)]).column("subject")


# What is refused


def npy_header(shape, descr="<f8", version=1):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_npz_that_claims_more_than_the_free_memory_is_refused_before_memory_is_taken(tmp_path, compression):
    with zipfile.ZipFile(tmp_path / "d.npz", "w", compression) as archive:
        archive.writestr("X.npy", npy_header((10**6, 10**6)) + bytes(800))
    tracemalloc.start()
    with pytest.raises(
        ValueError, match=r"^Expected 'X' of '.*' to fit in the .* GiB of free memory, got 7\.45e\+03 GiB"
    ):
        open_source(tmp_path / "d.npz", target=None)
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()


def test_an_npz_that_is_too_large_for_the_memory_is_refused_when_it_is_opened(tmp_path, monkeypatch):
    path, target, _ = write_npz(tmp_path, *written())
    monkeypatch.setattr("tracelearn.io.safety.available_memory", lambda: N * ROW - 1)
    with pytest.raises(
        ValueError, match=r"^Expected 'X' of .* to fit in .* store it as \.npy, HDF5 or Zarr, which are read in"
    ):
        open_source(path, target=target)
    np.save(tmp_path / "X.npy", np.zeros((N, *SHAPE)))
    assert open_source(tmp_path / "X.npy", block_bytes=ROW).n_samples == N


def test_an_npz_of_python_objects_is_refused(tmp_path):
    np.savez(tmp_path / "d.npz", X=np.ones((2, 2)), y=np.array([{}, []], dtype=object))
    with pytest.raises(ValueError, match=r"^Expected numbers or strings in 'y' of .* got Python objects: "):
        open_source(tmp_path / "d.npz")


def test_a_damaged_npz_is_refused(tmp_path):
    path = tmp_path / "d.npz"
    np.savez(path, X=np.ones((50, 4)), y=np.ones(50))
    raw = bytearray(path.read_bytes())
    raw[600] ^= 1  # in the numbers of X: only the checksum tells
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"^Expected a whole file of numbers or strings, .* CRC"):
        list(open_source(path).batches())
    assert no_thread_is_left()
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"^Expected a whole file of numbers or strings, .*BadZipFile"):
        open_source(path)


def test_a_damaged_npy_is_refused(tmp_path):
    path = tmp_path / "X.npy"
    for content, message in (
        (b"nothing", "Expected a whole file of numbers or strings, got .*magic string"),
        (npy_header((1000, 1000)) + bytes(80), "Expected a whole file of numbers or strings, got .*size"),
        (npy_header((2, 2), "|O") + bytes(32), "Expected .* Python objects"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"^{message}"):
            open_source(path)


@pytest.mark.parametrize("where", ["target", "tensor", "entry"])
def test_nulls_in_parquet_are_refused_by_their_row(tmp_path, where):
    rows = [[float(i), 1.0] for i in range(9)]
    y = list(range(9))
    if where == "target":
        y[7] = None
    elif where == "tensor":
        rows[7] = None
    else:
        rows[7][1] = None
    table = pa.table({"X": pa.array(rows, pa.list_(pa.float64(), 2)), "y": y})
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=4)
    name = "y" if where == "target" else "X"
    for start in (0, 3, 7):
        # Versions of pyarrow up to 23 at least cannot read a column with a null tensor themselves.
        old = "|Expected all lists to be of size" if where == "tensor" else ""
        with pytest.raises(
            ValueError, match=rf"^Expected a value in every row of column '{name}', got none in row 7, where {old}"
        ):
            list(open_source(tmp_path / "d.parquet", block_bytes=32).batches(start))
    assert len(list(open_source(tmp_path / "d.parquet", block_bytes=32).batches(8))) == 1


@pytest.mark.parametrize(
    "model", [TraceNormClassifier(), TraceNormRegressor(), TensorClassifier(), TensorRegressor()], ids=repr
)
def test_a_file_of_samples_alone_is_refused_where_targets_are_needed(tmp_path, model):
    np.save(tmp_path / "d.npy", np.ones((12, 3, 2)))
    with pytest.raises(ValueError, match=r"^Expected targets with the samples, got none: pass y, or name them with"):
        model.fit(tmp_path / "d.npy")


def test_parquet_columns_of_other_types_are_refused(tmp_path):
    pq.write_table(pa.table({"X": [["a"], ["b"]], "y": [1, 2]}), tmp_path / "d.parquet")
    with pytest.raises(ValueError, match=r"^Expected column 'X' to hold numbers, .* got list<.*: cast it"):
        open_source(tmp_path / "d.parquet")


def test_parquet_files_of_several_types_are_refused(tmp_path):
    for part, dtype in enumerate([np.float64, np.float32]):
        columns = {"X": tensors(np.ones((2, 3), dtype)), "y": [1, 2]}
        pq.write_table(pa.table(columns), tmp_path / f"{part}.parquet")
    with pytest.raises(ValueError, match=r"^Expected column 'X' to be of one type in all files"):
        open_source(tmp_path)


@formats
def test_a_missing_name_is_answered_with_those_there_are(tmp_path, write):
    path, _, _ = write(tmp_path, *written())
    with pytest.raises(ValueError, match=r"^Expected target to be .*, got 'label': ") as info:
        open_source(path, target="label")
    if write not in (write_npy, write_npy_fortran, write_zarr_bare, write_csv):
        assert "'X'" in str(info.value)
        with pytest.raises(ValueError, match=r"^Expected samples to be one of the names .*'X'.*, got 'Z': "):
            open_source(path, samples="Z")


def test_missing_files_and_unknown_suffixes_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^Expected the path of a file or folder, got '.*none\.npz'"):
        open_source(tmp_path / "none.npz")
    (tmp_path / "d.docx").write_text("1,2")
    for path in (tmp_path, tmp_path / "d.docx"):
        with pytest.raises(ValueError, match=r"^Expected a path that ends in \.npy, \.npz, "):
            as_source(path)
    for name in ("d.h5", "d.parquet"):
        (tmp_path / name).write_text("nothing")
        with pytest.raises(ValueError, match=r"^Expected a whole file of numbers or strings, got "):
            open_source(tmp_path / name)
    for name in ("empty.zarr", "empty.parquet"):
        (tmp_path / name).mkdir()
        with pytest.raises(ValueError, match=r"^Expected .* in .*empty\."):
            open_source(tmp_path / name)


@pytest.mark.parametrize(
    ("library", "extra", "write"),
    [
        ("zarr", "zarr", write_zarr),
        ("h5py", "hdf5", write_hdf5),
        ("pyarrow", "parquet", write_parquet),
        ("pyarrow", "csv", write_csv),
        ("pyarrow", "arrow", write_feather),
    ],
)
def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch, library, extra, write):
    path, _, _ = write(tmp_path, *written())
    for module in (library, f"{library}.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"tracelearn.io.{extra}", raising=False)
    message = rf"{library}.*: pip install 'tracelearn\[{extra}\]'\.$"
    with pytest.raises(ImportError, match=message):
        open_source(path)


def test_lengths_are_compared_before_anything_is_read(tmp_path):
    X, y, weight = written()
    np.savez(tmp_path / "d.npz", X=X, y=y[1:], w=weight)
    with pytest.raises(
        ValueError, match=rf"^Expected one target for each sample, got {N} samples and {N - 1} targets: "
    ):
        open_source(tmp_path / "d.npz")
    with pytest.raises(ValueError, match=rf"got {N} samples and 2 weights: "):
        as_source(Counting(X, (2, 3, 2)), y, [1, 2])
    with pytest.raises(ValueError, match=r"Expected y to be an array with one row for each sample, got a single value"):
        as_source(Counting(X, (2, 3, 2)), "label")


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(3), r"got shape \(3,\)"),
        (np.ones((0, 3)), r"got shape \(0, 3\)"),
        (np.ones((3, 0)), r"got shape \(3, 0\)"),
        (np.ones((3, 2), complex), r"Expected numbers in 'X', got complex128"),
        (np.full((3, 2), "a"), r"Expected numbers in 'X', got <U1"),
    ],
)
def test_samples_that_are_no_samples_are_refused(tmp_path, X, message):
    np.savez(tmp_path / "d.npz", X=X)
    with pytest.raises(ValueError, match=message):
        open_source(tmp_path / "d.npz", target=None)


def test_a_group_is_not_an_array(tmp_path):
    group = zarr.open_group(str(tmp_path / "d.zarr"), mode="w")
    with pytest.raises(ValueError, match=r"^Expected X to be an array, got a zarr Group: "):
        as_source(group)


def test_a_block_size_and_a_start_are_counts(tmp_path):
    path, _, _ = write_npz(tmp_path, *written())
    with pytest.raises(ValueError, match=r"^Expected block_bytes to be"):
        open_source(path, block_bytes=0)
    with pytest.raises(ValueError, match=r"^Expected start to be"):
        open_source(path).batches(-1)


# --- stores and folders of strangers -----------------------------------------------------------------------------------


def zarr_store(folder, name="X", rows=20, zarr_format=3, **how):
    """Write a group with samples, perhaps nested, in chunks of ten rows, and targets."""
    path = folder / "d.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=zarr_format)
    group.create_array(name, data=np.arange(rows * 6.0).reshape(rows, 6), chunks=(10, 6), **how)
    group.create_array("y", data=np.arange(float(rows)), chunks=(10,))
    return path


def chunk_files(path):
    return sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith((".z", "zarr")))


def link_to(place, elsewhere):
    place.rename(elsewhere)
    place.symlink_to(elsewhere)


def link_to_a_device(place, elsewhere):
    place.unlink()
    place.symlink_to("/dev/zero")


def pipe(place, elsewhere):
    place.unlink()
    os.mkfifo(place)


@pytest.mark.skipif(os.name != "posix", reason="needs links, pipes and devices")
@pytest.mark.parametrize("replace", [link_to, link_to_a_device, pipe])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("which", ["chunk", "metadata of the array", "metadata of the group"])
def test_links_out_of_a_store_pipes_and_devices_are_refused_unread(tmp_path, replace, zarr_format, which):
    path = zarr_store(tmp_path, zarr_format=zarr_format)
    array, group = (".zarray", ".zgroup") if zarr_format == 2 else ("zarr.json", "zarr.json")
    place = {"chunk": chunk_files(path / "X")[0], "metadata of the array": path / "X" / array}.get(which, path / group)
    replace(place, tmp_path / "elsewhere")
    with pytest.raises(
        ValueError, match=r"^Expected only files and folders in .*, got '.*', which is a link to a place outside"
    ):
        open_source(path)


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_links_of_folders_may_stay_inside_or_lead_to_the_store_itself(tmp_path):
    path = zarr_store(tmp_path)
    link_to(path / "X", tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"^Expected only files and folders in "):
        open_source(path)
    (path / "X").unlink()
    (tmp_path / "elsewhere").rename(path / "Z")
    (path / "X").symlink_to(path / "Z")
    (tmp_path / "link.zarr").symlink_to(path)
    assert len(next(open_source(tmp_path / "link.zarr").batches())[0]) == 20


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_links_out_of_a_folder_of_parquet_files_are_refused(tmp_path):
    path, _, _ = write_parquet_folder(tmp_path, *written())
    link_to(path / "1.parquet", tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"^Expected only files and folders in "):
        open_source(path)


def zarr_labels(path, labels):
    group = zarr.open_group(str(path / "d.zarr"), mode="w")
    group.create_array("X", data=np.ones((len(labels), 2)))
    group.create_array("y", data=np.array(labels, np.dtypes.StringDType()), chunks=(len(labels),))
    return path / "d.zarr"


def hdf5_labels(path, labels):
    with h5py.File(path / "d.h5", "w") as file:
        file["X"], file["y"] = np.ones((len(labels), 2)), labels
    return path / "d.h5"


def parquet_labels(path, labels):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(2 * len(labels))), 2)
    pq.write_table(pa.table({"X": lists, "y": labels}), path / "d.parquet")
    return path / "d.parquet"


@pytest.mark.parametrize("write", [zarr_labels, hdf5_labels, parquet_labels])
def test_one_label_does_not_make_the_others_as_long(tmp_path, write):
    path = write(tmp_path, ["a"] * 19_999 + ["b" * 1000])
    tracemalloc.start()
    y = gathered(open_source(path).batches())[1]
    assert tracemalloc.get_traced_memory()[1] < 20e6  # 80 MB, were all as long
    tracemalloc.stop()
    assert (y[0], y[-1]) == ("a", "b" * 1000)
