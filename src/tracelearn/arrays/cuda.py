"""PyTorch on CUDA devices: small eigendecompositions in one kernel, and steps that are recorded once and replayed.

Everything here gives what the array API's own calls give, without waiting for the device. The rest of the package asks
``is_on_gpu`` first, then ``serves`` and ``recorded``, and knows nothing of PyTorch. On an H200 the library's ``eigh`` takes
0.2 ms up to size 32 and waits; beyond that it takes a millisecond for each matrix, one after the other
(``benchmarks/NOTES.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tracelearn.arrays.array_api import Array

__all__ = ["Recorded", "eigh", "recorded", "serves"]

_LARGEST = 64  # rows of a matrix that one kernel decomposes in registers
_SWEEPS = 12  # at most; six or seven are enough, since convergence is quadratic


@cache
def _kernel() -> Any:
    """Compile on first use; None where Triton is not installed, as with PyTorch for other devices."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None

    @triton.jit
    def jacobi(gram, values, vectors, m, P: tl.constexpr, SWEEPS: tl.constexpr, EPS: tl.constexpr):  # type: ignore[no-untyped-def]
        """Rotate pairs of rows and columns until the matrix is diagonal, disjoint pairs at once: one program a matrix.

        In round r of a sweep k meets 2r - k, modulo the number of players but one; the last player meets who is left over.
        """
        first = tl.program_id(0).to(tl.int64)
        k = tl.arange(0, P)
        i, j = k[:, None], k[None, :]
        inside = (i < m) & (j < m)
        A = tl.load(gram + first * m * m + i * m + j, mask=inside, other=0.0)
        V = tl.where(i == j, 1.0, 0.0).to(A.dtype)
        players = m + m % 2
        rounds = players - 1
        left = SWEEPS
        while left > 0:
            for r in range(rounds):
                met = (2 * r - k + 2 * P * rounds) % rounds
                other = tl.where(k == rounds, r, tl.where(met == k, rounds, met))
                other = tl.where(k < players, other, k)
                meets = other[:, None] == j
                pair = tl.where(meets, A, 0.0)
                off = 0.5 * (tl.sum(pair, axis=1) + tl.sum(pair, axis=0))  # the same for both of a pair
                diagonal = tl.where(i == j, A, 0.0)
                own, row = tl.sum(diagonal, axis=1), tl.sum(diagonal, axis=0)
                its = tl.sum(tl.where(meets, row[None, :], 0.0), axis=1)
                idle = (off == 0.0) | (other == k)
                tau = (its - own) / (2.0 * tl.where(idle, 1.0, off))
                up = tl.where(tau == 0.0, k < other, tau > 0.0)
                t = tl.where(up, 1.0, -1.0) / (tl.abs(tau) + tl.sqrt(1.0 + tau * tau))
                t = tl.where(idle, 0.0, t).to(A.dtype)
                c = 1.0 / tl.sqrt(1.0 + t * t)
                s = t * c
                across = tl.broadcast_to(other[None, :], (P, P))
                A = A * c[None, :] - tl.gather(A, across, 1) * s[None, :]
                V = V * c[None, :] - tl.gather(V, across, 1) * s[None, :]
                down = tl.broadcast_to(other[:, None], (P, P))
                A = A * c[:, None] - tl.gather(A, down, 0) * s[:, None]
            size = tl.max(tl.max(tl.abs(A), axis=1), axis=0)
            rest = tl.max(tl.max(tl.where(i == j, 0.0, tl.abs(A)), axis=1), axis=0)
            left = tl.where(rest > EPS * size, left - 1, 0)
        tl.store(vectors + first * m * m + i * m + j, V, mask=inside)
        tl.store(values + first * m + k, tl.sum(tl.where(i == j, A, 0.0), axis=0), mask=k < m)

    return jacobi


def serves(G: Array) -> bool:
    """Whether symmetric matrices (..., m, m) on a CUDA device are decomposed by ``eigh`` here."""
    return G.shape[-1] <= _LARGEST and _kernel() is not None


def eigh(G: Array) -> tuple[Array, Array]:
    """Decompose symmetric matrices (..., m, m) without waiting for the device; eigenvalues come in no order."""
    m = G.shape[-1]
    flat = G.reshape(-1, m, m).contiguous()
    values, vectors = flat.new_empty(flat.shape[:2]), flat.new_empty(flat.shape)
    size = max(4, 1 << (m - 1).bit_length())
    eps = 2.0 ** (-52 if flat.itemsize == 8 else -23)
    _kernel()[(flat.shape[0],)](flat, values, vectors, m, size, _SWEEPS, eps, num_warps=4 if size > 8 else 1)
    return values.reshape(G.shape[:-1]), vectors.reshape(G.shape)


Step = Callable[[Array, Any], tuple[Array, Any]]


class Recorded:
    """A step of weights and their split, recorded as a CUDA graph: replaying it costs one launch.

    A split is what has a ``map`` over its arrays. The graph keeps weights and split at one place each and goes on from there.
    """

    def __init__(self, step: Step, W: Array, split: Any) -> None:
        import torch

        self._step = step  # what it computes with must stay where it is
        self._W, self._split = W.clone(), split.map(torch.clone)
        self._graph = torch.cuda.CUDAGraph()
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self._graph.capture_begin(capture_error_mode="thread_local")
            W, split = step(self._W, self._split)
            self._W.copy_(W)
            found: list[Array] = []
            split.map(found.append)
            self._split.map(lambda kept: kept.copy_(found.pop(0)))
            self._graph.capture_end()
        here.wait_stream(aside)

    def __call__(self, W: Array, split: Any, count: int) -> tuple[Any, Array, Any]:
        """Go on by some steps from W and split, which are where the graph is; return the last split but one, too."""
        for _ in range(count - 1):
            self._graph.replay()
        before = self._split.map(lambda kept: kept.clone())
        self._graph.replay()
        return before, self._W.clone(), self._split.map(lambda kept: kept.clone())


def recorded(step: Step, W: Array, split: Any) -> Recorded | None:
    """Record a step on a CUDA device where that is possible: without an operation that waits for it."""
    import torch

    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(W, split)
    except RuntimeError:  # it waits
        return None
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    return Recorded(step, W, split)
