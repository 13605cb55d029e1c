"""Writes the golden files of this version: ``python -m tests.golden``, into a folder named after it.

A model in a golden file must predict what it predicted when the file was written.
"""

import tempfile
from pathlib import Path

import numpy as np

from tracelearn import (
    HierarchicalTraceNormClassifier,
    ModePCA,
    Moments,
    Similarities,
    TensorClassifier,
    TensorRegressor,
    TensorStandardScaler,
    TraceNormClassifier,
    TraceNormRegressor,
    TraceNormRegressorCV,
    __version__,
    save,
    stream,
)

SHAPE = (3, 2, 2)


def samples():
    """Make the samples without a generator of random numbers, whose stream may change."""
    n = np.arange(40.0)[:, None]
    X = np.sin(1.0 + n * np.arange(1.0, 13.0) ** 1.3).reshape(40, *SHAPE)
    y = X[:, 0, 0, 0] - 0.5 * X[:, 2, 1, 1] + 0.1 * np.cos(7.0 * n[:, 0])
    return X, y


def labels(y):
    """Name three classes."""
    return np.array(["ash", "birch", "cedar"])[np.digitize(y, [-0.4, 0.4])]


def models():
    """Fit one model of each class."""
    X, y = samples()
    return {
        "regressor": TraceNormRegressor(alpha=0.05).fit(X, y),
        "regressor-float32-latent": TraceNormRegressor(alpha=0.05, penalty="latent").fit(X.astype(np.float32), y),
        "regressor-huber": TraceNormRegressor(alpha=0.05, loss="huber", mode_weights=[1, 0, 2]).fit(X, y),
        "regressor-cv": TraceNormRegressorCV(alphas=4, cv=2).fit(X, y),
        "regressor-search": TensorRegressor(alphas=4, cv=2).fit(X, y),
        "classifier": TraceNormClassifier(alpha=0.05, class_weight={"ash": 2.0}).fit(X, labels(y)),
        "classifier-logistic": TraceNormClassifier(alpha=0.05, loss="log_loss").fit(X, labels(y)),
        "classifier-search-similarities": TensorClassifier(
            alphas=4, cv=2, views=[None, Similarities(TensorStandardScaler(), width=0.5)]
        ).fit(X, labels(y)),
        "hierarchy": HierarchicalTraceNormClassifier(alpha=0.05).fit(X, labels(y)),
        "scaler": TensorStandardScaler().fit(X),
        "compression": ModePCA(2).fit(X),
    }


def answers(model):
    """Ask a model for everything it says of the samples."""
    X, _ = samples()
    if getattr(model, "coef_", np.zeros(1)).dtype == np.float32:
        X = X.astype(np.float32)
    names = ("predict", "decision_function", "predict_proba", "transform")
    return {name: np.asarray(getattr(model, name)(X)) for name in names if hasattr(model, name)}


def main():
    """Write files and answers into a folder named after the version."""
    folder = Path(__file__).parent / __version__
    folder.mkdir(exist_ok=True)
    X, y = samples()
    for name, model in models().items():
        save(model, folder / f"{name}.tracelearn")
        np.savez(folder / f"{name}.npz", **answers(model))
    save(Moments.of(X, y), folder / "moments.tracelearn")
    with tempfile.TemporaryDirectory() as run:
        batches = [(X[start : start + 10], y[start : start + 10]) for start in range(0, 40, 10)]
        model = TraceNormRegressor(alpha=0.05, forgetting=0.9)
        stream(batches, model, refresh_samples=10, checkpoint=run, max_samples=20)
        (folder / "run").mkdir(exist_ok=True)
        newest = max(Path(run).glob("checkpoint-*"))
        (folder / "run" / newest.name).write_bytes(newest.read_bytes())
    whole = TraceNormRegressor(alpha=0.05, forgetting=0.9)
    stream(batches, whole, refresh_samples=10)
    np.savez(folder / "run.npz", coef=whole.coef_, intercept=whole.intercept_)


if __name__ == "__main__":
    main()
