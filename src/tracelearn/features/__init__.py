"""Transformers of samples that are tensors: scaling, logarithms, whitening, compression, derivatives and corrections of
spectra, second order, convolutions, thresholds, and several views at once.

Invariant: everything learned here adds over batches, centred and merged by the formula of Chan, Golub and LeVeque, so
``partial_fit`` over any batches ends where ``fit`` on all samples does, to rounding. Scales of
``SecondOrder(scaling=True)`` and of ``Views`` are fixed by the first batch.
"""

from tracelearn.features.axes import find_smooth_mode, find_time_axis
from tracelearn.features.base import TensorTransformer
from tracelearn.features.catalogue import default_alignments, default_views
from tracelearn.features.chain import Chain, LinearChain, chained
from tracelearn.features.convolutions import Convolutions
from tracelearn.features.detrend import Detrend
from tracelearn.features.lengths import Lengths
from tracelearn.features.logarithm import Logarithm
from tracelearn.features.mode_pca import ModePCA
from tracelearn.features.per_group import PerGroup
from tracelearn.features.resampling import ResampleTime
from tracelearn.features.savitzky_golay import SavitzkyGolay
from tracelearn.features.scaler import TensorStandardScaler
from tracelearn.features.scatter import ScatterCorrection
from tracelearn.features.second_order import SecondOrder, SpatialFilters
from tracelearn.features.similarities import Similarities
from tracelearn.features.thresholds import Thresholds
from tracelearn.features.union import Views
from tracelearn.features.whitening import ModeWhitener

__all__ = [
    "Chain",
    "Convolutions",
    "Detrend",
    "Lengths",
    "LinearChain",
    "Logarithm",
    "ModePCA",
    "ModeWhitener",
    "PerGroup",
    "ResampleTime",
    "SavitzkyGolay",
    "ScatterCorrection",
    "SecondOrder",
    "Similarities",
    "SpatialFilters",
    "TensorStandardScaler",
    "TensorTransformer",
    "Thresholds",
    "Views",
    "chained",
    "default_alignments",
    "default_views",
    "find_smooth_mode",
    "find_time_axis",
]
