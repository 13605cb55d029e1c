"""The command line: what it prints, what it leaves on disk, how it ends."""

import io
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import rich.console

from tracelearn import (
    ModeWhitener,
    Moments,
    StreamReport,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormRegressor,
    __version__,
    cli,
    load,
    save,
)
from tracelearn.cli import progress
from tracelearn.cli import stream as cli_stream
from tracelearn.io.checkpoints import Point


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as leaving:
        cli.main(list(arguments))
    output = capsys.readouterr()
    return leaving.value.code, output.out, output.err


def test_version(capsys):
    code, out, _ = call(capsys, "--version")
    assert (code, out.strip()) == (0, f"tracelearn {__version__}")


def test_python_runs_the_package_as_the_command():
    words = [sys.executable, "-m", "tracelearn", "--version"]
    assert (
        subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip() == f"tracelearn {__version__}"
    )
    wrong = subprocess.run([*words[:-1], "fitt"], check=False, capture_output=True, text=True)
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)


def test_help_names_the_command_and_its_options(capsys):
    code, out, _ = call(capsys, "--help")
    assert code == 0
    for command in ("fit", "predict", "inspect", "stream", "test", "compare", "over-time", "merge"):
        assert command in out
    code, out, _ = call(capsys, "stream", "--help")
    assert code == 0
    for option in ("--checkpoint", "--out", "--resume", "--forgetting", "--max-samples"):
        assert option in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stream", "--checkpoint", "run", "--colour"], "--colour"),
        (["merge", "part", "--unknown"], "--unknown"),
        (["produce"], "produce"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_missing_library_names_the_extra(tmp_path, missing):
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom tracelearn.cli import main; main(['fit'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert missing in done.stderr
    assert "tracelearn[cli]" in done.stderr


# --- streams -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4, 3, 2)) + 1.0
    y = X[:, 0, 0, 0] - X[:, 1, 1, 0] + 0.3 * rng.standard_normal(600)
    arrays = {"X": X, "y": y, "label": np.where(y > 0, "up", "down"), "count": np.digitize(y, [-1.0, 0.0, 1.0])}
    np.savez(tmp_path / "data.npz", **arrays)
    return tmp_path / "data.npz", arrays


def test_stream_learns_says_how_well_and_writes_model_and_figure(capsys, tmp_path, data):
    path, arrays = data
    wanted = ["--checkpoint", str(tmp_path / "kept"), "--refresh-samples", "100", "--batch", "50", "--alpha", "0.03"]
    files = ["--out", str(tmp_path / "model"), "--figure", str(tmp_path / "curve.png")]
    code, out, err = call(capsys, "stream", str(path), *wanted, *files)
    assert (code, err) == (0, "")
    assert "mean squared error" in out
    assert "600 samples" in out
    assert "\x1b" not in out
    model = load(tmp_path / "model")
    whole = TraceNormRegressor(alpha=0.03).fit(arrays["X"], arrays["y"])
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-2)
    assert model.moments_.weight == 600
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in (tmp_path / "kept").glob("checkpoint-*")] == ["checkpoint-000000000000600.tracelearn"]


@pytest.mark.parametrize(
    ("target", "task", "kind"),
    [
        ("y", "auto", TraceNormRegressor),
        ("label", "auto", TraceNormClassifier),
        ("count", "auto", TraceNormClassifier),
        ("count", "regression", TraceNormRegressor),
    ],
)
def test_stream_finds_out_whether_targets_are_numbers_or_labels(capsys, tmp_path, data, target, task, kind):
    paths = ["--checkpoint", str(tmp_path / "kept"), "--out", str(tmp_path / "model")]
    code, out, _ = call(capsys, "stream", str(data[0]), "--target", target, "--task", task, "--quiet", *paths)
    assert (code, out) == (0, "")
    assert type(load(tmp_path / "model")) is kind


def test_stream_resumes_where_it_stopped(capsys, tmp_path, data):
    common = ["stream", str(data[0]), "--checkpoint", str(tmp_path / "kept"), "--refresh-samples", "100"]
    assert call(capsys, *common, "--max-samples", "250", "--out", str(tmp_path / "half"))[0] == 0
    assert load(tmp_path / "half").moments_.weight == 250
    code, _, err = call(capsys, *common)
    assert (code, err.count("\n")) == (2, 1)
    assert "resume" in err
    code, out, _ = call(capsys, *common, "--resume", "--out", str(tmp_path / "whole"))
    assert code == 0
    assert "resumed after sample 250" in out
    assert load(tmp_path / "whole").moments_.weight == 600


def test_stream_says_where_it_starts_and_writes_checkpoints_as_often_as_asked(capsys, tmp_path, data):
    kept = tmp_path / "kept"
    common = ["stream", str(data[0]), "--checkpoint", str(kept), "--refresh-samples", "100", "--max-samples", "300"]
    assert call(capsys, *common, "--resume", "--checkpoint-seconds", "0")[1].startswith(
        f"no checkpoint in {kept}: starting from the first sample\n"
    )
    assert sorted(path.name for path in kept.glob("checkpoint-*")) == [
        f"checkpoint-{n:015d}.tracelearn" for n in (200, 300)
    ]
    _, out, _ = call(capsys, *common, "--resume")
    assert "starting from" not in out
    assert "resumed after sample 300" in out
    assert "--checkpoint-seconds" in call(capsys, *common, "--checkpoint-seconds", "-1")[2]


def test_stream_reports_a_damaged_checkpoint_in_one_line_and_goes_on(capsys, tmp_path, data):
    common = ["stream", str(data[0]), "--checkpoint", str(tmp_path / "kept"), "--refresh-samples", "100", "--quiet"]
    for most in ("200", "300"):
        call(capsys, *common, "--resume", "--max-samples", most)
    newest = tmp_path / "kept" / "checkpoint-000000000000300.tracelearn"
    newest.write_bytes(newest.read_bytes()[:-5])
    code, _, err = call(capsys, *common, "--resume", "--out", str(tmp_path / "model"))
    assert code == 0
    assert err.count("\n") == 1
    assert "damaged" in err
    assert load(tmp_path / "model").moments_.weight == 600


def test_ctrl_c_ends_a_stream_with_a_model(capsys, tmp_path, data, monkeypatch):
    def interrupted(source, batch):
        batches = made(source, batch)

        def some(start):
            for number, batch in enumerate(batches(start)):
                if number == 3:
                    raise KeyboardInterrupt
                yield batch

        return some

    made = cli_stream._batches_of
    monkeypatch.setattr(cli_stream, "_batches_of", interrupted)
    paths = ["--checkpoint", str(tmp_path / "kept"), "--out", str(tmp_path / "model")]
    code, out, _ = call(capsys, "stream", str(data[0]), *paths)
    assert code == 130
    assert "300 samples" in out
    assert load(tmp_path / "model").moments_.weight == 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stream"], "data"),
        (["stream", "DATA"], "--checkpoint"),
        (["stream", "missing.npz", "--checkpoint", "kept"], "missing.npz"),
        (["stream", "DATA", "--checkpoint", "kept", "--target", "z"], "'z'"),
        (["stream", "DATA", "--checkpoint", "kept", "--samples", "Z"], "'Z'"),
        (["stream", "DATA", "--checkpoint", "kept", "--task", "magic"], "magic"),
        (["stream", "DATA", "--checkpoint", "kept", "--alpha", "-1"], "alpha"),
        (["stream", "DATA", "--checkpoint", "kept", "--refresh-samples", "0"], "refresh_samples"),
        (["stream", "DATA", "--checkpoint", "kept", "--batch", "0"], "batch"),
        (["stream", "DATA", "--checkpoint", "DATA"], "folder"),
        (["stream", "text.npz", "--checkpoint", "kept"], "text.npz"),
        (["stream", "text.csv", "--checkpoint", "kept"], "text.csv"),
        (["stream", "DATA", "--checkpoint", "kept", "--target", "label", "--task", "regression"], "numbers in y"),
        (["stream", "X.npy", "--checkpoint", "kept"], "--target"),
        (["stream", "DATA", "--checkpoint", "kept", "--figure", "curve.txt"], ".svg"),
        (["stream", "DATA", "--checkpoint", "kept", "--figure", "text.csv"], "--force"),
        (["stream", "DATA", "--checkpoint", "kept", "--out", "text.csv"], "--force"),
        (["stream", "DATA", "--checkpoint", "kept", "--out", os.devnull], "device"),
        (["stream", "DATA", "--checkpoint", "kept", "--max-samples", "0"], "max_samples"),
        (["stream", "DATA", "--checkpoint", "kept", "--forgetting", "2"], "forgetting"),
        (["merge", "text.npz", "--out", "text.csv"], "--force"),
        (["merge", ".", "--out", "c"], "folder"),
        (["merge", "DATA", "--out", "c"], "tracelearn wrote"),
        (["merge", "missing", "--out", "c"], "missing"),
        (["merge", "--out", "c"], "parts"),
        (["merge", "DATA"], "--out"),
    ],
)
def test_a_mistake_with_a_stream_is_one_line_and_code_2(capsys, tmp_path, monkeypatch, data, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.npz").write_text("no arrays")
    (tmp_path / "text.csv").write_text("1,2")
    np.save(tmp_path / "X.npy", data[1]["X"])
    code, out, err = call(capsys, *(str(data[0]) if word == "DATA" else word for word in arguments))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message.lower() in err.lower()
    assert not (tmp_path / "c").exists()
    assert (tmp_path / "text.csv").read_text() == "1,2"


# --- merging -----------------------------------------------------------------------------------------------------------


def test_merge_adds_and_removes_models(capsys, tmp_path, data):
    X, y = data[1]["X"], data[1]["label"]
    options = {"alpha": 0.03, "tol": 1e-12, "max_iter": 1000, "keep_moments": True}
    for name, part in (("a", slice(200)), ("b", slice(200, 400)), ("c", slice(400, 600))):
        save(TraceNormClassifier(**options).fit(X[part], y[part]), tmp_path / name)
    a, b, c, result = (str(tmp_path / name) for name in ("a", "b", "c", "result"))
    code, out, _ = call(capsys, "merge", a, b, c, "--minus", b, "--out", result)
    assert code == 0
    assert "400" in out
    rest = np.r_[0:200, 400:600]
    wanted = TraceNormClassifier(**options).fit(X[rest], y[rest])
    np.testing.assert_allclose(load(result).coef_, wanted.coef_, atol=1e-9)


def test_merge_adds_and_removes_moments(capsys, tmp_path, data):
    X, y = data[1]["X"], data[1]["y"]
    save(Moments.of(X[:200], y[:200]), tmp_path / "a")
    save(Moments.of(X[200:], y[200:]), tmp_path / "b")
    save(TraceNormRegressor(keep_moments=True).fit(X, y), tmp_path / "model")
    a, b, model, result = (str(tmp_path / name) for name in ("a", "b", "model", "result"))
    assert call(capsys, "merge", a, b, "--out", result)[0] == 0
    np.testing.assert_allclose(load(result).gram, Moments.of(X, y).gram)
    assert call(capsys, "merge", model, a, "--minus", b, "--minus", a, "--out", result, "--force")[0] == 0
    assert load(result).moments_.weight == pytest.approx(200)
    code, _, err = call(capsys, "merge", a, model, "--out", result, "--force")
    assert (code, err.count("\n")) == (2, 1)


def test_a_search_over_views_does_not_merge(tmp_path, capsys):
    rng = np.random.default_rng(0)
    paths = []
    for site in ("here", "there"):
        X = rng.normal(size=(60, 3, 4))
        model = TensorRegressor(ModeWhitener(), cv=3, keep_moments=True).fit(X, X[:, 0, 0])
        paths.append(str(tmp_path / site))
        save(model, paths[-1])
    code, _, err = call(capsys, "merge", *paths, "--out", str(tmp_path / "both"))
    assert code == 2
    assert "got a search over views in" in err


def test_merge_takes_what_fit_saves(capsys, tmp_path, data):
    X, y = data[1]["X"], data[1]["y"]
    for name, part in (("a", slice(200)), ("b", slice(200, 600))):
        np.savez(tmp_path / f"{name}.npz", X=X[part], y=y[part])
        fit = ("fit", str(tmp_path / f"{name}.npz"), "--alpha", "0.1", "--cv", "2", "--quiet")
        call(capsys, *fit, "--out", str(tmp_path / name))
    a, b, result = (str(tmp_path / name) for name in ("a", "b", "result"))
    code, out, err = call(capsys, "merge", a, b, "--out", result)
    assert (code, err) == (0, "")
    assert out == f"TraceNormRegressor of samples of weight 600: {result}\n"
    np.testing.assert_allclose(load(result).coef_, TraceNormRegressor(alpha=0.1).fit(X, y).coef_, atol=1e-4)
    assert call(capsys, "merge", result, "--minus", b, "--out", a, "--force", "--quiet") == (0, "", "")
    assert load(a).moments_.weight == pytest.approx(200)


def test_merge_refuses_what_does_not_belong_together(capsys, tmp_path, data):
    X, y = data[1]["X"], data[1]["y"]
    save(TraceNormRegressor(keep_moments=True).fit(X, y), tmp_path / "a")
    save(TraceNormRegressor(alpha=0.5, keep_moments=True).fit(X, y), tmp_path / "alpha")
    save(TraceNormClassifier(keep_moments=True).fit(X, y > 0), tmp_path / "class")
    save(TraceNormRegressor(loss="huber").fit(X, y), tmp_path / "huber")
    for others, message in (
        (["alpha"], "alpha"),
        (["class"], "class"),
        (["huber"], "loss"),
        (["--minus", str(tmp_path / "a")], "some samples to be left"),
    ):
        paths = [str(tmp_path / other) if not other.startswith("-") else other for other in others]
        code, _, err = call(capsys, "merge", str(tmp_path / "a"), *paths, "--out", str(tmp_path / "out"))
        assert (code, err.count("\n")) == (2, 1)
        assert message in err
    assert not (tmp_path / "out").exists()


# --- what a stream looks like ------------------------------------------------------------------------------------------


def test_a_line_of_bars_follows_the_numbers():
    assert progress.sparkline([]) == ""
    assert progress.sparkline([3.0]) == "▁"
    assert progress.sparkline([0.0, 7.0, 0.0]) == "▁█▁"
    assert progress.sparkline([0.0, 7e-310, 0.0]) == "▁█▁"
    assert len(progress.sparkline([float(k) for k in range(1000)], width=40)) == 40


def test_of_several_steps_the_bar_shows_the_one_that_runs():
    console = rich.console.Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress.Bar(console) as bar:
        for step, done, total in [("reading", 360, 360), ("fitting", 0, None), ("scoring", 0, 5), ("scoring", 5, 5)]:
            bar.show(step, done, total)
            (task,) = bar.tasks
            assert (task.description, task.completed, task.total) == (step, done, total)


def test_the_bar_of_a_search_moves_to_its_end(monkeypatch, rng):
    pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks from version 1.9 on")
    shown = []
    monkeypatch.setattr(progress.Bar, "show", lambda bar, step, done=0, total=None: shown.append((step, done, total)))
    bar, model = progress.Bar(quiet=True), TensorRegressor(views=None, alphas=3, cv=2)
    X = rng.standard_normal((30, 3, 2))
    with bar.steps_of(model):
        model.fit(X, X[:, 0, 0])
    assert shown[0] == ("fitting", 0, None)
    assert [done / total for _, done, total in shown[1:]] == sorted(done / total for _, done, total in shown[1:])
    assert shown[-1][1] == shown[-1][2] > 10
    assert "_skl_callbacks" not in vars(model)


def test_on_a_terminal_a_panel_is_redrawn():
    report = StreamReport(2000, (Point(1000, 0.5, 0.5), Point(2000, 0.25, 0.375)), 2.0, 2)
    written = io.StringIO()
    console = rich.console.Console(file=written, force_terminal=True, width=100)
    with progress.stream_view(console, "regression", "mean squared error") as show:
        show(report)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.getvalue())
    assert "2,000 samples, 1,000 a second, mean squared error 0.25 lately, 0.375 in all" in text
    assert "█▁" in text


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_curve_is_drawn_also_when_it_is_empty(tmp_path, suffix):
    for points in ((), (Point(1000, 0.5, 0.5), Point(2000, 0.25, 0.375))):
        progress.draw_curve(StreamReport(2000, points, 2.0, 2), tmp_path / f"curve.{suffix}", "mean squared error")
        assert (tmp_path / f"curve.{suffix}").stat().st_size > 1000
