"""Figures of tests, intervals and time courses; each draws a result of ``tracelearn.inference`` and returns its axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelearn.plotting.canvas import COLOURS, INK, LIMIT, OnePanel, legend_above, plain

__all__ = ["draw_null"]


def _axes(ax: Any) -> Any:
    axes = OnePanel()._open_one(ax)
    plain(axes)
    return axes


def draw_null(found: Any, ax: Any = None) -> Any:
    """Draw the scores of the permutations as a histogram, and the score that was found as a line."""
    axes = _axes(ax)
    bins = np.histogram_bin_edges(np.append(found.null, found.score), bins="auto")
    axes.hist(found.null, bins=bins[:: max(1, len(bins) // 60)], color=COLOURS[5], label="permutations")
    axes.axvline(found.score, label=f"found, p = {found.p_value:.3g}", **LIMIT)
    axes.axvline(float(np.mean(found.null)), color=INK, linewidth=1.0, label="mean of permutations")
    axes.set(xlabel=found.scoring, ylabel="permutations")
    legend_above(axes)
    return axes
