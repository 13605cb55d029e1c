"""Views: several transformations of one sample, as one flat sample."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import as_dtype, is_foreign, widest
from tracelearn.arrays.tensors import Array, array_namespace
from tracelearn.features.base import Summary, TensorTransformer, summarise
from tracelearn.samples import as_source
from tracelearn.samples.checks import learning, read_numbers
from tracelearn.samples.samples import is_dask
from tracelearn.samples.scikit_learn import check_feature_names_in

__all__ = ["Views"]


class Views(TensorTransformer, _BaseComposition):  # type: ignore[misc]
    """See each sample in several ways at once: raw, whitened, second order, all of them as one flat sample.

    ``transform`` puts the flattened views one after the other; ``split`` takes them, or the weights of a model, apart again,
    so that a penalty can give every view its own norm.

    Parameters
    ----------
    views : list of (name, transformer or None)
        Transformers of tensors to tensors; None is the sample itself.
    view_weights : sequence of floats, one for each view, default=None
        What samples of each view are multiplied by, one by default. A larger weight makes a view cheaper to use.
    scale : bool, default=True
        Whether every view is divided by the root of its total variance over the training samples, so that views of
        different size are commensurable.
    tensor_shape : sequence of ints, default=None
        The shape of a sample when X comes flat, as (n_samples, n_features).

    Attributes
    ----------
    transformers_ : list of fitted transformers or None
    view_names_ : list of str
    view_shapes_ : list of tuples of ints
    view_factors_ : array of shape (n_views,)
        What each view is multiplied by in the end: its weight divided by its scale.
    scale_ : array of shape (n_views,)
        Root of the total variance of each view; one for a view that does not vary, and for all without ``scale``.
    view_variances_ : array of shape (n_views,)
        Sum of the variances of all entries of a view, before weights and scales.
    mean_ : array of shape (n_features_out,)
        Mean of the views, before weights and scales.
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    ``fit`` makes one pass over the samples for each transformer, and one for the scales, so it needs samples that can be read
    more than once. ``partial_fit`` makes one pass: transformers learn what ``fit`` would teach them, while the variance of a
    view adds up over batches, each seen as the view was after it.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import ModeWhitener, SecondOrder, Views
    >>> X = np.random.default_rng(0).normal(size=(30, 4, 50))
    >>> views = Views([("raw", None), ("power", SecondOrder()), ("white", ModeWhitener())]).fit(X)
    >>> Z = views.transform(X)
    >>> Z.shape, views.view_shapes_
    ((30, 425), [(4, 50), (5, 5), (4, 50)])
    >>> [part.shape for part in views.split(Z)]
    [(30, 4, 50), (30, 5, 5), (30, 4, 50)]
    >>> [float(part.var(axis=0).sum().round(6)) for part in views.split(Z)]
    [1.0, 1.0, 1.0]
    """

    mean_: Array
    view_variances_: Array

    _keeps_layout = False

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "views": [list],
        "view_weights": ["array-like", None],
        "scale": ["boolean"],
        "tensor_shape": ["array-like", None],
    }

    def __init__(
        self, views: list[tuple[str, Any]], *, view_weights: Any = None, scale: bool = True, tensor_shape: Any = None
    ) -> None:
        self.views = views
        self.view_weights = view_weights
        self.scale = scale
        self.tensor_shape = tensor_shape

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get the parameters, with ``deep`` those of the transformers too, as ``name__parameter``."""
        found: dict[str, Any] = self._get_params("views", deep=deep)
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also of the transformers."""
        self._set_params("views", **params)
        return self

    # --- learning ----------------------------------------------------------------------------------------------------

    @learning
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn every view from all samples, then the scales; the parameters are those of every transformer."""
        source = as_source(X, None, sample_weight)
        if source is not None and not source.repeatable:
            raise ValueError(
                "Expected samples that can be read more than once, got an iterator: pass a list of blocks or a file, or call "
                "partial_fit for every block."
            )
        self._forget()
        self.transformers_ = self._unfitted()
        given = self._given(X)
        for transformer in filter(None, self.transformers_):
            transformer.fit(given, sample_weight=sample_weight)
        self._learn(X, sample_weight)
        return self

    @learning
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn every view from more samples."""
        given = self._given(X)
        # Copies, which replace what they hold and never write to it: a failure leaves the old ones as they were.
        known = self.transformers_ if hasattr(self, "transformers_") else self._unfitted()
        self.transformers_ = [copy.copy(transformer) for transformer in known]
        for transformer in filter(None, self.transformers_):
            transformer.partial_fit(given, sample_weight=sample_weight)
        self._learn(X, sample_weight)
        return self

    def _unfitted(self) -> list[Any]:
        """Check and copy the transformers."""
        pairs = [view for view in self.views if isinstance(view, tuple) and len(view) == 2]
        usable = all(view is None or (hasattr(view, "fit") and hasattr(view, "transform")) for _, view in pairs)
        if not pairs or len(pairs) != len(self.views) or not usable:
            raise ValueError(
                f"Expected views to be a list of (name, transformer or None), at least one, got {self.views!r}: None is the "
                "sample itself."
            )
        self._validate_names([name for name, _ in pairs])
        found = [None if view is None else clone(view) for _, view in pairs]
        for transformer in filter(None, found):
            if self.tensor_shape is not None and "tensor_shape" in transformer.get_params():
                transformer.set_params(tensor_shape=self.tensor_shape)
            if isinstance(transformer, TensorTransformer):
                transformer.set_output(transform="default")
        return found

    def _given(self, X: Any) -> Any:
        """Check samples in memory once, before the transformers see them as tensors."""
        return X if is_dask(X) or as_source(X) is not None else self._read(X)

    def _flat_views(self, T: Array) -> list[Array]:
        """See tensors as every view does, each flat, in double precision."""
        T = as_dtype(T, widest(T)["dtype"])
        found = [T if view is None else view.transform(T) for view in self.transformers_]
        return [array_namespace(part).reshape(part, (T.shape[0], -1)) for part in found]

    def _measure(self, T: Array, weight: Array | None) -> Summary:
        parts = self._flat_views(T)
        second = functools.partial(_view_squares, tuple(part.shape[1] for part in parts))
        return summarise(array_namespace(T).concat(parts, axis=1), weight, second)

    def _past(self) -> Summary:
        seen, second = float(self.n_samples_seen_), functools.partial(_view_squares, self._sizes())
        return Summary(self.n_samples_seen_, seen, self.mean_, [seen * self.view_variances_], second)

    def _keep(self, summary: Summary) -> None:
        one = np.zeros((1, *self.sample_shape_))
        self.view_names_ = [name for name, _ in self.views]
        self.view_shapes_ = [(one if view is None else view.transform(one)).shape[1:] for view in self.transformers_]
        self.mean_ = summary.mean
        self.view_variances_ = summary.sums[0] / summary.weight
        # As for single entries: a spread below the rounding of the samples is no spread.
        sizes = np.array([np.sum(mean**2) for mean in np.split(summary.mean, np.cumsum(self._sizes())[:-1])])
        varies = self.view_variances_ > summary.eps**2 * sizes
        self.scale_ = np.sqrt(np.where(varies & self.scale, self.view_variances_, 1.0))
        self.view_factors_ = self._weights() / self.scale_

    def _weights(self) -> Array:
        if self.view_weights is None:
            return np.ones(len(self.views))
        weights = np.array(read_numbers(self.view_weights, "view_weights", "numbers"))
        if len(weights) != len(self.views) or not np.all((weights > 0) & np.isfinite(weights)):
            raise ValueError(
                f"Expected {len(self.views)} view_weights above zero, one for each view, got {self.view_weights!r}: leave a "
                "view out to do without it."
            )
        return weights

    # --- applying ----------------------------------------------------------------------------------------------------

    def _map(self, T: Array) -> Array:
        pairs = zip(self._flat_views(T), self.view_factors_.tolist(), strict=True)
        return array_namespace(T).concat([part * factor for part, factor in pairs], axis=1)

    def _sizes(self) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.view_shapes_)

    def _shape_out(self) -> tuple[int, ...]:
        return (sum(self._sizes()),)

    def _row_size(self) -> int:
        views = [view for view in self.transformers_ if isinstance(view, TensorTransformer)]
        return super()._row_size() + sum(view._row_size() for view in views)

    def _makes_tables(self, X: Any) -> bool:
        return False  # what comes out is flat anyway

    def split(self, flat: Array) -> list[Array]:
        """Take flat samples (n, p), or weights (p,) or (K, p) of a model, apart into those of the views, as tensors."""
        check_is_fitted(self)
        flat = flat if is_foreign(flat) else np.asarray(flat)
        ends = np.cumsum(self._sizes()).tolist()
        if flat.ndim == 0 or flat.shape[-1] != ends[-1]:
            raise ValueError(
                f"Expected {ends[-1]} numbers along the last axis, got shape {tuple(flat.shape)}: pass what transform returns, "
                "or coef_ of a model that was fitted on it."
            )
        places = zip([0, *ends], ends, self.view_shapes_, strict=False)
        xp, rows = array_namespace(flat), tuple(flat.shape[:-1])
        return [xp.reshape(flat[..., start:end], (*rows, *shape)) for start, end, shape in places]

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Name the entries of all views in C order: "raw__0_2" is entry (0, 2) of the view "raw"."""
        check_is_fitted(self)
        check_feature_names_in(self, input_features, generate_names=False)
        pairs = zip(self.view_names_, self.view_shapes_, strict=True)
        places = [(name, at) for name, shape in pairs for at in np.ndindex(*shape)]
        return np.asarray([f"{name}__{'_'.join(map(str, at))}" for name, at in places], dtype=object)


def _view_squares(sizes: Sequence[int], rows: Array) -> list[Array]:
    """Sum the squares of every view."""
    xp, ends = array_namespace(rows), np.cumsum(sizes).tolist()
    sums = [xp.sum(rows[:, end - size : end] ** 2) for size, end in zip(sizes, ends, strict=True)]
    return [xp.stack(sums)]
