"""TraceNormRegressor: numbers from tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array
from tracelearn.estimators.online import OnlineModel, has_moments
from tracelearn.estimators.scores import score_numbers
from tracelearn.fitting import loss_named
from tracelearn.losses import Loss
from tracelearn.samples.by_name import with_targets
from tracelearn.samples.learning import learning
from tracelearn.samples.reading import Spec

__all__ = ["PredictsNumbers", "TraceNormRegressor"]


class PredictsNumbers(RegressorMixin):
    """What linear models of numbers predict; they are a ``LinearModel``."""

    loss: Any
    _spec: Spec
    _applied: Callable[..., Any]

    def predict(self, X: Any, confounds: Any = None) -> Array:
        """Predict the target of each sample, with the confounds of each where ``fit`` had some."""
        check_is_fitted(self, "coef_")
        loss = loss_named(self.loss, for_classes=False)
        return self._applied(partial(_predictions, loss, self._spec.is_single), "predict", X, confounds)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None) -> float:
        """Return the share of the variance of y that is explained, R², averaged over targets."""
        X, y, sample_weight = with_targets(X, y, sample_weight, getattr(self, "modes_", None))
        return score_numbers(y, self.predict(X, confounds), sample_weight)


class TraceNormRegressor(MultiOutputMixin, PredictsNumbers, OnlineModel):
    """Linear regression on samples that are tensors, with weights of low rank in every mode.

    Minimises, over the weight tensor W and the intercept b::

        mean of loss(y, <W, X> + b)  +  alpha * sum_n theta_n |W_(n)|_*  +  ridge * |W|^2

    where ``|W_(n)|_*`` is the sum of the singular values of the mode-n unfolding. The fit stops when a duality gap
    proves that its objective is within ``tol`` of the optimum, relative to the objective at W = 0.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        Strength of the trace norm. The loss is a mean, so alpha need not change with the number of samples. "auto" is 3 % of
        the smallest strength for which all weights are zero, for each target: samples in volts and in microvolts give the
        same model. It is a moderate value; ``TensorRegressor`` looks for a better one.
    ridge : float, default=0.0
        Strength of the squared norm. With ``alpha=0`` the model is ridge regression.
    loss : {"squared_error", "huber", "poisson"} or object, default="squared_error"
        "huber" is linear for residuals beyond 1.35, in units of y; ``tracelearn.losses.Huber(delta)`` elsewhere. "poisson" is
        for counts, with a log link: ``predict`` returns means. An object is any other ``tracelearn.losses.Loss``.
    penalty : {"overlapped", "latent", "scaled_latent"} or object, default="overlapped"
        "overlapped" gives low rank in every mode at once, the latent norms a sum of tensors of low rank in one mode each. An
        object is an atom of ``tracelearn.penalties`` or a sum of them: ``0.5 * Nuclear(0) + 0.5 * Nuclear(1) + 0.1 * L1()``.
    mode_weights : sequence of N floats, default=None
        The theta: how much each mode is penalised; 0 means no penalty. None is 1/N each ("overlapped") or 1 each.
        With ``target_mode`` the first of N + 1 weights is that of the target axis.
    scaling : "modes" or None, default=None
        "modes" divides every entry by a product of one scale for each mode, such as one for each channel times one for each
        frequency, before it is penalised. Unlike a scale for each entry this does not change ranks: ``coef_``, for the
        original samples, has the ranks of the weights of the scaled ones.
    target_mode : bool, default=False
        Whether the targets form one more mode of one weight tensor, so that they share subspaces.
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
    coef_ : array of shape (I1, ..., IN), or (K, I1, ..., IN) for y of shape (n_samples, K)
        Of the library, device and precision of X.
    intercept_ : float, or array of shape (K,)
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
        Positive where samples are larger for larger predictions; in units of X times those of the score.
    confound_coef_ : array of shape (n_confounds,) or (K, n_confounds)
        If ``fit`` had confounds, their weights in a prediction: those of ``coef_`` times the learned regression. Predictions
        are linear in a sample and its confounds.
    moments_ : Moments
        Sufficient statistics of the samples, if they are kept; confounds are features after those of the samples.
    sample_shape_ : tuple of ints
    modes_ : tuple of Mode
        Names, coordinates and units of the modes of a sample, if xarray, pandas or MNE provided them.
    n_features_in_ : int
        Number of entries of a sample.

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(500, (6, 5, 4), rank=1, random_state=0)
    >>> model = TraceNormRegressor(alpha=2.0).fit(X, y)
    >>> model.coef_.shape, model.mode_ranks_
    ((6, 5, 4), array([1, 1, 1]))
    >>> model.dual_gap_ <= 1e-6
    True
    """

    @available_if(has_moments)
    @learning
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None) -> Self:
        """Learn from more samples; afterwards the model is the one of all samples so far, to ``tol``.

        The samples are added to ``moments_``, those before multiplied by ``forgetting``, and the solver starts from the
        last solution (the paper's Algorithm 2). Parameters are those of ``fit``.
        """
        return self._learn(X, y, sample_weight, None, confounds)


def _predictions(loss: Loss, is_single: bool, scores: Array) -> Array:
    """Turn scores (n, K) into predictions; a single target has no axis."""
    predictions = loss.inverse_link(scores)
    return predictions[:, 0] if is_single else predictions
