"""
Lagged models: which stimulus drives a recording, and how late?
===============================================================

Which features of a stimulus drive a recording, and after how long? A lagged model has a weight for every lag and
feature. Few temporal profiles, each with its pattern over features, are weights of low rank. With the same two minutes
of recording, a low-rank model finds more than ridge regression.
"""

# %%
# A recording
# -----------
# Five minutes at 100 Hz, sixteen features, two responses: one quick and short, one slow and long, in noise three times
# as strong.

import matplotlib.pyplot as plt
import numpy as np

from tracelearn import LaggedRegressor

rng = np.random.default_rng(0)
n, features, lags = 30_000, 16, 40
x = rng.standard_normal((n, features))
clock = np.arange(lags)
profiles = np.stack([np.exp(-0.5 * ((clock - 8) / 2.0) ** 2), -np.exp(-0.5 * ((clock - 22) / 6.0) ** 2)])
patterns = rng.standard_normal((2, features))
truth = profiles.T @ patterns
signal = sum(np.convolve(x @ pattern, profile)[:n] for pattern, profile in zip(patterns, profiles, strict=True))
y = signal + 3.0 * signal.std() * rng.standard_normal(n)

# %%
# Two minutes to learn from
# -------------------------
# The strength of both is chosen on the third minute. What is learned before adds up: ``partial_fit`` goes on where it was.

learn, choose, test = slice(0, 12_000), slice(12_000, 18_000), slice(18_000, n)


def best(candidates):
    """Choose the model that predicts the third minute best."""
    fitted = [model.fit(x[learn], y[learn]) for model in candidates]
    return max(fitted, key=lambda model: model.score(x[choose], y[choose]))


low_rank = best([LaggedRegressor(lags, alpha=alpha) for alpha in np.geomspace(0.03, 3.0, 8)])
ridge = best([LaggedRegressor(lags, 0.0, ridge=strength) for strength in np.geomspace(0.01, 30.0, 8)])
for name, model in (("low rank", low_rank), ("ridge", ridge)):
    error = np.linalg.norm(model.coef_ - truth) / np.linalg.norm(truth)
    r2 = model.score(x[test], y[test])
    print(f"{name}: R² {r2:.3f} of at most 0.1, weights off by {error:.0%}")

# %%
# The receptive field
# -------------------
# Lags against features: the truth, and what the two models make of the same two minutes.

_, axes = plt.subplots(1, 3, figsize=(10, 4), sharey=True, layout="constrained")
reach = np.abs(truth).max()
for one, (name, W) in zip(
    axes, {"truth": truth, "low rank": low_rank.coef_, "ridge": ridge.coef_}.items(), strict=True
):
    one.imshow(W.T, aspect="auto", cmap="RdBu_r", vmin=-reach, vmax=reach)
    one.set(title=name, xlabel="lag, 10 ms")
axes[0].set(ylabel="feature")
plt.show()
