"""ModePCA: a multilinear PCA that compresses modes."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import as_dtype, move_to, to_numpy, widest
from tracelearn.arrays.tensors import Array, array_namespace
from tracelearn.features.base import ModeStatistics, TensorTransformer, mode_scatters, multiply_modes, read_coef
from tracelearn.samples.checks import learning
from tracelearn.samples.scikit_learn import Interval

__all__ = ["ModePCA"]


def _leading(scatter: Array) -> tuple[Array, Array]:
    """Find eigenvalues in decreasing order and eigenvectors as rows, the entry of largest size of each positive."""
    values, vectors = np.linalg.eigh(scatter)
    rows = vectors.T[::-1]
    signs = np.sign(np.take_along_axis(rows, np.argmax(np.abs(rows), axis=1)[:, None], axis=1))
    return np.clip(values[::-1], 0.0, None), rows * signs


def _adds_up(estimator: Any) -> bool:
    """Whether the directions follow from mode covariances; scikit-learn hides ``partial_fit`` where they do not."""
    if estimator.n_iter:
        raise AttributeError(
            f"Expected n_iter=0 for partial_fit, got {estimator.n_iter}: refinement needs all samples at once, as fit has them."
        )
    return True


class ModePCA(ModeStatistics, TensorTransformer):
    """Compress every mode of samples that are tensors to its leading directions: a multilinear PCA.

    ``transform`` subtracts the mean tensor and multiplies each mode n by the ``r_n`` leading eigenvectors of the mode's
    covariance ``mean of (X - mean)_(n) (X - mean)_(n)'``: the truncated higher-order singular value decomposition of the
    centred samples (De Lathauwer et al., 2000). It needs the mean and one I_n by I_n matrix for each mode, never p by p:
    a way to a trace norm model for tensors whose p is too large. What is lost is at most the sum of what the modes lose.
    A signal outside the leading directions is lost too: compress as little as memory asks for.

    Parameters
    ----------
    n_components : int, float, None, or a sequence with one of these for each mode, default=None
        int: that many for each mode, or all of a smaller mode. Float between 0 and 1: as few as keep at least this share
        of the variance; a single float is a promise for the whole compression, each mode losing at most an equal part of
        the rest, and in a sequence it is the share of its own mode. None: all, a rotation.
    n_iter : int, default=0
        Sweeps of alternating refinement in ``fit`` (MPCA, Lu et al., 2008): each mode's directions for what the others
        keep. One more pass over the samples for each mode and sweep, and seldom worth it.
    tensor_shape : sequence of ints, default=None
        The shape of a sample when X comes flat, as (n_samples, n_features).

    Attributes
    ----------
    components_ : list of arrays of shape (r_n, I_n)
        Orthonormal rows, by decreasing variance; the entry of largest size of each is positive.
    explained_variance_, explained_variance_ratio_ : lists of arrays of shape (r_n,)
        Variance along the components of each mode, and as a share of the total.
    n_components_ : tuple of ints
        The shape of a compressed sample.
    mean_ : array of the shape of a sample
    mode_covariances_ : list of arrays of shape (I_n, I_n)
        All that is learned besides the mean; the trace of each is the total variance.
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Examples
    --------
    A model of compressed samples, read as weights of the samples themselves:

    >>> from sklearn.pipeline import make_pipeline
    >>> from tracelearn import ModePCA, TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(300, (12, 10, 8), rank=1, correlation=0.9, random_state=0)
    >>> model = make_pipeline(ModePCA((6, 5, 4)), TraceNormRegressor(alpha=0.1)).fit(X, y)
    >>> pca, regressor = model[0], model[-1]
    >>> pca.transform(X).shape, pca.coef_to_input(regressor.coef_).shape
    ((300, 6, 5, 4), (12, 10, 8))
    >>> model.score(X, y) > 0.7
    True
    """

    mean_: Array

    _keeps_layout = False

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
            "array-like",
            None,
        ],
        "n_iter": [Interval(Integral, 0, None, closed="left")],
        "tensor_shape": ["array-like", None],
    }

    def __init__(self, n_components: Any = None, *, n_iter: int = 0, tensor_shape: Any = None) -> None:
        self.n_components = n_components
        self.n_iter = n_iter
        self.tensor_shape = tensor_shape

    @learning
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the directions from all samples; the parameters are those of every transformer.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
            Of any array library, of Dask, or samples in blocks; with ``n_iter`` blocks that can be read more than once.
        y : ignored
        sample_weight : array of shape (n_samples,), default=None
        """
        self._forget()
        self._learn(X, sample_weight)
        for mode in list(range(len(self.sample_shape_))) * self.n_iter:
            self._refine(mode, X, sample_weight)
        return self

    @available_if(_adds_up)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more samples; afterwards the directions are those of all samples so far."""
        return super().partial_fit(X, y, sample_weight)

    def _follow(self) -> None:
        components = []
        for covariance, want in zip(self.mode_covariances_, self._wanted(), strict=True):
            values, rows = _leading(covariance)
            components.append(rows[: _count(values, want)])
        self._set(components)

    def _set(self, components: list[Array]) -> None:
        self.components_ = components
        pairs = list(zip(components, self.mode_covariances_, strict=True))
        total = float(np.trace(self.mode_covariances_[0]))
        self.explained_variance_ = [np.sum((rows @ part) * rows, axis=1) for rows, part in pairs]
        self.explained_variance_ratio_ = [own / total if total > 0 else own for own in self.explained_variance_]
        self.n_components_ = tuple(rows.shape[0] for rows in components)

    def _wanted(self) -> list[Any]:
        """Read what is asked for each mode: a count, a share or None."""
        shape = self.sample_shape_
        order = len(shape)
        if isinstance(self.n_components, Integral):
            return [min(int(self.n_components), size) for size in shape]
        if self.n_components is None or isinstance(self.n_components, Real):
            share = self.n_components
            # The squared error of the truncation is at most the sum of what each mode cuts off.
            return [None if share is None else 1.0 - (1.0 - float(share)) / order] * order
        wanted = list(self.n_components)
        for want, size in zip(wanted, shape, strict=False):
            counts = isinstance(want, Integral) and 1 <= int(want) <= size
            shares = isinstance(want, Real) and not isinstance(want, Integral) and 0 < float(want) < 1
            if not (want is None or counts or shares):
                raise ValueError(
                    f"Expected n_components of a mode of size {size} to be a whole number from 1 to {size}, a share between 0 "
                    f"and 1, or None, got {want!r}."
                )
        if len(wanted) != order:
            raise ValueError(
                f"Expected one of n_components for each of the {order} modes of samples of shape {shape}, got {len(wanted)}: "
                "use None for a mode to be left as it is."
            )
        return wanted

    def _refine(self, mode: int, X: Any, sample_weight: Any) -> None:
        """Find the directions of one mode anew, for samples that the other modes have compressed."""
        components = list(self.components_)
        count, size = components[mode].shape
        components[mode] = np.eye(size)

        def scatter(T: Array, weight: Array | None) -> Array:
            rows = multiply_modes(self._centred(T), components)
            if weight is not None:
                rows = rows * array_namespace(rows).reshape(weight, (-1, *(1,) * (rows.ndim - 1))) ** 0.5
            return to_numpy(mode_scatters([mode], rows)[0])

        components[mode] = _leading(self._total(scatter, X, sample_weight))[1][:count]
        self._set(components)

    def _centred(self, T: Array) -> Array:
        T = as_dtype(T, widest(T)["dtype"])
        return T - move_to(self.mean_, T, T.dtype)

    def _map(self, T: Array) -> Array:
        return multiply_modes(self._centred(T), self.components_)

    def _shape_out(self) -> tuple[int, ...]:
        return self.n_components_

    def inverse_transform(self, X: Any) -> Array:
        """Bring compressed samples back to shape (n_samples, I1, ..., IN): the closest there is in the kept directions.

        Parameters
        ----------
        X : array of shape (n_samples, r1, ..., rN), or (n_samples, r1 * ... * rN)
        """

        def back(Z: Array) -> Array:
            return multiply_modes(Z, [rows.T for rows in self.components_]) + move_to(self.mean_, Z, Z.dtype)

        return self._restored(X, back)

    def coef_to_input(self, W: Array) -> Array:
        """Express weights that were learned on compressed samples as weights of the samples themselves.

        ``<W, transform(X)>`` and ``<coef_to_input(W), X>`` differ by a constant, which is ``-<coef_to_input(W), mean_>``.
        The ranks of W stay what they are.

        Parameters
        ----------
        W : array of shape (r1, ..., rN) or (K, r1, ..., rN), such as ``coef_`` of a model
        """
        check_is_fitted(self)
        W, batch = read_coef(W, self.n_components_)
        found = multiply_modes(batch, [rows.T for rows in self.components_])
        return array_namespace(W).reshape(found, (*W.shape[: W.ndim - batch.ndim + 1], *self.sample_shape_))


def _count(values: Array, want: Any) -> int:
    """Count the leading eigenvalues that are asked for."""
    if want is None or isinstance(want, Integral):
        return len(values) if want is None else int(want)
    total = float(values.sum())
    if total == 0.0:
        return 1
    # A last bit must not cost a component where the share is met exactly.
    return min(len(values), 1 + int(np.searchsorted(np.cumsum(values) / total, want - 1e-12)))
