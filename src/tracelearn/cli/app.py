"""The application: all commands, and what stands before them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated

import typer

from tracelearn import __version__
from tracelearn.cli.fit import fit_command
from tracelearn.cli.inspect import inspect_command
from tracelearn.cli.merge import merge_command
from tracelearn.cli.mistakes import InterruptionError
from tracelearn.cli.predict import predict_command
from tracelearn.cli.reproduce import reproduce_command
from tracelearn.cli.stream import stream_command

__all__ = ["make_app"]

_COMMANDS: dict[str, Callable[..., None]] = {
    "fit": fit_command,
    "predict": predict_command,
    "inspect": inspect_command,
    "reproduce": reproduce_command,
    "stream": stream_command,
    "merge": merge_command,
}


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


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Let Ctrl-C be told in a line: typer makes of it an exit code without a word."""

    @wraps(command)
    def interruptible(*args: object, **options: object) -> None:
        try:
            command(*args, **options)
        except KeyboardInterrupt:
            raise InterruptionError from None

    return interruptible


def make_app() -> typer.Typer:
    """Build the application with all commands."""
    built = typer.Typer(
        name="tracelearn",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    built.callback()(_common)  # with a callback, a single command stays a subcommand
    for name, command in _COMMANDS.items():
        built.command(name)(_interruptible(command))
    return built
