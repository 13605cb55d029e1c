"""
Digits as matrices: is low rank worth it for small images?
==========================================================

Is an 8 × 8 image of a digit better treated as a matrix than as 64 numbers? No: with few training images logistic
regression on the numbers is more accurate, and ridge is as accurate and much faster. What the matrix model gives
is fewer directions to look at.
"""

# sphinx_gallery_thumbnail_number = 2

# %%
# Accuracy
# --------
# Ten digits, a few training images of each, 700 images to test on, three draws; bars are standard errors over draws.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit

from tracelearn import TraceNormClassifier, TraceNormClassifierCV
from tracelearn.plotting import ModeSpectrumDisplay, WeightsDisplay

digits = load_digits()
X, y = digits.images / 16, digits.target
flat = X.reshape(len(X), -1)
models = {
    "trace norm": (TraceNormClassifierCV(alphas=15, tol=1e-3), X),
    "flat ridge": (RidgeClassifierCV(np.logspace(-4, 4, 17)), flat),
    "flat logistic": (GridSearchCV(LogisticRegression(max_iter=500), {"C": np.logspace(-2, 3, 6)}, cv=3), flat),
}
sizes = (50, 100, 200)
score = {name: np.zeros((len(sizes), 3)) for name in models}
seconds = dict.fromkeys(models, 0.0)
for row, size in enumerate(sizes):
    draws = StratifiedShuffleSplit(3, train_size=size, test_size=700, random_state=0).split(X, y)
    for column, (train, test) in enumerate(draws):
        for name, (model, samples) in models.items():
            began = time.perf_counter()
            model.fit(samples[train], y[train])
            seconds[name] += time.perf_counter() - began
            score[name][row, column] = model.score(samples[test], y[test])

print(f"{'training images':16}" + "".join(f"{size:>8}" for size in sizes) + "   seconds in all")
for name, values in score.items():
    print(f"{name:16}" + "".join(f"{value:8.3f}" for value in values.mean(axis=1)) + f"{seconds[name]:10.1f}")

fig, ax = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
looks = (
    ("#0072B2", "o", 0.97),
    ("#D55E00", "s", 1.0),
    ("#009E73", "D", 1.03),
)  # side by side, so that no bar hides another
for (name, values), (colour, marker, aside) in zip(score.items(), looks, strict=True):
    error = values.std(axis=1, ddof=1) / 3**0.5
    ax.errorbar(aside * np.array(sizes), values.mean(axis=1), error, color=colour, marker=marker, capsize=3, label=name)
ax.set_xscale("log")
ax.set_xticks(sizes, [str(size) for size in sizes])
ax.minorticks_off()
ax.set_xlabel("training images")
ax.set_ylabel("accuracy")
ax.legend(frameon=False)
plt.show()

# %%
# What low rank gives
# -------------------
# A larger alpha than the best one lowers the ranks of the weights: a matrix of rank two then separates a three from an
# eight. The loss in accuracy is printed below. Red is positive, blue negative, each image on its own scale.

pair = np.isin(y, (3, 8))
X_pair, y_pair = X[pair], y[pair]
half = len(y_pair) // 2
model = TraceNormClassifier(alpha=0.1).fit(X_pair[:half], y_pair[:half])
ridge = RidgeClassifierCV(np.logspace(-4, 4, 17)).fit(X_pair[:half].reshape(half, -1), y_pair[:half])
accuracy = model.score(X_pair[half:], y_pair[half:])
print(f"three or eight: ranks {model.mode_ranks_}, accuracy {accuracy:.3f};", end=" ")
print(f"flat ridge {ridge.score(X_pair[half:].reshape(len(X_pair) - half, -1), y_pair[half:]):.3f}")

fig, axes = plt.subplots(1, 3, figsize=(9.6, 3), layout="constrained")
names = ("row", "column")
WeightsDisplay.from_estimator(model, mode_names=names, ax=axes[0])
WeightsDisplay.from_estimator(model, kind="patterns", mode_names=names, ax=axes[1])
for ax in axes[:2]:
    ax.invert_yaxis()  # images begin at the top
difference = X_pair[y_pair == 8].mean(axis=0) - X_pair[y_pair == 3].mean(axis=0)
limit = np.abs(difference).max()
axes[2].imshow(difference, cmap="RdBu_r", vmin=-limit, vmax=limit)
axes[2].set_xlabel("column")
titles = ("weights: what is multiplied", "patterns: what an eight has more", "mean eight minus mean three")
for ax, title in zip(axes, titles, strict=True):
    ax.set_aspect("equal")
    ax.set_title(title, fontsize="medium")
    ax.label_outer()
plt.show()

# %%
# The spectrum of each mode shows where the rank comes from:

ModeSpectrumDisplay.from_estimator(model, mode_names=names)
plt.show()

# %%
# The answer
# ----------
# For images of 64 pixels use logistic regression, or ridge. Strokes run in every direction, and a matrix of low rank is
# a sum of a few products of rows and columns.
