"""What commands share: options in the same words, files that are read and written, names of modes, tables."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import tracelearn
from tracelearn.cli.mistakes import printable
from tracelearn.errors import refuse
from tracelearn.samples.opening import place_of

__all__ = [
    "AsJson",
    "Coordinates",
    "Html",
    "ModeNames",
    "Quiet",
    "TaskName",
    "check_apart",
    "check_file",
    "check_out",
    "components_in_words",
    "echo",
    "load_file",
    "name_modes",
    "read_alpha",
    "read_modes",
    "read_names",
    "show",
    "show_table",
    "views_in_rows",
    "write_page",
]

_MOST_NAMED = 3  # views that add nothing

# --- options ----------------------------------------------------------------------------------------------------------

TaskName = Annotated[str, typer.Option("--task", help="auto, classification or regression.")]
Html = Annotated[
    Path | None, typer.Option(help="File for a page about the model, to open in a browser.", show_default=False)
]
ModeNames = Annotated[
    str | None,
    typer.Option(help="Names of the modes, such as 'channel,time (s)', for table and page.", show_default=False),
]
Coordinates = Annotated[
    list[str] | None,
    typer.Option(
        help="Coordinates of a mode by its name, from first to last, time=-0.2:0.8, or one by one, channel=C3,Cz,C4.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the facts as one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors and warnings.")]

# --- files ------------------------------------------------------------------------------------------------------------


def check_file(path: Path) -> None:
    """Refuse what is no file of ours, before what reads models is imported."""
    from tracelearn.files.header import read_header

    refuse(path.is_dir(), f"Expected the file of a model, got the folder {path}: name a file in it.")
    refuse(not path.exists(), f"Expected the file of a model, got {path}, which does not exist: check it.")
    read_header(path)


def load_file(path: Path) -> Any:
    """Load a model or moments, or say in one sentence why not."""
    check_file(path)
    return tracelearn.load(path)


def check_apart(out: Path, what: str, option: str, inputs: Iterable[str | Path | None]) -> None:
    """Refuse an output that is an input by whatever name, or lies in a folder that is one.

    An input is a path, or what an option says: names of what is in a file, or of other files, as in y.csv:label.
    """
    for given in _files(inputs):
        within = given.is_dir() and out.resolve().is_relative_to(given.resolve())
        same = out.exists() and given.exists() and os.path.samefile(out, given)
        where = f"in the folder {given}" if within else f"the same as {given}"
        refuse(
            within or same or out.resolve() == given.resolve(),
            f"Expected another file or folder for the {what} than those of the command, got {out}, which is {where}: name one "
            f"with {option}.",
        )


def _files(inputs: Iterable[str | Path | None]) -> Iterator[Path]:
    """Find the files of this machine among inputs."""
    for one in inputs:
        if isinstance(one, Path):
            yield one
        elif one is not None:
            names = {
                part for name in (one, *one.split(",")) for part in (name.strip(), name.strip().rpartition(":")[0])
            }
            places = (place_of(name) for name in names if name)
            yield from (place for place in places if isinstance(place, Path) and place.exists())


def check_out(
    out: Path | None, what: str, *, force: bool, option: str = "--out", inputs: Iterable[str | Path | None] = ()
) -> None:
    """Refuse a place for a file before the work rather than after it; what is there is replaced only by force."""
    if out is None:
        return
    check_apart(out, what, option, inputs)
    folder, a_file = out.absolute().parent, f"Expected a file for the {what}, got"
    refuse(out.is_dir(), f"{a_file} the folder {out}: name a file in it with {option}.")
    refuse(out.exists() and not out.is_file(), f"{a_file} {out}, which is a device: name a file with {option}.")
    refuse(
        out.exists() and not force,
        f"Expected a new file for the {what}, got {out}, which exists: name another, or add --force.",
    )
    refuse(not folder.is_dir(), f"Expected a file in a folder that exists, got {out}: make the folder first.")
    refuse(
        not os.access(folder, os.W_OK),
        f"Expected a folder that can be written to, got {folder}: choose another with {option}.",
    )


def write_page(html: Path, facts: Any, evaluation: Any, model: Path, context: typer.Context) -> None:
    """Write the page of a model, which says where it comes from: its file, and the command that made the page."""
    from tracelearn.files.header import read_header
    from tracelearn.files.models import write_atomically
    from tracelearn.report.page import render

    page = render(
        facts,
        evaluation,
        file=printable(model.name),
        sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
        written_by=read_header(model).tracelearn,
        command=printable(shlex.join(["tracelearn", *context.obj])),
    )
    write_atomically(html, page.encode("utf-8", "backslashreplace"))


def read_alpha(text: str) -> float | None:
    """Read the strength of the norm; None where it is to be chosen."""
    if text == "auto":
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    refuse(
        not 0.0 <= value < math.inf, f"Expected 'auto' or a number of at least 0 for --alpha, got {text!r}: correct it."
    )
    return value


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
    wanted = "one name" if len(shape) == 1 else f"{len(shape)} different names, separated by commas,"
    refuse(
        len(names) != len(shape) or len(set(names)) != len(names) or not all(names),
        f"Expected {wanted} for samples of shape {' × '.join(map(str, shape))}, got {text!r}: correct --mode-names.",
    )
    return names


def mode_number(text: str, modes: Any, option: str, *, first: int = 0) -> int:
    """Read which mode is meant, by its number or by its name; ``first`` is the number of the first one.

    Examples
    --------
    >>> from tracelearn.cli.shared import mode_number, read_modes
    >>> modes = read_modes("channel, time (s)", None, (2, 3))
    >>> mode_number("time", modes, "--time-axis"), mode_number("-1", modes, "--time-axis")
    (1, -1)
    """
    names = [mode.name for mode in modes or ()]
    is_number = re.fullmatch(r"-?\d+", text) is not None
    shown = ", ".join(names) or "they have none"
    refuse(
        not is_number and text not in names,
        f"Expected a number or the name of a mode ({shown}) for {option}, got {text!r}: correct it.",
    )
    return int(text) if is_number else first + names.index(text)


def read_modes(mode_names: str | None, coordinates: list[str] | None, shape: Sequence[int], known: Any = None) -> Any:
    """Read names, units and coordinates of modes; what is not given stays what the file says, ``known``.

    Examples
    --------
    >>> from tracelearn.cli.shared import read_modes
    >>> channel, time = read_modes("channel, time (s)", ["time=0:0.2", "channel=C3,C4"], (2, 3))
    >>> channel.values.tolist(), time.values.tolist(), time.label
    (['C3', 'C4'], [0.0, 0.1, 0.2], 'time (s)')
    """
    from tracelearn.samples.modes import Mode, fit_modes

    names = read_names(mode_names, shape)
    refuse(bool(coordinates) and names is None, "Expected --mode-names with --coordinates, got none: name the modes.")
    if names is None:
        return known
    kept = known if fit_modes(known, tuple(shape)) else [Mode("", np.arange(size)) for size in shape]
    parts = [re.fullmatch(r"(.+?)\s*(?:\((.+)\))?", name) for name in names]
    found = {
        one[1]: replace(mode, name=one[1], unit=one[2] or mode.unit)
        for one, mode in zip(parts, kept, strict=True)
        if one
    }
    refuse(len(found) < len(names), f"Expected different names of modes, got {mode_names!r}: correct --mode-names.")
    for text in coordinates or ():
        name, _, given = text.partition("=")
        sentence = f"Expected coordinates of a mode, such as time=0:1, for --coordinates, got {text!r}: "
        refuse(name not in found, f"{sentence}begin with a name among {', '.join(found)}.")
        mode = found[name]
        try:
            ends = [float(end) for end in given.split(":")] if ":" in given else []
            values = np.linspace(ends[0], ends[1], len(mode.values)) if len(ends) == 2 else _values(given)
        except ValueError:
            values = np.zeros(0)
        refuse(
            values.shape != mode.values.shape,
            f"{sentence}give first:last, or one for each of {len(mode.values)} entries.",
        )
        found[name] = replace(mode, values=values)
    return tuple(found.values())


def _values(text: str) -> NDArray[Any]:
    """Read coordinates that are separated by commas, as numbers where all are."""
    entries = [entry.strip() for entry in text.split(",")]
    try:
        return np.array([float(entry) for entry in entries])
    except ValueError:
        return np.array(entries)


def name_modes(model: Any, modes: Any) -> None:
    """Let a fitted model know what the modes of its samples are called."""
    model.modes_ = modes
    if getattr(model, "features_", model) is None:
        model.best_estimator_.modes_ = modes


def echo(text: str, *, err: bool = False) -> None:
    """Print a line."""
    typer.echo(printable(text), err=err)


def show(facts: dict[str, Any], rows: dict[str, str], *, as_json: bool, quiet: bool = False) -> None:
    """Print what was found: for programs as one line of JSON, for people as a table."""
    if quiet:
        return
    if as_json:
        typer.echo(json.dumps(facts, default=str))
    else:
        show_table(rows)


def show_table(rows: dict[str, str]) -> None:
    """Print names and values side by side, without those that are empty; a value wraps within its column."""
    from rich import console, table, text

    lines = table.Table(box=None, pad_edge=False, show_header=False)
    lines.add_column(no_wrap=True, style="bold")
    lines.add_column(overflow="fold")
    for name, value in rows.items():
        if value:
            # Names and labels may contain what rich takes for markup.
            lines.add_row(text.Text(printable(name)), text.Text(printable(value)))
    console.Console().print(lines)


def components_in_words(facts: dict[str, Any]) -> str:
    """Say how many components of each mode carry nearly all of the weights.

    Views have rows of their own that say it, and weights of flat samples have no components.

    Examples
    --------
    >>> from tracelearn.cli.shared import components_in_words
    >>> components_in_words({"components": [1, 2], "mode_names": ["channel", "time"], "views": []})
    '1 component of channel and 2 of time carry 99 %'
    """
    from tracelearn.plotting.views import counted

    counts = facts["components"]
    none = facts["views"] or len(counts) == 1 or not any(counts)
    return "" if none else counted("component", "of", counts, facts["mode_names"])


def views_in_rows(views: list[dict[str, Any]]) -> dict[str, str]:
    """Write a row for each view of a model, and one for the views that were tried and left out.

    Examples
    --------
    >>> from tracelearn.cli.shared import views_in_rows
    >>> views_in_rows([{"view": "second order", "share": 0.9, "found": "2 sources carry 99 %"}])
    {'second order': 'share 0.90; 2 sources carry 99 %'}
    >>> views_in_rows([{"view": name, "share": 0.0, "found": ""} for name in ("raw", "whitened")])
    {'left out (share)': 'raw, whitened (0.00)'}
    """
    shares = ["" if one["share"] is None else f"{one['share']:.2f}" for one in views]
    pairs = list(zip(views, shares, strict=True))
    rows = {
        one["view"]: f"share {share}; {one['found']}" if share else one["found"] for one, share in pairs if one["found"]
    }
    left = [(one["view"], share) for one, share in pairs if not one["found"]]
    shown = [f"{view} ({share})" for view, share in left if share != "0.00"]
    none = [view for view, share in left if share == "0.00"]
    if len(none) > _MOST_NAMED:
        shown.append(f"{len(none)} others (0.00)")
    elif none:
        shown.append(f"{', '.join(none)} (0.00)")
    return rows | ({"left out (share)": "; ".join(shown)} if shown else {})
