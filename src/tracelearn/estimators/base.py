"""What regressor and classifier share: parameters and ``fit``.

A fit is ``read``, ``fit_linear`` and ``_publish``, the one place where fitted attributes are written. Nothing is written on the
estimator before the end, so that one whose fit fails is as it was before.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Self

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from tracelearn.arrays.array_api import available_memory
from tracelearn.errors import InputError
from tracelearn.estimators.prediction import ScoresSamples
from tracelearn.estimators.weights import WeightsInModes
from tracelearn.fitting import Fitted, Settings, fit_linear, loss_named, reporter, warn_of_fit
from tracelearn.moments import Moments
from tracelearn.problems.forms import choose_form
from tracelearn.samples.learning import learning
from tracelearn.samples.per_sample import check_classes
from tracelearn.samples.reading import Reader, Spec, loaded_for, read, summarise
from tracelearn.samples.samples import Samples
from tracelearn.samples.scikit_learn import Interval, StrOptions
from tracelearn.samples.source import Source, as_source
from tracelearn.samples.targets import Labels, Numbers

__all__ = ["LinearModel", "TensorInput", "TraceNormModel", "reader_of", "settings_of"]


def settings_of(model: Any) -> Settings:
    """Gather what states problem and solver: parameters of a linear model, or class attributes where it has a fixed value."""
    return Settings(
        loss=loss_named(model.loss, for_classes=isinstance(model, ClassifierMixin)),
        alpha=model.alpha,
        ridge=model.ridge,
        penalty=model.penalty,
        mode_weights=model.mode_weights,
        target_mode=model.target_mode,
        scaling=model.scaling,
        fit_intercept=model.fit_intercept,
        solver=model.solver,
        tol=model.tol,
        max_iter=model.max_iter,
    )


def reader_of(model: Any, *, classes: Any = None, may_grow: bool = False) -> Reader:
    """Make the reader of the samples and targets of an estimator.

    Parameters
    ----------
    classes : all labels that may occur, or where they ``may_grow`` those so far; None takes the labels that occur
    """
    is_classifier = isinstance(model, ClassifierMixin)
    loss = loss_named(model.loss, for_classes=is_classifier)
    targets = Labels(loss, model.class_weight, classes, may_grow) if is_classifier else Numbers(loss)
    return Reader(type(model).__name__, targets, model.tensor_shape)


class TensorInput(BaseEstimator):
    """Tells scikit-learn which samples an estimator takes: tensors of any array library, and sparse ones without scaling."""

    scaling: Any

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.sparse = self.scaling is None  # the zeros of a sparse matrix would say nothing of scale
        tags.array_api_support = True
        return tags


class LinearModel(WeightsInModes, ScoresSamples, TensorInput):
    """A linear model of samples that are tensors."""


class TraceNormModel(LinearModel):
    """What regressor and classifier share: parameters, fitting, scores."""

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's convention
        "alpha": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "loss": "no_validation",  # names and objects are looked up, and refused in our own words
        "penalty": "no_validation",
        "solver": "no_validation",
        "scaling": [StrOptions({"modes"}), None],
        "mode_weights": ["array-like", None],
        "target_mode": ["boolean"],
        "fit_intercept": ["boolean"],
        "tensor_shape": ["array-like", None],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "keep_moments": ["boolean"],
        "forgetting": [Interval(Real, 0, 1, closed="right")],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        alpha: Any = "auto",
        *,
        ridge: float = 0.0,
        loss: Any = "squared_error",
        penalty: Any = "overlapped",
        mode_weights: Any = None,
        target_mode: bool = False,
        scaling: Any = None,
        fit_intercept: bool = True,
        tensor_shape: Any = None,
        solver: Any = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        warm_start: bool = False,
        keep_moments: bool = False,
        forgetting: float = 1.0,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.ridge = ridge
        self.loss = loss
        self.penalty = penalty
        self.mode_weights = mode_weights
        self.target_mode = target_mode
        self.scaling = scaling
        self.fit_intercept = fit_intercept
        self.tensor_shape = tensor_shape
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.keep_moments = keep_moments
        self.forgetting = forgetting
        self.verbose = verbose

    # --- learning ----------------------------------------------------------------------------------------------------

    @learning
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None) -> Self:
        """Learn from all samples at once.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
            Of NumPy, or of any library of the array API standard, in which and on whose device all is then computed. A
            DataArray of xarray, a DataFrame with several levels of columns and epochs of MNE bring names: ``modes_``.
        y : array of shape (n_samples,), or of a regressor (n_samples, K)
            Numbers are of X's library, or of NumPy and then moved to X. Labels of NumPy may be strings, and so are
            ``classes_`` and predictions; labels of another library are of X's. None takes the names of the events of MNE's
            epochs.
        sample_weight : array of shape (n_samples,), default=None
        confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
            Numbers that are regressed out of the samples, such as movement or age. Predictions then need them too: the
            regression that was learned here is applied to new samples.
        """
        settings = settings_of(self)
        source = as_source(X, y, sample_weight, confounds)
        data: Samples | Moments
        if source.repeatable:
            spec, samples = read(loaded_for(settings.loss, source), reader_of(self))
            moments = self._moments_to_keep(samples, settings) if self.keep_moments else None
            data = samples
            if moments is not None and choose_form(samples, settings.loss).uses_moments:
                data = moments
        else:
            spec, data = self._summarised(source, settings)
            moments = data if self.keep_moments else None
        start = self._warm_start if self.warm_start else None
        fitted = fit_linear(data, spec, settings, start=start, report=reporter(type(self).__name__, self.verbose))
        warn_of_fit(fitted, settings, type(self).__name__)  # before anything is written: it may be an error to the user
        self._publish(spec, moments, fitted)
        return self

    def _moments_to_keep(self, samples: Samples, settings: Settings) -> Moments:
        """Sum up the moments that ``keep_moments`` asks for; refuse where the loss has none or they do not fit in memory."""
        if not settings.loss.has_moments:
            raise InputError(
                f"Expected keep_moments=False with loss={self.loss!r}, got True: only the squared loss has moments, so use "
                "loss='squared_error'."
            )
        size = samples.n_features + samples.n_confounds
        if 24 * size**2 > available_memory():  # the matrix, what a sum needs beside it, and its factor
            raise InputError(
                f"Expected keep_moments=False for samples of {size} entries, got True: moments of {8 * size**2 / 2**30:.1f} GiB "
                "do not fit in memory, so compress the samples with ModePCA."
            )
        return samples.moments()

    def _summarised(self, source: Source, settings: Settings) -> tuple[Spec, Moments]:
        """Sum up samples that can be read only once; refuse losses that need more than moments."""
        if not settings.loss.has_moments:
            raise InputError(
                f"Expected samples that can be read more than once for {settings.loss!r}, got an iterator: pass a list, an "
                "object whose __iter__ begins anew, or a file."
            )
        spec, moments = summarise(source, reader_of(self, may_grow=True))
        if spec.classes is not None:
            check_classes(spec.classes)
        return spec, moments

    @classmethod
    def from_fitted(cls, spec: Spec, fitted: Fitted, **params: Any) -> Self:
        """Make a fitted model of what ``fit_linear`` returned, with the parameters that it was fitted with."""
        model = cls(**params)
        model._publish(spec, None, fitted)
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Leave the last solution out of pickles unless it may be started from."""
        state = dict(super().__getstate__())
        if not (self.warm_start or "moments_" in state):
            state.pop("_warm_start", None)
        return state
