"""The truth from elsewhere: plain NumPy definitions and cvxpy, with nothing taken from the package.

Penalties are read by what they say of themselves: the names of the sum, of its atoms, and their weights.
"""

from __future__ import annotations

import numpy as np

__all__ = ["centred", "matricize", "minimise", "minimise_loss", "norm_of", "norm_of_atom", "nuclear", "spectral"]

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


# Every atom by its name, of a matrix whose rows are the slices of its mode, or for an atom without a mode one row of all
# entries: its norm and its dual norm in NumPy, and its norm as cvxpy is told it (given cvxpy and a variable).
_ATOMS = {
    "nuclear": (
        lambda M: np.linalg.svd(M, compute_uv=False).sum(),
        lambda M: np.linalg.svd(M, compute_uv=False)[0],
        lambda cp, M: cp.normNuc(M),
    ),
    "l1": (
        lambda M: np.abs(M).sum(),
        lambda M: np.abs(M).max(),
        lambda cp, M: cp.sum(cp.abs(M)),
    ),
    "group_l2": (
        lambda M: np.linalg.norm(M, axis=1).sum(),
        lambda M: np.linalg.norm(M, axis=1).max(),
        lambda cp, M: cp.sum(cp.norm(M, 2, axis=1)),
    ),
}


def _rows(T, atom):
    """Lay a tensor out as the matrix that ``_ATOMS`` are told of."""
    return matricize(T, atom.mode) if hasattr(atom, "mode") else T.reshape(1, -1)


def norm_of_atom(atom, T, *, dual=False):
    """Evaluate the norm of a tensor, or the dual norm."""
    norm, dual_norm, _ = _ATOMS[atom.name]
    return (dual_norm if dual else norm)(_rows(T, atom))


def _atom(atom, w, shape):
    """Write the norm of an atom of a flat variable of a shape."""
    import cvxpy as cp

    rows = _rows(np.arange(int(np.prod(shape))).reshape(shape), atom)
    return _ATOMS[atom.name][2](cp, cp.reshape(w[rows.ravel()], rows.shape, order="C"))


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


# Every separable loss by its name, as cvxpy is told it: given cvxpy, targets and scores of one column.
_LOSSES = {
    "squared_error": lambda cp, y, z: cp.square(y - z),
    "huber": lambda cp, y, z: cp.huber(y - z, 1.35),
    "squared_hinge": lambda cp, y, z: cp.square(cp.pos(1 - cp.multiply(y, z))),
    "log_loss": lambda cp, y, z: cp.logistic(-cp.multiply(y, z)),
    "poisson": lambda cp, y, z: (
        cp.exp(z) - cp.multiply(y, z) + np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0)), 0.0) - y
    ),
}


def _losses(name, Y, Z):
    """Write the loss of each sample, given targets (n, K) and a list of K columns of scores."""
    import cvxpy as cp

    if name == "multinomial":
        scores = cp.vstack(Z).T
        return cp.log_sum_exp(scores, axis=1) - cp.sum(cp.multiply(Y, scores), axis=1)
    return sum(_LOSSES[name](cp, Y[:, k], z) for k, z in enumerate(Z))


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
