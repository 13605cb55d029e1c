"""What commands read: a file of samples, and what is said of it by options in the same words."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import tracelearn
from tracelearn.arrays.array_api import available_memory
from tracelearn.cli.mistakes import as_option
from tracelearn.errors import InputError, refuse

__all__ = [
    "Confounds",
    "Data",
    "Groups",
    "Input",
    "Samples",
    "Target",
    "as_text",
    "check_label_memory",
    "missing_targets",
    "reads_samples",
    "targets_of",
]

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


def _reading(
    tensor_shape: Annotated[
        str | None, typer.Option(help="Shape of a sample where samples are flat, such as 8,100,20.")
    ] = None,
    sample_axis: Annotated[
        int | None, typer.Option(help="Axis that counts samples, such as -1 for channels × time × trials.")
    ] = None,
    ignore: Annotated[
        str | None,
        typer.Option(help="Columns of a table to leave out, such as id,age; all others are inputs of the model."),
    ] = None,
    mask: Annotated[str | None, typer.Option(help="NIfTI image of the voxels to use.")] = None,
    flat: Annotated[
        bool, typer.Option("--flat", help="The voxels of the mask as a vector, not the box around it.")
    ] = False,
) -> dict[str, Any]:
    """Gather what is said about the file of the samples."""
    ignored = () if ignore is None else tuple(name.strip() for name in ignore.split(","))
    shape = _read_shape(tensor_shape)
    return {"tensor_shape": shape, "sample_axis": sample_axis, "ignore": ignored, "mask": mask, "flat": flat}


def reads_samples(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of reading, which it gets as one argument, ``reading``."""
    own, added = (inspect.signature(function, eval_str=True) for function in (command, _reading))

    @wraps(command)
    def reader(**options: Any) -> None:
        reading = _reading(**{name: options.pop(name) for name in added.parameters})
        command(**options, reading=reading)

    kept = [one for one in own.parameters.values() if one.name != "reading"]
    reader.__signature__ = own.replace(parameters=[*kept, *added.parameters.values()])  # type: ignore[attr-defined]
    return reader


def _read_shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    sizes = tuple(int(size) if size.strip().isdecimal() else 0 for size in text.split(","))
    refuse(min(sizes) < 1, f"Expected sizes such as 8,100,20 for --tensor-shape, got {text!r}: name every mode's size.")
    return sizes


@dataclass(frozen=True)
class Input:
    """A file of samples, and what a command says of it; ``reading`` are parameters of ``open_source``."""

    data: str
    samples: str
    target: str | None
    reading: dict[str, Any]
    groups: str | None = None
    confounds: str | None = None

    @property
    def files(self) -> tuple[str | None, ...]:
        """All that may be, or name, a file."""
        return self.data, self.target, self.groups, self.confounds, self.reading["mask"]

    @property
    def confound_names(self) -> list[str]:
        """The names of the confounds, which are separated by commas."""
        return [] if self.confounds is None else [name.strip() for name in self.confounds.split(",")]

    def open(self, name: str | None = None, role: str = "target") -> Any:
        """Open samples with their targets, or with what is named in the place of these, or say in one sentence why not.

        Of a wide table, targets, groups and confounds are no entries of samples.
        """
        named = [self.target, self.groups, *self.confound_names] if self.groups or self.confounds else []
        columns = [one for one in named if one and not Path(one.rpartition(":")[0] or one).exists()]
        reading = {**self.reading, "ignore": (*self.reading["ignore"], *columns)}
        try:
            return tracelearn.open_source(self.data, self.samples, name or self.target, **reading)
        except (ValueError, OSError, ImportError) as error:
            raise InputError(_about(role, as_option(str(error)))) from error

    def open_groups(self) -> Any:
        """Open samples with their groups, where there are any."""
        return None if self.groups is None else self.open(self.groups, "groups")

    def read_confounds(self) -> Any:
        """Read the confounds, (n, q), or None where none are named."""
        sources = [self.open(name, "confounds") for name in self.confound_names]
        return np.column_stack([targets_of(one, self.data, "confounds") for one in sources]) if sources else None


def _about(role: str, sentence: str) -> str:
    """Say of groups, or confounds, what is said of targets, which they are for a source."""
    words = {"Expected target ": f"Expected {role} ", "--target": f"--{role}", "one target ": f"one {role[:-1]} "}
    for before, after in ({} if role == "target" else words | {"targets": role}).items():
        sentence = sentence.replace(before, after)
    return sentence


def targets_of(source: Any, data: str, role: str = "target") -> NDArray[Any]:
    """Read the targets of a file, or what else has the role of targets in it, all at once."""
    try:
        parts = [y for y, _ in source.targets()]
    except ValueError as error:
        raise InputError(_about(role, str(error))) from error
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


def check_label_memory(labels: NDArray[Any], count: int) -> None:
    """Refuse so many predictions of labels that fill the memory: an array of text has every entry as long as the longest."""
    if labels.dtype.kind in "OUST":
        longest = max((len(label) for label in np.unique(labels).tolist() if isinstance(label, str | bytes)), default=0)
        refuse(
            16 * longest * count > available_memory(),  # truth and predictions, and a copy of each
            f"Expected labels that fit in memory, got {count:,} samples and a label of {longest:,} characters: shorten it, or "
            "number the classes.",
        )
