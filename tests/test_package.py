"""The package itself: what it imports, what it exports, what it says of itself."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import tracelearn

ROOT = Path(__file__).parents[1]

OPTIONAL = [
    "torch",
    "matplotlib",
    "typer",
    "rich",
    "dask",
    "cupy",
    "jax",
    "zarr",
    "pyarrow",
    "h5py",
    "cvxpy",
    "onnx",
]


def test_importing_it_imports_no_optional_library():
    # scikit-learn itself loads some of them where it finds them (rich, pandas): what counts is what we add.
    code = """
import json, sys
import scipy.linalg, sklearn.base, sklearn.model_selection, sklearn.utils.estimator_checks
before = set(sys.modules)
import tracelearn
print(json.dumps(sorted(name for name in set(sys.modules) - before if "." not in name)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "tracelearn" in loaded
    assert loaded.isdisjoint(OPTIONAL), loaded.intersection(OPTIONAL)


def test_importing_it_says_nothing():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import tracelearn"], capture_output=True, text=True, check=True
    )
    assert done.stdout == done.stderr == ""


@pytest.mark.parametrize("name", tracelearn.__all__)
def test_a_public_name_can_be_imported_and_is_documented(name):
    assert getattr(tracelearn, name).__doc__


def test_the_version_is_one():
    assert tracelearn.__version__ == metadata.version("tracelearn")
    assert tracelearn.__version__.count(".") >= 2


def test_types_are_shipped():
    assert (Path(tracelearn.__file__).parent / "py.typed").exists()


def read_recipe():
    """Read the recipe of conda with its variable, the oldest Python, filled in."""
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with Dask")
    text = (ROOT / "recipe" / "recipe.yaml").read_text()
    return yaml.safe_load(text.replace("${{ python_min }}", yaml.safe_load(text)["context"]["python_min"]))


def test_the_recipe_and_the_citation_say_what_the_package_says():
    recipe, yaml = read_recipe(), pytest.importorskip("yaml", reason="PyYAML comes with Dask")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert recipe["context"]["version"] == citation["version"] == tracelearn.__version__
    assert recipe["about"]["license"] == citation["license"] == project["license"]
    wanted = [f"python{project['requires-python']}", *project["dependencies"], *project["optional-dependencies"]["cli"]]
    assert [one.replace(" ", "") for one in recipe["requirements"]["run"]] == wanted
    assert {one.replace(" ", "") for one in recipe["requirements"]["host"]} >= set(settings["build-system"]["requires"])
    commands = [" = ".join(one) for one in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands


def test_the_recipe_has_the_keys_of_its_format():
    # Of https://github.com/conda/ceps/blob/main/cep-0014.md, as far as they are used here.
    known = {
        "": {"schema_version", "context", "package", "source", "build", "requirements", "tests", "about"},
        "package": {"name", "version"},
        "source": {"path", "url", "sha256", "git"},
        "build": {"number", "string", "noarch", "script", "python", "skip"},
        "requirements": {"build", "host", "run", "run_constraints"},
        "about": {"homepage", "license", "license_file", "summary", "description", "documentation", "repository"},
    }
    recipe = read_recipe()
    assert recipe["schema_version"] == 1
    for part, keys in known.items():
        assert set(recipe[part] if part else recipe) <= keys, part
    assert recipe["build"]["noarch"] == "python"
    assert {"python", "pip"} <= {one.split()[0] for one in recipe["requirements"]["host"]}
    assert all(set(test) in ({"python"}, {"script"}) for test in recipe["tests"])
    assert (ROOT / recipe["about"]["license_file"]).exists()
    assert (ROOT / "recipe" / recipe["source"]["path"] / "pyproject.toml").exists()
    # As conda-forge asks: built and tested with the oldest Python, and tested with the newest.
    assert "python 3.11.*" in recipe["requirements"]["host"]
    assert recipe["tests"][0]["python"]["python_version"] == ["3.11.*", "*"]


def test_the_oldest_versions_that_are_tested_are_those_that_are_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    lowest = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?>=([\d.]+)", "\n".join(reversed(asked)), flags=re.MULTILINE))
    tested = re.findall(r"^([\w-]+)==([\d.]+)", (ROOT / "tests/versions/oldest.txt").read_text(), flags=re.MULTILINE)
    assert len(tested) > 10
    for name, version in tested:
        assert version.removesuffix(".0").removesuffix(".0") == lowest[name].removesuffix(".0"), name
