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
from tracelearn import TensorClassifier


def seconds(fit: Any) -> float:
    """Measure processor time."""
    began = time.process_time()
    fit()
    return time.process_time() - began


def measured(data_set: data.DataSet) -> tuple[float, float, float]:
    """Time LogisticRegressionCV, the search of one view and that of all views on one set."""
    flat = StandardScaler().fit_transform(data_set.X.reshape(len(data_set.X), -1))
    floor = seconds(lambda: LogisticRegressionCV(Cs=10, cv=5).fit(flat, data_set.y))
    single = seconds(lambda: TensorClassifier(views=None).fit(data_set.X, data_set.y, groups=data_set.groups))
    every = seconds(lambda: TensorClassifier().fit(data_set.X, data_set.y, groups=data_set.groups))
    return floor, single, every


def sets(folder: Path | None) -> list[data.DataSet]:
    """List the sets with classes and at most 5 million numbers: public ones, and those of a folder."""
    data_sets = [load() for load in data.LOADERS] + ([] if folder is None else list(data.from_folder(folder)))
    return [
        data_set for data_set in data_sets if data_set.classes is not None and np.prod(data_set.X.shape) <= 5_000_000
    ]


def row(data_set: data.DataSet) -> str:
    """Write the times of one set."""
    floor, single, every = measured(data_set)
    ratios = [f"{took:.2f} ({took / floor:.1f})" for took in (single, every)]
    return "| " + " | ".join([data_set.name, data_set.sentence(), f"{floor:.2f}", *ratios]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder of .npz files with X, y and perhaps groups, to run as well")
    parser.add_argument("--only", nargs="*", default=[], help="sets whose names contain one of these")
    options = parser.parse_args()
    print(
        "| set | samples | LogisticRegressionCV, s | one view, s (ratio) | all views, s (ratio) |\n|---|---|---|---|---|"
    )
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data_set in sets(options.data):
            if not options.only or any(name in data_set.name for name in options.only):
                print(row(data_set), flush=True)


if __name__ == "__main__":
    main()
