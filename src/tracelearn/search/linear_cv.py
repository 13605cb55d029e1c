"""TraceNormRegressorCV and TraceNormClassifierCV: linear in the samples, of low rank, with strengths by cross-validation.

Every combination of a ridge and of mode weights has a path of alphas in every fold; held-out scores choose one point, and that
is fitted to all samples. The whole path on all samples is fitted when it is first asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, move_to, to_numpy, widest
from tracelearn.arrays.linalg import one_thread
from tracelearn.errors import InputError
from tracelearn.estimators.base import LinearModel, TraceNormModel, reader_of
from tracelearn.estimators.classifier import PredictsLabels, TraceNormClassifier
from tracelearn.estimators.regressor import PredictsNumbers, TraceNormRegressor
from tracelearn.estimators.weights import as_tensors, ranks_of
from tracelearn.fitting import Fitted, Settings, fit_linear, loss_named, prepare, reporter, warn_of_fit
from tracelearn.penalties import as_penalty, is_overlapped
from tracelearn.samples.by_name import with_groups
from tracelearn.samples.learning import learning
from tracelearn.samples.per_sample import read_groups
from tracelearn.samples.reading import Spec
from tracelearn.samples.samples import Samples
from tracelearn.samples.scikit_learn import Interval, StrOptions
from tracelearn.samples.source import as_source
from tracelearn.search.advice import warn_of_rising_end
from tracelearn.search.data import SearchData, read_for_search
from tracelearn.search.folds import Folds
from tracelearn.search.paths import Path, read_alphas, read_strengths, trace_path
from tracelearn.search.routing import RoutesToSplitter, params_for_splitter
from tracelearn.search.splits import Targets, split_samples

__all__ = ["TraceNormClassifierCV", "TraceNormRegressorCV"]


@dataclass(frozen=True, eq=False)
class _Candidate:
    """The path of one ridge and one choice of mode weights."""

    mode_weights: tuple[float, ...] | None
    ridge: float
    path: Path


class LinearCV(RoutesToSplitter, LinearModel):
    """What both CV estimators share: parameters, the choice, and the path on all samples."""

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's convention
        "alphas": ["array-like", Interval(Integral, 1, None, closed="left")],
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "ridges": ["array-like"],
        "mode_weights": ["array-like", StrOptions({"auto"}), None],
        "cv": ["cv_object"],
        "scoring": [callable, str, None],
        "one_standard_error": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        **{
            name: TraceNormModel._parameter_constraints[name]
            for name in (
                "loss",
                "penalty",
                "target_mode",
                "scaling",
                "fit_intercept",
                "tensor_shape",
                "tol",
                "max_iter",
                "verbose",
            )
        },
    }

    def __init__(
        self,
        alphas: Any = 30,
        *,
        eps: float = 1e-3,
        ridges: Any = (0.0,),
        mode_weights: Any = None,
        loss: Any = "squared_error",
        penalty: Any = "overlapped",
        target_mode: bool = False,
        scaling: Any = None,
        cv: Any = 5,
        scoring: Any = None,
        one_standard_error: bool = False,
        n_jobs: int | None = None,
        random_state: Any = 0,
        fit_intercept: bool = True,
        tensor_shape: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        verbose: int = 0,
    ) -> None:
        self.alphas = alphas
        self.eps = eps
        self.ridges = ridges
        self.mode_weights = mode_weights
        self.loss = loss
        self.penalty = penalty
        self.target_mode = target_mode
        self.scaling = scaling
        self.cv = cv
        self.scoring = scoring
        self.one_standard_error = one_standard_error
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.fit_intercept = fit_intercept
        self.tensor_shape = tensor_shape
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    _training: Samples | None = None  # for the path on all samples, until that is asked for
    _path_fits: tuple[Fitted, ...] | None = None

    # --- learning ----------------------------------------------------------------------------------------------------

    @learning
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
            Or a file, a Dask array or a list of batches; of what does not fit in memory a drawn part chooses.
        y : array of shape (n_samples,) of labels or numbers, or of numbers of shape (n_samples, K)
        sample_weight, groups : arrays of shape (n_samples,), default=None
            Groups are held out whole. Of a file, a table or epochs they may be the name of a column.
        confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
            Numbers that are regressed out of the samples, separately in each training fold.
        **params : metadata that a splitter requests under other names, with scikit-learn's metadata routing
        """
        X, y, sample_weight, groups = with_groups(X, y, sample_weight, groups)
        split_params = params_for_splitter(self, params)
        with one_thread():
            data = read_for_search(as_source(X, y, sample_weight, confounds), reader_of(self), self.random_state)
            groups = read_groups(groups, len(data.labels))
            folds = data.folds(self.cv, groups, self.random_state, split_params=split_params)
            loss = loss_named(self.loss, for_classes=isinstance(self, ClassifierMixin))
            targets = data.targets(loss, self.scoring, fit_intercept=self.fit_intercept)
            candidates = self._candidates(data, folds, targets)
            best = max(candidates, key=lambda candidate: candidate.path.value)
            point = best.path.simplest_within_error() if self.one_standard_error else best.path.best
            settings = self._settings(float(best.path.alphas[point]), best.ridge, best.mode_weights)
            report = reporter(type(self).__name__, self.verbose)
            fitted = fit_linear(data.samples, data.spec, settings, report=report)
        warn_of_fit(fitted, settings, type(self).__name__.removesuffix("CV"))
        if point == best.path.best:
            warn_of_rising_end(best.path.end, "alpha", float(best.path.alphas[point]))
        self._publish(data.spec, None, fitted)
        self._publish_choice(best, point, data.samples)
        return self

    def _candidates(self, data: SearchData, folds: Folds, targets: Targets) -> list[_Candidate]:
        """Walk the path of every ridge and every choice of mode weights."""
        rows = data.searched.rows
        shape = data.spec.sample_shape
        if self.scaling is not None:
            rows = rows / data.samples.mode_scales()
        joint = bool(self.target_mode) and data.spec.n_targets > 1
        split = split_samples(rows, shape, targets, folds, joint=joint, along_axes=False)
        alphas, are_given = read_alphas(self.alphas, self.eps)
        candidates = []
        for weights, ridge in product(self._mode_weights(split.weights_shape), read_strengths(self.ridges, "ridges")):
            path = trace_path(
                split,
                as_penalty(self.penalty, split.weights_shape, weights),
                alphas,
                ridge=float(ridge),
                are_given=are_given,
                max_iter=self.max_iter,
                n_jobs=self.n_jobs,
            )
            candidates.append(_Candidate(weights, float(ridge), path))
        return candidates

    def _mode_weights(self, shape: tuple[int, ...]) -> list[tuple[float, ...] | None]:
        """List the mode weights to try; "auto" is equal ones and each mode alone."""
        if self.mode_weights is None:
            return [None]
        order = len(shape)
        if isinstance(self.mode_weights, str):
            if order <= 2 or not is_overlapped(self.penalty):
                # Both unfoldings of a matrix have one norm, and latent norms choose among the modes themselves.
                return [None]
            alone = [tuple(float(n == mode) for n in range(order)) for mode in range(order)]
            return [None, *alone]
        lists = list(self.mode_weights)
        if not lists:
            raise ValueError("Expected mode_weights to be 'auto', None, or one weight for each mode, got none.")
        if np.ndim(lists[0]) == 0 and lists[0] is not None:
            lists = [lists]
        return [None if weights is None else tuple(float(weight) for weight in weights) for weights in lists]

    def _settings(self, alpha: float, ridge: float, mode_weights: tuple[float, ...] | None) -> Settings:
        """State the fit of one point of a path to all samples."""
        return Settings(
            loss=loss_named(self.loss, for_classes=isinstance(self, ClassifierMixin)),
            alpha=alpha,
            ridge=ridge,
            penalty=self.penalty,
            mode_weights=mode_weights,
            target_mode=self.target_mode,
            scaling=self.scaling,
            fit_intercept=self.fit_intercept,
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def _publish_choice(self, best: _Candidate, point: int, samples: Samples) -> None:
        """Write what was chosen, and of what."""
        path = best.path
        self.alpha_ = float(path.alphas[point])  # one for all targets
        self.ridge_ = best.ridge
        self.mode_weights_ = best.mode_weights
        wide = widest(self.coef_)["dtype"]
        self.alphas_ = move_to(path.alphas, self.coef_, wide)
        self.score_path_ = move_to(path.scores, self.coef_, wide)
        self.score_path_mean_ = move_to(path.means, self.coef_, wide)
        self.score_path_se_ = move_to(path.errors, self.coef_, wide)
        self.best_score_ = float(path.means[point])
        self.best_score_se_ = float(path.errors[point])
        self._training = samples
        self._path_fits = None

    # --- the path on all samples -----------------------------------------------------------------------------------------

    @property
    def coef_path_(self) -> Array:
        """The weights for every alpha of ``alphas_``, fitted to all samples: ``coef_`` with one more first axis."""
        fits = self._fits()
        xp = array_namespace(fits[0].coef)
        return xp.stack([xp.reshape(fitted.coef, self.coef_.shape) for fitted in fits])

    @property
    def intercept_path_(self) -> Array:
        """The intercepts for every alpha of ``alphas_``."""
        fits = self._fits()
        if self._spec.is_single:
            return np.array([float(fitted.intercept[0]) for fitted in fits])
        return array_namespace(fits[0].coef).stack([fitted.intercept for fitted in fits])

    @property
    def path_(self) -> dict[str, Array]:
        """What there is to say of every alpha: a dict of arrays, as for a data frame.

        ``alpha``, ``score`` and ``score_se`` (held out), and of the fit to all samples ``objective``, ``gap``, and ``ranks``,
        with one column for each mode, of several targets the largest.
        """
        fits = self._fits()
        n_modes = len(self.sample_shape_)
        ranks = []
        for fitted in fits:
            W = as_tensors(fitted.coef, self.sample_shape_, is_single=self._spec.is_single)
            of_modes = np.atleast_2d(to_numpy(ranks_of(W, n_modes, shares_modes=bool(self.target_mode))))
            ranks.append(of_modes.max(axis=0))
        return {
            "alpha": self.alphas_,
            "score": self.score_path_mean_,
            "score_se": self.score_path_se_,
            "objective": np.array([fitted.objective for fitted in fits]),
            "gap": np.array([fitted.gap for fitted in fits]),
            "ranks": np.stack(ranks),
        }

    def _fits(self) -> tuple[Fitted, ...]:
        """Fit every alpha of the path to all samples, each from the solution of the one before, when first asked for."""
        check_is_fitted(self, "coef_")
        if self._path_fits is None:
            if self._training is None:
                raise InputError(
                    "Expected the samples of fit for the path, got a model that was stored or copied without: ask for coef_path_ "
                    "before, or fit again."
                )
            settings = [self._settings(float(alpha), self.ridge_, self.mode_weights_) for alpha in self.alphas_]
            self._path_fits = _fit_path(self._training, self._spec, settings)
            self._training = None
        return self._path_fits

    def _at(self, alpha: Any) -> Any:
        """Make the model of one alpha of the path."""
        check_is_fitted(self, "coef_")
        places = np.flatnonzero(np.isclose(self.alphas_, float(alpha), rtol=1e-9, atol=0.0))
        if not len(places):
            examples = ", ".join(f"{value:.4g}" for value in self.alphas_[:3])
            raise InputError(
                f"Expected an alpha of the grid alphas_ ({examples}, ...), got {alpha!r}: choose one of these."
            )
        fitted = self._fits()[int(places[0])]
        kind = TraceNormClassifier if isinstance(self, ClassifierMixin) else TraceNormRegressor
        return kind.from_fitted(self._spec, fitted, loss=self.loss)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the samples, kept for ``coef_path_``, and the solution, kept for warm starts, out of pickles and files."""
        state = dict(super().__getstate__())
        state.pop("_training", None)
        state.pop("_warm_start", None)
        return state


def _fit_path(samples: Samples, spec: Spec, settings: list[Settings]) -> tuple[Fitted, ...]:
    """Fit decreasing alphas to all samples, each from the solution of the one before."""
    prepared = prepare(samples, spec, settings[0], spectral=True)
    fits: list[Fitted] = []
    for setting in settings:
        start = fits[-1].warm_start if fits else None
        if start is not None and start.solution.rho is not None and setting.alpha > 0:
            # Forces, and so the step, scale with alpha.
            step = start.solution.rho * (setting.alpha / settings[len(fits) - 1].alpha)
            start = replace(start, solution=replace(start.solution, rho=step))
        fits.append(fit_linear(prepared, spec, setting, start=start))
    return tuple(replace(fitted, warm_start=None) for fitted in fits)


class TraceNormRegressorCV(MultiOutputMixin, PredictsNumbers, LinearCV):
    """``TraceNormRegressor`` whose alpha, ridge and mode weights are chosen by cross-validation.

    The model is linear in the samples, with weights of low rank in every mode. For a search over views of the samples, which is
    often more accurate, see ``TensorRegressor``.

    Parameters
    ----------
    alphas : int or array, default=30
        Number of alphas on a grid from ``alpha_max``, where all weights are zero, down to ``eps`` times it; or the alphas.
    eps : float, default=1e-3
        The smallest alpha of the grid, as a share of the largest.
    ridges : sequence of floats, default=(0.0,)
        Strengths of the squared norm to try.
    mode_weights : "auto", None, one sequence of weights, or a list of such candidates, default=None
        "auto" tries equal weights and each mode alone (order 3 and above, overlapped norm). None is equal weights.
    loss : {"squared_error", "huber", "poisson"} or object, default="squared_error"
        As in ``TraceNormRegressor``.
    penalty : {"overlapped", "latent", "scaled_latent"} or object, default="overlapped"
        "overlapped" gives low rank in every mode at once, the latent norms a sum of tensors of low rank in one mode each. An
        object is an atom of ``tracelearn.penalties`` or a sum of them.
    target_mode : bool, default=False
        Whether the targets form one more mode of one weight tensor, so that they share subspaces.
    scaling : "modes" or None, default=None
        "modes" divides every entry by a product of one scale for each mode before it is penalised, which does not change ranks.
    cv : int, splitter or iterable, default=5
        As in scikit-learn; a number means shuffled folds. Give ``groups`` to ``fit`` to hold them out whole.
    scoring : str or callable, default=None
        The selection criterion. None is the variance that held-out predictions explain, up to an offset.
    one_standard_error : bool, default=False
        Choose the largest alpha whose score is within one standard error of the best: a simpler model of about the same score.
    n_jobs : int, default=None
        Number of folds to solve at the same time, in threads, where they are not one batch anyway.
    random_state : int, RandomState or None, default=0
        What shuffles the folds.
    fit_intercept : bool, default=True
        The intercept is never penalised.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).
    tol : float, default=1e-6
        Relative duality gap of the fit to all samples.
    max_iter : int, default=1000
        Most iterations for each alpha, and of the fit to all samples.
    verbose : int, default=0
        1 reports choices and results, 2 also the duality gap during the fit.

    Attributes
    ----------
    alpha_, ridge_, mode_weights_
        What was chosen.
    alphas_ : array of shape (n_alphas,)
        The grid of the chosen candidate, decreasing.
    score_path_ : array of shape (n_alphas, n_folds)
        Held-out scores along it: R², or those of ``scoring``.
    score_path_mean_, score_path_se_ : arrays of shape (n_alphas,)
        Their means over folds, and the standard errors of these.
    best_score_, best_score_se_ : float
        Mean score over folds at ``alpha_``, and its standard error, corrected for training sets that overlap.
    coef_, intercept_, patterns_, mode_ranks_, mode_factors_, dual_gap_, objective_, n_iter_, convergence_, ...
        As in ``TraceNormRegressor``.
    coef_path_, intercept_path_ : arrays with one more first axis
        The weights for every alpha of ``alphas_``, fitted to all samples and certified when they are first asked for. Until then
        the model holds on to the samples.
    path_ : dict of arrays
        ``alpha``, ``score``, ``score_se``, ``objective``, ``gap`` and ``ranks``: ``PathDisplay.from_estimator`` draws it.

    Examples
    --------
    >>> from tracelearn import TraceNormRegressorCV
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(200, (6, 5, 4), rank=1, random_state=0)
    >>> model = TraceNormRegressorCV(alphas=10).fit(X, y)
    >>> model.score(X, y) > 0.7, model.coef_path_.shape
    (True, (10, 6, 5, 4))
    >>> model.predict(X, alpha=model.alphas_[2]).shape, bool(model.path_["gap"].max() <= 1e-6)
    ((200,), True)
    """

    def predict(self, X: Any, confounds: Any = None, *, alpha: Any = None) -> Array:
        """Predict the target of each sample, with the model that was chosen or with that of another alpha of the grid."""
        return super().predict(X, confounds) if alpha is None else self._at(alpha).predict(X, confounds)


class TraceNormClassifierCV(PredictsLabels, LinearCV):
    """``TraceNormClassifier`` whose alpha, ridge and mode weights are chosen by cross-validation.

    The model is linear in the samples, with weights of low rank in every mode. For a search over views of the samples, which is
    often more accurate, see ``TensorClassifier``.

    Parameters
    ----------
    alphas : int or array, default=30
        Number of alphas on a grid from ``alpha_max``, where all weights are zero, down to ``eps`` times it; or the alphas.
    eps : float, default=1e-3
        The smallest alpha of the grid, as a share of the largest.
    ridges : sequence of floats, default=(0.0,)
        Strengths of the squared norm to try.
    mode_weights : "auto", None, one sequence of weights, or a list of such candidates, default=None
        "auto" tries equal weights and each mode alone (order 3 and above, overlapped norm). None is equal weights.
    loss : {"squared_error", "log_loss", "squared_hinge"} or object, default="squared_error"
        As in ``TraceNormClassifier``.
    penalty : {"overlapped", "latent", "scaled_latent"} or object, default="overlapped"
        "overlapped" gives low rank in every mode at once, the latent norms a sum of tensors of low rank in one mode each. An
        object is an atom of ``tracelearn.penalties`` or a sum of them.
    target_mode : bool, default=False
        Whether the classes form one more mode of one weight tensor, so that they share subspaces.
    scaling : "modes" or None, default=None
        "modes" divides every entry by a product of one scale for each mode before it is penalised, which does not change ranks.
    class_weight : dict or "balanced", default=None
        What the samples of each class weigh besides ``sample_weight``. "balanced" gives all classes the same total weight.
    cv : int, splitter or iterable, default=5
        As in scikit-learn; a number means shuffled folds. Give ``groups`` to ``fit`` to hold them out whole.
    scoring : str or callable, default=None
        The selection criterion. None is the variance of the coded classes that held-out scores explain, after an affine
        calibration.
    one_standard_error : bool, default=False
        Choose the largest alpha whose score is within one standard error of the best: a simpler model of about the same score.
    n_jobs : int, default=None
        Number of folds to solve at the same time, in threads, where they are not one batch anyway.
    random_state : int, RandomState or None, default=0
        What shuffles the folds.
    fit_intercept : bool, default=True
        The intercept is never penalised.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).
    tol : float, default=1e-6
        Relative duality gap of the fit to all samples.
    max_iter : int, default=1000
        Most iterations for each alpha, and of the fit to all samples.
    verbose : int, default=0
        1 reports choices and results, 2 also the duality gap during the fit.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    alpha_, ridge_, mode_weights_, alphas_, best_score_, best_score_se_, coef_path_, intercept_path_, path_
        As in ``TraceNormRegressorCV``.
    score_path_ : array of shape (n_alphas, n_folds)
        Held-out accuracy, or that of ``scoring``.
    coef_, intercept_, patterns_, mode_ranks_, mode_factors_, dual_gap_, objective_, n_iter_, convergence_, ...
        As in ``TraceNormClassifier``.

    Examples
    --------
    >>> from tracelearn import TraceNormClassifierCV
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, signal, W = make_low_rank_regression(200, (6, 5, 4), rank=1, random_state=0)
    >>> model = TraceNormClassifierCV(alphas=10).fit(X, signal > 0)
    >>> model.best_score_ > 0.7
    True
    """

    _parameter_constraints = {  # noqa: RUF012
        **LinearCV._parameter_constraints,
        "class_weight": TraceNormClassifier._parameter_constraints["class_weight"],
    }

    def __init__(
        self,
        alphas: Any = 30,
        *,
        eps: float = 1e-3,
        ridges: Any = (0.0,),
        mode_weights: Any = None,
        loss: Any = "squared_error",
        penalty: Any = "overlapped",
        target_mode: bool = False,
        scaling: Any = None,
        class_weight: Any = None,
        cv: Any = 5,
        scoring: Any = None,
        one_standard_error: bool = False,
        n_jobs: int | None = None,
        random_state: Any = 0,
        fit_intercept: bool = True,
        tensor_shape: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            alphas,
            eps=eps,
            ridges=ridges,
            mode_weights=mode_weights,
            loss=loss,
            penalty=penalty,
            target_mode=target_mode,
            scaling=scaling,
            cv=cv,
            scoring=scoring,
            one_standard_error=one_standard_error,
            n_jobs=n_jobs,
            random_state=random_state,
            fit_intercept=fit_intercept,
            tensor_shape=tensor_shape,
            tol=tol,
            max_iter=max_iter,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def predict(self, X: Any, confounds: Any = None, *, alpha: Any = None) -> Array:
        """Predict the label of each sample, with the model that was chosen or with that of another alpha of the grid."""
        return super().predict(X, confounds) if alpha is None else self._at(alpha).predict(X, confounds)

    def decision_function(self, X: Any, confounds: Any = None, *, alpha: Any = None) -> Array:
        """Score every sample, as ``TraceNormClassifier.decision_function``, also for another alpha of the grid."""
        if alpha is None:
            return super().decision_function(X, confounds)
        scores: Array = self._at(alpha).decision_function(X, confounds)
        return scores
