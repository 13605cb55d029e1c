"""PyTorch on GPUs: the kernel in Triton's interpreter, and recorded fits where there is a GPU."""

import importlib.util
import os
import subprocess
import sys

import pytest

KERNEL = """
import torch
from tracelearn.arrays.cuda import eigh

torch.manual_seed(0)
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
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", KERNEL], env=environment, check=True)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
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
