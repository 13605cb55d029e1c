"""Models of samples drawn with replacement, and what each unit, a sample or a group, does to their score.

A draw changes how often each sample counts, and nothing else: with the squared loss all draws are one batch of problems.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from tracelearn.arrays.array_api import Array, is_sparse, to_numpy
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.inference.sets import Reading, check_scores, chunks, cleaned, is_shared, judged, solve_stack
from tracelearn.problems.basis import in_basis, origin_of, variances_about
from tracelearn.problems.operators import SpectralGram
from tracelearn.problems.squares import Squares
from tracelearn.search.splits import predicted_class

__all__ = ["Drawn", "Study", "degrees_of", "draw"]

_LARGEST_GRAM = 2000  # entries, or samples where they are fewer, whose matrices of products are solved as a batch
_MOST_MISSED = 10  # draws without a score, for each that is wanted
_MOST_TRIED = 1000  # draws that leave nothing out or lack a class, before it is given up
_MOST_BLOCKS = 20  # parts of the units, whose scores are asked for one by one


@dataclass(frozen=True, eq=False)
class Study:
    """A model and samples, of which units are drawn: single samples, or groups of them."""

    reading: Reading
    X: Array
    confounds: Array | None
    units: Array  # (n,) the number of each sample's unit
    scoring: Any
    random: np.random.Generator

    @property
    def n_units(self) -> int:
        """The number of units."""
        return int(self.units.max()) + 1

    @property
    def blocks(self) -> Array:
        """A part of the units for each of them, (U,), the same for all draws; in any order, as neighbours may be alike."""
        return np.random.default_rng(0).permutation(self.n_units) % min(self.n_units, _MOST_BLOCKS)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Models of B draws of some units, and their predictions for all samples."""

    study: Study
    counts: Array  # (B, U), how often each unit was drawn
    rows: Array  # weights (B, K, p)
    patterns: Array  # (B, K, p)
    predictions: Array  # (B, n, K), before any link
    scores: Array  # (B,) on what was left out

    def joined(self, other: Drawn) -> Drawn:
        """Add other draws."""
        names = ("counts", "rows", "patterns", "predictions", "scores")
        return Drawn(self.study, *(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))

    @property
    def left_out(self) -> Array:
        """Which samples each draw left out, (B, n)."""
        return np.asarray(self.counts[:, self.study.units] == 0)

    def influence(self) -> Influence:
        """Find the mean score of the draws on what they leave out, and what each unit does to it: as judge, and as teacher.

        As judge it adds its own score; as teacher it makes models better or worse, which is the covariance of how often it was
        drawn with how well the model did for the samples it was judged by (the infinitesimal jackknife; Efron, 2014).
        """
        values, blocks = _values(self)
        study, left, (B, n) = self.study, self.left_out, values.shape
        times = left.sum(axis=0)
        score = float(np.mean(np.sum(values, axis=0)[times > 0] / times[times > 0]))
        own = np.where(times > 0, np.sum(values, axis=0) / np.maximum(times, 1), score)
        better = np.sum(np.where(left, values - own, 0.0), axis=1) / left.sum(axis=1)
        counts = self.counts - self.counts.mean(axis=0)
        judges = np.bincount(study.units, weights=own - score, minlength=study.n_units) / n
        teachers = counts.T @ (better - better.mean()) / B
        noise = float(np.sum(np.var(self.counts, axis=0)) * np.var(better) / B)
        judges, teachers = (np.bincount(blocks, weights=part) for part in (judges, teachers))
        return Influence(score, judges, teachers, noise)


@dataclass(frozen=True, eq=False)
class Influence:
    """A score, and what each unit, or each block of units, adds to it."""

    score: float
    judges: Array  # (U,) by what it scores
    teachers: Array  # (U,) by what models learn from it
    noise: float  # what too few draws add to the sum of squares

    @property
    def moves(self) -> Array:
        """Both together, about their mean."""
        found = self.judges + self.teachers
        return np.asarray(found - found.mean())

    @property
    def variance(self) -> float:
        """The variance of the score over studies: no less than that of samples that only judge."""
        n = len(self.judges)
        least = float(np.sum((self.judges - self.judges.mean()) ** 2))
        return n / (n - 1) * max(float(np.sum(self.moves**2)) - self.noise, least)

    @property
    def degrees(self) -> float:
        """How well the variance is known, as degrees of freedom: fewer where noise was most of the squares."""
        n, squares = len(self.judges), float(np.sum(self.moves**2))
        kept = min(1.0, (n - 1) / n * self.variance / squares) if squares > 0 else 1.0
        return max(float(degrees_of(self.moves)) * kept**2, min(2, n - 1))

    def extended(self, half: Influence, best: float | None = None) -> Influence:
        """Go on from draws of half as many units to all units themselves, as the score of draws went on from these.

        A draw of m of n units is worth ``m n / (m + n)`` of them: n / 3, n / 2 and n are steps of one size in their inverses,
        and a score loses in proportion to these. Where there is a best score, what is missing to it falls by the same factor
        once more: none of it is left at last, and never less than none.
        """
        kept = 1.0 if best is None or half.score >= best else min((best - self.score) / (best - half.score), 1.0)
        kept = max(kept, 0.0)
        return Influence(
            2.0 * self.score - half.score if best is None else best - kept * (best - self.score),
            2.0 * kept * self.judges - kept**2 * half.judges,
            2.0 * kept * self.teachers - kept**2 * half.teachers,
            4.0 * kept**2 * self.noise + kept**4 * half.noise,
        )


def degrees_of(moves: Array, noise: float = 0.0) -> Array:
    """Find how well a sum of squares of what n units do (n, ...) is known, (...), as degrees of freedom.

    A variance of n units has n - 1 where these are normal, and ``2n / (k - 1 + 2 / (n - 1))`` where their kurtosis is k. Noise,
    as a share of the squares that is added, is normal and hides the kurtosis.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.inference.draws import degrees_of
    >>> float(degrees_of(np.tile([-1.0, 1.0], 10))), float(degrees_of(np.arange(20) == 3.0).round(1))
    (19.0, 2.1)
    """
    n = len(moves)
    scale = np.sqrt(np.mean(moves**2, axis=0))
    excess = np.mean((moves / np.where(scale > 0, scale, 1.0)) ** 4, axis=0) - 3.0
    return np.clip(2.0 * n / (np.maximum(excess, 0.0) * (1.0 + noise) ** 2 + 2.0 + 2.0 / (n - 1)), min(2, n - 1), n - 1)


# --- drawing and fitting ----------------------------------------------------------------------------------------------


def draw(study: Study, count: int, size: int) -> Drawn | None:
    """Draw ``size`` units with replacement, ``count`` times, and fit the model; None where no draw has every class.

    Draws without a score, such as an area under a curve where one class was left out, are drawn anew.
    """
    found: Drawn | None = None
    missed = 0
    while found is None or len(found.scores) < count:
        counts = _counts(study, count - (0 if found is None else len(found.scores)), size)
        if counts is None:
            return None
        more, finite = _fitted(study, counts)
        missed += int(np.sum(~finite))
        if missed > _MOST_MISSED * count:
            check_scores(np.array(np.nan))
        found = more if found is None else found.joined(more)
    return found


def _counts(study: Study, count: int, size: int) -> Array | None:
    """Draw units until something is left out, and every class drawn, (count, U)."""
    reading, U = study.reading, study.n_units
    n_classes = len(np.unique(reading.labels)) if reading.model._learns_classes else 0
    found: list[Array] = []
    while len(found) < count:
        for _ in range(_MOST_TRIED):
            own = np.bincount(study.random.integers(U, size=size), minlength=U)
            drawn = own[study.units] > 0
            if np.sum(~drawn) >= 2 and (not n_classes or len(np.unique(reading.labels[drawn])) == n_classes):
                found.append(own)
                break
        else:
            return None
    return np.array(found)


def _fitted(study: Study, counts: Array) -> tuple[Drawn, Array]:
    """Fit the model to each draw (B, U); keep those whose score is finite, and say which, (B,)."""
    weights = counts[:, study.units].astype(float)
    rows, predictions, patterns = (_together if _is_batch(study) else _one_by_one)(study, weights)
    scores = np.array(
        [_judged(study, left, z[left]) for z, left in zip(predictions, map(np.flatnonzero, weights == 0), strict=True)]
    )
    kept = np.isfinite(scores)
    return Drawn(study, *(a[kept] for a in (counts, rows, patterns, predictions, scores))), kept


def _is_batch(study: Study) -> bool:
    """Tell whether draws can be one batch: of samples whose products are few enough, and themselves the same in all draws."""
    reading, samples = study.reading, study.reading.samples
    plain = is_shared(reading.model) and not reading.model.scaling and reading.loss.has_moments
    small = min(reading.n, samples.n_features) <= _LARGEST_GRAM
    return bool(plain and small and study.confounds is None and not is_sparse(samples.like))


def _one_by_one(study: Study, weights: Array) -> tuple[Array, ...]:
    """Fit draw by draw: other losses, confounds, which each draw regresses out anew, and many entries."""
    reading, found = study.reading, []
    K = reading.samples.n_targets
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroWeightsWarning)
        for weight in weights:
            clean = cleaned(study.X, study.confounds, weight)
            one = clone(reading.model).fit(clean, reading.labels, sample_weight=weight)
            W, patterns = (np.reshape(to_numpy(a), (K, -1)) for a in (one.coef_, one.patterns_))
            z = np.reshape(clean, (len(clean), -1)) @ W.T + np.reshape(to_numpy(one.intercept_), -1)
            found.append((W, z, patterns))
    return tuple(np.array(own) for own in zip(*found, strict=True))


def _together(study: Study, weights: Array) -> tuple[Array, ...]:
    """Fit all draws (B, n) as one batch: rows (B, K, p), predictions (B, n, K), patterns (B, K, p)."""
    reading, (B, n) = study.reading, weights.shape
    samples, model = reading.samples, reading.model
    K, p, basis, variances = samples.n_targets, samples.n_features, None, None
    if 2 * n < p:
        basis, origin, coordinates = in_basis(samples, fit_intercept=model.fit_intercept)
        variances, rows = variances_about(samples, origin), to_numpy(coordinates.rows)
    else:
        origin = origin_of(samples, fit_intercept=model.fit_intercept)
        rows = to_numpy(samples.rows) - to_numpy(origin)
    found = []
    for part in chunks(B, rows.shape[1] ** 2 + rows.size + K * p):
        fit = _squares(reading, rows, weights[part])
        if basis is not None:
            fit = fit.lifted(to_numpy(basis), to_numpy(origin), to_numpy(variances))
        else:
            fit = replace(fit, x_mean=fit.x_mean + to_numpy(origin))
        W = solve_stack(model, fit, K, "draws", exact_ranks=True)
        b = fit.intercept(W) if model.fit_intercept else np.zeros(len(W))
        patterns = 0.5 * fit.operator.apply(W)
        if not model.fit_intercept:  # its products are not about the mean, which patterns are
            mean = np.repeat(weights[part] @ rows / np.sum(weights[part], axis=1, keepdims=True), K, axis=0)
            mean = mean if basis is None else mean @ to_numpy(basis).T
            patterns = patterns - np.sum(W * mean, axis=1, keepdims=True) * mean
        found.append((W, b, patterns))
    W, b, patterns = (np.concatenate(own) for own in zip(*found, strict=True))
    z = W.reshape(B * K, p) @ to_numpy(samples.rows).T + b[:, None]
    return W.reshape(B, K, p), np.moveaxis(z.reshape(B, K, n), 1, 2), patterns.reshape(B, K, p)


def _squares(reading: Reading, rows: Array, weights: Array) -> Squares:
    """Read samples (n, r) about an origin as one group of problems for each row of weights (B, n)."""
    model, Y, share = reading.model, to_numpy(reading.block.Y), weights / weights.sum(axis=1, keepdims=True)
    middle = Y.mean(axis=0) if model.fit_intercept else 0.0 * Y[0]
    Y = Y - middle
    x_mean, y_mean = share @ rows, share @ Y
    if not model.fit_intercept:
        x_mean, y_mean = 0.0 * x_mean, 0.0 * y_mean
    covariance = np.swapaxes(rows * share[:, :, None], 1, 2) @ rows - x_mean[:, :, None] * x_mean[:, None, :]
    cross = np.swapaxes(Y * share[:, :, None], 1, 2) @ rows - y_mean[:, :, None] * x_mean[:, None, :]
    target = np.maximum(share @ Y**2 - y_mean**2, 0.0)
    B, K, r = cross.shape
    ridge = np.full(B if model.target_mode else B * K, float(model.ridge))
    return Squares(
        SpectralGram(2.0 * covariance),
        cross.reshape(B * K, r),
        target.ravel(),
        ridge,
        x_mean,
        (y_mean + middle).ravel(),
        np.diagonal(covariance, axis1=1, axis2=2),
    )


# --- judging ----------------------------------------------------------------------------------------------------------


def _values(drawn: Drawn) -> tuple[Array, Array]:
    """Share the score of each draw out to the samples it left out, (B, n), zero elsewhere; and number the blocks of units, (U,).

    Hits and squares are means over samples already. Of other scores the jackknife tells what a block of units adds.
    """
    study, left = drawn.study, drawn.left_out
    reading, single = study.reading, np.arange(study.n_units)
    name = study.scoring or ("accuracy" if reading.model._learns_classes else "r2")
    if name == "accuracy":
        return np.where(left, predicted_class(drawn.predictions) == reading.codes, 0.0), single
    if name in ("r2", "neg_mean_squared_error"):
        squares = (reading.codes - reading.loss.inverse_link(drawn.predictions)) ** 2  # (B, n, K)
        values = -squares if name != "r2" else _shares(squares, left, reading.codes, study.units)
        return np.where(left, np.mean(values, axis=2), 0.0), single
    blocks = study.blocks[study.units]
    return np.array([_jackknifed(drawn, b, np.flatnonzero(left[b]), blocks) for b in range(len(left))]), study.blocks


def _shares(squares: Array, left: Array, y: Array, units: Array) -> Array:
    """Share R² out to samples, (B, n, K): one less their squares over the variance of targets, which they tell as well."""
    variance, about = _variance(y, units), (y - y.mean(axis=0)) ** 2
    variance, spread = (np.where(a > 0, a, 1.0) for a in (variance, about.mean(axis=0)))
    # Of all draws: that of a draw goes along with the targets it leaves out, and would pay for them twice.
    lost = np.sum(squares * left[..., None], axis=(0, 1)) / left.sum() / variance
    return np.asarray(1.0 - squares / variance + lost * (about / spread - 1.0))


def _variance(y: Array, units: Array) -> Array:
    """Find the variance of targets (n, K) over new units, (K,): half the mean square of differences between units."""
    y, times = y - y.mean(axis=0), np.bincount(units).astype(float)
    sums, squares = (np.stack([np.bincount(units, weights=own) for own in a.T], axis=1) for a in (y, y**2))
    within = np.sum(times[:, None] * squares - sums**2, axis=0)
    whole = len(y) * np.sum(y**2, axis=0) - np.sum(y, axis=0) ** 2
    return np.asarray(np.maximum(whole - within, 0.0) / (len(y) ** 2 - np.sum(times**2)))


def _judged(study: Study, some: Array, predictions: Array) -> float:
    """Score predictions (m, K) of some samples, (m,); NaN where these lack a class that the score needs."""
    reading = study.reading
    try:
        return float(judged(reading, study.scoring, some[None], predictions[None])[0])
    except ValueError:
        classes = len(np.unique(reading.labels)) if reading.model._learns_classes else 0
        if len(np.unique(reading.labels[some])) < classes:
            return np.nan
        raise


def _jackknifed(drawn: Drawn, b: int, left: Array, blocks: Array) -> Array:
    """Find what each sample that a draw left out adds to its score, (n,), by leaving out its block of units, (n,), as well."""
    study, found = drawn.study, np.zeros(len(blocks))
    found[left] = drawn.scores[b]
    for block in np.unique(blocks[left]):
        own = blocks[left] == block
        rest = left[~own]
        if len(rest) < 2:
            continue
        without = _judged(study, rest, drawn.predictions[b, rest])
        if np.isfinite(without):
            found[left[own]] += (drawn.scores[b] - without) * len(rest) / np.sum(own)
    return found
