"""
Views: what differs between two conditions, the mean or the power?
==================================================================

Two conditions may differ in the mean of the signals, in their power, or in both: must you know which? No. A view is a
transform of the samples before the linear model: none, whitening, or the covariance of the channels over time.
``TensorClassifier`` tries them and combines those that improve predictions in one convex problem. The data are
simulated, so we can check the result.
"""

# %%
# Epochs that differ in two ways
# ------------------------------
# Twenty-four sensors on a ring, one second at 100 Hz. In the condition "go" a small wave follows the cue, at 57 degrees
# and 0.3 s, the same in every epoch; and in the second half a rhythm at 20 Hz, at 172 degrees, is stronger, with
# another phase in every epoch. So the wave is in the mean of the epochs, and the rhythm is not. A strong rhythm at 10
# Hz says nothing.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeClassifierCV

from tracelearn import ModeWhitener, SecondOrder, TensorClassifier
from tracelearn.plotting import ViewsDisplay
from tracelearn.report import describe_views

rng = np.random.default_rng(0)
times, angles = np.arange(100) / 100, np.linspace(0.0, 2.0 * np.pi, 24, endpoint=False)
wave = np.exp(-0.5 * ((times - 0.3) / 0.06) ** 2)
wave_map, rhythm_map, other_map = (
    np.exp((np.cos(angles - place) - 1.0) / width) for place, width in ((1.0, 0.3), (3.0, 0.3), (4.5, 0.6))
)


def rhythm(n, frequency):
    """Draw n epochs of a rhythm with random phases, of unit power."""
    gain = np.exp(-0.5 * ((np.fft.rfftfreq(100, 0.01) - frequency) / 2.0) ** 2)
    found = np.fft.irfft(np.fft.rfft(rng.standard_normal((n, 100))) * gain, 100)
    return found / found.std()


n = 1300
go = rng.integers(2, size=n).astype(bool)
gain = 1.0 + go[:, None] * (times > 0.5) * 0.8
X = np.einsum("n,c,t->nct", 0.25 * go, wave_map, wave)
X += np.einsum("c,nt->nct", rhythm_map, gain * rhythm(n, 20.0))
X += np.einsum("c,nt->nct", 2.0 * other_map, rhythm(n, 10.0))
X += 0.6 * rng.standard_normal(X.shape)
label = np.where(go, "go", "base")
X, X_test, y, y_test = X[:300], X[300:], label[:300], label[300:]
print(X.shape)

# %%
# The same epochs through three views
# -----------------------------------
# The difference of the two conditions, averaged over the training epochs. As they are, the wave is hidden by the rhythms.
# Whitened, every mode is multiplied by its covariance to the power -1/4, and what is strong everywhere is damped. Second
# order is a symmetric matrix of sensors by sensors: the logarithm of the covariance over time, about its mean, with the
# means of the channels as one more row.

shown = {
    "raw": X,
    "whitened": ModeWhitener(power=-0.25).fit_transform(X),
    "second order": SecondOrder(scaling=True).fit_transform(X),
}
fig, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for ax, (name, Z) in zip(axes, shown.items(), strict=True):
    difference = Z[y == "go"].mean(axis=0) - Z[y == "base"].mean(axis=0)
    size = np.abs(difference).max()
    ax.imshow(difference, origin="lower", aspect="auto", cmap="RdBu_r", vmin=-size, vmax=size, interpolation="nearest")
    ax.set(title=name, xlabel="sensor" if name == "second order" else "time, 10 ms", ylabel="sensor")
plt.show()

# %%
# Each view alone, and all of them
# --------------------------------
# The default tries these three, whitening in full and of the sensors only, and second order with differences of the signals and
# in windows of time. Ridge regression on each view, in closed form, scores held-out epochs, and a combination of these
# scores with weights that are not negative shows what each view adds; a view without which the others do as well is
# dropped. ``view_shares_`` are the weights, and ``views_`` the fitted views of the final problem, by name.
# (With other draws of the folds the search may take whitened signals alone, which are nearly as good here.)

single = {"raw": None, "whitened": ModeWhitener(power=-0.25), "second_order": SecondOrder(scaling=True)}
alone = {name: TensorClassifier(views=[(name, view)]).fit(X, y) for name, view in single.items()}
for view, one in alone.items():
    print(f"{view:14}accuracy on new epochs {one.score(X_test, y_test):.3f}")
flat = RidgeClassifierCV(np.logspace(0, 6, 13)).fit(X.reshape(len(X), -1), y)
print(f"{'flat ridge':14}accuracy on new epochs {flat.score(X_test.reshape(len(X_test), -1), y_test):.3f}")
model = TensorClassifier(random_state=1).fit(X, y)
print(f"{'default':14}accuracy on new epochs {model.score(X_test, y_test):.3f}, duality gap {model.dual_gap_:.0e}\n")
for name, share in model.view_shares_.items():
    print(f"{name:30}share {share:.2f}")
print("chosen:", ", ".join(model.views_))

# %%
# Read each view
# --------------
# ``coef_by_view_`` and ``patterns_by_view_`` have the weights and patterns of each view of a model. For second order
# the weights are a symmetric matrix, and ``filters_by_view_`` decomposes it: its eigenvectors are spatial filters, each with
# its pattern over the sensors and, last, the mean. Weights and filters also cancel noise, so look at patterns, on the
# right, which show how the signals change with the score. First the three models of one view each.

names = {"mode_names": ("sensor", "time"), "coordinates": [np.arange(24), times], "units": [None, "s"]}
for one in alone.values():
    ViewsDisplay.from_estimator(one, n_sources=2, **names)
plt.show()

# %%
# The pattern of raw signals is mostly the rhythm at 10 Hz, which is misleading: a pattern is a covariance, and that of a
# strong signal with anything is large by chance. Whitened, the wave stands out. Second order has two sources: the first
# is about the mean of the sensors near the wave, the second about the power of those near the rhythm.
#
# Now the default. It chose second order in two windows, with differences in time as further channels, and the whitened
# signals. The last panel has the shares.

ViewsDisplay.from_estimator(model, n_sources=1, **names)
plt.show()

# %%
# The same in words, as in ``tracelearn inspect`` and on the page of a model. The whitened signals were part of the
# problem, but the trace norm set their weights to zero: the means in windows of time already contain the wave.

for view, found in describe_views(model).items():
    print(f"{view}: {found}")

# %%
# The simulated signals, and what was found
# -----------------------------------------
# The pattern of whitened signals is a tensor like a sample; its first pair of singular vectors is a topography and a
# time course. Of second order we draw the sensors of the first pattern of each window, and print how much of it is
# about the mean. A positive eigenvalue means that more of it makes "go" more likely. Dashed: the simulation.

U, _, V = np.linalg.svd(alone["whitened"].patterns_by_view_["whitened"][0], full_matrices=False)
sign = np.sign(U[np.argmax(np.abs(U[:, 0])), 0])
(found,) = model.filters_by_view_.values()
maps = []
for window, (values, patterns) in enumerate(zip(found.values[0], found.patterns[0], strict=True), start=1):
    maps.append(patterns[0, : len(angles)])
    like = [np.corrcoef(maps[-1], truth)[0, 1] for truth in (wave_map, rhythm_map)]
    mean = abs(patterns[0, -1]) / np.abs(maps[-1]).max()
    print(f"window {window}: eigenvalue {values[0]:.2f}, entry of the mean {mean:.2f} of the largest sensor,")
    print(f"    correlation with the wave {like[0]:.2f}, with the rhythm {like[1]:.2f}")

degrees = np.degrees(angles)
fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
axes[0].plot(degrees, sign * U[:, 0], color="#0072B2", label="found")
axes[0].plot(degrees, wave_map / np.linalg.norm(wave_map), "k--", label="simulated")
axes[0].set(title="whitened: topography", xlabel="sensor, degrees")
axes[0].legend(frameon=False)
axes[1].plot(times, sign * V[0], color="#0072B2")
axes[1].plot(times, wave / np.linalg.norm(wave), "k--")
axes[1].set(title="whitened: time course", xlabel="time, s")
for window, (channels, colour) in enumerate(zip(maps, ("#E69F00", "#009E73", "#CC79A7"), strict=False), start=1):
    axes[2].plot(degrees, channels / np.linalg.norm(channels), color=colour, label=f"window {window}")
axes[2].plot(degrees, wave_map / np.linalg.norm(wave_map), "k--")
axes[2].plot(degrees, rhythm_map / np.linalg.norm(rhythm_map), "k--")
axes[2].set(title="second order: first patterns", xlabel="sensor, degrees")
axes[2].legend(frameon=False)
plt.show()

# %%
# The answer
# ----------
# The model has found both. In the first half of an epoch its filter looks at 57 degrees, and the entry of the mean is
# larger than those of the sensors: "go" has another mean there, the wave. In the second half it looks at 172 degrees,
# and the mean hardly counts: "go" has more power there, the rhythm. The whitened signals show the same wave with its
# time course, but no model that is linear in the signals can see the rhythm, whose phase is another one in every epoch.
# So the default is better than raw, whitened or second order alone, and flat ridge regression is far behind.
#
# A share is what a view adds to the others, not what it can do: whitened signals alone do well here, and get a small
# share, and in the end no weights, because the means in windows of time contain much of the same. Shares are found with
# ridge regression, which does not use low rank: if a signal is a weak wave of low rank, ``views=ModeWhitener()`` can
# be better than the default, so try it too.
