"""Transformers as nodes of ONNX graphs: one function for each class, found by the class in ``NODES_OF``.

Nodes compute in double precision what ``transform_tensors`` does, from fitted attributes. ONNX has no eigenvectors: matrix
logarithms are found by Jacobi's rotations. Factors of products are written out as arrays of several numbers, since
onnxruntime makes a single one part of the product, in single precision.
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
from tracelearn.features import (
    Chain,
    Convolutions,
    LinearChain,
    Logarithm,
    ModePCA,
    ModeWhitener,
    SecondOrder,
    Similarities,
    TensorStandardScaler,
    Views,
)
from tracelearn.features.convolutions import CANCELLED, LENGTH, LOWERED, MOST_TIMES, ROUNDING, WAVEFORMS
from tracelearn.features.similarities import SOFTENING
from tracelearn.optional import require

__all__ = ["NODES_OF", "Nodes", "add_nodes"]

_SWEEPS = 15  # of Jacobi's rotations at most; eight or nine are usual
_OFF_DIAGONAL = 1e-15  # of the largest entry: rounding leaves no less


class Nodes:
    """Nodes of a graph in the making, and the constants they use; names are given in the order of their making.

    Parameters
    ----------
    prefix : what every name begins with, so that graphs inside of others have their own
    """

    def __init__(self, prefix: str = "view") -> None:
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names = (f"{prefix}_{count}" for count in itertools.count())

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

    def reshape(self, X: str, shape: Sequence[int]) -> str:
        """Give an array a shape, of which one size may be -1."""
        return self.add("Reshape", X, self.indices(shape))

    def cut(self, X: str, start: int, stop: int, axis: int, step: int = 1) -> str:
        """Take a slice along an axis."""
        return self.add("Slice", X, *(self.indices([value]) for value in (start, stop, axis, step)))

    def mean(self, X: str, axes: Sequence[int]) -> str:
        """Average over axes, which keep size one."""
        return self.add("ReduceMean", X, axes=list(axes), keepdims=1)

    def sum(self, X: str, axes: Sequence[int], *, keepdims: bool = True) -> str:
        """Sum over axes."""
        return self.add("ReduceSum", X, self.indices(axes), keepdims=int(keepdims))


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
    if type(view) not in NODES_OF:
        raise InputError(
            f"Expected transformers that have a graph, {', '.join(sorted(kind.__name__ for kind in NODES_OF))}, got "
            f"{type(view).__name__}: choose views or steps among these, or serve the model in Python."
        )
    return NODES_OF[type(view)](nodes, view, T)


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


# --- second order -------------------------------------------------------------------------------------------------------


def _second_order(nodes: Nodes, view: SecondOrder, T: str) -> str:
    S = _covariances(nodes, view, _signals_with_copies(nodes, view, T))
    R = view.whitener_
    S = nodes.add("MatMul", nodes.add("MatMul", nodes.constant(R), S), nodes.constant(np.swapaxes(R, -1, -2)))
    S = nodes.add("Add", S, nodes.constant(view.still_))
    c = R.shape[-1]
    logs = _matrix_logarithm(nodes, nodes.reshape(S, (-1, c, c)), c, view.floor_)
    return nodes.reshape(logs, (-1, *view.output_shape_))


def _signals_with_copies(nodes: Nodes, view: SecondOrder, T: str) -> str:
    """Arrange samples as signals (n, kept..., windows, channels, times), with their copies, divided by their scales."""
    shape = view.sample_shape_
    kept, channels, time = view.axes(shape)
    n_channels = math.prod(shape[mode] for mode in channels)
    n_times = shape[time]
    T = nodes.add("Transpose", T, perm=[0, *(mode + 1 for mode in (*kept, *channels, time))])
    T = nodes.reshape(T, (-1, *(shape[mode] for mode in kept), n_channels, n_times))
    if view.difference:
        later = nodes.cut(T, 1, n_times, -1)
        change = nodes.add("Sub", later, nodes.cut(T, 0, n_times - 1, -1))
        T = nodes.add("Concat", later, change, axis=-2)
        n_times -= 1
    if view.lags:
        longest = view.lags * view.lag_step
        delays = [view.lag_step * copy for copy in range(view.lags + 1)]
        copies = [nodes.cut(T, longest - delay, n_times - delay, -1) for delay in delays]
        T = nodes.add("Concat", *copies, axis=-2)
        n_times -= longest
    if view.windows > 1:
        size = n_times // view.windows
        windows = [nodes.cut(T, w * size, (w + 1) * size, -1) for w in range(view.windows)]
        axis = nodes.indices([len(kept) + 1])
        T = nodes.add("Concat", *(nodes.add("Unsqueeze", window, axis) for window in windows), axis=-3)
    if view.channel_scale_ is not None:
        T = nodes.add("Div", T, nodes.constant(view.channel_scale_))
    return T


def _covariances(nodes: Nodes, view: SecondOrder, signals: str) -> str:
    """Find shrunk covariances of signals (..., channels, times), with their means."""
    order = len(view.output_shape_) + 1
    turned = [*range(order - 2), order - 1, order - 2]
    c = view.output_shape_[-1] - bool(view.mean)
    time = view.time_axis_
    n_times = (view.sample_shape_[time] - view.difference - view.lags * view.lag_step) // view.windows
    means = nodes.mean(signals, [-1])
    signals = nodes.add("Sub", signals, means)
    C = nodes.add("MatMul", signals, nodes.add("Transpose", signals, perm=turned))
    C = nodes.add("Div", C, nodes.constant(np.full((c, c), n_times)))
    C = _shrunk(nodes, C, c, n_times, view.shrinkage)
    if not view.mean:
        return C
    means = nodes.add("Mul", means, nodes.constant(np.full((c, 1), view.mean_scale_)))
    row = nodes.add("Transpose", means, perm=turned)
    corner = nodes.add("Add", nodes.mean(nodes.add("Mul", means, nodes.constant(0.0)), [-2]), nodes.constant(1.0))
    products = nodes.add("Add", C, nodes.add("MatMul", means, row))
    upper = nodes.add("Concat", products, means, axis=-1)
    lower = nodes.add("Concat", row, corner, axis=-1)
    return nodes.add("Concat", upper, lower, axis=-2)


def _shrunk(nodes: Nodes, C: str, c: int, n_times: int, shrinkage: Any) -> str:
    """Shrink covariances (..., c, c) of so many times towards the identity times their mean variance."""
    eye = nodes.constant(np.eye(c))
    trace = nodes.sum(nodes.add("Mul", C, eye), [-2, -1])
    level = nodes.add("Div", trace, nodes.constant(c))
    one = nodes.constant(1.0)
    if shrinkage == "oas":
        square = nodes.mean(nodes.add("Mul", C, C), [-2, -1])
        level_square = nodes.add("Mul", level, level)
        spread = nodes.add("Sub", square, nodes.add("Div", level_square, nodes.constant(c)))
        spread = nodes.add("Mul", nodes.constant(n_times + 1.0), spread)
        varies = nodes.add("Greater", spread, nodes.constant(0.0))
        share = nodes.add("Div", nodes.add("Add", square, level_square), nodes.add("Where", varies, spread, one))
        share = nodes.add("Where", varies, nodes.add("Min", share, one), one)
    else:
        share = nodes.constant(float(shrinkage))
    remaining = nodes.add("Mul", nodes.add("Sub", one, share), C)
    return nodes.add("Add", remaining, nodes.add("Mul", nodes.add("Mul", share, level), eye))


def _matrix_logarithm(nodes: Nodes, S: str, c: int, floor: float) -> str:
    """Take the logarithm of symmetric matrices (n, c, c), with eigenvalues below ``floor`` replaced by it.

    Jacobi's method with parallel rotations: in each round neighbours 2k and 2k + 1 are rotated so that the entry of the
    matrix for this pair vanishes; then rows and columns are permuted as in a round-robin tournament, so that c - 1 rounds
    visit all pairs.
    """
    S = nodes.add("Mul", nodes.add("Add", S, nodes.add("Transpose", S, perm=[0, 2, 1])), nodes.constant(0.5))
    m = c + c % 2
    if m > c:  # pairs need an even size: a row and a column of zeros, which no rotation mixes with the others
        S = nodes.add("Pad", S, nodes.indices([0, 0, 0, 0, 1, 1]), nodes.constant(0.0))
    eye = nodes.constant(np.eye(m))
    vectors = nodes.add("Expand", eye, nodes.add("Shape", S))
    rounds = nodes.constant(_SWEEPS * max(1, m - 1), np.int64)
    loop = _rotation_loop(m)
    rotated = next(nodes.names)
    vectors_after = next(nodes.names)
    helper = require("onnx.helper", "onnx")
    is_unfinished = nodes.constant(True, np.bool_)
    inputs = [rounds, is_unfinished, S, vectors]
    nodes.nodes.append(helper.make_node("Loop", inputs, [rotated, vectors_after], body=loop))
    eigenvalues = nodes.sum(nodes.add("Mul", rotated, eye), [-2])  # (n, 1, m)
    logs = nodes.add("Log", nodes.add("Max", eigenvalues, nodes.constant(floor)))
    product = nodes.add(
        "MatMul", nodes.add("Mul", vectors_after, logs), nodes.add("Transpose", vectors_after, perm=[0, 2, 1])
    )
    return nodes.cut(nodes.cut(product, 0, c, -1), 0, c, -2) if m > c else product


def _rotation_loop(m: int) -> Any:
    """Make the body of a loop: one round of Jacobi's rotations of matrices (n, m, m), and of their eigenvectors so far."""
    helper = require("onnx.helper", "onnx")
    types = require("onnx", "onnx").TensorProto
    nodes = Nodes("round")
    places = np.arange(m)
    evens = nodes.indices(places[::2])
    odds = nodes.indices(places[1::2])
    eye = nodes.constant(np.eye(m))
    swapped_eye = nodes.constant(np.eye(m)[places ^ 1])
    zero, one = nodes.constant(0.0), nodes.constant(1.0)

    diagonal = nodes.sum(nodes.add("Mul", "S", eye), [-1], keepdims=False)
    products = nodes.sum(nodes.add("Mul", "S", swapped_eye), [-1], keepdims=False)
    first = nodes.add("Gather", diagonal, evens, axis=1)
    second = nodes.add("Gather", diagonal, odds, axis=1)
    product = nodes.add("Gather", products, evens, axis=1)
    # The tangent of the smaller of the two angles that make the product vanish (Golub and Van Loan, section 8.5).
    is_diagonal = nodes.add("Equal", product, zero)
    divisor = nodes.add("Mul", nodes.constant(2.0), nodes.add("Where", is_diagonal, one, product))
    ratio = nodes.add("Div", nodes.add("Sub", second, first), divisor)
    sign = nodes.add("Where", nodes.add("Less", ratio, zero), nodes.constant(-1.0), one)
    root = nodes.add("Sqrt", nodes.add("Add", one, nodes.add("Mul", ratio, ratio)))
    tangent = nodes.add("Div", sign, nodes.add("Add", nodes.add("Abs", ratio), root))
    tangent = nodes.add("Where", is_diagonal, zero, tangent)
    cosine = nodes.add("Div", one, nodes.add("Sqrt", nodes.add("Add", one, nodes.add("Mul", tangent, tangent))))
    sine = nodes.add("Mul", tangent, cosine)
    # What was at place order[j] comes to place j, rotated with its neighbour.
    order = _next_places(m)
    pairs = nodes.indices(order // 2)
    cosines = nodes.add("Gather", cosine, pairs, axis=1)
    sines = nodes.add("Mul", nodes.add("Gather", sine, pairs, axis=1), nodes.constant(np.where(order % 2, 1.0, -1.0)))
    to_itself = np.eye(m)[:, order]
    to_neighbour = np.eye(m)[:, order ^ 1]

    def rotation(axis: int) -> str:
        """Make the rotation, whose columns are along an axis of (n, m, m): for 1 it is transposed."""
        across = nodes.indices([3 - axis])
        parts = [
            nodes.add("Mul", nodes.add("Unsqueeze", factors, across), nodes.constant(mask if axis == 2 else mask.T))
            for factors, mask in ((cosines, to_itself), (sines, to_neighbour))
        ]
        return nodes.add("Add", *parts)

    columns = rotation(2)
    S = nodes.add("MatMul", nodes.add("MatMul", rotation(1), "S"), columns)
    vectors = nodes.add("MatMul", "vectors", columns)
    off_diagonal = nodes.add("Abs", nodes.add("Mul", S, nodes.constant(1.0 - np.eye(m))))
    largest = nodes.add("ReduceMax", nodes.add("Abs", S), axes=[1, 2], keepdims=0)
    excess = nodes.add(
        "Sub",
        nodes.add("ReduceMax", off_diagonal, axes=[1, 2], keepdims=0),
        nodes.add("Mul", largest, nodes.constant(_OFF_DIAGONAL)),
    )
    is_unfinished = nodes.add("Greater", nodes.add("ReduceMax", excess, keepdims=0), zero)

    matrices = ["n", m, m]
    inputs = [
        helper.make_tensor_value_info("count", types.INT64, []),
        helper.make_tensor_value_info("going_on", types.BOOL, []),
        helper.make_tensor_value_info("S", types.DOUBLE, matrices),
        helper.make_tensor_value_info("vectors", types.DOUBLE, matrices),
    ]
    outputs = [
        helper.make_tensor_value_info(is_unfinished, types.BOOL, []),
        helper.make_tensor_value_info(S, types.DOUBLE, matrices),
        helper.make_tensor_value_info(vectors, types.DOUBLE, matrices),
    ]
    return helper.make_graph(nodes.nodes, "rotations", inputs, outputs, nodes.constants)


def _next_places(m: int) -> NDArray[np.int64]:
    """Find the permutation of m places from one round of a round-robin tournament to the next, in which 2k meets 2k + 1."""
    # The circle method: seat k meets seat m - 1 - k; seat 0 stays, and all others move on by one.
    seats = np.empty(m, dtype=np.int64)
    seats[::2] = np.arange(m // 2)
    seats[1::2] = m - 1 - np.arange(m // 2)  # the seat of each place
    place_of_seat = np.argsort(seats)
    before = np.concatenate([[0, m - 1], np.arange(1, m - 1)])  # the seat where who is now at a seat was before
    return np.asarray(place_of_seat[before[seats]])


# --- convolutions -------------------------------------------------------------------------------------------------------


def _convolutions(nodes: Nodes, view: Convolutions, T: str) -> str:
    layout = view.layout(view.sample_shape_)
    n_times = view.sample_shape_[layout.time_axis]
    signals = _centred_signals(nodes, view, T)
    zero = nodes.constant(0.0)
    sizes = nodes.add("Sqrt", nodes.mean(nodes.add("Mul", signals, signals), [-1]))
    divisor = nodes.add("Where", nodes.add("Greater", sizes, zero), sizes, nodes.constant(1.0))
    units = nodes.add("Div", signals, divisor)
    largest = np.max(np.abs(view.thresholds_), axis=(0, 1, 3))[:, None]
    scale = np.where(largest > 0, largest, 1.0)
    pairs, pair_of_waveform = np.unique(layout.pairs, axis=0, return_inverse=True)
    pair_of_waveform = pair_of_waveform.ravel()
    shares = []
    for pair, (later, sign) in enumerate(pairs.tolist()):
        looked_at = signals
        if sign:
            second = nodes.add(
                "Gather", units, nodes.indices((np.arange(layout.n_channels) + later) % layout.n_channels)
            )
            both = nodes.add("Add" if sign > 0 else "Sub", units, second)
            is_signal = nodes.add(
                "Greater", nodes.mean(nodes.add("Mul", both, both), [-1]), nodes.constant(CANCELLED**2)
            )
            looked_at = nodes.add("Mul", sizes, nodes.add("Where", is_signal, both, zero))
        looked_at = nodes.add("Div", looked_at, nodes.constant(scale[..., None]))
        looked_at = nodes.add("Cast", looked_at, to=1)  # single precision, as in Convolutions
        chosen = pair_of_waveform == pair
        thresholds = view.thresholds_[:, chosen] / scale
        shares.append(_shares_above(nodes, looked_at, WAVEFORMS[chosen], layout.dilations, thresholds, n_times))
    order = np.argsort(np.argsort(pair_of_waveform, kind="stable"))
    in_order = nodes.add("Gather", nodes.add("Concat", *shares, axis=1), nodes.indices(order), axis=1)
    return nodes.reshape(nodes.add("Transpose", in_order, perm=[3, 2, 0, 1, 4]), (-1, *layout.shape))


def _centred_signals(nodes: Nodes, view: Convolutions, T: str) -> str:
    """Arrange samples as signals (channels, n, times), less their means; constant ones are exactly zero."""
    shape = view.sample_shape_
    zero = nodes.constant(0.0)
    time = view.layout(shape).time_axis + 1
    others = [axis for axis in range(1, len(shape) + 1) if axis != time]
    T = nodes.add("Transpose", T, perm=[*others, 0, time])
    T = nodes.reshape(T, (math.prod(shape) // shape[time - 1], -1, shape[time - 1]))
    first = nodes.cut(T, 0, 1, -1)
    T = nodes.add("Sub", T, first)
    reach = nodes.add("ReduceMax", nodes.add("Abs", T), axes=[-1], keepdims=1)
    rounding = nodes.add("Mul", nodes.constant(ROUNDING), nodes.add("Abs", first))
    T = nodes.add("Where", nodes.add("LessOrEqual", reach, rounding), zero, T)
    T = nodes.add("Sub", T, nodes.mean(T, [-1]))
    if not view.average:
        return T
    average = nodes.mean(T, [0])
    size = nodes.mean(nodes.add("Mul", T, T), [0, 2])
    power = nodes.mean(nodes.add("Mul", average, average), [-1])
    is_signal = nodes.add("Greater", power, nodes.add("Mul", nodes.constant(CANCELLED**2), size))
    return nodes.add("Where", is_signal, average, zero)


def _shares_above(
    nodes: Nodes,
    signals: str,
    waveforms: NDArray[Any],
    dilations: Sequence[int],
    thresholds: NDArray[Any],
    n_times: int,
) -> str:
    """Find the shares of times at which convolutions are above thresholds: (dilations, waveforms, channels, n, thresholds)."""
    n_channels = thresholds.shape[2]
    lowered = np.concatenate([waveforms, np.full((len(waveforms), 1), -LOWERED)], axis=1)
    peaks = nodes.add("ReduceMax", nodes.add("Abs", signals), axes=[-1], keepdims=1)
    step = -(-n_times // MOST_TIMES)
    looked_at = len(range(0, n_times, step))
    front = nodes.indices([0])
    shares = []
    for d, dilation in enumerate(dilations):
        reach = dilation * (LENGTH // 2)
        padded = nodes.add("Pad", signals, nodes.indices([0, 0, reach, 0, 0, reach]), mode="edge")
        points = [nodes.cut(padded, i * dilation, i * dilation + n_times, -1, step) for i in range(LENGTH)]
        points.append(nodes.add("Expand", peaks, nodes.add("Shape", points[0])))
        stacked = nodes.add("Concat", *(nodes.add("Unsqueeze", point, front) for point in points), axis=0)
        response = nodes.add("MatMul", nodes.constant(lowered, np.float32), nodes.reshape(stacked, (LENGTH + 1, -1)))
        response = nodes.reshape(response, (len(waveforms), n_channels, -1, looked_at))
        counts = []
        for q in range(thresholds.shape[-1]):
            level = nodes.constant(thresholds[d, :, :, None, None, q], np.float32)
            above = nodes.add("Cast", nodes.add("Greater", response, level), to=1)
            counts.append(nodes.add("Unsqueeze", nodes.sum(above, [-1], keepdims=False), nodes.indices([3])))
        share = nodes.add("Cast", nodes.add("Concat", *counts, axis=3), to=11)
        share = nodes.add("Div", share, nodes.constant(looked_at))
        shares.append(nodes.add("Unsqueeze", share, front))
    return nodes.add("Concat", *shares, axis=0)


# --- similarities, and several views -----------------------------------------------------------------------------------


def _similarities(nodes: Nodes, view: Similarities, T: str) -> str:
    for inside in view.transformers_:
        T = add_nodes(nodes, inside, T)
    Z = nodes.add("Flatten", T, axis=1)
    Z = nodes.add("Div", nodes.add("Sub", Z, nodes.constant(view.mean_)), nodes.constant(view.scale_))
    P = view.points_
    products = nodes.add("MatMul", Z, nodes.constant(2.0 * P.T))
    squares = nodes.add("Add", nodes.sum(nodes.add("Mul", Z, Z), [1]), nodes.constant(np.sum(P**2, axis=1)[None]))
    squares = nodes.add("Max", nodes.add("Sub", squares, products), nodes.constant(0.0))
    squares = nodes.add("Div", squares, nodes.constant(view.width**2))
    distances = nodes.add("Add", squares, nodes.constant(SOFTENING))
    if view.kernel == "exponential":
        distances = nodes.add("Sqrt", distances)
    kernel = nodes.add("Exp", nodes.add("Neg", distances))
    return nodes.add("MatMul", kernel, nodes.constant(view.whitener_.T))


def _chain(nodes: Nodes, view: Chain, T: str) -> str:
    for inside in view.transformers_:
        T = add_nodes(nodes, inside, T)
    return T


def _views(nodes: Nodes, view: Views, T: str) -> str:
    parts = []
    for inside, factor in zip(view.transformers_, view.view_factors_, strict=True):
        flat = nodes.add("Flatten", add_nodes(nodes, inside, T), axis=1)
        parts.append(nodes.add("Mul", flat, nodes.constant(np.full(math.prod(inside.output_shape_), factor))))
    return nodes.add("Concat", *parts, axis=1)


# A transformer of this package has its nodes here; a graph of any other is refused.
NODES_OF: dict[type, Callable[[Nodes, Any, str], str]] = {
    TensorStandardScaler: _scaler,
    Chain: _chain,
    LinearChain: _chain,
    ModePCA: _mode_products,
    ModeWhitener: _mode_products,
    Logarithm: _logarithm,
    SecondOrder: _second_order,
    Convolutions: _convolutions,
    Similarities: _similarities,
    Views: _views,
}
