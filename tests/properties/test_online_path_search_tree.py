"""Learning more, forgetting, paths, searches and trees: the same promises as for one fit."""

import numpy as np
import pytest
from hypothesis import strategies as st
from properties.inputs import ALPHAS, OUTCOMES, assert_certified, attempt, bits, datasets, tries

from tracelearn import (
    HierarchicalTraceNormClassifier,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    trace_norm_path,
)

pytestmark = pytest.mark.slow

OPTIONS = st.fixed_dictionaries(
    {
        "alpha": st.sampled_from(ALPHAS),
        "ridge": st.sampled_from([0.0, 1e-3]),
        "penalty": st.sampled_from(["overlapped", "latent", "scaled_latent"]),
        "fit_intercept": st.booleans(),
        "max_iter": st.just(50),
    }
)
NAMES = np.array(["ash", "birch", "cedar", "dogwood"])


def halves(data):
    middle = (len(data.X) + 1) // 2
    parts = slice(0, middle), slice(middle, None)
    weights = [None if data.weight is None else data.weight[part] for part in parts]
    return [(data.X[part], data.y[part], weight) for part, weight in zip(parts, weights, strict=True)]


@tries(60, data=datasets(least=2), options=OPTIONS, forgetting=st.sampled_from([1.0, 0.9, 1e-3]))
def test_learning_more_proves_its_answer_or_leaves_the_model_as_it_was(data, options, forgetting):
    first, second = halves(data)
    model = TraceNormRegressor(**options, forgetting=forgetting)
    found, warned = attempt(lambda: model.partial_fit(*first), data.arrays)
    if found is None:
        return
    assert_certified(model, model.tol, warned)
    before = bits(model.coef_, model.moments_.gram, model.moments_.weight)
    found, warned = attempt(lambda: model.partial_fit(*second), data.arrays)
    if found is None:
        assert bits(model.coef_, model.moments_.gram, model.moments_.weight) == before
        return
    assert_certified(model, model.tol, warned)
    found, warned = attempt(lambda: model.forget(*second), data.arrays)
    if found is not None:
        assert_certified(model, model.tol, warned)


@tries(40, data=datasets(least=2), options=OPTIONS)
def test_merging_is_learning_from_both(data, options):
    (first, second), both = halves(data), TraceNormRegressor(**options)
    models = [
        attempt(lambda part=part: TraceNormRegressor(**options).partial_fit(*part), [])[0] for part in (first, second)
    ]
    if None in models:
        return
    merged, warned = attempt(lambda: models[0].merge(models[1]), data.arrays)
    whole, _ = attempt(lambda: both.partial_fit(data.X, data.y, data.weight), data.arrays)
    if merged is None or whole is None:
        return
    assert_certified(merged, merged.tol, warned)
    size = np.abs(whole.moments_.gram).max()
    np.testing.assert_allclose(merged.moments_.gram, whole.moments_.gram, rtol=1e-4, atol=1e-4 * size)


@tries(40, data=datasets(least=2), options=OPTIONS)
def test_an_online_classifier_proves_its_answer_whatever_classes_come_first(data, options):
    labels = NAMES[np.unique(data.labels, return_inverse=True)[1]]
    model = TraceNormClassifier(**options)
    for row in range(min(3, len(labels))):
        batch = slice(row, None) if row == 2 else slice(row, row + 1)
        weight = None if data.weight is None else data.weight[batch]
        call = lambda b=batch, w=weight: model.partial_fit(data.X[b], labels[b], NAMES, w)  # noqa: E731
        found, warned = attempt(call, data.arrays)
        if found is None:
            return
        assert_certified(model, model.tol, warned)


@tries(30, data=datasets(), options=OPTIONS, n_alphas=st.integers(1, 6), loss=st.sampled_from(["squared", "huber"]))
def test_a_path_is_proven_at_every_alpha_or_reports_the_gap(data, options, n_alphas, loss):
    model = TraceNormRegressor(**options, loss=loss)
    path, _ = attempt(
        lambda: trace_norm_path(data.X, data.y, estimator=model, alphas=n_alphas, sample_weight=data.weight),
        data.arrays,
    )
    if path is None:
        return
    assert np.isfinite(path.coefs).all()
    assert np.isfinite(path.intercepts).all()
    assert np.isfinite(path.alphas).all()
    assert np.all(path.dual_gaps >= 0.0)
    OUTCOMES["certified"] += 1


@tries(
    25,
    data=datasets(least=2),
    penalty=st.sampled_from(["overlapped", "latent"]),
    classify=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_search_finds_a_proven_model_or_says_why_not(data, penalty, classify, seed):
    make = TraceNormClassifierCV if classify else TraceNormRegressorCV
    loss = ["squared", "logistic" if classify else "huber"][seed % 5 == 0]
    options = {"alphas": 3, "cv": 2, "penalty": penalty, "max_iter": 50, "loss": loss}

    def fit():
        return make(**options).fit(data.X, data.labels if classify else data.y, data.weight)

    model, warned = attempt(fit, data.arrays)
    if model is None:
        return
    assert_certified(model, model.tol, warned)
    assert np.isfinite(model.score_path_).all()
    again, _ = attempt(fit, data.arrays)
    assert bits(again.coef_, again.alpha_, again.score_path_) == bits(model.coef_, model.alpha_, model.score_path_)


@tries(30, data=datasets(), options=OPTIONS)
def test_every_node_of_a_tree_is_proven_or_warned_of(data, options):
    model, warned = attempt(
        lambda: HierarchicalTraceNormClassifier(**options).fit(data.X, data.labels, data.weight), data.arrays
    )
    if model is None:
        return
    for node in model.estimators_:
        assert_certified(node, model.tol, warned)
    assert set(model.predict(data.X)) <= set(model.classes_)
