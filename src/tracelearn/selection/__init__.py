"""TraceNormRegressorCV and TraceNormClassifierCV: alpha, ridge, scaling and mode weights chosen by cross-validation."""

from tracelearn.selection.classifier import TraceNormClassifierCV
from tracelearn.selection.paths import TraceNormPath, trace_norm_path
from tracelearn.selection.regressor import TraceNormRegressorCV

__all__ = ["TraceNormClassifierCV", "TraceNormPath", "TraceNormRegressorCV", "trace_norm_path"]
