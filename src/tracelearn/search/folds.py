"""Folds: which samples each fold learns from and which it holds out; samples drawn from many; errors of means over folds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target

from tracelearn.arrays.array_api import Array, is_sparse
from tracelearn.errors import warn

__all__ = ["Folds", "canonical_order", "corrected_error", "draw_samples", "fold_of_sample", "make_folds"]

# The fewest samples of each class in a draw (all of them, where the class has fewer): two for each of five folds.
FEWEST_OF_CLASS = 10

# A draw that would have fewer samples of each class than this leaves out some classes instead.
MEMBERS_OF_MANY = 4

# Sort keys of samples are rounded to this share of their spread, so that floating-point errors do not change the order.
_ROUNDED = 1e-9
_BLOCK_ENTRIES = 1 << 20  # of samples whose sort keys are computed together

# scikit-learn's splitter, by whether targets are classes, and whether there are groups.
_SPLITTERS = {
    (True, True): StratifiedGroupKFold,
    (True, False): StratifiedKFold,
    (False, True): GroupKFold,
    (False, False): KFold,
}


@dataclass(frozen=True, eq=False)
class Folds:
    """Splits of samples into training and held-out ones, as pairs of index arrays.

    Samples of weight zero are on neither side of any split. With several repeats, all folds of the first repeat come first,
    then all of the second.
    """

    splits: tuple[tuple[Array, Array], ...]
    n_samples: int
    n_repeats: int = 1

    def __len__(self) -> int:
        return len(self.splits)

    @cached_property
    def training(self) -> Array:
        """Which samples each fold learns from, a table (F, n) of truth values."""
        return self._table(0)

    @cached_property
    def held_out(self) -> Array:
        """Which samples each fold holds out, a table (F, n) of truth values."""
        return self._table(1)

    def _table(self, side: int) -> Array:
        table = np.zeros((len(self), self.n_samples), dtype=bool)
        for fold, split in enumerate(self.splits):
            table[fold, split[side]] = True
        return table

    @cached_property
    def sizes(self) -> Array:
        """How many samples each fold holds out, (F,)."""
        return np.array([len(test) for _, test in self.splits])

    def weights(self, weight: Array) -> Array:
        """Find what the folds weigh in means over them (F,), the weight of what they hold out, given that of the samples (n,)."""
        weights = np.array([np.sum(weight[test]) for _, test in self.splits])
        return weights / np.sum(weights)

    @cached_property
    def ratio(self) -> float:
        """The mean number of held-out samples for each training sample."""
        return float(np.mean([len(test) / len(train) for train, test in self.splits]))

    @cached_property
    def uses_all(self) -> bool:
        """Whether every fold learns from all samples that it does not hold out."""
        return bool(np.all(self.training ^ self.held_out))

    @cached_property
    def is_partition(self) -> bool:
        """Whether, besides, every sample is held out exactly once."""
        return self.uses_all and bool(np.all(np.sum(self.held_out, axis=0) == 1))

    def first_repeat(self) -> Folds:
        """Keep the folds of the first repeat."""
        return replace(self, splits=self.splits[: len(self) // self.n_repeats], n_repeats=1)

    def restricted_to(self, index: Array) -> Folds:
        """Keep the samples of an index, renumbered in its order; drop folds without training or test samples among them."""
        new_number = np.full(self.n_samples, -1)
        new_number[index] = np.arange(len(index))
        splits = []
        for train, test in self.splits:
            train_numbers = new_number[train]
            test_numbers = new_number[test]
            train_numbers = train_numbers[train_numbers >= 0]
            test_numbers = test_numbers[test_numbers >= 0]
            if len(train_numbers) and len(test_numbers):
                splits.append((train_numbers, test_numbers))
        keeps_all_folds = len(splits) == len(self)
        return Folds(tuple(splits), len(index), self.n_repeats if keeps_all_folds else 1)


def make_folds(
    cv: Any,
    y: Array,
    groups: Any = None,
    sample_weight: Array | None = None,
    random_state: Any = 0,
    *,
    classifier: bool,
    repeats: int = 1,
    order: Array | None = None,
    split_params: dict[str, Any] | None = None,
) -> Folds:
    """Split samples into folds that all can be learned from and judged by.

    Parameters
    ----------
    cv : int, splitter or iterable of splits
        A number means shuffled folds, stratified for classes, with groups held out whole where there are any; fewer folds where
        samples, members of every class or groups are fewer. No such fold lacks a class to learn from: where all of its
        members (or their only group) would be held out, they stay among the training samples. All else is scikit-learn's.
    y : array of shape (n_samples,), or (n_samples, n_targets) for numbers
    groups : array of shape (n_samples,), default=None
    sample_weight : array of shape (n_samples,), default=None
        Samples of weight zero take no part.
    random_state : int, RandomState or None, default=0
    classifier : bool
        Whether targets are classes.
    repeats : int, default=1
        How often a number of folds is drawn.
    order : array of shape (n_samples,), default=None
        The order in which samples are shuffled, such as ``canonical_order``: then the order of the rows decides nothing.
    split_params : dict, default=None
        What else a splitter is given, by metadata routing.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.search.folds import make_folds
    >>> folds = make_folds(5, np.repeat(["a", "b"], [12, 6]), classifier=True)
    >>> len(folds), folds.is_partition, folds.sizes
    (5, True, array([4, 4, 4, 3, 3]))
    """
    n = len(y)
    usable = np.arange(n) if order is None or not isinstance(cv, Integral) else np.asarray(order)
    if sample_weight is not None:
        usable = usable[np.asarray(sample_weight)[usable] > 0]
    usable_groups = None if groups is None else np.asarray(groups)[usable]
    splits: list[tuple[Array, Array]] = []
    if isinstance(cv, Integral):
        seeds = _seeds(random_state, repeats)
        for splitter in _shuffled(int(cv), y[usable], usable_groups, classifier, seeds):
            with warnings.catch_warnings():  # what scikit-learn would say of each draw was said once, in our words
                warnings.filterwarnings("ignore", "The least populated class", UserWarning)
                drawn = list(splitter.split(np.zeros(len(usable)), y[usable], usable_groups))
            splits += _with_all_classes(drawn, y[usable], usable_groups) if classifier else drawn
    else:
        params = dict(split_params or {})
        if groups is not None:
            params["groups"] = groups
        usable = np.arange(n)
        repeats = 1
        for train, test in check_cv(cv, y, classifier=classifier).split(np.zeros(n), y, **params):
            splits.append((_indices(train, n), _indices(test, n)))
        if sample_weight is not None:
            splits = _with_weight(splits, np.asarray(sample_weight))
    if not splits or not all(len(train) and len(test) for train, test in splits):
        raise ValueError(
            f"Expected folds that learn from samples and hold others out, got none or an empty one: cv={cv!r}."
        )
    return Folds(tuple((usable[train], usable[test]) for train, test in splits), n, repeats)


def fold_of_sample(folds: Folds) -> Array | None:
    """Find the fold (n,) that holds each sample out, where every sample is held out exactly once; else None."""
    return np.argmax(folds.held_out, axis=0) if folds.is_partition else None


def _seeds(random_state: Any, count: int) -> list[int]:
    """Make a seed for each repeat."""
    if isinstance(random_state, Integral):
        return [int(random_state) + repeat for repeat in range(count)]
    random = check_random_state(random_state)
    return [int(seed) for seed in random.randint(np.iinfo(np.int32).max, size=count)]


def _indices(side: Any, n: int) -> Array:
    """Read one side of a split: numbers of samples, each once, or a mask over all n."""
    index = np.asarray(side)
    if index.dtype == bool and index.shape == (n,):
        return np.flatnonzero(index)
    index = index.astype(int) if not index.size else index
    is_index = index.ndim == 1 and index.dtype.kind in "iu"
    index = np.where(index < 0, index + n, index) if is_index else index
    if not is_index or np.any((index < 0) | (index >= n)) or np.any(np.bincount(index, minlength=1) > 1):
        raise ValueError(
            f"Expected each side of a split to be different numbers of samples from 0 to {n - 1}, or a mask of {n} truth values, "
            "got others: correct cv, and give samples that count twice a sample_weight."
        )
    return index


def _with_weight(splits: Sequence[tuple[Array, Array]], weight: Array) -> list[tuple[Array, Array]]:
    """Leave samples of weight zero out of a user's splits; refuse a split that has no others on one side."""
    weighted = [(train[weight[train] > 0], test[weight[test] > 0]) for train, test in splits]
    for fold, (train, test) in enumerate(weighted):
        if not len(train) or not len(test):
            raise ValueError(
                f"Expected some sample weight inside and outside of every fold, got only zeros on one side of fold {fold + 1}: "
                "drop samples of weight zero, shuffle the folds, or use fewer of them."
            )
    return weighted


def _shuffled(cv: int, y: Array, groups: Array | None, classifier: bool, seeds: Sequence[int]) -> list[Any]:
    """Choose what draws the folds; warn where samples or members of a class are fewer than folds."""
    stratified = classifier and type_of_target(y) in ("binary", "multiclass")
    labels, counts = np.unique(y, return_counts=True) if stratified else (y, np.array([len(y)]))
    largest = int(counts.max())
    smallest = int(counts.min())
    if 1 < largest < cv:
        warn(
            f"Expected at least {cv} samples{' of some class' if stratified else ''} for cv={cv}, got {largest}: there are "
            f"{largest} folds."
        )
    count = min(cv, max(largest, 2))
    if smallest < count <= largest:
        warn(
            f"Expected at least {count} samples of each class for {count} folds, got {smallest} of "
            f"{labels.tolist()[int(counts.argmin())]!r}: scores say little about this class, add samples of it or leave it out."
        )
    count = count if groups is None else min(count, len(np.unique(groups)))
    if groups is not None and count < 2:
        raise ValueError(
            "Expected at least two groups to hold one out, got one: leave groups out, or pass a splitter as cv."
        )
    splitter = _SPLITTERS[stratified, groups is not None]
    return [splitter(count, shuffle=True, random_state=seed) for seed in seeds]


def _with_all_classes(
    splits: Sequence[tuple[Array, Array]], y: Array, groups: Array | None
) -> list[tuple[Array, Array]]:
    """Move members of classes that a training part lacks back into it, with their groups; drop folds that are empty then."""
    complete = []
    classes = np.unique(y)
    for train, test in splits:
        lacking = np.isin(y[test], np.setdiff1d(classes, y[train]))
        if groups is not None:
            lacking = np.isin(groups[test], groups[test][lacking])
        if not np.all(lacking):
            complete.append((np.sort(np.concatenate([train, test[lacking]])), test[~lacking]))
    return complete


def canonical_order(rows: Array, y: Array) -> Array:
    """Order samples (n, p), sparse ones too, by what they are: what is drawn then does not depend on the order they came in.

    They are sorted along a fixed direction, which the unit of the samples does not change, and equal ones by their targets.
    """
    places = np.arange(1.0, rows.shape[1] + 1.0)
    direction = np.cos(places * places)
    n = rows.shape[0]
    if is_sparse(rows):
        values = rows @ direction
        values = values - values[0]
    else:
        step = max(1, _BLOCK_ENTRIES // rows.shape[1])
        blocks = [rows[start : start + step] for start in range(0, n, step)]
        values = np.concatenate([(np.asarray(block, dtype=float) - rows[0]) @ direction for block in blocks])
    scale = np.std(values)
    values = np.round(values / (scale * _ROUNDED)) if scale > 0 else np.zeros(n)
    targets = np.asarray(y).reshape(n, -1)
    keys = [np.unique(column, return_inverse=True)[1] for column in targets.T]
    return np.lexsort([*keys, values])


def draw_samples(
    count: int,
    weight: Array,
    labels: Array | None = None,
    random_state: Any = 0,
    order: Array | None = None,
) -> tuple[Array, Array]:
    """Draw samples without replacement, by their weight, and of each class at least some; return them and what they weigh.

    Weights are such that sums over the draw stand for sums over all samples, class by class.

    Parameters
    ----------
    count : int
        How many to draw, but for rare classes, of which there may be more. Of very many classes some are drawn.
    weight : array of shape (n_samples,)
    labels : array of shape (n_samples,), default=None
        Classes; None for numbers.
    random_state : int, RandomState or None, default=0
    order : array of shape (n_samples,), default=None
        The order in which samples are drawn from; None is that of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.search.folds import draw_samples
    >>> labels = np.repeat([0, 1], [5988, 12])
    >>> index, weight = draw_samples(400, np.ones(6000), labels)
    >>> int(labels[index].sum()), float(weight[labels[index] == 1].sum() / weight.sum()) < 0.003
    (10, True)
    """
    random = check_random_state(random_state)
    order = np.arange(len(weight)) if order is None else np.asarray(order)
    order = order[weight[order] > 0]
    if count >= len(order):
        return np.sort(order), weight[np.sort(order)]
    if labels is not None:
        classes = np.unique(labels[order])
        n_classes = max(2, count // MEMBERS_OF_MANY)
        if len(classes) > n_classes:
            order = order[np.isin(labels[order], random.choice(classes, n_classes, replace=False))]
    # The smallest of exponential times whose rates are the weights: a draw without replacement, by weight.
    times = random.exponential(size=len(order)) / weight[order]
    ranked = order[np.argsort(times, kind="stable")]
    drawn = np.zeros(len(weight), dtype=bool)
    drawn[ranked[:count]] = True
    strata = [ranked] if labels is None else [ranked[labels[ranked] == label] for label in np.unique(labels[ranked])]
    # The drawn samples share the total weight equally, but none weighs less than before.
    weight_of_drawn = np.maximum(weight, np.sum(weight[order]) / count)
    for stratum in strata if labels is not None else []:
        if np.sum(drawn[stratum]) < min(FEWEST_OF_CLASS, len(stratum)):
            drawn[stratum[:FEWEST_OF_CLASS]] = True
            members = stratum[drawn[stratum]]
            weight_of_drawn[members] = np.sum(weight[stratum]) / len(members)
    index = np.flatnonzero(drawn)
    return index, weight_of_drawn[index]


def corrected_error(scores: Array, ratio: float) -> Array:
    """Find the standard error of the mean of scores (..., J) over folds, corrected for training sets that overlap.

    The variance of J independent scores is divided by J; those of folds share most of their training samples, which adds
    ``ratio``, held-out over training samples, to 1 / J (Nadeau and Bengio, 2003). One fold says nothing: its error is zero.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.search.folds import corrected_error
    >>> float(corrected_error(np.array([0.0, 0.1, 0.2, 0.1]), 0.25).round(4))
    0.0577
    """
    n = scores.shape[-1]
    return np.asarray(np.sqrt((1.0 / n + ratio) * np.var(scores, axis=-1, ddof=min(1, n - 1))))
