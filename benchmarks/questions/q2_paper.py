"""How much faster than the paper's own algorithm, on its own data?"""

from benchmarks.harness import Race, Row, at_least, interleaved
from benchmarks.problems import Problem
from benchmarks.solvers import paper

TITLE = "against the paper's APG_ADM"
ERROR, AIM = 1e-6, 300.0


def ask(quick: bool) -> list[Row]:
    problem = Problem.paper()
    tol = problem.tol_for(ERROR)
    took = interleaved({"ours": lambda: problem.fit(tol)}, 3 if quick else 11)["ours"]
    reached = problem.error(problem.fit(tol).coef_)
    # Long enough to show the aim; it has never arrived, so more time would only raise the bound.
    limit = 5.0 if quick else min(max(1.05 * AIM * took.median, 30.0), 100.0)
    arrival = Race(problem.error, ERROR, limit).run(paper.run, problem, "APG_ADM")
    ratio = arrival.seconds / took.median
    note = f"ours is {reached:.0e} above the optimum"
    if not arrival.arrived:
        note += f"; APG_ADM was {arrival.error:.1e} above it when its time was up: the ratio is a lower bound"
    return [
        Row(
            TITLE,
            "paper's data, 2,000 × 10×10×10, λ = 1, relative objective error 1e-6",
            "APG_ADM / ours",
            ratio,
            **at_least(AIM, ratio, not arrival.arrived),
            ours=took.median,
            other=arrival.seconds,
            note=note,
        )
    ]
