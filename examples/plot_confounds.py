"""
Confounds: is it the brain, or the movement?
============================================

Does a model decode the condition, or something that varies with it, such as movement, age or the time on task?
``confounds=`` regresses such numbers out of the samples. The regression is fitted to the training samples of each fold,
and applied to the held-out samples. It needs no extra pass over the samples, because it is computed from the moments.
"""

# %%
# A condition that comes with movement
# ------------------------------------
# In "move" people move more, and movement changes every sensor. At some times there is a response to the condition as well.

import matplotlib.pyplot as plt
import numpy as np

from tracelearn import TensorClassifier, TraceNormClassifier
from tracelearn.inference import decode_over_time, permutation_test

rng = np.random.default_rng(0)
y = np.where(np.arange(300) % 2, "move", "rest")
movement = (y == "move") + 0.7 * rng.standard_normal(300)
times = np.linspace(-0.2, 0.8, 50)
response = 0.7 * np.outer(rng.standard_normal(16), np.exp(-100.0 * (times - 0.3) ** 2))
X = rng.standard_normal((300, 16, 50)) + movement[:, None, None] * rng.standard_normal((16, 1))
X[y == "move"] += response

# %%
# With and without
# ----------------
# If the confound is ignored, the conditions can be decoded at every time, even before the response. Once movement is
# regressed out, decoding is at chance before the response, and only the response remains.

model = TraceNormClassifier(alpha=0.05)
plain = decode_over_time(model, X, y, scoring="roc_auc")
clean = decode_over_time(model, X, y, scoring="roc_auc", confounds=movement)
axes = plain.plot(times=times, label="samples as they are")
clean.plot(axes, times=times, label="movement regressed out")
axes.set(xlabel="time (s)", ylabel="area under the ROC curve", ylim=(0.3, 1.0))

# %%
# In a test, a search and a prediction
# ------------------------------------
# Before the response nothing is left to find, and the test says so.

before = times < 0.0
found = permutation_test(model, X[:, :, before], y, confounds=movement, n_permutations=200, random_state=0)
print(found)

# %%
# A search regresses within each of its folds. A prediction needs the confounds of new samples: what was learned is applied.

search = TensorClassifier(views=None).fit(X[:200], y[:200], confounds=movement[:200])
print(f"{search.score(X[200:], y[200:], confounds=movement[200:]):.2f} of new epochs")
plt.show()
