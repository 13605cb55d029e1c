"""ModePCA: a multilinear PCA that compresses modes."""

from __future__ import annotations

import functools
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from tracelearn.arrays.array_api import Array, as_dtype, widest
from tracelearn.errors import brief
from tracelearn.features.base import ModeTransformer
from tracelearn.features.matrices import multiply_modes
from tracelearn.features.summaries import Summary, mode_scatters, summarise
from tracelearn.features.training import TrainingSamples
from tracelearn.samples.scikit_learn import Interval

__all__ = ["ModePCA", "describe_components"]


def _leading_components(scatter: Array, n_components: Any) -> Array:
    """Find leading eigenvectors as rows: so many, all, or as few as have a share of the trace; largest entries are positive."""
    values, vectors = np.linalg.eigh(scatter)
    values = np.clip(values[::-1], 0.0, None)
    rows = vectors.T[::-1]
    if isinstance(n_components, float):
        # A last bit must not cost a component where the share is met exactly.
        reached = np.cumsum(values) >= (n_components - 1e-12) * np.sum(values)
        n_components = 1 + int(np.argmax(reached))
    signs = np.sign(np.take_along_axis(rows, np.argmax(np.abs(rows), axis=1)[:, None], axis=1))
    return (rows * signs)[:n_components]


def _is_possible(n_components: Any, size: int) -> bool:
    """Whether so many components, or such a share, can be had of a mode."""
    if isinstance(n_components, float):
        return 0 < n_components < 1
    return n_components is None or (isinstance(n_components, Integral) and 1 <= int(n_components) <= size)


def _learns_from_covariances_alone(estimator: Any) -> bool:
    """Tell ``available_if`` whether there is ``partial_fit``: where directions follow from covariances, which add up."""
    if estimator.n_iter:
        raise AttributeError(
            f"Expected n_iter=0 for partial_fit, got {estimator.n_iter}: refinement needs all samples at once, as fit has them."
        )
    return True


class ModePCA(ModeTransformer):
    """Compress every mode of samples that are tensors to its leading directions: a multilinear PCA.

    ``transform`` subtracts the mean tensor and multiplies each mode n by the ``r_n`` leading eigenvectors of the mode's
    covariance ``mean of (X - mean)_(n) (X - mean)_(n)'``: the truncated higher-order singular value decomposition of the
    centred samples (De Lathauwer et al., 2000). It needs the mean and one I_n by I_n matrix for each mode, never p by p:
    so trace norm models can be fitted where p is too large for them. What is lost is at most the sum of what the modes lose.
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
        The shape of a sample if X is flat, of shape (n_samples, n_features).

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

    keeps_entries = False

    components_: list[Array]
    n_components_: tuple[int, ...]

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

    @available_if(_learns_from_covariances_alone)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more samples; afterwards the directions are those of all samples so far."""
        super().partial_fit(X, y, sample_weight)
        return self

    @property
    def mode_matrices(self) -> list[Array]:
        """The components of every mode, as rows."""
        return self.components_

    @property
    def output_shape_(self) -> tuple[int, ...]:
        """The number of components of every mode."""
        return self.n_components_

    def learn(self, samples: TrainingSamples, earlier: Any) -> dict[str, Any]:
        """Find components in one pass over the samples, then refine them by ``n_iter`` sweeps over the modes."""
        learned = super().learn(samples, earlier)
        if not self.n_iter:
            return learned
        components = learned["components_"]
        for _ in range(self.n_iter):
            for mode in range(len(samples.shape)):
                components = self.refined(components, mode, samples)
        return {**learned, **describe_components(components, learned["mode_covariances_"])}

    def attributes_from(self, summary: Summary, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return the mean and covariances, their leading eigenvectors, and the variances of these."""
        covariances = [scatter / summary.weight for scatter in summary.sums]
        components = [_leading_components(C, n) for C, n in zip(covariances, self._counts(shape), strict=True)]
        return {"mean_": summary.mean, "mode_covariances_": covariances, **describe_components(components, covariances)}

    def _counts(self, shape: tuple[int, ...]) -> list[Any]:
        """Read ``n_components``: for each mode a count, a share of the variance, or None for all."""
        n_components = self.n_components
        if isinstance(n_components, Integral):
            return [min(int(n_components), size) for size in shape]
        if n_components is None:
            return [None] * len(shape)
        if isinstance(n_components, Real):
            # The squared error of the truncation is at most the sum of what each mode cuts off.
            return [1.0 - (1.0 - float(n_components)) / len(shape)] * len(shape)
        # Shares of every real type become floats.
        counts = [float(n) if isinstance(n, Real) and not isinstance(n, Integral) else n for n in n_components]
        if len(counts) != len(shape) or not all(map(_is_possible, counts, shape)):
            raise ValueError(
                f"Expected n_components for each of the {len(shape)} modes of samples of shape {shape}, a whole number from 1 "
                f"to the size of the mode, a share between 0 and 1, or None to leave it as it is, got {brief(self.n_components)}."
            )
        return counts

    def refined(self, components: list[Array], mode: int, samples: TrainingSamples) -> list[Array]:
        """Find the components of one mode again, on samples that are compressed along all other modes."""
        n_components, size = components[mode].shape
        matrices = [*components[:mode], np.eye(size), *components[mode + 1 :]]  # all modes but this one are compressed
        products = functools.partial(mode_scatters, modes=[mode])

        def summarise_compressed(T: Array, weight: Array) -> Summary:
            return summarise(multiply_modes(as_dtype(T, widest(T)["dtype"]), matrices), weight, products)

        (scatter,) = samples.total(summarise_compressed, self.numbers_per_sample).sums
        return [*components[:mode], _leading_components(scatter, n_components), *components[mode + 1 :]]


def describe_components(components: list[Array], covariances: list[Array]) -> dict[str, Any]:
    """Return the components of every mode, their number and their variances, as fitted attributes."""
    variances = [np.sum((rows @ C) * rows, axis=1) for rows, C in zip(components, covariances, strict=True)]
    total = float(np.trace(covariances[0]))
    return {
        "components_": components,
        "explained_variance_": variances,
        "explained_variance_ratio_": [values / total if total > 0 else values for values in variances],
        "n_components_": tuple(rows.shape[0] for rows in components),
    }
