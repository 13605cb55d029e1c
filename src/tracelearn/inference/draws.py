"""Models of samples drawn with replacement, and what each unit, a sample or a group, does to their score."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.inference.reading import Reading, name_of_score, without_confounds
from tracelearn.inference.scoring import check_scores, score_sets
from tracelearn.search.splits import predicted_class

__all__ = ["Drawn", "Study", "degrees_of", "draw", "jackknifed"]

_MOST_MISSED = 10  # draws whose score is not defined, for each draw that is wanted, before drawing is given up
_MOST_TRIED = 1000  # draws in a row that leave nothing out or lack a class, before drawing is given up
_MOST_BLOCKS = 20  # of units in a jackknife, which asks for a score without each block


@dataclass(frozen=True, eq=False)
class Study:
    """A model and samples, of which units are drawn: single samples, or groups of them.

    Parameters
    ----------
    model : the estimator
    reading : the model and its samples as they were read, without confounds
    X : array of shape (n, ...), the samples as they came
    confounds : array of shape (n, n_confounds), or None
    units : array of shape (n,), the number of each sample's unit
    scoring : as in scikit-learn
    """

    model: Any
    reading: Reading
    X: Array
    confounds: Array | None
    units: Array
    scoring: Any = None

    @property
    def n_units(self) -> int:
        """The number of units."""
        return int(self.units.max()) + 1

    @property
    def n_classes(self) -> int:
        """The number of classes; zero for numbers."""
        return len(np.unique(self.reading.labels)) if self.reading.are_classes else 0

    @property
    def block_of_unit(self) -> Array:
        """The number (U,) of the block of each unit, the same for all draws; shuffled, since neighbouring units may be alike."""
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
        return Drawn(
            study=self.study,
            counts=np.concatenate([self.counts, other.counts]),
            rows=np.concatenate([self.rows, other.rows]),
            patterns=np.concatenate([self.patterns, other.patterns]),
            predictions=np.concatenate([self.predictions, other.predictions]),
            scores=np.concatenate([self.scores, other.scores]),
        )

    @property
    def left_out(self) -> Array:
        """Which samples each draw left out, (B, n)."""
        return np.asarray(self.counts[:, self.study.units] == 0)

    def sample_scores(self) -> tuple[Array, Array]:
        """Write the score of each draw as a mean over the samples it left out: (B, n), zero elsewhere.

        Accuracy and squared errors are such means already. Of other scores the jackknife tells what a block of units adds: the
        second array numbers the block of each unit, (U,).
        """
        study = self.study
        reading = self.study.reading
        left_out = self.left_out
        every_unit = np.arange(study.n_units)
        name = name_of_score(None, classifier=reading.are_classes) if study.scoring is None else study.scoring
        if name == "accuracy":
            return np.where(left_out, predicted_class(self.predictions) == reading.codes, 0.0), every_unit
        if name in ("r2", "neg_mean_squared_error"):
            squares = (reading.codes - reading.loss.inverse_link(self.predictions)) ** 2  # (B, n, K)
            values = _shares_of_r2(squares, left_out, reading.codes, study.units) if name == "r2" else -squares
            return np.where(left_out, np.mean(values, axis=2), 0.0), every_unit
        blocks = study.block_of_unit
        return np.array([jackknifed(self, b, blocks[study.units]) for b in range(len(left_out))]), blocks

    def influence(self) -> Influence:
        """Find the mean score of the draws on what they leave out, and what each unit adds to it; see ``Influence``.

        As a held-out unit ("judge") it adds its own score. As a training unit ("teacher") it adds the covariance of how often it
        was drawn with how well the models did (the infinitesimal jackknife; Efron, 2014).
        """
        values, blocks = self.sample_scores()
        study = self.study
        left_out = self.left_out
        B, n = values.shape
        n_judged = left_out.sum(axis=0)
        is_judged = n_judged > 0
        mean_values = np.sum(values, axis=0) / np.maximum(n_judged, 1)
        score = float(np.mean(mean_values[is_judged]))
        score_of_sample = np.where(is_judged, mean_values, score)
        gain_of_draw = np.sum(np.where(left_out, values - score_of_sample, 0.0), axis=1) / left_out.sum(axis=1)
        counts = self.counts - self.counts.mean(axis=0)
        judges = np.bincount(study.units, weights=score_of_sample - score, minlength=study.n_units) / n
        teachers = counts.T @ (gain_of_draw - gain_of_draw.mean()) / B
        noise = float(np.sum(np.var(self.counts, axis=0)) * np.var(gain_of_draw) / B)
        return Influence(score, np.bincount(blocks, weights=judges), np.bincount(blocks, weights=teachers), noise)


@dataclass(frozen=True, eq=False)
class Influence:
    """A score, and what each unit, or each block of units, adds to it: as a held-out unit, and as a training unit."""

    score: float
    judges: Array  # (U,), as a held-out unit: by how well it is predicted
    teachers: Array  # (U,), as a training unit: by what models learn from it
    noise: float  # what the finite number of draws adds, by chance, to the sum of squares of the teachers

    @property
    def moves(self) -> Array:
        """What each unit adds to the score in both roles, less the mean over units."""
        moves = self.judges + self.teachers
        return np.asarray(moves - moves.mean())

    @property
    def variance(self) -> float:
        """The variance of the score over studies: no less than if units were held out only, since noise may hide the rest."""
        n = len(self.judges)
        least = float(np.sum((self.judges - self.judges.mean()) ** 2))
        return n / (n - 1) * max(float(np.sum(self.moves**2)) - self.noise, least)

    @property
    def degrees(self) -> float:
        """The degrees of freedom of ``variance``: fewer where most of the sum of squares was noise."""
        n = len(self.judges)
        squares = float(np.sum(self.moves**2))
        share = min(1.0, (n - 1) / n * self.variance / squares) if squares > 0 else 1.0
        return max(float(degrees_of(self.moves)) * share**2, min(2, n - 1))

    def extrapolated(self, half: Influence, best: float | None = None) -> Influence:
        """Extrapolate to a model of all n units, from these draws of n units and from draws of ``half`` as many.

        A draw of m units with replacement teaches as much as ``m n / (m + n)`` different units: n / 3 if m is n / 2, and n / 2
        if m is n. What a model lacks in score is taken as proportional to the inverse of this number. Since 3 / n, 2 / n and
        1 / n are equally far apart, the step from these draws to all units is as large as that from the half to these draws.
        Where scores have a ``best`` value, the distance from it is multiplied by the same factor in both steps instead.
        """
        factor = 1.0
        if best is not None and half.score < best:
            factor = float(np.clip((best - self.score) / (best - half.score), 0.0, 1.0))
        score = 2.0 * self.score - half.score if best is None else best - factor * (best - self.score)
        return Influence(
            score,
            2.0 * factor * self.judges - factor**2 * half.judges,
            2.0 * factor * self.teachers - factor**2 * half.teachers,
            4.0 * factor**2 * self.noise + factor**4 * half.noise,
        )


def degrees_of(moves: Array, noise: float = 0.0) -> Array:
    """Find the degrees of freedom (...) of a variance that is estimated from n units, given the deviation of each (n, ...).

    They are n - 1 if deviations are normal, and ``2n / (k - 1 + 2 / (n - 1))`` if their kurtosis is k. ``noise`` is the share
    that normal noise adds to the sum of squares, which makes the kurtosis appear smaller than it is.

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


def draw(study: Study, count: int, size: int, random: np.random.Generator) -> Drawn | None:
    """Draw ``size`` units with replacement, ``count`` times, and fit the model; None where no draw has every class.

    Draws without a score, such as an area under a curve where one class was left out, are drawn anew.
    """
    drawn: Drawn | None = None
    n_missed = 0
    while drawn is None or len(drawn.scores) < count:
        counts = _draw_counts(study, count - (0 if drawn is None else len(drawn.scores)), size, random)
        if counts is None:
            return None
        scored = _fit_draws(study, counts)
        n_missed += len(counts) - len(scored.scores)
        if n_missed > _MOST_MISSED * count:
            check_scores(np.array(np.nan))
        drawn = scored if drawn is None else drawn.joined(scored)
    return drawn


def _draw_counts(study: Study, count: int, size: int, random: np.random.Generator) -> Array | None:
    """Draw units until ``count`` draws are usable; return how often each unit was drawn, (count, U), or None if none is found."""
    draws: list[Array] = []
    while len(draws) < count:
        for _ in range(_MOST_TRIED):
            counts = np.bincount(random.integers(study.n_units, size=size), minlength=study.n_units)
            if _is_usable(study, counts[study.units] > 0):
                draws.append(counts)
                break
        else:
            return None
    return np.array(draws)


def _is_usable(study: Study, is_drawn: Array) -> bool:
    """Tell whether a draw leaves out at least two samples and has every class; ``is_drawn`` (n,) says which it has."""
    if np.sum(~is_drawn) < 2:
        return False
    return not study.n_classes or len(np.unique(study.reading.labels[is_drawn])) == study.n_classes


def _fit_draws(study: Study, counts: Array) -> Drawn:
    """Fit the model to draws (B, U), confounds regressed out anew in each, and return those whose score is finite."""
    K = study.reading.samples.n_targets
    rows = []
    patterns = []
    predictions = []
    scores = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroWeightsWarning)
        for weight in counts[:, study.units].astype(float):
            cleaned = without_confounds(study.X, study.confounds, weight)
            fitted = clone(study.model).fit(cleaned, study.reading.labels, sample_weight=weight)
            W = np.reshape(to_numpy(fitted.coef_), (K, -1))
            intercept = np.reshape(to_numpy(fitted.intercept_), -1)
            rows.append(W)
            patterns.append(np.reshape(to_numpy(fitted.patterns_), (K, -1)))
            predictions.append(np.reshape(cleaned, (len(cleaned), -1)) @ W.T + intercept)
            left_out = np.flatnonzero(weight == 0)
            scores.append(_score(study, left_out, predictions[-1][left_out]))
    good = np.isfinite(scores)
    arrays = (np.array(values)[good] for values in (rows, patterns, predictions, scores))
    return Drawn(study, counts[good], *arrays)


# --- judging ----------------------------------------------------------------------------------------------------------


def _shares_of_r2(squares: Array, left_out: Array, y: Array, units: Array) -> Array:
    """Write R² as a mean over samples, (B, n, K): what each adds by its squared error, and by its part in the variance of y."""
    variance = _variance_over_units(y, units)
    variance = np.where(variance > 0, variance, 1.0)
    deviations = (y - y.mean(axis=0)) ** 2
    spread = deviations.mean(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    # Over all draws: that of one draw depends on which targets it leaves out, and their effect would count twice.
    unexplained = np.sum(squares * left_out[..., None], axis=(0, 1)) / left_out.sum() / variance
    return np.asarray(1.0 - squares / variance + unexplained * (deviations / spread - 1.0))


def _variance_over_units(y: Array, units: Array) -> Array:
    """Find the variance of targets (n, K) over new units, (K,): half the mean square of differences between units."""
    y = y - y.mean(axis=0)
    sizes = np.bincount(units).astype(float)
    sums = np.stack([np.bincount(units, weights=column) for column in y.T], axis=1)
    squares = np.stack([np.bincount(units, weights=column) for column in (y**2).T], axis=1)
    within = np.sum(sizes[:, None] * squares - sums**2, axis=0)
    total = len(y) * np.sum(y**2, axis=0) - np.sum(y, axis=0) ** 2
    return np.asarray(np.maximum(total - within, 0.0) / (len(y) ** 2 - np.sum(sizes**2)))


def _score(study: Study, samples: Array, predictions: Array) -> float:
    """Score predictions (m, K) for the samples of an index (m,); NaN where these lack a class that the score needs."""
    try:
        return float(score_sets(study.reading, study.scoring, samples[None], predictions[None])[0])
    except ValueError:
        if len(np.unique(study.reading.labels[samples])) < study.n_classes:
            return np.nan
        raise


def jackknifed(drawn: Drawn, b: int, blocks: Array) -> Array:
    """Estimate by the jackknife what each sample adds to the score of draw b, (n,): by the score without its block.

    ``blocks`` (n,) numbers the block of each sample; samples that the draw learned from add nothing.
    """
    left_out = np.flatnonzero(drawn.left_out[b])
    contributions = np.zeros(len(blocks))
    contributions[left_out] = drawn.scores[b]
    for block in np.unique(blocks[left_out]):
        in_block = blocks[left_out] == block
        remaining = left_out[~in_block]
        if len(remaining) < 2:
            continue
        score_without = _score(drawn.study, remaining, drawn.predictions[b, remaining])
        if np.isfinite(score_without):
            gain = (drawn.scores[b] - score_without) * len(remaining) / np.sum(in_block)
            contributions[left_out[in_block]] += gain
    return contributions
