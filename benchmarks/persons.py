"""New persons: the search that may align samples by group, the same without, and pyRiemann's recentring, on the same folds.

``python -m benchmarks.persons --data FOLDER`` writes ``persons.csv``, the accuracy of every held-out person, and ``persons.md``.
FOLDER has the sets of ``REAL`` as ``.npz`` files with X, y and groups; without it only simulated populations are run. Persons are
held out whole, in the same folds for everybody, and everybody is given all samples of a held-out person at once, without labels.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tracelearn import TensorClassifier
from tracelearn.datasets import make_persons

HERE = Path(__file__).parent

# How persons differ, fixed before any result was seen; all else is as ``make_persons`` has it.
POPULATIONS = {
    "mixing, little": {"mixing": 0.15, "gain": 0.0},
    "mixing": {"mixing": 0.3, "gain": 0.0},
    "mixing, much": {"mixing": 0.5, "gain": 0.0},
    "gain": {"mixing": 0.0, "gain": 0.5},
    "gain, much": {"mixing": 0.0, "gain": 1.0},
    "both, little": {"mixing": 0.15, "gain": 0.5},
    "both": {"mixing": 0.3, "gain": 0.5},
    "both, much": {"mixing": 0.5, "gain": 1.0},
    "neither": {"mixing": 0.0, "gain": 0.0},
    "neither, deflection alone": {"mixing": 0.0, "gain": 0.0, "power": 0.0, "deflection": 1.0},
    "label confounded": {"mixing": 0.15, "gain": 0.0, "confounded": True},
    "label confounded, much": {"mixing": 0.0, "gain": 0.0, "power": 2.0, "confounded": True},
}
REAL = ("smartwatch", "eeg_alcohol_trials")
ENTRIES = ("aligned or not", "not aligned", "pyRiemann")

Score = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, float]]


def ours(align):
    """Make the entry of a search: predictions of new persons, and the seconds of the fit."""

    def predictions(X, y, person, X_new, person_new):
        began = time.perf_counter()
        model = TensorClassifier(align=align).fit(X, y, groups=person)
        seconds = time.perf_counter() - began
        return model.predict(X_new, groups=person_new), seconds

    return predictions


def pyriemann(X, y, person, X_new, person_new):
    """Recentre the covariances of each person at their mean, then logistic regression in the tangent space."""
    from pyriemann.estimation import Covariances
    from pyriemann.tangentspace import TangentSpace
    from pyriemann.transfer import TLCenter, encode_domains

    def recentred(signals, labels, persons):
        C = Covariances("oas").transform(signals.reshape(len(signals), -1, signals.shape[-1]).astype(float))
        domains = np.array([f"person {number}" for number in persons])
        C, encoded = encode_domains(C, labels, domains)
        return TLCenter(domains[0]).fit_transform(C, encoded)

    began = time.perf_counter()
    model = make_pipeline(TangentSpace(), StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit(recentred(X, y, person), y)
    seconds = time.perf_counter() - began
    return model.predict(recentred(X_new, np.zeros(len(X_new), int), person_new)), seconds


SCORES: dict[str, Score] = {"aligned or not": ours("auto"), "not aligned": ours(None), "pyRiemann": pyriemann}


def run(name, draw, X, y, person, n_folds):
    """Hold persons out in folds; yield a row for each of them."""
    for train, test in GroupKFold(n_folds).split(X, y, person):
        right, seconds = {}, {}
        for entry in ENTRIES:
            labels, seconds[entry] = SCORES[entry](X[train], y[train], person[train], X[test], person[test])
            right[entry] = labels == y[test]
        for number in np.unique(person[test]):
            accuracies = [round(float(right[entry][person[test] == number].mean()), 4) for entry in ENTRIES]
            yield [name, draw, number, *accuracies, *(round(seconds[entry], 2) for entry in ENTRIES)]


def page(rows):
    """Write the table: mean accuracies over persons, and differences with their standard errors."""
    by_name = defaultdict(list)
    for row in rows:
        by_name[row[0]].append([float(value) for value in row[3:]])
    lines = [
        "| persons | held out | may align | not aligned | pyRiemann | gain by the question | ours - pyRiemann | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    means = []
    for name, values in by_name.items():
        table = np.array(values)
        n = len(table)
        means.append(table[:, :3].mean(axis=0))
        cells = [f"{mean:.3f}" for mean in means[-1]]
        for difference in (table[:, 0] - table[:, 1], table[:, 0] - table[:, 2]):
            cells.append(f"{difference.mean():+.3f} ± {difference.std(ddof=1) / np.sqrt(n):.3f}")
        lines.append(f"| {name} | {n} | {' | '.join(cells)} | × {table[:, 3].sum() / table[:, 4].sum():.2f} |")
    average = np.mean(means, axis=0)
    lines.append(
        f"| average of {len(means)} | | {' | '.join(f'{mean:.3f}' for mean in average)} "
        f"| {average[0] - average[1]:+.3f} | {average[0] - average[2]:+.3f} | |"
    )
    return "\n".join(lines) + "\n"


TEXT = """# New persons

Accuracy for persons that are held out whole, mean over persons; `python -m benchmarks.persons`. "May align" is `TensorClassifier`
with its defaults and `groups`, "not aligned" the same with `align=None`. pyRiemann recentres the covariances of each person
(`TLCenter`), with logistic regression in the tangent space. All are given the unlabelled trials of a held-out person together.
Differences are paired over persons, ± their standard error, in which persons count as independent. The last column is the time of
a search that asks the question, as a multiple of one that does not.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder of .npz files with X, y and groups")
    parser.add_argument("--draws", type=int, default=2, help="how often each population is simulated")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--trials", type=int, default=24, help="trials of each simulated person")
    parser.add_argument("--only", nargs="*", help="names of populations and sets; all by default")
    parser.add_argument("--out", type=Path, default=HERE / "persons.csv")
    options = parser.parse_args()
    rows: list[list] = []

    def record(new_rows) -> None:
        rows.extend(new_rows)
        with options.out.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["persons", "draw", "person", *ENTRIES, *(f"seconds {entry}" for entry in ENTRIES)])
            writer.writerows(rows)
        options.out.with_suffix(".md").write_text(TEXT + page(rows))

    warnings.simplefilter("ignore")
    for name in REAL if options.data else ():
        if options.only and name not in options.only:
            continue
        with np.load(options.data / f"{name}.npz") as held:
            record(run(name, 0, held["X"], held["y"], held["groups"], options.folds))
    for draw in range(options.draws):
        for name, parameters in POPULATIONS.items():
            if options.only and name not in options.only:
                continue
            X, y, person, *_ = make_persons(12, options.trials, random_state=draw, **parameters)
            record(run(name, draw, X, y, person, options.folds))


if __name__ == "__main__":
    main()
