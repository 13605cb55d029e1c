"""trace_norm_path: the model for a whole range of alphas at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.estimators import TraceNormRegressor
from tracelearn.estimators.base import TraceNormModel, check_dense
from tracelearn.selection.path import alpha_grid, walk_path
from tracelearn.solvers import SOLVERS

__all__ = ["TraceNormPath", "trace_norm_path"]


@dataclass(frozen=True, eq=False)
class TraceNormPath:
    """Models along decreasing alphas: ``coefs`` and ``intercepts`` have one more first axis than those of a fit."""

    alphas: Array
    coefs: Array
    intercepts: Array
    dual_gaps: Array
    n_iters: Array


def trace_norm_path(
    X: Any,
    y: Any,
    *,
    estimator: TraceNormModel | None = None,
    alphas: Any = 100,
    eps: float = 1e-3,
    sample_weight: Any = None,
) -> TraceNormPath:
    """Solve for many alphas, each started from the one before.

    Parameters
    ----------
    X, y, sample_weight : as for ``fit``
    estimator : TraceNormRegressor or TraceNormClassifier, default=TraceNormRegressor()
        Says everything but alpha: loss, penalty, ridge, tol and so on. It is not fitted.
    alphas : int or array, default=100
        How many, from ``alpha_max``, where all weights are zero, down to ``eps`` times it; or the alphas themselves.
    eps : float, default=1e-3

    Examples
    --------
    >>> from tracelearn import trace_norm_path
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(200, (6, 5, 4), rank=1, random_state=0)
    >>> path = trace_norm_path(X, y, alphas=10)
    >>> path.coefs.shape, bool(path.dual_gaps.max() <= 1e-6)
    ((10, 6, 5, 4), True)
    """
    model: Any = TraceNormRegressor() if estimator is None else type(estimator)(**estimator.get_params())
    model._validate_params()
    batch = model._read(X, y, sample_weight, reset=True)
    n_targets = batch.Y.shape[1]
    form = batch.form(has_moments=model.loss == "squared")
    scales = None
    if model.scaling:
        check_dense(batch)
        scales = batch.widened().scales()
    seen = batch if scales is None else batch.widened().rescaled(scales)
    smooth = model._smooth(seen, form.name, joint=model._joint(n_targets), spectral=True)
    penalty = model._penalty(batch.shape, n_targets)
    grid = alpha_grid(smooth, penalty, alphas, eps)
    solver = SOLVERS[smooth.best_solver if model.solver == "auto" else model.solver]
    points = list(walk_path(smooth, penalty, grid, solver, tol=model.tol, max_iter=model.max_iter))
    xp = array_namespace(batch.X)
    weights = [point.W for point in points]
    intercepts = [model._scalar(point.intercept) for point in points]
    return TraceNormPath(
        alphas=grid,
        coefs=xp.stack([model._shaped(W if scales is None else W / scales, batch.shape) for W in weights]),
        intercepts=np.array(intercepts) if isinstance(intercepts[0], float) else xp.stack(intercepts),
        dual_gaps=np.array([point.gap for point in points]),
        n_iters=np.array([point.n_iter for point in points]),
    )
