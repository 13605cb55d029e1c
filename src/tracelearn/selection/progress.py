"""How far a search is, how long it may still take, and how it is ended early: by time, by Ctrl-C or by a callback."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tracelearn.errors import warn

__all__ = ["Progress"]

_STEPS = 20  # that scikit-learn's callbacks are shown


@dataclass(eq=False)
class Progress:
    """One share of the whole search, which only grows; ``say`` is what ``verbose`` reports with.

    Examples
    --------
    >>> from tracelearn.selection.progress import Progress
    >>> progress = Progress()
    >>> progress.reach(0.5, "half of it"), progress.reach(0.25, "less, which changes nothing")
    (False, False)
    >>> progress.done
    0.5
    """

    deadline: float = math.inf  # on the monotonic clock
    say: Callable[..., None] | None = None
    done: float = 0.0
    pace: float = 1.0  # what shares are multiplied by, where more is to come than usual
    _began: float = field(default_factory=time.monotonic)
    _root: Any = None  # the task that scikit-learn's callbacks know
    _estimator: Any = None
    _steps: int = 0

    def is_over(self) -> bool:
        """Whether the search is to end with the best so far."""
        return time.monotonic() > self.deadline

    def end(self) -> None:
        """End the search as if its time were up."""
        self.deadline = -math.inf

    def reach(self, share: float, message: str) -> bool:
        """Say what was done, and what share of all work that makes; return whether the search is over."""
        self.done = max(self.done, self.pace * share)
        if self.say is not None:
            left = (time.monotonic() - self._began) * (1.0 - self.done) / max(self.done, 1e-9)
            words = f"{message}; {self.done:.0%} done" + (f", about {left:.1f} s left" if self.done > 0 else "")
            self.say(words, paths_done=(round(100 * self.done), 100))
        while self._root is not None and self._steps < math.floor(_STEPS * self.done + 1e-9):
            self._steps += 1
            step = self._root.subcontext(task_name=message)
            step.call_on_fit_task_begin(estimator=self._estimator)
            if step.call_on_fit_task_end(estimator=self._estimator):
                self.end()
        return self.is_over()

    def part(self, begin: float, end: float, message: str) -> Callable[[float], bool]:
        """Return a function that reports shares of one part of the work."""
        return lambda share: self.reach(begin + share * (end - begin), message)

    @contextmanager
    def shown_to_callbacks(self, estimator: Any) -> Iterator[None]:
        """Report to the callbacks that an estimator was given (scikit-learn 1.9 and later)."""
        if not getattr(estimator, "_skl_callbacks", None):
            yield
            return
        self._estimator, self._root = estimator, estimator._init_callback_context(max_subtasks=_STEPS)
        self._root.call_on_fit_task_begin(estimator=estimator)
        yield
        self.reach(1.0, "fitted")
        self._root.call_on_fit_task_end(estimator=estimator)

    @contextmanager
    def ended_by_interrupt(self) -> Iterator[None]:
        """Let the first Ctrl-C end the search with the best so far; a second one is raised as ever."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGINT)

        def interrupted(number: int, frame: Any) -> None:
            signal.signal(signal.SIGINT, before)
            self.end()
            warn(
                "Expected the search to end by itself, got an interrupt: what was found so far is fitted to all samples; "
                "interrupt once more to stop at once."
            )

        if before is not signal.default_int_handler:  # somebody else handles it, and knows what to do
            yield
            return
        signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
