"""``tracelearn fit``: a model of a file, with an honest score."""

from __future__ import annotations

import json
import logging
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, check_cv

from tracelearn import (
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    files,
)
from tracelearn.cli.shared import (
    MistakeError,
    Task,
    check_out,
    check_page,
    command_line,
    find_task,
    one_line,
    open_data,
    origin_of,
    show_table,
    split_names,
)
from tracelearn.estimators.scores import accuracy, r_squared
from tracelearn.losses import CLASSIFIER_LOSSES, REGRESSOR_LOSSES
from tracelearn.memory import available_memory
from tracelearn.optional import require
from tracelearn.penalties import PENALTIES
from tracelearn.progress import Bar
from tracelearn.report.model import gather, spans
from tracelearn.report.page import Evaluation, render
from tracelearn.report.scores import Folds, compare
from tracelearn.sources import Source

try:
    import rich.console
    import typer
except ImportError:  # main says so in one sentence
    pass

__all__ = ["fit_command"]

_Splits = list[tuple[NDArray[Any], NDArray[Any]]]
_OUT = Path("model.tracelearn")
_SHOWN_CLASSES = 20


# --- data -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rows:
    """Some samples of a source that is too large for memory; every pass reads them anew."""

    source: Source
    keep: NDArray[np.bool_]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        first = 0
        for X, y, _ in self.source.batches():
            kept = self.keep[first : first + len(X)]
            first += len(X)
            if kept.any():
                yield X[kept], y[kept]


@dataclass(frozen=True, eq=False)
class _Data:
    """Samples, in memory if they fit, with their targets and groups."""

    X: NDArray[Any] | Source
    y: NDArray[Any]
    groups: NDArray[Any] | None

    def fit(self, model: Any, rows: NDArray[Any] | None = None) -> Any:
        """Fit a model to all samples, or to some."""
        if not isinstance(self.X, Source):
            return model.fit(self.X, self.y) if rows is None else model.fit(self.X[rows], self.y[rows])
        return model.fit(self.X if rows is None else _Rows(self.X, self._mask(rows)))

    def predict(self, model: Any, rows: NDArray[Any]) -> NDArray[Any]:
        """Predict some samples, in their order in the file."""
        if not isinstance(self.X, Source):
            return np.asarray(model.predict(self.X[rows]))
        return np.concatenate([model.predict(X) for X, _ in _Rows(self.X, self._mask(rows))])

    def _mask(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        mask = np.zeros(len(self.y), dtype=bool)
        mask[rows] = True
        return mask


def _targets_of(source: Source, data: Path) -> NDArray[Any]:
    parts = [y for y, _ in source.targets()]
    if parts[0] is None:
        raise MistakeError(
            f"Expected targets beside the samples, got {data}, which is one array: name another file with --target."
        )
    return np.concatenate(parts)


def _read(data: Path, samples: str, target: str, groups: str | None, bar: Bar) -> _Data:
    """Read what fits in memory, and leave the rest where it is."""
    source = open_data(data, samples, target)
    try:
        y = _targets_of(source, data)
        named = None if groups is None else _targets_of(open_data(data, samples, groups, "groups"), data)
        shape, dtype = source.sample_shape, source.dtype
        assert shape is not None
        assert dtype is not None
        size = len(y) * math.prod(shape) * dtype.itemsize
        # Folds are copies of the samples, and so is what a solver widens.
        fits = 4 * size <= available_memory()
        batches = bar.follow("reading", source.batches(), source.n_samples)
        X = np.concatenate([X for X, _, _ in batches]) if fits else source
    except (ValueError, ImportError) as error:
        raise MistakeError(str(error)) from error
    return _Data(X, y, named)


# --- model ------------------------------------------------------------------------------------------------------------


def _one_of(name: str, value: str, known: Any) -> str:
    if value not in known:
        raise MistakeError(f"Expected a {name} among {', '.join(known)}, got {value!r}: choose one with --{name}.")
    return value


def _number(name: str, text: str, words: str = "a number of at least 0") -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise MistakeError(f"Expected {words} for --{name}, got {text!r}: correct it.")
    return value


def _shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    sizes = tuple(int(size) if size.strip().isdecimal() else 0 for size in text.split(","))
    if min(sizes) < 1:
        raise MistakeError(f"Expected sizes such as 8,100,20 for --tensor-shape, got {text!r}: name every mode's size.")
    return sizes


def _loss(name: str, task: str, alpha: str) -> str:
    """Check the name of a loss; auto is for the search to choose, and without a search the squared loss."""
    losses = CLASSIFIER_LOSSES if task == "classification" else REGRESSOR_LOSSES
    if _one_of("loss", name, ("auto", *losses)) != "auto":
        return name
    return "auto" if task == "classification" and alpha == "auto" else "squared"


def _make_model(task: str, alpha: str, ridge: float | None, splits: _Splits, options: dict[str, Any]) -> Any:
    is_classifier = task == "classification"
    if alpha == "auto":
        kind: Any = TraceNormClassifierCV if is_classifier else TraceNormRegressorCV
        return kind(ridges="auto" if ridge is None else (ridge,), cv=splits, **options)
    kind = TraceNormClassifier if is_classifier else TraceNormRegressor
    return kind(alpha=_number("alpha", alpha, "'auto' or a number of at least 0"), ridge=ridge or 0.0, **options)


def _split(data: _Data, cv: int, task: str) -> _Splits:
    """Draw folds as the CV estimators do; groups stay together."""
    is_classifier = task == "classification"
    if data.groups is None:
        splitter = check_cv(cv, data.y, classifier=is_classifier)
    else:
        splitter = (StratifiedGroupKFold if is_classifier else GroupKFold)(cv)
    return list(splitter.split(np.zeros(len(data.y)), data.y, data.groups))


def _check_folds(data: _Data, cv: int, task: str) -> None:
    """Refuse what cannot be cross-validated, before anything is learned."""
    if task == "classification" and data.y.ndim != 1:
        raise MistakeError(
            f"Expected one label for each sample, got targets of shape {data.y.shape}: choose one column, or say --task "
            "regression."
        )
    if data.groups is not None and len(np.unique(data.groups)) < cv:
        raise MistakeError(
            f"Expected at least {cv} groups for {cv} folds, got {len(np.unique(data.groups))}: choose a smaller --cv."
        )
    if task != "classification":
        if len(data.y) < 2 * cv:
            raise MistakeError(
                f"Expected at least {2 * cv} samples for {cv} folds, got {len(data.y)}: choose a smaller --cv."
            )
        return
    labels, counts = np.unique(data.y, return_counts=True)
    if len(labels) < 2:
        raise MistakeError(f"Expected at least two classes, got one, {labels[0]!s}: add samples of another class.")
    if counts.min() < cv:
        rare = labels[np.argmin(counts)]
        raise MistakeError(
            f"Expected at least {cv} samples of each class for {cv} folds, got {counts.min()} of {rare!s}: choose a smaller "
            "--cv, or leave that class out."
        )


# --- score ------------------------------------------------------------------------------------------------------------


def _baseline(y: NDArray[Any], count: int, task: str) -> NDArray[Any]:
    """Predict the most frequent label, or the mean, of the training samples."""
    if task == "classification":
        labels, counts = np.unique(y, return_counts=True)
        return np.repeat(labels[np.argmax(counts)], count)
    return np.repeat(np.mean(y, axis=0, keepdims=True), count, axis=0)


@dataclass(frozen=True, eq=False)
class _Held:
    """What was predicted of every held-out sample, beside the truth, and the scores of the folds."""

    truth: NDArray[Any]
    found: NDArray[Any]
    score: dict[str, Any]

    def evaluation(self, model: Any) -> Evaluation:
        """Set predictions beside the truth, for a page."""
        score = self.score
        folds = Folds(score["mean"], score["standard_error"], score["folds"], score["alpha_chosen_on_same_folds"])
        return Evaluation(compare(model, self.truth, self.found), f"{len(self.truth):,} held-out samples", folds)


def _cross_validate(model: Any, data: _Data, splits: _Splits, task: str, bar: Bar) -> _Held:
    """Learn anew without each fold and score on it, beside a prediction that does not look at the samples."""
    measure = accuracy if task == "classification" else r_squared
    plain = getattr(model, "best_estimator_", model)
    scores, baselines, truths, predictions = [], [], [], []
    for number, (train, test) in enumerate(splits):
        bar.show("scoring", number, len(splits))
        held = np.sort(test)
        truth = data.y[held] if task == "classification" else np.asarray(data.y[held], dtype=float)
        found = data.predict(data.fit(clone(plain), np.sort(train)), held)
        truths.append(truth)
        predictions.append(found)
        scores.append(measure(truth, found))
        baselines.append(measure(truth, _baseline(data.y[train], len(held), task)))
    score = {
        "measure": "accuracy" if task == "classification" else "R2",
        "mean": float(np.mean(scores)),
        "standard_error": float(np.std(scores, ddof=1) / math.sqrt(len(scores))),
        "folds": len(scores),
        "baseline": float(np.mean(baselines)),
        "baseline_is": "majority" if task == "classification" else "mean",
        "alpha_chosen_on_same_folds": hasattr(model, "alpha_"),
    }
    return _Held(np.concatenate(truths), np.concatenate(predictions), score)


# --- words ------------------------------------------------------------------------------------------------------------


class _Told(logging.Handler):
    """Passes on how far a search says that it is."""

    def __init__(self, bar: Bar) -> None:
        super().__init__()
        self.bar = bar

    def emit(self, record: logging.LogRecord) -> None:
        done, total = getattr(record, "paths_done", (0, 0))
        if total:
            self.bar.show("choosing alpha", done, total)


@contextmanager
def _heard(bar: Bar) -> Iterator[None]:
    """Let what models log move the bar, where there is one, and go nowhere else."""
    logger = logging.getLogger("tracelearn")
    level, propagates = logger.level, logger.propagate
    handler = _Told(bar)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates


def _describe(model: Any, data: _Data, task: Task) -> dict[str, Any]:
    """Gather the facts about a fitted model."""
    plain = getattr(model, "best_estimator_", model)
    classes = None
    if task.name == "classification":
        labels, counts = np.unique(data.y, return_counts=True)
        classes = {str(label): int(count) for label, count in zip(labels.tolist(), counts.tolist(), strict=True)}
    weights = plain.mode_weights
    return {
        "model": type(model).__name__,
        "task": task.name,
        "reason": task.reason,
        "n_samples": len(data.y),
        "sample_shape": [int(size) for size in model.sample_shape_],
        "classes": classes,
        "loss": plain.loss,
        "penalty": plain.penalty,
        "alpha": float(plain.alpha),
        "ridge": float(plain.ridge),
        "mode_weights": None if weights is None else [float(weight) for weight in weights],
        "class_mode": bool(plain.class_mode),
        "scaling": plain.scaling,
        "mode_ranks": np.asarray(model.mode_ranks_).tolist(),
        "dual_gap": float(model.dual_gap_),
        "n_iter": int(model.n_iter_),
    }


def _counted(classes: dict[str, int]) -> str:
    shown = ", ".join(f"{label}: {count:,}" for label, count in list(classes.items())[:_SHOWN_CLASSES])
    more = len(classes) - _SHOWN_CLASSES
    return f"{len(classes)} ({shown}{f', and {more} more' if more > 0 else ''})"


def _rows(facts: dict[str, Any]) -> dict[str, str]:
    """Write the facts for people."""
    score, weights = facts["score"], facts["mode_weights"]
    kind = "classifier" if facts["task"] == "classification" else "regressor"
    told = f"{score['mean']:.3f} ± {score['standard_error']:.3f} on {score['folds']} held-out folds"
    rows = {
        "model": f"{kind}, because {facts['reason']}",
        "samples": f"{facts['n_samples']:,}",
        "shape": " × ".join(map(str, facts["sample_shape"])),
        "classes": "" if facts["classes"] is None else _counted(facts["classes"]),
        "loss": facts["loss"],
        "scaling": facts["scaling"] or "none",
        "alpha": f"{facts['alpha']:.4g}" + (" (chosen)" if score["alpha_chosen_on_same_folds"] else ""),
        "ridge": f"{facts['ridge']:.4g}",
        "mode weights": "equal" if weights is None else ", ".join(f"{weight:g}" for weight in weights),
        "R²" if score["measure"] == "R2" else score["measure"]: told,
        f"{score['baseline_is']} alone": f"{score['baseline']:.3f}",
        "note": "alpha and the rest chosen on these folds: slightly optimistic"
        if score["alpha_chosen_on_same_folds"]
        else "",
        "mode ranks": spans(facts["mode_ranks"]),
        "duality gap": f"{facts['dual_gap']:.1e} after {facts['n_iter']} iterations",
        "seconds": f"{facts['seconds']:.1f}",
        "file": facts["file"],
        "page": facts.get("page", ""),
    }
    return {name: value for name, value in rows.items() if value}


# --- command ----------------------------------------------------------------------------------------------------------


def _learn(data: _Data, task: Task, model: Any, splits: _Splits, bar: Bar) -> tuple[dict[str, Any], _Held]:
    """Fit and score a model; return the facts, and what was predicted of held-out samples."""
    began = time.perf_counter()
    with _heard(bar), warnings.catch_warnings():
        warnings.showwarning = one_line
        bar.show("learning")
        model.verbose = int(bar.is_shown)
        data.fit(model)
        # Neither the folds of these samples nor this terminal are of use to those who load the model.
        model.verbose = 0
        if hasattr(model, "cv"):
            model.cv, model.best_estimator_.verbose = len(splits), 0
        held = _cross_validate(model, data, splits, task.name, bar)
    return {**_describe(model, data, task), "score": held.score, "seconds": time.perf_counter() - began}, held


def fit_command(
    context: typer.Context,
    data: Annotated[
        Path,
        typer.Argument(help="File of samples and targets: .npz, .npy, .zarr, .h5 or .parquet.", show_default=False),
    ],
    target: Annotated[str, typer.Option(help="Name of the targets in the file, or another file: .npy.")] = "y",
    samples: Annotated[str, typer.Option(help="Name of the samples in the file.")] = "X",
    groups: Annotated[
        str | None, typer.Option(help="Name of groups, such as subjects, that no two folds may share.")
    ] = None,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    alpha: Annotated[
        str, typer.Option(help="Strength of the trace norm, or auto: chosen by cross-validation.")
    ] = "auto",
    loss: Annotated[
        str,
        typer.Option(
            help="squared, logistic, squared_hinge or huber; auto is squared, and where alpha is chosen for labels too, "
            "logistic if it finds more of them."
        ),
    ] = "auto",
    penalty: Annotated[str, typer.Option(help="overlapped, latent or scaled_latent.")] = "overlapped",
    ridge: Annotated[
        float | None,
        typer.Option(
            help="Strength of the squared norm; if not given, chosen with alpha, and 0 where alpha is given.",
            min=0.0,
            show_default=False,
        ),
    ] = None,
    cv: Annotated[int, typer.Option(help="Number of folds.", min=2)] = 5,
    class_mode: Annotated[
        bool, typer.Option("--class-mode", help="Let classes, or targets, be one more mode of the weights.")
    ] = False,
    tensor_shape: Annotated[
        str | None, typer.Option(help="Shape of a sample where samples are flat, such as 8,100,20.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File for the model.")] = _OUT,
    html: Annotated[
        Path | None, typer.Option(help="File for a page about the model, to open in a browser.", show_default=False)
    ] = None,
    mode_names: Annotated[
        str | None, typer.Option(help="Names of the modes for the page, such as channel,time.", show_default=False)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the files of model and page if they are there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but what went wrong.")] = False,
) -> None:
    """Fit a model to a file of samples, and say how well it predicts samples it has not seen.

    Labels get a classifier, numbers a regressor. Alpha, mode weights, ridge, scaling and for labels the loss are chosen by
    cross-validation.
    """
    require("skops.io", "files")
    check_out(out, "model", force=force)
    check_page(html, out, force=force)
    options: dict[str, Any] = {"penalty": _one_of("penalty", penalty, PENALTIES), "class_mode": class_mode}
    options["tensor_shape"] = _shape(tensor_shape)
    with Bar(rich.console.Console(quiet=quiet or as_json)) as bar:
        found = _read(data, samples, target, groups, bar)
        chosen = find_task(found.y, task)
        options["loss"] = _loss(loss, chosen.name, alpha)
        _check_folds(found, cv, chosen.name)
        try:
            splits = _split(found, cv, chosen.name)
            squared = None if ridge is None else _number("ridge", str(ridge))
            model = _make_model(chosen.name, alpha, squared, splits, options)
            facts, held = _learn(found, chosen, model, splits, bar)
            files.save(model, out)
            if html is not None:
                learned = gather(model, mode_names=split_names(mode_names))
                page = render(learned, held.evaluation(model), origin_of(out, command_line(context)))
                files.write_atomically(html, page.encode())
        except ValueError as error:
            raise MistakeError(str(error)) from error
    facts |= {"file": str(out)} | ({} if html is None else {"page": str(html)})
    if quiet:
        return
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        show_table(_rows(facts), rich.console.Console())
