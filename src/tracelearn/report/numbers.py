"""What the script of a page draws: numbers, short enough to be sent."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array
from tracelearn.plotting.modes import head_radius, over_head
from tracelearn.report.facts import Components, ModelFacts, Weights
from tracelearn.report.scores import Confusion, Residuals
from tracelearn.samples.modes import Mode

__all__ = ["image_modes", "numbers"]

_LONGEST = 1000  # points of a line
_MOST_NAMES = 100  # stems side by side
_MOST_LARGEST = 20  # entries of a factor, the largest ones, that are drawn where a mode has more names
_MOST_VALUES = 40  # bars of singular values
_HEAD = 48  # pixels across a head
_PARTS = 9999  # weights are whole numbers of so many parts of the largest: four digits, and a small page


def image_modes(weights: Weights) -> tuple[int, int]:
    """Choose what an image shows: the two longest modes, so that few slices are left to slide through."""
    if len(weights.modes) == 1:
        return 0, 0
    longest = np.argsort([-len(mode.values) for mode in weights.modes], kind="stable")[:2]
    return int(longest.min()), int(longest.max())


def _short(values: Any) -> Any:
    """Write numbers with five digits; what is not finite has no place on an axis."""
    if np.ndim(values) == 0:
        return float(f"{float(values):.5g}") if np.isfinite(values) else None
    return [_short(value) for value in values]


def _axis(mode: Mode, step: int = 1) -> dict[str, Any]:
    values = mode.values[::step]
    return {
        "name": mode.name,
        "label": mode.label,
        "unit": mode.unit,
        "names": [str(value) for value in values] if mode.has_names else None,
        "x": None if mode.has_names else _short(values),
        "counted": mode.is_counted,
    }


def _component_data(facts: ModelFacts) -> list[dict[str, Any]]:
    """Gather the singular values and the factors of every mode; of a long mode every so many entries."""
    components = []
    for component in facts.components:
        step = -(-len(component.mode.values) // _LONGEST)
        components.append(
            {
                **_axis(component.mode, step),
                "title": component.title,
                "factors": _short(component.factors[:, ::step]),
                **_largest_entries(component),
                "values": _short(component.values[:_MOST_VALUES]),
                "carrying": component.carrying,
                "shares": _short(component.shares),
                "heads": _head_data(component),
            }
        )
    return components


def _largest_entries(component: Components) -> dict[str, Any]:
    """Gather the largest entries of each factor and their names, where an axis has no room for all names; else nothing."""
    if not component.mode.has_names or component.positions is not None or len(component.mode.values) <= _MOST_NAMES:
        return {}
    order = np.argsort(-np.abs(component.factors), axis=1, kind="stable")[:, :_MOST_LARGEST]
    names = [[str(name) for name in component.mode.values[entries]] for entries in order]
    return {"names": None, "largest": names, "factors": _short(np.take_along_axis(component.factors, order, axis=1))}


def _head_data(component: Components) -> dict[str, Any] | None:
    """Interpolate factors between sensors, where their places are known; a head is as wide as 2."""
    positions = component.positions
    if positions is None or not len(component.factors):
        return None
    radius = head_radius(positions)
    grids = over_head(positions, component.factors[:, : len(positions)].T, _HEAD)
    return {"size": _HEAD, "places": _short(positions / radius), "grids": [_quantised(grid) for grid in grids]}


def _quantised(tensor: Array | None) -> dict[str, Any] | None:
    """Round the entries of a tensor to whole numbers, of which ``_PARTS`` stands for the largest entry, the ``limit``."""
    if tensor is None:
        return None
    largest = float(np.max(np.abs(tensor), initial=0.0))
    parts = np.rint(np.ravel(tensor).astype(float) * (_PARTS / largest if largest else 0.0)).astype(int)
    return {"limit": _short(largest), "parts": parts.tolist()}


def _weight_data(weights: Weights) -> dict[str, Any]:
    rows, columns = image_modes(weights)
    return {
        "modes": [_axis(mode) for mode in weights.modes],
        "shape": list(weights.coef.shape),
        "rows": rows,
        "columns": columns,
        "whole": _PARTS,
        "coef": _quantised(weights.coef),
        "patterns": _quantised(weights.patterns),
    }


def _residual_data(result: Residuals) -> list[dict[str, Any]]:
    points = result.points()
    targets = []
    for k in range(points.predicted.shape[1]):
        counts, edges = result.histogram(k)
        target = {
            "predicted": _short(points.predicted[:, k]),
            "measured": _short(points.predicted[:, k] + points.residuals[:, k]),
            "counts": counts.tolist(),
            "edges": _short(edges),
        }
        if points.bounds is not None:
            target["lower"], target["upper"] = (_short(bound[:, k]) for bound in points.bounds)
        targets.append(target)
    return targets


def numbers(facts: ModelFacts, result: Confusion | Residuals | None) -> dict[str, Any]:
    """Gather all numbers of a page."""
    data: dict[str, Any] = {
        "targets": facts.targets,
        "targetKind": facts.target_kind,
        "components": _component_data(facts),
        "weights": _weight_data(facts.weights),
    }
    curve = facts.chosen
    if curve is not None and curve.varies:
        data["path"] = {
            "name": curve.strength,
            "strengths": _short(curve.strengths),
            "mean": _short(curve.mean),
            "error": _short(curve.standard_error),
            "chosen": _short(curve.strengths[curve.at]),
            "quantity": curve.quantity,
        }
    if isinstance(result, Residuals):
        data["residuals"] = _residual_data(result)
    return data
