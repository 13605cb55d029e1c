"""Probabilities from scores: a slope and an offset for each class, learned on held-out scores and shrunk towards the prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from tracelearn.arrays.array_api import Array, array_namespace, move_to
from tracelearn.losses import softmax

__all__ = ["Calibration", "calibrate"]

# The slope is shrunk by how much its log-likelihood on n held-out samples exceeds ``_CHANCE + _CHANCE_OF_FEW / n``, which the
# best of several paths gains on pure noise.
_CHANCE = 3.5
_CHANCE_OF_FEW = 20.0

# Two priors, so that a few samples cannot give extreme probabilities: pseudo-observations of each class at the mean score, at
# most two in all classes, and a ridge on the slope (in standard deviations of the scores) that weighs as much as so many samples.
_IMAGINED = 1.0
_SLOPE_PULL = 0.2

# Offsets of more classes than this say little, and take long to find.
_MOST_OFFSETS = 100

_LEAST_SLOPE = 1e-3  # in standard deviations of the scores: so that probabilities rank samples as scores do


@dataclass(frozen=True, eq=False)
class Calibration:
    """Probabilities are the softmax of ``slope * scores + offsets``, with a column of scores for each class."""

    slope: float
    offsets: Array  # (n_classes,)

    def log_probabilities(self, scores: Array) -> Array:
        """Turn scores (n, n_classes), or of two classes (n,) for the second, into logarithms of probabilities."""
        xp = array_namespace(scores)
        if scores.ndim == 1:
            scores = xp.stack([-0.5 * scores, 0.5 * scores], axis=1)
        logits = self.slope * scores + move_to(self.offsets, scores, scores.dtype)
        z = xp.matrix_transpose(logits)[None, ...]
        return logits - softmax(z)[0][0, 0, :][:, None]


def calibrate(scores: Array, members: Array, weight: Array) -> Calibration:
    """Learn what makes probabilities of scores.

    The slope is what maximises the likelihood of the held-out classes, times a factor that is zero where it gains no more than
    chance would. Offsets are then fitted again.

    Parameters
    ----------
    scores : array of shape (n, K)
        Held-out scores, a column for each class.
    members : array of shape (n, K)
        One for the true class, else zero.
    weight : array of shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.search.calibration import calibrate
    >>> y = np.repeat([0, 1], [90, 10])
    >>> noise = np.random.default_rng(0).normal(size=(100, 2))
    >>> calibration = calibrate(noise, np.eye(2)[y], np.ones(100))
    >>> np.exp(calibration.log_probabilities(np.zeros((1, 2)))).round(1)
    array([[0.9, 0.1]])
    """
    share = weight / np.sum(weight)
    n = 1.0 / float(np.sum(share**2))  # the effective number of samples: how many of equal weight say as much
    K = scores.shape[1]
    mean = share @ scores
    z = scores - mean
    deviation = float(np.sqrt(np.sum(share @ z**2) / K)) or 1.0
    z = z / deviation
    imagined_share = min(_IMAGINED, 2.0 / K) / n

    def loss(parameters: Array, slope: float | None = None) -> tuple[float, Array]:
        """Return the penalised log-loss and its gradient, at a slope and offsets, or at offsets alone for a fixed ``slope``."""
        factor = parameters[0] if slope is None else slope
        offsets = parameters[-K:]
        logs = log_softmax(factor * z + offsets, axis=1)
        prior = log_softmax(offsets)
        excess = share[:, None] * (np.exp(logs) - members)
        value = -np.sum(share[:, None] * members * logs) - imagined_share * np.sum(prior)
        prior_gradient = imagined_share * (K * np.exp(prior) - 1.0)
        gradient = np.sum(excess, axis=0) + prior_gradient
        if slope is None:
            value += 0.5 * _SLOPE_PULL / n * factor**2
            gradient = np.append(np.sum(excess * z) + _SLOPE_PULL / n * factor, gradient)
        return float(value), gradient

    log_prior = np.log(share @ members + imagined_share)
    if K > _MOST_OFFSETS:
        log_prior = np.zeros(K)
    bounds = [(0.0, None), *[(None, None) if K <= _MOST_OFFSETS else (0.0, 0.0)] * K]
    with_slope = minimize(loss, np.append(1.0, log_prior), jac=True, bounds=bounds)
    without_slope = minimize(loss, log_prior, args=(0.0,), jac=True, bounds=bounds[1:])
    gain = n * (without_slope.fun - with_slope.fun)
    slope = 0.0
    if gain > 0:
        gain_by_chance = _CHANCE + _CHANCE_OF_FEW / n
        slope = float(with_slope.x[0]) * max(0.0, 1.0 - gain_by_chance / gain)
    slope = max(slope, _LEAST_SLOPE)
    offsets = minimize(loss, with_slope.x[1:], args=(slope,), jac=True, bounds=bounds[1:]).x
    return Calibration(slope / deviation, log_softmax(offsets) - slope / deviation * mean)
