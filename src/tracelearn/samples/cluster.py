"""Blocks on a Dask cluster. This is the only module that knows Dask."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from itertools import accumulate
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, available_memory
from tracelearn.errors import InputError
from tracelearn.samples.execution import Function, PerBlock, added
from tracelearn.samples.rows import sample_shape
from tracelearn.samples.source import Source, is_dask

__all__ = ["Dask", "dask_source", "lazily"]

_FAN_IN = 8  # sums that one task of a tree adds up


@dataclass(frozen=True)
class Dask:
    """Works on the cluster of the current ``distributed.Client``, or in Dask's local threads where there is none."""

    def map(self, function: Callable[..., Any], *values: PerBlock) -> PerBlock:
        """Apply a function block by block; the results stay on the workers."""
        import dask  # noqa: PLC0415

        return list(dask.persist(*self.view(function, *values)))

    def view(self, function: Callable[..., Any], *values: PerBlock) -> list[Any]:
        """Promise the results; Dask works on them when they are asked for."""
        from dask import delayed  # noqa: PLC0415

        # A node of its own: with its weights inside it travels once to a worker, not once for each block.
        shared = delayed(_Function(function), pure=False, traverse=False)
        return [delayed(_call, pure=False)(shared, *block) for block in zip(*values, strict=True)]

    def first(self, values: PerBlock) -> Any:
        """Compute the first block alone."""
        return next(iter(values)).compute()

    def gather(self, values: PerBlock) -> list[Any]:
        """Compute all blocks."""
        import dask  # noqa: PLC0415

        return list(dask.compute(*values))

    def total(self, function: Callable[..., Any], *values: PerBlock) -> Any:
        """Apply a function block by block and add up in a tree, so that no worker ever holds more than ``_FAN_IN`` sums."""
        from dask import delayed  # noqa: PLC0415

        parts = self.view(function, *values)
        while len(parts) > 1:
            groups = [parts[i : i + _FAN_IN] for i in range(0, len(parts), _FAN_IN)]
            parts = [delayed(partial(reduce, added), pure=False)(group) for group in groups]
        return parts[0].compute()

    def folded(self, add: Callable[[Any, Any], Any], end: Function, values: PerBlock) -> Any:
        """Make a state of every block, since workers share none, and add up what ``end`` makes of each."""
        return self.total(lambda block: end(add(block, None)), values)

    def memory(self) -> int:
        """Find the bytes that a task may take: a third of what the smallest worker has for each of its threads."""
        local_memory = available_memory()
        try:
            from distributed import get_client  # noqa: PLC0415

            workers = get_client().scheduler_info()["workers"].values()
        except (ImportError, ValueError):  # Dask's threads are this process
            return local_memory // (3 * (os.cpu_count() or 1))
        # A worker without a limit has None or zero of it.
        limits = [(worker["memory_limit"] or local_memory) // (3 * worker["nthreads"]) for worker in workers]
        return int(min([local_memory, *limits]))


@dataclass(frozen=True)
class _Function:
    """Wraps a function that is an argument of tasks: Dask would call a bare one itself."""

    call: Callable[..., Any]


def _call(function: _Function, *block: Any) -> Any:
    return function.call(*block)


def dask_source(X: Any, y: Any, sample_weight: Any) -> Source:
    """Make a source of a Dask array, with one block for each chunk of its first axis that holds samples."""
    import dask.array as da  # noqa: PLC0415
    from dask import delayed  # noqa: PLC0415

    if y is None:
        raise InputError("Expected one target for each sample: fit requires y to be passed, but the target y is None.")
    sample_shape(np.zeros((1,) * X.ndim), None)
    if math.isnan(X.shape[0]):  # samples are numbered across blocks, so sizes must be known
        X = X.compute_chunk_sizes()
    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))

    def chunks_of(values: Any, name: str) -> list[Any]:
        """Cut the targets or weights where the samples are cut."""
        if values is None:
            return [None] * X.numblocks[0]
        if not is_dask(values):
            values = np.asarray(values)
            values = np.full(X.shape[0], values) if values.ndim == 0 else values  # one weight for all samples
            values = da.from_array(values)
        values = values.compute_chunk_sizes() if math.isnan(values.shape[0]) else values
        if values.shape[0] != X.shape[0]:
            raise InputError(
                f"Expected {name} to have one row for each of {X.shape[0]} samples, got {values.shape[0]}: samples and "
                "targets have inconsistent numbers of samples."
            )
        values = values.rechunk((X.chunks[0], *((-1,) * (values.ndim - 1))))
        return list(values.to_delayed().ravel())

    sizes = X.chunks[0]
    firsts = accumulate(sizes[:-1], initial=0)
    targets = chunks_of(y, "y")
    weights = chunks_of(sample_weight, "sample_weight")
    blocks = []  # (first sample, X, y, weight)
    targets_and_weights = []
    for size, first, *arrays in zip(sizes, firsts, X.to_delayed().ravel(), targets, weights, strict=True):
        if size > 0:
            blocks.append(delayed(tuple)([first, *arrays]))
            targets_and_weights.append(delayed(tuple)(arrays[1:]))
    return Source(
        tuple(X.shape[1:]),
        int(X.shape[0]),
        X.dtype,
        repeatable=True,
        read=lambda start: blocks,
        targets=lambda: targets_and_weights,
        execution=Dask(),
    )


def lazily(function: Callable[..., Array], X: Any, like: Array, confounds: Array | None = None) -> Any:
    """Apply a function of rows to a Dask array when it is computed; ``like`` is what it returns for no sample.

    With confounds (n, q) it is a function of rows and of their confounds.
    """
    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))

    def applied(block: Array, block_info: Any = None) -> Array:
        if confounds is None or not block.shape[0]:
            return function(block) if block.shape[0] else like
        start, stop = block_info[0]["array-location"][0]
        return function(block, confounds[start:stop])

    columns = tuple((int(size),) for size in like.shape[1:])
    return X.map_blocks(
        applied,
        dtype=like.dtype,
        drop_axis=list(range(1, X.ndim)),
        new_axis=list(range(1, like.ndim)),
        chunks=(X.chunks[0], *columns),
        meta=like,
    )
