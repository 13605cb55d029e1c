"""The paper under its own names: its algorithms as printed and its experiment."""

from tracelearn.paper.algorithms import Constants, Iterate, algorithm1, algorithm2

__all__ = ["Constants", "Iterate", "algorithm1", "algorithm2"]
