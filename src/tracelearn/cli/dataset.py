"""The samples that are fitted: read whole where they fit in memory, and cut into folds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, check_cv

from tracelearn.arrays.memory import available_memory
from tracelearn.cli.mistakes import MistakeError
from tracelearn.cli.progress import Bar
from tracelearn.cli.shared import missing_targets
from tracelearn.samples import Source

__all__ = ["Dataset", "Splits", "check_folds", "draw_folds", "read"]

Splits = list[tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Some samples of a source that is too large for memory; every pass reads them anew."""

    source: Source
    keep: NDArray[np.bool_]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        first = 0
        for X, y, _ in self.source.batches():
            kept = self.keep[first : first + len(X)]
            first += len(X)
            if kept.any():
                yield X[kept], y[kept]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples, in memory if they fit, with their targets and groups."""

    X: NDArray[Any] | Source
    y: NDArray[Any]
    groups: NDArray[Any] | None

    def fit(self, model: Any, rows: NDArray[Any] | None = None) -> Any:
        """Fit a model to all samples, or to some."""
        if not isinstance(self.X, Source):
            return model.fit(self.X, self.y) if rows is None else model.fit(self.X[rows], self.y[rows])
        return model.fit(self.X if rows is None else _Rows(self.X, self._mask(rows)))

    def predict(self, model: Any, rows: NDArray[Any]) -> NDArray[Any]:
        """Predict some samples, in their order in the file."""
        if not isinstance(self.X, Source):
            return np.asarray(model.predict(self.X[rows]))
        return np.concatenate([model.predict(X) for X, _ in _Rows(self.X, self._mask(rows))])

    def _mask(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        mask = np.zeros(len(self.y), dtype=bool)
        mask[rows] = True
        return mask


def _targets_of(source: Source, data: Path) -> NDArray[Any]:
    parts = [y for y, _ in source.targets()]
    if parts[0] is None:
        raise missing_targets(data)
    return np.concatenate(parts)


def read(source: Source, groups: Source | None, data: Path, bar: Bar) -> Dataset:
    """Read what fits in memory, and leave the rest where it is; groups are targets of the same file."""
    try:
        y = _targets_of(source, data)
        named = None if groups is None else _targets_of(groups, data)
        shape, dtype = source.sample_shape, source.dtype
        assert shape is not None
        assert dtype is not None
        size = len(y) * math.prod(shape) * dtype.itemsize
        # Folds are copies of the samples, and so is what a solver widens.
        fits = 4 * size <= available_memory()
        batches = bar.follow("reading", source.batches(), source.n_samples)
        X = np.concatenate([X for X, _, _ in batches]) if fits else source
    except (ValueError, ImportError) as error:
        raise MistakeError(str(error)) from error
    return Dataset(X, y, named)


def draw_folds(data: Dataset, cv: int, task: str) -> Splits:
    """Draw folds as the CV estimators do; groups stay together."""
    is_classifier = task == "classification"
    if data.groups is None:
        splitter = check_cv(cv, data.y, classifier=is_classifier)
    else:
        splitter = (StratifiedGroupKFold if is_classifier else GroupKFold)(cv)
    return list(splitter.split(np.zeros(len(data.y)), data.y, data.groups))


def check_folds(data: Dataset, cv: int, task: str) -> None:
    """Refuse what cannot be cross-validated, before anything is learned."""
    if task == "classification" and data.y.ndim != 1:
        raise MistakeError(
            f"Expected one label for each sample, got targets of shape {data.y.shape}: choose one column, or say --task "
            "regression."
        )
    if data.groups is not None and len(np.unique(data.groups)) < cv:
        raise MistakeError(
            f"Expected at least {cv} groups for {cv} folds, got {len(np.unique(data.groups))}: choose a smaller --cv."
        )
    if task != "classification":
        if len(data.y) < 2 * cv:
            raise MistakeError(
                f"Expected at least {2 * cv} samples for {cv} folds, got {len(data.y)}: choose a smaller --cv."
            )
        return
    labels, counts = np.unique(data.y, return_counts=True)
    if len(labels) < 2:
        raise MistakeError(f"Expected at least two classes, got one, {labels[0]!s}: add samples of another class.")
    if counts.min() < cv:
        rare = labels[np.argmin(counts)]
        raise MistakeError(
            f"Expected at least {cv} samples of each class for {cv} folds, got {counts.min()} of {rare!s}: choose a smaller "
            "--cv, or leave that class out."
        )
