"""fit, predict and inspect: what they print, what they leave on disk, how they end."""

import csv
import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tracelearn import (
    HierarchicalTraceNormClassifier,
    ModePCA,
    Moments,
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormRegressor,
    cli,
    load,
    save,
)
from tracelearn.cli import learning
from tracelearn.io.model_header import FORMAT
from tracelearn.report import evaluation

FAST = ("--alpha", "0.05", "--cv", "3")


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as leaving:
        cli.main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    return leaving.value.code, output.out, output.err


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 4, 3, 2))
    y = X[:, 0, 0, 0] - X[:, 1, 1, 0] + 0.3 * rng.standard_normal(150)
    broken = X.copy()
    broken[7, 1, 2, 0] = np.nan
    return {
        "X": X,
        "y": y,
        "label": np.where(y > 0, "up", "down"),
        "three": np.digitize(y, [-0.7, 0.7]),
        "both": np.stack([y, -y], axis=1),
        "zero_one": (y > 0).astype(float),
        "halves": 0.5 * (y > 0),
        "who": np.arange(150) % 6,
        "two": np.arange(150) % 2,
        "rare": np.array(["a"] * 149 + ["b"]),
        "same": np.ones(150, dtype=int),
        "flat": X.reshape(150, -1),
        "broken": broken,
        "small": X[:, :2],
        "gap": np.where(np.arange(150) == 3, np.nan, y),
        "object": np.array([None] * 150, dtype=object),
    }


@pytest.fixture
def folder(tmp_path, monkeypatch, arrays):
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "data.npz", **arrays)
    (tmp_path / "text.npz").write_text("no arrays")
    (tmp_path / "exists").write_text("mine")
    return tmp_path


# --- fit ---------------------------------------------------------------------------------------------------------------


def write_npy(path, arrays):
    np.save(path / "X.npy", arrays["X"])
    np.save(path / "y.npy", arrays["label"])
    return "X.npy", "y.npy"


def write_zarr(path, arrays):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(path / "data.zarr"), mode="w")
    for name in ("X", "three"):
        group.create_array(name, data=arrays[name])
    return "data.zarr", "three"


def write_hdf5(path, arrays):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "data.h5", "w") as file:
        file["X"] = arrays["X"]
        file["label"] = [str(label) for label in arrays["label"]]
    return "data.h5", "label"


def write_parquet(path, arrays):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    X = pa.FixedShapeTensorArray.from_numpy_ndarray(arrays["X"])
    parquet.write_table(pa.table({"X": X, "label": arrays["label"].tolist()}), path / "data.parquet")
    return "data.parquet", "label"


def write_npz(path, arrays):
    return "data.npz", "label"


@pytest.mark.parametrize("write", [write_npz, write_npy, write_zarr, write_hdf5, write_parquet])
def test_every_format_is_fitted_and_predicted(capsys, folder, arrays, write):
    data, target = write(folder, arrays)
    code, out, err = call(capsys, "fit", data, "--target", target, *FAST, "--out", "model")
    assert (code, err) == (0, "")
    assert "4 × 3 × 2" in out
    assert "150" in out
    y = arrays["three" if target == "three" else "label"]
    wanted = TraceNormClassifier(alpha=0.05).fit(arrays["X"], y)
    np.testing.assert_allclose(load("model").coef_, wanted.coef_)
    code, out, _ = call(capsys, "predict", "model", data, "--target", target, "--out", "found.npy")
    assert code == 0
    assert f"150 samples predicted, accuracy {wanted.score(arrays['X'], y):.4f}: found.npy" in out
    np.testing.assert_array_equal(np.load("found.npy"), wanted.predict(arrays["X"]))


@pytest.mark.parametrize(
    ("target", "more", "kind", "why"),
    [
        ("y", [], TraceNormRegressor, "150 different decimal numbers"),
        ("both", [], TraceNormRegressor, "several numbers"),
        ("label", [], TraceNormClassifier, "text"),
        ("three", [], TraceNormClassifier, "3 different whole numbers"),
        ("three", ["--task", "regression"], TraceNormRegressor, "--task regression"),
        ("zero_one", [], TraceNormClassifier, "2 different whole numbers"),
        ("zero_one", ["--task", "regression"], TraceNormRegressor, "--task regression"),
        ("halves", [], TraceNormRegressor, "2 different decimal numbers"),
        ("y", ["--loss", "huber", "--ridge", "0.1"], TraceNormRegressor, "decimal"),
        ("three", ["--loss", "log_loss", "--target-mode"], TraceNormClassifier, "whole"),
        ("label", ["--penalty", "latent"], TraceNormClassifier, "text"),
        ("label", ["--samples", "flat", "--tensor-shape", "4,3,2"], TraceNormClassifier, "text"),
    ],
)
def test_labels_get_a_classifier_and_numbers_a_regressor(capsys, folder, target, more, kind, why):
    code, out, err = call(capsys, "fit", "data.npz", "--target", target, *FAST, *more)
    assert (code, err) == (0, "")
    first = out.splitlines()[0]
    assert ("classifier" if kind is TraceNormClassifier else "regressor") in first
    assert why in out
    model = load("model.tracelearn")
    assert type(model) is kind
    assert model.sample_shape_ == (4, 3, 2)


def test_json_is_one_object_with_the_facts(capsys, folder, arrays):
    code, out, err = call(capsys, "fit", "data.npz", "--target", "label", "--cv", "3", "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    facts = json.loads(out)
    model = load("model.tracelearn")
    assert type(model) is TensorClassifier
    assert (model.cv, model.verbose) == (3, 0)
    assert facts["n_samples"] == 150
    assert facts["sample_shape"] == [4, 3, 2]
    labels, counts = np.unique(arrays["label"], return_counts=True)
    assert facts["classes"] == dict(zip(labels.tolist(), counts.tolist(), strict=True))
    assert facts["alpha"] == model.alpha_
    assert facts["views_taken"] == list(model.views_)
    assert (facts["loss"], facts["ridge"]) == (model.loss_, model.ridge_)
    assert facts["dual_gap"] == model.dual_gap_ <= 1e-6
    assert facts["score"]["baseline"] < facts["score"]["mean"] < 1.0
    assert facts["file"] == "model.tracelearn"


def test_the_score_is_that_of_samples_that_were_held_out(capsys, folder):
    # Labels drawn at random, and more weights than samples: the model knows all it has seen, and nothing else.
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((60, 10, 10)), np.arange(60) % 2
    np.savez("noise.npz", X=X, y=y)
    code, out, _ = call(capsys, "fit", "noise.npz", "--alpha", "1e-4", "--json")
    assert code == 0
    score = json.loads(out)["score"]
    assert load("model.tracelearn").score(X, y) == 1.0
    assert score["mean"] < 0.75
    assert score["baseline"] == 0.5
    assert score["measure"] == "accuracy"


def test_the_score_agrees_with_scikit_learn(capsys, folder, arrays):
    model_selection = pytest.importorskip("sklearn.model_selection")
    folds = {"shuffle": True, "random_state": 0}
    for target, model, cv in (
        ("y", TraceNormRegressor(alpha=0.05), model_selection.KFold(3, **folds)),
        ("label", TraceNormClassifier(alpha=0.05), model_selection.StratifiedKFold(3, **folds)),
    ):
        wanted = model_selection.cross_val_score(model, arrays["X"], arrays[target], cv=cv)
        _, out, _ = call(capsys, "fit", "data.npz", "--target", target, *FAST, "--json", "--force")
        score = json.loads(out)["score"]
        assert score["mean"] == pytest.approx(wanted.mean(), abs=1e-9)
        assert score["standard_error"] == pytest.approx(wanted.std(ddof=1) * np.sqrt(1 / 3 + 1 / 2), abs=1e-9)


def test_rows_sorted_by_the_target_are_scored_as_in_any_order(capsys, folder, rng):
    X = rng.standard_normal((60, 12))
    y = X @ rng.standard_normal(12) + 0.5 * rng.standard_normal(60)
    order = np.argsort(y)
    np.savez("sorted.npz", X=X[order], y=y[order])
    score = json.loads(call(capsys, "fit", "sorted.npz", "--json")[1])["score"]
    assert score["mean"] > 0.7
    assert abs(score["baseline"]) < 0.2


def test_the_command_finds_the_model_of_python(capsys, folder, arrays):
    call(capsys, "fit", "data.npz", "--target", "label", "--groups", "who", "--cv", "3", "--json")
    found = TensorClassifier(cv=3).fit(arrays["X"], arrays["label"], groups=arrays["who"])
    ours = load("model.tracelearn")
    assert list(ours.views_) == list(found.views_)
    assert (ours.alpha_, ours.ridge_) == (found.alpha_, found.ridge_)
    np.testing.assert_allclose(ours.coef_, found.coef_)


def test_groups_stay_together(capsys, folder, arrays):
    code, out, err = call(capsys, "fit", "data.npz", "--target", "y", "--groups", "who", "--cv", "3", "--json")
    assert (code, err) == (0, "")
    assert type(load("model.tracelearn")) is TensorRegressor
    assert json.loads(out)["score"]["measure"] == "R2"
    # Of fewer groups than folds each is held out once, as the estimators do.
    code, out, _ = call(capsys, "fit", "data.npz", "--groups", "two", "--alpha", "0.1", "--force", "--json")
    assert (code, json.loads(out)["score"]["folds"]) == (0, 2)


@pytest.mark.parametrize(
    "more", [["--alpha", "0.05"], ["--loss", "log_loss", "--alpha", "0.05"], ["--loss", "squared_error"]]
)
@pytest.mark.slow
def test_samples_beyond_memory_give_the_same_model(capsys, folder, monkeypatch, more):
    arguments = ["fit", "data.npz", "--target", "label", "--groups", "who", "--cv", "3", "--json", *more]
    whole = json.loads(call(capsys, *arguments, "--out", "whole")[1])
    monkeypatch.setattr(evaluation, "available_memory", lambda: 1000)
    blocks = json.loads(call(capsys, *arguments, "--out", "blocks")[1])
    # A search may end elsewhere on a flat curve of scores, where samples are read again for each of them.
    is_search = "--alpha" not in more
    np.testing.assert_allclose(load("whole").coef_, load("blocks").coef_, atol=5e-2 if is_search else 1e-4)
    assert blocks["score"]["mean"] == pytest.approx(whole["score"]["mean"], abs=0.03 if is_search else 1e-6)


@pytest.mark.parametrize(
    ("target", "more", "kind", "wanted"),
    [
        ("label", [], TensorClassifier, {"loss": "auto", "views": "auto"}),
        ("label", ["--loss", "log_loss"], TensorClassifier, {"loss": "log_loss"}),
        ("label", ["--alpha", "0.05"], TraceNormClassifier, {"loss": "squared_error", "ridge": 0.0, "alpha": 0.05}),
        ("label", ["--alpha", "0.05", "--ridge", "2"], TraceNormClassifier, {"loss": "squared_error", "ridge": 2.0}),
        ("y", [], TensorRegressor, {"loss": "squared_error"}),
        ("y", ["--alpha", "0.05"], TraceNormRegressor, {"loss": "squared_error", "ridge": 0.0}),
    ],
)
@pytest.mark.slow
def test_what_is_not_given_is_searched_with_alpha(capsys, folder, target, more, kind, wanted):
    code, out, err = call(capsys, "fit", "data.npz", "--target", target, "--cv", "2", *more)
    assert (code, err) == (0, "")
    model = load("model.tracelearn")
    assert type(model) is kind
    assert {name: getattr(model, name) for name in wanted} == wanted
    shown = dict(re.findall(r"^(\S.*?)  +(.*?) *$", out, re.M))
    assert shown["loss"] == getattr(model, "loss_", model.loss)


@pytest.mark.parametrize(
    ("more", "called"),
    [
        (["--target", "label"], ["channel", "time", "band"]),
        (["--target", "label", "--samples", "flat", "--tensor-shape", "4,3,2"], ["channel", "time", "band"]),
        (["--target", "three", "--target-mode"], ["class", "channel", "time", "band"]),
        (["--target", "both", "--target-mode"], ["target", "channel", "time", "band"]),
    ],
)
def test_modes_are_called_by_their_names_without_a_page_too(capsys, folder, more, called):
    names = ("--mode-names", "channel, time,band")
    code, out, err = call(capsys, "fit", "data.npz", *FAST, *more, *names, "--out", "model")
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    found = re.findall(r"(\d+)(?: components?)? of (\w+)", re.search(r" components (\d.*?) carry 99 % ", words)[1])
    assert [name for _, name in found] == called
    code, out, err = call(capsys, "inspect", "model", *names)
    assert (code, err) == (0, "")
    assert re.search(r" components (\d.*?) carry 99 % ", " ".join(out.split()))[1] in words
    assert re.findall(r"^mode (\w+) +[▁▂▃▄▅▆▇█]", out, re.M) == called
    facts = json.loads(call(capsys, "inspect", "model", *names, "--json")[1])
    assert facts["mode_names"] == called
    assert facts["components"] == [int(count) for count, _ in found]


def test_singular_values_below_rounding_are_shown_as_zero(capsys, folder):
    model = TraceNormRegressor(alpha=0.1).fit(np.load("data.npz")["X"], np.load("data.npz")["y"])
    model.coef_ = 3.0 * np.einsum("a,b,c->abc", np.eye(4)[0], np.eye(3)[0], np.eye(2)[0])
    model.coef_[1, 1, 1] = 1e-16
    save(model, "model")
    out = call(capsys, "inspect", "model")[1]
    assert re.search(r"^mode 0 +[▁▂▃▄▅▆▇█]+ +3 0 0 0 *$", out, re.M)


def test_table_and_page_report_one_score_with_one_error(capsys, folder):
    asked = ("fit", "data.npz", "--groups", "who", "--cv", "3", "--html", "page.html", "--out", "model", "--json")
    code, out, err = call(capsys, *asked)
    assert (code, err) == (0, "")
    score, model = json.loads(out)["score"], load(folder / "model")
    page = (folder / "page.html").read_text()
    mean, error = f"{score['mean']:.3f}".replace("-", "−"), f"{score['standard_error']:.3f}"
    assert f"{mean} ± {error}" in page
    assert f"mean alone {score['baseline']:.3f}".replace("-", "−") in page
    assert "n = 150 in 6 groups" in page
    assert "held out whole groups" in page
    # A page that is made later knows the score of the search alone.
    assert call(capsys, "inspect", "model", "--html", "again.html")[0] == 0
    assert f"± {model.best_score_se_:.4f}"[:7] in (folder / "again.html").read_text()


def test_modes_without_names_count_from_0_in_tables_pages_figures_and_errors(capsys, folder):
    code, out, err = call(
        capsys, "fit", "data.npz", *FAST, "--target", "label", "--html", "page.html", "--out", "model"
    )
    assert (code, err) == (0, "")
    assert "of mode 0," in " ".join(out.split())
    out = call(capsys, "inspect", "model")[1]
    assert re.findall(r"^(mode \d) +[▁▂▃▄▅▆▇█]", out, re.M) == ["mode 0", "mode 1", "mode 2"]
    assert "mode 3" not in out
    page = (folder / "page.html").read_text()
    assert "mode 0" in page
    assert "mode 3" not in page
    model = load(folder / "model")
    pytest.importorskip("matplotlib", reason="figures")
    from tracelearn.plotting import ModeFactorsDisplay

    assert [ax.get_xlabel() for ax in ModeFactorsDisplay.from_estimator(model).axes_] == ["mode 0", "mode 1", "mode 2"]
    with pytest.raises(ValueError, match="coordinates for mode 0"):
        ModeFactorsDisplay.from_estimator(model, coordinates=[[1, 2], None, None])


def test_views_are_chosen_and_told(capsys, folder):
    rng = np.random.default_rng(0)
    X, label = rng.standard_normal((90, 3, 40)), np.where(np.arange(90) % 2, "up", "down")
    X[:, 1] *= np.where(label == "up", 2.0, 1.0)[:, None]
    np.savez(folder / "signals.npz", X=X, y=label)
    asked = ("fit", "signals.npz", "--views", "raw,second_order", "--time-axis", "-1", "--cv", "3", "--out", "seen")
    code, out, err = call(capsys, *asked, "--html", "seen.html")
    words = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "the strongest is largest at channel 1, and more of it makes up more likely" in words
    model = load(folder / "seen")
    assert ([name for name, _ in model.views], model.time_axis) == (["raw", "second_order"], -1)
    assert list(model.views_) == ["second_order"]
    assert "Views of a sample" in (folder / "seen.html").read_text()
    facts = json.loads(call(capsys, *asked, "--force", "--json")[1])
    told = json.loads(call(capsys, "inspect", "seen", "--json")[1])
    assert facts["views"] == told["views"]
    assert facts["weights_of"] == told["weights_of"] == "views"
    assert sum(view["share"] for view in told["views"]) == pytest.approx(1.0)
    assert "second order, values" in call(capsys, "inspect", "seen")[1]
    named = ["--mode-names", "sensor,time (s)", "--time-axis", "time"]
    assert call(capsys, *asked, "--force", *named)[0] == 0
    assert load(folder / "seen").time_axis == 1
    assert [mode.name for mode in load(folder / "seen").modes_] == ["sensor", "time"]
    for options in (["--alpha", "1"], ["--time-axis", "last"], ["--views", "second_ordre"], ["--ridge", "1"]):
        code, out, err = call(capsys, "fit", "signals.npz", "--views", "raw", "--out", "none", *options)
        assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("names", ["channel,time", "channel,time,band,more", "channel,,band", "time,time,band"])
@pytest.mark.parametrize("more", [[], ["--html", "page"]])
def test_names_that_do_not_fit_are_refused_before_anything_is_read(capsys, folder, monkeypatch, names, more):
    monkeypatch.setattr(learning, "read_samples", lambda *args: pytest.fail("samples were read"))
    code, out, err = call(capsys, "fit", "data.npz", *FAST, *more, "--mode-names", names)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Expected 3 different names, separated by commas, for samples of shape 4 × 3 × 2" in err
    assert repr(names) in err
    assert not {"model.tracelearn", "page"} & {file.name for file in folder.iterdir()}


def test_names_without_modes_to_name_are_refused(capsys, folder, arrays):
    save(Moments.of(arrays["X"], arrays["y"]), "moments")
    code, out, err = call(capsys, "inspect", "moments", "--mode-names", "channel,time,band")
    assert (code, out) == (2, "")
    assert "Expected a fitted model for --mode-names, got Moments: leave them out." in err


def test_quiet_is_silent(capsys, folder):
    assert call(capsys, "fit", "data.npz", *FAST, "--quiet") == (0, "", "")
    assert type(load("model.tracelearn")) is TraceNormRegressor


def test_where_there_is_no_terminal_there_are_no_control_characters(capsys, folder):
    code, out, err = call(capsys, "fit", "data.npz", *FAST)
    assert (code, err) == (0, "")
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", out)
    assert " left" not in out
    assert "scoring" not in out


def test_a_model_that_is_there_is_replaced_only_by_force(capsys, folder):
    code, out, err = call(capsys, "fit", "data.npz", *FAST, "--out", "exists")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--force" in err
    assert (folder / "exists").read_text() == "mine"
    assert call(capsys, "fit", "data.npz", *FAST, "--out", "exists", "--force")[0] == 0
    assert type(load("exists")) is TraceNormRegressor


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit"], "data"),
        (["fit", "missing.npz"], "missing.npz"),
        (["fit", "text.npz"], "text.npz"),
        (["fit", "exists"], "exists"),
        (["fit", "data.npz", "--target", "z"], "--target"),
        (["fit", "data.npz", "--samples", "Z"], "--samples"),
        (["fit", "data.npz", "--groups", "Z"], "--groups"),
        (["fit", "data.npz", "--samples", "broken", "--alpha", "1"], "NaN"),
        (["fit", "data.npz", "--samples", "label"], "shape (150,)"),
        (["fit", "data.npz", "--target", "same"], "two classes"),
        (["fit", "data.npz", "--target", "label", "--task", "regression"], "numbers"),
        (["fit", "data.npz", "--target", "both", "--task", "classification"], "one label"),
        (["fit", "data.npz", "--task", "magic"], "magic"),
        (["fit", "data.npz", "--alpha", "-1"], "--alpha"),
        (["fit", "data.npz", "--alpha", "much"], "'much'"),
        (["fit", "data.npz", "--ridge", "-1"], "ridge"),
        (["fit", "data.npz", "--ridge", "nan"], "ridge"),
        (["fit", "data.npz", "--loss", "log_loss"], "huber"),
        (["fit", "data.npz", "--penalty", "none"], "scaled_latent"),
        (["fit", "data.npz", "--cv", "1"], "cv"),
        (["fit", "data.npz", "--cv", "100"], "200 samples"),
        (["fit", "data.npz", "--tensor-shape", "4,x"], "--tensor-shape"),
        (["fit", "data.npz", "--samples", "flat", "--tensor-shape", "4,4"], "(4, 4)"),
        (["fit", "X.npy"], "--target"),
        (["fit", "data.npz", "--out", "."], "folder"),
        (["fit", "data.npz", "--out", "nowhere/model"], "nowhere"),
        (["predict", "model"], "data"),
        (["predict", "missing", "data.npz"], "missing"),
        (["predict", ".", "data.npz"], "folder"),
        (["predict", "text.npz", "data.npz"], "tracelearn wrote"),
        (["predict", "moments", "data.npz"], "Moments"),
        (["predict", "pca", "data.npz"], "ModePCA"),
        (["predict", "model", "missing.npz"], "missing.npz"),
        (["predict", "model", "data.npz", "--samples", "small"], "(4, 3, 2)"),
        (["predict", "model", "data.npz", "--samples", "broken"], "NaN"),
        (["predict", "model", "data.npz", "--target", "z"], "--target"),
        (["predict", "model", "data.npz", "--target", "label"], "target"),
        (["predict", "classes", "data.npz", "--target", "y"], "labels such as"),
        (["predict", "model", "data.npz", "--proba"], "log_loss"),
        (["predict", "model", "data.npz", "--out", "found.txt"], ".csv"),
        (["predict", "model", "data.npz", "--out", "nowhere/found.csv"], "nowhere"),
        (["predict", "model", "data.npz", "--target", "gap"], "NaN"),
        (["predict", "model", "data.npz", "--out", "X.npy"], "--force"),
        (["predict", "model", "data.npz", "--out", "folder.csv"], "folder"),
        (["predict", "model", "X.npy", "--target", "short.npy"], "50 targets"),
        (["predict", "empty.npz", "data.npz"], "tracelearn wrote"),
        (["fit", "empty.npz"], "empty.npz"),
        (["fit", "empty.npy"], "empty.npy"),
        (["fit", "folder.csv"], "folder.csv"),
        (["fit", "data.npz", "--target", "gap"], "NaN at sample 3"),
        (["fit", "data.npz", "--target", "gap", "--alpha", "1"], "NaN at sample 3"),
        (["fit", "data.npz", "--target", "object"], "Python objects"),
        (["fit", "X.npy", "--target", "short.npy"], "50 targets"),
        (["fit", "X.npy", "--target", "missing.npy"], "missing.npy"),
        (["fit", "data.npz", "--out", os.devnull, "--force"], "device"),
        (["inspect", "folder.csv"], "folder"),
        (["inspect"], "model"),
        (["inspect", "missing"], "missing"),
        (["inspect", "data.npz"], "tracelearn wrote"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(capsys, folder, arrays, arguments, message):
    np.save("X.npy", arrays["X"])
    np.save("short.npy", arrays["y"][:50])
    for name in ("empty.npz", "empty.npy"):
        (folder / name).touch()
    (folder / "folder.csv").mkdir()
    save(TraceNormRegressor().fit(arrays["X"], arrays["y"]), "model")
    save(TraceNormClassifier().fit(arrays["X"], arrays["label"]), "classes")
    save(Moments.of(arrays["X"], arrays["y"]), "moments")
    save(ModePCA().fit(arrays["X"]), "pca")
    before = {file.name for file in folder.iterdir()}
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message.lower() in err.lower()
    assert "open_source" not in err
    assert {file.name for file in folder.iterdir()} == before


# --- predict -----------------------------------------------------------------------------------------------------------


def test_predictions_are_printed_as_csv(capsys, folder, arrays):
    X = arrays["X"]
    save(TraceNormClassifier().fit(X, arrays["three"]), "model")
    code, out, err = call(capsys, "predict", "model", "data.npz")
    assert (code, err) == (0, "150 samples predicted\n")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == ["index", "prediction", "score_0", "score_1", "score_2"]
    model = load("model")
    assert [int(row["prediction"]) for row in rows] == model.predict(X).tolist()
    assert [float(row["score_2"]) for row in rows] == model.decision_function(X)[:, 2].tolist()


def test_predictions_are_written_in_each_format(capsys, folder, arrays):
    X = arrays["X"]
    model = TraceNormClassifier(loss="log_loss").fit(X, arrays["label"])
    save(model, "model")
    for proba, wanted in ((["--proba"], model.predict_proba(X)), ([], model.decision_function(X))):
        for suffix in ("npy", "npz", "csv"):
            code, out, err = call(capsys, "predict", "model", "data.npz", "--out", f"found.{suffix}", "--force", *proba)
            assert (code, out, err) == (0, f"150 samples predicted: found.{suffix}\n", "")
        alone = np.load("found.npy")
        np.testing.assert_array_equal(alone, wanted if proba else model.predict(X))
        with np.load("found.npz") as found:
            np.testing.assert_array_equal(found["prediction"], model.predict(X))
            np.testing.assert_array_equal(found["probabilities" if proba else "scores"], wanted)
            assert found["classes"].tolist() == ["down", "up"]
        heads = (folder / "found.csv").read_text().splitlines()[0]
        assert heads == "index,prediction," + ("probability_down,probability_up" if proba else "score")


def test_regressors_are_compared_by_r_squared(capsys, folder, arrays):
    model = TraceNormRegressor().fit(arrays["X"], arrays["both"])
    save(model, "model")
    code, out, err = call(capsys, "predict", "model", "data.npz", "--target", "both")
    assert code == 0
    assert out.startswith("index,prediction_1,prediction_2\n")
    assert f"R² {model.score(arrays['X'], arrays['both']):.4f}" in err


# --- inspect -----------------------------------------------------------------------------------------------------------


def test_inspect_says_what_a_model_is(capsys, folder, arrays):
    model = TraceNormClassifier(alpha=0.03, class_weight={"up": 2.0}, keep_moments=True).fit(
        arrays["X"], arrays["label"]
    )
    save(model, "model")
    code, out, err = call(capsys, "inspect", "model")
    assert (code, err) == (0, "")
    for words in ("TraceNormClassifier", "alpha=0.03", "4 × 3 × 2", "down, up", "█", "iterations", "written by"):
        assert words in out
    assert "max_iter" not in out
    assert "\x1b" not in out
    facts = json.loads(call(capsys, "inspect", "model", "--json")[1])
    assert facts["parameters"] == {"alpha": 0.03, "class_weight": {"up": 2.0}, "keep_moments": True}
    assert facts["mode_ranks"] == model.mode_ranks_.tolist()
    assert facts["singular_values"][0] == model.mode_factors_[0][1].tolist()
    assert (facts["dual_gap"], facts["objective"], facts["n_iter"]) == (
        model.dual_gap_,
        model.objective_,
        model.n_iter_,
    )
    assert facts["moments"]
    assert facts["format"] == FORMAT


def test_inspect_reads_whatever_save_writes(capsys, folder, arrays):
    from sklearn.pipeline import make_pipeline

    X, y = arrays["X"], arrays["y"]
    things = {
        "Moments": Moments.of(X, y),
        "ModePCA": ModePCA().fit(X),
        "Pipeline": make_pipeline(ModePCA(), TraceNormRegressor()).fit(X, y),
        "TensorRegressor": TensorRegressor(alphas=3, cv=2).fit(X, y),
        "TraceNormRegressor": TraceNormRegressor(),
        "TraceNormClassifier": TraceNormClassifier(loss="log_loss").fit(X, arrays["three"]),
        "HierarchicalTraceNormClassifier": HierarchicalTraceNormClassifier().fit(X, arrays["three"]),
    }
    for name, thing in things.items():
        save(thing, name)
        code, out, err = call(capsys, "inspect", name)
        assert (code, err) == (0, ""), name
        assert name in out.splitlines()[0]
        assert json.loads(call(capsys, "inspect", name, "--json")[1])["kind"] == name
    facts = json.loads(call(capsys, "inspect", "Moments", "--json")[1])
    assert (facts["weight"], facts["n_features"], facts["n_targets"]) == (150, 24, 1)


# --- on a terminal -----------------------------------------------------------------------------------------------------


def on_terminal(arguments, folder, before=""):
    """Run a command on a terminal of its own; return its exit code and all that it wrote there."""
    pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
    leader, follower = pty.openpty()
    code = f"{before}\nfrom tracelearn.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=follower, stderr=follower, cwd=folder, env=environment
    ) as process:
        os.close(follower)
        written = b""
        try:
            while part := os.read(leader, 65536):
                written += part
        except OSError:  # how a terminal says that nobody writes to it any more
            pass
    os.close(leader)
    return process.returncode, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


@pytest.mark.slow
def test_long_commands_show_bars_with_the_time_left_on_a_terminal(folder, arrays):
    save(TraceNormRegressor().fit(arrays["X"], arrays["y"]), "model")
    # One process for all: two of the commands in a thread would share the terminal, and processes are slow to start.
    before = (
        "import sys, tracelearn.cli as cli\n"
        "for line in sys.argv.pop().split(';'):\n"
        "    print('>', line, flush=True)\n"
        "    try: cli.main(line.split())\n"
        "    except SystemExit as left: assert not left.code, line\n"
    )
    lines = [
        "fit data.npz --cv 2 --out a",
        "predict model data.npz --out found.npy",
        "stream data.npz --checkpoint kept --refresh-samples 50 --batch 50",
        "fit data.npz --cv 2 --out b --quiet",
        "fit data.npz --cv 2 --out c --json",
        "predict model data.npz --out more.npy --quiet",
        "stream data.npz --checkpoint more --refresh-samples 50 --batch 50 --quiet",
    ]
    code, out = on_terminal(["--version", ";".join(lines)], folder, before)
    assert code == 0, out
    shown = dict(zip(lines, out.split("> ")[1:], strict=True))
    fit, predict, stream, *silent = (shown[line].partition("\n")[2] for line in lines)
    assert "fitting" in fit
    assert "scoring" in fit
    left = r"[-\d]:[-\d]{2}:[-\d]{2}"  # not known yet where all is done before the bar is drawn again
    assert re.search(rf"\d+% {left}", fit)
    assert re.search(r"predicting .*100% 0:00:00", predict)
    assert re.search(left, stream)
    assert "━" in stream
    for words in silent:
        assert "━" not in words
    assert json.loads(silent[1].strip())["n_samples"] == 150


@pytest.mark.slow
def test_ctrl_c_is_one_line_and_code_130(folder):
    before = (
        "import os, signal, threading\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # tests run in the background inherit that it is ignored
        "from tracelearn.cli import learning\n"
        "def interrupted(*args):\n    os.kill(os.getpid(), signal.SIGINT); threading.Event().wait(30)\n"
        "learning.read_samples = interrupted"
    )
    code, out = on_terminal(["fit", "data.npz", *FAST], folder, before)
    assert code == 130, out
    assert "Traceback" not in out
    assert [line for line in out.splitlines() if "Interrupted" in line] == ["tracelearn: Interrupted."]
    assert not (folder / "model.tracelearn").exists()


@pytest.mark.slow
def test_a_reader_that_has_read_enough_gets_no_traceback(folder, arrays):
    save(TraceNormRegressor().fit(arrays["X"], arrays["y"]), "model")
    reading, writing = os.pipe()
    code = "from tracelearn.cli import main; main(['predict', 'model', 'data.npz'])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        os.close(writing)
        os.close(reading)
        assert process.stderr.read() == ""
    assert process.returncode == 1


# --- completion --------------------------------------------------------------------------------------------------------


def test_a_shell_is_told_how_to_complete(capsys, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    for shell in ("bash", "zsh", "fish"):
        code, out, err = call(capsys, "--show-completion", shell)
        assert (code, err) == (0, "")
        assert "_TRACELEARN_COMPLETE" in out
        assert f"complete_{shell}" in out


@pytest.mark.slow
def test_shells_complete_commands_and_options(capsys):
    assert "--install-completion" in call(capsys, "--help")[1]
    for words, wanted in (
        ("tracelearn ", {"fit", "predict", "inspect", "stream", "merge"}),
        ("tracelearn fit --al", {"--alpha"}),
    ):
        asked = {
            "_TRACELEARN_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        done = subprocess.run(
            [sys.executable, "-c", "from tracelearn.cli import main; main()"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **asked},
        )
        assert wanted <= set(done.stdout.split())


def test_coordinates_are_kept_with_the_model(capsys, folder):
    words = ("--mode-names", "channel,time (s),band", "--coordinates", "time=0:0.2", "--coordinates", "channel=a,b,c,d")
    code, _, err = call(capsys, "fit", "data.npz", *FAST, "--target", "label", *words, "--out", "model")
    assert (code, err) == (0, "")
    channel, time, band = load("model").modes_
    assert channel.values.tolist() == ["a", "b", "c", "d"]
    assert (time.label, time.values.tolist()) == ("time (s)", [0.0, 0.1, 0.2])
    assert band.values.tolist() == [0, 1]
    assert json.loads(call(capsys, "inspect", "model", "--json")[1])["mode_names"] == ["channel", "time", "band"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--coordinates", "time=0:1"), "Expected --mode-names with --coordinates"),
        (("--mode-names", "a,b,c", "--coordinates", "time=0:1"), "begin with a name among a, b, c"),
        (("--mode-names", "a,b,c", "--coordinates", "a=0:x"), "one for each of 4 entries"),
        (("--mode-names", "a,b,c", "--coordinates", "a=1,2"), "one for each of 4 entries"),
    ],
)
def test_coordinates_that_do_not_fit_are_refused(capsys, folder, words, message):
    code, _, err = call(capsys, "fit", "data.npz", *FAST, "--target", "label", *words)
    assert code == 2
    assert message in err


def test_the_score_is_compared_with_flat_models_on_the_same_folds(capsys, folder):
    code, out, _ = call(capsys, "fit", "data.npz", *FAST, "--target", "label", "--json", "--out", "model")
    assert code == 0
    score = json.loads(out)["score"]
    assert [one["model"] for one in score["flat_models"]] == ["ridge", "logistic"]
    for one in score["flat_models"]:
        assert one["difference"] == pytest.approx(score["mean"] - one["mean"])
        assert one["standard_error"] > 0.0


def test_predict_compares_the_modes_of_a_file_with_those_of_the_model(capsys, tmp_path, monkeypatch):
    pd = pytest.importorskip("pandas", reason="writes the tables")
    pytest.importorskip("pyarrow", reason="reads them")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = [f"ch{c}_t{t}" for c in (3, 5) for t in (20, 40, 60)]
    table = pd.DataFrame(rng.normal(size=(40, 6)), columns=names).assign(y=np.arange(40.0))
    table.to_csv("data.csv", index=False)
    table.rename(columns={"ch3_t20": "ch4_t20", "ch3_t40": "ch4_t40", "ch3_t60": "ch4_t60"}).to_csv("other.csv")
    table.rename(columns={name: "_".join(name.split("_")[::-1]) for name in names}).to_csv("turned.csv")
    assert call(capsys, "fit", "data.csv", "--alpha", "1")[0] == 0
    named = ("--mode-names", "sensor,time (ms)")
    assert call(capsys, "fit", "data.csv", "--alpha", "1", "--out", "named", *named)[0] == 0
    for model in ("model.tracelearn", "named"):
        assert call(capsys, "predict", model, "data.csv")[0] == 0
        for path, message in (("other.csv", "got 4 instead of 3 at index 0"), ("turned.csv", "as in fit")):
            code, out, err = call(capsys, "predict", model, path)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert message in err
        with pytest.raises(ValueError, match="got 4 instead of 3 at index 0"):
            load(model).predict("other.csv")
    channel, time = load("named").modes_
    assert (channel.name, channel.values.tolist(), time.label) == ("sensor", [3, 5], "time (ms)")


@pytest.mark.parametrize("alpha", ["0.02", "auto"])
def test_confounds_are_regressed_out_in_fit_and_needed_to_predict(tmp_path, monkeypatch, capsys, alpha):
    rng = np.random.default_rng(0)
    label = np.arange(120) % 2
    age = label + 0.1 * rng.standard_normal(120)
    X = rng.standard_normal((120, 4, 6))
    X[:, :, 3] += 2.0 * age[:, None]  # samples tell of labels what age tells
    monkeypatch.chdir(tmp_path)
    np.savez("epochs.npz", X=X, label=np.where(label, "b", "a"), age=age, movement=np.arange(120.0))
    options = ("--target", "label", "--alpha", alpha, "--cv", "3", "--json")
    facts = {}
    for name, more in {"with": ("--confounds", "age, movement"), "without": ()}.items():
        code, out, err = call(capsys, "fit", "epochs.npz", *options, *more, "--out", f"{name}.tracelearn")
        assert code == 0, err
        facts[name] = json.loads(out)
    assert facts["with"]["confounds"] == ["age", "movement"]
    assert facts["without"]["score"]["mean"] > 0.9
    assert facts["with"]["score"]["mean"] < 0.7
    assert max(one["mean"] for one in facts["with"]["score"]["flat_models"]) < 0.7  # nor do flat models see them
    known = load("with.tracelearn").predict(X, confounds=np.column_stack([age, np.arange(120.0)]))
    predict = ("predict", "with.tracelearn", "epochs.npz", "--target", "label", "--out", "found.npz", "--force")
    code, _, err = call(capsys, *predict, "--confounds", "age,movement")
    assert code == 0, err
    with np.load("found.npz") as found:
        np.testing.assert_array_equal(found["prediction"], known)
    code, _, err = call(capsys, *predict)
    assert code != 0
    assert "Expected 2 names of confounds, as in fit, got none: correct --confounds." in err
    page = ("inspect", "with.tracelearn", "--html", "page.html", "--data", "epochs.npz", "--target", "label")
    code, _, err = call(capsys, *page, "--confounds", "age,movement")
    assert code == 0, err


def test_targets_groups_and_confounds_of_a_wide_table_are_no_entries_of_samples(tmp_path, arrays, capsys):
    columns = {f"ch{i}_t{j}": arrays["X"][:, i, j, 0] for i in range(4) for j in range(3)}
    columns |= {"subject": [f"s{k}" for k in arrays["who"]], "age": np.arange(150.0) % 7, "label": arrays["label"]}
    with open(tmp_path / "wide.csv", "w", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    options = (
        "--target",
        "label",
        "--groups",
        "subject",
        "--confounds",
        "age",
        "--json",
        "--out",
        tmp_path / "m.tracelearn",
    )
    code, out, err = call(capsys, "fit", tmp_path / "wide.csv", *FAST, *options)
    assert code == 0, err
    assert json.loads(out)["sample_shape"] == [4, 3]


@pytest.mark.parametrize(
    ("name", "words"),
    [("height", "height"), ("label", "Expected numbers in confounds"), ("short", "150"), ("broken", "confounds")],
)
def test_confounds_that_are_none_are_refused_in_a_sentence(arrays, capsys, tmp_path, name, words):
    columns = {key: arrays[key] for key in ("X", "y", "label")}
    np.savez(tmp_path / "more.npz", short=np.arange(7.0), broken=np.full(150, np.nan), **columns)
    out = tmp_path / "none.tracelearn"
    code, _, err = call(capsys, "fit", tmp_path / "more.npz", *FAST, "--confounds", name, "--out", out)
    assert code != 0
    assert words in err
    assert err.count("\n") == 1
    assert not out.exists()
