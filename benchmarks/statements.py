"""What other libraries are told: the loss as squares or by its gradient, and where the unfoldings lie among the weights.

All of it starts from the samples and runs on their clock, as the moments do on ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.problems import Problem
from tracelearn import Moments


@dataclass(frozen=True, eq=False)
class Unfolding:
    """One mode of all weight tensors: ``index`` (T, rows * columns) finds the matrices among the flat weights (K p,)."""

    strength: float
    shape: tuple[int, int]
    index: np.ndarray

    def apply(self, shrink: Callable[[np.ndarray], np.ndarray], w: np.ndarray) -> np.ndarray:
        """Replace every matrix by what a proximal operator of flat matrices makes of it."""
        out = np.empty_like(w)
        for at in self.index:
            out[at] = shrink(w[at])
        return out


def unfoldings(problem: Problem) -> list[Unfolding]:
    """List the terms of the penalty; at order 2 both unfoldings have one trace norm, so one term."""
    shape = problem.weight_shape
    entries = np.arange(problem.n_targets * problem.rows.shape[1]).reshape(-1, *shape)
    unfoldings = []
    for weight, atom in problem.penalty.terms:
        mode = atom.mode
        index = np.moveaxis(entries, mode + 1, 1).reshape(len(entries), -1)
        unfoldings.append(Unfolding(problem.alpha * weight, (shape[mode], index.shape[1] // shape[mode]), index))
    return unfoldings


def least_squares(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """State the squared loss as ``|A W' - B|^2``, but for a constant, in as few rows as samples or features."""
    n, p = problem.rows.shape
    if n < p:
        rows, targets = problem.rows, problem.targets
        return (rows - rows.mean(axis=0)) / np.sqrt(n), (targets - targets.mean(axis=0)) / np.sqrt(n)
    moments = Moments.of(problem.X, problem.y)
    gram = moments.gram / moments.weight
    factor = np.linalg.cholesky(gram + 1e-12 * np.trace(gram) / p * np.eye(p))
    return factor.T, np.linalg.solve(factor, moments.cross / moments.weight)


@dataclass(frozen=True, eq=False)
class Differentiable:
    """The loss of flat weights (K p,), its gradient, and the Lipschitz constant of that."""

    value: Callable[[np.ndarray], float]
    gradient: Callable[[np.ndarray], np.ndarray]
    lipschitz: float


def differentiable(problem: Problem) -> Differentiable:
    """State the loss for methods of first order; the squared one through the gram where that is smaller."""
    rows, K = problem.rows, problem.n_targets
    n, p = rows.shape
    if problem.loss == "log_loss":
        return _logistic(rows, problem.y)
    if n < p:
        A, B = least_squares(problem)

        def gradient(w: np.ndarray) -> np.ndarray:
            return (2.0 * (w.reshape(K, p) @ A.T - B.T) @ A).ravel()

        def value(w: np.ndarray) -> float:
            return float(np.sum((w.reshape(K, p) @ A.T - B.T) ** 2))

        return Differentiable(value, gradient, 2.0 * float(np.linalg.norm(A, 2)) ** 2)
    moments = Moments.of(problem.X, problem.y)
    gram, cross = moments.gram / moments.weight, moments.cross.T / moments.weight
    constant = float(np.sum(moments.target_sq)) / moments.weight

    def gram_value(w: np.ndarray) -> float:
        W = w.reshape(K, p)
        return float(np.sum(W * (W @ gram - 2.0 * cross))) + constant

    def gram_gradient(w: np.ndarray) -> np.ndarray:
        return (2.0 * (w.reshape(K, p) @ gram - cross)).ravel()

    return Differentiable(gram_value, gram_gradient, 2.0 * float(np.linalg.eigvalsh(gram)[-1]))


def _logistic(rows: np.ndarray, y: np.ndarray) -> Differentiable:
    signed = rows * y[:, None]

    def value(w: np.ndarray) -> float:
        return float(np.mean(np.logaddexp(0.0, -signed @ w)))

    def gradient(w: np.ndarray) -> np.ndarray:
        return -(np.exp(-np.logaddexp(0.0, signed @ w)) @ signed) / len(signed)

    return Differentiable(value, gradient, 0.25 * float(np.linalg.norm(rows, 2)) ** 2 / len(rows))
