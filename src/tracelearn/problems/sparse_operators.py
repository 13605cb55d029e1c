"""Covariances of sparse rows, which stay sparse: an operator like any other, by products with the rows.

Invariant: the mean is subtracted from products, never from the rows, so that nothing is filled in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tracelearn.arrays.array_api import Array
from tracelearn.arrays.linalg import conjugate_gradients, positive_part, scaled_rows, squared
from tracelearn.problems.operators import Diagonal, Gram, Rows, largest_eigenvalue

__all__ = ["LARGEST_DENSE", "SparseGram"]

# Rows and columns of the largest dense matrix that takes the place of sparse products: small enough to be factored often.
LARGEST_DENSE = 2048


@dataclass(frozen=True, eq=False)
class SparseGram:
    """The sum of ``w (x - m)(x - m)'`` over sparse rows x with weights w, where m is their mean, or zero.

    It is solved directly where the gram ``X'X`` is diagonal, as it is where a sample is one entry of a tensor, or where the
    kernel of few rows is small; the mean is then a correction of rank one. Else by conjugate gradients.
    """

    has_factor: ClassVar[bool] = True
    n_groups: ClassVar[int] = 1
    X: Any  # (n, p), in CSR format
    weight: Array
    mean: Array

    @classmethod
    def of(cls, X: Any, weight: Array, *, centre: bool) -> SparseGram:
        """Make the operator of rows about their weighted mean, or about zero unless ``centre``."""
        total = float(np.sum(weight))
        mean = (weight / total) @ X if centre and total > 0 else np.zeros(X.shape[1])
        return cls(X, weight, mean)

    @property
    def shares_shift(self) -> bool:
        """Whether all rows of one solve must have the same shift."""
        return self._uncentred is not None and self._uncentred.shares_shift

    def apply(self, rows: Array) -> Array:
        """Multiply every row, in one pass over the entries."""
        scores = (self.X @ rows.T - rows @ self.mean).T * self.weight
        return (self.X.T @ scores.T).T - np.sum(scores, axis=1, keepdims=True) * self.mean

    @cached_property
    def diagonal(self) -> Array:
        """The diagonal of the operator."""
        return positive_part(self._squares - float(np.sum(self.weight)) * self.mean**2)

    @cached_property
    def _squares(self) -> Array:
        """The weighted sum of the squares of every feature."""
        return self.weight @ squared(self.X)

    @cached_property
    def _uncentred(self) -> Diagonal | _Kernel | None:
        """The operator without its mean, in a form that is solved directly; None where there is no such form."""
        n, p = self.X.shape
        if n == 0 or int(np.max(np.diff(self.X.indptr))) <= 1:
            return Diagonal(self._squares)
        if n <= min(LARGEST_DENSE, p):
            return _Kernel(scaled_rows(self.X, np.sqrt(self.weight)))
        return None

    def solver(self, shift: Array) -> Rows:
        """Return the direct solve, corrected for the mean; or conjugate gradients, scaled by the diagonal."""
        if self._uncentred is None:
            return _Iterations(self, shift).solve
        plain = self._uncentred.solver(shift)
        if not np.any(self.mean):
            return plain
        # Sherman and Morrison: the divisor of the rank-one correction is at least shift / (shift + |v|^2), whatever rounding.
        shift = shift[:1] if self.shares_shift else shift
        v = math.sqrt(float(np.sum(self.weight))) * np.tile(self.mean, (shift.shape[0], 1))
        image = plain(v)
        divisor = 1.0 - np.sum(v * image, axis=1)
        lower_bound = shift / (shift + np.sum(v * v, axis=1))
        image = image / np.maximum(divisor, lower_bound)[:, None]

        def solve(rows: Array) -> Array:
            solution = plain(rows)
            return solution + np.sum(v * solution, axis=1, keepdims=True) * image

        return solve

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""
        return largest_eigenvalue(lambda V: self.apply(V.T).T, self.mean)

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues, which is that of the diagonal."""
        return float(np.mean(self.diagonal))

    def smallest(self) -> float:
        """Return zero: nothing is known about it."""
        return 0.0


class _Kernel:
    """The matrix ``A'A`` of few sparse rows A, through its small dense kernel ``A A'`` (Woodbury)."""

    shares_shift = True

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._gram = Gram((rows @ rows.T).toarray())

    def solver(self, shift: Array) -> Rows:
        """Return the solve ``(r - A' (A A' + s)^-1 A r) / s``."""
        A = self._rows
        inner = self._gram.solver(shift)
        level = float(shift[0])
        return lambda rows: (rows - (A.T @ inner((A @ rows.T).T).T).T) / level


class _Iterations:
    """Solves by conjugate gradients, each from the solution before.

    The right-hand sides of a loop change less and less. The error of a solve is at most a fixed share of the change, so it
    vanishes with the steps of the loop, which converges as with exact solves.
    """

    def __init__(self, system: SparseGram, shift: Array) -> None:
        self._system, self._shift = system, shift
        self._last: Array | None = None

    def solve(self, rows: Array) -> Array:
        """Solve ``(operator + shift I) w = r`` for every row r."""
        system = self._system
        shift = self._shift
        first = self._last is None
        diagonal = system.diagonal + shift[:, None]
        tol = 1e-10 if first else 1e-4
        self._last = conjugate_gradients(system.apply, rows, shift, diagonal, self._last, tol)
        return self._last
