"""Weights in subspaces of the modes: the small problem is the whole one there, and few passes reach a proven answer."""

import logging
import sys

import numpy as np
import pytest
import registry

from tracelearn import TensorRegressor, TraceNormClassifier, TraceNormRegressor
from tracelearn.arrays.subspaces import Subspaces
from tracelearn.datasets import make_low_rank_regression
from tracelearn.losses import LOSSES, SquaredError
from tracelearn.moments import Accumulator
from tracelearn.penalties import L1, PENALTIES, Nuclear, as_penalty
from tracelearn.problems.forms import BasisForm, MomentsForm, SamplesForm
from tracelearn.problems.problem import Problems, alpha_max
from tracelearn.problems.sample_loss import SampleLoss
from tracelearn.samples.samples import Block, Samples
from tracelearn.solvers import admm, subspaces

SHAPE = (7, 6, 5)


def drawn(rng, sizes=(3, 2, 2), xp=np):
    pairs = zip(SHAPE, sizes, strict=True)
    return Subspaces(tuple(xp.asarray(np.linalg.qr(rng.standard_normal(pair))[0]) for pair in pairs))


@pytest.fixture
def little_memory(monkeypatch):
    """Make every fit one in passes."""
    monkeypatch.setattr("tracelearn.problems.forms._SMALL_MATRIX", 0)
    monkeypatch.setattr("tracelearn.samples.execution.available_memory", lambda: 1000)


class Counted:
    """Samples in blocks that can be read again, and how often they were."""

    def __init__(self, X, y, size=100):
        self.blocks = [(X[i : i + size], y[i : i + size]) for i in range(0, len(X), size)]
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        return iter(self.blocks)


def low_rank(n=600, noise=1.0, seed=0):
    X, y, _ = make_low_rank_regression(n, SHAPE, rank=1, noise=noise, random_state=seed)
    return X, y


def test_cores_are_multilinear_products_and_lifted_ones_project_back(xp, rng):
    known = drawn(rng, xp=xp)
    U, V, W = (np.asarray(basis) for basis in known.bases)
    T = rng.standard_normal((4, *SHAPE))
    cores = known.project(xp.asarray(T.reshape(4, -1)))
    np.testing.assert_allclose(np.asarray(cores), np.einsum("nijk,ia,jb,kc->nabc", T, U, V, W).reshape(4, -1))
    np.testing.assert_allclose(np.asarray(known.project(known.lift(cores))), np.asarray(cores))


@pytest.mark.parametrize("name", PENALTIES)
def test_a_trace_norm_is_that_of_the_core(name, rng):
    known, core = drawn(rng), rng.standard_normal((2, 12))
    whole = as_penalty(name, SHAPE).value(known.lift(core).reshape(2, *SHAPE))
    np.testing.assert_allclose(as_penalty(name, SHAPE).value(core.reshape(2, 3, 2, 2)), whole)


def test_narrowed_subspaces_are_the_smallest_that_hold_the_tensors(rng):
    known = drawn(rng)
    core = np.multiply.outer(np.multiply.outer(rng.standard_normal(3), rng.standard_normal(2)), rng.standard_normal(2))
    narrow = known.narrowed(core.reshape(1, -1))
    assert narrow.core_shape == (1, 1, 1)
    rows = known.lift(core.reshape(1, -1))
    np.testing.assert_allclose(narrow.lift(narrow.project(rows)), rows)
    assert known.narrowed(0.0 * core.reshape(1, -1)).core_shape == (0, 0, 0)


def test_widened_subspaces_hold_the_old_ones_and_as_much_of_the_tensors_as_there_is_room_for(rng):
    known, rows = drawn(rng), rng.standard_normal((1, 210))
    whole = known.widened(rows, size=210, least=1)
    assert whole.core_shape == SHAPE
    some = known.widened(rows, size=80, least=1)
    assert some.core_shape == (5, 4, 4)
    for old, new in zip(known.bases, some.bases, strict=True):
        np.testing.assert_allclose(new.T @ new, np.eye(new.shape[1]), atol=1e-12)
        np.testing.assert_allclose(new @ (new.T @ old), old)
    assert known.widened(rows, size=1, least=1).core_shape == (4, 3, 3)
    assert known.widened(known.lift(known.project(rows)), size=210, least=1).core_shape == known.core_shape


@pytest.mark.parametrize("form", [MomentsForm(), BasisForm(), SamplesForm(in_passes=True)])
def test_squares_within_subspaces_are_the_squares_there(form, rng):
    X, y = low_rank(80)
    samples = Samples.of(Block(X.reshape(80, -1) + 2.0, y[:, None]), SHAPE)
    options = {"ridge": 0.1, "joint": False, "fit_intercept": True}
    agrees(form.data_fit(samples, SquaredError(), **options), rng)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_within_subspaces_is_the_loss_there(loss, rng):
    X = rng.standard_normal((60, 210)) + 0.5
    K = 1 if LOSSES[loss].is_separable else 3
    Y = registry.targets(loss, rng, rng.standard_normal((60, K)))
    samples = Samples.of(Block(X, Y, rng.uniform(0.5, 2.0, 60)), SHAPE).checked()
    agrees(SampleLoss.of(LOSSES[loss](), samples, ridge=0.1, in_passes=True), rng)


def agrees(fit, rng):
    known = drawn(rng)
    small = fit.within(known)
    core = 0.1 * rng.standard_normal((fit.at_zero.gradient.shape[0], 12))
    here, there = small.evaluate(core), fit.evaluate(known.lift(core))
    np.testing.assert_allclose(here.value, there.value)
    np.testing.assert_allclose(here.gradient, known.project(there.gradient), atol=1e-10)
    np.testing.assert_allclose(here.dual_value(np.array([0.5])), there.dual_value(np.array([0.5])))
    np.testing.assert_allclose(small.intercept(core), fit.intercept(known.lift(core)), atol=1e-8)


def test_few_passes_give_the_answer_of_moments(little_memory, monkeypatch):
    X, y = low_rank()
    source = Counted(X, y)
    model = TraceNormRegressor(5.0, tol=1e-5).fit(source)
    passes = source.passes
    assert model.dual_gap_ <= 1e-5
    assert passes <= 15
    assert model.mode_ranks_.max() < 5
    monkeypatch.undo()
    exact = TraceNormRegressor(5.0, tol=1e-9).fit(X, y)
    assert 0 <= model.objective_ - exact.objective_ <= 1e-5 * np.var(y)
    np.testing.assert_allclose(model.patterns_, exact.patterns_, atol=1e-2 * np.abs(exact.patterns_).max())


def test_classes_are_learned_in_few_passes_too(little_memory, monkeypatch):
    X, y = low_rank()
    source = Counted(X, np.where(y > y.mean(), "high", "low"))
    model = TraceNormClassifier(0.05, loss="log_loss", tol=1e-5).fit(source)
    passes = source.passes
    assert model.dual_gap_ <= 1e-5
    assert passes <= 25
    monkeypatch.undo()
    exact = TraceNormClassifier(0.05, loss="log_loss", tol=1e-9).fit(X, np.where(y > y.mean(), "high", "low"))
    assert 0 <= model.objective_ - exact.objective_ <= 1e-5


def test_confounds_are_regressed_out_of_samples_that_are_read_in_passes(little_memory, monkeypatch, caplog):
    X, y = low_rank()
    C = np.random.default_rng(1).normal(size=(len(X), 2)) + 3.0
    X, y = X + np.tensordot(C, np.random.default_rng(2).normal(size=(2, *SHAPE)), 1), y + 50.0 * C[:, 0]
    with caplog.at_level(logging.INFO, logger="tracelearn"):
        model = TraceNormRegressor(5.0, tol=1e-6, verbose=1).fit(X, y, confounds=C)
    assert "subspaces:" in " ".join(caplog.messages)
    assert model.dual_gap_ <= 1e-6
    monkeypatch.undo()
    A = np.column_stack([np.ones(len(C)), C])
    slopes = np.linalg.lstsq(A, X.reshape(len(X), -1), rcond=None)[0][1:]
    clean = X - np.tensordot(C - C.mean(axis=0), slopes.reshape(2, *SHAPE), 1)
    exact = TraceNormRegressor(5.0, tol=1e-9).fit(clean, y)
    assert 0 <= model.objective_ - exact.objective_ <= 1e-6 * np.var(y)
    found, wanted = model.predict(X, confounds=C), exact.predict(clean)
    np.testing.assert_allclose(found, wanted, atol=1e-2 * wanted.std())


def test_a_cluster_and_other_array_libraries_have_the_same_answer(little_memory):
    da = pytest.importorskip("dask.array", reason="the dask extra is not installed")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    X, y = low_rank()
    expected = TraceNormRegressor(5.0).fit(X, y)
    cluster = TraceNormRegressor(5.0).fit(da.from_array(X, chunks=(200, *SHAPE)), da.from_array(y, chunks=200))
    tensor = TraceNormRegressor(5.0).fit(torch.asarray(X), torch.asarray(y))
    assert expected.coef_.any()
    for model in (cluster, tensor):
        assert model.dual_gap_ <= 1e-6
        np.testing.assert_allclose(np.asarray(model.coef_), expected.coef_, atol=1e-3)


@pytest.mark.parametrize("penalty", [0.5 * Nuclear(0) + 0.1 * L1(), "overlapped"], ids=["with l1", "overlapped"])
def test_verbose_says_how_the_samples_are_read(penalty, little_memory, caplog):
    X, y = low_rank(100)
    with caplog.at_level(logging.INFO, logger="tracelearn"):
        TraceNormRegressor(8.0, penalty=penalty, tol=1e-2, verbose=1).fit(X, y)
    said = " ".join(caplog.messages)
    assert "does not fit" in said
    assert ("subspaces:" in said) == (penalty == "overlapped")
    assert ("apg:" in said) == (penalty != "overlapped")


@pytest.mark.parametrize("limit", ["_LARGEST_CORE", "_PATIENCE"])
def test_weights_without_small_subspaces_are_solved_for_as_a_whole(limit, monkeypatch):
    X, y = low_rank(300)
    monkeypatch.setattr(sys.modules["tracelearn.solvers.subspaces"], limit, 0)
    samples = Samples.of(Block(X.reshape(300, -1), y[:, None]), SHAPE)
    fit = MomentsForm().data_fit(samples, SquaredError(), ridge=0.0, joint=False, fit_intercept=True)
    penalty = as_penalty("overlapped", SHAPE)
    alpha, seen = 0.2 * alpha_max(fit, penalty, SHAPE), []
    problems = Problems(fit, penalty, alpha, SHAPE, fit.at_zero.value)
    found = subspaces(problems, tol=1e-6, on_iteration=lambda so_far: seen.append(so_far.n_iter))
    assert found.gap[0] <= 1e-6
    assert seen == sorted(seen)
    assert abs(found.objective[0] - admm(problems, tol=1e-6).objective[0]) <= 1e-6 * np.var(y)


def test_samples_of_single_precision_are_widened_block_by_block(little_memory, monkeypatch):
    X, y = low_rank()
    narrow, held = X.astype(np.float32), []
    widen = Block.checked

    def watched(block, shape):
        held.append(block.X.shape[0])
        return widen(block, shape)

    monkeypatch.setattr("tracelearn.samples.samples._BLOCK_BYTES", 8 * 210 * 50)
    monkeypatch.setattr(Block, "checked", watched)
    model = TraceNormRegressor(5.0, tol=1e-5).fit(narrow, y)
    assert model.dual_gap_ <= 1e-5
    assert max(held) == 50
    exact = TraceNormRegressor(5.0, tol=1e-5).fit(X, y)
    assert abs(model.objective_ - exact.objective_) <= 2e-5 * np.var(y)


def test_a_search_of_few_samples_makes_no_matrix_of_their_entries(monkeypatch):
    X, y = low_rank(40, noise=0.1)
    sizes, empty = [], Accumulator.empty

    def watched(n_features, *args, **options):
        sizes.append(n_features)
        return empty(n_features, *args, **options)

    monkeypatch.setattr(Accumulator, "empty", watched)
    model = TensorRegressor(alphas=4, cv=3, views=None).fit(X, y)
    assert model.sample_shape_ == SHAPE
    assert max(sizes) <= 40
