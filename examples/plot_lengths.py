"""
Whole recordings: unequal lengths, and sensors that fail
========================================================

What is gained by learning from recordings as they come, compared with cutting all to the shortest or padding with zeros?
Recordings rarely have one length, and rarely every value. Both go into ``TensorClassifier`` as they are: a list of arrays,
with NaN where nothing was measured. The last section shows how much is lost when values are missing.

The recordings are those of seglearn: seven shoulder exercises of ten people, accelerometer and gyroscope of a watch.
"""

# %%
# Recordings as they come
# -----------------------
# Each recording is an array of channels × times, and every one has a length of its own. Means of ten readings are
# taken, five for each second, which makes this page quick to build. People are held out: six to learn from, four to be
# predicted.

import matplotlib.pyplot as plt
import numpy as np

from tracelearn import TensorClassifier

try:
    from seglearn.datasets import load_watch
except ImportError as error:
    raise SystemExit(
        "This example needs seglearn and pandas for its recordings: pip install seglearn pandas."
    ) from error

watch = load_watch()
recordings = []
for recording in watch["X"]:
    times = len(recording) // 10
    recordings.append(recording[: 10 * times].reshape(times, 10, 6).mean(axis=1).T)
exercise = np.array(watch["y_labels"])[np.array(watch["y"], dtype=int)]
is_new = np.isin(watch["subject"], [7, 8, 9, 10])
lengths = [recording.shape[1] for recording in recordings]
print(f"{len(recordings)} recordings of {min(lengths)} to {max(lengths)} times, {np.median(lengths):.0f} in the middle")


def accuracy(samples):
    """Learn from six people, and predict the other four."""
    train = [sample for sample, new in zip(samples, is_new, strict=True) if not new]
    test = [sample for sample, new in zip(samples, is_new, strict=True) if new]
    model = TensorClassifier().fit(train, exercise[~is_new])
    return model.score(test, exercise[is_new]), model


as_they_are, model = accuracy(recordings)
print(model.resampler_.n_unequal_, "of them had to be brought to", model.resampler_.n_times_, "times for some views")

# %%
# Covariances and waveforms are seen at the own length of each recording. Views that compare times one by one see it
# resampled to the median length. The length itself is a view as well, of a single number:

for name, share in list(model.view_shares_.items())[:4]:
    print(f"{name:30s} {share:.2f}")

# %%
# Cutting and padding
# -------------------

shortest, longest = min(lengths), max(lengths)
cut = [recording[:, :shortest] for recording in recordings]
padded = [np.pad(recording, ((0, 0), (0, longest - recording.shape[1]))) for recording in recordings]
of_lengths = {"as they are": as_they_are, "cut": accuracy(cut)[0], "padded with zeros": accuracy(padded)[0]}

# %%
# Gaps
# ----
# Now a share of all readings is lost, and then a whole sensor, three of six channels, in every third recording. Gaps are
# lines between their neighbours; of a lost channel nothing is made up.

rng = np.random.default_rng(0)
gappy = [np.where(rng.random(recording.shape) < 0.3, np.nan, recording) for recording in recordings]
failed = [recording.copy() for recording in recordings]
for number, recording in enumerate(failed):
    if number % 3 == 0:
        sensor = 3 * rng.integers(2)
        recording[sensor : sensor + 3] = np.nan
of_gaps = {"30 % of readings lost": accuracy(gappy)[0], "a sensor fails in every third": accuracy(failed)[0]}

figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
names, values = zip(*(of_lengths | of_gaps).items(), strict=True)
bars = axes.barh(names, values, color=["C0", "C7", "C7", "C1", "C1"])
axes.bar_label(bars, fmt=" %.2f")
axes.set(xlim=(0, 1.1), xlabel="accuracy of four new people")
axes.invert_yaxis()

# %%
# One set and one split say little about which is best: ``python -m benchmarks.lengths`` compares on more of both, with
# other libraries. A single recording is predicted as all of them are, whatever its length:

print(model.predict([recordings[-1]]), "is", exercise[-1])
