"""Intervals for predicted numbers, from what folds held out: CV+ (Barber, Candès, Ramdas and Tibshirani, 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.search.paths import Path
from tracelearn.search.splits import SplitSamples

__all__ = ["HeldOutResiduals", "held_out_residuals", "interval"]

_ENTRIES = 4_000_000  # predictions that are sorted together


@dataclass(frozen=True, eq=False)
class HeldOutResiduals:
    """The models of all folds, and by how much each was off on what it held out."""

    coefs: Array  # (F, K, p), for samples as the chosen views show them
    intercepts: Array  # (F, K)
    sizes: Array  # (n, K), of residuals
    folds: Array  # (n,), which fold held each sample out


def held_out_residuals(path: Path, split: SplitSamples) -> HeldOutResiduals | None:
    """Gather the residuals of the best point of a path; None where folds see samples in their own ways, as with confounds."""
    if split.coordinates is None or split.rows_of_fold is not None:
        return None
    coefs, intercepts = split.in_sample_units(path.models)
    codes = to_numpy(split.targets.codes)
    tests = [test for _, test in split.folds.splits]
    sizes = [np.abs(to_numpy(scores) - codes[test]) for scores, test in zip(path.held_out, tests, strict=True)]
    folds = np.repeat(np.arange(len(tests)), [len(test) for test in tests])
    return HeldOutResiduals(to_numpy(coefs), to_numpy(intercepts), split.target_unit * np.concatenate(sizes), folds)


def interval(rows: Array, residuals: HeldOutResiduals, level: float) -> tuple[Array, Array]:
    """Bound the targets (n, K) of rows (n, p), as the chosen views show them, from below and above.

    A held-out sample bounds a new target by the prediction of the model of its fold, give or take its own residual. At least
    ``2 level - 1`` of new targets are inside, whatever their distribution, and in practice about ``level``.
    """
    rows = to_numpy(rows)
    m = len(residuals.folds)
    K = residuals.coefs.shape[1]
    place = math.ceil(level * (m + 1)) - 1
    if place >= m:
        raise ValueError(
            f"Expected a level of at most {m / (m + 1):.3g} with {m} held-out samples, got {level:g}: choose a lower one."
        )
    lower, upper = np.empty((len(rows), K)), np.empty((len(rows), K))
    step = max(1, _ENTRIES // m)
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        for k in range(K):
            of_folds: Any = rows[block] @ residuals.coefs[:, k, :].T + residuals.intercepts[:, k]
            predicted = of_folds[:, residuals.folds]
            lower[block, k] = -np.partition(residuals.sizes[:, k] - predicted, place, axis=1)[:, place]
            upper[block, k] = np.partition(predicted + residuals.sizes[:, k], place, axis=1)[:, place]
    return lower, upper
