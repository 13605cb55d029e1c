"""Anderson's mixing of the iterations of ADMM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Split

__all__ = ["Mixing", "State", "take_tensors"]

_MOST = 6  # blocks that are remembered
_LAST = 60  # blocks after which mixing ends, since only the plain iterations are known to converge
_LARGEST = 100.0  # the largest sum of absolute shares of a mixture that is used
_GROWTH = 2.0  # a problem whose last move is longer than so many times its shortest one is not mixed

State = tuple[Array, Split]  # what an iteration of ADMM goes on from: W and its split


@dataclass(frozen=True, eq=False)
class Mixing:
    """The last blocks of iterations of B problems, all made with the same steps.

    For affine iterations the fixed point is best estimated by the combination of ends, with shares that sum to one, whose
    combined move is shortest. Every problem has its own shares. A mixture is only where the next block starts: solutions, and
    their certificates, are the ends of blocks.
    """

    ends: tuple[State, ...] = ()
    moves: tuple[Array, ...] = ()  # from the start to the end of each block, (B, N)
    rho: Array | None = None  # the steps, (B,)
    n_remaining: int = _LAST

    def take(self, problems: Array, tensors: Array, rho_of_all: Array, rho: Array) -> Mixing:
        """Keep some of the problems, given their index (B',) and that of their tensors (T',).

        ``rho_of_all`` and ``rho`` are the steps of all problems and of these. Blocks of other steps are forgotten.
        """
        if self.rho is not rho_of_all:
            return Mixing(n_remaining=self.n_remaining)
        xp = array_namespace(rho)
        ends = tuple(take_tensors(end, tensors) for end in self.ends)
        moves = tuple(xp.take(move, problems, axis=0) for move in self.moves)
        return Mixing(ends, moves, rho, self.n_remaining)

    def onward(self, start: State, end: State, rho: Array) -> tuple[Mixing, State]:
        """Remember a block; return also the state to go on from, a mixture of the ends of the blocks that are remembered.

        New steps rho (B,) begin a new memory. The first block of all is not remembered: its start may come from another solver.
        """
        if rho is not self.rho or self.n_remaining == 0:
            return Mixing(rho=rho, n_remaining=self.n_remaining), end
        xp = array_namespace(rho)
        ends = (*self.ends, end)[-_MOST:]
        moves = (*self.moves, _move(start[1], end[1], rho))[-_MOST:]
        mixing = Mixing(ends, moves, rho, self.n_remaining - 1)
        if len(ends) < 2:
            return mixing, end
        # Shares of sum one with the shortest combined move solve ``gram shares = 1``, up to a factor.
        table = xp.stack(moves, axis=1)
        gram = table @ xp.matrix_transpose(table)
        squares = xp.linalg.diagonal(gram)
        total = xp.sum(squares, axis=1)[:, None, None]
        eye = xp.eye(len(ends), dtype=gram.dtype, device=device(gram))
        # Moves may be nearly the same: a little of the identity keeps rounding from deciding the shares.
        system = gram / xp.where(total > 0, total, xp.ones_like(total)) + 100.0 * float(xp.finfo(gram.dtype).eps) * eye
        shares = xp.linalg.solve(system, xp.ones_like(gram[:, :, :1]))[:, :, 0]
        shares = shares / xp.sum(shares, axis=1, keepdims=True)
        is_steady = squares[:, -1:] <= _GROWTH**2 * xp.min(squares, axis=1, keepdims=True)
        # A mixture far from all ends cannot be trusted.
        is_near = xp.sum(xp.abs(shares), axis=1, keepdims=True) <= _LARGEST
        shares = xp.where(is_steady & is_near, shares, eye[-1:, :])
        return mixing, _mixed(shares, ends)


def _move(start: Split, end: Split, rho: Array) -> Array:
    """Subtract the anchors and duals, on which alone the next iteration depends, before a block from those after it: (B, N).

    Duals are divided by the step, which gives them the units of weights.
    """
    xp = array_namespace(rho)

    def as_rows(array: Array) -> Array:
        """Lay all entries (M, T, ...) that belong to one problem side by side: (B, ...)."""
        return xp.reshape(xp.moveaxis(array, 1, 0), (rho.shape[0], -1))

    differences = []
    for after, before in zip(_arrays(end.anchors), _arrays(start.anchors), strict=True):
        differences.append(as_rows(after) - as_rows(before))
    for after, before in zip(_arrays(end.duals), _arrays(start.duals), strict=True):
        differences.append(as_rows(after) / rho[:, None] - as_rows(before) / rho[:, None])
    return xp.concat(differences, axis=1)


def _arrays(value: Any) -> Sequence[Array]:
    """List the arrays of all blocks of a split, or the one array that it has without blocks."""
    return value if isinstance(value, tuple) else (value,)


def _mixed(shares: Array, states: Sequence[State]) -> State:
    """Add up states by shares (B, M)."""
    first_W, first_split = states[0]
    shares_of_tensors = array_namespace(shares).repeat(shares, first_W.shape[0] // shares.shape[0], axis=0)
    W = _weighted_sum(shares_of_tensors, 0, [W for W, _ in states])
    other_splits = [split for _, split in states[1:]]
    return W, first_split.map(lambda *arrays: _weighted_sum(shares_of_tensors, 1, arrays), *other_splits)


def _weighted_sum(shares: Array, axis: int, arrays: Sequence[Array]) -> Array:
    """Add up arrays by shares (T, M), with the tensors along an axis of each."""
    xp = array_namespace(shares)
    shape = [1] * arrays[0].ndim
    shape[axis] = -1
    total = 0.0
    for k, array in enumerate(arrays):
        total = total + xp.reshape(shares[:, k], tuple(shape)) * array
    return total


def take_tensors(state: State, tensors: Array) -> State:
    """Keep the tensors of this index."""
    W, split = state
    return array_namespace(W).take(W, tensors, axis=0), split.take(tensors)
