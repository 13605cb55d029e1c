"""The suite of benchmarks: what it measures is right, whoever is measured."""

import time
from itertools import islice

import numpy as np
import pytest
from benchmarks import solvers
from benchmarks.harness import Race, Stop
from benchmarks.problems import Judge, Problem
from benchmarks.suite import report
from benchmarks.suite.cases import CASES, describe
from benchmarks.suite.runner import Outcome, Run, Trace, outcome

from tracelearn.datasets import make_rank_tensors
from tracelearn.solvers import SOLVERS

pytestmark = pytest.mark.slow

# Gradients alone are slow on these two, which is what they are for.
HARD = {"paper", "correlated"}
LIBRARIES = [name for name in solvers.names() if name not in {"paper", "ridge"}]


def library(name):
    try:
        return solvers.find(name)
    except ImportError as missing:
        pytest.skip(f"{missing.name} comes with the bench extra")


@pytest.mark.parametrize("case", CASES)
def test_the_gap_bounds_the_error_of_any_weights_and_closes_at_the_best_known_answer(case, rng):
    problem = CASES[case].make(True)
    judge = Judge(problem, problem.reference)
    assert problem.reference.gap <= 1e-9
    for scale in (0.0, 0.01, 1.0):
        error, gap = judge.measure(scale * rng.standard_normal((problem.n_targets, problem.rows.shape[1])))
        assert 0.0 < error <= gap
    found = SOLVERS[problem.datafit.solvers.best](problem.stated(), tol=1e-9, max_iter=20_000)
    error, gap = judge.measure(found.W, found.split)
    assert error <= gap <= 1e-7


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("case", [case for case in CASES if case not in HARD])
def test_every_library_states_the_same_problem(name, case):
    module, problem = library(name), CASES[case].make(True)
    for solver in module.NAMES:
        if module.cannot(problem, solver):
            continue
        trace = Trace(Judge(problem, problem.reference), limit=20.0)
        trace.target = 1e-3  # near enough to know another problem by
        trace.run(module.run, problem, solver)
        assert min(error for _, error, _ in trace.points) <= 1e-3


def test_the_papers_six_come_nearer_on_the_papers_tensors():
    module = solvers.find("paper")
    X, y = make_rank_tensors(250, shape=(4, 3, 2), random_state=0)
    problem = Problem(X, y, 1.0 / len(X))
    judge = Judge(problem, problem.reference)
    zero, _ = judge.measure(np.zeros(problem.shape))
    assert len(module.NAMES) == 6
    for solver in module.NAMES:
        *_, last = islice(module.iterates(problem, solver), 6)
        error, gap = judge.measure(last.W)
        assert error < zero
        assert error <= gap


def test_the_clock_stands_still_while_an_iterate_is_measured():
    def slow(W):
        time.sleep(0.2)
        return 1.0

    race = Race(slow, 1e-6, limit=10.0)
    for _ in range(3):
        race(np.zeros(1))
    assert race.now() < 0.2
    race.error = lambda W: 0.0
    with pytest.raises(Stop):
        race(np.zeros(1))


def test_a_target_counts_as_reached_only_where_more_than_half_of_the_runs_reached_it():
    good, bad = Run([(1.0, 1e-3, 1e-1), (3.0, 1e-7, 1e-3)]), Run([(2.0, 1e-3, 1e-1)])
    found = outcome("one", "family", [good, good, bad], limit=5.0)
    assert found.error == {"0.01": 1.0, "0.0001": 3.0, "1e-06": 3.0}
    assert found.gap == {"0.01": 3.0, "0.0001": None, "1e-06": None}
    assert outcome("one", "family", [good, bad], limit=5.0).error["1e-06"] is None
    assert outcome("one", "family", [good, bad], limit=5.0).best_error == 1e-3
    late = outcome("one", "family", [good], limit=2.0)
    assert late.error["1e-06"] is None
    assert late.best_error == 1e-3
    assert outcome("one", "family", [good], limit=0.5).best_error is None


def test_the_tables_show_every_solver_and_say_why_one_has_no_time(tmp_path):
    case = Problem.gaussian(30, (3, 2), 0.1)
    outcomes = {
        "fast": outcome("fast", "a", [Run([(0.5, 1e-7, 1e-7)])], 10.0),
        "slow": outcome("slow", "b", [Run([(9.9, 1e-3, 1e-2)])], 10.0),
        "short": outcome("short", "b", [Run([(0.2, 1e-3, 1e-2)])], 10.0),
        "late": outcome("late", "b", [Run([(30.0, 1e-9, 1e-9)])], 10.0),
        "mute": Outcome("mute", "c", "It knows no tensors.", cannot=True),
        "line": outcome("line", "floor", [Run([(0.1, 1.0, 1.0)])], 10.0),
    }
    one = {"title": "a title", "size": describe(case), "alpha": 1.0, "optimum": 1.0, "gap": 1e-11}
    one["outcomes"] = {name: found.as_dict() for name, found in outcomes.items()}
    where = {
        "processor": "a",
        "cores": 2,
        "system": "b",
        "python": "3",
        "threads": "1",
        "versions": {},
        "load_at_start": 9.0,
    }
    results = {"quick": False, "limit": 10.0, "machine": where, "cases": {"one": one}, "seconds": 1.0}
    text = report.markdown(results)
    assert "| fast | **0.5 s** |" in text
    assert "| slow | > 10 s (1e-03) |" in text
    assert "error and gap 1e-06 not reached in 10 s: error 1e-03, gap 1e-02" in text
    assert "| short | ended (1e-03) |" in text
    assert "not reached when it ended after 0.2 s" in text
    assert "| late | > 10 s |" in text
    assert "no answer in 10 s, one after 30 s" in text
    assert "| mute | cannot |" in text
    assert "It knows no tensors." in text
    assert "| line | (0.1 s) |" in text
    assert "busy" in text
    report.figure(results, 2, "gap", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
