"""Tests of scores and maps, on drawn input: p-values are probabilities, NaN never comes out, order and units mean nothing."""

import numpy as np
import pytest
from hypothesis import strategies as st
from properties.inputs import tries
from sklearn.model_selection import KFold

from tracelearn import TraceNormClassifier, TraceNormRegressor
from tracelearn.inference import compare, decode_over_time, map_test, permutation_test

pytestmark = pytest.mark.slow

KINDS = ["plain", "constant features", "duplicates", "zeros", "uneven"]


@st.composite
def problems(draw):
    """Draw samples of order 2, targets that follow them more or less, and groups or none."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    n, shape = draw(st.integers(12, 40)), (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    X, kind = rng.standard_normal((n, *shape)), draw(st.sampled_from(KINDS))
    if kind == "constant features":
        X[:, 0] = 3.7
    elif kind == "duplicates":
        X = X[rng.integers(0, n // 3, n)]
    elif kind == "zeros":
        X[:] = 0.0
    elif kind == "uneven":
        X *= 10.0 ** rng.integers(-6, 6, shape)
    y = draw(st.sampled_from([0.0, 1.0, 10.0])) * X[:, 0, 0] + rng.standard_normal(n)
    # Three samples in each group at least: a fold of one group must have an R².
    groups = np.minimum(np.arange(n) // 3, n // 3 - 1) if draw(st.booleans()) else None
    return X, y, groups, draw(st.integers(0, 1000))


def model_of(y, classes):
    return (TraceNormClassifier(), np.argsort(np.argsort(y)) % 2) if classes else (TraceNormRegressor(), y)


def permuted(model, X, y, groups, seed, **options):
    return permutation_test(model, X, y, groups=groups, cv=3, n_permutations=9, random_state=seed, **options)


@tries(15, problem=problems(), classes=st.booleans())
def test_a_p_value_is_a_probability_that_counts_permutations_and_nothing_is_nan(problem, classes):
    X, y, groups, seed = problem
    model, y = model_of(y, classes)
    found = permuted(model, X, y, groups, seed)
    assert np.all(np.isfinite([found.score, *found.null]))
    assert 1 <= round(10 * found.p_value) <= 10
    assert found.p_value == pytest.approx(round(10 * found.p_value) / 10)
    again = permuted(model, X, y, groups, seed)
    assert (again.score, again.p_value) == (found.score, found.p_value)
    np.testing.assert_array_equal(again.null, found.null)


@tries(10, problem=problems(), unit=st.sampled_from([1e-12, 1e-3, 1e6, 2.0**40]))
def test_the_units_of_samples_mean_nothing_to_a_test(problem, unit):
    X, y, groups, seed = problem
    one, other = (permuted(TraceNormRegressor(tol=1e-9), own, y, groups, seed, tol=0.0) for own in (X, unit * X))
    np.testing.assert_allclose(other.score, one.score, atol=1e-2)
    np.testing.assert_allclose(other.null, one.null, atol=1e-2)
    crossing = np.sum(np.abs(one.null - one.score) <= 2e-2)  # scores that are equal but for the tolerance
    assert abs(other.p_value - one.p_value) <= crossing / 10 + 1e-12


@tries(10, problem=problems(), classes=st.booleans())
def test_the_order_of_samples_means_nothing_to_scores_on_the_same_folds(problem, classes):
    X, y, _, seed = problem
    model, y = model_of(y, classes)
    order, splits = np.random.default_rng(seed).permutation(len(y)), list(KFold(3).split(X))
    place = np.argsort(order)
    moved = [(place[train], place[test]) for train, test in splits]
    options = {"scoring": "neg_mean_squared_error"} if not classes else {}
    one = decode_over_time(model.set_params(tol=1e-9), X, y, cv=splits, **options)
    other = decode_over_time(model, X[order], y[order], cv=moved, **options)
    np.testing.assert_allclose(other.scores, one.scores, rtol=1e-3, atol=1e-3 if not classes else 0.1)
    assert np.all(np.isfinite(one.scores))


@tries(8, problem=problems())
def test_maps_and_comparisons_give_probabilities_and_no_nan(problem):
    X, y, groups, seed = problem
    found = map_test(TraceNormRegressor(), X, y, groups=groups, n_permutations=9, random_state=seed)
    assert np.all(np.isfinite(found.map))
    assert np.all((found.p_values >= 0.1 - 1e-12) & (found.p_values <= 1.0))
    compared = compare([TraceNormRegressor()], X, y, cv=3, repeats=1, groups=groups)
    for name in ("means", "difference", "standard_error", "p_value", "low", "high"):
        assert not np.any(np.isnan(getattr(compared, name))), name
    assert np.all((compared.p_value > 0) & (compared.p_value <= 1))
