"""TensorRegressor and TensorClassifier: alpha, and how samples are shown, chosen by cross-validation.

With the squared loss all folds, classes and candidates are one batch of problems. The samples are read once for each view of
them: moments of each fold, training moments as the sum of the others.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import replace
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from tracelearn.arrays.array_api import Array, array_namespace, is_non_numpy, move_to, to_numpy, widest
from tracelearn.errors import warn
from tracelearn.estimators import TraceNormClassifier, TraceNormRegressor
from tracelearn.estimators.base import TraceNormModel
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.losses import Loss, Multinomial
from tracelearn.problems.forms import choose_form
from tracelearn.samples.checks import learning
from tracelearn.samples.samples import Samples, as_raw
from tracelearn.samples.scikit_learn import (
    CallbackSupportMixin,
    Interval,
    StrOptions,
    raise_for_params,
    with_callbacks,
)
from tracelearn.search.folds import Design, Folds, folds_of
from tracelearn.search.found import OF_SAMPLES, SHOWN, FoundModel
from tracelearn.search.search import Judge, Table, class_scores, cv_results, factors, rising_end
from tracelearn.search.session import Progress, Session, Shown, View, choose

__all__ = ["TensorClassifier", "TensorRegressor"]


# Small sets are split several times: so many samples are held out in all, each at most so often.
_HELD_OUT, _MOST_REPEATS = 400, 4

# Parameters that are those of the model that is fitted last.
_OF_MODEL = "loss penalty scaling fit_intercept tensor_shape tol max_iter keep_moments verbose".split()


class SelectionCV(FoundModel, CallbackSupportMixin):
    """What both CV estimators share: parameters, the search, and the last fit."""

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's convention
        **{name: TraceNormModel._parameter_constraints[name] for name in _OF_MODEL},
        "alphas": ["array-like", Interval(Integral, 1, None, closed="left")],
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "views": ["array-like", str, None],
        "time_axis": [Integral, str, None],
        "ridges": ["array-like", StrOptions({"auto"})],
        "mode_weights": ["array-like", StrOptions({"auto"}), None],
        "target_mode": ["boolean", StrOptions({"auto"})],
        "cv": ["cv_object"],
        "scoring": [callable, str, None],
        "one_standard_error": ["boolean"],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
        "n_jobs": [Integral, None],
    }

    _estimator: type[TraceNormModel]
    _classifier: bool

    def _new_model(self, **chosen: Any) -> Any:
        shared = dict(zip(_OF_MODEL, attrgetter(*_OF_MODEL)(self), strict=True))
        if self._classifier:
            shared["class_weight"] = self.class_weight
            shared["loss"] = "squared_error" if isinstance(self.loss, str) and self.loss == "auto" else self.loss
        return self._estimator(**(shared | chosen))

    def __init__(
        self,
        alphas: Any = 12,
        *,
        eps: float = 1e-3,
        views: Any = "auto",
        time_axis: Any = "auto",
        ridges: Any = "auto",
        loss: Any = "squared_error",
        penalty: Any = "overlapped",
        scaling: Any = None,
        mode_weights: Any = None,
        target_mode: Any = False,
        cv: Any = 5,
        scoring: Any = None,
        one_standard_error: bool = False,
        max_time: float | None = None,
        n_jobs: int | None = None,
        fit_intercept: bool = True,
        tensor_shape: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        keep_moments: bool = False,
        verbose: int = 0,
    ) -> None:
        self.alphas = alphas
        self.eps = eps
        self.views = views
        self.time_axis = time_axis
        self.ridges = ridges
        self.loss = loss
        self.penalty = penalty
        self.scaling = scaling
        self.mode_weights = mode_weights
        self.target_mode = target_mode
        self.cv = cv
        self.scoring = scoring
        self.one_standard_error = one_standard_error
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.fit_intercept = fit_intercept
        self.tensor_shape = tensor_shape
        self.tol = tol
        self.max_iter = max_iter
        self.keep_moments = keep_moments
        self.verbose = verbose

    def _loss(self) -> Loss:
        found: Loss = self._new_model()._loss()
        return found

    # --- the search --------------------------------------------------------------------------------------------------

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
        y : array of shape (n_samples,) of labels or numbers, or of numbers of shape (n_samples, K)
        sample_weight, groups : arrays of shape (n_samples,), default=None
        confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
            Numbers that are regressed out of each view of the samples, separately in each training fold. The regression of a
            fold is applied to its held-out samples, that of all samples to those that are predicted.
        **params : metadata that a splitter requests under other names, with scikit-learn's metadata routing
        """
        metadata = self._for_splitter(groups, params) if params or groups is not None else {}
        until = math.inf if self.max_time is None else time.monotonic() + float(self.max_time)
        model = self._new_model()
        model._validate_params()
        loss = model._loss()
        raw = as_raw(X, y, sample_weight, confounds)
        if not raw.repeatable:
            raise ValueError(
                "Expected samples that can be read more than once to choose by cross-validation, got an iterator: pass arrays, "
                "files or a list of batches."
            )
        raw = raw if raw.in_memory else model._gathered(raw, loss)
        samples = model._read(raw)
        loss = model._loss(samples.n_targets)
        labels, weight = raw.all_targets()
        labels = to_numpy(labels).ravel() if self._classifier else to_numpy(labels)
        weight = None if weight is None else np.asarray(to_numpy(weight), dtype=float)
        if self.scoring is not None and not samples.in_memory:
            raise ValueError(
                f"Expected scoring=None where samples are read in blocks, got {self.scoring!r}: the loss selects there."
            )
        repeats = 1
        auto = isinstance(self.views, str) and self.views == "auto" and isinstance(self.cv, Integral)
        if self.scoring is None and auto and samples.in_memory:
            repeats = int(np.clip(round(_HELD_OUT / len(labels)), 1, _MOST_REPEATS))
        folds = folds_of(self.cv, labels, weight, metadata, classifier=self._classifier, repeats=repeats)
        model._report(choose_form(samples, loss).reason)
        progress = Progress(until, model._report if self.verbose else None, self)
        judge = Judge(self.scoring, model, loss, labels, weight)
        once = folds if repeats == 1 else Folds(folds.splits[: folds.count // repeats], folds.n)
        whole = Shown(self, samples, once, folds, judge)
        session = Session(self, model, whole, whole.drawn(), progress)
        with progress.ended_by_interrupt():
            best = choose(session)
        self._finish(session, best)
        progress.reach(1.0, "fitted")
        return self

    # --- what was found ----------------------------------------------------------------------------------------------

    def _finish(self, session: Session, best: Table) -> None:
        """Fit what was chosen to all samples, and show what was learned."""
        at, shown, whole = best.best, session.shown, session.whole
        # Some samples chose for all of them: optimal strengths fall at least as the root of their number.
        ratio = math.sqrt(shown.folds.n / whole.folds.n)
        for table in session.tables if shown is not whole else []:
            table.alphas, table.ridges = ratio * table.alphas, ratio * table.ridges
        # Of several views one predicts numbers a little by chance: what folds do not confirm is shrunk.
        numbers = session.view_shares is not None and not self._classifier and self.scoring is None
        is_chance = numbers and best.means[at] < 0.5 * best.errors[at]
        if self.one_standard_error or is_chance:
            at = max(best.first, int(np.argmax(best.means >= best.means[at] - best.errors[at])))
        view = whole.view(best.candidate.view)
        model = self._last_fit(session, best, at, view)
        self._warn_of_choice(best, at, model)
        self.features_, self.best_estimator_, self.view_ = view.features, model, best.candidate.view
        self.sample_shape_, self._flat = whole.samples.shape, session.model._flat
        self._show(session, best, at)

    def _last_fit(self, session: Session, best: Table, at: int, view: View) -> Any:
        """Fit the model that was chosen to all samples, as the view shows them."""
        chosen, samples, read = best.candidate, session.whole.samples, session.model
        options: dict[str, Any] = {"alpha": float(best.alphas[at]), "ridge": float(best.ridges[at])}
        options |= {"mode_weights": chosen.mode_weights, "target_mode": chosen.target_mode}
        if view.penalty is not None:
            options["penalty"] = view.penalty
        if chosen.logistic:
            options["loss"] = "log_loss"
        model = self._new_model(**options)
        for attribute in ("classes_", "_single", "_dtype", "_flat", "n_features_in_", "feature_names_in_", "modes_"):
            if hasattr(read, attribute):
                setattr(model, attribute, getattr(read, attribute))
        if view.features is not None:
            model.tensor_shape, model.scaling = None, None
            model._flat, model.n_features_in_ = False, math.prod(view.samples.shape)
            for name in ("feature_names_in_", "modes_"):  # the names of samples are not those of their views
                model.__dict__.pop(name, None)
            samples = view.samples
        model.sample_shape_ = view.samples.shape
        # What the search knows of all samples is not found again, where it looked at all of them as they are.
        design = best.design
        usable = session.shown is session.whole and not self.scaling and not chosen.logistic and design.is_square
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ZeroWeightsWarning)  # a search says it in its own words
            if usable and design.span is None and view.features is None:
                model._fit_moments(design.moments.whole, warm=False, keep=self.keep_moments)
            else:
                known = _exact(design, model.ridge) if usable and design.span is not None else None
                own = _for_softmax(samples) if chosen.logistic else samples
                model._learn_from(own, model._loss(own.n_targets), known)
        return model

    def _show(self, session: Session, best: Table, at: int) -> None:
        """Show what was found as attributes: results in scikit-learn's form, what samples are like, what the model learned."""
        model, chosen = self.best_estimator_, best.candidate
        for name in ("view_shares_", "calibration_", "class_map_", *SHOWN):
            self.__dict__.pop(name, None)
            source = session.model if name in OF_SAMPLES else model
            if name in SHOWN and hasattr(source, name):
                setattr(self, name, getattr(source, name))
        if session.view_shares is not None:
            self.view_shares_ = session.view_shares
        self.alpha_, self.alphas_ = float(best.alphas[at]), best.alphas
        self.ridge_, self.ridges_ = float(best.ridges[at]), best.ridges
        self.mode_weights_, self.target_mode_ = chosen.mode_weights, chosen.target_mode
        self.score_path_, self.score_path_se_ = best.scores, best.errors
        self.best_score_, self.best_score_se_ = float(best.means[at]), float(best.errors[at])
        self.cv_results_, self.best_index_ = cv_results(session.tables, best, at, session.model.loss)
        if session.class_map is not None:
            self.class_map_ = model._class_map = move_to(session.class_map, model.coef_, model.coef_.dtype)
        if self._classifier and not model._loss().has_probabilities:  # what makes probabilities of scores
            known = best.design.held if best.few is None else best.few
            held = class_scores(best.parts[at], known, best.design.weights)
            self.calibration_ = 1.0 if session.class_map is not None else float(factors(held)[0])
        for name in ("alphas_", "ridges_", "score_path_", "score_path_se_") if is_non_numpy(model.coef_) else ():
            setattr(self, name, move_to(getattr(self, name), model.coef_, widest(model.coef_)["dtype"]))

    def _warn_of_choice(self, best: Table, at: int, model: Any) -> None:
        """Warn where scores say little, where no weights are best, or where what selects still rises to an end of the path."""
        lost = np.flatnonzero(np.any(np.isnan(best.scores), axis=0)).tolist()
        if lost and len(lost) == best.scores.shape[1]:
            raise ValueError(f"Expected a score that is a number on some fold, got NaN on all, with {self.scoring!r}.")
        if lost:
            warn(
                f"Expected a score on every fold, got NaN on folds {lost}, which are left out: they may lack a class, so "
                "stratify the folds or use fewer.",
                UndefinedMetricWarning,
            )
        if not self._classifier and self.scoring is None and not np.any(best.scores):
            warn(
                "Expected folds whose targets vary, got an R² of zero on all: best_score_ and score_path_ say nothing, as with "
                "one sample in each fold, though alpha was chosen by all held-out predictions together, so use larger folds.",
                UndefinedMetricWarning,
            )
        if not bool(array_namespace(model.coef_).any(model.coef_ != 0)):
            warn(
                "Expected some weights that are not zero, got none: on held-out folds no alpha that was tried predicts better "
                "than no weights at all, so the samples may say nothing about the targets, or be too few.",
                ZeroWeightsWarning,
            )
            return
        end, alpha = rising_end(best.selecting, at), best.alphas[at]
        if end and alpha > 0:
            todo = "larger ones" if end == "largest" else "smaller ones, by eps or alphas"
            warn(
                f"Expected the best alpha among others, got the {end} that was tried, {alpha:.3g}, and the score still rises "
                f"towards it: try {todo}."
            )

    # --- what scikit-learn asks ----------------------------------------------------------------------------------------

    def _for_splitter(self, groups: Any, params: dict[str, Any]) -> dict[str, Any]:
        """Gather what the splitter is given: groups, and with metadata routing what it asks for under other names."""
        raise_for_params(params, self, "fit")
        found = dict(process_routing(self, "fit", **params).splitter.split) if params else {}
        if groups is not None:
            found["groups"] = groups
        for name, value in found.items():
            found[name] = to_numpy(value) if is_non_numpy(value) else value
        return found

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn who takes what: ``fit`` the weights of samples if asked to, the splitter its groups.

        A splitter such as ``GroupKFold`` gets ``groups`` without further request, as in scikit-learn's own estimators with
        cross-validation; ``set_fit_request(groups=True)`` is for splitters that do not say what they need.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        requests = router._self_request.fit.requests
        if requests["groups"] is None:
            requests["groups"] = False  # nobody was asked: the splitter decides
        if hasattr(self.cv, "split"):
            router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        return router


def _exact(design: Design, ridge: float) -> Any:
    """Take the data fit of all samples from a search, where their coordinates leave nothing out: to be certified."""
    if design.samples.n_confounds or not design.span.is_exact:
        return None
    whole = design.fits[1]
    return replace(whole, ridge=0.0 * whole.ridge + ridge)


def _for_softmax(samples: Samples) -> Samples:
    """Code several classes as zeros and ones, from -1 and 1."""
    if samples.n_targets == 1:
        return samples
    return samples.mapped_blocks(lambda block: replace(block, Y=0.5 * (block.Y + 1.0)))


class TensorRegressor(MultiOutputMixin, RegressorMixin, SelectionCV):
    """``TraceNormRegressor`` whose alpha, mode weights and views are chosen by cross-validation.

    Parameters
    ----------
    alphas : int or array, default=12
        Number of alphas on a grid from ``alpha_max``, where all weights are zero, down to ``eps`` times it; or the alphas.
    eps : float, default=1e-3
    views : "auto", name, list of names or None, default="auto"
        Transforms of the samples: "raw" (none), "log" (if all entries are positive), "whitened" (every mode, by half),
        "whitened_fully" (every mode), "whitened_channels" (every mode but time), "second_order" (covariances of channels
        over time), "second_order_difference", "second_order_lags" and "second_order_slow_lags" (the same with differences or
        delayed copies of the signals), "second_order_two_windows" and "second_order_three_windows" (in each window),
        "convolutions" (how much of the time signals follow short waveforms), "few_convolutions" (at fewer speeds, where
        samples are many), "convolutions_of_mean" and "few_convolutions_of_mean" (how much the mean of all channels does),
        "similarities", "similarities_standardized" and "similarities_second_order" (to training samples, of which up to 500
        become part of the model).
        "auto" tries all that suit the samples; a list tries those in it. Views that improve predictions enter one convex
        problem, each with its own norm. "raw+whitened" sets such a problem by hand, "raw+whitened 1:0.5" also its strengths.
        None is "raw".
    time_axis : int, name of a mode, "auto" or None, default="auto"
        The mode of a sample that is time, for second order; "auto" takes the mode that is called time, or one that is long enough
        and has few enough channels. None: there is none.
    ridges : "auto" or sequence of floats, default="auto"
        "auto" compares the trace norm with ridge regression alone; else strengths of the squared norm to add to it.
    loss, penalty, scaling, fit_intercept, tensor_shape, tol, max_iter, keep_moments, verbose
        As in ``TraceNormRegressor``.
    mode_weights : "auto", None, one sequence of weights, or a list of such candidates, default=None
        "auto" tries equal weights and each mode alone (order 3 and above, overlapped norm). None is equal weights.
    target_mode : bool or "auto", default=False
        Whether targets are one more mode; "auto" tries both.
    cv : int, splitter or iterable, default=5
        As in scikit-learn; give ``groups`` to ``fit`` for splitters that need them. With a number, searches of thousands of
        samples with thousands of entries use some samples, drawn at random; the last fit uses all.
    scoring : str or callable, default=None
        The selection criterion. None is the variance that held-out predictions explain, up to an offset.
    one_standard_error : bool, default=False
        Choose the largest alpha whose score is within one standard error of the best: a simpler model of about the same
        score. If several views were tried and the held-out R² is below half of its standard error, this is always done.
    max_time : float, default=None
        Seconds after which the search ends with the best model so far, fitted to all samples and certified. The first
        Ctrl-C does the same, with a warning; a second one stops at once.
    n_jobs : int, default=None
        Number of candidates to try at the same time, in threads.

    Attributes
    ----------
    alpha_, view_, ridge_, mode_weights_, target_mode_
        The chosen parameters.
    alphas_, ridges_ : arrays of shape (n_alphas,)
        The grid of the chosen candidate; for ridge regression alone the alphas are zero.
    score_path_ : array of shape (n_alphas, n_folds)
        Held-out R², or score, of the chosen candidate. Models of folds are solved only as accurately as the choice needs.
    score_path_se_ : array of shape (n_alphas,)
        The standard error of the mean over folds, corrected for training sets that overlap (Nadeau and Bengio, 2003).
    best_score_, best_score_se_ : float
        Mean score over folds at ``alpha_``, and its standard error.
    cv_results_ : dict
        All candidates and alphas in scikit-learn's form: ``pandas.DataFrame(model.cv_results_)``.
    best_index_, best_params_
        Which row of ``cv_results_`` was chosen, and its parameters.
    view_shares_ : dict of floats
        If several views were tried: the share of each in the best non-negative combination of their held-out scores. Shares
        sum to one, the largest first; a view that adds nothing to the others has a share of zero.
    views_ : dict
        The fitted transformer of each view of the model, by name; None if the samples are not transformed.
    coef_by_view_, patterns_by_view_ : dicts of arrays
        Weights and patterns of each view, for samples transformed by ``views_[name]``. A prediction is the intercept plus the
        sum over views of weights times transformed samples.
    filters_by_view_ : dict of SpatialFilters
        The weights of each second order view as spatial filters with their patterns; ``views_[name].channel_names()`` names
        the entries of both.
    features_ : transformer or None
        The transformer that computes the chosen views; ``Views`` if there are several.
    best_estimator_ : TraceNormRegressor
        The model fitted to all samples, transformed by ``features_``. Its fitted attributes are attributes here too: ``coef_``,
        ``intercept_``, ``patterns_``, ``mode_factors_``, ``mode_ranks_``, ``dual_gap_``, ``objective_`` and ``n_iter_``.

    Examples
    --------
    >>> from tracelearn import TensorRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(200, (6, 5, 4), rank=1, random_state=0)
    >>> model = TensorRegressor().fit(X, y)
    >>> model.score(X, y) > 0.7, model.score_path_.shape[1] >= 5  # one column for each fold
    (True, True)
    """

    _estimator = TraceNormRegressor
    _classifier = False

    score = SelectionCV.score


class TensorClassifier(ClassifierMixin, SelectionCV):
    """``TraceNormClassifier`` whose alpha, mode weights and views are chosen by cross-validation.

    Parameters
    ----------
    alphas, eps, views, time_axis, ridges, mode_weights, target_mode, cv, one_standard_error, max_time, n_jobs
        As in ``TensorRegressor``.
    loss : {"auto", "squared_error", "log_loss", "squared_hinge"} or object, default="auto"
        "auto" is the squared loss. Where views are chosen too, and ``keep_moments`` is False, it also tries logistic regression
        on the chosen views, and a map between the scores of all classes (``class_map_``). One is chosen if it lowers the
        held-out log-loss by more than two standard errors over the folds.
    penalty, scaling, class_weight, fit_intercept, tensor_shape, tol, max_iter, keep_moments, verbose
        As in ``TraceNormClassifier``.
    scoring : str or callable, default=None
        The selection criterion. None is the variance of the coded classes that held-out scores explain, after an affine
        calibration.

    Attributes
    ----------
    alpha_, view_, ridge_, mode_weights_, target_mode_
        The chosen parameters.
    alphas_, ridges_ : arrays of shape (n_alphas,)
        The grid of the chosen candidate; for ridge regression alone the alphas are zero.
    score_path_ : array of shape (n_alphas, n_folds)
        Held-out accuracy, or score, of the chosen candidate. Models of folds are solved only as accurately as the choice
        needs.
    score_path_se_ : array of shape (n_alphas,)
        The standard error of the mean over folds, corrected for training sets that overlap (Nadeau and Bengio, 2003).
    best_score_, best_score_se_ : float
        Mean over folds of the accuracy, or score, at ``alpha_``; and its standard error.
    cv_results_ : dict
        All candidates and alphas in scikit-learn's form: ``pandas.DataFrame(model.cv_results_)``.
    best_index_, best_params_
        Which row of ``cv_results_`` was chosen, and its parameters.
    view_shares_ : dict of floats
        If several views were tried: the share of each in the best non-negative combination of their held-out scores. Shares
        sum to one, the largest first; a view that adds nothing to the others has a share of zero.
    views_ : dict
        The fitted transformer of each view of the model, by name; None if the samples are not transformed.
    coef_by_view_, patterns_by_view_ : dicts of arrays
        Weights and patterns of each view, for samples transformed by ``views_[name]``. A prediction is the intercept plus the
        sum over views of weights times transformed samples.
    filters_by_view_ : dict of SpatialFilters
        The weights of each second order view as spatial filters with their patterns; ``views_[name].channel_names()`` names
        the entries of both.
    features_ : transformer or None
        The transformer that computes the chosen views; ``Views`` if there are several.
    best_estimator_ : TraceNormClassifier
        The model fitted to all samples, transformed by ``features_``. Its fitted attributes are attributes here too: ``coef_``,
        ``intercept_``, ``patterns_``, ``mode_factors_``, ``mode_ranks_``, ``dual_gap_``, ``objective_`` and ``n_iter_``.
    calibration_ : float
        The factor of the scores in ``predict_proba``, before the softmax. It is found on held-out folds (with many samples,
        on a few thousand of them). Losses that have probabilities do not need it.
    class_map_ : array of shape (n_classes + 1, n_classes)
        Only if it was chosen: scores are ``(X coef_ + intercept_) @ class_map_[:-1] + class_map_[-1]``. ``coef_``,
        ``intercept_`` and ``dual_gap_`` are those of the convex problem, before the map.

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
        **SelectionCV._parameter_constraints,
        "class_weight": TraceNormClassifier._parameter_constraints["class_weight"],
    }
    _estimator = TraceNormClassifier
    _classifier = True

    def __init__(
        self,
        alphas: Any = 12,
        *,
        eps: float = 1e-3,
        views: Any = "auto",
        time_axis: Any = "auto",
        ridges: Any = "auto",
        loss: Any = "auto",
        penalty: Any = "overlapped",
        scaling: Any = None,
        mode_weights: Any = None,
        target_mode: Any = False,
        cv: Any = 5,
        scoring: Any = None,
        one_standard_error: bool = False,
        max_time: float | None = None,
        n_jobs: int | None = None,
        class_weight: Any = None,
        fit_intercept: bool = True,
        tensor_shape: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        keep_moments: bool = False,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            alphas,
            eps=eps,
            views=views,
            time_axis=time_axis,
            ridges=ridges,
            loss=loss,
            penalty=penalty,
            scaling=scaling,
            mode_weights=mode_weights,
            target_mode=target_mode,
            cv=cv,
            scoring=scoring,
            one_standard_error=one_standard_error,
            max_time=max_time,
            n_jobs=n_jobs,
            fit_intercept=fit_intercept,
            tensor_shape=tensor_shape,
            tol=tol,
            max_iter=max_iter,
            keep_moments=keep_moments,
            verbose=verbose,
        )
        self.class_weight = class_weight

    score = SelectionCV.score

    def decision_function(self, X: Any, confounds: Any = None) -> Array:
        """Score every sample, as ``TraceNormClassifier.decision_function``."""
        return self._passed_on("decision_function", X, confounds)

    def predict_proba(self, X: Any, confounds: Any = None) -> Array:
        """Predict the probability of each class; without the logistic loss, from scores calibrated on held-out folds."""
        self._check_place(X, "predict_proba")
        logs = self.predict_log_proba(X, confounds)
        return array_namespace(logs).exp(logs)

    def predict_log_proba(self, X: Any, confounds: Any = None) -> Array:
        """Predict the logarithm of the probability of each class."""
        self._check_place(X, "predict_log_proba")
        if self.best_estimator_._loss().has_probabilities:
            return self._passed_on("predict_log_proba", X, confounds)
        scores = self.decision_function(X, confounds)
        xp = array_namespace(scores)
        scores = xp.stack([xp.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores
        return Multinomial().log_probabilities(self.calibration_ * scores)
