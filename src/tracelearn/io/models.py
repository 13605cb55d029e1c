"""Models and moments in files: no code in them, whole or refused, never half written.

A file is a line that names the format, a header of one line of JSON, and a payload: a line of JSON and the bytes of arrays.
Invariant: nothing is built from a file before its length and its checksum were found good; types are ours, or those that the
caller names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from sklearn.base import BaseEstimator

from tracelearn.errors import refuse
from tracelearn.io.model_checks import check_use
from tracelearn.io.model_content import UnknownTypeError, full_name, known_types, read_content, write_content
from tracelearn.io.model_header import MAGIC, DamagedFileError, Header, open_regular, read_open_header
from tracelearn.io.writing import write_atomically
from tracelearn.moments import Moments

__all__ = ["load", "pack", "save", "unpack"]

_MOMENTS = ("moments_", "class_moments_")
_TYPES = {"model": BaseEstimator, "moments": Moments, "checkpoint": dict}


# --- writing ----------------------------------------------------------------------------------------------------------


def save(thing: Any, path: str | os.PathLike[str], *, moments: bool = True) -> None:
    """Write a model or moments to a file, whole or not at all.

    The file holds parameters, everything learned and the last solution, so that what ``load`` returns predicts, merges and
    continues to learn exactly as the original does. It contains no code, and reading it runs none. A model fitted on a GPU
    is written with arrays of NumPy, and has these when it is read.

    Parameters
    ----------
    thing : an estimator or transformer of tracelearn, a scikit-learn Pipeline of them, or Moments
        Steps of a Pipeline that are not ours, and losses and penalties of your own (dataclasses), are written by their name
        and their parts; ``load`` has to be asked to trust them.
    path : where to write; a file that is there is replaced and keeps its permissions
    moments : bool, default=True
        Whether to write the moments of what was learned, p² numbers for p features: without them a model predicts, but
        cannot continue to learn, and no other can be merged into it.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from tracelearn import TraceNormRegressor, load, save
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(200, (4, 3), rank=1, random_state=0)
    >>> model = TraceNormRegressor(alpha=0.1).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, pathlib.Path(folder) / "model.tracelearn")
    ...     again = load(pathlib.Path(folder) / "model.tracelearn")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    refuse(
        known_types().get(type(thing).__name__) is not type(thing) or not isinstance(thing, BaseEstimator | Moments),
        f"Expected an estimator of tracelearn, a Pipeline of them or Moments, got {full_name(type(thing))}: save other "
        "things by their own means.",
    )
    kind = "moments" if isinstance(thing, Moments) else "model"
    write_atomically(path, pack(kind, thing, moments=moments))


def pack(kind: str, thing: Any, *, moments: bool = True) -> bytes:
    """Write an object as the bytes of a file, and refuse one that could not be read back."""
    try:
        payload = write_content(thing, () if moments else _MOMENTS)
    except (UnknownTypeError, RecursionError) as error:
        raise ValueError(
            f"Expected models made of numbers, text, arrays, estimators and dataclasses, got {error}: such a thing could run "
            "code or refer to itself, so replace it."
        ) from error
    return MAGIC + Header.of(kind, payload).line() + payload


# --- reading ----------------------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str], *, trusted: Iterable[type] = ()) -> Any:
    """Read a model or moments that ``save`` wrote; a file that is damaged, too new or not ours is refused.

    Reading runs no code of the file, so the worst that a file from a stranger can contain is a bad model.

    Parameters
    ----------
    path : the file
    trusted : classes that are not ours and that the file may hold, such as a loss of your own
        They are given what the file says they consist of, so trust only those that may be given anything.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from tracelearn import Moments, load, save
    >>> X = np.arange(12.0).reshape(4, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Moments.of(X, X[:, 0]), pathlib.Path(folder) / "seen.tracelearn")
    ...     seen = load(pathlib.Path(folder) / "seen.tracelearn")
    >>> seen.x_mean
    array([4.5, 5.5, 6.5])
    """
    kind, thing = unpack(path, trusted)
    refuse(
        kind == "checkpoint",
        f"Expected a model or moments, got a checkpoint, {path}: pass its folder to stream with resume=True.",
    )
    return thing


def unpack(path: str | os.PathLike[str], trusted: Iterable[type] = ()) -> tuple[str, Any]:
    """Read a file of any kind; return its kind and what it holds."""
    header, payload = _read_payload(path)
    try:
        thing = read_content(payload, trusted)
        if not isinstance(thing, _TYPES[header.kind]):
            raise UnknownTypeError(full_name(type(thing)))
        if header.kind == "model":
            check_use(thing)
    except UnknownTypeError as error:
        raise ValueError(
            f"Expected a {header.kind} of plain data and types of tracelearn, got {_one_line(error)}, {path}: if you know the "
            "type and trust it, pass trusted=[...]."
        ) from error
    except Exception as error:  # hostile content may raise anything in json and NumPy
        raise DamagedFileError(
            f"Expected content that tracelearn can write and read, got some that it cannot ({type(error).__name__}: "
            f"{_one_line(error)}), {path}: use only files written by save."
        ) from error
    return header.kind, thing


def _one_line(error: Exception) -> str:
    """Write the message of an error in one short line; that of a hostile file may be of any length."""
    return " ".join(str(error).split())[:200]


def _read_payload(path: str | os.PathLike[str]) -> tuple[Header, bytes]:
    """Read the content of a file, and check its length and checksum against the header."""
    with open_regular(path) as file:
        header = read_open_header(file, path)
        length = os.fstat(file.fileno()).st_size - file.tell()
        if length != header.length:
            raise DamagedFileError(
                f"Expected {header.length} bytes after the header of {path}, got {length}: the file was cut off or added to, "
                "so copy it again or use an older one."
            )
        payload = file.read(length)
    if header.digest(payload) != header.sha256:
        raise DamagedFileError(
            f"Expected the content of {path} to have its checksum, got another: the file was changed, so copy it again or use "
            "an older one."
        )
    return header, payload
