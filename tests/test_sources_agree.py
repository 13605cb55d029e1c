"""The same samples through every source: the same model, whatever the format, the batches and their order."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.io import savemat
from sklearn.base import clone

from tracelearn import TensorClassifier, TensorRegressor, TraceNormClassifier, TraceNormRegressor, open_source

SHAPE = (4, 3, 2)
N = 60


class Batches:
    """An iterable that begins anew, with batches of uneven size."""

    def __init__(self, X, y, cuts=(7, 8, 30)):
        self.parts = list(zip(np.split(X, cuts), np.split(y, cuts), strict=True))

    def __iter__(self):
        return iter(self.parts)


def as_npz(X, y, folder):
    np.savez_compressed(folder / "data.npz", X=X, y=y)
    return (folder / "data.npz",)


def as_npy(X, y, folder):
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return str(folder / "X.npy"), str(folder / "y.npy")


def as_memmap(X, y, folder):
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r"), y


def as_zarr(X, y, folder):
    zarr = pytest.importorskip("zarr", reason="Zarr is an extra")
    group = zarr.open_group(folder / "data.zarr", mode="w")
    group.create_array("X", data=X, chunks=(11, *X.shape[1:]))
    group.create_array("y", data=y)
    return (folder / "data.zarr",)


def as_zarr_arrays(X, y, folder):
    zarr = pytest.importorskip("zarr", reason="Zarr is an extra")
    return zarr.create_array(folder / "X.zarr", data=X, chunks=(11, *X.shape[1:])), y


def as_hdf5(X, y, folder):
    h5py = pytest.importorskip("h5py", reason="HDF5 is an extra")
    with h5py.File(folder / "data.h5", "w") as file:
        file["X"] = X
        file["y"] = y.astype("S") if y.dtype.kind == "U" else y
    return (folder / "data.h5",)


def as_parquet(X, y, folder):
    pa = pytest.importorskip("pyarrow", reason="Parquet is an extra")
    import pyarrow.parquet as pq

    table = pa.table({"X": pa.FixedShapeTensorArray.from_numpy_ndarray(X), "y": y})
    pq.write_table(table, folder / "data.parquet", row_group_size=17)
    return (folder / "data.parquet",)


def wide(X, y):
    """Make a table with one column for each entry, whose names say where it belongs."""
    pa = pytest.importorskip("pyarrow", reason="tables need pyarrow, an extra")
    names = ["_".join(f"{letter}{i}" for letter, i in zip("abc", place, strict=True)) for place in np.ndindex(SHAPE)]
    return pa.table({"y": y, **dict(zip(names[::-1], X.reshape(len(X), -1).T[::-1], strict=True))})


def as_wide_parquet(X, y, folder):
    pytest.importorskip("pyarrow.parquet", reason="Parquet is an extra").write_table(wide(X, y), folder / "d.parquet")
    return (folder / "d.parquet",)


def as_csv(X, y, folder):
    wide(X, y).to_pandas().to_csv(folder / "data.csv", index=False)
    return (folder / "data.csv",)


def as_feather(X, y, folder):
    pytest.importorskip("pyarrow.feather", reason="Arrow is an extra").write_feather(wide(X, y), folder / "d.feather")
    return (folder / "d.feather",)


def as_lists(X, y, folder):
    pq = pytest.importorskip("pyarrow.parquet", reason="Parquet is an extra")
    pq.write_table(pytest.importorskip("pyarrow").table({"X": X.tolist(), "y": y}), folder / "lists.parquet")
    return (folder / "lists.parquet",)


def as_mat(X, y, folder):
    savemat(folder / "data.mat", {"X": X, "y": y})
    return (folder / "data.mat",)


def as_nifti(X, y, folder):
    nibabel = pytest.importorskip("nibabel", reason="NIfTI is an extra")
    nibabel.save(nibabel.Nifti1Image(np.moveaxis(X, 0, -1), np.eye(4)), folder / "bold.nii.gz")
    np.save(folder / "labels.npy", y)
    return folder / "bold.nii.gz", str(folder / "labels.npy")


def as_address(X, y, folder):
    fsspec = pytest.importorskip("fsspec", reason="addresses are an extra")
    path = as_csv(X, y, folder)[0]
    fsspec.filesystem("memory").pipe("/agree/data.csv", path.read_bytes())
    return ("memory://agree/data.csv",)


def as_torch(X, y, folder, loaded=False):
    data = pytest.importorskip("torch.utils.data", reason="PyTorch is an extra")

    class Samples(data.Dataset):
        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return X[i], y[i]

    collate = lambda pairs: tuple(np.stack(part) for part in zip(*pairs, strict=True))  # noqa: E731 - labels are text
    return (data.DataLoader(Samples(), batch_size=13, collate_fn=collate) if loaded else Samples(),)


def as_dask(X, y, folder):
    da = pytest.importorskip("dask.array", reason="Dask is an extra")
    return da.from_array(X, chunks=(13, 2, 3, 2)), da.from_array(y, chunks=20)


SOURCES = {
    "npz": as_npz,
    "npy": as_npy,
    "memory map": as_memmap,
    "zarr": as_zarr,
    "zarr arrays": as_zarr_arrays,
    "hdf5": as_hdf5,
    "parquet": as_parquet,
    "wide parquet": as_wide_parquet,
    "lists in parquet": as_lists,
    "csv": as_csv,
    "feather": as_feather,
    "mat": as_mat,
    "nifti": as_nifti,
    "address": as_address,
    "table": lambda X, y, folder: (wide(X, y), "y"),
    "arrow stream": lambda X, y, folder: (wide(X, y).to_reader(7),),
    "torch dataset": as_torch,
    "torch loader": lambda X, y, folder: as_torch(X, y, folder, loaded=True),
    "batches": lambda X, y, folder: (Batches(X, y),),
    "list of batches": lambda X, y, folder: (Batches(X, y).parts,),
    "generator": lambda X, y, folder: ((part for part in Batches(X, y)),),
    "generator, backwards": lambda X, y, folder: ((part for part in Batches(X, y).parts[::-1]),),
    "one sample at a time": lambda X, y, folder: ((part for part in Batches(X, y, range(1, N))),),
    "dask": as_dask,
}
FILES = [
    "npz",
    "npy",
    "memory map",
    "zarr",
    "zarr arrays",
    "hdf5",
    "parquet",
    "wide parquet",
    "csv",
    "feather",
    "mat",
    "nifti",
    "address",
]
ONCE = {name for name in SOURCES if "generator" in name or "one sample" in name}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(11)
    X = rng.standard_normal((N, *SHAPE))
    scores = X[:, 0, 0, 0] - X[:, 1, 1, 1]
    labels = np.array(["ash", "birch", "cedar"])[np.digitize(scores, [-0.7, 0.7])]
    return X, scores + 0.2 * rng.standard_normal(N), labels


@pytest.fixture(params=["fits in memory", "does not"])
def small_blocks(request, monkeypatch):
    """Read a few samples at a time, whatever the memory of the machine, and never gather them."""
    if request.param == "does not":
        monkeypatch.setattr("tracelearn.samples.reading.available_memory", lambda: 1)
    monkeypatch.setattr("tracelearn.io.columns.available_memory", lambda: 8 * (9 * 24 * 8))  # nine samples a block


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("source", SOURCES)
def test_a_regressor_learns_the_same_from_every_source(source, data, tmp_path):
    X, y, _ = data
    model = TraceNormRegressor(alpha=0.05, tol=1e-11)
    expected = clone(model).fit(X, y)
    found = clone(model).fit(*SOURCES[source](X, y, tmp_path))
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8)
    assert_allclose(found.intercept_, expected.intercept_, atol=1e-8)
    assert found.sample_shape_ == SHAPE
    assert found.dual_gap_ <= 1e-11


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_classifier_learns_the_same_from_every_source(source, loss, data, tmp_path):
    X, _, y = data
    model = TraceNormClassifier(alpha=0.02, tol=1e-10, loss=loss)
    arguments = SOURCES[source](X, y, tmp_path)
    if source in ONCE and loss != "squared_error":
        with pytest.raises(ValueError, match="read more than once"):
            clone(model).fit(*arguments)
        return
    found, expected = clone(model).fit(*arguments), clone(model).fit(X, y)
    assert found.classes_.tolist() == ["ash", "birch", "cedar"]
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8)
    assert found.predict(X[:5]).tolist() == expected.predict(X[:5]).tolist()


@pytest.mark.parametrize("source", sorted(set(SOURCES) - ONCE))
def test_cross_validation_chooses_the_same_from_every_source(source, data, tmp_path):
    X, y, labels = data
    expected = TensorRegressor(alphas=4, cv=3, views=None).fit(X, y)
    found = TensorRegressor(alphas=4, cv=3, views=None).fit(*SOURCES[source](X, y, tmp_path))
    assert_allclose(found.alpha_, expected.alpha_, rtol=1e-6)
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8)
    (tmp_path / "labels").mkdir()
    expected = TensorClassifier(alphas=4, cv=3, views=None).fit(X, labels)
    found = TensorClassifier(alphas=4, cv=3, views=None).fit(*SOURCES[source](X, labels, tmp_path / "labels"))
    assert_allclose(found.alpha_, expected.alpha_, rtol=1e-6)
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8)
    assert_allclose(found.predict_proba(X), expected.predict_proba(X), rtol=0, atol=1e-6)
    assert_allclose(found.score_path_, expected.score_path_, atol=1e-9)


@pytest.mark.parametrize("source", FILES)
def test_predictions_of_a_source_are_those_of_its_samples(source, data, tmp_path):
    X, y, _ = data
    model = TraceNormRegressor(alpha=0.05).fit(X, y)
    assert_allclose(model.predict(SOURCES[source](X, y, tmp_path)[0]), model.predict(X), rtol=1e-12)


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_sparse_rows_take_the_shape_they_are_given(loss, data):
    X, y, _ = data
    X = np.where(np.abs(X) > 0.8, X, 0.0)
    model = TraceNormRegressor(alpha=0.05, tol=1e-10, loss=loss, tensor_shape=SHAPE)
    expected = clone(model).fit(X, y)
    rows = sparse.csr_array(X.reshape(N, -1))
    found = clone(model).fit(rows, y)
    assert_allclose(found.coef_tensor_, expected.coef_, rtol=0, atol=1e-8)
    assert_allclose(found.predict(rows), expected.predict(X), rtol=1e-6)


@pytest.mark.parametrize("source", SOURCES)
def test_partial_fit_takes_every_source(source, data, tmp_path):
    X, y, _ = data
    model = TraceNormRegressor(alpha=0.05, tol=1e-11, keep_moments=True)
    expected = clone(model).fit(X, y)
    found = clone(model).partial_fit(X[:25], y[:25]).partial_fit(*SOURCES[source](X[25:], y[25:], tmp_path))
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-6)
    assert_allclose(found.moments_.gram, expected.moments_.gram, rtol=1e-10, atol=1e-10)


def test_weights_and_names_come_from_the_file(data, tmp_path):
    X, y, _ = data
    weight = np.linspace(0.1, 2.0, N)
    np.savez(tmp_path / "data.npz", epochs=X, rating=y, trust=weight)
    source = open_source(tmp_path / "data.npz", samples="epochs", target="rating", weight="trust")
    found = TraceNormRegressor(alpha=0.05, tol=1e-11).fit(source)
    assert_allclose(found.coef_, TraceNormRegressor(alpha=0.05, tol=1e-11).fit(X, y, weight).coef_, rtol=0, atol=1e-8)


def test_an_iterator_that_breaks_off_leaves_an_error_and_no_model(data):
    X, y, _ = data

    def broken():
        yield X[:20], y[:20]
        raise OSError("the cable was pulled")

    model = TraceNormRegressor()
    with pytest.raises(OSError, match="the cable was pulled"):
        model.fit(broken())
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (lambda X, y: [], "got no block"),
        (lambda X, y: [(X, y), (X[:, :2], y)], "Expected samples of shape"),
        (lambda X, y: [(X, y), (np.full_like(X, np.nan), y)], "Expected finite numbers in X"),
        (lambda X, y: [(X, y[:-1])], "Expected one row of targets for each sample"),
    ],
)
def test_bad_batches_get_a_sentence(batches, message, data):
    X, y, _ = data
    with pytest.raises(ValueError, match=message):
        TraceNormRegressor().fit(iter(batches(X, y)))


@pytest.mark.parametrize("kind", ["generator", "list of batches"])
@pytest.mark.parametrize("empty", [0, 1])
def test_a_batch_may_weigh_nothing(kind, empty, data):
    X, y, labels = data
    weight = np.linspace(0.1, 2.0, N)
    parts = [slice(0, 20), slice(20, 40), slice(40, 60)]
    weight[parts[empty]] = 0.0
    for model, target in ((TraceNormRegressor(alpha=0.05, tol=1e-11), y), (TraceNormClassifier(tol=1e-11), labels)):
        batches = [(X[part], target[part], weight[part]) for part in parts]
        found = clone(model).fit(batches if kind != "generator" else (batch for batch in batches))
        assert_allclose(found.coef_, clone(model).fit(X, target, weight).coef_, rtol=0, atol=1e-8)
        with pytest.raises(ValueError, match=r"^Expected some sample weight above zero"):
            clone(model).fit(iter([(X[part], target[part], np.zeros(20)) for part in parts]))
