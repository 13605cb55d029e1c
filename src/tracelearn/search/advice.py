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
from tracelearn.search.softmax import mapped_scores
from tracelearn.search.splits import predicted_class
from tracelearn.search.task import Task

__all__ = ["PoorModelWarning", "warn_of_choice", "warn_of_copies_and_outliers", "warn_of_rising_end"]

_OUTLYING = 1e4  # an entry is an outlier if its distance from the median is so many times that of an ordinary sample
_FEWEST_REFERENCES = 20  # at least so many samples, if there are as many, have a median that outliers hardly move
_ENTRIES = 1 << 20  # of the samples in one block, whose distances are computed together


class PoorModelWarning(UserWarning):
    """What a search chose is no better on held-out samples than a simpler model, or than none."""


def warn_of_copies_and_outliers(data: SearchData, folds: Folds, order: Array) -> None:
    """Warn where folds hold out exact copies of training samples, or where an entry is far from all others."""
    if is_sparse(data.searched.rows):
        return
    xp = array_namespace(data.searched.rows)
    rows = data.searched.rows
    first, second = order[:-1], order[1:]
    held_apart = np.any(folds.held_out[:, first] & folds.training[:, second], axis=0)
    # The order sorts samples by their values: copies are neighbours. A few entries rule out most pairs before all are compared.
    few_entries = to_numpy(rows[:, :: max(1, rows.shape[1] // 16)])
    candidates = np.flatnonzero(held_apart & np.all(few_entries[first] == few_entries[second], axis=1))
    copies = []
    for place in candidates.tolist():
        pair = move_to(np.array([first[place], second[place]]), rows)
        sample = xp.take(rows, pair[:1], axis=0)
        neighbour = xp.take(rows, pair[1:], axis=0)
        if bool(xp.all(sample == neighbour)):
            copies.append(sorted((int(data.index[first[place]]), int(data.index[second[place]]))))
    if copies:
        examples = ", ".join(f"{first_copy} and {second_copy}" for first_copy, second_copy in copies[:3])
        warn(
            f"Expected different samples, got {len(copies)} exact copies in different folds, such as samples {examples}: "
            "held-out scores are too good, so drop copies, or pass groups that hold them together."
        )
    _warn_of_outlier(data)


def _warn_of_outlier(data: SearchData) -> None:
    """Warn of the largest outlier: the distance of a sample is that of its farthest entry from the median of this entry.

    The medians are those of a regular subset of the samples.
    """
    rows = data.searched.rows
    xp = array_namespace(rows)
    n, p = rows.shape
    references = rows[:: max(1, n // _FEWEST_REFERENCES), :]
    median = xp.sort(references, axis=0)[references.shape[0] // 2, :]
    step = max(1, _ENTRIES // p)
    blocks = [rows[start : min(start + step, n), :] for start in range(0, n, step)]
    largest = [xp.max(xp.abs(block - median), axis=1) for block in blocks]
    distances = to_numpy(xp.concat(largest))
    usual = float(np.median(distances))
    far = int(np.argmax(distances))
    if usual > 0 and distances[far] > _OUTLYING * usual:
        entry = int(xp.argmax(xp.abs(rows[far, :] - median)))
        entry_place = ", ".join(map(str, np.unravel_index(entry, data.spec.sample_shape)))
        warn(
            f"Expected entries of one scale, got one that is {distances[far] / usual:.0e} times as far from the others as is "
            f"usual: entry ({entry_place}) of sample {int(data.index[far])}; correct it, or leave the sample out."
        )


def warn_of_choice(model: Any, choice: Choice, fitted: Fitted, task: Task) -> None:
    """Warn where folds have no usable score, where the model is hardly better than none, or where a wider grid may be better."""
    name = type(model).__name__
    path, point = choice.path, choice.point
    targets = task.targets
    folds_without_score = np.flatnonzero(np.any(np.isnan(path.scores), axis=0)).tolist()
    if len(folds_without_score) == path.scores.shape[1]:
        raise ValueError(f"Expected a score that is a number on some fold, got NaN on all, with {model.scoring!r}.")
    if folds_without_score:
        warn(
            f"Expected a score on every fold, got NaN on folds {folds_without_score}, which are left out: they may "
            "lack a class, so stratify the folds or use fewer.",
            UndefinedMetricWarning,
        )
    if not targets.are_classes and targets.scorer is None and not np.any(path.scores):
        warn(
            "Expected folds whose targets vary, got an R² of zero on all: score_path_ and raw_score_ say nothing, as with one "
            "sample in each fold; best_score_ is that of all held-out predictions together, so rely on it, or use larger folds.",
            UndefinedMetricWarning,
        )
    if not bool(array_namespace(fitted.coef).any(fitted.coef != 0)):
        warn(
            "Expected some weights that are not zero, got none: on held-out folds no alpha that was tried predicts better "
            "than no weights at all, so the samples may say nothing about the targets, or be too few.",
            ZeroWeightsWarning,
        )
        return
    if targets.scorer is None and targets.are_classes:
        _warn_of_accuracy(name, choice, task.classes)
    elif targets.scorer is None:
        _warn_of_r_squared(name, model.best_score_)
    if targets.scorer is None:
        _warn_of_plain_ridge(choice)
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
    if strength == "ridge":  # a search has no parameter for these
        advice += " by cross-validation of linear_estimator().set_params(ridge=...) on joined_views(X)"
    else:
        advice += ", by alphas" if end == "largest" else ", by eps or alphas"
    warn(
        f"Expected the best {strength} among others, got the {end} that was tried, {value:.3g}, and the score still rises "
        f"towards it: try {advice}."
    )


def _warn_of_r_squared(name: str, r_squared: float) -> None:
    """Warn where predicted numbers are no better than the mean of the targets."""
    if r_squared <= 0.0:
        warn(
            f"Expected a held-out R² above zero, got {r_squared:.2g}: {name} predicts new samples no better than the mean of the "
            "targets does, so do not rely on it.",
            PoorModelWarning,
        )


def _warn_of_plain_ridge(choice: Choice) -> None:
    """Warn where other views are no better on the same held-out samples than ridge regression on the samples as they are."""
    outcomes = choice.path.outcomes[choice.point]
    plain = {trial.candidate.name: trial.path for trial in choice.screened if trial.candidate.transformer is None}
    comparable = [path for name, path in plain.items() if choice.blend.names != (name,)]
    if not comparable or comparable[0].outcomes.shape[1] != len(outcomes):
        return
    outcomes_of_ridge = comparable[0].outcomes[comparable[0].best]
    judged = ~np.isnan(outcomes) & ~np.isnan(outcomes_of_ridge)
    weight = to_numpy(choice.targets.weight)[judged]
    score = float(np.average(outcomes[judged], weights=weight))
    score_of_ridge = float(np.average(outcomes_of_ridge[judged], weights=weight))
    if score_of_ridge >= score:
        warn(
            f"Expected {choice.blend} to predict better than ridge regression on the samples as they are, got held-out scores of "
            f"{score:.3f} and {score_of_ridge:.3f}: views=None gives a simpler model that is as good.",
            PoorModelWarning,
        )


def _warn_of_accuracy(name: str, choice: Choice, classes: Any) -> None:
    """Warn where some class is never predicted, or where predicting the largest class is as accurate."""
    targets = choice.targets
    tests = np.concatenate([test for _, test in choice.folds.splits])
    labels = to_numpy(predicted_class(targets.codes))[tests].astype(int)
    predicted_by_folds = []
    for scores in choice.path.held_out:
        predicted_by_folds.append(predicted_class(mapped_scores(to_numpy(scores), choice.class_map)))
    predicted = np.concatenate(predicted_by_folds).astype(int)
    weight = to_numpy(targets.weight)[tests]
    accuracy = float(np.sum(weight * (predicted == labels)) / np.sum(weight))
    share_of_largest = float(np.max(np.bincount(labels, weights=weight)) / np.sum(weight))
    never_predicted = np.setdiff1d(labels, predicted).tolist()
    if never_predicted:
        names = ", ".join(repr(to_numpy(classes).tolist()[k]) for k in never_predicted[:5])
        warn(
            f"Expected every class to be predicted for some held-out sample, got none of {names}: rank samples by "
            "predict_proba, or weigh classes alike by class_weight='balanced'.",
            PoorModelWarning,
        )
    elif accuracy <= share_of_largest:
        warn(
            f"Expected a held-out accuracy above the share of the largest class, {share_of_largest:.2f}, got {accuracy:.2f}: "
            f"{name} finds the classes of new samples no better than by that guess.",
            PoorModelWarning,
        )
