"""The figures: error and accuracy over learning time, and the mini-batch study.

Colour tells the solver, the style of the line how it meets the data, so that the figures survive colour blindness and
grey printing. The same drawing serves a PNG and the page, where its colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracelearn.files.models import write_atomically
from tracelearn.optional import require
from tracelearn.paper.reproduce.claims import PAPER_ACCURACY
from tracelearn.paper.reproduce.settings import ALGORITHMS, OURS

__all__ = ["FIGURES", "draw", "svg"]

# Blue, vermilion and bluish green of Okabe and Ito (2008).
COLOURS = {"adm": "#0072b2", "dr": "#d55e00", "ours": "#009e73", "ink": "#1b1f25", "rule": "#d8dce3"}
_STYLES = {"batch": "solid", "online": (0, (5, 2)), "minibatch": (0, (1, 1.4))}
# A ring and a dot, so that both are seen where the best point is the last.
_RING: dict[str, Any] = {"markersize": 9.5, "markerfacecolor": "none", "markeredgewidth": 1.4}
_MARKERS = {"adm": "o", "dr": "s", "ours": "D"}

Results = dict[str, Any]


def _looks(name: str) -> tuple[str, Any, str]:
    """Choose the colour, the style and the marker of a curve."""
    if name == OURS:
        return COLOURS["ours"], "solid", _MARKERS["ours"]
    algorithm = ALGORITHMS[name]
    return COLOURS[algorithm.inner], _STYLES[algorithm.feed], _MARKERS[algorithm.inner]


def _curves(axes: Any, results: Results, key: str) -> None:
    for name, curve in results["algorithms"].items():
        colour, style, marker = _looks(name)
        seconds, values = curve["seconds"], curve[key]
        best = curve["mse"].index(min(curve["mse"]))
        axes.plot(seconds, values, color=colour, linestyle=style, linewidth=2.4 if name == OURS else 1.7, label=name)
        dot = {"color": colour, "marker": marker, "linestyle": "none", "zorder": 4}
        axes.plot(seconds[-1:], values[-1:], **dot, markersize=5)
        axes.plot(seconds[best : best + 1], values[best : best + 1], **dot, **_RING)
    axes.set_xscale("log")
    axes.set_xlabel("learning time in seconds")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")


def _reference(axes: Any, height: float, label: str, *, above: bool) -> None:
    """Draw a level across the figure, with its name at the left end."""
    axes.axhline(height, color=COLOURS["ink"], linewidth=0.9, linestyle=(0, (1, 3)), zorder=1)
    axes.annotate(
        label,
        (0.0, height),
        xycoords=("axes fraction", "data"),
        xytext=(5, 3 if above else -3),
        textcoords="offset points",
        va="bottom" if above else "top",
        fontsize="small",
    )


def _error(axes: Any, results: Results) -> None:
    _curves(axes, results, "mse")
    axes.set_yscale("log")
    axes.set_ylabel("mean squared rank error")
    lows = [min(curve["mse"]) for curve in results["algorithms"].values()]
    highs = [max(curve["mse"]) for curve in results["algorithms"].values()]
    start = results["algorithms"].get(OURS, {"mse": [1.25]})["mse"][0]
    # A diverging run must not press all others into a line.
    bottom, top = 0.8 * min(lows), min(1.2 * max(highs), 4.0 * start)
    axes.set_ylim(bottom, top)
    axes.set_yticks([tick for tick in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10) if bottom <= tick <= top])
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_formatter(lambda y, _: "")
    if "batch_optimum" in results:
        label = f"exact optimum on {results['n_batch']:,} tensors"
        _reference(axes, results["batch_optimum"]["mse"], label, above=True)


def _accuracy(axes: Any, results: Results) -> None:
    _curves(axes, results, "accuracy")
    axes.set_ylabel(f"accuracy at η = {results['eta']:g}")
    lowest = min(min(curve["accuracy"]) for curve in results["algorithms"].values())
    axes.set_ylim(max(0.0, min(0.45, lowest - 0.03)), 1.03)
    axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.0f} %")
    _reference(axes, PAPER_ACCURACY, f"the paper: {100 * PAPER_ACCURACY:.1f} %", above=True)
    if "batch_optimum" in results:
        label = f"exact optimum on {results['n_batch']:,} tensors"
        _reference(axes, results["batch_optimum"]["accuracy"], label, above=False)


def _minibatch(axes: Any, results: Results) -> None:
    rows = results["minibatch"]["rows"]
    sizes = [row["batch_size"] for row in rows]
    ideal = [rows[0]["blas_samples_per_second"] * size for size in sizes]
    axes.plot(sizes, ideal, color=COLOURS["ink"], linewidth=1.0, linestyle=(0, (1, 3)), label="predicted: factor μ")
    for kind, label, colour, marker in (
        ("blas", "rank-k update (ours)", COLOURS["ours"], "D"),
        ("kronecker", "Kronecker products (the paper)", COLOURS["dr"], "s"),
    ):
        speeds = [row[f"{kind}_samples_per_second"] for row in rows]
        axes.plot(sizes, speeds, color=colour, marker=marker, linewidth=2.0, markersize=6.5, label=label)
        end = (sizes[-1], speeds[-1])
        text = f"{rows[-1][f'{kind}_speedup']:.0f}×"
        axes.annotate(text, end, xytext=(8, 0), textcoords="offset points", color=colour, va="center", weight="bold")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 2.2)
    axes.set_xlabel("samples in a mini-batch, μ")
    axes.set_ylabel("samples learned per second")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


# File name (without ending), what draws it, and the part of the results without which there is nothing to draw.
FIGURES: dict[str, tuple[Callable[[Any, Results], None], str]] = {
    "figure_a": (_error, "algorithms"),
    "figure_b": (_accuracy, "algorithms"),
    "figure_minibatch": (_minibatch, "minibatch"),
}


def _figure(kind: str, results: Results, width: float, height: float) -> Any:
    figure = require("matplotlib.figure", "plot").Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    FIGURES[kind][0](axes, results)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=COLOURS["rule"], linewidth=0.8)
    axes.set_axisbelow(True)
    handles, labels = axes.get_legend_handles_labels()
    if kind != "figure_minibatch":
        mark = require("matplotlib.lines", "plot").Line2D
        dot = {"color": COLOURS["ink"], "marker": "o", "linestyle": "none"}
        handles += [mark([], [], **dot, **_RING), mark([], [], **dot, markersize=5)]
        labels += ["lowest error", "last point"]
    columns = 1 if width < 5 and kind == "figure_minibatch" else 2 if width < 5 else 3
    small = width < 5
    options = {"handlelength": 2.4, "columnspacing": 1.0, "fontsize": "x-small" if small else "small"}
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, **options)
    return figure


def _style() -> dict[str, Any]:
    ink = COLOURS["ink"]
    return {
        "font.family": "sans-serif",
        "font.size": 10.5,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "axes.linewidth": 0.8,
        "xtick.color": ink,
        "ytick.color": ink,
        "svg.fonttype": "none",
        "svg.hashsalt": "tracelearn",
    }


def available(results: Results) -> list[str]:
    """List the figures for which the results are there."""
    return [kind for kind, (_, part) in FIGURES.items() if results.get(part)]


def draw(results: Results, out: Path) -> list[Path]:
    """Draw every figure for which the results are there, as PNG; return the files."""
    files = []
    with require("matplotlib", "plot").rc_context(_style()):
        for kind in available(results):
            image = io.BytesIO()
            _figure(kind, results, 7.6, 4.7).savefig(image, format="png", dpi=200, facecolor="white")
            files.append(out / f"{kind}.png")
            write_atomically(files[-1], image.getvalue())
    return files


def svg(kind: str, results: Results, *, narrow: bool = False) -> str:
    """Draw a figure as SVG to put into a page: no addresses, unique names, colours from the page's variables."""
    buffer = io.StringIO()
    with require("matplotlib", "plot").rc_context(_style()):
        figure = _figure(kind, results, *((4.1, 4.9) if narrow else (7.6, 4.7)))
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace("xlink:href", "href")
    # Two drawings on one page must not share names: the first would lend its clips and markers to the second.
    prefix = f"{kind}-{'narrow' if narrow else 'wide'}-"
    text = (
        re.sub(r'\bid="', f'id="{prefix}', text)
        .replace('href="#', f'href="#{prefix}')
        .replace("url(#", f"url(#{prefix}")
    )
    text = re.sub(r'font-family: [^;"]*', "font-family: inherit", text)
    text = re.sub(r"(font: [^;\"]*?px) [^;\"]*", r"\1 sans-serif", text)
    for name, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    return re.sub(
        r'<svg[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img" aria-hidden="true">', text, count=1
    )
