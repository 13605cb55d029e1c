"""What regressor and classifier share where the loss has moments: learning more, merging, forgetting.

Invariant: whatever is added or removed, in any order, the model is the one of the samples that are left, to ``tol``.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils.metaestimators import available_if

from tracelearn.estimators.base import Batch, TraceNormModel
from tracelearn.estimators.blocks import summarised, tell
from tracelearn.moments import Moments
from tracelearn.samples.execution import as_blocks
from tracelearn.samples.undo import undone_on_failure


def has_moments(estimator: Any) -> bool:
    """Whether the loss of an estimator has moments; scikit-learn hides ``partial_fit`` where it has none."""
    if estimator.loss != "squared":
        raise AttributeError(
            f"Expected loss='squared' for partial_fit, merge and forget, got {estimator.loss!r}: only the squared loss has "
            "statistics that add, so other losses learn from all samples at once with fit."
        )
    return True


class OnlineModel(TraceNormModel):
    """A model that can learn more and forget, because what it learned adds up."""

    # What the two say for themselves.

    def _reread(self, X: Any, y: Any, sample_weight: Any) -> Batch:
        raise NotImplementedError

    def _learned(
        self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None, *, grow: bool = False
    ) -> tuple[Moments, tuple[int, ...]]:
        raise NotImplementedError

    def _aligned(self, other: Any) -> tuple[Moments, Moments, dict[str, Any]]:
        raise NotImplementedError

    def _past(self, batch: Batch, past: Moments | None) -> Moments:
        """Add a batch to what was learned before (the paper's Algorithm 2, lines 5 to 9, and Eq. 28)."""
        if past is None:
            self._refuse_without_moments()
            return batch.moments()
        return batch.moments(past.scaled(self.forgetting))

    def _refuse_without_moments(self) -> None:
        if hasattr(self, "coef_"):
            raise ValueError(
                "Expected a model that keeps moments, got one whose fit had so few samples that it keeps none: begin with "
                "partial_fit on a new model."
            )

    def _learn(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None, *, grow: bool = False) -> None:
        """Add samples to ``moments_`` and leave the weights as they are, until ``_refresh``."""
        self.moments_, self.sample_shape_ = self._learned(X, y, sample_weight, classes, grow=grow)

    def _learn_and_solve(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        """Do what ``partial_fit`` promises, with samples in an array or in blocks."""
        blocks = as_blocks(X, y, sample_weight)
        if blocks is None:
            self._fit_moments(*self._learned(X, y, sample_weight, classes), warm=True)
            return self
        found = summarised(self, blocks)
        self._fit_moments(*self._joined(found, classes), warm=True)
        return self

    def _joined(self, found: Any, classes: Any) -> tuple[Moments, tuple[int, ...]]:
        """Add what blocks came to, as one batch."""
        past = getattr(self, "moments_", None)
        more, known = self._coded_alike(found, classes)
        if past is None:
            self._refuse_without_moments()
            tell(found, self)
            self.__dict__.update(known)
            return more, found.sample_shape_
        if found.sample_shape_ != self.sample_shape_:
            raise ValueError(
                f"Expected samples of shape {self.sample_shape_} as in fit, got samples of shape {found.sample_shape_}: bring "
                "the axes into the order of fit."
            )
        return past.scaled(self.forgetting) + more, self.sample_shape_

    def _coded_alike(self, found: Any, classes: Any) -> tuple[Moments, dict[str, Any]]:
        """Return what blocks came to, coded as the moments of this model, and what is known by it."""
        return found.moments_, {}

    def _refresh(self) -> None:
        """Solve for ``moments_`` from the last solution."""
        self._fit_moments(self.moments_, self.sample_shape_, warm=True)

    @available_if(has_moments)
    @_fit_context(prefer_skip_nested_validation=True)
    @undone_on_failure
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
        self._fit_moments(own + more, self.sample_shape_, warm=True)
        self.__dict__.update(known)
        return self

    @available_if(has_moments)
    @_fit_context(prefer_skip_nested_validation=True)
    @undone_on_failure
    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Unlearn samples; afterwards the model is the one of all the others, to ``tol``.

        Their moments are subtracted from ``moments_``, and the solver starts from the last solution.

        Parameters
        ----------
        X, y, sample_weight : as they were learned
            Where ``forgetting`` is below 1, weights are what it has left of them: ``forgetting ** k`` times those they came
            with, for samples that k calls of ``partial_fit`` followed.
        """
        past, dtype = self._moments_of(self), self._dtype
        try:
            batch = self._reread(X, y, sample_weight)
        finally:
            self._dtype = dtype
        self._fit_moments(_remainder(past, batch.moments()), self.sample_shape_, warm=True)
        return self

    def _without(self, other: Any) -> Self:
        """Unlearn what another model, or Moments, learned: the opposite of ``merge``."""
        own, less, known = self._aligned(other)
        if not all(np.array_equal(getattr(self, name), value) for name, value in known.items()):
            raise ValueError(
                "Expected a model of samples that this one has learned, got one with other classes: remove only what was "
                "added before."
            )
        self._fit_moments(_remainder(own, less), self.sample_shape_, warm=True)
        return self

    def _moments_of(self, model: Any) -> Moments:
        """Return the moments of a fitted model, or of itself, if it is of our kind and keeps them."""
        if isinstance(model, Moments):
            return model
        moments: Moments | None = getattr(model, "moments_", None)
        if moments is None or not hasattr(model, "coef_"):
            raise ValueError(
                f"Expected a fitted model that keeps moments, got {type(model).__name__} without: begin with partial_fit, or "
                "fit with more samples."
            )
        return moments

    def _others(self, other: Any) -> Moments:
        """Return the moments of another model if they are of samples like ours."""
        moments = self._moments_of(other)
        if isinstance(other, Moments):
            return moments
        if hasattr(other, "classes_") != hasattr(self, "classes_"):
            raise ValueError(
                f"Expected another {type(self).__name__}, got {type(other).__name__}: merge like with like."
            )
        if other.sample_shape_ != self.sample_shape_:
            raise ValueError(
                f"Expected a model for samples of shape {self.sample_shape_}, got one for samples of shape "
                f"{other.sample_shape_}: only models of samples of one kind can be merged."
            )
        names = (getattr(model, "feature_names_in_", None) for model in (self, other))
        own, more = (None if name is None else list(name) for name in names)
        if own is not None and more is not None and own != more:
            raise ValueError(
                "Expected a model with the same feature names, got others: bring the columns into one order."
            )
        return moments


def _remainder(past: Moments, gone: Moments) -> Moments:
    """Subtract moments, and refuse where nothing is left or what is gone was never there."""
    left = past - gone
    if left.weight == 0.0:
        raise ValueError("Expected some samples to be left, got all to forget: make a new model instead.")
    before, after = (np.concatenate([np.diagonal(moments.gram), moments.target_sq]) for moments in (past, left))
    # Removal can take a variance to zero, which rounding leaves on either side of it, but not below.
    if np.any(after < -1e-9 * before):
        raise ValueError(
            "Expected samples that this model has learned, got some whose removal leaves a negative variance: forget only "
            "what was learned, with the weights it was learned with."
        )
    return left
