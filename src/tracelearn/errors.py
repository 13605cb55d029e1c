"""What is raised for a mistake in the input, so that callers can tell it by its type from a fault of ours; and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from types import FrameType
from typing import Any

__all__ = ["InputError", "brief", "check_name_is_free", "expect", "refuse", "warn"]

_LONGEST = 120  # characters of what was passed that a sentence repeats
_PASSED_OVER = ("tracelearn", "sklearn", "joblib")  # scikit-learn calls our methods for the user


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


def refuse(applies: object, sentence: str) -> None:
    """Raise a sentence where it applies.

    Examples
    --------
    >>> from tracelearn.errors import refuse
    >>> alpha = -1.0
    >>> refuse(alpha < 0.0, f"Expected alpha of at least 0, got {alpha}: choose a larger one.")
    Traceback (most recent call last):
    ...
    tracelearn.errors.InputError: Expected alpha of at least 0, got -1.0: choose a larger one.
    """
    if applies:
        raise InputError(sentence)


def expect(good: object, otherwise: str) -> None:
    """Refuse what a file holds if it is not good; whoever opened the file says it in a sentence."""
    if not good:
        raise ValueError(otherwise)


def brief(value: object) -> str:
    """Write what was passed into a sentence, on one line: an array or a model that took the place of a name is not printed whole.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.errors import brief
    >>> brief("overlaped"), brief(np.zeros((90, 3, 4)))
    ("'overlaped'", 'ndarray of shape (90, 3, 4)')
    """
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{type(value).__name__} of shape {shape}"
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def check_name_is_free(registry: Mapping[str, type], cls: Any, kind: str) -> None:
    """Refuse a class whose ``name`` another class of its kind has: it would take the place of that one everywhere.

    A class that is defined once more, as when a cell of a notebook runs again, replaces itself.
    """
    taken = registry.get(cls.name)
    if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InputError(
            f"Expected {kind} with a name of its own, got {cls.name!r}, which {taken.__module__}.{taken.__qualname__} "
            f"has: choose another name for {cls.__qualname__}."
        )


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of something at the line of the user's that led to it, however deep in the package it was noticed."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
