"""The vocabulary of tensors against its definitions, element by element."""

import itertools

import numpy as np
import pytest

from tracelearn.arrays.tensors import n_rank, unfold

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


def test_a_mode_that_does_not_exist_is_refused_with_the_modes_that_do():
    with pytest.raises(ValueError, match="mode from 0 to 2"):
        unfold(np.zeros((2, 3, 4)), 3)
    with pytest.raises(ValueError, match="mode from 0 to 2"):
        unfold(np.zeros((2, 3, 4)), -4)


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
