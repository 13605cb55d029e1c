"""
The path of alpha: how simple may the model be?
===============================================

How much accuracy does a simpler model cost? ``TraceNormRegressorCV`` keeps the models of all alphas that it tried, each fitted
to all samples and certified: their ranks, their scores and their predictions. Ridge regression on flattened samples is the
yardstick.
"""

# %%
# Weights of rank two
# -------------------
# Samples are 8 × 7 × 6, and the true weights have rank two in every mode.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV

from tracelearn import TraceNormRegressorCV
from tracelearn.datasets import make_low_rank_regression
from tracelearn.plotting import PathDisplay

X, y, W = make_low_rank_regression(700, (8, 7, 6), rank=2, random_state=0)
train, test = slice(0, 400), slice(400, 700)
model = TraceNormRegressorCV().fit(X[train], y[train])

# %%
# Held-out scores and ranks
# -------------------------
# On the left the mean score of five folds with its standard error, on the right the rank of the weights in each mode.

fig, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained")
PathDisplay.from_estimator(model, ax=axes[0])
PathDisplay.from_path(model, ax=axes[1])
plt.show()

# %%
# Any model of the path
# ---------------------
# ``path_`` is a dict of arrays, ``coef_path_`` has the weights, and ``predict`` takes any alpha of the grid.

path = model.path_
print("largest duality gap of the path:", f"{path['gap'].max():.0e}")
chosen = {
    "best held-out score": np.argmax(path["score"]),
    "one standard error": np.argmax(path["score"] >= model.best_score_ - model.best_score_se_),
    "ranks of the truth": np.argmax(path["ranks"].min(axis=1) >= 2),
}
for name, at in chosen.items():
    alpha = path["alpha"][at]
    error = np.mean((y[test] - model.predict(X[test], alpha=alpha)) ** 2) / np.var(y[test])
    distance = np.linalg.norm(model.coef_path_[at] - W) / np.linalg.norm(W)
    print(
        f"{name:20} alpha {alpha:5.1f}, ranks {path['ranks'][at]}, R² {1 - error:.3f}, off the truth by {distance:.2f}"
    )
flat = X.reshape(len(X), -1)
ridge = RidgeCV(np.logspace(-2, 5, 22)).fit(flat[train], y[train])
distance = np.linalg.norm(ridge.coef_.reshape(W.shape) - W) / np.linalg.norm(W)
print(f"{'flat ridge':42} R² {ridge.score(flat[test], y[test]):.3f}, off the truth by {distance:.2f}")

# %%
# The answer
# ----------
# One standard error costs little: ``one_standard_error=True`` chooses that alpha in ``fit``. Few components cost much, since the
# trace norm also shrinks those that it keeps: at the alpha that predicts best the ranks are full, of components that are mostly
# tiny. So choose alpha for predictions, and read how large components are, not how many (:doc:`plot_reading`).
