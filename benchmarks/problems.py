"""The problems that the questions and the suite are about, and the objective that all who solve them are judged by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelearn import Moments, TraceNormRegressor
from tracelearn.datasets import make_low_rank_regression, make_rank_tensors
from tracelearn.losses import LogLoss, SquaredError
from tracelearn.penalties import Penalty, Split, as_penalty
from tracelearn.problems.data_fit import DataFit
from tracelearn.problems.forms import choose_form
from tracelearn.problems.problem import Problems, alpha_max, certify
from tracelearn.problems.squares import Squares
from tracelearn.samples.samples import Block, Samples
from tracelearn.solvers import SOLVERS

# How many iterations the best known answer may take: the objective is then certified to what the gap says.
_PATIENCE = 20_000


def largest_alpha(moments: Moments, shape: tuple[int, ...]) -> float:
    """Find the alpha above which all weights are zero."""
    return float(alpha_max(Squares.of(moments), as_penalty("overlapped", shape), shape)[0])


@dataclass(frozen=True, eq=False)
class Reference:
    """The best known answer: its objective, the split that proves it, and its gap relative to the objective at zero."""

    objective: float
    split: Split
    gap: float


@dataclass(frozen=True, eq=False)
class Problem:
    """A mean loss plus alpha times the tensor trace norm, on samples X (n, I1, ..., IN) and targets y (n,) or (n, K).

    The losses of several targets are added up. Each has a weight tensor of its own, or with ``target_mode`` the targets
    are one more mode of one tensor. The squared loss has an intercept; the logistic one, of targets -1 and 1, has none.
    """

    X: np.ndarray
    y: np.ndarray
    alpha: float
    loss: str = "squared_error"
    target_mode: bool = False

    @classmethod
    def gaussian(cls, n: int, shape: tuple[int, ...], fraction: float, seed: int = 0) -> Problem:
        X, y, _ = make_low_rank_regression(n, shape, random_state=seed)
        return cls(X, y, fraction * largest_alpha(Moments.of(X, y), shape))

    @classmethod
    def paper(cls, n: int = 2000, lam: float = 1.0) -> Problem:
        """The paper's rank identification; its lambda multiplies the norm while the loss is a sum."""
        X, y = make_rank_tensors(n, random_state=0)
        return cls(X, y, lam / n)

    @classmethod
    def at(
        cls, fraction: float, X: np.ndarray, y: np.ndarray, loss: str = "squared_error", target_mode: bool = False
    ) -> Problem:
        """State a problem at a fraction of the alpha above which all weights are zero."""
        problem = cls(X, y, 1.0, loss, target_mode)
        top = float(alpha_max(problem.datafit, problem.penalty, problem.weight_shape)[0])
        return cls(X, y, fraction * top, loss, target_mode)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.X.shape[1:]

    @property
    def n_targets(self) -> int:
        return 1 if self.y.ndim == 1 else self.y.shape[1]

    @property
    def rows(self) -> np.ndarray:
        """The samples (n, p), flat."""
        return self.X.reshape(len(self.X), -1)

    @property
    def targets(self) -> np.ndarray:
        """The targets (n, K)."""
        return self.y.reshape(len(self.y), -1)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of one weight tensor."""
        return (self.n_targets, *self.shape) if self.target_mode else self.shape

    @property
    def penalty(self) -> Penalty:
        return as_penalty("overlapped", self.weight_shape)

    def state(self) -> DataFit:
        """State the loss as our estimators do, from the samples: what a fit pays before it begins to solve."""
        samples = Samples.of(Block(self.rows, self.targets), self.shape)
        loss = LogLoss() if self.loss == "log_loss" else SquaredError()
        form = choose_form(samples, loss)
        return form.data_fit(samples, loss, ridge=0.0, joint=True, fit_intercept=self.loss != "log_loss")

    def stated(self) -> Problems:
        """State the whole problem, from the samples."""
        fit = self.state()
        return Problems(fit, self.penalty, np.array([self.alpha]), self.weight_shape, fit.at_zero.value)

    @cached_property
    def datafit(self) -> DataFit:
        """The loss, for judging."""
        return self.state()

    @cached_property
    def moments(self) -> Moments:
        return Moments.of(self.X, self.y)

    @cached_property
    def reference(self) -> Reference:
        """The best known answer, certified to a gap of 1e-11 where that is reached."""
        fit = self.datafit
        problems = Problems(fit, self.penalty, np.array([self.alpha]), self.weight_shape, fit.at_zero.value)
        solution = SOLVERS[self.datafit.solvers.best](problems, tol=1e-11, max_iter=_PATIENCE, exact_ranks=False)
        return Reference(float(solution.objective[0]), solution.split, float(solution.gap[0]))

    @property
    def optimum(self) -> float:
        return self.reference.objective

    def objective(self, W: np.ndarray) -> float:
        loss = float(self.datafit.evaluate(W.reshape(self.n_targets, -1)).value[0])
        return loss + self.alpha * float(self.penalty.value(W.reshape(-1, *self.weight_shape)).sum())

    def error(self, W: np.ndarray) -> float:
        """How far an answer is above the optimum, relative to the optimum."""
        return max(self.objective(W) - self.optimum, 0.0) / self.optimum

    def tol_for(self, error: float) -> float:
        """Return the gap, relative to the objective at zero, that proves a relative objective error."""
        return error * self.optimum / float(self.datafit.at_zero.value[0])

    def fit(self, tol: float) -> TraceNormRegressor:
        return TraceNormRegressor(alpha=self.alpha, tol=tol).fit(self.X, self.y)


@dataclass(frozen=True, eq=False)
class Judge:
    """Measures iterates, whoever found them, against a reference that may come from another process."""

    problem: Problem
    reference: Reference

    def measure(self, W: np.ndarray, split: Split | None = None) -> tuple[float, float]:
        """Return the objective error of W and its certified gap, both relative to the optimum.

        The dual point is the scaled gradient at W. That it is feasible takes a split over the modes as evidence: the
        best of the solver's own, the one of the best known answer, and none.
        """
        problem = self.problem
        fit = problem.datafit
        problems = Problems(fit, problem.penalty, np.array([problem.alpha]), problem.weight_shape, fit.at_zero.value)
        at, W = problem.datafit.evaluate(W.reshape(problem.n_targets, -1)), W.reshape(-1, *problem.weight_shape)
        splits = {id(s): s for s in (None, self.reference.split, split)}.values()
        proofs = [certify(problems, W, evidence, at) for evidence in splits]
        gap = min(float(gap[0]) for _, gap in proofs) * float(problems.scale[0])
        above = float(proofs[0][0][0]) - self.reference.objective
        return max(above, 0.0) / self.reference.objective, gap / self.reference.objective
