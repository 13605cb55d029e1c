"""Tables as people have them: one column for each entry, lists, text files, Arrow files and streams of rows."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pa = pytest.importorskip("pyarrow", reason="tables need pyarrow, an extra")
import pyarrow.feather as feather  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from tracelearn import TraceNormClassifier, TraceNormRegressor, open_source  # noqa: E402
from tracelearn.cli import main  # noqa: E402

N, SHAPE = 40, (3, 12)
NAMES = [f"ch{i}_t{j}" for i in range(1, 4) for j in range(1, 13)]


@pytest.fixture
def data():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((N, *SHAPE))
    return X, np.where(X[:, 0, 0] + X[:, 1, 1] > 0, "ill", "well")


def wide(X, y, names=NAMES, order=None):
    columns = dict(zip(names, X.reshape(len(X), -1).T, strict=True)) | {"diagnosis": y}
    return pa.table({name: columns[name] for name in order or columns})


def write_parquet(table, path):
    pq.write_table(table, path.with_suffix(".parquet"), row_group_size=17)
    return path.with_suffix(".parquet")


def write_csv(table, path, mark=",", point=".", suffix=".csv"):
    rows = [table.column_names, *zip(*(column.to_pylist() for column in table.columns), strict=True)]
    text = "\n".join(mark.join(str(value).replace(".", point) for value in row) for row in rows)
    path.with_suffix(suffix).write_text(text + "\n")
    return path.with_suffix(suffix)


def write_excel(table, path):
    return write_csv(table, path, ";", ",")


def write_tsv(table, path):
    return write_csv(table, path, "\t", suffix=".tsv")


def write_feather(table, path):
    feather.write_feather(table, path.with_suffix(".feather"), chunksize=11)
    return path.with_suffix(".feather")


def write_arrow_stream(table, path):
    with pa.ipc.new_stream(path.with_suffix(".arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=11)
    return path.with_suffix(".arrow")


WRITERS = {
    "parquet": write_parquet,
    "csv": write_csv,
    "csv of a spreadsheet in German": write_excel,
    "tsv": write_tsv,
    "feather": write_feather,
    "arrow stream": write_arrow_stream,
}
every_format = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


def read(source, start=0):
    X, y, weight = zip(*source.batches(start), strict=True)
    return np.concatenate(X), None if y[0] is None else np.concatenate(y), weight


@every_format
@pytest.mark.parametrize("order", [None, sorted([*NAMES, "diagnosis"])], ids=["in order", "sorted as text"])
def test_names_that_form_a_grid_give_shape_and_order(write, order, data, tmp_path):
    X, y = data
    source = open_source(write(wide(X, y, order=order), tmp_path / "d"), target="diagnosis", block_bytes=9 * 36 * 8)
    assert (source.sample_shape, source.n_samples, source.dtype) == (SHAPE, N, np.float64)
    for start in (0, 7, 39):
        found, labels, _ = read(source, start)
        assert_array_equal(found, X[start:])
        assert labels.tolist() == y[start:].tolist()
    assert_array_equal(read(pickle.loads(pickle.dumps(source)))[0], X)


@pytest.mark.parametrize(
    "names",
    [
        [f"('{channel}', '{band}')" for channel in ("Fz", "Cz", "Oz") for band in "abcdefghijkl"],
        [f"x.{i}.{j}" for i in "zyx" for j in range(12)],
        [f"{channel}-{0.05 * t:.2f}" for channel in ("C3", "Cz", "C4") for t in range(12)],
        [f"run1_{i:02d}_{j:03d}" for i in range(3) for j in range(12)],
    ],
)
def test_names_of_many_kinds_form_grids(names, data, tmp_path):
    X, y = data
    source = open_source(write_parquet(wide(X, y, names), tmp_path / "d"), target="diagnosis")
    assert source.sample_shape == SHAPE
    assert_array_equal(read(source)[0], X)


@every_format
def test_a_shape_that_is_given_orders_columns_without_a_grid(write, data, tmp_path):
    X, y = data
    path = write(wide(X, y, [f"feature{i}" for i in range(36)]), tmp_path / "d")
    assert open_source(path, target="diagnosis").sample_shape == (36,)
    source = open_source(path, target="diagnosis", tensor_shape=(2, 3, 6))
    assert_array_equal(read(source)[0], X.reshape(N, 2, 3, 6))
    with pytest.raises(ValueError, match=r"^Expected 24 columns in .*, got 36, from 'feature0' to 'feature35': choose"):
        open_source(path, target="diagnosis", tensor_shape=(2, 12))


def test_names_of_a_grid_are_names_and_coordinates_of_modes(data, tmp_path):
    X, y = data
    names = [f"{channel}_t{0.5 * t:.1f}" for channel in ("Fz", "Cz", "Oz") for t in range(12)]
    path = write_csv(wide(X, y, names), tmp_path / "d")
    for source in (open_source(path, target="diagnosis"), open_source(wide(X, y, names), target="diagnosis")):
        channels, times = source.modes
        assert (channels.name, channels.values.tolist()) == ("mode 0", ["Fz", "Cz", "Oz"])
        assert (times.name, times.values.tolist()) == ("t", [0.5 * t for t in range(12)])
    (one,) = open_source(path, target="diagnosis", samples="Fz*").modes
    assert (one.name, one.values.tolist()) == ("Fz_t", [0.5 * t for t in range(12)])
    assert [mode.name for mode in TraceNormClassifier().fit(path, "diagnosis").modes_] == ["mode 0", "t"]


def test_a_shape_that_the_names_contradict_is_refused(data, tmp_path):
    path = write_csv(wide(*data), tmp_path / "d")
    assert open_source(path, target="diagnosis", tensor_shape=SHAPE).sample_shape == SHAPE
    with pytest.raises(ValueError, match=r"^Expected tensor_shape to be \(3, 12\), as the names .*, got \(12, 3\)"):
        open_source(path, target="diagnosis", tensor_shape=(12, 3))


@every_format
def test_other_columns_are_left_out_by_name_or_by_pattern(write, data, tmp_path):
    X, y = data
    table = wide(X, y).append_column("age", pa.array(np.arange(N))).append_column("w", pa.array(np.arange(N) + 1.0))
    path = write(table.append_column("site", pa.array(["x"] * N)), tmp_path / "d")
    with pytest.raises(
        ValueError,
        match=r"^Expected numbers in the columns .*, got text in 'site' \('x' in row 0, .*\): leave the column out with",
    ):
        open_source(path, target="diagnosis")
    with pytest.raises(
        ValueError, match=r"^Expected columns .*, got 36 whose names form a grid of 3 × 12, and 'age', 'w': choose"
    ):
        open_source(path, target="diagnosis", ignore=("site",))
    assert open_source(path, target="diagnosis", ignore=("site",), tensor_shape=(38,)).sample_shape == (38,)
    for options in ({"ignore": ("site", "age")}, {"samples": "ch*"}, {"samples": NAMES}):
        source = open_source(path, target="diagnosis", weight="w", **options)
        found, labels, weight = read(source)
        assert_array_equal(found, X)
        assert_array_equal(np.concatenate(weight), np.arange(N) + 1.0)
        assert labels.tolist() == y.tolist()
    assert_array_equal(read(open_source(path, samples="ch2_*", target="age"))[1], np.arange(N))
    with pytest.raises(ValueError, match=r"^Expected names of columns of .*, got 'agee', which is none"):
        open_source(path, target="diagnosis", ignore=("site", "agee"))
    with pytest.raises(ValueError, match=r"^Expected samples to be one of the names .*, got 'eeg\*'"):
        open_source(path, samples="eeg*", target="diagnosis")


def test_columns_that_are_no_measurements_are_named_in_a_warning(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.uniform(size=N)
    columns = {"sample": np.arange(N) + 7, "score": 3.0 - 1000.0 * y} | {
        f"f{i}": y + rng.normal(size=N) for i in range(5)
    }
    path = write_csv(pa.table(columns | {"y": y}), tmp_path / "d")
    with pytest.warns(UserWarning, match="Expected measurements") as told:
        assert open_source(path).sample_shape == (7,)
    assert ["'sample', which counts rows" in str(one.message) for one in told] == [True, False]
    assert ["'score', which is the target" in str(one.message) for one in told] == [False, True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_source(path, ignore=("sample", "score"))
        open_source(path, samples=["sample", "f1", "f2"])


@pytest.mark.parametrize("outsider", ["id", "ch_id", "t1", "dose_mg"])
def test_a_column_outside_a_grid_is_refused_by_its_name(outsider, data, tmp_path):
    table = wide(*data).add_column(0, outsider, pa.array(np.arange(N)))
    path = write_csv(table, tmp_path / "d")
    with pytest.raises(
        ValueError, match=rf"^Expected columns .*, got 36 whose names form a grid .*, and '{outsider}': choose"
    ):
        open_source(path, target="diagnosis")
    assert open_source(path, target="diagnosis", ignore=(outsider,)).sample_shape == SHAPE


@pytest.mark.parametrize("axis", [np.linspace(280.0, 500.0, 12), np.linspace(4000.5, 400.0, 12)], ids=["up", "down"])
def test_wavelengths_may_be_the_names_of_columns(axis, tmp_path):
    X = np.random.default_rng(0).normal(size=(N, 12))
    columns = {"y": X[:, 0] + X[:, 1]} | {f"{one:.1f}": values for one, values in zip(axis, X.T, strict=True)}
    source = open_source(write_csv(pa.table(columns), tmp_path / "d"))
    assert_array_equal(read(source)[0], X)
    (mode,) = source.modes
    assert_allclose(mode.values, axis.round(1))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("{} nm", ("column", "nm")),
        ("{}nm", ("column", "nm")),
        ("{} cm-1", ("column", "cm-1")),
        ("wl_{}", ("wl", None)),
        ("{}.5", ("column", None)),  # no grid of what is before and after the dot
        ("t{}.0", ("t", None)),
        ("f{}", ("f", None)),
    ],
)
def test_columns_along_one_axis_are_put_into_order_and_checked_at_predict(name, expected, tmp_path):
    X = np.random.default_rng(0).normal(size=(N, 12))
    names = [name.format(900 + 10 * i) for i in range(12)]
    columns = {"y": X[:, 0] + X[:, 1]} | dict(zip(names, X.T, strict=True))
    path = write_csv(pa.table(columns), tmp_path / "d")
    source = open_source(path)
    (mode,) = source.modes
    assert source.sample_shape == (12,)
    assert (mode.name, mode.unit) == expected
    model = TraceNormRegressor(alpha=0.01).fit(path)
    shuffled = ["y", *np.random.default_rng(1).permutation(names).tolist()]
    other = write_parquet(
        pa.table(columns).select(shuffled), tmp_path / "e"
    )  # a CSV may have such numbers and no names
    assert_allclose(model.predict(other), model.predict(path))
    falling = write_csv(pa.table(columns).select(["y", *names[::-1]]), tmp_path / "f")
    assert_allclose(model.predict(falling), model.predict(path))
    with pytest.raises(
        ValueError, match=rf"coordinates of {expected[0]} to be those of fit, got 1010.* instead of 900"
    ):
        model.predict(open_source(falling))
    with pytest.raises(ValueError, match=r"got 11 of them instead of 12, without 930"):
        model.predict(write_csv(pa.table(columns).drop_columns(names[3]), tmp_path / "h"))


def test_columns_of_any_names_are_checked_at_predict(tmp_path):
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=N) for name in ("age", "dose", "weight")} | {"y": rng.normal(size=N)}
    path = write_csv(pa.table(columns), tmp_path / "d")
    model = TraceNormRegressor(alpha=0.01).fit(path)
    other = write_csv(pa.table(columns).select(["dose", "age", "weight", "y"]), tmp_path / "e")
    assert_array_equal(model.predict(other), model.predict(path))
    with pytest.raises(ValueError, match=r"of column to be those of fit, got dose instead of age at index 0"):
        model.predict(open_source(other))
    more = write_csv(pa.table(columns).append_column("height", pa.array(rng.normal(size=N))), tmp_path / "f")
    assert_array_equal(model.predict(more), model.predict(path))
    with pytest.raises(
        ValueError, match=r"of column to be those of fit, got 4 of them instead of 3, with the new height"
    ):
        model.predict(open_source(more))
    with pytest.raises(ValueError, match=r"of column to be those of fit, got 2 of them instead of 3, without dose"):
        model.predict(write_csv(pa.table(columns).drop_columns("dose"), tmp_path / "g"))


def test_a_result_next_to_wavelengths_is_refused_by_its_name(tmp_path):
    columns = {str(one): np.random.default_rng(one).normal(size=N) for one in range(900, 1100, 10)}
    path = write_csv(pa.table(columns | {"y": np.arange(N), "moisture": np.arange(N)}), tmp_path / "d")
    with pytest.raises(
        ValueError, match=r"^Expected columns .*, got 20 whose names are numbers, and 'moisture': choose"
    ):
        open_source(path)
    assert open_source(path, ignore=("moisture",)).sample_shape == (20,)


def test_a_target_that_is_misspelt_is_named(data, tmp_path):
    path = write_csv(wide(*data), tmp_path / "d")
    with pytest.raises(ValueError, match=r", \.\.\., .*'diagnosis', got 'Diagnosis' \(is 'diagnosis' meant\?\)"):
        open_source(path, target="Diagnosis")
    with pytest.raises(ValueError, match="save the sheet as CSV"):
        open_source(path.rename(tmp_path / "d.xlsx"))


def test_lines_above_the_names_and_text_among_numbers_are_shown(data, tmp_path):
    path = write_csv(wide(*data), tmp_path / "d")
    text = path.read_text()
    path.write_text(f"Measured in March\n\n{text}")
    with pytest.raises(
        ValueError, match=r"^Expected names .* first line of .*, got 'Measured in March', .* line 3 .* 37"
    ):
        open_source(path, target="diagnosis")
    path.write_text(f"Measured in March{',' * 36}\n{text}")
    with pytest.raises(
        ValueError, match=r"^Expected names .* got 'Measured in March,+', one value, where line 2 has 37"
    ):
        open_source(path, target="diagnosis")
    path.write_text(text, encoding="utf-16")
    with pytest.raises(ValueError, match=r"^Expected text in UTF-8 .* UTF-16: save it in Excel"):
        open_source(path, target="diagnosis")
    path.write_text(text.replace("diagnosis", "größe"), encoding="latin-1")
    with pytest.raises(ValueError, match=r"^Expected a whole file .* save it as text in UTF-8"):
        open_source(path, target="größe")
    lines = text.splitlines()
    lines[4] = "n.d.," + lines[4].partition(",")[2]
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"got text in '.*' \('n\.d\.' in row 3, .*\): leave"):
        open_source(path, target="diagnosis")


def test_lists_of_any_depth_are_samples(data, tmp_path):
    X, _ = data
    y = np.arange(N) + 0.5
    for name, rows in {
        "flat": pa.array(X.reshape(N, -1).tolist()),
        "deep": pa.array(X.tolist()),
        "large": pa.array(X.tolist(), pa.large_list(pa.list_(pa.float32()))),
        "mixed": pa.array(X.tolist(), pa.list_(pa.list_(pa.float64()), 3)),
    }.items():
        for write in (write_parquet, write_feather, write_arrow_stream):
            path = write(pa.table({"X": rows, "y": y}), tmp_path / name)
            source = open_source(path, tensor_shape=SHAPE, block_bytes=2000)
            assert_allclose(read(source, 5)[0], X[5:], rtol=1e-6 if name == "large" else 0)
            assert open_source(path).sample_shape == ((36,) if name == "flat" else SHAPE)


def test_data_frames_of_pandas_are_read_as_they_are_written(data, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = data
    frame = pandas.DataFrame({"X": list(X.reshape(N, -1)), "y": y})
    frame[::2].to_parquet(tmp_path / "half.parquet")  # with its index
    assert_array_equal(read(open_source(tmp_path / "half.parquet"))[0], X[::2].reshape(20, -1))
    frame = pandas.DataFrame(X.reshape(N, -1), columns=NAMES).assign(diagnosis=pandas.Categorical(y))
    frame.to_csv(tmp_path / "d.csv")
    frame[3:].to_parquet(tmp_path / "d.parquet")
    for name, first in (("d.csv", 0), ("d.parquet", 3)):
        found, labels, _ = read(open_source(tmp_path / name, target="diagnosis"))
        assert_array_equal(found, X[first:])
        assert labels.tolist() == y[first:].tolist()


def test_a_list_of_another_length_is_refused_by_its_row(tmp_path):
    for name, rows in {
        "flat": [[1.0, 2.0]] * 9 + [[1.0]],
        "deep": [[[1.0], [2.0]]] * 9 + [[[1.0], [2.0, 3.0]]],
    }.items():
        path = write_parquet(pa.table({"X": rows, "y": range(10)}), tmp_path / name)
        with pytest.raises(ValueError, match=r"^Expected lists of . entries in column 'X', .* in row 9: cut or fill"):
            read(open_source(path, block_bytes=64))


@every_format
def test_missing_entries_of_samples_are_nan(write, data, tmp_path):
    X, y = data
    if write not in (write_csv, write_tsv, write_excel):
        column = pa.array([None if i == 23 else 1.0 for i in range(N)])
        table = wide(X, y).set_column(30, "ch3_t7", column)
    else:  # written as nothing between two commas
        table = wide(X, y).set_column(30, "ch3_t7", pa.array(["" if i == 23 else "1" for i in range(N)]))
    source = open_source(write(table, tmp_path / "d"), target="diagnosis", block_bytes=9 * 36 * 8)
    samples, labels, _ = read(source)
    ((row, *entry),) = np.argwhere(np.isnan(samples))
    assert (row, [mode.values[i] for mode, i in zip(source.modes, entry, strict=True)]) == (23, [3, 7])
    assert labels.tolist() == y.tolist()
    with pytest.raises(ValueError, match=r"got NaN at sample 5, .*TensorClassifier.*block that begins at sample 18"):
        TraceNormClassifier().fit(source)


def test_whole_numbers_before_decimals_in_text_are_numbers(tmp_path):
    lines = ["a,b,c,y"] + ["1,2,3,4"] * 100_000 + ["0.5,2,3,4.5"]  # the first megabyte knows only whole numbers
    (tmp_path / "d.csv").write_text("\n".join(lines))
    found, y, _ = read(open_source(tmp_path / "d.csv"))
    assert found.shape == (100_001, 3)
    assert (found[-1, 0], y[-1], y.dtype) == (0.5, 4.5, np.float64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ill,0.5,1.5,1.2\nwell,1,2,3\n", "Expected names of columns in the first line of .*, got the number 0.5"),
        ("0.5,1.5\n1,2\n", "Expected names of columns in the first line of .*, got the number 0.5"),
        ("a,a,y\n1,2,3\n", "Expected columns of different names in .*, got 'a' twice"),
        ("a,b,y\n1,2\n", "Expected a whole file of numbers or strings"),
        ("a,b,y\n1,2,3\n1,x,3\n", "Expected numbers in the columns of"),
        ("", "Expected a whole file of numbers or strings"),
        ("a,b,y\n", "Expected rows below the names of columns in .*, got none"),
    ],
)
def test_text_that_is_no_table_is_one_sentence(text, message, tmp_path):
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as info:
        read(open_source(tmp_path / "d.csv"))
    assert "\n" not in str(info.value)


def test_targets_may_be_in_another_table(data, tmp_path):
    X, y = data
    np.save(tmp_path / "X.npy", X)
    path = write_csv(pa.table({"id": np.arange(N), "diagnosis": y}), tmp_path / "labels")
    assert read(open_source(tmp_path / "X.npy", target=f"{path}:diagnosis"))[1].tolist() == y.tolist()
    with pytest.raises(ValueError, match=r"which holds several: name one of them, as in '.*labels\.csv:\.\.\.'"):
        open_source(tmp_path / "X.npy", target=path)
    path = write_csv(pa.table({"diagnosis": y}), tmp_path / "alone")
    assert read(open_source(tmp_path / "X.npy", target=path))[1].tolist() == y.tolist()


# --- streams of rows --------------------------------------------------------------------------------------------------


class OnlyAStream:
    """What a database hands out: rows as an Arrow stream, once."""

    def __init__(self, table):
        self.reader = table.to_reader(max_chunksize=7)

    def __arrow_c_stream__(self, requested_schema=None):
        return self.reader.__arrow_c_stream__(requested_schema)


def from_duckdb(table):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    return duckdb.from_arrow(table)


def from_polars(table):
    return pytest.importorskip("polars", reason="polars is not installed").from_arrow(table)


STREAMS = {
    "a stream": OnlyAStream,
    "a reader of pyarrow": lambda table: table.to_reader(7),
    "a table of pyarrow": lambda table: table,
    "a data frame of pandas": lambda table: table.to_pandas(),
    "a relation of DuckDB": from_duckdb,
    "a data frame of polars": from_polars,
}


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS)
def test_rows_of_any_library_are_learned_as_arrays_are(make, data):
    X, y = data
    expected = TraceNormClassifier(alpha=0.02, tol=1e-10).fit(X, y)
    found = TraceNormClassifier(alpha=0.02, tol=1e-10).fit(make(wide(X, y)), "diagnosis")
    assert found.sample_shape_ == SHAPE
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8)


@pytest.mark.parametrize("make", [from_duckdb, OnlyAStream])
def test_a_query_is_read_whole_so_that_a_fit_can_pass_over_it_often(make, data):
    X, y = data
    model = TraceNormClassifier(alpha=0.02, loss="log_loss").fit(make(wide(X, y)), "diagnosis")
    assert model.score(X, y) > 0.8


def test_columns_of_a_stream_are_chosen_as_those_of_a_file(data):
    X, y = data
    table = wide(X, y).append_column("age", pa.array(np.arange(N)))
    source = open_source(table.to_reader(), samples="ch1_*", target="age", weight="age", tensor_shape=(4, 3))
    found, target, weight = read(source)
    assert_array_equal(found, X[:, 0].reshape(N, 4, 3))
    assert_array_equal(target, np.concatenate(weight))
    lists = pa.table({"X": pa.array(X.tolist()), "y": np.arange(N)})
    assert_array_equal(read(open_source(lists.to_reader(7)))[0], X)
    model = TraceNormRegressor().fit(lists.to_reader(7))  # without __array__ it cannot be an array, and y has its name
    assert_allclose(model.predict(lists.to_reader(7)), model.predict(X))


def test_decimals_of_a_database_are_numbers(data):
    relation = pytest.importorskip("duckdb", reason="DuckDB is not installed").sql(
        "select (i * 1.5)::decimal(9, 2) as a, i as b, i % 2 as y from range(10) t(i)"
    )
    found, y, _ = read(open_source(relation))
    assert_array_equal(found, np.stack([np.arange(10) * 1.5, np.arange(10)], 1))
    assert_array_equal(y, np.arange(10) % 2)


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (
            lambda model, table, y: model.fit(table.drop_columns(["diagnosis"]).to_reader(), y[1:]),
            f"Expected one target for each sample, got {N} samples and {N - 1} targets",
        ),
        (
            lambda model, table, y: model.fit(table.to_reader(), "answer"),
            "Expected target to be one of the names in 'the table in memory', .*, got 'answer'",
        ),
        (
            lambda model, table, y: model.fit(iter(table.to_batches(7)), "diagnosis"),
            "Expected y=None with an iterable of blocks",
        ),
    ],
)
def test_streams_that_cannot_be_used_are_one_sentence(fit, message, data):
    with pytest.raises(ValueError, match=message):
        fit(TraceNormClassifier(), wide(*data), data[1])


# --- commands ---------------------------------------------------------------------------------------------------------


def run(*arguments):
    with pytest.raises(SystemExit) as left:
        main([str(one) for one in arguments])
    return left.value.code


@pytest.mark.parametrize("names", [NAMES, [f"v{i}" for i in range(36)]], ids=["a grid", "flat"])
def test_commands_read_a_spreadsheet(names, data, tmp_path, capsys, monkeypatch):
    X, y = data
    monkeypatch.chdir(tmp_path)
    table = wide(X, y, names).append_column("subject", pa.array([f"s{i % 8}" for i in range(N)]))
    write_csv(table, tmp_path / "data")
    shape = ("--tensor-shape", "3,12")
    assert (
        run("fit", "data.csv", "--target", "diagnosis", *shape, "--groups", "subject", "--cv", 3, "--views", "raw") == 0
    )
    assert "3 × 12" in capsys.readouterr().out
    arguments = ("predict", "model.tracelearn", "data.csv", "--target", "diagnosis", "--ignore", "subject")
    assert run(*arguments, "--out", "found.csv") == 0
    assert "accuracy" in capsys.readouterr().out
    assert run("over-time", "data.csv", "--target", "diagnosis", *shape, "--samples", f"{names[0][0]}*", "--cv", 3) == 0
    assert run("fit", "data.csv", "--target", "diagnosis", *shape, "--out", "other") == 2
    assert (
        "leave the column out with --ignore, choose others with --samples, correct the cell, or"
        in capsys.readouterr().err
    )
    assert run("fit", "data.csv", "--target", "answer", "--out", "other") == 2
    assert "Expected target to be one of the names in 'data.csv'" in capsys.readouterr().err
