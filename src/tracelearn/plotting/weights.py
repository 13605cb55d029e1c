"""The weights themselves, or their patterns, as lines or images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.plotting.canvas import Panels, legend_above, plain, whole_ticks
from tracelearn.plotting.modes import Mode, as_modes, check_model, target_names

__all__ = ["WeightsDisplay"]

_KINDS = {"weights": ("coef_", "weight"), "patterns": ("patterns_", "pattern")}
_COLUMNS = 3


@dataclass(kw_only=True, eq=False, repr=False)
class WeightsDisplay(Panels):
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
        What the numbers are, beside the colour bar.

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
        if kind not in _KINDS:
            raise ValueError(f"Expected kind 'weights' or 'patterns', got {kind!r}: choose one of the two.")
        attribute, quantity = _KINDS[kind]
        whole, shape = to_numpy(check_model(estimator, attribute)), tuple(estimator.sample_shape_)
        whole, found = whole.reshape(-1, *shape), as_modes(shape, mode_names, coordinates, units)
        chosen, names = _choose(estimator, len(whole), target)
        display = cls(tensors=[whole[k] for k in chosen], targets=names, modes=found, quantity=quantity)
        return display.plot(ax, modes=modes, slices=slices, colorbar=colorbar, cmap=cmap)

    def plot(
        self, ax: Any = None, *, modes: Any = None, slices: Any = 6, colorbar: bool | None = None, cmap: Any = "RdBu_r"
    ) -> Self:
        """Draw on the axes that are given, or on a new figure; parameters are those of ``from_estimator``."""
        self.images_: list[Any] = []
        self.lines_: list[Any] = []
        self.colorbar_: Any = None
        if len(self.modes) == 1:
            self._plot_lines(ax)
            return self
        rows, columns = _image_modes(modes, len(self.modes))
        others = [n for n in range(len(self.modes)) if n not in (rows, columns)]
        moved = [np.transpose(tensor, (*others, rows, columns)) for tensor in self.tensors]
        cuts = _cuts(slices, moved[0].shape[: len(others)], [self.modes[n].name for n in others])
        panes = [
            (
                np.mean(tensor, axis=tuple(range(len(others)))) if cut is None else tensor[cut],
                self._title(name, cut, others),
            )
            for tensor, name in zip(moved, self.targets, strict=True)
            for cut in cuts
        ]
        down = -(-len(panes) // _COLUMNS) if 1 in (len(self.tensors), len(cuts)) else len(self.tensors)
        grid = down, -(-len(panes) // down)
        self._open(ax, grid, (2.9, 2.5), "one for each image", len(panes))
        limit = max(float(np.max(np.abs(image))) for image, _ in panes) or 1.0
        for axes, (image, title) in zip(self.axes_, panes, strict=True):
            self._plot_image(axes, image, self.modes[rows], self.modes[columns], cmap=cmap, vmin=-limit, vmax=limit)
            axes.set_title(title, fontsize="medium")
        if ax is None:
            self._label_edges(grid)
        if colorbar or (colorbar is None and ax is None):
            self.colorbar_ = self.figure_.colorbar(self.images_[0], ax=list(self.axes_), label=self.quantity)
            self.colorbar_.outline.set_visible(False)
        return self

    def _title(self, target: str, cut: tuple[int, ...] | None, others: list[int]) -> str:
        if cut is None:
            where = "mean over " + " and ".join(self.modes[n].name for n in others)
        else:
            where = ", ".join(self.modes[n].entry(i) for n, i in zip(others, cut, strict=True))
        return "\n".join(part for part in (target, where) if part)

    def _plot_lines(self, ax: Any) -> None:
        self._open(ax, (1, 1), (5.6, 3.6), "a single one for all lines")
        (axes,) = self.axes_
        self.lines_ = self.modes[0].draw(axes, self.tensors, self.targets)
        axes.set_ylabel(self.quantity)
        plain(axes)
        if any(self.targets):
            legend_above(axes)

    def _plot_image(self, axes: Any, image: Array, rows: Mode, columns: Mode, **colours: Any) -> None:
        """Draw an image; entries with names begin at the top, as in a table, and numbers grow upwards."""
        upwards = not rows.has_names
        bottom, top = rows.edges() if upwards else rows.edges()[::-1]
        options = {"origin": "lower" if upwards else "upper", "aspect": "auto", "interpolation": "nearest"}
        self.images_.append(axes.imshow(image, extent=(*columns.edges(), bottom, top), **options, **colours))
        for mode, axis in ((rows, axes.yaxis), (columns, axes.xaxis)):
            if not mode.is_even:
                mode.name_ticks(axis, 2.0)
            elif mode.is_counted:
                whole_ticks(axis)
        axes.set(xlabel=columns.label, ylabel=rows.label)

    def _label_edges(self, grid: tuple[int, int]) -> None:
        """Leave labels only at the left and the lower edge: within, they would repeat."""
        for number, axes in enumerate(self.axes_):
            if number % grid[1]:
                axes.set_ylabel("")
                axes.tick_params(labelleft=False)
            if number + grid[1] < len(self.axes_):
                axes.set_xlabel("")
                axes.tick_params(labelbottom=False)


def _choose(estimator: Any, n_targets: int, target: Any) -> tuple[list[int], list[str]]:
    """Find the numbers of the targets that are asked for, and what to call them."""
    kind, names = target_names(estimator, n_targets)
    if len(names) != n_targets:
        raise ValueError(
            f"Expected one weight tensor for each class, got {n_targets} of a {type(estimator).__name__}: pass one of its "
            "estimators_."
        )
    wanted = names if target is None else target if isinstance(target, list | tuple) else [target]
    chosen = [_number(one, names, kind) for one in wanted]
    needs_name = kind == "class" or n_targets > 1
    return chosen, [f"{kind} {names[k]}" if needs_name else "" for k in chosen]


def _number(target: Any, names: list[Any], kind: str) -> int:
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
    found = (order - 2, order - 1) if modes is None else tuple(modes) if np.iterable(modes) else (modes,)
    if len(found) != 2 or found[0] == found[1] or not all(mode in range(order) for mode in found):
        raise ValueError(
            f"Expected two different modes between 0 and {order - 1}, got {modes!r}: name those of rows and columns."
        )
    return int(found[0]), int(found[1])


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
    if not cuts or not good:
        raise ValueError(
            f"Expected slices as a count, 'mean', or a list of entries of {' and '.join(names)} below {sizes}, got {slices!r}: "
            "give one number for each of these modes."
        )
    return [tuple(int(i) for i in cut) for cut in cuts]
