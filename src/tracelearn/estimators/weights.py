"""Weights as a reader knows them: tensors, their factors and ranks in every mode, and the names that samples brought."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, move_to, to_numpy
from tracelearn.arrays.tensors import mode_factors, n_rank
from tracelearn.samples.modes import to_dataset

__all__ = ["NamedWeights", "WeightsInModes", "target_names"]


def target_names(estimator: Any, n_targets: int) -> tuple[str, list[Any]]:
    """Say what the targets of a model are, and name those that have weights: of two classes the second."""
    if hasattr(estimator, "classes_"):
        classes = to_numpy(estimator.classes_).tolist()
        return "class", classes[1:] if n_targets == 1 else classes
    return "target", list(range(n_targets))


class NamedWeights:
    """Weights that come back with the names of modes."""

    sample_shape_: tuple[int, ...]
    coef_tensor_: Any
    patterns_: Any

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
        >>> found = model.to_xarray()
        >>> found["patterns"].dims, float(found["coef"].sel(channel="Cz", time=2)) > 0.5
        (('channel', 'time'), True)
        """
        check_is_fitted(self)
        coef, patterns = to_numpy(self.coef_tensor_), to_numpy(self.patterns_)
        shape = tuple(self.sample_shape_)
        if coef.shape[coef.ndim - len(shape) :] != shape:
            raise ValueError(
                "Expected weights in the modes of samples, got those of views of them: take coef_by_view_ and patterns_by_view_."
            )
        names = target_names(self, coef.shape[0] if coef.ndim > len(shape) else 1)
        return to_dataset({"coef": coef, "patterns": patterns}, shape, getattr(self, "modes_", None), names)


class WeightsInModes(NamedWeights):
    """Weights of one tensor, or of one for each target, in the modes of samples."""

    coef_: Any
    target_mode: Any
    _flat: bool

    @property
    def coef_tensor_(self) -> Array:
        """The weights as tensors, (I1, ..., IN) or (K, I1, ..., IN), whether samples came flat or not."""
        check_is_fitted(self)
        flat = 1 if self._flat else len(self.sample_shape_)
        return array_namespace(self.coef_).reshape(self.coef_, (*self.coef_.shape[:-flat], *self.sample_shape_))

    @property
    def mode_factors_(self) -> list[tuple[Array, Array]]:
        """For each mode, orthonormal factors (I_n, R) and singular values (R,) of the weights' unfolding.

        From the higher-order singular value decomposition of ``coef_``; several targets are unfolded side by side.

        Scale: factors have length 1, and the singular values, in the units of ``coef_``, carry the size. Sign: a factor and
        its negative describe the same weights, so the one is given whose entry of largest size is positive; signs that
        mean something are in the core, ``coef_`` multiplied with the transposed factors along every mode. The k-th factors
        of two modes belong together only where the core says so.
        """
        W = self.coef_tensor_
        return [mode_factors(W, axis) for axis in range(self._first_mode(), W.ndim)]

    @property
    def mode_ranks_(self) -> Array:
        """The rank of the weights in each mode; with several targets, one row for each, unless they share modes."""
        W = self.coef_tensor_
        tensors = [W[k, ...] for k in range(W.shape[0])] if self._first_mode() else [W]
        # Rounding of the weights, in the precision that they are stored in.
        level = 10 * max(tensors[0].shape) * float(array_namespace(W).finfo(W.dtype).eps)
        ranks = [[n_rank(one, mode, rtol=level) for mode in range(one.ndim)] for one in tensors]
        return move_to(np.array(ranks[0] if len(tensors) == 1 else ranks), self.coef_)

    def _first_mode(self) -> int:
        """Find the first axis of the weights that is a mode: 1 where it is that of targets, each with modes of its own."""
        W = self.coef_tensor_
        return int(W.ndim > len(self.sample_shape_) and not (self.target_mode and W.shape[0] > 1))
