"""Messages, warnings and exit codes of commands; typer is not needed for them, so that they are there before it is imported."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "INTERRUPTED",
    "InterruptionError",
    "as_option",
    "one_line",
    "printable",
    "warnings_as_lines",
]

INTERRUPTED = 130  # what shells report of a program that Ctrl-C ended


_ADVICE = re.compile(r"(?<=with )open_source\(path, (\w+)=\.\.\.\)|(?<=increase )(max_iter)")


class InterruptionError(Exception):
    """Ctrl-C ended a command."""


def printable(text: object) -> str:
    r"""Escape control sequences and what a terminal cannot show: labels and names of files may come from anybody.

    Examples
    --------
    >>> from tracelearn.cli.mistakes import printable
    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(text))


def as_option(sentence: str) -> str:
    """Write advice for Python as an option of the command line.

    Examples
    --------
    >>> from tracelearn.cli.mistakes import as_option
    >>> as_option("leave it out with open_source(path, ignore=...).")
    'leave it out with --ignore.'
    >>> as_option("increase max_iter, or scale the features.")
    'increase --max-iter, or scale the features.'
    """
    return _ADVICE.sub(lambda found: f"--{(found[1] or found[2]).replace('_', '-')}", sentence)


def one_line(message: object) -> None:
    """Write a message as one line on the error output."""
    print(f"tracelearn: {printable(' '.join(str(message).split()))}", file=sys.stderr)  # noqa: T201


@contextmanager
def warnings_as_lines(about: str) -> Iterator[None]:
    """Write warnings as lines, each after a few words on what it is about, such as "the fit to all samples"."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *args, **options: one_line(as_option(f"{about}: {message}"))
        yield
