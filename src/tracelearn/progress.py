"""How a stream looks while it runs and afterwards: a panel on a terminal, lines elsewhere, a figure."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

from tracelearn.files import write_atomically
from tracelearn.optional import require
from tracelearn.streams import StreamReport

__all__ = ["StreamView", "draw_curve", "sparkline", "summary"]

_BARS = "▁▂▃▄▅▆▇█"
_LINE_SECONDS = 1.0  # a log file needs no more
# Two colours of Okabe and Ito that stay apart for every eye, and in grey.
_LIGHT, _DARK = "#56B4E9", "#D55E00"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Draw numbers as a line of bars, from their smallest to their largest; many numbers are averaged.

    Examples
    --------
    >>> from tracelearn.progress import sparkline
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
    """Show a stream: as a panel that changes on a terminal, else as a line now and then."""

    def __init__(self, console: Any, title: str, measure: str) -> None:
        self.console, self.title, self.measure = console, title, measure
        self.live: Any = None
        self.told = 0.0
        if console.is_terminal:
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
        text = require("rich.text", "cli").Text(summary(report, self.measure) + (f"\n{line}" if line else ""))
        return require("rich.panel", "cli").Panel(text, title=self.title, title_align="left", expand=False)


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
