"""Algorithms: functions from a smooth half, a penalty and a strength to a ``Solution``.

They know neither the loss nor the norm nor the array library. Every one stops on the duality gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from array_api_compat import array_namespace

from tracelearn.certificate import certify
from tracelearn.penalties import Penalty, Split
from tracelearn.prox import PROXES, Prox
from tracelearn.smooth import Smooth
from tracelearn.tensors import Array

__all__ = ["SOLVERS", "Solution", "Solver", "admm", "apg_adm", "apg_dr"]

_RELAX = 1.6  # over-relaxation of ADMM
_CHECK_EVERY = 5  # iterations between certificates, which cost about one iteration


@dataclass(frozen=True, eq=False)
class Solution:
    """The answer to B problems: weights (T, *shape), their split, and the certificate.

    ``objective`` and ``gap`` have shape (B,); the gap is relative to the objective at W = 0. ``rho`` (B,) is where
    ADMM's own step ended, so that the solve of a neighbouring problem starts there.
    """

    W: Array
    split: Split
    objective: Array
    gap: Array
    n_iter: int
    rho: Array | None = None


Watcher = Callable[[Solution], None]
Solver = Callable[..., Solution]


@dataclass(frozen=True, eq=False)
class _Problems:
    """Both halves, and the shapes between rows (B K, p) and tensors (T, *shape)."""

    smooth: Smooth
    penalty: Penalty
    alpha: Array
    reference: Array

    @classmethod
    def of(cls, smooth: Smooth, penalty: Penalty, alpha: Array) -> _Problems:
        return cls(smooth, penalty, alpha, smooth.at_zero.value)

    def rows(self, W: Array) -> Array:
        return array_namespace(W).reshape(W, (-1, self.smooth.n_features))

    def tensors(self, rows: Array) -> Array:
        return array_namespace(rows).reshape(rows, (-1, *self.penalty.shape))

    def each(self, per_problem: Array, W: Array) -> Array:
        """Repeat a (B,) array for each tensor of its problem."""
        return array_namespace(W).repeat(per_problem, W.shape[0] // self.alpha.shape[0])

    def gathered(self, per_tensor: Array) -> Array:
        """Take the largest of a (T,) array over the tensors of each problem."""
        xp = array_namespace(per_tensor)
        return xp.max(xp.reshape(per_tensor, (self.alpha.shape[0], -1)), axis=1)

    def zero(self) -> Array:
        xp = array_namespace(self.alpha)
        return self.tensors(xp.zeros_like(self.smooth.at_zero.gradient))

    def certified(self, W: Array, split: Split, n_iter: int, rho: Array | None = None) -> Solution:
        at = self.smooth.evaluate(self.rows(W))
        proof = certify(at, self.penalty, W, split, self.alpha, self.reference)
        return Solution(W, split, proof.objective, proof.gap, n_iter, rho)

    def tidied(self, found: Solution) -> Solution:
        """Give the answer the exact ranks of its split, and certify it again."""
        return self.certified(self.penalty.tidy(found.W, found.split), found.split, found.n_iter, found.rho)

    def take(self, problems: Array) -> _Problems:
        return _Problems(self.smooth.take(problems), self.penalty, self.alpha[problems], self.reference[problems])


class _Finish:
    """Decides when to stop: at a certified answer that has the exact ranks of its split.

    Just below ``tol`` the weights still carry dust outside the subspaces that shrinkage found; removing it may cost the
    certificate, and some more iterations bring it back. They are bounded, and then the answer stands as it is.
    """

    def __init__(self, problems: _Problems, tol: float, found: Solution | None) -> None:
        self._problems, self._tol, self._found = problems, tol, found
        self._last_call = math.inf

    def _holds(self, found: Solution) -> bool:
        return bool(array_namespace(found.gap).all(found.gap <= self._tol))

    def reached(self, found: Solution) -> bool:
        if not self._holds(found):
            self._found = found if self._last_call == math.inf else self._found
            return False
        tidy = self._problems.tidied(found)
        if self._holds(tidy):
            self._found = tidy
            return True
        self._found = found
        self._last_call = min(self._last_call, 1.25 * found.n_iter + 20)
        return found.n_iter >= self._last_call

    @property
    def answer(self) -> Solution:
        assert self._found is not None  # the last iteration is always a check
        return self._found


def admm(
    smooth: Smooth,
    penalty: Penalty,
    alpha: Array,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    on_iteration: Watcher | None = None,
) -> Solution:
    """Solve the whole problem by ADMM: one linear solve, and one shrinkage for each mode, an iteration.

    Parameters
    ----------
    smooth, penalty : the two halves of the objective
    alpha : array of shape (B,)
    tol : stop when every gap, relative to the objective at W = 0, is at most this
    start : solution of a neighbouring problem to start from
    on_iteration : called with the solution so far whenever a certificate was computed
    """
    xp = array_namespace(alpha)
    problems = _Problems.of(smooth, penalty, alpha)
    W = problems.zero() if start is None else start.W
    split = penalty.start(W) if start is None else start.split
    rho = _first_rho(problems) if start is None or start.rho is None else start.rho
    found = problems.certified(W, split, 0, rho) if start is not None else None
    if found is not None and bool(xp.all(found.gap <= tol)):
        return found
    finish = _Finish(problems, tol, found)
    review = _first_review = 10
    for iteration in range(1, max_iter + 1):
        level, strength = problems.each(rho, W), problems.each(alpha, W)
        pull, shift = penalty.pull(split, level)
        shift = problems.gathered(shift)
        W = problems.tensors(smooth.update(problems.rows(W), problems.rows(pull), shift))
        split, primal, dual = penalty.push(split, W, strength, level, _RELAX)
        if iteration % _CHECK_EVERY == 0 or iteration == max_iter:
            found = problems.certified(W, split, iteration, rho)
            if on_iteration is not None:
                on_iteration(found)
            if finish.reached(found):
                break
        if iteration == review:
            rho = _balanced(rho, problems.gathered(primal), problems.gathered(dual), smooth.system.shares_shift)
            # A new step costs a factorisation, about a hundred iterations' worth, unless the system is spectral.
            review = review + _first_review if not smooth.system.shares_shift else 2 * review
    return finish.answer


def _first_rho(problems: _Problems) -> Array:
    """Guess the step at which forces and weights weigh the same: ``rho = |V| / |W|``.

    At the answer the forces are about ``alpha theta sqrt(rank)``; the size of the weights comes from a few steps of
    conjugate gradients on the unpenalised problem, damped by the mean eigenvalue.
    """
    xp = array_namespace(problems.alpha)
    smooth = problems.smooth
    damping = smooth.system.mean_eigenvalue()
    target = -smooth.at_zero.gradient
    W, residual = xp.zeros_like(target), target
    direction, square = residual, xp.sum(residual**2, axis=1)
    for _ in range(8):
        image = smooth.system.apply(direction) + damping * direction
        curvature = xp.sum(direction * image, axis=1)
        size = square / xp.where(curvature > 0, curvature, xp.ones_like(curvature))
        W = W + size[:, None] * direction
        residual = residual - size[:, None] * image
        before, square = square, xp.sum(residual**2, axis=1)
        direction = residual + (square / xp.where(before > 0, before, xp.ones_like(before)))[:, None] * direction
    norm = xp.sqrt(xp.sum(xp.reshape(W, (problems.alpha.shape[0], -1)) ** 2, axis=1))
    penalty = problems.penalty
    force = sum(weight * math.sqrt(penalty.shape[mode]) for mode, weight in penalty.terms.items()) / len(penalty.terms)
    floor = 1e-8 * damping if damping > 0 else 1.0
    rho = xp.where(norm > 0, 0.6 * force * problems.alpha / xp.where(norm > 0, norm, xp.ones_like(norm)), norm + floor)
    return _shared(xp.clip(rho, min=floor), smooth.system.shares_shift)


def _balanced(rho: Array, primal: Array, dual: Array, shares: bool) -> Array:
    """Bring primal and dual residual together; leave a step alone that is right within a factor of two and a half."""
    xp = array_namespace(rho)
    tiny = float(xp.finfo(rho.dtype).smallest_normal)
    factor = xp.clip(xp.sqrt(xp.clip(primal, min=tiny) / xp.clip(dual, min=tiny)), min=0.1, max=10.0)
    factor = _shared(factor, shares)
    right = (factor < 2.5) & (factor > 0.4)
    return xp.where(right, rho, rho * factor)


def _shared(values: Array, shares: bool) -> Array:
    """Replace all by their geometric mean where the problems must share one value."""
    xp = array_namespace(values)
    return xp.ones_like(values) * xp.exp(xp.mean(xp.log(values))) if shares else values


def _apg(
    prox: Prox,
    smooth: Smooth,
    penalty: Penalty,
    alpha: Array,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    on_iteration: Watcher | None = None,
) -> Solution:
    """Run the outer loop of the paper's Algorithm 1 with the tight step and adaptive restart.

    The inner proximal point starts from the split of the last one and is found to a tenth of the last outer step: more
    would be wasted while the outer iterate still moves, less would stall it.
    """
    xp = array_namespace(alpha)
    problems = _Problems.of(smooth, penalty, alpha)
    W = problems.zero() if start is None else start.W
    split = None if start is None else start.split
    found = None if start is None else problems.certified(W, start.split, 0)
    if found is not None and bool(xp.all(found.gap <= tol)):
        return found
    finish = _Finish(problems, tol, found)
    curvature = smooth.lipschitz()
    curvature = curvature if curvature > 0 else 1.0
    strength = problems.each(alpha, W)
    Z, momentum, accuracy = W, 1.0, 1e-3
    for iteration in range(1, max_iter + 1):
        gradient = problems.tensors(smooth.evaluate(problems.rows(Z)).gradient)
        before = W
        W, split = prox(penalty, Z - gradient / curvature, strength, curvature, split, tol=accuracy)
        if float(xp.sum((Z - W) * (W - before))) > 0.0:  # momentum points uphill (O'Donoghue and Candes, 2015)
            momentum = 1.0
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        Z = W + ((momentum - 1.0) / following) * (W - before)
        momentum = following
        step = float(xp.sqrt(xp.sum((W - before) ** 2))) / (1e-300 + float(xp.sqrt(xp.sum(W**2))))
        accuracy = min(accuracy, max(0.1 * step, 1e-14))
        if iteration % _CHECK_EVERY == 0 or iteration == max_iter:
            found = problems.certified(W, split, iteration)
            if on_iteration is not None:
                on_iteration(found)
            if finish.reached(found):
                break
    return finish.answer


def apg_adm(*args: object, **options: object) -> Solution:
    """Accelerated proximal gradient with the alternating direction method inside; arguments as in ``admm``."""
    return _apg(PROXES["adm"], *args, **options)  # type: ignore[arg-type]


def apg_dr(*args: object, **options: object) -> Solution:
    """Accelerated proximal gradient with Douglas-Rachford splitting inside; arguments as in ``admm``."""
    return _apg(PROXES["dr"], *args, **options)  # type: ignore[arg-type]


SOLVERS: dict[str, Solver] = {"admm": admm, "apg-adm": apg_adm, "apg-dr": apg_dr}
