"""Run the experiment: ``python -m experiments.paper --scale quick|full --out DIR``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from experiments.paper import figures, page
from experiments.paper.experiment import RESULTS, load, run
from experiments.paper.settings import OURS, SCALES, make_settings
from tracelearn.paper.estimators import ALGORITHMS

INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.paper", description=__doc__)
    add = parser.add_argument
    add("--scale", choices=SCALES, default="quick", help="quick: about 80 seconds; full: the paper's size, 25 minutes")
    add("--out", type=Path, default=Path("out/paper"), help="folder for the figures, results.json and report.html")
    add("--budget", type=float, help="seconds of learning for each algorithm; the default depends on the scale")
    add("--batch-size", type=int, default=100, help="tensors in a mini-batch")
    add("--max-iter-per-update", type=int, default=10, help="most iterations of an online update")
    add("--inner-iter-per-update", type=int, default=5, help="most iterations of a proximal point in an online update")
    add("--max-rank", type=int, default=4, help="ranks are uniform from 1 to this")
    add("--seed", type=int, default=0, help="decides the tensors and their order")
    return parser.parse_args(arguments)


def print_curve(stage: str, outcome: dict[str, Any]) -> None:
    """Print one line for a stage that has ended."""
    if "final_accuracy" not in outcome:
        print(f"{stage}: done", flush=True)
        return
    accuracy = f"accuracy {100 * outcome['final_accuracy']:.1f} %"
    error = f"mean squared error {outcome['final_mse']:.3f}"
    print(f"{stage}: {outcome['seconds'][-1]:.1f} s of learning, {accuracy}, {error}", flush=True)


def write_report(results: dict[str, Any], out: Path) -> list[Path]:
    """Draw and write what the results allow; return the files, the page last."""
    if not results["algorithms"]:
        return [out / RESULTS]
    return [*figures.draw(results, out), out / RESULTS, page.write(results, out)]


def remove_old_report(out: Path) -> None:
    """Remove figures and page of an earlier run: they would contradict the new results until they are replaced."""
    for name in (page.REPORT, *(f"{kind}.png" for kind in figures.FIGURES)):
        (out / name).unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment, write its report, and return the exit code; Ctrl-C keeps what has finished."""
    options = vars(read_options(arguments))
    out = options.pop("out")
    try:
        settings = make_settings(**options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    out.mkdir(parents=True, exist_ok=True)
    remove_old_report(out)
    exit_code = 0
    try:
        results = run(settings, out, print_curve)
    except KeyboardInterrupt:
        results = load(out)
        exit_code = INTERRUPTED
        finished = len(results["algorithms"])
        print(f"Interrupted: {finished} of {len(ALGORITHMS) + 1} algorithms had finished.", file=sys.stderr)
    if OURS in results["algorithms"]:
        print(f"{OURS} certifies a relative duality gap of {results['algorithms'][OURS]['gap']:.1e}.")
    for file in write_report(results, out):
        print(f"Written: {file}")
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
