"""``tracelearn inspect``: what is in a file of a model or of moments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import tracelearn
from tracelearn.cli.predict import load_to_predict, predict_all
from tracelearn.cli.progress import Bar, sparkline
from tracelearn.cli.shared import (
    AsJson,
    Confounds,
    Groups,
    Html,
    Input,
    ModeNames,
    blame_file,
    check_out,
    components_in_words,
    echo,
    load_file,
    missing_targets,
    read_format,
    read_names,
    show,
    takes,
    views_in_rows,
    write_page,
)
from tracelearn.errors import refuse
from tracelearn.io.model_header import read_header

__all__ = ["inspect_command"]

_CHOSEN = ("views", "loss", "alpha", "ridge", "mode_weights")  # by cross-validation
_SHOWN = 20  # classes, and singular values of a mode
_LINES = {  # of the table: each needs the fact named first, and is filled in from all facts
    "aligned by group": ("aligned_by", "{aligned_by}, so that predict needs --groups"),
    "duality gap": ("dual_gap", "{dual_gap:.1e} after {n_iter} iterations"),
    "objective": ("objective", "{objective:.6g}"),
    "features": ("n_features", "{n_features:,}"),
    "targets": ("n_targets", "{n_targets:,}"),
    "moments": ("weight", "of samples of weight {weight:,g}"),
}


def _of_model(model: Any, names: list[str] | None) -> dict[str, Any]:
    """Gather what a model knows of itself; transformers, pipelines and models that are not fitted know less."""
    from tracelearn.report.facts import changed_parameters, gather, plain

    facts: dict[str, Any] = {"parameters": changed_parameters(model)}
    if hasattr(model, "score_path_"):
        facts["chosen"] = {name: _chosen(model, name) for name in _CHOSEN if hasattr(model, f"{name}_")}
        alignment = getattr(model, "alignment_", None)
        facts["aligned_by"] = None if alignment is None else str(alignment)
        facts["score"] = {"mean": model.best_score_, "standard_error": model.best_score_se_}
    for name in ("sample_shape", "classes", "dual_gap", "objective", "n_iter"):
        if getattr(model, f"{name}_", None) is not None:
            facts[name] = plain(getattr(model, f"{name}_"))
    if hasattr(model, "coef_") and hasattr(model, "dual_gap_"):  # those of the paper prove nothing
        learned = gather(model, mode_names=names)
        moments = getattr(model, "moments_", None)
        facts |= {
            "sample_shape": list(learned.shape),
            **learned.for_table(),
            "singular_values": [plain(component.values) for component in learned.components],
            "moments": moments is not None,
            "weight": None if moments is None else float(moments.weight),
        }
    return facts


def _chosen(model: Any, name: str) -> Any:
    """Read what a search has chosen; of views their names."""
    from tracelearn.report.facts import plain

    value = getattr(model, f"{name}_")
    return list(value) if name == "views" else plain(value)


def _describe(thing: Any, names: list[str] | None, path: Path) -> dict[str, Any]:
    """Gather the facts about a file and what is in it."""
    header = read_header(path)
    if isinstance(thing, tracelearn.Moments):
        facts = {"weight": float(thing.weight), "n_features": len(thing.x_mean), "n_targets": thing.n_targets}
    else:
        facts = _of_model(thing, names)
    return {"kind": type(thing).__name__, **facts, "format": header.format, "tracelearn": header.tracelearn}


def _mode_names(text: str | None, thing: Any, *, for_page: bool) -> list[str] | None:
    """Read the names of the modes of a model; a page also tells of the model at the end of a pipeline."""
    if text is None:
        return None
    last = thing.steps[-1][1] if for_page and hasattr(thing, "steps") else thing
    refuse(
        not hasattr(last, "coef_"),
        f"Expected a fitted model for --mode-names, got {type(thing).__name__}: leave them out.",
    )
    is_recording = hasattr(last, "lags_")  # its weights are over lags and features
    return read_names(text, (len(last.lags_), last.n_features_in_) if is_recording else last.sample_shape_)


def _assignments(values: dict[str, Any]) -> str:
    """Write values as "name=value"; the mode weights that are None are equal."""
    return ", ".join(f"{name}={value if value is not None else 'equal'}" for name, value in values.items())


def _bars(values: list[float]) -> str:
    """Draw singular values as bars that begin at zero."""
    shown = [value if value > 1e-12 * values[0] else 0.0 for value in values[:_SHOWN]]  # the rest is rounding
    numbers = " ".join(f"{value:.3g}" for value in shown[:5]) + (" ..." if len(values) > 5 else "")
    return f"{sparkline([*shown, 0.0])[:-1]}  {numbers}"


def _rows(facts: dict[str, Any]) -> dict[str, str]:
    """Write the facts as rows of a table for people; rows without a value are not shown."""
    rows = {"what": facts["kind"]}
    classes = facts.get("classes", [])
    hidden_classes = f", and {len(classes) - _SHOWN} more" if len(classes) > _SHOWN else ""
    if "parameters" in facts:
        rows["parameters"] = _assignments(facts["parameters"]) or "all as by default"
    if "chosen" in facts:
        chosen = facts["chosen"]
        numbers = {name: f"{chosen[name]:.4g}" for name in ("alpha", "ridge")}
        views = {"views": " + ".join(chosen["views"])} if "views" in chosen else {}
        rows["chosen"] = _assignments({**chosen, **numbers, **views})
        rows["held-out score"] = "{mean:.3f} ± {standard_error:.3f}".format(**facts["score"])
    rows["shape"] = " × ".join(map(str, facts.get("sample_shape", ())))
    rows["classes"] = ", ".join(map(str, classes[:_SHOWN])) + hidden_classes
    rows["confounds"] = f"{facts['n_confounds']} for each sample, regressed out" if facts.get("n_confounds") else ""
    rows["completed"] = facts.get("completed", "")
    if "mode_ranks" in facts:
        rows |= views_in_rows(facts["views"])
        rows["components"] = components_in_words(facts)
        title = "mode {}" if facts["weights_of"] == "samples" else "{}, values"
        for name, singular_values in zip(facts["mode_names"], facts["singular_values"], strict=True):
            if len(singular_values) > 1:  # a single one is the length of the weights
                rows[title.format(name.removeprefix("mode "))] = _bars(singular_values)
    rows |= {name: line.format(**facts) for name, (key, line) in _LINES.items() if facts.get(key) is not None}
    if facts.get("moments") is False:
        rows["moments"] = "no: it cannot merge or go on learning"
    return rows | {"format": "{format}, written by tracelearn {tracelearn}".format(**facts)}


def _evaluate(model: Any, inputs: Input, *, quiet: bool) -> Any:
    """Predict the samples of a file and compare with the truth."""
    from tracelearn.report.scores import Evaluation

    source = inputs.open(model=model)
    groups, confounds = inputs.read_groups(source), inputs.read_confounds(source)
    with Bar(quiet=quiet) as bar:
        predictions = predict_all(model, source, bar, with_bounds=True, confounds=confounds, groups=groups)
    if predictions.truth is None:
        raise missing_targets(inputs.data)
    return Evaluation(predictions.compared(model), f"{len(predictions.truth):,} samples in {Path(inputs.data).name}")


@takes(file_format=read_format)
def inspect_command(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="File of a model or of moments.", show_default=False)],
    as_json: AsJson = False,
    html: Html = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="File of samples that the model has not seen, for the page: how well it does.", show_default=False
        ),
    ] = None,
    samples: Annotated[str, typer.Option(help="Name of the samples in the file of --data.")] = "X",
    target: Annotated[str, typer.Option(help="Name of the targets in the file of --data, or another file.")] = "y",
    groups: Groups = None,
    confounds: Confounds = None,
    mode_names: ModeNames = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of the page if it is there.")] = False,
    *,
    file_format: dict[str, Any],
) -> None:
    """Show a model: its parameters, its weights and its duality gap."""
    inputs = Input(data, samples, target, file_format, groups, confounds) if data else None
    check_out(html, "page", force=force, option="--html", inputs=(model, *(inputs.files if inputs else ())))
    refuse(
        inputs is not None and html is None,
        "Expected --html with --data, which is for a page, got none: name a file with --html.",
    )
    loaded = load_file(model) if html is None else load_to_predict(model)
    with blame_file(model):
        names = _mode_names(mode_names, loaded, for_page=html is not None)
        facts = _describe(loaded, names, model)
        if html is not None:
            evaluation = None if inputs is None else _evaluate(loaded, inputs, quiet=as_json)
            targets = None if inputs is None or evaluation is None else inputs.names_of(evaluation.result)
            write_page(html, loaded, model, context, evaluation=evaluation, mode_names=names, target_names=targets)
        rows = _rows(facts)
    if html is not None and not as_json:
        echo(f"page of {facts['kind']}: {html}")
    else:
        show(facts, rows, as_json=as_json)
