"""Folds: how samples are split, each part of a split as a batch of problems over shared operators, and errors of means."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from numbers import Integral
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils.multiclass import type_of_target

from tracelearn.arrays.array_api import Array, array_namespace, is_on_gpu, is_sparse, move_to, to_numpy
from tracelearn.arrays.span import Span
from tracelearn.confounds import Regression
from tracelearn.errors import warn
from tracelearn.losses import Loss
from tracelearn.moments import Moments
from tracelearn.problems.basis import origin_of, variances_about
from tracelearn.problems.forms import BasisForm, choose_form
from tracelearn.problems.squares import Squares
from tracelearn.samples.samples import Samples

__all__ = ["Design", "Folds", "Held", "Principal", "corrected_error", "folds_of", "found_classes"]


# Logistic regression is tried up to so many weights, and so many numbers read for each of them.
_MOST_WEIGHTS, _MOST_PRODUCTS = 2048, 5_000_000

# Folds are solved for together where the longest one is at most so many times as long as the mean.
_PADDED = 1.25

# By whether targets are classes and whether there are groups.
_SPLITTERS = {
    (True, True): StratifiedGroupKFold,
    (True, False): StratifiedKFold,
    (False, True): GroupKFold,
    (False, False): KFold,
}


class Folds:
    """Splits of n samples into training and held-out ones, and what follows from them."""

    def __init__(self, splits: list[tuple[Array, Array]], n: int) -> None:
        self.splits, self.n, self.count = splits, n, len(splits)
        # Which samples each fold learns from, and which it holds out, (2, F, n).
        self.masks = np.zeros((2, self.count, n), dtype=bool)
        for f, (train, test) in enumerate(splits):
            self.masks[0, f, train] = self.masks[1, f, test] = True
        learned, self.sizes = np.sum(self.masks, axis=2)  # samples that each fold holds out, (F,)
        self.ratio = float(np.mean(self.sizes / learned))  # samples held out for each one that is learned from
        # Those that each fold holds out as an index (F, m), true where it is no padding; and whether little is padded.
        self.inside = np.arange(self.sizes.max()) < self.sizes[:, None]
        self.index = np.zeros(self.inside.shape, dtype=int)
        self.index[self.inside] = np.concatenate(list(map(itemgetter(1), splits)))
        self.are_alike = bool(self.sizes.max() <= _PADDED * self.sizes.mean())
        self.uses_all = bool(np.all(self.masks[0] ^ self.masks[1]))
        # The fold (n,) that holds each sample out, where every sample is held out exactly once.
        once = self.uses_all and bool(np.all(np.sum(self.masks[1], axis=0) == 1))
        self.fold_of = np.argmax(self.masks[1], axis=0) if once else None

    def among(self, chosen: Array) -> Folds:
        """Keep the samples for which an array (n,) is true, numbered anew."""
        place = np.cumsum(chosen) - 1
        splits = [tuple(place[part[chosen[part]]] for part in split) for split in self.splits]
        return Folds([(train, test) for train, test in splits if len(train) and len(test)], int(chosen.sum()))


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
    is_count = isinstance(cv, Integral)
    splitters = _shuffled(int(cv), y, metadata.get("groups"), classifier, repeats) if is_count else []
    splits: list[tuple[Array, Array]] = []
    with warnings.catch_warnings():
        if is_count:  # what scikit-learn would say of each draw was said above
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        for splitter in splitters or [check_cv(cv, y, classifier=classifier)]:
            for train, test in splitter.split(np.zeros(len(y)), y, **metadata):
                splits.append((_indices(train, len(y)), _indices(test, len(y))))
    if not splits or not min(map(len, chain(*splits))):
        raise ValueError(
            f"Expected folds that learn from samples and hold others out, got none or an empty one: cv={cv!r}."
        )
    for f, (train, test) in enumerate(splits):
        if weight is not None and not (np.any(weight[train]) and np.any(weight[test])):
            raise ValueError(
                f"Expected some sample weight inside and outside of every fold, got only zeros on one side of fold {f + 1}: "
                "drop samples of weight zero, shuffle the folds, or use fewer of them."
            )
    return Folds(splits, len(y))


def _shuffled(cv: int, y: Array, groups: Any, classifier: bool, repeats: int) -> list[Any]:
    """Choose what draws the folds; warn where samples or members of a class are fewer than folds."""
    stratified = classifier and type_of_target(y) in ("binary", "multiclass")
    labels, counts = np.unique(y, return_counts=True) if stratified else (y, np.array([len(y)]))
    most, least = int(counts.max()), int(counts.min())
    if 1 < most < cv:
        warn(
            f"Expected at least {cv} samples{' of some class' if stratified else ''} for cv={cv}, got {most}: there are "
            f"{most} folds."
        )
    count = min(cv, max(most, 2))
    if least < count <= most:
        warn(
            f"Expected at least {count} samples of each class for {count} folds, got {least} of "
            f"{labels.tolist()[int(counts.argmin())]!r}: scores say little about this class, add samples of it or leave it out."
        )
    count = count if groups is None else min(count, len(np.unique(groups)))
    if groups is not None and count < 2:
        raise ValueError(
            "Expected at least two groups to hold one out, got one: leave groups out, or pass a splitter as cv."
        )
    found = []
    for seed in range(repeats):
        found.append(_SPLITTERS[stratified, groups is not None](count, shuffle=True, random_state=seed))
    return found


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


@dataclass(frozen=True, eq=False)
class Principal:
    """All samples in coordinates (n, r) whose matrix of products is diagonal: ridge regression without some is soon done."""

    rows: Array
    Y: Array
    squares: Array  # the diagonal (r,) of the matrix of products
    cross: Array  # the products (r, K) of coordinates and targets, which all folds share
    centre: Array  # the mean (p,) of all samples, as coordinates of the design
    variance: float  # the total variance of the features, the largest of the training parts
    axes: Array | None = None  # (p, r), if these are not the coordinates of the design
    origin: Any = 0.0  # (p,)

    @classmethod
    def of(cls, design: Design) -> Principal | None:
        """Decompose all samples once, where the ridge regressions of all folds follow from that: a fold changes few rows.

        Not so with confounds or weights, which differ from fold to fold, or where folds hold out many samples for each feature,
        which takes longer.
        """
        samples, folds, fit_intercept = design.reduced, design.folds, design.fit_intercept
        if samples.rows is None or samples.n_confounds or not design.is_square or not folds.uses_all:
            return None
        (block,) = samples.blocks
        xp = array_namespace(block.X)
        # Differences are taken of numbers up to 1e6 times as large.
        is_double = bool(xp.finfo(block.X.dtype).eps < 1e-12)
        many = 5 * folds.sizes.max() > 3 * block.X.shape[1]
        if many or not is_double or not bool(xp.all(block.weight == block.weight[0])):
            return None
        rows, axes, origin = block.X, None, 0.0
        if not isinstance(design.span, Span):
            origin = origin_of(samples, fit_intercept=fit_intercept)
            centred = rows - origin
            axes = xp.linalg.eigh(centred.T @ centred)[1]
            rows = centred @ axes
        train = move_to(folds.masks[0], rows, rows.dtype)
        n = xp.sum(train, axis=1)
        variances = train @ xp.sum(rows**2, axis=1) / n
        if fit_intercept:
            variances = variances - xp.sum((train @ rows / n[:, None]) ** 2, axis=1)
        variance = max(0.0, float(xp.max(variances)))  # below zero by rounding where samples are constant
        squares, cross = xp.sum(rows**2, axis=0), xp.matrix_transpose(rows) @ block.Y
        return cls(rows, block.Y, squares, cross, xp.mean(block.X, axis=0), variance, axes, origin)

    def without(self, held: Array, inside: Array, ridges: Array, *, fit_intercept: bool) -> tuple[Array, Array]:
        """Minimise ``|Y - X W' - b|^2 / n + ridge |W|^2`` without the samples of each row of a table (F, m), for A ridges.

        Samples that are left out get an unknown in their target each, so that they fit themselves and pull at nothing. With the
        intercept that is one system of so many unknowns, besides the diagonal one of the coordinates. What pads the table is a
        sample of zeros. Returns weights (A, F, K, p) and intercepts (A, F, K).
        """
        xp, X, Y, cross = array_namespace(self.rows), self.rows, self.Y, self.cross
        ones, (F, m) = inside[:, :, None], held.shape
        flat = xp.reshape(held, (-1,))
        left = xp.reshape(xp.take(X, flat, axis=0), (F, m, -1)) * ones
        target = xp.reshape(xp.take(Y, flat, axis=0), (F, m, -1)) * ones
        known = xp.broadcast_to(xp.eye(m, dtype=X.dtype, device=device(X)), (F, m, m))
        if fit_intercept:
            count = xp.full_like(ones[:, :1, :], float(X.shape[0]))
            last = xp.concat([xp.matrix_transpose(ones), count], axis=2)
            known = xp.concat([xp.concat([known, ones], axis=2), last], axis=1)
            # And the sum of all samples.
            left = xp.concat([left, xp.broadcast_to(xp.sum(X, axis=0), (F, 1, X.shape[1]))], axis=1)
            target = xp.concat([target, xp.broadcast_to(xp.sum(Y, axis=0), (F, 1, Y.shape[1]))], axis=1)
        n = X.shape[0] - xp.sum(inside, axis=1)
        inverse = 1.0 / (self.squares + ridges[:, None, None] * n[:, None])  # (A, F, r)
        system = known - (left * inverse[:, :, None, :]) @ xp.matrix_transpose(left)
        unknown = xp.linalg.solve(system, target - left @ (inverse[..., None] * cross))
        W = xp.matrix_transpose(inverse[..., None] * (cross - xp.matrix_transpose(left) @ unknown))
        b = unknown[..., -1, :] if fit_intercept else xp.zeros_like(W[..., 0])
        return (W, b) if self.axes is None else ((V := W @ self.axes.T), b - V @ self.origin)


def _gathered(rows: Array, held: Array) -> Array:
    """Take the rows that a table (F, m) names: (F, m, r)."""
    xp = array_namespace(rows)
    return xp.reshape(xp.take(rows, xp.reshape(held, (-1,)), axis=0), (*held.shape, -1))


@dataclass(frozen=True, eq=False)
class Held:
    """What a fold holds out, in memory; or what G folds do, as one, padded to the longest."""

    rows: Array  # (G, m, r), or sparse ones (m, r) of one fold
    Y: Array  # coded targets (G, m, K)
    share: Array  # (G, m), which sum to one in each fold and are zero where it is padded
    index: list[Array]  # which samples these are, for each fold
    weight: Any  # the sum of the weights in each fold, (G,)

    @classmethod
    def padded(cls, block: Any, index: Array, inside: Array) -> Held:
        """Take from a block what a table (G, m) of folds names."""
        xp, there = array_namespace(block.Y), move_to(index, block.Y)
        weight = _gathered(block.weight[:, None], there)[..., 0] * move_to(inside, block.Y, block.Y.dtype)
        total = xp.sum(weight, axis=1)
        rows, Y, share = _gathered(block.X, there), _gathered(block.Y, there), weight / total[:, None]
        return cls(rows, Y, share, [own[kept] for own, kept in zip(index, inside, strict=True)], to_numpy(total))


def found_classes(scores: Array) -> Array:
    """Say which class has the largest score; of two, whether it is the second."""
    return scores[..., 0] > 0 if scores.shape[-1] == 1 else array_namespace(scores).argmax(scores, axis=-1)


class _Summed(NamedTuple):
    """Moments of what each fold holds out and of all samples, and what follows from them without what confounds explain."""

    held: list[Moments]
    whole: Moments
    regressions: list[Regression | None]  # of the training parts
    training: Squares  # the problems of coordinates of all folds, as one data fit
    all_samples: Squares
    centre: Array  # the mean (p,) of all samples, as coordinates
    variance: float  # the total variance of the features, the largest of the training parts


class Design:
    """Samples in one representation, split: data fits of the training parts, and what is held out.

    For the squared loss all folds are one data fit, one group of rows for each; else there is one for each fold. Samples fewer
    than features are held by their coordinates in what they ``span``.

    Parameters
    ----------
    joint : whether targets are one more mode
    numbers : whether targets are numbers, of which the size of predictions counts too
    judge : what held-out scores (G, m, M, K) of M models are worth, (G, M)
    by_score : whether that selects, or the variance that is explained after calibration
    """

    def __init__(
        self,
        samples: Samples,
        folds: Folds,
        loss: Loss,
        *,
        joint: bool = False,
        fit_intercept: bool = True,
        numbers: bool = False,
        judge: Callable[[Held, Array], Array] | None = None,
        by_score: bool = False,
    ) -> None:
        self.folds, self.loss, self.joint, self.fit_intercept = folds, loss, joint, fit_intercept
        self.numbers, self.judge, self.by_score = numbers, judge, by_score
        form, n, p, K = choose_form(samples, loss), folds.n, samples.n_features, samples.n_targets
        # In memory with every number looked at, in the precision that solvers work in.
        samples = samples.checked() if samples.in_memory else samples
        span: Any = None
        if not form.reads_samples_again and samples.rows is not None and n < p:
            # Each fold is decomposed, so a basis is for all that are fewer than features.
            origin = origin_of(samples, fit_intercept=fit_intercept)
            span, form = Span.of(samples.rows, origin), BasisForm(f"{n} samples are fewer than {p} features")
        self.form, self.span, self.samples = form, span, samples
        self.is_square = not form.reads_samples_again  # squares of which the moments are known
        self.shape = (K, *samples.shape) if joint else samples.shape  # of one weight tensor
        self.reduced = samples  # by their coordinates in what they span, where that is a basis
        if span is not None:
            coordinates = span.coordinates
            self.reduced = samples.with_rows(coordinates, (coordinates.shape[1],)).checked()
        self.held, weights = self._held_out()
        self.weights = weights / weights.sum()  # of the folds
        self.principal = Principal.of(self)
        # What ridge regression is found from, and the mean of all samples.
        self.source: Any = (self.principal or self.moments) if self.is_square else None
        # Logistic regression is soon done with few weights, and few numbers read for each of them.
        unknowns = self.reduced.n_features * max(2, K)
        self.is_small = unknowns <= _MOST_WEIGHTS and unknowns * n <= _MOST_PRODUCTS

    def _held_out(self) -> tuple[list[Any], Array]:
        """List what each fold holds out, and its weight: in memory, else as moments, or as samples where they are."""
        samples, folds, found = self.reduced, self.folds, list[Any]()
        regressions = self.regressions if samples.n_confounds else [None] * folds.count
        if self.form.uses_moments and not samples.in_memory:
            for part, own in zip(self.moments.held, regressions, strict=True):
                found.append(part if own is None else own.residual_moments(part))
        elif not samples.in_memory:
            samples = samples.checked()
            for mask, own in zip(folds.masks[1], regressions, strict=True):
                found.append(samples.take(mask).residual(own))
        elif self.is_square and is_on_gpu(samples.rows) and not samples.n_confounds and folds.are_alike:
            # As one: on a GPU calls cost more than products.
            found.append(Held.padded(next(iter(samples.blocks)), folds.index, folds.inside))
        else:
            for (_, index), own in zip(folds.splits, regressions, strict=True):
                (block,) = samples.blocks if own is None else samples.residual(own).blocks
                kept = block.take(index)
                rows = kept.X if is_sparse(kept.X) else kept.X[None, ...]
                total = float(array_namespace(kept.weight).sum(kept.weight))
                found.append(Held(rows, kept.Y[None, ...], (kept.weight / total)[None, :], [index], total))
        return found, np.hstack(list(map(attrgetter("weight"), found)))

    @cached_property
    def moments(self) -> _Summed:
        """The moments of the samples by their coordinates; read once."""
        samples, folds, masks = self.reduced, self.folds, self.folds.masks
        if folds.fold_of is not None:
            held, training = samples.moments_of_parts(masks[1]), []
            for f in range(len(held)):
                # A sum of the other folds: a difference from the total would leave their rounding errors in.
                training.append(Moments.total(held[:f] + held[f + 1 :]))
            whole = Moments.total(held)
        elif samples.in_memory:
            parts, whole = samples.moments_of_parts([*masks[0], *masks[1]]), samples.moments()
            held, training = parts[folds.count :], parts[: folds.count]
        else:
            raise ValueError(
                "Expected folds that hold out every sample exactly once where samples are read in blocks, got other ones: use "
                "KFold, StratifiedKFold, GroupKFold or the like."
            )
        squares, regressions = [], list[Regression | None]()
        for part in (*training, whole):
            own, left = None, part
            if samples.n_confounds:  # which are the last features
                own = Regression.of_joint(part if self.fit_intercept else part.uncentred(), samples.n_features)
                left = own.residual_moments(part)
            regressions.append(own)
            squares.append(Squares.of(left if self.fit_intercept else left.uncentred(), joint=self.joint))
        stacked, centre = Squares.stacked(squares[:-1]), whole.x_mean[: samples.n_features]
        xp = array_namespace(centre)
        variance = float(xp.max(xp.sum(stacked.variances, axis=-1)))
        return _Summed(held, whole, regressions[:-1], stacked, squares[-1], centre, variance)

    @cached_property
    def regressions(self) -> list[Regression | None]:
        """How confounds explain the training samples of each fold, by their coordinates where they have some; None without."""
        if not self.samples.n_confounds:
            return [None] * self.folds.count
        if self.is_square:
            return self.moments.regressions
        checked = self.reduced.checked()
        return [checked.take(mask).regression(centre=self.fit_intercept) for mask in self.folds.masks[0]]

    @cached_property
    def fits(self) -> tuple[list[Any], Any]:
        """The data fits of the training parts, one of all folds for the squared loss, else one for each; and of all samples."""
        samples, span = self.samples, self.span
        if self.is_square:
            training, whole = self.moments.training, self.moments.all_samples
            if span is None:
                return [training], whole
            whole = whole.lifted(span.basis, span.origin, variances_about(samples, span.origin))
            variances = array_namespace(span.basis).stack([whole.variances] * self.folds.count)
            return [training.lifted(span.basis, span.origin, variances)], whole
        samples, found = samples.checked(), []
        options: dict[str, Any] = {"ridge": 0.0, "joint": self.joint, "fit_intercept": self.fit_intercept}
        for mask, own in zip(self.folds.masks[0], self.regressions, strict=True):
            found.append(self.form.data_fit(samples.take(mask).residual(own), self.loss, **options))
        regression = samples.regression(centre=self.fit_intercept) if samples.n_confounds else None
        return found, self.form.data_fit(samples.residual(regression), self.loss, **options)

    def statistics(self, held: Any, W: Array, b: Array, centre: Array) -> tuple[Array | None, Array, Array]:
        """Score what G folds hold out by rows of coordinates W (G, R, r) and intercepts b (G, R).

        Returns the scores (G, m, R), None where they stay elsewhere; other intercepts (G, R), with which folds are compared; and
        what predictions by these and targets have in common, (G, R, 5): for each row their means, their variances about
        these, and their covariance.
        """
        xp = array_namespace(W)
        link, count = self.loss.inverse_link, W.shape[1] // self.samples.n_targets
        # Predictions of all folds are compared about one common mean: what folds differ in by their intercepts alone
        # says nothing about how well samples are told apart. With a link the intercept belongs to the prediction.
        linked, scores = type(self.loss).inverse_link is not Loss.inverse_link, None
        shift = b if linked else -(W @ centre)
        if isinstance(held, Moments):
            rows, cross = W[0, ...], xp.concat([held.cross] * count, axis=1)
            y_mean, yy = (xp.concat([a] * count) for a in (held.y_mean, held.target_sq))
            ss, sy = xp.sum((rows @ held.gram) * rows, axis=1), xp.sum(rows * xp.matrix_transpose(cross), axis=1)
            means = [rows @ held.x_mean + shift[0, :], y_mean]
            known = xp.stack([*means, ss / held.weight, yy / held.weight, sy / held.weight], axis=1)
            return None, shift, known[None, ...]

        def sums(Y: Array, share: Array, z: Array) -> Array:
            predicted, targets, share = link(z), xp.concat([Y] * count, axis=-1), share[..., None, :]
            means, squares = [share @ predicted, share @ targets], [share @ predicted**2, share @ targets**2]
            return xp.concat([*means, *squares, share @ (predicted * targets)], axis=-2)

        if isinstance(held, Held):
            if is_sparse(held.rows):
                scores = (held.rows @ W[0, ...].T + b)[None, ...]
            else:
                scores = held.rows @ xp.matrix_transpose(W) + b[:, None, :]
            found = sums(held.Y, held.share, scores if linked else scores + (shift - b)[:, None, :])
        else:
            # The targets of many models are those of one, repeated: passes are shared by all of them.
            found = held.total(lambda X, Y, share, z: sums(Y, share, z + shift), held.scores(W[0, ...]))[None, ...]
        means, squares = found[..., :2, :], found[..., 2:4, :] - found[..., :2, :] ** 2
        covariance = found[..., 4:, :] - found[..., :1, :] * found[..., 1:2, :]
        return scores, shift, xp.matrix_transpose(xp.concat([means, squares, covariance], axis=-2))
