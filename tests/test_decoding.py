"""Decoding over time and space: the batch equals loops over positions, as MNE's estimators make them."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import KFold

from tracelearn import TraceNormClassifier, TraceNormRegressor
from tracelearn.inference import decode_over_time, searchlight


def _epochs(n=48, channels=5, times=7, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(n)
    X = rng.standard_normal((n, channels, times)) + 3.0
    X[:, :, 2:5] += 0.6 * y[:, None, None]
    return X, y


CV = KFold(3, shuffle=True, random_state=0)
CASES = {
    "numbers": (TraceNormRegressor(0.1, tol=1e-13, max_iter=2000), lambda y: y, "r2"),
    "several": (TraceNormRegressor(0.1, tol=1e-13, max_iter=2000), lambda y: np.stack([y, y**2], 1), "r2"),
    "joint": (
        TraceNormRegressor(0.1, tol=1e-13, max_iter=2000, target_mode=True),
        lambda y: np.stack([y, y**2], 1),
        "r2",
    ),
    "scaled": (
        TraceNormRegressor(0.1, tol=1e-13, max_iter=2000, scaling="modes"),
        lambda y: y,
        "neg_mean_squared_error",
    ),
    "no intercept": (
        TraceNormRegressor(0.1, ridge=0.1, tol=1e-13, fit_intercept=False),
        lambda y: y,
        "r2",
    ),
    "ridge": (TraceNormRegressor(0.0, ridge=0.3, tol=1e-14), lambda y: y, "neg_median_absolute_error"),
    "classes": (TraceNormClassifier(0.05, tol=1e-12), lambda y: np.where(y > 0, "b", "a"), "accuracy"),
    "area": (TraceNormClassifier(0.05, tol=1e-12), lambda y: y > 0, "roc_auc"),
    "three": (TraceNormClassifier(0.05, tol=1e-12), lambda y: np.digitize(y, [-0.5, 0.5]), "balanced_accuracy"),
    "log_loss": (TraceNormClassifier(0.05, loss="log_loss"), lambda y: y > 0, "neg_log_loss"),
    "other": (LogisticRegression(), lambda y: y > 0, "roc_auc"),
}


def _sliding(model, X, y, slices, scoring, *, generalize):
    """Fit and score slice by slice, as MNE's SlidingEstimator and GeneralizingEstimator do."""
    found = []
    for train, test in CV.split(X):
        models = [clone(model).fit(own[train], y[train]) for own in slices]
        score = get_scorer(scoring)
        if generalize:
            found.append([[score(one, own[test], y[test]) for own in slices] for one in models])
        else:
            found.append([score(one, own[test], y[test]) for one, own in zip(models, slices, strict=True)])
    return np.array(found)


@pytest.mark.parametrize("generalize", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_a_loop_over_positions(case, generalize):
    model, targets, scoring = CASES[case]
    X, y = _epochs()
    y = targets(y)
    found = decode_over_time(model, X, y, cv=CV, scoring=scoring, generalize=generalize)
    slices = [X[..., t] for t in range(X.shape[-1])]
    np.testing.assert_allclose(
        found.scores, _sliding(model, X, y, slices, scoring, generalize=generalize), atol=1e-7 if generalize else 1e-8
    )
    assert found.method == ("refit" if case in ("log_loss", "other") else "batch")


@pytest.mark.parametrize("axis", [1, -1])
def test_windows_keep_the_mode_and_weights_have_low_rank_in_it(axis):
    X, y = _epochs()
    model = TraceNormRegressor(0.1, tol=1e-13, max_iter=2000)
    found = decode_over_time(model, X, y, axis=axis, window=3, step=2, cv=CV)
    size = X.shape[axis]
    np.testing.assert_array_equal(found.positions, np.arange(0, size - 2, 2))
    slices = [np.take(X, range(t, t + 3), axis=axis) for t in found.positions]
    np.testing.assert_allclose(found.scores, _sliding(model, X, y, slices, "r2", generalize=False), atol=1e-8)


def test_positions_in_several_batches_are_the_same(monkeypatch):
    X, y = _epochs()
    whole = decode_over_time(TraceNormRegressor(0.1, tol=1e-12), X, y, cv=CV, generalize=True)
    monkeypatch.setattr("tracelearn.inference.decoding._LARGEST_BATCH", 500)
    parts = decode_over_time(TraceNormRegressor(0.1, tol=1e-12), X, y, cv=CV, generalize=True)
    np.testing.assert_allclose(parts.scores, whole.scores, atol=1e-6)


@pytest.mark.parametrize("kind", [np.asarray, csr_array, list])
def test_a_searchlight_sees_each_neighbourhood_alone(kind):
    X, y = _epochs()
    chain = np.eye(5, k=1) + np.eye(5, k=-1)
    lists = [np.flatnonzero(row) for row in chain + np.eye(5)]
    model = TraceNormRegressor(0.1, tol=1e-13, max_iter=2000)
    found = searchlight(model, X, y, lists if kind is list else kind(chain), cv=CV)
    slices = [X[:, own] for own in lists]
    np.testing.assert_allclose(found.scores, _sliding(model, X, y, slices, "r2", generalize=False), atol=1e-8)
    flat = searchlight(model, X, y, [[0, 9, 20], [3, 4]], axis=None, cv=CV)
    slices = [X.reshape(len(X), -1)[:, own] for own in ([0, 9, 20], [3, 4])]
    np.testing.assert_allclose(flat.scores, _sliding(model, X, y, slices, "r2", generalize=False), atol=1e-8)


def test_groups_are_held_out_whole():
    X, y = _epochs()
    groups = np.arange(len(y)) % 4
    assert len(decode_over_time(TraceNormRegressor(0.1), X, y, groups=groups, cv=5).scores) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"axis": 0}, "axis"),
        ({"axis": 3}, "axis"),
        ({"window": 8}, "window of at most the 7"),
        ({"window": 0}, "window"),
        ({"step": -1}, "step"),
        ({"groups": [1]}, "one for each sample"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(options, words):
    X, y = _epochs()
    with pytest.raises(ValueError, match=words):
        decode_over_time(TraceNormRegressor(), X, y, **options)


@pytest.mark.parametrize(
    ("neighbours", "axis"), [(np.eye(4), 1), ([[0, 5]], 1), ([[]], 1), ([], 1), ([[0]], 0), ([[0]], 9)]
)
def test_bad_neighbours_are_refused_in_a_sentence(neighbours, axis):
    X, y = _epochs()
    with pytest.raises(ValueError, match="Expected"):
        searchlight(TraceNormRegressor(), X, y, neighbours, axis=axis)


def test_courses_and_maps_are_drawn():
    pytest.importorskip("matplotlib")
    X, y = _epochs()
    course = decode_over_time(TraceNormRegressor(0.1), X, y, cv=CV)
    np.testing.assert_allclose(course.plot(times=np.arange(7) / 10).lines[0].get_ydata(), course.mean)
    table = decode_over_time(TraceNormRegressor(0.1), X, y, cv=CV, generalize=True)
    np.testing.assert_allclose(table.plot().images[0].get_array(), table.mean)
    with pytest.raises(ValueError, match="7 times"):
        course.plot(times=[1, 2])


def test_chance_is_what_a_guess_without_samples_scores():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3, 4)), np.repeat(["a", "b", "c"], [30, 20, 10])
    model = TraceNormClassifier(0.1)
    chances = [decode_over_time(model, X, y, scoring=s, cv=3).chance for s in (None, "balanced_accuracy", "f1_macro")]
    assert chances == [0.5, pytest.approx(1 / 3), None]
    assert decode_over_time(model, X, y == "a", scoring="roc_auc", cv=3).chance == 0.5


def test_standard_errors_count_the_training_samples_that_folds_share():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3, 4)), rng.normal(size=60)
    model = TraceNormRegressor(alpha=0.01)
    decoding = decode_over_time(model, X, y, cv=4)
    independent = decoding.scores.std(axis=0, ddof=1) / np.sqrt(4)
    # Three quarters are learned from: 1 / 4 becomes 1 / 4 + 1 / 3.
    np.testing.assert_allclose(decoding.standard_error, independent * np.sqrt(1 + 4 / 3))


def test_another_random_state_draws_other_folds():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3, 4)), rng.normal(size=60)
    model = TraceNormRegressor(alpha=0.01)
    first, same, other = (decode_over_time(model, X, y, random_state=seed).scores for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert np.any(first != other)


def _named(times, channels=("Fz", "Cz", "Pz")):
    xarray = pytest.importorskip("xarray", reason="samples with names are those of xarray here")
    rng, y = np.random.default_rng(0), np.arange(40) % 2
    X = rng.standard_normal((40, len(channels), len(times)))
    X[:, 1, 4] += 3.0 * y
    coordinates = {"channel": list(channels), "time": ("time", times, {"units": "s"})}
    return xarray.DataArray(X, dims=("trial", "channel", "time"), coords=coordinates), y


def test_positions_are_called_by_the_times_that_the_samples_bring():
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    X, y = _named(np.arange(8) / 10 - 0.1)
    found = decode_over_time(TraceNormClassifier(), X, y)
    assert "best at time = 0.3 s" in str(found)
    axes = found.plot()
    assert axes.get_xlabel() == "time (s)"
    np.testing.assert_allclose(axes.lines[0].get_xdata(), np.arange(8) / 10 - 0.1)
    assert found.plot(times=np.arange(8)).get_xlabel() == "time"


def test_a_window_is_where_its_middle_is():
    X, y = _named(np.arange(8) / 10)
    found = decode_over_time(TraceNormClassifier(), X, y, window=3, step=2)
    np.testing.assert_allclose(found.mode.values, [0.1, 0.3, 0.5])
    assert found.positions.tolist() == [0, 2, 4]


def test_the_neighbourhood_of_a_sensor_has_its_name_and_no_line_joins_sensors():
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    X, y = _named(np.arange(8) / 10)
    found = searchlight(TraceNormClassifier(), X, y, np.eye(3))
    assert "best at channel Cz" in str(found)
    axes = found.plot()
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["Fz", "Cz", "Pz"]
    assert all(line.get_linestyle() in ("None", "--") for line in axes.lines)
