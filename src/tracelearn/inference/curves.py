"""Learning curves: held-out scores for growing numbers of training samples, from moments that grow with them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring

from tracelearn.arrays.array_api import Array, array_namespace, to_numpy
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
    scored,
    warn_of_zero_weights,
)
from tracelearn.moments import Moments
from tracelearn.problems.basis import in_basis, variances_about
from tracelearn.problems.problem import Solution
from tracelearn.problems.squares import Squares
from tracelearn.samples.checks import small_on_one_thread
from tracelearn.samples.samples import unnamed
from tracelearn.search.folds import corrected_error

__all__ = ["LearningCurve", "learning_curve"]


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
    random, plan = np.random.default_rng(random_state), Plan.of(model, X, y, cv, groups, confounds, scoring)
    labels, splits = plan.labels, plan.folds.splits
    numbers = _sizes(sizes, min(len(train) for train, _ in splits))
    orders = [random.permutation(train) for train, _ in splits]
    if is_classifier(model):
        orders = [_classes_first(order, labels) for order in orders]
    batch = is_shared(model) and not model.scaling and model._loss().has_moments and plan.confounds is None
    if batch:
        reading = Reading.of(model, X, y)
        found = [
            _grown(reading, order, test, numbers, scoring) for order, (_, test) in zip(orders, splits, strict=True)
        ]
        scores = np.array([own for own, _ in found])
        if not any(has_weights for _, has_weights in found):
            warn_of_zero_weights(model)
    else:
        scores = _refitted(model, to_numpy(X), plan, orders, numbers, scoring)
    return LearningCurve(numbers, check_scores(scores), plan.name, "batch" if batch else "refit", plan.folds.ratio)


def _refitted(model: Any, X: Array, plan: Plan, orders: list[Array], sizes: Array, scoring: Any) -> Array:
    """Fit to the first samples of each order for each size, and score what its fold holds out: (F, sizes)."""
    scores, y = np.empty((len(orders), len(sizes))), plan.labels
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroWeightsWarning)
        for f, (order, (_, test)) in enumerate(zip(orders, plan.folds.splits, strict=True)):
            for i, size in enumerate(sizes):
                clean, train = cleaned(X, plan.confounds, order[:size]), order[:size]
                one = clone(model).fit(clean[train], y[train])
                scores[f, i] = scored(check_scoring(one, scoring or plan.name), one, clean[test], y[test])
    return scores


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
        problems, solver = model._stated(fit, K)
        start_from: Solution | None = solution
        solution = solver(problems, tol=model.tol, max_iter=model.max_iter, start=start_from, exact_ranks=False)
        W = array_namespace(solution.W).reshape(solution.W, fit.cross.shape)
        scores = to_numpy(held @ W.T + (fit.intercept(W) if model.fit_intercept else 0.0))
        found[i] = judged(reading, scoring, test[None], scores[None])[0]
    return found, bool(np.any(to_numpy(W)))
