"""The paper's algorithms against a plain transcription of what it prints, iterate by iterate.

The transcription follows the errata: the mean over the product space runs over 0..N with 1/(N+1); P uses Z_k; line 13
of Algorithm 2 uses L_t; the mini-batch sums of Eq. 28 replace lines 5 to 9. On two points the paper is silent and the
library's choice is transcribed: the inner variables start at P with zero multipliers, and within one run of
Algorithm 1 the next proximal point starts where the last one ended.
"""

import inspect
import itertools
import pickle

import numpy as np
import pytest
from oracle import centred, minimise
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from tracelearn import Moments, TraceNormRegressor, tensor_trace_norm
from tracelearn.paper import Constants, Iterate, PaperClassifier, PaperRegressor, algorithm1, algorithm2, lipschitz
from tracelearn.paper.estimators import ALGORITHMS
from tracelearn.penalties import as_penalty

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
@pytest.mark.parametrize("shape", [(5,), (4, 3), (3, 2, 4), (3, 3, 3), (2, 3, 2, 2)])
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
    assert np.linalg.norm(free.W - found[0].W) > 0.02 * np.linalg.norm(free.W)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("inner", ["adm", "dr"])
@pytest.mark.parametrize("shape", [(4, 3), (3, 2, 4), (2, 3, 2, 2)])
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
    assert lipschitz(moments) == pytest.approx(2 * np.prod(shape) * sum(np.linalg.norm(x) ** 2 for x in X))
    assert lipschitz(moments) >= 2 * np.linalg.eigvalsh(moments.second_moment)[-1]


def test_the_constants_are_the_papers_by_default():
    defaults = Constants()
    assert (defaults.lam, defaults.beta, defaults.gamma, defaults.eps1, defaults.eps2) == (1.0, 1e7, 1e-7, 1e-10, 1e-10)


@pytest.mark.parametrize(("eps1", "eps2"), [(1e-3, 1e9), (1e9, 1e-3), (1e-3, 1e-4), (3e-4, 1e-3)])
def test_algorithm_1_stops_by_equation_27_and_not_before(eps1, eps2):
    X, y = samples((3, 2, 4))
    moments = Moments.of(X, y)
    constants = Constants("adm", lam=0.1, beta=lipschitz(moments), eps1=eps1, eps2=eps2, inner_iter=5)
    iterates = [Iterate(np.zeros((3, 2, 4)), 0.0), *itertools.islice(algorithm1(moments, (3, 2, 4), constants), 20000)]
    for number, (before, after) in enumerate(itertools.pairwise(iterates), 1):
        still = np.linalg.norm(after.W - before.W) / (np.linalg.norm(before.W) + 1) < eps1
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
    L, lam = lipschitz(moments), 20.0
    constants = Constants(inner, lam, beta=L, gamma=0.25 / L, eps1=1e-13, eps2=1e-13, inner_iter=3)
    *_, last = itertools.islice(algorithm1(moments, shape, constants), 3000)
    # The paper sums: its lambda is alpha n.
    optimum, W = minimise(*centred(X, y), lam / n, shape, as_penalty("overlapped", shape))
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


# --- the estimators --------------------------------------------------------------------------------------------------

PAPER_NAMES = ["APG_DR", "APG_ADM", "OL_APG_DR", "OL_APG_ADM", "OL_APG_DR_miniBatch", "OL_APG_ADM_miniBatch"]
BATCH_NAMES, ONLINE_NAMES = PAPER_NAMES[:2], PAPER_NAMES[2:]
ignore_warning = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def quick(name, make=PaperRegressor, **options):
    return make(name, **{"lam": 0.5, "max_iter": 4, "inner_iter": INNER_ITER, "batch_size": 5, **options})


def reference(name, X, y, fit_intercept=True):
    """The last model of the functions that the name stands for."""
    constants = Constants("dr" if "_DR" in name else "adm", lam=0.5, inner_iter=INNER_ITER)
    if name in BATCH_NAMES:
        run = algorithm1(Moments.of(X, y), X.shape[1:], constants, fit_intercept=fit_intercept)
        return list(itertools.islice(run, 4))[-1]
    size = 5 if "miniBatch" in name else 1
    batches = [(X[i : i + size], y[i : i + size]) for i in range(0, len(X), size)]
    return list(algorithm2(batches, X.shape[1:], constants, max_iter=4))[-1]


def test_the_names_are_the_papers():
    assert set(ALGORITHMS) == set(PAPER_NAMES)


@ignore_warning
@pytest.mark.parametrize("name", PAPER_NAMES)
def test_a_name_is_the_algorithm_that_it_stands_for(name):
    X, y = samples((3, 2, 4))
    model, expected = quick(name).fit(X, y), reference(name, X, y)
    np.testing.assert_allclose(model.coef_, expected.W, rtol=1e-12)
    assert model.intercept_ == pytest.approx(expected.b, rel=1e-12)
    assert (model.n_iter_, model.n_seen_, model.converged_) == (4, 12, False)
    np.testing.assert_allclose(model.predict(X), X.reshape(12, -1) @ expected.W.ravel() + expected.b)
    flat = quick(name, tensor_shape=(3, 2, 4)).fit(X.reshape(12, -1), y)
    np.testing.assert_array_equal(flat.coef_, model.coef_)


@ignore_warning
@pytest.mark.parametrize("name", BATCH_NAMES)
def test_without_intercept_an_estimator_has_none(name):
    X, y = samples((3, 2, 4))
    model = quick(name, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.coef_, reference(name, X, y, fit_intercept=False).W, rtol=1e-12)
    assert model.intercept_ == 0.0


@pytest.mark.parametrize("name", ONLINE_NAMES)
def test_partial_fit_goes_on_where_it_was(name):
    X, y = samples((3, 2, 4))
    whole = quick(name).fit(X, y)
    parts = quick(name)
    for begin in (0, 5):  # a multiple of the batch size, or the batches would be others
        parts.partial_fit(
            X[begin : begin + 5] if begin == 0 else X[begin:], y[begin : begin + 5] if begin == 0 else y[5:]
        )
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-12)
    assert parts.n_seen_ == 12
    again = pickle.loads(pickle.dumps(parts)).partial_fit(X, y)
    np.testing.assert_allclose(again.coef_, parts.partial_fit(X, y).coef_, rtol=1e-12)
    np.testing.assert_allclose(parts.fit(X, y).coef_, whole.coef_, rtol=1e-12)  # fit begins anew


@pytest.mark.parametrize("name", BATCH_NAMES)
def test_a_batch_algorithm_has_no_partial_fit(name):
    assert not hasattr(quick(name), "partial_fit")
    with pytest.raises(AttributeError, match="partial_fit"):
        quick(name).partial_fit(*samples((3, 2, 4)))


@pytest.mark.parametrize("name", PAPER_NAMES)
def test_the_steps_of_a_fit_are_iterations_or_updates(name):
    X, y = samples((3, 2, 4))
    seen = [(model.n_iter_, model.n_seen_) for model in quick(name).fit_steps(X, y)]
    batch, online, minibatch = (
        [(k, 12) for k in (1, 2, 3, 4)],
        [(4, k) for k in range(1, 13)],
        [(4, 5), (4, 10), (4, 12)],
    )
    assert seen == (batch if name in BATCH_NAMES else minibatch if "miniBatch" in name else online)


@ignore_warning
@pytest.mark.parametrize("name", PAPER_NAMES)
def test_targets_and_classes_are_learned_each_for_itself(name):
    X, y = samples((3, 2, 4))
    labels = np.array(["low", "mid", "high", "mid"])[y.astype(int) - 1]
    model = quick(name, PaperClassifier).fit(X, labels)
    coded = np.where(labels[:, None] == model.classes_, 1.0, -1.0)
    both = quick(name).fit(X, coded)
    for k in range(3):
        alone = quick(name).fit(X, coded[:, k])
        np.testing.assert_allclose(model.coef_[k], alone.coef_, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(both.coef_[k], alone.coef_, rtol=1e-9, atol=1e-14)
        assert model.intercept_[k] == pytest.approx(alone.intercept_)
        np.testing.assert_allclose(both.predict(X)[:, k], alone.predict(X))
    np.testing.assert_array_equal(model.predict(X), model.classes_[np.argmax(both.predict(X), axis=1)])


def test_two_classes_have_one_score_that_is_positive_for_the_second(rng):
    X = rng.standard_normal((60, 3, 2, 4))
    y = np.where(X[:, 0, 0, 0] > 0, "yes", "no")
    model = PaperClassifier("OL_APG_ADM_miniBatch", beta=1e4, batch_size=20).partial_fit(X, y, classes=["yes", "no"])
    assert model.coef_.shape == (1, 3, 2, 4)
    np.testing.assert_array_equal(model.predict(X) == "yes", model.decision_function(X) > 0)
    assert model.score(X, y) > 0.75


def test_an_estimator_converges_to_the_certified_optimum(rng):
    X = rng.standard_normal((40, 2, 2, 2))
    y = X.reshape(40, -1) @ rng.standard_normal(8) + 1.0 + 0.1 * rng.standard_normal(40)

    def objective(model):
        return np.mean((y - model.predict(X)) ** 2) + 0.5 * tensor_trace_norm(model.coef_)

    optimum = objective(TraceNormRegressor(0.5, tol=1e-10).fit(X, y))
    L, before = lipschitz(Moments.of(X, y)), np.inf
    for n_iter in (10, 100):
        with pytest.warns(ConvergenceWarning, match=f"Eq. 27.*got {n_iter} iterations"):
            model = PaperRegressor("APG_ADM", lam=20.0, beta=L, max_iter=n_iter).fit(X, y)
        assert not model.converged_
        assert optimum - 1e-9 <= objective(model) < before
        before = objective(model)
    model = PaperRegressor("APG_ADM", lam=20.0, beta=L, inner_iter=10, eps1=1e-8, eps2=1e-8, max_iter=5000).fit(X, y)
    assert model.converged_
    assert model.n_iter_ < 5000
    assert objective(model) == pytest.approx(optimum, rel=1e-5)


@pytest.mark.parametrize("name", ["APG_DR", "OL_APG_ADM"])
@ignore_warning
def test_an_estimator_takes_the_arrays_of_other_libraries(xp, name):
    X, y = samples((3, 2, 4))
    model = quick(name).fit(xp.asarray(X), xp.asarray(y))
    assert type(model.coef_) is type(xp.asarray(X))
    expected = quick(name).fit(X, y)
    np.testing.assert_allclose(np.asarray(model.coef_), expected.coef_, atol=1e-10)
    np.testing.assert_allclose(np.asarray(model.predict(xp.asarray(X))), expected.predict(X), atol=1e-10)


def test_an_estimator_has_the_manners_of_scikit_learn():
    model = PaperRegressor("OL_APG_DR", lam=3.0)
    assert clone(model).get_params() == model.get_params()
    defaults = {field: getattr(Constants(), field) for field in ("lam", "beta", "gamma", "eps1", "eps2", "inner_iter")}
    assert defaults.items() <= PaperRegressor().get_params().items()
    assert inspect.signature(PaperRegressor) == inspect.signature(PaperClassifier)
    with pytest.raises(NotFittedError):
        model.predict(samples((3, 2, 4))[0])


@parametrize_with_checks(
    [
        PaperRegressor(beta=1e3, max_iter=60, inner_iter=3),
        PaperClassifier("OL_APG_DR_miniBatch", gamma=1e-3, max_iter=4, inner_iter=3, batch_size=20),
    ]
)
@ignore_warning
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "APG"}, "'algorithm' parameter of PaperRegressor must be a str among"),
        ({"lam": -1.0}, "'lam' parameter .* Got -1.0"),
        ({"lam": "much"}, "'lam' parameter"),
        ({"beta": 0.0}, "'beta' parameter"),
        ({"gamma": np.inf}, "'gamma' parameter"),
        ({"eps1": np.nan}, "eps1"),
        ({"max_iter": 0}, "'max_iter' parameter .* must be an int"),
        ({"inner_iter": 2.5}, "'inner_iter' parameter .* must be an int"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_a_bad_parameter_is_one_sentence(options, message):
    with pytest.raises(ValueError, match=message) as error:
        PaperRegressor(**options).fit(*samples((3, 2, 4)))
    assert "\n" not in str(error.value)


def test_bad_samples_are_refused_and_leave_the_model_as_it_was():
    X, y = samples((3, 2, 4))
    model = quick("OL_APG_ADM").fit(X, y)
    before = model.coef_.copy()
    for bad, target, message in [
        (np.full_like(X, np.nan), y, "finite"),
        (X[:, :2], y, "samples of shape"),
        (X, y[:5], "one row for each sample"),
        (X, np.stack([y, y], 1), "1 targets as in the first batch, got 2"),
        (X, None, "requires y"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.partial_fit(bad, target)
    np.testing.assert_array_equal(model.coef_, before)
    assert model.n_seen_ == 12
    with pytest.raises(ValueError, match="Expected classes in the first call"):
        quick("OL_APG_ADM", PaperClassifier).partial_fit(X, y > 2)
    classifier = quick("OL_APG_ADM", PaperClassifier).partial_fit(X, y, classes=[1, 2, 3, 4])
    with pytest.raises(ValueError, match="Expected the classes of the first call"):
        classifier.partial_fit(X, y, classes=[1, 2])
    with pytest.raises(ValueError, match="among the classes"):
        classifier.partial_fit(X, y + 1)
    assert list(classifier.classes_) == [1, 2, 3, 4]
