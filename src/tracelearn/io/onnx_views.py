"""Transformers as nodes of ONNX graphs: one function for each class, found by the class in ``_NODES_OF``.

Nodes compute in double precision what ``transform_tensors`` does, from fitted attributes. Only products and functions of single
entries have nodes: ONNX has no eigenvectors, which covariances would need. Factors of products are written out as arrays of
several numbers, since onnxruntime makes a single one part of the product, in single precision.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tracelearn.errors import InputError
from tracelearn.features import Logarithm, ModePCA, ModeWhitener, TensorStandardScaler, Views
from tracelearn.optional import require

__all__ = ["Nodes", "add_nodes"]


class Nodes:
    """Nodes of a graph in the making, and the constants they use; names are given in the order of their making."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names = (f"value_{count}" for count in itertools.count())

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output, a new one unless it is given."""
        name = next(self.names) if output is None else output
        helper = require("onnx.helper", "onnx")
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        """Add a constant and return its name."""
        name = next(self.names)
        numpy_helper = require("onnx.numpy_helper", "onnx")
        self.constants.append(numpy_helper.from_array(np.array(values, dtype=dtype, order="C"), name))
        return name

    def indices(self, values: Sequence[int] | NDArray[Any]) -> str:
        """Add whole numbers, such as a shape or axes."""
        return self.constant(values, np.int64)


def add_nodes(nodes: Nodes, view: Any, T: str) -> str:
    """Add the nodes of a fitted transformer to those of a graph; refuse one that has none.

    Parameters
    ----------
    T : name of tensors (n, I1, ..., IN) in double precision

    Returns
    -------
    name of the transformed tensors
    """
    check_is_fitted(view)
    if type(view) not in _NODES_OF:
        raise InputError(
            f"Expected transformers among {', '.join(kind.__name__ for kind in _NODES_OF)}, got {type(view).__name__}, which "
            "has no ONNX graph: search with views=[None, ModeWhitener()], or serve the model in Python."
        )
    return _NODES_OF[type(view)](nodes, view, T)


# --- linear transformers and logarithms ---------------------------------------------------------------------------------


def _scaler(nodes: Nodes, view: TensorStandardScaler, T: str) -> str:
    if view.with_mean:
        T = nodes.add("Sub", T, nodes.constant(view.mean_))
    return nodes.add("Div", T, nodes.constant(view.scale_)) if view.with_std else T


def _mode_products(nodes: Nodes, view: ModePCA | ModeWhitener, T: str) -> str:
    if view.center:
        T = nodes.add("Sub", T, nodes.constant(view.mean_))
    order = len(view.sample_shape_)
    for matrix in view.mode_matrices:  # takes the first mode away and puts it last: a full turn restores the order
        T = nodes.add("Transpose", T, perm=[0, *range(2, order + 1), 1])
        T = nodes.add("MatMul", T, nodes.constant(matrix.T))
    return T


def _logarithm(nodes: Nodes, view: Logarithm, T: str) -> str:
    floor = nodes.constant(view.floor_)
    is_positive = nodes.add("Greater", T, nodes.constant(0.0))
    logs = nodes.add("Log", nodes.add("Where", is_positive, T, nodes.constant(1.0)))
    return nodes.add("Where", is_positive, nodes.add("Max", logs, floor), floor)


def _views(nodes: Nodes, view: Views, T: str) -> str:
    parts = []
    for inside, factor in zip(view.transformers_, view.view_factors_, strict=True):
        flat = nodes.add("Flatten", add_nodes(nodes, inside, T), axis=1)
        parts.append(nodes.add("Mul", flat, nodes.constant(np.full(math.prod(inside.output_shape_), factor))))
    return nodes.add("Concat", *parts, axis=1)


_NODES_OF: dict[type, Callable[[Nodes, Any, str], str]] = {
    TensorStandardScaler: _scaler,
    ModePCA: _mode_products,
    ModeWhitener: _mode_products,
    Logarithm: _logarithm,
    Views: _views,
}
