"""How long tests, time courses and lagged models take, as ratios to what scikit-learn and MNE need for the same.

``python -m benchmarks.inference`` prints one table: processor seconds on one thread, in one process; names of measurements choose
some of them: ``small_permutations``. The rows that compare with MNE need it (``pip install mne``), and are left out without.
"""

from __future__ import annotations

import os
import resource
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold, permutation_test_score
from threadpoolctl import threadpool_limits

from tracelearn import LaggedRegressor, TensorClassifier, TraceNormClassifier, TraceNormRegressor
from tracelearn.datasets import make_epochs
from tracelearn.inference import decode_over_time, permutation_test
from tracelearn.inference.permutation import choose_exchange

PERMUTATIONS, TRIED = 1000, 20


def seconds(work: Any) -> tuple[float, Any]:
    """Measure processor time; return what came out as well."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def small_permutations() -> Iterator[tuple[str, str]]:
    """Test five-fold scores at 200 samples of 8 × 7 × 5, with effects of several sizes."""
    rng = np.random.default_rng(0)
    pattern = np.einsum("i,j,k->ijk", *(rng.standard_normal(size) for size in (8, 7, 5)))
    pattern /= np.linalg.norm(pattern)
    labels, numbers = np.arange(200) % 2, rng.standard_normal(200)
    noise = rng.standard_normal((200, *pattern.shape))
    for name, y, effect in (
        ("classes, strong effect", labels, 4.0),
        ("classes, weak effect", labels, 1.2),
        ("classes, no effect", labels, 0.0),
        ("numbers, effect", numbers, 1.0),
        ("numbers, no effect", numbers, 0.0),
    ):
        X = noise + effect * np.multiply.outer(y - np.mean(y), pattern)
        yield f"500 permutations of 200 samples, {name}", _small_permutations(X, y)


def _small_permutations(X: Any, y: Any) -> str:
    """Compare one test with that of scikit-learn, medians of three in turns, and with that of exact fits."""
    classes = y.dtype.kind == "i"
    model = TraceNormClassifier() if classes else TraceNormRegressor()
    options = {"cv": (StratifiedKFold if classes else KFold)(5, shuffle=True, random_state=0), "random_state": 0}
    ours, theirs = [], []
    for _ in range(3):
        batch, test = seconds(lambda: permutation_test(model, X, y, n_permutations=500, **options))
        few, _ = seconds(lambda: permutation_test_score(model, X, y, n_permutations=TRIED, **options))
        ours.append(batch)
        theirs.append(few * 501 / (TRIED + 1))
    exact = permutation_test(model, X, y, n_permutations=500, tol=0.0, **options)
    apart = np.sqrt(np.mean((test.null - exact.null) ** 2)) / np.std(exact.null)
    return (
        f"{np.median(ours):.2f} s; permutation_test_score {np.median(theirs):.1f} s, from {TRIED}, "
        f"{np.median(theirs) / np.median(ours):.0f} times as long; p = {test.p_value:.3g}, of exact fits {exact.p_value:.3g}; "
        f"null scores apart from these by {apart:.1%} of their spread"
    )


def permutations() -> Iterator[tuple[str, str]]:
    """Test a five-fold score at 300 simulated epochs of 8 × 17 × 12."""
    epochs = make_epochs(300, n_sensors=8, random_state=0)
    X, y = epochs.X, epochs.y
    cv = StratifiedKFold(5, shuffle=True, random_state=0)
    search, fitted = min(
        (seconds(lambda: TensorClassifier(cv=cv).fit(X, y)) for _ in range(3)), key=lambda pair: pair[0]
    )
    yield "one search, all views", f"{search:.2f} s"
    chosen = TraceNormClassifier(alpha=fitted.alpha_, ridge=fitted.ridge_)
    options = {"n_permutations": PERMUTATIONS, "cv": cv, "random_state": 0}
    fixed, test = seconds(lambda: permutation_test(chosen, X, y, **options))
    yield (
        f"{PERMUTATIONS:,} permutations of what was chosen",
        f"{fixed:.1f} s, {fixed / search:.1f} searches, p = {test.p_value:.3g}",
    )
    for name, model in (("what was chosen", chosen), ("the search", TensorClassifier(cv=5))):
        seconds_of_few, _ = seconds(
            lambda model=model: permutation_test_score(model, X, y, cv=cv, n_permutations=TRIED, random_state=0)
        )
        whole = seconds_of_few * (PERMUTATIONS + 1) / (TRIED + 1)
        yield (
            f"permutation_test_score around {name}, extrapolated from {TRIED}",
            f"{whole:.0f} s, {whole / fixed:.0f} times as long",
        )
    exact = permutation_test(chosen, X, y, tol=0.0, **options)
    order = choose_exchange(y, None, _folds(cv, X, y)).draw(300, PERMUTATIONS, np.random.default_rng(0))[:TRIED]
    splits = list(cv.split(X, y))
    null = [
        np.mean(
            [clone(chosen).fit(X[train], y[samples[train]]).score(X[held], y[samples[held]]) for train, held in splits]
        )
        for samples in order
    ]
    yield (
        f"p of exact fits; of the first {TRIED} those that differ from refits",
        f"{exact.p_value:.3g}; {np.sum(np.abs(exact.null[:TRIED] - null) > 1e-9)}",
    )
    one_view = TensorClassifier(views=None, loss="squared_error")
    repeated, test = seconds(lambda: permutation_test(one_view, X, y, **(options | {"n_permutations": 100})))
    yield "selection repeated in each, one view, from 100", f"{10 * repeated:.0f} s, p = {test.p_value:.3g}"


def _folds(cv: Any, X: Any, y: Any) -> Any:
    fold_of_sample = np.empty(len(y), dtype=int)
    for f, (_, test) in enumerate(cv.split(X, y)):
        fold_of_sample[test] = f
    return fold_of_sample


def generalisation() -> Iterator[tuple[str, str]]:
    """Train and test at 100 × 100 times, 200 epochs of 64 channels."""
    from mne.decoding import GeneralizingEstimator

    rng, y = np.random.default_rng(0), np.arange(200) % 2
    X = rng.standard_normal((200, 64, 100))
    X += 0.5 * (y - 0.5)[:, None, None] * rng.standard_normal(64)[:, None] * np.exp(-0.005 * (np.arange(100) - 50) ** 2)
    cv = StratifiedKFold(5, shuffle=True, random_state=0)
    train, test = next(iter(cv.split(X, y)))
    model = TraceNormClassifier(alpha=0.05, tol=1e-12)
    for scoring in (None, "roc_auc"):
        ours, decoding = seconds(lambda s=scoring: decode_over_time(model, X, y, cv=cv, generalize=True, scoring=s))
        theirs, scores = seconds(
            lambda s=scoring: GeneralizingEstimator(model, scoring=s).fit(X[train], y[train]).score(X[test], y[test])
        )
        apart = np.max(np.abs(scores - decoding.scores[0]))
        yield (
            f"temporal generalisation, {scoring or 'score of the estimator'}",
            f"{ours:.2f} s for five folds; MNE {5 * theirs:.1f} s, from one, {5 * theirs / ours:.0f} times as long; apart by "
            f"{apart:.0e}",
        )


def lagged() -> Iterator[tuple[str, str]]:
    """Fit one hour at 100 Hz, 32 features, 50 lags."""
    from mne.decoding import TimeDelayingRidge

    rng = np.random.default_rng(0)
    x = rng.standard_normal((360_000, 32))
    y = x @ rng.standard_normal(32) + rng.standard_normal(len(x))
    low_rank, _ = seconds(lambda: LaggedRegressor(50, alpha=0.05).fit(x, y))
    ridge, ours = seconds(
        lambda: LaggedRegressor(50, 0.0, ridge=1.0 / len(x), edges="zero", fit_intercept=False).fit(x, y)
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    theirs, other = seconds(
        lambda: TimeDelayingRidge(0, 0.49, 100.0, alpha=1.0, fit_intercept=False).fit(x, y[:, None])
    )
    apart = np.max(np.abs(other.coef_[0].T - ours.coef_))
    yield (
        "lagged model of low rank, 1 h at 100 Hz",
        f"{low_rank:.1f} s, {low_rank / theirs:.2f} times TimeDelayingRidge",
    )
    yield (
        "the same as ridge",
        f"{ridge:.1f} s, {ridge / theirs:.2f} times; apart by {apart:.0e}; peak of the process {memory:.2f} GiB",
    )


def main() -> None:
    measurements = [lagged, permutations, small_permutations, generalisation]  # the peak of memory is that of the first
    chosen = [measure for measure in measurements if measure.__name__ in sys.argv[1:]] or measurements
    print("| what | measured |\n|---|---|")
    os.environ["MNE_LOGGING_LEVEL"] = "ERROR"  # no bars of progress
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for measure in chosen:
            try:
                for name, value in measure():
                    print(f"| {name} | {value} |", flush=True)
            except ImportError as error:
                print(f"| {measure.__name__} | left out: {error} |")


if __name__ == "__main__":
    main()
