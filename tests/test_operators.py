"""Every operator against the matrix that it stands for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tracelearn.arrays.linalg import conjugate_gradients
from tracelearn.problems.operators import Centred, Coupled, Diagonal, Gram, InBasis, Passes, SpectralGram, stacked
from tracelearn.problems.sample_loss import target_contrasts
from tracelearn.samples.samples import Block, Samples

P, R = 6, 3  # features, and rows that are solved together


def covariance(rng, n=20):
    A = rng.standard_normal((n, P)) * np.linspace(0.5, 2.0, P)
    return A.T @ A / n


def passes(rng):
    X, weight = rng.standard_normal((20, P)) + 2.0, rng.uniform(0.5, 2.0, 20)
    share = weight / weight.sum()
    samples = Samples.of(Block(X, np.zeros((20, 1)), weight), (P,))
    centred = X - share @ X
    return Passes(samples.total, share @ X, 2.0), np.kron(np.eye(R), 2.0 * (centred.T * share) @ centred)


def in_basis(rng, spectral):
    basis = np.linalg.qr(rng.standard_normal((P, 4)))[0]
    A = rng.standard_normal((9, 4))
    return InBasis((SpectralGram if spectral else Gram)(A.T @ A / 9), basis), np.kron(
        np.eye(R), basis @ (A.T @ A / 9) @ basis.T
    )


def gram(rng, spectral):
    C = covariance(rng)
    return (SpectralGram if spectral else Gram)(C), np.kron(np.eye(R), C)


def diagonal(rng):
    d = rng.uniform(0.5, 2.0, P)
    return Diagonal(d), np.kron(np.eye(R), np.diag(d))


def block_diagonal(parts):
    matrix = np.zeros((R * P, R * P))
    for k, part in enumerate(parts):
        matrix[k * P : (k + 1) * P, k * P : (k + 1) * P] = part
    return matrix


def several(rng):
    parts = [covariance(rng) for _ in range(R)]
    return stacked([Gram(part) for part in parts]), block_diagonal(parts)


def several_in_a_basis(rng):
    basis = np.linalg.qr(rng.standard_normal((P, 4)))[0]
    parts = [A.T @ A / 9 for A in rng.standard_normal((R, 9, 4))]
    system = stacked([InBasis(Gram(part), basis) for part in parts])
    return system, block_diagonal([basis @ part @ basis.T for part in parts])


def centred(rng):
    C = covariance(rng)
    return Centred(Gram(C)), np.kron(np.eye(R) - 1.0 / R, C)


def coupled(rng):
    A, contrasts = rng.standard_normal((40, (R - 1) * P)), target_contrasts(np.zeros(R))
    wide = np.kron(contrasts, np.eye(P))
    return Coupled(Gram(A.T @ A / 40), contrasts), wide @ (A.T @ A / 40) @ wide.T


def coupled_in_a_basis(rng):
    basis = np.linalg.qr(rng.standard_normal((P, 4)))[0]
    A, contrasts = rng.standard_normal((40, (R - 1) * 4)), target_contrasts(np.zeros(R))
    wide = np.kron(contrasts, basis)
    return Coupled(Gram(A.T @ A / 40), contrasts, basis), wide @ (A.T @ A / 40) @ wide.T


OPERATORS = {
    "gram": lambda rng: gram(rng, False),
    "spectral gram": lambda rng: gram(rng, True),
    "in a basis": lambda rng: in_basis(rng, False),
    "spectral in a basis": lambda rng: in_basis(rng, True),
    "diagonal": diagonal,
    "passes": passes,
    "stacked": several,
    "stacked in a basis": several_in_a_basis,
    "centred": centred,
    "coupled": coupled,
    "coupled in a basis": coupled_in_a_basis,
}
every_operator = pytest.mark.parametrize("name", OPERATORS)


@every_operator
def test_an_operator_multiplies_as_its_matrix_and_solves_what_it_multiplies(rng, name):
    system, matrix = OPERATORS[name](rng)
    rows = rng.standard_normal((R, P))
    image = system.apply(rows)
    assert_allclose(image.ravel(), matrix @ rows.ravel(), atol=1e-12)
    shift = np.full(R, 0.3) if system.shares_shift else np.array([0.3, 0.01, 2.0])
    solve = system.solver(shift)
    for _ in range(2):  # a solver is asked many times
        assert_allclose(solve(image + shift[:, None] * rows), rows, atol=1e-8)


@every_operator
def test_a_solve_for_a_shared_shift_serves_fewer_rows(rng, name):
    system, matrix = OPERATORS[name](rng)
    if not system.shares_shift or name.startswith(("coupled", "centred")):
        pytest.skip("its rows have shifts of their own, or stay together")
    row = rng.standard_normal((1, P))
    solve = system.solver(np.full(R, 0.3))
    assert_allclose(solve(row @ matrix[:P, :P] + 0.3 * row), row, atol=1e-8)


@every_operator
def test_an_operator_knows_its_largest_its_mean_and_a_bound_of_its_smallest_eigenvalue(rng, name):
    system, matrix = OPERATORS[name](rng)
    values = np.linalg.eigvalsh(matrix)
    assert values[-1] * (1 - 1e-12) <= system.largest() <= 1.05 * values[-1]
    assert 0.0 <= system.smallest() <= max(values[0], 0.0) + 1e-15
    if name in ("gram", "spectral gram", "stacked", "diagonal"):
        assert system.smallest() == pytest.approx(values[0], rel=1e-10)
    mean = np.mean(values) * (R / (R - 1) if name == "centred" else 1.0)  # the deviations' own
    assert system.mean_eigenvalue == pytest.approx(mean)


def test_the_smallest_eigenvalue_of_a_singular_matrix_is_zero_whatever_rounding_says(rng):
    for _ in range(20):
        A = rng.standard_normal((P - 1, P))
        assert Gram(A.T @ A).smallest() == SpectralGram(A.T @ A).smallest() == 0.0


@pytest.mark.parametrize("size", [256, 257, 391, 512])  # blocks have 128 rows, and are used above two of them
def test_a_large_matrix_is_solved_block_by_block_and_then_by_its_inverse(rng, size):
    A = rng.standard_normal((size, size))
    matrix, rows = A @ A.T / size, rng.standard_normal((2, size))
    solve = Gram(matrix).solver(np.full(2, 0.5))
    image = rows @ matrix + 0.5 * rows
    for count in range(102):
        if count in (0, 1, 99, 100, 101):
            assert_allclose(solve(image), rows, atol=1e-9)
        else:
            solve(image[:1])


def test_every_shift_has_a_factor_of_its_own(rng):
    C, rows = covariance(rng), rng.standard_normal((1, P))
    system = Gram(C)
    for shift in (0.5, 0.5, 2.0, 0.5):
        assert_allclose(system.solver(np.array([shift]))(rows @ C + shift * rows), rows, atol=1e-10)


def test_a_tiny_shift_magnifies_no_rounding_inside_of_a_basis(rng):
    basis = np.linalg.qr(rng.standard_normal((200, 40)))[0]
    inner = np.diag(np.logspace(-4, 1, 40))
    operator = InBasis(Gram(inner), basis)
    rows = rng.standard_normal((1, 40)) @ basis.T
    solution = operator.solver(np.full(1, 1e-9))(rows)
    assert_allclose(operator.apply(solution) + 1e-9 * solution, rows, atol=1e-11)


def test_conjugate_gradients_end_at_the_tolerance_and_at_the_answer_take_no_step(rng):
    C, rows, shift = covariance(rng), rng.standard_normal((R, P)), np.array([0.1, 0.2, 0.3])
    truth = np.stack([np.linalg.solve(C + s * np.eye(P), row) for s, row in zip(shift, rows, strict=True)])
    calls = []

    def apply(rows):
        calls.append(1)
        return rows @ C

    scale = np.diagonal(C)[None, :] + shift[:, None]
    assert_allclose(conjugate_gradients(apply, rows, shift, scale), truth, atol=1e-8)
    assert len(calls) <= P + 1
    calls.clear()
    assert_allclose(conjugate_gradients(apply, rows, shift, scale, start=truth), truth, atol=1e-12)
    assert len(calls) <= 2
    calls.clear()
    rough = conjugate_gradients(apply, rows, shift, scale, tol=0.5)
    assert 1 <= len(calls) < P
    left = rows - rough @ C - shift[:, None] * rough
    assert np.all(np.sum(left**2 / scale, axis=1) <= 0.25 * np.sum(rows**2 / scale, axis=1))


def test_rows_of_a_stack_are_those_of_each_group_alone(rng):
    parts = [covariance(rng) for _ in range(2)]
    system, rows, shift = stacked([Gram(part) for part in parts]), rng.standard_normal((6, P)), rng.uniform(0.1, 2.0, 6)
    assert system.n_groups == 2
    for g, part in enumerate(parts):
        own = slice(3 * g, 3 * g + 3)
        assert_allclose(system.apply(rows)[own], rows[own] @ part)
        expected = [np.linalg.solve(part + s * np.eye(P), row) for s, row in zip(shift[own], rows[own], strict=True)]
        assert_allclose(system.solver(shift)(rows)[own], expected)
