"""The competitors. Each chooses its own settings on the inner folds, and scaling among them.

An entry is a function of the data set and the inner folds that returns a scikit-learn estimator for tensors. A new one is a
function and a line in ``ENTRIES``.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from joblib import Memory
from scipy.signal import savgol_filter
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeClassifierCV
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC

from benchmarks.panel.data import DataSet
from tracelearn import TensorClassifier, TensorRegressor
from tracelearn.features import ModePCA

CACHE = Path(tempfile.gettempdir()) / f"tracelearn_panel_{os.getpid()}"
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)

Folds = list[tuple[np.ndarray, np.ndarray]]
Entry = Callable[[DataSet, Folds], Any]


class Flat(TransformerMixin, BaseEstimator):
    """Write each sample as one row."""

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return X.reshape(len(X), -1)


class OneScale(TransformerMixin, BaseEstimator):
    """Centre every feature and divide all of them by one number, which keeps their ratios."""

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        self.mean_ = X.mean(axis=0)
        self.scale_ = float((X - self.mean_).std()) or 1.0
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean_) / self.scale_


class Span(TransformerMixin, BaseEstimator):
    """Turn rows into coordinates in the span of the training rows, where those are fewer than the features.

    Models with a squared norm give the same answer there, in a fraction of the time.
    """

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        n, p = X.shape
        self.basis_ = None if n >= p else np.linalg.svd(X, full_matrices=False)[2].T
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return X if self.basis_ is None else X @ self.basis_


class Windows(TransformerMixin, BaseEstimator):
    """Average over ten windows of the longest mode, as event-related responses are read."""

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        self.mode_ = 1 + int(np.argmax(X.shape[1:]))
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        parts = np.array_split(X, min(10, X.shape[self.mode_]), axis=self.mode_)
        return np.stack([part.mean(axis=self.mode_) for part in parts], axis=-1).reshape(len(X), -1)


SCALES = [OneScale(), StandardScaler()]
STRENGTHS = np.logspace(-2, 5, 15)
SMALL_STRENGTHS = np.logspace(-8, 5, 14)  # of numbers, which spectra predict by very small variations
INVERSES = np.logspace(-5, 2, 8)


def flat(model: Any, grid: dict[str, Any], inner: Folds) -> GridSearchCV:
    """A linear model of flattened samples, scaled in the way that its inner folds prefer."""
    steps = [("flat", Flat()), ("scale", OneScale()), ("span", Span()), ("model", model)]
    return searched(steps, {"scale": SCALES, **grid}, inner)


def searched(steps: list[tuple[str, Any]], grid: dict[str, Any], inner: Folds) -> GridSearchCV:
    # What comes before the model is computed once for all its strengths.
    return GridSearchCV(Pipeline(steps, memory=Memory(CACHE, verbose=0)), grid, cv=inner)


def ours(data: DataSet, inner: Folds) -> Any:
    """With its defaults; where there are groups ``fit`` is given them, and draws its own folds."""
    return TensorRegressor() if data.classes is None else TensorClassifier()


def ridge(data: DataSet, inner: Folds) -> Any:
    if data.classes is None:
        return flat(Ridge(), {"model__alpha": SMALL_STRENGTHS}, inner)
    return flat(RidgeClassifier(), {"model__alpha": STRENGTHS}, inner)


def logistic(data: DataSet, inner: Folds) -> Any:
    return None if data.classes is None else flat(LogisticRegression(max_iter=200), {"model__C": INVERSES}, inner)


def shrunken_lda(data: DataSet, inner: Folds) -> Any:
    """Of the coordinates in the span where samples are few: its covariance of all features would take minutes a fit."""
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    return None if data.classes is None else flat(model, {}, inner)


def linear_svm(data: DataSet, inner: Folds) -> Any:
    return None if data.classes is None else flat(LinearSVC(max_iter=500), {"model__C": INVERSES[:-2]}, inner)


def kernel_svm(data: DataSet, inner: Folds) -> Any:
    """A Gaussian kernel, of a width about that of scikit-learn's gamma="scale"; entries have unit variance before."""
    widths = [factor / np.prod(data.X.shape[1:]) for factor in (0.1, 0.3, 1.0, 3.0)]
    if data.classes is None:
        model: Any = TransformedTargetRegressor(SVR(cache_size=500), transformer=StandardScaler())
        grid = {"model__regressor__C": [0.1, 1.0, 10.0, 100.0], "model__regressor__gamma": widths}
    else:
        model = SVC(cache_size=500)
        grid = {"model__C": [0.1, 1.0, 10.0, 100.0], "model__gamma": widths}
    return searched([("flat", Flat()), ("scale", OneScale()), ("model", model)], {"scale": SCALES, **grid}, inner)


def extra_trees(data: DataSet, inner: Folds) -> Any:
    options = {"n_estimators": 300, "random_state": 0}
    if data.classes is None:
        model: Any = ExtraTreesRegressor(max_features=0.3, **options)
    else:
        model = ExtraTreesClassifier(max_features="sqrt", **options)
    return searched([("flat", Flat()), ("model", model)], {"model__min_samples_leaf": [1, 3]}, inner)


def pls(data: DataSet, inner: Folds) -> Any:
    if data.classes is not None:
        return None
    grid = {"scale": SCALES, "model__n_components": [1, 2, 3, 5, 8, 12]}
    return searched([("flat", Flat()), ("scale", OneScale()), ("model", PLSRegression(scale=False))], grid, inner)


class Spectral(TransformerMixin, BaseEstimator):
    """What chemometricians try before PLS along the longest mode: "snv", a derivative "d1" or "d2", or both, "snv d1"."""

    def __init__(self, steps: str = "", window: int = 15) -> None:
        self.steps = steps
        self.window = window

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        axis = 1 + int(np.argmax(X.shape[1:]))
        for step in self.steps.split():
            if step == "snv":
                spread = X.std(axis=axis, keepdims=True)
                X = (X - X.mean(axis=axis, keepdims=True)) / np.where(spread > 0, spread, 1.0)
            else:
                X = savgol_filter(X, self.window, 2, deriv=int(step[1:]), axis=axis)
        return X


class PLSOfSpectra(RegressorMixin, BaseEstimator):
    """PLS of one number, with the preprocessing, the scaling and the components that the inner folds prefer.

    All numbers of components come from one pass over the training samples, so that the grid takes little time.
    """

    def __init__(self, inner: Any = None, most: int = 20) -> None:
        self.inner = inner
        self.most = most

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        least = np.inf
        for prepare in self._grid():
            errors = np.zeros(self.most)
            for train, test in self.inner:
                scores = self._scores(prepare.fit(X[train]), X[train], y[train], X[test])
                errors += np.sum((scores - y[test, None]) ** 2, axis=0)
            if errors.min() < least:
                least, self.prepare_, self.n_components_ = errors.min(), prepare, int(np.argmin(errors)) + 1
        self.X_, self.y_ = X, y
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        scores = self._scores(self.prepare_.fit(self.X_), self.X_, self.y_, X)
        return scores[:, self.n_components_ - 1]

    def _grid(self) -> list[Pipeline]:
        steps = [Spectral(), Spectral("snv")]
        steps += [Spectral(name, window) for name in ("d1", "d2", "snv d1") for window in (11, 21)]
        return [Pipeline([("prepare", step), ("flat", Flat()), ("scale", scale)]) for step in steps for scale in SCALES]

    def _scores(self, prepare: Pipeline, X: np.ndarray, y: np.ndarray, X_new: np.ndarray) -> np.ndarray:
        """Predict by 1 to ``most`` components, as many columns."""
        Z, Z_new = prepare.transform(X), prepare.transform(X_new)
        rest, offset = Z.copy(), y.mean()
        W, P, q = [], [], []
        scores = np.empty((len(X_new), self.most))
        for k in range(self.most):
            direction = rest.T @ (y - offset)
            size = np.linalg.norm(direction)
            if size > 1e-10:  # else nothing is left to explain
                direction /= size
                component = rest @ direction
                total = component @ component
                loading = rest.T @ component / total
                rest -= np.outer(component, loading)
                W, P, q = [*W, direction], [*P, loading], [*q, (y - offset) @ component / total]
            coef = (
                np.transpose(W) @ np.linalg.solve(np.array(P) @ np.transpose(W), np.array(q)) if W else 0.0 * direction
            )
            scores[:, k] = offset + Z_new @ coef
        return scores


def spectral_pls(data: DataSet, inner: Folds) -> Any:
    """PLS after derivatives and scatter corrections, for numbers and samples that have a long mode."""
    if data.classes is not None or max(data.X.shape[1:]) < 45:
        return None
    return PLSOfSpectra(inner, min(20, *(len(train) - 2 for train, _ in inner)))


def operator_ridge(data: DataSet, inner: Folds) -> Any:
    """Ridge regression over a bank of spectral operators (nirs4all-aom), where that package is installed."""
    if data.classes is not None or max(data.X.shape[1:]) < 45:
        return None
    try:
        from aom_nirs.ridge import AOMRidgeRegressor
    except ImportError:
        return None
    return Pipeline([("flat", Flat()), ("model", AOMRidgeRegressor(selection="global", operator_bank="compact", cv=5))])


def windows_logistic(data: DataSet, inner: Folds) -> Any:
    if data.classes is None:
        return None
    grid = {"model__C": INVERSES}
    return searched(
        [("average", Windows()), ("scale", StandardScaler()), ("model", LogisticRegression(max_iter=200))], grid, inner
    )


def pca_logistic(data: DataSet, inner: Folds) -> Any:
    model = Ridge() if data.classes is None else LogisticRegression(max_iter=200)
    strength = {"model__alpha": STRENGTHS[::2]} if data.classes is None else {"model__C": INVERSES[::2]}
    steps = [("flat", Flat()), ("scale", OneScale()), ("reduce", PCA()), ("rescale", OneScale()), ("model", model)]
    return searched(steps, {"scale": SCALES, "reduce__n_components": [0.8, 0.95, 0.99], **strength}, inner)


def mpca_logistic(data: DataSet, inner: Folds) -> Any:
    model = Ridge() if data.classes is None else LogisticRegression(max_iter=200)
    strength = {"model__alpha": STRENGTHS[::2]} if data.classes is None else {"model__C": INVERSES[::2]}
    steps = [("reduce", ModePCA()), ("flat", Flat()), ("rescale", OneScale()), ("model", model)]
    return searched(steps, {"reduce__n_components": [0.8, 0.95, 0.99], "rescale": SCALES, **strength}, inner)


class TensorLy(BaseEstimator):
    """TensorLy's regression on one-hot targets, on centred samples, with an intercept from the means."""

    def __init__(self, kind: str = "cp", rank: int = 2, reg: float = 1.0) -> None:
        self.kind = kind
        self.rank = rank
        self.reg = reg

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        from tensorly.regression import CPRegressor, TuckerRegressor

        targets = self._targets(y)
        if self.kind == "tucker" and targets.ndim == 2:  # takes one target at a time
            parts = [TensorLyRegressor(self.kind, self.rank, self.reg).fit(X, column) for column in targets.T]
            self.x_mean_, self.scale_ = parts[0].x_mean_, parts[0].scale_
            self.y_mean_ = np.array([part.y_mean_ for part in parts])
            self.weights_ = np.stack([part.weights_ for part in parts], axis=1)
            return self
        self.x_mean_, self.y_mean_ = X.mean(axis=0), targets.mean(axis=0)
        self.scale_ = float((X - self.x_mean_).std()) or 1.0
        centred = (X - self.x_mean_) / self.scale_
        settings = {"reg_W": self.reg, "n_iter_max": 20, "tol": 1e-4, "random_state": 0, "verbose": 0}
        if self.kind == "cp":
            model = CPRegressor(self.rank, **settings)
        else:
            sizes = [*X.shape[1:], *targets.shape[1:]]
            model = TuckerRegressor([min(self.rank, size) for size in sizes], **settings)
        model.fit(centred, targets - self.y_mean_)
        self.weights_ = np.asarray(model.weight_tensor_).reshape(centred[0].size, *targets.shape[1:])
        return self

    def _scores(self, X: np.ndarray) -> np.ndarray:
        centred = (X - self.x_mean_) / self.scale_
        return centred.reshape(len(X), -1) @ self.weights_ + self.y_mean_

    def _targets(self, y: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class TensorLyClassifier(ClassifierMixin, TensorLy):
    def _targets(self, y: np.ndarray) -> np.ndarray:
        self.classes_, codes = np.unique(y, return_inverse=True)
        return np.eye(len(self.classes_))[codes]

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[np.argmax(self._scores(X), axis=1)]


class TensorLyRegressor(RegressorMixin, TensorLy):
    def _targets(self, y: np.ndarray) -> np.ndarray:
        return y

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self._scores(X)


def _tensorly(kind: str) -> Entry:
    def entry(data: DataSet, inner: Folds) -> Any:
        model = (TensorLyRegressor if data.classes is None else TensorLyClassifier)(kind)
        return GridSearchCV(model, {"rank": [1, 3], "reg": [1.0, 30.0]}, cv=inner)

    return entry


class Channels(TransformerMixin, BaseEstimator):
    """Show samples as channels × time, each channel repeated at some lags."""

    def __init__(self, lags: int = 0) -> None:
        self.lags = lags

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        X = X.reshape(len(X), -1, X.shape[-1])
        times = X.shape[-1] - self.lags
        return np.concatenate([X[..., lag : lag + times] for lag in range(self.lags + 1)], axis=1)


def _riemann(lags: int) -> Entry:
    """Covariances of the channels in the tangent space, for signals; with lags where that makes no huge matrices."""

    def entry(data: DataSet, inner: Folds) -> Any:
        channels = int(np.prod(data.X.shape[1:-1])) * (lags + 1)
        if data.classes is None or not data.signal or channels > 128:
            return None
        from pyriemann.estimation import Covariances
        from pyriemann.tangentspace import TangentSpace

        steps = [("channels", Channels(lags)), ("covariances", Covariances("oas")), ("tangent", TangentSpace())]
        steps += [("scale", StandardScaler()), ("model", LogisticRegression(max_iter=200))]
        return searched(steps, {"model__C": INVERSES}, inner)

    return entry


def _rocket(name: str) -> Entry:
    """Thousands of fixed or random kernels of aeon, and ridge regression, for signals."""

    def entry(data: DataSet, inner: Folds) -> Any:
        if data.classes is None or not data.signal:
            return None
        from aeon.transformations.collection import convolution_based

        kernels = getattr(convolution_based, name)(random_state=0)
        steps = [("channels", Channels()), ("kernels", kernels), ("scale", StandardScaler(with_mean=False))]
        return Pipeline([*steps, ("model", RidgeClassifierCV(alphas=np.logspace(-3, 3, 10), cv=inner))])

    return entry


ENTRIES: dict[str, Entry] = {
    "tracelearn": ours,
    "ridge": ridge,
    "logistic": logistic,
    "LDA, shrinkage": shrunken_lda,
    "linear SVM": linear_svm,
    "SVM, Gaussian kernel": kernel_svm,
    "extra trees": extra_trees,
    "PLS": pls,
    "PLS, derivatives": spectral_pls,
    "operator ridge": operator_ridge,
    "PCA, then linear": pca_logistic,
    "MPCA, then linear": mpca_logistic,
    "windows, logistic": windows_logistic,
    "TensorLy CP": _tensorly("cp"),
    "TensorLy Tucker": _tensorly("tucker"),
    "Riemann, logistic": _riemann(0),
    "Riemann, lags": _riemann(3),
    "MiniRocket, ridge": _rocket("MiniRocket"),
    "MultiRocket, ridge": _rocket("MultiRocket"),
}


def score(data: DataSet, truth: np.ndarray, predicted: np.ndarray) -> float:
    """Accuracy, or R² where the target is a number."""
    return float(r2_score(truth, predicted) if data.classes is None else accuracy_score(truth, predicted))
