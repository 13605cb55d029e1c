"""What can be chosen about the experiment, and the two scales at which it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["ALGORITHMS", "OURS", "SCALES", "Algorithm", "Scale", "Settings", "make_settings"]

OURS = "tracelearn"


@dataclass(frozen=True)
class Algorithm:
    """One of the paper's six: which inner solver, and how it meets the data (``batch``, ``online``, ``minibatch``)."""

    name: str
    inner: str
    feed: str


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("APG_DR", "dr", "batch"),
        Algorithm("OL_APG_DR", "dr", "online"),
        Algorithm("APG_ADM", "adm", "batch"),
        Algorithm("OL_APG_ADM", "adm", "online"),
        Algorithm("OL_APG_DR_miniBatch", "dr", "minibatch"),
        Algorithm("OL_APG_ADM_miniBatch", "adm", "minibatch"),
    )
}


@dataclass(frozen=True)
class Scale:
    """The sizes that a scale stands for, and the learning time that each algorithm gets."""

    n_train: int
    n_test: int
    budget: float
    study_seconds: float


SCALES = {
    "quick": Scale(n_train=50_000, n_test=10_000, budget=10.0, study_seconds=6.0),
    "full": Scale(n_train=200_000, n_test=40_000, budget=180.0, study_seconds=60.0),
}


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
        if not (math.isfinite(self.budget) and self.budget > 0):
            raise ValueError(f"Expected a budget above 0 seconds, got {self.budget:g}.")
        if self.max_rank < 2:
            raise ValueError(f"Expected a largest rank of at least 2, got {self.max_rank}: one rank leaves no task.")
        if not 1 <= self.batch_size <= self.n_train:
            raise ValueError(
                f"Expected a batch size from 1 to the {self.n_train} training tensors, got {self.batch_size}."
            )
        if self.max_iter_per_update < 1:
            raise ValueError(f"Expected at least 1 iteration per update, got {self.max_iter_per_update}.")
        if self.inner_iter_per_update < 1:
            raise ValueError(f"Expected at least 1 inner iteration per update, got {self.inner_iter_per_update}.")
        if self.seed < 0:
            raise ValueError(f"Expected a seed of at least 0, got {self.seed}.")
        if min(self.n_train, self.n_test, self.n_batch) < 2 or self.n_batch > self.n_train:
            raise ValueError(
                f"Expected at least 2 tensors for training, testing and batch learning, and no more for batch learning "
                f"than for training, got {self.n_train}, {self.n_test} and {self.n_batch}."
            )


def make_settings(scale: str, *, budget: float | None = None, **options: object) -> Settings:
    """Fill in the sizes of a scale and, unless a budget is given, its learning time."""
    if scale not in SCALES:
        raise ValueError(f"Expected a scale of {' or '.join(SCALES)}, got {scale!r}.")
    sizes = SCALES[scale]
    return Settings(
        scale=scale,
        n_train=sizes.n_train,
        n_test=sizes.n_test,
        n_batch=min(2_000, sizes.n_train),
        budget=sizes.budget if budget is None else budget,
        study_seconds=sizes.study_seconds,
        **options,  # type: ignore[arg-type]
    )
