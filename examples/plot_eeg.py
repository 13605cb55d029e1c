"""
Simulated EEG: does the model find the simulated source?
========================================================

If a source in the brain gets stronger in one of two conditions, does the model show where, when and at which frequency?
Yes, and here the truth is known. Look at ``patterns_``, not at the weights: weights also cancel noise, so they resemble
the source only in part. If you need only the map, a difference of means is as good.
"""

# %%
# Sources, mixing, noise
# ----------------------
# Twenty-four sensors on a ring see four sources, each a rhythm with its own place and width, on pink noise. In the
# condition "move" the source at 12 Hz is stronger around 1.2 s. A stronger rhythm at 10 Hz lies next to it, overlaps it in
# space and frequency, and says nothing about the condition. Samples are power in windows of 0.4 s: sensor × time ×
# frequency. Powers of independent sources add, so that "move" adds a tensor of rank one.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.model_selection import GridSearchCV

from tracelearn import TraceNormClassifierCV
from tracelearn.datasets import make_epochs
from tracelearn.plotting import ModeFactorsDisplay

epochs = make_epochs(2240, random_state=0)
move = epochs.y == "move"
X, y, X_test, y_test = epochs.X[:240], move[:240], epochs.X[240:], move[240:]
print(X.shape)

# %%
# Three models
# ------------
# Power has a long tail, so the logistic loss is asked for.

model = TraceNormClassifierCV(loss="log_loss", tol=1e-3).fit(X, y)
flat, flat_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
ridge = RidgeClassifierCV(np.logspace(0, 8, 17)).fit(flat, y)
logistic = GridSearchCV(LogisticRegression(max_iter=1000), {"C": np.logspace(-4, -1, 4)}).fit(flat, y)
print(f"low rank                  accuracy {model.score(X_test, y_test):.3f}, ranks {model.mode_ranks_}")
for name, one in {"flat ridge": ridge, "flat logistic regression": logistic}.items():
    print(f"{name:26}accuracy {one.score(flat_test, y_test):.3f}")

# %%
# Weights, patterns, truth
# ------------------------
# Correlation of each tensor with the truth, as a whole and for its leading factor in each mode. ``mode_factors_`` has
# the factors of the weights. ``patterns_`` has the same shape and is decomposed in the same way, as are the weights and
# patterns of ridge, and the difference of the two means.


def leading(tensor):
    """Return the first factor of every mode, its largest entry positive."""
    factors = []
    for mode, size in enumerate(tensor.shape):
        factor = np.linalg.svd(np.moveaxis(tensor, mode, 0).reshape(size, -1), full_matrices=False)[0][:, 0]
        factors.append(factor * np.sign(factor[np.argmax(np.abs(factor))]))
    return factors


centred = flat - flat.mean(axis=0)
tensors = {
    "low rank, weights": model.coef_[0],
    "low rank, patterns_": model.patterns_[0],
    "ridge, weights": ridge.coef_.reshape(X.shape[1:]),
    "ridge, patterns": (centred @ ridge.coef_.ravel() @ centred).reshape(X.shape[1:]),
    "difference of means": X[y].mean(axis=0) - X[~y].mean(axis=0),
}
whole = np.einsum("c,t,f->ctf", *epochs.truth)
print(f"{'correlation with truth':24}{'sensor':>8}{'time':>8}{'freq.':>8}{'all':>8}")
for name, tensor in tensors.items():
    found = [abs(np.corrcoef(a, b)[0, 1]) for a, b in zip(leading(tensor), epochs.truth, strict=True)]
    found.append(np.corrcoef(tensor.ravel(), whole.ravel())[0, 1])
    print(f"{name:24}" + "".join(f"{value:8.3f}" for value in found))
own = [factors[:, 0] for factors, _ in model.mode_factors_]
same = all(np.allclose(abs(a), abs(b), atol=1e-6) for a, b in zip(own, leading(model.coef_[0]), strict=True))
print("\nmode_factors_ begin with the factors of the first line:", same)

# %%
# Dashed: the simulated source.

coordinates = (epochs.sensors, epochs.times, epochs.frequencies)
labels = ("sensor, degrees on the ring", "time, s", "frequency, Hz")
fig, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
shown = {"weights": ("#D55E00", leading(model.coef_[0])), "patterns_": ("#0072B2", leading(model.patterns_[0]))}
for mode, ax in enumerate(axes):
    for name, (colour, factors) in shown.items():
        ax.plot(coordinates[mode], factors[mode], color=colour, label=name)
    ax.plot(coordinates[mode], epochs.truth[mode], color="black", linestyle="--", label="truth")
    ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.set_xlabel(labels[mode])
axes[1].legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
plt.show()

# %%
# The first two factors of the weights in each mode, with their shares. The second factors cancel noise.

ModeFactorsDisplay.from_estimator(
    model,
    n_components=2,
    mode_names=("sensor", "time", "frequency"),
    coordinates=coordinates,
    units=("degrees", "s", "Hz"),
)
plt.show()

# %%
# The answer
# ----------
# The patterns show the source, and the low-rank model predicts the conditions better than both flat models. If you need
# only the map, the patterns of ridge and the difference of the two means are as close to the truth. Do not interpret
# the weights of any model as a map of the brain.
