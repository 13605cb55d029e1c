"""Nested cross-validation: every entry sees the same folds, chooses on the inner ones, is judged on the outer ones."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

from benchmarks.panel.data import DataSet
from benchmarks.panel.entries import ENTRIES, Folds, score

OUTER, INNER = 5, 5
SMALL, DRAWS = 100, 10  # sets of so few samples are split so often: one split says little about them


@dataclass(frozen=True)
class Result:
    """One entry on one set: a score and the seconds of a fit for each outer fold."""

    data: str
    entry: str
    scores: tuple[float, ...]
    seconds: tuple[float, ...]
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def folds(data: DataSet, rows: np.ndarray, count: int, seed: int) -> Folds:
    """Split some samples: classes in equal shares, groups whole."""
    X, y = np.zeros(len(rows)), data.y[rows]
    if data.groups is not None:
        count = min(count, len(np.unique(data.groups[rows])))
        grouped = GroupKFold if data.classes is None else StratifiedGroupKFold
        splitter: Any = grouped(count, shuffle=True, random_state=seed)
        return list(splitter.split(X, y, data.groups[rows]))
    kind = KFold if data.classes is None else StratifiedKFold
    return list(kind(count, shuffle=True, random_state=seed).split(X, y))


def tasks(
    data: DataSet, repeats: int, entries: list[str] | None = None, first: int = 0
) -> Iterator[tuple[str, int, int]]:
    """List what is to be run, the outer folds of one entry together; small sets are split more often."""
    for entry in entries or ENTRIES:
        for repeat in range(first, first + max(repeats, DRAWS if len(data.y) <= SMALL else 1)):
            for fold in range(OUTER):
                yield entry, repeat, fold


@cache
def _outer(data: DataSet, repeat: int) -> Folds:
    return folds(data, np.arange(len(data.y)), OUTER, repeat)


def run(data: DataSet, entry: str, repeat: int, fold: int) -> tuple[float, float] | None:
    """Fit one entry on one outer fold; None where the entry is not for such data."""
    train, test = _outer(data, repeat)[fold]
    model = ENTRIES[entry](data, folds(data, train, INNER, 1000 + repeat))
    if model is None:
        return None
    began = time.process_time()  # which other work on the machine does not change
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers warn of iterations that we gave them; their scores stand as they are
        takes_groups = data.groups is not None and entry == "tracelearn"
        model.fit(data.X[train], data.y[train], **({"groups": data.groups[train]} if takes_groups else {}))
    took = time.process_time() - began
    predicted = model.predict(data.X[test], **({"groups": data.groups[test]} if takes_groups else {}))
    return score(data, data.y[test], np.ravel(predicted)), took


def difference(one: Result, other: Result) -> tuple[float, float]:
    """Mean of the paired differences over outer folds, and its standard error.

    The folds share training samples, so their differences are not independent: the variance is enlarged by the ratio of
    test to training samples (Nadeau and Bengio, 2003).
    """
    apart = np.array(one.scores) - np.array(other.scores)
    variance = np.var(apart, ddof=1) * (1 / len(apart) + 1 / (OUTER - 1))
    return float(apart.mean()), float(np.sqrt(variance))


def ranks(results: list[Result], entries: list[str]) -> np.ndarray:
    """Rank the entries on every set that all of them ran on, 1 is best: an array (sets, entries)."""
    from scipy.stats import rankdata

    table = {(result.data, result.entry): float(np.mean(result.scores)) for result in results}
    sets = [name for name in dict.fromkeys(r.data for r in results) if all((name, e) in table for e in entries)]
    return np.array([rankdata([-table[name, entry] for entry in entries]) for name in sets])
