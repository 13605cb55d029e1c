"""What is raised for a mistake in the input, so that callers can tell it by its type from a fault of ours."""

from __future__ import annotations

__all__ = ["InputError", "refuse"]


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


def refuse(*problems: tuple[object, str]) -> None:
    """Raise the first of these sentences that applies.

    Examples
    --------
    >>> from tracelearn.errors import refuse
    >>> alpha = -1.0
    >>> refuse((alpha < 0.0, f"Expected alpha of at least 0, got {alpha}: choose a larger one."))
    Traceback (most recent call last):
    ...
    tracelearn.errors.InputError: Expected alpha of at least 0, got -1.0: choose a larger one.
    """
    for applies, sentence in problems:
        if applies:
            raise InputError(sentence)
