"""How time and memory grow: with samples that stream by, with the size of a tensor, with its order."""

import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks.harness import Row
from benchmarks.problems import Problem, largest_alpha
from tracelearn import Moments, TraceNormRegressor
from tracelearn.datasets import make_low_rank_regression
from tracelearn.penalties import as_penalty
from tracelearn.problems.problem import Problems
from tracelearn.problems.squares import Squares
from tracelearn.solvers import admm

TITLE = "growth"
BLOCK = 10_000
ORDERS = {2: (32, 32), 3: (10, 10, 10), 4: (6, 6, 6, 5), 5: (4, 4, 4, 4, 4)}


def ask(quick: bool) -> list[Row]:
    samples = [2_000, 10_000, 50_000] if quick else [2_000, 10_000, 50_000, 200_000, 500_000]
    sides = [10, 14, 20] if quick else [10, 14, 20, 26, 32]
    curves = {
        "n": [(n, _apart(streamed, n)) for n in samples],
        "p": [(side**3, _apart(few, side)) for side in sides],
        "N": [(order, _apart(of_order, order)) for order in ORDERS],
    }
    said = {
        "n": "moments of blocks of 10,000 samples added up, then solved; 10×10×10, α = 0.1 α_max",
        "p": "basis of the samples, n = 200, I×I×I, α = 0.1 α_max",
        "N": "n = 2,000, p about 1,000, α = 0.1 α_max",
    }
    rows = []
    for name, curve in curves.items():
        (first, start), (last, end) = curve[0], curve[-1]
        rows.append(
            Row(
                TITLE,
                f"{name} from {first:,} to {last:,}: {said[name]}",
                f"time at {last:,} / at {first:,}",
                end["seconds"] / start["seconds"],
                ours=end["seconds"],
                other=start["seconds"],
                note=f"{name} grows {last / first:.3g}-fold; peak memory {start['peak_mb']:.0f} to {end['peak_mb']:.0f} MB above "
                f"the imports; {start['n_iter']} to {end['n_iter']} iterations",
                extra={"curve": [{name: at, **measured} for at, measured in curve]},
            )
        )
    return rows


def _apart(measure: Callable[[int], dict], size: int) -> dict:
    """Measure in a process of its own, so that the peak of its memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured, measure, size).result()


def _measured(measure: Callable[[int], dict], size: int) -> dict:
    before = _peak()
    result = measure(size)
    return {**result, "peak_mb": (_peak() - before) / 1e6}


def _peak() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return float(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def streamed(n: int) -> dict:
    """Add up moments block by block; drawing the samples is not timed."""
    shape, rng = (10, 10, 10), np.random.default_rng(0)
    _, _, W = make_low_rank_regression(1, shape, random_state=0)
    moments, seconds = Moments.zero(1000), 0.0
    for start in range(0, n, BLOCK):
        X = rng.standard_normal((min(BLOCK, n - start), *shape))
        signal = X.reshape(len(X), -1) @ W.ravel()
        y = signal + 0.5 * np.linalg.norm(W) * rng.standard_normal(len(X))
        began = time.perf_counter()
        moments = moments.updated(X, y)
        seconds += time.perf_counter() - began
        del X, y, signal  # or the next block is drawn beside this one
    alpha = 0.1 * largest_alpha(moments, shape)
    began = time.perf_counter()
    fit = Squares.of(moments)
    problems = Problems(fit, as_penalty("overlapped", shape), np.array([alpha]), shape, fit.at_zero.value)
    solution = admm(problems, tol=1e-6)
    return {"seconds": seconds + time.perf_counter() - began, "n_iter": solution.n_iter}


def few(side: int) -> dict:
    """Fit few samples of a large tensor."""
    shape = (side,) * 3
    X, y, _ = make_low_rank_regression(200, shape, random_state=0)
    return _fit(X, y, Problem.at(0.1, X, y).alpha)


def of_order(order: int) -> dict:
    """Fit tensors of about a thousand entries."""
    X, y, _ = make_low_rank_regression(2_000, ORDERS[order], random_state=0)
    return _fit(X, y, 0.1 * largest_alpha(Moments.of(X, y), ORDERS[order]))


def _fit(X: np.ndarray, y: np.ndarray, alpha: float) -> dict:
    model, seconds = TraceNormRegressor(alpha=alpha, tol=1e-6), []
    for _ in range(4):
        began = time.perf_counter()
        model.fit(X, y)
        seconds.append(time.perf_counter() - began)
    return {"seconds": statistics.median(seconds[1:]), "n_iter": model.n_iter_}


def figure(rows: list[Row], path: str) -> None:
    """Draw the curves, with lines of the slope that arithmetic predicts."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    curves = [row.extra["curve"] for row in rows]
    fig, axes = plt.subplots(2, 3, figsize=(12, 6.5), layout="constrained")
    labels = (
        "samples n, streamed (10×10×10)",
        "entries p = I³ (basis of the samples, n = 200)",
        "order N (p ≈ 1,000, n = 2,000)",
    )
    for (top, bottom), curve, label in zip(axes.T, curves, labels, strict=True):
        key = next(iter(curve[0]))
        x = np.array([point[key] for point in curve], dtype=float)
        seconds = np.array([point["seconds"] for point in curve])
        memory = np.array([point["peak_mb"] for point in curve])
        for axis, values in ((top, seconds), (bottom, memory)):
            axis.plot(x, values, "o-", color="#1f5fa8", label="measured")
            axis.set_xlabel(label)
            axis.grid(True, which="major", alpha=0.3)
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
            if key != "N":
                axis.set_xscale("log")
                axis.plot(x, values[-1] * x / x[-1], "--", color="0.55", label=f"proportional to {key}")
            axis.set_xticks(x, [f"{at:,.0f}" for at in x], fontsize="small")
            axis.set_xticks([], minor=True)
            low, high = axis.get_ylim()
            axis.set_ylim(min(low, 0.5 * values.min()), max(high, 2.0 * values.max()))
            axis.legend(frameon=False)
    axes[0, 0].set_ylabel("seconds to a gap of 1e-6")
    axes[1, 0].set_ylabel("peak memory above imports, MB")
    fig.savefig(path, dpi=130)
