"""Scores of samples by linear weights, wherever the samples are: in memory, in blocks, or on a cluster.

Scores are computed in double precision and cast to the precision of the samples at the end: where samples are far from zero,
as times of day or temperatures are, the products and the intercept cancel, which single precision would lose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, block_bytes, is_sparse, move_to, widest
from tracelearn.errors import InputError
from tracelearn.samples.checks import check_finite, check_place, float_dtype
from tracelearn.samples.modes import read_named
from tracelearn.samples.per_sample import read_confounds
from tracelearn.samples.reading import Spec
from tracelearn.samples.rows import read_rows
from tracelearn.samples.source import as_source, is_dask

__all__ = ["LinearScores", "ScoresSamples", "apply_to_samples"]

_BLOCK_BYTES = 16 << 20  # samples in single precision are widened block by block


@dataclass(frozen=True, eq=False)
class LinearScores:
    """The function ``after(X coef' + intercept)`` of a block of samples, with all that a worker of a cluster needs."""

    name: str  # of the estimator, for errors
    spec: Spec
    coef: Array  # (K, p)
    intercept: Any  # (K,), or a number
    confound_coef: Array | None  # (K, q)
    after: Callable[[Array], Array]  # of scores (n, K)

    def __call__(self, X: Any, confounds: Array | None = None) -> Array:
        """Score samples in memory."""
        rows = read_rows(
            X, name=self.name, known_shape=self.spec.sample_shape, known_names=self.spec.feature_names, any_library=True
        ).rows
        wide = widest(self.coef)["dtype"]
        coef = as_dtype(self.coef, wide)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is refused below
            scores = _products(rows, coef) + self.intercept
            if confounds is not None:
                scores = scores + move_to(confounds, self.coef, wide) @ as_dtype(self.confound_coef, wide).T
            scores = as_dtype(scores, float_dtype(rows))
        check_finite(scores, "scores", overflows=True)
        return self.after(scores)


def _products(rows: Array, coef: Array) -> Array:
    """Multiply rows (n, p) with weights (K, p) in the precision of the weights."""
    xp = array_namespace(coef)
    if is_sparse(rows) or rows.dtype == coef.dtype:
        return as_dtype(rows, coef.dtype) @ xp.matrix_transpose(coef)
    n = rows.shape[0]
    step = max(1, block_bytes(rows, _BLOCK_BYTES) // (8 * rows.shape[1]))
    starts = range(0, n, step)
    parts = [
        as_dtype(rows[start : min(start + step, n), :], coef.dtype) @ xp.matrix_transpose(coef) for start in starts
    ]
    return xp.concat(parts)


def apply_to_samples(scores: Callable[..., Array], X: Any, confounds: Any, spec: Spec) -> Any:
    """Apply a model to samples: at once, block by block, or for a Dask array when it is computed."""
    if is_dask(X):
        from tracelearn.samples.cluster import lazily  # noqa: PLC0415 - Dask is imported where it is used

        C = None if confounds is None else read_confounds(confounds, int(X.shape[0]))
        like = scores(np.zeros((1, *spec.sample_shape)), None if C is None else 0.0 * C[:1])
        return lazily(scores, X, like[:0], C)
    source = as_source(X, confounds=confounds, modes_of_fit=spec.modes)
    C = source.confounds
    if source.in_memory:
        return scores(X, C)
    return np.concatenate(
        [scores(X, None if C is None else C[first : first + len(X)]) for first, X, *_ in source.blocks]
    )


class ScoresSamples:
    """Scores new samples by fitted weights, wherever the samples are."""

    coef_: Any  # (K, ...), or of a single target without that axis
    intercept_: Any
    confound_coef_: Any  # where samples have confounds
    _spec: Spec

    def _applied(self, after: Callable[[Array], Array], method: str, X: Any, confounds: Any) -> Any:
        """Score samples wherever they are, and apply a function to the scores (n, K) of each block."""
        check_is_fitted(self, "coef_")
        self._check_confounds(confounds)
        X, _ = read_named(X, self._spec.modes)
        check_place(X, self.coef_, f"{type(self).__name__}.{method}()")
        xp = array_namespace(self.coef_)
        K = 1 if self._spec.is_single else self.coef_.shape[0]
        weights = getattr(self, "confound_coef_", None)
        scores = LinearScores(
            name=type(self).__name__,
            spec=self._spec,
            coef=xp.reshape(self.coef_, (K, self._spec.n_features)),
            intercept=self.intercept_,
            confound_coef=None if weights is None else xp.reshape(weights, (K, self._spec.n_confounds)),
            after=after,
        )
        return apply_to_samples(scores, X, confounds, self._spec)

    def _check_confounds(self, confounds: Any) -> None:
        """Refuse samples that have not as many confounds as those of ``fit``."""
        expected = self._spec.n_confounds
        got = 0 if confounds is None else 1 if len(np.shape(confounds)) == 1 else int(np.shape(confounds)[-1])
        if got != expected:
            raise InputError(
                f"Expected {expected or 'no'} confounds of each sample, as in fit, got {got or 'none'}: pass "
                f"{'confounds=' if expected else 'samples alone'}."
            )
