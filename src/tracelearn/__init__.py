"""Low-rank linear models for samples that are tensors, with a proof of optimality."""

from tracelearn.estimators import TraceNormClassifier, TraceNormRegressor
from tracelearn.files import load, save
from tracelearn.hierarchy import HierarchicalTraceNormClassifier
from tracelearn.model_selection import TraceNormClassifierCV, TraceNormRegressorCV, trace_norm_path
from tracelearn.moments import Moments
from tracelearn.penalties import tensor_trace_norm
from tracelearn.preprocessing import ModePCA, TensorStandardScaler

__all__ = [
    "HierarchicalTraceNormClassifier",
    "ModePCA",
    "Moments",
    "TensorStandardScaler",
    "TraceNormClassifier",
    "TraceNormClassifierCV",
    "TraceNormRegressor",
    "TraceNormRegressorCV",
    "load",
    "save",
    "tensor_trace_norm",
    "trace_norm_path",
]
__version__ = "0.1.0.dev0"
