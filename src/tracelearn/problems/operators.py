"""Symmetric positive operators on rows of p numbers, each with the shifted solve that ADMM needs.

An operator is the Hessian of a data fit, or a bound of it; the kinds differ in what they keep and factor. Rows may come in
G groups of equal length, one after the other, with one matrix for each: the folds of a search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, Protocol

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace, to_single
from tracelearn.arrays.linalg import conjugate_gradients, positive_part
from tracelearn.arrays.subspaces import Subspaces

__all__ = [
    "Alike",
    "Centred",
    "Coupled",
    "Diagonal",
    "Operator",
    "Passes",
    "compressed",
    "largest_eigenvalue",
]

Rows = Callable[[Array], Array]  # from rows (R, p) to rows (R, p)

_NEAR = 0.65  # a distance below which a dozen products are less than an eigendecomposition
_DOUBLINGS = 5  # of the power whose length bounds a distance: at p = 1000 by at most a tenth too much


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

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues."""

    def smallest(self) -> float:
        """Bound the smallest eigenvalue from below; zero where it is not known to be above rounding."""


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

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues."""
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
    _last: list[tuple[Array, Array]] = field(default_factory=list, init=False, repr=False)  # rows, and what they became

    def apply(self, rows: Array) -> Array:
        """Multiply every row by the covariance, in one pass; the last product is remembered."""
        xp = array_namespace(rows)
        for known, found in self._last:
            if known.shape == rows.shape and bool(xp.all(known == rows)):
                return found
        offset = (rows @ self.mean)[:, None]

        def products(X: Array, Y: Array, share: Array, z: Array) -> tuple[Array, Array]:
            scores = (rows @ X.T - offset) * share
            return scores @ X, xp.sum(scores, axis=1, keepdims=True)

        total, weight = self.total(products)
        found = self.factor * (total - weight * self.mean)
        self._last[:] = [(rows, found)]
        return found

    def compressed(self, subspaces: Subspaces) -> Array:
        """Find the matrix that this is for cores in subspaces, in one pass: only cores are multiplied with each other."""
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

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues of the matrix."""
        return self.inner.mean_eigenvalue

    def smallest(self) -> float:
        """Return zero: it does not see what all rows have in common."""
        return 0.0


@dataclass(frozen=True, eq=False)
class Coupled:
    """One matrix for all rows together, in coordinates of an orthonormal ``basis`` (p, r), or of all p where None."""

    shares_shift: ClassVar[bool] = True
    n_groups: ClassVar[int] = 1
    has_factor: ClassVar[bool] = True
    inner: Operator
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

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues, those outside the basis too."""
        share = 1.0 if self.basis is None else self.basis.shape[1] / self.basis.shape[0]
        return self.inner.mean_eigenvalue * float(share)

    def smallest(self) -> float:
        """Bound the smallest eigenvalue, which outside a basis is zero."""
        return self.inner.smallest() if self.basis is None else 0.0


@dataclass(frozen=True, eq=False)
class Alike:
    """Matrices (G, p, p) close to their mean, in its eigenvectors, where they are nearly diagonal: the folds of many samples.

    One eigendecomposition serves all of them, by Chebyshev's iteration. How many products that takes follows from the distance,
    so nothing is looked at on the way, and a GPU can record it. Any shift that is added only brings them closer.
    """

    vectors: Array  # (p, p), of the mean
    values: Array  # (p,)
    rest: Array  # the matrices in these eigenvectors, without the eigenvalues of the mean
    distance: float  # a bound of the rest, in units of these eigenvalues

    @classmethod
    def of(cls, matrices: Array) -> Alike | None:
        """Decompose the mean; None where the matrices are too far from it."""
        xp, p = array_namespace(matrices), matrices.shape[-1]
        values, vectors = xp.linalg.eigh(xp.mean(matrices, axis=0))
        rest = xp.matrix_transpose(vectors) @ matrices @ vectors
        rest = rest - values * xp.eye(p, dtype=values.dtype, device=device(values))
        least = 10.0 * p * float(xp.finfo(values.dtype).eps) * values[-1]
        unit = xp.sqrt(xp.where(values > least, values, least))
        power = rest / (unit[:, None] * unit)
        for _ in range(_DOUBLINGS):
            power = power @ power
        distance = float(xp.max(xp.sum(power**2, axis=(1, 2)))) ** 0.5 ** (_DOUBLINGS + 1)
        return cls(vectors, positive_part(values), rest, distance) if distance < _NEAR else None

    def single(self) -> Alike:
        """Return the same in single precision."""
        return Alike(to_single(self.vectors), to_single(self.values), to_single(self.rest), self.distance)

    @cached_property
    def turns(self) -> Array:
        """What a step of the iteration takes of the last one, and of the residual: (m, 2), for an error near rounding."""
        xp, slow = array_namespace(self.rest), max(self.distance, 1e-3)
        fall = 1.0 / slow + math.sqrt(1.0 / slow**2 - 1.0)
        count = math.ceil(math.log(20.0 / math.sqrt(float(xp.finfo(self.rest.dtype).eps))) / math.log(fall))
        found, last = [], slow
        for _ in range(count - 1):
            now = 1.0 / (2.0 / slow - last)
            found.append((now * last, 2.0 * now / slow))
            last = now
        return xp.asarray(found, dtype=self.rest.dtype, device=device(self.rest))

    def solver(self, shift: Array) -> Rows:
        """Return the solve for shifts (R,), with the rows of each matrix one after the other."""
        return partial(_in_common, self.vectors, self.values + shift[:, None], self.rest, self.turns)


def _in_common(vectors: Array, divisor: Array, rest: Array, turns: Array, rows: Array) -> Array:
    """Solve ``(diagonal + rest) w = r`` for coordinates in eigenvectors, from the diagonal (R, p), by Chebyshev's iteration."""
    xp, groups = array_namespace(rows), (rest.shape[0], -1, rest.shape[-1])
    residual = (rows @ vectors) / divisor
    found = step = residual
    for k in range(turns.shape[0]):
        image = xp.reshape(xp.reshape(step, groups) @ rest, rows.shape)
        residual = residual - step - image / divisor
        step = turns[k, 0] * step + turns[k, 1] * residual
        found = found + step
    return found @ xp.matrix_transpose(vectors)


def compressed(operator: Operator, subspaces: Subspaces) -> Array:
    """See an operator from inside subspaces: the matrix that it is for cores."""
    if isinstance(operator, Passes):
        return operator.compressed(subspaces)
    like, size = subspaces.bases[0], math.prod(subspaces.core_shape)
    cores = array_namespace(like).eye(size, dtype=like.dtype, device=device(like))
    matrix = subspaces.project(operator.apply(subspaces.lift(cores)))
    return 0.5 * (matrix + matrix.T)


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
