"""How long work looks while it runs: bars and panels with the time left on a terminal, lines or nothing elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tracelearn.optional import require

__all__ = ["Bar", "StreamView", "draw_curve", "sparkline", "summary", "time_left"]

_BARS = "▁▂▃▄▅▆▇█"
_LINE_SECONDS = 1.0  # a log file needs no more
_MOST_POINTS = 2000
# Two colours of Okabe and Ito that stay apart for every eye, and in grey.
_LIGHT, _DARK = "#56B4E9", "#D55E00"


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


class Bar:
    """A bar with the time left, on a terminal; elsewhere, and where the console is quiet, nothing."""

    def __init__(self, console: Any = None, *, quiet: bool = False) -> None:
        from rich import console as consoles
        from rich import progress

        console = consoles.Console(quiet=quiet) if console is None else console
        self.is_shown = bool(console.is_terminal and not console.quiet)
        columns = ("{task.description}", progress.BarColumn(), "{task.fields[words]}")
        self._bar = progress.Progress(*columns, console=console, transient=True, disable=not self.is_shown)
        self._task = self._bar.add_task("", total=None, words="", visible=False)
        self._what, self._began = "", 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def show(self, what: str, done: float = 0.0, total: float | None = None, left: float | None = None) -> None:
        """Show how far something is; the time left follows from the time so far, unless it is known better."""
        if what != self._what:
            self._what, self._began = what, time.monotonic()
        if left is None and total and done:
            left = (time.monotonic() - self._began) * (total - done) / done
        share = f"{done / total:.0%}" if total else ""
        words = share if left is None else f"{share}, {time_left(left)}"
        self._bar.update(self._task, description=what, completed=done, total=total, words=words, visible=True)

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


class StreamView:
    """Show a stream: as a panel that changes on a terminal, else as a line now and then.

    With ``total``, the number of samples where it is known, the panel has a bar and the time left.
    """

    def __init__(self, console: Any, title: str, measure: str, total: int | None = None) -> None:
        from rich.live import Live

        self.console, self.title, self.measure, self.total, self.last = console, title, measure, total, 0.0
        is_shown = console.is_terminal and not console.quiet
        self.live = Live(console=console, refresh_per_second=8, transient=True) if is_shown else None

    def __enter__(self) -> StreamView:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, report: Any) -> None:
        """Show a report, as ``on_refresh`` of a stream."""
        if self.live is not None:
            self.live.update(self._panel(report))
        elif time.monotonic() - self.last >= _LINE_SECONDS:
            self.last = time.monotonic()
            self.console.print(summary(report, self.measure), soft_wrap=True, highlight=False)

    def _panel(self, report: Any) -> Any:
        from rich import console, panel, progress_bar, text

        count = len(report.curve)
        some = range(0, count, -(-count // _MOST_POINTS) or 1)  # of a long curve: it is drawn at every refresh
        line = sparkline([report.curve[k].error for k in some])
        parts: list[Any] = [text.Text(summary(report, self.measure) + (f"\n{line}" if line else ""))]
        own = report.n_samples - (report.resumed_from or 0)
        if self.total is not None and own > 0:
            parts.append(progress_bar.ProgressBar(self.total, report.n_samples, width=40))
            parts.append(time_left(report.seconds / own * (self.total - report.n_samples)))
        return panel.Panel(console.Group(*parts), title=self.title, title_align="left", expand=False)


def draw_curve(report: Any, path: Path, measure: str) -> None:
    """Draw the prequential curve and write it to a file, in the format that its name asks for."""
    from tracelearn.files.models import write_atomically

    figure = require("matplotlib.figure", "plot").Figure(figsize=(7.0, 4.0), layout="constrained")
    axes, n_seen = figure.add_subplot(), [point.n_seen for point in report.curve]
    own, ever = [point.error for point in report.curve], [point.cumulative_error for point in report.curve]
    axes.plot(n_seen, own, color=_LIGHT, marker=".", linewidth=1, label="since the last refresh")
    axes.plot(n_seen, ever, color=_DARK, linewidth=2, linestyle="--", label="on all samples so far")
    title = "Prequential error: each sample is predicted, then learned"
    axes.set(xlabel="samples learned", ylabel=measure, title=title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix.removeprefix("."), dpi=150)
    write_atomically(path, image.getvalue())
