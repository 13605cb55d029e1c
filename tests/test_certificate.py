"""The gap bounds the true excess everywhere, and is the formula that the design prints."""

import numpy as np
import pytest
import registry
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import centred, matricize, minimise, spectral

from tracelearn import Moments
from tracelearn.losses import LOSSES, LogLoss
from tracelearn.penalties import PENALTIES, Split, as_penalty
from tracelearn.problems.problem import Problems, alpha_max, certify
from tracelearn.problems.sample_loss import SampleLoss
from tracelearn.problems.squares import Squares
from tracelearn.samples.samples import Block, Samples
from tracelearn.solvers import admm

SHAPES = [(5,), (3, 4), (3, 3, 2), (2, 3, 2, 2)]


def gap_at(fit, penalty, W, split, alpha):
    """Return objective and gap."""
    return certify(Problems(fit, penalty, alpha, W.shape[1:], fit.at_zero.value), W, split)


def solve(fit, penalty, alpha, shape, **options):
    return admm(Problems(fit, penalty, alpha, shape, fit.at_zero.value), **options)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(sorted(PENALTIES)),
    shape=st.sampled_from(SHAPES),
    share=st.floats(0.02, 1.2),
    ridge=st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=40)
def test_the_gap_bounds_the_excess_at_any_point_with_any_evidence(seed, name, shape, share, ridge):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((25, *shape)), rng.standard_normal(25)
    fit, penalty = Squares.of(Moments.of(X, y), ridge=ridge), as_penalty(name, shape)
    alpha = share * alpha_max(fit, penalty, shape)
    A, b = centred(X, y)
    optimum, truth = minimise(A, b, alpha[0], shape, penalty, ridge=ridge)
    reference = fit.at_zero.value[0]
    for W in (truth[None], truth[None] + 0.1 * rng.standard_normal((1, *shape)), rng.standard_normal((1, *shape))):
        start = penalty.start(W)
        gradient = fit.evaluate(W.reshape(1, -1)).gradient.reshape(W.shape)
        forces = np.broadcast_to(-gradient / start.duals.shape[0], start.duals.shape)
        noise = rng.standard_normal(start.duals.shape)
        guesses = [Split(start.parts, duals, start.anchors) for duals in (forces, forces + 0.1 * noise, noise)]
        for split in (None, start, *guesses):
            objective, gap = gap_at(fit, penalty, W, split, alpha)
            assert gap[0] >= 0
            assert objective[0] >= optimum - 1e-7 * reference
            assert objective[0] - gap[0] * reference <= optimum + 1e-7 * reference


SUMS = {**{name: (one, (3, 3, 2)) for name, one in registry.sums((3, 3, 2)).items()}, "blocks": registry.blocks()}


@pytest.mark.parametrize(("penalty", "shape"), SUMS.values(), ids=SUMS)
def test_the_gap_of_sums_of_atoms_bounds_the_excess_at_any_point_with_any_evidence(rng, penalty, shape):
    X, y = rng.standard_normal((25, *shape)), rng.standard_normal(25)
    fit = Squares.of(Moments.of(X, y), ridge=0.1)
    alpha = 0.2 * alpha_max(fit, penalty, shape)
    optimum, truth = minimise(*centred(X, y), alpha[0], shape, penalty, ridge=0.1)
    reference = fit.at_zero.value[0]
    for W in (truth[None], truth[None] + 0.1 * rng.standard_normal((1, *shape)), rng.standard_normal((1, *shape))):
        start = penalty.start(W)
        for split in (None, start, start.map(lambda a: a + 0.1 * rng.standard_normal(a.shape))):
            objective, gap = gap_at(fit, penalty, W, split, alpha)
            assert objective[0] >= optimum - 1e-7 * reference
            assert objective[0] - gap[0] * reference <= optimum + 1e-7 * reference


class Unbalanced(LogLoss):
    """A loss whose search for the intercept ends before it began."""

    name = "unbalanced"

    def intercept(self, total, start):
        return start


del LOSSES["unbalanced"]  # one of this file, and no registry's


def test_forces_that_a_free_intercept_does_not_balance_prove_nothing(rng):
    X, y = rng.standard_normal((60, 6)), np.where(np.arange(60) % 6 == 0, 1.0, -1.0)[:, None]
    samples, penalty = Samples.of(Block(X, y), (2, 3)).checked(), as_penalty("overlapped", (2, 3))
    right, wrong = (SampleLoss.of(loss, samples) for loss in (LogLoss(), Unbalanced()))
    alpha = 0.5 * alpha_max(right, penalty, (2, 3))
    optimum = solve(right, penalty, alpha, (2, 3), tol=1e-9).objective[0]
    one = np.ones(1)
    assert right.at_zero.dual_value(one) > 0.0
    assert wrong.at_zero.dual_value(one) == 0.0  # no loss is negative, and that is all
    W = np.zeros((1, 2, 3))
    objective, gap = gap_at(wrong, penalty, W, penalty.start(W), alpha)
    assert objective[0] - gap[0] * wrong.at_zero.value[0] <= optimum
    assert SampleLoss.of(LogLoss(), samples, fit_intercept=False).at_zero.dual_value(one) > 0.0  # it is not free there


@pytest.mark.parametrize("ridge", [0.0, 0.4])
@pytest.mark.parametrize("shape", [(3, 3, 2), (2, 3, 2, 2)])
def test_the_gap_of_the_overlapped_norm_is_the_formula_of_the_design_computed_from_the_samples(rng, shape, ridge):
    n, order = 25, len(shape)
    X, y, W = rng.standard_normal((n, *shape)) + 1.0, rng.standard_normal(n) + 3.0, 0.3 * rng.standard_normal(shape)
    theta, alpha = (0.5, 1.0, 0.7, 0.2)[:order], 0.3
    penalty, fit = as_penalty("overlapped", shape, theta), Squares.of(Moments.of(X, y), ridge=ridge)
    split = penalty.start(W[None])
    split = Split(split.parts, rng.standard_normal(split.duals.shape), split.anchors)

    A, b = centred(X, y)
    # The ridge is a loss on p more samples: sqrt(n mu) e_j with target zero.
    A, b = np.vstack([A, np.sqrt(n * ridge) * np.eye(W.size)]), np.concatenate([b, np.zeros(W.size)])
    r = b - A @ W.ravel()
    r2, ry, g = r @ r / n, r @ b / n, (-2 * A.T @ r / n).reshape(shape)
    V = split.duals[:, 0] + (-g - split.duals[:, 0].sum(axis=0)) / order
    np.testing.assert_allclose(V.sum(axis=0), -g, atol=1e-12)
    s = max(1.0, *(spectral(V[m], m) / (alpha * theta[m]) for m in range(order)))
    t = min(1 / s, ry / r2)
    norm = sum(theta[m] * np.linalg.svd(matricize(W, m), compute_uv=False).sum() for m in range(order))
    gap = (r2 + alpha * norm) - (2 * t * ry - t**2 * r2)

    objective, found = gap_at(fit, penalty, W[None], split, np.array([alpha]))
    assert objective[0] == pytest.approx(r2 + alpha * norm, rel=1e-10)
    assert found[0] * np.var(y) == pytest.approx(gap, rel=1e-9)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spectral_system", [False, True])
def test_at_alpha_max_the_answer_is_zero_at_once(tiny, name, shape, spectral_system):
    fit, penalty = Squares.of(Moments.of(*tiny(shape)), spectral=spectral_system), as_penalty(name, shape)
    top = alpha_max(fit, penalty, shape)
    zero = np.zeros((1, *shape))
    assert gap_at(fit, penalty, zero, None, top * (1 + 1e-12))[1][0] <= 1e-10
    found = solve(fit, penalty, 1.0001 * top, shape, tol=1e-9)
    assert not found.W.any()  # exactly zero
    assert found.gap[0] <= 1e-9
    assert found.objective[0] == pytest.approx(fit.at_zero.value[0])


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_below_the_true_threshold_the_answer_is_not_zero(tiny, name, shape):
    fit, penalty = Squares.of(Moments.of(*tiny(shape))), as_penalty(name, shape)
    gradient = fit.at_zero.gradient.reshape(1, *shape)
    # Exact for latent norms and up to order 2; else <G, G> / norm(G) is below the true one.
    exact = name != "overlapped" or len(shape) <= 2
    bound = alpha_max(fit, penalty, shape) if exact else np.sum(gradient**2) / penalty.value(gradient)
    found = solve(fit, penalty, 0.98 * bound, shape, tol=1e-9, max_iter=5000)
    assert found.gap[0] <= 1e-9
    assert np.abs(found.W).max() > 1e-4
    assert found.objective[0] < fit.at_zero.value[0]


@pytest.mark.parametrize("shape", [(3, 3, 2), (2, 3, 2, 2)])
def test_the_bound_on_alpha_max_is_at_most_a_third_above_the_true_one(tiny, shape):
    fit, penalty = Squares.of(Moments.of(*tiny(shape))), as_penalty("overlapped", shape)
    assert solve(fit, penalty, alpha_max(fit, penalty, shape) / 1.35, shape, tol=1e-8, max_iter=5000).W.any()


def test_alpha_max_of_several_problems_is_that_of_each(tiny):
    shape = (3, 3, 2)
    X, y = tiny(shape, targets=3)
    penalty = as_penalty("overlapped", shape)
    together = alpha_max(Squares.of(Moments.of(X, y)), penalty, shape)
    alone = [alpha_max(Squares.of(Moments.of(X, y[:, k])), penalty, shape)[0] for k in range(3)]
    np.testing.assert_allclose(together, alone)
    assert alpha_max(Squares.of(Moments.of(X, y), joint=True), penalty, shape) == pytest.approx([max(alone)])


@pytest.mark.parametrize("name", PENALTIES)
def test_a_constant_target_has_the_answer_zero_with_gap_zero(rng, name):
    X, y = rng.standard_normal((10, 3, 2, 2)), np.full(10, 7.0)
    fit, penalty = Squares.of(Moments.of(X, y)), as_penalty(name, (3, 2, 2), (3.0, 3.0, 3.0))
    assert alpha_max(fit, penalty, (3, 2, 2))[0] < 1e-290
    found = solve(fit, penalty, np.array([0.1]), (3, 2, 2))
    assert found.gap[0] == 0.0
    assert not found.W.any()
    assert fit.intercept(found.W.reshape(1, -1))[0] == 7.0


def test_every_array_library_gives_numpys_certificate(rng, xp):
    X, y, W = rng.standard_normal((20, 3, 3, 2)), rng.standard_normal(20), rng.standard_normal((1, 3, 3, 2))
    for name in PENALTIES:
        penalty = as_penalty(name, (3, 3, 2))
        results = []
        for lib in (np, xp):
            fit = Squares.of(Moments.of(lib.asarray(X), lib.asarray(y)), ridge=0.1)
            w = lib.asarray(W)
            problems = Problems(fit, penalty, lib.asarray([0.2], dtype=lib.float64), (3, 3, 2), fit.at_zero.value)
            objective, gap = certify(problems, w, penalty.start(w))
            results.append([float(objective[0]), float(gap[0]), float(alpha_max(fit, penalty, (3, 3, 2))[0])])
        np.testing.assert_allclose(*results, rtol=1e-10)
