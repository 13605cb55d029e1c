"""How well a model does, and how sure that is: shares and their intervals, confusions, residuals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.estimators.scores import r_squared
from tracelearn.inference import Comparison

__all__ = [
    "Confusion",
    "Evaluation",
    "FoldScores",
    "Residuals",
    "Study",
    "bounds_of",
    "compare",
    "in_words",
    "join_bounds",
]

_Z = 1.959963984540054  # 95 % of a normal distribution lie within so many standard deviations
_FEWEST_RESIDUALS = 9  # held-out samples without which nothing can be said about nine of ten
_MOST_POINTS = 2000
_MOST_BARS = 60


@dataclass(frozen=True)
class Study:
    """What a paper tells and a model does not know; None is unknown.

    Parameters
    ----------
    n_samples, n_groups : samples of ``fit``, and groups that were held out whole, 0 if there were none
    confounds : names of what was regressed out
    test : a ``PermutationTest`` of this model, default=None

    Examples
    --------
    >>> from tracelearn.report import Study
    >>> Study(n_samples=240, n_groups=12, confounds=["age"]).n_groups
    12
    """

    n_samples: int | None = None
    n_groups: int | None = None
    confounds: Sequence[str] = ()
    test: Any = None


@dataclass(frozen=True)
class FoldScores:
    """The score on held-out folds: its mean, and the standard error of that mean, corrected for training sets that overlap."""

    mean: float
    standard_error: float
    count: int
    baseline: float  # the mean score of a guess that ignores the samples


@dataclass(frozen=True, eq=False)
class Confusion:
    """Predicted against true labels: ``counts[i, j]`` samples of label i were called j."""

    labels: list[str]
    counts: Array

    @property
    def total(self) -> int:
        """The number of samples."""
        return int(self.counts.sum())

    @property
    def accuracy(self) -> float:
        """The share of samples whose predicted label is the true one."""
        return float(np.trace(self.counts)) / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of intervals made so contain the accuracy on all samples of the kind, if these are independent."""
        interval = binomtest(int(np.trace(self.counts)), self.total).proportion_ci(method="wilson")
        return float(interval.low), float(interval.high)

    @property
    def headline(self) -> tuple[str, float, str, float]:
        """The score that says most: its name and value; a guess that ignores the samples, and its value."""
        return "accuracy", self.accuracy, "majority", self.majority

    @property
    def majority(self) -> float:
        """The accuracy of always calling the most frequent label."""
        return float(self.counts.sum(axis=1).max()) / self.total

    @property
    def shares(self) -> Array:
        """The counts as shares of their row; a label that never came has zeros."""
        return self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)


@dataclass(frozen=True, eq=False)
class Residuals:
    """What was predicted, and measured minus predicted, both of shape (n, K)."""

    predicted: Array
    residuals: Array
    bounds: tuple[Array, Array] | None = None  # between which nine tenths of measured numbers are to be, (n, K) each

    @property
    def total(self) -> int:
        """The number of samples."""
        return len(self.residuals)

    @property
    def r2(self) -> float:
        """The share of variance that is explained, the mean over targets."""
        return r_squared(self.predicted + self.residuals, self.predicted)

    @property
    def headline(self) -> tuple[str, float, str, float]:
        """The score that says most: its name and value; a guess that ignores the samples, and its value."""
        return "R²", self.r2, "mean", 0.0

    @property
    def rmse(self) -> Array:
        """The root of the mean squared residual of each target."""
        return np.sqrt(np.mean(self.residuals**2, axis=0))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of R², by the delta method; None where the target does not vary."""
        truth = self.predicted + self.residuals
        spread = (truth - truth.mean(axis=0)) ** 2
        error = self.residuals**2
        variance = spread.mean(axis=0)
        mse = error.mean(axis=0)
        if self.total < 3 or np.any(variance == 0.0):
            return None
        # How much each sample moves R², to first order.
        pull = np.mean((mse - error) / variance + mse / variance**2 * (spread - variance), axis=1)
        half = _Z * float(np.std(pull, ddof=1)) / math.sqrt(self.total)
        return self.r2 - half, min(self.r2 + half, 1.0)

    @property
    def coverage(self) -> float | None:
        """The share of measured numbers that are within their bounds."""
        if self.bounds is None:
            return None
        measured = self.predicted + self.residuals
        return float(np.mean((self.bounds[0] <= measured) & (measured <= self.bounds[1])))

    def points(self) -> Residuals:
        """Return what a scatter plot shows: at most 2,000 samples, at equal distances in their order."""
        shown = np.unique(np.linspace(0, self.total - 1, min(self.total, _MOST_POINTS)).round().astype(int))
        bounds = None if self.bounds is None else (self.bounds[0][shown], self.bounds[1][shown])
        return Residuals(self.predicted[shown], self.residuals[shown], bounds)

    def histogram(self, target: int) -> tuple[Array, Array]:
        """Count the residuals of one target in equal bins; return counts and edges."""
        residuals = self.residuals[:, target]
        size = float(np.max(np.abs(residuals)))
        if np.ptp(residuals) <= 1e-12 * size:  # all alike but for rounding: no two bins would differ
            reach = 0.5 * size or 0.5
            return np.histogram(residuals, 1, (float(residuals[0]) - reach, float(residuals[0]) + reach))
        n_bins = len(np.histogram_bin_edges(residuals, "auto")) - 1
        return np.histogram(residuals, min(n_bins, _MOST_BARS))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How well a model does, as ``evaluate`` finds it by cross-validation, or as new samples say.

    Attributes
    ----------
    result : Confusion or Residuals
        Predictions against the truth.
    samples : words for the samples
    folds : FoldScores or None
        The scores, where each sample was predicted without its own fold.
    comparison : Comparison or None
        With models of flat samples, on the same folds.
    study : Study or None
        How many samples and groups the folds have.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import TraceNormClassifier
    >>> from tracelearn.report import evaluate
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 2
    >>> evaluation = evaluate(TraceNormClassifier(), rng.normal(size=(60, 4, 3)) + y[:, None, None], y)
    >>> evaluation.result.labels, evaluation.result.total, evaluation.study.n_samples
    (['0', '1'], 60, 60)
    """

    result: Confusion | Residuals
    samples: str
    folds: FoldScores | None = None
    comparison: Comparison | None = None
    study: Study | None = None


def compare(
    truth: Any, predicted: Any, classes: Any = None, bounds: tuple[Array, Array] | None = None
) -> Confusion | Residuals:
    """Compare predictions with the truth: labels as a table of counts, or without ``classes`` numbers as residuals.

    ``bounds`` are the lower and upper ends of intervals, as ``bounds_of`` predicts them.
    """
    truth, predicted = to_numpy(truth), to_numpy(predicted)
    if classes is None:
        table = np.asarray(predicted, dtype=float).reshape(len(predicted), -1)
        if bounds is not None:
            bounds = np.reshape(bounds[0], table.shape), np.reshape(bounds[1], table.shape)
        return Residuals(table, np.asarray(truth, dtype=float).reshape(table.shape) - table, bounds)
    labels = to_numpy(classes).tolist()
    labels += [label for label in np.unique(truth).tolist() if label not in labels]
    return Confusion([str(label) for label in labels], confusion_matrix(truth, predicted, labels=labels))


def bounds_of(model: Any, X: Any, **aligned: Any) -> tuple[Array, Array] | None:
    """Predict intervals that hold nine of ten targets; None where a model has too few held-out residuals."""
    residuals = getattr(model, "held_out_residuals_", None)
    if residuals is None or len(residuals.folds) < _FEWEST_RESIDUALS:
        return None
    lower, upper = model.predict_interval(X, level=0.9, **aligned)
    return to_numpy(lower), to_numpy(upper)


def join_bounds(parts: Sequence[tuple[Array, Array] | None]) -> tuple[Array, Array] | None:
    """Join the bounds of several parts of the samples; None where a part has none."""
    bounds = [part for part in parts if part is not None]
    if len(bounds) < len(parts):
        return None
    return np.concatenate([lower for lower, _ in bounds]), np.concatenate([upper for _, upper in bounds])


def in_words(named: Any) -> str:
    """Write a loss or a penalty, which may be a name or an object."""
    return named.replace("_", " ") if isinstance(named, str) else repr(named)
