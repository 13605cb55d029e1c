"""What the property tests found, one test for each: every one failed before it was mended."""

import warnings

import numpy as np
import pytest
from sklearn.model_selection import KFold

from tracelearn import Moments, TensorRegressor, TraceNormClassifier, TraceNormRegressor
from tracelearn.features import ModePCA, TensorStandardScaler
from tracelearn.penalties import as_penalty
from tracelearn.problems.problem import Problems, Solution, certify
from tracelearn.problems.squares import Squares
from tracelearn.solvers import admm, newton
from tracelearn.solvers.apg import prox_adm


@pytest.fixture
def samples(rng):
    X = rng.standard_normal((20, 3, 2))
    return X, X.reshape(20, -1) @ rng.standard_normal(6) + 0.1 * rng.standard_normal(20)


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-45, 1e-30, 1e30, 1e45])
def test_single_precision_samples_survive_weights_beyond_its_range(samples, scale):
    X, y = samples
    options = {"alpha": 0.1, "keep_moments": True}
    usual = TraceNormRegressor(**options).fit(X.astype(np.float32), y, np.ones(20))
    model = TraceNormRegressor(**options).fit(X.astype(np.float32), y, np.full(20, scale))
    np.testing.assert_allclose(model.coef_, usual.coef_, rtol=1e-3)
    np.testing.assert_allclose(model.moments_.gram / scale, usual.moments_.gram, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
@pytest.mark.parametrize("scale", [1e-200, 1e-320, 1e200])
def test_weights_whose_products_leave_the_range_are_refused(samples, loss, scale):
    with pytest.raises(ValueError, match=r"^Expected the largest sample weight to be between 1e-100 and 1e\+100, got"):
        TraceNormRegressor(loss=loss).fit(*samples, np.full(20, scale))


@pytest.mark.parametrize("scale", [1e-75, 1e75])
def test_compression_of_single_precision_samples_survives_weights_beyond_its_range(samples, scale):
    X = samples[0].astype(np.float32)
    weight = np.linspace(1.0, 2.0, 20)
    usual, heavy = ModePCA().fit(X, None, weight), ModePCA().fit(X, None, scale * weight)
    for one, other in zip(usual.mode_covariances_, heavy.mode_covariances_, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_a_fold_without_weight_is_refused(samples, loss):
    weight = np.concatenate([np.zeros(10), np.ones(10)])
    with pytest.raises(
        ValueError, match=r"^Expected some sample weight inside and outside of every fold, got only zeros"
    ):
        TensorRegressor(cv=KFold(2), alphas=3, loss=loss).fit(*samples, weight)


def test_held_out_errors_of_single_precision_samples_may_leave_its_range(samples):
    X, y = samples
    usual = TensorRegressor(cv=2, alphas=3).fit(X.astype(np.float32), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TensorRegressor(cv=2, alphas=3).fit(X.astype(np.float32), 1e30 * y)
    assert usual.score_path_.dtype == model.score_path_.dtype == np.float64
    np.testing.assert_allclose(model.score_path_, usual.score_path_, rtol=1e-4, atol=1e-6)


def test_weights_beyond_the_precision_of_the_samples_stay_double(samples):
    X, y = samples
    model = TraceNormRegressor(alpha=0.0).fit(1e-14 * X.astype(np.float32), 1e30 * y)
    assert model.coef_.dtype == np.float64
    assert np.isfinite(model.coef_).all()
    assert model.dual_gap_ <= 1e-6


# --- proximal points -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["overlapped", "latent"])
@pytest.mark.parametrize("scale", [1e-40, 1e-12, 1e40])
def test_the_proximal_point_of_a_small_tensor_is_that_of_a_large_one(rng, norm, scale):
    P, alpha = rng.standard_normal((1, 3, 4, 2)), np.array([0.5])
    usual, _ = prox_adm(as_penalty(norm, (3, 4, 2)), P, alpha, 1.0)
    small, _ = prox_adm(as_penalty(norm, (3, 4, 2)), scale * P, scale * alpha, 1.0)
    np.testing.assert_allclose(small / scale, usual, atol=1e-6)


# --- solvers ---------------------------------------------------------------------------------------------------------


def test_a_target_that_is_solved_at_once_does_not_stop_the_others(samples):
    X, y = samples
    fit = Squares.of(Moments.of(X, np.stack([y, 1e-9 * y], axis=1)))
    found = newton(Problems(fit, as_penalty("overlapped", (3, 2)), np.array([0.1, 0.1]), (3, 2), fit.at_zero.value))
    assert np.all(found.gap <= 1e-6)
    assert found.W[0].any()
    assert not found.W[1].any()


def test_a_step_that_was_right_for_another_system_does_not_throw_admm_off(samples):
    fit, norm = Squares.of(Moments.of(1e30 * samples[0], samples[1])), as_penalty("overlapped", (3, 2))
    zero = np.zeros((1, 3, 2))
    start = Solution(zero, norm.start(zero), np.ones(1), np.ones(1), 0, rho=np.array([1e-10]))
    found = admm(Problems(fit, norm, np.array([0.1e30]), (3, 2), fit.at_zero.value), start=start)
    assert found.gap[0] <= 1e-6


@pytest.mark.parametrize("loss", ["log_loss", "squared_hinge"])
@pytest.mark.parametrize("alpha", [0.0, 1e-300, 1e-12])
def test_classes_that_are_told_apart_beyond_doubt_overflow_nothing(loss, alpha):
    rng = np.random.default_rng(0)
    X = 1e20 * rng.standard_normal((9, 5, 5))
    model = TraceNormClassifier(alpha=alpha, loss=loss, solver="newton", max_iter=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(X, np.array(["a", "b", "a", "b", "c", "c", "a", "b", "c"]))
    assert np.isfinite(model.coef_).all()


def test_what_leaves_the_range_of_floating_point_is_refused_in_a_sentence(samples):
    fit = Squares.of(Moments.of(*samples))
    W = np.full((1, 3, 2), 1e200)
    problems = Problems(fit, as_penalty("overlapped", (3, 2)), np.array([0.1]), (3, 2), fit.at_zero.value)
    bad = admm(problems, max_iter=1)
    bad = type(bad)(W, bad.split, bad.objective, bad.gap, 0, bad.rho)
    with pytest.raises(
        ValueError, match=r"^Expected numbers that stay in the range of floating point while solving, got"
    ):
        admm(problems, start=bad)


# --- the certificate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e12, 1e300])
def test_a_huge_alpha_and_features_that_say_nothing_overflow_nothing(alpha):
    model = TraceNormRegressor(alpha=alpha).fit(np.zeros((5, 3, 2, 2)), np.arange(5.0))
    assert model.dual_gap_ <= 1e-6
    assert not model.coef_.any()


def test_a_tiny_ridge_overflows_nothing(samples):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        fit, penalty = (
            Squares.of(Moments.of(1e6 * samples[0][:3], samples[1][:3]), ridge=1e-300),
            as_penalty("overlapped", (3, 2)),
        )
        W = np.ones((1, 3, 2))
        _, gap = certify(Problems(fit, penalty, np.array([0.0]), (3, 2), fit.at_zero.value, penalised=False), W, None)
    assert np.isfinite(gap[0])


# --- samples that have much in common --------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["huber", "log_loss", "squared_hinge"])
def test_samples_that_are_all_alike_are_told_apart_by_nobody(loss):
    X = np.broadcast_to(np.float64(0.1), (12, 4, 4))
    make = TraceNormRegressor if loss == "huber" else TraceNormClassifier
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        model = make(alpha=0.0, loss=loss, max_iter=100).fit(X, np.arange(12) % 3)
    assert np.abs(model.coef_).max() <= 1e-6


# --- units ------------------------------------------------------------------------------------------------------------


def test_a_class_without_weights_does_not_bring_units_into_the_choice_of_the_step():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 3)) + 0.5
    y = np.argsort(np.argsort(X @ rng.standard_normal(3) + 0.3 * rng.standard_normal(24))) * 3 // 24

    def fitted(scale):
        return TraceNormClassifier(0.05 * scale, loss="log_loss").fit(scale * X, y)

    usual, small = fitted(1.0), fitted(2.0**-40)
    assert not usual.coef_[1].any()  # the class in the middle
    assert small.n_iter_ == usual.n_iter_
    np.testing.assert_allclose(small.decision_function(2.0**-40 * X), usual.decision_function(X), rtol=1e-6)


# --- samples that come after those of fit ------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "squared_hinge"])
def test_scores_beyond_the_range_of_floating_point_are_refused(samples, loss):
    X, y = samples
    model = TraceNormClassifier(alpha=1e-6, loss=loss).fit(1e-3 * X, y > 0)
    huge = 1e308 * np.sign(model.coef_)  # one class against the other: an axis of length one
    for method in ("predict", "decision_function", *(["predict_proba", "predict_log_proba"] * (loss == "log_loss"))):
        with pytest.raises(
            ValueError, match=r"^Expected samples whose scores float64 can hold, got an overflow at sample 0"
        ):
            getattr(model, method)(huge)


def test_probabilities_too_small_for_a_number_have_a_logarithm(samples):
    X, y = samples
    model = TraceNormClassifier(alpha=1e-3, loss="log_loss").fit(X, y > 0)
    far = 1e4 * X
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logs = model.predict_log_proba(far)
    assert np.isfinite(logs).all()
    np.testing.assert_allclose(logs[:, 1] - logs[:, 0], model.decision_function(far), rtol=1e-12)


def test_scaled_samples_that_single_precision_cannot_hold_are_refused():
    X = np.array([[3e38], [-3e38], [3e38]], np.float32)
    with pytest.raises(
        ValueError, match=r"transformed entries float32 can hold, got an overflow at sample 1: pass X as float64"
    ):
        TensorStandardScaler(with_std=False).fit_transform(X)
    assert np.isfinite(TensorStandardScaler().fit_transform(X.astype(np.float64))).all()


def test_single_precision_samples_and_no_penalty(rng):
    X = rng.standard_normal((20, 2, 3, 4)).astype(np.float32)
    model = TraceNormRegressor(alpha=0.0).fit(X, X.reshape(20, -1) @ rng.standard_normal(24))
    assert model.dual_gap_ <= model.tol


def test_weights_too_large_for_single_precision_need_no_intercept():
    X, y = np.array([[0.125], [-0.125]], dtype=np.float32), np.array([6.4e37, 6.4e37])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = TraceNormRegressor(alpha=0.0, fit_intercept=False).partial_fit(X[:1], y[:1])
    assert model.intercept_ == 0.0
    np.testing.assert_allclose(model.coef_, 5.12e38)
