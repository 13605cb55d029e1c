"""Optional libraries, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["MissingExtraError", "require"]


class MissingExtraError(ImportError):
    """An optional library is not installed; the message names the extra that brings it."""


def require(module: str, extra: str) -> Any:
    """Import a module, or say in one sentence which extra to install."""
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise MissingExtraError(
            f"This needs {library}, which is not installed: pip install 'tracelearn[{extra}]'."
        ) from error
