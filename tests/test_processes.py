"""Several fits at once, in threads and in processes of every kind, give the bits of one fit after the other."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from joblib import Parallel, delayed
from workers import fitted, searched

from tracelearn import TraceNormRegressor

pytestmark = pytest.mark.slow

SEEDS = range(8)


@pytest.fixture(scope="module")
def expected():
    return [fitted(seed) for seed in SEEDS]


def test_fits_in_several_threads_give_the_bits_of_one_after_the_other(expected):
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fitted, [*SEEDS] * 3)) == expected * 3


def test_a_search_in_several_threads_gives_the_bits_of_one():
    for seed in (0, 1):
        assert searched(seed, n_jobs=3) == searched(seed)


def test_one_model_predicts_in_several_threads(rng):
    X = rng.standard_normal((300, 4, 3))
    model = TraceNormRegressor(alpha=0.1).fit(X, X[:, 0, 0])
    alone = model.predict(X)
    with ThreadPoolExecutor(4) as pool:
        for predictions in pool.map(lambda _: model.predict(X), range(20)):
            np.testing.assert_array_equal(predictions, alone)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
# A process that has threads may not be forked safely, says Python; the children here only compute.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_processes_of_every_kind_give_the_bits_of_this_one(method, expected):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"{os.name} has no {method}")
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(fitted, SEEDS) == expected


def test_joblibs_processes_give_the_bits_of_this_one(expected):
    assert Parallel(n_jobs=2, backend="loky")(delayed(fitted)(seed) for seed in SEEDS) == expected


def test_joblib_inside_a_dask_worker_gives_the_bits_of_this_process(expected):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        weights = client.gather([client.submit(searched, seed, n_jobs=2, pure=False) for seed in (0, 1)])
        assert weights == [searched(0), searched(1)]
        assert client.gather(client.map(fitted, SEEDS)) == expected
