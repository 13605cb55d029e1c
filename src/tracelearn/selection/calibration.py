"""Held-out scores: what they are worth, their size as log-odds, what classes say about each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace, is_on_gpu, move_to, to_numpy
from tracelearn.arrays.linalg import conjugate_gradients, replayed
from tracelearn.estimators.scores import r_squared
from tracelearn.losses import Loss, softmax
from tracelearn.selection.folds import Held, found_classes
from tracelearn.selection.scorers import scored, with_scores

__all__ = [
    "MOST_HELD",
    "ClassScores",
    "Judge",
    "class_map",
    "class_scores",
    "factors",
    "log_losses",
    "softmax_regression",
]

# How strongly a map between classes is drawn to the identity; it is learned from few numbers, as many as held-out samples.
_PULL = 1e-2

# Held-out samples that a factor and a map are learned from: more make no difference to K^2 numbers.
MOST_HELD = 4000

# Steps of Newton's method at most, and the share of the log-loss that a step lowers it by when that is enough.
_STEPS, _ENOUGH = 50, 1e-6
_FEW = 4  # steps after which a GPU is asked whether they are enough: a look waits for all of them
_NOTHING = 1e-12  # of a log-loss: where there is but one class, every step lowers what is left by as much


class ClassScores(NamedTuple):
    """Held-out scores (n, K) of all classes, which class is true (n, K), and what each sample counts in each fold, (F, n)."""

    scores: Array
    members: Array
    shares: Array  # zero where another fold holds the sample out; those of a fold sum to its weight, all of them to one


def class_scores(parts: Sequence[Array], known: Sequence[Held], weights: Array) -> ClassScores:
    """Gather held-out scores (G, m, K) of all folds, of many every second or third; two classes get a column each."""
    xp, found, first, count = array_namespace(known[0].Y), [], 0, 0
    for own in parts:
        count += own.shape[0] * own.shape[1]
    every = -(-count // MOST_HELD)
    for own, held in zip(parts, known, strict=True):
        fold, place = xp.nonzero(held.share)
        rows = (fold * own.shape[1] + place)[::every]
        table = xp.concat([own, held.Y, held.share[..., None]], axis=2)
        table = xp.take(xp.reshape(table, (-1, table.shape[2])), rows, axis=0)
        found.append((table, fold[::every] + first))
        first += own.shape[0]
    tables, folds = map(xp.concat, zip(*found, strict=True))
    K = parts[0].shape[2]
    z, codes, share = tables[:, :K], tables[:, K : 2 * K], tables[:, 2 * K]
    if K == 1:
        z, codes = xp.concat([-0.5 * z, 0.5 * z], axis=1), xp.concat([-codes, codes], axis=1)
    shares = share * xp.astype(folds == xp.arange(first, device=device(folds))[:, None], share.dtype)
    shares = shares * (move_to(weights, share, share.dtype) / xp.sum(shares, axis=1))[:, None]
    return ClassScores(z, xp.astype(codes > 0, z.dtype), shares)


# Classes come before samples in what follows: sums over a few classes are then sums of long rows, which take less time.


def factors(held: ClassScores, shares: Array | None = None) -> Array:
    """Find the factor of held-out scores whose softmax predicts the classes best, for each row of shares (B, n), or for all.

    It changes no predicted class. By Newton's method for its logarithm; as much as a thousandth of its square speaks for a
    factor of one, so that it does not run away where all classes are found.
    """
    xp = array_namespace(held.scores)
    shares = xp.sum(held.shares, axis=0, keepdims=True) if shares is None else shares
    z, true = xp.matrix_transpose(held.scores)[None, ...], xp.sum(held.members * held.scores, axis=1)
    log = step = xp.zeros_like(shares[:, 0])
    every = _FEW if is_on_gpu(log) else 1
    for _ in range(0, _STEPS, every):
        step, log = replayed(log, _factor_step, z, true, shares, step, log, carried=2, count=every)
        if bool(xp.all(xp.abs(step) < 1e-6)):
            break
    return xp.exp(log)


def _factor_step(z: Array, true: Array, shares: Array, before: Array, log: Array) -> tuple[Array, Array]:
    """Return a step of Newton's method, and where it leads."""
    xp, size = array_namespace(log), array_namespace(log).exp(log)
    P = softmax(size[:, None, None] * z)[1]
    mean = xp.sum(P * z, axis=1)
    slope = size * xp.sum(shares * (mean - true), axis=1)
    spread = size**2 * xp.sum(shares * (xp.sum(P * z**2, axis=1) - mean**2), axis=1)
    # The second derivative but for the sign of the slope: a step goes down where that derivative is negative, too.
    step = -(slope + 2e-3 * log) / (spread + xp.abs(slope) + 2e-3)
    return step, log + xp.clip(step, min=-1.0, max=1.0)


@dataclass(frozen=True, eq=False)
class _Softmax:
    """The mean log-loss of B problems: a function of the weights D (B, K, r) of rows (n, r), which add to given scores."""

    rows: Array
    given: Array  # (B, K, n)
    true: Array  # (K, n)
    shares: Array  # (B, 1, n)
    pull: Array  # twice the ridge of each column of the weights, (B, 1, r)

    def solved(self, D: Array) -> Array:
        """Minimise from D on, by Newton's method with conjugate gradients; a step is halved until the objective falls."""
        xp, look_every = array_namespace(D), _FEW if is_on_gpu(D) else 1
        value, P, force, diagonal, weights = replayed(D, _evaluated, self, D)
        for _ in range(_STEPS):
            apply, none = partial(_curved, self, P, weights), xp.zeros_like(force[:, 0])
            found = conjugate_gradients(apply, force, none, diagonal, tol=0.25, look_every=look_every)
            step, fall = xp.reshape(found, D.shape), 0.5 * xp.sum(force * found, axis=1)
            for _ in range(_STEPS):
                after, P, force, diagonal, weights = replayed(D, _evaluated, self, D + step)
                rises = after > value + 1e-14
                if not bool(xp.any(rises)):
                    break
                step = xp.where(rises[:, None, None], 0.5 * step, step)
            D, value = D + step, after
            if bool(xp.all(fall <= _ENOUGH * value + _NOTHING)):
                break
        return D


def _evaluated(fit: _Softmax, D: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Return the objectives (B,) and the probabilities (B, K, n), and what Newton's method needs.

    That is what pulls at D, as rows (B, K r), the diagonal of the curvature, and what samples weigh in it, (B, K, n).
    """
    xp, flat = array_namespace(D), (D.shape[0], -1)
    z = fit.given + D @ xp.matrix_transpose(fit.rows)
    logs, P = softmax(z)
    loss = xp.sum(fit.shares[:, 0, :] * (logs[:, 0, :] - xp.sum(fit.true * z, axis=1)), axis=1)
    value, weights = loss + 0.5 * xp.sum(fit.pull * D**2, axis=(1, 2)), P * fit.shares
    gradient = ((P - fit.true) * fit.shares) @ fit.rows + fit.pull * D
    # The rows are along their principal axes, where the curvature of a class is nearly diagonal.
    diagonal = xp.clip((weights * (1.0 - P)) @ fit.rows**2 + fit.pull, min=1e-12)
    return value, P, xp.reshape(-gradient, flat), xp.reshape(diagonal, flat), weights


def _curved(fit: _Softmax, P: Array, weights: Array, V: Array) -> Array:
    """Multiply rows (B, K r) by the curvature."""
    xp, rows = array_namespace(V), fit.rows
    V = xp.reshape(V, (V.shape[0], -1, rows.shape[1]))
    z = V @ xp.matrix_transpose(rows)
    found = (weights * (z - xp.sum(P * z, axis=1, keepdims=True))) @ rows + fit.pull * V
    return xp.reshape(found, (V.shape[0], -1))


def softmax_regression(
    X: Array, Y: Array, shares: Array, ridges: Sequence[Any], *, centre: Any = 0.0, fit_intercept: bool = True
) -> list[Array]:
    """Minimise the mean log-loss plus ``ridge |A - centre|^2``, for several weightings of the samples at once.

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
    >>> from tracelearn.selection.calibration import softmax_regression
    >>> X, Y = np.array([[-1.0], [1.0]]), np.eye(2)
    >>> ((found,),) = softmax_regression(X, Y, np.array([[0.5, 0.5]]), [0.01])
    >>> bool(found[0, 0] < 0 < found[0, 1]), bool(abs(found[1, 0]) < 1e-6)
    (True, True)
    """
    xp, B, K = array_namespace(X), shares.shape[0], Y.shape[1]
    share = xp.mean(shares, axis=0)
    middle = share @ X if fit_intercept else xp.zeros_like(X[0, :])
    X = X - middle
    values, axes = xp.linalg.eigh(X.T @ (X * share[:, None]))
    kept = values > 10.0 * X.shape[1] * float(xp.finfo(X.dtype).eps) * values[-1]
    size = int(xp.sum(xp.astype(kept, xp.int64)))  # eigenvalues ascend
    axes = axes[:, X.shape[1] - size :]
    rows = X @ axes
    rows = xp.concat([rows, xp.ones_like(X[:, :1])], axis=1) if fit_intercept else rows
    inside = xp.astype(xp.arange(rows.shape[1], device=device(X)) < size, X.dtype)
    kind = {"dtype": X.dtype, "device": device(X)}
    centre, D = centre + xp.zeros((B, X.shape[1], K), **kind), xp.zeros((B, K, rows.shape[1]), **kind)
    given, found = xp.matrix_transpose(X @ centre), []
    for ridge in ridges:
        pull = xp.reshape(2.0 * ridge * xp.ones((B,), **kind), (B, 1, 1)) * inside
        D = _Softmax(rows, given, xp.matrix_transpose(Y), shares[:, None, :], pull).solved(D)
        A = centre + axes @ xp.matrix_transpose(D[:, :, :size])
        offset = xp.sum(D[:, :, size:], axis=2) - middle @ A
        found.append(xp.concat([A, offset[:, None, :]], axis=1))
    return found


def log_losses(held: ClassScores, size: float | None = None) -> Array:
    """Find the mean log-loss of each fold, of scores times a size: by default the best factor."""
    xp, size = array_namespace(held.scores), float(factors(held)[0]) if size is None else size
    z = size * held.scores
    losses = softmax(z)[0][:, 0] - xp.sum(held.members * z, axis=1)
    return to_numpy(held.shares @ losses / xp.sum(held.shares, axis=1))


def class_map(held: ClassScores) -> tuple[Array, Array]:
    """Learn from held-out scores how those of all classes say which one it is: (K + 1, K), offsets in the last row.

    Scores of squares, one class against the rest, hide a class that lies between others; a map between all of them finds it
    again. It is drawn to one factor for all classes, which changes no predicted class. Also returns the log-loss of each
    fold, through a map learned from the other folds.
    """
    xp, (F, _) = array_namespace(held.scores), held.shares.shape
    whole = xp.sum(held.shares, axis=0, keepdims=True)
    shares = xp.concat([whole - held.shares, whole])
    total = xp.sum(shares, axis=1, keepdims=True)  # zero where there is one fold
    shares = shares / xp.where(total > 0, total, xp.ones_like(total))
    size, eye = factors(held, shares), xp.eye(held.scores.shape[1], dtype=shares.dtype, device=device(shares))
    centre = size[:, None, None] * eye
    (maps,) = softmax_regression(held.scores, held.members, shares, [_PULL / size**2], centre=centre)
    losses = np.empty(F)
    for f in range(F):
        losses[f] = log_losses(held._replace(scores=held.scores @ maps[f, :-1, :] + maps[f, -1, :]), 1.0)[f]
    return maps[-1, ...], losses


@dataclass(frozen=True, eq=False)
class Judge:
    """What held-out scores are worth, as it is shown: by the user's scorer, by the classes found, or for numbers by R²."""

    scoring: Any
    model: Any
    loss: Loss
    labels: Array  # (n,)
    weight: Array | None  # (n,), as given

    def among(self, chosen: Array) -> Judge:
        """Keep the samples for which an array (n,) is true."""
        return replace(self, labels=self.labels[chosen], weight=None if self.weight is None else self.weight[chosen])

    def __call__(self, held: Held, scores: Array) -> Array:
        """Judge the scores (G, m, M, K) that M models give to what G folds hold out: (G, M), higher is better."""
        if self.scoring is None and self.model._learns_classes:
            right = found_classes(scores) == found_classes(held.Y)[..., None]
            share = held.share[:, None, :]
            return to_numpy((share @ array_namespace(scores).astype(right, share.dtype))[:, 0, :])
        found = np.empty((scores.shape[0], scores.shape[2]))
        for g, index in enumerate(held.index):
            labels, weight = self.labels[index], None if self.weight is None else self.weight[index]
            for m in range(scores.shape[2]):
                own = scores[g, : len(index), m, :]
                if self.scoring is not None:
                    known = with_scores(self.model, self.loss, to_numpy(own))
                    found[g, m] = scored(self.scoring, known, labels, weight)
                else:
                    Y, share = held.Y[g, : len(index), :], held.share[g, : len(index)]
                    found[g, m] = r_squared(Y, self.loss.inverse_link(own), share)
        return found
