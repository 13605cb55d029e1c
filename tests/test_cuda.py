"""PyTorch on GPUs: the kernel, in Triton's interpreter where there is no GPU, and what is recorded."""

import importlib.util
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import GroupKFold

from tracelearn import TensorClassifier, TensorRegressor

KERNEL = """
import torch
from tracelearn.arrays.cuda import eigh

torch.manual_seed(0)
torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
for m in (1, 2, 3, 5, 10, 17):
    M = torch.randn(4, m, 3 * m, dtype=torch.float64)
    M[1, 1:] = M[1, :1] * torch.arange(1, m)[:, None] + 1e-9 * M[1, 1:]  # nearly of rank one
    M[2] *= torch.logspace(0, -8, m)[:, None]
    M[3] = 0.0
    G = M @ M.mT
    values, Q = eigh(G)
    torch.testing.assert_close((Q * values[:, None, :]) @ Q.mT, G, rtol=0, atol=1e-13 * float(G.abs().max()))
    torch.testing.assert_close(Q.mT @ Q, torch.eye(m, dtype=G.dtype).expand(4, m, m), rtol=0, atol=1e-13)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None,
    reason="needs PyTorch and Triton, which comes with PyTorch for GPUs",
)
def test_the_kernel_decomposes_symmetric_matrices_of_every_size():
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    environment = {**os.environ, "TRITON_INTERPRET": "0" if torch.cuda.is_available() else "1"}
    subprocess.run([sys.executable, "-c", KERNEL], env=environment, check=True)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_on_a_gpu_a_fit_is_that_of_the_processor(loss):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    from tracelearn import TraceNormClassifier
    from tracelearn.datasets import make_low_rank_regression

    X, y, _ = make_low_rank_regression(400, (6, 5, 4), rank=1, random_state=0)
    y = (y > 0).astype(int)
    model = TraceNormClassifier(alpha=0.02, loss=loss, tol=1e-9)
    exact = model.fit(X, y).coef_
    found = model.fit(torch.asarray(X, device="cuda"), torch.asarray(y, device="cuda"))
    assert found.dual_gap_ <= 1e-9
    torch.testing.assert_close(found.coef_.cpu(), torch.asarray(exact), rtol=0, atol=1e-5 * abs(exact).max())


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_on_a_gpu_products_in_tf32_lead_to_the_same_answer(loss, monkeypatch):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    from tracelearn import TraceNormClassifier
    from tracelearn.arrays import cuda
    from tracelearn.datasets import make_low_rank_regression
    from tracelearn.problems import batch, sample_loss

    monkeypatch.setattr(batch, "_LEAST_FEATURES", 1)
    monkeypatch.setattr(batch, "_LEAST_ON_GPU", 1)
    monkeypatch.setattr(sample_loss, "_MANY", 1)
    seen, gram = [], cuda.gram
    monkeypatch.setattr(cuda, "gram", lambda rows: seen.append(rows.dtype) or gram(rows))
    X, y, _ = make_low_rank_regression(2000, (6, 5, 4), rank=1, random_state=0)
    X, y = torch.asarray(X, dtype=torch.float32), (y > 0).astype(int)
    model = TraceNormClassifier(alpha=0.02, loss=loss, tol=1e-9)
    found = model.fit(X.to("cuda"), torch.asarray(y, device="cuda")).coef_
    assert model.dual_gap_ <= 1e-9
    assert seen[0] == torch.float32
    exact = model.fit(X.double().numpy(), y).coef_
    torch.testing.assert_close(found.double().cpu(), torch.asarray(exact), rtol=0, atol=1e-4 * abs(exact).max())


def _problems(torch, spectral):
    from tracelearn import Moments
    from tracelearn.penalties import as_penalty
    from tracelearn.problems.batch import Problems
    from tracelearn.problems.datafits import Squares

    torch.manual_seed(0)
    X, y = torch.randn(50, 4, 3, 2, dtype=torch.float64), torch.randn(50, 2, dtype=torch.float64)
    fit = Squares.of(Moments.of(X, y), spectral=spectral)
    return Problems(
        fit, as_penalty("overlapped", (4, 3, 2)), torch.full_like(fit.target, 0.05), (4, 3, 2), fit.at_zero.value
    )


@pytest.mark.parametrize("spectral", [False, True])
def test_what_is_recorded_depends_on_its_arguments_alone(spectral):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    from tracelearn.arrays.cuda import _apart, _together
    from tracelearn.arrays.linalg import _conjugate
    from tracelearn.losses import Logistic, _pulls
    from tracelearn.problems.batch import certify
    from tracelearn.problems.operators import Alike, _in_common
    from tracelearn.problems.sample_loss import _conjugates, _forces
    from tracelearn.search.search import _curved, _evaluated, _factor_step, _Softmax
    from tracelearn.solvers.admm import _balanced, _first_rho, _iterated

    problems = _problems(torch, spectral)
    rho = torch.ones_like(problems.alpha)
    begun = problems.begin(None)
    W, split = begun.W, begun.split
    iteration = (problems, problems.fit.updater(rho), rho, split, W, split)
    before, W, split = _iterated(*iteration)
    gradient = problems.fit.at_zero.gradient
    Y, z, share = torch.sign(torch.randn(20, 2)), torch.randn(20, 2), torch.full((20,), 0.05)
    D, true = torch.randn(3, 2, 4), (torch.rand(2, 20) > 0.5).to(torch.float32)
    softmax = _Softmax(
        torch.randn(20, 4), torch.randn(3, 2, 20), true, torch.full((3, 1, 20), 0.05), torch.ones(3, 1, 4)
    )
    _, P, force, diagonal, weights = _evaluated(softmax, D)
    none = torch.zeros_like(force[:, 0])
    solve = Alike.of(torch.eye(4).expand(3, 4, 4) + 0.1 * torch.ones(3, 1, 1)).solver(torch.ones(6))
    calls = {
        _conjugate: (partial(_curved, softmax, P, weights), none, diagonal, none, 0 * force, force, force, none + 1.0),
        _evaluated: (softmax, D),
        _factor_step: (torch.randn(1, 2, 20), true[0], softmax.shares[:, 0, :], none, none),
        _in_common: (*solve.args, torch.randn(6, 4)),
        type(problems.penalty).value: (problems.penalty, W, split),
        type(problems.penalty).dual_norm: (problems.penalty, gradient.reshape(W.shape), split, torch.zeros_like(rho)),
        _pulls: (Logistic(), z[0], Y, z, share),
        _forces: (Logistic(), z[0], Y, share, z),
        _conjugates: (Logistic(), z[0], share[:2], Y, share, z),
        _iterated: iteration,
        certify: (problems, W, split),
        type(problems.penalty).tidy: (problems.penalty, W, split),
        _first_rho: (problems, rho),
        _balanced: (not spectral, problems, rho, before, W, split),
    }
    for function, given in calls.items():
        found, arrays = [], []
        structure = _apart(given, arrays)
        _apart(function(*given), found)
        found = [array.clone() for array in found]
        copies = [array.clone() for array in arrays]
        for array in {array.data_ptr(): array for array in arrays}.values():
            array.fill_(torch.nan)  # nothing but the copies may be looked at
        again = []
        _apart(function(*_together(structure, iter(copies))), again)
        torch.testing.assert_close(again, found)
        for array, copy in zip(arrays, copies, strict=True):
            array.copy_(copy)
        assert hash(structure) == hash(_apart(given, []))


def test_what_is_no_array_and_no_constant_is_not_recorded():
    from tracelearn.arrays.cuda import _apart, _UnfitError

    inside = 1.0
    for value in ([1.0], {"a": 1}, lambda: inside, "text".upper):
        with pytest.raises(_UnfitError):
            _apart((value,), [])


def test_elsewhere_a_call_is_a_call_and_repeats_what_is_carried():
    import numpy as np

    from tracelearn.arrays.linalg import replayed

    found = replayed(np.ones(2), lambda step, x: (x + step,), 3.0, np.ones(2), carried=1, count=4)
    np.testing.assert_array_equal(found[0], [13.0, 13.0])


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Let searches batch what they do as on a GPU; nothing is recorded."""
    from tracelearn.problems import datafits
    from tracelearn.search import folds, search

    for module in (datafits, folds, search):
        monkeypatch.setattr(module, "is_on_gpu", lambda X: True)
    monkeypatch.setattr(datafits, "_WAITS", 8)


SEARCHES = {  # samples, parameters, shares of the groups that are held out
    "classes": (600, {}, None),
    "fewer samples than features": (40, {"cv": 4}, None),
    "numbers": (600, {"numbers": True}, None),
    "a scorer": (200, {"scoring": "balanced_accuracy"}, None),
    "folds of several sizes": (200, {}, (0.5, 0.25, 0.25)),
    "folds of nearly one size": (200, {}, (0.4, 0.32, 0.28)),
    "such folds of few samples": (40, {}, (0.4, 0.32, 0.28)),
}


@pytest.mark.parametrize("case", SEARCHES)
def test_a_search_that_is_batched_as_on_a_gpu_is_the_same(case, request):
    n, options, shares = SEARCHES[case]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5, 4, 3))
    signal = X[:, 0, 0, :] @ [[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.2, 0.0, -1.0]] + 0.5 * rng.normal(size=(n, 3))
    numbers = options.get("numbers", False)
    chosen = {name: value for name, value in options.items() if name != "numbers"}
    y, make = (signal, TensorRegressor) if numbers else (np.argmax(signal, axis=1), TensorClassifier)
    given = {}
    if shares is not None:
        chosen["cv"], given["groups"] = (
            GroupKFold(3),
            np.searchsorted(np.cumsum(shares), np.arange(n) / n, side="right"),
        )
    alone = make(**chosen).fit(X, y, **given)
    request.getfixturevalue("as_on_a_gpu")
    found = make(**chosen).fit(X, y, **given)
    assert found.alpha_ == pytest.approx(alone.alpha_)
    assert found.view_ == alone.view_
    assert_allclose(found.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"], atol=2 / n)
    assert_allclose(found.coef_, alone.coef_, rtol=0, atol=1e-4 * np.max(np.abs(alone.coef_)))
    if not numbers:
        assert_allclose(found.predict_proba(X), alone.predict_proba(X), rtol=0, atol=1e-3)
