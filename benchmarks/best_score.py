"""How far ``best_score_`` of a search is from the score on new samples, on simulated data of noise and of signal.

``python -m benchmarks.best_score`` prints one table, some ten minutes on one thread; ``--sets 40`` is quicker, names of designs
choose some of them. Each model is judged by new samples, of new groups where there are groups. New samples of noise are told
apart in half of all cases, whatever the model.
"""

from __future__ import annotations

import argparse
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter1d
from sklearn.metrics import r2_score
from threadpoolctl import threadpool_limits

from tracelearn import TensorClassifier, TensorRegressor

SHAPE = (4, 20)
GROUP = 5  # samples in a group
NEW = 3000  # new samples


@dataclass(frozen=True)
class Design:
    """Data sets of one kind: smooth series of some channels, with a signal in their means, their variances or none."""

    name: str
    n: int
    means: float = 0.0
    variances: float = 0.0
    numbers: bool = False
    shared: float | None = None  # in groups of one label: the size of what a group shares, where that of a sample is 1

    @property
    def is_noise(self) -> bool:
        """Whether samples say nothing about their labels."""
        return self.means == self.variances == 0.0

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Any, Any, Any]:
        """Draw samples, targets and groups."""
        bump = np.outer([1.0, -1.0, 0.5, 0.0], np.exp(-(((np.arange(SHAPE[1]) - 8.0) / 3.0) ** 2)))
        bump /= np.linalg.norm(bump)
        X = _smooth(rng.standard_normal((n, *SHAPE)))
        if self.numbers:
            return X, self.means * np.tensordot(X, bump, 2) + rng.standard_normal(n), None
        groups = None
        if self.shared is None:
            y = rng.permutation(np.arange(n) % 2)
        else:
            groups = np.arange(n) // GROUP
            y = rng.permutation(np.arange(n // GROUP) % 2)[groups]
            X += self.shared * _smooth(rng.standard_normal((n // GROUP, *SHAPE)))[groups]
        X += self.means * (y - 0.5)[:, None, None] * bump
        bursts = self.variances * y[:, None] * rng.standard_normal((n, SHAPE[1]))
        return X + np.array([1.0, -1.0, 0.5, 0.0])[:, None] * bursts[:, None, :], y, groups


DESIGNS = [
    Design("noise, 60", 60),
    Design("noise, 150", 150),
    Design("noise, 12 groups of one label", 60, shared=0.0),
    Design("noise, 12 groups that differ", 60, shared=1.0),
    Design("means, 60", 60, means=2.4),
    Design("means, 12 groups of one label", 60, means=2.4, shared=0.0),
    Design("means, 12 groups that differ", 60, means=3.0, shared=1.0),
    Design("variances, 60", 60, variances=0.9),
    Design("numbers, noise, 60", 60, numbers=True),
    Design("numbers, weak, 60", 60, means=0.4, numbers=True),
    Design("numbers, 60", 60, means=1.0, numbers=True),
]


def _smooth(X: Any) -> Any:
    """Smooth series, without a change of their variance."""
    window = gaussian_filter1d(np.eye(SHAPE[1])[0], 0.7, mode="wrap")
    return gaussian_filter1d(X, 0.7, axis=-1, mode="wrap") / np.linalg.norm(window)


def study(design: Design, seed: int) -> tuple[float, float, float, float]:
    """Search on one data set: ``raw_score_``, ``best_score_``, its standard error, and the score on new samples."""
    rng = np.random.default_rng([seed, design.n, round(1e3 * (design.means + 10.0 * design.variances))])
    X, y, groups = design.draw(rng, design.n)
    model = (TensorRegressor if design.numbers else TensorClassifier)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of noise there is much to warn of
        model.fit(X, y, groups=groups)
    if design.is_noise and not design.numbers:
        truth = 0.5
    else:
        X, y, groups = design.draw(rng, NEW)
        predicted = model.predict(X) if model.alignment_ is None else model.predict(X, groups=groups)
        truth = r2_score(y, predicted) if design.numbers else np.mean(predicted == y)
    return model.raw_score_, model.best_score_, model.best_score_se_, float(truth)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("designs", nargs="*", help="Names of designs, or parts of them; all by default.")
    parser.add_argument("--sets", type=int, default=100, help="Data sets of each design.")
    arguments = parser.parse_args()
    print("| data sets | new samples | raw_score_ | best_score_ | within two standard errors |\n|---|---|---|---|---|")
    with threadpool_limits(1):
        for design in DESIGNS:
            if arguments.designs and not any(name in design.name for name in arguments.designs):
                continue
            raw, best, error, truth = np.array([study(design, seed) for seed in range(arguments.sets)]).T
            cells = [f"{design.name}", f"{truth.mean():.3f}"]
            for off in (raw - truth, best - truth):
                cells.append(f"{off.mean():+.3f} ± {off.std(ddof=1) / math.sqrt(len(off)):.3f}")
            cells.append(f"{np.mean(np.abs(best - truth) <= 2.0 * error):.0%}")
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
