"""Algorithms: functions from a smooth half, a penalty and a strength to a ``Solution``.

They know neither the loss nor the norm nor the array library. Every one stops on the duality gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from array_api_compat import device

from tracelearn.certificate import certify
from tracelearn.penalties import Penalty, Split
from tracelearn.prox import PROXES, Prox
from tracelearn.smooth import Evaluation, Smooth
from tracelearn.tensors import Array, array_namespace

__all__ = ["SOLVERS", "Solution", "Solver", "admm", "apg_adm", "apg_dr", "newton"]

_RELAX = 1.6  # over-relaxation of ADMM
_REVIEW_EVERY = 10  # iterations before the step of ADMM is looked at
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

    def take(self, problems: Array, tensors: Array) -> Solution:
        """Keep some problems, given their index (B',) and that of their tensors (T',)."""
        rho = None if self.rho is None else self.rho[problems]
        split = self.split.take(tensors)
        return Solution(self.W[tensors, ...], split, self.objective[problems], self.gap[problems], self.n_iter, rho)

    def where(self, chosen: Array, other: Solution) -> Solution:
        """Take the weights and the certificate of another solution for the chosen problems (B,)."""
        xp = array_namespace(chosen)
        tensors = xp.reshape(xp.repeat(chosen, self.W.shape[0] // chosen.shape[0]), (-1, *(1,) * (self.W.ndim - 1)))
        return replace(
            self,
            W=xp.where(tensors, other.W, self.W),
            objective=xp.where(chosen, other.objective, self.objective),
            gap=xp.where(chosen, other.gap, self.gap),
        )

    @classmethod
    def joined(cls, parts: list[Solution]) -> Solution:
        """Put batches of problems together."""
        xp = array_namespace(parts[0].W)

        def stack(name: str) -> Array:
            return xp.concat([getattr(part, name) for part in parts])

        splits = [part.split for part in parts]
        split = Split(
            *(xp.concat([getattr(s, name) for s in splits], axis=1) for name in ("parts", "duals", "anchors"))
        )
        rho = None if parts[0].rho is None else stack("rho")
        n_iter = max(part.n_iter for part in parts)
        return cls(stack("W"), split, stack("objective"), stack("gap"), n_iter, rho)


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
    def of(cls, smooth: Smooth, penalty: Penalty, alpha: Array, reference: Array | None = None) -> _Problems:
        return cls(smooth, penalty, alpha, smooth.at_zero.value if reference is None else reference)

    def rows(self, W: Array) -> Array:
        return array_namespace(W).reshape(W, (-1, self.smooth.n_features))

    def tensors(self, rows: Array) -> Array:
        return array_namespace(rows).reshape(rows, (-1, *self.penalty.shape))

    @property
    def per_problem(self) -> int:
        """The number of tensors of one problem."""
        rows = self.smooth.at_zero.gradient.shape[0]
        return int(rows * self.smooth.n_features // math.prod(self.penalty.shape) // self.alpha.shape[0])

    def each(self, per_problem: Array) -> Array:
        """Repeat a (B,) array for each tensor of its problem."""
        return array_namespace(per_problem).repeat(per_problem, self.per_problem)

    def gathered(self, per_tensor: Array) -> Array:
        """Take the largest of a (T,) array over the tensors of each problem."""
        xp = array_namespace(per_tensor)
        return xp.max(xp.reshape(per_tensor, (self.alpha.shape[0], -1)), axis=1)

    def zero(self) -> Solution:
        """Certify W = 0, which is the answer for any alpha from ``alpha_max`` up."""
        xp = array_namespace(self.alpha)
        at = self.smooth.at_zero
        W = self.tensors(xp.zeros_like(at.gradient))
        proof = certify(at, self.penalty, W, None, self.alpha, self.reference)
        return Solution(W, self.penalty.start(W), proof.objective, proof.gap, 0)

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
    """Decides which problems are done: those with a certified answer that has the exact ranks of its split.

    Just below ``tol`` the weights still carry dust outside the subspaces that shrinkage found; removing it may cost the
    certificate, and some more iterations bring it back. They are bounded, and then the answer stands as it is.
    """

    def __init__(self, problems: _Problems, tol: float) -> None:
        self._tol = tol
        self._deadline = array_namespace(problems.alpha).full_like(problems.alpha, math.inf)
        self._good: Solution | None = None

    def judge(self, problems: _Problems, found: Solution) -> tuple[Solution, Array]:
        """Return the answers so far, tidied where that holds, and which of them (B,) are done."""
        xp = array_namespace(found.gap)
        good = found.gap <= self._tol
        if self._good is not None:  # a gap need not fall steadily: what was proven before stays proven
            found = found.where(~good & (self._good.gap <= self._tol), self._good)
        if not bool(xp.any(found.gap <= self._tol)):
            return found, good
        self._good = found
        tidy = problems.tidied(found)
        exact = tidy.gap <= self._tol
        last_call = xp.full_like(found.gap, 1.25 * found.n_iter + 20.0)
        self._deadline = xp.where(good, xp.minimum(self._deadline, last_call), self._deadline)
        return found.where(exact, tidy), exact | (self._deadline <= found.n_iter)

    def take(self, problems: Array, tensors: Array) -> None:
        self._deadline = self._deadline[problems]
        self._good = None if self._good is None else self._good.take(problems, tensors)


def admm(
    smooth: Smooth,
    penalty: Penalty,
    alpha: Array,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    reference: Array | None = None,
    on_iteration: Watcher | None = None,
) -> Solution:
    """Solve the whole problem by ADMM: one linear solve, and one shrinkage for each mode, an iteration.

    Parameters
    ----------
    smooth, penalty : the two halves of the objective
    alpha : array of shape (B,)
    tol : stop when every gap, relative to ``reference``, is at most this
    start : solution of a neighbouring problem to start from
    reference : array of shape (B,), by default the objectives at W = 0
    on_iteration : called with the solution so far whenever a certificate was computed
    """
    xp = array_namespace(alpha)
    problems = _Problems.of(smooth, penalty, alpha, reference)
    found = problems.zero() if start is None else problems.certified(start.W, start.split, 0, start.rho)
    if bool(xp.all(found.gap <= tol)):
        return found
    W, split = found.W, found.split
    shares, review = smooth.system.shares_shift, _REVIEW_EVERY
    # The problems of an earlier batch may have ended apart, each with a step of its own.
    rho = _first_rho(problems) if found.rho is None else _shared(found.rho, shares)
    finish, finished = _Finish(problems, tol), _Finished(problems)
    for iteration in range(1, max_iter + 1):
        level = problems.each(rho)
        pull, shift = penalty.pull(split, level)
        W = problems.tensors(problems.smooth.update(problems.rows(W), problems.rows(pull), problems.gathered(shift)))
        before, split = split, penalty.push(split, W, problems.each(problems.alpha), level, _RELAX)
        if iteration == review:
            primal, dual = penalty.residuals(before, split, W, level)
            rho = _balanced(rho, problems.gathered(primal), problems.gathered(dual), shares)
            # A new step costs a factorisation, about a hundred iterations' worth, unless the system is spectral.
            review = 2 * review if shares else review + _REVIEW_EVERY
        if iteration % _CHECK_EVERY == 0 or iteration == max_iter:
            found, done = finish.judge(problems, problems.certified(W, split, iteration, rho))
            if on_iteration is not None:
                on_iteration(found)
            if bool(xp.all(done)) or iteration == max_iter:
                return finished.with_rest(found)
            if bool(xp.any(done)):
                left = finished.add(found, done)
                tensors = finished.tensors(left)
                finish.take(left, tensors)
                problems, rho = problems.take(left), rho[left]
                W, split = W[tensors, ...], split.take(tensors)
    raise AssertionError("the last iteration always returns")


class _Finished:
    """Collects the answers of a batch as they come, and puts them back into order."""

    def __init__(self, problems: _Problems) -> None:
        self._xp = array_namespace(problems.alpha)
        self._open = self._xp.arange(problems.alpha.shape[0], device=device(problems.alpha))
        self._per_problem = problems.per_problem
        self._parts: list[tuple[Array, Solution]] = []

    def tensors(self, problems: Array) -> Array:
        """Index the tensors (T,) of some problems."""
        xp, each = self._xp, self._per_problem
        return xp.reshape(problems[:, None] * each + xp.arange(each, device=device(problems))[None, :], (-1,))

    def add(self, found: Solution, done: Array) -> Array:
        """Keep what is done; return the index of the rest among the open ones."""
        xp = self._xp
        ready, left = xp.nonzero(done)[0], xp.nonzero(~done)[0]
        self._parts.append((self._open[ready], found.take(ready, self.tensors(ready))))
        self._open = self._open[left]
        return left

    def with_rest(self, found: Solution) -> Solution:
        """Return all answers in order."""
        if not self._parts:
            return found
        xp = self._xp
        parts = [*self._parts, (self._open, found)]
        order = xp.argsort(xp.concat([index for index, _ in parts]))
        return Solution.joined([part for _, part in parts]).take(order, self.tensors(order))


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
    factor = xp.sqrt(xp.clip(primal, min=tiny)) / xp.sqrt(xp.clip(dual, min=tiny))
    factor = xp.clip(factor, min=0.1, max=10.0)
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
    found = problems.zero() if start is None else problems.certified(start.W, start.split, 0)
    if bool(xp.all(found.gap <= tol)):
        return found
    W, split = found.W, None if start is None else found.split
    finish = _Finish(problems, tol)
    curvature = smooth.lipschitz()
    curvature = curvature if curvature > 0 else 1.0
    strength = problems.each(alpha)
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
            found, done = finish.judge(problems, problems.certified(W, split, iteration))
            if on_iteration is not None:
                on_iteration(found)
            if bool(xp.all(done)):
                break
    return found


def apg_adm(*args: object, **options: object) -> Solution:
    """Accelerated proximal gradient with the alternating direction method inside; arguments as in ``admm``."""
    return _apg(PROXES["adm"], *args, **options)  # type: ignore[arg-type]


def apg_dr(*args: object, **options: object) -> Solution:
    """Accelerated proximal gradient with Douglas-Rachford splitting inside; arguments as in ``admm``."""
    return _apg(PROXES["dr"], *args, **options)  # type: ignore[arg-type]


def newton(
    smooth: Smooth,
    penalty: Penalty,
    alpha: Array,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    on_iteration: Watcher | None = None,
) -> Solution:
    """Solve a problem whose loss is no square by a sequence of squares: proximal Newton, ADMM inside.

    Every model of second order costs one weighted gram and then some iterations that do not look at the samples; a
    handful of models is enough where a fixed bound of the curvature takes thousands of passes. Arguments as in ``admm``.
    """
    xp = array_namespace(alpha)
    count = smooth.n_problems
    if count > 1:  # separable: every problem has a curvature of its own
        options = {"tol": tol, "max_iter": max_iter, "on_iteration": on_iteration}
        one = [xp.asarray([k], device=device(alpha)) for k in range(count)]
        starts = [None if start is None else start.take(k, k) for k in one]
        pairs = zip(one, starts, strict=True)
        return Solution.joined([newton(smooth.take(k), penalty, alpha[k], start=s, **options) for k, s in pairs])  # type: ignore[arg-type]
    problems = _Problems.of(smooth, penalty, alpha)
    found = problems.zero() if start is None else problems.certified(start.W, start.split, 0, start.rho)
    W, inner = found.W, found
    finish, spent, accuracy = _Finish(problems, tol), 0, 0.1
    while True:
        found, done = finish.judge(problems, replace(found, n_iter=spent))
        if on_iteration is not None:
            on_iteration(found)
        if bool(xp.all(done)) or spent >= max_iter:
            return found
        at = smooth.evaluate(problems.rows(W))
        model = smooth.model(problems.rows(W), at)
        if model is None:
            return admm(smooth, penalty, alpha, tol=tol, max_iter=max_iter, start=start, on_iteration=on_iteration)
        first = None if spent == 0 and start is None else inner
        goal = accuracy * min(float(found.gap[0]), 1.0)
        inner = admm(model, penalty, alpha, tol=goal, max_iter=max_iter, start=first, reference=problems.reference)
        if inner.n_iter == 0:  # good enough for the model, which is more lenient than the loss
            accuracy *= 0.1
        spent += max(inner.n_iter, 1)
        step = _searched(problems, W, inner, at)
        if step is None:  # the model is no guide here; its bound is, one pass an iteration
            return admm(smooth, penalty, alpha, tol=tol, max_iter=max(max_iter - spent, 1), start=found)
        found, W = step, step.W


def _searched(problems: _Problems, W: Array, inner: Solution, at: Evaluation) -> Solution | None:
    """Go from W towards the answer of the model, halving the step until the true objective falls."""
    xp = array_namespace(W)
    before = float(at.value[0]) + float(problems.alpha[0]) * float(xp.sum(problems.penalty.value(W, inner.split)))
    length = 1.0
    for _ in range(20):
        trial = problems.certified(W + length * (inner.W - W), inner.split, 0, inner.rho)
        # The rounding of two sums: without it the last step, which changes nothing any more, would be refused.
        if float(trial.objective[0]) <= before + 1e-14 * abs(before):
            return trial
        length *= 0.5
    return None


SOLVERS: dict[str, Solver] = {"admm": admm, "apg-adm": apg_adm, "apg-dr": apg_dr, "newton": newton}
