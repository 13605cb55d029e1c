"""Moments are a monoid, and say of the samples what the samples say."""

import functools
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelearn import Moments
from tracelearn.moments import Accumulator
from tracelearn.paper import lipschitz

FIELDS = ("weight", "x_mean", "y_mean", "gram", "cross", "target_sq")


def direct(X, y, w=None):
    """Moments by their definition, in extended precision."""
    x = np.asarray(X).reshape(len(X), -1).astype(np.longdouble)
    y = np.asarray(y).reshape(len(X), -1).astype(np.longdouble)
    w = np.ones(len(x), np.longdouble) if w is None else np.asarray(w).astype(np.longdouble)
    x_mean, y_mean = w @ x / w.sum(), w @ y / w.sum()
    u, v = x - x_mean, y - y_mean
    arrays = (w.sum(), x_mean, y_mean, (u.T * w) @ u, (u.T * w) @ v, w @ v**2)
    return Moments(*(np.asarray(a, float) if np.ndim(a) else float(a) for a in arrays))


def assert_same(a, b, rtol=1e-10, atol=1e-12):
    for name in FIELDS:
        left, right = np.asarray(getattr(a, name), float), np.asarray(getattr(b, name), float)
        scale = max(np.abs(right).max(initial=0.0), np.abs(left).max(initial=0.0))
        np.testing.assert_allclose(left, right, rtol=0, atol=rtol * scale + atol, err_msg=name)


@st.composite
def samples(draw, min_n=1, max_n=9, p=3, targets=2):
    """Samples with any offset and any positive weights, and sometimes with none."""
    n = draw(st.integers(min_n, max_n))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offset = draw(st.sampled_from([0.0, 1.0, -30.0]))
    X, y = rng.standard_normal((n, p)) + offset, rng.standard_normal((n, targets)) - offset
    return X, y, rng.uniform(0.1, 3.0, n) if draw(st.booleans()) else None


moments = samples().map(lambda batch: Moments.of(*batch))


def _concat(a, b):
    weights = [np.ones(len(X)) if w is None else w for X, _, w in (a, b)]
    return np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]]), np.concatenate(weights)


@given(samples())
def test_moments_are_what_their_definition_says(batch):
    assert_same(Moments.of(*batch), direct(*batch))


@given(st.lists(moments, min_size=1, max_size=4), st.integers(0, 3))
def test_the_total_of_parts_is_their_sum_and_leaves_them_alone(parts, place):
    parts = [*parts[:place], Moments.zero(3, 2), *parts[place:]]
    before = [np.array(part.gram) for part in parts]
    assert_same(Moments.total(parts), functools.reduce(operator.add, parts))
    for part, gram in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part.gram, gram)
    assert Moments.total([Moments.zero(3, 2)]).weight == 0.0


@pytest.mark.parametrize(("shape", "targets"), [((1,), 1), ((2,), 2), ((3, 2), 6), ((2, 1, 2), 1)])
def test_moments_hold_when_there_are_as_many_targets_as_features(rng, shape, targets):
    X, y = rng.standard_normal((11, *shape)) + 3.0, rng.standard_normal((11, targets)) - 5.0
    assert_same(Moments.of(X, y), direct(X, y))
    assert_same(Moments.of(X[:4], y[:4]).updated(X[4:], y[4:]), direct(X, y))


@given(moments)
def test_zero_is_neutral(a):
    zero = Moments.zero(3, 2)
    assert_same(a + zero, a, 0, 0)
    assert_same(zero + a, a, 0, 0)
    assert_same(a - zero, a, 0, 0)
    assert_same(zero + zero, zero, 0, 0)
    assert_same(zero - zero, zero, 0, 0)


@given(moments, moments)
def test_addition_is_commutative(a, b):
    assert_same(a + b, b + a)


@given(moments, moments, moments)
def test_addition_is_associative(a, b, c):
    assert_same((a + b) + c, a + (b + c))


@given(samples(), samples())
def test_moments_of_a_union_are_the_sum_of_the_moments_of_its_parts(a, b):
    assert_same(Moments.of(*a) + Moments.of(*b), direct(*_concat(a, b)))


@given(samples(), samples())
def test_updating_is_adding(a, b):
    assert_same(Moments.of(*a).updated(*b), Moments.of(*a) + Moments.of(*b))


@given(moments, moments, st.floats(0.0, 2.0))
def test_scaling_distributes_over_addition(a, b, factor):
    assert_same((a + b).scaled(factor) + a, a.scaled(factor) + b.scaled(factor) + a)


@given(samples(), st.floats(0.01, 3.0))
def test_scaling_is_scaling_every_samples_weight(batch, factor):
    X, y, w = batch
    weights = np.ones(len(X)) if w is None else w
    assert_same(Moments.of(X, y, w).scaled(factor), direct(X, y, factor * weights))


@given(samples(), samples())
def test_what_was_scaled_to_nothing_is_forgotten(a, b):
    nothing = Moments.of(*a).scaled(0.0)
    assert_same(nothing + Moments.of(*b), direct(*b))
    assert_same(nothing.updated(*b), direct(*b))


@given(samples(), samples())
def test_subtraction_inverts_addition(a, b):
    both = Moments.of(*a) + Moments.of(*b)
    assert_same(both - Moments.of(*b), direct(*a), rtol=1e-8, atol=1e-8)
    assert_same(both - Moments.of(*a), direct(*b), rtol=1e-8, atol=1e-8)


@given(moments)
def test_removing_everything_leaves_zero(a):
    assert_same(a - a, Moments.zero(3, 2), 0, 0)
    thrice = a + a + a
    assert_same(thrice - a - a - a, Moments.zero(3, 2), 1e-10)


def test_an_empty_batch_is_zero_and_changes_nothing(rng, xp):
    X, y = xp.asarray(rng.standard_normal((4, 3, 2))), xp.asarray(rng.standard_normal(4))
    empty = Moments.of(X[:0, ...], y[:0])
    assert_same(empty, Moments.zero(6), 0, 0)
    full = Moments.of(X, y)
    assert_same(full.updated(X[:0, ...], y[:0]), full, 0, 0)
    assert_same(full + empty, full, 0, 0)


def test_weights_are_repetitions(rng):
    X, y, w = rng.standard_normal((6, 2, 2)), rng.standard_normal((6, 3)), np.array([1, 0, 3, 2, 0, 1])
    assert_same(Moments.of(X, y, w), direct(np.repeat(X, w, axis=0), np.repeat(y, w, axis=0)))


def test_a_batch_without_weight_changes_nothing(rng):
    X, y = rng.standard_normal((3, 2)), rng.standard_normal(3)
    assert_same(Moments.of(X, y, np.zeros(3)), Moments.zero(2), 0, 0)


def test_one_target_may_come_as_a_vector_or_as_a_column(rng):
    X, y = rng.standard_normal((5, 2, 2)), rng.standard_normal(5)
    assert_same(Moments.of(X, y), Moments.of(X, y[:, None]), 0, 0)
    assert Moments.of(X, y).n_targets == 1
    assert Moments.of(X, y).n_features == 4


def test_every_array_library_gives_the_same_moments_in_its_own_arrays(rng, xp):
    X, y, w = rng.standard_normal((20, 3, 2)) + 5.0, rng.standard_normal((20, 2)), rng.uniform(size=20)
    a = Moments.of(xp.asarray(X[:8]), xp.asarray(y[:8]), xp.asarray(w[:8]))
    both = a.updated(xp.asarray(X[8:]), xp.asarray(y[8:]), xp.asarray(w[8:]))
    assert type(both.gram) is type(xp.asarray(X))
    assert_same(both, direct(X, y, w))
    assert_same(both - a, direct(X[8:], y[8:], w[8:]))


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "bool", "float16"])
def test_integers_and_half_precision_are_summed_in_double_precision(rng, kind):
    X = rng.integers(0, 2 if kind == "bool" else 200, (30, 2, 3)).astype(kind)
    y = rng.integers(0, 3, 30)
    found = Moments.of(X, y)
    assert found.gram.dtype == np.float64
    assert_same(found, direct(X.astype(float), y), 1e-13)


def test_single_precision_samples_are_kept_in_double_precision_moments(rng, xp):
    X, y = rng.standard_normal((50, 4)).astype("float32"), rng.standard_normal(50).astype("float32")
    found = Moments.of(xp.asarray(X), xp.asarray(y))
    assert found.gram.dtype == xp.float64
    assert_same(found, direct(X, y), 1e-6)


@pytest.mark.parametrize("batch", [1, 7, 25, 1000])
def test_a_mean_of_a_million_times_the_spread_costs_no_digits_of_the_gram(rng, batch):
    X, y = rng.standard_normal((1000, 4)) + 1e6, rng.standard_normal(1000) - 1e6
    found = Moments.zero(4)
    for start in range(0, 1000, batch):
        found = found + Moments.of(X[start : start + batch], y[start : start + batch])
    exact = direct(X, y)
    assert np.abs(found.gram - exact.gram).max() <= 1e-9 * np.abs(exact.gram).max()
    assert np.abs(found.cross - exact.cross).max() <= 1e-9 * np.abs(exact.gram).max()
    assert np.abs(found.target_sq - exact.target_sq).max() <= 1e-9 * exact.target_sq.max()
    updated = Moments.zero(4)
    for start in range(0, 1000, batch):
        updated = updated.updated(X[start : start + batch], y[start : start + batch])
    assert np.abs(updated.gram - exact.gram).max() <= 1e-9 * np.abs(exact.gram).max()


@pytest.mark.parametrize("batch", [1, 25, 1000])
def test_single_precision_samples_with_a_mean_of_100_keep_five_digits_of_the_gram(rng, xp, batch):
    X = (rng.standard_normal((1000, 4)) + 100.0).astype("float32")
    y = (rng.standard_normal(1000) + 100.0).astype("float32")
    found = Moments.zero(4, like=xp.asarray(X))
    for start in range(0, 1000, batch):
        found = found.updated(xp.asarray(X[start : start + batch]), xp.asarray(y[start : start + batch]))
    exact = direct(X, y)
    assert np.abs(np.asarray(found.gram) - exact.gram).max() <= 1e-5 * np.abs(exact.gram).max()


def test_data_larger_than_a_block_are_folded_block_by_block(rng, monkeypatch):
    monkeypatch.setattr("tracelearn.moments._BLOCK_BYTES", 8 * 6 * 7)  # seven rows of six features
    X, y, w = rng.standard_normal((45, 3, 2)) + 2.0, rng.standard_normal((45, 2)), rng.uniform(size=45)
    assert_same(Moments.of(X, y, w), direct(X, y, w))


def test_samples_are_never_written_to_and_moments_never_change(rng):
    X, y, w = rng.standard_normal((6, 2)), rng.standard_normal(6), np.ones(6)
    copies = X.copy(), y.copy(), w.copy()
    for a in (X, y, w):
        a.flags.writeable = False
    before = Moments.of(X, y, w)
    kept = {name: np.copy(getattr(before, name)) for name in FIELDS}
    before.updated(X, y, w).updated(X, y)
    assert all(np.array_equal(a, b) for a, b in zip((X, y, w), copies, strict=True))
    assert all(np.array_equal(getattr(before, name), kept[name]) for name in FIELDS)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 2)])
def test_the_papers_past_information_follows_from_moments(rng, shape):
    X, y = rng.standard_normal((9, *shape)) + 0.7, rng.standard_normal(9) + 2.0
    past = Moments.of(X[:4], y[:4]) + Moments.of(X[4:], y[4:])
    np.testing.assert_allclose(past.sum_yx[:, 0].reshape(shape), sum(t * x for x, t in zip(X, y, strict=True)))  # A
    np.testing.assert_allclose(past.second_moment, sum(np.outer(x, x) for x in X), rtol=1e-10)  # B, as a matrix
    np.testing.assert_allclose(past.sum_y, [sum(y)])  # c
    np.testing.assert_allclose(past.sum_x.reshape(shape), sum(X))  # D
    assert lipschitz(past) == pytest.approx(sum(2 * np.prod(shape) * np.linalg.norm(x) ** 2 for x in X))  # L


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 2)])
def test_the_papers_grid_trace_is_a_product_with_the_second_moment(rng, xp, shape):
    X, y, W = rng.standard_normal((9, *shape)) + 0.7, rng.standard_normal(9), rng.standard_normal(shape)
    past = Moments.of(xp.asarray(X), xp.asarray(y))
    grid = np.asarray(past.second_moment) @ W.ravel()
    np.testing.assert_allclose(grid.reshape(shape), sum((W * x).sum() * x for x in X), rtol=1e-10, atol=1e-11)


@given(samples())
def test_the_squared_error_of_any_weights_follows_from_moments(batch):
    X, y, w = batch
    rng = np.random.default_rng(5)
    coef, intercept = rng.standard_normal((2, 3)), rng.standard_normal(2)
    expected = np.average((y - X @ coef.T - intercept) ** 2, axis=0, weights=w)
    past = Moments.of(*batch)
    spread = np.sum(coef @ past.gram * coef, axis=1) - 2 * np.sum(coef.T * past.cross, axis=0) + past.target_sq
    found = spread / past.weight + (past.y_mean - coef @ past.x_mean - intercept) ** 2
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@given(samples())
def test_uncentred_moments_are_the_raw_sums(batch):
    X, y, w = batch
    w = np.ones(len(X)) if w is None else w
    raw = Moments.of(*batch).uncentred()
    assert not raw.x_mean.any()
    assert not raw.y_mean.any()
    np.testing.assert_allclose(raw.gram, (X.T * w) @ X, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(raw.cross, (X.T * w) @ y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(raw.target_sq, w @ y**2, rtol=1e-9)


@pytest.mark.parametrize("combine", ["__add__", "__sub__"])
@pytest.mark.parametrize("other", [(4, 1), (3, 2)])
def test_moments_of_samples_of_another_kind_are_refused(combine, other):
    with pytest.raises(ValueError, match=f"3 features and 1 targets, got {other[0]} and {other[1]}"):
        getattr(Moments.zero(3), combine)(Moments.zero(*other))


def test_updating_with_samples_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="3 features and 1 targets, got 4 and 1"):
        Moments.zero(3).updated(np.ones((2, 4)), np.ones(2))


def test_removing_more_than_was_added_is_refused(rng):
    small, large = (Moments.of(rng.standard_normal((n, 2)), rng.standard_normal(n)) for n in (3, 5))
    with pytest.raises(ValueError, match="weight 5 to remove from 3"):
        small - large


@pytest.mark.parametrize("factor", [-0.1, np.nan, np.inf])
def test_a_factor_that_is_no_weight_is_refused(factor):
    with pytest.raises(ValueError, match="finite factor of at least 0"):
        Moments.zero(2).scaled(factor)


@pytest.mark.parametrize("sizes", [(50, 50, 50), (10, 60, 80), (100, 30, 20)])
@pytest.mark.parametrize("jump", [0.0, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_whose_means_drift_lose_no_digits(sizes, jump, weighted, rng):
    """A block that weighs no more than those before is summed about their mean, a heavier one about its own."""
    X = np.concatenate([rng.standard_normal((size, 5)) + k * jump for k, size in enumerate(sizes)])
    y = X[:, :1] + rng.standard_normal((len(X), 1))
    weight = rng.uniform(0.1, 2.0, len(X)) if weighted else np.ones(len(X))
    fold = Accumulator.empty(5, 1)
    for block in np.split(np.arange(len(X)), np.cumsum(sizes)[:-1]):
        fold.add(X[block], y[block], weight[block] if weighted else None)
    found = fold.freeze()
    wide = X.astype(np.longdouble)
    mean = weight @ wide / weight.sum()
    gram = ((wide - mean) * weight[:, None]).T @ (wide - mean)
    scale = float(np.max(np.abs(gram)))
    np.testing.assert_allclose(found.gram, gram.astype(float), rtol=0, atol=1e-14 * scale)
    np.testing.assert_allclose(found.x_mean, mean.astype(float), rtol=1e-14, atol=1e-14)
    cross = ((wide - mean) * weight[:, None]).T @ (y - weight @ y / weight.sum())
    np.testing.assert_allclose(found.cross, cross.astype(float), rtol=0, atol=1e-14 * scale)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_constant_feature_and_a_constant_target_have_no_spread_at_all(rng, weighted):
    X, y = rng.standard_normal((7, 3)), np.full(7, 0.3)
    X[:, 1] = 0.1
    found = Moments.of(X, y, rng.uniform(0.5, 2.0, 7) if weighted else None)
    assert not found.gram[1].any()
    assert not found.gram[:, 1].any()
    assert not found.cross.any()
    assert found.target_sq.tolist() == [0.0]


def test_rescaled_moments_are_those_of_rescaled_samples(rng):
    X, y, scales = rng.standard_normal((12, 5)) + 2.0, rng.standard_normal((12, 2)), rng.uniform(0.5, 3.0, 5)
    found, expected = Moments.of(X, y).rescaled(scales), Moments.of(X / scales, y)
    for name in ("weight", "x_mean", "y_mean", "gram", "cross", "target_sq"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("combine", [operator.add, operator.sub])
def test_moments_in_arrays_of_another_library_are_refused_in_a_sentence(combine):
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    own, other = (Moments.of(ones((4, 3)), ones(4)) for ones in (np.ones, torch.ones))
    with pytest.raises(ValueError, match=r"^Expected moments in arrays of numpy on cpu, got some of torch on cpu: "):
        combine(own, other)
