"""How long work looks while it runs: bars and panels with the time left on a terminal, lines or nothing elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress
from rich.progress_bar import ProgressBar
from rich.text import Text

__all__ = ["Bar", "draw_curve", "sparkline", "stream_view", "summary", "time_left"]

_BARS = "▁▂▃▄▅▆▇█"
_LINE_SECONDS = 1.0  # a log file needs no more
_MOST_POINTS = 2000


def time_left(seconds: float) -> str:
    """Say how long something still takes.

    Examples
    --------
    >>> from tracelearn.cli.progress import time_left
    >>> time_left(8.2), time_left(200.0), time_left(9000.0)
    ('8 s left', '3 min left', '2.5 h left')
    """
    if seconds < 100.0:
        return f"{max(seconds, 0.0):.0f} s left"
    return f"{seconds / 60.0:.0f} min left" if seconds < 6000.0 else f"{seconds / 3600.0:.1f} h left"


class Bar(Progress):
    """A bar with the time left, on a terminal; elsewhere, and where the console is quiet, nothing."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        console = Console(quiet=quiet) if console is None else console
        self.is_shown = console.is_terminal and not console.quiet
        columns = ("{task.description}", BarColumn(), "{task.fields[words]}")
        super().__init__(*columns, console=console, transient=True, disable=not self.is_shown)
        self._task, self._what, self._began = self.add_task("", total=None, words="", visible=False), "", 0.0

    def show(self, what: str, done: float = 0.0, total: float | None = None, left: float | None = None) -> None:
        """Show how far something is; the time left follows from the time so far, unless it is known better."""
        if what != self._what:
            self._what, self._began = what, time.monotonic()
        if left is None and total and done:
            left = (time.monotonic() - self._began) * (total - done) / done
        share = f"{done / total:.0%}" if total else ""
        words = share if left is None else f"{share}, {time_left(left)}"
        self.update(self._task, description=what, completed=done, total=total, words=words, visible=True)

    def follow(self, what: str, batches: Iterable[Any], total: int | None) -> Iterator[Any]:
        """Pass batches on, tuples that begin with samples, and show how many of all samples have passed."""
        done = 0
        self.show(what, 0, total)
        for batch in batches:
            yield batch
            done += len(batch[0])
            self.show(what, done, total)


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
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)


def summary(report: Any, measure: str) -> str:
    """Say in one line how many samples were learned, how fast and how well."""
    own = report.n_samples - (report.resumed_from or 0)
    words = [f"{report.n_samples:,} samples", f"{own / max(report.seconds, 1e-9):,.0f} a second"]
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
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield lambda report: live.update(_panel(report, title, measure, total))


def _panel(report: Any, title: str, measure: str, total: int | None) -> Any:
    count = len(report.curve)
    some = range(0, count, -(-count // _MOST_POINTS) or 1)  # of a long curve: it is drawn at every refresh
    line = sparkline([report.curve[k].error for k in some])
    parts: list[Any] = [Text(summary(report, measure) + (f"\n{line}" if line else ""))]
    own = report.n_samples - (report.resumed_from or 0)
    if total is not None and own > 0:
        left = time_left(report.seconds / own * (total - report.n_samples))
        parts += [ProgressBar(total, report.n_samples, width=40), left]
    return Panel(Group(*parts), title=title, title_align="left", expand=False)


def draw_curve(report: Any, path: Path, measure: str) -> None:
    """Draw the prequential curve and write it to a file, in the format that its name asks for."""
    from tracelearn.files.models import write_atomically
    from tracelearn.plotting import PrequentialDisplay

    names, image = ("n_seen", "error", "cumulative_error"), io.BytesIO()
    columns = {name: np.array([getattr(point, name) for point in report.curve]) for name in names}
    figure = PrequentialDisplay(**columns, measure=measure).plot().figure_
    figure.savefig(image, format=path.suffix.removeprefix("."), dpi=150)
    write_atomically(path, image.getvalue())
