"""``tracelearn test``, ``compare`` and ``over-time``: p-values, comparisons and time courses of a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tracelearn.cli.shared import (
    AsJson,
    Input,
    Quiet,
    TaskName,
    check_out,
    make_model,
    read_alpha,
    read_input,
    show,
    takes,
    targets_of,
)
from tracelearn.errors import refuse
from tracelearn.optional import require

__all__ = ["compare_command", "over_time_command", "permutation_command"]

_FIGURES = (".html", ".png", ".svg", ".pdf", ".jpg", ".jpeg", ".eps", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class _Question:
    """The options that all three commands share: samples, folds and score, and how the result is shown."""

    inputs: Input
    task: str
    cv: int
    scoring: str | None
    plot: Path | None
    as_json: bool
    quiet: bool

    def read(self) -> tuple[dict[str, Any], bool]:
        """Open samples with their targets, groups and confounds.

        Returns these with the folds and the score, as arguments of a function of ``tracelearn.inference``, and whether targets
        are labels.
        """
        source = self.inputs.open()
        arguments = {"X": source, "y": None, "groups": self.inputs.read_groups(source), "cv": self.cv}
        y = targets_of(source, self.inputs.data)
        from tracelearn.cli import learning  # after what may be refused: it takes a second

        chosen = learning.find_task(y, self.task)
        learning.check_targets(y, self.cv, chosen)
        arguments |= {"confounds": self.inputs.read_confounds(source), "scoring": self.scoring}
        return arguments, chosen.is_classification

    def answer(self, result: Any, facts: dict[str, Any], rows: dict[str, str]) -> None:
        """Draw a result where asked to, and print it for programs or for people."""
        if self.plot is not None:
            require("matplotlib", "plot").use("agg")
            from tracelearn.plotting.canvas import write_picture
            from tracelearn.report import write_result_page

            kind = "page" if self.plot.suffix.lower() == ".html" else "figure"
            if kind == "page":
                write_result_page(result, self.plot)
            else:
                write_picture(result.plot(), self.plot)
            rows, facts = {**rows, kind: str(self.plot)}, {**facts, kind: str(self.plot)}
        show(facts, rows, as_json=self.as_json, quiet=self.quiet)


@takes(inputs=read_input)
def _read_question(
    inputs: Input,
    task: TaskName = "auto",
    cv: Annotated[int, typer.Option(help="Number of folds.", min=2)] = 5,
    scoring: Annotated[
        str | None, typer.Option(help="Score of scikit-learn, such as roc_auc.", show_default="accuracy or R²")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="File for a figure, .png, .svg or .pdf, or for a page, .html.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of the figure if it is there.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> _Question:
    """Gather the options that all questions share; a place for a figure is refused before the work rather than after it."""
    check_out(plot, "figure", force=force, option="--plot", inputs=inputs.files)
    refuse(
        plot is not None and plot.suffix.lower() not in _FIGURES,
        f"Expected a figure as .png, .svg or .pdf, or a page as .html, got {plot}: correct --plot.",
    )
    return _Question(inputs, task, cv, scoring, plot, as_json, quiet)


@takes(question=_read_question)
def permutation_command(
    alpha: Annotated[
        str, typer.Option(help="Strength of the trace norm, or auto: chosen by cross-validation.")
    ] = "auto",
    selection: Annotated[
        str, typer.Option(help="repeat the choice of alpha for each permutation, or fixed.")
    ] = "repeat",
    permutations: Annotated[int, typer.Option(help="Number of permutations.", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help="Of the permutations.")] = 0,
    *,
    question: _Question,
) -> None:
    """Test whether a score on held-out samples is better than chance, by permutations of the targets.

    Targets are permuted within groups; where every group has one target, whole groups are.
    """
    arguments, classes = question.read()
    from tracelearn.inference import permutation_test

    model = make_model(read_alpha(alpha), classes=classes, search={"views": None})
    result = permutation_test(model, **arguments, n_permutations=permutations, selection=selection, random_state=seed)
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
        result.scoring: f"{result.score:.3f} on {question.cv} held-out folds",
        "p": f"{result.p_value:.3g}",
        "by chance": f"{facts['null_mean']:.3f}, and below {facts['null_95']:.3f} in 95 % of {permutations:,} permutations",
        "permuted": result.exchanged,
        "alpha": {None: alpha, "repeat": "chosen for each permutation", "fixed": "chosen once: p is optimistic"}[
            result.selection
        ],
    }
    question.answer(result, facts, rows)


@takes(question=_read_question)
def compare_command(
    alpha: Annotated[
        str, typer.Option(help="Strength of the trace norm, or auto: chosen by cross-validation.")
    ] = "auto",
    repeats: Annotated[int, typer.Option(help="How often folds are drawn.", min=1)] = 4,
    *,
    question: _Question,
) -> None:
    """Compare a model with ridge and logistic regression on flat samples, on the same folds."""
    arguments, classes = question.read()
    from tracelearn.inference import compare

    model = make_model(read_alpha(alpha), classes=classes)
    result = compare({type(model).__name__: model}, **arguments, repeats=repeats)
    columns = ("means", "difference", "standard_error", "p_value", "low", "high")
    facts: dict[str, Any] = {"scoring": result.scoring, "names": list(result.names)}
    facts |= {name: np.asarray(getattr(result, name)).tolist() for name in columns}
    rows = dict(line.split(": ", 1) for line in str(result).splitlines())
    question.answer(result, facts, rows)


@takes(question=_read_question)
def over_time_command(
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
    *,
    question: _Question,
) -> None:
    """Fit and score a model at each position along a mode, such as time."""
    arguments, classes = question.read()
    from tracelearn.inference import decode_over_time

    strength = read_alpha(alpha)
    along = int(axis) if re.fullmatch(r"-?\d+", axis) else axis
    model = make_model("auto" if strength is None else strength, classes=classes)
    result = decode_over_time(model, **arguments, axis=along, window=window, step=step, generalize=generalize)
    mode, mean, error = result.mode, result.mean, result.standard_error
    names = result.positions if mode is None else mode.values
    names = [f"{name:.6g}" if isinstance(name, float) else str(name) for name in names.tolist()]
    facts = {"scoring": result.scoring, "positions": result.positions.tolist(), "mean": mean.tolist()}
    facts |= {"standard_error": error.tolist(), "names": names}
    if generalize:
        mean, error = np.diagonal(mean), np.diagonal(error)
    rows = {name: f"{score:.3f} ± {of_mean:.3f}" for name, score, of_mean in zip(names, mean, error, strict=True)}
    rows = {"position" if mode is None else mode.label: result.scoring, **rows}
    question.answer(result, facts, rows)
