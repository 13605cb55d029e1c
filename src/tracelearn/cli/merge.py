"""``tracelearn merge``: one model of several, and less of one."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

from tracelearn import Moments, files
from tracelearn.cli.shared import MistakeError, one_line
from tracelearn.streams import first_difference

try:
    import typer
except ImportError:  # main says so in one sentence
    pass

__all__ = ["merge_command"]


def _combine(first: Any, other: Any, path: Path, *, minus: bool) -> Any:
    """Add what another file holds to the first, or remove it."""
    if isinstance(first, Moments):
        if not isinstance(other, Moments):
            raise MistakeError(f"Expected moments, as in the first file, got a model in {path}: name a model first.")
        return first - other if minus else first + other
    if not hasattr(first, "merge"):
        raise MistakeError(
            f"Expected models that merge, or moments, got a {type(first).__name__}: use TraceNormRegressor or "
            "TraceNormClassifier with the squared loss."
        )
    if not isinstance(other, Moments):
        name = "its class" if type(first) is not type(other) else first_difference(first, other)
        if name is not None:
            raise MistakeError(
                f"Expected models with equal parameters, got another {name} in {path}: merge like with like."
            )
    return first._without(other) if minus else first.merge(other)


def merge_command(
    parts: Annotated[list[Path], typer.Argument(help="Files of models or of moments.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="File for the result, which is what the first file is.", show_default=False)
    ],
    minus: Annotated[list[Path] | None, typer.Option(help="A file to remove; may be given several times.")] = None,
) -> None:
    """Merge what several models, or moments, have learned, and remove what should be forgotten.

    The result is what one model would have learned from all samples, whose owners need not show them.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = one_line
            merged = files.load(parts[0])
            for path in parts[1:]:
                merged = _combine(merged, files.load(path), path, minus=False)
            for path in minus or []:
                merged = _combine(merged, files.load(path), path, minus=True)
        files.save(merged, out)
    except ValueError as error:
        raise MistakeError(str(error)) from error
    weight = (merged if isinstance(merged, Moments) else merged.moments_).weight
    typer.echo(f"{type(merged).__name__} of samples of weight {weight:g}: {out}")
