"""Every solver with every penalty on every form of the squares: certified, right, and the same."""

import functools
import math

import numpy as np
import pytest
from oracle import centred, minimise
from registry import DATA_SOLVERS, PENALTIES, SOLVERS
from tracelearn.problems.certificate import alpha_max, certify
from tracelearn.problems.smooth import ArraySamples, DataLoss, Squares

from tracelearn import Moments
from tracelearn.arrays.tensors import n_rank
from tracelearn.losses import Squared
from tracelearn.problems.operators import GramSystem, KernelSystem
from tracelearn.solvers import Solution

SHAPES = [(3, 4), (3, 3, 2), (2, 3, 2, 2)]
FORMS = ["gram", "spectral gram", "kernel", "spectral kernel"]
N = 30
TOL = {"overlapped": 1e-8, "latent": 1e-7, "scaled_latent": 1e-7}  # latent norms converge slowly

every_solver = pytest.mark.parametrize("solver", SOLVERS)
every_penalty = pytest.mark.parametrize("name", PENALTIES)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))


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
    moments = Moments.of(xp.asarray(X), xp.asarray(y))
    smooth = Squares.of(moments, ridge=ridge, spectral=form.startswith("spectral"))
    if "kernel" not in form:
        return smooth
    A, b = centred(X, y)
    kernel = KernelSystem(xp.asarray(np.sqrt(2 / len(A)) * A), form.startswith("spectral"))
    cross, target = xp.asarray((A.T @ b).T / len(A)), xp.asarray(np.mean(b**2, axis=0))
    return Squares(kernel, cross, target, smooth.ridge, smooth.x_mean, smooth.y_mean)


def solve(solver, smooth, penalty, alpha, tol, max_iter=5000, **options):
    return SOLVERS[solver](smooth, penalty, alpha, tol=tol, max_iter=max_iter, **options)


@functools.cache
def truth(name, shape, ridge, share):
    """Ask cvxpy, once for all solvers."""
    X, y = data(shape)
    penalty = PENALTIES[name](shape)
    alpha = share * alpha_max(squares("gram", X, y), penalty)[0]
    A, b = centred(X, y)
    value, W = minimise(A, b[:, 0], alpha, shape, penalty.weights, latent=name != "overlapped", ridge=ridge)
    return alpha, value, W


@every_solver
@every_penalty
@every_shape
@pytest.mark.parametrize(("ridge", "share"), [(0.0, 0.3), (0.3, 0.1)])
def test_the_answer_is_certified_and_is_the_one_of_cvxpy(solver, name, shape, ridge, share):
    alpha, optimum, W = truth(name, shape, ridge, share)
    X, y = data(shape)
    smooth, penalty = squares("gram", X, y, ridge), PENALTIES[name](shape)
    found = solve(solver, smooth, penalty, np.array([alpha]), TOL[name])
    assert 0 <= found.gap[0] <= TOL[name]
    assert found.objective[0] == pytest.approx(optimum, rel=1e-6)
    # The objective is the one that the samples give, with the best intercept.
    b = smooth.intercept(found.W.reshape(1, -1))
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
    penalty = PENALTIES[name](shape)
    alpha = 0.2 * alpha_max(squares("gram", X, y), penalty)
    found = solve(solver, squares(form, X, y, ridge), penalty, alpha, tol=1e-5)
    assert 0 <= found.gap[0] <= 1e-5
    reference = solve("admm", squares("gram", X, y, ridge), penalty, alpha, tol=1e-5)
    assert abs(found.objective[0] - reference.objective[0]) <= 1e-5 * np.var(y)


@every_penalty
@pytest.mark.parametrize("shape", [(5,), *SHAPES], ids=lambda shape: "x".join(map(str, shape)))
def test_all_solvers_agree_with_mode_weights_too(name, shape):
    X, y = data(shape)
    penalty = PENALTIES[name](shape, (0.5, 1.0, 0.8, 0.7)[: len(shape)])
    smooth = squares("gram", X, y)
    alpha = 0.2 * alpha_max(smooth, penalty)
    found = [solve(solver, smooth, penalty, alpha, TOL[name]) for solver in SOLVERS]
    for other in found:
        assert 0 <= other.gap[0] <= TOL[name]
        assert abs(other.objective[0] - found[0].objective[0]) <= TOL[name] * np.var(y)
        np.testing.assert_allclose(other.W, found[0].W, atol=1e-3 * np.abs(found[0].W).max())


@every_solver
@every_penalty
def test_starting_from_the_answer_it_stops_at_once(solver, name):
    X, y = data((3, 3, 2))
    smooth, penalty = squares("gram", X, y), PENALTIES[name]((3, 3, 2))
    alpha = 0.2 * alpha_max(smooth, penalty)
    first = solve(solver, smooth, penalty, alpha, 1e-6)
    again = solve(solver, smooth, penalty, alpha, 1e-6, start=first)
    assert first.n_iter > 0
    assert again.n_iter == 0
    np.testing.assert_array_equal(again.W, first.W)
    for other in SOLVERS:  # a certificate is a certificate, whoever found it
        assert solve(other, smooth, penalty, alpha, 1e-6, start=first).n_iter == 0


@every_solver
@pytest.mark.parametrize("name", ["overlapped", "latent"])
def test_starting_from_a_neighbour_it_reaches_the_same_answer(solver, name):
    X, y = data((3, 3, 2))
    smooth, penalty = squares("gram", X, y), PENALTIES[name]((3, 3, 2))
    alpha = 0.2 * alpha_max(smooth, penalty)
    cold = solve(solver, smooth, penalty, alpha, 1e-6)
    warm = solve(solver, smooth, penalty, alpha, 1e-6, start=solve(solver, smooth, penalty, 1.5 * alpha, 1e-4))
    assert warm.n_iter > 0
    assert warm.gap[0] <= 1e-6
    assert abs(warm.objective[0] - cold.objective[0]) <= 1e-6 * np.var(y)


@every_solver
@pytest.mark.parametrize("name", ["overlapped", "latent"])
@pytest.mark.parametrize("form", ["gram", "spectral gram"])
def test_several_problems_at_once_are_the_problems_one_by_one(solver, name, form):
    shape = (3, 3, 2)
    X, y = data(shape, 3)
    smooth, penalty = squares(form, X, y), PENALTIES[name](shape)
    alpha = np.array([0.2, 0.5, 0.3]) * alpha_max(smooth, penalty)
    together = solve(solver, smooth, penalty, alpha, tol=1e-6)
    assert together.W.shape == (3, *shape)
    assert np.all((together.gap >= 0) & (together.gap <= 1e-6))
    for k in range(3):
        single = solve(solver, squares(form, X, y[:, k]), penalty, alpha[k : k + 1], tol=1e-6)
        assert abs(together.objective[k] - single.objective[0]) <= 1e-6 * np.var(y[:, k])
        np.testing.assert_allclose(together.W[k], single.W[0], atol=3e-3 * np.abs(single.W).max())


@every_solver
@pytest.mark.parametrize("name", ["overlapped", "latent"])
def test_one_problem_at_several_strengths_is_a_path(solver, name):
    shape = (3, 3, 2)
    X, y = data(shape)
    single, penalty = squares("spectral gram", X, y), PENALTIES[name](shape)
    alpha = np.array([1.1, 0.5, 0.2]) * alpha_max(single, penalty)
    path = solve(solver, single.take(np.array([0, 0, 0])), penalty, alpha, tol=1e-6)
    for k in range(3):
        alone = solve(solver, single, penalty, alpha[k : k + 1], tol=1e-6)
        assert abs(path.objective[k] - alone.objective[0]) <= 1e-6 * np.var(y)


@every_solver
def test_taking_problems_out_changes_none_of_them(solver):
    X, y = data((3, 3, 2), 3)
    smooth, penalty = squares("gram", X, y, ridge=0.1), PENALTIES["overlapped"]((3, 3, 2))
    alpha = 0.2 * alpha_max(smooth, penalty)
    kept = np.array([2, 0])
    part = solve(solver, smooth.take(kept), penalty, alpha[kept], tol=1e-6)
    for row, k in enumerate(kept):
        single = solve(solver, squares("gram", X, y[:, k], ridge=0.1), penalty, alpha[k : k + 1], tol=1e-6)
        assert abs(part.objective[row] - single.objective[0]) <= 1e-6 * np.var(y[:, k])


@every_solver
@pytest.mark.parametrize("class_mode", [False, True])
def test_joint_targets_are_one_problem(solver, class_mode):
    shape, K = (3, 2, 2), 3
    X, y = data(shape, K)
    smooth = Squares.of(Moments.of(X, y), joint=True)
    assert smooth.n_problems == 1
    penalty = PENALTIES["overlapped"]((K, *shape) if class_mode else shape)
    alpha = 0.2 * alpha_max(smooth, penalty)
    found = solve(solver, smooth, penalty, alpha, tol=1e-6)
    assert found.W.shape == ((1, K, *shape) if class_mode else (K, *shape))
    assert 0 <= found.gap[0] <= 1e-6
    if class_mode:
        # Targets side by side are one long regression: X_i in the k-th block predicts y_ik.
        A, b = centred(X, y)
        tall = np.kron(np.eye(K), A)
        optimum, _ = minimise(tall, b.T.ravel(), alpha[0] / K, (K, *shape), penalty.weights)
        assert found.objective[0] == pytest.approx(K * optimum, rel=1e-5)
    else:
        singles = [solve(solver, squares("gram", X, y[:, k]), penalty, alpha, tol=1e-6) for k in range(K)]
        total = sum(single.objective[0] for single in singles)
        assert abs(found.objective[0] - total) <= 3e-6 * total


@every_solver
@every_shape
@pytest.mark.parametrize("share", [0.8, 0.3])
def test_the_answer_of_the_overlapped_norm_has_exactly_the_ranks_of_its_split(solver, shape, share):
    X, y = data(shape)
    smooth, penalty = squares("gram", X, y), PENALTIES["overlapped"](shape)
    found = solve(solver, smooth, penalty, share * alpha_max(smooth, penalty), 1e-6)
    ranks = [n_rank(found.split.parts[m, 0], mode, rtol=1e-10) for m, mode in enumerate(penalty.terms)]
    # A mode spans no more dimensions than all others together.
    if len(ranks) > 1:
        ranks = [min(rank, math.prod(ranks[:m] + ranks[m + 1 :])) for m, rank in enumerate(ranks)]
    assert [n_rank(found.W[0], mode) for mode in penalty.terms] == ranks
    if share > 0.5 and len(shape) < 4:  # at 2x3x2x2 the forces of all modes tie, and no mode is left out
        assert any(rank < shape[mode] for rank, mode in zip(ranks, penalty.terms, strict=True))


@every_solver
@pytest.mark.parametrize("name", ["latent", "scaled_latent"])
def test_the_answer_of_a_latent_norm_is_the_sum_of_its_parts(solver, name):
    X, y = data((3, 3, 2))
    smooth, penalty = squares("gram", X, y), PENALTIES[name]((3, 3, 2))
    found = solve(solver, smooth, penalty, 0.3 * alpha_max(smooth, penalty), 1e-6)
    np.testing.assert_allclose(found.W, found.split.parts.sum(axis=0), atol=1e-14)
    assert min(n_rank(found.split.parts[mode, 0], mode) for mode in range(3)) < 2


@every_solver
@every_penalty
def test_every_array_library_gives_numpys_answer(xp, solver, name):
    shape = (3, 3, 2)
    X, y = data(shape, 2)
    penalty = PENALTIES[name](shape)
    alpha = 0.2 * alpha_max(squares("gram", X, y), penalty)
    for form in ("gram", "spectral kernel"):
        # A fixed number of iterations, so that rounding cannot decide where to stop.
        expected = solve(solver, squares(form, X, y, 0.1), penalty, alpha, tol=0.0, max_iter=6)
        found = solve(solver, squares(form, X, y, 0.1, xp), penalty, xp.asarray(alpha), tol=0.0, max_iter=6)
        assert type(found.W) is type(xp.asarray(X))
        scale = np.abs(expected.W).max()
        np.testing.assert_allclose(np.asarray(found.W), expected.W, atol=1e-8 * scale)
        np.testing.assert_allclose(np.asarray(found.objective), expected.objective, rtol=1e-8)


@every_solver
@every_penalty
def test_what_is_reported_on_the_way_is_certified_and_the_answer_is_among_it(solver, name):
    X, y = data((3, 3, 2))
    smooth, penalty = squares("gram", X, y), PENALTIES[name]((3, 3, 2))
    alpha, seen = 0.2 * alpha_max(smooth, penalty), []
    found = solve(solver, smooth, penalty, alpha, 1e-6, on_iteration=seen.append)
    assert all(isinstance(solution, Solution) for solution in seen)
    assert found.n_iter in {solution.n_iter for solution in seen}
    # It may go on for exact ranks once the gap is closed, but not for long.
    first = next(solution.n_iter for solution in seen if solution.gap[0] <= 1e-6)
    assert seen[-1].n_iter <= 1.25 * first + 25
    assert all(solution.objective[0] - solution.gap[0] * np.var(y) <= found.objective[0] + 1e-12 for solution in seen)
    at = smooth.evaluate(found.W.reshape(1, -1))
    proof = certify(at, penalty, found.W, found.split, alpha, smooth.at_zero.value)
    np.testing.assert_array_equal(proof.gap, found.gap)


@every_solver
@every_penalty
@pytest.mark.parametrize("max_iter", [1, 7])
def test_out_of_iterations_it_returns_what_it_has_with_an_honest_gap(solver, name, max_iter):
    X, y = data((3, 3, 2))
    smooth, penalty = squares("gram", X, y), PENALTIES[name]((3, 3, 2))
    alpha = 0.05 * alpha_max(smooth, penalty)
    found = solve(solver, smooth, penalty, alpha, tol=1e-12, max_iter=max_iter)
    best = solve("admm", smooth, penalty, alpha, 1e-6)
    assert found.n_iter == max_iter
    assert found.gap[0] > 1e-12
    assert found.gap[0] * np.var(y) >= found.objective[0] - best.objective[0] - 1e-12


@every_solver
@every_penalty
def test_one_feature_and_one_target_is_soft_thresholding(solver, name, rng):
    x, y = rng.standard_normal((20, 1)) + 3.0, rng.standard_normal(20) - 1.0
    y = y + 2.0 * x[:, 0]
    smooth, penalty = squares("gram", x, y), PENALTIES[name]((1,))
    c, h, alpha = np.var(x), np.mean((x[:, 0] - x.mean()) * (y - y.mean())), 0.5
    found = solve(solver, smooth, penalty, np.array([alpha]), tol=1e-12)
    assert found.W[0, 0] == pytest.approx((h - alpha / 2) / c, rel=1e-5)


@every_solver
@every_penalty
def test_more_features_than_samples_and_copies_of_a_feature_are_no_trouble(solver, name, rng):
    X = rng.standard_normal((8, 3, 2, 2))
    X[:, 1] = X[:, 0]
    y = X[:, 0, 0, 0] + 0.1 * rng.standard_normal(8)
    smooth, penalty = squares("gram", X, y), PENALTIES[name]((3, 2, 2))
    found = solve(solver, smooth, penalty, 0.1 * alpha_max(smooth, penalty), tol=1e-6)
    assert 0 <= found.gap[0] <= 1e-6


@pytest.mark.parametrize("solver", DATA_SOLVERS)
@every_penalty
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_a_solver_on_samples_finds_the_answer_that_moments_give(solver, name, ridge):
    shape = (3, 3, 2)
    X, y = data(shape, 2)
    squared = squares("gram", X, y, ridge)
    penalty = PENALTIES[name](shape)
    alpha = 0.2 * alpha_max(squared, penalty)
    smooth = DataLoss.of(Squared(), ArraySamples(X.reshape(N, -1), y, np.full(N, 1 / N)), ridge=ridge)
    np.testing.assert_allclose(alpha_max(smooth, penalty), alpha / 0.2)
    found = DATA_SOLVERS[solver](smooth, penalty, alpha, tol=1e-6, max_iter=5000)
    expected = solve("admm", squared, penalty, alpha, tol=1e-6)
    assert np.all((found.gap >= 0) & (found.gap <= 1e-6))
    assert np.all(np.abs(found.objective - expected.objective) <= 1e-6 * np.var(y, axis=0))


@pytest.mark.parametrize("solver", ["apg-adm", "apg-dr"])
def test_acceleration_takes_iterations_like_the_root_of_the_condition_number(solver, rng):
    spread, W = np.geomspace(1.0, 1e-3, 12), rng.standard_normal((1, 12))
    cross, target = 0.5 * W * spread, np.array([0.505 * np.sum(W**2 * spread)])
    nothing = np.zeros(1)
    smooth = Squares(GramSystem(np.diag(spread)), cross, target, nothing, np.zeros(12), nothing, 0.5 * spread)
    found = solve(solver, smooth, PENALTIES["overlapped"]((3, 4)), np.array([1e-4]), tol=1e-6)
    assert found.gap[0] <= 1e-6
    assert found.n_iter <= 1000  # three thousand without acceleration


@pytest.mark.parametrize("name", ["overlapped", "latent"])
@pytest.mark.parametrize("form", ["gram", "spectral gram"])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_admm_finds_its_own_step_whatever_the_units_are(name, form, ridge):
    X, y = data((3, 3, 2), 2)
    penalty, iterations = PENALTIES[name]((3, 3, 2)), []
    for x_unit, y_unit in ((1.0, 1.0), (1e4, 1e-3), (1e-5, 1e2)):
        smooth = squares(form, x_unit * X, y_unit * y, ridge * x_unit**2)
        found = solve("admm", smooth, penalty, 0.1 * alpha_max(smooth, penalty), tol=1e-5)
        assert np.all(found.gap <= 1e-5)
        iterations.append(found.n_iter)
    assert iterations[0] == iterations[1] == iterations[2]
    assert iterations[0] <= {"overlapped": 25, "latent": 75}[name]  # 15 and 50 were measured


@pytest.mark.parametrize("form", ["gram", "spectral gram"])
def test_a_problem_that_is_done_is_not_worked_on_any_more(form):
    X, y = data((3, 3, 2), 2)
    smooth, penalty, open_ = squares(form, X, y), PENALTIES["overlapped"]((3, 3, 2)), []
    alpha = np.array([0.9, 0.01]) * alpha_max(smooth, penalty)
    found = solve("admm", smooth, penalty, alpha, tol=1e-7, on_iteration=lambda part: open_.append(len(part.gap)))
    assert (open_[0], open_[-1]) == (2, 1)
    assert np.all(found.gap <= 1e-7)
    assert found.W.shape == (2, 3, 3, 2)
