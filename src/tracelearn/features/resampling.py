"""ResampleTime: samples of unequal length and with gaps as complete samples of one length."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, move_to, to_numpy
from tracelearn.features.axes import read_modes
from tracelearn.features.base import TensorTransformer
from tracelearn.features.gaps import has_gaps, lengths_of, resampled_tensors
from tracelearn.features.summaries import Summary, summarise
from tracelearn.features.training import TrainingSamples
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["ResampleTime"]


class ResampleTime(TensorTransformer):
    """Bring samples to one length by linear interpolation over time, and fill their gaps.

    A sample ends after the last time at which any of its channels has a value. NaN inside of it are interpolated between the
    values before and after them; before the first and after the last value of a channel that one stays. A channel without any
    value becomes its mean over the training samples, and so does any missing entry where no mode is time. Complete samples of
    the common length are returned as they are.

    Parameters
    ----------
    time_axis : int or None, default=-1
        The mode of a sample that is time. None: there is none, and samples keep their shape.
    n_times : int or "median", default="median"
        The common length; "median" is the median length of the training samples.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    n_times_ : int or None
        The common length, which later samples are brought to as well.
    time_axis_ : int or None
    mean_ : array of the shape of a transformed sample
        Means over the training samples that have a value, zero where none has.
    seen_ : array of the shape of a transformed sample
        The share of the training samples that these means are of.
    shortest_, longest_ : int
        Lengths of training samples; zero where no mode is time.
    n_unequal_ : int
        Number of training samples of another length than ``n_times_``.
    n_filled_ : int
        Number of entries of training samples that were missing before the end of their sample.
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
        The shape of a transformed sample.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import ResampleTime
    >>> short, gappy, long = [[0.0, 2.0, 4.0]], [[0.0, np.nan, 2.0, 3.0, 4.0]], [np.arange(9.0)]
    >>> ResampleTime().fit_transform([short, gappy, long])[:, 0]
    array([[0., 1., 2., 3., 4.],
           [0., 1., 2., 3., 4.],
           [0., 2., 4., 6., 8.]])
    """

    n_times_: int | None
    time_axis_: int | None
    mean_: Array
    seen_: Array
    shortest_: int
    longest_: int
    n_unequal_: int
    n_filled_: int

    takes_gaps = True
    learns_in_one_pass = False

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "time_axis": [Integral, None],
        "n_times": [Interval(Integral, 1, None, closed="left"), StrOptions({"median"})],
        "tensor_shape": ["array-like", None],
    }

    def __init__(self, time_axis: Any = -1, *, n_times: Any = "median", tensor_shape: Any = None) -> None:
        self.time_axis = time_axis
        self.n_times = n_times
        self.tensor_shape = tensor_shape

    # --- shapes ------------------------------------------------------------------------------------------------------

    def time_mode(self, shape: tuple[int, ...]) -> int | None:
        """Find the mode that is time, along which samples may be of any length."""
        return None if self.time_axis is None else read_modes(self.time_axis, shape, "time_axis")[0]

    def learned_shape(self, shape: tuple[int, ...], n_times: int | None = None) -> tuple[int, ...]:
        """Return the shape of a transformed sample; see ``TensorTransformer``."""
        return super().learned_shape(shape, n_times if isinstance(self.n_times, str) else int(self.n_times))

    @property
    def has_seen_several_lengths(self) -> bool:
        """Whether training samples were of unequal length."""
        return self.shortest_ < self.longest_

    # --- learning ----------------------------------------------------------------------------------------------------

    def learn(self, samples: TrainingSamples, earlier: Any) -> dict[str, Any]:
        """Learn the means of entries of samples that are brought to the common length."""
        shape = samples.shape if samples.have_gaps or earlier is not None else None
        summary = samples.total(functools.partial(self.summarise_tensors, shape=shape), math.prod)
        return self.attributes_after(summary, samples.shape, earlier)

    def summarise_tensors(self, T: Array, weight: Array, shape: tuple[int, ...] | None = None) -> Summary:
        """Average known entries, and count missing ones; ``shape`` is that of transformed samples, by default what T implies."""
        shape = self.learned_shape(tuple(T.shape[1:])) if shape is None else shape
        time = self.time_mode(shape)
        if tuple(T.shape[1:]) == shape and not has_gaps(T):
            complete = summarise(T, weight)
            mean = np.stack([complete.mean, np.ones(shape)], axis=-1)
            length = 0 if time is None else shape[time]
            return CompletedSamples(complete.weight, mean, [], shortest=length, longest=length)
        values = to_numpy(T)
        missing = np.isnan(values)
        lengths = np.full(len(values), 0 if time is None else shape[time])
        n_filled = np.count_nonzero(missing)
        if time is not None:
            lengths = lengths_of(T, time)
            channels = math.prod(shape) // shape[time]
            n_filled -= channels * int(np.sum(values.shape[time + 1] - lengths))
            values = resampled_tensors(values, time, shape[time])
            missing = np.isnan(values)
        rows = np.stack([np.where(missing, 0.0, values), ~missing], axis=-1)
        means = summarise(rows, to_numpy(weight))
        return CompletedSamples(
            means.weight,
            means.mean,
            [],
            shortest=int(lengths.min()),
            longest=int(lengths.max()),
            n_unequal=0 if time is None else int(np.count_nonzero(lengths != shape[time])),
            n_filled=int(n_filled),
        )

    def attributes_from(self, summary: Summary, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return the means, and how many samples and entries had to be changed."""
        mean_with_zeros, seen = np.moveaxis(summary.mean, -1, 0)
        time = self.time_mode(shape)
        return {
            "time_axis_": time,
            "n_times_": None if time is None else shape[time],
            "takes_any_length_": time is not None,
            "mean_": mean_with_zeros / np.where(seen > 0, seen, 1.0),
            "seen_": seen,
            "shortest_": summary.shortest,  # type: ignore[attr-defined] # it is of CompletedSamples
            "longest_": summary.longest,  # type: ignore[attr-defined]
            "n_unequal_": summary.n_unequal,  # type: ignore[attr-defined]
            "n_filled_": summary.n_filled,  # type: ignore[attr-defined]
        }

    def past_summary(self) -> Summary:
        """Return means and counts of all samples so far."""
        mean = np.stack([self.mean_ * self.seen_, self.seen_], axis=-1)
        return CompletedSamples(
            float(self.n_samples_seen_),
            mean,
            [],
            shortest=self.shortest_,
            longest=self.longest_,
            n_unequal=self.n_unequal_,
            n_filled=self.n_filled_,
        )

    # --- applying ----------------------------------------------------------------------------------------------------

    def transform_tensors(self, T: Array) -> Array:
        """Resample over time, then fill what is still missing with the means."""
        if tuple(T.shape[1:]) == self.sample_shape_ and not has_gaps(T):
            return T
        values = to_numpy(T)
        if self.time_axis_ is not None:
            values = resampled_tensors(values, self.time_axis_, self.sample_shape_[self.time_axis_])
        return move_to(np.where(np.isnan(values), self.mean_, values), T, T.dtype)


@dataclass(frozen=True, eq=False)
class CompletedSamples(Summary):
    """What ``ResampleTime`` learns; the counts say how samples had to be changed, see its attributes of the same names.

    Along its last axis ``mean`` has the mean of an entry, missing values counted as zero, and the share of samples that have it.
    """

    shortest: int = 0
    longest: int = 0
    n_unequal: int = 0
    n_filled: int = 0

    def __add__(self, other: Summary) -> CompletedSamples:
        total = super().__add__(other)
        return replace(
            self,
            weight=total.weight,
            mean=total.mean,
            shortest=min(self.shortest, other.shortest),  # type: ignore[attr-defined] # the other is one of these as well
            longest=max(self.longest, other.longest),  # type: ignore[attr-defined]
            n_unequal=self.n_unequal + other.n_unequal,  # type: ignore[attr-defined]
            n_filled=self.n_filled + other.n_filled,  # type: ignore[attr-defined]
        )
