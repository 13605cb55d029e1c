"""The page of one model: what its template shows, and the numbers that its script draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelearn.plotting.canvas import COLOURS
from tracelearn.report.facts import ModelFacts, changed_parameters
from tracelearn.report.numbers import image_modes, numbers
from tracelearn.report.pages import document, number, signed, times
from tracelearn.report.scores import Confusion, Evaluation, Study, in_words
from tracelearn.report.words import (
    lead,
    listed,
    methods,
    rounded,
    strength_of,
    title,
    versions,
    what_views_are,
    with_interval,
)

__all__ = ["Origin", "render"]

_MOST_CLASSES = 25  # in a table of confusions
_MOST_TILES = 3  # modes whose components are counted in a tile
_ORDINALS = {2: "nd", 3: "rd"}


@dataclass(frozen=True)
class Origin:
    """Where a model comes from: its file, the file's digest and who wrote it, and the command that made the page.

    Examples
    --------
    >>> from tracelearn.report import Origin
    >>> Origin("model.tracelearn", "0" * 64, "0.1.0", "tracelearn inspect model.tracelearn --html page.html").file
    'model.tracelearn'
    """

    file: str
    sha256: str
    written_by: str
    command: str


@dataclass(frozen=True)
class _Tile:
    """One of the numbers at the top of a page."""

    name: str
    value: str
    note: str


def render(
    facts: ModelFacts, evaluation: Evaluation | None = None, study: Study | None = None, origin: Origin | None = None
) -> str:
    """Make the page of a model."""
    result = None if evaluation is None else evaluation.result
    study = study or (evaluation and evaluation.study) or Study()
    values = {
        "title": title(facts),
        "lead": lead(facts),
        "facts": facts,
        "tiles": _tiles(facts, evaluation),
        "what": _description(facts, study),
        "parameters": [f"{name}={value!r}" for name, value in changed_parameters(facts.predictor).items()],
        "evaluation": evaluation,
        "score": _score(facts, evaluation),
        "confusion": _confusion(result) if isinstance(result, Confusion) else None,
        "views_in_words": what_views_are(facts),
        "weights": _weights(facts),
        "n_drawn": max((len(component.factors) for component in facts.components), default=0),
        "methods": methods(facts, evaluation, study),
        "code": _code(facts, origin),
        "origin": origin,
        "versions": versions(),
        "holds_samples": any(view.has_weights and view.label.startswith("similarities") for view in facts.views),
        "colours": list(enumerate(COLOURS, start=1)),
    }
    return document("model", values, data=numbers(facts, result))


# --- numbers at the top ------------------------------------------------------------------------------------------------


def _tiles(facts: ModelFacts, evaluation: Evaluation | None) -> list[_Tile]:
    return [
        _score_tile(facts, evaluation),
        _size_tile(facts),
        _Tile("duality gap", number(facts.predictor.dual_gap_, 2), "proven distance from the optimum"),
        _strength_tile(facts),
    ]


def _score_tile(facts: ModelFacts, evaluation: Evaluation | None) -> _Tile:
    """Choose the score that says most: its name, its value, and how sure it is."""
    if evaluation is not None:
        name, _, guess, baseline = evaluation.result.headline
        folds = evaluation.folds
        if folds is not None:
            mean, error = rounded(folds.mean, folds.standard_error)
            return _Tile(
                f"{name} on {folds.count} held-out folds", mean, f"± {error}; {guess} alone {signed(folds.baseline)}"
            )
        value, interval = with_interval(evaluation.result)
        note = f"{f'95 % interval {interval}; ' if interval else ''}{guess} alone {signed(baseline)}"
        return _Tile(f"{name} on {evaluation.result.total:,} samples", value, note)
    if facts.chosen is None:
        return _Tile("score", "unknown", "no data were given")
    mean, error = rounded(facts.chosen.score, facts.chosen.error)
    return _Tile(f"{facts.chosen.quantity}, {facts.chosen.n_folds} folds", mean, f"± {error}")


def _size_tile(facts: ModelFacts) -> _Tile:
    """Say how simple the model is."""
    if facts.weighs_views:
        used = sum(view.has_weights for view in facts.views)
        return _Tile("views of a sample", str(used), f"of {len(facts.views)} that were compared")
    if not facts.has_components:
        return _Tile("entries of a sample", f"{facts.shape[0]:,}", f"in one mode, {facts.modes[0].name}")
    counts = [str(component.carrying) for component in facts.components[:_MOST_TILES]]
    ellipsis = " · …" if len(facts.components) > _MOST_TILES else ""
    sizes = times([len(component.mode.values) for component in facts.components])
    name = "components that carry 99 %" + (", in each mode" if len(facts.components) > 1 else "")
    return _Tile(name, (" · ".join(counts) or "0") + ellipsis, f"of {sizes or '0'}")


def _strength_tile(facts: ModelFacts) -> _Tile:
    alpha = strength_of(facts)
    if facts.chosen is None:
        by_default = getattr(facts.predictor, "alpha", None) == "auto"
        return _Tile(
            "alpha, strength of the penalty",
            number(alpha),
            "by default, from the samples" if by_default else "as given",
        )
    if alpha == 0.0 and hasattr(facts.predictor, "ridge_"):
        return _Tile("ridge, strength of the penalty", number(facts.predictor.ridge_), "ridge alone scored better")
    return _Tile("alpha, strength of the penalty", number(alpha), "chosen by cross-validation")


# --- sections ----------------------------------------------------------------------------------------------------------


def _description(facts: ModelFacts, study: Study) -> dict[str, str]:
    """List what the model is, by name; of its parameters the fitted values, such as ``ridge_``, where a search chose them."""
    predictor = facts.predictor
    loss = getattr(predictor, "loss_", getattr(predictor, "loss", None))
    ridge = float(getattr(predictor, "ridge_", getattr(predictor, "ridge", 0.0)))
    mode_weights = getattr(predictor, "mode_weights_", getattr(predictor, "mode_weights", None))
    alpha = strength_of(facts)
    penalty = in_words(predictor.penalty) + (" trace norm" if isinstance(predictor.penalty, str) else "")
    penalty = penalty if alpha else "squared norm"
    strengths = (f"alpha = {number(alpha, 4)}, " if alpha else "") + f"ridge = {number(ridge, 4)}"
    if mode_weights is not None:
        strengths += f", mode weights {', '.join(f'{weight:g}' for weight in np.ravel(mode_weights))}"
    if getattr(predictor, "scaling", None) is not None:
        strengths += ", samples divided by a scale for each mode"
    rows = {
        "estimator": type(predictor).__name__,
        "steps before it": listed(facts.before),
        "sample": f"{times(facts.shape)} ({' × '.join(mode.label for mode in facts.modes)})",
        "aligned by group": facts.alignment,
        "completed": facts.completed,
        "classes": "" if facts.classes is None else f"{len(facts.classes)}: {listed(facts.classes, 40)}",
        "targets": listed(facts.targets, 40) if facts.names_targets else "",
        "confounds": _confounds(facts, study),
        "learned from": "" if facts.n_samples is None else f"samples of total weight {facts.n_samples:,g}",
        "loss": in_words("squared_error" if loss is None else loss),
        "penalty": f"{penalty}, {strengths}",
    }
    return {name: value for name, value in rows.items() if value}


def _confounds(facts: ModelFacts, study: Study) -> str:
    """Name what was regressed out of the samples, or count it."""
    count = facts.n_confounds
    return f"{listed(study.confounds) or f'{count} for each sample'}, regressed out" if count else ""


def _score(facts: ModelFacts, evaluation: Evaluation | None) -> dict[str, Any]:
    """Gather the scores as the template shows them: those of cross-validation, of held-out folds and of new samples."""
    score: dict[str, Any] = {"cv": None, "folds": None, "rmse": "", "n_shown": 0}
    if facts.chosen is not None:
        mean, error = rounded(facts.chosen.score, facts.chosen.error)
        score["cv"] = {"mean": mean, "error": error, "corrected": hasattr(facts.predictor, "raw_score_")}
    if evaluation is not None:
        score["value"], score["interval"] = with_interval(evaluation.result)
        if evaluation.folds is not None:
            mean, error = rounded(evaluation.folds.mean, evaluation.folds.standard_error)
            score["folds"] = {"mean": mean, "error": error, "count": evaluation.folds.count}
    if evaluation is not None and not isinstance(evaluation.result, Confusion):
        score["rmse"] = ", ".join(number(float(value)) for value in evaluation.result.rmse)
        score["n_shown"] = evaluation.result.points().total
    return score


def _confusion(result: Confusion) -> dict[str, Any]:
    """Gather the table of confusions, or of many classes the most frequent ones."""
    shares = result.shares
    if len(result.labels) <= _MOST_CLASSES:
        rows = []
        for i, label in enumerate(result.labels):
            cells = [
                {"count": int(result.counts[i, j]), "share": float(shares[i, j]), "right": i == j}
                for j in range(len(result.labels))
            ]
            rows.append({"label": label, "cells": cells})
        return {"labels": result.labels, "rows": rows, "frequent": None}
    wrong = result.counts * (1 - np.eye(len(result.labels), dtype=int))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CLASSES]
    frequent = [
        {"true": result.labels[i], "predicted": result.labels[j], "count": int(wrong[i, j]), "share": shares[i, j]}
        for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True)
        if wrong[i, j]
    ]
    return {"labels": result.labels, "rows": [], "frequent": frequent}


def _weights(facts: ModelFacts) -> dict[str, Any]:
    """Gather what stands around the drawing of weights and patterns."""
    weights = facts.weights
    drawn = image_modes(weights)
    sliders = [
        {"n": n, "name": mode.name, "last": len(mode.values) - 1}
        for n, mode in enumerate(weights.modes)
        if n not in drawn and len(mode.values) > 1
    ]
    thinned = [
        f"every {step}{_ORDINALS.get(step, 'th')} entry of {mode.name}"
        for mode, step in zip(weights.modes, weights.steps, strict=True)
        if step > 1
    ]
    return {
        "are_drawn": bool(np.any(weights.coef)),
        "have_patterns": weights.patterns is not None,
        "sliders": sliders,
        "thinned": " and ".join(thinned),
        "is_image": len(weights.modes) > 1,
    }


def _code(facts: ModelFacts, origin: Origin | None) -> str:
    """Write the lines that load the model, and fit it again."""
    is_pipeline = hasattr(facts.model, "steps")
    steps = [step for _, step in facts.model.steps] if is_pipeline else [facts.model]
    names = {type(step).__name__ for step in steps} | ({"load"} if origin else set())
    shape = ", ".join(map(str, facts.shape))
    lines = ["from sklearn.pipeline import Pipeline"] if is_pipeline else []
    lines += [f"from tracelearn import {', '.join(sorted(names))}", ""]
    if origin is not None:
        lines.append(f"model = load({origin.file!r})  # this very model")
    lines.append(f"again = {facts.model.__repr__(N_CHAR_MAX=10**6)}")
    groups = ", groups=groups" if facts.alignment else ""
    lines.append(f"again.fit(X, y{groups})  # X of shape (n, {shape})")
    return "\n".join(lines)
