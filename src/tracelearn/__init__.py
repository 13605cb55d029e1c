"""Low-rank linear models for samples that are tensors, with a proof of optimality.

Public names are imported when they are first asked for: the command line and file readers need few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelearn.estimators import TraceNormClassifier, TraceNormRegressor
    from tracelearn.estimators.hierarchy import HierarchicalTraceNormClassifier
    from tracelearn.estimators.lagged import LaggedRegressor
    from tracelearn.features import (
        Chain,
        Convolutions,
        Detrend,
        Lengths,
        Logarithm,
        ModePCA,
        ModeWhitener,
        PerGroup,
        ResampleTime,
        SavitzkyGolay,
        ScatterCorrection,
        SecondOrder,
        Similarities,
        TensorStandardScaler,
        Thresholds,
        Views,
    )
    from tracelearn.io.model_content import trusted_types
    from tracelearn.io.models import load, save
    from tracelearn.io.onnx import to_onnx
    from tracelearn.io.opening import open_source
    from tracelearn.io.streams import StreamReport, stream
    from tracelearn.moments import Moments
    from tracelearn.penalties import L1, GroupL2, Nuclear, tensor_trace_norm
    from tracelearn.search import TensorClassifier, TensorRegressor, TraceNormClassifierCV, TraceNormRegressorCV

__all__ = [
    "L1",
    "Chain",
    "Convolutions",
    "Detrend",
    "GroupL2",
    "HierarchicalTraceNormClassifier",
    "LaggedRegressor",
    "Lengths",
    "Logarithm",
    "ModePCA",
    "ModeWhitener",
    "Moments",
    "Nuclear",
    "PerGroup",
    "ResampleTime",
    "SavitzkyGolay",
    "ScatterCorrection",
    "SecondOrder",
    "Similarities",
    "StreamReport",
    "TensorClassifier",
    "TensorRegressor",
    "TensorStandardScaler",
    "Thresholds",
    "TraceNormClassifier",
    "TraceNormClassifierCV",
    "TraceNormRegressor",
    "TraceNormRegressorCV",
    "Views",
    "load",
    "open_source",
    "save",
    "stream",
    "tensor_trace_norm",
    "to_onnx",
    "trusted_types",
]
__version__ = "0.1.0"

_MODULES = {
    "estimators": ("TraceNormClassifier", "TraceNormRegressor"),
    "estimators.hierarchy": ("HierarchicalTraceNormClassifier",),
    "estimators.lagged": ("LaggedRegressor",),
    "features": (
        "Chain",
        "Convolutions",
        "Detrend",
        "Lengths",
        "Logarithm",
        "ModePCA",
        "ModeWhitener",
        "ResampleTime",
        "PerGroup",
        "SavitzkyGolay",
        "ScatterCorrection",
        "SecondOrder",
        "Similarities",
        "TensorStandardScaler",
        "Thresholds",
        "Views",
    ),
    "io.onnx": ("to_onnx",),
    "io.model_content": ("trusted_types",),
    "io.models": ("load", "save"),
    "io.streams": ("StreamReport", "stream"),
    "moments": ("Moments",),
    "penalties": ("GroupL2", "L1", "Nuclear", "tensor_trace_norm"),
    "io.opening": ("open_source",),
    "search": ("TensorClassifier", "TensorRegressor", "TraceNormClassifierCV", "TraceNormRegressorCV"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"tracelearn.{module}"), name)
            return value
    raise AttributeError(f"module 'tracelearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
