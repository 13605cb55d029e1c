"""The application: all commands, and what stands before them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Annotated, Any

import typer

from tracelearn.cli.mistakes import InterruptionError, warnings_as_lines

__all__ = ["make_app"]

_COMMANDS = {
    "fit": "Fit a model to a file of samples, with a cross-validated score.",
    "predict": "Predict the samples in a file with a model.",
    "inspect": "Show a model: its parameters, its weights and its duality gap.",
    "stream": "Learn from a stream of samples, and measure the error on the way.",
    "test": "Test whether a score on held-out samples is better than chance, by permutations of the targets.",
    "compare": "Compare a model with ridge and logistic regression on flat samples, on the same folds.",
    "over-time": "Fit and score a model at each position along a mode, such as time.",
    "merge": "Merge models or moments, and remove samples that were learned.",
}
# Where a command is; the others have a module of their own name.
_PLACES = {
    "test": ("evidence", "permutation_command"),
    "compare": ("evidence", "compare_command"),
    "over-time": ("evidence", "over_time_command"),
}


def _show_version(wanted: bool) -> None:
    if wanted:
        from tracelearn import __version__

        typer.echo(f"tracelearn {__version__}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Low-rank linear models for samples that are tensors, with a proof of optimality."""


def _command(name: str) -> Callable[..., None]:
    module, function = _PLACES.get(name, (name, f"{name}_command"))
    command = getattr(import_module(f"tracelearn.cli.{module}"), function)

    @wraps(command)
    def interruptible(*args: Any, **options: Any) -> None:
        try:
            with warnings_as_lines("warning"):
                command(*args, **options)
        except KeyboardInterrupt:  # typer makes of it an exit code without a word
            raise InterruptionError from None

    return interruptible


def make_app(arguments: list[str]) -> typer.Typer:
    """Build the application; of a command that these arguments do not name, the name and a summary are enough."""
    built = typer.Typer(
        name="tracelearn", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown"
    )
    built.callback()(_common)  # with a callback, a single command stays a subcommand
    for name, summary in _COMMANDS.items():
        needed = name in arguments or "_TRACELEARN_COMPLETE" in os.environ
        built.command(name, help=summary if not needed else None)(_command(name) if needed else lambda: None)
    return built
