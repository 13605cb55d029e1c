"""Addresses of fsspec: the formats whose library reads them give what a file of this machine gives."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tracelearn import TraceNormRegressor, open_source, stream
from tracelearn.cli import main

fsspec = pytest.importorskip("fsspec", reason="addresses are an extra")
pa = pytest.importorskip("pyarrow", reason="tables need pyarrow, an extra")
zarr = pytest.importorskip("zarr", reason="Zarr is an extra")

N, SHAPE = 30, (3, 4)


@pytest.fixture
def store():
    memory = fsspec.filesystem("memory")
    yield memory
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


@pytest.fixture
def data():
    X = np.random.default_rng(4).standard_normal((N, *SHAPE))
    return X, X[:, 0, 0] - X[:, 1, 1]


def table(X, y):
    columns = {f"a{i}_b{j}": X[:, i, j] for i in range(3) for j in range(4)}
    return pa.table({**columns, "y": y})


def write(name, X, y, store):
    if name.endswith(".zarr"):
        group = zarr.open_group(f"memory://bucket/{name}", mode="w")
        group.create_array("X", data=X, chunks=(7, *SHAPE))
        group.create_array("y", data=y)
        return
    with store.open(f"/bucket/{name}", "wb") as file:
        if name.endswith(".csv"):
            pytest.importorskip("pyarrow.csv").write_csv(table(X, y), file)
        elif name.endswith(".parquet"):
            pytest.importorskip("pyarrow.parquet").write_table(table(X, y), file)
        else:
            pytest.importorskip("pyarrow.feather").write_feather(table(X, y), file)


@pytest.mark.parametrize("name", ["d.csv", "d.parquet", "d.feather", "d.zarr"])
def test_addresses_give_what_was_written(name, data, store):
    X, y = data
    write(name, X, y, store)
    source = open_source(f"memory://bucket/{name}", block_bytes=7 * 12 * 8)
    assert (source.n_samples, source.sample_shape) == (N, SHAPE)
    for start in (0, 10):
        blocks = list(source.batches(start))
        assert_array_equal(np.concatenate([block[0] for block in blocks]), X[start:])
        assert_array_equal(np.concatenate([block[1] for block in blocks]), y[start:])
    expected = TraceNormRegressor(alpha=0.05).fit(X, y)
    np.testing.assert_allclose(
        TraceNormRegressor(alpha=0.05).fit(f"memory://bucket/{name}").coef_, expected.coef_, atol=1e-6
    )


def test_commands_and_streams_take_addresses(data, store, tmp_path, capsys):
    write("d.parquet", *data, store)
    with pytest.raises(SystemExit) as left:
        main(["fit", "memory://bucket/d.parquet", "--alpha", "0.05", "--out", str(tmp_path / "model")])
    assert left.value.code == 0
    assert "3 × 4" in capsys.readouterr().out
    model = TraceNormRegressor(alpha=0.05)
    assert stream("memory://bucket/d.parquet", model).n_samples == N


def test_addresses_that_lead_nowhere_are_one_sentence(store):
    store.pipe("/bucket/d.npz", b"none")
    with pytest.raises(
        FileNotFoundError, match=r"^Expected the path of a file or folder, got 'memory://bucket/none\.csv'"
    ):
        open_source("memory://bucket/none.csv")
    with pytest.raises(
        ValueError, match=r"^Expected an address of Zarr, Parquet, CSV or Arrow, got 'memory://bucket/d\.npz'"
    ):
        open_source("memory://bucket/d.npz")
    with pytest.raises(ValueError, match=r"^Expected .*, got 'nothing://bucket/d\.csv', of which .*ot known"):
        open_source("nothing://bucket/d.csv")
    store.pipe("/bucket/d.parquet", b"none")
    with pytest.raises(ValueError, match=r"^Expected a whole file"):
        open_source("memory://bucket/d.parquet")


def test_a_store_that_names_a_codec_that_could_run_code_is_refused(data, store):
    write("d.zarr", *data, store)
    place = "/bucket/d.zarr/X/zarr.json"
    store.pipe(place, store.cat(place).replace(b'"zstd"', b'"numcodecs.pickle"'))
    with pytest.raises(ValueError, match=r"^Expected ") as info:
        list(open_source("memory://bucket/d.zarr").batches())
    assert "pickle" in str(info.value)


@pytest.mark.parametrize("scheme", ["file", "local"])
def test_an_address_of_this_machine_is_a_path_whose_links_are_refused(scheme, data, tmp_path):
    X, y = data
    group = zarr.open_group(tmp_path / "d.zarr", mode="w")
    group.create_array("X", data=X, chunks=(N, *SHAPE))
    group.create_array("y", data=y)
    address = f"{scheme}://{tmp_path}/d.zarr"
    (block,) = open_source(address).batches()
    assert_array_equal(block[0], X)
    chunk = next(file for file in (tmp_path / "d.zarr" / "X" / "c").rglob("*") if file.is_file())
    chunk.rename(tmp_path / "elsewhere")
    chunk.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"^Expected only files and folders in"):
        open_source(address)
