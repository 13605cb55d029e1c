"""A page about one result of ``tracelearn.inference``: what was found in a sentence, its figure, its numbers."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import fields
from typing import Any

import numpy as np

from tracelearn.inference import Bootstrap, Comparison, Decoding, MapTest, PermutationTest
from tracelearn.io.writing import write_atomically
from tracelearn.plotting.canvas import picture
from tracelearn.report.pages import document, number
from tracelearn.samples.modes import Mode

__all__ = ["result_page", "write_result_page"]

_RESULTS = (PermutationTest, MapTest, Bootstrap, Comparison, Decoding)
# What a field is called on a page, where its name alone would not say it.
_WORDS = {
    "coef": "weights of the model of all samples",
    "coefs": "weights of each bootstrap",
    "patterns": "patterns of each bootstrap",
    "ranks": "ranks of each bootstrap, a column for each mode",
    "angles": "largest angles to the subspaces of all samples, degrees",
    "level": "share of studies that intervals cover",
    "counts": "how often each sample or group was drawn, in each bootstrap",
    "scoring": "kind of score",
    "names": "models",
    "difference": "first model better by",
    "standard_error": "standard error of the difference",
    "p_value": "p-value",
    "low": "difference, low end of 95 %",
    "high": "difference, high end of 95 %",
    "positions": "positions, the first entry of each window",
    "chance": "score of a prediction that ignores the samples",
    "modes": "coordinates of the entries",
    "mode": "coordinates of the positions",
    "method": "fitted as",
    "ratio": "held-out over training samples of a fold",
    "statistic": "map over its spread under permutations",
    "p_values": "p-values, corrected for all entries",
    "clusters": "clusters, by number",
    "cluster_p_values": "p-values of the clusters",
    "exchanged": "what was permuted",
    "what": "what is mapped",
    "order": "modes of a sample",
    "null": "scores of permutations",
    "selection": "choice of parameters",
}
_WORDS_OF_DRAWS = {
    "scores": "scores of each bootstrap, on what it leaves out",
    "score": "score of a model of all samples on new ones",
    "standard_error": "standard error of the score, over studies",
    "degrees": "degrees of freedom of the standard error",
}
_MOST_NUMBERS = 100  # of an array that is listed; of a larger one, or of many rows, the page tells the range
_MOST_ROWS = 12


def result_page(result: Any, title: str | None = None, **options: Any) -> str:
    """Return the page of a result: one HTML text with everything in it, which loads nothing.

    Parameters
    ----------
    result : what a function of ``tracelearn.inference`` returned
    title : str, default=None
        None is what was done.
    **options : those of the ``plot`` of the result, such as ``times`` of a time course

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.inference import PermutationTest
    >>> from tracelearn.report import result_page
    >>> null = np.random.default_rng(0).normal(0.5, 0.05, size=99)
    >>> result = PermutationTest(0.9, 0.01, null, "targets of all samples", None, "batch", "accuracy")
    >>> page = result_page(result)
    >>> "accuracy 0.900, p = 0.01 from 99 permutations" in page, "data:image/png;base64," in page
    (True, True)
    """
    if not isinstance(result, _RESULTS):
        names = ", ".join(kind.__name__ for kind in _RESULTS)
        raise ValueError(f"Expected a result of tracelearn.inference, one of {names}, got {type(result).__name__}.")
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(result).__name__).capitalize()
    words = _WORDS | (_WORDS_OF_DRAWS if isinstance(result, Bootstrap) else {})
    rows = []
    for field in fields(result):
        value = getattr(result, field.name)
        if value is not None:
            rows.append((words.get(field.name, field.name.replace("_", " ")), _lines(value)))
    figure = picture(result.plot(**options), "png", dpi=144, bbox_inches="tight")
    values = {
        "kind": kind,
        "title": kind if title is None else title,
        "sentences": str(result).splitlines(),
        "figure": base64.b64encode(figure).decode(),
        "rows": rows,
    }
    return document("result", values)


def write_result_page(result: Any, path: str | os.PathLike[str], title: str | None = None, **options: Any) -> None:
    """Write the page of a result to a file; all other parameters are those of ``result_page``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from tracelearn.inference import Decoding
    >>> from tracelearn.report import write_result_page
    >>> result = Decoding(np.array([[0.5, 0.9], [0.5, 0.7]]), np.arange(2), "accuracy", "batch")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_result_page(result, pathlib.Path(folder) / "course.html", times=[0.1, 0.2])
    ...     [file.name for file in pathlib.Path(folder).iterdir()]
    ['course.html']
    """
    write_atomically(path, result_page(result, title, **options).encode())


def _lines(value: Any) -> list[str]:
    """Write a number, a text, or an array, a line for each row; a large array is described by its shape and its range."""
    if isinstance(value, Mode):
        first, last = (str(end) if value.has_names else number(end, 4) for end in value.values[[0, -1]])
        return [f"{value.label}, from {first} to {last}"]
    if isinstance(value, tuple):
        return ["; ".join(" ".join(_lines(member)) for member in value)]
    if not isinstance(value, np.ndarray):
        return [number(value, 4) if isinstance(value, float) else str(value)]
    if value.size > _MOST_NUMBERS or value.ndim > 2 or (value.ndim == 2 and len(value) > _MOST_ROWS):
        shape = " × ".join(map(str, value.shape))
        return [f"{shape} numbers from {number(np.min(value), 4)} to {number(np.max(value), 4)}"]
    return [", ".join(number(entry, 4) for entry in row) for row in np.atleast_2d(value)]
