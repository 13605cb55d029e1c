"""Transformers as nodes of ONNX graphs: one function for each class, found by the class in ``NODES_OF``.

Nodes compute in double precision what ``transform_tensors`` does, from fitted attributes, and are written as in NumPy: operators
of a `Value` add nodes. ONNX has no eigenvectors: matrix logarithms are found by Jacobi's rotations. Factors of products are
written out as arrays of several numbers, since onnxruntime makes a single one part of the product, in single precision.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tracelearn.errors import InputError
from tracelearn.features import (
    Chain,
    Convolutions,
    Detrend,
    LinearChain,
    Logarithm,
    ModePCA,
    ModeWhitener,
    SavitzkyGolay,
    ScatterCorrection,
    SecondOrder,
    Similarities,
    TensorStandardScaler,
    Thresholds,
    Views,
)
from tracelearn.features.axes import read_long_mode
from tracelearn.features.convolutions import CANCELLED, LENGTH, LOWERED, MOST_TIMES, ROUNDING, WAVEFORMS
from tracelearn.features.scatter import NEGLIGIBLE
from tracelearn.features.similarities import SOFTENING
from tracelearn.optional import require

__all__ = ["DOUBLE", "NODES_OF", "Nodes", "Value", "add_nodes"]

DOUBLE, _SINGLE = 11, 1  # ONNX's numbers of these types

_SWEEPS = 15  # of Jacobi's rotations at most; eight or nine are usual
_OFF_DIAGONAL = 1e-15  # of the largest entry: rounding leaves no less


class Value:
    """An array that a graph computes; its operators add nodes to the graph, and take arrays and numbers as constants."""

    __array_ufunc__ = None  # an array of NumPy on the left leaves the operator to this class

    def __init__(self, nodes: Nodes, name: str) -> None:
        self.nodes = nodes
        self.name = name

    def __add__(self, other: Any) -> Value:
        return self.nodes.add("Add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self.nodes.add("Add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self.nodes.add("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.nodes.add("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.nodes.add("Mul", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self.nodes.add("Mul", other, self)

    def __truediv__(self, other: Any) -> Value:
        return self.nodes.add("Div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.nodes.add("Div", other, self)

    def __matmul__(self, other: Any) -> Value:
        return self.nodes.add("MatMul", self, other)

    def __rmatmul__(self, other: Any) -> Value:
        return self.nodes.add("MatMul", other, self)

    def __neg__(self) -> Value:
        return self.nodes.add("Neg", self)

    def __gt__(self, other: Any) -> Value:
        return self.nodes.add("Greater", self, other)

    def __le__(self, other: Any) -> Value:
        return self.nodes.add("LessOrEqual", self, other)

    def __lt__(self, other: Any) -> Value:
        return self.nodes.add("Less", self, other)

    def abs(self) -> Value:
        """Take absolute values."""
        return self.nodes.add("Abs", self)

    def sqrt(self) -> Value:
        """Take square roots."""
        return self.nodes.add("Sqrt", self)

    def log(self) -> Value:
        """Take logarithms."""
        return self.nodes.add("Log", self)

    def at_least(self, floor: Any) -> Value:
        """Replace smaller entries by a floor."""
        return self.nodes.add("Max", self, floor)

    def where(self, condition: Value, other: Any) -> Value:
        """Take other values where a condition does not hold."""
        return self.nodes.add("Where", condition, self, other)

    def cast(self, to: int) -> Value:
        """Change the type to one of ONNX."""
        return self.nodes.add("Cast", self, to=to)

    def flat(self) -> Value:
        """Give each sample one axis."""
        return self.nodes.add("Flatten", self, axis=1)

    def reshape(self, shape: Sequence[int]) -> Value:
        """Give the array a shape, of which one size may be -1."""
        return self.nodes.add("Reshape", self, self.nodes.indices(shape))

    def transpose(self, order: Sequence[int]) -> Value:
        """Permute the axes."""
        return self.nodes.add("Transpose", self, perm=list(order))

    def moveaxis(self, source: int, destination: int, n_axes: int) -> Value:
        """Move one of so many axes, as NumPy does."""
        order = [axis for axis in range(n_axes) if axis != source]
        order.insert(destination, source)
        return self.transpose(order)

    def expand(self, *axes: int) -> Value:
        """Add axes of size one."""
        return self.nodes.add("Unsqueeze", self, self.nodes.indices(axes))

    def take(self, places: Sequence[int] | NDArray[Any], axis: int = 0) -> Value:
        """Take entries along an axis."""
        return self.nodes.add("Gather", self, self.nodes.indices(places), axis=axis)

    def cut(self, start: int, stop: int, axis: int, step: int = 1) -> Value:
        """Take a slice along an axis."""
        return self.nodes.add("Slice", self, *(self.nodes.indices([value]) for value in (start, stop, axis, step)))

    def mean(self, *axes: int) -> Value:
        """Average over axes, which keep size one."""
        return self.nodes.add("ReduceMean", self, axes=axes, keepdims=1)

    def max(self, *axes: int, keepdims: bool = True) -> Value:
        """Find the largest entries along axes, or of the whole array where none is named."""
        return self.nodes.add("ReduceMax", self, axes=axes or None, keepdims=int(keepdims))

    def sum(self, *axes: int, keepdims: bool = True) -> Value:
        """Sum over axes."""
        return self.nodes.add("ReduceSum", self, self.nodes.indices(axes), keepdims=int(keepdims))


class Nodes:
    """Nodes of a graph in the making, and the constants they use; names are given in the order of their making.

    Parameters
    ----------
    prefix : what every name begins with, so that graphs inside of others have their own
    """

    def __init__(self, prefix: str = "view") -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._names = (f"{prefix}_{count}" for count in itertools.count())

    def input(self, name: str) -> Value:
        """Name an input of the graph."""
        return Value(self, name)

    def new(self) -> Value:
        """Give a new name to an array."""
        return Value(self, next(self._names))

    def add(self, operator: str, *inputs: Any, output: str | None = None, **attributes: Any) -> Value:
        """Add a node and return its output, of a new name unless one is given; inputs that are no values are constants."""
        values = [value if isinstance(value, Value) else self.constant(value) for value in inputs]
        result = self.new() if output is None else Value(self, output)
        helper = require("onnx.helper", "onnx")
        self.nodes.append(helper.make_node(operator, [value.name for value in values], [result.name], **attributes))
        return result

    def add_loop(self, body: Any, rounds: Value, condition: Value, *states: Value) -> list[Value]:
        """Repeat a graph that takes and gives states, so many times at most, while its condition holds."""
        results = [self.new() for _ in states]
        inputs = [value.name for value in (rounds, condition, *states)]
        helper = require("onnx.helper", "onnx")
        self.nodes.append(helper.make_node("Loop", inputs, [value.name for value in results], body=body))
        return results

    def constant(self, values: Any, dtype: Any = np.float64) -> Value:
        """Add a constant."""
        result = self.new()
        numpy_helper = require("onnx.numpy_helper", "onnx")
        self.constants.append(numpy_helper.from_array(np.array(values, dtype=dtype, order="C"), result.name))
        return result

    def indices(self, values: Sequence[int] | NDArray[Any]) -> Value:
        """Add whole numbers, such as a shape or axes."""
        return self.constant(values, np.int64)

    def concatenate(self, values: Iterable[Value], axis: int) -> Value:
        """Join arrays along an axis."""
        return self.add("Concat", *values, axis=axis)


def add_nodes(view: Any, T: Value) -> Value:
    """Add the nodes of a fitted transformer to the graph of tensors (n, I1, ..., IN); refuse one that has none."""
    check_is_fitted(view)
    if type(view) not in NODES_OF:
        raise InputError(
            f"Expected transformers that have a graph, {', '.join(sorted(kind.__name__ for kind in NODES_OF))}, got "
            f"{type(view).__name__}: choose views or steps among these, or serve the model in Python."
        )
    return NODES_OF[type(view)](view, T)


# --- linear transformers and logarithms ---------------------------------------------------------------------------------


def _scaler(view: TensorStandardScaler, T: Value) -> Value:
    if view.with_mean:
        T = T - view.mean_
    return T / view.scale_ if view.with_std else T


def _mode_products(view: ModePCA | ModeWhitener, T: Value) -> Value:
    if view.center:
        T = T - view.mean_
    order = len(view.sample_shape_)
    for matrix in view.mode_matrices:  # takes the first mode away and puts it last: a full turn restores the order
        T = T.transpose([0, *range(2, order + 1), 1]) @ matrix.T
    return T


def _logarithm(view: Logarithm, T: Value) -> Value:
    floor = T.nodes.constant(view.floor_)
    is_positive = T > 0.0
    return T.where(is_positive, 1.0).log().at_least(floor).where(is_positive, floor)


def _savitzky_golay(view: SavitzkyGolay, T: Value) -> Value:
    n_axes, axis = 1 + len(view.sample_shape_), 1 + read_long_mode(view.mode, view.sample_shape_)
    n_points = view.sample_shape_[axis - 1]
    places = np.arange(n_points)
    first = np.clip(places - view.window // 2, 0, n_points - view.window)  # of the window that each point is read off
    windows = T.moveaxis(axis, n_axes - 1, n_axes).take(first[:, None] + np.arange(view.window), axis=n_axes - 1)
    filtered = (windows * view.responses()[places - first]).sum(-1, keepdims=False)
    back: Value = filtered.moveaxis(n_axes - 1, axis, n_axes) / view.scale_
    return back


def _detrend(view: Detrend, T: Value) -> Value:
    n_axes, axis = 1 + len(view.sample_shape_), 1 + read_long_mode(view.mode, view.sample_shape_)
    basis = view.polynomials(view.sample_shape_[axis - 1])
    T = T.moveaxis(axis, n_axes - 1, n_axes)
    T = T - T.cut(0, 1, -1)
    residual: Value = T - T @ basis @ basis.T
    return residual.moveaxis(n_axes - 1, axis, n_axes)


# --- scatter and thresholds ---------------------------------------------------------------------------------------------


def _scatter_correction(view: ScatterCorrection, T: Value) -> Value:
    axis = 1 + read_long_mode(view.mode, view.sample_shape_)
    _, size, variate = _normal_variate(T, axis)
    if view.method == "snv":
        return variate
    level, size_of_reference, profile = _normal_variate(T.nodes.constant(view.mean_[None]), axis)
    correlation = (variate * profile).mean(axis)
    is_comparable = correlation.abs() > NEGLIGIBLE
    return level + variate * (size_of_reference / correlation.where(is_comparable, 1.0)).where(is_comparable, size)


def _normal_variate(T: Value, axis: int) -> tuple[Value, Value, Value]:
    """Find the mean and the standard deviation of tensors along an axis, and the tensors less the one, divided by the other."""
    mean = T.mean(axis)
    deviation = T - mean
    largest = deviation.abs().max(axis)
    varies = largest > mean.abs() * NEGLIGIBLE
    relative = deviation / largest
    size = (largest * (relative * relative).mean(axis).sqrt()).where(varies, 1.0)
    return mean, size, deviation / size


def _thresholds(view: Thresholds, T: Value) -> Value:
    axis = 1 + read_long_mode(view.mode, view.sample_shape_)
    n_points = view.sample_shape_[axis - 1]
    if view.n_intervals < n_points:
        intervals = itertools.pairwise(view.edges(n_points))
        T = T.nodes.concatenate([T.cut(first, last, axis).mean(axis) for first, last in intervals], axis=axis)
    is_above: Value = T.expand(1) > view.thresholds()[None]
    return is_above.cast(DOUBLE)


# --- second order -------------------------------------------------------------------------------------------------------


def _second_order(view: SecondOrder, T: Value) -> Value:
    R = view.whitener_
    S = R @ _covariances(view, _signals_with_copies(view, T)) @ np.swapaxes(R, -1, -2) + view.still_
    c = R.shape[-1]
    return _matrix_logarithm(S.reshape((-1, c, c)), c, view.floor_).reshape((-1, *view.output_shape_))


def _signals_with_copies(view: SecondOrder, T: Value) -> Value:
    """Arrange samples as signals (n, kept..., windows, channels, times), with their copies, divided by their scales."""
    shape = view.sample_shape_
    kept, channels, time = view.axes(shape)
    n_channels = math.prod(shape[mode] for mode in channels)
    n_times = shape[time]
    T = T.transpose([0, *(mode + 1 for mode in (*kept, *channels, time))])
    T = T.reshape((-1, *(shape[mode] for mode in kept), n_channels, n_times))
    if view.difference:
        later = T.cut(1, n_times, -1)
        T = T.nodes.concatenate([later, later - T.cut(0, n_times - 1, -1)], axis=-2)
        n_times -= 1
    if view.lags:
        longest = view.lags * view.lag_step
        delays = [view.lag_step * copy for copy in range(view.lags + 1)]
        T = T.nodes.concatenate([T.cut(longest - delay, n_times - delay, -1) for delay in delays], axis=-2)
        n_times -= longest
    if view.windows > 1:
        size = n_times // view.windows
        windows = [T.cut(w * size, (w + 1) * size, -1) for w in range(view.windows)]
        T = T.nodes.concatenate([window.expand(len(kept) + 1) for window in windows], axis=-3)
    return T if view.channel_scale_ is None else T / view.channel_scale_


def _covariances(view: SecondOrder, signals: Value) -> Value:
    """Find shrunk covariances of signals (..., channels, times), with their means."""
    order = len(view.output_shape_) + 1
    turned = [*range(order - 2), order - 1, order - 2]
    c = view.output_shape_[-1] - bool(view.mean)
    time = view.time_axis_
    n_times = (view.sample_shape_[time] - view.difference - view.lags * view.lag_step) // view.windows
    means = signals.mean(-1)
    signals = signals - means
    C = _shrunk(signals @ signals.transpose(turned) / np.full((c, c), n_times), c, n_times, view.shrinkage)
    if not view.mean:
        return C
    means = means * np.full((c, 1), view.mean_scale_)
    row = means.transpose(turned)
    corner = (means * 0.0).mean(-2) + 1.0
    concatenate = C.nodes.concatenate
    return concatenate([concatenate([C + means @ row, means], axis=-1), concatenate([row, corner], axis=-1)], axis=-2)


def _shrunk(C: Value, c: int, n_times: int, shrinkage: Any) -> Value:
    """Shrink covariances (..., c, c) of so many times towards the identity times their mean variance."""
    eye = C.nodes.constant(np.eye(c))
    level = (C * eye).sum(-2, -1) / c
    if shrinkage == "oas":
        square = (C * C).mean(-2, -1)
        spread = (n_times + 1.0) * (square - level * level / c)
        varies = spread > 0.0
        share = (square + level * level) / spread.where(varies, 1.0)
        share = C.nodes.add("Min", share, 1.0).where(varies, 1.0)
    else:
        share = C.nodes.constant(float(shrinkage))
    return (1.0 - share) * C + share * level * eye


def _matrix_logarithm(S: Value, c: int, floor: float) -> Value:
    """Take the logarithm of symmetric matrices (n, c, c), with eigenvalues below ``floor`` replaced by it.

    Jacobi's method with parallel rotations: in each round neighbours 2k and 2k + 1 are rotated so that the entry of the
    matrix for this pair vanishes; then rows and columns are permuted as in a round-robin tournament, so that c - 1 rounds
    visit all pairs.
    """
    nodes = S.nodes
    S = (S + S.transpose([0, 2, 1])) * 0.5
    m = c + c % 2
    if m > c:  # pairs need an even size: a row and a column of zeros, which no rotation mixes with the others
        S = nodes.add("Pad", S, nodes.indices([0, 0, 0, 0, 1, 1]), 0.0)
    eye = nodes.constant(np.eye(m))
    vectors = nodes.add("Expand", eye, nodes.add("Shape", S))
    rounds = nodes.constant(_SWEEPS * max(1, m - 1), np.int64)
    is_unfinished = nodes.constant(True, np.bool_)
    rotated, vectors = nodes.add_loop(_rotation_loop(m), rounds, is_unfinished, S, vectors)
    eigenvalues = (rotated * eye).sum(-2)  # (n, 1, m)
    product = vectors * eigenvalues.at_least(floor).log() @ vectors.transpose([0, 2, 1])
    return product.cut(0, c, -1).cut(0, c, -2) if m > c else product


def _rotation_loop(m: int) -> Any:
    """Make the body of a loop: one round of Jacobi's rotations of matrices (n, m, m) and of their eigenvectors so far.

    It keeps going while an entry off the diagonal is larger than rounding.
    """
    nodes = Nodes("round")
    S, vectors = nodes.input("S"), nodes.input("vectors")
    places = np.arange(m)
    diagonal = (S * np.eye(m)).sum(-1, keepdims=False)
    products = (S * np.eye(m)[places ^ 1]).sum(-1, keepdims=False)
    first = diagonal.take(places[::2], axis=1)
    second = diagonal.take(places[1::2], axis=1)
    product = products.take(places[::2], axis=1)
    # The tangent of the smaller of the two angles that make the product vanish (Golub and Van Loan, section 8.5).
    is_diagonal = nodes.add("Equal", product, 0.0)
    ratio = (second - first) / (2.0 * nodes.add("Where", is_diagonal, 1.0, product))
    sign = nodes.add("Where", ratio < 0.0, -1.0, 1.0)
    tangent = sign / (ratio.abs() + (1.0 + ratio * ratio).sqrt())
    tangent = nodes.add("Where", is_diagonal, 0.0, tangent)
    cosine = 1.0 / (1.0 + tangent * tangent).sqrt()
    sine = tangent * cosine
    # Row and column order[j] move to place j, rotated with their neighbour order[j] ^ 1.
    order = _next_places(m)
    cosines = cosine.take(order // 2, axis=1)
    sines = sine.take(order // 2, axis=1) * np.where(order % 2, 1.0, -1.0)
    to_itself = np.eye(m)[:, order]
    to_neighbour = np.eye(m)[:, order ^ 1]
    columns = cosines.expand(1) * to_itself + sines.expand(1) * to_neighbour  # the rotation (n, m, m), and transposed:
    rows = cosines.expand(2) * to_itself.T + sines.expand(2) * to_neighbour.T
    S_after = rows @ S @ columns
    vectors_after = vectors @ columns
    off_diagonal = (S_after * (1.0 - np.eye(m))).abs().max(1, 2, keepdims=False)
    excess = off_diagonal - S_after.abs().max(1, 2, keepdims=False) * _OFF_DIAGONAL
    is_unfinished = excess.max(keepdims=False) > 0.0

    describe = require("onnx.helper", "onnx").make_tensor_value_info
    types = require("onnx", "onnx").TensorProto
    inputs = [describe("count", types.INT64, []), describe("going_on", types.BOOL, [])]
    inputs += [describe(value.name, types.DOUBLE, ["n", m, m]) for value in (S, vectors)]
    outputs = [describe(is_unfinished.name, types.BOOL, [])]
    outputs += [describe(value.name, types.DOUBLE, ["n", m, m]) for value in (S_after, vectors_after)]
    return require("onnx.helper", "onnx").make_graph(nodes.nodes, "rotations", inputs, outputs, nodes.constants)


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


def _convolutions(view: Convolutions, T: Value) -> Value:
    layout = view.layout(view.sample_shape_)
    n_times = view.sample_shape_[layout.time_axis]
    signals = _centred_signals(view, T)
    zero = T.nodes.constant(0.0)
    sizes = (signals * signals).mean(-1).sqrt()
    units = signals / sizes.where(sizes > zero, 1.0)
    largest = np.max(np.abs(view.thresholds_), axis=(0, 1, 3))[:, None]
    scale = np.where(largest > 0, largest, 1.0)
    pairs, pair_of_waveform = np.unique(layout.pairs, axis=0, return_inverse=True)
    pair_of_waveform = pair_of_waveform.ravel()
    shares = []
    for pair, (later, sign) in enumerate(pairs.tolist()):
        looked_at = signals
        if sign:
            second = units.take((np.arange(layout.n_channels) + later) % layout.n_channels)
            both = units + second if sign > 0 else units - second
            looked_at = sizes * both.where((both * both).mean(-1) > CANCELLED**2, zero)
        looked_at = (looked_at / scale[..., None]).cast(_SINGLE)  # as in Convolutions
        chosen = pair_of_waveform == pair
        thresholds = view.thresholds_[:, chosen] / scale
        shares.append(_shares_above(looked_at, WAVEFORMS[chosen], layout.dilations, thresholds, n_times))
    order = np.argsort(np.argsort(pair_of_waveform, kind="stable"))
    in_order = T.nodes.concatenate(shares, axis=1).take(order, axis=1)
    return in_order.transpose([3, 2, 0, 1, 4]).reshape((-1, *layout.shape))


def _centred_signals(view: Convolutions, T: Value) -> Value:
    """Arrange samples as signals (channels, n, times), less their means; constant ones are exactly zero."""
    shape = view.sample_shape_
    zero = T.nodes.constant(0.0)
    time = view.layout(shape).time_axis + 1
    others = [axis for axis in range(1, len(shape) + 1) if axis != time]
    T = T.transpose([*others, 0, time]).reshape((math.prod(shape) // shape[time - 1], -1, shape[time - 1]))
    first = T.cut(0, 1, -1)
    T = T - first
    is_constant = T.abs().max(-1) <= ROUNDING * first.abs()
    T = zero.where(is_constant, T)
    T = T - T.mean(-1)
    if not view.average:
        return T
    average = T.mean(0)
    is_signal = (average * average).mean(-1) > CANCELLED**2 * (T * T).mean(0, 2)
    return average.where(is_signal, zero)


def _shares_above(
    signals: Value,
    waveforms: NDArray[Any],
    dilations: Sequence[int],
    thresholds: NDArray[Any],
    n_times: int,
) -> Value:
    """Find the shares of times at which convolutions are above thresholds: (dilations, waveforms, channels, n, thresholds)."""
    nodes = signals.nodes
    n_channels = thresholds.shape[2]
    lowered = np.concatenate([waveforms, np.full((len(waveforms), 1), -LOWERED)], axis=1)
    peaks = signals.abs().max(-1)
    step = -(-n_times // MOST_TIMES)
    looked_at = len(range(0, n_times, step))
    shares = []
    for d, dilation in enumerate(dilations):
        reach = dilation * (LENGTH // 2)
        padded = nodes.add("Pad", signals, nodes.indices([0, 0, reach, 0, 0, reach]), mode="edge")
        points = [padded.cut(i * dilation, i * dilation + n_times, -1, step) for i in range(LENGTH)]
        points.append(nodes.add("Expand", peaks, nodes.add("Shape", points[0])))
        stacked = nodes.concatenate([point.expand(0) for point in points], axis=0).reshape((LENGTH + 1, -1))
        response = nodes.constant(lowered, np.float32) @ stacked
        response = response.reshape((len(waveforms), n_channels, -1, looked_at))
        counts = []
        for q in range(thresholds.shape[-1]):
            level = nodes.constant(thresholds[d, :, :, None, None, q], np.float32)
            counts.append((response > level).cast(_SINGLE).sum(-1, keepdims=False).expand(3))
        shares.append((nodes.concatenate(counts, axis=3).cast(DOUBLE) / looked_at).expand(0))
    return nodes.concatenate(shares, axis=0)


# --- similarities, and several views -----------------------------------------------------------------------------------


def _similarities(view: Similarities, T: Value) -> Value:
    Z = (_chain(view, T).flat() - view.mean_) / view.scale_
    P = view.points_
    squares = (Z * Z).sum(1) + np.sum(P**2, axis=1)[None] - Z @ (2.0 * P.T)
    distances = squares.at_least(0.0) / view.width**2 + SOFTENING
    if view.kernel == "exponential":
        distances = distances.sqrt()
    similarities: Value = T.nodes.add("Exp", -distances) @ view.whitener_.T
    return similarities


def _chain(view: Chain | LinearChain | Similarities, T: Value) -> Value:
    for transformer in view.transformers_:
        T = add_nodes(transformer, T)
    return T


def _views(view: Views, T: Value) -> Value:
    parts = []
    for transformer, factor in zip(view.transformers_, view.view_factors_, strict=True):
        parts.append(add_nodes(transformer, T).flat() * np.full(math.prod(transformer.output_shape_), factor))
    return T.nodes.concatenate(parts, axis=1)


# A transformer of this package has its nodes here; a graph of any other is refused.
NODES_OF: dict[type, Callable[[Any, Value], Value]] = {
    TensorStandardScaler: _scaler,
    Chain: _chain,
    LinearChain: _chain,
    ModePCA: _mode_products,
    ModeWhitener: _mode_products,
    Logarithm: _logarithm,
    SavitzkyGolay: _savitzky_golay,
    Detrend: _detrend,
    ScatterCorrection: _scatter_correction,
    Thresholds: _thresholds,
    SecondOrder: _second_order,
    Convolutions: _convolutions,
    Similarities: _similarities,
    Views: _views,
}
