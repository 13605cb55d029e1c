"""Fitted models as ONNX graphs, which run wherever there is a runtime, without Python."""

from __future__ import annotations

import os
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import to_numpy
from tracelearn.estimators.base import TraceNormModel
from tracelearn.features.base import LinearTransformer
from tracelearn.files.models import write_atomically
from tracelearn.optional import require
from tracelearn.selection.cv import SelectionCV

__all__ = ["to_onnx"]

# Old enough for every runtime of the last years; the pair belongs together.
_OPSET, _IR = 17, 8


# Text of a graph: what is computed of X and of constants. Two classes have one score, and so has a single target.
_SCORES = """
    flat = Flatten <axis = 1> (X)
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
    # Both from the score: one minus the other would lose the digits of small probabilities.
    True: """
        second = Sigmoid (linear)
        negative = Neg (linear)
        first = Sigmoid (negative)
        probabilities = Concat <axis = 1> (first, second)
    """,
    False: "probabilities = Softmax <axis = 1> (linear)",
}
_KINDS = {"float16": "float16", "float32": "float", "float64": "double", "int64": "int64", "object": "string"}


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Translate a fitted model into an ONNX graph.

    The input ``X`` has shape (n_samples, I1, ..., IN) and the precision of ``coef_``. The output ``prediction`` is what
    ``predict`` returns, with labels as integers or text; classifiers also have ``scores``, as ``decision_function``, and with
    the logistic loss ``probabilities``, as ``predict_proba``.

    Parameters
    ----------
    model : TraceNormRegressor, TraceNormClassifier, TraceNormRegressorCV or TraceNormClassifierCV
        One that sees samples as they are, whitened, or both; logarithms and second order are refused.
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
    coef = plain.coef_
    if getattr(model, "features_", None) is not None:
        if not all(isinstance(view, LinearTransformer) for view in model.views_.values()):
            raise ValueError(
                f"Expected a model that is linear in samples, got one of the view {model.view_!r}: a graph has no such view, "
                "so fit with views=['raw', 'whitened'], or export best_estimator_ and show it what features_ makes of samples."
            )
        coef = sum(model.views_[name].coef_to_input(W) for name, W in model.coef_by_view_.items())
    built = _build(onnx, plain, to_numpy(coef), model.sample_shape_)
    if path is not None:
        write_atomically(path, built.SerializeToString())
    return built


def _build(onnx: Any, model: Any, coef: NDArray[Any], shape: tuple[int, ...]) -> Any:
    """Write the text of a graph, have it read, and let ONNX check it."""
    intercept = np.atleast_1d(to_numpy(model.intercept_))
    if getattr(model, "_class_map", None) is not None:  # linear in the scores, and so in samples
        shown = to_numpy(model._class_map)
        coef, intercept = shown[:-1].T @ coef.reshape(len(intercept), -1), intercept @ shown[:-1] + shown[-1]
    kind, count = _KINDS[coef.dtype.name], len(intercept)
    constants = {"coef": coef.reshape(count, -1).T, "intercept": intercept.astype(coef.dtype), "axis": np.array([1])}
    if hasattr(model, "classes_"):
        labels, is_one = _labels(to_numpy(model.classes_)), count == 1
        constants |= {"classes": labels, "zero": np.zeros((), coef.dtype)}
        nodes = [_SCORES, (_ONE if is_one else _SEVERAL).format("scores"), _LABEL[is_one]]
        nodes += ["prediction = Gather <axis = 0> (classes, index)"]
        outputs = [f"{_KINDS[labels.dtype.name]}[n_samples] prediction"]
        outputs += [f"{kind}[n_samples{'' if is_one else f', {count}'}] scores"]
        if model._loss().has_probabilities:
            nodes += [_PROBABILITIES[is_one]]
            outputs += [f"{kind}[n_samples, {len(labels)}] probabilities"]
    else:
        nodes = [_SCORES, (_ONE if model._single else _SEVERAL).format("prediction")]
        outputs = [f"{kind}[n_samples{'' if model._single else f', {count}'}] prediction"]
    sample = ", ".join(map(str, ("n_samples", *shape)))
    text = f"{type(model).__name__} ({kind}[{sample}] X) => ({', '.join(outputs)}) {{ {' '.join(nodes)} }}"
    graph = require("onnx.parser", "onnx").parse_graph(text)
    hold = require("onnx.numpy_helper", "onnx").from_array
    used = {name for node in graph.node for name in node.input}
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


def _labels(classes: NDArray[Any]) -> NDArray[Any]:
    """Make of labels what a graph can hold: whole numbers, numbers or text."""
    if classes.dtype.kind in "iub":
        return classes.astype(np.int64)
    return classes if classes.dtype.kind == "f" else np.array([str(label) for label in classes], dtype=object)
