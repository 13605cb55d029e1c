"""A search repeated for many sets of targets: alpha and ridge chosen anew for each, over the folds' shared operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from tracelearn.arrays.array_api import Array, array_namespace, move_to, to_numpy
from tracelearn.inference.reading import Reading
from tracelearn.inference.scoring import score_sets as judged
from tracelearn.inference.solving import batches as chunks
from tracelearn.penalties import as_penalty
from tracelearn.problems.batch import alpha_max
from tracelearn.samples.samples import Samples
from tracelearn.search.folds import Design, Folds
from tracelearn.search.search import RIDGES, Group, calibrated, first_with_weights, path, read_alphas, ridge_path
from tracelearn.search.session import see

__all__ = ["best_scores", "can_repeat", "chosen_model"]


def chosen_model(search, X):
    return clone(search.best_estimator_), search._seen(X)



def can_repeat(cv: Any) -> bool:
    """Tell whether only alpha and ridge are chosen: other choices, and weights of classes, change the system."""
    one_view = cv.views is None or (isinstance(cv.views, str) and cv.views != "auto" and "+" not in cv.views)
    plain = cv.mode_weights is None and not cv.target_mode and isinstance(cv.ridges, str) and not cv.one_standard_error
    return bool(one_view and plain and cv._loss().has_moments and getattr(cv, "class_weight", None) is None)


def best_scores(cv: Any, X: Any, y: Any, confounds: Array | None, folds: Folds, scoring: Any, order: Array) -> Array:
    """Find the held-out score of what a search chooses, for each order (S, n) of the targets: (S,)."""
    reading, F = Reading.of(cv._new_model(), X, y, confounds), folds.count
    view = see(cv.views or "raw", reading.samples, cv)
    seen, norm = view.samples, view.penalty or as_penalty(cv.penalty, view.samples.shape)
    found = []
    for own in chunks(len(order), F * seen.n_targets * seen.n_features):
        (targets,) = reading.part(np.arange(reading.n), order[own]).blocks
        (block,) = seen.blocks
        samples = Samples.of(replace(block, Y=targets.Y), seen.shape)
        numbers = not reading.model._learns_classes
        options = {"fit_intercept": cv.fit_intercept, "numbers": numbers, "by_score": scoring is not None}
        design = Design(samples, folds, reading.loss, **options)
        at_zero = not read_alphas(cv.alphas, cv.eps)[1]
        walks = (
            (ridge_path(design, RIDGES * (design.source.variance or 1.0)), False),
            (_alphas(design, cv, norm, seen.n_targets), at_zero),
        )
        best = [_best(walk, design, reading, scoring, order[own], at_zero=zero) for walk, zero in walks]
        values, scores = zip(*best, strict=True)
        found.append(np.where(values[0] >= values[1], *scores))
    return np.concatenate(found)


Path = Iterator[tuple[Array, Array]]  # weights as coordinates (F S K, r), intercepts (F S K,)


def _alphas(design: Design, cv: Any, norm: Any, n_targets: int) -> Path:
    """Walk the path of the search, with alphas as shares of each set's own ``alpha_max`` unless they were given."""
    (fit,), whole = design.fits
    rough, count = fit.single(), design.folds.count
    tops = to_numpy(alpha_max(whole, norm, design.samples.shape)).reshape(-1, n_targets)
    top = move_to(np.tile(np.repeat(np.max(tops, axis=1), n_targets), count), rough.ridge, rough.ridge.dtype)
    alphas, given = read_alphas(cv.alphas, cv.eps)
    return path(design, Group(rough, fit, norm, top), alphas, given=given, max_iter=cv.max_iter)


def _best(
    walk: Path, design: Design, reading: Reading, scoring: Any, order: Array, *, at_zero: bool
) -> tuple[Array, Array]:
    """Choose along a path for each set; return what selected (S,), and the held-out score of the choice (S,).

    A path may begin where all samples have no weights, ``at_zero``.
    """
    S, F, K = len(order), design.folds.count, reading.samples.n_targets
    statistics, shown, together = [], [], F // len(design.held)
    for W, b in walk:
        xp = array_namespace(W)
        rows, offset = xp.reshape(W, (F, S * K, -1)), xp.reshape(b, (F, S * K))
        known, own = [], []
        for h, held in enumerate(design.held):
            at = slice(h * together, (h + 1) * together)
            z, _, part = design.statistics(held, rows[at, ...], offset[at, :], design.source.centre)
            known.append(to_numpy(part).reshape(-1, S, K, 5))
            for index, scores in zip(held.index, to_numpy(z), strict=True):
                sets = np.moveaxis(scores[: len(index)].reshape(-1, S, K), 0, 1)
                own.append(judged(reading, scoring, order[:, index], sets))
        statistics.append(np.moveaxis(np.concatenate(known), 0, 1))  # (S, F, K, 5)
        shown.append(np.stack(own, axis=1) @ design.weights)
    selecting = [calibrated(a, design.weights, numbers=design.numbers) for a in statistics]
    values = np.stack(shown if scoring is not None else selecting)
    edged = np.concatenate([values[:1], values, values[-1:]])
    smooth = np.round(0.25 * edged[:-2] + 0.5 * edged[1:-1] + 0.25 * edged[2:], 9)
    at = np.argmax(smooth, axis=0)
    at = np.maximum(at, first_with_weights(values, design) if at_zero else 0)[None]
    return np.take_along_axis(smooth, at, axis=0)[0], np.take_along_axis(np.stack(shown), at, axis=0)[0]
