"""Fitted to ordinary samples, then given others: numbers come out, or one sentence, and nothing that was learned changes."""

import math
import re

import numpy as np
import pytest
from hypothesis import strategies as st
from properties.inputs import assert_certified, attempt, bits, datasets, tries

from tracelearn import (
    HierarchicalTraceNormClassifier,
    ModePCA,
    TensorStandardScaler,
    TraceNormClassifier,
    TraceNormRegressor,
)
from tracelearn.report import model_page

pytestmark = pytest.mark.slow


def ordinary(data, dtype, size):
    """Draw samples of the same shape that are easy to learn from."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, *data.shape))
    y = X.reshape(20, -1) @ rng.standard_normal(math.prod(data.shape))
    return (size * X).astype(dtype), y, np.digitize(y, np.quantile(y, [0.3, 0.7]))


FITTED = {"dtype": st.sampled_from(["float64", "float32"]), "size": st.sampled_from([1.0, 1e-6, 1e6])}


@tries(60, data=datasets(), **FITTED, alpha=st.sampled_from([0.0, 1e-3, 1e9]))
def test_predictions_are_numbers_or_a_sentence(data, dtype, size, alpha):
    X, y, _ = ordinary(data, dtype, size)
    model = TraceNormRegressor(alpha=alpha * size).fit(X, y)
    found, _ = attempt(lambda: model.predict(data.X), data.arrays)
    if found is not None:
        assert np.isfinite(found).all()
        assert bits(found) == bits(model.predict(data.X))


@tries(
    60,
    data=datasets(),
    **FITTED,
    loss=st.sampled_from(["squared_error", "log_loss", "squared_hinge"]),
    two=st.booleans(),
)
def test_scores_and_probabilities_are_numbers_or_a_sentence(data, dtype, size, loss, two):
    X, _, labels = ordinary(data, dtype, size)
    model = TraceNormClassifier(alpha=0.01 * size, loss=loss).fit(X, labels > 0 if two else labels)
    scores, _ = attempt(lambda: model.decision_function(data.X), data.arrays)
    found, _ = attempt(lambda: model.predict(data.X), data.arrays)
    assert (found is None) == (scores is None)
    if scores is None:
        return
    assert np.isfinite(scores).all()
    assert set(found) <= set(model.classes_)
    if loss == "log_loss":
        shares, _ = attempt(lambda: model.predict_proba(data.X), data.arrays)
        logs, _ = attempt(lambda: model.predict_log_proba(data.X), data.arrays)
        np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-5)
        np.testing.assert_allclose(np.exp(logs), shares, rtol=1e-4, atol=1e-30)
        assert (model.classes_[np.argmax(logs, axis=1)] == model.classes_[np.argmax(shares, axis=1)]).all()


@tries(20, data=datasets(), **FITTED)
def test_a_tree_descends_to_a_class_or_says_why_not(data, dtype, size):
    X, _, labels = ordinary(data, dtype, size)
    model = HierarchicalTraceNormClassifier(alpha=0.01 * size).fit(X, labels)
    scores, _ = attempt(lambda: model.decision_function(data.X), data.arrays)
    if scores is not None:
        assert np.isfinite(scores).all()
        assert set(model.predict(data.X)) <= set(model.classes_)


@tries(60, data=datasets(), **FITTED, make=st.sampled_from([TensorStandardScaler, ModePCA]))
def test_transformed_samples_are_numbers_or_a_sentence(data, dtype, size, make):
    transformer = make().fit(ordinary(data, dtype, size)[0])
    found, _ = attempt(lambda: transformer.transform(data.X), data.arrays)
    back, _ = attempt(lambda: transformer.inverse_transform(data.X), data.arrays)
    for samples in (found, back):
        assert samples is None or np.isfinite(samples).all()


@tries(40, data=datasets(targets=(None,)), **FITTED)
def test_samples_of_another_kind_are_learned_too_or_leave_the_model_as_it_was(data, dtype, size):
    model = TraceNormRegressor(alpha=0.1 * size, keep_moments=True).fit(*ordinary(data, dtype, size)[:2])
    before = bits(model.coef_, model.moments_.gram, model.moments_.weight)
    found, warned = attempt(lambda: model.partial_fit(data.X, data.y, data.weight), data.arrays)
    if found is None:
        assert bits(model.coef_, model.moments_.gram, model.moments_.weight) == before
        return
    assert_certified(model, model.tol, warned)


@tries(10, data=datasets(), alpha=st.sampled_from([0.0, 1e-3, 1e9]), classify=st.booleans())
def test_a_page_about_a_model_shows_numbers(data, alpha, classify):
    y, make = (data.labels, TraceNormClassifier) if classify else (data.y, TraceNormRegressor)
    model, _ = attempt(lambda: make(alpha=alpha, max_iter=50).fit(data.X, y, data.weight), data.arrays)
    if model is not None:
        page, _ = attempt(lambda: model_page(model, data.X, y), data.arrays)
        shown = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)
        assert not re.findall(r".*\b(?:nan|inf)\b.*", shown, flags=re.IGNORECASE)
        assert "NaN" not in re.findall(r'<script type="application/json".*?</script>', page, flags=re.DOTALL)[0]
