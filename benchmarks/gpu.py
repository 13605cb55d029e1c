"""What a fit costs on a GPU: run ``python benchmarks/gpu.py --out gpu.json`` on a machine that has one.

Needs PyTorch, NumPy, SciPy, scikit-learn and the sources beside this file, nothing else of the benchmarks. ``--device cpu
--quick`` tries it anywhere.

Prediction, written before the first measurement, for 200,000 tensors 10x10x10 on an H200 (peak 67 TFLOP/s in float64 and
in float32 without TF32, 4.8 TB/s):

- gram: 2 n p^2 = 4e11 operations, so at least 6.0 ms in either precision; 7 to 8 ms are expected.
- moments: beside the gram, the samples are read or written about seven times (sum that finds NaN, centring, mean, rest):
  7 x 1.6 GB / 4.8 TB/s = 2.3 ms in float64, half of it in float32. Together about 10 ms.
- factorisation: Cholesky and triangular inverse of 1000x1000 are 1e9 operations and wait for themselves: 2 to 5 ms for each
  step size, of which a fit tries one to three.
- iterations: an iteration is about 45 kernels of 5 us and one batched eigendecomposition of three 10x10 grams, 0.2 to 0.5 ms:
  0.5 to 0.8 ms, 35 of them 15 to 30 ms. Seven certificates of 1 to 2 ms, and one or two exact-rank projections with
  decompositions of 10x100 matrices, 3 to 10 ms each.

In sum 40 to 70 ms; the floor from operations and bytes alone is 9 ms. The goal is 100 ms. The CPU needs 2 to 4 s per core for
the gram alone (4e11 operations at 100 to 200 GFLOP/s a socket share).
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch

if not hasattr(typing, "Self"):  # Python 3.10, which the package itself does not promise
    typing.Self = typing.Any
try:
    import array_api_compat
except ImportError:  # scikit-learn brings a copy of its own
    import sklearn.externals.array_api_compat as array_api_compat

    sys.modules["array_api_compat"] = array_api_compat
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tracelearn import Moments, TraceNormClassifier, TraceNormRegressor
from tracelearn.estimators.base import reader_of
from tracelearn.penalties import as_penalty
from tracelearn.problems.problem import Problems
from tracelearn.problems.squares import Squares
from tracelearn.samples.reading import read
from tracelearn.samples.samples import Samples
from tracelearn.samples.source import as_source
from tracelearn.solvers import admm

SHAPE = (10, 10, 10)
ALPHA = 0.01  # a thousandth of the alpha from which all weights are zero
TOL = 1e-6
DTYPES = {"float64": torch.float64, "float32": torch.float32}


def rank_tensors(n: int, seed: int, device: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw the paper's rank identification problem on the device: sums of 1 to 4 outer products of uniform vectors."""
    generator = torch.Generator(device=device).manual_seed(seed)
    options = {"generator": generator, "device": device}
    rank = torch.randint(1, 5, (n,), **options)
    X = torch.zeros((n, *SHAPE), dtype=dtype, device=device)
    for component in range(4):
        a, b, c = (torch.rand((n, size), dtype=dtype, **options) for size in SHAPE)
        a *= (component < rank)[:, None]
        X += (a[:, :, None] * b[:, None, :])[:, :, :, None] * c[:, None, None, :]
    return X, rank


def ranked(n: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    X, rank = rank_tensors(n, 0, device, torch.float64)
    return X, rank.to(X.dtype)


def synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def median_time(make: Callable[[int], Any], run: Callable[[Any], Any], device: str, repeats: int) -> tuple[float, Any]:
    """Time ``run`` on fresh inputs, one warm-up first; return the median in seconds and what the last run returned."""
    times, result = [], None
    for repeat in range(repeats + 1):
        data = make(repeat)
        synchronise(device)
        began = time.perf_counter()
        result = run(data)
        synchronise(device)
        times.append(time.perf_counter() - began)
        del data
    return statistics.median(times[1:]), result


def machine(device: str) -> dict[str, str]:
    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor() or platform.machine()
    versions = {m.__name__: m.__version__ for m in (torch, np, sklearn, array_api_compat)}
    return {
        "device": name,
        "python": platform.python_version(),
        "cuda": str(torch.version.cuda),
        "threads": str(torch.get_num_threads()),
        **versions,
    }


def gram(n: int, dtype: str, device: str, repeats: int) -> dict[str, float]:
    """The bare product that no fit can do without."""

    def make(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.randn((n, 1000), dtype=DTYPES[dtype], device=device)

    seconds, _ = median_time(make, lambda X: X.T @ X, device, repeats)
    return {"seconds": seconds, "tflops": 2e-12 * n * 1e6 / seconds}


def fit(model: Any, n: int, dtype: str, device: str, repeats: int, library: str = "torch") -> dict[str, Any]:
    """Fit samples that are on the device already; the gap is asserted."""

    def make(seed: int) -> tuple[Any, Any]:
        X, rank = rank_tensors(n, seed, device, DTYPES[dtype])
        y = rank if isinstance(model, TraceNormClassifier) else rank.to(X.dtype)
        y = (rank > 2).to(torch.int64) if getattr(model, "loss", "") == "log_loss" else y
        return (X.numpy(), y.numpy()) if library == "numpy" else (X, y)

    seconds, fitted = median_time(make, lambda data: sklearn.clone(model).fit(*data), device, repeats)
    assert fitted.dual_gap_ <= TOL, fitted.dual_gap_
    return {"seconds": seconds, "gap": fitted.dual_gap_, "iterations": fitted.n_iter_}


def phases(n: int, dtype: str, device: str, repeats: int) -> dict[str, float]:
    """The parts of a fit of the regressor, each timed alone."""
    model = TraceNormRegressor(alpha=ALPHA, tol=TOL)

    def data(seed: int) -> Any:
        X, rank = rank_tensors(n, seed, device, DTYPES[dtype])
        return X, rank.to(X.dtype)

    def moments(seed: int) -> Moments:
        return Moments.of(*data(seed))

    def solve(fit: Squares, **options: Any) -> Any:
        alpha = torch.full_like(fit.target, ALPHA)
        problems = Problems(fit, as_penalty("overlapped", SHAPE), alpha, SHAPE, fit.at_zero.value)
        return admm(problems, **{"tol": TOL, **options})

    def factored(seed: int) -> Squares:
        return Squares.of(moments(seed))

    def factor(fit: Squares) -> Any:
        return fit.operator.solver(torch.ones_like(fit.target))(fit.cross)

    def samples_of(data: Any) -> Samples:
        return read(as_source(*data), reader_of(model))[1]

    reading, _ = median_time(data, samples_of, device, repeats)
    summing, _ = median_time(lambda seed: samples_of(data(seed)), lambda samples: samples.moments(), device, repeats)
    factoring, _ = median_time(factored, factor, device, repeats)
    solving, solution = median_time(factored, solve, device, repeats)
    fewer, _ = median_time(factored, lambda fit: solve(fit, tol=1e-300, max_iter=4), device, repeats)
    return {
        "reading and checks": reading,
        "moments": summing,
        "one factorisation": factoring,
        "solver, all": solving,
        "solver, first 4 iterations": fewer,
        "iterations": solution.n_iter,
    }


def gaussian_tensors(n: int, seed: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a well-conditioned problem: Gaussian samples, weights of rank one, noise of half the signal."""
    generator = torch.Generator(device=device).manual_seed(seed)
    X = torch.randn((n, *SHAPE), generator=generator, dtype=torch.float64, device=device)
    a, b, c = (torch.randn(size, generator=generator, dtype=torch.float64, device=device) for size in SHAPE)
    signal = torch.einsum("nijk,i,j,k->n", X, a, b, c)
    return X, signal + 0.5 * signal.std() * torch.randn(n, generator=generator, dtype=X.dtype, device=device)


def agreement(X: torch.Tensor, y: torch.Tensor, alpha: float) -> dict[str, float]:
    """Relative distance of the coefficients from those of NumPy in float64, all solved to a gap of 1e-12."""
    tight = TraceNormRegressor(alpha=alpha, tol=1e-12, max_iter=10_000)
    exact = sklearn.clone(tight).fit(X.cpu().numpy(), y.cpu().numpy()).coef_

    def error(samples: torch.Tensor) -> float:
        coef = sklearn.clone(tight).fit(samples, y).coef_
        return float(np.linalg.norm(coef.double().cpu().numpy() - exact) / np.linalg.norm(exact))

    single = X.to(torch.float32)
    errors = {"float64": error(X), "float32": error(single)}
    return {**errors, "float64 of samples rounded to float32": error(single.to(torch.float64))}


def large(n: int, shape: tuple[int, ...], device: str, repeats: int) -> dict[str, Any]:
    """Fit many or large samples in float32, weights of rank two in noise, to a gap of 1e-4; the most memory of any repeat."""

    def make(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator(device=device).manual_seed(seed)
        options: dict[str, Any] = {"generator": generator, "device": device}
        X = torch.randn((n, *shape), **options)
        pairs = [[torch.randn(size, **options) for size in shape] for _ in range(2)]
        W = sum(torch.einsum("i,j,k->ijk", *vectors) for vectors in pairs)
        scores = X.reshape(n, -1) @ W.reshape(-1)
        return X, scores / scores.std() + 0.3 * torch.randn(n, **options)

    model = TraceNormRegressor(tol=1e-4)  # alpha is its default, 3 % of the alpha from which all weights are zero
    seconds, fitted = median_time(make, lambda data: sklearn.clone(model).fit(*data), device, repeats)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.startswith("cuda") else 0.0
    return {"seconds": seconds, "gap": fitted.dual_gap_, "iterations": fitted.n_iter_, "peak GiB": peak}


def table(results: dict[str, Any]) -> str:
    lines = ["| what | median |", "|---|---:|"]
    for name, entry in results.items():
        if isinstance(entry, dict) and "seconds" in entry:
            more = f", gap {entry['gap']:.1e}, {entry['iterations']} iterations" if "gap" in entry else ""
            more += f", {entry['tflops']:.1f} TFLOP/s" if "tflops" in entry else ""
            lines.append(f"| {name}{more} | {1e3 * entry['seconds']:.1f} ms |")
        elif name.startswith("phases"):
            lines += [
                f"| {name}: {measure} | {f'{1e3 * value:.1f} ms' if measure != 'iterations' else value} |"
                for measure, value in entry.items()
            ]
        elif name.startswith("agreement"):
            lines += [f"| {name}: {measure} | {value:.1e} |" for measure, value in entry.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=None, help="where the JSON goes")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the samples")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="measure only what has this in its name")
    options = parser.parse_args()
    device, repeats = options.device, options.repeats
    n, fewer = (2_000, 1_500) if options.quick else (200_000, 50_000)
    results: dict[str, Any] = {"machine": machine(device), "n": n, "prediction": __doc__}
    print(json.dumps(results["machine"], indent=2), flush=True)

    def record(name: str, measure: Callable[..., Any], *arguments: Any) -> None:
        if options.only not in name:
            return
        results[name] = measure(*arguments)
        print(name, json.dumps(results[name]), flush=True)
        if options.out is not None:  # after every step: a run that is cut off leaves what it had
            options.out.write_text(json.dumps(results, indent=2))

    regressor, classifier = TraceNormRegressor(alpha=ALPHA, tol=TOL), TraceNormClassifier(alpha=ALPHA, tol=TOL)
    logistic = TraceNormClassifier(alpha=ALPHA, tol=TOL, loss="log_loss")
    few = min(repeats, 3)
    for dtype in DTYPES:
        record(f"gram {dtype}", gram, n, dtype, device, repeats)
    for dtype in DTYPES:
        record(f"regressor {dtype}", fit, regressor, n, dtype, device, repeats)
        record(f"classifier, 4 classes, {dtype}", fit, classifier, n, dtype, device, repeats)
        record(f"phases {dtype}", phases, n, dtype, device, repeats)
    record(f"logistic, 2 classes, {fewer} samples", fit, logistic, fewer, "float64", device, few)
    record("agreement with NumPy, paper's problem", lambda: agreement(*ranked(fewer, device), ALPHA))
    record("agreement with NumPy, Gaussian samples", lambda: agreement(*gaussian_tensors(fewer, 0, device), 0.1))
    for n_large, shape in ((1_000, (100, 100, 100)), (20_000, (32, 32, 32))):
        if not options.quick:
            record(f"large, {n_large} of {'x'.join(map(str, shape))}", large, n_large, shape, device, few)
    for dtype in DTYPES:
        record(f"CPU, NumPy: regressor {dtype}", fit, regressor, n, dtype, "cpu", few, "numpy")
    record("CPU, NumPy: classifier, 4 classes, float64", fit, classifier, n, "float64", "cpu", few, "numpy")
    record("CPU, torch: regressor float64", fit, regressor, n, "float64", "cpu", few)
    record(f"CPU, NumPy: logistic, 2 classes, {fewer} samples", fit, logistic, fewer, "float64", "cpu", 1, "numpy")
    print(table(results))


if __name__ == "__main__":
    main()
