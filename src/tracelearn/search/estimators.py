"""TensorRegressor and TensorClassifier: the best linear model of anything that can be seen in a tensor.

A fit reads samples, splits them into folds, chooses (``choice.choose``), fits what was chosen to all samples (``fit_linear``) and
publishes it. Nothing is written on the estimator before the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from html import escape
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin, clone
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse, move_to, to_numpy
from tracelearn.arrays.linalg import n_blas_threads, one_thread
from tracelearn.errors import InputError, warn
from tracelearn.estimators import TraceNormClassifier, TraceNormRegressor
from tracelearn.estimators.base import TensorInput
from tracelearn.estimators.prediction import apply_to_samples
from tracelearn.estimators.scores import score_labels, score_numbers
from tracelearn.estimators.weights import NamedWeights, as_tensors, factors_of, ranks_of
from tracelearn.features import PerGroup, ResampleTime, SecondOrder, find_smooth_mode
from tracelearn.features.base import LinearTransformer
from tracelearn.features.per_group import fit_to_group, in_order, indexable_samples, samples_by_group, take_samples
from tracelearn.features.second_order import SpatialFilters
from tracelearn.fitting import Settings, fit_linear, loss_named, reporter
from tracelearn.losses import Loss
from tracelearn.samples.by_name import in_memory, with_groups, with_targets
from tracelearn.samples.checks import check_place
from tracelearn.samples.learning import learning
from tracelearn.samples.lengths import padded
from tracelearn.samples.modes import read_named
from tracelearn.samples.per_sample import read_groups
from tracelearn.samples.reading import Reader, Spec, read
from tracelearn.samples.rows import read_rows
from tracelearn.samples.scikit_learn import (
    CallbackSupportMixin,
    Interval,
    with_callbacks,
)
from tracelearn.samples.source import Source, as_source
from tracelearn.samples.targets import Labels, Numbers
from tracelearn.search.advice import warn_of_choice, warn_of_copies_and_outliers
from tracelearn.search.alignment import aligned_view, read_alignments, why_not_aligned
from tracelearn.search.attributes import about_choice, about_model, about_samples
from tracelearn.search.calibration import Calibration
from tracelearn.search.choice import choose
from tracelearn.search.data import SearchData, find_time, is_incomplete, read_for_search
from tracelearn.search.events import Event, Listener
from tracelearn.search.folds import Folds
from tracelearn.search.intervals import interval
from tracelearn.search.last_fit import coded_for_softmax, moments_to_keep, show_all_samples, spec_of_views
from tracelearn.search.predictions import (
    LabelsOfScores,
    LogProbabilities,
    NumbersOfScores,
    Probabilities,
    ScoresByViews,
    flat_if_two_classes,
)
from tracelearn.search.routing import RoutesToSplitter, params_for_splitter
from tracelearn.search.task import Rules, Task
from tracelearn.search.views import Candidate, ShownByViews, joined_shape_and_penalty, read_views

__all__ = ["TensorClassifier", "TensorRegressor", "TensorSearch"]

# Folds of small sets are drawn several times, so that about this many samples are held out in all.
_HELD_OUT = 400
_MOST_REPEATS = 4


def _can_learn_more(estimator: Any) -> bool:
    """Tell whether ``partial_fit`` is possible: only where ``fit`` keeps moments."""
    if not estimator.keep_moments:
        raise AttributeError("Expected keep_moments=True for partial_fit after a search, got False: fit with it.")
    return True


class TensorSearch(RoutesToSplitter, NamedWeights, TensorInput, CallbackSupportMixin):
    """What both searches share: parameters, fitting, the model that was found."""

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's convention
        "views": "no_validation",  # names and objects are looked up, and refused in our own words
        "align": "no_validation",
        "time_axis": [Integral, str, None],
        "loss": "no_validation",
        "penalty": "no_validation",
        "alphas": ["array-like", Interval(Integral, 1, None, closed="left")],
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "cv": ["cv_object"],
        "scoring": [callable, str, None],
        "one_standard_error": ["boolean"],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "fit_intercept": ["boolean"],
        "tensor_shape": ["array-like", None],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "keep_moments": ["boolean"],
        "verbose": ["verbose"],
    }

    scaling = None  # samples may be sparse: nothing is scaled

    def __init__(
        self,
        views: Any = "auto",
        *,
        align: Any = "auto",
        time_axis: Any = "auto",
        loss: Any = "squared_error",
        penalty: Any = "overlapped",
        alphas: Any = 12,
        eps: float = 1e-3,
        cv: Any = 5,
        scoring: Any = None,
        one_standard_error: bool = False,
        max_time: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        fit_intercept: bool = True,
        tensor_shape: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        keep_moments: bool = False,
        verbose: int = 0,
    ) -> None:
        self.views = views
        self.align = align
        self.time_axis = time_axis
        self.loss = loss
        self.penalty = penalty
        self.alphas = alphas
        self.eps = eps
        self.cv = cv
        self.scoring = scoring
        self.one_standard_error = one_standard_error
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.fit_intercept = fit_intercept
        self.tensor_shape = tensor_shape
        self.tol = tol
        self.max_iter = max_iter
        self.keep_moments = keep_moments
        self.verbose = verbose

    _spec: Spec
    resampler_: ResampleTime | None
    sample_shape_: tuple[int, ...]
    views_: dict[str, Any]
    coef_by_view_: dict[str, Array]
    patterns_by_view_: dict[str, Array]
    intercept_: Any
    class_map_: Array | None
    alignment_: Any

    def _loss(self) -> Loss:
        """Find the loss that the search begins with."""
        is_classifier = isinstance(self, ClassifierMixin)
        loss = "squared_error" if isinstance(self.loss, str) and self.loss == "auto" else self.loss
        return loss_named(loss, for_classes=is_classifier)

    def _reader(self) -> Reader:
        """Say how samples and targets are read."""
        if isinstance(self, ClassifierMixin):
            return Reader(type(self).__name__, Labels(self._loss(), self.class_weight), self.tensor_shape)
        return Reader(type(self).__name__, Numbers(self._loss()), self.tensor_shape)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # gaps of samples in memory are filled
        return tags

    # --- learning ----------------------------------------------------------------------------------------------------

    @learning
    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        confounds: Any = None,
        **params: Any,
    ) -> Self:
        """Choose by cross-validation, then fit to all samples.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
            Or a file, a Dask array or a list of batches. Of samples that do not fit in memory as many as fit, drawn at random,
            choose; then all are read block by block for the last fit.

            Samples in memory may have gaps, which are NaN, and be of unequal length: a list of arrays that differ in the size of
            one mode, time, or an array that is padded with NaN. Covariances and convolutions see each at its own length; other
            views see it complete, as ``ResampleTime`` makes it.
        y : array of shape (n_samples,) of labels or numbers, or of numbers of shape (n_samples, K)
        sample_weight : array of shape (n_samples,), default=None
        groups : array of shape (n_samples,), default=None
            The person, device or day that each sample is of; of a file, a table or epochs also the name of a column. Folds hold
            groups out whole, and it is tried whether samples are better aligned by group, see ``align``.
        confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
            Numbers that are regressed out of each view of the samples, separately in each training fold. The regression of a
            fold is applied to its held-out samples, that of all samples to those that are predicted.
        **params : metadata that a splitter requests under other names, with scikit-learn's metadata routing
        """
        if self.keep_moments and not self._loss().has_moments:
            raise ValueError(
                f"Expected keep_moments=False with loss={self.loss!r}, got True: only the squared loss has moments, so use "
                "loss='squared_error'."
            )
        X, y, sample_weight, groups = with_groups(X, y, sample_weight, groups)
        split_params = params_for_splitter(self, params)
        say = reporter(type(self).__name__, self.verbose)
        # A thread of BLAS that waits for another is busy: where cores are taken, small products take a hundred times as long as
        # on one thread. Views and folds are tried side by side instead.
        n_allowed = n_blas_threads()
        with one_thread():
            listener = Listener(self.max_time, (lambda message: say(message, 1)) if self.verbose else None, self)
            series = padded(X, n_targets=np.shape(y)[0] if np.ndim(y) else None)
            source = as_source(series.values, y, sample_weight, confounds)
            resampler_of = partial(self._resampler, padded_along=series.time)
            data = read_for_search(source, self._reader(), self.random_state, resampler_of=resampler_of)
            task = self._task(data, groups, split_params, n_allowed)
            with listener.interruptible():
                choice = choose(task, listener)
            views, samples = show_all_samples(choice, task, data, X, sample_weight)
            if choice.is_logistic and data.spec.n_targets > 1:
                samples = coded_for_softmax(samples)
            moments = moments_to_keep(samples) if self.keep_moments else None
            settings = self._settings(
                choice.alpha, choice.ridge, is_logistic=choice.is_logistic, penalty=choice.tried.split_blend.penalty
            )
            report = reporter(type(self).__name__, self.verbose - 1)
            fitted = fit_linear(samples, spec_of_views(data.spec, samples.shape), settings, report=report)
            names = choice.blend.names
            shapes = [choice.tried.split_blend.views[name].shape for name in names]
            attributes = about_samples(data.spec) | about_model(names, views, fitted, data.spec, shapes)
            attributes |= about_choice(choice, task, settings)
            attributes["resampler_"] = data.resampler
            if moments is not None:
                attributes["moments_"] = moments
            self._publish(attributes, anew=True)
            warn_of_choice(self, choice, fitted, task)
            listener(Event("fit", 1.0, "fitted to all samples"))
            listener.end()
        return self

    def _task(self, data: SearchData, groups: Any, split_params: dict[str, Any], n_allowed: int) -> Task:
        """State what is searched: samples, targets, folds, candidates and the rules of the choice."""
        groups = read_groups(groups, len(data.labels))
        repeats = 1
        if self.scoring is None and isinstance(self.cv, Integral) and isinstance(self.views, str):
            repeats = int(np.clip(round(_HELD_OUT / len(data.index)), 1, _MOST_REPEATS))
        folds = data.folds(self.cv, groups, self.random_state, repeats=repeats, split_params=split_params)
        warn_of_copies_and_outliers(data, folds.first_repeat(), data.order)
        alignments, why_not = self._alignments(data, groups, folds)
        loss_is_open = isinstance(self.loss, str) and self.loss == "auto" and data.confounds is None
        rules = Rules(
            alphas=self.alphas,
            eps=self.eps,
            penalty=self.penalty,
            max_iter=self.max_iter,
            one_standard_error=self.one_standard_error,
            asks_losses=loss_is_open and not (self.keep_moments or self.one_standard_error),
            n_threads=n_allowed if self.n_jobs is None else max(1, self.n_jobs),
            random_state=self.random_state,
        )
        return Task(
            samples=data.searched,
            targets=data.targets(self._loss(), self.scoring, fit_intercept=self.fit_intercept),
            folds=folds,
            candidates=self._candidates(data),
            rules=rules,
            order=data.order,
            groups=None if groups is None else groups[data.index],
            alignments=alignments,
            why_not_aligned=why_not,
            classes=data.spec.classes,
        )

    def _resampler(self, spec: Spec, padded_along: int | None) -> ResampleTime:
        """Make what completes samples with gaps or of unequal length.

        Flat samples have as many times as columns say, so that n_features_in_ is their number.
        """
        time = find_time(spec, self.time_axis, padded_along)
        is_fixed = time is None or spec.is_flat
        return ResampleTime(time, n_times=spec.sample_shape[time] if is_fixed and time is not None else "median")

    def _candidates(self, data: SearchData) -> tuple[Any, ...]:
        """List the views to try."""
        rows = data.searched.rows
        if is_sparse(rows):
            candidates, _ = read_views(None, data.spec.sample_shape, rows.shape[0])
            return tuple(candidates)
        positive = bool(array_namespace(rows).all(rows > 0))
        given = data.searched.as_given
        time_axis = self.time_axis
        is_unequal = False
        if data.resampler is not None and data.resampler.has_seen_several_lengths:
            is_unequal = True
            time_axis = None if time_axis is None else data.resampler.time_axis_
        smooth_mode, reason_of_smooth = find_smooth_mode(data.searched.tensors, data.searched.weight, data.spec.modes)
        candidates, reason = read_views(
            self.views,
            data.spec.sample_shape if given is None else tuple(given.shape[1:]),
            rows.shape[0],
            positive=positive,
            time_axis=time_axis,
            smooth_mode=smooth_mode,
            modes=data.spec.modes,
            are_unequal=is_unequal,
            are_numbers=not data.are_classes,
        )
        say = reporter(type(self).__name__, self.verbose)
        say(f"views: {', '.join(candidate.name for candidate in candidates)} ({reason}; {reason_of_smooth})", 1)
        return tuple(candidates)

    def _alignments(self, data: SearchData, groups: Array | None, folds: Folds) -> tuple[tuple[Candidate, ...], str]:
        """List what the samples of each group may be aligned by; say why not, if there are groups and nothing is tried."""
        alignments, n_channels = read_alignments(
            self.align,
            data.spec.sample_shape,
            data.searched.rows.shape[0],
            time_axis=self.time_axis,
            modes=data.spec.modes,
        )
        if groups is None or not alignments:
            return (), ""
        if not data.is_all:
            why_not = "samples do not fit in memory"
        elif is_sparse(data.searched.rows) or not self._loss().has_moments:
            why_not = "samples are sparse, or the loss is not the squared one"
        elif data.searched.as_given is not None:
            why_not = "samples have gaps, or are of unequal length"
        else:
            why_not = why_not_aligned(groups[data.index], folds, n_channels)
        if why_not:
            reporter(type(self).__name__, self.verbose)(f"samples are not aligned by group: {why_not}", 1)
        return ((), why_not) if why_not else (alignments, "")

    def _settings(self, alpha: float, ridge: float, *, is_logistic: bool, penalty: Any) -> Settings:
        """Say what is solved for the weights of the chosen views."""
        return Settings(
            loss=loss_named("log_loss", for_classes=True) if is_logistic else self._loss(),
            alpha=alpha,
            ridge=ridge,
            penalty=penalty,
            fit_intercept=self.fit_intercept,
            tol=self.tol,
            max_iter=self.max_iter,
        )

    @available_if(_can_learn_more)
    @learning
    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None, groups: Any = None
    ) -> Self:
        """Learn from more samples with everything that was chosen fixed (with ``keep_moments``).

        Views, strengths and calibration stay as they are. Scores and intervals are those of the search; ``stale_`` names them.
        Where samples are aligned by group, each group is aligned by its samples that are given here.
        """
        check_is_fitted(self, "moments_")
        spec = self._spec
        X, y, sample_weight, groups = with_groups(X, y, sample_weight, groups, spec.modes)
        if self.alignment_ is not None:
            X, y, sample_weight = with_targets(X, y, sample_weight, spec.modes)
            X = self._aligned(X, groups, "partial_fit")
        self._check_confounds(confounds)
        series = padded(X, spec.sample_shape, len(y) if np.ndim(y) else None)
        source = as_source(series.values, y, sample_weight, confounds, modes_of_fit=spec.modes)
        views = ShownByViews(tuple(self.views_.values()), tuple(self.view_factors_.values()), spec.sample_shape)
        shapes = self._view_shapes()
        shape, penalty = joined_shape_and_penalty(views.transformers, shapes, self.penalty)
        takes_gaps = source.in_memory and self.resampler_ is not None
        if takes_gaps and is_incomplete(source.first_samples(), spec.sample_shape):
            shown = Source.of_arrays(self.joined_views(X), *source.all_targets())
            shown = replace(shown, confounds=source.confounds)
            reader = replace(self._reader(), tensor_shape=None).after(spec_of_views(spec, shape))
            _, samples = read(shown, reader)
            moments = samples.checked().moments(self.moments_)
        else:
            _, samples = read(source, self._reader().after(spec))
            moments = samples.checked().mapped_rows(views, shape).moments(self.moments_)
        settings = self._settings(self.alpha_, self.ridge_, is_logistic=False, penalty=penalty)
        fitted = fit_linear(moments, spec_of_views(spec, shape), settings)
        self._publish(about_model(tuple(self.views_), views, fitted, spec, shapes))
        stale = (
            "best_score_",
            "best_score_se_",
            "raw_score_",
            "cv_results_",
            "views_tried_",
            "score_path_",
            "intervals",
        )
        self._publish({"moments_": moments, "stale_": stale})
        return self

    def _publish(self, attributes: dict[str, Any], *, anew: bool = False) -> None:
        """Write fitted attributes, the only place that does; with ``anew`` those of an earlier fit are deleted first."""
        if anew:
            for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
                delattr(self, name)
        for name, value in attributes.items():
            setattr(self, name, value)

    # --- in a notebook -----------------------------------------------------------------------------------------------

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._answer_in_html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] += self._answer_in_html()
        return bundle

    def _answer_in_html(self) -> str:
        """Write what was found in one line below scikit-learn's tables, which cut the names of views."""
        if not hasattr(self, "views_"):
            return ""
        return (
            f"<p>{escape(' + '.join(self.views_))}: alpha {self.alpha_:.3g}, ridge {self.ridge_:.3g}, held-out score "
            f"{self.best_score_:.3f} ± {self.best_score_se_:.3f}, duality gap {self.dual_gap_:.1g}</p>"
        )

    # --- the model ---------------------------------------------------------------------------------------------------

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
        # Each view knows the covariances of all entries with scores, and none of these views subtracts a mean.
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

    def _view_shapes(self) -> list[tuple[int, ...]]:
        """Find the shapes of samples as the views of the model show them."""
        n_axes = 0 if self._spec.is_single else 1
        return [tuple(W.shape[n_axes:]) for W in self.coef_by_view_.values()]

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
        views = ShownByViews(
            tuple(self.views_.values()), tuple(self.view_factors_.values()), self.sample_shape_, self.resampler_
        )
        shape, _ = joined_shape_and_penalty(views.transformers, self._view_shapes(), self.penalty)
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
        _, penalty = joined_shape_and_penalty(tuple(self.views_.values()), self._view_shapes(), self.penalty)
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
        """Let the views of the model begin with the alignment of a group, which is learned from samples of it."""
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
        """Find the mode along which samples may be of any length: only if those of fit were, or if these come as a list."""
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


class TensorRegressor(MultiOutputMixin, RegressorMixin, TensorSearch):
    """Predict numbers by the best linear model of anything that can be seen in a tensor.

    Many views of the samples are tried: as they are, whitened, covariances of channels over time, convolutions, similarities to
    training samples. Views that improve held-out predictions enter one convex problem, each with its own norm, whose strength
    and kind, ridge regression or the trace norm, are chosen by cross-validation. The answer is certified by a duality gap.

    Parameters
    ----------
    views : "auto", transformer, or list of transformers or of (name, transformer) pairs, default="auto"
        What is tried. "auto" is all that suits the samples; None and "passthrough" are the samples as they are. Transformers of
        this package see tensors, all others flat samples; those that learn from targets are fitted inside each fold. Names are
        those of pairs, else of ``sklearn.pipeline.make_union``.
    align : "auto", None, transformer, or list of transformers or of (name, transformer) pairs, default="auto"
        What the samples of each group, a person or a device, may be aligned by before all views, where ``fit`` is given
        ``groups``: each group by its own samples without their targets, see ``PerGroup``. It is taken only where groups that
        are held out whole confirm it, and ``predict`` then needs groups, too, or a model that is ``adapted`` to a new one.
        "auto" whitens channels, or standardizes them. None: nothing is tried.
    time_axis : int, name of a mode, "auto" or None, default="auto"
        The mode of a sample that is time, for the views of "auto"; "auto" takes the mode that is called time, or one that is
        long enough and has few enough channels. None: there is none.
    loss : {"squared_error", "huber", "poisson"} or object, default="squared_error"
        Other losses than the squared one see the samples as they are, unless one view is named. "huber" is linear for residuals
        beyond 1.35, in units of y; "poisson" is for counts, with a log link. An object is any other ``tracelearn.losses.Loss``.
    penalty : {"overlapped", "latent", "scaled_latent"} or object, default="overlapped"
        "overlapped" gives low rank in every mode at once, the latent norms a sum of tensors of low rank in one mode each. An
        object is an atom of ``tracelearn.penalties`` or a sum of them.
    alphas : int or array, default=12
        Number of alphas of the trace norm, from ``alpha_max``, where all weights are zero, down to ``eps`` times it; or the
        alphas.
    eps : float, default=1e-3
        The smallest alpha of the grid, as a share of the largest.
    cv : int, splitter or iterable, default=5
        As in scikit-learn; give ``groups`` to ``fit`` for splitters that need them. With a number, searches of thousands of
        samples with thousands of entries use some samples, drawn at random; the last fit uses all.
    scoring : str or callable, default=None
        The selection criterion. None is the variance that held-out predictions explain, up to an offset.
    one_standard_error : bool, default=False
        Choose the largest strength whose score is within one standard error of the best: a simpler model of about the same
        score. If several views were tried and the held-out R² is below half of its standard error, this is always done.
    max_time : float, default=None
        Seconds after which the search ends with the best model so far, fitted to all samples and certified. The first
        Ctrl-C does the same, with a warning; a second one stops at once.
    n_jobs : int, default=None
        Number of views and folds to try at the same time, in threads. None: as many as BLAS is allowed.
    random_state : int, RandomState or None, default=0
        What shuffles folds and draws samples. The order of the rows decides nothing.
    fit_intercept : bool, default=True
        The intercept is never penalised.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).
    tol : float, default=1e-6
        Relative duality gap of the last fit.
    max_iter : int, default=1000
        Most iterations for each alpha, and of the last fit.
    keep_moments : bool, default=False
        Whether ``fit`` keeps ``moments_`` of the samples as the chosen views show them, with which ``partial_fit`` goes on.
        Squared loss only.
    verbose : int, default=0
        1 reports what is tried and chosen, 2 also the duality gap during the last fit.

    Attributes
    ----------
    views_ : dict
        The fitted transformer of each view of the model, by name; None is the sample as it is.
    resampler_ : ResampleTime or None
        What fills gaps, and brings samples of unequal length to one, for views that need complete samples of one length. None
        for samples that did not fit in memory, and for sparse ones.
    alignment_ : transformer or None
        What the samples of each group are aligned by before, not fitted; None where that did not help, and of ``adapted`` models,
        whose views begin with it. Weights and patterns are those of aligned samples.
    view_shares_ : dict of floats
        The share of each view that was tried in the best non-negative combination of their held-out scores, the largest first.
    coef_by_view_, patterns_by_view_ : dicts of arrays
        Weights and patterns of each view, for samples transformed by ``views_[name]``. A prediction is the intercept plus the
        sum over views of weights times transformed samples.
    filters_by_view_ : dict of SpatialFilters
        The weights of each second order view as spatial filters with their patterns.
    coef_, patterns_ : arrays
        The same in the modes of the samples where all views are linear in them; else of all views, flat.
    intercept_ : float, or array of shape (K,)
    confound_coef_ : array
        If ``fit`` had confounds, their weights in a prediction.
    alpha_, ridge_, loss_
        What was chosen: strengths of the trace norm and of the squared norm, for views each divided by the root of its total
        variance where there are several; and the name of the loss.
    best_score_, best_score_se_ : float
        The score of all held-out samples together, R² unless ``scoring`` says otherwise, corrected for the choice among all
        models that were tried, and its standard error.
    raw_score_ : float
        The mean score over folds without correction, as in ``cv_results_``.
    alphas_, ridges_ : arrays of shape (n_strengths,)
        The path that was chosen.
    score_path_, score_path_se_ : arrays of shape (n_strengths, n_folds) and (n_strengths,)
        Held-out scores along it, and standard errors of their means, corrected for training sets that overlap.
    cv_results_ : dict
        All paths in scikit-learn's form, with raw scores: ``pandas.DataFrame(model.cv_results_)``.
    best_index_, best_params_
        Which row of ``cv_results_`` was chosen, and its parameters.
    views_tried_ : dict of columns
        Every view and path with its held-out score and seconds, whether it was taken, and why not.
    dual_gap_, objective_, n_iter_, convergence_
        As in ``TraceNormRegressor``: the proof.
    sample_shape_, n_features_in_, modes_, n_folds_

    Examples
    --------
    >>> from tracelearn import TensorRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(200, (6, 5, 4), rank=1, random_state=0)
    >>> model = TensorRegressor().fit(X, y)
    >>> model.score(X, y) > 0.7, model.dual_gap_ <= 1e-6
    (True, True)
    """

    def predict(self, X: Any, confounds: Any = None, groups: Any = None) -> Array:
        """Predict the target of each sample, with the confounds of each where ``fit`` had some.

        A model that aligns samples by group (``alignment_`` is not None) needs the group of each: those of a group are aligned
        by all of its samples in X, so that they are predicted together. ``adapted`` makes a model that needs no groups.
        """
        return self._apply(NumbersOfScores(self._loss(), self._is_single()), "predict", X, confounds, groups)

    def _is_single(self) -> bool:
        check_is_fitted(self, "views_")
        return self._spec.is_single

    def predict_interval(
        self, X: Any, level: float = 0.9, confounds: Any = None, groups: Any = None
    ) -> tuple[Array, Array]:
        """Predict between which numbers the target of each sample is, from what folds held out (CV+).

        Parameters
        ----------
        X : samples, which are read whole
        level : float, default=0.9
            The share of targets that are to be inside.

        Returns
        -------
        lower, upper : arrays of the shape of what ``predict`` returns

        Examples
        --------
        >>> from tracelearn import TensorRegressor
        >>> from tracelearn.datasets import make_low_rank_regression
        >>> X, y, W = make_low_rank_regression(300, (6, 5), rank=1, random_state=0)
        >>> lower, upper = TensorRegressor().fit(X[:200], y[:200]).predict_interval(X[200:])
        >>> bool(0.8 < ((lower <= y[200:]) & (y[200:] <= upper)).mean() <= 1.0)
        True
        """
        check_is_fitted(self, "views_")
        if not hasattr(self, "held_out_residuals_"):
            raise ValueError(
                "Expected a search whose folds see samples in one way, all in memory, for intervals, got one with confounds, "
                "views that learn from targets, another loss, or a part of the samples: leave these out."
            )
        if "intervals" in self.stale_:
            warn(
                "Intervals are those of the samples of fit: partial_fit has learned more since, so fit again to renew them."
            )
        X, _, _, groups = with_groups(X, None, None, groups, self._spec.modes)
        X, _ = read_named(X, self._spec.modes)
        X, _, _, _ = in_memory(X, modes_of_fit=self._spec.modes)
        Z = self.joined_views(X, groups)
        bounds = interval(np.reshape(to_numpy(Z), (Z.shape[0], -1)), self.held_out_residuals_, level)
        lower, upper = (bound[:, 0] if self._is_single() else bound for bound in bounds)
        return move_to(lower, Z), move_to(upper, Z)

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None, groups: Any = None
    ) -> float:
        """Return the share of the variance of y that is explained, R², averaged over targets."""
        modes = getattr(self, "modes_", None)
        X, y, sample_weight, groups = with_groups(X, y, sample_weight, groups, modes)
        X, y, sample_weight = with_targets(X, y, sample_weight, modes)
        return score_numbers(y, self.predict(X, confounds, groups), sample_weight)


class TensorClassifier(ClassifierMixin, TensorSearch):
    """Predict classes by the best linear model of anything that can be seen in a tensor.

    Views are tried, and strengths chosen, as by ``TensorRegressor``.

    Parameters
    ----------
    views : "auto", transformer, or list of transformers or of (name, transformer) pairs, default="auto"
        What is tried. "auto" is all that suits the samples; None and "passthrough" are the samples as they are. Transformers of
        this package see tensors, all others flat samples; those that learn from targets are fitted inside each fold. Names are
        those of pairs, else of ``sklearn.pipeline.make_union``.
    align : "auto", None, transformer, or list of transformers or of (name, transformer) pairs, default="auto"
        What the samples of each group, a person or a device, may be aligned by before all views, where ``fit`` is given
        ``groups``: each group by its own samples without their targets, see ``PerGroup``. It is taken only where groups that
        are held out whole confirm it, and ``predict`` then needs groups, too, or a model that is ``adapted`` to a new one.
        "auto" whitens channels, or standardizes them. None: nothing is tried.
    time_axis : int, name of a mode, "auto" or None, default="auto"
        The mode of a sample that is time, for the views of "auto"; "auto" takes the mode that is called time, or one that is
        long enough and has few enough channels. None: there is none.
    loss : {"auto", "squared_error", "log_loss", "squared_hinge"} or object, default="auto"
        "auto" is the squared loss, and also tries logistic regression on the chosen views, and a map between the scores of all
        classes (``class_map_``). One is chosen if it lowers the held-out log-loss by more than two standard errors over the
        folds. Other losses than the squared one see the samples as they are, unless one view is named.
    penalty : {"overlapped", "latent", "scaled_latent"} or object, default="overlapped"
        "overlapped" gives low rank in every mode at once, the latent norms a sum of tensors of low rank in one mode each. An
        object is an atom of ``tracelearn.penalties`` or a sum of them.
    alphas : int or array, default=12
        Number of alphas of the trace norm, from ``alpha_max``, where all weights are zero, down to ``eps`` times it; or the
        alphas.
    eps : float, default=1e-3
        The smallest alpha of the grid, as a share of the largest.
    cv : int, splitter or iterable, default=5
        As in scikit-learn; give ``groups`` to ``fit`` for splitters that need them. With a number, searches of thousands of
        samples with thousands of entries use some samples, drawn at random; the last fit uses all.
    scoring : str or callable, default=None
        The selection criterion. None is the variance of the coded classes that held-out scores explain, after an affine
        calibration.
    one_standard_error : bool, default=False
        Choose the largest strength whose score is within one standard error of the best: a simpler model of about the same
        score.
    max_time : float, default=None
        Seconds after which the search ends with the best model so far, fitted to all samples and certified. The first
        Ctrl-C does the same, with a warning; a second one stops at once.
    n_jobs : int, default=None
        Number of views and folds to try at the same time, in threads. None: as many as BLAS is allowed.
    random_state : int, RandomState or None, default=0
        What shuffles folds and draws samples. The order of the rows decides nothing.
    class_weight : dict or "balanced", default=None
        What the samples of each class weigh besides ``sample_weight``. "balanced" gives all classes the same total weight.
    fit_intercept : bool, default=True
        The intercept is never penalised.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).
    tol : float, default=1e-6
        Relative duality gap of the last fit.
    max_iter : int, default=1000
        Most iterations for each alpha, and of the last fit.
    keep_moments : bool, default=False
        Whether ``fit`` keeps ``moments_`` of the samples as the chosen views show them, with which ``partial_fit`` goes on.
        Squared loss only.
    verbose : int, default=0
        1 reports what is tried and chosen, 2 also the duality gap during the last fit.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    views_, resampler_, alignment_, view_shares_, coef_by_view_, patterns_by_view_, filters_by_view_, coef_, patterns_, \
intercept_, alpha_, ridge_, loss_, best_score_, best_score_se_, raw_score_, alphas_, ridges_, score_path_, score_path_se_, \
cv_results_, best_index_, best_params_, views_tried_, dual_gap_, objective_, n_iter_, convergence_
        As in ``TensorRegressor``; scores are shares of samples whose class is found.
    calibration_slope_ : float
    calibration_offsets_ : array of shape (n_classes,)
        Probabilities are the softmax of ``slope * scores + offsets``. Both are found on held-out samples, and drawn to the shares
        of the classes where these are few or say little. They change no predicted class.
    class_map_ : array of shape (n_classes + 1, n_classes)
        Only if it was chosen: scores are those of the linear model times ``class_map_[:-1]``, plus ``class_map_[-1]``.

    Examples
    --------
    >>> from tracelearn import TensorClassifier
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, signal, W = make_low_rank_regression(200, (6, 5, 4), rank=1, random_state=0)
    >>> model = TensorClassifier().fit(X, signal > 0)
    >>> model.best_score_ > 0.7
    True
    """

    _parameter_constraints = {  # noqa: RUF012
        **TensorSearch._parameter_constraints,
        "class_weight": TraceNormClassifier._parameter_constraints["class_weight"],
    }

    def __init__(
        self,
        views: Any = "auto",
        *,
        align: Any = "auto",
        time_axis: Any = "auto",
        loss: Any = "auto",
        penalty: Any = "overlapped",
        alphas: Any = 12,
        eps: float = 1e-3,
        cv: Any = 5,
        scoring: Any = None,
        one_standard_error: bool = False,
        max_time: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        class_weight: Any = None,
        fit_intercept: bool = True,
        tensor_shape: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        keep_moments: bool = False,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            views,
            align=align,
            time_axis=time_axis,
            loss=loss,
            penalty=penalty,
            alphas=alphas,
            eps=eps,
            cv=cv,
            scoring=scoring,
            one_standard_error=one_standard_error,
            max_time=max_time,
            n_jobs=n_jobs,
            random_state=random_state,
            fit_intercept=fit_intercept,
            tensor_shape=tensor_shape,
            tol=tol,
            max_iter=max_iter,
            keep_moments=keep_moments,
            verbose=verbose,
        )
        self.class_weight = class_weight

    classes_: Array

    def decision_function(self, X: Any, confounds: Any = None, groups: Any = None) -> Array:
        """Score every sample: one column for each class, or for two classes one score that is positive for the second."""
        return self._apply(flat_if_two_classes, "decision_function", X, confounds, groups)

    def predict(self, X: Any, confounds: Any = None, groups: Any = None) -> Array:
        """Predict the class of each sample: the one of the largest score.

        A model that aligns samples by group (``alignment_`` is not None) needs the group of each: those of a group are aligned
        by all of its samples in X, so that they are predicted together. ``adapted`` makes a model that needs no groups.
        """
        check_is_fitted(self, "views_")
        return self._apply(LabelsOfScores(self.classes_), "predict", X, confounds, groups)

    def predict_proba(self, X: Any, confounds: Any = None, groups: Any = None) -> Array:
        """Predict the probability of each class, by scores that are calibrated on held-out samples."""
        return self._apply(Probabilities(self._calibration()), "predict_proba", X, confounds, groups)

    def predict_log_proba(self, X: Any, confounds: Any = None, groups: Any = None) -> Array:
        """Predict the logarithm of the probability of each class."""
        return self._apply(LogProbabilities(self._calibration()), "predict_log_proba", X, confounds, groups)

    def _calibration(self) -> Calibration:
        check_is_fitted(self, "views_")
        return Calibration(self.calibration_slope_, self.calibration_offsets_)

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None, groups: Any = None
    ) -> float:
        """Return the share of labels that are right; epochs of MNE bring their own, as in ``fit``."""
        modes = getattr(self, "modes_", None)
        X, y, sample_weight, groups = with_groups(X, y, sample_weight, groups, modes)
        X, y, sample_weight = with_targets(X, y, sample_weight, modes)
        return score_labels(y, self.predict(X, confounds, groups), sample_weight)
