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
from tracelearn.inference.permutation import choose_exchange, p_value
from tracelearn.inference.reading import Reading, check_count, mode_number, read_two_groups, shares_system
from tracelearn.inference.solving import solve_sets
from tracelearn.samples.by_name import in_memory
from tracelearn.samples.learning import small_on_one_thread
from tracelearn.samples.modes import Modes

__all__ = ["MapTest", "map_test", "neighbour_pairs", "neighbour_tables", "weigh_clusters"]

# The spread of an entry is increased by this share of the largest spread: the statistic of an entry that is zero in most
# permutations would be near infinite in the others.
_LEAST_SPREAD = 0.05


@dataclass(frozen=True, eq=False)
class MapTest:
    """A map of weights or patterns, and which of its entries are larger than without any relation.

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
    >>> test = MapTest(np.eye(2), 5 * np.eye(2), np.array([[0.01, 1], [1, 0.01]]), None, None, "targets", "weights", 2)
    >>> test.significant()
    array([[ True, False],
           [False,  True]])
    >>> print(test)
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
        # Bonferroni: of the two kinds of findings each has half of the level.
        is_cluster_significant = np.append(False, self.cluster_p_values <= 0.5 * level)  # cluster 0 is no cluster
        return np.asarray((self.p_values <= 0.5 * level) | is_cluster_significant[self.clusters])

    def __str__(self) -> str:
        n_significant = int(np.sum(self.significant()))
        sentence = (
            f"{n_significant} of {self.map.size} entries of the {self.what} at p ≤ 0.05, corrected, from permutations of "
            f"{self.exchanged}"
        )
        if self.cluster_p_values is None:
            return sentence
        return f"{sentence}; {int(np.sum(self.cluster_p_values <= 0.025))} of {len(self.cluster_p_values)} clusters"

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
    >>> test = map_test(TraceNormRegressor(), X, y, smooth=[1], n_permutations=99, random_state=0)
    >>> np.argwhere(test.p_values <= 0.05).tolist(), float(test.cluster_p_values.min())
    ([[1, 2], [1, 3]], 0.01)
    """
    n_permutations = check_count(n_permutations, "n_permutations")
    refuse(what not in ("weights", "patterns"), f"Expected what to be 'weights' or 'patterns', got {what!r}.")
    refuse(not 0 < threshold < 1, f"Expected a threshold between 0 and 1, got {threshold}.")
    refuse(
        not shares_system(model),
        f"Expected a TraceNormClassifier or TraceNormRegressor without class_weight for a map, got {model!r}: of a "
        "search pass its linear_estimator() with joined_views(X).",
    )
    X, y, modes, groups = in_memory(X, y, groups)
    reading = Reading.of(model, X, y, confounds)
    everything = np.arange(reading.n_samples)
    reading = reading.cleaned(everything)
    shape = reading.samples.shape
    K = reading.samples.n_targets
    edges = neighbour_pairs(shape, neighbour_tables(shape, modes, smooth, adjacency or {}))
    exchange = choose_exchange(reading.labels, read_two_groups(groups, reading.n_samples))
    permutations = exchange.draw(reading.n_samples, n_permutations, np.random.default_rng(random_state))
    order = np.concatenate([everything[None], permutations])
    weights, _ = solve_sets(reading, reading.with_targets_of(everything, order), len(order))
    maps = weights if what == "weights" else reading.samples.covariance_times(weights)
    maps = to_numpy(maps).reshape(len(order), K, -1)
    # The spread is that over all sets, the true targets among them, so that every set is treated alike.
    spread = np.sqrt(np.mean(maps**2, axis=0))
    floor = _LEAST_SPREAD * float(np.max(spread))
    statistic = maps / (spread + (floor or 1.0))
    sizes = np.abs(statistic)
    p_values = p_value(sizes[0], np.max(sizes[1:], axis=(1, 2))[:, None, None])
    clusters = cluster_p_values = None
    if len(edges):
        clusters, cluster_p_values = _clusters(statistic, edges, float(np.quantile(sizes, 1.0 - threshold)))
        clusters = reading.as_tensors(clusters)
    return MapTest(
        map=reading.as_tensors(maps[0]),
        statistic=reading.as_tensors(statistic[0]),
        p_values=reading.as_tensors(p_values),
        clusters=clusters,
        cluster_p_values=cluster_p_values,
        exchanged=exchange.description,
        what=what,
        order=len(shape),
        modes=modes,
    )


# --- clusters ---------------------------------------------------------------------------------------------------------


def neighbour_tables(
    shape: tuple[int, ...], modes: Modes | None, smooth: Sequence[int | str] | str, adjacency: Mapping[int | str, Any]
) -> dict[int, Array]:
    """Read which entries of each mode are neighbours, as square matrices."""
    smooth = [smooth] if isinstance(smooth, str) else smooth
    smooth_modes = [mode_number(mode, modes, "smooth") for mode in smooth]
    tables = {mode_number(mode, modes, "adjacency"): table for mode, table in adjacency.items()}
    for mode in (*smooth_modes, *tables):
        refuse(
            not -len(shape) <= mode < len(shape),
            f"Expected modes of a sample from 0 to {len(shape) - 1}, got {[*smooth_modes, *tables]}.",
        )
    neighbours = {int(mode): np.eye(shape[mode], k=1) for mode in smooth_modes}
    for mode, table in tables.items():
        matrix = table.toarray() if issparse(table) else to_numpy(table)
        refuse(
            matrix.shape != (shape[mode], shape[mode]),
            f"Expected an adjacency of shape {(shape[mode], shape[mode])} for mode {mode}, got {matrix.shape}.",
        )
        neighbours[int(mode)] = matrix
    return neighbours


def neighbour_pairs(shape: tuple[int, ...], neighbours: Mapping[int, Array]) -> Array:
    """List pairs of entries (E, 2) that are neighbours along some mode."""
    entries = np.arange(int(np.prod(shape))).reshape(shape)
    pairs = [np.empty((0, 2), dtype=int)]
    for mode, table in neighbours.items():
        first, second = np.nonzero(np.triu(table + table.T, k=1))
        ends = np.take(entries, first, axis=mode).ravel(), np.take(entries, second, axis=mode).ravel()
        pairs.append(np.stack(ends, axis=1))
    return np.concatenate(pairs)


def _clusters(statistic: Array, edges: Array, threshold: float) -> tuple[Array, Array]:
    """Number the clusters of the first of S sets (S, K, p) from 1, (K, p), and find their p-values.

    They are compared with the heaviest cluster of each other set.
    """
    S, K, p = statistic.shape
    numbers = np.zeros((K, p), dtype=int)
    masses = np.zeros(0)
    for k in range(K):
        labels, target_masses = weigh_clusters(statistic[0, k], edges, threshold)
        numbers[k] = np.where(labels >= 0, labels + 1 + len(masses), 0)
        masses = np.append(masses, target_masses)
    heaviest = np.zeros(S - 1)
    for s in range(1, S):
        for k in range(K):
            _, target_masses = weigh_clusters(statistic[s, k], edges, threshold)
            heaviest[s - 1] = max(heaviest[s - 1], target_masses.max(initial=0.0))
    return numbers, p_value(masses, heaviest[:, None])


def weigh_clusters(values: Array, edges: Array, threshold: float) -> tuple[Array, Array]:
    """Number the clusters of entries (p,) of one sign beyond a threshold, -1 elsewhere, and sum the sizes in each."""
    is_beyond = np.abs(values) > threshold
    sign = np.sign(values)
    first, second = edges.T
    is_joined = is_beyond[first] & is_beyond[second] & (sign[first] == sign[second])
    ones = np.ones(int(is_joined.sum()))
    graph = coo_array((ones, (first[is_joined], second[is_joined])), shape=(len(values), len(values)))
    components = connected_components(graph, directed=False)[1]
    labels = np.full(len(values), -1)
    labels[is_beyond] = np.unique(components[is_beyond], return_inverse=True)[1]
    return labels, np.bincount(labels[is_beyond], weights=np.abs(values[is_beyond]))
