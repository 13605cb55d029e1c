"""The estimators keep scikit-learn's manners and solve the problem that they print."""

import copy
import logging
import pickle
import sys
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tracelearn import (
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    tensor_trace_norm,
)
from tracelearn.estimators import ZeroWeightsWarning
from tracelearn.estimators.base import settings_of
from tracelearn.losses import Huber, SquaredError
from tracelearn.paper import PaperRegressor
from tracelearn.problems.forms import BasisForm, MomentsForm, SamplesForm, choose_form
from tracelearn.samples.samples import Block, Samples
from tracelearn.solvers import newton

newton_module = sys.modules["tracelearn.solvers.newton"]  # the function has its name

SHAPES = [(6,), (3, 4), (3, 2, 4), (2, 3, 2, 2)]
REGRESSOR_LOSSES = ["squared_error", "huber"]
CLASSIFIER_LOSSES = ["squared_error", "log_loss", "squared_hinge"]
SOLVERS = ["admm", "apg"]

every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
every_model = pytest.mark.parametrize(
    ("make", "loss"),
    [(TraceNormRegressor, loss) for loss in REGRESSOR_LOSSES]
    + [(TraceNormClassifier, loss) for loss in CLASSIFIER_LOSSES],
)


def expected_failures(estimator):
    """Name the common checks that are expected to fail, with the reason."""
    sparse = "scikit-learn 1.6.0 runs it where sparse matrices are refused, whatever the tags of the estimator say"
    found = {} if estimator.scaling is None else {"check_sample_weight_equivalence_on_sparse_data": sparse}
    if "CV" in type(estimator).__name__ or estimator.keep_moments or not settings_of(estimator).loss.has_moments:
        return found
    reason = (
        "it calls partial_fit after fit, which keeps no moments unless keep_moments=True: then it passes, see below"
    )
    return found | {"check_fit_score_takes_y": reason}


@parametrize_with_checks(
    [
        TraceNormRegressor(),
        TraceNormRegressor(keep_moments=True),
        TraceNormClassifier(),
        TraceNormClassifier(loss="log_loss"),
        TraceNormRegressorCV(alphas=3, cv=2),
        TraceNormClassifierCV(alphas=3, cv=2),
    ],
    expected_failed_checks=expected_failures,
)
def test_the_common_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        TraceNormRegressor(loss="huber"),
        TraceNormClassifier(loss="squared_hinge"),
        TraceNormClassifier(target_mode=True),
        TraceNormClassifier(penalty="latent", alpha=0.05),
        TraceNormRegressor(penalty="scaled_latent", ridge=0.1),
        TraceNormRegressor(solver="apg"),
        TraceNormClassifier(solver="apg"),
        TraceNormClassifier(keep_moments=True),
        TraceNormRegressor(scaling="modes"),
        TraceNormClassifierCV(alphas=3, cv=2, loss="log_loss"),
    ],
    expected_failed_checks=expected_failures,
)
def test_the_common_checks_of_scikit_learn_pass_with_other_parameters(estimator, check):
    check(estimator)


# --- problems --------------------------------------------------------------------------------------------------------


def samples(shape=(3, 2, 4), n=60, seed=0):
    """Draw tensors, a target of rank one, and its cut into two and into three classes."""
    rng = np.random.default_rng([seed, n, *shape])
    X = rng.standard_normal((n, *shape)) + 0.5
    W = np.ones(())
    for size in shape:
        W = np.multiply.outer(W, rng.standard_normal(size))
    y = X.reshape(n, -1) @ W.ravel()
    y = y / y.std() + 0.3 * rng.standard_normal(n) + 2.0
    return X, y


def labels(y, n_classes=2):
    names = np.array(["ash", "birch", "cedar", "dogwood"])
    return names[np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))]


def target(make, y, n_classes=2):
    return y if make is TraceNormRegressor else labels(y, n_classes)


def scores(model, X):
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)


def same(one, other, tol=1e-6):
    """Both are certified to ``tol``, so their objectives are that close, and the weights about its root."""
    assert one.dual_gap_ <= tol
    assert other.dual_gap_ <= tol
    scale = abs(one.objective_) + abs(other.objective_) + 1e-12
    assert abs(one.objective_ - other.objective_) <= 4 * tol * max(scale, 1.0)
    size = max(np.abs(one.coef_).max(), 1e-3)
    np.testing.assert_allclose(one.coef_, other.coef_, atol=10 * np.sqrt(tol) * size)
    np.testing.assert_allclose(one.intercept_, other.intercept_, atol=20 * np.sqrt(tol))


TIGHT = 1e-9


# --- in the hands of scikit-learn ------------------------------------------------------------------------------------


@every_model
def test_it_is_the_last_step_of_a_pipeline_on_tensors(make, loss):
    X, y = samples()
    y = target(make, y)
    centre = FunctionTransformer(lambda Z: Z - 0.5)
    pipe = Pipeline([("centre", centre), ("model", make(loss=loss))]).fit(X, y)
    np.testing.assert_allclose(scores(pipe, X), scores(make(loss=loss).fit(X - 0.5, y), X - 0.5))
    assert pipe.score(X, y) > 0.6
    weighted = pipe.fit(X, y, model__sample_weight=np.arange(1.0, len(X) + 1))
    assert weighted["model"].dual_gap_ <= 1e-6


def test_with_flat_samples_it_follows_a_scaler():
    X, y = samples()
    pipe = make_pipeline(StandardScaler(), TraceNormRegressor(tensor_shape=(3, 2, 4))).fit(X.reshape(60, -1), y)
    assert pipe[-1].coef_.shape == (24,)
    assert pipe[-1].coef_tensor_.shape == (3, 2, 4)
    assert pipe.score(X.reshape(60, -1), y) > 0.6


@every_model
def test_it_is_searched_and_cross_validated_on_tensors(make, loss):
    X, y = samples()
    y = target(make, y)
    search = GridSearchCV(make(loss=loss), {"alpha": [0.01, 100.0], "ridge": [0.0, 0.1]}, cv=3).fit(X, y)
    assert search.best_params_["alpha"] == 0.01
    assert search.best_estimator_.coef_.shape[-3:] == (3, 2, 4)
    assert np.mean(cross_val_score(make(loss=loss), X, y, cv=3)) > 0.5
    assert cross_val_predict(make(loss=loss), X, y, cv=3).shape == y.shape


@pytest.mark.parametrize("loss", CLASSIFIER_LOSSES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_calibrated_on_tensors(loss, n_classes):
    X, y = samples(n=90)
    y = labels(y, n_classes)
    model = CalibratedClassifierCV(TraceNormClassifier(loss=loss), cv=3).fit(X, y)
    chances = model.predict_proba(X)
    assert chances.shape == (90, n_classes)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert model.score(X, y) > 0.6


@every_model
def test_a_clone_has_the_parameters_and_nothing_that_was_learned(make, loss):
    X, y = samples()
    model = make(0.03, loss=loss, ridge=0.1, mode_weights=(1, 0, 2)).fit(X, target(make, y))
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "coef_")
    same(twin.fit(X, target(make, y)), model)


def test_parameters_are_set_by_name_and_used_by_the_next_fit():
    X, y = samples()
    model = TraceNormRegressor().fit(X, y)
    assert model.set_params(alpha=1e3).fit(X, y).coef_.any() == np.False_
    with pytest.raises(ValueError, match="Invalid parameter 'lambda'"):
        model.set_params(**{"lambda": 1.0})


@every_model
@pytest.mark.parametrize("through", ["pickle", "deepcopy", "joblib"])
def test_a_copy_predicts_the_same(make, loss, through, tmp_path):
    X, y = samples()
    model = make(loss=loss).fit(X, target(make, y, 3))
    if through == "pickle":
        twin = pickle.loads(pickle.dumps(model))
    elif through == "deepcopy":
        twin = copy.deepcopy(model)
    else:
        joblib.dump(model, tmp_path / "model.joblib")
        twin = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(scores(twin, X), scores(model, X))
    assert twin.dual_gap_ == model.dual_gap_
    np.testing.assert_array_equal(twin.mode_ranks_, model.mode_ranks_)


def test_a_pickled_model_goes_on_learning():
    X, y = samples()
    model = TraceNormRegressor(tol=TIGHT).partial_fit(X[:30], y[:30])
    twin = pickle.loads(pickle.dumps(model)).partial_fit(X[30:], y[30:])
    same(twin, TraceNormRegressor(tol=TIGHT).fit(X, y), TIGHT)


def test_the_names_of_a_data_frame_are_kept_and_checked():
    X, y = samples()
    frame = pd.DataFrame(X.reshape(60, -1), columns=[f"channel {i}" for i in range(24)])
    model = TraceNormRegressor(tensor_shape=(3, 2, 4)).fit(frame, y)
    np.testing.assert_array_equal(model.feature_names_in_, frame.columns)
    np.testing.assert_allclose(model.predict(frame), TraceNormRegressor().fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])
    assert not hasattr(TraceNormRegressor().fit(X, y), "feature_names_in_")


@every_model
def test_lists_are_as_good_as_arrays(make, loss):
    X, y = samples(n=40)
    y = target(make, y)
    model = make(loss=loss).fit(X.tolist(), y.tolist())
    np.testing.assert_array_equal(model.predict(X[:5].tolist()), make(loss=loss).fit(X, y).predict(X[:5]))


# --- shapes ----------------------------------------------------------------------------------------------------------


@every_model
@every_shape
def test_flat_samples_with_a_tensor_shape_are_the_tensors(make, loss, shape):
    X, y = samples(shape)
    y = target(make, y)
    tensors = make(loss=loss, alpha=0.05).fit(X, y)
    flat = make(loss=loss, alpha=0.05, tensor_shape=shape).fit(X.reshape(60, -1), y)
    assert flat.sample_shape_ == tensors.sample_shape_ == shape
    assert flat.n_features_in_ == tensors.n_features_in_ == np.prod(shape)
    np.testing.assert_allclose(flat.coef_tensor_, tensors.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(tensors.coef_tensor_, tensors.coef_)
    # Flat samples have flat weights, as scikit-learn's tools expect them.
    assert flat.coef_.shape == (*flat.coef_tensor_.shape[: -len(shape)], np.prod(shape))
    np.testing.assert_array_equal(flat.mode_ranks_, tensors.mode_ranks_)
    # Either model reads either form.
    for model in (flat, tensors):
        np.testing.assert_allclose(scores(model, X), scores(tensors, X), rtol=1e-9)
        np.testing.assert_allclose(scores(model, X.reshape(60, -1)), scores(tensors, X), rtol=1e-9)


@every_shape
def test_the_objective_is_the_one_that_is_printed(shape):
    X, y = samples(shape)
    model = TraceNormRegressor(alpha=0.05, ridge=0.02, tol=TIGHT).fit(X, y)
    residual = y - X.reshape(60, -1) @ model.coef_.ravel() - model.intercept_
    penalty = 0.05 * tensor_trace_norm(model.coef_) + 0.02 * np.sum(model.coef_**2)
    assert model.objective_ == pytest.approx(np.mean(residual**2) + penalty, rel=1e-9)
    np.testing.assert_allclose(model.predict(X), y - residual)


@every_shape
def test_a_binary_classifier_has_one_weight_tensor(shape):
    X, y = samples(shape)
    for loss in CLASSIFIER_LOSSES:
        model = TraceNormClassifier(loss=loss).fit(X, labels(y))
        assert model.coef_.shape == (1, *shape)
        assert model.intercept_.shape == (1,)
        assert model.decision_function(X).shape == (60,)
        assert model.patterns_.shape == model.coef_.shape
        assert model.mode_ranks_.shape == (len(shape),)
        np.testing.assert_array_equal(model.predict(X), model.classes_[(model.decision_function(X) > 0).astype(int)])


@every_shape
@pytest.mark.parametrize("target_mode", [False, True])
def test_a_classifier_of_many_has_one_weight_tensor_for_each(shape, target_mode):
    X, y = samples(shape, n=90)
    for loss in CLASSIFIER_LOSSES:
        model = TraceNormClassifier(loss=loss, target_mode=target_mode).fit(X, labels(y, 3))
        assert model.coef_.shape == (3, *shape)
        assert model.intercept_.shape == (3,)
        assert model.decision_function(X).shape == (90, 3)
        assert model.mode_ranks_.shape == ((len(shape) + 1,) if target_mode else (3, len(shape)))
        assert len(model.mode_factors_) == len(shape) + target_mode
        np.testing.assert_array_equal(model.predict(X), model.classes_[model.decision_function(X).argmax(axis=1)])


@every_shape
@pytest.mark.parametrize("loss", REGRESSOR_LOSSES)
def test_a_regressor_has_the_shape_of_its_targets(shape, loss):
    X, y = samples(shape)
    one = TraceNormRegressor(loss=loss).fit(X, y)
    assert one.coef_.shape == shape
    assert isinstance(one.intercept_, float)
    assert one.predict(X).shape == (60,)
    column = TraceNormRegressor(loss=loss).fit(X, y[:, None])
    assert column.coef_.shape == (1, *shape)
    assert column.predict(X).shape == (60, 1)
    two = TraceNormRegressor(loss=loss).fit(X, np.stack([y, -y], axis=1))
    assert two.coef_.shape == (2, *shape)
    assert two.intercept_.shape == (2,)
    assert two.predict(X).shape == (60, 2)


@pytest.mark.parametrize("loss", REGRESSOR_LOSSES)
@pytest.mark.parametrize("penalty", ["overlapped", "latent", "scaled_latent"])
def test_targets_without_a_common_penalty_are_learned_as_if_alone(loss, penalty):
    X, y = samples()
    targets = np.stack([y, 3.0 - y**2, np.sin(y)], axis=1)
    together = TraceNormRegressor(alpha=0.05, loss=loss, penalty=penalty).fit(X, targets)
    for k in range(3):
        alone = TraceNormRegressor(alpha=0.05, loss=loss, penalty=penalty).fit(X, targets[:, k])
        np.testing.assert_allclose(together.coef_[k], alone.coef_, atol=5e-3 * np.abs(alone.coef_).max())
        np.testing.assert_allclose(together.predict(X)[:, k], alone.predict(X), atol=2e-2)


def test_a_binary_target_mode_is_no_mode():
    X, y = samples()
    one = TraceNormClassifier(target_mode=True).fit(X, labels(y))
    np.testing.assert_array_equal(one.coef_, TraceNormClassifier().fit(X, labels(y)).coef_)


def test_factors_and_ranks_describe_the_weights():
    X, y = samples(n=200)
    model = TraceNormRegressor(alpha=0.3).fit(X, y)
    assert list(model.mode_ranks_) == [1, 1, 1]
    for mode, (factors, values) in enumerate(model.mode_factors_):
        np.testing.assert_allclose(factors.T @ factors, np.eye(factors.shape[1]), atol=1e-12)
        assert values[0] == pytest.approx(np.linalg.norm(model.coef_))
        assert np.all(values[1:] < 1e-12)
        assert factors.shape[0] == model.coef_.shape[mode]


@every_model
def test_patterns_are_the_covariance_times_the_weights(make, loss):
    X, y = samples()
    model = make(loss=loss).fit(X, target(make, y))
    covariance = np.cov(X.reshape(60, -1), rowvar=False, bias=True)
    np.testing.assert_allclose(model.patterns_.ravel(), covariance @ model.coef_.ravel(), atol=1e-12)


# --- weights ---------------------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("n", [60, 10])  # moments and basis
def test_a_weight_is_a_number_of_repetitions_and_zero_removes_a_sample(make, loss, n, rng):
    X, y = samples((3, 4, 2), n=n)
    y = target(make, y)
    counts = rng.integers(0, 4, n)
    counts[:6] = 1  # keeps both classes
    options = {"alpha": 0.05, "loss": loss, "ridge": 0.01, "tol": TIGHT, "max_iter": 20000}
    weighted = make(**options).fit(X, y, counts)
    repeated = make(**options).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    same(weighted, repeated, TIGHT)
    # Only the ratios of weights matter.
    same(weighted, make(**options).fit(X, y, 0.01 * counts), TIGHT)


@every_model
def test_equal_weights_are_no_weights(make, loss):
    X, y = samples()
    y = target(make, y)
    same(make(loss=loss, tol=1e-8).fit(X, y, np.full(60, 7.0)), make(loss=loss, tol=1e-8).fit(X, y), 1e-8)


@pytest.mark.parametrize("loss", CLASSIFIER_LOSSES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_class_weights_are_sample_weights(loss, n_classes):
    X, y = samples()
    y = labels(y, n_classes)
    y[:20] = "ash"  # unbalanced
    given = dict(zip(np.unique(y), (1.0, 5.0, 0.5), strict=False))
    options = {"alpha": 0.05, "loss": loss, "ridge": 0.01, "tol": 1e-8, "max_iter": 20000}
    by_class = TraceNormClassifier(class_weight=given, **options).fit(X, y)
    by_sample = TraceNormClassifier(**options).fit(X, y, np.array([given[label] for label in y]))
    same(by_class, by_sample, 1e-8)
    names, counts = np.unique(y, return_counts=True)
    shares = dict(zip(names, 60 / (len(names) * counts), strict=True))
    balanced = TraceNormClassifier(class_weight="balanced", **options).fit(X, y)
    same(balanced, TraceNormClassifier(class_weight=shares, **options).fit(X, y), 1e-8)
    # Both at once multiply.
    extra = np.linspace(0.5, 2.0, 60)
    twice = TraceNormClassifier(class_weight=given, **options).fit(X, y, extra)
    product = TraceNormClassifier(**options).fit(X, y, extra * np.array([given[label] for label in y]))
    same(twice, product, 1e-8)


# --- against scikit-learn --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [60, 10])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_a_trace_norm_it_is_ridge_regression(n, solver, fit_intercept):
    X, y = samples(n=n)
    model = TraceNormRegressor(0.0, ridge=0.1, solver=solver, tol=1e-10, fit_intercept=fit_intercept).fit(X, y)
    # Our loss is a mean, theirs a sum.
    theirs = Ridge(alpha=0.1 * n, fit_intercept=fit_intercept).fit(X.reshape(n, -1), y)
    np.testing.assert_allclose(model.coef_.ravel(), theirs.coef_, atol=1e-4 * np.abs(theirs.coef_).max())
    np.testing.assert_allclose(model.intercept_, theirs.intercept_, atol=1e-4)
    assert model.dual_gap_ <= 1e-10


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_a_trace_norm_it_is_logistic_regression(solver, n_classes, fit_intercept):
    X, y = samples()
    y = labels(y, n_classes)
    model = TraceNormClassifier(
        0.0, ridge=0.05, loss="log_loss", solver=solver, tol=1e-8, max_iter=10000, fit_intercept=fit_intercept
    ).fit(X, y)
    theirs = LogisticRegression(
        C=1 / (2 * 60 * 0.05), tol=1e-10, max_iter=10000, fit_intercept=fit_intercept, solver="newton-cg"
    ).fit(X.reshape(60, -1), y)
    assert model.dual_gap_ <= 1e-8
    np.testing.assert_allclose(model.coef_.reshape(len(theirs.coef_), -1), theirs.coef_, atol=5e-4)
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X.reshape(60, -1)), atol=1e-3)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))


@every_model
@pytest.mark.parametrize("penalty", ["overlapped", "latent", "scaled_latent"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_huge_alpha_leaves_only_the_intercept(make, loss, penalty, solver):
    X, y = samples(n=61)
    y = target(make, y)
    if make is TraceNormClassifier:
        y[:15] = "ash"  # a majority
    model = make(1e4, loss=loss, penalty=penalty, solver=solver).fit(X, y)
    assert not model.coef_.any()
    assert model.dual_gap_ <= 1e-6
    if make is TraceNormClassifier:
        assert set(model.predict(X)) == {"ash"}
    elif loss == "squared_error":
        np.testing.assert_allclose(model.predict(X), y.mean())
    else:
        clipped = np.clip(y - model.intercept_, -1.35, 1.35)
        assert abs(clipped.mean()) < 1e-9


@pytest.mark.parametrize("loss", CLASSIFIER_LOSSES)
def test_a_huge_alpha_predicts_the_largest_of_three_classes(loss):
    X, y = samples(n=60)
    y = labels(y, 3)
    y[:20] = "birch"
    model = TraceNormClassifier(1e4, loss=loss).fit(X, y)
    assert not model.coef_.any()
    assert set(model.predict(X)) == {"birch"}
    if loss == "log_loss":
        shares = [np.mean(y == name) for name in model.classes_]
        np.testing.assert_allclose(model.predict_proba(X[:2]), [shares, shares], atol=1e-9)


@every_model
@pytest.mark.parametrize("n", [60, 10])
def test_without_an_intercept_the_origin_is_kept(make, loss, n):
    X, y = samples(n=n)
    y = target(make, y)
    model = make(0.01, loss=loss, fit_intercept=False).fit(X, y)
    assert model.dual_gap_ <= 1e-6
    assert np.all(np.asarray(model.intercept_) == 0.0)
    assert np.all(scores(model, np.zeros((1, 3, 2, 4))) == 0.0)
    # Mirroring every sample together with its target changes nothing but the mean: only without intercept the same.
    if make is TraceNormRegressor:
        signs = np.where(np.arange(n) % 2, 1.0, -1.0)
        mirrored = make(0.01, loss=loss, fit_intercept=False).fit(X * signs[:, None, None, None], y * signs)
        np.testing.assert_allclose(mirrored.coef_, model.coef_, atol=5e-3 * np.abs(model.coef_).max())


# --- solving ---------------------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize(
    ("solver", "penalty"),
    [
        ("admm", "overlapped"),
        ("admm", "latent"),
        ("admm", "scaled_latent"),
        ("apg", "overlapped"),
        ("apg", "latent"),
    ],
)
def test_every_solver_certifies_what_it_was_asked_for(make, loss, penalty, solver):
    X, y = samples(n=40)
    y = target(make, y, 3)
    options = {"alpha": 0.2, "loss": loss, "penalty": penalty, "max_iter": 20000}
    model = make(solver=solver, tol=1e-5, **options).fit(X, y)
    assert 0 <= model.dual_gap_ <= 1e-5
    exact = make(tol=1e-8, **options).fit(X, y)
    excess = (model.objective_ - exact.objective_) / (make(1e4, loss=loss).fit(X, y).objective_)
    assert excess <= 3 * 1e-5  # three targets, each within the tolerance


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("target_mode", [False, True])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_basis_and_moments_give_one_answer(fit_intercept, target_mode, weighted, rng):
    X, y = samples((4, 5, 3), n=25)
    targets = np.stack([y, y**2 / 4], axis=1)
    weight = rng.uniform(0.2, 2.0, 25) if weighted else None
    options = {
        "alpha": 0.05,
        "fit_intercept": fit_intercept,
        "target_mode": target_mode,
        "tol": 1e-9,
        "max_iter": 20000,
    }
    assert isinstance(form(25, 60), BasisForm)
    basis = TraceNormRegressor(**options).fit(X, targets, weight)
    assert not hasattr(basis, "moments_")
    moments = TraceNormRegressor(**options, keep_moments=True).fit(
        X, targets, weight
    )  # which are then what it learns from
    assert moments.moments_.n_features == 60
    same(basis, moments, 1e-9)
    np.testing.assert_allclose(basis.patterns_, moments.patterns_, atol=1e-3)


def form(n, p, loss=None, memory=None):
    """Choose the form that so many samples of so many entries are kept in."""
    drawn = Samples.of(Block(np.zeros((n, p)), np.zeros((n, 1))), (p,))
    return choose_form(drawn, SquaredError() if loss is None else loss, memory)


def test_memory_decides_between_a_basis_and_moments():
    assert isinstance(form(70, 100, memory=1 << 30), MomentsForm)
    assert isinstance(form(70, 100, memory=4 * 8 * 70 * 100), BasisForm)
    in_passes = form(70, 100, memory=4 * 8 * 70 * 100 - 1)
    assert isinstance(in_passes, SamplesForm)
    assert in_passes.in_passes
    whole = form(70, 100, Huber(), memory=1 << 30)
    assert isinstance(whole, SamplesForm)
    assert not whole.in_passes


@every_model
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_warm_start_from_the_answer_needs_no_iteration(make, loss, solver):
    X, y = samples()
    y = target(make, y, 3)
    model = make(0.1, loss=loss, solver=solver, warm_start=True, tol=1e-5, max_iter=20000).fit(X, y)
    assert model.n_iter_ > 0
    assert model.fit(X, y).n_iter_ == 0
    assert model.dual_gap_ <= 1e-5
    assert model.set_params(warm_start=False).fit(X, y).n_iter_ > 0


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_warm_start_from_another_problem_is_a_cold_one(solver):
    X, y = samples()
    two = np.stack([y, -y], axis=1)
    model = TraceNormRegressor(0.3, solver=solver, warm_start=True, max_iter=5000)
    changes = [
        ({}, y),
        ({}, two),
        ({"penalty": "latent"}, two),
        ({"penalty": "overlapped", "target_mode": True}, two),
        ({"target_mode": False, "mode_weights": (1, 0, 0)}, two),
        ({"loss": "huber"}, two),
    ]
    for change, targets in changes:
        model.set_params(**change).fit(X, targets)
        cold = clone(model).set_params(warm_start=False).fit(X, targets)
        assert model.dual_gap_ <= 1e-6
        assert model.objective_ == pytest.approx(cold.objective_, abs=4e-6 * np.var(y))
    model.set_params(mode_weights=None)
    other = samples((4, 6))
    assert model.fit(*other).coef_.shape == (4, 6)


@every_model
def test_not_reaching_the_tolerance_is_a_warning_that_says_what_to_do(make, loss):
    X, y = samples()
    with pytest.warns(ConvergenceWarning, match="relative duality gap of 1e-12.*increase max_iter") as caught:
        model = make(1e-3, loss=loss, tol=1e-12, max_iter=1).fit(X, target(make, y))
    assert len(caught) == 1
    assert model.n_iter_ <= 1
    assert model.dual_gap_ > 1e-12
    assert np.isfinite(model.coef_).all()


@every_model
def test_words_go_through_the_logger_and_only_when_asked_for(make, loss, caplog, capsys):
    X, y = samples()
    y = target(make, y)
    with caplog.at_level(logging.DEBUG, logger="tracelearn"):
        make(loss=loss).fit(X, y)
        assert not caplog.records
        make(loss=loss, verbose=1).fit(X, y)
        words = " ".join(record.getMessage() for record in caplog.records)
        assert {record.name for record in caplog.records} == {"tracelearn"}
        assert make.__name__ in words
        assert "duality gap" in words
        assert ("moments" if loss == "squared_error" else "samples") in words
        few = len(caplog.records)
        make(loss=loss, verbose=2).fit(X, y)
        assert len(caplog.records) > 2 * few
    assert capsys.readouterr().out == ""


@every_model
@pytest.mark.parametrize("level", [logging.NOTSET, logging.ERROR])
@pytest.mark.parametrize("handled", [False, True])
def test_verbose_leaves_the_logger_as_it_was(make, loss, level, handled, capsys):
    X, y = samples()
    logger = logging.getLogger("tracelearn")
    own, root = logging.NullHandler(), logging.getLogger()
    before, handlers, above = (logger.level, logger.propagate), list(logger.handlers), root.handlers[:]
    logger.setLevel(level)
    root.handlers[:] = []  # pytest's own would show what is logged
    if handled:
        logger.addHandler(own)
    try:
        expected = list(logger.handlers)
        make(loss=loss, verbose=2).fit(X, target(make, y))
        assert logger.handlers == expected
        assert logger.level == level
        with pytest.raises(ValueError, match="Expected finite"):
            make(loss=loss, verbose=2).fit(np.full_like(X, np.nan), target(make, y))
        assert logger.handlers == expected
        assert logger.level == level
    finally:
        root.handlers[:] = above
        logger.handlers[:] = handlers
        logger.setLevel(before[0])
    assert ("duality gap" in capsys.readouterr().err) == (not handled)  # shown where nobody else does it


@every_model
def test_weights_that_are_all_zero_are_a_warning_that_says_what_to_do(make, loss):
    X, y = samples()
    with pytest.warns(ZeroWeightsWarning, match=rf"^Expected some weights.*{make.__name__}CV choose it") as caught:
        model = make(1e4, loss=loss).fit(X, target(make, y))
    assert len(caught) == 1
    assert not model.coef_.any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(1e-2, loss=loss).fit(X, target(make, y))


@every_model
def test_a_pickle_holds_the_weights_and_little_more(make, loss):
    X, y = samples((10, 10, 10), n=40)
    X = np.concatenate([X] * 30) if loss == "squared_error" else X  # enough for moments, which are what would be large
    y = np.concatenate([y] * 30) if loss == "squared_error" else y
    model = make(0.5, loss=loss, tol=1e-3).fit(X, target(make, y))
    assert len(pickle.dumps(model)) < 200_000
    if loss == "squared_error":
        kept = make(0.5, tol=1e-3, keep_moments=True).fit(X, target(make, y))
        assert kept.moments_.n_features == 1000
        assert len(pickle.dumps(kept)) > 1_000_000
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).coef_, kept.coef_)


def test_three_classes_and_then_another_loss_are_started_from_nothing():
    # The squared loss codes classes one by one, the logistic loss together: neither can start from the other's answer.
    X, y = samples(n=90)
    y = labels(y, 3)
    model = TraceNormClassifier(0.02, warm_start=True)
    for loss in ("squared_error", "log_loss", "squared_hinge", "log_loss", "squared_error"):
        model.set_params(loss=loss).fit(X, y)
        cold = TraceNormClassifier(0.02, loss=loss).fit(X, y)
        assert model.dual_gap_ <= 1e-6
        assert model.objective_ == pytest.approx(cold.objective_, rel=1e-5)
        assert model.fit(X, y).n_iter_ == 0


@pytest.mark.parametrize("spent", [False, True], ids=["at once", "after some models"])
def test_where_newton_goes_on_by_admm_its_iterations_are_counted_and_shown(spent, monkeypatch):
    X, y = samples(n=90)
    y = labels(y)
    usual = TraceNormClassifier(0.02, loss="log_loss", solver="newton").fit(X, y)
    searched, calls = newton_module._searched, []

    def fails(*arguments, **options):
        calls.append(1)
        return searched(*arguments, **options) if spent and len(calls) == 1 else None  # the model is no guide

    monkeypatch.setattr(newton_module, "_searched", fails)
    seen = []
    solver = lambda problems, **options: seen_by(seen, problems, **options)  # noqa: E731
    model = TraceNormClassifier(0.02, loss="log_loss", solver=solver).fit(X, y)
    assert len(calls) == 1 + spent
    assert model.dual_gap_ <= 1e-6
    assert model.objective_ == pytest.approx(usual.objective_, rel=1e-5)
    counts = [so_far.n_iter for so_far in seen]
    assert counts == sorted(counts)
    assert len(counts) > len(calls) + 1  # ADMM looks more often than once for every model
    assert model.n_iter_ == counts[-1]
    steps, gaps = model.convergence_[:, 0], model.convergence_[:, 1]
    assert np.all(np.diff(steps) > 0)
    assert steps[-1] == model.n_iter_
    assert gaps[-1] == model.dual_gap_


def test_the_first_step_of_newton_is_lengthened_where_classes_are_told_apart(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4, 3, 2))
    y = X[:, 0, 0, 0] + 0.1 * rng.normal(size=400) > 0
    model = TraceNormClassifier(1e-3, loss="log_loss", solver="newton")
    found = clone(model).fit(X, y)
    monkeypatch.setattr(newton_module, "_LONGEST", 1.0)
    usual = clone(model).fit(X, y)
    assert len(found.convergence_) < len(usual.convergence_)
    assert max(found.dual_gap_, usual.dual_gap_) <= 1e-6
    assert found.objective_ == pytest.approx(usual.objective_, abs=1e-6)


def seen_by(seen, problems, *, on_iteration, **options):
    def watch(so_far):
        seen.append(so_far)
        on_iteration(so_far)

    return newton(problems, on_iteration=watch, **options)


@every_model
@pytest.mark.parametrize("n", [60, 10])
def test_inputs_are_never_modified_and_never_kept(make, loss, n):
    X, y = samples(n=n)
    weight = np.linspace(1.0, 2.0, n)
    y = target(make, y)
    before = X.copy(), y.copy(), weight.copy()
    for array in (X, y, weight):
        array.setflags(write=False)
    model = make(loss=loss, target_mode=True, mode_weights=None).fit(X, y, weight)
    expected = model.predict(X)
    for array, copied in zip((X, y, weight), before, strict=True):
        np.testing.assert_array_equal(array, copied)
        array.setflags(write=True)
    kept = X.copy()
    X[...] = 7.0
    np.testing.assert_array_equal(model.predict(kept), expected)


@every_model
@pytest.mark.parametrize("n", [60, 10])
def test_single_precision_in_is_single_precision_out(make, loss, n):
    X, y = samples(n=n)
    y = target(make, y)
    double = make(loss=loss, alpha=0.05).fit(X, y)
    single = make(loss=loss, alpha=0.05).fit(X.astype(np.float32), y)
    assert double.coef_.dtype == np.float64
    assert single.coef_.dtype == np.float32
    assert single.patterns_.dtype == np.float32
    np.testing.assert_allclose(single.coef_, double.coef_, atol=5e-3 * np.abs(double.coef_).max())
    assert make(loss=loss).fit(np.rint(10 * X).astype(np.int16), y).coef_.dtype == np.float64


@every_model
def test_the_order_of_memory_does_not_matter(make, loss):
    X, y = samples()
    y = target(make, y)
    usual = make(loss=loss).fit(X, y)
    for other in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X[::-1][::-1]):
        np.testing.assert_allclose(make(loss=loss).fit(other, y).coef_, usual.coef_, atol=1e-9)


def test_few_samples_are_enough():
    X, y = samples(n=2)
    for loss in REGRESSOR_LOSSES:
        assert TraceNormRegressor(loss=loss).fit(X, y).dual_gap_ <= 1e-6
        assert np.isfinite(TraceNormRegressor(loss=loss).fit(X[:1], y[:1]).predict(X)).all()
    for loss in CLASSIFIER_LOSSES:
        model = TraceNormClassifier(loss=loss).fit(X, ["a", "b"])
        assert list(model.predict(X)) == ["a", "b"]


@every_model
def test_constant_features_get_no_weight(make, loss):
    X, y = samples()
    X[:, 0] = 3.0
    model = make(loss=loss, mode_weights=(1, 0, 0)).fit(X, target(make, y))
    assert np.abs(model.coef_.reshape(3, 2, 4)[0]).max() <= 1e-6 * np.abs(model.coef_).max()
    assert not make(loss=loss).fit(np.ones_like(X), target(make, y)).coef_.any()


@pytest.mark.parametrize("loss", REGRESSOR_LOSSES)
def test_a_constant_target_gets_no_weight(loss):
    X, _ = samples()
    model = TraceNormRegressor(loss=loss).fit(X, np.full(60, 4.0))
    assert not model.coef_.any()
    assert model.intercept_ == pytest.approx(4.0, abs=1e-12)
    assert model.dual_gap_ <= 1e-6


# --- the paper -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_on_its_way_the_paper_descends_to_the_certified_optimum_and_stays_above_it():
    X, y = samples((3, 3), n=40)
    alpha = 0.5
    optimum = TraceNormRegressor(alpha, tol=1e-10).fit(X, y).objective_
    before = np.inf
    for n_iter in (1, 10, 100):
        # The paper sums the losses, so its lambda is alpha times the number of samples.
        printed = PaperRegressor("APG_ADM", lam=alpha * 40, beta=100.0, max_iter=n_iter).fit(X, y)
        found = np.mean((y - printed.predict(X)) ** 2) + alpha * tensor_trace_norm(printed.coef_)
        assert optimum - 1e-9 <= found < before
        before = found
