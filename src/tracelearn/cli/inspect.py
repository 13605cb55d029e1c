"""``tracelearn inspect``: what is in a file of a model or of moments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import rich.console
import typer

from tracelearn import Moments
from tracelearn.cli.mistakes import MistakeError
from tracelearn.cli.options import AsJson, Html, ModeNames
from tracelearn.cli.predict import check_truth, load_to_predict, predict_all
from tracelearn.cli.progress import Bar, sparkline
from tracelearn.cli.shared import (
    check_page,
    command_line,
    load_file,
    missing_targets,
    open_data,
    origin_of,
    read_names,
    show_table,
)
from tracelearn.files import models as files
from tracelearn.report.model import changed_parameters, gather, plain, ranks_of, spans
from tracelearn.report.page import Evaluation, render
from tracelearn.report.scores import compare

__all__ = ["inspect_command"]

_CHOSEN = ("alpha", "ridge", "mode_weights", "loss", "scaling")
_SHOWN = 20  # classes, and singular values of a mode


def _of_moments(moments: Moments) -> dict[str, Any]:
    return {"weight": float(moments.weight), "n_features": len(moments.x_mean), "n_targets": moments.n_targets}


def _of_model(model: Any, names: list[str] | None) -> dict[str, Any]:
    """Gather what a model knows of itself; transformers, pipelines and models that are not fitted know less."""
    facts: dict[str, Any] = {"parameters": changed_parameters(model)}
    chosen = {name: plain(getattr(model, f"{name}_", None)) for name in _CHOSEN}
    if chosen["alpha"] is not None:
        facts["chosen"] = chosen
    for name in ("sample_shape", "classes", "dual_gap", "objective", "n_iter"):
        value = getattr(model, f"{name}_", None)
        if value is not None:
            facts[name] = plain(value)
    if hasattr(model, "coef_"):
        learned, moments = gather(model, mode_names=names), getattr(model, "moments_", None)
        facts["mode_names"] = None if names is None else learned.names_of_weights
        facts["mode_ranks"] = plain(ranks_of(model))
        facts["singular_values"] = [plain(one.values) for one in learned.components]
        facts["moments"] = moments is not None
        facts["weight"] = None if moments is None else float(moments.weight)
    return facts


def _describe(thing: Any, names: list[str] | None, path: Path) -> dict[str, Any]:
    """Gather the facts about a file and what is in it."""
    header = files.read_header(path)
    facts = _of_moments(thing) if isinstance(thing, Moments) else _of_model(thing, names)
    return {"kind": type(thing).__name__, **facts, "format": header.format, "tracelearn": header.tracelearn}


def _names(text: str | None, thing: Any, *, for_page: bool) -> list[str] | None:
    """Read the names of the modes of a model; a page also tells of the model at the end of a pipeline."""
    if text is None:
        return None
    last = thing.steps[-1][1] if for_page and hasattr(thing, "steps") else thing
    if not hasattr(last, "coef_"):
        raise MistakeError(f"Expected a fitted model for --mode-names, got {type(thing).__name__}: leave them out.")
    return read_names(text, last.sample_shape_)


def _words(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value if value is not None else 'equal'}" for name, value in values.items())


def _listed(values: list[Any]) -> str:
    more = f", and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(map(str, values[:_SHOWN])) + more


def _bars(values: list[float]) -> str:
    """Draw singular values as bars that begin at zero."""
    shown = values[:_SHOWN]
    return f"{sparkline([*shown, 0.0])[:-1]}  {' '.join(f'{value:.3g}' for value in shown[:5])}" + (
        " ..." if len(values) > 5 else ""
    )


def _said(facts: dict[str, Any]) -> dict[str, str]:
    """Write what was asked for and what was chosen."""
    rows = {}
    if "parameters" in facts:
        rows["parameters"] = _words(facts["parameters"]) or "all as by default"
    if "chosen" in facts:
        chosen = facts["chosen"]
        numbers = {name: f"{chosen[name]:.4g}" for name in ("alpha", "ridge")}
        rows["chosen"] = _words({**chosen, **numbers, "scaling": chosen["scaling"] or "none"})
    if "sample_shape" in facts:
        rows["shape"] = " × ".join(map(str, facts["sample_shape"]))
    if "classes" in facts:
        rows["classes"] = _listed(facts["classes"])
    return rows


def _learned(facts: dict[str, Any]) -> dict[str, str]:
    """Write what the weights are like, and how well they are proven."""
    rows = {}
    if "mode_ranks" in facts:
        rows["mode ranks"] = spans(facts["mode_ranks"], facts["mode_names"])
        names = facts["mode_names"] or range(1, len(facts["singular_values"]) + 1)
        rows |= {f"mode {name}": _bars(one) for name, one in zip(names, facts["singular_values"], strict=True)}
    if "dual_gap" in facts:
        rows["duality gap"] = f"{facts['dual_gap']:.1e} after {facts['n_iter']} iterations"
    if "objective" in facts:
        rows["objective"] = f"{facts['objective']:.6g}"
    return rows


def _rows(facts: dict[str, Any]) -> dict[str, str]:
    """Write the facts for people."""
    rows = {"what": facts["kind"], **_said(facts), **_learned(facts)}
    if "n_features" in facts:
        rows["features"], rows["targets"] = f"{facts['n_features']:,}", f"{facts['n_targets']:,}"
    if facts.get("moments") is False:
        rows["moments"] = "no: it cannot merge or go on learning"
    elif facts.get("weight") is not None:
        rows["moments"] = f"of samples of weight {facts['weight']:,g}"
    rows["format"] = f"{facts['format']}, written by tracelearn {facts['tracelearn']}"
    return rows


def _evaluate(model: Any, data: Path, samples: str, target: str, bar: Bar) -> Evaluation:
    """Predict the samples of a file and set the truth beside."""
    found = predict_all(model, open_data(data, samples, target), bar)
    if found.truth is None:
        raise missing_targets(data)
    check_truth(model, found, found.truth)
    return Evaluation(compare(model, found.truth, found.prediction), f"{len(found.truth):,} samples in {data.name}")


def inspect_command(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="File of a model or of moments.", show_default=False)],
    as_json: AsJson = False,
    html: Html = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="File of samples that the model has not seen, for the page: how well it does.", show_default=False
        ),
    ] = None,
    samples: Annotated[str, typer.Option(help="Name of the samples in the file of --data.")] = "X",
    target: Annotated[str, typer.Option(help="Name of the targets in the file of --data, or another file.")] = "y",
    mode_names: ModeNames = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of the page if it is there.")] = False,
) -> None:
    """Say what is in a file: the model, its weights, and how well it is solved."""
    check_page(html, model, force=force)
    if data is not None and html is None:
        raise MistakeError("Expected --html beside --data, which is for a page, got none: name a file with --html.")
    loaded = load_file(model) if html is None else load_to_predict(model)
    names = _names(mode_names, loaded, for_page=html is not None)
    try:
        facts = _describe(loaded, names, model)
        if html is not None:
            with Bar(rich.console.Console(quiet=as_json)) as bar:
                seen = None if data is None else _evaluate(loaded, data, samples, target, bar)
            page = render(gather(loaded, mode_names=names), seen, origin_of(model, command_line(context)))
            files.write_atomically(html, page.encode())
    except ValueError as error:
        raise MistakeError(str(error)) from error
    if as_json:
        typer.echo(json.dumps(facts))
    elif html is not None:
        typer.echo(f"page of {facts['kind']}: {html}")
    else:
        show_table(_rows(facts), rich.console.Console())
