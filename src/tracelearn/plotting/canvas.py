"""What all displays share: axes to draw on, and looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array
from tracelearn.optional import require

__all__ = ["COLOURS", "DASHES", "INK", "LIMIT", "MARKERS", "OnePanel", "Panels", "legend_above", "plain", "tick_names"]

# Blue, vermilion, bluish green, orange, reddish purple, sky blue of Okabe and Ito (2008): neighbours differ most.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9")
# Grey printing keeps these apart where it loses colours.
DASHES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P")
INK = "#4D4D4D"
# A line at what was chosen, found or asked for.
LIMIT: dict[str, Any] = {"color": COLOURS[1], "linestyle": (0, (4, 2)), "linewidth": 1.4}


class Panels:
    """A display on several axes."""

    axes_: Array
    figure_: Any

    def _open(
        self, ax: Any, grid: tuple[int, int], size: tuple[float, float], need: str, count: int | None = None
    ) -> None:
        """Take the axes that are given, or those of a new figure; the arguments are those of ``_panels``."""
        self.axes_, self.figure_ = _panels(ax, grid, size, need, count)


class OnePanel:
    """A display on one axes."""

    ax_: Any
    figure_: Any

    def _open(self, ax: Any) -> Any:
        """Take the axes that are given, or those of a new figure, and return them."""
        (self.ax_,), self.figure_ = _panels(ax, (1, 1), (5.6, 3.8), "a single one")
        return self.ax_


def _panels(
    ax: Any, grid: tuple[int, int], size: tuple[float, float], need: str, count: int | None = None
) -> tuple[Array, Any]:
    """Return ``count`` axes in an array, those given or those of a new figure with a grid; and their figure.

    Parameters
    ----------
    ax : one axes, a sequence of them, or None
    grid : rows and columns of a new figure
    size : width and height of one panel of a new figure, in inches
    need : what the axes are for, as an error says it
    count : of panels, by default all of the grid
    """
    count = grid[0] * grid[1] if count is None else count
    if ax is None:
        plt = require("matplotlib.pyplot", "plot")
        whole = grid[1] * size[0], grid[0] * size[1]
        figure, table = plt.subplots(*grid, figsize=whole, layout="constrained", squeeze=False)
        cells = table.ravel()
        for cell in cells[count:]:
            cell.remove()
        return cells[:count], figure
    kind = require("matplotlib.axes", "plot").Axes
    given = [ax] if isinstance(ax, kind) else list(np.ravel(np.array(ax, dtype=object)))
    if len(given) != count or not all(isinstance(one, kind) for one in given):
        got = f"{len(given)}" if all(isinstance(one, kind) for one in given) else f"{type(ax).__name__}"
        raise ValueError(f"Expected {count} axes of matplotlib, {need}, got {got}: pass as many, or ax=None.")
    axes = np.empty(count, dtype=object)
    axes[:] = given
    return axes, given[0].figure


def plain(axes: Any) -> None:
    """Take away the two lines of the frame that carry no numbers."""
    axes.spines[["top", "right"]].set_visible(False)


def legend_above(axes: Any, columns: int = 4, **spacing: float) -> None:
    """Put the legend where it can hide nothing."""
    count = min(len(axes.get_legend_handles_labels()[0]), columns)
    options = {"ncols": count, "frameon": False, "fontsize": "small"}
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), **options, **spacing)


def tick_names(axis: Any, names: Sequence[str], inches: float = 3.0) -> None:
    """Name ticks at 0, 1, ...: all names where there is room, else every second, third and so on; upright if long."""
    upright = axis.axis_name == "x" and sum(len(name) + 2 for name in names) > 12 * inches
    room = int(6 * inches) if upright or axis.axis_name == "y" else len(names)
    step = -(-len(names) // max(room, 1))
    axis.set_ticks(range(0, len(names), step), names[::step], rotation=90 if upright else 0)
