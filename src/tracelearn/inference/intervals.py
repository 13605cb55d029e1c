"""Intervals: how much scores, weights, patterns and ranks depend on the samples that happened to come; learning curves."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm as normal
from scipy.stats import t as student
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.estimators.base import TraceNormModel, ZeroWeightsWarning
from tracelearn.inference.sets import (
    Reading,
    check_count,
    check_model,
    check_scores,
    cleaned,
    is_shared,
    judged,
    read_groups,
    read_labels,
    score_name,
    scored,
    warn_of_zero_weights,
)
from tracelearn.moments import Moments
from tracelearn.problems.batch import Solution, in_basis, variances_about
from tracelearn.problems.datafits import Squares
from tracelearn.samples.checks import read_confounds, small_on_one_thread
from tracelearn.samples.samples import unnamed
from tracelearn.selection.folds import corrected_error, folds_of

__all__ = ["Bootstrap", "LearningCurve", "bootstrap", "learning_curve"]

_MOST_MISSED = 10  # draws without a score, for each that is wanted


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """A model fitted to many samples of the samples.

    ``interval`` gives intervals that cover, in ``level`` of all studies of this kind,

    - "coefs", "patterns": those of the same model with the same alpha and endlessly many samples. The penalty shrinks these
      too: they are not the weights of a model without one. Where a sample has more entries than there are samples, large
      weights are covered less often than promised, as a fit to few samples shrinks them more; patterns are not affected.
      Large patterns of few groups vary more upwards than downwards, as variances do.
    - "scores": the mean score on new samples of models fitted to as many samples drawn with replacement. These have about 63 %
      of the samples, so it is below the score of the model of all samples where more samples help: see ``learning_curve``.
      What all draws share, that these samples teach more or less than others would, is not in their spread.
    - "angles": no true value, which would be zero; they are how far the subspaces of most draws turn.

    In simulations (``coverage`` in ``tests/test_intervals.py``) intervals of 90 % covered

    ================================================  =======  ========  ===============  ======
    200 studies of                                    weights  patterns  largest pattern  scores
    ================================================  =======  ========  ===============  ======
    160 samples                                       90 %     92 %      92 %             83 %
    40 groups of 4 samples that depend on each other  91 %     88 %      84 %             87 %
    ================================================  =======  ========  ===============  ======

    Attributes
    ----------
    scores : array of shape (n_bootstraps,)
        On the samples that were not drawn.
    coefs, patterns : arrays of shape (n_bootstraps, ...)
        Of the shape of ``coef_``, for each bootstrap.
    ranks : array of shape (n_bootstraps, n_modes)
        Of all targets together.
    angles : array of shape (n_bootstraps, n_modes)
        The largest principal angle, in degrees, between the subspace of a mode and that of the model of all samples, each of
        the rank of the latter: small where a subspace is stable.
    coef : array
        Weights of the model of all samples.
    level : float
        What intervals cover.
    scoring : str
    counts : array of shape (n_bootstraps, n_units)
        How often each sample, or each group, was drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.inference import Bootstrap
    >>> coefs, ranks = np.arange(99.0)[:, None, None], np.full((99, 2), 1)
    >>> counts = np.random.default_rng(0).multinomial(20, np.full(20, 0.05), size=99)
    >>> found = Bootstrap(np.ones(99), coefs, coefs, ranks, np.zeros((99, 2)), np.ones((1, 1)), 0.9, "r2", counts)
    >>> found.interval("coefs").ravel().round(1), found.rank_shares(0)
    (array([ 2.8, 95.2]), {1: 1.0})
    >>> print(found)
    r2 1.000, 90% from 1.000 to 1.000, from 99 bootstraps; ranks found most often 1 (100%), 1 (100%)
    """

    scores: Array
    coefs: Array
    patterns: Array
    ranks: Array
    angles: Array
    coef: Array
    level: float
    scoring: str
    counts: Array

    def interval(self, what: str = "scores") -> Array:
        """Find the interval of "scores", "coefs", "patterns" or "angles": low and high, (2, ...).

        Percentiles are expanded: few samples or groups, drawn again, vary less than new ones would, and know less of how much
        they vary (Hesterberg, 2015), the less the fewer of them carry most of it. The more certain and the fewer the units, the
        more bootstraps it takes: no end is beyond all that were drawn.
        """
        if what not in ("scores", "coefs", "patterns", "angles"):
            raise ValueError(f"Expected 'scores', 'coefs', 'patterns' or 'angles', got {what!r}.")
        values, n = getattr(self, what), self.counts.shape[1]
        degrees = n - 1 if what == "scores" else self._degrees(values)
        tail = normal.cdf(math.sqrt(n / (n - 1)) * student.ppf(0.5 - 0.5 * self.level, degrees))
        found = np.stack([_quantile(values, tail), _quantile(values, 1.0 - tail)])
        if what != "scores":
            return found
        # A draw leaves a share q of the units out, and is scored on these: parts of the same units, of which the mean over
        # draws has all. What varies is (1 - q) / q times the variance of a score on all of them.
        left_out = (1.0 - 1.0 / n) ** n
        mean = np.mean(values)
        return np.asarray(mean + math.sqrt(left_out / (1.0 - left_out)) * (found - mean))

    def _degrees(self, values: Array) -> Array:
        """Find how well the spread of values (n_bootstraps, ...) is known, (...), as degrees of freedom.

        A variance of n units has n - 1 where these are normal, and ``2n / (k - 1 + 2 / (n - 1))`` where their kurtosis is k. What
        a unit does to a value is its covariance with how often the unit was drawn; of few draws much of that is noise, which is
        normal and hides the kurtosis.
        """
        draws, n = self.counts.shape
        moves = np.tensordot(self.counts - 1.0, values - np.mean(values, axis=0), (0, 0))  # (n_units, ...)
        moves = moves / np.where(np.any(moves, axis=0), np.sqrt(np.mean(moves**2, axis=0)), 1.0)
        excess = np.maximum(np.mean(moves**4, axis=0) - 3.0, 0.0) * (1.0 + n / draws) ** 2
        return np.clip(2.0 * n / (excess + 2.0 + 2.0 / (n - 1)), min(2, n - 1), n - 1)

    def rank_shares(self, mode: int) -> dict[int, float]:
        """Tell how often each rank of a mode was found."""
        ranks, counts = np.unique(self.ranks[:, mode], return_counts=True)
        return dict(zip(ranks.tolist(), (counts / counts.sum()).tolist(), strict=True))

    def __str__(self) -> str:
        low, high = self.interval("scores")
        modes = range(self.ranks.shape[1])
        often = [max(self.rank_shares(mode).items(), key=lambda pair: pair[1]) for mode in modes]
        ranks = ", ".join(f"{rank} ({share:.0%})" for rank, share in often)
        return (
            f"{self.scoring} {np.mean(self.scores):.3f}, {self.level:.0%} from {low:.3f} to {high:.3f}, from "
            f"{len(self.scores)} bootstraps; ranks found most often {ranks}"
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the scores, the ranks and the angles of the modes."""
        from tracelearn.plotting.inference import draw_bootstrap  # noqa: PLC0415 - matplotlib is optional

        return draw_bootstrap(self, ax)


@small_on_one_thread
def bootstrap(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    n_bootstraps: int = 200,
    groups: Any = None,
    confounds: Any = None,
    scoring: Any = None,
    level: float = 0.95,
    random_state: int | None = None,
) -> Bootstrap:
    """Fit a model to samples drawn with replacement, many times.

    A sample that is drawn twice has weight two; those that were not drawn are scored, and where the score is not defined for
    them, such as an area under a curve for one class, others are drawn.

    Parameters
    ----------
    model : TraceNormClassifier or TraceNormRegressor
    X, y : samples and targets, in memory; epochs of MNE bring their events as targets
    n_bootstraps : int, default=200
    groups : array of shape (n_samples,), default=None
        Whole groups are drawn, where samples of one group depend on each other.
    confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
        Regressed out of samples in each draw anew, and out of those that were not drawn as learned there.
    scoring : str or callable, default=None
        As in scikit-learn; None is accuracy or R².
    level : float, default=0.95
        What intervals are to cover; see ``Bootstrap`` for what they cover.
    random_state : int, default=None

    Returns
    -------
    Bootstrap

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.inference import bootstrap
    >>> X, y, W = make_low_rank_regression(200, (5, 4, 3), rank=1, random_state=0)
    >>> found = bootstrap(TraceNormRegressor(alpha=1.0), X, y, n_bootstraps=20, random_state=0)
    >>> low, high = found.interval("scores")
    >>> bool(0.5 < low < high < 1.0), found.interval("coefs").shape
    (True, (2, 5, 4, 3))
    """
    count, random = check_count(n_bootstraps, "n_bootstraps", 2), np.random.default_rng(random_state)
    if not 0 < level < 1:
        raise ValueError(f"Expected a level between 0 and 1, got {level}.")
    if not isinstance(model, TraceNormModel):
        raise ValueError(
            f"Expected a TraceNormClassifier or TraceNormRegressor, got {model!r}: pass the best_estimator_ of a search."
        )
    X, y, _ = unnamed(X, y)
    X, labels = to_numpy(X), read_labels(X, y)
    given = np.arange(len(labels)) if groups is None else read_groups(groups, len(labels))
    numbers = np.unique(to_numpy(given), return_inverse=True)[1]
    name = score_name(scoring, classifier=is_classifier(model))
    judge = scoring or name
    confounds = None if confounds is None else read_confounds(confounds, len(labels))
    whole = clone(model).fit(cleaned(X, confounds, np.ones(len(labels))), labels)
    first = np.unique(numbers, return_index=True)[1]
    found: list[tuple[Any, ...]] = []
    missed = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroWeightsWarning)
        while len(found) < count:
            weight = _drawn(numbers, labels, random, classifier=is_classifier(model))
            clean, left = cleaned(X, confounds, weight), np.flatnonzero(weight == 0)
            one = clone(model).fit(clean, labels, sample_weight=weight)
            score = scored(check_scoring(one, judge), one, clean[left], labels[left])
            if np.isfinite(score):
                subspaces = zip(*_subspaces(one, whole), strict=True)
                found.append((score, one.coef_, one.patterns_, *subspaces, weight[first]))
            elif (missed := missed + 1) > _MOST_MISSED * count:
                check_scores(np.array(score))
    scores, coefs, patterns, ranks, angles, counts = (np.array(own) for own in zip(*found, strict=True))
    return Bootstrap(scores, coefs, patterns, ranks, angles, whole.coef_, level, name, counts.astype(int))


def _quantile(values: Array, share: Any) -> Array:
    """Find the quantile (...) of values (B, ...) for a share, or one for each of them (...), among B draws and one more."""
    ordered, last = np.sort(values, axis=0), len(values) - 1
    place = np.clip(np.broadcast_to(share, values.shape[1:]) * (last + 2) - 1.0, 0, last)
    low = np.floor(place).astype(int)
    ends = [np.take_along_axis(ordered, at[None], axis=0)[0] for at in (low, np.minimum(low + 1, last))]
    return np.asarray(ends[0] + (place - low) * (ends[1] - ends[0]))


def _drawn(numbers: Array, labels: Array, random: np.random.Generator, *, classifier: bool) -> Array:
    """Draw groups with replacement until something is left out, and every class drawn; return weights (n,)."""
    size = int(numbers.max()) + 1
    for _ in range(1000):
        counts = np.bincount(random.integers(size, size=size), minlength=size)
        weight = counts[numbers].astype(float)
        every = not classifier or len(np.unique(labels[weight > 0])) == len(np.unique(labels))
        if every and np.sum(weight == 0) >= 2:
            return weight
    raise ValueError(
        "Expected samples that can be drawn with every class among them, got none in 1000 draws: pass more of them."
    )


def _subspaces(one: Any, whole: Any) -> list[tuple[int, float]]:
    """Find for each mode the rank, and the angle from the subspace of the model of all samples."""
    found = []
    for (U, s), (V, t) in zip(one.mode_factors_, whole.mode_factors_, strict=True):
        kept = int(np.sum(t > 1e-6 * max(t[0], 1e-300)))
        cosine = np.linalg.svd(U[:, :kept].T @ V[:, :kept], compute_uv=False).min(initial=1.0) if s[0] > 0 else 0.0
        rank = int(np.sum(s > 1e-6 * s[0])) if s[0] > 0 else 0
        found.append((rank, float(np.degrees(np.arccos(np.clip(cosine, 0.0, 1.0))))))
    return found


# --- learning curves --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Held-out scores for growing numbers of training samples.

    Attributes
    ----------
    sizes : array of shape (n_sizes,)
        Training samples; of folds that differ in size the smallest.
    scores : array of shape (n_folds, n_sizes)
    scoring : str
    method : "batch" or "refit"
        Whether models were solved from growing moments, or fitted to the samples themselves.
    ratio : float
        Held-out samples of a fold over all that it learns from, which the standard error needs.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.inference import LearningCurve
    >>> print(LearningCurve(np.array([10, 20]), np.array([[0.5, 0.6], [0.7, 0.8]]), "accuracy", "batch"))
    accuracy 0.600 with 10 training samples, 0.700 with 20, over 2 folds
    """

    sizes: Array
    scores: Array
    scoring: str
    method: str
    ratio: float = 0.0

    @property
    def mean(self) -> Array:
        """The mean over folds."""
        return np.asarray(self.scores.mean(axis=0))

    @property
    def standard_error(self) -> Array:
        """The standard error of the mean, corrected for the training samples that folds share, as ``best_score_se_``."""
        return corrected_error(self.scores.T, self.ratio)

    def __str__(self) -> str:
        few, many = (f"{self.mean[i]:.3f} with {self.sizes[i]}" for i in (0, -1))
        return f"{self.scoring} {few} training samples, {many}, over {len(self.scores)} folds"

    def plot(self, ax: Any = None) -> Any:
        """Draw the curve with its standard error."""
        from tracelearn.plotting.inference import draw_curve  # noqa: PLC0415 - matplotlib is optional

        return draw_curve(self, ax)


@small_on_one_thread
def learning_curve(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    sizes: Any = 8,
    cv: Any = 5,
    groups: Any = None,
    confounds: Any = None,
    scoring: Any = None,
    random_state: int | None = None,
) -> LearningCurve:
    """Score a model on held-out samples for growing numbers of training samples.

    With the squared loss every sample is read once for each fold: moments grow, and each solve starts from the one before.

    Parameters
    ----------
    model : estimator
    X, y : samples and targets, in memory; epochs of MNE bring their events as targets
    sizes : int or sequence of ints, default=8
        Numbers of training samples; a number of them is spread evenly over those that a fold has.
    cv, groups, confounds, scoring : as in ``decode_over_time``
        With confounds models are fitted to the samples themselves.
    random_state : int, default=None
        Of the order in which training samples come.

    Returns
    -------
    LearningCurve

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.inference import learning_curve
    >>> X, y, W = make_low_rank_regression(200, (5, 4, 3), rank=1, random_state=0)
    >>> found = learning_curve(TraceNormRegressor(alpha=1.0), X, y, sizes=[20, 160], random_state=0)
    >>> bool(found.mean[1] > found.mean[0] + 0.1), found.method
    (True, 'batch')
    """
    check_model(model)
    X, y, _ = unnamed(X, y)
    random, labels = np.random.default_rng(random_state), read_labels(X, y)
    groups = read_groups(groups, len(labels))
    metadata = {} if groups is None else {"groups": groups}
    folds = folds_of(cv, labels, None, metadata, classifier=is_classifier(model))
    numbers = _sizes(sizes, min(len(train) for train, _ in folds.splits))
    orders = [random.permutation(train) for train, _ in folds.splits]
    if is_classifier(model):
        orders = [_classes_first(order, labels) for order in orders]
    name = score_name(scoring, classifier=is_classifier(model))
    judge = scoring or name
    scores, has_weights = np.empty((len(folds), len(numbers))), np.ones(len(folds), dtype=bool)
    confounds = None if confounds is None else read_confounds(confounds, len(labels))
    batch = is_shared(model) and not model.scaling and model._loss().has_moments and confounds is None
    reading = Reading.of(model, X, y) if batch else None
    rows = to_numpy(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroWeightsWarning)
        for f, (order, (_, test)) in enumerate(zip(orders, folds.splits, strict=True)):
            if reading is not None:
                scores[f], has_weights[f] = _grown(reading, order, test, numbers, scoring)
                continue
            for i, size in enumerate(numbers):
                clean = cleaned(rows, confounds, order[:size])
                one = clone(model).fit(clean[order[:size]], labels[order[:size]])
                scores[f, i] = scored(check_scoring(one, judge), one, clean[test], labels[test])
    if not np.any(has_weights):
        warn_of_zero_weights(model)
    return LearningCurve(numbers, check_scores(scores), name, "batch" if batch else "refit", folds.ratio)


def _sizes(sizes: Any, most: int) -> Array:
    if isinstance(sizes, int | np.integer):
        return np.unique(np.linspace(0, most, check_count(sizes, "sizes") + 1)[1:].round().astype(int).clip(1))
    found = np.unique(np.asarray(sizes))
    if found.dtype.kind not in "iu" or not found.size or found[0] < 2 or found[-1] > most:
        raise ValueError(f"Expected sizes from 2 to the {most} training samples of the smallest fold, got {sizes}.")
    return found


def _classes_first(order: Array, labels: Array) -> Array:
    """Let one sample of each class come first, so that the smallest part has all classes."""
    first = np.sort(np.unique(labels[order], return_index=True)[1])
    return np.concatenate([order[first], np.delete(order, first)])


def _grown(reading: Reading, order: Array, test: Array, sizes: Array, scoring: Any) -> tuple[Array, bool]:
    """Add training samples to moments in their order; score at each size, and say whether the last fit has weights."""
    model, samples = reading.model, reading.part(order)
    K, basis, whole = samples.n_targets, None, samples
    if 2 * len(order) < samples.n_features:
        basis, origin, samples = in_basis(whole, fit_intercept=model.fit_intercept)
        variances = variances_about(whole, origin)
    (block,), past, solution = samples.blocks, None, None
    held, found = reading.part(test).rows, np.empty(len(sizes))
    for i, (start, stop) in enumerate(zip([0, *sizes[:-1]], sizes, strict=True)):
        more = Moments.of(block.X[start:stop], block.Y[start:stop])
        past = more if past is None else past + more
        known = past if model.fit_intercept else past.uncentred()
        fit = Squares.of(known, ridge=model.ridge, joint=model.target_mode)
        fit = fit if basis is None else fit.lifted(basis, origin, variances)
        problems = model._problems(fit, K)
        start_from: Solution | None = solution
        solution = model._solver(fit)(
            problems, tol=model.tol, max_iter=model.max_iter, start=start_from, exact_ranks=False
        )
        W = problems.rows(solution.W)
        scores = to_numpy(held @ W.T + (fit.intercept(W) if model.fit_intercept else 0.0))
        found[i] = judged(reading, scoring, test[None], scores[None])[0]
    return found, bool(np.any(to_numpy(W)))
