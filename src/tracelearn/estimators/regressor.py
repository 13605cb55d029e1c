"""TraceNormRegressor: numbers from tensors."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from tracelearn.arrays.array_api import Array, is_non_numpy
from tracelearn.estimators.base import Survey
from tracelearn.estimators.online import OnlineModel, has_moments
from tracelearn.estimators.scores import r_squared
from tracelearn.samples.checks import float_dtype, learning, read_samples, read_targets, read_weights
from tracelearn.samples.samples import Block, Raw

__all__ = ["TraceNormRegressor"]


class TraceNormRegressor(MultiOutputMixin, RegressorMixin, OnlineModel):
    """Linear regression on samples that are tensors, with weights of low rank in every mode.

    Minimises, over the weight tensor W and the intercept b::

        mean of loss(y, <W, X> + b)  +  alpha * sum_n theta_n |W_(n)|_*  +  ridge * |W|^2

    where ``|W_(n)|_*`` is the sum of the singular values of the mode-n unfolding. The fit stops when a duality gap
    proves that its objective is within ``tol`` of the optimum, relative to the objective at W = 0.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        Strength of the trace norm; the loss is a mean, so it keeps its meaning for any number of samples. "auto" is 3 % of the
        strength from which on all weights are zero, of each target by itself: samples in volts and in microvolts give one
        model. It is a middle that many samples can live with; ``TraceNormRegressorCV`` looks for a better one.
    ridge : float, default=0.0
        Strength of the squared norm. With ``alpha=0`` the model is ridge regression.
    loss : {"squared", "huber", "poisson"} or object, default="squared"
        "huber" is linear for residuals beyond 1.35, in units of y; ``tracelearn.losses.Huber(delta)`` elsewhere. "poisson" is
        for counts, with a log link: ``predict`` returns means. An object is any other ``tracelearn.losses.Loss``.
    penalty : {"overlapped", "latent", "scaled_latent"} or object, default="overlapped"
        "overlapped" is low-rank in every mode at once, the latent norms are a sum of tensors low-rank in one mode each. An
        object is an atom of ``tracelearn.penalties`` or a sum of them: ``0.5 * Nuclear(0) + 0.5 * Nuclear(1) + 0.1 * L1()``.
    mode_weights : sequence of N floats, default=None
        The theta: how much each mode is penalised; 0 leaves a mode free. None is 1/N each ("overlapped") or 1 each.
        With ``target_mode`` the first of N + 1 weights is that of the target axis.
    scaling : "modes" or None, default=None
        "modes" divides every entry by its scale before the penalty sees it, a product of one scale for each mode, such as
        one for each channel times one for each frequency. Unlike a scale for each entry it leaves ranks alone: weights of
        scaled samples and of samples as they are, which ``coef_`` is, have the same.
    target_mode : bool, default=False
        Let the target axis be one more mode of one weight tensor, so that targets share subspaces.
    fit_intercept : bool, default=True
        The intercept is never penalised.
    tensor_shape : sequence of ints, default=None
        The shape of a sample when X comes flat, as (n_samples, n_features).
    solver : {"auto", "admm", "newton", "nystrom", "subspaces", "apg-adm", "apg-dr"} or function, default="auto"
        "auto" is "admm" for the squared loss, "newton" for the others, and "subspaces" where square matrices do not fit in
        memory: few passes over the samples for weights of low rank. "nystrom" keeps a summary of low rank of the samples
        instead, for the squared loss. The last two are the paper's accelerated
        proximal gradient with an inner loop by the alternating direction method or by Douglas-Rachford splitting.
    tol : float, default=1e-6
        Relative duality gap to reach.
    max_iter : int, default=1000
    warm_start : bool, default=False
        Start from the solution of the last fit.
    keep_moments : bool, default=False
        Let ``fit`` keep ``moments_``, p by p numbers, from which the model can go on learning, merge and forget. What
        ``partial_fit`` learns is always kept.
    forgetting : float in (0, 1], default=1.0
        What each call of ``partial_fit`` multiplies the weight of all earlier samples with.
    verbose : int, default=0
        1 says what was chosen and what came out, 2 also the duality gap on the way.

    Attributes
    ----------
    coef_ : array of shape (I1, ..., IN), or (K, I1, ..., IN) for y of shape (n_samples, K)
        Of the library, device and precision of X.
    intercept_ : float, or array of shape (K,)
    alpha_ : float, or array of shape (K,)
        The strength that was used.
    n_iter_ : int
    objective_ : float
        The minimum that was found, summed over targets.
    dual_gap_ : float
        Proven bound on its distance from the optimum, relative to the objective at W = 0; the largest over targets. It holds
        for ``coef_`` as it is handed out: weights of float32 samples are float64 where float32 is too coarse for ``tol``.
    convergence_ : NumPy array of shape (n_checks, 2)
        Iteration and largest relative duality gap at every check of the last solve; the last row is ``n_iter_`` and
        ``dual_gap_``.
    mode_ranks_ : array of ints
        Rank of the weights in each mode.
    mode_factors_ : list of (factors, singular values), one for each mode
        Factors have length 1 and are orthogonal; the entry of largest size of each is positive.
    patterns_ : array of the shape of ``coef_``
        Activation patterns ``Cov(X) W`` (Haufe et al., 2014): what the model reads, where weights also cancel noise.
        Positive where samples are larger for larger predictions; in units of X times those of the score.
    confound_coef_ : array of shape (n_confounds,) or (K, n_confounds)
        Where ``fit`` had confounds, their weights in a prediction, those of ``coef_`` times the regression that was learned:
        predictions are linear in a sample and its confounds.
    moments_ : Moments
        All that was learned from the samples, where it is kept (squared loss, unless n_samples is far below n_features);
        confounds are features after those of the samples.
    sample_shape_ : tuple of ints
    modes_ : tuple of Mode
        Names, coordinates and units of the modes of a sample, where samples of xarray, pandas or MNE brought them.
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

    def _block(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool, part: bool = False, **known: Any
    ) -> tuple[Block, tuple[int, ...]]:
        rows, shape = read_samples(self, X, reset=reset, any_library=True, finite=False)
        y = read_targets(y, rows)
        if not reset and (y.ndim == 1) != self._single:
            raise ValueError(
                f"Expected y of the order of the first batch, got shape {tuple(y.shape)}: keep its number of targets."
            )
        self._single, self._dtype = y.ndim == 1, float_dtype(rows)
        Y = y[:, None] if y.ndim == 1 else y
        self._loss().check_target(Y)
        return Block(rows, Y, read_weights(sample_weight, rows, part=part)), shape

    def _survey(self, raw: Raw, **known: Any) -> Survey:
        """Look at the targets alone: how many there are for each sample, and what all samples weigh."""
        execution, targets = raw.execution, raw.targets
        total = execution.total(lambda t: float(np.shape(t[0])[0] if t[1] is None else np.sum(t[1])), targets)
        shape = np.shape(execution.first(targets)[0])
        return Survey(math.prod(shape[1:]), total, {"_single": len(shape) == 1})

    @available_if(has_moments)
    @learning
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None) -> Self:
        """Learn from more samples; afterwards the model is the one of all samples so far, to ``tol``.

        The samples are added to ``moments_``, those before multiplied by ``forgetting``, and the solver starts from the
        last solution (the paper's Algorithm 2). Parameters are those of ``fit``.
        """
        return self._learn_and_solve(X, y, sample_weight, confounds=confounds)

    def predict(self, X: Any, confounds: Any = None) -> Array:
        """Predict the target of each sample, with the confounds of each where ``fit`` had some."""
        return self._apply("predict", X, confounds)

    def _predict(self, X: Any, confounds: Array | None = None) -> Array:
        scores = self._loss().inverse_link(self._scores(X, confounds))
        return scores[:, 0] if self._single else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None, confounds: Any = None) -> float:
        """Return the share of the variance of y that is explained, R², averaged over targets."""
        if not is_non_numpy(X) and confounds is None:
            return float(super().score(X, y, sample_weight))
        found = self.predict(X, confounds)
        return r_squared(read_targets(y, found), found, read_weights(sample_weight, found))
