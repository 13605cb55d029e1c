"""``tracelearn fit``: a model of a file, with an honest score."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import tracelearn
from tracelearn.cli.mistakes import warnings_as_lines
from tracelearn.cli.shared import (
    AsJson,
    Coordinates,
    Html,
    Input,
    ModeNames,
    Quiet,
    TaskName,
    check_out,
    components_in_words,
    make_model,
    mode_number,
    read_alpha,
    read_input,
    read_modes,
    show,
    takes,
    views_in_rows,
    write_page,
)
from tracelearn.errors import refuse

if TYPE_CHECKING:
    from tracelearn.cli.learning import Task
    from tracelearn.report import Evaluation

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


def _check_strengths(alpha: float | None, ridge: float, target_mode: bool, how_to_search: tuple[str, str]) -> None:
    """Refuse options of a search with a given alpha, and options of a linear model without."""
    refuse(
        alpha is not None and how_to_search != ("auto", "auto"),
        "Expected --alpha auto with --views or --time-axis, got a number: leave it out.",
    )
    refuse(
        alpha is None and (ridge != 0.0 or target_mode),
        "Expected a number for --alpha with --ridge or --target-mode, got auto: a search chooses by itself, so leave them out.",
    )
    refuse(not ridge < math.inf, f"Expected a number of at least 0 for --ridge, got {ridge}: correct it.")


# --- words ------------------------------------------------------------------------------------------------------------


def _counted(classes: dict[str, int]) -> str:
    """List the first classes with the numbers of their samples."""
    shown = ", ".join(f"{label}: {count:,}" for label, count in list(classes.items())[:_SHOWN_CLASSES])
    n_hidden = len(classes) - _SHOWN_CLASSES
    return f"{len(classes)} ({shown}{f', and {n_hidden} more' if n_hidden > 0 else ''})"


def _facts(model: Any, y: Any, task: Task, evaluation: Evaluation) -> dict[str, Any]:
    """Gather what programs and people are told of a fitted model."""
    labels, counts = np.unique(y, return_counts=True) if task.is_classification else (np.zeros(0), np.zeros(0))
    classes = {str(label): int(count) for label, count in zip(labels.tolist(), counts.tolist(), strict=True)}
    return {
        "model": type(model).__name__,
        "task": task.name,
        "reason": task.reason,
        "n_samples": len(y),
        "sample_shape": [int(size) for size in model.sample_shape_],
        "classes": classes or None,
        "loss": getattr(model, "loss_", model.loss),
        "penalty": model.penalty,
        "alpha": float(np.max(model.alpha_)),
        "ridge": float(getattr(model, "ridge_", getattr(model, "ridge", 0.0))),
        "mode_weights": getattr(model, "mode_weights", None),
        "target_mode": bool(getattr(model, "target_mode", False)),
        "scaling": getattr(model, "scaling", None),
        "views_taken": list(getattr(model, "views_", {})),
        "dual_gap": float(model.dual_gap_),
        "n_iter": int(model.n_iter_),
        "score": _score(evaluation),
    }


def _score(evaluation: Evaluation) -> dict[str, Any]:
    """Gather the scores of the folds, of the model and of models of flat samples."""
    folds, flat, (measure, _, baseline, _) = evaluation.folds, evaluation.comparison, evaluation.result.headline
    assert folds is not None
    assert flat is not None
    flat_scores = zip(flat.names, flat.means, flat.difference, flat.standard_error, strict=True)
    return {
        "measure": measure.replace("²", "2"),
        "mean": folds.mean,
        "standard_error": folds.standard_error,
        "folds": folds.count,
        "baseline": folds.baseline,
        "baseline_is": baseline,
        "flat_models": [
            {"model": name, "mean": float(mean), "difference": float(difference), "standard_error": float(error)}
            for name, mean, difference, error in flat_scores
        ][1:],
    }


def _rows(facts: dict[str, Any]) -> dict[str, str]:
    """Write the facts for people."""
    from tracelearn.report.words import rounded

    score = facts["score"]
    kind = "classifier" if facts["task"] == "classification" else "regressor"
    is_chosen = bool(facts["views_taken"])
    mean, error = rounded(score["mean"], score["standard_error"])
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
        "R²" if score["measure"] == "R2" else score["measure"]: f"{mean} ± {error} on {score['folds']} held-out folds",
        f"{score['baseline_is']} alone": f"{score['baseline']:.3f}",
        **{
            f"flat {flat['model']}": f"{flat['mean']:.3f}; difference {flat['difference']:+z.3f} ± {flat['standard_error']:.3f}"
            for flat in score["flat_models"]
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


@takes(inputs=read_input)
def fit_command(
    context: typer.Context,
    inputs: Input,
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
        typer.Option("--target-mode", help="With --alpha: make the classes, or targets, one more mode of the weights."),
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
) -> None:
    """Fit a model to a file of samples, with a cross-validated score.

    Labels get a classifier, numbers a regressor. Alpha, mode weights and how samples are seen are chosen by cross-validation.
    """
    check_out(out, "model", force=force, inputs=inputs.files)
    check_out(html, "page", force=force, option="--html", inputs=(*inputs.files, out))
    strength = read_alpha(alpha)
    _check_strengths(strength, ridge, target_mode, (views, time_axis))
    source = inputs.open()
    groups = inputs.read_groups(source)
    confounds = inputs.read_confounds(source)
    tensor_shape = inputs.file_format["tensor_shape"]
    shape = tensor_shape or source.sample_shape or ()
    modes = read_modes(mode_names, coordinates, shape, source.modes)
    options: dict[str, Any] = {"penalty": penalty, "tensor_shape": tensor_shape}
    options |= {} if max_iter is None else {"max_iter": max_iter}
    options |= {} if loss == "auto" else {"loss": loss}
    if strength is None:
        axis = _time_axis(time_axis, modes)
        options |= {"cv": cv, "time_axis": axis, "views": _views(views, axis, shape, modes)}
    else:
        options |= {"ridge": ridge, "target_mode": target_mode}
        options["keep_moments"] = loss in ("auto", "squared_error")  # so that models merge and go on learning
    from tracelearn.cli import learning, progress
    from tracelearn.report import Study, evaluate
    from tracelearn.report.facts import gather
    from tracelearn.samples.modes import resized_modes

    learning.allocate_blas_buffers()
    began = time.perf_counter()
    with progress.Bar(quiet=quiet or as_json) as bar:
        X, y = learning.read_samples(source, inputs, bar)
        chosen = learning.find_task(y, task)
        learning.check_targets(y, cv, chosen)
        # All samples of a group are aligned together, in memory.
        for_search = {"align": None} if X is source else {}
        model = make_model(strength, classes=chosen.is_classification, search=for_search, **options)
        targets = None if X is source else y
        only_for_search = {"groups": groups} if strength is None else {}
        with warnings_as_lines("the fit to all samples"), bar.steps_of(model):
            model.fit(X, targets, confounds=confounds, **only_for_search)
        with warnings_as_lines("a fit without one of the folds"):
            evaluation = evaluate(
                model, X, targets, groups=groups, confounds=confounds, cv=cv, on_fold=partial(bar.show, "scoring")
            )
    if modes is not None:  # resampled ones are numbered
        model.name_modes(resized_modes(modes, model.sample_shape_))
    tracelearn.save(model, out)
    target_names = inputs.names_of(evaluation.result)
    facts = _facts(model, y, chosen, evaluation) | {"seconds": time.perf_counter() - began}
    facts |= {**gather(model).for_table(), "confounds": inputs.confound_names, "file": str(out)}
    if html is not None:
        n_groups = 0 if groups is None else len(np.unique(groups))
        study = Study(len(y), n_groups, inputs.confound_names)
        write_page(html, model, out, context, evaluation=evaluation, target_names=target_names, study=study)
        facts["page"] = str(html)
    show(facts, _rows(facts), as_json=as_json, quiet=quiet)
