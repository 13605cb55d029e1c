"""Which mode of a sample is time, and modes that are named by a parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from tracelearn.errors import brief

__all__ = ["find_time_axis", "read_modes", "read_time_axis", "times_and_channels"]

_FEWEST_TIMES = 16
_MOST_CHANNELS = 128


def find_time_axis(
    shape: tuple[int, ...], time_axis: Any = "auto", modes: Sequence[Any] | None = None
) -> tuple[int | None, str]:
    """Find the mode of a sample that can be time, and say why; None where there is none.

    Time is long enough, at least 16 and half as long as there are channels, and has at most 128 channels, which are
    the product of all other sizes. With "auto" the last mode is looked at first, or that one of ``modes`` which is called
    time; a number or a name asks about that mode alone.

    Examples
    --------
    >>> from tracelearn.features import find_time_axis
    >>> find_time_axis((64, 256))
    (1, 'mode 1 can be time: 256 times of 64 channels')
    >>> find_time_axis((6, 11))
    (None, 'no mode of (6, 11) can be time, which needs at least 16 times, at most 128 channels and twice as many')
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
    needs = f"at least {_FEWEST_TIMES} times, at most {_MOST_CHANNELS} channels and twice as many"
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
