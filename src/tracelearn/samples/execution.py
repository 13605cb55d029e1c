"""Where blocks are worked on: ``Local`` in this process, one after the other; ``cluster.Dask`` has the same methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from tracelearn.arrays.array_api import available_memory

__all__ = ["HERE", "Again", "Function", "Local", "PerBlock", "added"]

PerBlock = Iterable[Any]  # one value for each block: the value, or Dask's promise of it

Function = Callable[[Any], Any]


def added(first: Any, second: Any) -> Any:
    """Add two sums: arrays, moments, or tuples of those."""
    if isinstance(first, tuple):
        return tuple(a + b for a, b in zip(first, second, strict=True))
    return first + second


@dataclass(frozen=True)
class Local:
    """Works in this process, block after block; blocks that are not in memory are read again in every pass."""

    def map(self, function: Callable[..., Any], *values: PerBlock) -> PerBlock:
        """Apply a function block by block and keep the results."""
        return list(starmap(function, zip(*values, strict=True)))

    def view(self, function: Callable[..., Any], *values: PerBlock) -> PerBlock:
        """Apply a function whenever a block is read; nothing is kept."""
        return Again(lambda: starmap(function, zip(*values, strict=True)))

    def first(self, values: PerBlock) -> Any:
        """Read the first block alone."""
        return next(iter(values))

    def gather(self, values: PerBlock) -> list[Any]:
        """Read all blocks."""
        return list(values)

    def total(self, function: Callable[..., Any], *values: PerBlock) -> Any:
        """Apply a function block by block and add up the results as they come."""
        total = None
        for block in zip(*values, strict=True):
            term = function(*block)
            total = term if total is None else added(total, term)
        return total

    def folded(self, add: Callable[[Any, Any], Any], end: Function, values: PerBlock, state: Any = None) -> Any:
        """Add every block to one state in place, by ``add(block, state)``, which is cheaper than ``total`` where sums are large.

        Return what ``end`` makes of the state. None is the state before the first block.
        """
        for block in values:
            state = add(block, state)
        return end(state)

    def memory(self) -> int:
        """Find the bytes that a sum over blocks may take."""
        return available_memory()


@dataclass(frozen=True, eq=False)
class Again:
    """Blocks, or values of blocks, that are read anew in every pass."""

    make: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.make()


HERE = Local()
