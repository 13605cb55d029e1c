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
from tracelearn.arrays.linalg import cholesky_solver, conjugate_gradients, positive_part
from tracelearn.arrays.span import count_true
from tracelearn.arrays.subspaces import Subspaces

__all__ = [
    "Centred",
    "Coupled",
    "Diagonal",
    "Gram",
    "InBasis",
    "Operator",
    "Passes",
    "Rows",
    "SpectralGram",
    "compressed",
    "largest_eigenvalue",
    "stacked",
]

Rows = Callable[[Array], Array]  # from rows (R, p) to rows (R, p)

# In single precision eigenvalues below this share of the shift are left out of solves. It moves gaps by 1e-4 or less (measured).
_SMALL_SHARE = 0.01
# Shifts below this share of the mean eigenvalue: dividing by them would magnify what rounding leaves inside of the span.
_TINY_SHARE = 1e-6


class Operator(Protocol):
    """A symmetric positive operator on rows of p numbers, and its shifted solves."""

    @property
    def shares_shift(self) -> bool:
        """Whether all rows of one solve must have the same shift; a solve then serves any number of rows."""

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

        Each call factors anew: a loop keeps the function for as long as its step stays.
        """

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues."""

    def smallest(self) -> float:
        """Bound the smallest eigenvalue from below; zero where it is not known to be above rounding."""


@dataclass(frozen=True, eq=False)
class Diagonal:
    """A diagonal matrix: the gram of samples that each have one entry."""

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

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues."""
        return float(array_namespace(self.diagonal).mean(self.diagonal))

    def smallest(self) -> float:
        """Find the smallest eigenvalue."""
        return float(array_namespace(self.diagonal).min(self.diagonal))


@dataclass(frozen=True, eq=False)
class Gram:
    """A p by p matrix for p up to some thousands: one Cholesky factorisation for each shift."""

    has_factor: ClassVar[bool] = True
    shares_shift: ClassVar[bool] = True
    n_groups: ClassVar[int] = 1
    matrix: Array

    def apply(self, rows: Array) -> Array:
        """Multiply every row, by the matrix of its group where there are several."""
        xp = array_namespace(rows)
        groups = self.matrix.shape[:-2]
        return xp.reshape(xp.reshape(rows, (*groups, -1, rows.shape[1])) @ self.matrix, rows.shape)

    def single(self) -> Gram:
        """Return the same in single precision."""
        return Gram(to_single(self.matrix))

    def solver(self, shift: Array) -> Rows:
        """Return the solve for shifts (R,) that are equal."""
        return cholesky_solver(self.matrix, float(shift[0]))

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""
        return largest_eigenvalue(lambda V: self.matrix @ V, self.matrix)

    @cached_property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues, which is that of the diagonal."""
        xp = array_namespace(self.matrix)
        return float(xp.mean(xp.linalg.diagonal(self.matrix)))

    def smallest(self) -> float:
        """Find the smallest eigenvalue, less the rounding error; zero if that is not positive."""
        return _above_rounding(array_namespace(self.matrix).linalg.eigvalsh(self.matrix))


def _above_rounding(values: Array) -> float:
    """Find the smallest of eigenvalues (..., p), less the rounding error; zero if that is not positive."""
    xp = array_namespace(values)
    rounding: float = 10 * values.shape[-1] * float(xp.finfo(values.dtype).eps) * float(xp.max(values))
    return max(0.0, float(xp.min(values)) - rounding)


@dataclass(frozen=True, eq=False)
class SpectralGram(Gram):
    """A p by p matrix, or a stack (G, p, p) of them, one for each group of rows: one eigendecomposition for all shifts.

    Every row has a shift of its own. The decomposition costs more than a factorisation, but serves a whole path, its folds and
    its ridges.
    ``decomposition`` holds eigenvalues and eigenvectors where they are known already.
    """

    shares_shift: ClassVar[bool] = False
    decomposition: tuple[Array, Array] | None = None

    @property
    def n_groups(self) -> int:  # type: ignore[override]
        """The number of matrices."""
        return 1 if self.matrix.ndim == 2 else int(self.matrix.shape[0])

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """The eigenvalues (..., p), ascending and not below zero, and the eigenvectors (..., p, p)."""
        if self.decomposition is not None:
            return self.decomposition
        values, vectors = array_namespace(self.matrix).linalg.eigh(self.matrix)
        return positive_part(values), vectors

    def single(self) -> SpectralGram:
        """Return the same in single precision, decomposed in double precision."""
        values, vectors = self.eigen
        return SpectralGram(to_single(self.matrix), (to_single(values), to_single(vectors)))

    def solver(self, shift: Array) -> Rows:
        """Return the solve for shifts (R,)."""
        xp = array_namespace(shift)
        values, vectors = self.eigen
        divisor = values[..., None, :] + xp.reshape(shift, (*self.matrix.shape[:-2], -1, 1))
        back = xp.matrix_transpose(vectors)

        def solve(rows: Array) -> Array:
            coordinates = xp.reshape(rows, divisor.shape) @ vectors
            return xp.reshape((coordinates / divisor) @ back, rows.shape)

        return solve

    def largest(self) -> float:
        """Find the largest eigenvalue."""
        return float(array_namespace(self.matrix).max(self.eigen[0]))

    def smallest(self) -> float:
        """Find the smallest eigenvalue, less the rounding error; zero if that is not positive."""
        return _above_rounding(self.eigen[0])


@dataclass(frozen=True, eq=False)
class InBasis:
    """An operator on the coordinates in an orthonormal ``basis`` (p, r), zero outside: fewer samples than features.

    Products with samples depend on nothing outside their span. All groups of rows share the basis.
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

    @cached_property
    def _principal(self) -> tuple[Array, Array]:
        """The eigenvalues (r,) of the one matrix, and its eigenvectors (p, r) as vectors of all features."""
        assert isinstance(self.inner, SpectralGram)
        values, vectors = self.inner.eigen
        return values, self.basis @ vectors

    def solver(self, shift: Array) -> Rows:
        """Return the solve: by ``inner`` in the span of the basis, a division by the shift in its complement.

        With basis U, inner operator A and shift s it is ``w = U (A + s I)^-1 U' r + (r - U U' r) / s``.
        """
        if isinstance(self.inner, SpectralGram) and self.n_groups == 1:
            return self._spectral_solver(shift)
        xp = array_namespace(shift)
        basis = self.basis
        inner = self.inner.solver(shift)
        back = xp.matrix_transpose(basis)
        divisor = shift[:1, None] if self.shares_shift else shift[:, None]
        # What is outside of the span is divided by the shift, and so is the rounding of it that lies inside: with a tiny shift
        # that would be no solution, so it is removed once more.
        is_tiny = float(xp.min(divisor)) < _TINY_SHARE * self.inner.mean_eigenvalue

        def solve(rows: Array) -> Array:
            coordinates = rows @ basis
            if not is_tiny:
                return (rows + (divisor * inner(coordinates) - coordinates) @ back) / divisor
            outside = rows - coordinates @ back
            outside = outside - (outside @ basis) @ back
            return inner(coordinates) @ back + outside / divisor

        return solve

    def _spectral_solver(self, shift: Array) -> Rows:
        """Return the solve in the eigenvectors of the operator, which saves the change to the basis and back."""
        xp = array_namespace(shift)
        values, principal = self._principal
        if values.ndim == 1 and values.dtype == xp.float32:
            # Eigenvalues ascend. Those that are negligible against the shift are dropped; the certificate counts the error.
            first = count_true(values < _SMALL_SHARE * xp.min(shift))
            values = values[first:]
            principal = principal[:, first:]
        back = xp.matrix_transpose(principal)
        removed_share = values / (values + shift[:, None])
        return lambda rows: (rows - ((rows @ principal) * removed_share) @ back) / shift[:, None]

    def single(self) -> InBasis:
        """Return the same in single precision."""
        return InBasis(self.inner.single(), to_single(self.basis))

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""
        return self.inner.largest()

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the p eigenvalues, of which at most r are not zero."""
        return self.inner.mean_eigenvalue * float(self.basis.shape[1] / self.basis.shape[0])

    def smallest(self) -> float:
        """Return zero: with fewer samples than features there is a null space."""
        return 0.0


def stacked(operators: Sequence[Any]) -> Any:
    """Join operators of one kind, one for each group of rows, to be solved by one stacked eigendecomposition."""
    first = operators[0]
    if isinstance(first, InBasis):
        return InBasis(stacked([operator.inner for operator in operators]), first.basis)
    return SpectralGram(array_namespace(first.matrix).stack([operator.matrix for operator in operators]))


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

    def compressed(self, subspaces: Subspaces) -> Array:
        """Find the matrix of the operator for cores in subspaces, in one pass over the projected samples."""
        mean = subspaces.project(self.mean[None, :])

        def products(X: Array, Y: Array, share: Array, z: Array) -> Array:
            cores = subspaces.project(X) - mean
            return (cores * share[:, None]).T @ cores

        return self.factor * self.total(products)

    def solver(self, shift: Array) -> Rows:
        """Return the solve by conjugate gradients, a pass for each step."""
        ones = array_namespace(shift).ones_like(shift)[:, None]
        return lambda rows: conjugate_gradients(self.apply, rows, shift, ones)

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""
        xp = array_namespace(self.mean)
        return largest_eigenvalue(lambda V: xp.matrix_transpose(self.apply(xp.matrix_transpose(V))), self.mean)

    @cached_property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues, which is the mean variance of the features: one pass."""
        xp = array_namespace(self.mean)
        squares = self.total(lambda X, Y, share, z: share @ (X - self.mean) ** 2)
        return self.factor * float(xp.mean(squares))

    def smallest(self) -> float:
        """Return zero: nothing is known about it."""
        return 0.0


@dataclass(frozen=True, eq=False)
class Centred:
    """One matrix for the deviations of R rows from their mean row, zero for the mean row: ``(I - 11'/R)`` times the matrix.

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
        xp = array_namespace(shift)
        inner = self.inner.solver(shift)

        def solve(rows: Array) -> Array:
            mean = xp.mean(rows, axis=0, keepdims=True)
            return inner(rows - mean) + mean / shift[:, None]

        return solve

    def largest(self) -> float:
        """Bound the largest eigenvalue."""
        return self.inner.largest()

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues of the matrix."""
        return self.inner.mean_eigenvalue

    def smallest(self) -> float:
        """Return zero: equal rows are in the null space."""
        return 0.0


@dataclass(frozen=True, eq=False)
class Coupled:
    """One matrix for all K rows together, zero for equal rows.

    ``inner`` acts on ``contrasts`` (K, K - 1) between the rows, laid side by side, in coordinates of an orthonormal ``basis``
    (p, r), or of all p where that is None.
    """

    shares_shift: ClassVar[bool] = True
    n_groups: ClassVar[int] = 1
    has_factor: ClassVar[bool] = True
    inner: Operator
    contrasts: Array
    basis: Array | None = None

    def _coordinates(self, rows: Array) -> Array:
        """Lay the contrasts between rows side by side, in coordinates of the basis: (1, (K - 1) r)."""
        xp = array_namespace(rows)
        contrasts = xp.matrix_transpose(self.contrasts) @ rows
        return xp.reshape(contrasts if self.basis is None else contrasts @ self.basis, (1, -1))

    def _rows(self, coordinates: Array) -> Array:
        """Undo ``_coordinates`` for rows inside the span of contrasts and basis."""
        xp = array_namespace(coordinates)
        contrasts = xp.reshape(coordinates, (self.contrasts.shape[1], -1))
        return self.contrasts @ (contrasts if self.basis is None else contrasts @ xp.matrix_transpose(self.basis))

    def apply(self, rows: Array) -> Array:
        """Multiply all rows together."""
        return self._rows(self.inner.apply(self._coordinates(rows)))

    def solver(self, shift: Array) -> Rows:
        """Return the solve for all rows together: a division by the shift outside the contrasts and the basis."""
        divisor = shift[:1, None]
        inner = self.inner.solver(shift[:1])

        def solve(rows: Array) -> Array:
            inside = self._coordinates(rows)
            return (rows + self._rows(divisor * inner(inside) - inside)) / divisor

        return solve

    def largest(self) -> float:
        """Bound the largest eigenvalue."""
        return self.inner.largest()

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues, those outside the contrasts and the basis too."""
        share = self.contrasts.shape[1] / self.contrasts.shape[0]
        if self.basis is not None:
            share = share * (self.basis.shape[1] / self.basis.shape[0])
        return self.inner.mean_eigenvalue * float(share)

    def smallest(self) -> float:
        """Return zero: equal rows are in the null space."""
        return 0.0


def compressed(operator: Operator, subspaces: Subspaces) -> Array:
    """Find the matrix of an operator restricted to subspaces: it acts on cores."""
    if isinstance(operator, Passes):
        return operator.compressed(subspaces)
    like = subspaces.bases[0]
    size = math.prod(subspaces.core_shape)
    cores = array_namespace(like).eye(size, dtype=like.dtype, device=device(like))
    matrix = subspaces.project(operator.apply(subspaces.lift(cores)))
    return 0.5 * (matrix + matrix.T)


def largest_eigenvalue(apply: Callable[[Array], Array], like: Array) -> float:
    """Bound the largest eigenvalue of a symmetric positive operator from above, by a block of power iterations.

    A step size needs a true bound, and power iterations estimate from below. So the residual of the eigenvector, which bounds
    the distance to the nearest eigenvalue, is added, and one per cent.
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
