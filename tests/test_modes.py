"""Names of modes: they come with the samples, are checked when predicting, saved, and come back with weights and figures."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate, train_test_split
from sklearn.pipeline import make_pipeline

from tracelearn import (
    HierarchicalTraceNormClassifier,
    ModeWhitener,
    SecondOrder,
    TensorClassifier,
    TensorStandardScaler,
    TraceNormClassifier,
    TraceNormRegressor,
    load,
    save,
)
from tracelearn.inference import decode_over_time, map_test, permutation_test
from tracelearn.report import model_page

xarray = pytest.importorskip("xarray", reason="names come from xarray's arrays here")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3, 5))
SCORES = X[:, 1, 2] - X[:, 0, 2] + 0.1 * RNG.normal(size=60)
LABELS = np.where(SCORES > 0, "right", "left")
CHANNELS, TIMES = ["C3", "Cz", "C4"], np.linspace(0.0, 0.4, 5)


def named(values=X, channels=CHANNELS):
    time = ("time", TIMES, {"units": "s"})
    return xarray.DataArray(values, dims=("trial", "channel", "time"), coords={"channel": channels, "time": time})


def described(model):
    return [(mode.name, mode.values.tolist(), mode.unit) for mode in model.modes_]


EXPECTED = [("channel", CHANNELS, None), ("time", TIMES.tolist(), "s")]


def test_names_of_a_data_array_are_kept_and_weights_are_those_of_the_plain_array():
    model, plain = (TraceNormRegressor(alpha=0.1).fit(samples, SCORES) for samples in (named(), X))
    assert described(model) == EXPECTED
    assert not hasattr(plain, "modes_")
    assert type(model.coef_) is np.ndarray
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    assert not hasattr(model.fit(X, SCORES), "modes_")  # the names of samples before are not those of these


@pytest.mark.parametrize(
    "model",
    [
        TraceNormRegressor(alpha=0.1),
        TraceNormClassifier(alpha=0.1),
        TensorClassifier(alphas=3, cv=3, views=None),
        TensorClassifier(alphas=3, cv=3, views=ModeWhitener()),
        HierarchicalTraceNormClassifier(alpha=0.1),
    ],
)
def test_transposed_dimensions_are_put_in_order_by_their_names(model):
    y = SCORES if isinstance(model, TraceNormRegressor) else LABELS
    model = clone(model).fit(named(), y)
    assert described(model) == EXPECTED
    for dims in (("time", "trial", "channel"), ("trial", "time", "channel")):
        np.testing.assert_array_equal(model.predict(named().transpose(*dims)), model.predict(X))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (named(channels=["C3", "C4", "Cz"]), "coordinates of channel .* got C4 instead of Cz at index 1"),
        (named().rename(time="frequency"), "modes channel, time as in fit, got channel, frequency"),
        (named().assign_coords(time=TIMES + 0.1), "coordinates of time .* got 0.1 instead of 0.0 at index 0"),
        (named().isel(channel=[0, 1]), "coordinates of channel .* got 2 of them instead of 3"),
        (named().isel(trial=0, channel=0), "expand_dims"),
    ],
)
def test_other_names_are_refused_in_one_sentence(samples, message):
    model = TraceNormRegressor(alpha=0.1, keep_moments=True).fit(named(), SCORES)
    calls = [lambda: model.predict(samples), lambda: model.partial_fit(samples, SCORES)]
    for call in calls[: 2 if samples.ndim == 3 else 1]:
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert described(model) == EXPECTED


def test_coordinates_that_only_count_and_rounded_times_are_no_other_ones():
    model = TraceNormRegressor(alpha=0.1).fit(named(), SCORES)
    for samples in (named().drop_vars(["channel", "time"]), named().assign_coords(time=TIMES.astype(np.float32)), X):
        np.testing.assert_array_equal(model.predict(samples), model.predict(X))


def test_weights_and_patterns_come_back_as_a_dataset():
    for model in (TraceNormClassifier(alpha=0.1), TensorClassifier(alphas=3, cv=3, views=None)):
        found = model.fit(named(), LABELS).to_xarray()
        assert found["patterns"].dims == ("class", "channel", "time")
        assert found["class"].values.tolist() == ["right"]
        assert found["time"].attrs == {"units": "s"}
        at = found["coef"].sel({"class": "right", "channel": "Cz"}).values
        np.testing.assert_array_equal(at, model.coef_[0, 1])
    single = TraceNormRegressor(alpha=0.1, tensor_shape=(3, 5)).fit(X.reshape(60, -1), SCORES).to_xarray()
    assert single["coef"].dims == ("mode 0", "mode 1")  # without names they are counted, flat samples are tensors again


def test_weights_of_views_are_not_those_of_the_modes():
    model = TensorClassifier(alphas=3, cv=3, views=SecondOrder(time_axis=1)).fit(named(), LABELS)
    assert described(model) == EXPECTED
    np.testing.assert_array_equal(model.predict(named().transpose("time", "channel", "trial")), model.predict(X))
    with pytest.raises(ValueError, match="coef_by_view_"):
        model.to_xarray()


def test_targets_may_be_a_data_array_and_samples_one_of_dask():
    da = pytest.importorskip("dask.array", reason="samples of Dask inside of xarray")
    y = xarray.DataArray(SCORES, dims="trial")
    lazy = named().copy(data=da.from_array(X, chunks=(20, 3, 5)))
    model = TraceNormRegressor(alpha=0.1).fit(lazy, y)
    assert described(model) == EXPECTED
    found = model.predict(lazy.transpose("time", "channel", "trial"))
    np.testing.assert_allclose(found.compute(), model.predict(X))
    np.testing.assert_allclose(model.coef_, TraceNormRegressor(alpha=0.1).fit(named(), y).coef_, atol=1e-6)


def test_targets_in_another_order_than_the_samples_are_refused():
    samples = named().assign_coords({named().dims[0]: np.arange(60)})
    targets = xarray.DataArray(SCORES, dims=samples.dims[:1], coords={samples.dims[0]: np.arange(60)})
    assert TraceNormRegressor(alpha=0.1).fit(samples, targets).score(X, SCORES) > 0.5
    with pytest.raises(ValueError, match="in the order of the samples"):
        TraceNormRegressor(alpha=0.1).fit(samples, targets[::-1])


def test_names_are_saved(tmp_path):
    model = TensorClassifier(alphas=3, cv=3, views=None).fit(named(), LABELS)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert described(again) == EXPECTED


def test_names_travel_through_transformers_that_keep_the_modes_and_end_where_they_change():
    scaler = TensorStandardScaler().fit(named())
    assert described(scaler) == EXPECTED
    found = scaler.transform(named().transpose("channel", "trial", "time"))
    assert found.dims == ("trial", "channel", "time")
    np.testing.assert_array_equal(found.values, TensorStandardScaler().fit(X).transform(X))
    with pytest.raises(ValueError, match="coordinates of channel"):
        scaler.transform(named(channels=["C3", "C4", "Cz"]))
    pipeline = make_pipeline(TensorStandardScaler(), TraceNormRegressor(alpha=0.1)).fit(named(), SCORES)
    assert described(pipeline[-1]) == EXPECTED
    assert type(SecondOrder(time_axis=1).fit_transform(named())) is np.ndarray


def test_folds_of_scikit_learn_keep_the_names():
    model = TraceNormRegressor(alpha=0.1)
    np.testing.assert_allclose(cross_val_score(model, named(), SCORES), cross_val_score(model, X, SCORES))


def test_a_data_set_with_one_variable_is_that_variable_and_with_several_says_which_to_choose():
    alone = named().to_dataset(name="eeg")
    model = TraceNormRegressor(alpha=0.1).fit(alone, SCORES)
    assert described(model) == EXPECTED
    np.testing.assert_array_equal(model.predict(alone), model.predict(X))
    assert TensorStandardScaler().fit_transform(alone).dims == ("trial", "channel", "time")
    several = alone.assign(target=("trial", SCORES))
    for call in (
        lambda: model.fit(several, SCORES),
        lambda: model.predict(several),
        lambda: model.fit(alone[[]], SCORES),
    ):
        with pytest.raises(ValueError, match=r"got a Dataset with (2, eeg, target|none): choose the samples") as caught:
            call()
        assert "\n" not in str(caught.value)


# --- pandas -----------------------------------------------------------------------------------------------------------


def frame(columns):
    pandas = pytest.importorskip("pandas", reason="levels of columns are those of pandas")
    return pandas.DataFrame(X.reshape(60, -1), columns=columns)


def grid():
    pandas = pytest.importorskip("pandas", reason="levels of columns are those of pandas")
    return pandas.MultiIndex.from_product([CHANNELS, TIMES], names=["channel", "time"])


def test_levels_of_columns_are_modes_in_whatever_order_columns_come():
    table = frame(grid())
    model = TraceNormRegressor(alpha=0.1).fit(table, SCORES)
    assert described(model) == [("channel", CHANNELS, None), ("time", TIMES.tolist(), None)]
    assert model.coef_.shape == (3, 5)
    by_time = table.iloc[:, np.arange(15).reshape(3, 5).T.ravel()]  # all channels of one time, then of the next
    np.testing.assert_allclose(model.predict(by_time), model.predict(X))


def test_levels_that_are_no_full_grid_are_refused():
    table = frame(grid()).iloc[:, 1:]
    with pytest.raises(ValueError, match="each combination of the 3 × 5 entries"):
        TraceNormRegressor().fit(table, SCORES)


# --- MNE --------------------------------------------------------------------------------------------------------------


def epochs(names=CHANNELS, kinds=("eeg", "eeg", "eeg"), scale=1e-6):
    mne = pytest.importorskip("mne", reason="epochs are those of MNE")
    info = mne.create_info([*names, "TRIGGER"], 10.0, [*kinds, "stim"])
    places = {"C3": (-0.06, 0.0, 0.06), "Cz": (0.0, 0.0, 0.09), "C4": (0.06, 0.0, 0.06)}
    info.set_montage(mne.channels.make_dig_montage(places, coord_frame="head"), on_missing="ignore")
    codes = np.where(LABELS == "left", 1, 2)
    events = np.column_stack([np.arange(60), np.zeros(60, int), codes])
    data = np.concatenate([scale * X, np.tile(codes[:, None, None], (1, 1, 5))], axis=1)
    return mne.EpochsArray(data, info, events, event_id={"left": 1, "right": 2}, verbose="ERROR")


def test_epochs_bring_channels_times_positions_and_labels():
    found = epochs()
    model = TraceNormClassifier(alpha=1e-8).fit(found)
    assert described(model) == [("channel", CHANNELS, None), ("time", found.times.tolist(), "s")]  # and no trigger
    assert model.classes_.tolist() == ["left", "right"]
    np.testing.assert_array_equal(model.predict(found), model.predict(1e-6 * X))
    left, middle, right = model.modes_[0].positions
    assert left[0] < middle[0] < right[0]
    assert abs(middle[0]) < 0.05
    numbered = TraceNormClassifier(alpha=1e-8).fit(found, found.events[:, 2])
    assert numbered.classes_.tolist() == [1, 2]


@pytest.mark.parametrize("model", [TraceNormClassifier(), TensorClassifier(alphas=4, cv=3, views=None)])
def test_folds_of_scikit_learn_keep_names_of_epochs_and_leave_triggers_out(model):
    found = epochs()
    folds = cross_validate(model, found, LABELS, return_estimator=True)
    assert {one.sample_shape_ for one in folds["estimator"]} == {(3, 5)}  # the trigger would tell the class
    expected = cross_val_score(model, 1e-6 * X, LABELS)
    np.testing.assert_array_equal(folds["test_score"], expected)
    search = GridSearchCV(model, {"tol": [1e-6]}).fit(found, LABELS)
    assert search.best_score_ == expected.mean()
    train, test, labels, _ = train_test_split(found, LABELS, random_state=0)
    fitted = clone(model).fit(train)
    assert described(fitted) == described(clone(model).fit(found))
    assert fitted.classes_.tolist() == sorted(set(labels))
    assert fitted.score(test) == fitted.score(test, [str(*one.event_id) for one in test])


def test_parts_and_averages_of_epochs_are_samples_too_and_recordings_are_not():
    found = epochs()
    model = TraceNormClassifier(alpha=1e-8).fit(found)
    np.testing.assert_array_equal(model.predict(found[:10]), model.predict(1e-6 * X[:10]))
    np.testing.assert_array_equal(model.predict(found["left"]), model.predict(1e-6 * X[LABELS == "left"]))
    averages = [found["left"].average(), found["right"].average()]
    means = np.stack([1e-6 * X[LABELS == label].mean(axis=0) for label in ("left", "right")])
    np.testing.assert_allclose(model.decision_function(averages), model.decision_function(means), atol=1e-12)
    assert model.predict(averages[0]).shape == (1,)
    power = found.copy().pick("eeg").compute_tfr("morlet", freqs=[3.0, 4.0], n_cycles=0.5)
    of_power = TraceNormClassifier().fit(power)
    np.testing.assert_array_equal(of_power.predict(power[:5]), of_power.predict(power)[:5])
    assert of_power.predict(power["left"].average()).shape == (1,)
    with pytest.raises(ValueError, match="got EvokedArray without: pass y"):
        TraceNormClassifier().fit(averages)
    recording = pytest.importorskip("mne").io.RawArray(1e-6 * X[0], found.copy().pick("eeg").info, verbose="ERROR")
    with pytest.raises(ValueError, match=r"got RawArray .*: cut a recording into epochs first"):
        model.predict(recording)


def test_epochs_of_several_recordings_must_have_the_same_channels():
    other = epochs().reorder_channels(["C4", "Cz", "C3", "TRIGGER"])
    assert TraceNormClassifier().fit([epochs(), epochs()]).score(epochs()) > 0.9
    with pytest.raises(
        ValueError, match="coordinates of channel to be those of the first epochs, got C4 instead of C3"
    ):
        TraceNormClassifier().fit([epochs(), other])


def test_channels_that_are_bad_are_left_out_and_missing_ones_refused():
    model, found = TraceNormClassifier(alpha=1e-8).fit(epochs()), epochs()
    found.info["bads"] = ["C3"]
    assert TraceNormClassifier(alpha=1e-8).fit(found).coef_.shape == (1, 2, 5)
    with pytest.raises(ValueError, match=r"coordinates of channel .* got 2 of them instead of 3"):
        model.predict(found)


def test_sensors_without_places_have_names_all_the_same():
    model = TraceNormClassifier(alpha=1e-8).fit(
        epochs(names=("A", "B", "C"), kinds=("misc", "misc", "misc")).pick("misc")
    )
    assert model.modes_[0].values.tolist() == ["A", "B", "C"]
    assert model.modes_[0].positions is None


def test_epochs_in_time_and_frequency_have_three_modes_and_spectra_two():
    found = epochs(scale=1.0).pick("eeg")
    power = found.compute_tfr("morlet", freqs=[2.0, 3.0], n_cycles=0.5, verbose="ERROR")
    model = TraceNormClassifier(alpha=1e-3).fit(power)
    assert [mode.name for mode in model.modes_] == ["channel", "frequency", "time"]
    assert model.modes_[1].values.tolist() == [2.0, 3.0]
    spectra = found.compute_psd("welch", n_fft=5, verbose="ERROR")
    assert [mode.name for mode in TensorStandardScaler().fit(spectra).modes_] == ["channel", "frequency"]


def test_the_mode_that_is_called_time_is_time_wherever_it_is():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(80, 24, 20))
    values[::2, :, 1] = (
        0.9 * values[::2, :, 0] + 0.4 * values[::2, :, 1]
    )  # half of the samples have two correlated sensors
    samples, label = xarray.DataArray(values, dims=("trial", "time", "sensor")), np.arange(80) % 2
    plain, auto, given = (
        TensorClassifier(cv=3, alphas=3, time_axis=axis).fit(found, label)
        for found, axis in ((values, "auto"), (samples, "auto"), (samples, "sensor"))
    )
    axes = [
        {view.time_axis_ for view in model.views_.values() if isinstance(view, SecondOrder)}
        for model in (plain, auto, given)
    ]
    assert axes[1] == {0}
    assert axes[0] | axes[2] <= {1}
    assert auto.best_score_ > plain.best_score_
    with pytest.raises(ValueError, match=r"name of a mode \(time, sensor\), got 'times'"):
        TensorClassifier(time_axis="times").fit(samples, label)
    with pytest.raises(ValueError, match="they have none"):
        TensorClassifier(time_axis="times").fit(values, label)


def test_times_to_decode_are_known_by_name():
    from tracelearn.inference import decode_over_time

    model, turned = TraceNormClassifier(), named().transpose("trial", "time", "channel")
    found = decode_over_time(model, turned, LABELS, axis="time")
    np.testing.assert_allclose(found.scores, decode_over_time(model, X, LABELS).scores)
    assert (found.mode.name, found.mode.values.tolist()) == ("time", TIMES.tolist())
    with pytest.raises(ValueError, match=r"name of a mode \(time, channel\), got 'times'"):
        decode_over_time(model, turned, LABELS, axis="times")


@pytest.mark.slow
def test_evidence_is_that_of_the_plain_array():
    from tracelearn.inference import compare, permutation_test

    model, found = TraceNormClassifier(alpha=0.1), epochs(scale=1.0)
    tests = [permutation_test(model, *pair, n_permutations=9, random_state=0) for pair in ((found, None), (X, LABELS))]
    assert tests[0].p_value == tests[1].p_value
    scores = [compare(model, samples, LABELS, repeats=1).scores for samples in (named(), X)]
    np.testing.assert_allclose(*scores)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "squared_hinge"])
def test_the_default_strength_does_not_depend_on_units(loss):
    volts, microvolts = (TraceNormClassifier(loss=loss).fit(epochs(scale=scale)) for scale in (1e-6, 1.0))
    np.testing.assert_allclose(volts.alpha_, 1e-6 * microvolts.alpha_)
    np.testing.assert_allclose(1e-6 * volts.coef_, microvolts.coef_, rtol=1e-4, atol=1e-7)
    assert volts.score(epochs(), LABELS) > 0.9


def test_targets_of_other_units_have_strengths_of_their_own():
    together = TraceNormRegressor().fit(X, np.column_stack([SCORES, 1e6 * X[:, 2, 0]]))
    alone = [TraceNormRegressor().fit(X, y) for y in (SCORES, 1e6 * X[:, 2, 0])]
    np.testing.assert_allclose(together.alpha_, [model.alpha_ for model in alone])
    np.testing.assert_allclose(together.coef_[1], alone[1].coef_, rtol=1e-3, atol=1.0)


def test_what_is_learned_in_parts_has_the_default_strength_of_the_whole():
    whole, parts = TraceNormRegressor().fit(X, SCORES), TraceNormRegressor()
    for part in np.split(np.arange(60), 3):
        parts.partial_fit(X[part], SCORES[part])
    np.testing.assert_allclose(parts.alpha_, whole.alpha_)


# --- figures and pages ------------------------------------------------------------------------------------------------


def test_figures_take_names_from_the_model_and_draw_sensors_over_a_head():
    plotting = pytest.importorskip("tracelearn.plotting", reason="figures need matplotlib")
    model = TraceNormClassifier(alpha=1e-8).fit(epochs())
    display = plotting.ModeFactorsDisplay.from_estimator(model)
    heads, times = display.axes_
    assert heads.get_title() == "channel"
    assert len(heads.images) == len(display.factors[0].T)
    assert times.get_xlabel() == "time (s)"
    named = plotting.ModeFactorsDisplay.from_estimator(model, mode_names=("sensor", None))
    assert named.axes_[0].get_title() == "sensor"


def test_values_over_a_head_are_those_of_the_sensors_where_they_are():
    from tracelearn.plotting.modes import head_radius, over_head

    places = np.array([[0.5, 0.0], [-0.5, 0.0], [0.0, 0.9], [0.0, -1.2]])
    values = np.array([[1.0, 0.0], [-1.0, 0.0], [2.0, 1.0], [0.0, 0.0]])
    grids = over_head(places, values, size=401)
    at = np.round((places / head_radius(places) + 1.0) * 200).astype(int)
    np.testing.assert_allclose(grids[:, at[:, 1], at[:, 0]].T, values, atol=0.02)


def test_a_page_of_a_pipeline_knows_the_names_of_its_epochs():
    from tracelearn.report.facts import gather

    pipeline = make_pipeline(TensorStandardScaler(), TraceNormClassifier(alpha=0.1)).fit(epochs(), LABELS)
    facts = gather(pipeline)
    assert facts.names_of_weights == ["channel", "time"]
    assert facts.components[0].mode.positions is not None
    assert facts.for_table()["mode_names"] == ["channel", "time"]


def test_tests_and_pages_take_the_events_of_epochs_as_targets_as_fit_does():
    found, model = epochs(), TraceNormClassifier(alpha=1e-8)
    X, y = found.get_data(picks="eeg"), np.array(LABELS)
    for function, options in (
        (permutation_test, {"n_permutations": 9, "random_state": 0}),
        (map_test, {"n_permutations": 9, "random_state": 0}),
    ):
        assert str(function(model, found, **options)) == str(function(model, X, y, **options))
    course = decode_over_time(model, found)
    np.testing.assert_array_equal(course.scores, decode_over_time(model, X, y).scores)
    np.testing.assert_array_equal(course.mode.values, found.times)
    fitted = model.fit(found)
    assert model_page(fitted, found) == model_page(fitted, found, y)
    with pytest.raises(ValueError, match=r"^Expected targets y with X, got None"):
        model_page(fitted, X)
    with pytest.raises(ValueError, match=r"^Expected one target for each sample, got none: pass y"):
        permutation_test(model, X)
