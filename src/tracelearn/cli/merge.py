"""``tracelearn merge``: one model of several, and less of one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tracelearn import Moments
from tracelearn.cli.mistakes import MistakeError, one_line
from tracelearn.cli.options import Quiet
from tracelearn.cli.shared import check_out, load_file
from tracelearn.files import models as files
from tracelearn.streaming.run import first_difference

__all__ = ["merge_command"]


# What cross-validation chooses, from samples that differ between the parts: the first part's choice is kept.
_CHOSEN = ("alpha", "ridge", "scaling", "mode_weights", "class_mode")


@dataclass(frozen=True, eq=False)
class _Part:
    """What a file holds, and whether cross-validation chose its parameters; then it is the model that was found."""

    thing: Any
    is_chosen: bool
    path: Path

    @classmethod
    def read(cls, path: Path) -> _Part:
        thing = load_file(path)
        found = getattr(thing, "best_estimator_", thing)
        return cls(found, found is not thing, path)

    def differs_from(self, other: _Part) -> str | None:
        """Name a parameter, or the class, in which two models differ that should not."""
        if type(self.thing) is not type(other.thing):
            return "class"
        ignored = _CHOSEN if self.is_chosen or other.is_chosen else ()
        return first_difference(self.thing, other.thing, ignored)


def _combine(first: _Part, other: _Part, *, minus: bool) -> _Part:
    """Add what another file holds to the first, or remove it."""
    own, more = first.thing, other.thing
    if isinstance(own, Moments):
        if not isinstance(more, Moments):
            raise MistakeError(
                f"Expected moments, as in the first file, got a model in {other.path}: name a model first."
            )
        return replace(first, thing=own - more if minus else own + more)
    if not hasattr(own, "merge"):
        raise MistakeError(
            f"Expected models that merge, or moments, got a {type(own).__name__} in {first.path}: use TraceNormRegressor or "
            "TraceNormClassifier with the squared loss."
        )
    name = None if isinstance(more, Moments) else other.differs_from(first)
    if name is not None:
        raise MistakeError(
            f"Expected models with equal parameters, got another {name} in {other.path}: merge like with like."
        )
    return replace(first, thing=own._without(more) if minus else own.merge(more))


def merge_command(
    parts: Annotated[list[Path], typer.Argument(help="Files of models or of moments.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="File for the result, which is what the first file is.", show_default=False)
    ],
    minus: Annotated[list[Path] | None, typer.Option(help="A file to remove; may be given several times.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Merge what several models, or moments, have learned, and remove what should be forgotten.

    The result is what one model would have learned from all samples, whose owners need not show them. Of a search by
    cross-validation it is the model that was found; alpha and whatever else was chosen stay those of the first file.
    """
    check_out(out, "result", force=force)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = one_line
            merged = _Part.read(parts[0])
            for path in parts[1:]:
                merged = _combine(merged, _Part.read(path), minus=False)
            for path in minus or []:
                merged = _combine(merged, _Part.read(path), minus=True)
        weight = _weight(merged)
        files.save(merged.thing, out)
    except ValueError as error:
        raise MistakeError(str(error)) from error
    if not quiet:
        alpha = f", alpha {merged.thing.alpha:.4g} as chosen in {parts[0]}" if merged.is_chosen else ""
        typer.echo(f"{type(merged.thing).__name__} of samples of weight {weight:g}{alpha}: {out}")


def _weight(part: _Part) -> float:
    """Sum up the weights of the samples that a model or moments have learned."""
    moments = part.thing if isinstance(part.thing, Moments) else getattr(part.thing, "moments_", None)
    if moments is None:
        raise MistakeError(
            f"Expected a model that keeps moments, or moments, got a {type(part.thing).__name__} without in {part.path}: it "
            "cannot be merged."
        )
    return float(moments.weight)
