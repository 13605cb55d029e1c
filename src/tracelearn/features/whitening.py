"""ModeWhitener: the directions of every mode made alike in variance."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin

from tracelearn.arrays.array_api import Array
from tracelearn.features.axes import read_modes, read_time_axis, times_and_channels
from tracelearn.features.base import TAKES_LONG, ModeTransformer
from tracelearn.features.matrices import symmetric_power
from tracelearn.features.summaries import Summary
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["ModeWhitener"]

# A search does not try it where sums of squares and eigenvectors take more multiplications than this.
_MOST_MULTIPLICATIONS = 1e11


class ModeWhitener(OneToOneFeatureMixin, ModeTransformer):
    """Whiten samples mode by mode: multiply every mode by a power of its covariance.

    Mode n is multiplied by the symmetric matrix ``C^power``, where C is the mode's covariance over the training samples, in
    units of its mean eigenvalue and shrunk towards the identity: ``(1 - shrinkage) C + shrinkage I``. Since C has no units,
    samples keep their size: ``transform(a X) = a transform(X)`` for what is fitted on ``a X`` and X. The ranks of a sample
    do not change, and only the covariances of the modes are needed, never a p by p matrix.

    Parameters
    ----------
    power : float, default=-0.5
        -1/2 whitens each mode, -1/4 whitens half as much, 0 leaves the samples as they are.
    shrinkage : float between 0 and 1, default=0.05
    modes : int, sequence of ints or None, default=None
        The modes to whiten, counted from 0; None: all.
    time_axis : int, "auto" or None, default=None
        A mode that is left as it is: channels are whitened, time is not. "auto" lets ``find_time_axis`` choose it.
    center : bool, default=False
        Whether to subtract the mean first. A linear model has an intercept, and does not need it.
    unit_variance : bool, default=False
        Whether samples are divided by the root of the mean variance of their entries as well, so that neither their units nor
        the gain of a device are left: then ``transform(a X) = transform(X)``.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    mean_ : array of the shape of a sample
    mode_covariances_ : list of arrays of shape (I_n, I_n)
        Of every mode, about the mean, as in ``ModePCA``: the trace of each is the total variance.
    mode_whiteners_ : list of symmetric arrays of shape (I_n, I_n)
        What every mode is multiplied by, the identity for modes that are left alone. Directions without variance are left
        as they are. With ``unit_variance`` the first is divided by the root of the mean variance.
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

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "power": [Interval(Real, -1, 0, closed="both")],
        "shrinkage": [Interval(Real, 0, 1, closed="both")],
        "modes": [Integral, "array-like", None],
        "time_axis": [Integral, StrOptions({"auto"}), None],
        "center": ["boolean"],
        "unit_variance": ["boolean"],
        "tensor_shape": ["array-like", None],
    }

    mode_whiteners_: list[Array]

    def __init__(
        self,
        power: float = -0.5,
        *,
        shrinkage: float = 0.05,
        modes: Any = None,
        time_axis: Any = None,
        center: bool = False,
        unit_variance: bool = False,
        tensor_shape: Any = None,
    ) -> None:
        self.power = power
        self.shrinkage = shrinkage
        self.modes = modes
        self.time_axis = time_axis
        self.center = center
        self.unit_variance = unit_variance
        self.tensor_shape = tensor_shape

    def why_not(self, shape: tuple[int, ...], n_samples: int, positive: bool = False) -> str:
        """See ``TensorTransformer``: several modes, none so long that its eigenvectors take long."""
        if len(shape) < 2:
            return "samples have one mode"
        if self.time_axis is not None and times_and_channels(shape, self.time_axis)[1] < 2:
            return "there is no time with several channels"
        if self.power == -0.5 and math.prod(shape) == max(shape):
            # Fully whitened, all directions have one variance: nothing tells signal from noise.
            return "samples have one mode of more than one entry"
        multiplications = n_samples * math.prod(shape) * sum(shape) + 10 * sum(size**3 for size in shape)
        return TAKES_LONG if multiplications > _MOST_MULTIPLICATIONS else ""

    @property
    def mode_matrices(self) -> list[Array]:
        """The whitener of every mode."""
        return self.mode_whiteners_

    def attributes_from(self, summary: Summary, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return covariances and whiteners of all modes."""
        modes = range(len(shape)) if self.modes is None else read_modes(self.modes, shape, "modes")
        time = None if self.time_axis is None else read_time_axis(self.time_axis, shape)
        covariances = [scatter / summary.weight for scatter in summary.sums]
        whiteners = [
            self.whitener_of(C) if mode in modes and mode != time else np.eye(len(C))
            for mode, C in enumerate(covariances)
        ]
        mean_variance = np.trace(covariances[0]) / math.prod(shape)
        if self.unit_variance and mean_variance > 0:
            whiteners[0] = whiteners[0] / math.sqrt(mean_variance)
        return {"mean_": summary.mean, "mode_covariances_": covariances, "mode_whiteners_": whiteners}

    def whitener_of(self, C: Array) -> Array:
        """Raise the covariance of a mode, divided by its mean eigenvalue and shrunk, to ``power``."""
        unit = np.trace(C) / len(C)
        eye = np.eye(len(C))
        shrunk = (1.0 - self.shrinkage) * (C / unit if unit > 0 else eye) + self.shrinkage * eye
        return symmetric_power(shrunk, self.power, without_variance=1.0)
