"""``tracelearn stream``: learning from a stream, with checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import tracelearn
from tracelearn.cli import progress
from tracelearn.cli.mistakes import INTERRUPTED, warnings_as_lines
from tracelearn.cli.shared import (
    Data,
    Input,
    Quiet,
    Samples,
    TaskName,
    as_text,
    check_apart,
    check_out,
    echo,
    missing_targets,
    read_format,
    takes,
)
from tracelearn.errors import refuse
from tracelearn.optional import check_installed

__all__ = ["stream_command"]

_MEASURES = {"classification": "share of wrong labels", "regression": "mean squared error"}
_FIGURES = (".png", ".svg", ".pdf")


def _batches_of(source: Any, batch: int) -> Callable[[int], Iterator[tuple[Any, Any, Any]]]:
    """Make a function that begins a source at any sample, and yields batches of a size."""

    def batches(start: int) -> Iterator[tuple[Any, Any, Any]]:
        for X, y, weight in source.batches(start):
            for first in range(0, len(X), batch):
                rows = slice(first, first + batch)
                yield X[rows], as_text(np.asarray(y[rows])), None if weight is None else weight[rows]

    return batches


def _task_of(source: Any, task: str, data: str) -> str:
    """Decide between labels and numbers by the first targets."""
    from tracelearn.cli.learning import check_labels, find_task

    y, _ = next(source.targets(), (None, None))
    if y is None:
        raise missing_targets(data)
    chosen = find_task(np.asarray(y), task)
    if chosen.is_classification:
        check_labels(np.asarray(y))
    return chosen.name


@takes(file_format=read_format)
def stream_command(
    data: Data,
    checkpoint: Annotated[Path, typer.Option(help="Folder for checkpoints.", show_default=False)],
    target: Annotated[str, typer.Option(help="Name of the targets in the file.")] = "y",
    samples: Samples = "X",
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest intact checkpoint.")] = False,
    task: TaskName = "auto",
    alpha: Annotated[float, typer.Option(help="Strength of the trace norm.")] = 0.01,
    forgetting: Annotated[float, typer.Option(help="Factor for the weight of earlier samples at each batch.")] = 1.0,
    refresh_samples: Annotated[
        int | None, typer.Option(help="Solve again after so many samples.", show_default="1000")
    ] = None,
    refresh_seconds: Annotated[float | None, typer.Option(help="Solve again after so many seconds.")] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Write a checkpoint at a refresh if the last is so old.", min=0.0)
    ] = 30.0,
    batch: Annotated[int, typer.Option(help="Samples that are learned at once.", min=1)] = 100,
    max_samples: Annotated[int | None, typer.Option(help="Stop after so many samples.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the model.")] = None,
    figure: Annotated[Path | None, typer.Option(help="File for a figure of the error: .png, .svg or .pdf.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the files of model and figure if they are there.")
    ] = False,
    quiet: Quiet = False,
    *,
    file_format: dict[str, Any],
) -> None:
    """Learn from a stream of samples, and measure the error on the way.

    Every batch is predicted, then learned. Killed at any moment, it goes on with --resume as if nothing had happened.
    """
    if figure is not None:
        check_installed("matplotlib", "plot")
    check_installed("filelock", "stream")
    inputs = Input(data, samples, target, file_format)
    check_apart(checkpoint, "checkpoints", "--checkpoint", inputs.files)
    check_out(out, "model", force=force, inputs=inputs.files)
    check_out(figure, "figure", force=force, option="--figure", inputs=(*inputs.files, out))
    refuse(
        figure is not None and figure.suffix.lower() not in _FIGURES,
        f"Expected a figure that ends in {', '.join(_FIGURES)}, got {figure}: name it so.",
    )
    source = inputs.open()
    chosen = _task_of(source, task, data)
    kind = tracelearn.TraceNormClassifier if chosen == "classification" else tracelearn.TraceNormRegressor
    model, console = kind(alpha=alpha, forgetting=forgetting), Console(quiet=quiet)
    from tracelearn.io.checkpoints import checkpoints_in  # what computes is imported where all else is checked

    if resume and not quiet and not checkpoints_in(checkpoint):
        echo(f"no checkpoint in {checkpoint}: starting from the first sample")
    total = min((count for count in (source.n_samples, max_samples) if count is not None), default=None)
    with warnings_as_lines("the stream"), progress.stream_view(console, chosen, _MEASURES[chosen], total) as view:
        report = tracelearn.stream(
            _batches_of(source, batch),
            model,
            refresh_samples=refresh_samples,
            refresh_seconds=refresh_seconds,
            checkpoint=checkpoint,
            checkpoint_seconds=checkpoint_seconds,
            resume=resume,
            max_samples=max_samples,
            on_refresh=view,
        )
    lines = [progress.summary(report, _MEASURES[chosen])]
    if report.resumed_from is not None:
        lines.append(f"resumed after sample {report.resumed_from:,}")
    console.print("\n".join(lines), soft_wrap=True, highlight=False)
    if out is not None:
        tracelearn.save(model, out)
    if figure is not None:
        progress.draw_curve(report, figure, _MEASURES[chosen])
    raise typer.Exit(INTERRUPTED if report.interrupted else 0)
