"""Models and moments in files: exact when they are good, refused in one sentence when they are not."""

import copy
import errno
import io
import json
import os
import pickle
import stat
import subprocess
import sys
import time
import tracemalloc
import zipfile
from dataclasses import dataclass

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import tracelearn
from tracelearn import (
    Convolutions,
    HierarchicalTraceNormClassifier,
    LaggedRegressor,
    ModePCA,
    ModeWhitener,
    Moments,
    SecondOrder,
    Similarities,
    TensorClassifier,
    TensorRegressor,
    TensorStandardScaler,
    TraceNormClassifier,
    TraceNormRegressor,
    Views,
    load,
    save,
)
from tracelearn.files import models as files
from tracelearn.files.content import known_types
from tracelearn.files.header import DamagedFileError, Header, read_header
from tracelearn.paper import PaperRegressor
from tracelearn.penalties import L1, Nuclear

SHAPE = (3, 2, 2)
rng = np.random.default_rng(0)
X = rng.standard_normal((60, *SHAPE)) + 1.0
y = X[:, 0, 0, 0] - X[:, 1, 1, 0] + 0.3 * rng.standard_normal(60)
labels = np.array(["ash", "birch", "cedar"])[np.digitize(y, [-0.5, 0.5])]
two = np.where(y > 0, 7, -3)

MODELS = {
    "regressor": lambda: TraceNormRegressor(alpha=0.05, keep_moments=True).fit(X, y),
    "regressor, float32": lambda: TraceNormRegressor(alpha=0.05, keep_moments=True).fit(X.astype(np.float32), y),
    "regressor, two targets": lambda: TraceNormRegressor(alpha=0.05, target_mode=True, keep_moments=True).fit(
        X, np.stack([y, -y], axis=1)
    ),
    "regressor, huber": lambda: TraceNormRegressor(alpha=0.05, loss="huber", mode_weights=[1, 0, 2]).fit(X, y),
    "regressor, latent": lambda: TraceNormRegressor(penalty="latent", tensor_shape=SHAPE, keep_moments=True).fit(
        X.reshape(60, -1), y
    ),
    "regressor, few samples": lambda: TraceNormRegressor(penalty="scaled_latent").fit(X[:4], y[:4]),
    "regressor, parameters of NumPy": lambda: TraceNormRegressor(
        alpha=np.float32(0.1), max_iter=np.int64(500), mode_weights=np.ones(3)
    ).fit(X, y),
    "classifier": lambda: TraceNormClassifier(alpha=0.05, keep_moments=True).fit(X, labels),
    "classifier, two classes": lambda: TraceNormClassifier(class_weight={7: 2.0, -3: 1.0}, keep_moments=True).fit(X, two),
    "classifier, true and false": lambda: TraceNormClassifier(keep_moments=True).fit(X, y > 0),
    "classifier, objects": lambda: TraceNormClassifier(keep_moments=True).fit(X, labels.astype(object)),
    "classifier, logistic": lambda: TraceNormClassifier(alpha=0.05, loss="log_loss").fit(X, labels),
    "online": lambda: TraceNormClassifier(forgetting=0.9).partial_fit(X, labels, classes=["ash", "birch", "cedar", "elm"]),
    "regressor CV": lambda: TensorRegressor(alphas=4, cv=2).fit(X, y),
    "classifier CV": lambda: TensorClassifier(alphas=4, cv=2, ridges=(0.0, 0.1)).fit(X, labels),
    "hierarchy": lambda: HierarchicalTraceNormClassifier(tree=("cedar", ("ash", "birch"))).fit(X, labels),
    "unfitted hierarchy": HierarchicalTraceNormClassifier,
    "scaler": lambda: TensorStandardScaler(per=(0, 1)).fit(X),
    "compression": lambda: ModePCA((2, 1, 0.9)).fit(X),
    "similarities": lambda: Similarities(SecondOrder(0), n_landmarks=9).fit(X),
    "unfitted": lambda: TraceNormClassifier(alpha=0.1 + 0.2),
    "paper, online": lambda: PaperRegressor("OL_APG_ADM", max_iter=2).fit(X, y),
    "pipeline": lambda: make_pipeline(TensorStandardScaler("global"), ModePCA(2), TraceNormRegressor()).fit(X, y),
    "pipeline with scikit-learn": lambda: make_pipeline(
        StandardScaler(), TraceNormClassifier(tensor_shape=SHAPE)
    ).fit(X.reshape(60, -1), labels),
}  # fmt: skip

# Those that go on learning from where they were, and from what.
TARGETS = {
    "regressor": y,
    "regressor, float32": y,
    "regressor, two targets": np.stack([y, -y], axis=1),
    "regressor, latent": y,
    "classifier": labels,
    "classifier, two classes": two,
    "classifier, true and false": y > 0,
    "classifier, objects": labels.astype(object),
    "online": labels,
}


def through_file(thing, folder):
    save(thing, folder / "thing.tracelearn")
    return load(folder / "thing.tracelearn", trusted=[StandardScaler])


def through_joblib(thing, folder):
    joblib.dump(thing, folder / "thing.joblib")
    return joblib.load(folder / "thing.joblib")


WAYS = {
    "save": through_file,
    "pickle": lambda thing, folder: pickle.loads(pickle.dumps(thing)),
    "joblib": through_joblib,
    "deepcopy": lambda thing, folder: copy.deepcopy(thing),
}


def assert_same(left, right):
    """Compare to the last bit, attribute by attribute; numbers of NumPy come back as those of Python."""
    if isinstance(left, np.generic):
        left = left.item()
    if isinstance(right, np.generic):
        right = right.item()
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right, strict=True)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    elif isinstance(left, BaseEstimator):
        assert_same(left.__getstate__(), right.__getstate__())  # of the last solution only what may be started from
    elif hasattr(left, "__dict__") and not isinstance(left, type):
        assert_same(vars(left), vars(right))
    else:
        assert left == right or (left != left and right != right)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_what_comes_back_is_the_same_to_the_last_bit(name, way, tmp_path):
    model = MODELS[name]()
    again = WAYS[way](model, tmp_path)
    assert_same(model, again)
    if name in TARGETS:
        samples = X.astype(model.coef_.dtype)
        for one in (model, again):
            one.partial_fit(samples[:20] + 0.1, TARGETS[name][:20])
        assert model.n_iter_ == again.n_iter_
        np.testing.assert_array_equal(model.coef_, again.coef_)
        np.testing.assert_array_equal(model.predict(samples), again.predict(samples))


@pytest.mark.parametrize("way", WAYS)
def test_a_tree_goes_on_learning(way, tmp_path):
    model = HierarchicalTraceNormClassifier().fit(X, labels)
    again = WAYS[way](model, tmp_path)
    assert list(again._models.values()) == again.estimators_  # the same objects, not copies of them
    for one in (model, again):
        one.partial_fit(X[:9], labels[:9])
    np.testing.assert_allclose(model.coef_, again.coef_, rtol=0, atol=1e-5)  # its solvers start anew


def test_moments_come_back(tmp_path):
    moments = Moments.of(X, y)
    assert_same(moments, through_file(moments, tmp_path))


def test_a_saved_model_is_some_kilobytes_and_its_header_can_be_read_by_hand(tmp_path):
    save(MODELS["regressor"](), tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    magic, line, _ = data.split(b"\n", 2)
    header = json.loads(line)
    assert magic == b"tracelearn file"
    assert (header["format"], header["kind"]) == (2, "model")
    assert len(data) < 20_000


# --- what is refused ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "model.tracelearn"
    save(TraceNormRegressor(alpha=0.05).fit(X, y), path)
    return path.read_bytes()


def refused(data, message, folder):
    path = folder / "other.tracelearn"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"(?s)^Expected .*{message}") as refusal:
        load(path)
    assert "\n" not in str(refusal.value)
    return refusal


def packed(payload, kind="model", version=2):
    return b"tracelearn file\n" + Header.of(kind, payload, version).line() + payload


@given(data=st.data())
def test_no_bit_can_change_unnoticed(good, tmp_path_factory, data):
    size = len(good)
    # Headers are short and payloads long: look at both.
    place = data.draw(st.integers(0, size - 1) | st.integers(0, 300))
    mask = data.draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128]) | st.integers(1, 255))
    damaged = bytearray(good)
    damaged[place] ^= mask
    refused(bytes(damaged), "", tmp_path_factory.mktemp("flip"))


def test_no_bit_of_the_header_can_change_unnoticed(good, tmp_path):
    for place in range(good.index(b"\n", 20) + 1):
        for bit in range(8):
            damaged = bytearray(good)
            damaged[place] ^= 1 << bit
            refused(bytes(damaged), "", tmp_path)


def test_a_header_that_says_the_same_in_other_words_is_refused(good, tmp_path):
    refused(good.replace(b'"format":2', b'"format": 2', 1), "tracelearn wrote", tmp_path)
    refused(good.replace(b'"format":2', b'"format":2,"format":2', 1), "tracelearn wrote", tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 16, 60, 0.5, -1])
def test_a_file_that_was_cut_off_is_refused(good, tmp_path, keep):
    cut = good[: int(len(good) * keep)] if isinstance(keep, float) else good[:keep]
    assert isinstance(refused(cut, "got", tmp_path).value, DamagedFileError)


def test_a_file_that_was_added_to_is_refused(good, tmp_path):
    refused(good + b"x", "cut off or added to", tmp_path)


def test_a_foreign_file_is_refused(tmp_path):
    refused(b"PK\x03\x04 something else entirely", "tracelearn wrote", tmp_path)
    refused(b"tracelearn file\n" + b"{" * 5000, "tracelearn wrote", tmp_path)
    refused(b"tracelearn file\n[1]\n", "tracelearn wrote", tmp_path)


def test_a_format_of_the_future_is_refused(good, tmp_path):
    refused(good.replace(b'"format":2', b'"format":3', 1), "install a newer tracelearn", tmp_path)


def test_a_length_beyond_the_file_allocates_nothing(good, tmp_path):
    header = json.loads(good.split(b"\n", 2)[1])
    line = json.dumps({**header, "length": 1 << 60}, separators=(",", ":")).encode()
    refused(b"tracelearn file\n" + line + b"\n" + good.split(b"\n", 2)[2], str(1 << 60), tmp_path)


def evil():
    raise AssertionError("code of the file was run")


class Evil:
    def __setstate__(self, state):
        evil()

    def __reduce__(self):
        return evil, ()


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (TraceNormRegressor(alpha=evil), "evil"),
        (TraceNormRegressor(alpha=os.system), "system"),
        (TraceNormRegressor(alpha=np.sum), "sum"),
        (TraceNormRegressor(alpha=[{"a": (Evil(),)}]), "Evil"),
        (TraceNormRegressor(alpha=np.array([Evil()])), "ndarray"),
        (TensorRegressor(cv=KFold(3)), "KFold"),
        (make_pipeline(FunctionTransformer(evil), TraceNormRegressor()), "evil"),
        (LinearRegression(), "LinearRegression"),
        ({"a": 1}, "dict"),
        (zipfile.Path, "type"),
    ],
    ids=["function", "system", "sum", "object", "objects", "splitter", "pipeline", "estimator", "dict", "type"],
)
def test_what_may_run_code_is_not_written(thing, name, tmp_path):
    with pytest.raises(ValueError, match=rf"^Expected .*{name}"):
        save(thing, tmp_path / "model.tracelearn")
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Pinball:
    """A loss of the user's own."""

    level: float = 0.5


@dataclass(frozen=True)
class Other:
    level: float = 0.5


def full_name(kind):
    return f"{kind.__module__}.{kind.__qualname__}"


@pytest.mark.parametrize(
    "make",
    [
        lambda: TraceNormRegressor(loss=Pinball(0.2)),
        lambda: make_pipeline(TensorStandardScaler(), TraceNormRegressor(loss=Pinball(0.2))),
    ],
)
def test_a_class_of_the_user_is_read_where_it_is_trusted_only(make, tmp_path, monkeypatch):
    save(make(), tmp_path / "model")
    for trusted in ([], [Other], [StandardScaler]):
        with pytest.raises(
            ValueError, match=rf"^Expected a model .*, got {full_name(Pinball)}, .*: .*trusted=\["
        ) as refusal:
            load(tmp_path / "model", trusted=trusted)
        assert "\n" not in str(refusal.value)
    assert_same(load(tmp_path / "model", trusted=[Pinball, Other]), make())


def test_estimators_of_scikit_learn_are_read_where_they_are_trusted_only(tmp_path):
    model = make_pipeline(StandardScaler(), TraceNormRegressor(tensor_shape=SHAPE)).fit(X.reshape(60, -1), y)
    save(model, tmp_path / "model")
    with pytest.raises(ValueError, match=r"^Expected a model .*, got sklearn.*StandardScaler"):
        load(tmp_path / "model")
    assert_same(load(tmp_path / "model", trusted=[StandardScaler]), model)
    inside = {"$object": "sklearn.linear_model._base.LinearRegression", "state": {}}
    refused(packed(document(changed(TraceNormRegressor(), loss=inside))), "LinearRegression", tmp_path)


def test_a_fresh_process_knows_every_estimator():
    code = "from tracelearn.files.content import known_types; print(*known_types())"
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    public = [getattr(tracelearn, name) for name in tracelearn.__all__]
    estimators = {kind.__name__ for kind in public if isinstance(kind, type) and issubclass(kind, BaseEstimator)}
    assert estimators | {"PaperRegressor", "PaperClassifier", "Iterate", "Moments"} <= set(done.stdout.split())


def test_the_types_that_are_read_have_names_of_their_own_and_are_ours():
    kinds = known_types()
    assert {"TraceNormRegressor", "HierarchicalTraceNormClassifier", "ModePCA", "Moments", "Pipeline"} <= set(kinds)
    assert all(kind.__name__ == name for name, kind in kinds.items())
    assert {full_name(kind) for kind in kinds.values() if not kind.__module__.startswith("tracelearn.")} == {
        "sklearn.pipeline.Pipeline"
    }
    every = [
        kind
        for name, module in list(sys.modules.items())
        for kind in vars(module).values()
        if name.startswith("tracelearn.") and isinstance(kind, type) and kind.__module__ == name
    ]
    for kind in every:
        if kind.__name__ in kinds and (issubclass(kind, BaseEstimator) or kind.__module__.split(".")[1] == "penalties"):
            assert kinds[kind.__name__] is kind


# --- documents of strangers --------------------------------------------------------------------------------------------


def content_of(thing, kind="model"):
    """Find the document and the arrays of what is written for a thing."""
    with zipfile.ZipFile(io.BytesIO(files.pack(kind, thing).split(b"\n", 2)[2])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(members.pop("content.json")), members


def document(content, arrays=()):
    return archive_of([("content.json", json.dumps(content)), *dict(arrays).items()])


def changed(thing, **state):
    """Change the state of what is written; None leaves a part out."""
    content, _ = content_of(thing)
    content["state"] = {name: item for name, item in {**content["state"], **state}.items() if item is not Ellipsis}
    return content


def test_a_kind_must_be_what_it_says(tmp_path):
    refused(packed(document(*content_of(Moments.of(X, y))), "model"), "Moments", tmp_path)
    refused(packed(document(*content_of(TraceNormRegressor())), "moments"), "TraceNormRegressor", tmp_path)
    refused(packed(document({"$dict": []}), "checkpoint"), "resume=True", tmp_path)
    for content in (1, None, "text", [], {}, {"$tuple": []}):
        refused(packed(document(content)), "a model of plain data", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        {"$object": "TraceNormRegressor"},
        {"$object": ["TraceNormRegressor"], "state": {}},
        {"$object": "TraceNormRegressor", "state": []},
        {"$object": "TraceNormRegressor", "state": {"$tuple": []}},
        {"$object": "tracelearn.estimators.regressor.TraceNormRegressor", "state": {}},
        {"$object": "builtins.eval", "state": {}},
        {"$object": "several\nlines " * 100, "state": {}},
        {"$object": {"$tuple": ["several\nlines"]}, "state": {}},
        {"$array": "0.npy"},
        {"$array": ["0.npy"]},
        {"$dtype": "O"},
        {"$dtype": "<f8,<f8"},
        {"$dtype": "|V1000000000"},
        {"$dict": [[[], 1]]},
        {"$dict": [[2**61 - 1 * n, n] for n in range(10_001)]},
        {"$unknown": 1},
    ],
    ids=str,
)
def test_a_document_of_another_form_is_refused(content, tmp_path):
    refused(packed(document(content)), "got", tmp_path)
    refused(packed(document(changed(TraceNormRegressor(), loss=content))), "got", tmp_path)


@pytest.mark.parametrize(
    "name", ["fit", "predict", "__class__", "__dict__", "__init__", "_validate_params", "get_params"]
)
def test_no_method_can_be_replaced_by_a_file(name, tmp_path):
    refused(packed(document(changed(TraceNormRegressor(), **{name: 1}))), "a method among its parts", tmp_path)


def array_bytes(values):
    held = io.BytesIO()
    np.save(held, values)
    return held.getvalue()


WRONG = {
    "no sample shape": {"sample_shape_": 7},
    "a sample shape of text": {"sample_shape_": {"$tuple": ["3", 2, 2]}},
    "a sample shape of no entry": {"sample_shape_": {"$tuple": [0, 2, 2]}},
    "another sample shape": {"sample_shape_": {"$tuple": [3, 2, 3]}},
    "an enormous sample shape": {"sample_shape_": {"$tuple": [1 << 40, 2, 2]}, "n_features_in_": 1 << 42},
    "other features": {"n_features_in_": 13},
    "features that are text": {"n_features_in_": "12"},
    "weights of another shape": {"coef_": np.ones((3, 2))},
    "weights that are text": {"coef_": np.full((3, *SHAPE), "a")},
    "weights that are a number": {"coef_": 1.0},
    "no weights": {"coef_": None},
    "weights of half precision": {"coef_": np.ones((3, *SHAPE), np.float16)},
    "samples of half precision": {"_dtype": {"$dtype": "<f2"}},
    "intercepts of another number": {"intercept_": np.ones(2)},
    "intercepts that are text": {"intercept_": "a"},
    "no intercepts": {"intercept_": ...},
    "classes of another number": {"classes_": np.array(["a", "b"])},
    "classes that are the same": {"classes_": np.array(["a", "a", "b"])},
    "classes that are a number": {"classes_": 3},
    "classes of two dimensions": {"classes_": np.array([["a"], ["b"], ["c"]])},
    "no classes": {"classes_": ...},
    "iterations that are text": {"n_iter_": "many"},
    "a gap that is a list": {"dual_gap_": [1.0]},
    "no gap": {"dual_gap_": ...},
    "a gap below zero": {"dual_gap_": -1.0},
    "no sample shape at all": {"sample_shape_": ...},
    "a curve of one column": {"_convergence": {"$tuple": [np.ones(3)]}},
    "a curve over iterations that are no numbers": {"_convergence": {"$tuple": [np.array([0.0, np.inf]), np.ones(2)]}},
    "a layout that is a list": {"_flat": [[]]},
    "weights that came flat": {"_flat": True},
    "weights that are not finite": {"coef_": np.full((3, *SHAPE), np.nan)},
    "patterns of another shape": {"patterns_": np.ones((3, 12))},
    "intercepts in a column": {"intercept_": np.ones((3, 1))},
    "a tolerance that is a list": {"tol": [1.0]},
    "a weight of modes that is a mapping": {"mode_weights": {"$dict": [["a", 1]]}},
    "weights of too many modes": {"mode_weights": [1.0] * 9},
    "mode weights that are text": {"mode_weights": ["a"]},
    "a penalty that is a list": {"penalty": [1.0]},
    "no type of samples": {"_dtype": 3},
    "moments that are none": {"moments_": 3},
    "moments of other samples": {"moments_": {"$object": "Moments", "state": {
        "weight": 1.0, **{name: np.ones(shape) for name, shape in
                          dict(x_mean=5, y_mean=3, gram=(5, 5), cross=(5, 3), target_sq=3).items()}}}},
    "moments that do not fit": {"moments_": {"$object": "Moments", "state": {
        "weight": 1.0, **{name: np.ones(shape) for name, shape in
                          dict(x_mean=12, y_mean=3, gram=(12, 5), cross=(12, 3), target_sq=3).items()}}}},
    "moments without a part": {"moments_": {"$object": "Moments", "state": {"weight": 1.0}}},
}  # fmt: skip


WRONG_SEARCH = {
    "no best score": {"best_score_": ...},
    "an error of the best score that is text": {"best_score_se_": "small"},
    "a choice beyond the candidates": {"best_index_": 10**6},
    "no view": {"view_": ...},
    "no scores": {"score_path_": ...},
    "scores of other alphas": {"score_path_": np.ones((2, 3))},
    "scores that are no table": {"score_path_": np.ones(3)},
    "errors of other alphas": {"score_path_se_": np.ones(0)},
    "errors that are a table": {"score_path_se_": np.ones((3, 3))},
    "scores of no fold": {"score_path_": np.full((3, 3), np.nan)},
    "scores that are text": {"score_path_": np.full((3, 3), "a")},
    "alphas of another number": {"alphas_": np.ones(2)},
    "a choice beyond the list": {"best_index_": 99},
    "results that are none": {"cv_results_": []},
    "no model": {"best_estimator_": ...},
    "a model that is none": {"best_estimator_": 3},
    "features that are none": {"features_": 3},
    "a view without a name": {"view_": 3},
    "shares that are text": {"view_shares_": {"raw": "all"}},
    "an alpha below zero": {"alpha_": -1.0},
    "mode weights that are a mapping": {"mode_weights_": {"$dict": []}},
    "candidates that are none": {"cv_results_": {"$dict": [["params", [1, 2, 3]]]}},
}
WRONG_TREE = {
    "no nodes": {"nodes_": []},
    "a node that is none": {"nodes_": [[[0], [1, 2]], 3]},
    "models that are none": {"_models": [[[0], [1, 2], 1.0], [[1], [2], 1.0]]},
    "classes that are not there": {"_seen": [0, 1, 7]},
    "moments of other samples": {"class_moments_": [3, 3, 3]},
    "classes of another number": {"classes_": np.arange(5)},
}
WRONG_START = {
    "a solution that is none": {"_solution": 3},
    "no solution": {"_solution": None},
    "a problem that is none": {"_solved": 3},
    "a problem of arrays": {"_solved": {"$tuple": [np.ones(3)] * 4}},
}
WRONG_VIEWS = {
    "names that are none": {"view_names_": 2},
    "names that are numbers": {"view_names_": [1, 2]},
    "other names": {"view_names_": ["a", "b"]},
    "shapes that are none": {"view_shapes_": ["auto", "auto"]},
    "other shapes": {"view_shapes_": [{"$tuple": [3, 4]}, {"$tuple": [12]}]},
    "factors that are text": {"view_factors_": np.array(["1", "1"])},
    "factors that are a list": {"view_factors_": [1.0, 1.0]},
    "factors that are not finite": {"view_factors_": np.array([1.0, np.nan])},
    "factors of other views": {"view_factors_": np.ones(3)},
    "transformers that are none": {"transformers_": [1, 2]},
}
WRONG_SECOND = {
    "a reference of another shape": {"reference_": np.eye(2)},
    "a whitener that is text": {"whitener_": np.full((5, 5), "1")},
    "a unit that is not finite": {"unit_": float("inf")},
    "means on a scale that is text": {"mean_scale_": "1"},
    "no time": {"time_axis_": "last"},
}
WRONG_CONVOLUTIONS = {
    "thresholds of other dilations": {"thresholds_": np.ones((2, 84, 4, 4)), "draws_": np.ones((2, 84, 4, 4))},
    "waveforms and dilations in another order": {
        "thresholds_": np.ones((84, 1, 4, 4)),
        "draws_": np.ones((84, 1, 4, 4)),
    },
    "thresholds that are not finite": {"thresholds_": np.full((1, 84, 4, 4), np.nan)},
    "draws that are text": {"draws_": "lowest"},
    "dilations that are text": {"dilations_": ["slow"]},
}
WRONG_SIMILARITIES = {
    "landmarks of another shape": {"landmarks_": np.ones((9, 12))},
    "landmarks of another number": {"landmarks_": np.ones((8, *SHAPE))},
    "landmarks of other samples": {"landmarks_": np.ones((9, 2, 2, 2))},
    "landmarks that are not finite": {"landmarks_": np.full((9, *SHAPE), np.inf)},
    "landmarks that are text": {"landmarks_": np.full((9, *SHAPE), "a")},
    "no landmarks": {"landmarks_": ...},
    "no landmark at all": {"landmarks_": np.ones((0, *SHAPE)), "draws_": np.ones(0)},
    "draws of another number": {"draws_": np.ones(8)},
    "draws that are text": {"draws_": "lowest"},
    "draws in a column": {"draws_": np.ones((9, 1))},
    "a mean of other entries": {"mean_": np.ones(12)},
    "a scale that is not finite": {"scale_": np.full(25, np.nan)},
    "a whitener of other landmarks": {"whitener_": np.eye(8)},
    "a whitener that is text": {"whitener_": np.full((9, 9), "1")},
    "points of other entries": {"points_": np.ones((9, 12))},
    "no points": {"points_": ...},
    "no transformer": {"transformers_": []},
    "a transformer that is none": {"transformers_": [1]},
    "no list of transformers": {"transformers_": ...},
    "a kernel that is not there": {"kernel": "linear"},
    "a width of zero": {"width": 0.0},
}
WRONG_LAGGED = {
    "lags of another number": {"lags_": np.arange(5)},
    "lags that are text": {"lags_": np.array(["a", "b"])},
    "weights of another shape": {"coef_": np.ones((3, 2))},
    "patterns of another shape": {"patterns_": np.ones(8)},
    "no model": {"model_": ...},
    "a model that is none": {"model_": 3},
    "several outputs": {"_single": False},
    "an intercept for each output": {"intercept_": np.ones(2)},
    "features of another number": {"n_features_in_": 5},
    "no moments": {"moments_": ...},
}
KINDS = {
    "views": (lambda: Views([("raw", None), ("white", ModeWhitener())]).fit(X), WRONG_VIEWS),
    "second order": (lambda: SecondOrder(0, mean=0.5).fit(X), WRONG_SECOND),
    "convolutions": (lambda: Convolutions(0).fit(X), WRONG_CONVOLUTIONS),
    "similarities": (lambda: Similarities(SecondOrder(0), n_landmarks=9).fit(X), WRONG_SIMILARITIES),
    "lagged": (lambda: LaggedRegressor(2).fit(X[:, 0, 0], y), WRONG_LAGGED),
    "model": (lambda: TraceNormClassifier(alpha=0.05, loss="log_loss").fit(X, labels), WRONG),
    "search": (lambda: TensorRegressor(alphas=3, cv=3, views=None, ridges=[0.0]).fit(X, y), WRONG_SEARCH),
    "tree": (lambda: HierarchicalTraceNormClassifier(alpha=0.05).fit(X, labels), WRONG_TREE),
    "alpha from the samples": (lambda: TraceNormRegressor().fit(X, y), {"no alpha": {"alpha_": ...}}),
    "start": (lambda: TraceNormRegressor(alpha=0.05, warm_start=True).fit(X, y), WRONG_START),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, (_, wrong) in KINDS.items() for name in wrong])
def test_a_model_whose_parts_do_not_fit_is_refused(kind, name, tmp_path):
    make, wrong = KINDS[kind]
    content, arrays = content_of(make())

    def plain(value):
        if isinstance(value, np.ndarray):
            arrays[f"{len(arrays)}.npy"] = array_bytes(value)
            return {"$array": f"{len(arrays) - 1}.npy"}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value

    state = {**content["state"], **{key: plain(value) for key, value in wrong[name].items()}}
    content["state"] = {key: value for key, value in state.items() if value is not ...}
    refused(packed(document(content, arrays)), "use only files written by save", tmp_path)


@pytest.mark.parametrize("part", ["W", "parts", "duals", "anchors", "objective", "gap", "rho"])
def test_a_solution_of_another_shape_is_refused(part, tmp_path):
    content, arrays = content_of(TraceNormRegressor(alpha=0.05, warm_start=True).fit(X, y))
    solution = content["state"]["_solution"]["state"]
    held = solution if part in solution else solution["split"]["state"]
    arrays[held[part]["$array"]] = array_bytes(np.ones((2, 2)))
    refused(packed(document(content, arrays)), "use only files written by save", tmp_path)


ZEROS = {"$array": "zeros.npy"}


@pytest.mark.parametrize("terms", [ZEROS, [1.0], {"$tuple": []}, {"$tuple": [{"$tuple": [1.0, ZEROS]}]}], ids=str)
def test_a_penalty_of_other_things_than_atoms_is_refused(terms, tmp_path):
    content, arrays = content_of(TraceNormRegressor(0.05, penalty=0.5 * Nuclear(0) + 0.1 * L1()).fit(X, y))
    arrays["zeros.npy"] = array_bytes(np.zeros(13))
    content["state"]["penalty"]["state"]["terms"] = terms
    refused(packed(document(content, arrays)), "use only files written by save", tmp_path)


def test_a_model_without_one_of_its_parameters_is_refused(tmp_path):
    refused(packed(document(changed(TraceNormRegressor(), alpha=...))), "no attribute 'alpha'", tmp_path)


@pytest.mark.parametrize("step", [1, {"$tuple": ["a", 1]}, {"$tuple": ["a"]}])
def test_a_pipeline_of_other_things_is_refused(step, tmp_path):
    refused(packed(document(changed(make_pipeline(TraceNormRegressor()), steps=[step]))), "use only files", tmp_path)


def test_a_pipeline_with_a_cache_is_refused(tmp_path):
    refused(packed(document(changed(make_pipeline(TraceNormRegressor()), memory="somewhere"))), "a cache", tmp_path)


def test_a_member_that_is_named_often_is_read_once(tmp_path):
    one = {"$array": "0.npy"}
    content = changed(TraceNormRegressor(), mode_weights=[one] * 400, tensor_shape=[one] * 400)
    path = tmp_path / "model"
    path.write_bytes(packed(document(content, {"0.npy": array_bytes(np.ones(1 << 17))})))
    tracemalloc.start()
    model = load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.mode_weights[0] is model.tensor_shape[-1]
    assert peak < 6 << 20  # 800 MB, were each of them read


# --- format 1 ----------------------------------------------------------------------------------------------------------


def node(loader, content=None, kind="builtins.list", number=1, **more):
    module, _, name = kind.rpartition(".")
    return {"__loader__": loader, "__module__": module, "__class__": name, "content": content, "__id__": number, **more}


def old_model(**state):
    """Write a model in the form that skops gave it."""
    text = node("TypeNode", kind="builtins.str")
    keys = node("ListNode", [text] * len(state))
    inside = node("DictNode", state, "builtins.dict", key_types=keys)
    return node("ObjectNode", inside, "tracelearn.estimators.regressor.TraceNormRegressor")


def old_file(schema, arrays=()):
    return packed(archive_of([("schema.json", json.dumps(schema)), *dict(arrays).items()]), version=1)


def test_a_file_of_format_1_is_read(tmp_path):
    numbers = node("TupleNode", [node("JsonNode", "1.5", "builtins.str"), node("JsonNode", "null", "builtins.str")])
    array = node("NdArrayNode", kind="numpy.ndarray", file="7.npy", type="numpy")
    scalar = node("NdArrayNode", kind="numpy.float64", file="8.npy", type="numpy")
    (tmp_path / "old").write_bytes(
        old_file(
            old_model(alpha=scalar, mode_weights=array, tensor_shape=numbers, _dtype=node("DTypeNode", array)),
            {"7.npy": array_bytes(np.arange(3.0)), "8.npy": array_bytes(np.float64(0.3))},
        )
    )
    model = load(tmp_path / "old")
    assert (model.alpha, model.tensor_shape, model._dtype) == (0.3, (1.5, None), np.dtype("f8"))
    np.testing.assert_array_equal(model.mode_weights, np.arange(3.0))
    assert model.get_params()["tol"] == TraceNormRegressor().tol  # a parameter that the file does not know


def test_shared_nodes_of_format_1_cost_no_more_than_they_take(tmp_path):
    inner = node("ListNode", [], number=0)
    for level in range(1, 60):
        # The second is but a mark; who takes it for the first walks through 2 ** 60 lists.
        inner = node("ListNode", [inner, node("ListNode", [], number=level - 1)], number=level)
    began = time.monotonic()
    (tmp_path / "old").write_bytes(old_file(old_model(mode_weights=inner)))
    load(tmp_path / "old")
    many = [node("NdArrayNode", kind="numpy.ndarray", file="7.npy", type="numpy", number=n) for n in range(400)]
    data = old_file(old_model(mode_weights=node("ListNode", many)), {"7.npy": array_bytes(np.ones(1 << 17))})
    (tmp_path / "old").write_bytes(data)
    tracemalloc.start()
    assert len({id(array) for array in load(tmp_path / "old").mode_weights}) == 1
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("inside", "name"),
    [
        (node("ObjectNode", None, "sklearn.linear_model._base.LinearRegression"), "LinearRegression"),
        (node("ObjectNode", None, "subprocess.Popen"), r"subprocess\.Popen"),
        (node("FunctionNode", None, "os.system"), r"os\.system"),
        (node("MethodNode", {"func": "system", "obj": None}, "os.system"), r"os\.system"),
        (node("NdArrayNode", kind="numpy.ndarray", type="json", shape=None), "KeyError"),
        (node("DictNode", {"a": 1}, key_types=node("ListNode", [node("TypeNode", kind="os.system")])), "system"),
        (node("JsonNode", "[[1"), "JSONDecodeError"),
        ({"__loader__": "ObjectNode"}, ""),
    ],
)
def test_other_nodes_of_format_1_are_refused(inside, name, tmp_path):
    refused(old_file(old_model(mode_weights=inside)), name, tmp_path)


def rewritten(payload, change):
    """Change the members of a skops archive."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(payload)) as before, zipfile.ZipFile(target, "w") as after:
        for member in before.namelist():
            change(after, member, before.read(member))
    return target.getvalue()


def test_claims_larger_than_the_file_are_refused(good, tmp_path):
    payload = good.split(b"\n", 2)[2]

    def squeeze(archive, name, data):
        archive.writestr(name, data + b" " * 10_000_000, compress_type=zipfile.ZIP_DEFLATED)

    def inflate(archive, name, data):
        if name.endswith(".npy"):
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)})
            data = head.getvalue()
        archive.writestr(name, data)

    def nest(archive, name, data):
        archive.writestr(name, b"[" * 200_000 if name == "content.json" else data)

    refused(packed(rewritten(payload, squeeze)), "larger than the file", tmp_path)
    refused(packed(rewritten(payload, inflate)), "an array of shape", tmp_path)
    refused(packed(rewritten(payload, nest)), "RecursionError|got some", tmp_path)
    refused(packed(b"no archive"), "BadZipFile", tmp_path)
    refused(packed(b""), "BadZipFile", tmp_path)


def archive_of(members, **options):
    """Make an archive of (name or ZipInfo, data), whatever they are."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", **options) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return target.getvalue()


def npy_head(shape, dtype="<f8"):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": dtype, "fortran_order": False, "shape": shape})
    return head.getvalue()


def link(name):
    member = zipfile.ZipInfo(name)
    member.external_attr = 0o120777 << 16
    return member


def claiming(payload, size):
    """Let every member of an archive claim a size, in the directory and before its data."""
    data = bytearray(payload)
    for mark, at in ((b"PK\x01\x02", 20), (b"PK\x03\x04", 18)):
        place = data.find(mark)
        while place >= 0:
            data[place + at : place + at + 8] = size.to_bytes(4, "little") * 2
            place = data.find(mark, place + 4)
    return bytes(data)


def object_array():
    held = io.BytesIO()
    np.save(held, np.array([Evil()], dtype=object), allow_pickle=True)
    return held.getvalue()


SCHEMA = ("content.json", b"{}")
HOSTILE = {
    "pickle bomb": (lambda: pickle.dumps([Evil()]), "BadZipFile"),
    "pickle in an archive": (lambda: archive_of([SCHEMA, ("1.pkl", pickle.dumps(Evil()))]), "other names"),
    "pickle under the name of an array": (lambda: archive_of([SCHEMA, ("1.npy", pickle.dumps(Evil()))]), "magic"),
    "pickle in an array": (lambda: archive_of([SCHEMA, ("1.npy", object_array())]), "Python objects"),
    "terabytes in a header": (lambda: archive_of([SCHEMA, ("1.npy", npy_head((1 << 40,)))]), "an array of shape"),
    "terabytes in two sizes": (lambda: archive_of([SCHEMA, ("1.npy", npy_head((1 << 20, 1 << 22)))]), "an array of shape"),
    "sizes that overflow": (lambda: archive_of([SCHEMA, ("1.npy", npy_head((1 << 32, 1 << 32)))]), "an array of shape"),
    "a negative size": (lambda: archive_of([SCHEMA, ("1.npy", npy_head((-1,)))]), "an array of shape"),
    "one entry of terabytes": (lambda: archive_of([SCHEMA, ("1.npy", npy_head((1,), "|V1099511627776"))]), "Error"),
    "a claim of gigabytes": (lambda: claiming(archive_of([SCHEMA, ("1.npy", npy_head((1,)))]), 0xFFFFFFF0), "larger than"),
    "a bomb": (
        lambda: archive_of([SCHEMA, ("1.npy", bytes(200 << 20))], compression=zipfile.ZIP_DEFLATED),
        "compressed",
    ),
    "a bomb in a bomb": (
        lambda: archive_of([SCHEMA, ("1.zip", archive_of([("1.npy", bytes(20 << 20))], compression=zipfile.ZIP_DEFLATED))]),
        "other names",
    ),
    "two hundred thousand members": (
        lambda: archive_of([SCHEMA]) + b"PK\x01\x02" * 200_000 + archive_of([SCHEMA]),
        "too many members",
    ),
    "a way up": (lambda: archive_of([SCHEMA, ("../1.npy", b"")]), "other names"),
    "a way from the root": (lambda: archive_of([SCHEMA, ("/nowhere/1.npy", b"")]), "other names"),
    "a way of Windows": (lambda: archive_of([SCHEMA, ("C:\\\\1.npy", b"")]), "other names"),
    "a folder": (lambda: archive_of([SCHEMA, ("a/", b"")]), "other names"),
    "a link": (lambda: archive_of([SCHEMA, (link("1.npy"), b"/etc/passwd")]), "magic"),
    "one name twice": (lambda: archive_of([SCHEMA, SCHEMA]), "twice"),
    "no document": (lambda: archive_of([("1.npy", npy_head((0,)))]), "content.json"),
    "a document of format 1": (lambda: archive_of([("schema.json", b"{}")]), "content.json"),
    "a document that is no JSON": (lambda: archive_of([("content.json", b"\xff\xfe")]), "got some that it cannot"),
    "a document that is a number": (lambda: archive_of([("content.json", b"1")]), r"got builtins\.int"),
    "a document of depth": (lambda: archive_of([("content.json", b'{"a":' * 100_000)]), "RecursionError"),
    "an unknown type": (
        lambda: archive_of([("content.json", b'{"$object":"subprocess.Popen","state":{}}')]), r"subprocess\.Popen"
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_payload_is_refused_before_it_costs_memory(name, tmp_path):
    make, message = HOSTILE[name]
    data = packed(make())
    path = tmp_path / "hostile.tracelearn"
    path.write_bytes(data)
    known_types()  # what is looked up once is no cost of this file
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"(?s)^Expected .*({message})") as refusal:
            load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert peak < 30 * len(data) + (4 << 20)
    assert list(tmp_path.iterdir()) == [path]


def test_a_payload_that_is_cut_off_under_a_header_that_fits_is_refused_wherever_it_is_cut(good, tmp_path):
    payload = good.split(b"\n", 2)[2]
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        starts = [member.header_offset for member in archive.infolist()]
    directory, end = payload.index(b"PK\x01\x02"), payload.rindex(b"PK\x05\x06")
    for place in (
        1,
        *starts[1:3],
        starts[1] + 10,
        starts[1] + 60,
        directory,
        directory + 20,
        end,
        end + 10,
        len(payload) - 1,
    ):
        refused(packed(payload[:place]), "", tmp_path)


def header_line(good, **changes):
    """Change a header; None leaves a field out."""
    fields = {**json.loads(good.split(b"\n", 2)[1]), **changes}
    line = json.dumps({name: value for name, value in fields.items() if value is not None}, separators=(",", ":"))
    return b"tracelearn file\n" + line.encode() + b"\n" + good.split(b"\n", 2)[2]


@pytest.mark.parametrize("version", [0, -1, None, "1", 1.0, True, [1], {}])
def test_a_format_that_never_was_is_refused(good, tmp_path, version):
    refused(header_line(good, format=version), "tracelearn wrote", tmp_path)
    # Also with a checksum that fits.
    payload = good.split(b"\n", 2)[2]
    blank = Header(version, "model", "0", len(payload), "")
    whole = Header(version, "model", "0", len(payload), blank.digest(payload))
    refused(b"tracelearn file\n" + whole.line() + payload, "tracelearn wrote", tmp_path)


def test_a_header_that_is_no_text_or_lacks_a_field_is_refused(good, tmp_path):
    rest = good.split(b"\n", 2)[2]
    for line in (b"\xff\xfe\x00", b"\xc3(", b"null", b"", b'"text"', b"{}", b"NaN", b"[" * 1000):
        refused(b"tracelearn file\n" + line + b"\n" + rest, "tracelearn wrote", tmp_path)
    for field in ("kind", "tracelearn", "length", "sha256"):
        refused(header_line(good, **{field: None}), "tracelearn wrote", tmp_path)
    for changes in ({"length": -1}, {"length": 1e3}, {"length": "9"}, {"kind": "other"}, {"kind": []}, {"more": 1}):
        refused(header_line(good, **changes), "got", tmp_path)


@pytest.mark.parametrize("keys", [{True: 2.0, False: 1.0}, {("a", "b"): 1.0}, {1: 1.0, "1": 2.0}, {1.5: 1, None: 2}])
def test_keys_come_back_as_they_were(tmp_path, keys):
    found = through_file(TraceNormClassifier(class_weight=keys), tmp_path).class_weight
    assert [(type(key), key, value) for key, value in found.items()] == [(type(k), k, v) for k, v in keys.items()]


def test_moments_are_left_out_where_they_are_not_wanted(tmp_path):
    samples = rng.standard_normal((300, 6, 6, 5))
    for model in (
        TraceNormRegressor(alpha=0.1, keep_moments=True).fit(samples, samples[:, 0, 0, 0]),
        HierarchicalTraceNormClassifier().fit(samples, np.arange(300) % 3),
    ):
        save(model, tmp_path / "whole")
        save(model, tmp_path / "small", moments=False)
        again = load(tmp_path / "small")
        np.testing.assert_array_equal(again.predict(samples), model.predict(samples))
        assert not hasattr(again, "moments_")
        assert not hasattr(again, "class_moments_")
        assert (tmp_path / "small").stat().st_size < (tmp_path / "whole").stat().st_size / 4


def test_equal_models_give_equal_files(tmp_path):
    for name in ("one", "two"):
        save(MODELS["classifier"](), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


# --- writing -----------------------------------------------------------------------------------------------------------


def test_writing_replaces_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "file"
    files.write_atomically(path, b"old")
    files.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    (tmp_path / "link").symlink_to(path)
    files.write_atomically(tmp_path / "link", b"newer")
    assert (tmp_path / "link").is_symlink()
    assert path.read_bytes() == b"newer"


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, mode, monkeypatch):
    save(TraceNormRegressor(), tmp_path / "model")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o666 & ~mask
    os.chmod(tmp_path / "model", mode)
    replace = os.replace
    meanwhile = []
    monkeypatch.setattr(
        os, "replace", lambda old, new: (meanwhile.append(old.stat().st_mode & 0o77), replace(old, new))
    )
    save(TraceNormRegressor(), tmp_path / "model")
    assert meanwhile == [mode & 0o77]
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == mode


@pytest.mark.parametrize("at", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_when_writing_fails_the_old_file_is_as_it_was(tmp_path, monkeypatch, at, error):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*args):
        raise error

    monkeypatch.setattr(os, at, fail)
    with pytest.raises(type(error)) as failure:
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    if isinstance(error, OSError):
        assert str(failure.value).startswith(f"Expected to write {path}, got No space left on device: ")
        assert failure.value.errno == errno.ENOSPC
        assert failure.value.__cause__ is error


@pytest.mark.parametrize("make", [os.mkdir, getattr(os, "mkfifo", os.mkdir)])
def test_what_is_no_file_is_not_replaced(tmp_path, make):
    path = tmp_path / "model"
    make(path)
    with pytest.raises(OSError, match=r"^Expected a file to write to, got .*model, which is a folder or a device: "):
        save(TraceNormRegressor(), path)
    assert not path.is_file()
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "model", tmp_path / "missing" / "model"):
        with pytest.raises(OSError, match=r"^Expected to write .*, got "):
            save(TraceNormRegressor(), path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_device_is_noticed(tmp_path, monkeypatch):
    def full(path, mode):
        open(path, mode).close()
        return open("/dev/full", "wb")

    monkeypatch.setattr(files, "open", full, raising=False)
    with pytest.raises(OSError, match="No space left on device"):
        files.write_atomically(tmp_path / "file", b"data")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_in_the_place_of_a_model_is_not_waited_for(tmp_path, within_seconds):
    os.mkfifo(tmp_path / "model")
    for read in (load, read_header):
        with within_seconds(10), pytest.raises(DamagedFileError, match="which is a pipe or a device"):
            read(tmp_path / "model")


@pytest.mark.parametrize(
    "make",
    [TraceNormClassifier, lambda **more: TensorClassifier(cv=3, **more), TensorStandardScaler],
    ids=["model", "search", "transformer"],
)
def test_what_was_fitted_to_a_data_frame_is_saved_with_the_names_of_its_columns(make, tmp_path):
    pandas = pytest.importorskip("pandas", reason="names come from a data frame here")
    frame = pandas.DataFrame(X.reshape(60, -1), columns=[f"c{i}" for i in range(12)])
    model = make(tensor_shape=SHAPE).fit(frame, pandas.Series(labels))
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.feature_names_in_.tolist() == list(frame.columns)
    method = "transform" if isinstance(model, TensorStandardScaler) else "predict"
    np.testing.assert_array_equal(getattr(again, method)(frame), getattr(model, method)(frame))
    with pytest.raises(ValueError, match="same order"):
        getattr(again, method)(frame[frame.columns[::-1]])
