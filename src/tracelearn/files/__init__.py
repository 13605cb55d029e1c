"""Files: models, moments and checkpoints; ONNX."""

from tracelearn.files.models import load, save
from tracelearn.files.onnx import to_onnx

__all__ = ["load", "save", "to_onnx"]
