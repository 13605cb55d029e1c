"""Small problems are learned on one thread, and afterwards all is as it was."""

import threading

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.preprocessing import FunctionTransformer
from threadpoolctl import threadpool_info, threadpool_limits

from tracelearn import Convolutions, SecondOrder, TensorClassifier, TraceNormRegressor
from tracelearn.arrays.linalg import few_threads


def counts():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if max(counts(), default=1) < 2:
            pytest.skip("BLAS has one thread here")
        yield


def test_small_arrays_get_one_thread_and_others_keep_theirs():
    before = counts()
    with few_threads(np.zeros((10, 3))):
        assert counts() == {1}
    assert counts() == before
    for other in (np.broadcast_to(0.0, (10_000, 1_000)), "samples.zarr", iter([])):
        with few_threads(other):
            assert counts() == before


def test_a_fit_has_one_thread_while_it_runs_and_puts_back_what_was():
    seen = []

    def watched(problems, **options):
        from tracelearn.solvers import admm

        seen.append(counts())
        return admm(problems, **options)

    before = counts()
    X = np.random.default_rng(0).normal(size=(30, 3, 2))
    TraceNormRegressor(solver=watched).fit(X, X[:, 0, 0])
    assert seen == [{1}]
    assert counts() == before
    with pytest.raises(ValueError, match="NaN"):
        TraceNormRegressor().fit(np.full((30, 3, 2), np.nan), X[:, 0, 0])
    assert counts() == before


def test_a_fit_in_another_thread_limits_nothing():
    before, seen = counts(), []

    def fit():
        with few_threads(np.zeros((10, 3))):
            seen.append(counts())

    other = threading.Thread(target=fit)
    other.start()
    other.join()
    assert seen == [before]
    assert counts() == before


@pytest.mark.parametrize("n_jobs", [None, 1])
def test_a_search_of_large_samples_has_one_thread_inside_and_puts_back_what_was(n_jobs):
    seen, before = [], counts()

    def watched(rows):
        seen.append(counts())
        return rows[:, :10]

    X = np.random.default_rng(0).normal(size=(40, 20, 800))
    views = [FunctionTransformer(watched), FunctionTransformer(lambda rows: rows[:, ::2000])]
    TensorClassifier(views, alphas=2, n_jobs=n_jobs).fit(X, X[:, 0, 0] > 0)
    assert seen
    assert all(count == {1} for count in seen)
    assert counts() == before


def test_many_threads_may_predict_at_the_same_time():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2, 40)), np.arange(60) % 2
    X[:, 0] *= 1.0 + 2.0 * y[:, None]
    before = counts()
    model = TensorClassifier([Convolutions(), SecondOrder()], alphas=2).fit(X, y)
    expected = model.predict_proba(X)
    answers = Parallel(n_jobs=4, prefer="threads")(delayed(model.predict_proba)(X) for _ in range(12))
    for answer in answers:
        np.testing.assert_array_equal(answer, expected)
    assert counts() == before


def test_pytorch_has_one_thread_too():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with few_threads(torch.zeros((10, 3))):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["permutation_test", "compare"])
def test_inference_from_small_samples_has_one_thread_while_it_runs(name):
    from tracelearn import inference

    seen, before = [], counts()

    def watched(model, X, y):
        seen.append(counts())
        return float(np.mean(model.predict(X) * y))

    X = np.random.default_rng(0).normal(size=(30, 3, 2))
    few = {"n_permutations": 3} if name == "permutation_test" else {"repeats": 1}
    getattr(inference, name)(TraceNormRegressor(alpha=0.1), X, X[:, 0, 0], scoring=watched, **few)
    assert seen
    assert all(found == {1} for found in seen)
    assert counts() == before
