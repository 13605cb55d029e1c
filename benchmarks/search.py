"""How long the default search takes, as a ratio to LogisticRegressionCV on flattened, standardised samples.

``python -m benchmarks.search [--data FOLDER] [--only NAME ...]`` prints one table: processor seconds on one thread, in one
process.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.panel import data
from tracelearn import TraceNormClassifierCV


def seconds(fit: Any) -> float:
    """Measure processor time."""
    began = time.process_time()
    fit()
    return time.process_time() - began


def row(one: data.DataSet) -> str:
    """Time three searches on one set."""
    flat = StandardScaler().fit_transform(one.X.reshape(len(one.X), -1))
    floor = seconds(lambda: LogisticRegressionCV(Cs=10, cv=5).fit(flat, one.y))
    single = seconds(lambda: TraceNormClassifierCV(views=None).fit(one.X, one.y, groups=one.groups))
    every = seconds(lambda: TraceNormClassifierCV().fit(one.X, one.y, groups=one.groups))
    cells = [
        one.name,
        one.sentence(),
        f"{floor:.2f}",
        f"{single:.2f} ({single / floor:.1f})",
        f"{every:.2f} ({every / floor:.1f})",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder of .npz files with X, y and perhaps groups, to run as well")
    parser.add_argument("--only", nargs="*", default=[], help="sets whose names contain one of these")
    options = parser.parse_args()
    sets = [load() for load in data.LOADERS] + ([] if options.data is None else list(data.from_folder(options.data)))
    print(
        "| set | samples | LogisticRegressionCV, s | one view, s (ratio) | all views, s (ratio) |\n|---|---|---|---|---|"
    )
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in sets:
            chosen = not options.only or any(part in one.name for part in options.only)
            if chosen and one.classes is not None and np.prod(one.X.shape) <= 5_000_000:
                print(row(one), flush=True)


if __name__ == "__main__":
    main()
