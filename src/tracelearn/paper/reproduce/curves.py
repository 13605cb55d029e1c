"""Curves over learning time: what an algorithm scores, and when, with the scoring itself off the clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracelearn.datasets import make_rank_tensors
from tracelearn.paper.algorithms import Iterate
from tracelearn.paper.reproduce.settings import Settings

__all__ = ["Curve", "Data", "follow", "make_data"]

# Tensors are drawn block by block: the memory of a whole draw is several times that of its result.
_BLOCK = 2_000


@dataclass(frozen=True, eq=False)
class Data:
    """Training and test tensors with their ranks."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    eta: float

    def score(self, W: Any, b: float) -> tuple[float, float]:
        """Return the mean squared error on the test tensors, and the share that is less than ``eta`` off."""
        error = self.X_test.reshape(len(self.y_test), -1) @ np.ravel(W) + b - self.y_test
        return float(np.mean(error**2)), float(np.mean(np.abs(error) < self.eta))


def _draw(n: int, settings: Settings, stream: int, on_drawn: Callable[[int], None]) -> tuple[Any, Any]:
    X, y = np.empty((n, *settings.shape)), np.empty(n)
    # A seed for each block and stream: a smaller draw is then the beginning of a larger one.
    seeds = np.random.SeedSequence((settings.seed, stream)).generate_state(-(-n // _BLOCK))
    for start, seed in zip(range(0, n, _BLOCK), seeds, strict=True):
        block = slice(start, min(start + _BLOCK, n))
        tensors, ranks = make_rank_tensors(
            _BLOCK, shape=settings.shape, ranks=(1, settings.max_rank), random_state=int(seed)
        )
        X[block], y[block] = tensors[: block.stop - start], ranks[: block.stop - start]
        on_drawn(block.stop - start)
    return X, y


def make_data(settings: Settings, on_drawn: Callable[[int], None] = lambda n: None) -> Data:
    """Draw the training and the test tensors, from two independent streams of the seed."""
    X, y = _draw(settings.n_train, settings, 0, on_drawn)
    X_test, y_test = _draw(settings.n_test, settings, 1, on_drawn)
    return Data(X, y, X_test, y_test, settings.eta)


@dataclass
class Curve:
    """Scores at growing learning times; ``steps`` are iterations, or updates where an algorithm learns online."""

    seconds: list[float] = field(default_factory=list)
    n_seen: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    mse: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    converged: bool = False
    diverged: bool = False

    def add(self, seconds: float, n_seen: int, steps: int, score: tuple[float, float]) -> None:
        """Append a point."""
        self.seconds.append(seconds)
        self.n_seen.append(n_seen)
        self.steps.append(steps)
        self.mse.append(score[0])
        self.accuracy.append(score[1])

    def as_dict(self) -> dict[str, Any]:
        """Write out the points, the last and the best of them."""
        return {
            "seconds": self.seconds,
            "n_seen": self.n_seen,
            "steps": self.steps,
            "mse": self.mse,
            "accuracy": self.accuracy,
            "final_mse": self.mse[-1],
            "final_accuracy": self.accuracy[-1],
            "best_mse": min(self.mse),
            "best_accuracy": max(self.accuracy),
            "converged": self.converged,
            "diverged": self.diverged,
        }


def follow(
    iterates: Iterator[Iterate],
    score: Callable[[Any, float], tuple[float, float]],
    *,
    budget: float,
    points_per_decade: int,
    on_time: Callable[[float], None] = lambda seconds: None,
) -> tuple[Curve, Iterate]:
    """Let an algorithm learn for ``budget`` seconds and score it at geometrically spaced times on the way.

    Only the time inside ``next(iterates)`` counts. Returns the curve, the first and the last iterate always among its
    points, and the last iterate.
    """
    curve, clock, due, count = Curve(), 0.0, 0.0, 0
    last: Iterate | None = None
    scored: Iterate | None = None

    def record(iterate: Iterate) -> None:
        found = score(iterate.W, iterate.b)
        curve.diverged = not math.isfinite(found[0])
        if not curve.diverged:  # JSON has no infinity, and a curve no place for it
            curve.add(clock, int(iterate.n_seen), count, found)

    # A step that is too long overflows: that is a result of the experiment, not a mistake of the program.
    with np.errstate(over="ignore", invalid="ignore"):
        while clock < budget and not curve.diverged:
            start = time.perf_counter()
            following = next(iterates, None)
            clock += time.perf_counter() - start
            if following is None:
                break
            last, count = following, count + 1
            if clock >= due:
                record(last)
                scored, due = last, clock * 10.0 ** (1.0 / points_per_decade)
            on_time(clock)
        if last is None:
            raise ValueError("Expected at least one iterate, got none.")
        if scored is not last:
            record(last)
    curve.converged = last.converged and not curve.diverged
    return curve, last
