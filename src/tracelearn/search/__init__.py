"""Searching for views of samples, strengths and losses by cross-validation, in stages that return frozen values.

``folds`` split the samples, ``views`` show them, ``screening`` judges views, ``paths`` walk down strengths, and ``choice``
asks one question after the other; ``estimators`` fit what was chosen to all samples.
"""

from tracelearn.search.estimators import TensorClassifier, TensorRegressor
from tracelearn.search.linear_cv import TraceNormClassifierCV, TraceNormRegressorCV

__all__ = ["TensorClassifier", "TensorRegressor", "TraceNormClassifierCV", "TraceNormRegressorCV"]
