"""Low-rank linear models for samples that are tensors, with a proof of optimality."""

from tracelearn.estimators import TraceNormClassifier, TraceNormRegressor
from tracelearn.model_selection import TraceNormClassifierCV, TraceNormRegressorCV
from tracelearn.moments import Moments
from tracelearn.penalties import tensor_trace_norm

__all__ = [
    "Moments",
    "TraceNormClassifier",
    "TraceNormClassifierCV",
    "TraceNormRegressor",
    "TraceNormRegressorCV",
    "tensor_trace_norm",
]
__version__ = "0.1.0.dev0"
