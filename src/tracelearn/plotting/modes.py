"""What displays know of modes: how to draw over them, or over a head, and how those of a model are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import RBFInterpolator
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.estimators.weights import target_names
from tracelearn.optional import require
from tracelearn.plotting.canvas import INK, MARKERS, looks_of, tick_names, whole_ticks
from tracelearn.samples.modes import Mode
from tracelearn.search.folds import corrected_error

__all__ = [
    "CARRIED",
    "CVCurve",
    "as_modes",
    "check_model",
    "count_carrying",
    "cv_curve",
    "draw_heads",
    "draw_image",
    "draw_over",
    "head_radius",
    "leading_factors",
    "modes_of",
    "modes_of_weights",
    "name_ticks",
    "over_head",
]

CARRIED = 0.99  # the share of the squared weights that leading components are counted for
_NOSE = np.array([(-0.12, 0.99), (0.0, 1.13), (0.12, 0.99)])  # of a head of radius 1
_IN_MODES = ("coef_", "patterns_", "mode_factors_")


def name_ticks(mode: Mode, axis: Any, inches: float = 3.0) -> None:
    """Write names, or numbers at unequal distances, at the ticks of an axis that counts entries."""
    tick_names(axis, [str(value) if mode.has_names else f"{value:.3g}" for value in mode.values], inches)


def draw_over(mode: Mode, axes: Any, curves: Sequence[Array], labels: Sequence[str], shares: Any = None) -> list[Any]:
    """Draw curves over a mode: lines over numbers, stems over names, paler where shares are small; return lines or markers."""
    shares = np.ones(len(curves)) if shares is None else np.asarray(shares)
    strengths = 0.3 + 0.7 * np.sqrt(shares / np.max(shares, initial=1e-300))
    axes.axhline(0.0, color=INK, linewidth=0.8, zorder=1)
    axes.set_xlabel(mode.label)
    drawn = []
    few = len(mode.values) <= (20 if mode.has_names else 12)
    for k, (curve, label) in enumerate(zip(curves, labels, strict=True)):
        x = mode.values
        looks = looks_of(k) | {"alpha": float(strengths[k])}
        marker = MARKERS[k % len(MARKERS)]
        if mode.has_names:
            x = np.arange(len(curve)) + 0.5 * (k - 0.5 * (len(curves) - 1)) / max(len(curves), 2)
            axes.vlines(x, 0.0, curve, color=looks["color"], alpha=looks["alpha"], linewidth=1.2 if few else 0.8)
            looks |= {"linestyle": "none", "marker": marker, "markersize": 5 if few else 3}
        else:
            looks |= {"marker": marker if few else None, "markersize": 4}
        drawn += axes.plot(x, curve, label=label, zorder=3 + 0.5 * float(strengths[k]), **looks)
    if mode.has_names:
        name_ticks(mode, axes.xaxis, 3.0 if len(mode.values) <= 24 else 6.0)
    elif mode.is_counted:
        whole_ticks(axes.xaxis)
    return drawn


def draw_image(
    axes: Any,
    image: Array,
    rows: Mode,
    columns: Mode,
    *,
    upwards: bool,
    inches: float = 3.0,
    aspect: str = "auto",
    **colours: Any,
) -> Any:
    """Draw an image over two modes, whose first row is at the bottom or at the top; return it."""
    bottom, top = rows.edges() if upwards else rows.edges()[::-1]
    options = {"origin": "lower" if upwards else "upper", "aspect": aspect, "interpolation": "nearest"}
    drawn = axes.imshow(image, extent=(*columns.edges(), bottom, top), **options, **colours)
    for mode, axis in ((rows, axes.yaxis), (columns, axes.xaxis)):
        if not mode.is_even:
            name_ticks(mode, axis, inches)
        elif mode.is_counted:
            whole_ticks(axis)
    axes.set(xlabel=columns.label, ylabel=rows.label)
    return drawn


def head_radius(positions: Array) -> float:
    """Find a radius that leaves no sensor outside of the head."""
    return 1.06 * max(1.0, float(np.max(np.linalg.norm(positions, axis=1))))


def over_head(positions: Array, values: Array, size: int = 64) -> Array:
    """Interpolate values (I, K) of sensors over the square around a head, (K, size, size), from the left and from below.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.plotting.modes import over_head
    >>> left_right = np.array([[-0.5, 0.0], [0.5, 0.0], [0.0, 0.5]])
    >>> grid = over_head(left_right, np.array([[-1.0], [1.0], [0.0]]), size=5)[0]
    >>> bool(grid[2, 1] < -0.5), bool(grid[2, 3] > 0.5), abs(round(float(grid[4, 2]), 6))
    (True, True, 0.0)
    """
    line = np.linspace(-1.0, 1.0, size) * head_radius(positions)
    x, y = np.meshgrid(line, line)
    # Linear in the distance: it needs no triangle of sensors, and does not run away beyond the last of them.
    spline = RBFInterpolator(positions, values, kernel="linear", degree=0)
    grid = spline(np.column_stack([x.ravel(), y.ravel()]))
    return np.asarray(grid.T.reshape(-1, size, size))


def draw_heads(axes: Any, positions: Array, values: Sequence[Array], labels: Sequence[str]) -> list[Any]:
    """Draw a head for each array of values (I,), side by side, each in colours from minus to plus its largest absolute value."""
    patches = require("matplotlib.patches", "plot")
    radius = head_radius(positions)
    images = []
    for k, (values_of_head, label) in enumerate(zip(values, labels, strict=True)):
        centre = 2.5 * radius * k
        (grid,) = over_head(positions, values_of_head[:, None])
        limit = float(np.max(np.abs(values_of_head))) or 1.0
        extent = (centre - radius, centre + radius, -radius, radius)
        looks: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "interpolation": "bilinear"}
        image = axes.imshow(grid, origin="lower", extent=extent, **looks)
        head = axes.add_patch(patches.Circle((centre, 0.0), radius, fill=False, edgecolor=INK, linewidth=1.2))
        image.set_clip_path(head)
        nose = radius * _NOSE
        axes.plot(centre + nose[:, 0], nose[:, 1], color=INK, linewidth=1.2)
        axes.plot(centre + positions[:, 0], positions[:, 1], ".", color=INK, markersize=2.0)
        axes.text(centre, -1.18 * radius, label, ha="center", va="top", fontsize="small")
        images.append(image)
    axes.set(xlim=(-1.2 * radius, 2.5 * radius * len(images) - 1.3 * radius), ylim=(-1.6 * radius, 1.3 * radius))
    axes.set_aspect("equal")
    axes.set_axis_off()
    return images


def as_modes(
    shape: Sequence[int], mode_names: Any = None, coordinates: Any = None, units: Any = None, known: Any = None
) -> list[Mode]:
    """Describe the modes of samples of a shape; what is not given is as known, or counted from 0."""
    earlier = known or [Mode(f"mode {number}", np.arange(size)) for number, size in enumerate(shape)]
    lists = []
    described = []
    for argument, values in (("mode_names", mode_names), ("coordinates", coordinates), ("units", units)):
        lists.append([None] * len(shape) if values is None else list(values))
        if isinstance(values, str) or len(lists[-1]) != len(shape):
            got = repr(values) if isinstance(values, str) else len(lists[-1])
            raise ValueError(
                f"Expected {len(shape)} {argument} for samples of shape {tuple(shape)}, got {got}: give one for each mode, or "
                "None."
            )
    for number, (mode, name, values, unit) in enumerate(zip(earlier, *lists, strict=True)):
        places = mode.values if values is None else to_numpy(values)
        if places.shape != mode.values.shape:
            raise ValueError(
                f"Expected {len(mode.values)} coordinates for mode {number}, got shape {places.shape}: give one for each entry "
                "of the mode."
            )
        name = mode.name if name is None else str(name)  # noqa: PLW2901
        unit = mode.unit if unit is None else str(unit)  # noqa: PLW2901
        described.append(Mode(name, places, unit, mode.positions))
    return described


def modes_of(estimator: Any, mode_names: Any = None, coordinates: Any = None, units: Any = None) -> list[Mode]:
    """Describe the modes of the samples of a model; what is not given is what their names were in ``fit``."""
    modes = getattr(estimator, "modes_", None)
    return as_modes(tuple(estimator.sample_shape_), mode_names, coordinates, units, modes)


def check_model(estimator: Any, attribute: str) -> Any:
    """Refuse what is not a fitted model of ours; return an attribute of it."""
    if not hasattr(estimator, "fit"):  # scikit-learn would print the whole object
        raise TypeError(
            f"Expected a fitted model of tracelearn, got {type(estimator).__name__}: pass what fit returns."
        )
    check_is_fitted(estimator)
    value = getattr(estimator, attribute, None)  # of several views there are no factors
    if attribute in _IN_MODES and not _are_in_modes(estimator):
        raise ValueError(
            f"Expected weights in the modes of samples, got those of views of them ({', '.join(estimator.views_)}): draw them "
            "with ViewsDisplay."
        )
    if value is None or not hasattr(estimator, "sample_shape_"):
        advice = (
            "one of its estimators_" if hasattr(estimator, "estimators_") else "a model of samples that are tensors"
        )
        raise ValueError(f"Expected a model with {attribute}, got {type(estimator).__name__}: pass {advice}.")
    return value


def _are_in_modes(estimator: Any) -> bool:
    """Tell whether weights are in the modes of samples; those of a view need not be."""
    return not hasattr(estimator, "views_") or bool(estimator.is_linear_)


@dataclass(frozen=True, eq=False)
class CVCurve:
    """What cross-validation measured at every strength of the penalty on the path that it chose."""

    strength: str  # what varies along the path: alpha, or ridge where no model of the path has a trace norm
    strengths: Array
    mean: Array  # over folds
    standard_error: Array
    at: int  # the place of the strength that was chosen
    score: float  # of the strength that was chosen, as the model reports it
    error: float
    quantity: str  # what was measured, in words
    n_folds: int

    @property
    def varies(self) -> bool:
        """Whether there was a choice of strengths."""
        return bool(self.strengths[0] != self.strengths[-1])


def cv_curve(model: Any) -> CVCurve:
    """Read what cross-validation left in a model."""
    check_model(model, "score_path_")
    path = to_numpy(model.score_path_)
    scoring = model.scoring
    is_scored = ~np.any(np.isnan(path), axis=0)  # a fold that lacks a class may have no score
    scores = path[:, is_scored]
    mean = scores.mean(axis=1)
    quantity = "accuracy" if hasattr(model, "classes_") else "R²"
    if scoring is not None:
        quantity = scoring.replace("_", " ") if isinstance(scoring, str) else "score"
    alphas = to_numpy(model.alphas_)
    name = "alpha" if np.any(alphas) or not hasattr(model, "ridges_") else "ridge"
    strengths = alphas if name == "alpha" else to_numpy(model.ridges_)
    distance = np.abs(strengths - float(getattr(model, f"{name}_")))
    return CVCurve(
        strength=name,
        strengths=strengths,
        mean=mean,
        standard_error=_standard_error(model, scores),
        at=int(np.lexsort((-mean, distance))[0]),  # where several strengths are the same, that of the best score
        score=float(model.best_score_),
        error=float(model.best_score_se_),
        quantity=f"held-out {quantity}",
        n_folds=path.shape[1],
    )


def _standard_error(model: Any, scores: Array) -> Array:
    """Find the standard error of the mean of scores (A, F): that of the model, which knows the sizes of folds."""
    if hasattr(model, "score_path_se_"):
        return to_numpy(model.score_path_se_)
    return corrected_error(scores, 1.0 / max(scores.shape[1] - 1, 1))


def count_carrying(squares: Array, whole: Array | None = None) -> int:
    """Count the largest squares that together make 99 % of their sum.

    With ``whole``, of which the squares are a part, count those among the largest entries of ``whole`` that make 99 % of its sum.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.plotting.modes import count_carrying
    >>> count_carrying(np.array([90.0, 9.5, 0.5])), count_carrying(np.zeros(3))
    (2, 0)
    """
    ordered = np.sort(squares if whole is None else whole)[::-1]
    n_needed = int(np.searchsorted(np.cumsum(ordered), CARRIED * ordered.sum())) + 1
    smallest_needed = ordered[min(n_needed, len(ordered)) - 1]
    return int(np.sum((squares >= smallest_needed) & (squares > 0.0)))


def leading_factors(factors: Array, values: Array, most: int) -> tuple[Array, Array, int]:
    """Keep the first factors, at most ``most`` of those whose singular value is above rounding.

    Returns them, the share of each in the squared norm of the weights, and how many there are above rounding.
    """
    level = 10 * max(max(factors.shape) * float(np.finfo(values.dtype).eps) * float(values[0]), 1e-300)
    above = int(np.sum(values > level))
    count = min(most, above)
    # Divided by the largest value first: squares of tiny weights would vanish, and those of enormous ones overflow.
    squares = (values.astype(np.float64) / max(float(values[0]), 1e-300)) ** 2
    return factors[:, :count], squares[:count] / max(float(np.sum(squares)), 1e-300), above


def modes_of_weights(estimator: Any, modes: Sequence[Mode]) -> list[Mode]:
    """Describe all modes of the weights, given those of a sample; where targets are a mode, it is the first."""
    if len(estimator.mode_factors_) == len(modes):
        return list(modes)
    kind, names = target_names(estimator, estimator.coef_.shape[0])
    return [Mode(kind, np.array([str(name) for name in names])), *modes]
