"""Where a run stands, and the folder that remembers it.

Invariant: a checkpoint is the whole state between two batches - moments, last solution, position in the source, curve - so
that a run that goes on from it does exactly what the run that wrote it would have done. One run at a time has a folder.
"""

from __future__ import annotations

import logging
import os
import re
import time
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tracelearn.files.models import DamagedFileError, pack, unpack, write_atomically
from tracelearn.streaming.locks import FileLock

__all__ = ["Checkpoints", "Point", "State", "Tally", "first_difference"]

logger = logging.getLogger("tracelearn")

_NAME = re.compile(r"checkpoint-(\d+)\.tracelearn")


@dataclass(frozen=True)
class Point:
    """One point of a prequential curve: the error on the samples since the point before, and on all so far."""

    n_seen: int
    error: float
    cumulative_error: float


@dataclass(frozen=True)
class Tally:
    """A weighted sum of errors."""

    error: float = 0.0
    weight: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.error + other.error, self.weight + other.weight)

    @property
    def mean(self) -> float:
        """The mean error."""
        return self.error / self.weight


@dataclass(frozen=True)
class State:
    """Where a run stands between two batches, beside the model."""

    n_seen: int = 0
    since: int = 0  # samples since the last refresh
    n_refreshes: int = 0
    lately: Tally = field(default_factory=Tally)  # since the last point of the curve
    ever: Tally = field(default_factory=Tally)
    curve: tuple[Point, ...] = ()

    def learned(self, n_samples: int, tally: Tally) -> State:
        """Count a batch that was tested and learned."""
        return replace(
            self,
            n_seen=self.n_seen + n_samples,
            since=self.since + n_samples,
            lately=self.lately + tally,
            ever=self.ever + tally,
        )

    def refreshed(self) -> State:
        """Count a refresh, and draw a point if anything was tested since the last one."""
        curve = self.curve
        if self.lately.weight > 0.0:
            curve = (*curve, Point(self.n_seen, self.lately.mean, self.ever.mean))
        return replace(self, since=0, n_refreshes=self.n_refreshes + 1, lately=Tally(), curve=curve)

    def to_plain(self) -> dict[str, Any]:
        """Write the state as numbers and an array."""
        points = np.array([(p.n_seen, p.error, p.cumulative_error) for p in self.curve], dtype=np.float64).reshape(
            -1, 3
        )
        tallies = {name: [tally.error, tally.weight] for name, tally in (("lately", self.lately), ("ever", self.ever))}
        return {
            "n_seen": self.n_seen,
            "since": self.since,
            "n_refreshes": self.n_refreshes,
            **tallies,
            "curve": points,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> State:
        """Read what ``to_plain`` wrote."""
        return cls(
            n_seen=int(plain["n_seen"]),
            since=int(plain["since"]),
            n_refreshes=int(plain["n_refreshes"]),
            lately=Tally(*map(float, plain["lately"])),
            ever=Tally(*map(float, plain["ever"])),
            curve=tuple(Point(int(n), float(error), float(ever)) for n, error, ever in plain["curve"]),
        )


class Checkpoints:
    """A folder with the last two checkpoints of a run, which is the only one there while it runs."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.seconds = seconds
        self.written = time.monotonic()
        self.failed = False
        self.good: list[Path] = []  # oldest first
        self._lock = FileLock(folder / ".lock")

    def __enter__(self) -> Self:
        self._make_folder()
        if not self._lock.acquire():
            raise ValueError(
                f"Expected a folder that no other run is using, got {self.folder}, where one is writing its checkpoints: wait "
                "for its end, or choose another folder."
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()

    @property
    def newest(self) -> Path | None:
        """The last one that was written, or read."""
        return self.good[-1] if self.good else None

    def begin(self, model: Any, *, resume: bool) -> State:
        """Find where to start, and put the model there."""
        found = self._found()
        if found and not resume:
            raise ValueError(
                f"Expected a folder without checkpoints, got {self.folder} with some of another run: go on from them with "
                "resume=True, or choose an empty folder."
            )
        for leftover in self.folder.glob(".checkpoint-*.tmp"):  # of a run that was killed while writing
            leftover.unlink(missing_ok=True)
        if not found:
            pack("checkpoint", {"model": model})  # what cannot be written is refused now, not after hours
            if resume:
                logger.info("no checkpoint in %s: starting from the first sample", self.folder)
            return State()
        state, saved = self._newest_good(found)
        _adopt(model, saved)
        logger.info("resuming from %s, after %d samples", self.newest, state.n_seen)
        return state

    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough."""
        return time.monotonic() - self.written >= self.seconds

    def write(self, state: State, model: Any) -> None:
        """Write a checkpoint, unless this one is there, and remove all but the last two."""
        path = self.folder / f"checkpoint-{state.n_seen:015d}.tracelearn"
        if path == self.newest:
            return
        try:
            write_atomically(path, pack("checkpoint", {"model": model, **state.to_plain()}))
        except Exception:
            self.failed = True
            raise
        self.good = [*self.good, path][-2:]
        self.written = time.monotonic()
        for old in self._found():
            if old not in self.good:
                old.unlink(missing_ok=True)

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise OSError(
                f"Expected a folder to write checkpoints to, got {self.folder} ({error.strerror}): choose another one."
            ) from error

    def _found(self) -> list[Path]:
        """List the checkpoints, newest first."""
        numbers = {path: _NAME.fullmatch(path.name) for path in self.folder.iterdir()}
        return sorted((path for path, match in numbers.items() if match), key=lambda path: path.name, reverse=True)

    def _newest_good(self, found: list[Path]) -> tuple[State, Any]:
        for path in found:
            try:
                kind, plain = unpack(path)
                if kind != "checkpoint":
                    raise DamagedFileError(f"Expected a checkpoint, got a file of kind {kind}, {path}.")
                try:
                    state, saved = State.from_plain(plain), plain["model"]
                    saved.get_params()  # fails where one is missing
                except (AttributeError, ValueError, OverflowError) as error:
                    raise DamagedFileError(
                        f"Expected the state of a stream, got another in {path} ({error})."
                    ) from error
            except (DamagedFileError, OSError, KeyError, TypeError) as error:
                warnings.warn(f"Skipping a damaged checkpoint: {error}", UserWarning, stacklevel=4)
                continue
            self.good = [path]
            return state, saved
        raise ValueError(
            f"Expected a checkpoint that is whole, got {len(found)} damaged ones in {self.folder}: choose an empty folder to "
            "start again."
        )


def _adopt(model: Any, saved: Any) -> None:
    """Give the model what a saved one has learned, if both have the same parameters."""
    if type(model) is not type(saved):
        raise ValueError(
            f"Expected the model of the checkpoint, a {type(saved).__name__}, got a {type(model).__name__}: pass the same, or "
            "choose an empty folder."
        )
    name = first_difference(model, saved)
    if name is not None:
        raise ValueError(
            f"Expected the parameters of the checkpoint, {name}={getattr(saved, name)!r}, got {name}={getattr(model, name)!r}: "
            "pass the same, or choose an empty folder."
        )
    model.__dict__ = {**vars(saved), **model.get_params()}


def first_difference(model: Any, other: Any, ignored: Collection[str] = ()) -> str | None:
    """Name a parameter that two models of one class do not share, of those that change results and are not ignored."""
    own, others = model.get_params(), other.get_params()
    names = (name for name in own if name not in ("verbose", "random_state", *ignored))
    return next((name for name in names if not np.array_equal(own[name], others[name])), None)
