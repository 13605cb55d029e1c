"""Regularisation paths: decreasing alphas, each solve started from the one before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.estimators import TraceNormRegressor
from tracelearn.estimators.base import TraceNormModel
from tracelearn.problems.forms import choose_form
from tracelearn.problems.problem import alpha_max
from tracelearn.samples.samples import as_raw
from tracelearn.search.search import read_alphas

__all__ = ["TraceNormPath", "trace_norm_path"]


@dataclass(frozen=True, eq=False)
class TraceNormPath:
    """Models along decreasing alphas: ``coefs`` and ``intercepts`` have one more first axis than those of a fit.

    So have ``confound_coefs``, which are None where there were no confounds.
    """

    alphas: Array
    coefs: Array
    intercepts: Array
    dual_gaps: Array
    n_iters: Array
    confound_coefs: Array | None = None


def trace_norm_path(
    X: Any,
    y: Any,
    *,
    estimator: TraceNormModel | None = None,
    alphas: Any = 100,
    eps: float = 1e-3,
    sample_weight: Any = None,
    confounds: Any = None,
) -> TraceNormPath:
    """Solve for many alphas, each started from the one before.

    Parameters
    ----------
    X, y, sample_weight, confounds : as for ``fit``
    estimator : TraceNormRegressor or TraceNormClassifier, default=TraceNormRegressor()
        Its parameters other than alpha are used: loss, penalty, ridge, tol and so on. It is not fitted.
    alphas : int or array, default=100
        Number of alphas, from ``alpha_max``, where all weights are zero, down to ``eps`` times it; or the alphas.
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
    model: Any = TraceNormRegressor() if estimator is None else type(estimator)(**estimator.get_params(deep=False))
    model._validate_params()
    grid, given = read_alphas(alphas, eps)
    samples = model._read(model._gathered(as_raw(X, y, sample_weight, confounds), model._loss()))
    regression = None
    if samples.n_confounds:
        samples = samples.checked()
        regression = samples.regression(centre=model.fit_intercept)
        samples = samples.residual(regression)
    K = samples.n_targets
    loss = model._loss(K)
    form = choose_form(samples, loss)
    samples = samples if form.uses_moments and not model.scaling else samples.checked()
    scales = samples.mode_scales() if model.scaling else None
    options = {"ridge": model.ridge, "joint": model.target_mode, "fit_intercept": model.fit_intercept, "spectral": True}
    fit = form.data_fit(samples.rescaled(scales), loss, **options)
    problems, solver = model._stated(fit, K)
    xp, found, points = array_namespace(problems.scale), None, []
    top = float(xp.max(alpha_max(fit, problems.penalty, problems.shape))) or 1.0
    for alpha in grid if given else grid * top:
        if found is not None and found.rho is not None and alpha > 0:  # forces, and so the step, scale with alpha
            found = replace(found, rho=found.rho * float(alpha / points[-1][0]))
        strength = xp.full_like(problems.scale, float(alpha))
        problems = replace(problems, alpha=strength, penalised=bool(alpha > 0))
        found = solver(problems, tol=model.tol, max_iter=model.max_iter, start=found)
        points.append((float(alpha), xp.reshape(found.W, (K, -1)), float(xp.max(found.gap)), found.n_iter))
    rows = [W if scales is None else W / scales for _, W, _, _ in points]
    intercepts, weights = [fit.intercept(W) for _, W, _, _ in points], []
    if regression is not None:
        weights = [regression.weights(W) for W in rows]
        intercepts = [b - own @ regression.centre for b, own in zip(intercepts, weights, strict=True)]
    intercepts = [float(b[0]) if model._single else b for b in intercepts]
    own = (samples.n_features,) if model._flat else samples.shape
    return TraceNormPath(
        alphas=np.array([alpha for alpha, *_ in points]),
        coefs=xp.stack([model._shaped(W, own) for W in rows]),  # in double precision, of which the gaps are true
        intercepts=np.array(intercepts) if isinstance(intercepts[0], float) else xp.stack(intercepts),
        dual_gaps=np.array([gap for *_, gap, _ in points]),
        n_iters=np.array([n_iter for *_, n_iter in points]),
        confound_coefs=xp.stack([model._shaped(own, own.shape[1:]) for own in weights]) if weights else None,
    )
