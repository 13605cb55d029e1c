"""The inner proximal method against cvxpy, and what their splits prove."""

import numpy as np
import pytest
import registry
from oracle import minimise, spectral

from tracelearn.penalties import PENALTIES, Latent, as_penalty
from tracelearn.solvers.apg import prox_adm

SHAPES = [(5,), (3, 4), (3, 3, 2), (2, 3, 2, 2)]


def exact(penalty, P, alpha, curvature, **options):
    options = {"tol": 1e-14, "max_iter": 4000, **options}
    return prox_adm(penalty, P[None], np.array([alpha]), curvature, **options)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", PENALTIES)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_proximal_point_is_the_one_that_cvxpy_finds(rng, shape, kind, weighted):
    penalty = as_penalty(kind, shape, (0.5, 1.5, 1.0, 0.25)[: len(shape)] if weighted else None)
    P, curvature = rng.standard_normal(shape), 2.5
    alpha = 0.3 * curvature * penalty.dual_norm(P[None])[0]
    W, _ = exact(penalty, P, alpha, curvature)
    # curvature/2 |W - P|^2 is the mean of the p squares, times p curvature / 2
    factor = P.size * curvature / 2
    _, truth = minimise(np.eye(P.size), P.ravel(), alpha / factor, shape, penalty)
    np.testing.assert_allclose(W[0], truth, atol=3e-5)


SUMS = {**{name: (one, (3, 3, 2)) for name, one in registry.sums((3, 3, 2)).items()}, "blocks": registry.blocks()}


@pytest.mark.parametrize(("penalty", "shape"), SUMS.values(), ids=SUMS)
def test_the_proximal_point_of_a_sum_of_atoms_is_the_one_that_cvxpy_finds(rng, penalty, shape):
    P, curvature = rng.standard_normal(shape), 2.5
    alpha = 0.3 * curvature * penalty.dual_norm(P[None])[0]
    W, _ = exact(penalty, P, alpha, curvature)
    _, truth = minimise(np.eye(P.size), P.ravel(), alpha / (P.size * curvature / 2), shape, penalty)
    np.testing.assert_allclose(W[0], truth, atol=3e-5)


@pytest.mark.parametrize("shape", [*SHAPES[2:], (7, 2, 2)])
@pytest.mark.parametrize("curvature", [0.1, 1.0, 30.0])
def test_an_overlapped_split_proves_its_point(rng, shape, curvature):
    order = len(shape)
    weights = (0.5, 1.5, 1.0, 0.25)[:order]
    penalty, P = as_penalty("overlapped", shape, weights), rng.standard_normal(shape)
    alpha = 0.4 * curvature * penalty.dual_norm(P[None])[0]
    W, split = exact(penalty, P, alpha, curvature)
    # Forces balance, each within its spectral ball, and every part is the point itself.
    np.testing.assert_allclose(split.duals.sum(axis=0)[0], curvature * (P - W[0]), atol=1e-7 * curvature)
    for mode, theta in enumerate(weights):
        assert spectral(split.duals[mode, 0], mode) <= alpha * theta * (1 + 1e-10)
        np.testing.assert_allclose(split.parts[mode, 0], W[0], atol=1e-7)


@pytest.mark.parametrize("shape", [*SHAPES[2:], (7, 2, 2)])
def test_a_latent_split_proves_its_point(rng, shape):
    penalty, P, curvature = as_penalty("scaled_latent", shape), rng.standard_normal(shape), 3.0
    alpha = 0.4 * curvature * penalty.dual_norm(P[None])[0]
    W, split = exact(penalty, P, alpha, curvature)
    np.testing.assert_allclose(split.parts.sum(axis=0)[0], W[0], atol=1e-7)
    # The shared force is -curvature (P - W) here: from the parts to W.
    np.testing.assert_allclose(np.abs(split.duals[0, 0]), np.abs(curvature * (P - W[0])), atol=1e-6)
    for mode, (theta, _) in enumerate(penalty.terms):
        assert spectral(P - W[0], mode) * curvature <= alpha * theta * (1 + 1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["overlapped", "latent"])
def test_it_finds_one_point_whatever_the_units_are(rng, shape, kind):
    penalty, P = as_penalty(kind, shape), rng.standard_normal(shape)
    alpha = 0.3 * penalty.dual_norm(P[None])[0]
    # curvature/2 |W - P|^2 + alpha norm(W) has the same answer times any number, and their steps follow the curvature
    found = [exact(penalty, P, c * alpha, c)[0] for c in (1.0, 4.0, 1e-3)]
    for W in found[1:]:
        np.testing.assert_allclose(W, found[0], atol=1e-7)


@pytest.mark.parametrize("kind", ["overlapped", "latent"])
def test_starting_where_it_ended_it_stays(rng, kind):
    penalty, P = as_penalty(kind, (3, 3, 2)), rng.standard_normal((1, 3, 3, 2))
    alpha = 0.3 * penalty.dual_norm(P)
    W, split = prox_adm(penalty, P, alpha, 1.0, tol=1e-14, max_iter=4000)
    again, _ = prox_adm(penalty, P, alpha, 1.0, split, max_iter=1)
    cold, _ = prox_adm(penalty, P, alpha, 1.0, max_iter=1)
    np.testing.assert_allclose(again, W, atol=1e-8)
    assert np.abs(cold - W).max() > 1e-3


def test_a_looser_tolerance_stops_earlier(rng):
    penalty, P = as_penalty("overlapped", (4, 3, 2)), rng.standard_normal((1, 4, 3, 2))
    alpha = 0.3 * penalty.dual_norm(P)
    best = prox_adm(penalty, P, alpha, 1.0, tol=1e-14, max_iter=4000)[0]
    errors = [
        np.abs(prox_adm(penalty, P, alpha, 1.0, tol=tol, max_iter=4000)[0] - best).max() for tol in (1e-2, 1e-5, 1e-9)
    ]
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("kind", ["latent", "overlapped"])
def test_the_forces_of_a_split_balance_the_pull_of_the_point_that_was_given(rng, kind):
    penalty, P, curvature = as_penalty(kind, (3, 3, 2)), rng.standard_normal((2, 3, 3, 2)), 2.5
    alpha = 0.3 * curvature * penalty.dual_norm(P)
    W, split = prox_adm(penalty, P, alpha, curvature, tol=1e-14, max_iter=4000)
    pull = curvature * (W - P)
    # The parts of a latent norm share one force, against W; those of the overlapped norm are forces on W, which add up.
    force = split.duals[0] if isinstance(penalty, Latent) else -split.duals.sum(axis=0)
    np.testing.assert_allclose(force, pull, atol=1e-6)


@pytest.mark.parametrize(("penalty", "shape"), SUMS.values(), ids=SUMS)
def test_adm_has_a_step_that_suits_the_penalty(rng, penalty, shape):
    P = rng.standard_normal((1, *shape))
    alpha = 0.3 * penalty.dual_norm(P)
    best, _ = prox_adm(penalty, P, alpha, 1.0, tol=1e-14, max_iter=20000)
    found, _ = prox_adm(penalty, P, alpha, 1.0, tol=0.0, max_iter=400)  # with one step for all a latent norm took 660
    np.testing.assert_allclose(found, best, atol=1e-6 * np.abs(P).max())
