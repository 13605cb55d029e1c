"""Values of sensors over a head seen from above, nose up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.interpolate import RBFInterpolator

from tracelearn.arrays.array_api import Array
from tracelearn.optional import require
from tracelearn.plotting.canvas import INK

__all__ = ["draw_heads", "head_radius", "over_head"]

_NOSE = np.array([(-0.12, 0.99), (0.0, 1.13), (0.12, 0.99)])  # of a head of radius 1


def head_radius(positions: Array) -> float:
    """Find a radius that leaves no sensor outside of the head."""
    return 1.06 * max(1.0, float(np.max(np.linalg.norm(positions, axis=1))))


def over_head(positions: Array, values: Array, size: int = 64) -> Array:
    """Interpolate values (I, K) of sensors over the square around a head, (K, size, size), from the left and from below.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.plotting.topography import over_head
    >>> left_right = np.array([[-0.5, 0.0], [0.5, 0.0], [0.0, 0.5]])
    >>> grid = over_head(left_right, np.array([[-1.0], [1.0], [0.0]]), size=5)[0]
    >>> bool(grid[2, 1] < -0.5), bool(grid[2, 3] > 0.5), abs(round(float(grid[4, 2]), 6))
    (True, True, 0.0)
    """
    line = np.linspace(-1.0, 1.0, size) * head_radius(positions)
    x, y = np.meshgrid(line, line)
    # Linear in the distance: it needs no triangle of sensors, and does not run away beyond the last of them.
    spline = RBFInterpolator(positions, values, kernel="linear", degree=0)
    found = spline(np.column_stack([x.ravel(), y.ravel()]))
    return np.asarray(found.T.reshape(-1, size, size))


def draw_heads(axes: Any, positions: Array, values: Sequence[Array], labels: Sequence[str]) -> list[Any]:
    """Draw a head for each array of values (I,), side by side; colours are symmetric about zero, to the largest of its own."""
    patches = require("matplotlib.patches", "plot")
    radius, images = head_radius(positions), []
    for k, (one, label) in enumerate(zip(values, labels, strict=True)):
        centre = 2.5 * radius * k
        (grid,) = over_head(positions, one[:, None])
        limit = float(np.max(np.abs(one))) or 1.0
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
