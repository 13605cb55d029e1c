"""Learning from a stream: test, then train, solve again now and then, and survive being killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array
from tracelearn.samples import open_source
from tracelearn.streaming.checkpoints import Checkpoints, Point, State, Tally, first_difference

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
    curve: tuple[Point, ...]
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
) -> StreamReport:
    """Learn from a source of batches, endless or not, and measure how well on the way.

    Each batch is first predicted with the weights of the moment, then its moments are added, as in ``partial_fit``; now and
    then the weights are solved for again. At the end - of the source, at ``max_samples``, or at Ctrl-C - they are solved for
    a last time: the model is then that of all samples, to ``tol``, and can be used at once.

    Parameters
    ----------
    source : iterable of (X, y) or (X, y, weight), a function from the number of samples to skip to one, or a source
        To resume, batches must come again as they came; with a function or a source, those that were learned are not read.
    model : TraceNormRegressor or TraceNormClassifier with the squared loss
        Learns in place. With ``forgetting`` below 1, every batch multiplies the weight of all earlier samples.
    classes : array of labels, default=None
        All that will ever come; None takes them as they come.
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
        Go on from the newest checkpoint that is good. Every sample is learned once, also after a crash.
    max_samples : int, default=None
        Stop after so many samples, those before a resume included.
    on_refresh : function of a StreamReport, default=None
        Called after every refresh.

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
    _check_options(refresh_samples, refresh_seconds, checkpoint_seconds, max_samples, resume and checkpoint is None)
    _check_model(model)
    store = None if checkpoint is None else Checkpoints(Path(checkpoint), checkpoint_seconds)
    with store or nullcontext():
        state = State() if store is None else store.begin(model, resume=resume)
        run = _Run(model, state, store, classes, _Rhythm(refresh_samples, refresh_seconds), on_refresh)
        try:
            run.follow(_limited(source, state.n_seen, max_samples))
        except KeyboardInterrupt:
            return run.finish(interrupted=True)
        except Exception:
            run.rescue()
            raise
        return run.finish(interrupted=False)


class _Run:
    """A model on its way through a source."""

    def __init__(
        self,
        model: Any,
        state: State,
        store: Checkpoints | None,
        classes: Any,
        rhythm: _Rhythm,
        on_refresh: Callable[[StreamReport], None] | None,
    ) -> None:
        self.model, self.store, self.classes, self.rhythm, self.on_refresh = model, store, classes, rhythm, on_refresh
        self.began = time.monotonic()
        self.resumed_from = None if store is None or store.newest is None else state.n_seen
        # Model and state change together: whatever is raised in between, the last pair is what counts.
        self.kept = state, dict(vars(model))

    def follow(self, batches: Iterator[tuple[Any, Any, Any]]) -> None:
        """Test and train on every batch, and refresh where it is due."""
        model = self.model
        for X, y, weight in batches:
            tally, grown = _test_and_train(model, X, y, weight, self.classes)
            state = self.kept[0].learned(len(X), tally)
            if (grown or self.rhythm.is_due(state)) and _can_solve(model):
                model._refresh()
                state = state.refreshed()
            self.kept = state, dict(vars(model))
            if state.since == 0:
                self.rhythm.restart()
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
        """Keep what was learned before something went wrong, unless it is the checkpoints that did."""
        state = self.restore()
        if self.store is not None and not self.store.failed and state.n_seen:
            self.store.write(state, self.model)

    def finish(self, *, interrupted: bool) -> StreamReport:
        """Write the last checkpoint and solve for the last time."""
        state, model = self.restore(), self.model
        if not hasattr(model, "moments_"):
            if interrupted:
                raise KeyboardInterrupt
            raise ValueError("Expected at least one sample in the source, got none: there is nothing to learn from.")
        if self.store is not None:
            self.store.write(state, model)
        if not _can_solve(model):
            raise ValueError(
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


def _check_options(
    refresh_samples: int | None,
    refresh_seconds: float | None,
    checkpoint_seconds: float,
    max_samples: int | None,
    lost: bool,
) -> None:
    if lost:
        raise ValueError("Expected the folder of the checkpoints to resume from, got checkpoint=None: name it.")
    for name, value, least in (
        ("refresh_samples", refresh_samples, 1),
        ("refresh_seconds", refresh_seconds, 0),
        ("checkpoint_seconds", checkpoint_seconds, 0),
        ("max_samples", max_samples, 1),
    ):
        if value is not None and not value >= least:
            raise ValueError(f"Expected {name} of at least {least}, got {value}.")


def _check_model(model: Any) -> None:
    if not hasattr(model, "_refresh"):
        raise ValueError(
            f"Expected TraceNormRegressor or TraceNormClassifier, got {type(model).__name__}: call partial_fit in a loop for "
            "others that have it."
        )
    if model.loss != "squared":
        raise ValueError(
            f"Expected loss='squared' for a stream, got {model.loss!r}: only the squared loss has statistics that add."
        )
    model._validate_params()


def _can_solve(model: Any) -> bool:
    """Whether there are two classes at least, for those who tell classes apart."""
    return len(getattr(model, "classes_", (0, 1))) > 1


def _test_and_train(model: Any, X: Any, y: Any, weight: Any, classes: Any) -> tuple[Tally, bool]:
    """Predict a batch, then learn it; return the errors, and whether the weights no longer fit the classes."""
    solved = hasattr(model, "coef_")
    known = len(getattr(model, "classes_", ()))
    predicted = model.predict(X) if solved else None
    model._learn(X, y, weight, classes, grow=True)
    grown = solved and len(getattr(model, "classes_", ())) != known
    if predicted is None:
        return Tally(), grown
    wrong = _errors(np.asarray(y), predicted, labels=hasattr(model, "classes_"))
    share = np.ones(len(wrong)) if weight is None else np.asarray(weight, dtype=np.float64)
    return Tally(float(share @ wrong), float(share.sum())), grown


def _errors(y: Array, predicted: Array, *, labels: bool) -> Array:
    """Measure the error of each sample: 0 or 1 for labels, else squared and averaged over targets."""
    if labels:
        return (np.ravel(y) != predicted).astype(np.float64)
    return np.mean((y.reshape(len(y), -1) - predicted.reshape(len(y), -1)) ** 2, axis=1)


class _Rhythm:
    """Decide when to solve again."""

    def __init__(self, samples: int | None, seconds: float | None) -> None:
        self.samples = _REFRESH_SAMPLES if samples is None and seconds is None else samples
        self.seconds = seconds
        self.restart()

    def restart(self) -> None:
        self.since = time.monotonic()

    def is_due(self, state: State) -> bool:
        late = self.seconds is not None and time.monotonic() - self.since >= self.seconds
        return late or (self.samples is not None and state.since >= self.samples)


# --- the source -------------------------------------------------------------------------------------------------------


def _limited(source: Any, start: int, max_samples: int | None) -> Iterator[tuple[Any, Any, Any]]:
    """Read batches up to a number of samples, the last one cut, and none without samples."""
    seen = start
    if max_samples is not None and seen >= max_samples:
        return
    for X, y, weight in _batches(source, start):
        count = len(X) if max_samples is None else min(len(X), max_samples - seen)
        if count:
            yield _cut(X, y, weight, slice(count))
        seen += count
        if seen == max_samples:
            return


def _batches(source: Any, start: int) -> Iterator[tuple[Any, Any, Any]]:
    """Read a source from a sample on: a source, a function of that sample, or an iterable whose first samples are skipped."""
    source = open_source(source) if isinstance(source, str | os.PathLike) else source
    if hasattr(source, "batches"):
        yield from source.batches(start)
        return
    skip = 0 if callable(source) else start
    items: Iterable[Any] = source(start) if callable(source) else source
    for item in items:
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise ValueError(
                f"Expected batches (X, y) or (X, y, weight), got {type(item).__name__}: make the source yield such tuples."
            )
        X, y, weight = item if len(item) == 3 else (*item, None)
        gone = min(skip, len(X))
        skip -= gone
        if gone < len(X):
            yield _cut(X, y, weight, slice(gone, None)) if gone else (X, y, weight)
    if skip:
        raise ValueError(
            f"Expected a source of at least the {start} samples that the checkpoint has learned, got {start - skip}: pass the "
            "source as it was, from its beginning."
        )


def _cut(X: Any, y: Any, weight: Any, part: slice) -> tuple[Any, Any, Any]:
    return X[part], y[part], None if weight is None else weight[part]
