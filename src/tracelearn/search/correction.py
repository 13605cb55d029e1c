"""The score of what was chosen, corrected for the choice: the best of many is best by luck as well.

The bootstrap of held-out outcomes (Tsamardinos, Greasidou and Borboudakis, 2018): samples are drawn with replacement, the best
of all models on them is chosen, and judged by the samples that were not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.utils import check_random_state

from tracelearn.arrays.array_api import Array

__all__ = ["optimism"]

_DRAWS = 200


def optimism(
    outcomes: Sequence[Array], weight: Array, groups: Array | None = None, random_state: object = 0
) -> tuple[float, float]:
    """Find by how much the best held-out score exceeds what it is worth, and the standard deviation of the latter.

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
    table, weight = np.unique(table[:, judged], axis=0), weight[judged]
    # Of models that are as good on a draw, the first is chosen: the best on all samples.
    table = table[np.argsort(-(table @ weight), kind="stable")]
    totals, weights = table * weight, weight
    if groups is not None:  # sums over groups, which are drawn whole
        units = np.unique(groups[judged], return_inverse=True)[1]
        totals = np.stack([np.bincount(units, weights=row) for row in totals])
        weights = np.bincount(units, weights=weight)
    n_units = len(weights)
    random = check_random_state(random_state)
    counts = random.multinomial(n_units, np.full(n_units, 1.0 / n_units), size=_DRAWS).T.astype(float)
    drawn, left = weights @ counts, weights @ (counts == 0)
    usable = left > 0
    if not np.any(usable):
        return 0.0, 0.0
    inside = (totals @ counts)[:, usable] / drawn[usable]
    outside = (totals @ (counts == 0))[:, usable] / left[usable]
    best = np.argmax(inside, axis=0)[None, :]
    gaps = np.take_along_axis(inside, best, axis=0) - np.take_along_axis(outside, best, axis=0)
    return float(np.mean(gaps)), float(np.std(np.take_along_axis(inside, best, axis=0)))
