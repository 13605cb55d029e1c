"""One file for each question; every one has a ``TITLE`` and ``ask(quick) -> list[Row]``, and runs in its own process.

They are found by their names, in the order of these: a new file is a new question.
"""

import importlib
import pkgutil
from types import ModuleType

from benchmarks.harness import Row


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


def ask(name: str, quick: bool) -> list[Row]:
    rows: list[Row] = find(name).ask(quick)
    return rows
