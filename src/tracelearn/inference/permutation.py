"""Permutation tests: how often does a score as good come out where targets have nothing to do with samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from tracelearn.arrays.array_api import Array, array_namespace, to_numpy
from tracelearn.errors import refuse
from tracelearn.estimators import TraceNormClassifier, TraceNormRegressor
from tracelearn.inference.reading import (
    Reading,
    ScoringPlan,
    check_count,
    check_model,
    is_search,
    name_of_score,
    read_labels,
    read_two_groups,
    shares_system,
)
from tracelearn.inference.scoring import check_scores, score_model, score_sets, warn_of_zero_weights
from tracelearn.inference.solving import batches, solve_sets
from tracelearn.samples.by_name import in_memory
from tracelearn.samples.learning import small_on_one_thread
from tracelearn.samples.per_sample import read_confounds
from tracelearn.search.estimators import TensorSearch
from tracelearn.search.folds import Folds, fold_of_sample, make_folds

__all__ = ["Exchange", "PermutationTest", "choose_exchange", "p_value", "permutation_test"]

# Scores closer than this share of their size are equal. Fits in single precision are rounded, so that a permutation that changes
# no target has a score that differs from that of the true targets by less; it counts as one that reaches it.
_EQUAL = 1e-5


def p_value(score: Any, null: Array) -> Array:
    """Find how often a null distribution (P, ...) reaches a score (...), which counts as one of the draws.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.inference.permutation import p_value
    >>> float(p_value(0.9, np.array([0.4, 0.5, 0.6])))
    0.25
    """
    # Relative to the size of the scores, which may be in the units of the targets.
    rounding = _EQUAL * np.maximum(np.abs(score), np.max(np.abs(null), axis=0))
    return np.asarray((1 + np.sum(null >= np.asarray(score) - rounding, axis=0)) / (1 + len(null)))


# --- what may be exchanged --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Exchange:
    """Which samples may swap targets where nothing is to be found: those of one stratum, or whole groups.

    Parameters
    ----------
    strata : array of shape (n,), or None for one stratum of all samples
    groups : array of shape (n,), the numbers of groups that keep one target together, or None
    description : what is exchanged, in words
    """

    strata: Array | None
    groups: Array | None
    description: str

    def draw(self, n: int, n_permutations: int, random: np.random.Generator) -> Array:
        """Draw permutations (P, n): whose target each sample gets."""
        orders = np.tile(np.arange(n), (n_permutations, 1))
        if self.groups is not None:
            first = np.unique(self.groups, return_index=True)[1]
            for order in orders:
                order[:] = first[random.permutation(len(first))][self.groups]
            return orders
        strata = np.zeros(n, dtype=int) if self.strata is None else self.strata
        members = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
        for order in orders:
            for samples in members:
                order[samples] = random.permutation(samples)
        return orders


def choose_exchange(labels: Array, groups: Array | None, stratified: Array | None = None) -> Exchange:
    """Choose what is exchanged: targets within groups, whole groups where each has one target, else all.

    Folds that were stratified by the labels, (n,), keep theirs: a permutation is then stratified like the data.
    """
    if groups is None:
        everything = "targets of all samples" if stratified is None else "targets within folds, which stay stratified"
        return Exchange(stratified, None, everything)
    numbers = np.unique(groups, return_inverse=True)[1]
    first = np.unique(numbers, return_index=True)[1]
    if np.array_equal(labels[first][numbers], labels):
        return Exchange(None, numbers, "whole groups, each of which has one target")
    return Exchange(numbers, None, "targets within groups")


def _folds_and_exchange(cv: Any, labels: Array, groups: Array | None, *, classifier: bool) -> tuple[Folds, Exchange]:
    """Draw the folds that all permutations share, and choose what is exchanged so that these folds stay valid."""
    cv = 5 if cv is None else cv
    whole_groups = groups is not None and choose_exchange(labels, groups).groups is not None
    # Where whole groups exchange their labels, folds must not be stratified by these.
    folds = make_folds(cv, labels, groups, classifier=classifier and not whole_groups)
    stratified = classifier and (isinstance(cv, int) or isinstance(cv, StratifiedKFold | StratifiedGroupKFold))
    exchange = choose_exchange(labels, groups, fold_of_sample(folds) if stratified else None)
    refuse(
        exchange.strata is not None and len(np.unique(exchange.strata)) == len(labels),
        "Expected groups of several samples to exchange targets within, got one sample in each group.",
    )
    return folds, exchange


# --- the test ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PermutationTest:
    """The score of the true targets, and those of permuted ones.

    Attributes
    ----------
    score : float
        Mean held-out score over folds of the model, fitted to its own gap; with ``selection="repeat"`` that of what the search
        chose, without a correction.
    p_value : float
        ``(1 + permutations whose score is as good) / (1 + permutations)``. With ``method="batch"`` the score of the true targets
        enters it as found by fits to the gap ``tol``, like those of all permutations, and may differ a little from ``score``.
    null : array of shape (n_permutations,)
        Scores of the permutations.
    exchanged : str
        What was permuted.
    selection : "fixed", "repeat" or None
        Whether parameters were chosen once with the true targets, or anew for each permutation; None: there was no choice.
    method : "batch" or "refit"
        Whether all permutations were one batch of problems, or fitted one by one.
    scoring : str

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.inference import PermutationTest
    >>> null = np.array([0.4, 0.5, 0.6])
    >>> print(PermutationTest(0.9, 0.25, null, "targets of all samples", None, "batch", "accuracy"))
    accuracy 0.900, p = 0.25 from 3 permutations of targets of all samples; 0.500 on average under the null
    """

    score: float
    p_value: float
    null: Array
    exchanged: str
    selection: str | None
    method: str
    scoring: str

    def plot(self, ax: Any = None) -> Any:
        """Draw the null distribution and the score."""
        from tracelearn.plotting.inference import draw_null  # noqa: PLC0415 - matplotlib is optional

        return draw_null(self, ax)

    def __str__(self) -> str:
        choice = {
            None: "",
            "fixed": ", parameters chosen once, with the true targets",
            "repeat": ", selection repeated",
        }
        return (
            f"{self.scoring} {self.score:.3f}, p = {self.p_value:.3g} from {len(self.null)} permutations of {self.exchanged}; "
            f"{np.mean(self.null):.3f} on average under the null{choice[self.selection]}"
        )


@small_on_one_thread
def permutation_test(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    n_permutations: int = 1000,
    cv: Any = None,
    groups: Any = None,
    confounds: Any = None,
    scoring: Any = None,
    selection: str = "repeat",
    tol: float = 2e-3,
    random_state: int | None = None,
) -> PermutationTest:
    """Test whether a cross-validated score is better than without any relation of samples and targets.

    Folds are drawn once. A permutation changes only the products of samples and targets, so that with the squared loss all
    permutations of a fold are right-hand sides of one system; losses that are not squared have a model of second order of
    their own for each permutation and take longer. Searches that are repeated, weights of classes and estimators of other
    libraries are refitted.

    Parameters
    ----------
    model : estimator
        A ``TraceNormClassifier`` or ``TraceNormRegressor``, a search (``TensorClassifier`` or ``TensorRegressor``), or any of
        scikit-learn.
    X, y : samples and targets, in memory; epochs of MNE bring their events as targets
    n_permutations : int, default=1000
    cv : int, splitter or iterable, default=None
        None is five folds, or for a search its own ``cv``. Numbers are shuffled folds, stratified for classes.
    groups : array of shape (n_samples,), default=None
        Samples of one group depend on each other. Targets are permuted within groups; where every group has one target, whole
        groups are. Folds hold groups out whole.
    confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
        Regressed out of samples within each training fold, and out of what it holds out as learned there. They stay with their
        samples where targets are permuted: what is refuted is that targets have to do with neither. Where a target follows a
        category such as the site, give that as ``groups`` too, so that targets are permuted within it.
    scoring : str or callable, default=None
        As in scikit-learn; None is accuracy or R².
    selection : {"repeat", "fixed"}, default="repeat"
        For searches. "repeat" chooses anew for each permutation, and compares the best score of each search: valid. "fixed"
        keeps what was chosen with the true targets: faster, and somewhat too optimistic.
    tol : float, default=2e-3
        Relative duality gap of all fits that the p-value compares, where that of the model is smaller. The score of the true
        targets is compared as it comes out at this gap too, so that all are computed alike and the test is exact. With 200
        samples, accuracies of permutations are off by 7 % of their spread and R² by 1 % (measured); 0 asks for the gap of the
        model.
    random_state : int, default=None
        Of the permutations; a number of folds always draws the same ones.

    Returns
    -------
    PermutationTest

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.inference import permutation_test
    >>> X, y, W = make_low_rank_regression(100, (5, 4, 3), rank=1, random_state=0)
    >>> test = permutation_test(TraceNormRegressor(alpha=0.5), X, y, n_permutations=99, random_state=0)
    >>> test.p_value, test.exchanged
    (0.01, 'targets of all samples')
    """
    X, y, _, groups = in_memory(X, y, groups)
    check_model(model)
    n_permutations = check_count(n_permutations, "n_permutations")
    refuse(selection not in ("repeat", "fixed"), f"Expected selection to be 'repeat' or 'fixed', got {selection!r}.")
    labels = read_labels(X, y)
    groups = read_two_groups(groups, len(labels))
    confounds = None if confounds is None else read_confounds(confounds, len(labels))
    searches = is_search(model)
    classifier = is_classifier(model)
    if searches:
        cv = model.cv if cv is None else cv
        scoring = model.scoring if scoring is None else scoring
        model = clone(model).set_params(cv=cv, scoring=scoring)
    folds, exchange = _folds_and_exchange(cv, labels, groups, classifier=classifier)
    plan = ScoringPlan(labels, groups, confounds, folds, name_of_score(scoring, classifier=classifier))
    permutations = exchange.draw(len(labels), n_permutations, np.random.default_rng(random_state))
    order = np.concatenate([np.arange(len(labels))[None], permutations])
    if searches and selection == "fixed":
        model, X = _chosen_model(model.fit(X, y, groups=groups, confounds=confounds), X, groups)
    elif searches:
        model = model.set_params(cv=list(folds.splits))
    if shares_system(model):
        method = "batch"
        score, scores = _batch_scores(Reading.of(model, X, y, confounds), folds, scoring, order, tol)
    else:
        method = "refit"
        scores = _refitted_scores(model, X, y, plan, scoring, order)
        score = float(scores[0])
    p = float(p_value(check_scores(scores)[0], scores[1:]))
    choice = selection if searches else None
    return PermutationTest(score, p, scores[1:], exchange.description, choice, method, plan.score_name)


def _refitted_scores(model: Any, X: Any, y: Any, plan: ScoringPlan, scoring: Any, order: Array) -> Array:
    """Score a model by fits one by one, for every order (S, n) of the targets: (S,)."""
    X = np.asarray(X)
    y = to_numpy(y)
    splits = plan.folds.splits
    if is_search(model):
        metadata = {"groups": plan.groups, "confounds": plan.confounds}
        return _scores_one_by_one(lambda samples: _score_of_choice(clone(model).fit(X, y[samples], **metadata)), order)
    scorer = check_scoring(model, scoring)
    cleaned = [plan.cleaned(X, train) for train, _ in splits]

    def mean_score(samples: Array) -> float:
        scores = []
        for A, (train, test) in zip(cleaned, splits, strict=True):
            fitted = clone(model).fit(A[train], y[samples[train]])
            scores.append(score_model(scorer, fitted, A[test], y[samples[test]]))
        return float(np.mean(scores))

    return _scores_one_by_one(mean_score, order)


def _scores_one_by_one(score: Callable[[Array], float], order: Array) -> Array:
    """Score every order (S, n) of the targets by a function of one order; return (S,). Warnings are silenced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what models say of permuted targets is of no use
        warnings.simplefilter("once", ConvergenceWarning)
        return np.array([score(samples) for samples in order])


# --- searches ---------------------------------------------------------------------------------------------------------


def _chosen_model(search: Any, X: Any, groups: Array | None = None) -> tuple[Any, Any]:
    """Make an unfitted linear model with the parameters that a fitted search has chosen; return it, and its samples."""
    if isinstance(search, TensorSearch):
        return search.linear_estimator(), search.joined_views(X, groups)
    kind = TraceNormClassifier if is_classifier(search) else TraceNormRegressor
    shared = kind().get_params().keys() & search.get_params().keys() - {"verbose"}
    model = kind(**{name: getattr(search, name) for name in shared})
    model.set_params(alpha=search.alpha_, ridge=search.ridge_, mode_weights=search.mode_weights_)
    return model, X


def _score_of_choice(search: Any) -> float:
    """Find the mean held-out score of what a fitted search has chosen, without a correction for the choice."""
    return float(search.raw_score_ if isinstance(search, TensorSearch) else search.best_score_)


# --- all permutations as one batch ------------------------------------------------------------------------------------


def _batch_scores(reading: Reading, folds: Folds, scoring: Any, order: Array, tol: float) -> tuple[float, Array]:
    """Return the score of the model, and scores (S,) of fits to the gap ``tol`` for every order (S, n), the true one first."""
    scores, have_weights = _scores_of_sets(reading, folds, scoring, order, tol)
    if not have_weights:
        warn_of_zero_weights(reading.settings.alpha)
    if tol <= reading.settings.tol:
        return float(scores[0]), scores
    model_score, _ = _scores_of_sets(reading, folds, scoring, order[:1], 0.0)
    return float(model_score[0]), scores


def _scores_of_sets(reading: Reading, folds: Folds, scoring: Any, order: Array, tol: float) -> tuple[Array, bool]:
    """Cross-validate a model for every order (S, n) of the targets; return scores (S,), and whether any weight is not zero.

    All sets are fitted alike, to ``tol``: the test is valid since the score is the same function of each of them.
    """
    n_targets = reading.samples.n_targets
    fold_scores = np.empty((len(order), len(folds.splits)))
    have_weights = False
    # The targets of one batch of sets are in memory at once: they take about as much as the weights that are solved for.
    for batch in batches(len(order), max(1, reading.n_samples * n_targets // 16)):
        sets = order[batch]
        for fold, (train, test) in enumerate(folds.splits):
            cleaned = reading.cleaned(train)
            samples = cleaned.with_targets_of(train, sets[:, train])
            weights, intercepts = solve_sets(cleaned, samples, len(sets), tol=tol)
            have_weights = have_weights or bool(array_namespace(weights).any(weights != 0))
            predictions = to_numpy(cleaned.take(test).rows @ weights.T + intercepts)
            predictions = np.moveaxis(predictions.reshape(len(test), len(sets), n_targets), 0, 1)
            fold_scores[batch, fold] = score_sets(reading, scoring, sets[:, test], predictions)
    return np.mean(fold_scores, axis=1), have_weights
