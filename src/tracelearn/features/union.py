"""Views: several transformations of one sample, as one flat sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, is_non_numpy, move_to, widest
from tracelearn.errors import refuse
from tracelearn.features.base import Composite, Summary, TensorTransformer, squares, summarise
from tracelearn.features.scaler import TensorStandardScaler
from tracelearn.samples.checks import read_numbers
from tracelearn.samples.scikit_learn import BaseComposition

__all__ = ["Views"]


class Views(Composite, BaseComposition):  # type: ignore[misc]
    """Several views of each sample at once, such as raw, whitened and second order, as one flat sample.

    ``transform`` puts the flattened views one after the other; ``split`` takes them, or the weights of a model, apart again,
    so that a penalty can give every view its own norm.

    Parameters
    ----------
    views : list of (name, transformer or None)
        Transformers of this package; None is the sample itself.
    view_weights : sequence of floats, one for each view, default=None
        The factor of each view, one by default. A larger factor means that a view is penalised less.
    scale : bool, default=True
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
        Root of the total variance of each view; one for a view that does not vary, and for all without ``scale``.
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

    def _unfitted(self) -> list[Any]:
        """Check and copy the transformers."""
        pairs = [view for view in self.views if isinstance(view, tuple) and len(view) == 2]
        usable = [view is None or isinstance(view, TensorTransformer) for _, view in pairs]
        refuse(
            not usable or not all(usable) or len(pairs) != len(self.views),
            f"Expected views to be a list of (name, transformer of tracelearn or None), at least one, got {self.views!r}: "
            "None is the sample itself.",
        )
        self._validate_names([name for name, _ in pairs])
        found = [TensorStandardScaler(with_mean=False, with_std=False) if view is None else view for _, view in pairs]
        return [
            clone(view).set_params(tensor_shape=self.tensor_shape).set_output(transform="default") for view in found
        ]

    def _measure(self, T: Array, weight: Array) -> Summary:
        return summarise(self._flat(T), weight, squares)

    def _flat(self, T: Array) -> Array:
        """See tensors as every view does, each flat, one after the other."""
        xp, T = array_namespace(T), as_dtype(T, widest(T)["dtype"])
        return xp.concat([xp.reshape(view.transform(T), (T.shape[0], -1)) for view in self.transformers_], axis=1)

    def _join(self, T: Array, weight: Array, known: Sequence[tuple[Any, Array]]) -> Array:
        """Learn from tensors, with what each view knows: its fitted transformer, or None, and the rows that it makes of them.

        Returns what ``transform`` would.
        """
        xp, parts = array_namespace(T), []
        self.transformers_ = []
        for fitted, rows in known:
            own = TensorStandardScaler(with_mean=False, with_std=False) if fitted is None else fitted
            parts.append(xp.reshape(own._fit_checked(T, weight), (T.shape[0], -1)) if fitted is None else rows)
            self.transformers_.append(own)
        self.sample_shape_, self.n_features_in_ = own.sample_shape_, own.n_features_in_
        self.n_samples_seen_ = own.n_samples_seen_
        flat = xp.concat(parts, axis=1)
        self._keep(summarise(flat, weight, squares))
        return flat * move_to(np.repeat(self.view_factors_, self._sizes()), flat, flat.dtype)

    def _keep(self, summary: Summary) -> None:
        weights = (
            np.ones(len(self.views))
            if self.view_weights is None
            else np.array(read_numbers(self.view_weights, "view_weights", "numbers"))
        )
        refuse(
            len(weights) != len(self.views) or not np.all((weights > 0) & np.isfinite(weights)),
            f"Expected {len(self.views)} view_weights above zero, one for each view, got {self.view_weights!r}: leave a "
            "view out to do without it.",
        )
        self.view_names_ = [name for name, _ in self.views]
        self.view_shapes_ = [view._shape_out() for view in self.transformers_]
        self.mean_, self.var_ = summary.mean, summary.sums[0] / summary.weight
        variances = np.array([np.sum(part) for part in self.split(self.var_)])
        self.scale_ = np.sqrt(np.where((variances > 0) & self.scale, variances, 1.0))
        self.view_factors_ = weights / self.scale_

    def _known(self) -> tuple[Array, list[Array]]:
        return self.mean_, [self.var_]

    # --- applying ----------------------------------------------------------------------------------------------------

    def _map(self, T: Array) -> Array:
        factors = np.repeat(self.view_factors_, self._sizes())
        return self._flat(T) * move_to(factors, T, T.dtype)

    def _sizes(self) -> list[int]:
        return [math.prod(view._shape_out()) for view in self.transformers_]

    def _shape_out(self) -> tuple[int, ...]:
        return (sum(self._sizes()),)

    def _row_size(self) -> int:
        return sum(view._row_size() for view in self.transformers_)

    def _named_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(f"{name}__", shape) for name, shape in zip(self.view_names_, self.view_shapes_, strict=True)]

    def split(self, flat: Array) -> list[Array]:
        """Take flat samples (n, p), or weights (p,) or (K, p) of a model, apart into those of the views, as tensors."""
        check_is_fitted(self)
        flat = flat if is_non_numpy(flat) else np.asarray(flat)
        ends = np.cumsum(self._sizes()).tolist()
        refuse(
            flat.ndim == 0 or flat.shape[-1] != ends[-1],
            f"Expected {ends[-1]} numbers along the last axis, got shape {tuple(flat.shape)}: pass what transform returns, "
            "or coef_ of a model that was fitted on it.",
        )
        places = zip([0, *ends], ends, self.view_shapes_, strict=False)
        xp, rows = array_namespace(flat), tuple(flat.shape[:-1])
        return [xp.reshape(flat[..., start:end], (*rows, *shape)) for start, end, shape in places]
