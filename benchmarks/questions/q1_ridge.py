"""Is a certified low-rank fit as cheap as ridge regression?"""

from functools import partial

import numpy as np
from sklearn.linear_model import Ridge

from benchmarks.harness import Row, at_most, interleaved
from benchmarks.problems import largest_alpha
from tracelearn import Moments, TraceNormRegressor
from tracelearn.datasets import make_low_rank_regression, make_rank_tensors

TITLE = "against Ridge(cholesky)"
SHAPE = (10, 10, 10)
AIMS = {2_000: 3.0, 20_000: 1.5, 200_000: 1.5}
REPEATS = {2_000: 21, 20_000: 9, 200_000: 3}
DATA = {
    "Gaussian": lambda n: make_low_rank_regression(n, SHAPE, random_state=0)[:2],
    "the paper's": lambda n: make_rank_tensors(n, random_state=0),
}


def ask(quick: bool) -> list[Row]:
    sizes = [n for n in AIMS if not quick or n <= 20_000]
    rows = []
    for name, draw in DATA.items():
        X, y = draw(max(sizes))  # the largest is drawn once; slices are views
        for n in sizes:
            rows += _compare(name, X[:n], y[:n], 3 if quick else REPEATS[n])
        del X
    return rows


def _compare(name: str, X: np.ndarray, y: np.ndarray, repeats: int) -> list[Row]:
    n, flat, ridge = len(X), X.reshape(len(X), -1), Ridge(solver="cholesky")
    top = largest_alpha(Moments.of(X, y), SHAPE)
    models = {fraction: TraceNormRegressor(alpha=fraction * top, tol=1e-6) for fraction in (0.1, 0.01)}
    fits = {fraction: partial(model.fit, X, y) for fraction, model in models.items()}
    took = interleaved({**fits, "ridge": partial(ridge.fit, flat, y)}, repeats)
    rows = []
    for fraction, model in models.items():
        ratio = took[fraction].median / took["ridge"].median
        rows.append(
            Row(
                TITLE,
                f"{name} 10×10×10, n = {n:,}, α = {fraction:g} α_max",
                "ours / ridge",
                ratio,
                **at_most(AIMS[n], ratio),
                ours=took[fraction].median,
                other=took["ridge"].median,
                note=f"gap {model.dual_gap_:.0e}, {model.n_iter_} iterations",
                extra={"ours": took[fraction].seconds, "other": took["ridge"].seconds},
            )
        )
    return rows
