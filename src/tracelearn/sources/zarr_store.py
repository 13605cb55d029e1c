"""Columns in Zarr stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracelearn.sources.arrays import ArrayColumn, array_column
from tracelearn.sources.base import require

__all__ = ["zarr_column", "zarr_names"]


def _open(path: Path) -> Any:
    zarr = require("zarr", "zarr", "Zarr stores")
    try:
        return zarr.open(str(path), mode="r")
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise ValueError(
            f"Expected a Zarr array or group in '{path}', got a folder without one: check the path."
        ) from error


def zarr_names(path: Path) -> list[str] | None:
    """List the arrays of a group; None for a bare array."""
    opened = _open(path)
    if hasattr(opened, "shape"):
        return None
    return sorted(name for name, member in opened.members(max_depth=None) if hasattr(member, "shape"))


def zarr_column(path: Path, name: str | None) -> ArrayColumn:
    """Open one array of a group, or the bare array."""
    opened = _open(path)
    return array_column(opened if name is None else opened[name], f"'{name or path}'")
