"""What the search tries beside alpha: scaling, a ridge, another loss; and where paths end."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.linalg import hadamard
from sklearn.base import clone
from sklearn.datasets import load_digits
from tracelearn.problems.smooth import ArraySamples, DataLoss
from tracelearn.solvers.problems import Problems

from tracelearn import (
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    trace_norm_path,
)
from tracelearn.arrays.linalg import mode_scales
from tracelearn.datasets import make_low_rank_regression
from tracelearn.estimators.base import Batch
from tracelearn.penalties import OverlappedTraceNorm
from tracelearn.selection.search import Candidate, Table
from tracelearn.solvers.admm import _first_rho

SHAPE = (5, 3, 2)
EVEN = np.array([0.5, 0.5])
UNEVEN = np.array([1.0, 8.0, 0.5, 0.25, 4.0])  # powers of two, so that dividing by them rounds nothing


@pytest.fixture(scope="module")
def problem():
    X, y, _ = make_low_rank_regression(120, SHAPE, rank=1, random_state=2)
    return X * UNEVEN[:, None, None], y


def by_hand(X):
    """Divide samples by their scales."""
    return X / mode_scales(X.reshape(len(X), -1).var(axis=0), X.shape[1:]).reshape(X.shape[1:])


# --- scaling ----------------------------------------------------------------------------------------------------------

SCALED = {
    "moments": (TraceNormRegressor(0.3), 120),
    "kernel": (TraceNormRegressor(0.3), 12),
    "huber": (TraceNormRegressor(0.3, loss="huber"), 120),
    "three classes": (TraceNormClassifier(0.05, class_mode=True), 120),
    "logistic": (TraceNormClassifier(0.02, loss="logistic"), 120),
    "no intercept": (TraceNormRegressor(0.3, fit_intercept=False), 120),
}


def targets_for(model, y):
    return np.digitize(y, np.quantile(y, [0.3, 0.6])) if isinstance(model, TraceNormClassifier) else y


@pytest.mark.parametrize("name", SCALED)
def test_scaling_is_dividing_samples_by_their_scales(problem, name):
    model, n = SCALED[name]
    X, y = problem[0][:n], targets_for(model, problem[1])[:n]
    model = clone(model).set_params(tol=1e-9)
    found = clone(model).set_params(scaling="modes").fit(X, y)
    expected = clone(model).fit(by_hand(X), y)
    score = "decision_function" if isinstance(model, TraceNormClassifier) else "predict"
    assert_allclose(getattr(found, score)(X), getattr(expected, score)(by_hand(X)), atol=1e-6)
    assert found.mode_ranks_.tolist() == expected.mode_ranks_.tolist()
    assert np.min(expected.mode_ranks_) < max(SHAPE)
    assert (found.objective_, found.dual_gap_ <= 1e-9) == (pytest.approx(expected.objective_), True)
    assert not np.allclose(clone(model).fit(X, y).coef_, found.coef_, rtol=0.01)


def test_a_path_is_scaled_as_a_fit_is(problem):
    X, y = problem
    path = trace_norm_path(X, y, estimator=TraceNormRegressor(scaling="modes"), alphas=3, eps=0.1)
    for alpha, coef in zip(path.alphas, path.coefs, strict=True):
        fitted = TraceNormRegressor(alpha, scaling="modes").fit(X, y)
        assert_allclose(coef, fitted.coef_, atol=5e-3 * np.abs(fitted.coef_).max() + 1e-9)


@pytest.mark.parametrize("factors", [[0.5, 0.5, 0.5, 0.5, 2.0], [1.0, 64.0, 0.25, 4.0, 1.0]])
def test_units_of_the_slices_of_a_mode_make_no_difference(factors):
    # Entries of a Hadamard matrix have one variance exactly, so that scales are the factors and nothing else.
    X = np.vstack([hadamard(16)] * 3)[:, 1:].reshape(-1, 5, 3).astype(float)
    y = X[:, 0, 0] + 0.5 * X[:, 3, 1] + np.random.default_rng(0).standard_normal(len(X))
    factors = np.array(factors)
    other = X * factors[:, None]
    # Scales are relative: what all slices have in common stays in the samples, and alpha is in its units.
    unit = np.sqrt(np.mean(factors**2))
    plain = TraceNormRegressor(0.2, scaling="modes", tol=1e-10).fit(X, y)
    scaled = TraceNormRegressor(0.2 * unit, scaling="modes", tol=1e-10).fit(other, y)
    assert_allclose(scaled.predict(other), plain.predict(X), atol=1e-9)
    search = TraceNormRegressorCV(alphas=8, cv=3, scaling="modes")
    assert_allclose(clone(search).fit(other, y).predict(other), clone(search).fit(X, y).predict(X), atol=1e-5)
    unscaled = TraceNormRegressor(0.2 * unit, tol=1e-10).fit(other, y)
    assert not np.allclose(unscaled.predict(other), plain.predict(X), atol=1e-2)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_auto_scaling_is_chosen_where_units_differ_and_not_without_need(problem, loss):
    X, y = problem
    search = TraceNormRegressorCV(alphas=5, cv=3, loss=loss, mode_weights=None)
    assert clone(search).fit(X, y).scaling_ == "modes"
    # What has a large scale is what counts here: dividing by it would make the noise as large.
    loud = X / UNEVEN[:, None, None] * np.array([1.0, 0.01, 0.01, 0.01, 0.01])[:, None, None]
    assert clone(search).fit(loud, loud[:, 0, 0, 0]).scaling_ is None


@pytest.mark.parametrize("scaling", [None, "modes"])
def test_given_scaling_is_the_only_one_and_that_of_the_model_found(problem, scaling):
    search = TraceNormRegressorCV(alphas=4, cv=3, scaling=scaling).fit(*problem)
    assert {candidate["scaling"] for candidate in search.cv_results_["candidates"]} == {scaling}
    assert search.scaling_ == search.best_estimator_.scaling == scaling


@pytest.mark.parametrize("n", [120, 5], ids=["many", "few"])
@pytest.mark.parametrize("ridges", ["auto", (0.0,)], ids=["ridge searched", "ridge given"])
def test_scaling_of_sparse_samples_is_refused_in_a_sentence(problem, n, ridges):
    X, y = sparse.csr_array(problem[0].reshape(120, -1)[:n]), problem[1][:n]
    options = {"tensor_shape": SHAPE, "scaling": "modes"}
    for model in (TraceNormRegressor(**options), TraceNormRegressorCV(alphas=3, cv=2, ridges=ridges, **options)):
        with pytest.raises(ValueError, match="Expected dense samples with scaling='modes', got a sparse matrix"):
            model.fit(X, y)
    with pytest.raises(ValueError, match="Expected dense samples with scaling='modes', got a sparse matrix"):
        trace_norm_path(X, y, estimator=TraceNormRegressor(**options))
    assert TraceNormRegressorCV(alphas=3, cv=2, tensor_shape=SHAPE).fit(X, y).scaling_ is None


def test_blocks_are_scaled_by_their_moments_and_refused_where_there_are_none(problem):
    X, y = problem
    blocks = [(X[:50], y[:50]), (X[50:], y[50:])]
    whole = TraceNormRegressor(0.3, scaling="modes").fit(X, y)
    assert_allclose(TraceNormRegressor(0.3, scaling="modes").fit(blocks).coef_, whole.coef_, atol=1e-8)
    options = {"scaling": "modes", "loss": "huber"}
    for model in (TraceNormRegressor(**options), TraceNormRegressorCV(alphas=3, cv=2, ridges=(0.0,), **options)):
        with pytest.raises(ValueError, match="Expected scaling=None where samples are read again and again in blocks"):
            model.fit(blocks)
    assert TraceNormRegressorCV(alphas=3, cv=2, loss="huber").fit(blocks).scaling_ is None


def test_the_samples_are_read_once_whatever_is_searched(problem, monkeypatch):
    X, y = problem
    rows = []
    original = Batch.moments
    monkeypatch.setattr(Batch, "moments", lambda self, past=None: rows.append(len(self.X)) or original(self, past))
    TraceNormRegressorCV(alphas=5, cv=4, class_mode="auto").fit(X, y)
    assert sum(rows) == len(X)


# --- ridge ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, None])
@pytest.mark.parametrize("seed", range(3))
def test_auto_ridges_are_never_worse_on_held_out_samples_than_none(rank, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 4, 3, 3))
    W = rng.standard_normal((4, 3, 3)) if rank is None else np.einsum("i,j,k", *map(rng.standard_normal, (4, 3, 3)))
    y = np.tensordot(X, W, 3) + 2.0 * rng.standard_normal(60)
    auto = TraceNormRegressorCV(alphas=12, cv=4).fit(X, y)
    none = TraceNormRegressorCV(alphas=12, cv=4, ridges=(0.0,)).fit(X, y)
    assert auto.best_score_ >= none.best_score_
    ridges = [candidate["ridge"] for candidate in auto.cv_results_["candidates"]]
    assert ridges[:-1] == [0.0] * 4
    assert ridges[-1] > 0.0
    # The one with a ridge has the mode weights that were best without.
    means = [min(mean) for mean in auto.cv_results_["mean_error"]]
    weights = [candidate["mode_weights"] for candidate in auto.cv_results_["candidates"]]
    assert weights[-1] == weights[int(np.argmin(means[:-1]))]
    assert auto.best_index_ == int(np.argmin(means))


def test_a_ridge_is_found_where_weights_have_no_structure():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 6, 6))
    y = np.tensordot(X, np.eye(6) + 0.3 * rng.standard_normal((6, 6)), 2) + 3.0 * rng.standard_normal(50)
    auto = TraceNormRegressorCV(alphas=12, cv=4).fit(X, y)
    assert auto.ridge_ == auto.best_estimator_.ridge > 0.0
    assert auto.best_score_ > TraceNormRegressorCV(alphas=12, cv=4, ridges=(0.0,)).fit(X, y).best_score_


# --- loss -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def skewed():
    """Make two classes whose border a squared loss moves, because some samples are far on their right side."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 3, 4))
    X[:, 0, 0] = np.where(np.arange(150) % 5 == 0, 30.0, X[:, 0, 0])
    return X, np.where(X[:, 0, 0] > 0.0, "up", "down")


@pytest.fixture(scope="module")
def even():
    """Classes far enough apart that any loss finds all of them."""
    rng = np.random.default_rng(1)
    y = np.arange(150) % 2 == 0
    X = rng.standard_normal((150, 3, 4))
    X[:, 0, 0] += np.where(y, 8.0, -8.0)
    return X, y


def test_auto_loss_is_logistic_where_that_finds_more_classes(skewed):
    X, y = skewed
    model = TraceNormClassifierCV(alphas=12, cv=3)
    assert not hasattr(model, "predict_proba")
    model.fit(X, y)
    assert model.loss_ == model.best_estimator_.loss == "logistic"
    assert not hasattr(model, "moments_")
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert model.score(X, y) > TraceNormClassifierCV(alphas=12, cv=3, loss="squared").fit(X, y).score(X, y)
    tried = [(candidate["loss"], candidate["scaling"]) for candidate in model.cv_results_["candidates"]]
    losses = [loss for loss, _ in tried]
    assert losses[:5] == ["squared", "squared", "logistic", "logistic", "logistic"]  # the last with some ridge
    assert {scaling for _, scaling in tried[2:4]} == {None, "modes"}
    assert model.best_index_ >= 2


def test_a_ridge_that_is_too_much_for_another_loss_is_eased_as_long_as_that_clearly_helps():
    digits = load_digits()
    model = TraceNormClassifierCV(alphas=15, cv=3, loss="logistic", scaling=None).fit(
        digits.images[:80], digits.target[:80]
    )
    results = model.cv_results_
    ridges = [candidate["ridge"] for candidate in results["candidates"]][1:]  # the first is none at all
    assert 1 < len(ridges) <= 3
    assert_allclose(ridges[1:], np.array(ridges[:-1]) / 10)
    lowest = np.array([min(mean) for mean in results["mean_error"]][1:])
    at_end = [np.argmin(mean) == len(mean) - 1 for mean in results["mean_error"]][1:]
    needed = [
        error[np.argmin(mean)] for error, mean in zip(results["standard_error"], results["mean_error"], strict=True)
    ]
    falls = lowest[:-1] - lowest[1:] > needed[1:-1]
    assert all(at_end[:-1])
    assert all(falls[:-1])  # each step but perhaps the last was worth it
    assert len(ridges) == 3 or not (falls[-1] and at_end[-1])


def test_tables_of_the_same_folds_are_compared_by_their_standard_errors():
    def table(*means):
        return Table(
            Candidate(), np.geomspace(1, 0.1, len(means)), np.array([[m - 0.1, m + 0.1] for m in means]), None, EVEN
        )

    falling, flat = table(3.0, 2.0, 1.0), table(1.0, 1.0, 1.0)
    assert falling.ends_at_its_best
    assert not flat.ends_at_its_best
    assert_allclose(flat.spread, 0.1)
    assert table(0.89).is_clearly_below(falling)
    assert not table(0.91).is_clearly_below(falling)


def test_auto_loss_stays_squared_and_goes_on_learning_where_the_other_finds_no_more(even):
    X, y = even
    model = TraceNormClassifierCV(alphas=12, cv=3).fit(X, y)
    assert model.loss_ == "squared"
    assert not hasattr(model, "predict_proba")
    squared = TraceNormClassifierCV(alphas=12, cv=3, loss="squared").fit(X, y)
    np.testing.assert_array_equal(model.coef_, squared.coef_)
    assert model.moments_.n_features == 12
    more = clone(model.best_estimator_).fit(X, y).partial_fit(X[:10], y[:10])
    assert more.moments_.weight == 160


def test_before_a_fit_the_reason_that_there_are_no_probabilities_is_told():
    with pytest.raises(AttributeError) as caught:
        TraceNormClassifierCV().predict_proba  # noqa: B018
    assert "fit first, or name the loss" in str(caught.value.__cause__)
    assert hasattr(TraceNormClassifierCV(loss="logistic"), "predict_proba")
    assert not hasattr(TraceNormClassifierCV(loss="squared"), "predict_proba")


def test_a_scorer_chooses_between_losses(skewed):
    X, y = skewed
    model = TraceNormClassifierCV(alphas=9, cv=3, scoring="accuracy").fit(X, y)
    assert model.loss_ == "logistic"
    assert model.best_score_ == pytest.approx(max(max(mean) for mean in model.cv_results_["mean_error"]))


def test_only_the_squared_loss_is_tried_where_the_samples_come_in_blocks(skewed):
    X, y = skewed
    model = TraceNormClassifierCV(alphas=4, cv=3).fit([(X[:70], y[:70]), (X[70:], y[70:])])
    assert {candidate["loss"] for candidate in model.cv_results_["candidates"]} == {"squared"}


# --- alphas -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noise():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4, 4))
    return X, X[:, 0, 0] + 3.0 * rng.standard_normal(60)


def test_a_path_on_its_own_grid_ends_where_it_is_past_its_best(noise):
    plain = {"mode_weights": None, "ridges": (0.0,), "scaling": None}
    short = TraceNormRegressorCV(alphas=40, **plain).fit(*noise)
    grid = np.geomspace(short.alphas_[0], 1e-4 * short.alphas_[0], 40)
    assert len(short.mse_path_) == len(short.alphas_) < 40
    assert_allclose(short.alphas_, grid[: len(short.alphas_)])
    means = short.mse_path_.mean(axis=1)
    assert short.alpha_ == short.alphas_[np.argmin(means)]
    whole = TraceNormRegressorCV(alphas=grid, **plain).fit(*noise)
    assert_allclose(whole.alphas_, grid)
    assert whole.mse_path_.shape == (40, 5)
    assert_allclose(whole.mse_path_[: len(means)], short.mse_path_, rtol=1e-6)
    assert whole.alpha_ == pytest.approx(short.alpha_)


def test_results_are_lists_with_one_entry_for_each_candidate(noise):
    search = TraceNormRegressorCV(alphas=30, cv=3).fit(*noise)
    results = search.cv_results_
    sizes = {name: len(values) for name, values in results.items()}
    assert set(sizes) == {"candidates", "alphas", "mean_error", "standard_error"}
    assert len(set(sizes.values())) == 1
    for alphas, mean, spread in zip(*(results[name] for name in list(sizes)[1:]), strict=True):
        assert len(alphas) == len(mean) == len(spread) <= 30
    assert_allclose(results["alphas"][search.best_index_], search.alphas_)
    assert results["candidates"][search.best_index_]["ridge"] == search.ridge_


# --- the solvers below ------------------------------------------------------------------------------------------------


def three_classes(shape=(4, 3)):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, *shape)) + 2.0
    flat = X.reshape(60, -1)
    return X, np.digitize(flat[:, 0] + 0.5 * flat[:, 4], [2.5, 3.5])


@pytest.mark.parametrize("class_mode", [False, True])
def test_at_the_largest_alpha_newton_finds_zero_at_once(class_mode):
    X, y = three_classes((4, 3, 2))
    model = TraceNormClassifier(loss="logistic", solver="newton", class_mode=class_mode)
    top = trace_norm_path(X, y, estimator=model, alphas=2).alphas[0]
    model.set_params(alpha=top).fit(X, y)
    assert not model.coef_.any()
    assert model.n_iter_ == 0
    assert model.dual_gap_ <= 1e-6


@pytest.mark.parametrize("share", [0.5, 0.01])
def test_the_first_step_for_coupled_classes_is_that_of_the_exact_weights(share):
    X, y = three_classes()
    Y = (y[:, None] == np.arange(3)).astype(float)
    model = TraceNormClassifier(loss="logistic")
    samples = ArraySamples(X.reshape(60, -1), Y, np.full(60, 1 / 60))
    loss = DataLoss.of(model._loss(3), samples)
    W = np.zeros((3, 12))
    squares = loss.model(W, loss.evaluate(W))
    penalty = OverlappedTraceNorm((4, 3))
    problems = Problems.of(squares, penalty, np.array([share]))
    damping = squares.system.mean_eigenvalue()
    exact = squares.system.solver(np.full(3, damping))(squares.at_zero.gradient)
    force = np.sqrt(4)  # of the first mode: for matrices both modes have the same norm
    assert_allclose(_first_rho(problems), 0.9 * force * share / np.linalg.norm(exact), rtol=0.01)
