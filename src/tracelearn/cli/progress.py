"""How long work looks while it runs: bars and panels with the time left on a terminal, lines or nothing elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["Bar", "draw_curve", "sparkline", "stream_view", "summary"]

_BARS = "▁▂▃▄▅▆▇█"
_LINE_SECONDS = 1.0  # a log file needs no more
_MOST_POINTS = 2000


class Bar(Progress):
    """A bar for the step that runs, with the time left, on a terminal; elsewhere, and where the console is quiet, nothing."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        console = Console(quiet=quiet) if console is None else console
        is_shown = console.is_terminal and not console.quiet
        columns = ("{task.description}", BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        super().__init__(*columns, console=console, transient=True, disable=not is_shown)

    def show(self, step: str, done: float = 0.0, total: float | None = None) -> None:
        """Show how far a step is, or only that it runs where there is no total."""
        if not self.tasks or self.tasks[0].description != step:
            for task in self.task_ids:
                self.remove_task(task)
            self.add_task(step, total=total)
        # Drawn at once where a step begins: a short one is over before the next refresh.
        self.update(self.task_ids[0], completed=done, total=total, refresh=not done)

    @contextmanager
    def steps_of(self, model: Any) -> Iterator[None]:
        """Show how far a fit is, where the model tells it: a search does, by scikit-learn's callbacks."""
        self.show("fitting")
        if not hasattr(model, "set_callbacks"):
            yield
            return
        model.set_callbacks(_Steps(self))
        try:
            yield
        finally:
            model.set_callbacks()

    def follow(self, step: str, batches: Iterable[Any], total: int | None) -> Iterator[Any]:
        """Pass batches on, tuples that begin with samples, and show how many of all samples have passed."""
        done = 0
        self.show(step, 0, total)
        for batch in batches:
            yield batch
            done += len(batch[0])
            self.show(step, done, total)


class _Steps:
    """A callback of scikit-learn that moves a bar with the steps of a fit; methods and arguments have its names."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._done = self._total = 0

    def setup(self, estimator: Any, context: Any) -> None:
        """Learn that a fit begins."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Learn that a fit is over."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Take the number of steps from the first task, which is the fit."""
        self._total = self._total or context.max_subtasks

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Count a step."""
        self._done += 1
        self._bar.show("fitting", min(self._done, self._total), self._total)


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Draw numbers as a line of bars, from their smallest to their largest; many numbers are averaged.

    Examples
    --------
    >>> from tracelearn.cli.progress import sparkline
    >>> sparkline([1.0, 0.5, 0.3, 0.2, 0.2])
    '█▄▂▁▁'
    """
    if not values:
        return ""
    count = min(width, len(values))
    edges = [len(values) * k // count for k in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    span = high - low or 1.0  # numbers of 1e-310 have a span, but no finite inverse of it
    return "".join(_BARS[round((mean - low) / span * (len(_BARS) - 1))] for mean in means)


def summary(report: Any, measure: str) -> str:
    """Say in one line how many samples were learned, how fast and how well."""
    learned_now = report.n_samples - (report.resumed_from or 0)
    words = [f"{report.n_samples:,} samples", f"{learned_now / max(report.seconds, 1e-9):,.0f} a second"]
    if report.curve:
        last = report.curve[-1]
        words.append(f"{measure} {last.error:.4g} lately, {last.cumulative_error:.4g} in all")
    return ", ".join(words)


@contextmanager
def stream_view(console: Any, title: str, measure: str, total: int | None = None) -> Iterator[Callable[[Any], None]]:
    """Show a stream, by a function of its reports: as a panel that changes on a terminal, else as a line now and then.

    With ``total``, the number of samples where it is known, the panel has a bar and the time left.
    """
    last = -_LINE_SECONDS

    def print_line(report: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            console.print(summary(report, measure), soft_wrap=True, highlight=False)

    if console.quiet or not console.is_terminal:
        yield print_line
        return
    bar = Progress(BarColumn(), TimeRemainingColumn())
    task = bar.add_task("", total=total, visible=total is not None)

    def panel(report: Any) -> Panel:
        bar.update(task, completed=report.n_samples)
        step = len(report.curve) // _MOST_POINTS + 1  # of a long curve some points: it is drawn at every refresh
        words = summary(report, measure), sparkline([point.error for point in report.curve[::step]])
        return Panel(Group(Text("\n".join(filter(None, words))), bar), title=title, title_align="left", expand=False)

    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield lambda report: live.update(panel(report))


def draw_curve(report: Any, path: Path, measure: str) -> None:
    """Draw the prequential curve and write it to a file, in the format that its name asks for."""
    from tracelearn.plotting import PrequentialDisplay
    from tracelearn.plotting.canvas import write_picture

    write_picture(PrequentialDisplay.of_curve(report.curve, measure).plot().ax_, path, dpi=150)
