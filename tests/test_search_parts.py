"""The stages of a search, each alone: folds, paths, shares of views, losses of classes, calibration."""

import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit

from tracelearn import (
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
)
from tracelearn.datasets import make_low_rank_regression
from tracelearn.losses import LOSSES
from tracelearn.search.calibration import calibrate
from tracelearn.search.correction import optimism
from tracelearn.search.folds import canonical_order, draw_samples, make_folds
from tracelearn.search.paths import explained_variance, logistic_path, read_alphas, ridge_path, trace_path
from tracelearn.search.screening import shares_of
from tracelearn.search.softmax import ClassScores, fit_class_map, log_losses, softmax_regression
from tracelearn.search.splits import Targets, split_samples

SHAPE = (5, 4, 3)


@pytest.fixture(scope="module")
def problem():
    X, y, _ = make_low_rank_regression(90, SHAPE, rank=1, random_state=0)
    return X + 3.0, y + 2.0


def split(X, y, folds, *, classes=False, weight=None, loss="squared_error", **options):
    loss = LOSSES[loss]()
    codes = y[:, None].astype(float)
    if classes:
        codes = loss.encode(np.eye(int(y.max()) + 1)[y])
    weight = np.ones(len(y)) if weight is None else weight
    confounds = options.pop("confounds", None)
    targets = Targets(codes, weight, loss, classes, confounds=confounds, **options)
    return split_samples(X.reshape(len(X), -1), X.shape[1:], targets, folds)


@pytest.mark.parametrize("kind", [TensorClassifier, TensorRegressor, TraceNormClassifierCV, TraceNormRegressorCV])
def test_every_parameter_is_written_out_on_the_page_of_its_class(kind):
    page = inspect.getdoc(kind).split("Parameters\n----------\n")[1].split("\n\n")[0]
    entries = re.findall(r"^(\w+) : .*\n    \S", page, flags=re.MULTILINE)  # a name, its kind, and words
    assert entries == list(inspect.signature(kind).parameters)


# --- folds ---------------------------------------------------------------------------------------------------------------


def test_a_fold_never_lacks_a_class_to_learn_from():
    y = np.repeat([0, 1, 2], [30, 5, 1])
    with pytest.warns(UserWarning, match="got 1 of 2"):
        folds = make_folds(5, y, classifier=True)
    for train, test in folds.splits:
        assert set(y[train]) == {0, 1, 2}
        assert not set(train) & set(test)


def test_samples_without_weight_are_on_neither_side():
    weight = (np.arange(40) % 4 > 0).astype(float)
    for cv in (5, KFold(4), list(KFold(4).split(np.zeros(40)))):
        folds = make_folds(cv, np.arange(40.0), sample_weight=weight, classifier=False)
        assert not np.any(folds.training[:, weight == 0])
        assert not np.any(folds.held_out[:, weight == 0])


def test_groups_are_held_out_whole():
    groups = np.arange(60) // 5
    for cv in (4, GroupKFold(4)):
        for train, test in make_folds(cv, np.arange(60.0), groups, classifier=False).splits:
            assert not set(groups[train]) & set(groups[test])


@pytest.mark.parametrize("splits", [[([0, 1], [1.5])], [([0, 0], [1])], [([0], [9])]])
def test_splits_that_are_no_index_are_refused(splits):
    with pytest.raises(ValueError, match="Expected each side of a split to be different numbers"):
        make_folds(splits, np.arange(4.0), classifier=False)


def test_folds_among_some_samples_are_those_of_the_others_too():
    folds = make_folds(5, np.arange(50.0), classifier=False)
    index = np.flatnonzero(np.arange(50) % 3 > 0)
    restricted = folds.restricted_to(index)
    assert np.array_equal(restricted.held_out, folds.held_out[:, index])
    assert np.array_equal(restricted.training, folds.training[:, index])


def test_the_canonical_order_depends_on_samples_alone(rng):
    X, y = rng.normal(size=(50, 12)), rng.normal(size=50)
    X[7] = X[30]
    order = rng.permutation(50)
    first, second = canonical_order(X, y), canonical_order(1e5 * X[order], y[order])
    assert_allclose(X[first], X[order][second])
    assert_allclose(y[first], y[order][second])


def test_a_draw_is_by_weight_and_has_some_of_every_class(rng):
    labels = np.repeat([0, 1], [2980, 20])
    weight = np.where(np.arange(3000) % 2, 3.0, 1.0)
    weight[:10] = 0.0
    index, after = draw_samples(300, weight, labels)
    assert np.sum(labels[index]) >= 10
    assert np.all(weight[index] > 0)
    assert np.mean(weight[index] == 3.0) > 0.65
    share = weight[labels == 1].sum() / weight.sum()
    assert after[labels[index] == 1].sum() / after.sum() == pytest.approx(share, rel=0.2)


# --- paths ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [90, 40], ids=["more samples than entries", "fewer"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_ridge_regression_of_folds_is_scikit_learns(problem, n, fit_intercept, weighted):
    X, y = problem[0][:n], problem[1][:n]
    weight = np.random.default_rng(0).uniform(0.5, 2.0, size=n) if weighted else np.ones(n)
    folds = make_folds(4, y, classifier=False)
    samples = split(X, y, folds, weight=weight, fit_intercept=fit_intercept)
    path = ridge_path(samples, np.array([1e-1, 1e-3]))
    rows = X.reshape(n, -1)
    held_out = [samples.in_target_units(z)[:, 0] for z in path.held_out]
    for fold, (train, test) in enumerate(folds.splits):
        strength = path.ridges[path.best] * weight[train].sum()
        peer = Ridge(strength, fit_intercept=fit_intercept, tol=1e-10).fit(rows[train], y[train], weight[train])
        assert_allclose(held_out[fold], peer.predict(rows[test]), atol=1e-7)


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
@pytest.mark.parametrize("n", [90, 40], ids=["more samples than entries", "fewer"])
def test_the_trace_norm_of_folds_is_that_of_separate_fits(problem, loss, n):
    X, y = problem[0][:n], problem[1][:n]
    folds = make_folds(3, y, classifier=False)
    samples = split(X, y, folds, loss=loss)
    path = trace_path(samples, "overlapped", np.array([0.5, 0.1, 0.05]), are_given=True)
    for fold, (train, test) in enumerate(folds.splits):
        peer = TraceNormRegressor(path.alphas[path.best], loss=loss).fit(X[train], y[train])
        z = samples.in_target_units(path.held_out[fold])[:, 0]
        assert np.corrcoef(z, peer.predict(X[test]))[0, 1] > 0.999
        assert path.scores[path.best, fold] == pytest.approx(peer.score(X[test], y[test]), abs=0.02)


def test_confounds_are_regressed_out_as_each_fold_says(problem):
    X, y = problem
    confounds = np.random.default_rng(0).normal(size=(90, 1))
    folds = make_folds(3, y, classifier=False)
    path = ridge_path(split(X, y, folds, confounds=confounds), np.array([1e-2]))
    for fold, (train, test) in enumerate(folds.splits):
        peer = TraceNormRegressor(0.0, ridge=path.ridges[0]).fit(X[train], y[train], confounds=confounds[train])
        expected = peer.score(X[test], y[test], confounds=confounds[test])
        assert path.scores[0, fold] == pytest.approx(expected, abs=1e-6)


def test_overlapping_folds_are_no_partition_and_still_right(problem):
    X, y = problem
    folds = make_folds(ShuffleSplit(3, random_state=0), y, classifier=False)
    path = ridge_path(split(X, y, folds), np.array([1e-2]))
    for fold, (train, test) in enumerate(folds.splits):
        peer = TraceNormRegressor(0.0, ridge=path.ridges[0]).fit(X[train], y[train])
        assert path.scores[0, fold] == pytest.approx(peer.score(X[test], y[test]), abs=1e-6)


def test_logistic_regression_of_folds_is_that_of_separate_fits(problem):
    X, signal = problem
    y = np.digitize(signal, np.quantile(signal, [0.4, 0.7]))
    folds = make_folds(3, y, classifier=True)
    path = logistic_path(split(X, y, folds, classes=True))
    for fold, (train, test) in enumerate(folds.splits):
        peer = TraceNormClassifier(0.0, ridge=path.ridges[path.best], loss="log_loss").fit(X[train], y[train])
        expected = peer.decision_function(X[test])
        z = path.held_out[fold]
        assert_allclose(z - z.mean(axis=1, keepdims=True), expected - expected.mean(axis=1, keepdims=True), atol=0.02)


def test_the_grid_of_ridges_goes_on_only_where_the_score_rises(problem):
    X, y = problem
    folds = make_folds(5, y, classifier=False)
    assert len(ridge_path(split(X, y, folds)).ridges) == 13
    rng = np.random.default_rng(0)
    Z = X * np.where(rng.uniform(size=SHAPE) < 0.9, 1.0, 1e4)
    small = Z.reshape(90, -1)[:, np.std(Z.reshape(90, -1), axis=0) < 100][:, :5].sum(axis=1)
    assert ridge_path(split(Z, small, folds)).ridges[-1] == pytest.approx(
        1e-6 * ridge_path(split(X, y, folds)).ridges[-1] * np.var(Z, axis=0).sum() / np.var(X, axis=0).sum(), rel=1e-6
    )


@pytest.mark.parametrize("alphas", [[], [-1.0], [np.nan], "many", [[1.0]]])
def test_alphas_that_are_no_strengths_are_refused_in_a_sentence(alphas):
    with pytest.raises(ValueError, match="Expected alphas, or a number of them, that are finite"):
        read_alphas(alphas, 0.1)


# --- what selects --------------------------------------------------------------------------------------------------------


def statistics_of(s, y):
    covariance = np.mean((s - s.mean(0)) * (y - y.mean(0)), 0)
    return np.stack([s.mean(0), y.mean(0), s.var(0), y.var(0), covariance], -1)


def test_the_criterion_is_the_squared_correlation_of_all_held_out_predictions(rng):
    y, s = rng.normal(size=(2, 60, 2))
    s = 0.5 * y + s
    fold = np.arange(60) % 3
    statistics = np.stack([statistics_of(s[fold == f], y[fold == f]) for f in range(3)])
    explained = explained_variance(statistics, np.full(3, 1 / 3))
    assert explained == pytest.approx(np.mean([np.corrcoef(s[:, k], y[:, k])[0, 1] ** 2 for k in range(2)]))
    assert explained_variance(statistics * [1, 1, 1, 1, -1], np.full(3, 1 / 3)) < explained


def test_of_predicted_numbers_the_size_counts_too(rng):
    y = rng.normal(size=(60, 1)) + 5.0
    s = 0.1 * y + 0.01 * rng.normal(size=(60, 1))  # ranked nearly as y is, and far too small
    explained = explained_variance(statistics_of(s, y)[None], np.ones(1), numbers=True)
    centred = s - s.mean() - y + y.mean()
    assert explained == pytest.approx(1.0 - np.mean(centred**2) / np.var(y))
    assert explained < 0.3 < 0.9 < explained_variance(statistics_of(s, y)[None], np.ones(1))


def test_of_views_that_explain_the_same_or_nothing_the_first_is_taken():
    y = np.array([1.0, -1.0, 1.0, -1.0])[:, None]
    targets = Targets(y, np.ones(4), LOSSES["squared_error"](), False)
    for signs in [(-1, -1, -1), (1, 1, 1), (1, -1, 1)]:
        shares, _ = shares_of([[sign * y] for sign in signs], [np.arange(4)], targets)
        assert_allclose(shares, [1.0, 0.0, 0.0])


def test_weights_count_in_the_shares_of_views(rng):
    y = rng.normal(size=(80, 1))
    half = np.arange(80)[:, None] < 40
    first, second = np.where(half, y, 0.0), np.where(half, 0.0, y)
    for weight, expected in [(np.where(half, 1.0, 1e-9), 0), (np.where(half, 1e-9, 1.0), 1)]:
        targets = Targets(y, weight[:, 0], LOSSES["squared_error"](), False)
        shares, _ = shares_of([[first], [second]], [np.arange(80)], targets)
        assert np.argmax(shares) == expected
        assert max(shares) > 0.9


# --- losses of classes ---------------------------------------------------------------------------------------------------


def test_a_map_is_judged_on_folds_that_it_was_not_learned_from():
    rng = np.random.default_rng(0)
    shares = np.kron(np.eye(5), np.full(12, 1 / 60))  # five folds
    held = ClassScores(rng.normal(size=(60, 6)), np.eye(6)[rng.integers(0, 6, size=60)], shares, np.arange(60))
    between, losses = fit_class_map(held)
    mapped = replace(held, scores=held.scores @ between[:-1] + between[-1])
    assert log_losses(mapped).mean() < log_losses(held).mean() < losses.mean()


def test_softmax_regression_is_scikit_learns():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 5)), rng.integers(0, 3, size=80)
    X[:, 0] += 3.0
    half = np.arange(80) < 40
    shares = np.stack([np.full(80, 1 / 80), half / 40])
    for fit_intercept in (True, False):
        both = softmax_regression(X, np.eye(3)[y], shares, [1.0, 0.01], fit_intercept=fit_intercept)[-1]
        for own, among in zip(both, (half | ~half, half), strict=True):
            C = 1.0 / (2.0 * among.sum() * 0.01)
            peer = LogisticRegression(C=C, tol=1e-10, max_iter=1000, fit_intercept=fit_intercept)
            peer.fit(X[among], y[among])
            assert_allclose(own[:-1].T, peer.coef_, atol=2e-3)
            assert_allclose(own[-1] - own[-1].mean(), peer.intercept_ - np.mean(peer.intercept_), atol=2e-3)


def test_calibration_finds_the_size_and_the_offsets_of_scores(rng):
    y = (rng.uniform(size=4000) < 0.3).astype(int)
    z = 5.0 * (2.0 * y - 1.0) + 10.0 * rng.normal(size=4000) + 40.0
    scores = np.stack([-0.5 * z, 0.5 * z], axis=1)
    calibration = calibrate(scores, np.eye(2)[y], np.ones(4000))
    assert calibration.slope == pytest.approx(0.1, rel=0.15)
    probabilities = np.exp(calibration.log_probabilities(z))
    assert_allclose(probabilities.sum(axis=1), 1.0)
    assert probabilities[:, 1].mean() == pytest.approx(y.mean(), abs=0.01)


def test_of_the_best_of_many_scores_of_noise_hardly_anything_is_believed(rng):
    y = np.arange(60) % 2
    excess = []
    for _ in range(60):
        rows = rng.normal(size=(20, 60))
        z = rows[np.argmax((rows * (y - 0.5)).sum(axis=1))]
        calibration = calibrate(np.stack([-0.5 * z, 0.5 * z], axis=1), np.eye(2)[y], np.ones(60))
        new = calibration.log_probabilities(rng.normal(size=400))  # either class is as likely, whatever the score
        excess.append(-np.mean(new) - np.log(2.0))
    assert np.quantile(excess, 0.95) < 0.05


def test_of_few_samples_little_is_believed(rng):
    y = np.arange(10) % 2
    z = 3.0 * (2.0 * y - 1.0)  # all ten are right
    calibration = calibrate(np.stack([-0.5 * z, 0.5 * z], axis=1), np.eye(2)[y], np.ones(10))
    assert 0.6 < np.exp(calibration.log_probabilities(z)).max() < 0.97


def test_the_best_of_many_models_of_noise_is_corrected(rng):
    tables = (rng.uniform(size=(20, 30, 60)) < 0.5).astype(float)
    luck = np.mean([table.mean(axis=1).max() - 0.5 for table in tables])
    assert np.mean([optimism([table], np.ones(60)) for table in tables]) == pytest.approx(luck, abs=0.03)
    assert optimism([tables[0, :1]], np.ones(60)) == pytest.approx(0.0, abs=0.02)


def test_groups_are_drawn_whole(rng):
    groups = np.arange(60) // 6
    outcomes = np.repeat((rng.uniform(size=(10, 10)) < 0.5).astype(float), 6, axis=1)
    assert optimism([outcomes], np.ones(60), groups) > 1.3 * optimism([outcomes], np.ones(60))
