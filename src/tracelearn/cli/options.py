"""Options that several commands have, in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "Data", "Html", "ModeNames", "Quiet", "Samples", "TaskName"]

Data = Annotated[
    Path, typer.Argument(help="File of samples and targets: .npz, .npy, .zarr, .h5 or .parquet.", show_default=False)
]
Samples = Annotated[str, typer.Option(help="Name of the samples in the file.")]
TaskName = Annotated[str, typer.Option("--task", help="auto, classification or regression.")]
Html = Annotated[
    Path | None, typer.Option(help="File for a page about the model, to open in a browser.", show_default=False)
]
ModeNames = Annotated[
    str | None, typer.Option(help="Names of the modes, such as channel,time, for table and page.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the facts as one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but what went wrong.")]
