"""Covariances of signals over time: shrunk, and completed where signals are missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace

__all__ = [
    "completed_covariances",
    "positive_part",
    "shrunk_covariances",
]


def shrunk_covariances(C: Array, shrinkage: Any, n_times: int) -> Array:
    """Shrink covariances (..., c, c) of so many times towards the identity times their mean variance."""
    xp = array_namespace(C)
    c = C.shape[-1]
    level = xp.linalg.trace(C)[..., None, None] / c
    if shrinkage == "oas":
        square = xp.mean(C**2, axis=(-2, -1), keepdims=True)
        among = (n_times + 1.0) * (square - level**2 / c)
        share = (square + level**2) / xp.where(among > 0, among, xp.ones_like(among))
        shrinkage = xp.where(among > 0, xp.clip(share, max=1.0), xp.ones_like(among))
    eye = xp.eye(c, dtype=C.dtype, device=device(C))
    return (1.0 - shrinkage) * C + shrinkage * level * eye


def completed_covariances(S: Array, M: Array) -> Array:
    """Complete matrices S (n, ..., c, c) whose NaN are whole rows and columns, by what M (..., c, c) expects of them.

    Missing signals are predicted from those that were seen by the regression that M implies. So ``M^(-1/2) S M^(-1/2)`` differs
    from the identity only in directions that were seen.
    """
    size = S.shape[-1]
    is_seen = ~np.isnan(np.diagonal(S, axis1=-2, axis2=-1))
    if is_seen.all():
        return S
    flat = S.reshape(-1, size, size).copy()
    references = np.broadcast_to(M, S.shape).reshape(-1, size, size)
    is_seen = is_seen.reshape(-1, size)
    for pattern in np.unique(is_seen, axis=0):
        if pattern.all():
            continue
        matrices = np.flatnonzero(np.all(is_seen == pattern, axis=1))
        seen, missing = np.flatnonzero(pattern), np.flatnonzero(~pattern)
        R = references[matrices]
        scale = np.sqrt(np.diagonal(R, axis1=-2, axis2=-1))
        scale = np.where(scale > 0, scale, 1.0)
        R = R / (scale[:, :, None] * scale[:, None, :])
        across = R[:, missing[:, None], seen]
        regression = across @ np.linalg.pinv(R[:, seen[:, None], seen], hermitian=True)
        covariance_of_seen = flat[matrices][:, seen[:, None], seen] / (scale[:, seen, None] * scale[:, None, seen])
        completed = R.copy()
        predicted = regression @ covariance_of_seen
        completed[:, seen[:, None], seen] = covariance_of_seen
        completed[:, missing[:, None], seen] = predicted
        completed[:, seen[:, None], missing] = np.swapaxes(predicted, 1, 2)
        completed[:, missing[:, None], missing] += (predicted - across) @ np.swapaxes(regression, 1, 2)
        flat[matrices] = completed * (scale[:, :, None] * scale[:, None, :])
    return flat.reshape(S.shape)


def positive_part(C: Array) -> Array:
    """Find the positive semidefinite matrices that are nearest to symmetric ones (..., c, c)."""
    values, vectors = np.linalg.eigh((C + np.swapaxes(C, -1, -2)) / 2)
    return (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
