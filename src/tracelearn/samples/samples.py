"""Checked samples: rows, coded targets and weights in blocks, and sums over them.

A ``Source`` becomes ``Samples`` in ``reading.read``. In memory there is one block; from a file, an iterable or a cluster there
are many. Everything above asks for sums over blocks and never where they are. Invariant: an answer is a sum over blocks, so
that it is the same wherever and in whatever order they are worked on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    as_dtype,
    block_bytes,
    is_sparse,
    move_to,
)
from tracelearn.arrays.linalg import mode_scales
from tracelearn.confounds import Regression
from tracelearn.errors import InputError
from tracelearn.moments import Accumulator, Moments
from tracelearn.samples.checks import check_finite, check_range
from tracelearn.samples.execution import HERE, Local, PerBlock

__all__ = ["Block", "Samples", "errors_name_block"]

# What is summed: a function of a block's rows (m, p), targets (m, K), shares (m,) and scores (m, K).
# It returns an array, moments, or a tuple of those.
Term = Callable[[Array, Array, Array, Array], Any]

_BLOCK_BYTES = 2 << 20  # blocks of samples in memory stay in cache
_BLOCK_ROWS = 16  # at least: sums over blocks are as long as a sample


@dataclass(frozen=True, eq=False)
class Block:
    """Checked samples: rows (m, p), coded targets (m, K), weights (m,), how many samples came before, confounds (m, q)."""

    X: Array
    Y: Array
    weight: Array | None = None
    first: int = 0
    confounds: Array | None = None

    def take(self, index: Array) -> Block:
        """Keep some of the samples."""
        xp = array_namespace(self.Y)
        index = move_to(index, self.Y)
        X = self.X[index] if is_sparse(self.X) else xp.take(self.X, index, axis=0)
        weight = None if self.weight is None else xp.take(self.weight, index, axis=0)
        confounds = None if self.confounds is None else xp.take(self.confounds, index, axis=0)
        return Block(X, xp.take(self.Y, index, axis=0), weight, self.first, confounds)

    def checked(self, shape: tuple[int, ...]) -> Block:
        """Refuse NaN, infinity and numbers whose products overflow or vanish; cast the rows to the precision of the targets."""
        with errors_name_block(self.first):
            check_finite(self.X, "X", shape)
            check_range(self.X, "X")
            check_range(self.Y, "y")
        weight = array_namespace(self.Y).ones_like(self.Y[:, 0]) if self.weight is None else self.weight
        return replace(self, X=as_dtype(self.X, self.Y.dtype), weight=weight)

    def add_to(self, moments: Accumulator | None, shape: tuple[int, ...]) -> Accumulator:
        """Add the samples, with confounds as further features, to an accumulator, or to a new one."""
        xp = array_namespace(self.Y)
        X = self.X
        X = X if self.confounds is None else xp.concat([as_dtype(X, self.Y.dtype), self.confounds], axis=1)
        moments = Accumulator.empty(X.shape[1], self.Y.shape[1], X) if moments is None else moments
        if X.shape[0] == 0:
            return moments
        with np.errstate(over="ignore", invalid="ignore"):  # checked below, on p numbers instead of n p
            moments.add(X, self.Y, self.weight)
            x_size = float(xp.sum(xp.linalg.diagonal(moments.gram)))
            y_size = float(xp.sum(moments.target_sq))
        # NaN and infinity are found here as well: the products that contain them are neither small nor large.
        if not (1e-30 < x_size < 1e30 and 1e-30 < y_size < 1e30):
            self.checked(shape)
        return moments


@contextmanager
def errors_name_block(first: int) -> Iterator[None]:
    """Say in errors about a block where it begins, except for the first block, which is often the only one."""
    try:
        yield
    except ValueError as error:
        if not first:
            raise
        raise InputError(f"{error} (in the block that begins at sample {first})") from error


@dataclass(frozen=True, eq=False)
class Samples:
    """Checked samples in blocks, and where they are worked on.

    ``shape`` is that of one sample, ``weight`` the sum of all weights; ``n_samples`` is None where only reading would tell.
    """

    blocks: PerBlock
    shape: tuple[int, ...]
    n_targets: int
    weight: float
    n_samples: int | None = None
    execution: Any = HERE
    in_memory: bool = False
    columns: Array | None = None  # the columns of Y that are used; None for all
    n_confounds: int = 0
    is_checked: bool = False  # whether every number is checked for NaN and infinity when a block is read

    @property
    def n_features(self) -> int:
        """The number p of entries of a sample."""
        return math.prod(self.shape)

    @property
    def like(self) -> Array | None:
        """The rows of the first block, for their library and device; None unless samples are in memory."""
        return next(iter(self.blocks)).X if self.in_memory else None

    @property
    def rows(self) -> Array | None:
        """All rows, if they are one dense array in memory; else None."""
        first = self.like
        is_whole = first is not None and not is_sparse(first) and first.shape[0] == self.n_samples
        return first if is_whole else None

    @classmethod
    def of(cls, block: Block, shape: tuple[int, ...]) -> Samples:
        """Make samples of one block in memory."""
        n = block.X.shape[0]
        K = int(block.Y.shape[1])
        q = 0 if block.confounds is None else block.confounds.shape[1]
        weight = float(n if block.weight is None else array_namespace(block.weight).sum(block.weight))
        return cls([block], shape, K, weight, n, in_memory=True, n_confounds=q)

    def mapped_blocks(self, function: Callable[[Block], Block]) -> Samples:
        """Change every block: at once in memory, else whenever it is read."""
        change = self.execution.map if self.in_memory else self.execution.view
        return replace(self, blocks=change(function, self.blocks), is_checked=False)

    def checked(self) -> Samples:
        """Check every number for NaN and infinity, and cast the rows to the precision that solvers work in."""
        if self.is_checked:
            return self
        return replace(self.mapped_blocks(partial(Block.checked, shape=self.shape)), is_checked=True)

    def kept(self) -> Samples:
        """Compute all blocks and hold them in memory, here or on the workers, instead of reading them in every pass."""
        return replace(self, blocks=self.execution.map(lambda block: block, self.blocks))

    def rescaled(self, scales: Array | None) -> Samples:
        """Divide every entry by its scale (p,)."""
        return self if scales is None else self.mapped_blocks(lambda block: replace(block, X=block.X / scales))

    def take(self, chosen: Array) -> Samples:
        """Keep the samples for which a NumPy array (n,) is true."""

        def taken(block: Block) -> Block:
            return block.take(np.flatnonzero(chosen[block.first : block.first + block.X.shape[0]]))

        shape = self.shape
        samples = self.mapped_blocks(taken)
        weight = self.execution.total(lambda block: Samples.of(block, shape).weight, samples.blocks)
        return replace(samples, n_samples=int(np.sum(chosen)), weight=float(weight))

    def take_targets(self, columns: Array) -> Samples:
        """Keep some of the targets."""
        columns = columns if self.columns is None else self.columns[columns]
        return replace(self, columns=columns, n_targets=int(columns.shape[0]))

    def in_small_blocks(self) -> Samples:
        """Cut samples in memory into blocks that stay in cache."""
        if self.rows is None:
            return self
        (block,) = self.blocks
        rows = max(_BLOCK_ROWS, block_bytes(block.X, _BLOCK_BYTES) // (8 * self.n_features))
        n = block.X.shape[0]  # slices must not end beyond an array, by the array API standard
        small_blocks = []
        for start in range(0, n, rows):
            cut = slice(start, min(start + rows, n))
            weight = None if block.weight is None else block.weight[cut]
            confounds = None if block.confounds is None else block.confounds[cut, :]
            small_blocks.append(Block(block.X[cut, :], block.Y[cut, :], weight, start, confounds))
        return replace(self, blocks=small_blocks)

    def in_passes(self) -> Samples:
        """Cut samples in memory into small blocks; cast each to double precision whenever it is read, if they are narrower."""
        cut = self.in_small_blocks()
        if cut is self:
            return self
        (block,) = self.blocks
        return cut if block.X.dtype == block.Y.dtype else replace(cut, in_memory=False)

    def total(self, term: Term, scores: PerBlock | None = None) -> Any:
        """Sum ``term(rows, targets, shares, scores)`` over all blocks, in one pass; shares are weights that sum to one.

        Without scores the targets are passed in their place, so that every term has four arguments.
        """
        columns = self.columns
        total_weight = self.weight

        def term_of_block(block: Block, z: Array | None = None) -> Any:
            xp = array_namespace(block.Y)
            Y = block.Y if columns is None else xp.take(block.Y, columns, axis=1)
            share = (xp.ones_like(Y[:, 0]) if block.weight is None else block.weight) / total_weight
            return term(block.X, Y, share, Y if z is None else z)

        if scores is None:
            return self.execution.total(term_of_block, self.blocks)
        return self.execution.total(term_of_block, self.blocks, scores)

    def scores(self, W: Array) -> PerBlock:
        """Multiply every row with W (K, p); the products stay where the rows are."""
        scores: PerBlock = self.execution.map(lambda block: block.X @ W.T, self.blocks)
        return scores

    def regression(self, *, centre: bool) -> Regression:
        """Learn how the confounds explain the samples, about the means of both or about zero."""
        p = self.n_features
        q = self.n_confounds

        def add(block: Block, moments: Accumulator | None) -> Accumulator:
            return (moments or Accumulator.empty(q, p, block.confounds)).add(block.confounds, block.X, block.weight)

        moments: Moments = self.execution.folded(add, Accumulator.freeze, self.blocks)
        return Regression.of(moments if centre else moments.uncentred())

    def residual(self, regression: Regression | None) -> Samples:
        """Subtract from the samples what a regression, learned on these or other samples, predicts from their confounds."""
        if regression is None:
            return self
        samples = self.mapped_blocks(lambda b: replace(b, X=regression.residual(b.X, b.confounds), confounds=None))
        return replace(samples, n_confounds=0)

    def moments(self, past: Moments | None = None) -> Moments:
        """Sum up the moments of the samples, with confounds as further features, and of the ``past``."""
        add = partial(Block.add_to, shape=self.shape)
        # On a cluster every block has an accumulator of its own.
        if past is not None and isinstance(self.execution, Local):
            return self.execution.folded(add, Accumulator.freeze, self.blocks, Accumulator.thaw(past))  # type: ignore[no-any-return]
        moments: Moments = self.execution.folded(add, Accumulator.freeze, self.blocks)
        return moments if past is None else past + moments

    def mode_scales(self) -> Array:
        """Find scales (p,) for the entries from their variances; each is a product of one scale for each mode."""
        mean = self.total(lambda X, Y, share, z: share @ X)
        return mode_scales(self.total(lambda X, Y, share, z: share @ (X - mean) ** 2), self.shape)

    def covariance_times(self, W: Array) -> Array:
        """Multiply rows W (K, p) with the covariance of the samples; about their mean, which may be far from zero."""
        mean = self.total(lambda X, Y, share, z: share @ X)
        mean_score = (W @ mean)[:, None]

        def products(X: Array, Y: Array, share: Array, z: Array) -> tuple[Array, Array]:
            scores = (W @ X.T - mean_score) * share
            return scores @ X, array_namespace(scores).sum(scores, axis=1)

        total, sum_of_scores = self.total(products)
        return total - sum_of_scores[:, None] * mean

    def with_rows(self, rows: Array, shape: tuple[int, ...]) -> Samples:
        """Replace the rows of samples in memory by others (n, q), such as coordinates."""
        (block,) = self.blocks
        return replace(self, blocks=[replace(block, X=rows)], shape=shape, is_checked=False)

    def mapped_rows(self, function: Callable[[Array], Array], shape: tuple[int, ...]) -> Samples:
        """Apply a function, such as a feature map, to the rows of every block."""
        return replace(self.mapped_blocks(lambda block: replace(block, X=function(block.X))), shape=shape)
