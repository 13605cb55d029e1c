"""Estimators on arrays of other libraries: the same answers, in the same library, on the same device."""

import functools
import importlib.util
import os
import subprocess
import sys
from types import SimpleNamespace

import array_api_strict
import numpy as np
import pytest
from numpy.testing import assert_allclose

import tracelearn
from tracelearn import (
    Moments,
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
)
from tracelearn.arrays.array_api import block_bytes, is_non_numpy, move_to, place, to_numpy, unique_values, widest
from tracelearn.datasets import make_low_rank_regression
from tracelearn.moments import Accumulator
from tracelearn.penalties import L1, GroupL2, Nuclear

TOL = 1e-10
NO_TORCH = "torch is not installed: its arrays cannot be tested here"


def _libraries():
    strict = SimpleNamespace(xp=array_api_strict, device=array_api_strict.Device("CPU_DEVICE"))
    other = SimpleNamespace(xp=array_api_strict, device=array_api_strict.Device("device1"))
    yield pytest.param(strict, id="array_api_strict")
    yield pytest.param(other, id="array_api_strict on device1")
    if importlib.util.find_spec("torch") is None:
        yield pytest.param(None, id="torch", marks=pytest.mark.skip(reason=NO_TORCH))
    else:
        import array_api_compat.torch as torch

        yield pytest.param(SimpleNamespace(xp=torch, device=torch.device("cpu")), id="torch")


@pytest.fixture(params=_libraries())
def lib(request):
    """A library and a device, with ``lib.put(array)`` to go there and ``lib.has(array)`` to ask whether one is there."""
    found = request.param
    if "torch" in found.xp.__name__:
        importlib.import_module("torch").set_num_threads(1)

    def put(a, dtype=None):
        return found.xp.asarray(np.asarray(a, dtype=dtype), device=found.device)

    def has(a):
        return is_non_numpy(a) and place(a) == place(put([0.0]))

    return SimpleNamespace(xp=found.xp, device=found.device, put=put, has=has)


@pytest.fixture
def no_numpy(monkeypatch):
    """Let every silent trip through NumPy fail."""

    def refuse(self, *args, **kwargs):
        raise AssertionError("an array went through NumPy")

    monkeypatch.setattr(array_api_strict._array_object.Array, "__array__", refuse)
    monkeypatch.setattr(array_api_strict._array_object.Array, "__dlpack__", refuse)
    if importlib.util.find_spec("torch") is not None:
        import torch

        for name in ("__array__", "numpy", "__dlpack__"):
            monkeypatch.setattr(torch.Tensor, name, refuse)


@functools.cache
def problem(n=120, shape=(4, 4, 3)):
    X, y, _ = make_low_rank_regression(n, shape, rank=1, random_state=0)
    X = X + 0.5
    three = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    both = np.stack([y, X[:, 1, 1, 1] - y], axis=1)
    counts = np.random.default_rng(0).poisson(np.exp(y / y.std())).astype(float)
    return SimpleNamespace(X=X, y=y, both=both, counts=counts, three=three, two=(y > 0).astype(np.int64))


MODELS = {
    "squared_error": (TraceNormRegressor(alpha=0.1, tol=TOL), "y"),
    "two targets": (TraceNormRegressor(alpha=0.1, tol=TOL), "both"),
    "target mode": (TraceNormRegressor(alpha=0.1, tol=TOL, target_mode=True), "both"),
    "no intercept": (TraceNormRegressor(alpha=0.1, tol=TOL, fit_intercept=False, ridge=0.1), "y"),
    "mode weights": (TraceNormRegressor(alpha=0.1, tol=TOL, mode_weights=(1.0, 0.5, 0.0)), "y"),
    "latent": (TraceNormRegressor(alpha=0.1, tol=1e-9, penalty="latent", max_iter=5000), "y"),
    "scaled latent": (TraceNormRegressor(alpha=0.1, tol=1e-9, penalty="scaled_latent", max_iter=5000), "y"),
    "huber": (TraceNormRegressor(alpha=0.1, tol=TOL, loss="huber"), "y"),
    "apg": (TraceNormRegressor(alpha=0.1, tol=1e-9, solver="apg", max_iter=5000), "y"),
    "nuclear + l1": (TraceNormRegressor(alpha=0.1, tol=TOL, penalty=0.5 * Nuclear(0) + Nuclear(1) + 0.1 * L1()), "y"),
    "group": (TraceNormRegressor(alpha=0.1, tol=TOL, penalty=GroupL2(1)), "y"),
    "poisson": (TraceNormRegressor(alpha=0.02, tol=TOL, loss="poisson"), "counts"),
    "squared classes": (TraceNormClassifier(alpha=0.02, tol=TOL), "three"),
    "class mode": (TraceNormClassifier(alpha=0.02, tol=TOL, target_mode=True), "three"),
    "balanced": (TraceNormClassifier(alpha=0.02, tol=TOL, class_weight="balanced"), "three"),
    "class weights": (TraceNormClassifier(alpha=0.02, tol=TOL, class_weight={0: 2.0, 1: 0.5}), "three"),
    "log_loss": (TraceNormClassifier(alpha=0.02, tol=TOL, loss="log_loss"), "two"),
    "multinomial": (TraceNormClassifier(alpha=0.02, tol=TOL, loss="log_loss"), "three"),
    "squared hinge": (TraceNormClassifier(alpha=0.02, tol=TOL, loss="squared_hinge"), "three"),
    "regressor cv": (TraceNormRegressorCV(alphas=5, tol=TOL, mode_weights="auto"), "y"),
    "regressor cv huber": (TraceNormRegressorCV(alphas=4, tol=1e-8, loss="huber", cv=3), "y"),
    "classifier cv": (TraceNormClassifierCV(alphas=5, tol=TOL, target_mode=True), "three"),
    "classifier cv scored": (TraceNormClassifierCV(alphas=5, tol=TOL, scoring="roc_auc", ridges=(0.0, 0.1)), "two"),
    "classifier cv logistic": (TraceNormClassifierCV(alphas=4, tol=1e-8, loss="log_loss", cv=3), "two"),
    "regressor search": (TensorRegressor(alphas=5, tol=TOL, views=None, cv=3), "y"),
    "classifier search": (TensorClassifier(alphas=4, tol=TOL, views=None, cv=3), "three"),
}
CV = {name for name in MODELS if "cv" in name or "search" in name}


def fitted(name, lib=None, **data):
    model, target = MODELS[name]
    P = problem(**data)
    put = (lambda a: a) if lib is None else lib.put
    return type(model)(**model.get_params()).fit(put(P.X), put(getattr(P, target))), P.X, getattr(P, target)


@functools.cache
def by_numpy(name):
    return fitted(name)[0]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_library_gives_the_coefficients_of_numpy_in_its_own_arrays(name, lib):
    model, X, y = fitted(name, lib)
    expected = by_numpy(name)
    for attribute in ("coef_", "patterns_", "mode_ranks_"):
        found = getattr(model, attribute)
        assert lib.has(found), attribute
        np.testing.assert_allclose(to_numpy(found), getattr(expected, attribute), rtol=0, atol=1e-8)
    assert to_numpy(model.coef_).dtype == np.float64
    intercept = model.intercept_ if isinstance(model.intercept_, float) else to_numpy(model.intercept_)
    np.testing.assert_allclose(intercept, expected.intercept_, rtol=0, atol=1e-8)
    for (U, s), (V, t) in zip(model.mode_factors_, expected.mode_factors_, strict=True):
        assert lib.has(U)
        assert lib.has(s)
        kept = t > 1e-6 * t[0]  # directions of singular values that are zero are anyone's
        np.testing.assert_allclose(to_numpy(U)[:, kept], V[:, kept], atol=1e-6)
    for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(expected, method):
            found = getattr(model, method)(lib.put(X))
            assert lib.has(found), method
            # Paths in single precision give the held-out scores that probabilities of a search are calibrated by.
            close = 1e-5 if name in CV and "proba" in method else 1e-7
            np.testing.assert_allclose(to_numpy(found), getattr(expected, method)(X), rtol=close, atol=close)
    score = model.score(lib.put(X), lib.put(y))
    assert isinstance(score, float)
    assert score == pytest.approx(expected.score(X, y), abs=1e-8)
    assert model.dual_gap_ <= model.tol


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_fewer_samples_than_features_go_through_a_basis_in_every_library(loss, lib):
    P = problem(20, (5, 4, 3))
    model = TraceNormRegressor(alpha=0.1, tol=TOL, loss=loss).fit(lib.put(P.X), lib.put(P.y))
    assert not hasattr(model, "moments_")
    expected = TraceNormRegressor(alpha=0.1, tol=TOL, loss=loss).fit(P.X, P.y)
    np.testing.assert_allclose(to_numpy(model.coef_), expected.coef_, atol=1e-8)
    np.testing.assert_allclose(to_numpy(model.patterns_), expected.patterns_, atol=1e-8)


def test_samples_too_large_for_any_matrix_are_read_in_passes_in_every_library(lib, monkeypatch):
    monkeypatch.setattr("tracelearn.samples.execution.available_memory", lambda: 1000)
    monkeypatch.setattr("tracelearn.problems.forms._SMALL_MATRIX", 100)
    P = problem()
    found = TraceNormRegressor(alpha=0.3, tol=1e-7).fit(lib.put(P.X), lib.put(P.y))
    expected = TraceNormRegressor(alpha=0.3, tol=1e-7).fit(P.X, P.y)
    assert not hasattr(found, "moments_")
    np.testing.assert_allclose(to_numpy(found.coef_), expected.coef_, atol=1e-8)


@pytest.mark.parametrize("name", sorted(set(MODELS) - CV - {"class weights"}))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nothing_goes_through_numpy(name, lib, no_numpy):
    model, target = MODELS[name]
    P = problem()
    X, y = lib.put(P.X), lib.put(getattr(P, target))
    model = type(model)(**model.get_params()).set_params(keep_moments=name == "squared_error")
    model.fit(X, y, sample_weight=lib.put(np.arange(1.0, 121.0))).score(X, y)
    for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(model, method):
            assert lib.has(getattr(model, method)(X))
    assert model.mode_factors_
    if name == "squared_error":
        model.partial_fit(X, y)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_single_precision_stays_single_and_is_as_good_as_it_can_be(loss, lib):
    P = problem(1000)
    X, y = lib.put(P.X, np.float32), lib.put(P.three)
    model = TraceNormClassifier(alpha=0.02, loss=loss, keep_moments=loss == "squared_error").fit(X, y)
    expected = TraceNormClassifier(alpha=0.02, loss=loss).fit(P.X, P.three)
    for array in (model.coef_, model.patterns_, model.decision_function(X)):
        assert array.dtype == lib.xp.float32
    assert model.intercept_.dtype == lib.xp.float64  # K numbers, of which samples far from zero need all digits
    error = np.linalg.norm(to_numpy(model.coef_) - expected.coef_) / np.linalg.norm(expected.coef_)
    assert error < 1e-5
    assert model.dual_gap_ <= 1e-6
    if loss == "squared_error":
        assert model.moments_.gram.dtype == lib.xp.float64


def test_numpy_keeps_single_precision_in_predictions_too():
    P = problem()
    model = TraceNormClassifier().fit(P.X.astype(np.float32), P.three)
    assert model.decision_function(P.X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_narrow_numbers_are_widened(dtype, loss, lib):
    if not hasattr(lib.xp, dtype):
        assert "float" in dtype  # the standard has neither, PyTorch both
        return
    P = problem()
    whole = np.round(np.abs(P.X))
    whole = whole > 0 if dtype == "bool" else whole
    X = lib.xp.astype(lib.put(whole), getattr(lib.xp, dtype))
    model = TraceNormRegressor(alpha=0.1, tol=TOL, loss=loss).fit(X, lib.put(P.y))
    expected = TraceNormRegressor(alpha=0.1, tol=TOL, loss=loss).fit(whole.astype(np.float64), P.y)
    assert model.coef_.dtype == lib.xp.float64
    np.testing.assert_allclose(to_numpy(model.coef_), expected.coef_, atol=1e-8)
    np.testing.assert_allclose(to_numpy(model.predict(X)), expected.predict(whole.astype(np.float64)), atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_are_folded_block_by_block(dtype, lib, monkeypatch):
    P = problem(500)
    weight = np.linspace(0.0, 2.0, 500)
    sizes = []
    monkeypatch.setattr("tracelearn.moments.block_bytes", lambda X, here: sizes.append(X.shape) or 60 * 48 * 8)
    found = Moments.of(lib.put(1000.0 + P.X, dtype), lib.put(P.both), lib.put(weight))
    assert len(sizes) == 1
    exact = Moments.of((1000.0 + P.X).astype(dtype).astype(np.float64), P.both, weight)
    for name in ("x_mean", "y_mean", "gram", "cross", "target_sq"):
        assert getattr(found, name).dtype == lib.xp.float64
        expected = getattr(exact, name)
        np.testing.assert_allclose(
            to_numpy(getattr(found, name)), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max()
        )


def test_blocks_hold_a_bounded_number_of_bytes_on_every_device(lib, monkeypatch):
    sizes, add = [], Accumulator._add_block
    monkeypatch.setattr(Accumulator, "_add_block", lambda fold, x, y, w: sizes.append(x.shape[0]) or add(fold, x, y, w))
    assert block_bytes(lib.put(np.zeros(2)), 100) in (100, 512 << 20)
    for dtype, most in ((np.float64, (512 << 20) // 800), (np.float32, 8192)):  # some devices have no double precision
        sizes.clear()
        x_mean, y_mean, gram, cross, square = (
            lib.put(np.zeros(s), dtype) for s in ((100,), (1,), (100, 100), (100, 1), (1,))
        )
        fold = Accumulator(0.0, x_mean, y_mean, gram, cross, square)
        fold.add(lib.put(np.ones((30_000, 100)), dtype), lib.put(np.ones((30_000, 1)), dtype))
        assert sum(sizes) == 30_000
        assert max(sizes) <= most


def test_labels_of_numpy_stay_with_numpy(lib):
    P = problem()
    names = np.array(["low", "middle", "high"])[P.three]
    model = TraceNormClassifier(alpha=0.02, loss="log_loss").fit(lib.put(P.X), names, sample_weight=np.ones(120))
    assert model.classes_.tolist() == ["high", "low", "middle"]
    found = model.predict(lib.put(P.X))
    assert isinstance(found, np.ndarray)
    assert lib.has(model.coef_)
    assert lib.has(model.predict_proba(lib.put(P.X)))
    assert model.score(lib.put(P.X), names) == np.mean(found == names)
    balanced = TraceNormClassifier(alpha=0.02, class_weight="balanced").fit(lib.put(P.X), names)
    assert lib.has(balanced.coef_)


def test_targets_of_numpy_are_moved_to_the_samples(lib):
    P = problem()
    model = TraceNormRegressor(alpha=0.1).fit(lib.put(P.X), P.y.tolist(), sample_weight=np.ones(120))
    assert lib.has(model.predict(lib.put(P.X)))
    assert model.score(lib.put(P.X), P.y) == pytest.approx(TraceNormRegressor(alpha=0.1).fit(P.X, P.y).score(P.X, P.y))


def test_labels_of_another_library_go_where_the_samples_are(lib):
    P = problem()
    model = TraceNormClassifier().fit(P.X, lib.put(P.three))
    assert isinstance(model.coef_, np.ndarray)
    assert isinstance(model.classes_, np.ndarray)
    assert isinstance(model.predict(P.X), np.ndarray)


def test_booleans_are_labels(lib):
    P = problem()
    model = TraceNormClassifier().fit(lib.put(P.X), lib.put(P.y > 0))
    assert model.predict(lib.put(P.X)).dtype == lib.xp.bool
    assert to_numpy(unique_values(lib.put([True, False, True]))).tolist() == [False, True]


def test_batches_end_with_the_model_of_all_samples(lib):
    P = problem()
    model = TraceNormClassifier(alpha=0.02, tol=TOL)
    for part in (slice(0, 50), slice(50, 120)):
        model.partial_fit(lib.put(P.X[part]), lib.put(P.three[part]), classes=[0, 1, 2])
    whole = TraceNormClassifier(alpha=0.02, tol=TOL).fit(P.X, P.three)
    np.testing.assert_allclose(to_numpy(model.coef_), whole.coef_, atol=1e-6)
    assert lib.has(model.moments_.gram)
    with pytest.raises(ValueError, match=r"Expected the classes of the first call, \[0, 1, 2\], got \[0, 1\]"):
        model.partial_fit(lib.put(P.X), lib.put(P.three), classes=[0, 1])


def test_a_path_stays_in_its_library(lib):
    P = problem()
    path = TraceNormRegressorCV(alphas=[0.3, 0.1], cv=2, tol=TOL).fit(lib.put(P.X), lib.put(P.y)).coef_path_
    assert lib.has(path)
    expected = TraceNormRegressorCV(alphas=[0.3, 0.1], cv=2, tol=TOL).fit(P.X, P.y).coef_path_
    np.testing.assert_allclose(to_numpy(path), expected, atol=1e-8)


def test_a_warm_start_from_another_library_is_a_cold_one(lib):
    P = problem()
    model = TraceNormRegressor(alpha=0.1, tol=TOL, warm_start=True).fit(P.X, P.y)
    first = model.n_iter_
    model.fit(lib.put(P.X), lib.put(P.y))
    assert lib.has(model.coef_)
    assert model.n_iter_ == first
    assert model.fit(lib.put(P.X), lib.put(P.y)).n_iter_ < first


def sentence(call, *args, **options):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentences are compared
        call(*args, **options)
    return str(caught.value)


def test_refusals_are_the_sentences_of_numpy(lib):
    P = problem()
    broken, endless, target = P.X.copy(), P.X.copy(), P.y.copy()
    broken[3, 1, 2, 0], endless[5, 0, 0, 1], target[7] = np.nan, -np.inf, np.nan
    huge = P.X * 1e60
    cases = [
        (broken, P.y),
        (endless, P.y),
        (P.X, target),
        (P.X, P.y[:-1]),
        (P.X, P.X),
        (huge, P.y),
        (P.X[0, 0, 0], P.y),
        (P.X[:0], P.y[:0]),
    ]
    for X, y in cases:
        expected = sentence(TraceNormRegressor().fit, X, y)
        assert expected.startswith("Expected")
        assert sentence(TraceNormRegressor().fit, lib.put(X), lib.put(y)) == expected
    one, strange = np.zeros(120, dtype=np.int64), P.three.copy()
    strange[4] = 9
    assert sentence(TraceNormClassifier().fit, lib.put(P.X), lib.put(one)) == sentence(
        TraceNormClassifier().fit, P.X, one
    )
    options = {"classes": [0, 1, 2]}
    assert sentence(TraceNormClassifier().partial_fit, lib.put(P.X), lib.put(strange), **options) == sentence(
        TraceNormClassifier().partial_fit, P.X, strange, **options
    )
    for weights in (np.zeros(120), np.full(120, -1.0), np.ones(7), np.full(120, np.nan)):
        assert sentence(TraceNormRegressor().fit, lib.put(P.X), lib.put(P.y), lib.put(weights)).startswith("Expected")
    assert "continuous" in sentence(TraceNormClassifier().fit, lib.put(P.X), lib.put(P.y))
    assert "Complex data not supported" in sentence(TraceNormRegressor().fit, lib.put(P.X + 1j), lib.put(P.y))
    model = TraceNormRegressor().fit(lib.put(P.X), lib.put(P.y))
    turned = np.moveaxis(P.X, 1, 3)
    expected = sentence(TraceNormRegressor().fit(P.X, P.y).predict, turned)
    assert sentence(model.predict, lib.put(turned)) == expected


def test_samples_from_elsewhere_than_those_of_fit_are_refused(lib):
    P = problem()
    there, here = (TraceNormRegressor(keep_moments=True).fit(X, P.y) for X in (lib.put(P.X), P.X))
    assert sentence(there.predict, P.X).startswith(
        f"Expected X of {place(lib.put([0.0]))} as in fit, got X of numpy on cpu"
    )
    assert sentence(there.partial_fit, P.X, P.y).startswith("Expected X of")
    assert sentence(here.predict, lib.put(P.X)).startswith("Expected X of numpy on cpu as in fit, got X of")
    assert "TraceNormRegressor.predict()" in sentence(here.predict, lib.put(P.X))
    other = array_api_strict.asarray(P.X, device=array_api_strict.Device("device2"))
    assert sentence(there.predict, other).startswith("Expected X of")


def test_a_model_is_fitted_again_to_samples_from_elsewhere(lib, tmp_path):
    P = problem()
    model, here = TraceNormRegressor().fit(lib.put(P.X), P.y), TraceNormRegressor().fit(P.X, P.y)
    np.savez(tmp_path / "epochs.npz", X=P.X, y=P.y)
    model.fit(tmp_path / "epochs.npz")
    np.testing.assert_allclose(model.coef_, here.coef_, rtol=0, atol=1e-6)
    there = TraceNormRegressor(keep_moments=True).fit(lib.put(P.X), P.y)
    for call in (there.predict, there.partial_fit):
        assert sentence(call, tmp_path / "epochs.npz").startswith(f"Expected X of {place(lib.put([0.0]))} as in fit")


def test_arrays_are_moved_and_never_changed(lib):
    a = np.arange(3.0)
    a.flags.writeable = False
    there = move_to(a, lib.put([1.0]), widest(lib.put([1.0]))["dtype"])
    assert lib.has(there)
    assert move_to(there, there) is there
    np.testing.assert_array_equal(move_to(there, a), a)
    assert not is_non_numpy([1.0])
    assert not is_non_numpy(np.float64(1.0))


def test_gradients_are_neither_kept_nor_in_the_way():
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    P = problem()
    X = torch.asarray(P.X).requires_grad_()
    model = TraceNormRegressor().fit(X, torch.asarray(P.y).requires_grad_())
    assert not model.coef_.requires_grad
    assert not model.predict(X).requires_grad


SUBPROCESS = """
import numpy as np
import sklearn
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_array_api_input

from tracelearn import TensorClassifier, TensorRegressor, TraceNormClassifier, TraceNormClassifierCV
from tracelearn import TraceNormRegressor, TraceNormRegressorCV
from tracelearn.arrays.array_api import place

places = {places}
models = [
    TraceNormRegressor(alpha=0.1), TraceNormClassifier(alpha=0.01), TraceNormClassifier(alpha=0.01, loss="log_loss"),
    TensorRegressor(alphas=3, cv=2, views=None), TensorClassifier(alphas=3, cv=2, views=None),
    TraceNormRegressorCV(alphas=3, cv=2), TraceNormClassifierCV(alphas=3, cv=2),
]
for model in models:
    for library, device, dtype in places:
        # Paths that choose are solved in single precision, whose rounding differs from library to library.
        for values in (False,) if hasattr(model, "cv") else (False, True):
            for weights in (False, True):
                check_array_api_input(
                    type(model).__name__, model, library, device_name=device, dtype_name=dtype, check_values=values,
                    check_sample_weight=weights,
                )
if any(library == "torch" for library, _, _ in places):
    import torch

    X = torch.asarray(np.random.default_rng(0).standard_normal((60, 12)))
    y = (X[:, 0] > 0).to(torch.int64)
    with sklearn.config_context(array_api_dispatch=True):
        pipe = make_pipeline(StandardScaler(), TraceNormClassifier(alpha=0.01, tensor_shape=(4, 3))).fit(X, y)
        assert place(pipe.predict(X)) == "torch on cpu"
        inside = cross_val_score(pipe, X, y, cv=3), cross_val_score(pipe[-1], X, y, cv=3)
    plain = make_pipeline(StandardScaler(), TraceNormClassifier(alpha=0.01, tensor_shape=(4, 3)))
    expected = cross_val_score(plain, X.numpy(), y.numpy(), cv=3), cross_val_score(plain[-1], X.numpy(), y.numpy(), cv=3)
    np.testing.assert_allclose(inside, expected)
print("passed")
"""


def test_scikit_learns_own_checks_pass_with_dispatch_on():
    places = [("array_api_strict", "CPU_DEVICE", "float64"), ("array_api_strict", "device1", "float32")]
    if importlib.util.find_spec("torch") is not None:
        places += [("torch", "cpu", "float64"), ("torch", "cpu", "float32")]
    # SciPy reads the variable when it is imported, so this takes a process of its own.
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1"}
    code = SUBPROCESS.replace("{places}", repr(places))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip().endswith("passed"), done.stderr[-3000:]


def test_the_estimators_say_that_they_take_arrays_of_any_library():
    searches = (TensorRegressor(), TensorClassifier(), TraceNormRegressorCV(), TraceNormClassifierCV())
    for model in (TraceNormRegressor(), TraceNormClassifier(), *searches):
        assert model.__sklearn_tags__().array_api_support


def test_a_model_of_any_library_is_saved_with_arrays_of_numpy(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4, 3))
    labels = (X[:, 0, 0] > 0).astype(int)
    for model, y in (
        (TraceNormRegressor(), X[:, 0, 0]),
        (TraceNormClassifier(), labels),
        (TensorRegressor(alphas=3, cv=2, views=None), X[:, 0, 0]),
        (TraceNormRegressorCV(alphas=3, cv=2), X[:, 0, 0]),
    ):
        fitted = model.fit(torch.asarray(X), torch.asarray(y))
        tracelearn.save(fitted, tmp_path / "model.tracelearn")
        again = tracelearn.load(tmp_path / "model.tracelearn")
        assert type(again.coef_) is np.ndarray
        assert_allclose(again.coef_, fitted.coef_.numpy(), rtol=1e-12, atol=1e-12 * float(abs(fitted.coef_).max()))
        assert_allclose(again.predict(X), fitted.predict(torch.asarray(X)).numpy(), rtol=1e-10)
        assert isinstance(fitted.coef_, torch.Tensor)  # the model itself stays where it is
        if hasattr(again, "moments_"):
            assert type(again.partial_fit(X, y).coef_) is np.ndarray
