"""Products of samples in single precision against double: ``python -m benchmarks.single``, on a GPU with ``--device cuda``.

Both in turns in one process: processor time of NumPy, or the wall clock of a GPU. Medians.

Prediction, written before the first measurement. One thread of a processor: a gram in single precision takes 0.55 of the time,
and proof and patterns three passes of 25 ms each for 2e7 numbers; so 20,000 of 10x10x10 go from 0.55 to 0.42 s, and half of the
features gain nothing. Newton's models need nothing else, so a logistic fit, two thirds of which are grams, gains a quarter.
An H200: TF32 is 3.3 to 4 times as fast as double, the second model costs 10 ms; so 200,000 of 10x10x10 gain nothing, and
20,000 of 32x32x32 go from 1.14 to 0.85 s.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tracelearn import TraceNormClassifier, TraceNormRegressor
from tracelearn.problems import batch, sample_loss

# Samples, shape, loss and gap.
Case = tuple[int, tuple[int, ...], str, float]
PROCESSOR: list[Case] = [
    (20_000, (8, 8, 8), "squared_error", 1e-6),
    (20_000, (10, 10, 10), "squared_error", 1e-6),
    (10_000, (16, 16, 8), "squared_error", 1e-6),
    (20_000, (8, 8, 4), "log_loss", 1e-6),
    (20_000, (10, 10, 10), "log_loss", 1e-6),
]
GPU: list[Case] = [
    (200_000, (10, 10, 10), "squared_error", 1e-6),
    (100_000, (16, 16, 8), "squared_error", 1e-6),
    (100_000, (16, 16, 16), "squared_error", 1e-6),
    (50_000, (20, 20, 20), "squared_error", 1e-6),
    (20_000, (32, 32, 32), "squared_error", 1e-4),
    (50_000, (10, 10, 10), "log_loss", 1e-6),
    (50_000, (16, 16, 8), "log_loss", 1e-6),
    (20_000, (16, 16, 16), "log_loss", 1e-6),
]


def drawn(n: int, shape: tuple[int, ...], device: str) -> tuple[Any, Any]:
    """Draw Gaussian samples in single precision, and scores of weights of rank two in noise."""
    rng = np.random.default_rng(0)
    W = sum(np.einsum("i,j,k->ijk", *(rng.standard_normal(size) for size in shape)) for _ in range(2))
    if device == "cpu":
        X = rng.standard_normal((n, *shape), dtype=np.float32)
        y = X.reshape(n, -1) @ W.ravel()
        return X, y + 0.5 * y.std() * rng.standard_normal(n)
    import torch

    generator = torch.Generator(device=device).manual_seed(0)
    X = torch.randn((n, *shape), generator=generator, device=device)
    y = X.reshape(n, -1) @ torch.asarray(W.ravel(), dtype=X.dtype, device=device)
    return X, y + 0.5 * y.std() * torch.randn(n, generator=generator, device=device)


def timed(run: Callable[[], Any], device: str) -> tuple[float, Any]:
    """Return seconds and what came of it."""
    if device == "cpu":
        began = time.process_time()
        found = run()
        return time.process_time() - began, found
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    found = run()
    torch.cuda.synchronize()
    return time.perf_counter() - began, found


def compared(case: Case, device: str, repeats: int) -> dict[str, float]:
    """Fit in turns; return the median seconds of each precision."""
    n, shape, loss, tol = case
    X, y = drawn(n, shape, device)
    make = TraceNormRegressor if loss == "squared_error" else TraceNormClassifier
    y = y if loss == "squared_error" else y > 0
    times: dict[str, list[float]] = {"double": [], "single": []}
    for _ in range(repeats + 1):  # the first is to warm up
        for name, least in (("double", 1 << 40), ("single", 1)):
            batch._LEAST_FEATURES = batch._LEAST_ON_GPU = sample_loss._MANY = least
            seconds, found = timed(lambda: make(loss=loss, tol=tol).fit(X, y), device)
            assert found.dual_gap_ <= tol, found.dual_gap_
            times[name].append(seconds)
    return {name: statistics.median(own[1:]) for name, own in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print("| samples | loss | double | single |\n|---|---|---:|---:|")
    for case in PROCESSOR if options.device == "cpu" else GPU:
        found = compared(case, options.device, options.repeats)
        size = "×".join(map(str, case[1]))
        print(f"| {case[0]:,} of {size} | {case[2]} | {found['double']:.3f} s | {found['single']:.3f} s |", flush=True)


if __name__ == "__main__":
    main()
