"""Fitted models as ONNX graphs, which run wherever there is a runtime, without Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import to_numpy
from tracelearn.errors import refuse
from tracelearn.estimators.base import TraceNormModel
from tracelearn.io.onnx_views import Nodes, add_nodes
from tracelearn.io.writing import write_atomically
from tracelearn.losses import LogLoss, Loss, Multinomial, Poisson
from tracelearn.optional import require
from tracelearn.search.estimators import TensorSearch

__all__ = ["to_onnx"]

# Old enough for every runtime of the last years; the pair belongs together.
_OPSET, _IR = 17, 8


# Text of a graph: what is computed of X and of constants. Two classes have one score, and so has a single target.
_SCORES = """
    numbers = CastLike (X, coef)
    flat = Flatten <axis = 1> (numbers)
    product = MatMul (flat, coef)
    linear = Add (product, intercept)
"""
_ONE, _SEVERAL = "{0} = Squeeze (linear, axis)", "{0} = Identity (linear)"
_LABEL = {
    True: """
        is_second = Greater (scores, zero)
        index = Cast <to = 7> (is_second)
    """,  # 7 are whole numbers of 64 bits
    False: "index = ArgMax <axis = 1, keepdims = 0> (linear)",
}
_PROBABILITIES = {
    # Both probabilities are computed from the score: one minus the other would lose the digits of small ones.
    True: """
        second = Sigmoid (linear)
        negative = Neg (linear)
        first = Sigmoid (negative)
        probabilities = Concat <axis = 1> (first, second)
    """,
    False: "probabilities = Softmax <axis = 1> (linear)",
}
_DOUBLE = 11
_KINDS = {"float16": "float16", "float32": "float", "float64": "double", "int64": "int64", "object": "string"}


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None, *, dtype: Any = None) -> Any:
    """Translate a fitted model into an ONNX graph.

    The input ``X`` has shape (n_samples, I1, ..., IN). The output ``prediction`` is what ``predict`` returns, with labels as
    integers or text; classifiers also have ``scores``, as ``decision_function``, and with the logistic loss ``probabilities``,
    as ``predict_proba``.

    Parameters
    ----------
    model : TraceNormRegressor, TraceNormClassifier, TensorRegressor, TensorClassifier, or a Pipeline
        The views of a search, and the steps of a Pipeline before the model, are transformers of this package; any other is
        refused. They become part of the graph.
    path : str or path, default=None
        File to write as well; one that is there is replaced.
    dtype : "float32", "float64", or a dtype such as np.float32, default=None
        The precision of ``X``; by default that of ``coef_``. Transformers compute in double precision, the model in that of
        ``coef_``.

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
    *steps, last = model.named_steps.values() if isinstance(model, Pipeline) else [model]
    refuse(
        not isinstance(last, TraceNormModel | TensorSearch),
        "Expected a TraceNormRegressor, a TraceNormClassifier or a search, alone or at the end of a Pipeline of transformers "
        f"of this package, got {type(last).__name__}: a graph has no such step.",
    )
    check_is_fitted(last)
    linear = getattr(last, "best_estimator_", last)
    refuse(
        hasattr(linear, "confound_coef_"),
        "Expected a model of samples alone, got one that was fitted with confounds: a graph has no input for them.",
    )
    views = [step for step in (*steps, getattr(last, "features_", None)) if step not in (None, "passthrough")]
    precision = _precision(dtype)
    built = _build(onnx, views, linear, precision)
    if path is not None:
        write_atomically(path, built.SerializeToString())
    return built


def _precision(dtype: Any) -> str | None:
    """Return the name of a precision that is given as NumPy takes it: by name, by type or as a dtype."""
    if dtype is None:
        return None
    try:
        name = str(np.dtype(dtype))
    except TypeError:
        name = ""
    refuse(
        name not in ("float32", "float64"),
        f"Expected dtype to be 'float32', 'float64' or None, got {dtype!r}: choose one of them.",
    )
    return name


def _build(onnx: Any, views: Sequence[Any], model: Any, precision: str | None) -> Any:
    """Write the text of a graph, parse it, put the nodes of transformers before its own, and let ONNX check the model."""
    transformed, before = _transformed(views)
    intercept = np.atleast_1d(to_numpy(model.intercept_))
    coef = to_numpy(model.coef_tensor_).reshape(len(intercept), *model.sample_shape_)
    precision = precision or coef.dtype.name
    sample_shape = model.sample_shape_ if not views else views[0].sample_shape_
    if getattr(model, "_class_map", None) is not None:  # linear in the scores, and so in samples
        class_map = to_numpy(model._class_map)
        coef = np.tensordot(class_map[:-1].T, coef, 1)
        intercept = intercept @ class_map[:-1] + class_map[-1]
    kind = _KINDS[coef.dtype.name]
    count = len(intercept)
    constants = {"coef": coef.reshape(count, -1).T, "intercept": intercept.astype(coef.dtype), "axis": np.array([1])}
    if hasattr(model, "classes_"):
        labels = _labels(to_numpy(model.classes_))
        is_one = count == 1
        constants |= {"classes": labels, "zero": np.zeros((), coef.dtype)}
        nodes = [_SCORES, (_ONE if is_one else _SEVERAL).format("scores"), _LABEL[is_one]]
        nodes += ["prediction = Gather <axis = 0> (classes, index)"]
        outputs = [f"{_KINDS[labels.dtype.name]}[n_samples] prediction"]
        outputs += [f"{kind}[n_samples{'' if is_one else f', {count}'}] scores"]
        if isinstance(model._loss(), LogLoss | Multinomial):  # other losses with probabilities are not translated
            nodes += [_PROBABILITIES[is_one]]
            outputs += [f"{kind}[n_samples, {len(labels)}] probabilities"]
    else:
        nodes = [_SCORES, (_ONE if model._single else _SEVERAL).format("linked"), _link(model._loss())]
        outputs = [f"{kind}[n_samples{'' if model._single else f', {count}'}] prediction"]
    nodes = [node.replace("(X,", f"({transformed},") for node in nodes]
    sample = ", ".join(map(str, ("n_samples", *sample_shape)))
    text = f"{type(model).__name__} ({_KINDS[precision]}[{sample}] X) => ({', '.join(outputs)}) {{ {' '.join(nodes)} }}"
    graph = require("onnx.parser", "onnx").parse_graph(text)
    after = list(graph.node)
    del graph.node[:]
    graph.node.extend([*before.nodes, *after])
    graph.initializer.extend(before.constants)
    hold = require("onnx.numpy_helper", "onnx").from_array
    used = {name for node in after for name in node.input}
    graph.initializer.extend(
        hold(np.ascontiguousarray(values), name) for name, values in constants.items() if name in used
    )
    helper = require("onnx.helper", "onnx")
    built = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="tracelearn",
        producer_version=metadata.version("tracelearn"),
    )
    onnx.checker.check_model(built, full_check=True)
    return built


def _transformed(views: Sequence[Any]) -> tuple[str, Nodes]:
    """Make the nodes of transformers, each in double precision and rounded to that of X; return the name of the result."""
    nodes = Nodes()
    T = "X"
    for view in views:
        wide = nodes.add("Cast", T, to=_DOUBLE)
        T = nodes.add("CastLike", add_nodes(nodes, view, wide), "X")
    return T, nodes


def _link(loss: Loss) -> str:
    """Write the node that turns scores into predictions, by the inverse link of the loss."""
    if type(loss).inverse_link is Poisson.inverse_link:
        return "prediction = Exp (linked)"
    refuse(
        type(loss).inverse_link is not Loss.inverse_link,
        f"Expected a loss whose link a graph has, identity or exponential, got {loss!r}: export a model with another loss.",
    )
    return "prediction = Identity (linked)"


def _labels(classes: NDArray[Any]) -> NDArray[Any]:
    """Convert labels to a type that a graph can hold: whole numbers, numbers or text."""
    if classes.dtype.kind in "iub":
        return classes.astype(np.int64)
    return classes if classes.dtype.kind == "f" else np.array([str(label) for label in classes], dtype=object)
