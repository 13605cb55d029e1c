"""Long tables, one reading in each row: as series they are the samples of memory; as samples they give a warning."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pa = pytest.importorskip("pyarrow", reason="tables need pyarrow, an extra")
import pyarrow.csv as csv  # noqa: E402
import pyarrow.feather as feather  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from tracelearn import TensorClassifier, TraceNormClassifier, open_source  # noqa: E402
from tracelearn.cli import main  # noqa: E402

N, CHANNELS, TIMES = 24, 3, 7
WRITERS = {
    "csv": csv.write_csv,
    "parquet": lambda table, path: pq.write_table(table, path, row_group_size=17),
    "feather": lambda table, path: feather.write_feather(table, path, chunksize=11),
}
every_format = pytest.mark.parametrize("suffix", WRITERS)


@pytest.fixture
def series():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((N, CHANNELS, TIMES))
    return X, np.where(X[:, 0].sum(axis=1) > 0, "walk", "run")


def long_table(X, y, times=None, names=None):
    """Make a table of one reading in each row, recording after recording."""
    n, channels, n_times = X.shape
    names = [f"r{i:02d}" for i in range(n)] if names is None else names
    times = np.tile(0.5 * np.arange(n_times), n) if times is None else times
    measured = {f"acc_{'xyz'[c]}": X[:, c].ravel() for c in range(channels)}
    return pa.table(
        {
            "rec": np.repeat(names, n_times),
            "t": times,
            **measured,
            "label": np.repeat(y, n_times),
            "subject": np.repeat(np.arange(n) // 3, n_times),
        }
    )


def write(table, folder, suffix):
    path = folder / f"long.{suffix}"
    WRITERS[suffix](table, path)
    return path


def read(source, start=0):
    X, y, _ = zip(*source.batches(start), strict=True)
    return np.concatenate(X), np.concatenate(y)


OPTIONS = {"target": "label", "sample": "rec", "time": "t", "ignore": ("subject",)}


@every_format
@pytest.mark.parametrize("shuffled", [False, True])
def test_readings_are_series_in_the_order_of_their_samples_and_times(suffix, shuffled, series, tmp_path):
    X, y = series
    table = long_table(X, y)
    order = np.arange(N)
    if shuffled:
        rows = np.random.default_rng(0).permutation(len(table))
        order = np.array(list(dict.fromkeys(rows // TIMES)))  # samples come in the order of their first row
        table = table.take(rows)
    source = open_source(write(table, tmp_path, suffix), block_bytes=5 * CHANNELS * TIMES * 8, **OPTIONS)
    assert (source.n_samples, source.sample_shape, source.dtype) == (N, (CHANNELS, TIMES), np.float64)
    for start in (0, 9):
        samples, labels = read(source, start)
        assert_allclose(samples, X[order][start:], rtol=1e-12)
        assert labels.tolist() == y[order][start:].tolist()
    assert_array_equal(source.column("subject"), (np.arange(N) // 3)[order])
    assert_array_equal(pickle.loads(pickle.dumps(source)).column("subject"), source.column("subject"))


def test_columns_and_times_are_the_modes_of_series(series, tmp_path):
    source = open_source(write(long_table(*series), tmp_path, "csv"), **OPTIONS)
    channels, times = source.modes
    assert (channels.name, channels.values.tolist()) == ("channel", ["acc_x", "acc_y", "acc_z"])
    assert (times.name, times.values.tolist()) == ("t", (0.5 * np.arange(TIMES)).tolist())
    # Clocks that run on from sample to sample are set to zero at the start of each.
    source = open_source(write(long_table(*series, times=0.25 * np.arange(N * TIMES)), tmp_path, "csv"), **OPTIONS)
    assert_allclose(source.modes[1].values, 0.25 * np.arange(TIMES), atol=1e-9)
    uneven = np.sort(np.random.default_rng(0).uniform(size=N * TIMES))
    source = open_source(write(long_table(*series, times=uneven), tmp_path, "csv"), **OPTIONS)
    assert source.modes[1].values.tolist() == list(range(TIMES))


@pytest.mark.parametrize(
    "make", [lambda table: table, lambda table: table.to_reader(11), lambda table: table.to_pandas()]
)
def test_tables_in_memory_are_series_too(make, series):
    X, y = series
    source = open_source(make(long_table(X, y)), **OPTIONS)
    assert_allclose(read(source)[0], X, rtol=1e-12)
    assert_array_equal(source.column("subject"), np.arange(N) // 3)
    expected = TraceNormClassifier(alpha=0.02, tol=1e-10).fit(X, y)
    assert_allclose(TraceNormClassifier(alpha=0.02, tol=1e-10).fit(source).coef_, expected.coef_, atol=1e-8)


def test_columns_of_a_table_in_memory_can_be_read(series):
    X, y = series
    table = long_table(X, y).drop_columns(["rec", "t"])
    source = open_source(table, target="label", ignore=("subject",))
    assert_array_equal(source.column("subject"), np.repeat(np.arange(N) // 3, TIMES))
    with pytest.raises(
        ValueError, match=r"^Expected column to be one of the names in 'the table in memory', .*, got 'session'"
    ):
        source.column("session")


@every_format
def test_series_of_fewer_readings_end_early_and_left_out_readings_are_gaps(suffix, series, tmp_path):
    X, y = series
    table = long_table(X, y, times=np.tile(0.5 * np.arange(TIMES), N) + np.repeat(np.arange(N), TIMES))
    rows = np.delete(np.arange(N * TIMES), [2, 3, 5 * TIMES - 1, 7 * TIMES - 2, 7 * TIMES - 1])
    expected = X.copy()
    expected[0, :, 2:4] = expected[4, :, -1] = expected[6, :, -2:] = np.nan
    source = open_source(write(table.take(rows), tmp_path, suffix), **OPTIONS)
    samples, labels = read(source)
    assert_allclose(samples, expected, rtol=1e-12)
    assert labels.tolist() == y.tolist()
    assert_array_equal(source.column("subject"), np.arange(N) // 3)
    assert_allclose(source.modes[1].values, 0.5 * np.arange(TIMES))
    with pytest.raises(ValueError, match=r"got NaN at sample 0.*TensorClassifier"):
        TraceNormClassifier().fit(source)
    # Of times that are multiples of no step readings are counted.
    uneven = table.set_column(1, "t", pa.array(np.sort(np.random.default_rng(0).uniform(size=N * TIMES))))
    samples, _ = read(open_source(write(uneven.take(rows), tmp_path, suffix), **OPTIONS))
    assert_allclose(samples[0, :, :5], np.delete(X[0], [2, 3], axis=1), rtol=1e-12)
    assert np.isnan(samples[0, :, 5:]).all()


@every_format
def test_missing_entries_are_gaps(suffix, series, tmp_path):
    X, y = series
    table = long_table(X, y)
    values = table["acc_y"].to_pylist()
    values[3] = None
    path = write(table.set_column(3, "acc_y", pa.array(values)), tmp_path, suffix)
    samples, _ = read(open_source(path, **OPTIONS))
    assert np.argwhere(np.isnan(samples)).tolist() == [[0, 1, 3]]
    model = TensorClassifier(None, cv=3, time_axis=1).fit(open_source(path, **OPTIONS))
    filled = X.copy()
    filled[0, 1, 3] = (X[0, 1, 2] + X[0, 1, 4]) / 2
    assert_allclose(model.coef_, TensorClassifier(None, cv=3).fit(filled, y).coef_, rtol=1e-6)


def test_what_keeps_readings_from_being_series_is_one_sentence(series, tmp_path):
    X, y = series
    table = long_table(X, y)
    for case, options, message in (
        (
            table.take([*range(1, len(table)), 1]),
            {},
            r"^Expected one reading of each sample at a time, got two of r00 at 0\.5",
        ),
        (
            table,
            {"target": "acc_x", "ignore": ("label", "subject")},
            r"^Expected one value of column 'acc_x' for each sample, got several for r00",
        ),
        (table, {"sample": "record"}, r"^Expected sample to be one of the names .*, got 'record' \(is 'rec' meant\?\)"),
        (table, {"time": None}, r"^Expected sample and time together"),
        (table, {"tensor_shape": (21,)}, r"^Expected tensor_shape=None with sample and time"),
        (table, {"sample": "subject", "ignore": ()}, r"^Expected numbers in the columns .*, got text in 'rec'"),
    ):
        with pytest.raises(ValueError, match=message):
            open_source(write(case, tmp_path, "csv"), **OPTIONS | options)
    np.savez(tmp_path / "d.npz", X=X, label=y)
    with pytest.raises(
        ValueError, match=r"^Expected sample and time with a table of one reading in each row, got '.*d\.npz'"
    ):
        open_source(tmp_path / "d.npz", **OPTIONS | {"ignore": ()})


@every_format
@pytest.mark.parametrize("chosen", ["X", "acc_*"])
def test_readings_that_are_taken_for_samples_give_a_warning(suffix, chosen, series, tmp_path):
    X, y = series
    table = long_table(X, y, names=np.arange(N) + 100).drop_columns(["subject"])
    message = (
        r"got a column 'rec' that is constant over .* open_source\(path, sample=.* open_source\(path, time=.* ignore="
    )
    path = write(table, tmp_path, suffix)
    with pytest.warns(UserWarning, match=message):
        open_source(path, samples=chosen, target="label")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_source(path, samples=chosen, target="label", ignore=("rec",))
        open_source(path, target="label", sample="rec", time="t")


def test_commands_read_series(series, tmp_path, capsys):
    write(long_table(*series), tmp_path, "csv")
    named = ["--target", "label", "--sample", "rec", "--time", "t", "--groups", "subject"]
    with pytest.raises(SystemExit) as ended:
        main(["fit", str(tmp_path / "long.csv"), *named, "--alpha", "0.05", "--out", str(tmp_path / "model")])
    assert ended.value.code == 0
    assert "3 × 7" in capsys.readouterr().out


SORTED = np.repeat(["a", "b", "a", "b"], 15)


@pytest.mark.parametrize(
    ("column", "y"),
    [
        (np.arange(60), SORTED),
        (np.tile([1, 2, 3], 20), SORTED),
        (np.repeat([1, 2] * 10, 3), np.repeat(["a", "b"] * 10, 3)),
        (np.repeat(np.arange(4), 15), np.roll(SORTED, 3)),
        (np.ones(60, int), SORTED),
    ],
    ids=["counts", "cycles", "comes back", "labels change within", "constant"],
)
def test_a_column_that_names_no_recordings_gives_no_warning(column, y, tmp_path):
    rng = np.random.default_rng(0)
    path = write(
        pa.table({"id": column, "dose": rng.normal(size=60), "age": rng.normal(size=60), "y": y}), tmp_path, "csv"
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Expected one sample in each row")
        warnings.filterwarnings("ignore", message="Expected measurements")
        open_source(path)
