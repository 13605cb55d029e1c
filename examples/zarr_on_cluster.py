"""
More data than the workers hold: Zarr on a cluster
==================================================

Can two workers, each limited to 512 MiB of memory, learn from 2 GB of tensors in a Zarr folder? Yes. Each worker reads
one chunk at a time and adds it to its moments. Only moments are transferred, 8 MB each, and summed in a tree. This
example is not run when the documentation is built. Run it with ``python examples/zarr_on_cluster.py`` (extras ``dask``
and ``zarr``); it writes and removes 2 GB in a temporary folder.
"""

import tempfile
import time
from pathlib import Path

import dask.array as da
import numpy as np
import zarr
from distributed import Client, LocalCluster

from tracelearn import TraceNormRegressor

SHAPE, ROWS, CHUNKS = (10, 10, 10), 4_000, 64


def write(folder: Path) -> np.ndarray:
    """Write tensors and targets, chunk by chunk, and return the weights that the targets come from."""
    rng = np.random.default_rng(0)
    W = np.einsum("i,j,k", *(rng.standard_normal(size) for size in SHAPE)) / 30
    group = zarr.open_group(folder, mode="w")
    X = group.create_array("X", shape=(ROWS * CHUNKS, *SHAPE), chunks=(ROWS, *SHAPE), dtype="f8", compressors=None)
    y = group.create_array("y", shape=(ROWS * CHUNKS,), chunks=(ROWS,), dtype="f8")
    for chunk in range(CHUNKS):
        part = slice(chunk * ROWS, (chunk + 1) * ROWS)
        samples = rng.standard_normal((ROWS, *SHAPE))
        X[part], y[part] = samples, np.tensordot(samples, W, 3) + rng.standard_normal(ROWS)
    return W


def main() -> None:
    """Write the data, start the workers, fit."""
    with tempfile.TemporaryDirectory() as folder:
        W = write(Path(folder) / "tensors.zarr")
        limits = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "512MiB", "dashboard_address": None}
        with LocalCluster(**limits) as cluster, Client(cluster):
            X = da.from_zarr(f"{folder}/tensors.zarr", component="X")
            y = da.from_zarr(f"{folder}/tensors.zarr", component="y")
            began = time.perf_counter()
            model = TraceNormRegressor(alpha=0.1).fit(X, y)
            seconds = time.perf_counter() - began
            predicted = model.predict(X)  # lazy, like every Dask array
            error = float(((predicted - y) ** 2).mean().compute())
        print(
            f"{X.nbytes / 1e9:.1f} GB on two workers of 0.5 GiB each: {seconds:.1f} s, {len(X) / seconds:,.0f} samples/s"
        )
        print(
            f"ranks {model.mode_ranks_}, duality gap {model.dual_gap_:.1e}, mean squared error {error:.3f} (noise: 1)"
        )
        print(f"distance from the true weights: {np.linalg.norm(model.coef_ - W) / np.linalg.norm(W):.3f}")


if __name__ == "__main__":
    main()
