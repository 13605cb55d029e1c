"""Figures of tests, intervals and time courses; each draws a result of ``tracelearn.inference`` and returns its axes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tracelearn.plotting.canvas import (
    COLOURS,
    INK,
    REFERENCE_LINE,
    legend_above,
    open_axes,
    open_single,
    tick_names,
    whole_ticks,
)
from tracelearn.plotting.modes import draw_image, name_ticks
from tracelearn.samples.modes import Mode

__all__ = ["draw_bootstrap", "draw_comparison", "draw_decoding", "draw_map", "draw_null"]


def draw_null(test: Any, ax: Any = None) -> Any:
    """Draw the scores of the permutations as a histogram, and that of the true targets as a line."""
    axes = open_single(ax)
    bins = np.histogram_bin_edges(np.append(test.null, test.score), bins="auto")
    axes.hist(test.null, bins=bins[:: max(1, len(bins) // 60)], color=COLOURS[5], label="permutations")
    axes.axvline(test.score, label=f"test, p = {test.p_value:.3g}", **REFERENCE_LINE)
    axes.axvline(float(np.mean(test.null)), color=INK, linewidth=1.0, label="mean of permutations")
    axes.set(xlabel=test.scoring.replace("_", " "), ylabel="permutations")
    legend_above(axes)
    return axes


def draw_comparison(comparison: Any, ax: Any = None) -> Any:
    """Draw the scores of all folds, and next to them how far the first model is from each other one, with 95 % intervals."""
    panels = open_axes(ax, (1, 2), (4.6, 0.8 + 0.5 * len(comparison.names)), "for scores and for differences")
    folds, differences = panels
    places = np.arange(len(comparison.names))
    for m, scores in enumerate(comparison.scores):
        folds.plot(scores, np.full(len(scores), m), "o", color=COLOURS[5], alpha=0.5, markersize=4)
    folds.plot(comparison.means, places, "D", color=COLOURS[0], label="mean")
    reach = np.stack([comparison.difference - comparison.low, comparison.high - comparison.difference])[:, 1:]
    differences.errorbar(comparison.difference[1:], places[1:], xerr=reach, fmt="D", color=COLOURS[0], capsize=3)
    differences.axvline(0.0, color=INK, linewidth=1.0)
    for m in places[1:]:
        differences.annotate(
            f"p = {comparison.p_value[m]:.2g}",
            (comparison.difference[m], m),
            (0, 6),
            textcoords="offset points",
            ha="center",
        )
    for axes, words in (
        (folds, comparison.scoring.replace("_", " ")),
        (differences, f"{comparison.names[0]} better by"),
    ):
        tick_names(axes.yaxis, comparison.names)
        axes.set(xlabel=words, ylim=(len(places) - 0.5, -0.5))
    return panels


def draw_decoding(decoding: Any, ax: Any = None, times: Any = None, label: str | None = None) -> Any:
    """Draw a score over positions with its standard error, or the map of trained and tested positions.

    On axes that have the scores of another decoding already, these have the next colour.
    """
    axes = open_single(ax)
    mode = decoding.mode
    if times is not None or mode is None:
        mode = Mode("position", decoding.positions) if times is None else Mode("time", np.asarray(times))
    if len(mode.values) != len(decoding.positions):
        raise ValueError(f"Expected {len(decoding.positions)} times, one for each position, got {len(mode.values)}.")
    if decoding.scores.ndim == 3:
        return _draw_generalization(axes, decoding, mode)
    n_before = len(axes.collections)  # each decoding is one collection: a band, or error bars
    colour = COLOURS[n_before % len(COLOURS)]
    mean, error = decoding.mean, decoding.standard_error
    if mode.has_names:  # no line joins them
        looks = {"fmt": "o", "color": colour, "capsize": 3, "label": label or "mean over folds, standard error"}
        axes.errorbar(np.arange(len(mode.values)), mean, error, **looks)
        name_ticks(mode, axes.xaxis)
    else:
        band_label = "standard error" if label is None else None
        axes.fill_between(mode.values, mean - error, mean + error, color=colour, alpha=0.3, lw=0, label=band_label)
        axes.plot(mode.values, mean, color=colour, label=label or "mean over folds")
    if decoding.chance is not None and not n_before:
        axes.axhline(decoding.chance, color=INK, linewidth=1.0, linestyle="--", label="chance")
    axes.set(xlabel=mode.label, ylabel=decoding.scoring.replace("_", " "))
    legend_above(axes)
    return axes


def _draw_generalization(axes: Any, decoding: Any, mode: Mode) -> Any:
    """Draw the scores of models of one position at all others."""
    # Colours are centred where a model that knows nothing scores, so that both sides of it are seen.
    ends = (float(decoding.mean.min()), float(decoding.mean.max()))
    middle = 0.5 * sum(ends) if decoding.chance is None else decoding.chance
    reach = max(ends[1] - middle, middle - ends[0]) or 1.0
    training, testing = (replace(mode, name=f"{which} {mode.name}") for which in ("training", "testing"))
    looks: dict[str, Any] = {
        "upwards": True,
        "aspect": "equal",
        "cmap": "RdBu_r",
        "vmin": middle - reach,
        "vmax": middle + reach,
    }
    image = draw_image(axes, decoding.mean, training, testing, **looks)
    axes.plot(mode.edges(), mode.edges(), color=INK, linewidth=0.8)
    centre = "" if decoding.chance is None else f", white at chance, {decoding.chance:.2f}"
    axes.figure.colorbar(image, ax=axes, label=decoding.scoring.replace("_", " ") + centre)
    return axes


def draw_map(test: Any, ax: Any = None, level: float = 0.05) -> Any:
    """Draw a map with what survives marked: a matrix as an image, other orders by their first mode against the rest."""
    axes = open_single(ax)
    is_significant = test.significant(level)
    values = test.map
    if is_significant.ndim > test.order:  # several targets: the first
        values = values[0]
        is_significant = is_significant[0]
    if values.ndim == 1:
        axes.plot(values, color=COLOURS[0])
        axes.plot(
            np.flatnonzero(is_significant),
            values[is_significant],
            "o",
            color=COLOURS[1],
            label=f"p ≤ {level:g}, corrected",
        )
        axes.set(xlabel="entry" if test.modes is None else test.modes[0].label, ylabel=test.what)
        return axes
    rows, columns = _two_modes(test.modes, values.shape)
    values = values.reshape(len(values), -1)
    is_significant = is_significant.reshape(len(is_significant), -1)
    reach = float(np.max(np.abs(values))) or 1.0
    image = draw_image(axes, values, rows, columns, upwards=False, cmap="RdBu_r", vmin=-reach, vmax=reach)
    _outline(axes, is_significant, columns, rows)
    axes.figure.colorbar(image, ax=axes, label=f"{test.what}, p ≤ {level:g} outlined")
    return axes


def _two_modes(modes: Any, shape: tuple[int, ...]) -> tuple[Mode, Mode]:
    """Return the first mode of a map, and one mode that stands for all others."""
    entries = np.arange(int(np.prod(shape[1:])))
    if modes is None:
        name = "second mode" if len(shape) == 2 else "other modes"
        return Mode("first mode", np.arange(shape[0])), Mode(name, entries)
    if len(modes) == 2:
        return modes[0], modes[1]
    return modes[0], Mode(" × ".join(mode.name for mode in modes[1:]), entries)


def _outline(axes: Any, is_significant: Any, columns: Mode, rows: Mode) -> None:
    """Draw a line around the significant entries of an image, along their edges."""
    x, y = (
        np.linspace(*mode.edges(), size + 1)
        for mode, size in ((columns, is_significant.shape[1]), (rows, is_significant.shape[0]))
    )
    inside = np.pad(is_significant, 1)
    r, c = np.nonzero(inside[1:-1, 1:] != inside[1:-1, :-1])
    upright = np.stack([np.stack([x[c], y[r]], axis=1), np.stack([x[c], y[r + 1]], axis=1)], axis=1)
    r, c = np.nonzero(inside[1:, 1:-1] != inside[:-1, 1:-1])
    level = np.stack([np.stack([x[c], y[r]], axis=1), np.stack([x[c + 1], y[r]], axis=1)], axis=1)
    ends = np.concatenate([upright, level])  # (lines, 2, 2)
    axes.plot(*np.moveaxis(ends, 2, 0).transpose(0, 2, 1), color=INK, linewidth=1.2)


def draw_bootstrap(draws: Any, ax: Any = None, coordinates: Any = None) -> Any:
    """Draw the scores with their interval, how often each rank was found, and the angles of the subspaces.

    Samples of one mode have no ranks: there the pattern with its band takes their place.
    """
    if draws.coef.ndim == 1:
        panels = open_axes(ax, (1, 2), (4.6, 3.2), "for scores and the pattern", widths=(1.0, 1.4))
        _draw_scores(draws, panels[0])
        _draw_pattern(draws, panels[1], coordinates)
        return panels
    panels = open_axes(ax, (1, 3), (3.4, 3.2), "for scores, ranks and angles")
    scores, ranks, angles = panels
    _draw_scores(draws, scores)
    modes = np.arange(draws.ranks.shape[1])
    for mode in modes:
        shares = draws.rank_shares(int(mode))
        sizes = [600.0 * share for share in shares.values()]
        ranks.scatter([mode] * len(shares), list(shares), s=sizes, color=COLOURS[0], alpha=0.7)
    angles.boxplot(draws.angles, positions=modes, orientation="horizontal", medianprops={"color": COLOURS[1]})
    ranks.set(xlabel="mode", ylabel="rank", xticks=modes, xlim=(-0.5, len(modes) - 0.5))
    whole_ticks(ranks.yaxis)
    angles.set(xlabel="largest angle to the subspace\nof all samples (degrees)", ylabel="mode", xlim=(0, 90))
    return panels


def _draw_scores(draws: Any, axes: Any) -> None:
    """Draw the scores of all bootstraps as a histogram, and above it the score on new samples with its interval."""
    counts, _, _ = axes.hist(draws.scores, bins="auto", color=COLOURS[5], label="draws, on what they leave out")
    reach = np.abs(draws.interval("scores") - draws.score)[:, None]
    above = 1.08 * float(np.max(counts))
    label = f"model of all samples on new ones, {draws.level:.0%}"
    axes.errorbar(draws.score, above, xerr=reach, fmt="D", color=COLOURS[0], capsize=3, label=label)
    legend_above(axes, columns=1)
    axes.set(xlabel=draws.scoring.replace("_", " "), ylabel="bootstraps")
    axes.locator_params(axis="x", nbins=5)  # scores near 1 have many digits


def _draw_pattern(draws: Any, axes: Any, coordinates: Any) -> None:
    """Draw the pattern over the entries of samples of one mode, with the band that holds for all of them at once."""
    places = np.arange(len(draws.coef)) if coordinates is None else np.asarray(coordinates)
    if places.shape != draws.coef.shape:
        raise ValueError(
            f"Expected {len(draws.coef)} coordinates, one for each entry of a sample, got shape {places.shape}: pass as many."
        )
    low, high = draws.interval("patterns", simultaneous=True)
    axes.fill_between(
        places, low, high, color=COLOURS[0], alpha=0.3, lw=0, label=f"{draws.level:.0%}, all entries at once"
    )
    axes.plot(places, 0.5 * (low + high), color=COLOURS[0], label="pattern")
    axes.axhline(0.0, color=INK, linewidth=0.8)
    axes.set(xlabel="entry" if coordinates is None else "coordinate", ylabel="pattern")
    legend_above(axes)
