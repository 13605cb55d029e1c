"""Progress of a search as a stream of events, and the one place that consumes them.

The stages of a search report events, and are told whether to end with the best so far. Who listens is known here alone: what
``verbose`` prints, scikit-learn's callbacks, ``max_time`` and Ctrl-C.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tracelearn.errors import warn
from tracelearn.samples.scikit_learn import callback_context

__all__ = ["Event", "Listener", "Report"]

# Where each stage ends, as a share of the whole search: as it was on real sets of some seconds.
_ENDS = {"views": 0.25, "ridge": 0.4, "path": 0.7, "losses": 0.85, "groups": 0.95, "fit": 1.0}
_STEPS = 20  # that scikit-learn's callbacks are shown


@dataclass(frozen=True)
class Event:
    """What happened: in which stage of the search, how much of that stage is done then, and words for it."""

    stage: str  # "views", "ridge", "path", "losses", "groups" or "fit"
    done: float
    message: str

    @property
    def share(self) -> float:
        """The share of the whole search that is done."""
        stages = list(_ENDS)
        place = stages.index(self.stage)
        start = _ENDS[stages[place - 1]] if place else 0.0
        return start + self.done * (_ENDS[self.stage] - start)


Report = Callable[[Event], bool]  # takes an event, returns whether the search is to end with the best so far


class Listener:
    """Consumes the events of one search.

    Parameters
    ----------
    max_time : float, default=None
        Seconds after which the search is to end.
    say : function, default=None
        What ``verbose`` reports with.
    estimator : estimator, default=None
        Whose callbacks are shown some steps (scikit-learn 1.9 and later).

    Examples
    --------
    >>> from tracelearn.search.events import Event, Listener
    >>> listener = Listener(say=print)
    >>> listener(Event("views", 1.0, "all views screened"))
    all views screened (25% done)
    False
    """

    def __init__(
        self, max_time: float | None = None, say: Callable[[str], None] | None = None, estimator: Any = None
    ) -> None:
        self._began = time.monotonic()
        self._deadline = math.inf if max_time is None else self._began + max_time
        self._say = say
        self._estimator = estimator
        self._is_over = False
        self._done = 0.0
        self._steps = 0
        self._context = callback_context(estimator, _STEPS)
        if self._context is not None:
            self._context.call_on_fit_task_begin(estimator=estimator)

    def __call__(self, event: Event) -> bool:
        """Take an event; return whether the search is to end."""
        is_news = event.done >= 1.0 or event.share > self._done
        self._done = max(self._done, event.share)
        if self._say is not None and is_news:
            seconds = (time.monotonic() - self._began) * (1.0 - self._done) / max(self._done, 1e-9)
            time_left = f", about {seconds:.1f} s left" if seconds > 1.0 else ""
            self._say(f"{event.message} ({self._done:.0%} done{time_left})")
        self._is_over |= time.monotonic() > self._deadline
        while self._context is not None and self._steps < math.floor(_STEPS * self._done + 1e-9):
            self._steps += 1
            step = self._context.subcontext(task_name=event.message)
            step.call_on_fit_task_begin(estimator=self._estimator)
            self._is_over |= bool(step.call_on_fit_task_end(estimator=self._estimator))
        return self._is_over

    def end(self) -> None:
        """Tell callbacks that the fit is done."""
        if self._context is not None:
            self._context.call_on_fit_task_end(estimator=self._estimator)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let the first Ctrl-C end the search with the best so far; a second one is raised as ever."""
        handler_before = signal.getsignal(signal.SIGINT)
        in_main_thread = threading.current_thread() is threading.main_thread()
        if not in_main_thread or handler_before is not signal.default_int_handler:  # a caller handles Ctrl-C
            yield
            return

        def interrupted(number: int, frame: Any) -> None:
            signal.signal(signal.SIGINT, handler_before)
            self._is_over = True
            warn("Search interrupted. Fitting the best model so far to all samples; press Ctrl-C again to abort.")

        signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler_before)
