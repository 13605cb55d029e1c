"""
Intervals: how much depends on the samples?
===========================================

How much would a score, a rank and a pattern change with other samples? The bootstrap answers this: it draws samples
with replacement and fits again.
"""

# %%
# Epochs
# ------
# Simulated power, sensor × time × frequency, from 200 epochs of two conditions.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import LearningCurveDisplay

from tracelearn import TraceNormClassifier
from tracelearn.datasets import make_epochs
from tracelearn.inference import bootstrap

epochs = make_epochs(200, n_sensors=8, random_state=0)
X, y = np.log(epochs.X), epochs.y
model = TraceNormClassifier(alpha=4.0, tol=1e-4)

# %%
# Scores, ranks and subspaces
# ---------------------------
# Each draw leaves about a third of the epochs out, and is scored on these. A draw is worth half of the epochs, so these
# scores are lower than the one above them: that of the model of all epochs, on new ones, with its interval. It counts
# both that other epochs would judge and that others would be learned from. The size of a dot is how often a rank was
# found; a small angle means that the subspace of a mode stays where it is.

found = bootstrap(model, X, y, n_bootstraps=100, random_state=0)
print(found)
found.plot()

# %%
# A pattern with its interval
# ---------------------------
# The pattern over time of the sensor that carries most, at its best frequency. The sensor was chosen because its pattern
# is large, and many times are looked at, so the band must hold for all entries at once: ``simultaneous=True``. The narrow
# one holds for a single entry that was chosen beforehand.

low, high = found.interval("patterns", simultaneous=True)[:, 0]
each = found.interval("patterns")[:, 0]
middle = np.median(found.patterns, axis=0)[0]
sensor, _, frequency = np.unravel_index(np.argmax(np.abs(middle)), middle.shape)
_, axes = plt.subplots(layout="constrained")
axes.fill_between(
    epochs.times, low[sensor, :, frequency], high[sensor, :, frequency], alpha=0.2, label="95 %, all entries"
)
axes.fill_between(epochs.times, *each[:, sensor, :, frequency], color="C0", alpha=0.3, label="95 %, each by itself")
axes.plot(epochs.times, middle[sensor, :, frequency], label="median")
axes.axhline(0.0, color="0.5", linewidth=1.0)
axes.set(xlabel="time, s", ylabel=f"pattern of sensor {sensor}")
axes.legend()

# %%
# Would more epochs help?
# -----------------------
# ``sklearn.model_selection.LearningCurveDisplay`` takes our models as it takes any other.

LearningCurveDisplay.from_estimator(model, X, y, cv=5, scoring="roc_auc", shuffle=True, random_state=0)
plt.show()
