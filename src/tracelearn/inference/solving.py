"""Fits of one model to many sets of targets, or to many samples, as batches of problems.

A set is one version of the targets, such as a permutation of them. It changes only the products of samples and targets, so all
sets are right-hand sides of one system, factored once. Invariant: the answer for each set is that of a fit to it alone, to
``tol``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import device
from sklearn.exceptions import ConvergenceWarning

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, move_to, to_numpy
from tracelearn.errors import warn
from tracelearn.fitting import Settings, state_problems
from tracelearn.inference.reading import Reading
from tracelearn.problems.forms import choose_form
from tracelearn.problems.problem import Problems, Solution
from tracelearn.problems.squares import Squares
from tracelearn.samples.reading import Spec
from tracelearn.samples.samples import Samples
from tracelearn.solvers import Solver, admm

__all__ = ["batches", "solve_groups", "solve_sets"]

# Numbers in the weights of one batch: more would not fit in cache, of fewer the overhead of calls would be large.
_LARGEST_BATCH = 250_000

# The smallest gap that is tried in single precision, whose rounding hides smaller ones. Nearly all problems reach a gap of 2e-3
# in six iterations, and a certificate costs more than one of these; what takes many times as long is given up.
_SINGLE_TOL = 1e-3
_SINGLE_CHECK_EVERY = 6
_SINGLE_MAX_ITER = 48


def batches(count: int, size: int) -> Iterator[slice]:
    """Cut a count of sets into batches whose weights are not too large, given the numbers of one set."""
    step = max(1, _LARGEST_BATCH // size)
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def solve_sets(reading: Reading, samples: Samples, n_sets: int = 1, *, tol: float = 0.0) -> tuple[Array, Array]:
    """Fit a model to every set of targets; return weights (S K, p) and intercepts (S K,).

    The loss of several classes that is not a sum over them has one system for each set: its sets are solved one by one.

    Parameters
    ----------
    samples : with the columns of all sets side by side, S K of them
    tol : the relative duality gap of every fit, but never below the model's; a large one is solved for in single precision
    """
    settings = reading.settings
    K = samples.n_targets // n_sets
    if n_sets > 1 and not _share_one_system(reading, K):
        solved = [solve_sets(reading, samples_of_set, tol=tol) for samples_of_set in _one_by_one(samples, n_sets)]
        xp = array_namespace(solved[0][0])
        return xp.concat([weights for weights, _ in solved]), xp.concat([intercepts for _, intercepts in solved])
    scales = samples.mode_scales() if settings.scaling else None
    data_fit = _data_fit_of_sets(reading, samples.rescaled(scales), n_sets)
    xp = array_namespace(data_fit.ridge)
    tol = max(tol, settings.tol)
    rows = []
    for batch in batches(data_fit.n_problems, data_fit.n_features * (K if settings.target_mode else 1)):
        index = xp.arange(batch.start, batch.stop, device=device(data_fit.ridge))
        problems, solver = state_problems(data_fit.take(index), reading.spec, settings)
        solve = _solve_roughly if tol >= _SINGLE_TOL and _suits_single(problems, solver) else _solve_exactly
        rows_of_batch, gap = solve(problems, solver, tol, settings.max_iter)
        _warn_of_gap(gap, tol, "in all fits", "in some")
        rows.append(xp.reshape(rows_of_batch, (-1, data_fit.n_features)))
    W = xp.concat(rows)
    intercepts = data_fit.intercept(W) if settings.fit_intercept else xp.zeros_like(W[:, 0])
    return W if scales is None else W / scales, intercepts


def solve_groups(data_fit: Squares, spec: Spec, settings: Settings, where: str) -> Array:
    """Solve problems of which each group has a system of its own, as one batch: weights (T K, p).

    Warns of gaps above the tolerance, and says where.
    """
    problems, solver = state_problems(data_fit, spec, settings)
    solution = solver(problems, tol=settings.tol, max_iter=settings.max_iter, exact_ranks=False)
    _warn_of_gap(float(np.max(solution.gap)), settings.tol, f"at all {where}", "at some")
    return array_namespace(solution.W).reshape(solution.W, data_fit.cross.shape)


# --- sets that share one system ---------------------------------------------------------------------------------------


def _share_one_system(reading: Reading, n_targets: int) -> bool:
    """Tell whether all sets can be one batch: right-hand sides of one system, or losses that are sums over targets."""
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


def _suits_single(problems: Problems, solver: Solver) -> bool:
    """Tell whether single precision can prove a gap: that of squares, solved by ADMM."""
    return solver is admm and problems.penalised and isinstance(problems.fit, Squares)


def _solve_exactly(problems: Problems, solver: Solver, tol: float, max_iter: int) -> tuple[Array, float]:
    """Solve problems in double precision: weight tensors as rows (T, q), and the largest gap."""
    solution = solver(problems, tol=tol, max_iter=max_iter, exact_ranks=False)
    return _rows_with_exact_zeros(problems, solution, tol), float(array_namespace(solution.gap).max(solution.gap))


def _solve_roughly(problems: Problems, solver: Solver, tol: float, max_iter: int) -> tuple[Array, float]:
    """As ``_solve_exactly``, but first in single precision; problems whose gap is not reached there are solved in double."""
    xp = array_namespace(problems.alpha)
    precision = problems.alpha.dtype
    fit: Any = problems.fit.single()  # type: ignore[attr-defined]
    alpha, scale = (as_dtype(numbers, fit.ridge.dtype) for numbers in (problems.alpha, problems.scale))
    rough = replace(problems, fit=fit, alpha=alpha, scale=scale)
    solution = admm(rough, tol=tol, max_iter=_SINGLE_MAX_ITER, exact_ranks=False, check_every=_SINGLE_CHECK_EVERY)
    rows = as_dtype(_rows_with_exact_zeros(rough, solution, tol), precision)
    # Compared in double precision: a gap just above tol may be equal to it once both are rounded to single precision.
    unproven = xp.nonzero(as_dtype(solution.gap, precision) > tol)[0]
    if unproven.shape[0] == 0:
        return rows, tol
    exact_rows, gap = _solve_exactly(problems.take(unproven), solver, tol, max_iter)
    return _with_rows_replaced(rows, solution.tensors_of(unproven), exact_rows), gap


def _rows_with_exact_zeros(problems: Problems, solution: Solution, tol: float) -> Array:
    """Return weight tensors as rows (T, q), with exact zeros in place of tensors that are zero up to rounding.

    These lower the objective by no more than ``tol``, and their split is zero. Predictions by rounding errors would still have
    ranks, which scores such as the area under a curve would take for a result.
    """
    xp = array_namespace(solution.W)
    rows = xp.reshape(solution.W, (solution.W.shape[0], -1))
    gain_little = xp.nonzero(problems.scale - solution.objective <= tol * problems.scale)[0]
    if gain_little.shape[0] == 0:
        return rows
    candidates = solution.take(gain_little)
    tidied = problems.take(gain_little).penalty.tidy(candidates.W, candidates.split)
    has_weights = xp.any(xp.reshape(tidied, (tidied.shape[0], -1)) != 0, axis=1)
    tensors = solution.tensors_of(gain_little)
    return _with_rows_replaced(rows, tensors, rows[tensors, :] * as_dtype(has_weights, rows.dtype)[:, None])


def _with_rows_replaced(rows: Array, index: Array, values: Array) -> Array:
    """Return rows (n, p) with those of an index (m,) replaced by values (m, p); arrays of some libraries are read-only."""
    xp = array_namespace(rows)
    place = np.arange(rows.shape[0])
    place[to_numpy(index)] = rows.shape[0] + np.arange(index.shape[0])
    return xp.take(xp.concat([rows, values]), move_to(place, rows), axis=0)


def _warn_of_gap(gap: float, tol: float, everywhere: str, somewhere: str) -> None:
    """Warn of fits that are not proven."""
    if gap > tol:
        warn(
            f"Expected relative duality gaps of {tol:g} {everywhere}, got {gap:.1e} {somewhere}: increase max_iter, scale the "
            "features, or accept a larger tol.",
            ConvergenceWarning,
        )
