"""Awkward input, drawn by hypothesis, and what every answer to it must be."""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from tracelearn.errors import InputError

# `make test-slow` tries few inputs, the same ones every time; ``HYPOTHESIS_PROFILE=deep`` tries many, others every time.
DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
FACTOR = int(os.environ.get("PROPERTIES_FACTOR", "40")) if DEEP else 1

TRIED: Counter[str] = Counter()  # inputs, by the test that tried them; conftest.py writes them down
OUTCOMES: Counter[str] = Counter()  # what became of them


def tries(count: int, **drawn: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on so many drawn inputs, and count them."""

    def wrap(test: Callable[..., None]) -> Callable[..., None]:
        @settings(
            max_examples=count * FACTOR,
            deadline=None,
            derandomize=not DEEP,
            print_blob=DEEP,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        )
        @given(**drawn)
        @wraps(test)
        def counted(*args: Any, **kwargs: Any) -> None:
            TRIED[test.__name__] += 1
            test(*args, **kwargs)

        return counted

    return wrap


DTYPES = ["float64", "float32", "float16", ">f8", ">f4", "int64", ">i4", "int8", "uint8", "bool"]
LAYOUTS = ["C", "F", "reversed", "strided", "read-only", "masked", "broadcast"]
SCALES = [1.0, 1e-3, 1e6, 1e-20, 1e20, 1e-49, 1e49, 1e-150, 1e150, 1e-310, 1e300, 5e-324]
WEIGHTS = ["none", "none", "some zero", "whole", "16 orders", "one", "far off"]
KINDS = ["plain", "constant features", "duplicates", "zeros", "offset", "uneven", "collinear", "one constant", "sparse"]


@dataclass(frozen=True, eq=False)
class Data:
    """Samples of some tensor shape, targets, labels and weights."""

    X: Any
    y: Any
    labels: Any
    weight: Any
    shape: tuple[int, ...]

    @property
    def arrays(self) -> list[Any]:
        return [a for a in (self.X, self.y, self.labels, self.weight) if isinstance(a, np.ndarray)]

    def __repr__(self) -> str:
        parts = [f"{name}={_say(getattr(self, name))}" for name in ("X", "y", "labels", "weight")]
        return f"Data({', '.join(parts)})"


def _say(a: Any) -> str:
    if a is None:
        return "None"
    return f"np.array({np.ascontiguousarray(a).tolist()}, {a.dtype.str!r}) of strides {a.strides}"


@st.composite
def shapes(draw: Any, largest: int = 36) -> tuple[int, ...]:
    """Draw shapes of order 1 to 5, with modes of size 1 among them."""
    shape: list[int] = []
    for _ in range(draw(st.integers(1, 5))):
        room = largest // math.prod(shape)
        shape.append(draw(st.integers(1, max(1, min(5, room)))))
    return tuple(shape)


def _numbers(rng: np.random.Generator, n: int, p: int, kind: str) -> Any:
    X = rng.standard_normal((n, p))
    if kind == "constant features":
        X[:, rng.random(p) < 0.7] = 3.7
    elif kind == "duplicates":
        X = X[rng.integers(0, max(1, n // 3), n)]
    elif kind == "zeros":
        X[:] = 0.0
    elif kind == "offset":
        X += 10.0 ** rng.integers(0, 9)
    elif kind == "uneven":
        X *= 10.0 ** rng.integers(-12, 12, p)
    elif kind == "collinear":
        X = X[:, :1] + 1e-7 * X
    elif kind == "one constant":
        X[:] = rng.standard_normal()
    elif kind == "sparse":
        X *= rng.random((n, p)) < 0.2
    return X


def arrange(X: Any, layout: str) -> Any:
    """Give the same numbers another place in memory."""
    if layout == "F":
        return np.asfortranarray(X)
    if layout == "reversed":
        return np.ascontiguousarray(X[::-1])[::-1]
    if layout == "strided":
        wide = np.repeat(X, 2, axis=0)
        return wide[::2]
    if layout == "masked":  # nowhere
        return np.ma.array(X.copy())
    if layout == "broadcast" and len(X):
        return np.broadcast_to(X[:1], X.shape)
    X = X.copy()
    X.flags.writeable = layout != "read-only"
    return X


@st.composite
def datasets(draw: Any, *, most: int = 14, least: int = 1, targets: Any = (None, 1, 3), classes: int = 4) -> Data:
    """Draw samples of every awkward kind, of every type and in every layout."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape, n = draw(shapes()), draw(st.integers(least, most))
    p = math.prod(shape)
    kind, scale = draw(st.sampled_from(KINDS)), draw(st.sampled_from([1.0] * 6 + SCALES))
    dtype, layout = draw(st.sampled_from(["float64", *DTYPES])), draw(st.sampled_from(LAYOUTS))
    with np.errstate(all="ignore"):
        X = _numbers(rng, n, p, kind) * scale
        limit = {"float16": 6e4, "float32": 3e38, ">f4": 3e38}.get(dtype, 1e308)
        X = np.clip(X, -limit, limit)
        if np.dtype(dtype).kind in "iub":
            X = np.clip(np.round(10 * X), 0 if np.dtype(dtype).kind in "ub" else -100, 100)
        X = X.astype(dtype).reshape(n, *shape)
    k = draw(st.sampled_from(targets))
    y = rng.standard_normal(n if k is None else (n, k)) * draw(st.sampled_from([1.0] * 5 + [0.0, 1e-30, 1e30, 1e200]))
    y = y + draw(st.sampled_from([0.0, 0.0, 1e3, 1e6, 1e8])) * (np.abs(y).max() if y.size else 1.0)
    with np.errstate(all="ignore"):
        y = y.astype(draw(st.sampled_from(["float64", "float64", "float32", ">f8", "float16"])))
    if not np.isfinite(y).all():
        y = np.nan_to_num(y, posinf=6e4, neginf=-6e4)
    labels = np.array(["ash", "birch", "cedar", "dogwood"])[rng.integers(0, draw(st.integers(1, classes)), n)]
    labels = labels if draw(st.booleans()) else np.unique(labels, return_inverse=True)[1]
    weight = _weights(rng, n, draw(st.sampled_from(WEIGHTS)))
    X, y = arrange(X, layout), arrange(y, draw(st.sampled_from(LAYOUTS[:-1])))
    return Data(X, y, labels, weight, shape)


def _weights(rng: np.random.Generator, n: int, kind: str) -> Any:
    if kind == "none":
        return None
    if kind == "some zero":
        weight = rng.random(n) * (rng.random(n) < 0.6)
        weight[rng.integers(n)] = 1.0
        return weight
    if kind == "one":
        return np.eye(n)[rng.integers(n)]
    if kind == "whole":
        return rng.integers(1, 4, n)
    if kind == "16 orders":
        return 10.0 ** rng.uniform(-8, 8, n)
    return rng.random(n) * 10.0 ** rng.integers(-110, 110)


ALPHAS = [0.0, 5e-324, 1e-300, 1e-12, 1e-3, 0.1, 1.0, 10.0, 1e12, 1e300]


def fingerprint(arrays: list[Any]) -> list[tuple[bytes, str, tuple[int, ...]]]:
    return [(np.ascontiguousarray(a).tobytes(), a.dtype.str, a.strides) for a in arrays]


# Ours say what was expected; these are scikit-learn's, NumPy's and SciPy's own, for what we leave to them to judge.
THEIRS = (
    "Sample weights must contain at least one non-zero number",
    "Unknown label type",
    "Found array with",
    "n_splits=",
    "Cannot have number of splits",
    "The number of folds",
    "k-fold cross-validation requires",
)


def is_sentence(message: str) -> bool:
    """Whether a refusal is meant for users."""
    return message.startswith(THEIRS) or (
        message.startswith("Expected ") and "got " in message and message[-1] in ".)"
    )  # a block adds where it begins


def attempt(call: Callable[[], Any], arrays: list[Any]) -> tuple[Any, bool]:
    """Return the answer, and whether a warning says that it is not proven; or None where a sentence refused the input.

    Whatever happens the arrays are what they were, and nothing overflows on the way.
    """
    before = fingerprint(arrays)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("error", RuntimeWarning)
        try:
            answer = call()
        except ValueError as refusal:
            # LinAlgError is a ValueError too, and no answer to anybody's question.
            if type(refusal) not in (ValueError, InputError) or not is_sentence(str(refusal)):
                raise
            answer = None
            OUTCOMES["refused in a sentence"] += 1
    assert fingerprint(arrays) == before, "an input array was written to"
    return answer, any(issubclass(w.category, ConvergenceWarning) for w in caught)


def assert_certified(model: Any, tol: float, warned: bool) -> None:
    """Check that what a model knows is finite, and proven or warned of."""
    for name in ("coef_", "intercept_", "patterns_"):
        assert np.isfinite(getattr(model, name)).all(), name
    assert math.isfinite(model.objective_)
    assert model.objective_ >= 0.0
    assert math.isfinite(model.dual_gap_)
    assert model.dual_gap_ >= 0.0
    assert model.dual_gap_ <= tol or warned, model.dual_gap_
    OUTCOMES["not proven, with a warning" if warned else "certified"] += 1


def bits(*values: Any) -> bytes:
    return b"".join(np.ascontiguousarray(value).tobytes() for value in values)
