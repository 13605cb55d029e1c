"""Comparisons of models on the same folds, with yardsticks on flat samples."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone, is_classifier
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV, RidgeCV
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tracelearn.arrays.array_api import Array
from tracelearn.errors import refuse
from tracelearn.estimators.base import TraceNormModel
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.inference.sets import Plan, check_count, check_scores, cleaned, scored
from tracelearn.samples.checks import check_finite, small_on_one_thread
from tracelearn.samples.samples import unnamed
from tracelearn.search.estimators import TensorSearch
from tracelearn.search.folds import corrected_error

__all__ = ["Comparison", "compare", "flat_rivals"]


def _flat(X: Array) -> Array:
    return np.reshape(X, (len(X), -1))


def flat_rivals(classifier: bool) -> dict[str, Any]:
    """Make ridge and logistic regression on flat, scaled samples, their strengths chosen by cross-validation.

    Scaled samples are rotated into their span, which no squared norm of weights notices: few samples of many entries take less.
    """
    strengths = np.geomspace(1e-2, 1e6, 9)
    found: dict[str, Any] = {"ridge": (RidgeClassifierCV if classifier else RidgeCV)(strengths)}
    if classifier:
        strengths = np.geomspace(1e-4, 1e2, 7)
        found["logistic"] = GridSearchCV(LogisticRegression(max_iter=1000), {"C": strengths}, scoring="neg_log_loss")
    return {
        name: make_pipeline(FunctionTransformer(_flat), StandardScaler(), PCA(svd_solver="full"), one)
        for name, one in found.items()
    }


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
    >>> found = Comparison.of(("ours", "ridge"), np.array([[0.8, 0.9, 0.8], [0.6, 0.8, 0.7]]), 0.5, "accuracy")
    >>> print(found)
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
        mean, degrees = differences.mean(axis=1), scores.shape[1] - 1
        error = corrected_error(differences, ratio)
        # Models that agree on every fold do not differ; models that differ by the same on every fold do beyond doubt.
        size = np.divide(np.abs(mean), error, out=np.where(mean == 0, 0.0, np.inf), where=error > 0)
        reach = student.ppf(0.975, degrees) * error
        p = 2.0 * student.sf(size, degrees)
        return cls(tuple(names), scores, mean, error, p, mean - reach, mean + reach, scoring)

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

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.inference import compare
    >>> X, y, W = make_low_rank_regression(80, (6, 5, 4), rank=1, random_state=0)
    >>> found = compare(TraceNormRegressor(alpha=1.0), X, y)
    >>> found.names, bool(found.p_value[1] < 0.05)
    (('TraceNormRegressor', 'ridge'), True)
    """
    X, y, _ = unnamed(X, y)
    X, named = np.asarray(X), _named(models)
    first = next(iter(named.values()))
    rivals = flat_rivals(is_classifier(first)) if yardsticks else {}
    named |= {name: one for name, one in rivals.items() if name not in named}
    refuse(len(named) < 2, "Expected at least two models to compare, got one: add another, or yardsticks=True.")
    if any(isinstance(one, TraceNormModel | TensorSearch) for one in named.values()) and X.dtype.kind == "f":
        check_finite(X, "X")  # those of a fold would have other numbers
    plan = Plan.of(first, X, y, cv, groups, confounds, scoring, repeats=check_count(repeats, "repeats"))
    _check_folds(plan, classifier=is_classifier(first))
    # Not each model's own score: that of a search may be another one.
    judge = plan.name if scoring is None else scoring
    scores = np.empty((len(named), len(plan.folds)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroWeightsWarning)
        # PCA divides by the variance of samples, also where they have none.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"sklearn\.decomposition")
        for f, (train, test) in enumerate(plan.folds.splits):
            clean = cleaned(X, plan.confounds, train)
            for m, model in enumerate(named.values()):
                A = X if isinstance(model, TensorSearch) else clean
                scores[m, f] = _held_out(model, A, plan, train, test, judge)
    ratio = float(np.mean([len(test) / len(train) for train, test in plan.folds.splits]))
    return Comparison.of(tuple(named), check_scores(scores), ratio, plan.name)


def _check_folds(plan: Plan, *, classifier: bool) -> None:
    """Refuse folds that leave nothing to compare, or one class to learn from."""
    labels, folds = plan.labels, plan.folds
    refuse(len(folds) < 2, f"Expected at least two folds to compare models on, got {len(folds)}.")
    alone = [f for f, (train, _) in enumerate(folds.splits) if classifier and len(np.unique(labels[train])) < 2]
    if alone and len(np.unique(labels)) > 1:
        raise ValueError(
            f"Expected two classes in every fold to learn from, got one without fold {alone[0] + 1}: use fewer folds, or leave "
            "out classes of few samples."
        )


def _held_out(model: Any, X: Array, plan: Plan, train: Array, test: Array, judge: Any) -> float:
    """Fit a model to some samples, a search with their groups and confounds, and score it on others."""
    searches = isinstance(model, TensorSearch)
    given = {"groups": plan.groups, "confounds": plan.confounds} if searches else {}
    own = {key: values[train] for key, values in given.items() if values is not None}
    fitted: Any = clone(model).fit(X[train], plan.labels[train], **own)
    if searches and plan.confounds is not None:
        fitted = _Informed(fitted, plan.confounds[test])
    return scored(check_scoring(fitted, judge), fitted, X[test], plan.labels[test])


class _Informed:
    """A fitted model that knows the confounds of the samples it is asked about: scorers do not pass them on."""

    def __init__(self, model: Any, confounds: Array) -> None:
        self._model, self._confounds = model, confounds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        asked = name in ("predict", "decision_function", "predict_proba", "predict_log_proba", "score")
        return update_wrapper(partial(found, confounds=self._confounds), found) if asked else found


def _named(models: Any) -> dict[str, Any]:
    """Name models by their classes, where they have no names; equal names are numbered."""
    if isinstance(models, Mapping):
        found = dict(models)
    else:
        given = list(models) if isinstance(models, list | tuple) else [models]
        found = {}
        for model in given:
            name = type(model).__name__
            same = sum(key.split(" ")[0] == name for key in found)
            found[f"{name} {same + 1}" if same else name] = model
    strange = [name for name, model in found.items() if not (hasattr(model, "fit") and hasattr(model, "get_params"))]
    if strange or not found:
        raise ValueError(f"Expected estimators to compare, got {'none' if not found else repr(found[strange[0]])}.")
    return found
