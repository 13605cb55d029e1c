"""What all displays share: axes to draw on, colours, and files of pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array
from tracelearn.io.writing import write_atomically
from tracelearn.optional import require

__all__ = [
    "COLOURS",
    "DASHES",
    "INK",
    "MARKERS",
    "REFERENCE_LINE",
    "hide_top_and_right",
    "legend_above",
    "looks_of",
    "open_axes",
    "open_single",
    "picture",
    "tick_names",
    "whole_ticks",
    "write_picture",
]

# Blue, vermilion, bluish green, orange, reddish purple, sky blue of Okabe and Ito (2008): neighbours differ most.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9")
# Grey printing keeps these apart where it loses colours.
DASHES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P")
INK = "#4D4D4D"
# How a line looks that marks what was chosen, found or asked for.
REFERENCE_LINE: dict[str, Any] = {"color": COLOURS[1], "linestyle": (0, (4, 2)), "linewidth": 1.4}


def open_axes(
    ax: Any,
    grid: tuple[int, int],
    size: tuple[float, float],
    need: str,
    *,
    count: int | None = None,
    widths: Sequence[float] | None = None,
    framed: bool = False,
) -> Array:
    """Take the axes that are given, or those of a new figure, as an array of ``count`` of them.

    Parameters
    ----------
    ax : one axes, a sequence of them, or None for a new figure
    grid : rows and columns of a new figure
    size : width and height of one panel of a new figure, in inches
    need : what the axes are for, as an error says it
    count : of panels, by default all of the grid
    widths : of the columns of a new figure, as multiples of a panel; by default all one
    framed : whether the frames stay whole, as around images
    """
    count = grid[0] * grid[1] if count is None else count
    panels = _new_axes(grid, size, count, widths) if ax is None else _given_axes(ax, count, need)
    if not framed:
        for axes in panels:
            hide_top_and_right(axes)
    return panels


def open_single(ax: Any) -> Any:
    """Take the axes that are given, or those of a new figure."""
    (axes,) = open_axes(ax, (1, 1), (5.6, 3.8), "a single one")
    return axes


def _new_axes(grid: tuple[int, int], size: tuple[float, float], count: int, widths: Sequence[float] | None) -> Array:
    """Make a figure with a grid of panels, of which the last ones may be left out."""
    plt = require("matplotlib.pyplot", "plot")
    ratios = [1.0] * grid[1] if widths is None else widths
    whole = sum(ratios) * size[0], grid[0] * size[1]
    _, table = plt.subplots(*grid, squeeze=False, figsize=whole, layout="constrained", width_ratios=ratios)
    cells = table.ravel()
    for cell in cells[count:]:
        cell.remove()
    return cells[:count]


def _given_axes(ax: Any, count: int, need: str) -> Array:
    """Read axes of matplotlib, of which there must be so many."""
    kind = require("matplotlib.axes", "plot").Axes
    listed = [ax] if isinstance(ax, kind) else list(np.ravel(np.array(ax, dtype=object)))
    are_axes = all(isinstance(axes, kind) for axes in listed)
    if len(listed) != count or not are_axes:
        got = f"{len(listed)}" if are_axes else type(ax).__name__
        raise ValueError(f"Expected {count} axes of matplotlib, {need}, got {got}: pass as many, or ax=None.")
    panels = np.empty(count, dtype=object)
    panels[:] = listed
    return panels


def hide_top_and_right(axes: Any) -> None:
    """Take away the two lines of the frame that carry no numbers."""
    axes.spines[["top", "right"]].set_visible(False)


def whole_ticks(axis: Any, **options: Any) -> None:
    """Put ticks at whole numbers only."""
    axis.get_major_locator().set_params(integer=True, **options)


def looks_of(number: int) -> dict[str, Any]:
    """Choose colour and dash of a curve."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}


def legend_above(axes: Any, columns: int = 4, **spacing: float) -> None:
    """Put the legend where it can hide nothing."""
    count = min(len(axes.get_legend_handles_labels()[0]), columns)
    options = {"ncols": count, "frameon": False, "fontsize": "small"}
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), **options, **spacing)


def picture(axes: Any, kind: str, **options: Any) -> bytes:
    """Render the figure that axes belong to as the bytes of a file, such as a png; ``options`` are those of ``savefig``."""
    figure = np.ravel(np.array(axes, dtype=object))[0].figure
    content = io.BytesIO()
    figure.savefig(content, format=kind, **options)
    require("matplotlib.pyplot", "plot").close(figure)
    return content.getvalue()


def write_picture(axes: Any, path: Path, **options: Any) -> None:
    """Write a figure to a file, in the format that its name asks for."""
    write_atomically(path, picture(axes, path.suffix.lower().removeprefix("."), **options))


def tick_names(axis: Any, names: Sequence[str], inches: float = 3.0) -> None:
    """Name ticks at 0, 1, ...: all names where there is room, else every second, third and so on; upright if long."""
    upright = axis.axis_name == "x" and sum(len(name) + 2 for name in names) > 12 * inches
    room = int(6 * inches) if upright or axis.axis_name == "y" else len(names)
    step = -(-len(names) // max(room, 1))
    axis.set_ticks(range(0, len(names), step), names[::step], rotation=90 if upright else 0)
