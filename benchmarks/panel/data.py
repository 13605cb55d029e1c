"""Real data sets whose samples are tensors, each loaded from a package that carries it, or from a folder of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tracelearn.features import find_time_axis

# Sets that were looked at while the defaults were chosen; all others are looked at only at the end.
DEVELOPMENT = (
    "smartwatch",
    "eeg_alcohol_trials",
    "bci_finger",
    "uea_epilepsy",
    "eeg_spatial",
    "lfw_subset",
    "faces",
    "hiv_serology",
)


@dataclass(frozen=True, eq=False)
class DataSet:
    """Samples, labels or targets, and groups that must be held out together.

    ``signal`` says that the last mode is time and the others are channels: only then do covariances make sense.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray | None = None
    signal: bool = False

    @property
    def classes(self) -> int | None:
        """Number of classes; None where the target is a number."""
        return None if self.y.dtype.kind == "f" else len(np.unique(self.y))

    def equals(self, other: DataSet) -> bool:
        """Tell whether another set has the same samples, perhaps in other modes and rounded to single precision."""
        alike = self.X.size == other.X.size and np.array_equal(self.y, other.y)
        return alike and np.allclose(self.X.ravel(), other.X.ravel(), rtol=1e-5, equal_nan=True)

    def sentence(self) -> str:
        shape = "×".join(map(str, self.X.shape[1:]))
        kind = "a number" if self.classes is None else f"{self.classes} classes"
        held = "" if self.groups is None else f", {len(np.unique(self.groups))} groups held out"
        return f"{len(self.X)} of {shape}, {kind}{held}"


def indian_pines() -> DataSet:
    """Hyperspectral 5×5 patches that share no pixel, named after the crop that at least 20 of their pixels show."""
    from tensorly.datasets import load_indian_pines

    found = load_indian_pines()
    cube, crops = np.asarray(found["tensor"], dtype=float), np.asarray(found["ticks"][0], dtype=int)
    samples, labels = [], []
    for row in range(0, cube.shape[0] - 4, 5):
        for column in range(0, cube.shape[1] - 4, 5):
            counts = np.bincount(crops[row : row + 5, column : column + 5].ravel(), minlength=17)
            crop = int(np.argmax(counts[1:])) + 1  # 0 is land that nobody has labelled
            if counts[crop] >= 20:
                samples.append(cube[row : row + 5, column : column + 5])
                labels.append(crop)
    X, y = np.array(samples), np.array(labels)
    common = np.isin(y, np.flatnonzero(np.bincount(y) >= 10))  # two for each of five folds
    return DataSet("Indian Pines patches", X[common], y[common])


def smartwatch() -> DataSet:
    """Four windows of each recording of a shoulder exercise, sensor × axis × time; whole subjects are held out."""
    from seglearn.datasets import load_watch

    found, length = load_watch(), 128
    samples, labels, subjects = [], [], []
    for recording, exercise, subject in zip(found["X"], found["y"], found["subject"], strict=True):
        for start in np.linspace(0, len(recording) - length, 4).astype(int):
            samples.append(recording[start : start + length].T.reshape(2, 3, length))
            labels.append(exercise)
            subjects.append(subject)
    return DataSet("smartwatch", np.array(samples), np.array(labels), np.array(subjects), signal=True)


def basic_motions() -> DataSet:
    """Accelerometer and gyroscope on a wrist, sensor × axis × time."""
    from aeon.datasets import load_basic_motions

    X, y = load_basic_motions()
    return DataSet("basic motions", X.reshape(len(X), 2, 3, -1), np.unique(y, return_inverse=True)[1], signal=True)


def japanese_vowels() -> DataSet:
    """Twelve coefficients of a spoken vowel over time, resampled to 20 points; nine speakers to tell apart."""
    from aeon.datasets import load_japanese_vowels

    X, y = load_japanese_vowels()
    at = np.linspace(0, 1, 20)
    same = [[np.interp(at, np.linspace(0, 1, len(row)), row) for row in sample] for sample in X]
    return DataSet("Japanese vowels", np.array(same), np.unique(y, return_inverse=True)[1], signal=True)


def digits() -> DataSet:
    """Handwritten digits, 8×8."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return DataSet("digits", found.images, found.target)


def faces() -> DataSet:
    """Faces and other pictures, 25×25; our search takes a side of them for time, so others may."""
    from skimage.data import lfw_subset

    X = np.asarray(lfw_subset(), dtype=float)
    return DataSet("faces", X, np.repeat([1, 0], 100), signal=True)


def serology() -> DataSet:
    """Antibodies against SARS-CoV-2, antigen × receptor; four courses of the disease."""
    from tensorly.datasets import load_covid19_serology

    found = load_covid19_serology()
    X, labels = np.asarray(found["tensor"], dtype=float), np.array(found["ticks"][0])
    names, counts = np.unique(labels, return_counts=True)
    known = np.isin(labels, names[counts >= 10]) & np.isfinite(X).all(axis=(1, 2))
    return DataSet("serology", X[known], np.unique(labels[known], return_inverse=True)[1])


def _series(name: str, loader: str) -> Callable[[], DataSet]:
    """Series of one channel that come with aeon; the number of waveforms of ``Convolutions`` was chosen on three of them."""

    def load() -> DataSet:
        import aeon.datasets

        X, y = getattr(aeon.datasets, f"load_{loader}")()
        return DataSet(name, np.asarray(X, dtype=float), np.unique(y, return_inverse=True)[1], signal=True)

    return load


LOADERS: tuple[Callable[[], DataSet], ...] = (
    basic_motions,
    serology,
    faces,
    indian_pines,
    japanese_vowels,
    smartwatch,
    digits,
    _series("gun or point", "gunpoint"),
    _series("arrow heads", "arrow_head"),
    _series("leaves", "osuleaf"),
    _series("Italian power demand", "italy_power_demand"),
    _series("appliances", "acsf1"),
)


def from_folder(folder: Path) -> Iterator[DataSet]:
    """Read every ``NAME.npz`` with ``X``, ``y`` and perhaps ``groups`` and ``signal``."""
    for file in sorted(folder.glob("*.npz")):
        with np.load(file, allow_pickle=False) as held:
            y = held["y"]
            yield DataSet(
                file.stem,
                held["X"].astype(float),
                y.astype(float) if y.dtype.kind == "f" else np.unique(y, return_inverse=True)[1],
                held["groups"] if "groups" in held else None,
                bool(held["signal"]) if "signal" in held else find_time_axis(held["X"].shape[1:], -1)[0] is not None,
            )
