"""Samples that are smooth along a mode: their transformers, how such a mode is found, and what a search makes of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.signal import detrend, savgol_filter

from tracelearn import Chain, Detrend, SavitzkyGolay, ScatterCorrection, TensorRegressor, Thresholds
from tracelearn.features import find_smooth_mode
from tracelearn.features.axes import neighbour_correlation
from tracelearn.losses import SquaredError
from tracelearn.plotting.views import parts_of_model
from tracelearn.report import model_page
from tracelearn.search.choice import _may_be_luck
from tracelearn.search.folds import Folds
from tracelearn.search.paths import RIDGES, SMALLER_RIDGES, ridge_path, still_rises
from tracelearn.search.splits import Targets, split_samples
from tracelearn.search.views import views_that_suit


@pytest.fixture(name="X")
def tensors(rng):
    return np.cumsum(rng.standard_normal((12, 3, 40, 2)), axis=2)


def spectra(n=40, n_points=120, seed=0):
    """Simulate narrow peaks, the height of one of them the target, on broad backgrounds; a third of the points is noisy."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0.0, 1.0, n_points)
    peaks = np.exp(-(((x - np.linspace(0.1, 0.9, 9)[:, None]) / 0.02) ** 2))
    heights = rng.uniform(0.0, 1.0, (n, 9))
    backgrounds = np.exp(-(((x - rng.uniform(0.0, 1.0, (n, 10, 1))) / 0.3) ** 2))
    X = heights @ peaks + np.einsum("nk,nkp->np", rng.uniform(0.0, 30.0, (n, 10)), backgrounds)
    return X + np.where(x < 0.65, 0.01, 1.0) * rng.standard_normal(X.shape), heights[:, 3]


# --- transformers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0, 1, -1, None])
@pytest.mark.parametrize(("derivative", "window", "degree"), [(0, 3, 1), (1, 3, 2), (2, 3, 2)])
def test_the_filter_is_that_of_scipy(X, mode, derivative, window, degree):
    X = X[..., :1].repeat(3, axis=-1) ** 2  # every mode is as long as the window
    axis = 2 if mode is None else mode + (1 if mode >= 0 else 4)
    expected = savgol_filter(X, window, degree, deriv=derivative, axis=axis)
    Z = SavitzkyGolay(derivative, window=window, degree=degree, mode=mode).fit_transform(X)
    np.testing.assert_allclose(Z, expected, atol=1e-9)


def test_filtered_entries_are_standardized_where_they_vary(X):
    X = np.concatenate([X, np.ones((12, 3, 40, 1))], axis=-1)
    plain = SavitzkyGolay(1, window=5).fit_transform(X)
    Z = SavitzkyGolay(1, window=5, scaling=True).fit_transform(X)
    np.testing.assert_allclose(Z[..., :2], plain[..., :2] / plain[..., :2].std(axis=0))
    np.testing.assert_allclose(Z[..., 2], 0.0, atol=1e-12)


def test_rounding_is_no_spread(X):
    X[..., 0] = np.cumsum(np.full(40, 1e6 / 3.0))  # all samples have this in common: what they differ in is rounding
    for factor in (1.0, 1e-9):
        Z = SavitzkyGolay(1, scaling=True).fit_transform(factor * X)
        np.testing.assert_allclose(Z[..., 0], Z[:1, ..., 0].repeat(12, axis=0), rtol=1e-9)
        assert np.all(np.abs(Z[..., 0]) <= factor * 1e6)


@pytest.mark.parametrize("parameters", [{"window": 4}, {"window": 3, "degree": 3}, {"derivative": 3}, {"window": 41}])
def test_filters_that_are_none_are_refused(X, parameters):
    with pytest.raises(ValueError, match=r"Expected (an odd window|a mode of at least)"):
        SavitzkyGolay(**parameters).fit(X)


@pytest.mark.parametrize(("degree", "kind"), [(0, "constant"), (1, "linear")])
def test_trends_are_those_of_scipy(X, degree, kind):
    np.testing.assert_allclose(Detrend(degree).fit_transform(X), detrend(X, axis=2, type=kind), atol=1e-10)
    curve = np.linspace(-1.0, 1.0, 40)[:, None] ** 2
    Z = Detrend(2).fit(X).transform(X + 7.0 * curve)
    np.testing.assert_allclose(Z, Detrend(2).fit_transform(X), atol=1e-10)


@pytest.mark.parametrize("method", ["snv", "msc"])
def test_offset_and_size_of_a_sample_do_not_matter(X, rng, method):
    model = ScatterCorrection(method).fit(X)
    sizes, offsets = rng.uniform(0.1, 10.0, (2, 12, 3, 1, 2))
    np.testing.assert_allclose(model.transform(sizes * X + offsets), model.transform(X), atol=1e-9)


def test_the_standard_normal_variate_has_mean_zero_and_size_one(X):
    Z = ScatterCorrection().fit_transform(X)
    np.testing.assert_allclose([Z.mean(axis=2), Z.std(axis=2)], [np.zeros((12, 3, 2)), np.ones((12, 3, 2))], atol=1e-12)


def test_multiplicative_correction_makes_a_sample_the_mean_that_it_is_a_multiple_of(X):
    model = ScatterCorrection("msc").fit(X)
    np.testing.assert_allclose(model.transform(3.0 * model.mean_[None] + 2.0)[0], model.mean_, atol=1e-10)
    slope, offset = np.polyfit(model.mean_[1, :, 0], X[4, 1, :, 0], 1)
    np.testing.assert_allclose(model.transform(X)[4, 1, :, 0], (X[4, 1, :, 0] - offset) / slope, atol=1e-9)


def test_samples_without_a_size_stay_finite(X):
    X[0] = 5.0
    for method in ("snv", "msc"):
        Z = ScatterCorrection(method).fit_transform(X)
        assert np.all(np.isfinite(Z))
        np.testing.assert_allclose(np.ptp(Z[0], axis=1), 0.0, atol=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda mode: SavitzkyGolay(2, mode=mode, scaling=True),
        lambda mode: Detrend(mode=mode),
        lambda mode: Chain([SavitzkyGolay(1, mode=mode), ScatterCorrection("msc", mode=mode)]),
    ],
    ids=["derivative", "detrending", "scatter correction"],
)
def test_a_mode_of_size_one_changes_nothing(make):
    X, _ = spectra()
    expected = make(0).fit_transform(X)
    for mode in (None, 1):
        np.testing.assert_allclose(make(mode).fit_transform(X[:, None])[:, 0], expected, atol=1e-12)
    for mode in (None, 0):
        np.testing.assert_allclose(make(mode).fit_transform(X[..., None])[..., 0], expected, atol=1e-12)


def test_thresholds_are_normal_quantiles_of_means_over_intervals(X):
    model = Thresholds(3, n_intervals=4).fit(X)
    Z = model.transform(X)
    assert Z.shape == (12, *model.output_shape_) == (12, 3, 3, 4, 2)
    means = X.reshape(12, 3, 4, 10, 2).mean(axis=3)
    for k, place in enumerate((-0.6744897501960817, 0.0, 0.6744897501960817)):
        np.testing.assert_array_equal(Z[:, k], means > means.mean(axis=0) + place * means.std(axis=0))
    every = Thresholds(1, n_intervals=1000).fit_transform(X)  # no interval is shorter than an entry
    np.testing.assert_array_equal(every[:, 0], X > X.mean(axis=0))


# --- which mode is smooth --------------------------------------------------------------------------------------------


def test_correlations_of_neighbours_are_those_of_numpy(X):
    X[:, 1] = 3.0
    expected = [np.corrcoef(X[:, i, j, k], X[:, i, j + 1, k])[0, 1] for i in (0, 2) for j in range(39) for k in (0, 1)]
    assert neighbour_correlation(X, np.ones(12), 1) == pytest.approx(np.median(expected))
    repeated = neighbour_correlation(np.concatenate([X, X[:4]]), np.ones(16), 1)
    assert neighbour_correlation(X, np.repeat([2.0, 1.0], [4, 8]), 1) == pytest.approx(repeated)
    assert neighbour_correlation(1e200 * X, np.ones(12), 1) == pytest.approx(np.median(expected))
    assert neighbour_correlation(0.0 * X, np.ones(12), 1) == 0.0


def test_the_smooth_mode_is_the_same_with_a_mode_of_size_one(rng):
    X, _ = spectra()
    weight = np.ones(len(X))
    assert find_smooth_mode(X, weight)[0] == 0
    assert find_smooth_mode(X[:, None], weight)[0] == 1
    assert find_smooth_mode(X[:, :, None], weight)[0] == 0
    assert find_smooth_mode(X[:, :44], weight)[0] is None
    assert find_smooth_mode(X[:, rng.permutation(X.shape[1])] + rng.normal(0, 30, X.shape), weight)[0] is None


def test_a_mode_may_be_smooth_by_its_name(rng):
    X = rng.standard_normal((20, 50, 9))
    modes = [SimpleNamespace(name=name) for name in ("Wavelength_nm", "place")]
    assert find_smooth_mode(X[..., :8], np.ones(20))[0] is None
    assert find_smooth_mode(X[..., :8], np.ones(20), modes)[0] == 0
    assert find_smooth_mode(X[:, :44, :8], np.ones(20), modes)[0] is None  # too few points
    assert find_smooth_mode(X, np.ones(20), modes)[0] is None  # too many fibres


# --- the search ------------------------------------------------------------------------------------------------------


def test_a_narrow_peak_on_broad_backgrounds_is_found_by_its_derivatives():
    X, y = spectra(80)
    model = TensorRegressor().fit(X[:40], y[:40])
    with pytest.warns(UserWarning, match="held-out R²"):
        raw = TensorRegressor(views=None).fit(X[:40], y[:40])
    assert any("derivative" in name for name in model.views_)
    errors = [np.mean((one.predict(X[40:]) - y[40:]) ** 2) for one in (model, raw)]
    assert errors[0] < 0.5 * errors[1]
    lower, upper = model.predict_interval(X[40:], level=0.9)
    assert 0.75 < np.mean((lower <= y[40:]) & (y[40:] <= upper)) <= 1.0


def test_steps_are_found_by_thresholds_only_of_numbers(rng):
    X = rng.standard_normal((300, 4))
    y = 1.0 * (X[:, 0] > 0.0) + (np.abs(X[:, 2]) > 1.0) + 0.2 * rng.standard_normal(300)
    model = TensorRegressor().fit(X[:200], y[:200])
    assert "thresholds" in model.views_
    assert model.score(X[200:], y[200:]) > 0.6
    assert "thresholds" not in dict(views_that_suit((4,), 300)[0])


def test_weights_of_derivatives_are_weights_of_the_samples():
    X, y = spectra()
    views = [("slopes", SavitzkyGolay(1, scaling=True)), ("curvatures", SavitzkyGolay(2)), ("flat", Detrend())]
    model = TensorRegressor(views=views, alphas=4, cv=3).fit(X, y)
    assert model.is_linear_
    scores = X @ model.coef_
    np.testing.assert_allclose(model.predict(X) - scores, (model.predict(X) - scores)[0], atol=1e-8)


def test_ridges_go_on_as_long_as_the_score_rises():
    rng = np.random.default_rng(0)
    # What tells is a ten-thousandth as large as what does not: ridges of a millionth of the variance hide it.
    X = np.concatenate([rng.standard_normal((60, 1)), 1e-4 * rng.standard_normal((60, 5))], axis=1)
    y = 1e4 * X[:, 1:] @ np.ones(5)
    splits = tuple((np.setdiff1d(np.arange(60), np.arange(k, 60, 5)), np.arange(k, 60, 5)) for k in range(5))
    targets = Targets(codes=y[:, None], weight=np.ones(60), loss=SquaredError(), are_classes=False)
    path = ridge_path(split_samples(X, (6,), targets, Folds(splits, 60)))
    assert len(path.ridges) > len(RIDGES)
    assert path.selecting[-1] > 0.999 > path.selecting[len(RIDGES) - 1]
    assert not still_rises(path.selecting) or len(path.ridges) == len(RIDGES) + sum(map(len, SMALLER_RIDGES))


def test_a_model_that_is_far_worse_than_none_does_not_hide_that_scores_rise():
    assert still_rises(np.array([-60.0, 0.1, 0.2, 0.21]))
    assert not still_rises(np.array([-60.0, 0.1, 0.2, 0.2005]))


def test_a_fold_of_nearly_equal_targets_does_not_make_a_good_model_luck():
    tests = [np.arange(k, 20, 5) for k in range(5)]
    folds = SimpleNamespace(splits=[(np.arange(20), test) for test in tests], ratio=0.25)
    split = SimpleNamespace(folds=folds, fold_weights=np.full(5, 0.2))

    def is_luck(explained):
        return _may_be_luck(SimpleNamespace(outcomes=explained[None], best=0), split)

    # Each sample leaves a tenth of the variance unexplained, whatever the variance of its fold is.
    assert not is_luck(np.full(20, 0.9))
    assert is_luck(np.tile([1.0, -1.0, 1.0, -1.0, 0.1], 4))


@pytest.mark.parametrize("n_thresholds", [2, 3])
def test_weights_of_views_of_another_shape_are_shown_in_the_modes_of_the_view(rng, n_thresholds):
    """Two thresholds make as many entries as a sample has, three make more."""
    X = rng.standard_normal((60, 4, 6))
    view = Thresholds(n_thresholds, n_intervals=3, mode=1)
    model = TensorRegressor(view, cv=3).fit(X, (X[:, 0, :2].mean(axis=1) > 0) + 0.1 * rng.standard_normal(60))
    (part,) = parts_of_model(model)
    assert part.coef.shape == part.patterns.shape == (1, n_thresholds, 4, 3)
    assert len(part.modes) == 3
    assert "thresholds" in model_page(model)
