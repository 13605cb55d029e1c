"""
New persons: learned from eleven, does it work on the twelfth?
==============================================================

A model of EEG that predicts new trials of its own persons well may fail on a person it has never seen: does aligning the
signals of each person help? Heads and caps differ in how sources reach the electrodes, and in gain. Trials of the new person
without labels show how, and ``TensorClassifier`` tries to take it away where ``fit`` is given ``groups``. The persons here are
simulated, so the sources are known. Persons are held out whole.
"""

# %%
# Twelve persons
# --------------
# Each has 40 trials of 8 channels × 50 times. In condition 1 one source is stronger, and another one has a small deflection. The
# sources do the same in all persons, but mix in each person's own way.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import LeaveOneGroupOut

from tracelearn import ModeWhitener, PerGroup, SecondOrder, TensorClassifier
from tracelearn.datasets import make_persons

warnings.simplefilter("ignore")  # where nothing is aligned, a search warns that it predicts hardly better than chance

X, y, person, topographies, _ = make_persons(12, 40, power=1.5, random_state=0)
print(X.shape)

# %%
# Before and after
# ----------------
# Both models see covariances of the channels. The second may also align: the channels of each person are whitened by the
# covariance of all trials of that person (Euclidean alignment). No labels are used, and held-out persons are aligned by their own
# trials, as a new person will be. This is *transductive*: the prediction for one trial depends on the other trials of the
# person that are passed with it.


def of_new_persons(X, y, person, align):
    """Hold out one person after the other; return the accuracy on each, and the last model."""
    accuracies = []
    for train, test in LeaveOneGroupOut().split(X, y, person):
        model = TensorClassifier(SecondOrder(), align=align).fit(X[train], y[train], groups=person[train])
        accuracies.append(model.score(X[test], y[test], groups=person[test]))
    return np.array(accuracies), model


before, plain = of_new_persons(X, y, person, align=None)
after, aligned = of_new_persons(X, y, person, align="auto")
flat = []
for train, test in LeaveOneGroupOut().split(X, y, person):
    ridge = RidgeClassifierCV(np.logspace(0, 6, 13)).fit(X[train].reshape(len(train), -1), y[train])
    flat.append(ridge.score(X[test].reshape(len(test), -1), y[test]))
print("aligned by", aligned.alignment_)
for name, accuracies in {"as they are": before, "aligned": after, "flat ridge": flat}.items():
    print(f"{name:12} {np.mean(accuracies):.3f} ± {np.std(accuracies, ddof=1) / 12**0.5:.3f}")

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
order = np.argsort(before)
ax.vlines(range(12), before[order], after[order], color="0.8")
ax.plot(before[order], "o", color="0.5", label="as they are")
ax.plot(after[order], "o", color="#0072B2", label="aligned")
ax.axhline(0.5, color="k", linestyle=":", linewidth=1)
ax.set(xlabel="person held out", ylabel="accuracy", ylim=(0.4, 1.0), xticks=range(12), xticklabels=order)
ax.legend(frameon=False, loc="lower right")
plt.show()

# %%
# Patterns before and after
# -------------------------
# Each column on the left is the topography of the stronger source in one person: no single map describes all of them. In the
# middle are the same topographies in aligned channels, where they agree. On the right is the first pattern of each model: of
# the aligned one it is the map that the persons share. The sign of a topography is arbitrary; here all are turned the same way.


def turned(maps):
    """Scale maps (..., channels) to length 1, with signs as in the first principal direction."""
    maps = maps / np.linalg.norm(maps, axis=-1, keepdims=True)
    main = np.linalg.svd(np.atleast_2d(maps), full_matrices=False)[2][0]
    return maps * np.sign(maps @ main)[..., None] * np.sign(main[np.argmax(np.abs(main))])


def first_pattern(model):
    """Return the pattern over channels of the spatial filter of the largest weight."""
    (filters,) = model.filters_by_view_.values()
    return filters.patterns[0, 0, : X.shape[1]]


whitener = PerGroup(ModeWhitener(shrinkage=0.0, time_axis=-1, unit_variance=True)).fit(X, groups=person)
truth = topographies[:, 0]
in_aligned_channels = []
for number, topography in enumerate(truth):
    values, vectors = np.linalg.eigh(whitener.transformers_[number].mode_covariances_[0])
    in_aligned_channels.append((vectors / np.sqrt(values)) @ vectors.T @ topography)
in_aligned_channels = np.array(in_aligned_channels)

figure, axes = plt.subplots(1, 4, figsize=(9, 3), width_ratios=[12, 2, 12, 2], sharey=True, layout="constrained")
panels = (
    ("source, as it is", turned(truth)),
    ("model", turned(first_pattern(plain))[None]),
    ("source, aligned", turned(in_aligned_channels)),
    ("model", turned(first_pattern(aligned))[None]),
)
for ax, (title, maps) in zip(axes, panels, strict=True):
    drawn = ax.imshow(maps.T, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    ax.set(title=title, xlabel="person" if len(maps) > 1 else "", xticks=range(12) if len(maps) > 1 else [])
axes[0].set_ylabel("channel")
figure.colorbar(drawn, ax=axes)
plt.show()

for name, model, maps in (("as they are", plain, truth), ("aligned", aligned, in_aligned_channels)):
    alike = np.abs(turned(maps) @ turned(first_pattern(model)))
    print(f"{name:12} pattern and source: cosine {alike.mean():.2f}, in the worst person {alike.min():.2f}")

# %%
# How many unlabelled trials are enough?
# --------------------------------------
# ``adapted(X)`` makes a model for one new person from some unlabelled trials. It takes no groups, predicts one trial at a
# time, and can be saved and exported. Of the 40 trials of a person 20 are drawn, five times; the model is adapted to some of
# these, and scored on the other 20.

rng = np.random.default_rng(0)
counts = [2, 3, 5, 8, 12, 20]
scores = np.zeros((12, len(counts)))
for number, (train, test) in enumerate(LeaveOneGroupOut().split(X, y, person)):
    model = TensorClassifier(SecondOrder()).fit(X[train], y[train], groups=person[train])
    for _ in range(5):
        unlabelled, new = np.split(rng.permutation(test), 2)
        scores[number] += [model.adapted(X[unlabelled[:n]]).score(X[new], y[new]) / 5 for n in counts]

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
error = scores.std(axis=0, ddof=1) / 12**0.5
ax.errorbar(counts, scores.mean(axis=0), error, marker="o", color="#0072B2", capsize=3, label="adapted")
ax.axhline(before.mean(), color="0.5", linestyle="--", label="not aligned")
ax.set(xlabel="unlabelled trials of the new person", ylabel="accuracy", ylim=(0.5, 0.9), xticks=counts)
ax.legend(frameon=False)
plt.show()

# %%
# When it harms
# -------------
# Alignment removes whatever the trials of a person have in common. If all of them are of one condition, as with patients and
# controls, that is the answer itself. If persons are alike and have few trials each, it only adds noise. "Always" aligns
# without asking; the default aligns only where that predicts held-out persons better.

populations = {
    "persons mix\nin their own way": {"power": 1.5},
    "persons are alike,\n8 trials each": {"n_trials": 8, "power": 1.5, "mixing": 0.0, "gain": 0.0},
    "each person has\none condition": {"power": 2.0, "mixing": 0.15, "gain": 0.0, "confounded": True},
}
results = {"never": [], "always": [], "where it helps (default)": []}
for options in populations.values():
    drawn = make_persons(**options, random_state=0)
    always = PerGroup(ModeWhitener(shrinkage=0.0, time_axis=-1, unit_variance=True))
    Z = always.fit_transform(drawn.X, groups=drawn.person)
    for name, samples, align in zip(results, (drawn.X, Z, drawn.X), (None, None, "auto"), strict=True):
        results[name].append(of_new_persons(samples, drawn.y, drawn.person, align)[0].mean())

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for place, (name, values) in enumerate(results.items()):
    bars = ax.bar(
        np.arange(3) + 0.27 * (place - 1), values, 0.25, color=["0.7", "#E69F00", "#0072B2"][place], label=name
    )
    ax.bar_label(bars, fmt="%.2f", fontsize="small")
ax.axhline(0.5, color="k", linestyle=":", linewidth=1)
ax.set(xticks=range(3), xticklabels=populations, ylabel="accuracy on new persons", ylim=(0, 1.05))
figure.legend(frameon=False, ncols=3, loc="outside upper center", title="aligned")
plt.show()

# %%
# The answer
# ----------
# Yes: new persons are predicted with an accuracy of 0.81 instead of 0.61, and flat ridge regression is near chance. The
# pattern of the aligned model is a map that all persons share. About eight unlabelled trials of a new person are enough here;
# two are worse than none, since the covariance of so few is mostly noise.
#
# Where each person has one condition, aligned trials say nothing of it: the model guesses the condition that more of the
# other persons have, which is the wrong one, as six persons have each. The default saw from the persons it was fitted to that
# aligning does not help. It needs at least three persons for that, with at least as many trials each as there are channels;
# ``align=None`` turns the question off.
