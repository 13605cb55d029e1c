"""What ``tracelearn fit`` reads: samples and their targets, and whether these are labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm

from tracelearn.arrays.array_api import within_limit
from tracelearn.cli.progress import Bar
from tracelearn.cli.shared import Input, as_text, targets_of
from tracelearn.errors import refuse
from tracelearn.report.evaluation import fits_in_memory
from tracelearn.samples import Source

__all__ = ["Task", "allocate_blas_buffers", "check_labels", "check_targets", "find_task", "read_samples"]

_TASKS = ("auto", "classification", "regression")
_MOST_CLASSES = 20  # of whole numbers; more are taken for numbers
_FOR_BLAS = 96 << 20  # bytes of addresses for the buffers of OpenBLAS, of NumPy's and of SciPy's


# --- samples ----------------------------------------------------------------------------------------------------------


def read_samples(source: Source, inputs: Input, bar: Bar) -> tuple[NDArray[Any] | Source, NDArray[Any]]:
    """Read samples and targets, and leave samples where they are if their folds do not fit in memory."""
    y = targets_of(source, inputs.data)
    if not fits_in_memory(source):
        refuse(
            inputs.confounds is not None,
            f"Expected samples that fit in memory with --confounds, got {inputs.data}: take some of them.",
        )
        refuse(y.dtype.kind == "S", "Expected labels that are text or numbers, got bytes: write them anew as text.")
        return source, y
    batches = bar.follow("reading", source.batches(), source.n_samples)
    return np.concatenate([X for X, _, _ in batches]), as_text(y)


@dataclass(frozen=True)
class Task:
    """What is to be learned, and why that was concluded."""

    name: str
    reason: str

    @property
    def is_classification(self) -> bool:
        """Whether there are labels."""
        return self.name == "classification"


def find_task(y: NDArray[Any], task: str) -> Task:
    """Decide between labels and numbers by the targets.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.cli.learning import find_task
    >>> find_task(np.array([0, 1, 1]), "auto")
    Task(name='classification', reason='the target is 2 different whole numbers')
    """
    refuse(
        task not in _TASKS, f"Expected a task among {', '.join(_TASKS)}, got {task!r}: choose one of them with --task."
    )
    if task != "auto":
        return Task(task, f"--task {task} asks for it")
    if y.dtype.kind in "OSUTb":
        return Task("classification", "the target is truth values" if y.dtype.kind == "b" else "the target is text")
    if y.ndim > 1:
        return Task("regression", "the target is several numbers for each sample")
    count = len(np.unique(y))
    if y.dtype.kind in "iu" or np.all(np.isfinite(y) & (y == np.round(y))):  # labels are often stored as 0.0 and 1.0
        kind = "classification" if count <= _MOST_CLASSES else "regression"
        return Task(kind, f"the target is {count:,} different whole numbers")
    return Task("regression", f"the target is {count:,} different decimal numbers")


def check_targets(y: NDArray[Any], cv: int, task: Task) -> None:
    """Refuse targets that cannot be learned or scored, before anything is learned."""
    if not task.is_classification:
        refuse(
            len(y) < 2 * cv, f"Expected at least {2 * cv} samples for {cv} folds, got {len(y)}: choose a smaller --cv."
        )
        return
    check_labels(y)
    labels = np.unique(y)
    refuse(len(labels) < 2, f"Expected at least two classes, got one, {labels[0]!s}: add samples of another class.")


def check_labels(y: NDArray[Any]) -> None:
    """Refuse labels in more than one column."""
    refuse(
        y.ndim != 1,
        f"Expected one label for each sample, got targets of shape {y.shape}: choose one column, or say --task regression.",
    )


def allocate_blas_buffers() -> None:
    """Make BLAS allocate its buffers by a small product, or raise an error: without memory for them it retries for ever."""
    if within_limit() < _FOR_BLAS:
        raise MemoryError("too little for linear algebra")
    matrix = np.ones((300, 300))
    dgemm(1.0, matrix @ matrix, matrix)
