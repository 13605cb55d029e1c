"""pyproximal's consensus ADMM: one proximal operator for the loss, factorised once, one for each unfolding."""

from collections.abc import Callable

import numpy as np
import pylops
import pyproximal

from benchmarks.problems import Problem
from tracelearn import Moments

NAME = "pyproximal, ConsensusADMM"
# Its step is the user's to tune. These are tried, in units of the mean eigenvalue, and the best is compared.
STEPS = (0.3, 1.0, 3.0, 10.0)


class Unfolded(pyproximal.ProxOperator):
    """The trace norm of one unfolding, which pyproximal has for matrices."""

    def __init__(self, shape: tuple[int, ...], mode: int, sigma: float) -> None:
        super().__init__(None, False)
        entries = np.moveaxis(np.arange(np.prod(shape)).reshape(shape), mode, 0)
        self.order, self.back = entries.ravel(), np.argsort(entries.ravel())
        self.nuclear = pyproximal.Nuclear((shape[mode], self.order.size // shape[mode]), sigma)

    def __call__(self, x: np.ndarray) -> float:
        return 0.0  # only printed

    def prox(self, x: np.ndarray, tau: float) -> np.ndarray:
        return self.nuclear.prox(x[self.order], tau)[self.back]


def solve(problem: Problem, step: float, watch: Callable[[np.ndarray], None]) -> None:
    moments = Moments.of(problem.X, problem.y)
    gram = 2.0 * moments.gram / moments.weight
    factor = np.linalg.cholesky(gram + 1e-12 * np.trace(gram) / len(gram) * np.eye(len(gram)))
    target = np.linalg.solve(factor, 2.0 * moments.cross[:, 0] / moments.weight)
    loss = pyproximal.L2(Op=pylops.MatrixMult(factor.T), b=target, densesolver="factorize")
    order = len(problem.shape)
    norms = (
        [Unfolded(problem.shape, mode, problem.alpha / order) for mode in range(order)]
        if order > 2
        else [pyproximal.Nuclear(problem.shape, problem.alpha)]
    )
    tau = step / float(np.mean(np.diag(gram)))
    pyproximal.optimization.primal.ConsensusADMM(
        [loss, *norms], np.zeros(len(gram)), tau, niter=1_000_000, callback=watch
    )
