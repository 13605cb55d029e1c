"""Models and moments in files: exact when they are good, refused in one sentence when they are not."""

import copy
import errno
import json
import os
import pickle
import stat
import subprocess
import sys
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
    HierarchicalTraceNormClassifier,
    LaggedRegressor,
    ModePCA,
    Moments,
    SecondOrder,
    Similarities,
    TensorClassifier,
    TensorRegressor,
    TensorStandardScaler,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    load,
    save,
)
from tracelearn.io import models as files
from tracelearn.io import writing
from tracelearn.io.model_content import known_types
from tracelearn.io.model_header import MAGIC, DamagedFileError, Header, read_header
from tracelearn.io.writing import write_atomically
from tracelearn.paper import PaperRegressor

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
    "regressor search": lambda: TensorRegressor(alphas=3, cv=2, keep_moments=True).fit(X, y),
    "classifier search": lambda: TensorClassifier(alphas=3, cv=2).fit(X, labels),
    "regressor CV": lambda: TraceNormRegressorCV(alphas=3, cv=2).fit(X, y),
    "classifier CV": lambda: TraceNormClassifierCV(alphas=3, cv=2).fit(X, labels),
    "hierarchy": lambda: HierarchicalTraceNormClassifier(tree=("cedar", ("ash", "birch"))).fit(X, labels),
    "unfitted hierarchy": HierarchicalTraceNormClassifier,
    "scaler": lambda: TensorStandardScaler(per=(0, 1)).fit(X),
    "compression": lambda: ModePCA((2, 1, 0.9)).fit(X),
    "similarities": lambda: Similarities(SecondOrder(0), n_landmarks=9).fit(X),
    "unfitted": lambda: TraceNormClassifier(alpha=0.1 + 0.2),
    "paper, online": lambda: PaperRegressor("OL_APG_ADM", max_iter=2).fit(X[:9], y[:9]),
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
    assert (header["format"], header["kind"]) == (1, "model")
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


def packed(payload, kind="model"):
    return MAGIC + Header.of(kind, payload).line() + payload


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
    refused(good.replace(b'"format":1', b'"format": 1', 1), "tracelearn wrote", tmp_path)
    refused(good.replace(b'"format":1', b'"format":1,"format":1', 1), "tracelearn wrote", tmp_path)


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
    refused(good.replace(b'"format":1', b'"format":2', 1), "install a newer tracelearn", tmp_path)


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
    inside = {"$object": ["sklearn.linear_model._base.LinearRegression", {}]}
    refused(packed(document(changed(TraceNormRegressor(), loss=inside))), "LinearRegression", tmp_path)


def test_a_fresh_process_knows_every_estimator():
    code = "from tracelearn.io.model_content import known_types; print(*known_types())"
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
    """Take what is written for a thing apart: its content, and its arrays."""
    line, data = files.pack(kind, thing).split(b"\n", 3)[2:]
    parts = json.loads(line)
    arrays = []
    for dtype, shape, order in parts["arrays"]:
        array = np.ndarray(shape, dtype, data, order=order)
        arrays.append(array)
        data = data[array.nbytes :]
    return parts["content"], arrays


def document(content, arrays=()):
    """Put content and arrays together, whatever they are."""
    arrays = [np.asarray(array, order="C") for array in arrays]
    table = [[array.dtype.str, array.shape, "C"] for array in arrays]
    return payload_of(table, b"".join(array.tobytes() for array in arrays), content)


def payload_of(table, data=b"", content=None):
    return json.dumps({"arrays": table, "content": content}).encode() + b"\n" + data


def changed(thing, **state):
    """Change parts of what is written for a thing without arrays; ``...`` leaves a part out."""
    content, _ = content_of(thing)
    name, parts = content["$object"]
    return {"$object": [name, {key: part for key, part in {**parts, **state}.items() if part is not ...}]}


def test_a_kind_must_be_what_it_says(tmp_path):
    refused(packed(document(*content_of(Moments.of(X, y))), "model"), "Moments", tmp_path)
    refused(packed(document(*content_of(TraceNormRegressor())), "moments"), "TraceNormRegressor", tmp_path)
    refused(packed(document({"$dict": []}), "checkpoint"), "resume=True", tmp_path)
    for content in (1, None, "text", [], {"$tuple": []}, {"$dict": []}):
        refused(packed(document(content)), "a model of plain data", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"$object": "TraceNormRegressor"},
        {"$object": ["TraceNormRegressor"]},
        {"$object": [["TraceNormRegressor"], {}]},
        {"$object": ["TraceNormRegressor", []]},
        {"$object": ["TraceNormRegressor", {"$tuple": []}]},
        {"$object": ["tracelearn.estimators.regressor.TraceNormRegressor", {}]},
        {"$object": ["builtins.eval", {}]},
        {"$object": ["several\nlines " * 100, {}]},
        {"$object": [{"$tuple": ["several\nlines"]}, {}]},
        {"$array": 0},
        {"$array": -1},
        {"$array": [0]},
        {"$dtype": "O"},
        {"$dtype": "<f8,<f8"},
        {"$dtype": "|V1000000000"},
        {"$dict": [[[], 1]]},
        {"$dict": [[(2**61 - 1) * n, n] for n in range(3_001)]},
        {"$tuple": [], "$dict": []},
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


WRONG = {
    "no sample shape": {"sample_shape_": 7},
    "a sample shape of text": {"sample_shape_": {"$tuple": ["3", 2, 2]}},
    "a sample shape of no entry": {"sample_shape_": {"$tuple": [0, 2, 2]}},
    "another sample shape": {"sample_shape_": {"$tuple": [3, 2, 3]}},
    "weights of another shape": {"coef_": np.ones((3, 2))},
    "weights that are text": {"coef_": np.full((3, *SHAPE), "a")},
    "weights that are a number": {"coef_": 1.0},
    "no weights": {"coef_": None},
    "intercepts of another number": {"intercept_": np.ones(2)},
    "intercepts that are text": {"intercept_": "a"},
    "no intercepts": {"intercept_": ...},
    "classes of another number": {"classes_": np.array(["a", "b"])},
    "classes that are the same": {"classes_": np.array(["a", "a", "b"])},
    "classes that are a number": {"classes_": 3},
    "classes of two dimensions": {"classes_": np.array([["a"], ["b"], ["c"]])},
    "no classes": {"classes_": ...},
    "weights that are not finite": {"coef_": np.full((3, *SHAPE), np.nan)},
    "intercepts in a column": {"intercept_": np.ones((3, 1))},
}
WRONG_TREE = {
    "no nodes": {"nodes_": []},
    "a node that is none": {"nodes_": [[[0], [1, 2]], 3]},
    "classes of another number": {"classes_": np.arange(5)},
    "weights of another shape": {"coef_": np.ones((2, 7))},
}
WRONG_SCALER = {
    "means of other samples": {"mean_": np.ones((4, 1, 1))},
    "means that are not finite": {"mean_": np.full((3, 2, 2), np.nan)},
    "scales of other samples": {"scale_": np.ones((1, 7, 1))},
}
WRONG_LAGGED = {
    "lags of another number": {"lags_": np.arange(5)},
    "lags that are text": {"lags_": np.array(["a", "b"])},
    "weights of another shape": {"coef_": np.ones((3, 2))},
    "an intercept for each output": {"intercept_": np.ones(2)},
    "features of another number": {"n_features_in_": 5},
}
WRONG_SEARCH = {
    "no weights": {"coef_by_view_": ...},
    "weights of another view": {"coef_by_view_": {"$dict": [["other", np.ones((3, 2, 2))]]}},
    "a view that is none": {"views_": {"$dict": [["raw", 3]]}},
}
WRONG_CONFOUNDS = {
    "weights of other targets": {"confound_coef_": np.ones((2, 2))},
    "weights of another number": {"confound_coef_": np.ones(3)},
    "no weights of confounds": {"confound_coef_": ...},
}
KINDS = {
    "search": (lambda: TensorRegressor(alphas=3, cv=3, views=[None]).fit(X, y), WRONG_SEARCH),
    "scaler": (lambda: TensorStandardScaler().fit(X), WRONG_SCALER),
    "lagged": (lambda: LaggedRegressor(2).fit(X[:, 0, 0], y), WRONG_LAGGED),
    "model": (lambda: TraceNormClassifier(alpha=0.05, loss="log_loss").fit(X, labels), WRONG),
    "tree": (lambda: HierarchicalTraceNormClassifier(alpha=0.05).fit(X, labels), WRONG_TREE),
    "two classes": (
        lambda: TraceNormClassifier(alpha=0.05).fit(X, two),
        {"a single class": {"classes_": np.array([7])}},
    ),
    "search of classes": (
        lambda: TensorClassifier(alphas=3, cv=3, views=[None]).fit(X, two),
        {"a single class": {"classes_": np.array([7])}, "three classes": {"classes_": np.arange(3)}},
    ),
    "confounds": (
        lambda: TraceNormRegressor().fit(X, y, confounds=np.sin(np.arange(120.0)).reshape(60, 2)),
        WRONG_CONFOUNDS,
    ),
}


def with_arrays(value, arrays):
    """Put arrays among those of a document, and their places where they were."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"$array": len(arrays) - 1}
    if isinstance(value, list):
        return [with_arrays(item, arrays) for item in value]
    if isinstance(value, dict):
        return {key: with_arrays(item, arrays) for key, item in value.items()}
    return value


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, (_, wrong) in KINDS.items() for name in wrong])
def test_a_model_whose_parts_do_not_fit_is_refused(kind, name, tmp_path):
    make, wrong = KINDS[kind]
    content, arrays = content_of(make())
    parts = content["$object"][1]
    for part, value in wrong[name].items():
        if value is ...:
            del parts[part]
        else:
            parts[part] = with_arrays(value, arrays)
    refused(packed(document(content, arrays)), "use only files written by save", tmp_path)


def test_a_model_that_claims_enormous_samples_costs_no_memory(tmp_path):
    content, arrays = content_of(TraceNormRegressor(alpha=0.05).fit(X, y))
    content["$object"][1]["sample_shape_"] = {"$tuple": [1 << 40, 2, 2]}
    (tmp_path / "file").write_bytes(packed(document(content, arrays)))
    assert np.isfinite(load(tmp_path / "file").predict(X)).all()


def test_what_a_forged_model_goes_on_learning_from_is_refused_by_fit(tmp_path):
    content, arrays = content_of(TraceNormRegressor(alpha=0.05).fit(X, y))
    content["$object"][1]["tol"] = [1.0]
    (tmp_path / "file").write_bytes(packed(document(content, arrays)))
    with pytest.raises(ValueError, match="'tol' parameter"):
        load(tmp_path / "file").fit(X, y)


def test_a_model_without_one_of_its_parameters_is_refused(tmp_path):
    refused(packed(document(changed(TraceNormRegressor(), alpha=...))), "no attribute 'alpha'", tmp_path)


@pytest.mark.parametrize("step", [1, {"$tuple": ["a"]}])
def test_a_pipeline_of_other_things_is_refused(step, tmp_path):
    refused(packed(document(changed(make_pipeline(TraceNormRegressor()), steps=[step]))), "use only files", tmp_path)


def test_a_pipeline_with_a_cache_is_refused(tmp_path):
    refused(packed(document(changed(make_pipeline(TraceNormRegressor()), memory="somewhere"))), "a cache", tmp_path)


def test_an_array_that_is_named_often_is_read_once(tmp_path):
    one = {"$array": 0}
    content = changed(TraceNormRegressor(), mode_weights=[one] * 400, tensor_shape=[one] * 400)
    path = tmp_path / "model"
    path.write_bytes(packed(document(content, [np.ones(1 << 17)])))
    tracemalloc.start()
    model = load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.mode_weights[0] is model.tensor_shape[-1]
    assert peak < 6 << 20  # 800 MB, were each of them read


# --- payloads of strangers ---------------------------------------------------------------------------------------------

PICKLED = pickle.dumps([Evil()])
HOSTILE = {
    "a pickle": (lambda: PICKLED, "no end of the document|JSON|utf-8"),
    "a pickle after the document": (lambda: payload_of([], PICKLED), "bytes that belong to no array"),
    "an archive": (lambda: b"PK\x03\x04 something else\n", "JSON"),
    "Python objects": (lambda: payload_of([["|O", [1], "C"]], PICKLED), "Python objects"),
    "a record": (lambda: payload_of([[[["a", "<f8"]], [1], "C"]], bytes(8)), "Python objects or records"),
    "terabytes": (lambda: payload_of([["<f8", [1 << 40], "C"]], bytes(8)), "an array of shape"),
    "terabytes in two sizes": (lambda: payload_of([["<f8", [1 << 20, 1 << 22], "C"]]), "an array of shape"),
    "sizes that overflow": (lambda: payload_of([["<f8", [1 << 32, 1 << 32], "C"]]), "an array of shape"),
    "sizes beside zero": (lambda: payload_of([["<f8", [0, 1 << 62, 1 << 62], "C"]]), "got some that it cannot"),
    "terabytes of empty text": (lambda: payload_of([["<U0", [1 << 40], "C"]]), "an array of shape"),
    "a negative size": (lambda: payload_of([["<f8", [-1], "C"]]), "no shape"),
    "a size that is no number": (lambda: payload_of([["<f8", [True], "C"]], bytes(8)), "no shape"),
    "many axes": (lambda: payload_of([["<f8", [1] * 5000, "C"]], bytes(8)), "got some that it cannot"),
    "another order": (lambda: payload_of([["<f8", [1], "K"]], bytes(8)), "no order"),
    "one entry of terabytes": (lambda: payload_of([["|S1099511627776", [1], "C"]]), "none"),
    "an array that is cut off": (lambda: payload_of([["<f8", [2], "C"]], bytes(15)), "an array of shape"),
    "fifty thousand arrays": (lambda: payload_of([["<f8", [], "C"]] * 50_000, bytes(400_000)), "more than"),
    "a document of five million bytes": (lambda: payload_of([], content="a" * 5_000_000), "a document of more than"),
    "a million lists": (lambda: payload_of([], content=[[]] * 1_000_000), "too many lists"),
    "no end of the document": (lambda: b'{"arrays":[],"content":null}', "no end"),
    "a document of other parts": (lambda: b'{"content":null}\n', "other parts"),
    "a document of more parts": (lambda: b'{"arrays":[],"content":null,"more":1}\n', "other parts"),
    "a table that is a number": (lambda: payload_of(3), "got some that it cannot"),
    "a table of numbers": (lambda: payload_of([3]), "got some that it cannot"),
    "a document that is no JSON": (lambda: b"\xff\xfe\n", "got some that it cannot"),
    "a document that is a number": (lambda: b"1\n", "other parts"),
    "a content that is a number": (lambda: payload_of([], content=1), r"got builtins\.int"),
    "a document of depth": (lambda: b'{"a":' * 100_000 + b"\n", "RecursionError"),
    "a content of depth": (lambda: payload_of([]).replace(b"null", b"[" * 900 + b"]" * 900), "got"),
    "a number of many digits": (lambda: payload_of([]).replace(b"null", b"9" * 100_000), "got some that it cannot"),
    "an unknown type": (lambda: payload_of([], content={"$object": ["subprocess.Popen", {}]}), r"subprocess\.Popen"),
}  # fmt: skip


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


@pytest.mark.parametrize(
    "item",
    [b'{"a":0}', b'{"$tuple":[]}', b'"a"', b"123456"],
)
def test_the_largest_documents_of_small_values_take_less_than_200_mb(item, tmp_path):
    begin, end = b'{"arrays":[],"content":[', b"]}\n"
    count = ((4 << 20) - len(begin + end)) // (len(item) + 1)
    most = 199_990 // max(1, item.count(b"{") + item.count(b"["))
    (tmp_path / "model").write_bytes(packed(begin + b",".join([item] * min(count, most)) + end))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"^Expected"):
        load(tmp_path / "model")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 << 20


def test_a_payload_that_is_cut_off_under_a_header_that_fits_is_refused_wherever_it_is_cut(good, tmp_path):
    payload = good.split(b"\n", 2)[2]
    end = payload.index(b"\n")
    for place in (0, 1, 20, end - 1, end, end + 1, end + 9, len(payload) - 1):
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
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    (tmp_path / "link").symlink_to(path)
    write_atomically(tmp_path / "link", b"newer")
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
        write_atomically(path, b"new")
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

    monkeypatch.setattr(writing, "open", full, raising=False)
    with pytest.raises(OSError, match="No space left on device"):
        write_atomically(tmp_path / "file", b"data")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_in_the_place_of_a_model_is_not_waited_for(tmp_path, within_seconds):
    os.mkfifo(tmp_path / "model")
    for read in (load, read_header):
        with within_seconds(10), pytest.raises(DamagedFileError, match="which is a pipe or a device"):
            read(tmp_path / "model")


@pytest.mark.parametrize(
    "make",
    [TraceNormClassifier, TensorStandardScaler],
    ids=["model", "transformer"],
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
