"""Choosing by cross-validation: the CV estimators and the path."""

from tracelearn.selection.cv import TraceNormClassifierCV, TraceNormRegressorCV
from tracelearn.selection.path import TraceNormPath, trace_norm_path

__all__ = ["TraceNormClassifierCV", "TraceNormPath", "TraceNormRegressorCV", "trace_norm_path"]
