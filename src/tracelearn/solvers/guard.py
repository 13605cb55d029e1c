"""What leaves the range of floating point is refused in a sentence, never returned."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from tracelearn.solvers.solution import Solution

__all__ = ["guarded"]


def guarded(solver: Callable[..., Solution]) -> Callable[..., Solution]:
    """Let a solver refuse in a sentence what it cannot represent, instead of going on with infinity and NaN."""

    @wraps(solver)
    def run(*args: Any, **options: Any) -> Solution:
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                return solver(*args, **options)
        except (FloatingPointError, np.linalg.LinAlgError) as error:
            raise ValueError(
                f"Expected numbers that stay in the range of floating point while solving, got {str(error).lower()!r}: scale "
                "the features to about one, or ask for a larger alpha or ridge."
            ) from error

    return run
