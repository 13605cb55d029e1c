"""The page: one HTML file with everything in it, to read on any screen, by day and by night, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from experiments.paper import figures
from experiments.paper.claims import PAPER_ACCURACY, percent, power
from experiments.paper.files import write_whole
from experiments.paper.settings import OURS
from tracelearn.paper.estimators import ALGORITHMS

__all__ = ["REPORT", "render", "write"]

REPORT = "report.html"
_HERE = Path(__file__).parent
_CAPTIONS = {
    "figure_a": "(a) Mean squared rank error on the test tensors, over learning time.",
    "figure_b": "(b) Share of test tensors whose rank is predicted to within η, over learning time.",
    "figure_minibatch": "Tensors learned per second over the size of the mini-batch.",
}

Results = dict[str, Any]


def duration(seconds: float) -> str:
    """Write a time in milliseconds or seconds."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f}\N{NO-BREAK SPACE}ms"
    digits = f"{seconds:.1f}" if seconds < 9.95 else f"{seconds:,.0f}"
    return f"{digits}\N{NO-BREAK SPACE}s"


def above_optimum(excess: float) -> str:
    """Say how far an objective is above the optimum."""
    return f"{1 + excess:.1f} times" if excess >= 1 else f"{100 * excess:.2g}\N{NO-BREAK SPACE}% above"


def _figure(kind: str, results: Results) -> dict[str, Any] | None:
    """Draw a figure for wide and for narrow screens, or return None where its part of the results is missing."""
    if kind not in figures.available(results):
        return None
    drawings = {
        "wide": Markup(figures.svg(kind, results)),
        "narrow": Markup(figures.svg(kind, results, narrow=True)),
    }
    return {"caption": _CAPTIONS[kind], **drawings}


def render(results: Results) -> str:
    """Make the page from the results alone."""
    pages = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    formats = {"percent": percent, "power": power, "duration": duration, "above_optimum": above_optimum}
    pages.filters.update(formats)
    return pages.get_template("page.html").render(
        results,
        batch_optimum=results.get("batch_optimum"),
        lipschitz=results.get("lipschitz"),
        minibatch=results.get("minibatch"),
        figures={kind: _figure(kind, results) for kind in _CAPTIONS},
        names=[*ALGORITHMS, OURS],
        ours_name=OURS,
        ours=results["algorithms"].get(OURS),
        paper_accuracy=PAPER_ACCURACY,
        style=Markup((_HERE / "style.css").read_text(encoding="utf-8")),
    )


def write(results: Results, out: Path) -> Path:
    """Write the page whole or not at all; return its path."""
    path = out / REPORT
    write_whole(path, render(results).encode())
    return path
