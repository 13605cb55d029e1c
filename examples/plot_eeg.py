"""
Simulated EEG: does the model find the source that was put in?
==============================================================

If a source in the brain gets stronger in one of two conditions, do the factors of the model show where, when and at which
frequency? Yes, and here the truth is known: read them from ``patterns_``, not from the weights. The weights also cancel what
disturbs, so they look like the source only in part.
"""

# %%
# Sources, mixing, noise
# ----------------------
# Twenty-four sensors on a ring see four sources, each a rhythm with its own place and width, on pink noise. In the second
# condition the source at 12 Hz is stronger around 1.2 s. A stronger rhythm at 10 Hz lies beside it, overlaps it in space
# and frequency, and says nothing about the condition.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeClassifierCV

from tracelearn import TraceNormClassifierCV
from tracelearn.plotting import ModeFactorsDisplay

N_SENSORS, RATE = 24, 100
times = np.arange(200) / RATE
angles = np.linspace(0, 2 * np.pi, N_SENSORS, endpoint=False)
SOURCES = [(1.0, 0.25, 12, 1.5), (1.7, 0.5, 10, 1.0), (4.0, 0.3, 20, 3.0), (5.2, 0.6, 6, 1.0)]  # place, width, Hz, Hz
STRENGTH = np.array([1.0, 2.0, 1.0, 1.0])
mixing = np.stack([np.exp((np.cos(angles - place) - 1) / width) for place, width, _, _ in SOURCES], axis=1)
course = np.exp(-0.5 * ((times - 1.2) / 0.25) ** 2)


def coloured(white, gain):
    """Filter white noise by a gain over frequency, to unit variance."""
    shaped = np.fft.irfft(np.fft.rfft(white) * gain(np.fft.rfftfreq(len(times), 1 / RATE)), len(times))
    return shaped / shaped.std()


def rhythm(n_epochs, rng, centre, width):
    """Draw a rhythm about a frequency, whose strength varies from epoch to epoch."""
    signal = coloured(rng.standard_normal((n_epochs, len(times))), lambda f: np.exp(-0.5 * ((f - centre) / width) ** 2))
    return signal * (1 + 0.5 * rng.standard_normal((n_epochs, 1)))


def record(n_epochs, rng):
    """Return what the sensors see, and the condition of each epoch."""
    condition = rng.integers(2, size=n_epochs)
    sources = np.stack([rhythm(n_epochs, rng, centre, width) for _, _, centre, width in SOURCES], axis=1)
    sources *= STRENGTH[:, None]
    sources[:, 0] *= np.sqrt(1 + 8 * condition[:, None] * course)
    noise = coloured(rng.standard_normal((n_epochs, N_SENSORS, len(times))), lambda f: np.maximum(f, 0.5) ** -0.5)
    return np.einsum("ck,nkt->nct", mixing, sources) + 0.7 * noise, condition


# %%
# Samples are sensor × time × frequency
# -------------------------------------
# Power in windows of 0.4 s. Powers of independent sources add, so that the source adds a tensor of rank one: the square of
# its topography, its time course and its spectrum, both as the windows see them.

WINDOW = 40
starts = np.arange(0, len(times) - WINDOW + 1, 10)
taper = np.hanning(WINDOW)
frequencies = np.fft.rfftfreq(WINDOW, 1 / RATE)
kept = (frequencies >= 2.5) & (frequencies <= 30)


def power(epochs):
    """Turn (..., time) into (..., window, frequency)."""
    pieces = np.stack([epochs[..., start : start + WINDOW] for start in starts], axis=-2)
    return np.abs(np.fft.rfft(pieces * taper)[..., kept]) ** 2


rng = np.random.default_rng(0)
epochs, y = record(400, rng)
epochs_test, y_test = record(2000, rng)
X, X_test = power(epochs[:240]), power(epochs_test)
y = y[:240]
scale = X.std()
X, X_test = X / scale, X_test / scale

where = mixing[:, 0] ** 2
when = np.array([course[start : start + WINDOW] @ taper**2 for start in starts])
pitch = power(rhythm(4000, rng, 12, 1.5)).mean(axis=(0, 1))
truth = [factor / np.linalg.norm(factor) for factor in (where, when, pitch)]
print(X.shape)

# %%
# Weights, patterns, truth
# ------------------------
# The leading factor of each mode, and its correlation with the truth. ``patterns_`` are a tensor like the weights, so the
# same decomposition serves for both. Flat ridge and the plain difference of the two means are judged in the same way.

model = TraceNormClassifierCV(alphas=15, mode_weights=None, tol=1e-3).fit(X, y)
flat, flat_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
ridge = RidgeClassifierCV(np.logspace(0, 8, 17)).fit(flat, y)
centred = flat - flat.mean(axis=0)
ridge_pattern = (centred @ ridge.coef_.ravel() @ centred).reshape(X.shape[1:])


def leading(tensor):
    """Return the first factor of every mode, its largest entry positive."""
    factors = []
    for mode, size in enumerate(tensor.shape):
        factor = np.linalg.svd(np.moveaxis(tensor, mode, 0).reshape(size, -1), full_matrices=False)[0][:, 0]
        factors.append(factor * np.sign(factor[np.argmax(np.abs(factor))]))
    return factors


tensors = {
    "trace norm, weights": model.coef_[0],
    "trace norm, patterns_": model.patterns_[0],
    "ridge, weights": ridge.coef_.reshape(X.shape[1:]),
    "ridge, patterns": ridge_pattern,
    "difference of means": X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0),
}
whole = np.einsum("c,t,f->ctf", *truth)
print(f"accuracy: trace norm {model.score(X_test, y_test):.3f}, flat ridge {ridge.score(flat_test, y_test):.3f}")
print(f"ranks of the weights {model.mode_ranks_}, duality gap {model.dual_gap_:.0e}\n")
print(f"{'correlation with truth':24}{'sensor':>8}{'time':>8}{'freq.':>8}{'all':>8}")
for name, tensor in tensors.items():
    found = [abs(np.corrcoef(a, b)[0, 1]) for a, b in zip(leading(tensor), truth, strict=True)]
    found.append(np.corrcoef(tensor.ravel(), whole.ravel())[0, 1])
    print(f"{name:24}" + "".join(f"{value:8.3f}" for value in found))

# %%
# Dashed: what was put in.

axis_values = (np.degrees(angles), times[starts + WINDOW // 2], frequencies[kept])
labels = ("sensor, degrees on the ring", "time, s", "frequency, Hz")
fig, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
shown = {"weights": ("#D55E00", leading(model.coef_[0])), "patterns_": ("#0072B2", leading(model.patterns_[0]))}
for mode, ax in enumerate(axes):
    for name, (colour, factors) in shown.items():
        ax.plot(axis_values[mode], factors[mode], color=colour, label=name)
    ax.plot(axis_values[mode], truth[mode], color="black", linestyle="--", label="truth")
    ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.set_xlabel(labels[mode])
axes[1].legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
plt.show()

# %%
# All factors of the weights, with the share of each: the second one, which goes against the first, is the rhythm at 10 Hz
# that is subtracted.

ModeFactorsDisplay.from_estimator(
    model,
    n_components=2,
    mode_names=("sensor", "time", "frequency"),
    coordinates=axis_values,
    units=("degrees", "s", "Hz"),
)
plt.show()

# %%
# The answer
# ----------
# The patterns of the trace norm are closest to the truth, and its accuracy is slightly above that of ridge. The gain over
# ridge is small here: with power features and 240 epochs, patterns of ridge, and even the difference of the two means, show
# the source nearly as well. What must not be done with either model is to read the weights as a map of the brain.
