"""The vocabulary of tensors against its definitions, element by element."""

import itertools

import numpy as np
import pytest

from tracelearn.arrays.tensors import frobenius_norm, grid_trace, inner, kronecker, n_rank, refold, unfold

SHAPES = [(5,), (3, 4), (2, 3, 4), (3, 1, 2, 2), (2, 3, 1, 2, 2)]


def _elements(shape):
    return itertools.product(*(range(size) for size in shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_unfolding_maps_every_element_to_the_column_of_the_papers_formula(rng, xp, shape):
    X = rng.standard_normal(shape)
    for mode in range(len(shape)):
        M = np.asarray(unfold(xp.asarray(X), mode))
        assert M.shape == (shape[mode], X.size // shape[mode])
        for element in _elements(shape):
            # j = 1 + sum_{k != n} (i_k - 1) J_k with J_k = prod_{m < k, m != n} I_m, counted from 1 in the paper
            j, J = 0, 1
            for k, i in enumerate(element):
                if k != mode:
                    j += i * J
                    J *= shape[k]
            assert M[element[mode], j] == X[element]


@pytest.mark.parametrize("shape", SHAPES)
def test_refolding_inverts_unfolding(rng, xp, shape):
    X = rng.standard_normal(shape)
    for mode in range(-len(shape), len(shape)):
        assert np.array_equal(np.asarray(refold(unfold(xp.asarray(X), mode), mode, shape)), X)


def test_a_mode_that_does_not_exist_is_refused_with_the_modes_that_do():
    with pytest.raises(ValueError, match="mode from 0 to 2"):
        unfold(np.zeros((2, 3, 4)), 3)
    with pytest.raises(ValueError, match="mode from 0 to 2"):
        refold(np.zeros((2, 12)), -4, (2, 3, 4))


@pytest.mark.parametrize("matrix", [(3, 8), (2, 11), (24,), (2, 3, 4)])
def test_refolding_a_matrix_that_is_no_such_unfolding_is_refused(matrix):
    with pytest.raises(ValueError, match=r"mode-0 unfolding of a \(2, 3, 4\) tensor"):
        refold(np.zeros(matrix), 0, (2, 3, 4))


@pytest.mark.parametrize("shape", SHAPES)
def test_inner_product_and_frobenius_norm_are_sums_over_all_elements(rng, xp, shape):
    A, B = rng.standard_normal((2, *shape))
    total = sum(A[e] * B[e] for e in _elements(shape))
    assert inner(xp.asarray(A), xp.asarray(B)) == pytest.approx(total, rel=1e-12, abs=1e-13)
    square = sum(A[e] ** 2 for e in _elements(shape))
    assert frobenius_norm(xp.asarray(A)) == pytest.approx(np.sqrt(square), rel=1e-13)


def test_frobenius_norm_neither_overflows_nor_underflows():
    assert frobenius_norm(np.full((2, 2), 1e200)) == pytest.approx(2e200)
    assert frobenius_norm(np.full((2, 2), 1e-200)) == pytest.approx(2e-200)
    assert frobenius_norm(np.zeros((2, 2))) == 0.0
    assert frobenius_norm(np.zeros((0, 2))) == 0.0
    assert frobenius_norm(np.array([np.inf, 1.0])) == np.inf


def test_the_frobenius_norm_of_nothing_and_of_zero_is_zero():
    assert frobenius_norm(np.zeros((0, 2))) == frobenius_norm(np.zeros((3, 2))) == 0.0


def test_inner_product_of_tensors_of_two_shapes_is_refused_even_where_they_broadcast():
    with pytest.raises(ValueError, match=r"one shape, got \(2, 3\) and \(1, 3\)"):
        inner(np.ones((2, 3)), np.ones((1, 3)))


def test_n_rank_is_the_rank_of_each_unfolding(rng, xp):
    core = rng.standard_normal((2, 3, 1))
    factors = [rng.standard_normal((size, rank)) for size, rank in zip((5, 4, 6), core.shape, strict=True)]
    X = np.einsum("abc,ia,jb,kc->ijk", core, *factors)
    # The rank of one mode is at most the product of the others: (2, 3, 1) becomes (2, 2, 1).
    assert [n_rank(xp.asarray(X), mode) for mode in range(3)] == [2, 2, 1]
    assert [n_rank(xp.asarray(np.zeros((2, 3))), mode) for mode in range(2)] == [0, 0]


def test_n_rank_counts_singular_values_above_the_tolerance():
    X = np.diag([1.0, 1e-3, 1e-9, 1e-17])
    assert n_rank(X, 0) == 3
    assert n_rank(X, 0, rtol=1e-6) == 2
    assert n_rank(X, 0, rtol=0.5) == 1


def test_n_rank_takes_integers():
    assert n_rank(np.eye(3, dtype=int), 1) == 3


@pytest.mark.parametrize(
    ("a", "b"), [((3,), (2,)), ((2, 3), (3, 2)), ((2, 3, 2), (2, 1, 3)), ((2, 1, 2, 2), (1, 3, 2, 2))]
)
def test_kronecker_product_is_the_one_of_numpy_and_of_the_papers_blocks(rng, xp, a, b):
    A, B = rng.standard_normal(a), rng.standard_normal(b)
    K = np.asarray(kronecker(xp.asarray(A), xp.asarray(B)))
    np.testing.assert_allclose(K, np.kron(A, B), rtol=1e-15)
    for element in _elements(a):
        block = tuple(slice(i * size, (i + 1) * size) for i, size in zip(element, b, strict=True))
        np.testing.assert_allclose(K[block], A[element] * B, rtol=1e-15)


def test_kronecker_product_of_two_orders_is_refused():
    with pytest.raises(ValueError, match="equal order, got orders 1 and 2"):
        kronecker(np.ones(2), np.ones((2, 2)))


@pytest.mark.parametrize("shape", [(4,), (2, 3), (3, 2, 2), (2, 1, 3, 2)])
def test_grid_trace_is_the_inner_product_with_every_block(rng, xp, shape):
    W, B = rng.standard_normal(shape), rng.standard_normal(tuple(size * size for size in shape))
    G = np.asarray(grid_trace(xp.asarray(W), xp.asarray(B)))
    assert G.shape == shape
    for element in _elements(shape):
        total = 0.0
        for inside in _elements(shape):
            total += W[inside] * B[tuple(e * size + i for e, i, size in zip(element, inside, shape, strict=True))]
        assert G[element] == pytest.approx(total, rel=1e-12, abs=1e-13)


def test_grid_trace_of_a_grid_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"grid of \(2, 3\) blocks, got a tensor of shape \(4, 8\)"):
        grid_trace(np.ones((2, 3)), np.ones((4, 8)))
    with pytest.raises(ValueError, match="grid of"):
        grid_trace(np.ones((2, 3)), np.ones(6))
