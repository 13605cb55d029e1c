"""Anderson's mixing of a fixed-point iteration, for the splits of ADMM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Split
from tracelearn.problems.datafits import repeated

__all__ = ["Mixing"]

_MOST = 6  # ends that are remembered


@dataclass(frozen=True, eq=False)
class Mixing:
    """Where the last blocks of iterations ended, and how far each of them moved.

    If a block were affine, the combination of ends, with shares that sum to one, whose moves add up to the least would be the
    best guess of the fixed point that they span. Every problem has shares of its own. A problem that last moved further than
    ever goes on from where it is, so that mixing never replaces the iterations, whose convergence is proven.
    """

    ends: tuple[tuple[Array, Split], ...] = ()
    moves: tuple[Array, ...] = ()  # (B, N) each
    least: Array | None = None  # the shortest move so far, (B,)

    def mixed(self, start: tuple[Array, Split], end: tuple[Array, Split], rho: Array) -> tuple[Mixing, Array, Split]:
        """Remember a block that led from W and split to others, with steps rho (B,); return the mixture to go on from."""
        xp = array_namespace(rho)
        move = _flat(*end, rho) - _flat(*start, rho)
        length = xp.sqrt(xp.sum(move**2, axis=1))
        least = length if self.least is None else xp.minimum(self.least, length)
        found = Mixing((*self.ends, end)[-_MOST:], (*self.moves, move)[-_MOST:], least)
        if len(found.ends) == 1:
            return found, *end
        shares = xp.where((length <= 2.0 * least)[:, None], _shares(xp.stack(found.moves, axis=1)), _last(length, len(found.ends)))
        shares = xp.matrix_transpose(shares)
        return found, *_combined(found.ends, shares)

    def take(self, problems: Array, tensors: Array) -> Mixing:
        """Keep some of the problems, given their index (B',) and that of their tensors (T',)."""
        ends = tuple((array_namespace(W).take(W, tensors, axis=0), split.take(tensors)) for W, split in self.ends)
        least = None if self.least is None else self.least[problems]
        return Mixing(ends, tuple(move[problems, :] for move in self.moves), least)


def _flat(W: Array, split: Split, rho: Array) -> Array:
    """Write what the next iteration depends on as rows (B, N), forces in units of weights."""
    xp = array_namespace(W)
    level = xp.reshape(repeated(rho, W.shape[0]), (-1, *(1,) * (W.ndim - 1)))
    rows: list[Array] = []

    def add(part: Any, divisor: Any = None) -> None:
        if isinstance(part, tuple):
            for own in part:
                add(own, divisor)
            return
        own = xp.reshape(xp.moveaxis(part, 1, 0), (rho.shape[0], -1))
        rows.append(own if divisor is None else own / divisor)

    add(split.anchors)
    add(split.duals, rho[:, None])
    return xp.concat(rows, axis=1)


def _shares(moves: Array) -> Array:
    """Find the shares (B, k), of sum one, with which moves (B, k, N) add up to the least."""
    xp = array_namespace(moves)
    gram = moves @ xp.matrix_transpose(moves)
    k, info = gram.shape[-1], xp.finfo(gram.dtype)
    # Old moves may be nearly the same: shares stay small where that decides.
    damping = 100.0 * float(info.eps) * xp.linalg.trace(gram) + float(info.smallest_normal)
    eye = xp.eye(k, dtype=gram.dtype, device=device(gram))
    found = xp.linalg.solve(gram + damping[:, None, None] * eye, xp.ones_like(gram[..., :1]))[..., 0]
    return found / xp.sum(found, axis=1, keepdims=True)


def _last(length: Array, count: int) -> Array:
    """Return the shares (B, k) of the last end alone."""
    xp = array_namespace(length)
    none = xp.zeros_like(length)
    return xp.stack([none] * (count - 1) + [none + 1.0], axis=1)


def _combined(ends: tuple[tuple[Array, Split], ...], shares: Array) -> tuple[Array, Split]:
    """Add ends up with their shares (k, B)."""
    xp = array_namespace(shares)
    tensors = [repeated(shares[i, :], ends[0][0].shape[0]) for i in range(len(ends))]

    def total(arrays: Any, axis: int = 1) -> Array:
        shape = [(-1 if n == axis else 1) for n in range(arrays[0].ndim)]
        return sum(xp.reshape(share, tuple(shape)) * array for share, array in zip(tensors, arrays, strict=True))

    W = total([W for W, _ in ends], 0)
    return W, Split.gathered(total, [split for _, split in ends])
