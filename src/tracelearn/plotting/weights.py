"""Displays of the weights: singular values and factors of their unfoldings, mode by mode, and themselves or their patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.errors import refuse
from tracelearn.estimators.weights import target_names
from tracelearn.plotting.canvas import COLOURS, INK, REFERENCE_LINE, legend_above, open_axes, whole_ticks
from tracelearn.plotting.modes import (
    check_model,
    draw_heads,
    draw_image,
    draw_over,
    leading_factors,
    modes_of,
    modes_of_weights,
)
from tracelearn.samples.modes import Mode

__all__ = ["ModeFactorsDisplay", "ModeSpectrumDisplay", "WeightsDisplay", "choose_targets"]

_KINDS = {"weights": ("coef_", "weight"), "patterns": ("patterns_", "pattern")}
_COLUMNS = 3

_LARGEST = 1e150  # matplotlib interpolates colours by squares, which overflow for larger numbers


@dataclass(kw_only=True, eq=False, repr=False)
class ModeSpectrumDisplay:
    """Singular values of the weights' unfoldings, one panel for each mode, with the rank marked.

    Several targets are unfolded side by side, as in ``mode_factors_``; their ranks are each target's own, as in
    ``mode_ranks_``, so that the values of all together may go on beyond the rank of any.

    Parameters
    ----------
    singular_values : list of arrays, one for each mode
    ranks : array of ints of shape (n_modes,), or (n_targets, n_modes)
    mode_names : list of str

    Attributes
    ----------
    axes_ : array of matplotlib axes, one for each mode
    figure_ : matplotlib figure
    lines_ : list of matplotlib lines
        The singular values.

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.plotting import ModeSpectrumDisplay
    >>> X, y, W = make_low_rank_regression(500, (6, 5, 4), rank=1, random_state=0)
    >>> model = TraceNormRegressor(alpha=2.0).fit(X, y)
    >>> display = ModeSpectrumDisplay.from_estimator(model, mode_names=("channel", "time", "frequency"))
    >>> [ax.get_title() for ax in display.axes_]
    ['channel: rank 1', 'time: rank 1', 'frequency: rank 1']
    """

    singular_values: Sequence[Array]
    ranks: Array
    mode_names: Sequence[str]

    @classmethod
    def from_estimator(cls, estimator: Any, *, mode_names: Any = None, ax: Any = None) -> Self:
        """Draw the spectra of a fitted model.

        Parameters
        ----------
        estimator : fitted regressor or classifier, with or without cross-validation
        mode_names : sequence of N str, default=None
        ax : N matplotlib axes, default=None
            One for each mode, and before them one for the targets where they are a mode. None makes a figure.
        """
        values = [to_numpy(s) for _, s in check_model(estimator, "mode_factors_")]
        names = [mode.name for mode in modes_of_weights(estimator, modes_of(estimator, mode_names))]
        return cls(singular_values=values, ranks=to_numpy(estimator.mode_ranks_), mode_names=names).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on the axes that are given, or on a new figure."""
        self.axes_ = open_axes(ax, (1, len(self.singular_values)), (3.2, 2.9), "one for each mode")
        self.figure_ = self.axes_[0].figure
        self.lines_: list[Any] = []
        columns = zip(self.axes_, self.singular_values, self.mode_names, np.atleast_2d(self.ranks).T, strict=True)
        for axes, values, name, ranks in columns:
            looks = {"color": COLOURS[0], "marker": "o", "markersize": 5 if len(values) <= 25 else 3, "linewidth": 1.2}
            self.lines_ += axes.plot(np.arange(1, len(values) + 1), values, **looks)
            distinct = sorted({int(rank) for rank in ranks})
            for rank in distinct:
                axes.axvline(rank + 0.5, zorder=1, **REFERENCE_LINE)
            span = f"rank {distinct[0]}" if len(distinct) == 1 else f"ranks {distinct[0]} to {distinct[-1]}"
            axes.set_title(f"{name}: {span}", fontsize="medium")
            axes.set(xlim=(0.4, len(values) + 0.7), xlabel="number")
            axes.set_ylim(bottom=0.0)
            whole_ticks(axes.xaxis, min_n_ticks=1)
        self.axes_[0].set_ylabel("singular value")
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class ModeFactorsDisplay:
    """The leading factors of the weights in each mode, over the coordinates of that mode.

    Factors are the left singular vectors of the unfoldings, of length one. A sign says nothing by itself: the entry of
    largest size is positive. The legend gives the share of each factor in the squared norm of the weights; factors of
    singular value zero are left out. Where the places of sensors are known, as of MNE's epochs, a factor is drawn over a head.

    Parameters
    ----------
    factors : list of arrays of shape (I_n, n_components)
    shares : list of arrays of shape (n_components,)
        Squared singular values as shares of their sum.
    modes : list of Mode
        Names, coordinates and units.

    Attributes
    ----------
    axes_ : array of matplotlib axes, one for each mode
    figure_ : matplotlib figure
    lines_ : list, one for each mode, of lists of matplotlib lines
        One for each factor; for coordinates that are names, its markers; for sensors, images.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.plotting import ModeFactorsDisplay
    >>> X, y, W = make_low_rank_regression(500, (3, 5, 4), rank=1, random_state=0)
    >>> model = TraceNormRegressor(alpha=2.0).fit(X, y)
    >>> display = ModeFactorsDisplay.from_estimator(
    ...     model,
    ...     mode_names=("channel", "time", "frequency"),
    ...     coordinates=[["C3", "Cz", "C4"], np.linspace(0.0, 1.0, 5), None],
    ...     units=[None, "s", "Hz"],
    ... )
    >>> [ax.get_xlabel() for ax in display.axes_]
    ['channel', 'time (s)', 'frequency (Hz)']
    """

    factors: Sequence[Array]
    shares: Sequence[Array]
    modes: Sequence[Mode]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        n_components: int = 3,
        mode_names: Any = None,
        coordinates: Any = None,
        units: Any = None,
        ax: Any = None,
    ) -> Self:
        """Draw the factors of a fitted model.

        Parameters
        ----------
        estimator : fitted regressor or classifier, with or without cross-validation
        n_components : int, default=3
            How many factors of each mode to draw, at most.
        mode_names, units : sequences of N str or None, default=None
        coordinates : sequence of N arrays or None, default=None
            Numbers are drawn as lines, names as stems; None counts from 0.
        ax : N matplotlib axes, default=None
            One for each mode, and before them one for the targets where they are a mode. None makes a figure.
        """
        refuse(
            not n_components >= 1,
            f"Expected n_components of at least 1, got {n_components}: ask for one factor or more.",
        )
        factors = []
        shares = []
        for U, sizes in check_model(estimator, "mode_factors_"):
            vectors, shares_of_mode, _ = leading_factors(to_numpy(U), to_numpy(sizes), int(n_components))
            factors.append(vectors)
            shares.append(shares_of_mode)
        modes = modes_of_weights(estimator, modes_of(estimator, mode_names, coordinates, units))
        return cls(factors=factors, shares=shares, modes=modes).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on the axes that are given, or on a new figure."""
        widths = [2.0 if mode.is_wide else 1.0 for mode in self.modes]
        self.axes_ = open_axes(ax, (1, len(self.modes)), (3.6, 3.2), "one for each mode", widths=widths)
        self.figure_ = self.axes_[0].figure
        self.lines_: list[list[Any]] = []
        for axes, mode, factors, shares in zip(self.axes_, self.modes, self.factors, self.shares, strict=True):
            labels = [f"{k} ({share:.0%})" for k, share in enumerate(shares, start=1)]
            if mode.positions is not None and labels:
                self.lines_.append(draw_heads(axes, mode.positions, list(factors.T), labels))
                axes.set_title(mode.label, fontsize="medium")
                continue
            self.lines_.append(draw_over(mode, axes, list(factors.T), labels, shares))
            if labels:
                legend_above(axes, 3, handlelength=1.8, columnspacing=1.0, handletextpad=0.4)
            else:
                axes.text(0.5, 0.6, "all weights are zero", transform=axes.transAxes, ha="center", color=INK)
        curves = [axes for axes in self.axes_ if axes.axison]
        if curves:
            curves[0].set_ylabel("factor")
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class WeightsDisplay:
    """Weights or patterns: a line for samples of order 1, an image of order 2, slices of higher orders.

    All images share one colour scale, symmetric about zero.

    Parameters
    ----------
    tensors : list of arrays of the shape of a sample, one for each target
    targets : list of str, one for each target
        Written above its panels; empty for a single one that needs no name.
    modes : list of Mode
        Names, coordinates and units.
    quantity : str
        What the numbers are, written at the colour bar.

    Attributes
    ----------
    axes_ : array of matplotlib axes
        Slice by slice, target by target.
    figure_ : matplotlib figure
    images_ : list of matplotlib images, one for each of ``axes_``
    lines_ : list of matplotlib lines, for order 1, one for each target
    colorbar_ : matplotlib colour bar, or None

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.plotting import WeightsDisplay
    >>> X, y, W = make_low_rank_regression(500, (3, 5, 4), rank=1, random_state=0)
    >>> model = TraceNormRegressor(alpha=2.0).fit(X, y)
    >>> display = WeightsDisplay.from_estimator(model, mode_names=("channel", "time", "frequency"))
    >>> [ax.get_title() for ax in display.axes_]
    ['channel = 0', 'channel = 1', 'channel = 2']
    """

    tensors: Sequence[Array]
    targets: Sequence[str]
    modes: Sequence[Mode]
    quantity: str = "weight"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        kind: str = "weights",
        target: Any = None,
        modes: Any = None,
        slices: Any = 6,
        mode_names: Any = None,
        coordinates: Any = None,
        units: Any = None,
        colorbar: bool | None = None,
        cmap: Any = "RdBu_r",
        ax: Any = None,
    ) -> Self:
        """Draw the weights of a fitted model.

        Parameters
        ----------
        estimator : fitted regressor or classifier, with or without cross-validation
        kind : {"weights", "patterns"}, default="weights"
            ``coef_`` or ``patterns_``.
        target : class label, or number of a target, or a list of them, default=None
            Whose weights; None is all. A model of two classes has those of the second.
        modes : two ints, default=None
            Modes along the rows and the columns of an image; None is the last two.
        slices : int, "mean", or list of ints or tuples, default=6
            What to show of the other modes: so many slices at equal distances, the mean over all, or these entries of the
            other modes (tuples for two modes or more).
        mode_names, units : sequences of N str or None, default=None
        coordinates : sequence of N arrays or None, default=None
        colorbar : bool, default=None
            Whether to add a colour bar, which takes room from the axes; None adds it to a figure of our own only.
        cmap : str or colour map of matplotlib, default="RdBu_r"
        ax : matplotlib axes, default=None
            One for each image, target by target; one for all lines of order 1. None makes a figure.
        """
        refuse(kind not in _KINDS, f"Expected kind 'weights' or 'patterns', got {kind!r}: choose one of the two.")
        attribute, quantity = _KINDS[kind]
        whole = to_numpy(check_model(estimator, attribute))
        shape = tuple(estimator.sample_shape_)
        whole = whole.reshape(-1, *shape)
        described = modes_of(estimator, mode_names, coordinates, units)
        chosen, names = choose_targets(estimator, len(whole), target)
        display = cls(tensors=[whole[k] for k in chosen], targets=names, modes=described, quantity=quantity)
        return display.plot(ax, modes=modes, slices=slices, colorbar=colorbar, cmap=cmap)

    def plot(
        self, ax: Any = None, *, modes: Any = None, slices: Any = 6, colorbar: bool | None = None, cmap: Any = "RdBu_r"
    ) -> Self:
        """Draw on the axes that are given, or on a new figure; parameters are those of ``from_estimator``."""
        self.images_: list[Any] = []
        self.lines_: list[Any] = []
        self.colorbar_: Any = None
        if len(self.modes) == 1:
            self.axes_ = open_axes(ax, (1, 1), (5.6, 3.6), "a single one for all lines")
            self.figure_ = self.axes_[0].figure
            self.lines_ = self._draw_lines(self.axes_[0])
            return self
        rows, columns = _image_modes(modes, len(self.modes))
        images = self._cut_images(rows, columns, slices)
        n_targets = len(self.tensors)
        # A row for each target, unless there is one target, or one image for each.
        n_rows = -(-len(images) // _COLUMNS) if n_targets in (1, len(images)) else n_targets
        grid = n_rows, -(-len(images) // n_rows)
        self.axes_ = open_axes(ax, grid, (2.9, 2.5), "one for each image", count=len(images), framed=True)
        self.figure_ = self.axes_[0].figure
        limit = max(float(np.max(np.abs(image))) for image, _ in images) or 1.0
        refuse(limit > _LARGEST, f"Expected weights of at most {_LARGEST:g} to draw, got {limit:g}: scale the targets.")
        # Names begin at the top, as in a table, and counted rows as in a picture; coordinates grow upwards.
        upwards = not (self.modes[rows].has_names or self.modes[rows].is_counted)
        looks: dict[str, Any] = {"upwards": upwards, "inches": 2.0, "cmap": cmap, "vmin": -limit, "vmax": limit}
        for axes, (image, title) in zip(self.axes_, images, strict=True):
            self.images_.append(draw_image(axes, image, self.modes[rows], self.modes[columns], **looks))
            axes.set_title(title, fontsize="medium")
        if ax is None:
            self._label_edges(grid)
        if colorbar or (colorbar is None and ax is None):
            self.colorbar_ = self.figure_.colorbar(self.images_[0], ax=list(self.axes_), label=self.quantity)
            self.colorbar_.outline.set_visible(False)
        return self

    def _cut_images(self, rows: int, columns: int, slices: Any) -> list[tuple[Array, str]]:
        """Cut the tensor of each target into images over two modes, each with its title."""
        hidden_modes = [n for n in range(len(self.modes)) if n not in (rows, columns)]
        tensors = [np.transpose(tensor, (*hidden_modes, rows, columns)) for tensor in self.tensors]
        cuts = _cuts(slices, tensors[0].shape[: len(hidden_modes)], [self.modes[n].name for n in hidden_modes])
        images = []
        for tensor, target in zip(tensors, self.targets, strict=True):
            for cut in cuts:
                image = np.mean(tensor, axis=tuple(range(len(hidden_modes)))) if cut is None else tensor[cut]
                images.append((image, self._title(target, cut, hidden_modes)))
        return images

    def _title(self, target: str, cut: tuple[int, ...] | None, hidden_modes: list[int]) -> str:
        """Name an image by its target and by its place, or mean, in the modes that it does not show."""
        if cut is None:
            where = "mean over " + " and ".join(self.modes[n].name for n in hidden_modes)
        else:
            where = ", ".join(self.modes[n].entry(i) for n, i in zip(hidden_modes, cut, strict=True))
        return "\n".join(part for part in (target, where) if part)

    def _draw_lines(self, axes: Any) -> list[Any]:
        """Draw weights of order 1 as lines, and return these."""
        lines = draw_over(self.modes[0], axes, self.tensors, self.targets)
        axes.set_ylabel(self.quantity)
        if any(self.targets):
            legend_above(axes)
        return lines

    def _label_edges(self, grid: tuple[int, int]) -> None:
        """Leave labels only at the left and the lower edge: within, they would repeat."""
        for number, axes in enumerate(self.axes_):
            if number % grid[1]:
                axes.set_ylabel("")
                axes.tick_params(labelleft=False)
            if number + grid[1] < len(self.axes_):
                axes.set_xlabel("")
                axes.tick_params(labelbottom=False)


def choose_targets(estimator: Any, n_targets: int, target: Any) -> tuple[list[int], list[str]]:
    """Find the numbers of the targets that are asked for, and what to call them."""
    kind, names = target_names(estimator, n_targets)
    refuse(
        len(names) != n_targets,
        f"Expected one weight tensor for each class, got {n_targets} of a {type(estimator).__name__}: pass one of its "
        "estimators_.",
    )
    wanted = names if target is None else target if isinstance(target, list | tuple) else [target]
    chosen = [_number_of_target(label, names, kind) for label in wanted]
    needs_name = kind == "class" or n_targets > 1
    return chosen, [f"{kind} {names[k]}" if needs_name else "" for k in chosen]


def _number_of_target(target: Any, names: list[Any], kind: str) -> int:
    """Find the index of a target, given its label or its index."""
    label = target.item() if isinstance(target, np.generic) else target
    if label in names:
        return names.index(label)
    # Numbers among labels are labels; where labels are text, a number can only count them.
    is_count = isinstance(label, Integral) and not isinstance(label, bool) and all(isinstance(n, str) for n in names)
    if is_count and 0 <= int(label) < len(names):
        return int(label)
    those = "the only one that has weights" if kind == "class" and len(names) == 1 else "those that have weights"
    raise ValueError(f"Expected a {kind} among {names}, {those}, got {target!r}: choose from these.")


def _image_modes(modes: Any, order: int) -> tuple[int, int]:
    """Read which modes are the rows and the columns of an image: by default the last two."""
    if modes is None:
        return order - 2, order - 1
    pair = tuple(modes) if np.iterable(modes) else (modes,)
    refuse(
        len(pair) != 2 or pair[0] == pair[1] or not all(mode in range(order) for mode in pair),
        f"Expected two different modes between 0 and {order - 1}, got {modes!r}: name those of rows and columns.",
    )
    return int(pair[0]), int(pair[1])


def _cuts(slices: Any, sizes: tuple[int, ...], names: list[str]) -> list[tuple[int, ...] | None]:
    """List the entries of the other modes to cut at; None is their mean."""
    if not sizes:
        return [()]
    if isinstance(slices, str) and slices == "mean":
        return [None]
    if isinstance(slices, Integral) and not isinstance(slices, bool) and int(slices) >= 1:
        total = int(np.prod(sizes))
        flat = np.unique(np.linspace(0, total - 1, min(int(slices), total)).round().astype(int))
        return [tuple(int(i) for i in np.unravel_index(number, sizes)) for number in flat]
    cuts = [np.atleast_1d(cut) for cut in slices] if isinstance(slices, list | tuple | range | np.ndarray) else []
    good = all(
        cut.shape == (len(sizes),)
        and cut.dtype.kind in "iu"
        and all(0 <= i < size for i, size in zip(cut, sizes, strict=True))
        for cut in cuts
    )
    refuse(
        not cuts or not good,
        f"Expected slices as a count, 'mean', or a list of entries of {' and '.join(names)} below {sizes}, got {slices!r}: "
        "give one number for each of these modes.",
    )
    return [tuple(int(i) for i in cut) for cut in cuts]
