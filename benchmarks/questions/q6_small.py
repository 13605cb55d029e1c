"""Small problems: the whole fit, and what the estimator adds around the solver."""

from collections.abc import Callable

import numpy as np

from benchmarks.harness import Row, at_least, interleaved
from benchmarks.problems import largest_alpha
from tracelearn import Moments, TraceNormClassifier, TraceNormRegressor
from tracelearn.datasets import make_low_rank_regression
from tracelearn.losses import LogLoss, SquaredError
from tracelearn.penalties import as_penalty
from tracelearn.problems.forms import choose_form
from tracelearn.problems.problem import Problems, alpha_max
from tracelearn.problems.sample_loss import SampleLoss
from tracelearn.problems.squares import Squares
from tracelearn.samples.samples import Block, Samples
from tracelearn.solvers import admm, newton

TITLE = "small problems"
# Seconds to a relative objective error of 1e-6, published marks of frozen MATLAB peers: Octave, one thread of another machine.
MARKS = {"squared_error": {"TFOCS": 0.020, "DAL": 0.054}, "log_loss": {"DAL": 0.56}}


def ask(quick: bool) -> list[Row]:
    repeats = 15 if quick else 61
    rows = []
    for n, shape in ((500, (20, 20)), (100, (5, 5, 5))):
        X, y, _ = make_low_rank_regression(n, shape, random_state=0)
        case = f"{n} × {'×'.join(map(str, shape))}"
        for loss, pair in (("squared_error", _squared), ("log_loss", _logistic)):
            fit, bare, model = pair(X, y, shape)
            took = interleaved({"fit": fit, "bare": bare}, repeats)
            whole, inside = took["fit"].median, took["bare"].median
            added = max(whole - inside, 0.0)
            share = added / whole
            rows.append(
                Row(
                    TITLE,
                    f"{case}, {loss}, α = 0.1 α_max: what the estimator adds",
                    "share of the fit",
                    share,
                    aim="≤ 0.2, or 2 ms",
                    met=added <= 0.002 or share <= 0.2,
                    ours=whole,
                    other=inside,
                    note=f"adds {1e3 * added:.2f} ms; other is the solver alone; gap {model.dual_gap_:.0e}",
                )
            )
            for peer, mark in MARKS[loss].items() if shape == (20, 20) else ():
                rows.append(
                    Row(
                        TITLE,
                        f"{case}, {loss}: whole fit, against the published mark of {peer}",
                        f"{peer} / ours",
                        mark / whole,
                        **at_least(1.0, mark / whole),
                        ours=whole,
                        other=mark,
                        note="the mark was measured on another machine with one thread",
                    )
                )
    return rows


def _problem(fit: Squares | SampleLoss, alpha: float, shape: tuple[int, ...]) -> Problems:
    return Problems(fit, as_penalty("overlapped", shape), np.array([alpha]), shape, fit.at_zero.value)


def _squared(X: np.ndarray, y: np.ndarray, shape: tuple[int, ...]) -> tuple[Callable, Callable, TraceNormRegressor]:
    samples = Samples.of(Block(X.reshape(len(X), -1), y[:, None]), shape)
    assert choose_form(samples, SquaredError()).uses_moments
    alpha = 0.1 * largest_alpha(Moments.of(X, y), shape)
    model = TraceNormRegressor(alpha=alpha, tol=1e-6)
    return (
        lambda: model.fit(X, y),
        lambda: admm(_problem(Squares.of(Moments.of(X, y)), alpha, shape), tol=1e-6),
        model,
    )


def _logistic(X: np.ndarray, y: np.ndarray, shape: tuple[int, ...]) -> tuple[Callable, Callable, TraceNormClassifier]:
    labels = (y > 0).astype(int)
    signs = np.where(labels == 1, 1.0, -1.0)[:, None]
    flat, penalty = X.reshape(len(X), -1), as_penalty("overlapped", shape)

    def stated() -> SampleLoss:
        return SampleLoss.of(LogLoss(), Samples.of(Block(flat, signs), shape).checked())

    alpha = 0.1 * float(alpha_max(stated(), penalty, shape)[0])
    model = TraceNormClassifier(alpha=alpha, loss="log_loss", tol=1e-6)
    return (
        lambda: model.fit(X, labels),
        lambda: newton(_problem(stated(), alpha, shape), tol=1e-6),
        model,
    )
