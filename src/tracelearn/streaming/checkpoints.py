"""Where a run stands, and the folder that remembers it.

Invariant: a checkpoint is the whole state between two batches - moments, last solution, position in the source, curve - so
that a run that goes on from it does exactly what the run that wrote it would have done. One run at a time has a folder.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tracelearn.errors import InputError, refuse, warn
from tracelearn.files.header import DamagedFileError
from tracelearn.files.models import pack, unpack, write_atomically
from tracelearn.streaming.locks import FileLock

__all__ = ["Checkpoints", "Curve", "Point", "State", "first_difference"]

logger = logging.getLogger("tracelearn")

_NAME = re.compile(r"checkpoint-(\d+)\.tracelearn")
_COUNTS = ("n_seen", "since", "n_refreshes")


@dataclass(frozen=True)
class Point:
    """One point of a prequential curve: the error on the samples since the point before, and on all so far."""

    n_seen: int
    error: float
    cumulative_error: float


class Curve(Sequence[Point]):
    """The first points of a list that only grows: one point more costs one point, however long the curve is.

    Examples
    --------
    >>> from tracelearn.streaming.checkpoints import Curve, Point
    >>> one = Curve().then(Point(10, 0.5, 0.5))
    >>> two = one.then(Point(20, 0.25, 0.375))
    >>> len(one), two[-1]
    (1, Point(n_seen=20, error=0.25, cumulative_error=0.375))
    """

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._points = points if isinstance(points, list) else list(points)
        self._length = len(self._points)

    def then(self, point: Point) -> Curve:
        """Add a point; only where another curve has added one after these, these are copied."""
        points = self._points if len(self._points) == self._length else self._points[: self._length]
        points.append(point)
        return Curve(points)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        chosen = range(self._length)[index]
        return self._points[chosen] if isinstance(chosen, int) else [self._points[k] for k in chosen]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class State:
    """Where a run stands between two batches, in addition to the model.

    ``errors`` has two rows, for the samples since the last point of the curve and for all: their errors, summed with their
    weights, and their weights.
    """

    n_seen: int = 0
    since: int = 0  # samples since the last refresh
    n_refreshes: int = 0
    errors: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 2)))
    curve: Curve = field(default_factory=Curve)

    def learned(self, n_samples: int, errors: Sequence[float]) -> State:
        """Count a batch that was tested and learned, with its error and its weight."""
        n_seen, since = self.n_seen + n_samples, self.since + n_samples
        return replace(self, n_seen=n_seen, since=since, errors=self.errors + errors)

    def refreshed(self) -> State:
        """Count a refresh, and draw a point if anything was tested since the last one."""
        curve, (error, weight) = self.curve, self.errors.T
        if weight[0] > 0.0:
            curve = curve.then(Point(self.n_seen, *map(float, error / weight)))
        return State(self.n_seen, 0, self.n_refreshes + 1, self.errors * [[0.0], [1.0]], curve)

    def to_plain(self) -> dict[str, Any]:
        """Write the state as numbers and an array."""
        lately, ever = self.errors.tolist()
        curve = np.array([astuple(point) for point in self.curve], dtype=np.float64).reshape(-1, 3)
        counts = {name: getattr(self, name) for name in _COUNTS}
        return {**counts, "lately": lately, "ever": ever, "curve": curve}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> State:
        """Read what ``to_plain`` wrote."""
        errors = np.array([plain["lately"], plain["ever"]], dtype=np.float64).reshape(2, 2)
        points = (Point(int(n), float(error), float(ever)) for n, error, ever in plain["curve"])
        n_seen, since, n_refreshes = (int(plain[name]) for name in _COUNTS)
        return cls(n_seen, since, n_refreshes, errors, Curve(points))


class Checkpoints:
    """A folder with the last two checkpoints of a run, which is the only one there while it runs."""

    def __init__(self, folder: Path, seconds: float, trusted: Iterable[type] = ()) -> None:
        self.folder, self.seconds, self.written = folder, seconds, time.monotonic()
        self.trusted = tuple(trusted)  # classes that are not ours and that a checkpoint may hold
        self.good: list[Path] = []  # oldest first
        self._lock = FileLock(folder / ".lock")

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK):
                raise PermissionError(13, "Permission denied")
            held = self._lock.acquire()
        except OSError as error:
            raise OSError(
                f"Expected a folder to write checkpoints to, got {self.folder} ({error.strerror}): choose another one."
            ) from error
        refuse(
            not held,
            f"Expected a folder that no other run is using, got {self.folder}, where one is writing its checkpoints: wait for "
            "its end, or choose another folder.",
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
        for path in found:  # a link would be written through, and a pipe waited at
            refuse(
                not stat.S_ISREG(path.lstat().st_mode),
                f"Expected files of checkpoints in {self.folder}, got {path.name}, which is a link, a pipe or a device: remove "
                "it.",
            )
        refuse(
            found and not resume,
            f"Expected a folder without checkpoints, got {self.folder} with some of another run: resume from them, or choose an "
            "empty folder.",
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
        write_atomically(path, pack("checkpoint", {"model": model, **state.to_plain()}))
        self.good, self.written = [*self.good, path][-2:], time.monotonic()
        for old in self._found():
            if old not in self.good:
                old.unlink(missing_ok=True)

    def _found(self) -> list[Path]:
        """List the checkpoints, newest first."""
        return sorted((path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)

    def _newest_good(self, found: list[Path]) -> tuple[State, Any]:
        for path in found:
            try:
                state, saved = _read(path, self.trusted)
            except (DamagedFileError, OSError) as error:
                warn(f"Skipping a damaged checkpoint: {error}")
                continue
            self.good = [path]
            return state, saved
        raise InputError(
            f"Expected a checkpoint that is whole, got {len(found)} damaged ones in {self.folder}: choose an empty folder to "
            "start again."
        )


def _read(path: Path, trusted: Iterable[type]) -> tuple[State, Any]:
    """Read state and model of a checkpoint."""
    kind, plain = unpack(path, trusted)
    if kind != "checkpoint":
        raise DamagedFileError(f"Expected a checkpoint, got a file of kind {kind}, {path}.")
    try:
        state, saved = State.from_plain(plain), plain["model"]
        saved.get_params()  # fails where one is missing
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedFileError(f"Expected the state of a stream, got another in {path} ({error}).") from error
    return state, saved


def _shown(model: Any, name: str) -> str:
    """Write a parameter in one line: that of a file may be anything."""
    return " ".join(repr(getattr(model, name)).split())[:100]


def _adopt(model: Any, saved: Any) -> None:
    """Give the model what a saved one has learned, if both have the same parameters."""
    refuse(
        type(model) is not type(saved),
        f"Expected the model of the checkpoint, a {type(saved).__name__}, got a {type(model).__name__}: pass the same, or choose "
        "an empty folder.",
    )
    name = first_difference(model, saved)
    if name is not None:
        raise InputError(
            f"Expected the parameters of the checkpoint, {name}={_shown(saved, name)}, got {name}={_shown(model, name)}: "
            "pass the same, or choose an empty folder."
        )
    model.__dict__ = {**vars(saved), **model.get_params()}


def first_difference(model: Any, other: Any, ignored: Collection[str] = ()) -> str | None:
    """Name a parameter that two models of one class do not share, of those that change results and are not ignored."""
    own, others = model.get_params(), other.get_params()
    names = (name for name in own if name not in ("verbose", "random_state", *ignored))
    return next((name for name in names if not _equal(own[name], others[name])), None)


def _equal(one: Any, other: Any) -> bool:
    """Compare parameters; as objects, since NumPy 2.1 does not compare text with numbers."""
    a, b = (np.atleast_1d(np.asarray(part, dtype=object)) for part in (one, other))
    return np.array_equal(a, b)
