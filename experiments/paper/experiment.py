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
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper.claims import judge
from experiments.paper.files import write_whole
from experiments.paper.settings import OURS, Settings
from tracelearn import Moments, TraceNormRegressor, tensor_trace_norm
from tracelearn.datasets import make_rank_tensors
from tracelearn.paper.algorithms import Constants, converge, lipschitz
from tracelearn.paper.estimators import ALGORITHMS, PaperRegressor

__all__ = ["RESULTS", "Data", "curve", "describe", "follow", "load", "make_data", "run", "save"]

RESULTS = "results.json"
SIZES = (1, 10, 100, 1000)  # of mini-batches
_LAM = Constants().lam
_BLOCK = 2_000  # tensors drawn at once: the memory of a whole draw is several times that of its result

OnStage = Callable[[str, dict[str, Any]], None]


def save(results: dict[str, Any], out: Path) -> None:
    """Write results.json whole or not at all, so that a reader or an interruption never finds half of it."""
    write_whole(out / RESULTS, (json.dumps(results, indent=1) + "\n").encode())


def load(out: Path) -> dict[str, Any]:
    """Read what ``save`` wrote."""
    return json.loads((out / RESULTS).read_text(encoding="utf-8"))


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


def draw_tensors(settings: Settings, n_tensors: int, stream: int) -> tuple[Any, Any]:
    """Draw tensors and their ranks, block by block: a smaller draw is the beginning of a larger one."""
    X = np.empty((n_tensors, *settings.shape))
    y = np.empty(n_tensors)
    n_blocks = math.ceil(n_tensors / _BLOCK)
    seeds = np.random.SeedSequence((settings.seed, stream)).generate_state(n_blocks)
    for block, seed in enumerate(seeds):
        rows = slice(block * _BLOCK, min((block + 1) * _BLOCK, n_tensors))
        tensors, ranks = make_rank_tensors(
            _BLOCK, shape=settings.shape, ranks=(1, settings.max_rank), random_state=int(seed)
        )
        X[rows] = tensors[: rows.stop - rows.start]
        y[rows] = ranks[: rows.stop - rows.start]
    return X, y


def make_data(settings: Settings) -> Data:
    """Draw the training and the test tensors, from two independent streams of the seed."""
    X, y = draw_tensors(settings, settings.n_train, stream=0)
    X_test, y_test = draw_tensors(settings, settings.n_test, stream=1)
    return Data(settings.eta, X, y, X_test, y_test)


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
            if clock >= budget or diverged:
                break
            start = time.perf_counter()
        if model is None:
            raise ValueError("Expected at least one model, got none.")
        if scored < steps:
            diverged = overflows()
    return curve(points, converged=model.converged_ and not diverged, diverged=diverged)


def _learn_ours(data: Data, settings: Settings) -> dict[str, Any]:
    """Learn from the whole training set: moments once, then ADMM to the duality gap."""
    # With so strong a penalty all weights are zero, and the time of this step is that of the moments.
    model = TraceNormRegressor(alpha=1e100, tol=settings.tol)
    start = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):  # about weights that are all zero
        model.partial_fit(data.X, data.y)
    seconds_moments = time.perf_counter() - start
    points = [(seconds_moments, settings.n_train, model.n_iter_, *data.score(model.coef_, model.intercept_))]

    model.set_params(alpha=_LAM / settings.n_train)
    start = time.perf_counter()
    model.merge(Moments.zero(data.X[0].size))  # solves again, with the moments that are there
    seconds = seconds_moments + time.perf_counter() - start
    points.append((seconds, settings.n_train, model.n_iter_, *data.score(model.coef_, model.intercept_)))
    summary = curve(points, converged=model.dual_gap_ <= settings.tol)
    return {**summary, "gap": float(model.dual_gap_), "seconds_moments": seconds_moments}


def _objective(data: Data, n: int, W: Any, b: float) -> tuple[float, float]:
    """Evaluate the objective of the batch problem as a mean over samples, and the error in it."""
    mse = float(np.mean((data.X[:n].reshape(n, -1) @ np.ravel(W) + b - data.y[:n]) ** 2))
    return mse + _LAM / n * tensor_trace_norm(W), mse


def _solve_batch_problem(data: Data, settings: Settings) -> dict[str, Any]:
    """Solve the batch problem exactly, and score its optimum."""
    n = settings.n_batch
    start = time.perf_counter()
    model = TraceNormRegressor(alpha=_LAM / n, tol=1e-10).fit(data.X[:n], data.y[:n])
    seconds = time.perf_counter() - start
    mse, accuracy = data.score(model.coef_, model.intercept_)
    objective, train_mse = _objective(data, n, model.coef_, model.intercept_)
    return {
        "mse": mse,
        "accuracy": accuracy,
        "objective": objective,
        "gap": float(model.dual_gap_),
        "seconds": seconds,
        "train_mse": train_mse,
    }


def _lipschitz_constants(data: Data, settings: Settings) -> dict[str, float]:
    """Compare the paper's bound of the curvature with the smallest valid ones, without and with centring."""
    moments = Moments.of(data.X[: settings.n_batch], data.y[: settings.n_batch])
    return {
        "paper": lipschitz(moments),
        "tight": 2.0 * float(np.linalg.eigvalsh(moments.second_moment)[-1]),
        "tight_centred": 2.0 * float(np.linalg.eigvalsh(moments.gram)[-1]),
    }


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


def _learn_as_the_paper(name: str, data: Data, settings: Settings, optimum: dict[str, Any]) -> dict[str, Any]:
    """Let one of the paper's algorithms learn until the time is up."""
    is_batch = ALGORITHMS[name].feed == "batch"
    model = PaperRegressor(name, max_iter=sys.maxsize)
    if not is_batch:
        # The first samples have an L far below beta: a proximal point takes a hundred iterations and gains nothing.
        model.set_params(
            batch_size=settings.batch_size,
            max_iter=settings.max_iter_per_update,
            inner_iter=settings.inner_iter_per_update,
        )
    summary = follow(
        _models(model, data, settings),
        data.score,
        budget=settings.budget,
        points_per_decade=settings.points_per_decade,
    )
    if is_batch:
        objective, _ = _objective(data, settings.n_batch, model.coef_, model.intercept_)
        summary["excess_objective"] = objective / optimum["objective"] - 1.0
    return summary


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


def _study_minibatches(data: Data, settings: Settings) -> dict[str, Any]:
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
    learn, total = partial(learn, start=learn(past)), np.kron(data.X[0], data.X[0])
    sizes = [size for size in SIZES if size <= settings.n_train]
    limit = settings.study_seconds / (3 * len(sizes))
    rows: list[dict[str, float]] = []
    for size in sizes:
        batch = data.X[:size], data.y[:size]
        kron, timed = _timed(lambda x: np.add(total, np.kron(x, x), out=total), data.X[: max(size, 20)], limit)
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
    return {"rows": rows}


def run(settings: Settings, out: Path, on_stage: OnStage = lambda stage, outcome: None) -> dict[str, Any]:
    """Run the whole experiment and return its results, which are also in ``out / "results.json"``.

    The file is written anew after every algorithm: an interruption loses only the algorithm that was running.
    ``on_stage`` is given each stage that has ended, and its outcome.
    """
    results = describe(settings)

    def finish(stage: str, outcome: dict[str, Any]) -> None:
        results["claims"] = judge(results)
        save(results, out)
        on_stage(stage, outcome)

    out.mkdir(parents=True, exist_ok=True)
    save(results, out)
    data = make_data(settings)
    ours = _learn_ours(data, settings)
    results["algorithms"] = {OURS: ours}
    finish(OURS, ours)

    optimum = _solve_batch_problem(data, settings)
    results["batch_optimum"] = optimum
    results["lipschitz"] = _lipschitz_constants(data, settings)
    finish("exact optimum of the batch problem", {})

    paper_curves: dict[str, Any] = {}
    for name in ALGORITHMS:
        paper_curves[name] = _learn_as_the_paper(name, data, settings, optimum)
        results["algorithms"] = {**paper_curves, OURS: ours}  # tables and legends end with ours
        finish(name, paper_curves[name])

    results["minibatch"] = _study_minibatches(data, settings)
    results["complete"] = True
    finish("mini-batches", {})
    return results
