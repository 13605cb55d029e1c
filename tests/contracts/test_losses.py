"""Every loss: derivative, curvature, conjugate and best intercept are those of its value."""

import inspect

import numpy as np
import pytest
import registry

from tracelearn import losses
from tracelearn.fitting import loss_named
from tracelearn.losses import LOSSES, Loss
from tracelearn.samples.targets import loss_for

every_loss = pytest.mark.parametrize("name", LOSSES)


def loss_of(given, classes=False, n_targets=1):
    return loss_for(loss_named(given, for_classes=classes), n_targets)


K = 3


def targets(name, rng, n):
    """Draw targets of the kind that a loss is for, (n, K)."""
    return registry.targets(name, rng, rng.standard_normal((n, K)))


def per_sample(values):
    return values.sum(axis=1)


def kinks(name, y):
    """Predictions where a piecewise loss changes its piece."""
    delta = getattr(LOSSES[name](), "delta", 1.0)
    return np.concatenate([y - delta, y + delta, y, 1.0 / np.where(y == 0, 1.0, y)])


def every_class(name):
    """Make targets in which every class is there, in every column."""
    if LOSSES[name].is_separable:
        return np.eye(K) if name == "poisson" else 2.0 * np.eye(K) - 1.0
    return np.eye(K)


def intercept(loss, y, z, weight):
    return loss.intercept(lambda term: term(y, z, weight), np.zeros(z.shape[1]))


@every_loss
def test_values_have_one_column_for_each_target_or_one_for_all(name, rng):
    loss, y = LOSSES[name](), targets(name, rng, 7)
    z = rng.standard_normal((7, K))
    assert loss.value(y, z).shape == (7, K if loss.is_separable else 1)
    assert loss.derivative(y, z).shape == (7, K)
    assert loss.conjugate(y, 0.5 * loss.derivative(y, z)).shape == (7, K if loss.is_separable else 1)
    assert intercept(loss, y, z, np.full(7, 1 / 7)).shape == (K,)
    assert np.all(loss.value(y, z) >= 0)


@every_loss
def test_the_derivative_is_the_difference_quotient(name, rng):
    loss, y = LOSSES[name](), targets(name, rng, 200)
    z, step = 3.0 * rng.standard_normal((200, K)), 1e-6
    for k in range(K):
        move = step * np.eye(K)[k]
        quotient = (per_sample(loss.value(y, z + move)) - per_sample(loss.value(y, z - move))) / (2 * step)
        rounding = 1e-9 * np.max(loss.value(y, z))  # a quotient loses what the step is short of one
        np.testing.assert_allclose(loss.derivative(y, z)[:, k], quotient, atol=1e-7 + rounding)


@every_loss
def test_the_curvature_bounds_the_second_difference(name, rng):
    loss, y = LOSSES[name](), targets(name, rng, 300)
    z, d = 2.0 * rng.standard_normal((300, K)), rng.standard_normal((300, K))
    for length in (1e-3, 0.1, 1.0, 10.0):
        move = length * d
        ahead, here, behind = (per_sample(loss.value(y, z + s * move)) for s in (1, 0, -1))
        second = ahead - 2 * here + behind
        assert np.all(second >= -1e-9)  # convex
        if loss.curvature is not None:
            assert np.all(second <= loss.curvature * per_sample(move**2) + 1e-9)
    if loss.curvature is None:  # then nothing bounds it
        steep = loss.derivative(y, z + 20.0) - loss.derivative(y, z + 19.0)
        assert np.max(np.abs(steep)) > 1e6
        return
    # And it is no careless bound: somewhere, near zero or near the target, it is met within a factor of 1.2.
    y = np.repeat(targets(name, rng, 1), 162, axis=0)
    z = np.linspace(-4, 4, 81)[:, None] * np.array([[1.0, -1.0, 0.0]]) - np.array([0.0, 0.0, 30.0])
    z = np.concatenate([z, z + y[:81]])
    direction = 1e-3 * np.array([[1.0, -1.0, 0.0]])
    change = np.sum((loss.derivative(y, z + direction) - loss.derivative(y, z)) * direction, axis=1)
    assert np.max(change) >= loss.curvature / 1.2 * np.sum(direction**2)


@every_loss
def test_value_and_conjugate_meet_at_the_derivative(name, rng):
    loss, y = LOSSES[name](), targets(name, rng, 200)
    z = 3.0 * rng.standard_normal((200, K))
    u = loss.derivative(y, z)
    pairing = u * z if loss.is_separable else np.sum(u * z, axis=1, keepdims=True)
    np.testing.assert_allclose(loss.value(y, z) + loss.conjugate(y, u), pairing, atol=1e-12, rtol=1e-12)


@every_loss
def test_value_and_conjugate_are_never_below_the_product(name, rng):
    loss, y = LOSSES[name](), targets(name, rng, 300)
    z, other = 3.0 * rng.standard_normal((300, K)), 3.0 * rng.standard_normal((300, K))
    for scale in (0.0, 1e-9, 0.3, 0.99, 1.0):
        u = scale * loss.derivative(y, other)
        pairing = u * z if loss.is_separable else np.sum(u * z, axis=1, keepdims=True)
        assert np.all(loss.value(y, z) + loss.conjugate(y, u) >= pairing - 1e-10)


@every_loss
def test_the_conjugate_is_the_largest_difference_over_a_grid(name, rng):
    loss, y = LOSSES[name](), targets(name, rng, 5)
    u = 0.6 * loss.derivative(y, rng.standard_normal((5, K)))
    if loss.is_separable:
        grid = np.linspace(-30, 30, 60001)[:, None]
        for i in range(5):
            for k in range(K):
                values = u[i, k] * grid - loss.value(np.full_like(grid, y[i, k]), grid)
                assert loss.conjugate(y, u)[i, k] == pytest.approx(values.max(), abs=1e-5)
    else:
        axis = np.linspace(-8, 8, 161)
        grid = np.stack([np.zeros(161 * 161), *(side.ravel() for side in np.meshgrid(axis, axis))], axis=1)
        for i in range(5):
            values = grid @ u[i] - loss.value(np.repeat(y[i : i + 1], len(grid), axis=0), grid)[:, 0]
            assert loss.conjugate(y, u)[i, 0] == pytest.approx(values.max(), abs=1e-2)


@every_loss
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_nothing_overflows_far_out(name, size, rng):
    loss, y = LOSSES[name](), targets(name, rng, 20)
    z = np.full((20, K), size)
    z[:, 0] *= -1
    with np.errstate(all="raise", under="ignore"):
        value, derivative = loss.value(y, z), loss.derivative(y, z)
        conjugate = loss.conjugate(y, derivative)
    for array in (value, derivative, conjugate):
        assert np.all(np.isfinite(array))
    if name in ("log_loss", "multinomial"):
        assert np.max(np.abs(derivative)) <= 1.0
        assert np.max(value) <= K * 2 * abs(size)


@every_loss
def test_one_sample_is_judged_as_it_is_among_others_at_every_kink(name, rng):
    loss, y = LOSSES[name](), targets(name, rng, 10)
    y = np.concatenate([y] * 4)
    z = kinks(name, y[:10])
    together = loss.value(y, z), loss.derivative(y, z)
    for i in range(len(z)):
        for array, alone in zip(together, (loss.value, loss.derivative), strict=True):
            np.testing.assert_allclose(alone(y[i : i + 1], z[i : i + 1])[0], array[i], rtol=1e-14, atol=1e-15)
    # Both sides of a kink meet.
    for side in (-1e-12, 1e-12):
        np.testing.assert_allclose(loss.derivative(y, z + side), together[1], atol=1e-10)


WEIGHTS = ["equal", "random", "one sample has almost all", "one class has almost nothing"]


@every_loss
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_at_the_best_intercept_the_mean_derivative_is_zero(name, weights, spread):
    for seed in range(8):
        rng = np.random.default_rng([seed, WEIGHTS.index(weights)])
        loss, n = LOSSES[name](), 50
        y = targets(name, rng, n)
        y[:3] = every_class(name)
        z = spread * rng.standard_normal((n, K)) + rng.normal()
        weight = np.ones(n)
        if weights == "random":
            weight = rng.uniform(0.1, 1.0, n)
        elif weights == "one sample has almost all":
            weight[7] = 1e6
        elif weights == "one class has almost nothing":
            weight = np.where(y[:, 0] > 0, 1e-6, 1.0)
        weight = weight / weight.sum()
        b = intercept(loss, y, z, weight)
        assert np.all(np.isfinite(b))
        derivative = loss.derivative(y, z + b)
        scale = max(1.0, np.max(weight @ np.abs(derivative)))
        np.testing.assert_allclose(weight @ derivative, 0.0, atol=1e-12 * scale)
        # No other intercept does better.
        best = weight @ per_sample(loss.value(y, z + b))
        for move in rng.standard_normal((5, K)):
            assert weight @ per_sample(loss.value(y, z + b + 0.1 * move)) >= best - 1e-12 * max(1.0, best)


def test_the_intercepts_of_a_multinomial_model_sum_to_zero(rng):
    y, z = targets("multinomial", rng, 40), rng.standard_normal((40, K)) + np.array([5.0, 0.0, 0.0])
    assert abs(intercept(losses.Multinomial(), y, z, np.full(40, 1 / 40)).sum()) < 1e-12


@every_loss
def test_a_loss_is_a_value(name):
    one, other = LOSSES[name](), LOSSES[name]()
    assert one == other
    assert hash(one) == hash(other)
    with pytest.raises(AttributeError):
        one.curvature = 1.0


def test_every_public_loss_is_under_contract_and_is_for_something():
    public = [getattr(losses, name) for name in losses.__all__]
    found = {member for member in public if inspect.isclass(member) and issubclass(member, Loss)}
    assert found - {Loss} == set(LOSSES.values())
    for name, loss in LOSSES.items():
        assert loss.name == name
        assert loss.for_numbers or loss.for_classes


@every_loss
def test_a_loss_is_found_by_its_name_and_as_an_object_for_its_own_targets_alone(name):
    for classes in (False, True):
        if LOSSES[name].for_classes if classes else LOSSES[name].for_numbers:
            assert loss_of(name, classes) == loss_of(LOSSES[name](), classes)
        else:
            with pytest.raises(ValueError, match=r"Expected a loss for (numbers|classes), one of .* got"):
                loss_of(name, classes)
    for wrong in ("square", 3, None, Loss):
        with pytest.raises(ValueError, match="Expected a loss for numbers"):
            loss_of(wrong)


@every_loss
def test_a_loss_codes_classes_as_targets_that_it_can_learn(name):
    if not LOSSES[name].for_classes:
        pytest.skip("this loss is for numbers")
    for count in (2, 4):
        members = np.eye(count)[np.arange(12) % count]
        Y = LOSSES[name]().encode(members)
        loss = loss_of(name, True, Y.shape[1])
        assert Y.shape == (12, 1 if count == 2 else count)
        # The scores that are best for each class alone tell it from the others.
        z = np.zeros_like(Y)
        for _ in range(50):
            z = z - loss.derivative(Y, z) / loss.curvature
        found = (z[:, 0] > 0).astype(int) if count == 2 else np.argmax(z, axis=1)
        np.testing.assert_array_equal(found, np.arange(12) % count)


@every_loss
def test_probabilities_are_those_of_the_loss(name, rng):
    loss = LOSSES[name]()
    if not loss.has_probabilities:
        with pytest.raises(NotImplementedError):
            loss.log_probabilities(np.zeros((2, 3)))
        return
    z = 3.0 * rng.standard_normal((20, 3))
    logs = loss.log_probabilities(z)
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0)
    np.testing.assert_allclose(-logs[:, 1], losses.Multinomial().value(np.eye(3)[np.ones(20, int)], z)[:, 0])
    two = losses.LogLoss().log_probabilities(z[:, :1])
    np.testing.assert_allclose(-two[:, 1], losses.LogLoss().value(np.ones((20, 1)), z[:, :1])[:, 0])


def test_poisson_is_half_the_deviance_and_predicts_means(rng):
    loss, y = losses.Poisson(), rng.poisson(3.0, (50, 2)).astype(float)
    z = rng.standard_normal((50, 2))
    mean = loss.inverse_link(z)
    np.testing.assert_allclose(mean, np.exp(z))
    logs = np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0) / mean), 0.0)
    np.testing.assert_allclose(loss.value(y, z), logs - (y - mean), atol=1e-12)
    with pytest.raises(ValueError, match=r"Expected counts.*negative"):
        loss.check_target(np.array([[1.0], [-1.0]]))
    with pytest.raises(ValueError, match=r"Expected counts.*zeros"):
        loss.check_mean(np.array([1.0, 0.0]))
    loss.check_target(y)
    loss.check_mean(y.mean(axis=0))


def test_a_class_derived_from_loss_is_registered_under_its_name():
    class Absolute(losses.Huber):
        name = "nearly_absolute"

    try:
        assert loss_of("nearly_absolute") == Absolute()
    finally:
        del LOSSES["nearly_absolute"]


@every_loss
def test_the_intercept_of_ordinary_samples_takes_few_passes(name, rng):
    loss, y = LOSSES[name](), targets(name, rng, 300)
    z, share, passes = rng.standard_normal((300, K)), np.full(300, 1 / 300), []

    def total(term):
        passes.append(1)
        return term(y, z, share)

    b = loss.intercept(total, np.zeros(K))
    assert np.abs(share @ loss.derivative(y, z + b)).max() <= 1e-13
    assert len(passes) <= 12
    passes.clear()
    loss.intercept(total, b)  # where it is already, one look is enough, and one more for what rounding left
    assert len(passes) <= 2


@every_loss
@pytest.mark.parametrize("seed", range(6))
def test_the_intercept_is_found_from_far_away_and_where_samples_are_told_apart_beyond_doubt(name, seed):
    rng = np.random.default_rng(seed)
    loss, y = LOSSES[name](), targets(name, rng, 60)
    y[:K] = every_class(name)
    z, share, passes = 30.0 * rng.standard_normal((60, K)), rng.uniform(0.1, 2.0, 60), []
    share = share / share.sum()

    def total(term):
        passes.append(1)
        return term(y, z, share)

    b = loss.intercept(total, 100.0 * rng.standard_normal(K))
    force = loss.derivative(y, z + b)
    assert np.all(np.abs(share @ force) <= 1e-13 * (1.0 + share @ np.abs(force)))
    assert len(passes) <= 60


@pytest.mark.parametrize("spread", [300.0, 3000.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_intercepts_of_a_multinomial_model_are_found_where_hardly_a_probability_is_between_zero_and_one(
    spread, seed
):
    rng = np.random.default_rng(seed)
    loss, y, passes = losses.Multinomial(), np.eye(5)[np.arange(200) % 5], []
    z, share = spread * rng.standard_normal((200, 5)), np.full(200, 1 / 200)

    def total(term):
        passes.append(1)
        return term(y, z, share)

    b = loss.intercept(total, np.zeros(5))
    assert np.abs(share @ loss.derivative(y, z + b)).max() <= 1e-9
    assert len(passes) <= 200


def test_single_precision_is_content_with_its_own_rounding(rng):
    loss, y, passes = losses.Multinomial(), np.eye(3, dtype=np.float32)[np.arange(90) % 3], []
    z, share = rng.standard_normal((90, 3)).astype(np.float32), np.full(90, 1 / 90, dtype=np.float32)

    def total(term):
        passes.append(1)
        return term(y, z, share)

    assert loss.intercept(total, np.zeros(3, dtype=np.float32)).dtype == np.float32
    assert len(passes) <= 12


@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name].is_separable and name != "huber"])
def test_curvatures_are_the_difference_quotients_of_the_derivative_away_from_kinks(name, rng):
    loss, y = LOSSES[name](), targets(name, rng, 200)
    z, step = 3.0 * rng.standard_normal((200, K)), 1e-6
    smooth = np.min(np.abs(kinks(name, y).reshape(4, 200, K) - z), axis=0) > 1e-3
    quotient = (loss.derivative(y, z + step) - loss.derivative(y, z - step)) / (2 * step)
    assert np.sum(smooth) > 500
    np.testing.assert_allclose(loss.curvatures(y, z)[smooth], quotient[smooth], atol=1e-6)
