"""The paper's six algorithms under its own names, as functions and as estimators."""

from tracelearn.paper.algorithms import Constants, Iterate, algorithm1, algorithm2, lipschitz
from tracelearn.paper.estimators import PaperClassifier, PaperRegressor

__all__ = ["Constants", "Iterate", "PaperClassifier", "PaperRegressor", "algorithm1", "algorithm2", "lipschitz"]
