"""Samples for a search, which is always in memory: all of them where they fit, else a part that is drawn from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, available_memory, to_numpy
from tracelearn.errors import warn
from tracelearn.samples.reading import Reader, Spec, read
from tracelearn.samples.samples import Raw, Samples, as_raw
from tracelearn.search.folds import draw_samples
from tracelearn.search.views import SamplesInMemory

__all__ = ["SearchData", "read_for_search"]

# Bytes that a search takes for each number of the samples: the samples, some views of them, and coordinates.
_BYTES = 40


@dataclass(frozen=True, eq=False)
class SearchData:
    """What ``fit`` was given, checked: all samples, wherever they are, and those of some weight that are in memory to choose by.

    ``index`` numbers the latter among all; ``is_all`` says that no other sample has any weight.
    """

    spec: Spec
    samples: Samples
    searched: SamplesInMemory
    codes: Array  # (m, K), the coded targets of those that choose
    confounds: Array | None  # (m, q)
    index: Array  # (m,)
    labels: Array  # (n,), the targets of all samples as they came
    weight: Array  # (n,), what they weigh
    is_all: bool


def read_for_search(raw: Raw, reader: Reader, random_state: Any = 0) -> SearchData:
    """Read samples into memory, or as many as fit, drawn by class and weight."""
    if not raw.repeatable:
        raise ValueError(
            "Expected samples that can be read more than once to choose by cross-validation, got an iterator: pass arrays, "
            "files or a list of batches."
        )
    labels, weight = raw.all_targets()
    labels = np.asarray(to_numpy(labels))
    if not raw.in_memory:
        n = len(labels)
        bytes_of_sample = _BYTES * math.prod(raw.sample_shape or np.shape(raw.first_samples())[1:])
        most = int(available_memory() / bytes_of_sample)
        if n > most:
            return _drawn(raw, reader, most, labels, weight, random_state)
        raw = _in_memory(raw)
    spec, samples = read(raw, reader)
    samples = samples.checked()
    (block,) = samples.blocks
    index = np.flatnonzero(to_numpy(block.weight) > 0)
    if len(index) < len(labels):
        block = replace(block.take(index), first=0)
        samples = Samples.of(block, spec.sample_shape)
    searched = SamplesInMemory(block.X, spec.sample_shape, block.weight, labels[index])
    after = np.zeros(len(labels))
    after[index] = to_numpy(block.weight)
    return SearchData(spec, samples, searched, block.Y, block.confounds, index, labels, after, is_all=True)


def _in_memory(raw: Raw) -> Raw:
    """Read all blocks, wherever they are."""
    _, X, y, weight = zip(*raw.execution.gather(raw.batches), strict=True)
    whole = as_raw(
        np.concatenate(X), np.concatenate(y), None if weight[0] is None else np.concatenate(weight), raw.confounds
    )
    return replace(whole, modes=raw.modes)


def _drawn(raw: Raw, reader: Reader, count: int, labels: Array, weight: Array | None, random_state: Any) -> SearchData:
    """Read samples that were drawn; of all others only blocks are read, after the search."""
    spec, samples = read(raw, reader)
    n = len(labels)
    weight = np.ones(n) if weight is None else np.asarray(weight, dtype=float)
    index, after = draw_samples(count, weight, None if spec.classes is None else labels, random_state)
    warn(
        f"Expected samples that fit in memory, got {n}: {len(index)} of them, drawn at random, choose, and what they choose is "
        "fitted to all, so the model may differ from that of samples in memory.",
    )
    chosen = np.zeros(n, dtype=bool)
    chosen[index] = True
    blocks = list(samples.execution.gather(samples.take(chosen).checked().blocks))
    rows = np.concatenate([block.X for block in blocks])
    codes = np.concatenate([block.Y for block in blocks])
    confounds = None if blocks[0].confounds is None else np.concatenate([block.confounds for block in blocks])
    scale = np.concatenate([to_numpy(block.weight) for block in blocks]) / weight[index]  # of classes
    searched = SamplesInMemory(rows, spec.sample_shape, after * scale, labels[index])
    return SearchData(spec, samples, searched, codes, confounds, index, labels, weight, is_all=False)
