"""Held-out scores: what they are worth, their size as log-odds, what classes say about each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace, is_on_gpu, to_numpy
from tracelearn.arrays.linalg import conjugate_gradients, replayed, with_ones
from tracelearn.estimators.scores import r_squared
from tracelearn.losses import Loss, Multinomial, softmax
from tracelearn.selection.folds import Held, Together, found_classes
from tracelearn.selection.scorers import scored, with_scores

__all__ = [
    "MOST_HELD",
    "ClassScores",
    "Judge",
    "class_map",
    "class_scores",
    "confirmed",
    "factor",
    "log_losses",
    "softmax_regression",
]

# How strongly a map between classes is drawn to the identity; it is learned from few numbers, as many as held-out samples.
_PULL = 1e-2

# Standard errors by which the held-out log-loss must fall, over the folds, before more is learned than one factor.
_EVIDENCE = 2.0


# Held-out samples that a factor and a map are learned from: more make no difference to K^2 numbers.
MOST_HELD = 4000

# Steps of Newton's method at most, and the share of the log-loss that a step lowers it by when that is enough.
_STEPS, _ENOUGH = 50, 1e-6
_NOTHING = 1e-12  # of a log-loss: where there is but one class, every step lowers what is left by as much


@dataclass(frozen=True, eq=False)
class ClassScores:
    """The held-out scores (n, K) of all classes in a fold, which class is true (n, K), and shares (n,) of all folds."""

    scores: Array
    members: Array
    share: Array


def class_scores(scores: Sequence[Array], known: Sequence[Held], weights: Array) -> list[ClassScores]:
    """Gather the held-out scores of each fold, of many every second or third; two classes get a column each."""
    found, count = list[ClassScores](), 0
    for own in scores:
        count += own.shape[0]
    every = -(-count // MOST_HELD)
    for own, held, weight in zip(scores, known, weights, strict=True):
        xp = array_namespace(held.Y)
        rows = xp.nonzero(held.share)[0][::every]
        z, codes = xp.take(own, rows, axis=0), xp.take(held.Y, rows, axis=0)
        share = xp.take(held.share, rows, axis=0)
        if z.shape[1] == 1:
            z, codes = xp.concat([-0.5 * z, 0.5 * z], axis=1), xp.concat([-codes, codes], axis=1)
        found.append(ClassScores(z, xp.astype(codes > 0, z.dtype), float(weight) / xp.sum(share) * share))
    return found


def _joined(parts: Sequence[ClassScores]) -> ClassScores:
    """Put folds together."""
    xp = array_namespace(parts[0].scores)
    scores, members, shares = zip(*map(attrgetter("scores", "members", "share"), parts), strict=True)
    share = xp.concat(shares)
    return ClassScores(xp.concat(scores), xp.concat(members), share / xp.sum(share))


# Classes come before samples in what follows: sums over a few classes are then sums of long rows, which take less time.


def factor(parts: Sequence[ClassScores]) -> float:
    """Find the factor of held-out scores whose softmax predicts the classes best; it changes no predicted class."""
    whole = _joined(parts)
    return float(_factors(whole, whole.share[None, :])[0])


def _factors(held: ClassScores, shares: Array) -> Array:
    """Find the factor for each row of shares (B, n), by Newton's method for its logarithm.

    As much as a thousandth of its square speaks for a factor of one, so that it does not run away where all classes are found.
    """
    xp, every = array_namespace(shares), _look_every(shares)
    z, true = xp.matrix_transpose(held.scores)[None, ...], xp.sum(held.members * held.scores, axis=1)
    log = step = xp.zeros_like(shares[:, 0])
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


def _look_every(like: Array) -> int:
    """After how many steps of an iteration to look whether it is done: a look waits for a device."""
    return 4 if is_on_gpu(like) else 1


@dataclass(frozen=True, eq=False)
class _Softmax:
    """The mean log-loss of B problems: a function of the weights D (B, K, r) of rows (n, r), which add to given scores."""

    rows: Array
    given: Array  # (B, K, n)
    true: Array  # (K, n)
    shares: Array  # (B, 1, n)
    pull: Array  # twice the ridge of each column of the weights, (B, 1, r)

    def step(self, D: Array, P: Array) -> tuple[Array, Array]:
        """Return a step of Newton's method by conjugate gradients, and by how much it should lower the objective (B,)."""
        xp = array_namespace(D)
        force, diagonal, weights = replayed(D, _force, self, D, P)
        apply, none = partial(_curved, self, P, weights), xp.zeros_like(force[:, 0])
        found = conjugate_gradients(apply, force, none, diagonal, tol=0.25, look_every=_look_every(D))
        return xp.reshape(found, D.shape), 0.5 * xp.sum(force * found, axis=1)

    def solved(self, D: Array) -> Array:
        """Minimise from D on, by Newton's method; a step is halved until the objective falls."""
        xp = array_namespace(D)
        value, P = replayed(D, _evaluated, self, D)
        for _ in range(_STEPS):
            step, fall = self.step(D, P)
            for _ in range(_STEPS):
                after, P = replayed(D, _evaluated, self, D + step)
                rises = after > value + 1e-14
                if not bool(xp.any(rises)):
                    break
                step = xp.where(rises[:, None, None], 0.5 * step, step)
            D, value = D + step, after
            if bool(xp.all(fall <= _ENOUGH * value + _NOTHING)):
                break
        return D


def _evaluated(fit: _Softmax, D: Array) -> tuple[Array, Array]:
    """Return the objectives (B,) and the probabilities (B, K, n)."""
    xp = array_namespace(D)
    z = fit.given + D @ xp.matrix_transpose(fit.rows)
    logs, P = softmax(z)
    loss = xp.sum(fit.shares[:, 0, :] * (logs[:, 0, :] - xp.sum(fit.true * z, axis=1)), axis=1)
    return loss + 0.5 * xp.sum(fit.pull * D**2, axis=(1, 2)), P


def _force(fit: _Softmax, D: Array, P: Array) -> tuple[Array, Array, Array]:
    """Return what pulls at D, as rows (B, K r), the diagonal of the curvature, and what samples weigh in it (B, K, n)."""
    xp, flat, weights = array_namespace(D), (D.shape[0], -1), P * fit.shares
    gradient = ((P - fit.true) * fit.shares) @ fit.rows + fit.pull * D
    # The rows are along their principal axes, where the curvature of a class is nearly diagonal.
    diagonal = xp.clip((weights * (1.0 - P)) @ fit.rows**2 + fit.pull, min=1e-12)
    return xp.reshape(-gradient, flat), xp.reshape(diagonal, flat), weights


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
    rows = with_ones(X @ axes)
    rows = rows if fit_intercept else rows[:, :size]
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


def log_losses(parts: Sequence[ClassScores], size: float | None = None) -> Array:
    """Find the mean log-loss of each fold, of scores times a size: by default the best factor."""
    xp, found, size = array_namespace(parts[0].scores), [], factor(parts) if size is None else size
    for own in parts:
        found.append(own.share @ Multinomial().value(own.members, size * own.scores)[:, 0] / xp.sum(own.share))
    return to_numpy(xp.stack(found))


def class_map(parts: Sequence[ClassScores]) -> tuple[Array, Array]:
    """Learn from held-out scores how those of all classes say which one it is: (K + 1, K), offsets in the last row.

    Scores of squares, one class against the rest, hide a class that lies between others; a map between all of them finds it
    again. It is drawn to one factor for all classes, which changes no predicted class. Also returns the log-loss of each
    fold, through a map learned from the other folds.
    """
    whole, xp = _joined(parts), array_namespace(parts[0].scores)
    fold = xp.concat([xp.full_like(part.share, float(f)) for f, part in enumerate(parts)])
    share = xp.concat([part.share for part in parts])
    others = xp.stack([share * xp.astype(fold != f, share.dtype) for f in range(len(parts))])
    total = xp.sum(others, axis=1, keepdims=True)  # zero where there is one fold
    shares = xp.concat([others / xp.where(total > 0, total, xp.ones_like(total)), whole.share[None, :]])
    size, eye = _factors(whole, shares), xp.eye(whole.scores.shape[1], dtype=shares.dtype, device=device(shares))
    centre = size[:, None, None] * eye
    (maps,) = softmax_regression(whole.scores, whole.members, shares, [_PULL / size**2], centre=centre)
    mapped = [replace(own, scores=own.scores @ maps[f, :-1, :] + maps[f, -1, :]) for f, own in enumerate(parts)]
    return maps[-1, ...], log_losses(mapped, 1.0)


def confirmed(before: Array, after: Array) -> bool:
    """Tell whether the losses of the folds fall by more than chance: the paired difference against its standard error.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.selection.calibration import confirmed
    >>> before = np.array([0.50, 0.52, 0.49])
    >>> confirmed(before, before - [0.05, 0.06, 0.05]), confirmed(before, before - [0.3, -0.2, 0.1])
    (True, False)
    """
    gain = before - after
    error = float(np.std(gain, ddof=1)) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
    return bool(gain.mean() > _EVIDENCE * error and gain.mean() > 0)


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

    def __call__(self, held: Held | Together, scores: Array) -> Array:
        """Judge the scores (n_f, M, K) that M models give to what a fold holds out: (M,), higher is better.

        Or the scores (G, m, M, K) of what several folds hold out together: (G, M).
        """
        if self.scoring is None and self.model._learns_classes:
            right = found_classes(scores) == found_classes(held.Y)[..., None]
            share = held.share[..., None, :]
            return to_numpy((share @ array_namespace(scores).astype(right, share.dtype))[..., 0, :])
        if isinstance(held, Together):
            return np.stack([self(own, scores[g, : len(own.index), ...]) for g, own in enumerate(held.parts)])
        models = range(scores.shape[1])
        if self.scoring is not None:
            weight = None if self.weight is None else self.weight[held.index]
            known = [with_scores(self.model, self.loss, to_numpy(scores[:, m, :])) for m in models]
            return np.array([scored(self.scoring, one, self.labels[held.index], weight) for one in known])
        return np.array([r_squared(held.Y, self.loss.inverse_link(scores[:, m, :]), held.share) for m in models])
