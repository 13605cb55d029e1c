"""Matrices of modes: powers of covariances, and tensors multiplied by a matrix along every mode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace, move_to

__all__ = ["multiply_modes", "symmetric_power"]


def multiply_modes(T: Array, matrices: Sequence[Array]) -> Array:
    """Multiply axis n + 1 of tensors by ``matrices[n]`` of shape (r_n, I_n), for every mode n."""
    # Each product moves the first mode to the end: after all of them the order is the original one.
    for matrix in matrices:
        T = array_namespace(T).tensordot(T, move_to(matrix, T, T.dtype), axes=((1,), (1,)))
    return T


def symmetric_power(C: Array, power: float, without_variance: float) -> Array:
    """Raise positive matrices (..., c, c) to a power.

    Directions without variance, which have no negative powers, are multiplied by ``without_variance`` instead.
    """
    values, vectors = np.linalg.eigh(C)
    varies = values > C.shape[-1] * np.finfo(np.float64).eps * values[..., -1:]
    powers = np.where(varies, np.where(varies, values, 1.0) ** power, without_variance)
    return (vectors * powers[..., None, :]) @ np.swapaxes(vectors, -1, -2)
