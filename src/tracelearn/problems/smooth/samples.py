"""Samples, wherever they are: one sum over their blocks is all that a loss asks of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.moments import Moments
from tracelearn.problems.operators import GramSystem, System, WeightedKernelSystem
from tracelearn.problems.smooth.rows import mean_row
from tracelearn.problems.sparse import FEW, SparseSystem

__all__ = ["ArraySamples", "Samples", "SparseSamples", "Term", "Weigh", "added", "summed_covariances"]

# What is summed: a function of a block's rows (m, p), targets (m, K), shares (m,) and scores (m, K).
# It returns an array, moments, or a tuple of those.
Term = Callable[[Array, Array, Array, Array], Any]

# Weights (m, K) of the samples of a block, from their targets, shares and scores.
Weigh = Callable[[Array, Array, Array], Array]

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

    def covariances(self, weigh: Weigh, scores: Any = None, *, centre: bool) -> tuple[System, ...]:
        """Sum ``w (x - m)(x - m)'`` for each column of weights w, where m is the weighted mean, or with no centre zero."""


def added(first: Any, second: Any) -> Any:
    """Add two sums: arrays, moments, or tuples of those."""
    if isinstance(first, tuple):
        return tuple(a + b for a, b in zip(first, second, strict=True))
    return first + second


def summed_covariances(samples: Samples, weigh: Weigh, scores: Any, *, centre: bool) -> tuple[System, ...]:
    """Find the covariances as p by p matrices, in one pass."""

    def moments(X: Array, Y: Array, share: Array, z: Array) -> tuple[Moments, ...]:
        weights = weigh(Y, share, z)
        return tuple(Moments.of(X, weights[:, k], weights[:, k]) for k in range(weights.shape[1]))

    found = samples.total(moments, scores)
    return tuple(GramSystem(one.gram if centre else one.second_moment) for one in found)


@dataclass(frozen=True, eq=False)
class ArraySamples:
    """Samples in memory: one block, or with ``blockwise`` blocks that stay in cache."""

    X: Array
    Y: Array
    share: Array
    blockwise: bool = False
    _kernels: dict[bool, tuple[Array, Array]] = field(default_factory=dict, repr=False)  # shared by all targets

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
        return ArraySamples(self.X - origin, self.Y, self.share, self.blockwise)

    def take(self, targets: Array) -> ArraySamples:
        """Keep some of the targets."""
        return replace(self, Y=array_namespace(self.Y).take(self.Y, targets, axis=1))

    def covariances(self, weigh: Weigh, scores: Array | None = None, *, centre: bool) -> tuple[System, ...]:
        """Find the covariances: through kernels, where samples are fewer than features."""
        if self.X.shape[0] >= self.X.shape[1]:
            return summed_covariances(self, weigh, scores, centre=centre)
        weights = weigh(self.Y, self.share, self.Y if scores is None else scores)
        rows, kernel = self._kernel(centre=centre)
        return tuple(
            WeightedKernelSystem(rows, kernel=kernel, weight=weights[:, k], centre=centre)
            for k in range(weights.shape[1])
        )

    def _kernel(self, *, centre: bool) -> tuple[Array, Array]:
        """Find the rows about their mean, from which other weighted means differ little, and their kernel; once."""
        if centre not in self._kernels:
            rows = self.X - mean_row(self.X, self.share) if centre else self.X
            self._kernels[centre] = rows, rows @ rows.T
        return self._kernels[centre]


@dataclass(frozen=True, eq=False)
class SparseSamples:
    """Sparse samples in memory: one block, which no sum may fill in."""

    X: Any  # in CSR format
    Y: Array
    share: Array
    rows: None = None

    @property
    def n_targets(self) -> int:
        """The number K of targets."""
        return int(self.Y.shape[1])

    def scores(self, W: Array) -> Array:
        """Multiply every row with W."""
        return self.X @ W.T

    def total(self, term: Term, scores: Array | None = None) -> Any:
        """Apply the function to all samples."""
        return term(self.X, self.Y, self.share, self.Y if scores is None else scores)

    def take(self, targets: Array) -> SparseSamples:
        """Keep some of the targets."""
        return replace(self, Y=self.Y[:, targets])

    def covariances(self, weigh: Weigh, scores: Array | None = None, *, centre: bool) -> tuple[System, ...]:
        """Leave the samples sparse, unless they have few features."""
        n, p = self.X.shape
        if p <= min(FEW, n):
            return summed_covariances(self, weigh, scores, centre=centre)
        weights = weigh(self.Y, self.share, self.Y if scores is None else scores)
        return tuple(SparseSystem.of(self.X, weights[:, k], centre=centre) for k in range(weights.shape[1]))
