"""Folds: how samples are split, each part of a split as a batch of problems over shared operators, and errors of means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from numbers import Integral
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils.multiclass import type_of_target

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse
from tracelearn.confounds import Regression
from tracelearn.errors import warn
from tracelearn.losses import Loss
from tracelearn.moments import Moments
from tracelearn.problems.batch import Form, choose_form, datafit, origin_of, variances_about
from tracelearn.problems.datafits import DataFit, Span, Squares
from tracelearn.samples.samples import Samples

__all__ = ["Design", "Folds", "Held", "Principal", "corrected_error", "folds_of"]


# Logistic regression is tried up to so many weights, and so many numbers read for each of them.
_MOST_WEIGHTS, _MOST_PRODUCTS = 2048, 5_000_000

# By whether targets are classes and whether there are groups.
_SPLITTERS = {
    (True, True): StratifiedGroupKFold,
    (True, False): StratifiedKFold,
    (False, True): GroupKFold,
    (False, False): KFold,
}


@dataclass(frozen=True, eq=False)
class Folds:
    """Splits of n samples into training and held-out ones."""

    splits: list[tuple[Array, Array]]
    n: int

    def __len__(self) -> int:
        return len(self.splits)

    @property
    def ratio(self) -> float:
        """How many samples are held out for each one that is learned from, the mean over folds."""
        found = []
        for train, test in self.splits:
            found.append(len(test) / len(train))
        return float(np.mean(found))

    def among(self, chosen: Array) -> Folds:
        """Keep the samples for which an array (n,) is true, numbered anew."""
        place = np.cumsum(chosen) - 1
        splits = [tuple(place[part[chosen[part]]] for part in split) for split in self.splits]
        return Folds([(train, test) for train, test in splits if len(train) and len(test)], int(chosen.sum()))

    @cached_property
    def fold_of(self) -> Array | None:
        """The fold (n,) that holds each sample out, where every sample is held out exactly once."""
        found, held = np.full(self.n, -1, dtype=np.int16), 0
        for f, (train, test) in enumerate(self.splits):
            found[test], held = f, held + len(test)
            if len(train) + len(test) != self.n:
                return None
        return found if held == self.n and not np.any(found < 0) else None

    @property
    def longest(self) -> int:
        """The largest number of samples that a fold holds out."""
        return max(map(len, map(itemgetter(1), self.splits)))

    def masks(self, *, held: bool) -> Array:
        """Mark the training or the held-out samples of each fold, (F, n)."""
        found = np.zeros((len(self.splits), self.n), dtype=bool)
        for f, split in enumerate(self.splits):
            found[f, split[1 if held else 0]] = True
        return found


def _indices(part: Any, n: int) -> Array:
    """Read one side of a split: numbers of samples, each once, or a mask over all n."""
    found = np.asarray(part)
    if found.dtype == bool and found.shape == (n,):
        return np.flatnonzero(found)
    found = found.astype(int) if not found.size else found
    is_index = found.ndim == 1 and found.dtype.kind in "iu"
    found = np.where(found < 0, found + n, found) if is_index else found
    if not is_index or np.any((found < 0) | (found >= n)) or np.any(np.bincount(found, minlength=1) > 1):
        raise ValueError(
            f"Expected each side of a split to be different numbers of samples from 0 to {n - 1}, or a mask of {n} truth values, "
            "got others: correct cv, and give samples that count twice a sample_weight."
        )
    return found


def folds_of(
    cv: Any, y: Array, weight: Array | None, metadata: dict[str, Any], *, classifier: bool, repeats: int = 1
) -> Folds:
    """Draw folds; refuse one that has nothing to learn from, or nothing to judge by.

    A number of folds means shuffled ones, stratified for classes and with groups held out whole where there are any, drawn
    several times if asked to, and fewer where there are fewer samples or members of every class; all else is scikit-learn's.
    """
    splitters = [check_cv(cv, y, classifier=classifier)]
    if isinstance(cv, Integral):
        grouped = metadata.get("groups") is not None
        stratified = classifier and type_of_target(y) in ("binary", "multiclass")
        kind = _SPLITTERS[stratified, grouped]
        most = int(np.unique(y, return_counts=True)[1].max()) if stratified else len(y)
        if 1 < most < int(cv):
            warn(
                f"Expected at least {cv} samples{' of some class' if stratified else ''} for cv={cv}, got {most}: there are "
                f"{most} folds."
            )
        count = min(int(cv), max(most, 2))
        count = min(count, len(np.unique(metadata["groups"]))) if grouped else count
        if grouped and count < 2:
            raise ValueError(
                "Expected at least two groups to hold one out, got one: leave groups out, or pass a splitter as cv."
            )
        splitters = []
        for seed in range(repeats):
            splitters.append(kind(count, shuffle=True, random_state=seed))
    folds = Folds([], len(y))
    for splitter in splitters:
        for train, test in splitter.split(np.zeros(len(y)), y, **metadata):
            folds.splits.append((_indices(train, len(y)), _indices(test, len(y))))
    if not folds.splits or not min(map(len, chain(*folds.splits))):
        raise ValueError(
            f"Expected folds that learn from samples and hold others out, got none or an empty one: cv={cv!r}."
        )
    for f, (train, test) in enumerate(folds.splits):
        if weight is not None and not (np.any(weight[train]) and np.any(weight[test])):
            raise ValueError(
                f"Expected some sample weight inside and outside of every fold, got only zeros on one side of fold {f + 1}: "
                "drop samples of weight zero, shuffle the folds, or use fewer of them."
            )
    return folds


def corrected_error(scores: Array, ratio: float) -> Array:
    """Find the standard error of the mean of scores (..., J) over folds, corrected for training sets that overlap.

    The variance of J independent scores is divided by J; those of folds share most of their training samples, which adds
    ``ratio``, held-out over training samples, to 1 / J (Nadeau and Bengio, 2003). One fold says nothing: its error is zero.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.selection.folds import corrected_error
    >>> float(corrected_error(np.array([0.0, 0.1, 0.2, 0.1]), 0.25).round(4))
    0.0577
    """
    n = scores.shape[-1]
    return np.asarray(np.sqrt((1.0 / n + ratio) * np.var(scores, axis=-1, ddof=min(1, n - 1))))


@dataclass(frozen=True, eq=False)
class Principal:
    """All samples in coordinates (n, r) whose matrix of products is diagonal: ridge regression without some is soon done."""

    rows: Array
    Y: Array
    squares: Array  # the diagonal (r,) of the matrix of products
    cross: Array  # the products (r, K) of coordinates and targets, which all folds share
    axes: Array | None = None  # (p, r), if these are not the coordinates of the design
    origin: Any = 0.0  # (p,)

    def without(self, held: Array, ridges: Array, *, fit_intercept: bool) -> tuple[Array, Array]:
        """Minimise ``|Y - X W' - b|^2 + ridge |W|^2`` without some samples, for each of A ridges: (A, K, p) and (A, K).

        Samples that are left out get an unknown in their target each, so that they fit themselves and pull at nothing. With the
        intercept that is one system of so many unknowns, besides the diagonal one of the coordinates.
        """
        xp, X, Y, cross = array_namespace(self.rows), self.rows, self.Y, self.cross
        left, target = xp.take(X, held, axis=0), xp.take(Y, held, axis=0)
        known = xp.eye(held.shape[0], dtype=X.dtype, device=device(X))
        if fit_intercept:
            ones = xp.ones_like(left[:, :1])
            count = xp.full_like(ones[:1, :], float(X.shape[0]))
            known = xp.concat([xp.concat([known, ones], axis=1), xp.concat([ones.T, count], axis=1)])
            left = xp.concat([left, xp.sum(X, axis=0, keepdims=True)])
            target = xp.concat([target, xp.sum(Y, axis=0, keepdims=True)])
        inverse = 1.0 / (self.squares + ridges[:, None])
        system = known - (left * inverse[:, None, :]) @ left.T
        unknown = xp.linalg.solve(system, target - left @ (inverse[:, :, None] * cross))
        W = xp.matrix_transpose(inverse[:, :, None] * (cross - left.T @ unknown))
        b = unknown[:, -1, :] if fit_intercept else xp.zeros_like(W[..., 0])
        return (W, b) if self.axes is None else ((V := W @ self.axes.T), b - V @ self.origin)


@dataclass(frozen=True, eq=False)
class Held:
    """Held-out samples in memory: rows (n_f, r), coded targets (n_f, K), shares (n_f,), which sum to one, and their index."""

    rows: Array
    Y: Array
    share: Array
    index: Array
    weight: float


class _FoldMoments(NamedTuple):
    """Moments of what each fold holds out, of what it trains on, and of all samples."""

    held: list[Moments]
    training: list[Moments]
    whole: Moments


@dataclass(frozen=True, eq=False)
class Design:
    """Samples in one representation, split: data fits of the training parts, and what is held out.

    For the squared loss all folds are one data fit, one group of rows for each; else there is one for each fold. Samples fewer
    than features are held by their coordinates in what they ``span``.
    """

    samples: Samples
    folds: Folds
    loss: Loss
    joint: bool
    fit_intercept: bool
    numbers: bool = False  # whether targets are numbers, of which the size of predictions counts too
    judge: Callable[[Held, Array], Array] | None = None  # what held-out scores (n_f, M, K) of M models are worth, (M,)
    by_score: bool = False  # whether that selects, or the variance that is explained after calibration

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one weight tensor."""
        return (self.samples.n_targets, *self.samples.shape) if self.joint else self.samples.shape

    @cached_property
    def form(self) -> Form:
        """How the samples are kept; each fold is decomposed, so a basis is for all samples that are fewer than features."""
        found, samples = choose_form(self.samples, self.loss), self.samples
        if found.name != "moments" or not samples.in_memory or is_sparse(samples.like):
            return found
        fewer = self.folds.n < samples.n_features
        return Form("basis", f"{self.folds.n} samples are fewer than {samples.n_features} features") if fewer else found

    @cached_property
    def span(self) -> Span | None:
        """What the samples span, where they are kept by their coordinates."""
        if self.form.name != "basis":
            return None
        samples = self.samples.checked()
        return Span.of(samples.rows, origin_of(samples, fit_intercept=self.fit_intercept))  # type: ignore[arg-type]

    @cached_property
    def reduced(self) -> Samples:
        """The samples, where they have coordinates by these; in memory, with every number looked at, as solvers need them."""
        samples = self.samples
        if self.span is not None:
            coordinates = self.span.coordinates
            samples = samples.checked().with_rows(coordinates, (coordinates.shape[1],))
        return samples.checked() if samples.in_memory else samples

    @cached_property
    def moments(self) -> _FoldMoments:
        """The moments of the samples by their coordinates; read once."""
        samples, folds, masks = self.reduced, self.folds, self.folds.masks(held=True)
        if folds.fold_of is not None:
            held, training = samples.moments_of_parts(masks), []
            for f in range(len(held)):
                # A sum of the other folds: a difference from the total would leave their rounding errors in.
                training.append(Moments.total(held[:f] + held[f + 1 :]))
            return _FoldMoments(held, training, Moments.total(held))
        if not samples.in_memory:
            raise ValueError(
                "Expected folds that hold out every sample exactly once where samples are read in blocks, got other ones: use "
                "KFold, StratifiedKFold, GroupKFold or the like."
            )
        parts = samples.moments_of_parts([*masks, *folds.masks(held=False)])
        return _FoldMoments(parts[: len(folds)], parts[len(folds) :], samples.moments())

    @cached_property
    def _regressions(self) -> list[Regression | None]:
        """How confounds explain the training samples of each fold, by their coordinates where they have some; None without."""
        samples = self.reduced
        if not samples.n_confounds:
            return [None] * len(self.folds)
        if self.form.name in ("moments", "basis"):
            return list(map(self._regression, self.moments.training))
        checked, masks = samples.checked(), self.folds.masks(held=False)
        return [checked.take(mask).regression(centre=self.fit_intercept) for mask in masks]

    def _regression(self, moments: Moments) -> Regression:
        """How confounds, which are the last features, explain the samples of some moments."""
        return Regression.of_joint(moments if self.fit_intercept else moments.uncentred(), self.reduced.n_features)

    @cached_property
    def principal(self) -> Principal | None:
        """All samples by their principal components, where the ridge regressions of all folds follow from these.

        One decomposition instead of one for each fold: what a fold holds out changes few rows. Not so with confounds or weights,
        which differ from fold to fold, or where folds hold out more samples than there are features.
        """
        samples = self.reduced
        plain = samples.in_memory and not is_sparse(samples.like) and not samples.n_confounds
        if not plain or self.form.name not in ("moments", "basis"):
            return None
        if not np.array_equal(self.folds.masks(held=False), ~self.folds.masks(held=True)):
            return None
        (block,) = samples.blocks
        xp = array_namespace(block.X)
        # Differences are taken of numbers up to 1e6 times as large.
        is_double = bool(xp.finfo(block.X.dtype).eps < 1e-12)
        if self.folds.longest >= block.X.shape[1] or not is_double or not bool(xp.all(block.weight == block.weight[0])):
            return None
        rows, axes, origin = block.X, None, 0.0
        if self.span is None:
            origin = origin_of(samples, fit_intercept=self.fit_intercept)
            centred = rows - origin
            axes = xp.linalg.eigh(centred.T @ centred)[1]
            rows = centred @ axes
        return Principal(rows, block.Y, xp.sum(rows**2, axis=0), xp.matrix_transpose(rows) @ block.Y, axes, origin)

    def _squares(self, moments: Moments) -> Squares:
        """State the problems of some moments, without what confounds explain."""
        if self.samples.n_confounds:
            moments = self._regression(moments).residual_moments(moments)
        return Squares.of(moments if self.fit_intercept else moments.uncentred(), joint=self.joint)

    @cached_property
    def coordinates(self) -> Squares:
        """The training parts of all folds as one data fit of coordinates, for ridge regression."""
        return Squares.stacked(list(map(self._squares, self.moments.training)))

    @cached_property
    def fits(self) -> list[DataFit]:
        """The data fits of the training parts: one of all folds for the squared loss, else one for each fold."""
        if self.form.name == "moments":
            return [self.coordinates]
        if self.span is not None:
            variances = array_namespace(self.span.basis).stack([self.whole.variances] * len(self.folds))
            return [self.coordinates.lifted(self.span.basis, self.span.origin, variances)]
        checked, masks = self.samples.checked(), self.folds.masks(held=False)
        parts = [checked.take(mask) for mask in masks]
        return [self._datafit(part.residual(own)) for part, own in zip(parts, self._regressions, strict=True)]

    def _datafit(self, samples: Samples) -> Any:
        options: dict[str, Any] = {"ridge": 0.0, "joint": self.joint, "fit_intercept": self.fit_intercept}
        return datafit(samples, self.loss, self.form, **options)

    @cached_property
    def whole(self) -> Any:
        """The data fit of all samples."""
        if self.form.name in ("moments", "basis"):
            found = self._squares(self.moments.whole)
            if self.span is None:
                return found
            origin = self.span.origin
            return found.lifted(self.span.basis, origin, variances_about(self.samples.checked(), origin))
        checked = self.samples.checked()
        regression = checked.regression(centre=self.fit_intercept) if checked.n_confounds else None
        return self._datafit(checked.residual(regression))

    def exact(self, ridge: float) -> Squares | None:
        """Return the data fit of all samples, with a ridge, where their coordinates leave nothing out: to be certified."""
        if self.span is None or self.samples.n_confounds or not self.span.is_exact:
            return None
        found: Squares = replace(self.whole, ridge=0.0 * self.whole.ridge + ridge)
        return found

    @cached_property
    def held(self) -> list[Any]:
        """What each fold holds out: rows, targets and shares in memory, else moments, or samples where they are."""
        samples, found = self.reduced, []
        if self.form.name == "moments" and not samples.in_memory:
            pairs = zip(self.moments.held, self._regressions, strict=True)
            return [part if own is None else own.residual_moments(part) for part, own in pairs]
        samples = samples.checked()
        if not samples.in_memory:
            parts = zip(self.folds.masks(held=True), self._regressions, strict=True)
            return [samples.take(mask).residual(own) for mask, own in parts]
        for (_, index), own in zip(self.folds.splits, self._regressions, strict=True):
            (block,) = samples.blocks if own is None else samples.residual(own).blocks
            kept = block.take(index)
            found.append(Held(kept.X, kept.Y, kept.weight / kept.total_weight, index, kept.total_weight))
        return found

    @property
    def is_small(self) -> bool:
        """Whether logistic regression is soon done: few weights, and few numbers read for each of them."""
        weights = self.reduced.n_features * max(2, self.samples.n_targets)
        return weights <= _MOST_WEIGHTS and weights * self.folds.n <= _MOST_PRODUCTS

    @cached_property
    def weights(self) -> Array:
        """The weights of the folds, which sum to one."""
        found = np.fromiter(map(attrgetter("weight"), self.held), float)
        return found / found.sum()

    @cached_property
    def centre(self) -> Array:
        """The mean of all samples, as coordinates."""
        if self.principal is not None:
            (block,) = self.reduced.blocks
            return array_namespace(block.X).mean(block.X, axis=0)
        if self.form.name in ("moments", "basis"):
            return self.moments.whole.x_mean[: self.reduced.n_features]
        return self.whole.x_mean + getattr(self.whole, "origin", 0.0)

    def scores(self, f: int, W: Array, b: Array) -> Array | None:
        """Score the held-out samples of a fold by rows of coordinates (R, r): (n_f, R); None if not in memory."""
        if not isinstance(self.held[f], Held):
            return None
        return self.held[f].rows @ array_namespace(W).matrix_transpose(W) + b

    def statistics(self, f: int, W: Array, b: Array, scores: Array | None) -> Array:
        """Find what held-out predictions and targets of a fold have in common: (R, 5), from whatever is held.

        For each row of W the means of predictions and targets, their variances about these, and their covariance.
        """
        held, xp = self.held[f], array_namespace(W)
        link, count = self.loss.inverse_link, W.shape[0] // self.samples.n_targets
        if isinstance(held, Moments):
            cross = xp.concat([held.cross] * count, axis=1)
            y_mean, yy = (xp.concat([a] * count) for a in (held.y_mean, held.target_sq))
            ss, sy = xp.sum((W @ held.gram) * W, axis=1), xp.sum(W * xp.matrix_transpose(cross), axis=1)
            return xp.stack([W @ held.x_mean + b, y_mean, ss / held.weight, yy / held.weight, sy / held.weight], axis=1)

        def sums(Y: Array, share: Array, z: Array) -> Array:
            predicted, targets = link(z), xp.concat([Y] * count, axis=1)
            means, squares = [share @ predicted, share @ targets], [share @ predicted**2, share @ targets**2]
            return xp.stack([*means, *squares, share @ (predicted * targets)])

        if isinstance(held, Held):
            found = sums(held.Y, held.share, scores)
        else:
            # The targets of many models are those of one, repeated: passes are shared by all of them.
            scored = held.execution.map(_times(W), held.blocks)
            found = held.total(lambda X, Y, share, z: sums(Y, share, z + b), scored)
        means, squares = found[:2, :], found[2:4, :] - found[:2, :] ** 2
        covariance = found[4:, :] - found[:1, :] * found[1:2, :]
        return xp.matrix_transpose(xp.concat([means, squares, covariance]))


def _times(W: Array) -> Any:
    return lambda block: block.X @ array_namespace(W).matrix_transpose(W)
