"""Fits of one model to many sets of targets, or to many samples, as batches of problems.

A set is one version of the targets, such as a permutation of them. It changes only the products of samples and targets, so all
sets are right-hand sides of one system, factored once. Invariant: the answer for each set is that of a fit to it alone, to
``tol``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device
from sklearn.exceptions import ConvergenceWarning

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, move_to, to_numpy
from tracelearn.errors import warn
from tracelearn.fitting import Settings, state_problems
from tracelearn.inference.reading import Reading
from tracelearn.problems.data_fit import DataFit
from tracelearn.problems.forms import choose_form
from tracelearn.problems.problem import Problems, Solution
from tracelearn.problems.squares import Squares
from tracelearn.samples.reading import Spec
from tracelearn.samples.samples import Samples
from tracelearn.solvers import admm

__all__ = ["Pace", "Solved", "batches", "solve_groups", "solve_sets"]

# Numbers in the weights of one batch: more would leave the cache, fewer are lost in calls.
_LARGEST_BATCH = 250_000

# The smallest gap that is tried in single precision, whose rounding hides smaller ones. Most problems reach it in three or four
# iterations; it is given up after some more.
_SINGLE_TOL = 1e-3
_SINGLE_MAX_ITER = 48

# Of many problems so many come first: their step suits all others better than any guess. With it, the gaps of as many more tell
# when a certificate is worth its cost.
_PILOT = 16


@dataclass(frozen=True)
class Pace:
    """What solves say of those to come: the step of ADMM, and after how many iterations most problems are proven."""

    step: float | None = None
    first_check: int | None = None

    def options(self) -> dict[str, Any]:
        """Return options of ADMM; where the step is known, a certificate is asked for as soon as it is likely to hold."""
        if self.step is None:
            return {"check_every": 4}
        return {"step": self.step, "check_every": 1, "first_check": self.first_check}

    def after(self, solution: Solution, gaps: Sequence[Array], tol: float) -> Pace:
        """Learn the step from a first solve, and from the gaps of each iteration of a second when most are below ``tol``.

        A certificate costs about as much as an iteration, so it should hold for most of the problems.
        """
        if self.step is None:
            if solution.rho is None:
                return self
            xp = array_namespace(solution.rho)
            return Pace(float(xp.exp(xp.mean(xp.log(solution.rho)))))
        if self.first_check is not None:
            return self
        n_open = np.array([np.sum(to_numpy(gap) > tol) for gap in gaps])
        return replace(self, first_check=1 + int(np.sum(n_open > 0.25 * len(solution.gap))))


class Solved(NamedTuple):
    """Weights (S K, p) and intercepts (S K,) of S sets of targets, and what further solves may begin with."""

    weights: Array
    intercepts: Array
    pace: Pace


def batches(count: int, size: int) -> Iterator[slice]:
    """Cut a count of sets into batches whose weights are not too large, given the numbers of one set."""
    step = max(1, _LARGEST_BATCH // size)
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def solve_sets(
    reading: Reading, samples: Samples, n_sets: int = 1, *, tol: float = 0.0, pace: Pace | None = None
) -> Solved:
    """Fit a model to every set of targets.

    The loss of several classes that is not a sum over them has one system for each set: its sets are solved one by one.

    Parameters
    ----------
    samples : with the columns of all sets side by side, S K of them
    tol : the relative duality gap of every fit, but never below the model's; a large one is solved for in single precision
    pace : the step and the first check of an earlier solve for similar samples, to begin with
    """
    settings = reading.settings
    K = samples.n_targets // n_sets
    pace = Pace() if pace is None else pace
    tol = max(tol, settings.tol)
    if n_sets > 1 and not _share_one_system(reading, K):
        solved_sets = []
        for samples_of_set in _one_by_one(samples, n_sets):
            solved_sets.append(solve_sets(reading, samples_of_set, tol=tol, pace=pace))
            pace = solved_sets[-1].pace
        xp = array_namespace(solved_sets[0].weights)
        weights = xp.concat([solved.weights for solved in solved_sets])
        intercepts = xp.concat([solved.intercepts for solved in solved_sets])
        return Solved(weights, intercepts, pace)
    scales = samples.mode_scales() if settings.scaling else None
    data_fit = _data_fit_of_sets(reading, samples.rescaled(scales), n_sets)
    if _suits_single(data_fit, reading, tol):
        W, pace = _solve_roughly(reading, data_fit, tol, pace)
    else:
        W = _solve_exactly(reading, data_fit, tol)
    xp = array_namespace(W)
    intercepts = data_fit.intercept(W) if settings.fit_intercept else xp.zeros_like(W[:, 0])
    return Solved(W if scales is None else W / scales, intercepts, pace)


def solve_groups(data_fit: Squares, spec: Spec, settings: Settings, where: str, *, exact_ranks: bool) -> Array:
    """Solve problems of which each group has a system of its own, as one batch: weights (T K, p).

    Warns of gaps above the tolerance, and says where.
    """
    problems, solver = state_problems(data_fit, spec, settings)
    solution = solver(problems, tol=settings.tol, max_iter=settings.max_iter, exact_ranks=exact_ranks)
    _warn_of_gap(float(np.max(solution.gap)), settings.tol, f"at all {where}", "at some")
    return array_namespace(solution.W).reshape(solution.W, data_fit.cross.shape)


# --- sets that share one system ---------------------------------------------------------------------------------------


def _share_one_system(reading: Reading, n_targets: int) -> bool:
    """Tell whether all sets are right-hand sides of one system, or at least problems of their own."""
    loss = reading.loss
    return loss.has_moments or (loss.is_separable and not (reading.settings.target_mode and n_targets > 1))


def _one_by_one(samples: Samples, n_sets: int) -> Iterator[Samples]:
    """Cut samples with the targets of all sets into those of each set."""
    (block,) = samples.blocks
    K = samples.n_targets // n_sets
    for first in range(0, n_sets * K, K):
        yield Samples.of(replace(block, Y=block.Y[:, first : first + K]), samples.shape)


def _data_fit_of_sets(reading: Reading, samples: Samples, n_sets: int) -> Any:
    """Build the data fit of all sets."""
    settings = reading.settings
    loss = reading.loss
    data_fit: Any = choose_form(samples, loss).data_fit(
        samples,
        loss,
        ridge=settings.ridge,
        joint=settings.target_mode and n_sets == 1,
        fit_intercept=settings.fit_intercept,
        spectral=n_sets > 1,
    )
    if settings.target_mode and n_sets > 1:  # the rows of one set are one problem
        return replace(data_fit, ridge=data_fit.ridge[:n_sets])
    return data_fit


def _suits_single(data_fit: DataFit, reading: Reading, tol: float) -> bool:
    """Tell whether single precision can prove a gap: that of squares, solved by ADMM."""
    if tol < _SINGLE_TOL or reading.settings.alpha == 0 or not isinstance(data_fit, Squares):
        return False
    _, solver = state_problems(_take(data_fit, slice(0, 1)), reading.spec, reading.settings)
    return solver is admm


def _solve_exactly(reading: Reading, data_fit: DataFit, tol: float) -> Array:
    """Solve all problems in double precision, batch by batch: weights (S K, p)."""
    spec = reading.spec
    settings = reading.settings
    step: dict[str, Any] = {}
    weights = []
    largest_gap = 0.0
    for batch in _batches_of(data_fit, spec, settings, n_pilots=1):
        problems, solver = state_problems(_take(data_fit, batch), spec, settings)
        solution = solver(problems, tol=tol, max_iter=settings.max_iter, exact_ranks=False, **step)
        weights.append(_rows_without_dust(problems, solution, tol))
        largest_gap = max(largest_gap, float(array_namespace(solution.gap).max(solution.gap)))
        if solver is admm and solution.rho is not None:
            step = {"step": Pace().after(solution, [], tol).step}
    _warn_of_gap(largest_gap, tol, "in all fits", "in some")
    return array_namespace(weights[0]).concat(weights)


def _solve_roughly(reading: Reading, data_fit: Squares, tol: float, pace: Pace) -> tuple[Array, Pace]:
    """Solve all problems by ADMM in single precision, and in double those whose gap it does not prove: weights (S K, p)."""
    spec = reading.spec
    settings = reading.settings
    xp = array_namespace(data_fit.ridge)
    rough = data_fit.single()
    n_targets = data_fit.cross.shape[0] // data_fit.n_problems
    n_pilots = (pace.step is None) + (pace.first_check is None)
    weights = []
    for batch in _batches_of(data_fit, spec, settings, n_pilots):
        batch_fit = _take(rough, batch)
        solution, pace = _admm_in_single(batch_fit, spec, settings, tol, pace)
        problems, _ = state_problems(batch_fit, spec, settings)
        W = as_dtype(_rows_without_dust(problems, solution, tol), data_fit.ridge.dtype)
        # In double precision: what is rounded to the tolerance of single precision can be above it.
        is_open = as_dtype(solution.gap, data_fit.ridge.dtype) > tol
        if bool(xp.any(is_open)):
            index = xp.nonzero(is_open)[0]
            exact = _solve_exactly(reading, data_fit.take(index + batch.start), tol)
            W = _with_rows_replaced(W, xp.nonzero(xp.repeat(is_open, n_targets))[0], exact)
        weights.append(W)
    return xp.concat(weights), pace


def _admm_in_single(data_fit: Squares, spec: Spec, settings: Settings, tol: float, pace: Pace) -> tuple[Solution, Pace]:
    """Solve problems in single precision, at a pace; return what further solves may begin with, too."""
    problems, _ = state_problems(data_fit, spec, settings)
    gaps: list[Array] = []
    solution = admm(
        problems,
        tol=tol,
        max_iter=_SINGLE_MAX_ITER,
        merge=True,
        exact_ranks=False,
        on_iteration=lambda so_far: gaps.append(so_far.gap),
        **pace.options(),
    )
    return solution, pace.after(solution, gaps, tol)


def _batches_of(data_fit: DataFit, spec: Spec, settings: Settings, n_pilots: int) -> Iterator[slice]:
    """Cut the problems of a data fit into batches; where there are many, the first ones are small."""
    count = data_fit.n_problems
    start = 0
    for _ in range(n_pilots if count > 4 * _PILOT else 0):
        yield slice(start, start + _PILOT)
        start += _PILOT
    for batch in batches(count - start, data_fit.n_features * (spec.n_targets if settings.target_mode else 1)):
        yield slice(start + batch.start, start + batch.stop)


def _take(data_fit: Any, batch: slice) -> Any:
    """Keep the problems of a batch."""
    if batch == slice(0, data_fit.n_problems):
        return data_fit
    xp = array_namespace(data_fit.ridge)
    return data_fit.take(xp.arange(batch.start, batch.stop, device=device(data_fit.ridge)))


def _with_rows_replaced(rows: Array, index: Array, values: Array) -> Array:
    """Return rows (n, p) with those of an index (m,) replaced by values (m, p); arrays of some libraries are read-only."""
    xp = array_namespace(rows)
    place = np.arange(rows.shape[0])
    place[to_numpy(index)] = rows.shape[0] + np.arange(index.shape[0])
    return xp.take(xp.concat([rows, values]), move_to(place, rows), axis=0)


def _rows_without_dust(problems: Problems, solution: Solution, tol: float) -> Array:
    """Return weights as rows (S K, p), zero where they gain no more than the gap and their split says that they are zero.

    What such weights are is rounding, but a score of ranks, such as an area under a curve, would see it.
    """
    xp = array_namespace(solution.W)
    gain = problems.scale - solution.objective
    rows = xp.reshape(solution.W, (-1, problems.fit.n_features))
    parts = solution.split.parts if isinstance(solution.split.parts, tuple) else (solution.split.parts,)
    is_empty = [~xp.all(xp.any(part != 0, axis=tuple(range(2, part.ndim))), axis=0) for part in parts]
    has_empty = xp.any(xp.reshape(xp.any(xp.stack(is_empty), axis=0), (gain.shape[0], -1)), axis=1)
    candidates = xp.nonzero(has_empty & (gain <= tol * problems.scale))[0]
    if candidates.shape[0] == 0:
        return rows
    tensors = solution.tensors_of(candidates)
    tidy = problems.take(candidates).penalty.tidy(xp.take(solution.W, tensors, axis=0), solution.split.take(tensors))
    factors = np.ones(solution.W.shape[0])
    factors[to_numpy(tensors)] = np.any(to_numpy(tidy), axis=tuple(range(1, tidy.ndim)))
    factors = move_to(factors.reshape(-1, *(1,) * (tidy.ndim - 1)), solution.W, solution.W.dtype)
    return xp.reshape(solution.W * factors, rows.shape)


def _warn_of_gap(gap: float, tol: float, everywhere: str, somewhere: str) -> None:
    """Warn of fits that are not proven."""
    if gap > tol:
        warn(
            f"Expected relative duality gaps of {tol:g} {everywhere}, got {gap:.1e} {somewhere}: increase max_iter, scale the "
            "features, or accept a larger tol.",
            ConvergenceWarning,
        )
