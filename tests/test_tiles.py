"""Moments in a file, tile by tile: the same numbers as in memory, without the matrix in memory."""

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from tracelearn import Moments, TraceNormRegressor
from tracelearn.estimators import base
from tracelearn.losses import Squared
from tracelearn.problems import batch, tiles
from tracelearn.problems.batch import Form, choose_form, datafit
from tracelearn.problems.datafits import Squares
from tracelearn.samples.execution import Dask
from tracelearn.samples.samples import Block, Samples


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "_PANEL", 8 * 60 * 16)


def _samples(rng, n=700, shape=(5, 4, 3), weighted=True):
    X = 3.0 + rng.normal(size=(n, int(np.prod(shape)))) @ rng.normal(size=(int(np.prod(shape)),) * 2)
    Y = rng.normal(size=(n, 2)) + 5.0
    weight = rng.integers(0, 3, n).astype(float) if weighted else np.ones(n)
    cuts = [slice(first, first + 90) for first in range(0, n, 90)]
    blocks = [Block(X[c], Y[c], weight[c], c.start) for c in cuts]
    return Samples(blocks, shape, 2, float(weight.sum()), n), Moments.of(X, Y, weight)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("most", [1, 1 << 30])  # bytes that are gathered before the file is updated
def test_problems_from_a_file_are_those_from_memory(small_tiles, monkeypatch, fit_intercept, most):
    monkeypatch.setattr(tiles, "_LEAST_BLOCK", most)
    monkeypatch.setattr(tiles, "_LARGEST_BLOCK", most)
    rng = np.random.default_rng(0)
    samples, moments = _samples(rng)
    options = {"ridge": 0.1, "joint": False}
    found = datafit(samples, Squared(), Form("tiles", ""), fit_intercept=fit_intercept, **options)
    exact = Squares.of(moments if fit_intercept else moments.uncentred(), **options)
    for name in ("cross", "target", "ridge", "x_mean", "y_mean", "variances"):
        np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-10, atol=1e-10, err_msg=name)
    rows, one = rng.normal(size=(2, 60)), found.operator
    assert len(tiles._parts(60)) > 3
    for shift in (0.5, 0.5, 2.0):
        level = np.full(2, shift)
        np.testing.assert_allclose(one.solver(level)(rows), exact.operator.solver(level)(rows), rtol=1e-8)
        np.testing.assert_allclose(one.apply(rows), exact.operator.apply(rows), rtol=1e-10)
    assert one.mean_eigenvalue == pytest.approx(exact.operator.mean_eigenvalue)
    assert one.largest() == pytest.approx(exact.operator.largest(), rel=1e-6)


class Watched(Dask):
    """Works as Dask does, with little memory, and notes how many numbers came of each pass."""

    sizes: ClassVar[list[int]] = []

    def memory(self):
        return 8 * tiles._SHARE * 700  # for 700 of 3,600 numbers in each pass

    def total(self, function, *columns):
        found = super().total(function, *columns)
        self.sizes.append(sum(np.size(part) for part in found))
        return found


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_cluster_sums_up_the_same_problems_in_portions(small_tiles, fit_intercept):
    dask = pytest.importorskip("dask", reason="Dask is an extra")
    samples, moments = _samples(np.random.default_rng(0))
    X = next(iter(samples.blocks)).X
    X[:, 7] = 1e3 / 3.0  # a feature that never varies has no variance, whatever its mean is
    blocks = [
        replace(block, X=np.concatenate([block.X[:, :7], X[:1, 7:8] + 0 * block.X[:, 7:8], block.X[:, 8:]], 1))
        for block in samples.blocks
    ]
    moments = Moments.of(*(np.concatenate([getattr(block, name) for block in blocks]) for name in ("X", "Y", "weight")))
    Watched.sizes.clear()
    samples = replace(samples, blocks=[dask.delayed(block) for block in blocks], execution=Watched())
    options = {"ridge": 0.1, "joint": False}
    found = datafit(samples, Squared(), Form("tiles", ""), fit_intercept=fit_intercept, **options)
    exact = Squares.of(moments if fit_intercept else moments.uncentred(), **options)
    for name in ("cross", "target", "ridge", "x_mean", "y_mean", "variances"):
        np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-10, atol=1e-10, err_msg=name)
    rows, level = np.random.default_rng(1).normal(size=(2, 60)), np.full(2, 0.5)
    np.testing.assert_allclose(found.operator.solver(level)(rows), exact.operator.solver(level)(rows), rtol=1e-8)
    assert fit_intercept is False or found.variances[7] == 0.0
    assert len(Watched.sizes) == tiles.n_passes(samples) > 2
    assert max(Watched.sizes) <= 700 + 2 * 60 + 2  # no worker saw the whole matrix


def test_a_matrix_that_is_singular_is_factored_all_the_same(small_tiles):
    a = np.linspace(1.0, 2.0, 60)
    gram = np.outer(a, a)
    one = tiles.Tiles(gram.copy(), np.diagonal(gram).copy())
    found = one.solver(np.zeros(1))(2.0 * (a @ a) * a[None, :])
    np.testing.assert_allclose(found @ gram, 2.0 * (a @ a) * a[None, :], rtol=1e-3)


def test_the_square_matrix_is_never_in_memory(monkeypatch):
    p = 1000
    monkeypatch.setattr(tiles, "_PANEL", 8 * p * 32)
    monkeypatch.setattr(tiles, "_LEAST_BLOCK", 100 * 8 * p)
    monkeypatch.setattr(tiles, "_LARGEST_BLOCK", 100 * 8 * p)
    rng = np.random.default_rng(0)
    blocks = [Block(rng.normal(size=(50, p)), rng.normal(size=(50, 1)), None, 50 * i) for i in range(6)]
    samples = Samples(blocks, (10, 10, 10), 1, 300.0, 300)
    tracemalloc.start()
    fit = datafit(samples, Squared(), Form("tiles", ""), ridge=0.1, joint=False, fit_intercept=True)
    fit.operator.solver(np.ones(1))(fit.cross)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * 8 * p * p


def test_a_fit_from_a_file_is_certified_and_that_from_memory(small_tiles, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5, 4, 3))
    y = X[:, 0, 0, 0] + 0.1 * rng.normal(size=600)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    exact = TraceNormRegressor(0.01, tol=1e-9).fit(X, y)
    monkeypatch.setattr(base, "choose_form", lambda samples, loss, **asked: Form("tiles", "asked for"))
    found = TraceNormRegressor(0.01, tol=1e-9).fit(tmp_path / "X.npy", tmp_path / "y.npy")
    assert found.dual_gap_ <= 1e-9
    np.testing.assert_allclose(found.coef_, exact.coef_, atol=1e-5)
    np.testing.assert_allclose(found.patterns_, exact.patterns_, atol=1e-5)
    assert found.intercept_ == pytest.approx(exact.intercept_, abs=1e-6)


@pytest.mark.parametrize(
    ("n", "disk", "room", "name"),
    [
        (480, True, True, "tiles"),
        (479, True, True, "matrix-free"),
        (480, False, True, "matrix-free"),
        (480, True, False, "matrix-free"),
    ],
)
def test_a_file_is_chosen_for_many_samples_where_the_disk_has_room(monkeypatch, n, disk, room, name):
    samples, _ = _samples(np.random.default_rng(0), n)
    monkeypatch.setattr(batch, "has_room", lambda p: room)
    assert choose_form(samples, Squared(), 8 * 60 * 60, disk=disk).name == name


@pytest.mark.parametrize(("numbers", "name"), [(1500, "tiles"), (400, "matrix-free")])
def test_a_cluster_gathers_moments_in_a_file_where_its_workers_need_few_passes(monkeypatch, numbers, name):
    pytest.importorskip("dask", reason="Dask is an extra")
    monkeypatch.setattr(batch, "_SMALL_MATRIX", 0)
    monkeypatch.setattr(batch, "_MOST_PASSES", 3)
    monkeypatch.setattr(Dask, "memory", lambda self: 8 * tiles._SHARE * numbers)
    samples, _ = _samples(np.random.default_rng(0))
    assert choose_form(replace(samples, execution=Dask()), Squared(), disk=True).name == name


def test_the_memory_of_a_task_is_that_of_the_smallest_worker(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="Dask is an extra")
    workers = {
        "a": {"memory_limit": 1200, "nthreads": 2},
        "b": {"memory_limit": 900, "nthreads": 1},
        "c": {"memory_limit": None, "nthreads": 1},
    }
    monkeypatch.setattr("tracelearn.samples.execution.available_memory", lambda: 1500)
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    assert Dask().memory() == 100  # threads of this process
    client = SimpleNamespace(scheduler_info=lambda: {"workers": workers})
    monkeypatch.setattr(distributed, "get_client", lambda: client)
    assert Dask().memory() == 200
