"""The documentation says what is there, and what it says runs."""

import ast
import doctest
import importlib
import inspect
import re
import runpy
import shlex
from pathlib import Path

import pytest

from tracelearn.cli import main

ROOT = Path(__file__).parents[1]
MODULES = (
    "tracelearn",
    "tracelearn.inference",
    "tracelearn.plotting",
    "tracelearn.report",
    "tracelearn.arrays.tensors",
    "tracelearn.datasets",
    "tracelearn.paper",
)


def documented():
    """List module and name of everything on the page of the API."""
    module, names = "", []
    for line in (ROOT / "docs" / "api.rst").read_text().splitlines():
        if line.startswith(".. currentmodule::"):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line):
            names.append((module, line.strip()))
    return names


@pytest.mark.parametrize(("module", "name"), documented())
def test_every_name_on_the_page_of_the_api_has_an_example_that_runs(module, name):
    found = getattr(importlib.import_module(module), name)
    text = inspect.getdoc(found)
    assert "Examples\n--------" in text
    assert doctest.DocTestParser().get_examples(text)


def test_every_public_name_is_on_the_page_of_the_api():
    public = {(module, name) for module in MODULES for name in importlib.import_module(module).__all__}
    assert public == set(documented())


@pytest.mark.parametrize(
    ("page", "places"),
    [
        ("tools.md", ["tools"]),
        ("files.md", ["sources", "sources_agree", "tables", "long_tables", "mat", "recordings", "places"]),
    ],
)
def test_every_row_of_a_table_names_tests_that_exist(page, places):
    text = "\n".join((ROOT / "tests" / f"test_{place}.py").read_text() for place in places)
    tests = re.findall(r"^def (test_\w+)", text, flags=re.MULTILINE)
    rows = [line for line in (ROOT / "docs" / page).read_text().splitlines() if line.startswith("| ")][1:]
    named = [re.findall(r"`(test_\w+)\*?`", row.rpartition("|")[0].rpartition("|")[2]) for row in rows]
    assert all(named)
    for beginning in {one for row in named for one in row}:
        assert any(test.startswith(beginning) for test in tests), beginning


def test_every_module_and_folder_on_the_page_of_the_architecture_exists():
    source = ROOT / "src" / "tracelearn"
    page = (ROOT / "docs" / "architecture.md").read_text() + (ROOT / "docs" / "images" / "architecture.svg").read_text()
    named = set(re.findall(r"\b(?:\w+/)?\w+\.py\b", page))
    folders = set(re.findall(r"`(\w+)/`", page))
    missing = [name for name in named if not [*source.rglob(name), *(ROOT / "tests").rglob(name)]]
    missing += [name for name in folders if not (source / name).is_dir() and not (ROOT / name).is_dir()]
    assert sorted(missing) == []


def blocks(page):
    """Return the fenced blocks of a page in their order: language and text."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE | re.DOTALL)


def run(line):
    """Run a line of the shell that calls tracelearn, and return its exit code."""
    try:
        main(shlex.split(line)[1:])
    except SystemExit as end:
        return end.code or 0
    return 0


def run_as_pasted(page, folder, monkeypatch):
    """Run the blocks of Python of a page in their order, in a folder of their own, and return the names they leave."""
    monkeypatch.chdir(folder)
    names = {}
    for language, text in blocks(page):
        if language == "python":
            examples = doctest.DocTestParser().get_examples(text)
            source = "".join(example.source for example in examples) if examples else text
            exec(compile(source, page, "exec"), names)
    return names


@pytest.mark.parametrize(
    ("page", "libraries"),
    [
        ("eeg.md", ["mne", "matplotlib"]),
        ("series.md", ["pandas", "matplotlib"]),
        ("images_spectra.md", ["matplotlib"]),
        ("from_mne.md", ["mne", "matplotlib"]),
        ("from_tensorly.md", ["tensorly"]),
    ],
)
@pytest.mark.slow
def test_the_blocks_of_a_page_have_their_imports_and_data(page, libraries, tmp_path, monkeypatch):
    for library in libraries:
        pytest.importorskip(library)
    if "matplotlib" in libraries:
        pytest.importorskip("matplotlib").use("agg")
    assert run_as_pasted(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", ["../README.md", "index.md"])
def test_the_blocks_of_the_first_pages_run_as_they_are_pasted(page, tmp_path, monkeypatch, capsys):
    names = run_as_pasted(page, tmp_path, monkeypatch)
    assert (tmp_path / "digits.html").exists()
    assert float(capsys.readouterr().out.split()[0]) == pytest.approx(0.99, abs=0.01)
    assert names["model"].dual_gap_ <= 1e-6


def test_a_model_can_be_served_as_its_page_says(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("fastapi")
    client_of = pytest.importorskip("fastapi.testclient").TestClient
    names = run_as_pasted("serving.md", tmp_path, monkeypatch)
    client = client_of(names["app"])
    answer = client.post("/predict", json=names["X"][:2].tolist())
    assert answer.json()["labels"] == names["model"].predict(names["X"][:2]).tolist()
    refusal = client.post("/predict", json=[[[1.0, 2.0]]])
    assert refusal.status_code == 422
    assert "Expected samples of shape (8, 8)" in refusal.json()["detail"]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("page", ["tutorial.md", "commands.md"])
@pytest.mark.slow
def test_what_a_page_tells_to_type_can_be_typed(page, tmp_path, monkeypatch):
    pytest.importorskip("typer")
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    names = {}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), names)
        told_error = "\ntracelearn: Expected" in text
        for line in re.findall(r"^\$ (tracelearn .*)", text, flags=re.MULTILINE):
            assert run(line.split(" | ")[0]) == (2 if told_error else 0), line


@pytest.mark.slow
def test_the_pictures_of_the_first_pages_can_be_drawn_from_them(tmp_path):
    for library in ("matplotlib", "mne", "pandas", "xarray"):
        pytest.importorskip(library)
    runpy.run_path(str(ROOT / "docs" / "images" / "draw.py"))["main"](tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {"eeg.png", "series.png", "images_spectra.png"}
    assert drawn <= {path.name for path in (ROOT / "docs" / "images").iterdir()}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_begins_with_a_title_and_a_question(path):
    title, line, _, text = ast.get_docstring(ast.parse(path.read_text())).split("\n", 3)
    assert set(line) == {"="}
    assert len(line) >= len(title)
    assert text.split("\n\n")[0].split(".")[0].count("?") == 1
