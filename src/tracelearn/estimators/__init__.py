"""TraceNormRegressor and TraceNormClassifier: scikit-learn's manners around the solvers."""

from tracelearn.estimators.base import ZeroWeightsWarning
from tracelearn.estimators.classifier import TraceNormClassifier
from tracelearn.estimators.regressor import TraceNormRegressor

__all__ = ["TraceNormClassifier", "TraceNormRegressor", "ZeroWeightsWarning"]
