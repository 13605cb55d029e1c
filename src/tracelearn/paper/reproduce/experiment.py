"""The runs: seven algorithms, the exact optimum of the batch problem, and the mini-batch study, into results.json."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tracelearn.files.models import write_atomically
from tracelearn.moments import Moments
from tracelearn.paper.algorithms import Constants, Iterate, algorithm1, algorithm2
from tracelearn.paper.reproduce.claims import judge
from tracelearn.paper.reproduce.curves import Curve, Data, follow, make_data
from tracelearn.paper.reproduce.minibatch import study
from tracelearn.paper.reproduce.settings import ALGORITHMS, OURS, Algorithm, Settings
from tracelearn.penalties import OverlappedTraceNorm
from tracelearn.problems.smooth import Squares
from tracelearn.solvers import Solution, admm

__all__ = ["RESULTS", "Reporter", "describe", "load", "run", "save"]

RESULTS = "results.json"


class Reporter:
    """Hear what runs and how far it is; by default say nothing. ``seconds`` are expected ones, for the time left."""

    def plan(self, stages: dict[str, float]) -> None:
        """Learn all stages with the seconds that each is expected to take."""

    def begin(self, stage: str) -> None:
        """Learn that a stage begins."""

    def advance(self, share: float) -> None:
        """Learn the share of the stage that is done, from 0 to 1."""

    def end(self, stage: str, outcome: dict[str, Any]) -> None:
        """Learn what came out of a stage."""


def save(results: dict[str, Any], out: Path) -> None:
    """Write results.json whole or not at all, so that a reader or an interruption never finds half of it."""
    write_atomically(out / RESULTS, (json.dumps(results, indent=1) + "\n").encode())


def load(out: Path) -> dict[str, Any]:
    """Read what ``save`` wrote."""
    found: dict[str, Any] = json.loads((out / RESULTS).read_text(encoding="utf-8"))
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def describe(settings: Settings) -> dict[str, Any]:
    """Begin the results: what is run, with which constants, on what kind of machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    packages = ("tracelearn", "numpy", "scipy")
    return {
        **asdict(settings),
        "shape": list(settings.shape),
        "ranks": list(range(1, settings.max_rank + 1)),
        "constants": {key: value for key, value in asdict(Constants()).items() if key != "inner"},
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
        "machine": {"cores": cores, "architecture": platform.machine(), "system": platform.system()},
        "complete": False,
        "algorithms": {},
        "claims": [],
    }


@dataclass
class _Clock:
    """A stopwatch for learning time that stands still while a model is scored."""

    total: float = 0.0
    since: float = 0.0

    def start(self) -> None:
        self.since = time.perf_counter()

    def stop(self) -> float:
        self.total += time.perf_counter() - self.since
        return self.total


def _ours(data: Data, settings: Settings) -> dict[str, Any]:
    """Learn from the whole training set: moments once, then ADMM to the duality gap."""
    n, lam, penalty = settings.n_train, Constants().lam, OverlappedTraceNorm(settings.shape)
    curve, clock = Curve(), _Clock()

    def add(W: Any, n_iter: int) -> None:
        seconds = clock.stop()
        rows = W.reshape(1, -1)
        curve.add(seconds, n, n_iter, data.score(rows, float(smooth.intercept(rows)[0])))
        clock.start()

    def watch(solution: Solution) -> None:
        add(solution.W, solution.n_iter)

    clock.start()
    moments = Moments.of(data.X, data.y)
    smooth = Squares.of(moments)
    seconds_moments = clock.stop()
    clock.start()
    add(np.zeros(settings.shape), 0)  # before the first iteration the mean rank is the prediction
    solution = admm(smooth, penalty, np.array([lam / n]), tol=settings.tol, on_iteration=watch)
    add(solution.W, solution.n_iter)
    gap = float(solution.gap[0])
    curve.converged = gap <= settings.tol
    return {**curve.as_dict(), "gap": gap, "seconds_moments": seconds_moments}


def _batches(data: Data, settings: Settings, size: int) -> Iterator[tuple[Any, Any]]:
    """Draw training tensors in a random order, each once."""
    order = np.random.default_rng((settings.seed, 2)).permutation(settings.n_train)
    for start in range(0, settings.n_train, size):
        drawn = order[start : start + size]
        yield data.X[drawn], data.y[drawn]


def _iterates(algorithm: Algorithm, data: Data, settings: Settings) -> Iterator[Iterate]:
    constants = Constants(inner=algorithm.inner)
    if algorithm.feed == "batch":
        # Inside the generator, so that the time to build the statistics counts as learning.
        past = Moments.of(data.X[: settings.n_batch], data.y[: settings.n_batch])
        yield from algorithm1(past, settings.shape, constants)
    else:
        size = 1 if algorithm.feed == "online" else settings.batch_size
        batches = _batches(data, settings, size)
        # The first samples have an L far below beta, where a proximal point takes a hundred iterations and gains nothing.
        constants = replace(constants, inner_iter=settings.inner_iter_per_update)
        yield from algorithm2(batches, settings.shape, constants, max_iter=settings.max_iter_per_update)


@dataclass(frozen=True, eq=False)
class _BatchProblem:
    """The problem that the batch algorithms solve, with its exact optimum to compare with."""

    smooth: Squares
    penalty: OverlappedTraceNorm
    alpha: Any
    optimum: float

    def excess(self, W: Any) -> float:
        """How far the objective at W is above the optimum, relative to the optimum."""
        value = float(self.smooth.evaluate(W.reshape(1, -1)).value[0])
        return (value + float(self.alpha[0]) * float(self.penalty.value(W[None, ...])[0])) / self.optimum - 1.0


def _solve_batch(data: Data, settings: Settings) -> tuple[_BatchProblem, dict[str, Any], dict[str, float]]:
    """Solve the batch problem exactly; return it, what its optimum scores, and the constants of its curvature."""
    n, penalty = settings.n_batch, OverlappedTraceNorm(settings.shape)
    start = time.perf_counter()
    moments = Moments.of(data.X[:n], data.y[:n])
    smooth, alpha = Squares.of(moments), np.array([Constants().lam / n])
    solution = admm(smooth, penalty, alpha, tol=1e-10)
    seconds = time.perf_counter() - start
    rows = solution.W.reshape(1, -1)
    mse, accuracy = data.score(rows, float(smooth.intercept(rows)[0]))
    optimum = {
        "mse": mse,
        "accuracy": accuracy,
        "objective": float(solution.objective[0]),
        "gap": float(solution.gap[0]),
        "seconds": seconds,
        "train_mse": float(smooth.evaluate(rows).value[0]),
    }
    lipschitz = {
        "paper": moments.paper_lipschitz,
        "tight": 2.0 * float(np.linalg.eigvalsh(moments.second_moment)[-1]),
        "tight_centred": 2.0 * float(np.linalg.eigvalsh(moments.gram)[-1]),
    }
    return _BatchProblem(smooth, penalty, alpha, optimum["objective"]), optimum, lipschitz


@dataclass(eq=False)
class _Run:
    """One run in progress: every finished stage is on disk before the next begins."""

    settings: Settings
    out: Path
    reporter: Reporter
    results: dict[str, Any]

    def finish(self, stage: str, outcome: dict[str, Any]) -> None:
        self.results["claims"] = judge(self.results)
        save(self.results, self.out)
        self.reporter.end(stage, outcome)

    def data(self) -> Data:
        self.reporter.begin("data")
        drawn, total = 0, self.settings.n_train + self.settings.n_test

        def on_drawn(n: int) -> None:
            nonlocal drawn
            drawn += n
            self.reporter.advance(drawn / total)

        data = make_data(self.settings, on_drawn)
        self.reporter.end("data", {})
        return data

    def ours(self, data: Data) -> None:
        self.reporter.begin(OURS)
        outcome = _ours(data, self.settings)
        self.results["algorithms"][OURS] = outcome
        self.finish(OURS, outcome)

    def batch_optimum(self, data: Data) -> _BatchProblem:
        self.reporter.begin("optimum")
        problem, self.results["batch_optimum"], self.results["lipschitz"] = _solve_batch(data, self.settings)
        self.finish("optimum", self.results["batch_optimum"])
        return problem

    def algorithm(self, algorithm: Algorithm, data: Data, problem: _BatchProblem) -> None:
        settings = self.settings
        self.reporter.begin(algorithm.name)
        curve, last = follow(
            _iterates(algorithm, data, settings),
            data.score,
            budget=settings.budget,
            points_per_decade=settings.points_per_decade,
            on_time=lambda seconds: self.reporter.advance(seconds / settings.budget),
        )
        outcome = curve.as_dict()
        if algorithm.feed == "batch":
            outcome["excess_objective"] = problem.excess(last.W)
        self.results["algorithms"][algorithm.name] = outcome
        order = [*ALGORITHMS, OURS]
        self.results["algorithms"] = dict(sorted(self.results["algorithms"].items(), key=lambda x: order.index(x[0])))
        self.finish(algorithm.name, outcome)

    def minibatch(self, data: Data) -> None:
        self.reporter.begin("minibatch")
        self.results["minibatch"] = study(data, self.settings, self.reporter.advance)
        self.finish("minibatch", self.results["minibatch"])


def run(settings: Settings, out: Path, reporter: Reporter | None = None) -> dict[str, Any]:
    """Run the whole experiment and return its results, which are also in ``out / "results.json"``.

    The file is written anew after every algorithm: an interruption loses only the algorithm that was running.
    """
    reporter = reporter or Reporter()
    tensors = settings.n_train + settings.n_test
    # Seconds for tensors and moments are rough, for two cores: they only steer the estimate of the time left.
    reporter.plan(
        {
            "data": 6e-5 * tensors,
            OURS: 3e-5 * settings.n_train,
            "optimum": 1.0,
            **dict.fromkeys(ALGORITHMS, settings.budget),
            "minibatch": settings.study_seconds,
        }
    )
    out.mkdir(parents=True, exist_ok=True)
    current = _Run(settings, out, reporter, describe(settings))
    save(current.results, out)
    data = current.data()
    current.ours(data)
    problem = current.batch_optimum(data)
    for algorithm in ALGORITHMS.values():
        current.algorithm(algorithm, data, problem)
    current.minibatch(data)
    current.results["complete"] = True
    save(current.results, out)
    return current.results
