"""Decoding over time and space: a model at each position of a mode, all positions of a fold as one batch of problems."""

from __future__ import annotations

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
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.inference.reading import Reading, ScoringPlan, check_count, check_model, mode_of_axis, shares_system
from tracelearn.inference.scoring import check_scores, score_model, score_sets, warn_of_zero_weights
from tracelearn.inference.solving import solve_groups
from tracelearn.problems.operators import SpectralGram
from tracelearn.problems.squares import Squares
from tracelearn.samples.by_name import in_memory
from tracelearn.samples.learning import small_on_one_thread
from tracelearn.samples.modes import Mode
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
    >>> decoding = Decoding(np.array([[0.5, 0.9], [0.5, 0.7]]), np.arange(2), "accuracy", "batch")
    >>> decoding.mean, str(decoding)
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

    def plot(self, ax: Any = None, *, times: Any = None, label: str | None = None) -> Any:
        """Draw the course of the score, or for generalisation its map.

        ``times`` are those of the positions, unless samples bring them; ``label`` is for several courses on the same axes.
        """
        from tracelearn.plotting.inference import draw_decoding  # noqa: PLC0415 - matplotlib is optional

        return draw_decoding(self, ax, times, label)

    def __str__(self) -> str:
        generalizes = self.scores.ndim == 3
        mean = np.diagonal(self.mean) if generalizes else self.mean
        best = int(np.argmax(mean))
        place = f"position {self.positions[best]}" if self.mode is None else self.mode.entry(best)
        place = f"diagonal {place}" if generalizes else place
        span = f"{self.scoring} between {mean.min():.3f} and {mean.max():.3f}"
        return f"{span}, best at {place}, over {len(self.scores)} folds"


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
    random_state: int = 0,
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
    random_state : int, default=0
        Of the folds, where ``cv`` is their number.

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
    X, y, modes, groups = in_memory(X, y, groups)
    entries = _numbered_entries(X)
    shape = entries.shape
    check_count(window, "window")
    check_count(step, "step")
    mode = mode_of_axis(axis, modes, len(shape))
    refuse(
        window > shape[mode], f"Expected a window of at most the {shape[mode]} entries of axis {axis}, got {window}."
    )
    starts = np.arange(0, shape[mode] - window + 1, step)
    regions = [np.take(entries, range(start, start + window) if window > 1 else start, axis=mode) for start in starts]
    options = {"cv": cv, "groups": groups, "confounds": confounds, "scoring": scoring, "random_state": random_state}
    decoding = _decode(model, X, y, regions, starts, generalize=generalize, **options)
    return decoding if modes is None else replace(decoding, mode=modes[mode].windows(starts, window))


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
    random_state: int = 0,
) -> Decoding:
    """Fit a model to each neighbourhood of entries, and score it on held-out samples.

    Parameters
    ----------
    model, X, y, cv, groups, confounds, scoring, random_state : as in ``decode_over_time``
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
    X, y, modes, groups = in_memory(X, y, groups)
    entries = _numbered_entries(X)
    if axis is None:
        entries = entries.ravel()
    mode = 0 if axis is None else mode_of_axis(axis, modes, entries.ndim)
    neighbourhoods = _neighbourhoods(neighbours, entries.shape[mode])
    regions = [np.take(entries, neighbourhood, axis=mode) for neighbourhood in neighbourhoods]
    options = {"cv": cv, "groups": groups, "confounds": confounds, "scoring": scoring, "random_state": random_state}
    decoding = _decode(model, X, y, regions, np.arange(len(regions)), generalize=False, **options)
    one_for_each_entry = len(regions) == entries.shape[mode]
    if modes is None or axis is None or not one_for_each_entry:
        return decoding
    return replace(decoding, mode=modes[mode])


def _numbered_entries(X: Any) -> Array:
    """Return an array of the shape of a sample that holds the flat index of each entry.

    Slices of it say which columns of flat samples a window or a neighbourhood has.
    """
    shape = tuple(np.shape(X)[1:])
    refuse(not shape, f"Expected samples of shape (n_samples, I1, ..., IN), got {np.shape(X)}.")
    return np.arange(int(np.prod(shape))).reshape(shape)


def _neighbourhoods(neighbours: Any, size: int) -> list[Array]:
    """Read neighbourhoods of so many entries as lists of numbers: from a square matrix, or from lists."""
    if issparse(neighbours) or getattr(neighbours, "ndim", 0) == 2:
        table = neighbours.toarray() if issparse(neighbours) else to_numpy(neighbours)
        refuse(
            table.shape != (size, size), f"Expected a matrix of neighbours of shape {(size, size)}, got {table.shape}."
        )
        return [np.flatnonzero((row != 0) | (np.arange(size) == i)) for i, row in enumerate(table)]
    lists = [np.asarray(entries) for entries in neighbours]
    refuse(
        not lists or not all(_are_entries(entries, size) for entries in lists),
        f"Expected lists of neighbours among 0 to {size - 1}, none of them empty, got others.",
    )
    return lists


def _are_entries(entries: Array, size: int) -> bool:
    """Tell whether an array lists numbers below a size, at least one."""
    is_list = entries.ndim == 1 and entries.size > 0 and entries.dtype.kind in "iu"
    return is_list and bool(entries.min() >= 0 and entries.max() < size)


def _decode(
    model: Any,
    X: Any,
    y: Any,
    regions: Sequence[Array],
    positions: Array,
    *,
    generalize: bool,
    scoring: Any,
    **options: Any,
) -> Decoding:
    """Score a model at each region of a sample; a region is an array of flat indices of entries, see ``_numbered_entries``.

    ``options`` are those of ``ScoringPlan.of``.
    """
    check_model(model)
    plan = ScoringPlan.of(model, X, y, scoring=scoring, **options)
    method = "refit"
    if shares_system(model):
        reading = Reading.of(model, X, y, plan.confounds)
        method = "batch" if reading.loss.has_moments else "refit"
    if method == "batch":
        scores = _batch_scores(reading, plan, regions, scoring, generalize=generalize)
    else:
        scores = _refitted_scores(model, to_numpy(X), plan, regions, scoring, generalize=generalize)
    return Decoding(
        scores=check_scores(scores),
        positions=positions,
        scoring=plan.score_name,
        method=method,
        chance=_chance(plan.score_name, plan.labels, classifier=is_classifier(model)),
        ratio=plan.folds.ratio,
    )


def _chance(scoring: str, labels: Array, *, classifier: bool) -> float | None:
    """Find what a prediction that ignores the samples scores, where that is known."""
    if not classifier:
        return 0.0 if scoring == "r2" else None
    counts = np.unique(labels, return_counts=True)[1]
    chances = {"accuracy": counts.max() / counts.sum(), "balanced_accuracy": 1.0 / len(counts), "roc_auc": 0.5}
    return chances.get(scoring)


# --- position by position: other losses and other libraries -------------------------------------------------------------


def _refitted_scores(
    model: Any, X: Array, plan: ScoringPlan, regions: Sequence[Array], scoring: Any, *, generalize: bool
) -> Array:
    """Fit a model at each position, and score what folds hold out: (F, T), or (F, T, T)."""
    scorer = check_scoring(model, scoring)
    y = plan.labels
    rows = X.reshape(len(X), -1)
    scores = np.empty((len(plan.folds.splits), len(regions), len(regions) if generalize else 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroWeightsWarning)
        for fold, (train, test) in enumerate(plan.folds.splits):
            cleaned = plan.cleaned(rows, train)
            for t, region in enumerate(regions):
                fitted = clone(model).fit(_entries_of(cleaned[train], region), y[train])
                test_regions = regions if generalize else [region]
                scores[fold, t] = [
                    score_model(scorer, fitted, _entries_of(cleaned[test], tested), y[test]) for tested in test_regions
                ]
    return scores if generalize else scores[:, :, 0]


def _entries_of(rows: Array, region: Array) -> Array:
    """Take the entries of a region from flat samples, as tensors of the shape of the region; a single entry gets one axis."""
    return rows[:, np.atleast_1d(region)]


# --- all positions of a fold as one batch -------------------------------------------------------------------------------


def _batch_scores(
    reading: Reading, plan: ScoringPlan, regions: Sequence[Array], scoring: Any, *, generalize: bool
) -> Array:
    """Solve all positions of a fold that have regions of one shape together, and score them: (F, T), or (F, T, T)."""
    n_folds = len(plan.folds.splits)
    n_regions = len(regions)
    scores = np.empty((n_folds, n_regions, n_regions) if generalize else (n_folds, n_regions))
    have_weights = False
    for fold, (train, test) in enumerate(plan.folds.splits):
        cleaned = reading.cleaned(train)
        for shape in {region.shape for region in regions}:
            positions = [t for t, region in enumerate(regions) if region.shape == shape]
            index = np.stack([regions[t].ravel() for t in positions])
            weights, intercepts = _solve_positions(cleaned, index, shape, train)
            have_weights = have_weights or bool(np.any(weights))
            score = _score_everywhere if generalize else _score_positions
            scores[fold, positions] = score(cleaned, index, weights, intercepts, test, scoring)
    if not have_weights:
        warn_of_zero_weights(reading.settings.alpha)
    return scores


def _gathered(reading: Reading, index: Array, samples: Array) -> Array:
    """Gather the entries (T, c) of some samples (m,), for each position: (T, m, c)."""
    rows = to_numpy(reading.block.X)[samples]
    return np.ascontiguousarray(np.moveaxis(rows[:, index], 1, 0))


def _solve_positions(reading: Reading, index: Array, shape: tuple[int, ...], train: Array) -> tuple[Array, Array]:
    """Fit a model to the entries of each row of an index (T, c); return weights (T, K, c) and intercepts (T, K)."""
    n_positions, c = index.shape
    step = max(1, _LARGEST_BATCH // (c * c + len(train) * c))
    batches = [
        _solve_batch(reading, index[start : start + step], shape, train) for start in range(0, n_positions, step)
    ]
    weights = np.concatenate([weights for weights, _ in batches])
    intercepts = np.concatenate([intercepts for _, intercepts in batches])
    return weights.reshape(n_positions, -1, c), intercepts.reshape(n_positions, -1)


def _solve_batch(reading: Reading, index: Array, shape: tuple[int, ...], train: Array) -> tuple[Array, Array]:
    """Fit the models of T positions as one batch of problems; return weights (T K, c) and intercepts (T K,).

    Parameters
    ----------
    index : array of shape (T, c)
        The flat indices of the c entries at each position.
    shape : the shape of these entries as a tensor, () for a single one
    train : array of shape (m,), the training samples
    """
    settings = reading.settings
    spec = replace(reading.spec, sample_shape=shape or (1,))
    A = _gathered(reading, index, train)
    Y = to_numpy(reading.block.Y)[train]
    (T, m, _), K = A.shape, Y.shape[1]
    x_mean, y_mean = A.mean(axis=1, keepdims=True), Y.mean(axis=0)
    scales = np.ones_like(x_mean)
    if settings.scaling:
        scales = np.stack([mode_scales(variances, spec.sample_shape) for variances in A.var(axis=1)])[:, None, :]
    if not settings.fit_intercept:
        x_mean, y_mean = 0.0 * x_mean, 0.0 * y_mean
    A = (A - x_mean) / scales
    Y = Y - y_mean
    transposed = np.swapaxes(A, 1, 2)
    covariance, cross = transposed @ A / m, np.swapaxes(transposed @ Y, 1, 2) / m
    data_fit = Squares(
        operator=SpectralGram(2.0 * covariance),
        cross=cross.reshape(T * K, -1),
        target=np.tile(np.mean(Y**2, axis=0), T),
        ridge=np.full(T if settings.target_mode else T * K, float(settings.ridge)),
        x_mean=(x_mean / scales)[:, 0],
        y_mean=np.tile(y_mean, T),
        variances=np.diagonal(covariance, axis1=1, axis2=2),
    )
    W = solve_groups(data_fit, spec, settings, "positions")
    return W / np.repeat(scales[:, 0], K, axis=0), data_fit.intercept(W)


def _score_positions(
    reading: Reading, index: Array, weights: Array, intercepts: Array, test: Array, scoring: Any
) -> Array:
    """Score the model of each position there, on held-out samples: (T,)."""
    predictions = _gathered(reading, index, test) @ np.swapaxes(weights, 1, 2) + intercepts[:, None, :]
    return score_sets(reading, scoring, test[None], predictions)


def _score_everywhere(
    reading: Reading, index: Array, weights: Array, intercepts: Array, test: Array, scoring: Any
) -> Array:
    """Score the model of each position at all positions, on held-out samples: (T, T)."""
    A = _gathered(reading, index, test)
    (T, m, c), K = A.shape, weights.shape[1]
    samples_everywhere = A.reshape(T * m, c).T
    step = max(1, _LARGEST_BATCH // (T * m * K))
    scores = np.empty((T, T))
    for start in range(0, T, step):
        models = slice(start, min(start + step, T))
        predictions = weights[models].reshape(-1, c) @ samples_everywhere
        predictions = predictions.reshape(-1, K, T, m) + intercepts[models][:, :, None, None]
        predictions = np.moveaxis(predictions, 1, 3).reshape(-1, m, K)
        scores[models] = score_sets(reading, scoring, test[None], predictions).reshape(-1, T)
    return scores
