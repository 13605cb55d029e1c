"""The problems that the questions are asked on, and the objective that all who solve them are judged by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelearn import Moments, TraceNormRegressor, tensor_trace_norm
from tracelearn.certificate import alpha_max
from tracelearn.datasets import make_low_rank_regression, make_rank_tensors
from tracelearn.penalties import OverlappedTraceNorm
from tracelearn.smooth import Squares


def largest_alpha(moments: Moments, shape: tuple[int, ...]) -> float:
    """Find the alpha above which all weights are zero."""
    return float(alpha_max(Squares.of(moments), OverlappedTraceNorm(shape))[0])


@dataclass(frozen=True, eq=False)
class Problem:
    """Mean squared error plus alpha times the tensor trace norm, on samples X (n, I1, ..., IN)."""

    X: np.ndarray
    y: np.ndarray
    alpha: float

    @classmethod
    def gaussian(cls, n: int, shape: tuple[int, ...], fraction: float, seed: int = 0) -> Problem:
        X, y, _ = make_low_rank_regression(n, shape, random_state=seed)
        return cls(X, y, fraction * largest_alpha(Moments.of(X, y), shape))

    @classmethod
    def paper(cls, n: int = 2000, lam: float = 1.0) -> Problem:
        """The paper's rank identification; its lambda multiplies the norm while the loss is a sum."""
        X, y = make_rank_tensors(n, random_state=0)
        return cls(X, y, lam / n)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.X.shape[1:]

    @cached_property
    def moments(self) -> Moments:
        return Moments.of(self.X, self.y)

    @cached_property
    def optimum(self) -> float:
        """The least objective, certified to a gap of 1e-11."""
        found = TraceNormRegressor(alpha=self.alpha, tol=1e-11, max_iter=20_000).fit(self.X, self.y)
        return float(found.objective_)

    def objective(self, W: np.ndarray) -> float:
        m, w = self.moments, W.ravel()
        loss = (w @ m.gram @ w - 2 * m.cross[:, 0] @ w + m.target_sq[0]) / m.weight
        return float(loss) + self.alpha * tensor_trace_norm(W.reshape(self.shape))

    def error(self, W: np.ndarray) -> float:
        """How far an answer is above the optimum, relative to the optimum."""
        return max(self.objective(W) - self.optimum, 0.0) / self.optimum

    def tol_for(self, error: float) -> float:
        """Return the gap, relative to the objective at zero, that proves a relative objective error."""
        return error * self.optimum / float(self.moments.target_sq[0] / self.moments.weight)

    def fit(self, tol: float) -> TraceNormRegressor:
        return TraceNormRegressor(alpha=self.alpha, tol=tol).fit(self.X, self.y)
