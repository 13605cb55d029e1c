"""Sparse samples: the same answers and the same proofs as from dense ones, and nothing filled in on the way."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import get_tags

from tracelearn import (
    Moments,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
)
from tracelearn.arrays.linalg import pairwise_grams
from tracelearn.losses import Huber
from tracelearn.problems.sparse_operators import SparseGram
from tracelearn.samples.rows import read_rows

SHAPE = (5, 4, 3)
P = 60
KINDS = [sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.csc_matrix, sparse.coo_array, sparse.coo_matrix]


def scattered(n, seed=0):
    """Rows with entries here and there, about a tenth of them."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, P)) < 0.08, rng.normal(1.0, 1.0, (n, P)), 0.0)


def entries(n, seed=0):
    """Rows with a single one, some of them in the same place."""
    rng = np.random.default_rng(seed)
    return np.eye(P)[rng.integers(0, P, n)]


# Each is solved in another way: a dense gram, a diagonal, the kernel of few rows, conjugate gradients.
ROWS = {
    "many": lambda: scattered(150),
    "single entries": lambda: entries(50),
    "few": lambda: scattered(40),
    "neither many nor few": lambda: scattered(40),
}

MODELS = {
    "squared_error": TraceNormRegressor(loss="squared_error"),
    "huber": TraceNormRegressor(loss=Huber(0.5)),
    "squared, classes": TraceNormClassifier(loss="squared_error"),
    "squared hinge": TraceNormClassifier(loss="squared_hinge"),
    "log_loss": TraceNormClassifier(loss="log_loss"),
    "poisson": TraceNormRegressor(loss="poisson"),
}


@pytest.fixture(params=ROWS)
def rows(request, monkeypatch):
    if request.param == "neither many nor few":
        for module in ("sparse_operators", "forms", "sample_loss"):
            monkeypatch.setattr(f"tracelearn.problems.{module}.LARGEST_DENSE", 1)
    return ROWS[request.param]()


def targets_for(model, rows, n_classes=2):
    scores = rows @ np.random.default_rng(7).normal(size=P) + np.random.default_rng(8).normal(size=len(rows))
    if model.get_params().get("loss") == "poisson":
        return np.round(np.exp(np.clip(scores, -3.0, 2.0)))
    if isinstance(model, TraceNormRegressor):
        return scores
    return np.searchsorted(np.quantile(scores, np.arange(1, n_classes) / n_classes), scores)


def fitted_both(model, rows, y, kind=sparse.csr_array, **options):
    model = clone(model).set_params(tensor_shape=SHAPE, tol=1e-11, max_iter=20_000)
    return clone(model).fit(kind(rows), y, **options), clone(model).fit(rows, y, **options)


def assert_same(found, expected, scale=1.0):
    assert found.dual_gap_ <= found.tol
    assert_allclose(found.objective_, expected.objective_, rtol=0, atol=1e-8 * scale)
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8 * scale)
    assert_allclose(found.intercept_, expected.intercept_, rtol=0, atol=1e-8 * scale)
    assert_allclose(found.patterns_, expected.patterns_, rtol=0, atol=1e-8 * scale)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_sparse_samples_give_the_model_of_dense_ones(name, rows, fit_intercept):
    model = MODELS[name].set_params(alpha=0.01, ridge=0.05, fit_intercept=fit_intercept)
    y = targets_for(model, rows)
    weight = np.random.default_rng(3).uniform(0.5, 2.0, len(rows))
    assert_same(*fitted_both(model, rows, y, sample_weight=weight))


@pytest.mark.parametrize("target_mode", [False, True])
@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_several_classes_of_sparse_samples_give_the_model_of_dense_ones(loss, rows, target_mode):
    model = TraceNormClassifier(alpha=0.01, ridge=0.05, loss=loss, target_mode=target_mode, class_weight="balanced")
    assert_same(*fitted_both(model, rows, targets_for(model, rows, 3)))


def test_several_targets_of_sparse_samples_give_the_model_of_dense_ones(rows):
    y = rows @ np.random.default_rng(1).normal(size=(P, 2))
    assert_same(*fitted_both(TraceNormRegressor(alpha=0.01, ridge=0.05), rows, y))


@pytest.mark.parametrize("penalty", ["latent", "scaled_latent"])
def test_every_penalty_takes_sparse_samples(penalty, rows):
    model = TraceNormRegressor(alpha=0.01, ridge=0.05, penalty=penalty)
    assert_same(*fitted_both(model, rows, targets_for(model, rows)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_sparse_kind_is_read_and_left_as_it_was(kind):
    rows = scattered(40)
    y, given = targets_for(TraceNormRegressor(), rows), kind(rows)
    model = TraceNormRegressor(alpha=0.01, ridge=0.05, tensor_shape=SHAPE).fit(given, y)
    assert_allclose(model.predict(given), model.predict(rows), rtol=0, atol=1e-12)
    assert model.predict(given).shape == (40,)
    assert_array_equal(given.toarray(), rows)


def test_entries_that_are_stored_twice_count_as_their_sum():
    rows = entries(50)
    twice = sparse.csr_array(
        (np.full(100, 0.5), np.repeat(rows.argmax(axis=1), 2), np.arange(0, 101, 2)), shape=rows.shape
    )
    y = targets_for(TraceNormRegressor(), rows)
    model = TraceNormRegressor(alpha=0.01, tensor_shape=SHAPE)
    assert_allclose(clone(model).fit(twice, y).coef_, clone(model).fit(sparse.csr_array(rows), y).coef_, atol=1e-12)
    assert twice.nnz == 100
    assert read_rows(twice, name="model", any_library=True).rows.nnz == 50


def test_the_hessian_of_several_classes_is_that_of_dense_rows():
    rng, rows = np.random.default_rng(0), scattered(150)
    coupling, share, contrasts = rng.dirichlet(np.ones(3), 150), rng.random(150), np.linalg.qr(rng.random((3, 2)))[0]
    found = pairwise_grams(sparse.csr_array(rows), coupling, share, contrasts)
    for one, expected in zip(found, pairwise_grams(rows, coupling, share, contrasts), strict=True):
        assert_allclose(one, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_sparse_samples_of_other_numbers_keep_their_precision(dtype):
    rows = entries(50).astype(dtype)
    y = targets_for(TraceNormRegressor(), rows)
    found = TraceNormRegressor(alpha=0.01, tensor_shape=SHAPE).fit(sparse.csr_array(rows), y)
    assert found.coef_.dtype == TraceNormRegressor(alpha=0.01, tensor_shape=SHAPE).fit(rows, y).coef_.dtype


def test_probabilities_and_scores_of_sparse_samples_are_those_of_dense_ones():
    rows = scattered(150)
    y = targets_for(MODELS["log_loss"], rows, 3)
    model = TraceNormClassifier(loss="log_loss", tensor_shape=SHAPE).fit(sparse.csr_array(rows), y)
    for method in ("predict", "predict_proba", "decision_function"):
        assert_allclose(getattr(model, method)(sparse.coo_array(rows)), getattr(model, method)(rows), atol=1e-12)


@pytest.mark.parametrize("scoring", [None, "r2"])
def test_cross_validation_of_sparse_samples_finds_what_dense_ones_do(rows, scoring):
    y = targets_for(TraceNormRegressor(), rows)
    # Only dense samples are scaled.
    options = {"ridges": (0.0, 0.05), "scaling": None}
    search = TraceNormRegressorCV([0.1, 0.03, 0.01], cv=3, tensor_shape=SHAPE, scoring=scoring, **options)
    found, expected = clone(search).fit(sparse.csr_array(rows), y), clone(search).fit(rows, y)
    assert_allclose(found.alphas_, expected.alphas_, rtol=1e-8)
    assert_allclose(found.score_path_, expected.score_path_, rtol=0, atol=5e-2)
    assert (found.alpha_, found.ridge_) == pytest.approx((expected.alpha_, expected.ridge_))


def test_cross_validation_of_sparse_samples_takes_other_losses(rows):
    y = targets_for(TraceNormClassifier(), rows)
    options = {"ridges": (0.0, 0.05), "scaling": None}
    search = TraceNormClassifierCV([0.03, 0.01], loss="log_loss", cv=2, tensor_shape=SHAPE, **options)
    found, expected = clone(search).fit(sparse.csr_array(rows), y), clone(search).fit(rows, y)
    assert_allclose(found.score_path_, expected.score_path_, atol=0.05)


def test_a_path_over_sparse_samples_is_that_over_dense_ones(rows):
    y = targets_for(TraceNormRegressor(), rows)
    alphas = [0.3, 0.1, 0.03, 0.01]
    model = TraceNormRegressorCV(alphas, cv=2, ridges=[0.05], tensor_shape=SHAPE, tol=1e-11)
    found, expected = clone(model).fit(sparse.csr_array(rows), y), clone(model).fit(rows, y)
    assert_allclose(found.coef_path_, expected.coef_path_, rtol=0, atol=1e-7)
    assert found.path_["gap"].max() <= 1e-11


def test_moments_of_sparse_samples_add_up_with_those_of_dense_ones():
    rows, rng = scattered(150), np.random.default_rng(0)
    y, weight = rng.normal(size=(150, 2)), rng.uniform(0.5, 2.0, 150)
    whole = Moments.of(rows, y, weight)
    mixed = Moments.of(rows[:40], y[:40], weight[:40]).updated(sparse.csr_array(rows[40:]), y[40:], weight[40:])
    for name in ("weight", "x_mean", "y_mean", "gram", "cross", "target_sq"):
        assert_allclose(getattr(mixed, name), getattr(whole, name), rtol=1e-12, atol=1e-12)


def test_partial_fit_and_forget_take_sparse_samples():
    rows = scattered(150)
    y = targets_for(TraceNormRegressor(), rows)
    model = TraceNormRegressor(alpha=0.01, ridge=0.05, tensor_shape=SHAPE, tol=1e-11)
    online = (
        clone(model).partial_fit(sparse.csr_array(rows[:90]), y[:90]).partial_fit(sparse.coo_array(rows[90:]), y[90:])
    )
    assert_allclose(online.coef_, clone(model).fit(rows, y).coef_, rtol=0, atol=1e-8)
    online.forget(sparse.csr_array(rows[90:]), y[90:])
    assert_allclose(online.coef_, clone(model).fit(rows[:90], y[:90]).coef_, rtol=0, atol=1e-8)


def test_a_feature_far_from_zero_loses_no_digits_in_sparse_moments():
    rows = scattered(150)
    rows[:, 0] = 1e6 + np.random.default_rng(0).normal(size=150)
    found, expected = Moments.of(sparse.csr_array(rows), np.zeros(150)), Moments.of(rows, np.zeros(150))
    assert_allclose(found.gram[0], expected.gram[0], rtol=1e-8, atol=1e-8)


def test_a_feature_far_from_zero_loses_no_digits_among_many_that_are_empty():
    rows = np.zeros((150, 30))  # so few entries that they would be summed as such
    rows[:, 0] = 1e6 + np.random.default_rng(0).normal(size=150)
    found, expected = Moments.of(sparse.csr_array(rows), np.zeros(150)), Moments.of(rows, np.zeros(150))
    assert_allclose(found.gram, expected.gram, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("centre", [True, False])
def test_a_sparse_gram_is_the_weighted_covariance_and_solves_it(rows, centre):
    rng = np.random.default_rng(0)
    weight, right = rng.uniform(0.1, 2.0, len(rows)), rng.normal(size=(2, P))
    system = SparseGram.of(sparse.csr_array(rows), weight, centre=centre)
    deviations = rows - (weight @ rows / weight.sum() if centre else 0.0)
    matrix = (deviations.T * weight) @ deviations
    values = np.linalg.eigvalsh(matrix)
    assert_allclose(system.apply(right), right @ matrix, rtol=0, atol=1e-12 * values[-1] * np.abs(right).max())
    assert_allclose(system.mean_eigenvalue, values.mean(), rtol=1e-12)
    assert values[-1] <= system.largest() <= 1.2 * values[-1]
    assert system.smallest() <= max(values[0], 0.0) + 1e-12 * values[-1]
    for level in (1e-3, 10.0):
        shift = np.full(2, level) * values[-1]
        solved = system.solver(shift)(right)
        assert_allclose(solved @ matrix + shift[:, None] * solved, right, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
@pytest.mark.parametrize("n", [40, 150])
def test_a_number_that_is_not_finite_is_named_with_its_place(value, word, n):
    rows = scattered(n)
    rows[17, 13] = value
    with pytest.raises(ValueError, match=rf"got {word} at sample 17, entry \(1, 0, 1\)"):
        TraceNormRegressor(tensor_shape=SHAPE).fit(sparse.csr_array(rows), np.arange(float(n)))


@pytest.mark.parametrize("kind", [TraceNormRegressor, TraceNormRegressorCV])
def test_sparse_samples_are_not_asked_for_where_they_would_be_scaled(kind):
    assert get_tags(kind()).input_tags.sparse
    model = kind(scaling="modes", tensor_shape=SHAPE)
    assert not get_tags(model).input_tags.sparse
    with pytest.raises(ValueError, match=r"^Expected dense samples with scaling='modes'"):
        model.fit(sparse.csr_array(scattered(40)), np.arange(40.0))


def test_a_tensor_is_completed_from_six_tenths_of_its_entries():
    rng = np.random.default_rng(0)
    shape, ranks = (15, 14, 12), (2, 2, 2)
    W = rng.normal(size=ranks)
    for mode, size in enumerate(shape):
        W = np.moveaxis(np.tensordot(rng.normal(size=(size, ranks[mode])), W, axes=(1, mode)), 0, mode)
    seen = rng.permutation(W.size)[: int(0.6 * W.size)]
    X = sparse.csr_array((np.ones(len(seen)), (np.arange(len(seen)), seen)), shape=(len(seen), W.size))
    y = W.ravel()[seen]
    model = TraceNormRegressor(alpha=1e-6 * y.std(), tol=1e-9, fit_intercept=False, tensor_shape=shape).fit(X, y)
    assert model.dual_gap_ <= 1e-9
    assert np.linalg.norm(model.coef_tensor_ - W) <= 1e-3 * np.linalg.norm(W)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_samples_of_many_features_take_memory_for_their_entries_alone(loss):
    rng = np.random.default_rng(0)
    shape, n = (30, 30, 10), 3000
    p = 30 * 30 * 10
    X = sparse.csr_array((np.ones(n), (np.arange(n), rng.integers(0, p, n))), shape=(n, p))
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    kind = TraceNormRegressor if loss == "squared_error" else TraceNormClassifier
    model = kind(alpha=1e-4, loss=loss, tensor_shape=shape, tol=1e-3)
    tracemalloc.start()
    model.fit(X, y).predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    dense = 8 * n * p
    assert peak < 0.05 * dense
