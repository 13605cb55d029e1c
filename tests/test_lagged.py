"""Lagged models: autocovariances equal a lagged copy, segments do not touch, ridge is that of MNE."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from tracelearn import LaggedRegressor, Moments, TraceNormRegressor
from tracelearn.estimators import lagged
from tracelearn.estimators.lagged import lagged_moments

RANGES = [(0, 0), (0, 3), (-2, 3), (-4, -1), (2, 5), (-3, 0)]


def _recording(n=80, f=3, outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    return 5.0 + rng.standard_normal((n, f)), rng.standard_normal((n, outputs))


def _copy(x, first, last, edges="drop"):
    """Make a lagged copy, (m, lags, features), and say which times it is of."""
    n = len(x)
    if edges == "zero":
        wide = np.pad(x, ((max(last, 0), max(-first, 0)), (0, 0)))
        begin = max(last, 0)
        return np.stack([wide[begin - lag : begin - lag + n] for lag in range(first, last + 1)], axis=1), slice(0, n)
    begin, end = max(last, 0), n + min(first, 0)
    return np.stack([x[begin - lag : end - lag] for lag in range(first, last + 1)], axis=1), slice(begin, end)


@pytest.mark.parametrize(("first", "last"), RANGES)
@pytest.mark.parametrize("rows", [7, 4096])
def test_moments_are_those_of_a_lagged_copy(first, last, rows, monkeypatch):
    monkeypatch.setattr(lagged, "_BLOCK_ROWS", rows)
    x, y = _recording()
    D, times = _copy(x, first, last)
    found, expected = lagged_moments(x, y, first, last), Moments.of(D, y[times])
    for name in ("weight", "x_mean", "y_mean", "gram", "cross", "target_sq"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-10)


@pytest.mark.parametrize("edges", ["drop", "zero"])
@pytest.mark.parametrize(("first", "last"), RANGES)
def test_a_fit_is_that_of_a_lagged_copy_and_predictions_too(first, last, edges):
    x, y = _recording()
    D, times = _copy(x, first, last, edges)
    options = {"alpha": 0.02, "tol": 1e-10}
    model = LaggedRegressor((first, last), edges=edges, **options).fit(x, y)
    expected = TraceNormRegressor(**options).fit(D, y[times])
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    found = model.predict(x)
    np.testing.assert_allclose(found[times], expected.predict(D), atol=1e-4)
    assert np.sum(np.isnan(found[:, 0])) == len(x) - len(D)
    np.testing.assert_allclose(model.score(x, y), expected.score(D, y[times]), atol=1e-6)


def test_segments_do_not_touch_each_other_and_gaps_are_left_out():
    x, y = _recording()
    segments = np.repeat([0, 1, -1, 3], [30, 20, 10, 20])
    x[50:60], y[50:60] = 1e6, -1e6
    model = LaggedRegressor((-1, 4), alpha=0.02, tol=1e-10).fit(x, y, segments=segments)
    parts = [slice(0, 30), slice(30, 50), slice(60, 80)]
    pairs = [_copy(x[own], -1, 4) for own in parts]
    D = np.concatenate([copy for copy, _ in pairs])
    targets = np.concatenate([y[own][times] for own, (_, times) in zip(parts, pairs, strict=True)])
    expected = TraceNormRegressor(0.02, tol=1e-10).fit(D, targets)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    found = model.predict(x, segments=segments)
    np.testing.assert_allclose(found[np.isfinite(found[:, 0])], expected.predict(D), atol=1e-4)
    later = LaggedRegressor((-1, 4), alpha=0.02, tol=1e-10)
    for own in parts:
        later.partial_fit(x[own], y[own])
    np.testing.assert_allclose(later.coef_, model.coef_, atol=1e-5)
    assert later.moments_.weight == len(D)


def test_ridge_is_that_of_the_normal_equations_as_mne_solves_them():
    # TimeDelayingRidge with fit_intercept=False: zeros beyond the edges, and alpha added to the diagonal.
    x, y = _recording()
    D, _ = _copy(x, -2, 5, "zero")
    rows, alpha = D.reshape(len(x), -1), 3.0
    expected = np.linalg.solve(rows.T @ rows + alpha * np.eye(rows.shape[1]), rows.T @ y).T
    model = LaggedRegressor((-2, 5), 0.0, ridge=alpha / len(x), fit_intercept=False, edges="zero", tol=1e-12).fit(x, y)
    np.testing.assert_allclose(model.coef_.reshape(2, -1), expected, atol=1e-8)


def test_ridge_is_that_of_mne():
    decoding = pytest.importorskip("mne.decoding")
    x, y = _recording(400)
    options = {"alpha": 3.0, "fit_intercept": False}
    theirs = decoding.TimeDelayingRidge(-2, 5, 1.0, **options).fit(x, y)
    ours = LaggedRegressor((-2, 5), 0.0, ridge=3.0 / 400, fit_intercept=False, edges="zero", tol=1e-12).fit(x, y)
    np.testing.assert_allclose(np.swapaxes(ours.coef_, 1, 2), theirs.coef_, atol=1e-7)


def test_few_profiles_are_found_and_outputs_may_share_them():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3000, 6))
    profile, pattern = np.exp(-np.arange(8) / 2.0), rng.standard_normal(6)
    signal = np.convolve(x @ pattern, profile)[:3000]
    model = LaggedRegressor(8, alpha=0.3).fit(x, signal + rng.standard_normal(3000))
    assert model.coef_.shape == (8, 6)
    assert model.mode_ranks_.tolist() == [1, 1]
    both = np.stack([signal, -signal], axis=1) + rng.standard_normal((3000, 2))
    shared = LaggedRegressor(8, alpha=0.3, target_mode=True).fit(x, both)
    assert shared.mode_ranks_.tolist() == [1, 1, 1]
    assert shared.patterns_.shape == shared.coef_.shape == (2, 8, 6)
    assert tuple(shared.convergence_[-1]) == (shared.n_iter_, shared.dual_gap_)


def test_old_times_are_forgotten():
    x, y = _recording(400)
    model = LaggedRegressor(3, forgetting=1e-6).partial_fit(x[:200], y[:200]).partial_fit(x[200:], y[200:])
    fresh = LaggedRegressor(3).fit(x[200:], y[200:])
    np.testing.assert_allclose(model.coef_, fresh.coef_, atol=1e-3)
    assert clone(model).forgetting == 1e-6


@pytest.mark.parametrize(
    ("options", "X", "y", "segments", "words"),
    [
        ({"lags": (3, 1)}, (9, 2), (9,), None, "lags"),
        ({"lags": (1, 2, 3)}, (9, 2), (9,), None, "lags"),
        ({"lags": 10}, (9, 2), (9,), None, "longer than lags"),
        ({}, (9,), (9,), None, "X of shape"),
        ({}, (9, 2), (8,), None, "one row for each sample"),
        ({}, (9, 2), (9, 0), None, "y of shape"),
        ({"lags": 2}, (9, 2), (9,), [0, 1], "segments"),
        ({"lags": 2}, (9, 2), (9,), np.linspace(0, 1, 9), "segments.*float64 values"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(options, X, y, segments, words):
    with pytest.raises(ValueError, match=words):
        LaggedRegressor(**options).fit(np.ones(X), np.ones(y), segments=segments)


def test_recordings_of_another_kind_gaps_without_a_mark_and_no_targets_are_refused():
    x, y = _recording()
    model = LaggedRegressor(2).fit(x, y)
    with pytest.raises(ValueError, match="of one kind"):
        model.partial_fit(x[:, :2], y)
    with pytest.raises(ValueError, match="3 features"):
        model.predict(x[:, :2])
    with pytest.raises(ValueError, match="target y is None"):
        model.fit(x)
    x[3] = np.nan
    with pytest.raises(ValueError, match="mark gaps"):
        model.fit(x, y)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x + 1j, y), "real numbers in X"),
        (lambda x, y: (x, y + 1j), "real numbers in y"),
        (lambda x, y: (np.full(x.shape, "a"), y), "numbers in X"),
        (lambda x, y: ((x + 1j).astype(object), y), "real numbers in X"),
        (lambda x, y: (x, [None, *y[1:, 0]]), "finite numbers in y, got NaN at sample 0"),
        (lambda x, y: (x, pd.Series([pd.NA, *y[1:, 0]], dtype=object)), "finite numbers in y, got NaN at sample 0"),
        (lambda x, y: (pd.DataFrame(x).astype("Float64").mask(x > 6), y), "finite numbers in X"),
        (lambda x, y: (x, 1e200 * y), "largest number in y"),
        (lambda x, y: (1e200 * x, y), "largest number in X"),
    ],
)
def test_what_is_no_number_or_too_large_a_one_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        LaggedRegressor(2).fit(*change(*_recording()))


def test_other_lags_are_not_added_to_those_that_were_learned():
    x, y = _recording()
    model = LaggedRegressor(2).fit(x, y).set_params(lags=(1, 2))
    with pytest.raises(ValueError, match="lags 0 to 1 as before, got 1 to 2"):
        model.partial_fit(x, y)
    np.testing.assert_array_equal(model.predict(x), LaggedRegressor(2).fit(x, y).predict(x))
    assert model.fit(x, y).lags_.tolist() == [1, 2]


def test_a_score_is_of_finite_targets_for_every_time_and_of_two_times_at_least():
    x, y = _recording()
    model = LaggedRegressor(2).fit(x, y)
    with pytest.raises(ValueError, match="finite numbers in y"):
        model.score(x, np.nan * y)
    with pytest.raises(ValueError, match="one row for each sample"):
        model.score(x, y[:9])
    with pytest.raises(ValueError, match="at least two times"):
        model.score(x[:2], y[:2])
