"""What every question shares: rows of the table, clocks that take turns, races to one objective error."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np

from tracelearn.penalties import Split


@dataclass
class Row:
    """One line of the table. ``ratio`` is what the aim speaks of; ``bound`` says that it is at least that large."""

    question: str
    case: str
    measure: str
    ratio: float | None
    aim: str = ""
    met: bool | None = None
    ours: float | None = None
    other: float | None = None
    bound: bool = False
    note: str = ""
    extra: dict = field(default_factory=dict)

    def as_dict(self) -> dict:
        return asdict(self)


def at_most(limit: float, ratio: float) -> dict:
    return {"aim": f"≤ {limit:g}", "met": ratio <= limit}


def at_least(limit: float, ratio: float, bound: bool = False) -> dict:
    """Judge a ratio; one that is only a lower bound and below the aim says nothing."""
    return {"aim": f"≥ {limit:g}", "met": None if bound and ratio < limit else ratio >= limit, "bound": bound}


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated runs."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.seconds), max(self.seconds)


def timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def interleaved(runs: Mapping[str, Callable[[], object]], repeats: int, warm: bool = True) -> dict[str, Timing]:
    """Time several things in turns, a b c a b c, so that what disturbs the machine disturbs all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + warm):
        for name, run in runs.items():
            gc.collect()
            taken = timed(run)
            if turn >= warm:  # the first turn pays for imports, pages and threads
                seconds[name].append(taken)
    return {name: Timing(tuple(taken)) for name, taken in seconds.items()}


class Stop(Exception):  # noqa: N818 - it is no error
    """Raised inside a peer's callback, where a race is over."""


@dataclass(frozen=True)
class Arrival:
    """When a peer arrived at the wanted error, or where it was when its time was up."""

    seconds: float
    error: float
    arrived: bool
    note: str = ""


class Race:
    """A stopwatch for iterates. It stands still while the objective is computed, so that watching costs nothing."""

    def __init__(self, error: Callable[[np.ndarray], float], target: float, limit: float) -> None:
        self.error, self.target, self.limit = error, target, limit
        self.best = math.inf
        self.every, self.calls = 1, 0
        self.restart()

    def restart(self) -> None:
        """Set the clock to zero; what was seen stays."""
        self.began, self.lost = time.perf_counter(), 0.0

    def trial(self, limit: float) -> Race:
        """Return a race of its own, for tuning outside the clock."""
        return Race(self.error, self.target, limit)

    def now(self) -> float:
        return time.perf_counter() - self.began - self.lost

    def look(self, at: float, W: np.ndarray, split: Split | None) -> float:
        """Measure an iterate."""
        return self.error(W)

    def __call__(self, W: np.ndarray, split: Split | None = None) -> None:
        """Look at an iterate; raise ``Stop`` where the race is over."""
        self.calls += 1
        at = self.now()
        if self.calls % self.every == 0 or at >= self.limit:
            self.best = min(self.best, self.look(at, W, split))
            if self.best > 30.0 * self.target:  # far away still: look less often, within two per cent of the count
                self.every = max(1, self.calls // 50)
            else:
                self.every = 1
        self.lost = time.perf_counter() - self.began - at
        if self.best <= self.target or at >= self.limit:
            raise Stop

    def run(self, peer: Callable[..., object], *args: object) -> Arrival:
        """Let a peer run until it arrives, gives up, or its time is up."""
        gc.collect()
        self.restart()
        try:
            peer(*args, self)
        except Stop:
            pass
        return Arrival(self.now(), self.best, self.best <= self.target)


def seconds(value: float | None) -> str:
    """Write seconds for reading."""
    if value is None:
        return ""
    if value < 0.1:
        return f"{1e3 * value:.3g} ms"
    return f"{value:.3g} s"


def markdown(rows: list[Row]) -> str:
    """Write the table."""
    lines = [
        "| question | case | ratio | aim | met | ours | other | note |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = "–" if row.ratio is None else f"{'≥ ' if row.bound else ''}{row.ratio:.3g}"
        met = {True: "yes", False: "**no**", None: ""}[row.met]
        lines.append(
            f"| {row.question} | {row.case} | {row.measure}: {ratio} | {row.aim} | {met} | {seconds(row.ours)} "
            f"| {seconds(row.other)} | {row.note} |"
        )
    return "\n".join(lines) + "\n"
