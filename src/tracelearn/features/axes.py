"""Which mode of a sample is time or smooth, and modes that are named by a parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, to_numpy, widest
from tracelearn.errors import brief

__all__ = [
    "find_smooth_mode",
    "find_time_axis",
    "neighbour_correlation",
    "read_long_mode",
    "read_modes",
    "read_time_axis",
    "times_and_channels",
]

_FEWEST_TIMES = 16
_MOST_CHANNELS = 128

# A mode is smooth where it has so many points, and where neighbours are correlated so much.
_FEWEST_POINTS = 45  # three windows of a default filter
_LEAST_CORRELATION = 0.8
_MOST_FIBRES = 8  # signals of more channels are told apart by how these go together, for which there are other views
_SMOOTH_NAMES = ("wavelength", "wavenumber", "raman shift", "frequency", "time")


def find_time_axis(
    shape: tuple[int, ...], time_axis: Any = "auto", modes: Sequence[Any] | None = None
) -> tuple[int | None, str]:
    """Find the mode of a sample that can be time, and say why; None where there is none.

    The channels of a mode are the indices of all other modes together. A mode can be time if it has at least 16 points,
    at most 128 channels, and at most two channels for each point. "auto" takes the mode that is called time, if one of
    ``modes`` is, else the last mode that can be time; a number or a name asks about that mode alone.

    Examples
    --------
    >>> from tracelearn.features import find_time_axis
    >>> find_time_axis((64, 256))
    (1, 'mode 1 can be time: 256 times of 64 channels')
    >>> find_time_axis((6, 11))
    (None, 'no mode of (6, 11) can be time, which needs 16 times, at most 128 channels, and at most 2 channels for each time')
    """
    if time_axis is None:
        return None, "time_axis=None"
    names = [mode.name for mode in modes or ()]
    if isinstance(time_axis, str):
        name = "time" if time_axis == "auto" else time_axis
        if name not in names and time_axis != "auto":
            raise ValueError(
                "Expected time_axis to be a number, 'auto', None or the name of a mode "
                f"({', '.join(names) or 'they have none'}), got {brief(time_axis)}: choose one of these."
            )
        time_axis = names.index(name) if name in names else time_axis
    candidates = reversed(range(len(shape))) if time_axis == "auto" else read_modes(time_axis, shape, "time_axis")
    for axis in candidates:
        times = shape[axis]
        channels = math.prod(shape) // times
        if times >= max(_FEWEST_TIMES, channels / 2) and channels <= _MOST_CHANNELS:
            return axis, f"mode {axis} can be time: {times} times of {channels} channels"
    subject = f"no mode of {shape}" if time_axis == "auto" else f"mode {time_axis} of {shape} hardly"
    needs = f"{_FEWEST_TIMES} times, at most {_MOST_CHANNELS} channels, and at most 2 channels for each time"
    return None, f"{subject} can be time, which needs {needs}"


def read_time_axis(time_axis: Any, shape: tuple[int, ...]) -> int:
    """Find the mode of samples of a shape that is time, by its number or by "auto"; refuse samples without one."""
    time, reason = find_time_axis(shape) if time_axis == "auto" else (time_axis, "")
    if time is None:
        raise ValueError(f"Expected samples with a time axis, got none ({reason}): name it with time_axis.")
    return read_modes(time, shape, "time_axis")[0]


def times_and_channels(shape: tuple[int, ...], time_axis: Any) -> tuple[int, int]:
    """Count times and channels of samples for a search; both are zero where no mode can be time, or there is one mode."""
    time = find_time_axis(shape, time_axis)[0] if len(shape) > 1 else None
    return (0, 0) if time is None else (shape[time], math.prod(shape) // shape[time])


def find_smooth_mode(T: Array, weight: Array, modes: Sequence[Any] | None = None) -> tuple[int | None, str]:
    """Find the mode along which samples are smooth functions, as spectra are, and say why; None where there is none.

    It has at least 45 points, and at most eight fibres run along it. A mode whose name says so (wavelength, wavenumber, Raman
    shift, frequency, time) is taken as it is; another is smooth where half of its neighbouring points are correlated by .8 or
    more.

    Parameters
    ----------
    T : array of shape (n, I1, ..., IN)
    weight : array of shape (n,)
    modes : the modes of a sample, if they have names

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.features import find_smooth_mode
    >>> noise = np.random.default_rng(0).normal(size=(50, 100))
    >>> find_smooth_mode(noise, np.ones(50))[0], find_smooth_mode(np.cumsum(noise, axis=1), np.ones(50))[0]
    (None, 0)
    """
    shape = tuple(T.shape[1:])
    long_modes = [
        mode
        for mode, length in enumerate(shape)
        if length >= _FEWEST_POINTS and math.prod(shape) <= _MOST_FIBRES * length
    ]
    if not long_modes:
        return None, f"no mode of {shape} has {_FEWEST_POINTS} points and at most {_MOST_FIBRES} fibres"
    for mode in long_modes:
        name = str(modes[mode].name).lower().replace("_", " ") if modes else ""
        if any(word in name for word in _SMOOTH_NAMES):
            return mode, f"mode {mode} is called {name}"
    (mode,) = long_modes  # two modes of 45 points cross more fibres
    correlation = neighbour_correlation(T, weight, mode)
    reason = f"neighbours along mode {mode} are correlated by {correlation:.2f}"
    return (mode if correlation >= _LEAST_CORRELATION else None), reason


def neighbour_correlation(T: Array, weight: Array, mode: int) -> float:
    """Find the median correlation, over samples of some weight, of entries that are neighbours along a mode.

    Entries that do not vary are left out; zero where none varies.
    """
    xp = array_namespace(T)
    Z = xp.moveaxis(as_dtype(T, widest(T)["dtype"]), mode + 1, -1)
    share = as_dtype(weight / xp.sum(weight), Z.dtype)

    def mean(values: Array) -> Array:
        return xp.tensordot(share, values, axes=((0,), (0,)))

    Z = Z - Z[:1, ...]  # about the first sample first, for what all have in common
    Z = Z - mean(Z)
    largest = float(xp.max(xp.abs(Z)))
    if not 0.0 < largest < np.inf:
        return 0.0
    Z = Z / largest
    products = to_numpy(mean(Z[..., 1:] * Z[..., :-1]))
    deviations = np.sqrt(to_numpy(mean(Z**2)))
    sizes = deviations[..., 1:] * deviations[..., :-1]
    varies = sizes > 0
    return float(np.median(products[varies] / sizes[varies])) if np.any(varies) else 0.0


def read_long_mode(mode: int | None, shape: tuple[int, ...]) -> int:
    """Read a mode that is named by its number; None is the longest one, of equal ones the last."""
    if mode is not None:
        return read_modes(mode, shape, "mode")[0]
    return max(range(len(shape)), key=lambda axis: (shape[axis], axis))


def read_modes(modes: Any, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Read a mode or several, counted from either end, as numbers from 0 on in increasing order."""
    order = len(shape)
    listed = [modes] if isinstance(modes, Integral) else list(modes)
    if not all(isinstance(mode, Integral) and -order <= int(mode) < order for mode in listed):
        raise ValueError(
            f"Expected {name} to be modes from 0 to {order - 1} of samples of shape {shape}, got {brief(modes)}: modes are the "
            "axes of X without the first."
        )
    return tuple(sorted({int(mode) % order for mode in listed}))
