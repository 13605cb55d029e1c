"""Files of MATLAB, of both kinds: the shapes of MATLAB, samples along any axis, and nothing but numbers and characters."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import io

from tracelearn import TraceNormClassifier, open_source

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


def test_damaged_files_are_one_sentence(data, tmp_path):
    whole = write_5(tmp_path / "d.mat", {"X": data[0]}).read_bytes()
    for length in (0, 60, 200, len(whole) // 2):
        (tmp_path / "d.mat").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"^Expected .*, got ") as info:
            read(open_source(tmp_path / "d.mat", target=None))
        assert "\n" not in str(info.value)


def test_an_array_that_is_larger_than_the_free_memory_is_refused_before_it_is_read(tmp_path):
    path = write_5(tmp_path / "d.mat", {"X": np.ones((20, 4, 5))}, compress=False)
    sizes = np.array([20, 4, 5], "<i4").tobytes()
    assert path.read_bytes().count(sizes) == 1
    path.write_bytes(path.read_bytes().replace(sizes, np.array([2**30, 2**10, 5], "<i4").tobytes()))
    with pytest.raises(ValueError, match=r"^Expected 'X' of '.*' to fit in .* of free memory, got 4.1e\+04 GiB"):
        open_source(path, target=None)


def test_truth_values_and_matrices_are_read_as_scipy_reads_them(data, tmp_path):
    X, y = data
    path = write_5(tmp_path / "d.mat", {"X": X[:, 0], "flags": y[:, None] > [1, 2]})
    assert_array_equal(read(open_source(path, samples="flags", target=None))[0], y[:, None] > [1, 2])
    assert_array_equal(read(open_source(path, target=None))[0], io.loadmat(path)["X"])


def test_a_vector_larger_than_the_memory_is_refused_before_it_is_read(data, tmp_path):
    path = write_73(tmp_path / "d.mat", {"X": data[0]})
    with h5py.File(path, "r+") as file:
        large = file.create_dataset("y", shape=(1 << 40, 1), chunks=(1 << 20, 1), dtype="f8")
        large.attrs["MATLAB_class"] = np.bytes_("double")
    with pytest.raises(ValueError, match=r"^Expected 'y' of .* GiB that must be read at once"):
        open_source(path)
