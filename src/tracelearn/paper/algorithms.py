"""The paper's Algorithms 1 and 2 as printed: its step, its bias update, its stopping rule, its sums instead of means.

"Trace Norm Regularized Tensor Classification and Its Online Learning Approaches" (Shi, Zheng and Han). Kept for what
they are: the record of the paper, to compare with. The names of its six algorithms are combinations of what is here:

==========================  =====================================================
APG_DR, APG_ADM             ``algorithm1`` with ``inner="dr"`` or ``inner="adm"``
OL_APG_DR, OL_APG_ADM       ``algorithm2`` fed with single samples
OL_APG_DR_miniBatch, ...    ``algorithm2`` fed with batches
==========================  =====================================================

Errata that are followed: P in Eq. 17 uses Z_k, not Z_(k-1); line 13 of Algorithm 2 means L_t where it prints L; the
mini-batch sums of Eq. 28 replace lines 5 to 9, not 5 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tracelearn.arrays.tensors import Array, array_namespace, frobenius_norm
from tracelearn.moments import Moments
from tracelearn.penalties import OverlappedTraceNorm, Split
from tracelearn.solvers.prox import prox_adm, prox_dr

__all__ = ["Constants", "Iterate", "algorithm1", "algorithm2"]


@dataclass(frozen=True)
class Constants:
    """The constants of the paper's section 6.

    ``lam`` multiplies the norm while the loss is a sum over samples. ``inner_iter`` bounds the iterations of one
    proximal point, on which the paper is silent; within the bound they stop by the rule of Eq. 27 as well.

    Examples
    --------
    >>> from tracelearn.paper.algorithms import Constants
    >>> Constants(inner="dr", lam=10.0).gamma
    1e-07
    """

    inner: str = "adm"
    lam: float = 1.0
    beta: float = 1e7
    gamma: float = 1e-7
    eps1: float = 1e-10
    eps2: float = 1e-10
    inner_iter: int = 100


@dataclass(frozen=True, eq=False)
class Iterate:
    """Weights and bias after ``n_iter`` iterations and ``n_seen`` samples; ``converged`` by the rule of Eq. 27.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.paper.algorithms import Iterate
    >>> start = Iterate(np.zeros((4, 3)), 0.0)
    >>> start.n_iter, start.converged
    (0, False)
    """

    W: Array
    b: float
    split: Split | None = None
    n_iter: int = 0
    n_seen: float = 0.0
    converged: bool = False


def _proximal_point(P: Array, L: float, constants: Constants, split: Split | None) -> tuple[Array, Split]:
    penalty = OverlappedTraceNorm(tuple(P.shape))
    xp = array_namespace(P)
    strength = xp.full_like(xp.reshape(P, (-1,))[:1], constants.lam)
    common = {"tol": constants.eps1, "unit": 1.0, "max_iter": constants.inner_iter}
    if constants.inner == "adm":
        W, split = prox_adm(penalty, P[None, ...], strength, L, split, beta=constants.beta, **common)  # type: ignore[arg-type]
    else:
        W, split = prox_dr(penalty, P[None, ...], strength, L, split, gamma=constants.gamma, **common)  # type: ignore[arg-type]
    return W[0, ...], split


def algorithm1(
    past: Moments,
    shape: tuple[int, ...],
    constants: Constants,
    start: Iterate | None = None,
    *,
    fit_intercept: bool = True,
) -> Iterator[Iterate]:
    """Yield the iterates of Algorithm 1 (with the bias update of Eq. 13), which are lines 11 to 19 of Algorithm 2.

    Parameters
    ----------
    past : moments of one target, from which A, B, c, D and L follow
    start : where to start from, the warm restart of line 11; by default zero

    Examples
    --------
    >>> from itertools import islice
    >>> from tracelearn import Moments
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.paper.algorithms import Constants, algorithm1
    >>> X, y, W = make_low_rank_regression(200, (4, 3), rank=1, random_state=0)
    >>> past = Moments.of(X.reshape(200, -1), y)
    >>> [iterate.n_iter for iterate in islice(algorithm1(past, (4, 3), Constants()), 3)]
    [1, 2, 3]
    """
    xp = array_namespace(past.gram)
    L = past.paper_lipschitz or 1.0
    if start is None:
        start = Iterate(xp.reshape(xp.zeros_like(past.x_mean), shape), 0.0)
    W, b, split = start.W, start.b, start.split
    Z, momentum = W, 1.0
    gram, cross, x_mean, y_mean = past.gram, past.cross[:, 0], past.x_mean, float(past.y_mean[0])
    k = 0
    while True:
        k += 1
        z = xp.reshape(Z, (-1,))
        # A - GridTr(Z, B) - b D of line 13, from centred products: the raw sums would cancel digits.
        offset = past.weight * (y_mean - float(x_mean @ z) - b)
        descent = xp.reshape(cross - gram @ z + offset * x_mean, shape)
        before, b_before = W, b
        W, split = _proximal_point(Z + (2.0 / L) * descent, L, constants, split)
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        Z = W + ((momentum - 1.0) / following) * (W - before)
        momentum = following
        b = y_mean - float(x_mean @ xp.reshape(W, (-1,))) if fit_intercept else 0.0  # Eq. 13, line 16
        still = frobenius_norm(W - before) / (frobenius_norm(before) + 1.0) < constants.eps1
        converged = still and abs(b - b_before) / (abs(b_before) + 1.0) < constants.eps2  # Eq. 27
        yield Iterate(W, b, split, k, past.weight, converged)
        if converged:
            return


def algorithm2(
    batches: Iterable[tuple[Array, Array]], shape: tuple[int, ...], constants: Constants, *, max_iter: int = 10
) -> Iterator[Iterate]:
    """Yield the model of Algorithm 2 after each batch: one sample at a time, or mini-batches (Eq. 28).

    To the printed tolerance the second sample alone takes minutes: ``max_iter`` bounds the iterations of an update.

    Examples
    --------
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.paper.algorithms import Constants, algorithm2
    >>> X, y, W = make_low_rank_regression(60, (4, 3), rank=1, random_state=0)
    >>> batches = [(X[i : i + 20].reshape(20, -1), y[i : i + 20]) for i in range(0, 60, 20)]
    >>> [model.n_seen for model in algorithm2(batches, (4, 3), Constants())]
    [20.0, 40.0, 60.0]
    """
    past: Moments | None = None
    model: Iterate | None = None
    for X, y in batches:
        past = Moments.of(X, y) if past is None else past.updated(X, y)  # lines 5 to 9
        # The split is that of another L, so only W and b are carried over.
        start = None if model is None else replace(model, split=None)
        for model in algorithm1(past, shape, constants, start):
            if model.n_iter >= max_iter:
                break
        assert model is not None
        yield model
