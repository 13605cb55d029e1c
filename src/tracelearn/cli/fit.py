"""``tracelearn fit``: a model of a file, with an honest score."""

from __future__ import annotations

import math
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
    name_modes,
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


def _views(views: str, time_axis: str, alpha: float | None) -> dict[str, Any]:
    """Read how samples are to be seen, which is a question for the search."""
    refuse(
        (views, time_axis) != ("auto", "auto") and alpha is not None,
        "Expected --alpha auto with --views or --time-axis, got a number: leave it out.",
    )
    names = [name.strip() for name in views.split(",")]
    return {
        "views": names[0] if len(names) == 1 else names,
        "time_axis": {"auto": "auto", "none": None}.get(time_axis, time_axis),
    }


# --- words ------------------------------------------------------------------------------------------------------------


def _counted(classes: dict[str, int]) -> str:
    shown = ", ".join(f"{label}: {count:,}" for label, count in list(classes.items())[:_SHOWN_CLASSES])
    more = len(classes) - _SHOWN_CLASSES
    return f"{len(classes)} ({shown}{f', and {more} more' if more > 0 else ''})"


def _rows(facts: dict[str, Any]) -> dict[str, str]:
    """Write the facts for people."""
    score, weights = facts["score"], facts["mode_weights"]
    kind = "classifier" if facts["task"] == "classification" else "regressor"
    is_chosen = score["alpha_chosen_on_same_folds"]
    return {
        "model": f"{kind}, because {facts['reason']}",
        "samples": f"{facts['n_samples']:,}",
        "shape": " × ".join(map(str, facts["sample_shape"])),
        "classes": "" if facts["classes"] is None else _counted(facts["classes"]),
        "confounds": ", ".join(facts["confounds"]) + ", regressed out" if facts["confounds"] else "",
        "loss": facts["loss"],
        "scaling": facts["scaling"] or "none",
        "view": facts["view"] or "",
        **views_in_rows(facts["views"]),
        "alpha": f"{facts['alpha']:.4g}" + (" (chosen)" if is_chosen else ""),
        "ridge": f"{facts['ridge']:.4g}",
        "mode weights": "equal" if weights is None else ", ".join(f"{weight:g}" for weight in weights),
        "R²" if score["measure"] == "R2" else score["measure"]: (
            f"{score['mean']:.3f} ± {score['standard_error']:.3f} on {score['folds']} held-out folds"
        ),
        f"{score['baseline_is']} alone": f"{score['baseline']:.3f}",
        **{
            f"flat {one['model']}": f"{one['mean']:.3f}; difference {one['difference']:+.3f} ± {one['standard_error']:.3f}"
            for one in score["flat_models"]
        },
        "note": "± is a standard error, corrected for training samples that folds share"
        + (
            "; alpha and the rest were chosen on these folds: slightly optimistic, against flat models too (tracelearn "
            "compare chooses within each fold)"
            if is_chosen
            else ""
        ),
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
        str, typer.Option(help="Strength of the trace norm, or auto: chosen by cross-validation.")
    ] = "auto",
    loss: Annotated[
        str,
        typer.Option(
            help="squared, huber or poisson for numbers, squared, logistic, squared_hinge or auto for labels; auto, the default "
            "in Python, also tries logistic regression, and its model cannot be merged or go on learning."
        ),
    ] = "squared_error",
    penalty: Annotated[str, typer.Option(help="overlapped, latent or scaled_latent.")] = "overlapped",
    ridge: Annotated[float, typer.Option(help="Strength of the squared norm.", min=0.0)] = 0.0,
    views: Annotated[
        str,
        typer.Option(
            help="Transforms of the samples to try: auto, raw, whitened, second_order and so on, or several: raw,whitened."
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
            "--target-mode", "--class-mode", help="Make the classes, or targets, one more mode of the weights."
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
    given = Input(data, samples, target, reading, groups, confounds)
    check_out(out, "model", force=force, inputs=given.files)
    check_out(html, "page", force=force, option="--html", inputs=(*given.files, out))
    strength, shape = read_alpha(alpha), reading["tensor_shape"]
    seen = _views(views, time_axis, strength)
    refuse(not ridge < math.inf, f"Expected a number of at least 0 for --ridge, got {ridge}: correct it.")
    source, grouped, confounding = given.open(), given.open_groups(), given.read_confounds()
    modes = read_modes(mode_names, coordinates, shape or source.sample_shape or (), source.modes)
    if time_axis not in ("auto", "none"):
        seen["time_axis"] = mode_number(time_axis, modes, "--time-axis")
    options = {"loss": loss, "penalty": penalty, "target_mode": target_mode, "tensor_shape": shape}
    options |= {"keep_moments": loss != "auto"} | ({} if max_iter is None else {"max_iter": max_iter})
    options |= {} if strength is None else {"ridge": ridge}
    search = {"cv": cv, **seen} | ({"ridges": (ridge,)} if ridge else {})
    from tracelearn.cli import learning, progress
    from tracelearn.report.model import gather

    with progress.Bar(quiet=quiet or as_json, steps=learning.STEPS) as bar:
        found = learning.read(source, grouped, data, bar)
        if confounding is not None:
            refuse(
                not isinstance(found.X, np.ndarray),
                f"Expected samples that fit in memory with --confounds, got {data}: take some of them.",
            )
            found = replace(found, confounds=confounding)
        chosen = learning.find_task(found.y, task)
        learning.check_folds(found, cv, chosen)
        model = make_model(strength, classes=chosen.is_classification, search=search, **options)
        facts, evaluation = learning.learn(found, chosen, model, learning.draw_folds(found, cv, chosen), bar)
        if modes is not None:
            name_modes(model, modes)
        tracelearn.save(model, out)
        learned = gather(model)
        if html is not None:
            write_page(html, learned, evaluation, out, context)
    facts |= {**learned.for_table(), "confounds": given.confound_names, "file": str(out)}
    facts |= {} if html is None else {"page": str(html)}
    show(facts, _rows(facts), as_json=as_json, quiet=quiet)
