"""Fitted linear models: the one place where their attributes are written, and their weights for a reader.

Weights are read as tensors, with their factors and ranks in every mode, and with the names of the modes of the samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, move_to, to_numbers, to_numpy
from tracelearn.arrays.tensors import mode_factors, n_rank
from tracelearn.errors import InputError
from tracelearn.fitting import Fitted, WarmStart
from tracelearn.moments import Moments
from tracelearn.samples.modes import Mode, to_dataset
from tracelearn.samples.reading import Spec

__all__ = ["NamedWeights", "WeightsInModes", "as_tensors", "factors_of", "ranks_of", "target_names"]


def target_names(estimator: Any, n_targets: int) -> tuple[str, list[Any]]:
    """Return "class" or "target", and the names of the targets that have weights: of two classes the second."""
    if hasattr(estimator, "classes_"):
        classes = to_numpy(estimator.classes_).tolist()
        return "class", classes[1:] if n_targets == 1 else classes
    return "target", list(range(n_targets))


class NamedWeights:
    """Weights that can be returned with the names of the modes of the samples."""

    sample_shape_: tuple[int, ...]
    coef_tensor_: Any
    patterns_: Any
    _spec: Spec

    def name_modes(self, modes: Sequence[Mode]) -> Self:
        """Name the modes of samples after ``fit``, where the samples brought no names or others.

        Examples
        --------
        >>> import numpy as np
        >>> from tracelearn import TraceNormRegressor
        >>> from tracelearn.samples.modes import Mode
        >>> X = np.random.default_rng(0).normal(size=(50, 3, 4))
        >>> channel, time = Mode("channel", np.array(["C3", "Cz", "C4"])), Mode("time", np.arange(4) / 10, "s")
        >>> TraceNormRegressor().fit(X, X[:, 1, 2]).name_modes([channel, time]).to_xarray()["coef"].dims
        ('channel', 'time')
        """
        check_is_fitted(self)
        self._spec = replace(self._spec, modes=tuple(modes))
        self.modes_ = tuple(modes)
        return self

    def to_xarray(self) -> Any:
        """Return ``coef`` and ``patterns`` as a Dataset of xarray, with the names and coordinates of the samples of ``fit``.

        ``coef_`` and ``patterns_`` are arrays whatever X was, as scikit-learn's tools expect them.

        Examples
        --------
        >>> import numpy as np
        >>> import xarray
        >>> from tracelearn import TraceNormRegressor
        >>> X = np.random.default_rng(0).normal(size=(50, 3, 4))
        >>> samples = xarray.DataArray(X, dims=("trial", "channel", "time"), coords={"channel": ["C3", "Cz", "C4"]})
        >>> model = TraceNormRegressor().fit(samples, X[:, 1, 2])
        >>> weights = model.to_xarray()
        >>> weights["patterns"].dims, float(weights["coef"].sel(channel="Cz", time=2)) > 0.5
        (('channel', 'time'), True)
        """
        check_is_fitted(self)
        coef = to_numpy(self.coef_tensor_)
        patterns = to_numpy(self.patterns_)
        shape = tuple(self.sample_shape_)
        if coef.shape[coef.ndim - len(shape) :] != shape:
            raise InputError(
                "Expected weights in the modes of samples, got those of views of them: take coef_by_view_ and patterns_by_view_."
            )
        names = target_names(self, coef.shape[0] if coef.ndim > len(shape) else 1)
        return to_dataset({"coef": coef, "patterns": patterns}, shape, getattr(self, "modes_", None), names)


class WeightsInModes(NamedWeights):
    """A fitted linear model, of one weight tensor or of one for each target: the one place where its attributes are written."""

    coef_: Any
    intercept_: Any
    confound_coef_: Any  # where samples have confounds
    target_mode: Any
    moments_: Moments
    _warm_start: WarmStart | None = None

    def _publish(self, spec: Spec, moments: Moments | None, fitted: Fitted | None) -> None:
        """Write all fitted attributes: nothing else does. Where ``fitted`` is None the weights are not changed."""
        for name in ("classes_", "modes_", "feature_names_in_", "moments_"):
            if name in vars(self):
                delattr(self, name)
        self._spec = spec
        self.sample_shape_ = spec.sample_shape
        self.n_features_in_ = spec.n_features
        if spec.classes is not None:
            self.classes_ = spec.classes
        if spec.modes is not None:
            self.modes_ = spec.modes
        if spec.feature_names is not None:
            self.feature_names_in_ = spec.feature_names
        if moments is not None:
            self.moments_ = moments
        if fitted is None:
            return
        xp = array_namespace(fitted.coef)
        targets = () if spec.is_single else (spec.n_targets,)
        alphas = to_numbers(fitted.alpha)
        self.coef_ = xp.reshape(fitted.coef, (*targets, *((-1,) if spec.is_flat else spec.sample_shape)))
        self.intercept_ = float(fitted.intercept[0]) if spec.is_single else fitted.intercept
        self.patterns_ = xp.reshape(fitted.patterns, (*targets, *spec.sample_shape))
        self.alpha_ = alphas[0] if len(alphas) == 1 else np.array(alphas)
        self.n_iter_ = fitted.n_iter
        self.objective_ = fitted.objective
        self.dual_gap_ = fitted.gap
        self.convergence_ = fitted.convergence
        self._warm_start = fitted.warm_start
        if "confound_coef_" in vars(self):
            del self.confound_coef_
        if fitted.confound_coef is not None:
            self.confound_coef_ = xp.reshape(fitted.confound_coef, (*targets, -1))

    @property
    def coef_tensor_(self) -> Array:
        """The weights as tensors, (I1, ..., IN) or (K, I1, ..., IN), whether samples came flat or not."""
        check_is_fitted(self, "coef_")
        return as_tensors(self.coef_, self.sample_shape_, is_single=isinstance(self.intercept_, float))

    @property
    def mode_factors_(self) -> list[tuple[Array, Array]]:
        """For each mode, orthonormal factors (I_n, R) and singular values (R,) of the weights' unfolding.

        From the higher-order singular value decomposition of ``coef_``; several targets are unfolded side by side.

        Scale: factors have length 1, and the singular values, in the units of ``coef_``, carry the size. Sign: a factor and
        its negative describe the same weights, so the one is given whose entry of largest size is positive; signs that
        mean something are in the core, ``coef_`` multiplied with the transposed factors along every mode. The k-th factors
        of two modes belong together only where the core says so.
        """
        return factors_of(self.coef_tensor_, len(self.sample_shape_), shares_modes=bool(self.target_mode))

    @property
    def mode_ranks_(self) -> Array:
        """The rank of the weights in each mode; with several targets, one row for each, unless they share modes."""
        return ranks_of(self.coef_tensor_, len(self.sample_shape_), shares_modes=bool(self.target_mode))


def as_tensors(coef: Array, shape: tuple[int, ...], *, is_single: bool) -> Array:
    """View weights of any layout as tensors of the shape of a sample, with an axis of targets unless there is a single one."""
    return array_namespace(coef).reshape(coef, shape if is_single else (-1, *shape))


def factors_of(W: Array, n_modes: int, *, shares_modes: bool = False) -> list[tuple[Array, Array]]:
    """Find the factors and singular values of every mode of weight tensors, see ``mode_factors_``.

    Parameters
    ----------
    W : array of shape (I1, ..., IN) or (K, I1, ..., IN)
    n_modes : N
    shares_modes : whether the targets are one more mode
    """
    return [mode_factors(W, axis) for axis in range(_first_mode(W, n_modes, shares_modes), W.ndim)]


def ranks_of(W: Array, n_modes: int, *, shares_modes: bool = False) -> Array:
    """Find the rank of every mode of weight tensors, see ``mode_ranks_``; parameters as in ``factors_of``."""
    tensors = [W[k, ...] for k in range(W.shape[0])] if _first_mode(W, n_modes, shares_modes) else [W]
    # Rounding of the weights, in the precision that they are stored in.
    level = 10 * max(tensors[0].shape) * float(array_namespace(W).finfo(W.dtype).eps)
    ranks = [[n_rank(tensor, mode, rtol=level) for mode in range(tensor.ndim)] for tensor in tensors]
    return move_to(np.array(ranks[0] if len(tensors) == 1 else ranks), W)


def _first_mode(W: Array, n_modes: int, shares_modes: bool) -> int:
    """Find the first axis of the weights that is a mode: 1 where axis 0 counts targets that do not share modes, else 0."""
    return int(W.ndim > n_modes and not (shares_modes and W.shape[0] > 1))
