"""More than squares: logistic regression and a map between classes, taken only where held-out folds confirm them."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from tracelearn import TensorClassifier, load, save, to_onnx
from tracelearn.search import session
from tracelearn.search.search import ClassScores, class_map, log_losses, softmax_regression


@pytest.fixture(scope="module")
def masked():
    """Four classes in a row: squares of one against the rest never find the two between others."""
    rng = np.random.default_rng(0)
    place = rng.uniform(0.0, 4.0, size=240)
    X = rng.normal(size=(240, 3, 2))
    X[:, 0, 0] = place
    return X, np.array(["ash", "birch", "cedar", "fir"])[place.astype(int)]


@pytest.fixture(scope="module")
def mapped(masked):
    """A model whose scores are mapped, since it may learn neither logistic regression nor from similarities."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "walk_logistic", lambda design, label: None)
        return TensorClassifier(views=["raw", "whitened"]).fit(*masked)


def test_a_class_between_others_is_found_by_default(masked):
    X, y = masked
    model = TensorClassifier().fit(X[:160], y[:160])
    assert model.best_estimator_.loss == model.best_params_["loss"] == "log_loss"
    squares = TensorClassifier(loss="squared_error", views=["raw", "whitened"]).fit(X, y)
    assert model.score(X[160:], y[160:]) > 0.8 > squares.score(X, y)
    assert model.dual_gap_ <= 1e-6
    assert not hasattr(model, "class_map_")


def test_two_classes_get_logistic_regression_with_the_ridge_that_was_chosen(masked):
    # Nearly separable along one entry, and far outliers on the right side: squares are pulled towards these.
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3, 2))
    y = X[:, 0, 0] + 0.3 * rng.normal(size=300) > 0.8
    X[:, 0, 0] += np.where(X[:, 0, 0] > 1.5, 20.0, 0.0)
    model = TensorClassifier().fit(X, y)
    assert model.best_estimator_.loss == "log_loss"
    n_samples = len(y)
    peer = LogisticRegression(C=1.0 / (2.0 * n_samples * model.ridge_), tol=1e-8, max_iter=1000)
    Z = model.features_.transform(X).reshape(n_samples, -1) if model.features_ is not None else X.reshape(n_samples, -1)
    assert_allclose(model.predict_proba(X), peer.fit(Z, y).predict_proba(Z), atol=2e-3)


def test_labels_scores_and_probabilities_of_a_map_agree(masked, mapped):
    X, y = masked
    assert mapped.class_map_.shape == (5, 4)
    assert mapped.score(X, y) > 0.8
    scores, shown = mapped.decision_function(X), mapped.class_map_
    inside = mapped._seen(X)
    plain = inside.reshape(len(X), -1) @ mapped.best_estimator_.coef_.reshape(4, -1).T + mapped.intercept_
    assert_allclose(scores, plain @ shown[:-1] + shown[-1], atol=1e-10)
    probabilities = mapped.predict_proba(X)
    assert_allclose(probabilities, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True), rtol=1e-10)
    assert np.array_equal(mapped.classes_[probabilities.argmax(axis=1)], mapped.predict(X))


def test_a_map_is_kept_in_files_and_graphs(masked, mapped, tmp_path):
    X = masked[0]
    save(mapped, tmp_path / "model")
    again = load(tmp_path / "model")
    assert_allclose(again.predict_proba(X), mapped.predict_proba(X), rtol=0, atol=0)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(to_onnx(mapped).SerializeToString(), providers=["CPUExecutionProvider"])
    labels, scores = session.run(["prediction", "scores"], {"X": X})
    assert_allclose(scores, mapped.decision_function(X), atol=1e-9)
    assert np.array_equal(labels.astype(str), mapped.predict(X))


def test_a_fit_anew_forgets_the_map(masked, mapped):
    model = copy.deepcopy(mapped)
    model.best_estimator_.fit(mapped._seen(masked[0]), masked[1])
    assert model.best_estimator_._class_map is None


@pytest.mark.parametrize(
    "options", [{"loss": "squared_error"}, {"keep_moments": True}, {"views": "raw"}, {"ridges": [0.0]}]
)
def test_whoever_asks_for_more_gets_squares_alone(masked, options):
    model = TensorClassifier(cv=3, **options).fit(*masked)
    assert model.best_estimator_.loss == "squared_error"
    assert not hasattr(model, "class_map_")


def test_noise_confirms_nothing():
    rng = np.random.default_rng(0)
    chosen = []
    for _ in range(5):
        X, y = rng.normal(size=(60, 4, 3)), rng.integers(0, 3, size=60)
        model = TensorClassifier().fit(X, y)
        chosen.append(model.best_estimator_.loss == "squared_error" and not hasattr(model, "class_map_"))
    assert sum(chosen) >= 4


def test_a_map_is_judged_on_folds_that_it_was_not_learned_from():
    rng = np.random.default_rng(0)
    shares = np.kron(np.eye(5), np.full(12, 1 / 60))  # five folds
    held = ClassScores(rng.normal(size=(60, 6)), np.eye(6)[rng.integers(0, 6, size=60)], shares)
    found, losses = class_map(held)
    own = held._replace(scores=held.scores @ found[:-1] + found[-1])
    assert log_losses(own).mean() < log_losses(held).mean() < losses.mean()


def test_softmax_regression_is_scikit_learns():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 5)), rng.integers(0, 3, size=80)
    X[:, 0] += 3.0
    half = np.arange(80) < 40
    shares = np.stack([np.full(80, 1 / 80), half / 40])
    for fit_intercept in (True, False):
        found = softmax_regression(X, np.eye(3)[y], shares, [1.0, 0.01], fit_intercept=fit_intercept)[-1]
        for own, among in zip(found, (half | ~half, half), strict=True):
            C = 1.0 / (2.0 * among.sum() * 0.01)
            peer = LogisticRegression(C=C, tol=1e-10, max_iter=1000, fit_intercept=fit_intercept)
            peer.fit(X[among], y[among])
            assert_allclose(own[:-1].T, peer.coef_, atol=2e-3)
            assert_allclose(own[-1] - own[-1].mean(), peer.intercept_ - np.mean(peer.intercept_), atol=2e-3)
