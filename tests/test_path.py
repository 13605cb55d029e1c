"""Paths: the grid of alphas, and every point of a walk against a fit of its own."""

import numpy as np
import pytest
from tracelearn.problems.certificate import alpha_max
from tracelearn.problems.smooth import Squares

from tracelearn import Moments
from tracelearn.penalties import OverlappedTraceNorm
from tracelearn.selection.path import alpha_grid, walk_path
from tracelearn.solvers import admm

PENALTY = OverlappedTraceNorm((3, 2, 2))


@pytest.fixture
def smooth(tiny):
    X, y = tiny((3, 2, 2), targets=2)
    return Squares.of(Moments.of(X, y))


def test_a_grid_falls_by_one_factor_from_the_largest_alpha_max_to_its_share(smooth):
    grid = alpha_grid(smooth, PENALTY, 4, 0.01)
    assert grid.shape == (4,)
    assert grid[0] == pytest.approx(alpha_max(smooth, PENALTY).max())
    np.testing.assert_allclose(grid[1:] / grid[:-1], 0.01 ** (1 / 3))


def test_alphas_that_are_given_are_walked_from_the_largest_down(smooth):
    assert alpha_grid(smooth, PENALTY, [0.1, 3, 0.5], 0.01).tolist() == [3.0, 0.5, 0.1]


def test_where_features_say_nothing_the_grid_begins_at_one():
    smooth = Squares.of(Moments.of(np.zeros((4, 3, 2, 2)), np.arange(4.0)))
    np.testing.assert_allclose(alpha_grid(smooth, PENALTY, 3, 0.01), [1.0, 0.1, 0.01])


def test_every_point_of_a_walk_is_certified_and_is_the_answer_of_a_fit_of_its_own(smooth):
    alphas = alpha_grid(smooth, PENALTY, 4, 0.02)
    points = list(walk_path(smooth, PENALTY, alphas, admm, tol=1e-8, max_iter=5000))
    assert [point.alpha for point in points] == alphas.tolist()
    for point in points:
        alone = admm(smooth, PENALTY, np.full(2, point.alpha), tol=1e-8, max_iter=5000)
        assert point.W.shape == (2, 12)
        assert point.gap <= 1e-8
        scale = max(np.abs(alone.W).max(), 1e-3)
        np.testing.assert_allclose(point.W, alone.W.reshape(2, 12), atol=1e-3 * scale)
        np.testing.assert_allclose(point.intercept, smooth.intercept(point.W))


def test_a_point_reports_the_gap_of_its_worst_problem_and_the_iterations(smooth):
    alpha = 0.01 * alpha_max(smooth, PENALTY).max()
    (point,) = walk_path(smooth, PENALTY, np.array([alpha]), admm, tol=0.0, max_iter=5)
    alone = admm(smooth, PENALTY, np.full(2, alpha), tol=0.0, max_iter=5)
    assert point.n_iter == 5
    assert alone.gap[0] != alone.gap[1]
    assert point.gap == alone.gap.max()


def test_the_step_of_a_solver_follows_alpha_from_point_to_point(smooth):
    starts = []

    def solver(smooth, penalty, alpha, *, start, **options):
        starts.append(None if start is None else start.rho)
        return admm(smooth, penalty, alpha, start=None, **options)

    alphas = 0.5 ** np.arange(1, 4) * alpha_max(smooth, PENALTY).max()
    list(walk_path(smooth, PENALTY, alphas, solver, tol=1e-6, max_iter=1000))
    ends = [admm(smooth, PENALTY, np.full(2, alpha), tol=1e-6, max_iter=1000).rho for alpha in alphas]
    assert starts[0] is None
    np.testing.assert_allclose(starts[1], 0.5 * ends[0])
    np.testing.assert_allclose(starts[2], 0.5 * ends[1])


def test_a_walk_down_to_zero_starts_every_solve_from_the_one_before(smooth):
    top = alpha_max(smooth, PENALTY).max()
    points = list(walk_path(smooth, PENALTY, np.array([0.1 * top, 0.0, 0.0]), admm, tol=1e-6, max_iter=5000))
    assert points[-1].n_iter == 0  # the answer was known
    assert all(point.gap <= 1e-6 for point in points)
