"""
Hyperspectral patches: does their shape help?
=============================================

Given ten labelled places for each crop, can the rest of an aerial image be labelled, and does it help that a sample is a
patch, row × column × band, and not a long vector? It helps against a vector. A still simpler model wins by far, and
the factors of the tensor model say which one.

The image is Indian Pines, from TensorLy (Baumgardner, Biehl and Landgrebe, 2015; CC BY 3.0).
"""

# sphinx_gallery_thumbnail_number = 2

# %%
# Patches that share no pixel
# ---------------------------
# Nine crops; 5 × 5 pixels around each place; bands averaged in fives. Patches that overlap would give the answer away, so
# test places lie at least five pixels from every training place.

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import binary_dilation
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV

from tracelearn import TraceNormClassifierCV
from tracelearn.plotting import ModeFactorsDisplay

try:
    from tensorly.datasets import load_indian_pines
except ImportError as error:
    raise SystemExit("This example needs TensorLy for its image: pip install tensorly.") from error

CROPS = {
    2: "corn, no till",
    3: "corn, minimal till",
    5: "pasture",
    6: "grass and trees",
    8: "hay",
    10: "soybean, no till",
    11: "soybean, minimal till",
    12: "soybean, clean",
    14: "woods",
}
REACH, PER_CROP = 2, 10

pines = load_indian_pines()
image, truth = pines["tensor"], pines["ticks"][0]
image = (image - image.mean(axis=(0, 1))) / image.std(axis=(0, 1))
image = image.reshape(145, 145, 40, 5).mean(axis=-1)

inside = np.zeros(truth.shape, dtype=bool)
inside[REACH:-REACH, REACH:-REACH] = True
places = np.argwhere(inside & np.isin(truth, list(CROPS)))
crop = truth[tuple(places.T)]


def patches(which):
    """Cut out the patches around some places."""
    return np.stack([image[r - REACH : r + REACH + 1, c - REACH : c + REACH + 1] for r, c in places[which]])


def split(seed):
    """Draw training places, and test places that share no pixel with them."""
    rng = np.random.default_rng(seed)
    train = np.concatenate([rng.choice(np.flatnonzero(crop == c), PER_CROP, replace=False) for c in CROPS])
    near = np.zeros(truth.shape, dtype=bool)
    near[tuple(places[train].T)] = True
    near = binary_dilation(near, np.ones((4 * REACH + 1, 4 * REACH + 1)))
    test = rng.choice(np.flatnonzero(~near[tuple(places.T)]), 2000, replace=False)
    return patches(train), crop[train], patches(test), crop[test]


# %%
# Four models
# -----------
# All choose their strength by cross-validation on the training places. The last model sees no shape at
# all: it averages the patch to one spectrum.

ridge_strengths = np.logspace(-4, 6, 21)
models = {
    "trace norm, patch": (TraceNormClassifierCV(alphas=12, tol=1e-3), lambda X: X),
    "ridge, flat patch": (RidgeClassifierCV(ridge_strengths), lambda X: X.reshape(len(X), -1)),
    "logistic, flat patch": (
        GridSearchCV(LogisticRegression(max_iter=2000, tol=1e-3), {"C": np.logspace(-4, 0, 5)}),
        lambda X: X.reshape(len(X), -1),
    ),
    "ridge, mean spectrum": (RidgeClassifierCV(ridge_strengths), lambda X: X.mean(axis=(1, 2))),
}
found = {name: [] for name in models}
seconds = dict.fromkeys(models, 0.0)
for seed in range(2):
    X, y, X_test, y_test = split(seed)
    for name, (model, view) in models.items():
        began = time.perf_counter()
        model.fit(view(X), y)
        seconds[name] += time.perf_counter() - began
        found[name].append(balanced_accuracy_score(y_test, model.predict(view(X_test))))
print(f"{len(y)} training patches of shape {X.shape[1:]}; mean over crops of the share that is right, two draws")
for name, scores in found.items():
    print(f"{name:22} {np.mean(scores):.3f}   {np.round(scores, 3)}   {seconds[name]:.1f} s")

# %%
# What the factors say
# --------------------
# Both spatial modes are read almost evenly: the first row factor and the first column factor have no sign change and little
# shape. The patch is averaged. What distinguishes crops is in the bands. (Wavelengths are nominal: the bands come without
# theirs, and are laid out evenly from 0.4 to 2.5 µm.)

model = models["trace norm, patch"][0]
ModeFactorsDisplay.from_estimator(
    model,
    n_components=2,
    mode_names=("row", "column", "wavelength"),
    coordinates=(range(-REACH, REACH + 1), range(-REACH, REACH + 1), np.linspace(0.4, 2.5, 40)),
    units=("pixel", "pixel", "µm"),
)
row, column = (model.mode_factors_[mode][0][:, 0] for mode in (0, 1))
even = np.full(5, 5**-0.5)
print(f"cosine with an even factor: rows {row @ even:.3f}, columns {column @ even:.3f}")

# %%
# The same, crop by crop:

fig, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
shares = {}
for k, (name, (fitted, view)) in enumerate(models.items()):
    colour = ("#0072B2", "#D55E00", "#E69F00", "#009E73")[k]
    hit = fitted.predict(view(X_test)) == y_test
    shares[name] = np.array([hit[y_test == c].mean() for c in CROPS])
    ax.barh(np.arange(9) + 0.2 * k, shares[name], 0.18, color=colour, label=name)
ax.set_yticks(np.arange(9) + 0.3, CROPS.values())
ax.invert_yaxis()
ax.set_xlabel("share of test patches that is right, last draw")
fig.legend(frameon=False, loc="outside upper center", ncols=4, fontsize="small")
plt.show()
for name in list(models)[1:]:
    better = np.sum(shares["trace norm, patch"] > shares[name])
    print(f"the trace norm is right more often than {name} for {better} of 9 crops")

# %%
# The answer
# ----------
# On the patches the trace norm is better than ridge on average, though not for every crop: it finds that neighbouring
# pixels carry the same information. If you know this beforehand, average them: ridge on 40 numbers is far better than
# all others, and fast. So use the tensor model to find out which modes have structure. Where a factor is flat, average
# over the mode and use the smaller model.
