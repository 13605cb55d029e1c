"""Linear algebra on stacks of matrices: spectra and shrinkage; the solves of systems; its threads."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
from array_api_compat import device
from scipy import sparse
from threadpoolctl import ThreadpoolController

from tracelearn.arrays.array_api import Array, array_namespace, block_bytes, is_sparse, to_single

__all__ = [
    "cholesky_solver",
    "conjugate_gradients",
    "few_threads",
    "mode_scales",
    "n_blas_threads",
    "one_thread",
    "pairwise_grams",
    "positive_part",
    "project_columns",
    "scaled_rows",
    "shrink",
    "spectral_norms",
    "squared",
    "trace_norms",
    "weighted_gram",
]

_BLOCK = 128  # rows of a diagonal block of a Cholesky factor
_LARGE = 4096  # rows of a factor up to which it is inverted on a GPU
_LARGE_BLOCK = 2048  # rows of a diagonal block of a larger factor on a GPU
_SMALL = 500_000  # samples of at most so many numbers are multiplied about as fast by one thread
_BLOCK_BYTES = 16 << 20  # of rows that are weighted at once: they stay in cache


def positive_part(x: Array) -> Array:
    """Replace negative numbers by zero; on small arrays three times as fast as ``clip`` of the array API."""
    return 0.5 * (x + abs(x))


def shrink(M: Array, threshold: Array) -> Array:
    """Shrink the singular values of a stack of wide matrices: the proximal point of the trace norm.

    Parameters
    ----------
    M : array of shape (..., m, q), m <= q
    threshold : array of shape (...)

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.linalg import shrink
    >>> np.round(shrink(np.diag([3.0, 1.0])[None], np.array([2.0])), 12)
    array([[[1., 0.],
            [0., 0.]]])
    """
    xp = array_namespace(M)
    square, Q = xp.linalg.eigh(M @ xp.matrix_transpose(M))
    sigma = xp.sqrt(positive_part(square))
    level = threshold[..., None]
    # Eigenvalues of the gram have an error of eps sigma_max^2, so singular values one of sqrt(eps) sigma_max. A lower threshold
    # needs an SVD, except zero, which changes nothing.
    coarse = math.sqrt(float(xp.finfo(M.dtype).eps)) * sigma[..., -1:]
    if bool(xp.any((level < coarse) & (level > 0))):
        U, sigma, Vt = xp.linalg.svd(M, full_matrices=False)
        return (U * positive_part(sigma - level)[..., None, :]) @ Vt
    shrunk = positive_part(sigma - level)
    factor = shrunk / xp.where(shrunk > 0, sigma, xp.ones_like(sigma))
    return ((Q * factor[..., None, :]) @ xp.matrix_transpose(Q)) @ M


def pairwise_grams(
    X: Array, coupling: Array, share: Array, contrasts: Array, *, origin: Array | None = None, single: bool = False
) -> tuple[Array, Array, Array]:
    """Sum ``(diag(c) - c c' / sum(c)) x x'`` over rows x (n, q) with couplings c (n, K), for contrasts between K targets.

    As ``sum(c)`` is one, the first factor is ``sum_{k<m} c_k c_m (e_k - e_m)(e_k - e_m)'``: one weighted gram for each pair of
    targets holds all of them. The sum is returned in coordinates of the contrasts (K, K - 1), for rows with a constant one as
    a last feature, that of the intercept: the blocks of features with features, of features with the one, and of the one alone.

    Parameters
    ----------
    X : rows (n, q), sparse or not
    coupling : array of shape (n, K), not negative
    share : the weights (n,) of the rows
    origin : what is subtracted from every row (q,), or None; rows that are sparse are left as they are
    single : whether products of features are found in single precision

    Returns
    -------
    arrays of shape (K - 1, q, K - 1, q), (K - 1, q, K - 1) and (K - 1, K - 1)
    """
    xp = array_namespace(share)
    n, q = X.shape
    K = coupling.shape[1]
    kind = {"dtype": share.dtype, "device": device(share)}
    pairs = [(k, m) for m in range(K) for k in range(m)]
    grams = [xp.zeros((q, q), **kind) for _ in pairs]
    sums = [xp.zeros(q, **kind) for _ in pairs]
    totals = [xp.zeros((), **kind) for _ in pairs]
    step = n if is_sparse(X) else max(1, block_bytes(X, _BLOCK_BYTES) // (8 * q))
    for start in range(0, n, max(step, 1)):
        block = slice(start, min(start + step, n))
        rows = X if is_sparse(X) else X[block, :]
        rows = rows if origin is None or is_sparse(X) else rows - origin
        for i, (k, m) in enumerate(pairs):
            weight = share[block] * coupling[block, k] * coupling[block, m]
            grams[i] += _gram_of_block(rows, weight, single=single)
            sums[i] = sums[i] + weight @ rows
            totals[i] = totals[i] + xp.sum(weight)
    differences = xp.stack([contrasts[k, :] - contrasts[m, :] for k, m in pairs])
    squares = xp.reshape(differences[:, :, None] * differences[:, None, :], (len(pairs), -1)).T
    inside = xp.reshape(squares @ xp.reshape(xp.stack(grams), (len(pairs), -1)), (K - 1, K - 1, q, q))
    cross = xp.reshape(squares @ xp.stack(sums), (K - 1, K - 1, q))
    corner = xp.reshape(squares @ xp.stack(totals), (K - 1, K - 1))
    return xp.permute_dims(inside, (0, 2, 1, 3)), xp.permute_dims(cross, (0, 2, 1)), corner


def _gram_of_block(rows: Any, weight: Array, *, single: bool) -> Array:
    """Sum ``w x x'`` over rows x, which may be sparse."""
    if is_sparse(rows):
        return weighted_gram(rows, weight)
    weighted = rows * array_namespace(weight).sqrt(weight)[:, None]
    weighted = to_single(weighted) if single else weighted
    return array_namespace(weight).astype(weighted.T @ weighted, weight.dtype, copy=False)


def scaled_rows(X: Any, factor: Array) -> Any:
    """Multiply every row of a sparse array in CSR format."""
    return sparse.csr_array((X.data * np.repeat(factor, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)


def squared(X: Any) -> Any:
    """Square every number; sparse rows stay sparse."""
    return X.multiply(X) if is_sparse(X) else X**2


def weighted_gram(X: Any, weight: Array) -> Array:
    """Sum ``w x x'`` over sparse rows x, as a dense matrix."""
    return (X.T @ scaled_rows(X, weight)).toarray()


def project_columns(M: Array, like: Array) -> Array:
    """Project the columns of matrices (..., m, q) on what the columns of others span, up to 1e-10 of their length."""
    xp = array_namespace(M)
    U, sigma, _ = xp.linalg.svd(like, full_matrices=False)
    U = U * xp.astype(sigma > 1e-10 * xp.max(sigma, axis=-1, keepdims=True), U.dtype)[..., None, :]
    return U @ (xp.matrix_transpose(U) @ M)


def trace_norms(M: Array) -> Array:
    """Sum the singular values of matrices (..., m, q), m <= q.

    The result is never too small, but for rounding: for any orthonormal Q the lengths of the rows of ``Q'M`` sum to at least the
    trace norm, with equality for the left singular vectors. Q are the eigenvectors of the gram. The roots of its eigenvalues
    would be too inexact: they turn every zero into sqrt(eps), which would loosen the duality gap.
    """
    xp = array_namespace(M)
    # In units of the largest entry: the gram of entries beyond 1e154 overflows where M itself does not.
    scale = xp.max(xp.abs(M), axis=(-2, -1), keepdims=True)
    M = M / xp.where(scale > 0, scale, xp.ones_like(scale))
    if isinstance(M, np.ndarray) and M.dtype == np.float32:
        # In double eigenvalues alone are good enough for single precision, and take half the time of vectors.
        wide = M.astype(np.float64)
        values = np.linalg.eigvalsh(wide @ np.matrix_transpose(wide))
        return (np.sum(np.sqrt(positive_part(values)), axis=-1) * scale[..., 0, 0]).astype(np.float32)
    _, Q = xp.linalg.eigh(M @ xp.matrix_transpose(M))
    lengths = xp.sqrt(xp.sum((xp.matrix_transpose(Q) @ M) ** 2, axis=-1))
    return xp.sum(lengths, axis=-1) * scale[..., 0, 0]


def spectral_norms(M: Array) -> Array:
    """Find the largest singular values of matrices (..., m, q), m <= q."""
    xp = array_namespace(M)
    scale = xp.max(xp.abs(M), axis=(-2, -1), keepdims=True)  # as for trace norms
    M = M / xp.where(scale > 0, scale, xp.ones_like(scale))
    largest = xp.linalg.eigvalsh(M @ xp.matrix_transpose(M))[..., -1]
    return xp.sqrt(positive_part(largest)) * scale[..., 0, 0]


def mode_scales(variance: Array, shape: Sequence[int]) -> Array:
    """Find a scale (p,) for every entry from the variances (p,): a product of one scale for each mode.

    They are relative: where all entries vary alike every scale is one. A slice that does not vary has scale one.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.linalg import mode_scales
    >>> channel, time = np.array([1.0, 3.0]), np.array([1.0, 2.0, 2.0])
    >>> scales = mode_scales(np.outer(channel**2, time**2).ravel(), (2, 3)).reshape(2, 3)
    >>> scales / scales[0, 0]
    array([[1., 2., 2.],
           [3., 6., 6.]])
    """
    xp = array_namespace(variance)
    v = xp.reshape(variance, tuple(shape))
    total = xp.mean(v)
    squares = xp.ones_like(v)
    for mode, size in enumerate(shape):
        others = tuple(m for m in range(len(shape)) if m != mode)
        share = xp.mean(v, axis=others) if others else v
        share = share / xp.where(total > 0, total, xp.ones_like(total))
        # A scale of a millionth of the mean is noise of a sensor that was off, which a division would blow up.
        share = xp.where(share > 1e-12, share, xp.ones_like(share))
        squares = squares * xp.reshape(share, tuple(size if m == mode else 1 for m in range(len(shape))))
    return xp.reshape(xp.sqrt(squares), (-1,))


# --- systems and threads ----------------------------------------------------------------------------------------------


def cholesky_solver(matrix: Array, shift: float) -> Callable[[Array], Array]:
    """Factor a matrix with a shift on its diagonal; return the function that solves ``(matrix + shift I) w = r`` for rows r.

    A small factor is inverted, a large one is used block by block. On a GPU, where many small products wait for each other,
    factors are inverted up to a larger size and blocks are larger.
    """
    xp = array_namespace(matrix)
    p = matrix.shape[0]
    is_numpy = isinstance(matrix, np.ndarray)
    for is_lifted in (False, True):
        if is_lifted:  # positive definite but for rounding: add the rounding error to the diagonal
            largest = float(xp.max(xp.abs(xp.linalg.diagonal(matrix) + shift)))
            shift += 10 * p * float(xp.finfo(matrix.dtype).eps) * largest
        try:
            if is_numpy:
                # One copy: large ones are most of the memory of a fit. Rows of a multiple of 4,096 bytes share cache lines,
                # and eight more columns halve the time.
                size = p + 8 if p % 512 == 0 else p
                shifted = np.eye(size, dtype=matrix.dtype)
                shifted[:p, :p] = matrix
                shifted.reshape(-1)[: p * size : size + 1] += shift
                L = np.linalg.cholesky(shifted)[:p, :p]
            else:
                L = xp.linalg.cholesky(matrix + shift * xp.eye(p, dtype=matrix.dtype, device=device(matrix)))
        except (ArithmeticError, RuntimeError, ValueError):  # NumPy, PyTorch and JAX each have their own word for it
            continue
        if bool(xp.all(xp.isfinite(L))):
            break
    else:
        raise np.linalg.LinAlgError("matrix is not positive definite")
    if p > (2 * _BLOCK if is_numpy else _LARGE):
        return _Substitution(L).solve
    inverse = _invert_lower(L)
    return lambda rows: _times_inverse(inverse, rows)


class _Substitution:
    """Solves with a large Cholesky factor L.

    At p = 1000 the inverse of L takes 12 ms and a solve with it 0.1 ms; the inverses of its diagonal blocks take 2 ms
    and a substitution block by block 0.2 ms. A fit needs some twenty solves of each factor, so blocks come first, and
    the inverse where solves go on. All of it is matrix products: SciPy's triangular solves would bring a second pool
    of BLAS threads, and the two pools slow each other down.
    """

    def __init__(self, L: Array) -> None:
        self._L = L
        self._inverse: Array | None = None
        self._blocks: list[tuple[slice, Array]] = []
        self._solves = 0

    def solve(self, rows: Array) -> Array:
        """Solve ``L L' w = r`` for every row r."""
        self._solves += 1
        L = self._L
        is_numpy = isinstance(self._L, np.ndarray)
        if self._inverse is None and is_numpy and self._solves > 100:
            self._inverse = _invert_lower(L)
        if self._inverse is not None:
            return _times_inverse(self._inverse, rows)
        if not self._blocks:
            size = L.shape[0]
            step = _BLOCK if is_numpy else _LARGE_BLOCK
            inv = array_namespace(rows).linalg.inv
            parts = [slice(start, min(start + step, size)) for start in range(0, size, step)]
            self._blocks = [(part, inv(L[part, part])) for part in parts]
        W = array_namespace(rows).zeros_like(rows)
        for part, inverse in self._blocks:
            W[:, part] = (rows[:, part] - W[:, : part.start] @ L[part, : part.start].T) @ inverse.T
        for part, inverse in reversed(self._blocks):
            W[:, part] = (W[:, part] - W[:, part.stop :] @ L[part.stop :, part]) @ inverse
        return W


def _times_inverse(inverse: Array, rows: Array) -> Array:
    """Solve with the inverse of a Cholesky factor."""
    return (rows @ array_namespace(rows).matrix_transpose(inverse)) @ inverse


def _invert_lower(L: Array) -> Array:
    """Invert a lower triangular matrix: in one call where the library has one beyond the standard, else half by half."""
    xp = array_namespace(L)
    size = L.shape[0]
    triangular = getattr(xp.linalg, "solve_triangular", None)
    if triangular is not None:
        return triangular(L, xp.eye(size, dtype=L.dtype, device=device(L)), upper=False)
    if size <= 96:
        return xp.linalg.inv(L)
    half = size // 2
    top = _invert_lower(L[:half, :half])
    bottom = _invert_lower(L[half:, half:])
    corner = -(bottom @ (L[half:, :half] @ top))
    zeros = xp.zeros((half, size - half), dtype=L.dtype, device=device(L))
    return xp.concat([xp.concat([top, zeros], axis=1), xp.concat([corner, bottom], axis=1)])


_controller = cache(ThreadpoolController)  # looked for once, when it is first needed


class _OneThread:
    """Limits linear algebra of the whole process to one thread while anybody wants that.

    The limit is shared by all threads of Python, so the first to enter sets it and the last to leave restores it: if each
    restored the limit that it met, it could restore that of another thread.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_users = 0
        self.restore = ExitStack()

    def __enter__(self) -> None:
        with self.lock:
            if self.n_users == 0:
                self.restore.enter_context(_controller().limit(limits=1, user_api="blas"))
                torch = sys.modules.get("torch")
                if torch is not None:
                    self.restore.callback(torch.set_num_threads, torch.get_num_threads())
                    torch.set_num_threads(1)
            self.n_users += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.n_users -= 1
            if self.n_users == 0:
                self.restore.close()


_one_thread = _OneThread()


def n_blas_threads() -> int:
    """Count the threads that BLAS may use now; inside of ``one_thread`` it is one."""
    counts = [int(library["num_threads"]) for library in _controller().info() if library["user_api"] == "blas"]
    return max(counts, default=1)


def one_thread() -> AbstractContextManager[None]:
    """Use one thread of linear algebra inside of a ``with`` block, in which many threads of Python may be at once.

    Examples
    --------
    >>> from tracelearn.arrays.linalg import one_thread
    >>> with one_thread():
    ...     pass
    """
    return _one_thread


@contextmanager
def few_threads(X: Any) -> Iterator[None]:
    """Use one thread of linear algebra if X is a small array in memory; else change nothing.

    A thread of BLAS or PyTorch that waits for another one does so in a busy loop. Where cores are taken, small products then
    take a hundred times as long as on one thread; where they are free, a second thread gains nothing on them.
    """
    is_query = hasattr(X, "__arrow_c_stream__") and not hasattr(X, "__array__")  # it would count its rows first
    shape = None if is_query else getattr(X, "shape", None)
    is_small = isinstance(shape, tuple) and not hasattr(X, "dask") and math.prod(shape) <= _SMALL
    with one_thread() if is_small else nullcontext():
        yield


def conjugate_gradients(
    apply: Callable[[Array], Array],
    rows: Array,
    shift: Array,
    diagonal: Array,
    start: Array | None = None,
    tol: float = 1e-10,
) -> Array:
    """Solve ``(operator + shift I) w = r`` for every row r by conjugate gradients, scaled by a ``diagonal`` (R, p).

    It ends when the residual is ``tol`` times that of ``start`` (by default zero), or rounding.
    """
    xp = array_namespace(rows)
    W = xp.zeros_like(rows) if start is None else start
    residual = rows if start is None else rows - apply(W) - shift[:, None] * W
    scaled = residual / diagonal
    direction = scaled
    square = xp.sum(residual * scaled, axis=1)
    goal = tol**2 * square + float(xp.finfo(rows.dtype).eps) ** 2 * xp.sum(rows**2 / diagonal, axis=1)
    ones = xp.ones_like(square)
    zeros = xp.zeros_like(square)
    for _ in range(200):
        if bool(xp.all(square <= goal)):
            break
        image = apply(direction) + shift[:, None] * direction
        curvature = xp.sum(direction * image, axis=1)
        # A row that is done is not changed any more: its residual is rounding, which a singular operator would amplify.
        goes_on = (square > goal) & (curvature > 0)
        size = xp.where(goes_on, square / xp.where(goes_on, curvature, ones), zeros)[:, None]
        W = W + size * direction
        residual = residual - size * image
        scaled = residual / diagonal
        before = square
        square = xp.sum(residual * scaled, axis=1)
        turn = xp.where(goes_on, square / xp.where(goes_on, before, ones), zeros)
        direction = scaled + turn[:, None] * direction
    return W
