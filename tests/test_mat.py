"""Files of MATLAB, of both kinds: the shapes of MATLAB, samples along any axis, and nothing but numbers and characters."""

import tracemalloc
import zlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import io

from tracelearn import TraceNormClassifier, open_source
from tracelearn.samples import mat

h5py = pytest.importorskip("h5py", reason="version 7.3 is HDF5, an extra")
KINDS = {"f8": "double", "f4": "single", "i2": "int16", "u1": "uint8"}


def write_5(path, arrays, compress=True):
    io.savemat(path, arrays, do_compression=compress)
    return path


def write_73(path, arrays):
    """Write as MATLAB does: axes backwards, text as numbers of characters, a header in front."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, given in arrays.items():
            values = np.atleast_2d(given)
            kind = KINDS.get(values.dtype.str[1:], "char")
            if kind == "char":
                width = values.dtype.itemsize // 4
                values = np.array([[ord(letter) for letter in row.ljust(width)] for row in values.ravel()], "u2")
            file.create_dataset(name, data=values.T, chunks=True).attrs["MATLAB_class"] = np.bytes_(kind)
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


every_version = pytest.mark.parametrize("write", [write_5, write_73])


@pytest.fixture
def data():
    X = np.random.default_rng(2).standard_normal((30, 4, 5))
    return X, np.where(X[:, 0, 0] > 0, 2.0, 1.0)


def read(source, start=0):
    X, y, _ = zip(*source.batches(start), strict=True)
    return np.concatenate(X), None if y[0] is None else np.concatenate(y)


@every_version
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i2"])
def test_samples_are_along_any_axis_of_matlab(write, axis, dtype, data, tmp_path):
    X, y = data
    X = (100 * X).astype(dtype)
    path = write(tmp_path / "d.mat", {"X": np.moveaxis(X, 0, axis), "y": y})
    source = open_source(path, sample_axis=axis, block_bytes=7 * 20 * X.itemsize)
    assert (source.sample_shape, source.n_samples, source.dtype) == ((4, 5), 30, dtype)
    for start in (0, 11):
        found, targets = read(source, start)
        assert_array_equal(found, X[start:])
        assert targets.dtype == np.int64  # labels, though MATLAB stores them as it stores all numbers
        assert_array_equal(targets, y[start:])


@every_version
def test_an_axis_that_is_as_long_as_the_targets_is_proposed(write, data, tmp_path):
    X, y = data
    path = write(tmp_path / "d.mat", {"X": np.moveaxis(X, 0, -1), "y": y})
    with pytest.raises(
        ValueError, match=r"got 4 samples and 30 targets: axis 2 of the samples .* sample_axis=\.\.\.\)"
    ):
        open_source(path)
    with pytest.raises(ValueError, match=r"^Expected sample_axis to be one of the 3 axes"):
        open_source(path, sample_axis=3)


@every_version
def test_labels_are_rows_of_characters_or_numbers(write, data, tmp_path):
    X, y = data
    labels = np.where(y > 1, "ill", "healthy")
    path = write(tmp_path / "d.mat", {"epochs": X, "label": labels, "age": y[:, None] + 0.5})
    found = read(open_source(path, samples="epochs", target="label"))[1]
    assert found.tolist() == labels.tolist()
    assert_array_equal(read(open_source(path, samples="epochs", target="age"))[1], y + 0.5)
    model = TraceNormClassifier().fit(open_source(path, samples="epochs", target="label"))
    assert model.classes_.tolist() == ["healthy", "ill"]


@pytest.mark.parametrize(
    "values", [{"a": 1.0}, np.array(["x", np.ones(2)], object), np.eye(3) * 1j], ids=["struct", "cell", "complex"]
)
def test_what_is_no_numbers_is_one_sentence(values, tmp_path):
    write_5(tmp_path / "d.mat", {"X": np.array([[values, values]]) if isinstance(values, dict) else values})
    with pytest.raises(ValueError, match=r"^Expected (real )?numbers.*, got ") as info:
        read(open_source(tmp_path / "d.mat", target=None))
    assert "\n" not in str(info.value)


def test_old_and_damaged_files_are_one_sentence(data, tmp_path):
    io.savemat(tmp_path / "old.mat", {"X": data[0][:, 0]}, format="4")
    with pytest.raises(ValueError, match=r"^Expected a file of MATLAB 5 or later, got .*: save it with -v7"):
        open_source(tmp_path / "old.mat", target=None)
    whole = write_5(tmp_path / "d.mat", {"X": data[0]}).read_bytes()
    for length in (0, 60, 130, 200, len(whole) // 2):
        (tmp_path / "d.mat").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"^Expected .*, got "):
            read(open_source(tmp_path / "d.mat", target=None))


def test_an_array_that_claims_other_bytes_than_it_has_is_refused_before_memory_is_taken(tmp_path):
    path = write_5(tmp_path / "d.mat", {"X": np.ones((20, 4, 5))}, compress=False)
    whole = path.read_bytes()
    sizes = np.array([20, 4, 5], "<i4").tobytes()
    data = np.array([9, 3200], "<u4").tobytes()
    for old, new, message in (
        (sizes, np.array([2**30, 2**20, 2**10], "<i4").tobytes(), "nearly all are missing"),
        (sizes, np.array([20, 4, 6], "<i4").tobytes(), "3200 bytes for an array of shape"),
        (data, np.array([9, 2**31], "<u4").tobytes(), "2147483648 bytes for an array"),
        (
            data,
            np.array([99, 3200], "<u4").tobytes(),
            "numbers of the unknown type 99",
        ),  # ends the process in SciPy 1.17
    ):
        assert whole.count(old) == 1
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(ValueError, match=message):
            read(open_source(path, target=None))


def test_deflated_zeros_behind_an_array_are_not_read(tmp_path):
    path = write_5(tmp_path / "d.mat", {"X": np.ones((20, 4, 5))})
    bomb = zlib.compress(zlib.decompress(path.read_bytes()[136:]) + bytes(50 << 20))
    path.write_bytes(path.read_bytes()[:128] + np.array([15, len(bomb)], "<u4").tobytes() + bomb)
    source = open_source(path, target=None)
    tracemalloc.start()
    assert_array_equal(read(source)[0], np.ones((20, 4, 5)))
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_files_of_either_byte_order_are_read_as_scipy_reads_them(data, tmp_path):
    X, y = data
    path = write_5(
        tmp_path / "d.mat", {"X": X[:, 0], "flags": y > 1, "few": np.arange(6.0).reshape(2, 3)}, compress=False
    )
    for name, values in io.loadmat(path).items():
        if name[0] != "_":
            array = next(array.read(()) for own, array in mat.arrays(path) if own == name)
            assert_array_equal(array, values)
    # The other order, by hand: MATLAB on machines that no longer exist.
    head = b"MATLAB 5.0".ljust(124) + b"\x01\x00MI"
    body = np.array([6, 8, 6, 0, 5, 8, 2, 3, (1 << 16) + 1], ">u4").tobytes() + b"X\0\0\0"
    body += np.array([9, 48], ">u4").tobytes() + np.arange(6, dtype=">f8").tobytes()
    (tmp_path / "big.mat").write_bytes(head + np.array([14, len(body)], ">u4").tobytes() + body)
    assert_array_equal(read(open_source(tmp_path / "big.mat", target=None))[0], np.arange(6).reshape(3, 2).T)


def test_links_to_other_files_are_not_followed(tmp_path):
    write_73(tmp_path / "secret.mat", {"X": np.ones((4, 3))})
    write_73(tmp_path / "d.mat", {"y": np.ones((4, 3))})
    with h5py.File(tmp_path / "d.mat", "r+") as file:
        file["X"] = h5py.ExternalLink(str(tmp_path / "secret.mat"), "X")
        file["Z"] = h5py.SoftLink("/y")
    with pytest.raises(ValueError, match=r"which are 'y', got 'X'"):
        open_source(tmp_path / "d.mat", target=None)
