"""Every penalty is a norm, its dual bound is one, and both proximal methods find its proximal point.

The proximal point is checked by the three-point inequality, which only the true one satisfies:
``step N(U) + |U - V|^2 / 2 >= step N(W) + |W - V|^2 / 2 + |U - W|^2 / 2`` for all U.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import nuclear, spectral
from registry import PENALTIES, PROXES

from tracelearn import tensor_trace_norm
from tracelearn.penalties import LatentTraceNorm, OverlappedTraceNorm, ScaledLatentTraceNorm, Split

SHAPES = [(5,), (3, 4), (4, 3, 2), (3, 3, 3), (7, 2, 2), (2, 3, 2, 2)]
WEIGHTS = (0.5, 1.5, 1.0, 0.25)
CASES = [
    pytest.param(name, shape, weighted, id=f"{name}-{'x'.join(map(str, shape))}-{'weighted' if weighted else 'equal'}")
    for name in PENALTIES
    for shape in SHAPES
    for weighted in (False, True)
]
every_case = pytest.mark.parametrize(("name", "shape", "weighted"), CASES)
every_prox = pytest.mark.parametrize("method", PROXES)


def make(name, shape, weighted=False):
    return PENALTIES[name](shape, WEIGHTS[: len(shape)] if weighted else None)


def proximal(penalty, method, V, step, split=None):
    """Find the proximal point of ``step`` times the norm, to rounding or nearly so."""
    return PROXES[method](
        penalty, V, np.broadcast_to(np.asarray(step, float), V.shape[:1]), 1.0, split, tol=1e-12, max_iter=2000
    )


def dot(A, B):
    return np.sum(A * B, axis=tuple(range(1, A.ndim)))


def turned(V, Q, mode):
    """Change the basis of one mode of a batch."""
    return np.moveaxis(np.tensordot(V, Q, (mode + 1, 1)), -1, mode + 1)


@every_case
@every_prox
def test_the_proximal_point_satisfies_the_three_point_inequality(rng, method, name, shape, weighted):
    penalty = make(name, shape, weighted)
    V = rng.standard_normal((3, *shape)) * np.array([1.0, 3.0, 0.3]).reshape(-1, *(1,) * len(shape))
    step = 0.3 * penalty.dual_norm(V)
    W, split = proximal(penalty, method, V, step)
    assert np.all(dot(W, W) > 0)
    at = step * penalty.value(W, split) + dot(W - V, W - V) / 2
    slack = 1e-8 * (1 + dot(V, V))
    points = [np.zeros_like(V), V, rng.standard_normal(V.shape), 0.5 * W, 1.01 * W, 0.99 * W]
    points += [W + size * rng.standard_normal(V.shape) for size in (0.3, 1e-2, 1e-3) for _ in range(2)]
    for U in points:
        # The latent norms are known from above only; near W its own split, scaled along, bounds them closely.
        share = (dot(U, W) / dot(W, W)).reshape(1, -1, *(1,) * len(shape))
        value = np.minimum(penalty.value(U), penalty.value(U, Split(share * split.parts, split.duals, split.anchors)))
        assert np.all(step * value + dot(U - V, U - V) / 2 >= at + dot(U - W, U - W) / 2 - slack)


@every_case
@every_prox
def test_what_the_proximal_point_leaves_over_proves_that_it_is_one(rng, method, name, shape, weighted):
    penalty = make(name, shape, weighted)
    V = rng.standard_normal((2, *shape))
    step = 0.4 * penalty.dual_norm(V)
    W, split = proximal(penalty, method, V, step)
    np.testing.assert_allclose(penalty.dual_norm(V - W, split), step, rtol=1e-6)
    np.testing.assert_allclose(dot(V - W, W), step * penalty.value(W, split), rtol=1e-6)


@every_case
def test_the_norm_is_positively_homogeneous(rng, name, shape, weighted):
    penalty = make(name, shape, weighted)
    W = rng.standard_normal((2, *shape))
    split = penalty.start(rng.standard_normal(W.shape))
    scaled = Split(2.5 * split.parts, split.duals, 2.5 * split.anchors)
    np.testing.assert_allclose(penalty.value(2.5 * W), 2.5 * penalty.value(W))
    np.testing.assert_allclose(penalty.value(2.5 * W, scaled), 2.5 * penalty.value(W, split))
    np.testing.assert_allclose(penalty.value(-W), penalty.value(W))
    np.testing.assert_allclose(penalty.dual_norm(2.5 * W), 2.5 * penalty.dual_norm(W))
    assert np.all(penalty.value(W) > 0)
    assert not penalty.value(0.0 * W).any()


@every_case
def test_the_norm_satisfies_the_triangle_inequality(rng, name, shape, weighted):
    penalty = make(name, shape, weighted)
    A, B = rng.standard_normal((2, 4, *shape))
    one, other = (proximal(penalty, "adm", P, 0.0)[1] for P in (A, B))
    both = Split(one.parts + other.parts, one.duals, one.anchors)
    assert np.all(penalty.value(A + B, both) <= penalty.value(A, one) + penalty.value(B, other) + 1e-9)


@every_case
def test_the_dual_norm_bounds_the_inner_product(rng, name, shape, weighted):
    penalty = make(name, shape, weighted)
    for _ in range(20):
        G, W = rng.standard_normal((2, 3, *shape))
        W = W if rng.uniform() < 0.5 else G  # also where the inequality is close
        split = penalty.start(W)
        guess = Split(split.parts, rng.standard_normal(split.duals.shape), split.anchors)
        for evidence in (None, split, guess):
            bound = penalty.dual_norm(G, evidence) * penalty.value(W, evidence)
            assert np.all(dot(G, W) <= bound * (1 + 1e-12))


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("shape", SHAPES)
@every_prox
def test_the_proximal_map_brings_no_two_points_apart(rng, method, name, shape):
    penalty = make(name, shape)
    A = rng.standard_normal((3, *shape))
    B = A + np.array([1.0, 0.1, 0.01]).reshape(-1, *(1,) * len(shape)) * rng.standard_normal(A.shape)
    step = 0.3 * penalty.dual_norm(A)
    near, far = proximal(penalty, method, A, step)[0], proximal(penalty, method, B, step)[0]
    assert np.all(dot(near - far, near - far) <= dot(A - B, A - B) * (1 + 1e-9))


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("shape", SHAPES)
@every_prox
def test_the_proximal_point_is_zero_only_where_the_step_reaches_the_dual_norm(rng, method, name, shape):
    penalty = make(name, shape, weighted=len(shape) > 2)
    V = rng.standard_normal((3, *shape))
    level = penalty.dual_norm(V)
    W, _ = proximal(penalty, method, V, 1.001 * level)
    assert np.abs(W).max() < 1e-8
    # The overlapped bound is not tight beyond order 2; <V, V> / N(V) is below every dual norm.
    tight = name != "overlapped" or len(shape) <= 2
    W, _ = proximal(penalty, method, V, 0.99 * (level if tight else dot(V, V) / penalty.value(V)))
    assert np.all(np.sqrt(dot(W, W)) > 1e-4)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("shape", SHAPES)
@every_prox
def test_an_orthogonal_change_of_basis_in_a_mode_commutes_with_everything(rng, method, name, shape):
    penalty = make(name, shape, weighted=len(shape) > 2)
    V = rng.standard_normal((1, *shape))
    step = 0.3 * penalty.dual_norm(V)
    W, _ = proximal(penalty, method, V, step)
    T, expected = V, W
    for mode, size in enumerate(shape):
        Q = np.linalg.qr(rng.standard_normal((size, size)))[0]
        T, expected = turned(T, Q, mode), turned(expected, Q, mode)
        np.testing.assert_allclose(penalty.value(T), penalty.value(V))
        np.testing.assert_allclose(penalty.dual_norm(T), penalty.dual_norm(V))
    np.testing.assert_allclose(proximal(penalty, method, T, step)[0], expected, atol=1e-7)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("shape", SHAPES[2:3])
@every_prox
def test_tensors_of_a_batch_do_not_see_each_other(rng, method, name, shape):
    penalty = make(name, shape)
    V = rng.standard_normal((3, *shape))
    step = np.array([0.5, 0.3, 0.7]) * penalty.dual_norm(V)
    together, _ = proximal(penalty, method, V, step)
    alone = np.concatenate([proximal(penalty, method, V[b : b + 1], step[b : b + 1])[0] for b in range(3)])
    np.testing.assert_allclose(together, alone, atol=1e-8)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_array_library_gives_numpys_proximal_point(rng, xp, name, shape):
    penalty = make(name, shape, weighted=True)
    V, step = rng.standard_normal((2, *shape)), np.array([0.2, 0.4])
    for method in PROXES.values():
        expected, split = method(penalty, V, step, 1.0, max_iter=20)
        found, evidence = method(penalty, xp.asarray(V), xp.asarray(step), 1.0, max_iter=20)
        assert type(found) is type(xp.asarray(V))
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-12)
        np.testing.assert_allclose(
            np.asarray(penalty.value(found, evidence)), penalty.value(expected, split), rtol=1e-10
        )
        rest = penalty.dual_norm(xp.asarray(V) - found, evidence)
        np.testing.assert_allclose(np.asarray(rest), penalty.dual_norm(V - expected, split), rtol=1e-9)


@pytest.mark.parametrize("name", ["overlapped", "latent"])
@pytest.mark.parametrize("shape", [(3, 4), (5, 2)])
def test_at_order_2_it_is_the_trace_norm_of_a_matrix(rng, name, shape):
    penalty, V = PENALTIES[name](shape), rng.standard_normal(shape)
    U, s, Vt = np.linalg.svd(V, full_matrices=False)
    assert penalty.value(V[None])[0] == pytest.approx(s.sum())
    assert penalty.dual_norm(V[None])[0] == pytest.approx(s[0])
    for method in PROXES:
        np.testing.assert_allclose(
            proximal(penalty, method, V[None], 0.7)[0][0], (U * np.maximum(s - 0.7, 0)) @ Vt, atol=1e-9
        )


@pytest.mark.parametrize("name", ["overlapped", "latent"])
def test_at_order_1_it_is_the_length_of_a_vector(rng, name):
    penalty, v = PENALTIES[name]((6,)), rng.standard_normal(6)
    length = np.linalg.norm(v)
    assert penalty.value(v[None])[0] == pytest.approx(length)
    assert penalty.dual_norm(v[None])[0] == pytest.approx(length)
    for method in PROXES:
        np.testing.assert_allclose(proximal(penalty, method, v[None], 0.7)[0][0], (1 - 0.7 / length) * v, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_overlapped_norm_is_the_weighted_sum_of_the_trace_norms_of_the_unfoldings(rng, shape):
    W, order = rng.standard_normal(shape), len(shape)
    values = [nuclear(W, mode) for mode in range(order)]
    assert OverlappedTraceNorm(shape).value(W[None])[0] == pytest.approx(np.mean(values))
    assert tensor_trace_norm(W) == pytest.approx(np.mean(values))
    weights = WEIGHTS[:order]
    assert OverlappedTraceNorm(shape, weights).value(W[None])[0] == pytest.approx(np.dot(weights, values))
    assert tensor_trace_norm(W, weights) == pytest.approx(np.dot(weights, values))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_dual_of_the_overlapped_norm_without_evidence_is_the_weighted_harmonic_mean(rng, shape):
    G, weights = rng.standard_normal(shape), WEIGHTS[: len(shape)]
    expected = 1 / sum(t / spectral(G, mode) for mode, t in enumerate(weights))
    assert OverlappedTraceNorm(shape, weights).dual_norm(G[None])[0] == pytest.approx(expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_dual_of_a_latent_norm_is_the_largest_weighted_spectral_norm(rng, shape):
    G, weights = rng.standard_normal(shape), WEIGHTS[: len(shape)]
    expected = max(spectral(G, mode) / t for mode, t in enumerate(weights))
    assert LatentTraceNorm(shape, weights).dual_norm(G[None])[0] == pytest.approx(expected)
    expected = max(spectral(G, mode) * np.sqrt(shape[mode]) for mode in range(len(shape)))
    assert ScaledLatentTraceNorm(shape).dual_norm(G[None])[0] == pytest.approx(expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_scaled_latent_norm_is_the_latent_norm_with_weights_over_the_roots_of_the_mode_sizes(rng, shape):
    weights = WEIGHTS[: len(shape)]
    same = LatentTraceNorm(shape, tuple(t / np.sqrt(size) for t, size in zip(weights, shape, strict=True)))
    assert ScaledLatentTraceNorm(shape, weights).weights == pytest.approx(same.weights)
    assert ScaledLatentTraceNorm(shape).weights == pytest.approx(1 / np.sqrt(shape))
    V = rng.standard_normal((1, *shape))
    found, _ = proximal(ScaledLatentTraceNorm(shape, weights), "adm", V, 0.2)
    np.testing.assert_allclose(found, proximal(same, "adm", V, 0.2)[0], atol=1e-10)


def test_a_latent_norm_is_at_most_the_trace_norm_of_any_single_mode_and_of_any_split(rng):
    W, parts = rng.standard_normal((1, 3, 3, 3)), rng.standard_normal((3, 1, 3, 3, 3))
    penalty = LatentTraceNorm((3, 3, 3))
    single = min(nuclear(W[0], mode) for mode in range(3))
    assert penalty.value(W)[0] == pytest.approx(single)
    parts[2] = W - parts[0] - parts[1]
    shared = sum(nuclear(parts[mode, 0], mode) for mode in range(3))
    assert penalty.value(W, Split(parts, parts[:1], parts))[0] == pytest.approx(min(single, shared))
    low = np.stack([np.einsum("i,j,k->ijk", *np.eye(3)[rng.permutation(3)])[None] for _ in range(3)])
    assert penalty.value(low.sum(axis=0), Split(low, low[:1], low))[0] <= 3.0 + 1e-12


@pytest.mark.parametrize("method", PROXES)
@pytest.mark.parametrize("free", [0, 1, 2])
def test_a_mode_weight_of_zero_leaves_that_mode_free(rng, method, free):
    shape, weights = (4, 3, 2), tuple(0.0 if mode == free else 0.5 for mode in range(3))
    penalty, V = OverlappedTraceNorm(shape, weights), rng.standard_normal((1, 4, 3, 2))
    assert penalty.value(V)[0] == pytest.approx(sum(0.5 * nuclear(V[0], mode) for mode in range(3) if mode != free))
    W, split = proximal(penalty, method, V, 0.3 * penalty.dual_norm(V))
    assert split.parts.shape[0] == 2
    np.testing.assert_allclose(dot(V - W, W), 0.3 * penalty.dual_norm(V) * penalty.value(W), rtol=1e-6)


@pytest.mark.parametrize("method", PROXES)
def test_with_one_mode_penalised_the_proximal_point_is_one_shrinkage(rng, method):
    penalty, V = OverlappedTraceNorm((4, 3, 2), (0.0, 2.0, 0.0)), rng.standard_normal((1, 4, 3, 2))
    W, _ = proximal(penalty, method, V, 0.4)
    U, s, Vt = np.linalg.svd(np.moveaxis(V[0], 1, 0).reshape(3, -1), full_matrices=False)
    expected = np.moveaxis(((U * np.maximum(s - 0.8, 0)) @ Vt).reshape(3, 4, 2), 0, 1)
    np.testing.assert_allclose(W[0], expected, atol=1e-9)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((1.0, 1.0), "3 mode weights, one for each mode, got 2"),
        ((1.0, -1.0, 1.0), "not negative"),
        ((0.0, 0.0, 0.0), "not all zero"),
        ((1.0, np.nan, 1.0), "finite"),
        ((1.0, np.inf, 1.0), "finite"),
    ],
)
def test_mode_weights_that_make_no_norm_are_refused_in_a_sentence(name, weights, message):
    with pytest.raises(ValueError, match=message):
        PENALTIES[name]((2, 3, 4), weights).value(np.zeros((1, 2, 3, 4)))


@pytest.mark.parametrize("name", ["latent", "scaled_latent"])
def test_a_latent_norm_refuses_a_free_mode(name):
    with pytest.raises(ValueError, match="above zero for a latent norm"):
        PENALTIES[name]((2, 3, 4), (1.0, 0.0, 1.0)).value(np.zeros((1, 2, 3, 4)))


@every_case
def test_zero_has_norm_and_dual_norm_zero(name, shape, weighted):
    penalty = make(name, shape, weighted)
    for factor in (1.0, 100.0):  # mode weights far above one must not overflow
        heavy = PENALTIES[name](shape, tuple(factor * t for t in WEIGHTS[: len(shape)])) if weighted else penalty
        zero = np.zeros((2, *shape))
        assert not heavy.value(zero).any()
        assert not heavy.dual_norm(zero).any()


@given(
    st.integers(0, 2**32 - 1), st.floats(0.0, 1.5), st.sampled_from(sorted(PENALTIES)), st.sampled_from(sorted(PROXES))
)
def test_the_proximal_point_of_any_tensor_is_no_longer_than_it_and_no_larger_in_norm(seed, share, name, method):
    penalty = PENALTIES[name]((3, 2, 3))
    V = np.random.default_rng(seed).standard_normal((1, 3, 2, 3))
    W, split = proximal(penalty, method, V, share * penalty.dual_norm(V))
    assert dot(W, W)[0] <= dot(V, V)[0] * (1 + 1e-9)
    assert penalty.value(W, split)[0] <= penalty.value(V)[0] * (1 + 1e-6) + 1e-8


@pytest.mark.parametrize("shape", SHAPES)
def test_tidying_gives_the_tensor_the_ranks_of_its_parts(rng, shape):
    penalty, V = OverlappedTraceNorm(shape), rng.standard_normal((2, *shape))
    W, split = proximal(penalty, "adm", V, 0.6 * penalty.dual_norm(V))
    tidy = penalty.tidy(W, split)
    np.testing.assert_allclose(tidy, W, atol=1e-6)
    for m, mode in enumerate(penalty.terms):
        for b in range(2):
            rank = np.linalg.matrix_rank(np.moveaxis(split.parts[m, b], mode, 0).reshape(shape[mode], -1), tol=1e-10)
            assert np.linalg.matrix_rank(np.moveaxis(tidy[b], mode, 0).reshape(shape[mode], -1), tol=1e-10) <= rank


@pytest.mark.parametrize("name", PENALTIES)
def test_a_split_can_be_taken_apart_by_problems(rng, name):
    penalty, V = PENALTIES[name]((3, 3, 2)), rng.standard_normal((3, 3, 3, 2))
    _, split = proximal(penalty, "adm", V, 0.2)
    kept = np.array([2, 0])
    np.testing.assert_array_equal(penalty.value(V[kept], split.take(kept)), penalty.value(V, split)[kept])
    np.testing.assert_array_equal(penalty.dual_norm(V[kept], split.take(kept)), penalty.dual_norm(V, split)[kept])


def test_a_matrix_is_one_term_whose_proximal_point_is_closed():
    assert PENALTIES["overlapped"]((4, 3), (0.5, 1.0)).terms == {0: 1.5}
    assert PENALTIES["latent"]((4, 3), (0.5, 1.0)).terms == {0: 0.5}
    assert PENALTIES["overlapped"]((4, 3, 2), (0.5, 0.0, 1.0)).terms == {0: 0.5, 2: 1.0}
    assert PENALTIES["latent"]((4, 3, 2)).terms == {0: 1.0, 1: 1.0, 2: 1.0}


@pytest.mark.parametrize("name", ["latent", "scaled_latent"])
def test_a_latent_norm_takes_parts_that_miss_the_tensor_and_shares_out_the_rest(rng, name):
    shape = (6, 6, 6)
    penalty, parts = PENALTIES[name](shape), np.zeros((3, 1, *shape))
    for mode in range(3):  # of rank one in their own mode, so that they beat any single mode
        others = [size for m, size in enumerate(shape) if m != mode]
        fibres = np.multiply.outer(rng.standard_normal(shape[mode]), rng.standard_normal(others))
        parts[mode, 0] = np.moveaxis(fibres, 0, mode)
    W = parts.sum(axis=0) + 0.03 * rng.standard_normal((1, *shape))
    whole = parts + (W - parts.sum(axis=0)) / 3
    expected = sum(theta * nuclear(whole[mode, 0], mode) for mode, theta in enumerate(penalty.weights))
    split = Split(parts, np.zeros((1, 1, *shape)), parts)
    assert expected < penalty.value(W)[0]
    assert penalty.value(W, split)[0] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["latent", "scaled_latent"])
def test_parts_of_a_latent_norm_agree_with_their_sum_whatever_all_of_them_have_in_common(rng, name):
    shape = (4, 3, 2)
    penalty, parts = PENALTIES[name](shape), rng.standard_normal((3, 2, *shape))
    duals = rng.standard_normal((1, 2, *shape))
    before, after = Split(parts, duals, parts + rng.standard_normal((1, 2, *shape))), Split(parts, duals, parts)
    primal, dual = penalty.residuals(before, after, parts.sum(axis=0), np.array([0.5, 2.0]))
    np.testing.assert_allclose(primal, 0.0, atol=1e-14)
    np.testing.assert_array_equal(dual, 0.0)
