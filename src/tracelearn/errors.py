"""What is raised for a mistake in the input, so that callers can tell it by its type from a fault of ours."""

from __future__ import annotations

__all__ = ["InputError"]


class InputError(ValueError):
    """What was passed cannot be used; the message is one sentence: what was expected, what came, what to do.

    Examples
    --------
    >>> from tracelearn.errors import InputError
    >>> try:
    ...     raise InputError("Expected alpha of at least 0, got -1: choose a larger one.")
    ... except ValueError as error:
    ...     print(error)
    Expected alpha of at least 0, got -1: choose a larger one.
    """
