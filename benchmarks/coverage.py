"""How often intervals of ``bootstrap`` cover the truth, and bands all of it at once, in simulated studies.

``python -m benchmarks.coverage`` prints one table, some minutes on one thread; ``--studies 100`` is quicker, names of designs
choose some of them. The truth of a score is its mean over the studies themselves, each judged by 20,000 new samples; that of
weights their mean over the studies; that of patterns the model of 200,000 samples.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from tracelearn import TraceNormClassifier, TraceNormRegressor
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.inference import bootstrap

LEVEL = 0.9


@dataclass(frozen=True)
class Design:
    """Studies of one kind: samples of normal numbers, alone or in groups that share a part, and a target of rank one."""

    name: str
    n: int
    signal: float
    classes: bool = False
    n_groups: int = 0
    shared: float = 1.0  # the size of what a group shares, where that of a sample alone is 1
    shape: tuple[int, int] = (4, 3)
    scoring: str | None = None

    @property
    def model(self) -> Any:
        """The model of all studies."""
        alpha = 0.15 if self.shape != (4, 3) else 0.1 if self.classes else 0.3
        return (TraceNormClassifier if self.classes else TraceNormRegressor)(alpha, tol=1e-4)

    def draw(self, rng: np.random.Generator, n: int | None = None) -> tuple[Any, Any, Any]:
        """Draw samples, targets and groups."""
        n = n or self.n
        weights = np.outer(
            np.eye(self.shape[0])[0] - 0.5 * np.eye(self.shape[0])[1], np.eye(self.shape[1])[:2].T @ [1.0, 0.5]
        )
        weights *= self.signal / np.linalg.norm(weights)
        X, noise, groups = rng.standard_normal((n, *self.shape)), rng.standard_normal(n), None
        if self.n_groups:
            groups = np.arange(n) // (self.n // self.n_groups)
            X += self.shared * rng.standard_normal((n, *self.shape))[groups]
            noise += self.shared * rng.standard_normal(n)[groups]
        y = np.tensordot(X, weights, 2) + noise
        return X, (y > 0).astype(int) if self.classes else y, groups

    def score(self, model: Any, X: Any, y: Any) -> float:
        """Score a model on new samples."""
        from sklearn.metrics import get_scorer

        return float(model.score(X, y) if self.scoring is None else get_scorer(self.scoring)(model, X, y))


DESIGNS = [
    Design("40 samples, weak", 40, 0.7),
    Design("100 samples, strong", 100, 2.0),
    Design("100 samples, none", 100, 0.0),
    Design("160 samples", 160, 1.25),
    Design("300 samples, weak", 300, 0.5),
    Design("60 samples of 80 entries", 60, 1.5, shape=(10, 8)),
    Design("60 samples of 80 entries, strong", 60, 20.0, shape=(10, 8)),
    Design("40 in two classes, strong", 40, 3.0, classes=True),
    Design("100 in two classes, weak", 100, 0.7, classes=True),
    Design("100 in two classes, none", 100, 0.0, classes=True),
    Design("100 in two classes, ROC", 100, 1.0, classes=True, scoring="roc_auc"),
    Design("300 in two classes, strong", 300, 2.0, classes=True),
    Design("8 groups of 5", 40, 1.0, n_groups=8),
    Design("20 groups of 4", 80, 1.0, n_groups=20),
    Design("40 groups of 4, much shared", 160, 1.0, n_groups=40, shared=2.0),
    Design("8 groups of 6, two classes", 48, 1.5, classes=True, n_groups=8),
    Design("20 groups of 4, two classes", 80, 1.0, classes=True, n_groups=20),
]


def coverage(
    design: Design, n_studies: int, n_bootstraps: int = 200, seed: int = 0, **options: Any
) -> dict[str, float]:
    """Find how often intervals of 90 % cover: scores, entries, the largest of them, and bands all entries."""
    rng = np.random.default_rng(seed)
    new = design.draw(rng, 20_000)[:2]
    endless = clone(design.model).fit(*design.draw(rng, 200_000)[:2])
    studies, scores = [], []
    for _ in range(n_studies):
        X, y, groups = design.draw(rng)
        if design.classes and min(np.bincount(y, minlength=2)) < 2:
            continue
        options_of_study = {
            "groups": groups,
            "n_bootstraps": n_bootstraps,
            "level": LEVEL,
            "random_state": int(rng.integers(1 << 30)),
        }
        study = bootstrap(design.model, X, y, scoring=design.scoring, **(options_of_study | options))
        studies.append(study)
        scores.append(design.score(clone(design.model).fit(X, y), *new))
    truths = {"coefs": np.mean([study.coef for study in studies], axis=0), "patterns": endless.patterns_}
    coverages = {"score": np.mean([_inside(study.interval("scores"), np.mean(scores)) for study in studies])}
    for what, truth in truths.items():
        inside = np.array([_inside(study.interval(what), truth) for study in studies]).reshape(len(studies), -1)
        bands = np.array([_inside(study.interval(what, simultaneous=True), truth) for study in studies])
        largest = int(np.argmax(np.abs(truth)))
        coverages |= {what: inside.mean(), f"largest {what}": inside[:, largest].mean()}
        coverages[f"all {what}"] = bands.reshape(len(studies), -1).all(axis=1).mean()
    coverages["width"] = float(np.median([np.ptp(study.interval("scores")) for study in studies]))
    return {name: float(value) for name, value in coverages.items()}


def _inside(ends: Any, truth: Any) -> Any:
    return (ends[0] <= truth) & (truth <= ends[1])


def rows(designs: Sequence[Design], n_studies: int, n_bootstraps: int) -> Iterator[str]:
    """Write a row for each design."""
    names = ("score", "coefs", "largest coefs", "all coefs", "patterns", "largest patterns", "all patterns")
    yield f"| {n_studies} studies of | {' | '.join(names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for design in designs:
        coverages = coverage(design, n_studies, n_bootstraps)
        yield f"| {design.name} | {' | '.join(f'{coverages[name]:.0%}' for name in names)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("designs", nargs="*", help="Names of designs, or parts of them; all by default.")
    parser.add_argument("--studies", type=int, default=400)
    parser.add_argument("--bootstraps", type=int, default=200)
    arguments = parser.parse_args()
    chosen = [
        design for design in DESIGNS if not arguments.designs or any(name in design.name for name in arguments.designs)
    ]
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroWeightsWarning)  # studies without a signal
        for row in rows(chosen, arguments.studies, arguments.bootstraps):
            print(row, flush=True)


if __name__ == "__main__":
    main()
