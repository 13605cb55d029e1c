"""Scaling and compressing samples that are tensors, before a model learns from them.

Invariant: everything learned here adds over batches, centred and merged by the formula of Chan, Golub and LeVeque, so
``partial_fit`` over any batches ends where ``fit`` on all samples does, to rounding.
"""

from tracelearn.features.mode_pca import ModePCA
from tracelearn.features.scaler import TensorStandardScaler

__all__ = ["ModePCA", "TensorStandardScaler"]
