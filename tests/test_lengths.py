"""Samples of unequal length and with gaps: what views make of them, and searches that learn from them."""

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

from tracelearn import (
    Chain,
    Convolutions,
    Lengths,
    ModeWhitener,
    ResampleTime,
    SecondOrder,
    Similarities,
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormRegressor,
    load,
    save,
    to_onnx,
)
from tracelearn.features.covariances import completed_covariances
from tracelearn.features.gaps import lengths_of
from tracelearn.samples.lengths import padded

OWN_LENGTH = {
    "second order": SecondOrder(),
    "with levels": SecondOrder(scaling=True, mean=0.05, difference=True, windows=2),
    "lags": SecondOrder(lags=2, mean=False),
    "convolutions": Convolutions(dilations=3, thresholds=1),
    "convolutions of the mean": Convolutions(dilations=3, thresholds=1, average=True),
    "lengths": Lengths(),
    "similarities of second order": Similarities(SecondOrder(), kernel="gaussian", scaling=False, n_landmarks=20),
}
at_own_length = pytest.mark.parametrize("view", OWN_LENGTH.values(), ids=OWN_LENGTH)
resampled_too = pytest.mark.parametrize("view", [*OWN_LENGTH.values(), ResampleTime()], ids=[*OWN_LENGTH, "resampled"])


def series(n=30, channels=3, shortest=20, longest=50, seed=0):
    """Draw signals that move together, of several lengths; class 1 couples the first two."""
    rng = np.random.default_rng(seed)
    samples = [rng.standard_normal((channels, length)) for length in rng.integers(shortest, longest + 1, n)]
    y = np.arange(n) % 2
    for sample, label in zip(samples, y, strict=True):
        sample[1] += label * sample[0]
    return samples, y


def with_gaps(X, share, seed=0):
    """Drop entries at random."""
    X = np.array(X)
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


# --- views -------------------------------------------------------------------------------------------------------------


@resampled_too
def test_a_sample_is_transformed_as_if_it_were_alone(view):
    samples, _ = series()
    samples[4][1, 3:7] = np.nan
    samples[5][2] = np.nan
    view = clone(view).fit(samples)
    together = view.transform(samples)
    for sample, expected in zip(samples, together, strict=True):
        np.testing.assert_allclose(view.transform([sample])[0], expected, rtol=1e-9, atol=1e-12)


@resampled_too
def test_gaps_of_some_samples_change_nothing_in_the_others(view):
    X = np.stack(series(shortest=40, longest=40)[0])
    view = clone(view).fit(X)
    expected = view.transform(X)
    X[::2, 0, 5:9] = np.nan
    transformed = view.transform(X)
    np.testing.assert_array_equal(transformed[1::2], expected[1::2])
    assert np.all(np.isfinite(transformed))


@resampled_too
def test_padding_is_no_part_of_a_sample(view):
    samples, _ = series()
    X = padded(samples).values
    longer = np.pad(X, ((0, 0), (0, 0), (0, 7)), constant_values=np.nan)
    np.testing.assert_array_equal(clone(view).fit_transform(longer), clone(view).fit_transform(samples))


@at_own_length
def test_what_is_missing_in_no_sample_is_learned_as_from_complete_ones(view):
    X = np.stack(series(shortest=40, longest=40)[0])
    expected = clone(view).fit(X)
    weight = np.ones(len(X))
    weight[3] = 0.0
    without = clone(view).fit(np.delete(X, 3, axis=0))
    X[3, 1, 5:20] = np.nan
    weighted = clone(view).fit(X, sample_weight=weight)
    np.testing.assert_allclose(weighted.transform(X[4:]), without.transform(X[4:]), rtol=1e-9, atol=1e-9)
    assert expected.sample_shape_ == weighted.sample_shape_


def test_resampling_keeps_lines_and_what_is_there():
    times = np.arange(21.0)
    line = np.stack([times, 3.0 - 2.0 * times])[None]
    gappy = line.copy()
    gappy[0, 0, 4:9] = gappy[0, 1, 11] = np.nan
    np.testing.assert_allclose(ResampleTime(n_times=21).fit_transform(gappy), line, atol=1e-12)
    halved = ResampleTime(n_times=11).fit_transform(gappy)
    np.testing.assert_allclose(halved, line[..., ::2], atol=1e-12)
    X = np.random.default_rng(0).normal(size=(5, 3, 20))
    gappy = with_gaps(X, 0.2)
    gappy[..., -1] = X[..., -1]
    filled = ResampleTime().fit_transform(gappy)
    np.testing.assert_array_equal(filled[~np.isnan(gappy)], gappy[~np.isnan(gappy)])


def test_a_chain_takes_what_its_first_transformer_takes():
    samples, _ = series()
    chain = Chain([ResampleTime(n_times=30), ModeWhitener()])
    Z = chain.fit_transform(samples)
    np.testing.assert_allclose(Z, make_pipeline(ResampleTime(n_times=30), ModeWhitener()).fit_transform(samples))
    np.testing.assert_allclose(chain.transform(samples[:1]), Z[:1], rtol=1e-9, atol=1e-12)
    assert get_tags(chain).input_tags.allow_nan
    with pytest.raises(ValueError, match="rows of several shapes"):
        Chain([ModeWhitener(), SecondOrder()]).fit(samples)


def similarities_of(view, samples):
    """Find the similarities of samples with each other, which do not depend on the order of landmarks."""
    Z = view.transform(samples)
    return Z @ Z.T


def test_similarities_see_what_the_transformer_inside_makes_of_samples_at_their_own_length():
    samples, _ = series()
    samples[4][1, 3:7] = np.nan
    samples[5][2] = np.nan
    view = Similarities(SecondOrder(difference=True), kernel="gaussian", scaling=False)
    apart = make_pipeline(view.transformer, clone(view).set_params(transformer=None)).fit(samples)
    fitted = clone(view).fit(samples)
    np.testing.assert_allclose(similarities_of(fitted, samples), similarities_of(apart, samples), atol=1e-6)
    assert fitted.takes_any_length_
    assert get_tags(view).input_tags.allow_nan
    W = np.random.default_rng(0).standard_normal((2, 500))
    assert np.all(np.isfinite(fitted.entry_weights(W)))
    assert fitted.entry_weights(W).shape == (2, *fitted.transformers_[0].output_shape_)
    assert not get_tags(Similarities()).input_tags.allow_nan
    with pytest.raises(ValueError, match="rows of several shapes"):
        Similarities().fit(samples)


def test_similarities_tell_classes_that_differ_in_how_fast_signals_move():
    """Signals of class 1 are twice as slow and twice as long: resampled, both classes are alike."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    samples = []
    for label in y:
        times = np.linspace(0.0, 1.0, 60 * (1 + label) + int(rng.integers(5)))
        phases, speeds = 2 * np.pi * rng.random((2, 6, 1)), rng.uniform(4.0, 20.0, (2, 6, 1))
        samples.append(np.cos(speeds * times + phases).sum(axis=1))
    view = Similarities(SecondOrder(difference=True, scaling=True), kernel="gaussian", scaling=False, n_landmarks=40)
    model = make_pipeline(view, TraceNormClassifier(alpha=1e-3))
    resampled = ResampleTime(n_times=90).fit_transform(samples)
    at_own_length, at_one_length = (
        clone(model).fit(X[:40], y[:40]).score(X[40:], y[40:]) for X in (samples, resampled)
    )
    assert at_own_length > 0.9 > 0.7 > at_one_length


@pytest.mark.parametrize("n_landmarks", [7, 500])
def test_landmarks_of_unequal_length_do_not_depend_on_order_batches_and_repetitions(n_landmarks, tmp_path):
    samples, _ = series()
    samples[5][2] = np.nan
    view = Similarities(SecondOrder(mean=False), n_landmarks=n_landmarks)
    whole = clone(view).fit(samples)
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(30), 2))
    repeated = clone(view).fit([samples[i] for i in order])
    expected = similarities_of(whole, samples)
    # The common length, at which samples are numbered, is that of the first batch.
    middle = sorted(range(30), key=lambda i: abs(samples[i].shape[1] - whole.sample_shape_[1]))
    batches = clone(view)
    for batch in (middle[:11], middle[11:25], middle[25:], [0], middle[:3]):
        batches.partial_fit([samples[i] for i in batch])
    save(whole, tmp_path / "view")
    loaded = load(tmp_path / "view")
    np.testing.assert_array_equal(loaded.transform(samples), whole.transform(samples))
    np.testing.assert_array_equal(loaded.landmarks_, whole.landmarks_)
    assert len(whole.draws_) == len(repeated.draws_) == min(30, n_landmarks)
    np.testing.assert_array_equal(repeated.draws_, whole.draws_)
    np.testing.assert_allclose(similarities_of(repeated, samples), expected, atol=1e-7)
    assert batches.sample_shape_ == whole.sample_shape_
    np.testing.assert_array_equal(batches.draws_, whole.draws_)
    np.testing.assert_array_equal(np.nan_to_num(batches.landmarks_), np.nan_to_num(whole.landmarks_))


def test_later_samples_are_brought_to_the_length_of_the_first():
    samples, _ = series()
    first = ResampleTime().fit(samples)
    same = [sample for sample in samples if sample.shape[1] != first.n_times_][:1] * 4
    model = clone(first).partial_fit(samples).partial_fit(np.stack(same))
    assert model.sample_shape_ == first.sample_shape_
    assert model.n_unequal_ == first.n_unequal_ + 4
    weight = [1, 1, 1, 1, 1e-12]
    together = clone(first).partial_fit(samples).partial_fit([*same, samples[0]], sample_weight=weight)
    np.testing.assert_allclose(model.mean_, together.mean_, rtol=1e-9, atol=1e-9)


def test_a_length_that_is_asked_for_is_that_of_samples_in_blocks():
    X = np.random.default_rng(0).normal(size=(30, 2, 21))
    expected = ResampleTime(n_times=11).fit(X)
    blocks = [(X[:20], None), (X[20:], None)]
    for samples in (blocks, iter(blocks), da.from_array(X, chunks=(10, 2, 21))):
        model = ResampleTime(n_times=11).fit(samples)
        assert model.sample_shape_ == expected.sample_shape_ == (2, 11)
        np.testing.assert_allclose(model.mean_, expected.mean_, rtol=1e-12, atol=1e-12)


def test_the_common_length_is_the_median_over_what_samples_weigh():
    samples = [np.ones((1, length)) for length in (10, 20, 30, 40)]
    assert ResampleTime().fit(samples).n_times_ == 25
    assert ResampleTime().fit(samples, sample_weight=[0, 0, 1, 2]).n_times_ == 40
    assert ResampleTime().fit(samples, sample_weight=[1, 1, 0, 0]).n_times_ == 15


def test_a_channel_without_values_becomes_its_mean_over_the_other_samples():
    X = np.random.default_rng(0).normal(size=(6, 2, 20))
    X[2, 1] = np.nan
    weight = np.arange(1.0, 7.0)
    filled = ResampleTime().fit(X, sample_weight=weight).transform(X)
    others = np.delete(np.arange(6), 2)
    expected = np.average(X[others, 1], axis=0, weights=weight[others])
    np.testing.assert_allclose(filled[2, 1], expected, rtol=1e-12)
    parts = ResampleTime().partial_fit(X[:3], sample_weight=weight[:3]).partial_fit(X[3:], sample_weight=weight[3:])
    np.testing.assert_allclose(parts.transform(X), filled, rtol=1e-12)
    assert parts.n_filled_ == 20


def test_without_time_every_entry_has_a_mean_of_its_own():
    X = np.random.default_rng(0).normal(size=(50, 3, 4))
    gappy = with_gaps(X, 0.3)
    filled = ResampleTime(None).fit_transform(gappy)
    expected = np.where(np.isnan(gappy), np.nanmean(gappy, axis=0), gappy)
    np.testing.assert_allclose(filled, expected, rtol=1e-12)


def test_convolutions_count_the_times_that_a_sample_has():
    """What repeats has the same shares at any length, which the padding of a shorter sample would lower."""
    wave = np.sin(0.61 * np.arange(240))[None]
    samples = [wave[:, :length] for length in (120, 240)]
    shares = Convolutions(dilations=1, thresholds=1).fit_transform(samples).reshape(2, -1)
    np.testing.assert_allclose(shares[0], shares[1], atol=0.06)


def test_covariances_are_those_of_lines_through_gaps():
    X = np.random.default_rng(0).normal(size=(20, 3, 40))
    gappy, filled = X.copy(), X.copy()
    gappy[:5, 1, 10] = np.nan
    filled[:5, 1, 10] = (X[:5, 1, 9] + X[:5, 1, 11]) / 2
    for view in (SecondOrder(scaling=True, mean=0.05, difference=True), SecondOrder(windows=2, lags=1)):
        np.testing.assert_allclose(view.fit_transform(gappy), view.fit_transform(filled), atol=1e-9)


def test_what_is_not_seen_is_completed_so_that_nothing_new_is_said():
    """Relative to the reference, a completed matrix has as many directions of its own as signals were seen."""
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(2, 5, 5))
    M, S = A @ A.T, B @ B.T
    partial = S.copy()
    partial[[1, 3]] = partial[:, [1, 3]] = np.nan
    completed = completed_covariances(partial[None], M)[0]
    seen = np.ix_([0, 2, 4], [0, 2, 4])
    np.testing.assert_allclose(completed[seen], S[seen], rtol=1e-9)
    assert np.linalg.matrix_rank(np.linalg.solve(M, completed) - np.eye(5), tol=1e-8) == 3
    M_seen_alone = M.copy()
    M_seen_alone[[1, 3]] = M_seen_alone[:, [1, 3]] = np.nan
    np.testing.assert_allclose(completed_covariances(M_seen_alone[None], M)[0], M, rtol=1e-9, atol=1e-9)


def test_a_channel_missing_in_a_whole_sample_says_nothing_in_second_order():
    X = np.random.default_rng(0).normal(size=(20, 3, 60))
    view = SecondOrder(mean=False).fit(X)
    X[0, 1:] = np.nan
    Z = view.transform(X[:1])[0]
    M = view.reference_
    alone = np.log(np.var(X[0, 0]) / M[0, 0])
    assert np.linalg.matrix_rank(Z, tol=1e-9) == 1
    assert np.trace(Z) == pytest.approx(alone, rel=1e-6)


def test_transformers_that_need_every_entry_refuse_gaps():
    X = with_gaps(np.random.default_rng(0).normal(size=(10, 3, 20)), 0.1)
    with pytest.raises(ValueError, match="TensorClassifier or TensorRegressor"):
        ModeWhitener().fit(X)
    assert not get_tags(ModeWhitener()).input_tags.allow_nan
    assert get_tags(SecondOrder()).input_tags.allow_nan


# --- reading -----------------------------------------------------------------------------------------------------------


def test_a_list_is_padded_along_the_mode_that_differs():
    samples, _ = series(5)
    X = padded(samples)
    assert X.time == 1
    np.testing.assert_array_equal(lengths_of(X.values, 1), [sample.shape[1] for sample in samples])
    turned = padded([sample.T for sample in samples])
    assert turned.time == 0
    np.testing.assert_array_equal(turned.values, np.swapaxes(X.values, 1, 2))
    alone = padded([sample[0] for sample in samples])
    np.testing.assert_array_equal(alone.values, X.values[:, :1])
    as_objects = np.empty(5, dtype=object)
    as_objects[:] = samples
    np.testing.assert_array_equal(padded(as_objects).values, X.values)
    np.testing.assert_array_equal(padded([sample.tolist() for sample in samples]).values, X.values)
    assert padded([np.float32(sample) for sample in samples]).values.dtype == np.float32


def test_containers_of_other_libraries_are_lists_of_samples():
    pd = pytest.importorskip("pandas")
    pa = pytest.importorskip("pyarrow", reason="lists need pyarrow, an extra")
    samples, y = series(12)
    expected = padded(samples).values
    nested = pd.DataFrame({f"dim_{c}": [pd.Series(sample[c]) for sample in samples] for c in range(3)})
    np.testing.assert_array_equal(padded(nested).values, expected)
    index = pd.MultiIndex.from_tuples(
        [(f"s{i}", t) for i, sample in enumerate(samples) for t in range(sample.shape[1])]
    )
    long = pd.DataFrame(np.concatenate([sample.T for sample in samples]), index=index)
    np.testing.assert_array_equal(padded(long, n_targets=12).values, expected)
    np.testing.assert_array_equal(padded(long, known_shape=(3, 40)).values, expected)
    assert padded(long, n_targets=len(long)).values is long
    assert padded(long).values is long
    lists = pa.array([sample.tolist() for sample in samples])
    np.testing.assert_array_equal(padded(lists).values, expected)
    model = TensorClassifier(SecondOrder(), cv=3).fit(long, y)
    np.testing.assert_array_equal(
        model.predict(long), TensorClassifier(SecondOrder(), cv=3).fit(samples, y).predict(samples)
    )


def test_epochs_of_several_recordings_may_end_early():
    mne = pytest.importorskip("mne", reason="epochs need MNE, an extra")
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2

    def epochs(labels, n_times):
        X = rng.standard_normal((len(labels), 3, n_times))
        X[:, 1] += labels[:, None] * X[:, 0]
        events = np.column_stack([np.arange(len(labels)), 0 * labels, labels + 1])
        info = mne.create_info(["C3", "Cz", "C4"], 100.0, "eeg")
        return mne.EpochsArray(X, info, events, event_id={"rest": 1, "move": 2}, verbose=False)

    first, second = epochs(y, 60), epochs(y, 90)
    model = TensorClassifier(SecondOrder(), cv=3).fit([first, second])
    assert model.resampler_.longest_ == 90
    assert model.score([epochs(y, 75)]) > 0.8
    other = mne.EpochsArray(
        first.get_data(), mne.create_info(3, 50.0, "eeg"), first.events, event_id=first.event_id, verbose=False
    )
    with pytest.raises(ValueError, match="Expected the coordinates of"):
        TensorClassifier(SecondOrder(), cv=3).fit([first, second, other])


def test_what_is_no_list_of_unequal_samples_is_not_touched():
    samples, _ = series(4, shortest=30, longest=30)
    batches = [(np.ones((3, 2, 5)), np.ones(3)), (np.ones((4, 2, 5)), np.ones(4))]
    for X in (samples, np.stack(samples), batches, [], [[1.0, 2.0], [3.0]], "path", None):
        assert padded(X).values is X
        assert padded(X).time is None


def test_the_first_sample_of_other_channels_is_named():
    samples, y = series(8)
    samples[5] = samples[5][:2]
    with pytest.raises(ValueError, match=r"got shape \(3, \d+\) of sample 0 and \(2, \d+\) of sample 5"):
        TensorClassifier().fit(samples, y)
    samples[5] = samples[5][0]
    with pytest.raises(ValueError, match=r"as many modes, got shape .* of sample 5"):
        TensorClassifier().fit(samples, y)


# --- searches ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    samples, y = series(80)
    return TensorClassifier(cv=3).fit(samples, y)


def test_a_search_learns_from_series_of_unequal_length(fitted, tmp_path):
    samples, y = series(60, seed=1)
    assert fitted.score(samples, y) > 0.9
    assert "lengths" in fitted.view_shares_
    assert fitted.resampler_.n_unequal_ > 70
    probabilities = fitted.predict_proba(samples)
    one_by_one = np.concatenate([fitted.predict_proba([sample]) for sample in samples])
    np.testing.assert_allclose(one_by_one, probabilities, atol=1e-9)
    longer = [*samples, np.concatenate([samples[0], samples[2]], axis=1)]  # than any sample of fit
    np.testing.assert_allclose(fitted.predict_proba(longer)[:-1], probabilities, atol=1e-9)
    save(fitted, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(samples), probabilities)


def test_pages_and_commands_say_what_was_completed(fitted, tmp_path, capsys):
    from tracelearn.cli import main
    from tracelearn.report import write_model_page

    resampler = fitted.resampler_
    unequal = f"{resampler.n_unequal_} samples, of lengths from 20 to 50, resampled to {resampler.n_times_}"
    X = with_gaps(np.stack(series(40, shortest=40, longest=40)[0]), 0.1)
    gappy = TensorClassifier(None, cv=3).fit(X, np.arange(40) % 2)
    filled = f"{np.isnan(X).sum()} missing entries filled"
    for model, said in ((fitted, unequal), (gappy, filled)):
        write_model_page(model, tmp_path / "page.html")
        assert said in (tmp_path / "page.html").read_text()
        save(model, tmp_path / "model")
        with pytest.raises(SystemExit):
            main(["inspect", str(tmp_path / "model")])
        assert said[:20] in " ".join(capsys.readouterr().out.split())


def test_a_graph_has_one_length(fitted):
    pytest.importorskip("onnx", reason="graphs need onnx, an extra")
    with pytest.raises(ValueError, match="samples of one length, got one of samples of several"):
        to_onnx(fitted)


@pytest.mark.slow
def test_commands_learn_from_tables_of_unequal_samples(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="tables need pyarrow, an extra")
    from pyarrow import parquet

    from tracelearn.cli import main

    samples, y = series(60)
    lengths = [sample.shape[1] for sample in samples]
    values = np.concatenate(samples, axis=1)
    table = pa.table(
        {
            "rec": np.repeat(np.arange(60), lengths),
            "t": np.concatenate([np.arange(length) for length in lengths]),
            **{name: row for name, row in zip("abc", values, strict=True)},
            "label": np.repeat(y, lengths),
        }
    )
    parquet.write_table(table, tmp_path / "long.parquet")
    reading = ["--sample", "rec", "--time", "t", "--target", "label"]
    model, predictions = str(tmp_path / "model"), tmp_path / "predictions.csv"
    for command in (
        ["fit", str(tmp_path / "long.parquet"), *reading, "--out", model, "--cv", "3"],
        ["predict", model, str(tmp_path / "long.parquet"), *reading, "--out", str(predictions)],
    ):
        with pytest.raises(SystemExit) as leaving:
            main(command)
        assert leaving.value.code == 0
    assert load(model).resampler_.n_unequal_ > 40
    np.testing.assert_array_equal(
        [int(line.split(",")[1]) for line in predictions.read_text().split()[1:]], load(model).predict(samples)
    )


def test_channels_are_still_compared_with_those_of_fit(fitted):
    with pytest.raises(ValueError, match=r"Expected samples of shape \(3, \d+\) as in fit"):
        fitted.predict([np.ones((2, 30)), np.ones((2, 31))])


def test_the_length_itself_can_be_all_that_differs():
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    samples = [rng.standard_normal((2, rng.integers(30, 40) + 25 * label)) for label in y]
    model = TensorClassifier(cv=3).fit(samples, y)
    assert "lengths" in model.views_
    assert model.score(samples, y) > 0.95


def test_weights_are_those_of_samples_of_the_median_length():
    rng = np.random.default_rng(0)
    samples = [rng.standard_normal((2, length)) for length in rng.integers(20, 40, 101)]
    y = np.array([sample[0].mean() for sample in samples])
    model = TensorRegressor(views=None).fit(samples, y)
    assert model.sample_shape_ == (2, int(np.median([sample.shape[1] for sample in samples])))
    assert model.coef_.shape == model.patterns_.shape == model.sample_shape_
    assert model.coef_[0].sum() > 5 * abs(model.coef_[1].sum())
    lower, upper = model.predict_interval(samples)
    assert np.all(lower < upper)


@pytest.mark.parametrize("kind", ["tensors", "flat", "one mode"])
def test_a_search_learns_from_samples_with_gaps(kind):
    X = np.stack(series(80, shortest=40, longest=40)[0])
    y = X[:, 0, :10].mean(axis=1)
    gappy = with_gaps(X, 0.1)
    options = {}
    if kind == "flat":
        gappy, options = gappy.reshape(80, -1), {"tensor_shape": (3, 40)}
    elif kind == "one mode":
        gappy = gappy[:, 0]
    model = TensorRegressor(None, cv=3, **options).fit(gappy, y)
    assert model.score(gappy, y) > 0.6
    assert model.resampler_.n_filled_ > 0
    assert model.n_features_in_ == X[0].size or kind == "one mode"


def test_a_search_of_complete_samples_predicts_those_with_gaps():
    X = np.stack(series(80, shortest=40, longest=40)[0])
    y = np.arange(80) % 2
    model = TensorClassifier(cv=3).fit(X[:60], y[:60])
    assert model.resampler_.n_filled_ == model.resampler_.n_unequal_ == 0
    gappy = X[60:].copy()
    gappy[::2, :, 10:13] = np.nan
    probabilities = model.predict_proba(gappy)
    np.testing.assert_array_equal(probabilities[1::2], model.predict_proba(X[60:])[1::2])
    assert model.score(gappy, y[60:]) > 0.8
    with pytest.raises(ValueError, match="as in fit"):
        model.predict(X[:, :, :30])


def test_samples_of_no_weight_decide_nothing():
    X = np.stack(series(60, shortest=40, longest=40)[0])
    y = np.arange(60) % 2
    weight = np.ones(60)
    weight[5] = 0.0
    expected = TensorClassifier(cv=3).fit(X, y, sample_weight=weight).predict_proba(X[6:])
    X[5, :, 30:] = np.nan
    np.testing.assert_array_equal(TensorClassifier(cv=3).fit(X, y, sample_weight=weight).predict_proba(X[6:]), expected)


def test_partial_fit_learns_from_gaps_and_other_lengths():
    samples, y = series(90)
    samples[70][0, 3:6] = np.nan
    model = TensorClassifier([None, SecondOrder()], cv=3, keep_moments=True, loss="squared_error").fit(
        samples[:60], y[:60]
    )
    more = clone(model).fit(samples[:60], y[:60]).partial_fit(samples[60:], y[60:])
    assert more.moments_.weight == 90
    one_by_one = clone(model).fit(samples[:60], y[:60])
    for sample, label in zip(samples[60:], y[60:], strict=True):
        one_by_one.partial_fit([sample], [label])
    np.testing.assert_allclose(one_by_one.decision_function(samples), more.decision_function(samples), atol=1e-3)
    assert not np.allclose(more.decision_function(samples), model.decision_function(samples), atol=1e-3)


def test_lists_go_through_cross_validation_and_pipelines():
    samples, y = series(60)
    search = TensorClassifier([None, SecondOrder()], cv=3)
    assert np.mean(cross_val_score(search, samples, y, cv=3)) > 0.8
    assert np.mean(cross_val_score(make_pipeline(SecondOrder(), TraceNormClassifier()), samples, y, cv=3)) > 0.8
    assert np.mean(cross_val_score(make_pipeline(ResampleTime(), TensorClassifier(cv=3)), samples, y, cv=3)) > 0.8


def test_the_linear_estimators_say_who_takes_such_samples():
    samples, y = series(20)
    for model in (TraceNormClassifier(), TraceNormRegressor()):
        with pytest.raises(ValueError, match=r"rows of several shapes.*TensorClassifier or TensorRegressor"):
            model.fit(samples, y)
        with pytest.raises(ValueError, match=r"got NaN at sample .*TensorClassifier or TensorRegressor.*imputer"):
            model.fit(padded(samples).values, y)
        assert not get_tags(model).input_tags.allow_nan
    assert get_tags(TensorClassifier()).input_tags.allow_nan


def test_a_sample_without_any_value_and_infinity_are_refused():
    X = np.random.default_rng(0).normal(size=(20, 2, 20))
    y = np.arange(20) % 2
    model = TensorClassifier(None, cv=3).fit(X, y)
    X[7] = np.nan
    for use in (lambda: clone(model).fit(X, y), lambda: model.predict(X)):
        with pytest.raises(ValueError, match="only NaN in sample 7"):
            use()
    X[7] = np.inf
    for use in (lambda: clone(model).fit(X, y), lambda: model.predict(X)):
        with pytest.raises(ValueError, match="got infinity at sample 7"):
            use()


def test_a_time_axis_that_does_not_differ_is_refused():
    samples, y = series(20)
    with pytest.raises(ValueError, match="unequal length along time_axis=0, got mode 1 that differs"):
        TensorClassifier(time_axis=0).fit(samples, y)
