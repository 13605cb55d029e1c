"""TensorRegressor and TensorClassifier: the best linear model of anything that can be seen in a tensor.

A fit reads samples, splits them into folds, chooses (``choice.choose``), fits what was chosen to all samples (``fit_linear``) and
publishes it. Nothing is written on the estimator before the end.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from html import escape
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse, move_to, to_numpy
from tracelearn.arrays.linalg import n_blas_threads, one_thread
from tracelearn.errors import refuse, warn
from tracelearn.estimators import TraceNormClassifier
from tracelearn.estimators.base import TensorInput
from tracelearn.estimators.scores import score_labels, score_numbers
from tracelearn.features import ResampleTime, TensorTransformer, find_smooth_mode
from tracelearn.fitting import Settings, fit_linear, loss_named, reporter
from tracelearn.samples.by_name import in_memory, with_groups, with_targets
from tracelearn.samples.learning import learning
from tracelearn.samples.lengths import padded
from tracelearn.samples.modes import read_named
from tracelearn.samples.per_sample import read_groups
from tracelearn.samples.reading import Reader, Spec, read
from tracelearn.samples.scikit_learn import CallbackSupportMixin, Interval, with_callbacks
from tracelearn.samples.source import Source, as_source
from tracelearn.samples.targets import Labels, Numbers
from tracelearn.search.advice import warn_of_choice, warn_of_copies_and_outliers
from tracelearn.search.alignment import read_alignments, why_not_aligned
from tracelearn.search.attributes import about_choice, about_model, about_samples
from tracelearn.search.calibration import Calibration
from tracelearn.search.choice import choose
from tracelearn.search.data import SearchData, find_time, is_incomplete, read_for_search
from tracelearn.search.events import Event, Listener
from tracelearn.search.folds import Folds
from tracelearn.search.intervals import interval
from tracelearn.search.last_fit import moments_to_keep, show_all_samples, spec_of_views
from tracelearn.search.predictions import flat_if_two_classes, labels, log_probabilities, numbers, probabilities
from tracelearn.search.routing import RoutesToSplitter, params_for_splitter
from tracelearn.search.task import Rules, Task
from tracelearn.search.view_model import LinearInViews
from tracelearn.search.views import Candidate, candidates_of, named_transformers, views_that_suit

__all__ = ["TensorClassifier", "TensorRegressor", "TensorSearch"]

# Folds of small sets are drawn several times, so that about this many samples are held out in all.
_HELD_OUT = 400
_MOST_REPEATS = 4


def _can_learn_more(estimator: Any) -> bool:
    """Tell whether ``partial_fit`` is possible: only where ``fit`` keeps moments."""
    if not estimator.keep_moments:
        raise AttributeError("Expected keep_moments=True for partial_fit after a search, got False: fit with it.")
    return True


class TensorSearch(RoutesToSplitter, LinearInViews, TensorInput, CallbackSupportMixin):
    """What both searches share: parameters, and fitting."""

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
        # A thread of BLAS that waits for another is busy: where cores are taken, small products take a hundred times as long as
        # on one thread. Views and folds are tried side by side instead.
        n_allowed = n_blas_threads()
        with one_thread():
            say = reporter(type(self).__name__, self.verbose)
            listener = Listener(self.max_time, (lambda message: say(message, 1)) if self.verbose else None, self)
            series = padded(X, n_targets=np.shape(y)[0] if np.ndim(y) else None)
            source = as_source(series.values, y, sample_weight, confounds)
            resampler_of = partial(self._resampler, padded_along=series.time)
            data = read_for_search(source, self._reader(), self.random_state, resampler_of=resampler_of)
            task = self._task(data, groups, split_params, n_allowed)
            with listener.interruptible():
                choice = choose(task, listener)
            views, samples = show_all_samples(choice, task, data, X, sample_weight)
            moments = moments_to_keep(samples) if self.keep_moments else None
            settings = self._settings(
                choice.alpha, choice.ridge, is_logistic=choice.is_logistic, penalty=choice.shown.penalty
            )
            report = reporter(type(self).__name__, self.verbose - 1)
            fitted = fit_linear(samples, spec_of_views(data.spec, samples.shape), settings, report=report)
            self._publish(
                {
                    **about_samples(data),
                    **about_model(choice.blend.names, views, fitted, data.spec, choice.shown.shapes, moments),
                    **about_choice(choice, task, settings),
                },
                anew=True,
            )
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
        """Make the transformer that fills gaps and brings samples of unequal length to one.

        For flat samples this is the length that their columns imply, so that ``n_features_in_`` stays the number of columns.
        """
        time = find_time(spec, self.time_axis, padded_along)
        is_fixed = time is None or spec.is_flat
        return ResampleTime(time, n_times=spec.sample_shape[time] if is_fixed and time is not None else "median")

    def _candidates(self, data: SearchData) -> tuple[Candidate, ...]:
        """List the views to try."""
        is_auto = isinstance(self.views, str) and self.views == "auto"
        if is_sparse(data.searched.rows):
            refuse(
                not (is_auto or self.views is None),
                f"Expected views='auto' or None for sparse samples, got {self.views!r}: views would make them dense, so pass "
                "dense ones.",
            )
            pairs, reason = named_transformers(None, "views"), "samples are sparse"
        elif is_auto:
            pairs, reason = self._default_views(data)
        else:
            pairs, reason = named_transformers(self.views, "views"), "as given"
        for name, transformer in pairs:
            refuse(
                not (data.is_all or transformer is None or isinstance(transformer, TensorTransformer)),
                f"Expected views of tracelearn for samples that do not fit in memory, got {name!r}, which cannot be fitted to "
                "blocks: leave it out, or pass fewer samples.",
            )
        say = reporter(type(self).__name__, self.verbose)
        say(f"views: {', '.join(name for name, _ in pairs)} ({reason})", 1)
        return candidates_of(pairs, data.searched.rows.shape[0])

    def _default_views(self, data: SearchData) -> tuple[list[tuple[str, Any]], str]:
        """List the views of "auto" that suit the samples, and say why these."""
        searched = data.searched
        shape = data.spec.sample_shape if searched.as_given is None else tuple(searched.as_given.shape[1:])
        resampler = data.resampler
        time_axis = self.time_axis
        are_unequal = False
        if resampler is not None and resampler.has_seen_several_lengths:
            are_unequal = True
            time_axis = None if time_axis is None else resampler.time_axis_
        smooth_mode, reason_of_smooth = find_smooth_mode(searched.tensors, searched.weight, data.spec.modes)
        pairs, reason_of_time = views_that_suit(
            shape,
            searched.rows.shape[0],
            positive=bool(array_namespace(searched.rows).all(searched.rows > 0)),
            time_axis=time_axis,
            smooth_mode=smooth_mode,
            modes=data.spec.modes,
            are_unequal=are_unequal,
            are_numbers=not data.are_classes,
            n_targets=data.codes.shape[1],
        )
        return pairs, f"{reason_of_time}; {reason_of_smooth}"

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
        """State the last fit: the problem and the solver for the weights of the chosen views."""
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
        views, shape, penalty = self._views_in_one()
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
        attributes = about_model(tuple(self.views_), views, fitted, spec, self._view_shapes(), moments)
        stale = (
            "best_score_",
            "best_score_se_",
            "raw_score_",
            "cv_results_",
            "views_tried_",
            "score_path_",
            "intervals",
        )
        self._publish(attributes | {"stale_": stale})
        return self

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
        check_is_fitted(self, "views_")
        return self._apply(partial(numbers, self._loss(), self._spec.is_single), "predict", X, confounds, groups)

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
        lower, upper = (bound[:, 0] if self._spec.is_single else bound for bound in bounds)
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
        of the classes where these are few or say little. ``predict`` takes the class of the largest score,
        which need not be that of the largest probability.
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
        return self._apply(partial(labels, self.classes_), "predict", X, confounds, groups)

    def predict_proba(self, X: Any, confounds: Any = None, groups: Any = None) -> Array:
        """Predict the probability of each class, by scores that are calibrated on held-out samples."""
        return self._apply(partial(probabilities, self._calibration()), "predict_proba", X, confounds, groups)

    def predict_log_proba(self, X: Any, confounds: Any = None, groups: Any = None) -> Array:
        """Predict the logarithm of the probability of each class."""
        return self._apply(partial(log_probabilities, self._calibration()), "predict_log_proba", X, confounds, groups)

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
