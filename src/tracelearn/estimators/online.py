"""What regressor and classifier share where the loss has moments: learning more, merging, forgetting.

Invariant: whatever is added or removed, in any order, the model is the one of the samples that are left, to ``tol``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from tracelearn.arrays.array_api import Array, move_to, to_numpy
from tracelearn.errors import InputError, brief
from tracelearn.estimators.base import TraceNormModel, reader_of, settings_of
from tracelearn.fitting import fit_linear, loss_named, reporter, warn_of_fit
from tracelearn.moments import Moments
from tracelearn.samples.checks import check_place
from tracelearn.samples.learning import learning
from tracelearn.samples.reading import Spec, read, recoded, summarise
from tracelearn.samples.source import as_source
from tracelearn.samples.targets import union

__all__ = ["OnlineModel", "expected_classes", "has_moments"]


def has_moments(estimator: Any) -> bool:
    """Tell whether the loss of an estimator has moments; scikit-learn hides ``partial_fit`` where it has none."""
    if not loss_named(estimator.loss, for_classes=isinstance(estimator, ClassifierMixin)).has_moments:
        raise AttributeError(
            f"Expected loss='squared_error' for partial_fit, merge and forget, got {estimator.loss!r}: only the squared loss has "
            "statistics that add, so other losses learn from all samples at once with fit."
        )
    return True


class OnlineModel(TraceNormModel):
    """A model that can learn more and forget, because what it learned adds up."""

    @available_if(has_moments)
    @learning
    def accumulate(
        self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None, *, classes: Any = None
    ) -> Self:
        """Add samples to ``moments_`` and leave the weights as they are, until ``refresh``: for streams of small batches.

        Parameters
        ----------
        X, y, sample_weight, confounds : as for ``fit``
        classes : array of all labels that will ever come, for classifiers; None adds them as they come
        """
        spec, moments = self._with_more(X, y, sample_weight, classes, confounds, may_grow=True)
        self._publish(spec, moments, None)
        return self

    @available_if(has_moments)
    @learning
    def refresh(self) -> Self:
        """Solve for ``moments_``, from the last solution: after ``accumulate``."""
        if not hasattr(self, "moments_"):
            raise InputError("Expected samples before refresh, got none: call accumulate or partial_fit first.")
        self._refit(self._spec, self.moments_)
        return self

    def _learn(self, X: Any, y: Any, sample_weight: Any, classes: Any, confounds: Any) -> Self:
        """Add samples to the moments, and solve from the last solution: ``partial_fit`` (the paper's Algorithm 2)."""
        self._refit(*self._with_more(X, y, sample_weight, classes, confounds, may_grow=False))
        return self

    def _refit(self, spec: Spec, moments: Moments) -> None:
        """Solve for moments, from the last solution."""
        settings = settings_of(self)
        name = type(self).__name__
        fitted = fit_linear(moments, spec, settings, start=self._warm_start, report=reporter(name, self.verbose))
        warn_of_fit(fitted, settings, name, rounding=moments.rounding_share)
        self._publish(spec, moments, fitted)

    def _with_more(
        self, X: Any, y: Any, sample_weight: Any, classes: Any, confounds: Any, *, may_grow: bool
    ) -> tuple[Spec, Moments]:
        """Add samples to those so far, multiplied by ``forgetting``; return the ``Spec`` and the moments of all."""
        past = getattr(self, "moments_", None)
        if past is None and hasattr(self, "coef_"):
            raise InputError(
                "Expected a model that keeps its moments, got one that was fitted without: fit with keep_moments=True, or begin "
                "with partial_fit on a new model."
            )
        before = None if past is None else self._spec
        if isinstance(self, ClassifierMixin):
            self._refuse_balanced()
            classes = expected_classes(before, classes, may_grow=may_grow)
        reader = reader_of(self, classes=classes, may_grow=may_grow and classes is None)
        modes = None if before is None else before.modes
        source = as_source(X, y, sample_weight, confounds, modes_of_fit=modes)
        if past is None:
            if source.repeatable:
                spec, samples = read(source, reader)
                return spec, samples.moments()
            return summarise(source, reader)
        self._check_confounds(confounds)
        check_place(X, past.x_mean, f"{type(self).__name__}.partial_fit()")
        spec, samples = read(source, reader.after(before))
        return spec, samples.moments(recoded(past, before, spec).scaled(self.forgetting))

    @available_if(has_moments)
    @learning
    def merge(self, other: Any) -> Self:
        """Learn what another model knows; afterwards the model is the one of the samples of both, to ``tol``.

        The other's ``moments_`` are added to those of this model, and the solver starts from the last solution. No sample
        is needed. Classifiers may know different classes: afterwards this one knows all of them.

        Parameters
        ----------
        other : fitted model for samples of the same shape, or Moments
            Moments say nothing of classes: they must be coded as those of this model.
        """
        spec, moments, other_moments = self._aligned(other)
        self._refit(spec, moments + other_moments)
        return self

    @available_if(has_moments)
    @learning
    def unmerge(self, other: Any) -> Self:
        """Unlearn what another model, or Moments, learned: the opposite of ``merge``."""
        spec, moments, other_moments = self._aligned(other)
        before = self._spec.classes
        if before is not None and not np.array_equal(to_numpy(before), to_numpy(spec.classes)):
            raise InputError(
                "Expected a model of samples that this one has learned, got one with other classes: remove only what was "
                "added before."
            )
        self._refit(spec, moments.without(other_moments))
        return self

    @available_if(has_moments)
    @learning
    def forget(self, X: Any, y: Any, sample_weight: Any = None, confounds: Any = None) -> Self:
        """Unlearn samples; afterwards the model is the one of all the others, to ``tol``.

        Their moments are subtracted from ``moments_``, and the solver starts from the last solution.

        Parameters
        ----------
        X, y, sample_weight, confounds : as they were learned
            Where ``forgetting`` is below 1, weights are what it has left of them: ``forgetting ** k`` times those they came
            with, for samples that k calls of ``partial_fit`` followed.
        """
        moments = _moments_of(self)
        spec = self._spec
        self._check_confounds(confounds)
        if isinstance(self, ClassifierMixin):
            self._refuse_balanced()
        check_place(X, moments.x_mean, f"{type(self).__name__}.forget()")
        source = as_source(X, y, sample_weight, confounds, modes_of_fit=spec.modes)
        _, samples = read(source, reader_of(self).after(spec))
        self._refit(spec, moments.without(samples.moments()))
        return self

    def _aligned(self, other: Any) -> tuple[Spec, Moments, Moments]:
        """Return the common ``Spec`` of this model and another, and the moments of both, coded for the same classes."""
        moments = _moments_of(self)
        spec = self._spec
        if isinstance(self, ClassifierMixin):
            self._refuse_balanced()
        other_moments = other if isinstance(other, Moments) else _moments_of(other)
        other_moments = other_moments.moved_to(moments.gram)
        if isinstance(other, Moments):
            return spec, moments, other_moments
        self._check_like(other, other_moments)
        if spec.classes is None:
            return spec, moments, other_moments
        common = replace(spec, classes=move_to(union(spec.classes, other.classes_), spec.classes))
        other_moments = recoded(other_moments, replace(spec, classes=other.classes_), common)
        return replace(common, n_targets=other_moments.n_targets), recoded(moments, spec, common), other_moments

    def _check_like(self, other: Any, moments: Moments) -> None:
        """Refuse a model that learned from samples of another kind."""
        spec = self._spec
        if not isinstance(other, TraceNormModel) or hasattr(other, "classes_") != hasattr(self, "classes_"):
            raise InputError(
                f"Expected another {type(self).__name__}, got {type(other).__name__}: merge like with like."
            )
        if other.sample_shape_ != spec.sample_shape:
            raise InputError(
                f"Expected a model for samples of shape {spec.sample_shape}, got one for samples of shape "
                f"{other.sample_shape_}: only models of samples of one kind can be merged."
            )
        n_confounds = moments.n_features - math.prod(other.sample_shape_)
        if n_confounds != spec.n_confounds:
            raise InputError(
                f"Expected a model of as many confounds, {spec.n_confounds}, got one of {n_confounds}: only models of samples "
                "of one kind can be merged."
            )
        names = spec.feature_names
        other_names = getattr(other, "feature_names_in_", None)
        if names is not None and other_names is not None and list(names) != list(other_names):
            raise InputError(
                "Expected a model with the same feature names, got others: bring the columns into one order."
            )

    def _refuse_balanced(self) -> None:
        """Refuse balanced class weights, which depend on samples that are still to come."""
        if self.class_weight == "balanced":  # type: ignore[attr-defined]
            raise InputError(
                "Expected class_weight to be a dict or None for partial_fit, merge and forget, got 'balanced': the shares of "
                "the classes are not known before the last batch, so pass sample_weight instead."
            )


def expected_classes(before: Spec | None, classes: Any, *, may_grow: bool) -> Array | None:
    """Return the classes that further samples may have: those of the first call, or None for any."""
    named = None if classes is None else np.unique(to_numpy(classes))
    if before is None:
        if named is None and not may_grow:
            raise InputError(
                "Expected classes in the first call of partial_fit, got None: name all labels that will ever come."
            )
        return named
    if named is not None and not np.array_equal(named, to_numpy(before.classes)):
        raise InputError(
            f"Expected the classes of the first call, {brief(to_numpy(before.classes).tolist())}, got {brief(named.tolist())}: "
            "fit a new model to learn others."
        )
    return named if may_grow else before.classes


def _moments_of(model: Any) -> Moments:
    """Return the moments that a fitted model keeps."""
    moments: Moments | None = getattr(model, "moments_", None)
    if moments is None or not hasattr(model, "coef_"):
        raise InputError(
            f"Expected a fitted model that keeps moments, got {type(model).__name__} without: fit with keep_moments=True, or "
            "begin with partial_fit."
        )
    return moments
