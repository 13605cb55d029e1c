"""``tracelearn merge``: add up models or moments, and remove samples from them again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import tracelearn
from tracelearn.cli.mistakes import warnings_as_lines
from tracelearn.cli.shared import Quiet, blame_file, check_out, echo, load_file
from tracelearn.errors import refuse

__all__ = ["merge_command"]


def _read(path: Path) -> Any:
    """Read a model or moments; views that were learned from other samples do not add up."""
    thing = load_file(path)
    refuse(
        hasattr(thing, "views_"),
        f"Expected models of samples as they are, got a search over views in {path}: views that were learned from other samples "
        "do not add up, so fit with a number for --alpha.",
    )
    return thing


def _merge(merged: Any, part: Any, *, remove: bool) -> Any:
    """Add moments or a model to what was merged before, or remove them."""
    if isinstance(merged, tracelearn.Moments):
        return merged - part if remove else merged + part
    return merged.unmerge(part) if remove else merged.merge(part)


def _check_alike(merged: Any, part: Any, paths: tuple[Path, Path]) -> None:
    """Refuse what does not merge: moments go into anything, models into models of their class and parameters."""
    from tracelearn.io.checkpoints import differing_parameter

    is_moments = isinstance(part, tracelearn.Moments)
    if isinstance(merged, tracelearn.Moments):
        refuse(
            not is_moments, f"Expected moments, as in the first file, got a model in {paths[1]}: name a model first."
        )
        return
    refuse(
        not hasattr(merged, "merge"),
        f"Expected models that merge, or moments, got a {type(merged).__name__} in {paths[0]}: use TraceNormRegressor or "
        "TraceNormClassifier with the squared loss.",
    )
    if not is_moments:
        name = differing_parameter(merged, part) if type(merged) is type(part) else "class"
        refuse(name, f"Expected models with equal parameters, got another {name} in {paths[1]}: merge like with like.")


def _with_file(merged: Any, path: Path, first: Path, *, remove: bool) -> Any:
    """Add what is in a file to what was merged before, or remove it."""
    summand = _read(path)
    with blame_file(path), warnings_as_lines(f"the merge with {path}"):
        _check_alike(merged, summand, (first, path))
        return _merge(merged, summand, remove=remove)


def merge_command(
    parts: Annotated[list[Path], typer.Argument(help="Files of models or of moments.", show_default=False)],
    out: Annotated[Path, typer.Option(help="File for the result, of the type of the first file.", show_default=False)],
    minus: Annotated[list[Path] | None, typer.Option(help="A file to remove; may be given several times.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Merge models or moments, and remove samples that were learned.

    The result is what one model would have learned from all samples, whose owners need not show them.
    """
    check_out(out, "result", force=force, inputs=(*parts, *(minus or ())))
    merged = _read(parts[0])
    for path in parts[1:]:
        merged = _with_file(merged, path, parts[0], remove=False)
    for path in minus or []:
        merged = _with_file(merged, path, parts[0], remove=True)
    moments = getattr(merged, "moments_", merged)
    refuse(
        not hasattr(moments, "weight"),
        f"Expected a model that keeps moments, or moments, got a {type(merged).__name__} without in {parts[0]}: it cannot be "
        "merged.",
    )
    tracelearn.save(merged, out)
    if not quiet:
        echo(f"{type(merged).__name__} of samples of weight {float(moments.weight):g}: {out}")
