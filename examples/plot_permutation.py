"""
Permutation tests: is the score better than chance?
===================================================

Could the score of a model be due to chance? A permutation test answers this: it permutes the labels, fits again, and
counts how often the score is as good. All permutations of a fold share one linear system here, so thousands of fits
take seconds.
"""

# %%
# Epochs
# ------
# Simulated power, sensor × time × frequency. In the condition "move" a source is stronger around 1.2 s.

import matplotlib.pyplot as plt

from tracelearn import TensorClassifier, TraceNormClassifier
from tracelearn.datasets import make_epochs
from tracelearn.inference import compare, map_test, permutation_test

epochs = make_epochs(300, n_sensors=8, random_state=0)
print(epochs.X.shape)

# %%
# The test
# --------
# Alpha is chosen by cross-validation, and anew for each permutation: the best score of many candidates is better by chance,
# and only a test that repeats the choice knows by how much.

search = TensorClassifier(views=None, loss="squared_error")
found = permutation_test(search, epochs.X, epochs.y, n_permutations=200, random_state=0)
print(found)
found.plot()

# %%
# Which entries?
# --------------
# A map of 1,632 entries has some large ones by chance. Entries outlined here are larger than the largest of any entry
# in 95 % of the permutations, or belong to a cluster of neighbours in time and frequency that is heavier than the
# heaviest of any.

chosen = search.fit(epochs.X, epochs.y)
model = TraceNormClassifier(alpha=chosen.alpha_, ridge=chosen.ridge_)
tested = map_test(model, epochs.X, epochs.y, smooth=[1, 2], n_permutations=500, random_state=0)
axes = tested.plot()
axes.set(xlabel="time × frequency", ylabel="sensor")
print(f"{tested.significant().sum()} of {tested.map.size} entries survive")

# %%
# Better than what?
# -----------------
# A yardstick says more than chance. Ridge and logistic regression see the same folds, and the standard error of the
# difference is corrected for training sets that overlap.

compared = compare({"trace norm": chosen}, epochs.X, epochs.y, repeats=1)
print(compared)
compared.plot()
plt.show()
