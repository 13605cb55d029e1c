"""The command line and what it cannot trust: labels, names of files, targets of any kind, terminals, its own outputs."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tracelearn import (
    LaggedRegressor,
    Moments,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormRegressor,
    cli,
    load,
    save,
)
from tracelearn.cli.mistakes import printable
from tracelearn.paper import PaperRegressor
from tracelearn.report import evaluation

FAST = ("--alpha", "0.05", "--cv", "2")
rng = np.random.default_rng(0)
X = rng.standard_normal((40, 3, 2))
y = X[:, 0, 0] - X[:, 1, 1]
HIGH = y > 0


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as leaving:
        cli.main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    return leaving.value.code, output.out, output.err


def labelled(low, high):
    return np.array([low, high])[HIGH.astype(int)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", X=X, y=y)
    return tmp_path


# --- labels and names ---------------------------------------------------------------------------------------------------


def test_what_a_terminal_would_obey_is_written_as_escapes():
    assert printable("a\x1b]0;title\x07\x9b2J\x7f\r\n\u202e") == r"a\x1b]0;title\x07\x9b2J\x7f\r\n\u202e"
    assert printable("Größe × ±") == "Größe × ±"
    assert printable("\udcff") == r"\udcff"


def test_escape_sequences_in_labels_never_reach_the_terminal(capsys, folder):
    np.savez("evil.npz", X=X, y=labelled("\x1b[2Jlow", "high\x07"), one=np.full(40, "\x1b[2Jone"))
    shown = [
        call(capsys, "fit", "evil.npz", *FAST, "--out", "model"),
        call(capsys, "inspect", "model"),
        call(capsys, "predict", "model", "evil.npz", "--target", "y"),
        call(capsys, "predict", "model", "evil.npz", "--out", "found.csv"),
        call(capsys, "predict", "model", "data.npz", "--target", "y"),
        call(capsys, "fit", "evil.npz", "--target", "one", *FAST, "--out", "other"),
    ]
    assert [code for code, _, _ in shown] == [0, 0, 0, 0, 2, 2]
    for _, out, err in shown:
        assert not {sign for sign in out + err if not sign.isprintable()} - {"\n"}
    assert r"\x1b[2Jlow" in shown[0][1]
    assert r"\x1b[2Jone" in shown[-1][2]
    assert "\x1b" not in (folder / "found.csv").read_text()


def test_escape_sequences_in_names_of_files_never_reach_the_terminal(capsys, folder):
    name = "evil\x1b[2J.npz"
    np.savez(name, X=X, y=y)
    shown = [
        call(capsys, "fit", f"no{name}"),
        call(capsys, "fit", name, *FAST, "--out", "a\x1b[1m"),
        call(capsys, "predict", "a\x1b[1m", name, "--out", "b\x1b[1m.csv"),
        call(capsys, "merge", "a\x1b[1m", "--out", "c\x1b[1m"),
        call(capsys, "inspect", "a\x1b[1m", "--html", "d\x1b[1m", "--data", name),
    ]
    assert [code for code, _, _ in shown] == [2, 0, 0, 0, 0]
    assert all("\x1b" not in out + err for _, out, err in shown)
    assert os.path.exists("b\x1b[1m.csv")


@pytest.mark.parametrize("start", list("=+-@\t\r\n＝＋－＠"))
def test_no_label_is_a_formula_in_a_table(capsys, folder, start):
    save(TraceNormClassifier().fit(X, labelled(f"{start}1+1", "high")), "model")
    code, out, _ = call(capsys, "predict", "model", "data.npz")
    assert code == 0
    call(capsys, "predict", "model", "data.npz", "--out", "found.csv")
    assert (folder / "found.csv").read_text() == out
    found = {row["prediction"] for row in csv.DictReader(io.StringIO(out))}
    assert found == {f"'{printable(start)}1+1", "high"}
    call(capsys, "predict", "model", "data.npz", "--out", "found.npy")
    assert set(np.load("found.npy")) == {f"{start}1+1", "high"}


def test_names_of_modes_are_no_markup(capsys, folder):
    code, _, err = call(capsys, "fit", "data.npz", *FAST, "--out", "model", "--mode-names", "[/b],[red]x")
    assert (code, err) == (0, "")
    for arguments in (("inspect", "model"), ("inspect", "model", "--mode-names", "[/i],[blue]y")):
        code, out, err = call(capsys, *arguments)
        assert (code, err) == (0, "")
        assert "[/" in out


def test_numbers_below_zero_stay_numbers_in_a_table(capsys, folder):
    model = TraceNormRegressor().fit(X, y)
    save(model, "model")
    rows = list(csv.DictReader(io.StringIO(call(capsys, "predict", "model", "data.npz")[1])))
    assert [float(row["prediction"]) for row in rows] == model.predict(X).tolist()


def test_lone_surrogates_in_names_and_labels_are_written_as_escapes(capsys, folder):
    name = "data\udcff.npz"
    np.savez(name, X=X, y=labelled("low\udcff", "high"))
    code, out, err = call(capsys, "fit", name, *FAST, "--out", "model\udcff", "--html", "page\udcff")
    assert (code, err) == (0, "")
    assert r"low\udcff" in out
    assert r"data\udcff.npz" in (folder / "page\udcff").read_text()
    for arguments in (
        ("predict", "model\udcff", name, "--out", "found\udcff.csv"),
        ("predict", "model\udcff", name),
        ("inspect", "model\udcff"),
        ("inspect", "model\udcff", "--json"),
        ("merge", "model\udcff", "--out", "merged\udcff"),
    ):
        code, out, err = call(capsys, *arguments)
        assert code == 0, arguments
        (out + err).encode()
    assert r"low\udcff" in (folder / "found\udcff.csv").read_text()
    code, _, err = call(capsys, "fit", "missing\udcff.npz")
    assert (code, err.count("\n")) == (2, 1)


def test_where_only_ascii_can_be_written_the_rest_is_escaped(folder, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    for arguments in (("fit", "data.npz", *FAST), ("inspect", "model.tracelearn"), ("fit", "größe.npz"), ("--help",)):
        with pytest.raises(SystemExit) as leaving:
            cli.main(list(arguments))
        assert leaving.value.code == (2 if "größe.npz" in arguments else 0)
    sys.stdout.flush()
    assert rb"3 \xd7 2" in written.getvalue()


# --- targets ------------------------------------------------------------------------------------------------------------


def test_labels_that_are_bytes_are_text(capsys, folder):
    np.savez("bytes.npz", X=X, raw=np.where(HIGH, "größe".encode(), b"low"))
    code, out, err = call(
        capsys, "fit", "bytes.npz", "--target", "raw", *FAST, "--out", "model", "--json", "--html", "page"
    )
    assert (code, err) == (0, "")
    assert set(json.loads(out)["classes"]) == {"größe", "low"}
    assert load("model").classes_.tolist() == ["größe", "low"]
    code, out, err = call(capsys, "predict", "model", "bytes.npz", "--target", "raw")
    assert code == 0
    assert {row["prediction"] for row in csv.DictReader(io.StringIO(out))} == {"größe", "low"}
    accuracy = float(err.split("accuracy ")[1])
    assert accuracy == pytest.approx(np.mean(load("model").predict(X) == np.where(HIGH, "größe", "low")), abs=1e-4)
    assert call(capsys, "inspect", "model", "--html", "p", "--data", "bytes.npz", "--target", "raw")[0] == 0
    code, _, err = call(
        capsys, "stream", "bytes.npz", "--target", "raw", "--checkpoint", "kept", "--out", "streamed", "--quiet"
    )
    assert (code, err) == (0, "")
    assert load("streamed").classes_.tolist() == ["größe", "low"]


def test_labels_that_are_bytes_with_samples_beyond_memory_are_refused_in_one_sentence(capsys, folder, monkeypatch):
    np.savez("bytes.npz", X=X, raw=np.where(HIGH, b"high", b"low"))
    monkeypatch.setattr(evaluation, "available_memory", lambda: 1000)
    code, out, err = call(capsys, "fit", "bytes.npz", "--target", "raw", *FAST)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "bytes" in err


@pytest.mark.parametrize("command", ["fit", "stream", "predict", "inspect"])
@pytest.mark.parametrize("columns", [1, 2])
def test_two_columns_of_labels_are_refused_in_one_sentence(capsys, folder, command, columns):
    np.savez("both.npz", X=X, y=np.stack([labelled("low", "high")] * columns, axis=1))
    save(TraceNormClassifier().fit(X, labelled("low", "high")), "model")
    code, out, err = call(
        capsys,
        *{
            "fit": ("fit", "both.npz", *FAST),
            "stream": ("stream", "both.npz", "--checkpoint", "kept"),
            "predict": ("predict", "model", "both.npz", "--target", "y"),
            "inspect": ("inspect", "model", "--html", "page", "--data", "both.npz"),
        }[command],
    )
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"(40, {columns})" in err


# --- models of other kinds ----------------------------------------------------------------------------------------------


def test_of_a_model_of_the_paper_is_told_what_it_has(capsys, folder):
    save(PaperRegressor(max_iter=20, eps1=1.0, eps2=1.0).fit(X, y), "model")
    code, out, err = call(capsys, "inspect", "model")
    assert (code, err) == (0, "")
    assert "PaperRegressor" in out
    assert "3 × 2" in out
    code, out, err = call(capsys, "inspect", "model", "--html", "page")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_of_a_model_of_recordings_is_told_what_it_has_and_it_predicts_no_single_samples(capsys, folder):
    np.savez("times.npz", X=X[:, :, 0], y=y)
    save(LaggedRegressor(2).fit(X[:, :, 0], y), "model")
    code, out, err = call(capsys, "inspect", "model", "--mode-names", "lag,channel")
    assert (code, err) == (0, "")
    assert "LaggedRegressor" in out
    assert "2 × 3" in out
    code, _, err = call(capsys, "inspect", "model", "--html", "page")
    assert (code, err) == (0, "")
    assert "LaggedRegressor" in Path("page").read_text()
    # Blocks of a file would be predicted as if each began a recording.
    for arguments in (
        ["predict", "model", "times.npz"],
        ["inspect", "model", "--html", "other", "--data", "times.npz"],
    ):
        code, out, err = call(capsys, *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "recordings" in err


@pytest.mark.parametrize(("name", "value"), [("dual_gap_", "small"), ("patterns_", np.ones(3))])
@pytest.mark.parametrize("more", [(), ("--html", "page")])
def test_a_model_of_other_parts_than_save_writes_is_one_sentence(capsys, folder, name, value, more):
    model = TraceNormRegressor().fit(X, y)
    setattr(model, name, value)
    save(model, "model")
    code, out, err = call(capsys, "inspect", "model", *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("tracelearn: Expected a model as save writes it, got one in model that cannot be used")


# --- outputs that are inputs ----------------------------------------------------------------------------------------------


def write_zarr(folder):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(folder / "data.zarr"), mode="w")
    group.create_array("X", data=X)
    group.create_array("y", data=y)


@pytest.mark.parametrize(
    "arguments",
    [
        "fit data.npz --out data.npz",
        "fit data.npz --out hard.npz",
        "fit data.npz --out soft.npz",
        "fit soft.npz --out data.npz",
        "fit data.npz --html data.npz",
        "fit data.npz --html soft.npz",
        "fit data.npz --out same --html same",
        "fit X.npy --target y.npy --out y.npy",
        "fit data.zarr --out data.zarr/zarr.json",
        "fit data.zarr --out data.zarr/X/new",
        "fit data.zarr --html into/zarr.json",
        "predict model data.npz --out soft.npz",
        "predict model X.npy --target y.npy --out y.npy",
        "predict model.npz data.npz --out model.npz",
        "inspect model --html model",
        "inspect model --html data.npz --data data.npz",
        "merge model --out model",
        "merge other --minus model --out model",
        "stream data.npz --checkpoint kept --out data.npz",
        "stream data.npz --checkpoint kept --figure data.png",
        "stream data.zarr --checkpoint data.zarr",
        "stream data.zarr --checkpoint data.zarr/kept",
        "fit X.npy --target t.npz:y --out t.npz",
        "fit X.npy --target t.npz:y --html t.npz",
        "fit data.npz --groups g.npy --out g.npy",
        "fit data.npz --confounds c.npy,t.npz:y --out t.npz",
        "fit v.nii --mask m.nii --target y.npy --out m.nii",
        "fit file://HERE/data.npz --out data.npz",
        "predict model X.npy --target t.npz:y --out t.npz",
        "predict model data.npz --confounds c.npy --out c.npy",
        "inspect model --html t.npz --data X.npy --target t.npz:y",
        "stream X.npy --target t.npz:y --checkpoint kept --out t.npz",
        "test data.npz --plot data.png",
        "compare data.npz --groups g.npy --plot g.png",
        "over-time X.npy --target t.npz:y --plot t.png",
    ],
)
def test_an_output_that_is_an_input_is_refused_whatever_the_force(capsys, folder, arguments):
    write_zarr(folder)
    np.save("X.npy", X)
    np.save("y.npy", y)
    os.link("data.npz", "hard.npz")
    os.symlink("data.npz", "soft.npz")
    os.symlink("data.npz", "data.png")
    os.symlink("data.zarr", "into")
    for name in ("g.npy", "c.npy", "m.nii", "v.nii"):
        np.save(open(name, "wb"), y)
    np.savez("t.npz", y=y)
    os.symlink("g.npy", "g.png")
    os.symlink("t.npz", "t.png")
    for name in ("model", "model.npz", "other"):
        save(TraceNormRegressor().fit(X, y), name)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    force = () if "--checkpoint data.zarr" in arguments else ("--force",)
    code, out, err = call(capsys, *arguments.replace("HERE", str(folder)).split(), *force)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Expected another file or folder" in err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_an_output_next_to_an_input_is_written(capsys, folder):
    write_zarr(folder)
    code, _, err = call(capsys, "fit", "data.zarr", *FAST, "--out", "data.zarr.model", "--html", "data.zarr.html")
    assert (code, err) == (0, "")


# --- warnings, iterations, time -----------------------------------------------------------------------------------------


def test_a_warning_says_which_fit_it_is_about_and_iterations_are_an_option(capsys, folder):
    few = ("--alpha", "1e-3", "--cv", "3", "--loss", "huber", "--max-iter", "1")
    code, _, err = call(capsys, "fit", "data.npz", *few, "--out", "model")
    assert code == 0
    assert load("model").max_iter == 1
    starts = [line.split(": Expected")[0] for line in err.splitlines()]
    assert starts[0] == "tracelearn: the fit to all samples"
    assert set(starts[1:]) == {"tracelearn: a fit without one of the folds"}
    code, _, err = call(capsys, "fit", "data.npz", *few[:-1], "1000", "--out", "better")
    assert (code, err) == (0, "")
    code, _, err = call(capsys, "fit", "data.npz", "--max-iter", "0")
    assert (code, err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["fit", "--help"],
        ["fit", "--colour"],
        ["fit", "missing.npz"],
        ["fit", "text.txt"],
        ["fit", "data.npz", "--target", "z"],
        ["fit", "data.npz", "--alpha", "much"],
        ["fit", "data.npz", "--out", "nowhere/model"],
        ["predict", "missing", "data.npz"],
        ["predict", "saved", "missing.npz"],
        ["inspect", "missing"],
        ["inspect", "data.npz"],
        ["merge", "missing", "--out", "new"],
        ["stream", "missing.npz", "--checkpoint", "kept"],
    ],
)
def test_help_and_mistakes_wait_for_no_library_that_computes(folder, arguments):
    (folder / "text.txt").write_text("no samples")
    save(Moments.of(X.reshape(len(X), -1), y), "saved")
    code = (
        "import sys; from tracelearn.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    slow = {'scipy', 'sklearn', 'matplotlib', 'skops', 'joblib', 'pandas', 'dask'} & set(sys.modules)\n"
        "    print('imported', sorted(slow))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == (0 if {"--help", "--version"} & set(arguments) else 2), done.stderr
    assert done.stdout.splitlines()[-1] == "imported []"


@pytest.mark.slow
def test_the_list_of_commands_says_of_each_what_its_own_page_says(capsys):
    listing = " ".join(call(capsys, "--help")[1].replace("│", " ").split())
    for name in ("fit", "predict", "inspect", "stream", "merge", "test", "compare", "over-time"):
        paragraphs = re.split(r"\n\s*\n", call(capsys, name, "--help")[1].strip())
        assert " ".join(paragraphs[1].split()) in listing


def test_a_search_has_a_page(capsys, folder):
    save(TensorRegressor(alphas=2, cv=2, views=None).fit(X, y), "model")
    code, _, err = call(capsys, "inspect", "model", "--html", "page", "--data", "data.npz")
    assert (code, err) == (0, "")
    assert "TensorRegressor" in Path("page").read_text()
