"""Convex tensor completion: how many entries of a low-rank tensor must be seen to know all of them.

The experiment of Tomioka, Hayashi and Kashima, "Estimation of low-rank tensors via convex optimization" (2010): a
50×50×20 tensor of multilinear rank 7, 8, 9, without noise, of which some entries are seen. A sample is a tensor with a
single one at the place of an entry, so that its product with W is the entry: tensor completion is regression on sparse
samples. With a tiny alpha the model agrees with what it has seen and has the least trace norm among all that do.

    python -m experiments.completion [--quick] [--out DIR]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy import sparse

from experiments.report import BLUE, GREY, ORANGE, axes, options, table, write
from tracelearn import TraceNormRegressor

SHAPE, RANKS = (50, 50, 20), (7, 8, 9)
FRACTIONS = (0.1, 0.2, 0.25, 0.275, 0.3, 0.325, 0.35, 0.4, 0.5, 0.6, 0.7)
REPETITIONS = 5
QUICK = {"shape": (20, 20, 10), "ranks": (3, 3, 2), "fractions": (0.2, 0.4, 0.6), "repetitions": 2}

# Entries have a mean square of one. At this alpha the objective is about 1e-5, nearly all of it the penalty, and a gap of TOL
# is about a millionth of it.
ALPHA, TOL = 1e-8, 1e-11
RECOVERED = 0.01


def low_rank_tensor(shape: tuple[int, ...], ranks: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw a Gaussian core and orthonormal factors; the entries have a mean square of one."""
    W = rng.standard_normal(ranks)
    for mode, (size, rank) in enumerate(zip(shape, ranks, strict=True)):
        factor = np.linalg.qr(rng.standard_normal((size, rank)))[0]
        W = np.moveaxis(np.tensordot(factor, W, axes=(1, mode)), 0, mode)
    return W / np.sqrt(np.mean(W**2))


def complete(W: np.ndarray, fraction: float, rng: np.random.Generator) -> dict[str, float]:
    """See a random part of W, guess the rest, and measure how far off the guess is."""
    n = round(fraction * W.size)
    order = rng.permutation(W.size)
    seen, hidden = order[:n], order[n:]
    X = sparse.csr_array((np.ones(n), (np.arange(n), seen)), shape=(n, W.size))
    model = TraceNormRegressor(alpha=ALPHA, tol=TOL, max_iter=5000, fit_intercept=False, tensor_shape=W.shape)
    began = time.perf_counter(), time.process_time()
    model.fit(X, W.ravel()[seen])
    ended = time.perf_counter(), time.process_time()
    error = (model.coef_ - W).ravel()
    return {
        "error": float(np.linalg.norm(error[hidden]) / np.linalg.norm(W.ravel()[hidden])),
        "misfit": float(np.linalg.norm(error[seen]) / np.linalg.norm(W.ravel()[seen])),
        "gap": model.dual_gap_,
        "gap_of_objective": model.dual_gap_ * float(np.mean(W.ravel()[seen] ** 2)) / model.objective_,
        "n_iter": model.n_iter_,
        "seconds": ended[0] - began[0],
        "processor_seconds": ended[1] - began[1],
    }


def run(shape: Any, ranks: Any, fractions: Any, repetitions: int) -> list[dict[str, Any]]:
    """Complete the same tensors from every fraction."""
    points = []
    for count, fraction in enumerate(fractions, start=1):
        runs = []
        for seed in range(repetitions):
            rng = np.random.default_rng(seed)
            runs.append(complete(low_rank_tensor(shape, ranks, rng), fraction, rng))
        points.append({"fraction": fraction, "runs": runs})
        error, seconds = np.median([run["error"] for run in runs]), sum(run["seconds"] for run in runs)
        print(f"{count}/{len(fractions)} {fraction:.1%} seen: error {error:.1e}, {seconds:.1f} s", flush=True)
    return points


def summary(points: list[dict[str, Any]]) -> str:
    """Tabulate errors, how many tensors were recovered, and what it took."""
    rows = []
    for point in points:
        errors, gaps, counts, seconds = (
            [run[name] for run in point["runs"]]
            for name in ("error", "gap_of_objective", "n_iter", "processor_seconds")
        )
        recovered = f"{sum(error <= RECOVERED for error in errors)} of {len(errors)}"
        spread = f"{min(errors):.2g} to {max(errors):.2g}"
        cost = f"{np.median(counts):.0f}", f"{np.median(seconds):.2g} s"
        rows.append(
            (f"{point['fraction']:.1%}", f"{np.median(errors):.2g}", spread, recovered, f"{max(gaps):.0e}", *cost)
        )
    head = (
        "seen",
        "median error",
        "errors",
        "recovered",
        "largest gap / objective",
        "iterations",
        "processor time of a fit",
    )
    return table(head, rows)


def figure(points: list[dict[str, Any]], shape: Any, ranks: Any, path: Any) -> None:
    """Draw every error and the medians."""
    fig, axis = axes(figsize=(7, 4.2))
    x = [point["fraction"] for point in points]
    errors = [[run["error"] for run in point["runs"]] for point in points]
    axis.plot(x, np.median(errors, axis=1), "-", color=BLUE, label="median")
    axis.plot(
        np.repeat(x, len(errors[0])), np.ravel(errors), "o", color=ORANGE, markersize=4, alpha=0.6, label="one tensor"
    )
    axis.axhline(RECOVERED, linestyle="--", color=GREY, label=f"recovered: at most {RECOVERED:g}")
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.set_xlabel("entries that are seen")
    axis.set_ylabel("relative error of the entries not seen")
    sizes, rank = "×".join(map(str, shape)), ", ".join(map(str, ranks))
    axis.set_title(f"Completion of a {sizes} tensor of ranks {rank}, without noise", fontsize="medium")
    axis.grid(True, alpha=0.3)
    axis.legend(frameon=False)
    fig.savefig(path, dpi=110)


def main() -> None:
    """Run the experiment, and write what it gave."""
    chosen, began = options("Complete low-rank tensors from a part of their entries."), time.perf_counter()
    settings: dict[str, Any] = {"shape": SHAPE, "ranks": RANKS, "fractions": FRACTIONS, "repetitions": REPETITIONS}
    settings = QUICK if chosen.quick else settings
    points = run(**settings)
    constants = {"alpha": ALPHA, "tol": TOL, "recovered": RECOVERED}
    figure(points, settings["shape"], settings["ranks"], chosen.out / "completion.png")
    write(chosen.out, "completion", {**settings, **constants, "points": points}, summary(points), began)


if __name__ == "__main__":
    main()
