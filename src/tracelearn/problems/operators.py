"""Symmetric positive operators on rows of p numbers, each with the shifted solve that ADMM needs.

An operator is the Hessian of a data fit, or a bound of it; the kinds differ in what they keep and factor. Rows may come in
G groups of equal length, one after the other, with one matrix for each: the folds of a search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace, to_single
from tracelearn.arrays.linalg import positive_part
from tracelearn.arrays.subspaces import Subspaces

__all__ = [
    "Centred",
    "Coupled",
    "Diagonal",
    "Gram",
    "InBasis",
    "Operator",
    "Passes",
    "compressed",
    "conjugate_gradients",
    "largest_eigenvalue",
    "stacked",
]

_BLOCK = 128  # rows of a diagonal block of a Cholesky factor


Rows = Callable[[Array], Array]  # from rows (R, p) to rows (R, p)


class Operator(Protocol):
    """A symmetric positive operator on rows of p numbers, and its shifted solves."""

    @property
    def shares_shift(self) -> bool:
        """Whether all rows of one solve must have the same shift."""

    @property
    def has_factor(self) -> bool:
        """Whether a solve is cheap because something was factored."""

    @property
    def n_groups(self) -> int:
        """The number of groups of rows that have a matrix of their own."""

    def apply(self, rows: Array) -> Array:
        """Multiply every row."""

    def solver(self, shift: Array) -> Rows:
        """Return the function that solves ``(operator + shift I) w = r`` for every row r (R, p), with its own shift (R,).

        A loop asks once for each shift, so that it reads a shift from its device and factors no more often.
        """

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""

    def mean_eigenvalue(self) -> float:
        """Average the eigenvalues."""

    def smallest(self) -> float:
        """Bound the smallest eigenvalue from below; zero where it is not known to be above rounding."""


@dataclass(frozen=True, eq=False)
class Gram:
    """A p by p matrix for p up to some thousands, or a stack (G, p, p) of them, one for each group of rows.

    One Cholesky factorisation for each shift, kept for the last shift; or, with ``spectral=True``, one eigendecomposition
    for all shifts, each row with its own: more expensive at first, and then a path, its folds and its ridges share it.
    """

    has_factor: ClassVar[bool] = True
    matrix: Array
    spectral: bool = False

    @property
    def shares_shift(self) -> bool:
        """Whether all rows of one solve must have the same shift."""
        return not self.spectral

    @property
    def n_groups(self) -> int:
        """The number of matrices."""
        return 1 if self.matrix.ndim == 2 else int(self.matrix.shape[0])

    def _times(self, rows: Array, matrix: Array) -> Array:
        """Multiply the rows of each group by its own matrix."""
        if matrix.ndim == 2:
            return rows @ matrix
        xp = array_namespace(rows)
        return xp.reshape(xp.reshape(rows, (matrix.shape[0], -1, rows.shape[1])) @ matrix, rows.shape)

    def apply(self, rows: Array) -> Array:
        """Multiply every row by its matrix."""
        return self._times(rows, self.matrix)

    @cached_property
    def _eigen(self) -> tuple[Array, Array]:
        values, vectors = array_namespace(self.matrix).linalg.eigh(self.matrix)
        return positive_part(values), vectors

    def single(self) -> Gram:
        """Return the same in single precision; what is decomposed is decomposed in double first."""
        found = Gram(to_single(self.matrix), self.spectral)
        if self.spectral:
            found.__dict__["_eigen"] = tuple(to_single(part) for part in self._eigen)
        return found

    @cached_property
    def _factors(self) -> dict[float, _Factor]:
        return {}

    def _factor(self, shift: float) -> _Factor:
        factor = self._factors.get(shift)
        if factor is None:
            xp = array_namespace(self.matrix)
            eye = xp.eye(self.matrix.shape[0], dtype=self.matrix.dtype, device=device(self.matrix))
            factor = _Factor(_cholesky(self.matrix + shift * eye))
            self._factors.clear()
            self._factors[shift] = factor
        return factor  # not looked up again: another thread may have cleared

    def solver(self, shift: Array) -> Rows:
        """Return the solve for shifts (R,) that are equal, unless the operator is spectral."""
        if not self.spectral:
            return self._factor(float(shift[0])).solve
        xp = array_namespace(shift)
        values, vectors = self._eigen
        back = xp.matrix_transpose(vectors)
        groups = xp.reshape(values, (self.n_groups, 1, -1)) + xp.reshape(shift, (self.n_groups, -1, 1))
        divisor = xp.reshape(groups, (shift.shape[0], -1))
        return lambda rows: self._times(self._times(rows, vectors) / divisor, back)

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""
        if self.spectral:
            return float(array_namespace(self.matrix).max(self._eigen[0]))
        return largest_eigenvalue(lambda V: self.matrix @ V, self.matrix)

    def mean_eigenvalue(self) -> float:
        """Average the eigenvalues: the mean of the diagonal."""
        xp = array_namespace(self.matrix)
        return float(xp.mean(xp.linalg.diagonal(self.matrix)))

    def smallest(self) -> float:
        """Find the smallest eigenvalue, less what rounding is worth; zero if that leaves nothing."""
        xp = array_namespace(self.matrix)
        values = self._eigen[0] if self.spectral else xp.linalg.eigvalsh(self.matrix)
        rounding: float = 10 * self.matrix.shape[-1] * float(xp.finfo(self.matrix.dtype).eps) * float(xp.max(values))
        return max(0.0, float(xp.min(values)) - rounding)


@dataclass(frozen=True, eq=False)
class InBasis:
    """An operator on the coordinates in an orthonormal ``basis`` (p, r), zero outside: fewer samples than features.

    The span of the samples is all that their products see. Every group of rows shares the basis.
    """

    has_factor: ClassVar[bool] = True
    inner: Gram
    basis: Array

    @property
    def shares_shift(self) -> bool:
        """Whether all rows of one solve must have the same shift."""
        return self.inner.shares_shift

    @property
    def n_groups(self) -> int:
        """The number of matrices."""
        return self.inner.n_groups

    def apply(self, rows: Array) -> Array:
        """Multiply the coordinates of every row."""
        return self.inner.apply(rows @ self.basis) @ array_namespace(rows).matrix_transpose(self.basis)

    def solver(self, shift: Array) -> Rows:
        """Return the solve inside the span; outside the shift alone divides."""
        inner, back = self.inner.solver(shift), array_namespace(shift).matrix_transpose(self.basis)

        def solve(rows: Array) -> Array:
            inside = rows @ self.basis
            return (rows + (shift[:, None] * inner(inside) - inside) @ back) / shift[:, None]

        return solve

    def single(self) -> InBasis:
        """Return the same in single precision."""
        return InBasis(self.inner.single(), to_single(self.basis))

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""
        return self.inner.largest()

    def mean_eigenvalue(self) -> float:
        """Average the p eigenvalues, of which at most r are not zero."""
        return self.inner.mean_eigenvalue() * float(self.basis.shape[1] / self.basis.shape[0])

    def smallest(self) -> float:
        """Return zero: with fewer samples than features there is a null space."""
        return 0.0


def stacked(operators: Sequence[Any]) -> Operator:
    """Join operators of one kind, one for each group of rows, to be solved by one stacked eigendecomposition."""
    first = operators[0]
    if isinstance(first, InBasis):
        inner = stacked([operator.inner for operator in operators])
        return InBasis(inner, first.basis)  # type: ignore[arg-type]
    return Gram(array_namespace(first.matrix).stack([operator.matrix for operator in operators]), spectral=True)


@dataclass(frozen=True, eq=False)
class Diagonal:
    """A diagonal matrix, as the gram is of samples that are one entry of a tensor each."""

    shares_shift: ClassVar[bool] = False
    n_groups: ClassVar[int] = 1
    has_factor: ClassVar[bool] = True
    diagonal: Array

    def apply(self, rows: Array) -> Array:
        """Multiply every row, entry by entry."""
        return rows * self.diagonal

    def solver(self, shift: Array) -> Rows:
        """Return the division by the diagonal and the shift."""
        divisor = self.diagonal[None, :] + shift[:, None]
        return lambda rows: rows / divisor

    def largest(self) -> float:
        """Find the largest eigenvalue."""
        return float(array_namespace(self.diagonal).max(self.diagonal))

    def mean_eigenvalue(self) -> float:
        """Average the eigenvalues."""
        return float(array_namespace(self.diagonal).mean(self.diagonal))

    def smallest(self) -> float:
        """Find the smallest eigenvalue."""
        return float(array_namespace(self.diagonal).min(self.diagonal))


@dataclass(frozen=True, eq=False)
class Passes:
    """``factor`` times the covariance of samples that are too many and too large for any square matrix.

    Every product is one pass over the samples: ``total`` sums a function of rows (m, p), targets, shares (m,) and scores
    over their blocks. The mean is subtracted from the products, not from the samples, which are never copied.
    """

    shares_shift: ClassVar[bool] = False
    n_groups: ClassVar[int] = 1
    has_factor: ClassVar[bool] = False
    total: Callable[[Callable[[Array, Array, Array, Array], Any]], Any]
    mean: Array
    factor: float

    def apply(self, rows: Array) -> Array:
        """Multiply every row by the covariance, in one pass."""
        xp = array_namespace(rows)
        offset = (rows @ self.mean)[:, None]

        def products(X: Array, Y: Array, share: Array, z: Array) -> tuple[Array, Array]:
            scores = (rows @ X.T - offset) * share
            return scores @ X, xp.sum(scores, axis=1, keepdims=True)

        total, weight = self.total(products)
        return self.factor * (total - weight * self.mean)

    def compressed(self, subspaces: Subspaces) -> Gram:
        """Find the matrix that this is for cores in subspaces, in one pass: only cores are multiplied with each other."""
        mean = subspaces.project(self.mean[None, :])

        def products(X: Array, Y: Array, share: Array, z: Array) -> Array:
            cores = subspaces.project(X) - mean
            return (cores * share[:, None]).T @ cores

        return Gram(self.factor * self.total(products))

    def solver(self, shift: Array) -> Rows:
        """Return the solve by conjugate gradients, a pass for each step."""
        ones = array_namespace(shift).ones_like(shift)[:, None]
        return lambda rows: conjugate_gradients(self.apply, rows, shift, ones)

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""
        xp = array_namespace(self.mean)
        return largest_eigenvalue(lambda V: xp.matrix_transpose(self.apply(xp.matrix_transpose(V))), self.mean)

    def mean_eigenvalue(self) -> float:
        """Average the eigenvalues: the mean variance of the features."""
        xp = array_namespace(self.mean)
        squares = self.total(lambda X, Y, share, z: share @ (X - self.mean) ** 2)
        return self.factor * float(xp.mean(squares))

    def smallest(self) -> float:
        """Return zero: nothing is known about it."""
        return 0.0


@dataclass(frozen=True, eq=False)
class Centred:
    """An operator that does not see what all rows have in common: ``(I - 11'/R)`` times one matrix for R rows.

    The bound of the multinomial Hessian is of this form: equal scores for all classes change nothing.
    """

    shares_shift: ClassVar[bool] = True
    n_groups: ClassVar[int] = 1
    inner: Operator

    @property
    def has_factor(self) -> bool:
        """Whether a solve is cheap because something was factored."""
        return self.inner.has_factor

    def apply(self, rows: Array) -> Array:
        """Multiply the deviations from the mean row."""
        return self.inner.apply(rows - array_namespace(rows).mean(rows, axis=0, keepdims=True))

    def solver(self, shift: Array) -> Rows:
        """Return the solve for the deviations from the mean row, which divides the mean row by the shift."""
        xp, inner = array_namespace(shift), self.inner.solver(shift)

        def solve(rows: Array) -> Array:
            mean = xp.mean(rows, axis=0, keepdims=True)
            return inner(rows - mean) + mean / shift[:, None]

        return solve

    def largest(self) -> float:
        """Bound the largest eigenvalue."""
        return self.inner.largest()

    def mean_eigenvalue(self) -> float:
        """Average the eigenvalues of the matrix."""
        return self.inner.mean_eigenvalue()

    def smallest(self) -> float:
        """Return zero: it does not see what all rows have in common."""
        return 0.0


@dataclass(frozen=True, eq=False)
class Coupled:
    """One matrix for all rows together, in coordinates of an orthonormal ``basis`` (p, r), or of all p where None."""

    shares_shift: ClassVar[bool] = True
    n_groups: ClassVar[int] = 1
    has_factor: ClassVar[bool] = True
    inner: Gram
    basis: Array | None = None

    def _coordinates(self, rows: Array) -> Array:
        xp = array_namespace(rows)
        return xp.reshape(rows if self.basis is None else rows @ self.basis, (1, -1))

    def _rows(self, coordinates: Array, n_rows: int) -> Array:
        xp = array_namespace(coordinates)
        rows = xp.reshape(coordinates, (n_rows, -1))
        return rows if self.basis is None else rows @ xp.matrix_transpose(self.basis)

    def apply(self, rows: Array) -> Array:
        """Multiply all rows together."""
        return self._rows(self.inner.apply(self._coordinates(rows)), rows.shape[0])

    def solver(self, shift: Array) -> Rows:
        """Return the solve for all rows together; outside the basis the matrix is zero and the shift alone divides."""
        inner = self.inner.solver(shift[:1])

        def solve(rows: Array) -> Array:
            inside = self._coordinates(rows)
            solved = inner(inside)
            if self.basis is None:
                return self._rows(solved, rows.shape[0])
            return (rows + self._rows(shift[:1, None] * solved - inside, rows.shape[0])) / shift[:, None]

        return solve

    def largest(self) -> float:
        """Bound the largest eigenvalue."""
        return self.inner.largest()

    def mean_eigenvalue(self) -> float:
        """Average the eigenvalues, those outside the basis too."""
        share = 1.0 if self.basis is None else self.basis.shape[1] / self.basis.shape[0]
        return self.inner.mean_eigenvalue() * float(share)

    def smallest(self) -> float:
        """Bound the smallest eigenvalue, which outside a basis is zero."""
        return self.inner.smallest() if self.basis is None else 0.0


def compressed(operator: Operator, subspaces: Subspaces) -> Gram:
    """See an operator from inside subspaces: the matrix that it is for cores."""
    if isinstance(operator, Passes):
        return operator.compressed(subspaces)
    like, size = subspaces.bases[0], math.prod(subspaces.core_shape)
    xp = array_namespace(like)
    cores = xp.eye(size, dtype=like.dtype, device=device(like))
    matrix = subspaces.project(operator.apply(subspaces.lift(cores)))
    return Gram(0.5 * (matrix + matrix.T))


def _cholesky(matrix: Array) -> Array:
    """Factor a matrix that is positive definite but for rounding, lifting its spectrum by what rounding is worth."""
    xp = array_namespace(matrix)
    try:
        factor = _padded_cholesky(matrix) if isinstance(matrix, np.ndarray) else xp.linalg.cholesky(matrix)
        if bool(xp.all(xp.isfinite(factor))):
            return factor
    except (ArithmeticError, RuntimeError, ValueError):  # NumPy, PyTorch and JAX each have their own word for it
        pass
    p = matrix.shape[0]
    lift = 10 * p * float(xp.finfo(matrix.dtype).eps) * float(xp.max(xp.abs(xp.linalg.diagonal(matrix))))
    return xp.linalg.cholesky(matrix + lift * xp.eye(p, dtype=matrix.dtype, device=device(matrix)))


def _padded_cholesky(matrix: Array) -> Array:
    """Factor with NumPy; rows of a multiple of 4,096 bytes share cache lines, and eight more columns halve the time."""
    p = matrix.shape[0]
    if p % 512:
        return np.linalg.cholesky(matrix)
    padded = np.eye(p + 8, dtype=matrix.dtype)
    padded[:p, :p] = matrix
    return np.linalg.cholesky(padded)[:p, :p]


class _Factor:
    """A Cholesky factor L and its solves.

    At p = 1000 the inverse of L takes 12 ms and a solve with it 0.1 ms; the inverses of its diagonal blocks take 2 ms
    and a substitution block by block 0.2 ms. A fit needs some twenty solves of each factor, so blocks come first, and
    the inverse where solves go on. All of it is matrix products: SciPy's triangular solves would bring a second pool
    of BLAS threads, and the two pools slow each other down.
    """

    def __init__(self, L: Array) -> None:
        self._L, self._solves = L, 0
        self._inverse: Array | None = None
        self._blocks: list[tuple[slice, Array]] = []

    def solve(self, rows: Array) -> Array:
        """Solve ``L L' w = r`` for every row r."""
        self._solves += 1
        size = self._L.shape[0]
        # Elsewhere than on a processor, many small products wait for each other.
        many = self._solves > 100 or size <= 2 * _BLOCK or not isinstance(self._L, np.ndarray)
        if self._inverse is None and many:
            self._inverse = _invert_lower(self._L)
        if self._inverse is not None:
            return (rows @ array_namespace(rows).matrix_transpose(self._inverse)) @ self._inverse
        if not self._blocks:
            parts = [slice(start, min(start + _BLOCK, size)) for start in range(0, size, _BLOCK)]
            self._blocks = [(part, np.linalg.inv(self._L[part, part])) for part in parts]
        return self._substituted(rows)

    def _substituted(self, rows: Array) -> Array:
        L, W = self._L, np.empty_like(rows)
        for part, inverse in self._blocks:
            W[:, part] = (rows[:, part] - W[:, : part.start] @ L[part, : part.start].T) @ inverse.T
        for part, inverse in reversed(self._blocks):
            W[:, part] = (W[:, part] - W[:, part.stop :] @ L[part.stop :, part]) @ inverse
        return W


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
    top, bottom = _invert_lower(L[:half, :half]), _invert_lower(L[half:, half:])
    corner = -(bottom @ (L[half:, :half] @ top))
    nothing = xp.zeros((half, size - half), dtype=L.dtype, device=device(L))
    return xp.concat([xp.concat([top, nothing], axis=1), xp.concat([corner, bottom], axis=1)])


def conjugate_gradients(
    apply: Rows, rows: Array, shift: Array, diagonal: Array, start: Array | None = None, tol: float = 1e-10
) -> Array:
    """Solve ``(operator + shift I) w = r`` for every row r by conjugate gradients, scaled by a ``diagonal`` (R, p).

    The residual ends at ``tol`` times that of ``start``, which by default is zero, or at rounding.
    """
    xp = array_namespace(rows)
    W = xp.zeros_like(rows) if start is None else start
    residual = rows if start is None else rows - apply(W) - shift[:, None] * W
    scaled = residual / diagonal
    direction, square = scaled, xp.sum(residual * scaled, axis=1)
    goal = tol**2 * square + float(xp.finfo(rows.dtype).eps) ** 2 * xp.sum(rows**2 / diagonal, axis=1)
    for _ in range(200):
        if bool(xp.all(square <= goal)):
            break
        image = apply(direction) + shift[:, None] * direction
        curvature = xp.sum(direction * image, axis=1)
        size = (square / xp.where(curvature > 0, curvature, xp.ones_like(curvature)))[:, None]
        W, residual = W + size * direction, residual - size * image
        scaled = residual / diagonal
        before, square = square, xp.sum(residual * scaled, axis=1)
        direction = scaled + (square / xp.where(before > 0, before, xp.ones_like(before)))[:, None] * direction
    return W


def largest_eigenvalue(apply: Callable[[Array], Array], like: Array) -> float:
    """Bound the largest eigenvalue of a symmetric positive operator from above, by a block of power iterations.

    A step size needs a bound that holds: the estimate, which comes from below, is raised by the residual of its
    eigenvector, which reaches the nearest eigenvalue, and by one per cent.
    """
    xp = array_namespace(like)
    size = like.shape[-1]
    start = np.random.default_rng(0).standard_normal((size, min(8, size)))
    V = xp.linalg.qr(xp.asarray(start, dtype=like.dtype, device=device(like)))[0]
    for _ in range(12):
        image = apply(V)
        if not bool(xp.any(image != 0)):
            return 0.0
        V = xp.linalg.qr(image)[0]
    image = apply(V)
    values, Q = xp.linalg.eigh(xp.matrix_transpose(V) @ image)
    residual = image @ Q[:, -1:] - values[-1] * (V @ Q[:, -1:])
    bound: float = 1.01 * float(values[-1]) + float(xp.sqrt(xp.sum(residual**2)))
    return max(bound, 0.0)
