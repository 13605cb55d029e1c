"""Linear algebra on batches of tensors: spectra of unfoldings and shrinkage.

A batch has shape ``(B, I1, ..., IN)`` and a mode ``n`` is its axis ``n + 1``. Singular values do not depend on the
order of an unfolding's columns, nor on which side is called rows: here an unfolding is always the cheapest reshape,
transposed where needed so that its rows are the short side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from tracelearn.tensors import Array, array_namespace

__all__ = [
    "low_rank_projection",
    "positive_part",
    "shrink",
    "shrink_modes",
    "soft_threshold",
    "spectral_norms",
    "trace_norms",
]


def soft_threshold(x: Array, threshold: float) -> Array:
    """Move every element towards zero by ``threshold``, and stop at zero.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.linalg import soft_threshold
    >>> soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0)
    array([-2.,  0.,  1.])
    """
    xp = array_namespace(x)
    return xp.sign(x) * positive_part(xp.abs(x) - threshold)


def positive_part(x: Array) -> Array:
    """Replace what is below zero by zero, exactly; three times as fast on small arrays as the standard's clip."""
    return 0.5 * (x + abs(x))


@cache
def _mode_first(order: int, mode: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Permutations that bring a mode of a batch to axis 1, and back."""
    axis = mode + 1
    there = (0, axis, *range(1, axis), *range(axis + 1, order + 1))
    return there, tuple(sorted(range(order + 1), key=there.__getitem__))


def _short_rows(T: Array, mode: int) -> Array:
    """Unfold every tensor of a batch, short side first."""
    xp = array_namespace(T)
    size, batch = T.shape[mode + 1], T.shape[0]
    M = xp.reshape(xp.permute_dims(T, _mode_first(T.ndim - 1, mode)[0]), (batch, size, math.prod(T.shape[1:]) // size))
    return xp.matrix_transpose(M) if size > M.shape[2] else M


def _refold_short_rows(M: Array, mode: int, shape: tuple[int, ...]) -> Array:
    xp = array_namespace(M)
    size = shape[mode + 1]
    if size > math.prod(shape[1:]) // size:
        M = xp.matrix_transpose(M)
    rest = shape[1 : mode + 1] + shape[mode + 2 :]
    return xp.permute_dims(xp.reshape(M, (shape[0], size, *rest)), _mode_first(len(shape) - 1, mode)[1])


def shrink(M: Array, threshold: Array) -> Array:
    """Shrink the singular values of a stack of wide matrices: the proximal point of the trace norm.

    Parameters
    ----------
    M : array of shape (..., m, q), m <= q
    threshold : array of shape (...)

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.linalg import shrink
    >>> np.round(shrink(np.diag([3.0, 1.0])[None], np.array([2.0])), 12)
    array([[[1., 0.],
            [0., 0.]]])
    """
    xp = array_namespace(M)
    square, Q = xp.linalg.eigh(M @ xp.matrix_transpose(M))
    sigma = xp.sqrt(positive_part(square))
    level = threshold[..., None]
    # Eigenvalues of the gram are exact to eps sigma_max^2, so singular values to sqrt(eps) sigma_max and no better.
    if bool(xp.any(level < math.sqrt(float(xp.finfo(M.dtype).eps)) * sigma[..., -1:])):
        U, sigma, Vt = xp.linalg.svd(M, full_matrices=False)
        return (U * positive_part(sigma - level)[..., None, :]) @ Vt
    left = positive_part(sigma - level)
    keep = left / xp.where(left > 0, sigma, xp.ones_like(sigma))
    return (Q * keep[..., None, :]) @ (xp.matrix_transpose(Q) @ M)


def shrink_modes(parts: Array, thresholds: Array, modes: Sequence[int]) -> Array:
    """Shrink part ``m`` of a stack along its own mode ``modes[m]``.

    Parameters
    ----------
    parts : array of shape (M, B, I1, ..., IN)
    thresholds : array of shape (M, B)
    modes : M ints
    """
    xp = array_namespace(parts)
    matrices = [_short_rows(parts[m, ...], mode) for m, mode in enumerate(modes)]
    shape = tuple(parts.shape[1:])
    if len({tuple(matrix.shape) for matrix in matrices}) == 1:
        # One call for all modes: a small eigendecomposition is mostly overhead.
        stack = shrink(xp.stack(matrices), thresholds)
        shrunk = [stack[m, ...] for m in range(len(modes))]
    else:
        shrunk = [shrink(matrix, thresholds[m, ...]) for m, matrix in enumerate(matrices)]
    return xp.stack([_refold_short_rows(M, mode, shape) for M, mode in zip(shrunk, modes, strict=True)])


def low_rank_projection(T: Array, pattern: Array, mode: int, *, rtol: float = 1e-10) -> Array:
    """Project the mode-``mode`` fibres of every tensor on those that the matching tensor of ``pattern`` spans."""
    xp = array_namespace(T)
    fibres = xp.reshape(xp.moveaxis(pattern, mode + 1, 1), (T.shape[0], T.shape[mode + 1], -1))
    U, sigma, _ = xp.linalg.svd(fibres, full_matrices=False)
    U = U * xp.astype(sigma > rtol * sigma[:, :1], U.dtype)[:, None, :]
    rest = tuple(size for axis, size in enumerate(T.shape) if axis not in (0, mode + 1))
    rows = xp.reshape(xp.moveaxis(T, mode + 1, 1), (T.shape[0], T.shape[mode + 1], -1))
    projected = U @ (xp.matrix_transpose(U) @ rows)
    return xp.moveaxis(xp.reshape(projected, (T.shape[0], T.shape[mode + 1], *rest)), 1, mode + 1)


def trace_norms(T: Array, mode: int) -> Array:
    """Sum the singular values of one unfolding of every tensor of a batch.

    By a singular value decomposition: a gram would turn every zero into sqrt(eps), which a tight certificate sees.
    """
    xp = array_namespace(T)
    return xp.sum(xp.linalg.svdvals(_short_rows(T, mode)), axis=-1)


def spectral_norms(T: Array, mode: int) -> Array:
    """Find the largest singular value of one unfolding of every tensor of a batch."""
    xp = array_namespace(T)
    M = _short_rows(T, mode)
    # Scaled, since the gram of entries beyond 1e154 overflows where their singular values do not.
    scale = xp.max(xp.abs(M), axis=(1, 2), keepdims=True)
    scale = xp.where(scale > 0, scale, xp.ones_like(scale))
    M = M / scale
    largest = xp.linalg.eigvalsh(M @ xp.matrix_transpose(M))[:, -1]
    return xp.sqrt(positive_part(largest)) * scale[:, 0, 0]
