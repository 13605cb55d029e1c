"""One file for each library that can state the problem; they are found by their names, so a new file is a new entry.

A file says with ``FAMILY`` whose solvers it holds and with ``NAMES`` what they are called. ``cannot(problem, name)``
says in a sentence why a solver cannot state a problem, or nothing where it can. ``run(problem, name, watch)`` starts
from the samples, as our fit does, and shows its iterates to ``watch``, which stops the clock meanwhile and raises
``Stop`` when it has seen enough. A solver that shows no iterates is run to several tolerances, each time with
``watch.restart()``. What ``prepare(problem, watch)`` does, in a file that has one, is not timed.
"""

import importlib
import pkgutil
from types import ModuleType


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
