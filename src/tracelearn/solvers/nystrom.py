"""A summary of low rank in place of a square matrix that does not fit: some directions of the samples, and a bound for the rest.

The covariance C is known by its products with an orthonormal Q alone (Nyström's approximation): ``N = C Q (Q'CQ)^-1 Q'C``. It
is never above C, and what is left of C has a largest eigenvalue tau, which is estimated. So ``N + tau I`` bounds the curvature
of the squares, and it is factored at once: models with it in place of C lead to the answer in few steps where tau is small,
each one pass over the samples; where the estimate is too small, steps are halved. The certificate comes from the gradient of
all samples, so what the summary leaves out is in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.problems.batch import Problems, Solution, Watcher
from tracelearn.problems.datafits import InBasis, Modelled, SpectralGram, Squares
from tracelearn.solvers.newton import newton
from tracelearn.solvers.subspaces import subspaces

__all__ = ["nystrom"]

_PROBES = 8  # directions in which the rest is looked at
_MARGIN = 2.0  # its largest eigenvalue is found from below


def nystrom(
    problems: Problems,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    start: Solution | None = None,
    exact_ranks: bool = True,
    on_iteration: Watcher | None = None,
    directions: int = 200,
) -> Solution:
    """Solve problems of squares by models whose matrix has low rank, one pass over the samples a model.

    For samples that are large and many, and that vary in few directions; weights need not have low rank, and a term of the
    penalty need not be a trace norm. Other losses are left to ``subspaces``. Arguments as in ``admm``, and

    Parameters
    ----------
    directions : of the summary, which has so many times p numbers; more take fewer passes

    Examples
    --------
    >>> from functools import partial
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.solvers import nystrom
    >>> X, y, _ = make_low_rank_regression(100, (5, 4), rank=1, random_state=0)
    >>> model = TraceNormRegressor(0.1, solver=partial(nystrom, directions=10)).fit(X, y)
    >>> model.dual_gap_ <= 1e-6
    True
    """
    options: dict[str, Any] = {"tol": tol, "exact_ranks": exact_ranks, "on_iteration": on_iteration}
    xp, fit = array_namespace(problems.alpha), problems.fit
    if not isinstance(fit, Squares) or fit.n_groups > 1:
        return subspaces(problems, start=start, max_iter=max_iter, **options)
    begun = problems.begin(start)
    if bool(xp.all(begun.gap <= tol)):
        return begun
    summarised = replace(problems, fit=_summarised(fit, directions))  # type: ignore[arg-type]
    return newton(summarised, start=start, max_iter=max_iter, **options)


def _summarised(fit: Squares, directions: int) -> Modelled:
    """Look at the operator in some directions: three products, each one pass."""
    xp, like, p = array_namespace(fit.cross), fit.cross, fit.n_features
    count = min(directions, p)
    drawn = np.random.default_rng(0).standard_normal((count, p))
    drawn = xp.asarray(drawn, dtype=like.dtype, device=device(like))
    images = fit.operator.apply(drawn)
    basis = xp.linalg.qr(xp.matrix_transpose(images))[0]
    summary = _known(basis, fit.operator.apply(xp.matrix_transpose(basis)))
    left = images - summary.apply(drawn)
    probes = xp.matrix_transpose(xp.linalg.qr(xp.matrix_transpose(left[:_PROBES, :]))[0])
    left = fit.operator.apply(probes) - summary.apply(probes)
    rest = float(xp.max(xp.linalg.eigvalsh(probes @ xp.matrix_transpose(left))))
    return Modelled.around(fit, known=summary, rest=_MARGIN * max(rest, 0.0))


def _known(basis: Array, images: Array) -> InBasis:
    """Approximate an operator by its images (r, p) of an orthonormal basis (p, r), never above it."""
    xp = array_namespace(basis)
    inside = images @ basis
    values, vectors = xp.linalg.eigh(0.5 * (inside + xp.matrix_transpose(inside)))
    kept = values > 1e-10 * xp.max(values)
    roots = xp.where(kept, 1.0 / xp.sqrt(xp.where(kept, values, xp.ones_like(values))), xp.zeros_like(values))
    factor = xp.matrix_transpose(images) @ (vectors * roots)  # (p, r), its square is the approximation
    span, corner = xp.linalg.qr(factor)
    return InBasis(SpectralGram(corner @ xp.matrix_transpose(corner)), span)
