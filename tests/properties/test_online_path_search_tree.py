"""Learning more, forgetting, paths, searches and trees: the same promises as for one fit."""

import numpy as np
import pytest
from hypothesis import strategies as st
from properties.inputs import ALPHAS, OUTCOMES, assert_certified, attempt, bits, datasets, tries

from tracelearn import (
    HierarchicalTraceNormClassifier,
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
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


@tries(
    30, data=datasets(), options=OPTIONS, n_alphas=st.integers(1, 6), loss=st.sampled_from(["squared_error", "huber"])
)
def test_a_path_is_proven_at_every_alpha_or_reports_the_gap(data, options, n_alphas, loss):
    options = dict(options)
    options["ridges"] = [options.pop("ridge")]
    del options["alpha"]
    model = TraceNormRegressorCV(n_alphas, cv=2, loss=loss, **options)
    found, warned = attempt(lambda: model.fit(data.X, data.y, data.weight), data.arrays)
    if found is None:
        return
    assert_certified(model, model.tol, warned)
    path, _ = attempt(lambda: model.path_, [])
    assert np.isfinite(model.coef_path_).all()
    assert np.isfinite(model.intercept_path_).all()
    assert np.isfinite(path["alpha"]).all()
    assert np.all(path["gap"] >= 0.0)
    OUTCOMES["certified"] += 1


@tries(
    25,
    data=datasets(least=2),
    penalty=st.sampled_from(["overlapped", "latent"]),
    classify=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_search_finds_a_proven_model_or_says_why_not(data, penalty, classify, seed):
    make = TensorClassifier if classify else TensorRegressor
    loss = ["squared_error", "log_loss" if classify else "huber"][seed % 5 == 0]
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


@tries(
    30,
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(3, 4), (2, 3, 3), (6,)]),
    groups=st.integers(4, 12),
    each=st.integers(4, 11),
    level=st.sampled_from([0.0, 1.0, 10.0, 30.0, 1000.0]),
    signal=st.sampled_from([0.1, 0.25, 0.5, 1.0]),
    scoring=st.sampled_from(["accuracy", "balanced_accuracy", "r2", "neg_mean_squared_error"]),
    n_alphas=st.sampled_from([6, 12, 20]),
)
def test_a_search_is_never_worse_than_the_same_alphas_given_by_hand(
    seed, shape, groups, each, level, signal, scoring, n_alphas
):
    """Groups of samples differ in level and in targets, and are held out whole: errors then have several minima."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), each)
    y = rng.standard_normal(len(group)) + rng.choice([0.0, 1.0, 3.0]) * rng.standard_normal(groups)[group]
    classify = scoring.endswith("accuracy")
    y = np.where(y > np.median(y), 1.0, -1.0) if classify else y
    X = rng.standard_normal((len(y), *shape)) + signal * np.multiply.outer(y, rng.standard_normal(shape))
    X += level * rng.standard_normal((groups, shape[0], *(1,) * (len(shape) - 1)))[group]
    make = TraceNormClassifierCV if classify else TraceNormRegressorCV
    # Both have the same iterations; our own grid is given fewer than alphas by hand, unless max_iter says otherwise.
    options = {"cv": 4, "scoring": scoring, "max_iter": 12}
    own, warned = attempt(lambda: make(alphas=n_alphas, **options).fit(X, y, groups=group), [X, y])
    alphas = own.alphas_[0] * np.geomspace(1.0, own.eps, n_alphas)
    hand, _ = attempt(lambda: make(alphas=alphas, **options).fit(X, y, groups=group), [X, y])
    if classify and not np.any(hand.coef_):
        return  # an alpha by hand may leave no weights; of our own the next one is taken then
    # Paths are walked in single precision, where alphas of the two grids are not quite the same.
    assert own.best_score_ >= hand.best_score_ - 1e-3 * max(1.0, abs(hand.best_score_))
    assert_certified(own, own.tol, warned)


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


@tries(
    20,
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(3, 4), (2, 3, 3), (6,), (30, 4)]),
    n=st.integers(8, 40),
    n_splits=st.integers(1, 4),
)
def test_folds_are_the_same_as_numbers_in_any_order_from_either_end_and_as_masks(seed, shape, n, n_splits):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, *shape))
    y = X.reshape(n, -1)[:, 0] + rng.standard_normal(n)
    masks = [rng.permutation(np.arange(n) < n - max(2, n // 3)) for _ in range(n_splits)]
    kinds = {
        "mask": [(own, ~own) for own in masks],
        "numbers": [(np.flatnonzero(own), np.flatnonzero(~own)) for own in masks],
        "from the end": [(np.flatnonzero(own) - n, np.flatnonzero(~own)) for own in masks],
        "list": [(np.flatnonzero(own).tolist(), np.flatnonzero(~own).tolist()) for own in masks],
    }
    models = [TraceNormRegressorCV(alphas=3, cv=cv).fit(X, y) for cv in kinds.values()]
    for other in models[1:]:
        np.testing.assert_array_equal(other.score_path_, models[0].score_path_)
        np.testing.assert_array_equal(other.score_path_se_, models[0].score_path_se_)
        np.testing.assert_array_equal(other.coef_, models[0].coef_)
