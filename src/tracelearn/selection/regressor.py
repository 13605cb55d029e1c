"""TraceNormRegressorCV: alpha, ridge, scaling and mode weights chosen by cross-validation."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import RegressorMixin, _fit_context
from sklearn.utils import Tags

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.estimators import TraceNormRegressor
from tracelearn.estimators.base import Batch
from tracelearn.samples.undo import undone_on_failure
from tracelearn.selection.base import SelectionCV

__all__ = ["TraceNormRegressorCV"]


class TraceNormRegressorCV(RegressorMixin, SelectionCV):
    """``TraceNormRegressor`` with alpha, ridge, scaling and mode weights chosen by cross-validation.

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
    loss : {"squared", "huber"}, default="squared"
    penalty : {"overlapped", "latent", "scaled_latent"}, default="overlapped"
    mode_weights : "auto", None, one sequence of weights, or a list of such candidates, default="auto"
        "auto" tries equal weights and each mode alone (order 3 and above, overlapped norm). None is equal weights.
    class_mode : bool or "auto", default=False
        Whether targets are one more mode; "auto" tries both.
    cv : int, splitter or iterable, default=5
        As in scikit-learn; give ``groups`` to ``fit`` for splitters that need them.
    scoring : str or callable, default=None
        What selects: None is the loss on held-out samples, from their moments where it is squared.
    one_standard_error : bool, default=False
        Choose the largest alpha whose error is within one standard error of the lowest: a simpler model, as good.
    n_jobs : int, default=None
        Folds and candidates at the same time, in threads.
    huber_delta : float, default=1.35
    fit_intercept, tensor_shape, tol, max_iter, random_state, verbose
        As in ``TraceNormRegressor``.

    Attributes
    ----------
    alpha_, ridge_, mode_weights_, class_mode_, scaling_
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
    best_estimator_ : TraceNormRegressor
        Fitted on all samples; its fitted attributes are attributes here too.

    Examples
    --------
    >>> from tracelearn import TraceNormRegressorCV
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(200, (6, 5, 4), rank=1, random_state=0)
    >>> model = TraceNormRegressorCV(alphas=20).fit(X, y)
    >>> model.score(X, y) > 0.7, model.mse_path_.shape == (len(model.alphas_), 5)  # one column for each fold
    (True, True)
    """

    _parameter_constraints = {  # noqa: RUF012
        **SelectionCV._parameter_constraints,
        "loss": TraceNormRegressor._parameter_constraints["loss"],
        "huber_delta": TraceNormRegressor._parameter_constraints["huber_delta"],
    }

    def __init__(
        self,
        alphas: Any = 100,
        *,
        eps: float = 1e-4,
        ridges: Any = "auto",
        loss: str = "squared",
        penalty: str = "overlapped",
        scaling: Any = "auto",
        mode_weights: Any = "auto",
        class_mode: Any = False,
        cv: Any = 5,
        scoring: Any = None,
        one_standard_error: bool = False,
        n_jobs: int | None = None,
        huber_delta: float = 1.35,
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
        self.huber_delta = huber_delta
        self.fit_intercept = fit_intercept
        self.tensor_shape = tensor_shape
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def _new_model(self, **chosen: Any) -> TraceNormRegressor:
        shared = ("loss", "penalty", "huber_delta", "fit_intercept", "tensor_shape", "tol", "max_iter", "verbose")
        return TraceNormRegressor(**({name: getattr(self, name) for name in shared} | chosen))

    @_fit_context(prefer_skip_nested_validation=True)
    @undone_on_failure
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, **params: Any) -> Self:
        """Choose by cross-validation, then learn from all samples.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
        y : array of shape (n_samples,) or (n_samples, K)
        sample_weight, groups : arrays of shape (n_samples,), default=None
        **params : what a splitter asks for under other names, with scikit-learn's metadata routing
        """
        return self._select_and_fit(X, y, sample_weight, groups, params, classifier=False)

    def _known(self, model: Any) -> dict[str, Any]:
        return {"_single": model._single}

    def _labels(self, model: Any, batch: Batch, y: Any) -> Array:
        return to_numpy(batch.Y[:, 0] if model._single else batch.Y)  # folds are drawn on the processor

    score = SelectionCV.score

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
