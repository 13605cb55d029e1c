"""Choosing by cross-validation: what is held out, what selects, which views are shown, and what is said about it."""

import logging
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import Ridge
from sklearn.metrics import get_scorer, make_scorer
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from tracelearn import (
    ModeWhitener,
    SecondOrder,
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormRegressor,
    Views,
    trace_norm_path,
)
from tracelearn.datasets import make_low_rank_regression, make_rank_tensors
from tracelearn.losses import SquaredError
from tracelearn.moments import Accumulator
from tracelearn.samples.samples import Block, Samples
from tracelearn.search import search, session
from tracelearn.search.folds import Design, Folds
from tracelearn.search.search import Candidate, calibrated, walk_alphas, walk_ridges
from tracelearn.search.session import VIEWS, possible_views, shares_of

SHAPE = (5, 4, 3)


@parametrize_with_checks([TensorRegressor(cv=3, alphas=4), TensorClassifier(cv=3, alphas=4)])
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def problem():
    X, y, _ = make_low_rank_regression(90, SHAPE, rank=1, random_state=0)
    return X, y


def classes(y, count=3):
    return np.digitize(y, np.quantile(y, np.arange(1, count) / count))


@pytest.fixture(scope="module")
def epochs():
    """Two classes that differ in the power of a source: nothing that a linear model of the samples could find."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 60)
    sources = rng.normal(size=(120, 4, 60))
    sources[:, 0] *= np.where(y, 2.5, 1.0)[:, None]
    mixing = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    return mixing @ sources, np.where(y, "high", "low")


# --- what is held out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [90, 20], ids=["moments", "basis"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_held_out_scores_are_those_of_separate_fits(problem, n, fit_intercept):
    X, y = problem[0][:n] + 3.0, problem[1][:n]
    splits = list(KFold(3).split(X))
    alphas = [0.3, 0.03]
    model = TensorRegressor(alphas, cv=splits, views=None, ridges=(0.0,), fit_intercept=fit_intercept).fit(X, y)
    for a, alpha in enumerate(sorted(alphas, reverse=True)):
        for f, (train, test) in enumerate(splits):
            alone = TraceNormRegressor(alpha, fit_intercept=fit_intercept).fit(X[train], y[train])
            assert model.score_path_[a, f] == pytest.approx(alone.score(X[test], y[test]), abs=0.06)


RIDGES = {  # samples, folds, whether samples have weights, whether one decomposition serves all folds
    "folds of few samples": (90, KFold(5), False, True),
    "fewer samples than features": (20, KFold(3), False, True),
    "folds of many samples for each feature": (90, KFold(3), False, False),
    "folds that leave samples out of both": (
        20,
        ShuffleSplit(4, test_size=0.3, train_size=0.5, random_state=0),
        False,
        False,
    ),
    "weights": (20, KFold(3), True, False),
}


@pytest.mark.parametrize("case", RIDGES)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_ridge_alone_is_ridge_regression(problem, case, fit_intercept):
    n, cv, weighted, shared = RIDGES[case]
    X, y = problem[0][:n] + 3.0, problem[1][:n]
    splits, rows = list(cv.split(X)), X.reshape(n, -1)[:, :40]
    weight = np.linspace(1.0, 3.0, n) if weighted else np.full(n, 2.0)
    samples = Samples.of(Block(rows, y[:, None], weight), (40,))
    design = Design(samples, Folds(splits, n), SquaredError(), fit_intercept=fit_intercept)
    assert (design.principal is not None) == shared
    table = walk_ridges(design, "raw")
    for ridge, held in zip(table.ridges, table.parts, strict=True):
        for (train, test), found in zip(splits, held, strict=True):
            alone = Ridge(alpha=ridge * weight[train].sum(), fit_intercept=fit_intercept)
            alone.fit(rows[train], y[train], sample_weight=weight[train])
            assert_allclose(found[0, :, 0], alone.predict(rows[test]), rtol=1e-7, atol=1e-9)


def test_the_samples_are_read_once(problem, monkeypatch):
    X, y = problem
    counted, add = [], Accumulator.add
    monkeypatch.setattr(Accumulator, "add", lambda self, X, *rest: (counted.append(len(X)), add(self, X, *rest))[1])
    TensorRegressor(cv=3, views=None).fit(X, y)
    assert sum(counted) == len(X)


def test_overlapping_folds_are_no_partition_and_still_right(problem):
    X, y = problem
    splits = list(ShuffleSplit(4, test_size=0.3, random_state=0).split(X))
    model = TensorRegressor([0.1], cv=splits, views=None, ridges=(0.0,)).fit(X, y)
    for f, (train, test) in enumerate(splits):
        alone = TraceNormRegressor(0.1).fit(X[train], y[train])
        assert model.score_path_[0, f] == pytest.approx(alone.score(X[test], y[test]), abs=0.02)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "squared_hinge"])
def test_a_scorer_sees_the_same_predictions_as_separate_fits(problem, loss):
    X, y = problem[0], classes(problem[1])
    splits = list(StratifiedKFold(3).split(X, y))
    model = TensorClassifier([0.05], loss=loss, cv=splits, views=None, ridges=(0.0,), scoring="accuracy").fit(X, y)
    for f, (train, test) in enumerate(splits):
        alone = TraceNormClassifier(0.05, loss=loss).fit(X[train], y[train])
        assert model.score_path_[0, f] == pytest.approx(alone.score(X[test], y[test]), abs=0.07)


def test_scorers_get_sample_weights(problem):
    X, y = problem
    z, weight, seen = classes(y, 2), np.linspace(0.1, 1.0, len(y)), []

    def score(truth, predicted, sample_weight=None):
        seen.append(sample_weight)
        return float(np.average(truth == predicted, weights=sample_weight))

    TensorClassifier([0.1], cv=3, views=None, ridges=(0.0,), scoring=make_scorer(score)).fit(X, z, weight)
    assert all(part is not None for part in seen)
    assert np.sum(np.concatenate(seen)) == pytest.approx(weight.sum())


def test_groups_are_held_out_whole_also_where_cv_is_a_number(problem):
    X, y = problem
    groups = np.arange(len(y)) % 4
    asked = []

    def score(estimator, X, z):
        asked.append(len(z))
        return 0.0

    TensorRegressor([0.1], cv=5, views=None, ridges=(0.0,), scoring=score).fit(X, y, groups=groups)
    assert sorted(asked) == sorted(np.bincount(groups).tolist())  # four groups allow four folds
    by_hand = TensorRegressor(cv=GroupKFold(4), views=None).fit(X, y, groups=groups)
    assert by_hand.score_path_.shape[1] == 4


# --- what selects -----------------------------------------------------------------------------------------------------


def test_the_criterion_is_the_squared_correlation_of_all_held_out_predictions(rng):
    y, s = rng.normal(size=(2, 60, 2))
    s = 0.5 * y + s
    fold = np.arange(60) % 3
    statistics = []
    for f in range(3):
        a, b = s[fold == f], y[fold == f]
        statistics.append(
            np.stack([a.mean(0), b.mean(0), a.var(0), b.var(0), np.mean((a - a.mean(0)) * (b - b.mean(0)), 0)], -1)
        )
    found = calibrated(np.stack(statistics), np.full(3, 1 / 3))
    expected = np.mean([np.corrcoef(s[:, k], y[:, k])[0, 1] ** 2 for k in range(2)])
    assert found == pytest.approx(expected)
    assert calibrated(np.stack(statistics) * [1, 1, 1, 1, -1], np.full(3, 1 / 3)) < found  # ranked the wrong way round


def test_of_predicted_numbers_the_size_counts_too(rng):
    y = rng.normal(size=(60, 1)) + 5.0
    s = 0.1 * y + 0.01 * rng.normal(size=(60, 1))  # ranked nearly as y is, and far too small
    statistics = np.stack([s.mean(0), y.mean(0), s.var(0), y.var(0), np.mean((s - s.mean(0)) * (y - y.mean(0)), 0)], -1)
    found = calibrated(statistics[None], np.ones(1), numbers=True)
    centred = s - s.mean() - y + y.mean()
    assert found == pytest.approx(1.0 - np.mean(centred**2) / np.var(y))
    assert found < 0.3 < 0.9 < calibrated(statistics[None], np.ones(1))


def test_the_search_of_a_regressor_finds_the_model_that_predicts_best():
    X, y = make_rank_tensors(1200, shape=(6, 6, 6), random_state=1)
    model = TensorRegressor().fit(X[:400], y[:400])
    fits = [TraceNormRegressor(alpha=alpha).fit(X[:400], y[:400]) for alpha in (3.0, 1.0, 0.3, 0.1, 0.03)]
    best = max(fit.score(X[400:], y[400:]) for fit in fits)
    assert model.score(X[400:], y[400:]) > best - 0.03


def test_groups_that_differ_in_level_do_not_select_the_empty_model():
    """20 subjects, each with a level of its own on every channel and its own share of classes (issue 20, point 1)."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(20), 15)
        y = (rng.uniform(size=300) < rng.uniform(0.2, 0.8, size=20)[groups]).astype(int)
        pattern = np.outer(rng.normal(size=8), rng.normal(size=10))
        X = rng.normal(size=(300, 8, 10)) + 0.25 * (2 * y[:, None, None] - 1) * pattern
        X += 30.0 * rng.normal(size=(20, 8, 1))[groups]
        fresh = np.isin(groups, [0, 5, 10, 15])
        own = TensorClassifier(views=None).fit(X[~fresh], y[~fresh], groups=groups[~fresh])
        assert np.any(own.coef_ != 0)
        by_hand = clone(own).set_params(
            alphas=np.geomspace(1, 1e-4, 30) * own.alphas_.max() if own.alpha_ else own.alphas
        )
        hand = by_hand.fit(X[~fresh], y[~fresh], groups=groups[~fresh]).score(X[fresh], y[fresh])
        assert own.score(X[fresh], y[fresh]) >= hand - 0.1


def test_a_fold_without_a_score_is_left_out_and_said(problem):
    X, y = problem
    z = classes(y, 2)
    order = np.argsort(z, kind="stable")
    splits = [
        (order[10:], order[:10]),
        *list(KFold(3, shuffle=True, random_state=0).split(X)),
    ]  # one class in the first
    model = TensorClassifier(cv=splits, views=None, scoring="roc_auc")
    with pytest.warns(UndefinedMetricWarning, match=r"folds \[0\]"):
        model.fit(X, z)
    known = model.score_path_[:, 1:]
    assert np.all(np.isfinite(known))
    assert model.best_score_ == pytest.approx(known[list(model.alphas_).index(model.alpha_)].mean(), abs=0.05)
    assert model.best_score_ > 0.7


def test_the_one_standard_error_rule_takes_a_larger_alpha_that_is_as_good(problem):
    X, y = problem
    plain = TensorRegressor(views=None, ridges=(0.0,)).fit(X, y)
    simple = TensorRegressor(views=None, ridges=(0.0,), one_standard_error=True).fit(X, y)
    assert simple.alpha_ >= plain.alpha_
    assert simple.best_score_ >= plain.best_score_ - plain.best_score_se_ - 1e-12


def test_a_path_goes_to_its_end_since_held_out_errors_have_several_minima(problem):
    X, y = problem
    own = TensorRegressor(40, eps=1e-6, views=None, ridges=(0.0,)).fit(X, y)
    assert len(own.alphas_) == 40
    assert own.alphas_[0] > own.alpha_ > own.alphas_[-1]


# --- what is tried ----------------------------------------------------------------------------------------------------


def test_ridge_regression_is_chosen_where_weights_have_no_structure():
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(400, 6, 5)), rng.normal(size=(6, 5))
    model = TensorRegressor(views=None).fit(X, np.tensordot(X, W, 2) + 2.0 * rng.normal(size=400))
    assert (model.alpha_ == 0.0) == (model.ridge_ > 0.0)
    assert model.dual_gap_ <= 1e-6


def _samples(structured):
    """Samples whose weights are of rank one, or of none."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 14, 12))
    W = np.outer(rng.normal(size=14), rng.normal(size=12)) if structured else rng.normal(size=(14, 12))
    return X, np.tensordot(X, W, 2) + rng.normal(size=300)


def test_a_path_of_many_weights_that_ridge_regression_beats_is_left_after_every_third_alpha(monkeypatch):
    monkeypatch.setattr(session, "_MANY_WEIGHTS", 500)
    model = TensorRegressor(views=None).fit(*_samples(structured=False))
    tried = [p["alpha"] for p in model.cv_results_["params"] if p["alpha"] > 0]
    assert model.alpha_ == 0.0
    assert len(tried) == 4
    assert_allclose(np.divide(tried[1:], tried[:-1]), 1e-3 ** (3 / 11))


def test_a_path_of_many_weights_that_may_win_goes_through_all_alphas(monkeypatch):
    monkeypatch.setattr(session, "_MANY_WEIGHTS", 500)
    model = TensorRegressor(views=None).fit(*_samples(structured=True))
    tried = [p["alpha"] for p in model.cv_results_["params"] if p["alpha"] > 0]
    assert model.alpha_ > 0.0
    assert len(tried) == len(set(tried)) == len(model.alphas_) == 12


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"raw": 0.5, "log": 0.6, "second_order": 0.7}, "log"),
        ({"raw": 0.5, "whitened": 0.4, "second_order": 0.9}, ""),
        ({"second_order": 0.9, "convolutions": 0.8}, ""),
    ],
)
def test_the_best_view_with_modes_gets_a_path_of_its_own_unless_another_is_far_ahead(values, expected):
    assert session._first_order(values, explains=True) == expected


def test_how_far_a_view_is_behind_means_nothing_for_scores_of_ones_own():
    assert session._first_order({"raw": -3.0, "second_order": -1.0}, explains=False) == "raw"


@pytest.mark.parametrize("smallest", [0.5, 1e-4])
def test_a_search_hands_out_the_answer_of_a_fit_whether_its_folds_leave_something_out_or_not(smallest):
    rng = np.random.default_rng(0)
    scales = np.geomspace(1.0, smallest, 30)  # below a thousandth of the largest a basis by products is no longer exact
    X = ((rng.normal(size=(30, 30)) * scales) @ np.linalg.qr(rng.normal(size=(80, 30)))[0].T).reshape(30, 10, 8)
    y = X[:, 0, 0] + 0.1 * rng.normal(size=30)
    model = TensorRegressor(views=None, tol=1e-9).fit(X, y)
    alone = TraceNormRegressor(model.alpha_, ridge=model.ridge_, tol=1e-9).fit(X, y)
    assert max(model.dual_gap_, alone.dual_gap_) <= 1e-9
    assert model.objective_ == pytest.approx(alone.objective_, rel=1e-8)
    assert_allclose(model.coef_, alone.coef_, atol=1e-3 * np.abs(alone.coef_).max())


def test_auto_mode_weights_try_equal_weights_and_each_mode_alone(problem):
    model = TensorRegressor(cv=3, views=None, mode_weights="auto", ridges=(0.0,)).fit(*problem)
    tried = {p["mode_weights"] for p in model.cv_results_["params"]}
    assert tried == {None, (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)}


def test_candidates_in_one_batch_give_what_each_gives_alone(problem, monkeypatch):
    monkeypatch.setattr(search, "_ITERATIONS", (500, 500))  # all go to the end, in a batch or alone
    monkeypatch.setattr(search, "_TOL", 0.0)
    X, y = problem
    folds = Folds(list(KFold(3).split(X)), len(y))
    samples = Samples.of(Block(X.reshape(90, -1), np.stack([y, -y + X[:, 0, 0, 0]], 1)), SHAPE)
    design = Design(samples, folds, SquaredError())
    candidates = [Candidate(), Candidate(mode_weights=(0.0, 1.0, 0.0)), Candidate(ridge=0.3)]
    alphas = np.array([0.3, 0.1])
    together = walk_alphas(design, candidates, alphas)
    for candidate, table in zip(candidates, together, strict=True):
        (alone,) = walk_alphas(design, [candidate], alphas)
        assert_allclose(table.selecting, alone.selecting, rtol=1e-3)
        assert_allclose(table.alphas, alone.alphas)


def test_target_mode_auto_tries_both(problem):
    X, y = problem[0], classes(problem[1])
    model = TensorClassifier(cv=3, views=None, target_mode="auto").fit(X, y)
    assert {p["target_mode"] for p in model.cv_results_["params"]} == {False, True}


@pytest.mark.parametrize("target_mode", [True, "auto"])
def test_classes_are_a_mode_of_one_tensor_and_not_of_several_views(problem, target_mode):
    X, y = problem[0], classes(problem[1])
    model = TensorClassifier(3, cv=3, views="raw+whitened", target_mode=target_mode).fit(X, y)
    assert {p["target_mode"] for p in model.cv_results_["params"]} == {False}
    assert model.best_estimator_.target_mode is False


def test_jobs_do_not_change_the_answer(problem):
    X, y = problem
    options = {"cv": 3, "views": None, "mode_weights": "auto", "loss": "huber", "alphas": 4}
    one, more = (TensorRegressor(**options, n_jobs=n).fit(X, y) for n in (None, 2))
    assert_allclose(one.coef_, more.coef_)
    assert_allclose(one.score_path_, more.score_path_)


def test_time_that_is_up_ends_the_search_with_the_best_so_far(epochs):
    started = time.monotonic()
    model = TensorClassifier(200, eps=1e-8, max_time=1e-3).fit(*epochs)
    assert model.dual_gap_ <= 1e-6
    assert len(model.cv_results_["params"]) < 200
    assert time.monotonic() - started < 30


# --- views ------------------------------------------------------------------------------------------------------------


def test_the_default_finds_what_only_second_order_shows(epochs):
    X, y = epochs
    model = TensorClassifier().fit(X, y)
    assert "second_order" in model.view_
    assert model.best_score_ > 0.9 > 0.7 > TensorClassifier(views=None).fit(X, y).best_score_
    assert sum(model.view_shares_.values()) == pytest.approx(1.0)
    assert model.dual_gap_ <= 1e-6
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "raw"])
def test_a_view_by_hand_is_the_pipeline_of_transformer_and_estimator(epochs, view):
    X, y = epochs
    X = np.exp(X) if view == "log" else X
    model = TensorClassifier([0.02], cv=3, views=view, ridges=(0.0,)).fit(X, y)
    kind = VIEWS[view]
    features = kind.make(time_axis=1) if kind.channels else kind.make()
    if "similarities" in view:  # a search has no more entries than samples
        features.set_params(n_landmarks=len(X))
    by_hand = make_pipeline(features, clone(model.best_estimator_).set_params(tensor_shape=None))
    Z = by_hand[0].fit_transform(X)
    Z = Z.reshape(len(Z), -1) if len(model.best_estimator_.sample_shape_) == 1 else Z
    by_hand[1].fit(Z, y)
    seen = by_hand[0].transform(X).reshape(Z.shape)
    assert_allclose(model.decision_function(X), by_hand[1].decision_function(seen), atol=1e-10)


def test_views_in_one_problem_have_a_norm_each(epochs):
    X, y = epochs
    model = TensorClassifier([0.01], cv=3, views="whitened+second_order 1:0.5", ridges=(0.0,)).fit(X, y)
    assert isinstance(model.features_, Views)
    assert model.features_.view_names_ == ["whitened", "second_order"]
    assert model.best_estimator_.penalty.shapes == ((4, 60), (5, 5))
    assert model.dual_gap_ <= 1e-6
    parts = model.features_.split(model.best_estimator_.coef_)
    assert [part.shape for part in parts] == [(1, 4, 60), (1, 5, 5)]


@pytest.mark.parametrize(
    "views",
    [
        "raw",
        "whitened",
        "second_order_two_windows",
        "second_order_difference+raw 1:0.3",
        "whitened+raw",
        "whitened_channels+whitened_fully",
        "convolutions",
        "raw+convolutions 1:0.4",
        "similarities",
        "raw+similarities_second_order 1:0.4",
    ],
)
def test_scores_are_the_sum_over_views_of_weights_times_samples(epochs, views):
    X, y = epochs
    model = TensorClassifier([0.01], cv=3, views=views, ridges=(0.0,)).fit(X, y)
    scores, expected = np.full(len(y), model.intercept_[0]), model.decision_function(X)
    assert list(model.coef_by_view_) == list(model.patterns_by_view_) == views.partition(" ")[0].split("+")
    for name, W in model.coef_by_view_.items():
        seen = X if model.views_[name] is None else model.views_[name].transform(X)
        assert W.shape == (1, *seen.shape[1:])
        scores += seen.reshape(len(y), -1) @ W.ravel()
        about = seen.reshape(len(y), -1) - seen.reshape(len(y), -1).mean(axis=0)
        pattern = about.T @ (expected - expected.mean()) / len(y)
        assert_allclose(model.patterns_by_view_[name].ravel(), pattern, atol=1e-10)
    assert_allclose(scores, expected, atol=1e-10)


def test_filters_by_view_are_those_of_each_window(epochs):
    X, y = epochs
    model = TensorClassifier([0.01], cv=3, views="second_order_two_windows+raw", ridges=(0.0,)).fit(X, y)
    (name,) = found = model.filters_by_view_
    assert name == "second_order_two_windows"
    names = model.views_[name].channel_names()
    assert names == [*"0123", *(f"{k} difference" for k in range(4)), "mean"]
    assert found[name].filters.shape == (1, 2, len(names), len(names))
    values, filters, patterns = (part[0, 1] for part in found[name])  # of the second window
    R, W = model.views_[name].whitener_[1], model.coef_by_view_[name][0, 1]
    assert_allclose((filters.T * values) @ filters, R.T @ (W + W.T) @ R / 2, atol=1e-10)
    assert_allclose(patterns, filters @ model.views_[name].reference_[1], atol=1e-10)


def test_shares_of_views_are_those_of_this_search(epochs):
    X, y = epochs
    names = ["raw", "second_order", "whitened"]
    model = TensorClassifier(4, cv=3, views=names).fit(X, y)
    shares = model.view_shares_
    assert set(shares) == set(names)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert min(shares.values()) >= 0.0
    assert next(iter(shares)) == "second_order" == max(shares, key=shares.get)
    assert not hasattr(model.set_params(views="raw").fit(X, y), "view_shares_")


@pytest.mark.parametrize("signs", [(-1, -1, -1), (1, 1, 1), (1, -1, 1)])
def test_of_views_that_explain_the_same_or_nothing_the_first_is_taken(signs):
    y = np.array([1.0, -1.0, 1.0, -1.0])[None, :, None]
    held = [SimpleNamespace(Y=y, index=[np.arange(4)])]
    assert_allclose(shares_of([[sign * y] for sign in signs], held)[0], [1.0, 0.0, 0.0])


def test_of_views_that_show_the_same_one_is_taken():
    X = np.random.default_rng(0).normal(size=(150, 6, 5))  # white: there is nothing to whiten
    y = X[:, 0, 0] > 0
    model = TensorClassifier(4, cv=3).fit(X, y)
    assert sorted(model.view_shares_.values()) == [0.0, 0.0, 1.0]
    assert "+" not in model.view_


def test_views_in_one_problem_are_the_pipeline_of_views_and_estimator(epochs):
    X, y = epochs
    model = TensorClassifier([0.02], cv=3, views="raw+second_order 1:0.5", ridges=(0.0,)).fit(X, y)
    views = Views([("raw", None), ("second_order", VIEWS["second_order"].make(time_axis=1))], view_weights=(1.0, 0.5))
    by_hand = make_pipeline(views, clone(model.best_estimator_)).fit(X, y)
    assert_allclose(model.decision_function(X), by_hand.decision_function(X), atol=1e-10)


def test_learning_goes_on_with_the_views_that_were_chosen(epochs):
    X, y = epochs
    order = np.random.default_rng(1).permutation(len(y))
    X, y = X[order], y[order]
    model = TensorClassifier(4, cv=3, views="raw+second_order", ridges=(0.0,), keep_moments=True)
    model.fit(X[:100], y[:100])
    shown, chosen = model.features_, (model.view_, model.alpha_)
    before = shown.transform(X[:3])
    model.partial_fit(X[100:], y[100:])
    whole = clone(model.best_estimator_).fit(shown.transform(X), y)
    assert_allclose(model.features_.transform(X[:3]), before)
    assert (model.view_, model.alpha_) == chosen
    assert_allclose(model.decision_function(X), whole.decision_function(shown.transform(X)), atol=1e-4)


def test_weights_of_whitened_samples_are_shown_as_weights_of_samples(problem):
    X, y = problem
    model = TensorRegressor([0.1], cv=3, views="whitened", ridges=(0.0,)).fit(X, y)
    assert isinstance(model.features_, ModeWhitener)
    scores = np.tensordot(X, model.coef_, 3)
    assert_allclose(model.predict(X) - scores, (model.predict(X) - scores)[0], atol=1e-8)


def test_second_order_is_tried_only_where_a_mode_can_be_time():
    always = ["similarities", "similarities_standardized"]
    assert possible_views((6, 11), "auto")[0] == ["raw", "whitened", "whitened_fully", *always]
    assert possible_views((7,), "auto")[0] == ["raw", *always]
    assert possible_views((4, 100), None)[0] == ["raw", "whitened", "whitened_fully", *always]
    assert "second_order_slow_lags" in possible_views((2, 3, 100), "auto")[0]


@pytest.mark.parametrize(
    ("shape", "n", "expected"),
    [
        ((2, 3, 100), 300, ["convolutions"]),
        ((3, 3, 100), 300, ["convolutions"]),
        ((16, 100), 300, ["convolutions_of_mean"]),
        ((5, 5, 200), 1501, ["few_convolutions_of_mean"]),
        ((5, 5, 200), 20_001, []),
        ((1, 100), 1500, ["convolutions"]),
        ((1, 100), 1501, ["few_convolutions"]),
        ((4, 100), 5000, ["few_convolutions"]),
        ((2, 3, 100), 5000, []),
        ((1, 100), 50_000, []),
    ],
)
def test_convolutions_are_of_the_mean_where_channels_are_many_and_fewer_where_samples_are(shape, n, expected):
    assert [view for view in possible_views(shape, "auto", n=n)[0] if "convolutions" in view] == expected


def test_many_short_series_are_told_apart_by_a_wave_at_no_fixed_place():
    rng = np.random.default_rng(0)
    y, X = np.arange(1600) % 2, rng.normal(size=(1600, 1, 64))
    for sample, label, at in zip(X, y, rng.integers(50, size=1600), strict=True):
        sample[0, at : at + 9] += (3.0 if label else -3.0) * np.sin(np.linspace(0, 2 * np.pi, 9))
    model = TensorClassifier().fit(X[:1510], y[:1510])
    assert "few_convolutions" in model.view_
    assert model.views_["few_convolutions"].transform(X[:1])[0].size <= 1344
    assert model.score(X[1510:], y[1510:]) > 0.95


def test_patches_are_told_apart_by_a_line_somewhere_in_the_spectrum_that_their_pixels_share():
    rng = np.random.default_rng(0)
    y, X = np.arange(240) % 2, 3.0 * rng.normal(size=(240, 5, 5, 64))
    for sample, label, at in zip(X, y, rng.integers(50, size=240), strict=True):
        sample[..., at : at + 9] += (2.0 if label else -2.0) * np.sin(np.linspace(0, 2 * np.pi, 9))
    model = TensorClassifier().fit(X[:160], y[:160])
    assert "convolutions_of_mean" in model.view_
    assert model.score(X[160:], y[160:]) > 0.9


def rings(n, seed=0):
    """Samples whose classes differ in their size: no linear function tells them apart."""
    X = np.random.default_rng(seed).normal(size=(n, 3, 2))
    return X, (np.sum(X**2, axis=(1, 2)) > 5.5).astype(int)


def test_a_function_that_is_not_linear_is_learned_from_similarities_to_training_samples():
    X, y = rings(400)
    model = TensorClassifier().fit(X[:200], y[:200])
    assert "similarities" in model.view_
    assert model.dual_gap_ <= 1e-6
    assert model.score(X[200:], y[200:]) > 0.85 > 0.65 > TensorClassifier(views="raw").fit(X, y).score(X, y)


def test_numbers_that_are_no_linear_function_are_learned_from_similarities():
    X, _ = rings(400)
    y = np.sum(X**2, axis=(1, 2))
    model = TensorRegressor().fit(X[:200], y[:200])
    assert "similarities" in model.view_
    assert model.score(X[200:], y[200:]) > 0.6


def test_what_was_found_in_similarities_can_be_fitted_to_fewer_samples():
    X, y = rings(200, seed=1)
    model = TensorClassifier(views="similarities+similarities_standardized").fit(X, y)
    again = make_pipeline(clone(model.features_), clone(model.best_estimator_)).fit(X[:150], y[:150])
    assert again.score(X[150:], y[150:]) > 0.8


def test_a_linear_function_is_not_learned_from_similarities(problem):
    model = TensorRegressor().fit(*problem)
    assert "similarities" not in model.view_
    assert "similarities" in possible_views(problem[0].shape[1:], "auto", n=len(problem[0]))[0]


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        ([0.1, 0.1, 0.11], True),
        ([0.1, -0.1, 0.11], False),
        ([-0.1, -0.1, -0.1], False),
        ([0.1], False),
        ([0.0] * 3, False),
    ],
)
def test_similarities_are_taken_where_folds_agree(gain, expected):
    assert session._is_evident(np.array(gain)) == expected


def test_folds_without_a_score_say_nothing_about_similarities():
    assert session._is_evident(np.array([0.1, np.nan, 0.11]))
    assert not session._is_evident(np.array([np.nan, np.nan]))


def test_a_search_among_similarities_alone_takes_the_best_of_them():
    X, y = rings(120)
    model = TensorClassifier(views=["similarities", "similarities_standardized"]).fit(X, y)
    assert set(model.view_shares_) == {"similarities", "similarities_standardized"}
    assert model.score(X, y) > 0.8


def test_modes_are_whitened_unless_one_is_so_long_that_its_covariance_fills_the_machine():
    whitened = {"whitened", "whitened_fully", "whitened_channels"}
    assert whitened <= set(possible_views((64, 1000), "auto", n=200)[0])
    for shape, n in [((6, 18_000), 128), ((64, 3000), 300)]:
        names, reason = possible_views(shape, "auto", n=n)
        assert whitened.isdisjoint(names)
        assert "without whitened, whitened_fully, whitened_channels" in reason


def test_one_mode_alone_is_not_fully_whitened():
    assert "whitened_fully" in possible_views((2, 100), None)[0]
    assert possible_views((1, 100), None)[0][:3] == ["raw", "whitened", "similarities"]


def test_channels_are_whitened_where_there_are_several_and_a_mode_can_be_time():
    assert "whitened_channels" in possible_views((4, 100), "auto")[0]
    assert "whitened_channels" not in possible_views((1, 100), "auto")[0]
    assert "whitened_channels" not in possible_views((4, 100), None)[0]


def test_a_wave_of_two_channels_below_strong_noise_that_all_share_is_found_by_whitened_channels():
    rng = np.random.default_rng(0)
    y, times = np.arange(200) % 2, np.arange(60)
    X = 10 * np.cumsum(rng.normal(size=(200, 1, 60)), axis=-1) * rng.uniform(0.8, 1.2, size=(8, 1))
    X += rng.normal(size=(200, 8, 60))
    X[:, 2:4] += np.where(y, 0.3, -0.3)[:, None, None] * np.exp(-((times - 30) ** 2) / 50) * [[1.0], [-1.0]]
    model = TensorClassifier(cv=3).fit(X, y)
    assert "whitened_channels" in model.view_
    assert model.best_score_ > TensorClassifier(cv=3, views="raw").fit(X, y).best_score_


def test_fewer_samples_than_folds_make_fewer_folds():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3, 4)), np.repeat([0, 1, 2], 4)
    X[np.arange(12), 0, y] += 5.0
    with pytest.warns(
        UserWarning, match="Expected at least 5 samples of some class for cv=5, got 4: there are 4 folds"
    ):
        model = TensorClassifier(views="raw").fit(X, y)
    assert model.score_path_.shape[1] == 4
    with pytest.warns(UserWarning, match="Expected at least 5 samples for cv=5, got 3: there are 3 folds"):
        TensorRegressor(views="raw").fit(X[::4], y[::4].astype(float))
    with pytest.raises(ValueError, match="n_splits"):
        TensorClassifier(views="raw").fit(X[::4], y[::4])


@pytest.mark.parametrize("n_rare", [1, 3])
def test_a_rare_class_is_named_once_and_no_number_overflows(n_rare):
    X, y = np.random.default_rng(0).normal(size=(120, 6, 8)), np.repeat(["often", "rare"], [120 - n_rare, n_rare])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        TensorClassifier().fit(X, y)
    messages = [str(one.message) for one in caught]
    assert sum(f"5 samples of each class for 5 folds, got {n_rare} of 'rare'" in one for one in messages) == 1
    assert not [one for one in messages if "least populated" in one or "overflow" in one or "invalid" in one]


def test_the_default_finds_a_short_wave_wherever_it_is():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(160, 1, 60)), np.arange(160) % 2
    for sample, label in zip(X, y, strict=True):
        at = rng.integers(50)
        sample[0, at : at + 9] += 4 * np.sin(np.linspace(0, 2 * np.pi, 9)) * (1 if label else -1)
    model = TensorClassifier(cv=3).fit(X[:80], y[:80])
    assert "convolutions" in model.view_
    assert model.score(X[80:], y[80:]) > 0.85


def test_views_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="Expected views among"):
        TensorRegressor(views="nonsense").fit(np.random.default_rng(0).normal(size=(20, 3, 4)), np.arange(20.0))


def test_learning_goes_on_with_the_views_fixed(epochs):
    X, y = epochs
    order = np.random.default_rng(1).permutation(len(y))
    X, y = X[order], y[order]
    model = TensorClassifier(cv=3, views="second_order_lags", keep_moments=True).fit(X[:100], y[:100])
    before = model.features_.reference_.copy()
    model.partial_fit(X[100:], y[100:])
    assert_allclose(model.features_.reference_, before)
    assert model.best_estimator_.moments_.weight == len(y)
    assert model.score(X, y) > 0.8


def test_samples_flat_or_as_tensors_are_seen_alike(epochs):
    X, y = epochs
    flat = TensorClassifier([0.02], cv=3, views="second_order", ridges=(0.0,), tensor_shape=(4, 60))
    flat.fit(X.reshape(len(X), -1), y)
    tensor = clone(flat).set_params(tensor_shape=None).fit(X, y)
    assert_allclose(flat.decision_function(X.reshape(len(X), -1)), tensor.decision_function(X), atol=1e-8)


def test_sparse_samples_and_blocks_are_shown_as_they_are(problem):
    X, y = problem
    rows = sparse.csr_array(X.reshape(len(X), -1) * (np.abs(X.reshape(len(X), -1)) > 1.0))
    assert TensorRegressor(cv=3, tensor_shape=SHAPE).fit(rows, y).view_ == "raw"
    blocks = [(X[i : i + 30], y[i : i + 30]) for i in range(0, 90, 30)]
    in_blocks = TensorRegressor(cv=KFold(3)).fit(blocks)
    in_memory = TensorRegressor(cv=KFold(3), views=None).fit(X, y)
    assert in_blocks.view_ == "raw"
    assert in_blocks.alpha_ == pytest.approx(in_memory.alpha_)
    assert_allclose(in_blocks.coef_, in_memory.coef_, atol=1e-5)


# --- what is said -----------------------------------------------------------------------------------------------------


def test_results_are_a_table(problem):
    X, y = problem[0], classes(problem[1])
    model = TensorClassifier(cv=3).fit(X, y)
    table = pd.DataFrame(model.cv_results_)
    splits = [f"split{f}_test_score" for f in range(3)]
    assert {"param_alpha", "param_view", "params", "mean_test_score", "std_test_score", "rank_test_score", *splits} <= {
        *table
    }
    best = table.iloc[model.best_index_]
    assert best["param_alpha"] == model.alpha_ == model.best_params_["alpha"]
    assert best["mean_test_score"] == pytest.approx(model.best_score_)
    assert table["rank_test_score"].min() == 1
    assert model.best_score_se_ >= 0


def test_probabilities_of_the_squared_loss_are_calibrated():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4, 3))
    chance = 1 / (1 + np.exp(-2.0 * X[:, 0, 0]))
    y = rng.uniform(size=1500) < chance
    model = TensorClassifier(views=None).fit(X[:1000], y[:1000])
    found = model.predict_proba(X[1000:])[:, 1]
    assert np.mean(np.abs(found - chance[1000:])) < 0.05
    assert get_scorer("neg_log_loss")(model, X[1000:], y[1000:]) > -0.65
    assert_allclose(np.log(model.predict_proba(X)), model.predict_log_proba(X))


def test_verbose_says_what_is_tried_and_what_was_found(problem, caplog):
    with caplog.at_level(logging.INFO, logger="tracelearn"):
        TensorRegressor(cv=3, verbose=1).fit(*problem)
    text = " ".join(record.getMessage() for record in caplog.records)
    assert "views: raw, whitened" in text
    assert "ridge regression on" in text
    assert "trace norm on" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alphas": []}, "at least one"),
        ({"alphas": [-1.0]}, "not negative"),
        ({"cv": []}, "folds that learn"),
        ({"cv": [(list(range(9)), [])]}, "folds that learn"),
        ({"views": []}, "views to be"),
        ({"ridges": []}, "ridges"),
        ({"ridges": [-1.0]}, "ridges"),
        ({"ridges": ["much"]}, "ridges"),
        ({"alphas": ["much"]}, "alphas"),
        ({"mode_weights": []}, "mode_weights"),
        ({"alphas": [np.nan]}, "finite"),
    ],
)
def test_strengths_that_make_no_sense_are_refused_in_a_sentence(problem, options, message):
    with pytest.raises(ValueError, match=message):
        TensorRegressor(**{"cv": 3, "views": None, **options}).fit(*problem)


def test_iterators_are_refused(problem):
    X, y = problem
    with pytest.raises(ValueError, match="more than once"):
        TensorRegressor(cv=3).fit(iter([(X, y)]))


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [TraceNormRegressor(), TraceNormRegressor(loss="huber"), TraceNormRegressor(scaling="modes")],
    ids=["squared_error", "huber", "scaled"],
)
def test_every_point_of_a_path_is_the_fit_at_its_alpha(problem, estimator):
    X, y = problem
    path = trace_norm_path(X, y, estimator=estimator, alphas=4, eps=0.05)
    assert np.all(path.dual_gaps <= 1e-6)
    for alpha, coef in zip(path.alphas, path.coefs, strict=True):
        alone = clone(estimator).set_params(alpha=alpha).fit(X, y).coef_
        assert_allclose(coef, alone, atol=1e-2 * np.abs(path.coefs).max())


def test_a_path_refuses_negative_alphas(problem):
    with pytest.raises(ValueError, match="not negative"):
        trace_norm_path(*problem, alphas=[-1.0])


def test_second_order_standardised_does_not_depend_on_the_units_of_channels(epochs):
    X, _ = epochs
    units = np.array([1.0, 10.0, 1e3, 1e-3])[:, None]
    one, other = (SecondOrder(standardize=True, difference=True).fit(Z) for Z in (X, X * units))
    assert_allclose(np.linalg.eigvalsh(one.transform(X)), np.linalg.eigvalsh(other.transform(X * units)), atol=1e-8)


def test_the_error_of_a_score_is_corrected_for_training_samples_that_folds_share(problem):
    X, y = problem
    model = TensorRegressor(alphas=3, views=None, ridges=(0.0,), cv=ShuffleSplit(8, test_size=0.5, random_state=0))
    model.fit(X, y)
    spread = model.score_path_.std(axis=1, ddof=1)
    assert_allclose(model.score_path_se_, spread * np.sqrt(1 / 8 + 1), rtol=1e-12)
    assert model.best_score_se_ == model.score_path_se_[list(model.alphas_).index(model.alpha_)]


def test_splits_may_be_masks_and_every_other_thing_is_refused(problem):
    X, y = problem
    n, model = len(y), TensorRegressor(alphas=3, views=None, ridges=(0.0,))
    train = np.arange(n) % 4 > 0
    by_number = clone(model).set_params(cv=[(np.flatnonzero(train), np.flatnonzero(~train))] * 2).fit(X, y)
    by_mask = clone(model).set_params(cv=[(train, ~train)] * 2).fit(X, y)
    assert_allclose(by_mask.score_path_, by_number.score_path_, rtol=1e-12)
    last = clone(model).set_params(cv=[(np.arange(n - 9), np.arange(-9, 0))]).fit(X, y)
    assert_allclose(
        last.score_path_, clone(model).set_params(cv=[(np.arange(n - 9), np.arange(n - 9, n))]).fit(X, y).score_path_
    )
    wrong = [np.arange(9, n + 1), np.r_[0, 0, np.arange(9, n)], np.arange(9.0, n), train[1:], np.arange(9, n)[:, None]]
    for part in wrong:
        with pytest.raises(ValueError, match="Expected each side of a split"):
            clone(model).set_params(cv=[(part, np.arange(9))]).fit(X, y)


def test_a_score_that_needs_probabilities_is_refused_where_there_are_none_yet(problem):
    X, y = problem
    with pytest.raises(ValueError, match=r"Expected a scoring that needs no probabilities.*'neg_log_loss'"):
        TensorClassifier(alphas=3, scoring="neg_log_loss").fit(X, classes(y, 2))
    model = TensorClassifier(alphas=3, scoring="neg_log_loss", loss="log_loss", views=None).fit(X, classes(y, 2))
    assert np.isfinite(model.best_score_)


def test_scores_of_one_held_out_sample_are_said_to_mean_nothing(problem):
    X, y = problem
    with pytest.warns(UndefinedMetricWarning, match="use larger folds"):
        TensorRegressor(alphas=3, views=None, cv=LeaveOneOut()).fit(X[:20], y[:20])


def test_views_that_would_make_one_problem_too_large_are_left_out_of_it(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 2, 60)), np.arange(150) % 2
    X[:, 0] *= 1.0 + 0.5 * y[:, None]
    X[:, 1, :6] += y[:, None]
    assert "+" in TensorClassifier(views=["raw", "second_order"]).fit(X, y).view_
    monkeypatch.setattr(session, "_MOST_WORK", 1e3)
    model = TensorClassifier(views=["raw", "second_order"]).fit(X, y)
    assert model.view_ == next(iter(model.view_shares_))


def test_second_order_is_left_out_where_it_would_take_long_and_that_is_said():
    assert "second_order_two_windows" in possible_views((28, 28), "auto", n=500)[0]
    names, reason = possible_views((28, 28), "auto", n=5000)
    assert "second_order_difference" in names
    assert "second_order_two_windows" not in names
    assert "without second_order_two_windows" in reason


def test_of_many_samples_some_choose_and_all_are_learned_from(monkeypatch, caplog):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5, 8)), np.arange(200) % 2
    X[:, 1, :3] += y[:, None]
    monkeypatch.setattr(session, "_MOST_SEARCHED", session._work(60, 40, 40) + 1.0)
    with caplog.at_level(logging.INFO, logger="tracelearn"):
        model = TensorClassifier(views=None, verbose=1).fit(X, y)
    (said,) = (record.getMessage() for record in caplog.records if "drawn at random" in record.getMessage())
    count = int(said.partition(" of 200 samples")[0].split()[-1])
    assert 50 < count <= 60
    assert model.dual_gap_ < 1e-6
    again = TraceNormClassifier(model.alpha_, ridge=model.ridge_).fit(X, y)
    assert_allclose(model.coef_, again.coef_, atol=1e-5)
    assert model.best_params_["alpha"] == model.alpha_
    total = np.sum(np.var(X, axis=0))  # the largest ridge of those samples, for all of them
    assert np.max([row["ridge"] for row in model.cv_results_["params"]]) / total == pytest.approx(
        np.sqrt(count / 200), rel=0.2
    )


def test_where_folds_or_alphas_are_given_all_samples_choose(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5, 8)), np.arange(200) % 2
    monkeypatch.setattr(session, "_MOST_SEARCHED", 1e6)
    for given in ({"cv": KFold(4)}, {"alphas": [0.1, 0.01]}):
        model = TensorClassifier(views=None, **given).fit(X, y)
        assert np.min(np.abs(np.append(model.alphas_, model.ridges_) - max(model.alpha_, model.ridge_))) == 0.0


@pytest.mark.slow
def test_numbers_that_samples_hardly_tell_are_predicted_no_worse_than_by_their_mean():
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, weights = rng.standard_normal((560, 8, 10)), np.outer(rng.standard_normal(8), rng.standard_normal(10))
        signal = np.sum(X * weights, axis=(1, 2))
        y = 0.2 * signal / signal.std() + rng.standard_normal(560)
        found.append(TensorRegressor().fit(X[:60], y[:60]).score(X[60:], y[60:]))
    assert np.mean(found) > -0.05


def test_a_search_that_tells_classes_apart_never_ends_without_weights():
    rng = np.random.default_rng(0)
    label = np.arange(80) % 2
    course = np.exp(-(((np.arange(60) / 100 - 0.27) / 0.05) ** 2))
    X = 6.0 * rng.standard_normal((80, 8, 60)) + 5.0 * label[:, None, None] * np.outer(rng.uniform(-1, 1, 8), course)
    for options in ({}, {"scoring": "roc_auc"}, {"one_standard_error": True}):
        model = TensorClassifier(views="raw", cv=3, **options).fit(X, label, groups=np.arange(80) // 10)
        assert model.best_score_ > 0.75
        assert np.any(model.coef_ != 0)
        assert model.alpha_ < model.alphas_[0]
