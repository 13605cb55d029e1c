"""
Smartwatch motion: which exercise does a person never seen do?
==============================================================

Can exercises be told apart from four seconds of a watch, on people the model has never met, and does it help to keep
sensor × axis × frequency? It helps a little once the samples are spectra, and hurts while they are raw signals, whose phase
is arbitrary. Which of the two the samples are matters far more than which model it is.

The recordings are those of seglearn: seven shoulder exercises, ten people, accelerometer and gyroscope at 50 Hz.
"""

# %%
# Windows as tensors
# ------------------
# A window of 200 readings is a 2 × 3 × time tensor; its spectrum to 10 Hz a 2 × 3 × 40 tensor.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import GroupKFold

from tracelearn import TraceNormClassifierCV
from tracelearn.plotting import ModeFactorsDisplay

try:
    from seglearn.datasets import load_watch
except ImportError as error:
    raise SystemExit("This example needs seglearn for its recordings: pip install seglearn.") from error

LENGTH = 200
watch = load_watch()
windows, exercise, person = [], [], []
for recording, label, who in zip(watch["X"], watch["y"], watch["subject"], strict=True):
    for start in range(0, len(recording) - LENGTH + 1, LENGTH):
        windows.append(recording[start : start + LENGTH].T.reshape(2, 3, LENGTH))
        exercise.append(watch["y_labels"][label])
        person.append(who)
windows, exercise, person = np.array(windows), np.array(exercise), np.array(person)

signals = windows.reshape(-1, 2, 3, 25, 8).mean(axis=-1)
centred = windows - windows.mean(axis=-1, keepdims=True)
spectra = np.log(np.abs(np.fft.rfft(centred * np.hanning(LENGTH)))[..., 1:41] + 0.1)
frequencies = np.fft.rfftfreq(LENGTH, 1 / 50)[1:41]

# %%
# People held out
# ---------------
# Two of ten people are held out at a time, and the strength of the trace norm is chosen with ``GroupKFold`` as well, on the
# other eight. Every entry is scaled by its spread over the training windows.


def compare(samples):
    """Return the accuracy of both models on each group of people."""
    scores = {"trace norm": [], "flat ridge": []}
    for train, test in GroupKFold(5).split(samples, exercise, person):
        centre, spread = samples[train].mean(axis=0), samples[train].std(axis=0)
        X = (samples - centre) / spread
        ours = TraceNormClassifierCV(alphas=15, mode_weights=None, cv=GroupKFold(4), tol=1e-3)
        ours.fit(X[train], exercise[train], groups=person[train])
        scores["trace norm"].append(ours.score(X[test], exercise[test]))
        flat = X.reshape(len(X), -1)
        ridge = RidgeClassifierCV(np.logspace(-1, 6, 15)).fit(flat[train], exercise[train])
        scores["flat ridge"].append(ridge.score(flat[test], exercise[test]))
    return scores


fig, axes = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
for ax, (title, samples) in zip(axes, {"signals": signals, "spectra": spectra}.items(), strict=True):
    began = time.perf_counter()
    scores = compare(samples)
    print(f"{title}, {samples.shape[1:]}, {len(samples)} windows, {time.perf_counter() - began:.0f} s")
    for name, values in scores.items():
        error = np.std(values, ddof=1) / len(values) ** 0.5
        print(f"    {name:12} {np.mean(values):.3f} ± {error:.3f}")
    difference = np.subtract(scores["trace norm"], scores["flat ridge"])
    print(f"    difference   {difference.mean():+.3f}, better in {np.sum(difference > 0)} of 5 groups of people")
    for values in zip(*scores.values(), strict=True):
        ax.plot([0, 1], values, color="0.6", marker="o", markerfacecolor="#0072B2", markeredgecolor="none")
    ax.set_xticks([0, 1], scores)
    ax.set_xlim(-0.3, 1.3)
    ax.set_title(title)
axes[0].set_ylabel("accuracy on two people held out")
plt.show()

# %%
# What it reads
# -------------
# The first factors of a model of all windows: accelerometer and gyroscope are read apart, and in frequency the movement
# itself, below 1 Hz, against the rest.

scaled = (spectra - spectra.mean(axis=0)) / spectra.std(axis=0)
model = TraceNormClassifierCV(alphas=15, mode_weights=None, cv=GroupKFold(5), tol=1e-3)
model.fit(scaled, exercise, groups=person)
ModeFactorsDisplay.from_estimator(
    model,
    n_components=2,
    mode_names=("sensor", "axis", "frequency"),
    coordinates=(["accel.", "gyro."], ["x", "y", "z"], frequencies),
    units=(None, None, "Hz"),
)
plt.show()

# %%
# The answer
# ----------
# On spectra the trace norm is a little better than flat ridge. On raw signals flat ridge is better: where an exercise begins
# within a window is chance, and shifted copies of a movement have no low rank in time.
