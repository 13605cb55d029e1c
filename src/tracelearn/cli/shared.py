"""What commands share: opening files, labels or numbers, names of modes, tables."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rich.console
import rich.table
import rich.text
import typer
from numpy.typing import NDArray

from tracelearn.cli.mistakes import MistakeError
from tracelearn.files import models as files
from tracelearn.report.page import Origin
from tracelearn.samples import Source, open_source

__all__ = [
    "Task",
    "check_out",
    "check_page",
    "command_line",
    "find_task",
    "load_file",
    "missing_targets",
    "open_data",
    "origin_of",
    "read_names",
    "show_table",
    "suggest_options",
]

_TASKS = ("auto", "classification", "regression")
_MOST_CLASSES = 20  # of whole numbers; more are taken for numbers
_ADVICE = re.compile(r"with open_source\(path, (\w+)=\.\.\.\)")


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


def missing_targets(data: Path) -> MistakeError:
    """Say that a file has samples alone."""
    return MistakeError(
        f"Expected targets beside the samples, got {data}, which has none: name another file with --target."
    )


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


def read_names(text: str | None, shape: Sequence[int]) -> list[str] | None:
    """Read names of modes that are separated by commas, one for each mode of samples of a shape.

    Examples
    --------
    >>> from tracelearn.cli.shared import read_names
    >>> read_names("channel, time", (8, 100))
    ['channel', 'time']
    """
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if len(names) != len(shape) or len(set(names)) != len(names) or not all(names):
        told = "one name" if len(shape) == 1 else f"{len(shape)} different names, separated by commas,"
        raise MistakeError(
            f"Expected {told} for samples of shape {' × '.join(map(str, shape))}, got {text!r}: correct --mode-names."
        )
    return names


def show_table(rows: dict[str, str], console: rich.console.Console) -> None:
    """Print names and values side by side; a value wraps within its column."""
    table = rich.table.Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, rich.text.Text(value))  # as it is: labels may contain what rich takes for markup
    console.print(table)
