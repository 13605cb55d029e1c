"""The score of what was chosen, corrected for the choice: the best of many is best by luck as well.

Held-out samples are drawn with replacement, the best of all models on the draw is chosen, and judged by the samples that the draw
leaves out (Tsamardinos, Greasidou and Borboudakis, 2018): by so much as these scores are lower is the best one better by luck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sklearn.utils import check_random_state

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.search.choice import Choice
from tracelearn.search.task import Task

__all__ = ["corrected_score", "optimism"]

_DRAWS = 200


def corrected_score(choice: Choice, task: Task) -> tuple[float, float]:
    """Find what the chosen model is worth on new samples, and the standard error of that.

    The score is that of all held-out samples together. It is corrected for the choice among all points of all paths, unless
    the point was chosen for its simplicity, not since it was the best.
    """
    path, point = choice.path, choice.point
    n_samples = choice.split.folds.n_samples
    if task.targets.scorer is not None or n_samples != task.folds.n_samples:
        return float(path.means[point]), float(path.errors[point])
    weight = to_numpy(choice.split.targets.weight)
    outcomes = path.outcomes[point]
    judged = ~np.isnan(outcomes)
    score = float(np.average(outcomes[judged], weights=weight[judged]))
    walked = [tried.path for tried in choice.all_tried] + [trial.path for trial in choice.screened]
    tables = [other.outcomes for other in walked if other.outcomes.shape[1] == n_samples]
    bias, spread = optimism(tables, weight, task.groups)
    if point != path.best:
        bias = 0.0
    error = spread
    if (
        task.targets.are_classes
    ):  # an R² of a small fold says little; where all samples are right, the next one may be wrong
        error = max(error, float(path.errors[point]), 1.0 / np.count_nonzero(judged))
    return score - bias, math.hypot(error, bias / 2.0)


def optimism(
    outcomes: Sequence[Array], weight: Array, groups: Array | None = None, random_state: object = 0
) -> tuple[float, float]:
    """Find by how much the best held-out score exceeds what it is worth, and the standard error of the best model's score.

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
        return 0.0, 0.0
    table = np.unique(table[:, judged], axis=0)
    weight = weight[judged]
    # Of models that are as good on a draw, the first is chosen: the best on all samples.
    table = table[np.argsort(-(table @ weight), kind="stable")]
    totals = table * weight
    weights = weight
    if groups is not None:  # sums over groups, which are drawn whole
        units = np.unique(groups[judged], return_inverse=True)[1]
        totals = np.stack([np.bincount(units, weights=row) for row in totals])
        weights = np.bincount(units, weights=weight)
    n_units = len(weights)
    if n_units < 2:
        return 0.0, 0.0
    random = check_random_state(random_state)
    counts = random.multinomial(n_units, np.full(n_units, 1.0 / n_units), size=_DRAWS).T.astype(float)
    counts = counts[:, np.any(counts == 0, axis=0)]
    left_out = (counts == 0).astype(float)
    scores_on_draws = (totals @ counts) / (weights @ counts)
    best = np.argmax(scores_on_draws, axis=0)
    draws = np.arange(counts.shape[1])
    scores_left_out = (totals @ left_out) / (weights @ left_out)
    luck = np.mean(scores_left_out[0] - scores_left_out[best, draws])
    return float(luck), float(np.std(scores_on_draws[0]))
