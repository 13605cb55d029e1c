"""Displays of the weights mode by mode: singular values and factors of the unfoldings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.plotting.canvas import COLOURS, INK, LIMIT, Panels, legend_above, plain, whole_ticks
from tracelearn.plotting.modes import Mode, check_model, leading_factors, modes_of_weights

__all__ = ["ModeFactorsDisplay", "ModeSpectrumDisplay"]


@dataclass(kw_only=True, eq=False, repr=False)
class ModeSpectrumDisplay(Panels):
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
        names = [mode.name for mode in modes_of_weights(estimator, mode_names)]
        return cls(singular_values=values, ranks=to_numpy(estimator.mode_ranks_), mode_names=names).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on the axes that are given, or on a new figure."""
        self._open(ax, (1, len(self.singular_values)), (3.2, 2.9), "one for each mode")
        self.lines_: list[Any] = []
        columns = zip(self.axes_, self.singular_values, self.mode_names, np.atleast_2d(self.ranks).T, strict=True)
        for axes, values, name, ranks in columns:
            looks = {"color": COLOURS[0], "marker": "o", "markersize": 5 if len(values) <= 25 else 3, "linewidth": 1.2}
            self.lines_ += axes.plot(np.arange(1, len(values) + 1), values, **looks)
            own = sorted({int(rank) for rank in ranks})
            for rank in own:
                axes.axvline(rank + 0.5, zorder=1, **LIMIT)
            span = f"rank {own[0]}" if len(own) == 1 else f"ranks {own[0]} to {own[-1]}"
            axes.set_title(f"{name}: {span}", fontsize="medium")
            axes.set(xlim=(0.4, len(values) + 0.7), xlabel="number")
            axes.set_ylim(bottom=0.0)
            whole_ticks(axes.xaxis, min_n_ticks=1)
            plain(axes)
        self.axes_[0].set_ylabel("singular value")
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class ModeFactorsDisplay(Panels):
    """The leading factors of the weights in each mode, over the coordinates of that mode.

    Factors are the left singular vectors of the unfoldings, of length one. A sign says nothing by itself: the entry of
    largest size is positive. The legend gives the share of each factor in the squared norm of the weights; factors of
    singular value zero are left out.

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
        One for each factor; for coordinates that are names, its markers.

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
        if not n_components >= 1:
            raise ValueError(f"Expected n_components of at least 1, got {n_components}: ask for one factor or more.")
        found = check_model(estimator, "mode_factors_")
        kept = [leading_factors(to_numpy(U), to_numpy(s), int(n_components)) for U, s in found]
        factors, shares, _ = zip(*kept, strict=True)
        return cls(
            factors=factors, shares=shares, modes=modes_of_weights(estimator, mode_names, coordinates, units)
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on the axes that are given, or on a new figure."""
        self._open(ax, (1, len(self.modes)), (3.6, 3.2), "one for each mode")
        self.lines_: list[list[Any]] = []
        for axes, mode, factors, shares in zip(self.axes_, self.modes, self.factors, self.shares, strict=True):
            labels = [f"{k} ({share:.0%})" for k, share in enumerate(shares, start=1)]
            self.lines_.append(mode.draw(axes, list(factors.T), labels))
            plain(axes)
            if labels:
                legend_above(axes, 3, handlelength=1.8, columnspacing=1.0, handletextpad=0.4)
            else:
                axes.text(0.5, 0.6, "all weights are zero", transform=axes.transAxes, ha="center", color=INK)
        self.axes_[0].set_ylabel("factor")
        return self
