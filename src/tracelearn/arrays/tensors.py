"""The vocabulary of tensors: unfolding, factors of a mode, n-rank.

Arrays of any library of the array API standard are welcome; what comes in decides what comes out.
The column order of an unfolding is the one of Kolda and Bader (2009): the first remaining mode runs fastest.
"""

from __future__ import annotations

from tracelearn.arrays.array_api import Array, array_namespace

__all__ = ["mode_factors", "n_rank", "unfold"]


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
    if not -X.ndim <= mode < X.ndim:
        raise ValueError(f"Expected a mode from 0 to {X.ndim - 1} for a tensor of order {X.ndim}, got {mode}.")
    xp = array_namespace(X)
    # Reversed, so that a C-ordered reshape lets the first remaining mode run fastest.
    others = [axis for axis in reversed(range(X.ndim)) if axis != mode % X.ndim]
    return xp.reshape(xp.permute_dims(X, (mode % X.ndim, *others)), (X.shape[mode], -1))


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
