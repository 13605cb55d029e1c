"""More samples than memory: tensors in Zarr on disk, a process limited to a few gigabytes, one pass.

    python -m benchmarks.outofcore --folder DIR [--gigabytes 20] [--limit 2]

Writes the tensors once (random, float64, 10x10x10, chunks of 16 MB, not compressed) and keeps them in DIR. Then one
fresh process, whose address space is limited, measures in turns: reading the blocks and nothing else; the bare gram
(one rank-k update for each block, over blocks that are already in memory); and the fit, which reads, checks, summarises
and solves. The claim: the fit runs at 70 % or more of the rate of the slower of the first two. Needs numpy, scipy,
scikit-learn and zarr.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SHAPE = (10, 10, 10)
ROWS = 2000  # of a chunk: 16 MB


def write(path: Path, n: int) -> None:
    """Write samples whose target is a low-rank function of them; random numbers repeat after 50 chunks, to save time."""
    import zarr

    rng = np.random.default_rng(0)
    group = zarr.open_group(path, mode="w")
    X = group.create_array("X", shape=(n, *SHAPE), chunks=(ROWS, *SHAPE), dtype="f8", compressors=None)
    y = group.create_array("y", shape=(n,), chunks=(ROWS,), dtype="f8", compressors=None)
    weights = np.einsum("i,j,k", *(rng.standard_normal(size) for size in SHAPE)) / 30.0
    blocks = [rng.standard_normal((ROWS, *SHAPE)) for _ in range(50)]
    for i, start in enumerate(range(0, n, ROWS)):
        block = blocks[i % 50][: n - start]
        X[start : start + len(block)] = block
        y[start : start + len(block)] = np.tensordot(block, weights, 3) + rng.standard_normal(len(block))


def measure(path: Path, limit: float, passes: int) -> dict:
    """Measure in this process, with its address space limited from here on."""
    resource.setrlimit(resource.RLIMIT_AS, (int(limit * 2**30),) * 2)
    from tracelearn import TraceNormRegressor, open_source
    from tracelearn.samples import as_source

    source = open_source(path)
    n = source.n_samples
    rates: dict[str, list[float]] = {"read": [], "gram": [], "fit": []}
    held = next(as_source(path).batches())[0].reshape(-1, 1000).copy()
    gram = np.empty((1000, 1000))
    peak = 0.0
    for _ in range(passes):
        began = time.perf_counter()
        model = TraceNormRegressor(alpha=0.1).fit(path)
        rates["fit"].append(n / (time.perf_counter() - began))
        peak = (
            peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        )  # of the first fit and what came before
        began = time.perf_counter()
        total = sum(float(X[0, 0, 0, 0]) for X, _, _ in source.batches())
        rates["read"].append(n / (time.perf_counter() - began))
        count, began = 0, time.perf_counter()
        while count < n / 4:  # the blocks are all alike: a quarter of them says as much
            np.matmul(held.T, held, out=gram)
            count += len(held)
        rates["gram"].append(count / (time.perf_counter() - began))
    speeds = {name: statistics.median(values) for name, values in rates.items()}
    slower = min(speeds["read"], speeds["gram"])
    return {
        "n_samples": n,
        "gigabytes": n * 8000 / 1e9,
        "limit_gib": limit,
        "block_rows": len(held),
        "samples_per_second": {name: round(value) for name, value in speeds.items()},
        "gigabytes_per_second": {name: round(value * 8000 / 1e9, 3) for name, value in speeds.items()},
        "fit_over_gram": round(speeds["fit"] / speeds["gram"], 3),
        "fit_over_slower": round(speeds["fit"] / slower, 3),
        "peak_rss_mib": round(peak),
        "dual_gap": model.dual_gap_,
        "checked": np.isfinite(total) and model.dual_gap_ <= 1e-6,
    }


def _peak_mib() -> float:
    """Read the peak of this process; ``ru_maxrss`` would count that of the process that started it, which wrote the data."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--gigabytes", type=float, default=20.0)
    options.add_argument("--limit", type=float, default=2.0, help="address space of the process, in GiB")
    options.add_argument("--passes", type=int, default=3)
    options.add_argument("--out", type=Path, default=Path(__file__).parent / "outofcore.json")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    path = arguments.folder / f"tensors-{arguments.gigabytes:g}gb.zarr"
    if arguments.inside:
        print(json.dumps(measure(path, arguments.limit, arguments.passes)))
        return
    if not path.exists():
        arguments.folder.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        write(path, int(arguments.gigabytes * 1e9 / 8000) // ROWS * ROWS)
        print(f"wrote {path} in {time.perf_counter() - began:.0f} s")
    command = [sys.executable, "-m", "benchmarks.outofcore", "--inside", "--folder", str(arguments.folder)]
    command += [
        "--gigabytes",
        str(arguments.gigabytes),
        "--limit",
        str(arguments.limit),
        "--passes",
        str(arguments.passes),
    ]
    results = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    arguments.out.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
