"""Paths: the grid of alphas, and every point of a path against a fit of its own."""

import numpy as np
import pytest
from sklearn.base import clone

from tracelearn import Moments, TraceNormClassifier, TraceNormRegressor, trace_norm_path
from tracelearn.penalties import as_penalty
from tracelearn.problems.problem import alpha_max
from tracelearn.problems.squares import Squares
from tracelearn.search import path as path_module
from tracelearn.search.search import read_alphas
from tracelearn.solvers import admm

SHAPE = (3, 2, 2)


@pytest.fixture
def samples(tiny):
    return tiny(SHAPE, targets=2)


def top(X, y):
    return alpha_max(Squares.of(Moments.of(X, y)), as_penalty("overlapped", SHAPE), SHAPE).max()


def test_a_grid_falls_by_one_factor_from_the_largest_alpha_max_to_its_share(samples):
    alphas = trace_norm_path(*samples, alphas=4, eps=0.01).alphas
    assert alphas.shape == (4,)
    assert alphas[0] == pytest.approx(top(*samples))
    np.testing.assert_allclose(alphas[1:] / alphas[:-1], 0.01 ** (1 / 3))


def test_alphas_that_are_given_are_walked_from_the_largest_down(samples):
    assert trace_norm_path(*samples, alphas=[0.1, 3, 0.5]).alphas.tolist() == [3.0, 0.5, 0.1]


@pytest.mark.parametrize("alphas", [[], [-1.0], [np.nan], [1.0, np.inf], ["much"], [[1.0], [1.0, 2.0]], -1.0])
def test_alphas_that_are_no_strengths_are_refused_in_a_sentence(samples, alphas):
    with pytest.raises(
        ValueError, match=r"^Expected alphas, or a number of them, that are finite and not negative, at least"
    ):
        trace_norm_path(*samples, alphas=alphas)


@pytest.mark.parametrize(("alphas", "eps"), [(0, 1e-3), (-3, 1e-3), (3, -1.0), (3, 0.0), (3, 2.0), (3, np.nan)])
def test_a_grid_that_does_not_fall_to_a_share_above_zero_is_refused(samples, alphas, eps):
    with pytest.raises(ValueError, match=r"^Expected at least one alpha, and eps between 0 and 1, got alphas="):
        trace_norm_path(*samples, alphas=alphas, eps=eps)


def test_where_features_say_nothing_the_grid_begins_at_one():
    alphas = trace_norm_path(np.zeros((4, *SHAPE)), np.arange(4.0), alphas=3, eps=0.01).alphas
    np.testing.assert_allclose(alphas, [1.0, 0.1, 0.01])
    np.testing.assert_allclose(read_alphas(3, 0.01)[0], [1.0, 0.1, 0.01])


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_every_point_of_a_path_is_certified_and_is_the_answer_of_a_fit_of_its_own(samples, loss):
    X, y = samples
    model = TraceNormRegressor(tol=1e-8, max_iter=5000, loss=loss)
    path = trace_norm_path(X, y, estimator=model, alphas=4, eps=0.02)
    assert path.coefs.shape == (4, 2, *SHAPE)
    assert np.all(path.dual_gaps <= 1e-8)
    for k, alpha in enumerate(path.alphas):
        alone = clone(model).set_params(alpha=alpha).fit(X, y)
        scale = max(np.abs(alone.coef_).max(), 1e-3)
        np.testing.assert_allclose(path.coefs[k], alone.coef_, atol=1e-3 * scale)
        np.testing.assert_allclose(path.intercepts[k], alone.intercept_, atol=1e-2 * scale)


def test_a_path_with_mode_scales_is_that_of_the_fits(samples):
    X, y = samples
    X = X * np.array([1.0, 50.0, 0.1]).reshape(-1, 1, 1)
    model = TraceNormRegressor(tol=1e-9, max_iter=5000, scaling="modes")
    path = trace_norm_path(X, y, estimator=model, alphas=[0.5, 0.1])
    for k, alpha in enumerate(path.alphas):
        np.testing.assert_allclose(
            path.coefs[k], clone(model).set_params(alpha=alpha).fit(X, y).coef_, rtol=1e-3, atol=1e-5
        )


def test_a_path_of_classes_has_the_answers_of_the_fits(samples):
    X, y = samples
    labels = np.digitize(y[:, 0], np.quantile(y[:, 0], [0.3, 0.7]))
    model = TraceNormClassifier(tol=1e-8, max_iter=5000, loss="log_loss")
    path = trace_norm_path(X, labels, estimator=model, alphas=[0.1, 0.02])
    for k, alpha in enumerate(path.alphas):
        np.testing.assert_allclose(path.coefs[k], clone(model).set_params(alpha=alpha).fit(X, labels).coef_, atol=2e-3)


def test_a_point_reports_the_gap_of_its_worst_problem_and_the_iterations(samples):
    model = TraceNormRegressor(tol=1e-14, max_iter=5)
    alpha = 0.01 * top(*samples)
    path = trace_norm_path(*samples, estimator=model, alphas=[alpha])
    gaps = [
        trace_norm_path(samples[0], column, estimator=model, alphas=[alpha]).dual_gaps[0] for column in samples[1].T
    ]
    assert path.n_iters[0] == 5
    assert gaps[0] != gaps[1]
    assert path.dual_gaps[0] == pytest.approx(max(gaps), rel=0.5)


def test_the_step_of_a_solver_follows_alpha_from_point_to_point(samples):
    starts, ends = [], []

    def solver(problems, *, start, **options):
        starts.append(None if start is None else start.rho)
        ends.append(admm(problems, start=None, **options))
        return ends[-1]

    alphas = 0.5 ** np.arange(1, 4) * top(*samples)
    trace_norm_path(*samples, estimator=TraceNormRegressor(solver=solver), alphas=alphas)
    assert starts[0] is None
    np.testing.assert_allclose(starts[1], 0.5 * ends[0].rho)
    np.testing.assert_allclose(starts[2], 0.5 * ends[1].rho)


def test_a_path_down_to_zero_starts_every_solve_from_the_one_before(samples):
    path = trace_norm_path(
        *samples, estimator=TraceNormRegressor(max_iter=5000), alphas=[0.1 * top(*samples), 0.0, 0.0]
    )
    assert path.n_iters[-1] == 0  # the answer was known
    assert np.all(path.dual_gaps <= 1e-6)


def test_the_estimator_of_a_path_is_left_as_it_was(samples):
    model = TraceNormRegressor(alpha=3.0)
    before = dict(vars(model))
    trace_norm_path(*samples, estimator=model, alphas=2)
    assert vars(model) == before
    assert path_module.TraceNormPath.__dataclass_params__.frozen
