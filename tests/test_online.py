"""Online after the last sample is batch on the same samples, whatever the batches were."""

import pickle

import numpy as np
import pytest

from tracelearn import Moments, TraceNormClassifier, TraceNormRegressor, tensor_trace_norm
from tracelearn.paper import PaperRegressor

SHAPE = (3, 2, 3)
N = 120


def far_samples(n=N, seed=0):
    """Draw features whose mean is a thousand times their spread, and a target that depends on the spread."""
    rng = np.random.default_rng(seed)
    mean = 1000.0 * rng.choice([-1.0, 1.0], SHAPE) * rng.uniform(0.8, 1.2, SHAPE)
    X = rng.standard_normal((n, *SHAPE))
    W = np.einsum("i,j,k->ijk", *(rng.standard_normal(size) for size in SHAPE))
    y = X.reshape(n, -1) @ W.ravel()
    return X + mean, y / y.std() + 0.3 * rng.standard_normal(n) + 50.0


def batches(n, size):
    return [slice(start, start + size) for start in range(0, n, size)]


def agree(online, batch, tol, X):
    """Both objectives are within ``tol`` of the optimum, relative to the variance; weights within its root."""
    assert online.dual_gap_ <= tol
    assert batch.dual_gap_ <= tol
    assert online.moments_.weight == pytest.approx(batch.moments_.weight)
    assert abs(online.objective_ - batch.objective_) <= 2 * tol * max(batch.moments_.target_sq / batch.moments_.weight)
    size = np.abs(batch.coef_).max()
    np.testing.assert_allclose(online.coef_, batch.coef_, atol=10 * np.sqrt(tol) * size)
    left, right = (
        model.predict(X) if isinstance(model, TraceNormRegressor) else model.decision_function(X)
        for model in (online, batch)
    )
    np.testing.assert_allclose(left, right, atol=20 * np.sqrt(tol))


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("solver", ["admm", "apg"])
def test_after_the_last_sample_a_regressor_is_the_one_of_the_batch(size, solver):
    n = (50 if solver == "admm" else 25) if size == 1 else N  # a solve for every single sample takes a while
    X, y = far_samples(n)
    tol = 1e-9 if solver == "admm" else 1e-6
    options = {"alpha": 0.2, "solver": solver, "tol": tol, "max_iter": 20000}
    online = TraceNormRegressor(**options)
    for part in batches(n, size):
        online.partial_fit(X[part], y[part])
    agree(online, TraceNormRegressor(keep_moments=True, **options).fit(X, y), tol, X)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("target_mode", [False, True])
def test_after_the_last_sample_a_classifier_is_the_one_of_the_batch(size, n_classes, target_mode):
    X, y = far_samples()
    names = np.array(["ash", "birch", "cedar"])
    labels = names[np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))]
    options = {"alpha": 0.05, "target_mode": target_mode, "tol": 1e-8, "max_iter": 20000}
    online = TraceNormClassifier(**options)
    for part in batches(N, size):
        online.partial_fit(X[part], labels[part], classes=names[:n_classes][::-1])
    assert list(online.classes_) == sorted(names[:n_classes])
    agree(online, TraceNormClassifier(keep_moments=True, **options).fit(X, labels), 1e-8, X)


@pytest.mark.parametrize("penalty", ["overlapped", "latent", "scaled_latent"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_every_penalty_learns_online_with_and_without_intercept(penalty, fit_intercept):
    X, y = far_samples()
    X = X / 1000.0 if not fit_intercept else X  # the raw second moment of far features is singular to rounding
    options = {"alpha": 0.1, "penalty": penalty, "fit_intercept": fit_intercept, "tol": 1e-7, "max_iter": 20000}
    online = TraceNormRegressor(**options)
    for part in batches(N, 30):
        online.partial_fit(X[part], y[part])
    batch = TraceNormRegressor(keep_moments=True, **options).fit(X, y)
    assert online.dual_gap_ <= 1e-7
    scale = np.mean(y**2)
    assert abs(online.objective_ - batch.objective_) <= 2e-7 * scale


def test_several_targets_learn_online_and_every_update_is_certified():
    # Targets of one batch end at different iterations with different steps; the next update must not mix them up.
    X, y = far_samples()
    targets = np.stack([y, -2.0 * y, np.cos(y)], axis=1)
    options = {"alpha": 0.05, "tol": 1e-8, "max_iter": 20000}
    online = TraceNormRegressor(**options)
    for part in batches(N, 7):
        online.partial_fit(X[part], targets[part])
        assert online.dual_gap_ <= 1e-8
    agree(online, TraceNormRegressor(keep_moments=True, **options).fit(X, targets), 1e-8, X)


@pytest.mark.parametrize("inner", ["ADM", "DR"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_paper_online_carries_the_same_past_and_goes_on_from_the_last_model(inner, size):
    # Its rule of 1e-10 is out of reach within a test, so what is compared is what Algorithm 2 promises: the past
    # (lines 5 to 9) is that of the batch, and iterations from it descend on the objective of the batch, from the last
    # model (line 11).
    rng = np.random.default_rng(1)
    n, alpha = 28, 0.2
    X = rng.standard_normal((n, 2, 2))
    y = X.reshape(n, -1) @ np.array([1.0, -1.0, 0.5, -0.5]) + 0.2 * rng.standard_normal(n)

    def objective(model):
        return np.mean((y - model.predict(X)) ** 2) + alpha * tensor_trace_norm(model.coef_)

    # The paper sums the losses, so its lambda is alpha times the number of samples.
    constants = {"lam": alpha * n, "beta": 50.0, "gamma": 0.01, "inner_iter": 50, "batch_size": size}
    online = PaperRegressor(f"OL_APG_{inner}_miniBatch", max_iter=3, **constants)
    for part in batches(n, size):
        online.partial_fit(X[part], y[part])
    assert online.n_seen_ == n
    whole = Moments.of(X, y)
    for name in ("gram", "cross", "x_mean", "y_mean", "target_sq"):
        np.testing.assert_allclose(getattr(online.moments_, name), getattr(whole, name), atol=1e-10)
    before = objective(online)
    exact = TraceNormRegressor(alpha=alpha, tol=1e-10).fit(X, y)
    # Once more the same samples: only the last model, from which it starts, tells this from a beginning.
    online.moments_ = online.moments_.scaled(1e-12)
    online.set_params(batch_size=1000, max_iter=10).partial_fit(X, y)
    begun = PaperRegressor(f"OL_APG_{inner}_miniBatch", max_iter=10, **{**constants, "batch_size": 1000}).fit(X, y)
    assert exact.objective_ - 1e-9 <= objective(online) < before
    assert objective(online) < objective(begun)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("inner", ["ADM", "DR"])
def test_with_one_batch_the_paper_online_is_the_paper_in_a_batch(inner):
    X, y = far_samples()
    X = X / 1000.0
    options = {"lam": 0.2 * N, "max_iter": 5}
    online = PaperRegressor(f"OL_APG_{inner}_miniBatch", batch_size=N, **options).partial_fit(X, y)
    batch = PaperRegressor(f"APG_{inner}", **options).fit(X, y)
    np.testing.assert_array_equal(online.coef_, batch.coef_)
    assert online.intercept_ == batch.intercept_


def test_forgetting_is_a_weight_for_every_batch():
    X, y = far_samples()
    options = {"alpha": 0.05, "tol": 1e-9, "max_iter": 20000}
    online = TraceNormRegressor(forgetting=0.8, **options)
    weight = np.zeros(N)
    for part in batches(N, 10):
        online.partial_fit(X[part], y[part])
        weight *= 0.8
        weight[part] = 1.0
    assert online.moments_.weight == pytest.approx(weight.sum())
    agree(online, TraceNormRegressor(keep_moments=True, **options).fit(X, y, weight), 1e-9, X)


def test_forgetting_follows_a_change_that_remembering_misses():
    X, y = far_samples(400)
    y[200:] = 100.0 - y[200:]  # the relation turns round
    models = [TraceNormRegressor(alpha=0.01, forgetting=forgetting) for forgetting in (0.7, 1.0)]
    for part in batches(400, 20):
        for model in models:
            model.partial_fit(X[part], y[part])
    forgetful, faithful = (model.score(X[300:], y[300:]) for model in models)
    assert forgetful > 0.7
    assert faithful < 0.2


def test_the_order_of_batches_does_not_matter(rng):
    X, y = far_samples()
    options = {"alpha": 0.05, "tol": 1e-9, "max_iter": 20000}
    parts = batches(N, 7)
    forward, shuffled = TraceNormRegressor(**options), TraceNormRegressor(**options)
    for part in parts:
        forward.partial_fit(X[part], y[part])
    for index in rng.permutation(len(parts)):
        shuffled.partial_fit(X[parts[index]], y[parts[index]])
    agree(shuffled, forward, 1e-9, X)


def test_weights_online_are_weights_in_a_batch(rng):
    X, y = far_samples()
    weight = rng.uniform(0.0, 3.0, N)
    weight[:7] = 0.0
    weight[20:40] = 0.0
    weight[0] = 1e-3
    options = {"alpha": 0.05, "tol": 1e-9, "max_iter": 20000}
    online = TraceNormRegressor(**options)
    for part in batches(N, 40):
        online.partial_fit(X[part], y[part], weight[part])
    agree(online, TraceNormRegressor(keep_moments=True, **options).fit(X, y, weight), 1e-9, X)


def test_class_weights_online_are_class_weights_in_a_batch():
    X, y = far_samples()
    labels = np.where(y > np.quantile(y, 0.8), "rare", "usual")
    options = {"alpha": 0.05, "tol": 1e-9, "max_iter": 20000, "class_weight": {"rare": 4.0, "usual": 1.0}}
    online = TraceNormClassifier(**options)
    for part in batches(N, 7):
        online.partial_fit(X[part], labels[part], classes=["rare", "usual"])
    agree(online, TraceNormClassifier(keep_moments=True, **options).fit(X, labels), 1e-9, X)


def test_a_batch_may_lack_a_class_and_the_first_may_have_only_one():
    X, y = far_samples()
    order = np.argsort(y)
    X, labels = X[order], np.where(y[order] > np.median(y), 1, 0)  # first all of one class, then all of the other
    online = TraceNormClassifier(alpha=0.05, tol=1e-9)
    for part in batches(N, 20):
        online.partial_fit(X[part], labels[part], classes=[0, 1])
        assert np.isfinite(online.decision_function(X)).all()
    agree(online, TraceNormClassifier(alpha=0.05, tol=1e-9, keep_moments=True).fit(X, labels), 1e-9, X)


def test_partial_fit_goes_on_from_fit():
    X, y = far_samples()
    options = {"alpha": 0.05, "tol": 1e-9}
    online = TraceNormRegressor(keep_moments=True, **options).fit(X[:70], y[:70]).partial_fit(X[70:], y[70:])
    agree(online, TraceNormRegressor(keep_moments=True, **options).fit(X, y), 1e-9, X)
    again = online.fit(X[:70], y[:70])  # fit begins anew
    assert again.moments_.weight == 70


def test_a_model_that_was_fitted_without_moments_says_so_where_they_are_needed():
    X, y = far_samples()
    model = TraceNormRegressor(alpha=0.05).fit(X[:70], y[:70])
    assert not hasattr(model, "moments_")
    for learn in (lambda: model.partial_fit(X[70:], y[70:]), lambda: model.forget(X[:7], y[:7])):
        with pytest.raises(ValueError, match=r"^Expected a .*keep_moments=True"):
            learn()
    # What partial_fit has learned, fit does not go on with.
    online = TraceNormRegressor(alpha=0.05).partial_fit(X[:70], y[:70])
    assert not hasattr(online.fit(X, y), "moments_")


def test_a_batch_that_changes_nothing_costs_no_iteration():
    X, y = far_samples()
    model = TraceNormRegressor(alpha=0.05).partial_fit(X, y)
    assert model.n_iter_ > 0
    assert model.partial_fit(X, y).n_iter_ == 0  # every sample twice: the same model


def test_flat_batches_are_tensors_with_a_shape():
    X, y = far_samples()
    flat = TraceNormRegressor(alpha=0.05, tensor_shape=SHAPE)
    tensors = TraceNormRegressor(alpha=0.05)
    for part in batches(N, 40):
        flat.partial_fit(X[part].reshape(-1, 18), y[part])
        tensors.partial_fit(X[part], y[part])
    assert flat.coef_.shape == (18,)
    np.testing.assert_allclose(flat.coef_tensor_, tensors.coef_, atol=1e-9)


def test_what_is_kept_does_not_grow_with_the_samples():
    X, y = far_samples(600)
    model = TraceNormRegressor(alpha=0.05).partial_fit(X[:100], y[:100])
    before = len(pickle.dumps(model))
    for part in batches(600, 100):
        model.partial_fit(X[part], y[part])
    assert len(pickle.dumps(model)) <= before + 200


def test_few_samples_are_solved_for_in_their_span_and_go_on_learning_all_the_same(caplog):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6, 20))
    y = X[:, 0, 3] + 0.1 * rng.normal(size=60)
    with caplog.at_level("INFO", logger="tracelearn"):
        model = TraceNormRegressor(alpha=0.1, keep_moments=True, tol=1e-9, verbose=1).fit(X[:30], y[:30])
    assert "30 samples span at most 30 of 120 dimensions" in caplog.text
    np.testing.assert_allclose(model.moments_.gram, Moments.of(X[:30].reshape(30, -1), y[:30]).gram, atol=1e-9)
    model.partial_fit(X[30:], y[30:])
    expected = TraceNormRegressor(alpha=0.1, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-4)
