"""Every solver with every penalty on every form of the squares: certified, right, and the same."""

import functools
import math

import numpy as np
import pytest
import registry
from oracle import centred, minimise, minimise_loss

from tracelearn import Moments
from tracelearn.arrays.tensors import n_rank
from tracelearn.losses import LOSSES, SquaredError
from tracelearn.penalties import L1, PENALTIES, Nuclear, Overlap, as_penalty
from tracelearn.problems.forms import BasisForm
from tracelearn.problems.operators import Gram
from tracelearn.problems.problem import Problems, Solution, alpha_max, certify
from tracelearn.problems.sample_loss import SampleLoss
from tracelearn.problems.squares import Squares
from tracelearn.samples.samples import Block, Samples
from tracelearn.solvers import SOLVERS

SHAPES = [(3, 4), (3, 3, 2), (2, 3, 2, 2)]
FORMS = ["gram", "spectral gram", "basis", "spectral basis"]
N = 30
TOL = {"overlapped": 1e-8, "latent": 1e-7, "scaled_latent": 1e-7}  # latent norms converge slowly
SUMS = {
    **{name: (penalty, (3, 3, 2)) for name, penalty in registry.sums((3, 3, 2)).items()},
    "blocks": registry.blocks(),
}

every_solver = pytest.mark.parametrize("solver", SOLVERS)
every_penalty = pytest.mark.parametrize("name", PENALTIES)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
every_sum = pytest.mark.parametrize(("penalty", "shape"), SUMS.values(), ids=SUMS)


@functools.cache
def data(shape, targets=1):
    """Draw samples whose true weights have rank one, with an intercept and noise."""
    rng = np.random.default_rng([7, targets, *shape])
    X = rng.standard_normal((N, *shape)) + 1.0
    columns = []
    for _ in range(targets):
        W = functools.reduce(np.multiply.outer, [rng.standard_normal(size) for size in shape])
        signal = X.reshape(N, -1) @ W.ravel()
        columns.append(signal + 0.5 * signal.std() * rng.standard_normal(N) - 2.0)
    return X, np.stack(columns, axis=1)


def squares(form, X, y, ridge=0.0, xp=np):
    spectral = form.startswith("spectral")
    if "basis" not in form:
        return Squares.of(Moments.of(xp.asarray(X), xp.asarray(y)), ridge=ridge, spectral=spectral)
    rows, Y = xp.asarray(X.reshape(len(X), -1)), xp.asarray(y.reshape(len(X), -1))
    options = {"ridge": ridge, "joint": False, "fit_intercept": True, "spectral": spectral}
    return BasisForm().data_fit(Samples.of(Block(rows, Y), X.shape[1:]), SquaredError(), **options)


def solve(solver, fit, penalty, alpha, tol, shape, max_iter=5000, **options):
    return SOLVERS[solver](
        Problems(fit, penalty, alpha, shape, fit.at_zero.value), tol=tol, max_iter=max_iter, **options
    )


@functools.cache
def truth(name, shape, ridge, share):
    """Ask cvxpy, once for all solvers."""
    X, y = data(shape)
    penalty = as_penalty(name, shape)
    alpha = share * alpha_max(squares("gram", X, y), penalty, shape)[0]
    A, b = centred(X, y)
    value, W = minimise(A, b[:, 0], alpha, shape, penalty, ridge=ridge)
    return alpha, value, W


@every_solver
@every_penalty
@every_shape
@pytest.mark.parametrize(("ridge", "share"), [(0.0, 0.3), (0.3, 0.1)])
def test_the_answer_is_certified_and_is_the_one_of_cvxpy(solver, name, shape, ridge, share):
    alpha, optimum, W = truth(name, shape, ridge, share)
    X, y = data(shape)
    fit, penalty = squares("gram", X, y, ridge), as_penalty(name, shape)
    found = solve(solver, fit, penalty, np.array([alpha]), TOL[name], shape=shape)
    assert 0 <= found.gap[0] <= TOL[name]
    assert found.objective[0] == pytest.approx(optimum, rel=1e-6)
    # The objective is the one that the samples give, with the best intercept.
    b = fit.intercept(found.W.reshape(1, -1))
    residual = y[:, 0] - X.reshape(N, -1) @ found.W.ravel() - b
    assert abs(residual.mean()) < 1e-10
    norm = penalty.value(found.W, found.split)[0]
    objective = np.mean(residual**2) + ridge * np.sum(found.W**2) + alpha * norm
    assert found.objective[0] == pytest.approx(objective, rel=1e-9)
    np.testing.assert_allclose(found.W[0], W, atol=2e-3 * np.abs(W).max())


@every_solver
@pytest.mark.parametrize("name", ["overlapped", "latent"])
@pytest.mark.parametrize(("form", "ridge"), [*zip(FORMS, [0.1, 0.0, 0.1, 0.0], strict=True)])
def test_every_form_of_the_squares_has_the_same_answer(solver, name, form, ridge):
    shape = (4, 5, 2)  # 40 features and 30 samples
    X, y = data(shape)
    penalty = as_penalty(name, shape)
    alpha = 0.2 * alpha_max(squares("gram", X, y), penalty, shape)
    found = solve(solver, squares(form, X, y, ridge), penalty, alpha, tol=1e-5, shape=shape)
    assert 0 <= found.gap[0] <= 1e-5
    reference = solve("admm", squares("gram", X, y, ridge), penalty, alpha, tol=1e-5, shape=shape)
    assert abs(found.objective[0] - reference.objective[0]) <= 1e-5 * np.var(y)


@every_penalty
@pytest.mark.parametrize("shape", [(5,), *SHAPES], ids=lambda shape: "x".join(map(str, shape)))
def test_all_solvers_agree_with_mode_weights_too(name, shape):
    X, y = data(shape)
    penalty = as_penalty(name, shape, (0.5, 1.0, 0.8, 0.7)[: len(shape)])
    fit = squares("gram", X, y)
    alpha = 0.2 * alpha_max(fit, penalty, shape)
    found = [solve(solver, fit, penalty, alpha, TOL[name], shape=shape) for solver in SOLVERS]
    for other in found:
        assert 0 <= other.gap[0] <= TOL[name]
        assert abs(other.objective[0] - found[0].objective[0]) <= TOL[name] * np.var(y)
        np.testing.assert_allclose(other.W, found[0].W, atol=1e-3 * np.abs(found[0].W).max())


@every_solver
@every_penalty
def test_starting_from_the_answer_it_stops_at_once(solver, name):
    X, y = data((3, 3, 2))
    fit, penalty = squares("gram", X, y), as_penalty(name, (3, 3, 2))
    alpha = 0.2 * alpha_max(fit, penalty, (3, 3, 2))
    first = solve(solver, fit, penalty, alpha, 1e-6, shape=(3, 3, 2))
    again = solve(solver, fit, penalty, alpha, 1e-6, start=first, shape=(3, 3, 2))
    assert first.n_iter > 0
    assert again.n_iter == 0
    np.testing.assert_array_equal(again.W, first.W)
    for other in SOLVERS:  # a certificate is a certificate, whoever found it
        assert solve(other, fit, penalty, alpha, 1e-6, start=first, shape=(3, 3, 2)).n_iter == 0


@every_solver
@pytest.mark.parametrize("name", ["overlapped", "latent"])
def test_starting_from_a_neighbour_it_reaches_the_same_answer(solver, name):
    X, y = data((3, 3, 2))
    fit, penalty = squares("gram", X, y), as_penalty(name, (3, 3, 2))
    alpha = 0.2 * alpha_max(fit, penalty, (3, 3, 2))
    cold = solve(solver, fit, penalty, alpha, 1e-6, shape=(3, 3, 2))
    warm = solve(
        solver,
        fit,
        penalty,
        alpha,
        1e-6,
        start=solve(solver, fit, penalty, 1.5 * alpha, 1e-4, (3, 3, 2)),
        shape=(3, 3, 2),
    )
    assert warm.n_iter > 0
    assert warm.gap[0] <= 1e-6
    assert abs(warm.objective[0] - cold.objective[0]) <= 1e-6 * np.var(y)


@every_solver
@pytest.mark.parametrize("name", ["overlapped", "latent"])
@pytest.mark.parametrize("form", ["gram", "spectral gram"])
def test_several_problems_at_once_are_the_problems_one_by_one(solver, name, form):
    shape = (3, 3, 2)
    X, y = data(shape, 3)
    fit, penalty = squares(form, X, y), as_penalty(name, shape)
    alpha = np.array([0.2, 0.5, 0.3]) * alpha_max(fit, penalty, shape)
    together = solve(solver, fit, penalty, alpha, tol=1e-6, shape=shape)
    assert together.W.shape == (3, *shape)
    assert np.all((together.gap >= 0) & (together.gap <= 1e-6))
    for k in range(3):
        single = solve(solver, squares(form, X, y[:, k]), penalty, alpha[k : k + 1], tol=1e-6, shape=shape)
        assert abs(together.objective[k] - single.objective[0]) <= 1e-6 * np.var(y[:, k])
        np.testing.assert_allclose(together.W[k], single.W[0], atol=3e-3 * np.abs(single.W).max())


@every_solver
@pytest.mark.parametrize("name", ["overlapped", "latent"])
def test_one_problem_at_several_strengths_is_a_path(solver, name):
    shape = (3, 3, 2)
    X, y = data(shape)
    single, penalty = squares("spectral gram", X, y), as_penalty(name, shape)
    alpha = np.array([1.1, 0.5, 0.2]) * alpha_max(single, penalty, shape)
    path = solve(solver, single.take(np.array([0, 0, 0])), penalty, alpha, tol=1e-6, shape=shape)
    for k in range(3):
        alone = solve(solver, single, penalty, alpha[k : k + 1], tol=1e-6, shape=shape)
        assert abs(path.objective[k] - alone.objective[0]) <= 1e-6 * np.var(y)


@every_solver
def test_taking_problems_out_changes_none_of_them(solver):
    X, y = data((3, 3, 2), 3)
    fit, penalty = squares("gram", X, y, ridge=0.1), as_penalty("overlapped", (3, 3, 2))
    alpha = 0.2 * alpha_max(fit, penalty, (3, 3, 2))
    kept = np.array([2, 0])
    part = solve(solver, fit.take(kept), penalty, alpha[kept], tol=1e-6, shape=(3, 3, 2))
    for row, k in enumerate(kept):
        single = solve(
            solver, squares("gram", X, y[:, k], ridge=0.1), penalty, alpha[k : k + 1], tol=1e-6, shape=(3, 3, 2)
        )
        assert abs(part.objective[row] - single.objective[0]) <= 1e-6 * np.var(y[:, k])


@every_solver
@pytest.mark.parametrize("target_mode", [False, True])
def test_joint_targets_are_one_problem(solver, target_mode):
    shape, K = (3, 2, 2), 3
    X, y = data(shape, K)
    fit = Squares.of(Moments.of(X, y), joint=True)
    assert fit.n_problems == 1
    own = (K, *shape) if target_mode else shape
    penalty = as_penalty("overlapped", own)
    alpha = 0.2 * alpha_max(fit, penalty, own)
    found = solve(solver, fit, penalty, alpha, tol=1e-6, shape=own)
    assert found.W.shape == ((1, K, *shape) if target_mode else (K, *shape))
    assert 0 <= found.gap[0] <= 1e-6
    if target_mode:
        # Targets side by side are one long regression: X_i in the k-th block predicts y_ik.
        A, b = centred(X, y)
        tall = np.kron(np.eye(K), A)
        optimum, _ = minimise(tall, b.T.ravel(), alpha[0] / K, own, penalty)
        assert found.objective[0] == pytest.approx(K * optimum, rel=1e-5)
    else:
        singles = [solve(solver, squares("gram", X, y[:, k]), penalty, alpha, tol=1e-6, shape=own) for k in range(K)]
        total = sum(single.objective[0] for single in singles)
        assert abs(found.objective[0] - total) <= 3e-6 * total


@every_solver
@every_shape
@pytest.mark.parametrize("share", [0.8, 0.3])
def test_the_answer_of_the_overlapped_norm_has_exactly_the_ranks_of_its_split(solver, shape, share):
    X, y = data(shape)
    fit, penalty = squares("gram", X, y), as_penalty("overlapped", shape)
    found = solve(solver, fit, penalty, share * alpha_max(fit, penalty, shape), 1e-6, shape=shape)
    modes = [atom.mode for _, atom in penalty.terms]
    ranks = [n_rank(found.split.parts[m, 0], mode, rtol=1e-10) for m, mode in enumerate(modes)]
    # A mode spans no more dimensions than all others together.
    if len(ranks) > 1:
        ranks = [min(rank, math.prod(ranks[:m] + ranks[m + 1 :])) for m, rank in enumerate(ranks)]
    assert [n_rank(found.W[0], mode) for mode in modes] == ranks
    if share > 0.5 and len(shape) < 4:  # at 2x3x2x2 the forces of all modes tie, and no mode is left out
        assert any(rank < shape[mode] for rank, mode in zip(ranks, modes, strict=True))


@every_solver
@pytest.mark.parametrize("name", ["latent", "scaled_latent"])
def test_the_answer_of_a_latent_norm_is_the_sum_of_its_parts(solver, name):
    X, y = data((3, 3, 2))
    fit, penalty = squares("gram", X, y), as_penalty(name, (3, 3, 2))
    found = solve(solver, fit, penalty, 0.3 * alpha_max(fit, penalty, (3, 3, 2)), 1e-6, shape=(3, 3, 2))
    np.testing.assert_allclose(found.W, found.split.parts.sum(axis=0), atol=1e-14)
    assert min(n_rank(found.split.parts[mode, 0], mode) for mode in range(3)) < 2


@every_solver
@every_penalty
def test_every_array_library_gives_numpys_answer(xp, solver, name):
    shape = (3, 3, 2)
    X, y = data(shape, 2)
    penalty = as_penalty(name, shape)
    alpha = 0.2 * alpha_max(squares("gram", X, y), penalty, shape)
    for form in ("gram", "spectral basis"):
        # A fixed number of iterations, so that rounding cannot decide where to stop.
        expected = solve(solver, squares(form, X, y, 0.1), penalty, alpha, tol=0.0, max_iter=6, shape=shape)
        found = solve(
            solver, squares(form, X, y, 0.1, xp), penalty, xp.asarray(alpha), tol=0.0, max_iter=6, shape=shape
        )
        assert type(found.W) is type(xp.asarray(X))
        scale = np.abs(expected.W).max()
        np.testing.assert_allclose(np.asarray(found.W), expected.W, atol=1e-8 * scale)
        np.testing.assert_allclose(np.asarray(found.objective), expected.objective, rtol=1e-8)


@every_solver
@every_penalty
def test_what_is_reported_on_the_way_is_certified_and_the_answer_is_among_it(solver, name):
    X, y = data((3, 3, 2))
    fit, penalty = squares("gram", X, y), as_penalty(name, (3, 3, 2))
    alpha, seen = 0.2 * alpha_max(fit, penalty, (3, 3, 2)), []
    found = solve(solver, fit, penalty, alpha, 1e-6, on_iteration=seen.append, shape=(3, 3, 2))
    assert all(isinstance(solution, Solution) for solution in seen)
    assert found.n_iter in {solution.n_iter for solution in seen}
    # It may go on for exact ranks once the gap is closed, but not for long.
    first = next(solution.n_iter for solution in seen if solution.gap[0] <= 1e-6)
    assert seen[-1].n_iter <= 1.25 * first + 25
    assert all(solution.objective[0] - solution.gap[0] * np.var(y) <= found.objective[0] + 1e-12 for solution in seen)
    _, gap = certify(Problems(fit, penalty, alpha, (3, 3, 2), fit.at_zero.value), found.W, found.split)
    np.testing.assert_array_equal(gap, found.gap)


@every_solver
@every_penalty
@pytest.mark.parametrize("max_iter", [1, 7])
def test_out_of_iterations_it_returns_what_it_has_with_an_honest_gap(solver, name, max_iter):
    X, y = data((3, 3, 2))
    fit, penalty = squares("gram", X, y), as_penalty(name, (3, 3, 2))
    alpha = 0.05 * alpha_max(fit, penalty, (3, 3, 2))
    found = solve(solver, fit, penalty, alpha, tol=1e-12, max_iter=max_iter, shape=(3, 3, 2))
    best = solve("admm", fit, penalty, alpha, 1e-6, shape=(3, 3, 2))
    assert found.n_iter == max_iter
    assert found.gap[0] > 1e-12
    assert found.gap[0] * np.var(y) >= found.objective[0] - best.objective[0] - 1e-12


@every_solver
@every_penalty
def test_one_feature_and_one_target_is_soft_thresholding(solver, name, rng):
    x, y = rng.standard_normal((20, 1)) + 3.0, rng.standard_normal(20) - 1.0
    y = y + 2.0 * x[:, 0]
    fit, penalty = squares("gram", x, y), as_penalty(name, (1,))
    c, h, alpha = np.var(x), np.mean((x[:, 0] - x.mean()) * (y - y.mean())), 0.5
    found = solve(solver, fit, penalty, np.array([alpha]), tol=1e-12, shape=(1,))
    assert found.W[0, 0] == pytest.approx((h - alpha / 2) / c, rel=1e-5)


@every_solver
@every_penalty
def test_more_features_than_samples_and_copies_of_a_feature_are_no_trouble(solver, name, rng):
    X = rng.standard_normal((8, 3, 2, 2))
    X[:, 1] = X[:, 0]
    y = X[:, 0, 0, 0] + 0.1 * rng.standard_normal(8)
    fit, penalty = squares("gram", X, y), as_penalty(name, (3, 2, 2))
    found = solve(solver, fit, penalty, 0.1 * alpha_max(fit, penalty, (3, 2, 2)), tol=1e-6, shape=(3, 2, 2))
    assert 0 <= found.gap[0] <= 1e-6


@every_solver
@every_penalty
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_a_solver_on_samples_finds_the_answer_that_moments_give(solver, name, ridge):
    shape = (3, 3, 2)
    X, y = data(shape, 2)
    squared = squares("gram", X, y, ridge)
    penalty = as_penalty(name, shape)
    alpha = 0.2 * alpha_max(squared, penalty, shape)
    fit = SampleLoss.of(SquaredError(), Samples.of(Block(X.reshape(N, -1), y), shape).checked(), ridge=ridge)
    np.testing.assert_allclose(alpha_max(fit, penalty, shape), alpha / 0.2)
    found = solve(solver, fit, penalty, alpha, tol=1e-6, shape=shape)
    expected = solve("admm", squared, penalty, alpha, tol=1e-6, shape=shape)
    assert np.all((found.gap >= 0) & (found.gap <= 1e-6))
    assert np.all(np.abs(found.objective - expected.objective) <= 1e-6 * np.var(y, axis=0))


def test_acceleration_takes_iterations_like_the_root_of_the_condition_number(rng):
    spread, W = np.geomspace(1.0, 1e-3, 12), rng.standard_normal((1, 12))
    cross, target = 0.5 * W * spread, np.array([0.505 * np.sum(W**2 * spread)])
    nothing = np.zeros(1)
    fit = Squares(Gram(np.diag(spread)), cross, target, nothing, np.zeros(12), nothing, 0.5 * spread)
    found = solve("apg", fit, as_penalty("overlapped", (3, 4)), np.array([1e-4]), tol=1e-6, shape=(3, 4))
    assert found.gap[0] <= 1e-6
    assert found.n_iter <= 1000  # three thousand without acceleration


@pytest.mark.parametrize("name", ["overlapped", "latent"])
@pytest.mark.parametrize("form", ["gram", "spectral gram"])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_admm_finds_its_own_step_whatever_the_units_are(name, form, ridge):
    X, y = data((3, 3, 2), 2)
    penalty, iterations = as_penalty(name, (3, 3, 2)), []
    for x_unit, y_unit in ((1.0, 1.0), (1e4, 1e-3), (1e-5, 1e2)):
        fit = squares(form, x_unit * X, y_unit * y, ridge * x_unit**2)
        found = solve("admm", fit, penalty, 0.1 * alpha_max(fit, penalty, (3, 3, 2)), tol=1e-5, shape=(3, 3, 2))
        assert np.all(found.gap <= 1e-5)
        iterations.append(found.n_iter)
    assert iterations[0] == iterations[1] == iterations[2]
    assert iterations[0] <= {"overlapped": 25, "latent": 75}[name]  # 15 and 50 were measured


@pytest.mark.parametrize("form", ["gram", "spectral gram"])
def test_a_problem_that_is_done_is_not_worked_on_any_more(form):
    X, y = data((3, 3, 2), 2)
    fit, penalty, open_ = squares(form, X, y), as_penalty("overlapped", (3, 3, 2)), []
    alpha = np.array([0.9, 0.01]) * alpha_max(fit, penalty, (3, 3, 2))
    found = solve(
        "admm", fit, penalty, alpha, tol=1e-7, on_iteration=lambda part: open_.append(len(part.gap)), shape=(3, 3, 2)
    )
    assert (open_[0], open_[-1]) == (2, 1)
    assert np.all(found.gap <= 1e-7)
    assert found.W.shape == (2, 3, 3, 2)


# --- sums of atoms, blocks, and weights of their own ------------------------------------------------------------------


@functools.cache
def true_sum(name, ridge):
    penalty, shape = SUMS[name]
    X, y = data(shape)
    alpha = 0.2 * alpha_max(squares("gram", X, y), penalty, shape)[0]
    A, b = centred(X, y)
    return alpha, *minimise(A, b[:, 0], alpha, shape, penalty, ridge=ridge)


@every_solver
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_every_sum_of_atoms_is_certified_and_has_the_answer_of_cvxpy(solver, name, ridge):
    penalty, shape = SUMS[name]
    alpha, optimum, W = true_sum(name, ridge)
    X, y = data(shape)
    found = solve(solver, squares("gram", X, y, ridge), penalty, np.array([alpha]), 1e-7, shape=shape)
    assert 0 <= found.gap[0] <= 1e-7
    assert found.objective[0] == pytest.approx(optimum, rel=1e-6)
    np.testing.assert_allclose(found.W[0], W, atol=3e-3 * np.abs(W).max())


@every_solver
def test_an_l1_term_leaves_exact_zeros_and_a_group_term_whole_slices_of_them(solver):
    shape = (3, 3, 2)
    X, y = data(shape)
    fit = squares("gram", X, y)
    for name, axes in (("l1 alone", None), ("group_l2 alone", (1, 2)), ("nuclear + l1", None)):
        penalty = SUMS[name][0]
        found = solve(solver, fit, penalty, 0.5 * alpha_max(fit, penalty, shape), 1e-7, shape=shape)
        zero = found.W[0] == 0 if axes is None else np.all(found.W[0] == 0, axis=axes)
        assert found.gap[0] <= 1e-7
        assert zero.any()
        assert not zero.all()


@every_solver
@pytest.mark.parametrize("form", ["gram", "spectral gram"])
def test_problems_with_weights_of_their_own_have_the_answers_of_each_alone(solver, form):
    shape = (3, 3, 2)
    X, y = data(shape)
    table = np.array([[0.5, 0.0, 0.3], [0.0, 0.7, 0.2], [0.4, 0.4, 0.0]])
    atoms = [Nuclear(0), Nuclear(1), L1()]
    together = Overlap(tuple((table[:, m], atom) for m, atom in enumerate(atoms)))
    single = squares(form, X, y)
    fit = single.take(np.zeros(3, int))
    alpha = 0.2 * alpha_max(fit, together, shape)
    found = solve(solver, fit, together, alpha, 1e-7, shape=shape)
    assert np.all((found.gap >= 0) & (found.gap <= 1e-7))
    for k, row in enumerate(table):
        alone = Overlap(tuple(zip(map(float, row), atoms, strict=True))).bound_to(shape)
        expected = solve(solver, single, alone, alpha[k : k + 1], 1e-7, shape=shape)
        assert abs(found.objective[k] - expected.objective[0]) <= 1e-7 * np.var(y)
        np.testing.assert_allclose(found.W[k], expected.W[0], atol=3e-3 * np.abs(expected.W).max())
    optimum, _ = minimise(*centred(X, y[:, 0]), alpha[0], shape, together, problem=0)
    assert found.objective[0] == pytest.approx(optimum, rel=1e-6)


# --- folds as one batch -----------------------------------------------------------------------------------------------


@every_solver
@pytest.mark.parametrize("form", ["gram", "basis"])
def test_folds_that_are_stacked_have_the_answers_of_each_fold_alone(solver, form):
    shape, (X, y) = (3, 3, 2), data((3, 3, 2), 2)
    folds = np.arange(N) % 3
    if form == "gram":
        parts = [squares("spectral gram", X[folds != f], y[folds != f], ridge=0.05) for f in range(3)]
    else:  # all folds share the basis of all samples
        whole = squares("spectral basis", X, y)
        basis, origin = whole.operator.basis, whole.x_mean
        rows = (X.reshape(N, -1) - origin) @ basis
        training = [Moments.of(rows[folds != f], y[folds != f]) for f in range(3)]
        own = [Squares.of(moments, ridge=0.05, spectral=True) for moments in training]
        parts = [part.lifted(basis, origin, whole.variances) for part in own]
    fit, penalty = Squares.stacked(parts), as_penalty("overlapped", shape)
    assert (fit.n_groups, fit.n_problems) == (3, 6)
    np.testing.assert_allclose(alpha_max(fit, penalty, shape)[2:4], alpha_max(parts[1], penalty, shape))
    alpha = np.tile([0.1, 0.3], 3) * alpha_max(fit, penalty, shape)
    found = solve(solver, fit, penalty, alpha, 1e-7, shape=shape)
    assert np.all((found.gap >= 0) & (found.gap <= 1e-7))
    rows = found.W.reshape(6, -1)
    for f, part in enumerate(parts):
        own = slice(2 * f, 2 * f + 2)
        alone = solve(solver, part, penalty, alpha[own], 1e-7, shape=shape)
        assert np.all(np.abs(found.objective[own] - alone.objective) <= 1e-7 * part.at_zero.value)
        np.testing.assert_allclose(found.W[own], alone.W, atol=3e-3 * np.abs(alone.W).max())
        np.testing.assert_allclose(fit.intercept(rows)[own], part.intercept(rows[own]), atol=1e-12)
        for one, other in zip(fit.evaluate(rows).errors(1.0), part.evaluate(rows[own]).errors(1.0), strict=True):
            assert np.all(one[own] >= other * (1 - 1e-9))


# --- every loss with every penalty, from samples ----------------------------------------------------------------------


@functools.cache
def true_loss(name, penalty_name):
    rng = np.random.default_rng(3)
    penalty, shape = SUMS[penalty_name]
    X = rng.standard_normal((N, int(np.prod(shape)))) + 0.5
    K = 1 if LOSSES[name].is_separable else 3
    Y = registry.targets(name, rng, 0.3 * X @ rng.standard_normal((X.shape[1], K)) + 0.3 * rng.standard_normal((N, K)))
    weight = rng.uniform(0.5, 2.0, N)
    samples = Samples.of(Block(X, Y, weight), shape).checked()
    fit = SampleLoss.of(LOSSES[name](), samples, ridge=0.02)
    alpha = 0.2 * alpha_max(fit, penalty, shape)
    share = weight / weight.sum()
    return fit, alpha, minimise_loss(name, X, Y, share, alpha[0], shape, penalty, ridge=0.02)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["nuclear + l1", "latent nuclear, group_l2", "blocks"])
@every_solver
def test_every_loss_with_sums_of_atoms_is_certified_and_has_the_optimum_of_cvxpy(loss, name, solver):
    pytest.importorskip("cvxpy", reason="cvxpy is the reference here")
    fit, alpha, optimum = true_loss(loss, name)
    penalty, shape = SUMS[name]
    if LOSSES[loss].curvature is None and solver != "newton":
        with pytest.raises(ValueError, match="Expected a loss of bounded curvature"):
            solve(solver, fit, penalty, alpha, 1e-6, shape=shape)
        return
    found = solve(solver, fit, penalty, alpha, 1e-6, shape=shape)
    assert 0 <= found.gap[0] <= 1e-6
    assert found.objective[0] == pytest.approx(optimum, rel=1e-5)
    rough = solve(solver, fit, penalty, alpha, 1e-2, shape=shape)
    assert rough.objective[0] - optimum <= (rough.gap[0] + 1e-7) * fit.at_zero.value[0]
