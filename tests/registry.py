"""What the contracts run over: every name here passes every property of its kind.

A class or function that is public in the package and missing here fails ``contracts/test_registry.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracelearn.solvers.prox import prox_adm, prox_dr

from tracelearn.losses import Huber, Logistic, Multinomial, Squared, SquaredHinge
from tracelearn.penalties import LatentTraceNorm, OverlappedTraceNorm, ScaledLatentTraceNorm
from tracelearn.solvers import admm, apg_adm, apg_dr, newton

PENALTIES: dict[str, Callable[..., Any]] = {
    "overlapped": OverlappedTraceNorm,
    "latent": LatentTraceNorm,
    "scaled_latent": ScaledLatentTraceNorm,
}

PROXES: dict[str, Callable[..., Any]] = {"adm": prox_adm, "dr": prox_dr}

SOLVERS: dict[str, Callable[..., Any]] = {"admm": admm, "apg-adm": apg_adm, "apg-dr": apg_dr}

# These need the samples at hand, so they do not solve from moments.
DATA_SOLVERS: dict[str, Callable[..., Any]] = {"newton": newton}

LOSSES: dict[str, Callable[..., Any]] = {
    "squared": Squared,
    "huber": Huber,
    "squared_hinge": SquaredHinge,
    "logistic": Logistic,
    "multinomial": Multinomial,
}
