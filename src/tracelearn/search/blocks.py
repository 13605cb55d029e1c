"""Held-out scores of samples that are read in blocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.samples.samples import Block
from tracelearn.search.folds import Held, found_classes
from tracelearn.search.search import LARGEST_BATCH, MOST_HELD, Table

__all__ = ["with_held_out_classes"]


def with_held_out_classes(tables: Sequence[Table]) -> list[Table]:
    """Score what each fold holds out by the models of all tables, in one pass over samples that are not in memory.

    The share of classes that are found is that of all samples. Scores themselves are kept of a few thousand, which is enough
    for what is learned from them.
    """
    design, K = tables[0].design, tables[0].design.samples.n_targets
    folds, samples, masks = design.folds, design.reduced.checked(), design.folds.masks[1]
    every = -(-int(np.sum(masks)) // MOST_HELD)
    kept = np.zeros_like(masks)
    for f, mask in enumerate(masks):
        kept[f, np.flatnonzero(mask)[::every]] = True
    models = [[row[f] for table in tables for row in table.parts] for f in range(folds.count)]
    rows = [np.concatenate([to_numpy(W) for W, _ in own]) for own in models]
    offsets = [np.concatenate([to_numpy(b) for _, b in own]) for own in models]
    regressions, most = design.regressions, max(1, LARGEST_BATCH // len(offsets[0]))

    def part(block: Block) -> list[tuple[int, Array, Array, Array, Array]]:
        found = []
        for f, own in enumerate(regressions):
            held = np.flatnonzero(masks[f, block.first : block.first + block.X.shape[0]])
            for first in range(0, len(held), most):  # many models have more scores than a sample has entries
                index = held[first : first + most]
                some: Any = block.take(index)
                X = some.X if own is None else own.residual(some.X, some.confounds)
                z = (X @ rows[f].T + offsets[f]).reshape(len(index), -1, K)
                right = some.weight @ (found_classes(z) == found_classes(some.Y)[:, None])
                few = kept[f, block.first + index]
                found.append((f, right, z[few], some.Y[few], some.weight[few]))
        return found

    parts = [*itertools.chain.from_iterable(samples.execution.gather(samples.execution.view(part, samples.blocks)))]
    shares, scores, few = np.empty((len(models[0]), folds.count)), [], []
    for f in range(folds.count):
        _, right, z, Y, weights = zip(*(own for own in parts if own[0] == f), strict=True)
        weight, index, total = np.concatenate(weights), np.flatnonzero(kept[f]), float(design.held[f].weight)
        shares[:, f] = np.sum(right, axis=0) / total
        scores.append(np.concatenate(z))
        share = (weight / weight.sum())[None, :]
        few.append(Held(np.empty((1, len(index), 0)), np.concatenate(Y)[None, ...], share, [index], total))
    found, first = list[Table](), 0
    for one in tables:
        own = np.full(one.parts.shape, None)
        for a, f in np.ndindex(own.shape):
            own[a, f] = scores[f][None, :, first + a, :]
        judged = shares[first : first + len(own)], own, one.statistics
        found.append(Table(one.candidate, one.design, one.alphas, one.ridges, *judged, one.selecting, few, one.first))
        first += len(own)
    return found
