"""Iterables of blocks as samples: read in the thread that asks, one block at a time, each worked on before the next."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from tracelearn import TraceNormClassifier, TraceNormRegressor
from tracelearn.errors import InputError
from tracelearn.samples.iterables import stream

X = np.random.default_rng(0).standard_normal((60, 3, 2))
y = X[:, 0, 0] + X[:, 1, 1]
BLOCKS = [(X[:25], y[:25]), (X[25:], y[25:])]

WAITING = """
import signal, sys, threading
import numpy as np
from tracelearn import TraceNormRegressor

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs in the background inherits that it is ignored

def blocks():
    yield np.random.default_rng(0).standard_normal((20, 3, 2)), np.arange(20.0)
    print("waiting", flush=True)
    threading.Event().wait(60)

try:
    TraceNormRegressor().fit(blocks())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_the_first_ctrl_c_ends_a_fit_that_waits_for_data():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True, env=environment) as fit:
        assert fit.stdout.readline() == "waiting\n"
        fit.send_signal(signal.SIGINT)
        try:
            assert fit.communicate(timeout=20)[0] == "interrupted\n"
        finally:
            fit.kill()
    assert fit.returncode == 0


@pytest.mark.parametrize("model", [TraceNormRegressor(), TraceNormClassifier()])
def test_a_bad_block_is_reported_before_the_next_one_is_waited_for(model):
    def blocks():
        yield np.full((20, 3, 2), np.nan), np.arange(20.0) % 2
        pytest.fail("the second block was asked for")

    with pytest.raises(ValueError, match="NaN"):
        model.fit(blocks())


def test_an_iterator_may_belong_to_its_thread_as_the_cursor_of_a_database_does():
    with sqlite3.connect(":memory:") as database:
        database.execute("create table samples (entries blob, target real)")
        database.executemany("insert into samples values (?, ?)", [(x.tobytes(), t) for x, t in zip(X, y, strict=True)])

        def blocks():
            rows = database.execute("select entries, target from samples order by rowid")
            while part := rows.fetchmany(25):
                entries, targets = zip(*part, strict=True)
                yield np.frombuffer(b"".join(entries)).reshape(-1, 3, 2), np.array(targets)

        found = TraceNormRegressor(alpha=0.01).fit(blocks())
    assert_allclose(found.coef_, TraceNormRegressor(alpha=0.01).fit(X, y).coef_, atol=1e-6)


@pytest.mark.parametrize("repeatable", [True, False])
def test_blocks_are_read_in_the_thread_that_asks_and_none_before_it_is_asked_for(repeatable):
    seen = []

    class Watched:
        def __iter__(self):
            for block in BLOCKS:
                seen.append(threading.get_ident())
                yield block

    blocks = stream(Watched() if repeatable else iter(Watched())).batches()
    for count, _ in enumerate(blocks):
        assert seen == [threading.get_ident()] * (count + 1)
    assert len(seen) == 2


def test_reading_begins_at_any_sample():
    for start in (0, 10, 25, 59, 60):
        parts = [part for part, _, _ in stream(BLOCKS).batches(start)]
        np.testing.assert_array_equal(np.concatenate([X[:0], *parts]), X[start:])
    with pytest.raises(InputError, match=r"^Expected start"):
        stream(BLOCKS).batches(-1)


def test_sparse_blocks_are_filled_in():
    rows = sparse.csr_array(np.eye(5, 4))
    ((found, _, _),) = stream([(rows, np.arange(5.0))]).batches()
    np.testing.assert_array_equal(found, np.eye(5, 4))


def test_a_block_of_counts_may_be_all_zeros_but_not_all_blocks(rng):
    X = rng.standard_normal((200, 4, 3))
    y = rng.poisson(np.exp(0.5 * X[:, 0, 0])).astype(float)
    y[50:100] = 0.0
    parts = [slice(start, start + 50) for start in range(0, 200, 50)]
    expected = TraceNormRegressor(loss="poisson", alpha=0.05).fit(X, y)
    found = TraceNormRegressor(loss="poisson", alpha=0.05).fit([(X[part], y[part]) for part in parts])
    assert_allclose(found.coef_, expected.coef_, atol=1e-10)
    for wrong, message in ((0.0 * y, "only zeros"), (np.where(y > 0, y, -1.0), "negative")):
        with pytest.raises(ValueError, match=message):
            TraceNormRegressor(loss="poisson", alpha=0.05).fit([(X[part], wrong[part]) for part in parts])
