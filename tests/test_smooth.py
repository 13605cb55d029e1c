"""The squares against the samples that they stand for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tracelearn import Moments
from tracelearn.smooth import ArraySamples, Squares
from tracelearn.systems import GramSystem


@pytest.fixture
def problem(rng):
    X, Y, w = rng.standard_normal((20, 3, 2)) + 2.0, rng.standard_normal((20, 2)) - 1.0, rng.uniform(0.5, 2.0, 20)
    return X.reshape(20, -1), Y, w


def objective(X, Y, w, W, ridge):
    """Evaluate with the best intercept, for each target."""
    share = w / w.sum()
    residual = Y - X @ W.T
    residual = residual - share @ residual
    return share @ residual**2 + ridge * np.sum(W**2, axis=1)


@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_value_and_gradient_are_those_of_the_weighted_mean_of_squares(problem, rng, ridge):
    X, Y, w = problem
    smooth, W = Squares.of(Moments.of(X, Y, w), ridge=ridge), rng.standard_normal((2, 6))
    at = smooth.evaluate(W)
    np.testing.assert_allclose(at.value, objective(X, Y, w, W, ridge), rtol=1e-10)
    for j in range(6):
        step = np.zeros((2, 6))
        step[:, j] = 1e-5
        slope = (objective(X, Y, w, W + step, ridge) - objective(X, Y, w, W - step, ridge)) / 2e-5
        np.testing.assert_allclose(at.gradient[:, j], slope, rtol=1e-6, atol=1e-8)


def test_the_intercept_is_the_best_one(problem, rng):
    X, Y, w = problem
    W = rng.standard_normal((2, 6))
    b = Squares.of(Moments.of(X, Y, w)).intercept(W)
    np.testing.assert_allclose(b, np.average(Y - X @ W.T, axis=0, weights=w))


def test_zero_is_the_variance_of_the_targets(problem):
    X, Y, w = problem
    smooth = Squares.of(Moments.of(X, Y, w), ridge=0.3)
    plain = smooth.evaluate(np.zeros((2, 6)))
    for name in ("value", "gradient", "slope"):
        np.testing.assert_allclose(getattr(smooth.at_zero, name), getattr(plain, name), rtol=1e-12)
    np.testing.assert_allclose(smooth.at_zero.value, objective(X, Y, w, np.zeros((2, 6)), 0.3))


@pytest.mark.parametrize("spectral", [False, True])
def test_the_update_minimises_what_it_says(problem, rng, spectral):
    X, Y, w = problem
    smooth = Squares.of(Moments.of(X, Y, w), ridge=0.2, spectral=spectral)
    pull, shift = rng.standard_normal((2, 6)), np.array([0.5, 0.5])
    V = smooth.updater(shift)(np.zeros((2, 6)), pull)
    np.testing.assert_allclose(smooth.evaluate(V).gradient - pull + shift[:, None] * V, 0.0, atol=1e-10)


def test_the_lipschitz_constant_bounds_the_gradient_and_is_tight(problem):
    X, Y, w = problem
    smooth = Squares.of(Moments.of(X, Y, w), ridge=0.2)
    hessian = np.stack(
        [smooth.evaluate(np.tile(e, (2, 1))).gradient[0] - smooth.at_zero.gradient[0] for e in np.eye(6)]
    )
    true = np.linalg.eigvalsh(hessian)[-1]
    assert true <= smooth.lipschitz() <= 1.05 * true


def test_without_centring_the_intercept_is_zero(problem, rng):
    X, Y, w = problem
    smooth, W = Squares.of(Moments.of(X, Y, w).uncentred()), rng.standard_normal((2, 6))
    assert not smooth.intercept(W).any()
    np.testing.assert_allclose(smooth.evaluate(W).value, np.average((Y - X @ W.T) ** 2, axis=0, weights=w))


def test_alpha_means_the_same_for_any_number_of_samples(problem, rng):
    X, Y, w = problem
    once, many, W = Moments.of(X, Y, w), Moments.of(X, Y, w).scaled(50.0), rng.standard_normal((2, 6))
    one, fifty = (Squares.of(moments).evaluate(W) for moments in (once, many))
    np.testing.assert_allclose(one.value, fifty.value)
    np.testing.assert_allclose(one.gradient, fifty.gradient)


def test_joint_targets_share_one_value(problem, rng):
    X, Y, w = problem
    moments, W = Moments.of(X, Y, w), rng.standard_normal((2, 6))
    apart, joint = Squares.of(moments, ridge=0.1), Squares.of(moments, ridge=0.1, joint=True)
    assert (apart.n_problems, joint.n_problems) == (2, 1)
    np.testing.assert_allclose(joint.evaluate(W).value, [apart.evaluate(W).value.sum()])
    np.testing.assert_allclose(joint.evaluate(W).gradient, apart.evaluate(W).gradient)


def test_a_perfect_fit_has_value_zero_and_not_less(rng):
    X, W = rng.standard_normal((20, 4)) + 100.0, rng.standard_normal((1, 4))
    at = Squares.of(Moments.of(X, X @ W[0])).evaluate(W)
    assert 0.0 <= at.value[0] < 1e-12
    assert np.isfinite(at.best_scale()[0])


def test_the_dual_value_is_largest_at_the_best_scale(problem, rng):
    X, Y, w = problem
    at = Squares.of(Moments.of(X, Y, w)).evaluate(0.1 * rng.standard_normal((2, 6)))
    best = at.best_scale()
    for t in np.linspace(0.0, 2.0, 21):
        assert np.all(at.dual_value(best) >= at.dual_value(np.full(2, t)) - 1e-12)


def test_squares_from_few_samples_are_those_from_moments(problem, rng):
    X, Y, w = problem
    W = rng.standard_normal((2, 6))
    few = Squares.of_few(X, Y, w / w.sum(), ridge=0.1)
    full = Squares.of(Moments.of(X, Y, w), ridge=0.1)
    assert isinstance(full.system, GramSystem)
    np.testing.assert_allclose(few.evaluate(W).value, full.evaluate(W).value)
    np.testing.assert_allclose(few.evaluate(W).gradient, full.evaluate(W).gradient, atol=1e-10)
    np.testing.assert_allclose(few.intercept(W), full.intercept(W))


@pytest.mark.parametrize("n", [8, 30])  # through a kernel, and as a matrix
@pytest.mark.parametrize("centre", [True, False])
def test_covariances_of_samples_take_any_weights_and_solve(n, centre):
    rng = np.random.default_rng(0)
    X, shift = rng.normal(5.0, 1.0, (n, 12)), np.array([0.3])
    samples = ArraySamples(X, np.zeros((n, 1)), np.full(n, 1.0 / n))
    for weight in (rng.uniform(0.1, 2.0, n), rng.uniform(0.0, 1.0, n) ** 8):
        (system,) = samples.covariances(lambda Y, share, z, weight=weight: weight[:, None], centre=centre)
        deviations = X - (weight @ X / weight.sum() if centre else 0.0)
        matrix, row = (deviations.T * weight) @ deviations, rng.normal(size=(1, 12))
        assert_allclose(system.apply(row), row @ matrix, rtol=0, atol=1e-10)
        assert_allclose(system.solver(shift)(row @ matrix + 0.3 * row), row, rtol=0, atol=1e-9)
        assert_allclose(system.mean_eigenvalue(), np.trace(matrix) / 12, rtol=1e-10)
