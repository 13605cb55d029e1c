"""How far a stream has come, and the folder that remembers it.

Invariant: a checkpoint is the whole state between two batches - the model with its moments and last solution, the position in the
source, the errors so far - so that a run that goes on from it does exactly what the run that wrote it would have done. One run
at a time has a folder.
"""

from __future__ import annotations

import logging
import math
import os
import re
import stat
import time
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tracelearn.errors import InputError, expect, refuse, warn
from tracelearn.io.model_header import DamagedFileError
from tracelearn.io.models import pack, unpack
from tracelearn.io.writing import write_atomically
from tracelearn.optional import require

__all__ = ["CheckpointFolder", "Learned", "Point", "checkpoints_in", "differing_parameter"]

logger = logging.getLogger("tracelearn")

_NAME = re.compile(r"checkpoint-(\d+)\.tracelearn")
# Parameters that may differ from those of the checkpoint: what is learned from more samples does not depend on them.
_WITHOUT_EFFECT = ("verbose", "random_state", "keep_moments", "warm_start")


@dataclass(frozen=True)
class Point:
    """One point of a prequential curve: the error on the samples since the point before, and on all so far."""

    n_seen: int
    error: float
    cumulative_error: float


@dataclass(frozen=True, eq=False)
class Learned:
    """A model between two batches of a stream, how far it has come, and how well it predicted on the way.

    Errors are sums over samples, with their weights; those since the last refresh, and all.
    """

    model: Any
    n_samples: int = 0
    n_since_refresh: int = 0
    n_refreshes: int = 0
    error_since_refresh: float = 0.0
    weight_since_refresh: float = 0.0
    total_error: float = 0.0
    total_weight: float = 0.0
    curve: tuple[Point, ...] = ()

    def with_batch(self, model: Any, n_samples: int, error: float, weight: float) -> Learned:
        """Count a batch that was predicted, with some error, and that a model has learned."""
        return replace(
            self,
            model=model,
            n_samples=self.n_samples + n_samples,
            n_since_refresh=self.n_since_refresh + n_samples,
            error_since_refresh=self.error_since_refresh + error,
            weight_since_refresh=self.weight_since_refresh + weight,
            total_error=self.total_error + error,
            total_weight=self.total_weight + weight,
        )

    def refreshed(self) -> Learned:
        """Count a refresh of the model, and draw a point if anything was predicted since the last one."""
        curve = self.curve
        if self.weight_since_refresh > 0.0:
            recent_error = self.error_since_refresh / self.weight_since_refresh
            curve = (*curve, Point(self.n_samples, recent_error, self.total_error / self.total_weight))
        return replace(
            self,
            n_since_refresh=0,
            n_refreshes=self.n_refreshes + 1,
            error_since_refresh=0.0,
            weight_since_refresh=0.0,
            curve=curve,
        )


class CheckpointFolder:
    """A folder with the last two checkpoints of a stream; while it is open, no other run has it.

    Parameters
    ----------
    folder : made if it is not there
    seconds : how old the last checkpoint must be for the next to be due
    trusted : classes that are not ours and that a checkpoint may hold
    """

    def __init__(self, folder: Path, seconds: float, trusted: Iterable[type] = ()) -> None:
        self.folder = folder
        self._seconds = seconds
        self._trusted = tuple(trusted)
        self._written_at = time.monotonic()
        self._whole: list[Path] = []  # checkpoints that were written or read by this run, oldest first
        # The lock ends with the process, however it ends. Its file is never removed: a lock on a removed file guards nothing.
        self._lock = require("filelock", "stream").FileLock(folder / ".lock", timeout=0)

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK):
                raise PermissionError(13, "Permission denied")
            self._lock.acquire()
        except TimeoutError:
            raise InputError(
                f"Expected a folder that no other run is using, got {self.folder}, where one is writing its checkpoints: wait "
                "for its end, or choose another folder."
            ) from None
        except OSError as error:
            raise OSError(
                f"Expected a folder to write checkpoints to, got {self.folder} ({error.strerror}): choose another one."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()

    def begin(self, model: Any, *, resume: bool) -> Learned | None:
        """Read the newest checkpoint that is whole, or None to begin with the first sample."""
        paths = checkpoints_in(self.folder)
        for path in paths:  # writing through a link would change another file, and opening a pipe would block
            refuse(
                not stat.S_ISREG(path.lstat().st_mode),
                f"Expected files of checkpoints in {self.folder}, got {path.name}, which is a link, a pipe or a device: remove "
                "it.",
            )
        refuse(
            paths and not resume,
            f"Expected a folder without checkpoints, got {self.folder} with some of another run: resume from them, or choose an "
            "empty folder.",
        )
        for path in self.folder.glob(".checkpoint-*.tmp"):  # of a run that was killed while writing
            path.unlink(missing_ok=True)
        if not paths:
            pack("checkpoint", {"model": model})  # refuse now what cannot be written, not after hours of learning
            if resume:
                logger.info("no checkpoint in %s: starting from the first sample", self.folder)
            return None
        saved = self._read_newest(paths)
        _check_same_parameters(model, saved.model)
        logger.info("resuming from %s, after %d samples", self._whole[-1], saved.n_samples)
        saved.model.set_params(**model.get_params(deep=False))
        return saved

    def is_due(self) -> bool:
        """Tell whether the last checkpoint is so old that another one is to be written."""
        return time.monotonic() - self._written_at >= self._seconds

    def write(self, learned: Learned) -> None:
        """Write a checkpoint, unless this one was written before, and remove all but the last two."""
        path = self.folder / f"checkpoint-{learned.n_samples:015d}.tracelearn"
        if self._whole and path == self._whole[-1]:
            return
        points = np.array([astuple(point) for point in learned.curve]).reshape(-1, 3)  # a long curve, as one array
        write_atomically(path, pack("checkpoint", {**vars(learned), "curve": points}))
        self._whole = [*self._whole, path][-2:]
        self._written_at = time.monotonic()
        for old in checkpoints_in(self.folder):
            if old not in self._whole:
                old.unlink(missing_ok=True)

    def _read_newest(self, paths: list[Path]) -> Learned:
        """Read the first of these checkpoints, newest first, that is not damaged."""
        for path in paths:
            try:
                learned = _read(path, self._trusted)
            except (DamagedFileError, OSError) as error:
                warn(f"Skipping a damaged checkpoint: {error}")
                continue
            self._whole = [path]
            return learned
        raise InputError(
            f"Expected a checkpoint that is whole, got {len(paths)} damaged ones in {self.folder}: choose an empty folder to "
            "start again."
        )


def checkpoints_in(folder: Path) -> list[Path]:
    """List the checkpoints of a folder, newest first; none where there is no folder."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in paths if _NAME.fullmatch(path.name)), reverse=True)


def _read(path: Path, trusted: Iterable[type]) -> Learned:
    """Read a checkpoint and check that it holds a model, counts and sums."""
    kind, state = unpack(path, trusted)
    if kind != "checkpoint":
        raise DamagedFileError(f"Expected a checkpoint, got a file of kind {kind}, {path}.")
    try:
        points = (Point(int(n_seen), error, mean) for n_seen, error, mean in state["curve"].tolist())
        learned = Learned(**{**state, "curve": tuple(points)})
        learned.model.get_params(deep=False)  # fails where it is no estimator
        for name, start in vars(Learned(None)).items():
            value = getattr(learned, name)
            is_number = type(start) in (int, float)
            expect(not is_number or (type(value) is type(start) and 0 <= value < math.inf), f"no {name}")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedFileError(f"Expected the state of a stream, got another in {path} ({error}).") from error
    return learned


def _check_same_parameters(model: Any, saved: Any) -> None:
    """Refuse to go on with another model than that of a checkpoint."""
    refuse(
        type(model) is not type(saved),
        f"Expected the model of the checkpoint, a {type(saved).__name__}, got a {type(model).__name__}: pass the same, or choose "
        "an empty folder.",
    )
    name = differing_parameter(model, saved)
    if name is not None:
        raise InputError(
            f"Expected the parameters of the checkpoint, {name}={_in_one_line(getattr(saved, name))}, got "
            f"{name}={_in_one_line(getattr(model, name))}: pass the same, or choose an empty folder."
        )


def _in_one_line(value: Any) -> str:
    """Write a parameter in one short line; one from a file may be of any length."""
    return " ".join(repr(value).split())[:100]


def differing_parameter(model: Any, other: Any) -> str | None:
    """Name a parameter in which two models of one class differ and on which further learning depends; None without one."""
    values = model.get_params(deep=False)
    other_values = other.get_params(deep=False)
    for name, value in values.items():
        if name not in _WITHOUT_EFFECT and not _are_equal(value, other_values[name]):
            return str(name)
    return None


def _are_equal(value: Any, other: Any) -> bool:
    """Compare parameters; as objects, since NumPy 2.1 does not compare text with numbers."""
    first, second = np.asarray(value, dtype=object), np.asarray(other, dtype=object)
    return np.array_equal(np.atleast_1d(first), np.atleast_1d(second))
