"""What the script of a page draws: numbers, short enough to be sent, and the choice among targets."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array
from tracelearn.plotting.modes import head_radius, over_head
from tracelearn.report.model import Components, ModelFacts, Weights
from tracelearn.report.scores import Confusion, Residuals
from tracelearn.samples.modes import Mode

__all__ = ["image_modes", "numbers", "selector"]

_LONGEST = 1000  # points of a line
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
    }


def _component_data(facts: ModelFacts) -> list[dict[str, Any]]:
    found = []
    for one in facts.components:
        step = -(-len(one.mode.values) // _LONGEST)
        found.append(
            {
                **_axis(one.mode, step),
                "factors": _short(one.factors[:, ::step]),
                "values": _short(one.values[:_MOST_VALUES]),
                "ranks": one.ranks,
                "shares": _short(one.shares),
                "heads": _head_data(one),
            }
        )
    return found


def _head_data(one: Components) -> dict[str, Any] | None:
    """Interpolate factors between sensors, where their places are known; a head is as wide as 2."""
    places = one.mode.positions
    if places is None or not len(one.factors):
        return None
    radius, grids = head_radius(places), over_head(places, one.factors.T, _HEAD)
    return {"size": _HEAD, "places": _short(places / radius), "grids": [_parts(grid) for grid in grids]}


def _parts(tensor: Array | None) -> dict[str, Any] | None:
    """Write a tensor as whole numbers of parts of its largest entry."""
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
        "coef": _parts(weights.coef),
        "patterns": _parts(weights.patterns),
    }


def _residual_data(result: Residuals) -> list[dict[str, Any]]:
    predicted, left = result.points()
    found = []
    for k in range(predicted.shape[1]):
        counts, edges = result.histogram(k)
        one = {"predicted": _short(predicted[:, k]), "left": _short(left[:, k])}
        found.append({**one, "counts": counts.tolist(), "edges": _short(edges)})
    return found


def numbers(facts: ModelFacts, result: Confusion | Residuals | None) -> dict[str, Any]:
    """Gather all numbers of a page."""
    chosen = facts.chosen
    data: dict[str, Any] = {
        "targets": facts.targets,
        "targetKind": facts.target_kind,
        "components": _component_data(facts),
        "weights": _weight_data(facts.weights),
        "convergence": {
            "iterations": _short(facts.convergence[:, 0]),
            "gaps": _short(facts.convergence[:, 1]),
            "tol": float(facts.last.tol),
        },
    }
    if chosen is not None:
        data["path"] = {
            "alphas": _short(chosen.alphas),
            "mean": _short(chosen.mean),
            "error": _short(chosen.standard_error),
            "alpha": chosen.alpha,
            "quantity": chosen.quantity,
        }
    if isinstance(result, Residuals):
        data["residuals"] = _residual_data(result)
    return data


def selector(facts: ModelFacts, name: str, *, together: bool = False) -> str:
    """Make a list of the targets to choose from; nothing where there is but one."""
    if len(facts.targets) < 2:
        return ""
    options = '<option value="-1">all together</option>' if together else ""
    options += "".join(f'<option value="{k}">{escape(label)}</option>' for k, label in enumerate(facts.targets))
    return f'<label>{facts.target_kind} <select class="target" id="{name}">{options}</select></label>'
