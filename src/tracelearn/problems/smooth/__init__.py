"""The smooth half of a problem, as solvers see it: value, gradient, dual value, and the update of W in ADMM.

Conventions
-----------
Solvers see ``B`` independent problems at once (classes, or the alphas of a path), each with ``K`` targets. Weights are
rows: ``W`` has shape ``(B K, p)``, problem by problem. The division by the total weight happens here and nowhere else,
so that alpha means the same for any number of samples. The intercept is eliminated here, exactly.
"""

from tracelearn.problems.smooth.data import DataLoss
from tracelearn.problems.smooth.protocols import Evaluation, Smooth
from tracelearn.problems.smooth.samples import (
    ArraySamples,
    Samples,
    SparseSamples,
    Term,
    Weigh,
    added,
    summed_covariances,
)
from tracelearn.problems.smooth.squares import Squares

__all__ = [
    "ArraySamples",
    "DataLoss",
    "Evaluation",
    "Samples",
    "Smooth",
    "SparseSamples",
    "Squares",
    "Term",
    "Weigh",
    "added",
    "summed_covariances",
]
