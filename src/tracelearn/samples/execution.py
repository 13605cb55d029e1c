"""Where blocks of samples are worked on: here, one after the other, or on a Dask cluster.

Invariant: an answer is a sum over blocks, so that it is the same wherever and in whatever order they are worked on. This is
the only module that knows Dask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tracelearn.arrays.array_api import Array
from tracelearn.problems.operators import System
from tracelearn.problems.smooth import Term, Weigh, added, summed_covariances
from tracelearn.samples import Source, as_source
from tracelearn.samples.checks import sample_shape

__all__ = ["BlockSamples", "Blocks", "Dask", "Engine", "Local", "as_blocks", "is_dask", "lazily"]

Column = Iterable[Any]  # one value for each block: the value, or Dask's promise of it

_FAN_IN = 8  # sums that one task of a tree adds up


class Engine(Protocol):
    """Works on columns: one value for each block."""

    def map(self, function: Callable[..., Any], *columns: Column) -> Column:
        """Apply a function block by block and keep the results where they were made."""

    def view(self, function: Callable[..., Any], *columns: Column) -> Column:
        """Apply a function block by block whenever the column is read; nothing is kept."""

    def total(self, function: Callable[..., Any], *columns: Column) -> Any:
        """Apply a function block by block and add up the results: arrays, moments, or tuples of those."""

    def first(self, column: Column) -> Any:
        """Read the first block alone."""

    def gather(self, column: Column) -> list[Any]:
        """Bring the values of all blocks here."""


@dataclass(frozen=True)
class Local:
    """Works here, block after block; what a column does not hold in memory it reads again in every pass."""

    def map(self, function: Callable[..., Any], *columns: Column) -> Column:
        """Apply a function block by block."""
        return [function(*block) for block in zip(*columns, strict=True)]

    def view(self, function: Callable[..., Any], *columns: Column) -> Column:
        """Apply a function whenever a block is read."""
        return Again(lambda: (function(*block) for block in zip(*columns, strict=True)))

    def first(self, column: Column) -> Any:
        """Read the first block alone."""
        return next(iter(column))

    def gather(self, column: Column) -> list[Any]:
        """Read all blocks."""
        return list(column)

    def total(self, function: Callable[..., Any], *columns: Column) -> Any:
        """Add up as the blocks come."""
        found = None
        for block in zip(*columns, strict=True):
            part = function(*block)
            found = part if found is None else added(found, part)
        return found


@dataclass(frozen=True)
class Dask:
    """Works on the cluster of the current ``distributed.Client``, or in Dask's local threads where there is none."""

    def map(self, function: Callable[..., Any], *columns: Column) -> Column:
        """Apply a function block by block; the results stay on the workers."""
        import dask  # noqa: PLC0415

        return list(dask.persist(*self.view(function, *columns)))

    def view(self, function: Callable[..., Any], *columns: Column) -> list[Any]:
        """Promise the results; Dask works on them when they are asked for."""
        from dask import delayed  # noqa: PLC0415

        # A node of its own: with its weights inside it travels once to a worker, not once for each block.
        shared = delayed(_Function(function), pure=False, traverse=False)
        return [delayed(_call, pure=False)(shared, *block) for block in zip(*columns, strict=True)]

    def first(self, column: Column) -> Any:
        """Compute the first block alone."""
        return next(iter(column)).compute()

    def gather(self, column: Column) -> list[Any]:
        """Compute all blocks."""
        import dask  # noqa: PLC0415

        return list(dask.compute(*column))

    def total(self, function: Callable[..., Any], *columns: Column) -> Any:
        """Add up in a tree, so that no worker ever holds more than a few of the parts."""
        from dask import delayed  # noqa: PLC0415

        parts = self.view(function, *columns)
        while len(parts) > 1:
            parts = [delayed(_sum, pure=False)(parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
        return parts[0].compute()


@dataclass(frozen=True)
class _Function:
    """A function as a value: Dask would call a bare one."""

    call: Callable[..., Any]


def _call(function: _Function, *block: Any) -> Any:
    return function.call(*block)


def _sum(parts: Sequence[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = added(total, part)
    return total


@dataclass(frozen=True, eq=False)
class Again:
    """A column that is read anew in every pass."""

    make: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.make()


@dataclass(frozen=True, eq=False)
class Blocks:
    """Samples in blocks, and the engine that works on them.

    ``batches`` holds for each block ``(first, X, y, weight)``, with ``first`` the number of samples before it; ``targets``
    holds ``(y, weight)`` alone, which may be much cheaper to read.
    """

    engine: Engine
    batches: Column
    targets: Column
    sample_shape: tuple[int, ...] | None
    n_samples: int | None
    dtype: Any
    repeatable: bool = True

    @property
    def is_local(self) -> bool:
        """Whether the samples can be read here."""
        return isinstance(self.engine, Local)

    @property
    def n_bytes(self) -> float:
        """The memory that all samples would take in double precision."""
        if self.n_samples is None or self.sample_shape is None:
            return math.inf
        return 8.0 * self.n_samples * math.prod(self.sample_shape)

    def gathered(self) -> tuple[Array, Array, Array | None]:
        """Read all samples, targets and weights into memory."""
        _, X, y, weight = zip(*self.batches, strict=True)
        return np.concatenate(X), np.concatenate(y), None if weight[0] is None else np.concatenate(weight)


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array, without importing Dask."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed") and hasattr(X, "chunks")


def as_blocks(X: Any, y: Any = None, sample_weight: Any = None) -> Blocks | None:
    """See samples as blocks; None where X is to be read whole, as arrays in memory are."""
    if isinstance(X, Blocks):
        return X
    if is_dask(X):
        return _dask_blocks(X, y, sample_weight)
    source = as_source(X, y, sample_weight)
    return None if source is None else _local_blocks(source)


def _local_blocks(source: Source) -> Blocks:
    def batches() -> Iterator[tuple[int, Any, Any, Any]]:
        first = 0
        for X, y, weight in source.batches():
            yield first, X, y, weight
            first += len(X)

    return Blocks(
        Local(),
        Again(batches),
        Again(source.targets),
        source.sample_shape,
        source.n_samples,
        source.dtype,
        source.repeatable,
    )


def _dask_blocks(X: Any, y: Any, sample_weight: Any) -> Blocks:
    import dask.array as da  # noqa: PLC0415
    from dask import delayed  # noqa: PLC0415

    if y is None:
        raise ValueError("Expected one target for each sample: fit requires y to be passed, but the target y is None.")
    sample_shape(np.zeros((1,) * X.ndim), None)
    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))

    def column(values: Any, name: str) -> list[Any]:
        if values is None:
            return [None] * X.numblocks[0]
        values = values if is_dask(values) else da.from_array(np.asarray(values))
        known = not (math.isnan(X.shape[0]) or math.isnan(values.shape[0]))
        if known and values.shape[0] != X.shape[0]:
            raise ValueError(
                f"Expected {name} to have one row for each of {X.shape[0]} samples, got {values.shape[0]}: samples and "
                "targets have inconsistent numbers of samples."
            )
        if known:
            values = values.rechunk((X.chunks[0], *((-1,) * (values.ndim - 1))))
        elif values.numblocks[0] != X.numblocks[0]:
            raise ValueError(
                f"Expected {name} in as many chunks as X, {X.numblocks[0]}, got {values.numblocks[0]}: call "
                "compute_chunk_sizes() on both."
            )
        return list(values.to_delayed().ravel())

    sizes = X.chunks[0]
    firsts = [sum(sizes[:i]) for i in range(len(sizes))]
    targets = list(zip(column(y, "y"), column(sample_weight, "sample_weight"), strict=True))
    parts = zip(firsts, X.to_delayed().ravel(), targets, strict=True)
    batches = [delayed(tuple)([first, x, *target]) for first, x, target in parts]
    n = None if math.isnan(X.shape[0]) else int(X.shape[0])
    return Blocks(Dask(), batches, [delayed(tuple)(list(t)) for t in targets], tuple(X.shape[1:]), n, X.dtype)


def lazily(function: Callable[[Array], Array], X: Any, like: Array) -> Any:
    """Apply a function of rows to a Dask array when it is computed; ``like`` is what it returns for no sample."""
    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    columns = tuple((int(size),) for size in like.shape[1:])
    return X.map_blocks(
        function,
        dtype=like.dtype,
        drop_axis=list(range(1, X.ndim)),
        new_axis=list(range(1, like.ndim)),
        chunks=(X.chunks[0], *columns),
        meta=like,
    )


@dataclass(frozen=True, eq=False)
class Block:
    """Checked samples of one block: rows (m, p), coded targets (m, K), shares (m,)."""

    X: Array
    Y: Array
    share: Array


@dataclass(frozen=True, eq=False)
class BlockSamples:
    """Samples that are not at hand: every sum is a pass over their blocks."""

    engine: Engine
    blocks: Column
    n_targets: int
    targets: Array | None = None
    rows: None = None

    def scores(self, W: Array) -> Column:
        """Multiply every row with W; the products stay where the rows are."""
        return self.engine.map(lambda block: block.X @ W.T, self.blocks)

    def total(self, term: Term, scores: Column | None = None) -> Any:
        """Sum over the blocks."""
        columns = self.targets

        def part(block: Block, z: Array | None = None) -> Any:
            Y = block.Y if columns is None else block.Y[:, columns]
            return term(block.X, Y, block.share, Y if z is None else z)

        given = (self.blocks,) if scores is None else (self.blocks, scores)
        return self.engine.total(part, *given)

    def take(self, targets: Array) -> BlockSamples:
        """Keep some of the targets."""
        kept = targets if self.targets is None else self.targets[targets]
        return replace(self, targets=kept, n_targets=len(kept))

    def covariances(self, weigh: Weigh, scores: Column | None = None, *, centre: bool) -> tuple[System, ...]:
        """Find the covariances as p by p matrices, in one pass."""
        return summed_covariances(self, weigh, scores, centre=centre)
