"""What is predicted of samples in single precision is what was certified, wherever these samples lie."""

import numpy as np
import pytest

from tracelearn import TraceNormClassifier, TraceNormRegressor, tensor_trace_norm

SHAPE = (4, 3)


def narrow_samples(offset, n=200, seed=0):
    """Make float32 samples, so many standard deviations from zero, and a target that they explain."""
    rng = np.random.default_rng(seed)
    X = (offset + rng.standard_normal((n, *SHAPE))).astype(np.float32)
    spread = X.astype(np.float64) - offset
    w = rng.standard_normal(SHAPE)
    return X, np.tensordot(spread, w, axes=2) + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e6])
def test_predictions_are_those_of_the_weights_in_double_precision(offset):
    X, y = narrow_samples(offset)
    model = TraceNormRegressor(0.05).fit(X, y)
    exact = X.reshape(len(X), -1).astype(np.longdouble) @ model.coef_.ravel().astype(np.longdouble) + model.intercept_
    predicted = model.predict(X)
    assert predicted.dtype == np.float32
    np.testing.assert_allclose(predicted, exact.astype(np.float64), atol=1e-6 * np.std(y))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_objective_of_what_is_predicted_is_the_one_that_was_proven(offset):
    X, y = narrow_samples(offset)
    model = TraceNormRegressor(0.05).fit(X, y)
    singular = sum(np.linalg.svd(np.reshape(model.coef_, SHAPE).astype(float), compute_uv=False))
    objective = np.mean((y - model.predict(X)) ** 2) + 0.05 * singular
    assert abs(objective - model.objective_) <= 1e-6 * np.var(y)


def test_probabilities_far_from_zero_are_those_near_zero():
    near, y = narrow_samples(0.0)
    far = (near.astype(np.float64) + 2.0**20).astype(np.float32)  # rounded to multiples of a sixteenth
    near = (far.astype(np.float64) - 2.0**20).astype(np.float32)  # the same samples, exactly
    labels = (y > 0).astype(int)
    here = TraceNormClassifier(0.02, loss="log_loss").fit(near, labels)
    there = TraceNormClassifier(0.02, loss="log_loss").fit(far, labels)
    np.testing.assert_allclose(there.predict_proba(far), here.predict_proba(near), atol=1e-3)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_probabilities_of_several_classes_are_those_that_were_proven(offset):
    X, y = narrow_samples(offset)
    labels = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    model = TraceNormClassifier(0.01, loss="log_loss").fit(X, labels)
    probabilities = model.predict_proba(X)
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-5)
    norms = sum(tensor_trace_norm(W) for W in model.coef_.astype(float))
    objective = 0.01 * norms - np.mean(np.log(probabilities[np.arange(len(y)), labels].astype(float)))
    assert abs(objective - model.objective_) <= 1e-6 * np.log(3)


def test_moments_that_are_asked_for_are_kept_however_few_the_samples():
    X, y = narrow_samples(0.0, n=5)
    model = TraceNormRegressor(0.05, keep_moments=True).fit(X, y)
    more, target = narrow_samples(0.0, n=50, seed=1)
    model.partial_fit(more, target)
    both = TraceNormRegressor(0.05).fit(np.concatenate([X, more]), np.concatenate([y, target]))
    np.testing.assert_allclose(model.coef_, both.coef_, atol=1e-2 * np.abs(both.coef_).max())


def test_moments_that_cannot_be_kept_are_refused_at_fit():
    X, y = narrow_samples(0.0)
    with pytest.raises(ValueError, match="only the squared loss has moments"):
        TraceNormRegressor(0.05, loss="huber", keep_moments=True).fit(X, y)
