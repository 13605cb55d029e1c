"""Low-rank linear models for samples that are tensors, with a proof of optimality."""

from tracelearn.estimators import TraceNormClassifier, TraceNormRegressor
from tracelearn.estimators.hierarchy import HierarchicalTraceNormClassifier
from tracelearn.features import ModePCA, ModeWhitener, SecondOrder, TensorStandardScaler, Views
from tracelearn.files.models import load, save
from tracelearn.files.onnx import to_onnx
from tracelearn.moments import Moments
from tracelearn.penalties import tensor_trace_norm
from tracelearn.samples import open_source
from tracelearn.selection import TraceNormClassifierCV, TraceNormRegressorCV, trace_norm_path
from tracelearn.streaming.run import StreamReport, stream

__all__ = [
    "HierarchicalTraceNormClassifier",
    "ModePCA",
    "ModeWhitener",
    "Moments",
    "SecondOrder",
    "StreamReport",
    "TensorStandardScaler",
    "TraceNormClassifier",
    "TraceNormClassifierCV",
    "TraceNormRegressor",
    "TraceNormRegressorCV",
    "Views",
    "load",
    "open_source",
    "save",
    "stream",
    "tensor_trace_norm",
    "to_onnx",
    "trace_norm_path",
]
__version__ = "0.1.0.dev0"
