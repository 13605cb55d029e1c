"""A tree of models learns from the moments of classes what each node would learn from its samples."""

import pickle

import array_api_strict
import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from scipy.cluster.hierarchy import linkage
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from tracelearn import HierarchicalTraceNormClassifier, TraceNormClassifier
from tracelearn.moments import Accumulator

SHAPE = (4, 3, 2)
NAMES = np.array(["ash", "birch", "cedar", "date", "elm", "fir", "gum"])


@parametrize_with_checks(
    [
        HierarchicalTraceNormClassifier(),
        HierarchicalTraceNormClassifier(tree="average", class_weight="balanced", ridge=0.01),
        HierarchicalTraceNormClassifier(tree="complete", penalty="scaled_latent"),
    ]
)
def test_the_common_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


def samples(n=210, seed=0, n_classes=7, noise=0.5):
    """Draw samples of classes whose means come in two groups."""
    rng = np.random.default_rng(seed)
    group = np.arange(n_classes) % 2
    means = 2.0 * rng.standard_normal((2, *SHAPE))[group] + rng.standard_normal((n_classes, *SHAPE))
    y = rng.permutation(np.arange(n) % n_classes)
    return means[y] + noise * rng.standard_normal((n, *SHAPE)) + 5.0, NAMES[y]


def leaves(tree):
    return [leaf for child in tree for leaf in leaves(child)] if isinstance(tree, tuple) else [tree]


def pairs(tree):
    """List the two sides of every node, from the root down."""
    if not isinstance(tree, tuple):
        return []
    here = (sorted(leaves(tree[0])), sorted(leaves(tree[1])))
    return [here, *pairs(tree[0]), *pairs(tree[1])]


def descend(model, X):
    """Walk down the tree, sample by sample, with the models of its nodes."""
    models = dict(zip([str(node) for node in model.nodes_], model.estimators_, strict=True))
    found = []
    for x in X:
        tree = model.tree_
        while isinstance(tree, tuple):
            node = models[str((sorted(leaves(tree[0])), sorted(leaves(tree[1]))))]
            tree = tree[int(node.predict(x[None])[0] > 0)]
        found.append(tree)
    return np.array(found)


# --- the nodes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_each_node_is_the_model_of_its_samples(fit_intercept, weighted):
    X, y = samples()
    weight = np.random.default_rng(1).uniform(0.2, 2.0, len(X)) if weighted else None
    options = {"alpha": 0.05, "ridge": 0.02, "fit_intercept": fit_intercept, "tol": 1e-11, "mode_weights": (1, 2, 0.5)}
    model = HierarchicalTraceNormClassifier(**options).fit(X, y, sample_weight=weight)
    assert len(model.estimators_) == 6
    for k, (left, right) in enumerate(model.nodes_):
        own = np.isin(y, left + right)
        side = np.isin(y, right)[own]
        direct = TraceNormClassifier(**options).fit(X[own], side, None if weight is None else weight[own])
        np.testing.assert_allclose(model.coef_[k], direct.coef_[0], atol=1e-8)
        np.testing.assert_allclose(model.intercept_[k], direct.intercept_[0], atol=1e-8)
        np.testing.assert_allclose(model.estimators_[k].patterns_, direct.patterns_, atol=1e-8)
        np.testing.assert_allclose(model.estimators_[k].objective_, direct.objective_, atol=1e-10)
        assert model.estimators_[k].dual_gap_ <= 1e-11


def test_the_samples_are_read_once(monkeypatch):
    X, y = samples()
    seen = []
    original = Accumulator.add
    monkeypatch.setattr(Accumulator, "add", lambda self, X, *rest: seen.append(len(X)) or original(self, X, *rest))
    HierarchicalTraceNormClassifier().fit(X, y)
    assert sum(seen) == len(X)


# --- the tree --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", ["ward", "average", "complete"])
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_the_tree_is_a_binary_partition(tree, n_classes):
    X, y = samples(n_classes=n_classes)
    model = HierarchicalTraceNormClassifier(tree=tree, tol=1e-3).fit(X, y)
    assert sorted(leaves(model.tree_)) == sorted(NAMES[:n_classes])
    assert model.nodes_ == pairs(model.tree_)
    assert len(model.nodes_) == len(model.estimators_) == n_classes - 1
    for left, right in model.nodes_:
        assert left
        assert right
        assert not set(left) & set(right)
        assert min(left) < min(right)
    assert model.coef_.shape == (n_classes - 1, *SHAPE)


def test_the_tree_joins_the_closest_means():
    X, y = samples(noise=0.1)
    model = HierarchicalTraceNormClassifier(tol=1e-3).fit(X, y)
    assert set(map(frozenset, model.nodes_[0])) == {frozenset(NAMES[::2]), frozenset(NAMES[1::2])}
    means = np.stack([X[y == name].mean(axis=0).ravel() for name in NAMES])
    first = linkage(means, "ward")[0, :2].astype(int)
    assert (NAMES[min(first)].item(), NAMES[max(first)].item()) in _subtrees(model.tree_)


def _subtrees(tree):
    return [tree, *_subtrees(tree[0]), *_subtrees(tree[1])] if isinstance(tree, tuple) else []


def test_a_tree_can_be_given():
    X, y = samples(n_classes=4)
    tree = ("date", (["cedar", "ash"], "birch"))
    model = HierarchicalTraceNormClassifier(tree=tree).fit(X, y)
    assert model.tree_ == ((("ash", "cedar"), "birch"), "date")
    assert np.mean(model.predict(X) == y) > 0.9
    numbers = HierarchicalTraceNormClassifier(tree=((np.int64(0), 2), 1)).fit(
        X[y != "date"], np.arange(len(X))[y != "date"] % 3
    )
    assert numbers.tree_ == ((0, 2), 1)


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        (("ash", "birch", "cedar"), "Expected a tree of nested pairs of labels, got 3 parts"),
        ((("ash", "birch"), "oak"), "Expected labels among .* in the tree, got 'oak'"),
        ((("ash", "birch"), "ash"), "Expected every one of the labels"),
        (("ash", "birch"), "Expected every one of the labels"),
    ],
)
def test_a_tree_that_does_not_fit_gets_one_sentence(tree, sentence):
    X, y = samples(n_classes=3)
    with pytest.raises(ValueError, match=sentence):
        HierarchicalTraceNormClassifier(tree=tree).fit(X, y)


# --- the model -------------------------------------------------------------------------------------------------------


def test_prediction_descends_the_tree_and_scores_agree():
    X, y = samples(noise=2.0)
    model = HierarchicalTraceNormClassifier().fit(X, y)
    predicted = model.predict(X)
    np.testing.assert_array_equal(predicted, descend(model, X))
    scores = model.decision_function(X)
    assert scores.shape == (len(X), 7)
    np.testing.assert_array_equal(NAMES[np.argmax(scores, axis=1)], predicted)
    assert np.all(np.sum(scores > 0, axis=1) == 1)


def test_of_two_classes_it_is_the_flat_model():
    X, y = samples(n_classes=2, noise=3.0)
    tree = HierarchicalTraceNormClassifier(tol=1e-11).fit(X, y)
    flat = TraceNormClassifier(tol=1e-11).fit(X, y)
    np.testing.assert_allclose(tree.decision_function(X), flat.decision_function(X), atol=1e-8)
    np.testing.assert_array_equal(tree.predict(X), flat.predict(X))


def test_it_helps_where_classes_crowd_in_few_dimensions():
    rng = np.random.default_rng(0)
    places = np.array([0.0, 1.0, 4.0, 5.0])  # on one line: a flat squared loss never chooses those in the middle
    y = np.arange(400) % 4
    X = 0.2 * rng.standard_normal((400, 3, 2))
    X[:, 0, 0] += places[y]
    flat = TraceNormClassifier(alpha=1e-3).fit(X, y).score(X, y)
    tree = HierarchicalTraceNormClassifier(alpha=1e-3).fit(X, y)
    assert tree.tree_ == ((0, 1), (2, 3))
    assert tree.score(X, y) > 0.97
    assert flat < 0.8


def test_balanced_classes_weigh_the_same():
    X, y = samples(noise=2.0)
    keep = (y != "elm") | (np.arange(len(y)) % 3 == 0)
    X, y = X[keep], y[keep]
    counts = {name: int(np.sum(y == name)) for name in NAMES}
    balanced = HierarchicalTraceNormClassifier(class_weight="balanced", tol=1e-11).fit(X, y)
    weight = np.array([1.0 / counts[name] for name in y])
    weighted = HierarchicalTraceNormClassifier(tol=1e-11).fit(X, y, sample_weight=weight)
    named = HierarchicalTraceNormClassifier(class_weight={k: 1 / v for k, v in counts.items()}, tol=1e-11).fit(X, y)
    np.testing.assert_allclose(balanced.coef_, weighted.coef_, atol=1e-8)
    np.testing.assert_allclose(balanced.coef_, named.coef_, atol=1e-8)
    without = HierarchicalTraceNormClassifier(class_weight={"elm": 0.0}, tol=1e-11).fit(X, y)
    assert "elm" not in leaves(without.tree_)
    assert "elm" not in without.predict(X)
    others = HierarchicalTraceNormClassifier(tol=1e-11).fit(X[y != "elm"], y[y != "elm"])
    np.testing.assert_allclose(without.coef_, others.coef_, atol=1e-8)
    with pytest.raises(ValueError, match="Expected class_weight to name classes"):
        HierarchicalTraceNormClassifier(class_weight={"oak": 2.0}).fit(X, y)


# --- online ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_batches_end_where_all_samples_do(class_weight):
    X, y = samples(noise=1.5)
    options = {"tol": 1e-11, "class_weight": class_weight}
    whole = HierarchicalTraceNormClassifier(**options).fit(X, y)
    online = HierarchicalTraceNormClassifier(**options)
    for part in np.split(np.arange(len(X)), [1, 30, 31, 140]):
        online.partial_fit(X[part], y[part], classes=NAMES)
    assert online.tree_ == whole.tree_
    np.testing.assert_allclose(online.coef_, whole.coef_, atol=1e-7)
    np.testing.assert_allclose(online.intercept_, whole.intercept_, atol=1e-7)
    for one, other in zip(online.class_moments_, whole.class_moments_, strict=True):
        np.testing.assert_allclose(one.gram, other.gram, atol=1e-9)


def test_classes_that_have_not_come_are_not_predicted():
    X, y = samples()
    online = HierarchicalTraceNormClassifier().partial_fit(X[y == "ash"], y[y == "ash"], classes=NAMES)
    assert online.tree_ == "ash"
    assert set(online.predict(X)) == {"ash"}
    own = np.isin(y, ["cedar", "fir"])
    online.partial_fit(X[own], y[own])
    assert sorted(leaves(online.tree_)) == ["ash", "cedar", "fir"]
    assert set(online.predict(X)) == {"ash", "cedar", "fir"}
    assert np.all(np.isneginf(online.decision_function(X)[:, NAMES == "elm"]))
    with pytest.raises(ValueError, match="Expected the classes of the first call"):
        online.partial_fit(X, y, classes=["oak", "ash"])
    with pytest.raises(ValueError, match="Expected classes in the first call"):
        HierarchicalTraceNormClassifier().partial_fit(X, y)


def test_forgetting_weighs_earlier_batches_less():
    X, y = samples(noise=1.5)
    online = HierarchicalTraceNormClassifier(forgetting=0.5, tol=1e-11)
    online.partial_fit(X[:100], y[:100], classes=NAMES).partial_fit(X[100:], y[100:])
    weight = np.where(np.arange(len(X)) < 100, 0.5, 1.0)
    weighted = HierarchicalTraceNormClassifier(tol=1e-11).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(online.coef_, weighted.coef_, atol=1e-7)


def test_nodes_that_stay_start_from_their_last_solution():
    X, y = samples(noise=1.5)
    online = HierarchicalTraceNormClassifier().partial_fit(X, y, classes=NAMES)
    cold = online.n_iter_
    assert online.partial_fit(X, y).n_iter_ < cold


# --- in the hands of scikit-learn ------------------------------------------------------------------------------------


def test_it_is_searched_stored_and_fed_flat_samples():
    X, y = samples(noise=1.5)
    search = GridSearchCV(HierarchicalTraceNormClassifier(tol=1e-3), {"alpha": [1e-2, 10.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"alpha": 1e-2}
    model = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(model.predict(X), search.predict(X))
    rows = HierarchicalTraceNormClassifier(tensor_shape=SHAPE).fit(X.reshape(len(X), -1), y)
    tensors = HierarchicalTraceNormClassifier().fit(X, y)
    assert rows.coef_.shape == (len(tensors.coef_), np.prod(SHAPE))
    np.testing.assert_array_equal(rows.coef_tensor_, tensors.coef_)
    np.testing.assert_array_equal(tensors.coef_tensor_, tensors.coef_)
    narrow = HierarchicalTraceNormClassifier().fit(X.astype(np.float32), y)
    assert narrow.coef_.dtype == np.float32


def test_samples_on_a_cluster_in_blocks_sparse_or_of_another_library_give_the_same_tree():
    X, y = samples()
    flat = sparse.csr_array(X.reshape(len(X), -1))
    codes = np.unique(y, return_inverse=True)[1]
    expected = HierarchicalTraceNormClassifier(alpha=0.05).fit(X, codes)
    others = {
        "dask": (da.from_array(X, chunks=(70, *X.shape[1:])), da.from_array(codes, chunks=70)),
        "blocks": ([(X[:70], codes[:70]), (X[70:], codes[70:])], None),
        "sparse": (flat, codes),
        "strict": (array_api_strict.asarray(X), array_api_strict.asarray(codes)),
    }
    for name, (given, target) in others.items():
        model = HierarchicalTraceNormClassifier(alpha=0.05, tensor_shape=X.shape[1:]).fit(given, target)
        assert model.tree_ == expected.tree_, name
        queries = given if name == "strict" else X
        scores = np.asarray(model.decision_function(queries))
        np.testing.assert_allclose(scores, expected.decision_function(X), atol=1e-6)
        np.testing.assert_array_equal(np.asarray(model.predict(queries)), expected.predict(X))
