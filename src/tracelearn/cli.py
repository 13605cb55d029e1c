"""The command line: ``tracelearn COMMAND``."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import numpy as np

from tracelearn import Moments, TraceNormClassifier, TraceNormRegressor, __version__, files, progress
from tracelearn.optional import MissingExtraError, require
from tracelearn.reproduce import figures, page
from tracelearn.reproduce.experiment import RESULTS, Reporter, load, run
from tracelearn.reproduce.settings import ALGORITHMS, OURS, SCALES, make_settings
from tracelearn.sources import open_source
from tracelearn.streams import StreamReport, first_difference, stream

__all__ = ["main"]

try:
    import rich.console
    import rich.progress
    import rich.table
    import typer
except ImportError:  # main says so in one sentence
    pass

_INTERRUPTED = 130  # what shells report of a program that Ctrl-C ended
_OUT = Path("tracelearn-reproduce")
_BUDGETS = ", ".join(f"{scale.budget:g} for {name}" for name, scale in SCALES.items())
_TITLES = {
    "data": "drawing tensors",
    OURS: f"{OURS}, all training tensors",
    "optimum": "exact optimum of the batch problem",
    "minibatch": "mini-batch study",
    "report": "figures and page",
}


class _MistakeError(Exception):
    """What the user asked for cannot be done; the message says why in one sentence."""


def _columns() -> tuple[Any, ...]:
    progress = rich.progress

    class TimeLeft(progress.ProgressColumn):
        """The expected seconds of all that is not done: the stages have budgets, so nothing needs guessing."""

        def render(self, task: rich.progress.Task) -> str:
            left = max(0.0, (task.total or 0.0) - task.completed)
            return f"{left / 60:.0f} min left" if left > 90 else f"{left:.0f} s left"

    return (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        TimeLeft(),
    )


class _Terminal(Reporter):
    """A progress bar on a terminal; elsewhere one plain line for each algorithm that has finished."""

    def __init__(self, console: rich.console.Console) -> None:
        self.console = console
        self.stages: dict[str, float] = {}
        self.done = 0.0
        self.current = ""
        self.since = 0.0
        self.bar = rich.progress.Progress(*_columns(), console=console, transient=True, disable=not console.is_terminal)
        self.task: Any = None

    def __enter__(self) -> _Terminal:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bar.stop()

    def plan(self, stages: dict[str, float]) -> None:
        self.stages = {**stages, "report": 5.0}
        self.task = self.bar.add_task("", total=sum(self.stages.values()))

    def begin(self, stage: str) -> None:
        self.current, self.since = stage, time.perf_counter()
        self.bar.update(self.task, description=_TITLES.get(stage, stage), completed=self.done)

    def advance(self, share: float) -> None:
        self.bar.update(self.task, completed=self.done + min(share, 1.0) * self.stages[self.current])

    def end(self, stage: str, outcome: dict[str, Any]) -> None:
        self.done += self.stages[stage]
        self.bar.update(self.task, completed=self.done)
        if not self.console.is_terminal and "final_accuracy" in outcome:
            self.console.print(
                f"{stage}: {outcome['seconds'][-1]:.1f} s of learning, accuracy {outcome['final_accuracy']:.3f}, "
                f"mean squared error {outcome['final_mse']:.3f}",
                soft_wrap=True,
                highlight=False,
            )


def _summary(results: dict[str, Any], files: list[Path], console: rich.console.Console) -> None:
    table = rich.table.Table(box=None, pad_edge=False)
    for heading in ("algorithm", "learning time", "accuracy", "mean squared error"):
        table.add_column(heading, justify="left" if heading == "algorithm" else "right", no_wrap=True)
    for name, curve in results["algorithms"].items():
        seconds, accuracy, mse = curve["seconds"][-1], curve["final_accuracy"], curve["final_mse"]
        table.add_row(name, f"{seconds:.1f} s", f"{100 * accuracy:.1f} %", f"{mse:.3f}")
    console.print()
    console.print(table)
    console.print()
    # One line each, whole, so that a terminal makes them links and a script can cut them out.
    kinds = {".png": "figure", ".json": "results", ".html": "the page to read"}
    for file in files:
        console.print(f"{kinds[file.suffix]}: {file}", soft_wrap=True, highlight=False)


def _report(results: dict[str, Any], out: Path) -> list[Path]:
    """Draw and write whatever the results allow; return the files, the page last."""
    if not results["algorithms"]:
        return [out / RESULTS]
    return [*figures.draw(results, out), out / RESULTS, page.write(results, out)]


def _fresh(out: Path) -> None:
    """Remove the figures and the page of an earlier run, which would contradict the new results."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (page.REPORT, *(f"{kind}.png" for kind in figures.FIGURES)):
        (out / name).unlink(missing_ok=True)


def _reproduce(options: dict[str, Any], out: Path) -> int:
    """Run the experiment and report it; return the exit code."""
    try:
        settings = make_settings(**options)
    except ValueError as error:
        raise _MistakeError(str(error)) from error
    require("matplotlib.figure", "plot")  # now, rather than after all the learning
    console = rich.console.Console()
    _fresh(out)
    try:
        with _Terminal(console) as terminal:
            results = run(settings, out, terminal)
            terminal.begin("report")
            files = _report(results, out)
    except KeyboardInterrupt:
        results = load(out)
        files = _report(results, out)
        _summary(results, files, console)
        finished = f"{len(results['algorithms'])} of {len(ALGORITHMS) + 1} algorithms had finished and are"
        print(f"Interrupted: {finished} in {out / RESULTS}.", file=sys.stderr)  # noqa: T201
        return _INTERRUPTED
    _summary(results, files, console)
    return 0


# --- streams ----------------------------------------------------------------------------------------------------------

_TASKS = ("auto", "classification", "regression")
_MEASURES = {"classification": "share of wrong labels", "regression": "mean squared error"}
_MOST_CLASSES = 20  # of whole numbers in the first batch; more are taken for numbers
_Batches = Callable[[int], Iterator[tuple[Any, Any, Any]]]


def _open_data(path: Path, samples: str, target: str, batch: int) -> _Batches:
    """Open a file of samples as a function from the first sample wanted to batches."""
    try:
        source = open_source(path, samples=samples, target=target)
    except (ValueError, OSError, ImportError) as error:
        raise _MistakeError(str(error)) from error

    def batches(start: int) -> Iterator[tuple[Any, Any, Any]]:
        for X, y, weight in source.batches(start):
            for first in range(0, len(X), batch):
                part = slice(first, first + batch)
                yield X[part], y[part], None if weight is None else weight[part]

    return batches


def _find_task(batches: _Batches, task: str) -> str:
    """Decide between labels and numbers by the first targets."""
    if task not in _TASKS:
        raise _MistakeError(f"Expected a task among {', '.join(_TASKS)}, got {task!r}.")
    if task != "auto":
        return task
    first = next(batches(0), None)
    if first is None:
        raise _MistakeError("Expected at least one sample in the data, got none.")
    y = np.asarray(first[1])
    few = y.ndim == 1 and len(np.unique(y)) <= _MOST_CLASSES
    return "classification" if y.dtype.kind in "OSUb" or (y.dtype.kind in "iu" and few) else "regression"


def _one_line(message: Warning | str, *args: Any, **options: Any) -> None:
    print(f"tracelearn: {' '.join(str(message).split())}", file=sys.stderr)  # noqa: T201


def _stream(
    batches: _Batches, task: str, options: dict[str, Any], model_options: dict[str, Any], *, quiet: bool
) -> tuple[Any, StreamReport]:
    """Run a stream and show it; return the model and the report."""
    model = (TraceNormClassifier if task == "classification" else TraceNormRegressor)(**model_options)
    console = rich.console.Console(quiet=quiet)
    try:
        with warnings.catch_warnings(), progress.StreamView(console, task, _MEASURES[task]) as view:
            warnings.showwarning = _one_line
            report = stream(batches, model, on_refresh=view, **options)
    except ValueError as error:
        raise _MistakeError(str(error).replace("resume=True", "--resume")) from error
    console.print(progress.summary(report, _MEASURES[task]), soft_wrap=True, highlight=False)
    if report.resumed_from is not None:
        console.print(f"resumed after sample {report.resumed_from:,}", soft_wrap=True, highlight=False)
    return model, report


def _stream_command(
    data: Annotated[Path, typer.Argument(help="File of samples and targets: .npz.", show_default=False)],
    checkpoint: Annotated[Path, typer.Option(help="Folder for checkpoints.", show_default=False)],
    target: Annotated[str, typer.Option(help="Name of the targets in the file.")] = "y",
    samples: Annotated[str, typer.Option(help="Name of the samples in the file.")] = "X",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest good checkpoint.")] = False,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
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
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but what went wrong.")] = False,
) -> None:
    """Learn from a stream of samples, and measure how well on the way.

    Every batch is predicted, then learned. Killed at any moment, it goes on with --resume as if nothing had happened.
    """
    require("skops.io", "files")
    if figure is not None:
        require("matplotlib.figure", "plot")
    batches = _open_data(data, samples, target, batch)
    options = {
        "refresh_samples": refresh_samples,
        "refresh_seconds": refresh_seconds,
        "checkpoint": checkpoint,
        "resume": resume,
        "max_samples": max_samples,
    }
    chosen = _find_task(batches, task)
    model, report = _stream(batches, chosen, options, {"alpha": alpha, "forgetting": forgetting}, quiet=quiet)
    try:
        if out is not None:
            files.save(model, out)
        if figure is not None:
            progress.draw_curve(report, figure, _MEASURES[chosen])
    except ValueError as error:
        raise _MistakeError(str(error)) from error
    raise typer.Exit(_INTERRUPTED if report.interrupted else 0)


# --- merging ----------------------------------------------------------------------------------------------------------


def _combine(first: Any, other: Any, path: Path, *, minus: bool) -> Any:
    """Add what another file holds to the first, or remove it."""
    if isinstance(first, Moments):
        if not isinstance(other, Moments):
            raise _MistakeError(f"Expected moments, as in the first file, got a model in {path}: name a model first.")
        return first - other if minus else first + other
    if not hasattr(first, "merge"):
        raise _MistakeError(
            f"Expected models that merge, or moments, got a {type(first).__name__}: use TraceNormRegressor or "
            "TraceNormClassifier with the squared loss."
        )
    if not isinstance(other, Moments):
        name = "its class" if type(first) is not type(other) else first_difference(first, other)
        if name is not None:
            raise _MistakeError(
                f"Expected models with equal parameters, got another {name} in {path}: merge like with like."
            )
    return first._without(other) if minus else first.merge(other)


def _merge_command(
    parts: Annotated[list[Path], typer.Argument(help="Files of models or of moments.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="File for the result, which is what the first file is.", show_default=False)
    ],
    minus: Annotated[list[Path] | None, typer.Option(help="A file to remove; may be given several times.")] = None,
) -> None:
    """Merge what several models, or moments, have learned, and remove what should be forgotten.

    The result is what one model would have learned from all samples, whose owners need not show them.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _one_line
            merged = files.load(parts[0])
            for path in parts[1:]:
                merged = _combine(merged, files.load(path), path, minus=False)
            for path in minus or []:
                merged = _combine(merged, files.load(path), path, minus=True)
        files.save(merged, out)
    except ValueError as error:
        raise _MistakeError(str(error)) from error
    weight = (merged if isinstance(merged, Moments) else merged.moments_).weight
    typer.echo(f"{type(merged).__name__} of samples of weight {weight:g}: {out}")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tracelearn {__version__}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Low-rank linear models for samples that are tensors, with a proof of optimality."""


def _reproduce_command(
    scale: Annotated[
        str, typer.Option(help="quick (about 80 seconds) or full (the paper's size, about 20 minutes).")
    ] = "quick",
    out: Annotated[Path, typer.Option(help="Folder for figures, results.json and report.html.")] = _OUT,
    budget: Annotated[
        float | None, typer.Option(help="Seconds of learning for each algorithm.", show_default=_BUDGETS)
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Tensors in a mini-batch.")] = 100,
    max_iter_per_update: Annotated[int, typer.Option(help="Iterations of an online update, at most.")] = 10,
    inner_iter_per_update: Annotated[int, typer.Option(help="Iterations of a proximal point in it, at most.")] = 5,
    max_rank: Annotated[int, typer.Option(help="Ranks are uniform from 1 to this.")] = 4,
    seed: Annotated[int, typer.Option(help="Decides the tensors and their order.")] = 0,
) -> None:
    """Repeat the paper's rank identification experiment.

    Six algorithms of the paper and ours learn to tell the rank of a tensor. Draws error and accuracy over learning
    time, and writes a page that puts every claim of the paper beside what was measured. Ctrl-C keeps what has finished.
    """
    options = {
        "scale": scale,
        "budget": budget,
        "batch_size": batch_size,
        "max_iter_per_update": max_iter_per_update,
        "inner_iter_per_update": inner_iter_per_update,
        "max_rank": max_rank,
        "seed": seed,
    }
    raise typer.Exit(_reproduce(options, out))


def _app() -> typer.Typer:
    app = typer.Typer(
        name="tracelearn",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    app.callback()(_common)  # with a callback, a single command stays a subcommand
    app.command("reproduce")(_reproduce_command)
    app.command("stream")(_stream_command)
    app.command("merge")(_merge_command)
    return app


def _fail(message: str, code: int = 2) -> int:
    print(f"tracelearn: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    return code


def _run(arguments: list[str] | None) -> int:
    try:
        require("typer", "cli")
        require("rich", "cli")
        return int(_app()(args=arguments, standalone_mode=False) or 0)
    except (MissingExtraError, _MistakeError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"cannot use {error.filename}: {error.strerror}." if error.filename else str(error))
    except KeyboardInterrupt:
        return _fail("Interrupted.", _INTERRUPTED)
    except Exception as error:
        if isinstance(error, typer.Abort):  # what becomes of a second Ctrl-C
            return _fail("Interrupted.", _INTERRUPTED)
        # Usage errors of typer, whichever click it carries: they know their sentence and their exit code.
        if getattr(error, "exit_code", None) is not None:
            told = getattr(error, "format_message", lambda: "")()
            return _fail(told, error.exit_code) if told else int(error.exit_code)  # type: ignore[attr-defined]
        raise


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code: 0, 2 for a mistake in the input, 130 after Ctrl-C."""
    sys.exit(_run(arguments))
