"""The command line: ``tracelearn COMMAND``, one module for each command.

Modules of commands import what computes where they need it, so that a mistake is reported at once.
"""

from __future__ import annotations

import sys

from tracelearn.cli.mistakes import INTERRUPTED, InterruptionError, one_line
from tracelearn.optional import MissingExtraError, check_installed

__all__ = ["main"]


def _is_interruption(error: BaseException | None) -> bool:
    """Tell whether Ctrl-C is behind an error: a file that is closed half written has an error of its own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt | InterruptionError) or type(error).__name__ == "Abort":
            return True
        error = error.__cause__ or error.__context__
    return False


def _ending(error: BaseException) -> tuple[object, int]:
    """Say how an error ends a command: with a sentence and an exit code; what is our mistake is raised again."""
    if _is_interruption(error):
        return "Interrupted.", INTERRUPTED
    if isinstance(error, MemoryError):
        from tracelearn.samples.learning import out_of_memory

        return out_of_memory(error), 2
    if isinstance(error, OSError) and error.filename:
        return f"cannot use {error.filename}: {error.strerror}.", 2
    if isinstance(error, MissingExtraError | ValueError | OSError):
        return error, 2
    if not hasattr(error, "exit_code"):
        raise error
    # Usage errors of typer, whichever click it carries: they know their sentence and their exit code.
    return getattr(error, "format_message", lambda: "")(), error.exit_code


def _run(arguments: list[str]) -> int:
    try:
        check_installed("typer", "cli")
        check_installed("rich", "cli")
        from tracelearn.cli.app import make_app

        run = make_app(arguments)
        return int(run(prog_name="tracelearn", args=list(arguments), standalone_mode=False, obj=arguments) or 0)
    except BaseException as error:
        sentence, code = _ending(error)
        if str(sentence):
            one_line(sentence)
        return code


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    0 for success, 2 for a mistake in the input, 130 after Ctrl-C; 1 where nobody reads the output any more, and with a
    traceback where the mistake is ours.
    """
    for output in (sys.stdout, sys.stderr):
        if hasattr(output, "reconfigure"):  # a locale may not be able to write a multiplication sign
            output.reconfigure(errors="backslashreplace")
    sys.exit(_run(sys.argv[1:] if arguments is None else arguments))
