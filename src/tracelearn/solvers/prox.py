"""The proximal point of a tensor trace norm: the one step of the paper's Algorithm 1 that has no closed form.

Both methods minimise ``curvature/2 |W - P|^2 + alpha norm(W)`` and return the point with its split over the modes.
"""

from __future__ import annotations

from collections.abc import Callable

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Penalty, Split

__all__ = ["PROXES", "Prox", "prox_adm", "prox_dr"]

Prox = Callable[..., tuple[Array, Split]]

_UNIT = 0.01  # of the length of P: what a point that is nearly zero is measured by


def _length(T: Array) -> float:
    xp = array_namespace(T)
    return float(xp.sqrt(xp.sum(T**2)))


def _still(before: Array | None, after: Array, tol: float, unit: float) -> bool:
    """Whether a step is short against where it began and ``unit``: with 1 for it, the paper's rule (Eq. 27)."""
    return before is not None and _length(after - before) <= tol * (unit + _length(before))


def prox_adm(
    penalty: Penalty,
    P: Array,
    alpha: Array,
    curvature: float,
    split: Split | None = None,
    *,
    beta: float | None = None,
    tol: float = 1e-10,
    unit: float | None = None,
    max_iter: int = 100,
) -> tuple[Array, Split]:
    """Find the proximal point by the alternating direction method of multipliers (the paper's Eq. 26).

    Parameters
    ----------
    P : array of shape (B, *penalty.shape)
    alpha : array of shape (B,)
    curvature : the paper's L
    split : where an earlier call ended, to start from
    beta : the paper's penalty parameter; by default ``curvature``, since it must scale with it
    tol : stop when a step is at most this times the length of the point it began at, plus ``unit``
    unit : by default a hundredth of the length of P; the paper has 1 there, for any P

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.penalties import OverlappedTraceNorm
    >>> from tracelearn.solvers.prox import prox_adm
    >>> W, split = prox_adm(OverlappedTraceNorm((2, 2)), np.diag([3.0, 1.0])[None], np.array([2.0]), 1.0)
    >>> np.round(W[0], 9)
    array([[1., 0.],
           [0., 0.]])
    """
    xp = array_namespace(P)
    split = penalty.start(P) if split is None else split
    rho = xp.full_like(alpha, curvature if beta is None else beta)
    unit = _UNIT * _length(P) if unit is None else unit
    W = None
    for _ in range(max_iter):
        pull, shift = penalty.pull(split, rho)
        # Eq. 26, first line. U there is minus our duals: they point from W to its parts.
        before, W = W, (curvature * P + pull) / xp.reshape(curvature + shift, (-1, *(1,) * (P.ndim - 1)))
        split = penalty.push(split, W, alpha, rho, 1.0)
        if _still(before, W, tol, unit):
            break
    return W, split


def prox_dr(
    penalty: Penalty,
    P: Array,
    alpha: Array,
    curvature: float,
    split: Split | None = None,
    *,
    gamma: float | None = None,
    tol: float = 1e-10,
    unit: float | None = None,
    max_iter: int = 100,
) -> tuple[Array, Split]:
    """Find the proximal point by Douglas-Rachford splitting (the paper's Eq. 22 and 23).

    As ``prox_adm``; ``gamma`` is the paper's step, by default ``1 / ((N + 1) curvature)``, since it must scale with it.
    """
    split = penalty.start(P) if split is None else split
    step = 1.0 / curvature if gamma is None else (len(penalty.shape) + 1) * gamma
    unit = _UNIT * _length(P) if unit is None else unit
    W = None
    for _ in range(max_iter):
        before = W
        W, split = penalty.reflect(split, P, alpha, curvature, step)
        if _still(before, W, tol, unit):
            break
    return W, split


PROXES: dict[str, Prox] = {"adm": prox_adm, "dr": prox_dr}
