"""The paper's six algorithms as estimators, under the names that the paper prints.

They are the record of the paper, to compare with: its step, its bias update, its stopping rule. To learn from data of
your own, ``TraceNormRegressor`` and ``TraceNormClassifier`` solve the same problem faster, and prove their answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, move_to, to_numpy
from tracelearn.errors import warn
from tracelearn.losses import SquaredError
from tracelearn.moments import Moments
from tracelearn.paper.algorithms import Constants, Iterate, algorithm1, converge
from tracelearn.samples.checks import check_place, check_range
from tracelearn.samples.per_sample import read_labels, read_targets
from tracelearn.samples.rows import Rows, read_rows
from tracelearn.samples.scikit_learn import Interval, StrOptions
from tracelearn.samples.targets import labels_of

__all__ = ["ALGORITHMS", "Algorithm", "PaperClassifier", "PaperRegressor"]


@dataclass(frozen=True)
class Algorithm:
    """One of the six: which method finds the proximal point, and how the samples come.

    ``inner`` is ``dr`` or ``adm``; ``feed`` is ``batch`` for all samples at once, ``online`` for one at a time,
    ``minibatch`` for batches.
    """

    name: str
    inner: str
    feed: str


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("APG_DR", "dr", "batch"),
        Algorithm("OL_APG_DR", "dr", "online"),
        Algorithm("APG_ADM", "adm", "batch"),
        Algorithm("OL_APG_ADM", "adm", "online"),
        Algorithm("OL_APG_DR_miniBatch", "dr", "minibatch"),
        Algorithm("OL_APG_ADM_miniBatch", "adm", "minibatch"),
    )
}
_NOT_NEGATIVE, _POSITIVE = (Interval(Real, 0, None, closed=closed) for closed in ("left", "neither"))
_COUNT = Interval(Integral, 1, None, closed="left")


def _is_online(model: _PaperModel) -> bool:
    """Whether ``partial_fit`` is there: the paper's batch algorithms have no such thing."""
    if model.algorithm in ALGORITHMS and ALGORITHMS[model.algorithm].feed == "batch":
        raise AttributeError(
            f"Expected an online algorithm for partial_fit, got {model.algorithm!r}: use OL_{model.algorithm}, or fit."
        )
    return True


@dataclass(frozen=True, eq=False)
class _Samples:
    """Samples and targets as they were read."""

    rows: Array  # (n, p)
    Y: Array  # (n, K), classes coded as -1 and 1
    shape: tuple[int, ...]  # of a sample
    feature_names: Any
    classes: Array | None  # None for numbers
    is_single: bool  # whether the targets are one column of numbers


class _PaperModel(BaseEstimator):
    """What regressor and classifier share: everything but the reading of targets and the meaning of scores."""

    moments_: Moments
    classes_: Array
    _models: list[Iterate]  # of each target, from which an online algorithm goes on

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "algorithm": [StrOptions(set(ALGORITHMS))],
        "lam": [_NOT_NEGATIVE],
        "beta": [_POSITIVE],  # these two are divided by
        "gamma": [_POSITIVE],
        "eps1": [_NOT_NEGATIVE],
        "eps2": [_NOT_NEGATIVE],
        "max_iter": [_COUNT, None],
        "inner_iter": [_COUNT],
        "batch_size": [_COUNT],
        "fit_intercept": ["boolean"],
        "tensor_shape": ["array-like", None],
    }

    def __init__(
        self,
        algorithm: str = "APG_ADM",
        *,
        lam: float = 1.0,
        beta: float = 1e7,
        gamma: float = 1e-7,
        eps1: float = 1e-10,
        eps2: float = 1e-10,
        max_iter: int | None = None,
        inner_iter: int = 100,
        batch_size: int = 100,
        fit_intercept: bool = True,
        tensor_shape: Any = None,
    ) -> None:
        self.algorithm = algorithm
        self.lam = lam
        self.beta = beta
        self.gamma = gamma
        self.eps1 = eps1
        self.eps2 = eps2
        self.max_iter = max_iter
        self.inner_iter = inner_iter
        self.batch_size = batch_size
        self.fit_intercept = fit_intercept
        self.tensor_shape = tensor_shape

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from all samples: at once, or in their order, as the algorithm does.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
        y : targets or labels of shape (n_samples,); the regressor takes (n_samples, K) as well, each for itself
        """
        for _ in self.fit_steps(X, y):
            pass
        if not self.converged_ and ALGORITHMS[self.algorithm].feed == "batch":
            warn(
                f"Expected the paper's stopping rule (Eq. 27) to hold, got {self.n_iter_} iterations in which it did not: "
                "increase max_iter, eps1 and eps2, or use the estimators of tracelearn itself, which need far fewer.",
                ConvergenceWarning,
            )
        return self

    def fit_steps(self, X: Any, y: Any = None) -> Iterator[Self]:
        """Learn as ``fit`` does, and yield this model after every iteration, or every update of an online algorithm."""
        self._validate_params()
        return self._steps(self._read(X, y, reset=True), None, None)

    def _partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Go on with the samples of an online algorithm, or begin with them."""
        self._validate_params()
        past = getattr(self, "moments_", None)
        batch = self._read(X, y, reset=past is None, classes=classes)
        for _ in self._steps(batch, past, None if past is None else self._models):
            pass
        return self

    def _steps(self, samples: _Samples, past: Moments | None, models: list[Iterate] | None) -> Iterator[Self]:
        """Run the algorithm from where it ended, if it did; yield this model after every iteration or update."""
        inner, feed = ALGORITHMS[self.algorithm].inner, ALGORITHMS[self.algorithm].feed
        constants = Constants(inner, self.lam, self.beta, self.gamma, self.eps1, self.eps2, self.inner_iter)
        rows, Y, shape = samples.rows, samples.Y, samples.shape
        if feed == "batch":
            runs = [
                algorithm1(target, shape, constants, fit_intercept=self.fit_intercept)
                for target in _targets(Moments.of(rows, Y))
            ]
            iterates: list[Any] = [None] * len(runs)
            for _ in range(self.max_iter or 1000):
                iterates = [next(run, last) for run, last in zip(runs, iterates, strict=True)]
                yield self._publish(samples, iterates, None)
                if self.converged_:
                    return
            return
        size = 1 if feed == "online" else self.batch_size
        for begin in range(0, rows.shape[0], size):
            X, y = rows[begin : begin + size, ...], Y[begin : begin + size, ...]
            past = Moments.of(X, y) if past is None else past.updated(X, y)
            starts: list[Any] = models or [None] * Y.shape[1]
            models = [
                converge(
                    target, shape, constants, start, max_iter=self.max_iter or 10, fit_intercept=self.fit_intercept
                )
                for target, start in zip(_targets(past), starts, strict=True)
            ]
            yield self._publish(samples, models, past)

    def _publish(self, samples: _Samples, models: list[Iterate], past: Moments | None) -> Self:
        """Write the fitted attributes, which nothing else does: of the samples, the models of all targets, and their past."""
        self.sample_shape_ = samples.shape
        self.n_features_in_ = math.prod(samples.shape)
        if samples.feature_names is not None:
            self.feature_names_in_ = samples.feature_names
        if samples.classes is not None:
            self.classes_ = samples.classes
        if past is not None:
            self.moments_ = past
        elif hasattr(self, "moments_"):  # of an online algorithm that was fitted before
            del self.moments_
        self._models = models
        W = array_namespace(models[0].W).stack([model.W for model in models])
        b = move_to(np.array([model.b for model in models]), W, W.dtype)
        self.coef_ = models[0].W if samples.is_single else W
        self.intercept_ = models[0].b if samples.is_single else b
        self.n_iter_ = max(model.n_iter for model in models)
        self.n_seen_ = int(models[0].n_seen)
        self.converged_ = all(model.converged for model in models)
        return self

    def _read(self, X: Any, y: Any, *, reset: bool, classes: Any = None) -> _Samples:
        """Check samples and targets, which must be like those before unless all begins anew."""
        if not reset:
            check_place(X, self.moments_.x_mean, f"{type(self).__name__}.partial_fit()")
        read = self._rows(X, reset=reset)
        Y, labels, is_single = self._read_targets(y, read.rows, reset, classes)
        check_range(read.rows, "X")
        check_range(Y, "y")
        return _Samples(read.rows, Y, read.sample_shape, read.feature_names, labels, is_single)

    def _rows(self, X: Any, *, reset: bool) -> Rows:
        """Check samples, which must be like those before unless all begins anew."""
        return read_rows(
            X,
            name=type(self).__name__,
            tensor_shape=self.tensor_shape,
            known_shape=None if reset else self.sample_shape_,
            known_names=None if reset else getattr(self, "feature_names_in_", None),
            any_library=True,
        )

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        check_place(X, self.coef_, f"{type(self).__name__}.predict()")
        rows = self._rows(X, reset=False).rows
        coef = array_namespace(self.coef_).reshape(self.coef_, (-1, rows.shape[1]))
        return as_dtype(rows, coef.dtype) @ coef.T + self.intercept_

    def _read_targets(self, y: Any, rows: Array, reset: bool, classes: Any) -> tuple[Array, Array | None, bool]:
        """Return coded targets (n, K), the classes if they are labels, and whether they are a single column of numbers."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.sparse = True
        return tags


def _targets(past: Moments) -> list[Moments]:
    """Split moments of K targets, which share all that is about the samples, into K of one."""
    columns = [slice(k, k + 1) for k in range(past.n_targets)]
    return [replace(past, y_mean=past.y_mean[k], cross=past.cross[:, k], target_sq=past.target_sq[k]) for k in columns]


class PaperRegressor(MultiOutputMixin, RegressorMixin, _PaperModel):
    """Linear regression on tensors by one of the paper's six algorithms, as printed.

    Minimises ``sum of (y - <W, X> - b)^2 + lam / N sum_n |W_(n)|_*``. The loss is a sum: the ``alpha`` of
    ``TraceNormRegressor`` is ``lam / n_samples``.

    Parameters
    ----------
    algorithm : {"APG_DR", "APG_ADM", "OL_APG_DR", "OL_APG_ADM", "OL_APG_DR_miniBatch", "OL_APG_ADM_miniBatch"}
        All samples at once, one at a time (OL) or in batches; Douglas-Rachford splitting (DR) or the alternating
        direction method (ADM) for the proximal point.
    lam : float, default=1.0
    beta, gamma : float, default=1e7 and 1e-7
        The step of the inner methods, ADM and DR. They suit the paper's size; elsewhere they must scale with the
        Lipschitz constant.
    eps1, eps2 : float, default=1e-10
        The stopping rule of Eq. 27, for weights and bias.
    max_iter : int, default=None
        Largest number of iterations, of an update where the algorithm learns online. None is 1000 for the batch algorithms
        and 10 for the others, which the printed tolerance would keep busy for minutes with the second sample.
    inner_iter : int, default=100
        Largest number of iterations of a proximal point.
    batch_size : int, default=100
        Samples of an update, for the two miniBatch algorithms.
    fit_intercept : bool, default=True
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    coef_ : array of shape (I1, ..., IN), or (K, I1, ..., IN) for y of shape (n_samples, K)
    intercept_ : float, or array of shape (K,)
    n_iter_ : int
        Iterations, of the last update where the algorithm learns online.
    n_seen_ : int
        Samples learned from.
    converged_ : bool
        Whether the stopping rule held, in the last update where the algorithm learns online.
    moments_ : Moments
        The paper's past information, of the online algorithms.
    sample_shape_ : tuple of ints
    n_features_in_ : int

    Examples
    --------
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.paper import PaperRegressor
    >>> X, y, W = make_low_rank_regression(200, (4, 3, 2), rank=1, random_state=0)
    >>> model = PaperRegressor("OL_APG_ADM_miniBatch", batch_size=50).fit(X, y)
    >>> model.n_seen_, model.n_iter_, model.coef_.shape
    (200, 10, (4, 3, 2))
    """

    @available_if(_is_online)
    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn from more samples, one at a time or in batches of ``batch_size`` (Algorithm 2)."""
        return self._partial_fit(X, y)

    def predict(self, X: Any) -> Array:
        """Predict a target for each sample."""
        scores = self._scores(X)
        return scores[:, 0] if self.coef_.ndim == len(self.sample_shape_) else scores

    def _read_targets(self, y: Any, rows: Array, reset: bool, classes: Any) -> tuple[Array, Array | None, bool]:
        Y = read_targets(y, rows)
        columns = Y[:, None] if Y.ndim == 1 else Y
        if not reset and columns.shape[1] != self.moments_.n_targets:
            raise ValueError(
                f"Expected y of {self.moments_.n_targets} targets as in the first batch, got {columns.shape[1]}."
            )
        return columns, None, Y.ndim == 1


class PaperClassifier(ClassifierMixin, _PaperModel):
    """Linear classification of tensors by one of the paper's six algorithms, as printed.

    Classes are coded as -1 and 1 and learned by the squared loss, more than two classes each against all others.
    Parameters and attributes are those of ``PaperRegressor``, with these exceptions.

    Attributes
    ----------
    classes_ : array of shape (K,)
    coef_ : array of shape (1, I1, ..., IN) for two classes, (K, I1, ..., IN) for more
    intercept_ : array of shape (1,) or (K,)

    Examples
    --------
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.paper import PaperClassifier
    >>> X, y, W = make_low_rank_regression(200, (4, 3, 2), rank=1, random_state=0)
    >>> model = PaperClassifier("OL_APG_DR", max_iter=2, inner_iter=2).partial_fit(X, y > 0, classes=[False, True])
    >>> model.n_seen_, model.coef_.shape
    (200, (1, 4, 3, 2))
    """

    @available_if(_is_online)
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn from more samples, one at a time or in batches of ``batch_size`` (Algorithm 2).

        ``classes`` are all labels that will ever come, needed in the first call.
        """
        if classes is None and not hasattr(self, "moments_"):
            raise ValueError(
                "Expected classes in the first call of partial_fit, got None: name all labels that will ever come."
            )
        return self._partial_fit(X, y, None if classes is None else np.unique(to_numpy(classes)))

    def decision_function(self, X: Any) -> Array:
        """Score every sample: one column for each class, or for two classes one score that is positive for the second."""
        scores = self._scores(X)
        return scores[:, 0] if self.classes_.shape[0] == 2 else scores

    def predict(self, X: Any) -> Array:
        """Predict the label of each sample."""
        return labels_of(self.decision_function(X), self.classes_)

    def _read_targets(self, y: Any, rows: Array, reset: bool, classes: Any) -> tuple[Array, Array | None, bool]:
        if not reset:
            if classes is not None and not np.array_equal(classes, to_numpy(self.classes_)):
                first = to_numpy(self.classes_).tolist()
                raise ValueError(f"Expected the classes of the first call, {first}, got {classes.tolist()}.")
            classes = self.classes_
        y, labels = read_labels(y, rows, classes)
        codes = SquaredError().encode(as_dtype(move_to(y[:, None] == labels[None, :], rows), rows.dtype))
        return codes, labels, False
