"""Fitted models as ONNX graphs, which run wherever there is a runtime, without Python."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import to_numpy
from tracelearn.estimators.base import TraceNormModel
from tracelearn.files.models import write_atomically
from tracelearn.optional import require
from tracelearn.selection.cv import SelectionCV

__all__ = ["to_onnx"]

# Old enough for every runtime of the last years; the pair belongs together.
_OPSET, _IR = 17, 8


@dataclass(frozen=True, eq=False)
class _Graph:
    """A graph in the making: nodes in their order, and the constants they use."""

    helper: Any
    numpy_helper: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    def add(self, kind: str, *inputs: str, out: str, **attributes: Any) -> str:
        """Add a node and return the name of what it computes."""
        self.nodes.append(self.helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def hold(self, name: str, values: NDArray[Any]) -> str:
        """Add a constant and return its name."""
        self.constants.append(self.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def value(self, name: str, dtype: Any, shape: tuple[Any, ...]) -> Any:
        """Declare the type of an input or an output."""
        return self.helper.make_tensor_value_info(name, self.kind(dtype), ["n_samples", *shape])

    def kind(self, dtype: Any) -> int:
        """Find ONNX's number of a type; text is held as objects."""
        return int(self.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def give(self, name: str, dtype: Any, *shape: int) -> None:
        """Declare an output."""
        self.outputs.append(self.value(name, dtype, shape))


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Translate a fitted model into an ONNX graph.

    The input ``X`` has shape (n_samples, I1, ..., IN) and the precision of ``coef_``. The output ``prediction`` is what
    ``predict`` returns, with labels as integers or text; classifiers also have ``scores``, as ``decision_function``, and with
    the logistic loss ``probabilities``, as ``predict_proba``.

    Parameters
    ----------
    model : TraceNormRegressor, TraceNormClassifier, TraceNormRegressorCV or TraceNormClassifierCV
    path : str or path, default=None
        File to write as well; one that is there is replaced.

    Returns
    -------
    onnx.ModelProto

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor, to_onnx
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(200, (4, 3), rank=1, random_state=0)
    >>> graph = to_onnx(TraceNormRegressor(alpha=0.1).fit(X, y)).graph
    >>> graph.input[0].name, [output.name for output in graph.output]
    ('X', ['prediction'])
    """
    onnx = require("onnx", "onnx")
    if not isinstance(model, TraceNormModel | SelectionCV):
        raise ValueError(
            f"Expected a TraceNormRegressor, a TraceNormClassifier or one of their CV versions, got {type(model).__name__}: "
            "convert the parts of a Pipeline one by one."
        )
    check_is_fitted(model)
    plain: Any = getattr(model, "best_estimator_", model)
    if getattr(model, "features_", None) is not None:
        raise ValueError(
            f"Expected a model of samples as they are, got one of the view {model.view_!r}: a graph holds no views, so fit with "
            "views=None, or export best_estimator_ and show it what features_ makes of samples."
        )
    graph = _Graph(require("onnx.helper", "onnx"), require("onnx.numpy_helper", "onnx"))
    dtype = _add_scores(graph, plain)
    if hasattr(plain, "classes_"):
        _add_labels(graph, plain, dtype)
    else:
        _add_numbers(graph, plain, dtype)
    built = _assemble(onnx, graph, plain, dtype)
    if path is not None:
        write_atomically(path, built.SerializeToString())
    return built


def _add_scores(graph: _Graph, model: Any) -> Any:
    """Add the linear part, of shape (n_samples, K); return its precision."""
    coef = to_numpy(model.coef_)
    rows = coef.reshape(-1, model.n_features_in_)
    intercept = np.atleast_1d(to_numpy(model.intercept_)).astype(coef.dtype)
    flat = graph.add("Flatten", "X", out="flat", axis=1)
    product = graph.add("MatMul", flat, graph.hold("coef", rows.T), out="product")
    graph.add("Add", product, graph.hold("intercept", intercept), out="linear")
    return coef.dtype


def _add_numbers(graph: _Graph, model: Any, dtype: Any) -> None:
    if model._single:
        graph.add("Squeeze", "linear", graph.hold("axis", np.array([1])), out="prediction")
        graph.give("prediction", dtype)
    else:
        graph.add("Identity", "linear", out="prediction")
        graph.give("prediction", dtype, np.shape(model.intercept_)[0])


def _add_labels(graph: _Graph, model: Any, dtype: Any) -> None:
    labels = _labels(to_numpy(model.classes_))
    if len(labels) == 2:
        graph.add("Squeeze", "linear", graph.hold("axis", np.array([1])), out="scores")
        is_second = graph.add("Greater", "scores", graph.hold("zero", np.zeros((), dtype)), out="is_second")
        index = graph.add("Cast", is_second, out="index", to=graph.kind(np.int64))
    else:
        graph.add("Identity", "linear", out="scores")
        index = graph.add("ArgMax", "linear", out="index", axis=1, keepdims=0)
    graph.add("Gather", graph.hold("classes", labels), index, out="prediction", axis=0)
    graph.give("prediction", labels.dtype)
    graph.give("scores", dtype, *([] if len(labels) == 2 else [len(labels)]))
    if model._loss().has_probabilities:
        _add_probabilities(graph, len(labels))
        graph.give("probabilities", dtype, len(labels))


def _labels(classes: NDArray[Any]) -> NDArray[Any]:
    """Make of labels what a graph can hold: whole numbers, numbers or text."""
    if classes.dtype.kind in "iub":
        return classes.astype(np.int64)
    return classes if classes.dtype.kind == "f" else np.array([str(label) for label in classes], dtype=object)


def _add_probabilities(graph: _Graph, n_classes: int) -> None:
    if n_classes > 2:
        graph.add("Softmax", "linear", out="probabilities", axis=1)
        return
    # Both from the score: one minus the other would lose the digits of small probabilities.
    second = graph.add("Sigmoid", "linear", out="second")
    first = graph.add("Sigmoid", graph.add("Neg", "linear", out="negative"), out="first")
    graph.add("Concat", first, second, out="probabilities", axis=1)


def _assemble(onnx: Any, graph: _Graph, model: Any, dtype: Any) -> Any:
    """Put the parts together and let ONNX check them."""
    inputs = [graph.value("X", dtype, model.sample_shape_)]
    made = graph.helper.make_graph(graph.nodes, type(model).__name__, inputs, graph.outputs, graph.constants)
    built = graph.helper.make_model(
        made,
        opset_imports=[graph.helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="tracelearn",
        producer_version=metadata.version("tracelearn"),
    )
    onnx.checker.check_model(built, full_check=True)
    return built
