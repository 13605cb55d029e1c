"""Folds of samples that come in blocks: held-out moments in one pass, or weights that are zero for what is held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array
from tracelearn.estimators.base import TraceNormModel
from tracelearn.estimators.blocks import BlockReader, choose_block_form, smooth_of
from tracelearn.moments import Moments
from tracelearn.problems.smooth import DataLoss, Squares
from tracelearn.samples.execution import Block, Blocks, BlockSamples
from tracelearn.selection.path import PathPoint
from tracelearn.solvers.choose import Form

__all__ = ["FoldedBlocks"]


@dataclass(frozen=True, eq=False)
class FoldedBlocks:
    """Blocks, how they are read, and for every sample the fold that holds it out."""

    blocks: Blocks
    reader: BlockReader
    form: Form
    fold_of: Array
    weights: Array  # the sum of the weights of each fold

    @classmethod
    def of(cls, model: TraceNormModel, blocks: Blocks, fold_of: Array, y: Array, weight: Array | None) -> FoldedBlocks:
        """Find out what must be known before the first block."""
        form = choose_block_form(model, blocks)
        reader = BlockReader.of(model, blocks, weigh=form.name != "moments")
        return cls(blocks, reader, form, fold_of, np.bincount(fold_of, weights=reader.weights_of(y, weight)))

    @property
    def n_folds(self) -> int:
        """The number of folds."""
        return len(self.weights)

    def weight(self, fold: int) -> float:
        """The weight of what a fold holds out."""
        return float(self.weights[fold])

    def moments(self) -> list[Moments]:
        """Summarise what each fold holds out, all in one pass."""
        reader, fold_of, n_folds = self.reader, self.fold_of, self.n_folds

        def parts(block: tuple[int, Any, Any, Any]) -> tuple[Moments, ...]:
            batch = reader.read(block)
            own = fold_of[block[0] : block[0] + len(batch.X)]
            return tuple(batch.take(np.flatnonzero(own == f)).moments() for f in range(n_folds))

        return list(self.blocks.engine.total(parts, self.blocks.batches))

    def samples(self, fold: int | None, *, held: bool = False) -> BlockSamples:
        """Weigh samples by whether a fold trains on them, or holds them out; without a fold, all of them."""
        reader, fold_of, n_folds = self.reader, self.fold_of, self.n_folds
        used = np.array([fold is None or (f == fold) == held for f in range(n_folds)])
        share = float(np.sum(self.weights[used]) / np.sum(self.weights))

        def weighed(block: tuple[int, Any, Any, Any]) -> Block:
            found = reader.block(block)
            mask = used[fold_of[block[0] : block[0] + len(found.X)]]
            return Block(found.X, found.Y, found.share * mask / share)

        view = self.blocks.engine.view(weighed, self.blocks.batches)
        return BlockSamples(self.blocks.engine, view, reader.n_targets)

    def smooth(self, model: TraceNormModel, fold: int | None, *, joint: bool) -> Squares | DataLoss:
        """Build the smooth half of what a fold trains on, or without a fold of all samples."""
        return smooth_of(model, self.samples(fold), self.form, joint=joint)

    def judge(self, model: TraceNormModel, fold: int) -> Callable[[PathPoint], float]:
        """Judge by the mean loss on what a fold holds out."""
        held, loss, n_targets = self.samples(fold, held=True), model._loss(self.reader.n_targets), self.reader.n_targets

        def mean_loss(point: PathPoint) -> float:
            W, intercept = point.W, point.intercept
            found = held.total(lambda X, Y, share, z: share @ loss.value(Y, X @ W.T + intercept))
            return float(np.sum(found) / n_targets)

        return mean_loss
