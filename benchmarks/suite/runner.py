"""Runs solvers in turns, each library in a process of its own, and says what every run gave."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np

from benchmarks import solvers
from benchmarks.harness import Race
from benchmarks.problems import Judge, Problem, Reference
from benchmarks.suite.cases import CASES
from tracelearn.penalties import Split

TARGETS = (1e-2, 1e-4, 1e-6)


class Trace(Race):
    """A race that keeps what it saw: seconds, objective error and certified gap."""

    def __init__(self, judge: Judge, limit: float) -> None:
        super().__init__(lambda W: judge.measure(W)[0], min(TARGETS), limit)
        self.judge = judge
        self.points: list[tuple[float, float, float]] = []

    def look(self, at: float, W: np.ndarray, split: Split | None) -> float:
        """Keep the point; the gap bounds the error, so that the smallest target is met by both where the gap meets it."""
        error, gap = self.judge.measure(W, split)
        self.points.append((at, error, gap))
        return gap


@dataclass(frozen=True)
class Task:
    """One run of one solver on one problem."""

    case: str
    quick: bool
    file: str
    solver: str
    limit: float
    reference: Reference | None = None


@dataclass
class Run:
    """What one run gave: its points, or the sentence that says why there are none; and how long all of it took."""

    points: list[tuple[float, float, float]] = field(default_factory=list)
    took: float = 0.0
    sentence: str = ""
    cannot: bool = False


@lru_cache(1)
def _problem(case: str, quick: bool) -> Problem:
    return CASES[case].make(quick)


def perform(task: Task) -> Run:
    """Do a task, in the process of its library."""
    try:
        module = solvers.find(task.file)
    except ImportError as missing:
        return Run(sentence=f"Not installed: {missing.name}.", cannot=True)
    problem = _problem(task.case, task.quick)
    sentence = module.cannot(problem, task.solver)
    if sentence:
        return Run(sentence=sentence, cannot=True)
    assert task.reference is not None
    trace = Trace(Judge(problem, task.reference), task.limit)
    if hasattr(module, "prepare"):
        module.prepare(problem, trace)
    began = time.perf_counter()
    trace.run(module.run, problem, task.solver)
    return Run(trace.points, time.perf_counter() - began)


def serve(pipe: Connection) -> None:
    """Do tasks until there are none."""
    while (task := pipe.recv()) is not None:
        try:
            pipe.send(perform(task))
        except Exception as error:  # a table with a hole says more than no table
            pipe.send(Run(sentence=f"Failed: {type(error).__name__}: {str(error)[:120]}"))


class Worker:
    """A process for one library: its thread pools and its memory are its own. It waits while others run."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()

    def perform(self, task: Task) -> Run:
        """Do a task; a process that does not answer is ended, and the next task gets a new one."""
        # A solver is told its limit, and may run to several tolerances; what is beyond all patience has hung.
        patience = 60.0 + 10.0 * task.limit
        try:
            self._pipe.send(task)
            if self._pipe.poll(patience):
                return self._pipe.recv()
            sentence = f"Ended after {patience:.0f} s without an answer."
        except (EOFError, OSError):
            sentence = "Its process died."
        self._process.kill()
        self._start()
        return Run(sentence=sentence)

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join()


@dataclass
class Outcome:
    """What all runs of a solver on a problem gave: medians of the seconds to each target, None where not reached."""

    solver: str
    family: str
    sentence: str = ""
    cannot: bool = False
    repeats: int = 0
    error: dict[str, float | None] = field(default_factory=dict)
    gap: dict[str, float | None] = field(default_factory=dict)
    seconds: float | None = None
    best_error: float | None = None
    best_gap: float | None = None
    points: list[tuple[float, float, float]] = field(default_factory=list)

    def as_dict(self) -> dict:
        return asdict(self)


def when(points: list[tuple[float, float, float]], column: int, target: float, limit: float) -> float | None:
    """Find the soonest that a run met a target; runs to several tolerances need not be in order."""
    return min((point[0] for point in points if point[column] <= target and point[0] <= limit), default=None)


def outcome(solver: str, family: str, runs: list[Run], limit: float) -> Outcome:
    """Sum up the runs of one solver on one problem; what came after the limit was not reached."""
    summary = Outcome(solver, family, runs[-1].sentence, runs[-1].cannot, len(runs))
    done = [run for run in runs if run.points]
    if not done:
        return summary
    for column, name in ((1, "error"), (2, "gap")):
        for target in TARGETS:
            times = [when(run.points, column, target, limit) for run in done]
            reached = [at for at in times if at is not None]
            # A median of runs of which some did not arrive would flatter: more than half have to.
            enough = 2 * len(reached) > len(done)
            getattr(summary, name)[f"{target:g}"] = statistics.median(reached) if enough else None
    middle = sorted(done, key=lambda run: run.points[-1][0])[len(done) // 2]
    summary.seconds = statistics.median(max(point[0] for point in run.points) for run in done)
    summary.best_error, summary.best_gap = (_usual_best(done, column, limit) for column in (1, 2))
    summary.points = [tuple(float(f"{x:.3g}") for x in point) for point in _thinned(middle.points)]
    return summary


def _usual_best(runs: list[Run], column: int, limit: float) -> float | None:
    """Find what more than half of the runs came to within the limit; None where they had no answer by then."""
    bests = (min((point[column] for point in run.points if point[0] <= limit), default=math.inf) for run in runs)
    best = statistics.median_high(bests)
    return best if math.isfinite(best) else None


def _thinned(points: list[tuple[float, float, float]]) -> Iterator[tuple[float, float, float]]:
    """Keep the points of a run whose times are a tenth apart, and the last."""
    last = 0.0
    for k, point in enumerate(points):
        if k + 1 == len(points) or point[0] >= 1.1 * last or point[0] < last:
            last = point[0]
            yield point


def entries(wanted: list[str]) -> list[tuple[str, str, str]]:
    """List file, solver and family of all solvers that can be imported here, ours first; those missing by their file."""
    importable = []
    for file in solvers.names():
        try:
            module = solvers.find(file)
        except ImportError:
            importable.append((file, file, "not installed"))
            continue
        importable += [(file, name, module.FAMILY) for name in module.NAMES]
    chosen = [entry for entry in importable if not wanted or any(word in entry[1].lower() for word in wanted)]
    return sorted(chosen, key=lambda entry: entry[0] != "ours")


def compare(
    case: str,
    quick: bool,
    limit: float,
    repeats: int,
    reference: Reference,
    workers: dict[str, Worker],
    wanted: list[str],
) -> list[Outcome]:
    """Let all solvers take turns, a b c a b c; one whose runs have taken the limit together is not repeated."""
    listed = entries(wanted)
    runs: dict[str, list[Run]] = {solver: [] for _, solver, _ in listed}
    for turn in range(repeats):
        for file, solver, _ in listed:
            before = runs[solver]
            if before and (not before[0].points or sum(run.took for run in before) > limit):
                continue
            run = workers[file].perform(Task(case, quick, file, solver, limit, reference))
            before.append(run)
            if turn == 0:
                print(f"  {solver}: {run.sentence or summary(run)}", flush=True)
    return [outcome(solver, family, runs[solver], limit) for _, solver, family in listed]


def summary(run: Run) -> str:
    at, error, gap = run.points[-1] if run.points else (0.0, np.inf, np.inf)
    return f"{at:.3g} s, error {error:.1e}, gap {gap:.1e}"


def warm_up(workers: dict[str, Worker], wanted: list[str]) -> None:
    """Let every library pay for imports, pages and threads on a small problem first."""
    reference = _problem("order3", True).reference
    for file, solver, _ in entries(wanted):
        workers[file].perform(Task("order3", True, file, solver, 0.5, reference))
