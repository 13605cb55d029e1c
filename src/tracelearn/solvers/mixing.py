"""Anderson's mixing: where the last blocks of iterations ended, combined to a better point to go on from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Split
from tracelearn.problems.datafits import repeated

__all__ = ["Mixing", "State"]

State = tuple[Array, Split]  # what an iteration of ADMM goes on from: W and its split

_MOST = 6  # blocks that are remembered
_GROWTH = 2.0  # times the shortest move so far: who moves further goes on without mixing


@dataclass(frozen=True, eq=False)
class Mixing:
    """The last blocks of iterations of B problems, all made with the same steps.

    If iterations were affine, the combination of ends, by shares that sum to one, whose moves add up to the least would be the
    best guess of the fixed point. Every problem has its own shares. A mixture is only where a block starts: what is handed out,
    and certified, are the ends of blocks.
    """

    ends: tuple[State, ...] = ()
    moves: tuple[Array, ...] = ()  # from the start to the end of each block, (B, N)
    rho: Array | None = None  # the steps, (B,)

    def after(self, start: State, end: State, rho: Array) -> tuple[Mixing, State]:
        """Remember a block; return the state to go on from, now with steps rho (B,).

        New steps begin a new memory. The first block of all is not remembered: its start may come from another solver.
        """
        if rho is not self.rho:
            return Mixing(rho=rho), end
        move = _rows(end, rho) - _rows(start, rho)
        found = Mixing((*self.ends, end)[-_MOST:], (*self.moves, move)[-_MOST:], rho)
        return found, end if len(found.ends) == 1 else found._mixture()

    def take(self, problems: Array, tensors: Array, rho: Array) -> Mixing:
        """Keep some of the problems, given their index (B',), that of their tensors (T',) and their steps."""
        ends = tuple(taken(end, tensors) for end in self.ends)
        return Mixing(ends, tuple(array_namespace(rho).take(move, problems, axis=0) for move in self.moves), rho)

    def _mixture(self) -> State:
        moves = array_namespace(*self.moves).stack(self.moves, axis=1)
        xp, k = array_namespace(moves), moves.shape[1]
        gram = moves @ xp.matrix_transpose(moves)
        squares = xp.linalg.diagonal(gram)
        total = xp.sum(squares, axis=1)[:, None, None]
        eye = xp.eye(k, dtype=gram.dtype, device=device(gram))
        # Moves may be nearly the same: the last places do not decide.
        system = gram / xp.where(total > 0, total, xp.ones_like(total)) + 100.0 * float(xp.finfo(gram.dtype).eps) * eye
        shares = xp.linalg.solve(system, xp.ones_like(gram[:, :, :1]))[:, :, 0]
        shares = shares / xp.sum(shares, axis=1, keepdims=True)
        steady = squares[:, -1:] <= _GROWTH**2 * xp.min(squares, axis=1, keepdims=True)
        shares = xp.where(steady, shares, eye[-1:, :])
        count = self.ends[0][0].shape[0]
        return _combined(self.ends, [repeated(shares[:, i], count) for i in range(k)])


def taken(state: State, tensors: Array) -> State:
    """Keep some tensors of a state."""
    W, split = state
    return array_namespace(W).take(W, tensors, axis=0), split.take(tensors)


def _rows(state: State, rho: Array) -> Array:
    """Write what the next iteration depends on as rows (B, N), forces in units of weights."""
    xp, (_, split) = array_namespace(rho), state

    def flat(part: Any) -> list[Array]:
        parts = part if isinstance(part, tuple) else (part,)
        return [xp.reshape(xp.moveaxis(own, 1, 0), (rho.shape[0], -1)) for own in parts]

    return xp.concat([*flat(split.anchors), *(own / rho[:, None] for own in flat(split.duals))], axis=1)


def _combined(ends: Sequence[State], shares: Sequence[Array]) -> State:
    """Add states up, given the shares (T,) of each."""

    def total(arrays: Sequence[Array]) -> Array:  # (M, T, ...) each
        xp, like = array_namespace(arrays[0]), (1, -1, *(1,) * (arrays[0].ndim - 2))
        return sum(xp.reshape(share, like) * array for share, array in zip(shares, arrays, strict=True))

    weights, splits = zip(*ends, strict=True)
    return total([W[None, ...] for W in weights])[0, ...], Split.gathered(total, splits)
