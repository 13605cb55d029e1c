"""Subspaces of the modes of a tensor: what a Tucker decomposition keeps its core in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tracelearn.arrays.array_api import Array, array_namespace

__all__ = ["Subspaces"]


@dataclass(frozen=True, eq=False)
class Subspaces:
    """An orthonormal basis (I_n, r_n) for each mode; rows (m, p) are tensors of shape (I1, ..., IN), flat.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.subspaces import Subspaces
    >>> subspaces = Subspaces((np.eye(3)[:, :1], np.eye(4)[:, :2]))
    >>> subspaces.project(np.arange(12.0)[None])
    array([[0., 1.]])
    >>> subspaces.lift(np.array([[5.0, 7.0]])).reshape(3, 4)
    array([[5., 7., 0., 0.],
           [0., 0., 0., 0.],
           [0., 0., 0., 0.]])
    """

    bases: tuple[Array, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a whole tensor."""
        return tuple(int(basis.shape[0]) for basis in self.bases)

    @property
    def core_shape(self) -> tuple[int, ...]:
        """The shape of a core."""
        return tuple(int(basis.shape[1]) for basis in self.bases)

    def project(self, rows: Array) -> Array:
        """Find the cores (m, r1 ... rN) of the projections of tensors (m, p)."""
        return _products(rows, self.shape, self.bases)

    def lift(self, cores: Array) -> Array:
        """Find the tensors (m, p) that have these cores (m, r1 ... rN)."""
        transpose = array_namespace(cores).matrix_transpose
        return _products(cores, self.core_shape, [transpose(basis) for basis in self.bases])

    def narrowed(self, cores: Array) -> Subspaces:
        """Keep the smallest subspaces that contain the tensors of some cores (m, r1 ... rN)."""
        xp = array_namespace(cores)
        T = xp.reshape(cores, (-1, *self.core_shape))
        directions = [leading(fibres(T, mode)) for mode in range(len(self.bases))]
        return Subspaces(tuple(basis @ inner for basis, inner in zip(self.bases, directions, strict=True)))

    def widened(self, rows: Array, *, size: int, least: int) -> Subspaces:
        """Add to every mode the directions in which tensors (m, p) leave the subspaces most.

        Every mode gets the same number of directions, or fewer where it has no more: the largest number for which the core
        has at most ``size`` entries, but at least ``least``.
        """
        xp = array_namespace(rows)
        T = xp.reshape(rows, (-1, *self.shape))
        # Relative to the tensors: the residual of tensors that lie in the subspaces is nothing but rounding.
        length = xp.sqrt(xp.sum(rows**2))
        directions = []
        for mode, basis in enumerate(self.bases):
            M = fibres(T, mode)
            directions.append(leading(M - basis @ (xp.matrix_transpose(basis) @ M), length))

        def counts(limit: int) -> list[int]:
            """Count the new directions of each mode, at most ``limit``."""
            return [min(limit, int(added.shape[1])) for added in directions]

        def core_size(limit: int) -> int:
            """Count the entries of the core with up to ``limit`` new directions for each mode."""
            return math.prod(rank + count for rank, count in zip(self.core_shape, counts(limit), strict=True))

        limit = least
        while limit < max(self.shape) and core_size(limit + 1) <= size:
            limit += 1
        bases = []
        for basis, added, count in zip(self.bases, directions, counts(limit), strict=True):
            bases.append(xp.linalg.qr(xp.concat([basis, added[:, :count]], axis=1))[0])
        return Subspaces(tuple(bases))


def fibres(T: Array, mode: int) -> Array:
    """Arrange the fibres of one mode of all tensors of a batch (m, I1, ..., IN) as the columns of one matrix."""
    xp = array_namespace(T)
    return xp.reshape(xp.moveaxis(T, mode + 1, 0), (T.shape[mode + 1], math.prod(T.shape) // T.shape[mode + 1]))


def leading(M: Array, length: Array | None = None) -> Array:
    """Find the left singular vectors of a matrix, by decreasing singular value, those of rounding left out.

    Values below 1e-10 of the largest one, or of ``length``, are rounding.
    """
    xp = array_namespace(M)
    U, sigma, _ = xp.linalg.svd(M, full_matrices=False)
    rank = int(xp.sum(xp.astype(sigma > 1e-10 * (sigma[0] if length is None else length), xp.int64)))
    return U[:, :rank]


def _products(rows: Array, shape: tuple[int, ...], matrices: Sequence[Array]) -> Array:
    """Multiply flat tensors of a shape with a matrix (I_n, r_n) along every mode."""
    xp = array_namespace(rows)
    m = rows.shape[0]
    sizes = list(shape)
    T = xp.reshape(rows, (m, -1, sizes[-1])) @ matrices[-1]  # the last mode first: one large product
    sizes[-1] = int(matrices[-1].shape[1])
    for mode, matrix in enumerate(matrices[:-1]):
        before = math.prod(sizes[:mode])
        after = math.prod(sizes[mode + 1 :])
        T = xp.matrix_transpose(matrix) @ xp.reshape(T, (m * before, sizes[mode], after))
        sizes[mode] = int(matrix.shape[1])
    return xp.reshape(T, (m, math.prod(sizes)))
