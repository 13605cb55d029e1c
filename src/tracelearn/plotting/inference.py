"""Figures of tests, intervals and time courses; each draws a result of ``tracelearn.inference`` and returns its axes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tracelearn.plotting.canvas import (
    COLOURS,
    INK,
    LIMIT,
    OnePanel,
    Panels,
    legend_above,
    tick_names,
    whole_ticks,
)
from tracelearn.plotting.modes import draw_image, name_ticks
from tracelearn.samples.modes import Mode

__all__ = ["draw_bootstrap", "draw_comparison", "draw_curve", "draw_decoding", "draw_map", "draw_null"]


def draw_null(found: Any, ax: Any = None) -> Any:
    """Draw the scores of the permutations as a histogram, and the score that was found as a line."""
    axes = OnePanel()._open_one(ax)
    bins = np.histogram_bin_edges(np.append(found.null, found.score), bins="auto")
    axes.hist(found.null, bins=bins[:: max(1, len(bins) // 60)], color=COLOURS[5], label="permutations")
    axes.axvline(found.score, label=f"found, p = {found.p_value:.3g}", **LIMIT)
    axes.axvline(float(np.mean(found.null)), color=INK, linewidth=1.0, label="mean of permutations")
    axes.set(xlabel=found.scoring, ylabel="permutations")
    legend_above(axes)
    return axes


def draw_comparison(found: Any, ax: Any = None) -> Any:
    """Draw the scores of all folds, and next to them how far the first model is from each other one, with 95 % intervals."""
    panels = Panels()
    panels._open(ax, (1, 2), (4.6, 0.8 + 0.5 * len(found.names)), "for scores and for differences")
    left, right = panels.axes_
    places = np.arange(len(found.names))
    for m, scores in enumerate(found.scores):
        left.plot(scores, np.full(len(scores), m), "o", color=COLOURS[5], alpha=0.5, markersize=4)
    left.plot(found.means, places, "D", color=COLOURS[0], label="mean")
    reach = np.stack([found.difference - found.low, found.high - found.difference])[:, 1:]
    right.errorbar(found.difference[1:], places[1:], xerr=reach, fmt="D", color=COLOURS[0], capsize=3)
    right.axvline(0.0, color=INK, linewidth=1.0)
    for m in places[1:]:
        right.annotate(
            f"p = {found.p_value[m]:.2g}", (found.difference[m], m), (0, 6), textcoords="offset points", ha="center"
        )
    for axes, words in ((left, found.scoring), (right, f"{found.names[0]} better by")):
        tick_names(axes.yaxis, found.names)
        axes.set(xlabel=words, ylim=(len(places) - 0.5, -0.5))
    return panels.axes_


def draw_decoding(found: Any, ax: Any = None, times: Any = None) -> Any:
    """Draw a score over positions with its standard error, or the map of trained and tested positions."""
    axes, mode = OnePanel()._open_one(ax), found.mode
    if times is not None or mode is None:
        mode = Mode("position", found.positions) if times is None else Mode("time", np.asarray(times))
    if len(mode.values) != len(found.positions):
        raise ValueError(f"Expected {len(found.positions)} times, one for each position, got {len(mode.values)}.")
    if found.scores.ndim == 3:
        return _draw_generalization(axes, found, mode)
    if mode.has_names:  # no line joins them
        looks = {"fmt": "o", "color": COLOURS[0], "capsize": 3, "label": "mean over folds, standard error"}
        axes.errorbar(np.arange(len(mode.values)), found.mean, found.standard_error, **looks)
        name_ticks(mode, axes.xaxis)
    else:
        _band(axes, mode.values, found)
    if found.chance is not None:
        axes.axhline(found.chance, color=INK, linewidth=1.0, linestyle="--", label="chance")
    axes.set(xlabel=mode.label, ylabel=found.scoring)
    legend_above(axes)
    return axes


def _draw_generalization(axes: Any, found: Any, mode: Mode) -> Any:
    """Draw the scores of models of one position at all others."""
    # Colours are centred where a model that knows nothing scores, so that both sides of it are seen.
    ends = (float(found.mean.min()), float(found.mean.max()))
    middle = 0.5 * sum(ends) if found.chance is None else found.chance
    reach = max(ends[1] - middle, middle - ends[0]) or 1.0
    training, testing = (replace(mode, name=f"{which} {mode.name}") for which in ("training", "testing"))
    looks: dict[str, Any] = {
        "upwards": True,
        "aspect": "equal",
        "cmap": "RdBu_r",
        "vmin": middle - reach,
        "vmax": middle + reach,
    }
    image = draw_image(axes, found.mean, training, testing, **looks)
    axes.plot(mode.edges(), mode.edges(), color=INK, linewidth=0.8)
    centre = "" if found.chance is None else f", white at chance, {found.chance:.2f}"
    axes.figure.colorbar(image, ax=axes, label=f"{found.scoring}{centre}")
    return axes


def draw_map(found: Any, ax: Any = None, level: float = 0.05) -> Any:
    """Draw a map with what survives marked: a matrix as an image, other orders by their first mode against the rest."""
    axes, kept, values = OnePanel()._open_one(ax), found.significant(level), found.map
    if kept.ndim > found.order:  # several targets: the first
        values, kept = values[0], kept[0]
    if values.ndim == 1:
        axes.plot(values, color=COLOURS[0])
        axes.plot(np.flatnonzero(kept), values[kept], "o", color=COLOURS[1], label=f"p ≤ {level:g}, corrected")
        axes.set(xlabel="entry" if found.modes is None else found.modes[0].label, ylabel=found.what)
        return axes
    rows, columns = _two_modes(found.modes, values.shape)
    values, kept = values.reshape(len(values), -1), kept.reshape(len(kept), -1)
    reach = float(np.max(np.abs(values))) or 1.0
    image = draw_image(axes, values, rows, columns, upwards=False, cmap="RdBu_r", vmin=-reach, vmax=reach)
    _outline(axes, kept, columns, rows)
    axes.figure.colorbar(image, ax=axes, label=f"{found.what}, p ≤ {level:g} outlined")
    return axes


def _two_modes(modes: Any, shape: tuple[int, ...]) -> tuple[Mode, Mode]:
    """Name the first mode of a map, and all others together."""
    size = int(np.prod(shape[1:]))
    if modes is None:
        return Mode("first mode", np.arange(shape[0])), Mode(
            "second mode" if len(shape) == 2 else "other modes", np.arange(size)
        )
    together = Mode(" × ".join(mode.name for mode in modes[1:]), np.arange(size))
    return modes[0], modes[1] if len(modes) == 2 else together


def _outline(axes: Any, kept: Any, columns: Mode, rows: Mode) -> None:
    """Draw a line around the entries of an image that are kept, along their edges."""
    x, y = (np.linspace(*mode.edges(), size + 1) for mode, size in ((columns, kept.shape[1]), (rows, kept.shape[0])))
    inside = np.pad(kept, 1)
    r, c = np.nonzero(inside[1:-1, 1:] != inside[1:-1, :-1])
    upright = np.stack([np.stack([x[c], y[r]], axis=1), np.stack([x[c], y[r + 1]], axis=1)], axis=1)
    r, c = np.nonzero(inside[1:, 1:-1] != inside[:-1, 1:-1])
    level = np.stack([np.stack([x[c], y[r]], axis=1), np.stack([x[c + 1], y[r]], axis=1)], axis=1)
    ends = np.concatenate([upright, level])  # (lines, 2, 2)
    axes.plot(*np.moveaxis(ends, 2, 0).transpose(0, 2, 1), color=INK, linewidth=1.2)


def draw_bootstrap(found: Any, ax: Any = None) -> Any:
    """Draw the scores with their interval, how often each rank was found, and the angles of the subspaces."""
    panels = Panels()
    panels._open(ax, (1, 3), (3.4, 3.2), "for scores, ranks and angles")
    scores, ranks, angles = panels.axes_
    counts, _, _ = scores.hist(found.scores, bins="auto", color=COLOURS[5], label="draws, on what they leave out")
    reach = np.abs(found.interval("scores") - found.score)[:, None]
    above = 1.08 * float(np.max(counts))
    label = f"model of all samples on new ones, {found.level:.0%}"
    scores.errorbar(found.score, above, xerr=reach, fmt="D", color=COLOURS[0], capsize=3, label=label)
    legend_above(scores)
    modes = np.arange(found.ranks.shape[1])
    for mode in modes:
        shares = found.rank_shares(int(mode))
        sizes = [600.0 * share for share in shares.values()]
        ranks.scatter([mode] * len(shares), list(shares), s=sizes, color=COLOURS[0], alpha=0.7)
    angles.boxplot(found.angles, positions=modes, orientation="horizontal", medianprops={"color": COLOURS[1]})
    scores.set(xlabel=found.scoring, ylabel="bootstraps")
    ranks.set(xlabel="mode", ylabel="rank", xticks=modes, xlim=(-0.5, len(modes) - 0.5))
    whole_ticks(ranks.yaxis)
    angles.set(xlabel="largest angle to the subspace\nof all samples (degrees)", ylabel="mode", xlim=(0, 90))
    return panels.axes_


def draw_curve(found: Any, ax: Any = None) -> Any:
    """Draw a learning curve with its standard error."""
    axes = OnePanel()._open_one(ax)
    _band(axes, found.sizes, found, "o-")
    axes.set(xlabel="training samples", ylabel=found.scoring)
    legend_above(axes)
    return axes


def _band(axes: Any, places: Any, found: Any, style: str = "-") -> None:
    """Draw the mean over folds, and the standard error around it."""
    low, high = found.mean - found.standard_error, found.mean + found.standard_error
    axes.fill_between(places, low, high, color=COLOURS[5], label="standard error")
    axes.plot(places, found.mean, style, color=COLOURS[0], label="mean over folds")
