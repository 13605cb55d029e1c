"""How much faster than a general conic solver on the same problem?"""

from itertools import product

from benchmarks.harness import Row, at_least, interleaved
from benchmarks.problems import Problem
from benchmarks.solvers import cvxpy_conic

TITLE = "against cvxpy"
ERROR, AIM = 1e-6, 50.0


def ask(quick: bool) -> list[Row]:
    size = 5 if quick else 8
    rows = []
    for fraction in (0.3, 0.1):
        problem = Problem.gaussian(2_000 if size == 8 else 150, (size,) * 3, fraction)
        tol = problem.tol_for(ERROR)
        took = interleaved({"ours": lambda problem=problem, tol=tol: problem.fit(tol)}, 5 if quick else 21)["ours"]
        for solver, plain in product(cvxpy_conic.SETTINGS, (True, False)):
            repeats = range(3 if solver == "SCS" else 1)
            arrivals = [cvxpy_conic.arrive(problem, solver, ERROR, limit=60.0, plain=plain) for _ in repeats]
            arrival = sorted(arrivals, key=lambda a: a.seconds)[len(arrivals) // 2]
            ratio = arrival.seconds / took.median
            rows.append(
                Row(
                    TITLE,
                    f"{solver.title() if solver != 'SCS' else solver}, {size}×{size}×{size}, n = {len(problem.X)}, "
                    f"α = {fraction:g} α_max, relative objective error 1e-6, "
                    + ("stated as anyone would" if plain else "stated with our moments"),
                    "cvxpy / ours",
                    ratio,
                    **(at_least(AIM, ratio, not arrival.arrived) if size == 8 and plain else {}),
                    ours=took.median,
                    other=arrival.seconds,
                    note=f"cvxpy is {arrival.error:.0e} above the optimum; {arrival.note}",
                )
            )
    return rows
