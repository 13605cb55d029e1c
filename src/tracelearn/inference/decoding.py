"""Decoding over time and space: a model at each position of a mode, all positions of a fold as one batch of problems."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.arrays.linalg import mode_scales
from tracelearn.errors import refuse
from tracelearn.estimators.base import TraceNormModel
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.inference.sets import (
    Plan,
    Reading,
    check_count,
    check_model,
    check_scores,
    cleaned,
    is_shared,
    judged,
    number_of,
    scored,
    solve_stack,
    warn_of_zero_weights,
)
from tracelearn.problems.operators import SpectralGram
from tracelearn.problems.squares import Squares
from tracelearn.samples.checks import small_on_one_thread
from tracelearn.samples.modes import Mode
from tracelearn.samples.samples import unnamed
from tracelearn.search.folds import corrected_error

__all__ = ["Decoding", "decode_over_time", "searchlight"]

_LARGEST_BATCH = 4_000_000  # numbers in the grams of one batch, and in the scores of one comparison


@dataclass(frozen=True, eq=False)
class Decoding:
    """Held-out scores of models at each position.

    Attributes
    ----------
    scores : array of shape (n_folds, n_positions), or (n_folds, n_trained, n_tested) for temporal generalisation
    positions : array of shape (n_positions,)
        The first entry of each window, or the number of each neighbourhood.
    scoring : str
    method : "batch" or "refit"
        Whether all positions were one batch of problems, or fitted one by one.
    chance : float or None
        What a prediction that ignores the samples scores: for accuracy the share of the largest class; None where it is not
        known.
    ratio : float
        Held-out over training samples of a fold, which the standard error needs.
    mode : Mode or None
        Name, unit and coordinates of the positions, of a window its middle, where the samples bring them: times of epochs.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.inference import Decoding
    >>> found = Decoding(np.array([[0.5, 0.9], [0.5, 0.7]]), np.arange(2), "accuracy", "batch")
    >>> found.mean, str(found)
    (array([0.5, 0.8]), 'accuracy between 0.500 and 0.800, best at position 1, over 2 folds')
    """

    scores: Array
    positions: Array
    scoring: str
    method: str
    chance: float | None = None
    ratio: float = 0.0
    mode: Mode | None = None

    @property
    def mean(self) -> Array:
        """The mean over folds."""
        return np.asarray(self.scores.mean(axis=0))

    @property
    def standard_error(self) -> Array:
        """The standard error of the mean, corrected for the training samples that folds share, as ``best_score_se_``."""
        return corrected_error(np.moveaxis(self.scores, 0, -1), self.ratio)

    def plot(self, ax: Any = None, *, times: Any = None) -> Any:
        """Draw the course of the score, or for generalisation its map; ``times`` of the positions, unless samples bring them."""
        from tracelearn.plotting.inference import draw_decoding  # noqa: PLC0415 - matplotlib is optional

        return draw_decoding(self, ax, times)

    def __str__(self) -> str:
        mean = self.mean if self.scores.ndim == 2 else np.diagonal(self.mean)
        best = int(np.argmax(mean))
        place = f"position {self.positions[best]}" if self.mode is None else self.mode.entry(best)
        span = f"{self.scoring} between {mean.min():.3f} and {mean.max():.3f}"
        where = place if self.scores.ndim == 2 else f"diagonal {place}"
        return f"{span}, best at {where}, over {len(self.scores)} folds"


@small_on_one_thread
def decode_over_time(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    axis: int | str = -1,
    window: int = 1,
    step: int = 1,
    generalize: bool = False,
    cv: Any = 5,
    groups: Any = None,
    confounds: Any = None,
    scoring: Any = None,
) -> Decoding:
    """Fit a model at each position along a mode, or in windows along it, and score it on held-out samples.

    With the squared loss the positions of a fold are one batch of problems. Scores are those of MNE's ``SlidingEstimator``
    around the same model, and with ``generalize`` those of ``GeneralizingEstimator``.

    Parameters
    ----------
    model : estimator
        A ``TraceNormClassifier`` or ``TraceNormRegressor``; others, and other losses, are fitted position by position.
    X : array of shape (n_samples, I1, ..., IN), or epochs of MNE
    y : targets; epochs bring their events
    axis : int or str, default=-1
        The axis of X along which to decode, such as time; not 0, which is samples. Modes that have names are known by these too.
    window : int, default=1
        Entries of a window. A window of one entry leaves the mode out of the sample, a longer one keeps it.
    step : int, default=1
        Entries from one window to the next.
    generalize : bool, default=False
        Test the model of each position at every position.
    cv : int, splitter or iterable, default=5
        Numbers are shuffled folds, stratified for classes, with groups held out whole.
    groups : array of shape (n_samples,), default=None
    confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
        Regressed out of samples within each training fold, and out of what it holds out as learned there.
    scoring : str or callable, default=None
        As in scikit-learn; None is accuracy or R².

    Returns
    -------
    Decoding

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import TraceNormClassifier
    >>> from tracelearn.inference import decode_over_time
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 5, 8)), np.arange(60) % 2
    >>> X[:, :, 4] += 2.0 * y[:, None]
    >>> int(np.argmax(decode_over_time(TraceNormClassifier(), X, y).mean))
    4
    """
    X, y, modes = unnamed(X, y)
    shape, entries = _entries(X)
    check_count(window, "window")
    check_count(step, "step")
    axis = 1 + number_of(axis, modes, "axis") if isinstance(axis, str) else axis
    mode = axis - 1 if axis > 0 else axis + len(shape)
    refuse(
        not 0 <= mode < len(shape) or axis == 0,
        f"Expected axis to be one of X after the first, samples, which is 0, got {axis} for {len(shape) + 1} axes.",
    )
    refuse(
        window > shape[mode], f"Expected a window of at most the {shape[mode]} entries of axis {axis}, got {window}."
    )
    starts = np.arange(0, shape[mode] - window + 1, step)
    parts = [np.take(entries, range(start, start + window) if window > 1 else start, axis=mode) for start in starts]
    found = _decode(model, X, y, parts, starts, cv, groups, confounds, scoring, generalize=generalize)
    return found if modes is None else replace(found, mode=modes[mode].windows(starts, window))


@small_on_one_thread
def searchlight(
    model: Any,
    X: Any,
    y: Any,
    neighbours: Any,
    *,
    axis: int | str | None = 1,
    cv: Any = 5,
    groups: Any = None,
    confounds: Any = None,
    scoring: Any = None,
) -> Decoding:
    """Fit a model to each neighbourhood of entries, and score it on held-out samples.

    Parameters
    ----------
    model, X, y, cv, groups, confounds, scoring : as in ``decode_over_time``
    neighbours : square matrix, sparse or not, or list of index arrays
        Which entries of the axis are in each neighbourhood: the nonzero ones of each row, together with its own, or those listed.
    axis : int, str or None, default=1
        The axis of X whose entries are neighbours, such as sensors, by its number or the name of its mode; all others stay as
        they are. None: entries of flat samples.

    Returns
    -------
    Decoding

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import TraceNormClassifier
    >>> from tracelearn.inference import searchlight
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 6, 4)), np.arange(60) % 2
    >>> X[:, 5] += 2.0 * y[:, None]
    >>> chain = np.eye(6, k=1) + np.eye(6, k=-1)  # the last two see the last sensor
    >>> searchlight(TraceNormClassifier(), X, y, chain).mean > 0.9
    array([False, False, False, False,  True,  True])
    """
    X, y, modes = unnamed(X, y)
    shape, entries = _entries(X)
    axis = 1 + number_of(axis, modes, "axis") if isinstance(axis, str) else axis
    mode = 0 if axis is None else axis - 1 if axis > 0 else axis + len(shape)
    entries = entries.ravel() if axis is None else entries
    refuse(
        axis == 0 or not 0 <= mode < entries.ndim,
        f"Expected axis to be one of X after the first, samples, which is 0, or None, got {axis}.",
    )
    lists = _lists(neighbours, entries.shape[mode])
    parts = [np.take(entries, own, axis=mode) for own in lists]
    found = _decode(model, X, y, parts, np.arange(len(parts)), cv, groups, confounds, scoring, generalize=False)
    is_around = modes is not None and axis is not None and len(parts) == shape[mode]  # each entry has its neighbourhood
    return replace(found, mode=modes[mode]) if is_around else found


def _entries(X: Any) -> tuple[tuple[int, ...], Array]:
    """Number the entries of a sample."""
    shape = tuple(np.shape(X)[1:])
    refuse(not shape, f"Expected samples of shape (n_samples, I1, ..., IN), got {np.shape(X)}.")
    return shape, np.arange(int(np.prod(shape))).reshape(shape)


def _lists(neighbours: Any, size: int) -> list[Array]:
    if issparse(neighbours) or getattr(neighbours, "ndim", 0) == 2:
        table = neighbours.toarray() if issparse(neighbours) else to_numpy(neighbours)
        refuse(
            table.shape != (size, size), f"Expected a matrix of neighbours of shape {(size, size)}, got {table.shape}."
        )
        return [np.flatnonzero((row != 0) | (np.arange(size) == i)) for i, row in enumerate(table)]
    lists = [np.asarray(own) for own in neighbours]
    bad = [
        own.ndim != 1 or own.dtype.kind not in "iu" or own.min() < 0 or own.max() >= size for own in lists if own.size
    ]
    refuse(
        not lists or len(bad) < len(lists) or any(bad),
        f"Expected lists of neighbours among 0 to {size - 1}, none of them empty, got others.",
    )
    return lists


def _decode(
    model: Any,
    X: Any,
    y: Any,
    parts: Sequence[Array],
    positions: Array,
    cv: Any,
    groups: Any,
    confounds: Any,
    scoring: Any,
    *,
    generalize: bool,
) -> Decoding:
    """Score a model at each part of a sample, given as the numbers of its entries in its shape."""
    check_model(model)
    plan = Plan.of(model, X, y, cv, groups, confounds, scoring)
    folds, name, chance = plan.folds, plan.name, _chance(plan.name, plan.labels, classifier=is_classifier(model))
    shape = (len(folds), len(parts), len(parts)) if generalize else (len(folds), len(parts))
    scores = np.empty(shape)
    if not (is_shared(model) and isinstance(model, TraceNormModel) and model._loss().has_moments):
        _one_by_one(model, to_numpy(X), plan, parts, scoring, scores)
        return Decoding(check_scores(scores), positions, name, "refit", chance, folds.ratio)
    reading = Reading.of(model, X, y, plan.confounds)
    sizes, is_zero = {part.shape for part in parts}, True
    for f, (train, test) in enumerate(folds.splits):
        clean = reading.cleaned(train)
        for size in sizes:  # neighbourhoods of one shape are one batch
            own = np.array([i for i, part in enumerate(parts) if part.shape == size])
            index = np.stack([parts[i].ravel() for i in own])
            W, b = _solve(clean, index, size, train)
            is_zero &= not np.any(W)
            _judge(clean, index, W, b, test, scoring, scores[f], own)
    if is_zero:
        warn_of_zero_weights(model)
    return Decoding(check_scores(scores), positions, name, "batch", chance, folds.ratio)


def _chance(scoring: str, labels: Array, *, classifier: bool) -> float | None:
    """Find what a prediction that ignores the samples scores, where that is known."""
    if not classifier:
        return 0.0 if scoring == "r2" else None
    counts = np.unique(labels, return_counts=True)[1]
    known = {"accuracy": counts.max() / counts.sum(), "balanced_accuracy": 1.0 / len(counts), "roc_auc": 0.5}
    return known.get(scoring)


def _rows(reading: Reading, index: Array, samples: Array) -> Array:
    """Gather the entries (T, c) of some samples: (T, m, c)."""
    rows = to_numpy(reading.block.X)[samples]
    return np.ascontiguousarray(np.moveaxis(rows[:, index], 1, 0))


def _solve(reading: Reading, index: Array, shape: tuple[int, ...], train: Array) -> tuple[Array, Array]:
    """Fit a model to the entries of each row of an index (T, c); return weights (T, K, c) and intercepts (T, K)."""
    T, c = index.shape
    step = max(1, _LARGEST_BATCH // (c * c + len(train) * c))
    found = [_batch(reading, index[start : start + step], shape, train) for start in range(0, T, step)]
    W, b = (np.concatenate(both) for both in zip(*found, strict=True))
    return W.reshape(T, -1, c), b.reshape(T, -1)


def _batch(reading: Reading, index: Array, shape: tuple[int, ...], train: Array) -> tuple[Array, Array]:
    model = copy.copy(reading.model)
    model.sample_shape_ = shape or (1,)
    A, Y = _rows(reading, index, train), to_numpy(reading.block.Y)[train]
    (T, m, _), K = A.shape, Y.shape[1]
    x_mean, y_mean = A.mean(axis=1, keepdims=True), Y.mean(axis=0)
    scales = np.ones_like(x_mean)
    if model.scaling:
        scales = np.stack([mode_scales(own, model.sample_shape_) for own in A.var(axis=1)])[:, None, :]
    if not model.fit_intercept:
        x_mean, y_mean = 0.0 * x_mean, 0.0 * y_mean
    A, Y = (A - x_mean) / scales, Y - y_mean
    back = np.swapaxes(A, 1, 2)
    covariance, cross = back @ A / m, np.swapaxes(back @ Y, 1, 2) / m
    ridge = np.full(T if model.target_mode else T * K, model.ridge)
    fit = Squares(
        SpectralGram(2.0 * covariance),
        cross.reshape(T * K, -1),
        np.tile(np.mean(Y**2, axis=0), T),
        ridge,
        (x_mean / scales)[:, 0],
        np.tile(y_mean, T),
        np.diagonal(covariance, axis1=1, axis2=2),
    )
    W = solve_stack(model, fit, K, "positions", exact_ranks=False)
    return W / np.repeat(scales[:, 0], K, axis=0), fit.intercept(W)


def _judge(
    reading: Reading, index: Array, W: Array, b: Array, test: Array, scoring: Any, scores: Array, own: Array
) -> None:
    """Score the models of positions ``own`` on held-out samples: each at its own, or where there are two axes at all."""
    A, order = _rows(reading, index, test), test[None]  # (T, m, c)
    if scores.ndim == 1:
        z = A @ np.swapaxes(W, 1, 2) + b[:, None, :]
        scores[own] = judged(reading, scoring, order, z)
        return
    (T, m, c), K = A.shape, W.shape[1]
    everywhere = A.reshape(T * m, c).T
    step = max(1, _LARGEST_BATCH // (T * m * K))
    for some in (slice(start, start + step) for start in range(0, T, step)):
        z = (W[some].reshape(-1, c) @ everywhere).reshape(-1, K, T, m) + b[some][:, :, None, None]
        z = np.moveaxis(z, 1, 3).reshape(-1, m, K)
        scores[some] = judged(reading, scoring, order, z).reshape(-1, T)


def _one_by_one(model: Any, X: Array, plan: Plan, parts: Sequence[Array], scoring: Any, scores: Array) -> None:
    """Fit position by position: other losses and other libraries."""
    scorer, y = check_scoring(model, scoring), plan.labels

    def at(part: Array, samples: Array) -> Array:
        return clean[samples][:, part.reshape(part.shape or (1,))]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroWeightsWarning)
        for f, (train, test) in enumerate(plan.folds.splits):
            clean = cleaned(X.reshape(len(X), -1), plan.confounds, train)
            for t, part in enumerate(parts):
                fitted = clone(model).fit(at(part, train), y[train])
                if scores.ndim == 2:
                    scores[f, t] = scored(scorer, fitted, at(part, test), y[test])
                else:
                    scores[f, t] = [scored(scorer, fitted, at(other, test), y[test]) for other in parts]
