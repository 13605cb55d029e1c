"""What is safe when something goes wrong: killed processes, full disks, files that change, little memory, Ctrl-C."""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tracelearn import (
    HierarchicalTraceNormClassifier,
    ModePCA,
    TensorStandardScaler,
    TraceNormClassifier,
    TraceNormRegressor,
    load,
    open_source,
    save,
)
from tracelearn.arrays.array_api import available_memory
from tracelearn.cli import main
from tracelearn.solvers import SOLVERS

pytestmark = pytest.mark.slow

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, kill and limits")
N, SHAPE = 60, (4, 3, 2)
rng = np.random.default_rng(3)
X = rng.standard_normal((N, *SHAPE))
y = X[:, 0, 0, 0] + 0.3 * rng.standard_normal(N)
labels = np.array(["ash", "birch", "cedar"])[np.digitize(y, [-0.5, 0.5])]


# --- processes that are killed, full disks --------------------------------------------------------------------------------


class ForkedCommands:
    """Starts commands that something happens to."""

    def __init__(self):
        script = Path(__file__).parent / "forked_commands.py"
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, call, fault=None, signal_after=None):
        """Run a command; return its exit code and what it said."""
        request = {"call": [str(part) for part in call], "fault": fault}
        self._send(json.dumps(request))
        child = int(self.process.stdout.readline())
        if signal_after is not None:
            number, seconds = signal_after
            time.sleep(seconds)
            os.kill(child, number)
        self._send("")
        return json.loads(self.process.stdout.readline())

    def _send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


@pytest.fixture(scope="module")
def forked():
    started = ForkedCommands()
    yield started
    started.process.stdin.close()
    started.process.wait()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    np.savez(folder / "data.npz", X=X, y=y)
    np.savez(folder / "other.npz", X=X[::-1] + 1.0, y=y)
    for name, part in (("a", slice(0, 30)), ("b", slice(30, 60))):
        save(TraceNormRegressor(alpha=0.1).partial_fit(X[part], y[part]), folder / f"{name}.tracelearn")
    return folder


def commands(inputs, out):
    """Name every command that writes files, and save."""
    data, a, b = inputs / "data.npz", inputs / "a.tracelearn", inputs / "b.tracelearn"
    return {
        "save": ["save", a, out / "model.tracelearn"],
        "fit": ["fit", data, "--alpha", "0.1", "--cv", "2", "--out", out / "model.tracelearn", "--force", "--quiet"],
        "predict": ["predict", a, data, "--out", out / "predictions.npz", "--force"],
        "inspect": ["inspect", a, "--html", out / "page.html", "--force"],
        "over-time": ["over-time", data, "--alpha", "0.1", "--cv", "2", "--plot", out / "course.png", "--force", "--quiet"],
        "merge": ["merge", a, b, "--out", out / "model.tracelearn", "--force"],
        "stream": ["stream", data, "--checkpoint", out / "run", "--resume", "--batch", "20", "--refresh-samples", "20",
                   "--out", out / "model.tracelearn", "--figure", out / "curve.png", "--force", "--quiet"],
    }  # fmt: skip


COMMANDS = ("save", "fit", "predict", "inspect", "over-time", "merge", "stream")


def contents(folder):
    """Read all files, except hidden ones, in a form that can be compared: a file is written with the time in it."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")):
        name = str(path.relative_to(folder))
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                found[name] = {key: arrays[key].tolist() for key in arrays}
        elif path.suffix == ".png":
            data = path.read_bytes()
            assert data.startswith(b"\x89PNG")
            assert data.endswith(b"IEND\xaeB`\x82")
            found[name] = "figure"
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>")
            found[name] = "page"
        elif "checkpoint" not in name:
            found[name] = load(path).coef_.tolist()
    return found


def hidden(folder):
    return [path for path in folder.rglob(".*") if path.is_file() and path.name.endswith(".tmp")]


@pytest.fixture
def before(tmp_path, inputs):
    """Put an older file where commands write."""
    out = tmp_path / "out"
    out.mkdir()
    save(TraceNormRegressor(alpha=0.5).fit(X, -y), out / "model.tracelearn")
    np.savez(out / "predictions.npz", prediction=np.zeros(3))
    for name in ("curve.png", "course.png"):
        (out / name).write_bytes(b"\x89PNG older IEND\xaeB`\x82")
    (out / "page.html").write_text("older</html>")
    return out


def assert_old_or_new(out, old, new):
    found = contents(out)
    for name, content in found.items():
        assert content in (old.get(name), new.get(name)), name


@posix
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_every_step_of_writing_a_file_is_the_old_one_or_the_new_one(name, forked, inputs, before, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    code, told = forked.run(commands(inputs, whole)[name])
    assert code == 0, told
    old, new = contents(before), contents(whole)
    command, step, code = commands(inputs, before)[name], 0, -signal.SIGKILL
    while code != 0:
        step += 1
        leftovers = len(hidden(before))
        code, told = forked.run(command, fault=["kill", step])
        assert code in (0, -signal.SIGKILL), told
        assert len(hidden(before)) <= leftovers + 1
        assert_old_or_new(before, old, new)
        assert step < 60
    assert step > 4  # half written, on disk, named, lasting: each was a moment to die in
    assert new.items() <= contents(before).items()  # and the last run came to its end, whatever the others left


def undisturbed(name, forked, inputs, tmp_path):
    """Run a command to its end in a folder of its own; return what it wrote there, and the seconds it took."""
    whole = tmp_path / "whole"
    whole.mkdir()
    began = time.monotonic()
    assert forked.run(commands(inputs, whole)[name])[0] == 0
    return contents(whole), time.monotonic() - began


@posix
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_random_moments_a_file_is_the_old_one_or_the_new_one(name, forked, inputs, before, tmp_path):
    old, (new, seconds) = contents(before), undisturbed(name, forked, inputs, tmp_path)
    chance = random.Random(11)
    for _ in range(4):
        forked.run(commands(inputs, before)[name], signal_after=(signal.SIGKILL, chance.uniform(0.0, seconds)))
        assert_old_or_new(before, old, new)
    assert forked.run(commands(inputs, before)[name])[0] == 0
    assert new.items() <= contents(before).items()


@posix
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("size", [0, 100, 400])
def test_on_a_full_disk_the_old_file_is_intact_and_one_sentence_is_said(name, size, forked, inputs, before):
    old = contents(before)
    code, told = forked.run(commands(inputs, before)[name], fault=["disk", size])
    assert contents(before) == old
    assert not hidden(before)
    assert code == (1 if name == "save" else 2)
    last = told.strip().splitlines()[-1]
    assert "Expected to write" in last
    assert "File too large" in last
    if name != "save":
        assert "Traceback" not in told


# --- Ctrl-C ---------------------------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("name", ["fit", "predict", "merge", "stream"])
def test_ctrl_c_at_random_moments_is_one_line_and_keeps_what_was_there(name, forked, inputs, before, tmp_path):
    old, (new, seconds) = contents(before), undisturbed(name, forked, inputs, tmp_path)
    chance = random.Random(5)
    for _ in range(4):
        code, told = forked.run(
            commands(inputs, before)[name], signal_after=(signal.SIGINT, chance.uniform(0.0, 0.8 * seconds))
        )
        # 1: it came before the command had begun. Python writes "Exception ignored" where nothing can be raised: in a
        # destructor, or in a callback of another library.
        assert "Traceback" not in told or code == 1 or "Exception ignored" in told, told
        assert code in (0, 130, 1), told
        if name != "stream":  # which writes the model of what it has seen
            assert_old_or_new(before, old, new)
        assert not hidden(before)
    code, told = forked.run(commands(inputs, before)[name])
    assert code == 0, told
    assert new.items() <= contents(before).items()


def test_an_error_that_follows_from_ctrl_c_is_an_interruption(monkeypatch, inputs, tmp_path, capsys):
    def interrupted(path, **arrays):
        with zipfile.ZipFile(path, "w") as file:  # which cannot be closed while a part of it is open
            part = file.open("X.npy", "w")  # noqa: F841 - it stays open
            raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    monkeypatch.setattr(np, "savez_compressed", interrupted)
    with pytest.raises(SystemExit) as ended:
        main([str(part) for part in commands(inputs, tmp_path)["predict"]])
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip() == "tracelearn: Interrupted."


# --- memory ---------------------------------------------------------------------------------------------------------------


@posix
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is read from /proc")
@pytest.mark.parametrize("megabytes", [16, 64, 200])
@pytest.mark.parametrize("command", ["fit", "predict"])
def test_with_little_memory_a_command_succeeds_or_says_what_to_do(command, megabytes, forked, tmp_path):
    shape = (16, 16, 8)
    big = np.random.default_rng(0).standard_normal((300, *shape))
    np.savez(tmp_path / "big.npz", X=big, y=big[:, 0, 0, 0])
    if command == "fit":
        call = [
            "fit",
            tmp_path / "big.npz",
            "--alpha",
            "0.1",
            "--cv",
            "2",
            "--out",
            tmp_path / "model.tracelearn",
            "--quiet",
        ]
    else:
        save(TraceNormRegressor(max_iter=1).fit(big[:5], big[:5, 0, 0, 0]), tmp_path / "model.tracelearn")
        call = ["predict", tmp_path / "model.tracelearn", tmp_path / "big.npz", "--out", tmp_path / "p.npy"]
    code, told = forked.run(call, fault=["memory", megabytes << 20])
    assert "Traceback" not in told, told
    assert code == 0 or (code == 2 and "memory" in told), told
    if code:
        assert "ModePCA" in told
    assert not hidden(tmp_path)


def test_available_memory_respects_a_limit_on_addresses():
    resource = pytest.importorskip("resource")
    limit = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (256 << 20), limit[1]))
    try:
        assert available_memory() <= 256 << 20
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)
    assert available_memory() > 256 << 20


def test_available_memory_respects_a_container(tmp_path, monkeypatch):
    monkeypatch.setattr("tracelearn.arrays.array_api._GROUP", tmp_path)
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() > 5000
    (tmp_path / "memory.max").write_text("6000\n")
    assert available_memory() == 5000


# --- learning that fails --------------------------------------------------------------------------------------------------


def broken_blocks(failure):
    """Yield good blocks, then raise."""
    yield X[:20], y[:20]
    yield X[20:40], y[20:40]
    raise failure


MODELS = {
    "regressor": (lambda: TraceNormRegressor(alpha=0.05), y, {}),
    "classifier": (lambda: TraceNormClassifier(alpha=0.05), labels, {"classes": np.unique(labels)}),
    "hierarchy": (lambda: HierarchicalTraceNormClassifier(alpha=0.05), labels, {"classes": np.unique(labels)}),
}
FAILURES = [MemoryError("Unable to allocate 32 GiB"), KeyboardInterrupt(), RuntimeError("a bug")]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_partial_fit_that_fails_in_the_solver_leaves_the_model_as_it_was(name, calls, failure, monkeypatch):
    make, target, options = MODELS[name]
    model = make().partial_fit(X[:30], target[:30], **options)
    state, untouched = pickle.dumps(model), pickle.loads(pickle.dumps(model))
    left = [calls]

    def failing(solve):
        def call(*args, **kwargs):
            found = solve(*args, **kwargs)
            left[0] -= 1
            if left[0] == 0:
                raise failure
            return found

        return call

    with monkeypatch.context() as patch:
        for key, solve in SOLVERS.items():
            patch.setitem(SOLVERS, key, failing(solve))
        if calls == 2 and name != "hierarchy":  # a hierarchy solves twice in one call
            model.partial_fit(X[30:], target[30:])
            state = pickle.dumps(model)
        with pytest.raises(type(failure)) as raised:
            model.partial_fit(X[30:], target[30:])
    assert pickle.dumps(model) == state
    if isinstance(failure, MemoryError):
        assert str(raised.value).startswith(
            "Expected enough memory for this problem, got none left (Unable to allocate 32 GiB): "
        )
        assert "ModePCA" in str(raised.value)
    if calls == 1 or name == "hierarchy":
        for one in (model, untouched):
            one.partial_fit(X[30:], target[30:])
        # A pickled tree begins anew at every node, and ends at the same weights.
        np.testing.assert_allclose(model.coef_, untouched.coef_, atol=1e-3 if name == "hierarchy" else 0.0)


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_what_fails_after_samples_were_read_leaves_the_model_as_it_was(name):
    make, target, options = MODELS[name]
    model = make().partial_fit(X[:30], target[:30], **options)
    other = make().partial_fit(X[:30, :2], target[:30], **options)
    state = pickle.dumps(model)
    bad = X[30:].copy()
    bad[3, 0, 0, 0] = np.nan
    failures = (
        lambda: model.partial_fit(bad, target[30:]),
        lambda: model.partial_fit(X[30:].astype(np.float32), target[30:], sample_weight=-np.ones(30)),
        lambda: model.partial_fit(X[30:, :2], target[30:]),
        lambda: model.partial_fit(broken_blocks(ValueError("the network is gone"))),
        lambda: model.fit(broken_blocks(ValueError("the network is gone"))),
        lambda: model.fit(X[:30, :2], target[:29]),
        lambda: model.fit(bad, target[30:]),
        lambda: model.forget(X * 9.0, target),
        lambda: model.merge(other),
    )
    for fail in failures:
        with pytest.raises(ValueError):  # noqa: PT011 - whichever sentence it is
            fail()
        assert pickle.dumps(model) == state
    model.set_params(max_iter=1, tol=1e-15)
    state = pickle.dumps(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="duality gap"):
            model.partial_fit(X[30:], target[30:])
    assert pickle.dumps(model) == state


@pytest.mark.parametrize("make", [TensorStandardScaler, lambda: ModePCA(2)], ids=["scaler", "compression"])
def test_transformers_that_fail_are_as_they_were(make):
    model = make().partial_fit(X[:30])
    state = pickle.dumps(model)
    for fail in (
        lambda: model.partial_fit(X[30:] * 1e300),
        lambda: model.fit(X[30:, :2] * 1e300),
        lambda: model.partial_fit(X[30:, :2]),
        lambda: model.fit(np.full((5, 2, 2), np.nan)),
    ):
        with pytest.raises(ValueError, match="Expected"):
            fail()
        assert pickle.dumps(model) == state


SAMPLES = np.random.default_rng(1).standard_normal((4000, 6))


# --- files of strangers -----------------------------------------------------------------------------------------------------


def test_a_zarr_store_that_names_a_codec_for_pickles_is_refused_unread(tmp_path):
    zarr = pytest.importorskip("zarr", reason="Zarr is an extra")
    group = zarr.open_group(tmp_path / "data.zarr", mode="w", zarr_format=2)
    group.create_array("X", data=SAMPLES, compressors=None)
    group.create_array("y", data=np.ones(len(SAMPLES)), compressors=None)

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "code-was-run"),)

    place = tmp_path / "data.zarr" / "y" / ".zarray"
    metadata = json.loads(place.read_text())
    # The first codec makes the type look like text; the second is the one that counts.
    change = {
        "dtype": "|O",
        "filters": [{"id": "vlen-utf8"}],
        "compressor": {"id": "pickle", "protocol": 5},
        "fill_value": "",
    }
    place.write_text(json.dumps({**metadata, **change}))
    (tmp_path / "data.zarr" / "y" / "0").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match=r"^Expected .* got the codec 'pickle', which could run code"):
        open_source(tmp_path / "data.zarr")
    assert not (tmp_path / "code-was-run").exists()


def test_chunks_larger_than_memory_are_refused_before_anything_is_allocated(tmp_path):
    zarr = pytest.importorskip("zarr", reason="Zarr is an extra")
    zarr.create_array(tmp_path / "data.zarr", shape=(1 << 40, 6), chunks=(1 << 40, 6), dtype="f8")
    with pytest.raises(
        ValueError,
        match=r"^Expected blocks of .* free memory, got 4.92e\+04 GiB that must be read at once: write the file again with",
    ):
        open_source(tmp_path / "data.zarr")
