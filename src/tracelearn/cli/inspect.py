"""``tracelearn inspect``: what is in a file of a model or of moments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from tracelearn import Moments, files
from tracelearn.cli.predict import check_truth, load_to_predict, predict_all
from tracelearn.cli.shared import (
    MistakeError,
    check_page,
    command_line,
    load_file,
    open_data,
    origin_of,
    show_table,
    split_names,
)
from tracelearn.progress import Bar, sparkline
from tracelearn.report.model import changed_parameters, gather, plain, spans
from tracelearn.report.page import Evaluation, render
from tracelearn.report.scores import compare

try:
    import rich.console
    import typer
except ImportError:  # main says so in one sentence
    pass

__all__ = ["inspect_command"]

_CHOSEN = ("alpha", "ridge", "mode_weights", "loss", "scaling")
_SHOWN = 20  # classes, and singular values of a mode


def _of_moments(moments: Moments) -> dict[str, Any]:
    return {"weight": float(moments.weight), "n_features": len(moments.x_mean), "n_targets": moments.n_targets}


def _of_model(model: Any) -> dict[str, Any]:
    """Gather what a model knows of itself; transformers and models that are not fitted know less."""
    facts: dict[str, Any] = {"parameters": changed_parameters(model)}
    chosen = {name: plain(getattr(model, f"{name}_", None)) for name in _CHOSEN}
    if chosen["alpha"] is not None:
        facts["chosen"] = chosen
    for name in ("sample_shape", "classes", "mode_ranks", "dual_gap", "objective", "n_iter"):
        value = getattr(model, f"{name}_", None)
        if value is not None:
            facts[name] = plain(value)
    if hasattr(model, "coef_"):
        facts["singular_values"] = [plain(values) for _, values in model.mode_factors_]
        moments = getattr(model, "moments_", None)
        facts["moments"] = moments is not None
        facts["weight"] = None if moments is None else float(moments.weight)
    return facts


def _describe(path: Path) -> dict[str, Any]:
    """Gather the facts about a file."""
    thing, header = load_file(path), files.read_header(path)
    facts = _of_moments(thing) if isinstance(thing, Moments) else _of_model(thing)
    return {"kind": type(thing).__name__, **facts, "format": header.format, "tracelearn": header.tracelearn}


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
        rows["mode ranks"] = spans(facts["mode_ranks"])
    for mode, values in enumerate(facts.get("singular_values", []), start=1):
        rows[f"mode {mode}"] = _bars(values)
    if "dual_gap" in facts:
        rows["duality gap"] = f"{facts['dual_gap']:.1e} after {facts['n_iter']} iterations"
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
        raise MistakeError(
            f"Expected targets beside the samples, got {data}, which is one array: name another file with --target."
        )
    check_truth(model, found, found.truth)
    return Evaluation(compare(model, found.truth, found.prediction), f"{len(found.truth):,} samples in {data.name}")


def _write_page(
    path: Path, html: Path, names: str | None, evaluate: Callable[[Any], Evaluation | None], told: str
) -> None:
    model = load_to_predict(path)
    try:
        facts = gather(model, mode_names=split_names(names))
        page = render(facts, evaluate(model), origin_of(path, told))
    except ValueError as error:
        raise MistakeError(str(error)) from error
    files.write_atomically(html, page.encode())


def inspect_command(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="File of a model or of moments.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as one JSON object.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="File for a page about the model, to open in a browser.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="File of samples that the model has not seen, for the page: how well it does.", show_default=False
        ),
    ] = None,
    samples: Annotated[str, typer.Option(help="Name of the samples in the file of --data.")] = "X",
    target: Annotated[str, typer.Option(help="Name of the targets in the file of --data, or another file.")] = "y",
    mode_names: Annotated[
        str | None, typer.Option(help="Names of the modes for the page, such as channel,time.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of the page if it is there.")] = False,
) -> None:
    """Say what is in a file: the model, its weights, and how well it is solved."""
    check_page(html, model, force=force)
    if html is not None:

        def evaluate(loaded: Any) -> Evaluation | None:
            if data is None:
                return None
            with Bar(rich.console.Console(quiet=as_json)) as bar:
                return _evaluate(loaded, data, samples, target, bar)

        _write_page(model, html, mode_names, evaluate, command_line(context))
    elif data is not None or mode_names is not None:
        name = "--mode-names" if data is None else "--data"
        raise MistakeError(f"Expected --html beside {name}, which is for a page, got none: name a file with --html.")
    facts = _describe(model)
    if as_json:
        typer.echo(json.dumps(facts))
    elif html is not None:
        typer.echo(f"page of {facts['kind']}: {html}")
    else:
        show_table(_rows(facts), rich.console.Console())
