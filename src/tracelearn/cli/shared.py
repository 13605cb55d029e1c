"""What commands share: mistakes, opening files, labels or numbers, tables."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn import files
from tracelearn.report.page import Origin
from tracelearn.sources import Source, open_source

try:
    import rich.console
    import rich.table
    import rich.text
    import typer
except ImportError:  # main says so in one sentence
    pass

__all__ = [
    "INTERRUPTED",
    "MistakeError",
    "Task",
    "check_out",
    "check_page",
    "command_line",
    "find_task",
    "load_file",
    "one_line",
    "open_data",
    "origin_of",
    "show_table",
    "split_names",
    "suggest_options",
]

INTERRUPTED = 130  # what shells report of a program that Ctrl-C ended
_TASKS = ("auto", "classification", "regression")
_MOST_CLASSES = 20  # of whole numbers; more are taken for numbers
_ADVICE = re.compile(r"with open_source\(path, (\w+)=\.\.\.\)")


class MistakeError(Exception):
    """What the user asked for cannot be done; the message says why in one sentence."""


def one_line(message: Warning | str, *args: Any, **options: Any) -> None:
    """Write a message as one line on the error output; it can take the place of ``warnings.showwarning``."""
    print(f"tracelearn: {' '.join(str(message).split())}", file=sys.stderr)  # noqa: T201


def suggest_options(message: str, role: str = "target") -> str:
    """Put the options of the command line in the place of the arguments that an error speaks of."""
    told = _ADVICE.sub(r"with --\1", message)
    if role != "target":
        told = told.replace("Expected target ", f"Expected {role} ").replace("--target", f"--{role}")
    return told


def open_data(path: Path, samples: str, target: str | None, role: str = "target") -> Source:
    """Open a file of samples, or say in one sentence why not."""
    try:
        return open_source(path, samples=samples, target=target)
    except (ValueError, OSError, ImportError) as error:
        raise MistakeError(suggest_options(str(error), role)) from error


def load_file(path: Path) -> Any:
    """Load a model or moments, or say in one sentence why not."""
    try:
        return files.load(path)
    except IsADirectoryError as error:
        raise MistakeError(f"Expected the file of a model, got the folder {path}: name a file in it.") from error
    except ValueError as error:
        raise MistakeError(str(error)) from error


def origin_of(path: Path, *commands: str) -> Origin:
    """Say where a model comes from: its file, and the commands that made model and page."""
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    return Origin(path.name, checksum, files.read_header(path).tracelearn, commands)


def check_out(out: Path | None, what: str, *, force: bool, option: str = "--out") -> None:
    """Refuse a place for a file before the work rather than after it; what is there is replaced only by force."""
    if out is None:
        return
    if out.is_dir():
        raise MistakeError(f"Expected a file for the {what}, got the folder {out}: name a file in it with {option}.")
    if out.exists() and not out.is_file():
        raise MistakeError(f"Expected a file for the {what}, got {out}, which is a device: name a file with {option}.")
    if out.exists() and not force:
        raise MistakeError(
            f"Expected a new file for the {what}, got {out}, which exists: name another, or add --force."
        )
    folder = out.absolute().parent
    if not folder.is_dir():
        raise MistakeError(f"Expected a file in a folder that exists, got {out}: make the folder first.")
    if not os.access(folder, os.W_OK):
        raise MistakeError(f"Expected a folder that can be written to, got {folder}: choose another with {option}.")


def check_page(html: Path | None, model: Path, *, force: bool) -> None:
    """Refuse a place for a page as ``check_out`` does, and that of the model itself whatever the force."""
    if html is not None and html.resolve() == model.resolve():
        raise MistakeError(f"Expected another file for the page than for the model, got {html}: name one with --html.")
    check_out(html, "page", force=force, option="--html")


@dataclass(frozen=True)
class Task:
    """What is to be learned, and why that was concluded."""

    name: str
    reason: str


def find_task(y: NDArray[Any], task: str) -> Task:
    """Decide between labels and numbers by the targets.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.cli.shared import find_task
    >>> find_task(np.array([0, 1, 1]), "auto")
    Task(name='classification', reason='the target is 2 different whole numbers')
    """
    if task not in _TASKS:
        raise MistakeError(f"Expected a task among {', '.join(_TASKS)}, got {task!r}: choose one of them with --task.")
    if task != "auto":
        return Task(task, f"--task {task} asks for it")
    if y.dtype.kind in "OSUTb":
        return Task("classification", "the target is truth values" if y.dtype.kind == "b" else "the target is text")
    if y.ndim > 1:
        return Task("regression", "the target is several numbers for each sample")
    count = len(np.unique(y))
    if y.dtype.kind in "iu":
        name = "classification" if count <= _MOST_CLASSES else "regression"
        return Task(name, f"the target is {count:,} different whole numbers")
    hint = " (labels? say --task classification)" if count <= _MOST_CLASSES else ""
    return Task("regression", f"the target is {count:,} different decimal numbers{hint}")


def command_line(context: typer.Context) -> str:
    """Write the command that is running, with the options that differ from their defaults."""
    words = ["tracelearn", str(context.info_name)]
    for one in context.command.params:
        value = context.params.get(str(one.name))
        if one.param_type_name == "argument":
            words.append(str(value))
        elif value is not None and value != one.default:
            words += [one.opts[0]] if value is True else [one.opts[0], str(value)]
    return shlex.join(words)


def split_names(names: str | None) -> list[str] | None:
    """Read names that are separated by commas."""
    return None if names is None else [name.strip() for name in names.split(",")]


def show_table(rows: dict[str, str], console: rich.console.Console) -> None:
    """Print names and values side by side; a value wraps within its column."""
    table = rich.table.Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, rich.text.Text(value))  # as it is: labels may contain what rich takes for markup
    console.print(table)
