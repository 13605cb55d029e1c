"""Against proximal toolboxes, with the problem composed by hand from their parts."""

from collections.abc import Callable

from benchmarks.harness import Arrival, Race, Row, at_least, interleaved
from benchmarks.problems import Problem

TITLE = "against proximal toolboxes"
ERROR = 1e-6


def ask(quick: bool) -> list[Row]:
    limit = 5.0 if quick else 20.0
    cases = {"2,000 × 10×10×10": Problem.gaussian(2_000, (10, 10, 10), 0.1)}
    cases["500 × 20×20"] = Problem.gaussian(500, (20, 20), 0.1)
    rows = []
    for case, problem in cases.items():
        tol = problem.tol_for(ERROR)
        took = interleaved({"ours": lambda problem=problem, tol=tol: problem.fit(tol)}, 5 if quick else 15)["ours"]
        for name, race in (("pyproximal", _pyproximal), ("copt", _copt)):
            label = f"{name}, {case}, α = 0.1 α_max, relative objective error 1e-6"
            try:
                arrival, note = race(problem, limit)
            except ImportError:
                rows.append(Row(TITLE, label, f"{name} / ours", None, note="not installed here"))
                continue
            ratio = arrival.seconds / took.median
            note += "; it is told when it has arrived, ours has to prove it"
            if not arrival.arrived:
                note += f"; {arrival.error:.0e} above the optimum when its time was up"
            rows.append(
                Row(
                    TITLE,
                    label,
                    f"{name} / ours",
                    ratio,
                    **at_least(1.0, ratio, not arrival.arrived),
                    ours=took.median,
                    other=arrival.seconds,
                    note=note,
                )
            )
    return rows


def _median(run: Callable[[], Arrival]) -> Arrival:
    first = run()
    if not first.arrived or first.seconds > 5.0:
        return first
    return sorted([first, run(), run()], key=lambda arrival: arrival.seconds)[1]


def _pyproximal(problem: Problem, limit: float) -> tuple[Arrival, str]:
    from benchmarks.solvers import pyproximal_admm as peer

    step = peer.best_step(problem, Race(problem.error, ERROR, limit))
    arrival = _median(lambda: Race(problem.error, ERROR, limit).run(peer.consensus, problem, step))
    return arrival, f"its ConsensusADMM with the best of {len(peer.STEPS)} steps, tuned outside the clock"


def _copt(problem: Problem, limit: float) -> tuple[Arrival, str]:
    from benchmarks.solvers import copt_splitting as peer

    arrival = _median(lambda: Race(problem.error, ERROR, limit).run(peer.run, problem, "copt"))
    how = "accelerated proximal gradient" if len(problem.shape) == 2 else "three-operator splitting on copies"
    return arrival, f"its {how}"
