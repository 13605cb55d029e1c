"""Confounds: what is regressed out of samples before a model sees them, from joint moments of both.

A regression is learned from training samples alone and then applied to any others. On moments it is a linear map: those of the
residuals of the training samples themselves are the Schur complement of the confounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.moments import Moments

__all__ = ["Regression"]

# Where confounds explain all but this share of the variance of a feature, the remainder is rounding, and set to zero.
_LEAST_UNEXPLAINED = 1e-12
_LEAST_EIGENVALUE = 1e-10  # eigenvalues of their correlations below this share of the largest mean collinear confounds


@dataclass(frozen=True, eq=False)
class Regression:
    """The least squares fit of every feature by confounds: ``x - (c - centre) slopes`` is what they do not explain.

    ``slopes`` is (q, p), and ``centre`` (q,) the means of the confounds.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import Moments
    >>> from tracelearn.confounds import Regression
    >>> C = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> X = 2.0 * C + np.array([[1.0], [-1.0], [-1.0], [1.0]])
    >>> Regression.of(Moments.of(C, X)).residual(X, C).ravel().round(12)
    array([4., 2., 2., 4.])
    """

    slopes: Array
    centre: Array

    @classmethod
    def of(cls, moments: Moments) -> Regression:
        """Learn from the moments of confounds as features and samples as targets."""
        xp = array_namespace(moments.gram)
        size = xp.sqrt(xp.linalg.diagonal(moments.gram))
        unit = xp.where(size > 0, size, xp.ones_like(size))
        inverse = xp.linalg.pinv(moments.gram / (unit[:, None] * unit[None, :]), rtol=_LEAST_EIGENVALUE)
        slopes = (inverse @ (moments.cross / unit[:, None])) / unit[:, None]
        return cls(slopes, moments.x_mean)

    @classmethod
    def of_joint(cls, joint: Moments, n_features: int) -> Regression:
        """Learn from the moments of samples and confounds together, of which the first ``n_features`` are the samples'."""
        p = n_features
        gram = joint.gram
        mean = joint.x_mean
        squares = array_namespace(gram).linalg.diagonal(gram)[:p]
        return cls.of(Moments(joint.weight, mean[p:], mean[:p], gram[p:, p:], gram[p:, :p], squares))

    def residual(self, X: Array, confounds: Array) -> Array:
        """Return what confounds (n, q) do not explain of samples (n, p), about the means of both."""
        return X - (confounds - self.centre) @ self.slopes

    def residual_moments(self, joint: Moments) -> Moments:
        """Return the moments of residuals, given those of samples and confounds together: of any samples, not only its own."""
        xp = array_namespace(self.slopes)
        B = self.slopes
        p = self.slopes.shape[1]
        back = xp.matrix_transpose(B)
        x_mean = joint.x_mean[:p]
        c_mean = joint.x_mean[p:]
        xx = joint.gram[:p, :p]
        xc = joint.gram[:p, p:]
        cc = joint.gram[p:, p:]
        explained = (xc - 0.5 * back @ cc) @ B
        gram = xx - explained - xp.matrix_transpose(explained)
        is_unexplained = xp.linalg.diagonal(gram) > _LEAST_UNEXPLAINED * xp.linalg.diagonal(xx)
        zeros = xp.zeros_like(gram)
        return replace(
            joint,
            x_mean=x_mean - (c_mean - self.centre) @ B,
            gram=xp.where(is_unexplained[:, None] & is_unexplained[None, :], gram, zeros),
            cross=xp.where(is_unexplained[:, None], joint.cross[:p, :] - back @ joint.cross[p:, :], zeros[:, :1]),
            cancelled=None if joint.cancelled is None else joint.cancelled.first_features(p),
        )

    def weights(self, coef: Array) -> Array:
        """Find the weights (K, q) of the confounds in the scores of a model of residuals with weights (K, p)."""
        return -coef @ array_namespace(coef).matrix_transpose(self.slopes)
