"""ModeWhitener: the directions of every mode made alike in variance."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin

from tracelearn.features.base import ModeTransformer, Summary, read_modes, read_time_axis, symmetric_power
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["ModeWhitener"]


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
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

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

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "power": [Interval(Real, -1, 0, closed="both")],
        "shrinkage": [Interval(Real, 0, 1, closed="both")],
        "modes": [Integral, "array-like", None],
        "time_axis": [Integral, StrOptions({"auto"}), None],
        "center": ["boolean"],
        "tensor_shape": ["array-like", None],
    }

    _matrices = "mode_whiteners_"

    def __init__(
        self,
        power: float = -0.5,
        *,
        shrinkage: float = 0.05,
        modes: Any = None,
        time_axis: Any = None,
        center: bool = False,
        tensor_shape: Any = None,
    ) -> None:
        self.power = power
        self.shrinkage = shrinkage
        self.modes = modes
        self.time_axis = time_axis
        self.center = center
        self.tensor_shape = tensor_shape

    def _keep(self, summary: Summary) -> None:
        shape = self.sample_shape_
        modes = range(len(shape)) if self.modes is None else read_modes(self.modes, shape, "modes")
        time = None if self.time_axis is None else read_time_axis(self.time_axis, shape)
        self.mean_, self.mode_covariances_, self.mode_whiteners_ = summary.mean, [], []
        for n, scatter in enumerate(summary.sums):
            C = scatter / summary.weight
            self.mode_covariances_.append(C)
            unit, found = np.trace(C) / len(C), np.eye(len(C))
            if n in modes and n != time:
                shrunk = (1.0 - self.shrinkage) * (C / unit if unit > 0 else found) + self.shrinkage * found
                found = symmetric_power(shrunk, self.power, rest=1.0)
            self.mode_whiteners_.append(found)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read what was saved, also before there was ``time_axis``."""
        super().__setstate__({"time_axis": None} | state)
