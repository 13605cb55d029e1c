"""Moments of more features than memory has room for: their square matrix in a file, multiplied and factored tile by tile.

For 5,000 to some 30,000 features and many more samples than that: one pass over the samples makes the matrix, where weights
in subspaces would take ten. The file holds p by p numbers, once: the matrix above the diagonal, its Cholesky factor below. On
a cluster workers sum up some rows of the matrix at a time, as many as their memory has room for, and the file gathers them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from tracelearn.arrays.array_api import Array, available_memory, within_limit
from tracelearn.moments import Accumulator
from tracelearn.problems.datafits import Squares
from tracelearn.problems.operators import Rows, largest_eigenvalue
from tracelearn.samples.samples import Block, Local, Samples

__all__ = ["Tiles", "has_room", "n_passes", "tiled_squares"]

_PANEL = 128 << 20  # bytes of the rows of a matrix that are held in memory at once
_LEAST_BLOCK, _LARGEST_BLOCK = 64 << 20, 1 << 30  # bytes of samples that are gathered before the whole file is updated
_SHARE = 8  # of the memory of a task: a tree adds up so many parts at once


def has_room(p: int) -> bool:
    """Whether the folder of temporary files has room for p by p numbers and as much again, and the process for their map."""
    return 16 * p * p < shutil.disk_usage(tempfile.gettempdir()).free and 16 * p * p < within_limit()


def _parts(p: int, rows: int | None = None) -> list[slice]:
    """Cut p features into parts whose rows of the matrix fit in memory."""
    rows = max(16, _PANEL // (8 * p)) if rows is None else rows
    return [slice(first, min(first + rows, p)) for first in range(0, p, rows)]


def _portions(p: int, memory: int) -> list[slice]:
    """Cut the rows of the matrix so that a task has memory for what is right of the diagonal in each portion."""
    found, first = list[slice](), 0
    while first < p:
        last = first + max(1, memory // (8 * _SHARE * (p - first)))
        found.append(slice(first, min(last, p)))
        first = last
    return found


def n_passes(samples: Samples) -> int:
    """Count the passes over the samples that sum up their square matrix: one, on a cluster one for each portion of it."""
    execution = samples.execution
    return 1 if isinstance(execution, Local) else 1 + len(_portions(samples.n_features, execution.memory()))


@dataclass
class _TiledAccumulator(Accumulator):
    """Moments in the making whose gram is in a file, right of and on the diagonal."""

    _waiting: list[Any] = field(default_factory=list)
    _most: int = _LEAST_BLOCK

    @classmethod
    def empty(cls, n_features: int, n_targets: int, like: Array | None = None) -> _TiledAccumulator:
        """Begin with no sample, and with a file of zeros that is deleted when nobody needs it any more."""
        file = tempfile.TemporaryFile()  # which the map keeps open
        gram = np.memmap(file, np.float64, "w+", shape=(n_features, n_features))
        cross = np.zeros((n_features, n_targets))
        most = min(max(available_memory() // 8, _LEAST_BLOCK), _LARGEST_BLOCK)
        zeros = np.zeros(n_features), np.zeros(n_targets)
        return cls(0.0, *zeros, gram, cross, np.zeros(n_targets), _most=most)

    def add(self, X: Array, y: Array, sample_weight: Array | None = None) -> Accumulator:
        """Gather samples, since every addition passes over the whole file."""
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        self._waiting.append((np.array(X).reshape(len(X), -1), np.array(y), np.array(weight)))
        if sum(part[0].nbytes for part in self._waiting) >= self._most:
            self._settle()
        return self

    def _settle(self) -> None:
        if self._waiting:
            rows, y, weight = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
            self._waiting.clear()
            self._add_block(rows, y, weight)
        if self._excess:
            super()._settle()

    def _grow(self, rows: Array, sign: float = 1.0) -> None:
        for part in _parts(self.gram.shape[0]):
            self.gram[part, part.start :] += sign * (rows[:, part].T @ rows[:, part.start :])


def _folded(samples: Samples) -> _TiledAccumulator:
    """Sum the samples up here, in one pass."""
    fold, add = (
        _TiledAccumulator.empty(samples.n_features, samples.n_targets),
        partial(Block.add_to, shape=samples.shape),
    )
    samples.execution.folded(add, _TiledAccumulator._settle, samples.blocks, fold)
    return fold


def _gathered(samples: Samples) -> _TiledAccumulator:
    """Sum the samples up on a cluster: the means, and about them a portion of the matrix in each pass."""
    fold = _TiledAccumulator.empty(samples.n_features, samples.n_targets)
    # What all samples have in common is subtracted exactly.
    origin = np.asarray(samples.execution.first(samples.blocks).X[0], dtype=float)
    step, y_mean = samples.total(lambda X, Y, share, z: (share @ (X - origin), share @ Y))
    for part in _portions(samples.n_features, samples.execution.memory()):

        def products(X: Array, Y: Array, share: Array, z: Array, part: slice = part) -> tuple[Array, ...]:
            rows, targets = (X - origin) - step, Y - y_mean
            weighted = rows * share[:, None]
            return weighted.T @ targets, share @ targets**2, weighted[:, part].T @ rows[:, part.start :]

        fold.cross, fold.target_sq, fold.gram[part, part.start :] = samples.total(products)
    fold.weight, fold.x_mean, fold.y_mean = 1.0, origin + step, y_mean
    return fold


def tiled_squares(samples: Samples, *, ridge: float, joint: bool, fit_intercept: bool) -> Squares:
    """Sum the samples up, and state their problems of squares."""
    p, K = samples.n_features, samples.n_targets
    fold = _folded(samples) if isinstance(samples.execution, Local) else _gathered(samples)
    x_mean, y_mean, cross, target = fold.x_mean, fold.y_mean, fold.cross, fold.target_sq
    if not fit_intercept:
        fold._grow(np.sqrt(fold.weight) * x_mean[None, :])
        cross = cross + fold.weight * x_mean[:, None] * y_mean
        target = target + fold.weight * y_mean**2
        x_mean, y_mean = 0.0 * x_mean, 0.0 * y_mean
    for part in _parts(p):
        fold.gram[part, part.start :] *= 2.0 / fold.weight
    operator = Tiles(fold.gram, np.array(np.diagonal(fold.gram)))
    ridges = np.full(1 if joint else K, ridge)
    return Squares(
        operator, cross.T / fold.weight, target / fold.weight, ridges, x_mean, y_mean, 0.5 * operator.diagonal
    )


@dataclass(frozen=True, eq=False)
class Tiles:
    """A symmetric matrix in the upper half of a file, its diagonal (p,), and below it the factor for the last shift."""

    shares_shift: ClassVar[bool] = True
    n_groups: ClassVar[int] = 1
    has_factor: ClassVar[bool] = True
    matrix: Array
    diagonal: Array
    _last: dict[float, list[tuple[slice, Array]]] = field(default_factory=dict, init=False, repr=False)

    def _panels(self) -> Iterator[tuple[slice, Array]]:
        """Show the matrix by its rows, each from the diagonal on."""
        for part in _parts(self.matrix.shape[0]):
            rows = np.array(self.matrix[part, part.start :])
            size = part.stop - part.start
            square = np.triu(rows[:, :size])
            rows[:, :size] = square + square.T - np.diag(self.diagonal[part])
            yield part, rows

    def apply(self, rows: Array) -> Array:
        """Multiply every row, passing over the file once."""
        found = np.zeros_like(rows)
        for part, panel in self._panels():
            found[:, part.start :] += rows[:, part] @ panel
            found[:, part] += rows[:, part.stop :] @ panel[:, part.stop - part.start :].T
        return found

    def solver(self, shift: Array) -> Rows:
        """Return the solve for shifts (R,) that are equal; the factor is kept for the last one."""
        level = float(shift[0])
        if level not in self._last:
            self._last.clear()
            try:
                self._last[level] = self._factored(level)
            except np.linalg.LinAlgError:  # positive definite but for rounding: by what that is worth
                lift = 10 * len(self.diagonal) * float(np.finfo(float).eps) * float(np.max(self.diagonal))
                self._last[level] = self._factored(level + lift)
        return partial(self._substituted, self._last[level])

    def _factored(self, shift: float) -> list[tuple[slice, Array]]:
        """Factor the matrix below its diagonal, a panel of columns at a time; return the inverses of the diagonal blocks."""
        found: list[tuple[slice, Array]] = []
        for part, rows in self._panels():
            L, size, panel = self.matrix[:, : part.start], part.stop - part.start, rows.T
            panel[:size] += shift * np.eye(size)
            panel -= L[part.start :] @ L[part].T
            corner = np.linalg.inv(np.linalg.cholesky(panel[:size]))
            self.matrix[part.stop :, part] = panel[size:] @ corner.T
            found.append((part, corner))
        return found

    def _substituted(self, corners: list[tuple[slice, Array]], rows: Array) -> Array:
        L, W = self.matrix, np.empty_like(rows)
        for part, inverse in corners:
            W[:, part] = (rows[:, part] - W[:, : part.start] @ L[part, : part.start].T) @ inverse.T
        for part, inverse in reversed(corners):
            W[:, part] = (W[:, part] - W[:, part.stop :] @ L[part.stop :, part]) @ inverse
        return W

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""
        return largest_eigenvalue(lambda V: self.apply(V.T).T, self.matrix)

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues, which is that of the diagonal."""
        return float(self.diagonal.mean())

    def smallest(self) -> float:
        """Return zero: nothing is known about it."""
        return 0.0
