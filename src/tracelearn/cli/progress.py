"""How long work looks while it runs: bars and panels with the time left on a terminal, lines or nothing elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tracelearn.files.models import write_atomically
from tracelearn.optional import require
from tracelearn.streaming.run import StreamReport

__all__ = ["Bar", "StreamView", "draw_curve", "sparkline", "summary", "time_left"]

_BARS = "▁▂▃▄▅▆▇█"
_LINE_SECONDS = 1.0  # a log file needs no more
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

    def __init__(self, console: Any) -> None:
        self.is_shown = bool(console.is_terminal and not console.quiet)
        progress = require("rich.progress", "cli")
        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[told]}"),
        )
        self._bar = progress.Progress(*columns, console=console, transient=True, disable=not self.is_shown)
        self._task = self._bar.add_task("", total=None, told="", visible=False)
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
        told = share if left is None else f"{share}, {time_left(left)}"
        self._bar.update(self._task, description=what, completed=done, total=total, told=told, visible=True)

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


def summary(report: StreamReport, measure: str) -> str:
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
        self.console, self.title, self.measure, self.total = console, title, measure, total
        self.live: Any = None
        self.told = 0.0
        if console.is_terminal and not console.quiet:
            self.live = require("rich.live", "cli").Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> StreamView:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, report: StreamReport) -> None:
        """Show a report, as ``on_refresh`` of a stream."""
        if self.live is not None:
            self.live.update(self._panel(report))
        elif time.monotonic() - self.told >= _LINE_SECONDS:
            self.told = time.monotonic()
            self.console.print(summary(report, self.measure), soft_wrap=True, highlight=False)

    def _panel(self, report: StreamReport) -> Any:
        line = sparkline([point.error for point in report.curve])
        parts = [require("rich.text", "cli").Text(summary(report, self.measure) + (f"\n{line}" if line else ""))]
        own = report.n_samples - (report.resumed_from or 0)
        if self.total is not None and own > 0:
            bar = require("rich.progress_bar", "cli").ProgressBar(self.total, report.n_samples, width=40)
            parts += [bar, time_left(report.seconds / own * (self.total - report.n_samples))]
        group = require("rich.console", "cli").Group(*parts)
        return require("rich.panel", "cli").Panel(group, title=self.title, title_align="left", expand=False)


def draw_curve(report: StreamReport, path: Path, measure: str) -> None:
    """Draw the prequential curve and write it to a file, in the format that its name asks for."""
    figure = require("matplotlib.figure", "plot").Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    n_seen = [point.n_seen for point in report.curve]
    own = [point.error for point in report.curve]
    axes.plot(n_seen, own, color=_LIGHT, marker=".", linewidth=1, label="since the last refresh")
    ever = [point.cumulative_error for point in report.curve]
    axes.plot(n_seen, ever, color=_DARK, linewidth=2, linestyle="--", label="on all samples so far")
    axes.set(
        xlabel="samples learned", ylabel=measure, title="Prequential error: each sample is predicted, then learned"
    )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    image = io.BytesIO()
    try:
        figure.savefig(image, format=path.suffix.removeprefix(".") or "png", dpi=150)
    except ValueError as error:
        raise ValueError(
            f"Expected a figure of a kind such as .png, .svg or .pdf, got {path.name}: name it so."
        ) from error
    write_atomically(path, image.getvalue())
