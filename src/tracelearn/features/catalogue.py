"""What a search tries, views and alignments: names, and transformers that say themselves which samples they suit."""

from __future__ import annotations

from tracelearn.features.base import TensorTransformer
from tracelearn.features.chain import Chain
from tracelearn.features.convolutions import Convolutions
from tracelearn.features.lengths import Lengths
from tracelearn.features.logarithm import Logarithm
from tracelearn.features.savitzky_golay import SavitzkyGolay
from tracelearn.features.scaler import TensorStandardScaler
from tracelearn.features.scatter import ScatterCorrection
from tracelearn.features.second_order import SecondOrder
from tracelearn.features.similarities import Similarities
from tracelearn.features.thresholds import Thresholds
from tracelearn.features.whitening import ModeWhitener

__all__ = ["default_alignments", "default_views"]

_SHARE_OF_MEANS = 0.05  # where the level of a signal drifts, means over time would hide its covariance
_FEW_ENTRIES = 1344
_MOST_INTERVALS = 10_000  # as many as there are entries


def default_views(
    time_axis: int | None, smooth_mode: int | None = None, *, are_unequal: bool = False, are_numbers: bool = False
) -> list[tuple[str, TensorTransformer | None]]:
    """List the views of a search, each with its name; None is the sample itself.

    Parameters
    ----------
    time_axis : the mode of a sample that is time, see ``find_time_axis``; None leaves out the views that need one
    smooth_mode : the mode along which samples are smooth, see ``find_smooth_mode``; None leaves out the views that need one
    are_unequal : whether samples are of unequal length, so that the length itself is a view
    are_numbers : whether numbers are predicted

    Examples
    --------
    >>> from tracelearn.features import default_views
    >>> [name for name, view in default_views(None) if view is None or view.suits((6, 11), n_samples=100)]
    ['raw', 'whitened', 'whitened_fully', 'similarities', 'similarities_standardized']
    """
    views: list[tuple[str, TensorTransformer | None]] = [
        ("raw", None),
        ("log", Logarithm()),
        ("whitened", ModeWhitener(power=-0.25)),
        ("whitened_fully", ModeWhitener()),
    ]
    if smooth_mode is not None:
        views += [
            ("derivative", SavitzkyGolay(1, mode=smooth_mode, scaling=True)),
            ("second_derivative", SavitzkyGolay(2, mode=smooth_mode, scaling=True)),
            ("derivative_corrected", Chain([SavitzkyGolay(1, mode=smooth_mode), ScatterCorrection(mode=smooth_mode)])),
        ]
    similarities: list[tuple[str, TensorTransformer | None]] = [
        ("similarities", Similarities(kernel="gaussian", scaling=False)),
        ("similarities_standardized", Similarities()),
    ]
    if are_numbers:
        cut_mode = smooth_mode if time_axis is None else time_axis
        # Neighbours have nothing in common where no mode is time or smooth: then every entry is compared.
        uncut = Thresholds(n_intervals=_MOST_INTERVALS)
        similarities.append(("thresholds", uncut if cut_mode is None else Thresholds(mode=cut_mode)))
    if time_axis is None:
        return views + similarities

    def second_order(**parameters: int) -> SecondOrder:
        return SecondOrder(time_axis, scaling=True, mean=_SHARE_OF_MEANS, **parameters)  # type: ignore[arg-type]

    return [
        *views,
        *([("lengths", Lengths(time_axis))] if are_unequal else []),
        ("whitened_channels", ModeWhitener(time_axis=time_axis)),
        ("second_order", second_order()),
        ("second_order_difference", second_order(difference=True)),
        ("second_order_two_windows", second_order(difference=True, windows=2)),
        ("second_order_three_windows", second_order(difference=True, windows=3)),
        ("second_order_lags", second_order(lags=3)),
        ("second_order_slow_lags", second_order(lags=3, lag_step=3)),
        ("convolutions", Convolutions(time_axis)),
        ("few_convolutions", Convolutions(time_axis, n_entries=_FEW_ENTRIES)),
        ("convolutions_of_mean", Convolutions(time_axis, average=True)),
        ("few_convolutions_of_mean", Convolutions(time_axis, average=True, n_entries=_FEW_ENTRIES)),
        *similarities,
        (
            "similarities_second_order",
            Similarities(second_order(difference=True), kernel="gaussian", scaling=False),
        ),
    ]


def default_alignments(shape: tuple[int, ...], time_axis: int | None) -> list[tuple[str, TensorTransformer]]:
    """List what a search aligns the samples of each group by, each with its name; see ``PerGroup``.

    Parameters
    ----------
    shape : that of a sample
    time_axis : the mode of a sample that is time, or None

    Examples
    --------
    >>> from tracelearn.features import default_alignments
    >>> [name for name, _ in default_alignments((8, 50), time_axis=1)]
    ['whitened_channels', 'standardized_channels']
    """
    if time_axis is None:
        return [
            ("whitened", ModeWhitener(shrinkage=0.0, unit_variance=True)),
            ("standardized", TensorStandardScaler()),
        ]
    channels = [mode for mode in range(len(shape)) if mode != time_axis]
    return [
        ("whitened_channels", ModeWhitener(shrinkage=0.0, time_axis=time_axis, unit_variance=True)),
        ("standardized_channels", TensorStandardScaler(per=channels)),
    ]
