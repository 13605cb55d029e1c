"""ModePCA: a multilinear PCA that compresses modes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import (
    ClassNamePrefixFeaturesOutMixin,
    _fit_context,
)
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array
from tracelearn.features.base import (
    TensorTransformer,
    blocks,
    centred,
    first_entries,
    read_batch,
    read_weight_tensors,
    samples_seen,
)
from tracelearn.samples.checks import check_finite, check_overflow, check_range, read_samples
from tracelearn.samples.undo import undone_on_failure

__all__ = ["ModePCA"]


def _multiply(T: Array, matrices: Sequence[Array]) -> Array:
    """Multiply axis n + 1 of a batch of tensors by ``matrices[n]`` of shape (r_n, I_n), for every mode n."""
    for matrix in matrices:
        T = np.tensordot(
            T, matrix, (1, 1)
        )  # takes the first mode away and puts it last: a full turn restores the order
    return T


def _mode_scatter(T: Array, mode: int) -> Array:
    """Sum ``T_(mode) T_(mode)'`` over a batch of tensors."""
    others = tuple(axis for axis in range(T.ndim) if axis != mode + 1)
    return np.tensordot(T, T, (others, others))


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


class ModePCA(ClassNamePrefixFeaturesOutMixin, TensorTransformer):
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
    >>> pca.transform(X).shape, pca.inverse_transform_weights(regressor.coef_).shape
    ((300, 6, 5, 4), (12, 10, 8))
    >>> model.score(X, y) > 0.7
    True
    """

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

    @_fit_context(prefer_skip_nested_validation=True)
    @undone_on_failure
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the directions from all samples.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
        y : ignored
        sample_weight : array of shape (n_samples,), default=None
        """
        self._forget()
        T, weight = read_batch(self, X, sample_weight, first=True)
        self._learn(T, weight)
        for _ in range(self.n_iter):
            self._refine(T, weight)
        return self

    @available_if(_adds_up)
    @_fit_context(prefer_skip_nested_validation=True)
    @undone_on_failure
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more samples; afterwards the directions are those of all samples so far."""
        self._learn(*read_batch(self, X, sample_weight, first=not hasattr(self, "n_samples_seen_")))
        return self

    def _learn(self, T: Array, weight: Array | None) -> None:
        shape, order = T.shape[1:], T.ndim - 1
        seen = float(getattr(self, "n_samples_seen_", 0.0))
        mean = getattr(self, "mean_", first_entries(T, shape))
        zeros = [np.zeros((size, size)) for size in shape]
        scatters = [seen * part for part in getattr(self, "mode_covariances_", zeros)]
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            for block in blocks(T):
                rows, step, total = centred(T[block], None if weight is None else weight[block], mean)
                # Chan's correction is that of one more sample. Narrow data are multiplied as such, in units of the weight of
                # the block, which may be beyond their range, and added up wide.
                unit, correction = math.sqrt(total) or 1.0, math.sqrt(seen / (seen + total) * total) * step
                rows = (np.concatenate([rows, correction[None]]) / unit).astype(T.dtype, copy=False)
                scatters = [scatters[mode] + np.float64(total) * _mode_scatter(rows, mode) for mode in range(order)]
                seen += total
                mean = mean + (total / seen) * step
        self.mean_ = mean
        self.mode_covariances_ = [scatter / seen for scatter in scatters]
        self.n_samples_seen_ = samples_seen(self, T.shape[0], weight)
        self._choose(T)

    def _choose(self, T: Array) -> None:
        variance = float(np.trace(self.mode_covariances_[0]))
        if not np.finfo(np.float64).tiny < variance < np.inf:
            check_range(T, "X")
        wanted = self._wanted()
        components = []
        for covariance, want in zip(self.mode_covariances_, wanted, strict=True):
            values, rows = _leading(covariance)
            components.append(rows[: _count(values, want)])
        self._set(components)

    def _set(self, components: list[Array]) -> None:
        self.components_ = components
        pairs = list(zip(components, self.mode_covariances_, strict=True))
        total = float(np.trace(self.mode_covariances_[0]))
        self.explained_variance_ = [np.einsum("ri,ij,rj->r", rows, part, rows, optimize=True) for rows, part in pairs]
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

    def _refine(self, T: Array, weight: Array | None) -> None:
        """Find each mode's directions anew, for samples that the other modes have compressed."""
        components = list(self.components_)
        for mode in range(T.ndim - 1):
            others = [np.eye(rows.shape[1]) if n == mode else rows for n, rows in enumerate(components)]
            scatter = np.zeros((T.shape[mode + 1],) * 2)
            for block in blocks(T):
                small = _multiply(np.subtract(T[block], self.mean_), others)
                if weight is not None:
                    small *= np.sqrt(weight[block]).reshape(-1, *(1,) * (T.ndim - 1))
                scatter += _mode_scatter(small, mode)
            components[mode] = _leading(scatter)[1][: components[mode].shape[0]]
        self._set(components)

    def transform(self, X: Any) -> Array:
        """Compress samples to tensors of shape (n_samples, r1, ..., rN), float32 to float32.

        Where ``set_output`` asks for data frames, flat samples become tables with the columns of ``get_feature_names_out``.
        """
        check_is_fitted(self)
        tables = self._makes_tables(X)
        rows, shape = read_samples(self, X, reset=False)
        T = rows.reshape(-1, *shape)
        matrices = [U.astype(T.dtype, copy=False) for U in self.components_]
        compressed = np.empty((T.shape[0], *self.n_components_), T.dtype)
        for block in blocks(T):
            # Centred in double precision before the product: the mean may be large against the spread.
            with np.errstate(over="ignore", invalid="ignore"):  # judged below
                compressed[block] = _multiply(np.subtract(T[block], self.mean_).astype(T.dtype, copy=False), matrices)
        check_overflow(compressed, "compressed entries")
        return compressed.reshape(T.shape[0], -1) if tables else compressed

    def inverse_transform(self, X: Any) -> Array:
        """Bring compressed samples back to shape (n_samples, I1, ..., IN): the closest there is in the kept directions.

        Parameters
        ----------
        X : array of shape (n_samples, r1, ..., rN), or (n_samples, r1 * ... * rN)
        """
        check_is_fitted(self)
        Z = np.asarray(X)
        if Z.shape[1:] != self.n_components_ and Z.shape[1:] != (math.prod(self.n_components_),):
            raise ValueError(
                f"Expected compressed samples of shape {self.n_components_}, or flat, got an array of shape {Z.shape}: pass "
                "what transform returns."
            )
        Z = Z.reshape(-1, *self.n_components_).astype(Z.dtype if Z.dtype == np.float32 else np.float64, copy=False)
        check_finite(Z.reshape(Z.shape[0], -1), "X", self.n_components_)
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            samples = _multiply(Z, [rows.T.astype(Z.dtype, copy=False) for rows in self.components_])
            np.add(samples, self.mean_, out=samples, casting="same_kind")
        check_overflow(samples, "restored entries")
        return samples

    def inverse_transform_weights(self, W: Array) -> Array:
        """Express weights that were learned on compressed samples as weights of the samples themselves.

        ``<W, transform(X)>`` and ``<inverse_transform_weights(W), X>`` differ by a constant, which is
        ``-<inverse_transform_weights(W), mean_>``. The ranks of W stay what they are.

        Parameters
        ----------
        W : array of shape (r1, ..., rN) or (K, r1, ..., rN), such as ``coef_`` of a model
        """
        check_is_fitted(self)
        W = read_weight_tensors(W, self.n_components_)
        batch = W.reshape(-1, *self.n_components_)
        return _multiply(batch, [rows.T for rows in self.components_]).reshape(
            *W.shape[: W.ndim - len(self.n_components_)], *self.sample_shape_
        )

    @property
    def _n_features_out(self) -> int:
        return math.prod(self.n_components_)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Name the entries of a compressed sample in C order: "modepca0_2" is component 0 of mode 0, 2 of mode 1."""
        check_is_fitted(self)
        super().get_feature_names_out(input_features)  # for its checks
        places = np.ndindex(*self.n_components_)
        return np.asarray([f"modepca{'_'.join(map(str, place))}" for place in places], dtype=object)


def _count(values: Array, want: Any) -> int:
    """Count the leading eigenvalues that are asked for."""
    if want is None or isinstance(want, Integral):
        return len(values) if want is None else int(want)
    total = float(values.sum())
    if total == 0.0:
        return 1
    # A last bit must not cost a component where the share is met exactly.
    return min(len(values), 1 + int(np.searchsorted(np.cumsum(values) / total, want - 1e-12)))
