"""``tracelearn test``, ``compare`` and ``over-time``: p-values, comparisons and time courses of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tracelearn.cli.shared import (
    AsJson,
    Confounds,
    Data,
    Groups,
    Input,
    Quiet,
    Samples,
    Target,
    TaskName,
    check_out,
    make_model,
    mode_number,
    read_alpha,
    reads_samples,
    show,
)
from tracelearn.errors import refuse
from tracelearn.optional import require

__all__ = ["compare_command", "over_time_command", "permutation_command"]

_FIGURES = (".html", ".png", ".svg", ".pdf", ".jpg", ".jpeg", ".eps", ".tif", ".tiff", ".webp")

Scoring = Annotated[
    str | None, typer.Option(help="Score of scikit-learn, such as roc_auc.", show_default="accuracy or R²")
]
FoldCount = Annotated[int, typer.Option(help="Number of folds.", min=2)]
Plot = Annotated[
    Path | None, typer.Option(help="File for a figure, .png, .svg or .pdf, or for a page, .html.", show_default=False)
]
Force = Annotated[bool, typer.Option("--force", help="Replace the file of the figure if it is there.")]


def _read(
    inputs: Input, task: str, cv: int, plot: Path | None, scoring: str | None, *, force: bool
) -> tuple[dict[str, Any], bool, Any]:
    """Read what every question is asked of: samples, targets, groups, confounds, folds and the score.

    Returns these, whether targets are labels, and what the modes are called. A place for a figure is refused before the work
    rather than after it.
    """
    check_out(plot, "figure", force=force, option="--plot", inputs=inputs.files)
    refuse(
        plot is not None and plot.suffix.lower() not in _FIGURES,
        f"Expected a figure as .png, .svg or .pdf, or a page as .html, got {plot}: correct --plot.",
    )
    source = inputs.open()
    groups = inputs.read_groups(source)
    from tracelearn.cli import learning, progress  # after what may be refused: it takes a second

    with progress.Bar(quiet=True) as bar:
        dataset = learning.read(source, groups, inputs.data, bar)
    refuse(
        not isinstance(dataset.X, np.ndarray),
        f"Expected samples that fit in memory, got {inputs.data}: take some of them.",
    )
    chosen = learning.find_task(dataset.y, task)
    learning.check_folds(dataset, cv, chosen)
    asked = {"X": dataset.X, "y": dataset.y, "groups": dataset.groups, "confounds": inputs.read_confounds()}
    return asked | {"cv": cv, "scoring": scoring}, chosen.is_classification, source.modes


def _show(
    result: Any, facts: dict[str, Any], rows: dict[str, str], plot: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Draw a result where asked to, and print it for programs or for people."""
    if plot is not None:
        require("matplotlib", "plot").use("agg")
        from tracelearn.plotting.canvas import write_picture
        from tracelearn.report import write_result_page

        kind = "page" if plot.suffix.lower() == ".html" else "figure"
        if kind == "page":
            write_result_page(result, plot)
        else:
            write_picture(result.plot(), plot)
        rows, facts = {**rows, kind: str(plot)}, {**facts, kind: str(plot)}
    show(facts, rows, as_json=as_json, quiet=quiet)


@reads_samples
def permutation_command(
    data: Data,
    target: Target = "y",
    samples: Samples = "X",
    groups: Groups = None,
    confounds: Confounds = None,
    task: TaskName = "auto",
    alpha: Annotated[
        str, typer.Option(help="Strength of the trace norm, or auto: chosen by cross-validation.")
    ] = "auto",
    selection: Annotated[
        str, typer.Option(help="repeat the choice of alpha for each permutation, or fixed.")
    ] = "repeat",
    permutations: Annotated[int, typer.Option(help="Number of permutations.", min=1)] = 1000,
    cv: FoldCount = 5,
    scoring: Scoring = None,
    seed: Annotated[int, typer.Option(help="Of the permutations.")] = 0,
    plot: Plot = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Test whether a score on held-out samples is better than chance, by permutations of the targets.

    Targets are permuted within groups; where every group has one target, whole groups are.
    """
    inputs = Input(data, samples, target, reading, groups, confounds)
    asked, classes, _ = _read(inputs, task, cv, plot, scoring, force=force)
    from tracelearn.inference import permutation_test

    model = make_model(read_alpha(alpha), classes=classes, search={"views": None})
    result = permutation_test(model, **asked, n_permutations=permutations, selection=selection, random_state=seed)
    facts = {
        "score": result.score,
        "scoring": result.scoring,
        "p_value": result.p_value,
        "permutations": permutations,
        "null_mean": float(np.mean(result.null)),
        "null_95": float(np.quantile(result.null, 0.95)),
        "exchanged": result.exchanged,
        "selection": result.selection,
    }
    rows = {
        result.scoring: f"{result.score:.3f} on {cv} held-out folds",
        "p": f"{result.p_value:.3g}",
        "by chance": f"{facts['null_mean']:.3f}, and below {facts['null_95']:.3f} in 95 % of {permutations:,} permutations",
        "permuted": result.exchanged,
        "alpha": {None: alpha, "repeat": "chosen for each permutation", "fixed": "chosen once: p is optimistic"}[
            result.selection
        ],
    }
    _show(result, facts, rows, plot, as_json=as_json, quiet=quiet)


@reads_samples
def compare_command(
    data: Data,
    target: Target = "y",
    samples: Samples = "X",
    groups: Groups = None,
    confounds: Confounds = None,
    task: TaskName = "auto",
    alpha: Annotated[
        str, typer.Option(help="Strength of the trace norm, or auto: chosen by cross-validation.")
    ] = "auto",
    cv: FoldCount = 5,
    repeats: Annotated[int, typer.Option(help="How often folds are drawn.", min=1)] = 4,
    scoring: Scoring = None,
    plot: Plot = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Compare the trace norm with ridge and logistic regression on flat samples, on the same folds."""
    inputs = Input(data, samples, target, reading, groups, confounds)
    asked, classes, _ = _read(inputs, task, cv, plot, scoring, force=force)
    from tracelearn.inference import compare

    result = compare({"trace norm": make_model(read_alpha(alpha), classes=classes)}, **asked, repeats=repeats)
    columns = ("means", "difference", "standard_error", "p_value", "low", "high")
    facts: dict[str, Any] = {"scoring": result.scoring, "names": list(result.names)}
    facts |= {name: np.asarray(getattr(result, name)).tolist() for name in columns}
    rows = dict(line.split(": ", 1) for line in str(result).splitlines())
    _show(result, facts, rows, plot, as_json=as_json, quiet=quiet)


@reads_samples
def over_time_command(
    data: Data,
    target: Target = "y",
    samples: Samples = "X",
    groups: Groups = None,
    confounds: Confounds = None,
    task: TaskName = "auto",
    alpha: Annotated[
        str, typer.Option(help="Strength of the trace norm, or auto: found from the samples at each position.")
    ] = "auto",
    axis: Annotated[
        str,
        typer.Option(
            help="Axis of the data to decode along: 0 is samples, 1 the first mode, -1 the last, or the name of a mode."
        ),
    ] = "-1",
    window: Annotated[int, typer.Option(help="Entries of a window.", min=1)] = 1,
    step: Annotated[int, typer.Option(help="Entries from one window to the next.", min=1)] = 1,
    generalize: Annotated[bool, typer.Option("--generalize", help="Test every model at every position.")] = False,
    cv: FoldCount = 5,
    scoring: Scoring = None,
    plot: Plot = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Fit and score a model at each position along a mode, such as time."""
    inputs = Input(data, samples, target, reading, groups, confounds)
    asked, classes, modes = _read(inputs, task, cv, plot, scoring, force=force)
    from tracelearn.inference import decode_over_time

    strength, along = read_alpha(alpha), mode_number(axis, modes, "--axis", first=1)  # axis 0 is samples
    model = make_model("auto" if strength is None else strength, classes=classes)
    result = decode_over_time(model, **asked, axis=along, window=window, step=step, generalize=generalize)
    if modes is not None:
        result = replace(result, mode=modes[along - 1 if along > 0 else along].windows(result.positions, window))
    mode, mean, error = result.mode, result.mean, result.standard_error
    names = result.positions if mode is None else mode.values
    names = [f"{name:.6g}" if isinstance(name, float) else str(name) for name in names.tolist()]
    facts = {"scoring": result.scoring, "positions": result.positions.tolist(), "mean": mean.tolist()}
    facts |= {"standard_error": error.tolist(), "names": names}
    if generalize:
        mean, error = np.diagonal(mean), np.diagonal(error)
    rows = {name: f"{score:.3f} ± {own:.3f}" for name, score, own in zip(names, mean, error, strict=True)}
    rows = {"position" if mode is None else mode.label: result.scoring, **rows}
    _show(result, facts, rows, plot, as_json=as_json, quiet=quiet)
