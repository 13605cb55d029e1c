"""Choosing by cross-validation: the CV estimators and the path."""

from tracelearn.search.cv import TensorClassifier, TensorRegressor
from tracelearn.search.path import TraceNormPath, trace_norm_path

__all__ = ["TensorClassifier", "TensorRegressor", "TraceNormPath", "trace_norm_path"]
