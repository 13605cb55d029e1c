"""The paper's Algorithms 1 and 2 as printed: its step, its bias update, its stopping rule, its sums instead of means.

"Trace Norm Regularized Tensor Classification and Its Online Learning Approaches" (Shi, Zheng and Han). The names of its
six algorithms are combinations of what is here, and those of the estimators in ``tracelearn.paper.estimators``:

==========================  =====================================================
APG_DR, APG_ADM             ``algorithm1`` with ``inner="dr"`` or ``inner="adm"``
OL_APG_DR, OL_APG_ADM       ``algorithm2`` with single samples
OL_APG_DR_miniBatch, ...    ``algorithm2`` with batches
==========================  =====================================================

Errata that are followed: the mean over the product space (Eq. 22) is that of the components 0..N, with 1/(N+1); P in
Eq. 17 uses Z_k, not Z_(k-1); line 13 of Algorithm 2 means L_t where it prints L; the mini-batch sums of Eq. 28 replace
lines 5 to 9, not 5 and 9.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.linalg import shrink
from tracelearn.moments import Moments
from tracelearn.penalties import Nuclear

__all__ = ["Constants", "Iterate", "algorithm1", "algorithm2", "lipschitz"]


def lipschitz(past: Moments) -> float:
    """Evaluate the paper's L (Lemma 3.1, Algorithm 2 line 9), verbatim: ``2 p`` times the sum of squared norms.

    Correct, and larger than needed by a factor of at least p: Cauchy-Schwarz needs no product of mode sizes, and
    the tight constant is twice the largest eigenvalue of ``second_moment``, not its trace.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import Moments
    >>> from tracelearn.paper import lipschitz
    >>> lipschitz(Moments.of(np.ones((3, 2)), np.zeros(3)))
    24.0
    """
    xp = array_namespace(past.gram)
    trace = float(xp.sum(xp.linalg.diagonal(past.gram))) + past.weight * float(xp.sum(past.x_mean**2))
    return 2.0 * past.n_features * trace


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
    n_iter: int = 0
    n_seen: float = 0.0
    converged: bool = False


def _shrink_parts(parts: Array, level: float) -> Array:
    """Shrink the singular values of the mode-n unfolding of part n by ``level / N``: Eq. 20, and Eq. 26, second line."""
    xp, N = array_namespace(parts), parts.shape[0]
    threshold = xp.full((1,), level / N, dtype=parts.dtype, device=device(parts))
    shape = (1, *parts.shape[1:])
    shrunk = [shrink(Nuclear(n).view(parts[n, ...][None, ...]), threshold) for n in range(N)]
    return xp.concat([Nuclear(n).back(M, shape) for n, M in enumerate(shrunk)])


def _adm_step(P: Array, L: float, constants: Constants, state: Any) -> tuple[Array, Any]:
    """Make one step of the alternating direction method (Eq. 26); the state is Y and U, N tensors each."""
    xp, N, beta = array_namespace(P), P.ndim, constants.beta
    if state is None:
        Y = xp.stack([P] * N)
        state = Y, xp.zeros_like(Y)
    Y, U = state
    W = (L * P + beta * xp.sum(Y, axis=0) + xp.sum(U, axis=0)) / (L + beta * N)
    Y = _shrink_parts(W - U / beta, constants.lam / beta)
    return W, (Y, U - beta * (W - Y))


def _dr_step(P: Array, L: float, constants: Constants, state: Any) -> tuple[Array, Any]:
    """Make one step of Douglas-Rachford splitting (Eq. 22 and 23); the state is W_0 to W_N of the product space."""
    xp, step = array_namespace(P), (P.ndim + 1) * constants.gamma
    parts = xp.stack([P] * (P.ndim + 1)) if state is None else state
    W = xp.mean(parts, axis=0)
    mirrored = 2.0 * W - parts
    first = (L * P + mirrored[0, ...] / step) / (L + 1.0 / step)  # Eq. 19
    others = _shrink_parts(mirrored[1:, ...], constants.lam * step)
    return W, parts + xp.concat([first[None, ...], others]) - W


_INNER: dict[str, Callable[..., tuple[Array, Any]]] = {"adm": _adm_step, "dr": _dr_step}


def _proximal_point(P: Array, L: float, constants: Constants, state: Any) -> tuple[Array, Any]:
    """Minimise ``L/2 |W - P|^2 + lam norm(W)`` from where the last proximal point ended."""
    step, W = _INNER[constants.inner], None
    for _ in range(constants.inner_iter):
        before = W
        W, state = step(P, L, constants, state)
        if before is not None and _change(before, W) < constants.eps1:
            break
    return W, state


def _change(before: Array, after: Array) -> float:
    """Measure a step as Eq. 27 does."""
    norm = array_namespace(before).linalg.vector_norm
    return float(norm(after - before)) / (float(norm(before)) + 1.0)


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
    L = lipschitz(past) or 1.0
    if start is None:
        start = Iterate(xp.reshape(xp.zeros_like(past.x_mean), shape), 0.0)
    W, b, state = start.W, start.b, None
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
        W, state = _proximal_point(Z + (2.0 / L) * descent, L, constants, state)
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        Z = W + ((momentum - 1.0) / following) * (W - before)
        momentum = following
        b = y_mean - float(x_mean @ xp.reshape(W, (-1,))) if fit_intercept else 0.0  # Eq. 13, line 16
        still = abs(b - b_before) / (abs(b_before) + 1.0) < constants.eps2
        converged = still and _change(before, W) < constants.eps1  # Eq. 27
        yield Iterate(W, b, k, past.weight, converged)
        if converged:
            return


def converge(
    past: Moments,
    shape: tuple[int, ...],
    constants: Constants,
    start: Iterate | None = None,
    *,
    max_iter: int = 10,
    fit_intercept: bool = True,
) -> Iterate:
    """Run ``algorithm1`` until the rule of Eq. 27 holds, or for ``max_iter`` iterations; return its last iterate."""
    run = algorithm1(past, shape, constants, start, fit_intercept=fit_intercept)
    return deque(islice(run, max_iter), maxlen=1)[0]


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
        model = converge(past, shape, constants, model, max_iter=max_iter)
        yield model
