"""Hard numbers: the certificate against exact arithmetic, large offsets, collinear features, long single-precision streams."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example
from hypothesis import strategies as st
from properties.inputs import DEEP, attempt, tries

from tracelearn import Moments, TraceNormClassifier, TraceNormRegressor
from tracelearn.penalties import as_penalty
from tracelearn.problems.problem import Problems, certify
from tracelearn.problems.squares import Squares
from tracelearn.solvers import admm

pytestmark = pytest.mark.slow

# --- the certificate -------------------------------------------------------------------------------------------------


def exact(values):
    return mp.matrix(np.asarray(values, dtype=float).tolist())


def exact_objective(X, y, w, alpha, ridge):
    """Evaluate the objective of samples with one mode, the best intercept taken, with 60 digits."""
    residual = exact(y) - exact(X) * w
    mean = mp.fsum(residual) / len(residual)
    return mp.fsum((r - mean) ** 2 for r in residual) / len(residual) + alpha * mp.norm(w) + ridge * mp.norm(w) ** 2


def exact_minimum(X, y, alpha, ridge):
    """Minimise it with 60 digits: ``(C + (ridge + alpha / 2 |w|) I) w = h``, and |w| is the root of one equation."""
    n, p = X.shape
    A, b = exact(X), exact(y)
    means = [mp.fsum(A[:, j]) / n for j in range(p)]
    A = mp.matrix([[A[i, j] - means[j] for j in range(p)] for i in range(n)])
    b = b - mp.ones(n, 1) * (mp.fsum(b) / n)
    values, vectors = mp.eigsy(A.T * A / n)
    h = vectors.T * (A.T * b / n)

    def weights(length):
        shift = ridge + (alpha / (2 * length) if alpha else 0)
        return mp.matrix([h[j] / (values[j] + shift) for j in range(p)])

    if alpha and mp.norm(h) <= alpha / 2:
        return exact_objective(X, y, mp.zeros(p, 1), alpha, ridge)
    if not alpha:
        return exact_objective(X, y, vectors * weights(mp.mpf(1)), alpha, ridge)
    low, high = mp.mpf(10) ** -80, mp.mpf(10) ** 80
    for _ in range(600):  # the length that weights have falls with the one that they are computed for
        middle = mp.sqrt(low * high)
        low, high = (middle, high) if mp.norm(weights(middle)) > middle else (low, middle)
    return exact_objective(X, y, vectors * weights(low), alpha, ridge)


@example(seed=1, closeness=1e-9, share=0.0, ridge=1e-16, offset=0.0)  # found: all rounding of the gradient
@tries(
    12,
    seed=st.integers(0, 2**32 - 1),
    closeness=st.sampled_from([1.0, 1e-3, 1e-5, 1e-7, 1e-9]),
    share=st.sampled_from([0.0, 1e-14, 1e-10, 1e-6, 1e-3, 0.5]),
    ridge=st.sampled_from([0.0, 1e-16, 1e-10]),
    offset=st.sampled_from([0.0, 1e3, 1e6, 1e8]),
)
def test_the_gap_is_never_below_the_true_distance_from_the_optimum(seed, closeness, share, ridge, offset):
    rng = np.random.default_rng(seed)
    n, p = 12, 4
    # Features that differ by little: their weights are large and their products cancel.
    X = rng.standard_normal((n, 1)) + closeness * rng.standard_normal((n, p)) + offset
    y = rng.standard_normal(n)
    with mp.workdps(60):
        top = 2 * mp.norm(exact((X - X.mean(0)).T @ (y - y.mean()) / n))
        alpha = float(share * top)
        if not alpha and not ridge and closeness < 1e-5:
            return  # no certificate is claimed for what is singular to rounding
        model, _ = attempt(
            lambda: TraceNormRegressor(alpha=alpha, ridge=ridge, tol=1e-15, max_iter=300).fit(X, y), [X, y]
        )
        w = exact(model.coef_[:, None])
        excess = exact_objective(X, y, w, mp.mpf(alpha), mp.mpf(ridge)) - exact_minimum(
            X, y, mp.mpf(alpha), mp.mpf(ridge)
        )
        assert model.dual_gap_ * np.var(y) >= float(excess) * (1 - 1e-9)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_the_gap_grows_with_weights_whose_products_cancel(rng, size):
    X = rng.standard_normal((50, 1)) + 1e-8 * rng.standard_normal((50, 3))
    fit, penalty = Squares.of(Moments.of(X, rng.standard_normal(50))), as_penalty("overlapped", (3,))
    W = size * np.array([[1.0, -1.0, 0.0]])
    _, gap = certify(Problems(fit, penalty, np.array([1e-20]), (3,), fit.at_zero.value), W, None)
    assert gap[0] >= 1e-16 * size**2


def test_no_gap_is_claimed_below_rounding(rng):
    X, y = rng.standard_normal((200, 4, 3)), rng.standard_normal(200)
    model, warned = attempt(lambda: TraceNormRegressor(alpha=0.1, tol=1e-300, max_iter=300).fit(X, y), [X, y])
    assert warned
    assert 1e-15 <= model.dual_gap_ <= 1e-11


# --- offsets and collinear features ----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared_error", "huber", "log_loss", "squared_hinge"])
@pytest.mark.parametrize("n", [15, 60])
def test_a_mean_of_a_million_times_the_spread_gives_the_predictions_of_centred_samples(loss, n):
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((n, 4, 5)), rng.standard_normal(n)
    make = TraceNormRegressor if loss in ("squared_error", "huber") else TraceNormClassifier
    y = y if make is TraceNormRegressor else np.array(["a", "b", "c"])[np.argsort(np.argsort(y)) * 3 // n]
    shifted = X + 1e6
    X = shifted - 1e6  # what is left of the digits
    near, far = (make(alpha=0.02, loss=loss, tol=1e-7).fit(data, y) for data in (X, shifted))
    assert near.dual_gap_ <= 1e-7
    assert far.dual_gap_ <= 1e-6
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-5)
    pairs, predict = ((near, X), (far, shifted)), "predict" if make is TraceNormRegressor else "decision_function"
    scores = [getattr(model, predict)(data) for model, data in pairs]
    if loss == "log_loss":  # what all classes have in common is nobody's probability
        scores = [score - score.mean(axis=1, keepdims=True) for score in scores]
    np.testing.assert_allclose(scores[1], scores[0], atol=2e-2 * np.abs(scores[0]).max())


@pytest.mark.parametrize("loss", ["squared_error", "huber", "log_loss", "squared_hinge"])
@pytest.mark.parametrize("solver", ["auto", "admm", "apg"])
@pytest.mark.parametrize("share", [1e-1, 1e-3])
def test_features_that_are_collinear_to_rounding_are_no_trouble(loss, solver, share):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((40, 1, 1)) + 1e-7 * rng.standard_normal((40, 3, 4))  # condition 1e14 of the gram
    make = TraceNormRegressor if loss in ("squared_error", "huber") else TraceNormClassifier
    y = X[:, 0, 0] + 0.1 * rng.standard_normal(40)
    y = y if make is TraceNormRegressor else y > 0
    model, warned = attempt(lambda: make(alpha=share, loss=loss, solver=solver).fit(X, y), [X])
    assert model is not None
    assert np.isfinite(model.coef_).all()
    assert model.dual_gap_ <= 1e-6 or warned
    assert solver != "auto" or not warned
    assert np.abs(model.coef_).max() < 10.0  # shared out among the copies, not played off against each other


# --- long streams ----------------------------------------------------------------------------------------------------


def test_a_long_stream_in_single_precision_keeps_the_digits_of_double_precision():
    n, batch = (10_000_000, 50_000) if DEEP else (200_000, 5_000)
    rng = np.random.default_rng(5)
    mixing, w = rng.standard_normal((6, 6)), rng.standard_normal(6)
    model, total, products = TraceNormRegressor(alpha=1e-3), np.zeros(6, np.longdouble), np.zeros((6, 6), np.longdouble)
    for start in range(0, n, batch):
        X = (rng.standard_normal((batch, 6)) @ mixing + 100.0 + 3.0 * math.sin(start / n)).astype(np.float32)
        model.accumulate(X.reshape(batch, 2, 3), X.astype(np.float64) @ w + rng.standard_normal(batch))
        exact = X.astype(np.longdouble) - 100.0
        total, products = total + exact.sum(axis=0), products + exact.T @ exact
    gram = products - np.outer(total, total) / n
    assert model.moments_.weight == n
    np.testing.assert_allclose(model.moments_.x_mean, total / n + 100.0, rtol=1e-14)
    np.testing.assert_allclose(model.moments_.gram, gram, atol=1e-12 * np.abs(gram).max())
    model.refresh()
    assert model.dual_gap_ <= 1e-6
    np.testing.assert_allclose(model.coef_.reshape(-1), w, atol=0.05)


def test_a_problem_of_zero_weights_ends_at_zero_without_a_step():
    fit = Squares.of(Moments.of(np.ones((5, 3)), np.arange(5.0)))
    found = admm(
        Problems(fit, as_penalty("overlapped", (3,)), np.array([0.0]), (3,), fit.at_zero.value, penalised=False)
    )
    assert not found.W.any()
