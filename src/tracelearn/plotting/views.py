"""What a model reads from each view of its samples, as numbers, words and panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import numpy as np

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.arrays.tensors import mode_factors
from tracelearn.features import Convolutions, SecondOrder, Similarities, TensorTransformer
from tracelearn.plotting.canvas import COLOURS, INK, hide_top_and_right, legend_above, open_axes
from tracelearn.plotting.modes import CARRIED, check_model, count_carrying, draw_over, leading_factors, modes_of
from tracelearn.plotting.weights import WeightsDisplay, choose_targets
from tracelearn.samples.modes import Mode

__all__ = ["ViewPart", "ViewsDisplay", "counted", "describe_views", "parts_of_model", "view_in_words"]

_MANY = 20  # names at an axis, which are written small


@dataclass(frozen=True, eq=False)
class ViewPart:
    """Weights (K, ...) and patterns of one view: in the modes that it shows, or of second order, and then of one window."""

    view: str
    window: int | None
    modes: list[Mode]  # of second order one, the channels with their copies
    coef: Array
    patterns: Array
    # Of second order: whitener and reference, which turn eigenvectors into filters and patterns.
    maps: tuple[Array, Array] | None = None

    @property
    def label(self) -> str:
        """The name of the view in words, with the window."""
        return view_in_words(self.view) + ("" if self.window is None else f", window {self.window}")

    def factors(self) -> list[tuple[Array, Array]]:
        """Find left singular vectors and singular values of every mode; several targets are unfolded side by side."""
        return [mode_factors(self.coef, n + 1) for n in range(len(self.modes))]

    def sources(self, most: int) -> tuple[Array, Array, Array]:
        """Read the weights of second order as leading filters (n, c), their patterns, and their shares of the squared weights.

        The entry of largest size of every pattern is positive.
        """
        assert self.maps is not None
        (factors,) = self.factors()
        vectors, shares, _ = leading_factors(*factors, most)
        filters = vectors.T @ self.maps[0]
        patterns = filters @ self.maps[1]
        signs = np.where(patterns.max(axis=1) >= -patterns.min(axis=1), 1.0, -1.0)[:, None]
        return signs * filters, signs * patterns, shares


def view_in_words(name: str) -> str:
    """Write the name of a view with spaces and commas, for a title.

    Examples
    --------
    >>> from tracelearn.plotting.views import view_in_words
    >>> view_in_words("second_order_slow_lags"), view_in_words("raw")
    ('second order, slow lags', 'raw')
    """
    name = name.replace("second_order_", "second order, ").replace("similarities_", "similarities, ")
    return name.replace("_", " ")


def parts_of_model(estimator: Any, modes: list[Mode] | None = None) -> list[ViewPart]:
    """Take a model that a search has chosen apart: a part for each view, and for each window of it."""
    coefs = check_model(estimator, "coef_by_view_")
    patterns = estimator.patterns_by_view_
    modes = modes or modes_of(estimator)
    parts: list[ViewPart] = []
    for view, transformer in estimator.views_.items():
        W, P = to_numpy(coefs[view]), to_numpy(patterns[view])
        if isinstance(transformer, Similarities):  # read as the landmarks that it compares with, summed up
            W, P = transformer.entry_weights(W), transformer.entry_patterns(W)
            transformer = transformer.transformers_[0] if transformer.transformers_ else None  # noqa: PLW2901
        if isinstance(transformer, SecondOrder):
            parts += _parts_of_windows(view, transformer, modes, W, P)
            continue
        if isinstance(transformer, Convolutions):
            modes_of_view = _modes_of_convolutions(transformer, modes)
        else:
            modes_of_view = _modes_of_entries(transformer, modes, W.shape[-1])
        shape = (-1, *(len(mode.values) for mode in modes_of_view))
        parts.append(ViewPart(view, None, modes_of_view, W.reshape(shape), P.reshape(shape)))
    return parts


def _modes_of_entries(transformer: Any, modes: list[Mode], last_size: int) -> list[Mode]:
    """Describe the modes that any other transformer makes: those of a sample where it keeps their shape, else numbered ones."""
    shape = tuple(len(mode.values) for mode in modes)
    if transformer is None:
        return modes
    if isinstance(transformer, TensorTransformer):
        shape_of_view = transformer.output_shape_
    else:  # of scikit-learn: rows as long as a sample are taken to have its entries
        shape_of_view = shape if last_size == math.prod(shape) else (last_size,)
    if shape_of_view == shape:
        return modes
    order = len(shape_of_view)
    names = ["feature"] if order == 1 else [f"feature mode {n + 1}" for n in range(order)]
    return [Mode(name, np.arange(size)) for name, size in zip(names, shape_of_view, strict=True)]


def _modes_of_convolutions(transformer: Convolutions, modes: list[Mode]) -> list[Mode]:
    """Describe the two modes that convolutions make of those of a sample."""
    channels, names = _channels(transformer, modes)
    rows, columns = transformer.entry_names(names)
    return [Mode(f"{channels} and dilation", np.array(rows)), Mode("waveform and threshold", np.array(columns))]


def _parts_of_windows(view: str, transformer: SecondOrder, modes: list[Mode], W: Array, P: Array) -> list[ViewPart]:
    """Cut the weights and patterns of second order into windows, over channels with their copies."""
    channels, names = _channels(transformer, modes)
    mode = Mode(channels, np.array(transformer.channel_names(names)))
    n_windows = transformer.windows
    n_channels = len(mode.values)
    matrices = (-1, n_windows, n_channels, n_channels)
    W, P = W.reshape(matrices), P.reshape(matrices)
    whiteners = transformer.whitener_.reshape(-1, n_channels, n_channels)
    references = transformer.reference_.reshape(-1, n_channels, n_channels)
    parts = []
    for k in range(n_windows):
        number = k + 1 if n_windows > 1 else None
        parts.append(ViewPart(view, number, [mode], W[:, k], P[:, k], (whiteners[k], references[k])))
    return parts


def _channels(transformer: Any, modes: list[Mode]) -> tuple[str, list[str]]:
    """Name the modes of a sample but time together, and their entries."""
    others = [mode for n, mode in enumerate(modes) if n != transformer.time_axis_]
    entries = product(*(mode.values.tolist() for mode in others))
    names = [",".join(f"{x:.6g}" if isinstance(x, float) else str(x) for x in entry) for entry in entries]
    return " × ".join("channel" if mode.name.startswith("mode ") else mode.name for mode in others), names


def describe_views(estimator: Any, parts: Sequence[ViewPart] | None = None) -> dict[str, str]:
    """Say of each view of a fitted CV estimator how much of it the model needs, and where its strongest source is.

    Fewest components, or sources of second order, are counted that carry 99 % of the squared weights of the view.

    Parameters
    ----------
    estimator : fitted TensorClassifier or TensorRegressor
    parts : list of ViewPart, default=None
        Those of the estimator with names of modes and channels; None: without names.

    Examples
    --------
    >>> from tracelearn import TensorRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.report import describe_views
    >>> X, y, W = make_low_rank_regression(300, (6, 5), rank=1, noise=0.1, random_state=0)
    >>> describe_views(TensorRegressor(views=None).fit(X, y))
    {'raw': '1 component of mode 0 and 1 of mode 1 carry 99 %'}
    """
    parts = parts_of_model(estimator) if parts is None else parts
    sentences = {}
    for view in dict.fromkeys(part.view for part in parts):
        parts_of_view = [part for part in parts if part.view == view]
        sentences[view] = _in_words(estimator, parts_of_view)
        transformer = estimator.views_[view]
        if isinstance(transformer, Similarities):
            count = len(transformer.draws_)
            sentences[view] = f"{count} training samples to compare with; summed up, {sentences[view]}"
    return sentences


def _in_words(estimator: Any, parts: list[ViewPart]) -> str:
    """Say how much of a view the model needs, given the parts of the view."""
    if not any(np.any(part.coef) for part in parts):
        return "its weights are zero"
    if parts[0].maps is None:
        counts = [count_carrying(sizes.astype(float) ** 2) for _, sizes in parts[0].factors()]
        return counted("component", "of", counts, [mode.name for mode in parts[0].modes])
    squares = [part.factors()[0][1].astype(float) ** 2 for part in parts]
    whole = np.concatenate(squares)
    counts = [count_carrying(squares_of_window, whole) for squares_of_window in squares]
    names = ["" if part.window is None else f"window {part.window}" for part in parts]
    return counted("source", "in", counts, names) + _leading(estimator, parts)


def counted(noun: str, preposition: str, counts: list[int], names: list[str]) -> str:
    """Say how many components of each mode, or sources in each window, carry nearly all of the weights.

    Examples
    --------
    >>> from tracelearn.plotting.views import counted
    >>> counted("source", "in", [2, 0, 1], ["window 1", "window 2", "window 3"])
    '2 sources in window 1 and 1 in window 3 carry 99 %'
    """
    phrases: list[str] = []
    for count, name in zip(counts, names, strict=True):
        if count:
            plural = "s" if count > 1 else ""
            number = f"{count}" if phrases else f"{count} {noun}{plural}"
            phrases.append(f"{number} {preposition} {name}" if name else number)
    listed = " and ".join([", ".join(phrases[:-1]), phrases[-1]]) if len(phrases) > 1 else phrases[0]
    verb = "carries" if sum(counts) == 1 else "carry"
    return f"{listed} {verb} {100 * CARRIED:.0f} %"


def _leading(estimator: Any, parts: list[ViewPart]) -> str:
    """Say at which channel the strongest source is largest and, with a single weight tensor, what more of it means."""
    sizes = [float(np.linalg.norm(part.coef, 2, axis=(1, 2)).max()) for part in parts]
    part = parts[int(np.argmax(sizes))]
    largest = int(np.argmax(part.sources(1)[1][0]))
    where = "the mean" if part.modes[0].values[largest] == "mean" else part.modes[0].entry(largest)
    if len(part.coef) > 1:
        return f"; the strongest is largest at {where}"
    eigenvalues = np.linalg.eigvalsh((part.coef[0] + part.coef[0].T) / 2)
    larger = bool(eigenvalues[np.argmax(np.abs(eigenvalues))] > 0)
    if hasattr(estimator, "classes_"):
        return (
            f"; the strongest is largest at {where}, and more of it makes {estimator.classes_[int(larger)]} more likely"
        )
    return f"; the strongest is largest at {where}, and more of it means {'larger' if larger else 'smaller'} targets"


@dataclass(kw_only=True, eq=False, repr=False)
class ViewsDisplay:
    """What a model reads from each view: a row of two panels for each, and how much views add to held-out scores.

    Raw and whitened views have their weights on the left and their patterns on the right, for samples as the view shows them; of
    higher orders the slice with the largest pattern. Similarities are shown as the training samples that they compare with,
    summed up, each times its weight. Second order has its leading spatial filters and their patterns, over channels with their
    copies, a row for each window. The last panel has the shares of all views that were tried, where these are several.

    Parameters
    ----------
    parts : list of ViewPart
    shares : dict of floats, by the name of the view; may be empty
    n_sources : int, default=2
        How many sources of second order to draw, at most.

    Attributes
    ----------
    axes_ : array of matplotlib axes
    figure_ : matplotlib figure

    Examples
    --------
    >>> from tracelearn import TensorRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.plotting import ViewsDisplay
    >>> X, y, W = make_low_rank_regression(200, (6, 5), rank=1, random_state=0)
    >>> model = TensorRegressor(alphas=4, cv=3, views=None).fit(X, y)
    >>> display = ViewsDisplay.from_estimator(model, mode_names=("channel", "time"))
    >>> [ax.get_title() for ax in display.axes_][:2]
    ['raw: weights', 'raw: patterns']
    """

    parts: Sequence[ViewPart]
    shares: dict[str, float]
    n_sources: int = 2

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        target: Any = None,
        n_sources: int = 2,
        mode_names: Any = None,
        coordinates: Any = None,
        units: Any = None,
        ax: Any = None,
    ) -> Self:
        """Draw the views of a model.

        Parameters
        ----------
        estimator : fitted TensorClassifier or TensorRegressor
        target : class label, or number of a target, default=None
            Whose weights; None is the first that has some.
        n_sources : int, default=2
        mode_names, units : sequences of N str or None, default=None
        coordinates : sequence of N arrays or None, default=None
        ax : matplotlib axes, two for each part and one for shares, default=None
        """
        parts = parts_of_model(estimator, modes_of(estimator, mode_names, coordinates, units))
        (k, *_), _ = choose_targets(estimator, len(parts[0].coef), target)
        parts = [replace(part, coef=part.coef[k : k + 1], patterns=part.patterns[k : k + 1]) for part in parts]
        shares = getattr(estimator, "view_shares_", {})
        return cls(parts=parts, shares=shares if len(shares) > 1 else {}, n_sources=n_sources).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on the axes that are given, or on a new figure."""
        rows = len(self.parts)
        last = bool(self.shares)
        self.axes_ = open_axes(
            ax, (rows + last, 2), (4.4, 2.7), "two for each view and one for shares", count=2 * rows + last, framed=True
        )
        self.figure_ = self.axes_[0].figure
        for part, left, right in zip(self.parts, self.axes_[::2], self.axes_[1::2], strict=False):
            (self._plot_tensors if part.maps is None else self._plot_sources)(part, left, right)
        if self.shares:
            self._plot_shares(self.axes_[-1])
        return self

    def _plot_tensors(self, part: ViewPart, left: Any, right: Any) -> None:
        """Draw the weights of a part on the left and its patterns on the right, of order 3 and above where the pattern peaks."""
        peak = np.unravel_index(int(np.argmax(np.abs(part.patterns[0]))), part.patterns[0].shape)
        for axes, kind, tensors in ((left, "weight", part.coef), (right, "pattern", part.patterns)):
            title = f"{part.label}: {kind}s" + ("" if np.any(tensors) else ", all zero")
            display = WeightsDisplay(tensors=[tensors[0]], targets=[title], modes=part.modes, quantity=kind)
            display.plot(axes, slices=[peak[:-2]], colorbar=len(part.modes) > 1)
            axes.tick_params(axis="x", labelsize="x-small" if len(part.modes[-1].values) > _MANY else "medium")
            if len(part.modes) == 1:
                axes.get_legend().remove()
                axes.set_title(title, fontsize="medium")

    def _plot_sources(self, part: ViewPart, left: Any, right: Any) -> None:
        """Draw the leading filters of second order on the left and their patterns on the right."""
        filters, patterns, shares = part.sources(self.n_sources)
        labels = [f"source {k} ({share:.0%})" for k, share in enumerate(shares, start=1)]
        for axes, kind, curves in ((left, "filters", filters), (right, "patterns", patterns)):
            draw_over(part.modes[0], axes, list(curves), labels)
            axes.tick_params(axis="x", labelsize="x-small" if len(part.modes[0].values) > _MANY else "medium")
            hide_top_and_right(axes)
            if labels:
                legend_above(axes, 3)
            axes.set_title(f"{part.label}: {kind}", fontsize="medium", pad=22)

    def _plot_shares(self, axes: Any) -> None:
        """Draw the share of every view that was tried as a bar, blue for those in the model."""
        used = {part.view for part in self.parts}
        values = list(self.shares.values())
        colours = [COLOURS[0] if name in used else INK for name in self.shares]
        bars = axes.barh(range(len(values)), values, color=colours)
        # Beside their bars, since names at the axis would take room from all panels.
        names = [f"{share:.2f}  {view_in_words(name)}" for name, share in self.shares.items()]
        axes.bar_label(bars, names, padding=3, fontsize="small")
        axes.set(
            xlim=(0.0, 2.2), xticks=(0.0, 0.5, 1.0), yticks=(), xlabel="share in held-out scores (blue: in the model)"
        )
        axes.invert_yaxis()
        hide_top_and_right(axes)
