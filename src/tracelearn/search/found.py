"""The model that a search found: its weights, view by view, and what it predicts of samples as they came."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, is_non_numpy, is_sparse
from tracelearn.estimators.base import TensorInput
from tracelearn.estimators.online import has_moments
from tracelearn.estimators.weights import NamedWeights
from tracelearn.features import SecondOrder, Views
from tracelearn.features.base import LinearTransformer
from tracelearn.features.second_order import SpatialFilters
from tracelearn.samples.checks import check_place, learning, other_shape
from tracelearn.samples.samples import is_dask, is_named, unnamed
from tracelearn.samples.scikit_learn import check_feature_names
from tracelearn.search.session import parts_of

__all__ = ["OF_SAMPLES", "SHOWN", "FoundModel"]

# What the model knows of samples and what it has learned, which is shown here too.
OF_SAMPLES = ("n_features_in_", "feature_names_in_", "modes_", "classes_")
LEARNED = ("intercept_", "n_iter_", "objective_", "dual_gap_")
SHOWN = OF_SAMPLES + LEARNED


def _goes_on(estimator: Any) -> bool:
    """Tell whether what ``fit`` learns is kept, so that learning can go on."""
    if not estimator.keep_moments:
        raise AttributeError("Expected keep_moments=True for partial_fit after a search, got False: fit with it.")
    return has_moments(estimator)


def _learned(name: str) -> Any:
    """Show an attribute of the model that was found; weights of linear views as those of the samples themselves."""

    def shown(self: Any) -> Any:
        if "best_estimator_" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if self.features_ is not None and name in ("coef_", "coef_tensor_", "patterns_") and self._is_linear():
            W = self._of_samples(name)
            flat = self._flat and name == "coef_"
            return array_namespace(W).reshape(W, (*W.shape[: W.ndim - len(self.sample_shape_)], -1)) if flat else W
        return getattr(self.best_estimator_, name)

    return property(shown, doc=f"As in ``best_estimator_``: its ``{name}``.")


class FoundModel(NamedWeights, TensorInput):
    """The model that a search found, ``best_estimator_``, and what shows it samples, ``features_``."""

    best_estimator_: Any
    features_: Any
    view_: str
    _flat = False  # whether samples of more than one mode came flat

    @property
    def best_params_(self) -> dict[str, Any]:
        """What was chosen, as the row of ``cv_results_`` has it."""
        check_is_fitted(self)
        found: dict[str, Any] = self.cv_results_["params"][self.best_index_]
        return found

    coef_ = _learned("coef_")
    coef_tensor_ = _learned("coef_tensor_")
    patterns_ = _learned("patterns_")
    confound_coef_ = _learned("confound_coef_")
    mode_ranks_ = _learned("mode_ranks_")
    mode_factors_ = _learned("mode_factors_")
    convergence_ = _learned("convergence_")
    moments_ = _learned("moments_")

    def _is_linear(self) -> bool:
        """Tell whether all views are linear in the samples, so that the model has weights for the samples themselves."""
        return self.features_ is None or all(isinstance(view, LinearTransformer) for view in self.views_.values())

    def _of_samples(self, name: str) -> Array:
        """Express weights or patterns of linear views in the modes of the samples."""
        parts = self.patterns_by_view_ if name == "patterns_" else self.coef_by_view_
        views = list(self.views_.values())
        if name != "patterns_":
            return sum(view.coef_to_input(W) for view, W in zip(views, parts.values(), strict=True))
        # The covariances of entries with scores: each view knows all of them, and none of these subtracts a mean.
        W, shape = next(iter(parts.values())), self.sample_shape_
        xp, targets = array_namespace(W), tuple(W.shape[: W.ndim - len(shape)])
        return xp.reshape(views[0].inverse_transform(xp.reshape(W, (-1, *shape))), (*targets, *shape))

    @property
    def views_(self) -> dict[str, Any]:
        """The fitted transformer of each view of the model, by its name; None: samples as they are."""
        check_is_fitted(self)
        if isinstance(self.features_, Views):
            return dict(zip(self.features_.view_names_, self.features_.transformers_, strict=True))
        return {"raw" if self.features_ is None else parts_of(self.view_)[0]: self.features_}

    @property
    def coef_by_view_(self) -> dict[str, Array]:
        """The weights of each view, for samples as the view shows them; the weights of all, and the intercept, predict."""
        return self._by_view("coef_tensor_", 1.0)

    @property
    def patterns_by_view_(self) -> dict[str, Array]:
        """The patterns of each view: the covariances of its entries with the scores of the model."""
        return self._by_view("patterns_", -1.0)

    @property
    def filters_by_view_(self) -> dict[str, SpatialFilters]:
        """The weights of second order as spatial filters with their patterns, of each window; see ``SecondOrder.filters``."""
        coefs, views = self.coef_by_view_, self.views_
        return {name: view.filters(coefs[name]) for name, view in views.items() if isinstance(view, SecondOrder)}

    def _by_view(self, name: str, power: float) -> dict[str, Array]:
        """Take weights or patterns of all views apart, in the units of each view: ``Views`` has multiplied it by a factor."""
        views, best, features = self.views_, self.best_estimator_, self.features_
        whole = getattr(best, name)
        targets = tuple(whole.shape[: whole.ndim - len(best.sample_shape_)])
        if isinstance(features, Views):
            parts = zip(features.split(whole), (features.view_factors_**power).tolist(), strict=True)
            return dict(zip(views, (part * factor for part, factor in parts), strict=True))
        shape = best.sample_shape_ if features is None else features.output_shape_
        return dict.fromkeys(views, array_namespace(whole).reshape(whole, (*targets, *shape)))

    def predict(self, X: Any, confounds: Any = None) -> Array:
        """Predict each sample with the model that was found, with the confounds of each where ``fit`` had some."""
        return self._passed_on("predict", X, confounds)

    def _passed_on(self, method: str, X: Any, confounds: Any) -> Array:
        self._check_place(X, method)
        found: Array = getattr(self.best_estimator_, method)(self._seen(X), confounds)
        return found

    def _check_place(self, X: Any, method: str) -> None:
        """Refuse samples from elsewhere in our own name."""
        check_is_fitted(self)
        if is_non_numpy(X) or is_non_numpy(self.best_estimator_.coef_):
            check_place(self, X, method)

    def _seen(self, X: Any) -> Any:
        """Show samples as the model sees them; flat ones get their shape back first."""
        shape = () if is_named(X) else tuple(getattr(X, "shape", ()))[1:]
        if shape and shape not in (self.sample_shape_, (math.prod(self.sample_shape_),)):
            # In our own name, not in that of a transformer or of the model that was found.
            raise other_shape(type(self).__name__, self.sample_shape_, shape)
        if self.features_ is None:
            return X
        features, (X, _, _) = self.features_, unnamed(X, 0, getattr(self, "modes_", None))
        check_feature_names(self, X, reset=False)
        X = np.asarray(X) if hasattr(X, "columns") else X
        if getattr(X, "ndim", 0) == 2 and len(self.sample_shape_) > 1:
            X = X if is_non_numpy(X) or is_sparse(X) else np.asarray(X)
            X = array_namespace(X).reshape(X, (X.shape[0], *self.sample_shape_))
        found = features.transform(X)
        flat = len(self.best_estimator_.sample_shape_) == 1 and not is_dask(found)
        return array_namespace(found).reshape(found, (found.shape[0], -1)) if flat else found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None) -> float:
        """Score the model that was found, as it does itself."""
        check_is_fitted(self)
        X, y, _ = unnamed(X, y, getattr(self, "modes_", None))
        return float(self.best_estimator_.score(self._seen(X), y, sample_weight, confounds))

    @available_if(_goes_on)
    @learning
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None) -> Self:
        """Learn from more samples with everything that was chosen fixed (with ``keep_moments``)."""
        check_is_fitted(self)
        self.best_estimator_.partial_fit(self._seen(X), y, sample_weight=sample_weight, confounds=confounds)
        for shown in LEARNED:
            setattr(self, shown, getattr(self.best_estimator_, shown))
        return self
