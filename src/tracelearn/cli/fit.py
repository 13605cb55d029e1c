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
import rich.console
import typer
from numpy.typing import NDArray
from sklearn.base import clone

from tracelearn import (
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
)
from tracelearn.cli.dataset import Dataset, Splits, check_folds, draw_folds, read
from tracelearn.cli.mistakes import MistakeError, one_line
from tracelearn.cli.options import AsJson, Data, Html, ModeNames, Quiet, Samples, TaskName
from tracelearn.cli.progress import Bar
from tracelearn.cli.shared import (
    Task,
    check_out,
    check_page,
    command_line,
    find_task,
    open_data,
    origin_of,
    read_names,
    show_table,
)
from tracelearn.estimators.scores import accuracy, r_squared
from tracelearn.files import models as files
from tracelearn.losses import CLASSIFIER_LOSSES, REGRESSOR_LOSSES
from tracelearn.penalties import PENALTIES
from tracelearn.report.model import gather, spans
from tracelearn.report.page import Evaluation, render
from tracelearn.report.scores import Folds, compare

__all__ = ["fit_command"]

_OUT = Path("model.tracelearn")
_SHOWN_CLASSES = 20


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


def _make_model(task: str, alpha: str, ridge: float | None, splits: Splits, options: dict[str, Any]) -> Any:
    is_classifier = task == "classification"
    if alpha == "auto":
        kind: Any = TraceNormClassifierCV if is_classifier else TraceNormRegressorCV
        return kind(ridges="auto" if ridge is None else (ridge,), cv=splits, **options)
    kind = TraceNormClassifier if is_classifier else TraceNormRegressor
    return kind(alpha=_number("alpha", alpha, "'auto' or a number of at least 0"), ridge=ridge or 0.0, **options)


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


def _cross_validate(model: Any, data: Dataset, splits: Splits, task: str, bar: Bar) -> _Held:
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


def _describe(model: Any, data: Dataset, task: Task) -> dict[str, Any]:
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
        "mode ranks": spans(facts["mode_ranks"], facts["mode_names"]),
        "duality gap": f"{facts['dual_gap']:.1e} after {facts['n_iter']} iterations",
        "seconds": f"{facts['seconds']:.1f}",
        "file": facts["file"],
        "page": facts.get("page", ""),
    }
    return {name: value for name, value in rows.items() if value}


# --- command ----------------------------------------------------------------------------------------------------------


def _learn(data: Dataset, task: Task, model: Any, splits: Splits, bar: Bar) -> tuple[dict[str, Any], _Held]:
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
    data: Data,
    target: Annotated[str, typer.Option(help="Name of the targets in the file, or another file: .npy.")] = "y",
    samples: Samples = "X",
    groups: Annotated[
        str | None, typer.Option(help="Name of groups, such as subjects, that no two folds may share.")
    ] = None,
    task: TaskName = "auto",
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
    html: Html = None,
    mode_names: ModeNames = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the files of model and page if they are there.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a model to a file of samples, and say how well it predicts samples it has not seen.

    Labels get a classifier, numbers a regressor. Alpha, mode weights, ridge, scaling and for labels the loss are chosen by
    cross-validation.
    """
    check_out(out, "model", force=force)
    check_page(html, out, force=force)
    options: dict[str, Any] = {"penalty": _one_of("penalty", penalty, PENALTIES), "class_mode": class_mode}
    options["tensor_shape"] = _shape(tensor_shape)
    source = open_data(data, samples, target)
    grouped = None if groups is None else open_data(data, samples, groups, "groups")
    names = read_names(mode_names, options["tensor_shape"] or source.sample_shape or ())
    with Bar(rich.console.Console(quiet=quiet or as_json)) as bar:
        found = read(source, grouped, data, bar)
        chosen = find_task(found.y, task)
        options["loss"] = _loss(loss, chosen.name, alpha)
        check_folds(found, cv, chosen.name)
        try:
            splits = draw_folds(found, cv, chosen.name)
            squared = None if ridge is None else _number("ridge", str(ridge))
            model = _make_model(chosen.name, alpha, squared, splits, options)
            facts, held = _learn(found, chosen, model, splits, bar)
            files.save(model, out)
            learned = gather(model, mode_names=names)
            if html is not None:
                page = render(learned, held.evaluation(model), origin_of(out, command_line(context)))
                files.write_atomically(html, page.encode())
        except ValueError as error:
            raise MistakeError(str(error)) from error
    facts |= {"mode_names": None if names is None else learned.names_of_weights, "file": str(out)}
    facts |= {} if html is None else {"page": str(html)}
    if quiet:
        return
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        show_table(_rows(facts), rich.console.Console())
