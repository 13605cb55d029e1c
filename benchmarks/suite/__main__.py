"""Run every solver on every problem; write suite.json, suite.md, suite_error.png and suite_gap.png."""

import argparse
import json
import time
from pathlib import Path

from benchmarks import machine, solvers
from benchmarks.suite import report
from benchmarks.suite.cases import CASES, describe
from benchmarks.suite.runner import Worker, compare, warm_up

HERE = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="PROBLEM", help=f"only these: {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="small problems and few repetitions, to try it out")
    parser.add_argument("--solver", action="append", default=[], help="only solvers with this word in their name")
    parser.add_argument("--limit", type=float, help="seconds for one run; by default 10, and 2 if quick")
    parser.add_argument("--repeats", type=int, help="runs of each solver; by default 5, and 2 if quick")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to; by default benchmarks")
    options = parser.parse_args()
    limit = options.limit or (2.0 if options.quick else 10.0)
    repeats = options.repeats or (2 if options.quick else 5)
    wanted = [word.lower() for word in options.solver]
    where, began = machine.describe(), time.perf_counter()
    workers = {file: Worker() for file in solvers.names()}
    warm_up(workers, wanted)
    cases = {}
    for name in [name for name in CASES if not options.cases or name in options.cases]:
        print(f"{name}: {CASES[name].title}", flush=True)
        problem = CASES[name].make(options.quick)
        outcomes = compare(name, options.quick, limit, repeats, problem.reference, workers, wanted)
        cases[name] = {
            "title": CASES[name].title,
            "size": describe(problem),
            "alpha": problem.alpha,
            "optimum": problem.optimum,
            "gap": problem.reference.gap,
            "outcomes": {outcome.solver: outcome.as_dict() for outcome in outcomes},
        }
    for worker in workers.values():
        worker.close()
    took = round(time.perf_counter() - began, 1)
    write(options.out, {"quick": options.quick, "seconds": took, "limit": limit, "machine": where, "cases": cases})


def write(out: Path, results: dict) -> None:
    """Write the results for machines and for people."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "suite.json").write_text(json.dumps(results, ensure_ascii=False) + "\n")
    text = report.markdown(results)
    (out / "suite.md").write_text(text)
    report.figure(results, 1, "relative objective error", out / "suite_error.png")
    report.figure(results, 2, "relative duality gap, certified", out / "suite_gap.png")
    print(text)
    print(f"{results['seconds']:.0f} s; written to {out}")


if __name__ == "__main__":
    main()
