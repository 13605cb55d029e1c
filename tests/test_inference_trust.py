"""Tests, intervals and comparisons with samples that ask for trouble: one sentence, and never NaN."""

import warnings

import numpy as np
import pytest
from sklearn.model_selection import KFold, LeaveOneOut

from tracelearn import TensorClassifier, TraceNormClassifier, TraceNormRegressor
from tracelearn.estimators import ZeroWeightsWarning
from tracelearn.inference import (
    bootstrap,
    compare,
    decode_over_time,
    map_test,
    permutation_test,
    searchlight,
)
from tracelearn.inference.permutation import p_value

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 3, 4))
y = X[:, 0, 0] + 0.5 * rng.standard_normal(40)
RARE = np.isin(np.arange(40), [0, 1, 8, 9]).astype(int)  # of five folds in their order three lack a class
SCORED = {
    "permutation": lambda model, X, y, **options: permutation_test(model, X, y, n_permutations=3, **options),
    "time": decode_over_time,
    "generalisation": lambda model, X, y, **options: decode_over_time(model, X, y, generalize=True, **options),
    "searchlight": lambda model, X, y, **options: searchlight(model, X, y, np.eye(3), **options),
    "comparison": lambda model, X, y, **options: compare([model, model], X, y, repeats=1, yardsticks=False, **options),
}
ALL = SCORED | {
    "bootstrap": lambda model, X, y, **options: bootstrap(model, X, y, n_bootstraps=3, **options),
    "map": lambda model, X, y, **options: map_test(model, X, y, n_permutations=3),
}


def refused(call, words="Expected"):
    with pytest.raises(ValueError, match=words) as told:
        call()
    assert str(told.value).startswith("Expected")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", SCORED)
@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_a_fold_that_lacks_a_class_is_no_score_of_nan(name, loss):
    model = TraceNormClassifier(loss=loss)
    refused(lambda: SCORED[name](model, X, RARE, scoring="roc_auc", cv=KFold(5)), "a score on every fold")


@pytest.mark.parametrize("name", SCORED)
def test_one_sample_has_no_share_of_variance(name):
    refused(lambda: SCORED[name](TraceNormRegressor(), X, y, cv=LeaveOneOut()), "a score on every fold")


def test_draws_that_have_no_score_are_drawn_anew_and_not_for_ever():
    found = bootstrap(TraceNormClassifier(), X, RARE, scoring="roc_auc", n_bootstraps=20, random_state=0)
    assert np.all(np.isfinite(found.scores))
    refused(
        lambda: bootstrap(TraceNormRegressor(), X, y, scoring=lambda *_: np.nan, n_bootstraps=2),
        "a score on every fold",
    )


@pytest.mark.parametrize("name", ALL)
def test_samples_without_targets_are_refused(name):
    refused(lambda: ALL[name](TraceNormRegressor(), X, None), "target")


@pytest.mark.parametrize("name", [name for name in ALL if name != "map"])
def test_a_score_of_classes_for_numbers_is_refused(name):
    refused(lambda: ALL[name](TraceNormRegressor(), X, y, scoring="roc_auc"), "a score that fits the model")


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_a_p_value_does_not_depend_on_the_units_of_its_score(unit):
    found = permutation_test(
        TraceNormRegressor(0.05 * unit),
        X,
        unit * y,
        scoring="neg_mean_squared_error",
        n_permutations=19,
        random_state=0,
    )
    assert found.p_value == 0.05
    assert p_value(1.0 * unit, np.array([1.0 - 1e-12, 0.5, 1.5]) * unit) == 0.75  # equal but for rounding


def test_the_score_of_a_search_is_named_as_it_is():
    search = TensorClassifier(alphas=2, cv=2, views=None, scoring="roc_auc")
    assert permutation_test(search, X, y > 0, n_permutations=2).scoring == "roc_auc"


@pytest.mark.parametrize("neighbours", [[[True, False, True]] * 3, [[0.6, 1.0]], [["0", "1"]]])
def test_neighbours_that_are_no_numbers_of_entries_are_refused(neighbours):
    refused(lambda: searchlight(TraceNormRegressor(), X, y, neighbours), "lists of neighbours")


@pytest.mark.parametrize("ask", [permutation_test, decode_over_time])
def test_an_alpha_that_leaves_no_weights_is_said(ask):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = 1e-6 * (rng.standard_normal((40, 3, 4)) + y[:, None, None])
    with pytest.warns(ZeroWeightsWarning, match="none in any fit with alpha=1"):
        ask(TraceNormClassifier(alpha=1.0), X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(TraceNormClassifier(), X, y)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": y[:30]}, "inconsistent numbers of samples"),
        ({"y": np.where(np.arange(40) == 3, np.nan, y)}, "NaN at sample 3"),
        ({"X": np.where(np.arange(40)[:, None, None] == 3, np.nan, X)}, "NaN at sample 3"),
        ({"model": "ridge"}, "'ridge'"),
    ],
)
def test_bad_samples_targets_and_models_are_refused_by_all(name, change, words):
    given = {"model": TraceNormRegressor(), "X": X, "y": y} | change
    refused(lambda: ALL[name](given["model"], given["X"], given["y"]), words)


@pytest.mark.parametrize("name", [name for name in ALL if name != "map"])
def test_groups_of_nan_are_refused(name):
    groups = np.where(np.arange(40) < 4, np.nan, np.arange(40) // 4)
    refused(
        lambda: ALL[name](TraceNormRegressor(), X, y, groups=groups), "finite numbers in groups, got NaN at sample 0"
    )


def test_a_comparison_says_which_fold_leaves_one_class():
    labels = np.isin(np.arange(40), [3, 5]).astype(int)
    refused(lambda: compare(TraceNormClassifier(), X, labels, cv=KFold(5), repeats=1), "got one without fold 1")
