"""Learning from a stream: test, then train, solve again now and then, and survive being killed."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tracelearn.errors import InputError, refuse
from tracelearn.io import open_source
from tracelearn.streaming.checkpoints import Checkpoints, Point, State, first_difference

__all__ = ["Point", "StreamReport", "first_difference", "stream"]

_REFRESH_SAMPLES = 1000


@dataclass(frozen=True)
class StreamReport:
    """What came of a stream so far.

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
        Learns in place. With ``forgetting`` below 1, every batch multiplies the weight of all earlier samples.
    classes : array of labels, default=None
        All classes that can occur; None adds them as they occur.
    refresh_samples : int, default=None
        Solve again after so many samples, at the end of a batch; None is 1,000, or never with ``refresh_seconds``.
    refresh_seconds : float, default=None
        Solve again after so many seconds. A resumed run then has other moments of refresh, hence equal weights to ``tol``
        only.
    checkpoint : folder, default=None
        Where to keep the last two checkpoints; made if it is not there. One run at a time: it holds a lock on the folder,
        which ends with the process.
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
    counts = {"refresh_samples": (refresh_samples, 1), "max_samples": (max_samples, 1)}
    seconds = {"refresh_seconds": (refresh_seconds, 0), "checkpoint_seconds": (checkpoint_seconds, 0)}
    for name, (value, least) in (counts | seconds).items():
        refuse(value is not None and not value >= least, f"Expected {name} of at least {least}, got {value}.")
    refuse(
        resume and checkpoint is None,
        "Expected the folder of the checkpoints to resume from, got checkpoint=None: name it.",
    )
    refuse(
        not hasattr(model, "_refresh"),
        f"Expected TraceNormRegressor or TraceNormClassifier, got {type(model).__name__}: call partial_fit in a loop for others "
        "that have it.",
    )
    refuse(
        not hasattr(model, "partial_fit"),
        f"Expected loss='squared_error' for a stream, got {getattr(model, 'loss', None)!r}: only its statistics add "
        "up.",
    )
    model._validate_params()
    if refresh_samples is None and refresh_seconds is None:
        refresh_samples = _REFRESH_SAMPLES
    store = None if checkpoint is None else Checkpoints(Path(checkpoint), checkpoint_seconds, trusted)
    with store or nullcontext():
        state = State() if store is None else store.begin(model, resume=resume)
        run = _Run(model, state, store, refresh_samples or math.inf, refresh_seconds, on_refresh)
        try:
            run.follow(_batches(source, state.n_seen, max_samples), classes)
        except KeyboardInterrupt:
            return run.finish(interrupted=True)
        except Exception:
            run.rescue()
            raise
        return run.finish(interrupted=False)


class _Run:
    """A model on its path through a source."""

    def __init__(
        self,
        model: Any,
        state: State,
        store: Checkpoints | None,
        refresh_samples: float,
        refresh_seconds: float | None,
        on_refresh: Callable[[StreamReport], None] | None,
    ) -> None:
        self.model, self.store, self.on_refresh = model, store, on_refresh
        self.refresh_samples = refresh_samples
        self.refresh_seconds = math.inf if refresh_seconds is None else refresh_seconds
        self.began = self.refreshed = time.monotonic()
        self.resumed_from = None if store is None or store.newest is None else state.n_seen
        # Model and state change together: whatever is raised in between, the last pair is what counts.
        self.kept = state, dict(vars(model))

    def follow(self, batches: Iterator[tuple[Any, ...]], classes: Any) -> None:
        """Test and train on every batch, and refresh where it is due."""
        model = self.model
        for X, y, weight, confounds in batches:
            errors, grown = _test_and_train(model, X, y, weight, confounds, classes)
            state = self.kept[0].learned(len(X), errors)
            late = time.monotonic() - self.refreshed >= self.refresh_seconds
            if (grown or late or state.since >= self.refresh_samples) and _can_solve(model):
                model._refresh()
                state = state.refreshed()
            self.kept = state, dict(vars(model))
            if state.since == 0:
                self.refreshed = time.monotonic()
                if self.store is not None and self.store.is_due():
                    self.store.write(state, model)
                if self.on_refresh is not None:
                    self.on_refresh(self.report(state))

    def restore(self) -> State:
        """Take model and state back to where they last agreed."""
        state, attributes = self.kept
        self.model.__dict__ = dict(attributes)  # one step, which a second Ctrl-C cannot cut in two
        return state

    def rescue(self) -> None:
        """Keep what was learned before something went wrong; that is what is raised, whatever comes of this."""
        state = self.restore()
        if self.store is not None and state.n_seen:
            with suppress(Exception):
                self.store.write(state, self.model)

    def finish(self, *, interrupted: bool) -> StreamReport:
        """Write the last checkpoint and solve for the last time."""
        state, model = self.restore(), self.model
        if not hasattr(model, "moments_"):
            if interrupted:
                raise KeyboardInterrupt
            raise InputError("Expected at least one sample in the source, got none: there is nothing to learn from.")
        if self.store is not None:
            self.store.write(state, model)
        if not _can_solve(model):
            raise InputError(
                f"Expected at least two classes in the source, got one, {model.classes_.tolist()[0]!r}: there is nothing to "
                "tell apart yet."
            )
        if state.since:  # after the checkpoint: a run that goes on from it solves where it would have solved
            model._refresh()
            state = state.refreshed()
        return self.report(state, interrupted)

    def report(self, state: State, interrupted: bool = False) -> StreamReport:
        """Say what came of it so far."""
        seconds = time.monotonic() - self.began
        return StreamReport(state.n_seen, state.curve, seconds, state.n_refreshes, self.resumed_from, interrupted)


def _can_solve(model: Any) -> bool:
    """Whether there are two classes at least, for those who tell classes apart."""
    return len(getattr(model, "classes_", (0, 1))) > 1


def _test_and_train(
    model: Any, X: Any, y: Any, weight: Any, confounds: Any, classes: Any
) -> tuple[Sequence[float], bool]:
    """Predict a batch, then learn it; return its error and weight, and whether the weights no longer fit the classes.

    The error of a sample is 0 or 1 for labels, else squared and averaged over targets.
    """
    known = len(getattr(model, "classes_", ()))
    predicted = model.predict(X, confounds) if hasattr(model, "coef_") else None
    model._learn(X, y, weight, classes, confounds, grow=True)
    if predicted is None:
        return (0.0, 0.0), False
    if hasattr(model, "classes_"):
        wrong = (np.ravel(y) != predicted).astype(np.float64)
    else:
        wrong = np.mean((np.reshape(y, (len(X), -1)) - np.reshape(predicted, (len(X), -1))) ** 2, axis=1)
    share = np.ones(len(wrong)) if weight is None else np.asarray(weight, dtype=np.float64)
    return (float(share @ wrong), float(share.sum())), len(getattr(model, "classes_", ())) != known


# --- the source -------------------------------------------------------------------------------------------------------


def _opened(source: Any, start: int) -> tuple[Any, int]:
    """Open a source, a function of the first sample wanted, or an iterable; return batches and the sample they begin at."""
    source = open_source(source) if isinstance(source, str | os.PathLike) else source
    if hasattr(source, "batches"):
        return source.batches(start), start
    return (source(start), start) if callable(source) else (source, 0)


def _batches(source: Any, start: int, max_samples: int | None) -> Iterator[tuple[Any, ...]]:
    """Read the samples from one on, up to a number of them; the first and the last batch are cut, none is empty."""
    stop = sys.maxsize if max_samples is None else max_samples
    items, seen = _opened(source, start) if start < stop else ((), start)
    for item in items:
        refuse(
            not isinstance(item, tuple | list) or len(item) not in (2, 3, 4),
            f"Expected batches (X, y), (X, y, weight) or (X, y, weight, confounds), got {type(item).__name__}: make the source "
            "yield such tuples.",
        )
        X, y, *more = item
        part = slice(max(start - seen, 0), min(len(X), stop - seen))
        seen += len(X)
        if part.start < part.stop:
            rest = [None if own is None else own[part] for own in more]
            yield X[part], y[part], *rest, *[None] * (2 - len(rest))
        if seen >= stop:
            return
    refuse(
        seen < start,
        f"Expected a source of at least the {start} samples that the checkpoint has learned, got {seen}: pass the source as it "
        "was, from its beginning.",
    )
