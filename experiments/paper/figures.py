"""The figures: error and accuracy over learning time, and the mini-batch study.

Colour tells the solver, the style of the line how it meets the data, so that the figures survive colour blindness and
grey printing. The same drawing serves a PNG and the page, where its colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.paper.claims import PAPER_ACCURACY
from experiments.paper.files import write_whole
from experiments.paper.settings import OURS
from tracelearn.paper.estimators import ALGORITHMS

__all__ = ["FIGURES", "draw", "svg"]

# Blue, vermilion and bluish green of Okabe and Ito (2008).
COLOURS = {"adm": "#0072b2", "dr": "#d55e00", "ours": "#009e73", "ink": "#1b1f25", "rule": "#d8dce3"}
_MARKERS = {"adm": "o", "dr": "s", "ours": "D"}
_DASHES: dict[str, Any] = {"batch": "solid", "online": (0, (5, 2)), "minibatch": (0, (1, 1.4))}
_DOTS = (0, (1, 3))
_WIDE, _NARROW = (7.6, 4.7), (4.1, 4.9)  # inches
# A ring and a dot, so that both are seen where the best point is the last.
_RING: dict[str, Any] = {"markersize": 9.5, "markerfacecolor": "none", "markeredgewidth": 1.4}
_INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
_STYLE: dict[str, Any] = {
    **dict.fromkeys(_INKED, COLOURS["ink"]),
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.linewidth": 0.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "tracelearn",
}

Results = dict[str, Any]


def _curves(axes: Any, results: Results, key: str, reference: str, label: str) -> list[list[float]]:
    """Draw one curve for each algorithm; return the numbers that were drawn."""
    drawn = []
    for name, curve in results["algorithms"].items():
        if name == OURS:
            solver, dashes, width = "ours", _DASHES["batch"], 2.4
        else:
            solver, dashes, width = ALGORITHMS[name].inner, _DASHES[ALGORITHMS[name].feed], 1.7
        colour = COLOURS[solver]
        axes.plot(curve["seconds"], curve[key], color=colour, label=name, linestyle=dashes, linewidth=width)
        best = curve["mse"].index(curve["best_mse"])
        for point, size in ((-1, {"markersize": 5}), (best, _RING)):
            place = [curve["seconds"][point]], [curve[key][point]]
            axes.plot(*place, color=colour, marker=_MARKERS[solver], linestyle="none", zorder=4, **size)
        drawn.append(curve[key])
    axes.set(xscale="log", xlabel="learning time in seconds", ylabel=label)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    if "batch_optimum" in results:
        text = f"exact optimum on {results['n_batch']:,} tensors"
        _reference(axes, results["batch_optimum"][key], text, reference)
    return drawn


def _reference(axes: Any, height: float, label: str, align: str = "bottom") -> None:
    """Draw a level across the figure, with its name at the left end."""
    axes.axhline(height, color=COLOURS["ink"], linewidth=0.9, linestyle=_DOTS, zorder=1)
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    shift = 3 if align == "bottom" else -3
    axes.annotate(label, (0.0, height), xytext=(5, shift), va=align, fontsize="small", **place)


def _error(axes: Any, results: Results) -> None:
    errors = _curves(axes, results, "mse", "bottom", "mean squared rank error")
    start = results["algorithms"].get(OURS, {"mse": [1.25]})["mse"][0]
    # A diverging run must not press all others into a line.
    bottom, top = 0.8 * min(map(min, errors)), min(1.2 * max(map(max, errors)), 4.0 * start)
    axes.set(yscale="log", ylim=(bottom, top))
    axes.set_yticks([tick for tick in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10) if bottom <= tick <= top])
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_formatter(lambda y, _: "")


def _accuracy(axes: Any, results: Results) -> None:
    shares = _curves(axes, results, "accuracy", "top", f"accuracy at η = {results['eta']:g}")
    axes.set_ylim(max(0.0, min(0.45, min(map(min, shares)) - 0.03)), 1.03)
    axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.0f} %")
    _reference(axes, PAPER_ACCURACY, f"the paper: {100 * PAPER_ACCURACY:.1f} %")


def _minibatch(axes: Any, results: Results) -> None:
    rows = results["minibatch"]["rows"]
    sizes = [row["batch_size"] for row in rows]
    ideal = [rows[0]["blas_samples_per_second"] * size for size in sizes]
    axes.plot(sizes, ideal, color=COLOURS["ink"], linewidth=1.0, linestyle=_DOTS, label="predicted: factor μ")
    texts = {"blas": "rank-k update (ours)", "kronecker": "Kronecker products (the paper)"}
    for (kind, label), who in zip(texts.items(), ("ours", "dr"), strict=True):
        speeds, colour = [row[f"{kind}_samples_per_second"] for row in rows], COLOURS[who]
        axes.plot(sizes, speeds, color=colour, marker=_MARKERS[who], linewidth=2.0, markersize=6.5, label=label)
        looks = {"textcoords": "offset points", "color": colour, "va": "center", "weight": "bold"}
        axes.annotate(f"{rows[-1][f'{kind}_speedup']:.0f}×", (sizes[-1], speeds[-1]), xytext=(8, 0), **looks)
    axes.set(xscale="log", yscale="log", xlim=(sizes[0] / 1.3, sizes[-1] * 2.2))
    axes.set(xlabel="samples in a mini-batch, μ", ylabel="samples learned per second")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


@dataclass(frozen=True)
class Drawing:
    """What draws a figure, and the entry of the results without which there is nothing to draw."""

    draw: Callable[[Any, Results], None]
    needs: str

    @property
    def shows_curves(self) -> bool:
        """Whether the figure has a curve for each algorithm."""
        return self.needs == "algorithms"


FIGURES = {
    "figure_a": Drawing(_error, "algorithms"),
    "figure_b": Drawing(_accuracy, "algorithms"),
    "figure_minibatch": Drawing(_minibatch, "minibatch"),
}


def _legend_columns(drawing: Drawing, *, narrow: bool) -> int:
    if not narrow:
        return 3
    return 2 if drawing.shows_curves else 1


def _add_legend(figure: Figure, axes: Any, drawing: Drawing, *, narrow: bool) -> None:
    """Name the curves below the figure, and what rings and dots on them mean."""
    handles, labels = axes.get_legend_handles_labels()
    if drawing.shows_curves:
        dot = {"color": COLOURS["ink"], "marker": "o", "linestyle": "none"}
        handles += [Line2D([], [], **dot, **_RING), Line2D([], [], **dot, markersize=5)]
        labels += ["lowest error", "last point"]
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=_legend_columns(drawing, narrow=narrow),
        frameon=False,
        handlelength=2.4,
        columnspacing=1.0,
        fontsize="x-small" if narrow else "small",
    )


def _render(kind: str, results: Results, ending: str, *, narrow: bool = False, **options: Any) -> bytes:
    """Draw a figure for a file of an ending; the options are those of matplotlib's ``savefig``."""
    drawing = FIGURES[kind]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=_NARROW if narrow else _WIDE, layout="constrained")
        axes = figure.add_subplot()
        drawing.draw(axes, results)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=COLOURS["rule"], linewidth=0.8)
        axes.set_axisbelow(True)
        _add_legend(figure, axes, drawing, narrow=narrow)
        file = io.BytesIO()
        figure.savefig(file, format=ending, **options)
    return file.getvalue()


def available(results: Results) -> list[str]:
    """List the figures for which the results are there."""
    return [kind for kind, drawing in FIGURES.items() if results.get(drawing.needs)]


def draw(results: Results, out: Path) -> list[Path]:
    """Draw every figure for which the results are there, as PNG; return the files."""
    files = {kind: out / f"{kind}.png" for kind in available(results)}
    for kind, file in files.items():
        write_whole(file, _render(kind, results, "png", dpi=200, facecolor="white"))
    return list(files.values())


def svg(kind: str, results: Results, *, narrow: bool = False) -> str:
    """Draw a figure as SVG to put into a page: no addresses, unique names, colours from the page's variables."""
    text = _render(kind, results, "svg", narrow=narrow, transparent=True, metadata={"Date": None}).decode()
    # Two drawings on one page must not share names: the first would lend its clips and markers to the second.
    prefix = f"{kind}-{'narrow' if narrow else 'wide'}-"
    changes = {
        r"(?s)^.*?(?=<svg)": "",
        r"(?s)<metadata>.*?</metadata>": "",
        r"xlink:href": "href",
        r'(\bid="|href="#|url\(#)': rf"\1{prefix}",
        r'font-family: [^;"]*': "font-family: inherit",
        r"(font: [^;\"]*?px) [^;\"]*": r"\1 sans-serif",
        **{colour: f"var(--{name})" for name, colour in COLOURS.items()},
        r'<svg[^>]*?viewBox="([^"]*)"[^>]*>': r'<svg viewBox="\1" role="img" aria-hidden="true">',
    }
    for pattern, replacement in changes.items():
        text = re.sub(pattern, replacement, text)
    return text
