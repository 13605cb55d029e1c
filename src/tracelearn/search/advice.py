"""What a search warns of: samples that mislead it, and models that are no better than none."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse, move_to, to_numpy
from tracelearn.errors import warn
from tracelearn.fitting import Fitted, ZeroWeightsWarning
from tracelearn.search.choice import Choice
from tracelearn.search.data import SearchData
from tracelearn.search.folds import Folds
from tracelearn.search.task import Task

__all__ = ["warn_of_choice", "warn_of_copies_and_outliers", "warn_of_rising_end"]

# A sample whose largest distance from the first one is so many times the usual one is worth a warning.
_OUTLYING = 1e4


def warn_of_copies_and_outliers(data: SearchData, folds: Folds, order: Array) -> None:
    """Warn where folds hold out exact copies of training samples, or where an entry is far from all others."""
    if is_sparse(data.searched.rows):
        return
    xp, rows = array_namespace(data.searched.rows), data.searched.rows
    first, second = order[:-1], order[1:]
    held_apart = np.any(folds.held_out[:, first] & folds.training[:, second], axis=0)
    # In order, copies are neighbours; few entries tell most pairs apart.
    some = to_numpy(rows[:, :: max(1, rows.shape[1] // 16)])
    likely = np.flatnonzero(held_apart & np.all(some[first] == some[second], axis=1))
    copies = []
    for place in likely.tolist():
        pair = move_to(np.array([first[place], second[place]]), rows)
        both = xp.take(rows, pair, axis=0)
        if bool(xp.all(both[0, :] == both[1, :])):
            copies.append(sorted((int(data.index[first[place]]), int(data.index[second[place]]))))
    if copies:
        listed = ", ".join(f"{one} and {other}" for one, other in copies[:3])
        warn(
            f"Expected different samples, got {len(copies)} exact copies in different folds, such as samples {listed}: held-out "
            "scores are too good, so drop copies, or pass groups that hold them together."
        )
    distances = np.array([_largest_distance(rows[k, :], rows[0, :]) for k in range(rows.shape[0])])
    usual = float(np.median(distances))
    far = int(np.argmax(distances))
    if usual > 0 and distances[far] > _OUTLYING * usual:
        entry = int(xp.argmax(xp.abs(rows[far, :] - rows[0, :])))
        entry_place = ", ".join(map(str, np.unravel_index(entry, data.spec.sample_shape)))
        warn(
            f"Expected entries of one scale, got one that is {distances[far] / usual:.0e} times as far from the others as is "
            f"usual: entry ({entry_place}) of sample {int(data.index[far])}; correct it, or leave the sample out."
        )


def _largest_distance(row: Array, other: Array) -> float:
    return float(array_namespace(row).max(array_namespace(row).abs(row - other)))


def warn_of_choice(model: Any, choice: Choice, fitted: Fitted, task: Task) -> None:
    """Warn where scores say little, where the model is worse than none, or where what selects still rises to an end."""
    name, path, point, targets = type(model).__name__, choice.path, choice.point, task.targets
    lost = np.flatnonzero(np.any(np.isnan(path.scores), axis=0)).tolist()
    if lost and len(lost) == path.scores.shape[1]:
        raise ValueError(f"Expected a score that is a number on some fold, got NaN on all, with {model.scoring!r}.")
    if lost:
        warn(
            f"Expected a score on every fold, got NaN on folds {lost}, which are left out: they may lack a class, so stratify "
            "the folds or use fewer.",
            UndefinedMetricWarning,
        )
    if not targets.are_classes and targets.scorer is None and not np.any(path.scores):
        warn(
            "Expected folds whose targets vary, got an R² of zero on all: best_score_ and score_path_ say nothing, as with one "
            "sample in each fold, though alpha was chosen by all held-out predictions together, so use larger folds.",
            UndefinedMetricWarning,
        )
    if not bool(array_namespace(fitted.coef).any(fitted.coef != 0)):
        warn(
            "Expected some weights that are not zero, got none: on held-out folds no alpha that was tried predicts better "
            "than no weights at all, so the samples may say nothing about the targets, or be too few.",
            ZeroWeightsWarning,
        )
        return
    if targets.scorer is None:
        _warn_of_score(name, choice, task)
    if point == path.best and path.kind != "logistic":
        strength, values = ("alpha", path.alphas) if path.kind == "trace norm" else ("ridge", path.ridges)
        warn_of_rising_end(path.end, strength, float(values[point]))


def warn_of_rising_end(end: str, strength: str, value: float) -> None:
    """Warn where the best strength is the "largest" or "smallest" that was tried, and scores still rise towards it.

    Parameters
    ----------
    end : as ``Path.end`` gives it; empty where there is nothing to warn of
    strength : "alpha" or "ridge"
    value : the best strength; at zero there is nothing smaller to try
    """
    if not end or value <= 0:
        return
    advice = "larger ones" if end == "largest" else "smaller ones"
    if end == "smallest" and strength == "alpha":
        advice += ", by eps or alphas"
    warn(
        f"Expected the best {strength} among others, got the {end} that was tried, {value:.3g}, and the score still rises "
        f"towards it: try {advice}."
    )


def _warn_of_score(name: str, choice: Choice, task: Task) -> None:
    """Warn where held-out scores are no better than those of no model at all."""
    path, point, targets = choice.path, choice.point, task.targets
    if not targets.are_classes:
        if path.means[point] <= 0.0:
            warn(
                f"Expected a held-out R² above zero, got {path.means[point]:.2g}: {name} predicts new samples no better than the "
                "mean of the targets does, so do not rely on it."
            )
        return
    split = choice.split
    codes = to_numpy(split.targets.codes)
    labels = (codes[:, 0] > 0).astype(int) if codes.shape[1] == 1 else np.argmax(codes, axis=1)
    tests = np.concatenate([test for _, test in split.folds.splits])
    scores = np.concatenate([to_numpy(part) for part in path.held_out])
    if choice.class_map is not None:
        between = to_numpy(choice.class_map)
        scores = scores @ between[:-1] + between[-1]
    predicted = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else np.argmax(scores, axis=1)
    weight = to_numpy(split.targets.weight)[tests]
    never = np.setdiff1d(labels[tests], predicted).tolist()
    share = float(np.sum(weight * (predicted == labels[tests])) / np.sum(weight))
    prior = float(np.max(np.bincount(labels[tests], weights=weight)) / np.sum(weight))
    if never:
        listed = ", ".join(repr(to_numpy(task.classes).tolist()[k]) for k in never[:5])
        warn(
            f"Expected every class to be predicted for some held-out sample, got none of {listed}: rank samples by "
            "predict_proba, or weigh classes alike by class_weight='balanced'."
        )
    elif share <= prior:
        warn(
            f"Expected a held-out accuracy above the share of the largest class, {prior:.2f}, got {share:.2f}: {name} finds the "
            "classes of new samples no better than by that guess."
        )
