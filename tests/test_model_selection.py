"""Cross-validation and paths: what is chosen is what a plain loop over folds and alphas would choose."""

import logging

import numpy as np
import pytest
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from tracelearn import (
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    trace_norm_path,
)
from tracelearn.datasets import make_low_rank_regression
from tracelearn.estimators.base import Batch


@parametrize_with_checks(
    [
        TraceNormRegressorCV(alphas=4),
        TraceNormClassifierCV(alphas=4),
        TraceNormClassifierCV(alphas=3, loss="logistic", class_mode="auto"),
    ]
)
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def problem():
    return make_low_rank_regression(90, (4, 3, 3), rank=1, random_state=3)


def plain_errors(model, X, y, alphas, cv, judge):
    """Fit on every fold for every alpha, from scratch."""
    errors = np.empty((len(alphas), cv.get_n_splits()))
    for f, (train, test) in enumerate(cv.split(X, y)):
        for a, alpha in enumerate(alphas):
            fitted = model.set_params(alpha=alpha).fit(X[train], y[train])
            errors[a, f] = judge(fitted, X[test], y[test])
    return errors


def squared_error(model, X, y):
    return np.mean((model.predict(X) - y) ** 2)


@pytest.mark.parametrize("n", [90, 16], ids=["moments", "kernel"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_held_out_errors_are_those_of_separate_fits(problem, n, fit_intercept):
    X, y, _ = problem
    X, y = X[:n] + 1.0, y[:n] + 5.0
    cv = KFold(4, shuffle=True, random_state=0)
    search = TraceNormRegressorCV(
        alphas=[2.0, 0.5, 0.1], cv=cv, mode_weights=None, ridges=(0.05,), scaling=None, fit_intercept=fit_intercept
    ).fit(X, y)
    model = TraceNormRegressor(ridge=0.05, fit_intercept=fit_intercept)
    errors = plain_errors(model, X, y, search.alphas_, cv, squared_error)
    # Paths stop at a relative gap of 1e-4, so errors agree to about its root.
    np.testing.assert_allclose(search.mse_path_, errors, rtol=0.05)
    assert search.alpha_ == search.alphas_[np.argmin(search.mse_path_.mean(axis=1))]


@pytest.mark.parametrize("ridges", [(0.0, 0.1), "auto"])
def test_the_refit_is_the_plain_fit_of_what_was_chosen(problem, ridges):
    X, y, _ = problem
    search = TraceNormRegressorCV(alphas=8, ridges=ridges).fit(X, y)
    names = ("ridge", "mode_weights", "scaling")
    chosen = TraceNormRegressor(search.alpha_, **{name: getattr(search, f"{name}_") for name in names}).fit(X, y)
    np.testing.assert_allclose(search.coef_, chosen.coef_, atol=1e-5)
    np.testing.assert_allclose(search.predict(X), chosen.predict(X), atol=1e-4)
    assert search.dual_gap_ <= 1e-6


def test_the_samples_are_read_once(problem, monkeypatch):
    X, y, _ = problem
    rows = []
    original = Batch.moments
    monkeypatch.setattr(Batch, "moments", lambda self, past=None: rows.append(len(self.X)) or original(self, past))
    TraceNormRegressorCV(alphas=5, cv=5).fit(X, y)
    assert sum(rows) == len(X)


def test_overlapping_folds_are_no_partition_and_still_right(problem):
    X, y, _ = problem
    splits = [(np.arange(0, 60), np.arange(60, 90)), (np.arange(30, 90), np.arange(0, 40))]
    search = TraceNormRegressorCV(alphas=[0.5, 0.1], cv=splits, mode_weights=None, ridges=(0.0,), scaling=None).fit(
        X, y
    )
    for f, (train, test) in enumerate(splits):
        model = TraceNormRegressor(0.5).fit(X[train], y[train])
        assert search.mse_path_[0, f] == pytest.approx(squared_error(model, X[test], y[test]), rel=0.05)


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
def test_a_scorer_sees_the_same_predictions_as_separate_fits(problem, loss):
    X, signal, _ = problem
    y = np.digitize(signal, np.quantile(signal, [0.4, 0.7]))
    cv = StratifiedKFold(3)
    alphas = [0.3, 0.05]
    plain = {"mode_weights": None, "ridges": (0.0,), "scaling": None}
    search = TraceNormClassifierCV(alphas=alphas, loss=loss, cv=cv, scoring="accuracy", **plain).fit(X, y)
    model = TraceNormClassifier(loss=loss)
    scores = plain_errors(model, X, y, alphas, cv, lambda m, A, b: accuracy_score(b, m.predict(A)))
    np.testing.assert_allclose(search.mse_path_, scores, atol=0.04)
    assert search.best_score_ == pytest.approx(search.mse_path_.mean(axis=1).max(), abs=1e-9)


def test_groups_stay_together(problem):
    X, y, _ = problem
    groups = np.repeat(np.arange(9), 10)
    seen = []

    class Watching(GroupKFold):
        def split(self, X, y=None, groups=None):
            for train, test in super().split(X, y, groups):
                seen.append(set(groups[train]) & set(groups[test]))
                yield train, test

    TraceNormRegressorCV(alphas=3, cv=Watching(3)).fit(X, y, groups=groups)
    assert seen == [set()] * 3


def test_auto_mode_weights_try_equal_weights_and_each_mode_alone(problem):
    X, y, _ = problem
    search = TraceNormRegressorCV(alphas=3, ridges=(0.0,)).fit(X, y)
    tried = [candidate["mode_weights"] for candidate in search.cv_results_["candidates"]]
    assert tried == [None, (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
    best = int(np.argmin([min(mean) for mean in search.cv_results_["mean_error"]]))
    assert search.mode_weights_ == tried[best]
    assert search.best_index_ == best


def test_given_mode_weights_are_the_only_candidates(problem):
    X, y, _ = problem
    candidates = [(1, 1, 0), (0, 0, 2)]
    search = TraceNormRegressorCV(alphas=3, mode_weights=candidates).fit(X, y)
    assert search.mode_weights_ in [(1.0, 1.0, 0.0), (0.0, 0.0, 2.0)]
    single = TraceNormRegressorCV(alphas=3, mode_weights=(1, 1, 0)).fit(X, y)
    assert single.mode_weights_ == (1.0, 1.0, 0.0)


def test_the_one_standard_error_rule_takes_a_larger_alpha_that_is_as_good(problem):
    X, y, _ = problem
    plain = {"alphas": 20, "mode_weights": None, "ridges": (0.0,)}
    lowest = TraceNormRegressorCV(**plain).fit(X, y)
    simple = TraceNormRegressorCV(**plain, one_standard_error=True).fit(X, y)
    means = lowest.mse_path_.mean(axis=1)
    spread = lowest.mse_path_.std(axis=1, ddof=1) / np.sqrt(5)
    at = int(np.argmin(means))
    assert simple.alpha_ > lowest.alpha_
    chosen = int(np.flatnonzero(simple.alphas_ == simple.alpha_)[0])
    assert means[chosen] <= means[at] + spread[at]
    assert chosen == 0 or means[chosen - 1] > means[at] + spread[at]


def test_class_mode_auto_tries_both(problem):
    X, signal, _ = problem
    y = np.digitize(signal, np.quantile(signal, [0.3, 0.6]))
    search = TraceNormClassifierCV(alphas=3, class_mode="auto", mode_weights=None, ridges=(0.0,), loss="squared").fit(
        X, y
    )
    assert [candidate["class_mode"] for candidate in search.cv_results_["candidates"]] == [False, True]
    assert search.coef_.shape == (3, 4, 3, 3)


def test_jobs_do_not_change_the_answer(problem):
    X, y, _ = problem
    one = TraceNormRegressorCV(alphas=6).fit(X, y)
    two = TraceNormRegressorCV(alphas=6, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.mse_path_, two.mse_path_)
    assert one.alpha_ == two.alpha_


def test_verbose_says_how_long_it_still_takes(problem, caplog):
    X, y, _ = problem
    with caplog.at_level(logging.INFO, logger="tracelearn"):
        TraceNormRegressorCV(alphas=3, verbose=1).fit(X, y)
    # Four choices of mode weights, then the best of them with a ridge.
    assert [message.partition(": ")[2] for message in caplog.messages if "s left" in message] == [
        "12 of 12 alphas, 0 paths left: about 0 s left",
        "3 of 3 alphas, 0 paths left: about 0 s left",
    ]


@pytest.mark.parametrize(
    "estimator",
    [TraceNormRegressor(), TraceNormRegressor(loss="huber", ridge=0.1), TraceNormRegressor(penalty="latent")],
    ids=["squared", "huber", "latent"],
)
def test_every_point_of_a_path_is_the_fit_at_its_alpha(problem, estimator):
    X, y, _ = problem
    path = trace_norm_path(X, y, estimator=estimator, alphas=4, eps=0.05)
    assert np.all(np.diff(path.alphas) < 0)
    assert np.all(path.dual_gaps <= 1e-6)
    assert not np.any(path.coefs[0])
    for alpha, coef, intercept in zip(path.alphas, path.coefs, path.intercepts, strict=True):
        fitted = type(estimator)(**{**estimator.get_params(), "alpha": alpha}).fit(X, y)
        np.testing.assert_allclose(coef, fitted.coef_, atol=5e-3 * np.abs(fitted.coef_).max() + 1e-9)
        assert intercept == pytest.approx(fitted.intercept_, abs=0.02)


def test_a_path_of_a_classifier_has_a_class_axis(problem):
    X, signal, _ = problem
    y = np.digitize(signal, np.quantile(signal, [0.3, 0.6]))
    path = trace_norm_path(X, y, estimator=TraceNormClassifier(), alphas=3)
    assert path.coefs.shape == (3, 3, 4, 3, 3)
    assert path.intercepts.shape == (3, 3)
