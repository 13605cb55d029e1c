"""What can be chosen about the experiment, and the two scales at which it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

__all__ = ["OURS", "SCALES", "Settings", "make_settings"]

OURS = "tracelearn"

# The sizes of a scale, the seconds that each algorithm may learn, and those of the study of mini-batches.
SCALES: dict[str, dict[str, Any]] = {
    "quick": {"n_train": 50_000, "n_test": 10_000, "budget": 10.0, "study_seconds": 6.0},
    "full": {"n_train": 200_000, "n_test": 40_000, "budget": 180.0, "study_seconds": 60.0},
}


def expect(holds: bool, sentence: str) -> None:
    """Refuse a setting in one sentence."""
    if not holds:
        raise ValueError(f"Expected {sentence}")


@dataclass(frozen=True)
class Settings:
    """Everything that decides a run; ``make_settings`` fills in what follows from the scale."""

    scale: str = "quick"
    n_train: int = 50_000
    n_test: int = 10_000
    n_batch: int = 2_000
    shape: tuple[int, ...] = (10, 10, 10)
    max_rank: int = 4
    seed: int = 0
    budget: float = 10.0
    study_seconds: float = 6.0
    batch_size: int = 100
    max_iter_per_update: int = 10
    inner_iter_per_update: int = 5
    points_per_decade: int = 12
    eta: float = 1.0
    tol: float = 1e-6

    def __post_init__(self) -> None:
        sizes = self.n_train, self.n_test, self.n_batch
        expect(
            min(sizes) >= 2 and self.n_batch <= self.n_train,
            "at least 2 tensors for training, testing and batch learning, and no more for batch learning than for "
            f"training, got {self.n_train}, {self.n_test} and {self.n_batch}.",
        )
        expect(
            math.isfinite(self.budget) and self.budget > 0,
            f"a budget above 0 seconds, got {self.budget:g}.",
        )
        expect(self.max_rank >= 2, f"a largest rank of at least 2, got {self.max_rank}: one rank leaves no task.")
        expect(
            1 <= self.batch_size <= self.n_train,
            f"a batch size from 1 to the {self.n_train} training tensors, got {self.batch_size}.",
        )
        expect(self.max_iter_per_update >= 1, f"at least 1 iteration per update, got {self.max_iter_per_update}.")
        expect(
            self.inner_iter_per_update >= 1,
            f"at least 1 inner iteration per update, got {self.inner_iter_per_update}.",
        )
        expect(self.seed >= 0, f"a seed of at least 0, got {self.seed}.")


def make_settings(scale: str, *, budget: float | None = None, **options: Any) -> Settings:
    """Fill in the sizes of a scale and, unless a budget is given, its learning time."""
    sizes = dict(SCALES[scale])
    if budget is not None:
        sizes["budget"] = budget
    return Settings(scale, n_batch=min(2_000, sizes["n_train"]), **sizes, **options)
