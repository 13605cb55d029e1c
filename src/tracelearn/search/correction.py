"""The score of what was chosen, corrected for the choice: the best of many is best by luck as well.

Held-out samples are drawn with replacement. The model that is best on a draw is scored on the samples that the draw leaves out.
The mean difference of both scores is the optimism, which is subtracted (Tsamardinos, Greasidou and Borboudakis, 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sklearn.utils import check_random_state

from tracelearn.arrays.array_api import Array, is_sparse, to_numpy
from tracelearn.search.choice import Choice
from tracelearn.search.folds import Folds
from tracelearn.search.paths import Path
from tracelearn.search.splits import Targets, predicted_class
from tracelearn.search.task import Task

__all__ = ["corrected_score", "optimism", "standard_error"]

_DRAWS = 200


def corrected_score(choice: Choice, task: Task) -> tuple[float, float]:
    """Find what the chosen model is worth on new samples, and the standard error of that.

    The score is that of all held-out samples together. It is corrected for the choice among all points of all paths, unless
    the point was chosen for its simplicity, not since it was the best.
    """
    path, point = choice.path, choice.point
    targets, folds = choice.targets, choice.folds
    n_samples = folds.n_samples
    if task.targets.scorer is not None or n_samples != task.folds.n_samples:
        return float(path.means[point]), float(path.errors[point])
    weight = to_numpy(targets.weight)
    walked = [tried.path for tried in choice.all_tried] + [trial.path for trial in choice.screened]
    tables = [walked_path.outcomes for walked_path in walked if walked_path.outcomes.shape[1] == n_samples]
    luck = optimism(tables, weight, task.groups) if point == path.best else 0.0
    outcomes = path.outcomes[point]
    has_moments = targets.loss.has_moments and not is_sparse(task.samples.rows)
    fits_codes = targets.are_classes and has_moments and not choice.is_logistic
    if task.groups is not None and fits_codes and task.targets.fit_intercept and point == path.best:
        outcomes = _outcomes_about_common_mean(path, targets, folds)
    judged = ~np.isnan(outcomes)
    score = float(np.average(outcomes[judged], weights=weight[judged]))
    # Training samples vary between studies as well as held-out ones, and folds share them: the correction of Nadeau and Bengio
    # (2003).
    n_judged = np.count_nonzero(judged)
    n_training = np.mean([len(train) for train, _ in folds.splits])
    error = math.sqrt(1.0 + n_judged / n_training) * standard_error(outcomes, weight, task.groups)
    if task.targets.are_classes:  # an accuracy of one on few samples is no certainty
        error = max(error, 1.0 / n_judged)
    return score - luck, math.hypot(error, luck / 2.0)


def _outcomes_about_common_mean(path: Path, targets: Targets, folds: Folds) -> Array:
    """Find how often (n,) the models at the best point classify each held-out sample rightly, with corrected intercepts.

    Where each group has one label, folds that hold groups out whole cannot be stratified. The classes that a fold holds out are
    rarer in its training part than in all samples, and its intercept favours the others. So intercepts are moved by the
    difference of the mean codes in the training part and in all samples.
    """
    codes = to_numpy(targets.codes)
    weight = to_numpy(targets.weight)
    mean = np.average(codes, axis=0, weights=weight)
    right = np.zeros(len(codes))
    for (train, test), scores in zip(folds.splits, path.held_out, strict=True):
        common = to_numpy(scores) + mean - np.average(codes[train], axis=0, weights=weight[train])
        right[test] += predicted_class(common) == predicted_class(codes[test])
    times = np.sum(folds.held_out, axis=0)
    return np.where(times > 0, right / np.maximum(times, 1), np.nan)


def standard_error(outcomes: Array, weight: Array, groups: Array | None = None) -> float:
    """Find the standard error of the weighted mean of outcomes (n,), where groups are drawn whole; NaN is left out.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.search.correction import standard_error
    >>> standard_error(np.array([0.0, 1.0, 1.0, 0.0, np.nan]), np.ones(5))
    0.28867513459481287
    """
    judged = ~np.isnan(outcomes)
    weight = weight[judged]
    deviations = weight * (outcomes[judged] - np.average(outcomes[judged], weights=weight))
    if groups is not None:
        deviations = np.bincount(np.unique(groups[judged], return_inverse=True)[1], weights=deviations)
    n = len(deviations)
    return math.sqrt(n / max(1, n - 1) * np.sum(deviations**2)) / float(np.sum(weight))


def optimism(outcomes: Sequence[Array], weight: Array, groups: Array | None = None, random_state: object = 0) -> float:
    """Find by how much the best held-out score exceeds the expected score on new samples, since it was chosen as the best.

    Parameters
    ----------
    outcomes : arrays of shape (A, n)
        What each held-out sample adds to the score of each model that was tried; NaN where it was not held out.
    weight : array of shape (n,)
    groups : array of shape (n,), default=None
        Which samples are drawn together.
    random_state : int, RandomState or None, default=0
    """
    table = np.concatenate(list(outcomes))
    judged = ~np.any(np.isnan(table), axis=0)
    if np.count_nonzero(judged) < 2:
        return 0.0
    table = np.unique(table[:, judged], axis=0)
    weight = weight[judged]
    # The best model on all samples comes first, so that it wins ties on a draw.
    table = table[np.argsort(-(table @ weight), kind="stable")]
    totals = table * weight
    weights = weight
    if groups is not None:  # sums over groups, which are drawn whole
        units = np.unique(groups[judged], return_inverse=True)[1]
        totals = np.stack([np.bincount(units, weights=row) for row in totals])
        weights = np.bincount(units, weights=weight)
    n_units = len(weights)
    if n_units < 2:
        return 0.0
    random = check_random_state(random_state)
    counts = random.multinomial(n_units, np.full(n_units, 1.0 / n_units), size=_DRAWS).T.astype(float)
    counts = counts[:, np.any(counts == 0, axis=0)]
    left_out = (counts == 0).astype(float)
    scores_on_draws = (totals @ counts) / (weights @ counts)
    best = np.argmax(scores_on_draws, axis=0)
    draws = np.arange(counts.shape[1])
    scores_left_out = (totals @ left_out) / (weights @ left_out)
    return float(np.mean(scores_left_out[0] - scores_left_out[best, draws]))
