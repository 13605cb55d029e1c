"""Permutation tests: the batch equals refits, p-values mean what they say, bad input is refused in a sentence."""

import numpy as np
import pytest
import registry
from scipy.stats import kstest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tracelearn import (
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormRegressor,
    TraceNormRegressorCV,
    tensor_trace_norm,
)
from tracelearn.datasets import make_low_rank_regression
from tracelearn.inference import permutation_test
from tracelearn.inference.permutation import choose_exchange
from tracelearn.inference.reading import Reading
from tracelearn.inference.solving import solve_sets

SHAPE = (4, 3, 2)


def _samples(n=60, seed=0, noise=1.0):
    X, signal, _ = make_low_rank_regression(n, SHAPE, rank=1, random_state=seed)
    return X, signal + noise * signal.std() * np.random.default_rng(seed).standard_normal(n)


def _refitted(model, X, y, splits, order, scoring):
    scorer = get_scorer(scoring)
    found = []
    for own in order:
        parts = [(clone(model).fit(X[train], y[own[train]]), test) for train, test in splits]
        found.append(np.mean([scorer(one, X[test], y[own[test]]) for one, test in parts]))
    return np.array(found)


CASES = {
    "numbers": (TraceNormRegressor(alpha=0.3, tol=1e-9), lambda y: y, "r2"),
    "several numbers": (TraceNormRegressor(alpha=0.3, tol=1e-9), lambda y: np.stack([y, -(y**2)], axis=1), "r2"),
    "joint": (TraceNormRegressor(0.3, tol=1e-9, target_mode=True), lambda y: np.stack([y, -(y**2)], axis=1), "r2"),
    "scaled": (TraceNormRegressor(alpha=0.3, tol=1e-9, scaling="modes"), lambda y: y, "neg_mean_absolute_error"),
    "no intercept": (TraceNormRegressor(alpha=0.3, tol=1e-9, fit_intercept=False, ridge=0.1), lambda y: y, "r2"),
    "two classes": (TraceNormClassifier(alpha=0.05, tol=1e-9), lambda y: np.where(y > 0, "b", "a"), "accuracy"),
    "area": (TraceNormClassifier(alpha=0.05, tol=1e-9), lambda y: y > 0, "roc_auc"),
    "zeros": (TraceNormClassifier(alpha=1.2, tol=1e-9), lambda y: y > 0, "roc_auc"),  # no weights in many fits
    "three classes": (TraceNormClassifier(alpha=0.05, tol=1e-9), lambda y: np.digitize(y, [-1, 1]), "f1_macro"),
    "log_loss": (TraceNormClassifier(alpha=0.02, tol=1e-6, loss="log_loss"), lambda y: y > 0, "neg_log_loss"),
    "softmax": (TraceNormClassifier(0.02, tol=1e-6, loss="log_loss"), lambda y: np.digitize(y, [-1, 1]), "accuracy"),
}


@pytest.mark.parametrize("n", [60, 25])  # moments, and a basis of fewer samples than features
@pytest.mark.parametrize("case", CASES)
def test_the_batch_of_permutations_equals_refits_on_the_same_permutations(case, n):
    model, targets, scoring = CASES[case]
    X, y = _samples(n)
    y, cv = targets(y), KFold(3, shuffle=True, random_state=0)
    found = permutation_test(model, X, y, n_permutations=6, cv=cv, scoring=scoring, tol=0.0, random_state=5)
    order = choose_exchange(y, None).draw(n, 6, np.random.default_rng(5))
    splits = list(cv.split(X))
    null = _refitted(model, X, y, splits, order, scoring)
    score = _refitted(model, X, y, splits, [np.arange(n)], scoring)[0]
    np.testing.assert_allclose(found.null, null, atol=2e-3 if model.tol > 1e-9 else 1e-4)
    np.testing.assert_allclose(found.score, score, atol=2e-3 if model.tol > 1e-9 else 1e-4)
    assert found.p_value == (1 + np.sum(null >= score - 1e-9)) / 7
    assert found.method == "batch"


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e9])
def test_a_larger_gap_hardly_moves_scores_in_any_unit(unit):
    X, y = _samples(100, noise=0.5)
    model, options = TraceNormRegressor(0.1), {"n_permutations": 20, "random_state": 0}
    exact = permutation_test(model, X, y, tol=0.0, **options)
    # Alpha is in units of X times those of y.
    model = TraceNormRegressor(0.1 * unit)
    rough = permutation_test(model, unit * X, y, **options)
    np.testing.assert_allclose(rough.null, exact.null, atol=5e-3)
    assert rough.p_value == exact.p_value


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_close_to_those_of_exact_fits(seed):
    X, y = _samples(60, seed=seed, noise=3.0)
    options = {"n_permutations": 60, "random_state": seed}
    rough, exact = (permutation_test(TraceNormClassifier(0.02), X, y > 0, tol=tol, **options) for tol in (2e-3, 0.0))
    assert rough.score == exact.score
    assert np.sqrt(np.mean((rough.null - exact.null) ** 2)) < 0.2 * np.std(exact.null)
    assert abs(rough.p_value - exact.p_value) < 0.05


def test_the_score_is_that_of_the_model_whatever_the_gap_of_the_permutations():
    X, y = _samples(60, noise=3.0)
    model, cv = TraceNormRegressor(0.05), KFold(5, shuffle=True, random_state=0)
    test = permutation_test(model, X, y, cv=cv, n_permutations=9, tol=0.2, random_state=0)
    assert test.score == pytest.approx(np.mean(cross_val_score(model, X, y, cv=cv)), abs=1e-5)


@pytest.mark.parametrize("tol", [0.2, 2e-3, 0.0])
def test_permutations_that_change_no_target_reach_the_score_of_the_true_ones(tol):
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(4), 15)
    X, y = rng.standard_normal((60, *SHAPE)), np.arange(4.0)[groups]
    X[:, 0, 0, 0] += 3.0 * y
    order = choose_exchange(y, groups).draw(60, 200, np.random.default_rng(0))
    changes_nothing = np.all(y[order] == y, axis=1)
    options = {"cv": 4, "groups": groups, "n_permutations": 200, "random_state": 0, "tol": tol}
    test = permutation_test(TraceNormRegressor(0.3), X, y, scoring="neg_mean_squared_error", **options)
    as_found = np.mean(test.null[changes_nothing])  # the score of the true targets at this gap
    assert np.sum(changes_nothing) > 3
    assert test.p_value == (1 + np.sum(test.null > 1.001 * as_found)) / 201
    if tol == 0.2:  # and not that of the model
        assert abs(test.score / as_found - 1.0) > 1e-3


def test_a_signal_is_found_and_noise_is_not():
    X, y = _samples(100, noise=0.3)
    options = {"n_permutations": 199, "random_state": 0}
    assert permutation_test(TraceNormClassifier(alpha=0.05), X, y > 0, **options).p_value == 1 / 200
    noise = np.random.default_rng(3).standard_normal(100)
    assert permutation_test(TraceNormRegressor(alpha=0.3), X, noise, **options).p_value > 0.05


def test_permutations_of_stratified_folds_stay_stratified_and_those_of_groups_stay_inside():
    y = np.repeat([0, 1], 15)
    folds = np.arange(30) % 3
    order = choose_exchange(y, None, folds).draw(30, 20, np.random.default_rng(0))
    assert np.array_equal(folds[order], np.tile(folds, (20, 1)))
    groups = np.arange(30) % 5
    order = choose_exchange(y, groups).draw(30, 20, np.random.default_rng(0))
    assert np.array_equal(groups[order], np.tile(groups, (20, 1)))
    assert np.any(order != np.arange(30))


def test_groups_of_one_target_are_exchanged_whole():
    groups = np.repeat(np.arange(10), [1, 2, 3, 4, 5, 5, 4, 3, 2, 1])
    y = (np.arange(10) % 2)[groups]
    exchange = choose_exchange(y, groups)
    for order in exchange.draw(30, 20, np.random.default_rng(0)):
        assert all(len(np.unique(y[order][groups == g])) == 1 for g in range(10))
        assert sorted(y[order][np.unique(groups, return_index=True)[1]]) == sorted(np.arange(10) % 2)
    X = np.random.default_rng(0).standard_normal((30, *SHAPE))
    found = permutation_test(TraceNormClassifier(), X, y, groups=groups, n_permutations=20, random_state=0)
    assert "whole groups" in found.exchanged


def test_selection_is_repeated_or_fixed_and_the_result_says_which():
    X, y = _samples(80, noise=0.3)
    options = {"n_permutations": 20, "random_state": 0}
    fixed = permutation_test(TensorRegressor(views=None), X, y, selection="fixed", **options)
    assert (fixed.selection, fixed.method, fixed.p_value) == ("fixed", "batch", 1 / 21)
    options["n_permutations"] = 2
    repeated = permutation_test(TensorClassifier(alphas=3), X, y > 0, **options)
    assert (repeated.selection, repeated.method) == ("repeat", "refit")


def test_repeated_selection_chooses_as_searches_do():
    X, y = _samples(80, noise=0.5)
    model, cv = TensorClassifier(views=None, scoring="roc_auc"), KFold(4, shuffle=True, random_state=0)
    result = permutation_test(model, X, y > 0, n_permutations=3, cv=cv, random_state=1)
    order = choose_exchange(y > 0, None).draw(80, 3, np.random.default_rng(1))
    search = clone(model).set_params(cv=cv)
    np.testing.assert_allclose(result.null, [search.fit(X, (y > 0)[samples]).raw_score_ for samples in order])
    np.testing.assert_allclose(result.score, search.fit(X, y > 0).raw_score_)


def test_a_fixed_choice_is_tested_as_the_model_that_was_chosen():
    X, y = _samples(60)
    search, options = TraceNormRegressorCV(alphas=4, fit_intercept=False), {"n_permutations": 5, "random_state": 0}
    fixed = permutation_test(search, X, y, selection="fixed", **options)
    search.fit(X, y)
    model = TraceNormRegressor(search.alpha_, ridge=search.ridge_, fit_intercept=False)
    np.testing.assert_array_equal(fixed.null, permutation_test(model, X, y, cv=search.cv, **options).null)


def test_estimators_of_other_libraries_and_weights_of_classes_are_refitted():
    X, y = _samples(60, noise=0.3)
    flat = make_pipeline(FunctionTransformer(lambda X: X.reshape(len(X), -1)), LogisticRegression())
    found = permutation_test(flat, X, y > 0, n_permutations=9, random_state=0)
    assert (found.method, found.p_value) == ("refit", 0.1)
    balanced = permutation_test(
        TraceNormClassifier(class_weight="balanced"), X, y > 0, n_permutations=3, random_state=0
    )
    assert balanced.method == "refit"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_permutations": 0}, "n_permutations"),
        ({"n_permutations": 2.5}, "n_permutations"),
        ({"selection": "none"}, "'repeat' or 'fixed'"),
        ({"scoring": "nothing"}, "a score that scikit-learn knows"),
        ({"scoring": 3}, "a name, a function or None"),
        ({"groups": [1, 2]}, "one for each sample"),
        ({"groups": np.zeros(60)}, "at least two groups"),
        ({"groups": np.arange(60)[:, None] % 5}, r"groups of shape \(60,\), one for each sample, got shape \(60, 1\)"),
        ({"groups": [None, *"abc"] * 15}, "none at sample 0"),
        ({"groups": np.arange(60)}, None),
    ],
)
def test_bad_input_is_refused_in_a_sentence(options, words):
    X, y = _samples(60)
    y = np.digitize(y, [0])
    if words is None:  # every sample is a group of its own: all of them are exchanged
        assert "whole groups" in permutation_test(TraceNormClassifier(), X, y, n_permutations=2, **options).exchanged
        return
    with pytest.raises(ValueError, match=words) as refused:
        permutation_test(TraceNormClassifier(), X, y, **{"n_permutations": 5, **options})
    assert "\n" not in str(refused.value)


def test_the_null_distribution_is_drawn():
    pytest.importorskip("matplotlib")
    X, y = _samples(40)
    found = permutation_test(TraceNormRegressor(alpha=0.3), X, y, n_permutations=20, random_state=0)
    axes = found.plot()
    assert len(axes.patches) > 0
    assert f"p = {found.p_value:.3g}" in axes.get_legend().get_texts()[1].get_text()
    assert "20 permutations" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("dependence", ["none", "within groups", "one target a group"])
def test_p_values_are_uniform_where_there_is_nothing_to_find(dependence):
    rng, found = np.random.default_rng(0), []
    for _ in range(500):
        X, y, groups = registry.unrelated(rng, dependence)
        options = {"groups": groups, "cv": 4, "n_permutations": 99, "random_state": rng.integers(1 << 30)}
        p = permutation_test(TraceNormRegressor(alpha=0.2), X, y, **options).p_value
        found.append(p - rng.uniform(0, 0.01))
    assert kstest(found, "uniform").pvalue > 0.01


@pytest.mark.slow
def test_p_values_of_dependent_samples_are_too_small_where_groups_are_not_given():
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        X, y, _ = registry.unrelated(rng, "one target a group")
        test = permutation_test(TraceNormRegressor(alpha=0.2), X, y, cv=4, n_permutations=99, random_state=0)
        found.append(test.p_value)
    assert np.mean(np.array(found) <= 0.05) > 0.3


@pytest.mark.slow
def test_p_values_of_a_search_are_uniform_where_selection_is_repeated():
    rng, found = np.random.default_rng(0), []
    search = TensorRegressor(views=None, alphas=4, cv=3)
    for _ in range(100):
        X, y, _ = registry.unrelated(rng, "none")
        p = permutation_test(search, X, y, n_permutations=19, random_state=rng.integers(1 << 30)).p_value
        found.append(p - rng.uniform(0, 0.05))
    assert kstest(found, "uniform").pvalue > 0.01


def test_rough_solves_keep_their_gap():
    X, y, _ = make_low_rank_regression(80, (5, 4, 3), rank=1, random_state=0)
    reading = Reading.of(TraceNormRegressor(alpha=0.3), X, y)
    order = np.array([np.random.default_rng(s).permutation(80) for s in range(100)])
    samples = reading.with_targets_of(np.arange(80), order)
    rough, _ = solve_sets(reading, samples, 100, tol=2e-3)
    exact, _ = solve_sets(reading, samples, 100)
    assert np.all(np.max(np.abs(rough - exact), axis=1) > 1e-9)
    centred = (X - X.mean(axis=0)).reshape(80, -1)
    objectives = [
        np.mean((y[order] - y.mean() - W @ centred.T) ** 2, axis=1)
        + 0.3 * np.array([tensor_trace_norm(w.reshape(5, 4, 3)) for w in W])
        for W in (rough, exact)
    ]
    assert np.max(objectives[0] - objectives[1]) <= 2e-3 * np.mean((y - y.mean()) ** 2)
