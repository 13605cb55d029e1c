"""ModeWhitener: the directions of every mode made alike in variance."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import move_to
from tracelearn.arrays.tensors import Array, array_namespace
from tracelearn.features.base import (
    ModeStatistics,
    TensorTransformer,
    multiply_modes,
    read_coef,
    read_modes,
    symmetric_power,
)
from tracelearn.samples.scikit_learn import Interval

__all__ = ["ModeWhitener"]


class ModeWhitener(OneToOneFeatureMixin, ModeStatistics, TensorTransformer):
    """Whiten samples mode by mode: multiply every mode by a power of its covariance.

    Mode n is multiplied by the symmetric matrix ``C^power``, where C is the mode's covariance over the training samples, in
    units of its mean eigenvalue and shrunk towards the identity: ``(1 - shrinkage) C + shrinkage I``. Since C has no units,
    samples keep their size: ``transform(a X) = a transform(X)`` for what is fitted on ``a X`` and X. The ranks of a sample
    stay what they are, and only mode covariances are needed, never p by p.

    Parameters
    ----------
    power : float, default=-0.5
        -1/2 whitens each mode, -1/4 goes half of the way, 0 leaves the samples as they are.
    shrinkage : float between 0 and 1, default=0.05
    modes : int, sequence of ints or None, default=None
        The modes to whiten, counted from 0; None: all.
    center : bool, default=False
        Whether to subtract the mean first. A linear model has an intercept, and does not need it.
    tensor_shape : sequence of ints, default=None
        The shape of a sample when X comes flat, as (n_samples, n_features).

    Attributes
    ----------
    mean_ : array of the shape of a sample
    mode_covariances_ : list of arrays of shape (I_n, I_n)
        Of every mode, about the mean, as in ``ModePCA``: the trace of each is the total variance.
    mode_whiteners_ : list of symmetric arrays of shape (I_n, I_n)
        What every mode is multiplied by, the identity for modes that are left alone. Directions without variance are left
        as they are.
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import ModeWhitener
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2, 20)) * [[1.0], [100.0]]  # two channels, one of them loud
    >>> Z = ModeWhitener(modes=0, shrinkage=0.0).fit_transform(X)
    >>> bool(np.allclose(Z[:, 0].std(), Z[:, 1].std(), rtol=0.01))
    True
    """

    mean_: Array
    mode_covariances_: list[Array]

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "power": [Interval(Real, -1, 0, closed="both")],
        "shrinkage": [Interval(Real, 0, 1, closed="both")],
        "modes": [Integral, "array-like", None],
        "center": ["boolean"],
        "tensor_shape": ["array-like", None],
    }

    def __init__(
        self,
        power: float = -0.5,
        *,
        shrinkage: float = 0.05,
        modes: Any = None,
        center: bool = False,
        tensor_shape: Any = None,
    ) -> None:
        self.power = power
        self.shrinkage = shrinkage
        self.modes = modes
        self.center = center
        self.tensor_shape = tensor_shape

    def _follow(self) -> None:
        shape = self.sample_shape_
        modes = range(len(shape)) if self.modes is None else read_modes(self.modes, shape, "modes")
        covariances = enumerate(self.mode_covariances_)
        self.mode_whiteners_ = [self._whitener(C) if n in modes else np.eye(len(C)) for n, C in covariances]

    def _whitener(self, C: Array) -> Array:
        unit, eye = float(np.trace(C)) / len(C), np.eye(len(C))
        if unit == 0.0:
            return eye
        return symmetric_power((1.0 - self.shrinkage) * (C / unit) + self.shrinkage * eye, self.power, rest=1.0)

    def _map(self, T: Array) -> Array:
        T = T - move_to(self.mean_, T, T.dtype) if self.center else T
        return multiply_modes(T, self.mode_whiteners_)

    def inverse_transform(self, X: Any) -> Array:
        """Bring whitened samples back to where they were."""

        def back(Z: Array) -> Array:
            T = multiply_modes(Z, [np.linalg.inv(matrix) for matrix in self.mode_whiteners_])
            return T + move_to(self.mean_, T, T.dtype) if self.center else T

        return self._restored(X, back)

    def coef_to_input(self, W: Array) -> Array:
        """Express weights that were learned on whitened samples as weights of the samples themselves.

        The whiteners are symmetric, so that the same matrices do it: ``<W, transform(X)>`` is ``<coef_to_input(W), X>``, less
        the constant ``<coef_to_input(W), mean_>`` where samples are centred.

        Parameters
        ----------
        W : array of shape (I1, ..., IN) or (K, I1, ..., IN), such as ``coef_`` of a model
        """
        check_is_fitted(self)
        W, batch = read_coef(W, self.sample_shape_)
        return array_namespace(W).reshape(multiply_modes(batch, self.mode_whiteners_), tuple(W.shape))
