"""Against tensor regression with a fixed rank, which is told the true rank, in time and in test error."""

import numpy as np

from benchmarks.harness import Row, interleaved
from tracelearn import TraceNormRegressor, TraceNormRegressorCV
from tracelearn.datasets import make_low_rank_regression

TITLE = "against TensorLy"
SHAPE, RANK = (10, 10, 10), 2


def ask(quick: bool) -> list[Row]:
    try:
        from tensorly.regression import CPRegressor, TuckerRegressor  # noqa: PLC0415 - may not be installed
    except ImportError:
        return [Row(TITLE, "TuckerRegressor, CPRegressor", "TensorLy / ours", None, note="not installed here")]
    n = 2_000
    X, y, _ = make_low_rank_regression(n + 5_000, SHAPE, rank=RANK, random_state=1)
    train, target, test, truth = X[:n], y[:n], X[n:], y[n:]

    def error(model) -> float:
        return float(np.mean((np.ravel(model.predict(test)) - truth) ** 2) / np.var(truth))

    # What a user without the true rank would do: choose alpha by cross-validation, then compare one fit with one fit.
    alpha = TraceNormRegressorCV(alphas=20, cv=5, mode_weights=None).fit(train, target).alpha_
    ours = TraceNormRegressor(alpha=alpha, tol=1e-6)
    peers = {
        "TuckerRegressor, true ranks 2, 2, 2": TuckerRegressor([RANK] * 3, verbose=0, random_state=0),
        "TuckerRegressor, ranks 4, 4, 4": TuckerRegressor([4] * 3, verbose=0, random_state=0),
        "CPRegressor, rank 3": CPRegressor(3, verbose=0, random_state=0),
    }
    if quick:
        peers.pop("TuckerRegressor, ranks 4, 4, 4")  # takes ten times the rest
    rows = []
    for name, peer in peers.items():
        took = interleaved(
            {"ours": lambda: ours.fit(train, target), "peer": lambda peer=peer: peer.fit(train, target)},
            3 if quick else 7,
        )
        ratio, mine, theirs = took["peer"].median / took["ours"].median, error(ours), error(peer)
        rows.append(
            Row(
                TITLE,
                f"{name}; 2,000 × 10×10×10",
                "TensorLy / ours",
                ratio,
                aim="≥ 1 at no larger test error",
                met=ratio >= 1.0 and mine <= theirs,
                ours=took["ours"].median,
                other=took["peer"].median,
                note=f"test error (share of variance; the noise alone is 0.20): ours {mine:.4f}, TensorLy {theirs:.4f}",
            )
        )
    return rows
