"""What rows span: orthonormal bases of fewer dimensions than there are columns, and the coordinates of the rows in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.linalg import positive_part

__all__ = ["Span", "short_basis", "span"]


@dataclass(frozen=True, eq=False)
class Span:
    """The principal components of rows (n, p) with more than 1e-10 of the largest variance about zero."""

    rows: Array
    vectors: Array  # eigenvectors (n, r) of the products of rows
    lengths: Array  # the roots (r,) of their eigenvalues
    dropped_vectors: Array  # eigenvectors (n, n - r) that are left out

    @classmethod
    def of(cls, rows: Array) -> Span:
        """Decompose the matrix (n, n) of inner products of rows."""
        xp = array_namespace(rows)
        values, vectors = xp.linalg.eigh(rows @ xp.matrix_transpose(rows))
        first = min(count_true(values <= 1e-10 * values[-1]), values.shape[0] - 1)  # eigenvalues ascend
        return cls(rows, vectors[:, first:], xp.sqrt(positive_part(values[first:])), vectors[:, :first])

    @property
    def coordinates(self) -> Array:
        """The coordinates (n, r) of the rows."""
        return self.vectors * self.lengths

    @cached_property
    def basis(self) -> Array:
        """The basis (p, r); computed when first asked for, since it is costly and ridge regression does not need it."""
        xp = array_namespace(self.rows)
        lengths = xp.where(self.lengths > 0, self.lengths, xp.ones_like(self.lengths))
        return xp.matrix_transpose(self.rows) @ (self.vectors / lengths)

    @cached_property
    def is_exact(self) -> bool:
        """Whether the components are accurate, none of them small, and those left out hold nothing but rounding."""
        xp = array_namespace(self.rows)
        lengths = self.lengths
        if not bool(lengths[0] > 1e-3 * lengths[-1]):
            return False
        dropped = xp.matrix_transpose(self.dropped_vectors) @ self.rows
        rounding = 100.0 * float(xp.finfo(dropped.dtype).eps)
        return bool(xp.sum(dropped**2) <= rounding**2 * xp.sum(lengths**2))


def span(rows: Array, origin: Array) -> tuple[Array, Array]:
    """Find an orthonormal basis (p, r) of rows (n, p) less an origin (p,), and their coordinates (n, r), r at most min(n, p).

    By principal components where rounding leaves them accurate (``Span.is_exact``); else by QR, which takes twice as long.
    """
    xp = array_namespace(rows)
    centred = rows - origin
    largest = xp.maximum(xp.max(centred), -xp.min(centred))
    if rows.shape[0] <= rows.shape[1] and bool(largest > 0):
        centred /= largest  # squares of these do not overflow; in place, since rows may take much of the memory
        principal = Span.of(centred)
        if principal.is_exact:
            return principal.basis, largest * principal.coordinates
        centred = rows - origin
    basis, coordinates = xp.linalg.qr(xp.matrix_transpose(centred))
    return basis, xp.matrix_transpose(coordinates)


def short_basis(rows: Array) -> Array | None:
    """Find an orthonormal basis (p, r) of many rows (n, p) that span less than three quarters of all p dimensions."""
    xp = array_namespace(rows)
    p = rows.shape[1]
    values, vectors = xp.linalg.eigh(xp.matrix_transpose(rows) @ rows)
    rank = count_true(values > 10.0 * p * float(xp.finfo(values.dtype).eps) * values[-1])
    return vectors[:, p - rank :] if 0 < rank < 0.75 * p else None


def count_true(mask: Array) -> int:
    """Count the entries of a mask that are true."""
    xp = array_namespace(mask)
    return int(xp.sum(xp.astype(mask, xp.int64)))
