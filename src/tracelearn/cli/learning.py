"""What ``tracelearn fit`` computes: samples read and cut into folds, a model fitted to them, and an honest score."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor

from tracelearn.arrays.array_api import available_memory, within_limit
from tracelearn.arrays.linalg import few_threads
from tracelearn.cli.mistakes import warnings_as_lines
from tracelearn.cli.progress import Bar
from tracelearn.cli.shared import aligns_by_group, as_text, targets_of
from tracelearn.errors import refuse
from tracelearn.estimators.scores import accuracy, r_squared
from tracelearn.inference.comparison import Comparison, flat_rivals
from tracelearn.inference.reading import without_confounds
from tracelearn.report.scores import Evaluation, FoldScores, bounds_of, compare, join_bounds
from tracelearn.samples import Source
from tracelearn.samples.modes import Mode, resized_modes
from tracelearn.search.advice import PoorModelWarning
from tracelearn.search.folds import corrected_error, make_folds

__all__ = ["Dataset", "Task", "check_labels", "check_targets", "find_task", "fit_and_score", "read_dataset"]

_TASKS = ("auto", "classification", "regression")
_MOST_COMPARED = 5_000_000  # numbers in samples that flat models are fitted to as well
_MOST_CLASSES = 20  # of whole numbers; more are taken for numbers
_FOR_BLAS = 96 << 20  # bytes of addresses for the buffers of OpenBLAS, of NumPy's and of SciPy's


# --- samples ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rows:
    """Some samples of a source that is too large for memory; every pass reads them anew."""

    source: Source
    y: NDArray[Any]
    rows: NDArray[Any]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        keep, first = np.isin(np.arange(len(self.y)), self.rows), 0
        for X, _, _ in self.source.batches():
            part = slice(first, first + len(X))
            first += len(X)
            if keep[part].any():
                yield X[keep[part]], self.y[part][keep[part]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples, in memory if they fit, with their targets, groups and confounds."""

    X: NDArray[Any] | Source
    y: NDArray[Any]
    groups: NDArray[Any] | None
    confounds: NDArray[Any] | None = None  # (n, q), of samples in memory

    def fit(self, model: Any, rows: NDArray[Any] | None = None) -> Any:
        """Fit a model to all samples, or to some; a search draws its folds with the groups."""
        is_all = rows is None
        rows = np.arange(len(self.y)) if rows is None else rows
        others: dict[str, Any] = {}
        if hasattr(model, "cv") and self.groups is not None:
            others["groups"] = self.groups[rows]
        if isinstance(self.X, Source):
            return model.fit(self.X if is_all else _Rows(self.X, self.y, rows), **others)
        if self.confounds is not None:
            others["confounds"] = self.confounds[rows]
        return model.fit(self.X[rows], self.y[rows], **others)

    def predict(self, model: Any, rows: NDArray[Any]) -> NDArray[Any]:
        """Predict some samples, in their order in the file."""
        others = {} if self.confounds is None else {"confounds": self.confounds[rows]}
        if aligns_by_group(model) and self.groups is not None:
            others["groups"] = self.groups[rows]
        if isinstance(self.X, Source):
            samples = _Rows(self.X, self.y, rows)
            if others:  # samples of a group are aligned together
                return np.asarray(model.predict(samples, **others))
            return np.concatenate([model.predict(X) for X, _ in samples])
        return np.asarray(model.predict(self.X[rows], **others))

    def bounds(self, model: Any, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Find between which numbers nine of ten targets of some samples are to be, where a model says it."""
        if isinstance(self.X, Source):
            return None
        aligned = {"groups": self.groups[rows]} if aligns_by_group(model) and self.groups is not None else {}
        return bounds_of(model, self.X[rows], **aligned)

    def cleaned(self, train: NDArray[Any]) -> Dataset:
        """Regress confounds out of all samples, as learned from some: for models that know none."""
        weight = np.bincount(train, minlength=len(self.y)).astype(float)
        return replace(self, X=without_confounds(self.X, self.confounds, weight), confounds=None)


def read_dataset(source: Source, groups: NDArray[Any] | None, data: str, bar: Bar) -> Dataset:
    """Read what fits in memory, and leave the rest where it is."""
    y = targets_of(source, data)
    assert source.sample_shape is not None
    assert source.dtype is not None
    size = len(y) * math.prod(source.sample_shape) * source.dtype.itemsize
    if 4 * size > available_memory():  # folds are copies of the samples, and so is what a solver widens
        refuse(y.dtype.kind == "S", "Expected labels that are text or numbers, got bytes: write them anew as text.")
        return Dataset(source, y, groups)
    batches = bar.follow("reading", source.batches(), source.n_samples)
    return Dataset(np.concatenate([X for X, _, _ in batches]), as_text(y), groups)


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


# --- fit and score ----------------------------------------------------------------------------------------------------


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


def _cross_validate(model: Any, data: Dataset, cv: int, task: Task, bar: Bar) -> tuple[Evaluation, Comparison]:
    """Choose and fit anew without each fold, and score on it; return that, and how flat models do on these folds."""
    folds = make_folds(cv, data.y, data.groups, classifier=task.is_classification)  # shuffled: rows are often sorted
    measure = accuracy if task.is_classification else r_squared
    baseline = DummyClassifier() if task.is_classification else DummyRegressor()
    if hasattr(model, "keep_moments"):
        model = clone(model).set_params(keep_moments=False)  # of few samples there are better forms than moments
    is_small = not isinstance(data.X, Source) and data.X.size <= _MOST_COMPARED
    rivals = flat_rivals(task.is_classification) if is_small else {}
    scores, truths, predictions, bounds = [], [], [], []
    for number, (train, test) in enumerate(folds.splits):
        bar.show("scoring", number, len(folds))
        train, test = np.sort(train), np.sort(test)  # noqa: PLW2901
        truth = data.y[test] if task.is_classification else np.asarray(data.y[test], dtype=float)
        with warnings_as_lines(f"the fit without fold {number + 1} of {len(folds)}"):
            warnings.simplefilter("ignore", PoorModelWarning)  # the score is about to say it
            warnings.filterwarnings(
                "ignore", r"Expected at least \d+ samples", UserWarning
            )  # of a class, as of all samples
            fitted = data.fit(clone(model), train)
        truths.append(truth)
        predictions.append(data.predict(fitted, test))
        bounds.append(data.bounds(fitted, test))
        guess = baseline.fit(train, data.y[train]).predict(test)
        scores_of_fold = [measure(truth, guess), measure(truth, predictions[-1])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of others' fits; their scores say what they are worth
            clean = data.cleaned(train) if rivals else data
            for rival in rivals.values():
                scores_of_fold.append(measure(truth, clean.predict(clean.fit(clone(rival), train), test)))
        scores.append(scores_of_fold)
    guess_score, mean, *_ = np.mean(scores, axis=0)
    paired = Comparison.of(("model", *rivals), np.array(scores).T[1:], folds.ratio, "score")
    error = corrected_error(paired.scores[0], folds.ratio)
    classes = np.unique(data.y) if task.is_classification else None
    result = compare(np.concatenate(truths), np.concatenate(predictions), classes, join_bounds(bounds))
    score = FoldScores(float(mean), float(error), len(scores), float(guess_score))
    return Evaluation(result, f"{result.total:,} held-out samples", score), paired


def _describe(model: Any, data: Dataset, task: Task) -> dict[str, Any]:
    """Gather the facts about a fitted model."""
    labels, counts = np.unique(data.y, return_counts=True) if task.is_classification else (np.zeros(0), np.zeros(0))
    classes = {str(label): int(count) for label, count in zip(labels.tolist(), counts.tolist(), strict=True)}
    return {
        "model": type(model).__name__,
        "task": task.name,
        "reason": task.reason,
        "n_samples": len(data.y),
        "sample_shape": [int(size) for size in model.sample_shape_],
        "classes": classes or None,
        "loss": getattr(model, "loss_", model.loss),
        "penalty": model.penalty,
        "alpha": float(np.max(model.alpha_)),
        "ridge": float(getattr(model, "ridge_", getattr(model, "ridge", 0.0))),
        "mode_weights": getattr(model, "mode_weights", None),
        "target_mode": bool(getattr(model, "target_mode", False)),
        "scaling": getattr(model, "scaling", None),
        "views_taken": list(getattr(model, "views_", {})),
        "dual_gap": float(model.dual_gap_),
        "n_iter": int(model.n_iter_),
    }


def name_modes(model: Any, modes: tuple[Mode, ...]) -> None:
    """Name the modes of a model as the file does, or counted where samples were brought to another length."""
    model.name_modes(resized_modes(modes, model.sample_shape_))


def _make_room() -> None:
    """Let BLAS have its buffers while there is room: where it gets none, it asks for ever instead of saying so."""
    if within_limit() < _FOR_BLAS:
        raise MemoryError("too little for linear algebra")
    some = np.ones((300, 300))
    dgemm(1.0, some @ some, some)


def fit_and_score(data: Dataset, task: Task, model: Any, cv: int, bar: Bar) -> tuple[Any, dict[str, Any], Evaluation]:
    """Fit and score a model; return it, the facts, and how it did on held-out samples."""
    began = time.perf_counter()
    _make_room()
    if isinstance(data.X, Source) and hasattr(model, "align"):
        model = clone(model).set_params(align=None)  # all samples of a group are aligned together, in memory
    with few_threads(data.X):
        bar.show("fitting")
        with warnings_as_lines("the fit to all samples"):
            fitted = data.fit(model)
        evaluation, paired = _cross_validate(model, data, cv, task, bar)
    folds = evaluation.folds
    assert folds is not None
    rivals = zip(paired.names[1:], paired.means[1:], paired.difference[1:], paired.standard_error[1:], strict=True)
    score = {
        "measure": "accuracy" if task.is_classification else "R2",
        "mean": folds.mean,
        "standard_error": folds.standard_error,
        "folds": folds.count,
        "baseline": folds.baseline,
        "baseline_is": "majority" if task.is_classification else "mean",
        "flat_models": [
            {"model": name, "mean": float(mean), "difference": float(difference), "standard_error": float(error)}
            for name, mean, difference, error in rivals
        ],
    }
    facts = {**_describe(fitted, data, task), "score": score, "seconds": time.perf_counter() - began}
    return fitted, facts, evaluation
