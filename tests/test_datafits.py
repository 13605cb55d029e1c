"""The squares against the samples that they stand for."""

import dataclasses
import gc
import importlib
import inspect
import weakref

import numpy as np
import pytest
import registry
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse

from tracelearn import Moments, TraceNormClassifier
from tracelearn.arrays.span import Span, short_basis, span
from tracelearn.losses import LOSSES, SquaredError
from tracelearn.moments import Accumulator
from tracelearn.penalties import as_penalty
from tracelearn.problems import sample_loss
from tracelearn.problems.data_fit import lipschitz
from tracelearn.problems.forms import BasisForm, MomentsForm, SamplesForm
from tracelearn.problems.operators import Gram, InBasis
from tracelearn.problems.problem import Problems
from tracelearn.problems.sample_loss import SampleLoss, _Share
from tracelearn.problems.squares import Squares
from tracelearn.samples import samples as samples_module
from tracelearn.samples.samples import Block, Samples
from tracelearn.solvers import admm
from tracelearn.solvers.stopping import Finish


def as_samples(X, Y, weight=None):
    """See arrays as checked samples."""
    return Samples.of(Block(X, Y, weight), (X.shape[1],)).checked()


def arrays_of(samples):
    """Return rows, targets and shares of samples in one block."""
    (block,) = samples.blocks
    return block.X, block.Y, block.weight / samples.weight


@pytest.fixture
def problem(rng):
    X, Y, w = rng.standard_normal((20, 3, 2)) + 2.0, rng.standard_normal((20, 2)) - 1.0, rng.uniform(0.5, 2.0, 20)
    return X.reshape(20, -1), Y, w


def objective(X, Y, w, W, ridge):
    """Evaluate with the best intercept, for each target."""
    share = w / w.sum()
    residual = Y - X @ W.T
    residual = residual - share @ residual
    return share @ residual**2 + ridge * np.sum(W**2, axis=1)


@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_value_and_gradient_are_those_of_the_weighted_mean_of_squares(problem, rng, ridge):
    X, Y, w = problem
    fit, W = Squares.of(Moments.of(X, Y, w), ridge=ridge), rng.standard_normal((2, 6))
    at = fit.evaluate(W)
    np.testing.assert_allclose(at.value, objective(X, Y, w, W, ridge), rtol=1e-10)
    for j in range(6):
        step = np.zeros((2, 6))
        step[:, j] = 1e-5
        slope = (objective(X, Y, w, W + step, ridge) - objective(X, Y, w, W - step, ridge)) / 2e-5
        np.testing.assert_allclose(at.gradient[:, j], slope, rtol=1e-6, atol=1e-8)


def test_the_intercept_is_the_best_one(problem, rng):
    X, Y, w = problem
    W = rng.standard_normal((2, 6))
    b = Squares.of(Moments.of(X, Y, w)).intercept(W)
    np.testing.assert_allclose(b, np.average(Y - X @ W.T, axis=0, weights=w))


def test_zero_is_the_variance_of_the_targets(problem):
    X, Y, w = problem
    fit = Squares.of(Moments.of(X, Y, w), ridge=0.3)
    plain = fit.evaluate(np.zeros((2, 6)))
    for name in ("value", "gradient", "slope"):
        np.testing.assert_allclose(getattr(fit.at_zero, name), getattr(plain, name), rtol=1e-12)
    np.testing.assert_allclose(fit.at_zero.value, objective(X, Y, w, np.zeros((2, 6)), 0.3))


@pytest.mark.parametrize("spectral", [False, True])
def test_the_update_minimises_what_it_says(problem, rng, spectral):
    X, Y, w = problem
    fit = Squares.of(Moments.of(X, Y, w), ridge=0.2, spectral=spectral)
    pull, shift = rng.standard_normal((2, 6)), np.array([0.5, 0.5])
    V = fit.updater(shift)(np.zeros((2, 6)), pull)
    np.testing.assert_allclose(fit.evaluate(V).gradient - pull + shift[:, None] * V, 0.0, atol=1e-10)


def test_the_lipschitz_constant_bounds_the_gradient_and_is_tight(problem):
    X, Y, w = problem
    fit = Squares.of(Moments.of(X, Y, w), ridge=0.2)
    hessian = np.stack([fit.evaluate(np.tile(e, (2, 1))).gradient[0] - fit.at_zero.gradient[0] for e in np.eye(6)])
    true = np.linalg.eigvalsh(hessian)[-1]
    assert true <= lipschitz(fit) <= 1.05 * true


def test_without_centring_the_intercept_is_zero(problem, rng):
    X, Y, w = problem
    fit, W = Squares.of(Moments.of(X, Y, w).uncentred()), rng.standard_normal((2, 6))
    assert not fit.intercept(W).any()
    np.testing.assert_allclose(fit.evaluate(W).value, np.average((Y - X @ W.T) ** 2, axis=0, weights=w))


def test_alpha_means_the_same_for_any_number_of_samples(problem, rng):
    X, Y, w = problem
    once, many, W = Moments.of(X, Y, w), Moments.of(X, Y, w).scaled(50.0), rng.standard_normal((2, 6))
    one, fifty = (Squares.of(moments).evaluate(W) for moments in (once, many))
    np.testing.assert_allclose(one.value, fifty.value)
    np.testing.assert_allclose(one.gradient, fifty.gradient)


def test_joint_targets_share_one_value(problem, rng):
    X, Y, w = problem
    moments, W = Moments.of(X, Y, w), rng.standard_normal((2, 6))
    apart, joint = Squares.of(moments, ridge=0.1), Squares.of(moments, ridge=0.1, joint=True)
    assert (apart.n_problems, joint.n_problems) == (2, 1)
    np.testing.assert_allclose(joint.evaluate(W).value, [apart.evaluate(W).value.sum()])
    np.testing.assert_allclose(joint.evaluate(W).gradient, apart.evaluate(W).gradient)


def test_a_perfect_fit_has_value_zero_and_not_less(rng):
    X, W = rng.standard_normal((20, 4)) + 100.0, rng.standard_normal((1, 4))
    at = Squares.of(Moments.of(X, X @ W[0])).evaluate(W)
    assert 0.0 <= at.value[0] < 1e-12
    assert np.isfinite(at.dual_value(np.ones(1))[0])


def test_the_dual_value_is_the_largest_of_all_scales_that_are_allowed(problem, rng):
    X, Y, w = problem
    at = Squares.of(Moments.of(X, Y, w)).evaluate(0.1 * rng.standard_normal((2, 6)))
    for most in (0.2, 1.0):
        t = np.linspace(0.0, most, 1001)[:, None]
        values = 2.0 * t * at.slope - t**2 * at.value
        assert_allclose(at.dual_value(np.full(2, most)), values.max(axis=0), rtol=1e-4)


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("spectral", [True, False])
def test_squares_in_a_basis_of_fewer_samples_than_features_are_those_of_the_gram(rng, centre, spectral):
    X, Y, w = rng.standard_normal((5, 9)) + 2.0, rng.standard_normal((5, 2)), rng.uniform(0.5, 2.0, 5)
    W, options = rng.standard_normal((2, 9)), {"ridge": 0.1, "joint": False, "fit_intercept": centre}
    few = BasisForm().data_fit(as_samples(X, Y, w), SquaredError(), spectral=spectral, **options)
    full = MomentsForm().data_fit(as_samples(X, Y, w), SquaredError(), spectral=spectral, **options)
    assert isinstance(few.operator, InBasis)
    assert isinstance(full.operator, Gram)
    assert few.operator.inner.matrix.shape == (5 - centre, 5 - centre)  # a mean taken away is a dimension less
    np.testing.assert_allclose(few.evaluate(W).value, full.evaluate(W).value)
    np.testing.assert_allclose(few.evaluate(W).gradient, full.evaluate(W).gradient, atol=1e-10)
    np.testing.assert_allclose(few.intercept(W), full.intercept(W), atol=1e-12)
    np.testing.assert_allclose(few.variances, full.variances)
    shift = np.full(2, 0.7)
    np.testing.assert_allclose(few.updater(shift)(W, W), full.updater(shift)(W, W), atol=1e-10)


@pytest.mark.parametrize("n", [8, 30])  # in a basis, and as a matrix
@pytest.mark.parametrize("centre", [True, False])
def test_covariances_of_samples_take_any_weights_and_solve(n, centre):
    rng = np.random.default_rng(0)
    X, shift = rng.normal(5.0, 1.0, (n, 12)), np.array([0.3])
    fit = SampleLoss.of(LOSSES["log_loss"](), as_samples(X, np.ones((n, 1))), fit_intercept=centre)
    for weight in (rng.uniform(0.1, 2.0, n), rng.uniform(0.0, 1.0, n) ** 8):
        (system,) = fit._covariances(lambda Y, share, z, weight=weight: weight[:, None])
        deviations = X - (weight @ X / weight.sum() if centre else 0.0)
        matrix, row = (deviations.T * weight) @ deviations, rng.normal(size=(1, 12))
        assert_allclose(system.apply(row), row @ matrix, rtol=0, atol=1e-10)
        assert_allclose(system.solver(shift)(row @ matrix + 0.3 * row), row, rtol=0, atol=1e-9)
        assert_allclose(system.mean_eigenvalue, np.trace(matrix) / 12, rtol=1e-10)


READERS = {
    "basis": lambda X: (X, BasisForm()),
    "in passes": lambda X: (X, SamplesForm(in_passes=True)),
    "sparse": lambda X: (sparse.csr_array(X), SamplesForm()),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("joint", [True, False])
def test_squares_are_the_same_however_the_samples_are_read(problem, rng, reader, centre, joint):
    X, Y, w = problem
    moments, W = Moments.of(X, Y, w), rng.standard_normal((2, 6))
    expected = Squares.of(moments if centre else moments.uncentred(), ridge=0.3, joint=joint)
    rows, form = READERS[reader](X)
    options = {"ridge": 0.3, "joint": joint, "fit_intercept": centre}
    found = form.data_fit(as_samples(rows, Y, w), SquaredError(), **options)
    assert (found.n_problems, found.n_features) == (expected.n_problems, 6)
    for at, other in ((found.evaluate(W), expected.evaluate(W)), (found.at_zero, expected.at_zero)):
        assert_allclose(at.value, other.value, rtol=1e-10)
        assert_allclose(at.gradient, other.gradient, rtol=1e-9, atol=1e-9)
        for one, same in zip(at.errors(1.0), other.errors(1.0), strict=True):
            assert_allclose(one, same, rtol=1e-9)
    assert_allclose(found.variances, expected.variances, rtol=1e-9)
    assert_allclose(found.intercept(W), expected.intercept(W), atol=1e-10)
    assert_allclose(found.operator.mean_eigenvalue, expected.operator.mean_eigenvalue, rtol=1e-9)
    assert_allclose(lipschitz(found), lipschitz(expected), rtol=0.05)


def test_rounding_is_that_of_the_terms_that_are_summed(problem):
    X, Y, w = problem
    share = w / w.sum()
    fit, W = Squares.of(Moments.of(X, Y, w), ridge=0.5), np.full((2, 6), 3.0)
    variance = share @ (X - share @ X) ** 2
    target, scatter = share @ (Y - share @ Y) ** 2, W**2 @ variance
    ridge = 0.5 * np.sum(W**2, axis=1)
    value, gradient = fit.evaluate(W).errors(1.0)
    assert_allclose(value, target + scatter + ridge)
    spread = np.sqrt(variance.sum()) * (np.sqrt(target) + np.sqrt(scatter))
    assert_allclose(gradient, 2.0 * (spread + np.sqrt(0.5 * ridge)))
    value, gradient = fit.at_zero.errors(1.0)
    assert_allclose(value, target)
    assert_allclose(gradient, 2.0 * np.sqrt(variance.sum() * target))


def test_blocks_of_samples_sum_to_all_of_them(rng, monkeypatch):
    p = 5
    monkeypatch.setattr(samples_module, "_BLOCK_BYTES", 8 * p * 3)  # three rows a block
    monkeypatch.setattr(samples_module, "_BLOCK_ROWS", 1)
    X, Y = rng.standard_normal((7, p)), rng.standard_normal((7, 1))
    seen = []

    def term(X, Y, share, z):
        seen.append(len(share))
        return share @ X, share @ Y

    x_mean, y_mean = as_samples(X, Y).in_small_blocks().total(term)
    assert_allclose(x_mean, X.mean(axis=0), atol=1e-14)
    assert_allclose(y_mean, Y.mean(axis=0), atol=1e-14)
    assert seen == [3, 3, 1]
    monkeypatch.setattr(samples_module, "_BLOCK_ROWS", 4)  # which long samples have at least
    as_samples(X, Y).in_small_blocks().total(term)
    assert seen[3:] == [4, 3]


def samples_of(name, rng, n=40):
    """Draw samples and targets of the kind that a loss is for."""
    X = rng.standard_normal((n, 4)) + 1.0
    scores = 0.5 * (X @ rng.standard_normal((4, 3)) + rng.standard_normal((n, 3)))
    return as_samples(X, registry.targets(name, rng, scores), rng.uniform(0.5, 2.0, n))


every_loss = pytest.mark.parametrize("name", LOSSES)
# A loss whose second derivative nothing bounds has no steps by a bound: Newton alone learns it.
bounded_loss = pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name].curvature is not None])


@every_loss
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_loss_of_samples_is_the_weighted_mean_with_the_best_intercept(rng, name, fit_intercept):
    samples, loss, W = samples_of(name, rng), LOSSES[name](), 0.3 * rng.standard_normal((3, 4))
    fit = SampleLoss.of(loss, samples, ridge=0.4, fit_intercept=fit_intercept)
    b = fit.intercept(W)
    assert fit_intercept == bool(np.any(b))

    X, Y, share = arrays_of(samples)

    def value(W, b):
        ridge = 0.4 * np.sum(W**2, axis=1) if loss.is_separable else 0.4 * np.sum(W**2)
        return share @ loss.value(Y, X @ W.T + b) + ridge

    at = fit.evaluate(W)
    assert_allclose(at.value, value(W, b), rtol=1e-10)
    if fit_intercept:
        assert np.all(at.value <= np.add(value(W, b + 0.01), 1e-12))
    for k in range(3):
        for j in range(4):
            step = np.zeros((3, 4))
            step[k, j] = 1e-5
            slope = (fit.evaluate(W + step).value - fit.evaluate(W - step).value) / 2e-5
            assert_allclose(at.gradient[k, j], slope[k if loss.is_separable else 0], rtol=1e-5, atol=1e-7)


@every_loss
@pytest.mark.parametrize("n", [40, 3])  # as a matrix, and through a basis or kernel of few samples
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_model_of_second_order_has_gradient_and_curvature_of_the_loss(rng, name, n, fit_intercept):
    samples, loss = samples_of(name, rng, n), LOSSES[name]()
    W, D = 0.1 * rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    fit = SampleLoss.of(loss, samples, ridge=0.4, fit_intercept=fit_intercept)
    at = fit.evaluate(W)
    problems = range(3) if loss.is_separable else [slice(None)]
    for k in problems:
        part = fit.take(np.array([k])) if loss.is_separable else fit
        rows, move = (W[k : k + 1], D[k : k + 1]) if loss.is_separable else (W, D)
        here = part.evaluate(rows)
        model = part.model(rows, here)
        assert_allclose(model.evaluate(rows).gradient, here.gradient, atol=1e-9)
        assert_allclose(here.gradient, at.gradient[k : k + 1] if loss.is_separable else at.gradient, atol=1e-9)
        second = model.operator.apply(move)
        if loss.curvature is not None:
            bound = part.operator.apply(move)
            assert np.sum(second * move) <= np.sum(bound * move) * (1 + 1e-9) + 1e-12
        if name not in ("huber", "squared_hinge"):
            ahead, behind = part.evaluate(rows + 1e-5 * move), part.evaluate(rows - 1e-5 * move)
            quotient = (ahead.gradient - behind.gradient) / 2e-5 - 0.8 * move
            assert_allclose(second, quotient, rtol=1e-4, atol=1e-5)


@every_loss
def test_the_dual_value_of_a_loss_is_minus_its_mean_conjugate_less_the_ridge(rng, name):
    samples, loss, W = samples_of(name, rng), LOSSES[name](), 0.3 * rng.standard_normal((3, 4))
    fit = SampleLoss.of(loss, samples, ridge=0.4)
    at = fit.evaluate(W)
    X, Y, share = arrays_of(samples)
    force = loss.derivative(Y, X @ W.T + fit.intercept(W))
    for t in (1.0, 0.3):
        mean = share @ loss.conjugate(Y, t * force)
        ridge = 0.4 * np.sum(W**2, axis=1) if loss.is_separable else 0.4 * np.sum(W**2)
        assert_allclose(at.dual_value(np.full(fit.n_problems, t)), -mean - t**2 * ridge, rtol=1e-9)


@every_loss
def test_the_least_value_of_a_loss_with_a_ridge_is_below_all_values_and_close_at_the_best_weights(rng, name):
    fit = SampleLoss.of(LOSSES[name](), samples_of(name, rng), ridge=0.4)
    W = np.zeros((3, 4))
    for _ in range(150):
        W = W - fit.evaluate(W).gradient / (30.0 if fit.loss.curvature is None else lipschitz(fit))
    best = fit.evaluate(W)
    none = np.zeros_like(best.value)
    assert_allclose(best.least_value(none), best.value, rtol=1e-6)
    for _ in range(20):
        assert np.all(fit.evaluate(W + 0.1 * rng.standard_normal((3, 4))).least_value(none) <= best.value + 1e-9)
    assert np.all(best.least_value(none + 0.1) < best.least_value(none) - 1e-3)


def test_joint_targets_stay_together_where_problems_are_repeated(problem, rng):
    X, Y, w = problem
    joint, W = Squares.of(Moments.of(X, Y, w), ridge=0.1, joint=True), rng.standard_normal((2, 6))
    twice = joint.take(np.array([0, 0])).evaluate(np.concatenate([W, 2.0 * W]))
    for k in range(2):
        alone = joint.evaluate((k + 1.0) * W)
        assert_allclose(twice.value[k], alone.value[0])
        assert_allclose(twice.gradient[2 * k : 2 * k + 2], alone.gradient)


@every_loss
def test_features_far_from_zero_have_the_loss_of_those_moved_back_and_another_intercept(rng, name):
    samples, loss, W = samples_of(name, rng), LOSSES[name](), 0.3 * rng.standard_normal((3, 4))
    near = SampleLoss.of(loss, samples, ridge=0.4)
    place = np.array([1e5, 0.0, -3e4, 7.0])
    X, Y, share = arrays_of(samples)
    far = SampleLoss.of(loss, as_samples(X + place, Y, share), ridge=0.4)
    assert np.any(far.origin)
    assert_allclose(far.evaluate(W).value, near.evaluate(W).value, rtol=1e-8)
    assert_allclose(far.evaluate(W).gradient, near.evaluate(W).gradient, atol=1e-7)
    found, expected = far.intercept(W), near.intercept(W) - W @ place
    size = np.abs(expected).max()
    if not loss.is_separable:  # a number that all scores have in common is free: those of the mean sample sum to zero
        assert_allclose(np.sum(found + W @ far.origin), 0.0, atol=1e-9 * size)
        found, expected = found - found.mean(), expected - expected.mean()
    assert_allclose(found, expected, atol=1e-6 * size)


@bounded_loss
def test_the_update_of_a_loss_minimises_its_quadratic_bound_or_what_was_seen_of_it(rng, name):
    fit = SampleLoss.of(LOSSES[name](), samples_of(name, rng), ridge=0.4)
    W, pull = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    update = fit.updater(np.full(fit.n_problems, 0.7))
    shares = []
    for _ in range(6):
        V = update(W, pull)
        step, bound = V - W, fit.operator.apply(V - W)
        if np.max(np.abs(step)) < 1e-9:  # squares are their own bound: the first step ends at the minimum
            break
        rest = fit.evaluate(W).gradient + 0.8 * step - pull + 0.7 * V
        shares.append(-np.sum(rest * bound) / np.sum(bound**2))
        assert_allclose(rest + shares[-1] * bound, 0.0, atol=1e-9)
        W = V
    assert_allclose(shares[0], 1.0)
    assert 0.0 < min(shares)
    assert max(shares) < 1.0 + 1e-9


@bounded_loss
def test_updates_end_at_the_minimum(rng, name):
    fit = SampleLoss.of(LOSSES[name](), samples_of(name, rng), ridge=0.1)
    W, pull = 10.0 * rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    update = fit.updater(np.full(fit.n_problems, 0.01))
    for _ in range(400):
        W = update(W, pull)
    assert_allclose(fit.evaluate(W).gradient - pull + 0.01 * W, 0.0, atol=1e-9)


@bounded_loss
def test_where_nothing_moves_any_more_steps_are_those_of_the_bound(rng, name):
    fit = SampleLoss.of(LOSSES[name](), samples_of(name, rng), ridge=0.1)
    W, pull = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    update = fit.updater(np.full(fit.n_problems, 0.01))
    for _ in range(3):
        update(W, pull)
    V = update(W, pull)
    slope = fit.evaluate(W).gradient + fit.operator.apply(V - W) + 0.2 * (V - W)
    assert_allclose(slope - pull + 0.01 * V, 0.0, atol=1e-9)


@given(st.lists(st.floats(0.0, 1.0), max_size=300))
def test_the_share_of_a_bound_is_above_what_was_seen_last_and_comes_to_rest(seen):
    share, lowered = _Share(), 0
    for one in seen:
        before = share.value
        assert share.follow(one) == (share.value != before)
        assert one <= share.value <= 1.0
        lowered += share.value < before
    assert lowered <= 30


@every_loss
def test_rounding_of_a_loss_is_that_of_the_terms_that_are_summed(rng, name):
    samples, loss, W = samples_of(name, rng), LOSSES[name](), np.full((3, 4), 0.5)
    fit = SampleLoss.of(loss, samples, ridge=0.5)
    X, Y, share = arrays_of(fit.samples)
    at, squares = fit.evaluate(W), share @ X**2
    rows = (lambda a: a) if loss.is_separable else (lambda a: np.sum(a, keepdims=True))
    sizes = np.sqrt(rows(W**2 @ squares)) + np.sqrt(rows(at.shift**2))
    force = np.sqrt(rows(share @ loss.derivative(Y, X @ W.T + at.shift) ** 2))
    value, gradient = at.errors(1.0)
    assert_allclose(value, at.value + force * sizes)
    ridge = 0.5 * rows(np.sum(W**2, axis=1))
    spread = force + (force if loss.curvature is None else loss.curvature) * sizes
    assert_allclose(gradient, spread * np.sqrt(squares.sum()) + 2.0 * np.sqrt(0.5 * ridge))


def test_a_model_that_couples_all_targets_is_made_up_to_a_size_and_not_beyond(rng, monkeypatch):
    fit = SampleLoss.of(LOSSES["multinomial"](), samples_of("multinomial", rng))
    W = np.zeros((3, 4))
    for limit, made in ((12, True), (11, False)):  # three targets times four features
        monkeypatch.setattr(sample_loss, "_LARGEST_HESSIAN", limit)
        assert (fit.model(W, fit.evaluate(W)) is not None) == made
        monkeypatch.setattr(sample_loss, "_SMALL_HESSIAN", limit)
        assert fit.solvers.path == ("newton" if made else "admm")


def test_the_solver_of_a_form_is_one_that_it_can_serve(rng):
    for name, loss in LOSSES.items():
        samples = samples_of(name, rng)
        here, free = SampleLoss.of(loss(), samples), SampleLoss.of(loss(), samples, in_passes=True)
        assert here.solvers == ("newton", "newton")
        assert free.solvers == ("subspaces", "apg")
    options = {"ridge": 0.0, "joint": False, "fit_intercept": True}
    for form, best, path in (
        (MomentsForm(), "admm", "admm"),
        (BasisForm(), "admm", "admm"),
        (SamplesForm(in_passes=True), "subspaces", "apg"),
    ):
        squares = form.data_fit(samples, SquaredError(), **options)
        assert squares.solvers == (best, path)


@pytest.mark.parametrize(
    ("mean", "spread", "far"), [(1900.0, 2.0, False), (2100.0, 2.0, True), (-2100.0, 2.0, True), (1.0, 0.0, True)]
)
def test_samples_are_copied_about_their_mean_where_it_is_a_thousand_times_the_spread(mean, spread, far):
    X = np.array([[spread, 1.0], [-spread, -1.0]]) + np.array([mean, 0.0])  # a constant feature is then exactly zero
    fit = SampleLoss.of(LOSSES["log_loss"](), as_samples(X, np.array([[1.0], [-1.0]])))
    assert bool(np.any(fit.origin)) == far


@pytest.mark.parametrize(("n", "side"), [(40, 4), (4, 4), (3, 2)])
def test_a_hessian_of_coupled_targets_has_the_side_of_features_or_of_what_fewer_samples_span(rng, n, side):
    fit, W = SampleLoss.of(LOSSES["multinomial"](), samples_of("multinomial", rng, n)), np.zeros((3, 4))
    system = fit.model(W, fit.evaluate(W)).operator
    assert system.inner.matrix.shape == (2 * side, 2 * side)  # of contrasts between three targets


def test_a_hessian_of_coupled_targets_loses_no_digits_to_the_mean_of_the_features(rng):
    samples, W, D = samples_of("multinomial", rng), 0.1 * rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    X, Y, share = arrays_of(samples)
    moved = as_samples(X + 500.0, Y, share)
    found = []
    for one in (samples, moved):
        fit = SampleLoss.of(LOSSES["multinomial"](), one)
        assert not np.any(fit.origin)
        found.append(fit.model(W, fit.evaluate(W)).operator.apply(D))
    assert_allclose(found[1], found[0], rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "name",
    "losses moments penalties problems.forms problems.operators problems.problem problems.sample_loss "
    "problems.sparse_operators problems.squares solvers.mixing solvers.stopping samples.samples".split(),
)
def test_what_is_made_once_is_never_changed(name):
    module = importlib.import_module(f"tracelearn.{name}")
    made = [one for one in vars(module).values() if inspect.isclass(one) and dataclasses.is_dataclass(one)]
    assert made
    for one in made:
        assert one.__dataclass_params__.frozen or one in (Accumulator, Finish)  # moments, and answers, in the making


def test_the_matrix_of_a_fit_is_freed_with_it():
    moments = Moments.of(np.random.default_rng(0).normal(size=(30, 4, 3)), np.arange(30.0))
    fit = Squares.of(moments)
    alpha = np.full_like(fit.target, 0.1)
    found = admm(Problems(fit, as_penalty("overlapped", (4, 3)), alpha, (4, 3), fit.at_zero.value))
    kept = weakref.ref(fit.operator)
    gc.disable()  # a large matrix must not wait until Python looks for circles
    try:
        del fit
        assert kept() is None
    finally:
        gc.enable()
    assert found.gap[0] <= 1e-6


def test_views_side_by_side_that_say_the_same_have_one_basis(rng):
    rows = rng.normal(size=(50, 6))
    basis = short_basis(np.concatenate([rows, rows @ rng.normal(size=(6, 6))], axis=1))
    assert basis.shape == (12, 6)
    assert_allclose(basis.T @ basis, np.eye(6), atol=1e-12)
    assert short_basis(rows) is None


def test_logistic_regression_on_views_that_say_the_same_is_certified_and_that_of_one_with_their_ridge(rng):
    X = rng.normal(size=(90, 4))
    y = np.argmax(X[:, :3] + rng.normal(size=(90, 3)), axis=1)
    both = np.concatenate([X, X], axis=1)
    model = TraceNormClassifier(0.0, loss="log_loss", ridge=0.1, tol=1e-9).fit(both, y)
    one = TraceNormClassifier(0.0, loss="log_loss", ridge=0.05, tol=1e-9).fit(X, y)
    assert model.dual_gap_ <= 1e-9
    assert_allclose(model.coef_[:, :4] + model.coef_[:, 4:], one.coef_, atol=1e-4)


@pytest.mark.parametrize("smallest", [1e-1, 1e-5, 1e-13, 0.0])
def test_a_span_is_orthonormal_and_holds_all_rows_whatever_their_variances(rng, smallest):
    rows = (rng.standard_normal((6, 6)) * np.array([1.0, 1.0, 1.0, 0.5, 0.1, smallest])) @ rng.standard_normal((6, 20))
    basis, coordinates = span(rows * 1e200, np.zeros(20))
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-9)
    np.testing.assert_allclose(coordinates @ basis.T, rows * 1e200, atol=1e-13 * 1e200 * np.abs(rows).max())


@pytest.mark.parametrize(("smallest", "exact"), [(1e-2, True), (1e-4, False), (1e-7, False), (0.0, True)])
def test_a_span_says_whether_it_holds_its_rows_exactly(rng, smallest, exact):
    rows = 3.0 + (rng.standard_normal((6, 6)) * np.array([1.0, 1.0, 1.0, 0.9, 0.9, smallest])) @ np.eye(6, 20)
    found = Span.of(rows - 3.0)
    off = float(np.abs(found.coordinates @ found.basis.T + 3.0 - rows).max())
    assert found.is_exact == exact
    assert off <= (1e-12 if smallest != 1e-7 else 1e-6)


def test_problems_in_coordinates_are_those_in_their_span(rng):
    X, Y = rng.standard_normal((6, 20)), rng.standard_normal((6, 2))
    options = {"ridge": 0.0, "joint": False, "fit_intercept": True}
    fit = BasisForm().data_fit(as_samples(X, Y), SquaredError(), **options)
    inner = fit.in_coordinates
    lengths = [np.linalg.norm(part.operator.apply(part.cross), axis=1) for part in (fit, inner)]
    assert inner.n_features == 5  # six samples about their mean
    np.testing.assert_allclose(*lengths, rtol=1e-9)
    np.testing.assert_allclose(fit.variances, X.var(axis=0), rtol=1e-9)
