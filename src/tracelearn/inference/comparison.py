"""Comparisons of models on the same folds, with yardsticks on flat samples."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone, is_classifier
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV, RidgeCV
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tracelearn.arrays.array_api import Array
from tracelearn.errors import refuse
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.inference.reading import ScoringPlan, check_count, check_model, is_search, is_trace_norm_model
from tracelearn.inference.scoring import check_scores, score_model
from tracelearn.samples.by_name import in_memory
from tracelearn.samples.checks import check_finite
from tracelearn.samples.learning import small_on_one_thread
from tracelearn.search.folds import corrected_error

__all__ = ["Comparison", "compare", "flat_rivals"]


def flat_rivals(classifier: bool) -> dict[str, Any]:
    """Make ridge and logistic regression on flat, scaled samples, their strengths chosen by cross-validation.

    What is missing is imputed by means. Scaled samples are rotated into their span, which no squared norm of weights notices: few
    samples of many entries take less.
    """
    ridges = np.geomspace(1e-2, 1e6, 9)
    models: dict[str, Any] = {"ridge": RidgeClassifierCV(ridges) if classifier else RidgeCV(ridges)}
    if classifier:
        strengths = {"C": np.geomspace(1e-4, 1e2, 7)}
        models["logistic"] = GridSearchCV(LogisticRegression(max_iter=1000), strengths, scoring="neg_log_loss")
    impute = SimpleImputer(keep_empty_features=True)  # leaves complete samples as they are
    return {
        name: make_pipeline(FunctionTransformer(_flat), impute, StandardScaler(), PCA(svd_solver="full"), model)
        for name, model in models.items()
    }


def _flat(X: Array) -> Array:
    return np.reshape(X, (len(X), -1))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of models on the same folds, and how the first differs from each other one.

    Attributes
    ----------
    names : tuple of str
    scores : array of shape (n_models, n_folds)
    means : array of shape (n_models,)
    difference, standard_error, p_value : arrays of shape (n_models,)
        Of the mean score of the first model less that of each; zero, zero and one for the first itself. The standard error is
        Nadeau and Bengio's, the p-value is two-sided.
    low, high : arrays of shape (n_models,)
        Ends of the 95 % interval of the difference. With 80 samples, alone or in 20 groups, they covered 95 to 97 % of the
        differences in simulations.
    scoring : str

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.inference import Comparison
    >>> scores = np.array([[0.8, 0.9, 0.8], [0.6, 0.8, 0.7]])
    >>> print(Comparison.of(("ours", "ridge"), scores, 0.5, "accuracy"))
    ours: accuracy 0.833
    ridge: accuracy 0.700; difference 0.133, 95 % from -0.093 to 0.360, p = 0.13
    """

    names: tuple[str, ...]
    scores: Array
    difference: Array
    standard_error: Array
    p_value: Array
    low: Array
    high: Array
    scoring: str

    @classmethod
    def of(cls, names: Sequence[str], scores: Array, ratio: float, scoring: str) -> Comparison:
        """Compare scores (M, J) of folds that hold out ``ratio`` times as many samples as they train on."""
        differences = scores[:1] - scores
        mean = differences.mean(axis=1)
        error = corrected_error(differences, ratio)
        degrees = scores.shape[1] - 1
        # Without any spread over folds t is zero for models of equal scores, and infinite for others.
        t_without_error = np.where(mean == 0, 0.0, np.inf)
        t_value = np.divide(np.abs(mean), error, out=t_without_error, where=error > 0)
        p_value = 2.0 * student.sf(t_value, degrees)
        reach = student.ppf(0.975, degrees) * error
        return cls(tuple(names), scores, mean, error, p_value, mean - reach, mean + reach, scoring)

    @property
    def means(self) -> Array:
        """The mean score of each model."""
        return np.asarray(self.scores.mean(axis=1))

    def plot(self, ax: Any = None) -> Any:
        """Draw the scores of all folds, and the differences with their intervals."""
        from tracelearn.plotting.inference import draw_comparison  # noqa: PLC0415 - matplotlib is optional

        return draw_comparison(self, ax)

    def __str__(self) -> str:
        rows = [f"{self.names[0]}: {self.scoring} {self.means[0]:.3f}"]
        for m in range(1, len(self.names)):
            rows.append(
                f"{self.names[m]}: {self.scoring} {self.means[m]:.3f}; difference {self.difference[m]:.3f}, 95 % from "
                f"{self.low[m]:.3f} to {self.high[m]:.3f}, p = {self.p_value[m]:.2g}"
            )
        return "\n".join(rows)


@small_on_one_thread
def compare(
    models: Any,
    X: Any,
    y: Any = None,
    *,
    cv: Any = 5,
    repeats: int = 4,
    groups: Any = None,
    confounds: Any = None,
    scoring: Any = None,
    yardsticks: bool = True,
    random_state: int = 0,
) -> Comparison:
    """Compare models on the same folds; the first with each other one.

    Parameters
    ----------
    models : estimator, list of estimators, or dict of them by name
    X, y : samples and targets, in memory; epochs of MNE bring their events as targets
    cv : int, splitter or iterable, default=5
        Numbers are shuffled folds, stratified for classes, with groups held out whole.
    repeats : int, default=4
        How often a number of folds is drawn; more of them make a difference more certain, at the price of their fits.
    groups : array of shape (n_samples,), default=None
        Passed on to searches inside of training folds as well.
    confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
        Regressed out of samples within each training fold, for every model, and out of what it holds out as learned there;
        our searches regress within their own folds too.
    scoring : str or callable, default=None
        As in scikit-learn; None is accuracy or R².
    yardsticks : bool, default=True
        Whether to add ridge regression and, for classes, logistic regression on flat samples scaled to unit variance, their
        strengths chosen by cross-validation: what a model of tensors should be better than.
    random_state : int, default=0
        Of the folds, where ``cv`` is their number.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.inference import compare
    >>> X, y, W = make_low_rank_regression(80, (6, 5, 4), rank=1, random_state=0)
    >>> comparison = compare(TraceNormRegressor(alpha=1.0), X, y)
    >>> comparison.names, bool(comparison.p_value[1] < 0.05)
    (('TraceNormRegressor', 'ridge'), True)
    """
    X, y, _, groups = in_memory(X, y, groups)
    X = np.asarray(X)
    models = _named(models)
    first = next(iter(models.values()))
    classifier = is_classifier(first)
    rivals = flat_rivals(classifier) if yardsticks else {}
    models |= {name: rival for name, rival in rivals.items() if name not in models}
    refuse(len(models) < 2, "Expected at least two models to compare, got one: add another, or yardsticks=True.")
    if any(is_trace_norm_model(model) or is_search(model) for model in models.values()) and X.dtype.kind == "f":
        check_finite(X, "X")  # those of a fold would have other numbers
    plan = ScoringPlan.of(
        first,
        X,
        y,
        cv=cv,
        groups=groups,
        confounds=confounds,
        scoring=scoring,
        random_state=random_state,
        repeats=check_count(repeats, "repeats"),
    )
    splits = plan.folds.splits
    _check_folds(plan, classifier=classifier)
    # Not each model's own score: that of a search may be another one.
    scoring = plan.score_name if scoring is None else scoring
    scores = np.empty((len(models), len(splits)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroWeightsWarning)
        # PCA divides by the variance of samples, also where they have none.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"sklearn\.decomposition")
        for fold, (train, test) in enumerate(splits):
            cleaned = plan.cleaned(X, train)
            for m, model in enumerate(models.values()):
                if is_search(model):
                    scores[m, fold] = _score_search(model, X, plan, train, test, scoring)
                    continue
                fitted = clone(model).fit(cleaned[train], plan.labels[train])
                scores[m, fold] = score_model(check_scoring(fitted, scoring), fitted, cleaned[test], plan.labels[test])
    return Comparison.of(tuple(models), check_scores(scores), plan.folds.ratio, plan.score_name)


def _check_folds(plan: ScoringPlan, *, classifier: bool) -> None:
    """Refuse folds that leave nothing to compare, or one class to learn from."""
    splits = plan.folds.splits
    refuse(len(splits) < 2, f"Expected at least two folds to compare models on, got {len(splits)}.")
    if not classifier or len(np.unique(plan.labels)) < 2:
        return
    for fold, (train, _) in enumerate(splits, start=1):
        refuse(
            len(np.unique(plan.labels[train])) < 2,
            f"Expected two classes in every fold to learn from, got one without fold {fold}: use fewer folds, or leave out "
            "classes of few samples.",
        )


def _score_search(search: Any, X: Array, plan: ScoringPlan, train: Array, test: Array, scoring: Any) -> float:
    """Fit a search to some samples, with their groups and confounds, and score it on others."""
    metadata = {}
    if plan.groups is not None:
        metadata["groups"] = plan.groups[train]
    if plan.confounds is not None:
        metadata["confounds"] = plan.confounds[train]
    fitted: Any = clone(search).fit(X[train], plan.labels[train], **metadata)
    metadata_of_test = {}
    if plan.confounds is not None:
        metadata_of_test["confounds"] = plan.confounds[test]
    if getattr(fitted, "alignment_", None) is not None:
        metadata_of_test["groups"] = plan.groups[test]  # type: ignore[index] # there are some, or nothing is aligned
    if metadata_of_test:
        fitted = _WithMetadata(fitted, metadata_of_test)
    return score_model(check_scoring(fitted, scoring), fitted, X[test], plan.labels[test])


class _WithMetadata:
    """A fitted model that knows the confounds and groups of the samples it is asked about: scorers do not pass them on."""

    def __init__(self, model: Any, metadata: dict[str, Array]) -> None:
        self._model = model
        self._metadata = metadata

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._model, name)
        if name not in ("predict", "decision_function", "predict_proba", "predict_log_proba", "score"):
            return attribute
        return update_wrapper(partial(attribute, **self._metadata), attribute)


def _named(models: Any) -> dict[str, Any]:
    """Name models by their classes, where they have no names; equal names are numbered."""
    if isinstance(models, Mapping):
        named = dict(models)
    else:
        named = {}
        counts: Counter[str] = Counter()
        for model in models if isinstance(models, list | tuple) else [models]:
            name = type(model).__name__
            counts[name] += 1
            named[name if counts[name] == 1 else f"{name} {counts[name]}"] = model
    refuse(not named, "Expected estimators to compare, got none.")
    for model in named.values():
        check_model(model)
    return named
