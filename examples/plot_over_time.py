"""
Decoding over time: when do two conditions differ?
==================================================

When do two conditions differ in a recording, and is it always the same pattern? A model at each time answers the
first question; testing each model at every other time answers the second. All times are one batch of problems, so that
the map of temporal generalisation takes a second.
"""

# %%
# Two stages
# ----------
# Sixty-four sensors, a hundred times. An early pattern lasts from 20 to 45, and a late one, which is another, from 45
# to 80.

import time

import matplotlib.pyplot as plt
import numpy as np

from tracelearn import TraceNormClassifier
from tracelearn.inference import decode_over_time, searchlight

rng = np.random.default_rng(0)
y = np.arange(200) % 2
X = rng.standard_normal((200, 64, 100))
clock = np.arange(100)
for begin, end in ((20, 45), (45, 80)):
    pattern = rng.standard_normal(64)
    X += 0.35 * (y - 0.5)[:, None, None] * pattern[:, None] * ((begin <= clock) & (clock < end))

# %%
# The course and the map
# ----------------------
# A square in the map is a pattern that stays; two squares without corners between them are two patterns.

model = TraceNormClassifier(alpha=0.05)
began = time.perf_counter()
course = decode_over_time(model, X, y, scoring="roc_auc")
table = decode_over_time(model, X, y, scoring="roc_auc", generalize=True)
print(f"{time.perf_counter() - began:.1f} s for {5 * 100} models and {5 * 100 * 100:,} scores")
_, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
course.plot(axes[0], times=clock / 100)
table.plot(axes[1], times=clock / 100)
axes[0].set(xlabel="time (s)")

# %%
# Windows and places
# ------------------
# Windows keep some times together, and the weights of sensor × time get a low rank. A searchlight goes over sensors
# instead: here each sensor with its neighbours on a ring, all times at once.

windows = decode_over_time(model, X, y, window=10, step=5, scoring="roc_auc")
ring = np.roll(np.eye(64), 1, axis=1) + np.roll(np.eye(64), -1, axis=1)
places = searchlight(model, X, y, ring, scoring="roc_auc")
_, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
windows.plot(axes[0]).set(xlabel="first time of a window")
places.plot(axes[1]).set(xlabel="sensor")
plt.show()
