"""Streams: what is learned, what is measured, and what survives a crash."""

import errno
import logging
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from tracelearn import (
    StreamReport,
    TraceNormClassifier,
    TraceNormRegressor,
    load,
    save,
    stream,
)
from tracelearn.io import checkpoints, streams
from tracelearn.io import models as files

SHAPE = (4, 3, 2)
N = 1200


def numbers(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, *SHAPE)) + 1.0
    return X, X[:, 0, 0, 0] - X[:, 1, 1, 0] + 0.3 * rng.standard_normal(n)


def batches(X, y, size=50, weight=None):
    parts = [slice(start, start + size) for start in range(0, len(X), size)]
    return [(X[part], y[part]) if weight is None else (X[part], y[part], weight[part]) for part in parts]


class FakeSource:
    """What tracelearn.samples offers: batches from a sample on."""

    repeatable = True

    def __init__(self, X, y, size):
        self.X, self.y, self.size, self.starts = X, y, size, []

    def batches(self, start=0):
        self.starts.append(start)
        for begin in range(start, len(self.X), self.size):
            part = slice(begin, begin + self.size)
            yield self.X[part], self.y[part], None


def stopping(items, after, error):
    """Yield so many batches, then fail."""
    yield from items[:after]
    raise error


def assert_equal_models(left, right):
    np.testing.assert_array_equal(left.coef_, right.coef_)
    assert left.moments_.weight == right.moments_.weight
    np.testing.assert_array_equal(left.moments_.gram, right.moments_.gram)


def names(folder):
    """List what is in a folder of checkpoints, but for the lock, which stays."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def contents(folder):
    return {path: path.read_bytes() for path in folder.glob("checkpoint-*")}


# --- learning and measuring ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "generator", "function", "source"])
def test_at_the_end_the_model_is_that_of_all_samples(kind):
    X, y = numbers()
    made = {
        "list": batches(X, y),
        "generator": iter(batches(X, y)),
        "function": lambda start: batches(X[start:], y[start:]),
        "source": FakeSource(X, y, 50),
    }[kind]
    model = TraceNormRegressor(alpha=0.03, tol=1e-11, max_iter=10_000)
    report = stream(made, model, refresh_samples=300)
    whole = TraceNormRegressor(alpha=0.03, tol=1e-11, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-7)
    assert isinstance(report, StreamReport)
    assert (report.n_samples, report.n_refreshes, report.resumed_from, report.interrupted) == (N, 4, None, False)
    assert report.seconds > 0


def test_a_stream_is_partial_fit_with_the_same_forgetting():
    X, y = numbers()
    online, streamed = (TraceNormRegressor(alpha=0.03, forgetting=0.9) for _ in range(2))
    for part in batches(X, y):
        online.partial_fit(*part)
    stream(batches(X, y), streamed, refresh_samples=1)
    assert_equal_models(online, streamed)


def test_the_curve_is_the_error_on_samples_before_they_are_learned():
    X, y = numbers(600)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 600)
    model, by_hand = TraceNormRegressor(alpha=0.03), TraceNormRegressor(alpha=0.03)
    report = stream(batches(X, y, 100, weight), model, refresh_samples=200)
    losses = np.zeros(600)
    for start in range(0, 600, 200):  # weights change only at a refresh
        part = slice(start, start + 200)
        if start:
            losses[part] = (by_hand.predict(X[part]) - y[part]) ** 2
        by_hand.accumulate(X[start : start + 100], y[start : start + 100], weight[start : start + 100])
        by_hand.accumulate(
            X[start + 100 : start + 200], y[start + 100 : start + 200], weight[start + 100 : start + 200]
        )
        by_hand.refresh()
    assert [point.n_seen for point in report.curve] == [400, 600]
    lately = [np.average(losses[a:b], weights=weight[a:b]) for a, b in ((200, 400), (400, 600))]
    ever = [np.average(losses[200:b], weights=weight[200:b]) for b in (400, 600)]
    np.testing.assert_allclose([point.error for point in report.curve], lately)
    np.testing.assert_allclose([point.cumulative_error for point in report.curve], ever)


@pytest.mark.parametrize("classes", [None, ["ash", "birch", "cedar"]])
def test_classes_are_named_or_taken_as_they_come(classes):
    X, y = numbers()
    labels = np.array(["cedar", "ash", "birch"])[np.digitize(y, [-0.7, 0.7])]
    order = np.argsort(np.digitize(y, [-0.7, 0.7]) * (np.arange(N) < 900), kind="stable")  # one class, two, three
    X, labels = X[order], labels[order]
    options = {"alpha": 0.03, "tol": 1e-11, "max_iter": 10_000}
    model = TraceNormClassifier(**options)
    report = stream(batches(X, labels), model, refresh_samples=100, classes=classes)
    whole = TraceNormClassifier(**options).fit(X, labels)
    np.testing.assert_array_equal(model.classes_, whole.classes_)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-7)
    assert all(0.0 <= point.error <= 1.0 for point in report.curve)
    assert report.curve[-1].n_seen == N


def test_a_class_that_comes_late_does_not_turn_the_names_of_the_others():
    X, y = numbers(600)
    labels = np.where(y > 0, "cedar", "birch")
    labels[300:310] = "ash"  # before the others in the alphabet
    told = []
    stream(batches(X, labels), TraceNormClassifier(alpha=0.03), refresh_samples=250, on_refresh=told.append)
    assert [report.n_samples for report in told] == [250, 350, 600]
    assert told[1].curve[-1].error > 10 / 100  # nobody could have known
    assert told[2].curve[-1].error < 0.25


def test_max_samples_is_exact_and_cuts_the_last_batch():
    X, y = numbers()
    model = TraceNormRegressor(alpha=0.03)
    report = stream(iter(batches(X, y)), model, max_samples=120)
    assert report.n_samples == 120
    assert model.moments_.weight == 120


def test_refresh_by_the_clock(monkeypatch):
    X, y = numbers(500)
    clock = iter(range(10_000))
    monkeypatch.setattr(streams.time, "monotonic", lambda: float(next(clock)))
    told = []
    stream(batches(X, y), TraceNormRegressor(alpha=0.03), refresh_seconds=4.0, on_refresh=told.append)
    assert 1 < len(told) < 10
    assert [report.n_refreshes for report in told] == list(range(1, len(told) + 1))


def test_every_refresh_is_told():
    X, y = numbers(500)
    told = []
    stream(batches(X, y), TraceNormRegressor(alpha=0.03), refresh_samples=100, on_refresh=told.append)
    assert [report.n_samples for report in told] == [100, 200, 300, 400, 500]


def test_errors_of_batches_make_points_of_a_curve():
    start = checkpoints.Learned("model")
    tested = start.with_batch("later", 10, 2.0, 10.0).refreshed().with_batch("last", 5, 4.0, 5.0)
    assert (start.model, start.n_samples, start.curve) == ("model", 0, ())
    assert tested.curve == (checkpoints.Point(10, 0.2, 0.2),)
    assert (tested.model, tested.n_samples, tested.n_since_refresh, tested.n_refreshes) == ("last", 15, 5, 1)
    assert tested.refreshed().curve[-1] == checkpoints.Point(15, 0.8, 0.4)


def test_the_model_can_be_used_at_every_refresh():
    X, y = numbers(500)
    model, learned = TraceNormRegressor(alpha=0.03), []
    stream(
        batches(X, y),
        model,
        refresh_samples=100,
        on_refresh=lambda report: learned.append((report.n_samples, model.moments_.weight, model.coef_)),
    )
    assert [n for n, _, _ in learned] == [weight for _, weight, _ in learned] == [100, 200, 300, 400, 500]
    assert not np.array_equal(learned[0][2], learned[1][2])


@pytest.mark.parametrize(
    ("source", "model", "options", "message"),
    [
        ([], TraceNormRegressor(), {}, "at least one sample"),
        ([(np.ones((3, 2)), np.arange(3.0))], TraceNormRegressor(loss="huber"), {}, "loss='squared_error'"),
        ([np.ones((3, 2))], TraceNormRegressor(), {}, r"batches \(X, y\)"),
        ([(np.ones((3, 2)), np.arange(3.0))], object(), {}, "TraceNormRegressor or TraceNormClassifier"),
        ([(np.ones((3, 2)), np.ones(3))], TraceNormClassifier(), {}, "at least two classes"),
        ([], TraceNormRegressor(), {"refresh_samples": 0}, "refresh_samples of at least 1"),
        ([], TraceNormRegressor(), {"max_samples": 0}, "max_samples of at least 1"),
        ([], TraceNormRegressor(), {"checkpoint_seconds": -1}, "checkpoint_seconds of at least 0"),
        ([], TraceNormRegressor(), {"resume": True}, "folder of the checkpoints"),
    ],
)
def test_mistakes_are_sentences(source, model, options, message):
    with pytest.raises(ValueError, match=f"^Expected .*{message}"):
        stream(source, model, **options)


# --- stopping and going on ---------------------------------------------------------------------------------------------


def test_ctrl_c_ends_in_a_model_and_a_checkpoint_from_which_the_rest_is_as_without_it(tmp_path):
    X, y = numbers()
    items = batches(X, y)
    untouched = TraceNormRegressor(alpha=0.03, forgetting=0.95)
    wanted = stream(items, untouched, refresh_samples=200)
    model = TraceNormRegressor(alpha=0.03, forgetting=0.95)
    options = {"refresh_samples": 200, "checkpoint": tmp_path}
    report = stream(stopping(items, 7, KeyboardInterrupt()), model, **options)
    assert report.interrupted
    assert report.n_samples == 350
    assert model.predict(X).shape == (N,)
    again = TraceNormRegressor(alpha=0.03, forgetting=0.95)
    report = stream(items, again, resume=True, **options)
    assert (report.resumed_from, report.n_samples, report.interrupted) == (350, N, False)
    assert report.curve == wanted.curve
    assert report.n_refreshes == wanted.n_refreshes
    assert_equal_models(again, untouched)


@pytest.mark.parametrize("where", ["refresh", "accumulate"])
def test_ctrl_c_in_the_middle_of_something_counts_no_sample_twice(tmp_path, monkeypatch, where):
    X, y = numbers()
    items = batches(X, y)
    untouched, model = TraceNormRegressor(alpha=0.03), TraceNormRegressor(alpha=0.03)
    stream(items, untouched, refresh_samples=200)
    calls = []

    def interrupting(self, *args, **options):
        original(self, *args, **options)  # done, but the caller will not know
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        original = getattr(TraceNormRegressor, where)
        patch.setattr(TraceNormRegressor, where, interrupting)
        stopped = stream(items, model, refresh_samples=200, checkpoint=tmp_path)
    assert stopped.interrupted
    assert stopped.n_samples == model.moments_.weight
    again = TraceNormRegressor(alpha=0.03)
    report = stream(items, again, refresh_samples=200, checkpoint=tmp_path, resume=True)
    assert report.n_samples == N == again.moments_.weight
    assert_equal_models(again, untouched)


def test_a_bad_batch_is_raised_and_what_came_before_is_kept(tmp_path):
    X, y = numbers()
    items = batches(X, y)
    bad = [*items[:5], (items[5][0] * np.nan, items[5][1]), *items[6:]]
    model = TraceNormRegressor(alpha=0.03)
    with pytest.raises(ValueError, match="NaN"):
        stream(bad, model, refresh_samples=100, checkpoint=tmp_path)
    assert model.moments_.weight == 250
    untouched, again = TraceNormRegressor(alpha=0.03), TraceNormRegressor(alpha=0.03)
    stream(items, untouched, refresh_samples=100)
    report = stream(items, again, refresh_samples=100, checkpoint=tmp_path, resume=True)
    assert report.resumed_from == 250
    assert_equal_models(again, untouched)


@pytest.mark.parametrize("kind", ["list", "function", "source"])
@pytest.mark.slow
def test_going_on_in_the_middle_of_a_batch_loses_nothing(tmp_path, kind):
    X, y = numbers()
    source = FakeSource(X, y, 50)
    made = {"list": batches(X, y), "function": lambda start: batches(X[start:], y[start:]), "source": source}[kind]
    options = {"alpha": 0.03, "tol": 1e-11, "max_iter": 10_000}
    for stop in (170, 171, 400, None):
        model = TraceNormRegressor(**options)
        report = stream(made, model, refresh_samples=100, checkpoint=tmp_path, resume=True, max_samples=stop)
        assert report.n_samples == (stop or N)
    if kind == "source":
        assert source.starts == [0, 170, 171, 400]
    assert model.moments_.weight == N
    np.testing.assert_allclose(model.coef_, TraceNormRegressor(**options).fit(X, y).coef_, atol=1e-7)


def test_going_on_at_the_end_changes_nothing(tmp_path):
    X, y = numbers()
    first, second = TraceNormRegressor(alpha=0.03), TraceNormRegressor(alpha=0.03)
    options = {"refresh_samples": 500, "checkpoint": tmp_path}
    one = stream(batches(X, y), first, **options)
    before = contents(tmp_path)
    two = stream(batches(X, y), second, resume=True, **options)
    assert_equal_models(first, second)
    assert one.curve == two.curve
    assert before == contents(tmp_path)


def test_a_source_shorter_than_what_was_learned_is_refused(tmp_path):
    X, y = numbers()
    stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"^Expected a source of at least the 1200 samples .* got 100"):
        stream(batches(X[:100], y[:100]), TraceNormRegressor(), checkpoint=tmp_path, resume=True)


# --- checkpoints ---------------------------------------------------------------------------------------------------------


def test_the_last_two_checkpoints_are_kept_and_nothing_else(tmp_path):
    X, y = numbers()
    folder = tmp_path / "new" / "folder"
    stream(batches(X, y), TraceNormRegressor(), refresh_samples=100, checkpoint=folder, checkpoint_seconds=0)
    assert names(folder) == [f"checkpoint-{n:015d}.tracelearn" for n in (1100, 1200)]
    with pytest.raises(ValueError, match="resume=True"):
        load(folder / names(folder)[0])


def test_checkpoints_are_written_as_often_as_asked(tmp_path, monkeypatch):
    X, y = numbers()
    written = []
    monkeypatch.setattr(checkpoints, "write_atomically", lambda path, data: written.append(path.name))
    stream(batches(X, y), TraceNormRegressor(), refresh_samples=100, checkpoint=tmp_path, checkpoint_seconds=3600)
    assert written == ["checkpoint-000000000001200.tracelearn"]  # the last one


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "cut off":
        data = data[: len(data) // 2]
    elif how == "changed":
        data[len(data) // 2] ^= 1
    else:
        data = bytearray()
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["cut off", "changed", "empty"])
def test_of_a_damaged_checkpoint_the_one_before_is_used(tmp_path, how):
    X, y = numbers()
    items = batches(X, y)
    options = {"refresh_samples": 100, "checkpoint": tmp_path, "checkpoint_seconds": 0}
    untouched, again = TraceNormRegressor(alpha=0.03), TraceNormRegressor(alpha=0.03)
    stream(items, untouched, refresh_samples=100)
    stream(items, TraceNormRegressor(alpha=0.03), max_samples=600, **options)
    damage(tmp_path / "checkpoint-000000000000600.tracelearn", how)
    with pytest.warns(UserWarning, match="damaged checkpoint"):
        report = stream(items, again, resume=True, **options)
    assert report.resumed_from == 500
    assert_equal_models(again, untouched)
    assert names(tmp_path) == [f"checkpoint-{n:015d}.tracelearn" for n in (1100, 1200)]


def test_when_all_are_damaged_nothing_is_started(tmp_path):
    X, y = numbers()
    options = {"refresh_samples": 100, "checkpoint": tmp_path, "checkpoint_seconds": 0}
    stream(batches(X, y), TraceNormRegressor(), **options)
    for path in tmp_path.glob("checkpoint-*"):
        damage(path, "cut off")
    with (
        pytest.warns(UserWarning, match="damaged checkpoint"),
        pytest.raises(ValueError, match=r"^Expected a checkpoint that is whole, got 2 damaged ones"),
    ):
        stream(batches(X, y), TraceNormRegressor(), resume=True, **options)


def test_an_empty_folder_starts_from_zero_and_says_so(tmp_path, caplog):
    X, y = numbers(200)
    (tmp_path / ".checkpoint-000000000000100.tracelearn.abc.tmp").write_bytes(b"of a run that was killed")
    with caplog.at_level(logging.INFO, logger="tracelearn"):
        report = stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path, resume=True)
    assert report.resumed_from is None
    assert "no checkpoint" in caplog.text
    assert names(tmp_path) == ["checkpoint-000000000000200.tracelearn"]


def test_checkpoints_of_another_run_are_not_overwritten(tmp_path):
    X, y = numbers(200)
    stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"^Expected a folder without checkpoints, .* resume from them"):
        stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TraceNormRegressor(alpha=0.5), "alpha='auto', got alpha=0.5"),
        (TraceNormRegressor(mode_weights=[1.0, 2.0, 3.0]), "mode_weights=None"),
        (TraceNormClassifier(), "a TraceNormRegressor, got a TraceNormClassifier"),
    ],
)
def test_another_model_cannot_go_on(tmp_path, model, message):
    X, y = numbers(200)
    stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path)
    with pytest.raises(ValueError, match=f"^Expected .*{message}"):
        stream(batches(X, y), model, checkpoint=tmp_path, resume=True)


def test_a_file_that_is_no_checkpoint_and_a_hostile_one_are_not_used(tmp_path):
    X, y = numbers(200)
    path = tmp_path / "checkpoint-000000000000100.tracelearn"
    save(TraceNormRegressor(), path)
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(ValueError, match="1 damaged"):
        stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path, resume=True)
    path.write_bytes(files.pack("checkpoint", {"model": LinearRegression()}))
    with pytest.raises(ValueError, match="LinearRegression"):
        stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path, resume=True)


def without_alpha():
    model = TraceNormRegressor()
    del model.alpha
    return model


@pytest.mark.parametrize(
    "change",
    [
        {"curve": [[]]},
        {"curve": np.zeros(3)},
        {"curve": np.zeros((2, 4))},
        {"total_error": [0.0] * 9},
        {"total_error": float("nan")},
        {"error_since_refresh": "x"},
        {"n_refreshes": float("inf")},
        {"n_samples": -1},
        {"n_batches": 3},
        {"model": without_alpha()},
        {"model": 3},
    ],
)
def test_a_checkpoint_of_another_state_is_not_used(tmp_path, change):
    X, y = numbers(200)
    stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path)
    (path,) = tmp_path.glob("checkpoint-*")
    _, plain = files.unpack(path)
    path.write_bytes(files.pack("checkpoint", {**plain, **change}))
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(ValueError, match=r"^Expected a checkpoint that is whole"),
    ):
        stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path, resume=True)


def test_a_full_disk_is_one_sentence_and_the_old_checkpoint_is_intact(tmp_path, monkeypatch):
    X, y = numbers()
    items = batches(X, y)
    options = {"refresh_samples": 100, "checkpoint": tmp_path, "checkpoint_seconds": 0}
    stream(items, TraceNormRegressor(alpha=0.03), max_samples=300, **options)
    before = contents(tmp_path)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"^Expected to write .*No space left on device") as failure:
            stream(items, TraceNormRegressor(alpha=0.03), resume=True, **options)
    assert isinstance(failure.value.__cause__, OSError)
    assert before == contents(tmp_path)
    untouched, again = TraceNormRegressor(alpha=0.03), TraceNormRegressor(alpha=0.03)
    stream(items, untouched, refresh_samples=100)
    stream(items, again, resume=True, **options)
    assert_equal_models(again, untouched)


def test_a_model_that_cannot_be_written_is_refused_before_anything_is_learned(tmp_path):
    X, y = numbers(200)
    model = TraceNormClassifier(class_weight={True: os.system, False: 1.0})
    with pytest.raises(ValueError, match=r"^Expected models made of numbers, text, .*, got .*system: "):
        stream(batches(X, y > 0), model, checkpoint=tmp_path)
    assert not hasattr(model, "moments_")


def test_a_folder_that_cannot_be_used_is_refused_before_anything_is_learned(tmp_path, monkeypatch):
    X, y = numbers(200)
    (tmp_path / "file").write_text("")
    model = TraceNormRegressor()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"^Expected a folder to write checkpoints to"):
            stream(batches(X, y), model, checkpoint=folder)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(OSError, match="Permission denied"):
        stream(batches(X, y), model, checkpoint=tmp_path / "new")
    assert not hasattr(model, "moments_")


# --- two runs in one folder ----------------------------------------------------------------------------------------------


def test_a_second_run_in_a_folder_is_refused_and_the_first_goes_on(tmp_path):
    X, y = numbers()
    refusals = []

    def source():
        for number, batch in enumerate(batches(X, y)):
            if number == 10:
                for resume in (False, True):
                    with pytest.raises(
                        ValueError, match=rf"^Expected a folder .* got {tmp_path}, .* choose another"
                    ) as refusal:
                        stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path, resume=resume)
                    refusals.append(str(refusal.value))
            yield batch

    model, alone = TraceNormRegressor(), TraceNormRegressor()
    stream(source(), model, checkpoint=tmp_path)
    stream(batches(X, y), alone)
    assert len(refusals) == 2
    assert "\n" not in refusals[0]
    assert_equal_models(model, alone)
    assert names(tmp_path) == ["checkpoint-000000000001200.tracelearn"]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), ValueError("of the source")])
def test_the_folder_is_free_after_every_end(tmp_path, error):
    X, y = numbers()
    try:
        stream(
            stopping(batches(X, y), 10, error) if error else batches(X, y)[:10],
            TraceNormRegressor(),
            checkpoint=tmp_path,
        )
    except ValueError:
        pass
    assert stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path, resume=True).resumed_from == 500


def test_the_folder_is_free_once_the_process_that_had_it_is_killed(tmp_path):
    X, y = numbers(200)
    code = (
        "import sys, time; from pathlib import Path; from tracelearn.io.checkpoints import CheckpointFolder\n"
        "folder = CheckpointFolder(Path(sys.argv[1]), 0.0).__enter__()\n"
        "print('open', flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True, env=environment
    ) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(ValueError, match=r"^Expected a folder that no other run is using"):
            stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path)
        other.kill()
    assert stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path).n_samples == 200


def test_without_filelock_a_sentence_names_it(tmp_path, monkeypatch):
    X, y = numbers(200)
    monkeypatch.setitem(sys.modules, "filelock", None)
    with pytest.raises(ImportError, match=r"^This needs filelock, .*pip install 'tracelearn\[stream\]'"):
        stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path)
    assert stream(batches(X, y), TraceNormRegressor()).n_samples == 200


# --- kill -9 -------------------------------------------------------------------------------------------------------------

JOB = """
import os, sys
import numpy as np
from tracelearn import TraceNormRegressor, save, stream

out = sys.argv[1]

def source(start):
    for index in range(start // 20, 400):
        rng = np.random.default_rng(index)
        X = rng.standard_normal((20, 4, 3, 2)) + 1.0
        yield X, X[:, 0, 0, 0] - X[:, 1, 1, 0] + 0.3 * rng.standard_normal(20)

def job(folder):
    model = TraceNormRegressor(alpha=0.03, forgetting=0.999)
    report = stream(source, model, refresh_samples=100, checkpoint=folder, checkpoint_seconds=0, resume=True)
    save(model, folder + "/model")
    with open(folder + "/n_seen", "w") as file:
        file.write(f"{report.n_samples} {report.resumed_from}")

# Imports take seconds and a crash does not need them again: each run is a process of its own, forked from this one.
for line in iter(sys.stdin.readline, ""):
    child = os.fork()
    if child == 0:
        job(os.path.join(out, line.strip()))
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()  # until then the child keeps its number, whatever becomes of it
    _, status = os.waitpid(child, 0)
    print(status, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill")
@pytest.mark.slow
def test_killed_ten_times_it_ends_where_it_would_have_ended(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(JOB)
    for name in ("killed", "untouched"):
        (tmp_path / name).mkdir()
    chance = random.Random(7)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as jobs:

        def run(folder, seconds=None, *, after_checkpoint=False):
            jobs.stdin.write(folder + "\n")
            jobs.stdin.flush()
            child = int(jobs.stdout.readline())
            while after_checkpoint and not list((tmp_path / folder).glob("checkpoint-*")):  # long, on a busy machine
                time.sleep(0.001)
            if seconds is not None:
                time.sleep(seconds)
                os.kill(child, signal.SIGKILL)
            jobs.stdin.write("\n")
            jobs.stdin.flush()
            return int(jobs.stdout.readline())

        began = time.monotonic()
        assert run("untouched") == 0
        whole = time.monotonic() - began
        kills = [run("killed", chance.uniform(0.0, 0.1 * whole), after_checkpoint=kill == 0) for kill in range(10)]
        assert run("killed") == 0
        jobs.stdin.close()
    assert kills.count(signal.SIGKILL) >= 8  # on a busy machine the last ones may come too late
    n_seen, resumed_from = (tmp_path / "killed" / "n_seen").read_text().split()
    assert int(n_seen) == 8_000
    assert int(resumed_from) > 0
    killed, untouched = (load(tmp_path / name / "model") for name in ("killed", "untouched"))
    assert_equal_models(killed, untouched)
    assert names(tmp_path / "killed")[-2:] == ["model", "n_seen"]
    assert not list((tmp_path / "killed").glob(".*.tmp"))


@pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")
@pytest.mark.parametrize("what", ["link", "pipe"])
@pytest.mark.parametrize("resume", [True, False])
def test_checkpoints_that_are_links_or_pipes_are_refused(what, resume, tmp_path, within_seconds):
    X, y = numbers()
    folder, other = tmp_path / "kept", tmp_path / "other"
    folder.mkdir()
    other.write_text("mine")
    # The one that the run would write: through a link it would replace another file.
    path = folder / "checkpoint-000000000000100.tracelearn"
    path.symlink_to(other) if what == "link" else os.mkfifo(path)
    with within_seconds(10), pytest.raises(ValueError, match="which is a link, a pipe or a device: remove it"):
        stream(batches(X, y), TraceNormRegressor(), refresh_samples=100, checkpoint=folder, resume=resume)
    assert other.read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="needs links")
def test_a_lock_that_is_a_link_makes_no_file_elsewhere(tmp_path):
    X, y = numbers()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / ".lock").symlink_to(tmp_path / "made")
    with pytest.raises(OSError, match=r"^Expected a folder to write checkpoints to, got "):
        stream(batches(X, y), TraceNormRegressor(), checkpoint=tmp_path / "kept")
    assert not (tmp_path / "made").exists()
