"""The command line: ``tracelearn COMMAND``, one module for each command."""

from __future__ import annotations

import sys

from tracelearn.cli.mistakes import INTERRUPTED, InterruptionError, MistakeError, one_line
from tracelearn.optional import MissingExtraError, require
from tracelearn.samples.undo import out_of_memory

__all__ = ["main"]


def _fail(message: str, code: int = 2) -> int:
    one_line(message)
    return code


def _run(arguments: list[str] | None) -> int:
    try:
        typer = require("typer", "cli")
        require("rich", "cli")
        from tracelearn.cli.app import make_app  # noqa: PLC0415 - all commands need both

        return int(make_app()(prog_name="tracelearn", args=arguments, standalone_mode=False) or 0)
    except (MissingExtraError, MistakeError, MemoryError) as error:
        return _fail(str(out_of_memory(error) if isinstance(error, MemoryError) else error))
    except OSError as error:
        return _fail(f"cannot use {error.filename}: {error.strerror}." if error.filename else str(error))
    except (KeyboardInterrupt, InterruptionError):
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
