"""Views: several transformations of one sample, as one flat sample."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, is_non_numpy, move_to, widest
from tracelearn.errors import brief, refuse
from tracelearn.features.base import TensorTransformer, fit_copy
from tracelearn.features.scaler import TensorStandardScaler
from tracelearn.features.summaries import Summary, squares, summarise
from tracelearn.features.training import TrainingSamples
from tracelearn.samples.checks import read_numbers
from tracelearn.samples.scikit_learn import BaseComposition

__all__ = ["Views"]


class Views(TensorTransformer, BaseComposition):  # type: ignore[misc]
    """Several views of each sample at once, such as raw, whitened and second order, as one flat sample.

    ``transform`` puts the flattened views one after the other; ``split`` takes them, or the weights of a model, apart again,
    so that a penalty can give every view its own norm.

    Parameters
    ----------
    views : list of (name, transformer or None)
        Transformers of this package; None is the sample itself.
    view_weights : sequence of floats, one for each view, default=None
        The factor of each view, one by default. A larger factor means that a view is penalised less.
    scaling : bool, default=True
        Whether every view is divided by the root of its total variance over the training samples, so that views of
        different size are commensurable.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    transformers_ : list of fitted transformers, one for each view
    view_names_ : list of str
    view_shapes_ : list of tuples of ints
    view_factors_ : array of shape (n_views,)
        What each view is multiplied by in the end: its weight divided by its scale.
    scale_ : array of shape (n_views,)
        Root of the total variance of each view; one for a view that does not vary, and for all without ``scaling``.
    mean_, var_ : arrays of shape (n_features_out,)
        Mean and variance of every entry, before weights and scales.
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    ``fit`` makes one pass over the samples for each transformer, and one for the scales. With ``partial_fit``, and with an
    iterator, of which there is one pass, transformers learn what ``fit`` would teach them, while the variance of a view adds
    up over batches, each seen as the view was after it: scales of views that learn are then close to those of ``fit``, and
    those of other views the same.

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

    transformers_: list[TensorTransformer]
    view_names_: list[str]
    view_shapes_: list[tuple[int, ...]]
    view_factors_: Array
    mean_: Array
    var_: Array

    keeps_entries = False
    learns_in_one_pass = False

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "views": [list],
        "view_weights": ["array-like", None],
        "scaling": ["boolean"],
        "tensor_shape": ["array-like", None],
    }

    def __init__(
        self, views: list[tuple[str, Any]], *, view_weights: Any = None, scaling: bool = True, tensor_shape: Any = None
    ) -> None:
        self.views = views
        self.view_weights = view_weights
        self.scaling = scaling
        self.tensor_shape = tensor_shape

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get the parameters, with ``deep`` those of the transformers too, as ``name__parameter``."""
        params: dict[str, Any] = self._get_params("views", deep=deep)
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also of the transformers."""
        self._set_params("views", **params)
        return self

    # --- learning ----------------------------------------------------------------------------------------------------

    def learn(self, samples: TrainingSamples, earlier: Any) -> dict[str, Any]:
        """Fit every transformer, then find the variances of the transformed samples."""
        fitted_before = [None] * len(self.views) if earlier is None else earlier.transformers_
        transformers = [
            fit_copy(view, samples, before) for view, before in zip(self._checked_views(), fitted_before, strict=True)
        ]

        def summarise_views(T: Array, weight: Array) -> Summary:
            return summarise(_flat(T, transformers), weight, squares)

        summary = samples.total(summarise_views, functools.partial(_numbers_of, transformers))
        learned = self.attributes_after(summary, samples.shape, earlier)
        return {**learned, "transformers_": transformers, **self._scales(learned["var_"], transformers)}

    def _checked_views(self) -> list[TensorTransformer]:
        """Check ``views``, and return the transformers."""
        pairs = [view for view in self.views if isinstance(view, tuple) and len(view) == 2]
        usable = [view is None or isinstance(view, TensorTransformer) for _, view in pairs]
        refuse(
            not usable or not all(usable) or len(pairs) != len(self.views),
            f"Expected views to be a list of (name, transformer of tracelearn or None), at least one, got {brief(self.views)}: "
            "None is the sample itself.",
        )
        self._validate_names([name for name, _ in pairs])
        return [TensorStandardScaler(with_mean=False, with_std=False) if view is None else view for _, view in pairs]

    def _scales(self, var: Array, transformers: Sequence[TensorTransformer]) -> dict[str, Any]:
        """Return the attributes that follow from the variance of every entry of all views."""
        n_views = len(self.views)
        weights = np.ones(n_views)
        if self.view_weights is not None:
            weights = np.array(read_numbers(self.view_weights, "view_weights", "numbers"))
        refuse(
            len(weights) != n_views or not np.all((weights > 0) & np.isfinite(weights)),
            f"Expected {n_views} view_weights above zero, one for each view, got {brief(self.view_weights)}: leave a "
            "view out to do without it.",
        )
        shapes = [view.output_shape_ for view in transformers]
        variances = np.array([np.sum(var_of_view) for var_of_view in _split(var, shapes)])
        scale = np.sqrt(np.where((variances > 0) & self.scaling, variances, 1.0))
        return {
            "view_names_": [name for name, _ in self.views],
            "view_shapes_": shapes,
            "view_factors_": weights / scale,
            "scale_": scale,
        }

    # --- applying ----------------------------------------------------------------------------------------------------

    def transform_tensors(self, T: Array) -> Array:
        """Concatenate all views, each multiplied by its factor."""
        flat = _flat(T, self.transformers_)
        sizes = [math.prod(shape) for shape in self.view_shapes_]
        return flat * move_to(np.repeat(self.view_factors_, sizes), flat, flat.dtype)

    @property
    def output_shape_(self) -> tuple[int, ...]:
        """The number of entries of all views."""
        return (sum(math.prod(shape) for shape in self.view_shapes_),)

    def numbers_per_sample(self, shape: tuple[int, ...]) -> int:
        """Count the numbers of all views."""
        return _numbers_of(self.transformers_, shape)

    def named_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """List the views."""
        return [(f"{name}__", shape) for name, shape in zip(self.view_names_, self.view_shapes_, strict=True)]

    def split(self, flat: Array) -> list[Array]:
        """Split flat samples (n, p), or weights (p,) or (K, p) of a model, into the tensors of each view."""
        check_is_fitted(self)
        flat = flat if is_non_numpy(flat) else np.asarray(flat)
        size = self.output_shape_[0]
        refuse(
            flat.ndim == 0 or flat.shape[-1] != size,
            f"Expected {size} numbers along the last axis, got shape {tuple(flat.shape)}: pass what transform returns, "
            "or coef_ of a model that was fitted on it.",
        )
        return _split(flat, self.view_shapes_)


def _numbers_of(transformers: Sequence[TensorTransformer], shape: tuple[int, ...]) -> int:
    """Count the numbers of one sample in all views."""
    return sum(view.numbers_per_sample(shape) for view in transformers)


def _flat(T: Array, transformers: Sequence[TensorTransformer]) -> Array:
    """Transform tensors by every view, in double precision, and put the flat results one after the other, (n, p)."""
    xp = array_namespace(T)
    T = as_dtype(T, widest(T)["dtype"])
    return xp.concat([xp.reshape(view.transform_tensors(T), (T.shape[0], -1)) for view in transformers], axis=1)


def _split(flat: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Cut the last axis into views laid out one after the other, and give each its shape."""
    xp = array_namespace(flat)
    rows = tuple(flat.shape[:-1])
    ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
    return [
        xp.reshape(flat[..., start:end], (*rows, *shape))
        for start, end, shape in zip([0, *ends], ends, shapes, strict=False)
    ]
