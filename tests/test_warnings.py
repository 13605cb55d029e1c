"""A warning points at the line of the user's that led to it, not into the package."""

import warnings

import numpy as np
import pytest
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline

from tracelearn import (
    HierarchicalTraceNormClassifier,
    TensorClassifier,
    TensorRegressor,
    TensorStandardScaler,
    TraceNormClassifier,
    TraceNormRegressor,
    TraceNormRegressorCV,
    stream,
)
from tracelearn.paper import PaperRegressor

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 3, 2))
y = X[:, 0, 0] + 0.1 * rng.standard_normal(40)
LABELS = np.repeat(["a", "b"], 20)
EARLY = {"max_iter": 1, "tol": 1e-14}


def resumed(folder):
    stream([(X, y)], TraceNormRegressor(), checkpoint=folder)
    for path in folder.glob("checkpoint-*"):
        (folder / "checkpoint-000000000000099.tracelearn").write_bytes(path.read_bytes()[:-1])
    stream([(X, y)], TraceNormRegressor(), checkpoint=folder, resume=True)


CALLS = {
    "fit": lambda _: TraceNormRegressor(**EARLY).fit(X, y),
    "fit of zero weights": lambda _: TraceNormRegressor(alpha=1e6).fit(X, y),
    "fit, huber": lambda _: TraceNormRegressor(loss="huber", **EARLY).fit(X, y),
    "fit of blocks": lambda _: TraceNormRegressor(**EARLY).fit([(X[:20], y[:20]), (X[20:], y[20:])]),
    "partial_fit": lambda _: TraceNormClassifier(**EARLY).partial_fit(X, LABELS, ["a", "b"]),
    "tree": lambda _: HierarchicalTraceNormClassifier(**EARLY).fit(X, LABELS),
    "search": lambda _: TensorRegressor(alphas=3, views=None).fit(X, rng.standard_normal(40)),
    "cross-validation": lambda _: TraceNormRegressorCV(alphas=[1e-3], **EARLY).fit(X, y),
    "fold of one class": lambda _: TensorClassifier(
        alphas=3, views=None, scoring="roc_auc", cv=KFold(4)
    ).fit(X[5:], LABELS[5:]),
    "paper": lambda _: PaperRegressor(max_iter=1).fit(X, y),
    "pipeline": lambda _: make_pipeline(TensorStandardScaler(), TraceNormRegressor(**EARLY)).fit(X, y),
    "cross_val_score": lambda _: cross_val_score(TraceNormRegressor(**EARLY), X, y, cv=2),
    "stream": lambda _: stream([(X, y)], TraceNormRegressor(**EARLY)),
    "damaged checkpoint": resumed,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_points_at_the_line_of_the_user(name, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CALLS[name](tmp_path)
    assert {warning.filename for warning in caught} == {__file__}
