"""The mini-batch study: what a sample costs in batches of growing size, with Kronecker products and with BLAS.

The paper sums Kronecker squares sample by sample (Eq. 28), finds that larger mini-batches are slower, and predicts a
speed-up by the size of the batch if that cost vanished. Here the same update is timed both ways.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tracelearn.arrays.tensors import kronecker
from tracelearn.moments import Moments
from tracelearn.paper.algorithms import Constants, Iterate, algorithm1
from tracelearn.paper.reproduce.curves import Data
from tracelearn.paper.reproduce.settings import Settings

__all__ = ["SIZES", "study"]

SIZES = (1, 10, 100, 1000)


def _seconds_each(action: Callable[[], object], limit: float) -> float:
    """Time an action: the median over repetitions until ``limit`` seconds, at least one and at most fifty."""
    times: list[float] = []
    while not times or (sum(times) < limit and len(times) < 50):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _kronecker_seconds(X: Any, limit: float) -> tuple[float, int]:
    """Time ``B += X ⊗ X`` sample by sample until ``limit`` seconds; return the median, and the samples timed."""
    past = kronecker(X[0], X[0])
    times: list[float] = []
    for tensor in X:
        start = time.perf_counter()
        past += kronecker(tensor, tensor)
        times.append(time.perf_counter() - start)
        if sum(times) > limit:
            break
    return float(np.median(times)), len(times)


def _learn(past: Moments, model: Iterate | None, settings: Settings) -> Iterate:
    """Make one capped update of APG_ADM, lines 11 to 19 of Algorithm 2."""
    start = None if model is None else Iterate(model.W, model.b)
    constants = Constants(inner="adm", inner_iter=settings.inner_iter_per_update)
    for iterate in algorithm1(past, settings.shape, constants, start):
        model = iterate
        if iterate.n_iter >= settings.max_iter_per_update:
            break
    assert model is not None
    return model


def study(data: Data, settings: Settings, on_share: Callable[[float], None] = lambda share: None) -> dict[str, Any]:
    """Measure seconds a sample of the statistics, and samples a second of whole updates, for growing batches.

    The past is that of the batch problem, so an update costs what it costs in the middle of a stream. A Kronecker sum
    is linear in the batch by its nature: where the whole batch would take too long, a part of it is timed.
    """
    past = Moments.of(data.X[: settings.n_batch], data.y[: settings.n_batch])
    model = _learn(past, None, settings)
    sizes = [size for size in SIZES if size <= settings.n_train]
    limit = settings.study_seconds / (3 * len(sizes))
    rows: list[dict[str, float]] = []
    for k, size in enumerate(sizes):
        X, y = data.X[:size], data.y[:size]
        kron, timed = _kronecker_seconds(X if size > 1 else data.X[:20], limit)
        blas = _seconds_each(lambda X=X, y=y: past.updated(X, y), limit) / size  # type: ignore[misc]
        after = past.updated(X, y)
        learning = _seconds_each(lambda after=after: _learn(after, model, settings), limit)  # type: ignore[misc]
        rows.append(
            {
                "batch_size": size,
                "kronecker_seconds_per_sample": kron,
                "kronecker_samples_timed": timed,
                "blas_seconds_per_sample": blas,
                "iterations_seconds_per_update": learning,
                "kronecker_samples_per_second": size / (size * kron + learning),
                "blas_samples_per_second": size / (size * blas + learning),
            }
        )
        on_share((k + 1) / len(sizes))
    first = rows[0]
    for row in rows:
        for kind in ("kronecker", "blas"):
            row[f"{kind}_speedup"] = row[f"{kind}_samples_per_second"] / first[f"{kind}_samples_per_second"]
    return {"rows": rows}
