"""Work that other processes do: they import it by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelearn import TensorRegressor, TraceNormClassifier, TraceNormRegressor

__all__ = ["fitted", "searched"]


def _problem(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 4, 5))
    return X, X[:, 0, 0] + 0.3 * rng.standard_normal(60)


def fitted(seed: int) -> bytes:
    """Fit one of several models, and return the bits of its weights."""
    X, y = _problem(seed)
    models = [
        lambda: TraceNormRegressor(alpha=0.1).fit(X, y),
        lambda: TraceNormRegressor(alpha=0.1, penalty="latent", loss="huber").fit(X, y),
        lambda: TraceNormClassifier(alpha=0.02, loss="log_loss").fit(X, y > 0),
        lambda: TraceNormRegressor(alpha=0.1, solver="subspaces").fit(X[:8], y[:8]),
    ]
    return np.ascontiguousarray(models[seed % len(models)]().coef_).tobytes()


def searched(seed: int, n_jobs: int = 1) -> bytes:
    """Search for alpha in so many threads, and return the bits of the weights found."""
    X, y = _problem(seed)
    X = X.reshape(60, 4, 5, 1)
    model = TensorRegressor(alphas=4, cv=3, n_jobs=n_jobs, loss="huber" if seed % 2 else "squared_error").fit(X, y)
    return np.ascontiguousarray(model.coef_).tobytes() + np.float64(model.alpha_).tobytes()
