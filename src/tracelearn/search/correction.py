"""The score of what was chosen, corrected for the choice: the best of many is best by luck as well.

Held-out outcomes are drawn with replacement, and the best of all models on the draw is chosen (after Tsamardinos, Greasidou and
Borboudakis, 2018). What it is better by on the draw than on all samples is luck of the draw. The luck of the samples themselves
is larger by the root of two: outcomes on a draw vary by both, and both have the same variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sklearn.utils import check_random_state

from tracelearn.arrays.array_api import Array

__all__ = ["optimism"]

_DRAWS = 200


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
    random = check_random_state(random_state)
    counts = random.multinomial(n_units, np.full(n_units, 1.0 / n_units), size=_DRAWS).T.astype(float)
    on_draws = (totals @ counts) / (weights @ counts)
    on_all = np.sum(totals, axis=1) / np.sum(weights)
    best = np.argmax(on_draws, axis=0)
    luck = on_draws[best, np.arange(_DRAWS)] - on_all[best]
    return math.sqrt(2.0) * float(np.mean(luck)), float(np.std(on_draws[0]))
