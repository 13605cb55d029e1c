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
    X = np.ascontiguousarray(np.moveaxis(values[readings.rows], 1, 2))
    read_column = _SampleColumns(open_column, readings)
    y = None if target is None else column_of_values(read_column(target), target)
    weights = None if weight is None else column_of_values(read_column(weight), weight)
    modes = (Mode("channel", np.array(channels)), Mode(time, readings.times))
    columns = replace(column_of_values(X, "the series"), modes=modes)
    return replace(side_by_side(columns, y, weights, block_bytes=block_bytes), column=read_column)


@dataclass(frozen=True, eq=False)
class _Readings:
    """Which rows of a table are the readings of which sample.

    ``rows`` (n_samples, n_times) are in the order of time, samples in that of their first row; ``names`` are those of samples,
    and ``times`` the coordinates of readings.
    """

    rows: NDArray[np.intp]
    names: NDArray[Any]
    times: NDArray[Any]

    @classmethod
    def of(cls, samples: NDArray[Any], times: NDArray[Any], sample: str, time: str) -> _Readings:
        names, first_rows, codes, lengths = np.unique(
            samples, return_index=True, return_inverse=True, return_counts=True
        )
        appearance = np.argsort(first_rows)
        names = names[appearance]
        lengths = lengths[appearance]
        unequal = np.flatnonzero(lengths != lengths[0])
        if unequal.size:
            raise InputError(
                f"Expected as many readings of every sample, got {lengths[0]} of {names[0]!s} and {lengths[unequal[0]]} of "
                f"{names[unequal[0]]!s} in column '{sample}': cut or fill samples to one length."
            )
        rank = np.empty_like(appearance)
        rank[appearance] = np.arange(len(names))
        rows = np.lexsort((times, rank[codes])).reshape(len(names), lengths[0])
        coordinates = times[rows]
        repeated = np.argwhere(coordinates[:, 1:] == coordinates[:, :-1])
        if repeated.size:
            i, j = repeated[0]
            raise InputError(
                f"Expected one reading of each sample at a time, got two of {names[i]!s} at {coordinates[i, j]!s} in column "
                f"'{time}': drop or average them."
            )
        return cls(rows, names, _common_times(coordinates))


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
