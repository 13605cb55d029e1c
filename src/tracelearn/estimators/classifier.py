"""TraceNormClassifier: labels from tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.estimators.online import OnlineModel, has_moments
from tracelearn.estimators.scores import score_labels
from tracelearn.fitting import loss_named
from tracelearn.losses import Loss
from tracelearn.samples.by_name import with_targets
from tracelearn.samples.learning import learning
from tracelearn.samples.reading import Spec
from tracelearn.samples.scikit_learn import StrOptions
from tracelearn.samples.targets import labels_of, loss_for

__all__ = ["PredictsLabels", "TraceNormClassifier"]


def _has_probabilities(estimator: Any) -> bool:
    """Tell whether the loss of an estimator gives probabilities; scikit-learn hides ``predict_proba`` where it does not."""
    if not loss_named(estimator.loss, for_classes=True).has_probabilities:
        raise AttributeError(
            f"probability estimates are not available for loss={estimator.loss!r}: use loss='log_loss', TensorClassifier, or "
            "CalibratedClassifierCV"
        )
    return True


class PredictsLabels(ClassifierMixin):
    """What linear models of classes predict; they are a ``LinearModel``."""

    loss: Any
    _spec: Spec
    _applied: Callable[..., Any]
    classes_: Array

    def decision_function(self, X: Any, confounds: Any = None) -> Array:
        """Score every sample: one column for each class, or for two classes one score that is positive for the second."""
        check_is_fitted(self, "coef_")
        scores = self._applied(_scores, "decision_function", X, confounds)
        return scores[:, 0] if self.classes_.shape[0] == 2 else scores

    def predict(self, X: Any, confounds: Any = None) -> Array:
        """Predict the label of each sample: in NumPy if the labels of ``fit`` were, else in the library of its samples."""
        check_is_fitted(self, "coef_")
        return self._applied(partial(_labels, self.classes_), "predict", X, confounds)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None) -> float:
        """Return the share of labels that are right; epochs of MNE bring their own, as in ``fit``."""
        X, y, sample_weight = with_targets(X, y, sample_weight, getattr(self, "modes_", None))
        return score_labels(y, self.predict(X, confounds), sample_weight)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any, confounds: Any = None) -> Array:
        """Predict the probability of each class, with the logistic loss."""
        check_is_fitted(self, "coef_")
        return self._applied(partial(_probabilities, self._fitted_loss()), "predict_proba", X, confounds)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any, confounds: Any = None) -> Array:
        """Predict the logarithm of the probability of each class, with the logistic loss."""
        check_is_fitted(self, "coef_")
        return self._applied(partial(_log_probabilities, self._fitted_loss()), "predict_log_proba", X, confounds)

    def _fitted_loss(self) -> Loss:
        """Return the loss of the fit, which for more than two classes may be another than ``loss`` names."""
        return loss_for(loss_named(self.loss, for_classes=True), self._spec.n_targets)


class TraceNormClassifier(PredictsLabels, OnlineModel):
    """Linear classification of samples that are tensors, with weights of low rank in every mode.

    Minimises, over the weight tensor W and the intercept b::

        mean of loss(y, <W, X> + b)  +  alpha * sum_n theta_n |W_(n)|_*  +  ridge * |W|^2

    where ``|W_(n)|_*`` is the sum of the singular values of the mode-n unfolding. The fit stops when a duality gap
    proves that its objective is within ``tol`` of the optimum, relative to the objective at W = 0.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        Strength of the trace norm. The loss is a mean, so alpha need not change with the number of samples. "auto" is 3 % of
        the smallest strength for which all weights are zero, for each target: samples in volts and in microvolts give the
        same model. It is a moderate value; ``TensorClassifier`` looks for a better one.
    ridge : float, default=0.0
        Strength of the squared norm. With ``alpha=0`` the model is ridge regression.
    loss : {"squared_error", "log_loss", "squared_hinge"} or object, default="squared_error"
        "squared_error" codes classes as -1 and 1; "log_loss", multinomial for more than two classes, gives probabilities.
    penalty : {"overlapped", "latent", "scaled_latent"} or object, default="overlapped"
        "overlapped" gives low rank in every mode at once, the latent norms a sum of tensors of low rank in one mode each. An
        object is an atom of ``tracelearn.penalties`` or a sum of them: ``0.5 * Nuclear(0) + 0.5 * Nuclear(1) + 0.1 * L1()``.
    mode_weights : sequence of N floats, default=None
        The theta: how much each mode is penalised; 0 means no penalty. None is 1/N each ("overlapped") or 1 each.
        With ``target_mode`` the first of N + 1 weights is that of the class axis.
    scaling : "modes" or None, default=None
        "modes" divides every entry by a product of one scale for each mode, such as one for each channel times one for each
        frequency, before it is penalised. Unlike a scale for each entry this does not change ranks: ``coef_``, for the
        original samples, has the ranks of the weights of the scaled ones.
    target_mode : bool, default=False
        Whether the classes form one more mode of one weight tensor, so that they share subspaces.
    class_weight : dict or "balanced", default=None
    fit_intercept : bool, default=True
        The intercept is never penalised.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).
    solver : {"auto", "admm", "newton", "apg", "subspaces"} or function, default="auto"
        "auto" is "admm" for the squared loss, "newton" for the others, and "subspaces" where square matrices do not fit in
        memory: few passes over the samples for weights of low rank. "apg" is accelerated proximal gradient, the paper's method
        with a tight step.
    tol : float, default=1e-6
        Relative duality gap to reach.
    max_iter : int, default=1000
    warm_start : bool, default=False
        Start from the solution of the last fit.
    keep_moments : bool, default=False
        Whether ``fit`` keeps ``moments_``, p by p numbers, with which the model can continue to learn, merge and forget.
        ``partial_fit`` always keeps them. Squared loss only.
    forgetting : float in (0, 1], default=1.0
        The factor by which each call of ``partial_fit`` multiplies the weight of all earlier samples.
    verbose : int, default=0
        1 reports choices and results, 2 also the duality gap during the fit.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coef_ : array of shape (K, I1, ..., IN)
        One weight tensor for each class, or a single one for two classes; of the library, device and precision of X.
    intercept_ : array of shape (K,)
    alpha_ : float, or array of shape (K,)
        The alpha that was used.
    n_iter_ : int
    objective_ : float
        The objective of the fitted model, summed over targets.
    dual_gap_ : float
        Proven bound on its distance from the optimum, relative to the objective at W = 0; the largest over targets. It holds
        for ``coef_`` as returned: weights of float32 samples are float64 where float32 is too coarse for ``tol``.
    convergence_ : array of shape (n_checks, 2)
        Iteration and largest relative duality gap at every check of the last solve; the last row is ``n_iter_`` and
        ``dual_gap_``.
    mode_ranks_ : array of ints
        Rank of the weights in each mode.
    mode_factors_ : list of (factors, singular values), one for each mode
        Factors have length 1 and are orthogonal; the entry of largest size of each is positive.
    patterns_ : array of the shape of ``coef_``
        Activation patterns ``Cov(X) W`` (Haufe et al., 2014): where the signal is. Weights also cancel noise.
        Positive where samples are larger for the second of two classes, or for the class of its row; in units of X times
        those of the score.
    confound_coef_ : array of shape (1 or K, n_confounds)
        If ``fit`` had confounds, their weights in a score: those of ``coef_`` times the learned regression. Scores are linear
        in a sample and its confounds.
    moments_ : Moments
        Sufficient statistics of the samples, if they are kept; confounds are features after those of the samples.
    sample_shape_ : tuple of ints
    modes_ : tuple of Mode
        Names, coordinates and units of the modes of a sample, if xarray, pandas or MNE provided them.
    n_features_in_ : int
        Number of entries of a sample.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import TraceNormClassifier
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, signal, W = make_low_rank_regression(400, (6, 5, 4), rank=1, random_state=0)
    >>> y = np.where(signal > 0, "left", "right")
    >>> model = TraceNormClassifier(alpha=0.05).fit(X, y)
    >>> model.classes_, model.coef_.shape
    (array(['left', 'right'], dtype='<U5'), (1, 6, 5, 4))
    >>> model.score(X, y) > 0.8
    True
    """

    _parameter_constraints = {  # noqa: RUF012
        **OnlineModel._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
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
        class_weight: Any = None,
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
        super().__init__(
            alpha,
            ridge=ridge,
            loss=loss,
            penalty=penalty,
            mode_weights=mode_weights,
            target_mode=target_mode,
            scaling=scaling,
            fit_intercept=fit_intercept,
            tensor_shape=tensor_shape,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            warm_start=warm_start,
            keep_moments=keep_moments,
            forgetting=forgetting,
            verbose=verbose,
        )
        self.class_weight = class_weight

    classes_: Array

    @available_if(has_moments)
    @learning
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None, confounds: Any = None
    ) -> Self:
        """Learn from more samples; afterwards the model is the one of all samples so far, to ``tol``.

        The samples are added to ``moments_``, those before multiplied by ``forgetting``, and the solver starts from the
        last solution (the paper's Algorithm 2).

        Parameters
        ----------
        X, y, sample_weight, confounds : as for ``fit``
        classes : array of all labels that will ever come, needed in the first call
        """
        return self._learn(X, y, sample_weight, classes, confounds)


# What the methods make of scores (n, K). Functions of the module, not lambdas: they are pickled for the workers of a cluster.


def _scores(scores: Array) -> Array:
    """Return scores unchanged: ``decision_function`` has nothing to make of them."""
    return scores


def _labels(classes: Array, scores: Array) -> Array:
    return labels_of(scores[:, 0] if classes.shape[0] == 2 else scores, classes)


def _log_probabilities(loss: Loss, scores: Array) -> Array:
    with np.errstate(over="ignore"):  # an infinite difference of scores: probability zero
        return loss.log_probabilities(scores)


def _probabilities(loss: Loss, scores: Array) -> Array:
    return array_namespace(scores).exp(_log_probabilities(loss, scores))
