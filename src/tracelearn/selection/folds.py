"""Folds: how samples are split, and each part of a split as a batch of problems over shared operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils.multiclass import type_of_target

from tracelearn.arrays.array_api import Array, array_namespace, move_to, take_rows
from tracelearn.losses import Loss
from tracelearn.moments import Moments
from tracelearn.problems.batch import choose_form, datafit, in_basis
from tracelearn.problems.datafits import DataFit, Squares
from tracelearn.samples.samples import Samples, summed

__all__ = ["Design", "Folds", "folds_of"]


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
    def fold_of(self) -> Array | None:
        """The fold (n,) that holds each sample out, where every sample is held out exactly once."""
        found, held = np.full(self.n, -1, dtype=np.int16), 0
        for f, (_, test) in enumerate(self.splits):
            found[test], held = f, held + len(test)
        apart = held == self.n and not np.any(found < 0)
        return found if apart and all(len(train) + len(test) == self.n for train, test in self.splits) else None

    def mask(self, f: int, *, held: bool) -> Array:
        """Mark the training or the held-out samples of a fold, (n,)."""
        chosen = np.zeros(self.n, dtype=bool)
        chosen[self.splits[f][1 if held else 0]] = True
        return chosen


def folds_of(
    cv: Any, y: Array, weight: Array | None, metadata: dict[str, Any], *, classifier: bool, repeats: int = 1
) -> Folds:
    """Draw folds; refuse one that has nothing to learn from, or nothing to judge by.

    A number of folds means shuffled ones, stratified for classes and with groups held out whole where there are any, drawn
    several times if asked to; all else is scikit-learn's.
    """
    splitters = [check_cv(cv, y, classifier=classifier)]
    if isinstance(cv, Integral):
        grouped, kinds = metadata.get("groups") is not None, type_of_target(y) in ("binary", "multiclass")
        kind = _SPLITTERS[classifier and kinds, grouped]
        splitters = [kind(int(cv), shuffle=True, random_state=seed) for seed in range(repeats)]
    rows = np.zeros(len(y))
    folds = Folds([split for one in splitters for split in one.split(rows, y, **metadata)], len(y))
    for f, parts in enumerate(folds.splits):
        if weight is not None and not all(np.any(weight[part]) for part in parts):
            raise ValueError(
                f"Expected some sample weight inside and outside of every fold, got only zeros on one side of fold {f + 1}: "
                "drop samples of weight zero, shuffle the folds, or use fewer of them."
            )
    return folds


@dataclass(frozen=True, eq=False)
class Design:
    """Samples in one representation, split: data fits of the training parts, and what is held out.

    For the squared loss all folds are one data fit, one group of rows for each; else there is one for each fold.
    """

    fits: list[DataFit]
    whole: DataFit
    held: list[Any]  # rows, targets and shares of each fold, or moments, or samples
    shape: tuple[int, ...]
    n_targets: int
    weights: Array  # of the folds, which sum to one
    loss: Loss
    basis: Array | None = None
    origin: Array | None = None
    total: Moments | None = None

    @classmethod
    def of(cls, samples: Samples, folds: Folds, loss: Loss, *, joint: bool, fit_intercept: bool) -> Design:
        """Read samples once, where the squared loss allows it: moments of each fold, training ones as the sum of others."""
        form = choose_form(samples, loss)
        options: dict[str, Any] = {"ridge": 0.0, "joint": joint, "fit_intercept": fit_intercept}
        common: dict[str, Any] = {"shape": samples.shape, "n_targets": samples.n_targets, "loss": loss}
        if form.name not in ("moments", "basis"):
            checked = samples.checked()
            parts = [checked.take(folds.mask(f, held=False)) for f in range(len(folds))]
            fits: list[DataFit] = [datafit(part, loss, form, **options) for part in parts]
            held: list[Any] = [_held(checked, folds, f) for f in range(len(folds))]
            weights = [checked.take(folds.mask(f, held=True)).weight for f in range(len(folds))]
            return cls(fits, datafit(checked, loss, form, **options), held, weights=_shares(weights), **common)
        basis = origin = None
        seen = samples
        if form.name == "basis":
            basis, origin, seen = in_basis(samples.checked(), fit_intercept=fit_intercept)
        outside, training = _moments(seen, folds)
        total = summed(outside) if folds.fold_of is not None else seen.moments()

        def squares(moments: Moments) -> Squares:
            past = moments if fit_intercept else moments.uncentred()
            return Squares.of(past, joint=joint, basis=basis, origin=origin)

        stack = Squares.stacked([squares(part) for part in training])
        held = [_held(seen.checked(), folds, f) for f in range(len(folds))] if samples.in_memory else outside
        weights = _shares([part.weight for part in outside])
        kept = total if basis is None else None
        return cls([stack], squares(total), held, weights=weights, basis=basis, origin=origin, total=kept, **common)

    @property
    def n_folds(self) -> int:
        """The number of folds."""
        return len(self.held)

    def scores(self, f: int, W: Array, b: Array) -> Array | None:
        """Score the held-out samples of a fold by rows W (R, p) with intercepts (R,): (n_f, R); None if not in memory."""
        if not isinstance(self.held[f], Held):
            return None
        rows = self.held[f].rows
        if self.basis is not None:
            W, b = W @ self.basis, b + W @ self.origin
        return rows @ array_namespace(W).matrix_transpose(W) + b

    def statistics(self, f: int, W: Array, b: Array, scores: Array | None) -> Array:
        """Find what held-out predictions and targets of a fold have in common: (R, 5), from whatever is held.

        For each row of W the means of predictions and targets, their variances about these, and their covariance.
        """
        held, xp = self.held[f], array_namespace(W)
        link, count = self.loss.inverse_link, W.shape[0] // self.n_targets
        if isinstance(held, Moments):
            cross = xp.concat([held.cross] * count, axis=1)
            y_mean, yy = (xp.concat([a] * count) for a in (held.y_mean, held.target_sq))
            ss, sy = xp.sum((W @ held.gram) * W, axis=1), xp.sum(W * xp.matrix_transpose(cross), axis=1)
            return xp.stack([W @ held.x_mean + b, y_mean, ss / held.weight, yy / held.weight, sy / held.weight], axis=1)

        def sums(Y: Array, share: Array, z: Array) -> Array:
            predicted, targets = link(z), xp.concat([Y] * count, axis=1)
            return xp.stack(
                [
                    share @ predicted,
                    share @ targets,
                    share @ predicted**2,
                    share @ targets**2,
                    share @ (predicted * targets),
                ]
            )

        if isinstance(held, Held):
            found = sums(held.Y, held.share, scores)
        else:
            # The targets of many models are those of one, repeated: passes are shared by all of them.
            found = held.total(lambda X, Y, share, z: sums(Y, share, z + b), held.execution.map(_times(W), held.blocks))
        mean, target, ss, yy, sy = (found[i, ...] for i in range(5))
        return xp.stack([mean, target, ss - mean**2, yy - target**2, sy - mean * target], axis=1)


def _times(W: Array) -> Any:
    return lambda block: block.X @ array_namespace(W).matrix_transpose(W)


@dataclass(frozen=True, eq=False)
class Held:
    """Held-out samples in memory: rows (n_f, r), coded targets (n_f, K), shares (n_f,) that sum to one, and their index."""

    rows: Array
    Y: Array
    share: Array
    index: Array


def _held(samples: Samples, folds: Folds, f: int) -> Any:
    """Keep the held-out samples of a fold: as arrays in memory, else where they are."""
    if not samples.in_memory:
        return samples.take(folds.mask(f, held=True))
    (block,) = samples.blocks
    index = folds.splits[f][1]
    kept = block.take(index)
    weight = take_rows(block.weight, move_to(index, block.X))
    return Held(kept.X, kept.Y, weight / array_namespace(weight).sum(weight), index)


def _moments(samples: Samples, folds: Folds) -> tuple[list[Moments], list[Moments]]:
    """Summarise what each fold holds out, and what it trains on."""
    if folds.fold_of is not None:
        outside = samples.fold_moments(folds.fold_of, len(folds))
        # A sum of the other folds: a difference from the total would leave their rounding errors in.
        return outside, [summed(outside[:f] + outside[f + 1 :]) for f in range(len(outside))]
    if not samples.in_memory:
        raise ValueError(
            "Expected folds that hold out every sample exactly once where samples are read in blocks, got other ones: use "
            "KFold, StratifiedKFold, GroupKFold or the like."
        )
    both = [[samples.take(folds.mask(f, held=held)).moments() for f in range(len(folds))] for held in (True, False)]
    return both[0], both[1]


def _shares(weights: Sequence[float]) -> Array:
    found = np.array([float(weight) for weight in weights])
    return found / found.sum()


def with_ridge(fit: Any, ridge: Array) -> Any:
    """Give the problems of a data fit their ridges (B,)."""
    return replace(fit, ridge=ridge)
