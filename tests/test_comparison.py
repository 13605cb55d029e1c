"""Comparisons: the same folds for all, a corrected standard error, refusals in a sentence."""

import numpy as np
import pytest
from scipy.stats import binom, ttest_rel
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_score

from tracelearn import TensorRegressor, TraceNormClassifier, TraceNormRegressor
from tracelearn.datasets import make_low_rank_regression
from tracelearn.inference import Comparison, compare
from tracelearn.search.folds import corrected_error


def _samples(n=80):
    X, signal, _ = make_low_rank_regression(n, (4, 3, 2), rank=1, random_state=0)
    return X, signal


def test_every_model_is_scored_on_the_same_folds():
    X, y = _samples()
    cv = KFold(4, shuffle=True, random_state=0)
    models = {"strong": TraceNormRegressor(alpha=0.2), "weak": TraceNormRegressor(alpha=0.1)}
    found = compare(models, X, y, cv=cv, yardsticks=False)
    for scores, model in zip(found.scores, models.values(), strict=True):
        np.testing.assert_allclose(scores, cross_val_score(model, X, y, cv=cv))
    assert found.names == ("strong", "weak")


def test_without_overlap_the_p_value_is_that_of_a_paired_t_test():
    scores = np.random.default_rng(0).uniform(size=(2, 8))
    found = Comparison.of(("a", "b"), scores, 0.0, "score")
    expected = ttest_rel(*scores)
    np.testing.assert_allclose(found.p_value[1], expected.pvalue)
    interval = expected.confidence_interval()
    np.testing.assert_allclose([found.low[1], found.high[1]], [interval.low, interval.high])
    assert corrected_error(scores[0] - scores[1], 0.25) > found.standard_error[1]


def test_a_model_does_not_differ_from_itself_and_a_constant_difference_is_certain():
    scores = np.array([[0.5, 0.75, 0.5], [0.5, 0.75, 0.5], [0.25, 0.5, 0.25]])
    found = Comparison.of(("a", "b", "c"), scores, 0.25, "score")
    np.testing.assert_array_equal(found.p_value, [1.0, 1.0, 0.0])


def test_yardsticks_are_added_and_equal_names_numbered():
    X, y = _samples()
    found = compare([TraceNormClassifier(), TraceNormClassifier(alpha=0.1)], X, y > 0, cv=3, repeats=1)
    assert found.names == ("TraceNormClassifier", "TraceNormClassifier 2", "ridge", "logistic")
    assert np.all(found.means > 0.55)


def test_a_search_holds_groups_out_inside_of_training_folds_too():
    X, y = _samples(60)
    seen = []

    class Watching(TensorRegressor):
        def fit(self, X, y=None, sample_weight=None, groups=None, **params):
            seen.append(np.unique(groups))
            return super().fit(X, y, sample_weight, groups, **params)

    compare(Watching(alphas=2, views=None), X, y, groups=np.arange(60) % 6, cv=3, repeats=1)
    assert [len(own) for own in seen] == [4, 4, 4]


@pytest.mark.parametrize(
    ("models", "options", "words"),
    [
        ([], {}, "Expected estimators"),
        (["ridge"], {}, "Expected an estimator"),
        (Ridge(), {"yardsticks": False}, "at least two models"),
        (TraceNormRegressor(), {"repeats": 0}, "repeats"),
        (TraceNormRegressor(), {"groups": [1]}, "one for each sample"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(models, options, words):
    with pytest.raises(ValueError, match=words):
        compare(models, *_samples(), **options)


def test_differences_are_drawn():
    pytest.importorskip("matplotlib")
    found = compare(TraceNormRegressor(alpha=1.0), *_samples(), cv=3, repeats=1)
    left, right = found.plot()
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["TraceNormRegressor", "ridge"]
    assert right.texts[0].get_text() == f"p = {found.p_value[1]:.2g}"


@pytest.mark.slow
def test_models_that_are_equally_good_seldom_differ():
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        X, y = rng.standard_normal((60, 3, 4)), rng.standard_normal(60)
        halves = {"left": _Half(0), "right": _Half(1)}
        found.append(compare(halves, X, y, repeats=2, yardsticks=False).p_value[1])
    assert np.mean(np.array(found) < 0.05) <= 0.08


@pytest.mark.slow
@pytest.mark.parametrize("dependent", [False, True])
def test_intervals_of_differences_cover_what_they_promise(dependent):
    rng, found, groups = np.random.default_rng(0), [], np.repeat(np.arange(20), 4)
    for _ in range(150):
        X, noise = rng.standard_normal((80, 3, 4)), rng.standard_normal(80)
        if dependent:
            X += rng.standard_normal((20, 3, 4))[groups]
            noise += rng.standard_normal(20)[groups]
        y = X[:, 0, 0] + 0.5 * X[:, 0, 2] + noise
        halves = {"left": _Half(0), "right": _Half(1)}
        one = compare(halves, X, y, repeats=2, yardsticks=False, groups=groups if dependent else None)
        found.append((one.difference[1], one.low[1], one.high[1]))
    difference, low, high = np.transpose(found)
    truth = np.mean(difference)
    assert truth > 0.2
    assert np.mean((low <= truth) & (truth <= high)) >= binom.ppf(0.005, 150, 0.95) / 150


class _Half(Ridge):
    """Ridge regression that sees one half of a sample: two of them are equally good where there is nothing to find."""

    def __init__(self, half=0):
        super().__init__(alpha=10.0)
        self.half = half

    def fit(self, X, y):
        return super().fit(X[:, :, 2 * self.half :][:, :, :2].reshape(len(X), -1), y)

    def predict(self, X):
        return super().predict(X[:, :, 2 * self.half :][:, :, :2].reshape(len(X), -1))
