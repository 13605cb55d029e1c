"""The gap that is reported is true of the weights that are handed out: far from zero, in single precision, without spread."""

import math
import time

import numpy as np
import pytest

from tracelearn import (
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    tensor_trace_norm,
)
from tracelearn.estimators.base import settings_of
from tracelearn.losses import LOSSES
from tracelearn.problems.sample_loss import SampleLoss
from tracelearn.samples.samples import Block, Samples
from tracelearn.samples.targets import loss_for
from tracelearn.solvers import SOLVERS

SHAPE = (3, 4)
ALPHA = dict.fromkeys(LOSSES, 0.05) | {"squared_error": 0.1, "log_loss": 0.02, "multinomial": 0.02}
FORMS = ["in memory", "in blocks", "matrix-free"]


def samples(loss, n=60, seed=0):
    """Draw samples whose numbers have so few digits that an offset of 1e8 takes none of them."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.standard_normal((n, *SHAPE)) * 2**16) / 2**16
    score = X.reshape(n, -1) @ rng.standard_normal(12) + 0.5 * rng.standard_normal(n)
    if loss == "poisson":
        return X, rng.poisson(np.exp(np.clip(0.3 * score, -2.0, 2.0))).astype(float)
    if LOSSES[loss].for_numbers:
        score[:4] += 20.0  # outliers, for Huber
        return X, np.round(score * 2**16) / 2**16
    return X, np.digitize(score, [-1.0, 1.0]) if loss == "multinomial" else (score > 0.5).astype(int)


def make(loss, **options):
    kind = TraceNormRegressor if LOSSES[loss].for_numbers else TraceNormClassifier
    return kind(alpha=ALPHA[loss], loss=loss, **{"max_iter": 3000, **options})


def path_of(loss, X, y, **options):
    """Return a model as the last alpha of a path hands it out, and its gap."""
    kind = TraceNormRegressorCV if LOSSES[loss].for_numbers else TraceNormClassifierCV
    path = kind([2.0 * ALPHA[loss], ALPHA[loss]], loss=loss, cv=2, **{"max_iter": 3000, **options}).fit(X, y)
    model = make(loss)
    model.coef_, model.intercept_ = path.coef_path_[-1], path.intercept_path_[-1]
    model.classes_, model.dual_gap_ = np.unique(y), path.path_["gap"][-1]
    return model


def objective(model, loss, X, y, place, offset):
    """Evaluate the objective of what a model hands out, in extended precision, on the samples without their offset."""
    coef = np.asarray(model.coef_, dtype=np.longdouble).reshape(-1, X[0].size)
    intercept = np.atleast_1d(np.asarray(model.intercept_, dtype=np.longdouble))
    shift = intercept + (coef * np.longdouble(place)).sum(axis=1) - np.longdouble(offset)
    z = X.reshape(len(X), -1).astype(np.longdouble) @ coef.T + shift
    own = loss_for(settings_of(model).loss, len(coef))
    Y = y[:, None].astype(np.longdouble)
    if isinstance(model, TraceNormClassifier):
        Y = own.encode(np.eye(len(model.classes_), dtype=np.longdouble)[y])
    norm = sum(tensor_trace_norm(one.reshape(SHAPE).astype(float)) for one in coef)
    return float(np.mean(own.value(Y, z).sum(axis=1))) + ALPHA[loss] * norm


def fitted(model, form, X, y, monkeypatch):
    if form == "in memory":
        return model.fit(X, y)
    if form == "matrix-free":
        monkeypatch.setattr("tracelearn.problems.forms._SMALL_MATRIX", 0)
        monkeypatch.setattr("tracelearn.samples.execution.available_memory", lambda: 1000)
        return model.fit(X, y)
    return model.fit([(X[part], y[part]) for part in (slice(0, 25), slice(25, 31), slice(31, 60))])


def references(loss, X, y):
    """Return the optimum and the objective at zero, from the samples without an offset."""
    best = make(loss, tol=1e-10, max_iter=20000).fit(X, y)
    zero = make(loss, tol=1e-10).set_params(alpha=1e6).fit(X, y)
    assert not zero.coef_.any()
    return objective(best, loss, X, y, 0.0, 0.0), zero.objective_


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("x_offset", "y_offset"), [(0, 10**8), (10**8, 0), (10**6, 10**6), (-(10**8), 10**8)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_offsets_of_samples_and_targets_do_not_make_a_gap_untrue(loss, form, x_offset, y_offset, monkeypatch):
    X, y = samples(loss)
    y_offset = y_offset if LOSSES[loss].is_shift_invariant else 0
    optimum, at_zero = references(loss, X, y)
    model = fitted(make(loss), form, X + x_offset, y + y_offset, monkeypatch)
    excess = (objective(model, loss, X, y, x_offset, y_offset) - optimum) / at_zero
    assert excess <= model.dual_gap_ * (1 + 1e-6) + 1e-13
    assert model.dual_gap_ <= 1e-6 or abs(x_offset) > 10**6  # and an offset of the targets costs nothing


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("offset", [10**6, 10**8])
def test_every_solver_proves_huber_with_targets_far_from_zero(solver, offset):
    X, y = samples("huber")
    optimum, at_zero = references("huber", X, y)
    model = make("huber", solver=solver).fit(X, y + offset)
    excess = (objective(model, "huber", X, y, 0.0, offset) - optimum) / at_zero
    assert excess <= model.dual_gap_ <= 1e-6


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "squared_error"])
@pytest.mark.parametrize("error", [5e-9, -5e-9])
def test_forces_that_do_not_balance_prove_no_more_than_the_optimum(loss, error, monkeypatch):
    """Where the search for the intercept ends early, the dual point is none; what it is off by counts."""
    X, y = samples(loss)
    own = LOSSES[loss]()
    Y = y[:, None].astype(float) if own.for_numbers else own.encode(np.eye(y.max() + 1)[y])
    fit = SampleLoss.of(own, Samples.of(Block(X.reshape(len(X), -1), Y), SHAPE).checked())
    optimum, zero = fit.at_zero.value, np.zeros((Y.shape[1], 12))  # of all weights, where alpha is large
    search = SampleLoss._shift
    monkeypatch.setattr(SampleLoss, "_shift", lambda *args: search(*args) + error * np.arange(1.0, 1.0 + Y.shape[1]))
    at = fit.evaluate(zero)
    dual, (value_error, _) = at.dual_value(np.ones_like(optimum)), at.errors(1e-16)
    assert np.all(dual > 0.0)  # the forces count as balanced
    assert np.all(dual - value_error <= optimum + 1e-15)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("offset", "y_offset"), [(0, 0), (1000, 0), (-100_000, 0), (0, 10_000)])
@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-7])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_of_single_precision_are_judged_as_they_are_handed_out(loss, offset, y_offset, tol):
    y_offset = y_offset if LOSSES[loss].is_shift_invariant else 0
    for seed in range(4):
        X, y = samples(loss, seed=seed)
        X = (X + offset).astype(np.float32)
        model = make(loss, tol=tol).fit(X, y + y_offset)
        X = X.astype(np.float64) - offset
        optimum, at_zero = references(loss, X, y)
        excess = (objective(model, loss, X, y, offset, y_offset) - optimum) / at_zero
        assert excess <= model.dual_gap_ * (1 + 1e-6) + 1e-13
        assert model.dual_gap_ <= tol


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("offset", [0, -100_000, 10**6])
def test_the_gaps_of_a_path_are_true_of_its_weights_in_single_precision_too(loss, offset):
    X, y = samples(loss, seed=3)
    far = (X + offset).astype(np.float32)
    X = far.astype(np.float64) - offset
    optimum, at_zero = references(loss, X, y)
    model = path_of(loss, far, y)
    excess = (objective(model, loss, X, y, offset, 0.0) - optimum) / at_zero
    assert excess <= model.dual_gap_ * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", FORMS)
def test_patterns_do_not_depend_on_where_samples_are(loss, form, monkeypatch):
    if loss == "poisson" and form == "matrix-free":
        pytest.skip("a loss without a bound of its curvature needs square matrices")
    X, y = samples(loss)
    expected = make(loss).fit(X, y).patterns_
    found = fitted(make(loss), form, X + 10**7, y, monkeypatch).patterns_
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("value", [0.0, 1.0, 3.7, 1e8, -1e-8])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("alpha", ["some", "auto", 0.0])
def test_samples_that_are_all_the_same_are_learned_at_once(loss, value, form, alpha, monkeypatch):
    if alpha == 0.0 and form == "in blocks":
        pytest.skip(
            "without a penalty the rounding of a mean over blocks is fitted, with a warning that nothing is proven"
        )
    X, y = samples(loss)
    X = np.full_like(X, value)
    began = time.process_time()
    model = make(loss).set_params(alpha=ALPHA[loss] if alpha == "some" else alpha)
    fitted(model, form, X, y, monkeypatch)
    assert time.process_time() - began < 2.0
    assert model.dual_gap_ <= 1e-6
    assert model.n_iter_ <= 50
    assert np.all(np.isfinite(model.predict(X)) if LOSSES[loss].for_numbers else np.isin(model.predict(X), [0, 1, 2]))


@pytest.mark.parametrize("loss", ["log_loss", "squared_hinge", "multinomial"])
def test_features_that_are_constant_beside_others_that_are_not_have_no_weight(loss):
    X, y = samples(loss)
    X[:, 1] = 12345.678
    model = make(loss).fit(X, y)
    assert model.dual_gap_ <= 1e-6
    assert math.isclose(np.abs(model.coef_[..., 1, :]).max(), 0.0, abs_tol=1e-6)
