"""Sources that are iterables of blocks: generators, data loaders, lists of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracelearn.errors import InputError
from tracelearn.samples.source import Block, Source

__all__ = ["Stream", "stream"]


@dataclass(frozen=True, eq=False)
class Stream(Source):
    """Blocks of whatever size an iterable gives them."""

    blocks: Iterable[Any]
    passes: list[str] = field(default_factory=list)  # what has been read of an iterator: the only state there is

    def batches(self, start: int = 0) -> Iterator[Block]:
        """Read blocks from sample ``start`` on, each when it is asked for, in the thread that asks.

        An iterator may wait for data, which Ctrl-C must be able to end; it may belong to the thread that made it, as the
        cursor of a database does; and a block is worked on before the next one is waited for.
        """
        if start < 0:
            raise InputError(f"Expected start to be a number of samples of at least 0, got {start}.")
        return self._blocks(start)

    def targets(self) -> Iterator[tuple[Any, Any | None]]:
        """Read (y, weight) of the blocks; the samples come along and are dropped."""
        return ((y, weight) for _, y, weight in self._blocks(0))

    def _blocks(self, start: int) -> Iterator[Block]:
        # Not a generator itself: a second pass is refused when it is asked for.
        if not self.repeatable and self.passes:
            raise InputError(
                "Expected one pass over an iterator of blocks, got a second one: pass a list of blocks, or an object whose "
                "__iter__ starts again."
            )
        self.passes.append("batches")
        return _read(self.blocks, start)


def stream(blocks: Iterable[Any]) -> Stream:
    """Make a source of an iterable of (X, y) or (X, y, weight)."""
    return Stream(None, None, None, not hasattr(blocks, "__next__"), blocks)


def _read(blocks: Iterable[Any], start: int) -> Iterator[Block]:
    shape: tuple[int, ...] | None = None
    for count, block in enumerate(blocks):
        X, y, weight = _parts(block, count)
        shape = X.shape[1:] if shape is None else shape
        if X.shape[1:] != shape:
            raise InputError(
                f"Expected samples of shape {shape} in all blocks, got shape {X.shape[1:]} in block {count}: reshape them."
            )
        skip = min(start, len(X))
        start -= skip
        if skip < len(X):
            yield X[skip:], None if y is None else y[skip:], None if weight is None else weight[skip:]
    if shape is None:
        raise InputError("Expected an iterable of blocks (X, y), got no block: check that it has not been read before.")


def _parts(block: Any, count: int) -> tuple[Any, Any, Any]:
    if not isinstance(block, tuple | list) or len(block) not in (2, 3):
        raise InputError(
            f"Expected blocks (X, y) or (X, y, weight), got {type(block).__name__} as block {count}: yield tuples of arrays."
        )
    X = block[0].toarray() if hasattr(block[0], "toarray") else np.asarray(block[0])
    if X.ndim < 2:
        raise InputError(
            f"Expected X of shape (m, I1, ..., IN) in block {count}, got shape {X.shape}: yield several samples at a time."
        )
    others = [None if part is None else np.asarray(part) for part in block[1:]]
    for part, what in zip(others, ("targets", "weights"), strict=False):
        if part is not None and part.shape[:1] != X.shape[:1]:
            raise InputError(
                f"Expected one row of {what} for each sample, got {len(X)} samples and {what} of shape {part.shape} in block "
                f"{count}."
            )
    return X, others[0], others[1] if len(others) == 2 else None
