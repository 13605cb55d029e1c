"""Products in single precision: a model that leads to the answer of double precision, and to its proof."""

import importlib
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tracelearn import Moments, TraceNormClassifier, TraceNormRegressor, moments
from tracelearn.arrays import cuda
from tracelearn.datasets import make_low_rank_regression
from tracelearn.losses import Squared
from tracelearn.penalties import L1, Nuclear, as_penalty
from tracelearn.problems import batch, sample_loss
from tracelearn.problems.batch import Problems, choose_form
from tracelearn.problems.datafits import Squares
from tracelearn.samples.samples import Block, Samples
from tracelearn.solvers.newton import newton

SHAPE = (4, 3, 3)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    monkeypatch.setattr(batch, "_LEAST_FEATURES", 1)
    monkeypatch.setattr(sample_loss, "_MANY", 1)


def drawn(n=300, offset=0.0):
    X, y, _ = make_low_rank_regression(n, SHAPE, rank=1, noise=0.5, random_state=0)
    X = np.round(8 * X)  # few digits, of which an offset takes none
    return (X + offset).astype(np.float32), y


def count_exact(monkeypatch):
    """Count how often the moments of all samples are found in double precision."""
    calls, found = [], Samples.moments

    def counted(self, past=None, *, single=False):
        calls.append(single)
        return found(self, past, single=single)

    monkeypatch.setattr(Samples, "moments", counted)
    return lambda: calls.count(False)


def true_gap(model, X, y):
    """Find how far the weights that were handed out are from the least objective, by moments in double precision."""
    fit, penalty = Squares.of(Moments.of(X, y)), as_penalty(model.penalty, SHAPE)
    problems = Problems(fit, penalty, np.array([float(model.alpha_)]), SHAPE, fit.at_zero.value)
    best = newton(problems, tol=1e-12, max_iter=5000)
    W = np.asarray(model.coef_, dtype=np.float64)[None]
    objective = problems.certified(W, penalty.start(W), 0).objective
    return float((objective - best.objective)[0] / fit.at_zero.value[0])


@pytest.mark.parametrize("lib", ["numpy", "torch"])
@pytest.mark.parametrize("penalty", ["overlapped", 0.5 * Nuclear(0) + 0.1 * L1()], ids=["overlapped", "with l1"])
@pytest.mark.parametrize("offset", [0.0, 1e3, 2.0**20])
def test_a_fit_is_as_good_as_its_certificate_says(lib, penalty, offset, monkeypatch):
    X, y = drawn(offset=offset)
    exact = count_exact(monkeypatch)
    given = X if lib == "numpy" else pytest.importorskip("torch", reason="needs PyTorch").asarray(X)
    model = TraceNormRegressor(penalty=penalty, tol=1e-6).fit(given, y)
    assert model.dual_gap_ <= 1e-6
    assert exact() == 0
    model.coef_ = np.asarray(model.coef_)
    assert model.coef_.dtype == np.float32
    assert -1e-12 <= true_gap(model, X, y) <= model.dual_gap_
    wide = TraceNormRegressor(penalty=penalty, tol=1e-6).fit(X.astype(np.float64), y)
    np.testing.assert_allclose(model.patterns_, wide.patterns_, atol=1e-3 * np.abs(wide.patterns_).max())
    scores = X.reshape(300, -1).astype(np.float64) @ model.coef_.ravel().astype(np.float64) + model.intercept_
    assert np.mean(scores) == pytest.approx(np.mean(y), abs=1e-3 * np.std(y))


def test_weights_of_samples_are_those_of_repeated_samples():
    X, y = drawn()
    often = np.arange(300) % 3
    weighted = TraceNormRegressor(tol=1e-9).fit(X, y, often)
    repeated = TraceNormRegressor(tol=1e-9).fit(np.repeat(X, often, axis=0), np.repeat(y, often))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4 * np.abs(repeated.coef_).max())


def test_a_warm_start_goes_on_from_the_last_answer():
    X, y = drawn()
    model = TraceNormRegressor(warm_start=True).fit(X, y)
    assert model.n_iter_ > 0
    assert model.fit(X, y).n_iter_ == 0


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_however_wrong_the_model_is_the_answer_is_proven(loss, monkeypatch):
    X, y = drawn()
    make = TraceNormRegressor if loss == "squared_error" else TraceNormClassifier
    y = y if loss == "squared_error" else (y > 0).astype(int)
    exact = make(loss=loss, tol=1e-7).fit(X.astype(np.float64), y)
    rng = np.random.default_rng(0)
    wrong = []

    def mistaken(rows):
        wrong.append(rows)
        return (rows * rng.standard_normal(rows.shape)).astype(np.float32)

    monkeypatch.setattr(moments, "to_single", mistaken)
    model = make(loss=loss, tol=1e-7).fit(X, y)
    assert wrong
    assert model.dual_gap_ <= 1e-7
    assert model.objective_ == pytest.approx(exact.objective_, rel=3e-7)


def test_a_model_that_cannot_be_solved_leaves_iterations_for_the_exact_problem(monkeypatch):
    module = importlib.import_module("tracelearn.solvers.newton")
    calls, admm = [], module.admm

    def stuck(problems, *, max_iter, **options):
        calls.append(max_iter)
        if len(calls) > 1:
            return admm(problems, max_iter=max_iter, **options)
        return replace(admm(problems, max_iter=1, **options), n_iter=max_iter)

    monkeypatch.setattr(module, "admm", stuck)
    model = TraceNormRegressor(max_iter=400).fit(*drawn())
    assert calls[0] == 200
    assert model.dual_gap_ <= 1e-6
    assert model.n_iter_ <= 400


@pytest.mark.filterwarnings("ignore:Expected a relative duality gap")
@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_features_that_are_collinear_to_single_precision_are_left_to_double(tol, monkeypatch):
    rng = np.random.default_rng(0)
    common, own = rng.standard_normal((200, 1)), rng.standard_normal((200, 6))
    X = (np.round(1024 * common) + np.round(4 * own) / 1024).astype(np.float32)
    y = own[:, 0] - own[:, 1]
    exact = count_exact(monkeypatch)
    model = TraceNormRegressor(alpha=1e-5, tensor_shape=(3, 2), tol=tol).fit(X, y)
    assert exact() == 1
    wide = TraceNormRegressor(alpha=1e-5, tensor_shape=(3, 2), tol=tol).fit(X.astype(np.float64), y)
    assert model.dual_gap_ <= max(tol, 1.1 * wide.dual_gap_)


@pytest.mark.parametrize("scale", [1e-13, 1e13])
def test_units_of_samples_do_not_matter(scale):
    X, y = drawn()
    usual = TraceNormRegressor(alpha=0.1).fit(X, y)
    model = TraceNormRegressor(alpha=0.1 * scale).fit(X * np.float32(scale), y)
    assert model.dual_gap_ <= 1e-6
    np.testing.assert_allclose(model.coef_ * scale, usual.coef_, atol=1e-3 * np.abs(usual.coef_).max())


def test_moments_that_are_kept_are_exact():
    X, y = drawn()
    kept, exact = TraceNormRegressor(keep_moments=True).fit(X, y).moments_, Moments.of(X, y)
    np.testing.assert_array_equal(kept.gram, exact.gram)


def samples(X, y, **more):
    return Samples.of(Block(X.reshape(len(X), -1), y.reshape(len(y), -1), **more), SHAPE)


def test_only_one_target_of_samples_in_single_precision_is_worth_a_model():
    X, y = drawn()
    forms = {
        "single": samples(X, y),
        "double": samples(X.astype(np.float64), y),
        "two targets": samples(X, np.stack([y, y], 1)),
        "confounds": samples(X, y, confounds=y[:, None]),
    }
    found = {name: choose_form(given, Squared(), single=True).name for name, given in forms.items()}
    assert found == {"single": "single", "double": "moments", "two targets": "moments", "confounds": "moments"}
    assert choose_form(forms["single"], Squared()).name == "moments"


@pytest.mark.parametrize(
    "options",
    [{"scaling": "modes"}, {"keep_moments": True}, {"solver": "admm"}, {"alpha": 0.0}, {"fit_intercept": False}],
)
def test_what_asks_more_of_moments_than_a_model_gets_exact_ones(options, monkeypatch):
    X, y = drawn()
    exact = count_exact(monkeypatch)
    TraceNormRegressor(**options).fit(X, y)
    assert exact() == 1


# --- the products -----------------------------------------------------------------------------------------------------


def folded(X, y, single):
    fold = moments.Accumulator.empty(X.shape[1], 1, X)
    fold.single = single
    return fold.add(X, y[:, None], np.linspace(0.5, 1.5, len(y))).freeze()


def test_only_products_of_features_are_in_single_precision(monkeypatch):
    monkeypatch.setattr(moments, "_BLOCK_BYTES", 8 * 5 * 20)  # blocks of twenty samples
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5)) + 1e3 * np.arange(400)[:, None] / 400 + 1e6  # far from zero, and it drifts
    y = rng.standard_normal(400)
    rough, exact = folded(X, y, True), folded(X, y, False)
    for name in ("weight", "x_mean", "y_mean", "cross", "target_sq"):
        np.testing.assert_allclose(getattr(rough, name), getattr(exact, name), rtol=1e-9)
    error = np.abs(rough.gram - exact.gram).max()
    drift = 400 * 1e3**2 / 12  # what the blocks differ by is added in double precision
    assert 0 < error <= 1e-6 * 400 * 50**2 < 1e-6 * drift * 12


def test_tf32_is_allowed_for_one_product_and_then_as_it_was_before(monkeypatch):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    products, rows, seen, tf32 = torch.backends.cuda.matmul, torch.randn(50, 600), [], cuda._tf32
    name = "fp32_precision" if hasattr(products, "fp32_precision") else "allow_tf32"

    @contextmanager
    def watched():
        with tf32():
            seen.append(getattr(products, name))
            yield

    monkeypatch.setattr(cuda, "_tf32", watched)
    before = getattr(products, name)
    torch.testing.assert_close(cuda.gram(rows), rows.T @ rows)
    cuda.gram(rows.double())
    assert seen in (["tf32"], [True])  # in double precision nothing is allowed that was not
    assert getattr(products, name) == before
    with pytest.raises(InterruptedError), tf32():
        raise InterruptedError
    assert getattr(products, name) == before
    with tf32():  # as a user may have allowed it
        cuda.gram(rows)
        assert getattr(products, name) == seen[0]
