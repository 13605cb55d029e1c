"""Penalties of the weights: tensor trace norms."""

from tracelearn.penalties.compose import (
    PENALTIES,
    LatentTraceNorm,
    OverlappedTraceNorm,
    Penalty,
    ScaledLatentTraceNorm,
    Split,
    tensor_trace_norm,
)

__all__ = [
    "PENALTIES",
    "LatentTraceNorm",
    "OverlappedTraceNorm",
    "Penalty",
    "ScaledLatentTraceNorm",
    "Split",
    "tensor_trace_norm",
]
