"""Shared fixtures: random numbers, array libraries, tiny problems."""

import importlib
import importlib.util
import signal
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import settings

# Reproducible, and without deadlines: the machine may be busy, and a slow run is no failure.
settings.register_profile("tracelearn", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("tracelearn")


# Cases that repeat a quick test with another library, another estimator or a cluster: they take most of the time.
REPEATED = (
    "array_api_strict on device1",
    "[torch",
    "-torch",
    "array_namespace=",
    "[array_api_strict-classifier cv",
    "[array_api_strict-regressor cv",
    "[array_api_strict-classifier search",
    "[array_api_strict-float32-convolutions",
    "test_execution.py::test_dask",
    "test_execution.py::test_the_scores",
    "test_execution.py::test_chunks",
    "test_sparse.py::test_sparse_samples_give",
    "test_sparse.py::test_cross_validation",
    "test_arrays.py::test_scikit",
    "test_plotting.py",
)


def pytest_collection_modifyitems(items):
    """Mark as slow what starts a browser or repeats a quick test elsewhere; all else says so itself."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()) or any(part in item.nodeid for part in REPEATED):
            item.add_marker(pytest.mark.slow)


SHAPES = [(5,), (3, 4), (4, 3, 2), (3, 3, 3), (7, 2, 2), (2, 3, 2, 2)]  # (7, 2, 2): one mode larger than all others


@pytest.fixture
def rng():
    return np.random.default_rng(20240521)


class WaitingError(BaseException):
    """Something waits for ever; no handler of exceptions takes it for an error of a file."""


@pytest.fixture
def within_seconds():
    """Make what would wait for ever fail instead, on systems that have alarms."""

    def ring(*_):
        raise WaitingError

    @contextmanager
    def limit(seconds):
        before = signal.signal(signal.SIGALRM, ring)
        signal.alarm(seconds)
        try:
            yield
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    return limit


@pytest.fixture(params=["numpy", "array_api_strict", "torch"])
def xp(request):
    """The array libraries in turn, as namespaces of the array API standard."""
    name = request.param
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: its arrays cannot be tested here")
    if name == "torch":
        importlib.import_module("torch").set_num_threads(1)  # tiny arrays: threads only wait for each other
    return importlib.import_module({"torch": "array_api_compat.torch"}.get(name, name))


@pytest.fixture
def tiny():
    """Return a maker of small regression problems of low multilinear rank: ``tiny(shape, n=30, seed=0) -> X, y``."""

    def make(shape, n=30, seed=0, noise=0.3, offset=1.0, targets=None):
        rng = np.random.default_rng([seed, *shape])
        X = rng.standard_normal((n, *shape)) + offset
        count = 1 if targets is None else targets
        columns = []
        for _ in range(count):
            W = np.ones(())
            for size in shape:
                W = np.multiply.outer(W, rng.standard_normal(size))
            signal = X.reshape(n, -1) @ W.ravel()
            columns.append(signal + noise * signal.std() * rng.standard_normal(n) - 2.0)
        y = np.stack(columns, axis=1)
        return X, y if targets is not None else y[:, 0]

    return make
