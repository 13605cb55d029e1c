"""Ask every question, print the table, write results.json, results.md and growth.png."""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks import machine, questions, readme
from benchmarks.harness import Row, markdown

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"only these: {', '.join(questions.names())}")
    parser.add_argument("--quick", action="store_true", help="smaller problems and fewer repetitions, to try it out")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to; by default this one")
    parser.add_argument("--readme", action="store_true", help="copy the table into docs/benchmarks.md too")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    where, began = machine.describe(), time.perf_counter()
    rows: list[Row] = []
    for name in questions.names():
        if options.questions and not any(wanted in name for wanted in options.questions):
            continue
        at = time.perf_counter()
        # A process for each: no question inherits the memory or the thread pools of another.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            rows_of_question = pool.submit(questions.ask, name, options.quick).result()
        rows += rows_of_question
        print(f"{name}: {time.perf_counter() - at:.0f} s", flush=True)
        print(markdown(rows_of_question), flush=True)
        if name.endswith("growth"):
            questions.find(name).figure(rows_of_question, str(options.out / "growth.png"))
    write(options.out, rows, where, options.quick, time.perf_counter() - began)
    if options.readme:
        readme.copy(options.out)


def write(out: Path, rows: list[Row], where: dict, quick: bool, took: float) -> None:
    """Write the results for machines and for people."""
    judged = [row for row in rows if row.met is not None]
    result = {"quick": quick, "seconds": round(took, 1), "machine": where, "rows": [row.as_dict() for row in rows]}
    (out / "results.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    text = markdown(rows) + f"\n{sum(map(bool, (row.met for row in judged)))} of {len(judged)} aims met. "
    text += "Ratios of medians, both sides measured in turns in one run. " + machine.sentence(where) + "\n"
    if quick:
        text += "\nA quick run, to try it out: smaller problems and few repetitions.\n"
    (out / "results.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
