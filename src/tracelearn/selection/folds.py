"""Folds: how samples are split, each part of a split as a batch of problems over shared operators, and errors of means."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from numbers import Integral
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils.multiclass import type_of_target

from tracelearn.arrays.array_api import Array, array_namespace, is_on_gpu, is_sparse, move_to, to_numpy
from tracelearn.confounds import Regression
from tracelearn.errors import warn
from tracelearn.losses import Loss
from tracelearn.moments import Moments
from tracelearn.problems.batch import Form, choose_form, datafit, origin_of, variances_about
from tracelearn.problems.datafits import DataFit, Distinct, Span, Squares
from tracelearn.samples.samples import Samples

__all__ = ["Design", "Folds", "Held", "Principal", "Together", "corrected_error", "folds_of", "found_classes"]


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


@dataclass(frozen=True, eq=False)
class Folds:
    """Splits of n samples into training and held-out ones."""

    splits: list[tuple[Array, Array]]
    n: int

    def __len__(self) -> int:
        return len(self.splits)

    @cached_property
    def masks(self) -> Array:
        """Which samples each fold learns from, and which it holds out, (2, F, n)."""
        found = np.zeros((2, len(self.splits), self.n), dtype=bool)
        for f, (train, test) in enumerate(self.splits):
            found[0, f, train] = found[1, f, test] = True
        return found

    @property
    def sizes(self) -> Array:
        """How many samples each fold holds out, (F,)."""
        return np.array([len(test) for _, test in self.splits])

    @property
    def ratio(self) -> float:
        """How many samples are held out for each one that is learned from, the mean over folds."""
        return float(np.mean([len(test) / len(train) for train, test in self.splits]))

    @property
    def leaves_none_out(self) -> bool:
        """Whether every fold learns from all samples that it does not hold out."""
        training, held = self.masks
        return np.array_equal(training, ~held)

    def among(self, chosen: Array) -> Folds:
        """Keep the samples for which an array (n,) is true, numbered anew."""
        place = np.cumsum(chosen) - 1
        splits = [tuple(place[part[chosen[part]]] for part in split) for split in self.splits]
        return Folds([(train, test) for train, test in splits if len(train) and len(test)], int(chosen.sum()))

    @property
    def fold_of(self) -> Array | None:
        """The fold (n,) that holds each sample out, where every sample is held out exactly once."""
        once = self.leaves_none_out and np.all(np.sum(self.masks[1], axis=0) == 1)
        return np.argmax(self.masks[1], axis=0) if once else None

    def tables(self, most: int) -> list[tuple[Array, Array]]:
        """What at most so many folds hold out as an index (F, m), and ones (F, m) where it is no padding; little is padded."""
        tests, sizes, found = [test for _, test in self.splits], self.sizes, []
        most = most if sizes.max() <= _PADDED * sizes.mean() else 1
        for begin in range(0, len(tests), most):
            own = slice(begin, begin + most)
            inside = np.arange(sizes[own].max()) < sizes[own, None]
            index = np.zeros(inside.shape, dtype=int)
            index[inside] = np.concatenate(tests[own])
            found.append((index, inside))
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
    is_count = isinstance(cv, Integral)
    splitters = _shuffled(int(cv), y, metadata.get("groups"), classifier, repeats) if is_count else []
    folds = Folds([], len(y))
    with warnings.catch_warnings():
        if is_count:  # what scikit-learn would say of each draw was said above
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        for splitter in splitters or [check_cv(cv, y, classifier=classifier)]:
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
    kind = _SPLITTERS[stratified, groups is not None]
    return [kind(count, shuffle=True, random_state=seed) for seed in range(repeats)]


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

    def without(self, held: Array, inside: Array, ridges: Array, *, fit_intercept: bool) -> tuple[Array, Array]:
        """Minimise ``|Y - X W' - b|^2 / n + ridge |W|^2`` without the samples of each row of a table (F, m), for A ridges.

        Samples that are left out get an unknown in their target each, so that they fit themselves and pull at nothing. With the
        intercept that is one system of so many unknowns, besides the diagonal one of the coordinates. What pads the table is a
        sample of zeros. Returns weights (A, F, K, p) and intercepts (A, F, K).
        """
        xp, X, Y, cross = array_namespace(self.rows), self.rows, self.Y, self.cross
        ones, (F, m) = inside[:, :, None], held.shape
        left, target = _gathered(X, held) * ones, _gathered(Y, held) * ones
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
    """Held-out samples in memory: rows (n_f, r), coded targets (n_f, K), shares (n_f,), which sum to one, and their index."""

    rows: Array
    Y: Array
    share: Array
    index: Array
    weight: float

    def scores(self, W: Array, b: Array) -> Array:
        """Score the samples by rows of coordinates (R, r): (n_f, R)."""
        return self.rows @ array_namespace(W).matrix_transpose(W) + b


@dataclass(frozen=True, eq=False)
class Together:
    """What G folds hold out, as one: rows (G, m, r), targets (G, m, K) and shares (G, m), which are zero where it is padded."""

    rows: Array
    Y: Array
    share: Array
    parts: list[Held]  # the folds

    @classmethod
    def of(cls, block: Any, index: Array, inside: Array) -> Together:
        """Take from a block what a table (G, m) of folds names."""
        xp, there = array_namespace(block.Y), move_to(index, block.Y)
        weight = _gathered(block.weight[:, None], there)[..., 0] * move_to(inside, block.Y, block.Y.dtype)
        total = xp.sum(weight, axis=1)
        rows, Y, share = _gathered(block.X, there), _gathered(block.Y, there), weight / total[:, None]
        parts = []
        for g, (count, own) in enumerate(zip(inside.sum(axis=1).tolist(), to_numpy(total).tolist(), strict=True)):
            parts.append(Held(rows[g, :count, :], Y[g, :count, :], share[g, :count], index[g, :count], own))
        return cls(rows, Y, share, parts)

    def scores(self, W: Array, b: Array) -> Array:
        """Score the samples of each fold by its own rows of coordinates (G, R, r): (G, m, R)."""
        return self.rows @ array_namespace(W).matrix_transpose(W) + b[:, None, :]


def found_classes(scores: Array) -> Array:
    """Say which class has the largest score; of two, whether it is the second."""
    return scores[..., 0] > 0 if scores.shape[-1] == 1 else array_namespace(scores).argmax(scores, axis=-1)


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

    samples: Samples  # in memory with every number looked at, in the precision that solvers work in
    reduced: Samples  # the same by their coordinates in what they span, where that is a basis
    span: Span | Distinct | None
    form: Form
    folds: Folds
    loss: Loss
    joint: bool  # whether targets are one more mode
    fit_intercept: bool
    numbers: bool  # whether targets are numbers, of which the size of predictions counts too
    judge: Callable[[Held, Array], Array] | None  # what held-out scores (n_f, M, K) of M models are worth, (M,)
    by_score: bool  # whether that selects, or the variance that is explained after calibration

    @classmethod
    def of(
        cls,
        samples: Samples,
        folds: Folds,
        loss: Loss,
        *,
        joint: bool = False,
        fit_intercept: bool = True,
        numbers: bool = False,
        judge: Callable[[Held, Array], Array] | None = None,
        by_score: bool = False,
    ) -> Design:
        """Choose how samples are kept. Each fold is decomposed, so a basis is for all that are fewer than features."""
        form, n, p = choose_form(samples, loss), folds.n, samples.n_features
        samples = samples.checked() if samples.in_memory else samples
        span: Span | Distinct | None = None
        if form.name == "moments" and samples.rows is not None:
            distinct = Distinct.of(samples.rows, origin_of(samples, fit_intercept=fit_intercept))
            if distinct is not None and len(distinct.kept) <= n:
                span, form = distinct, Form("basis", f"{len(distinct.kept)} of {p} features differ")
            elif n < p:
                form = Form("basis", f"{n} samples are fewer than {p} features")
        if form.name == "basis" and span is None:
            span = Span.of(samples.rows, origin_of(samples, fit_intercept=fit_intercept))  # type: ignore[arg-type]
        reduced = samples
        if span is not None:
            coordinates = span.coordinates
            reduced = samples.with_rows(coordinates, (coordinates.shape[1],)).checked()
        return cls(samples, reduced, span, form, folds, loss, joint, fit_intercept, numbers, judge, by_score)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one weight tensor."""
        return (self.samples.n_targets, *self.samples.shape) if self.joint else self.samples.shape

    @cached_property
    def moments(self) -> _FoldMoments:
        """The moments of the samples by their coordinates; read once."""
        samples, folds, masks = self.reduced, self.folds, self.folds.masks
        if folds.fold_of is not None:
            held, training = samples.moments_of_parts(masks[1]), []
            for f in range(len(held)):
                # A sum of the other folds: a difference from the total would leave their rounding errors in.
                training.append(Moments.total(held[:f] + held[f + 1 :]))
            return _FoldMoments(held, training, Moments.total(held))
        if not samples.in_memory:
            raise ValueError(
                "Expected folds that hold out every sample exactly once where samples are read in blocks, got other ones: use "
                "KFold, StratifiedKFold, GroupKFold or the like."
            )
        parts = samples.moments_of_parts([*masks[0], *masks[1]])
        return _FoldMoments(parts[len(folds) :], parts[: len(folds)], samples.moments())

    @cached_property
    def _regressions(self) -> list[Regression | None]:
        """How confounds explain the training samples of each fold, by their coordinates where they have some; None without."""
        samples = self.reduced
        if not samples.n_confounds:
            return [None] * len(self.folds)
        if self.form.name in ("moments", "basis"):
            return list(map(self._regression, self.moments.training))
        checked = samples.checked()
        return [checked.take(mask).regression(centre=self.fit_intercept) for mask in self.folds.masks[0]]

    def _regression(self, moments: Moments) -> Regression:
        """How confounds, which are the last features, explain the samples of some moments."""
        return Regression.of_joint(moments if self.fit_intercept else moments.uncentred(), self.reduced.n_features)

    @cached_property
    def principal(self) -> Principal | None:
        """All samples by their principal components, where the ridge regressions of all folds follow from these.

        One decomposition instead of one for each fold: what a fold holds out changes few rows. Not so with confounds or weights,
        which differ from fold to fold, or where folds hold out many samples for each feature, which takes longer.
        """
        samples = self.reduced
        plain = samples.in_memory and not is_sparse(samples.like) and not samples.n_confounds
        if not plain or self.form.name not in ("moments", "basis") or not self.folds.leaves_none_out:
            return None
        (block,) = samples.blocks
        xp = array_namespace(block.X)
        # Differences are taken of numbers up to 1e6 times as large.
        is_double = bool(xp.finfo(block.X.dtype).eps < 1e-12)
        if (
            5 * self.folds.sizes.max() > 3 * block.X.shape[1]
            or not is_double
            or not bool(xp.all(block.weight == block.weight[0]))
        ):
            return None
        rows, axes, origin = block.X, None, 0.0
        if not isinstance(self.span, Span):
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
        samples, pairs = self.samples.checked(), zip(self.folds.masks[0], self._regressions, strict=True)
        return [self._datafit(samples.take(mask).residual(own)) for mask, own in pairs]

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
            return found.lifted(self.span.basis, origin, variances_about(self.samples, origin))
        samples = self.samples.checked()
        regression = samples.regression(centre=self.fit_intercept) if samples.n_confounds else None
        return self._datafit(samples.residual(regression))

    def exact(self, ridge: float) -> Squares | None:
        """Return the data fit of all samples, with a ridge, where their coordinates leave nothing out: to be certified."""
        if self.span is None or self.samples.n_confounds or not self.span.is_exact:
            return None
        found: Squares = replace(self.whole, ridge=0.0 * self.whole.ridge + ridge)
        return found

    @cached_property
    def held(self) -> list[Any]:
        """What each fold holds out: rows, targets and shares in memory, else moments, or samples where they are."""
        samples = self.reduced
        if self.form.name == "moments" and not samples.in_memory:
            pairs = zip(self.moments.held, self._regressions, strict=True)
            return [part if own is None else own.residual_moments(part) for part, own in pairs]
        samples = samples.checked()
        if not samples.in_memory:
            parts = zip(self.folds.masks[1], self._regressions, strict=True)
            return [samples.take(mask).residual(own) for mask, own in parts]
        if self._together is not None:
            return self._together.parts
        found = []
        for (_, index), own in zip(self.folds.splits, self._regressions, strict=True):
            (block,) = samples.blocks if own is None else samples.residual(own).blocks
            kept = block.take(index)
            total = Samples.of(kept, samples.shape).weight
            found.append(Held(kept.X, kept.Y, kept.weight / total, index, total))
        return found

    @cached_property
    def _together(self) -> Together | None:
        """What all folds hold out, as one: on a GPU, where calls cost more than products."""
        samples = self.reduced
        tables = self.folds.tables(len(self.folds)) if is_on_gpu(samples.like) and not samples.n_confounds else []
        return Together.of(next(iter(samples.blocks)), *tables[0]) if len(tables) == 1 else None

    def held_by(self, folds: Sequence[int]) -> Iterator[tuple[slice, Any]]:
        """List what some folds hold out: slices of these, each with samples of one fold or of all together, or elsewhere."""
        if self._together is not None and len(folds) == len(self.folds):
            yield slice(None), self._together
            return
        for k, f in enumerate(folds):
            yield slice(k, k + 1), self.held[f]

    @property
    def is_small(self) -> bool:
        """Whether logistic regression is soon done: few weights, and few numbers read for each of them."""
        weights = self.reduced.n_features * max(2, self.samples.n_targets)
        return weights <= _MOST_WEIGHTS and weights * self.folds.n <= _MOST_PRODUCTS

    @cached_property
    def weights(self) -> Array:
        """The weights of the folds, which sum to one."""
        found = np.array(list(map(attrgetter("weight"), self.held)))
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

    def statistics(self, held: Any, W: Array, b: Array, scores: Array | None) -> Array:
        """Find what held-out predictions and targets have in common, of a fold (R, 5) or of several (G, R, 5).

        For each row of W the means of predictions and targets, their variances about these, and their covariance.
        """
        xp = array_namespace(W)
        link, count = self.loss.inverse_link, W.shape[-2] // self.samples.n_targets
        if isinstance(held, Moments):
            cross = xp.concat([held.cross] * count, axis=1)
            y_mean, yy = (xp.concat([a] * count) for a in (held.y_mean, held.target_sq))
            ss, sy = xp.sum((W @ held.gram) * W, axis=1), xp.sum(W * xp.matrix_transpose(cross), axis=1)
            return xp.stack([W @ held.x_mean + b, y_mean, ss / held.weight, yy / held.weight, sy / held.weight], axis=1)

        def sums(Y: Array, share: Array, z: Array) -> Array:
            predicted, targets, share = link(z), xp.concat([Y] * count, axis=-1), share[..., None, :]
            means, squares = [share @ predicted, share @ targets], [share @ predicted**2, share @ targets**2]
            return xp.concat([*means, *squares, share @ (predicted * targets)], axis=-2)

        if isinstance(held, Held | Together):
            found = sums(held.Y, held.share, scores)
        else:
            # The targets of many models are those of one, repeated: passes are shared by all of them.
            found = held.total(lambda X, Y, share, z: sums(Y, share, z + b), held.scores(W))
        means, squares = found[..., :2, :], found[..., 2:4, :] - found[..., :2, :] ** 2
        covariance = found[..., 4:, :] - found[..., :1, :] * found[..., 1:2, :]
        return xp.matrix_transpose(xp.concat([means, squares, covariance], axis=-2))
