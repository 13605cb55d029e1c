"""Samples, wherever they are: one sum over their blocks is all that a loss asks of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from tracelearn.tensors import Array, array_namespace

__all__ = ["ArraySamples", "Samples", "Term", "added"]

# What is summed: a function of a block's rows (m, p), targets (m, K), shares (m,) and scores (m, K).
# It returns an array, moments, or a tuple of those.
Term = Callable[[Array, Array, Array, Array], Any]

_BLOCK_BYTES = 16 << 20


class Samples(Protocol):
    """Rows (n, p), targets (n, K) and shares (n,), the weights that sum to one: in memory, on disk or on a cluster."""

    @property
    def rows(self) -> Array | None:
        """The rows themselves, where they are at hand."""

    @property
    def n_targets(self) -> int:
        """The number K of targets."""

    def scores(self, W: Array) -> Any:
        """Multiply every row with W (K, p) and keep the products where the rows are; in one pass."""

    def total(self, term: Term, scores: Any = None) -> Any:
        """Sum a function of rows, targets, shares and scores over all blocks; in one pass."""

    def take(self, targets: Array) -> Self:
        """Keep some of the targets."""


def added(first: Any, second: Any) -> Any:
    """Add two sums: arrays, moments, or tuples of those."""
    if isinstance(first, tuple):
        return tuple(a + b for a, b in zip(first, second, strict=True))
    return first + second


@dataclass(frozen=True, eq=False)
class ArraySamples:
    """Samples in memory: one block, or with ``blockwise`` blocks that stay in cache."""

    X: Array
    Y: Array
    share: Array
    blockwise: bool = False

    @property
    def rows(self) -> Array:
        """The rows themselves."""
        return self.X

    @property
    def n_targets(self) -> int:
        """The number K of targets."""
        return int(self.Y.shape[1])

    def scores(self, W: Array) -> Array:
        """Multiply every row with W."""
        return self.X @ W.T

    def _blocks(self) -> Iterator[slice]:
        n, p = self.X.shape
        rows = max(1, _BLOCK_BYTES // (8 * p)) if self.blockwise else n
        return (slice(start, min(start + rows, n)) for start in range(0, n, rows))

    def total(self, term: Term, scores: Array | None = None) -> Any:
        """Sum over the blocks."""
        scores = self.Y if scores is None else scores
        found = None
        for block in self._blocks():
            part = term(self.X[block, :], self.Y[block, :], self.share[block], scores[block, :])
            found = part if found is None else added(found, part)
        return found

    def shifted(self, origin: Array) -> ArraySamples:
        """Subtract a row from every row, in a copy."""
        return replace(self, X=self.X - origin)

    def take(self, targets: Array) -> ArraySamples:
        """Keep some of the targets."""
        return replace(self, Y=array_namespace(self.Y).take(self.Y, targets, axis=1))
