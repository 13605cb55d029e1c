"""The paper under its own names: its algorithms as printed, as functions and as estimators, and its experiment."""

from tracelearn.paper.algorithms import Constants, Iterate, algorithm1, algorithm2
from tracelearn.paper.estimators import PaperClassifier, PaperRegressor

__all__ = ["Constants", "Iterate", "PaperClassifier", "PaperRegressor", "algorithm1", "algorithm2"]
