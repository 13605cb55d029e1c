"""Held-out scores of classes as log-odds: their size, what they say about each other, and softmax regression.

Classes come before samples in what follows: sums over a few classes are then sums of long rows, which take less time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace, move_to, to_numpy
from tracelearn.arrays.linalg import conjugate_gradients
from tracelearn.losses import softmax
from tracelearn.search.folds import Folds
from tracelearn.search.splits import Targets

__all__ = [
    "ClassScores",
    "factors",
    "fit_class_map",
    "log_losses",
    "losses_of_groups",
    "mapped_scores",
    "softmax_regression",
    "stacked_scores",
]

# Ridge on the difference of a map between classes from one factor for all: there are only held-out samples to learn it from.
_PULL = 1e-2

# The most held-out samples, and scores of these, from which a factor or a map is learned: its K^2 entries need no more.
_MOST_HELD = 4000
_MOST_SCORES = 2_000_000

# Newton's method takes at most so many steps, and ends when a step lowers the log-loss by less than this share of it.
_STEPS = 50
_ENOUGH = 1e-6
_NEGLIGIBLE = 1e-12  # a log-loss; of a single class every step lowers it by the same share, without end


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Held-out scores of all classes, of up to some thousand samples."""

    scores: Array  # (n, K), of two classes a column each
    members: Array  # (n, K), one for the true class
    shares: Array  # (F, n), sample weights within each fold, zero for those of other folds; their total is one
    index: Array  # (n,), the numbers of the samples


def stacked_scores(held_out: Sequence[Array], targets: Targets, folds: Folds) -> ClassScores:
    """Join the scores (m, K) of what each fold holds out, thinned to every k-th sample where there are too many."""
    xp = array_namespace(held_out[0])
    max_samples = min(_MOST_HELD, max(100, _MOST_SCORES // targets.codes.shape[1]))
    n_held_out = sum(len(test) for _, test in folds.splits)
    step = math.ceil(n_held_out / max_samples)
    scores = []
    index = []
    fold_of_each = []
    for fold, (_, test) in enumerate(folds.splits):
        rows = np.arange(0, len(test), step)
        scores.append(xp.take(held_out[fold], move_to(rows, held_out[fold]), axis=0))
        index.append(test[rows])
        fold_of_each.append(np.full(len(rows), fold))
    place = move_to(np.concatenate(index), targets.codes)
    z = xp.concat(scores)
    codes = xp.take(targets.codes, place, axis=0)
    if z.shape[1] == 1:
        z = xp.concat([-0.5 * z, 0.5 * z], axis=1)
        codes = xp.concat([-codes, codes], axis=1)
    is_held_out = np.concatenate(fold_of_each) == np.arange(len(folds))[:, None]
    shares = xp.take(targets.weight, place, axis=0) * move_to(is_held_out, z, z.dtype)
    fold_weights = move_to(folds.weights(to_numpy(targets.weight)), z, z.dtype)
    shares = shares * (fold_weights / xp.sum(shares, axis=1))[:, None]
    return ClassScores(z, xp.astype(codes > 0, z.dtype), shares, np.concatenate(index))


def factors(held: ClassScores, shares: Array | None = None) -> Array:
    """Find the factor by which to multiply held-out scores so that their softmax has the smallest log-loss: shape (B,).

    There is one for each row of sample weights ``shares`` (B, n), or a single one (1,) for all samples. A positive factor
    changes no predicted class. Newton's method finds its logarithm; a small ridge on that, ``1e-3 log(factor)^2``, keeps it
    finite where all classes are predicted right.
    """
    xp = array_namespace(held.scores)
    shares = xp.sum(held.shares, axis=0, keepdims=True) if shares is None else shares
    z = xp.matrix_transpose(held.scores)[None, ...]
    score_of_true = xp.sum(held.members * held.scores, axis=1)
    log = xp.zeros_like(shares[:, 0])
    for _ in range(_STEPS):
        size = xp.exp(log)
        P = softmax(size[:, None, None] * z)[1]
        mean = xp.sum(P * z, axis=1)
        slope = size * xp.sum(shares * (mean - score_of_true), axis=1)
        spread = size**2 * xp.sum(shares * (xp.sum(P * z**2, axis=1) - mean**2), axis=1)
        # The second derivative is slope + spread; with |slope| it is positive everywhere, so that every step goes downhill.
        step = xp.clip(-(slope + 2e-3 * log) / (spread + xp.abs(slope) + 2e-3), min=-1.0, max=1.0)
        log = log + step
        if bool(xp.all(xp.abs(step) < 1e-6)):
            break
    return xp.exp(log)


def log_losses(held: ClassScores, size: float | None = None) -> Array:
    """Find the mean log-loss (F,) of each fold for scores multiplied by ``size``; None is the best one, see ``factors``."""
    xp = array_namespace(held.scores)
    return to_numpy(held.shares @ _losses_of_samples(held, size) / xp.sum(held.shares, axis=1))


def losses_of_groups(held: ClassScores, groups: Array) -> Array:
    """Find the mean log-loss of each group, of scores times the best factor; NaN for a group that no fold holds out.

    Parameters
    ----------
    held : ClassScores
    groups : array of shape (n_samples,), the number of the group of each sample, whether it was held out or not
    """
    share = np.sum(to_numpy(held.shares), axis=0)
    n_groups = int(groups.max()) + 1
    losses = np.bincount(groups[held.index], share * to_numpy(_losses_of_samples(held)), n_groups)
    with np.errstate(invalid="ignore"):
        return np.asarray(losses / np.bincount(groups[held.index], share, n_groups))


def _losses_of_samples(held: ClassScores, size: float | None = None) -> Array:
    """Find the log-loss (n,) of each sample for scores multiplied by ``size``; None is the best one, see ``factors``."""
    xp = array_namespace(held.scores)
    size = float(factors(held)[0]) if size is None else size
    z = size * held.scores
    return softmax(z)[0][:, 0] - xp.sum(held.members * z, axis=1)


def fit_class_map(held: ClassScores) -> tuple[Array, Array]:
    """Learn a map between classes (K + 1, K), offsets in the last row: softmax regression on held-out scores of all classes.

    With the squared loss, one class against all others, a class that lies between others never has the largest score; a map
    of all scores predicts it again. A penalty draws the map to one factor for all classes, which changes no predicted class.
    Also returns the log-loss of each fold (F,), by a map learned from the other folds.
    """
    xp = array_namespace(held.scores)
    F = held.shares.shape[0]
    whole = xp.sum(held.shares, axis=0, keepdims=True)
    shares = xp.concat([whole - held.shares, whole])
    total = xp.sum(shares, axis=1, keepdims=True)  # zero where there is one fold
    shares = shares / xp.where(total > 0, total, xp.ones_like(total))
    size = factors(held, shares)
    eye = xp.eye(held.scores.shape[1], dtype=shares.dtype, device=device(shares))
    centre = size[:, None, None] * eye
    (maps,) = softmax_regression(held.scores, held.members, shares, [_PULL / size**2], centre=centre)
    losses = np.empty(F)
    for fold in range(F):
        mapped = mapped_scores(held.scores, maps[fold, ...])
        losses[fold] = log_losses(replace(held, scores=mapped), 1.0)[fold]
    return maps[-1, ...], losses


def mapped_scores(scores: Array, class_map: Array | None) -> Array:
    """Apply a map (K + 1, K) between classes, if there is one, to scores (n, K)."""
    if class_map is None:
        return scores
    class_map = move_to(class_map, scores, scores.dtype)
    return scores @ class_map[:-1, :] + class_map[-1, :]


# --- softmax regression --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Evaluation:
    """The objective at some weights D, and what a step of Newton's method needs there."""

    values: Array  # (B,), the objectives
    probabilities: Array  # (B, K, n)
    descent: Array  # (B, K r), minus the gradient
    diagonal: Array  # (B, K r), of the curvature
    curvature_weights: Array  # (B, K, n), what samples weigh in the curvature


@dataclass(frozen=True, eq=False)
class _Softmax:
    """The objectives of B problems, log-loss plus ridge: functions of weights D (B, K, r), for scores ``offsets + D rows'``."""

    rows: Array
    offsets: Array  # (B, K, n)
    members: Array  # (K, n)
    shares: Array  # (B, 1, n)
    twice_ridge: Array  # of each column of the weights, (B, 1, r)

    def evaluate(self, D: Array) -> _Evaluation:
        """Evaluate the objectives, and their derivatives, at weights D (B, K, r)."""
        xp = array_namespace(D)
        flat = (D.shape[0], -1)
        z = self.offsets + D @ xp.matrix_transpose(self.rows)
        logs, P = softmax(z)
        loss = xp.sum(self.shares[:, 0, :] * (logs[:, 0, :] - xp.sum(self.members * z, axis=1)), axis=1)
        weights = P * self.shares
        gradient = ((P - self.members) * self.shares) @ self.rows + self.twice_ridge * D
        # The rows are along their principal axes, where the curvature of a class is nearly diagonal.
        diagonal = (weights * (1.0 - P)) @ self.rows**2 + self.twice_ridge
        diagonal = xp.where(diagonal > 0, diagonal, xp.ones_like(diagonal))
        return _Evaluation(
            values=loss + 0.5 * xp.sum(self.twice_ridge * D**2, axis=(1, 2)),
            probabilities=P,
            descent=xp.reshape(-gradient, flat),
            diagonal=xp.reshape(diagonal, flat),
            curvature_weights=weights,
        )

    def apply_curvature(self, evaluation: _Evaluation, V: Array) -> Array:
        """Multiply directions V (B, K r) by the second derivatives, at the weights of an evaluation."""
        xp = array_namespace(V)
        V = xp.reshape(V, (V.shape[0], -1, self.rows.shape[1]))
        z = V @ xp.matrix_transpose(self.rows)
        mean = xp.sum(evaluation.probabilities * z, axis=1, keepdims=True)
        product = (evaluation.curvature_weights * (z - mean)) @ self.rows + self.twice_ridge * V
        return xp.reshape(product, (V.shape[0], -1))


def _minimum(objective: _Softmax, D: Array) -> Array:
    """Minimise B objectives by Newton's method from weights D (B, K, r); a step is halved until no objective rises."""
    xp = array_namespace(D)
    no_shift = xp.zeros((D.shape[0],), dtype=D.dtype, device=device(D))  # the curvature has the ridge already
    evaluation = objective.evaluate(D)
    for _ in range(_STEPS):
        curvature = partial(objective.apply_curvature, evaluation)
        direction = conjugate_gradients(curvature, evaluation.descent, no_shift, evaluation.diagonal, tol=0.25)
        expected_fall = 0.5 * xp.sum(evaluation.descent * direction, axis=1)
        step = xp.reshape(direction, D.shape)
        for _ in range(_STEPS):
            trial = objective.evaluate(D + step)
            rises = trial.values > evaluation.values + 1e-14
            if not bool(xp.any(rises)):
                break
            step = xp.where(rises[:, None, None], 0.5 * step, step)
        D = D + step
        evaluation = trial
        if bool(xp.all(expected_fall <= _ENOUGH * evaluation.values + _NEGLIGIBLE)):
            break
    return D


def softmax_regression(
    X: Array, Y: Array, shares: Array, ridges: Sequence[Any], *, centre: Any = 0.0, fit_intercept: bool = True
) -> list[Array]:
    """Minimise the mean log-loss plus ``ridge |A - centre|^2``, for several weightings of the samples at once.

    scikit-learn's LogisticRegression has neither a centre nor several weightings, one for each fold, at once.

    Parameters
    ----------
    X : array of shape (n, r)
    Y : array of shape (n, K), of zeros and ones
    shares : array of shape (B, n) whose rows sum to one
    ridges : strengths of the squared norm, numbers or arrays (B,); each starts from the answer of the one before
    centre : array of shape (B, r, K), or a number
    fit_intercept : whether intercepts are learned; else they are zero

    Returns
    -------
    list of arrays of shape (B, r + 1, K)
        For each ridge weights A, and intercepts in the last row.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.search.softmax import softmax_regression
    >>> X, Y = np.array([[-1.0], [1.0]]), np.eye(2)
    >>> ((both,),) = softmax_regression(X, Y, np.array([[0.5, 0.5]]), [0.01])
    >>> bool(both[0, 0] < 0 < both[0, 1]), bool(abs(both[1, 0]) < 1e-6)
    (True, True)
    """
    xp = array_namespace(X)
    B = shares.shape[0]
    K = Y.shape[1]
    share = xp.mean(shares, axis=0)
    mean = share @ X if fit_intercept else xp.zeros_like(X[0, :])
    X = X - mean
    values, axes = xp.linalg.eigh(X.T @ (X * share[:, None]))
    is_large = values > 10.0 * X.shape[1] * float(xp.finfo(X.dtype).eps) * values[-1]
    size = int(xp.sum(xp.astype(is_large, xp.int64)))  # eigenvalues ascend
    axes = axes[:, X.shape[1] - size :]
    rows = X @ axes
    rows = xp.concat([rows, xp.ones_like(X[:, :1])], axis=1) if fit_intercept else rows
    is_weight = xp.astype(xp.arange(rows.shape[1], device=device(X)) < size, X.dtype)
    like_X = {"dtype": X.dtype, "device": device(X)}
    centre = centre + xp.zeros((B, X.shape[1], K), **like_X)
    D = xp.zeros((B, K, rows.shape[1]), **like_X)
    offsets = xp.matrix_transpose(X @ centre)
    solutions = []
    for ridge in ridges:
        twice_ridge = xp.reshape(2.0 * ridge + xp.zeros((B,), **like_X), (B, 1, 1)) * is_weight
        objective = _Softmax(rows, offsets, xp.matrix_transpose(Y), shares[:, None, :], twice_ridge)
        D = _minimum(objective, D)
        A = centre + axes @ xp.matrix_transpose(D[:, :, :size])
        offset = xp.sum(D[:, :, size:], axis=2) - mean @ A
        solutions.append(xp.concat([A, offset[:, None, :]], axis=1))
    return solutions
