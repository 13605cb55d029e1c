"""PyTorch on CUDA devices: small eigendecompositions in one kernel, and functions that are recorded once and replayed.

Everything here gives what the array API's own calls give, without waiting for the device. It is called for arrays
that ``is_on_gpu``, by ``linalg`` and ``moments``; the rest of the package knows nothing of PyTorch. On an H200 the library's
``eigh`` takes 0.2 ms up to size 32 and waits; beyond that it takes a millisecond for each matrix, one after the other
(``benchmarks/NOTES.md``).
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from functools import cache, partial
from threading import RLock
from typing import Any

from tracelearn.arrays.array_api import Array

__all__ = ["eigh", "gram", "replay", "serves"]

_LARGEST = 64  # rows of a matrix that one kernel decomposes in registers
_SWEEPS = 12  # at most; six or seven are enough, since convergence is quadratic
_BLOCKS = 8  # of columns of a product that is symmetric: little more than half of it is multiplied
_LEAST_BLOCK = 256
_MOST_BYTES = 256 << 20  # in the arrays of a call that is recorded: larger ones keep a device busy without
_MOST_GRAPHS = 32


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


def gram(rows: Array) -> Array:
    """Multiply ``rows.T @ rows``, the lower half of it, and mirror that; rows in single precision in TF32, four times as fast."""
    p = rows.shape[1]
    size = max(_LEAST_BLOCK, -(-p // _BLOCKS))
    found = rows.new_empty((p, p))
    with _tf32() if rows.itemsize == 4 else nullcontext():
        for first in range(0, p, size):
            last = min(first + size, p)
            found[first:last, :last] = rows[:, first:last].T @ rows[:, :last]
            found[:first, first:last] = found[first:last, :first].T
    return found


@contextmanager
def _tf32() -> Iterator[None]:
    """Allow products in TF32 and then what was allowed before; one caller at a time, since the setting is the process's."""
    import torch

    products: Any = torch.backends.cuda.matmul
    name, fast = ("fp32_precision", "tf32") if hasattr(products, "fp32_precision") else ("allow_tf32", True)
    with _lock:
        before = getattr(products, name)
        setattr(products, name, fast)
        try:
            yield
        finally:
            setattr(products, name, before)


# --- recorded functions ---------------------------------------------------------------------------------------------------


class _UnfitError(Exception):
    """Something that is neither an array nor a constant."""


@cache
def _kind(cls: type) -> Any:
    """Say how values of a class are taken apart: a word, or the names of the fields of a dataclass; None if not at all."""
    if cls.__name__ in ("Tensor", "Parameter") and cls.__module__.startswith("torch"):
        return "array"
    if issubclass(cls, bool | int | float | str | types.NoneType):
        return "constant"
    known = {tuple: "tuple", partial: "partial", types.FunctionType: "function"}
    return tuple(own.name for own in fields(cls) if own.init) if is_dataclass(cls) else known.get(cls)


def _apart(value: Any, arrays: list[Array]) -> Hashable:
    """Collect the arrays in a value; return all else of it, which can be compared."""
    cls: Any = type(value)
    kind = _kind(cls)
    if kind == "array":
        arrays.append(value)
        return kind, value.shape, value.dtype, value.device
    if kind == "constant" or (kind == "function" and not value.__closure__):
        return "constant", cls, value
    if kind == "tuple":
        return kind, tuple([_apart(item, arrays) for item in value])
    if kind == "partial" and not value.keywords:
        return kind, _apart(value.func, arrays), _apart(value.args, arrays)
    if isinstance(kind, tuple):
        return "data", cls, kind, tuple([_apart(getattr(value, name), arrays) for name in kind])
    raise _UnfitError


def _together(structure: Any, arrays: Iterator[Array]) -> Any:
    """Undo ``_apart`` with other arrays."""
    kind = structure[0]
    if kind == "array":
        return next(arrays)
    if kind == "constant":
        return structure[2]
    if kind == "tuple":
        return tuple(_together(item, arrays) for item in structure[1])
    if kind == "partial":
        function, given = (_together(part, arrays) for part in structure[1:])
        return partial(function, *given)
    _, make, names, parts = structure
    return make(**{name: _together(part, arrays) for name, part in zip(names, parts, strict=True)})


@cache
def _pool() -> Any:
    """Name the memory that all graphs share: only one is replayed at a time, and what it finds is copied at once."""
    import torch

    return torch.cuda.graph_pool_handle()


class _Graph:
    """A function of arrays as a CUDA graph, which reads its arrays at one place and leaves what it finds at another."""

    def __init__(self, function: Callable[..., Any], structure: Any, arrays: list[Array], carried: int) -> None:
        import torch

        self._inputs = [array.detach().clone() for array in arrays]
        given = _together(structure, iter(self._inputs))
        _recording.append(self)
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")  # a function that waits for the device cannot be recorded
        try:
            function(*given)
        finally:
            torch.cuda.set_sync_debug_mode(mode)
            _recording.pop()
        self._graph, self._outputs = torch.cuda.CUDAGraph(), list[Array]()
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self._graph.capture_begin(pool=_pool(), capture_error_mode="thread_local")
            _recording.append(self)
            try:
                self._structure = _apart(function(*given), self._outputs)
                if carried:
                    places = self._inputs[len(self._inputs) - len(self._outputs) :]
                    torch._foreach_copy_(places, [found.clone() for found in self._outputs])  # some are inputs, moved
                    self._outputs = places
            finally:
                _recording.pop()
                self._graph.capture_end()
        here.wait_stream(aside)

    def __call__(self, arrays: list[Array], count: int) -> Any:
        import torch

        torch._foreach_copy_(self._inputs, arrays)
        for _ in range(count):
            self._graph.replay()
        return _together(self._structure, iter([found.clone() for found in self._outputs]))


_graphs: OrderedDict[Any, _Graph | None] = OrderedDict()
_lock = RLock()  # places of a graph are for one caller at a time
_recording: list[_Graph] = []  # at most one: what it calls is part of it, and not recorded apart


def replay(function: Callable[..., Any], given: tuple[Any, ...], carried: int, count: int) -> Any:
    """Record a function for arrays of these shapes, once, and replay it: one launch. None where that cannot be.

    It cannot where the function waits for the device, or is given other things than arrays, numbers, names and functions, in
    tuples, dataclasses and partial functions. See ``linalg.replayed``.
    """
    arrays: list[Array] = []
    try:
        structure = _apart(given, arrays)
    except _UnfitError:
        return None
    if not arrays or sum(array.nbytes for array in arrays) > _MOST_BYTES:
        return None
    with _lock:
        graph = None if _recording else _graph(function, structure, arrays, carried)
        return None if graph is None else graph(arrays, count)


def _graph(function: Callable[..., Any], structure: Any, arrays: list[Array], carried: int) -> _Graph | None:
    """Look up what was recorded, or record it; None where that failed. What was used last is kept."""
    key = function, structure, carried
    if key not in _graphs:
        try:
            _graphs[key] = _Graph(function, structure, arrays, carried)
        except RuntimeError:  # it waits
            _graphs[key] = None
        while len(_graphs) > _MOST_GRAPHS:
            _graphs.popitem(last=False)
    _graphs.move_to_end(key)
    return _graphs[key]
