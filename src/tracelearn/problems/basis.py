"""Samples seen by their coordinates in what they span, and about which origin."""

from __future__ import annotations

from tracelearn.arrays.array_api import Array
from tracelearn.arrays.span import span
from tracelearn.samples.samples import Samples

__all__ = ["in_basis", "origin_of", "variances_about"]


def in_basis(samples: Samples, *, fit_intercept: bool) -> tuple[Array, Array, Samples]:
    """Find an orthonormal basis (p, r) of the samples about an origin (p,), and the samples as their coordinates."""
    origin = origin_of(samples, fit_intercept=fit_intercept)
    basis, coordinates = span(samples.rows - origin)  # type: ignore[operator]
    return basis, origin, samples.with_rows(coordinates, (coordinates.shape[1],))


def origin_of(samples: Samples, *, fit_intercept: bool) -> Array:
    """Find what samples in memory are seen about, (p,): their mean, or zero without an intercept.

    A feature that is constant up to the rounding of its mean would look like one that tells samples apart. The mean is found
    about the first sample, so that what all have in common is found exactly.
    """
    (block,) = samples.blocks
    first = block.X[0, :]
    return first + (block.weight / samples.weight) @ (block.X - first) if fit_intercept else 0.0 * first


def variances_about(samples: Samples, origin: Array) -> Array:
    """Average the squares of the features (p,) about an origin."""
    variances: Array = samples.total(lambda X, Y, share, z: share @ (X - origin) ** 2)
    return variances
