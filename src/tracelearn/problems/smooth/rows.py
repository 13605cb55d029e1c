"""Sums, means and repetitions of rows, between problems (B,) and their rows (B K,), and a bound that needs only those."""

from __future__ import annotations

from tracelearn.arrays.array_api import Array, array_namespace

__all__ = ["least_value", "mean_row", "repeated", "summed"]


def repeated(per_problem: Array, n_rows: int) -> Array:
    """Repeat a (B,) array for each of the rows of its problem."""
    count = n_rows // per_problem.shape[0]
    return per_problem if count == 1 else array_namespace(per_problem).repeat(per_problem, count)


def summed(per_row: Array, n_problems: int) -> Array:
    """Sum an array over the rows of each problem."""
    xp = array_namespace(per_row)
    return per_row if per_row.shape == (n_problems,) else xp.sum(xp.reshape(per_row, (n_problems, -1)), axis=1)


def least_value(value: Array, gradient: Array, curvature: Array, error: Array) -> Array:
    """Bound the minimum of a function from its value, its gradient and a lower bound (B,) of its curvature.

    ``f >= f(w) - |g|^2 / (2 m)`` where ``f - m/2 |.|^2`` is convex; no loss is below zero. The length of the gradient may be
    off by ``error`` (B,): where features are collinear and the ridge is tiny, that is what the bound is made of.
    """
    xp = array_namespace(value)
    square = (xp.sqrt(summed(xp.sum(gradient**2, axis=1), value.shape[0])) + error) ** 2
    # Divided only where something is left: a gradient divided by the curvature of a tiny ridge would overflow.
    bounded = square < 2.0 * curvature * value
    known = xp.where(bounded, curvature, xp.ones_like(curvature))
    return xp.where(bounded, value - square / (2.0 * known), xp.zeros_like(value))


def mean_row(rows: Array, share: Array) -> Array:
    """Average rows (n, p) by shares that sum to one, about the first: what all have in common is found exactly.

    A feature that is constant up to the rounding of its mean would look like one that tells samples apart.
    """
    return rows[0, :] + share @ (rows - rows[0, :])
