"""The truth from elsewhere: plain NumPy definitions and cvxpy, with nothing taken from the package."""

from __future__ import annotations

import numpy as np

__all__ = ["centred", "matricize", "minimise", "nuclear", "spectral"]


def matricize(W, mode):
    """Lay the fibres of a mode out as columns; singular values do not depend on the order of the columns."""
    return np.moveaxis(W, mode, 0).reshape(W.shape[mode], -1)


def nuclear(W, mode):
    return np.linalg.svd(matricize(W, mode), compute_uv=False).sum()


def spectral(W, mode):
    return np.linalg.svd(matricize(W, mode), compute_uv=False)[0]


def centred(X, y):
    x = X.reshape(len(X), -1)
    return x - x.mean(axis=0), y - y.mean(axis=0)


def minimise(A, b, alpha, shape, weights, *, latent=False, ridge=0.0):
    """Minimise ``mean((A w - b)^2) + alpha norm(W) + ridge |w|^2`` by an interior point method.

    Returns the optimal value and W. ``weights`` are the theta of all modes.
    """
    import cvxpy as cp

    p = int(np.prod(shape))
    index = np.arange(p).reshape(shape)

    def unfolding(w, mode):
        rows = matricize(index, mode)
        return cp.reshape(w[rows.ravel()], rows.shape, order="C")

    if latent:
        parts = [cp.Variable(p) for _ in shape]
        w = sum(parts)
        norm = sum(
            t * cp.normNuc(unfolding(part, mode)) for mode, (t, part) in enumerate(zip(weights, parts, strict=True))
        )
    else:
        w = cp.Variable(p)
        norm = sum(t * cp.normNuc(unfolding(w, mode)) for mode, t in enumerate(weights) if t > 0)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(A @ w - b) / len(b) + alpha * norm + ridge * cp.sum_squares(w)))
    accuracy = {name: 1e-9 for name in ("tol_gap_abs", "tol_gap_rel", "tol_feas")}
    value = problem.solve(solver=cp.CLARABEL, **accuracy)
    return float(value), np.asarray(w.value).reshape(shape)
