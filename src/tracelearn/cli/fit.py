"""``tracelearn fit``: a model of a file, with an honest score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import tracelearn
from tracelearn.cli.shared import (
    AsJson,
    Confounds,
    Coordinates,
    Data,
    Groups,
    Html,
    Input,
    ModeNames,
    Quiet,
    Samples,
    Target,
    TaskName,
    check_out,
    components_in_words,
    make_model,
    mode_number,
    read_alpha,
    read_modes,
    reads_samples,
    show,
    views_in_rows,
    write_page,
)
from tracelearn.errors import refuse

__all__ = ["fit_command"]

_OUT = Path("model.tracelearn")
_SHOWN_CLASSES = 20


# --- model ------------------------------------------------------------------------------------------------------------


def _time_axis(text: str, modes: Any) -> Any:
    """Read which mode of a sample is time: "auto", none, or a mode by its number or name."""
    if text == "auto":
        return text
    return None if text == "none" else mode_number(text, modes, "--time-axis")


def _views(text: str, time_axis: Any, shape: Sequence[int], modes: Any) -> Any:
    """Read the views that a search is to try: "auto", or names of those that it tries by default."""
    if text == "auto":
        return text
    from tracelearn.features import default_views, find_time_axis
    from tracelearn.features.axes import read_long_mode

    axis = find_time_axis(tuple(shape), time_axis, modes)[0] if len(shape) > 1 else None
    views = dict(default_views(axis, read_long_mode(None, tuple(shape)), are_numbers=True))
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in views]
    refuse(
        bool(unknown),
        f"Expected names among {', '.join(views)} for --views, got {', '.join(unknown)}: correct it, or --time-axis.",
    )
    return [(name, views[name]) for name in names]


# --- words ------------------------------------------------------------------------------------------------------------


def _counted(classes: dict[str, int]) -> str:
    shown = ", ".join(f"{label}: {count:,}" for label, count in list(classes.items())[:_SHOWN_CLASSES])
    more = len(classes) - _SHOWN_CLASSES
    return f"{len(classes)} ({shown}{f', and {more} more' if more > 0 else ''})"


def _rows(facts: dict[str, Any]) -> dict[str, str]:
    """Write the facts for people."""
    score = facts["score"]
    kind = "classifier" if facts["task"] == "classification" else "regressor"
    is_chosen = bool(facts["views_taken"])
    return {
        "model": f"{kind}, because {facts['reason']}",
        "samples": f"{facts['n_samples']:,}",
        "shape": " × ".join(map(str, facts["sample_shape"])),
        "completed": facts["completed"],
        "classes": "" if facts["classes"] is None else _counted(facts["classes"]),
        "confounds": ", ".join(facts["confounds"]) + ", regressed out" if facts["confounds"] else "",
        "loss": facts["loss"],
        **views_in_rows(facts["views"]),
        "alpha": f"{facts['alpha']:.4g}" + (" (chosen)" if is_chosen else ""),
        "ridge": f"{facts['ridge']:.4g}",
        "R²" if score["measure"] == "R2" else score["measure"]: (
            f"{score['mean']:.3f} ± {score['standard_error']:.3f} on {score['folds']} held-out folds"
        ),
        f"{score['baseline_is']} alone": f"{score['baseline']:.3f}",
        **{
            f"flat {one['model']}": f"{one['mean']:.3f}; difference {one['difference']:+.3f} ± {one['standard_error']:.3f}"
            for one in score["flat_models"]
        },
        "note": "± is a standard error, corrected for training samples that folds share; what is chosen is chosen anew without "
        "each fold",
        "components": components_in_words(facts),
        "duality gap": f"{facts['dual_gap']:.1e} after {facts['n_iter']} iterations",
        "seconds": f"{facts['seconds']:.1f}",
        "file": facts["file"],
        "page": facts.get("page", ""),
    }


# --- command ----------------------------------------------------------------------------------------------------------


@reads_samples
def fit_command(
    context: typer.Context,
    data: Data,
    target: Target = "y",
    samples: Samples = "X",
    groups: Groups = None,
    confounds: Confounds = None,
    task: TaskName = "auto",
    alpha: Annotated[
        str,
        typer.Option(
            help="Strength of the trace norm of a model that is linear in the samples, or auto: a search over views of the "
            "samples and strengths, by cross-validation."
        ),
    ] = "auto",
    loss: Annotated[
        str,
        typer.Option(
            help="squared_error, huber or poisson for numbers, squared_error, log_loss or squared_hinge for labels; auto is "
            "squared_error, and for labels a search also tries log_loss."
        ),
    ] = "auto",
    penalty: Annotated[str, typer.Option(help="overlapped, latent or scaled_latent.")] = "overlapped",
    ridge: Annotated[float, typer.Option(help="With --alpha: strength of the squared norm.", min=0.0)] = 0.0,
    views: Annotated[
        str,
        typer.Option(
            help="Views of the samples to try: auto, raw, whitened, second_order and so on, or several: raw,whitened."
        ),
    ] = "auto",
    time_axis: Annotated[
        str,
        typer.Option(
            help="The mode of a sample that is time, by name, or counted from 0 or -1 from the end; auto or none."
        ),
    ] = "auto",
    cv: Annotated[int, typer.Option(help="Number of folds.", min=2)] = 5,
    target_mode: Annotated[
        bool,
        typer.Option(
            "--target-mode",
            "--class-mode",
            help="With --alpha: make the classes, or targets, one more mode of the weights.",
        ),
    ] = False,
    max_iter: Annotated[
        int | None, typer.Option(help="Iterations of a fit, at most.", min=1, show_default="as in Python")
    ] = None,
    out: Annotated[Path, typer.Option(help="File for the model.")] = _OUT,
    html: Html = None,
    mode_names: ModeNames = None,
    coordinates: Coordinates = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the files of model and page if they are there.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Fit a model to a file of samples, with a cross-validated score.

    Labels get a classifier, numbers a regressor. Alpha, mode weights and how samples are seen are chosen by cross-validation.
    """
    inputs = Input(data, samples, target, reading, groups, confounds)
    check_out(out, "model", force=force, inputs=inputs.files)
    check_out(html, "page", force=force, option="--html", inputs=(*inputs.files, out))
    strength = read_alpha(alpha)
    is_search = strength is None
    refuse(
        not is_search and (views, time_axis) != ("auto", "auto"),
        "Expected --alpha auto with --views or --time-axis, got a number: leave it out.",
    )
    refuse(
        is_search and (ridge != 0.0 or target_mode),
        "Expected a number for --alpha with --ridge or --class-mode, got auto: a search chooses by itself, so leave them out.",
    )
    refuse(not ridge < math.inf, f"Expected a number of at least 0 for --ridge, got {ridge}: correct it.")
    source = inputs.open()
    grouping = inputs.read_groups(source)
    confounding = inputs.read_confounds()
    shape = reading["tensor_shape"] or source.sample_shape or ()
    modes = read_modes(mode_names, coordinates, shape, source.modes)
    from tracelearn.cli import learning, progress
    from tracelearn.report import Study
    from tracelearn.report.facts import gather

    options: dict[str, Any] = {"penalty": penalty, "tensor_shape": reading["tensor_shape"]}
    if max_iter is not None:
        options["max_iter"] = max_iter
    if is_search:
        axis = _time_axis(time_axis, modes)
        options |= {"cv": cv, "time_axis": axis, "views": _views(views, axis, shape, modes)}
    else:
        options |= {"ridge": ridge, "target_mode": target_mode}
        options["keep_moments"] = loss in ("auto", "squared_error")  # so that models merge and go on learning
    with progress.Bar(quiet=quiet or as_json, steps=learning.STEPS) as bar:
        dataset = learning.read(source, grouping, data, bar)
        refuse(
            confounding is not None and not isinstance(dataset.X, np.ndarray),
            f"Expected samples that fit in memory with --confounds, got {data}: take some of them.",
        )
        dataset = replace(dataset, confounds=confounding)
        chosen = learning.find_task(dataset.y, task)
        learning.check_folds(dataset, cv, chosen)
        if loss != "auto":
            options["loss"] = loss
        model = make_model(strength, classes=chosen.is_classification, **options)
        folds = learning.draw_folds(dataset, cv, chosen)
        model, facts, evaluation = learning.learn(dataset, chosen, model, folds, bar)
        if modes is not None:
            learning.name_modes(model, modes)
        tracelearn.save(model, out)
        targets = (
            [inputs.target_name]
            if inputs.target_name and not chosen.is_classification and dataset.y.ndim == 1
            else None
        )
        learned = gather(model, target_names=targets)
        if html is not None:
            n_groups = 0 if grouping is None else len(np.unique(grouping))
            study = Study(len(dataset.y), n_groups, tuple(inputs.confound_names))
            write_page(html, learned, evaluation, study, out, context)
    facts |= {**learned.for_table(), "confounds": inputs.confound_names, "file": str(out)}
    if html is not None:
        facts["page"] = str(html)
    show(facts, _rows(facts), as_json=as_json, quiet=quiet)
