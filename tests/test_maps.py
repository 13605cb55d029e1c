"""Maps: statistics equal refits, corrections hold their error rate, clusters are what their neighbours say."""

import itertools

import numpy as np
import pytest
import registry
from scipy.sparse import csr_array
from scipy.stats import binom
from sklearn.base import clone

from tracelearn import TensorRegressor, TraceNormClassifier, TraceNormRegressor
from tracelearn.inference import MapTest, map_test
from tracelearn.inference.maps import neighbour_pairs, neighbour_tables, weigh_clusters
from tracelearn.inference.permutation import choose_exchange


def _samples(n=60, seed=0, signal=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4, 6))
    return X, signal * (X[:, 1, 2] + X[:, 1, 3]) + rng.standard_normal(n)


@pytest.mark.parametrize(("what", "attribute"), [("weights", "coef_"), ("patterns", "patterns_")])
@pytest.mark.parametrize("classes", [None, 2, 3])
def test_p_values_are_those_of_refits_on_the_same_permutations(what, attribute, classes):
    X, y = _samples()
    model = TraceNormRegressor(0.05, tol=1e-10)
    if classes:
        y, model = np.digitize(y, [-1, 1][: classes - 1]), TraceNormClassifier(0.05, tol=1e-10)
    found = map_test(model, X, y, what=what, n_permutations=9, random_state=3)
    order = choose_exchange(y, None).draw(60, 9, np.random.default_rng(3))
    maps = [getattr(clone(model).fit(X, y[own]), attribute) for own in [np.arange(60), *order]]
    maps = np.array(maps)
    np.testing.assert_allclose(found.map, maps[0], atol=1e-5)
    spread = np.sqrt(np.mean(maps**2, axis=0))
    sizes = np.abs(maps / (spread + 0.05 * spread.max()))
    largest = sizes[1:].reshape(9, -1).max(axis=1)
    expected = (1 + np.sum(largest.reshape(9, *(1,) * (maps.ndim - 1)) >= sizes[0] - 1e-9, axis=0)) / 10
    np.testing.assert_array_equal(found.p_values, expected)


def test_what_carries_the_signal_survives_and_its_cluster_too():
    X, y = _samples(200)
    found = map_test(TraceNormRegressor(0.05), X, y, smooth=[1], n_permutations=99, random_state=0)
    assert np.argwhere(found.p_values <= 0.05).tolist() == [[1, 2], [1, 3]]
    number = found.clusters[1, 2]
    assert number > 0
    assert found.clusters[1, 3] == number
    assert found.cluster_p_values[number - 1] == 0.01
    assert np.argwhere(found.significant()).tolist() == [[1, 2], [1, 3]]


def test_neighbours_are_successive_entries_of_smooth_modes_and_those_of_an_adjacency():
    def pairs(smooth, adjacency):
        tables = neighbour_tables((2, 3), None, smooth, adjacency)
        return {tuple(pair) for pair in neighbour_pairs((2, 3), tables).tolist()}

    assert pairs([1], {}) == {(0, 1), (1, 2), (3, 4), (4, 5)}
    ring = csr_array(np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]]))
    assert pairs([], {1: ring}) == {(0, 2), (3, 5)}
    assert len(pairs([0], {1: ring})) == 5


def test_clusters_have_one_sign_and_weigh_the_sum_of_their_sizes():
    values = np.array([3.0, 4.0, -5.0, 0.1, 2.0, 2.5])
    labels, mass = weigh_clusters(values, neighbour_pairs((6,), neighbour_tables((6,), None, [0], {})), 1.0)
    assert labels.tolist() == [0, 0, 1, -1, 2, 2]
    np.testing.assert_allclose(mass, [7.0, 5.0, 4.5])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"what": "ranks"}, "'weights' or 'patterns'"),
        ({"smooth": [2]}, "modes of a sample"),
        ({"adjacency": {5: np.eye(2)}}, "modes of a sample"),
        ({"adjacency": {0: np.eye(3)}}, "adjacency of shape"),
        ({"threshold": 1.5}, "threshold"),
        ({"n_permutations": -1}, "n_permutations"),
        ({"groups": [0]}, "one for each sample"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(options, words):
    X, y = _samples()
    with pytest.raises(ValueError, match=words):
        map_test(TraceNormRegressor(), X, y, **options)


def test_a_search_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match="linear_estimator"):
        map_test(TensorRegressor(), *_samples())


def test_maps_are_drawn():
    pytest.importorskip("matplotlib")
    X, y = _samples(100)
    found = map_test(TraceNormRegressor(0.05), X, y, smooth=[1], n_permutations=20, random_state=0)
    np.testing.assert_allclose(found.plot().images[0].get_array(), found.map)
    line = map_test(TraceNormRegressor(0.05), X[:, 1], y, n_permutations=20, random_state=0)
    np.testing.assert_allclose(line.plot().lines[0].get_ydata(), line.map)
    three = map_test(TraceNormClassifier(0.05), X, np.digitize(y, [-1, 1]), n_permutations=20, random_state=0)
    assert three.plot().images[0].get_array().shape == (4, 6)


@pytest.mark.slow
@pytest.mark.parametrize("dependence", ["none", "within groups", "one target a group"])
def test_any_false_entry_or_cluster_is_as_rare_as_promised(dependence):
    rng, false = np.random.default_rng(0), []
    for _ in range(500):
        X, y, groups = registry.unrelated(rng, dependence)
        options = {"smooth": [1], "n_permutations": 99, "groups": groups}
        found = map_test(TraceNormRegressor(0.05), X, y, random_state=rng.integers(1 << 30), **options)
        false.append([found.p_values.min() <= 0.1, found.cluster_p_values.min(initial=1.0) <= 0.1])
        false[-1].append(found.significant(0.1).any())
    # 500 sets at a level of 0.1: a binomial count is above this share once in 500 times.
    assert np.all(np.mean(false, axis=0) <= binom.ppf(0.998, 500, 0.1) / 500)
    assert np.mean(false, axis=0)[0] >= binom.ppf(0.002, 500, 0.1) / 500


def test_a_map_is_drawn_in_the_coordinates_of_its_modes():
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    xarray = pytest.importorskip("xarray", reason="samples with names are those of xarray here")
    rng, y = np.random.default_rng(0), np.arange(40) % 2
    X = rng.standard_normal((40, 3, 6))
    X[:, 1, 2:4] += 2.0 * y[:, None]
    coordinates = {"channel": ["Fz", "Cz", "Pz"], "time": np.arange(6) / 10}
    named = xarray.DataArray(X, dims=("trial", "channel", "time"), coords=coordinates)
    found = map_test(TraceNormClassifier(), named, y, n_permutations=50, random_state=0)
    plain = map_test(TraceNormClassifier(), X, y, n_permutations=50, random_state=0)
    np.testing.assert_array_equal(found.p_values, plain.p_values)
    axes = found.plot()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time", "channel")
    table = np.eye(3, k=1)
    ways = ({"smooth": "time", "adjacency": {"channel": table}}, {"smooth": [1], "adjacency": {0: table}})
    clusters = [
        map_test(TraceNormClassifier(), named, y, n_permutations=9, random_state=0, **way).clusters for way in ways
    ]
    np.testing.assert_array_equal(*clusters)
    with pytest.raises(ValueError, match=r"smooth to be a number or the name of a mode \(channel, time\)"):
        map_test(TraceNormClassifier(), named, y, smooth=["frequency"])
    np.testing.assert_allclose(axes.images[0].get_extent(), [-0.05, 0.55, 2.5, -0.5])
    assert plain.plot().get_xlabel() == "second mode"


def test_what_survives_is_outlined_along_its_edges():
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    kept = np.zeros((3, 4), dtype=bool)
    kept[1, 1:3] = True
    found = MapTest(np.eye(3, 4), np.eye(3, 4), np.where(kept, 0.01, 1.0), None, None, "targets", "weights", 2)
    lines = {tuple(map(tuple, line.get_xydata().tolist())) for line in found.plot().lines}
    corners = [(0.5, 0.5), (1.5, 0.5), (2.5, 0.5), (2.5, 1.5), (1.5, 1.5), (0.5, 1.5), (0.5, 0.5)]
    around = {frozenset(pair) for pair in itertools.pairwise(corners)}
    assert {frozenset(line) for line in lines} == around


def test_a_map_counts_clusters_at_the_level_at_which_their_entries_survive():
    clusters, ones = np.array([[1, 1], [0, 0]]), np.ones((2, 2))
    for p_value, entries in ((0.04, 0), (0.02, 2)):
        found = MapTest(ones, ones, np.full((2, 2), 0.2), clusters, np.array([p_value]), "targets", "weights", 2)
        assert str(found).startswith(f"{entries} of 4 entries")
        assert str(found).endswith(f"{entries // 2} of 1 clusters")
