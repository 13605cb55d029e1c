"""Optional libraries, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["MissingExtraError", "check_installed", "require"]


class MissingExtraError(ImportError):
    """An optional library is not installed; the message names the extra that brings it."""


def _missing(library: str, extra: str) -> MissingExtraError:
    return MissingExtraError(f"This needs {library}, which is not installed: pip install 'tracelearn[{extra}]'.")


def check_installed(library: str, extra: str) -> None:
    """Say in one sentence which extra to install where a library is missing, without the time that importing it takes."""
    if find_spec(library) is None:
        raise _missing(library, extra)


def require(module: str, extra: str) -> Any:
    """Import a module, or say in one sentence which extra to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise _missing((error.name or module).partition(".")[0], extra) from error
