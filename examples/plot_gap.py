"""
How tight is my answer? The duality gap
=======================================

How do I know that a fit has finished, and how small should ``tol`` be? ``dual_gap_`` is a proof that needs no second
run: the objective is at most so far above the optimum. For predictions a tolerance of 1e-3 is enough here; the default
of 1e-6 takes a few times the iterations, and two fits then agree to several digits.
"""

# %%
# Bound and truth
# ---------------
# A fit with a very small ``tol`` stands for the optimum. Fits with larger ones stop earlier; each reports its gap.

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV

from tracelearn import TraceNormRegressor
from tracelearn.datasets import make_low_rank_regression
from tracelearn.plotting import ConvergenceDisplay

X, y, W = make_low_rank_regression(2300, (10, 10, 10), rank=2, correlation=0.3, random_state=0)
y = y / y.std()
X, y, X_test, y_test = X[:1500], y[:1500], X[1500:], y[1500:]
ALPHA = 0.2

best = TraceNormRegressor(alpha=ALPHA, tol=1e-11).fit(X, y)
tolerances = 10.0 ** -np.arange(1, 10)
rows = []
for tol in tolerances:
    began = time.perf_counter()
    model = TraceNormRegressor(alpha=ALPHA, tol=tol).fit(X, y)
    seconds = time.perf_counter() - began
    true = (model.objective_ - best.objective_) / y.var()
    change = np.abs(model.predict(X_test) - best.predict(X_test)).max()
    rows.append((tol, model.dual_gap_, true, model.n_iter_, 1e3 * seconds, model.score(X_test, y_test), change))
    print(
        f"tol {tol:.0e}: gap {model.dual_gap_:.1e}, true distance {true:.1e}, {model.n_iter_:3} iterations, "
        f"{1e3 * seconds:3.0f} ms, R² {rows[-1][5]:.5f}"
    )
table = np.array(rows)
print("the bound held each time:", bool(np.all(table[:, 2] <= table[:, 1])))

# %%
# The bound is above the true distance everywhere, as it must be. It is conservative: the true distance is one to
# several orders of magnitude smaller.

fig, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained")
axes[0].loglog(tolerances, table[:, 1], color="#0072B2", marker="o", label="dual_gap_, proven")
axes[0].loglog(tolerances, np.maximum(table[:, 2], 1e-16), color="#D55E00", marker="s", ls="--", label="true distance")
axes[0].loglog(tolerances, tolerances, color="0.6", linestyle=":", label="tol")
axes[0].set_ylabel("distance from the optimum\n(objective without weights = 1)")
axes[0].legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
axes[1].loglog(tolerances, table[:, 6], color="#009E73", marker="D")
axes[1].set_ylabel("largest change of a test prediction\n(spread of the target = 1)")
for ax in axes:
    ax.invert_xaxis()
    ax.set_xlabel("tol")
plt.show()

# %%
# On the way
# ----------
# ``convergence_`` keeps the gap at every check, and ``ConvergenceDisplay`` draws it.

ConvergenceDisplay.from_estimator(best)
plt.show()

# %%
# A fit that is stopped too early gives a warning, and its gap is still a valid bound.

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    early = TraceNormRegressor(alpha=ALPHA, max_iter=5).fit(X, y)
print(f"{caught[0].category.__name__}: {caught[0].message}")
print(f"true distance {(early.objective_ - best.objective_) / y.var():.1e}, proven {early.dual_gap_:.1e}")

# %%
# What it does not prove
# ----------------------
# The certificate concerns the objective, not predictions. Flat ridge is solved exactly, in one step. Which of the two
# predicts better is a question for held-out samples:

flat, flat_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
ridge = RidgeCV(np.logspace(-2, 5, 22)).fit(flat, y)
print(f"R²: trace norm {best.score(X_test, y_test):.3f}, flat ridge {ridge.score(flat_test, y_test):.3f}")
