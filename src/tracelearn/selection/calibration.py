"""Held-out scores: what a scorer says of them, their size as log-odds, what classes say about each other."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer
from sklearn.utils.metaestimators import available_if

from tracelearn.arrays.array_api import Array, array_namespace, to_numpy
from tracelearn.losses import Loss, Multinomial
from tracelearn.selection.folds import Design

__all__ = [
    "HeldOut",
    "class_map",
    "confirmed",
    "factor",
    "found_classes",
    "held_out",
    "log_losses",
    "scored",
    "softmax_regression",
    "with_scores",
]

# How strongly a map between classes is drawn to the identity; it is learned from few numbers, as many as held-out samples.
_PULL = 1e-2

# Standard errors by which the held-out log-loss must fall, over the folds, before more is learned than one factor.
_EVIDENCE = 2.0


# Held-out samples that a factor and a map are learned from: more make no difference to K^2 numbers.
_MOST = 4000


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a fold holds out: scores (n, K) of all classes, of which one is true (n, K), and shares (n,) of all folds."""

    scores: Array
    members: Array
    share: Array


def held_out(scores: Sequence[Array], design: Design) -> list[HeldOut]:
    """Gather the held-out scores of each fold, of many every second or third; two classes get a column each."""
    found, every = [], -(-sum(own.shape[0] for own in scores) // _MOST)
    for own, held, weight in zip(scores, design.held, design.weights, strict=True):
        rows = np.flatnonzero(to_numpy(held.share))[::every]
        z, codes, share = (to_numpy(part)[rows] for part in (own, held.Y, held.share))
        z, share = z.astype(float), share / share.sum()
        if z.shape[1] == 1:
            z, codes = np.concatenate([-0.5 * z, 0.5 * z], axis=1), np.concatenate([-codes, codes], axis=1)
        found.append(HeldOut(z, (codes > 0).astype(float), share * weight))
    return found


def _joined(parts: Sequence[HeldOut]) -> HeldOut:
    scores, members, share = (np.concatenate([getattr(p, n) for p in parts]) for n in ("scores", "members", "share"))
    return HeldOut(scores, members, share / share.sum())


def factor(parts: Sequence[HeldOut]) -> float:
    """Find the factor of held-out scores whose softmax predicts the classes best; it changes no predicted class."""
    whole, loss = _joined(parts), Multinomial()

    def cost(log: float) -> float:
        # As much as a thousandth speaks for a factor of one, so that it does not run away where all classes are found.
        return float(whole.share @ loss.value(whole.members, np.exp(log) * whole.scores)[:, 0]) + 1e-3 * log**2

    return float(np.exp(minimize_scalar(cost, (0.0, 1.0)).x))


def softmax_regression(
    X: Array,
    Y: Array,
    share: Array,
    ridge: float,
    *,
    centre: Array | float = 0.0,
    start: Array | None = None,
    fit_intercept: bool = True,
    max_iter: int = 100,
) -> Array:
    """Minimise the mean log-loss plus ``ridge |A - centre|^2``: weights A, and intercepts in the last row, (r + 1, K).

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.selection.calibration import softmax_regression
    >>> X, Y = np.array([[-1.0], [1.0]]), np.eye(2)
    >>> found = softmax_regression(X, Y, np.array([0.5, 0.5]), 0.01)
    >>> bool(found[0, 0] < 0 < found[0, 1]), bool(abs(found[1, 0]) < 1e-6)
    (True, True)
    """
    shape = X.shape[1] + 1, Y.shape[1]
    # Classes are rows here: sums over a few classes are then sums of long rows, which take less time.
    columns, targets = np.ascontiguousarray(X.T), share * np.ascontiguousarray(Y.T)

    def cost(flat: Array) -> tuple[float, Array]:
        A, b = flat.reshape(shape)[:-1], flat.reshape(shape)[-1]
        scores, apart = A.T @ columns + b[:, None], A - centre
        top = scores.max(axis=0)
        odds = np.exp(scores - top)
        total = odds.sum(axis=0)
        value = ridge * float(np.sum(apart**2)) + float(share @ (top + np.log(total))) - float(np.sum(targets * scores))
        forces = odds * (share / total) - targets
        last = forces.sum(axis=1) if fit_intercept else np.zeros(shape[1])
        return value, np.concatenate([columns @ forces.T + 2.0 * ridge * apart, last[None, :]]).ravel()

    if start is None:
        start = np.zeros(shape)
        start[:-1] += centre
    options = {"maxiter": max_iter, "ftol": 1e-7, "gtol": 1e-5}
    return np.asarray(minimize(cost, start.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(shape))


def class_map(parts: Sequence[HeldOut], start: Array | None = None) -> Array:
    """Learn from held-out scores how those of all classes say which one it is: (K + 1, K), offsets in the last row.

    Scores of squares, one class against the rest, hide a class that lies between others; a map between all of them finds it
    again. It is drawn to one factor for all classes, which changes no predicted class. ``start`` is a map of similar scores.
    """
    whole, size = _joined(parts), factor(parts)
    K = whole.scores.shape[1]
    start = None if start is None else np.concatenate([start[:-1] / size, start[-1:]])
    found = softmax_regression(size * whole.scores, whole.members, whole.share, _PULL, centre=np.eye(K), start=start)
    return np.concatenate([size * found[:-1], found[-1:]])


def log_losses(parts: Sequence[HeldOut], *, mapped: bool = False) -> Array:
    """Find the log-loss of each fold: of scores times one factor, or through a map learned from the other folds."""
    loss, size, found = Multinomial(), factor(parts), []
    A: Array | None = None
    for f, own in enumerate(parts):
        scores = size * own.scores
        if mapped:
            A = class_map([part for g, part in enumerate(parts) if g != f], A)
            scores = own.scores @ A[:-1] + A[-1]
        found.append(float(own.share @ loss.value(own.members, scores)[:, 0] / own.share.sum()))
    return np.array(found)


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


def found_classes(scores: Array) -> Array:
    """Say which class has the largest score; of two, whether it is the second."""
    return scores[..., 0] > 0 if scores.shape[-1] == 1 else array_namespace(scores).argmax(scores, axis=-1)


class _Fixed(BaseEstimator):
    """An estimator whose scores of some samples are known: what a scorer looks at."""

    def __init__(self, scores: Array, loss: Any, classes: Array | None, single: bool) -> None:
        self.scores, self.loss, self.classes_, self.single = scores, loss, classes, single

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Any) -> Array:
        if self.classes_ is None:
            found = self.loss.inverse_link(self.scores)
            return found[:, 0] if self.single else found
        return self.classes_[np.asarray(found_classes(self.scores), dtype=int)]


class _FixedRegressor(RegressorMixin, _Fixed):
    pass


class _FixedClassifier(ClassifierMixin, _Fixed):
    def decision_function(self, X: Any) -> Array:
        return self.scores[:, 0] if self.scores.shape[1] == 1 else self.scores

    @available_if(lambda self: self.loss.has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        return np.exp(self.loss.log_probabilities(self.scores))


def with_scores(model: Any, loss: Loss, scores: Array) -> Any:
    """Make an estimator that has given scores (n, K) of some samples, for a scorer to look at."""
    if model._learns_classes:
        return _FixedClassifier(scores, loss, to_numpy(model.classes_), True)
    return _FixedRegressor(scores, loss, None, model._single)


def scored(scoring: Any, known: Any, labels: Array, weight: Array | None) -> float:
    """Ask the user's scorer of an estimator whose scores of these samples are known; NaN where there is none."""
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    rows = np.zeros((len(labels), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)  # a fold without a score is left out
        if weight is not None:
            with suppress(TypeError):  # scorers that take no weights
                return float(scorer(known, rows, labels, sample_weight=weight))
        return float(scorer(known, rows, labels))
