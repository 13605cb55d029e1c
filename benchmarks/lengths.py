"""Series of unequal length and samples with gaps, against padding, cutting, imputation, aeon and boosted trees.

``python -m benchmarks.lengths lengths`` takes the sets of unequal length that come inside packages (aeon, sktime and seglearn),
and ``python -m benchmarks.lengths gaps --data FOLDER`` removes entries of complete sets, .npz files with ``X`` and ``y``. Each
writes one row for every set, split and method to a CSV file, and goes on where it was stopped. ``table`` prints the means.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GroupKFold, StratifiedKFold, StratifiedShuffleSplit

from benchmarks.panel.archives import fetch, read_ts
from tracelearn import TensorClassifier

FIELDS = ("part", "data", "split", "method", "accuracy", "seconds")
SPLITS = 5
SETS_WITH_GAPS = ("basic_motions", "uea_epilepsy", "uea_ering", "uea_racketsports", "covid19_serology")
SHARES = (0.05, 0.2, 0.5)

Split = tuple[np.ndarray, np.ndarray]
Predict = Callable[[Any, np.ndarray, Any], np.ndarray]  # of training samples, labels and test samples


@dataclass(frozen=True)
class Series:
    """Samples (channels, times) of unequal length with labels, and how they are split into training and test."""

    name: str
    X: list[np.ndarray]
    y: np.ndarray
    splits: list[Split]


# --- unequal lengths ---------------------------------------------------------------------------------------------------


def unequal_sets() -> Iterator[Series]:
    """Read the sets inside packages: split as they come, and four times more at random in the same shares; persons whole."""
    aeon = fetch("aeon", "1.6.0") / "aeon/datasets/data"
    sktime = fetch("sktime", "1.2.0") / "sktime/datasets/data"
    for folder in (aeon / "PickupGestureWiimoteZ", aeon / "JapaneseVowels", sktime / "PLAID"):
        name = folder.name
        parts = [read_ts(folder / f"{name}_{part}.ts") for part in ("TRAIN", "TEST")]
        X = [np.stack(channels) for samples, _ in parts for channels in samples]
        y = np.concatenate([labels for _, labels in parts])
        n_train = len(parts[0][1])
        given = (np.arange(n_train), np.arange(n_train, len(y)))
        drawn = StratifiedShuffleSplit(SPLITS - 1, train_size=n_train, test_size=len(y) - n_train, random_state=0)
        yield Series(name, X, y, [given, *drawn.split(y, y)])
    from seglearn.datasets import load_watch

    watch = load_watch()
    X = [np.asarray(recording, dtype=float).T for recording in watch["X"]]
    y = np.asarray(watch["y"])
    yield Series("smartwatch recordings", X, y, list(GroupKFold(SPLITS).split(y, y, watch["subject"])))


def resized(X: list[np.ndarray], length: int) -> np.ndarray:
    """Cut samples to a length, and pad those that are shorter with zeros."""
    result = np.zeros((len(X), X[0].shape[0], length))
    for row, sample in zip(result, X, strict=True):
        n_times = min(length, sample.shape[1])
        row[:, :n_times] = sample[:, :n_times]
    return result


def search(X: Any, y: np.ndarray, X_test: Any) -> np.ndarray:
    """Search over views of the samples as they are."""
    return TensorClassifier().fit(X, y).predict(X_test)


def search_padded(X: list[np.ndarray], y: np.ndarray, X_test: list[np.ndarray]) -> np.ndarray:
    """Search, padded with zeros to the longest training sample."""
    length = max(sample.shape[1] for sample in X)
    return search(resized(X, length), y, resized(X_test, length))


def search_cut(X: list[np.ndarray], y: np.ndarray, X_test: list[np.ndarray]) -> np.ndarray:
    """Search, cut to the shortest training sample."""
    length = min(sample.shape[1] for sample in X)
    return search(resized(X, length), y, resized(X_test, length))


def of_aeon(module: str, name: str, **options: Any) -> Predict:
    """Make a method of a classifier of aeon that takes samples of unequal length."""

    def predict(X: list[np.ndarray], y: np.ndarray, X_test: list[np.ndarray]) -> np.ndarray:
        classifier = getattr(importlib.import_module(f"aeon.classification.{module}"), name)(**options)
        return classifier.fit(X, y).predict(X_test)

    return predict


OF_UNEQUAL: dict[str, Predict] = {
    "tracelearn": search,
    "tracelearn, padded with zeros": search_padded,
    "tracelearn, cut": search_cut,
    "aeon RDST": of_aeon("shapelet_based", "RDSTClassifier", random_state=0),
    "aeon Catch22": of_aeon("feature_based", "Catch22Classifier", random_state=0),
    "aeon 1-NN DTW": of_aeon("distance_based", "KNeighborsTimeSeriesClassifier", distance="dtw"),
    "aeon proximity forest": of_aeon("distance_based", "ProximityForest", n_trees=50, random_state=0),
}


# --- gaps --------------------------------------------------------------------------------------------------------------


def with_gaps(X: np.ndarray, kind: str, share: float, seed: int) -> np.ndarray:
    """Remove a share of the entries of samples (n, ..., times): each by itself, in bursts, or whole channels of some samples."""
    rng = np.random.default_rng(seed)
    signals = X.reshape(len(X), -1, X.shape[-1]).astype(float)
    n, n_channels, n_times = signals.shape
    if kind == "at random":
        signals[rng.random(signals.shape) < share] = np.nan
    elif kind == "channels":
        missing = rng.random((n, n_channels)) < share
        missing[np.arange(n), rng.integers(n_channels, size=n)] = False  # one is left
        signals[missing] = np.nan
    else:
        length = max(2, n_times // 10)
        while np.isnan(signals).mean() < share:
            sample, channel = rng.integers(n), rng.integers(n_channels)
            start = rng.integers(1 - length, n_times)
            signals[sample, channel, max(start, 0) : start + length] = np.nan
        empty = np.isnan(signals).all(axis=(1, 2))
        signals[empty, 0, 0] = X.reshape(n, -1)[empty, 0]
    return signals.reshape(X.shape)


def search_imputed(X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> np.ndarray:
    """Search, each entry imputed by its mean over the training samples."""
    means = np.nan_to_num(np.nanmean(X, axis=0))
    return search(np.where(np.isnan(X), means, X), y, np.where(np.isnan(X_test), means, X_test))


def boosting(X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> np.ndarray:
    """Boost trees, which take NaN, on flat samples."""
    flat = X.reshape(len(X), -1)
    return HistGradientBoostingClassifier(random_state=0).fit(flat, y).predict(X_test.reshape(len(X_test), -1))


OF_GAPS: dict[str, Predict] = {
    "tracelearn": search,
    "tracelearn, imputed by means": search_imputed,
    "histogram boosting": boosting,
}


# --- running -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One method on one split of one set."""

    part: str
    data: str
    split: int
    method: str
    run: Callable[[], float]


def tasks_of_lengths(names: list[str]) -> Iterator[Task]:
    """List the methods on sets of unequal length."""
    for series in unequal_sets():
        if names and series.name not in names:
            continue
        for split, (train, test) in enumerate(series.splits):
            X, X_test = [series.X[i] for i in train], [series.X[i] for i in test]
            for method, predict in OF_UNEQUAL.items():
                yield Task(
                    "lengths", series.name, split, method, _run(predict, X, series.y[train], X_test, series.y[test])
                )


def tasks_of_gaps(folder: Path, names: list[str]) -> Iterator[Task]:
    """List the methods on complete sets, and on the same with gaps in training and test samples."""
    for name in names or SETS_WITH_GAPS:
        with np.load(folder / f"{name}.npz") as file:
            X, y = file["X"], file["y"]
        conditions = [
            ("complete", 0.0),
            *((kind, share) for kind in ("at random", "bursts", "channels") for share in SHARES),
        ]
        for split, (train, test) in enumerate(StratifiedKFold(2, shuffle=True, random_state=0).split(X, y)):
            for kind, share in conditions:
                gappy = X.astype(float) if kind == "complete" else with_gaps(X, kind, share, split)
                condition = kind if kind == "complete" else f"{kind}, {share:.0%}"
                for method, predict in OF_GAPS.items():
                    if kind == "complete" and method.endswith("means"):
                        continue
                    run = _run(predict, gappy[train], y[train], gappy[test], y[test])
                    yield Task("gaps", f"{name}: {condition}", split, method, run)


def _run(predict: Predict, X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray) -> Callable[[], float]:
    """Bind the samples of one split."""
    return lambda: float(np.mean(predict(X, y, X_test) == y_test))


def run(tasks: Iterator[Task], path: Path) -> None:
    """Run what is not in the file yet, and add a row for each."""
    done = {tuple(row[:4]) for row in _rows(path)}
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    for task in tasks:
        key = (task.part, task.data, str(task.split), task.method)
        if key in done:
            continue
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            accuracy = task.run()
        seconds = time.perf_counter() - began
        print(*key, f"{accuracy:.3f}", f"{seconds:.1f} s", flush=True)
        with path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow([*key, f"{accuracy:.4f}", f"{seconds:.1f}"])


def _rows(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]


def table(path: Path) -> None:
    """Print the mean accuracy of every method on every set, with its standard error over splits."""
    scores: dict[tuple[str, str], list[float]] = {}
    for _, data, _, method, accuracy, _ in _rows(path):
        scores.setdefault((data, method), []).append(float(accuracy))
    methods = list(dict.fromkeys(method for _, method in scores))
    print("| set | " + " | ".join(methods) + " |")
    print("|---" * (len(methods) + 1) + "|")
    for data in dict.fromkeys(data for data, _ in scores):
        cells = []
        for method in methods:
            values = scores.get((data, method), [])
            error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            cells.append(f"{np.mean(values):.3f} ± {error:.3f}" if values else "")
        print(f"| {data} | " + " | ".join(cells) + " |")


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["lengths", "gaps", "table"])
    parser.add_argument("--data", type=Path, help="folder of the complete sets")
    parser.add_argument("--sets", nargs="*", default=[], help="names of sets; all by default")
    parser.add_argument("--csv", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    if options.part == "table":
        table(options.csv)
    elif options.part == "lengths":
        run(tasks_of_lengths(options.sets), options.csv)
    else:
        run(tasks_of_gaps(options.data, options.sets), options.csv)


if __name__ == "__main__":
    main()
