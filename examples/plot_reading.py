"""
Reading a model: ranks, factors, patterns
=========================================

How do you interpret a fitted model? This example explains five things, with simulated data whose true weights are
known: the path, the ranks, the factors, their signs and the patterns.
"""

# sphinx_gallery_thumbnail_number = 5

# %%
# A model to read
# ---------------
# Epochs of 6 channels × 20 times × 5 frequencies, smooth along every mode. Two rank-one terms make the target.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV

from tracelearn import TraceNormRegressor, TraceNormRegressorCV
from tracelearn.plotting import ModeFactorsDisplay, ModeSpectrumDisplay, PathDisplay, WeightsDisplay

rng = np.random.default_rng(0)
SHAPE = (6, 20, 5)
NAMES = {"mode_names": ("channel", "time", "frequency")}
AXES = {
    "coordinates": (["F3", "F4", "C3", "C4", "P3", "P4"], np.linspace(0, 0.95, 20), [4, 8, 12, 20, 30]),
    "units": (None, "s", "Hz"),
}
noise = rng.standard_normal((600, *SHAPE))
for mode, size in enumerate(SHAPE):
    near = np.linalg.cholesky(0.7 ** np.abs(np.subtract.outer(np.arange(size), np.arange(size))))
    noise = np.moveaxis(np.tensordot(noise, near, (mode + 1, 1)), -1, mode + 1)
X = noise
times = AXES["coordinates"][1]
early = np.einsum("i,j,k", [0, 0, 1, -1, 0, 0], np.exp(-0.5 * ((times - 0.3) / 0.08) ** 2), [0, 0.2, 1, 0.2, 0])
late = np.einsum("i,j,k", [0, 0, 0, 0, 1, 1], np.exp(-0.5 * ((times - 0.7) / 0.1) ** 2), [1, 0.5, 0, 0, 0])
W = early + 0.6 * late
signal = np.tensordot(X, W, 3)
y = signal / signal.std() + 0.7 * rng.standard_normal(600)
train, test = slice(0, 400), slice(400, 600)

# %%
# The path: what alpha does
# -------------------------
# On the left the rank in each mode as alpha falls; on the right the score on held-out folds, with the alpha that was
# chosen. Cross-validation minimises error, not rank: the chosen model has more components than the truth, most of them
# tiny.

cv = TraceNormRegressorCV().fit(X[train], y[train])
fig, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained")
PathDisplay.from_path(cv, **NAMES, ax=axes[0])
PathDisplay.from_estimator(cv, ax=axes[1])
plt.show()

# %%
# ``one_standard_error=True`` takes the largest alpha that is as good within the noise of the folds, which is simpler to
# read. Flat ridge is the yardstick for both.

simple = TraceNormRegressorCV(one_standard_error=True).fit(X[train], y[train])
flat = X.reshape(len(X), -1)
ridge = RidgeCV(np.logspace(-2, 5, 22)).fit(flat[train], y[train])
for name, model in {"lowest error": cv, "one standard error": simple}.items():
    print(f"{name:20} alpha {model.alpha_:.3f}, ranks {model.mode_ranks_}, R² {model.score(X[test], y[test]):.3f}")
print(f"{'flat ridge':20} {'no ranks':>28}  R² {ridge.score(flat[test], y[test]):.3f}")

# %%
# Ranks: read the spectrum, not the number
# ----------------------------------------
# ``mode_ranks_`` counts singular values that are not zero. A spectrum shows how many matter: here two.

model = simple
ModeSpectrumDisplay.from_estimator(model, **NAMES)
plt.show()

# %%
# Factors
# -------
# ``mode_factors_`` has a pair for each mode: orthonormal columns, and the singular values that say how much of the weights
# each column carries. The percentages are shares of the squared weights.

ModeFactorsDisplay.from_estimator(model, n_components=2, **NAMES, **AXES)
plt.show()
for name, (factors, values) in zip(NAMES["mode_names"], model.mode_factors_, strict=True):
    print(f"{name:10} factors {factors.shape}, first singular values {np.round(values[:3], 3)}")

# %%
# Sign and scale
# --------------
# A factor and its negative describe the same weights: of each, the one is given whose entry of largest size is positive.
# So the sign of a factor by itself means nothing, and factors of different modes with the same number belong together only
# where their singular values are alike. What has a sign that means something is their combination, the core: this
# identity rebuilds the weights.

core = model.coef_
for mode, (factors, _) in enumerate(model.mode_factors_):
    core = np.moveaxis(np.tensordot(core, factors, (mode, 0)), -1, mode)
rebuilt = core
for mode, (factors, _) in enumerate(model.mode_factors_):
    rebuilt = np.moveaxis(np.tensordot(rebuilt, factors, (mode, 1)), -1, mode)
print(f"rebuilt to {np.abs(rebuilt - model.coef_).max():.0e}; core of the first two of each mode:")
print(np.round(core[:2, :2, :2], 3))

# %%
# Patterns
# --------
# Weights are what is multiplied with a sample; ``patterns_`` are Cov(X) W, what a sample looks like when the prediction is
# high, in units of X times units of y. Channels are correlated here, so the pattern is broader than the weights, and has
# entries where the weights have none. For the question "where is the signal" show patterns, for "what does the model
# compute" weights.

for kind in ("weights", "patterns"):
    WeightsDisplay.from_estimator(model, kind=kind, modes=(0, 1), slices=[1, 2], **NAMES, **AXES)
plt.show()

# %%
# More of either
# --------------
# A larger alpha shrinks both. The patterns keep their shape and lose their size, as the predictions do: compare shapes
# between models, not sizes.

for alpha in (0.5 * simple.alpha_, simple.alpha_, 2 * simple.alpha_):
    other = TraceNormRegressor(alpha=alpha).fit(X[train], y[train])
    likeness = np.corrcoef(other.patterns_.ravel(), model.patterns_.ravel())[0, 1]
    print(f"alpha {alpha:.3f}: correlation of patterns {likeness:.3f}, size {np.linalg.norm(other.patterns_):.2f}")
