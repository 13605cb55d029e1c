"""``tracelearn reproduce``: the paper's experiment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import rich.console
import rich.table
import typer

from tracelearn.cli.mistakes import INTERRUPTED
from tracelearn.cli.progress import Bar
from tracelearn.cli.shared import Quiet
from tracelearn.errors import InputError, refuse
from tracelearn.optional import require
from tracelearn.paper.estimators import ALGORITHMS
from tracelearn.paper.reproduce import figures, page
from tracelearn.paper.reproduce.experiment import RESULTS, load, run
from tracelearn.paper.reproduce.settings import OURS, SCALES, make_settings

__all__ = ["reproduce_command"]

_OUT = Path("tracelearn-reproduce")
_BUDGETS = ", ".join(f"{scale['budget']:g} for {name}" for name, scale in SCALES.items())
_TITLES = {
    "data": "drawing tensors",
    OURS: f"{OURS}, all training tensors",
    "optimum": "exact optimum of the batch problem",
    "minibatch": "mini-batch study",
}
# Where there is no bar, one plain line for each algorithm that has finished.
_FINISHED = "{}: {:.1f} s of learning, accuracy {final_accuracy:.3f}, mean squared error {final_mse:.3f}"


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
        _print(console, f"{kinds[file.suffix]}: {file}")


def _print(console: rich.console.Console, line: str) -> None:
    console.print(line, soft_wrap=True, highlight=False)


def _report(results: dict[str, Any], out: Path) -> list[Path]:
    """Draw and write whatever the results allow; return the files, the page last."""
    if not results["algorithms"]:
        return [out / RESULTS]
    return [*figures.draw(results, out), out / RESULTS, page.write(results, out)]


def _fresh(out: Path, *, force: bool) -> None:
    """Remove, by force, the figures and the page of an earlier run, which would contradict the new results."""
    refuse(
        (out / RESULTS).exists() and not force,
        f"Expected a folder without results, got {out} with those of an earlier run: name another, or add --force.",
    )
    out.mkdir(parents=True, exist_ok=True)
    for name in (page.REPORT, *(f"{kind}.png" for kind in figures.FIGURES)):
        (out / name).unlink(missing_ok=True)


def _reproduce(options: dict[str, Any], out: Path, *, force: bool, quiet: bool) -> int:
    """Run the experiment and report it; return the exit code."""
    try:
        settings = make_settings(**options)
    except ValueError as error:
        raise InputError(str(error)) from error
    require("matplotlib.figure", "plot")  # now, rather than after all the learning
    console = rich.console.Console(quiet=quiet)
    _fresh(out, force=force)
    try:
        with Bar(console) as bar:

            def show(stage: str, done: float, total: float, outcome: dict[str, Any]) -> None:
                bar.show(_TITLES.get(stage, stage), done, total)
                if not bar.is_shown and "final_accuracy" in outcome:
                    _print(console, _FINISHED.format(stage, outcome["seconds"][-1], **outcome))

            results = run(settings, out, show)
            bar.show("figures and page")
            files = _report(results, out)
    except KeyboardInterrupt:
        results = load(out)
        files = _report(results, out)
        _summary(results, files, console)
        finished = f"{len(results['algorithms'])} of {len(ALGORITHMS) + 1} algorithms had finished and are"
        print(f"Interrupted: {finished} in {out / RESULTS}.", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    _summary(results, files, console)
    return 0


def reproduce_command(
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
    force: Annotated[bool, typer.Option("--force", help="Replace the results of an earlier run.")] = False,
    quiet: Quiet = False,
) -> None:
    """Repeat the paper's rank identification experiment.

    Six algorithms of the paper and ours learn to tell the rank of a tensor. Draws error and accuracy over learning
    time, and writes a page that puts every claim of the paper next to what was measured. Ctrl-C keeps what has finished.
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
    raise typer.Exit(_reproduce(options, out, force=force, quiet=quiet))
