"""Displays of curves: the choice of alpha, the way to the optimum, errors along a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.errors import refuse
from tracelearn.io.streams import StreamReport
from tracelearn.optional import require
from tracelearn.plotting.canvas import (
    COLOURS,
    INK,
    MARKERS,
    REFERENCE_LINE,
    legend_above,
    looks_of,
    open_single,
    whole_ticks,
)
from tracelearn.plotting.modes import check_model, cv_curve, modes_of

__all__ = ["ConvergenceDisplay", "PathDisplay", "PrequentialDisplay"]


@dataclass(kw_only=True, eq=False, repr=False)
class PathDisplay:
    """What alpha does: the score of cross-validation, or the ranks of the weights, over a range of alphas.

    Parameters
    ----------
    alphas : array of shape (n_alphas,)
    values : array of shape (n_alphas,) or (n_alphas, n_curves)
    labels : list of str, one for each curve
    quantity : str
        What the values are, written at their axis.
    standard_error : array of shape (n_alphas,), default=None
        Half the height of a band about a single curve.
    alpha : float, default=None
        The one that was chosen.
    strength : str, default="alpha"
        What the alphas are: of a model without a trace norm they are ridges.

    Attributes
    ----------
    ax_ : matplotlib axes
    figure_ : matplotlib figure
    lines_ : list of matplotlib lines, one for each curve
    band_ : matplotlib collection, or None

    Examples
    --------
    >>> from tracelearn import TensorRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.plotting import PathDisplay
    >>> X, y, W = make_low_rank_regression(200, (5, 4), rank=1, random_state=0)
    >>> PathDisplay.from_estimator(TensorRegressor(alphas=10).fit(X, y)).ax_.get_ylabel()
    'held-out R²'
    """

    alphas: Array
    values: Array
    labels: Sequence[str]
    quantity: str
    standard_error: Array | None = None
    alpha: float | None = None
    strength: str = "alpha"

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw what cross-validation found: the mean over folds with its standard error, and the chosen alpha.

        Where a model without a trace norm was chosen, over its ridges.

        Parameters
        ----------
        estimator : fitted TensorRegressor or TensorClassifier
        ax : matplotlib axes, default=None
            None makes a figure.
        """
        curve = cv_curve(estimator)
        return cls(
            alphas=curve.strengths,
            values=curve.mean,
            labels=["mean over folds"],
            quantity=curve.quantity,
            standard_error=curve.standard_error,
            alpha=float(curve.strengths[curve.at]),
            strength=curve.strength,
        ).plot(ax)

    @classmethod
    def from_path(cls, estimator: Any, *, mode_names: Any = None, ax: Any = None) -> Self:
        """Draw the rank of the weights in each mode over the alphas of a path; with several targets, the largest.

        Parameters
        ----------
        estimator : fitted TraceNormRegressorCV or TraceNormClassifierCV
        mode_names : sequence of str, one for each mode, default=None
        ax : matplotlib axes, default=None
            None makes a figure.
        """
        path = check_model(estimator, "path_")
        is_single = np.shape(estimator.coef_tensor_)[: -len(estimator.sample_shape_)] in ((), (1,))
        names = [mode.name for mode in modes_of(estimator, mode_names)]
        names = ["target", *names] if path["ranks"].shape[1] > len(names) else names
        quantity = "rank" if is_single else "largest rank over targets"
        return cls(
            alphas=path["alpha"], values=path["ranks"], labels=names, quantity=quantity, alpha=float(estimator.alpha_)
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on the axes that are given, or on a new figure."""
        axes = self.ax_ = open_single(ax)
        self.figure_ = axes.figure
        curves = np.reshape(self.values, (len(self.alphas), -1)).T
        self.lines_: list[Any] = []
        self.band_: Any = None
        steps: dict[str, Any] = {"drawstyle": "steps-mid", "linewidth": 1.8} if len(curves) > 1 else {}
        for k, (curve, label) in enumerate(zip(curves, self.labels, strict=True)):
            self.lines_ += axes.plot(self.alphas, curve, label=label, **looks_of(k), **steps)
            self.lines_[-1].set_transform(_shifted(axes, (k - 0.5 * (len(curves) - 1)) * 3.0 / 72.0))
        if self.standard_error is not None:
            low = self.values - self.standard_error
            high = self.values + self.standard_error
            looks = {"color": COLOURS[0], "alpha": 0.22, "linewidth": 0}
            self.band_ = axes.fill_between(self.alphas, low, high, label="± one standard error", **looks)
        if self.alpha is not None:
            axes.axvline(self.alpha, label=f"chosen {self.strength}, {self.alpha:.3g}", **REFERENCE_LINE)
        positive = self.alphas[self.alphas > 0]
        if len(positive) == len(self.alphas):
            axes.set_xscale("log")
        elif len(positive):  # alpha = 0 has no logarithm, but is drawn too
            axes.set_xscale("symlog", linthresh=float(positive.min()))
        if self.values.dtype.kind in "iu":
            whole_ticks(axes.yaxis)
            axes.set_ylim(bottom=-0.05 * max(int(self.values.max()), 1))
        _label_axes(axes, self.strength, self.quantity)
        return self


def _label_axes(axes: Any, x: str, y: str) -> None:
    """Name both axes, and put the legend above them."""
    axes.set(xlabel=x, ylabel=y)
    legend_above(axes, columnspacing=1.2, handlelength=2.2)


def _shifted(axes: Any, inches: float) -> Any:
    """Return the transform from data to the figure, moved up by some inches, so that equal ranks do not hide each other."""
    move = require("matplotlib.transforms", "plot").ScaledTranslation
    return axes.transData + move(0.0, inches, axes.figure.dpi_scale_trans)


@dataclass(kw_only=True, eq=False, repr=False)
class ConvergenceDisplay:
    """The relative duality gap at every check of the last solve, with the ``tol`` that it had to reach.

    Parameters
    ----------
    convergence : array of shape (n_checks, 2)
        Iterations and gaps.
    tol : float

    Attributes
    ----------
    ax_ : matplotlib axes
    figure_ : matplotlib figure
    line_ : matplotlib line

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.plotting import ConvergenceDisplay
    >>> X, y, W = make_low_rank_regression(200, (5, 4), rank=1, random_state=0)
    >>> display = ConvergenceDisplay.from_estimator(TraceNormRegressor().fit(X, y))
    >>> display.ax_.get_yscale(), bool(display.line_.get_ydata()[-1] <= 1e-6)
    ('log', True)
    """

    convergence: Array
    tol: float

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw how a fitted model was found.

        Parameters
        ----------
        estimator : fitted regressor or classifier, with or without cross-validation
        ax : matplotlib axes, default=None
            None makes a figure.
        """
        return cls(convergence=to_numpy(check_model(estimator, "convergence_")), tol=estimator.tol).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on the axes that are given, or on a new figure."""
        axes = self.ax_ = open_single(ax)
        self.figure_ = axes.figure
        axes.set_yscale("log", nonpositive="mask")  # a gap of zero, which is possible, has no place on this axis
        iterations, gaps = self.convergence.T
        looks = {"color": COLOURS[0], "marker": "o", "markersize": 5 if len(gaps) <= 30 else 2.5, "linewidth": 1.4}
        if not np.any(gaps > 0.0):
            axes.set_ylim(0.1 * self.tol, 10.0 * self.tol)  # there is nothing to scale the axis by
        (self.line_,) = axes.plot(iterations, gaps, label="relative duality gap", **looks)
        axes.axhline(self.tol, label=f"tol = {self.tol:g}", **REFERENCE_LINE)
        last = float(np.max(iterations, initial=1.0))
        axes.set_xlim(-0.02 * last, 1.02 * last)
        whole_ticks(axes.xaxis)
        _label_axes(axes, "iteration", "relative duality gap")
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class PrequentialDisplay:
    """The errors of a stream on samples that were not learned yet: in each interval, and on all so far.

    Parameters
    ----------
    n_seen, error, cumulative_error : arrays of shape (n_points,)
    measure : str, default="error"
        What the errors are, written at their axis.

    Attributes
    ----------
    ax_ : matplotlib axes
    figure_ : matplotlib figure
    lines_ : two matplotlib lines: errors in each interval, errors so far

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor, stream
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.plotting import PrequentialDisplay
    >>> X, y, W = make_low_rank_regression(3000, (4, 3), rank=1, random_state=0)
    >>> batches = [(X[i : i + 100], y[i : i + 100]) for i in range(0, 3000, 100)]
    >>> report = stream(batches, TraceNormRegressor(alpha=0.1), refresh_samples=500)
    >>> PrequentialDisplay.from_report(report, measure="mean squared error").n_seen
    array([1000, 1500, 2000, 2500, 3000])
    """

    n_seen: Array
    error: Array
    cumulative_error: Array
    measure: str = "error"

    @classmethod
    def from_report(cls, report: StreamReport, *, measure: str = "error", ax: Any = None) -> Self:
        """Draw the curve of a stream.

        Parameters
        ----------
        report : what ``stream`` returns, or gives to ``on_refresh``
        measure : str, default="error"
            What the errors are: mean squared error for numbers, share of wrong labels for classes.
        ax : matplotlib axes, default=None
            None makes a figure.
        """
        refuse(
            not isinstance(report, StreamReport),
            f"Expected what stream returns, got {type(report).__name__}: pass a StreamReport.",
        )
        refuse(
            not report.curve,
            "Expected a report with points, got an empty curve: let the stream go on until its second refresh.",
        )
        return cls.of_curve(report.curve, measure).plot(ax)

    @classmethod
    def of_curve(cls, curve: Sequence[Any], measure: str) -> Self:
        """Gather the points of a curve, which may be none."""
        return cls(
            n_seen=np.array([point.n_seen for point in curve]),
            error=np.array([point.error for point in curve]),
            cumulative_error=np.array([point.cumulative_error for point in curve]),
            measure=measure,
        )

    def plot(self, ax: Any = None) -> Self:
        """Draw on the axes that are given, or on a new figure."""
        axes = self.ax_ = open_single(ax)
        self.figure_ = axes.figure
        marker = MARKERS[0] if len(self.n_seen) <= 60 else None
        looks = {"color": COLOURS[5], "marker": marker, "markersize": 3.5, "linewidth": 1.2}
        self.lines_ = axes.plot(self.n_seen, self.error, label="since the last refresh", **looks)
        so_far = {**looks_of(1), "linewidth": 2.0}
        self.lines_ += axes.plot(self.n_seen, self.cumulative_error, label="on all samples so far", **so_far)
        axes.set_ylim(bottom=0.0)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        axes.grid(axis="y", color=INK, alpha=0.15, linewidth=0.8)
        _label_axes(axes, "samples learned", self.measure)
        return self
