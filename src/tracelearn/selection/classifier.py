"""TraceNormClassifierCV: alpha, ridge, scaling, mode weights and loss chosen by cross-validation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if

from tracelearn.arrays.array_api import Array, array_namespace, to_numpy
from tracelearn.estimators import TraceNormClassifier
from tracelearn.estimators.base import Batch
from tracelearn.losses import CLASSIFIER_LOSSES
from tracelearn.samples.undo import undone_on_failure
from tracelearn.selection.base import SelectionCV

__all__ = ["TraceNormClassifierCV"]


def _has_probabilities(estimator: Any) -> bool:
    """Whether the model that was found, or the one that will be, has probabilities."""
    found = getattr(estimator, "best_estimator_", None)
    if found is None and estimator.loss == "auto":
        raise AttributeError(
            "Expected loss='logistic' for probabilities before fit, got 'auto', which chooses between losses: fit first, or "
            "name the loss."
        )
    return bool((estimator._new_model() if found is None else found).predict_proba)


class TraceNormClassifierCV(ClassifierMixin, SelectionCV):
    """``TraceNormClassifier`` with alpha, ridge, scaling, mode weights and loss chosen by cross-validation.

    Parameters
    ----------
    alphas : int or array, default=100
        Number of alphas on a grid from ``alpha_max``, where all weights are zero, down to ``eps`` times it; or the alphas.
        The path on such a grid ends early where held-out errors have risen for a while.
    eps : float, default=1e-4
    ridges : "auto" or sequence of floats, default="auto"
        Strengths of the squared norm to try. "auto" is none, and for the best of the rest the one that is best alone.
    scaling : "auto", "modes" or None, default="auto"
        Whether to divide samples by a scale for each mode; "auto" does so where it helps ridge regression.
    loss : {"auto", "squared", "logistic", "squared_hinge"}, default="auto"
        "auto" chooses everything else with the squared loss, then tries the logistic loss too, where samples times classes
        are no more than five million numbers, and takes it if it finds more of the held-out classes.
    penalty : {"overlapped", "latent", "scaled_latent"}, default="overlapped"
    mode_weights : "auto", None, one sequence of weights, or a list of such candidates, default="auto"
        "auto" tries equal weights and each mode alone (order 3 and above, overlapped norm). None is equal weights.
    class_mode : bool or "auto", default=False
        Whether classes are one more mode; "auto" tries both.
    cv : int, splitter or iterable, default=5
        As in scikit-learn; give ``groups`` to ``fit`` for splitters that need them.
    scoring : str or callable, default=None
        What selects: None is the loss on held-out samples, from their moments where it is squared.
    one_standard_error : bool, default=False
        Choose the largest alpha whose error is within one standard error of the lowest: a simpler model, as good.
    n_jobs : int, default=None
        Folds and candidates at the same time, in threads.
    class_weight : dict or "balanced", default=None
    fit_intercept, tensor_shape, tol, max_iter, random_state, verbose
        As in ``TraceNormClassifier``.

    Attributes
    ----------
    alpha_, ridge_, mode_weights_, class_mode_, loss_, scaling_
        What was chosen.
    alphas_ : array of shape (n_alphas,)
    mse_path_ : array of shape (n_alphas, n_folds)
        Held-out loss, or score, for the chosen mode weights and ridge.
    best_score_, best_score_std_ : float
        Mean over folds of minus the loss, or of the score, at ``alpha_``; and its standard error.
    cv_results_ : dict of lists
        All candidates with their alphas, mean errors and standard errors.
    best_index_ : int
        Which of the candidates was chosen.
    best_estimator_ : TraceNormClassifier
        Fitted on all samples; its fitted attributes are attributes here too.

    Examples
    --------
    >>> from tracelearn import TraceNormClassifierCV
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, signal, W = make_low_rank_regression(200, (6, 5, 4), rank=1, random_state=0)
    >>> model = TraceNormClassifierCV(alphas=20, scoring="accuracy").fit(X, signal > 0)
    >>> model.best_score_ > 0.7
    True
    """

    _parameter_constraints = {  # noqa: RUF012
        **SelectionCV._parameter_constraints,
        "loss": [StrOptions({"auto", *CLASSIFIER_LOSSES})],
        "class_weight": TraceNormClassifier._parameter_constraints["class_weight"],
    }

    def __init__(
        self,
        alphas: Any = 100,
        *,
        eps: float = 1e-4,
        ridges: Any = "auto",
        loss: str = "auto",
        penalty: str = "overlapped",
        scaling: Any = "auto",
        mode_weights: Any = "auto",
        class_mode: Any = False,
        cv: Any = 5,
        scoring: Any = None,
        one_standard_error: bool = False,
        n_jobs: int | None = None,
        class_weight: Any = None,
        fit_intercept: bool = True,
        tensor_shape: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.alphas = alphas
        self.eps = eps
        self.ridges = ridges
        self.loss = loss
        self.penalty = penalty
        self.scaling = scaling
        self.mode_weights = mode_weights
        self.class_mode = class_mode
        self.cv = cv
        self.scoring = scoring
        self.one_standard_error = one_standard_error
        self.n_jobs = n_jobs
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.tensor_shape = tensor_shape
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def _new_model(self, **chosen: Any) -> TraceNormClassifier:
        shared = ("penalty", "class_weight", "fit_intercept", "tensor_shape", "tol", "max_iter", "verbose")
        known = {"loss": self._first_loss} | {name: getattr(self, name) for name in shared}
        return TraceNormClassifier(**(known | chosen))

    @_fit_context(prefer_skip_nested_validation=True)
    @undone_on_failure
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, **params: Any) -> Self:
        """Choose by cross-validation, then learn from all samples.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
        y : array of labels of shape (n_samples,)
        sample_weight, groups : arrays of shape (n_samples,), default=None
        **params : what a splitter asks for under other names, with scikit-learn's metadata routing
        """
        return self._select_and_fit(X, y, sample_weight, groups, params, classifier=True)

    def _known(self, model: Any) -> dict[str, Any]:
        return {"classes_": to_numpy(model.classes_)}

    def _labels(self, model: Any, batch: Batch, y: Any) -> Array:
        return to_numpy(y).ravel()  # folds are drawn on the processor, wherever the samples are

    def _coded_for(self, model: Any, batch: Batch) -> Batch:
        xp, Y = array_namespace(batch.Y), batch.Y > 0
        return replace(batch, Y=model._coded(xp.concat([~Y, Y], axis=1) if Y.shape[1] == 1 else Y))

    score = SelectionCV.score

    def decision_function(self, X: Any) -> Array:
        """Score every sample, as ``TraceNormClassifier.decision_function``."""
        return self._passed_on("decision_function", X)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class (logistic loss)."""
        return self._passed_on("predict_proba", X)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> Array:
        """Predict the logarithm of the probability of each class (logistic loss)."""
        return self._passed_on("predict_log_proba", X)
