"""
A stream: is the model after the last batch the right one?
==========================================================

If a model learns from samples batch by batch, how far is it from the model of all samples? No further than its duality
gap, as this example checks. It also shows what to do when the data drift, and how to remove samples.
"""

# %%
# Batch by batch
# --------------
# ``partial_fit`` adds a batch to the moments and solves from the last solution. After each batch it holds a proof: the
# objective is within ``dual_gap_`` of the optimum on all samples so far.

import matplotlib.pyplot as plt
import numpy as np

from tracelearn import TraceNormRegressor, stream
from tracelearn.datasets import make_low_rank_regression
from tracelearn.plotting import PrequentialDisplay

SHAPE, BATCH = (8, 6, 5), 100
X, y, W = make_low_rank_regression(6000, SHAPE, rank=1, random_state=0)
y = y / y.std()

online = TraceNormRegressor(alpha=0.1)
gaps, iterations, distances = [], [], []
for end in range(BATCH, 3001, BATCH):
    batch = slice(end - BATCH, end)
    online.partial_fit(X[batch], y[batch])
    at_once = TraceNormRegressor(alpha=0.1, tol=1e-9).fit(X[:end], y[:end])
    gaps.append(online.dual_gap_)
    iterations.append(online.n_iter_)
    # The gap is relative to the objective without weights, which is the variance of the targets.
    distances.append((online.objective_ - at_once.objective_) / y[:end].var())
print(f"iterations for a batch: between {min(iterations)} and {max(iterations)}, starting from the last solution")
print(f"largest certificate {max(gaps):.1e}, largest true distance from the model of all samples {max(distances):.1e}")
print(f"proof held after {np.sum(np.array(distances) <= np.array(gaps))} of {len(gaps)} batches")

seen = np.arange(BATCH, 3001, BATCH)
fig, ax = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
ax.semilogy(seen, gaps, color="#0072B2", label="certificate: proven bound")
ax.semilogy(seen, np.maximum(distances, 1e-12), color="#D55E00", linestyle="--", label="true distance")
ax.axhline(online.tol, color="0.6", linewidth=0.8, linestyle=":", label="tol")
ax.set_xlabel("samples learned")
ax.set_ylabel("distance from the optimum\n(objective without weights = 1)")
ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
plt.show()

# %%
# When the data drift
# -------------------
# After 3,000 samples the target comes from other weights. ``forgetting=0.9`` multiplies the weight of the past at every
# batch: it remembers about ten of them. The simple model for comparison is online ridge, which is the same class with
# ``alpha=0``. Every error is on samples that were not learned yet; the dotted line is where the target changes.

rng = np.random.default_rng(2)
turn = rng.standard_normal(SHAPE[0])
W_after = np.einsum("i,jk->ijk", turn, W[0]) * np.linalg.norm(W) / np.linalg.norm(turn) / np.linalg.norm(W[0])
signal = np.where(np.arange(6000) < 3000, np.tensordot(X, W, 3), np.tensordot(X, W_after, 3))
drifting = signal / signal.std() + 0.5 * rng.standard_normal(6000)


def batches():
    """Yield the stream in batches."""
    for start in range(0, 6000, BATCH):
        yield X[start : start + BATCH], drifting[start : start + BATCH]


candidates = {
    "keeps everything": TraceNormRegressor(alpha=0.2),
    "forgets": TraceNormRegressor(alpha=0.2, forgetting=0.9),
    "ridge, forgets": TraceNormRegressor(alpha=0.0, ridge=0.1, forgetting=0.9),
}
reports = {name: stream(batches(), model, refresh_samples=BATCH) for name, model in candidates.items()}
fig, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
for ax, (name, report) in zip(axes, reports.items(), strict=True):
    PrequentialDisplay.from_report(report, measure="mean squared error", ax=ax)
    ax.axvline(3000, color="0.6", linewidth=0.8, linestyle=":")
    ax.label_outer()
    ax.set_title(name)
    ax.get_legend().remove()
    error = {point.n_seen: point.error for point in report.curve}
    before, after = (np.mean([error[n] for n in range(end - 900, end + 1, BATCH)]) for end in (3000, 6000))
    print(
        f"{name:18} error in the last 1,000 samples before the change {before:.3f}, at the end {after:.3f} (noise: 0.25)"
    )
axes[0].set_ylim(0, 1.8)
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
plt.show()

# %%
# Removing samples
# ----------------
# ``forget`` removes samples that were learned. What is left is the model of the others.

model = TraceNormRegressor(alpha=0.1, keep_moments=True).fit(X, y).forget(X[:2000], y[:2000])
never = TraceNormRegressor(alpha=0.1).fit(X[2000:], y[2000:])
distance = abs(model.objective_ - never.objective_) / y[2000:].var()
print(f"objectives of the two differ by {distance:.0e}, coefficients by {np.abs(model.coef_ - never.coef_).max():.0e}")

# %%
# The answer
# ----------
# Online and batch are one model, to ``tol``, at every moment, so there is nothing to trade. On a stream that changes,
# forgetting is what counts: the model that keeps everything is not back where it was even 3,000 samples after the change.
# Forgetting leaves few samples, and there the trace norm has less error than ridge.
