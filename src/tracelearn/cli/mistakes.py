"""How commands end that do not end well; known before typer is."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["INTERRUPTED", "InterruptionError", "MistakeError", "one_line"]

INTERRUPTED = 130  # what shells report of a program that Ctrl-C ended


class MistakeError(Exception):
    """What the user asked for cannot be done; the message says why in one sentence."""


class InterruptionError(Exception):
    """Ctrl-C ended a command."""


def one_line(message: Warning | str, *args: Any, **options: Any) -> None:
    """Write a message as one line on the error output; it can take the place of ``warnings.showwarning``."""
    print(f"tracelearn: {' '.join(str(message).split())}", file=sys.stderr)  # noqa: T201
