"""Fitted models as ONNX graphs, which run wherever there is a runtime, without Python.

A graph shows samples as the steps of a pipeline and the views of a search do, multiplies them by weights, and makes predictions
of the scores. All is computed in double precision; what a graph returns is rounded to the precision of its input.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.errors import refuse
from tracelearn.estimators.base import LinearModel
from tracelearn.fitting import loss_named
from tracelearn.io.onnx_views import DOUBLE, Nodes, Value, add_nodes
from tracelearn.io.writing import write_atomically
from tracelearn.losses import LogLoss, Loss, Poisson
from tracelearn.optional import require
from tracelearn.search.estimators import TensorSearch

__all__ = ["to_onnx"]

# Old enough for every runtime of the last years; the pair belongs together.
_OPSET, _IR = 17, 8

_INT64 = 7  # ONNX's number of this type


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None, *, dtype: Any = None) -> Any:
    """Translate a fitted model into an ONNX graph.

    The input ``X`` has shape (n_samples, I1, ..., IN). The output ``prediction`` is what ``predict`` returns, with labels as
    integers or text; classifiers also have ``scores``, as ``decision_function``, and with the logistic loss or after a search
    ``probabilities``, as ``predict_proba``.

    Parameters
    ----------
    model : TraceNormRegressor, TraceNormClassifier, one of these with CV, TensorRegressor, TensorClassifier, or a Pipeline
        The views of a search, and the steps of a Pipeline before the model, become part of the graph. They are transformers of
        this package, but for ``Lengths`` and ``ResampleTime``: samples of a graph have one length, and no gaps.
    path : str or path, default=None
        File to write as well; one that is there is replaced.
    dtype : "float32", "float64", or a dtype such as np.float32, default=None
        The precision of ``X`` and of numbers that are returned; by default that of the weights.

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
    require("onnx", "onnx")
    *steps, last = model.named_steps.values() if isinstance(model, Pipeline) else [model]
    refuse(
        not isinstance(last, LinearModel | TensorSearch),
        "Expected a TraceNormRegressor, a TraceNormClassifier or a search, alone or at the end of a Pipeline of transformers "
        f"of this package, got {type(last).__name__}: a graph has no such step.",
    )
    check_is_fitted(last)
    refuse(
        hasattr(last, "confound_coef_"),
        "Expected a model of samples alone, got one that was fitted with confounds: a graph has no input for them.",
    )
    refuse(
        getattr(last, "alignment_", None) is not None,
        "Expected a model of one group, got one that aligns samples by group: export adapted(X), for X of one group.",
    )
    resampler = getattr(last, "resampler_", None)
    refuse(
        resampler is not None and resampler.has_seen_several_lengths,
        "Expected a model of samples of one length, got one of samples of several: a graph has one shape of samples, so bring "
        "them to one length by ResampleTime before fit.",
    )
    transformers = [step for step in steps if step not in (None, "passthrough")]
    built = _build(transformers, last, _precision(dtype))
    if path is not None:
        write_atomically(path, built.SerializeToString())
    return built


def _precision(dtype: Any) -> np.dtype[Any] | None:
    """Read a precision that is given as NumPy takes it: by name, by type or as a dtype."""
    if dtype is None:
        return None
    precision: np.dtype[Any] | None = None
    with suppress(TypeError):
        precision = np.dtype(dtype)
    if precision not in (np.float32, np.float64):
        raise ValueError(f"Expected dtype to be 'float32', 'float64' or None, got {dtype!r}: choose one of them.")
    return precision


def _build(transformers: Sequence[Any], model: Any, precision: np.dtype[Any] | None) -> Any:
    """Add all nodes of a graph, one after the other, and let ONNX check the whole."""
    weights = _weights_by_view(model)
    precision = precision or weights[0][1].dtype
    nodes = Nodes()
    X = nodes.input("X")
    T = X.cast(DOUBLE)
    for transformer in transformers:
        # As in a Pipeline, where a step returns the precision that it was given.
        T = nodes.add("CastLike", add_nodes(transformer, T), X).cast(DOUBLE)
    outputs_of = _outputs_of_classes if isinstance(model, ClassifierMixin) else _outputs_of_numbers
    outputs = outputs_of(model, X, _scores(model, weights, T), precision)

    onnx, helper = require("onnx", "onnx"), require("onnx.helper", "onnx")
    sample_shape = (transformers[0] if transformers else model).sample_shape_
    graph = helper.make_graph(
        nodes.nodes,
        type(model).__name__,
        [_value_info("X", precision, ("n_samples", *sample_shape))],
        outputs,
        nodes.constants,
    )
    built = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="tracelearn",
        producer_version=metadata.version("tracelearn"),
    )
    onnx.checker.check_model(built, full_check=True)
    return built


# --- scores -------------------------------------------------------------------------------------------------------------


def _weights_by_view(model: LinearModel | TensorSearch) -> list[tuple[Any, NDArray[Any]]]:
    """List each view of a model, None for the sample as it is, and its weights as columns (p, K)."""
    if isinstance(model, TensorSearch):
        pairs = [(model.views_[name], coef) for name, coef in model.coef_by_view_.items()]
    else:
        pairs = [(None, model.coef_)]
    n_scores = np.size(to_numpy(model.intercept_))
    return [(view, to_numpy(coef).reshape(n_scores, -1).T) for view, coef in pairs]


def _scores(model: Any, weights: Sequence[tuple[Any, NDArray[Any]]], T: Value) -> Value:
    """Add what makes scores (n, K) of tensors: the sum over views of products, and the map between classes."""
    scores: Any = np.atleast_1d(to_numpy(model.intercept_))
    for view, columns in weights:
        scores = (T if view is None else add_nodes(view, T)).flat() @ columns + scores
    class_map: Array | None = getattr(model, "class_map_", None)
    if class_map is not None:
        between = to_numpy(class_map)
        scores = scores @ between[:-1] + between[-1]
    result: Value = scores
    return result


# --- predictions --------------------------------------------------------------------------------------------------------


def _outputs_of_numbers(model: Any, X: Value, scores: Value, precision: np.dtype[Any]) -> list[Any]:
    """Add what makes predictions of scores (n, K); a single target has no axis."""
    nodes = X.nodes
    is_single = np.ndim(model.intercept_) == 0
    loss = loss_named(model.loss, for_classes=False)
    if type(loss).inverse_link is Poisson.inverse_link:
        scores = nodes.add("Exp", scores)
    elif type(loss).inverse_link is not Loss.inverse_link:
        raise ValueError(
            f"Expected a loss whose link a graph has, identity or exponential, got {loss!r}: export a model with another loss."
        )
    if is_single:
        scores = nodes.add("Squeeze", scores, nodes.indices([1]))
    nodes.add("CastLike", scores, X, output="prediction")
    shape = ("n_samples",) if is_single else ("n_samples", len(model.intercept_))
    return [_value_info("prediction", precision, shape)]


def _outputs_of_classes(model: Any, X: Value, scores: Value, precision: np.dtype[Any]) -> list[Any]:
    """Add what makes labels, scores and probabilities of scores (n, K); of two classes there is one, for the second."""
    nodes = X.nodes
    labels = _labels(to_numpy(model.classes_))
    n_scores = np.size(to_numpy(model.intercept_))
    score_shape: tuple[Any, ...] = ("n_samples", n_scores)
    probabilities = _probabilities(model, scores)
    if n_scores == 1:
        score_shape = ("n_samples",)
        scores = nodes.add("Squeeze", scores, nodes.indices([1]))
    rounded = nodes.add("CastLike", scores, X, output="scores")
    if n_scores == 1:
        index = (rounded > nodes.add("CastLike", 0.0, X)).cast(_INT64)
    else:
        index = nodes.add("ArgMax", rounded, axis=1, keepdims=0)
    nodes.add("Gather", nodes.constant(labels, labels.dtype), index, axis=0, output="prediction")
    outputs = [_value_info("prediction", labels.dtype, ("n_samples",)), _value_info("scores", precision, score_shape)]
    if probabilities is not None:
        nodes.add("CastLike", probabilities, X, output="probabilities")
        outputs.append(_value_info("probabilities", precision, ("n_samples", len(labels))))
    return outputs


def _probabilities(model: Any, scores: Value) -> Value | None:
    """Add the probabilities of classes, where the model has some that a graph can compute: the softmax of linear functions."""
    n_scores = np.size(to_numpy(model.intercept_))
    score_of_class = np.array([[-0.5, 0.5]]) if n_scores == 1 else np.eye(n_scores)
    if isinstance(model, TensorSearch):
        slope, offsets = model.calibration_slope_, to_numpy(model.calibration_offsets_)
    elif isinstance(loss_named(model.loss, for_classes=True), LogLoss):
        slope, offsets = 1.0, np.zeros(len(model.classes_))
    else:
        return None
    return scores.nodes.add("Softmax", scores @ (slope * score_of_class) + offsets, axis=1)


def _labels(classes: NDArray[Any]) -> NDArray[Any]:
    """Make of labels what a graph can hold: whole numbers, numbers or text."""
    if classes.dtype.kind in "iub":
        return classes.astype(np.int64)
    return classes if classes.dtype.kind == "f" else np.array([str(label) for label in classes], dtype=object)


def _value_info(name: str, dtype: Any, shape: Sequence[Any]) -> Any:
    """Describe an input or output of a graph."""
    helper = require("onnx.helper", "onnx")
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
