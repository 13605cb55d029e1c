"""The command line: what it prints, what it leaves on disk, how it ends."""

import json
import subprocess
import sys

import pytest

from tracelearn import __version__, cli
from tracelearn.reproduce import experiment, settings


@pytest.fixture
def tiny(monkeypatch):
    scale = settings.Scale(n_train=40, n_test=30, budget=0.05, study_seconds=0.05)
    monkeypatch.setitem(settings.SCALES, "quick", scale)


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as leaving:
        cli.main(list(arguments))
    output = capsys.readouterr()
    return leaving.value.code, output.out, output.err


def test_version(capsys):
    code, out, _ = call(capsys, "--version")
    assert (code, out.strip()) == (0, f"tracelearn {__version__}")


def test_help_names_the_command_and_its_options(capsys):
    code, out, _ = call(capsys, "--help")
    assert code == 0
    assert "reproduce" in out
    code, out, _ = call(capsys, "reproduce", "--help")
    assert code == 0
    for option in ("--scale", "--out", "--budget", "--batch-size", "--max-iter-per-update", "--max-rank", "--seed"):
        assert option in out


@pytest.mark.usefixtures("tiny")
def test_reproduce_writes_everything_and_says_where(capsys, tmp_path):
    code, out, err = call(
        capsys, "reproduce", "--out", str(tmp_path / "new" / "folder"), "--batch-size", "10", "--seed", "3"
    )
    assert (code, err) == (0, "")
    folder = tmp_path / "new" / "folder"
    names = {"figure_a.png", "figure_b.png", "figure_minibatch.png", "results.json", "report.html"}
    assert {file.name for file in folder.iterdir()} == names
    for name in names:
        assert str(folder / name) in out
    results = json.loads((folder / "results.json").read_text())
    assert (results["seed"], results["batch_size"]) == (3, 10)
    # Not a terminal: no bar, but a line for each algorithm, and the table.
    for algorithm in results["algorithms"]:
        assert f"{algorithm}: " in out
    assert "\x1b" not in out


@pytest.mark.usefixtures("tiny")
def test_ctrl_c_keeps_reports_and_says_what_was_finished(capsys, tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "algorithm2", interrupted)
    code, _, err = call(capsys, "reproduce", "--out", str(tmp_path), "--batch-size", "10")
    assert code == 130
    assert err.count("\n") == 1
    assert "2 of 7 algorithms" in err
    assert json.loads((tmp_path / "results.json").read_text())["algorithms"].keys() == {"APG_DR", "tracelearn"}
    assert {file.name for file in tmp_path.iterdir()} == {"figure_a.png", "figure_b.png", "results.json", "report.html"}
    assert "interrupted" in (tmp_path / "report.html").read_text()


@pytest.mark.usefixtures("tiny")
def test_ctrl_c_at_once_leaves_no_stale_report(capsys, tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    (tmp_path / "report.html").write_text("of an earlier run")
    monkeypatch.setattr(experiment, "make_data", interrupted)
    code, _, err = call(capsys, "reproduce", "--out", str(tmp_path), "--batch-size", "10")
    assert code == 130
    assert "0 of 7 algorithms" in err
    assert {file.name for file in tmp_path.iterdir()} == {"results.json"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "--scale", "huge"], "scale"),
        (["reproduce", "--budget", "soon"], "--budget"),
        (["reproduce", "--budget", "-1"], "budget"),
        (["reproduce", "--batch-size", "0"], "batch size"),
        (["reproduce", "--max-rank", "1"], "rank"),
        (["reproduce", "--seed", "-1"], "seed"),
        (["reproduce", "--max-iter-per-update", "0"], "iteration"),
        (["reproduce", "--colour"], "--colour"),
        (["reproduce", "extra"], "extra"),
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


@pytest.mark.usefixtures("tiny")
def test_a_folder_that_is_a_file_is_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = call(capsys, "reproduce", "--batch-size", "10", "--out", str(tmp_path / "file"))
    assert code == 2
    assert err.count("\n") == 1
    assert str(tmp_path / "file") in err


@pytest.mark.parametrize(
    ("missing", "extra"),
    [("typer", "tracelearn[cli]"), ("rich", "tracelearn[cli]"), ("matplotlib", "tracelearn[plot]")],
)
def test_a_missing_library_names_the_extra(tmp_path, missing, extra):
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom tracelearn.cli import main; main(['reproduce'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert missing in done.stderr
    assert extra in done.stderr
    assert not list(tmp_path.iterdir())
