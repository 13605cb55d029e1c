"""Targets and groups by their names: what ``fit`` takes, ``score``, pages and tests take too."""

import numpy as np
import pytest
from sklearn.base import clone

from tracelearn import (
    SecondOrder,
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    open_source,
)
from tracelearn.datasets import make_persons
from tracelearn.inference import bootstrap, compare, decode_over_time, map_test, permutation_test, searchlight
from tracelearn.report import model_page

N, SHAPE = 48, (3, 4)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, *SHAPE))
    age = X[:, 0, 0] - X[:, 1, 2] + 0.1 * rng.standard_normal(N)
    return X, age, np.where(age > 0, "ill", "well"), np.repeat(np.arange(8), 6)


def as_npz(data, folder):
    X, age, label, subject = data
    np.savez(folder / "d.npz", X=X, age=age, label=label, subject=subject)
    return folder / "d.npz"


def as_frame(data, folder):
    pandas = pytest.importorskip("pandas")
    X, _, label, subject = data
    names = [f"ch{c}_t{t}" for c in range(SHAPE[0]) for t in range(SHAPE[1])]
    frame = pandas.DataFrame(X.reshape(N, -1), columns=names)
    frame["label"], frame["subject"] = label, subject
    return frame


def as_parquet(data, folder):
    pytest.importorskip("pyarrow")
    as_frame(data, folder).to_parquet(folder / "d.parquet")
    return folder / "d.parquet"


def as_source(data, folder):
    return open_source(as_npz(data, folder), target="label")


def as_epochs(data, folder):
    mne, pandas = pytest.importorskip("mne"), pytest.importorskip("pandas")
    X, age, label, subject = data
    events = np.stack([np.arange(N) * 10, np.zeros(N, int), np.where(label == "ill", 1, 2)], axis=1)
    info = mne.create_info(["Fz", "Cz", "Pz"], 100.0, "eeg")
    metadata = pandas.DataFrame({"subject": subject, "age": age, "label": label})
    return mne.EpochsArray(X, info, events, event_id={"ill": 1, "well": 2}, metadata=metadata, verbose="error")


HOLDERS = {"npz": as_npz, "frame": as_frame, "parquet": as_parquet, "source": as_source, "epochs": as_epochs}


def arguments(holder, data, folder):
    X = HOLDERS[holder](data, folder)
    return (X,) if holder == "source" else (X, "label")


@pytest.mark.parametrize("model", [TensorClassifier(views=None, alphas=3), TraceNormClassifier()])
@pytest.mark.parametrize("names", ["ch{}_t{}", "f{}{}", "{}.{}5", "column {} of {}"])
def test_a_model_reads_the_columns_that_it_was_fitted_to(data, model, names, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    X, _, label, subject = data
    words = [["Fz", "Cz", "Pz"], ["alpha", "beta", "low", "high"]] if "column" in names else [[1, 2, 3], [4, 5, 6, 7]]
    columns = [names.format(c, t) for c in words[0] for t in words[1]]
    if "column" in names:
        columns[0] = "age"  # no grid: columns are known by their names
    frame = pandas.DataFrame(X.reshape(N, -1), columns=columns)
    frame.assign(label=label).to_parquet(tmp_path / "train.parquet")
    shuffled = frame[columns[::-1]].assign(subject=subject, label=label, site="here")
    shuffled.to_parquet(tmp_path / "test.parquet")
    model.fit(tmp_path / "train.parquet", "label")
    expected = model.predict(frame.to_numpy().reshape(N, *model.sample_shape_))
    np.testing.assert_array_equal(model.predict(tmp_path / "test.parquet"), expected)
    assert model.score(tmp_path / "test.parquet", "label") == np.mean(expected == label)
    model_page(model, tmp_path / "test.parquet", "label")
    source = open_source(tmp_path / "test.parquet", target="label", model=model)
    np.testing.assert_array_equal(model.predict(source), expected)
    frame.drop(columns=columns[1]).to_parquet(tmp_path / "fewer.parquet")
    with pytest.raises(ValueError, match=r"instead of|shape|entries"):
        model.predict(tmp_path / "fewer.parquet")


def test_intervals_of_samples_in_a_file_are_those_of_the_array(data, tmp_path):
    X, age, *_ = data
    model = TensorRegressor(views=None, alphas=3).fit(X, age)
    expected = model.predict_interval(X)
    np.testing.assert_allclose(model.predict_interval(as_npz(data, tmp_path)), expected)


def test_intervals_of_samples_with_names_are_read_by_the_modes_of_fit(data):
    xarray = pytest.importorskip("xarray")
    X, age, *_ = data
    named = xarray.DataArray(X, dims=("sample", "channel", "time"), coords={"channel": ["Fz", "Cz", "Pz"]})
    model = TensorRegressor(views=None, alphas=3).fit(named, age)
    expected = model.predict_interval(X)
    np.testing.assert_array_equal(model.predict_interval(named.transpose("sample", "time", "channel")), expected)
    with pytest.raises(
        ValueError, match=r"^Expected the coordinates of channel to be those of fit, got Cz instead of Fz"
    ):
        model.predict_interval(named[:, [1, 0, 2]])


def test_intervals_of_averages_need_no_events(data):
    mne = pytest.importorskip("mne")
    X, age, *_ = data
    info = mne.create_info(["Fz", "Cz", "Pz"], 100.0, "eeg")
    averages = [mne.EvokedArray(sample, info, verbose="error") for sample in X]
    model = TensorRegressor(views=None, alphas=3).fit(averages, age)
    np.testing.assert_allclose(model.predict_interval(averages), model.predict_interval(X))


@pytest.mark.parametrize(
    "model",
    [
        TraceNormClassifier(),
        TraceNormClassifier(loss="log_loss"),
        TraceNormRegressor(loss="huber"),
        TraceNormClassifierCV(alphas=3),
        TensorRegressor(views=None, alphas=3),
    ],
)
def test_a_file_without_targets_is_refused_by_every_model(model, data, tmp_path):
    np.save(tmp_path / "X.npy", data[0])
    with pytest.raises(ValueError, match=r"^Expected targets with the samples, got none: pass y, or name them"):
        model.fit(tmp_path / "X.npy")


@pytest.mark.parametrize("holder", HOLDERS)
def test_groups_by_name_are_those_of_the_array(holder, data, tmp_path):
    X, _, label, subject = data
    expected = TraceNormClassifierCV(alphas=3).fit(X, label, groups=subject)
    found = TraceNormClassifierCV(alphas=3).fit(*arguments(holder, data, tmp_path), groups="subject")
    assert found.sample_shape_ == SHAPE
    np.testing.assert_allclose(found.score_path_, expected.score_path_, rtol=1e-6)
    search = TensorClassifier(views=None, alphas=3).fit(*arguments(holder, data, tmp_path), groups="subject")
    assert search.sample_shape_ == SHAPE


@pytest.mark.parametrize("holder", ["npz", "source", "epochs"])
def test_samples_in_files_are_scored_with_the_names_of_their_targets(holder, data, tmp_path):
    X, age, label, _ = data
    given = arguments(holder, data, tmp_path)
    for model in (TraceNormClassifier(0.1), TensorClassifier(views=None, alphas=3)):
        model.fit(X, label)
        if holder == "epochs":
            model.fit(given[0], label)
        assert model.score(*given) == model.score(X if holder != "epochs" else given[0], label)
    if holder != "source":
        for regressor in (TraceNormRegressor(0.1), TensorRegressor(views=None, alphas=3)):
            regressor.fit(given[0], "age")
            assert regressor.score(given[0], "age") == pytest.approx(regressor.score(given[0], age))


def test_an_iterator_is_scored_in_one_pass(data):
    X, _, label, _ = data
    model = TraceNormClassifier(0.1).fit(X, label)
    assert model.score((X[i : i + 7], label[i : i + 7]) for i in range(0, N, 7)) == model.score(X, label)


@pytest.mark.parametrize("holder", ["npz", "parquet", "epochs"])
def test_tests_take_what_fit_takes(holder, data, tmp_path):
    X, _, label, subject = data
    model = TraceNormClassifier(0.1)
    given = arguments(holder, data, tmp_path)
    options = {"n_permutations": 19, "random_state": 0}
    expected = permutation_test(model, X, label, groups=subject, **options)
    found = permutation_test(model, *given, groups="subject", **options)
    assert found.score == pytest.approx(expected.score)
    assert found.exchanged == expected.exchanged


def test_every_function_of_inference_takes_a_file(data, tmp_path):
    X, _, label, subject = data
    model = TraceNormClassifier(0.1)
    given = (as_npz(data, tmp_path), "label")
    course = decode_over_time(model, *given, groups="subject", cv=2)
    np.testing.assert_allclose(course.mean, decode_over_time(model, X, label, groups=subject, cv=2).mean)
    models = {"weak": model, "strong": TraceNormClassifier(1.0)}
    comparison = compare(models, *given, groups="subject", cv=2, repeats=1, yardsticks=False)
    assert comparison.means[0] > 0.6
    assert map_test(model, *given, groups="subject", n_permutations=9).p_values.shape[-2:] == SHAPE
    assert bootstrap(model, *given, groups="subject", n_bootstraps=3, random_state=0).coefs.shape[-2:] == SHAPE
    assert searchlight(model, *given, np.eye(3), groups="subject", cv=2).mean.shape == (3,)


@pytest.mark.parametrize("holder", ["npz", "epochs"])
def test_a_page_takes_what_fit_takes(holder, data, tmp_path):
    given = arguments(holder, data, tmp_path)
    model = TraceNormClassifier(0.1).fit(*given)
    assert f"Of {N} samples" in " ".join(model_page(model, *given).split())


@pytest.fixture(scope="module")
def aligned():
    """A search that aligns samples by person, and the samples."""
    X, label, person, *_ = make_persons(8, 20, mixing=0.6, gain=1.5, random_state=0)
    model = TensorClassifier(views=[SecondOrder()], alphas=3).fit(X, label, groups=person)
    assert model.alignment_ is not None
    return model, X, label, person


def test_a_search_that_aligns_by_group_predicts_files_with_the_name_of_the_groups(aligned, tmp_path):
    model, X, label, person = aligned
    np.savez(tmp_path / "d.npz", X=X, label=label, person=person)
    predicted = model.predict(X, groups=person)
    np.testing.assert_array_equal(model.predict(tmp_path / "d.npz", groups="person"), predicted)
    assert model.score(tmp_path / "d.npz", "label", groups="person") == np.mean(predicted == label)
    page = " ".join(model_page(model, tmp_path / "d.npz", "label", groups="person").split())
    assert "aligned by group" in page
    assert "Samples of each group were aligned by" in page


@pytest.mark.parametrize("align", ["auto", None])
def test_a_search_learns_more_from_a_file_by_the_names_that_fit_takes(align, tmp_path):
    X, label, person, *_ = make_persons(8, 20, mixing=0.6, gain=1.5, random_state=0)
    np.savez(tmp_path / "d.npz", X=X, label=label, person=person)
    search = TensorClassifier(views=[SecondOrder()], align=align, alphas=3, keep_moments=True)
    expected = search.fit(X, label, groups=person).partial_fit(X, label, groups=person)
    assert (expected.alignment_ is None) == (align is None)
    found = clone(search).fit(X, label, groups=person).partial_fit(tmp_path / "d.npz", "label", groups="person")
    np.testing.assert_allclose(found.decision_function(X, groups=person), expected.decision_function(X, groups=person))


def test_names_that_are_not_there_are_one_sentence(data, tmp_path):
    X, _, label, _ = data
    model = TraceNormClassifierCV(alphas=3)
    with pytest.raises(
        ValueError, match=r"^Expected column to be one of the names .*got 'subjekt' \(is 'subject' meant"
    ):
        model.fit(as_npz(data, tmp_path), "label", groups="subjekt")
    with pytest.raises(ValueError, match=r"^Expected a column of the metadata, which are .*got 'subjekt'"):
        model.fit(as_epochs(data, tmp_path), groups="subjekt")
    with pytest.raises(ValueError, match=r"^Expected groups by a name only with a file, a table or epochs"):
        model.fit(X, label, groups="subject")


def test_what_does_not_fit_in_memory_is_not_read_for_a_test(data, tmp_path, monkeypatch):
    monkeypatch.setattr("tracelearn.samples.by_name.available_memory", lambda: 1000)
    with pytest.raises(ValueError, match=r"^Expected samples that fit in the .* of free memory"):
        permutation_test(TraceNormClassifier(0.1), as_npz(data, tmp_path), "label")
