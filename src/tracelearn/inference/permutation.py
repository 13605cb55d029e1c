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

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.errors import refuse
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.inference.sets import (
    Pace,
    Reading,
    check_count,
    check_model,
    check_scores,
    chunks,
    cleaned,
    is_shared,
    judged,
    read_groups,
    read_labels,
    score_name,
    scored,
    solve,
    warn_of_zero_weights,
)
from tracelearn.samples.checks import read_confounds, small_on_one_thread
from tracelearn.samples.samples import unnamed
from tracelearn.search.estimators import TensorSearch
from tracelearn.search.folds import Folds, fold_of_sample, make_folds

__all__ = ["Exchange", "PermutationTest", "exchange_of", "p_value", "permutation_test"]

# Scores closer than this share of their size are equal: the solver's tolerance moves them by less.
_EQUAL = 1e-9
# Scores that are this close to the one that was found, in spreads of the null, could cross it: they are fitted exactly.
_NEAR = 0.25


def p_value(found: Any, null: Array) -> Array:
    """Find how often a null distribution (P, ...) reaches what was found; what was found counts as one of the draws.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.inference.permutation import p_value
    >>> float(p_value(0.9, np.array([0.4, 0.5, 0.6])))
    0.25
    """
    near = _EQUAL * np.maximum(np.abs(found), np.max(np.abs(null), axis=0))  # scores have the units of their targets
    return np.asarray((1 + np.sum(null >= np.asarray(found) - near, axis=0)) / (1 + len(null)))


# --- what may be exchanged --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Exchange:
    """Which samples may swap targets where nothing is to be found: those of one stratum, or whole groups."""

    strata: Array | None  # (n,), or None for one
    groups: Array | None  # (n,) numbers of groups that keep one target together
    words: str

    def draw(self, n: int, n_permutations: int, random: np.random.Generator) -> Array:
        """Draw permutations (P, n): whose target each sample gets."""
        found = np.tile(np.arange(n), (n_permutations, 1))
        if self.groups is not None:
            first = np.unique(self.groups, return_index=True)[1]
            for order in found:
                order[:] = first[random.permutation(len(first))][self.groups]
            return found
        strata = np.zeros(n, dtype=int) if self.strata is None else self.strata
        parts = [np.flatnonzero(strata == own) for own in np.unique(strata)]
        for order in found:
            for part in parts:
                order[part] = random.permutation(part)
        return found


def exchange_of(labels: Array, groups: Array | None, stratified: Array | None = None) -> Exchange:
    """Choose what is exchanged: targets within groups, whole groups where each has one target, else all.

    Folds that were stratified by the labels, (n,), keep theirs: a permutation is then stratified like the data.
    """
    if groups is None:
        words = "targets of all samples" if stratified is None else "targets within folds, which stay stratified"
        return Exchange(stratified, None, words)
    numbers = np.unique(groups, return_inverse=True)[1]
    first = np.unique(numbers, return_index=True)[1]
    if np.array_equal(labels[first][numbers], labels):
        return Exchange(None, numbers, "whole groups, each of which has one target")
    return Exchange(numbers, None, "targets within groups")


def _folds(cv: Any, labels: Array, groups: Array | None, *, classifier: bool) -> tuple[Folds, Exchange]:
    """Draw folds once for all permutations, and say what is exchanged."""
    whole = groups is not None and exchange_of(labels, groups).groups is not None
    cv = 5 if cv is None else cv
    # Folds of whole groups must not look at the labels that these will exchange.
    folds = make_folds(cv, labels, groups, classifier=classifier and not whole)
    stratified = classifier and (isinstance(cv, int) or isinstance(cv, StratifiedKFold | StratifiedGroupKFold))
    exchange = exchange_of(labels, groups, fold_of_sample(folds) if stratified else None)
    refuse(
        exchange.strata is not None and len(np.unique(exchange.strata)) == len(labels),
        "Expected groups of several samples to exchange targets within, got one sample in each group.",
    )
    return folds, exchange


# --- the test ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PermutationTest:
    """What a permutation test found.

    Attributes
    ----------
    score : float
        Mean held-out score over folds; with ``selection="repeat"`` that of the best candidate of the search.
    p_value : float
        ``(1 + permutations whose score is as good) / (1 + permutations)``.
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
        chosen = {
            None: "",
            "fixed": ", parameters chosen once, with the true targets",
            "repeat": ", selection repeated",
        }
        return (
            f"{self.scoring} {self.score:.3f}, p = {self.p_value:.3g} from {len(self.null)} permutations of {self.exchanged}; "
            f"{np.mean(self.null):.3f} on average under the null{chosen[self.selection]}"
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
    their own for each permutation and take longer. Weights of classes and estimators of other libraries are refitted.

    Parameters
    ----------
    model : estimator
        A ``TraceNormClassifier`` or ``TraceNormRegressor``, their CV versions, or any of scikit-learn.
    X, y : samples and targets, in memory; epochs of MNE bring their events as targets
    n_permutations : int, default=1000
    cv : int, splitter or iterable, default=None
        None is five folds, or for a CV estimator its own ``cv``. Numbers are shuffled folds, stratified for classes.
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
        For CV estimators. "repeat" chooses anew for each permutation, and compares the best score of each search: valid. "fixed"
        keeps what was chosen with the true targets: faster, and somewhat too optimistic.
    tol : float, default=2e-3
        Relative duality gap of the fits of a batch, where that of the model is smaller: reached in single precision, it moves
        scores by a fifth of their spread or less (measured). The score that was found, and those so close to it that they count,
        always have that of the model, so that the p-value is that of exact fits; 0 asks for it everywhere.
    random_state : int, default=None

    Returns
    -------
    PermutationTest

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.inference import permutation_test
    >>> X, y, W = make_low_rank_regression(100, (5, 4, 3), rank=1, random_state=0)
    >>> found = permutation_test(TraceNormRegressor(alpha=0.5), X, y, n_permutations=99, random_state=0)
    >>> found.p_value, found.exchanged
    (0.01, 'targets of all samples')
    """
    X, y, _ = unnamed(X, y)
    check_model(model)
    count, random = check_count(n_permutations, "n_permutations"), np.random.default_rng(random_state)
    refuse(selection not in ("repeat", "fixed"), f"Expected selection to be 'repeat' or 'fixed', got {selection!r}.")
    labels = read_labels(X, y)
    groups = read_groups(groups, len(labels))
    confounds = None if confounds is None else read_confounds(confounds, len(labels))
    searches = isinstance(model, TensorSearch)
    if searches:
        cv, scoring = model.cv if cv is None else cv, model.scoring if scoring is None else scoring
        model = clone(model).set_params(cv=cv, scoring=scoring)
    name = score_name(scoring, classifier=is_classifier(model))
    folds, exchange = _folds(cv, labels, groups, classifier=is_classifier(model))
    order = np.concatenate([np.arange(len(labels))[None], exchange.draw(len(labels), count, random)])
    chosen: str | None = None
    if searches and selection == "fixed":
        model, X, chosen = *_fixed(model, X, y, groups, confounds), "fixed"
    elif searches:
        model, chosen = model.set_params(cv=list(folds.splits)), "repeat"
    scores, method = _scores(model, X, y, confounds, folds, scoring, order, tol)
    found, null = float(check_scores(scores)[0]), scores[1:]
    return PermutationTest(found, float(p_value(found, null)), null, exchange.words, chosen, method, name)


def _fixed(model: Any, X: Any, y: Any, groups: Array | None, confounds: Array | None) -> tuple[Any, Any]:
    """Choose once, with the true targets; return the model that was found, and samples as it sees them."""
    model.fit(X, y, groups=groups, confounds=confounds)
    return model.linear_estimator(), model.joined_views(X)


def _scores(
    model: Any, X: Any, y: Any, confounds: Array | None, folds: Folds, scoring: Any, order: Array, tol: float
) -> tuple[Array, str]:
    """Score the model for every order (S, n) of the targets, (S,), and say how."""
    if is_shared(model):
        reading = Reading.of(model, X, y, confounds)
        found = np.mean(fold_scores(reading, folds, scoring, order, tol), axis=1)
        return found if tol <= model.tol else _decided(reading, folds, scoring, order, found), "batch"
    X, y = np.asarray(X), to_numpy(y)
    if isinstance(model, TensorSearch):
        return _one_by_one(lambda own: clone(model).fit(X, y[own], confounds=confounds).raw_score_, order), "refit"
    scorer = check_scoring(model, scoring)
    parts = [(cleaned(X, confounds, train), train, test) for train, test in folds.splits]

    def refitted(own: Array) -> float:
        fitted = [(clone(model).fit(A[train], y[own[train]]), A[test], test) for A, train, test in parts]
        return float(np.mean([scored(scorer, one, held, y[own[test]]) for one, held, test in fitted]))

    return _one_by_one(refitted, order), "refit"


def _decided(reading: Reading, folds: Folds, scoring: Any, order: Array, found: Array) -> Array:
    """Replace scores (S,) near the first by exact ones, as far from it as any of them moved: none is left that could cross."""
    rough, reach = np.arange(len(found)) > 0, _NEAR * float(np.std(found[1:]))
    while np.any(near := rough & (np.abs(found - found[0]) <= reach)):
        exact = np.mean(fold_scores(reading, folds, scoring, order[near]), axis=1)
        reach = max(reach, float(np.max(np.abs(exact - found[near]))))
        found, rough = np.where(near, 0.0, found), rough & ~near
        found[near] = exact
    return found


def _one_by_one(score: Callable[[Array], float], order: Array) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroWeightsWarning)  # without a signal, zero is often the answer
        warnings.simplefilter("once", ConvergenceWarning)
        return np.array([score(own) for own in order])


def fold_scores(reading: Reading, folds: Folds, scoring: Any, order: Array, tol: float = 0.0) -> Array:
    """Score what each fold holds out for each order (S, n) of the targets: (S, F); the first is solved as the model asks."""
    S, K = len(order), reading.samples.n_targets
    found, pace, is_zero = np.empty((S, len(folds))), Pace(), True
    # Targets of all sets in memory at once, as long as they take no more than the batches themselves.
    for part in chunks(S, max(1, reading.n * K // 16)):
        for f, (train, test) in enumerate(folds.splits):
            own, clean = order[part], reading.cleaned(train)
            W, b = solve(clean, clean.part(train, own[:, train]), len(own), tol, pace, n_exact=int(part.start == 0))
            is_zero &= not bool(np.any(to_numpy(W)))
            scores = to_numpy(clean.part(test).rows @ W.T + b)
            scores = np.moveaxis(scores.reshape(len(test), len(own), K), 0, 1)
            found[part, f] = judged(reading, scoring, own[:, test], scores)
    if is_zero:
        warn_of_zero_weights(reading.model)
    return found
