"""What regressor and classifier share where the loss has moments: learning more, merging, forgetting.

Invariant: whatever is added or removed, in any order, the model is the one of the samples that are left, to ``tol``.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from tracelearn.estimators.base import TraceNormModel
from tracelearn.moments import Moments
from tracelearn.samples.checks import learning
from tracelearn.samples.samples import as_raw


def has_moments(estimator: Any) -> bool:
    """Tell whether the loss of an estimator has moments; scikit-learn hides ``partial_fit`` where it has none."""
    if not estimator._loss().has_moments:
        raise AttributeError(
            f"Expected loss='squared_error' for partial_fit, merge and forget, got {estimator.loss!r}: only the squared loss has "
            "statistics that add, so other losses learn from all samples at once with fit."
        )
    return True


class OnlineModel(TraceNormModel):
    """A model that can learn more and forget, because what it learned adds up."""

    # What the two say for themselves: how targets are named and coded.

    def _known(self, classes: Any, *, grow: bool) -> dict[str, Any]:
        """Return what a block is to be read with."""
        return {}

    def _recoded(self, moments: Moments, before: Any) -> Moments:
        """Code what was learned before for what is known now."""
        return moments

    def _coded_alike(self, found: Any, classes: Any) -> tuple[Moments, dict[str, Any]]:
        """Return what blocks came to, coded as the moments of this model, and what is known by it."""
        return found.moments_, {}

    def _aligned(self, other: Any) -> tuple[Moments, Moments, dict[str, Any]]:
        """Return the moments of this model and of another, coded alike, and what is known then."""
        return self._moments_of(self), self._others(other), {}

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        classes: Any = None,
        confounds: Any = None,
        *,
        grow: bool = False,
        part: bool = False,
    ) -> None:
        """Add samples to ``moments_`` and leave the weights as they are, until ``_refresh``; a part may weigh nothing."""
        past = getattr(self, "moments_", None)
        if past is None and hasattr(self, "coef_"):
            raise ValueError(
                "Expected a model that keeps its moments, got one that was fitted without: fit with keep_moments=True and "
                "enough samples, or begin with partial_fit on a new model."
            )
        raw = as_raw(X, y, sample_weight, confounds, None if past is None else getattr(self, "modes_", None))
        if past is not None:
            self._check_confounds(confounds)
        if raw.repeatable or past is not None:
            before = getattr(self, "classes_", None)
            samples = self._read(raw, reset=past is None, part=part, **self._known(classes, grow=grow))
            if past is not None:
                past = self._recoded(past, before).scaled(self.forgetting)
            self.moments_ = samples.moments(past)
            return
        found = self._summarised(raw)  # the first samples of a model come only once
        moments, known = self._coded_alike(found, classes)
        self._know(found)
        self.__dict__.update(known, moments_=moments)

    def _learn_and_solve(self, X: Any, y: Any, sample_weight: Any, classes: Any = None, confounds: Any = None) -> Self:
        """Do what ``partial_fit`` promises (the paper's Algorithm 2)."""
        self._learn(X, y, sample_weight, classes, confounds)
        self._refresh()
        return self

    def _refresh(self) -> None:
        """Solve for ``moments_`` from the last solution."""
        self._fit_moments(self.moments_, warm=True)

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
        own, more, known = self._aligned(other)
        self.__dict__.update(known)
        self._fit_moments(own + more, warm=True)
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
        past, dtype = self._moments_of(self), self._dtype
        self._check_confounds(confounds)
        raw = as_raw(X, y, sample_weight, confounds, getattr(self, "modes_", None))
        samples = self._read(raw, reset=False, **self._known(None, grow=False))
        self._dtype = dtype
        self._fit_moments(past.without(samples.moments()), warm=True)
        return self

    def _without(self, other: Any) -> Self:
        """Unlearn what another model, or Moments, learned: the opposite of ``merge``."""
        own, less, known = self._aligned(other)
        if not all(np.array_equal(getattr(self, name), value) for name, value in known.items()):
            raise ValueError(
                "Expected a model of samples that this one has learned, got one with other classes: remove only what was "
                "added before."
            )
        self._fit_moments(own.without(less), warm=True)
        return self

    def _moments_of(self, model: Any) -> Moments:
        """Return the moments of a fitted model, or of itself, if it is of our kind and keeps them."""
        if isinstance(model, Moments):
            return model
        moments: Moments | None = getattr(model, "moments_", None)
        if moments is None or not hasattr(model, "coef_"):
            raise ValueError(
                f"Expected a fitted model that keeps moments, got {type(model).__name__} without: fit with keep_moments=True "
                "and enough samples, or begin with partial_fit."
            )
        return moments

    def _others(self, other: Any) -> Moments:
        """Return the moments of another model if they are of samples like ours."""
        found = self._moments_of(other)
        like = self._moments_of(self).gram
        moments = found.moved_to(like)
        if isinstance(other, Moments):
            return moments
        if hasattr(other, "classes_") != hasattr(self, "classes_"):
            raise ValueError(
                f"Expected another {type(self).__name__}, got {type(other).__name__}: merge like with like."
            )
        if getattr(other, "features_", None) is not None:
            raise ValueError(
                f"Expected a model of the samples themselves, got one of {other.view_} samples: fit {type(other).__name__} with "
                "views=None."
            )
        if other.sample_shape_ != self.sample_shape_:
            raise ValueError(
                f"Expected a model for samples of shape {self.sample_shape_}, got one for samples of shape "
                f"{other.sample_shape_}: only models of samples of one kind can be merged."
            )
        if moments.n_features != len(like):
            raise ValueError(
                f"Expected a model of as many confounds, {len(like) - math.prod(self.sample_shape_)}, got one of "
                f"{moments.n_features - math.prod(self.sample_shape_)}: only models of samples of one kind can be merged."
            )
        names = (getattr(model, "feature_names_in_", None) for model in (self, other))
        own, more = (None if name is None else list(name) for name in names)
        if own is not None and more is not None and own != more:
            raise ValueError(
                "Expected a model with the same feature names, got others: bring the columns into one order."
            )
        return moments
