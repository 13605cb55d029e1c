"""A fitted model that is linear in what views show of samples: its weights, and what it predicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse
from tracelearn.errors import InputError
from tracelearn.estimators import TraceNormClassifier, TraceNormRegressor
from tracelearn.estimators.prediction import apply_to_samples
from tracelearn.estimators.weights import NamedWeights, as_tensors, factors_of, ranks_of
from tracelearn.features import PerGroup, ResampleTime, SecondOrder
from tracelearn.features.base import LinearTransformer
from tracelearn.features.per_group import fit_to_group, in_order, indexable_samples, samples_by_group, take_samples
from tracelearn.features.second_order import SpatialFilters
from tracelearn.fitting import loss_named
from tracelearn.losses import Loss
from tracelearn.samples.by_name import in_memory, with_groups
from tracelearn.samples.checks import check_place
from tracelearn.samples.lengths import padded
from tracelearn.samples.modes import read_named
from tracelearn.samples.reading import Spec
from tracelearn.samples.rows import read_rows
from tracelearn.search.alignment import aligned_view
from tracelearn.search.predictions import ScoresByViews
from tracelearn.search.views import ShownByViews, joined_shape_and_penalty

__all__ = ["LinearInViews"]


class LinearInViews(NamedWeights):
    """What a search has found: weights for each view, and predictions by samples as the views show them."""

    # What it was fitted with.
    loss: Any
    penalty: Any
    class_weight: Any
    fit_intercept: bool
    tol: float
    max_iter: int

    _spec: Spec
    resampler_: ResampleTime | None
    sample_shape_: tuple[int, ...]
    views_: dict[str, Any]
    coef_by_view_: dict[str, Array]
    patterns_by_view_: dict[str, Array]
    intercept_: Any
    class_map_: Array | None
    alignment_: Any
    view_factors_: dict[str, float]
    alpha_: float
    ridge_: float
    loss_: str
    best_score_: float
    best_score_se_: float
    dual_gap_: float

    def _loss(self) -> Loss:
        """Find the loss that the search begins with."""
        is_classifier = isinstance(self, ClassifierMixin)
        loss = "squared_error" if isinstance(self.loss, str) and self.loss == "auto" else self.loss
        return loss_named(loss, for_classes=is_classifier)

    def _publish(self, attributes: dict[str, Any], *, anew: bool = False) -> None:
        """Write fitted attributes; nothing else does. With ``anew`` all attributes of an earlier fit are deleted first."""
        if anew:
            for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
                delattr(self, name)
        for name, value in attributes.items():
            setattr(self, name, value)

    # --- weights -----------------------------------------------------------------------------------------------------

    @property
    def coef_(self) -> Array:
        """The weights of the samples where all views are linear in them, flat where samples are; else those of all views.

        The latter are flat, one view after the other; see ``coef_by_view_``.
        """
        coefs = self._by_view("coef_by_view_")
        if not self.is_linear_:
            return self._side_by_side(coefs)
        W: Any = 0.0
        for name, view in self.views_.items():
            W = W + (coefs[name] if view is None else view.coef_to_input(coefs[name]))
        return array_namespace(W).reshape(W, (*self._target_shape(), -1)) if self._spec.is_flat else W

    @property
    def patterns_(self) -> Array:
        """The covariances of entries of samples with scores where all views are linear in them; else of entries of views."""
        patterns = self._by_view("patterns_by_view_")
        if not self.is_linear_:
            return self._side_by_side(patterns)
        # One view is enough: its patterns are covariances with the scores of the whole model, and the inverse of a linear view,
        # which subtracts no mean, turns them into covariances of the entries of samples.
        name, view = next(iter(self.views_.items()))
        if view is None:
            return patterns[name]
        xp = array_namespace(patterns[name])
        rows = view.inverse_transform(xp.reshape(patterns[name], (-1, *self.sample_shape_)))
        return xp.reshape(rows, (*self._target_shape(), *self.sample_shape_))

    @property
    def coef_tensor_(self) -> Array:
        """The weights as tensors in the modes of samples, whether samples came flat or not."""
        if not self.is_linear_:
            return self.coef_
        return as_tensors(self.coef_, self.sample_shape_, is_single=self._spec.is_single)

    @property
    def mode_ranks_(self) -> Array:
        """The rank of the weights in each mode, of the samples or of the only view; with several targets a row for each."""
        W, n_modes = self._only_tensor()
        return ranks_of(W, n_modes)

    @property
    def mode_factors_(self) -> list[tuple[Array, Array]]:
        """The factors and singular values of the weights in each mode, of the samples or of the only view."""
        W, n_modes = self._only_tensor()
        return factors_of(W, n_modes)

    @property
    def filters_by_view_(self) -> dict[str, SpatialFilters]:
        """The weights of second order as spatial filters with their patterns, of each window; see ``SecondOrder.filters``."""
        coefs = self._by_view("coef_by_view_")
        return {name: view.filters(coefs[name]) for name, view in self.views_.items() if isinstance(view, SecondOrder)}

    def _by_view(self, name: str) -> dict[str, Array]:
        """Return the fitted attribute of a name, a dict by view; before a fit, raise the AttributeError of a property."""
        if "views_" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object is not fitted yet: call fit first.")
        by_view: dict[str, Array] = vars(self)[name]
        return by_view

    @property
    def is_linear_(self) -> bool:
        """Whether all views are linear in the samples, so that the model has weights for the samples themselves."""
        return all(view is None or isinstance(view, LinearTransformer) for view in self.views_.values())

    def _target_shape(self) -> tuple[int, ...]:
        """Find the axes of targets that weights have: none if y had one axis."""
        return () if self._spec.is_single else (self._spec.n_targets,)

    def _side_by_side(self, by_view: dict[str, Array]) -> Array:
        """Join weights or patterns of several views, flat; those of a single view keep their shape."""
        arrays = list(by_view.values())
        if len(arrays) == 1:
            return arrays[0]
        xp = array_namespace(arrays[0])
        return xp.concat([xp.reshape(W, (*self._target_shape(), -1)) for W in arrays], axis=-1)

    def _only_tensor(self) -> tuple[Array, int]:
        """Find the weights of the samples, or of the only view, and the number of their modes."""
        coefs = self._by_view("coef_by_view_")
        if self.is_linear_:
            return self.coef_tensor_, len(self.sample_shape_)
        if len(coefs) > 1:
            raise AttributeError("Expected weights in one set of modes, got those of several views: see coef_by_view_.")
        (W,) = coefs.values()
        return W, W.ndim - (0 if self._spec.is_single else 1)

    # --- samples as the model sees them -------------------------------------------------------------------------------

    def _view_shapes(self) -> list[tuple[int, ...]]:
        """Find the shapes of samples as the views of the model show them."""
        n_axes = 0 if self._spec.is_single else 1
        return [tuple(W.shape[n_axes:]) for W in self.coef_by_view_.values()]

    def _views_in_one(self) -> tuple[ShownByViews, tuple[int, ...], Any]:
        """Return all views as one function, the shape of what it makes of a sample, and the penalty of weights of that shape."""
        views = tuple(self.views_.values())
        shape, penalty = joined_shape_and_penalty(views, self._view_shapes(), self.penalty)
        return (
            ShownByViews(views, tuple(self.view_factors_.values()), self.sample_shape_, self.resampler_),
            shape,
            penalty,
        )

    def joined_views(self, X: Any, groups: Any = None) -> Array:
        """Show samples in memory as the views of the model do, side by side, each times ``view_factors_``.

        The model is linear in these: ``linear_estimator`` learns it. ``groups`` are those of ``predict``.
        """
        check_is_fitted(self, "views_")
        series = padded(X, self.sample_shape_)
        X, _ = read_named(series.values, self._spec.modes)
        samples = read_rows(
            self._aligned(X, groups, "joined_views"),
            name=type(self).__name__,
            known_shape=self.sample_shape_,
            known_names=self._spec.feature_names,
            any_library=True,
            takes_gaps=self.resampler_ is not None,
            time=self._mode_of_any_length(series.time),
        )
        views, shape, _ = self._views_in_one()
        Z = views(samples.rows, samples.sample_shape)
        return Z if is_sparse(Z) else array_namespace(Z).reshape(Z, (-1, *shape))

    def _aligned(self, X: Any, groups: Any, method: str) -> Any:
        """Align samples in memory by group, where the model does."""
        if self.alignment_ is None:
            return X
        self._check_groups(groups, method)
        return PerGroup(self._alignment()).fit_transform(self._complete(indexable_samples(X)), groups=groups)

    def _alignment(self) -> Any:
        """Return what samples of the shape of ``fit``, flat or not, are aligned by, not fitted."""
        return clone(self.alignment_).set_params(tensor_shape=self.sample_shape_)

    def _complete(self, X: Any) -> Any:
        """Fill the gaps of samples, and bring them to the length of those of ``fit``: what is aligned is complete."""
        return X if self.resampler_ is None else self.resampler_.transform(X)

    def linear_estimator(self) -> Any:
        """Make an estimator, not fitted, with the strengths and the loss that were chosen, for what ``joined_views`` returns."""
        check_is_fitted(self, "views_")
        _, _, penalty = self._views_in_one()
        is_classifier = isinstance(self, ClassifierMixin)
        options: dict[str, Any] = {"class_weight": self.class_weight} if is_classifier else {}
        return (TraceNormClassifier if is_classifier else TraceNormRegressor)(
            self.alpha_,
            ridge=self.ridge_,
            loss="log_loss" if self.loss_ == "log_loss" else self._loss(),
            penalty=penalty,
            fit_intercept=self.fit_intercept,
            tol=self.tol,
            max_iter=self.max_iter,
            **options,
        )

    def adapted(self, X: Any) -> Self:
        """Return a model for one new person, device or day, given some of its samples without targets.

        A model that aligns samples by group needs to know how those of a new group are: ``predict`` finds out from all samples
        of the group that it is given together. The model that is returned knows it from these samples, once and for all: its
        views begin with the alignment, it is an ordinary model that takes no groups, predicts one sample at a time, is saved,
        and exported. It predicts exactly what ``predict(X, groups=...)`` does where X are all samples of their group.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or whatever ``fit`` takes
            Unlabelled samples of the new group, at least two; their number need not be large, but the covariance of their
            channels must be told from them.

        Returns
        -------
        a fitted model of the same class; where ``fit`` has found no use in alignment it is as this one

        Examples
        --------
        >>> from tracelearn import TensorClassifier
        >>> from tracelearn.datasets import make_persons
        >>> X, y, person, *_ = make_persons(8, 30, n_times=30, random_state=0)
        >>> known = person < 7
        >>> model = TensorClassifier().fit(X[known], y[known], groups=person[known])
        >>> new = X[person == 7]
        >>> one = model.adapted(new)
        >>> bool((one.predict(new[:1]) == model.predict(new, groups=person[person == 7])[:1]).all())
        True
        """
        check_is_fitted(self, "views_")
        attributes = {name: value for name, value in vars(self).items() if name.endswith("_") or name == "_spec"}
        if self.alignment_ is not None:
            X, _ = read_named(padded(X, self.sample_shape_).values, self._spec.modes)
            attributes |= {"views_": self._views_adapted_to(X), "alignment_": None}
        model: Self = clone(self)
        model._publish(attributes, anew=True)
        return model

    def _views_adapted_to(self, X: Any, group: Any = None) -> dict[str, Any]:
        """Return the views of the model, each preceded by the alignment that is fitted to samples of one group."""
        alignment = fit_to_group(self._alignment(), self._complete(X), group)
        return {name: aligned_view(alignment, view) for name, view in self.views_.items()}

    def _apply(
        self, after: Callable[[Array], Array], method: str, X: Any, confounds: Any = None, groups: Any = None
    ) -> Any:
        """Score samples wherever they are, and apply a function to the scores (n, K) of each block."""
        check_is_fitted(self, "views_")
        self._check_confounds(confounds)
        spec = self._spec
        X, _, _, groups = with_groups(X, None, None, groups, spec.modes)
        series = padded(X, spec.sample_shape)
        X, _ = read_named(series.values, spec.modes)
        time = self._mode_of_any_length(series.time)
        check_place(X, next(iter(self.coef_by_view_.values())), f"{type(self).__name__}.{method}()")
        if self.alignment_ is None:
            return apply_to_samples(self._scores_by(self.views_, after, time), X, confounds, spec)
        self._check_groups(groups, method)
        X, _, _, _ = in_memory(X, modes_of_fit=spec.modes)
        X, members = samples_by_group(X, groups, type(self).__name__)
        blocks = []
        for group, index in members.items():
            samples = take_samples(X, index)
            scores = self._scores_by(self._views_adapted_to(samples, group), after, time)
            confounds_of_group = None if confounds is None else take_samples(confounds, index)
            blocks.append(apply_to_samples(scores, samples, confounds_of_group, spec))
        return in_order(blocks, list(members.values()))

    def _scores_by(
        self, views: dict[str, Any], after: Callable[[Array], Array], time: int | None = None
    ) -> ScoresByViews:
        """Make the function that scores a block of samples, given the views of the model."""
        spec = self._spec
        coefs = tuple(self.coef_by_view_.values())
        xp = array_namespace(coefs[0])
        confound_coef = getattr(self, "confound_coef_", None)
        return ScoresByViews(
            name=type(self).__name__,
            spec=spec,
            views=ShownByViews(tuple(views.values()), (1.0,) * len(coefs), spec.sample_shape, self.resampler_),
            coefs=tuple(xp.reshape(W, (spec.n_targets, -1)) for W in coefs),
            intercept=self.intercept_,
            confound_coef=None if confound_coef is None else xp.reshape(confound_coef, (spec.n_targets, -1)),
            class_map=getattr(self, "class_map_", None),
            after=after,
            time=time,
        )

    def _check_groups(self, groups: Any, method: str) -> None:
        """Refuse samples without groups where the model aligns them by group."""
        if groups is None:
            raise InputError(
                f"Expected groups= for {method} of a model that aligns samples by group, got none: pass the group of each "
                "sample, which is aligned with the others of its group, or predict by adapted(X), the model for one new group."
            )

    def _mode_of_any_length(self, padded_along: int | None) -> int | None:
        """Find the mode along which samples may be of any length; None unless those of ``fit`` were, or these are padded."""
        if self.resampler_ is None or not (padded_along is not None or self.resampler_.has_seen_several_lengths):
            return None
        return self.resampler_.time_axis_

    def _check_confounds(self, confounds: Any) -> None:
        """Refuse a model of confounds without them, and confounds that it does not know."""
        expected = self._spec.n_confounds
        got = 0
        if confounds is not None:
            got = 1 if np.ndim(confounds) == 1 else int(np.shape(confounds)[-1])
        if got != expected:
            raise ValueError(
                f"Expected {expected or 'no'} confounds of each sample, as in fit, got {got or 'none'}: pass "
                f"{'confounds=' if expected else 'samples alone'}."
            )
