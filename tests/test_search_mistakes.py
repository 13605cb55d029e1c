"""Easy problems on which a search must not fail without a word."""

import tracemalloc
import warnings

import numpy as np
import pytest
from benchmarks import best_score
from sklearn.metrics import log_loss, r2_score, roc_auc_score
from sklearn.model_selection import KFold, LeaveOneGroupOut, cross_val_predict
from sklearn.preprocessing import FunctionTransformer

from tracelearn import SecondOrder, TensorClassifier, TensorRegressor, TraceNormClassifier, TraceNormRegressor
from tracelearn.losses import Huber, SquaredError
from tracelearn.search import splits
from tracelearn.search.advice import warn_of_rising_end
from tracelearn.search.folds import make_folds
from tracelearn.search.splits import Coordinates, Targets, split_samples
from tracelearn.search.views import views_that_suit


def low_rank(n, *, shape=(6, 5), noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    pattern = np.outer(rng.normal(size=shape[0]), rng.normal(size=shape[1]))
    X = rng.normal(size=(n, *shape))
    signal = np.tensordot(X, pattern, axes=2)
    return X, signal / np.std(signal) + noise * rng.normal(size=n)


def bursts(n, *, seed=0, share=0.5):
    """Signals of two classes that differ in the power of one source."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) < share * n).astype(int)
    X = rng.normal(size=(n, 3, 40))
    X[:, 0] *= np.where(y, 2.5, 1.0)[:, None]
    return X, y


# --- weights ----------------------------------------------------------------------------------------------------------


def test_samples_without_weight_change_nothing():
    X, y = low_rank(170)
    weight = (np.arange(170) >= 10).astype(float)
    spoilt, spoilt_y = X.copy(), y.copy()
    spoilt[:10] *= 1e4
    spoilt_y[:10] = -999.0
    plain = TensorRegressor().fit(X[10:], y[10:])
    weighted = TensorRegressor().fit(spoilt, spoilt_y, sample_weight=weight)
    np.testing.assert_allclose(weighted.predict(X), plain.predict(X), rtol=1e-6)
    assert weighted.best_score_ == pytest.approx(plain.best_score_)


@pytest.mark.parametrize("kind", [TensorClassifier, TraceNormClassifier])
def test_samples_without_weight_are_not_counted_when_classes_are_balanced(kind):
    X, signal = low_rank(90)
    y, weight = (signal > 0.8).astype(int), np.ones(90)
    weight[np.flatnonzero(y == 0)[:20]] = 0.0
    some = weight > 0
    weighted = kind(class_weight="balanced").fit(X, y, sample_weight=weight)
    fewer = kind(class_weight="balanced").fit(X[some], y[some])
    np.testing.assert_allclose(weighted.decision_function(X), fewer.decision_function(X), rtol=1e-5, atol=1e-8)


def test_samples_of_little_weight_do_not_choose_the_views():
    X, y = bursts(160)
    numbers = y + 0.1 * np.random.default_rng(0).normal(size=160)
    rng = np.random.default_rng(1)
    X[:40], numbers[:40] = rng.normal(size=(40, 3, 40)), rng.normal(scale=100.0, size=40)
    weight = np.where(np.arange(160) < 40, 1e-9, 1.0)
    model = TensorRegressor().fit(X, numbers, sample_weight=weight)
    new, new_y = bursts(400, seed=5)
    assert model.score(new, new_y) > 0.5


# --- rare classes, and the order of the rows -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rare_class_among_many_samples_is_found_whatever_the_order(seed):
    X, y = bursts(3000, share=0.004)
    order = np.random.default_rng(seed).permutation(3000)
    new, new_y = bursts(400, seed=9)
    model = TensorClassifier(max_time=60).fit(X[order], y[order])
    assert roc_auc_score(new_y, model.decision_function(new)) > 0.9


@pytest.mark.parametrize("n", [90, 900])
def test_the_order_of_the_rows_decides_nothing(n):
    X, y = low_rank(n, noise=2.0)
    order = np.random.default_rng(3).permutation(n)
    first = TensorRegressor().fit(X, y)
    second = TensorRegressor().fit(X[order], y[order])
    np.testing.assert_allclose(second.predict(X), first.predict(X), rtol=1e-5, atol=1e-8)


def test_folds_of_groups_that_hold_a_class_alone_have_something_to_learn():
    X, signal = low_rank(90)
    y, groups = (signal > 0).astype(int), np.arange(90) // 10
    y[groups == 4] = 2  # the third class is in one group
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TensorClassifier().fit(X, y, groups=groups)
    assert np.all(np.isfinite(model.score_path_))


# --- where samples are ---------------------------------------------------------------------------------------------------


def test_samples_of_any_source_give_one_model(tmp_path):
    da = pytest.importorskip("dask.array")
    X, y = bursts(90)
    np.savez(tmp_path / "all.npz", X=X, y=y)
    np.save(tmp_path / "X.npy", X)
    expected = TensorClassifier().fit(X, y)
    assert set(expected.views_) != {"raw"}
    sources = [
        (tmp_path / "all.npz", None),
        (np.load(tmp_path / "X.npy", mmap_mode="r"), y),
        ([(X[:31], y[:31]), (X[31:], y[31:])], None),
        (da.from_array(X, chunks=(20, 3, 40)), y),
    ]
    for samples, targets in sources:
        model = TensorClassifier().fit(samples, targets)
        np.testing.assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-8)


@pytest.mark.slow
def test_of_samples_that_do_not_fit_in_memory_some_choose_and_all_are_learned_from(monkeypatch):
    from tracelearn.search import data

    X, y = bursts(200)
    monkeypatch.setattr(data, "available_memory", lambda: 100 * 120 * 40)
    with pytest.warns(UserWarning, match="100 of them, drawn at random, choose"):
        model = TensorClassifier().fit([(X[:120], y[:120]), (X[120:], y[120:])])
    new, new_y = bursts(400, seed=5)
    assert model.score(new, new_y) > 0.85
    assert model.dual_gap_ <= 1e-6


def test_logistic_regression_chosen_by_some_samples_is_fitted_to_blocks_of_all(monkeypatch):
    da = pytest.importorskip("dask.array")
    from tracelearn.search import data

    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    X = rng.normal(size=(300, 2, 3))
    far = rng.choice([2.0, 30.0], size=300)  # the squared loss pulls members that are far on the right side back
    X[:, 0, 0] += np.where(y == 1, far, 0.0)
    X[:, 1, 1] += np.where(y == 2, far, 0.0)
    monkeypatch.setattr(data, "available_memory", lambda: 200 * 6 * 40)
    for samples, targets in [([(X[:150], y[:150]), (X[150:], y[150:])], None), (da.from_array(X, (150, 2, 3)), y)]:
        with pytest.warns(UserWarning, match="200 of them, drawn at random, choose"):
            model = TensorClassifier(None).fit(samples, targets)
        assert model.loss_ == "log_loss"
        assert model.dual_gap_ <= 1e-6
        assert model.score(X, y) > 0.8


def test_views_of_other_packages_are_refused_where_samples_do_not_fit_in_memory(monkeypatch):
    from tracelearn.search import data

    X, y = bursts(200)
    monkeypatch.setattr(data, "available_memory", lambda: 100 * 120 * 40)
    with pytest.raises(ValueError, match="views of tracelearn for samples that do not fit in memory, got 'bounded'"):
        TensorClassifier([("bounded", FunctionTransformer(np.tanh))]).fit([(X[:120], y[:120]), (X[120:], y[120:])])


def test_views_of_sparse_samples_are_refused_and_not_left_out():
    sparse = pytest.importorskip("scipy.sparse")
    X, y = low_rank(60)
    rows = sparse.csr_array(X.reshape(60, -1))
    with pytest.raises(ValueError, match="Expected views='auto' or None for sparse samples"):
        TensorRegressor(SecondOrder(), tensor_shape=(6, 5)).fit(rows, y)


# --- probabilities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["auto", "log_loss"])
def test_probabilities_of_noise_are_no_worse_than_the_shares_of_the_classes(loss):
    excess = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(60, 4, 5)), np.arange(60) % 4 == 0
        new_y = np.arange(400) % 4 == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = TensorClassifier(loss=loss).fit(X, y)
        prior = log_loss(new_y, np.full(400, 0.25))
        excess.append(log_loss(new_y, model.predict_proba(rng.normal(size=(400, 4, 5)))) - prior)
    assert np.max(excess) < 0.1
    assert np.mean(excess) < 0.03


# --- units and offsets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_offset_of_the_target_does_not_matter(seed):
    X, y = low_rank(100, seed=seed)
    plain, moved = TensorRegressor().fit(X, y), TensorRegressor().fit(X, y + 1.7e9)
    np.testing.assert_allclose(moved.predict(X) - 1.7e9, plain.predict(X), atol=1e-4)


@pytest.mark.parametrize("unit", [1e-13, 1e13])
def test_the_unit_of_samples_does_not_matter(unit):
    X, y = bursts(80)
    plain, other = TensorClassifier().fit(X, y), TensorClassifier().fit(unit * X, y)
    assert next(iter(other.view_shares_)) == next(iter(plain.view_shares_))
    np.testing.assert_allclose(other.predict_proba(unit * X), plain.predict_proba(X), atol=1e-3)


# --- models that are worse than none ---------------------------------------------------------------------------------------


def test_a_model_that_predicts_no_better_than_the_mean_says_so():
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="no better than the mean"):
        TensorRegressor().fit(rng.normal(size=(21, 300)), rng.normal(size=21))


def test_a_class_that_is_never_predicted_is_named():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(205, 5, 4)), np.where(np.arange(205) < 5, "rare", "usual")
    with pytest.warns(UserWarning, match="none of 'rare'"):
        TensorClassifier().fit(X, y)


def test_views_that_are_no_better_than_plain_ridge_regression_are_said_so():
    y = np.arange(80) % 2
    X = np.random.default_rng(0).normal(size=(80, 10))
    X[:, 0] = (2 * y - 1) * np.random.default_rng(1).uniform(5.0, 20.0, size=80)
    views = [("raw", None), ("bounded", FunctionTransformer(np.tanh))]
    with pytest.warns(UserWarning, match="bounded to predict better than ridge regression on the samples as they are"):
        TensorClassifier(views, alphas=2).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TensorClassifier([None, SecondOrder()], alphas=2).fit(*bursts(60))


def test_ridges_go_on_while_the_score_rises():
    rng = np.random.default_rng(0)
    # What is learned is in directions of a millionth of the variance.
    X = rng.normal(size=(200, 30)) * np.where(np.arange(30) < 3, 1e4, 1.0)
    y = X[:, 3:] @ rng.normal(size=27)
    model = TensorRegressor(views=None).fit(X, y)
    assert model.score(X, y) > 0.9


# --- copies and outliers ---------------------------------------------------------------------------------------------------


def test_copies_of_samples_in_several_folds_are_named():
    rng = np.random.default_rng(0)
    X, y = np.tile(rng.normal(size=(30, 4, 5)), (4, 1, 1)), np.tile(np.arange(30) % 2, 4)
    with pytest.warns(UserWarning, match="exact copies in different folds"):
        TensorClassifier().fit(X, y)


def test_copies_that_groups_hold_together_are_no_mistake():
    X, y = low_rank(60)
    X, y, groups = np.tile(X, (2, 1, 1)), np.tile(y, 2), np.tile(np.arange(60), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TensorRegressor().fit(X, y, groups=groups)


@pytest.mark.parametrize("sample", [0, 3, 99])
def test_an_entry_far_from_all_others_is_named(sample):
    X, y = low_rank(100)
    X += 1e8  # what all have in common is no distance
    X[sample, 2, 1] += 1e6
    with pytest.warns(UserWarning, match=rf"entry \(2, 1\) of sample {sample}"):
        TensorRegressor().fit(X, y)


# --- learning more -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_learning_goes_on_with_views_and_calibration_fixed():
    X, y = bursts(400)
    order = np.random.default_rng(0).permutation(400)
    X, y = X[order], y[order]
    model = TensorClassifier(keep_moments=True).fit(X[:200], y[:200])
    slope, views = model.calibration_slope_, model.views_
    assert set(views) != {"raw"}
    model.partial_fit(X[200:], y[200:])
    again = TensorClassifier(keep_moments=True).fit(X[:200], y[:200])
    np.testing.assert_allclose(model.calibration_slope_, slope)
    assert model.moments_.weight == pytest.approx(400.0)
    assert "best_score_" in model.stale_
    assert not np.allclose(model.decision_function(X), again.decision_function(X), rtol=1e-3)
    assert model.score(*bursts(300, seed=7)) > 0.9


def test_moments_of_a_loss_without_them_are_refused_before_anything_is_learned():
    X, y = bursts(60)
    with pytest.raises(ValueError, match="Expected keep_moments=False with loss='log_loss'"):
        TensorClassifier(loss="log_loss", keep_moments=True).fit(X, y)


# --- advice --------------------------------------------------------------------------------------------------------------


def test_advice_about_a_ridge_at_the_end_of_its_grid_names_what_a_user_can_do():
    with pytest.warns(UserWarning, match=r"smaller ones by cross-validation of linear_estimator\(\)"):
        warn_of_rising_end("smallest", "ridge", 1e-12)
    with pytest.warns(UserWarning, match="smaller ones, by eps or alphas"):
        warn_of_rising_end("smallest", "alpha", 1e-3)


# --- memory --------------------------------------------------------------------------------------------------------------


def test_two_thousand_classes_take_no_gigabytes():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(500), 2)
    X = (rng.normal(size=(500, 4, 4))[y] + 0.1 * rng.normal(size=(1000, 4, 4))).astype(np.float32)
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        TensorClassifier(views=[("raw", None)]).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * 2**30


def test_no_similarities_are_tried_for_thousands_of_classes():
    names = [name for name, _ in views_that_suit((4, 4), 8000, n_targets=2000)[0]]
    assert names == ["raw", "whitened", "whitened_fully"]
    assert "similarities" in dict(views_that_suit((4, 4), 8000, n_targets=100)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "most"), [(1.3, 4.8), (1.0, 6.4)])
def test_a_search_of_large_samples_holds_what_it_goes_on_with_alone(factor, most):
    """With a signal one small view is chosen; noise is shown by several, and every question is asked."""
    X, y = np.random.default_rng(0).normal(size=(40, 100, 500)), np.arange(40) % 2
    X[y == 1, :10] *= factor
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        TensorClassifier(n_jobs=1).fit(X, y)  # views that are tried side by side take their memory together
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < most * X.nbytes


def test_samples_of_very_many_entries_are_centred_in_blocks_without_another_result(monkeypatch):
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(12, 100)) + 5.0, rng.uniform(1.0, 2.0, size=12)
    whole = Coordinates.of(X, weight, centre=True)
    monkeypatch.setattr(splits, "_COLUMNS_TOGETHER", 7)
    in_blocks = Coordinates.of(X, weight, centre=True)
    np.testing.assert_allclose(in_blocks.origin, whole.origin, rtol=1e-13)
    np.testing.assert_allclose(in_blocks.unit, whole.unit, rtol=1e-13)
    np.testing.assert_allclose(in_blocks.rows @ in_blocks.axes.T, (X - whole.origin) / whole.unit, atol=1e-12)


def test_codes_of_classes_are_not_copied_by_what_splits_them():
    folds = make_folds(5, np.repeat(np.arange(20), 5), classifier=True)
    codes = np.where(np.repeat(np.arange(20), 5)[:, None] == np.arange(20), 1.0, -1.0)
    targets = Targets(codes, np.ones(100), SquaredError(), are_classes=True)
    rows = np.random.default_rng(0).normal(size=(100, 6))
    assert split_samples(rows, (2, 3), targets, folds).targets.codes is codes


# --- scores --------------------------------------------------------------------------------------------------------------


def test_the_score_is_corrected_for_the_choice_and_results_stay_raw():
    scores, raw = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = TensorClassifier().fit(rng.normal(size=(60, 4, 30)), np.arange(60) % 2)
        scores.append(model.best_score_)
        raw.append(model.raw_score_)
        assert model.cv_results_["mean_test_score"][model.best_index_] == pytest.approx(model.raw_score_)
    assert np.mean(scores) < np.mean(raw) - 0.01
    assert abs(np.mean(scores) - 0.5) < abs(np.mean(raw) - 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("is_noise", [True, False], ids=["noise", "signal"])
def test_the_score_is_what_new_samples_have_on_average_and_its_standard_error_covers(is_noise):
    """On 8 data sets of each design: the mean is right within .04, two of its standard errors; uncorrected it is off by more."""
    designs = [design for design in best_score.DESIGNS if design.is_noise == is_noise and not design.numbers]
    studies = np.array([best_score.study(design, seed) for design in designs for seed in range(8)])
    raw, score, error, truth = studies.T
    assert abs(np.mean(score - truth)) < 0.04 < np.mean(raw - truth)
    assert np.mean(np.abs(score - truth) <= 2.0 * error) > 0.85


@pytest.mark.slow
def test_the_standard_error_of_a_score_of_numbers_covers():
    (design,) = [design for design in best_score.DESIGNS if design.name == "numbers, 60"]
    _, score, error, truth = np.array([best_score.study(design, seed) for seed in range(12)]).T
    assert np.mean(np.abs(score - truth) <= 2.0 * error) > 0.8


def test_groups_of_one_label_that_are_held_out_do_not_make_a_score_fall_below_chance():
    scores, raw = [], []
    for seed in range(15):
        X = np.random.default_rng(seed).normal(size=(40, 3, 4))
        groups = np.arange(40) // 5
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = TensorClassifier(views=None, cv=LeaveOneGroupOut()).fit(X, groups % 2, groups=groups)
        scores.append(model.best_score_)
        raw.append(model.raw_score_)
    assert np.mean(raw) < 0.3  # a class of which a group is held out is rarer in training
    assert np.mean(scores) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_the_score_of_numbers_is_that_of_all_held_out_samples_whatever_their_unit(unit):
    X, y = low_rank(60, noise=1.0)
    folds = list(KFold(12).split(X))  # an R² of five samples about their own mean is too low
    options = {"loss": Huber(1.35 * unit), "tol": 1e-8}
    model = TensorRegressor(None, alphas=[0.3 * unit], cv=folds, **options).fit(X, unit * y)
    alone = TraceNormRegressor(0.3 * unit, **options)
    held_out = cross_val_predict(alone, X, unit * y, cv=folds)
    assert model.best_score_ == pytest.approx(r2_score(unit * y, held_out), abs=0.05)
    assert model.best_score_se_ < 0.5


def test_where_all_samples_are_right_a_score_is_not_certain():
    X, y = bursts(60)
    model = TensorClassifier().fit(X, y)
    assert model.raw_score_ == 1.0
    assert 1.0 / 60.0 <= model.best_score_se_ < 0.1


def test_intervals_hold_as_many_new_targets_as_they_say():
    X, y = low_rank(1100, noise=1.0)
    model = TensorRegressor().fit(X[:100], y[:100])
    lower, upper = model.predict_interval(X[100:], level=0.8)
    inside = np.mean((lower <= y[100:]) & (y[100:] <= upper))
    assert 0.72 < inside < 0.9


def test_every_view_and_path_is_listed_with_its_reason():
    X, y = bursts(80)
    model = TensorClassifier().fit(X, y)
    tried = model.views_tried_
    assert {"views", "path", "score", "score_se", "explained", "seconds", "taken", "reason"} == set(tried)
    assert len({len(column) for column in tried.values()}) == 1
    assert set(model.views_) <= set(tried["views"])
    walked = [taken for path, taken in zip(tried["path"], tried["taken"], strict=True) if path != "screening"]
    assert sum(walked) == 1
