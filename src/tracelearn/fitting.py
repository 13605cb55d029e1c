"""Fitting a linear model: from checked samples, or their moments, to weights with a proof of how good they are.

``fit_linear`` is a pure function. Estimators, cross-validation, trees of models, streams and tests call it, and nothing here
writes on an estimator. The certificate is that of the weights as they are handed out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, is_sparse, move_to, same_place, to_numbers
from tracelearn.arrays.linalg import mode_scales
from tracelearn.confounds import Regression
from tracelearn.errors import brief, warn
from tracelearn.losses import LOSSES, Loss
from tracelearn.moments import Moments
from tracelearn.penalties import Penalty, as_penalty
from tracelearn.problems.data_fit import DataFit
from tracelearn.problems.forms import choose_form
from tracelearn.problems.problem import Problems, Solution, share_of_alpha_max
from tracelearn.problems.squares import Squares
from tracelearn.samples.reading import Spec
from tracelearn.samples.samples import Samples
from tracelearn.samples.targets import loss_for
from tracelearn.solvers import SOLVERS, Solver, subspaces

__all__ = [
    "Fitted",
    "Prepared",
    "Settings",
    "WarmStart",
    "ZeroWeightsWarning",
    "fit_linear",
    "loss_named",
    "prepare",
    "reporter",
    "state_problems",
    "visible_log",
    "warn_of_fit",
]

logger = logging.getLogger("tracelearn")

# alpha="auto" is this share of alpha_max: of 0.3, 0.1, 0.03 and 0.01 the best on average over nine data sets.
_AUTO_SHARE = 0.03

Report = Callable[[str, int], None]  # takes a message, and from which level of verbosity on it is to be seen


class ZeroWeightsWarning(UserWarning):
    """A model has learned nothing: all of its weights are zero."""


def loss_named(name_or_loss: Any, *, for_classes: bool) -> Loss:
    """Make the loss of a name, or return a loss as it is; refuse one that is not for classes, or for numbers."""
    loss = LOSSES[name_or_loss]() if isinstance(name_or_loss, str) and name_or_loss in LOSSES else name_or_loss
    purpose = "for_classes" if for_classes else "for_numbers"
    if isinstance(loss, str | type) or not getattr(loss, purpose, False):
        names = sorted(name for name, kind in LOSSES.items() if getattr(kind, purpose))
        raise ValueError(
            f"Expected a loss for {'classes' if for_classes else 'numbers'}, one of {', '.join(map(repr, names))} or an object "
            f"that is one, got {brief(name_or_loss)}: choose one of these, or derive a class from tracelearn.losses.Loss."
        )
    return loss


@dataclass(frozen=True)
class Settings:
    """The parameters of a fit, as ``TraceNormRegressor`` names and describes them; the loss is an object."""

    loss: Loss
    alpha: Any = "auto"
    ridge: float = 0.0
    penalty: Any = "overlapped"
    mode_weights: Any = None
    target_mode: bool = False
    scaling: str | None = None
    fit_intercept: bool = True
    solver: Any = "auto"
    tol: float = 1e-6
    max_iter: int = 1000

    def loss_of(self, spec: Spec) -> Loss:
        """Find the loss for as many columns as targets are coded in."""
        return loss_for(self.loss, spec.n_targets)

    def weights_shape(self, spec: Spec) -> tuple[int, ...]:
        """Find the shape of one weight tensor; with ``target_mode`` the targets are its first mode."""
        shares_modes = self.target_mode and spec.n_targets > 1
        return (spec.n_targets, *spec.sample_shape) if shares_modes else spec.sample_shape

    def penalty_of(self, spec: Spec) -> Penalty:
        """Make the penalty for weights of that shape."""
        penalty: Penalty = as_penalty(self.penalty, self.weights_shape(spec), self.mode_weights)
        return penalty


@dataclass(frozen=True, eq=False)
class WarmStart:
    """The solution of a fit, for the next one to start from, and the problem that it solves."""

    solution: Solution
    penalty: Penalty
    loss: Loss
    n_targets: int

    def suits(self, problems: Problems, loss: Loss, n_targets: int) -> bool:
        """Tell whether it can be started from: the same penalty, loss and number of targets, on the same device."""
        alike = self.penalty == problems.penalty and self.loss == loss and self.n_targets == n_targets
        return alike and same_place(self.solution.W, problems.alpha)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted linear model: ``scores = X coef + intercept``, with an axis of targets everywhere.

    Parameters
    ----------
    coef : array of shape (K, *sample_shape), in the precision of the samples where that is fine enough for the gap
    intercept : array of shape (K,), in double precision
    confound_coef : array of shape (K, n_confounds), or None
    patterns : array of the shape of ``coef``, the covariances of entries with scores
    alpha : array of shape (B,), what was used; B problems, K of them or with ``target_mode`` one
    objective, gap : summed over problems, and the largest of them, relative to the objective at W = 0
    convergence : array of shape (n_checks, 2), iteration and largest gap at every check
    """

    coef: Array
    intercept: Array
    confound_coef: Array | None
    patterns: Array
    alpha: Array
    objective: float
    gap: float
    n_iter: int
    convergence: Array
    warm_start: WarmStart | None  # None where nothing is to start from it any more


def fit_linear(
    data: Samples | Moments | Prepared,
    spec: Spec,
    settings: Settings,
    *,
    start: WarmStart | None = None,
    report: Report | None = None,
) -> Fitted:
    """Fit weights to samples, or to their moments.

    Parameters
    ----------
    data : checked samples; or their moments, in which confounds are features after those of the samples; or what ``prepare`` made
        of either
    spec : what is known of the samples
    start : a solution of a neighbouring problem to start from
    report : takes what there is to say, with a level of verbosity
    """
    report = report or _say_nothing
    prepared = data if isinstance(data, Prepared) else prepare(data, spec, settings, report=report)
    problems, solver = state_problems(prepared.data_fit, spec, settings)
    loss = settings.loss_of(spec)
    if start is not None and not start.suits(problems, loss, spec.n_targets):
        start = None
    if settings.solver == "auto" and solver is subspaces:
        report(
            "subspaces: two passes for the best weights in subspaces of the modes, which then grow"
            if problems.penalty.is_invariant
            else "apg: some term of the penalty is no trace norm, so every gradient is a pass",
            1,
        )
    checks: list[tuple[int, float]] = []

    def watch(solution: Solution) -> None:
        gap = float(array_namespace(solution.gap).max(solution.gap))
        checks.append((solution.n_iter, gap))
        report(f"iteration {solution.n_iter}, relative duality gap {gap:.1e}", 2)

    solution = solver(
        problems,
        tol=settings.tol,
        max_iter=settings.max_iter,
        start=None if start is None else start.solution,
        on_iteration=watch,
    )
    solution, rounded = _in_precision_of_samples(problems, solution, prepared.scales, spec, settings.tol)
    xp = array_namespace(solution.W)
    W = xp.reshape(solution.W, (-1, spec.n_features))
    gap = float(xp.max(solution.gap))
    report(f"relative duality gap {gap:.1e} after {solution.n_iter} iterations", 1)
    # W is for samples divided by scales: <W, x / scales> = <W / scales, x>.
    rows = W if prepared.scales is None else W / prepared.scales
    intercept = prepared.data_fit.intercept(W) if settings.fit_intercept else xp.zeros_like(W[:, 0])
    confound_coef = None
    if prepared.regression is not None:  # scores are linear in a sample and its confounds
        confound_coef = prepared.regression.weights(rows)
        intercept = intercept - confound_coef @ prepared.regression.centre
    return Fitted(
        coef=xp.reshape(rounded, (-1, *spec.sample_shape)),
        intercept=intercept,
        confound_coef=confound_coef,
        patterns=xp.reshape(_narrowed(prepared.covariance_times(rows), spec.dtype), (-1, *spec.sample_shape)),
        alpha=problems.alpha,
        objective=float(xp.sum(solution.objective)),
        gap=gap,
        n_iter=solution.n_iter,
        convergence=move_to(_gap_curve([*checks, (solution.n_iter, gap)]), W, W.dtype),
        warm_start=WarmStart(solution, problems.penalty, loss, spec.n_targets),
    )


def state_problems(data_fit: DataFit, spec: Spec, settings: Settings) -> tuple[Problems, Solver]:
    """Write down the batch of problems of a data fit, and find the solver: by name, the one that suits, or a function."""
    shape = settings.weights_shape(spec)
    penalty = settings.penalty_of(spec)
    scale = data_fit.at_zero.value
    if isinstance(settings.alpha, str):
        alpha = share_of_alpha_max(data_fit, penalty, shape, _AUTO_SHARE)
    else:
        alpha = array_namespace(scale).full_like(scale, float(settings.alpha))
    is_penalised = isinstance(settings.alpha, str) or settings.alpha > 0
    solver = settings.solver
    if isinstance(solver, str):
        solver = SOLVERS.get(data_fit.solvers.best if solver == "auto" else solver)
    if not callable(solver):
        raise ValueError(
            f"Expected a solver among 'auto', {', '.join(map(repr, SOLVERS))}, or a function like these, got "
            f"{brief(settings.solver)}: choose one."
        )
    return Problems(data_fit, penalty, alpha, shape, scale, is_penalised), solver


# --- what a fit is made of --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Prepared:
    """The data fit of samples, confounds regressed out and scales divided by, and what turns its weights into those of samples.

    It depends on no alpha, penalty or solver, so that a path prepares its samples once. ``covariance_times`` multiplies rows
    (K, p) with the covariance of the samples, without what confounds explain.
    """

    data_fit: DataFit
    covariance_times: Callable[[Array], Array]
    scales: Array | None
    regression: Regression | None


def prepare(
    data: Samples | Moments, spec: Spec, settings: Settings, *, spectral: bool = False, report: Report | None = None
) -> Prepared:
    """Build the data fit of samples, or of their moments; with ``spectral`` for many values of alpha."""
    if isinstance(data, Moments):
        return _from_moments(data, spec, settings, spectral=spectral)
    return _from_samples(data, spec, settings, spectral=spectral, report=report or _say_nothing)


def _from_moments(moments: Moments, spec: Spec, settings: Settings, *, spectral: bool) -> Prepared:
    """Build the data fit of moments."""
    xp = array_namespace(moments.gram)
    p = spec.n_features
    regression = None
    if moments.n_features > p:  # the last ones are confounds
        regression = Regression.of_joint(moments if settings.fit_intercept else moments.uncentred(), p)
        moments = regression.residual_moments(moments)
    scales = None
    scaled = moments
    if settings.scaling is not None:
        scales = mode_scales(xp.linalg.diagonal(moments.gram) / moments.weight, spec.sample_shape)
        scaled = moments.rescaled(scales)
    scaled = scaled if settings.fit_intercept else scaled.uncentred()
    data_fit = Squares.of(scaled, ridge=settings.ridge, joint=settings.target_mode, spectral=spectral)
    return Prepared(data_fit, lambda rows: rows @ moments.gram / moments.weight, scales, regression)


def _from_samples(samples: Samples, spec: Spec, settings: Settings, *, spectral: bool, report: Report) -> Prepared:
    """Build the data fit of samples in the form that suits them."""
    loss = settings.loss_of(spec)
    form = choose_form(samples, loss)
    report(form.reason, 1)
    if settings.scaling and is_sparse(samples.like):
        raise ValueError(
            "Expected dense samples with scaling='modes', got a sparse matrix, whose zeros would say nothing of scale: use "
            "scaling=None, and scale the columns before."
        )
    if form.uses_moments:
        return _from_moments(samples.moments(), spec, settings, spectral=spectral)
    samples = form.prepared(samples)
    regression = None
    if samples.n_confounds:
        regression = samples.regression(centre=settings.fit_intercept)
        samples = samples.residual(regression)
    scales = samples.mode_scales() if settings.scaling else None
    data_fit = form.data_fit(
        samples.rescaled(scales),
        loss,
        ridge=settings.ridge,
        joint=settings.target_mode,
        fit_intercept=settings.fit_intercept,
        spectral=spectral,
    )
    return Prepared(data_fit, samples.covariance_times, scales, regression)


def _in_precision_of_samples(
    problems: Problems, solution: Solution, scales: Array | None, spec: Spec, tol: float
) -> tuple[Solution, Array]:
    """Round weights to the precision of the samples, unless the gap would then exceed ``tol``.

    Returns the solution of the weights that are handed out, certified, and these weights as rows, in the units of the samples.
    """
    xp = array_namespace(solution.W)
    W = xp.reshape(solution.W, (-1, spec.n_features))
    rows = W if scales is None else W / scales
    if rows.dtype == spec.dtype:
        return solution, rows
    narrow = _narrowed(rows, spec.dtype)
    exact = as_dtype(narrow, rows.dtype)
    rounded = problems.certified(
        problems.tensors(exact if scales is None else exact * scales), solution.split, solution.n_iter, solution.rho
    )
    limit = max(tol, float(xp.max(solution.gap)))
    if bool(xp.all(rounded.gap <= limit)):
        return rounded, narrow
    return solution, rows


def _narrowed(rows: Array, dtype: Any) -> Array:
    """Cast to a dtype unless numbers would overflow there."""
    xp = array_namespace(rows)
    fits = dtype == rows.dtype or not float(xp.max(xp.abs(rows))) > float(xp.finfo(dtype).max)
    return as_dtype(rows, dtype) if fits else rows


def _gap_curve(checks: list[tuple[int, float]]) -> Array:
    """Return iterations and the largest gap over targets (n, 2) from all checks, of which the last is that of the answer.

    Newton's method solves separable targets one after the other, so where the count of iterations falls, the next target
    begins.
    """
    n_iter, last_gap = checks[-1]
    counts = np.array([count for count, _ in checks[:-1]], dtype=float)
    gaps = np.array([gap for _, gap in checks[:-1]], dtype=float)
    iterations = np.unique(counts[counts < n_iter])
    largest = np.zeros(len(iterations))
    for run in np.split(np.arange(len(counts)), np.flatnonzero(np.diff(counts) <= 0) + 1):
        if len(run):  # between two checks, and after the last, the gap is what was proven before
            last = np.searchsorted(counts[run], iterations, side="right") - 1
            largest = np.maximum(largest, gaps[run][np.maximum(last, 0)])
    return np.stack([np.append(iterations, n_iter), np.append(largest, last_gap)], axis=1)


# --- what there is to say ---------------------------------------------------------------------------------------------


def _say_nothing(message: str, level: int) -> None:
    """Report nothing."""


@contextmanager
def visible_log() -> Iterator[None]:
    """Let what is logged be seen while ``verbose`` reports something, and leave logging as it was."""
    level = logger.level
    handler = None if logger.hasHandlers() else logging.StreamHandler()
    if handler is not None:
        logger.addHandler(handler)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        logger.setLevel(level)
        if handler is not None:
            logger.removeHandler(handler)


def reporter(name: str, verbose: int) -> Report:
    """Make the function that logs messages up to the level ``verbose``, under the name of an estimator."""

    def report(message: str, level: int) -> None:
        if verbose >= level:
            with visible_log():
                logger.info("%s: %s", name, message)

    return report


def warn_of_fit(fitted: Fitted, settings: Settings, name: str, *, rounding: float = 0.0) -> None:
    """Warn of an answer that is not proven, or of weights that are all zero, in the name of an estimator.

    ``rounding`` is the share of the variance that removed samples have left uncertain.
    """
    alpha = float(np.max(to_numbers(fitted.alpha)))
    if fitted.gap > settings.tol:
        advice = "increase max_iter, scale the features, or accept a larger tol."
        if alpha == 0.0:
            advice = (
                "without a penalty nothing is proven along combinations of features that hardly vary, however good the weights "
                "are, so add a small ridge, or a penalty."
            )
        if rounding > settings.tol:
            advice = (
                f"samples that were removed were so much larger that {rounding:.1g} of the variance of the others is rounding, "
                "so fit a new model to the others."
            )
        warn(
            f"Expected a relative duality gap of {settings.tol:g}, got {fitted.gap:.1e} after {fitted.n_iter} iterations of "
            f"{name} with alpha={alpha:g}: {advice}",
            ConvergenceWarning,
        )
    elif not bool(array_namespace(fitted.coef).any(fitted.coef != 0)):
        why = (
            f"with alpha={alpha:g}: it is too large for samples in these units, so decrease it, scale the samples, or let "
            f"{name}CV choose it."
        )
        if alpha == 0.0:
            why = "without a penalty: nothing in the samples varies with the targets, so check both."
        warn(f"Expected some weights that are not zero, got none {why}", ZeroWeightsWarning)
