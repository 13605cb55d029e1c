"""Long tables: one reading in each row, with a column that names the sample and one that counts time, are read as series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.errors import InputError, refuse
from tracelearn.io.columns import Column, side_by_side
from tracelearn.io.lazy import column_of_values
from tracelearn.samples.modes import Mode
from tracelearn.samples.source import Source

__all__ = ["series_source"]

_SAME_TIME = 0.01  # of a step: a reading so close to a multiple of the step is taken to be at that multiple
# Where multiples of the smallest step would need more than this many times the readings of the longest sample, times are taken to
# be irregular, and readings are counted instead.
_MOST_GAPS = 4


def series_source(
    open_column: Callable[[Any], Column],
    channels: Sequence[str],
    sample: str,
    time: str,
    target: str | None,
    weight: str | None,
    block_bytes: int | None = None,
) -> Source:
    """Make a source of samples of shape (channels, times) from a table with one reading in each row.

    Samples of fewer readings than others are padded with NaN at their end, or, where all readings are at multiples of one step,
    wherever they have none.

    Parameters
    ----------
    open_column : function from a name, or several, to a column of the table
    channels : sequence of str
        Columns that were measured.
    sample, time : str
        Columns that name the sample of a reading, and its time. Rows may come in any order.
    target, weight : str or None
        Columns that are constant within each sample.
    """
    readings = _Readings.of(open_column(sample).values(sample), open_column(time).values(time), sample, time)
    values = open_column(tuple(channels)).values(", ".join(channels))
    X = values[readings.rows]
    if not readings.is_there.all():
        X = np.where(readings.is_there[..., None], X, np.nan)
    X = np.ascontiguousarray(np.moveaxis(X, 1, 2))
    read_column = _SampleColumns(open_column, readings)
    y = None if target is None else column_of_values(read_column(target), target)
    weights = None if weight is None else column_of_values(read_column(weight), weight)
    modes = (Mode("channel", np.array(channels)), Mode(time, readings.times))
    columns = replace(column_of_values(X, "the series"), modes=modes)
    return replace(side_by_side(columns, y, weights, block_bytes=block_bytes), column=read_column)


@dataclass(frozen=True, eq=False)
class _Readings:
    """Which rows of a table are the readings of which sample.

    ``rows`` (n_samples, n_times) holds for each sample the rows of its readings in the order of time; samples are in the order of
    their first rows. Where ``is_there`` is false the sample has no reading, and the row is that of another one, to be ignored.
    ``names`` are those of samples, and ``times`` the coordinates of readings.
    """

    rows: NDArray[np.intp]
    is_there: NDArray[np.bool_]
    names: NDArray[Any]
    times: NDArray[Any]

    @classmethod
    def of(cls, samples: NDArray[Any], times: NDArray[Any], sample: str, time: str) -> _Readings:
        """Sort the rows of a table, given the columns of the names ``sample`` and ``time``."""
        names, first_rows, codes, lengths = np.unique(
            samples, return_index=True, return_inverse=True, return_counts=True
        )
        appearance = np.argsort(first_rows)
        names = names[appearance]
        lengths = lengths[appearance]
        rank = np.empty_like(appearance)
        rank[appearance] = np.arange(len(names))
        ordered_rows = np.lexsort((times, rank[codes]))
        sample_of_row = np.repeat(np.arange(len(names)), lengths)
        ordered_times = times[ordered_rows]
        is_same_sample = sample_of_row[1:] == sample_of_row[:-1]
        repeated = np.flatnonzero(is_same_sample & (ordered_times[1:] == ordered_times[:-1]))
        if repeated.size:
            raise InputError(
                f"Expected one reading of each sample at a time, got two of {names[sample_of_row[repeated[0]]]!s} at "
                f"{ordered_times[repeated[0]]!s} in column '{time}': drop or average them."
            )
        if np.all(lengths == lengths[0]):
            rows = ordered_rows.reshape(len(names), lengths[0])
            return cls(rows, np.ones(rows.shape, dtype=bool), names, _common_times(times[rows]))
        starts = np.cumsum(lengths) - lengths
        places, coordinates = _places(ordered_times, sample_of_row, starts)
        rows = np.repeat(ordered_rows[starts][:, None], len(coordinates), axis=1)
        rows[sample_of_row, places] = ordered_rows
        is_there = np.zeros(rows.shape, dtype=bool)
        is_there[sample_of_row, places] = True
        return cls(rows, is_there, names, coordinates)


def _places(
    times: NDArray[Any], sample_of_row: NDArray[np.intp], starts: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Find at which place of its sample each reading is, and the coordinates of places.

    If all readings are at multiples of one step since the first reading of their sample, places are these multiples, so that
    readings that were left out leave a gap; else readings are counted.
    """
    counts = np.arange(len(times)) - starts[sample_of_row]
    since_start = times - times[starts][sample_of_row]
    steps = np.diff(since_start)[sample_of_row[1:] == sample_of_row[:-1]]
    if since_start.dtype.kind in "iufm" and len(steps):
        step = steps.min()
        multiples = since_start / step
        places = np.round(multiples).astype(np.intp)
        if np.all(np.abs(multiples - places) < _SAME_TIME) and places.max() < _MOST_GAPS * (counts.max() + 1):
            return places, np.arange(places.max() + 1) * step
    return counts, np.arange(counts.max() + 1)


def _common_times(coordinates: NDArray[Any]) -> NDArray[Any]:
    """Return times that hold for every sample: their own, those since its first reading, or counts of readings."""
    since_start = coordinates - coordinates[:, :1]
    for times in (coordinates, since_start):
        if np.allclose(times, times[0], rtol=0.0, atol=1e-6 * float(np.max(np.abs(since_start)))):
            return np.asarray(times[0])
    return np.arange(coordinates.shape[1])


@dataclass(frozen=True, eq=False)
class _SampleColumns:
    """Reads columns that have one value for each sample."""

    open_column: Callable[[Any], Column]
    readings: _Readings

    def __call__(self, name: str) -> NDArray[Any]:
        values = self.open_column(name).values(name)[self.readings.rows]
        changing = np.flatnonzero((values != values[:, :1]).any(axis=1))
        refuse(
            changing.size,
            f"Expected one value of column '{name}' for each sample, got several for "
            f"{self.readings.names[changing[0]] if changing.size else ''}: choose a column that is constant within samples.",
        )
        return np.asarray(values[:, 0])
