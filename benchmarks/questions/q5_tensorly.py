"""Against tensor regression with a fixed rank, which is told a rank, in time and in test error."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import Row, interleaved
from tracelearn import TraceNormRegressor, TraceNormRegressorCV
from tracelearn.datasets import make_low_rank_regression, make_rank_tensors

TITLE = "against TensorLy"
SHAPE, RANK, N = (10, 10, 10), 2, 2_000


@dataclass(frozen=True)
class Data:
    name: str
    X: Any
    y: Any

    @classmethod
    def of(cls, name: str, X: Any, y: Any) -> "Data":
        """Centre by the training means: TensorLy has no intercept, ours finds that it needs none."""
        return cls(name, X - X[:N].mean(axis=0), y - y[:N].mean())

    def error(self, model: Any) -> float:
        truth = self.y[N:]
        return float(np.mean((np.ravel(model.predict(self.X[N:])) - truth) ** 2) / np.var(truth))


def ask(quick: bool) -> list[Row]:
    try:
        from tensorly.regression import CPRegressor, TuckerRegressor
    except ImportError:
        return [Row(TITLE, "TuckerRegressor, CPRegressor", "TensorLy / ours", None, note="not installed here")]
    gaussian = Data.of(
        "weights of ranks 2, 2, 2", *make_low_rank_regression(N + 5_000, SHAPE, rank=RANK, random_state=1)[:2]
    )
    paper = Data.of("the paper's data", *make_rank_tensors(N + 5_000, shape=SHAPE, random_state=1))
    peers = {
        "TuckerRegressor, ranks 2, 2, 2": TuckerRegressor([RANK] * 3, verbose=0, random_state=0),
        "TuckerRegressor, ranks 4, 4, 4": TuckerRegressor([4] * 3, verbose=0, random_state=0),
        "CPRegressor, rank 3": CPRegressor(3, verbose=0, random_state=0),
    }
    if quick:
        peers.pop("TuckerRegressor, ranks 4, 4, 4")  # takes ten times the rest
    return [compared(name, peer, data, quick) for data in (gaussian, paper) for name, peer in peers.items()]


def compared(name: str, peer: Any, data: Data, quick: bool) -> Row:
    X, y = data.X[:N], data.y[:N]
    # What a user without the true rank would do: choose alpha by cross-validation, then compare one fit with one fit.
    alpha = TraceNormRegressorCV(alphas=20).fit(X, y).alpha_
    ours = TraceNormRegressor(alpha=alpha, tol=1e-6)
    took = interleaved({"ours": lambda: ours.fit(X, y), "peer": lambda: peer.fit(X, y)}, 3 if quick else 7)
    ratio, mine, theirs = took["peer"].median / took["ours"].median, data.error(ours), data.error(peer)
    return Row(
        TITLE,
        f"{name}; 2,000 × 10×10×10, {data.name}",
        "TensorLy / ours",
        ratio,
        aim="≥ 1 at no larger test error",
        met=ratio >= 1.0 and mine <= theirs,
        ours=took["ours"].median,
        other=took["peer"].median,
        note=f"test error (share of variance): ours {mine:.4f}, TensorLy {theirs:.4f}",
    )
