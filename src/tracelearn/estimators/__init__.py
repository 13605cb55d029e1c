"""TraceNormRegressor and TraceNormClassifier: scikit-learn's manners around the solvers."""

from tracelearn.estimators.classifier import TraceNormClassifier
from tracelearn.estimators.regressor import TraceNormRegressor
from tracelearn.fitting import ZeroWeightsWarning

__all__ = ["TraceNormClassifier", "TraceNormRegressor", "ZeroWeightsWarning"]
