"""Both many samples and many entries: no square matrix fits, and every product is a pass over the samples.

    python -m benchmarks.large --folder DIR [--case many long wide] [--limit 2] [--patience 120] [--format zarr]
    python -m benchmarks.large --folder DIR --case cluster
    python -m benchmarks.large --folder DIR --growth

Writes samples of a low-rank truth plus noise once (float32, Zarr, not compressed, or npy) and keeps them in DIR. Then one fresh
process for each case measures: reading all blocks and nothing else; the fit, its passes, its gap and its peak of memory;
and, for at most ``--patience`` seconds, the accelerated proximal gradient that was the default before. Cases: "many" is
20,000 of 32x32x32 in an address space of ``--limit`` GiB, "long" is 1,000 of 100x100x100, "wide" is 64,000 of 20x20x20 in the
same space as "many". "cluster" is 64,000 of 20x20x20 on a cluster of two Dask workers of 3 GiB each.

``--growth`` draws time and memory of a fit against the number of entries and of samples, each size in a process of its own
with 3 GiB of addresses, and the form that was chosen. Sizes that are in large_growth.json already are not measured again: delete
it to begin anew. Needs numpy, scipy, scikit-learn, zarr, and matplotlib for the figure.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

# Samples, shape, how many times larger samples are in the subspaces of the truth than elsewhere, and alpha. White samples of a
# million entries would hide any truth from a thousand of them.
CASES = {
    "many": (20_000, (32, 32, 32), 1.0, 0.9),
    "long": (1_000, (100, 100, 100), 20.0, 14.0),
    "wide": (64_000, (20, 20, 20), 1.0, 0.3),
    "cluster": (64_000, (20, 20, 20), 1.0, 0.3),
}
# Of the figure: entries for 250 samples, and samples of 1,000 entries.
SIZES = [(10**k, (10, 10, 10)) for k in (3, 4, 5, 6)] + [(250, (side,) * 3) for side in (10, 20, 32, 46, 68, 100)]
# What a fit says of its form, and the form.
FORMS = {
    "subspaces:": "subspaces",
    "moments hold": "moments",
    "what the samples span": "span",
    "reads the samples": "samples",
}
SPACE = 3.0  # GiB of addresses for each of them
TOL, RANK, CHUNK = 1e-4, 3, 16 << 20
AIMS = {
    "many": {"passes": 15, "reads": 75, "gib": 2.0},
    "long": {"seconds": 180, "gib": 12.0},
    "wide": {"gib": 2.0},
    "cluster": {"gib": 3.0},
}


def write(path: Path, n: int, shape: tuple[int, ...], strength: float) -> None:
    """Write samples whose target is a function of rank (3, 3, 3) of them, as strong as the noise."""
    from tracelearn.arrays.subspaces import Subspaces

    rng, rows = np.random.default_rng(0), max(1, CHUNK // (4 * int(np.prod(shape))))
    if path.suffix == ".zarr":
        import zarr

        group = zarr.open_group(path, mode="w")
        X = group.create_array("X", shape=(n, *shape), chunks=(rows, *shape), dtype="f4", compressors=None)
    else:
        X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, *shape))
    truth = Subspaces(tuple(np.linalg.qr(rng.standard_normal((size, RANK)))[0].astype("f4") for size in shape))
    weights, y = rng.standard_normal(RANK**3), np.empty(n)
    for start in range(0, n, rows):
        block = rng.standard_normal((min(rows, n - start), int(np.prod(shape))), dtype=np.float32)
        noise = rng.standard_normal(len(block))
        cores = truth.project(block)
        block += (strength - 1.0) * truth.lift(cores)
        signal = cores @ weights / np.linalg.norm(weights)
        X[start : start + len(block)] = block.reshape(-1, *shape)
        y[start : start + len(block)] = signal + noise
    if path.suffix == ".zarr":
        group.create_array("y", data=y)
    else:
        np.save(_targets(path), y)


def _targets(path: Path) -> Path | None:
    """Name the file of the targets, where they are not in that of the samples."""
    return None if path.suffix == ".zarr" else path.with_suffix(".y.npy")


def spread(path: Path, case: str) -> dict:
    """Fit on a cluster of this machine; the peaks of this process and of the workers, and the passes over the samples."""
    import dask.array as da
    from distributed import Client, LocalCluster

    from tracelearn import TraceNormRegressor
    from tracelearn.samples.cluster import Dask

    n, shape, _, alpha = CASES[case]
    passes, total = [0], Dask.total

    def counted(self: Dask, *arguments: object) -> object:
        passes[0] += 1
        return total(self, *arguments)

    Dask.total = counted  # type: ignore[method-assign]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="3GiB", dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        X, y = (da.from_zarr(str(path), component=name) for name in ("X", "y"))
        began, before = time.perf_counter(), _peak()
        model = TraceNormRegressor(alpha, tol=TOL, verbose=2).fit(X, y)
        took, workers = time.perf_counter() - began, client.run(_peak)
    return {
        "case": f"{n:,} of {'×'.join(map(str, shape))}",
        "gap": model.dual_gap_,
        "ranks": model.mode_ranks_.tolist(),
        "sums over the samples": passes[0],
        "seconds": round(took, 1),
        "load": round(os.getloadavg()[0], 1),
        "matrix_gib": round(8 * model.coef_.size**2 / 2**30, 2),
        "peak_gib": round(_peak() / 2**20, 2),
        "peak_gib_before_the_fit": round(before / 2**20, 2),
        "peak_gib_of_workers": [round(peak / 2**20, 2) for peak in workers.values()],
    }


class LateError(Exception):
    """The time is over."""


def measure(path: Path, case: str, patience: float) -> dict:
    """Measure in this process."""
    from tracelearn import TraceNormRegressor
    from tracelearn.samples import Source, as_source
    from tracelearn.samples.execution import Again
    from tracelearn.solvers import apg

    passes = [0]

    def counted(self: Source) -> Again:
        def blocks() -> Any:
            passes[0] += 1
            return iter(self.read(0))

        return Again(blocks)

    Source.blocks = property(counted)  # type: ignore[assignment, method-assign]
    n, shape, _, alpha = CASES[case]
    began = time.perf_counter()
    for _ in as_source(path, _targets(path)).batches():
        pass
    read = time.perf_counter() - began
    before, passes[0] = _peak(), 0
    began, busy = time.perf_counter(), time.process_time()
    model = TraceNormRegressor(alpha, tol=TOL, verbose=2).fit(path, _targets(path))
    took, busy = time.perf_counter() - began, time.process_time() - busy
    results = {
        "case": f"{n:,} of {'×'.join(map(str, shape))}",
        "gap": model.dual_gap_,
        "ranks": model.mode_ranks_.tolist(),
        "passes": passes[0],
        "seconds": round(took, 1),
        "processor_seconds": round(busy, 1),
        "load": round(os.getloadavg()[0], 1),
        "seconds_to_read_once": round(read, 2),
        "reads": round(took / read, 1),
        "peak_gib": round(_peak() / 2**20, 2),
        "peak_gib_before_the_fit": round(before / 2**20, 2),
    }
    if patience:
        results["before"] = _tried(apg, path, alpha, passes, patience)
    return results


def _tried(solver: Any, path: Path, alpha: float, passes: list[int], patience: float) -> dict:
    """Fit with a solver until the time is over; the gap and the passes so far."""
    from tracelearn import TraceNormRegressor

    passes[0], began, busy, last = 0, time.perf_counter(), time.process_time(), {"gap": 1.0, "passes": 0}

    def watch(so_far: Any) -> None:
        last.update(gap=float(so_far.gap[0]), passes=passes[0])
        if time.perf_counter() - began > patience:
            raise LateError

    def watched(problems: Any, **options: Any) -> Any:
        return solver(problems, **{**options, "on_iteration": watch})

    try:
        model = TraceNormRegressor(alpha, tol=TOL, max_iter=20_000, solver=watched).fit(path, _targets(path))
        last.update(gap=float(model.dual_gap_), passes=passes[0])
    except LateError:
        pass
    took, busy = time.perf_counter() - began, time.process_time() - busy
    return {**last, "seconds": round(took, 1), "processor_seconds": round(busy, 1)}


# --- growth -----------------------------------------------------------------------------------------------------------


def third(path: Path) -> float:
    """Find a third of the alpha from which all weights are zero."""
    from tracelearn.penalties import as_penalty

    if path.suffix == ".zarr":
        import zarr

        group = zarr.open_group(path, mode="r")
        X, y = group["X"], group["y"][:]
    else:
        X, y = np.load(path, mmap_mode="r"), np.load(_targets(path))
    shape, p = X.shape[1:], int(np.prod(X.shape[1:]))
    rows = max(1, CHUNK // (4 * p))
    parts = [(y[i : i + rows] - y.mean()) @ X[i : i + rows].reshape(-1, p) for i in range(0, len(y), rows)]
    gradient = 2.0 * np.sum(parts, axis=0).reshape(1, *shape) / len(y)
    return float(as_penalty("overlapped", shape).dual_norm(gradient)[0]) / 3.0


def grown(path: Path, alpha: float) -> dict:
    """Fit one size in this process."""
    import logging

    from tracelearn import TraceNormRegressor

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tracelearn").addHandler(handler)
    began, busy = time.perf_counter(), time.process_time()
    model = TraceNormRegressor(alpha, tol=TOL, verbose=1).fit(path, _targets(path))
    return {
        "n": len(np.load(_targets(path))),
        "p": model.coef_.size,
        "form": next(form for words, form in FORMS.items() if any(words in line for line in said)),
        "gap": model.dual_gap_,
        "seconds": round(time.perf_counter() - began, 2),
        "processor_seconds": round(time.process_time() - busy, 2),
        "peak_gib": round(_peak() / 2**20, 3),
    }


def growth(folder: Path, out: Path, figure: Path) -> None:
    """Measure every size in a fresh process, but for those that were measured before, and draw."""
    results = json.loads(out.read_text()) if out.exists() else []
    measured_sizes = {(result["n"], result["p"]) for result in results}
    for n, shape in (size for size in SIZES if (size[0], int(np.prod(size[1]))) not in measured_sizes):
        path = folder / "growth.npy"
        write(path, n, shape, 1.0 if n >= 1000 else 20.0)
        command = [sys.executable, "-m", "benchmarks.large", "--inside", "--growth", "--folder", str(folder)]
        command += ["--alpha", str(third(path))]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        results.append(json.loads(done.splitlines()[-1]))
        print(results[-1], flush=True)
        out.write_text(json.dumps(results, indent=2) + "\n")
        path.unlink()
        draw(results, figure)


def draw(results: list[dict], path: Path) -> None:
    """Draw time and memory against entries and samples; the colour is the form."""
    import matplotlib.pyplot as plt

    few = SIZES[-1][0]
    sets = {
        "p": [result for result in results if result["n"] == few],
        "n": [result for result in results if result["n"] != few],
    }
    titles = {"p": f"entries of a sample, {few} samples", "n": "samples of 1,000 entries"}
    values = {"processor_seconds": "seconds of the processor", "peak_gib": "peak memory, GiB"}
    colours = dict(
        zip(dict.fromkeys(result["form"] for result in results), ("C0", "C1", "C2", "C3", "C4"), strict=False)
    )
    figure, axes = plt.subplots(2, 2, figsize=(8, 5.5), sharex="col", sharey="row", layout="constrained")
    for column, (axis, ones) in enumerate(sets.items()):
        for row, (name, label) in enumerate(values.items()):
            ax = axes[row, column]
            ax.plot([result[axis] for result in ones], [result[name] for result in ones], color="0.8", zorder=1)
            ax.set(xscale="log", yscale="linear" if row else "log")
            for form, colour in colours.items():
                results_of_form = [result for result in ones if result["form"] == form]
                ax.scatter(
                    [result[axis] for result in results_of_form],
                    [result[name] for result in results_of_form],
                    color=colour,
                    label=form,
                    zorder=2,
                )
            ax.set_ylabel(label if column == 0 else "")
            ax.set_xlabel(titles[axis] if row else "")
            ax.grid(alpha=0.3)
    axes[0, 0].legend(title="form", fontsize="small")
    figure.savefig(path, dpi=130)


def _peak() -> float:
    """Read the peak of this process in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--case", nargs="+", choices=CASES, default=["many", "long"])
    options.add_argument("--limit", type=float, default=2.0, help="address space of the process, in GiB, for 'many'")
    options.add_argument("--patience", type=float, default=120.0)
    options.add_argument("--out", type=Path, default=Path(__file__).parent / "large.json")
    options.add_argument("--format", choices=("zarr", "npy"), default="zarr")
    options.add_argument(
        "--growth", action="store_true", help="time and memory against entries and samples, as a figure"
    )
    options.add_argument("--figure", type=Path, default=Path(__file__).parents[1] / "docs" / "images" / "growth.png")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--alpha", type=float, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.growth and arguments.inside:
        resource.setrlimit(resource.RLIMIT_AS, (int(SPACE * 2**30),) * 2)
        print(json.dumps(grown(arguments.folder / "growth.npy", arguments.alpha)))
        return
    if arguments.growth:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        growth(arguments.folder, arguments.out.with_name("large_growth.json"), arguments.figure)
        return
    paths = {case: arguments.folder / f"{case}.{arguments.format}" for case in arguments.case}
    if arguments.inside:
        (case,) = arguments.case
        if case == "cluster":
            print(json.dumps(spread(paths[case], case)))
            return
        limit = AIMS[case]["gib"] if case == "long" else arguments.limit
        resource.setrlimit(resource.RLIMIT_AS, (int(limit * 2**30),) * 2)
        print(json.dumps(measure(paths[case], case, arguments.patience)))
        return
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    for case, path in paths.items():
        if not path.exists():
            arguments.folder.mkdir(parents=True, exist_ok=True)
            write(path, *CASES[case][:3])
        command = [
            sys.executable,
            "-m",
            "benchmarks.large",
            "--inside",
            "--folder",
            str(arguments.folder),
            "--case",
            case,
        ]
        command += [
            "--limit",
            str(arguments.limit),
            "--patience",
            str(arguments.patience),
            "--format",
            arguments.format,
        ]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        results[case] = json.loads(out.splitlines()[-1]) | {"aims": AIMS[case]}
        print(json.dumps(results[case], indent=2, ensure_ascii=False))
        arguments.out.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
