"""Seeded synthetic problems with known answers, shared by tests, examples, benchmarks and the reproduction."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["make_low_rank_regression", "make_rank_tensors"]

Floats = np.ndarray[Any, np.dtype[np.float64]]


def make_rank_tensors(
    n_samples: int,
    *,
    shape: tuple[int, ...] = (10, 10, 10),
    ranks: tuple[int, int] = (1, 4),
    random_state: int | None = None,
) -> tuple[Floats, Floats]:
    """Draw tensors whose CP rank is the target: the rank identification problem of the paper's section 6.

    A tensor of rank r is the sum of r outer products of vectors that are uniform on (0, 1); r is uniform from
    ``ranks[0]`` to ``ranks[1]``. The paper says "varied ranks": 1 to 4 give its 95.9 % within one rank.

    Examples
    --------
    >>> from tracelearn.datasets import make_rank_tensors
    >>> X, y = make_rank_tensors(3, shape=(4, 5, 6), random_state=0)
    >>> X.shape, sorted(set(y) - {1.0, 2.0, 3.0, 4.0})
    ((3, 4, 5, 6), [])
    """
    rng = np.random.default_rng(random_state)
    rank = rng.integers(ranks[0], ranks[1] + 1, n_samples)
    X = np.zeros((n_samples, *shape))
    for component in range(ranks[1]):
        term = (component < rank).astype(float)
        for size in shape:
            term = term[..., None] * rng.uniform(size=(n_samples, size)).reshape(
                n_samples, *(1,) * (term.ndim - 1), size
            )
        X += term
    return X, rank.astype(float)


def make_low_rank_regression(
    n_samples: int,
    shape: tuple[int, ...],
    *,
    rank: int = 2,
    noise: float = 0.5,
    correlation: float = 0.0,
    random_state: int | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Draw Gaussian tensors and a target that is linear in them with weights of low multilinear rank.

    Parameters
    ----------
    noise : standard deviation of the noise, relative to that of the signal
    correlation : of neighbouring entries along every mode; 0.95 looks like channels and smooth time

    Returns
    -------
    X : array of shape ``(n_samples, *shape)``
    y : array of shape (n_samples,)
    W : array of shape ``shape``, the true weights

    Examples
    --------
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(5, (3, 4), rank=1, random_state=0)
    >>> X.shape, y.shape, W.shape
    ((5, 3, 4), (5,), (3, 4))
    """
    rng = np.random.default_rng(random_state)
    X = rng.standard_normal((n_samples, *shape))
    W = rng.standard_normal((min(rank, *shape),) * len(shape))
    for mode, size in enumerate(shape):
        if correlation:
            mixing = np.linalg.cholesky(correlation ** np.abs(np.subtract.outer(np.arange(size), np.arange(size))))
            X = np.moveaxis(np.tensordot(X, mixing, (mode + 1, 1)), -1, mode + 1)
        W = np.moveaxis(np.tensordot(W, rng.standard_normal((size, W.shape[mode])), (mode, 1)), -1, mode)
    signal = X.reshape(n_samples, -1) @ W.ravel()
    return X, signal + noise * signal.std() * rng.standard_normal(n_samples), W
