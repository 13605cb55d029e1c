"""The commands test, compare and over-time: what they print, draw and refuse."""

import json
from pathlib import Path

import numpy as np
import pytest

from tracelearn.cli import main


@pytest.fixture
def epochs(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((80, 4, 6)), np.arange(80) % 2
    X[:, :, 3] += 1.5 * y[:, None]
    monkeypatch.chdir(tmp_path)
    np.savez("epochs.npz", X=X, label=np.where(y, "b", "a"), subject=np.arange(80) // 8)
    return "epochs.npz"


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    printed = capsys.readouterr()
    return ended.value.code or 0, printed.out, printed.err


def test_a_test_prints_score_and_p_value(epochs, capsys):
    code, out, _ = call(
        capsys, "test", epochs, "--target", "label", "--alpha", "0.05", "--permutations", "19", "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert found["p_value"] == 0.05
    assert found["score"] > 0.8
    assert found["selection"] is None
    options = ("--groups", "subject", "--permutations", "19", "--plot", "null.png")
    code, out, _ = call(capsys, "test", epochs, "--target", "label", *options)
    assert code == 0
    assert "targets within groups" in out
    assert "chosen for each permutation" in out
    assert Path("null.png").stat().st_size > 1000


def test_a_page_shows_figure_and_numbers(epochs, capsys):
    code, out, _ = call(capsys, "over-time", epochs, "--target", "label", "--plot", "course.html", "--json")
    assert code == 0
    assert json.loads(out)["page"] == "course.html"
    page = Path("course.html").read_text(encoding="utf-8")
    assert "best at position 3" in page
    assert "data:image/png;base64," in page


def test_confounds_are_named_by_the_columns_of_the_file(epochs, capsys):
    with np.load(epochs) as found:
        columns = dict(found)
    signal = (columns["label"] == "b") + 0.1 * np.random.default_rng(1).normal(size=80)
    np.savez(epochs, age=signal, movement=np.arange(80.0), **columns)
    options = ("--target", "label", "--alpha", "0.05", "--permutations", "19", "--json")
    code, out, _ = call(capsys, "test", epochs, *options, "--confounds", "age,movement")
    assert code == 0
    assert json.loads(out)["score"] < 0.7  # what samples tell of labels, age tells too
    code, _, err = call(capsys, "test", epochs, *options, "--confounds", "height")
    assert code != 0
    assert "height" in err


def test_a_comparison_prints_differences(epochs, capsys):
    options = ("--alpha", "0.05", "--repeats", "1", "--cv", "3")
    code, out, _ = call(capsys, "compare", epochs, "--target", "label", *options, "--json")
    assert code == 0
    assert json.loads(out)["names"] == ["TraceNormClassifier", "ridge", "logistic"]
    code, out, _ = call(capsys, "compare", epochs, "--target", "label", *options)
    assert "difference" in out


def test_a_time_course_is_best_where_the_signal_is(epochs, capsys):
    code, out, _ = call(capsys, "over-time", epochs, "--target", "label", "--json")
    found = json.loads(out)
    assert code == 0
    assert int(np.argmax(found["mean"])) == 3
    code, out, _ = call(capsys, "over-time", epochs, "--target", "label", "--generalize")
    assert code == 0
    assert len(out.splitlines()) == 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["over-time", "epochs.npz", "--target", "label", "--axis", "9"], "axis"),
        (["over-time", "epochs.npz", "--target", "label", "--axis", "time"], "they have none"),
        (["test", "epochs.npz", "--target", "label", "--selection", "no"], "'repeat' or 'fixed'"),
        (["test", "epochs.npz", "--target", "label", "--alpha", "strong"], "--alpha"),
        (["test", "epochs.npz", "--target", "nothing"], "--target"),
        (["test", "epochs.npz", "--target", "label", "--scoring", "nothing"], "scikit-learn knows"),
        (["compare", "missing.npz"], "does not exist"),
        (["over-time", "epochs.npz", "--target", "label", "--plot", "figure.zzz"], "--plot"),
        (["over-time", "epochs.npz", "--target", "label", "--plot", "epochs.npz"], "--plot"),
    ],
)
def test_mistakes_are_told_in_one_line(epochs, capsys, arguments, words):
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert words in err
    assert len(err.splitlines()) == 1


def test_over_time_needs_no_units_and_says_where_a_position_is(tmp_path, capsys):
    mne = pytest.importorskip("mne")
    rng = np.random.default_rng(0)
    label, X = np.arange(80) % 2, 1e-6 * rng.standard_normal((80, 3, 6))  # volts
    X[label == 1, 1, 4] += 3e-6
    events = np.column_stack([np.arange(80), np.zeros(80, int), label + 1])
    epochs = mne.EpochsArray(X, mne.create_info(3, 100.0, "eeg"), events, tmin=-0.02, verbose="error")
    epochs.save(tmp_path / "t-epo.fif", verbose="error")
    _, out, _ = call(capsys, "over-time", str(tmp_path / "t-epo.fif"))
    assert call(capsys, "over-time", str(tmp_path / "t-epo.fif"), "--axis", "time")[1] == out
    lines = out.splitlines()
    assert lines[0].split() == ["time", "(s)", "accuracy"]
    best = max(lines[1:], key=lambda line: float(line.split()[1]))
    assert best.split()[0] == "0.02"
    assert float(best.split()[1]) > 0.8
    _, _, said = call(capsys, "over-time", str(tmp_path / "t-epo.fif"), "--alpha", "1")
    assert said.startswith("tracelearn: warning: Expected some weights that are not zero")


def test_what_cannot_be_written_or_has_another_length_is_refused_before_the_work(epochs, capsys):
    with np.load(epochs) as found:
        columns = dict(found)
    np.savez(epochs, few=np.arange(7.0), **columns)
    for option, value, words in (
        ("--plot", "null.jpgg", "got null.jpgg: correct --plot."),
        ("--groups", "few", "80 samples and 7 values"),
        ("--confounds", "few", "80 samples and 7 values"),
    ):
        for command in ("test", "compare", "over-time"):
            code, out, err = call(capsys, command, epochs, "--target", "label", option, value)
            assert code != 0
            assert out == ""
            assert words in err
            assert err.count("\n") == 1
