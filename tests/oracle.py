"""The truth from elsewhere: plain NumPy definitions and cvxpy, with nothing taken from the package.

Penalties are read by what they say of themselves: the names of the sum, of its atoms, and their weights.
"""

from __future__ import annotations

import numpy as np

__all__ = ["centred", "matricize", "minimise", "minimise_loss", "norm_of", "nuclear", "spectral"]

ACCURACY = {name: 1e-9 for name in ("tol_gap_abs", "tol_gap_rel", "tol_feas")}


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


def _atom(atom, w, shape):
    """Write the norm of an atom of a flat variable of a shape."""
    import cvxpy as cp

    if atom.name == "l1":
        return cp.norm1(w)
    rows = matricize(np.arange(int(np.prod(shape))).reshape(shape), atom.mode)
    M = cp.reshape(w[rows.ravel()], rows.shape, order="C")
    return {"nuclear": cp.normNuc, "group_l2": lambda M: cp.sum(cp.norm(M, 2, axis=1))}[atom.name](M)


def norm_of(penalty, w, shape, problem=0):
    """Write a penalty of a flat variable, with the weights of one problem; return it and the equations it needs."""
    import cvxpy as cp

    kind = type(penalty).__name__
    if kind == "Blocks":
        found, first = [], 0
        for own, part in zip(penalty.shapes, penalty.penalties, strict=True):
            size = int(np.prod(own))
            found.append(norm_of(part, w[first : first + size], own, problem))
            first += size
        return sum(norm for norm, _ in found), [equation for _, equations in found for equation in equations]
    terms = [(float(weight if np.ndim(weight) == 0 else weight[problem]), atom) for weight, atom in penalty.terms]
    if kind == "Overlap":
        return sum(weight * _atom(atom, w, shape) for weight, atom in terms if weight > 0), []
    parts = [cp.Variable(int(np.prod(shape))) for _ in terms]
    norm = sum(weight * _atom(atom, part, shape) for (weight, atom), part in zip(terms, parts, strict=True))
    return norm, [w == sum(parts)]


def minimise(A, b, alpha, shape, penalty, *, ridge=0.0, problem=0):
    """Minimise ``mean((A w - b)^2) + alpha norm(W) + ridge |w|^2`` by an interior point method: value and W."""
    import cvxpy as cp

    w = cp.Variable(int(np.prod(shape)))
    norm, equations = norm_of(penalty, w, shape, problem)
    smooth = cp.sum_squares(A @ w - b) / len(b) + ridge * cp.sum_squares(w)
    whole = cp.Problem(cp.Minimize(smooth + alpha * norm), equations)
    value = whole.solve(solver=cp.CLARABEL, **ACCURACY)
    return float(value), np.asarray(w.value).reshape(shape)


def _losses(name, Y, Z):
    """Write the loss of each sample, given targets (n, K) and a list of K columns of scores."""
    import cvxpy as cp

    if name == "multinomial":
        scores = cp.vstack(Z).T
        return cp.log_sum_exp(scores, axis=1) - cp.sum(cp.multiply(Y, scores), axis=1)
    one = {
        "squared_error": lambda y, z: cp.square(y - z),
        "huber": lambda y, z: cp.huber(y - z, 1.35),
        "squared_hinge": lambda y, z: cp.square(cp.pos(1 - cp.multiply(y, z))),
        "log_loss": lambda y, z: cp.logistic(-cp.multiply(y, z)),
        "poisson": lambda y, z: (
            cp.exp(z) - cp.multiply(y, z) + np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0)), 0.0) - y
        ),
    }[name]
    return sum(one(Y[:, k], z) for k, z in enumerate(Z))


def minimise_loss(name, A, Y, share, alpha, shape, penalty, *, ridge=0.0, joint=False):
    """Minimise the weighted mean of a loss of ``A w_k + b_k`` over K columns, with a penalty of each or of all: the value."""
    import cvxpy as cp

    K = Y.shape[1]
    rows, b = [cp.Variable(A.shape[1]) for _ in range(K)], cp.Variable(K)
    Z = [A @ rows[k] + b[k] for k in range(K)]
    whole = cp.hstack(rows)
    terms = [norm_of(penalty, w, shape) for w in ([whole] if joint else rows)]
    objective = share @ _losses(name, Y, Z) + alpha * sum(t for t, _ in terms) + ridge * cp.sum_squares(whole)
    problem = cp.Problem(cp.Minimize(objective), [equation for _, equations in terms for equation in equations])
    return float(problem.solve(solver=cp.CLARABEL, **ACCURACY))
