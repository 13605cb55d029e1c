"""The command line: ``tracelearn COMMAND``, one module for each command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated

from tracelearn import __version__
from tracelearn.cli.fit import fit_command
from tracelearn.cli.inspect import inspect_command
from tracelearn.cli.merge import merge_command
from tracelearn.cli.predict import predict_command
from tracelearn.cli.reproduce import reproduce_command
from tracelearn.cli.shared import INTERRUPTED, MistakeError, one_line
from tracelearn.cli.stream import stream_command
from tracelearn.optional import MissingExtraError, require
from tracelearn.undo import out_of_memory

try:
    import typer
except ImportError:  # main says so in one sentence
    pass

__all__ = ["app", "main"]

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


class _InterruptedError(Exception):
    """Ctrl-C ended a command."""


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Let Ctrl-C be told in a line: typer makes of it an exit code without a word."""

    @wraps(command)
    def interruptible(*args: object, **options: object) -> None:
        try:
            command(*args, **options)
        except KeyboardInterrupt:
            raise _InterruptedError from None

    return interruptible


def app() -> typer.Typer:
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


def _fail(message: str, code: int = 2) -> int:
    one_line(message)
    return code


def _run(arguments: list[str] | None) -> int:
    try:
        require("typer", "cli")
        require("rich", "cli")
        return int(app()(prog_name="tracelearn", args=arguments, standalone_mode=False) or 0)
    except (MissingExtraError, MistakeError, MemoryError) as error:
        return _fail(str(out_of_memory(error) if isinstance(error, MemoryError) else error))
    except OSError as error:
        return _fail(f"cannot use {error.filename}: {error.strerror}." if error.filename else str(error))
    except (KeyboardInterrupt, _InterruptedError):
        return _fail("Interrupted.", INTERRUPTED)
    except Exception as error:
        if isinstance(error, typer.Abort):  # what becomes of a second Ctrl-C
            return _fail("Interrupted.", INTERRUPTED)
        # Usage errors of typer, whichever click it carries: they know their sentence and their exit code.
        if getattr(error, "exit_code", None) is not None:
            told = getattr(error, "format_message", lambda: "")()
            return _fail(told, error.exit_code) if told else int(error.exit_code)  # type: ignore[attr-defined]
        raise


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    0 for success, 2 for a mistake in the input, 130 after Ctrl-C; 1 where nobody reads the output any more, and with a
    traceback where the mistake is ours.
    """
    sys.exit(_run(arguments))
