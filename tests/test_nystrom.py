"""A summary of low rank: it bounds what it stands for, and leads to the proven answer of all samples."""

from functools import partial

import numpy as np
import pytest

from tracelearn import Moments, TraceNormRegressor
from tracelearn.penalties import L1, Nuclear
from tracelearn.problems.datafits import Squares
from tracelearn.solvers import nystrom
from tracelearn.solvers.nystrom import _summarised

SHAPE = (6, 5, 4)


def smooth(n=300, seed=0):
    """Draw samples whose neighbouring entries are alike, and targets of weights of full rank."""
    rng = np.random.default_rng(seed)
    roots = [np.linalg.cholesky(np.exp(-np.abs(np.subtract.outer(*2 * [np.arange(k)])) / 4.0)) for k in SHAPE]
    X = np.einsum("nijk,ai,bj,ck->nabc", rng.standard_normal((n, *SHAPE)), *roots, optimize=True) + 2.0
    return X, X.reshape(n, -1) @ rng.standard_normal(120) + rng.standard_normal(n)


@pytest.mark.parametrize("directions", [20, 40, 500])
def test_the_operator_is_between_the_summary_and_the_summary_with_the_rest(directions):
    fit = Squares.of(Moments.of(*smooth()))
    found, C = _summarised(fit, directions), fit.operator.matrix
    N, scale = found.known.apply(np.eye(120)), np.linalg.eigvalsh(C)[-1]
    assert np.linalg.matrix_rank(N, 1e-8 * scale) <= directions
    assert np.linalg.eigvalsh(C - N)[0] > -1e-10 * scale
    assert np.linalg.eigvalsh(N + found.rest * np.eye(120) - C)[0] > -1e-10 * scale


def test_a_model_touches_the_squares_and_is_never_below_them(rng):
    fit = _summarised(Squares.of(Moments.of(*smooth()), ridge=0.1), 20)
    W, V = rng.standard_normal((2, 1, 120))
    model, at = fit.model(W, fit.evaluate(W)), fit.evaluate(W)
    np.testing.assert_allclose(model.evaluate(W).gradient, at.gradient, rtol=1e-8)
    raised = model.evaluate(W).value - at.value
    assert model.evaluate(V).value - raised > fit.evaluate(V).value


@pytest.mark.parametrize("penalty", ["overlapped", 0.5 * Nuclear(0) + 0.1 * L1()], ids=["trace norms", "with l1"])
@pytest.mark.parametrize("directions", [30, 60])
def test_few_directions_lead_to_the_answer_of_all_samples(monkeypatch, penalty, directions):
    X, y = smooth()
    exact = TraceNormRegressor(0.5, penalty=penalty, tol=1e-8).fit(X, y)
    monkeypatch.setattr("tracelearn.problems.batch._SMALL_MATRIX", 0)
    monkeypatch.setattr("tracelearn.samples.samples.available_memory", lambda: 1000)
    solver = partial(nystrom, directions=directions)
    found = TraceNormRegressor(0.5, penalty=penalty, tol=1e-6, solver=solver, max_iter=5000).fit(X, y)
    assert found.dual_gap_ <= 1e-6
    assert found.objective_ - exact.objective_ <= 1e-6 * np.var(y)
    assert not hasattr(found, "moments_")
    np.testing.assert_allclose(found.coef_, exact.coef_, atol=0.02 * np.abs(exact.coef_).max())
