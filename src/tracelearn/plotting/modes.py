"""The modes of a sample as a reader knows them: names, coordinates, units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.plotting.canvas import INK, MARKERS, looks_of, tick_names, whole_ticks

__all__ = [
    "CVCurve",
    "Mode",
    "as_modes",
    "check_model",
    "cv_curve",
    "leading_factors",
    "modes_of_weights",
    "target_names",
]

_IN_MODES = ("coef_", "patterns_", "mode_factors_")


@dataclass(frozen=True, eq=False)
class Mode:
    """One mode: its name, its unit, and the coordinates of its entries, numbers or names."""

    name: str
    values: Array
    unit: str | None = None

    @property
    def has_names(self) -> bool:
        """Whether entries are known by name, so that no line may join them."""
        return self.values.dtype.kind not in "iuf"

    @property
    def is_counted(self) -> bool:
        """Whether coordinates are whole numbers."""
        return self.values.dtype.kind in "iu"

    @property
    def label(self) -> str:
        """What to write below an axis."""
        return self.name if self.unit is None else f"{self.name} ({self.unit})"

    @property
    def is_even(self) -> bool:
        """Whether coordinates are numbers at equal distances, so that an axis may count in them."""
        if self.has_names or len(self.values) < 2:
            return False
        steps = np.diff(self.values)
        return bool(steps[0] != 0 and np.allclose(steps, steps[0], rtol=1e-3, atol=0.0))

    def entry(self, index: int) -> str:
        """Name one entry."""
        value = self.values[index]
        text = f"{self.name} {value}" if self.has_names else f"{self.name} = {value:.3g}"
        return text if self.unit is None else f"{text} {self.unit}"

    def edges(self) -> tuple[float, float]:
        """Return where the first and the last entry of an image begin and end, in coordinates or counted."""
        if not self.is_even:
            return -0.5, len(self.values) - 0.5
        half = 0.5 * float(self.values[1] - self.values[0])
        return float(self.values[0]) - half, float(self.values[-1]) + half

    def name_ticks(self, axis: Any, inches: float = 3.0) -> None:
        """Write names, or numbers at unequal distances, at the ticks of an axis that counts entries."""
        tick_names(axis, [str(value) if self.has_names else f"{value:.3g}" for value in self.values], inches)

    def draw(self, axes: Any, curves: Sequence[Array], labels: Sequence[str]) -> list[Any]:
        """Draw curves over this mode: lines over numbers, stems over names; return the lines or markers."""
        axes.axhline(0.0, color=INK, linewidth=0.8, zorder=1)
        axes.set_xlabel(self.label)
        drawn, few = [], len(self.values) <= (20 if self.has_names else 12)
        for k, (curve, label) in enumerate(zip(curves, labels, strict=True)):
            x, looks, marker = self.values, looks_of(k), MARKERS[k % len(MARKERS)]
            if self.has_names:
                x = np.arange(len(curve)) + 0.5 * (k - 0.5 * (len(curves) - 1)) / max(len(curves), 2)
                axes.vlines(x, 0.0, curve, color=looks["color"], linewidth=1.2 if few else 0.8)
                looks |= {"linestyle": "none", "marker": marker, "markersize": 5 if few else 3}
            else:
                looks |= {"marker": marker if few else None, "markersize": 4}
            drawn += axes.plot(x, curve, label=label, zorder=3, **looks)
        if self.has_names:
            self.name_ticks(axes.xaxis)
        elif self.is_counted:
            whole_ticks(axes.xaxis)
        return drawn


def as_modes(shape: Sequence[int], mode_names: Any = None, coordinates: Any = None, units: Any = None) -> list[Mode]:
    """Describe the modes of samples of a shape; what is not given is counted from 0."""
    lists, found = [], []
    for argument, values in (("mode_names", mode_names), ("coordinates", coordinates), ("units", units)):
        lists.append([None] * len(shape) if values is None else list(values))
        if isinstance(values, str) or len(lists[-1]) != len(shape):
            got = repr(values) if isinstance(values, str) else len(lists[-1])
            raise ValueError(
                f"Expected {len(shape)} {argument} for samples of shape {tuple(shape)}, got {got}: give one for each mode, or "
                "None."
            )
    for number, (size, name, values, unit) in enumerate(zip(shape, *lists, strict=True)):
        at = np.arange(size) if values is None else to_numpy(values)
        if at.shape != (size,):
            raise ValueError(
                f"Expected {size} coordinates for mode {number}, got shape {at.shape}: give one for each entry of the mode."
            )
        found.append(Mode(f"mode {number}" if name is None else str(name), at, None if unit is None else str(unit)))
    return found


def check_model(estimator: Any, attribute: str) -> Any:
    """Refuse what is not a fitted model of ours; return an attribute of it."""
    check_is_fitted(estimator)
    value = getattr(estimator, attribute, None)
    if value is None:
        advice = "one of its estimators_" if hasattr(estimator, "estimators_") else "a fitted model of tracelearn"
        raise ValueError(f"Expected a model with {attribute}, got {type(estimator).__name__}: pass {advice}.")
    best = getattr(estimator, "best_estimator_", estimator)
    if attribute in _IN_MODES and best.sample_shape_ != estimator.sample_shape_:
        raise ValueError(
            f"Expected weights in the modes of samples, got those of the view {estimator.view_!r}: draw them with ViewsDisplay."
        )
    return value


@dataclass(frozen=True, eq=False)
class CVCurve:
    """What cross-validation measured at every alpha of the candidate that it chose: a mean over folds, and how sure it is."""

    alphas: Array
    mean: Array
    standard_error: Array
    alpha: float
    quantity: str  # what was measured, in words
    n_folds: int
    n_candidates: int
    baseline: float | None  # the same measure of a model whose weights are zero, where the path begins at one

    @property
    def at(self) -> int:
        """The place of the alpha that was chosen; where several are the same, that of the best score."""
        return int(np.lexsort((-self.mean, np.abs(self.alphas - self.alpha)))[0])


def cv_curve(model: Any) -> CVCurve:
    """Read what cross-validation left in a model."""
    check_model(model, "cv_results_")
    path, scoring = to_numpy(model.score_path_), model.scoring
    known = path[:, ~np.any(np.isnan(path), axis=0)]  # a fold that lacks a class may have no score
    error = np.std(known, axis=1, ddof=min(1, known.shape[1] - 1)) / np.sqrt(known.shape[1])
    usual = "accuracy" if hasattr(model, "classes_") else "R²"
    quantity = usual if scoring is None else scoring.replace("_", " ") if isinstance(scoring, str) else "score"
    mean = known.mean(axis=1)
    # A grid of our own begins at the smallest alpha whose weights are all zero.
    starts_at_zero = isinstance(model.alphas, int) and scoring is None
    return CVCurve(
        alphas=to_numpy(model.alphas_),
        mean=mean,
        standard_error=error,
        alpha=float(model.alpha_),
        quantity=f"held-out {quantity}",
        n_folds=path.shape[1],
        n_candidates=len({str({**params, "alpha": None}) for params in model.cv_results_["params"]}),
        baseline=float(mean[0]) if starts_at_zero else None,
    )


def leading_factors(factors: Array, values: Array, most: int) -> tuple[Array, Array, int]:
    """Keep at most so many factors of singular value above rounding.

    Returns them, the share of each in the squared norm of the weights, and how many there are above rounding.
    """
    level = 10 * max(max(factors.shape) * float(np.finfo(values.dtype).eps) * float(values[0]), 1e-300)
    above = int(np.sum(values > level))
    count = min(most, above)
    squares = values.astype(np.float64) ** 2  # those of small weights vanish in single precision
    return factors[:, :count], squares[:count] / max(float(np.sum(squares)), 1e-300), above


def target_names(estimator: Any, n_targets: int) -> tuple[str, list[Any]]:
    """Say what the targets of a model are, and name those that have weights: of two classes the second."""
    if hasattr(estimator, "classes_"):
        classes = to_numpy(estimator.classes_).tolist()
        return "class", classes[1:] if n_targets == 1 else classes
    return "target", list(range(n_targets))


def modes_of_weights(estimator: Any, mode_names: Any = None, coordinates: Any = None, units: Any = None) -> list[Mode]:
    """Describe all modes of the weights; where targets are a mode, it is the first."""
    modes = as_modes(estimator.sample_shape_, mode_names, coordinates, units)
    if len(estimator.mode_factors_) > len(modes):
        kind, names = target_names(estimator, estimator.coef_.shape[0])
        modes.insert(0, Mode(kind, np.array([str(name) for name in names])))
    return modes
