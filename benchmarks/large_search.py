"""The default search on large made samples: ``python benchmarks/large_search.py [--device cuda]``.

Needs scikit-learn and the sources beside this file, with ``--device`` PyTorch too, nothing else of the benchmarks. Processor
seconds, or with ``--wall`` seconds of the wall, of one search with its last fit, and of one fit at the alpha that was found.

Prediction for 20,000 x 1,000 with 10 classes on an H200, before the first measurement: moments of the folds 4e10 operations,
a millisecond; five eigendecompositions of 1000 x 1000, 60 to 100 ms each; 12 alphas of 4 iterations of some 60 small kernels,
50 ms; the last fit 30 ms. In sum half a second, most of it eigendecompositions. NumPy on 16 cores: moments 0.3 s,
eigendecompositions 1.5 s, the path 1 s, in sum 3 s.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
import warnings
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

try:
    import array_api_compat
except ImportError:  # scikit-learn brings a copy of its own
    import sklearn.externals.array_api_compat as array_api_compat

    sys.modules["array_api_compat"] = array_api_compat
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tracelearn import TensorClassifier, TraceNormClassifier

# Samples, shape, classes, noise.
CASES = {
    "many classes": (731, (32, 22, 10), 71, 6.0),
    "cubes": (1584, (16, 16, 16), 10, 12.0),
    "many samples": (20_000, (10, 10, 10), 10, 12.0),
}


def made(n: int, shape: tuple[int, ...], n_classes: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw classes that differ by tensors of rank two, in noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n)
    parts = [
        [reduce(np.multiply.outer, [rng.normal(size=s) for s in shape]) for _ in range(2)] for _ in range(n_classes)
    ]
    means = np.sqrt(0.5) * np.array([sum(pair) for pair in parts])
    return means[y] + noise * rng.normal(size=(n, *shape)), y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", help="where samples are PyTorch tensors, such as cuda or cpu")
    parser.add_argument("--wall", action="store_true", help="seconds of the wall instead of the processor")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    clock = time.perf_counter if options.wall else time.process_time
    print("| case | samples | search, s | one fit, s | ratio | held out | peak GiB |\n|---|---|---|---|---|---|---|")
    for name in options.cases:
        n, shape, n_classes, noise = CASES[name]
        samples: Any = made(n, shape, n_classes, noise)
        if options.device is not None:
            import torch

            samples = [torch.asarray(array, device=options.device) for array in samples]
        searches, fits = [], []
        for _ in range(options.repeats):
            began = clock()
            fitted = TensorClassifier().fit(*samples)
            searches.append(clock() - began)
            began = clock()
            TraceNormClassifier(fitted.alpha_ or 0.01).fit(*samples)
            fits.append(clock() - began)
        search, fit = statistics.median(searches), statistics.median(fits)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        sizes = f"{n} of {'×'.join(map(str, shape))}, {n_classes} classes"
        print(
            f"| {name} | {sizes} | {search:.2f} | {fit:.2f} | {search / fit:.1f} | {fitted.best_score_:.3f} | {peak:.1f} |"
        )


if __name__ == "__main__":
    main()
