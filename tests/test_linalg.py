"""Spectra, shrinkage and shifted solves against plain NumPy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import matricize, nuclear, spectral

from tracelearn.arrays import linalg
from tracelearn.arrays.linalg import (
    mode_scales,
    positive_part,
    project_columns,
    shrink,
    spectral_norms,
    trace_norms,
)
from tracelearn.penalties import L1, Nuclear, Overlap, Split
from tracelearn.problems.operators import Gram, InBasis, SpectralGram, largest_eigenvalue

SHAPES = [(5,), (3, 4), (4, 3, 2), (3, 3, 3), (7, 2, 2), (2, 3, 2, 2)]


def _shrunk(M, threshold):
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    return (U * np.maximum(s - threshold, 0.0)) @ Vt


def _with_spectrum(rng, m, q, values):
    U = np.linalg.qr(rng.standard_normal((m, m)))[0]
    V = np.linalg.qr(rng.standard_normal((q, m)))[0]
    return (U * values) @ V.T


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8), st.floats(0, 3))
def test_soft_threshold_is_the_paper_s_three_cases(x, eps):
    expected = [v - eps if v > eps else v + eps if v < -eps else 0.0 for v in x]
    found = L1().prox(np.array(x)[None, None, :], np.array([eps]))[0, 0]
    np.testing.assert_allclose(found, expected, atol=1e-15)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_the_positive_part_is_exact(x):
    np.testing.assert_array_equal(positive_part(np.array(x)), np.maximum(x, 0.0))


@pytest.mark.parametrize("shape", SHAPES)
def test_unfoldings_have_their_short_side_first_and_fold_back(rng, xp, shape):
    T = rng.standard_normal((2, *shape))
    for mode in range(len(shape)):
        M = Nuclear(mode).view(xp.asarray(T))
        assert M.shape[1] <= M.shape[2] or len(shape) == 1
        np.testing.assert_array_equal(np.asarray(Nuclear(mode).back(M, T.shape)), T)


@pytest.mark.parametrize("threshold", [3.0, 0.3, 1e-6, 1e-12, 0.0])
def test_shrinking_subtracts_from_the_singular_values(rng, xp, threshold):
    M = rng.standard_normal((4, 3, 5))
    found = np.asarray(shrink(xp.asarray(M), xp.asarray(np.full(4, threshold))))
    np.testing.assert_allclose(found, [_shrunk(m, threshold) for m in M], atol=1e-12)


@pytest.mark.parametrize("threshold", [1e-7, 1e-9, 1e-10])
def test_shrinking_keeps_its_digits_where_the_threshold_is_tiny_against_the_largest_singular_value(rng, threshold):
    values = np.array([1.0, 3e-9, 2e-10, 5e-11])
    M = _with_spectrum(rng, 4, 6, values)
    left = np.linalg.svd(shrink(M[None], np.array([threshold]))[0], compute_uv=False)
    # By the gram alone, singular values below sqrt(eps) = 1.5e-8 would be noise of that size.
    np.testing.assert_allclose(left, np.maximum(values - threshold, 0.0), atol=2e-15)


def test_shrinking_by_more_than_the_largest_singular_value_leaves_an_exact_zero(rng):
    M = rng.standard_normal((2, 3, 5))
    level = np.linalg.svd(M, compute_uv=False)[:, 0] * 1.0001
    assert not shrink(M, level).any()
    assert not shrink(np.zeros((1, 2, 3)), np.array([1.0])).any()
    assert not shrink(np.zeros((1, 2, 3)), np.array([0.0])).any()


@pytest.mark.parametrize("shape", [(40, 8, 20), (2, 30, 12, 12), (20, 17, 40), (8, 40, 64)])
@pytest.mark.parametrize("share", [1.1, 0.9, 0.3, 0.05, 1e-4, 0.0])
def test_single_precision_shrinks_to_its_last_places(rng, shape, share):
    M = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3, (*shape[:-2], 1, 1))
    threshold = share * spectral_norms(M)
    found = shrink(M.astype(np.float32), threshold.astype(np.float32))
    off = np.linalg.norm(found - shrink(M, threshold), ord=2, axis=(-2, -1))
    assert found.dtype == np.float32
    assert np.all(off <= 1e-5 * spectral_norms(M))
    if share > 1.0:
        assert not np.any(found)


@pytest.mark.parametrize("size", [1e-15, 1.0, 1e15])
def test_single_precision_knows_trace_norms_to_its_last_places(rng, size):
    M = (size * _with_spectrum(rng, 6, 20, [3.0, 2.0, 1e-3, 0.0, 0.0, 0.0])[None]).astype(np.float32)
    assert trace_norms(M)[0] == pytest.approx(5.001 * size, rel=1e-6)
    assert trace_norms(M).dtype == np.float32


def test_shrinking_lowers_the_rank_exactly(rng):
    M = _with_spectrum(rng, 4, 6, np.array([4.0, 3.0, 1.0, 0.5]))
    assert np.linalg.matrix_rank(shrink(M[None], np.array([2.0]))[0]) == 2


@pytest.mark.parametrize("shape", SHAPES)
def test_each_part_is_shrunk_along_its_own_mode_by_its_own_threshold(rng, xp, shape):
    order = len(shape)
    modes = list(range(order))[::-1]
    parts, thresholds = rng.standard_normal((order, 2, *shape)), rng.uniform(0.1, 1.0, (order, 2))
    penalty = Overlap(tuple((xp.asarray(t), Nuclear(mode)) for t, mode in zip(thresholds, modes, strict=True)))
    split = Split(xp.asarray(parts), xp.zeros_like(xp.asarray(parts)), xp.asarray(parts))
    ones, zero = xp.ones(2, dtype=xp.float64), xp.zeros((2, *shape), dtype=xp.float64)
    found = np.asarray(penalty.push(split, zero, ones, order * ones, 0.0).parts)  # each has its share of rho
    for m, mode in enumerate(modes):
        for b in range(2):
            expected = _shrunk(matricize(parts[m, b], mode), thresholds[m, b])
            np.testing.assert_allclose(matricize(found[m, b], mode), expected, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_trace_and_spectral_norms_are_those_of_the_unfoldings(rng, xp, shape):
    T = rng.standard_normal((3, *shape))
    for mode in range(len(shape)):
        expected = [nuclear(t, mode) for t in T]
        np.testing.assert_allclose(np.asarray(trace_norms(Nuclear(mode).view(xp.asarray(T)))), expected, rtol=1e-12)
        expected = [spectral(t, mode) for t in T]
        np.testing.assert_allclose(np.asarray(spectral_norms(Nuclear(mode).view(xp.asarray(T)))), expected, rtol=1e-12)


@pytest.mark.parametrize("size", [1e-170, 1e170])
def test_spectral_norms_survive_extreme_scales(rng, size):
    T = rng.standard_normal((2, 3, 4))
    np.testing.assert_allclose(spectral_norms(T * size), size * spectral_norms(T), rtol=1e-12)


def test_spectral_and_trace_norm_of_zero_are_zero():
    assert spectral_norms(np.zeros((1, 2, 3)))[0] == 0.0
    assert trace_norms(np.zeros((1, 2, 3)))[0] == 0.0


def _projected(T, pattern, mode):
    """Give tensors the rank that a pattern has in a mode."""
    atom = Nuclear(mode)
    return atom.back(atom.restrict(atom.view(T), atom.view(pattern)), tuple(T.shape))


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_low_rank_projection_projects_the_short_side_on_the_span_of_the_pattern(rng, xp, shape):
    T = rng.standard_normal((2, *shape))
    for mode, size in enumerate(shape):
        short = min(size, math.prod(shape) // size)  # an unfolding and its transpose have the same rank
        basis = np.linalg.qr(rng.standard_normal((short, 1)))[0]
        pattern = Nuclear(mode).back(basis @ rng.standard_normal((2, 1, math.prod(shape) // short)), T.shape)
        found = np.asarray(_projected(xp.asarray(T), xp.asarray(pattern), mode))
        np.testing.assert_allclose(Nuclear(mode).view(found), basis @ basis.T @ Nuclear(mode).view(T), atol=1e-12)
        assert all(np.linalg.matrix_rank(matricize(one, mode), tol=1e-10) == 1 for one in found)


def test_low_rank_projection_on_a_pattern_of_full_rank_changes_nothing_and_on_zero_leaves_zero(rng):
    T = rng.standard_normal((1, 3, 4, 2))
    np.testing.assert_allclose(_projected(T, rng.standard_normal(T.shape), 1), T, atol=1e-12)
    assert not _projected(T, np.zeros_like(T), 1).any()


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_columns_are_projected_on_those_of_another_matrix_up_to_its_rank(rng, xp, rank):
    M = _with_spectrum(rng, 3, 5, np.array([2.0, 1.0, 0.5]) * (np.arange(3) < rank))
    P = np.asarray(project_columns(xp.asarray(np.eye(3)[None]), xp.asarray(M[None])))[0]
    np.testing.assert_allclose(P @ P.T, P, atol=1e-12)
    np.testing.assert_allclose(np.trace(P), rank, atol=1e-12)
    np.testing.assert_allclose(P @ M, M, atol=1e-12)


def _in_basis(A, spectral, xp=np):
    """Write A'A on the coordinates in the span of the rows of A."""
    basis, triangle = np.linalg.qr(A.T)
    return InBasis((SpectralGram if spectral else Gram)(xp.asarray(triangle @ triangle.T)), xp.asarray(basis))


def _operators(rng, xp, p, n):
    A = rng.standard_normal((n, p))
    matrix = A.T @ A
    for spectral_ in (False, True):
        yield (SpectralGram if spectral_ else Gram)(xp.asarray(matrix)), matrix
        yield _in_basis(A, spectral_, xp), matrix


@pytest.mark.parametrize(("p", "n"), [(6, 20), (12, 5), (230, 40)])  # 230: the inverse of the factor is recursive
def test_operators_apply_and_solve_as_the_matrix_they_stand_for(rng, xp, p, n):
    rows = rng.standard_normal((3, p))
    for system, matrix in _operators(rng, xp, p, n):
        np.testing.assert_allclose(np.asarray(system.apply(xp.asarray(rows))), rows @ matrix, rtol=1e-10, atol=1e-9)
        for shift in (0.7, 5.0, 0.7):  # the last again: a factor that was kept must be the right one
            found = np.asarray(system.solver(xp.asarray(np.full(3, shift)))(xp.asarray(rows)))
            expected = np.linalg.solve(matrix + shift * np.eye(p), rows.T).T
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("kind", [lambda A, spectral: (SpectralGram if spectral else Gram)(A.T @ A), _in_basis])
def test_spectral_operators_solve_every_row_with_its_own_shift(rng, kind):
    A, rows, shifts = rng.standard_normal((4, 7)), rng.standard_normal((3, 7)), np.array([0.1, 1.0, 30.0])
    system = kind(A, True)
    assert not system.shares_shift
    assert kind(A, False).shares_shift
    found = system.solver(shifts)(rows)
    for row, shift, w in zip(rows, shifts, found, strict=True):
        np.testing.assert_allclose((A.T @ A + shift * np.eye(7)) @ w, row, atol=1e-10)


def test_in_single_precision_a_solve_leaves_out_only_what_is_small_against_the_shift(rng):
    A = rng.standard_normal((30, 70)) * np.logspace(-3, 1, 30)[:, None]
    rows, shifts = rng.standard_normal((3, 70)), np.array([0.1, 1.0, 30.0])
    found = _in_basis(A, True).single().solver(shifts.astype(np.float32))(rows.astype(np.float32))
    left = found @ (A.T @ A) + shifts[:, None] * found - rows
    assert np.all(np.linalg.norm(left, axis=1) <= 0.01 * np.linalg.norm(rows, axis=1))
    assert np.linalg.norm(left[1]) > 1e-5  # something was left out


def test_a_gram_that_is_singular_and_not_shifted_still_factors(rng):
    A = rng.standard_normal((2, 5))
    matrix = A.T @ A
    row = rng.standard_normal((1, 5)) @ matrix  # in its range, so that the equation has an answer
    w = Gram(matrix).solver(np.zeros(1))(row)
    np.testing.assert_allclose(w @ matrix, row, rtol=1e-5)


@pytest.mark.parametrize(("p", "n"), [(1, 3), (6, 20), (60, 200), (200, 30), (100, 100)])
@pytest.mark.parametrize("tail", ["flat", "decaying"])
def test_the_largest_eigenvalue_is_bounded_from_above_within_five_per_cent(rng, xp, p, n, tail):
    A = rng.standard_normal((n, p))
    if tail == "decaying":
        A = A / np.arange(1, p + 1)
    true = np.linalg.eigvalsh(A.T @ A)[-1]
    for system in (Gram(xp.asarray(A.T @ A)), _in_basis(A, False, xp)):
        assert true <= system.largest() <= 1.05 * true
    for system in (SpectralGram(xp.asarray(A.T @ A)), _in_basis(A, True, xp)):
        assert system.largest() == pytest.approx(true, rel=1e-10)


def test_the_largest_eigenvalue_of_nothing_is_zero():
    assert largest_eigenvalue(lambda V: 0.0 * V, np.zeros((4, 4))) == 0.0


@pytest.mark.parametrize("n", [3, 20])
def test_the_mean_eigenvalue_counts_the_zeros(rng, n):
    for system, matrix in _operators(rng, np, 6, n):
        assert system.mean_eigenvalue == pytest.approx(np.linalg.eigvalsh(matrix).mean())


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 3, 4)])
def test_mode_scales_are_the_scales_of_the_modes_and_one_where_all_entries_vary_alike(rng, shape):
    parts = [rng.uniform(0.5, 2.0, size) for size in shape]
    product = parts[0]
    for part in parts[1:]:
        product = np.multiply.outer(product, part)
    scales = mode_scales(product.ravel() ** 2, shape)
    assert scales.shape == (product.size,)
    ratio = scales / product.ravel()
    np.testing.assert_allclose(ratio, ratio[0])
    np.testing.assert_allclose(mode_scales(np.full(product.size, 7.0), shape), 1.0)
    np.testing.assert_array_equal(mode_scales(np.zeros(product.size), shape), 1.0)


def test_a_slice_that_hardly_varies_is_not_made_loud():
    variance = np.array([[1.0, 1.0], [1.0, 1.0], [1e-13, 1e-13]])
    scales = mode_scales(variance.ravel(), (3, 2)).reshape(3, 2)
    np.testing.assert_allclose(scales[2], 1.0)
    np.testing.assert_allclose(scales[:2], np.sqrt(1.5))
    variance[2] = 1e-10  # a hundred thousandth of the usual scale is a measurement
    np.testing.assert_allclose(mode_scales(variance.ravel(), (3, 2)).reshape(3, 2)[2], np.sqrt(1.5e-10))


@pytest.mark.parametrize("single", [False, True])
def test_grams_of_pairs_hold_the_hessian_of_all_targets(rng, monkeypatch, single):
    monkeypatch.setattr(linalg, "_BLOCK_BYTES", 8 * 4 * 7)  # seven rows a block
    X, coupling, share = rng.standard_normal((30, 4)) + 3.0, rng.dirichlet(np.ones(3), 30), rng.random(30)
    origin, contrasts = X.mean(axis=0), np.linalg.qr(np.column_stack([np.ones(3), rng.random((3, 2))]))[0][:, 1:]
    inside, cross, corner = linalg.pairwise_grams(X, coupling, share, contrasts, origin=origin, single=single)
    rows = np.column_stack([X - origin, np.ones(30)])
    curvature = coupling[:, :, None] * np.eye(3) - coupling[:, :, None] * coupling[:, None, :]
    whole = np.einsum("i,ikm,ip,iq,ka,mb->apbq", share, curvature, rows, rows, contrasts, contrasts)
    np.testing.assert_allclose(inside, whole[:, :4, :, :4], atol=1e-5 if single else 1e-12)
    np.testing.assert_allclose(cross, whole[:, :4, :, 4], atol=1e-12)
    np.testing.assert_allclose(corner, whole[:, 4, :, 4], atol=1e-12)
