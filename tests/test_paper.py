"""The paper's algorithms against a plain transcription of what it prints, iterate by iterate.

The transcription follows the errata: the mean over the product space runs over 0..N with 1/(N+1); P uses Z_k; line 13
of Algorithm 2 uses L_t; the mini-batch sums of Eq. 28 replace lines 5 to 9. On two points the paper is silent and the
library's choice is transcribed: the inner variables start at P with zero multipliers, and within one run of
Algorithm 1 the next proximal point starts where the last one ended.
"""

import itertools

import numpy as np
import pytest
from oracle import centred, minimise

from tracelearn import Moments
from tracelearn.arrays.tensors import frobenius_norm
from tracelearn.paper.algorithms import Constants, Iterate, algorithm1, algorithm2

INNER_ITER = 6


def unfold(X, n):
    """Write element (i1, ..., iN) to (i_n, j), as the paper's section 2 says."""
    shape = X.shape
    M = np.zeros((shape[n], X.size // shape[n]))
    for element in itertools.product(*map(range, shape)):
        j, J = 0, 1
        for k, i in enumerate(element):
            if k != n:
                j, J = j + i * J, J * shape[k]
        M[element[n], j] = X[element]
    return M


def refold(M, n, shape):
    index = unfold(np.arange(np.prod(shape)).reshape(shape), n).astype(int)
    X = np.zeros(np.prod(shape))
    X[index.ravel()] = M.ravel()
    return X.reshape(shape)


def shrink(X, n, eps):
    U, S, Vt = np.linalg.svd(unfold(X, n), full_matrices=False)
    return refold(U @ np.diag(np.where(S > eps, S - eps, 0.0)) @ Vt, n, X.shape)


def grid_trace(W, B):
    result = np.zeros(W.shape)
    for element in itertools.product(*map(range, W.shape)):
        block = tuple(slice(e * size, (e + 1) * size) for e, size in zip(element, W.shape, strict=True))
        result[element] = np.sum(W * B[block])
    return result


def adm(P, L, lam, beta, state):
    """Eq. 26, a fixed number of times."""
    N = P.ndim
    Y, U = ([P] * N, [np.zeros(P.shape)] * N) if state is None else state
    for _ in range(INNER_ITER):
        W = (L * P + beta * sum(Y) + sum(U)) / (L + beta * N)
        Y = [shrink(W - U[i] / beta, i, lam / (beta * N)) for i in range(N)]
        U = [U[i] - beta * (W - Y[i]) for i in range(N)]
    return W, (Y, U)


def dr(P, L, lam, gamma, state):
    """Eq. 22 and 23, a fixed number of times."""
    N = P.ndim
    W = [P] * (N + 1) if state is None else state
    step = (N + 1) * gamma
    for _ in range(INNER_ITER):
        mean = sum(W) / (N + 1)
        inner = [(L / 2 * P + (2 * mean - W[0]) / (2 * step)) / (L / 2 + 1 / (2 * step))]
        inner += [shrink(2 * mean - W[i], i - 1, lam * step / N) for i in range(1, N + 1)]
        W = [w + point - mean for w, point in zip(W, inner, strict=True)]
    return mean, W


class Past:
    """Lines 1 and 5 to 9, with Eq. 28 for batches."""

    def __init__(self, shape):
        self.A, self.B = np.zeros(shape), np.zeros(tuple(size * size for size in shape))
        self.c, self.D, self.L, self.t = 0.0, np.zeros(shape), 0.0, 0

    def update(self, X, y):
        for x, target in zip(X, y, strict=True):
            self.A = self.A + target * x
            self.B = self.B + np.kron(x, x)
            self.c += target
            self.D = self.D + x
            self.L += 2 * np.prod(x.shape) * np.sum(x**2)
            self.t += 1


def lines_11_to_19(past, W, b, constants, n_iter):
    """Yield every W_k, b_k."""
    inner, step = {"adm": (adm, constants.beta), "dr": (dr, constants.gamma)}[constants.inner]
    Z, alpha, state = W, 1.0, None
    for _ in range(n_iter):
        P = Z + 2 / past.L * (past.A - grid_trace(Z, past.B) - b * past.D)
        before = W
        W, state = inner(P, past.L, constants.lam, step, state)
        following = (1 + np.sqrt(1 + 4 * alpha**2)) / 2
        Z = W + (alpha - 1) / following * (W - before)
        alpha = following
        b = (past.c - np.sum(W * past.D)) / past.t
        yield W, b


def constants_for(inner, L):
    # beta and gamma must scale with L to do anything within a few iterations.
    return Constants(inner, lam=0.01 * L, beta=0.3 * L, gamma=0.5 / L, eps1=0.0, eps2=0.0, inner_iter=INNER_ITER)


def samples(shape, n=12, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, *shape))
    return X, rng.integers(1, 5, n).astype(float)


def assert_close(found, expected):
    W, b = expected
    assert np.linalg.norm(found.W - W) <= 1e-8 * np.linalg.norm(W)
    assert found.b == pytest.approx(b, rel=1e-8)


@pytest.mark.parametrize("inner", ["adm", "dr"])
@pytest.mark.parametrize("shape", [(3, 2, 4), (3, 3, 3), (2, 3, 2, 2)])
def test_every_iterate_of_algorithm_1_is_the_papers(inner, shape):
    X, y = samples(shape)
    past = Past(shape)
    past.update(X, y)
    constants = constants_for(inner, past.L)
    expected = lines_11_to_19(past, np.zeros(shape), 0.0, constants, 8)
    found = list(itertools.islice(algorithm1(Moments.of(X, y), shape, constants), 8))
    assert [iterate.n_iter for iterate in found] == list(range(1, 9))
    for iterate, reference in zip(found, expected, strict=True):
        assert_close(iterate, reference)
    # The shrinkage must have had something to do, or the comparison says little.
    free = next(algorithm1(Moments.of(X, y), shape, Constants(inner, lam=0.0, eps1=0.0, inner_iter=INNER_ITER)))
    assert np.linalg.norm(free.W - found[0].W) > 0.05 * np.linalg.norm(free.W)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("inner", ["adm", "dr"])
@pytest.mark.parametrize("shape", [(3, 2, 4), (2, 3, 2, 2)])
def test_every_model_of_algorithm_2_is_the_papers_one_sample_at_a_time_and_in_batches(inner, shape, batch):
    X, y = samples(shape, n=9)
    constants = constants_for(inner, 2 * np.prod(shape) * np.sum(X[:3] ** 2))
    batches = [(X[i : i + batch], y[i : i + batch]) for i in range(0, 9, batch)]
    past, W, b = Past(shape), np.zeros(shape), 0.0
    found = list(algorithm2(batches, shape, constants, max_iter=4))
    assert [model.n_seen for model in found] == list(range(batch, 10, batch))
    for model, (x, target) in zip(found, batches, strict=True):
        past.update(x, target)
        *_, (W, b) = lines_11_to_19(past, W, b, constants, 4)
        assert_close(model, (W, b))
        assert model.n_iter == 4


def test_one_pass_of_algorithm_2_with_one_batch_of_all_samples_is_algorithm_1():
    X, y = samples((3, 2, 4))
    constants = constants_for("adm", 100.0)
    (model,) = algorithm2([(X, y)], (3, 2, 4), constants, max_iter=5)
    *_, iterate = itertools.islice(algorithm1(Moments.of(X, y), (3, 2, 4), constants), 5)
    np.testing.assert_array_equal(model.W, iterate.W)
    assert model.b == iterate.b


@pytest.mark.parametrize("shape", [(4,), (3, 2), (3, 2, 4), (2, 3, 2, 2)])
def test_the_papers_lipschitz_constant_is_lemma_3_1_verbatim(shape):
    X, y = samples(shape)
    moments = Moments.of(X[:5], y[:5]).updated(X[5:], y[5:])
    assert moments.paper_lipschitz == pytest.approx(2 * np.prod(shape) * sum(np.linalg.norm(x) ** 2 for x in X))
    assert moments.paper_lipschitz >= 2 * np.linalg.eigvalsh(moments.second_moment)[-1]


def test_the_constants_are_the_papers_by_default():
    defaults = Constants()
    assert (defaults.lam, defaults.beta, defaults.gamma, defaults.eps1, defaults.eps2) == (1.0, 1e7, 1e-7, 1e-10, 1e-10)


@pytest.mark.parametrize(("eps1", "eps2"), [(1e-3, 1e9), (1e9, 1e-3), (1e-3, 1e-4), (3e-4, 1e-3)])
def test_algorithm_1_stops_by_equation_27_and_not_before(eps1, eps2):
    X, y = samples((3, 2, 4))
    moments = Moments.of(X, y)
    constants = Constants("adm", lam=0.1, beta=moments.paper_lipschitz, eps1=eps1, eps2=eps2, inner_iter=5)
    iterates = [Iterate(np.zeros((3, 2, 4)), 0.0), *itertools.islice(algorithm1(moments, (3, 2, 4), constants), 20000)]
    for number, (before, after) in enumerate(itertools.pairwise(iterates), 1):
        still = frobenius_norm(after.W - before.W) / (frobenius_norm(before.W) + 1) < eps1
        settled = abs(after.b - before.b) / (abs(before.b) + 1) < eps2
        assert after.converged == (still and settled) == (number == len(iterates) - 1)


def test_algorithm_2_stops_an_update_early_when_equation_27_holds():
    X, y = samples((3, 2, 4), n=4)
    constants = Constants("adm", eps1=1e9, eps2=1e9, inner_iter=5)
    assert [model.n_iter for model in algorithm2([(X, y)], (3, 2, 4), constants)] == [1]


def test_without_intercept_the_bias_stays_zero():
    X, y = samples((3, 2, 4))
    iterates = itertools.islice(algorithm1(Moments.of(X, y), (3, 2, 4), Constants(), fit_intercept=False), 5)
    assert {iterate.b for iterate in iterates} == {0.0}


@pytest.mark.parametrize("inner", ["adm", "dr"])
def test_with_enough_iterations_algorithm_1_with_the_papers_step_reaches_the_optimum(rng, inner):
    shape, n = (2, 2, 2), 40
    X = rng.standard_normal((n, *shape))
    y = X.reshape(n, -1) @ rng.standard_normal(8) + 1.0 + 0.1 * rng.standard_normal(n)
    moments = Moments.of(X, y)
    L, lam = moments.paper_lipschitz, 20.0
    constants = Constants(inner, lam, beta=L, gamma=0.25 / L, eps1=1e-13, eps2=1e-13, inner_iter=3)
    *_, last = itertools.islice(algorithm1(moments, shape, constants), 3000)
    optimum, W = minimise(*centred(X, y), lam / n, shape, (1 / 3,) * 3)  # the paper sums: its lambda is alpha n
    residual = y - X.reshape(n, -1) @ last.W.ravel() - last.b
    norm = sum(np.linalg.svd(unfold(last.W, mode), compute_uv=False).sum() for mode in range(3)) / 3
    assert residual @ residual / n + lam / n * norm == pytest.approx(optimum, rel=1e-6)
    np.testing.assert_allclose(last.W, W, atol=1e-3)


@pytest.mark.parametrize("inner", ["adm", "dr"])
def test_every_array_library_runs_the_papers_algorithms_to_numpys_iterates(xp, inner):
    X, y = samples((3, 2, 4), n=4)
    batches = [(X[:2], y[:2]), (X[2:], y[2:])]
    constants = constants_for(inner, 100.0)
    arrays = [(xp.asarray(x), xp.asarray(target)) for x, target in batches]
    for found, expected in zip(
        algorithm2(arrays, (3, 2, 4), constants), algorithm2(batches, (3, 2, 4), constants), strict=True
    ):
        np.testing.assert_allclose(np.asarray(found.W), expected.W, atol=1e-10)
        assert found.b == pytest.approx(expected.b)
