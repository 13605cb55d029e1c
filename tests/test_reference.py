"""Every loss with every penalty by every solver is the answer of cvxpy, and no gap is a false promise."""

import functools

import numpy as np
import pytest
from oracle import minimise_loss

from tracelearn import TraceNormClassifier, TraceNormRegressor
from tracelearn.losses import LOSSES
from tracelearn.penalties import PENALTIES, as_penalty
from tracelearn.solvers import SOLVERS

pytest.importorskip("cvxpy", reason="cvxpy is the reference here")

SHAPE = (3, 2, 2)
N = 25
RIDGE = 0.02
ALPHA = {"overlapped": 0.08, "latent": 0.08, "scaled_latent": 0.25}
CASES = [*LOSSES, "squared, classes as a mode"]


def model(case, **options):
    options = {"ridge": RIDGE, "max_iter": 50000, **options}
    if case == "squared, classes as a mode":
        return TraceNormClassifier(target_mode=True, **options)
    if LOSSES[case].for_numbers:
        return TraceNormRegressor(loss=case, **options)
    return TraceNormClassifier(loss={"multinomial": "log_loss"}.get(case, case), **options)


@functools.cache
def data(case):
    rng = np.random.default_rng(CASES.index(case))
    X = rng.standard_normal((N, *SHAPE)) + 0.5
    W = np.einsum("i,j,k->ijk", *(rng.standard_normal(size) for size in SHAPE))
    y = X.reshape(N, -1) @ W.ravel()
    y = y / y.std() + 0.5 * rng.standard_normal(N)
    weight = rng.uniform(0.5, 2.0, N)
    if case in ("multinomial", "squared, classes as a mode"):
        return X, np.digitize(y, np.quantile(y, [0.3, 0.6])), weight
    if not LOSSES[case].for_numbers:
        return X, np.where(y > np.median(y), 1, -1), weight
    if case == "poisson":
        return X, rng.poisson(np.exp(0.5 * y)).astype(float), weight
    y[:3] += 8.0  # outliers, for Huber
    return X, y, weight


@functools.cache
def optimum(case, penalty):
    """Ask cvxpy for the optimal value of the problem that the class prints."""
    X, y, weight = data(case)
    coupled = case == "squared, classes as a mode"
    Y, name = np.asarray(y, float)[:, None], case
    if case == "multinomial":
        Y = np.eye(3)[y]
    elif coupled:
        Y, name = 2.0 * np.eye(3)[y] - 1.0, "squared_error"
    shape = (3, *SHAPE) if coupled else SHAPE
    norm = as_penalty(penalty, shape)
    A, share = X.reshape(N, -1), weight / weight.sum()
    return minimise_loss(name, A, Y, share, ALPHA[penalty], shape, norm, ridge=RIDGE, joint=coupled)


def solvers(case):
    return [*SOLVERS] if case not in LOSSES or LOSSES[case].curvature is not None else ["newton"]


COMBINATIONS = [(case, penalty, solver) for case in CASES for penalty in PENALTIES for solver in solvers(case)]


@pytest.mark.parametrize(("case", "penalty", "solver"), COMBINATIONS)
def test_the_answer_is_that_of_cvxpy_and_the_excess_is_below_the_gap(case, penalty, solver):
    X, y, weight = data(case)
    best = optimum(case, penalty)
    options = {"alpha": ALPHA[penalty], "penalty": penalty, "solver": solver}
    found = model(case, tol=3e-6, **options).fit(X, y, weight)
    assert found.dual_gap_ <= 3e-6
    assert found.coef_.any()
    assert found.objective_ == pytest.approx(best, rel=1e-5)
    # Stopped early, the gap is an honest bound: objectives are relative to that of W = 0.
    at_zero = model(case, alpha=1e4).fit(X, y, weight).objective_
    for tol in (1e-1, 1e-3):
        rough = model(case, tol=tol, **options).fit(X, y, weight)
        assert rough.objective_ >= best - 1e-7 * at_zero
        assert rough.objective_ - best <= rough.dual_gap_ * at_zero + 1e-7 * at_zero


@pytest.mark.parametrize("case", CASES)
def test_a_ridge_alone_is_certified_too(case):
    X, y, weight = data(case)
    found = model(case, alpha=0.0).fit(X, y, weight)
    assert found.dual_gap_ <= 1e-6
    exact = model(case, alpha=0.0, tol=1e-10).fit(X, y, weight)
    at_zero = model(case, alpha=1e4).fit(X, y, weight).objective_
    assert 0 <= found.objective_ - exact.objective_ + 1e-9 <= found.dual_gap_ * at_zero + 2e-9
