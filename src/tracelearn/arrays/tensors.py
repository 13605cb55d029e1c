"""The vocabulary of tensors: unfolding, inner product, n-rank, Kronecker product.

Arrays of any library of the array API standard are welcome; what comes in decides what comes out.
The column order of an unfolding is the one of Kolda and Bader (2009): the first remaining mode runs fastest.
"""

from __future__ import annotations

import math

from tracelearn.arrays.array_api import Array, array_namespace

__all__ = [
    "Array",
    "array_namespace",
    "frobenius_norm",
    "grid_trace",
    "inner",
    "kronecker",
    "mode_factors",
    "n_rank",
    "refold",
    "unfold",
]


def _unfold_axes(order: int, mode: int) -> tuple[int, ...]:
    if not -order <= mode < order:
        raise ValueError(f"Expected a mode from 0 to {order - 1} for a tensor of order {order}, got {mode}.")
    mode %= order
    # Reversed, so that a C-ordered reshape lets the first remaining mode run fastest.
    return (mode, *(axis for axis in reversed(range(order)) if axis != mode))


def unfold(X: Array, mode: int) -> Array:
    """Arrange the fibres of one mode as the columns of a matrix.

    Parameters
    ----------
    X : array of shape (I1, ..., IN)
    mode : int, from 0 to N - 1

    Returns
    -------
    array of shape (I_mode, product of the other sizes)
        Column ``j`` of element ``(i1, ..., iN)`` is ``sum_k i_k J_k`` with ``J_k`` the product of the sizes
        of the modes before ``k``, ``mode`` left out.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.tensors import unfold
    >>> X = np.arange(1, 25).reshape(3, 4, 2, order="F")  # the example of Kolda and Bader
    >>> unfold(X, 1)
    array([[ 1,  2,  3, 13, 14, 15],
           [ 4,  5,  6, 16, 17, 18],
           [ 7,  8,  9, 19, 20, 21],
           [10, 11, 12, 22, 23, 24]])
    """
    xp = array_namespace(X)
    return xp.reshape(xp.permute_dims(X, _unfold_axes(X.ndim, mode)), (X.shape[mode], -1))


def refold(M: Array, mode: int, shape: tuple[int, ...]) -> Array:
    """Rebuild the tensor whose mode-``mode`` unfolding is ``M``.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.tensors import refold, unfold
    >>> X = np.arange(24.0).reshape(2, 3, 4)
    >>> bool(np.all(refold(unfold(X, 2), 2, X.shape) == X))
    True
    """
    xp = array_namespace(M)
    axes = _unfold_axes(len(shape), mode)
    if M.ndim != 2 or M.shape[0] != shape[mode] or M.shape[0] * M.shape[1] != math.prod(shape):
        raise ValueError(
            f"Expected the mode-{mode} unfolding of a {shape} tensor, got a matrix of shape {tuple(M.shape)}."
        )
    inverse = sorted(range(len(shape)), key=lambda axis: axes[axis])
    return xp.permute_dims(xp.reshape(M, tuple(shape[axis] for axis in axes)), tuple(inverse))


def inner(A: Array, B: Array) -> float:
    """Sum the products of the elements of two tensors of one shape.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.tensors import inner
    >>> inner(np.ones((2, 2, 2)), np.full((2, 2, 2), 3.0))
    24.0
    """
    if A.shape != B.shape:
        raise ValueError(f"Expected two tensors of one shape, got {tuple(A.shape)} and {tuple(B.shape)}.")
    xp = array_namespace(A, B)
    return float(xp.sum(A * B))


def frobenius_norm(A: Array) -> float:
    """Take the square root of the inner product of a tensor with itself, safe from overflow.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.tensors import frobenius_norm
    >>> frobenius_norm(np.array([[3e200], [0.0]]))
    3e+200
    """
    xp = array_namespace(A)
    scale = float(xp.max(xp.abs(A))) if math.prod(A.shape) else 0.0
    if scale == 0.0 or not math.isfinite(scale):
        return scale
    return scale * math.sqrt(float(xp.sum((A / scale) ** 2)))


def mode_factors(A: Array, mode: int) -> tuple[Array, Array]:
    """Find the left singular vectors of an unfolding and its singular values; of each vector the largest entry is positive.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.tensors import mode_factors
    >>> factors, values = mode_factors(np.array([[0.0, 0.0], [-3.0, -4.0]]), 0)
    >>> factors[:, 0] + 0.0, values.round(12)
    (array([0., 1.]), array([5., 0.]))
    """
    xp = array_namespace(A)
    U, values, _ = xp.linalg.svd(unfold(A, mode), full_matrices=False)
    ones = xp.ones_like(values)
    return U * xp.where(xp.max(U, axis=0) >= -xp.min(U, axis=0), ones, -ones), values


def n_rank(A: Array, mode: int, *, rtol: float | None = None) -> int:
    """Count the dimensions that the fibres of one mode span.

    Singular values of the unfolding below ``rtol`` times the largest count as zero; by default ``rtol`` is the larger
    side of the unfolding times the rounding unit.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.tensors import n_rank
    >>> rank_one = np.einsum("i,j,k->ijk", [1.0, 2.0], [1.0, 0.0, 1.0], [1.0, 1.0])
    >>> [n_rank(rank_one, mode) for mode in range(3)]
    [1, 1, 1]
    """
    xp = array_namespace(A)
    M = unfold(A, mode)
    M = M if xp.isdtype(M.dtype, "real floating") else xp.astype(M, xp.float64)
    values = xp.linalg.svdvals(M)
    largest = float(values[0])
    if rtol is None:
        rtol = max(M.shape) * float(xp.finfo(M.dtype).eps)
    return int(xp.sum(xp.astype(values > rtol * largest, xp.int64))) if largest > 0 else 0


def kronecker(A: Array, B: Array) -> Array:
    """Multiply two tensors of equal order block by block: the block at ``(i1, ..., iN)`` is ``a[i1, ..., iN] B``.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.tensors import kronecker
    >>> kronecker(np.array([[1, 2]]), np.array([[1], [10]]))
    array([[ 1,  2],
           [10, 20]])
    """
    if A.ndim != B.ndim:
        raise ValueError(f"Expected two tensors of equal order, got orders {A.ndim} and {B.ndim}.")
    xp = array_namespace(A, B)
    order = A.ndim
    outer = xp.reshape(A, (*A.shape, *(1,) * order)) * B
    paired = tuple(axis for pair in zip(range(order), range(order, 2 * order), strict=True) for axis in pair)
    return xp.reshape(xp.permute_dims(outer, paired), tuple(a * b for a, b in zip(A.shape, B.shape, strict=True)))


def grid_trace(W: Array, B: Array) -> Array:
    """Take the inner product of ``W`` with every block of ``B`` (the paper's GridTr).

    For ``B = sum_i kronecker(X_i, X_i)`` this is ``gram @ vec(W)``, which is how the library computes it.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.tensors import grid_trace, kronecker
    >>> X = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> grid_trace(np.ones((2, 2)), kronecker(X, X))  # <1, X> X
    array([[10., 20.],
           [30., 40.]])
    """
    order = W.ndim
    if B.ndim != order or any(b % w for b, w in zip(B.shape, W.shape, strict=True)):
        raise ValueError(f"Expected a grid of {tuple(W.shape)} blocks, got a tensor of shape {tuple(B.shape)}.")
    xp = array_namespace(W, B)
    paired = tuple(size for b, w in zip(B.shape, W.shape, strict=True) for size in (b // w, w))
    blocks = xp.permute_dims(xp.reshape(B, paired), (*range(0, 2 * order, 2), *range(1, 2 * order, 2)))
    grid = tuple(b // w for b, w in zip(B.shape, W.shape, strict=True))
    return xp.reshape(xp.reshape(blocks, (math.prod(grid), -1)) @ xp.reshape(W, (-1,)), grid)
