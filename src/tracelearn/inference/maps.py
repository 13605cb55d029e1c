"""Maps that survive correction: which weights, or entries of a pattern, are larger than targets without relation make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array, issparse
from scipy.sparse.csgraph import connected_components

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.errors import refuse
from tracelearn.inference.permutation import exchange_of, p_value
from tracelearn.inference.sets import Reading, check_count, is_shared, number_of, read_groups, solve
from tracelearn.samples.checks import small_on_one_thread
from tracelearn.samples.modes import Modes
from tracelearn.samples.samples import unnamed

__all__ = ["MapTest", "map_test"]

# What is added to the spread of an entry, as a share of the largest: an entry that is zero in most permutations would have
# an endless statistic in the others.
_LEAST_SPREAD = 0.05


@dataclass(frozen=True, eq=False)
class MapTest:
    """What was found of a map.

    Attributes
    ----------
    map : array of the shape of ``coef_``
        Weights or patterns of the model on all samples.
    statistic : array of the same shape
        The map, divided by its spread under permutations.
    p_values : array of the same shape
        Corrected for all entries: how often the largest statistic of a permutation, anywhere, is as large.
    clusters : array of ints of the same shape, or None
        Numbers from 1 of clusters of neighbouring entries of one sign beyond the threshold, 0 elsewhere.
    cluster_p_values : array of shape (n_clusters,), or None
        How often the heaviest cluster of a permutation weighs as much.
    exchanged : str
        What was permuted.
    what : "weights" or "patterns"
    order : int
        The number of modes of a sample; where the map has one axis more, the first is targets.
    modes : tuple of Mode, or None
        Names and coordinates of the modes, where the samples bring them.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.inference import MapTest
    >>> found = MapTest(np.eye(2), 5 * np.eye(2), np.array([[0.01, 1], [1, 0.01]]), None, None, "targets", "weights", 2)
    >>> found.significant()
    array([[ True, False],
           [False,  True]])
    >>> print(found)
    2 of 4 entries of the weights at p ≤ 0.05, corrected, from permutations of targets
    """

    map: Array
    statistic: Array
    p_values: Array
    clusters: Array | None
    cluster_p_values: Array | None
    exchanged: str
    what: str
    order: int
    modes: Modes | None = None

    def significant(self, level: float = 0.05) -> Array:
        """Tell which entries survive: by themselves, or, where there are clusters, as part of one, each at half the level."""
        if self.clusters is None or self.cluster_p_values is None:
            return np.asarray(self.p_values <= level)
        # Either may be false: together they are so as rarely as the level says.
        part_of = np.append(False, self.cluster_p_values <= 0.5 * level)[self.clusters]
        return np.asarray((self.p_values <= 0.5 * level) | part_of)

    def __str__(self) -> str:
        found = int(np.sum(self.significant()))
        words = f"{found} of {self.map.size} entries of the {self.what} at p ≤ 0.05, corrected, "
        words += f"from permutations of {self.exchanged}"
        if self.cluster_p_values is None:
            return words
        return f"{words}; {int(np.sum(self.cluster_p_values <= 0.025))} of {len(self.cluster_p_values)} clusters"

    def plot(self, ax: Any = None, *, level: float = 0.05) -> Any:
        """Draw the map, with what survives outlined; of several targets the first."""
        from tracelearn.plotting.inference import draw_map  # noqa: PLC0415 - matplotlib is optional

        return draw_map(self, ax, level)


@small_on_one_thread
def map_test(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    what: str = "patterns",
    smooth: Sequence[int | str] | str = (),
    adjacency: Mapping[int | str, Any] | None = None,
    n_permutations: int = 1000,
    groups: Any = None,
    confounds: Any = None,
    threshold: float = 0.01,
    random_state: int | None = None,
) -> MapTest:
    """Test every entry of the weights, or of the pattern, of a model on all samples, corrected for all entries.

    The statistic of an entry is its size over its spread under permutations; the largest of each permutation is what entries are
    compared with, so that without any relation a false one is as rare as the level says (max-T; Westfall and Young, 1993).
    What is refuted is that samples and targets have nothing to do with each other; where they do, a model of low rank also gives
    entries that carry nothing some of what others carry, so read the size of an entry together with its p-value.
    Clusters of neighbouring entries are compared with the heaviest of each permutation (Maris and Oostenveld, 2007).

    Parameters
    ----------
    model : TraceNormClassifier or TraceNormRegressor
    X, y : samples and targets, in memory; epochs of MNE bring their events as targets
    what : {"patterns", "weights"}, default="patterns"
    smooth : str, or sequence of ints or strs, default=()
        Modes of a sample whose successive entries are neighbours, such as time or frequency, counted from 0, or by name where
        the samples have names: "time".
    adjacency : dict of square matrices by mode, default=None
        Which entries of a mode are neighbours, such as sensors: {"channel": that of ``mne.channels.find_ch_adjacency``}.
        Without smooth modes and adjacency there are no clusters.
    n_permutations : int, default=1000
        With clusters at least 39: entries and clusters each have half of the level of 5 %.
    groups, confounds : arrays of one row for each sample, default=None
        As in ``permutation_test``; confounds are regressed out of all samples.
    threshold : float, default=0.01
        The share of all entries of all permutations that is beyond the size from which entries form clusters.
    random_state : int, default=None

    Returns
    -------
    MapTest

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.inference import map_test
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 4, 6))
    >>> y = X[:, 1, 2] + X[:, 1, 3] + rng.normal(size=200)
    >>> found = map_test(TraceNormRegressor(), X, y, smooth=[1], n_permutations=99, random_state=0)
    >>> np.argwhere(found.p_values <= 0.05).tolist(), float(found.cluster_p_values.min())
    ([[1, 2], [1, 3]], 0.01)
    """
    count, random = check_count(n_permutations, "n_permutations"), np.random.default_rng(random_state)
    refuse(what not in ("weights", "patterns"), f"Expected what to be 'weights' or 'patterns', got {what!r}.")
    refuse(not 0 < threshold < 1, f"Expected a threshold between 0 and 1, got {threshold}.")
    refuse(
        not is_shared(model),
        f"Expected a TraceNormClassifier or TraceNormRegressor without class_weight for a map, got {model!r}: pass the "
        "best_estimator_ of a search.",
    )
    X, y, modes = unnamed(X, y)
    reading = Reading.of(model, X, y, confounds)
    reading = reading.cleaned(np.arange(reading.n))
    shape, K = reading.samples.shape, reading.samples.n_targets
    tables = {number_of(mode, modes, "adjacency"): table for mode, table in (adjacency or {}).items()}
    smooth = [smooth] if isinstance(smooth, str) else smooth
    edges = _edges(shape, [number_of(mode, modes, "smooth") for mode in smooth], tables)
    exchange = exchange_of(reading.labels, read_groups(groups, reading.n))
    order = np.concatenate([np.arange(reading.n)[None], exchange.draw(reading.n, count, random)])
    samples = reading.part(np.arange(reading.n), order)
    W, _ = solve(reading, samples, len(order))
    maps = to_numpy(W if what == "weights" else reading.samples.covariance_times(W)).reshape(len(order), K, -1)
    # Over all sets, that of the true targets among them: then no set is treated differently from the others.
    spread = np.sqrt(np.mean(maps**2, axis=0))
    floor = _LEAST_SPREAD * float(np.max(spread))
    statistic = maps / (spread + (floor or 1.0))
    sizes = np.abs(statistic)
    p = p_value(sizes[0], np.max(sizes[1:], axis=(1, 2))[:, None, None])
    clusters = cluster_p = None
    if len(edges):
        clusters, cluster_p = _clusters(statistic, edges, float(np.quantile(sizes, 1.0 - threshold)))
    found, size, corrected = (reading.model._shaped(a.reshape(K, -1), shape) for a in (maps[0], statistic[0], p))
    numbers = None if clusters is None else clusters.reshape(found.shape)
    return MapTest(found, size, corrected, numbers, cluster_p, exchange.words, what, len(shape), modes)


def _edges(shape: tuple[int, ...], smooth: Sequence[int], adjacency: Mapping[int, Any] | None) -> Array:
    """List pairs of entries (E, 2) that are neighbours along some mode."""
    found, entries = [np.empty((0, 2), dtype=int)], np.arange(int(np.prod(shape))).reshape(shape)
    tables = {int(mode): np.eye(shape[mode], k=1) for mode in smooth if -len(shape) <= mode < len(shape)}
    tables |= {
        int(mode): table.toarray() if issparse(table) else to_numpy(table) for mode, table in (adjacency or {}).items()
    }
    refuse(
        len(tables) < len({*smooth, *(adjacency or {})})
        or any(not -len(shape) <= mode < len(shape) for mode in tables),
        f"Expected modes of a sample from 0 to {len(shape) - 1}, got {[*smooth, *(adjacency or {})]}.",
    )
    for mode, table in tables.items():
        refuse(
            table.shape != (shape[mode], shape[mode]),
            f"Expected an adjacency of shape {(shape[mode], shape[mode])} for mode {mode}, got {table.shape}.",
        )
        ends = np.nonzero(np.triu(table + table.T, k=1))
        found.append(np.stack([np.take(entries, own, axis=mode).ravel() for own in ends], axis=1))
    return np.concatenate(found)


def _clusters(statistic: Array, edges: Array, threshold: float) -> tuple[Array, Array]:
    """Number the clusters of the first set (K, p), and find their p-values from the heaviest of each other set (S, K, p)."""
    S, K, p = statistic.shape
    heaviest, first, masses = np.zeros(S), np.zeros((K, p), dtype=int), [np.zeros(0)]
    for s in range(S):
        for k in range(K):
            labels, mass = _weighed(statistic[s, k], edges, threshold)
            heaviest[s] = max(heaviest[s], mass.max(initial=0.0))
            if s == 0:
                first[k] = np.where(labels >= 0, labels + 1 + len(np.concatenate(masses)), 0)
                masses.append(mass)
    return first, p_value(np.concatenate(masses), heaviest[1:, None])


def _weighed(values: Array, edges: Array, threshold: float) -> tuple[Array, Array]:
    """Number the clusters of entries (p,) beyond a threshold, -1 elsewhere, and sum the sizes in each."""
    beyond, sign = np.abs(values) > threshold, np.sign(values)
    a, b = edges.T
    kept = beyond[a] & beyond[b] & (sign[a] == sign[b])
    graph = coo_array((np.ones(int(kept.sum())), (a[kept], b[kept])), shape=(len(values), len(values)))
    parts = connected_components(graph, directed=False)[1]
    labels = np.full(len(values), -1)
    labels[beyond] = np.unique(parts[beyond], return_inverse=True)[1]
    return labels, np.bincount(labels[beyond], weights=np.abs(values[beyond]))
