"""Learning from a stream: test, then train, solve again now and then, and survive being killed."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.errors import refuse
from tracelearn.estimators import TraceNormClassifier, TraceNormRegressor
from tracelearn.io.checkpoints import CheckpointFolder, Learned, Point
from tracelearn.io.opening import open_source

__all__ = ["StreamReport", "stream"]

_REFRESH_SAMPLES = 1000  # unless the user says otherwise


@dataclass(frozen=True)
class StreamReport:
    """The results of a stream so far.

    ``n_samples`` and ``n_refreshes`` count those before a resume too; ``seconds`` are of this run. Every point of ``curve``
    is an error on samples that the model had not learned yet: mean squared error for numbers, share of wrong labels for
    classes. Samples that came before there was a model are not in it. ``resumed_from`` is the sample at which this run
    began, or None; ``interrupted`` says whether Ctrl-C ended it.

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor, stream
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(900, (4, 3), rank=1, random_state=0)
    >>> report = stream([(X[:600], y[:600]), (X[600:], y[600:])], TraceNormRegressor(alpha=0.1), refresh_samples=300)
    >>> report.n_samples, [point.n_seen for point in report.curve], report.interrupted
    (900, [900], False)
    """

    n_samples: int
    curve: Sequence[Point]
    seconds: float
    n_refreshes: int
    resumed_from: int | None = None
    interrupted: bool = False


# --- the stream -------------------------------------------------------------------------------------------------------


def stream(
    source: Any,
    model: Any,
    *,
    classes: Any = None,
    refresh_samples: int | None = None,
    refresh_seconds: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    resume: bool = False,
    max_samples: int | None = None,
    on_refresh: Callable[[StreamReport], None] | None = None,
    trusted: Iterable[type] = (),
) -> StreamReport:
    """Learn from a source of batches, endless or not, and measure how well, batch by batch.

    Each batch is first predicted with the weights of the moment, then its moments are added, as in ``partial_fit``; now and
    then the weights are solved for again. At the end - of the source, at ``max_samples``, or at Ctrl-C - they are solved for
    a last time: the model is then that of all samples, to ``tol``, and can be used at once.

    Parameters
    ----------
    source : iterable of (X, y), (X, y, weight) or (X, y, weight, confounds), a function from the number of samples to skip to
        one, or a source. Confounds (n,) or (n, n_confounds) are regressed out of all samples so far, from joint moments, and a
        weight may be None. Files hold none.
        To resume, batches must come again as they came; with a function or a source, those that were learned are not read.
    model : TraceNormRegressor or TraceNormClassifier with the squared loss
        Is fitted at every refresh. With ``forgetting`` below 1, every batch multiplies the weight of all earlier samples.
    classes : array of labels, default=None
        All classes that can occur; None adds them as they occur.
    refresh_samples : int, default=None
        Solve again after so many samples, at the end of a batch; None is 1,000, or never with ``refresh_seconds``.
    refresh_seconds : float, default=None
        Solve again after so many seconds. A resumed run then has other moments of refresh, hence equal weights to ``tol``
        only.
    checkpoint : folder, default=None
        Where to keep the last two checkpoints; made if it is not there. One run at a time: it holds a lock on the folder,
        which ends with the process. Needs filelock.
    checkpoint_seconds : float, default=30.0
        Write one at a refresh if the last is so old; 0 writes one at every refresh.
    resume : bool, default=False
        Continue from the newest valid checkpoint. Every sample is learned once, also after a crash.
    max_samples : int, default=None
        Stop after so many samples, those before a resume included.
    on_refresh : function of a StreamReport, default=None
        Called after every refresh.
    trusted : classes that are not ours and that a checkpoint to resume from may hold, such as a penalty of your own
        As in ``load``: they are given what the file says they consist of.

    Returns
    -------
    StreamReport

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor, stream
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(3000, (4, 3), rank=1, random_state=0)
    >>> batches = [(X[i : i + 100], y[i : i + 100]) for i in range(0, 3000, 100)]
    >>> model = TraceNormRegressor(alpha=0.1)
    >>> report = stream(batches, model, refresh_samples=500)
    >>> report.n_samples, report.n_refreshes, [point.n_seen for point in report.curve]
    (3000, 6, [1000, 1500, 2000, 2500, 3000])
    """
    _check_model(model)
    _check_least("refresh_samples", refresh_samples, 1)
    _check_least("max_samples", max_samples, 1)
    _check_least("refresh_seconds", refresh_seconds, 0)
    _check_least("checkpoint_seconds", checkpoint_seconds, 0)
    refuse(
        resume and checkpoint is None,
        "Expected the folder of the checkpoints to resume from, got checkpoint=None: name it.",
    )
    if refresh_samples is None:
        refresh_samples = _REFRESH_SAMPLES if refresh_seconds is None else sys.maxsize
    open_folder: Any = nullcontext()
    if checkpoint is not None:
        open_folder = CheckpointFolder(Path(checkpoint), checkpoint_seconds, trusted)
    with open_folder as folder:
        saved = None if folder is None else folder.begin(model, resume=resume)
        run = _Run(
            model=model,
            learned=saved or Learned(copy(model)),
            folder=folder,
            refresh_samples=refresh_samples,
            refresh_seconds=math.inf if refresh_seconds is None else refresh_seconds,
            on_refresh=on_refresh,
            resumed_from=None if saved is None else saved.n_samples,
            began_at=time.monotonic(),
        )
        interrupted = False
        try:
            run.follow(_batches(source, run.learned.n_samples, max_samples), classes)
        except KeyboardInterrupt:
            interrupted = True
        except Exception:
            run.rescue()
            raise
        return run.finish(interrupted=interrupted)


@dataclass
class _Run:
    """One run over a source, from a checkpoint or from nothing.

    ``learned`` is replaced as a whole after every batch, so that it is consistent whenever an error is raised. ``model`` is the
    user's, which receives what was learned at every refresh and at the end.
    """

    model: Any
    learned: Learned
    folder: CheckpointFolder | None
    refresh_samples: int
    refresh_seconds: float
    on_refresh: Callable[[StreamReport], None] | None
    resumed_from: int | None
    began_at: float

    def follow(self, batches: Iterator[tuple[Any, ...]], classes: Any) -> None:
        """Learn batch by batch; refresh, write checkpoints and report where that is due."""
        refreshed_at = self.began_at
        for batch in batches:
            is_late = time.monotonic() - refreshed_at >= self.refresh_seconds
            self.learned = _learn(self.learned, batch, classes, refresh_after=0 if is_late else self.refresh_samples)
            if self.learned.n_since_refresh == 0:
                refreshed_at = time.monotonic()
                self._hand_over()
                if self.folder is not None and self.folder.is_due():
                    self.folder.write(self.learned)
                if self.on_refresh is not None:
                    self.on_refresh(self._report())

    def rescue(self) -> None:
        """Keep what was learned before an error; an error in doing so must not replace the first one."""
        self._hand_over()
        if self.folder is not None and self.learned.n_samples:
            with suppress(Exception):
                self.folder.write(self.learned)

    def finish(self, *, interrupted: bool) -> StreamReport:
        """Write the last checkpoint, and solve for the last time."""
        self._hand_over()
        if interrupted and not self.learned.n_samples:
            raise KeyboardInterrupt
        refuse(
            not self.learned.n_samples,
            "Expected at least one sample in the source, got none: there is nothing to learn from.",
        )
        if self.folder is not None:
            self.folder.write(self.learned)
        refuse(
            not _can_solve(self.model),
            "Expected at least two classes in the source, got one: there is nothing to tell apart yet.",
        )
        if self.learned.n_since_refresh:
            # After the checkpoint: a run that goes on from it solves where it would have solved.
            self.model.refresh()
            self.learned = replace(self.learned, model=self.model).refreshed()
        return self._report(interrupted=interrupted)

    def _hand_over(self) -> None:
        """Give the user's model what was learned so far."""
        self.model.__setstate__(self.learned.model.__getstate__())

    def _report(self, *, interrupted: bool = False) -> StreamReport:
        n_samples, n_refreshes = self.learned.n_samples, self.learned.n_refreshes
        seconds = time.monotonic() - self.began_at
        return StreamReport(n_samples, self.learned.curve, seconds, n_refreshes, self.resumed_from, interrupted)


def _check_model(model: Any) -> None:
    refuse(
        not isinstance(model, TraceNormRegressor | TraceNormClassifier),
        f"Expected TraceNormRegressor or TraceNormClassifier, got {type(model).__name__}: call partial_fit in a loop for others "
        "that have it.",
    )
    refuse(
        not hasattr(model, "accumulate"),
        f"Expected loss='squared_error' for a stream, got {model.loss!r}: only its statistics add up.",
    )


def _check_least(name: str, value: float | None, least: int) -> None:
    refuse(value is not None and not value >= least, f"Expected {name} of at least {least}, got {value}.")


def _learn(before: Learned, batch: tuple[Any, ...], classes: Any, *, refresh_after: int) -> Learned:
    """Predict a batch, learn it, and solve for the weights after so many samples, or where there are more classes."""
    X, y, weight, confounds = batch
    has_weights = hasattr(before.model, "coef_")
    error = total_weight = 0.0
    if has_weights:
        errors = _errors(y, before.model.predict(X, confounds), for_classes=hasattr(before.model, "classes_"))
        weights = np.ones(len(errors)) if weight is None else np.asarray(weight, dtype=np.float64)
        error, total_weight = float(weights @ errors), float(np.sum(weights))
    model = copy(before.model)
    model.accumulate(X, y, weight, confounds, classes=classes)
    learned = before.with_batch(model, len(X), error, total_weight)
    is_due = learned.n_since_refresh >= refresh_after or (has_weights and _n_classes(model) > _n_classes(before.model))
    if is_due and _can_solve(model):
        model.refresh()
        return learned.refreshed()
    return learned


def _errors(y: Any, predicted: Any, *, for_classes: bool) -> NDArray[np.float64]:
    """Find the error of each prediction: of a label 0 or 1, of numbers their square, averaged over targets."""
    if for_classes:
        return np.asarray(np.ravel(y) != predicted, dtype=np.float64)
    n = len(predicted)
    return np.asarray(np.mean((np.reshape(y, (n, -1)) - np.reshape(predicted, (n, -1))) ** 2, axis=1))


def _n_classes(model: Any) -> int:
    return len(getattr(model, "classes_", ()))


def _can_solve(model: Any) -> bool:
    """Tell whether weights can be solved for: targets are numbers, or of at least two classes."""
    return _n_classes(model) != 1


# --- the source -------------------------------------------------------------------------------------------------------


def _opened(source: Any, start: int) -> tuple[Any, int]:
    """Open a source, a function of the first sample wanted, or an iterable; return batches and the sample they begin at."""
    source = open_source(source) if isinstance(source, str | os.PathLike) else source
    if hasattr(source, "batches"):
        return source.batches(start), start
    return (source(start), start) if callable(source) else (source, 0)


def _batches(source: Any, start: int, max_samples: int | None) -> Iterator[tuple[Any, ...]]:
    """Read batches (X, y, weight, confounds) from a sample on, up to a number of them.

    The first and the last batch are cut, and none is empty.
    """
    stop = sys.maxsize if max_samples is None else max_samples
    batches, n_read = _opened(source, start) if start < stop else ((), start)
    for batch in batches:
        refuse(
            not isinstance(batch, tuple | list) or len(batch) not in (2, 3, 4),
            f"Expected batches (X, y), (X, y, weight) or (X, y, weight, confounds), got {type(batch).__name__}: make the source "
            "yield such tuples.",
        )
        X, y, weight, confounds = (*batch, None, None)[:4]
        rows = slice(max(start - n_read, 0), min(len(X), stop - n_read))
        n_read += len(X)
        if rows.start < rows.stop:
            yield (
                X[rows],
                y[rows],
                None if weight is None else weight[rows],
                None if confounds is None else confounds[rows],
            )
        if n_read >= stop:
            return
    refuse(
        n_read < start,
        f"Expected a source of at least the {start} samples that the checkpoint has learned, got {n_read}: pass the source as it "
        "was, from its beginning.",
    )
