"""What was saved is read, and says what it said: models, moments and checkpoints in the files of ``python -m tests.golden``."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from golden.__main__ import answers, samples
from numpy.testing import assert_allclose

from tracelearn import Moments, TraceNormRegressor, load, stream
from tracelearn.cli import main

FOLDERS = sorted(folder for folder in (Path(__file__).parent / "golden").iterdir() if (folder / "run").is_dir())
MODELS = [path for folder in FOLDERS for path in sorted(folder.glob("*.tracelearn")) if path.stem != "moments"]


def test_there_are_golden_files():
    assert len(MODELS) >= 11


@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_model_in_a_file_says_what_it_said(path):
    said = answers(load(path))
    with np.load(path.with_suffix(".npz")) as expected:
        assert set(said) == set(expected)
        for name, values in said.items():
            if values.dtype.kind == "U":
                np.testing.assert_array_equal(values, expected[name])
            else:
                # Another BLAS may add up in another order.
                tolerance = 1e-12 if values.dtype == np.float64 else 1e-6
                assert_allclose(values, expected[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_command_tells_of_a_model_in_a_file(path, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["inspect", str(path)])
    assert (leaving.value.code, capsys.readouterr().err) == (0, "")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_moments_in_a_file_are_those_of_the_same_samples(folder):
    moments, expected = load(folder / "moments.tracelearn"), Moments.of(*samples())
    for name in ("weight", "x_mean", "y_mean", "gram", "cross", "target_sq"):
        assert_allclose(getattr(moments, name), getattr(expected, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_checkpoint_in_a_file_goes_on_to_the_same_model(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    X, y = samples()
    batches = [(X[start : start + 10], y[start : start + 10]) for start in range(0, 40, 10)]
    model = TraceNormRegressor(alpha=0.05, forgetting=0.9)
    report = stream(batches, model, refresh_samples=10, checkpoint=tmp_path / "run", resume=True)
    assert (report.resumed_from, report.n_samples) == (20, 40)
    with np.load(folder / "run.npz") as expected:
        # Solvers stop at a gap of tol = 1e-6, where another BLAS may stop an iteration earlier.
        assert_allclose(model.coef_, expected["coef"], rtol=0, atol=1e-5)
        assert_allclose(model.intercept_, expected["intercept"], rtol=0, atol=1e-5)
