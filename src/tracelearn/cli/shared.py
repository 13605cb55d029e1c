"""What commands share: options in the same words, files that are read and written, names of modes, tables."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import update_wrapper
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import tracelearn
from tracelearn.cli.mistakes import as_option, printable
from tracelearn.errors import InputError, refuse
from tracelearn.io.model_header import read_header
from tracelearn.io.places import place_of

__all__ = [
    "AsJson",
    "Confounds",
    "Coordinates",
    "Data",
    "Groups",
    "Html",
    "Input",
    "ModeNames",
    "Quiet",
    "Samples",
    "Target",
    "TaskName",
    "aligns_by_group",
    "as_text",
    "blame_file",
    "check_apart",
    "check_file",
    "check_out",
    "components_in_words",
    "echo",
    "load_file",
    "make_model",
    "missing_targets",
    "read_alpha",
    "read_format",
    "read_input",
    "read_modes",
    "read_names",
    "show",
    "takes",
    "targets_of",
    "views_in_rows",
    "write_page",
]

_MOST_NAMED = 3  # views that add nothing
_FORMAT = "Format of the file"  # where help shows the options of reading

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
    """Refuse a path that is no file of this package, before the modules that read models are imported."""
    refuse(path.is_dir(), f"Expected the file of a model, got the folder {path}: name a file in it.")
    refuse(not path.exists(), f"Expected the file of a model, got {path}, which does not exist: check it.")
    read_header(path)


def load_file(path: Path) -> Any:
    """Load a model or moments, or say in one sentence why not."""
    check_file(path)
    return tracelearn.load(path)


@contextmanager
def blame_file(path: Path) -> Iterator[None]:
    """Turn an error of a loaded model into one sentence that names its file: a forged file may hold anything."""
    try:
        yield
    except (ImportError, MemoryError, OSError):
        raise
    except Exception as error:
        is_of_samples = isinstance(error, ValueError) and str(error).startswith(("Expected", "X has"))
        if is_of_samples:  # the words of this package and of scikit-learn
            raise
        cause = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise InputError(
            f"Expected a model as save writes it, got one in {path} that cannot be used ({cause}): use another file, or, if "
            "save wrote this one, report it."
        ) from error


def check_apart(out: Path, what: str, option: str, inputs: Iterable[str | Path | None]) -> None:
    """Refuse an output that is an input by whatever name, or lies in a folder that is one.

    An input is a path, or what an option says: names of what is in a file, or of other files, as in y.csv:label.
    """
    for file in _files(inputs):
        within = file.is_dir() and out.resolve().is_relative_to(file.resolve())
        same = out.exists() and file.exists() and os.path.samefile(out, file)
        where = f"in the folder {file}" if within else f"the same as {file}"
        refuse(
            within or same or out.resolve() == file.resolve(),
            f"Expected another file or folder for the {what} than those of the command, got {out}, which is {where}: name one "
            f"with {option}.",
        )


def _files(inputs: Iterable[str | Path | None]) -> Iterator[Path]:
    """Find the files of this machine among inputs."""
    for path_or_option in inputs:
        if isinstance(path_or_option, Path):
            yield path_or_option
        elif path_or_option is not None:
            values = {value.strip() for value in (path_or_option, *path_or_option.split(","))}
            names = values | {value.rpartition(":")[0] for value in values}  # y.csv of y.csv:label
            places = (place_of(name) for name in names if name)
            yield from (place for place in places if isinstance(place, Path) and place.exists())


def check_out(
    out: Path | None, what: str, *, force: bool, option: str = "--out", inputs: Iterable[str | Path | None] = ()
) -> None:
    """Refuse a place for a file before the work rather than after it; what is there is replaced only by force."""
    if out is None:
        return
    check_apart(out, what, option, inputs)
    folder = out.absolute().parent
    expected_file = f"Expected a file for the {what}, got"
    refuse(out.is_dir(), f"{expected_file} the folder {out}: name a file in it with {option}.")
    refuse(out.exists() and not out.is_file(), f"{expected_file} {out}, which is a device: name a file with {option}.")
    refuse(
        out.exists() and not force,
        f"Expected a new file for the {what}, got {out}, which exists: name another, or add --force.",
    )
    refuse(not folder.is_dir(), f"Expected a file in a folder that exists, got {out}: make the folder first.")
    refuse(
        not os.access(folder, os.W_OK),
        f"Expected a folder that can be written to, got {folder}: choose another with {option}.",
    )


def write_page(html: Path, model: Any, file: Path, context: typer.Context, **options: Any) -> None:
    """Write the page of a model, which says where it comes from: its file, and the command that made the page."""
    from tracelearn.report import Origin, write_model_page

    origin = Origin(
        file=printable(file.name),
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        written_by=read_header(file).tracelearn,
        command=printable(shlex.join(["tracelearn", *context.obj])),
    )
    write_model_page(model, html, origin=origin, **options)


def aligns_by_group(model: Any) -> bool:
    """Tell whether a model aligns samples by group, and so predicts all samples of a group together."""
    return getattr(model, "alignment_", None) is not None


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


def make_model(
    alpha: float | str | None, *, classes: bool, search: Mapping[str, Any] = MappingProxyType({}), **options: Any
) -> Any:
    """Make a linear model with this alpha, or, where it is None, a search over views, with options of its own."""
    if alpha is None:
        return (tracelearn.TensorClassifier if classes else tracelearn.TensorRegressor)(**options, **search)
    return (tracelearn.TraceNormClassifier if classes else tracelearn.TraceNormRegressor)(alpha, **options)


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


def mode_number(text: str, modes: Any, option: str) -> int:
    """Read which mode of a sample is meant, by its number or by its name.

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
    return int(text) if is_number else names.index(text)


def read_modes(mode_names: str | None, coordinates: list[str] | None, shape: Sequence[int], known: Any = None) -> Any:
    """Read names, units and coordinates of modes; all others stay as they are in ``known``, the modes of the file.

    Examples
    --------
    >>> from tracelearn.cli.shared import read_modes
    >>> channel, time = read_modes("channel, time (s)", ["time=0:0.2", "channel=C3,C4"], (2, 3))
    >>> channel.values.tolist(), time.values.tolist(), time.label
    (['C3', 'C4'], [0.0, 0.1, 0.2], 'time (s)')
    """
    from tracelearn.samples.modes import Mode, are_modes_of

    names = read_names(mode_names, shape)
    refuse(bool(coordinates) and names is None, "Expected --mode-names with --coordinates, got none: name the modes.")
    if names is None:
        return known
    modes_of_file = known if are_modes_of(known, tuple(shape)) else [Mode("", np.arange(size)) for size in shape]
    mode_of_name = {}
    for text, mode in zip(names, modes_of_file, strict=True):
        name_and_unit = re.fullmatch(r"(.+?)\s*(?:\((.+)\))?", text)
        if name_and_unit:
            name, unit = name_and_unit.groups()
            mode_of_name[name] = replace(mode, name=name, unit=unit or mode.unit)
    refuse(
        len(mode_of_name) < len(names), f"Expected different names of modes, got {mode_names!r}: correct --mode-names."
    )
    for text in coordinates or ():
        name, _, entries = text.partition("=")
        sentence = f"Expected coordinates of a mode, such as time=0:1, for --coordinates, got {text!r}: "
        refuse(name not in mode_of_name, f"{sentence}begin with a name among {', '.join(mode_of_name)}.")
        mode = mode_of_name[name]
        try:
            ends = [float(end) for end in entries.split(":")] if ":" in entries else []
            values = np.linspace(ends[0], ends[1], len(mode.values)) if len(ends) == 2 else _values(entries)
        except ValueError:
            values = np.zeros(0)
        refuse(
            values.shape != mode.values.shape,
            f"{sentence}give first:last, or one for each of {len(mode.values)} entries.",
        )
        mode_of_name[name] = replace(mode, values=values)
    return tuple(mode_of_name.values())


def _values(text: str) -> NDArray[Any]:
    """Read coordinates that are separated by commas, as numbers where all are."""
    entries = [entry.strip() for entry in text.split(",")]
    try:
        return np.array([float(entry) for entry in entries])
    except ValueError:
        return np.array(entries)


def echo(text: str, *, err: bool = False) -> None:
    """Print a line."""
    typer.echo(printable(text), err=err)


def show(facts: dict[str, Any], rows: dict[str, str], *, as_json: bool, quiet: bool = False) -> None:
    """Print what was found: for programs as one line of JSON, for people as a table.

    The table has a line for each row whose value is not empty; a long value wraps within its column.
    """
    if quiet:
        return
    if as_json:
        typer.echo(json.dumps(facts, default=str))
        return
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
    if facts["views"] or len(counts) == 1 or not any(counts):
        return ""
    return counted("component", "of", counts, facts["mode_names"])


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
    rows = {}
    left_out = []
    without_share = []
    for view in views:
        name = view["view"]
        share = "" if view["share"] is None else f"{view['share']:.2f}"
        if view["found"]:
            rows[name] = f"share {share}; {view['found']}" if share else view["found"]
        elif share == "0.00":
            without_share.append(name)
        else:
            left_out.append(f"{name} ({share})")
    if len(without_share) > _MOST_NAMED:
        left_out.append(f"{len(without_share)} others (0.00)")
    elif without_share:
        left_out.append(f"{', '.join(without_share)} (0.00)")
    return rows | ({"left out (share)": "; ".join(left_out)} if left_out else {})


# --- samples: a file of them, and what is said of it by options in the same words -------------------------------------


Data = Annotated[
    str,
    typer.Argument(
        help="File of samples and targets, such as .npz, .h5, .csv, .parquet or .mat; a folder; or an address.",
        show_default=False,
    ),
]
Samples = Annotated[
    str,
    typer.Option(help="Name of the samples in the file, or of the columns of a table that are inputs, such as 'ch*'."),
]
Target = Annotated[
    str, typer.Option(help="Name of the targets in the file, or another file: y.npy, labels.csv:diagnosis.")
]
Groups = Annotated[str | None, typer.Option(help="Name of the groups, such as subjects; each stays in one fold.")]
Confounds = Annotated[
    str | None,
    typer.Option(
        help="Names of numbers in the file, such as age,movement, to regress out of the samples.", show_default=False
    ),
]


def takes(**groups: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command options in groups: each group is a function of options, and its result one argument of the command.

    Typer makes options of a signature, so that the options of a group stand in the place of its argument.

    Examples
    --------
    >>> import inspect
    >>> from tracelearn.cli.shared import takes
    >>> def read_size(width: int = 1, height: int = 1) -> int:
    ...     return width * height
    >>> @takes(size=read_size)
    ... def area(name: str, size: int) -> str:
    ...     return f"{name}: {size}"
    >>> str(inspect.signature(area)), area(name="page", width=2, height=3)
    ('(*, name: str, width: int = 1, height: int = 1) -> str', 'page: 6')
    """
    return lambda command: _WithGroups(command, groups)


class _WithGroups:
    """A command whose signature has the options of groups in the place of the arguments that they make."""

    def __init__(self, command: Callable[..., Any], groups: Mapping[str, Callable[..., Any]]) -> None:
        update_wrapper(self, command)
        self._command, self._groups = command, groups
        self._options = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            parameters += self._options.get(parameter.name, {parameter.name: parameter}).values()
        keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        self.__signature__ = signature.replace(parameters=keyword_only)

    def __call__(self, **options: Any) -> Any:
        results = {}
        for name, group in self._groups.items():
            results[name] = group(**{option: options.pop(option) for option in self._options[name]})
        return self._command(**options, **results)


def read_format(
    tensor_shape: Annotated[
        str | None,
        typer.Option(
            help="Shape of a sample where samples are flat, such as 8,100,20.",
            rich_help_panel=_FORMAT,
        ),
    ] = None,
    sample_axis: Annotated[
        int | None,
        typer.Option(
            help="Axis that counts samples, such as -1 for channels × time × trials.", rich_help_panel=_FORMAT
        ),
    ] = None,
    ignore: Annotated[
        str | None,
        typer.Option(
            help="Columns of a table to leave out, such as id,age; all others are inputs of the model.",
            rich_help_panel=_FORMAT,
        ),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            help="For a table with one reading in each row: the column that names the sample.", rich_help_panel=_FORMAT
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="With --sample: the column that counts time.",
            rich_help_panel=_FORMAT,
        ),
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            help="NIfTI image of the voxels to use.",
            rich_help_panel=_FORMAT,
        ),
    ] = None,
) -> dict[str, Any]:
    """Gather what is said of the format of a file of samples, as parameters of ``open_source``."""
    ignored = () if ignore is None else tuple(name.strip() for name in ignore.split(","))
    shape = _read_shape(tensor_shape)
    return {
        "tensor_shape": shape,
        "sample_axis": sample_axis,
        "ignore": ignored,
        "sample": sample,
        "time": time,
        "mask": mask,
    }


def _read_shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    sizes = tuple(int(size) if size.strip().isdecimal() else 0 for size in text.split(","))
    refuse(min(sizes) < 1, f"Expected sizes such as 8,100,20 for --tensor-shape, got {text!r}: name every mode's size.")
    return sizes


@dataclass(frozen=True)
class Input:
    """A file of samples, and what a command says of it; ``file_format`` are parameters of ``open_source``."""

    data: str
    samples: str
    target: str | None
    file_format: dict[str, Any]
    groups: str | None = None
    confounds: str | None = None

    @property
    def files(self) -> tuple[str | None, ...]:
        """All that may be, or name, a file."""
        return self.data, self.target, self.groups, self.confounds, self.file_format["mask"]

    @property
    def confound_names(self) -> list[str]:
        """The names of the confounds, which are separated by commas."""
        return [] if self.confounds is None else [name.strip() for name in self.confounds.split(",")]

    def open(self, model: Any = None) -> Any:
        """Open samples with their targets, or say in one sentence why not.

        Of a wide table, groups and confounds are no entries of samples, and with a model only its columns are.
        """
        columns = [name for name in (self.groups, *self.confound_names) if name and not _is_file(name)]
        return self._open(self.target, ignore=(*self.file_format["ignore"], *columns), model=model)

    def _open(self, target: str | None, **options: Any) -> Any:
        try:
            return tracelearn.open_source(self.data, self.samples, target, **{**self.file_format, **options})
        except (ValueError, OSError, ImportError) as error:
            raise InputError(as_option(str(error))) from error

    def read_groups(self, source: Any) -> Any:
        """Read the groups, or None where none are named."""
        return None if self.groups is None else self._read_column(source, self.groups, "groups")

    def read_confounds(self, source: Any) -> Any:
        """Read the confounds, (n, q), or None where none are named."""
        columns = [self._read_column(source, name, "confounds") for name in self.confound_names]
        return np.column_stack(columns) if columns else None

    def _read_column(self, source: Any, name: str, role: str) -> NDArray[Any]:
        """Read one value for each sample: a column of their file, or of another one, as in labels.csv:age."""
        try:
            return targets_of(self._open(name), name) if _is_file(name) else source.column(name)
        except ValueError as error:
            raise InputError(f"{error} {role.capitalize()} are named with --{role}.") from error

    def names_of(self, result: Any) -> list[str] | None:
        """Name the number that was predicted, where the command names one in a file; ``result`` is a ``Residuals``, or none."""
        name = (self.target or "").rpartition(":")[2]
        is_single = getattr(result, "residuals", np.empty((0, 0))).shape[1] == 1
        return [name] if is_single and name not in ("", "y") and not Path(name).exists() else None


def _is_file(name: str) -> bool:
    """Tell whether an option names another file, such as y.npy or labels.csv:diagnosis."""
    return Path(name.rpartition(":")[0] or name).exists()


@takes(file_format=read_format)
def read_input(
    data: Data,
    target: Target = "y",
    samples: Samples = "X",
    groups: Groups = None,
    confounds: Confounds = None,
    *,
    file_format: dict[str, Any],
) -> Input:
    """Gather what is said of a file of samples and targets."""
    return Input(data, samples, target, file_format, groups, confounds)


def targets_of(source: Any, data: str) -> NDArray[Any]:
    """Read the targets of a file all at once."""
    parts = [y for y, _ in source.targets()]
    if parts[0] is None:
        raise missing_targets(data)
    return np.concatenate(parts)


def missing_targets(data: str) -> InputError:
    """Say that a file has samples alone."""
    return InputError(
        f"Expected targets with the samples, got {data}, which has none: name another file with --target."
    )


def as_text(labels: NDArray[Any]) -> NDArray[Any]:
    """Decode labels that are bytes; all else stays what it is."""
    return np.char.decode(labels, "utf-8", "backslashreplace") if labels.dtype.kind == "S" else labels
