"""TraceNormClassifier: labels from tensors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import compute_sample_weight
from sklearn.utils.metaestimators import available_if

from tracelearn.arrays.array_api import Array, array_namespace, is_non_numpy, move_to, to_numpy, widest
from tracelearn.errors import InputError
from tracelearn.estimators.base import Survey
from tracelearn.estimators.classes import labels_of, recode, union
from tracelearn.estimators.online import OnlineModel, has_moments
from tracelearn.estimators.scores import accuracy
from tracelearn.losses import n_columns
from tracelearn.moments import Moments
from tracelearn.samples.checks import learning, read_labels, read_samples, read_weights
from tracelearn.samples.samples import Block, LabelCount, Raw, label_counts, unnamed
from tracelearn.samples.scikit_learn import StrOptions

__all__ = ["TraceNormClassifier"]


def _has_probabilities(estimator: Any) -> bool:
    if not estimator._loss().has_probabilities:
        raise AttributeError(
            f"Expected loss='log_loss' for probabilities, got {estimator.loss!r}: use it, TensorClassifier or "
            "CalibratedClassifierCV."
        )
    return True


class TraceNormClassifier(ClassifierMixin, OnlineModel):
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
        memory: few passes over the samples for weights of low rank. "apg" is accelerated proximal gradient, as in the paper's
        Algorithm 1, with the tight step.
    tol : float, default=1e-6
        Relative duality gap to reach.
    max_iter : int, default=1000
    warm_start : bool, default=False
        Start from the solution of the last fit.
    keep_moments : bool, default=False
        Whether ``fit`` keeps ``moments_``, p by p numbers, with which the model can continue to learn, merge and forget.
        ``partial_fit`` always keeps them.
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
    convergence_ : NumPy array of shape (n_checks, 2)
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
        Sufficient statistics of the samples, if they are kept (squared loss, unless n_samples is far below n_features);
        confounds are features after those of the samples.
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
    _learns_classes = True
    _class_map: Array | None = None  # between the scores of all classes, where a search has found that it helps

    def _block(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        reset: bool,
        classes: Any = None,
        grow: bool = False,
        part: bool = False,
        **known: Any,
    ) -> tuple[Block, tuple[int, ...]]:
        rows, shape = read_samples(self, X, reset=reset, any_library=True, finite=False)
        y, labels = read_labels(y, rows, classes, least=1 if grow else 2)
        if grow and classes is None and not reset:
            labels = move_to(union(self.classes_, labels), labels)
        self.classes_ = labels
        weight = read_weights(sample_weight, rows, part=part)
        members = move_to(y[:, None] == labels[None, :], rows)
        if self.class_weight is not None:
            balance = self._balance(y, members)
            weight = balance if weight is None else move_to(balance, rows, weight.dtype) * weight
            weight = read_weights(weight, rows, part=part)
        columns = array_namespace(members).astype(members, widest(members)["dtype"])
        return Block(rows, self._loss(n_columns(columns.shape[1])).encode(columns), weight), shape

    def _balance(self, y: Array, members: Array) -> Array:
        """Weigh every sample by its class."""
        if not is_non_numpy(y):
            return compute_sample_weight(self.class_weight, y)
        xp, count = array_namespace(y), members.shape[1]
        columns = xp.astype(members, widest(y)["dtype"])
        if isinstance(self.class_weight, str):
            balance = y.shape[0] / (count * xp.sum(columns, axis=0))
        else:
            names = to_numpy(self.classes_).tolist()
            balance = move_to(np.array([float(self.class_weight.get(name, 1.0)) for name in names]), y, columns.dtype)
        return columns @ balance

    def _survey(self, raw: Raw, *, classes: Any = None, **known: Any) -> Survey:
        """Look at the labels alone: which classes there are, how often, and what all samples weigh."""
        found: LabelCount = raw.execution.total(lambda t: label_counts(*t), raw.targets)
        counts, classes = found.found, found.classes if classes is None else classes
        self._check_learned(classes)
        weights = self.class_weight
        if isinstance(weights, str):  # the shares of classes are known only from all blocks together
            n = sum(count for count, _ in counts.values())
            weights = {label: n / (len(counts) * count) for label, (count, _) in counts.items()}
        total = sum(weight * (weights or {}).get(label, 1.0) for label, (_, weight) in counts.items())
        n_targets = n_columns(len(classes))
        return Survey(n_targets, total, {"classes_": classes}, {"class_weight": weights}, {"classes": classes})

    def _check_learned(self, classes: Any = None) -> None:
        known = to_numpy(self.classes_ if classes is None else classes)
        if len(known) < 2:
            raise ValueError(
                f"Expected at least two classes in y, got one class, {known.tolist()[0]!r}: add samples of another."
            )

    def _known(self, classes: Any, *, grow: bool) -> dict[str, Any]:
        """Return the classes that samples may have: those of the first call, or with ``grow`` None for any."""
        self._refuse_balanced()
        before = self.classes_ if hasattr(self, "moments_") else None
        named = None if classes is None else np.unique(to_numpy(classes))
        if before is None and named is None and not grow:
            raise ValueError(
                "Expected classes in the first call of partial_fit, got None: name all labels that will ever come."
            )
        if before is not None and named is not None and not np.array_equal(named, to_numpy(before)):
            known = to_numpy(before).tolist()
            raise ValueError(f"Expected the classes of the first call, {known}, got {named.tolist()}.")
        chosen = None if grow and named is None else before if named is None else named
        return {"classes": chosen, "grow": grow}

    def _recoded(self, moments: Moments, before: Any) -> Moments:
        return recode(moments, before, self.classes_)

    def _coded_alike(self, found: Any, classes: Any) -> tuple[Moments, dict[str, Any]]:
        known = self._known(classes, grow=False)["classes"]
        return recode(found.moments_, found.classes_, known), {"classes_": known}

    def _aligned(self, other: Any) -> tuple[Moments, Moments, dict[str, Any]]:
        self._refuse_balanced()
        own, more = self._moments_of(self), self._others(other)
        if isinstance(other, Moments):
            return own, more, {}
        known = move_to(union(self.classes_, other.classes_), self.classes_)
        return recode(own, self.classes_, known), recode(more, other.classes_, known), {"classes_": known}

    def _refuse_balanced(self) -> None:
        if self.class_weight == "balanced":
            raise ValueError(
                "Expected class_weight to be a dict or None for partial_fit, merge and forget, got 'balanced': the shares of "
                "the classes are not known before the last batch, so pass sample_weight instead."
            )

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
        return self._learn_and_solve(X, y, sample_weight, classes, confounds)

    def decision_function(self, X: Any, confounds: Any = None) -> Array:
        """Score every sample: one column for each class, or for two classes one score that is positive for the second."""
        return self._apply("decision_function", X, confounds)

    def _decision_function(self, X: Any, confounds: Array | None = None) -> Array:
        scores = self._scores(X, confounds)
        if self._class_map is not None:
            shown = move_to(self._class_map, scores, scores.dtype)
            scores = scores @ shown[:-1, :] + shown[-1, :]
        return scores[:, 0] if self.classes_.shape[0] == 2 else scores

    def predict(self, X: Any, confounds: Any = None) -> Array:
        """Predict the label of each sample: in NumPy if the labels of ``fit`` were, else in the library of its samples."""
        return self._apply("predict", X, confounds)

    def _predict(self, X: Any, confounds: Array | None = None) -> Array:
        return labels_of(self._decision_function(X, confounds), self.classes_)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None) -> float:
        """Return the share of labels that are right; epochs of MNE bring their own, as in ``fit``."""
        X, y, _ = unnamed(X, y, getattr(self, "modes_", None))
        if y is None:
            raise InputError("Expected a label for each sample, got y=None: score requires y to be passed.")
        found = self.predict(X, confounds)
        if not is_non_numpy(self.classes_):
            weight = None if sample_weight is None else to_numpy(sample_weight)
            return float(accuracy_score(to_numpy(y) if is_non_numpy(y) else y, found, sample_weight=weight))
        y = array_namespace(found).reshape(move_to(y, found), found.shape)
        return accuracy(y, found, read_weights(sample_weight, found))

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any, confounds: Any = None) -> Array:
        """Predict the probability of each class (logistic loss)."""
        return self._apply("predict_proba", X, confounds)

    def _predict_proba(self, X: Any, confounds: Array | None = None) -> Array:
        logs = self._predict_log_proba(X, confounds)
        return array_namespace(logs).exp(logs)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any, confounds: Any = None) -> Array:
        """Predict the logarithm of the probability of each class (logistic loss)."""
        return self._apply("predict_log_proba", X, confounds)

    def _predict_log_proba(self, X: Any, confounds: Array | None = None) -> Array:
        with np.errstate(over="ignore"):  # scores so far apart that their difference is infinite: probability zero
            return self._loss().log_probabilities(self._scores(X, confounds))
