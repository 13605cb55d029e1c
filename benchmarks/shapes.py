"""The default search on made samples with the shapes of public sets: time, memory and held-out accuracy, with simple rivals.

``python -m benchmarks.shapes [NAME ...] [--rivals ridge logistic riemann rocket]`` prints one table. Every run is a process of
its own with one thread, and ends after ``--limit`` seconds of the processor, that of a rival after ``--rival-limit``. "ridge"
and "log_loss" (``LogisticRegressionCV(Cs=10, cv=5)``) take samples flattened and standardised; "riemann" is the tangent space
of covariances (pyriemann) with logistic regression and "rocket" MiniRocket (aeon) with ridge regression, for matrices alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter, gaussian_filter1d

Made = tuple[np.ndarray, np.ndarray]  # samples and targets


# --- samples that are made ---------------------------------------------------------------------------------------------


def waveforms(rng: Any, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Smooth series: every class has a waveform, which comes early or late, fast or slow; some end early, in zeros."""
    channels, times = shape
    grid, X = np.linspace(0, 1, times), np.empty((len(y), channels, times))
    knots = gaussian_filter1d(rng.normal(size=(int(y.max()) + 2, channels, 200)), 12, axis=-1)
    knots /= knots.std(axis=-1, keepdims=True)
    knots = knots[-1] + 0.7 * min(1.0, 3 / channels) * knots[:-1]  # what classes have in common, and their own
    for i, label in enumerate(y):
        at = np.clip(grid * rng.uniform(0.85, 1.15) + rng.uniform(-0.08, 0.08), 0, 1)
        signal = [np.interp(at, np.linspace(0, 1, 200), row) for row in knots[label]]
        X[i] = rng.uniform(0.7, 1.4) * np.array(signal) + rng.normal(size=(channels, 1))
        X[i] += rng.normal(size=(channels, times))
    if len(y) % 2:  # padded
        X[::3, :, -times // 5 :] = 0.0
    return X


def oscillations(rng: Any, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sources of random phase, mixed into channels, in volts: classes differ in the power of few of them."""
    channels, times = shape
    sources = min(channels, 12)
    frequencies = rng.uniform(0.02, 0.2, sources)
    mixing = rng.normal(size=(channels, sources)) / np.sqrt(sources)
    power = np.exp(0.3 * rng.normal(size=(int(y.max()) + 1, sources)) * (np.arange(sources) < max(2, sources // 3)))
    X = np.empty((len(y), channels, times))
    for i, label in enumerate(y):
        phases = 2 * np.pi * (np.outer(frequencies, np.arange(times)) + rng.uniform(size=(sources, 1)))
        drift = gaussian_filter1d(rng.normal(size=(sources, times)), 5, axis=-1) * 3
        rhythms = power[label, :, None] * np.exp(0.3 * rng.normal(size=(sources, 1)))
        X[i] = mixing @ (rhythms * (np.sin(phases) + drift)) + 0.5 * rng.normal(size=(channels, times))
    return 1e-6 * (X + 2.0 * rng.normal(size=(len(y), channels, 1)))


def responses(rng: Any, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Evoked responses: a weak pattern of low rank for each class, in noise that is smooth over time."""
    channels, times = shape
    K = int(y.max()) + 1
    where = rng.normal(size=(K, channels)) / np.sqrt(channels)
    when = gaussian_filter1d(rng.normal(size=(K, times)), max(1, times // 25), axis=-1)
    when /= np.sqrt((when**2).sum(axis=-1, keepdims=True))
    X = gaussian_filter1d(rng.normal(size=(len(y), channels, times)), 2, axis=-1)
    for i, label in enumerate(y):
        X[i] += 2.0 * np.outer(where[label], when[label])
    return X


def images(rng: Any, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Integer images: a drawing for each class, moved by some pixels, on a background of zeros."""
    K = int(y.max()) + 1
    inner = tuple(slice(size // 7, size - size // 7) for size in shape)
    drawings = np.zeros((K, 3, *shape))
    drawings[(slice(None), slice(None), *inner)] = rng.normal(size=(K, 3, *shape))[(slice(None), slice(None), *inner)]
    drawings = np.stack([[gaussian_filter(stroke, 1.5) for stroke in row] for row in drawings])
    X = np.empty((len(y), *shape))
    for i, label in enumerate(y):
        moved = np.roll(drawings[label, rng.integers(3)], rng.integers(-2, 3, len(shape)), range(len(shape)))
        X[i] = moved * rng.uniform(0.7, 1.3) + 0.3 * gaussian_filter(rng.normal(size=shape), 1)
    scale = 3 * drawings.std()
    return np.clip(np.round(255 * X / scale), 0, 255)


def patches(rng: Any, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Spectra of small patches: positive, of about one shape, brighter or darker."""
    K, bands = int(y.max()) + 1, shape[-1]
    common = 1000 * (1.5 + np.cumsum(gaussian_filter1d(rng.normal(size=bands), 4)) / bands**0.5)
    spectra = gaussian_filter1d(rng.normal(size=(K, bands)), 3, axis=-1)
    bright = np.exp(0.3 * rng.normal(size=(len(y), 1, 1, 1)) + 0.1 * rng.normal(size=(len(y), *shape[:2], 1)))
    noise = gaussian_filter1d(rng.normal(size=(len(y), *shape)), 1, axis=-1)
    return np.clip(bright * (common * (1 + 0.03 * spectra[y][:, None, None] + 0.06 * noise)), 1.0, None)


def volumes(rng: Any, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Smooth volumes with a blob that is a little larger in one class."""
    X = gaussian_filter(rng.normal(size=(len(y), *shape)), (0, 1.5, 1.5, 1.5))
    bumps = [np.exp(-0.5 * ((np.arange(size) - size / 3) / 3) ** 2) for size in shape]
    bump = bumps[0][:, None, None] * bumps[1][:, None] * bumps[2]
    return 1e6 * (X / X.std() + 0.35 * y[:, None, None, None] * bump)


# --- the sets ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Samples of one shape, and how they are made; without classes the targets are numbers."""

    n: int
    shape: tuple[int, ...]
    classes: int
    kind: Callable[..., np.ndarray] | None = None
    groups: int = 0
    rare: bool = False  # whether some classes have few samples

    def made(self) -> tuple[Made, Made, np.ndarray | None]:
        """Draw training and test samples, and the groups of the first."""
        rng = np.random.default_rng(0)
        more = int(np.clip(self.n, 60, 500)) if self.n * np.prod(self.shape) < 2e7 else 60
        total = self.n + more
        if self.kind is None:
            X, y = numbers(rng, total, self.shape)
        else:
            share = np.linspace(1.0, 0.4, self.classes)
            y = np.concatenate([np.arange(self.classes)] * 2 + [rng.choice(self.classes, total, p=share / share.sum())])
            if self.rare:
                y = np.where((y >= self.classes - 2) & (rng.uniform(size=len(y)) < 0.95), 0, y)
            y = y[:total]
            X = self.kind(rng, y, self.shape)
        groups = None
        if self.groups:
            groups = np.arange(self.n) % self.groups
            group_of_sample = np.concatenate([groups, self.groups + np.arange(more) % 2])
            scales = np.exp(0.3 * rng.normal(size=self.groups + 2))[group_of_sample]
            offsets = rng.normal(size=(self.groups + 2, self.shape[0]))[group_of_sample] * X.std()
            X = X * scales[:, None, None] + offsets[:, :, None]
        return (X[: self.n], y[: self.n]), (X[self.n :], y[self.n :]), groups


def numbers(rng: Any, n: int, shape: tuple[int, ...]) -> Made:
    """Smooth samples, and a number that few smooth directions of them make, in noise."""
    latent = rng.normal(size=(n, 8)) * np.geomspace(3, 0.3, 8)
    forms = gaussian_filter(rng.normal(size=(8, *shape)), (0, *(max(1, size // 20) for size in shape)))
    X = np.tensordot(latent, forms / forms.std(), 1) + 0.1 * rng.normal(size=(n, *shape))
    y = latent @ rng.normal(size=8) + rng.normal(size=n)
    return X, y


CASES = {
    "handwriting": Case(1000, (3, 152), 26, waveforms),
    "gestures": Case(440, (3, 315), 8, waveforms),
    "hands": Case(360, (24, 51), 6, waveforms),
    "cricket": Case(180, (6, 1197), 12, waveforms),
    "heart beats": Case(204, (61, 405), 2, responses),
    "slow potentials": Case(561, (6, 896), 2, oscillations),
    "slow potentials 2": Case(268, (6, 896), 2, responses),
    "ethanol": Case(524, (3, 1751), 4, waveforms),
    "atrial": Case(30, (2, 640), 3, oscillations),
    "jumps": Case(27, (4, 2500), 3, oscillations),
    "directions": Case(160, (10, 400), 4, oscillations),
    "fingers": Case(316, (28, 50), 2, responses),
    "traffic": Case(440, (963, 144), 7, waveforms),
    "imagery": Case(378, (64, 3000), 2, oscillations),
    "phonemes 1345": Case(100, (1345, 270), 5, waveforms),
    "worms": Case(259, (6, 17984), 5, oscillations),
    "faces in MEG": Case(5890, (144, 62), 2, responses),
    "rare classes": Case(4925, (6, 36), 14, waveforms, rare=True),
    "pens": Case(10_992, (2, 8), 10, waveforms),
    "characters": Case(2858, (3, 182), 20, waveforms),
    "phonemes": Case(6668, (11, 217), 39, waveforms),
    "sessions": Case(288, (22, 1000), 4, oscillations, groups=6),
    "images": Case(5000, (28, 28), 10, images),
    "patches": Case(2000, (5, 5, 100), 16, patches),
    "volumes": Case(200, (30, 30, 30), 2, volumes),
    "spectra": Case(80, (700,), 0),
    "demand": Case(500, (12, 24, 7), 0),
}


# --- runs ----------------------------------------------------------------------------------------------------------------


def fitted(model: str, X: np.ndarray, y: np.ndarray, groups: Any) -> Any:
    """Fit ours or a rival; return what predicts."""
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeClassifierCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    numbers = y.dtype.kind == "f"
    if model == "ours":
        from tracelearn import TensorClassifier, TensorRegressor

        return (TensorRegressor() if numbers else TensorClassifier()).fit(X, y, groups=groups)
    flat = FunctionTransformer(lambda X: X.reshape(len(X), -1))
    alphas = np.logspace(-2, 6, 13)
    if model == "ridge":
        last = RidgeCV(alphas) if numbers else RidgeClassifierCV(alphas)
        return make_pipeline(flat, StandardScaler(), last).fit(X, y)
    if numbers:
        return None
    if model == "log_loss":
        return make_pipeline(flat, StandardScaler(), LogisticRegressionCV(Cs=10, cv=5)).fit(X, y)
    if X.ndim != 3:
        return None
    if model == "riemann":
        from pyriemann.estimation import Covariances
        from pyriemann.tangentspace import TangentSpace

        steps = [Covariances("oas"), TangentSpace(), StandardScaler(), LogisticRegression()]
        scale = FunctionTransformer(lambda X: X / scale_of(X))
        return make_pipeline(scale, *steps).fit(X, y)
    from aeon.transformations.collection.convolution_based import MiniRocket

    return make_pipeline(MiniRocket(random_state=0), StandardScaler(), RidgeClassifierCV(alphas)).fit(X, y)


def scale_of(X: np.ndarray) -> float:
    """The size of all numbers: covariances of volts are too small for some."""
    return 10.0 ** round(float(np.log10(np.abs(X).mean() or 1.0)))


def run(name: str, model: str, limit: int) -> dict[str, Any]:
    """Fit one model to one case, in this process."""
    (X, y), (test, target), groups = CASES[name].made()
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (spent + limit, spent + limit + 5))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.process_time()
        fitted_model = fitted(model, X, y, groups)
        took = time.process_time() - began
        if fitted_model is None:
            return {}
        began = time.process_time()
        score = float(fitted_model.score(test, target))
        applied = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    said = sorted({f"{one.category.__name__}: {str(one.message)[:150]}" for one in caught})
    chance = float(np.max(np.bincount(target)) / len(target)) if target.dtype.kind != "f" else 0.0
    return {
        "seconds": took,
        "score": score,
        "peak": peak,
        "data": X.nbytes / 2**30,
        "predict": applied,
        "chance": chance,
        "view": " + ".join(getattr(fitted_model, "views_", {})),
        "warnings": said,
    }


def measured(name: str, model: str, limit: int) -> dict[str, Any]:
    """Fit one model to one case, in a process of its own with one thread."""
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    command = [sys.executable, "-m", "benchmarks.shapes", name, "--run", model, "--limit", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | threads, check=False)
    if done.returncode == 0:
        outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return outcome
    ended = done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)  # by the limit
    return {"failed": f"> {limit} s" if ended else (done.stderr.splitlines() or ["?"])[-1]}


def cell(outcome: dict[str, Any]) -> str:
    """Write one result of a rival: score and seconds."""
    if not outcome:
        return ""
    return str(outcome["failed"]) if "failed" in outcome else f"{outcome['score']:.3f} ({outcome['seconds']:.1f} s)"


def row(name: str, rivals: list[str], limit: int, rival_limit: int) -> str:
    """Write the results of one case."""
    case = CASES[name]
    outcome = measured(name, "ours", limit)
    sizes = f"{case.n} of {'×'.join(map(str, case.shape))}" + (f", {case.classes}" if case.classes else "")
    if "failed" in outcome:
        cells = [outcome["failed"], "", "", ""]
    else:
        cells = [
            f"{outcome['score']:.3f}",
            f"{outcome['seconds']:.1f}",
            f"{outcome['data']:.2f} → {outcome['peak']:.1f}",
            outcome["view"],
        ]
    for line in outcome.get("warnings", []):
        print(f"{name}: {line}", file=sys.stderr)
    return (
        "| " + " | ".join([name, sizes, *cells, *(cell(measured(name, rival, rival_limit)) for rival in rivals)]) + " |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*CASES, []], help="cases; by default all")
    parser.add_argument("--rivals", nargs="*", default=["ridge", "logistic", "riemann", "rocket"])
    parser.add_argument("--limit", type=int, default=240, help="seconds of the processor, for each run")
    parser.add_argument("--rival-limit", type=int, default=60, help="the same for each run of a rival")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run(options.names[0], options.run, options.limit)))
        return
    head = ["case", "samples, classes", "ours", "s", "GiB", "view", *options.rivals]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    for name in options.names or list(CASES):
        print(row(name, options.rivals, options.limit, options.rival_limit), flush=True)


if __name__ == "__main__":
    main()
