"""pyproximal: consensus ADMM with the squared loss factorised once; generalised proximal gradient for the logistic one."""

from weakref import WeakKeyDictionary

import numpy as np
import pylops
import pyproximal

from benchmarks.harness import Arrival, Race
from benchmarks.problems import Problem
from benchmarks.statements import Unfolding, differentiable, least_squares, unfoldings

FAMILY = "pyproximal"
NAMES = ("pyproximal",)
# The step of ADMM is the user's to tune. These are tried, in units of the mean eigenvalue, and the best is compared.
STEPS = (0.3, 1.0, 3.0, 10.0)
_tuned: WeakKeyDictionary[Problem, float] = WeakKeyDictionary()


class Unfolded(pyproximal.ProxOperator):
    """The trace norms of one unfolding, which pyproximal has for matrices."""

    def __init__(self, term: Unfolding) -> None:
        super().__init__(None, False)
        self.term, self.nuclear = term, pyproximal.Nuclear(term.shape, term.strength)

    def __call__(self, x: np.ndarray) -> float:
        return 0.0  # only printed

    def prox(self, x: np.ndarray, tau: float) -> np.ndarray:
        return self.term.apply(lambda matrix: self.nuclear.prox(matrix, tau), x)


class Smooth(pyproximal.ProxOperator):
    """A loss by its gradient."""

    def __init__(self, gradient: object) -> None:
        super().__init__(None, True)
        self.grad = gradient

    def __call__(self, x: np.ndarray) -> float:
        return 0.0  # only printed


class Columns(pyproximal.ProxOperator):
    """The same squared loss for several targets, one after the other."""

    def __init__(self, losses: list[pyproximal.L2]) -> None:
        super().__init__(None, False)
        self.losses = losses

    def __call__(self, x: np.ndarray) -> float:
        return 0.0  # only printed

    def prox(self, x: np.ndarray, tau: float) -> np.ndarray:
        rows = zip(self.losses, x.reshape(len(self.losses), -1), strict=True)
        return np.concatenate([loss.prox(row, tau) for loss, row in rows])


def cannot(problem: Problem, name: str) -> str:
    return ""


def run(problem: Problem, name: str, watch: Race) -> None:
    if problem.loss == "log_loss":
        forward_backward(problem, watch)
        return
    consensus(problem, best_step(problem, watch), watch)


def prepare(problem: Problem, watch: Race) -> None:
    if problem.loss == "squared_error":
        best_step(problem, watch)


def best_step(problem: Problem, watch: Race) -> float:
    """Tune the step outside the clock, once: ours needs no tuning, and still does not win by that."""
    if problem not in _tuned:
        trials: dict[float, Arrival] = {}
        for step in STEPS:
            soonest = min((trial.seconds for trial in trials.values() if trial.arrived), default=watch.limit / 4)
            trials[step] = watch.trial(soonest).run(consensus, problem, step)
        arrived = [step for step in STEPS if trials[step].arrived]
        _tuned[problem] = (
            min(arrived, key=lambda step: trials[step].seconds)
            if arrived
            else min(STEPS, key=lambda step: trials[step].error)
        )
    return _tuned[problem]


def consensus(problem: Problem, step: float, watch: Race) -> None:
    A, B = least_squares(problem)
    operator = pylops.MatrixMult(np.sqrt(2.0) * A)
    losses = [pyproximal.L2(Op=operator, b=np.sqrt(2.0) * b, densesolver="factorize") for b in B.T]
    loss = losses[0] if len(losses) == 1 else Columns(losses)
    tau = step / (2.0 * float(np.sum(A**2)) / A.shape[1])
    terms = unfoldings(problem)
    pyproximal.optimization.primal.ConsensusADMM(
        [loss, *map(Unfolded, terms)], np.zeros(terms[0].index.size), tau, niter=1_000_000, callback=watch
    )


def forward_backward(problem: Problem, watch: Race) -> None:
    loss, terms = differentiable(problem), unfoldings(problem)
    pyproximal.optimization.primal.GeneralizedProximalGradient(
        [Smooth(loss.gradient)],
        [Unfolded(term) for term in terms],
        np.zeros(terms[0].index.size),
        1.0 / loss.lipschitz,
        niter=1_000_000,
        callback=watch,
    )
