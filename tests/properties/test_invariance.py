"""What must not matter does not: units, order of samples and modes, repetition or weight, modes of size one."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from properties.inputs import attempt, shapes, tries
from sklearn.base import clone

from tracelearn import Moments, TraceNormClassifier, TraceNormRegressor

pytestmark = pytest.mark.slow

LOSSES = st.sampled_from(["squared_error", "huber", "log_loss", "squared_hinge"])
PENALTIES = st.sampled_from(["overlapped", "latent", "scaled_latent"])
SEEDS = st.integers(0, 2**32 - 1)


def problem(seed, shape, loss, n=24):
    """Draw a problem that is no harder than usual, and its estimator."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, *shape)) + 0.5
    y = X.reshape(n, -1) @ rng.standard_normal(math.prod(shape)) + 0.3 * rng.standard_normal(n)
    if loss in ("squared_error", "huber"):
        return TraceNormRegressor, X, y / y.std(), rng
    return TraceNormClassifier, X, np.argsort(np.argsort(y)) * 3 // n, rng


def assert_same_optimum(first, second, size=1.0):
    """Two proven answers to one problem: their objectives differ by no more than their gaps."""
    slack = (first.dual_gap_ + second.dual_gap_) * size
    assert abs(first.objective_ - second.objective_) <= slack + 1e-9 * size


def value_at_zero(y, loss):
    """The objective at W = 0 or more, summed over targets: what gaps are relative to."""
    return float(np.var(y)) if loss in ("squared_error", "huber") else 3.0


@tries(15, seed=SEEDS, shape=shapes(24), loss=LOSSES, penalty=PENALTIES, power=st.sampled_from([-40, -8, -2, 2, 8, 40]))
def test_units_do_not_matter_to_predictions(seed, shape, loss, penalty, power):
    make, X, y, _ = problem(seed, shape, loss)
    scale = 2.0**power
    options = {"loss": loss, "penalty": penalty, "max_iter": 100}
    usual, _ = attempt(lambda: make(alpha=0.05, **options).fit(X, y), [])
    scaled, _ = attempt(lambda: make(alpha=0.05 * scale, **options).fit(scale * X, y), [])
    predict = "predict" if make is TraceNormRegressor else "decision_function"
    expected = getattr(usual, predict)(X)
    np.testing.assert_allclose(getattr(scaled, predict)(scale * X), expected, atol=1e-6 * np.abs(expected).max())


@tries(
    15,
    seed=SEEDS,
    shape=shapes(24),
    loss=LOSSES,
    alpha=st.sampled_from([0.0, 1e-9, 0.05]),
    dtype=st.sampled_from(["float32", "float16", "int8", ">f4"]),
    n=st.sampled_from([5, 24]),
)
def test_narrow_samples_are_worth_what_their_numbers_are(seed, shape, loss, alpha, dtype, n):
    make, X, y, _ = problem(seed, shape, loss, n)
    X = (10.0 * X).astype(dtype)
    narrow, _ = attempt(lambda: make(alpha=alpha, loss=loss, max_iter=50).fit(X, y), [X])
    wide, _ = attempt(lambda: make(alpha=alpha, loss=loss, max_iter=50).fit(X.astype(np.float64), y), [])
    assert narrow.n_iter_ == wide.n_iter_
    if narrow.coef_.dtype == wide.coef_.dtype and np.array_equal(narrow.intercept_, wide.intercept_):
        assert (narrow.objective_, narrow.dual_gap_) == (wide.objective_, wide.dual_gap_)
    else:  # certified as they are rounded
        assert narrow.dual_gap_ <= max(narrow.tol, wide.dual_gap_)
        assert abs(narrow.objective_ - wide.objective_) <= 2.0 * narrow.tol * value_at_zero(y, loss) + 1e-9
    np.testing.assert_array_equal(narrow.coef_, wide.coef_.astype(narrow.coef_.dtype))


@tries(15, seed=SEEDS, shape=shapes(24), loss=LOSSES, penalty=PENALTIES)
def test_the_order_of_samples_does_not_matter(seed, shape, loss, penalty):
    make, X, y, rng = problem(seed, shape, loss)
    order = rng.permutation(len(X))
    first, _ = attempt(lambda: make(alpha=0.05, loss=loss, penalty=penalty, max_iter=200).fit(X, y), [])
    second, _ = attempt(lambda: make(alpha=0.05, loss=loss, penalty=penalty, max_iter=200).fit(X[order], y[order]), [])
    assert_same_optimum(first, second, value_at_zero(y, loss))


@tries(15, seed=SEEDS, shape=shapes(24), loss=LOSSES, penalty=PENALTIES)
def test_the_order_of_modes_does_not_matter(seed, shape, loss, penalty):
    make, X, y, rng = problem(seed, shape, loss)
    order = rng.permutation(len(shape))
    turned = np.ascontiguousarray(X.transpose(0, *(1 + order)))
    first, _ = attempt(lambda: make(alpha=0.05, loss=loss, penalty=penalty, max_iter=200).fit(X, y), [])
    second, _ = attempt(lambda: make(alpha=0.05, loss=loss, penalty=penalty, max_iter=200).fit(turned, y), [])
    assert second.coef_.shape[-len(shape) :] == tuple(shape[axis] for axis in order)
    assert_same_optimum(first, second, value_at_zero(y, loss))


@tries(15, seed=SEEDS, shape=shapes(24), loss=LOSSES, penalty=PENALTIES)
def test_a_whole_weight_is_that_many_samples(seed, shape, loss, penalty):
    make, X, y, rng = problem(seed, shape, loss)
    weight = rng.integers(0, 4, len(X))
    assume(len(np.unique(y[weight > 0])) > 2)
    first, _ = attempt(lambda: make(alpha=0.05, loss=loss, penalty=penalty, max_iter=200).fit(X, y, weight), [])
    second, _ = attempt(
        lambda: make(alpha=0.05, loss=loss, penalty=penalty, max_iter=200).fit(
            np.repeat(X, weight, axis=0), np.repeat(y, weight)
        ),
        [],
    )
    size = value_at_zero(np.repeat(y, weight), loss)
    assert_same_optimum(first, second, size)


@tries(15, seed=SEEDS, shape=shapes(24), loss=LOSSES, place=st.integers(0, 5))
def test_a_mode_of_size_one_that_is_not_penalised_does_not_matter(seed, shape, loss, place):
    make, X, y, _ = problem(seed, shape, loss)
    place = min(place, len(shape))
    weights = np.insert(np.full(len(shape), 1.0 / len(shape)), place, 0.0)
    # At order 2 both unfoldings have one norm, so that a weight of zero for one of them is a smaller weight of it.
    assume(len(shape) > 1)
    first, _ = attempt(lambda: make(alpha=0.05, loss=loss, max_iter=200).fit(X, y), [])
    second, _ = attempt(
        lambda: make(alpha=0.05, loss=loss, mode_weights=tuple(weights), max_iter=200).fit(
            np.expand_dims(X, place + 1), y
        ),
        [],
    )
    assert_same_optimum(first, second, value_at_zero(y, loss))


@tries(15, seed=SEEDS, shape=shapes(24), cuts=st.lists(st.integers(0, 24), max_size=4))
def test_the_batches_that_samples_came_in_do_not_matter(seed, shape, cuts):
    _, X, y, _ = problem(seed, shape, "squared_error")
    whole = TraceNormRegressor(alpha=0.05).partial_fit(X, y)
    online = TraceNormRegressor(alpha=0.05)
    edges = sorted({0, *cuts, len(X)})
    for start, stop in itertools.pairwise(edges):
        online.partial_fit(X[start:stop], y[start:stop])
    assert_same_optimum(whole, online)
    np.testing.assert_allclose(online.moments_.gram, whole.moments_.gram, rtol=1e-10, atol=1e-10)
    back = online.moments_ - Moments.of(X[: edges[1]], y[: edges[1]])
    rest = Moments.of(X[edges[1] :], y[edges[1] :])
    np.testing.assert_allclose(back.gram, rest.gram, rtol=1e-8, atol=1e-8)


@tries(
    25,
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(3, 40),
    q=st.integers(1, 4),
    size=st.sampled_from([1.0, 1e-9, 1e9]),
    offset=st.sampled_from([0.0, 1e3, 1.7e9]),
    twice=st.booleans(),
    single=st.booleans(),
    loss=st.sampled_from(["squared_error", "huber"]),
)
def test_units_origin_and_copies_of_confounds_do_not_matter(seed, n, q, size, offset, twice, single, loss):
    rng = np.random.default_rng(seed)
    C = np.round(100.0 * rng.standard_normal((n, q)))
    X = rng.standard_normal((n, 3, 2)) + 0.01 * np.tensordot(C, rng.standard_normal((q, 3, 2)), 1)
    X = X.astype(np.float32 if single else np.float64)
    y = X.reshape(n, -1) @ rng.standard_normal(6) + 0.01 * C[:, 0]
    other = size * (C + offset)
    other = np.concatenate([other, other[:, :1], np.ones((n, 1))], axis=1) if twice else other
    make = TraceNormRegressor(alpha=0.1, loss=loss, tol=1e-9, max_iter=20000)
    plain, warned = attempt(lambda: clone(make).fit(X, y, confounds=C), [X, y, C])
    model, _ = attempt(lambda: clone(make).fit(X, y, confounds=other), [X, y, other])
    expected = plain.predict(X, C)
    # Least squares of as many samples as confounds leave nothing, and of what is nearly that little.
    if n > q + 2 and not warned:
        np.testing.assert_allclose(model.predict(X, other), expected, atol=1e-3 * max(1.0, np.abs(expected).max()))
