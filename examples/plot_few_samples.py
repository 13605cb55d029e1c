"""
Few samples: how fast does the error fall?
==========================================

How many samples does the trace norm save against ridge? Where the true weights have low rank, ridge needs several times as
many for the same error. Where they have no low rank, nothing is saved, and ridge is the better choice: as good, and faster.
"""

# %%
# Two truths
# ----------
# Samples are 8 × 8 × 8, 512 numbers each. Once the target comes from weights of rank 1 in every mode, once from weights
# without structure. Noise is half as strong as the signal, so that no model explains more than 80 % of the variance.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV

from tracelearn import TraceNormRegressorCV
from tracelearn.datasets import make_low_rank_regression

SHAPE, SIZES, DRAWS = (8, 8, 8), (50, 100, 200, 400, 800, 1600), 2
strengths = np.logspace(-2, 5, 22)


def draw(rank, seed):
    """Draw samples, targets and true weights; rank None is weights without structure."""
    X, y, W = make_low_rank_regression(SIZES[-1], SHAPE, rank=1, random_state=seed)
    if rank is None:
        rng = np.random.default_rng(100 + seed)
        W = rng.standard_normal(SHAPE)
        signal = np.tensordot(X, W, 3)
        y = signal + 0.5 * signal.std() * rng.standard_normal(len(X))
    return X, y, W


def errors(rank):
    """Return how far the weights are from the truth, as a share of it: models × sizes, mean over draws."""
    found = np.zeros((2, len(SIZES)))
    for seed in range(DRAWS):
        X, y, W = draw(rank, seed)
        for k, size in enumerate(SIZES):
            ours = TraceNormRegressorCV(alphas=10, cv=3, tol=1e-3).fit(X[:size], y[:size])
            ridge = RidgeCV(strengths).fit(X[:size].reshape(size, -1), y[:size])
            for row, coef in enumerate((ours.coef_, ridge.coef_.reshape(SHAPE))):
                found[row, k] += np.linalg.norm(coef - W) / np.linalg.norm(W) / DRAWS
    return found


began = time.perf_counter()
results = {"weights of rank 1": errors(1), "weights without structure": errors(None)}
for title, found in results.items():
    print(title)
    print(f"    {'samples':12}" + "".join(f"{size:>8}" for size in SIZES))
    for name, values in zip(("trace norm", "flat ridge"), found, strict=True):
        print(f"    {name:12}" + "".join(f"{value:8.2f}" for value in values))
print(f"{time.perf_counter() - began:.0f} s")

# %%
# A distance of 1 is that of no weights at all.

fig, axes = plt.subplots(1, 2, figsize=(8.4, 3.6), sharey=True, layout="constrained")
for ax, (title, found) in zip(axes, results.items(), strict=True):
    ax.plot(SIZES, found[0], color="#0072B2", marker="o", label="trace norm")
    ax.plot(SIZES, found[1], color="#D55E00", marker="s", linestyle="--", label="flat ridge")
    ax.axvline(512, color="0.6", linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    ax.set_xticks(SIZES, [str(size) for size in SIZES])
    ax.minorticks_off()
    ax.set_ylim(0, 1.15)
    ax.set_xlabel("samples (dotted line: as many as weights)")
    ax.set_title(title)
axes[0].set_ylabel("relative error of the weights")
axes[0].legend(frameon=False)
plt.show()

# %%
# How many samples does ridge need for the same error? Interpolate in the left panel:

ours, ridge = results["weights of rank 1"]
for size, value in zip(SIZES, ours, strict=True):
    if ridge[-1] < value < ridge[0]:
        needed = np.exp(np.interp(-value, -ridge, np.log(SIZES)))
        print(
            f"the error at {size:4} samples, {value:.2f}, takes ridge {needed:5.0f}: {needed / size:.1f} times as many"
        )

# %%
# The answer
# ----------
# The trace norm needs fewer samples if the true weights have low rank. In the right panel both are equal, with ridge
# slightly ahead for few samples: use ridge there. Cross-validation shows which case you have, since both models report
# their error on held-out samples. ``TensorRegressor`` makes this comparison itself, and tries other views of the samples.
