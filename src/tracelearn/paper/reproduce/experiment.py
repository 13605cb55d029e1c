"""The runs: seven algorithms, the exact optimum of the batch problem, and the mini-batch study, into results.json."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from tracelearn.arrays.tensors import kronecker
from tracelearn.datasets import make_rank_tensors
from tracelearn.estimators import TraceNormRegressor
from tracelearn.io.writing import write_atomically
from tracelearn.moments import Moments
from tracelearn.paper.algorithms import Constants, converge
from tracelearn.paper.estimators import ALGORITHMS, PaperRegressor
from tracelearn.paper.reproduce.claims import judge
from tracelearn.paper.reproduce.settings import OURS, Settings
from tracelearn.penalties import tensor_trace_norm

__all__ = ["RESULTS", "Data", "curve", "describe", "follow", "load", "make_data", "run", "save"]

RESULTS = "results.json"
SIZES = (1, 10, 100, 1000)  # of mini-batches
_LAM = Constants().lam
_BLOCK = 2_000  # tensors drawn at once: the memory of a whole draw is several times that of its result

Share = Callable[[float], None]
Progress = Callable[[str, float, float, dict[str, Any]], None]


def save(results: dict[str, Any], out: Path) -> None:
    """Write results.json whole or not at all, so that a reader or an interruption never finds half of it."""
    write_atomically(out / RESULTS, (json.dumps(results, indent=1) + "\n").encode())


def load(out: Path) -> dict[str, Any]:
    """Read what ``save`` wrote."""
    return json.loads((out / RESULTS).read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def describe(settings: Settings) -> dict[str, Any]:
    """Begin the results: what is run, with which constants, on what kind of machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    packages = ("tracelearn", "numpy", "scipy")
    return {
        **asdict(settings),
        "shape": list(settings.shape),
        "ranks": list(range(1, settings.max_rank + 1)),
        "constants": {key: value for key, value in asdict(Constants()).items() if key != "inner"},
        "versions": {
            "python": platform.python_version(),
            **{name: import_module(name).__version__ for name in packages},
        },
        "machine": {"cores": cores, "architecture": platform.machine(), "system": platform.system()},
        "complete": False,
        "algorithms": {},
        "claims": [],
    }


@dataclass(frozen=True, eq=False)
class Data:
    """Training and test tensors with their ranks, and how far off a prediction may be."""

    eta: float
    X: Any
    y: Any
    X_test: Any
    y_test: Any

    def score(self, W: Any, b: float) -> tuple[float, float]:
        """Return the mean squared error on the test tensors, and the share that is less than ``eta`` off."""
        error = self.X_test.reshape(len(self.y_test), -1) @ np.ravel(W) + b - self.y_test
        return float(np.mean(error**2)), float(np.mean(np.abs(error) < self.eta))


def make_data(settings: Settings, on_share: Share = lambda share: None) -> Data:
    """Draw the training and the test tensors, from two independent streams of the seed."""
    arrays: list[Any] = []
    drawn, total = 0, settings.n_train + settings.n_test
    options: dict[str, Any] = {"shape": settings.shape, "ranks": (1, settings.max_rank)}
    for stream, n in enumerate((settings.n_train, settings.n_test)):
        X, y = np.empty((n, *settings.shape)), np.empty(n)
        # A seed for each block and stream: a smaller draw is then the beginning of a larger one.
        seeds = np.random.SeedSequence((settings.seed, stream)).generate_state(-(-n // _BLOCK))
        for start, seed in zip(range(0, n, _BLOCK), seeds, strict=True):
            tensors, ranks = make_rank_tensors(_BLOCK, random_state=int(seed), **options)
            X[start : start + _BLOCK], y[start : start + _BLOCK] = tensors[: n - start], ranks[: n - start]
            drawn += min(_BLOCK, n - start)
            on_share(drawn / total)
        arrays += [X, y]
    return Data(settings.eta, *arrays)


def curve(points: list[tuple[Any, ...]], *, converged: bool, diverged: bool = False) -> dict[str, Any]:
    """Write out points of seconds, samples seen, steps, error and accuracy; the last and the best of them."""
    keys = ("seconds", "n_seen", "steps", "mse", "accuracy")
    columns = {key: [point[k] for point in points] for k, key in enumerate(keys)}
    return {
        **columns,
        "final_mse": columns["mse"][-1],
        "final_accuracy": columns["accuracy"][-1],
        "best_mse": min(columns["mse"]),
        "best_accuracy": max(columns["accuracy"]),
        "converged": converged,
        "diverged": diverged,
    }


def follow(
    models: Iterator[Any],
    score: Callable[[Any, float], tuple[float, float]],
    *,
    budget: float,
    points_per_decade: int,
    on_time: Share = lambda seconds: None,
) -> dict[str, Any]:
    """Let an algorithm learn for ``budget`` seconds and score it at geometrically spaced times.

    Only the time that the iterator of models takes counts. The first and the last model are always among the points;
    a step of the curve is an iteration, or an update where an algorithm learns online.
    """
    points: list[tuple[Any, ...]] = []
    model: Any = None
    clock, due, steps, scored, diverged = 0.0, 0.0, 0, 0, False

    def overflows() -> bool:
        mse, accuracy = score(model.coef_, model.intercept_)
        if math.isfinite(mse):  # JSON has no infinity, and a curve no place for it
            points.append((clock, int(model.n_seen_), steps, mse, accuracy))
        return not math.isfinite(mse)

    # A step that is too long overflows: that is a result of the experiment, not a mistake of the program.
    with np.errstate(over="ignore", invalid="ignore"):
        start = time.perf_counter()
        for model in models:  # noqa: B007 - scored above
            clock += time.perf_counter() - start
            steps += 1
            if clock >= due:
                diverged, scored, due = overflows(), steps, clock * 10.0 ** (1.0 / points_per_decade)
            on_time(clock)
            if clock >= budget or diverged:
                break
            start = time.perf_counter()
        if model is None:
            raise ValueError("Expected at least one model, got none.")
        if scored < steps:
            diverged = overflows()
    return curve(points, converged=model.converged_ and not diverged, diverged=diverged)


def _ours(data: Data, settings: Settings, results: dict[str, Any], on_share: Share) -> dict[str, Any]:
    """Learn from the whole training set: moments once, then ADMM to the duality gap."""
    n, clock = settings.n_train, 0.0
    points: list[tuple[Any, ...]] = []
    # A penalty that leaves nothing but the mean rank: the time of this step is that of the moments.
    model, more = TraceNormRegressor(alpha=1e100, tol=settings.tol), Moments.zero(data.X[0].size)
    steps: list[Callable[[], Any]] = [
        lambda: model.partial_fit(data.X, data.y),
        lambda: model.set_params(alpha=_LAM / n).merge(more),
    ]
    for step in steps:
        start = time.perf_counter()
        with warnings.catch_warnings(action="ignore"):  # that all weights are zero, as they should be at first
            step()
        clock += time.perf_counter() - start
        points.append((clock, n, model.n_iter_, *data.score(model.coef_, model.intercept_)))
    found = curve(points, converged=model.dual_gap_ <= settings.tol)
    results["algorithms"][OURS] = {**found, "gap": float(model.dual_gap_), "seconds_moments": points[0][0]}
    return found


def _objective(data: Data, n: int, W: Any, b: float) -> tuple[float, float]:
    """Evaluate the objective of the batch problem as a mean over samples, and the error in it."""
    mse = float(np.mean((data.X[:n].reshape(n, -1) @ np.ravel(W) + b - data.y[:n]) ** 2))
    return mse + _LAM / n * tensor_trace_norm(W), mse


def _optimum(data: Data, settings: Settings, results: dict[str, Any], on_share: Share) -> dict[str, Any]:
    """Solve the batch problem exactly: what its optimum scores, and the constants of its curvature."""
    n, start = settings.n_batch, time.perf_counter()
    model = TraceNormRegressor(alpha=_LAM / n, tol=1e-10).fit(data.X[:n], data.y[:n])
    seconds = time.perf_counter() - start
    mse, accuracy = data.score(model.coef_, model.intercept_)
    objective, train_mse = _objective(data, n, model.coef_, model.intercept_)
    found = {"mse": mse, "accuracy": accuracy, "objective": objective, "gap": float(model.dual_gap_)}
    results["batch_optimum"] = {**found, "seconds": seconds, "train_mse": train_mse}
    moments = Moments.of(data.X[:n], data.y[:n])
    results["lipschitz"] = {
        "paper": moments.paper_lipschitz,
        "tight": 2.0 * float(np.linalg.eigvalsh(moments.second_moment)[-1]),
        "tight_centred": 2.0 * float(np.linalg.eigvalsh(moments.gram)[-1]),
    }
    return found


def _batches(data: Data, settings: Settings, size: int) -> Iterator[tuple[Any, Any]]:
    """Draw training tensors in a random order, each once."""
    order = np.random.default_rng((settings.seed, 2)).permutation(settings.n_train)
    for start in range(0, settings.n_train, size):
        drawn = order[start : start + size]
        yield data.X[drawn], data.y[drawn]


def _models(model: PaperRegressor, data: Data, settings: Settings) -> Iterator[PaperRegressor]:
    """Yield the model as it learns; all it takes is inside, so that the time to build the statistics counts."""
    feed = ALGORITHMS[model.algorithm].feed
    if feed == "batch":
        yield from model.fit_steps(data.X[: settings.n_batch], data.y[: settings.n_batch])
    else:
        for X, y in _batches(data, settings, 1 if feed == "online" else settings.batch_size):
            yield model.partial_fit(X, y)


def _paper(name: str, data: Data, settings: Settings, results: dict[str, Any], on_share: Share) -> dict[str, Any]:
    """Let one of the paper's algorithms learn until the time is up."""
    model, is_batch = PaperRegressor(name, max_iter=sys.maxsize), ALGORITHMS[name].feed == "batch"
    if not is_batch:
        # The first samples have an L far below beta, where a proximal point takes a hundred iterations and gains nothing.
        limits = {"max_iter": settings.max_iter_per_update, "inner_iter": settings.inner_iter_per_update}
        model.set_params(batch_size=settings.batch_size, **limits)
    found = follow(
        _models(model, data, settings),
        data.score,
        budget=settings.budget,
        points_per_decade=settings.points_per_decade,
        on_time=lambda seconds: on_share(seconds / settings.budget),
    )
    if is_batch:
        objective, _ = _objective(data, settings.n_batch, model.coef_, model.intercept_)
        found["excess_objective"] = objective / results["batch_optimum"]["objective"] - 1.0
    ours = results["algorithms"].pop(OURS)  # ours stays the last
    results["algorithms"].update({name: found, OURS: ours})
    return found


def _timed(action: Callable[[Any], object], arguments: Iterable[Any], limit: float) -> tuple[float, int]:
    """Time an action on each argument until ``limit`` seconds have passed; return the median and how many were timed."""
    times: list[float] = []
    for argument in arguments:
        start = time.perf_counter()
        action(argument)
        times.append(time.perf_counter() - start)
        if sum(times) > limit:
            break
    return float(np.median(times)), len(times)


def _minibatch(data: Data, settings: Settings, results: dict[str, Any], on_share: Share) -> dict[str, Any]:
    """Compare mini-batches of growing size, with Kronecker products and with BLAS.

    The paper sums Kronecker squares sample by sample (Eq. 28), finds that larger mini-batches are slower, and predicts a
    speed-up by the size of the batch if that cost vanished. Here the same update is timed both ways. The past is that of
    the batch problem, so an update costs what it costs in the middle of a stream; it is one of APG_ADM,
    lines 11 to 19 of Algorithm 2. A Kronecker sum is linear in the batch by its nature: where the whole batch would take too
    long, a part of it is timed.
    """
    constants = Constants(inner="adm", inner_iter=settings.inner_iter_per_update)
    learn = partial(converge, shape=settings.shape, constants=constants, max_iter=settings.max_iter_per_update)
    past = Moments.of(data.X[: settings.n_batch], data.y[: settings.n_batch])
    learn, total = partial(learn, start=learn(past)), kronecker(data.X[0], data.X[0])
    sizes = [size for size in SIZES if size <= settings.n_train]
    limit = settings.study_seconds / (3 * len(sizes))
    rows: list[dict[str, float]] = []
    for k, size in enumerate(sizes):
        batch = data.X[:size], data.y[:size]
        kron, timed = _timed(lambda x: np.add(total, kronecker(x, x), out=total), data.X[: max(size, 20)], limit)
        blas = _timed(lambda xy: past.updated(*xy), [batch] * 50, limit)[0] / size
        learning, _ = _timed(learn, [past.updated(*batch)] * 50, limit)
        row = {
            "batch_size": size,
            "kronecker_seconds_per_sample": kron,
            "kronecker_samples_timed": timed,
            "blas_seconds_per_sample": blas,
            "iterations_seconds_per_update": learning,
            "kronecker_samples_per_second": size / (size * kron + learning),
            "blas_samples_per_second": size / (size * blas + learning),
        }
        rows.append(row)
        for kind in ("kronecker", "blas"):
            row[f"{kind}_speedup"] = row[f"{kind}_samples_per_second"] / rows[0][f"{kind}_samples_per_second"]
        on_share((k + 1) / len(sizes))
    results["minibatch"] = {"rows": rows}
    return {}


def run(
    settings: Settings, out: Path, on_progress: Progress = lambda stage, done, total, outcome: None
) -> dict[str, Any]:
    """Run the whole experiment and return its results, which are also in ``out / "results.json"``.

    The file is written anew after every algorithm: an interruption loses only the algorithm that was running.
    ``on_progress`` is given the stage, the seconds that are over and those of all stages, as expected, and what came out of a
    stage that has ended.
    """
    results = describe(settings)
    works: dict[str, Callable[..., dict[str, Any]]] = {
        OURS: _ours,
        "optimum": _optimum,
        **{name: partial(_paper, name) for name in ALGORITHMS},
        "minibatch": _minibatch,
    }
    # Seconds for tensors and moments are rough, for two cores: they only steer the estimate of the time left.
    seconds = dict.fromkeys(("data", *works), settings.budget) | {
        "data": 6e-5 * (settings.n_train + settings.n_test),
        OURS: 3e-5 * settings.n_train,
        "optimum": 1.0,
        "minibatch": settings.study_seconds,
    }
    begins = dict(zip(seconds, accumulate(seconds.values(), initial=0.0), strict=False))

    def tell(stage: str, share: float, outcome: dict[str, Any] | None = None) -> None:
        on_progress(stage, begins[stage] + min(share, 1.0) * seconds[stage], sum(seconds.values()), outcome or {})

    out.mkdir(parents=True, exist_ok=True)
    save(results, out)
    tell("data", 0.0)
    data = make_data(settings, partial(tell, "data"))
    for stage, work in works.items():
        tell(stage, 0.0)
        outcome = work(data, settings, results, partial(tell, stage))
        results["claims"] = judge(results)
        save(results, out)
        tell(stage, 1.0, outcome)
    results["complete"] = True
    save(results, out)
    return results
