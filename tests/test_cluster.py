"""A real cluster of processes: the same answer, also when a worker dies."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tracelearn import TensorRegressor, TraceNormClassifier, TraceNormRegressor

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed", reason="Dask is an extra")
da = pytest.importorskip("dask.array", reason="Dask is an extra")

SHAPE = (5, 4, 3)
N = 400


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((N, *SHAPE))
    y = X[:, 0, 0, 0] + X[:, 1, 1, 1] + 0.3 * rng.standard_normal(N)
    return X, y


def fit_all(X, y, labels):
    return [
        TraceNormRegressor(alpha=0.05, tol=1e-10).fit(X, y),
        TraceNormClassifier(alpha=0.02, tol=1e-10, loss="log_loss").fit(X, labels),
        TensorRegressor(alphas=4, cv=3, views=None).fit(X, y),
    ]


def test_a_cluster_gives_the_answer_of_one_process(client, data):
    X, y = data
    labels = (y > 0).astype(int)
    dX, dy, dlabels = (da.from_array(a, chunks=(100, *a.shape[1:])) for a in (X, y, labels))
    for found, expected in zip(fit_all(dX, dy, dlabels), fit_all(X, y, labels), strict=True):
        assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8 * np.abs(expected.coef_).max())
        assert_allclose(found.predict(dX).compute(), expected.predict(X), rtol=1e-6)


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_a_worker_that_is_killed_costs_time_and_not_the_answer(client, data, loss):
    X, y = data
    model = TraceNormRegressor(alpha=0.05, tol=1e-10, loss=loss)
    expected = model.fit(X, y).coef_
    client.wait_for_workers(2)

    def slow(block):  # inside the test: the workers cannot import this module
        time.sleep(0.2)
        return block

    victim = next(iter(client.run(os.getpid).values()))
    chunks = da.from_array(X, chunks=(50, *SHAPE)).map_blocks(slow, dtype=X.dtype, meta=np.zeros((0, *SHAPE)))
    killer = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
    killer.start()
    found = model.fit(chunks if loss == "squared_error" else chunks.persist(), da.from_array(y, chunks=50)).coef_
    killer.join()
    assert victim not in client.run(os.getpid).values()
    assert_allclose(found, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
