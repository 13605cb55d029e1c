"""``tracelearn stream``: learning from a stream, with checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import rich.console
import typer

from tracelearn import TraceNormClassifier, TraceNormRegressor
from tracelearn.cli import progress
from tracelearn.cli.mistakes import INTERRUPTED, MistakeError, one_line
from tracelearn.cli.options import Data, Quiet, Samples, TaskName
from tracelearn.cli.shared import check_out, find_task, missing_targets, open_data
from tracelearn.files import models as files
from tracelearn.optional import require
from tracelearn.samples import Source
from tracelearn.streaming.run import StreamReport, stream

__all__ = ["stream_command"]

_MEASURES = {"classification": "share of wrong labels", "regression": "mean squared error"}
_FIGURES = (".png", ".svg", ".pdf")
_Batches = Callable[[int], Iterator[tuple[Any, Any, Any]]]


def _batches_of(source: Source, batch: int) -> _Batches:
    """Make of a source a function from the first sample wanted to batches."""

    def batches(start: int) -> Iterator[tuple[Any, Any, Any]]:
        for X, y, weight in source.batches(start):
            for first in range(0, len(X), batch):
                part = slice(first, first + batch)
                yield X[part], y[part], None if weight is None else weight[part]

    return batches


def _task_of(source: Source, task: str, data: Path) -> str:
    """Decide between labels and numbers by the first targets."""
    y, _ = next(source.targets(), (None, None))
    if y is None:
        raise missing_targets(data)
    return find_task(np.asarray(y), task).name


def _stream(
    batches: _Batches,
    total: int | None,
    task: str,
    options: dict[str, Any],
    model_options: dict[str, Any],
    *,
    quiet: bool,
) -> tuple[Any, StreamReport]:
    """Run a stream and show it; return the model and the report."""
    known = [count for count in (total, options["max_samples"]) if count is not None]
    model = (TraceNormClassifier if task == "classification" else TraceNormRegressor)(**model_options)
    console = rich.console.Console(quiet=quiet)
    try:
        with (
            warnings.catch_warnings(),
            progress.StreamView(console, task, _MEASURES[task], min(known, default=None)) as view,
        ):
            warnings.showwarning = one_line
            report = stream(batches, model, on_refresh=view, **options)
    except ValueError as error:
        raise MistakeError(str(error).replace("resume=True", "--resume")) from error
    console.print(progress.summary(report, _MEASURES[task]), soft_wrap=True, highlight=False)
    if report.resumed_from is not None:
        console.print(f"resumed after sample {report.resumed_from:,}", soft_wrap=True, highlight=False)
    return model, report


def stream_command(
    data: Data,
    checkpoint: Annotated[Path, typer.Option(help="Folder for checkpoints.", show_default=False)],
    target: Annotated[str, typer.Option(help="Name of the targets in the file.")] = "y",
    samples: Samples = "X",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest good checkpoint.")] = False,
    task: TaskName = "auto",
    alpha: Annotated[float, typer.Option(help="Strength of the trace norm.")] = 0.01,
    forgetting: Annotated[float, typer.Option(help="What each batch multiplies the weight of the past with.")] = 1.0,
    refresh_samples: Annotated[
        int | None, typer.Option(help="Solve again after so many samples.", show_default="1000")
    ] = None,
    refresh_seconds: Annotated[float | None, typer.Option(help="Solve again after so many seconds.")] = None,
    batch: Annotated[int, typer.Option(help="Samples that are learned at once.", min=1)] = 100,
    max_samples: Annotated[int | None, typer.Option(help="Stop after so many samples.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the model.")] = None,
    figure: Annotated[Path | None, typer.Option(help="File for a figure of the error: .png, .svg or .pdf.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the files of model and figure if they are there.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Learn from a stream of samples, and measure how well on the way.

    Every batch is predicted, then learned. Killed at any moment, it goes on with --resume as if nothing had happened.
    """
    if figure is not None:
        require("matplotlib.figure", "plot")
    check_out(out, "model", force=force)
    check_out(figure, "figure", force=force, option="--figure")
    if figure is not None and figure.suffix.lower() not in _FIGURES:
        raise MistakeError(f"Expected a figure that ends in {', '.join(_FIGURES)}, got {figure}: name it so.")
    source = open_data(data, samples, target)
    batches = _batches_of(source, batch)
    options = {
        "refresh_samples": refresh_samples,
        "refresh_seconds": refresh_seconds,
        "checkpoint": checkpoint,
        "resume": resume,
        "max_samples": max_samples,
    }
    chosen = _task_of(source, task, data)
    of_model = {"alpha": alpha, "forgetting": forgetting}
    model, report = _stream(batches, source.n_samples, chosen, options, of_model, quiet=quiet)
    try:
        if out is not None:
            files.save(model, out)
        if figure is not None:
            progress.draw_curve(report, figure, _MEASURES[chosen])
    except ValueError as error:
        raise MistakeError(str(error)) from error
    raise typer.Exit(INTERRUPTED if report.interrupted else 0)
