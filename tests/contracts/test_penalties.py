"""Every penalty is a norm, its dual bound is one, and both proximal methods find its proximal point.

The proximal point is checked by the three-point inequality, which only the true one satisfies:
``step N(U) + |U - V|^2 / 2 >= step N(W) + |W - V|^2 / 2 + |U - W|^2 / 2`` for all U.
"""

import numpy as np
import pytest
import registry
from hypothesis import given
from hypothesis import strategies as st
from oracle import norm_of_atom, nuclear, spectral

from tracelearn import tensor_trace_norm
from tracelearn.penalties import (
    ATOMS,
    L1,
    PENALTIES,
    Atom,
    Blocks,
    GroupL2,
    Latent,
    Nuclear,
    Overlap,
    Split,
    as_penalty,
)
from tracelearn.solvers.apg import prox_adm

SHAPES = [(5,), (3, 4), (4, 3, 2), (3, 3, 3), (7, 2, 2), (2, 3, 2, 2)]
WEIGHTS = registry.MODE_WEIGHTS
CASES = registry.penalties(SHAPES)
FEWER = registry.penalties(SHAPES, [None])  # for what takes long
every_case = pytest.mark.parametrize(("penalty", "shape"), CASES.values(), ids=CASES)
most_cases = pytest.mark.parametrize(("penalty", "shape"), FEWER.values(), ids=FEWER)


def make(name, shape, weighted=False):
    return as_penalty(name, shape, WEIGHTS[: len(shape)] if weighted else None)


def weights_of(penalty):
    return [weight for weight, _ in penalty.terms]


def with_parts(split, change, *others):
    """Change the parts of a split, which may be those of several blocks, and leave the rest."""

    def each(parts, *more):
        return (
            tuple(each(*own) for own in zip(parts, *more, strict=True))
            if isinstance(parts, tuple)
            else change(parts, *more)
        )

    return Split(each(split.parts, *(other.parts for other in others)), split.duals, split.anchors)


def with_duals(split, change):
    duals = tuple(map(change, split.duals)) if isinstance(split.duals, tuple) else change(split.duals)
    return Split(split.parts, duals, split.anchors)


def proximal(penalty, V, step, split=None):
    """Find the proximal point of ``step`` times the norm, to rounding or nearly so."""
    return prox_adm(
        penalty, V, np.broadcast_to(np.asarray(step, float), V.shape[:1]), 1.0, split, tol=1e-12, max_iter=2000
    )


def dot(A, B):
    return np.sum(A * B, axis=tuple(range(1, A.ndim)))


def turned(V, Q, mode):
    """Change the basis of one mode of a batch."""
    return np.moveaxis(np.tensordot(V, Q, (mode + 1, 1)), -1, mode + 1)


@every_case
def test_the_proximal_point_satisfies_the_three_point_inequality(rng, penalty, shape):
    V = rng.standard_normal((3, *shape)) * np.array([1.0, 3.0, 0.3]).reshape(-1, *(1,) * len(shape))
    step = 0.3 * penalty.dual_norm(V)
    W, split = proximal(penalty, V, step)
    assert np.all(dot(W, W) > 0)
    at = step * penalty.value(W, split) + dot(W - V, W - V) / 2
    slack = 1e-8 * (1 + dot(V, V))
    points = [np.zeros_like(V), V, rng.standard_normal(V.shape), 0.5 * W, 1.01 * W, 0.99 * W]
    points += [W + size * rng.standard_normal(V.shape) for size in (0.3, 1e-2, 1e-3) for _ in range(2)]
    for U in points:
        # The latent norms are known from above only; near W its own split, scaled along, bounds them closely.
        share = dot(U, W) / dot(W, W)
        along = with_parts(split, lambda parts, s=share: s.reshape(1, -1, *(1,) * (parts.ndim - 2)) * parts)
        value = np.minimum(penalty.value(U), penalty.value(U, along))
        assert np.all(step * value + dot(U - V, U - V) / 2 >= at + dot(U - W, U - W) / 2 - slack)


@every_case
def test_what_the_proximal_point_leaves_over_proves_that_it_is_one(rng, penalty, shape):
    V = rng.standard_normal((2, *shape))
    step = 0.4 * penalty.dual_norm(V)
    W, split = proximal(penalty, V, step)
    np.testing.assert_allclose(penalty.dual_norm(V - W, split), step, rtol=1e-6)
    np.testing.assert_allclose(dot(V - W, W), step * penalty.value(W, split), rtol=1e-6)


@every_case
def test_the_norm_is_positively_homogeneous(rng, penalty, shape):
    W = rng.standard_normal((2, *shape))
    split = penalty.start(rng.standard_normal(W.shape))
    scaled = with_parts(split, lambda parts: 2.5 * parts)
    np.testing.assert_allclose(penalty.value(2.5 * W), 2.5 * penalty.value(W))
    np.testing.assert_allclose(penalty.value(2.5 * W, scaled), 2.5 * penalty.value(W, split))
    np.testing.assert_allclose(penalty.value(-W), penalty.value(W))
    np.testing.assert_allclose(penalty.dual_norm(2.5 * W), 2.5 * penalty.dual_norm(W))
    assert np.all(penalty.value(W) > 0)
    assert not penalty.value(0.0 * W).any()


@every_case
def test_the_norm_satisfies_the_triangle_inequality(rng, penalty, shape):
    A, B = rng.standard_normal((2, 4, *shape))
    one, other = (proximal(penalty, P, 0.0)[1] for P in (A, B))
    both = with_parts(one, lambda a, b: a + b, other)
    assert np.all(penalty.value(A + B, both) <= penalty.value(A, one) + penalty.value(B, other) + 1e-9)


@every_case
def test_the_dual_norm_bounds_the_inner_product(rng, penalty, shape):
    for _ in range(20):
        G, W = rng.standard_normal((2, 3, *shape))
        W = W if rng.uniform() < 0.5 else G  # also where the inequality is close
        split = penalty.start(W)
        guess = with_duals(split, lambda duals: rng.standard_normal(duals.shape))
        for evidence in (None, split, guess):
            bound = penalty.dual_norm(G, evidence) * penalty.value(W, evidence)
            assert np.all(dot(G, W) <= bound * (1 + 1e-12))


@most_cases
def test_the_proximal_map_brings_no_two_points_apart(rng, penalty, shape):
    A = rng.standard_normal((3, *shape))
    B = A + np.array([1.0, 0.1, 0.01]).reshape(-1, *(1,) * len(shape)) * rng.standard_normal(A.shape)
    step = 0.3 * penalty.dual_norm(A)
    near, far = proximal(penalty, A, step)[0], proximal(penalty, B, step)[0]
    assert np.all(dot(near - far, near - far) <= dot(A - B, A - B) * (1 + 1e-9))


@most_cases
def test_the_proximal_point_is_zero_only_where_the_step_reaches_the_dual_norm(rng, penalty, shape):
    V = rng.standard_normal((3, *shape))
    level = penalty.dual_norm(V)
    W, _ = proximal(penalty, V, 1.001 * level)
    assert np.abs(W).max() < 1e-8
    # The bound of a sum of terms is not tight; <V, V> / N(V) is below every dual norm.
    tight = registry.is_tight(penalty)
    W, _ = proximal(penalty, V, 0.99 * (level if tight else dot(V, V) / penalty.value(V)))
    assert np.all(np.sqrt(dot(W, W)) > 1e-4)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_orthogonal_change_of_basis_in_a_mode_commutes_with_everything(rng, name, shape):
    penalty = make(name, shape, weighted=len(shape) > 2)
    V = rng.standard_normal((1, *shape))
    step = 0.3 * penalty.dual_norm(V)
    W, _ = proximal(penalty, V, step)
    T, expected = V, W
    for mode, size in enumerate(shape):
        Q = np.linalg.qr(rng.standard_normal((size, size)))[0]
        T, expected = turned(T, Q, mode), turned(expected, Q, mode)
        np.testing.assert_allclose(penalty.value(T), penalty.value(V))
        np.testing.assert_allclose(penalty.dual_norm(T), penalty.dual_norm(V))
    np.testing.assert_allclose(proximal(penalty, T, step)[0], expected, atol=1e-7)


@most_cases
def test_tensors_of_a_batch_do_not_see_each_other(rng, penalty, shape):
    V = rng.standard_normal((3, *shape))
    step = np.array([0.5, 0.3, 0.7]) * penalty.dual_norm(V)
    together, _ = proximal(penalty, V, step)
    alone = np.concatenate([proximal(penalty, V[b : b + 1], step[b : b + 1])[0] for b in range(3)])
    np.testing.assert_allclose(together, alone, atol=1e-8)


@most_cases
def test_every_array_library_gives_numpys_proximal_point(rng, xp, penalty, shape):
    V, step = rng.standard_normal((2, *shape)), np.array([0.2, 0.4])
    expected, split = prox_adm(penalty, V, step, 1.0, max_iter=20)
    found, evidence = prox_adm(penalty, xp.asarray(V), xp.asarray(step), 1.0, max_iter=20)
    assert type(found) is type(xp.asarray(V))
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-12)
    np.testing.assert_allclose(np.asarray(penalty.value(found, evidence)), penalty.value(expected, split), rtol=1e-10)
    rest = penalty.dual_norm(xp.asarray(V) - found, evidence)
    np.testing.assert_allclose(np.asarray(rest), penalty.dual_norm(V - expected, split), rtol=1e-9)


@pytest.mark.parametrize("name", ["overlapped", "latent"])
@pytest.mark.parametrize("shape", [(3, 4), (5, 2)])
def test_at_order_2_it_is_the_trace_norm_of_a_matrix(rng, name, shape):
    penalty, V = as_penalty(name, shape), rng.standard_normal(shape)
    U, s, Vt = np.linalg.svd(V, full_matrices=False)
    assert penalty.value(V[None])[0] == pytest.approx(s.sum())
    assert penalty.dual_norm(V[None])[0] == pytest.approx(s[0])
    np.testing.assert_allclose(proximal(penalty, V[None], 0.7)[0][0], (U * np.maximum(s - 0.7, 0)) @ Vt, atol=1e-9)


@pytest.mark.parametrize("name", ["overlapped", "latent"])
def test_at_order_1_it_is_the_length_of_a_vector(rng, name):
    penalty, v = as_penalty(name, (6,)), rng.standard_normal(6)
    length = np.linalg.norm(v)
    assert penalty.value(v[None])[0] == pytest.approx(length)
    assert penalty.dual_norm(v[None])[0] == pytest.approx(length)
    np.testing.assert_allclose(proximal(penalty, v[None], 0.7)[0][0], (1 - 0.7 / length) * v, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_overlapped_norm_is_the_weighted_sum_of_the_trace_norms_of_the_unfoldings(rng, shape):
    W, order = rng.standard_normal(shape), len(shape)
    values = [nuclear(W, mode) for mode in range(order)]
    assert as_penalty("overlapped", shape).value(W[None])[0] == pytest.approx(np.mean(values))
    assert tensor_trace_norm(W) == pytest.approx(np.mean(values))
    weights = WEIGHTS[:order]
    assert as_penalty("overlapped", shape, weights).value(W[None])[0] == pytest.approx(np.dot(weights, values))
    assert tensor_trace_norm(W, weights) == pytest.approx(np.dot(weights, values))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_dual_of_the_overlapped_norm_without_evidence_is_the_weighted_harmonic_mean(rng, shape):
    G, weights = rng.standard_normal(shape), WEIGHTS[: len(shape)]
    expected = 1 / sum(t / spectral(G, mode) for mode, t in enumerate(weights))
    assert as_penalty("overlapped", shape, weights).dual_norm(G[None])[0] == pytest.approx(expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_dual_of_a_latent_norm_is_the_largest_weighted_spectral_norm(rng, shape):
    G, weights = rng.standard_normal(shape), WEIGHTS[: len(shape)]
    expected = max(spectral(G, mode) / t for mode, t in enumerate(weights))
    assert as_penalty("latent", shape, weights).dual_norm(G[None])[0] == pytest.approx(expected)
    expected = max(spectral(G, mode) * np.sqrt(shape[mode]) for mode in range(len(shape)))
    assert as_penalty("scaled_latent", shape).dual_norm(G[None])[0] == pytest.approx(expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_scaled_latent_norm_is_the_latent_norm_with_weights_over_the_roots_of_the_mode_sizes(rng, shape):
    weights = WEIGHTS[: len(shape)]
    same = as_penalty("latent", shape, tuple(t / np.sqrt(size) for t, size in zip(weights, shape, strict=True)))
    assert weights_of(as_penalty("scaled_latent", shape, weights)) == pytest.approx(weights_of(same))
    if len(shape) > 2:  # a matrix has one term, the cheapest
        assert weights_of(as_penalty("scaled_latent", shape)) == pytest.approx(1 / np.sqrt(shape))
    V = rng.standard_normal((1, *shape))
    found, _ = proximal(as_penalty("scaled_latent", shape, weights), V, 0.2)
    np.testing.assert_allclose(found, proximal(same, V, 0.2)[0], atol=1e-10)


def test_a_latent_norm_is_at_most_the_trace_norm_of_any_single_mode_and_of_any_split(rng):
    W, parts = rng.standard_normal((1, 3, 3, 3)), rng.standard_normal((3, 1, 3, 3, 3))
    penalty = as_penalty("latent", (3, 3, 3))
    single = min(nuclear(W[0], mode) for mode in range(3))
    assert penalty.value(W)[0] == pytest.approx(single)
    parts[2] = W - parts[0] - parts[1]
    shared = sum(nuclear(parts[mode, 0], mode) for mode in range(3))
    assert penalty.value(W, Split(parts, parts[:1], parts))[0] == pytest.approx(min(single, shared))
    low = np.stack([np.einsum("i,j,k->ijk", *np.eye(3)[rng.permutation(3)])[None] for _ in range(3)])
    assert penalty.value(low.sum(axis=0), Split(low, low[:1], low))[0] <= 3.0 + 1e-12


@pytest.mark.parametrize("free", [0, 1, 2])
def test_a_mode_weight_of_zero_leaves_that_mode_free(rng, free):
    shape, weights = (4, 3, 2), tuple(0.0 if mode == free else 0.5 for mode in range(3))
    penalty, V = as_penalty("overlapped", shape, weights), rng.standard_normal((1, 4, 3, 2))
    assert penalty.value(V)[0] == pytest.approx(sum(0.5 * nuclear(V[0], mode) for mode in range(3) if mode != free))
    W, split = proximal(penalty, V, 0.3 * penalty.dual_norm(V))
    assert split.parts.shape[0] == 2
    np.testing.assert_allclose(dot(V - W, W), 0.3 * penalty.dual_norm(V) * penalty.value(W), rtol=1e-6)


def test_with_one_mode_penalised_the_proximal_point_is_one_shrinkage(rng):
    penalty, V = as_penalty("overlapped", (4, 3, 2), (0.0, 2.0, 0.0)), rng.standard_normal((1, 4, 3, 2))
    W, _ = proximal(penalty, V, 0.4)
    U, s, Vt = np.linalg.svd(np.moveaxis(V[0], 1, 0).reshape(3, -1), full_matrices=False)
    expected = np.moveaxis(((U * np.maximum(s - 0.8, 0)) @ Vt).reshape(3, 4, 2), 0, 1)
    np.testing.assert_allclose(W[0], expected, atol=1e-9)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((1.0, 1.0), "3 mode weights for weights of shape .*, got 2: give one for each mode"),
        ((1.0, -1.0, 1.0), "not negative"),
        ((0.0, 0.0, 0.0), "above zero"),
        ((1.0, np.nan, 1.0), "finite"),
        ((1.0, np.inf, 1.0), "finite"),
    ],
)
def test_mode_weights_that_make_no_norm_are_refused_in_a_sentence(name, weights, message):
    with pytest.raises(ValueError, match=message):
        as_penalty(name, (2, 3, 4), weights).value(np.zeros((1, 2, 3, 4)))


@pytest.mark.parametrize("name", ["latent", "scaled_latent"])
def test_a_latent_norm_refuses_a_free_mode(name):
    with pytest.raises(ValueError, match="above zero in a latent norm"):
        as_penalty(name, (2, 3, 4), (1.0, 0.0, 1.0))


@every_case
def test_zero_has_norm_and_dual_norm_zero(penalty, shape):
    zero = np.zeros((2, *shape))
    for factor in (1.0, 100.0):  # weights far above one must not overflow
        heavy = penalty if isinstance(penalty, Blocks) else factor * penalty
        assert not heavy.value(zero).any()
        assert not heavy.dual_norm(zero).any()


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.5), st.sampled_from(sorted(PENALTIES)))
def test_the_proximal_point_of_any_tensor_is_no_longer_than_it_and_no_larger_in_norm(seed, share, name):
    penalty = as_penalty(name, (3, 2, 3))
    V = np.random.default_rng(seed).standard_normal((1, 3, 2, 3))
    W, split = proximal(penalty, V, share * penalty.dual_norm(V))
    assert dot(W, W)[0] <= dot(V, V)[0] * (1 + 1e-9)
    assert penalty.value(W, split)[0] <= penalty.value(V)[0] * (1 + 1e-6) + 1e-8


@pytest.mark.parametrize("shape", SHAPES)
def test_tidying_gives_the_tensor_the_ranks_of_its_parts(rng, shape):
    penalty, V = as_penalty("overlapped", shape), rng.standard_normal((2, *shape))
    W, split = proximal(penalty, V, 0.6 * penalty.dual_norm(V))
    tidy = penalty.tidy(W, split)
    np.testing.assert_allclose(tidy, W, atol=1e-6)
    for m, mode in enumerate(atom.mode for _, atom in penalty.terms):
        for b in range(2):
            rank = np.linalg.matrix_rank(np.moveaxis(split.parts[m, b], mode, 0).reshape(shape[mode], -1), tol=1e-10)
            assert np.linalg.matrix_rank(np.moveaxis(tidy[b], mode, 0).reshape(shape[mode], -1), tol=1e-10) <= rank


@every_case
def test_a_split_can_be_taken_apart_by_problems_and_put_together_again(rng, penalty, shape):
    V = rng.standard_normal((3, *shape))
    _, split = proximal(penalty, V, 0.2)
    kept = np.array([2, 0])
    np.testing.assert_array_equal(penalty.value(V[kept], split.take(kept)), penalty.value(V, split)[kept])
    np.testing.assert_array_equal(penalty.dual_norm(V[kept], split.take(kept)), penalty.dual_norm(V, split)[kept])
    whole = split.take(np.array([0])).joined(split.take(np.array([1, 2])))
    np.testing.assert_array_equal(penalty.dual_norm(V, whole), penalty.dual_norm(V, split))


def test_a_matrix_is_one_term_whose_proximal_point_is_closed():
    assert as_penalty("overlapped", (4, 3), (0.5, 1.0)).terms == ((1.5, Nuclear(0)),)
    assert as_penalty("latent", (4, 3), (0.5, 1.0)).terms == ((0.5, Nuclear(0)),)
    assert as_penalty("overlapped", (4, 3, 2), (0.5, 0.0, 1.0)).terms == ((0.5, Nuclear(0)), (1.0, Nuclear(2)))
    assert as_penalty("latent", (4, 3, 2)).terms == tuple((1.0, Nuclear(mode)) for mode in range(3))


@pytest.mark.parametrize("name", ["latent", "scaled_latent"])
def test_a_latent_norm_takes_parts_that_miss_the_tensor_and_shares_out_the_rest(rng, name):
    shape = (6, 6, 6)
    penalty, parts = as_penalty(name, shape), np.zeros((3, 1, *shape))
    for mode in range(3):  # of rank one in their own mode, so that they beat any single mode
        others = [size for m, size in enumerate(shape) if m != mode]
        fibres = np.multiply.outer(rng.standard_normal(shape[mode]), rng.standard_normal(others))
        parts[mode, 0] = np.moveaxis(fibres, 0, mode)
    W = parts.sum(axis=0) + 0.03 * rng.standard_normal((1, *shape))
    whole = parts + (W - parts.sum(axis=0)) / 3
    expected = sum(theta * nuclear(whole[mode, 0], mode) for mode, theta in enumerate(weights_of(penalty)))
    split = Split(parts, np.zeros((1, 1, *shape)), parts)
    assert expected < penalty.value(W)[0]
    assert penalty.value(W, split)[0] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["latent", "scaled_latent"])
def test_parts_of_a_latent_norm_agree_with_their_sum_whatever_all_of_them_have_in_common(rng, name):
    shape = (4, 3, 2)
    penalty, parts = as_penalty(name, shape), rng.standard_normal((3, 2, *shape))
    duals = rng.standard_normal((1, 2, *shape))
    before, after = Split(parts, duals, parts + rng.standard_normal((1, 2, *shape))), Split(parts, duals, parts)
    primal, dual = penalty.residuals(before, after, parts.sum(axis=0), np.array([0.5, 2.0]))
    np.testing.assert_allclose(primal, 0.0, atol=1e-14)
    np.testing.assert_array_equal(dual, 0.0)


# --- atoms ------------------------------------------------------------------------------------------------------------


def atoms(shape):
    """Every atom, in every mode that it can have."""
    for atom in ATOMS.values():
        if hasattr(atom(), "mode"):
            yield from ((1.0 * atom(mode)).bound_to(shape).terms[0][1] for mode in range(-len(shape), len(shape)))
        else:
            yield atom()


@pytest.mark.parametrize("shape", SHAPES)
def test_an_atom_is_the_norm_of_its_definition_and_shows_and_puts_back_every_entry(rng, xp, shape):
    T = rng.standard_normal((3, *shape))
    for atom in atoms(shape):
        M = atom.view(xp.asarray(T))
        np.testing.assert_array_equal(np.asarray(atom.back(M, T.shape)), T)
        np.testing.assert_allclose(np.asarray(atom.norms(M)), [norm_of_atom(atom, t) for t in T])
        np.testing.assert_allclose(np.asarray(atom.dual_norms(M)), [norm_of_atom(atom, t, dual=True) for t in T])
        assert np.all(np.asarray(atom.dual_norms(M)) <= np.linalg.norm(T.reshape(3, -1), axis=1) * (1 + 1e-12))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_proximal_point_of_an_atom_leaves_over_what_proves_it(rng, shape):
    T = rng.standard_normal((2, *shape))
    for atom in atoms(shape):
        M = atom.view(T)
        level = np.array([0.3, 0.6]) * atom.dual_norms(M)
        W = atom.prox(M, level)
        np.testing.assert_allclose(atom.dual_norms(M - W), level)
        np.testing.assert_allclose(dot(M - W, W), level * atom.norms(W))
        assert not atom.prox(M, 1.001 * atom.dual_norms(M)).any()
        # What restricts to the structure of a matrix leaves that matrix alone, and a second time changes nothing.
        np.testing.assert_allclose(atom.restrict(W, W), W, atol=1e-12)
        once = atom.restrict(M, W)
        np.testing.assert_allclose(atom.restrict(once, W), once, atol=1e-12)


def test_a_sum_of_atoms_reads_as_what_it_is_and_equal_atoms_are_one_term():
    penalty = 0.5 * Nuclear(0) + 0.5 * Nuclear(-2) + L1() + 0.1 * L1()
    assert penalty.bound_to((3, 4)).terms == ((1.0, Nuclear(0)), (1.1, L1()))
    assert (2.0 * (Nuclear(0) + GroupL2(1))).terms == ((2.0, Nuclear(0)), (2.0, GroupL2(1)))
    assert Latent(((1.0, L1()), (0.5, L1()))).bound_to((3,)).terms == ((0.5, L1()),)
    for name, atom in ATOMS.items():
        assert as_penalty(name, (3, 4)) == as_penalty(atom(), (3, 4)) == (1.0 * atom()).bound_to((3, 4))


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ("trace", "Expected a penalty among"),
        (3.0, "Expected a penalty among"),
        (1.0 * Nuclear(2), "Expected terms that fit"),
        (1.0 * GroupL2(-3), "Expected terms that fit"),
        (-1.0 * L1(), "finite and not negative"),
        (float("nan") * L1(), "finite and not negative"),
        (Latent(((np.ones(2), L1()), (1.0, Nuclear(0)))), "finite and not negative"),
        (0.0 * L1(), "some weight above zero"),
        (Latent(((0.0, L1()),)), "above zero in a latent norm"),
        (Blocks(((2, 2), (3,)), (1.0 * L1(), 1.0 * L1())), "Expected blocks of 12 weights"),
    ],
)
def test_what_is_no_penalty_for_a_shape_is_refused_in_a_sentence(given_, message):
    with pytest.raises(ValueError, match=message):
        as_penalty(given_, (3, 4))


class Scaled(Atom):
    """The l1 norm, times a number of its own."""

    name = "scaled"

    def __init__(self, factor=1.0):
        object.__setattr__(self, "factor", factor)

    def __eq__(self, other):
        return type(other) is Scaled and other.factor == self.factor

    def __hash__(self):
        return hash(self.factor)

    def norms(self, M):
        return self.factor * L1().norms(M)

    def dual_norms(self, M):
        return L1().dual_norms(M) / self.factor

    def prox(self, M, threshold):
        return L1().prox(M, self.factor * threshold)


del ATOMS["scaled"]  # one of this file, and no registry's


def test_atoms_of_one_class_with_numbers_of_their_own_are_not_taken_for_each_other(rng):
    penalty, V = Overlap(((0.3, Scaled(1.0)), (0.2, Scaled(5.0)))), rng.standard_normal((2, 3, 4))
    same = 1.3 * L1()
    np.testing.assert_allclose(penalty.value(V), same.value(V))
    np.testing.assert_allclose(penalty.dual_norm(V), same.dual_norm(V))
    np.testing.assert_allclose(proximal(penalty, V, 0.4)[0], proximal(same, V, 0.4)[0], atol=1e-8)


# --- weights of their own for every problem of a batch ----------------------------------------------------------------


def own_weights():
    """Make a sum whose weights differ from problem to problem, some zero; and the sums of the problems one by one."""
    table = np.array([[0.5, 0.0, 0.3], [0.0, 0.7, 0.2], [0.4, 0.4, 0.0], [0.0, 0.0, 1.0]])
    terms = [Nuclear(0), Nuclear(1), L1()]
    together = Overlap(tuple((table[:, m], atom) for m, atom in enumerate(terms)))
    return together, [Overlap(tuple(zip(map(float, row), terms, strict=True))).bound_to((4, 3, 2)) for row in table]


def test_problems_with_weights_of_their_own_have_the_norms_of_each_alone(rng):
    together, alone = own_weights()
    V = rng.standard_normal((4, 4, 3, 2))
    for method in ("value", "dual_norm"):
        expected = [getattr(one, method)(V[k : k + 1])[0] for k, one in enumerate(alone)]
        np.testing.assert_allclose(getattr(together, method)(V), expected)
    length = np.sqrt(dot(V, V))
    assert np.all(together.dual_norm(V) <= together.dual_norm(0 * V, None, length) * (1 + 1e-12))
    kept = np.array([3, 1])
    np.testing.assert_allclose(together.take(kept).value(V[kept]), together.value(V)[kept])
    guess = with_duals(together.start(V), lambda duals: rng.standard_normal(duals.shape))
    silent = np.stack([weight == 0 for weight, _ in together.terms])
    guess.duals[silent] = 0.0  # as a proximal step leaves them
    for W in (V, rng.standard_normal(V.shape)):
        assert np.all(dot(V, W) <= together.dual_norm(V, guess) * together.value(W) * (1 + 1e-12))


def test_problems_with_weights_of_their_own_have_the_proximal_points_of_each_alone(rng):
    together, alone = own_weights()
    V = rng.standard_normal((4, 4, 3, 2))
    step = 0.3 * together.dual_norm(V)
    W, split = proximal(together, V, step)
    for k, one in enumerate(alone):
        expected, _ = proximal(one, V[k : k + 1], step[k : k + 1])
        np.testing.assert_allclose(W[k], expected[0], atol=1e-7)
    np.testing.assert_allclose(together.dual_norm(V - W, split), step, rtol=1e-6)
    np.testing.assert_allclose(dot(V - W, W), step * together.value(W), rtol=1e-6)


@every_case
def test_the_dual_norm_of_a_tensor_is_within_the_bound_of_its_length(rng, penalty, shape):
    for size in (1e-3, 1.0, 1e5):
        V = size * rng.standard_normal((5, *shape))
        V[1:] *= rng.random(V[1:].shape) < 0.3  # few entries are the extreme of l1
        assert np.all(penalty.dual_norm(V) <= penalty.dual_norm(0 * V, None, np.sqrt(dot(V, V))) * (1 + 1e-12))
