"""What the registries of the package cannot say: targets that suit a loss or nothing, and sums of atoms worth a contract.

The contracts run over ``LOSSES``, ``ATOMS``, ``PENALTIES`` and ``SOLVERS`` themselves: a new loss, atom, penalty or solver is
under contract without a line here, unless it asks for targets of a new kind. A new transformer has a line in ``TRANSFORMERS``.
"""

from __future__ import annotations

import math

import numpy as np

from tracelearn import (
    Chain,
    Convolutions,
    Detrend,
    Lengths,
    Logarithm,
    ModePCA,
    ModeWhitener,
    ResampleTime,
    SavitzkyGolay,
    ScatterCorrection,
    SecondOrder,
    Similarities,
    TensorStandardScaler,
    Thresholds,
    Views,
)
from tracelearn.features import LinearChain
from tracelearn.losses import LOSSES
from tracelearn.penalties import ATOMS, L1, PENALTIES, Blocks, GroupL2, Latent, Nuclear, Overlap, as_penalty

MODE_WEIGHTS = (0.5, 1.5, 1.0, 0.25)

# Transformers for samples of three modes with entries of any sign.
TRANSFORMERS = {
    "scaler": TensorStandardScaler(),
    "scaler by mode": TensorStandardScaler(per=(0, 2)),
    "whitener": ModeWhitener(),
    "whitener of some modes": ModeWhitener(-0.25, modes=(0, -1), shrinkage=0.2, center=True),
    "compression": ModePCA((2, 3, 4)),
    "resampled": ResampleTime(),
    "lengths": Lengths(),
    "smoothing": SavitzkyGolay(window=3, degree=1),
    "derivative": SavitzkyGolay(1, window=3, mode=0, scaling=True),
    "detrending": Detrend(mode=-1),
    "scatter correction": ScatterCorrection(),
    "multiplicative scatter correction": ScatterCorrection("msc"),
    "thresholds": Thresholds(3, n_intervals=2),
    "second order": SecondOrder(keep=1),
    "second order with lags": SecondOrder(1, keep=2, lags=1, mean=False, shrinkage=0.1),
    "second order of differences": SecondOrder(0, difference=True, reference=None),
    "convolutions": Convolutions(0, thresholds=2),
    "convolutions without pairs": Convolutions(-1, thresholds=1, pairs=False),
    "convolutions of the mean": Convolutions(-1, thresholds=1, average=True),
    "similarities": Similarities(n_landmarks=20),
    "similarities of second order": Similarities(SecondOrder(keep=1), kernel="gaussian", scaling=False, n_landmarks=20),
    "views": Views([("raw", None), ("white", ModeWhitener()), ("power", SecondOrder(keep=1))], scaling=False),
    "views with weights": Views([("raw", None), ("scaled", TensorStandardScaler("global"))], view_weights=(2, 0.5)),
    "chain": Chain([Detrend(), SecondOrder(keep=1)]),
    "chain from gaps": Chain([ResampleTime(), ModeWhitener()]),
    "chain of linear ones": LinearChain([SavitzkyGolay(window=3, degree=1), ModeWhitener()]),
}
FOR_POSITIVE_SAMPLES = {"logarithm": Logarithm()}


def targets(name, rng, scores):
    """Draw targets (n, K) of the kind that a loss is for, from scores (n, K)."""
    if not LOSSES[name].is_separable:
        return np.eye(scores.shape[1])[np.argmax(scores, axis=1)]
    if name == "poisson":
        return rng.poisson(np.exp(np.clip(scores, -3.0, 3.0))).astype(float) + (np.arange(len(scores)) == 0)[:, None]
    if LOSSES[name].for_numbers:
        return 3.0 * scores
    return np.where(scores > 0, 1.0, -1.0)


def sums(shape):
    """Make every atom alone and sums of them, overlapping and latent, for weights of a shape; name -> penalty."""
    found = {f"{name} alone": (0.7 * atom()).bound_to(shape) for name, atom in ATOMS.items()}
    if len(shape) > 1:
        nuclear = [(0.4, Nuclear(mode)) for mode in range(len(shape))]
        found["nuclear + l1"] = Overlap((*nuclear, (0.2, L1()))).bound_to(shape)  # Remurs
        found["nuclear + group_l2"] = (0.5 * Nuclear(0) + 0.3 * GroupL2(1) + 0.2 * GroupL2(0)).bound_to(shape)
        found["latent nuclear, l1"] = Latent((*nuclear, (0.3, L1()))).bound_to(shape)
        found["latent nuclear, group_l2"] = Latent(((0.5, Nuclear(0)), (0.4, GroupL2(1)))).bound_to(shape)
    return found


def blocks():
    """Make a penalty for each block of flat weights, and their shape."""
    shapes = ((3, 2), (2, 2, 2))
    remurs = 0.5 * Nuclear(0) + 0.5 * Nuclear(1) + 0.5 * Nuclear(2) + 0.1 * L1()
    penalty = Blocks(shapes, (Latent(((0.6, Nuclear(0)), (0.4, GroupL2(1)))), remurs))
    shape = (sum(math.prod(own) for own in shapes),)
    return penalty.bound_to(shape), shape


def penalties(shapes, weighted=(None, MODE_WEIGHTS)):
    """List the penalties under contract: those with a name for every shape, sums for one: name -> (penalty, shape)."""
    found = {}
    for shape in shapes:
        place = "x".join(map(str, shape))
        for name in PENALTIES:
            for weights in weighted:
                label = f"{name}-{place}{'-weighted' if weights else ''}"
                found[label] = as_penalty(name, shape, weights and weights[: len(shape)]), shape
    found |= {name: (penalty, (4, 3, 2)) for name, penalty in sums((4, 3, 2)).items()}
    found["blocks"] = blocks()
    return found


def is_tight(penalty):
    """Tell whether the dual norm is exact without a split: for single terms and for latent norms."""
    if isinstance(penalty, Blocks):
        return all(map(is_tight, penalty.penalties))
    return isinstance(penalty, Latent) or len(penalty.terms) == 1


def unrelated(rng, dependence):
    """Samples and targets that have nothing to do with each other, alone, or each of them dependent in 8 groups of 5."""
    X, y, groups = rng.standard_normal((40, 3, 4)), rng.standard_normal(40), np.arange(40) // 5
    if dependence == "none":
        return X, y, None
    X = X + rng.standard_normal((8, 3, 4))[groups]
    own = rng.standard_normal(8)[groups]
    return X, own if dependence == "one target a group" else y + 2 * own, groups
